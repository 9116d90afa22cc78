/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Every posted operation completes exactly once. When an endpoint closes, what
 * the device still holds of it is turned into completions that do not need the
 * endpoint; when a queue pair breaks and the device does not flush it in time,
 * its completions are made from the ledger.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "list.h"
#include "vrc.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_more.h"
#include "vrc_mr.h"
#include "vrc_util.h"
#include "word_lock.h"

static bool wc_is_of(const struct ibv_wc *wc, const struct vrc_ep *ep)
{
	const struct vrc_req *req = (const struct vrc_req *)(uintptr_t)wc->wr_id;

	if (req->op == VRC_OP_SHARED_RECV)
		return ep && ep->srx == req->srx && ep->qp_num == wc->qp_num;
	return req->ep == ep;
}

/* Turns a completion of ep into one that stands alone; false if there is
 * nothing left to tell. */
static bool soften(struct vrc_soft *soft)
{
	struct ibv_wc wc = soft->wc;

	soft->raw = false;
	return vrc_cq_resolve(&wc, &soft->comp);
}

/* Resolves what is already in the soft list. Caller holds cq->lock. */
static void soft_resolve(struct vrc_cq *cq, const struct vrc_ep *ep)
{
	struct list *pos, *tmp;
	struct vrc_soft *soft;

	list_for_each_safe(pos, tmp, &cq->soft) {
		soft = list_entry(pos, struct vrc_soft, node);
		if (!soft->raw || !wc_is_of(&soft->wc, ep) || soften(soft))
			continue;
		list_del(pos);
		free(soft);
	}
}

/* One work completion into the soft list. Caller holds cq->lock. */
static int soft_add(struct vrc_cq *cq, const struct vrc_ep *ep,
		    const struct ibv_wc *wc)
{
	const struct vrc_req *req = (const struct vrc_req *)(uintptr_t)wc->wr_id;
	struct vrc_soft *soft;

	/* Nothing to keep, and no part of a ring's order. */
	if (req->op == VRC_OP_CREDIT && wc->status == IBV_WC_SUCCESS) {
		vrc_credit_written(req);
		return 0;
	}
	soft = malloc(sizeof(*soft));
	if (!soft)
		return -FI_ENOMEM;
	soft->raw = true;
	soft->wc = *wc;
	vrc_cq_count_raw(wc);
	if (wc_is_of(wc, ep) && !soften(soft)) {
		free(soft);
		return 0;
	}
	list_add_tail(&cq->soft, &soft->node);
	return 0;
}

/*
 * Takes everything that the device has, in order. Those of endpoints other than
 * ep are kept as they are: they are at most what cq_reserve has counted, because
 * nothing of them is retired here. When memory runs out, what was polled stays
 * in wc[] and the caller may come again. Returns how many there were. Caller
 * holds cq->lock.
 */
static int take_polled(struct vrc_cq *cq, const struct vrc_ep *ep)
{
	int taken = 0;
	int ret;

	do {
		while (cq->wc_next != cq->wc_end) {
			ret = soft_add(cq, ep, cq->wc_next);
			if (ret)
				return ret;
			cq->wc_next++;
			taken++;
		}
	} while (vrc_cq_poll(cq));
	return taken;
}

int vrc_cq_keep(struct vrc_cq *cq)
{
	return take_polled(cq, NULL);
}

static int take_all(struct vrc_cq *cq, const struct vrc_ep *ep)
{
	int ret;

	word_lock_take(&cq->lock);
	soft_resolve(cq, ep);
	ret = take_polled(cq, ep);
	word_lock_drop(&cq->lock);
	return ret < 0 ? ret : 0;
}

/* Short of memory it takes less, and is called again. */
void vrc_cq_reap(struct vrc_cq *cq)
{
	word_lock_take(&cq->lock);
	(void)take_polled(cq, NULL);
	word_lock_drop(&cq->lock);
}

void vrc_cq_try_reap(struct vrc_cq *cq)
{
	if (!word_lock_try(&cq->lock))
		return;
	(void)take_polled(cq, NULL);
	word_lock_drop(&cq->lock);
}

/* Whether i is a record that is in flight. tail may be past head for a moment:
 * see struct vrc_ring. */
static bool in_flight(const struct vrc_ring *ring, uint32_t i)
{
	return ring->req && (int32_t)(atomic_load(&ring->head) - i) > 0;
}

static bool is_owed(const struct vrc_req *req)
{
	return (req->flags & (VRC_REQ_VISIBLE | VRC_REQ_DONE)) ==
	       VRC_REQ_VISIBLE;
}

/* What the application still waits for. Sent without a completion and not
 * flushed has been carried out, and is nobody's business. */
static bool ring_waits(const struct vrc_ring *ring)
{
	uint32_t i = atomic_load(&ring->tail);

	for (; in_flight(ring, i); i++)
		if (is_owed(&ring->req[i & ring->mask]))
			return true;
	return false;
}

/* Completes what is left of a ring. Caller holds cq->lock. */
static int ring_cancel(struct vrc_cq *cq, struct vrc_ep *ep,
		       struct vrc_ring *ring)
{
	struct vrc_req *req;
	struct vrc_soft *soft;
	uint32_t i;

	for (i = atomic_load(&ring->tail); in_flight(ring, i); i++) {
		req = &ring->req[i & ring->mask];
		if (is_owed(req)) {
			soft = malloc(sizeof(*soft));
			if (!soft)
				return -FI_ENOMEM;
			soft->raw = false;
			soft->comp = (struct vrc_comp){
				.context = req->context,
				.flags = vrc_op_flags[req->op],
				.len = req->len,
				.err = FI_ECANCELED,
				.prov_errno = IBV_WC_WR_FLUSH_ERR,
			};
			list_add_tail(&cq->soft, &soft->node);
		}
		atomic_fetch_add(&ep->errors, 1);
		if (ring->counted_on)
			vrc_cntr_cancel(ring, req, i);
		req->flags = VRC_REQ_CANCELLED;
		if (ring->mrs)
			vrc_local_release(ep, ring, i, i + 1);
		atomic_store(&ring->tail, i + 1);
	}
	return 0;
}

static int wait_flushed(struct vrc_ep *ep)
{
	const struct timespec nap = { .tv_nsec = 50000 };
	uint64_t deadline = atomic_load(&ep->flush_deadline_ms);
	int ret;

	for (;;) {
		ret = take_all(ep->tx_cq, ep);
		if (!ret && ep->rx_cq != ep->tx_cq)
			ret = take_all(ep->rx_cq, ep);
		if (ret || (!ring_waits(&ep->tx) && !ring_waits(&ep->rx)))
			return ret;
		if (vrc_now_ms() >= deadline) {
			vrc_info(EP_CTRL, "ep %p: %s did not flush queue pair "
				 "0x%x within %d ms\n", (void *)ep,
				 ep->domain->dev->name, ep->qp->qp_num,
				 VRC_FLUSH_TIMEOUT_MS);
			return 0;
		}
		nanosleep(&nap, NULL);
	}
}

static int side_finish(struct vrc_ep *ep, struct vrc_cq *cq,
		       struct vrc_ring *ring, struct list *node, bool *settled)
{
	int ret;

	/* The device may still hold completions of the queue pair that is
	 * gone; the ledger they point into is about to go as well. */
	ret = take_all(cq, ep);
	if (ret)
		return ret;
	word_lock_take(&cq->lock);
	ret = ring_cancel(cq, ep, ring);
	if (!ret) {
		list_del(node);
		if (!*settled)
			atomic_fetch_sub(&cq->due_cnt, 1);
		*settled = true;
		if (!list_empty(&cq->soft))
			vrc_cq_wake(cq);
	}
	word_lock_drop(&cq->lock);
	return ret;
}

int vrc_ep_drain(struct vrc_ep *ep)
{
	int ret;

	vrc_qp_error(ep);
	if (ep->qp) {
		ret = wait_flushed(ep);
		if (ret)
			return ret;
		ret = ep->domain->ops->destroy_qp(ep->qp);
		if (ret) {
			vrc_warn(EP_CTRL, "ep %p: queue pair 0x%x cannot be "
				 "destroyed: %s\n", (void *)ep, ep->qp->qp_num,
				 fi_strerror(-vrc_err(ret)));
			return vrc_err(ret);
		}
		ep->qp = NULL;
	}
	ret = side_finish(ep, ep->tx_cq, &ep->tx, &ep->tx_node,
			  &ep->tx_settled);
	if (!ret)
		ret = side_finish(ep, ep->rx_cq, &ep->rx, &ep->rx_node,
				  &ep->rx_settled);
	return ret;
}

static void expire(struct vrc_cq *cq, struct vrc_ep *ep, struct vrc_ring *ring,
		   bool *settled)
{
	uint64_t deadline = atomic_load(&ep->flush_deadline_ms);

	if (!deadline || *settled || vrc_now_ms() < deadline)
		return;
	if (ring_cancel(cq, ep, ring))
		return; /* out of memory: at the next read */
	*settled = true;
	atomic_fetch_sub(&cq->due_cnt, 1);
}

void vrc_cq_attend(struct vrc_cq *cq)
{
	struct list *pos;
	struct vrc_ep *ep;

	list_for_each(pos, &cq->tx_eps) {
		ep = list_entry(pos, struct vrc_ep, tx_node);
		vrc_more_try_flush(ep);
		expire(cq, ep, &ep->tx, &ep->tx_settled);
	}
	list_for_each(pos, &cq->rx_eps) {
		ep = list_entry(pos, struct vrc_ep, rx_node);
		vrc_more_try_flush(ep);
		expire(cq, ep, &ep->rx, &ep->rx_settled);
	}
}
