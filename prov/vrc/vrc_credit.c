/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Receiver credits. A send that finds no receive costs milliseconds on RoCE
 * (RNR) and the connection on iWARP, which has no RNR. With credits, each side
 * keeps the peer informed of how many receives it has posted since the queue
 * pair was made, and a sender that has used them up gets -FI_EAGAIN.
 *
 * No message is spent on that: the count is written by RDMA into a word that
 * the peer exposes. The first count travels in the private data, the next ones
 * when half of what the peer knows of is used up, and at the latest a tick
 * after they were posted (vrc_eq_thread.c).
 *
 *	receiver                               sender
 *	posts   posted  ──── told ───► word ───► limit
 *	takes   rx.tail                          sent     may send while < limit
 *
 * On iWARP the accepting side must not send before it was sent something (RFC
 * 5044, 7.1.2). There the connecting side's first count is that something: it
 * is written even if it is no news, and until it is there the accepting side
 * sends nothing, RMA and counts included. Then it answers, and until that comes
 * the connecting side writes again now and then: siw does not notice what
 * arrives just before its socket is in place, until more arrives.
 *
 * An RDMA write makes no event, so nobody who sleeps would notice: who was told
 * -FI_EAGAIN is remembered, and the event queue's thread wakes the completion
 * queue when credits have come.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_dev.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_log.h"
#include "vrc_mr.h"
#include "vrc_params.h"
#include "vrc_post.h"
#include "vrc_util.h"

enum {
	/* Why the event queue's thread has to look again. */
	UNTOLD = 1 << 0,  /* posted, and the peer does not know */
	STARVED = 1 << 1, /* a send was refused for want of a credit */
	GREETING = 1 << 2, /* the peer has not answered our first count */

	ALL_BUSY = (1 << VRC_CREDIT_WRITES) - 1,
	GREET_MAX_MS = 128, /* between two greetings; doubles from 1 */
};

/* No count at all was there. */
#define STARVED_FIRST UINT64_MAX

/*
 * A count as it is written. Placing eight bytes need not be atomic, and a TCP
 * segment may end within them: only a count whose two halves agree is one. All
 * zeros, before the first was written, is none.
 */
struct word {
	__be32 posted;
	__be32 check; /* ~posted */
};

/* What the peer writes and what we write from, in a page of its own, so that
 * registering it does not concern anything else. */
struct shared {
	struct word in;
	struct word out[VRC_CREDIT_WRITES];
};

struct vrc_credit {
	struct vrc_peer peer;
	/* Guarded by tx_lock. */
	uint32_t sent;
	uint32_t limit;

	struct lock lock; /* guards told and busy; no lock is taken under it */
	uint32_t told;
	atomic_uint busy; /* out[] and req[] in flight, one bit each */
	struct vrc_req req[VRC_CREDIT_WRITES];

	uint64_t greet_ms; /* when to greet again; guarded by eq->lock */
	uint64_t greet_gap_ms;

	/* Receives that the device has been given; rx.head is past those that
	 * FI_MORE holds (vrc_more.c). Written by posting. */
	_Atomic uint32_t posted;
	atomic_uint attention;
	_Atomic uint64_t starved_at; /* the count that was not enough */

	struct shared *shared;
	struct ibv_mr *mr;
	struct list node; /* eq->credit_eps; guarded by eq->lock */
	struct vrc_ep *ep;
};

bool vrc_credit_wanted(const struct vrc_dev *dev)
{
	switch (vrc_params.credits) {
	case VRC_CREDITS_ALWAYS:
		return true;
	case VRC_CREDITS_NEVER:
		return false;
	default:
		return dev->is_iwarp;
	}
}

int vrc_credit_open(struct vrc_ep *ep)
{
	struct vrc_credit *credit;
	int ret;

	ep->gate = 0;
	ep->rx_gate = 0;
	/* What is posted to a shared context is promised to nobody. */
	if (!vrc_credit_wanted(ep->domain->dev) || ep->srx)
		return 0;
	credit = calloc(1, sizeof(*credit));
	if (!credit)
		return -FI_ENOMEM;
	credit->shared = mmap(NULL, sizeof(struct shared),
			      PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (credit->shared == MAP_FAILED) {
		ret = vrc_err(errno);
		goto err_free_credit;
	}
	credit->mr = ep->domain->ops->reg_mr(
		ep->domain->pd, credit->shared, sizeof(struct shared),
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ);
	if (!credit->mr) {
		ret = vrc_err(errno);
		vrc_mr_explain(ep->domain, credit->shared,
			       sizeof(struct shared), errno);
		goto err_unmap;
	}
	for (unsigned int i = 0; i < VRC_CREDIT_WRITES; i++) {
		credit->req[i].ep = ep;
		credit->req[i].op = VRC_OP_CREDIT;
		credit->req[i].slot = i;
	}
	lock_init(&credit->lock);
	list_init(&credit->node);
	atomic_init(&credit->posted, atomic_load(&ep->rx.head));
	credit->ep = ep;
	ep->credit = credit;
	atomic_store(&ep->rx_gate, VRC_RX_GATE_CREDITS);
	return 0;

err_unmap:
	munmap(credit->shared, sizeof(struct shared));
err_free_credit:
	free(credit);
	return ret;
}

void vrc_credit_close(struct vrc_ep *ep)
{
	struct vrc_credit *credit = ep->credit;

	if (!credit)
		return;
	ep->credit = NULL;
	ep->domain->ops->dereg_mr(credit->mr);
	munmap(credit->shared, sizeof(struct shared));
	lock_fini(&credit->lock);
	free(credit);
}

void vrc_credit_offer(struct vrc_ep *ep, struct vrc_peer *self)
{
	struct vrc_credit *credit = ep->credit;

	if (!credit)
		return;
	lock_take(&credit->lock);
	credit->told = atomic_load(&credit->posted);
	self->features |= VRC_FEATURE_CREDITS;
	self->posted = credit->told;
	self->rkey = credit->mr->rkey;
	self->addr = (uintptr_t)&credit->shared->in;
	lock_drop(&credit->lock);
}

/* False if the peer has not written one yet, or is about to. */
static __device_written bool read_word(const struct vrc_credit *credit, uint32_t *posted)
{
	const volatile struct word *in = &credit->shared->in;
	__be32 value = in->posted;

	if (in->check != ~value)
		return false;
	*posted = be32toh(value);
	return true;
}

/* Counts wrap; the peer is never more than half of them ahead. */
static bool is_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static void look_again(struct vrc_ep *ep, unsigned int why)
{
	atomic_fetch_or(&ep->credit->attention, why);
	vrc_eq_tick(ep->eq);
}

/* True if the peer may be sent something. */
static bool may_speak(struct vrc_ep *ep)
{
	uint32_t posted;

	if (!(atomic_load(&ep->gate) & VRC_GATE_FIRST))
		return true;
	if (!read_word(ep->credit, &posted))
		return false;
	atomic_fetch_and(&ep->gate, ~(unsigned int)VRC_GATE_FIRST);
	return true;
}

/* Writes the count; false if both writes are still in flight. Caller holds
 * credit->lock. */
static bool tell(struct vrc_ep *ep, uint32_t posted)
{
	struct vrc_credit *credit = ep->credit;
	unsigned int i = (unsigned int)__builtin_ctz(~atomic_load(&credit->busy));
	struct ibv_send_wr *bad;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma.remote_addr = credit->peer.addr,
		.wr.rdma.rkey = credit->peer.rkey,
	};
	int ret;

	if (i >= VRC_CREDIT_WRITES)
		return false;
	credit->shared->out[i].posted = htobe32(posted);
	credit->shared->out[i].check = ~htobe32(posted);
	sge.addr = (uintptr_t)&credit->shared->out[i];
	sge.length = sizeof(struct word);
	sge.lkey = credit->mr->lkey;
	if (ep->inline_size >= sizeof(struct word))
		wr.send_flags |= IBV_SEND_INLINE;
	wr.wr_id = (uintptr_t)&credit->req[i];
	ret = ibv_post_send(ep->qp, &wr, &bad);
	if (ret) {
		vrc_dbg(EP_DATA, "ep %p: credits cannot be written: %s\n",
			(void *)ep, fi_strerror(-vrc_err(ret)));
		return false;
	}
	atomic_fetch_or(&credit->busy, 1u << i);
	credit->told = posted;
	return true;
}

/* Tells the peer of what was posted, if that is worth a write. */
static void tell_posted(struct vrc_ep *ep, bool force)
{
	struct vrc_credit *credit = ep->credit;
	uint32_t posted, untold, known;
	bool later = false;

	lock_take(&credit->lock);
	/* What was posted before the endpoint is connected is told then. */
	if (atomic_load(&ep->state) != VRC_EP_CONNECTED ||
	    !(atomic_load(&ep->gate) & VRC_GATE_CREDITS))
		goto out;
	posted = atomic_load(&credit->posted);
	untold = posted - credit->told;
	known = credit->told - atomic_load(&ep->rx.tail);
	if (untold)
		later = is_before(untold, known) && !force;
	else if (!force)
		goto out;
	if (!later)
		later = !may_speak(ep) || !tell(ep, posted);
out:
	lock_drop(&credit->lock);
	if (later)
		look_again(ep, UNTOLD);
}

void vrc_credit_add(struct vrc_ep *ep, unsigned int cnt)
{
	if (!ep->credit || !cnt)
		return;
	atomic_fetch_add(&ep->credit->posted, cnt);
	look_again(ep, UNTOLD);
}

void vrc_credit_posted(struct vrc_ep *ep, unsigned int cnt)
{
	if (!ep->credit || !cnt)
		return;
	atomic_fetch_add(&ep->credit->posted, cnt);
	/* Who never reads the send side's completions must not stop us. */
	if (atomic_load(&ep->credit->busy) == ALL_BUSY)
		vrc_cq_reap(ep->tx_cq);
	tell_posted(ep, false);
}

void vrc_credit_agree(struct vrc_ep *ep, const struct vrc_peer *peer)
{
	struct vrc_credit *credit = ep->credit;
	unsigned int gate = VRC_GATE_CREDITS;

	lock_assert_held(&ep->eq->lock);
	if (!credit || !(peer->features & VRC_FEATURE_CREDITS))
		return;
	credit->peer = *peer;
	credit->limit = peer->posted;
	if (ep->domain->dev->is_iwarp && ep->cm.passive)
		gate |= VRC_GATE_FIRST;
	atomic_store(&ep->gate, gate);
	list_add_tail(&ep->eq->credit_eps, &credit->node);
}

/* Caller holds eq->lock. */
static void greet(struct vrc_ep *ep)
{
	struct vrc_credit *credit = ep->credit;
	uint64_t now = vrc_now_ms();
	uint32_t posted;

	if (read_word(credit, &posted))
		return;
	if (now >= credit->greet_ms) {
		if (credit->greet_gap_ms < GREET_MAX_MS)
			credit->greet_gap_ms += credit->greet_gap_ms + 1;
		credit->greet_ms = now + credit->greet_gap_ms;
		tell_posted(ep, true);
	}
	look_again(ep, GREETING);
}

void vrc_credit_start(struct vrc_ep *ep)
{
	if (!(atomic_load(&ep->gate) & VRC_GATE_CREDITS))
		return;
	if (!ep->domain->dev->is_iwarp)
		tell_posted(ep, false);
	else if (ep->cm.passive)
		look_again(ep, UNTOLD); /* whatever there is: it is the answer */
	else
		greet(ep);
}

void vrc_credit_stop(struct vrc_ep *ep)
{
	if (!ep->credit)
		return;
	lock_assert_held(&ep->eq->lock);
	list_del(&ep->credit->node);
}

static int starve(struct vrc_ep *ep, uint64_t at)
{
	atomic_store(&ep->credit->starved_at, at);
	look_again(ep, STARVED);
	return -FI_EAGAIN;
}

int vrc_credit_take(struct vrc_ep *ep, enum ibv_wr_opcode opcode)
{
	struct vrc_credit *credit = ep->credit;
	uint32_t posted;

	if (!may_speak(ep))
		return starve(ep, STARVED_FIRST);
	if (!vrc_takes_receive(opcode))
		return 0;
	if (!is_before(credit->sent, credit->limit)) {
		if (!read_word(credit, &posted) ||
		    !is_before(credit->sent, posted))
			return starve(ep, credit->limit);
		credit->limit = posted;
	}
	credit->sent++;
	return 0;
}

void vrc_credit_return(struct vrc_ep *ep, enum ibv_wr_opcode opcode)
{
	if (vrc_takes_receive(opcode))
		ep->credit->sent--;
}

void vrc_credit_written(const struct vrc_req *req)
{
	struct vrc_credit *credit = req->ep->credit;

	lock_take(&credit->lock);
	atomic_fetch_and(&credit->busy, ~(1u << req->slot));
	lock_drop(&credit->lock);
}

/* Caller holds eq->lock. */
static void attend(struct vrc_ep *ep)
{
	struct vrc_credit *credit = ep->credit;
	unsigned int why = atomic_exchange(&credit->attention, 0);
	uint32_t posted;

	if (atomic_load(&ep->state) != VRC_EP_CONNECTED)
		return;
	if (atomic_load(&credit->busy))
		vrc_cq_try_reap(ep->tx_cq);
	if (why & GREETING)
		greet(ep);
	if (why & UNTOLD)
		tell_posted(ep, true);
	if (!(why & STARVED))
		return;
	if (read_word(credit, &posted) &&
	    posted != atomic_load(&credit->starved_at))
		vrc_cq_interrupt(ep->tx_cq);
	else
		look_again(ep, STARVED);
}

void vrc_credit_tick(struct vrc_eq *eq)
{
	struct list *pos;
	struct vrc_credit *credit;

	lock_assert_held(&eq->lock);
	list_for_each(pos, &eq->credit_eps) {
		credit = list_entry(pos, struct vrc_credit, node);
		if (atomic_load(&credit->attention))
			attend(credit->ep);
	}
}
