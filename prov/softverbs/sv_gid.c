/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whose an address of this machine is, and the GID tables that follow from it.
 *
 * A device has the addresses that it was told to have (by interface or one by
 * one), and one that was told nothing has what is left. Addresses and GIDs are
 * only ever added: indices stay as they are, and an address that has gone simply
 * stops working. What a specification or an edit has put into a table stays
 * there, and addresses fill what is free.
 */
#include "sv_int.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netpacket/packet.h>
#include <string.h>

enum {
	MAC_LEN = 6,
};

/* ---- addresses ---- */

void sv_gid_of_addr(const struct sockaddr *addr, union ibv_gid *gid)
{
	const struct sockaddr_in6 *in6 = (const void *)addr;
	const struct sockaddr_in *in = (const void *)addr;

	memset(gid, 0, sizeof(*gid));
	if (addr->sa_family == AF_INET6) {
		memcpy(gid->raw, &in6->sin6_addr, sizeof(gid->raw));
		return;
	}
	gid->raw[10] = 0xff;
	gid->raw[11] = 0xff;
	memcpy(&gid->raw[12], &in->sin_addr, sizeof(in->sin_addr));
}

static bool is_ip(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET || addr->sa_family == AF_INET6;
}

static bool is_loopback4(const struct sockaddr *addr)
{
	const struct sockaddr_in *in = (const void *)addr;

	return addr->sa_family == AF_INET &&
	       ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* IPv4 addresses and those mapped into IPv6 are the same here. */
static bool same_ip(const struct sockaddr *a, const struct sockaddr *b)
{
	union ibv_gid gid_a, gid_b;

	sv_gid_of_addr(a, &gid_a);
	sv_gid_of_addr(b, &gid_b);
	return !memcmp(&gid_a, &gid_b, sizeof(gid_a));
}

static bool is_explicit(const struct sv_dev *dev)
{
	return dev->netdev_cnt || dev->wanted_cnt;
}

/* Was the device told to have this address, which is on that interface? */
static bool dev_wants(const struct sv_dev *dev, const struct ifaddrs *ifa)
{
	unsigned int i;

	for (i = 0; i < dev->netdev_cnt; i++)
		if (!strcmp(dev->netdevs[i], ifa->ifa_name))
			return true;
	for (i = 0; i < dev->wanted_cnt; i++)
		if (same_ip(&dev->wanted[i].sa, ifa->ifa_addr))
			return true;
	return false;
}

/* The list does not change, so this needs no lock. */
static bool dev_takes(const struct sv_dev *dev, const struct ifaddrs *ifa)
{
	struct sv_dev **devs;
	unsigned int i, cnt;

	if (is_explicit(dev))
		return dev_wants(dev, ifa);
	cnt = sv_dev_list(&devs);
	for (i = 0; i < cnt; i++)
		if (is_explicit(devs[i]) && dev_wants(devs[i], ifa))
			return false;
	return true;
}

/* Caller holds dev->lock. */
static bool dev_has(const struct sv_dev *dev, const struct sockaddr *addr)
{
	unsigned int i;

	for (i = 0; i < dev->addr_cnt; i++)
		if (same_ip(&dev->addrs[i].sa, addr))
			return true;
	return false;
}

/* ---- tables; caller holds dev->lock ---- */

static int gid_find(const struct sv_dev *dev, const union ibv_gid *gid,
		    enum ibv_gid_type type)
{
	unsigned int i;

	for (i = 0; i < dev->lim.gid; i++)
		if ((dev->gid_tbl[i].state == SV_GID_AUTO ||
		     dev->gid_tbl[i].state == SV_GID_SET) &&
		    dev->gid_tbl[i].type == type &&
		    !memcmp(&dev->gid_tbl[i].gid, gid, sizeof(*gid)))
			return (int)i;
	return -1;
}

static void gid_put(struct sv_dev *dev, const union ibv_gid *gid,
		    enum ibv_gid_type type, uint32_t ifindex)
{
	unsigned int i;

	if (dev->gid_manual || gid_find(dev, gid, type) >= 0)
		return;
	for (i = 0; i < dev->lim.gid; i++) {
		if (dev->gid_tbl[i].state != SV_GID_FREE)
			continue;
		dev->gid_tbl[i] = (struct sv_gid){
			.gid = *gid,
			.type = type,
			.ifindex = ifindex,
			.state = SV_GID_AUTO,
		};
		return;
	}
}

static void addr_add(struct sv_dev *dev, const struct ifaddrs *ifa)
{
	size_t len = ifa->ifa_addr->sa_family == AF_INET ?
			     sizeof(struct sockaddr_in) :
			     sizeof(struct sockaddr_in6);
	struct sv_dev_addr *addr = &dev->addrs[dev->addr_cnt];
	union ibv_gid gid;

	if (dev->addr_cnt == SV_MAX_DEV_ADDR || dev_has(dev, ifa->ifa_addr))
		return;
	dev->addr_cnt++;
	memcpy(addr, ifa->ifa_addr, len);
	addr->ifindex = if_nametoindex(ifa->ifa_name);
	sv_gid_of_addr(&addr->sa, &gid);
	if (dev->persona->gid_plan == SV_GID_V1_V2 ||
	    dev->persona->gid_plan == SV_GID_V1)
		gid_put(dev, &gid, IBV_GID_TYPE_ROCE_V1, addr->ifindex);
	if (dev->persona->gid_plan == SV_GID_V1_V2)
		gid_put(dev, &gid, IBV_GID_TYPE_ROCE_V2, addr->ifindex);
}

/* ---- GUIDs, and what InfiniBand makes of them ---- */

/* Made from the first hardware address, as NICs make theirs. */
static void guid_of_mac(struct sv_dev *dev, const struct ifaddrs *ifa)
{
	const struct sockaddr_ll *ll = (const void *)ifa->ifa_addr;
	static const uint8_t zero[MAC_LEN];
	uint8_t eui[8];

	if (dev->guid || dev->persona->gid_plan == SV_GID_GUID ||
	    ll->sll_halen != MAC_LEN || !memcmp(ll->sll_addr, zero, MAC_LEN))
		return;
	memcpy(eui, ll->sll_addr, 3);
	eui[0] ^= 2;
	eui[3] = 0xff;
	/* Several devices may share a network card. */
	eui[4] = (uint8_t)(0xfe - dev->index);
	memcpy(eui + 5, ll->sll_addr + 3, 3);
	memcpy(&dev->guid, eui, sizeof(eui));
}

/*
 * There is no subnet manager to ask what GUID and LID an IP address has, so on
 * the InfiniBand look both are made of it: the GUID has it in its lower half, the
 * LID is 1 more than the rest of its last two bytes by the number of LIDs. Of an
 * IPv6 address these are the last bytes.
 */
static __be64 guid_of_addr(const struct sockaddr *addr)
{
	uint8_t guid[8] = { 0x02, 'S', 'v', 0 };
	union ibv_gid gid;
	__be64 value;

	sv_gid_of_addr(addr, &gid);
	memcpy(guid + 4, &gid.raw[12], 4);
	memcpy(&value, guid, sizeof(value));
	return value;
}

static uint16_t lid_of_guid(__be64 guid)
{
	return (uint16_t)(1 + (be64toh(guid) & 0xffff) % SV_MAX_LID);
}

static void gid_of_guid(__be64 guid, union ibv_gid *gid)
{
	gid->global.subnet_prefix = htobe64(0xfe80000000000000ull);
	gid->global.interface_id = guid;
}

static void gid_of_mac(__be64 guid, union ibv_gid *gid)
{
	uint8_t eui[8];

	memcpy(eui, &guid, sizeof(eui));
	memset(gid, 0, sizeof(*gid));
	memcpy(gid->raw, eui, 3);
	gid->raw[0] ^= 2;
	memcpy(gid->raw + 3, eui + 5, 3);
}

/* Once; caller holds dev->lock. */
static void identify(struct sv_dev *dev)
{
	uint8_t fallback[8] = { 0x02, 0, 0, 0xff, 0xfe, 0, 0, 1 };
	union ibv_gid gid;

	if (dev->identified)
		return;
	dev->identified = true;
	if (dev->persona->gid_plan == SV_GID_GUID && !dev->guid &&
	    dev->addr_cnt)
		dev->guid = guid_of_addr(&dev->addrs[0].sa);
	if (!dev->guid) {
		fallback[4] = (uint8_t)(0xfe - dev->index);
		memcpy(&dev->guid, fallback, sizeof(fallback));
	}
	if (dev->persona->has_lid) {
		if (!dev->lid_given)
			dev->lid = lid_of_guid(dev->guid);
		dev->sm_lid = 1;
	}
	if (dev->persona->gid_plan == SV_GID_GUID)
		gid_of_guid(dev->guid, &gid);
	else if (dev->persona->gid_plan == SV_GID_MAC)
		gid_of_mac(dev->guid, &gid);
	else
		return;
	gid_put(dev, &gid, IBV_GID_TYPE_IB, 0);
}

/* ---- reading what the machine has ---- */

/* Loopback last: what picks the first GID gets a real address. */
static void dev_fill(struct sv_dev *dev, const struct ifaddrs *list)
{
	const struct ifaddrs *ifa;
	int loop;

	lock_take(&dev->lock);
	for (loop = 0; loop < 2; loop++)
		for (ifa = list; ifa; ifa = ifa->ifa_next) {
			if (!ifa->ifa_addr || !(ifa->ifa_flags & IFF_UP) ||
			    !(ifa->ifa_flags & IFF_LOOPBACK) != !loop ||
			    !dev_takes(dev, ifa))
				continue;
			if (ifa->ifa_addr->sa_family == AF_PACKET)
				guid_of_mac(dev, ifa);
			else if (is_ip(ifa->ifa_addr))
				addr_add(dev, ifa);
		}
	/* Of 127/8 an interface has but one, and all are the machine's. */
	for (loop = 0; loop < (int)dev->wanted_cnt; loop++) {
		struct ifaddrs lo = {
			.ifa_name = (char []){ "lo" },
			.ifa_addr = &dev->wanted[loop].sa,
		};

		if (is_loopback4(lo.ifa_addr))
			addr_add(dev, &lo);
	}
	identify(dev);
	lock_drop(&dev->lock);
}

void sv_dev_refresh(void)
{
	struct ifaddrs *list;
	struct sv_dev **devs;
	unsigned int i, cnt = sv_dev_list(&devs);

	if (getifaddrs(&list))
		list = NULL;
	for (i = 0; i < cnt; i++)
		dev_fill(devs[i], list);
	if (list)
		freeifaddrs(list);
}

/* ---- looking up ---- */

static struct sv_dev *owner_of(const struct sockaddr *addr)
{
	struct sv_dev **devs;
	unsigned int i, cnt = sv_dev_list(&devs);
	bool has = false;

	for (i = 0; i < cnt; i++) {
		lock_take(&devs[i]->lock);
		has = dev_has(devs[i], addr);
		lock_drop(&devs[i]->lock);
		if (has)
			return devs[i];
	}
	return NULL;
}

/* An address of 127/8 that is nobody's own is its interface's. */
static struct sv_dev *owner_or_loopback(const struct sockaddr *addr,
					struct sockaddr_in *lo)
{
	struct sv_dev *dev = owner_of(addr);

	memset(lo, 0, sizeof(*lo));
	if (dev || !is_loopback4(addr))
		return dev;
	lo->sin_family = AF_INET;
	lo->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return owner_of((struct sockaddr *)lo);
}

/* Caller holds dev->lock. */
static int cm_gid(const struct sv_dev *dev, const struct sockaddr *addr)
{
	union ibv_gid gid;
	unsigned int i;

	if (dev->persona->gid_plan == SV_GID_V1_V2 ||
	    dev->persona->gid_plan == SV_GID_V1) {
		sv_gid_of_addr(addr, &gid);
		return gid_find(dev, &gid, dev->persona->cm_gid_type);
	}
	for (i = 0; i < dev->lim.gid; i++)
		if (dev->gid_tbl[i].state == SV_GID_AUTO ||
		    dev->gid_tbl[i].state == SV_GID_SET)
			return (int)i;
	return -1;
}

struct sv_dev *sv_dev_find(const struct sockaddr *addr, int *gid_index)
{
	struct sockaddr_in lo; /* AF_UNSPEC: addr itself was found */
	struct sv_dev *dev;

	if (!is_ip(addr))
		return NULL;
	dev = owner_or_loopback(addr, &lo);
	if (!dev) {
		sv_dev_refresh();
		dev = owner_or_loopback(addr, &lo);
	}
	if (!dev)
		return NULL;
	if (lo.sin_family == AF_INET)
		addr = (struct sockaddr *)&lo;
	lock_take(&dev->lock);
	*gid_index = cm_gid(dev, addr);
	lock_drop(&dev->lock);
	return dev;
}

int sv_dev_gid_index(const struct sockaddr *addr)
{
	int index;

	return sv_dev_find(addr, &index) ? index : -1;
}

void sv_dev_path(struct sv_dev *dev, const struct sockaddr *addr,
		 union ibv_gid *gid, uint16_t *lid)
{
	struct sv_dev *owner;
	int index = -1;
	__be64 guid;

	*lid = 0;
	if (dev->persona->gid_plan != SV_GID_GUID) {
		sv_gid_of_addr(addr, gid);
		return;
	}
	guid = guid_of_addr(addr);
	owner = sv_dev_find(addr, &index);
	gid_of_guid(guid, gid);
	*lid = lid_of_guid(guid);
	if (!owner || index < 0 || !owner->persona->has_lid)
		return;
	lock_take(&owner->lock);
	*gid = owner->gid_tbl[index].gid;
	*lid = owner->lid;
	lock_drop(&owner->lock);
}

/* The device of this machine that has them. */
static bool own_path(const union ibv_gid *gid, uint16_t lid,
		     struct sv_dev_addr *addr)
{
	struct sv_dev **devs;
	unsigned int i, cnt = sv_dev_list(&devs);
	bool found = false;

	for (i = 0; i < cnt && !found; i++) {
		lock_take(&devs[i]->lock);
		found = devs[i]->persona->has_lid && devs[i]->addr_cnt &&
			(gid ? gid_find(devs[i], gid, IBV_GID_TYPE_IB) >= 0 :
			       lid == devs[i]->lid);
		if (found)
			*addr = devs[i]->addrs[0];
		lock_drop(&devs[i]->lock);
	}
	return found;
}

bool sv_dev_of_path(const union ibv_gid *gid, uint16_t lid,
		    struct sv_dev_addr *addr)
{
	__be64 guid;

	if (own_path(gid, lid, addr))
		return true;
	memset(addr, 0, sizeof(*addr));
	addr->in.sin_family = AF_INET;
	if (!gid)
		return false;
	memcpy(&addr->in.sin_addr, &gid->raw[12], sizeof(addr->in.sin_addr));
	guid = guid_of_addr(&addr->sa);
	return gid->global.interface_id == guid;
}

void sv_gid_fork_child(void)
{
	struct sv_dev **devs;
	unsigned int i, cnt = sv_dev_list(&devs);

	for (i = 0; i < cnt; i++)
		lock_init(&devs[i]->lock);
}
