/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The addresses that a call of fi_getinfo gives: by node and service (names,
 * numbers, or one string as in FI_ADDR_STR), or in the hints. And the source
 * address that the host's routing table has for a destination.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler.h"
#include "vrc_info.h"
#include "vrc_util.h"
#include "vrc_whynot.h"

int vrc_hints_family(const struct fi_info *hints)
{
	switch (hints ? hints->addr_format : FI_FORMAT_UNSPEC) {
	case FI_SOCKADDR_IN:
		return AF_INET;
	case FI_SOCKADDR_IN6:
		return AF_INET6;
	default:
		return AF_UNSPEC;
	}
}

bool vrc_hints_family_ok(const struct fi_info *hints, const struct sockaddr *sa)
{
	int family = vrc_hints_family(hints);

	return family == AF_UNSPEC || family == sa->sa_family;
}

static void addrs_add(struct vrc_addrs *addrs, const struct sockaddr *sa)
{
	union vrc_sockaddr *addr = &addrs->addr[addrs->cnt];

	if (addrs->cnt == VRC_MAX_ADDRS)
		return;
	for (size_t i = 0; i < addrs->cnt; i++) {
		if (vrc_sockaddr_same_ip(&addrs->addr[i].sa, sa))
			return;
	}
	memset(addr, 0, sizeof(*addr));
	memcpy(addr, sa, vrc_sockaddr_len(sa));
	addrs->cnt++;
}

/* An address out of the hints. */
static int addrs_add_hint(struct vrc_query *query, struct vrc_addrs *addrs,
			  const char *subject, const void *hint, size_t len)
{
	struct sockaddr sa = { .sa_family = AF_UNSPEC };
	socklen_t need;

	if (!hint)
		return 0;
	memcpy(&sa, hint, min_size(len, sizeof(sa)));
	need = vrc_sockaddr_len(&sa);
	if (len < sizeof(sa.sa_family) || !need || len < need) {
		vrc_whynot_add(&query->why, subject,
			       "is no IPv4 or IPv6 socket address (family %u, "
			       "%zu bytes)",
			       sa.sa_family, len);
		return -FI_ENODATA;
	}
	if (!vrc_hints_family_ok(query->hints, &sa)) {
		vrc_whynot_add(&query->why, subject,
			       "is of family %u, which is not what addr_format "
			       "says",
			       sa.sa_family);
		return -FI_ENODATA;
	}
	addrs_add(addrs, hint);
	return 0;
}

/* getaddrinfo takes the lower half of a number that is too large. */
static bool service_ok(struct vrc_query *query, const char *service)
{
	unsigned long port;
	char *end;

	if (!service || *service < '0' || *service > '9')
		return true;
	errno = 0;
	port = strtoul(service, &end, 10);
	if (*end || (!errno && port <= UINT16_MAX))
		return true;
	vrc_whynot_add(&query->why, "service", "is %s, and ports end at %d",
		       service, UINT16_MAX);
	return false;
}

static int addrs_resolve(struct vrc_query *query, struct vrc_addrs *addrs,
			 const char *node, const char *service, uint64_t flags,
			 int family)
{
	struct addrinfo hints = {
		.ai_family = family,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = (flags & FI_SOURCE ? AI_PASSIVE : 0) |
			    (flags & FI_NUMERICHOST ? AI_NUMERICHOST : 0),
	};
	struct addrinfo *found;
	int err;

	if (!service_ok(query, service))
		return -FI_ENODATA;
	err = getaddrinfo(node, service, &hints, &found);
	if (err == EAI_MEMORY)
		return -FI_ENOMEM;
	if (err) {
		vrc_whynot_place(&query->why, node ? "node" : "service",
				 "%s%s%s cannot be resolved: %s",
				 node ? node : "", node && service ? ", " : "",
				 service ? service : "",
				 err == EAI_SYSTEM ? strerror(errno)
						   : gai_strerror(err));
		return -FI_ENODATA;
	}
	for (const struct addrinfo *ai = found; ai; ai = ai->ai_next) {
		if (vrc_sockaddr_len(ai->ai_addr) &&
		    vrc_hints_family_ok(query->hints, ai->ai_addr))
			addrs_add(addrs, ai->ai_addr);
	}
	freeaddrinfo(found);
	if (!addrs->cnt) {
		vrc_whynot_add(&query->why, "addr_format",
			       "is not the family of %s", node);
		return -FI_ENODATA;
	}
	/* 0.0.0.0 and :: are one wish. */
	if (flags & FI_SOURCE && !node)
		addrs->cnt = min_size(addrs->cnt, 1);
	return 0;
}

/*
 * A node in the form of FI_ADDR_STR: fi_sockaddr_in://10.7.0.1:7471, or with
 * _in6 and brackets, or without either. -FI_EINVAL if it is none.
 */
static int addrs_parse(struct vrc_query *query, struct vrc_addrs *addrs,
		       const char *node, const char *service, uint64_t flags)
{
	static const struct {
		const char *scheme;
		int family;
	} schemes[] = { { "fi_sockaddr://", AF_UNSPEC },
			{ "fi_sockaddr_in://", AF_INET },
			{ "fi_sockaddr_in6://", AF_INET6 } };
	char text[NI_MAXHOST + NI_MAXSERV + 4];
	char *host = text;
	char *port;
	size_t len, i;

	for (i = 0; i < ARRAY_SIZE(schemes); i++) {
		len = strlen(schemes[i].scheme);
		if (!strncmp(node, schemes[i].scheme, len))
			break;
	}
	if (i == ARRAY_SIZE(schemes))
		return -FI_EINVAL;
	snprintf(text, sizeof(text), "%.*s", (int)strcspn(node + len, "/?"),
		 node + len);
	port = strrchr(text, ':');
	if (*text == '[') {
		host++;
		len = strcspn(host, "]");
		port = host[len] && host[len + 1] == ':' ? host + len + 1
							 : NULL;
		host[len] = '\0';
	}
	if (port)
		*port++ = '\0';
	if (service)
		vrc_whynot_place(&query->why, "service",
				 "must be NULL with an address string, and is "
				 "%s",
				 service);
	return service ? -FI_ENODATA
		       : addrs_resolve(query, addrs, *host ? host : NULL,
				       port && *port ? port : NULL, flags,
				       schemes[i].family);
}

int vrc_getaddr(struct vrc_query *query, const char *node, const char *service,
		uint64_t flags, struct vrc_addrs *srcs, struct vrc_addrs *dsts)
{
	struct vrc_addrs *named = flags & FI_SOURCE ? srcs : dsts;
	const struct fi_info *hints = query->hints;
	int ret = -FI_EINVAL;

	if (node)
		ret = addrs_parse(query, named, node, service, flags);
	if (ret == -FI_EINVAL)
		ret = node || service
			      ? addrs_resolve(query, named, node, service,
					      flags, vrc_hints_family(hints))
			      : 0;
	if (!ret && hints && named != srcs)
		ret = addrs_add_hint(query, srcs, "src_addr", hints->src_addr,
				     hints->src_addrlen);
	if (!ret && hints && (named != dsts || (!node && !service)))
		ret = addrs_add_hint(query, dsts, "dest_addr", hints->dest_addr,
				     hints->dest_addrlen);
	return ret;
}

/* The address that packets to dst leave from. Sends none. 0 or an errno. */
int vrc_route_src(const struct sockaddr *dst, union vrc_sockaddr *src)
{
	union vrc_sockaddr to = { 0 };
	socklen_t len = sizeof(*src);
	int err = 0;
	int fd;

	memcpy(&to, dst, vrc_sockaddr_len(dst));
	if (!vrc_sockaddr_port(&to.sa))
		vrc_sockaddr_set_port(&to.sa, 9);
	fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	memset(src, 0, sizeof(*src));
	if (connect(fd, &to.sa, vrc_sockaddr_len(dst)) ||
	    getsockname(fd, &src->sa, &len))
		err = errno;
	close(fd);
	return err;
}
