/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The active endpoint as an object: opening, binding, enabling, options,
 * closing. Its queue pair is in vrc_qp.c, its connection in vrc_cm.c.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "compiler.h"
#include "list.h"
#include "vrc.h"
#include "vrc_alias.h"
#include "vrc_atomic.h"
#include "vrc_cm.h"
#include "vrc_cntr.h"
#include "vrc_compat.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_fabric.h"
#include "vrc_log.h"
#include "vrc_more.h"
#include "vrc_nosys.h"
#include "vrc_post.h"
#include "vrc_srx.h"
#include "vrc_stats.h"
#include "vrc_stx.h"
#include "word_lock.h"

static void refs_drop(struct vrc_ep *ep)
{
	if (ep->tx_cq)
		atomic_fetch_sub(&ep->tx_cq->ref, 1);
	if (ep->rx_cq)
		atomic_fetch_sub(&ep->rx_cq->ref, 1);
	if (ep->own_cq)
		fi_close(&ep->own_cq->fid.fid);
	if (ep->eq)
		atomic_fetch_sub(&ep->eq->ref, 1);
	atomic_fetch_sub(&ep->domain->ref, 1);
}

/* Entries that a side may put into its completion queue: the application's and
 * those of our own. */
static int tx_entries(const struct vrc_ep *ep)
{
	return (int)ep->info->tx_attr->size + VRC_CREDIT_WRITES;
}

static int rx_reserve(struct vrc_ep *ep)
{
	return ep->srx ? vrc_srx_reserve(ep) :
			 vrc_cq_reserve(ep->rx_cq,
					(int)ep->info->rx_attr->size);
}

static void rx_unreserve(struct vrc_ep *ep)
{
	if (ep->srx)
		vrc_srx_unreserve(ep);
	else
		vrc_cq_unreserve(ep->rx_cq, (int)ep->info->rx_attr->size);
}

static int ep_close(struct fid *fid)
{
	struct vrc_ep *ep = container_of(fid, struct vrc_ep, fid.fid);
	int ret;

	if (atomic_load(&ep->aliases))
		return -FI_EBUSY;
	vrc_more_flush(ep);
	vrc_cm_fini(ep);
	if (ep->qp || ep->tx.req) {
		ret = vrc_ep_drain(ep);
		if (ret)
			return ret;
		/* First: its number may be a new queue pair's at once. */
		if (ep->srx)
			vrc_srx_detach(ep);
		vrc_qp_destroy(ep);
		vrc_cq_unreserve(ep->tx_cq, tx_entries(ep));
		rx_unreserve(ep);
		vrc_cntr_disable(ep);
	}
	vrc_cntr_unbind(ep);
	vrc_srx_unbind(ep);
	vrc_stx_unbind(ep);
	refs_drop(ep);
	fi_freeinfo(ep->info);
	free(ep);
	return 0;
}

static int bind_eq(struct vrc_ep *ep, struct vrc_eq *eq)
{
	if (ep->eq) {
		vrc_warn(EP_CTRL, "ep %p: already bound to an event queue\n",
			 (void *)ep);
		return -FI_EINVAL;
	}
	if (eq->fabric != ep->domain->fabric) {
		vrc_warn(EP_CTRL, "ep %p: event queue is of fabric %s, the "
			 "endpoint of %s\n", (void *)ep, eq->fabric->name,
			 ep->domain->fabric->name);
		return -FI_EINVAL;
	}
	ep->eq = eq;
	atomic_fetch_add(&eq->ref, 1);
	return 0;
}

/* What calls without flags ask for. */
static void visible_set(struct vrc_ep *ep)
{
	ep->tx_visible = !ep->tx_selective ||
			 (ep->tx_op_flags & FI_COMPLETION);
	ep->rx_visible = !ep->rx_selective ||
			 (ep->rx_op_flags & FI_COMPLETION);
	vrc_small_flags(ep);
}

static int bind_cq(struct vrc_ep *ep, struct vrc_cq *cq, uint64_t flags)
{
	bool selective = flags & FI_SELECTIVE_COMPLETION;

	if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) ||
	    !(flags & (FI_TRANSMIT | FI_RECV))) {
		vrc_warn(EP_CTRL, "ep %p: completion queue bound with flags 0x%"
			 PRIx64 "; FI_TRANSMIT or FI_RECV is needed, "
			 "FI_SELECTIVE_COMPLETION may be added\n", (void *)ep,
			 flags);
		return -FI_EBADFLAGS;
	}
	if (cq->domain != ep->domain) {
		vrc_warn(EP_CTRL, "ep %p: completion queue of another domain\n",
			 (void *)ep);
		return -FI_EINVAL;
	}
	if (((flags & FI_TRANSMIT) && ep->tx_cq) ||
	    ((flags & FI_RECV) && ep->rx_cq)) {
		vrc_warn(EP_CTRL, "ep %p: already bound to a completion queue\n",
			 (void *)ep);
		return -FI_EINVAL;
	}
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = selective;
		atomic_fetch_add(&cq->ref, 1);
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		ep->rx_selective = selective;
		atomic_fetch_add(&cq->ref, 1);
	}
	visible_set(ep);
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct vrc_ep *ep = container_of(fid, struct vrc_ep, fid.fid);

	if (atomic_load(&ep->state) != VRC_EP_IDLE)
		return -FI_EOPBADSTATE;
	switch (bfid->fclass) {
	case FI_CLASS_EQ:
		return bind_eq(ep, container_of(bfid, struct vrc_eq, fid.fid));
	case FI_CLASS_CQ:
		return bind_cq(ep, container_of(bfid, struct vrc_cq, fid.fid),
			       flags);
	case FI_CLASS_CNTR:
		return vrc_cntr_bind(ep, bfid, flags);
	case FI_CLASS_SRX_CTX:
		return vrc_srx_bind(ep, bfid);
	case FI_CLASS_STX_CTX:
		return vrc_stx_bind(ep, bfid);
	default:
		vrc_warn(EP_CTRL, "ep %p: cannot be bound to a fid of class "
			 "%zu\n", (void *)ep, bfid->fclass);
		return -FI_EINVAL;
	}
}

static void cq_attach(struct vrc_cq *cq, struct list *eps, struct list *node)
{
	word_lock_take(&cq->lock);
	list_add_tail(eps, node);
	word_lock_drop(&cq->lock);
}

/* Completions have to go somewhere, even if they are only counted. */
static int own_cq_open(struct vrc_ep *ep)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_cq *cq;
	int ret;

	if ((ep->tx_cq || !vrc_cntr_tx(ep)) && (ep->rx_cq || !vrc_cntr_rx(ep)))
		return 0;
	if (!ep->own_cq) {
		ret = vrc_cq_open(&ep->domain->fid, &attr, &cq, NULL);
		if (ret)
			return ret;
		ep->own_cq = vrc_cq(cq);
		ep->own_cq->nobody_reads = true;
	}
	if (!ep->tx_cq && vrc_cntr_tx(ep)) {
		ep->tx_cq = ep->own_cq;
		atomic_fetch_add(&ep->own_cq->ref, 1);
	}
	if (!ep->rx_cq && vrc_cntr_rx(ep)) {
		ep->rx_cq = ep->own_cq;
		atomic_fetch_add(&ep->own_cq->ref, 1);
	}
	return 0;
}

static int sides_enable(struct vrc_ep *ep)
{
	int ret;

	ret = vrc_cq_reserve(ep->tx_cq, tx_entries(ep));
	if (ret)
		return ret;
	ret = rx_reserve(ep);
	if (ret)
		goto err_unreserve_tx;
	ret = vrc_cntr_enable(ep);
	if (ret)
		goto err_unreserve_rx;
	ret = vrc_qp_create(ep);
	if (ret)
		goto err_disable_cntr;
	cq_attach(ep->tx_cq, &ep->tx_cq->tx_eps, &ep->tx_node);
	cq_attach(ep->rx_cq, &ep->rx_cq->rx_eps, &ep->rx_node);
	if (ep->srx)
		vrc_srx_attach(ep);
	atomic_store_explicit(&ep->state, VRC_EP_ENABLED, memory_order_release);
	return 0;

err_disable_cntr:
	vrc_cntr_disable(ep);
err_unreserve_rx:
	rx_unreserve(ep);
err_unreserve_tx:
	vrc_cq_unreserve(ep->tx_cq, tx_entries(ep));
	return ret;
}

/* Whether what the info says is shared is there. */
static bool contexts_bound(const struct vrc_ep *ep)
{
	const struct fi_ep_attr *attr = ep->info->ep_attr;
	bool no_srx = attr->rx_ctx_cnt == FI_SHARED_CONTEXT && !ep->srx;
	bool no_stx = attr->tx_ctx_cnt == FI_SHARED_CONTEXT && !ep->stx;

	if (!no_srx && !no_stx)
		return true;
	vrc_warn(EP_CTRL, "ep %p: enabled without a shared %s context, which "
		 "ep_attr->%s_ctx_cnt of FI_SHARED_CONTEXT stands for\n",
		 (void *)ep, no_srx ? "receive" : "transmit",
		 no_srx ? "rx" : "tx");
	return false;
}

static int ep_enable(struct vrc_ep *ep)
{
	int ret;

	if (atomic_load(&ep->state) != VRC_EP_IDLE)
		return -FI_EOPBADSTATE;
	if (!ep->eq) {
		vrc_warn(EP_CTRL, "ep %p: enabled without an event queue\n",
			 (void *)ep);
		return -FI_ENOEQ;
	}
	if (!contexts_bound(ep))
		return -FI_EOPBADSTATE;
	ret = own_cq_open(ep);
	if (ret)
		return ret;
	if (!ep->tx_cq || !ep->rx_cq) {
		vrc_warn(EP_CTRL, "ep %p: enabled without a completion queue "
			 "or counter for %s\n", (void *)ep,
			 ep->tx_cq ? "FI_RECV" : "FI_TRANSMIT");
		return -FI_ENOCQ;
	}
	ret = vrc_cm_enable(ep);
	if (ret)
		return ret;
	return sides_enable(ep);
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct vrc_ep *ep = container_of(fid, struct vrc_ep, fid.fid);
	int ret;

	switch (command) {
	case FI_ENABLE:
		return ep_enable(ep);
	case FI_ALIAS:
		return vrc_ep_alias(ep, arg);
	case FI_GETOPSFLAG:
	case FI_SETOPSFLAG:
		ret = vrc_ep_op_flags(ep, command, arg, &ep->tx_op_flags,
				      &ep->rx_op_flags);
		visible_set(ep);
		return ret;
	default:
		return -FI_ENOSYS;
	}
}

static ssize_t ring_left(const struct vrc_ep *ep, const struct vrc_ring *ring)
{
	if (atomic_load(&ep->state) == VRC_EP_IDLE)
		return -FI_EOPBADSTATE;
	return ring->size - vrc_ring_used(ring);
}

static ssize_t rx_size_left(struct fid_ep *ep)
{
	if (vrc_ep(ep)->srx)
		return vrc_srx_size_left(&vrc_ep(ep)->srx->fid);
	return ring_left(vrc_ep(ep), &vrc_ep(ep)->rx);
}

static ssize_t tx_size_left(struct fid_ep *ep)
{
	return ring_left(vrc_ep(ep), &vrc_ep(ep)->tx);
}

static const struct fi_ops ep_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
	.ops_open = vrc_stats_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct vrc_ep_table ep_ops = {
	.ops = {
		.size = sizeof(struct fi_ops_ep),
		/* A queue pair takes back nothing that was posted. */
		.cancel = vrc_nosys_cancel,
		.getopt = vrc_ep_getopt,
		.setopt = vrc_ep_setopt,
		.tx_ctx = vrc_nosys_tx_ctx,
		.rx_ctx = vrc_nosys_rx_ctx,
		.rx_size_left = rx_size_left,
		.tx_size_left = tx_size_left,
	},
	VRC_LATER,
};

/* RFC 5040, 5.2: an iWARP read has one sink; some NICs have more by tricks. */
static uint8_t max_read_sge(const struct vrc_dev *dev)
{
	int max = dev->attr.max_sge_rd;

	if (max < 1)
		max = dev->is_iwarp ? 1 : VRC_IOV_LIMIT;
	return max < VRC_IOV_LIMIT ? (uint8_t)max : VRC_IOV_LIMIT;
}

int vrc_ep_open(struct fid_domain *domain_fid, struct fi_info *info,
		struct fid_ep **out, void *context)
{
	struct vrc_domain *domain = vrc_domain(domain_fid);
	struct vrc_ep *ep;
	int ret;

	ret = vrc_ep_info_check(domain, info);
	if (ret)
		return ret;
	ep = aligned_alloc(CACHELINE, (sizeof(*ep) + CACHELINE - 1) &
					      ~(size_t)(CACHELINE - 1));
	if (!ep)
		return -FI_ENOMEM;
	*ep = (struct vrc_ep){ 0 };
	ep->info = fi_dupinfo(info);
	if (!ep->info) {
		ret = -FI_ENOMEM;
		goto err_free_ep;
	}
	ep->domain = domain;
	ep->desc_tag = domain->desc_tag;
	ep->has_imm = !domain->dev->is_iwarp;
	ep->local_reg = domain->local_reg;
	ep->empty_sge_cnt = domain->dev->is_iwarp;
	ep->max_read_sge = max_read_sge(domain->dev);
	ep->inject_size = (uint32_t)info->tx_attr->inject_size;
	ep->max_msg_size = info->ep_attr->max_msg_size;
	ep->tx_op_flags = info->tx_attr->op_flags;
	ep->rx_op_flags = info->rx_attr->op_flags;
	list_init(&ep->tx_node);
	list_init(&ep->rx_node);
	list_init(&ep->srx_node);
	ret = vrc_cm_init(ep, info);
	if (ret)
		goto err_free_info;
	word_lock_init(&ep->tx_lock);
	word_lock_init(&ep->rx_lock);
	atomic_fetch_add(&domain->ref, 1);
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = VRC_OPS(&ep_fi_ops);
	ep->fid.ops = VRC_OPS(&ep_ops);
	ep->fid.cm = VRC_OPS(&vrc_cm_ep_ops);
	ep->fid.msg = VRC_OPS(domain->thread_safe ? &vrc_msg_ops_locked :
						    &vrc_msg_ops_unlocked);
	ep->fid.rma = VRC_OPS(domain->thread_safe ? &vrc_rma_ops_locked :
						    &vrc_rma_ops_unlocked);
	ep->fid.tagged = VRC_OPS(&vrc_nosys_tagged);
	ep->fid.atomic = VRC_OPS(!(info->caps & FI_ATOMIC) ?
					 &vrc_nosys_atomic :
				 domain->thread_safe ?
					 &vrc_atomic_ops_locked :
					 &vrc_atomic_ops_unlocked);
	ep->fid.collective = VRC_OPS(&vrc_nosys_collective);
	*out = &ep->fid;
	return 0;

err_free_info:
	fi_freeinfo(ep->info);
err_free_ep:
	free(ep);
	return ret;
}
