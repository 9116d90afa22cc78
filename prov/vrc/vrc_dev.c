/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The devices that were found, kept for a while.
 *
 * Looking (vrc_scan.c) opens every device, and some programs call fi_getinfo
 * thousands of times. So the list is used again while it is younger than
 * VRC_DEV_CACHE_MS and the interface addresses are still the same. Devices that
 * come, go or change state are noticed within that time; addresses at once. No
 * device stays open on account of the list.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_dev.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_params.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

enum {
	VRC_DEV_CACHE_MS = 1000,
	/* Less than this and hardware hardly works, bytes. */
	VRC_MEMLOCK_LOW = 1 << 20,
};

/* The last look; all guarded by cache_lock, which is held for moments. */
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	bool valid;
	uint64_t built_ms;
	uint64_t ifaddrs_hash;
	uint64_t logged_hash;
	struct vrc_dev_list list;
	char notes[VRC_DEV_NOTES];
} cache;

struct vrc_dev *vrc_dev_ref(struct vrc_dev *dev)
{
	/* Relaxed: whoever calls has a reference already. */
	atomic_fetch_add_explicit(&dev->ref, 1, memory_order_relaxed);
	return dev;
}

void vrc_dev_put(struct vrc_dev *dev)
{
	/* Pairs with itself: the last one sees what the others did. */
	if (atomic_fetch_sub_explicit(&dev->ref, 1, memory_order_acq_rel) != 1)
		return;
	free(dev->ports);
	free(dev->addrs);
	free(dev);
}

void vrc_dev_list_free(struct vrc_dev_list *list)
{
	for (size_t i = 0; i < list->cnt; i++)
		vrc_dev_put(list->devs[i]);
	free(list->devs);
	list->devs = NULL;
	list->cnt = 0;
}

static int list_copy(struct vrc_dev_list *to, const struct vrc_dev_list *from)
{
	to->cnt = 0;
	to->devs = calloc(from->cnt + 1, sizeof(*to->devs));
	if (!to->devs)
		return -FI_ENOMEM;
	for (; to->cnt < from->cnt; to->cnt++)
		to->devs[to->cnt] = vrc_dev_ref(from->devs[to->cnt]);
	return 0;
}

/* The bytes of an IP; how many there are in *cnt. */
static const uint8_t *ip_bytes(const struct sockaddr *sa, size_t *cnt)
{
	const union vrc_sockaddr *addr = (const void *)sa;

	*cnt = sa->sa_family == AF_INET ? 4 : 16;
	return sa->sa_family == AF_INET ? (const uint8_t *)&addr->in.sin_addr
					: (const uint8_t *)&addr->in6.sin6_addr;
}

static uint8_t mask_byte(size_t i, uint8_t prefix)
{
	size_t bits = prefix > 8 * i ? prefix - 8 * i : 0;

	return bits >= 8 ? 0xff : (uint8_t)(0xff00 >> bits);
}

void vrc_dev_net_name(const struct sockaddr *sa, uint8_t prefix, char *buf,
		      size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "?";
	uint8_t net[16];
	size_t cnt;
	const uint8_t *byte = ip_bytes(sa, &cnt);

	for (size_t i = 0; i < cnt; i++)
		net[i] = byte[i] & mask_byte(i, prefix);
	inet_ntop(sa->sa_family, net, ip, sizeof(ip));
	snprintf(buf, len, "%s/%u", ip, prefix);
}

bool vrc_dev_on_link(const struct vrc_addr *addr, const struct sockaddr *sa)
{
	const uint8_t *a, *b;
	size_t cnt;

	if (addr->addr.sa.sa_family != sa->sa_family)
		return false;
	a = ip_bytes(&addr->addr.sa, &cnt);
	b = ip_bytes(sa, &cnt);
	for (size_t i = 0; i < cnt; i++) {
		if ((a[i] ^ b[i]) & mask_byte(i, addr->prefix_len))
			return false;
	}
	return true;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
	const uint8_t *byte = data;

	/* FNV-1a. */
	while (len--)
		hash = (hash ^ *byte++) * 0x100000001b3ULL;
	return hash;
}

static uint64_t ifaddrs_hash(const struct ifaddrs *ifa)
{
	uint64_t hash = 0xcbf29ce484222325ULL;
	unsigned int up;

	for (; ifa; ifa = ifa->ifa_next) {
		if (!ifa->ifa_addr || !vrc_sockaddr_len(ifa->ifa_addr))
			continue;
		up = ifa->ifa_flags & IFF_UP;
		hash = hash_bytes(hash, ifa->ifa_name, strlen(ifa->ifa_name));
		hash = hash_bytes(hash, &up, sizeof(up));
		hash = hash_bytes(hash, ifa->ifa_addr,
				  vrc_sockaddr_len(ifa->ifa_addr));
		if (ifa->ifa_netmask)
			hash = hash_bytes(hash, ifa->ifa_netmask,
					  vrc_sockaddr_len(ifa->ifa_addr));
	}
	return hash;
}

/* One line: the devices, where they are, and why not others. */
static uint64_t describe(const struct vrc_scan *scan, char *buf, size_t len)
{
	size_t used = 0;
	char str[VRC_ADDRSTR];

	buf[0] = '\0';
	for (size_t i = 0; i < scan->list.cnt; i++) {
		const struct vrc_dev *dev = scan->list.devs[i];

		used += (size_t)snprintf(buf + used, len - used, "%s%s (%s",
					 i ? ", " : "", dev->name,
					 dev->ops->name);
		used = min_size(used, len - 1);
		if (dev->ops->is_softverbs)
			used += (size_t)snprintf(
				buf + used, len - used, "; %s",
				vrc_params.softverbs == VRC_SOFTVERBS_ALWAYS
					? "FI_VRC_SOFTVERBS=always"
					: "no usable RDMA device");
		used = min_size(used, len - 1);
		for (size_t j = 0; j < dev->addr_cnt; j++) {
			vrc_sockaddr_str(&dev->addrs[j].addr.sa, str);
			*strrchr(str, ':') = '\0';
			used += (size_t)snprintf(buf + used, len - used,
						 "%s%s %s", j ? ", " : "; ",
						 dev->addrs[j].netdev, str);
			used = min_size(used, len - 1);
		}
		used += (size_t)snprintf(buf + used, len - used, ")");
		used = min_size(used, len - 1);
	}
	return hash_bytes(0, buf, used);
}

/* Takes over scan->list; *text is what to log, or "". */
static void cache_store(struct vrc_scan *scan, uint64_t hash, char *text,
			size_t len)
{
	struct vrc_dev_list old;
	uint64_t text_hash = describe(scan, text, len);

	pthread_mutex_lock(&cache_lock);
	old = cache.list;
	cache.list = scan->list;
	memcpy(cache.notes, scan->notes, sizeof(cache.notes));
	cache.built_ms = vrc_now_ms();
	cache.ifaddrs_hash = hash;
	cache.valid = true;
	if (!cache.list.cnt || text_hash == cache.logged_hash)
		text[0] = '\0';
	else
		cache.logged_hash = text_hash;
	pthread_mutex_unlock(&cache_lock);
	vrc_dev_list_free(&old);
}

/* 0, -FI_ENOMEM, or -FI_ENODATA if the list is stale. */
static int cache_copy(struct vrc_dev_list *list, uint64_t hash)
{
	int ret = -FI_ENODATA;

	pthread_mutex_lock(&cache_lock);
	if (cache.valid && cache.ifaddrs_hash == hash &&
	    vrc_now_ms() - cache.built_ms < VRC_DEV_CACHE_MS)
		ret = list_copy(list, &cache.list);
	pthread_mutex_unlock(&cache_lock);
	return ret;
}

/*
 * The lock is not held while looking: two threads may look at once, and then
 * the later one's list stays. A thread that forks meanwhile leaves the child a
 * lock that is free.
 */
static int look(struct vrc_dev_list *list, const struct ifaddrs *ifaddrs,
		uint64_t hash)
{
	struct vrc_scan scan = { .ifaddrs = ifaddrs };
	char text[1024];
	int ret;

	ret = vrc_scan_all(&scan);
	if (!ret)
		ret = list_copy(list, &scan.list);
	if (ret) {
		vrc_dev_list_free(&scan.list);
		return ret;
	}
	cache_store(&scan, hash, text, sizeof(text));
	if (*text)
		vrc_info(CORE, "using %s%s%s\n", text,
			 *scan.notes ? "; left out: " : "", scan.notes);
	return 0;
}

int vrc_dev_list_get(struct vrc_dev_list *list)
{
	struct ifaddrs *ifaddrs;
	uint64_t hash;
	int ret;

	if (getifaddrs(&ifaddrs)) {
		ret = vrc_err(errno);
		vrc_warn(CORE, "interface addresses cannot be listed: %s\n",
			 fi_strerror(-ret));
		return ret;
	}
	hash = ifaddrs_hash(ifaddrs);
	ret = cache_copy(list, hash);
	if (ret == -FI_ENODATA)
		ret = look(list, ifaddrs, hash);
	freeifaddrs(ifaddrs);
	return ret;
}

void vrc_dev_notes(char *buf, size_t len)
{
	pthread_mutex_lock(&cache_lock);
	snprintf(buf, len, "%s", cache.notes);
	pthread_mutex_unlock(&cache_lock);
}

void vrc_dev_forget(void)
{
	struct vrc_dev_list old;

	pthread_mutex_lock(&cache_lock);
	old = cache.list;
	cache.list = (struct vrc_dev_list){ 0 };
	cache.valid = false;
	pthread_mutex_unlock(&cache_lock);
	vrc_dev_list_free(&old);
}

/* Takes the named device out of list, which is freed. */
static struct vrc_dev *take(struct vrc_dev_list *list, const char *name)
{
	struct vrc_dev *dev = NULL;

	for (size_t i = 0; i < list->cnt && !dev; i++) {
		if (!strcmp(list->devs[i]->name, name))
			dev = vrc_dev_ref(list->devs[i]);
	}
	vrc_dev_list_free(list);
	return dev;
}

struct vrc_dev *vrc_dev_get(const char *name)
{
	struct vrc_scan scan = { 0 };
	struct vrc_dev_list list;
	struct ifaddrs *ifaddrs;
	struct vrc_dev *dev;

	if (vrc_dev_list_get(&list))
		return NULL;
	dev = take(&list, name);
	if (dev || vrc_params.softverbs != VRC_SOFTVERBS_AUTO)
		return dev;
	/* An info may be older than the hardware that now makes softverbs
	 * unnecessary; it still has to be good. */
	if (getifaddrs(&ifaddrs))
		return NULL;
	scan.ifaddrs = ifaddrs;
	if (vrc_scan_softverbs(&scan))
		vrc_dev_list_free(&scan.list);
	else
		dev = take(&scan.list, name);
	freeifaddrs(ifaddrs);
	return dev;
}

const struct vrc_addr *vrc_dev_find_addr(const struct vrc_dev *dev,
					 const struct sockaddr *sa)
{
	for (size_t i = 0; i < dev->addr_cnt; i++) {
		if (vrc_sockaddr_same_ip(&dev->addrs[i].addr.sa, sa))
			return &dev->addrs[i];
	}
	return NULL;
}

struct ibv_context *vrc_dev_open(const struct vrc_dev *dev)
{
	const struct vrc_verbs_ops *ops = dev->ops;
	struct ibv_context *verbs = NULL;
	struct ibv_device **devices;
	int cnt = 0;
	int err = ENODEV;

	devices = ops->get_device_list(&cnt);
	if (!devices)
		return NULL;
	for (int i = 0; i < cnt; i++) {
		if (strcmp(ops->get_device_name(devices[i]), dev->name))
			continue;
		verbs = ops->open_device(devices[i]);
		err = errno;
		break;
	}
	ops->free_device_list(devices);
	if (!verbs)
		errno = err;
	return verbs;
}

/* Whether the kernel counts our locked memory at all. */
static bool memlock_counts(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &head, data))
		return true;
	return !(data[0].effective & (1u << CAP_IPC_LOCK));
}

void vrc_dev_check_memlock(const struct vrc_dev *dev, bool warn)
{
	static atomic_bool done;
	struct rlimit limit;

	if (dev->ops->is_softverbs || atomic_exchange(&done, true))
		return;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) ||
	    limit.rlim_cur == RLIM_INFINITY || !memlock_counts())
		return;
	if (warn && limit.rlim_cur < VRC_MEMLOCK_LOW)
		vrc_warn(CORE,
			 "%s: only %llu KiB of memory may be locked "
			 "(RLIMIT_MEMLOCK); queues and registrations of more "
			 "will fail; raise it with ulimit -l\n",
			 dev->name, (unsigned long long)limit.rlim_cur / 1024);
	else
		vrc_info(CORE,
			 "%s: %llu KiB of memory may be locked "
			 "(RLIMIT_MEMLOCK)\n",
			 dev->name, (unsigned long long)limit.rlim_cur / 1024);
}
