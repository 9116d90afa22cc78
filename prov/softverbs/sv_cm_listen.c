/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Listeners: accepting TCP connections, for ids and for the numbers of queue
 * pairs (sv_rdv.c). What a connection then says is for sv_cm_passive.c.
 *
 * What bounds a listener. Connections that have not yet sent their request are
 * few (SV_CM_MAX_HALF_OPEN) and short-lived (SV_CM_REQUEST_MS); for a further one
 * the oldest has to go, if it had its time to speak, else it waits in the kernel's
 * queue: who says nothing keeps nobody out. Requests queued and not fetched by the user are
 * at most the backlog given to listen; further ones are rejected as rdma_cm
 * does, with status 28 and no data.
 */
#include "sv_cm.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	TCP_BACKLOG = 4096,	/* the kernel cuts it to its own limit */
	ACCEPTS_PER_EVENT = 32,
	PAUSE_MS = 50,
	SPEAK_MS = 200,		/* for a request, when others wait */
};

static void on_pause_over(void *arg)
{
	struct sv_listener *listener = arg;

	lock_take(&sv_cm.lock);
	if (listener->on && sv_timer_expired(&listener->pause)) {
		sv_timer_cancel(&listener->pause);
		sv_engine_rewatch(listener->sock, EPOLLIN);
	}
	lock_drop(&sv_cm.lock);
}

/* Without this a connection that cannot be accepted would wake us for ever. */
static void listener_pause(struct sv_listener *listener)
{
	sv_engine_rewatch(listener->sock, 0);
	sv_timer_set(&listener->pause, PAUSE_MS, on_pause_over, listener);
}

static void take_socket(struct sv_listener *listener, int sock)
{
	struct sv_conn *conn;
	int on = 1;

	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (listener->id)
		sv_id_set_tos(listener->id, sock);
	conn = sv_conn_new(sock, SV_CONN_REQUEST);
	if (!conn) {
		close(sock);
		return;
	}
	conn->listener = listener;
	sv_cm.half_open++;
	if (sv_conn_watch(conn, EPOLLIN)) {
		sv_conn_close(conn);
		return;
	}
	sv_conn_set_timer(conn, SV_CM_REQUEST_MS);
}

/* Drops the oldest that has not sent its request; false if none is old enough. */
static bool drop_silent(void)
{
	struct sv_conn *conn;
	struct list *pos;

	list_for_each(pos, &sv_cm.conns) {
		conn = list_entry(pos, struct sv_conn, node);
		if (!conn->listener)
			continue;
		if (sv_now_ns() - conn->since_ns < SPEAK_MS * 1000000ull)
			return false;
		sv_conn_close(conn);
		return true;
	}
	return false;
}

static void listener_accept(struct sv_listener *listener)
{
	int sock;
	int i;

	for (i = 0; i < ACCEPTS_PER_EVENT; i++) {
		if (sv_cm.half_open >= SV_CM_MAX_HALF_OPEN && !drop_silent()) {
			listener_pause(listener);
			return;
		}
		sock = accept4(listener->sock, NULL, NULL,
			       SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0) {
			take_socket(listener, sock);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM) {
			sv_log("cm: cannot accept: %s", strerror(errno));
			sv_note_fds(errno);
			listener_pause(listener);
			return;
		}
		/* Nobody there, or one that has gone again. */
		if (errno == EAGAIN)
			return;
	}
}

static void on_listen(void *arg, uint32_t events)
{
	struct sv_listener *listener = arg;

	lock_take(&sv_cm.lock);
	if (listener->on)
		listener_accept(listener);
	lock_drop(&sv_cm.lock);
}

int sv_listener_start(struct sv_listener *listener, int sock, struct sv_id *id)
{
	int err;

	sv_handover_prepare();
	if (listen(sock, TCP_BACKLOG))
		return errno;
	err = sv_engine_watch(sock, EPOLLIN, on_listen, listener);
	if (err)
		return err;
	listener->sock = sock;
	listener->id = id;
	listener->on = true;
	return 0;
}

void sv_listener_stop(struct sv_listener *listener)
{
	struct sv_conn *conn;
	struct list *pos;
	struct list *tmp;

	if (!listener->on)
		return;
	listener->on = false;
	sv_timer_cancel(&listener->pause);
	sv_engine_unwatch_nowait(listener->sock);
	list_for_each_safe(pos, tmp, &sv_cm.conns) {
		conn = list_entry(pos, struct sv_conn, node);
		if (conn->listener == listener)
			sv_conn_close(conn);
	}
}
