/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A verbs device as it was found: what it can do, and which addresses lead to it. */
#ifndef VRC_DEV_H
#define VRC_DEV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

struct vrc_addr {
	union vrc_sockaddr addr; /* port 0 */
	uint8_t prefix_len;
	uint8_t port_num;	/* of the verbs device */
	bool gid_empty;		/* the port's entry FI_VRC_GID_INDEX is */
	char netdev[16];	/* network interface */
	char fabric[64];	/* name of the IP network, e.g. 10.7.0.0/24 */
};

/*
 * A snapshot of one device, taken when it was found; never changes, shared by
 * reference.
 */
struct vrc_dev {
	atomic_int ref;
	const struct vrc_verbs_ops *ops;
	char name[64];
	__be64 guid;
	bool is_iwarp;
	struct ibv_device_attr attr;
	struct ibv_port_attr *ports; /* ports[n - 1] is port n */
	struct vrc_addr *addrs;
	size_t addr_cnt;
};

static inline struct vrc_addr *vrc_addr_end(const struct vrc_dev *dev)
{
	return dev->addrs + dev->addr_cnt;
}

/* vrc_dev.c */
struct vrc_dev_list {
	struct vrc_dev **devs;
	size_t cnt;
};
/* All devices with their addresses, real ones first, softverbs by the rules of
 * FI_VRC_SOFTVERBS. Release with vrc_dev_list_free. */
int vrc_dev_list_get(struct vrc_dev_list *list) __must_check;
void vrc_dev_list_free(struct vrc_dev_list *list);
/* A reference to the device of that name, or NULL. */
struct vrc_dev *vrc_dev_get(const char *name) __must_check;
struct vrc_dev *vrc_dev_ref(struct vrc_dev *dev);
void vrc_dev_put(struct vrc_dev *dev);
/* The device's entry for that IP, or NULL. */
const struct vrc_addr *vrc_dev_find_addr(const struct vrc_dev *dev,
					 const struct sockaddr *sa);
/* Whether the device carries out atomics. mlx5 says so only if their results
 * have the host's byte order. */
static inline bool vrc_dev_has_atomics(const struct vrc_dev *dev)
{
	return dev->attr.atomic_cap != IBV_ATOMIC_NONE;
}
/* A context of our own on the device; errno is set when NULL. */
struct ibv_context *vrc_dev_open(const struct vrc_dev *dev) __must_check;

/* Why the last look at the devices left some out; "" if it did not. */
void vrc_dev_notes(char *buf, size_t len);
/* Frees the cached list, so that the next look is a fresh one. */
void vrc_dev_forget(void);
/* Once per process: that memlock is so low that hardware will not work. */
void vrc_dev_check_memlock(const struct vrc_dev *dev, bool warn);
/* "10.7.0.0/24"; the name of the fabric that an address is on. */
void vrc_dev_net_name(const struct sockaddr *sa, uint8_t prefix_len, char *buf,
		      size_t len);
/* True if sa is on the IP network of addr. */
bool vrc_dev_on_link(const struct vrc_addr *addr, const struct sockaddr *sa);

#endif
