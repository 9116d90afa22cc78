/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_getinfo: from node, service and hints to addresses, and from addresses to
 * the devices that own them. One info per pair of device and address:
 *
 *	no address given	every address of every device, loopback last
 *	a destination		the address that the route to it starts from; if
 *				its device is not wanted, one on the same net
 *	a source		that one
 *	a wildcard source	one info per device, src_addr the wildcard
 *
 * A wildcard source (FI_SOURCE with a service and no node, or 0.0.0.0, or ::)
 * means: listen on every address. The info names one of the devices, but a
 * connection may come in on any; its FI_CONNREQ info says which. Where neither
 * a node nor an address format says which family, the answer is 0.0.0.0 in
 * format FI_SOCKADDR, and a passive endpoint takes that (and only that) as IPv4
 * and IPv6. A utility provider sizes its address vectors by the format, so it
 * gets FI_SOCKADDR_IN.
 *
 * Nothing blocks on the network but the resolver, if node is a host name.
 */
#include <stdio.h>
#include <string.h>

#include "vrc_dev.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_params.h"
#include "vrc_util.h"
#include "vrc_whynot.h"

/* Bits that libfabric's core keeps for itself, and one of 2.x. */
#define CORE_PROV_ONLY (1ULL << 59)
#define CORE_FLAGS ((1ULL << 58) | CORE_PROV_ONLY | (1ULL << 60) | (1ULL << 61))
#ifndef FI_RESCAN
#define FI_RESCAN (1ULL << 35)
#endif

/* One call. */
struct call {
	struct vrc_query query;
	bool layered;
	bool any_family; /* a wildcard source of no family in particular */
	struct vrc_dev_list list;
	struct vrc_addrs srcs;
	struct vrc_addrs dsts;
	struct fi_info *head;
	struct fi_info **tail;
};

/* What the hints say about names. With a reason only for the device. */
static bool wanted(struct call *call, const struct vrc_dev *dev,
		   const struct vrc_addr *addr)
{
	const struct fi_info *hints = call->query.hints;

	if (!hints)
		return true;
	if (hints->domain_attr && hints->domain_attr->name &&
	    strcmp(hints->domain_attr->name, dev->name)) {
		vrc_whynot_add(&call->query.why, "domain_attr->name",
			       "is %s, and there is %s",
			       hints->domain_attr->name, dev->name);
		return false;
	}
	if (hints->nic && hints->nic->device_attr &&
	    hints->nic->device_attr->name &&
	    strcmp(hints->nic->device_attr->name, dev->name)) {
		vrc_whynot_add(&call->query.why, "nic->device_attr->name",
			       "is %s, and there is %s",
			       hints->nic->device_attr->name, dev->name);
		return false;
	}
	if (hints->fabric_attr && hints->fabric_attr->name &&
	    strcmp(hints->fabric_attr->name, addr->fabric)) {
		vrc_whynot_add(&call->query.why, "fabric_attr->name",
			       "is %s, and %s is on %s",
			       hints->fabric_attr->name, dev->name,
			       addr->fabric);
		return false;
	}
	return true;
}

/* FI_VRC_GID_INDEX, where the port has GIDs that mean something. */
static bool gid_ok(struct call *call, const struct vrc_dev *dev,
		   const struct vrc_addr *addr)
{
	int len = dev->ports[addr->port_num - 1].gid_tbl_len;
	/* A queue pair's attributes have a byte for it. */
	int max = (len > UINT8_MAX ? UINT8_MAX + 1 : len) - 1;

	if (dev->is_iwarp ||
	    (vrc_params.gid_index <= max && !addr->gid_empty))
		return true;
	vrc_whynot_add(&call->query.why, "FI_VRC_GID_INDEX",
		       "is %d, and port %u of %s has %d GIDs (0 to %d)%s",
		       vrc_params.gid_index, addr->port_num, dev->name, len,
		       max, addr->gid_empty ? ", that one empty" : "");
	return false;
}

/*
 * One candidate: src is an address of the device (with the caller's port) or
 * the wildcard, dst may be NULL. 0 if it was taken or turned down, -FI_ENOMEM.
 */
static int offer(struct call *call, const struct vrc_dev *dev,
		 const struct vrc_addr *addr, const struct sockaddr *src,
		 const struct sockaddr *dst)
{
	const struct fi_info *hints = call->query.hints;
	struct fi_info *info;

	if (!wanted(call, dev, addr) || !gid_ok(call, dev, addr))
		return 0;
	info = vrc_info_limits(dev, addr, call->query.version);
	if (!info)
		return -FI_ENOMEM;
	if (vrc_sockaddr_is_any(src)) {
		info->caps |= VRC_SECONDARY_CAPS;
		info->domain_attr->caps |= VRC_SECONDARY_CAPS;
	}
	if (!vrc_hints_check_limits(&call->query, info, dev)) {
		fi_freeinfo(info);
		return 0;
	}
	vrc_info_tailor(info, hints, dev, call->query.version);
	info->addr_format =
		vrc_info_addr_format(hints ? hints->addr_format : 0, src);
	if (vrc_sockaddr_is_any(src) && src->sa_family == AF_INET &&
	    call->any_family && !call->layered)
		info->addr_format = FI_SOCKADDR;
	if (!vrc_info_set_addr(&info->src_addr, &info->src_addrlen, src) ||
	    !vrc_info_set_addr(&info->dest_addr, &info->dest_addrlen, dst)) {
		fi_freeinfo(info);
		return -FI_ENOMEM;
	}
	vrc_dev_check_memlock(dev, call->query.why.asked && !call->layered);
	*call->tail = info;
	call->tail = &info->next;
	return 0;
}

/* With the address as the interface has it (its scope, above all). */
static int offer_addr(struct call *call, const struct vrc_dev *dev,
		      const struct vrc_addr *addr, uint16_t port,
		      const struct sockaddr *dst)
{
	union vrc_sockaddr src = addr->addr;

	vrc_sockaddr_set_port(&src.sa, port);
	return offer(call, dev, addr, &src.sa, dst);
}

static int offer_all(struct call *call)
{
	const struct fi_info *hints = call->query.hints;

	for (int loopback = 0; loopback <= 1; loopback++) {
		for (size_t i = 0; i < call->list.cnt; i++) {
			const struct vrc_dev *dev = call->list.devs[i];

			for (const struct vrc_addr *addr = dev->addrs;
			     addr < vrc_addr_end(dev); addr++) {
				const struct sockaddr *sa = &addr->addr.sa;

				if (vrc_sockaddr_is_loopback(sa) != loopback ||
				    !vrc_hints_family_ok(hints, sa))
					continue;
				if (offer_addr(call, dev, addr, 0, NULL))
					return -FI_ENOMEM;
			}
		}
	}
	return 0;
}

/* An address that stands for the device in a wildcard's info. */
static const struct vrc_addr *wildcard_addr(const struct call *call,
					    const struct vrc_dev *dev,
					    int family)
{
	const struct fi_info *hints = call->query.hints;
	const char *fabric =
		hints && hints->fabric_attr ? hints->fabric_attr->name : NULL;

	/* Addresses are sorted, IPv4 first and loopback last. */
	for (const struct vrc_addr *addr = dev->addrs; addr < vrc_addr_end(dev);
	     addr++) {
		if ((family == AF_UNSPEC ||
		     family == addr->addr.sa.sa_family) &&
		    (!fabric || !strcmp(fabric, addr->fabric)))
			return addr;
	}
	return NULL;
}

static int offer_wildcard(struct call *call, const struct sockaddr *any)
{
	for (size_t i = 0; i < call->list.cnt; i++) {
		const struct vrc_dev *dev = call->list.devs[i];
		const struct vrc_addr *addr;
		union vrc_sockaddr src = { 0 };

		addr = wildcard_addr(call, dev, any->sa_family);
		/* :: covers IPv4, and so does a wildcard of no family. */
		if (!addr && (call->any_family || any->sa_family == AF_INET6))
			addr = wildcard_addr(call, dev, AF_UNSPEC);
		if (!addr)
			continue;
		src.sa.sa_family = call->any_family ? addr->addr.sa.sa_family
						    : any->sa_family;
		vrc_sockaddr_set_port(&src.sa, vrc_sockaddr_port(any));
		if (offer(call, dev, addr, &src.sa, NULL))
			return -FI_ENOMEM;
	}
	return 0;
}

/* For messages: "10.7.0.1 (eth1, mlx5_0), ..."; whole entries only. */
static void list_addrs(const struct vrc_dev_list *list, char *buf, size_t len)
{
	char entry[VRC_ADDRSTR + 100];
	char str[VRC_ADDRSTR];
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < list->cnt; i++) {
		const struct vrc_dev *dev = list->devs[i];

		for (size_t j = 0; j < dev->addr_cnt; j++) {
			vrc_sockaddr_str(&dev->addrs[j].addr.sa, str);
			*strrchr(str, ':') = '\0';
			snprintf(entry, sizeof(entry), "%s%s (%s, %s)",
				 used ? ", " : "", str, dev->addrs[j].netdev,
				 dev->name);
			if (used + strlen(entry) + sizeof(", ...") > len) {
				snprintf(buf + used, len - used, ", ...");
				return;
			}
			used += (size_t)snprintf(buf + used, len - used, "%s",
						 entry);
		}
	}
}

/* Every device that has the address. How many, or -FI_ENOMEM. */
static int offer_src(struct call *call, const struct sockaddr *sa,
		     const struct sockaddr *dst)
{
	const struct vrc_addr *addr;
	int cnt = 0;

	for (size_t i = 0; i < call->list.cnt; i++) {
		addr = vrc_dev_find_addr(call->list.devs[i], sa);
		if (!addr)
			continue;
		cnt++;
		if (offer_addr(call, call->list.devs[i], addr,
			       vrc_sockaddr_port(sa), dst))
			return -FI_ENOMEM;
	}
	return cnt;
}

/* sa is the source to be, wherever it comes from. */
static void explain_src(struct call *call, const struct sockaddr *sa,
			const struct sockaddr *dst)
{
	char have[VRC_WHYNOT_LEN - 150];
	char src_str[VRC_ADDRSTR], dst_str[VRC_ADDRSTR];

	list_addrs(&call->list, have, sizeof(have));
	vrc_sockaddr_str(sa, src_str);
	*strrchr(src_str, ':') = '\0';
	vrc_whynot_place(&call->query.why, "address",
			 "%s%s%s%s has no RDMA device%s; these have: %s",
			 src_str, dst ? " (the way to " : "",
			 dst ? vrc_sockaddr_str(dst, dst_str) : "",
			 dst ? ")" : "",
			 vrc_sockaddr_is_loopback(sa)
				 ? " (loopback needs FI_VRC_SOFTVERBS=always)"
				 : "",
			 have);
}

/* Any address on dst's own network, for when the route's is not wanted. */
static int offer_on_link(struct call *call, const struct sockaddr *dst,
			 uint16_t port)
{
	for (size_t i = 0; i < call->list.cnt; i++) {
		const struct vrc_dev *dev = call->list.devs[i];

		for (const struct vrc_addr *addr = dev->addrs;
		     addr < vrc_addr_end(dev); addr++) {
			if (!vrc_dev_on_link(addr, dst))
				continue;
			if (offer_addr(call, dev, addr, port, dst))
				return -FI_ENOMEM;
			break;
		}
	}
	return 0;
}

static int offer_dst(struct call *call, const struct sockaddr *dst,
		     uint16_t port)
{
	struct fi_info **before = call->tail;
	union vrc_sockaddr src;
	char str[VRC_ADDRSTR];
	int err, cnt;

	err = vrc_route_src(dst, &src);
	if (err) {
		vrc_whynot_place(&call->query.why, "address",
				 "no route to %s: %s",
				 vrc_sockaddr_str(dst, str), strerror(err));
		return 0;
	}
	vrc_sockaddr_set_port(&src.sa, port);
	cnt = offer_src(call, &src.sa, dst);
	if (cnt < 0)
		return cnt;
	if (call->tail == before && offer_on_link(call, dst, port))
		return -FI_ENOMEM;
	if (call->tail == before && !cnt)
		explain_src(call, &src.sa, dst);
	return 0;
}

/* The sources that the caller gave, to dst if there is one. */
static int offer_srcs(struct call *call, const struct sockaddr *dst)
{
	for (size_t i = 0; i < call->srcs.cnt; i++) {
		const struct sockaddr *src = &call->srcs.addr[i].sa;
		int cnt;

		if (vrc_sockaddr_is_any(src)) {
			cnt = dst ? offer_dst(call, dst, vrc_sockaddr_port(src))
				  : offer_wildcard(call, src);
		} else if (dst && dst->sa_family != src->sa_family) {
			vrc_whynot_add(&call->query.why, "dest_addr",
				       "source and destination are of "
				       "different families");
			continue;
		} else {
			cnt = offer_src(call, src, dst);
			if (!cnt)
				explain_src(call, src, NULL);
		}
		if (cnt < 0)
			return cnt;
	}
	return 0;
}

static int offer_given(struct call *call)
{
	const struct sockaddr *dst;
	int ret = 0;

	if (!call->dsts.cnt)
		return call->srcs.cnt ? offer_srcs(call, NULL)
				      : offer_all(call);
	for (size_t i = 0; i < call->dsts.cnt && !ret; i++) {
		dst = &call->dsts.addr[i].sa;
		ret = call->srcs.cnt ? offer_srcs(call, dst)
				     : offer_dst(call, dst, 0);
	}
	return ret;
}

static int find(struct call *call, const char *node, const char *service,
		uint64_t flags)
{
	char notes[VRC_DEV_NOTES];
	int ret;

	if (!vrc_hints_check(&call->query))
		return -FI_ENODATA;
	ret = vrc_getaddr(&call->query, node, service, flags, &call->srcs,
			  &call->dsts);
	if (ret)
		return ret;
	if (flags & FI_RESCAN)
		vrc_dev_forget();
	ret = vrc_dev_list_get(&call->list);
	if (ret)
		return ret;
	if (call->list.cnt) {
		ret = offer_given(call);
	} else {
		vrc_dev_notes(notes, sizeof(notes));
		vrc_whynot_place(&call->query.why, "device",
				 "no RDMA device with an IP address%s%s",
				 *notes ? ": " : "", notes);
	}
	vrc_dev_list_free(&call->list);
	if (!ret && !call->head) {
		if (!call->query.why.cnt)
			vrc_whynot_add(&call->query.why, "addr_format",
				       "no device has an address of that "
				       "family");
		return -FI_ENODATA;
	}
	return ret;
}

int vrc_getinfo(uint32_t version, const char *node, const char *service,
		uint64_t flags, const struct fi_info *hints,
		struct fi_info **info)
{
	const uint64_t known = FI_NUMERICHOST | FI_SOURCE | FI_PROV_ATTR_ONLY |
			       FI_RESCAN | CORE_FLAGS;
	struct call call = {
		.query = { .version = version, .hints = hints },
		.layered = flags & CORE_PROV_ONLY,
		.any_family = flags & FI_SOURCE && !node &&
			      vrc_hints_family(hints) == AF_UNSPEC,
		.tail = &call.head,
	};
	int ret;

	if (flags & ~known || ((flags & FI_SOURCE) && !node && !service)) {
		vrc_info(CORE, "fi_getinfo: bad flags 0x%llx%s\n",
			 (unsigned long long)flags,
			 flags & ~known
				 ? ""
				 : ": FI_SOURCE without node or service");
		return -FI_EINVAL;
	}
	if (flags & FI_PROV_ATTR_ONLY) {
		*info = fi_dupinfo(NULL);
		return *info ? 0 : -FI_ENOMEM;
	}
	vrc_whynot_init(&call.query.why, hints, call.layered);
	ret = find(&call, node, service, flags);
	if (ret == -FI_ENODATA || !ret)
		vrc_whynot_report(&call.query.why, !ret);
	if (ret) {
		fi_freeinfo(call.head);
		return ret;
	}
	*info = call.head;
	return 0;
}
