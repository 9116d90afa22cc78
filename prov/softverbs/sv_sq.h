/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Putting a send WR together, in its slot of the send queue. There are two ways
 * to do it, the structs of ibv_post_send() (sv_sq.c) and the calls of
 * ibv_qp_ex (sv_qp_ex.c), and here is what they share: a WR is begun, is given
 * its data at most once, and is ended, which checks what is particular to it.
 *
 * Nobody sees a slot before sq.posted has passed it. The caller holds what
 * keeps others from writing there: qp->lock, or qp->ex->lock.
 */
#ifndef SV_SQ_H
#define SV_SQ_H

#include "sv_wr.h"

#include <errno.h>
#include <string.h>

/*
 * Sends, writes and reads are numbered first: one comparison tells them from
 * all that is rare.
 */
static inline bool sv_opcode_is_rare(enum ibv_wr_opcode opcode)
{
	static_assert(IBV_WR_RDMA_WRITE == 0 &&
			      IBV_WR_RDMA_WRITE_WITH_IMM < IBV_WR_RDMA_READ &&
			      IBV_WR_SEND_WITH_IMM < IBV_WR_RDMA_READ,
		      "common ones first");
	return (unsigned int)opcode > IBV_WR_RDMA_READ;
}

/* Whether the peer has it: one that is no softverbs may not. */
static inline bool sv_op_refused(const struct sv_qp *qp,
				 enum ibv_wr_opcode opcode)
{
	return qp->ops_refused >> (opcode & 31) & 1;
}

/* Says so. A positive errno. */
int sv_op_refuse(const struct sv_qp *qp, enum ibv_wr_opcode opcode);

/* Without data, address and key, which follow. flags: enum ibv_send_flags. */
static inline void sv_swr_begin(const struct sv_qp *qp, struct sv_swr *swr,
				uint64_t wr_id, enum ibv_wr_opcode opcode,
				unsigned int flags)
{
	swr->wr_id = wr_id;
	swr->offset = 0;
	swr->opcode = opcode;
	swr->flags = flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0);
	swr->state = SV_WR_POSTED;
	swr->status = IBV_WC_SUCCESS;
	swr->mode = 0;
	swr->by_va = false;
	swr->consumes_recv = opcode != IBV_WR_RDMA_WRITE &&
			     opcode != IBV_WR_RDMA_READ;
}

/* The caller has checked that there are no more than the queue takes. */
static inline int sv_swr_set_sges(const struct sv_qp *qp,
				  struct sv_swr *swr,
				  const struct ibv_sge *sge, size_t cnt)
{
	uint64_t len = 0;
	size_t i;

	for (i = 0; i < cnt; i++) {
		sv_sge_copy(&swr->sge[i], &sge[i]);
		len += sge[i].length;
	}
	if (unlikely(len > qp->max_msg))
		return EINVAL;
	swr->len = len;
	swr->num_sge = cnt;
	return 0;
}

/* One piece more of inline data, behind those that are there. */
static inline int sv_swr_add_inline(const struct sv_qp *qp,
				    struct sv_swr *swr, const void *data,
				    size_t len)
{
	if (unlikely(len > qp->cap.max_inline_data - swr->len))
		return EINVAL;
	sv_copy_short((char *)swr->sge + swr->len, data, len);
	swr->len += len;
	return 0;
}

static inline bool sv_opcode_has_inline(enum ibv_wr_opcode opcode)
{
	return opcode < IBV_WR_RDMA_READ || opcode == IBV_WR_SEND_WITH_INV;
}

/* sv_mw.c: what a BIND_MW has in place of data. Positive errno. */
int sv_swr_set_bind(struct sv_swr *swr, const struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *info) __must_check;

/* One WR that binds a window of type 1. Positive errno. */
int sv_post_bind(struct sv_qp *qp, struct ibv_send_wr *wr) __must_check;

/* A WR whose opcode is rare is complete: what must hold. Positive errno. */
int sv_swr_end_rare(struct sv_qp *qp, struct sv_swr *swr);

/* WRs up to this index are in the queue now: off they go. Caller: qp->lock. */
void sv_sq_publish(struct sv_qp *qp, uint32_t posted);

/* Whether the state is one in which a send can be posted. */
static inline bool sv_sq_open(const struct sv_qp *qp)
{
	enum ibv_qp_state state = qp->attr.qp_state;

	return state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
	       state == IBV_QPS_SQE || state == IBV_QPS_ERR;
}

#endif
