/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shared receive contexts as objects, and posting to them. What becomes of a
 * receive that a message has come to is in vrc_cq_read.c.
 *
 * An endpoint that breaks or closes takes none of the receives with it: they
 * wait for the other endpoints' messages. When the context is closed, and that is
 * when no endpoint is bound to it any more, they are dropped.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cntr.h"
#include "vrc_compat.h"
#include "vrc_cq.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_mr.h"
#include "vrc_nosys.h"
#include "vrc_params.h"
#include "vrc_post.h"
#include "vrc_srx.h"
#include "word_lock.h"

/* A completion queue in which the context's receives may end. */
struct srx_cq {
	struct list node;
	struct vrc_cq *cq;
	int refs; /* endpoints */
};

/* ---- posting ---- */

/* Caller holds the lock if there is one. */
static struct vrc_req *next_free(struct vrc_srx *srx)
{
	if (unlikely(!srx->free))
		srx->free = atomic_exchange_explicit(&srx->freed, NULL,
						     memory_order_acquire);
	return srx->free;
}

static int fill_sge(struct vrc_srx *srx, const struct vrc_req *req,
		    struct ibv_sge *sge, const struct iovec *iov, void **desc,
		    size_t cnt)
{
	int n = vrc_sge_fill_tag(srx->desc_tag, sge, iov, desc, cnt,
				 srx->local_reg ? VRC_DESC_NONE :
						  VRC_DESC_RECV);

	if (unlikely(srx->local_reg && n > 0))
		n = vrc_local_reg(srx->domain,
				  &srx->mrs[(size_t)req->slot * VRC_IOV_LIMIT],
				  n, vrc_mr_access(srx->domain, FI_RECV), sge);
	/* No piece at all is refused by siw. */
	if (unlikely(!n)) {
		sge[0] = (struct ibv_sge){ 0 };
		n = srx->empty_sge_cnt;
	}
	return n;
}

/* Records that are in no use. Caller holds the lock if there is one. */
static size_t idle_cnt(const struct vrc_srx *srx)
{
	const struct vrc_req *req;
	size_t cnt = 0;

	for (req = srx->free; req; req = req->context)
		cnt++;
	/* Readers add in front only; what we hold the beginning of stays. */
	req = atomic_load_explicit(&srx->freed, memory_order_acquire);
	for (; req; req = req->context)
		cnt++;
	return cnt;
}

static __attribute__((noinline)) int refused(struct vrc_srx *srx,
					     struct vrc_req *req, int err)
{
	/* Some drivers return -1 and set errno, which the next call may change. */
	if (err < 0)
		err = errno;
	if (srx->mrs)
		vrc_local_drop(srx->domain,
			       &srx->mrs[(size_t)req->slot * VRC_IOV_LIMIT]);
	return err == ENOMEM && idle_cnt(srx) < srx->size ? -FI_EAGAIN :
							    vrc_err(err);
}

static ssize_t post(struct vrc_srx *srx, const struct iovec *iov, void **desc,
		    size_t cnt, void *context, uint64_t flags)
{
	struct ibv_sge sge[VRC_IOV_LIMIT];
	struct ibv_recv_wr wr, *bad;
	struct vrc_req *req, *next;
	size_t len;
	int ret;

	if (unlikely(cnt > srx->iov_limit))
		return -FI_EINVAL;
	len = vrc_iov_len(iov, cnt);
	if (unlikely(len > srx->max_msg_size))
		return -FI_EMSGSIZE;
	if (srx->locked)
		word_lock_take(&srx->lock);
	req = next_free(srx);
	if (unlikely(!req)) {
		ret = -FI_EAGAIN;
		goto out;
	}
	ret = fill_sge(srx, req, sge, iov, desc, cnt);
	if (unlikely(ret < 0))
		goto out;
	wr.wr_id = (uintptr_t)req;
	wr.next = NULL;
	wr.sg_list = sge;
	wr.num_sge = ret;
	next = req->context;
	req->context = context;
	req->len = (uint32_t)len;
	req->flags = VRC_REQ_SPECIAL |
		     ((flags & FI_COMPLETION) ? VRC_REQ_VISIBLE : 0);
	ret = ibv_post_srq_recv(srx->srq, &wr, &bad);
	if (likely(!ret)) {
		srx->free = next;
	} else {
		req->context = next;
		ret = refused(srx, req, ret);
	}
out:
	if (srx->locked)
		word_lock_drop(&srx->lock);
	return ret;
}

static ssize_t srx_recv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src_addr, void *context)
{
	const struct iovec iov = { buf, len };

	return post(vrc_srx(fid), &iov, &desc, 1, context,
		    vrc_srx(fid)->op_flags);
}

static ssize_t srx_recvv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t cnt, fi_addr_t src_addr,
			 void *context)
{
	return post(vrc_srx(fid), iov, desc, cnt, context,
		    vrc_srx(fid)->op_flags);
}

static ssize_t srx_recvmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	if (unlikely(flags & ~VRC_RX_FLAGS))
		return -FI_EBADFLAGS;
	return post(vrc_srx(fid), msg->msg_iov, msg->desc, msg->iov_count,
		    msg->context, flags);
}

/* ---- endpoints ---- */

int vrc_srx_bind(struct vrc_ep *ep, struct fid *fid)
{
	struct vrc_srx *srx = container_of(fid, struct vrc_srx, fid.fid);

	if (ep->srx) {
		vrc_warn(EP_CTRL, "ep %p: already bound to a shared receive "
			 "context\n", (void *)ep);
		return -FI_EINVAL;
	}
	if (srx->domain != ep->domain) {
		vrc_warn(EP_CTRL, "ep %p: shared receive context of another "
			 "domain\n", (void *)ep);
		return -FI_EINVAL;
	}
	ep->srx = srx;
	ep->fid.msg = VRC_OPS(ep->domain->thread_safe ?
				      &vrc_msg_ops_locked_srx :
				      &vrc_msg_ops_unlocked_srx);
	atomic_fetch_add(&srx->ref, 1);
	return 0;
}

void vrc_srx_unbind(struct vrc_ep *ep)
{
	if (ep->srx)
		atomic_fetch_sub(&ep->srx->ref, 1);
	ep->srx = NULL;
}

struct ibv_srq *vrc_srx_srq(const struct vrc_ep *ep)
{
	return ep->srx ? ep->srx->srq : NULL;
}

static struct srx_cq *find_cq(struct vrc_srx *srx, const struct vrc_cq *cq)
{
	struct srx_cq *used;
	struct list *pos;

	list_for_each(pos, &srx->cqs) {
		used = list_entry(pos, struct srx_cq, node);
		if (used->cq == cq)
			return used;
	}
	return NULL;
}

/* However many endpoints share it: all the receives there are, once. Caller
 * holds bind_lock. */
static int cq_get(struct vrc_srx *srx, struct vrc_cq *cq)
{
	struct srx_cq *used = find_cq(srx, cq);
	int ret;

	if (used) {
		used->refs++;
		return 0;
	}
	used = calloc(1, sizeof(*used));
	if (!used)
		return -FI_ENOMEM;
	ret = vrc_cq_reserve(cq, (int)srx->size);
	if (ret) {
		free(used);
		return ret;
	}
	used->cq = cq;
	used->refs = 1;
	list_add_tail(&srx->cqs, &used->node);
	return 0;
}

int vrc_srx_reserve(struct vrc_ep *ep)
{
	struct vrc_srx *srx = ep->srx;
	int ret;

	lock_take(&srx->bind_lock);
	ret = cq_get(srx, ep->rx_cq);
	lock_drop(&srx->bind_lock);
	return ret;
}

void vrc_srx_unreserve(struct vrc_ep *ep)
{
	struct vrc_srx *srx = ep->srx;
	struct srx_cq *used;

	lock_take(&srx->bind_lock);
	used = find_cq(srx, ep->rx_cq);
	if (!--used->refs) {
		vrc_cq_unreserve(used->cq, (int)srx->size);
		list_del(&used->node);
		free(used);
	}
	lock_drop(&srx->bind_lock);
}

void vrc_srx_attach(struct vrc_ep *ep)
{
	struct vrc_srx *srx = ep->srx;

	lock_take(&srx->eps_lock);
	list_add_tail(&srx->eps, &ep->srx_node);
	lock_drop(&srx->eps_lock);
	if (ep->rx_selective || vrc_cntr_rx(ep))
		atomic_store(&srx->by_ep, true);
}

void vrc_srx_detach(struct vrc_ep *ep)
{
	lock_take(&ep->srx->eps_lock);
	list_del(&ep->srx_node);
	lock_drop(&ep->srx->eps_lock);
}

struct vrc_ep *vrc_srx_ep(struct vrc_srx *srx, uint32_t qp_num)
{
	struct vrc_ep *ep, *found = NULL;
	struct list *pos;

	lock_take(&srx->eps_lock);
	list_for_each(pos, &srx->eps) {
		ep = list_entry(pos, struct vrc_ep, srx_node);
		if (ep->qp_num != qp_num)
			continue;
		found = ep;
		break;
	}
	lock_drop(&srx->eps_lock);
	return found;
}

/* ---- the object ---- */

static int srx_close(struct fid *fid)
{
	struct vrc_srx *srx = container_of(fid, struct vrc_srx, fid.fid);
	struct vrc_domain *domain = srx->domain;
	int ret;

	if (atomic_load(&srx->ref))
		return -FI_EBUSY;
	ret = domain->ops->destroy_srq(srx->srq);
	if (ret) {
		vrc_warn(EP_CTRL, "srx %p: cannot be destroyed: %s\n",
			 (void *)srx, fi_strerror(-vrc_err(ret)));
		return vrc_err(ret);
	}
	for (uint32_t i = 0; srx->mrs && i < srx->size; i++)
		vrc_local_drop(domain, &srx->mrs[(size_t)i * VRC_IOV_LIMIT]);
	free(srx->mrs);
	free(srx->req);
	lock_fini(&srx->bind_lock);
	lock_fini(&srx->eps_lock);
	atomic_fetch_sub(&domain->ref, 1);
	free(srx);
	return 0;
}

static int srx_control(struct fid *fid, int command, void *arg)
{
	/* It can be posted to from the beginning. */
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

ssize_t vrc_srx_size_left(struct fid_ep *fid)
{
	struct vrc_srx *srx = vrc_srx(fid);
	ssize_t left;

	word_lock_take(&srx->lock);
	left = (ssize_t)idle_cnt(srx);
	word_lock_drop(&srx->lock);
	return left;
}

static const struct fi_ops srx_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = srx_close,
	.bind = vrc_nosys_bind,
	.control = srx_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct vrc_ep_table srx_ops = {
	.ops = {
		.size = sizeof(struct fi_ops_ep),
		.cancel = vrc_nosys_cancel,
		.getopt = vrc_nosys_getopt,
		.setopt = vrc_nosys_setopt,
		.tx_ctx = vrc_nosys_tx_ctx,
		.rx_ctx = vrc_nosys_rx_ctx,
		.rx_size_left = vrc_srx_size_left,
		.tx_size_left = vrc_nosys_size_left,
	},
	VRC_LATER,
};

static const struct fi_ops_msg srx_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = srx_recv,
	.recvv = srx_recvv,
	.recvmsg = srx_recvmsg,
	.send = vrc_nosys_send,
	.sendv = vrc_nosys_sendv,
	.sendmsg = vrc_nosys_msg,
	.inject = vrc_nosys_inject,
	.senddata = vrc_nosys_senddata,
	.injectdata = vrc_nosys_injectdata,
};

static int attr_check(const struct vrc_domain *domain,
		      const struct fi_rx_attr *attr)
{
	const struct ibv_device_attr *dev = &domain->dev->attr;

	if (!vrc_srx_possible(domain->dev, domain->rm_disabled)) {
		vrc_warn(EP_CTRL, "fi_srx_context: %s\n",
			 vrc_srx_whynot(domain->dev));
		return -FI_EOPNOTSUPP;
	}
	if (attr->size > (size_t)dev->max_srq_wr ||
	    attr->iov_limit > vrc_srx_iov_limit(domain->dev)) {
		vrc_warn(EP_CTRL, "fi_srx_context: size %zu, iov_limit %zu; %s "
			 "has at most %d and %zu\n", attr->size,
			 attr->iov_limit, domain->dev->name, dev->max_srq_wr,
			 vrc_srx_iov_limit(domain->dev));
		return -FI_EINVAL;
	}
	if (attr->op_flags & ~(uint64_t)VRC_RX_OP_FLAGS) {
		vrc_warn(EP_CTRL, "fi_srx_context: op_flags 0x%" PRIx64
			 "; FI_COMPLETION is possible\n", attr->op_flags);
		return -FI_EINVAL;
	}
	return 0;
}

static int records_make(struct vrc_srx *srx)
{
	srx->req = calloc(srx->size, sizeof(*srx->req));
	if (!srx->req)
		return -FI_ENOMEM;
	if (srx->local_reg) {
		srx->mrs = calloc((size_t)srx->size * VRC_IOV_LIMIT,
				  sizeof(struct ibv_mr *));
		if (!srx->mrs)
			return -FI_ENOMEM;
	}
	for (uint32_t i = srx->size; i--;) {
		srx->req[i].srx = srx;
		srx->req[i].slot = i;
		srx->req[i].op = VRC_OP_SHARED_RECV;
		srx->req[i].context = srx->free;
		srx->free = &srx->req[i];
	}
	return 0;
}

static int srq_make(struct vrc_srx *srx)
{
	struct vrc_domain *domain = srx->domain;
	struct ibv_srq_init_attr init = {
		.srq_context = srx,
		.attr = {
			.max_wr = srx->size,
			.max_sge = (uint32_t)srx->iov_limit,
		},
	};
	int ret;

	srx->srq = domain->ops->create_srq(domain->pd, &init);
	if (srx->srq)
		return 0;
	ret = vrc_err(errno);
	vrc_warn(EP_CTRL, "fi_srx_context: %u receives on %s cannot be had: "
		 "%s; the device has room for %d shared queues\n", srx->size,
		 domain->dev->name, fi_strerror(-ret),
		 domain->dev->attr.max_srq);
	return ret;
}

static void ops_set(struct vrc_srx *srx, void *context)
{
	srx->fid.fid.fclass = FI_CLASS_SRX_CTX;
	srx->fid.fid.context = context;
	srx->fid.fid.ops = VRC_OPS(&srx_fi_ops);
	srx->fid.ops = VRC_OPS(&srx_ops);
	srx->fid.cm = VRC_OPS(&vrc_nosys_cm);
	srx->fid.msg = VRC_OPS(&srx_msg_ops);
	srx->fid.rma = VRC_OPS(&vrc_nosys_rma);
	srx->fid.tagged = VRC_OPS(&vrc_nosys_tagged);
	srx->fid.atomic = VRC_OPS(&vrc_nosys_atomic);
	srx->fid.collective = VRC_OPS(&vrc_nosys_collective);
}

int vrc_srx_open(struct fid_domain *domain_fid, struct fi_rx_attr *attr,
		 struct fid_ep **out, void *context)
{
	static const struct fi_rx_attr plain;
	struct vrc_domain *domain = vrc_domain(domain_fid);
	const struct fi_rx_attr *asked = attr ? attr : &plain;
	size_t max = (size_t)domain->dev->attr.max_srq_wr;
	struct vrc_srx *srx;
	int ret;

	ret = attr_check(domain, asked);
	if (ret)
		return ret;
	srx = aligned_alloc(CACHELINE, sizeof(*srx));
	if (!srx)
		return -FI_ENOMEM;
	*srx = (struct vrc_srx){
		.domain = domain,
		.locked = domain->threading != FI_THREAD_DOMAIN,
		.local_reg = domain->local_reg,
		.empty_sge_cnt = domain->dev->is_iwarp,
		.desc_tag = domain->desc_tag,
		.iov_limit = asked->iov_limit ?
				     asked->iov_limit :
				     vrc_srx_iov_limit(domain->dev),
		.max_msg_size = vrc_max_msg_size(domain->dev),
		.op_flags = asked->op_flags,
		.size = (uint32_t)(asked->size ?
					   asked->size :
					   min_size(vrc_params.rx_size, max)),
	};
	list_init(&srx->eps);
	list_init(&srx->cqs);
	ret = records_make(srx);
	if (!ret)
		ret = srq_make(srx);
	if (ret)
		goto err_free_records;
	word_lock_init(&srx->lock);
	lock_init(&srx->bind_lock);
	lock_init(&srx->eps_lock);
	atomic_fetch_add(&domain->ref, 1);
	ops_set(srx, context);
	*out = &srx->fid;
	return 0;

err_free_records:
	free(srx->mrs);
	free(srx->req);
	free(srx);
	return ret;
}
