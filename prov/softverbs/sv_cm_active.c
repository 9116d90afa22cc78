/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The connecting side, step by step:
 *
 *	TCP	connected? send the MPA request
 *	REPLY	HELLO: is the peer one of ours, on this host? send our HELLO
 *		reply: rejected, or taken up
 *	ACCEPT	the peer's QP number and so on
 *	HANDOVER (sv_handover.c)
 *	UP	CONNECT_RESPONSE; the user moves its QP and calls establish
 *		(iWARP: ESTABLISHED)
 *
 * How a failure is reported follows what InfiniBand's CM would do: nobody
 * listens, REJECTED 8; the peer's process or id went away, REJECTED 28 or 4; no
 * answer in time or no way there, UNREACHABLE; all that is wrong with the peer
 * itself, CONNECT_ERROR.
 */
#include "sv_cm.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

int sv_active_socket(const struct sockaddr *src)
{
	struct sockaddr_storage addr;
	int on = 1;
	int err;
	int sock;

	sock = socket(src->sa_family,
		      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -errno;
	/* The address; the port by connect(). */
	sv_addr_copy(&addr, src);
	setsockopt(sock, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	if (bind(sock, (struct sockaddr *)&addr, sv_addr_len(src))) {
		err = errno;
		close(sock);
		return -err;
	}
	return sock;
}

static int active_socket(struct sv_id *id)
{
	int sock = id->sock;
	int err;

	if (sock < 0)
		sock = sv_active_socket(&id->id.route.addr.src_addr);
	else
		sv_linger_end(id, false);
	if (sock < 0)
		return sock;
	err = sv_id_set_tos(id, sock);
	if (!err)
		return sock;
	if (sock != id->sock)
		close(sock);
	return -err;
}

/* Errors that say something about the way or the peer, not about us. */
static bool is_remote_error(int err)
{
	return err == ECONNREFUSED || err == ECONNRESET ||
		err == EHOSTUNREACH || err == ENETUNREACH ||
		err == EHOSTDOWN || err == ENETDOWN || err == ETIMEDOUT ||
		err == EACCES || err == EPERM;
}

static void fail_connect(struct sv_conn *conn, int err)
{
	if (err == ECONNREFUSED || err == ECONNRESET)
		sv_conn_fail(conn, RDMA_CM_EVENT_REJECTED,
			     SV_CM_REJ_INVALID_SERVICE);
	else
		sv_conn_fail(conn, RDMA_CM_EVENT_UNREACHABLE, -err);
}

/* So that rdma_get_src_port() tells the port from here on. */
static void learn_src(struct sv_id *id, int sock)
{
	struct sockaddr_storage src = { 0 };
	socklen_t len = sizeof(src);

	if (!getsockname(sock, (struct sockaddr *)&src, &len) &&
	    src.ss_family == id->id.route.addr.src_storage.ss_family)
		id->id.route.addr.src_storage = src;
}

int sv_active_dial(struct sv_conn *conn, const struct sockaddr *dst)
{
	int on = 1;
	int err;

	setsockopt(conn->sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	err = connect(conn->sock, dst, sv_addr_len(dst)) ? errno : 0;
	if (err && err != EINPROGRESS && err != EINTR)
		return err;
	/* Writable means connected, or failed: both are looked at there. */
	err = sv_conn_watch(conn, EPOLLOUT);
	if (!err)
		sv_conn_set_timer(conn, SV_CM_HELLO_MS);
	return err;
}

int sv_active_connect(struct sv_id *id)
{
	struct sv_conn *conn = id->conn;
	int sock;
	int err;

	sock = active_socket(id);
	if (sock < 0)
		return -sock;
	conn->sock = sock;
	id->sock = -1;
	err = sv_active_dial(conn, &id->id.route.addr.dst_addr);
	if (!err || is_remote_error(err))
		learn_src(id, sock);
	if (!is_remote_error(err))
		return err;
	fail_connect(conn, err);
	return 0;
}

/*
 * A connection to a free port of this host may by chance leave from that very
 * port and then meets itself.
 */
static bool is_self_connected(int sock)
{
	struct sockaddr_storage own = { 0 };
	struct sockaddr_storage peer = { 0 };
	socklen_t own_len = sizeof(own);
	socklen_t peer_len = sizeof(peer);

	return !getsockname(sock, (struct sockaddr *)&own, &own_len) &&
		!getpeername(sock, (struct sockaddr *)&peer, &peer_len) &&
		own_len == peer_len && !memcmp(&own, &peer, own_len);
}

void sv_active_connected(struct sv_conn *conn)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	socklen_t err_len = sizeof(int);
	int err = 0;

	if (getsockopt(conn->sock, SOL_SOCKET, SO_ERROR, &err, &err_len))
		err = errno;
	if (!err && getpeername(conn->sock, (struct sockaddr *)&peer, &len))
		err = errno;
	if (err == ENOTCONN || (!err && is_self_connected(conn->sock)))
		err = ECONNREFUSED;
	if (err) {
		fail_connect(conn, err);
		return;
	}
	conn->phase = SV_CONN_REPLY;
	sv_conn_send_mpa(conn, &conn->own);
}

/* Says who we are, once we know that the peer understands. */
static int active_hello(struct sv_conn *conn)
{
	struct sv_ctrl hello = { .type = SV_CTRL_HELLO };
	int err;

	hello.links = sv_cm_links_pick(&conn->hello);
	if (!hello.links) {
		sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -EHOSTUNREACH);
		return 0;
	}
	err = sv_handover_hello(conn, &hello);
	if (err) {
		sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -err);
		return 0;
	}
	conn->use_tcp = hello.links == SV_LINKS_TCP;
	hello.conn = conn->own_conn;
	if (conn->rdv)
		sv_rdv_meet(conn, &hello);
	sv_conn_set_timer(conn, SV_CM_REPLY_MS);
	sv_conn_send_ctrl(conn, &hello);
	return 0;
}

/* The peer's view of reads is the mirror image of ours. */
static void learn_remote(struct sv_conn *conn)
{
	struct sv_id *id = conn->id;

	id->remote = conn->hello.conn;
	sv_id_set_depths(id, conn->mpa.ord, conn->mpa.ird);
}

int sv_active_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl)
{
	if (conn->phase == SV_CONN_REPLY) {
		if (ctrl->type != SV_CTRL_HELLO || conn->hello.type)
			return -EPROTO;
		conn->hello = *ctrl;
		return active_hello(conn);
	}
	if (conn->phase != SV_CONN_ACCEPT || ctrl->type != SV_CTRL_ACCEPT)
		return -EPROTO;
	conn->hello.conn = ctrl->conn;
	if (conn->id)
		learn_remote(conn);
	else if (sv_rdv_accepted(conn))
		return -EPROTO;
	conn->phase = SV_CONN_HANDOVER;
	sv_conn_set_timer(conn, SV_CM_HANDOVER_MS);
	if (!conn->use_tcp)
		sv_handover_start(conn);
	return 0;
}

static void active_rejected(struct sv_conn *conn)
{
	struct sv_id *id = conn->id;
	struct sv_mpa *mpa = &conn->mpa;
	struct sv_event *event;

	event = sv_event_new(id, RDMA_CM_EVENT_REJECTED, SV_CM_REJ_CONSUMER);
	if (event)
		sv_event_set_pd(event, SV_CM_REJ, mpa->pd, mpa->pd_len);
	sv_conn_close(conn);
	id->state = SV_ID_FAILED;
	if (event)
		sv_event_queue(event);
}

int sv_active_reply(struct sv_conn *conn)
{
	if (conn->mpa.reject) {
		if (conn->id)
			active_rejected(conn);
		else
			sv_conn_close(conn);
		return 0;
	}
	if (conn->mpa.ext && conn->hello.type && conn->mpa.enhanced) {
		conn->phase = SV_CONN_ACCEPT;
		return 0;
	}
	if (conn->rdv || conn->hello.type || conn->mpa.ext ||
	    !sv_cm_foreign(conn)) {
		sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -EOPNOTSUPP);
		return 0;
	}
	learn_remote(conn);
	conn->phase = SV_CONN_HANDOVER;
	return 0;
}

/*
 * The user moves its QP and calls establish. Not where the connection owns the
 * QP: there it is up now.
 */
void sv_active_linked(struct sv_conn *conn)
{
	struct sv_id *id = conn->id;
	struct rdma_conn_param *param;
	struct sv_event *event;

	if (conn->rdv) {
		sv_conn_send_plain(conn, SV_CTRL_READY);
		sv_rdv_linked(conn);
		sv_conn_close(conn);
		return;
	}
	if (sv_id_qp_up(id)) {
		sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL);
		return;
	}
	event = sv_event_new(id, id->qp ? RDMA_CM_EVENT_ESTABLISHED :
					  RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	if (!event) {
		sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -ENOMEM);
		return;
	}
	sv_conn_stop_timer(conn);
	sv_event_set_pd(event, SV_CM_REP, conn->mpa.pd, conn->mpa.pd_len);
	param = &event->event.param.conn;
	param->responder_resources = id->responder_resources;
	param->initiator_depth = id->initiator_depth;
	param->flow_control = id->remote.flow_control;
	param->rnr_retry_count = id->remote.rnr_retry_cnt;
	param->srq = id->remote.srq;
	param->qp_num = id->remote.qp_num;
	conn->phase = SV_CONN_UP;
	id->state = id->qp ? SV_ID_CONNECTED : SV_ID_RESPONDED;
	if (id->qp)
		sv_conn_send_plain(conn, SV_CTRL_READY);
	sv_event_queue(event);
}

void sv_active_lost(struct sv_conn *conn, int err)
{
	switch (conn->phase) {
	case SV_CONN_REPLY:
		if (err && err != ECONNRESET && err != EPIPE)
			sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -err);
		else if (conn->hello.type)
			sv_conn_fail(conn, RDMA_CM_EVENT_REJECTED,
				     SV_CM_REJ_CONSUMER);
		else
			sv_conn_fail(conn, RDMA_CM_EVENT_REJECTED,
				     SV_CM_REJ_INVALID_SERVICE);
		return;
	case SV_CONN_UP:		/* the user has not said establish */
		sv_conn_fail(conn, RDMA_CM_EVENT_REJECTED, SV_CM_REJ_TIMEOUT);
		return;
	default:
		sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR,
			     err ? -err : -ECONNRESET);
	}
}

void sv_active_timeout(struct sv_conn *conn)
{
	switch (conn->phase) {
	case SV_CONN_TCP:
	case SV_CONN_REPLY:
		sv_conn_fail(conn, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		return;
	default:
		sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -ETIMEDOUT);
	}
}
