/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the look of an id's device means for its connection: whether it owns its
 * queue pair (iWARP), how many reads fit, what a rejection is called. On looks
 * that own none the three functions for queue pairs do nothing.
 */
#include "sv_cm.h"

#include <errno.h>

struct sv_dev *sv_id_dev(const struct sv_id *id)
{
	return sv_ctx(id->id.verbs)->dev;
}

void sv_id_set_depths(struct sv_id *id, size_t rd_in, size_t rd_out)
{
	const struct sv_limits *lim = &sv_id_dev(id)->lim;

	id->responder_resources = (uint8_t)min_size(rd_in, lim->rd_in);
	id->initiator_depth = (uint8_t)min_size(rd_out, lim->rd_out);
}

int sv_id_reject_status(const struct sv_id *id, int reason)
{
	const struct sv_persona *persona;

	if (!id->id.verbs)
		return reason;
	persona = sv_id_dev(id)->persona;
	if (reason == SV_CM_REJ_INVALID_SERVICE && persona->rej_service)
		return persona->rej_service;
	return persona->rej_other ? persona->rej_other : reason;
}

int sv_id_qp_take(struct sv_id *id, uint32_t qpn)
{
	struct sv_qp *qp;

	if (!sv_id_dev(id)->persona->cm_owns_qp)
		return 0;
	qp = sv_qp_find(qpn);
	if (!qp)
		return EINVAL;
	if (id->qp)
		sv_qp_put(id->qp);
	id->qp = qp;
	return 0;
}

/* The queue pair has failed, or was moved: the connection goes with it. */
static void on_qp_ended(void *arg)
{
	struct sv_id *id = arg;

	lock_take(&sv_cm.lock);
	if (id->dead || !sv_timer_expired(&id->qp_ended) || !id->conn)
		goto out;
	if (id->state == SV_ID_CONNECTED) {
		sv_conn_goodbye(id->conn);
		sv_id_disconnected(id, 0);
	} else if (id->state == SV_ID_ACCEPTED) {
		sv_conn_fail(id->conn, RDMA_CM_EVENT_CONNECT_ERROR,
			     -ECONNRESET);
	}
out:
	lock_drop(&sv_cm.lock);
}

/* Under the QP's lock, which is inside ours: the engine takes it from here. */
static void qp_ended(void *arg)
{
	struct sv_id *id = arg;

	sv_timer_set(&id->qp_ended, 0, on_qp_ended, id);
}

int sv_id_qp_up(struct sv_id *id)
{
	struct sv_qp_conn conn = {
		.dest_qpn = id->remote.qp_num,
		.rd_in = id->responder_resources,
		.rd_out = id->initiator_depth,
		.error_fn = qp_ended,
		.error_arg = id,
	};

	return id->qp ? sv_qp_connect(id->qp, &conn) : 0;
}

/* A queue pair that a child of fork() inherited is none of its business. */
void sv_id_qp_down(struct sv_id *id)
{
	if (!id->qp || id->process != sv_cm.process)
		return;
	sv_qp_disconnect(id->qp);
	/* Nobody sets it any more. */
	sv_timer_cancel(&id->qp_ended);
}
