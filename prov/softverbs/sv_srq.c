/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shared receive queues. A queue pair takes a receive when a message begins
 * for it, copies it into the one slot that it has of its own, and from there
 * on all is as with a receive queue of its own: so receives that were taken may
 * complete in any order, and what nobody has taken outlives every queue pair.
 *
 * A queue pair that finds nothing waits in a list, first come first served.
 */
#include "sv_int.h"
#include "sv_fault.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sv_srq {
	struct ibv_srq srq; /* first: events name it */
	struct sv_ctx *ctx;
	struct sv_pd *pd;
	struct sv_lock lock; /* guards wq, limit, starved */
	struct sv_wq wq; /* done: how many were taken */
	uint32_t limit; /* 0: not armed */
	struct list starved; /* sv_qp.srq_node */
	uint32_t async_got; /* ctx->lock */
	atomic_int users; /* QPs */
};

static struct sv_srq *sv_srq(struct ibv_srq *srq)
{
	return container_of(srq, struct sv_srq, srq);
}

static size_t slot_size(uint32_t max_sge)
{
	return sizeof(struct sv_rwr) + max_sge * sizeof(struct ibv_sge);
}

/* ---- life ---- */

struct ibv_srq *sv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct sv_dev *dev = sv_ctx(pd->context)->dev;
	struct ibv_srq_attr *attr = &init->attr;
	struct sv_srq *srq;
	uint32_t max_sge;
	int err;

	err = sv_ctx_dead(pd->context) ? ENODEV :
		sv_fault_call(SV_FAULT_create_srq, dev);
	if (err)
		goto err_errno;
	err = EINVAL;
	if (!attr->max_wr || attr->max_wr > dev->lim.srq_wr ||
	    attr->max_sge > dev->lim.sge)
		goto err_errno;
	err = ENOMEM;
	if (!sv_dev_take(dev, SV_RES_SRQ))
		goto err_errno;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		goto err_give;
	max_sge = attr->max_sge ? attr->max_sge : 1;
	err = sv_wq_init(&srq->wq, sv_pd(pd), attr->max_wr, max_sge, slot_size(max_sge));
	if (err)
		goto err_free_srq;
	srq->ctx = sv_ctx(pd->context);
	srq->pd = sv_pd(pd);
	sv_lock_init(&srq->lock);
	list_init(&srq->starved);
	srq->srq.context = pd->context;
	srq->srq.srq_context = init->srq_context;
	srq->srq.pd = pd;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	atomic_fetch_add(&srq->pd->users, 1);
	attr->max_sge = max_sge;
	return &srq->srq;

err_free_srq:
	free(srq);
err_give:
	sv_dev_give(dev, SV_RES_SRQ);
err_errno:
	errno = err;
	return NULL;
}

int sv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct sv_srq *srq = sv_srq(ibsrq);
	uint32_t async_got;
	int err;

	if (sv_ctx_dead(ibsrq->context))
		return 0;
	if (atomic_load(&srq->users))
		return EBUSY;
	sv_async_drop(srq->ctx, srq);
	lock_take(&srq->ctx->lock);
	async_got = srq->async_got;
	lock_drop(&srq->ctx->lock);
	err = sv_wait_acks(&ibsrq->mutex, &ibsrq->cond,
			   &ibsrq->events_completed, async_got);
	if (err)
		return err;
	sv_dev_give(srq->ctx->dev, SV_RES_SRQ);
	atomic_fetch_sub(&srq->pd->users, 1);
	pthread_mutex_destroy(&ibsrq->mutex);
	pthread_cond_destroy(&ibsrq->cond);
	sv_wq_fini(&srq->wq);
	free(srq);
	return 0;
}

/* Caller holds ctx->lock. The application has fetched an event. */
void sv_srq_event_got(struct ibv_srq *ibsrq)
{
	sv_srq(ibsrq)->async_got++;
}

/* ---- attributes ---- */

/* Caller holds srq->lock. How many receives are there to be taken. */
static uint32_t srq_left(struct sv_srq *srq)
{
	return sv_wq_posted(&srq->wq) - srq->wq.done;
}

/*
 * Moves what is posted to wq, which is larger or smaller, and leaves the old
 * ring there. Caller holds srq->lock.
 */
static void srq_swap(struct sv_srq *srq, struct sv_wq *wq)
{
	uint32_t posted = sv_wq_posted(&srq->wq), i;
	const struct sv_mem old = srq->wq.mem;

	for (i = srq->wq.done; i != posted; i++)
		memcpy(wq->slots + (size_t)(i & wq->mask) * wq->stride,
		       (char *)old.ptr + (size_t)(i & srq->wq.mask) * srq->wq.stride,
		       wq->stride);
	srq->wq.slots = wq->slots;
	srq->wq.mem = wq->mem;
	srq->wq.mask = wq->mask;
	srq->wq.max_wr = wq->max_wr;
	wq->mem = old;
}

int sv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct sv_srq *srq = sv_srq(ibsrq);
	struct sv_wq wq = { .mem = { .ptr = NULL } };
	uint32_t max_wr;
	int err = 0;

	if (sv_ctx_dead(ibsrq->context))
		return ENODEV;
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR) {
		if (!attr->max_wr || attr->max_wr > srq->ctx->dev->lim.srq_wr)
			return EINVAL;
		err = sv_wq_init(&wq, srq->pd, attr->max_wr, srq->wq.max_sge,
				 slot_size(srq->wq.max_sge));
		if (err)
			return err;
	}
	sv_lock_take(&srq->lock);
	max_wr = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->wq.max_wr;
	if (srq_left(srq) > max_wr ||
	    (mask & IBV_SRQ_LIMIT && attr->srq_limit > max_wr)) {
		err = EINVAL;
	} else {
		if (mask & IBV_SRQ_MAX_WR)
			srq_swap(srq, &wq);
		if (mask & IBV_SRQ_LIMIT)
			srq->limit = attr->srq_limit;
	}
	sv_lock_drop(&srq->lock);
	sv_wq_fini(&wq);
	return err;
}

int sv_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct sv_srq *srq = sv_srq(ibsrq);

	if (sv_ctx_dead(ibsrq->context))
		return ENODEV;
	sv_lock_take(&srq->lock);
	*attr = (struct ibv_srq_attr){
		.max_wr = srq->wq.max_wr,
		.max_sge = srq->wq.max_sge,
		.srq_limit = srq->limit,
	};
	sv_lock_drop(&srq->lock);
	return 0;
}

/* ---- queue pairs ---- */

void sv_srq_join(struct sv_qp *qp, struct ibv_srq *ibsrq)
{
	struct sv_srq *srq = sv_srq(ibsrq);

	qp->srq = srq;
	qp->rq_pd = srq->pd;
	qp->qp.srq = ibsrq;
	atomic_fetch_add(&srq->users, 1);
}

void sv_srq_leave(struct sv_qp *qp)
{
	atomic_fetch_sub(&qp->srq->users, 1);
}

/* Waits no more. Caller holds qp->lock. */
void sv_srq_forget(struct sv_qp *qp)
{
	sv_lock_take(&qp->srq->lock);
	list_del(&qp->srq_node);
	sv_lock_drop(&qp->srq->lock);
}

static __cold void limit_reached(struct sv_srq *srq)
{
	struct ibv_async_event event = {
		.element.srq = &srq->srq,
		.event_type = IBV_EVENT_SRQ_LIMIT_REACHED,
	};

	sv_async_raise(srq->ctx, &event);
}

/* Who finds nothing waits, and keeps its place if it looks again. Under srq->lock:
 * sv_post_srq_recv() wakes who is in the list. */
static bool found(struct sv_srq *srq, struct sv_qp *qp)
{
	bool found = srq_left(srq);

	if (found)
		list_del(&qp->srq_node);
	else if (list_empty(&qp->srq_node))
		list_add_tail(&srq->starved, &qp->srq_node);
	atomic_store_explicit(&qp->rq_starved, !found, memory_order_relaxed);
	return found;
}

/* Armed too high, the limit is reached by the message that comes next, even if
 * there is no receive for it. Under srq->lock; limit_reached() is not. */
static bool hits_limit(struct sv_srq *srq)
{
	if (likely(!srq->limit || srq_left(srq) >= srq->limit))
		return false;
	srq->limit = 0;
	return true;
}

/*
 * Takes the oldest receive for this QP, which holds none: it has one slot. Or has
 * it wait for the next. Caller holds qp->lock.
 */
struct sv_rwr *sv_srq_take(struct sv_qp *qp)
{
	struct sv_rwr *rwr = sv_rq_slot(qp, 0), *from;
	struct sv_srq *srq = qp->srq;
	bool got, hit;

	assert(qp->rq.done == sv_wq_posted(&qp->rq));
	sv_lock_take(&srq->lock);
	got = found(srq, qp);
	if (got) {
		from = (void *)(srq->wq.slots +
				(size_t)(srq->wq.done & srq->wq.mask) *
					srq->wq.stride);
		memcpy(rwr, from, slot_size(from->num_sge));
		srq->wq.done++;
		atomic_store_explicit(&srq->wq.free, srq->wq.done,
				      memory_order_relaxed); /* under lock */
	}
	hit = hits_limit(srq);
	sv_lock_drop(&srq->lock);
	if (unlikely(hit))
		limit_reached(srq);
	if (!got)
		return NULL;
	/* To the peer: for one message more there is a receive. */
	atomic_store_explicit(&qp->rq.posted, qp->rq.done + 1,
			      memory_order_relaxed); /* under qp->lock */
	atomic_store(qp->rq_pub, qp->rq.done + 1);
	return rwr;
}

/* If there is no receive, this QP is to hear of the next, for a peer whose message
 * has not come yet. Nothing is taken. Caller holds qp->lock. */
void sv_srq_await(struct sv_qp *qp)
{
	struct sv_srq *srq = qp->srq;
	bool hit;

	sv_lock_take(&srq->lock);
	hit = !found(srq, qp) && hits_limit(srq);
	sv_lock_drop(&srq->lock);
	if (unlikely(hit))
		limit_reached(srq);
}

/* How many receives there are for whoever takes them first. */
uint32_t sv_srq_avail(struct sv_qp *qp)
{
	uint32_t left;

	sv_lock_take(&qp->srq->lock);
	left = srq_left(qp->srq);
	sv_lock_drop(&qp->srq->lock);
	return left;
}

/* ---- posting ---- */

/* The one that waits longest, if there is a receive for it; referenced. */
static struct sv_qp *starved_pop(struct sv_srq *srq)
{
	struct sv_qp *qp = NULL;
	struct list *node;

	sv_lock_take(&srq->lock);
	node = srq_left(srq) ? list_pop(&srq->starved) : NULL;
	if (node) {
		qp = list_entry(node, struct sv_qp, srq_node);
		sv_qp_get(qp);
		atomic_store_explicit(&qp->rq_starved, false,
				      memory_order_relaxed); /* under lock */
	}
	sv_lock_drop(&srq->lock);
	return qp;
}

static __cold void feed(struct sv_srq *srq)
{
	struct sv_qp *qp;

	while ((qp = starved_pop(srq))) {
		sv_rq_kick(qp);
		sv_qp_put(qp);
	}
}

int sv_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr)
{
	struct sv_srq *srq = sv_srq(ibsrq);
	bool hungry;
	int err = 0;

	sv_lock_take(&srq->lock);
	for (; wr; wr = wr->next) {
		err = sv_wq_add_recv(&srq->wq, wr);
		if (unlikely(err))
			break;
	}
	hungry = !list_empty(&srq->starved);
	sv_lock_drop(&srq->lock);
	if (unlikely(hungry))
		feed(srq);
	if (unlikely(err))
		*bad_wr = wr;
	return err;
}
