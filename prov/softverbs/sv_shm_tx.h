/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Filling a slot of the peer's ring and handing it over, inline: what the two
 * files that send have in common. Caller holds qp->lock.
 */
#ifndef SV_SHM_TX_H
#define SV_SHM_TX_H

#include "sv_fence.h"
#include "sv_shm.h"

#include <string.h>

/*
 * The slot's seq, or head, was written before; the peer sets wake and then
 * looks at them. With the fence between, one of the two notices.
 */
static __hot_inline bool sv_shm_wants_ring(struct sv_shm *shm)
{
	sv_fence();
	return unlikely(atomic_load_explicit(&shm->peer->wake,
					     memory_order_relaxed));
}

static inline void sv_shm_ring(struct sv_shm *shm)
{
	if (sv_shm_wants_ring(shm) && atomic_exchange(&shm->peer->wake, 0))
		sv_shm_ring_hard(shm);
}

/*
 * The fence in a ring has to wait until our stores are out. A receiver that
 * is being polled, and answers, need not wait for its acknowledgement too: the
 * answer's ring serves for both, or that of the next poll, or the lease's end.
 */
static __hot_inline void sv_shm_ring_if_due(struct sv_shm *shm, bool may_defer)
{
	if (!shm->tx_rung && !shm->ack_rung)
		return;
	if (may_defer && !shm->tx_rung) {
		atomic_store_explicit(&shm->link.attention, true,
				      memory_order_relaxed);
		return;
	}
	shm->tx_rung = false;
	shm->ack_rung = false;
	sv_shm_ring(shm);
}

static inline bool sv_tx_full(const struct sv_shm *shm)
{
	return shm->tx_next -
		       atomic_load_explicit(&shm->tx_acked,
					    memory_order_relaxed) ==
	       SV_SLOT_CNT;
}

static inline struct sv_slot *sv_tx_slot(struct sv_shm *shm, uint32_t index)
{
	return &shm->peer->slots[index % SV_SLOT_CNT];
}

/* Of the last slot of a message. */
static inline uint8_t sv_tx_flags(unsigned int opcode, unsigned int send_flags)
{
	uint8_t flags = SV_SLOT_LAST;

	if (opcode == IBV_WR_SEND_WITH_IMM ||
	    opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		flags |= SV_SLOT_IMM;
	if (unlikely(opcode == IBV_WR_SEND_WITH_INV))
		flags |= SV_SLOT_INV;
	if (send_flags & IBV_SEND_SOLICITED)
		flags |= SV_SLOT_SOLICITED;
	return flags;
}

/*
 * Copies len bytes into the slot. The peer looks at the first line all the
 * time, and each look takes it from us: it is written last, and in one go, with
 * the header and, by sv_tx_publish(), the seq.
 */
static __hot_inline void sv_tx_data(struct sv_slot *slot, const void *from,
				    uint32_t len)
{
	const size_t first = CACHELINE - offsetof(struct sv_slot, data);

	if (len > first) {
		sv_copy_slot(slot->data + first, (const char *)from + first,
			      len - first);
		memcpy(slot->data, from, first);
	} else {
		sv_copy_slot(slot->data, from, len);
	}
}

/*
 * All else is written. The seq pairs with the acquire in sv_shm_drain(). The
 * peer is to be rung afterwards.
 */
static __hot_inline void sv_tx_publish(struct sv_shm *shm, struct sv_slot *slot)
{
	uint32_t next = shm->tx_next;

	atomic_store_explicit(&slot->seq, next / SV_SLOT_CNT + 1,
			      memory_order_release);
	shm->data_end[next % SV_SLOT_CNT] = shm->data_next;
	shm->tx_next = next + 1;
	/* The next one's second line is still with the peer: get it early. */
	__builtin_prefetch((char *)sv_tx_slot(shm, next + 1) + CACHELINE, 1);
}

/* The last slot of this WR is on its way. */
static __hot_inline void sv_tx_sent(struct sv_shm *shm, struct sv_swr *swr)
{
	swr->state = SV_WR_SENT;
	swr->ring_end = shm->tx_next;
	if (swr->consumes_recv)
		shm->recvs_sent++;
}

#endif
