/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * See fake_verbs.h. Only what discovery calls is there; the rest of the tables
 * is NULL, so that a call of it is noticed.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_verbs.h"
#include "vrc_dev.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_params.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

enum { FAKE_ROUTES = 8 };

struct fake_machine fake;
static struct ifaddrs ifaddr[FAKE_ADDRS];
static union vrc_sockaddr ifaddr_ip[FAKE_ADDRS], ifaddr_mask[FAKE_ADDRS];
static size_t ifaddr_cnt;
static struct {
	const char *dst, *src;
} route[FAKE_ROUTES];
static size_t route_cnt;
static _Thread_local union vrc_sockaddr connected;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

struct vrc_params vrc_params;
struct fi_provider vrc_prov = {
	.name = "vrc",
	.version = FI_VERSION(0, 1),
};

/* What -Wl,--wrap redirects here. */
int __wrap_getifaddrs(struct ifaddrs **out);
void __wrap_freeifaddrs(struct ifaddrs *list);
int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len);
int __wrap_getsockname(int fd, struct sockaddr *sa, socklen_t *len);
int __wrap_fi_log_enabled(const struct fi_provider *prov,
			  enum fi_log_level level, enum fi_log_subsys subsys);
void __wrap_fi_log(const struct fi_provider *prov, enum fi_log_level level,
		   enum fi_log_subsys subsys, const char *func, int line,
		   const char *fmt, ...) __printf_like(6, 7);

/*
 * Allocations of the code under test; the fake's own do not count. At zero the
 * countdown fails one, and stays there.
 */
void *__real_malloc(size_t len);
void *__real_calloc(size_t cnt, size_t len);
void *__real_realloc(void *old, size_t len);
char *__real_strdup(const char *str);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t cnt, size_t len);
void *__wrap_realloc(void *old, size_t len);
char *__wrap_strdup(const char *str);

static bool fails(int *countdown)
{
	return *countdown >= 0 && (*countdown)-- == 0;
}

static bool alloc_fails(void)
{
	if (!fails(&fake.fail_alloc))
		return false;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t len)
{
	return alloc_fails() ? NULL : __real_malloc(len);
}

void *__wrap_calloc(size_t cnt, size_t len)
{
	return alloc_fails() ? NULL : __real_calloc(cnt, len);
}

void *__wrap_realloc(void *old, size_t len)
{
	return alloc_fails() ? NULL : __real_realloc(old, len);
}

char *__wrap_strdup(const char *str)
{
	return alloc_fails() ? NULL : __real_strdup(str);
}

/* A verb that fails; errno says why. */
static bool verb_fails(void)
{
	if (!fails(&fake.fail_verb))
		return false;
	errno = EIO;
	return true;
}

static void parse_ip(union vrc_sockaddr *addr, const char *ip)
{
	memset(addr, 0, sizeof(*addr));
	addr->sa.sa_family = strchr(ip, ':') ? AF_INET6 : AF_INET;
	inet_pton(addr->sa.sa_family, ip,
		  addr->sa.sa_family == AF_INET ? (void *)&addr->in.sin_addr
						: (void *)&addr->in6.sin6_addr);
	if (addr->sa.sa_family == AF_INET6 &&
	    IN6_IS_ADDR_LINKLOCAL(&addr->in6.sin6_addr))
		addr->in6.sin6_scope_id = 2;
}

static bool is_ip(const struct sockaddr *sa, const char *ip)
{
	union vrc_sockaddr addr;

	parse_ip(&addr, ip);
	return vrc_sockaddr_same_ip(sa, &addr.sa);
}

int __wrap_getifaddrs(struct ifaddrs **out)
{
	if (verb_fails())
		return -1;
	*out = ifaddr_cnt ? ifaddr : NULL;
	fake.lists++;
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
	fake.lists--;
}

int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	memset(&connected, 0, sizeof(connected));
	for (size_t i = 0; i < route_cnt; i++) {
		if (*route[i].dst && !is_ip(sa, route[i].dst))
			continue;
		if (!route[i].src)
			break;
		parse_ip(&connected, route[i].src);
		return 0;
	}
	errno = ENETUNREACH;
	return -1;
}

int __wrap_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
	vrc_sockaddr_set_port(&connected.sa, 40000);
	memcpy(sa, &connected, vrc_sockaddr_len(&connected.sa));
	*len = vrc_sockaddr_len(&connected.sa);
	return 0;
}

int __wrap_fi_log_enabled(const struct fi_provider *prov,
			  enum fi_log_level level, enum fi_log_subsys subsys)
{
	return level == FI_LOG_WARN || level == FI_LOG_INFO;
}

void __wrap_fi_log(const struct fi_provider *prov, enum fi_log_level level,
		   enum fi_log_subsys subsys, const char *func, int line,
		   const char *fmt, ...)
{
	size_t used;
	va_list ap;

	pthread_mutex_lock(&log_lock);
	used = strlen(fake.log);
	if (level == FI_LOG_WARN)
		fake.warns++;
	else
		fake.infos++;
	va_start(ap, fmt);
	vsnprintf(fake.log + used, sizeof(fake.log) - used, fmt, ap);
	va_end(ap);
	pthread_mutex_unlock(&log_lock);
}

static struct ibv_device **get_list(bool softverbs, int *cnt)
{
	struct ibv_device **list;

	if (verb_fails())
		return NULL;
	list = __real_calloc(FAKE_DEVICES + 1, sizeof(*list));
	fake.lists++;
	if (!softverbs)
		fake.looks++;
	*cnt = 0;
	for (size_t i = 0; i < fake.device_cnt; i++) {
		if (fake.device[i].softverbs == softverbs &&
		    !fake.device[i].gone)
			list[(*cnt)++] = &fake.device[i].device;
	}
	return list;
}

static struct ibv_device **core_list(int *cnt)
{
	return get_list(false, cnt);
}

static struct ibv_device **soft_list(int *cnt)
{
	return get_list(true, cnt);
}

static void free_list(struct ibv_device **list)
{
	fake.lists--;
	free(list);
}

static const char *device_name(struct ibv_device *device)
{
	return device->name;
}

static __be64 device_guid(struct ibv_device *device)
{
	return 1;
}

static struct fake_device *fake_device(struct ibv_device *device)
{
	return (struct fake_device *)(void *)device;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	struct ibv_context *verbs;

	errno = fake_device(device)->open_errno;
	if (errno || verb_fails())
		return NULL;
	verbs = __real_calloc(1, sizeof(*verbs));
	verbs->device = device;
	fake.contexts++;
	return verbs;
}

static int close_device(struct ibv_context *verbs)
{
	fake.contexts--;
	free(verbs);
	return 0;
}

static int query_device(struct ibv_context *verbs, struct ibv_device_attr *attr)
{
	if (verb_fails())
		return EIO;
	*attr = fake_device(verbs->device)->attr;
	return 0;
}

static int query_port(struct ibv_context *verbs, uint8_t port_num,
		      struct ibv_port_attr *attr)
{
	if (verb_fails())
		return EIO;
	*attr = fake_device(verbs->device)->port[port_num - 1];
	return 0;
}

/* As the kernel answers: beyond the table, an empty entry, one in use. */
static int query_gid_ex(struct ibv_context *verbs, uint32_t port_num,
			uint32_t gid_index, struct ibv_gid_entry *entry,
			uint32_t flags)
{
	const struct fake_device *dev = fake_device(verbs->device);

	if (gid_index >= (uint32_t)dev->port[port_num - 1].gid_tbl_len)
		return EINVAL;
	return gid_index >= dev->gid_cnt ? ENODATA : 0;
}

static struct rdma_event_channel *create_channel(void)
{
	if (fake.no_rdma_cm) {
		errno = ENODEV;
		return NULL;
	}
	if (verb_fails())
		return NULL;
	fake.channels++;
	return __real_calloc(1, sizeof(struct rdma_event_channel));
}

static void destroy_channel(struct rdma_event_channel *channel)
{
	fake.channels--;
	free(channel);
}

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		     void *context, enum rdma_port_space ps)
{
	if (verb_fails())
		return -1;
	*id = __real_calloc(1, sizeof(**id));
	fake.ids++;
	return 0;
}

static int destroy_id(struct rdma_cm_id *id)
{
	free(id->verbs);
	free(id);
	fake.ids--;
	return 0;
}

static int bind_id(struct rdma_cm_id *id, const struct sockaddr *sa,
		   bool softverbs)
{
	if (verb_fails())
		return -1;
	for (size_t i = 0; i < fake.device_cnt; i++) {
		struct fake_device *dev = &fake.device[i];

		if (dev->softverbs != softverbs)
			continue;
		/* As the kernel does: loopback is the first device's. */
		for (size_t j = 0; j < dev->addr_cnt; j++) {
			if (!is_ip(sa, dev->addr[j].ip) &&
			    (softverbs || !vrc_sockaddr_is_loopback(sa)))
				continue;
			id->verbs = __real_calloc(1, sizeof(*id->verbs));
			id->verbs->device = &dev->device;
			id->port_num = dev->addr[j].port_num;
			return 0;
		}
	}
	errno = ENODEV;
	return -1;
}

static int core_bind(struct rdma_cm_id *id, struct sockaddr *sa)
{
	return bind_id(id, sa, false);
}

static int soft_bind(struct rdma_cm_id *id, struct sockaddr *sa)
{
	return bind_id(id, sa, true);
}

const struct vrc_verbs_ops vrc_verbs_rdma_core = {
	.name = "rdma-core",
	.get_device_list = core_list,
	.free_device_list = free_list,
	.get_device_name = device_name,
	.get_device_guid = device_guid,
	.open_device = open_device,
	.close_device = close_device,
	.query_device = query_device,
	.query_port = query_port,
	.query_gid_ex = query_gid_ex,
	.create_event_channel = create_channel,
	.destroy_event_channel = destroy_channel,
	.create_id = create_id,
	.destroy_id = destroy_id,
	.bind_addr = core_bind,
};

const struct vrc_verbs_ops vrc_verbs_softverbs = {
	.name = "softverbs",
	.is_softverbs = true,
	.get_device_list = soft_list,
	.free_device_list = free_list,
	.get_device_name = device_name,
	.get_device_guid = device_guid,
	.open_device = open_device,
	.close_device = close_device,
	.query_device = query_device,
	.query_port = query_port,
	.query_gid_ex = query_gid_ex,
	.create_event_channel = create_channel,
	.destroy_event_channel = destroy_channel,
	.create_id = create_id,
	.destroy_id = destroy_id,
	.bind_addr = soft_bind,
};

void fake_reset(void)
{
	vrc_dev_forget();
	memset(&fake, 0, sizeof(fake));
	fake.fail_alloc = -1;
	fake.fail_verb = -1;
	fake_ifaddr_clear();
	route_cnt = 0;
	vrc_params = (struct vrc_params){
		.softverbs = VRC_SOFTVERBS_AUTO,
		.tx_size = 384,
		.rx_size = 384,
		.inject_size = 256,
		.gid_index = -1,
	};
	unsetenv("FI_PROVIDER");
}

static struct fake_device *add(const char *name)
{
	struct fake_device *dev = &fake.device[fake.device_cnt++];

	snprintf(dev->device.name, sizeof(dev->device.name), "%s", name);
	dev->device.node_type = IBV_NODE_CA;
	dev->device.transport_type = IBV_TRANSPORT_IB;
	dev->gid_cnt = 8;
	dev->attr = (struct ibv_device_attr){
		.fw_ver = "1.2.3",
		.vendor_id = 0x02c9,
		.vendor_part_id = 4119,
		.hw_ver = 7,
		.max_qp = 1000,
		.max_qp_wr = 16384,
		.max_sge = 30,
		.max_cq = 2000,
		.max_cqe = 65536,
		.max_mr = 3000,
		.atomic_cap = IBV_ATOMIC_HCA,
		.phys_port_cnt = 1,
	};
	for (int i = 0; i < 2; i++)
		dev->port[i] = (struct ibv_port_attr){
			.state = IBV_PORT_ACTIVE,
			.max_mtu = IBV_MTU_4096,
			.active_mtu = IBV_MTU_1024,
			.max_msg_sz = 1u << 30,
			.gid_tbl_len = 8,
			.active_width = 2,  /* 4x */
			.active_speed = 32, /* 25 Gb/s */
			.link_layer = IBV_LINK_LAYER_ETHERNET,
		};
	return dev;
}

struct fake_device *fake_add_roce(const char *name)
{
	return add(name);
}

struct fake_device *fake_add_ib(const char *name)
{
	struct fake_device *dev = add(name);

	dev->port[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
	return dev;
}

struct fake_device *fake_add_iwarp(const char *name)
{
	struct fake_device *dev = add(name);

	dev->device.node_type = IBV_NODE_RNIC;
	dev->device.transport_type = IBV_TRANSPORT_IWARP;
	dev->attr.atomic_cap = IBV_ATOMIC_NONE;
	return dev;
}

struct fake_device *fake_add_softverbs(void)
{
	struct fake_device *dev = add("softverbs0");

	dev->softverbs = true;
	return dev;
}

void fake_bind(struct fake_device *dev, const char *ip, uint8_t port_num)
{
	dev->addr[dev->addr_cnt].ip = ip;
	dev->addr[dev->addr_cnt++].port_num = port_num;
}

void fake_ifaddr_clear(void)
{
	ifaddr_cnt = 0;
}

void fake_ifaddr(const char *ifname, const char *ip, uint8_t prefix,
		 unsigned int flags)
{
	size_t i = ifaddr_cnt++;
	uint8_t *byte;

	parse_ip(&ifaddr_ip[i], ip);
	ifaddr_mask[i] = (union vrc_sockaddr){ 0 };
	ifaddr_mask[i].sa.sa_family = ifaddr_ip[i].sa.sa_family;
	byte = ifaddr_ip[i].sa.sa_family == AF_INET
		       ? (uint8_t *)&ifaddr_mask[i].in.sin_addr
		       : (uint8_t *)&ifaddr_mask[i].in6.sin6_addr;
	for (uint8_t bit = 0; bit < prefix; bit++)
		byte[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
	ifaddr[i] = (struct ifaddrs){
		.ifa_name = (char *)(uintptr_t)ifname,
		.ifa_flags = flags,
		.ifa_addr = &ifaddr_ip[i].sa,
		.ifa_netmask = &ifaddr_mask[i].sa,
	};
	if (i)
		ifaddr[i - 1].ifa_next = &ifaddr[i];
}

void fake_route(const char *dst, const char *src)
{
	route[route_cnt].dst = dst;
	route[route_cnt++].src = src;
}

void fake_plain_host(void)
{
	struct fake_device *dev = fake_add_softverbs();

	fake_ifaddr("lo", "127.0.0.1", 8, IFF_UP | IFF_LOOPBACK);
	fake_ifaddr("eth0", "192.0.2.2", 24, IFF_UP);
	fake_ifaddr("lo", "::1", 128, IFF_UP | IFF_LOOPBACK);
	fake_ifaddr("eth0", "fd00::2", 64, IFF_UP);
	fake_ifaddr("eth0", "fe80::2", 64, IFF_UP);
	fake_bind(dev, "127.0.0.1", 1);
	fake_bind(dev, "::1", 1);
	fake_bind(dev, "192.0.2.2", 1);
	fake_bind(dev, "fd00::2", 1);
	fake_bind(dev, "fe80::2", 1);
	fake_route("127.0.0.1", "127.0.0.1");
	fake_route("::1", "::1");
	fake_route("192.0.2.2", "192.0.2.2");
	fake_route("192.0.2.9", "192.0.2.2");
	fake_route("fd00::9", "fd00::2");
}

struct fake_device *fake_roce_host(void)
{
	struct fake_device *dev = fake_add_roce("roce0");

	fake_plain_host();
	fake_ifaddr("eth1", "10.7.0.1", 24, IFF_UP);
	fake_ifaddr("eth1", "fd00:7::1", 64, IFF_UP);
	fake_bind(dev, "10.7.0.1", 1);
	fake_bind(dev, "fd00:7::1", 1);
	fake_route("10.7.0.9", "10.7.0.1");
	return dev;
}

int fake_getinfo(const char *node, const char *service, uint64_t flags,
		 const struct fi_info *hints, struct fi_info **info)
{
	fake.log[0] = '\0';
	fake.warns = 0;
	fake.infos = 0;
	*info = NULL;
	return vrc_getinfo(FI_VERSION(1, 17), node, service, flags, hints,
			   info);
}

void fake_check_clean(void)
{
	cr_assert_eq(fake.contexts, 0, "%d contexts left", fake.contexts);
	cr_assert_eq(fake.ids, 0, "%d ids left", fake.ids);
	cr_assert_eq(fake.channels, 0, "%d channels left", fake.channels);
	cr_assert_eq(fake.lists, 0, "%d lists left", fake.lists);
}
