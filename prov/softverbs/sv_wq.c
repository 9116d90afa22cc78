/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Work queues: walking SGEs, completing, posting receives. Sends are posted in
 * sv_sq.c; how one reaches the peer is the link's business.
 *
 * A WR that is wrong in a way that hardware notices when it executes it (keys,
 * bounds) is accepted when it is posted and completes in error, in its turn.
 */
#include "sv_wr.h"
#include "sv_fence.h"
#include "sv_link.h"
#include "sv_fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- rings ---- */

int sv_wq_init(struct sv_wq *wq, struct sv_pd *pd, uint32_t max_wr,
	       uint32_t max_sge, size_t stride)
{
	size_t cnt = pow2_at_least(max_wr ? max_wr : 1);
	int err;

	memset(wq, 0, sizeof(*wq));
	wq->stride = (stride + CACHELINE - 1) & ~(size_t)(CACHELINE - 1);
	wq->mask = cnt - 1;
	wq->max_wr = max_wr;
	wq->max_sge = max_sge;
	err = sv_mem_get(&wq->mem, pd, cnt * wq->stride);
	wq->slots = wq->mem.ptr;
	return err;
}

void sv_wq_fini(struct sv_wq *wq)
{
	sv_mem_put(&wq->mem);
}

void sv_wq_reset(struct sv_wq *wq)
{
	atomic_store(&wq->posted, 0);
	wq->sent = 0;
	wq->done = 0;
	atomic_store(&wq->free, 0);
}

struct sv_operands *sv_sq_operands(struct sv_qp *qp, struct sv_swr *swr)
{
	return (void *)&swr->sge[qp->sq.max_sge];
}

/* ---- SGEs ---- */

void sv_copy_any(void *to, const void *from, size_t len)
{
	if (len) /* of nothing there may be no address */
		memcpy(to, from, len);
}

/* The SGEs are in order; from now on they say where in memory. */
static __cold bool sges_to_va(const struct sv_pd *pd, struct ibv_sge *sge,
			      int cnt, uint32_t access)
{
	int i;

	for (i = 0; i < cnt; i++)
		if (sge[i].length &&
		    !sv_mr_check(pd->keys, sge[i].lkey, pd->id, access, sge[i].addr,
				 sge[i].length, &sge[i].addr))
			return false;
	return true;
}

static __cold bool sges_at_va(const struct sv_pd *pd, const struct ibv_sge *sge,
			      int cnt, uint32_t access)
{
	int i;

	for (i = 0; i < cnt; i++)
		if (sge[i].length &&
		    !sv_mr_check_va(pd->keys, sge[i].lkey, pd->id, access,
				    sge[i].addr, sge[i].length))
			return false;
	return true;
}

/* One that is in order, for sv_key_same(); not if it lies elsewhere. */
static bool sge_see(const struct sv_pd *pd, const struct ibv_sge *sge,
		    uint32_t access, struct sv_key_seen *seen)
{
	const struct sv_mr_ent *ent = &pd->keys[sv_key_index(sge->lkey)];
	uint32_t seq = atomic_load_explicit(&ent->seq, memory_order_acquire);
	uint64_t va, base, len;

	if (!sv_mr_check(pd->keys, sge->lkey, pd->id, access, sge->addr,
			 sge->length, &va) ||
	    va != sge->addr)
		return false;
	base = atomic_load_explicit(&ent->va, memory_order_acquire);
	len = atomic_load_explicit(&ent->len, memory_order_acquire);
	if (!(atomic_load_explicit(&ent->access, memory_order_acquire) &
	      IBV_ACCESS_ON_DEMAND) &&
	    atomic_load_explicit(&ent->seq, memory_order_relaxed) == seq)
		*seen = (struct sv_key_seen){
			.seq = &ent->seq,
			.seq_was = seq,
			.key = sge->lkey,
			.addr = base,
			.len = len,
		};
	return true;
}

bool sv_sges_ok(const struct sv_pd *pd, struct sv_key_seen *seen,
		struct ibv_sge *sge, int cnt, uint32_t access, bool *by_va)
{
	bool moved = false;
	uint64_t va;
	int i;

	if (unlikely(*by_va))
		return sges_at_va(pd, sge, cnt, access);
	if (likely(cnt == 1 && seen && sge->length) &&
	    sge_see(pd, sge, access, seen))
		return true;
	for (i = 0; i < cnt; i++) {
		if (!sge[i].length)
			continue;
		if (!sv_mr_check(pd->keys, sge[i].lkey, pd->id, access,
				 sge[i].addr, sge[i].length, &va))
			return false;
		moved |= va != sge[i].addr;
	}
	if (likely(!moved))
		return true;
	*by_va = true;
	return sges_to_va(pd, sge, cnt, access);
}

/* Copies len bytes of the WR's payload from offset on. */
void sv_swr_gather(const struct sv_swr *swr, uint32_t offset, void *to,
		   uint32_t len)
{
	const struct ibv_sge *sge = swr->sge;
	char *dst = to;
	size_t n;

	if (swr->flags & IBV_SEND_INLINE) {
		memcpy(dst, (const char *)swr->sge + offset, len);
		return;
	}
	for (; len; sge++) {
		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		n = min_size(sge->length - offset, len);
		memcpy(dst, (void *)(uintptr_t)(sge->addr + offset), n);
		dst += n;
		len -= n;
		offset = 0;
	}
}

/* The caller has checked that the SGEs hold offset + len bytes. */
void sv_sges_scatter(const struct ibv_sge *sge, uint32_t offset,
		     const void *from, uint32_t len)
{
	const char *src = from;
	size_t n;

	for (; len; sge++) {
		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		n = min_size(sge->length - offset, len);
		memcpy((void *)(uintptr_t)(sge->addr + offset), src, n);
		src += n;
		len -= n;
		offset = 0;
	}
}

/*
 * Describes len bytes of the SGEs from offset on as an iovec of at most
 * SV_MAX_SGE entries; returns how many.
 */
int sv_sges_iov(const struct ibv_sge *sge, int cnt, uint32_t offset,
		uint32_t len, struct iovec *iov)
{
	int i, used = 0;
	size_t n;

	for (i = 0; i < cnt && len && used < SV_MAX_SGE; i++) {
		if (offset >= sge[i].length) {
			offset -= sge[i].length;
			continue;
		}
		n = min_size(sge[i].length - offset, len);
		iov[used].iov_base = (void *)(uintptr_t)(sge[i].addr + offset);
		iov[used].iov_len = n;
		used++;
		len -= n;
		offset = 0;
	}
	return used;
}

/* A WR that has gone in part: it is at the head of what has not gone. */
static bool sq_mid(struct sv_qp *qp)
{
	return qp->sq.sent != sv_wq_posted(&qp->sq) &&
	       sv_sq_slot(qp, qp->sq.sent)->offset;
}

/* Whether WRs go: a queue that is drained ends what it has begun. */
bool sv_sq_runs(struct sv_qp *qp)
{
	return likely(qp->attr.qp_state == IBV_QPS_RTS) ||
	       (qp->attr.qp_state == IBV_QPS_SQD && sq_mid(qp));
}

bool sv_sq_drained(struct sv_qp *qp)
{
	return qp->sq.done == qp->sq.sent && !sq_mid(qp);
}

/* ---- completions ---- */

static enum ibv_wc_opcode wc_opcode(uint8_t wr_opcode)
{
	switch (wr_opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	default:
		return IBV_WC_SEND;
	}
}

/*
 * Completes the oldest send WR. As on hardware only status, wr_id and qp_num
 * mean something when it failed. Caller holds qp->lock.
 */
void sv_sq_complete(struct sv_qp *qp, enum ibv_wc_status status)
{
	struct sv_swr *swr = sv_sq_slot(qp, qp->sq.done);
	struct sv_cqe cqe = {
		.qp = qp,
		.wqe_end = ++qp->sq.done,
		.wc = {
			.wr_id = swr->wr_id,
			.status = status,
			.qp_num = qp->qp.qp_num,
		},
	};

	if (likely(status == IBV_WC_SUCCESS)) {
		if (!(swr->flags & IBV_SEND_SIGNALED))
			return;
		cqe.wc.opcode = wc_opcode(swr->opcode);
		cqe.wc.byte_len = swr->len;
	}
	sv_cq_push(qp->scq, &cqe, false);
}

/*
 * The poster writes rq.posted and then reads rq_starved, we the other way
 * round: one of the two sees the other, by the fences in between.
 */
void sv_rq_starve(struct sv_qp *qp)
{
	atomic_store_explicit(&qp->rq_starved, true, memory_order_relaxed);
	sv_fence_heavy();
}

struct sv_rwr *sv_rq_peek_hard(struct sv_qp *qp)
{
	if (qp->srq)
		return sv_srq_take(qp);
	sv_rq_starve(qp);
	if (sv_wq_posted(&qp->rq) == qp->rq.done)
		return NULL;
	atomic_store(&qp->rq_starved, false);
	return sv_rq_slot(qp, qp->rq.done);
}

/* Completes the oldest receive. Caller holds qp->lock. */
void sv_rq_complete(struct sv_qp *qp, struct sv_cqe *cqe, bool solicited)
{
	cqe->wc.wr_id = sv_rq_slot(qp, qp->rq.done)->wr_id;
	cqe->wqe_end = ++qp->rq.done;
	cqe->qp = qp;
	cqe->is_recv = 1;
	cqe->wc.qp_num = qp->qp.qp_num;
	sv_cq_push(qp->rcq, cqe, solicited);
}

/* Everything outstanding goes back to the application. Caller: qp->lock. */
void sv_flush(struct sv_qp *qp)
{
	struct sv_cqe cqe = { .wc.status = IBV_WC_WR_FLUSH_ERR };

	if (sv_fault_keeps(qp))
		return;
	while (qp->sq.done != sv_wq_posted(&qp->sq)) {
		sv_sq_complete(qp, qp->peer_lost ? IBV_WC_RETRY_EXC_ERR :
						   IBV_WC_WR_FLUSH_ERR);
		qp->peer_lost = false;
	}
	qp->sq.sent = qp->sq.done;
	while (qp->rq.done != sv_wq_posted(&qp->rq))
		sv_rq_complete(qp, &cqe, false);
}

/* ---- posting receives ---- */

/* Positive errno. Caller holds the lock for posting. cnt is wr->num_sge: where it
 * is known to be 1, the compiler shall know. */
static __hot_inline int rq_add(struct sv_wq *wq, const struct ibv_recv_wr *wr,
			       uint32_t cnt)
{
	const uint32_t posted = atomic_load_explicit(&wq->posted,
						     memory_order_relaxed);
	struct sv_rwr *rwr = (void *)(wq->slots + (size_t)(posted & wq->mask) *
							  wq->stride);
	const struct ibv_sge *sge = wr->sg_list;
	uint64_t len = 0;
	uint32_t i;

	/* Less than none, too, is too many. */
	if (unlikely(cnt > wq->max_sge))
		return EINVAL;
	if (unlikely(!sv_wq_has_room(wq, posted)))
		return ENOMEM;
	rwr->wr_id = wr->wr_id;
	rwr->num_sge = cnt;
	rwr->by_va = false;
	for (i = 0; i < cnt; i++) {
		len += sge[i].length;
		sv_sge_copy(&rwr->sge[i], &sge[i]);
	}
	rwr->len = len > UINT32_MAX ? UINT32_MAX : len;
	atomic_store_explicit(&wq->posted, posted + 1, memory_order_release);
	return 0;
}

/* The same for an SRQ, under its lock. */
int sv_wq_add_recv(struct sv_wq *wq, const struct ibv_recv_wr *wr)
{
	return rq_add(wq, wr, wr->num_sge);
}

/* A message was waiting for this receive, or the QP is in error. */
__cold void sv_rq_kick(struct sv_qp *qp)
{
	sv_lock_take(&qp->lock);
	if (qp->attr.qp_state == IBV_QPS_ERR)
		sv_flush(qp);
	else if (qp->link)
		qp->link->ops->progress(qp->link);
	sv_lock_drop(&qp->lock);
}

/*
 * What follows when receives have been added under rq_lock, which is given back: a
 * peer that writes ahead of its sends looks at how many there are. The fence is
 * for sv_rq_starve(). True: sv_rq_kick() is due.
 */
static __hot_inline bool rq_added(struct sv_qp *qp)
{
	bool kick;

	atomic_store_explicit(qp->rq_pub, sv_wq_posted(&qp->rq),
			      memory_order_release);
	sv_fence_light();
	kick = unlikely(qp->rq_state == SV_RQ_ERROR) ||
	       (unlikely(atomic_load_explicit(&qp->rq_starved,
					      memory_order_relaxed)) &&
		atomic_exchange(&qp->rq_starved, false));
	sv_lock_drop(&qp->rq_lock);
	return kick;
}

/* Caller holds qp->rq_lock, which is given back. */
static __noinline int post_recvs(struct sv_qp *qp, struct ibv_recv_wr *wr,
				 struct ibv_recv_wr **bad_wr)
{
	int err = qp->rq_state == SV_RQ_RESET ? EINVAL : 0;

	for (; wr && !err; wr = wr->next) {
		err = rq_add(&qp->rq, wr, wr->num_sge);
		if (unlikely(err))
			break;
	}
	if (unlikely(rq_added(qp)))
		sv_rq_kick(qp);
	if (unlikely(err))
		*bad_wr = wr;
	return err;
}

/* One of one SGE goes the short way. With an SRQ the queue pair's own has no room:
 * ENOMEM. */
int sv_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		 struct ibv_recv_wr **bad_wr)
{
	struct sv_qp *qp = sv_qp(ibqp);

	sv_lock_take(&qp->rq_lock);
	if (unlikely(!wr || wr->next || wr->num_sge != 1 ||
		     qp->rq_state == SV_RQ_RESET || rq_add(&qp->rq, wr, 1)))
		return post_recvs(qp, wr, bad_wr);
	if (unlikely(rq_added(qp)))
		sv_rq_kick(qp);
	return 0;
}
