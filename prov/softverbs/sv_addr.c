/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Socket addresses for the connection manager: IPv4 and IPv6, wildcards,
 * mapped and scoped forms, and the source address that routing would choose.
 */
#include "sv_cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

enum {
	DISCARD_PORT = 9,	/* any port will do: nothing is sent */
	MAPPED_LEN = 12,
};

static const struct sockaddr_in *v4(const struct sockaddr *addr)
{
	return (const struct sockaddr_in *)addr;
}

static const struct sockaddr_in6 *v6(const struct sockaddr *addr)
{
	return (const struct sockaddr_in6 *)addr;
}

int sv_addr_check(const struct sockaddr *addr)
{
	if (!addr)
		return EINVAL;
	if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)
		return EAFNOSUPPORT;
	return 0;
}

socklen_t sv_addr_len(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) :
		sizeof(struct sockaddr_in6);
}

bool sv_addr_is_any(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return v4(addr)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&v6(addr)->sin6_addr);
}

void sv_addr_copy(struct sockaddr_storage *dst, const struct sockaddr *src)
{
	memset(dst, 0, sizeof(*dst));
	memcpy(dst, src, sv_addr_len(src));
}

void sv_addr_any(struct sockaddr_storage *addr, sa_family_t family)
{
	memset(addr, 0, sizeof(*addr));
	addr->ss_family = family;
}

/* Keeps family and port. */
void sv_addr_loopback(struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET)
		((struct sockaddr_in *)addr)->sin_addr.s_addr =
			htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)addr)->sin6_addr = in6addr_loopback;
}

void sv_addr_unmap(struct sockaddr_storage *addr)
{
	struct sockaddr_in6 in;
	struct sockaddr_in out = { .sin_family = AF_INET };

	if (addr->ss_family != AF_INET6)
		return;
	memcpy(&in, addr, sizeof(in));
	if (!IN6_IS_ADDR_V4MAPPED(&in.sin6_addr))
		return;
	out.sin_port = in.sin6_port;
	memcpy(&out.sin_addr, &in.sin6_addr.s6_addr[MAPPED_LEN],
	       sizeof(out.sin_addr));
	memset(addr, 0, sizeof(*addr));
	memcpy(addr, &out, sizeof(out));
}

uint16_t sv_addr_port(const struct sockaddr *addr)
{
	return ntohs(addr->sa_family == AF_INET ? v4(addr)->sin_port :
		     v6(addr)->sin6_port);
}

void sv_addr_set_port(struct sockaddr_storage *addr, uint16_t port)
{
	if (addr->ss_family == AF_INET)
		((struct sockaddr_in *)addr)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
}

/*
 * Connecting a datagram socket looks up the route and sends nothing. bound, if
 * given, is the address the id was bound to: it must be able to reach dst.
 */
int sv_addr_source(const struct sockaddr *dst, const struct sockaddr *bound,
		   struct sockaddr_storage *src)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(*src);
	int err = 0;
	int sock;

	sock = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return errno;
	if (bound) {
		sv_addr_copy(&addr, bound);
		sv_addr_set_port(&addr, 0);
		if (bind(sock, (struct sockaddr *)&addr,
			 sv_addr_len(bound))) {
			err = errno;
			goto out;
		}
	}
	sv_addr_copy(&addr, dst);
	if (!sv_addr_port(dst))
		sv_addr_set_port(&addr, DISCARD_PORT);
	memset(src, 0, sizeof(*src));
	if (connect(sock, (struct sockaddr *)&addr, sv_addr_len(dst)) ||
	    getsockname(sock, (struct sockaddr *)src, &len))
		err = errno;
	else
		sv_addr_set_port(src, 0);
out:
	close(sock);
	return err;
}

int sv_addr_of_gid(const union ibv_gid *gid, uint32_t ifindex,
		   struct sockaddr_storage *addr)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };

	memcpy(&in6.sin6_addr, gid->raw, sizeof(in6.sin6_addr));
	if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
		in6.sin6_scope_id = ifindex;
	sv_addr_copy(addr, (struct sockaddr *)&in6);
	sv_addr_unmap(addr);
	if (sv_addr_is_any((struct sockaddr *)addr) ||
	    IN6_IS_ADDR_MULTICAST(&in6.sin6_addr))
		return EINVAL;
	return 0;
}
