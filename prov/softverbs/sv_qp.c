/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a queue pair: creation, its link, destruction. What states it goes
 * through is in sv_qp_state.c, how it is numbered in sv_qpn.c.
 *
 * Destruction: first the QP leaves the number table, so nobody can find it;
 * then it loses its link, so nothing reaches it; then its completions go. Who
 * still holds a reference may lock it and sees that it is destroyed.
 */
#include "sv_int.h"
#include "sv_fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- references ---- */

void sv_qp_get(struct sv_qp *qp)
{
	atomic_fetch_add(&qp->refs, 1);
}

void sv_qp_put(struct sv_qp *qp)
{
	if (atomic_fetch_sub(&qp->refs, 1) != 1)
		return;
	sv_wq_fini(&qp->sq);
	sv_wq_fini(&qp->rq);
	pthread_mutex_destroy(&qp->qp.mutex);
	pthread_cond_destroy(&qp->qp.cond);
	free(qp->ex);
	free(qp);
}

/* ---- creation ---- */

/* Positive errno. */
static int init_attr_check(const struct ibv_pd *pd,
			   const struct ibv_qp_init_attr *attr)
{
	const struct sv_limits *lim = &sv_ctx(pd->context)->dev->lim;
	const struct ibv_qp_cap *cap = &attr->cap;

	if (attr->qp_type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq ||
	    attr->send_cq->context != pd->context ||
	    attr->recv_cq->context != pd->context)
		return EINVAL;
	if (attr->srq && attr->srq->context != pd->context)
		return EINVAL;
	if (cap->max_send_wr > lim->qp_wr || cap->max_recv_wr > lim->qp_wr ||
	    cap->max_send_sge > lim->sge || cap->max_recv_sge > lim->sge ||
	    cap->max_inline_data > lim->inline_data)
		return EINVAL;
	return 0;
}

/* With an SRQ a receive that is taken has room, but none can be posted. */
static int queues_init(struct sv_qp *qp, struct ibv_pd *pd, uint32_t srq_sge)
{
	const struct ibv_qp_cap *cap = &qp->cap;
	size_t sges = cap->max_send_sge * sizeof(struct ibv_sge);
	int err;

	err = sv_wq_init(&qp->sq, sv_pd(pd), cap->max_send_wr, cap->max_send_sge,
			 sizeof(struct sv_swr) +
				 max_size(max_size(sges + sizeof(struct sv_operands),
						   sizeof(struct sv_bind)),
					  cap->max_inline_data));
	if (err)
		return err;
	err = sv_wq_init(&qp->rq, sv_pd(pd), cap->max_recv_wr, cap->max_recv_sge,
			 sizeof(struct sv_rwr) +
				 max_size(cap->max_recv_sge, srq_sge) *
					 sizeof(struct ibv_sge));
	if (err)
		sv_wq_fini(&qp->sq);
	return err;
}

static void qp_init(struct sv_qp *qp, struct ibv_pd *pd,
		    const struct ibv_qp_init_attr *attr)
{
	static atomic_uint next_id = 1;

	qp->window_id = atomic_fetch_add(&next_id, 1) | SV_OWNER_QP;
	qp->ctx = sv_ctx(pd->context);
	qp->pd = sv_pd(pd);
	qp->rq_pd = qp->pd;
	qp->scq = sv_cq(attr->send_cq);
	qp->rcq = sv_cq(attr->recv_cq);
	qp->sq_sig_all = attr->sq_sig_all;
	qp->sink_access = IBV_ACCESS_LOCAL_WRITE;
	if (qp->ctx->dev->persona->remote_sink)
		qp->sink_access |= IBV_ACCESS_REMOTE_WRITE;
	qp->max_msg = qp->ctx->dev->lim.msg;
	qp->rq_pub = &qp->rq_pub_none;
	qp->psn_wanted = SV_PSN_ANY;
	atomic_store(&qp->refs, 1);
	sv_lock_init(&qp->lock);
	sv_lock_init(&qp->rq_lock);
	list_init(&qp->srq_node);
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
	qp->qp.context = pd->context;
	qp->qp.qp_context = attr->qp_context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.qp_type = attr->qp_type;
	qp->qp.state = IBV_QPS_RESET;
	qp->attr.qp_state = IBV_QPS_RESET;
}

struct ibv_qp *sv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_srq_attr srq = { .max_sge = 0 };
	struct sv_qp *qp;
	void *mem;
	int err;

	err = sv_ctx_dead(pd->context) ? ENODEV : init_attr_check(pd, attr);
	if (!err)
		err = sv_fault_call(SV_FAULT_create_qp,
				    sv_ctx(pd->context)->dev);
	if (err)
		goto err_errno;
	err = ENOMEM;
	if (!sv_dev_take(sv_ctx(pd->context)->dev, SV_RES_QP))
		goto err_errno;
	if (posix_memalign(&mem, CACHELINE, sizeof(*qp)))
		goto err_give;
	qp = memset(mem, 0, sizeof(*qp));
	qp->cap = attr->cap;
	/* One SGE at the least, as drivers give: a WR has somewhere to point. */
	if (!qp->cap.max_send_sge)
		qp->cap.max_send_sge = 1;
	if (!qp->cap.max_recv_sge)
		qp->cap.max_recv_sge = 1;
	/* Inline data lie where SGEs would, so there is room for this much. As
	 * with NICs, and rdma_xclient asks for none and sends 16 bytes. */
	qp->cap.max_inline_data = (uint32_t)max_size(
		qp->cap.max_inline_data,
		min_size(qp->cap.max_send_sge * sizeof(struct ibv_sge),
			 sv_ctx(pd->context)->dev->lim.inline_data));
	if (attr->srq) {
		qp->cap.max_recv_wr = 0;
		qp->cap.max_recv_sge = 0;
		sv_query_srq(attr->srq, &srq);
	}
	err = queues_init(qp, pd, srq.max_sge);
	if (err)
		goto err_free_qp;
	qp_init(qp, pd, attr);
	err = sv_qpn_add(qp);
	if (err)
		goto err_put_qp;
	atomic_fetch_add(&qp->pd->users, 1);
	atomic_fetch_add(&qp->scq->users, 1);
	atomic_fetch_add(&qp->rcq->users, 1);
	if (attr->srq)
		sv_srq_join(qp, attr->srq);
	attr->cap = qp->cap;
	return &qp->qp;

err_put_qp:
	sv_qp_put(qp);
	goto err_give;
err_free_qp:
	free(qp);
err_give:
	sv_dev_give(sv_ctx(pd->context)->dev, SV_RES_QP);
err_errno:
	errno = err;
	return NULL;
}

/* ---- link ---- */

int sv_qp_attach_link(struct sv_qp *qp, struct sv_link *link)
{
	enum ibv_qp_state state;
	int err;

	err = sv_cq_add_link(qp->scq, link);
	if (err)
		return err;
	if (qp->rcq != qp->scq) {
		err = sv_cq_add_link(qp->rcq, link);
		if (err)
			goto err_del_scq;
	}
	sv_lock_take(&qp->lock);
	state = qp->attr.qp_state;
	if (qp->link || qp->destroyed || state == IBV_QPS_RESET ||
	    state == IBV_QPS_ERR) {
		sv_lock_drop(&qp->lock);
		err = EINVAL;
		goto err_del_rcq;
	}
	sv_link_enter(link);
	sv_lock_drop(&qp->lock);
	return 0;

err_del_rcq:
	if (qp->rcq != qp->scq)
		sv_cq_del_link(qp->rcq, link);
err_del_scq:
	sv_cq_del_link(qp->scq, link);
	return err;
}

/* Caller holds qp->lock. The result, unless NULL, is for sv_qp_drop_link(). */
struct sv_link *sv_qp_take_link(struct sv_qp *qp)
{
	struct sv_link *link = qp->link;

	qp->link = NULL;
	qp->ops_refused = 0;
	sv_lock_take(&qp->rq_lock);
	qp->rq_pub = &qp->rq_pub_none;
	sv_lock_drop(&qp->rq_lock);
	return link;
}

/* Caller holds no lock: waits for pollers and the engine to let go. */
void sv_qp_drop_link(struct sv_qp *qp, struct sv_link *link)
{
	if (!link)
		return;
	sv_cq_del_link(qp->scq, link);
	if (qp->rcq != qp->scq)
		sv_cq_del_link(qp->rcq, link);
	sv_link_close(link);
}

/* ---- destruction ---- */

int sv_destroy_qp(struct ibv_qp *ibqp)
{
	struct sv_qp *qp = sv_qp(ibqp);
	struct sv_link *link;
	uint32_t async_got;
	int err;

	if (sv_ctx_dead(ibqp->context))
		return 0;
	err = sv_fault_call_qp(SV_FAULT_destroy_qp, qp);
	if (err)
		return err;
	sv_qpn_del(qp);
	sv_lock_take(&qp->lock);
	qp->destroyed = true;
	sv_qp_set_state(qp, IBV_QPS_RESET);
	link = sv_qp_take_link(qp);
	sv_lock_drop(&qp->lock);
	sv_rdv_cancel(qp);
	sv_qp_drop_link(qp, link);
	sv_cq_purge(qp->scq, qp);
	if (qp->rcq != qp->scq)
		sv_cq_purge(qp->rcq, qp);

	sv_async_drop(qp->ctx, qp);
	lock_take(&qp->ctx->lock);
	async_got = qp->async_got;
	lock_drop(&qp->ctx->lock);
	err = sv_wait_acks(&ibqp->mutex, &ibqp->cond, &ibqp->events_completed,
			   async_got);
	if (err)
		return err;
	sv_dev_give(qp->ctx->dev, SV_RES_QP);
	/* What is the application's it gets back now, whoever holds the QP. */
	if (qp->sq.mem.from)
		sv_wq_fini(&qp->sq);
	if (qp->rq.mem.from)
		sv_wq_fini(&qp->rq);
	atomic_fetch_sub(&qp->pd->users, 1);
	atomic_fetch_sub(&qp->scq->users, 1);
	atomic_fetch_sub(&qp->rcq->users, 1);
	if (qp->srq)
		sv_srq_leave(qp);
	sv_qp_put(qp);
	return 0;
}
