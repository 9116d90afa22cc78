/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What is done with queued WRs for each message, inline: whether their memory
 * is there, and completing them. sv_wq.c has the rest, for all that is not
 * as usual.
 */
#ifndef SV_WR_H
#define SV_WR_H

#include "sv_cq.h"
#include "sv_key.h"

#include <string.h>

void sv_copy_any(void *to, const void *from, size_t len);

enum {
	SV_COPY_SHORT = 96,
};

/*
 * memcpy(), for what is almost always short: pieces from both ends that overlap
 * take no loop, no call. GCC's own idea of a short copy is "rep movs", which takes
 * its time to start.
 */
static __hot_inline void sv_copy_short(void *to, const void *from, size_t len)
{
	const char *src = from;
	char *dst = to;

	if (unlikely(len > SV_COPY_SHORT || len < 16)) {
		sv_copy_any(to, from, len);
		return;
	}
	memcpy(dst, src, 16);
	memcpy(dst + len - 16, src + len - 16, 16);
	if (len <= 32)
		return;
	memcpy(dst + 16, src + 16, 16);
	memcpy(dst + len - 32, src + len - 32, 16);
	if (len <= 64)
		return;
	memcpy(dst + 32, src + 32, 16);
	memcpy(dst + len - 48, src + len - 48, 16);
}

/* by_va belongs to the WR. For any SGEs; see sv_sges_ok(). */
bool sv_sges_ok_hard(const struct sv_pd *pd, struct ibv_sge *sge, int cnt,
		     uint32_t access, bool *by_va);

/* Almost always there is one SGE, and memory is addressed as it lies. */
static __hot_inline bool sv_sges_ok(const struct sv_pd *pd, struct ibv_sge *sge,
				    int cnt, uint32_t access, bool *by_va)
{
	uint64_t va;

	if (likely(cnt == 1 && sge->length && !*by_va)) {
		if (unlikely(!sv_key_check(pd->keys, sge->lkey, pd->id, access,
					   sge->addr, sge->length, false, &va)))
			return false;
		if (likely(va == sge->addr))
			return true;
	}
	return sv_sges_ok_hard(pd, sge, cnt, access, by_va);
}

/*
 * Whether the memory that a WR names is there, with the right to it. To be asked
 * before each copy, in the same hold of qp->lock, also when a WR is resumed.
 * Afterwards the SGEs say where in memory.
 */
static __hot_inline bool sv_swr_readable(struct sv_qp *qp, struct sv_swr *swr)
{
	return swr->flags & IBV_SEND_INLINE ||
	       sv_sges_ok(qp->pd, swr->sge, swr->num_sge, SV_ACCESS_LOCAL,
			  &swr->by_va);
}

static inline bool sv_swr_writable(struct sv_qp *qp, struct sv_swr *swr)
{
	return sv_sges_ok(qp->pd, swr->sge, swr->num_sge,
			  SV_ACCESS_LOCAL | qp->sink_access, &swr->by_va);
}

static __hot_inline bool sv_rwr_writable(struct sv_qp *qp, struct sv_rwr *rwr)
{
	return sv_sges_ok(qp->rq_pd, rwr->sge, rwr->num_sge,
			  SV_ACCESS_LOCAL | IBV_ACCESS_LOCAL_WRITE,
			  &rwr->by_va);
}

/* Completes the oldest send, which is swr, as done well. Caller: qp->lock. */
static __hot_inline void sv_sq_complete_ok(struct sv_qp *qp,
					   const struct sv_swr *swr)
{
	if (swr->flags & IBV_SEND_SIGNALED)
		sv_sq_complete(qp, IBV_WC_SUCCESS);
	else
		qp->sq.done++;
}

/*
 * Completes the oldest receive, which is rwr: what is left to be written is
 * opcode, byte_len, src_qp, wc_flags and imm_data, before sv_cq_end(). NULL:
 * the CQ has no room. Caller holds qp->lock.
 */
static __hot_inline struct sv_cqe *sv_rq_complete_ok(struct sv_qp *qp,
						     const struct sv_rwr *rwr)
{
	const uint32_t done = ++qp->rq.done;
	const uint64_t wr_id = rwr->wr_id;
	struct sv_cqe *cqe = sv_cq_begin(qp->rcq, qp);

	if (unlikely(!cqe))
		return NULL;
	cqe->wc.wr_id = wr_id;
	cqe->wc.status = IBV_WC_SUCCESS;
	cqe->wc.vendor_err = 0;
	cqe->wc.qp_num = qp->qp.qp_num;
	cqe->wc.pkey_index = 0;
	cqe->wc.slid = 0;
	cqe->wc.sl = 0;
	cqe->wc.dlid_path_bits = 0;
	cqe->qp = qp;
	cqe->wqe_end = done;
	cqe->is_recv = 1;
	return cqe;
}

#endif
