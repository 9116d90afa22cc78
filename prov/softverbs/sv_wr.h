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

/* Less than 16 bytes. */
static __hot_inline void sv_copy_tiny(char *dst, const char *src, size_t len)
{
	if (len >= 8) {
		memcpy(dst, src, 8);
		memcpy(dst + len - 8, src + len - 8, 8);
	} else if (len >= 4) {
		memcpy(dst, src, 4);
		memcpy(dst + len - 4, src + len - 4, 4);
	} else if (len) {
		dst[0] = src[0];
		dst[len / 2] = src[len / 2];
		dst[len - 1] = src[len - 1];
	}
}

/*
 * memcpy(), for at most SV_COPY_SHORT bytes: pieces from both ends that overlap
 * take no loop, no call. GCC's own idea of a short copy is "rep movs", which takes
 * its time to start; and a call costs all that must be kept across it.
 */
static __hot_inline void sv_copy_slot(void *to, const void *from, size_t len)
{
	const char *src = from;
	char *dst = to;

	if (unlikely(len < 16)) {
		sv_copy_tiny(dst, src, len);
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

/* The same for any length; almost always it is short. */
static __hot_inline void sv_copy_short(void *to, const void *from, size_t len)
{
	if (likely(len <= SV_COPY_SHORT))
		sv_copy_slot(to, from, len);
	else
		sv_copy_any(to, from, len);
}

/* by_va belongs to the WR. seen, unless NULL, is brought up to date. */
bool sv_sges_ok(const struct sv_pd *pd, struct sv_key_seen *seen,
		struct ibv_sge *sge, int cnt, uint32_t access, bool *by_va);

/*
 * Whether this is in the region that was looked at last, and that is as it was:
 * then all that sv_key_check() would look at is, too.
 */
static __hot_inline bool sv_key_same(const struct sv_key_seen *seen,
				     const struct ibv_sge *sge)
{
	const uint64_t off = sge->addr - seen->addr;

	return sge->lkey == seen->key && off < seen->len &&
	       sge->length <= seen->len - off &&
	       atomic_load_explicit(seen->seq, memory_order_acquire) ==
		       seen->seq_was;
}

/*
 * Whether the memory that a WR names is there, with the right to it. To be asked
 * before each copy, in the same hold of qp->lock, also when a WR is resumed.
 * Afterwards the SGEs say where in memory.
 */
static __hot_inline bool sv_swr_readable(struct sv_qp *qp, struct sv_swr *swr)
{
	return swr->flags & IBV_SEND_INLINE ||
	       (swr->num_sge == 1 && sv_key_same(&qp->read_seen, swr->sge)) ||
	       sv_sges_ok(qp->pd, &qp->read_seen, swr->sge, swr->num_sge,
			  SV_ACCESS_LOCAL, &swr->by_va);
}

static inline bool sv_swr_writable(struct sv_qp *qp, struct sv_swr *swr)
{
	return sv_sges_ok(qp->pd, NULL, swr->sge, swr->num_sge,
			  SV_ACCESS_LOCAL | qp->sink_access, &swr->by_va);
}

static __hot_inline bool sv_rwr_writable(struct sv_qp *qp, struct sv_rwr *rwr)
{
	return likely(rwr->num_sge == 1 &&
		      sv_key_same(&qp->write_seen, rwr->sge)) ||
	       sv_sges_ok(qp->rq_pd, &qp->write_seen, rwr->sge, rwr->num_sge,
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

/* What a completed receive says, beside whose it is. */
struct sv_rq_news {
	enum ibv_wc_opcode opcode;
	uint32_t len;
	uint32_t imm; /* or key */
	unsigned int wc_flags;
	uint32_t src_qp;
	bool solicited;
};

static __hot_inline void sv_rq_wc(struct ibv_wc *wc, const struct sv_qp *qp,
				  uint64_t wr_id, struct sv_rq_news news)
{
	wc->wr_id = wr_id;
	wc->status = IBV_WC_SUCCESS;
	wc->opcode = news.opcode;
	wc->vendor_err = 0;
	wc->byte_len = news.len;
	wc->imm_data = news.imm;
	wc->qp_num = qp->qp.qp_num;
	wc->src_qp = news.src_qp;
	wc->wc_flags = news.wc_flags;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = 0;
	wc->dlid_path_bits = 0;
}

/* Completes the oldest receive, which is rwr, at once. Caller holds qp->lock. */
static __hot_inline void sv_rq_complete_at(struct sv_qp *qp,
					   const struct sv_rwr *rwr,
					   struct sv_rq_news news,
					   struct ibv_wc *wc)
{
	const uint32_t done = ++qp->rq.done;

	sv_rq_wc(wc, qp, rwr->wr_id, news);
	/* Pairs with the acquire in sv_wq_has_room(). */
	atomic_store_explicit(&qp->rq.free, done, memory_order_release);
}

/* The same, or in the CQ's ring. */
static __hot_inline void sv_rq_complete_ok(struct sv_qp *qp,
					   const struct sv_rwr *rwr,
					   struct sv_rq_news news)
{
	struct ibv_wc *wc = sv_cq_direct(qp->sink, qp->rcq);
	struct sv_cqe *cqe;
	uint32_t done;

	if (wc) {
		sv_rq_complete_at(qp, rwr, news, wc);
		return;
	}
	done = ++qp->rq.done;
	cqe = sv_cq_begin(qp->rcq, qp);
	if (unlikely(!cqe))
		return;
	sv_rq_wc(&cqe->wc, qp, rwr->wr_id, news);
	cqe->qp = qp;
	cqe->wqe_end = done;
	cqe->is_recv = 1;
	sv_cq_end(qp->rcq, cqe, news.solicited);
}

#endif
