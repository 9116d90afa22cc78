/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Reading completions: the polling half of the hot path. Work completions are
 * taken from the device in batches into cq->wc and from there straight into
 * the caller's entries, by one body that is inlined once per entry format.
 */
#include <stdlib.h>

#include "vrc_srx.h"

/* What a successful completion of each operation reports. */
static const uint64_t op_flags[VRC_OP_CNT] = {
	[VRC_OP_SEND] = FI_SEND | FI_MSG,
	[VRC_OP_RECV] = FI_RECV | FI_MSG,
	[VRC_OP_SHARED_RECV] = FI_RECV | FI_MSG,
	[VRC_OP_READ] = FI_READ | FI_RMA,
	[VRC_OP_WRITE] = FI_WRITE | FI_RMA,
	[VRC_OP_ATOMIC] = FI_WRITE | FI_ATOMIC,
	[VRC_OP_FETCH_ATOMIC] = FI_READ | FI_ATOMIC,
};

uint64_t vrc_op_flags(unsigned int op)
{
	return op_flags[op];
}

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
	vrc_warn(CQ, "receive %p: a message is longer than its %zu bytes, or "
		 "the descriptor does not cover those; %s does not say which\n",
		 req->context, req->len, dev->name);
	return FI_EIO;
}

static void error_comp(const struct ibv_wc *wc, const struct vrc_req *req,
		       struct vrc_comp *comp)
{
	comp->context = req->context;
	comp->flags = op_flags[req->op];
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
	return true;
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

static __hot_inline void recv_comp(const struct ibv_wc *wc,
				   struct vrc_comp *comp)
{
	comp->flags = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ?
			      FI_REMOTE_WRITE | FI_RMA :
			      FI_RECV | FI_MSG;
	comp->len = wc->byte_len;
	comp->data = 0;
	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		comp->flags |= FI_REMOTE_CQ_DATA;
		comp->data = ntohl(wc->imm_data);
	}
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
		recv_comp(wc, comp);
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
	uint32_t behind = (req->slot - tail) & ring->mask;
	uint32_t next = tail + behind + 1;
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
		comp->flags = op_flags[req->op];
		comp->len = 0;
		comp->data = 0;
		goto retire;
	}
	recv_comp(wc, comp);
retire:
	if (unlikely(ring->counted_on))
		vrc_cntr_count(ring, wc, req, next);
	if (unlikely(ring->unordered))
		next = tail_behind_done(ring, req, tail, next);
	if (unlikely(ring->mrs))
		vrc_local_release(ep, ring, tail, next);
	/* This record and all before it may be used again; pairs with the
	 * acquire in vrc_ring_next. */
	atomic_store_explicit(&ring->tail, next, memory_order_release);
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

/* Refills wc[]; returns false if there was nothing. */
static __hot_inline bool refill(struct vrc_cq *cq)
{
	int cnt = ibv_poll_cq(cq->cq, VRC_CQ_BATCH, cq->wc);

	cq->wc_head = 0;
	cq->wc_cnt = cnt > 0 ? cnt : 0;
	return cnt > 0;
}

/*
 * The next completion that the application is to see; false if none. A batch
 * that was not full emptied the device's queue, which *drained remembers: it is
 * not asked again in the same call.
 */
static __hot_inline bool next_visible(struct vrc_cq *cq, struct vrc_comp *comp,
				      bool *drained)
{
	bool visible;

	for (;;) {
		if (unlikely(!list_empty(&cq->soft))) {
			if (soft_next(cq, comp, &visible) && visible)
				return true;
			continue;
		}
		while (cq->wc_head < cq->wc_cnt)
			if (likely(resolve(&cq->wc[cq->wc_head++], comp)))
				return true;
		if (*drained || !refill(cq))
			return false;
		*drained = cq->wc_cnt < VRC_CQ_BATCH;
	}
}

/* Counts a completion that stays in wc[] for the application. */
void vrc_cq_count_raw(const struct ibv_wc *wc)
{
	struct vrc_req *req = (struct vrc_req *)(uintptr_t)wc->wr_id;
	struct vrc_ring *ring;
	struct vrc_ep *ep;
	uint32_t tail;

	if (req->op == VRC_OP_SHARED_RECV) {
		ep = shared_ep(wc, req);
		if (ep && vrc_cntr_rx(ep))
			vrc_cntr_count_shared(ep, wc, req);
	}
	if (!vrc_req_in_ring(req))
		return;
	ring = vrc_req_ring(req);
	tail = atomic_load(&ring->tail);
	if (ring->counted_on)
		vrc_cntr_count(ring, wc, req,
			       tail + ((req->slot - tail) & ring->mask) + 1);
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

void vrc_cq_count(struct vrc_cq *cq)
{
	struct vrc_comp comp;
	bool news = false;

	if (cq->thread_safe)
		lock_take(&cq->lock);
	soft_silence(cq);
	/* Without a copy, as long as nothing is in front of it. */
	while (list_empty(&cq->soft)) {
		while (cq->wc_head < cq->wc_cnt &&
		       is_silent(cq, &cq->wc[cq->wc_head]))
			resolve(&cq->wc[cq->wc_head++], &comp);
		if (cq->wc_head < cq->wc_cnt || !refill(cq))
			break;
		for (int i = 0; i < cq->wc_cnt; i++)
			vrc_cq_count_raw(&cq->wc[i]);
		news = true;
	}
	if (!list_empty(&cq->soft) || cq->wc_head < cq->wc_cnt)
		news |= vrc_cq_keep(cq) > 0;
	if (atomic_load_explicit(&cq->due_cnt, memory_order_relaxed))
		vrc_cq_attend(cq);
	/* Its event may have been taken by who waits for a counter. */
	if (news && !list_empty(&cq->soft))
		vrc_cq_wake(cq);
	if (cq->thread_safe)
		lock_drop(&cq->lock);
}

static __hot_inline void entry_fill(void *buf, size_t i,
				    const struct vrc_comp *comp,
				    const enum fi_cq_format format)
{
	struct fi_cq_entry *entry;
	struct fi_cq_msg_entry *msg;
	struct fi_cq_data_entry *data;
	struct fi_cq_tagged_entry *tagged;

	switch (format) {
	case FI_CQ_FORMAT_CONTEXT:
		entry = (struct fi_cq_entry *)buf + i;
		entry->op_context = comp->context;
		break;
	case FI_CQ_FORMAT_MSG:
		msg = (struct fi_cq_msg_entry *)buf + i;
		msg->op_context = comp->context;
		msg->flags = comp->flags;
		msg->len = comp->len;
		break;
	case FI_CQ_FORMAT_DATA:
		data = (struct fi_cq_data_entry *)buf + i;
		data->op_context = comp->context;
		data->flags = comp->flags;
		data->len = comp->len;
		data->buf = NULL;
		data->data = comp->data;
		break;
	default:
		tagged = (struct fi_cq_tagged_entry *)buf + i;
		tagged->op_context = comp->context;
		tagged->flags = comp->flags;
		tagged->len = comp->len;
		tagged->buf = NULL;
		tagged->data = comp->data;
		tagged->tag = 0;
		break;
	}
}

/* Completes what broken endpoints did not flush; true if that made some. */
static __cold bool expire(struct vrc_cq *cq)
{
	vrc_cq_attend(cq);
	return !list_empty(&cq->soft);
}

/* With room for none, programs drive progress: what nobody sees is retired, so
 * that what was full is not. 0 if there is something to read. */
static __cold ssize_t cq_look(struct vrc_cq *cq)
{
	ssize_t ret = -FI_EAGAIN;

	if (cq->thread_safe)
		lock_take(&cq->lock);
	if (vrc_cq_has_entry(cq))
		ret = cq->head.err ? -FI_EAVAIL : 0;
	if (cq->thread_safe)
		lock_drop(&cq->lock);
	return ret;
}

static __hot_inline ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count,
				    const enum fi_cq_format format)
{
	struct vrc_cq *cq = vrc_cq(fid);
	struct vrc_comp comp;
	bool drained = false;
	size_t done = 0;
	ssize_t ret;

	if (unlikely(!count))
		return cq_look(cq);
	if (cq->thread_safe)
		lock_take(&cq->lock);
	if (unlikely(cq->has_head && !cq->head.err)) {
		entry_fill(buf, done++, &cq->head, format);
		cq->has_head = false;
	}
again:
	while (done < count && !cq->has_head &&
	       next_visible(cq, &comp, &drained)) {
		if (unlikely(comp.err)) {
			cq->head = comp;
			cq->has_head = true;
		} else {
			entry_fill(buf, done++, &comp, format);
		}
	}
	if (unlikely(!done && !cq->has_head &&
		     atomic_load_explicit(&cq->due_cnt,
					  memory_order_relaxed)) &&
	    expire(cq))
		goto again;
	if (done)
		ret = (ssize_t)done;
	else if (unlikely(cq->has_head && cq->head.err))
		ret = -FI_EAVAIL;
	else
		ret = -FI_EAGAIN;
	if (cq->thread_safe)
		lock_drop(&cq->lock);
	return ret;
}

static __hot_inline ssize_t cq_readfrom(struct fid_cq *fid, void *buf,
					size_t count, fi_addr_t *src_addr,
					const enum fi_cq_format format)
{
	ssize_t done = cq_read(fid, buf, count, format);

	for (ssize_t i = 0; src_addr && i < done; i++)
		src_addr[i] = FI_ADDR_NOTAVAIL;
	return done;
}

/* Looks without taking: the next read finds it in cq->head. */
bool vrc_cq_has_entry(struct vrc_cq *cq)
{
	bool drained = false;

	if (cq->has_head)
		return true;
	cq->has_head = next_visible(cq, &cq->head, &drained);
	if (!cq->has_head &&
	    atomic_load_explicit(&cq->due_cnt, memory_order_relaxed) &&
	    expire(cq))
		cq->has_head = next_visible(cq, &cq->head, &drained);
	return cq->has_head;
}

/* One instance per entry format, and its table. */
#define VRC_CQ_OPS(name, format)                                              \
	static ssize_t name##_read(struct fid_cq *cq, void *buf,              \
				   size_t count)                              \
	{                                                                     \
		return cq_read(cq, buf, count, format);                       \
	}                                                                     \
	static ssize_t name##_readfrom(struct fid_cq *cq, void *buf,          \
				       size_t count, fi_addr_t *src_addr)     \
	{                                                                     \
		return cq_readfrom(cq, buf, count, src_addr, format);         \
	}                                                                     \
	const struct vrc_cq_table vrc_cq_ops_##name = {                       \
		.ops = {                                                      \
			.size = sizeof(struct fi_ops_cq),                     \
			.read = name##_read,                                  \
			.readfrom = name##_readfrom,                          \
			.readerr = vrc_cq_readerr,                            \
			.sread = vrc_cq_sread,                                \
			.sreadfrom = vrc_cq_sreadfrom,                        \
			.signal = vrc_cq_signal,                              \
			.strerror = vrc_cq_strerror,                          \
		},                                                            \
		VRC_LATER,                                                    \
	};

VRC_CQ_OPS(context, FI_CQ_FORMAT_CONTEXT)
VRC_CQ_OPS(msg, FI_CQ_FORMAT_MSG)
VRC_CQ_OPS(data, FI_CQ_FORMAT_DATA)
VRC_CQ_OPS(tagged, FI_CQ_FORMAT_TAGGED)
