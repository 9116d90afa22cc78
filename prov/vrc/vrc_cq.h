/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What those that take completions have in common.
 */
#ifndef VRC_CQ_H
#define VRC_CQ_H

#include "vrc.h"

/* Refills the empty cq->wc; how many there were. */
static __hot_inline int vrc_cq_poll(struct vrc_cq *cq)
{
	int cnt = ibv_poll_cq(cq->cq, VRC_CQ_BATCH, cq->wc);

	if (unlikely(cnt < 0))
		cnt = 0;
	cq->wc_next = cq->wc;
	cq->wc_end = cq->wc + cnt;
	return cnt;
}

/* What is reported of a receive that succeeded. */
static __hot_inline void vrc_recv_seen(const struct ibv_wc *wc, uint64_t *flags,
				       size_t *len, uint64_t *data)
{
	*flags = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ?
			 FI_REMOTE_WRITE | FI_RMA :
			 FI_RECV | FI_MSG;
	*len = wc->byte_len;
	*data = 0;
	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		*flags |= FI_REMOTE_CQ_DATA;
		*data = ntohl(wc->imm_data);
	}
}

/* The records before next may be used again; pairs with the acquire in
 * vrc_ring_next. */
static __hot_inline void vrc_ring_retire(struct vrc_ring *ring, uint32_t next)
{
	atomic_store_explicit(&ring->tail, next, memory_order_release);
}

#endif
