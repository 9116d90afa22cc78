/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Completion queues at work: the ring, polling, arming, overrun, and the list
 * of links whose progress polling makes.
 *
 * A full ring is an error of the application's sizing: the completion is lost,
 * the CQ goes to the error state, and so does the QP that was to be told; others
 * do when they next make progress.
 */
#include "sv_cq.h"
#include "sv_link.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
	SV_POLL_HOT = 8, /* links looked at in every poll */
	SV_POLL_COLD = 8, /* of the others, in turn */
	SV_POLL_FAIR = 16, /* progress at least every so many polls */
	SV_LEASE_AFTER = 8, /* empty polls before a lease is taken */
};

/* ---- ring ---- */

/* A completion has found no room, or so it is to look. Caller holds qp->lock;
 * there is none for a completion of no QP. */
__cold void sv_cq_fail(struct sv_cq *cq, const struct sv_qp *qp)
{
	struct ibv_async_event event = {
		.element.cq = &cq->cq,
		.event_type = IBV_EVENT_CQ_ERR,
	};

	/* What completes as it is posted may leave nothing to progress with. */
	if (qp && qp->link && qp->attr.qp_state != IBV_QPS_ERR)
		sv_link_kick(qp->link);
	if (atomic_exchange(&cq->overrun, true))
		return;
	sv_log("cq %p: in error, %d entries", (void *)cq, cq->cq.cqe);
	sv_async_raise(cq->ctx, &event);
}

void sv_cq_time(struct sv_cq *cq, uint32_t index)
{
	cq->times[index].raw_ns = sv_clock_ns(CLOCK_MONOTONIC_RAW);
	cq->times[index].wall_ns = sv_clock_ns(CLOCK_REALTIME);
}

/* It is armed: whether for this one. */
void sv_cq_raise(struct sv_cq *cq, const struct sv_cqe *cqe, bool solicited)
{
	if (atomic_load_explicit(&cq->arm, memory_order_relaxed) !=
		    SV_ARM_ANY &&
	    !solicited && !cqe->wc.status)
		return;
	atomic_store(&cq->arm, SV_ARM_NONE);
	sv_chan_raise(cq);
}

void sv_cq_push(struct sv_cq *cq, const struct sv_cqe *cqe, bool solicited)
{
	struct sv_cqe *to = sv_cq_begin(cq, cqe->qp);

	if (unlikely(!to))
		return;
	*to = *cqe;
	sv_cq_end(cq, to, solicited);
}

/* time: of the last one, or NULL. */
static __hot_inline int cq_pop(struct sv_cq *cq, int num, struct ibv_wc *wc,
			       struct sv_cq_time *time)
{
	const struct sv_cqe *cqe;
	uint32_t cons, prod;
	struct sv_wq *wq;
	int got = 0;

	/* Unlocked: a completion missed now is seen by the next poll. */
	if (atomic_load_explicit(&cq->prod, memory_order_acquire) ==
	    atomic_load_explicit(&cq->cons, memory_order_relaxed))
		return 0;
	sv_lock_take(&cq->lock);
	prod = atomic_load_explicit(&cq->prod, memory_order_relaxed);
	cons = atomic_load_explicit(&cq->cons, memory_order_relaxed);
	for (; got < num && cons != prod; cons++, got++) {
		cqe = &cq->ring[cons & cq->mask];
		wc[got] = cqe->wc;
		if (time && cq->times)
			*time = cq->times[cons & cq->mask];
		if (unlikely(!cqe->qp))
			continue;
		wq = cqe->is_recv ? &cqe->qp->rq : &cqe->qp->sq;
		/* Pairs with the acquire in sv_wq_has_room(). */
		atomic_store_explicit(&wq->free, cqe->wqe_end,
				      memory_order_release);
	}
	/* Pairs with the acquire in sv_cq_direct(). */
	atomic_store_explicit(&cq->cons, cons, memory_order_release);
	sv_lock_drop(&cq->lock);
	return got;
}

/* Drops the completions of a QP that is going away, or starts anew. */
void sv_cq_purge(struct sv_cq *cq, struct sv_qp *qp)
{
	uint32_t from, to, prod;

	sv_lock_take(&cq->lock);
	from = to = atomic_load(&cq->cons);
	prod = atomic_load(&cq->prod);
	for (; from != prod; from++) {
		if (cq->ring[from & cq->mask].qp == qp)
			continue;
		if (from != to) {
			cq->ring[to & cq->mask] = cq->ring[from & cq->mask];
			if (cq->times)
				cq->times[to & cq->mask] =
					cq->times[from & cq->mask];
		}
		to++;
	}
	atomic_store(&cq->prod, to);
	sv_lock_drop(&cq->lock);
}

/* ---- links ---- */

/* Caller holds cq->poll_lock. Makes room so that the add cannot fail. */
static int links_grow(struct sv_cq *cq)
{
	uint32_t cap = cq->link_cap ? cq->link_cap * 2 : 8;
	struct sv_link **links;

	if (atomic_load(&cq->link_cnt) < cq->link_cap)
		return 0;
	links = realloc(cq->links, cap * sizeof(*links));
	if (!links)
		return ENOMEM;
	cq->links = links;
	cq->link_cap = cap;
	return 0;
}

int sv_cq_add_link(struct sv_cq *cq, struct sv_link *link)
{
	int err;

	sv_lock_take(&cq->poll_lock);
	err = links_grow(cq);
	if (!err) {
		cq->links[atomic_load(&cq->link_cnt)] = link;
		atomic_fetch_add(&cq->link_cnt, 1);
	}
	sv_lock_drop(&cq->poll_lock);
	return err;
}

void sv_cq_del_link(struct sv_cq *cq, struct sv_link *link)
{
	uint32_t i, cnt;

	sv_lock_take(&cq->poll_lock);
	cnt = atomic_load(&cq->link_cnt);
	for (i = 0; i < cnt && cq->links[i] != link; i++)
		;
	if (i < cnt) {
		cq->links[i] = cq->links[cnt - 1];
		atomic_store(&cq->link_cnt, cnt - 1);
	}
	sv_lock_drop(&cq->poll_lock);
}

/* Caller holds cq->poll_lock. */
static __hot_inline bool link_poll(struct sv_link *link,
				   struct sv_cq_sink *sink)
{
	return link->ops->poll(link, sink);
}

/* Caller holds cq->poll_lock. A cold link that has work becomes a hot one. */
static __noinline void cold_poll(struct sv_cq *cq, uint32_t cnt,
				 struct sv_cq_sink *sink)
{
	struct sv_link *link;
	uint32_t i, hot;

	for (i = 0; i < SV_POLL_COLD; i++) {
		if (cq->cold < SV_POLL_HOT || cq->cold >= cnt)
			cq->cold = SV_POLL_HOT;
		link = cq->links[cq->cold];
		if (link_poll(link, sink)) {
			hot = cq->cold % SV_POLL_HOT;
			cq->links[cq->cold] = cq->links[hot];
			cq->links[hot] = link;
		}
		cq->cold++;
	}
}

static __hot_inline void cq_progress(struct sv_cq *cq, struct sv_cq_sink *sink)
{
	uint32_t i, cnt;

	if (!atomic_load_explicit(&cq->link_cnt, memory_order_relaxed) ||
	    !sv_lock_try(&cq->poll_lock))
		return;
	cnt = atomic_load_explicit(&cq->link_cnt, memory_order_relaxed);
	for (i = 0; i < cnt && i < SV_POLL_HOT; i++)
		link_poll(cq->links[i], sink);
	if (cnt > SV_POLL_HOT)
		cold_poll(cq, cnt, sink);
	sv_lock_drop(&cq->poll_lock);
}

/* ---- verbs ---- */

/* A plain counter: a lost count delays a lease, nothing more. */
static __hot_inline uint32_t count_poll(struct sv_cq *cq)
{
	const uint32_t polls = atomic_load_explicit(&cq->polls,
						    memory_order_relaxed) + 1;

	atomic_store_explicit(&cq->polls, polls, memory_order_relaxed);
	return polls;
}

/* Who polls on takes a lease. */
static __hot_inline bool lease_is_due(const struct sv_cq *cq, uint32_t polls)
{
	return unlikely(!atomic_load_explicit(&cq->leased,
					      memory_order_relaxed)) &&
	       polls - atomic_load_explicit(&cq->polls_armed,
					    memory_order_relaxed) >
		       SV_LEASE_AFTER &&
	       atomic_load_explicit(&cq->arm, memory_order_relaxed) ==
		       SV_ARM_NONE;
}

static __noinline int poll_any(struct sv_cq *cq, int num, struct ibv_wc *wc,
			       struct sv_cq_time *time)
{
	const uint32_t polls = count_poll(cq);
	struct sv_cq_sink sink;
	int got, before;

	got = cq_pop(cq, num, wc, time);
	if (got && polls % SV_POLL_FAIR)
		return got;
	/* The ring's own time is told to whoever asks for it. */
	sink = (struct sv_cq_sink){
		.cq = cq,
		.wc = wc + got,
		.left = cq->times ? 0 : num - got,
	};
	before = sink.left;
	cq_progress(cq, &sink);
	got += before - sink.left;
	if (got < num)
		got += cq_pop(cq, num - got, wc + got, time);
	if (lease_is_due(cq, polls))
		sv_lease_start(cq);
	return got;
}

static __hot_inline bool ring_is_empty(const struct sv_cq *cq)
{
	return atomic_load_explicit(&cq->prod, memory_order_relaxed) ==
	       atomic_load_explicit(&cq->cons, memory_order_relaxed);
}

static __noinline int pop_found(struct sv_cq *cq, int num, struct ibv_wc *wc)
{
	return cq_pop(cq, num, wc, NULL);
}

/* Nothing waits in the ring, and there is one link to look at: so it is for who
 * polls a CQ of one queue pair for what it will receive. */
static __hot_inline bool is_lone(const struct sv_cq *cq)
{
	return atomic_load_explicit(&cq->link_cnt, memory_order_relaxed) == 1 &&
	       ring_is_empty(cq) && !cq->times;
}

/* Then this is poll_any(), without what it has to look at besides. */
static __hot_inline int poll_lone(struct sv_cq *cq, int num, struct ibv_wc *wc)
{
	struct sv_cq_sink sink = { .cq = cq, .wc = wc, .left = num };
	uint32_t polls;

	if (unlikely(!sv_lock_try(&cq->poll_lock)))
		return 0;
	polls = count_poll(cq);
	if (likely(atomic_load_explicit(&cq->link_cnt, memory_order_relaxed)))
		link_poll(cq->links[0], &sink);
	sv_lock_drop(&cq->poll_lock);
	num -= sink.left;
	if (unlikely(!ring_is_empty(cq)) && sink.left)
		num += pop_found(cq, sink.left, sink.wc);
	if (unlikely(lease_is_due(cq, polls)))
		sv_lease_start(cq);
	return num;
}

int sv_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	struct sv_cq *cq = sv_cq(ibcq);

	if (unlikely(num <= 0))
		return num ? -EINVAL : 0;
	return likely(is_lone(cq)) ? poll_lone(cq, num, wc) :
				     poll_any(cq, num, wc, NULL);
}

int sv_cq_poll_one(struct sv_cq *cq, struct ibv_wc *wc, struct sv_cq_time *time)
{
	return poll_any(cq, 1, wc, time);
}

/*
 * From the moment this returns, the next completion raises an event even if
 * nobody polls: a lease on the CQ's links is given up, so that peers ring.
 */
int sv_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct sv_cq *cq = sv_cq(ibcq);
	int arm = solicited_only ? SV_ARM_SOLICITED : SV_ARM_ANY;

	sv_lock_take(&cq->lock);
	if (atomic_load(&cq->arm) != SV_ARM_ANY)
		atomic_store(&cq->arm, arm);
	sv_lock_drop(&cq->lock);
	atomic_store_explicit(&cq->polls_armed,
			      atomic_load_explicit(&cq->polls,
						   memory_order_relaxed),
			      memory_order_relaxed);
	sv_lease_stop(cq);
	return 0;
}

/* Asks for doorbells on all links of the CQ, and looks once more. */
void sv_cq_rearm(struct sv_cq *cq)
{
	struct sv_link *link;
	uint32_t i;

	sv_lock_take(&cq->poll_lock);
	for (i = 0; i < atomic_load(&cq->link_cnt); i++) {
		link = cq->links[i];
		sv_lock_take(&link->qp->lock);
		link->ops->rearm(link);
		sv_lock_drop(&link->qp->lock);
	}
	sv_lock_drop(&cq->poll_lock);
}
