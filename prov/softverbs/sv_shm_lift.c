/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Losing the way into the peer's memory while the link stands: a process that
 * gives up its privileges, or can no longer be traced, is out of reach for others
 * from that moment on, and what we may is the kernel's decision each time. Our
 * own writes and reads then go through the rings, as sv_shm_tx.c decides. What
 * is here is about messages that the sender has already announced for the
 * receiver to read (PULL), and that the receiver finds it cannot.
 *
 *	receiver				sender
 *	publishes head, clears pull_ok, rings
 *						of the PULLs behind head, in
 *						order: their bytes into lift
 *	takes as many bytes for each PULL
 *	as it says it has
 *
 * The slots stay where they are, so the order of messages does, too, and each is
 * received once. pull_ok stays cleared. All under qp->lock.
 */
#include "sv_shm_rx.h"

/* ---- receiving ---- */

void sv_shm_cma_lost(struct sv_shm *shm)
{
	if (!shm->cma_ok)
		return;
	sv_log("qp %06x: the memory of process %d is out of reach now: all goes through the rings",
	       shm->link.qp->qp.qp_num, shm->pid);
	shm->cma_ok = false;
	shm->cma_lost = true;
	/* Before: who sees the one sees how far we have come. */
	sv_rx_publish(shm);
	atomic_store(&shm->own->pull_ok, 0);
	sv_shm_ring_hard(shm);
}

bool sv_shm_lift_take(struct sv_shm *shm, const struct sv_rwr *rwr,
		      uint32_t total, bool *broken)
{
	/* Pairs with the release in lift_one(). */
	uint32_t tail = atomic_load_explicit(&shm->own->lift_tail,
					     memory_order_acquire);
	uint32_t off, len;

	*broken = tail - shm->lift_head > SV_LIFT_SIZE;
	if (*broken)
		return false;
	while (shm->lift_len < total && tail != shm->lift_head) {
		off = shm->lift_head & (SV_LIFT_SIZE - 1);
		len = min_size(min_size(tail - shm->lift_head,
					SV_LIFT_SIZE - off),
			       total - shm->lift_len);
		sv_sges_scatter(rwr->sge, shm->lift_len, shm->own->lift + off,
				len);
		shm->lift_len += len;
		shm->lift_head += len;
		shm->tx_rung = true;
	}
	atomic_store_explicit(&shm->own->lift_head, shm->lift_head,
			      memory_order_release);
	if (shm->lift_len < total)
		return false;
	shm->lift_len = 0;
	return true;
}

/* ---- sending ---- */

void sv_shm_lift_look(struct sv_shm *shm)
{
	shm->tx_pulls = (int32_t)(shm->pull_end - shm->link.qp->sq.done) > 0;
	if (likely(!shm->tx_pulls || atomic_load(&shm->peer->pull_ok)))
		return;
	shm->tx_lift = true;
	atomic_store_explicit(&shm->link.attention, true, memory_order_relaxed);
}

/* The peer has not taken it, nor has all of it been brought. */
static bool is_to_lift(const struct sv_shm *shm, const struct sv_swr *swr)
{
	return swr->mode == SV_TX_PULL && swr->state == SV_WR_SENT &&
	       swr->offset < swr->len &&
	       (int32_t)(swr->ring_end -
			 atomic_load_explicit(&shm->tx_acked,
					      memory_order_relaxed)) > 0;
}

/* Its memory has gone meanwhile: it fails in its turn, and nothing follows. */
static void lift_failed(struct sv_shm *shm, struct sv_swr *swr)
{
	swr->state = SV_WR_DONE;
	swr->status = IBV_WC_LOC_PROT_ERR;
	shm->tx_stop = true;
}

/* False: it has to wait for room. */
static bool lift_one(struct sv_shm *shm, struct sv_swr *swr)
{
	/* Pairs with the release in sv_shm_lift_take(). */
	const uint32_t head = atomic_load_explicit(&shm->peer->lift_head,
						   memory_order_acquire);
	uint32_t used, off, len;

	while (swr->offset < swr->len) {
		used = shm->lift_tail - head;
		if (used > SV_LIFT_SIZE) {
			sv_shm_protocol_error(shm);
			return true;
		}
		off = shm->lift_tail & (SV_LIFT_SIZE - 1);
		len = min_size(min_size(SV_LIFT_SIZE - used,
					SV_LIFT_SIZE - off),
			       swr->len - swr->offset);
		if (!len)
			return false;
		sv_swr_gather(swr, swr->offset, shm->peer->lift + off, len);
		swr->offset += len;
		shm->lift_tail += len;
		shm->tx_rung = true;
		atomic_store_explicit(&shm->peer->lift_tail, shm->lift_tail,
				      memory_order_release);
	}
	return true;
}

void sv_shm_lift_push(struct sv_shm *shm)
{
	struct sv_qp *qp = shm->link.qp;
	struct sv_swr *swr;
	uint32_t i;

	shm->tx_lift = false;
	/* After pull_ok was seen: how far the peer had come by itself. */
	sv_shm_acks(shm);
	for (i = qp->sq.done;
	     i != qp->sq.sent && qp->attr.qp_state != IBV_QPS_ERR; i++) {
		swr = sv_sq_slot(qp, i);
		if (swr->state == SV_WR_DONE && swr->status != IBV_WC_SUCCESS)
			return;
		if (!is_to_lift(shm, swr))
			continue;
		if (!sv_swr_readable(qp, swr)) {
			lift_failed(shm, swr);
			/* It may be its turn now. */
			sv_shm_acks(shm);
			return;
		}
		if (!lift_one(shm, swr)) {
			shm->tx_lift = true;
			return;
		}
	}
}
