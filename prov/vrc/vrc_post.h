/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The posting half of the hot path, shared by vrc_msg.c and vrc_rma.c. Every
 * body is inlined into two instances, with and without the lock, between which
 * fi_endpoint chooses; constants fold, so an instance holds only the
 * branches of its own operation.
 */
#ifndef VRC_POST_H
#define VRC_POST_H

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include "compiler.h"
#include "vrc_deliver.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_mr.h"
#include "word_lock.h"

/* What an operation may be given. Completion levels and kinds of operation that
 * an RC queue pair cannot give are not among it: to carry them out as something
 * less would be to lie. */
#define VRC_TX_FLAGS                                                      \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE |                 \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_FENCE |         \
	 FI_MORE | FI_REMOTE_CQ_DATA | FI_MSG | FI_RMA | FI_SEND |        \
	 FI_READ | FI_WRITE)
#define VRC_RX_FLAGS (FI_COMPLETION | FI_MORE | FI_MSG | FI_RECV)

/* One operation, as the API calls describe it. */
struct vrc_tx {
	enum vrc_op op;
	enum ibv_wr_opcode opcode;
	const struct iovec *iov;
	void **desc;		/* one per iov, or NULL */
	size_t iov_cnt;
	uint64_t flags;		/* FI_* of this operation */
	uint64_t data;
	uint64_t remote_addr;
	uint64_t rkey;
	uint64_t compare_add;	/* of an atomic */
	uint64_t swap;		/* of a compare and swap */
	void *context;
	bool visible;		/* wants a completion */
	bool part;		/* of an operation; not the last of it */
	bool fence;		/* FI_FENCE */
	bool more;		/* others follow at once, and it may wait */
};

/* Whether pieces of memory need a descriptor. A receive at address 0 has room
 * for a message of no bytes, whatever length it claims: fabtests has those. */
enum vrc_need_desc { VRC_DESC_NONE, VRC_DESC_ANY, VRC_DESC_RECV };

/* vrc_post.c: why an endpoint takes no work now; -FI_E*. */
int vrc_tx_not_ready(const struct vrc_ep *ep);
int vrc_rx_not_ready(const struct vrc_ep *ep);
/* Why remote CQ data is not taken. */
int vrc_data_refused(const struct vrc_ep *ep);
/* A post finds no free record: -FI_EAGAIN. */
int vrc_ring_full(struct vrc_ep *ep, struct vrc_ring *ring);
/* ibv_post_send for when ep's gate is not open, or others follow; also EAGAIN.
 * Caller holds tx_lock. */
int vrc_gate_send(struct vrc_ep *ep, struct ibv_send_wr *wr, bool more);
/* The rest of vrc_rx_post for when ep's gate for receives is not open, or others
 * follow. */
ssize_t vrc_gate_recv(struct vrc_ep *ep, struct ibv_recv_wr *wr, bool more,
		      bool locked);
/* An atomic is about to be posted: whether a read is in front of it that it must
 * not overtake. Caller holds tx_lock. */
bool vrc_read_in_front(struct vrc_ep *ep);
/* One was posted. */
void vrc_atomic_posted(struct vrc_ep *ep);
/* Makes the short way of vrc_small.h ready. */
void vrc_small_setup(struct vrc_ep *ep);
/* What calls without flags ask for may have changed, and may close it. Others may
 * be posting meanwhile: the work requests that stand ready are left alone. */
void vrc_small_flags(struct vrc_ep *ep);
/* What was not posted that way is taken back; as vrc_post_failed. */
int vrc_small_failed(struct vrc_ep *ep, int err);
int vrc_recv_failed(struct vrc_ep *ep, int err);
/* What a refused post of req means: -FI_EAGAIN only if a completion will clear
 * it. */
int vrc_post_failed(struct vrc_ep *ep, struct vrc_ring *ring,
		    const struct vrc_req *req, int err);

/* What comes back goes to the memory that the operation names. */
static __hot_inline bool vrc_fetches(enum vrc_op op)
{
	return op == VRC_OP_READ || op == VRC_OP_ATOMIC ||
	       op == VRC_OP_FETCH_ATOMIC;
}

static __hot_inline bool vrc_is_atomic(enum vrc_op op)
{
	return op == VRC_OP_ATOMIC || op == VRC_OP_FETCH_ATOMIC;
}

/* What the peer would get is what was given: immediate data has four bytes. */
static __hot_inline bool vrc_data_ok(const struct vrc_ep *ep, uint64_t data)
{
	return ep->has_imm && data <= UINT32_MAX;
}

/* A work request that uses up a receive of the peer's. */
static __hot_inline bool vrc_takes_receive(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Only posting writes head, one thread at a time, so relaxed will do for it;
 * and no read-modify-write, which would be a locked instruction. */
static __hot_inline uint32_t vrc_ring_head(const struct vrc_ring *ring)
{
	return atomic_load_explicit(&ring->head, memory_order_relaxed);
}

static __hot_inline void vrc_ring_advance(struct vrc_ring *ring, bool signalled)
{
	uint32_t head = vrc_ring_head(ring) + 1;

	/* Release: who looks for records that are done sees this one whole. */
	atomic_store_explicit(&ring->head, head, memory_order_release);
	if (signalled)
		ring->last_signal = head;
}

/* Pairs with the release of vrc_ring_retire: a record that is free is so. */
static __hot_inline bool vrc_ring_room(const struct vrc_ring *ring,
				       uint32_t head)
{
	return head - atomic_load_explicit(&ring->tail, memory_order_acquire) <
	       ring->size;
}

/* Records in flight, for who neither posts nor reads: completions may be read
 * before head is past their records, and both move on between two looks. */
static inline uint32_t vrc_ring_used(const struct vrc_ring *ring)
{
	uint32_t tail = atomic_load(&ring->tail);
	uint32_t used = atomic_load(&ring->head) - tail;

	if ((int32_t)used < 0)
		return 0;
	return used < ring->size ? used : ring->size;
}

static __hot_inline struct vrc_req *vrc_ring_next(struct vrc_ring *ring)
{
	uint32_t head = vrc_ring_head(ring);

	if (unlikely(!vrc_ring_room(ring, head)))
		return NULL;
	return &ring->req[head & ring->mask];
}

/* One in a quarter of the ring is signalled whatever the application wants,
 * so that a full ring always has a completion coming that empties most of it. */
static __hot_inline bool vrc_ring_signal_due(const struct vrc_ring *ring)
{
	return vrc_ring_head(ring) - ring->last_signal >= ring->size / 4;
}

/* Work requests of one operation, so that it fits when all that was signalled has
 * completed: what is in front of it unsignalled, which may be a quarter of the ring,
 * nothing would ever take out. */
static __hot_inline size_t vrc_ring_most(size_t size)
{
	return size - size / 4;
}

static __hot_inline size_t vrc_iov_len(const struct iovec *iov, size_t cnt)
{
	size_t len = 0;

	/* A sum that wraps must not pass for a small message. */
	for (size_t i = 0; i < cnt; i++)
		if (unlikely(__builtin_add_overflow(len, iov[i].iov_len, &len)))
			return SIZE_MAX;
	return len;
}

/* The number of pieces, or -FI_EINVAL if a descriptor is not of this domain. A
 * piece of no bytes is left out: it means 2 GiB to some devices, and siw follows
 * a null pointer in the kernel. */
static __hot_inline int vrc_sge_fill_tag(uint32_t desc_tag,
					 struct ibv_sge *sge,
					 const struct iovec *iov, void **desc,
					 size_t cnt, enum vrc_need_desc need)
{
	int n = 0;

	for (size_t i = 0; i < cnt; i++) {
		if (unlikely(!iov[i].iov_len))
			continue;
		sge[n].addr = (uintptr_t)iov[i].iov_base;
		sge[n].length = (uint32_t)iov[i].iov_len;
		sge[n].lkey = 0;
		if (need != VRC_DESC_NONE) {
			if (unlikely(!desc ||
				     !vrc_desc_ok(desc_tag, desc[i]))) {
				if (need == VRC_DESC_RECV && !iov[i].iov_base &&
				    (!desc || !desc[i]))
					continue;
				return -FI_EINVAL;
			}
			sge[n].lkey = vrc_desc_lkey(desc[i]);
		}
		n++;
	}
	return n;
}

static __hot_inline int vrc_sge_fill(const struct vrc_ep *ep,
				     struct ibv_sge *sge,
				     const struct iovec *iov, void **desc,
				     size_t cnt, enum vrc_need_desc need)
{
	return vrc_sge_fill_tag(ep->desc_tag, sge, iov, desc, cnt, need);
}

/* For memory that the device will reach into: access is FI_READ or FI_RECV if
 * it will be written to. The number of pieces, or -FI_E*. */
static __hot_inline int vrc_sge_local(struct vrc_ep *ep, struct vrc_ring *ring,
				      const struct vrc_req *req,
				      struct ibv_sge *sge,
				      const struct iovec *iov, void **desc,
				      size_t cnt, uint64_t access)
{
	int n;

	if (likely(!ep->local_reg))
		return vrc_sge_fill(ep, sge, iov, desc, cnt,
				    access == FI_RECV ? VRC_DESC_RECV :
							VRC_DESC_ANY);
	n = vrc_sge_fill(ep, sge, iov, NULL, cnt, VRC_DESC_NONE);
	return vrc_local_reg(ep->domain,
			     &ring->mrs[(size_t)req->slot * VRC_IOV_LIMIT], n,
			     vrc_mr_access(ep->domain, access), sge);
}

/* The data must be the caller's again when we return, and the device does not
 * take that much inline: copy it to the slot's own registered memory. */
static inline void vrc_bounce(struct vrc_ep *ep, const struct vrc_req *req,
			      const struct vrc_tx *tx, size_t len,
			      struct ibv_sge *sge)
{
	uint8_t *buf = ep->bounce + (size_t)req->slot * ep->inject_size;

	sge->addr = (uintptr_t)buf;
	sge->length = (uint32_t)len;
	sge->lkey = ep->bounce_lkey;
	for (size_t i = 0; i < tx->iov_cnt; i++) {
		if (tx->iov[i].iov_len)
			memcpy(buf, tx->iov[i].iov_base, tx->iov[i].iov_len);
		buf += tx->iov[i].iov_len;
	}
}

static __hot_inline int vrc_tx_build(struct vrc_ep *ep, struct vrc_req *req,
				     const struct vrc_tx *tx, size_t len,
				     struct ibv_send_wr *wr,
				     struct ibv_sge *sge)
{
	int ret;

	wr->send_flags = 0;
	if (!vrc_fetches(tx->op) && len <= ep->inline_size) {
		wr->send_flags = IBV_SEND_INLINE;
		wr->num_sge = vrc_sge_fill(ep, sge, tx->iov, NULL, tx->iov_cnt,
					   VRC_DESC_NONE);
	} else if (!vrc_fetches(tx->op) && (tx->flags & FI_INJECT)) {
		wr->num_sge = 1;
		vrc_bounce(ep, req, tx, len, sge);
	} else if (tx->op == VRC_OP_ATOMIC) {
		/* Memory of ours, which is registered. */
		wr->num_sge = vrc_sge_fill(ep, sge, tx->iov, tx->desc,
					   tx->iov_cnt, VRC_DESC_ANY);
	} else {
		ret = vrc_sge_local(ep, &ep->tx, req, sge, tx->iov, tx->desc,
				    tx->iov_cnt,
				    vrc_fetches(tx->op) ? FI_READ : 0);
		if (unlikely(ret < 0))
			return ret;
		wr->num_sge = ret;
	}
	/* iWARP carries reads out in order; siw refuses to fence one. */
	if (tx->fence && !(tx->op == VRC_OP_READ && ep->tx.unordered))
		wr->send_flags |= IBV_SEND_FENCE;
	if (vrc_is_atomic(tx->op) && vrc_read_in_front(ep))
		wr->send_flags |= IBV_SEND_FENCE;
	if (tx->visible || vrc_ring_signal_due(&ep->tx) ||
	    ep->tx.signal_all)
		wr->send_flags |= IBV_SEND_SIGNALED;
	return 0;
}

static __hot_inline void vrc_wr_remote(struct ibv_send_wr *wr,
				       const struct vrc_tx *tx)
{
	if (vrc_is_atomic(tx->op)) {
		wr->wr.atomic.remote_addr = tx->remote_addr;
		wr->wr.atomic.rkey = (uint32_t)tx->rkey;
		wr->wr.atomic.compare_add = tx->compare_add;
		wr->wr.atomic.swap = tx->swap;
	} else {
		wr->wr.rdma.remote_addr = tx->remote_addr;
		wr->wr.rdma.rkey = (uint32_t)tx->rkey;
	}
}

static __hot_inline ssize_t vrc_tx_post(struct vrc_ep *ep,
					const struct vrc_tx *tx,
					const bool locked)
{
	struct ibv_sge sge[VRC_IOV_LIMIT];
	struct ibv_send_wr wr, *bad;
	struct vrc_req *req;
	size_t len;
	int ret;

	/* A copy: what is not passed to anybody stays in registers. */
	if (!vrc_fetches(tx->op) &&
	    unlikely(tx->flags & FI_DELIVERY_COMPLETE)) {
		const struct vrc_tx copy = *tx;

		return vrc_deliver_post(ep, &copy, locked);
	}
	if (unlikely(tx->iov_cnt > VRC_IOV_LIMIT))
		return -FI_EINVAL;
	len = vrc_iov_len(tx->iov, tx->iov_cnt);
	if (unlikely(len > ((tx->flags & FI_INJECT) ? ep->inject_size :
						      ep->max_msg_size)))
		return -FI_EMSGSIZE;
	/* Pairs with the release in vrc_cm.c: a connected endpoint's queue
	 * pair is seen whole. */
	if (unlikely(atomic_load_explicit(&ep->state, memory_order_acquire) !=
		     VRC_EP_CONNECTED))
		return vrc_tx_not_ready(ep);
	if (locked)
		word_lock_take(&ep->tx_lock);
	req = vrc_ring_next(&ep->tx);
	if (unlikely(!req)) {
		ret = vrc_ring_full(ep, &ep->tx);
		goto out;
	}
	ret = vrc_tx_build(ep, req, tx, len, &wr, sge);
	if (unlikely(ret))
		goto out;
	wr.opcode = tx->opcode;
	wr.wr_id = (uintptr_t)req;
	wr.next = NULL;
	wr.sg_list = sge;
	wr.imm_data = htonl((uint32_t)tx->data);
	vrc_wr_remote(&wr, tx);
	req->context = tx->context;
	req->len = (uint32_t)len;
	req->next = vrc_ring_head(&ep->tx) + 1;
	req->op = (uint16_t)tx->op;
	req->flags = (tx->visible ? VRC_REQ_VISIBLE : 0) |
		     (tx->part ? VRC_REQ_PART : 0) | ep->tx.req_flags;
	/* Pairs with vrc_more.c: what was held is posted when it opens. */
	if (unlikely(atomic_load_explicit(&ep->gate, memory_order_acquire) ||
		     tx->more))
		ret = vrc_gate_send(ep, &wr, tx->more);
	else
		ret = ibv_post_send(ep->qp, &wr, &bad);
	if (unlikely(ret)) {
		ret = vrc_post_failed(ep, &ep->tx, req, ret);
		goto out;
	}
	vrc_ring_advance(&ep->tx, wr.send_flags & IBV_SEND_SIGNALED);
	if (vrc_is_atomic(tx->op))
		vrc_atomic_posted(ep);
out:
	if (locked)
		word_lock_drop(&ep->tx_lock);
	return ret;
}

static __hot_inline ssize_t vrc_rx_post(struct vrc_ep *ep,
					const struct iovec *iov, void **desc,
					size_t cnt, void *context, bool visible,
					bool more, const bool locked)
{
	struct ibv_sge sge[VRC_IOV_LIMIT];
	struct ibv_recv_wr wr, *bad;
	struct vrc_req *req;
	size_t len;
	int state;
	int ret;

	if (unlikely(cnt > VRC_IOV_LIMIT))
		return -FI_EINVAL;
	len = vrc_iov_len(iov, cnt);
	if (unlikely(len > ep->max_msg_size))
		return -FI_EMSGSIZE;
	state = atomic_load_explicit(&ep->state, memory_order_acquire);
	if (unlikely(state == VRC_EP_IDLE || state == VRC_EP_SHUTDOWN))
		return vrc_rx_not_ready(ep);
	if (locked)
		word_lock_take(&ep->rx_lock);
	req = vrc_ring_next(&ep->rx);
	if (unlikely(!req)) {
		ret = vrc_ring_full(ep, &ep->rx);
		goto out;
	}
	ret = vrc_sge_local(ep, &ep->rx, req, sge, iov, desc, cnt, FI_RECV);
	if (unlikely(ret < 0))
		goto out;
	wr.num_sge = ret;
	/* No piece at all is refused by siw. */
	if (unlikely(!ret)) {
		sge[0] = (struct ibv_sge){ 0 };
		wr.num_sge = ep->empty_sge_cnt;
	}
	req->context = context;
	req->len = (uint32_t)len;
	req->next = vrc_ring_head(&ep->rx) + 1;
	req->op = VRC_OP_RECV;
	req->flags = (visible ? VRC_REQ_VISIBLE : 0) | ep->rx.req_flags;
	wr.wr_id = (uintptr_t)req;
	wr.next = NULL;
	wr.sg_list = sge;
	if (unlikely(atomic_load_explicit(&ep->rx_gate, memory_order_acquire) ||
		     more))
		return vrc_gate_recv(ep, &wr, more, locked);
	ret = ibv_post_recv(ep->qp, &wr, &bad);
	if (unlikely(ret))
		ret = vrc_post_failed(ep, &ep->rx, req, ret);
	else
		vrc_ring_advance(&ep->rx, false);
out:
	if (locked)
		word_lock_drop(&ep->rx_lock);
	return ret;
}

/* vrc_msg.c, vrc_rma.c */
extern const struct fi_ops_msg vrc_msg_ops_locked;
extern const struct fi_ops_msg vrc_msg_ops_unlocked;
/* Of endpoints whose receives are posted to a shared context. */
extern const struct fi_ops_msg vrc_msg_ops_locked_srx;
extern const struct fi_ops_msg vrc_msg_ops_unlocked_srx;
extern const struct fi_ops_rma vrc_rma_ops_locked;
extern const struct fi_ops_rma vrc_rma_ops_unlocked;

#endif
