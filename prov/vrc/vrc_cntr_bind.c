/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which operations of which endpoint a counter counts, and the completion queues
 * that it has to look at for that.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "word_lock.h"

int vrc_cntr_bind(struct vrc_ep *ep, struct fid *fid, uint64_t flags)
{
	static const uint64_t kinds[VRC_CNTR_CNT] = {
		[VRC_CNTR_SEND] = FI_SEND,
		[VRC_CNTR_RECV] = FI_RECV,
		[VRC_CNTR_READ] = FI_READ,
		[VRC_CNTR_WRITE] = FI_WRITE,
		[VRC_CNTR_REMOTE_READ] = FI_REMOTE_READ,
		[VRC_CNTR_REMOTE_WRITE] = FI_REMOTE_WRITE,
	};
	struct vrc_cntr *cntr = container_of(fid, struct vrc_cntr, fid.fid);
	uint64_t known = 0;
	int i;

	for (i = 0; i < VRC_CNTR_CNT; i++)
		known |= kinds[i];
	if (!flags || flags & ~known) {
		vrc_warn(EP_CTRL, "ep %p: counter bound with flags 0x%" PRIx64
			 "; one or more of FI_SEND, FI_RECV, FI_READ, FI_WRITE, "
			 "FI_REMOTE_READ and FI_REMOTE_WRITE are needed\n",
			 (void *)ep, flags);
		return -FI_EBADFLAGS;
	}
	if (cntr->domain != ep->domain) {
		vrc_warn(EP_CTRL, "ep %p: counter of another domain\n",
			 (void *)ep);
		return -FI_EINVAL;
	}
	for (i = 0; i < VRC_CNTR_CNT; i++)
		if (flags & kinds[i] && ep->cntr[i]) {
			vrc_warn(EP_CTRL, "ep %p: already bound to a counter "
				 "for flag 0x%" PRIx64 "\n", (void *)ep,
				 kinds[i]);
			return -FI_EINVAL;
		}
	for (i = 0; i < VRC_CNTR_CNT; i++)
		if (flags & kinds[i]) {
			ep->cntr[i] = cntr;
			atomic_fetch_add(&cntr->ref, 1);
		}
	return 0;
}

void vrc_cntr_unbind(struct vrc_ep *ep)
{
	for (int i = 0; i < VRC_CNTR_CNT; i++) {
		if (ep->cntr[i])
			atomic_fetch_sub(&ep->cntr[i]->ref, 1);
		ep->cntr[i] = NULL;
	}
}

static struct counted_cq *find(struct vrc_cntr *cntr, const struct vrc_cq *cq)
{
	struct counted_cq *counted;
	struct list *pos;

	list_for_each(pos, &cntr->cqs) {
		counted = list_entry(pos, struct counted_cq, node);
		if (counted->cq == cq)
			return counted;
	}
	return NULL;
}

/* Caller holds cntr->lock. */
static int watch_new(struct vrc_cntr *cntr, struct vrc_cq *cq)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct counted_cq *counted;

	if (!cq->channel && vrc_cntr_has_fd(cntr)) {
		vrc_warn(CNTR, "counter %p has a descriptor to wait on, and the "
			 "completion queue %p of its endpoint was opened with "
			 "FI_WAIT_NONE\n", (void *)cntr, (void *)cq);
		return -FI_EINVAL;
	}
	counted = calloc(1, sizeof(*counted));
	if (!counted)
		return -FI_ENOMEM;
	if (cq->channel && epoll_ctl(cntr->channels_fd, EPOLL_CTL_ADD,
				     cq->channel->fd, &event)) {
		free(counted);
		return vrc_err(errno);
	}
	word_lock_take(&cq->lock);
	cq->counters++;
	word_lock_drop(&cq->lock);
	cntr->can_sleep &= cq->channel != NULL;
	counted->cq = cq;
	counted->refs = 1;
	list_add_tail(&cntr->cqs, &counted->node);
	return 0;
}

static int watch(struct vrc_cntr *cntr, struct vrc_cq *cq)
{
	struct counted_cq *counted;
	int ret = 0;

	if (!cntr)
		return 0;
	lock_take(&cntr->lock);
	counted = find(cntr, cq);
	if (counted)
		counted->refs++;
	else
		ret = watch_new(cntr, cq);
	lock_drop(&cntr->lock);
	return ret;
}

static void unwatch(struct vrc_cntr *cntr, struct vrc_cq *cq)
{
	struct counted_cq *counted;

	if (!cntr)
		return;
	lock_take(&cntr->lock);
	counted = find(cntr, cq);
	if (counted && !--counted->refs) {
		if (cq->channel)
			epoll_ctl(cntr->channels_fd, EPOLL_CTL_DEL,
				  cq->channel->fd, NULL);
		word_lock_take(&cq->lock);
		cq->counters--;
		word_lock_drop(&cq->lock);
		list_del(&counted->node);
		free(counted);
	}
	lock_drop(&cntr->lock);
}

static struct vrc_cq *cq_of(const struct vrc_ep *ep, int kind)
{
	return kind == VRC_CNTR_RECV || kind == VRC_CNTR_REMOTE_READ ||
			       kind == VRC_CNTR_REMOTE_WRITE ?
		       ep->rx_cq :
		       ep->tx_cq;
}

int vrc_cntr_enable(struct vrc_ep *ep)
{
	int i, ret;

	for (i = 0; i < VRC_CNTR_CNT; i++) {
		ret = watch(ep->cntr[i], cq_of(ep, i));
		if (ret)
			goto err_unwatch;
	}
	return 0;

err_unwatch:
	while (i--)
		unwatch(ep->cntr[i], cq_of(ep, i));
	return ret;
}

void vrc_cntr_disable(struct vrc_ep *ep)
{
	for (int i = 0; i < VRC_CNTR_CNT; i++)
		unwatch(ep->cntr[i], cq_of(ep, i));
}

bool vrc_cntr_tx(const struct vrc_ep *ep)
{
	return ep->cntr[VRC_CNTR_SEND] || ep->cntr[VRC_CNTR_READ] ||
	       ep->cntr[VRC_CNTR_WRITE];
}

bool vrc_cntr_rx(const struct vrc_ep *ep)
{
	return ep->cntr[VRC_CNTR_RECV] || ep->cntr[VRC_CNTR_REMOTE_WRITE];
}
