/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The accepting side step by step (sv_cm_listen.c has the listeners):
 *
 *	REQUEST	MPA request: one of ours? send HELLO
 *	HELLO	the peer's HELLO: make an id, report CONNECT_REQUEST
 *	USER	until accept or reject
 *	HANDOVER (sv_handover.c)
 *	READY	until the peer's user has moved its QP and called establish
 *	UP	ESTABLISHED
 */
#include "sv_cm.h"

#include <errno.h>
#include <string.h>

int sv_passive_request(struct sv_conn *conn)
{
	struct sv_ctrl hello = { .type = SV_CTRL_HELLO };
	int err;

	if (sv_fault_any() && sv_fault_request(conn))
		return 0;
	if (!conn->mpa.ext || !conn->mpa.enhanced || conn->mpa.markers) {
		if (!conn->listener->id || !sv_cm_foreign(conn))
			sv_passive_reject(conn, NULL, 0);
		else
			sv_passive_report(conn);
		return 0;
	}
	hello.links = sv_cm_links_offered();
	err = sv_handover_hello(conn, &hello);
	if (err) {
		sv_log("cm: no hand-over: %s", strerror(err));
		sv_note_fds(err);
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
	struct sv_id *listen = conn->listener->id;
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
	sv_id_set_depths(child, conn->mpa.ord, conn->mpa.ird);
	child->state = SV_ID_REQUESTED;
	return child;
}

static void report_request(struct sv_conn *conn, struct sv_event *event,
			   struct sv_id *child)
{
	struct rdma_conn_param *param = &event->event.param.conn;
	struct sv_id *listen = conn->listener->id;

	event->child = child;
	event->event.id = &child->id;
	event->event.listen_id = &listen->id;
	sv_event_set_pd(event, SV_CM_REQ, conn->mpa.pd, conn->mpa.pd_len);
	param->responder_resources = child->responder_resources;
	param->initiator_depth = child->initiator_depth;
	param->flow_control = child->remote.flow_control;
	param->retry_count = child->remote.retry_cnt;
	param->rnr_retry_count = child->remote.rnr_retry_cnt;
	param->srq = child->remote.srq;
	param->qp_num = child->remote.qp_num;

	listen->listener.pending++;
	sv_cm.half_open--;
	conn->listener = NULL;
	conn->id = child;
	child->conn = conn;
	conn->phase = SV_CONN_USER;
	sv_conn_stop_timer(conn);	/* the peer has its own */
	sv_event_queue(event);
}

/* The request is whole: the user may decide. */
void sv_passive_report(struct sv_conn *conn)
{
	struct sv_id *listen = conn->listener->id;
	struct sv_event *event = NULL;
	struct sv_id *child = NULL;

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
	return;

refuse_child:
	sv_id_close(child);
	sv_id_free(child);
refuse:
	sv_passive_reject(conn, NULL, 0);
}

static void passive_hello(struct sv_conn *conn)
{
	uint8_t link = conn->hello.links;

	/* It names one; what we would pick ourselves may be better. */
	if (link != SV_LINKS_TCP && link != SV_LINKS_SHM)
		link = 0;
	if (!(sv_cm_links_pick(&conn->hello) & link)) {
		sv_passive_reject(conn, NULL, 0);
		return;
	}
	conn->use_tcp = link == SV_LINKS_TCP;
	if (conn->listener->id)
		sv_passive_report(conn);
	else
		sv_rdv_request(conn);
}

int sv_passive_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl)
{
	struct sv_id *id = conn->id;

	if (conn->phase == SV_CONN_HELLO) {
		if (ctrl->type != (conn->listener->id ? SV_CTRL_HELLO :
				   SV_CTRL_MEET))
			return -EPROTO;
		conn->hello = *ctrl;
		passive_hello(conn);
		return 0;
	}
	switch (ctrl->type) {		/* phase READY */
	case SV_CTRL_READY:
		if (!id) {		/* nothing more to say */
			sv_conn_close(conn);
			return 0;
		}
		conn->phase = SV_CONN_UP;
		sv_conn_stop_timer(conn);
		id->state = SV_ID_CONNECTED;
		sv_event_push(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		return 0;
	case SV_CTRL_DREQ:		/* the peer thought better of it */
		if (!id)
			return -EPROTO;
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
	conn->since_ns = sv_now_ns();
	sv_conn_set_timer(conn, SV_CM_HANDOVER_MS);
	sv_conn_send_mpa(conn, &conn->own);
	if (conn->foreign)
		return;
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
	static const struct sv_ctrl ready = { .type = SV_CTRL_READY };

	conn->phase = SV_CONN_READY;
	if (conn->rdv)
		sv_rdv_linked(conn);
	sv_conn_set_timer(conn, SV_CM_READY_MS);
	/* Who will not tell that it is ready, is. */
	if (conn->foreign && !conn->mpa.p2p)
		sv_passive_ctrl(conn, &ready);
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
