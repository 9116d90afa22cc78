/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The short way of what is small: one piece that the device inlines, sent or
 * written by a call without flags, on an endpoint where nothing is in the way. And
 * of reads and receives, which may be long: one piece that has its descriptor.
 * The work request stands ready in the endpoint but for what differs from one
 * call to the next. Whatever is not so takes the general way (vrc_post.h), which
 * also knows why something cannot be posted.
 */
#ifndef VRC_SMALL_H
#define VRC_SMALL_H

#include "vrc_post.h"

/* What differs. */
struct vrc_small_op {
	enum vrc_small_kind kind;
	enum vrc_op op;
	const void *buf;
	size_t len;
	void *context;
	uint64_t remote_addr;
	uint64_t rkey;
	void *desc; /* of a read */
	uint16_t flags; /* of the record */
};

static __hot_inline bool vrc_small_fits(const struct vrc_ep *ep,
					const struct vrc_small_op *small)
{
	if (small->kind == VRC_SMALL_READ)
		return small->len - 1 < ep->ready_len &&
		       vrc_desc_ok(ep->desc_tag, small->desc);
	return small->len - 1 < ep->small_len;
}

/*
 * Whether nothing is in the way of it; then the caller goes on to vrc_small_post,
 * and otherwise takes the general way. It asks first, and not for a third answer
 * of vrc_small_post's, so that nothing has to be kept for the general way.
 */
static __hot_inline bool vrc_small_start(struct vrc_ep *ep,
					 const struct vrc_small_op *small,
					 const bool locked)
{
	/* The general way can wait for it. */
	if (locked && unlikely(!word_lock_try(&ep->tx_lock)))
		return false;
	/* Pairs with the release in vrc_cm.c: a connected endpoint's queue
	 * pair is seen whole; and with vrc_more.c, that posts what was held
	 * before it opens the gate. */
	if (likely(vrc_small_fits(ep, small) &&
		   atomic_load_explicit(&ep->state, memory_order_acquire) ==
			   VRC_EP_CONNECTED &&
		   !atomic_load_explicit(&ep->gate, memory_order_acquire) &&
		   (small->kind == VRC_SMALL_SEND ||
		    small->rkey <= UINT32_MAX)))
		return true;
	if (locked)
		word_lock_drop(&ep->tx_lock);
	return false;
}

static __hot_inline ssize_t vrc_small_put(struct vrc_ep *ep,
					  const struct vrc_small_op *small)
{
	struct vrc_ring *ring = &ep->tx;
	struct ibv_send_wr *wr = &ep->small[small->kind].wr, *bad;
	const bool fetches = small->kind == VRC_SMALL_READ;
	uint32_t head = vrc_ring_head(ring);
	struct vrc_req *req;
	int ret;

	if (unlikely(!vrc_ring_room(ring, head)))
		return vrc_ring_full(ep, ring);
	req = &ring->req[head & ring->mask];
	ep->small[small->kind].sge.addr = (uintptr_t)small->buf;
	ep->small[small->kind].sge.length = (uint32_t)small->len;
	wr->wr_id = (uintptr_t)req;
	wr->send_flags = fetches ? 0 : IBV_SEND_INLINE;
	if (small->flags & VRC_REQ_VISIBLE || ring->signal_all ||
	    vrc_ring_signal_due(ring)) {
		wr->send_flags = IBV_SEND_SIGNALED |
				 (fetches ? 0 : IBV_SEND_INLINE);
		ring->last_signal = head + 1;
	}
	if (fetches)
		ep->small[small->kind].sge.lkey = vrc_desc_lkey(small->desc);
	if (small->kind != VRC_SMALL_SEND) {
		wr->wr.rdma.remote_addr = small->remote_addr;
		wr->wr.rdma.rkey = (uint32_t)small->rkey;
	}
	req->context = small->context;
	req->len = (uint32_t)small->len;
	req->next = head + 1;
	req->op = (uint16_t)small->op;
	req->flags = small->flags;
	ret = ibv_post_send(ep->qp, wr, &bad);
	if (unlikely(ret))
		return vrc_small_failed(ep, ret);
	vrc_ring_advance(ring, false);
	return 0;
}

static __hot_inline ssize_t vrc_small_post(struct vrc_ep *ep,
					   const struct vrc_small_op *small,
					   const bool locked)
{
	ssize_t ret = vrc_small_put(ep, small);

	if (locked)
		word_lock_drop(&ep->tx_lock);
	return ret;
}

/* The same of a receive. */
static __hot_inline bool vrc_recv_start(struct vrc_ep *ep, size_t len,
					const void *desc, const bool locked)
{
	if (locked && unlikely(!word_lock_try(&ep->rx_lock)))
		return false;
	if (likely(len - 1 < ep->ready_len &&
		   vrc_desc_ok(ep->desc_tag, desc) &&
		   atomic_load_explicit(&ep->state, memory_order_acquire) ==
			   VRC_EP_CONNECTED &&
		   !atomic_load_explicit(&ep->rx_gate, memory_order_acquire)))
		return true;
	if (locked)
		word_lock_drop(&ep->rx_lock);
	return false;
}

static __hot_inline ssize_t vrc_recv_put(struct vrc_ep *ep, void *buf,
					 size_t len, void *desc, void *context)
{
	struct vrc_ring *ring = &ep->rx;
	struct ibv_recv_wr *wr = &ep->ready.wr, *bad;
	uint32_t head = vrc_ring_head(ring);
	struct vrc_req *req;
	int ret;

	if (unlikely(!vrc_ring_room(ring, head)))
		return vrc_ring_full(ep, ring);
	req = &ring->req[head & ring->mask];
	ep->ready.sge.addr = (uintptr_t)buf;
	ep->ready.sge.length = (uint32_t)len;
	ep->ready.sge.lkey = vrc_desc_lkey(desc);
	wr->wr_id = (uintptr_t)req;
	req->context = context;
	req->len = (uint32_t)len;
	req->next = head + 1;
	req->op = VRC_OP_RECV;
	req->flags = ep->ready_flags;
	ret = ibv_post_recv(ep->qp, wr, &bad);
	if (unlikely(ret))
		return vrc_recv_failed(ep, ret);
	vrc_ring_advance(ring, false);
	return 0;
}

static __hot_inline ssize_t vrc_recv_post(struct vrc_ep *ep, void *buf,
					  size_t len, void *desc, void *context,
					  const bool locked)
{
	ssize_t ret = vrc_recv_put(ep, buf, len, desc, context);

	if (locked)
		word_lock_drop(&ep->rx_lock);
	return ret;
}

#endif
