/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queueing a completion, inline, for where each message does it: begin, fill
 * in, end. Everybody else has sv_cq_push().
 */
#ifndef SV_CQ_H
#define SV_CQ_H

#include "sv_int.h"

/* sv_cq.c. Caller holds cq->lock. */
void sv_cq_time(struct sv_cq *cq, uint32_t index) __cold;
void sv_cq_raise(struct sv_cq *cq, const struct sv_cqe *cqe,
		 bool solicited) __cold;

/*
 * Where the next completion goes; every field of it is to be written, and
 * sv_cq_end() called, which gives back cq->lock. NULL: there is no room, the CQ
 * is in error, and that was all. Caller holds qp->lock, or has no QP.
 */
static __hot_inline struct sv_cqe *sv_cq_begin(struct sv_cq *cq,
					       const struct sv_qp *qp)
{
	uint32_t prod;

	sv_lock_take(&cq->lock);
	prod = atomic_load_explicit(&cq->prod, memory_order_relaxed);
	if (likely(prod - atomic_load_explicit(&cq->cons,
					       memory_order_relaxed) <=
		   cq->mask))
		return &cq->ring[prod & cq->mask];
	sv_lock_drop(&cq->lock);
	sv_cq_fail(cq, qp);
	return NULL;
}

static __hot_inline void sv_cq_end(struct sv_cq *cq, const struct sv_cqe *cqe,
				   bool solicited)
{
	uint32_t prod = atomic_load_explicit(&cq->prod, memory_order_relaxed);

	if (unlikely(cq->times))
		sv_cq_time(cq, prod & cq->mask);
	/* Pairs with the unlocked look of whoever polls. */
	atomic_store_explicit(&cq->prod, prod + 1, memory_order_release);
	if (unlikely(atomic_load_explicit(&cq->arm, memory_order_relaxed) !=
		     SV_ARM_NONE))
		sv_cq_raise(cq, cqe, solicited);
	sv_lock_drop(&cq->lock);
}

/*
 * Where the poller of a CQ wants completions: what its own call finds in a link
 * need not go through the ring. It is handed to the link's QP for as long as the
 * poller holds qp->lock.
 */
struct sv_cq_sink {
	const struct sv_cq *cq;
	struct ibv_wc *wc;
	int left;
};

/*
 * Whether completions may be written there at once: if not, they have to go into
 * the ring, behind what is there, or because one is to raise an event. It stays so
 * while the caller holds qp->lock and puts nothing of this QP into the ring.
 */
static __hot_inline bool sv_cq_is_direct(const struct sv_cq_sink *sink,
					 const struct sv_cq *cq)
{
	/* The acquire: wq.free is ours now. Pairs with cq_pop(). */
	return likely(sink && sink->cq == cq && sink->left &&
		      atomic_load_explicit(&cq->cons, memory_order_acquire) ==
			      atomic_load_explicit(&cq->prod,
						   memory_order_relaxed) &&
		      atomic_load_explicit(&cq->arm, memory_order_relaxed) ==
			      SV_ARM_NONE);
}

/* Where the next completion may be written at once, or NULL. */
static __hot_inline struct ibv_wc *sv_cq_direct(struct sv_cq_sink *sink,
						const struct sv_cq *cq)
{
	if (!sv_cq_is_direct(sink, cq))
		return NULL;
	sink->left--;
	return sink->wc++;
}

#endif
