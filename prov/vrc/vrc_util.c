/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Socket addresses and the clock. Addresses are compared as rdma_cm does: an
 * IPv6 scope counts only where both sides name one.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <rdma/fi_errno.h>

#include "compiler.h"
#include "vrc_util.h"

uint64_t vrc_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint64_t vrc_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static const struct sockaddr_in *in4(const struct sockaddr *sa)
{
	return (const struct sockaddr_in *)(const void *)sa;
}

static const struct sockaddr_in6 *in6(const struct sockaddr *sa)
{
	return (const struct sockaddr_in6 *)(const void *)sa;
}

socklen_t vrc_sockaddr_len(const struct sockaddr *sa)
{
	switch (sa->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

bool vrc_sockaddr_same_ip(const struct sockaddr *a, const struct sockaddr *b)
{
	uint32_t scope_a, scope_b;

	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return in4(a)->sin_addr.s_addr == in4(b)->sin_addr.s_addr;
	if (a->sa_family != AF_INET6 ||
	    memcmp(&in6(a)->sin6_addr, &in6(b)->sin6_addr,
		   sizeof(struct in6_addr)))
		return false;
	scope_a = in6(a)->sin6_scope_id;
	scope_b = in6(b)->sin6_scope_id;
	return scope_a == scope_b || !scope_a || !scope_b;
}

bool vrc_sockaddr_is_any(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return in4(sa)->sin_addr.s_addr == htonl(INADDR_ANY);
	return sa->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_UNSPECIFIED(&in6(sa)->sin6_addr);
}

bool vrc_sockaddr_is_loopback(const struct sockaddr *sa)
{
	const struct in6_addr *ip;

	if (sa->sa_family == AF_INET)
		return ntohl(in4(sa)->sin_addr.s_addr) >> 24 == 127;
	if (sa->sa_family != AF_INET6)
		return false;
	ip = &in6(sa)->sin6_addr;
	return IN6_IS_ADDR_LOOPBACK(ip) ||
	       (IN6_IS_ADDR_V4MAPPED(ip) && ip->s6_addr[12] == 127);
}

uint16_t vrc_sockaddr_port(const struct sockaddr *sa)
{
	switch (sa->sa_family) {
	case AF_INET:
		return ntohs(in4(sa)->sin_port);
	case AF_INET6:
		return ntohs(in6(sa)->sin6_port);
	default:
		return 0;
	}
}

void vrc_sockaddr_set_port(struct sockaddr *sa, uint16_t port)
{
	void *addr = sa;

	if (sa->sa_family == AF_INET)
		((struct sockaddr_in *)addr)->sin_port = htons(port);
	else if (sa->sa_family == AF_INET6)
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
}

const char *vrc_sockaddr_str(const struct sockaddr *sa, char buf[VRC_ADDRSTR])
{
	char ip[INET6_ADDRSTRLEN] = "?";
	char scope[16] = "";

	switch (sa->sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &in4(sa)->sin_addr, ip, sizeof(ip));
		snprintf(buf, VRC_ADDRSTR, "%s:%u", ip, vrc_sockaddr_port(sa));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &in6(sa)->sin6_addr, ip, sizeof(ip));
		if (in6(sa)->sin6_scope_id)
			snprintf(scope, sizeof(scope), "%%%u",
				 in6(sa)->sin6_scope_id);
		snprintf(buf, VRC_ADDRSTR, "[%s%s]:%u", ip, scope,
			 vrc_sockaddr_port(sa));
		break;
	default:
		snprintf(buf, VRC_ADDRSTR, "(address family %u)",
			 sa->sa_family);
	}
	return buf;
}

int vrc_sockaddr_copy_out(const struct sockaddr *sa, void *addr, size_t *len)
{
	size_t need = vrc_sockaddr_len(sa);
	size_t room = *len;

	*len = need;
	if (room && addr)
		memcpy(addr, sa, min_size(room, need));
	return room < need || !addr ? -FI_ETOOSMALL : 0;
}
