/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A machine to order: devices behind both verbs tables, interface addresses,
 * routes, and a log that can be read. For unit tests of the discovery half of
 * the provider, which are linked with
 *
 *	-Wl,--wrap=getifaddrs,--wrap=freeifaddrs,--wrap=connect
 *	-Wl,--wrap=getsockname,--wrap=fi_log,--wrap=fi_log_enabled
 *	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup
 *
 * so that they see this machine and not the one they run on. Everything that
 * is opened is counted, and any call can be made to fail.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <rdma/fabric.h>

#include "clean_test.h"
#include "vrc_verbs.h"

enum { FAKE_DEVICES = 4, FAKE_ADDRS = 12 };

struct fake_device {
	/* Must be first: the provider sees a pointer to it. */
	struct ibv_device device;
	bool softverbs;
	bool gone;	/* not in the list */
	int open_errno; /* 0: opens */
	struct ibv_device_attr attr;
	struct ibv_port_attr port[2];
	uint32_t gid_cnt; /* entries in use, on each port */
	struct {
		const char *ip;
		uint8_t port_num;
	} addr[FAKE_ADDRS];
	size_t addr_cnt;
};

struct fake_machine {
	struct fake_device device[FAKE_DEVICES];
	size_t device_cnt;
	bool no_rdma_cm;
	/* The one after that many fails; -1: none. */
	int fail_alloc, fail_verb;
	/* What is open now. */
	atomic_int contexts, ids, channels, lists;
	/* How often the devices were looked at. */
	atomic_int looks;
	/* fi_log: all lines, and how many of which level. */
	char log[16384];
	atomic_int warns, infos;
};

extern struct fake_machine fake;

/* Empty again; also the provider's parameters and its cached list. */
void fake_reset(void);
/* A RoCE device of the usual limits with one active port. */
struct fake_device *fake_add_roce(const char *name);
struct fake_device *fake_add_ib(const char *name);
struct fake_device *fake_add_iwarp(const char *name);
struct fake_device *fake_add_softverbs(void);
/* The address belongs to the device. */
void fake_bind(struct fake_device *dev, const char *ip, uint8_t port_num);
/* The address is on the interface. flags as in ifaddrs. */
void fake_ifaddr(const char *ifname, const char *ip, uint8_t prefix,
		 unsigned int flags);
void fake_ifaddr_clear(void);
/* Packets to dst leave from src; NULL: no route. "" as dst: all others. */
void fake_route(const char *dst, const char *src);
/* lo, eth0 192.0.2.2/24 fd00::2/64 and softverbs, which owns all of them. */
void fake_plain_host(void);
/* The plain host and eth1 10.7.0.1/24 fd00:7::1/64 on roce0. */
struct fake_device *fake_roce_host(void);

/* fi_getinfo as the core calls it; "" in the log before. */
int fake_getinfo(const char *node, const char *service, uint64_t flags,
		 const struct fi_info *hints, struct fi_info **info);

/* Everything that was opened is closed; vrc_dev_forget() comes first. */
void fake_check_clean(void);

#endif
