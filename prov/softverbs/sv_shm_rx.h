/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Looking at our ring and giving slots back, inline: what the two files that
 * receive have in common. Where nothing else is said, caller holds qp->lock.
 */
#ifndef SV_SHM_RX_H
#define SV_SHM_RX_H

#include "sv_shm.h"

static __hot_inline uint32_t sv_rx_next(const struct sv_shm *shm)
{
	return atomic_load_explicit(&shm->rx_next, memory_order_relaxed);
}

static __hot_inline const struct sv_slot *sv_rx_slot(const struct sv_shm *shm,
						     uint32_t next)
{
	return &shm->own->slots[next % SV_SLOT_CNT];
}

/* Whether the message with this number is there. Pairs with sv_tx_publish(). */
static __hot_inline bool sv_rx_filled(const struct sv_slot *slot, uint32_t next)
{
	return atomic_load_explicit(&slot->seq, memory_order_acquire) ==
	       next / SV_SLOT_CNT + 1;
}

/* What was read is not read again: the peer could change it. */
static inline void sv_rx_read_once(void)
{
	__asm__ volatile("" ::: "memory");
}

/* Gives back, and acknowledges, all slots before rx_next. */
static __hot_inline void sv_rx_publish(struct sv_shm *shm)
{
	uint32_t next = sv_rx_next(shm);

	if (next == shm->rx_published)
		return;
	shm->rx_published = next;
	shm->ack_rung = true;
	atomic_store_explicit(&shm->own->head, next, memory_order_release);
}

static __hot_inline struct sv_rq_news sv_rx_news(const struct sv_shm *shm,
						 uint8_t flags, uint32_t imm,
						 enum ibv_wc_opcode opcode,
						 uint32_t len)
{
	struct sv_rq_news news = {
		.opcode = opcode,
		.len = len,
		.src_qp = shm->link.peer_qpn,
		.solicited = flags & SV_SLOT_SOLICITED,
	};

	if (unlikely(flags & (SV_SLOT_IMM | SV_SLOT_INV))) {
		news.imm = imm;
		news.wc_flags = flags & SV_SLOT_IMM ? IBV_WC_WITH_IMM :
						      IBV_WC_WITH_INV;
	}
	return news;
}

/*
 * Whether the rings hold something for us. Needs no lock. Relaxed looks: what is
 * missed now is seen in the next poll, or was followed by a doorbell.
 */
static __hot_inline bool sv_rx_work(const struct sv_shm *shm)
{
	const uint32_t next = sv_rx_next(shm);
	const struct sv_slot *slot = sv_rx_slot(shm, next);

	/* Its second line is written before the first: it comes along with it,
	 * not after it. As long as there is nothing it stays where it is. */
	__builtin_prefetch((const char *)slot + CACHELINE);
	if (sv_rx_filled(slot, next) &&
	    atomic_load_explicit(&shm->rx_on, memory_order_relaxed) &&
	    !atomic_load_explicit(&shm->link.qp->rq_starved,
				  memory_order_relaxed))
		return true;
	return sv_shm_acks_wanted(shm);
}

#endif
