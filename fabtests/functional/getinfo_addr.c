/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_getinfo and addresses: node and service end up as source or destination,
 * formats are those asked for, what is not ours or no address is refused.
 */
#include <arpa/inet.h>

#include "common.h"

static int query(const char *node, const char *service, uint64_t flags,
		 const struct fi_info *hints, struct fi_info **info)
{
	*info = NULL;
	return fi_getinfo(TEST_API, node, service, flags, hints, info);
}

static bool ip_is(const void *addr, const char *text, uint16_t port)
{
	const struct sockaddr_in *in = addr;
	const struct sockaddr_in6 *in6 = addr;
	char buf[INET6_ADDRSTRLEN];

	if (in->sin_family == AF_INET)
		inet_ntop(AF_INET, &in->sin_addr, buf, sizeof(buf));
	else
		inet_ntop(AF_INET6, &in6->sin6_addr, buf, sizeof(buf));
	return !strcmp(buf, text) && ntohs(in->sin_port) == port;
}

/* node and service name the source with FI_SOURCE, else the destination. */
static int addresses(void)
{
	struct fi_info *hints = make_hints(NULL);
	struct fi_info *info;

	ASSERT_OK(query(test_addr(), "7471", FI_SOURCE, hints, &info));
	for (struct fi_info *i = info; i; i = i->next) {
		ASSERT(i->src_addr && !i->dest_addr);
		ASSERT(ip_is(i->src_addr, test_addr(), 7471));
		ASSERT_EQ(i->src_addrlen, sizeof(struct sockaddr_in));
	}
	fi_freeinfo(info);

	ASSERT_OK(query(test_addr(), "7472", FI_NUMERICHOST, hints, &info));
	for (struct fi_info *i = info; i; i = i->next) {
		ASSERT(i->dest_addr);
		ASSERT(ip_is(i->dest_addr, test_addr(), 7472));
	}
	fi_freeinfo(info);

	ASSERT_OK(query(test_addr(), NULL, FI_SOURCE, hints, &info));
	ASSERT(ip_is(info->src_addr, test_addr(), 0));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return PASSED;
}

/* A service without a node, to listen on: the port is in every entry. */
static int service_only(void)
{
	struct fi_info *hints = make_hints(NULL);
	struct fi_info *info;

	ASSERT_OK(query(NULL, "7473", FI_SOURCE, hints, &info));
	for (struct fi_info *i = info; i; i = i->next) {
		struct sockaddr_in *in = i->src_addr;

		ASSERT(in);
		ASSERT_EQ(ntohs(in->sin_port), 7473);
	}
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return PASSED;
}

/* Addresses in the hints count like node and service. */
static int hint_addresses(void)
{
	struct fi_info *hints = make_hints(NULL);
	struct fi_info *first;
	struct fi_info *info;

	ASSERT_OK(query(test_addr(), "7474", 0, hints, &first));
	hints->dest_addr = malloc(first->dest_addrlen);
	ASSERT(hints->dest_addr);
	memcpy(hints->dest_addr, first->dest_addr, first->dest_addrlen);
	hints->dest_addrlen = first->dest_addrlen;
	hints->addr_format = first->addr_format;
	ASSERT_OK(query(NULL, NULL, 0, hints, &info));
	for (struct fi_info *i = info; i; i = i->next)
		ASSERT(i->dest_addr &&
		       ip_is(i->dest_addr, test_addr(), 7474));
	fi_freeinfo(info);
	fi_freeinfo(first);
	fi_freeinfo(hints);
	return PASSED;
}

static int addr_formats(void)
{
	static const struct { uint32_t format; int family; } want[] = {
		{ FI_SOCKADDR, 0 }, { FI_SOCKADDR_IN, AF_INET },
		{ FI_SOCKADDR_IN6, AF_INET6 }, { FI_FORMAT_UNSPEC, 0 },
	};

	for (size_t n = 0; n < ARRAY_SIZE(want); n++) {
		struct fi_info *hints = make_hints(NULL);
		struct fi_info *info;
		int ret;

		hints->addr_format = want[n].format;
		ret = query(NULL, NULL, 0, hints, &info);
		if (want[n].format == FI_SOCKADDR_IN6 && ret) {
			ASSERT_EQ(ret, -FI_ENODATA);
			fi_freeinfo(hints);
			continue;
		}
		ASSERT_OK(ret);
		for (struct fi_info *i = info; i; i = i->next) {
			struct sockaddr *sa = i->src_addr;

			if (want[n].format && is_vrc())
				ASSERT(i->addr_format == want[n].format ||
				       want[n].format == FI_SOCKADDR);
			if (sa && want[n].family && is_vrc())
				ASSERT_EQ(sa->sa_family, want[n].family);
		}
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
	return PASSED;
}

/* Addresses of nobody here, and no addresses at all. */
static int bad_addresses(void)
{
	static const char *const nodes[] = {
		"300.1.2.3", "", "not a name", "1.2.3.4.5", "::g",
		"fe80::1%no-such-if",
	};
	struct fi_info *hints = make_hints(NULL);
	struct fi_info *info;

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		int ret = query(nodes[i], "7475", FI_NUMERICHOST, hints, &info);

		ASSERT_CMP(ret, <, 0);
		ret = query(nodes[i], "7475", FI_SOURCE | FI_NUMERICHOST, hints,
			    &info);
		ASSERT_CMP(ret, <, 0);
	}
	ASSERT_CMP(query(test_addr(), "no-such-service", 0, hints, &info), <,
		   0);
	if (is_vrc()) {
		/* getaddrinfo would make some other port of it. */
		ASSERT_CMP(query(test_addr(), "99999999", 0, hints, &info), <,
			   0);
		/* A source that is not ours (RFC 5737). */
		ASSERT_EQ(query("198.51.100.7", NULL, FI_SOURCE, hints, &info),
			  -FI_ENODATA);
	}
	fi_freeinfo(hints);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(addresses), CASE(service_only), CASE(hint_addresses),
		CASE(addr_formats), CASE(bad_addresses), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
