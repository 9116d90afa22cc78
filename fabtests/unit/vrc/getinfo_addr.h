/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Asking the discovery half, on the machine of fake_verbs.h, for what an address or a
 * device is to lead to.
 */
#ifndef GETINFO_ADDR_H
#define GETINFO_ADDR_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fake_verbs.h"
#include "vrc_dev.h"
#include "vrc_info.h"
#include "vrc_util.h"

static struct fi_info *hints;
static struct fi_info *info;

static inline void init(void)
{
	fake_reset();
	hints = fi_allocinfo();
	hints->fabric_attr->prov_name = strdup("vrc");
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	info = NULL;
}

static inline void fini(void)
{
	fi_freeinfo(hints);
	fi_freeinfo(info);
	vrc_dev_forget();
	fake_check_clean();
}

static inline int ask(const char *node, const char *service, uint64_t flags)
{
	fi_freeinfo(info);
	return fake_getinfo(node, service, flags, hints, &info);
}

static inline size_t count(void)
{
	size_t n = 0;

	for (const struct fi_info *i = info; i; i = i->next)
		n++;
	return n;
}

static inline const char *str(const void *sa)
{
	static char buf[4][VRC_ADDRSTR];
	static int next;

	next = (next + 1) % 4;
	return sa ? vrc_sockaddr_str(sa, buf[next]) : "(null)";
}

static inline void hint_addr(void **addr, size_t *len, const char *ip,
			     uint16_t port)
{
	union vrc_sockaddr sa = { 0 };

	sa.sa.sa_family = strchr(ip, ':') ? AF_INET6 : AF_INET;
	inet_pton(sa.sa.sa_family, ip,
		  strchr(ip, ':') ? (void *)&sa.in6.sin6_addr
				  : (void *)&sa.in.sin_addr);
	vrc_sockaddr_set_port(&sa.sa, port);
	cr_assert(vrc_info_set_addr(addr, len, &sa.sa));
}

static inline void says(const char *words)
{
	cr_assert(strstr(fake.log, words), "no \"%s\" in: %s", words, fake.log);
}

#endif
