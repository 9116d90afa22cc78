/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ring of answers, both ends: what a READ or an atomic that went through
 * the ring of messages brings back. Answers come in the order of the questions.
 * Who asks owns the ring; its two counters are all that tells the ends of
 * each other, and the peer's is checked each time. All under qp->lock.
 */
#include "sv_link.h"

#include <string.h>

/* ---- answering ---- */

int64_t sv_resp_room(struct sv_link *link)
{
	uint32_t used = link->rd_tail -
			atomic_load_explicit(&link->peer->resp_head,
					     memory_order_acquire);

	return used > SV_RESP_SIZE ? -1 : (int64_t)(SV_RESP_SIZE - used);
}

int64_t sv_resp_put(struct sv_link *link, const void *data, uint32_t len)
{
	uint32_t off = link->rd_tail & (SV_RESP_SIZE - 1);
	int64_t room = sv_resp_room(link);
	uint32_t first;

	if (room < 0)
		return -1;
	len = min_size(len, room);
	if (!len)
		return 0;
	first = min_size(len, SV_RESP_SIZE - off);
	memcpy(link->peer->resp + off, data, first);
	memcpy(link->peer->resp, (const char *)data + first, len - first);
	link->rd_tail += len;
	link->tx_rung = true;
	/* Pairs with the acquire in sv_resp_take(). */
	atomic_store_explicit(&link->peer->resp_tail, link->rd_tail,
			      memory_order_release);
	return len;
}

/* ---- taking the answers ---- */

/* The oldest question is answered: on to the next one, if there is one. */
static void answered(struct sv_link *link)
{
	const struct sv_swr *swr;

	if (!--link->rd_cnt)
		return;
	do {
		swr = sv_sq_slot(link->qp, ++link->rd_wr);
	} while (swr->mode != SV_TX_ASK || !swr->len);
}

void sv_resp_take(struct sv_link *link)
{
	uint32_t tail = atomic_load_explicit(&link->own->resp_tail,
					     memory_order_acquire);
	struct sv_swr *swr;
	uint32_t off, len;

	if (tail - link->rd_head > SV_RESP_SIZE) {
		sv_link_protocol_error(link);
		return;
	}
	/* What was flushed has its buffers back: nothing is written there. */
	if (link->qp->attr.qp_state == IBV_QPS_ERR)
		link->rd_cnt = 0;
	while (link->rd_cnt && tail != link->rd_head) {
		swr = sv_sq_slot(link->qp, link->rd_wr);
		off = link->rd_head & (SV_RESP_SIZE - 1);
		len = min_size(min_size(tail - link->rd_head,
					SV_RESP_SIZE - off),
			       swr->len - swr->offset);
		sv_sges_scatter(swr->sge, swr->offset, link->own->resp + off,
				len);
		swr->offset += len;
		link->rd_head += len;
		link->tx_rung = true;
		if (swr->offset == swr->len)
			answered(link);
	}
	atomic_store_explicit(&link->own->resp_head, link->rd_head,
			      memory_order_release);
}
