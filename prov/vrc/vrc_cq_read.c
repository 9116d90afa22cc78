/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What completions mean: which record each one retires, and what the application
 * is told of it. Ordinary ones do not come here: see vrc_cq_entry.c.
 */
#include <stdlib.h>

#include "compiler.h"
#include "list.h"
#include "vrc_cm.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_mr.h"
#include "vrc_srx.h"
#include "word_lock.h"

/* What a successful completion of each operation reports. */
const uint64_t vrc_op_flags[VRC_OP_CNT] = {
	[VRC_OP_SEND] = FI_SEND | FI_MSG,
	[VRC_OP_RECV] = FI_RECV | FI_MSG,
	[VRC_OP_SHARED_RECV] = FI_RECV | FI_MSG,
	[VRC_OP_READ] = FI_READ | FI_RMA,
	[VRC_OP_WRITE] = FI_WRITE | FI_RMA,
	[VRC_OP_ATOMIC] = FI_WRITE | FI_ATOMIC,
	[VRC_OP_FETCH_ATOMIC] = FI_READ | FI_ATOMIC,
};

static __cold int status_to_err(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
		return FI_ECANCELED;
	case IBV_WC_LOC_LEN_ERR:
		return FI_ETRUNC;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return FI_EFAULT;
	case IBV_WC_REM_ACCESS_ERR:
		return FI_EACCES;
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return FI_EREMOTEIO;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return FI_ETIMEDOUT;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return FI_ENORX;
	default:
		return FI_EIO;
	}
}

/* Not an OUI, so no other device's. */
enum { RXE_VENDOR_ID = 0xffffff };

/*
 * rxe gives a receive that is too short the status that it gives one whose
 * memory is not registered, not large enough or not writable. The record rules
 * those out if there was no memory, or if vrc had registered it itself.
 */
static __cold int recv_to_err(const struct ibv_wc *wc,
			      const struct vrc_req *req,
			      const struct vrc_domain *domain)
{
	const struct vrc_dev *dev = domain->dev;

	if (wc->status != IBV_WC_LOC_QP_OP_ERR ||
	    dev->attr.vendor_id != RXE_VENDOR_ID)
		return status_to_err(wc->status);
	if (!req->len || domain->local_reg)
		return FI_ETRUNC;
	vrc_warn(CQ, "receive %p: a message is longer than its %u bytes, or "
		 "the descriptor does not cover those; %s does not say which\n",
		 req->context, req->len, dev->name);
	return FI_EIO;
}

static void error_comp(const struct ibv_wc *wc, const struct vrc_req *req,
		       struct vrc_comp *comp)
{
	comp->context = req->context;
	comp->flags = vrc_op_flags[req->op];
	comp->len = req->len;
	comp->data = 0;
	comp->prov_errno = (int)wc->status;
}

/* The last part of an operation will be flushed, and is then to say why. It is
 * not there if it has not been posted yet; it is refused then. */
static __cold void tell_last(const struct vrc_req *part,
			     enum ibv_wc_status status)
{
	struct vrc_ring *ring = vrc_req_ring(part);
	uint32_t end = atomic_load_explicit(&ring->head, memory_order_acquire);
	uint32_t i = atomic_load(&ring->tail);
	struct vrc_req *req;

	for (i += (part->slot - i) & ring->mask; (int32_t)(end - i) > 0; i++) {
		req = &ring->req[i & ring->mask];
		if (req->flags & VRC_REQ_PART)
			continue;
		if (!(req->flags >> VRC_REQ_STATUS))
			req->flags |= (uint16_t)(status << VRC_REQ_STATUS);
		return;
	}
}

/*
 * That an injected operation failed is told, though it has no context. Not to
 * ofi_rxm, which injects what is its own, and follows the context of a failure
 * whatever it is; that the connection is over it learns from the event queue.
 */
static __cold bool error_visible(const struct vrc_req *req)
{
	return req->context ||
	       !atomic_load_explicit(&req->ep->domain->layered,
				     memory_order_relaxed);
}

/* Only status, wr_id and qp_num of a failed completion mean anything. */
static __cold bool resolve_error(const struct ibv_wc *wc,
				 const struct vrc_req *req,
				 struct vrc_comp *comp)
{
	struct ibv_wc cause = *wc;

	vrc_cm_broken(req->ep);
	atomic_fetch_add(&req->ep->errors, 1);
	if (req->flags & VRC_REQ_PART) {
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			tell_last(req, wc->status);
		return false;
	}
	if (req->flags >> VRC_REQ_STATUS)
		cause.status = (enum ibv_wc_status)(req->flags >> VRC_REQ_STATUS);
	error_comp(&cause, req, comp);
	comp->err = req->op == VRC_OP_RECV ?
			    recv_to_err(&cause, req, req->ep->domain) :
			    status_to_err(cause.status);
	return error_visible(req);
}

/* A work request of our own: nothing to see, unless it failed. */
static __cold bool resolve_own(const struct ibv_wc *wc,
			       const struct vrc_req *req)
{
	if (wc->status != IBV_WC_SUCCESS)
		vrc_cm_broken(req->ep);
	vrc_credit_written(req);
	return false;
}

/* The endpoint that a receive of a shared context came to, if that matters. */
static struct vrc_ep *shared_ep(const struct ibv_wc *wc,
				const struct vrc_req *req)
{
	struct vrc_srx *srx = req->srx;

	if (likely(wc->status == IBV_WC_SUCCESS &&
		   !atomic_load_explicit(&srx->by_ep, memory_order_relaxed)))
		return NULL;
	return vrc_srx_ep(srx, wc->qp_num);
}

static bool shared_visible(const struct vrc_ep *ep, const struct ibv_wc *wc,
			   const struct vrc_req *req)
{
	return wc->status != IBV_WC_SUCCESS || !ep || !ep->rx_selective ||
	       req->flags & VRC_REQ_VISIBLE;
}

static __attribute__((noinline)) bool
resolve_shared(const struct ibv_wc *wc, struct vrc_req *req,
	       struct vrc_comp *comp)
{
	struct vrc_srx *srx = req->srx;
	struct vrc_ep *ep = shared_ep(wc, req);
	bool visible = shared_visible(ep, wc, req);

	if (ep && vrc_cntr_rx(ep))
		vrc_cntr_count_shared(ep, wc, req);
	if (likely(wc->status == IBV_WC_SUCCESS)) {
		comp->context = req->context;
		comp->err = 0;
		vrc_recv_seen(wc, &comp->flags, &comp->len, &comp->data);
	} else {
		if (ep)
			vrc_cm_broken(ep);
		error_comp(wc, req, comp);
		comp->err = recv_to_err(wc, req, srx->domain);
	}
	if (unlikely(srx->mrs))
		vrc_local_drop(srx->domain,
			       &srx->mrs[(size_t)req->slot * VRC_IOV_LIMIT]);
	vrc_srx_put(srx, req);
	return visible;
}

static __attribute__((noinline)) bool
resolve_outside(const struct ibv_wc *wc, struct vrc_req *req,
		struct vrc_comp *comp)
{
	return req->op == VRC_OP_SHARED_RECV ? resolve_shared(wc, req, comp) :
					       resolve_own(wc, req);
}

/* The tail of an unordered ring when req is done; next is the index after it,
 * which head may not have reached yet (see struct vrc_ring). */
static __cold uint32_t tail_behind_done(struct vrc_ring *ring,
					struct vrc_req *req, uint32_t tail,
					uint32_t next)
{
	uint32_t end = atomic_load_explicit(&ring->head, memory_order_acquire);

	if ((int32_t)(next - end) > 0)
		end = next;
	req->flags |= VRC_REQ_DONE;
	while (tail != end && ring->req[tail & ring->mask].flags & VRC_REQ_DONE)
		tail++;
	return tail;
}

static __hot_inline bool resolve_ring(const struct ibv_wc *wc,
				      struct vrc_req *req,
				      struct vrc_comp *comp)
{
	struct vrc_ep *ep = req->ep;
	struct vrc_ring *ring = vrc_req_ring(req);
	uint32_t tail = atomic_load_explicit(&ring->tail,
					     memory_order_relaxed);
	uint32_t next = req->next;
	bool visible;

	/* Only a broken queue pair's records are completed from the ledger
	 * before the device gets to them (vrc_cq_attend). */
	if (unlikely(atomic_load_explicit(&ep->flush_deadline_ms,
					  memory_order_relaxed) &&
		     req->flags & VRC_REQ_CANCELLED))
		return false;
	if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		visible = resolve_error(wc, req, comp);
		goto retire;
	}
	visible = req->flags & VRC_REQ_VISIBLE;
	comp->context = req->context;
	comp->err = 0;
	if (likely(req->op != VRC_OP_RECV)) {
		comp->flags = vrc_op_flags[req->op];
		comp->len = 0;
		comp->data = 0;
		goto retire;
	}
	vrc_recv_seen(wc, &comp->flags, &comp->len, &comp->data);
retire:
	if (unlikely(ring->counted_on))
		vrc_cntr_count(ring, wc, req, next);
	if (unlikely(ring->unordered))
		next = tail_behind_done(ring, req, tail, next);
	if (unlikely(ring->mrs))
		vrc_local_release(ep, ring, tail, next);
	vrc_ring_retire(ring, next);
	return visible;
}

static __hot_inline bool resolve(const struct ibv_wc *wc, struct vrc_comp *comp)
{
	struct vrc_req *req = (struct vrc_req *)(uintptr_t)wc->wr_id;

	if (unlikely(!vrc_req_in_ring(req)))
		return resolve_outside(wc, req, comp);
	return resolve_ring(wc, req, comp);
}

bool vrc_cq_resolve(const struct ibv_wc *wc, struct vrc_comp *comp)
{
	return resolve(wc, comp);
}

/* The oldest completion taken outside of reading; false if there is none. */
static __cold bool soft_next(struct vrc_cq *cq, struct vrc_comp *comp,
			     bool *visible)
{
	struct list *node = list_pop(&cq->soft);
	struct vrc_soft *soft;

	if (!node)
		return false;
	soft = list_entry(node, struct vrc_soft, node);
	if (soft->raw) {
		*visible = resolve(&soft->wc, comp);
	} else {
		*comp = soft->comp;
		*visible = true;
	}
	free(soft);
	return true;
}

bool vrc_cq_next(struct vrc_cq *cq, struct vrc_comp *comp, bool *drained)
{
	bool visible;
	int cnt;

	for (;;) {
		if (!list_empty(&cq->soft)) {
			if (soft_next(cq, comp, &visible) && visible)
				return true;
			continue;
		}
		while (cq->wc_next != cq->wc_end)
			if (resolve(cq->wc_next++, comp))
				return true;
		if (*drained)
			return false;
		cnt = vrc_cq_poll(cq);
		if (!cnt)
			return false;
		*drained = cnt < VRC_CQ_BATCH;
	}
}

/* Counts a completion that stays in wc[] for the application. */
void vrc_cq_count_raw(const struct ibv_wc *wc)
{
	struct vrc_req *req = (struct vrc_req *)(uintptr_t)wc->wr_id;
	struct vrc_ep *ep;

	if (req->op == VRC_OP_SHARED_RECV) {
		ep = shared_ep(wc, req);
		if (ep && vrc_cntr_rx(ep))
			vrc_cntr_count_shared(ep, wc, req);
	}
	if (vrc_req_in_ring(req) && vrc_req_ring(req)->counted_on)
		vrc_cntr_count(vrc_req_ring(req), wc, req, req->next);
}

/* Whether there is nothing to read of this one, and nobody to read it. */
static bool is_silent(const struct vrc_cq *cq, const struct ibv_wc *wc)
{
	const struct vrc_req *req = (struct vrc_req *)(uintptr_t)wc->wr_id;

	if (cq->nobody_reads)
		return true;
	if (req->op == VRC_OP_SHARED_RECV)
		return !shared_visible(shared_ep(wc, req), wc, req);
	return wc->status == IBV_WC_SUCCESS && !(req->flags & VRC_REQ_VISIBLE);
}

/* Those at the front of what was kept. */
static void soft_silence(struct vrc_cq *cq)
{
	struct vrc_soft *soft;
	struct vrc_comp comp;

	while (!list_empty(&cq->soft)) {
		soft = list_entry(cq->soft.next, struct vrc_soft, node);
		if (soft->raw ? !is_silent(cq, &soft->wc) : !cq->nobody_reads)
			return;
		if (soft->raw)
			resolve(&soft->wc, &comp);
		list_del(&soft->node);
		free(soft);
	}
}

void vrc_cq_count_locked(struct vrc_cq *cq)
{
	struct vrc_comp comp;
	bool news = false;

	soft_silence(cq);
	/* Without a copy, as long as nothing is in front of it. */
	while (list_empty(&cq->soft)) {
		while (cq->wc_next != cq->wc_end && is_silent(cq, cq->wc_next))
			resolve(cq->wc_next++, &comp);
		if (cq->wc_next != cq->wc_end || !vrc_cq_poll(cq))
			break;
		for (const struct ibv_wc *wc = cq->wc_next; wc != cq->wc_end; wc++)
			vrc_cq_count_raw(wc);
		news = true;
	}
	if (!list_empty(&cq->soft) || cq->wc_next != cq->wc_end)
		news |= vrc_cq_keep(cq) > 0;
	if (atomic_load_explicit(&cq->due_cnt, memory_order_relaxed))
		vrc_cq_attend(cq);
	/* Its event may have been taken by who waits for a counter. */
	if (news && !list_empty(&cq->soft))
		vrc_cq_wake(cq);
}

void vrc_cq_count(struct vrc_cq *cq)
{
	if (cq->thread_safe)
		word_lock_take(&cq->lock);
	vrc_cq_count_locked(cq);
	if (cq->thread_safe)
		word_lock_drop(&cq->lock);
}

bool vrc_cq_flushed(struct vrc_cq *cq)
{
	if (likely(!atomic_load_explicit(&cq->due_cnt, memory_order_relaxed)))
		return false;
	vrc_cq_attend(cq);
	return !list_empty(&cq->soft);
}

/* Looks without taking: the next read finds it in cq->head. */
bool vrc_cq_has_entry(struct vrc_cq *cq)
{
	bool drained = false;

	if (cq->has_head)
		return true;
	cq->has_head = vrc_cq_next(cq, &cq->head, &drained);
	if (!cq->has_head && vrc_cq_flushed(cq))
		cq->has_head = vrc_cq_next(cq, &cq->head, &drained);
	return cq->has_head;
}
