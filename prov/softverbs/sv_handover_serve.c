/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The accepting end of the hand-over (sv_handover.c): one listening UNIX socket
 * per process, and the guests that call there and have to show their token.
 */
#include "sv_handover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	UNIX_BACKLOG = 4096,
	MAX_GUESTS = 256,	/* connected, not yet known whose */
	GUEST_MS = 5000,
	ACCEPTS_PER_EVENT = 32,
	PAUSE_MS = 50,
	WAIT_MS = 1000,		/* for a descriptor */
	RANDOM_NAME_LEN = 12,
};

/* A caller on the UNIX socket that has not shown its token yet. */
struct guest {
	struct list node;
	struct sv_defer defer;
	struct sv_timer timer;
	bool dead;
	int sock;
};

/* Guarded by sv_cm.lock. */
static struct {
	int sock;
	char name[SV_UNIX_NAME_MAX + 1];
	struct list guests;
	unsigned int guest_cnt;
	struct sv_timer pause;
} server = {
	.sock = -1,
	.guests = { &server.guests, &server.guests },
};

static void guest_free(struct sv_defer *defer)
{
	free(container_of(defer, struct guest, defer));
}

/* The socket may have gone to a link: then it is -1. */
static void guest_end(struct guest *guest)
{
	guest->dead = true;
	sv_timer_cancel(&guest->timer);
	if (guest->sock >= 0) {
		sv_engine_unwatch_nowait(guest->sock);
		close(guest->sock);
		guest->sock = -1;
	}
	list_del(&guest->node);
	server.guest_cnt--;
	sv_engine_defer(&guest->defer, guest_free);
}

static void on_guest_timer(void *arg)
{
	struct guest *guest = arg;

	lock_take(&sv_cm.lock);
	if (!guest->dead && sv_timer_expired(&guest->timer))
		guest_end(guest);
	lock_drop(&sv_cm.lock);
}

/* Compares all of it in any case, so that time tells nothing. */
static bool is_token(const uint8_t *a, const uint8_t *b)
{
	uint8_t diff = 0;
	size_t i;

	for (i = 0; i < SV_TOKEN_LEN; i++)
		diff |= a[i] ^ b[i];
	return !diff;
}

static struct sv_conn *conn_of_token(const uint8_t *token)
{
	struct sv_conn *conn;
	struct list *pos;

	list_for_each(pos, &sv_cm.conns) {
		conn = list_entry(pos, struct sv_conn, node);
		if (conn->passive && conn->phase == SV_CONN_HANDOVER &&
		    is_token(conn->token, token))
			return conn;
	}
	return NULL;
}

/*
 * The answer goes out before our side is attached: the peer's probes need only
 * what was made by sv_shm_create().
 */
static void guest_serve(struct guest *guest, struct sv_conn *conn,
			const struct sv_offer *offer, int fds[SV_LINK_FDS])
{
	int sock = guest->sock;
	struct ucred cred;
	int err;

	err = sv_is_same_user(sock, &cred) ? sv_handover_make_link(conn) : EPERM;
	if (!err)
		err = sv_offer_send(conn, sock);
	if (err) {
		sv_fds_close(fds, SV_LINK_FDS);
		goto fail;
	}
	err = sv_handover_attach(conn, offer, fds, &guest->sock, &cred);
	if (err)
		goto fail;
	sv_passive_linked(conn);
	return;

fail:
	sv_handover_fail(conn, err);
}

/* conn: NULL if it is not known whose guest it was. */
static void guest_refuse(struct sv_conn *conn, int err)
{
	if (conn) {
		sv_handover_fail(conn, err);
		return;
	}
	sv_log("cm: an offer of shared memory is not taken: %s", strerror(err));
	sv_note_fds(err);
}

static void on_guest(void *arg, uint32_t events)
{
	struct guest *guest = arg;
	struct sv_conn *conn = NULL;
	int fds[SV_LINK_FDS];
	struct sv_offer offer;
	int err;

	lock_take(&sv_cm.lock);
	if (guest->dead)
		goto out;
	err = sv_offer_recv(guest->sock, &offer, fds);
	if (err == EAGAIN)
		goto out;
	if (!err || err == EMFILE)
		conn = conn_of_token(offer.token);
	if (err)
		guest_refuse(conn, err);
	else if (conn)
		guest_serve(guest, conn, &offer, fds);
	else
		sv_fds_close(fds, SV_LINK_FDS);
	guest_end(guest);
out:
	lock_drop(&sv_cm.lock);
}

static void guest_new(int sock)
{
	struct guest *guest;
	struct ucred cred;

	if (!sv_is_same_user(sock, &cred)) {
		sv_log("cm: uid %u refused on the UNIX socket", cred.uid);
		goto err_close;
	}
	guest = calloc(1, sizeof(*guest));
	if (!guest)
		goto err_close;
	guest->sock = sock;
	list_add_tail(&server.guests, &guest->node);
	server.guest_cnt++;
	if (sv_engine_watch(sock, EPOLLIN, on_guest, guest))
		guest_end(guest);
	else
		sv_timer_set(&guest->timer, GUEST_MS, on_guest_timer, guest);
	return;

err_close:
	close(sock);
}

static void on_pause_over(void *arg)
{
	lock_take(&sv_cm.lock);
	if (sv_timer_expired(&server.pause)) {
		sv_timer_cancel(&server.pause);
		sv_engine_rewatch(server.sock, EPOLLIN);
	}
	lock_drop(&sv_cm.lock);
}

/* Those that call cannot be accepted. Whoever has waited for that long enough is
 * not left to wait until the time of the hand-over is over. */
static void fail_waiting(int err)
{
	const uint64_t since_ns = sv_now_ns() - WAIT_MS * 1000000ull;
	struct list *pos, *tmp;
	struct sv_conn *conn;

	sv_note_fds(err);
	list_for_each_safe(pos, tmp, &sv_cm.conns) {
		conn = list_entry(pos, struct sv_conn, node);
		if (conn->passive && !conn->use_tcp &&
		    conn->phase == SV_CONN_HANDOVER &&
		    conn->since_ns < since_ns)
			sv_handover_fail(conn, err);
	}
}

static void on_unix_listen(void *arg, uint32_t events)
{
	int sock;
	int i;

	lock_take(&sv_cm.lock);
	for (i = 0; i < ACCEPTS_PER_EVENT; i++) {
		sock = -1;
		errno = EMFILE;
		if (server.guest_cnt < MAX_GUESTS)
			sock = accept4(server.sock, NULL, NULL,
				       SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock < 0)
			break;
		guest_new(sock);
	}
	if (i < ACCEPTS_PER_EVENT && errno != EAGAIN &&
	    errno != ECONNABORTED) {
		if (server.guest_cnt < MAX_GUESTS)
			fail_waiting(errno);
		sv_engine_rewatch(server.sock, 0);
		sv_timer_set(&server.pause, PAUSE_MS, on_pause_over, NULL);
	}
	lock_drop(&sv_cm.lock);
}

int sv_handover_listen(char name[SV_UNIX_NAME_MAX + 1])
{
	uint8_t random[RANDOM_NAME_LEN];
	struct sockaddr_un addr;
	socklen_t len;
	size_t at;
	size_t i;
	int err;
	int sock;

	if (server.sock >= 0)
		goto out;
	sv_random(random, sizeof(random));
	at = (size_t)snprintf(server.name, sizeof(server.name), "sv-");
	for (i = 0; i < sizeof(random); i++)
		at += (size_t)snprintf(server.name + at,
				       sizeof(server.name) - at, "%02x",
				       random[i]);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		      0);
	if (sock < 0)
		return errno;
	len = sv_unix_addr(&addr, server.name);
	if (bind(sock, (struct sockaddr *)&addr, len) ||
	    listen(sock, UNIX_BACKLOG)) {
		err = errno;
		goto err_close;
	}
	err = sv_engine_watch(sock, EPOLLIN, on_unix_listen, NULL);
	if (err)
		goto err_close;
	server.sock = sock;
out:
	memcpy(name, server.name, sizeof(server.name));
	return 0;

err_close:
	close(sock);
	return err;
}

void sv_handover_fork_child(void)
{
	struct guest *guest;
	struct list *pos;

	while ((pos = list_pop(&server.guests))) {
		guest = list_entry(pos, struct guest, node);
		close(guest->sock);
		free(guest);
	}
	server.guest_cnt = 0;
	memset(&server.pause, 0, sizeof(server.pause));
	if (server.sock >= 0)
		close(server.sock);
	server.sock = -1;
}
