/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FI_MORE: work requests that the application says will be followed by others
 * are held, and handed to the device together: one doorbell, and one system call
 * on rxe and siw.
 *
 * The next operation without the flag brings them along. So that nothing waits
 * for one that never comes, so does a full chain or ring, a reader of the
 * completion queue that finds nothing there, and the end of the endpoint.
 *
 * What is held has a record, and the application was told that it is posted. If
 * the device then refuses it, the queue pair is as good as broken: it is put to
 * ERR, and what the device does not flush is completed from the ledger.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_more.h"
#include "word_lock.h"

enum { CHAIN_MAX = 16 };

struct vrc_more {
	/* After tx_lock and rx_lock; guards the chains. Readers of completion
	 * queues, who hold cq->lock, only try to get it. Taken at every
	 * threading level: who reads need not be who posts. */
	struct word_lock lock;
	unsigned int send_cnt;
	unsigned int recv_cnt;
	struct ibv_send_wr send[CHAIN_MAX];
	struct ibv_sge send_sge[CHAIN_MAX][VRC_IOV_LIMIT];
	struct ibv_recv_wr recv[CHAIN_MAX];
	struct ibv_sge recv_sge[CHAIN_MAX][VRC_IOV_LIMIT];
	uint8_t inlined[]; /* data of sends, ep->inline_size each */
};

int vrc_more_open(struct vrc_ep *ep)
{
	ep->more = malloc(sizeof(*ep->more) +
			  (size_t)CHAIN_MAX * ep->inline_size);
	if (!ep->more)
		return -FI_ENOMEM;
	ep->more->send_cnt = 0;
	ep->more->recv_cnt = 0;
	word_lock_init(&ep->more->lock);
	return 0;
}

void vrc_more_close(struct vrc_ep *ep)
{
	if (!ep->more)
		return;
	free(ep->more);
	ep->more = NULL;
}

static void refused(struct vrc_ep *ep, int err)
{
	vrc_warn(EP_DATA, "ep %p: operations that were posted with FI_MORE are "
		 "refused: %s\n", (void *)ep,
		 fi_strerror(-vrc_err(err < 0 ? errno : err)));
	vrc_qp_error(ep);
	vrc_cm_broken(ep);
}

/* ---- sends ---- */

/* The device would take these data when it is handed the work request, so that
 * they may be the caller's again (FI_INJECT). The number of pieces. */
static int hold_inlined(struct vrc_ep *ep, unsigned int i,
			const struct ibv_send_wr *wr)
{
	struct ibv_sge *sge = ep->more->send_sge[i];
	uint8_t *to = &ep->more->inlined[(size_t)i * ep->inline_size];

	sge->addr = (uintptr_t)to;
	for (int k = 0; k < wr->num_sge; k++) {
		memcpy(to, (void *)(uintptr_t)wr->sg_list[k].addr,
		       wr->sg_list[k].length);
		to += wr->sg_list[k].length;
	}
	sge->length = (uint32_t)((uintptr_t)to - sge->addr);
	return wr->num_sge ? 1 : 0;
}

static void hold_send(struct vrc_ep *ep, const struct ibv_send_wr *wr)
{
	struct vrc_more *more = ep->more;
	unsigned int i = more->send_cnt++;
	struct ibv_send_wr *held = &more->send[i];

	*held = *wr;
	held->sg_list = more->send_sge[i];
	if (wr->send_flags & IBV_SEND_INLINE)
		held->num_sge = hold_inlined(ep, i, wr);
	else
		memcpy(held->sg_list, wr->sg_list,
		       wr->num_sge * sizeof(*wr->sg_list));
	if (i) {
		more->send[i - 1].next = held;
		return;
	}
	atomic_fetch_add(&ep->tx_cq->due_cnt, 1);
	atomic_fetch_or(&ep->gate, VRC_GATE_MORE);
}

/* All that is held and then wr, which may be NULL: 0, or the error that wr got. */
static int post_sends(struct vrc_ep *ep, struct ibv_send_wr *wr)
{
	struct vrc_more *more = ep->more;
	struct ibv_send_wr *first = wr;
	struct ibv_send_wr *bad = NULL;
	int ret;

	if (more->send_cnt) {
		more->send[more->send_cnt - 1].next = wr;
		first = more->send;
	}
	if (!first)
		return 0;
	ret = ibv_post_send(ep->qp, first, &bad);
	if (!more->send_cnt)
		return ret;
	more->send_cnt = 0;
	/* Last: who sees the gate open may post past us. */
	atomic_fetch_and(&ep->gate, ~(unsigned int)VRC_GATE_MORE);
	atomic_fetch_sub(&ep->tx_cq->due_cnt, 1);
	if (!ret || (wr && bad == wr))
		return ret;
	refused(ep, ret);
	return wr ? ESHUTDOWN : 0;
}

int vrc_more_send(struct vrc_ep *ep, struct ibv_send_wr *wr, bool hold)
{
	struct vrc_more *more = ep->more;
	int ret = 0;

	word_lock_take(&more->lock);
	if (hold && more->send_cnt < CHAIN_MAX - 1)
		hold_send(ep, wr);
	else
		ret = post_sends(ep, wr);
	word_lock_drop(&more->lock);
	return ret;
}

/* ---- receives ---- */

static void hold_recv(struct vrc_ep *ep, const struct ibv_recv_wr *wr)
{
	struct vrc_more *more = ep->more;
	unsigned int i = more->recv_cnt++;
	struct ibv_recv_wr *held = &more->recv[i];

	*held = *wr;
	held->sg_list = more->recv_sge[i];
	memcpy(held->sg_list, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
	if (i) {
		more->recv[i - 1].next = held;
		return;
	}
	atomic_fetch_add(&ep->rx_cq->due_cnt, 1);
	atomic_fetch_or(&ep->rx_gate, VRC_RX_GATE_MORE);
}

/* As post_sends; *cnt is how many the device has now that it had not. */
static int post_recvs(struct vrc_ep *ep, struct ibv_recv_wr *wr,
		      unsigned int *cnt)
{
	struct vrc_more *more = ep->more;
	struct ibv_recv_wr *first = wr;
	struct ibv_recv_wr *bad = NULL;
	int ret;

	*cnt = more->recv_cnt + (wr ? 1 : 0);
	if (more->recv_cnt) {
		more->recv[more->recv_cnt - 1].next = wr;
		first = more->recv;
	}
	if (!first)
		return 0;
	ret = ibv_post_recv(ep->qp, first, &bad);
	if (ret)
		*cnt = wr && bad == wr ? *cnt - 1 : 0;
	if (!more->recv_cnt)
		return ret;
	more->recv_cnt = 0;
	atomic_fetch_and(&ep->rx_gate, ~(unsigned int)VRC_RX_GATE_MORE);
	atomic_fetch_sub(&ep->rx_cq->due_cnt, 1);
	if (!ret || (wr && bad == wr))
		return ret;
	refused(ep, ret);
	return wr ? ESHUTDOWN : 0;
}

int vrc_more_recv(struct vrc_ep *ep, struct ibv_recv_wr *wr, bool hold,
		  unsigned int *cnt)
{
	struct vrc_more *more = ep->more;
	int ret = 0;

	*cnt = 0;
	word_lock_take(&more->lock);
	if (hold && more->recv_cnt < CHAIN_MAX - 1)
		hold_recv(ep, wr);
	else
		ret = post_recvs(ep, wr, cnt);
	word_lock_drop(&more->lock);
	return ret;
}

/* ---- what nothing follows ---- */

void vrc_more_flush(struct vrc_ep *ep)
{
	unsigned int cnt;

	if (!ep->more)
		return;
	word_lock_take(&ep->more->lock);
	post_sends(ep, NULL);
	post_recvs(ep, NULL, &cnt);
	word_lock_drop(&ep->more->lock);
	vrc_credit_add(ep, cnt);
}

void vrc_more_try_flush(struct vrc_ep *ep)
{
	unsigned int held = (atomic_load(&ep->gate) & VRC_GATE_MORE) |
			    (atomic_load(&ep->rx_gate) & VRC_RX_GATE_MORE);
	unsigned int cnt;

	if (!held || !word_lock_try(&ep->more->lock))
		return;
	post_sends(ep, NULL);
	post_recvs(ep, NULL, &cnt);
	word_lock_drop(&ep->more->lock);
	vrc_credit_add(ep, cnt);
}
