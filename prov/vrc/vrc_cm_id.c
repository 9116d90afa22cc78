/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_cm ids: making them, binding them, moving them between event channels;
 * and the addresses that they are bound to. Knows no endpoint's state.
 */
#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_cmdata.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_log.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

bool vrc_sockaddr_set(union vrc_sockaddr *dst, const struct sockaddr *src)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)src;
	const struct sockaddr_in *in = (const struct sockaddr_in *)src;
	union vrc_sockaddr addr;

	memset(&addr, 0, sizeof(addr));
	if (src->sa_family == AF_INET) {
		addr.in.sin_family = AF_INET;
		addr.in.sin_port = in->sin_port;
		addr.in.sin_addr = in->sin_addr;
	} else if (src->sa_family != AF_INET6) {
		return false;
	} else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		addr.in.sin_family = AF_INET;
		addr.in.sin_port = in6->sin6_port;
		memcpy(&addr.in.sin_addr, &in6->sin6_addr.s6_addr[12], 4);
	} else {
		addr.in6.sin6_family = AF_INET6;
		addr.in6.sin6_port = in6->sin6_port;
		addr.in6.sin6_addr = in6->sin6_addr;
		addr.in6.sin6_scope_id = in6->sin6_scope_id;
	}
	*dst = addr;
	return true;
}

int vrc_cm_id_bind(const struct vrc_verbs_ops *ops,
		   struct rdma_event_channel *channel, struct fid *owner,
		   union vrc_sockaddr *addr, bool dual, struct rdma_cm_id **out)
{
	union vrc_sockaddr bound = *addr;
	struct rdma_cm_id *id;
	int off = 0;
	int ret;

	if (ops->create_id(channel, &id, owner, RDMA_PS_TCP)) {
		ret = vrc_err(errno);
		vrc_warn(EP_CTRL, "%s: rdma_create_id: %s\n", ops->name,
			 fi_strerror(-ret));
		return ret;
	}
	/* Where it fails, the system's default stands, which is the same. */
	if (dual)
		ops->set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY,
				&off, sizeof(off));
	if (ops->bind_addr(id, &bound.sa)) {
		ret = vrc_err(errno);
		ops->destroy_id(id);
		return ret;
	}
	vrc_sockaddr_set_port(&addr->sa,
			      vrc_sockaddr_port(&id->route.addr.src_addr));
	*out = id;
	return 0;
}

int vrc_cm_id_migrate(const struct vrc_verbs_ops *ops, struct rdma_cm_id *id,
		      struct vrc_eq *eq)
{
	struct rdma_event_channel *channel = vrc_eq_channel(eq, ops);
	int ret;

	if (!channel)
		return vrc_err(errno);
	if (id->channel == channel || !ops->migrate_id(id, channel))
		return 0;
	ret = vrc_err(errno);
	vrc_warn(EP_CTRL, "%s: rdma_migrate_id: %s\n", ops->name,
		 fi_strerror(-ret));
	return ret;
}

bool vrc_cm_id_fits(const struct rdma_cm_id *id,
		    const struct vrc_domain *domain)
{
	return !id->verbs ||
	       !strcmp(domain->ops->get_device_name(id->verbs->device),
		       domain->dev->name);
}

const struct vrc_addr *vrc_cm_pick_source(const struct vrc_dev *dev,
					  const struct sockaddr *dst)
{
	const struct vrc_addr *a, *any = NULL;

	for (a = dev->addrs; a != vrc_addr_end(dev); a++) {
		if (dst->sa_family && a->addr.sa.sa_family != dst->sa_family)
			continue;
		if (dst->sa_family && vrc_dev_on_link(a, dst))
			return a;
		if (!any || (vrc_sockaddr_is_loopback(&any->addr.sa) &&
			     !vrc_sockaddr_is_loopback(&a->addr.sa)))
			any = a;
	}
	return any;
}

void vrc_cm_id_reject(const struct vrc_verbs_ops *ops, struct rdma_cm_id *id,
		      const void *data, size_t len)
{
	static const struct vrc_peer self;
	uint8_t wire[VRC_CM_WIRE_SIZE];

	vrc_cmdata_encode(wire, data, len, &self);
	/* If it fails, the peer is gone already. */
	if (ops->reject(id, wire, sizeof(wire)))
		vrc_dbg(EP_CTRL, "%s: rdma_reject: %s\n", ops->name,
			strerror(errno));
}
