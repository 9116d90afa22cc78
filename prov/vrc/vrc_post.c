/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The cold side of posting: what is said when an operation cannot be taken, and
 * what is done where atomics are among the others.
 *
 * An atomic is answered, as a read is, and what is posted behind it may be carried
 * out before it: a send or write. A read may be carried out again, if its answer
 * was lost, after an atomic that was posted behind it. Both would break the order
 * that we promise, and a fence on the later one prevents it: the device holds it
 * back until there is nothing more to be answered. So that those who use no atomics
 * pay nothing, the first is a bit in ep->gate, and the second is found in the
 * ledger, where no record is looked at for a second atomic.
 */
#include <errno.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_credit.h"
#include "vrc_ep.h"
#include "vrc_more.h"
#include "vrc_mr.h"
#include "vrc_post.h"
#include "word_lock.h"

int vrc_tx_not_ready(const struct vrc_ep *ep)
{
	switch (atomic_load(&ep->state)) {
	case VRC_EP_IDLE:
		return -FI_EOPBADSTATE;
	case VRC_EP_SHUTDOWN:
		return -FI_ESHUTDOWN;
	default:
		return -FI_ENOTCONN;
	}
}

int vrc_rx_not_ready(const struct vrc_ep *ep)
{
	return atomic_load(&ep->state) == VRC_EP_IDLE ? -FI_EOPBADSTATE :
							 -FI_ESHUTDOWN;
}

int vrc_data_refused(const struct vrc_ep *ep)
{
	return ep->has_imm ? -FI_EINVAL : -FI_EOPNOTSUPP;
}

int vrc_ring_full(struct vrc_ep *ep, struct vrc_ring *ring)
{
	/* What is held may be all that there is to wait for. */
	vrc_more_flush(ep);
	atomic_fetch_add_explicit(&ring->full, 1, memory_order_relaxed);
	return -FI_EAGAIN;
}

int vrc_post_failed(struct vrc_ep *ep, struct vrc_ring *ring,
		    const struct vrc_req *req, int err)
{
	/* Some drivers return -1 and set errno, which the next call may change. */
	if (err < 0)
		err = errno;
	if (ring->mrs)
		vrc_local_release(ep, ring, req->slot, req->slot + 1);
	if (err == ENOMEM &&
	    atomic_load(&ring->head) != atomic_load(&ring->tail))
		return -FI_EAGAIN;
	return vrc_err(err);
}

void vrc_small_setup(struct vrc_ep *ep)
{
	static const enum ibv_wr_opcode opcodes[VRC_SMALL_CNT] = {
		[VRC_SMALL_SEND] = IBV_WR_SEND,
		[VRC_SMALL_WRITE] = IBV_WR_RDMA_WRITE,
		[VRC_SMALL_READ] = IBV_WR_RDMA_READ,
	};

	for (size_t i = 0; i < VRC_SMALL_CNT; i++) {
		ep->small[i].wr = (struct ibv_send_wr){
			.opcode = opcodes[i],
			.sg_list = &ep->small[i].sge,
			.num_sge = 1,
		};
	}
	ep->ready.wr = (struct ibv_recv_wr){
		.sg_list = &ep->ready.sge,
		.num_sge = 1,
	};
	ep->ready_len = ep->local_reg ? 0 : ep->max_msg_size;
	vrc_small_flags(ep);
}

/* Devices inline more than they were asked for. The application's limits are its
 * own: beyond them the general way says why not. */
static uint32_t small_max(const struct vrc_ep *ep)
{
	size_t max = min_size(ep->inline_size, ep->max_msg_size);

	return (uint32_t)min_size(max, ep->inject_size);
}

void vrc_small_flags(struct vrc_ep *ep)
{
	ep->small_flags = (ep->tx_visible ? VRC_REQ_VISIBLE : 0) |
			  ep->tx.req_flags;
	ep->ready_flags = (ep->rx_visible ? VRC_REQ_VISIBLE : 0) |
			  ep->rx.req_flags;
	ep->small_len = ep->tx_op_flags & FI_DELIVERY_COMPLETE ? 0 :
								 small_max(ep);
}

int vrc_small_failed(struct vrc_ep *ep, int err)
{
	struct vrc_ring *ring = &ep->tx;
	uint32_t head = vrc_ring_head(ring);

	/* If it was the one to be signalled, then the next is. */
	if (ring->last_signal == head + 1)
		ring->last_signal = head - ring->size / 4;
	return vrc_post_failed(ep, ring, &ring->req[head & ring->mask], err);
}

int vrc_recv_failed(struct vrc_ep *ep, int err)
{
	struct vrc_ring *ring = &ep->rx;

	return vrc_post_failed(ep, ring,
			       &ring->req[vrc_ring_head(ring) & ring->mask],
			       err);
}

static int gate_pass(struct vrc_ep *ep, unsigned int gate,
		     struct ibv_send_wr *wr)
{
	if (gate & (VRC_GATE_CREDITS | VRC_GATE_FIRST) &&
	    vrc_credit_take(ep, wr->opcode))
		return EAGAIN;
	/* Atomics and reads stay in order by themselves. */
	if (gate & VRC_GATE_FENCE && wr->opcode != IBV_WR_RDMA_READ &&
	    wr->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD &&
	    wr->opcode != IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->send_flags |= IBV_SEND_FENCE;
		atomic_fetch_and(&ep->gate, ~(unsigned int)VRC_GATE_FENCE);
	}
	return 0;
}

static void gate_return(struct vrc_ep *ep, const struct ibv_send_wr *wr)
{
	if (atomic_load(&ep->gate) & VRC_GATE_CREDITS)
		vrc_credit_return(ep, wr->opcode);
	/* One too many does no harm. */
	if (wr->send_flags & IBV_SEND_FENCE)
		atomic_fetch_or(&ep->gate, VRC_GATE_FENCE);
}

int vrc_gate_send(struct vrc_ep *ep, struct ibv_send_wr *wr, bool more)
{
	unsigned int gate = atomic_load(&ep->gate);
	struct ibv_send_wr *bad;
	int ret = gate_pass(ep, gate, wr);

	if (ret) {
		/* The peer may be waiting for what is held. */
		vrc_more_flush(ep);
		return ret;
	}
	if (more || gate & VRC_GATE_MORE)
		ret = vrc_more_send(ep, wr, more);
	else
		ret = ibv_post_send(ep->qp, wr, &bad);
	if (ret)
		gate_return(ep, wr);
	return ret;
}

ssize_t vrc_gate_recv(struct vrc_ep *ep, struct ibv_recv_wr *wr, bool more,
		      bool locked)
{
	struct vrc_req *req = (struct vrc_req *)(uintptr_t)wr->wr_id;
	unsigned int cnt;
	int ret;

	ret = vrc_more_recv(ep, wr, more, &cnt);
	if (ret)
		ret = vrc_post_failed(ep, &ep->rx, req, ret);
	else
		vrc_ring_advance(&ep->rx, true);
	if (locked)
		word_lock_drop(&ep->rx_lock);
	vrc_credit_posted(ep, cnt);
	return ret;
}

bool vrc_read_in_front(struct vrc_ep *ep)
{
	uint32_t head = atomic_load(&ep->tx.head);
	uint32_t tail = atomic_load(&ep->tx.tail);
	uint32_t i = ep->no_read_before;
	bool found = false;

	/* What is retired has been answered. */
	if ((int32_t)(tail - i) > 0)
		i = tail;
	for (; i != head && !found; i++)
		found = ep->tx.req[i & ep->tx.mask].op == VRC_OP_READ;
	return found;
}

void vrc_atomic_posted(struct vrc_ep *ep)
{
	ep->no_read_before = atomic_load(&ep->tx.head);
	if (!(atomic_load(&ep->gate) & VRC_GATE_FENCE))
		atomic_fetch_or(&ep->gate, VRC_GATE_FENCE);
}
