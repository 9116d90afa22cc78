/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs that their connection owns, as on iWARP: there the connection
 * manager moves them, and neither outlives the other.
 */
#include "sv_link.h"

#include <errno.h>

enum {
	OWNED_ACK_TIMEOUT = 18, /* 4.096 us * 2^18: about a second */
	OWNED_RETRY = 7,
};

/* iWARP asks for no address, no MTU, no timers: these are what it comes to. */
static void owned_attr(struct sv_qp *qp, const struct sv_qp_conn *conn)
{
	struct ibv_qp_attr *attr = &qp->attr;

	attr->path_mtu = sv_dev_mtu(qp->ctx->dev);
	attr->dest_qp_num = conn->dest_qpn;
	attr->max_dest_rd_atomic = conn->rd_in;
	attr->max_rd_atomic = conn->rd_out;
	attr->timeout = OWNED_ACK_TIMEOUT;
	attr->retry_cnt = OWNED_RETRY;
	/* A message that finds no receive ends the connection. */
	attr->rnr_retry = 0;
	/* The keys say who may do what: iWARP knows no other right. */
	attr->qp_access_flags |= IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_READ;
}

int sv_qp_connect(struct sv_qp *qp, const struct sv_qp_conn *conn)
{
	enum ibv_qp_state state;
	int err = EINVAL;

	sv_lock_take(&qp->lock);
	state = qp->attr.qp_state;
	if (!qp->destroyed && (state == IBV_QPS_INIT ||
			       state == IBV_QPS_RTR || state == IBV_QPS_RTS)) {
		owned_attr(qp, conn);
		qp->error_fn = conn->error_fn;
		qp->error_arg = conn->error_arg;
		sv_qp_set_state(qp, IBV_QPS_RTS);
		if (qp->link)
			qp->link->ops->progress(qp->link);
		err = 0;
	}
	sv_lock_drop(&qp->lock);
	return err;
}

void sv_qp_disconnect(struct sv_qp *qp)
{
	sv_lock_take(&qp->lock);
	qp->error_fn = NULL;
	qp->peer_lost = false;
	if (!qp->destroyed) {
		/* One stream: what was sent before its end has arrived. */
		if (qp->link && qp->attr.qp_state == IBV_QPS_RTS) {
			qp->link->ops->progress(qp->link);
			qp->link->ops->acks(qp->link);
		}
		sv_qp_error(qp, -1);
	}
	sv_lock_drop(&qp->lock);
}
