/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Passive endpoints; what arrives on them is in vrc_connreq.c. A passive
 * endpoint has one rdma_cm id per backend that has its address. Ids are bound
 * when something depends on it: fi_listen, fi_setname, fi_getname, or an active
 * endpoint that takes the address over (info->handle).
 */
#include <stdlib.h>

#include "compiler.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_dev.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_fabric.h"
#include "vrc_log.h"
#include "vrc_nosys.h"
#include "vrc_pep.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

enum {
	/* Requests that may wait, unless set with FI_BACKLOG; also what Linux
	 * has as its default and limit (net.rdma_ucm.max_backlog). */
	DEFAULT_BACKLOG = 1024,
};

static struct vrc_pep *pep_of(const struct fid *fid)
{
	return container_of(fid, struct vrc_pep, fid.fid);
}

static bool is_bound(const struct vrc_pep *pep)
{
	return pep->ids[0].id || pep->ids[1].id;
}

/* Caller holds pep->lock, and eq->lock if there is one. */
static void destroy_ids(struct vrc_pep *pep)
{
	for (size_t i = 0; i < ARRAY_SIZE(pep->ids); i++) {
		if (pep->ids[i].id)
			pep->ids[i].ops->destroy_id(pep->ids[i].id);
		pep->ids[i].id = NULL;
		pep->ids[i].ops = NULL;
	}
}

/* Programs that name no family mean any. */
static bool wants_dual(const struct vrc_pep *pep)
{
	return pep->src.sa.sa_family == AF_INET &&
	       vrc_sockaddr_is_any(&pep->src.sa) &&
	       (pep->info->addr_format == FI_FORMAT_UNSPEC ||
		pep->info->addr_format == FI_SOCKADDR);
}

/* Binds pep->src on one backend; learns the port if there was none. */
static int bind_one(struct vrc_pep *pep, const struct vrc_verbs_ops *ops,
		    struct rdma_cm_id **id)
{
	union vrc_sockaddr any6;
	uint16_t port = vrc_sockaddr_port(&pep->src.sa);
	int ret;

	if (wants_dual(pep)) {
		memset(&any6, 0, sizeof(any6));
		any6.in6.sin6_family = AF_INET6;
		vrc_sockaddr_set_port(&any6.sa, port);
		ret = vrc_cm_id_bind(ops, NULL, &pep->fid.fid, &any6, true,
				     id);
		if (!ret) {
			vrc_sockaddr_set_port(&pep->src.sa,
					      vrc_sockaddr_port(&any6.sa));
			return 0;
		}
		/* A busy port stays busy; else, this host has no IPv6. */
		if (ret == -FI_EADDRINUSE)
			return ret;
	}
	return vrc_cm_id_bind(ops, NULL, &pep->fid.fid, &pep->src, false, id);
}

/* Does the address lead to that device, as far as the info says? */
static bool dev_matches(const struct vrc_pep *pep, const struct vrc_dev *dev)
{
	const struct fi_domain_attr *attr = pep->info->domain_attr;
	bool named = false;

	if (vrc_sockaddr_is_any(&pep->src.sa))
		return true;
	if (!vrc_dev_find_addr(dev, &pep->src.sa))
		return false;
	if (attr && attr->name)
		named = !strcmp(attr->name, dev->name);
	return !attr || !attr->name || named;
}

static bool has_backend(const struct vrc_pep *pep,
			const struct vrc_verbs_ops *ops, size_t *free_slot)
{
	for (size_t i = 0; i < ARRAY_SIZE(pep->ids); i++) {
		if (pep->ids[i].ops == ops)
			return true;
		if (!pep->ids[i].ops) {
			*free_slot = i;
			return false;
		}
	}
	return true; /* there are no more than two */
}

/* One id per backend. The first must bind, as it chooses the port; a further
 * one that does not is told about. */
static int bind_devs(struct vrc_pep *pep, const struct vrc_dev_list *list)
{
	char str[VRC_ADDRSTR];
	size_t slot = 0;
	int ret;

	for (size_t i = 0; i < list->cnt; i++) {
		const struct vrc_dev *dev = list->devs[i];

		if (!dev_matches(pep, dev) ||
		    has_backend(pep, dev->ops, &slot))
			continue;
		ret = bind_one(pep, dev->ops, &pep->ids[slot].id);
		if (!ret) {
			pep->ids[slot].ops = dev->ops;
			continue;
		}
		vrc_warn(EP_CTRL, "pep: cannot bind %s (%s): %s\n",
			 vrc_sockaddr_str(&pep->src.sa, str), dev->ops->name,
			 fi_strerror(-ret));
		if (!is_bound(pep))
			return ret;
	}
	if (is_bound(pep))
		return 0;
	vrc_warn(EP_CTRL, "pep: no device has the address %s\n",
		 vrc_sockaddr_str(&pep->src.sa, str));
	return -FI_EADDRNOTAVAIL;
}

/* Caller holds pep->lock. */
static int bind_ids(struct vrc_pep *pep)
{
	struct vrc_dev_list list;
	int ret;

	if (is_bound(pep))
		return 0;
	ret = vrc_dev_list_get(&list);
	if (ret)
		return ret;
	ret = bind_devs(pep, &list);
	vrc_dev_list_free(&list);
	return ret;
}

int vrc_pep_take_id(struct vrc_pep *pep, const struct vrc_verbs_ops *ops,
		    union vrc_sockaddr *src, struct rdma_cm_id **id)
{
	int ret = 0;

	lock_take(&pep->lock);
	if (pep->listening) {
		vrc_warn(EP_CTRL, "fi_endpoint: info->handle is a passive "
			 "endpoint that listens\n");
		ret = -FI_EOPBADSTATE;
		goto out;
	}
	if (!pep->src.sa.sa_family)
		goto out;
	ret = bind_ids(pep);
	if (ret)
		goto out;
	*src = pep->src;
	for (size_t i = 0; i < ARRAY_SIZE(pep->ids); i++) {
		if (pep->ids[i].ops != ops)
			continue;
		*id = pep->ids[i].id;
		pep->ids[i].id = NULL;
	}
out:
	lock_drop(&pep->lock);
	return ret;
}

static int pep_setname(fid_t fid, void *addr, size_t addrlen)
{
	struct vrc_pep *pep = pep_of(fid);
	union vrc_sockaddr src, old;
	int ret;

	if (!addr || addrlen < sizeof(struct sockaddr) ||
	    addrlen < vrc_sockaddr_len(addr) || !vrc_sockaddr_set(&src, addr)) {
		vrc_warn(EP_CTRL, "pep: fi_setname: not an IP address\n");
		return -FI_EINVAL;
	}
	lock_take(&pep->lock);
	ret = -FI_EOPBADSTATE;
	if (pep->listening)
		goto out;
	old = pep->src;
	/* First, as they may hold the very port that is asked for. */
	destroy_ids(pep);
	pep->src = src;
	ret = bind_ids(pep);
	if (ret)
		pep->src = old;
out:
	lock_drop(&pep->lock);
	return ret;
}

static int pep_getname(fid_t fid, void *addr, size_t *addrlen)
{
	struct vrc_pep *pep = pep_of(fid);
	int ret = -FI_EADDRNOTAVAIL;

	if (!addrlen)
		return -FI_EINVAL;
	lock_take(&pep->lock);
	if (!pep->src.sa.sa_family)
		goto out;
	/* If it has given the port away, that is still its name. */
	ret = vrc_sockaddr_port(&pep->src.sa) ? 0 : bind_ids(pep);
	if (!ret)
		ret = vrc_sockaddr_copy_out(&pep->src.sa, addr, addrlen);
out:
	lock_drop(&pep->lock);
	return ret;
}

/* fi_cm(3): who has no address gets one by listening. */
static void default_src(struct vrc_pep *pep)
{
	if (pep->src.sa.sa_family)
		return;
	pep->src.sa.sa_family = pep->info->addr_format == FI_SOCKADDR_IN6 ?
				AF_INET6 : AF_INET;
}

static int listen_one(struct vrc_pep *pep, size_t i)
{
	const struct vrc_verbs_ops *ops = pep->ids[i].ops;
	struct rdma_cm_id *id = pep->ids[i].id;
	char str[VRC_ADDRSTR];
	int ret;

	ret = vrc_cm_id_migrate(ops, id, pep->eq);
	if (ret)
		return ret;
	if (ops->listen(id, pep->backlog)) {
		ret = vrc_err(errno);
		vrc_warn(EP_CTRL, "pep: cannot listen on %s (%s): %s\n",
			 vrc_sockaddr_str(&pep->src.sa, str), ops->name,
			 fi_strerror(-ret));
		return ret;
	}
	vrc_info(EP_CTRL, "pep: listening on %s (%s), backlog %d\n",
		 vrc_sockaddr_str(&pep->src.sa, str), ops->name,
		 pep->backlog);
	return 0;
}

/* Caller holds pep->lock. */
static int start_listening(struct vrc_pep *pep)
{
	int ret;

	default_src(pep);
	ret = bind_ids(pep);
	/* Set first: requests may come at once. */
	pep->listening = true;
	for (size_t i = 0; !ret && i < ARRAY_SIZE(pep->ids); i++) {
		if (pep->ids[i].id)
			ret = listen_one(pep, i);
	}
	if (ret) {
		pep->listening = false;
		lock_take(&pep->eq->lock);
		destroy_ids(pep);
		lock_drop(&pep->eq->lock);
	}
	return ret;
}

static int pep_listen(struct fid_pep *fid)
{
	struct vrc_pep *pep = vrc_pep(fid);
	int ret;

	lock_take(&pep->lock);
	if (!pep->eq) {
		vrc_warn(EP_CTRL, "pep: fi_listen without an event queue\n");
		ret = -FI_ENOEQ;
	} else if (pep->listening) {
		ret = -FI_EOPBADSTATE;
	} else {
		ret = start_listening(pep);
	}
	lock_drop(&pep->lock);
	return ret;
}

void vrc_pep_event(struct vrc_pep *pep, const struct vrc_cm_note *note)
{
	char str[VRC_ADDRSTR];
	int err;

	switch (note->type) {
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		err = FI_ENODEV;
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		err = FI_EADDRNOTAVAIL;
		break;
	default:
		return;
	}
	vrc_warn(EP_CTRL, "pep: %s no longer works: %s\n",
		 vrc_sockaddr_str(&pep->src.sa, str), fi_strerror(err));
	if (pep->eq)
		vrc_eq_post_err(pep->eq, &pep->fid.fid, err, note->status,
				NULL, 0);
}

static int pep_getopt(fid_t fid, int level, int optname, void *optval,
		      size_t *optlen)
{
	if (level != FI_OPT_ENDPOINT || optname != FI_OPT_CM_DATA_SIZE)
		return -FI_ENOPROTOOPT;
	if (!optval || !optlen)
		return -FI_EINVAL;
	if (*optlen < sizeof(size_t)) {
		*optlen = sizeof(size_t);
		return -FI_ETOOSMALL;
	}
	*(size_t *)optval = VRC_CM_DATA_SIZE;
	*optlen = sizeof(size_t);
	return 0;
}

static int pep_setopt(fid_t fid, int level, int optname, const void *optval,
		      size_t optlen)
{
	return -FI_ENOPROTOOPT;
}

static int pep_control(struct fid *fid, int command, void *arg)
{
	struct vrc_pep *pep = pep_of(fid);
	int ret = -FI_EOPBADSTATE;

	if (command != FI_BACKLOG)
		return -FI_ENOSYS;
	if (!arg || *(int *)arg <= 0)
		return -FI_EINVAL;
	lock_take(&pep->lock);
	if (!pep->listening) {
		pep->backlog = *(int *)arg;
		ret = 0;
	}
	lock_drop(&pep->lock);
	return ret;
}

static int pep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct vrc_pep *pep = pep_of(fid);
	struct vrc_eq *eq;
	int ret = -FI_EINVAL;

	if (bfid->fclass != FI_CLASS_EQ || flags) {
		vrc_warn(EP_CTRL, "pep: only an event queue can be bound, "
			 "with no flags\n");
		return -FI_EINVAL;
	}
	eq = container_of(bfid, struct vrc_eq, fid.fid);
	lock_take(&pep->lock);
	if (!pep->eq && eq->fabric == pep->fabric) {
		pep->eq = eq;
		atomic_fetch_add(&eq->ref, 1);
		ret = 0;
	}
	lock_drop(&pep->lock);
	if (ret)
		vrc_warn(EP_CTRL, "pep: it has an event queue already, or "
			 "that one is of another fabric\n");
	return ret;
}

static int pep_close(struct fid *fid)
{
	struct vrc_pep *pep = pep_of(fid);

	if (pep->eq) {
		lock_take(&pep->eq->lock);
		destroy_ids(pep);
		/* Requests that were not read die with their events; the
		 * others may still be taken. */
		vrc_eq_forget(pep->eq, &pep->fid.fid);
		lock_drop(&pep->eq->lock);
		atomic_fetch_sub(&pep->eq->ref, 1);
	} else {
		destroy_ids(pep);
	}
	lock_fini(&pep->lock);
	fi_freeinfo(pep->info);
	atomic_fetch_sub(&pep->fabric->ref, 1);
	free(pep);
	return 0;
}

/* What only active endpoints do; no slot of a table may be NULL. */
static ssize_t pep_cancel(fid_t fid, void *context)
{
	return -FI_ENOSYS;
}

static int pep_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
		      struct fid_ep **ep, void *context)
{
	return -FI_ENOSYS;
}

static int pep_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
		      struct fid_ep **ep, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t pep_size_left(struct fid_ep *ep)
{
	return -FI_ENOSYS;
}

static int pep_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen)
{
	return -FI_ENOSYS;
}

static int pep_connect(struct fid_ep *ep, const void *addr, const void *param,
		       size_t paramlen)
{
	return -FI_ENOSYS;
}

static int pep_accept(struct fid_ep *ep, const void *param, size_t paramlen)
{
	return -FI_ENOSYS;
}

static int pep_shutdown(struct fid_ep *ep, uint64_t flags)
{
	return -FI_ENOSYS;
}

static int pep_join(struct fid_ep *ep, const void *addr, uint64_t flags,
		    struct fid_mc **mc, void *context)
{
	return -FI_ENOSYS;
}

static const struct fi_ops pep_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = pep_close,
	.bind = pep_bind,
	.control = pep_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct fi_ops_ep pep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = pep_cancel,
	.getopt = pep_getopt,
	.setopt = pep_setopt,
	.tx_ctx = pep_tx_ctx,
	.rx_ctx = pep_rx_ctx,
	.rx_size_left = pep_size_left,
	.tx_size_left = pep_size_left,
};

static const struct fi_ops_cm pep_cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = pep_setname,
	.getname = pep_getname,
	.getpeer = pep_getpeer,
	.connect = pep_connect,
	.listen = pep_listen,
	.accept = pep_accept,
	.reject = vrc_connreq_reject,
	.shutdown = pep_shutdown,
	.join = pep_join,
};

int vrc_pep_open(struct fid_fabric *fabric_fid, struct fi_info *info,
		 struct fid_pep **out, void *context)
{
	struct vrc_fabric *fabric = vrc_fabric(fabric_fid);
	struct vrc_pep *pep;
	int ret = -FI_EINVAL;

	if (!info || !info->ep_attr || info->ep_attr->type != FI_EP_MSG) {
		vrc_warn(EP_CTRL, "fi_passive_ep: not an FI_EP_MSG info\n");
		return -FI_EINVAL;
	}
	pep = calloc(1, sizeof(*pep));
	if (!pep)
		return -FI_ENOMEM;
	if (info->src_addr && !vrc_sockaddr_set(&pep->src, info->src_addr)) {
		vrc_warn(EP_CTRL, "fi_passive_ep: src_addr is not an IP "
			 "address\n");
		goto err_free_pep;
	}
	ret = -FI_ENOMEM;
	pep->info = fi_dupinfo(info);
	if (!pep->info)
		goto err_free_pep;
	lock_init(&pep->lock);
	pep->backlog = DEFAULT_BACKLOG;
	pep->fabric = fabric;
	atomic_fetch_add(&fabric->ref, 1);
	pep->fid.fid.fclass = FI_CLASS_PEP;
	pep->fid.fid.context = context;
	pep->fid.fid.ops = VRC_OPS(&pep_fi_ops);
	pep->fid.ops = VRC_OPS(&pep_ops);
	pep->fid.cm = VRC_OPS(&pep_cm_ops);
	*out = &pep->fid;
	return 0;

err_free_pep:
	free(pep);
	return ret;
}
