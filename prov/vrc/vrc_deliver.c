/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FI_DELIVERY_COMPLETE for sends and writes. An acknowledgement says that the
 * peer's device has the data, not that the peer's CPUs can see it (IBTA 9.7.5.1);
 * an iWARP device does not even wait for one. But what was sent before a read is
 * carried out before it, and the answer of a read from the peer's memory is
 * behind whatever its device had written there. So such an operation is followed
 * by a read of a word that every vrc exposes, whose completion speaks for it.
 *
 *	first	the operation itself, a VRC_REQ_PART
 *	second	reads the word; its record has the operation's kind and context
 *
 * Both go to the device at once. Who does not ask for it pays nothing. Reads and
 * atomics have been delivered when they complete.
 */
#include <errno.h>
#include <sys/mman.h>

#include "vrc.h"
#include "vrc_deliver.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_mr.h"
#include "vrc_post.h"
#include "word_lock.h"

enum { WORD_LEN = 8 };

/* In a page of its own, so that registering it concerns nothing else. */
struct vrc_words {
	uint64_t ours;	/* that peers read; 0 */
	uint64_t theirs; /* what comes back; of no interest */
};

int vrc_deliver_open(struct vrc_domain *domain)
{
	int access = vrc_mr_access(domain, FI_READ | FI_REMOTE_READ);
	int ret;

	domain->words = mmap(NULL, sizeof(*domain->words),
			     PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (domain->words == MAP_FAILED)
		return vrc_err(errno);
	domain->words_mr = domain->ops->reg_mr(domain->pd, domain->words,
					       sizeof(*domain->words), access);
	if (domain->words_mr)
		return 0;
	ret = errno;
	vrc_mr_explain(domain, domain->words, sizeof(*domain->words), ret);
	munmap(domain->words, sizeof(*domain->words));
	return vrc_err(ret);
}

void vrc_deliver_close(struct vrc_domain *domain)
{
	if (!domain->words_mr)
		return;
	domain->ops->dereg_mr(domain->words_mr);
	domain->words_mr = NULL;
	munmap(domain->words, sizeof(*domain->words));
}

void vrc_deliver_offer(const struct vrc_ep *ep, struct vrc_peer *self)
{
	const struct vrc_domain *domain = ep->domain;

	self->features |= VRC_FEATURE_WORD;
	/* The word of the credits will do as well. */
	if (self->features & VRC_FEATURE_CREDITS)
		return;
	self->rkey = domain->words_mr->rkey;
	self->addr = (uintptr_t)&domain->words->ours;
}

/* The read behind the operation. Caller holds the lock if there is one. */
static int post_read(struct vrc_ep *ep, const struct vrc_tx *tx)
{
	const struct vrc_domain *domain = ep->domain;
	struct ibv_sge sge = {
		.addr = (uintptr_t)&domain->words->theirs,
		.length = WORD_LEN,
		.lkey = domain->words_mr->lkey,
	};
	struct vrc_req *req = vrc_ring_next(&ep->tx);
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)req,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = ep->cm.peer.addr,
		.wr.rdma.rkey = ep->cm.peer.rkey,
	};
	int ret;

	req->context = tx->context;
	req->len = (uint32_t)vrc_iov_len(tx->iov, tx->iov_cnt);
	req->next = vrc_ring_head(&ep->tx) + 1;
	req->op = (uint16_t)tx->op;
	req->flags = (tx->visible ? VRC_REQ_VISIBLE : 0) | ep->tx.req_flags;
	ret = vrc_gate_send(ep, &wr, tx->more);
	if (ret)
		return vrc_post_failed(ep, &ep->tx, req, ret);
	vrc_ring_advance(&ep->tx, true);
	return 0;
}

/* Room for both is there before either is posted. */
static int post_both(struct vrc_ep *ep, const struct vrc_tx *tx)
{
	const struct vrc_ring *ring = &ep->tx;
	uint32_t used = vrc_ring_head(ring) - atomic_load(&ring->tail);
	struct vrc_tx first = *tx;
	int ret;

	if (ring->size < VRC_DELIVER_PLACES)
		return -FI_EINVAL;
	if (used + VRC_DELIVER_PLACES > ring->size)
		return vrc_ring_full(ep, &ep->tx);
	first.flags &= ~FI_DELIVERY_COMPLETE;
	first.visible = false;
	first.part = true;
	first.more = true;
	ret = (int)vrc_tx_post(ep, &first, false);
	return ret ? ret : post_read(ep, tx);
}

ssize_t vrc_deliver_post(struct vrc_ep *ep, const struct vrc_tx *tx,
			 bool locked)
{
	struct vrc_tx plain = *tx;
	int ret;

	if (atomic_load(&ep->state) != VRC_EP_CONNECTED)
		return vrc_tx_not_ready(ep);
	/* Nobody will know when it has been delivered. */
	if (!tx->visible && !ep->tx.counted_on) {
		plain.flags &= ~FI_DELIVERY_COMPLETE;
		return vrc_tx_post(ep, &plain, locked);
	}
	if (!(ep->cm.peer.features & VRC_FEATURE_WORD))
		return -FI_EOPNOTSUPP;
	if (locked)
		word_lock_take(&ep->tx_lock);
	ret = post_both(ep, tx);
	if (locked)
		word_lock_drop(&ep->tx_lock);
	return ret;
}
