/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ring of answers, both ends: what a READ or an atomic that went through
 * the ring of messages brings back. Answers come in the order of the questions.
 * Who asks owns the ring; its two counters are all that tells the ends of
 * each other, and the peer's is checked each time. All under qp->lock.
 */
#include "sv_shm.h"

#include <string.h>

/* ---- answering ---- */

int64_t sv_shm_resp_room(struct sv_shm *shm)
{
	uint32_t used = shm->rd_tail -
			atomic_load_explicit(&shm->peer->resp_head,
					     memory_order_acquire);

	return used > SV_RESP_SIZE ? -1 : (int64_t)(SV_RESP_SIZE - used);
}

int64_t sv_shm_resp_put(struct sv_shm *shm, const void *data, uint32_t len)
{
	uint32_t off = shm->rd_tail & (SV_RESP_SIZE - 1);
	int64_t room = sv_shm_resp_room(shm);
	uint32_t first;

	if (room < 0)
		return -1;
	len = min_size(len, room);
	if (!len)
		return 0;
	first = min_size(len, SV_RESP_SIZE - off);
	memcpy(shm->peer->resp + off, data, first);
	memcpy(shm->peer->resp, (const char *)data + first, len - first);
	shm->rd_tail += len;
	shm->tx_rung = true;
	/* Pairs with the acquire in sv_shm_resp_take(). */
	atomic_store_explicit(&shm->peer->resp_tail, shm->rd_tail,
			      memory_order_release);
	return len;
}

/* ---- taking the answers ---- */

/* The oldest question is answered: on to the next one, if there is one. */
static void answered(struct sv_shm *shm)
{
	const struct sv_swr *swr;

	if (!--shm->rd_cnt)
		return;
	do {
		swr = sv_sq_slot(shm->link.qp, ++shm->rd_wr);
	} while (swr->mode != SV_TX_ASK || !swr->len);
}

/* The memory for an answer has gone meanwhile: it fails in its turn. */
static __cold void answer_lost(struct sv_shm *shm, struct sv_swr *swr)
{
	swr->state = SV_WR_DONE;
	swr->status = IBV_WC_LOC_PROT_ERR;
	shm->tx_stop = true;
	shm->rd_cnt = 0;
}

void sv_shm_resp_take(struct sv_shm *shm)
{
	uint32_t tail = atomic_load_explicit(&shm->own->resp_tail,
					     memory_order_acquire);
	struct sv_swr *swr;
	uint32_t off, len;

	if (tail - shm->rd_head > SV_RESP_SIZE) {
		sv_shm_protocol_error(shm);
		return;
	}
	/* What was flushed has its buffers back: nothing is written there. */
	if (shm->link.qp->attr.qp_state == IBV_QPS_ERR)
		shm->rd_cnt = 0;
	while (shm->rd_cnt && tail != shm->rd_head) {
		swr = sv_sq_slot(shm->link.qp, shm->rd_wr);
		if (!sv_swr_writable(shm->link.qp, swr)) {
			answer_lost(shm, swr);
			break;
		}
		off = shm->rd_head & (SV_RESP_SIZE - 1);
		len = min_size(min_size(tail - shm->rd_head,
					SV_RESP_SIZE - off),
			       swr->len - swr->offset);
		sv_sges_scatter(swr->sge, swr->offset, shm->own->resp + off,
				len);
		swr->offset += len;
		shm->rd_head += len;
		shm->tx_rung = true;
		if (swr->offset == swr->len)
			answered(shm);
	}
	atomic_store_explicit(&shm->own->resp_head, shm->rd_head,
			      memory_order_release);
}
