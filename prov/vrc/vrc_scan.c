/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One look at the machine: its verbs devices, and which IP addresses lead to
 * which of them.
 *
 * An address belongs to the device that rdma_cm binds it to. That is one rule
 * for RoCE, IPoIB, iWARP, VLANs, bonds and softverbs, it is what a connection
 * will do later, and it needs no look at the GID table (whose entries may be
 * unreadable) but for the entry that FI_VRC_GID_INDEX names. Binding is local; nothing here waits for a network. Whatever is
 * opened is closed again. What cannot be used is noted, never fatal; only
 * memory can run out.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_dev.h"
#include "vrc_info.h"
#include "vrc_params.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

static void note(struct vrc_scan *scan, const char *fmt, ...)
	__printf_like(2, 3);
static void note(struct vrc_scan *scan, const char *fmt, ...)
{
	size_t used = strlen(scan->notes);
	va_list ap;

	if (used)
		used += (size_t)snprintf(scan->notes + used,
					 sizeof(scan->notes) - used, "; ");
	if (used >= sizeof(scan->notes))
		return;
	va_start(ap, fmt);
	vsnprintf(scan->notes + used, sizeof(scan->notes) - used, fmt, ap);
	va_end(ap);
}

/* 0 or an errno. */
static int read_limits(struct vrc_dev *dev, struct ibv_context *verbs)
{
	int ret = dev->ops->query_device(verbs, &dev->attr);

	if (ret)
		return -vrc_err(ret);
	dev->ports = calloc(dev->attr.phys_port_cnt + 1, sizeof(*dev->ports));
	if (!dev->ports)
		return ENOMEM;
	/* A port that cannot be read counts as down. */
	for (unsigned int n = 1; n <= dev->attr.phys_port_cnt; n++) {
		if (dev->ops->query_port(verbs, (uint8_t)n, &dev->ports[n - 1]))
			dev->ports[n - 1].state = IBV_PORT_NOP;
	}
	return 0;
}

/* NULL with errno set. */
static struct vrc_dev *dev_create(const struct vrc_verbs_ops *ops,
				  struct ibv_device *device)
{
	struct ibv_context *verbs;
	struct vrc_dev *dev;
	int err;

	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;
	atomic_init(&dev->ref, 1);
	dev->ops = ops;
	snprintf(dev->name, sizeof(dev->name), "%s",
		 ops->get_device_name(device));
	dev->guid = ops->get_device_guid(device);
	dev->is_iwarp = device->transport_type == IBV_TRANSPORT_IWARP;
	verbs = ops->open_device(device);
	if (!verbs)
		goto err_put_dev;
	err = read_limits(dev, verbs);
	ops->close_device(verbs);
	if (!err)
		return dev;
	errno = err;

err_put_dev:
	vrc_dev_put(dev);
	return NULL;
}

/* Of the port that the best address is on. */
static size_t dev_speed(const struct vrc_dev *dev)
{
	return vrc_port_speed(&dev->ports[dev->addrs[0].port_num - 1]);
}

/* Best first: IPv4, routable IPv6, link-local, loopback. */
static int addr_rank(const struct sockaddr *sa)
{
	const union vrc_sockaddr *addr = (const void *)sa;

	if (vrc_sockaddr_is_loopback(sa))
		return 3;
	if (sa->sa_family == AF_INET)
		return ntohl(addr->in.sin_addr.s_addr) >> 16 == 0xa9fe ? 2 : 0;
	return IN6_IS_ADDR_LINKLOCAL(&addr->in6.sin6_addr) ? 2 : 1;
}

static int dev_add_addr(struct vrc_dev *dev, const struct vrc_addr *addr)
{
	struct vrc_addr *addrs;
	size_t i = dev->addr_cnt;

	addrs = realloc(dev->addrs, (dev->addr_cnt + 1) * sizeof(*addrs));
	if (!addrs)
		return -FI_ENOMEM;
	for (;
	     i && addr_rank(&addrs[i - 1].addr.sa) > addr_rank(&addr->addr.sa);
	     i--)
		addrs[i] = addrs[i - 1];
	addrs[i] = *addr;
	dev->addrs = addrs;
	dev->addr_cnt++;
	return 0;
}

static uint8_t prefix_len(const struct sockaddr *mask)
{
	const void *addr = mask;
	const uint8_t *byte;
	size_t cnt;
	uint8_t len = 0;

	if (!mask)
		return 0;
	byte = mask->sa_family == AF_INET
		       ? (const void *)&((const struct sockaddr_in *)addr)->sin_addr
		       : (const void *)&((const struct sockaddr_in6 *)addr)->sin6_addr;
	cnt = mask->sa_family == AF_INET ? 4 : 16;
	for (size_t i = 0; i < cnt; i++)
		len = (uint8_t)(len + __builtin_popcount(byte[i]));
	return len;
}

/* An interface's address that this backend should be asked about. */
static bool ifa_wanted(const struct vrc_verbs_ops *ops,
		       const struct ifaddrs *ifa)
{
	/* An alias such as eth0:1 is eth0. */
	size_t len = strcspn(ifa->ifa_name, ":");

	if (!ifa->ifa_addr || !(ifa->ifa_flags & IFF_UP) ||
	    !vrc_sockaddr_len(ifa->ifa_addr) ||
	    vrc_sockaddr_is_any(ifa->ifa_addr))
		return false;
	/*
	 * rdma_cm binds 127.0.0.1 to whatever hardware comes first, which then
	 * is not what answers there.
	 */
	if (!ops->is_softverbs && vrc_sockaddr_is_loopback(ifa->ifa_addr))
		return false;
	return !vrc_params.iface ||
	       (strlen(vrc_params.iface) == len &&
		!strncmp(vrc_params.iface, ifa->ifa_name, len));
}

static struct vrc_dev *scan_find(const struct vrc_scan *scan,
				 const struct vrc_verbs_ops *ops,
				 const char *name)
{
	for (size_t i = 0; i < scan->list.cnt; i++) {
		if (scan->list.devs[i]->ops == ops &&
		    !strcmp(scan->list.devs[i]->name, name))
			return scan->list.devs[i];
	}
	return NULL;
}

static const char *port_state_str(enum ibv_port_state state)
{
	static const char *const names[] = { "unreadable",   "down",
					     "initializing", "armed",
					     "active",	     "deferred" };

	return (size_t)state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

/* What cannot be read may still be good. On iWARP it does not matter. */
static bool gid_empty(const struct vrc_dev *dev, const struct rdma_cm_id *id)
{
	struct ibv_gid_entry entry;

	return vrc_params.gid_index >= 0 && !dev->is_iwarp &&
	       dev->ops->query_gid_ex(id->verbs, id->port_num,
				      (uint32_t)vrc_params.gid_index, &entry,
				      0) == ENODATA;
}

/* id is bound to the address of ifa. */
static int claim_addr(struct vrc_scan *scan, const struct vrc_verbs_ops *ops,
		      const struct ifaddrs *ifa, const struct rdma_cm_id *id)
{
	const char *name = ops->get_device_name(id->verbs->device);
	struct vrc_dev *dev = scan_find(scan, ops, name);
	struct vrc_addr addr = { .port_num = id->port_num };
	char str[VRC_ADDRSTR];

	if (!dev) /* left out by FI_VRC_DEVICE_NAME, or it could not be read */
		return 0;
	memcpy(&addr.addr, ifa->ifa_addr, vrc_sockaddr_len(ifa->ifa_addr));
	vrc_sockaddr_set_port(&addr.addr.sa, 0);
	if (!addr.port_num || addr.port_num > dev->attr.phys_port_cnt) {
		note(scan, "%s: rdma_cm says port %u of %u", name,
		     addr.port_num, dev->attr.phys_port_cnt);
		return 0;
	}
	if (dev->ports[addr.port_num - 1].state != IBV_PORT_ACTIVE) {
		note(scan, "%s port %u (%s, %s) is %s, not active", name,
		     addr.port_num, ifa->ifa_name,
		     vrc_sockaddr_str(&addr.addr.sa, str),
		     port_state_str(dev->ports[addr.port_num - 1].state));
		return 0;
	}
	snprintf(addr.netdev, sizeof(addr.netdev), "%.*s",
		 (int)min_size(strcspn(ifa->ifa_name, ":"),
			       sizeof(addr.netdev) - 1),
		 ifa->ifa_name);
	addr.gid_empty = gid_empty(dev, id);
	addr.prefix_len = prefix_len(ifa->ifa_netmask);
	vrc_dev_net_name(&addr.addr.sa, addr.prefix_len, addr.fabric,
			 sizeof(addr.fabric));
	return dev_add_addr(dev, &addr);
}

static int scan_addrs(struct vrc_scan *scan, const struct vrc_verbs_ops *ops)
{
	struct rdma_event_channel *channel = ops->create_event_channel();
	union vrc_sockaddr addr;
	struct rdma_cm_id *id;
	int ret = 0;

	if (!channel) {
		note(scan, "%s: no rdma_cm: %s", ops->name, strerror(errno));
		return errno == ENOMEM ? -FI_ENOMEM : 0;
	}
	for (const struct ifaddrs *ifa = scan->ifaddrs; ifa && !ret;
	     ifa = ifa->ifa_next) {
		if (!ifa_wanted(ops, ifa))
			continue;
		if (ops->create_id(channel, &id, NULL, RDMA_PS_TCP))
			continue;
		memset(&addr, 0, sizeof(addr));
		memcpy(&addr, ifa->ifa_addr, vrc_sockaddr_len(ifa->ifa_addr));
		/* Most addresses of most machines have no RDMA device, so a
		 * failure is nothing to speak of. */
		if (!ops->bind_addr(id, &addr.sa) && id->verbs)
			ret = claim_addr(scan, ops, ifa, id);
		ops->destroy_id(id);
	}
	ops->destroy_event_channel(channel);
	return ret;
}

/* Devices that no address leads to cannot be connected to. */
static void scan_drop_unreachable(struct vrc_scan *scan,
				  const struct vrc_verbs_ops *ops)
{
	size_t kept = 0;

	for (size_t i = 0; i < scan->list.cnt; i++) {
		struct vrc_dev *dev = scan->list.devs[i];

		if (dev->ops != ops || dev->addr_cnt) {
			scan->list.devs[kept++] = dev;
			continue;
		}
		note(scan, "%s: no usable IP address%s%s", dev->name,
		     vrc_params.iface ? " on FI_VRC_IFACE=" : "",
		     vrc_params.iface ? vrc_params.iface : "");
		vrc_dev_put(dev);
	}
	scan->list.cnt = kept;
}

static int scan_device(struct vrc_scan *scan, const struct vrc_verbs_ops *ops,
		       struct ibv_device *device)
{
	const char *name = ops->get_device_name(device);
	struct vrc_dev **devs;
	struct vrc_dev *dev;

	if (vrc_params.device && strcmp(vrc_params.device, name)) {
		note(scan, "%s: not FI_VRC_DEVICE_NAME=%s", name,
		     vrc_params.device);
		return 0;
	}
	devs = realloc(scan->list.devs,
		       (scan->list.cnt + 1) * sizeof(*scan->list.devs));
	if (!devs)
		return -FI_ENOMEM;
	scan->list.devs = devs;
	dev = dev_create(ops, device);
	if (!dev) {
		note(scan, "%s: cannot be opened: %s", name, strerror(errno));
		return errno == ENOMEM ? -FI_ENOMEM : 0;
	}
	devs[scan->list.cnt++] = dev;
	return 0;
}

/* Adds the backend's usable devices; how many there were, or -FI_ENOMEM. */
static int scan_backend(struct vrc_scan *scan, const struct vrc_verbs_ops *ops)
{
	size_t before = scan->list.cnt;
	struct ibv_device **devices;
	int cnt = 0;
	int ret = 0;

	devices = ops->get_device_list(&cnt);
	if (!devices)
		return errno == ENOMEM ? -FI_ENOMEM : 0;
	for (int i = 0; i < cnt && !ret; i++)
		ret = scan_device(scan, ops, devices[i]);
	ops->free_device_list(devices);
	/* rdma_cm complains on stderr where there is no device at all. */
	if (!ret && scan->list.cnt > before)
		ret = scan_addrs(scan, ops);
	if (ret)
		return ret;
	scan_drop_unreachable(scan, ops);
	return (int)(scan->list.cnt - before);
}

/* True if the device hangs off the NUMA node that this thread runs on, or if
 * nobody knows. */
static bool is_near(const struct vrc_dev *dev)
{
	unsigned int here;
	char path[128];
	FILE *file;
	int node = -1;

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%.63s/device/numa_node", dev->name);
	file = fopen(path, "re");
	if (!file)
		return true;
	if (fscanf(file, "%d", &node) != 1)
		node = -1;
	fclose(file);
	return node < 0 || getcpu(NULL, &here) || (unsigned int)node == here;
}

/* Nearest first, then fastest, else as the backend lists them. */
static void scan_sort(struct vrc_scan *scan)
{
	struct vrc_dev **devs = scan->list.devs;

	for (size_t i = 1; i < scan->list.cnt; i++) {
		struct vrc_dev *dev = devs[i];
		bool near = is_near(dev);
		size_t speed = dev_speed(dev);
		size_t j = i;

		for (; j; j--) {
			bool other_near = is_near(devs[j - 1]);

			if (near != other_near
				    ? other_near
				    : dev_speed(devs[j - 1]) >= speed)
				break;
			devs[j] = devs[j - 1];
		}
		devs[j] = dev;
	}
}

int vrc_scan_softverbs(struct vrc_scan *scan)
{
	int ret = scan_backend(scan, &vrc_verbs_softverbs);

	return ret < 0 ? ret : 0;
}

int vrc_scan_all(struct vrc_scan *scan)
{
	int real = scan_backend(scan, &vrc_verbs_rdma_core);

	if (real < 0)
		return real;
	scan_sort(scan);
	if (vrc_params.softverbs == VRC_SOFTVERBS_NEVER) {
		if (!real)
			note(scan, "FI_VRC_SOFTVERBS=never");
		return 0;
	}
	if (real && vrc_params.softverbs == VRC_SOFTVERBS_AUTO)
		return 0;
	return vrc_scan_softverbs(scan);
}
