/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * librdmacm.so.1: rdma_getaddrinfo(), which is getaddrinfo() with an answer of
 * another shape: one address, as source or as destination, and what kind of
 * connection it is for. IPv4 and IPv6; RC only.
 */
#include "sv_abi_cm.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

/* A positive errno for what getaddrinfo() says. */
static int errno_of(int eai)
{
	switch (eai) {
	case EAI_SYSTEM:
		return errno ? errno : EIO;
	case EAI_MEMORY:
		return ENOMEM;
	case EAI_AGAIN:
		return EAGAIN;
	case EAI_FAMILY:
	case EAI_ADDRFAMILY:
		return EAFNOSUPPORT;
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_SERVICE:
		return ENODATA;
	default:
		return EINVAL;
	}
}

static int addr_dup(struct sockaddr **to, socklen_t *to_len,
		    const struct sockaddr *addr, socklen_t len)
{
	*to = calloc(1, sizeof(struct sockaddr_storage));
	if (!*to)
		return ENOMEM;
	memcpy(*to, addr, min_size(len, sizeof(struct sockaddr_storage)));
	*to_len = len;
	return 0;
}

/* Positive errno. */
static int kind_set(struct rdma_addrinfo *res,
		    const struct rdma_addrinfo *hints)
{
	res->ai_qp_type = IBV_QPT_RC;
	res->ai_port_space = RDMA_PS_TCP;
	if (!hints)
		return 0;
	if (hints->ai_qp_type && hints->ai_qp_type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (hints->ai_port_space)
		res->ai_port_space = hints->ai_port_space;
	if (res->ai_port_space != RDMA_PS_TCP &&
	    res->ai_port_space != RDMA_PS_IB)
		return EOPNOTSUPP;
	if (hints->ai_family != AF_UNSPEC && hints->ai_family != AF_INET &&
	    hints->ai_family != AF_INET6)
		return EAFNOSUPPORT;
	res->ai_flags = hints->ai_flags;
	return 0;
}

static int lookup(const char *node, const char *service,
		  const struct rdma_addrinfo *hints, struct addrinfo **found)
{
	struct addrinfo want = { .ai_socktype = SOCK_STREAM };
	int eai;

	if (hints && hints->ai_flags & RAI_PASSIVE)
		want.ai_flags |= AI_PASSIVE;
	if (hints && hints->ai_flags & RAI_NUMERICHOST)
		want.ai_flags |= AI_NUMERICHOST;
	if (hints)
		want.ai_family = hints->ai_family;
	eai = getaddrinfo(node, service, &want, found);
	return eai ? errno_of(eai) : 0;
}

/* Positive errno. found: NULL if the hints have the addresses. */
static int addrs_set(struct rdma_addrinfo *res,
		     const struct rdma_addrinfo *hints,
		     const struct addrinfo *found)
{
	bool passive = res->ai_flags & RAI_PASSIVE;
	int err = 0;

	if (found) {
		res->ai_family = found->ai_family;
		err = passive ? addr_dup(&res->ai_src_addr, &res->ai_src_len,
					 found->ai_addr, found->ai_addrlen) :
				addr_dup(&res->ai_dst_addr, &res->ai_dst_len,
					 found->ai_addr, found->ai_addrlen);
	} else {
		res->ai_family = hints->ai_family;
		if (hints->ai_dst_len)
			err = addr_dup(&res->ai_dst_addr, &res->ai_dst_len,
				       hints->ai_dst_addr, hints->ai_dst_len);
	}
	if (!err && !res->ai_src_addr && hints && hints->ai_src_len)
		err = addr_dup(&res->ai_src_addr, &res->ai_src_len,
			       hints->ai_src_addr, hints->ai_src_len);
	if (!err && !res->ai_family && res->ai_src_addr)
		res->ai_family = res->ai_src_addr->sa_family;
	return err;
}

static int resolve(struct rdma_addrinfo *res, const char *node,
		   const char *service, const struct rdma_addrinfo *hints)
{
	struct addrinfo *found = NULL;
	int err = kind_set(res, hints);

	if (!err && (node || service))
		err = lookup(node, service, hints, &found);
	if (!err)
		err = addrs_set(res, hints, found);
	if (found)
		freeaddrinfo(found);
	return err;
}

int rdma_getaddrinfo(const char *node, const char *service,
		     const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **out)
{
	struct rdma_addrinfo *res;
	int err;

	if (!out || (!node && !service && !hints))
		return sv_abi_cm_fail(EINVAL);
	res = calloc(1, sizeof(*res));
	if (!res)
		return sv_abi_cm_fail(ENOMEM);
	err = resolve(res, node, service, hints);
	if (err) {
		rdma_freeaddrinfo(res);
		return sv_abi_cm_fail(err);
	}
	*out = res;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	struct rdma_addrinfo *next;

	for (; res; res = next) {
		next = res->ai_next;
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_route);
		free(res->ai_connect);
		free(res);
	}
}
