/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connection management of active endpoints: the calls. They start something
 * and return; what comes of it is in vrc_cm_event.c. An endpoint's id is made
 * or adopted when it is enabled and stays until it is closed; the queue pair is
 * never tied to it, but brought up by vrc_qp.c.
 */
#include <stdlib.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_cmdata.h"
#include "vrc_credit.h"
#include "vrc_deliver.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_log.h"
#include "vrc_pep.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

static enum vrc_ep_state ep_state(const struct vrc_ep *ep)
{
	/* Written under eq->lock; without it, this is a mere first look. */
	return (enum vrc_ep_state)atomic_load_explicit(&ep->state,
						       memory_order_relaxed);
}

static void ep_set_state(struct vrc_ep *ep, enum vrc_ep_state state)
{
	/* Release: pairs with the data path's acquire. */
	atomic_store_explicit(&ep->state, state, memory_order_release);
}

static struct vrc_ep *ep_of(const struct fid *fid)
{
	return container_of(fid, struct vrc_ep, fid.fid);
}

static void lock_eq(struct vrc_ep *ep)
{
	if (ep->eq)
		lock_take(&ep->eq->lock);
}

static void drop_eq(struct vrc_ep *ep)
{
	if (ep->eq)
		lock_drop(&ep->eq->lock);
}

static int take_connreq(struct vrc_ep *ep, struct vrc_connreq *req)
{
	struct vrc_eq *eq = req->eq;
	int ret = 0;

	lock_take(&eq->lock);
	if (list_empty(&req->node)) {
		vrc_warn(EP_CTRL, "fi_endpoint: the connection request has "
			 "an endpoint already\n");
		ret = -FI_EBUSY;
		goto out;
	}
	list_del(&req->node);
	/* The request is handled under this queue's lock until enabled. */
	atomic_fetch_add(&eq->ref, 1);
	ep->cm.connreq = req;
	ep->cm.passive = true;
	ep->cm.peer = req->peer;
	vrc_sockaddr_set(&ep->cm.src, &req->id->route.addr.src_addr);
	vrc_sockaddr_set(&ep->cm.dst, &req->id->route.addr.dst_addr);
out:
	lock_drop(&eq->lock);
	return ret;
}

static int take_handle(struct vrc_ep *ep, struct fid *handle)
{
	int ret;

	switch (handle->fclass) {
	case FI_CLASS_CONNREQ:
		return take_connreq(ep, vrc_connreq(handle));
	case FI_CLASS_PEP:
		ret = vrc_pep_take_id(container_of(handle, struct vrc_pep,
						   fid.fid),
				      ep->domain->ops, &ep->cm.src,
				      &ep->cm.id);
		if (ep->cm.id)
			ep->cm.id->context = &ep->fid.fid;
		return ret;
	default:
		vrc_warn(EP_CTRL, "fi_endpoint: info->handle is neither a "
			 "connection request nor a passive endpoint\n");
		return -FI_EINVAL;
	}
}

int vrc_cm_init(struct vrc_ep *ep, const struct fi_info *info)
{
	list_init(&ep->cm.linger_node);
	if (info->src_addr)
		vrc_sockaddr_set(&ep->cm.src, info->src_addr);
	if (info->dest_addr)
		vrc_sockaddr_set(&ep->cm.dst, info->dest_addr);
	return info->handle ? take_handle(ep, info->handle) : 0;
}

/* The request's id becomes the endpoint's, on the endpoint's event queue. */
static int adopt_connreq(struct vrc_ep *ep)
{
	struct vrc_connreq *req = ep->cm.connreq;
	struct vrc_eq *eq = req->eq;
	int ret = 0;

	/* If it is another queue, its channel must exist before eq is locked:
	 * two queues' locks are never held together. */
	if (!vrc_eq_channel(ep->eq, req->ops))
		return vrc_err(errno);
	lock_take(&eq->lock);
	/* The peer may have given up; fi_accept will say so. */
	ep->cm.dead = req->dead;
	ep->cm.param.responder_resources = req->responder_resources;
	ep->cm.param.initiator_depth = req->initiator_depth;
	ep->cm.id = req->id;
	ep->cm.id->context = &ep->fid.fid;
	if (ep->eq != eq)
		ret = vrc_cm_id_migrate(req->ops, req->id, ep->eq);
	if (ret) {
		ep->cm.id->context = &req->fid;
		ep->cm.id = NULL;
		goto out;
	}
	ep->cm.connreq = NULL;
	free(req);
	atomic_fetch_sub(&eq->ref, 1);
out:
	lock_drop(&eq->lock);
	return ret;
}

/* A new id, bound to the address that was asked for or one that suits. */
static int make_id(struct vrc_ep *ep, struct rdma_event_channel *channel)
{
	union vrc_sockaddr *src = &ep->cm.src;
	uint16_t port = vrc_sockaddr_port(&src->sa);
	const struct vrc_addr *addr;
	char str[VRC_ADDRSTR];
	int ret;

	if (!src->sa.sa_family || vrc_sockaddr_is_any(&src->sa)) {
		addr = vrc_cm_pick_source(ep->domain->dev, &ep->cm.dst.sa);
		if (!addr) {
			vrc_warn(EP_CTRL, "ep: device %s has no address to "
				 "connect from\n", ep->domain->dev->name);
			return -FI_EADDRNOTAVAIL;
		}
		*src = addr->addr;
		vrc_sockaddr_set_port(&src->sa, port);
	}
	ret = vrc_cm_id_bind(ep->domain->ops, channel, &ep->fid.fid, src,
			     false, &ep->cm.id);
	if (ret)
		vrc_warn(EP_CTRL, "ep: source address %s on device %s: %s\n",
			 vrc_sockaddr_str(&src->sa, str),
			 ep->domain->dev->name, fi_strerror(-ret));
	return ret;
}

static int check_device(const struct vrc_ep *ep)
{
	const struct rdma_cm_id *id = ep->cm.connreq ? ep->cm.connreq->id :
						       ep->cm.id;
	char str[VRC_ADDRSTR];

	if (vrc_cm_id_fits(id, ep->domain))
		return 0;
	vrc_warn(EP_CTRL, "ep: address %s is on device %s, the domain on %s\n",
		 vrc_sockaddr_str(&ep->cm.src.sa, str),
		 ep->domain->ops->get_device_name(id->verbs->device),
		 ep->domain->dev->name);
	return -FI_EINVAL;
}

static uint8_t find_port_num(const struct vrc_ep *ep)
{
	const struct vrc_addr *addr;

	if (ep->cm.id->verbs)
		return ep->cm.id->port_num;
	addr = vrc_dev_find_addr(ep->domain->dev, &ep->cm.src.sa);
	return addr ? addr->port_num : 1;
}

int vrc_cm_enable(struct vrc_ep *ep)
{
	const struct vrc_verbs_ops *ops = ep->domain->ops;
	struct rdma_event_channel *channel;
	int ret;

	if (!ep->eq) {
		vrc_warn(EP_CTRL, "ep: enabled without an event queue\n");
		return -FI_ENOEQ;
	}
	if (!ep->cm.id && !ep->cm.connreq) {
		channel = vrc_eq_channel(ep->eq, ops);
		if (!channel)
			return vrc_err(errno);
		ret = make_id(ep, channel);
		if (ret)
			return ret;
	}
	ret = check_device(ep);
	if (ret)
		return ret;
	if (ep->cm.connreq)
		ret = adopt_connreq(ep);
	else
		ret = vrc_cm_id_migrate(ops, ep->cm.id, ep->eq);
	if (!ret)
		ep->port_num = find_port_num(ep);
	return ret;
}

static void free_connreq(struct vrc_ep *ep)
{
	struct vrc_connreq *req = ep->cm.connreq;
	struct vrc_eq *eq = req->eq;

	lock_take(&eq->lock);
	vrc_connreq_free(req);
	lock_drop(&eq->lock);
	ep->cm.connreq = NULL;
	atomic_fetch_sub(&eq->ref, 1);
}

void vrc_cm_fini(struct vrc_ep *ep)
{
	const struct vrc_verbs_ops *ops = ep->domain->ops;
	struct rdma_cm_id *id;
	enum vrc_ep_state state;

	if (ep->cm.connreq)
		free_connreq(ep);
	lock_eq(ep);
	id = ep->cm.id;
	state = ep_state(ep);
	ep_set_state(ep, VRC_EP_SHUTDOWN);
	if (id) {
		/* So that the peer need not wait for a timeout. */
		if (state == VRC_EP_CONNECTED)
			ops->disconnect(id);
		else if (ep->cm.passive && !ep->cm.dead &&
			 state < VRC_EP_ACCEPTING)
			vrc_cm_id_reject(ops, id, NULL, 0);
		ops->destroy_id(id);
		ep->cm.id = NULL;
	}
	if (ep->eq) {
		list_del(&ep->cm.linger_node);
		vrc_credit_stop(ep);
		vrc_eq_forget(ep->eq, &ep->fid.fid);
	}
	drop_eq(ep);
}

void vrc_cm_broken(struct vrc_ep *ep)
{
	lock_take(&ep->eq->lock);
	switch (ep_state(ep)) {
	case VRC_EP_CONNECTED:
		vrc_dbg(EP_CTRL, "ep 0x%x: the queue pair broke\n",
			ep->qp->qp_num);
		vrc_cm_down(ep, VRC_END_BROKEN);
		break;
	case VRC_EP_CONNECTING:
	case VRC_EP_ACCEPTING:
		/* ESTABLISHED or a failure is on its way; in that order. */
		ep->cm.broken = true;
		break;
	default:
		break;
	}
	lock_drop(&ep->eq->lock);
}

static int ep_setname(fid_t fid, void *addr, size_t addrlen)
{
	struct vrc_ep *ep = ep_of(fid);
	const struct vrc_verbs_ops *ops = ep->domain->ops;
	struct rdma_cm_id *old;
	union vrc_sockaddr src, old_src;
	int ret;

	if (!addr || addrlen < sizeof(struct sockaddr) ||
	    addrlen < vrc_sockaddr_len(addr) ||
	    !vrc_sockaddr_set(&src, addr)) {
		vrc_warn(EP_CTRL, "ep: fi_setname: not an IP address\n");
		return -FI_EINVAL;
	}
	lock_eq(ep);
	ret = -FI_EOPBADSTATE;
	if (ep->cm.passive || ep_state(ep) != VRC_EP_IDLE)
		goto out;
	old = ep->cm.id;
	old_src = ep->cm.src;
	/* First, as it may hold the very port that is asked for. */
	if (old)
		ops->destroy_id(old);
	ep->cm.id = NULL;
	ep->cm.src = src;
	ret = make_id(ep, NULL);
	if (ret)
		ep->cm.src = old_src;
out:
	drop_eq(ep);
	return ret;
}

static int ep_getname(fid_t fid, void *addr, size_t *addrlen)
{
	struct vrc_ep *ep = ep_of(fid);
	int ret = -FI_EADDRNOTAVAIL;

	if (!addrlen)
		return -FI_EINVAL;
	lock_eq(ep);
	if (ep->cm.src.sa.sa_family)
		ret = vrc_sockaddr_copy_out(&ep->cm.src.sa, addr, addrlen);
	drop_eq(ep);
	return ret;
}

static int ep_getpeer(struct fid_ep *fid, void *addr, size_t *addrlen)
{
	struct vrc_ep *ep = vrc_ep(fid);
	int ret = -FI_ENOTCONN;

	if (!addrlen)
		return -FI_EINVAL;
	lock_eq(ep);
	if (ep->cm.dst.sa.sa_family &&
	    (ep->cm.passive || ep_state(ep) >= VRC_EP_CONNECTING))
		ret = vrc_sockaddr_copy_out(&ep->cm.dst.sa, addr, addrlen);
	drop_eq(ep);
	return ret;
}

/* fi_cm(3): connecting and accepting enable the endpoint if need be. */
static int ensure_enabled(struct vrc_ep *ep)
{
	if (ep_state(ep) != VRC_EP_IDLE)
		return 0;
	return ep->fid.fid.ops->control(&ep->fid.fid, FI_ENABLE, NULL);
}

static int check_param(const void *param, size_t len)
{
	if (len <= VRC_CM_DATA_SIZE && (param || !len))
		return 0;
	vrc_warn(EP_CTRL, "ep: %zu bytes of connection data; at most %d "
		 "are sent (FI_OPT_CM_DATA_SIZE)\n", len, VRC_CM_DATA_SIZE);
	return -FI_EINVAL;
}

static uint8_t depth(int device_max, uint8_t peer)
{
	if (device_max < 0)
		device_max = 0;
	return device_max < peer ? (uint8_t)device_max : peer;
}

/* For the passive side param has what the peer asked for. */
static void fill_param(struct vrc_ep *ep, const void *data, size_t len)
{
	const struct ibv_device_attr *attr = &ep->domain->dev->attr;
	struct rdma_conn_param *param = &ep->cm.param;
	uint8_t responder = UINT8_MAX, initiator = UINT8_MAX;
	struct vrc_peer self = { 0 };

	if (ep->cm.passive) {
		responder = param->responder_resources;
		initiator = param->initiator_depth;
	}
	vrc_credit_offer(ep, &self);
	vrc_deliver_offer(ep, &self);
	vrc_cmdata_encode(ep->cm.wire, data, len, &self);
	memset(param, 0, sizeof(*param));
	param->private_data = ep->cm.wire;
	param->private_data_len = sizeof(ep->cm.wire);
	param->responder_resources = depth(attr->max_qp_rd_atom, responder);
	param->initiator_depth = depth(attr->max_qp_init_rd_atom, initiator);
	param->flow_control = 1;
	param->retry_count = 7;
	param->rnr_retry_count = 7; /* for ever */
	param->qp_num = ep->qp->qp_num;
}

/* Caller holds eq->lock. */
static int start_connect(struct vrc_ep *ep)
{
	struct vrc_cm *cm = &ep->cm;
	char str[VRC_ADDRSTR];
	int ret;

	ep_set_state(ep, VRC_EP_CONNECTING);
	if (!ep->domain->ops->resolve_addr(cm->id, NULL, &cm->dst.sa,
					   VRC_ADDR_TIMEOUT_MS))
		return 0;
	ret = vrc_err(errno);
	ep_set_state(ep, VRC_EP_ENABLED);
	vrc_warn(EP_CTRL, "ep 0x%x: no way to %s from device %s: %s\n",
		 ep->qp->qp_num, vrc_sockaddr_str(&cm->dst.sa, str),
		 ep->domain->dev->name, fi_strerror(-ret));
	return ret;
}

static int check_dest(const struct vrc_ep *ep, const union vrc_sockaddr *dst)
{
	char src_str[VRC_ADDRSTR], dst_str[VRC_ADDRSTR];

	if (dst->sa.sa_family == ep->cm.src.sa.sa_family &&
	    vrc_sockaddr_port(&dst->sa))
		return 0;
	vrc_warn(EP_CTRL, "ep: cannot connect from %s to %s\n",
		 vrc_sockaddr_str(&ep->cm.src.sa, src_str),
		 vrc_sockaddr_str(&dst->sa, dst_str));
	return -FI_EINVAL;
}

static int ep_connect(struct fid_ep *fid, const void *addr, const void *param,
		      size_t paramlen)
{
	struct vrc_ep *ep = vrc_ep(fid);
	union vrc_sockaddr dst = ep->cm.dst;
	int ret;

	ret = check_param(param, paramlen);
	if (ret)
		return ret;
	if ((addr && !vrc_sockaddr_set(&dst, addr)) || !dst.sa.sa_family) {
		vrc_warn(EP_CTRL, "ep: fi_connect without an IP address\n");
		return -FI_EINVAL;
	}
	if (!ep->cm.dst.sa.sa_family)
		ep->cm.dst = dst; /* helps to choose the source address */
	ret = ensure_enabled(ep);
	if (ret)
		return ret;
	lock_take(&ep->eq->lock);
	ret = -FI_EOPBADSTATE;
	if (ep_state(ep) != VRC_EP_ENABLED || ep->cm.passive)
		goto out;
	ret = check_dest(ep, &dst);
	if (ret)
		goto out;
	ep->cm.dst = dst;
	fill_param(ep, param, paramlen);
	ret = start_connect(ep);
out:
	lock_drop(&ep->eq->lock);
	return ret;
}

/* Caller holds eq->lock. A request that cannot be accepted is refused, so that
 * the peer knows at once. */
static int start_accept(struct vrc_ep *ep)
{
	const struct vrc_verbs_ops *ops = ep->domain->ops;
	char str[VRC_ADDRSTR];
	int ret;

	ret = vrc_qp_connect(ep);
	if (!ret) {
		ep_set_state(ep, VRC_EP_ACCEPTING);
		if (!ops->accept(ep->cm.id, &ep->cm.param))
			return 0;
		ret = vrc_err(errno);
		ep_set_state(ep, VRC_EP_ENABLED);
	}
	/* Perhaps because the peer has just gone, which is in the channel. */
	vrc_eq_poll(ep->eq, true);
	if (ep->cm.dead)
		ret = -FI_ECONNABORTED;
	vrc_warn(EP_CTRL, "ep 0x%x: accepting %s on device %s: %s\n",
		 ep->qp->qp_num, vrc_sockaddr_str(&ep->cm.dst.sa, str),
		 ep->domain->dev->name, fi_strerror(-ret));
	vrc_cm_id_reject(ops, ep->cm.id, NULL, 0);
	ep_set_state(ep, VRC_EP_SHUTDOWN);
	vrc_qp_error(ep);
	return ret;
}

static int ep_accept(struct fid_ep *fid, const void *param, size_t paramlen)
{
	struct vrc_ep *ep = vrc_ep(fid);
	int ret;

	ret = check_param(param, paramlen);
	if (!ret)
		ret = ensure_enabled(ep);
	if (ret)
		return ret;
	lock_take(&ep->eq->lock);
	ret = -FI_EOPBADSTATE;
	if (ep_state(ep) != VRC_EP_ENABLED || !ep->cm.passive)
		goto out;
	ret = -FI_ECONNABORTED;
	if (ep->cm.dead)
		goto out;
	fill_param(ep, param, paramlen);
	ret = start_accept(ep);
out:
	lock_drop(&ep->eq->lock);
	return ret;
}

/* As with tcp and verbs, the caller gets an FI_SHUTDOWN too; here at once, so
 * that it does not depend on the peer. What was posted is flushed on return. */
static int ep_shutdown(struct fid_ep *fid, uint64_t flags)
{
	struct vrc_ep *ep = vrc_ep(fid);
	int ret = 0;

	if (flags)
		return -FI_EINVAL;
	if (!ep->eq)
		return -FI_EOPBADSTATE;
	lock_take(&ep->eq->lock);
	switch (ep_state(ep)) {
	case VRC_EP_CONNECTING:
	case VRC_EP_ACCEPTING:
	case VRC_EP_CONNECTED:
		vrc_cm_down(ep, VRC_END_OWN);
		vrc_linger_end(ep);
		break;
	case VRC_EP_SHUTDOWN:
		break;
	default:
		ret = -FI_ENOTCONN;
	}
	lock_drop(&ep->eq->lock);
	return ret;
}

static int ep_listen(struct fid_pep *pep)
{
	return -FI_ENOSYS;
}

static int ep_reject(struct fid_pep *pep, fid_t handle, const void *param,
		     size_t paramlen)
{
	return -FI_ENOSYS;
}

static int ep_join(struct fid_ep *ep, const void *addr, uint64_t flags,
		   struct fid_mc **mc, void *context)
{
	return -FI_ENOSYS;
}

const struct fi_ops_cm vrc_cm_ep_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = ep_setname,
	.getname = ep_getname,
	.getpeer = ep_getpeer,
	.connect = ep_connect,
	.listen = ep_listen,
	.accept = ep_accept,
	.reject = ep_reject,
	.shutdown = ep_shutdown,
	.join = ep_join,
};
