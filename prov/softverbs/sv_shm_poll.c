/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What progress is on a shared-memory link; and the short way in, the other end
 * of sv_shm_short.c: a poller finds a short message, whole, for which a receive
 * of one SGE is posted, and the completion goes straight into the caller's array.
 * Almost every message is one, and an answer waits for it. All that is otherwise,
 * or wrong, is left to sv_shm_rx.c before anything has been done.
 */
#include "sv_shm_rx.h"
#include "sv_shm_tx.h"

static __hot_inline bool shm_pending(const struct sv_shm *shm)
{
	return sv_rx_work(shm) ||
	       atomic_load_explicit(&shm->link.attention, memory_order_relaxed);
}

bool sv_shm_pending(struct sv_link *link)
{
	return shm_pending(sv_shm(link));
}

/* ---- the short way in ---- */

/* The message goes to the oldest receive, its completion to wc. False: not so. */
static __hot_inline bool take(struct sv_shm *shm, const struct sv_slot *slot,
			      struct ibv_wc *wc)
{
	const uint32_t may = sv_slot_what(0, SV_SLOT_IMM | SV_SLOT_SOLICITED);
	struct sv_qp *qp = shm->link.qp;
	const uint32_t what = slot->what, imm = slot->imm;
	const uint32_t len = slot->len, total = slot->total;
	struct sv_rwr *rwr;

	sv_rx_read_once();
	if (unlikely((what & ~may) !=
			     sv_slot_what(SV_OP_SEND,
					  SV_SLOT_FIRST | SV_SLOT_LAST) ||
		     len != total || len > SV_SLOT_DATA ||
		     sv_wq_posted(&qp->rq) == qp->rq.done))
		return false;
	rwr = sv_rq_slot(qp, qp->rq.done);
	/* Where it may write was looked at for the one before, most of the time. */
	if (unlikely(rwr->num_sge != 1 || len > rwr->len ||
		     !sv_key_same(&qp->write_seen, rwr->sge)))
		return false;
	sv_copy_slot((void *)(uintptr_t)rwr->sge[0].addr, slot->data, len);
	sv_rq_complete_at(qp, rwr,
			  sv_rx_news(shm, sv_slot_flags(what), imm, IBV_WC_RECV,
				     len),
			  wc);
	return true;
}

/* As many as there are, and as the caller wants. False: there is more to do. */
static __hot_inline bool take_all(struct sv_shm *shm, struct sv_cq_sink *sink)
{
	const uint32_t first = sv_rx_next(shm);
	struct ibv_wc *wc = sink->wc;
	uint32_t next = first;
	int left = sink->left;
	const struct sv_slot *slot;
	bool ok = true;

	do {
		slot = sv_rx_slot(shm, next);
		if (!sv_rx_filled(slot, next))
			break;
		ok = take(shm, slot, wc);
		if (unlikely(!ok))
			break;
		next++;
		wc++;
	} while (--left);
	sink->wc = wc;
	sink->left = left;
	atomic_store_explicit(&shm->rx_next, next, memory_order_relaxed);
	sv_rx_publish(shm);
	return ok && next != first;
}

/*
 * Whether that was all that the poller has to do. What else a peer may want to tell
 * (a refusal, a fault, that it leaves) comes with a doorbell, and with it the
 * engine, who looks at all of that.
 */
static __hot_inline bool is_done(struct sv_shm *shm)
{
	struct sv_link *link = &shm->link;

	return !atomic_load_explicit(&link->attention, memory_order_relaxed) &&
	       link->qp->sq.sent == sv_wq_posted(&link->qp->sq) &&
	       !sv_link_overrun(link) && sv_link_leased(link);
}

static __hot_inline bool poll_short(struct sv_shm *shm,
				    struct sv_cq_sink *sink)
{
	/* An answer does not overtake the completion of its question. */
	if (unlikely(sv_shm_acks_wanted(shm)))
		sv_shm_acks(shm);
	if (unlikely(shm->poll_long || !sv_link_receives(&shm->link) ||
		     !sv_cq_is_direct(sink, shm->link.qp->rcq)))
		return false;
	if (unlikely(!take_all(shm, sink) || !is_done(shm)))
		return false;
	/* See sv_shm_ring_if_due(). */
	atomic_store_explicit(&shm->link.attention, true, memory_order_relaxed);
	return true;
}

/* ---- all of it ---- */

/* Caller holds qp->lock. */
void sv_shm_check_peer(struct sv_shm *shm)
{
	if (likely(!sv_shm_peer_gone(shm)))
		return;
	sv_shm_acks(shm);
	sv_link_gone(&shm->link);
}

void sv_shm_progress(struct sv_link *link)
{
	struct sv_shm *shm = sv_shm(link);
	struct sv_qp *qp = link->qp;
	bool deferred = shm->ack_rung;
	bool asks = shm->rd_cnt;
	uint32_t fault, nak;

	sv_shm_drain(shm);
	if (unlikely(asks))
		sv_shm_resp_take(shm);
	nak = atomic_load_explicit(&shm->own->nak, memory_order_relaxed);
	fault = atomic_load_explicit(&shm->own->fault, memory_order_relaxed);
	if (unlikely(asks || nak || fault) || sv_shm_acks_wanted(shm))
		sv_shm_acks(shm);
	if (unlikely(shm->tx_pulls))
		sv_shm_lift_look(shm);
	if (unlikely(qp->sq.sent != sv_wq_posted(&qp->sq) ||
		     shm->rd_serving ||
		     atomic_load_explicit(&link->attention,
					  memory_order_relaxed)))
		sv_shm_push(shm);
	if (unlikely(fault)) {
		atomic_store(&shm->own->fault, 0);
		sv_qp_error(qp, fault == IBV_EVENT_QP_REQ_ERR ?
					IBV_EVENT_QP_REQ_ERR :
					IBV_EVENT_QP_ACCESS_ERR);
	}
	if (unlikely(sv_link_overrun(link)))
		sv_qp_error(qp, IBV_EVENT_QP_FATAL);
	sv_shm_check_peer(shm);
	sv_shm_ring_if_due(shm, !deferred && sv_link_leased(link));
}

/* ---- polling ---- */

static __noinline void poll_all(struct sv_link *link, struct sv_cq_sink *sink)
{
	link->qp->sink = sink;
	link->ops->progress(link);
	link->qp->sink = NULL;
}

/* By the time the lock is ours the link may have been stalled. */
static __noinline bool poll_pending(struct sv_shm *shm, struct sv_cq_sink *sink)
{
	struct sv_qp *qp = shm->link.qp;

	if (unlikely(!sv_lock_try(&qp->lock)))
		return true;
	if (unlikely(shm->link.stalled || !poll_short(shm, sink)))
		poll_all(&shm->link, sink);
	sv_lock_drop(&qp->lock);
	return true;
}

/* A call of its own for when there is something: else it has nothing to keep. */
bool sv_shm_poll(struct sv_link *link, struct sv_cq_sink *sink)
{
	if (likely(!shm_pending(sv_shm(link))))
		return false;
	return poll_pending(sv_shm(link), sink);
}
