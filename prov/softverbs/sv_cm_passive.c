/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Listeners, and the accepting side step by step:
 *
 *	REQUEST	MPA request: one of ours? send HELLO
 *	HELLO	the peer's HELLO: make an id, report CONNECT_REQUEST
 *	USER	until accept or reject
 *	HANDOVER (sv_handover.c)
 *	READY	until the peer's user has moved its QP and called establish
 *	UP	ESTABLISHED
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
	struct sv_id *id = arg;

	lock_take(&sv_cm.lock);
	if (!id->dead && sv_timer_expired(&id->listener.pause)) {
		sv_timer_cancel(&id->listener.pause);
		sv_engine_rewatch(id->sock, EPOLLIN);
	}
	lock_drop(&sv_cm.lock);
}

/* Without this a connection that cannot be accepted would wake us for ever. */
static void listener_pause(struct sv_id *id)
{
	sv_engine_rewatch(id->sock, 0);
	sv_timer_set(&id->listener.pause, PAUSE_MS, on_pause_over, id);
}

static void take_socket(struct sv_id *listen, int sock)
{
	struct sv_conn *conn;
	int on = 1;

	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	sv_id_set_tos(listen, sock);
	conn = sv_conn_new(sock, SV_CONN_REQUEST);
	if (!conn) {
		close(sock);
		return;
	}
	conn->listen = listen;
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
		if (!conn->listen)
			continue;
		if (sv_now_ns() - conn->since_ns < SPEAK_MS * 1000000ull)
			return false;
		sv_conn_close(conn);
		return true;
	}
	return false;
}

static void listener_accept(struct sv_id *id)
{
	int sock;
	int i;

	for (i = 0; i < ACCEPTS_PER_EVENT; i++) {
		if (sv_cm.half_open >= SV_CM_MAX_HALF_OPEN && !drop_silent()) {
			listener_pause(id);
			return;
		}
		sock = accept4(id->sock, NULL, NULL,
			       SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0) {
			take_socket(id, sock);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM) {
			sv_log("cm: cannot accept: %s", strerror(errno));
			listener_pause(id);
			return;
		}
		/* Nobody there, or one that has gone again. */
		if (errno == EAGAIN)
			return;
	}
}

static void on_listen(void *arg, uint32_t events)
{
	struct sv_id *id = arg;

	lock_take(&sv_cm.lock);
	if (!id->dead)
		listener_accept(id);
	lock_drop(&sv_cm.lock);
}

int sv_passive_listen(struct sv_id *id)
{
	int err;

	if (listen(id->sock, TCP_BACKLOG))
		return errno;
	err = sv_engine_watch(id->sock, EPOLLIN, on_listen, id);
	if (err)
		return err;
	id->state = SV_ID_LISTEN;
	return 0;
}

int sv_passive_request(struct sv_conn *conn)
{
	struct sv_ctrl hello = { .type = SV_CTRL_HELLO };
	int err;

	/* A foreign peer: this is where the TCP link will take over. */
	if (!conn->mpa.ext || !conn->mpa.enhanced || conn->mpa.markers) {
		sv_log("cm: request without softverbs' extension refused");
		sv_passive_reject(conn, NULL, 0);
		return 0;
	}
	err = sv_handover_hello(conn, &hello);
	if (err) {
		sv_log("cm: no hand-over: %s", strerror(err));
		sv_passive_reject(conn, NULL, 0);
		return 0;
	}
	conn->phase = SV_CONN_HELLO;
	sv_conn_send_ctrl(conn, &hello);
	return 0;
}

/* The new id is what an id would be that was bound and resolved. */
static int child_route(struct sv_id *child, int sock)
{
	struct rdma_addr *addr = &child->id.route.addr;
	struct sockaddr_storage src = { 0 };
	struct sockaddr_storage dst = { 0 };
	socklen_t src_len = sizeof(src);
	socklen_t dst_len = sizeof(dst);
	int err;

	if (getsockname(sock, (struct sockaddr *)&src, &src_len) ||
	    getpeername(sock, (struct sockaddr *)&dst, &dst_len))
		return errno;
	sv_addr_unmap(&src);
	sv_addr_unmap(&dst);
	addr->src_storage = src;
	addr->dst_storage = dst;
	err = sv_id_bind_verbs(child);
	return err ? err : sv_id_set_path(child);
}

static struct sv_id *child_new(struct sv_conn *conn)
{
	struct sv_id *listen = conn->listen;
	struct sv_id *child;

	child = sv_id_new(sv_channel(listen->id.channel), listen->id.context,
			  listen->id.ps);
	if (!child)
		return NULL;
	child->tos = listen->tos;
	child->tos_set = listen->tos_set;
	child->ack_timeout = listen->ack_timeout;
	if (child_route(child, conn->sock)) {
		sv_id_close(child);
		sv_id_free(child);
		return NULL;
	}
	child->remote = conn->hello.conn;
	child->retry_cnt = child->remote.retry_cnt;
	/* What the peer starts, we answer, and the other way round. */
	child->responder_resources =
		(uint8_t)min_size(conn->mpa.ord, SV_MAX_RD_ATOM);
	child->initiator_depth =
		(uint8_t)min_size(conn->mpa.ird, SV_MAX_RD_ATOM);
	child->state = SV_ID_REQUESTED;
	return child;
}

static void report_request(struct sv_conn *conn, struct sv_event *event,
			   struct sv_id *child)
{
	struct rdma_conn_param *param = &event->event.param.conn;
	struct sv_id *listen = conn->listen;

	event->child = child;
	event->event.id = &child->id;
	event->event.listen_id = &listen->id;
	sv_event_set_pd(event, conn->mpa.pd, conn->mpa.pd_len, SV_CM_REQ_PD);
	param->responder_resources = child->responder_resources;
	param->initiator_depth = child->initiator_depth;
	param->flow_control = child->remote.flow_control;
	param->retry_count = child->remote.retry_cnt;
	param->rnr_retry_count = child->remote.rnr_retry_cnt;
	param->srq = child->remote.srq;
	param->qp_num = child->remote.qp_num;

	listen->listener.pending++;
	sv_cm.half_open--;
	conn->listen = NULL;
	conn->id = child;
	child->conn = conn;
	conn->phase = SV_CONN_USER;
	sv_conn_stop_timer(conn);	/* the peer has its own */
	sv_event_queue(event);
}

static int passive_hello(struct sv_conn *conn)
{
	struct sv_id *listen = conn->listen;
	struct sv_event *event = NULL;
	struct sv_id *child = NULL;

	if (!sv_handover_possible(&conn->hello)) {
		sv_log("cm: peer is not on this host: no link to it yet");
		goto refuse;
	}
	if (listen->listener.pending >= listen->listener.backlog) {
		sv_log("cm: backlog of %u is full", listen->listener.backlog);
		goto refuse;
	}
	child = child_new(conn);
	if (!child)
		goto refuse;
	event = sv_event_new(listen, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	if (!event)
		goto refuse_child;
	report_request(conn, event, child);
	return 0;

refuse_child:
	sv_id_close(child);
	sv_id_free(child);
refuse:
	sv_passive_reject(conn, NULL, 0);
	return 0;
}

int sv_passive_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl)
{
	struct sv_id *id = conn->id;

	if (conn->phase == SV_CONN_HELLO) {
		if (ctrl->type != SV_CTRL_HELLO)
			return -EPROTO;
		conn->hello = *ctrl;
		return passive_hello(conn);
	}
	switch (ctrl->type) {		/* phase READY */
	case SV_CTRL_READY:
		conn->phase = SV_CONN_UP;
		sv_conn_stop_timer(conn);
		id->state = SV_ID_CONNECTED;
		sv_event_push(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		return 0;
	case SV_CTRL_DREQ:		/* the peer thought better of it */
		sv_conn_send_plain(conn, SV_CTRL_DREP);
		sv_conn_fail(conn, RDMA_CM_EVENT_REJECTED, SV_CM_REJ_CONSUMER);
		return 0;
	default:
		return -EPROTO;
	}
}

void sv_passive_accept(struct sv_conn *conn)
{
	struct sv_ctrl accept = { .type = SV_CTRL_ACCEPT };

	conn->phase = SV_CONN_HANDOVER;
	sv_conn_set_timer(conn, SV_CM_HANDOVER_MS);
	sv_conn_send_mpa(conn, &conn->own);
	accept.conn = conn->own_conn;
	sv_conn_send_ctrl(conn, &accept);
}

/* Ends the conn. The id, if there is one, stays and gets no event. */
void sv_passive_reject(struct sv_conn *conn, const void *pd, size_t len)
{
	struct sv_mpa reply = {
		.rev = conn->mpa.rev,
		.reply = true,
		.reject = true,
		.ext = conn->mpa.ext,
		.pd_len = (uint16_t)len,
	};

	if (len)
		memcpy(reply.pd, pd, len);
	sv_conn_send_mpa(conn, &reply);
	sv_conn_close(conn);
}

void sv_passive_linked(struct sv_conn *conn)
{
	conn->phase = SV_CONN_READY;
	sv_conn_set_timer(conn, SV_CM_READY_MS);
}

/*
 * The peer gave up, or died. A request that the user has not seen disappears;
 * for one that it has, the peer's CM would send a rejection.
 */
void sv_passive_lost(struct sv_conn *conn, int err)
{
	struct sv_id *id = conn->id;

	if (!id) {
		sv_conn_close(conn);
		return;
	}
	if (!id->fetched) {
		sv_conn_close(conn);
		sv_id_close(id);
		sv_id_free(id);
		return;
	}
	sv_conn_fail(conn, RDMA_CM_EVENT_REJECTED,
		     conn->phase == SV_CONN_USER ? SV_CM_REJ_TIMEOUT :
		     SV_CM_REJ_CONSUMER);
}

void sv_passive_timeout(struct sv_conn *conn)
{
	if (conn->id)
		sv_conn_fail(conn, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	else
		sv_conn_close(conn);
}
