/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The states of an RC queue pair: which transitions exist, which attributes
 * each needs and admits (IBTA 11.2.5.2, table 91), modify and query.
 */
#include "sv_engine.h"
#include "sv_fault.h"
#include "sv_link.h"

#include <errno.h>
#include <string.h>

struct transition {
	bool legal;
	int required;
	int optional;
};

enum {
	OPT_RTS = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH |
		  IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER,
	STATE_CNT = IBV_QPS_ERR + 1,
};

/* To RESET and to ERR one may go from anywhere, with the state alone. */
static const struct transition transitions[STATE_CNT][STATE_CNT] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_INIT] = {
			.legal = true,
			.required = IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS,
		},
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_INIT] = {
			.legal = true,
			.optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS,
		},
		[IBV_QPS_RTR] = {
			.legal = true,
			.required = IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER,
			.optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
				    IBV_QP_PKEY_INDEX,
		},
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RTS] = {
			.legal = true,
			.required = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC,
			.optional = OPT_RTS,
		},
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RTS] = { .legal = true, .optional = OPT_RTS },
		[IBV_QPS_SQD] = {
			.legal = true,
			.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		},
	},
	[IBV_QPS_SQD] = {
		[IBV_QPS_RTS] = { .legal = true, .optional = OPT_RTS },
		[IBV_QPS_SQD] = {
			.legal = true,
			.optional = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT |
				    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_MAX_QP_RD_ATOMIC |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
				    IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER |
				    IBV_QP_PATH_MIG_STATE,
		},
	},
	/* SQE is not for reliable connections: any error of one is for good. */
};

static bool mask_ok(const struct sv_qp *qp, enum ibv_qp_state to, int mask)
{
	const enum ibv_qp_state from = qp->attr.qp_state;
	const struct transition *t = &transitions[from][to];

	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return !(mask & ~IBV_QP_CUR_STATE);
	if (!t->legal) {
		sv_log("no transition of a QP from state %d to %d", from, to);
		return false;
	}
	/* Where a connection brings them along, none is asked for. */
	if (qp->ctx->dev->persona->cm_owns_qp)
		return true;
	if ((mask & t->required) != t->required) {
		sv_log("QP state %d to %d: attributes missing: %#x", from, to,
		       t->required & ~mask);
		return false;
	}
	if (mask & ~(t->required | t->optional)) {
		sv_log("QP state %d to %d: attributes not allowed: %#x", from,
		       to, mask & ~(t->required | t->optional));
		return false;
	}
	return true;
}

/* A look without pkeys has a table of none, and takes index 0. */
static bool pkey_ok(const struct sv_qp *qp, uint16_t index)
{
	struct sv_dev *dev = qp->ctx->dev;
	bool ok;

	lock_take(&dev->lock);
	ok = index < dev->pkey_cnt ? dev->pkeys[index] & 0x7fff :
				     !index && !dev->persona->pkey_cnt;
	lock_drop(&dev->lock);
	return ok;
}

static bool values_ok(const struct sv_qp *qp, const struct ibv_qp_attr *attr,
		      int mask)
{
	/* Those of memory as well: programs give one set to both. */
	const unsigned int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
		IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
	const struct sv_dev *dev = qp->ctx->dev;
	const struct {
		int bit;
		bool ok;
	} checks[] = {
		{ IBV_QP_CUR_STATE, attr->cur_qp_state == qp->attr.qp_state },
		{ IBV_QP_PORT, attr->port_num == SV_PORT },
		{ IBV_QP_PKEY_INDEX, mask & IBV_QP_PKEY_INDEX &&
					     pkey_ok(qp, attr->pkey_index) },
		{ IBV_QP_ACCESS_FLAGS,
		  !(attr->qp_access_flags &
		    ~(access | IBV_ACCESS_OPTIONAL_RANGE)) },
		{ IBV_QP_PATH_MTU, attr->path_mtu >= IBV_MTU_256 &&
					   attr->path_mtu <= sv_dev_mtu(dev) },
		{ IBV_QP_DEST_QPN, attr->dest_qp_num <= 0xffffff },
		{ IBV_QP_MAX_QP_RD_ATOMIC,
		  attr->max_rd_atomic <= dev->lim.rd_out },
		{ IBV_QP_MAX_DEST_RD_ATOMIC,
		  attr->max_dest_rd_atomic <= dev->lim.rd_in },
		{ IBV_QP_MIN_RNR_TIMER, attr->min_rnr_timer <= 31 },
		{ IBV_QP_TIMEOUT, attr->timeout <= 31 },
		{ IBV_QP_RETRY_CNT, attr->retry_cnt <= 7 },
		{ IBV_QP_RNR_RETRY, attr->rnr_retry <= 7 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(checks); i++)
		if (mask & checks[i].bit && !checks[i].ok) {
			sv_log("qp %06x: value of attribute %#x is not valid",
			       qp->qp.qp_num, checks[i].bit);
			return false;
		}
	/* The table is only looked at when it matters: it takes a lock. */
	if (mask & IBV_QP_AV &&
	    !sv_ah_attr_ok(qp->qp.context, &attr->ah_attr)) {
		sv_log("qp %06x: address vector is not valid", qp->qp.qp_num);
		return false;
	}
	return true;
}

/* Caller holds qp->lock. */
static void values_set(struct sv_qp *qp, const struct ibv_qp_attr *attr,
		       int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		to->en_sqd_async_notify = attr->en_sqd_async_notify;
	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		to->port_num = attr->port_num;
	if (mask & IBV_QP_AV)
		to->ah_attr = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = attr->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = attr->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = attr->sq_psn & 0xffffff;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = attr->dest_qp_num;
	if (mask & IBV_QP_ALT_PATH) {
		to->alt_ah_attr = attr->alt_ah_attr;
		to->alt_pkey_index = attr->alt_pkey_index;
		to->alt_port_num = attr->alt_port_num;
		to->alt_timeout = attr->alt_timeout;
	}
	if (mask & IBV_QP_PATH_MIG_STATE)
		to->path_mig_state = attr->path_mig_state;
}

/* Caller holds qp->lock. Tells the receive queue and the peer. */
void sv_qp_set_state(struct sv_qp *qp, enum ibv_qp_state state)
{
	qp->attr.qp_state = state;
	qp->qp.state = state;
	sv_lock_take(&qp->rq_lock);
	if (state == IBV_QPS_RESET)
		qp->rq_state = SV_RQ_RESET;
	else if (state == IBV_QPS_ERR)
		qp->rq_state = SV_RQ_ERROR;
	else
		qp->rq_state = SV_RQ_READY;
	sv_lock_drop(&qp->rq_lock);
	if (qp->srq && (state == IBV_QPS_RESET || state == IBV_QPS_ERR))
		sv_srq_forget(qp);
	if (qp->link)
		qp->link->ops->publish(qp->link);
}

void sv_qp_error(struct sv_qp *qp, int event)
{
	if (qp->attr.qp_state == IBV_QPS_ERR ||
	    qp->attr.qp_state == IBV_QPS_RESET)
		return;
	sv_log("qp %06x: to the error state", qp->qp.qp_num);
	sv_qp_set_state(qp, IBV_QPS_ERR);
	sv_flush(qp);
	if (event >= 0)
		sv_async_raise_qp(qp, event);
	if (qp->error_fn)
		qp->error_fn(qp->error_arg);
	qp->error_fn = NULL;
	/* It held one at most, and that is flushed. */
	if (qp->srq)
		sv_async_raise_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* Nothing is in flight any more: says so if it was asked to. qp->lock. */
void sv_qp_drained(struct sv_qp *qp)
{
	if (qp->attr.qp_state != IBV_QPS_SQD || !qp->attr.en_sqd_async_notify)
		return;
	qp->attr.en_sqd_async_notify = 0;
	sv_async_raise_qp(qp, IBV_EVENT_SQ_DRAINED);
}

/* Caller holds qp->lock. The link that it returns is to be dropped. */
static struct sv_link *to_reset(struct sv_qp *qp)
{
	struct sv_link *link;

	sv_qp_set_state(qp, IBV_QPS_RESET);
	link = sv_qp_take_link(qp);
	sv_cq_purge(qp->scq, qp);
	if (qp->rcq != qp->scq)
		sv_cq_purge(qp->rcq, qp);
	sv_wq_reset(&qp->sq);
	sv_wq_reset(&qp->rq);
	atomic_store(&qp->rq_starved, false);
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->psn_wanted = SV_PSN_ANY;
	qp->peer_lost = false;
	return link;
}

/* What the peer has acknowledged is done, though nobody has looked yet; and what is
 * posted from now on is flushed because we say so. Caller holds qp->lock. */
static void to_error(struct sv_qp *qp)
{
	qp->peer_lost = false;
	if (qp->link && qp->attr.qp_state != IBV_QPS_ERR)
		qp->link->ops->acks(qp->link);
	sv_qp_error(qp, -1);
}

/* It has met a peer that does not receive from what it was now told to send
 * from: on a network the peer would never see a packet in order. qp->lock. */
static bool is_mistaken(const struct sv_qp *qp)
{
	return qp->psn_wanted != SV_PSN_ANY &&
	       qp->psn_wanted != qp->attr.sq_psn;
}

/* A QP that nobody will ever find is of no use. */
static int begin_rdv(struct sv_qp *qp)
{
	int err = sv_rdv_begin(qp);

	if (!err)
		return 0;
	sv_lock_take(&qp->lock);
	to_error(qp);
	sv_lock_drop(&qp->lock);
	return err;
}

/*
 * Where its connection owns it, a queue pair may be in RTS before its user has said
 * so, as with rdma_init_qp_attr() it does everywhere: siw takes that for done.
 */
static bool is_late(const struct sv_qp *qp, enum ibv_qp_state to)
{
	return qp->ctx->dev->persona->cm_owns_qp &&
	       qp->attr.qp_state == IBV_QPS_RTS &&
	       (to == IBV_QPS_INIT || to == IBV_QPS_RTR);
}

/*
 * Of who is to be its peer such a queue pair hears from rdma_cm, and nobody else:
 * whoever names one, or goes on to RTS without one, would wait for ever. siw says
 * so at RTS only.
 */
static bool is_alone(const struct sv_qp *qp, enum ibv_qp_state to, int mask)
{
	bool alone = qp->ctx->dev->persona->cm_owns_qp &&
		     (to == IBV_QPS_RTR ?
			      mask & (IBV_QP_AV | IBV_QP_DEST_QPN) :
			      to == IBV_QPS_RTS &&
				      qp->attr.qp_state == IBV_QPS_RTR);

	if (alone)
		sv_log("qp %06x: on iWARP only rdma_cm can connect it",
		       qp->qp.qp_num);
	return alone;
}

int sv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct sv_qp *qp = sv_qp(ibqp);
	struct sv_link *old = NULL;
	enum ibv_qp_state to;
	bool search;
	int err;

	if (sv_ctx_dead(ibqp->context))
		return ENODEV;
	err = sv_fault_call_qp(SV_FAULT_modify_qp, qp);
	if (err)
		return err;
	if (!mask && qp->ctx->dev->persona->cm_owns_qp)
		return 0;	/* what rdma_cm has to say for RTS there */
	/* Whatever happens to it from there on, the engine has to see to. */
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RTR)
		err = sv_engine_start();
	if (err)
		return err;
	sv_lock_take(&qp->lock);
	to = mask & IBV_QP_STATE ? attr->qp_state : qp->attr.qp_state;
	if (is_late(qp, to)) {
		sv_lock_drop(&qp->lock);
		return 0;
	}
	if ((unsigned int)to >= STATE_CNT || !mask_ok(qp, to, mask) ||
	    is_alone(qp, to, mask) || !values_ok(qp, attr, mask)) {
		sv_lock_drop(&qp->lock);
		return EINVAL;
	}
	values_set(qp, attr, mask);
	if (to == IBV_QPS_RESET) {
		old = to_reset(qp);
	} else if (to == IBV_QPS_ERR) {
		if (qp->attr.qp_state == IBV_QPS_RESET)
			sv_qp_set_state(qp, IBV_QPS_ERR);
		else
			to_error(qp);
	} else {
		if (to == IBV_QPS_RTS && is_mistaken(qp))
			old = sv_qp_take_link(qp);
		sv_qp_set_state(qp, to);
		if (sv_sq_drained(qp))
			sv_qp_drained(qp);
		if (qp->link)
			qp->link->ops->progress(qp->link);
	}
	search = !qp->ctx->dev->persona->cm_owns_qp &&
		 (to == IBV_QPS_RTR ? !qp->link :
				      to == IBV_QPS_RTS && is_mistaken(qp));
	sv_lock_drop(&qp->lock);
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		sv_rdv_cancel(qp);
	sv_qp_drop_link(qp, old);
	return search ? begin_rdv(qp) : 0;
}

int sv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		struct ibv_qp_init_attr *init_attr)
{
	struct sv_qp *qp = sv_qp(ibqp);
	int err;

	if (sv_ctx_dead(ibqp->context))
		return ENODEV;
	err = sv_fault_call_qp(SV_FAULT_query_qp, qp);
	if (err)
		return err;
	sv_lock_take(&qp->lock);
	*attr = qp->attr;
	attr->cur_qp_state = qp->attr.qp_state;
	attr->sq_draining = qp->attr.qp_state == IBV_QPS_SQD &&
			    !sv_sq_drained(qp);
	attr->cap = qp->cap;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = ibqp->qp_context,
		.send_cq = ibqp->send_cq,
		.recv_cq = ibqp->recv_cq,
		.srq = ibqp->srq,
		.qp_type = ibqp->qp_type,
		.cap = qp->cap,
		.sq_sig_all = qp->sq_sig_all,
	};
	sv_lock_drop(&qp->lock);
	return 0;
}
