/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs' connection manager: addresses and ports. Binding, resolving, and a
 * connection's whole life over every kind of address that this machine has.
 */
#include <criterion/criterion.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "cm_peer.h"

TestSuite(sv_cm_addr, .timeout = 120);

/* An IPv4 address of this machine that is not on the loopback interface. */
static bool own_address(char *ip, size_t size)
{
	struct ifaddrs *list;
	struct ifaddrs *ifa;
	bool found = false;

	MUST(!getifaddrs(&list));
	for (ifa = list; ifa && !found; ifa = ifa->ifa_next)
		if (ifa->ifa_addr && ifa->ifa_addr->sa_family == AF_INET &&
		    ifa->ifa_flags & IFF_UP &&
		    !(ifa->ifa_flags & IFF_LOOPBACK))
			found = inet_ntop(AF_INET,
					  &((struct sockaddr_in *)
					    ifa->ifa_addr)->sin_addr,
					  ip, (socklen_t)size);
	freeifaddrs(list);
	return found;
}

static bool has_ipv6(void)
{
	struct sockaddr_storage addr;
	struct peer peer;
	bool has;

	peer_open(&peer);
	peer_create_id(&peer);
	peer_addr(&addr, "::1", 0);
	has = !sv_cm_bind_addr(peer.id, (struct sockaddr *)&addr);
	peer_close(&peer);
	return has;
}

static void whole_life(const char *listen_ip, const char *connect_ip,
		       sa_family_t family)
{
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port;

	port = peer_listen(&listener, listen_ip, 0, 0);
	cr_assert_neq(port, 0);
	peer_pair(&listener, &active, &passive, connect_ip, port);
	cr_assert_eq(active.id->route.addr.src_addr.sa_family, family);
	cr_assert_eq(passive.id->route.addr.src_addr.sa_family, family);
	cr_assert_eq(peer_port(&active.id->route.addr.dst_addr), port);
	cr_assert_eq(peer_port(&passive.id->route.addr.src_addr), port);
	cr_assert_neq(peer_port(&active.id->route.addr.src_addr), 0);
	cr_assert_eq(peer_port(&passive.id->route.addr.dst_addr),
		     peer_port(&active.id->route.addr.src_addr));
	cr_assert_not_null(passive.id->verbs);
	cr_assert_eq(passive.id->port_num, 1);
	cr_assert_eq(passive.id->verbs, active.id->verbs);
	peer_transfer(&active, &passive);
	peer_transfer(&passive, &active);
	peer_end_pair(&active, &passive);
	peer_close(&listener);
}

Test(sv_cm_addr, loopback_v4)
{
	whole_life("127.0.0.1", "127.0.0.1", AF_INET);
}

Test(sv_cm_addr, loopback_v4_other_than_the_first)
{
	whole_life("127.1.2.3", "127.1.2.3", AF_INET);
}

Test(sv_cm_addr, loopback_v6)
{
	if (has_ipv6())
		whole_life("::1", "::1", AF_INET6);
}

Test(sv_cm_addr, own_address)
{
	char ip[INET_ADDRSTRLEN];

	if (own_address(ip, sizeof(ip)))
		whole_life(ip, ip, AF_INET);
}

Test(sv_cm_addr, wildcard)
{
	char ip[INET_ADDRSTRLEN];

	whole_life("0.0.0.0", "127.0.0.1", AF_INET);
	if (own_address(ip, sizeof(ip)))
		whole_life("0.0.0.0", ip, AF_INET);
}

Test(sv_cm_addr, wildcard_v6_takes_both)
{
	if (!has_ipv6())
		return;
	whole_life("::", "::1", AF_INET6);
	/* Mapped addresses do not show. */
	whole_life("::", "127.0.0.1", AF_INET);
}

Test(sv_cm_addr, connect_to_any_is_loopback)
{
	whole_life("127.0.0.1", "0.0.0.0", AF_INET);
}

/* An interface's link-local address only means something with its scope. */
Test(sv_cm_addr, link_local_with_scope)
{
	struct sockaddr_in6 addr = { 0 };
	struct peer listener;
	struct ifaddrs *list;
	struct ifaddrs *ifa;
	struct peer active;

	MUST(!getifaddrs(&list));
	for (ifa = list; ifa; ifa = ifa->ifa_next) {
		if (!ifa->ifa_addr || ifa->ifa_addr->sa_family != AF_INET6 ||
		    !(ifa->ifa_flags & IFF_UP))
			continue;
		memcpy(&addr, ifa->ifa_addr, sizeof(addr));
		if (IN6_IS_ADDR_LINKLOCAL(&addr.sin6_addr))
			break;
	}
	freeifaddrs(list);
	if (!ifa)
		return;
	peer_open(&listener);
	peer_create_id(&listener);
	cr_assert_eq(sv_cm_bind_addr(listener.id, (struct sockaddr *)&addr), 0);
	cr_assert_eq(sv_cm_listen(listener.id, 1), 0);
	peer_open(&active);
	peer_create_id(&active);
	addr.sin6_port = listener.id->route.addr.src_sin6.sin6_port;
	cr_assert_eq(sv_cm_resolve_addr(active.id, NULL,
					(struct sockaddr *)&addr, 1000), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	cr_assert_eq(active.id->route.addr.src_sin6.sin6_scope_id,
		     addr.sin6_scope_id);
	peer_close(&active);
	peer_close(&listener);
}

static int bind_errno(const char *ip, uint16_t port)
{
	struct sockaddr_storage addr;
	struct peer peer;
	int err = 0;

	peer_open(&peer);
	peer_create_id(&peer);
	peer_addr(&addr, ip, port);
	if (sv_cm_bind_addr(peer.id, (struct sockaddr *)&addr))
		err = errno;
	peer_close(&peer);
	return err;
}

Test(sv_cm_addr, bind)
{
	struct sockaddr_storage addr;
	struct peer second;
	struct peer peer;
	uint16_t port;

	cr_assert_eq(bind_errno("192.0.2.1", 0), EADDRNOTAVAIL);
	peer_open(&peer);
	peer_create_id(&peer);
	peer_addr(&addr, "127.0.0.1", 0);
	cr_assert_eq(sv_cm_bind_addr(peer.id, (struct sockaddr *)&addr), 0);
	port = peer_port(&peer.id->route.addr.src_addr);
	cr_assert_neq(port, 0);
	cr_assert_not_null(peer.id->verbs);
	cr_assert_eq(peer.id->port_num, 1);
	/* Bound is enough for a clash, and listening all the more. */
	cr_assert_eq(bind_errno("127.0.0.1", port), EADDRINUSE);
	cr_assert_eq(bind_errno("0.0.0.0", port), EADDRINUSE);
	cr_assert_eq(sv_cm_listen(peer.id, 1), 0);
	cr_assert_eq(bind_errno("127.0.0.1", port), EADDRINUSE);
	/* Bound once. */
	cr_assert_eq(sv_cm_bind_addr(peer.id, (struct sockaddr *)&addr), -1);
	cr_assert_eq(errno, EINVAL);
	peer_close(&peer);
	cr_assert_eq(bind_errno("127.0.0.1", port), 0);

	peer_open(&second);
	peer_create_id(&second);
	peer_addr(&addr, "0.0.0.0", 0);
	cr_assert_eq(sv_cm_bind_addr(second.id, (struct sockaddr *)&addr), 0);
	cr_assert_null(second.id->verbs);
	cr_assert_neq(peer_port(&second.id->route.addr.src_addr), 0);
	addr.ss_family = AF_UNIX;
	peer_destroy_id(&second);
	peer_create_id(&second);
	cr_assert_eq(sv_cm_bind_addr(second.id, (struct sockaddr *)&addr), -1);
	cr_assert_eq(errno, EAFNOSUPPORT);
	cr_assert_eq(sv_cm_bind_addr(second.id, NULL), -1);
	cr_assert_eq(errno, EINVAL);
	peer_close(&second);
}

/* A server that restarts while connections of its former life are there. */
Test(sv_cm_addr, port_again_with_connections_left)
{
	struct peer listener;
	struct peer passive;
	struct peer active;
	struct peer again;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	peer_close(&listener);
	cr_assert_eq(peer_listen(&again, "127.0.0.1", port, 0), port);
	peer_end_pair(&active, &passive);
	peer_pair(&again, &active, &passive, "127.0.0.1", port);
	peer_end_pair(&active, &passive);
	peer_close(&again);
}

Test(sv_cm_addr, resolve_errors)
{
	struct sockaddr_storage src;
	struct sockaddr_storage dst;
	struct peer peer;

	peer_open(&peer);
	peer_create_id(&peer);
	peer_addr(&dst, "127.0.0.1", 1);
	/* The order of the steps. */
	cr_assert_eq(sv_cm_resolve_route(peer.id, 1), -1);
	cr_assert_eq(errno, EINVAL);
	/* Not our source; not one that can reach the destination. */
	peer_addr(&src, "192.0.2.1", 0);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, (struct sockaddr *)&src,
					(struct sockaddr *)&dst, 1), -1);
	cr_assert_eq(errno, EADDRNOTAVAIL);
	peer_addr(&src, "::1", 0);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, (struct sockaddr *)&src,
					(struct sockaddr *)&dst, 1), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, NULL, NULL, 1), -1);
	cr_assert_eq(errno, EINVAL);
	/* No route: an event. The id may be tried again. */
	peer_addr(&dst, "255.255.255.255", 1);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, NULL,
					(struct sockaddr *)&dst, 1), 0);
	cr_assert_lt(peer_take(peer.channel, RDMA_CM_EVENT_ADDR_ERROR), 0);
	peer_resolve(&peer, "127.0.0.1", 1);
	cr_assert_eq(peer.id->route.num_paths, 1);
	cr_assert_not_null(peer.id->route.path_rec);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, NULL,
					(struct sockaddr *)&dst, 1), -1);
	cr_assert_eq(errno, EINVAL);
	peer_close(&peer);
}

Test(sv_cm_addr, resolve_with_source)
{
	struct sockaddr_storage src;
	struct sockaddr_storage dst;
	struct peer peer;

	peer_open(&peer);
	peer_create_id(&peer);
	peer_addr(&src, "127.0.0.9", 0);
	peer_addr(&dst, "127.0.0.1", 7471);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, (struct sockaddr *)&src,
					(struct sockaddr *)&dst, 1), 0);
	cr_assert_eq(peer_take(peer.channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	cr_assert_eq(peer.id->route.addr.src_sin.sin_addr.s_addr,
		     ((struct sockaddr_in *)&src)->sin_addr.s_addr);
	/* Bound by the way: the port is there now. */
	cr_assert_neq(peer_port(&peer.id->route.addr.src_addr), 0);
	cr_assert_eq(peer_port(&peer.id->route.addr.dst_addr), 7471);
	peer_close(&peer);
}
