/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A fi_info's attributes: first the most that a device can do, then, narrowed
 * by the hints, the answer. The infos of incoming connections are made the same
 * way, with the passive endpoint's info as hints.
 *
 * What a hint leaves open gets our default; what it asks it gets exactly where
 * more would cost memory (queue depths, inject_size), else at least.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "fi_names.h"
#include "vrc_credit.h"
#include "vrc_dev.h"
#include "vrc_ep.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_params.h"
#include "vrc_util.h"

/* fi_freeinfo frees these with free(). */
bool vrc_info_set_addr(void **addr, size_t *addrlen, const struct sockaddr *sa)
{
	size_t len = sa ? vrc_sockaddr_len(sa) : 0;
	void *copy = NULL;

	if (len) {
		copy = malloc(len);
		if (!copy)
			return false;
		memcpy(copy, sa, len);
	}
	free(*addr);
	*addr = copy;
	*addrlen = len;
	return true;
}

uint32_t vrc_info_addr_format(uint32_t hint, const struct sockaddr *sa)
{
	if (hint == FI_SOCKADDR)
		return FI_SOCKADDR;
	return sa->sa_family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
}

static size_t positive(int value)
{
	return value > 0 ? (size_t)value : 0;
}

size_t vrc_max_depth(const struct vrc_dev *dev)
{
	size_t max_wr = positive(dev->attr.max_qp_wr);

	return max_wr > VRC_CREDIT_WRITES ? max_wr - VRC_CREDIT_WRITES : 0;
}

size_t vrc_max_msg_size(const struct vrc_dev *dev)
{
	size_t max = 0;

	for (int i = 0; i < dev->attr.phys_port_cnt; i++)
		max = max_size(max, dev->ports[i].max_msg_sz);
	return max;
}

/*
 * Where a message that finds no receive ends the connection, each peer is told
 * how many it may send (vrc_credit.c). A receive of a shared context can be
 * promised to one peer only, who may never use it, while the others wait. So
 * there it is for programs alone that say that they see to it themselves.
 */
bool vrc_srx_possible(const struct vrc_dev *dev, bool rm_disabled)
{
	return dev->attr.max_srq > 0 && dev->attr.max_srq_wr > 0 &&
	       (!dev->is_iwarp || rm_disabled);
}

const char *vrc_srx_whynot(const struct vrc_dev *dev)
{
	return dev->attr.max_srq > 0 && dev->attr.max_srq_wr > 0 ?
		       "on iWARP a message that finds no receive ends the "
		       "connection, and a shared receive cannot be promised to "
		       "each peer; it can be had with resource_mgmt "
		       "FI_RM_DISABLED" :
		       "the device has no shared receive queues";
}

size_t vrc_srx_iov_limit(const struct vrc_dev *dev)
{
	return min_size(VRC_IOV_LIMIT, positive(dev->attr.max_srq_sge));
}

static uint64_t comp_order(uint32_t version)
{
	/* Gone from API 2.0, where only zero is legal. */
	return FI_VERSION_LT(version, FI_VERSION(2, 0)) ? FI_ORDER_STRICT : 0;
}

static void limits_ep(struct fi_ep_attr *attr, const struct vrc_dev *dev,
		      const struct vrc_addr *addr)
{
	attr->type = FI_EP_MSG;
	attr->protocol =
		dev->is_iwarp ? FI_PROTO_IWARP : FI_PROTO_RDMA_CM_IB_RC;
	attr->protocol_version = 1;
	attr->max_msg_size = dev->ports[addr->port_num - 1].max_msg_sz;
	/* One queue pair, one path: what is ordered is ordered at any size. */
	attr->max_order_raw_size = attr->max_msg_size;
	attr->max_order_waw_size = attr->max_msg_size;
	attr->tx_ctx_cnt = 1;
	attr->rx_ctx_cnt = 1;
}

uint64_t vrc_tx_op_flags(const struct vrc_dev *dev)
{
	uint64_t flags = FI_INJECT | FI_COMPLETION | FI_INJECT_COMPLETE |
			 FI_DELIVERY_COMPLETE;

	/* A completion is the peer's acknowledgement. An iWARP device may
	 * complete when its own TCP has the data. */
	return dev->is_iwarp ? flags : flags | FI_TRANSMIT_COMPLETE;
}

static void limits_tx_rx(struct fi_info *info, const struct vrc_dev *dev,
			 uint32_t version)
{
	size_t iov_limit = min_size(VRC_IOV_LIMIT, positive(dev->attr.max_sge));

	info->tx_attr->caps = VRC_TX_CAPS;
	info->tx_attr->op_flags = vrc_tx_op_flags(dev);
	info->tx_attr->msg_order = VRC_MSG_ORDER;
	info->tx_attr->comp_order = comp_order(version);
	info->tx_attr->inject_size =
		min_size(VRC_INJECT_MAX, info->ep_attr->max_msg_size);
	info->tx_attr->size = vrc_max_depth(dev);
	info->tx_attr->iov_limit = iov_limit;
	info->tx_attr->rma_iov_limit = 1;

	info->rx_attr->caps = VRC_RX_CAPS;
	info->rx_attr->op_flags = VRC_RX_OP_FLAGS;
	info->rx_attr->msg_order = VRC_MSG_ORDER;
	info->rx_attr->comp_order = comp_order(version);
	info->rx_attr->size = vrc_max_depth(dev);
	info->rx_attr->iov_limit = iov_limit;
}

static void limits_domain(struct fi_domain_attr *attr,
			  const struct vrc_dev *dev)
{
	attr->threading = FI_THREAD_SAFE;
	attr->control_progress = FI_PROGRESS_AUTO;
	attr->data_progress = FI_PROGRESS_AUTO;
	attr->resource_mgmt = FI_RM_ENABLED;
	attr->av_type = FI_AV_UNSPEC;
	attr->mr_key_size = sizeof(uint32_t);
	attr->cq_data_size = dev->is_iwarp ? 0 : sizeof(uint32_t);
	attr->cq_cnt = positive(dev->attr.max_cq);
	attr->cntr_cnt = attr->cq_cnt; /* memory is their limit */
	attr->ep_cnt = positive(dev->attr.max_qp);
	attr->tx_ctx_cnt = attr->ep_cnt;
	attr->rx_ctx_cnt = attr->ep_cnt;
	attr->max_ep_tx_ctx = 1;
	attr->max_ep_rx_ctx = 1;
	attr->max_ep_stx_ctx = attr->ep_cnt;
	attr->max_ep_srx_ctx = vrc_srx_possible(dev, true) ? attr->ep_cnt : 0;
	attr->mr_iov_limit = 1;
	attr->max_err_data = VRC_MAX_ERR_DATA;
	attr->mr_cnt = positive(dev->attr.max_mr);
}

struct fi_info *vrc_info_limits(const struct vrc_dev *dev,
				const struct vrc_addr *addr, uint32_t version)
{
	struct fi_info *info = fi_dupinfo(NULL);
	uint64_t comm = VRC_SECONDARY_CAPS;

	if (!info)
		return NULL;
	if (vrc_sockaddr_is_loopback(&addr->addr.sa))
		comm = FI_LOCAL_COMM;
	info->caps = VRC_PRIMARY_CAPS | comm;
	limits_ep(info->ep_attr, dev, addr);
	limits_tx_rx(info, dev, version);
	if (vrc_dev_has_atomics(dev)) {
		info->tx_attr->msg_order |= VRC_ATOMIC_ORDER;
		info->rx_attr->msg_order |= VRC_ATOMIC_ORDER;
	} else {
		info->caps &= ~FI_ATOMIC;
	}
	limits_domain(info->domain_attr, dev);
	info->domain_attr->caps = comm;
	info->domain_attr->name = strdup(dev->name);
	info->fabric_attr->name = strdup(addr->fabric);
	info->nic = vrc_nic_create(dev, addr);
	if (info->domain_attr->name && info->fabric_attr->name && info->nic)
		return info;
	fi_freeinfo(info);
	return NULL;
}

/* What the hint asks, else the default; never more than there is. */
static size_t pick(size_t hint, size_t preset, size_t max)
{
	return min_size(hint ? hint : preset, max);
}

/* A context's share of the endpoint's capabilities, less what its own hint
 * leaves out. */
static uint64_t ctx_caps(uint64_t caps, uint64_t hint, uint64_t direction)
{
	caps &= direction;
	return hint & direction ? caps & vrc_hints_expand(hint) : caps;
}

/* The environment's default, of which a device may have less: then that is what it
 * gets, and the user is told. */
static size_t default_depth(const char *name, size_t size, bool given,
			    atomic_bool *told, const struct vrc_dev *dev)
{
	size_t max = vrc_max_depth(dev);

	if (given && size > max && !atomic_exchange(told, true))
		vrc_warn(CORE, "%s=%zu: %s has at most %zu, and endpoints get "
			 "that\n", name, size, dev->name, max);
	return size;
}

static size_t tx_depth(const struct vrc_dev *dev)
{
	static atomic_bool told;

	return default_depth("FI_VRC_TX_SIZE", vrc_params.tx_size,
			     vrc_params.tx_size_given, &told, dev);
}

static size_t rx_depth(const struct vrc_dev *dev)
{
	static atomic_bool told;

	return default_depth("FI_VRC_RX_SIZE", vrc_params.rx_size,
			     vrc_params.rx_size_given, &told, dev);
}

static void tailor_tx_rx(struct fi_info *info, const struct fi_info *hints,
			 const struct vrc_dev *dev)
{
	static const struct fi_tx_attr no_tx;
	static const struct fi_rx_attr no_rx;
	const struct fi_tx_attr *tx =
		hints && hints->tx_attr ? hints->tx_attr : &no_tx;
	const struct fi_rx_attr *rx =
		hints && hints->rx_attr ? hints->rx_attr : &no_rx;

	info->tx_attr->caps = ctx_caps(info->caps, tx->caps, VRC_TX_CAPS);
	info->tx_attr->op_flags &= tx->op_flags;
	info->tx_attr->size = pick(tx->size, tx->size ? 0 : tx_depth(dev),
				   info->tx_attr->size);
	info->tx_attr->inject_size =
		pick(tx->inject_size, vrc_params.inject_size,
		     info->tx_attr->inject_size);

	info->rx_attr->caps = ctx_caps(info->caps, rx->caps, VRC_RX_CAPS);
	info->rx_attr->op_flags &= rx->op_flags;
	info->rx_attr->size = pick(rx->size, rx->size ? 0 : rx_depth(dev),
				   info->rx_attr->size);
}

static void tailor_shared(struct fi_info *info, const struct fi_info *hints,
			  const struct vrc_dev *dev)
{
	const struct fi_ep_attr *hint = hints->ep_attr;

	if (hint && hint->tx_ctx_cnt == FI_SHARED_CONTEXT)
		info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	if (!hint || hint->rx_ctx_cnt != FI_SHARED_CONTEXT)
		return;
	info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	info->rx_attr->size = min_size(info->rx_attr->size,
				       positive(dev->attr.max_srq_wr));
	info->rx_attr->iov_limit = vrc_srx_iov_limit(dev);
	if (dev->is_iwarp)
		info->domain_attr->resource_mgmt = FI_RM_DISABLED;
}

static void tailor_domain(struct fi_info *info, const struct fi_info *hints)
{
	const struct fi_domain_attr *hint = hints->domain_attr;
	struct fi_domain_attr *attr = info->domain_attr;

	if (!hint)
		return;
	if (hint->threading)
		attr->threading = hint->threading;
	/* We need no help to make progress, and the application may give it. */
	if (hint->control_progress)
		attr->control_progress = hint->control_progress;
	if (hint->data_progress)
		attr->data_progress = hint->data_progress;
	attr->av_type = hint->av_type;
	attr->domain = hint->domain;
}

void vrc_info_tailor(struct fi_info *info, const struct fi_info *hints,
		     const struct vrc_dev *dev, uint32_t version)
{
	struct vrc_mr_answer mr;

	/* Cannot fail here: checked before, or taken from an info of ours. */
	vrc_hints_mr(hints, version, NULL, &mr);
	info->domain_attr->mr_mode = mr.mr_mode;
	info->mode = mr.mode;
	info->caps &= mr.caps | VRC_SECONDARY_CAPS;
	tailor_tx_rx(info, hints, dev);
	if (hints) {
		tailor_domain(info, hints);
		tailor_shared(info, hints, dev);
		info->handle = hints->handle;
		if (hints->fabric_attr)
			info->fabric_attr->fabric = hints->fabric_attr->fabric;
	}
	/* Though it was asked for: fabtests looks for an address without the mode
	 * that it offers afterwards, and libfabric's verbs answers so. */
	if (!vrc_hints_rx_cq_data(hints))
		info->domain_attr->cq_data_size = 0;
	if (!info->domain_attr->cq_data_size)
		return;
	info->rx_attr->mode |= FI_RX_CQ_DATA;
	/* A caller may have offered it for the receive context alone. */
	if (!hints || (hints->mode & FI_RX_CQ_DATA))
		info->mode |= FI_RX_CQ_DATA;
}

/* An IPv4 address that a dual-stack listener shows as ::ffff:10.7.0.1. */
static const struct sockaddr *unmap(const struct sockaddr *sa,
				    union vrc_sockaddr *buf)
{
	const union vrc_sockaddr *addr = (const void *)sa;

	if (sa->sa_family != AF_INET6 ||
	    !IN6_IS_ADDR_V4MAPPED(&addr->in6.sin6_addr))
		return sa;
	memset(buf, 0, sizeof(*buf));
	buf->in.sin_family = AF_INET;
	buf->in.sin_port = addr->in6.sin6_port;
	memcpy(&buf->in.sin_addr, &addr->in6.sin6_addr.s6_addr[12],
	       sizeof(buf->in.sin_addr));
	return &buf->sa;
}

/* The names and versions that the core wrote when it saw the passive
 * endpoint's info; it never sees this one. */
static bool copy_fabric(struct fi_fabric_attr *to,
			const struct fi_fabric_attr *from)
{
	if (!from)
		return true;
	to->prov_version = from->prov_version;
	to->api_version = from->api_version;
	if (from->name) {
		free(to->name);
		to->name = strdup(from->name);
		if (!to->name)
			return false;
	}
	if (from->prov_name) {
		to->prov_name = strdup(from->prov_name);
		if (!to->prov_name)
			return false;
	}
	return true;
}

struct fi_info *vrc_info_for_connreq(const struct vrc_dev *dev,
				     const struct fi_info *pep_info,
				     const struct sockaddr *src,
				     const struct sockaddr *dst)
{
	uint32_t version = pep_info->fabric_attr
				   ? pep_info->fabric_attr->api_version
				   : fi_version();
	union vrc_sockaddr src_buf, dst_buf;
	const struct vrc_addr *addr;
	struct fi_info *info;

	src = unmap(src, &src_buf);
	dst = unmap(dst, &dst_buf);
	addr = vrc_dev_find_addr(dev, src);
	/* An address that has come or gone since: any port will do. */
	info = vrc_info_limits(dev, addr ? addr : &dev->addrs[0], version);
	if (!info)
		return NULL;
	vrc_info_tailor(info, pep_info, dev, version);
	info->handle = NULL;
	info->addr_format = vrc_info_addr_format(pep_info->addr_format, src);
	if (vrc_info_set_addr(&info->src_addr, &info->src_addrlen, src) &&
	    vrc_info_set_addr(&info->dest_addr, &info->dest_addrlen, dst) &&
	    copy_fabric(info->fabric_attr, pep_info->fabric_attr))
		return info;
	fi_freeinfo(info);
	return NULL;
}
