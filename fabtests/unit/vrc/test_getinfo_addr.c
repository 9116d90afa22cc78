/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_getinfo: which addresses are offered, and why others are not; the infos of
 * incoming connections. Every test runs in its own process.
 */
#include <net/if.h>
#include <stdio.h>

#include "getinfo_addr.h"
#include "vrc_params.h"

CLEAN_TEST(addr, all_of_softverbs_loopback_last)
{
	static const char *const want[] = { "192.0.2.2:0", "[fd00::2]:0",
					    "[fe80::2%2]:0", "127.0.0.1:0",
					    "[::1]:0" };
	const struct fi_info *i;
	size_t n = 0;

	fake_plain_host();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(fake.warns, 0);
	says("using softverbs0 (softverbs; no usable RDMA device");
	cr_assert_eq(count(), ARRAY_SIZE(want));
	for (i = info; i; i = i->next, n++) {
		cr_assert_str_eq(str(i->src_addr), want[n]);
		cr_assert_null(i->dest_addr);
		cr_assert_eq(i->addr_format, strchr(want[n], '[')
						     ? FI_SOCKADDR_IN6
						     : FI_SOCKADDR_IN);
		cr_assert_eq(i->src_addrlen, strchr(want[n], '[') ? 28 : 16);
	}
	cr_assert_eq(info->caps & VRC_SECONDARY_CAPS, VRC_SECONDARY_CAPS);
	for (i = info; i->next; i = i->next)
		;
	cr_assert_eq(i->caps & VRC_SECONDARY_CAPS, FI_LOCAL_COMM);
	cr_assert_str_eq(i->fabric_attr->name, "::1/128");
	/* Only told once. */
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(fake.infos, 0, "%s", fake.log);
}

CLEAN_TEST(addr, remote_comm_is_not_on_loopback)
{
	fake_plain_host();
	hints->caps = FI_MSG | FI_REMOTE_COMM;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 3);
	cr_assert_eq(ask("127.0.0.1", NULL, FI_SOURCE), -FI_ENODATA);
	says("FI_REMOTE_COMM");
}

CLEAN_TEST(addr, hardware_first_and_alone)
{
	fake_roce_host();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 2);
	cr_assert_str_eq(info->domain_attr->name, "roce0");
	cr_assert_str_eq(str(info->src_addr), "10.7.0.1:0");
	cr_assert_str_eq(info->next->fabric_attr->name, "fd00:7::/64");
	says("using roce0 (rdma-core; eth1 10.7.0.1, eth1 [fd00:7::1])");
	/* softverbs is still there for infos of an earlier day. */
	struct vrc_dev *dev = vrc_dev_get("softverbs0");
	cr_assert_not_null(dev);
	vrc_dev_put(dev);
	cr_assert_null(vrc_dev_get("roce1"));
}

CLEAN_TEST(addr, softverbs_always_comes_after)
{
	vrc_params.softverbs = VRC_SOFTVERBS_ALWAYS;
	fake_roce_host();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 7);
	cr_assert_str_eq(info->next->domain_attr->name, "roce0");
	cr_assert_str_eq(info->next->next->domain_attr->name, "softverbs0");
	cr_assert_eq(ask("127.0.0.1", NULL, FI_SOURCE), 0);
}

CLEAN_TEST(addr, softverbs_never)
{
	vrc_params.softverbs = VRC_SOFTVERBS_NEVER;
	fake_plain_host();
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	cr_assert_eq(fake.warns, 1);
	cr_assert_eq(fake.infos, 0, "%s", fake.log);
	says("FI_VRC_SOFTVERBS=never");
	cr_assert_null(vrc_dev_get("softverbs0"));
	/* A line at most where nobody asked. */
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = NULL;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	cr_assert_eq(fake.warns, 0);
	cr_assert_eq(fake.infos, 1);
}

CLEAN_TEST(addr, ip_without_device)
{
	fake_roce_host();
	cr_assert_eq(ask("192.0.2.2", NULL, FI_SOURCE), -FI_ENODATA);
	cr_assert_eq(fake.warns, 1);
	says("192.0.2.2 has no RDMA device");
	says("10.7.0.1 (eth1, roce0), [fd00:7::1] (eth1, roce0)");
	cr_assert_eq(ask("127.0.0.1", "7471", FI_SOURCE), -FI_ENODATA);
	says("FI_VRC_SOFTVERBS=always");
	cr_assert_eq(ask("192.0.2.9", "7471", 0), -FI_ENODATA);
	says("192.0.2.2 (the way to 192.0.2.9:7471) has no RDMA device");
}

CLEAN_TEST(addr, source_given)
{
	fake_plain_host();
	cr_assert_eq(ask("127.0.0.1", "7471", FI_SOURCE), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(str(info->src_addr), "127.0.0.1:7471");
	cr_assert_str_eq(info->fabric_attr->name, "127.0.0.0/8");
	cr_assert_null(info->dest_addr);
	cr_assert_eq(ask("192.0.2.2", NULL, FI_SOURCE | FI_NUMERICHOST), 0);
	cr_assert_str_eq(str(info->src_addr), "192.0.2.2:0");
	/* By hints. */
	hint_addr(&hints->src_addr, &hints->src_addrlen, "fd00::2", 99);
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(str(info->src_addr), "[fd00::2]:99");
	/* Ignored with FI_SOURCE, as fi_getinfo(3) says. */
	cr_assert_eq(ask("192.0.2.2", NULL, FI_SOURCE), 0);
	cr_assert_str_eq(str(info->src_addr), "192.0.2.2:0");
}

CLEAN_TEST(addr, source_and_destination)
{
	fake_plain_host();
	cr_assert_eq(ask("192.0.2.9", "7471", 0), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(str(info->src_addr), "192.0.2.2:0");
	cr_assert_str_eq(str(info->dest_addr), "192.0.2.9:7471");
	cr_assert_eq(info->dest_addrlen, 16);
	cr_assert_eq(ask("::1", "7471", 0), 0);
	cr_assert_str_eq(str(info->src_addr), "[::1]:0");
	cr_assert_str_eq(str(info->dest_addr), "[::1]:7471");
	/* hints->src_addr keeps its port. */
	hint_addr(&hints->src_addr, &hints->src_addrlen, "192.0.2.2", 1234);
	cr_assert_eq(ask("127.0.0.1", "7471", 0), 0);
	cr_assert_str_eq(str(info->src_addr), "192.0.2.2:1234");
	cr_assert_str_eq(str(info->dest_addr), "127.0.0.1:7471");
	/* Both by hints. */
	hint_addr(&hints->dest_addr, &hints->dest_addrlen, "192.0.2.9", 5);
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_str_eq(str(info->src_addr), "192.0.2.2:1234");
	cr_assert_str_eq(str(info->dest_addr), "192.0.2.9:5");
	/* The destination of the hints goes with FI_SOURCE. */
	cr_assert_eq(ask("127.0.0.1", "8", FI_SOURCE), 0);
	cr_assert_str_eq(str(info->src_addr), "127.0.0.1:8");
	cr_assert_str_eq(str(info->dest_addr), "192.0.2.9:5");
	/* Families that cannot meet. */
	cr_assert_eq(ask("::1", "7471", 0), -FI_ENODATA);
	says("different families");
}

CLEAN_TEST(addr, no_route)
{
	fake_plain_host();
	fake_route("203.0.113.1", NULL);
	cr_assert_eq(ask("203.0.113.1", "1", 0), -FI_ENODATA);
	says("no route to 203.0.113.1:1");
}

CLEAN_TEST(addr, unresolvable)
{
	fake_plain_host();
	cr_assert_eq(ask("300.1.1.1", NULL, FI_SOURCE | FI_NUMERICHOST),
		     -FI_ENODATA);
	says("300.1.1.1 cannot be resolved");
	cr_assert_eq(ask("127.0.0.1", "no such service", 0), -FI_ENODATA);
	cr_assert_eq(fake.looks, 0, "the devices need not be looked at");
}

CLEAN_TEST(addr, wildcard)
{
	fake_plain_host();
	/* A server that says nothing: IPv4 and IPv6 in one. */
	cr_assert_eq(ask(NULL, "9228", FI_SOURCE), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(str(info->src_addr), "0.0.0.0:9228");
	cr_assert_eq(info->addr_format, FI_SOCKADDR);
	cr_assert_str_eq(info->domain_attr->name, "softverbs0");
	cr_assert_str_eq(info->fabric_attr->name, "192.0.2.0/24");
	cr_assert_eq(info->caps & VRC_SECONDARY_CAPS, VRC_SECONDARY_CAPS);
	/* ofi_rxm has to know how long an address is. */
	cr_assert_eq(ask(NULL, "9228", FI_SOURCE | 1ULL << 59), 0);
	cr_assert_eq(info->addr_format, FI_SOCKADDR_IN);
	/* Families that were asked. */
	cr_assert_eq(ask("0.0.0.0", "9228", FI_SOURCE), 0);
	cr_assert_eq(info->addr_format, FI_SOCKADDR_IN);
	cr_assert_eq(ask("::", "9228", FI_SOURCE), 0);
	cr_assert_str_eq(str(info->src_addr), "[::]:9228");
	cr_assert_eq(info->addr_format, FI_SOCKADDR_IN6);
	hints->addr_format = FI_SOCKADDR_IN;
	cr_assert_eq(ask(NULL, "9228", FI_SOURCE), 0);
	cr_assert_eq(info->addr_format, FI_SOCKADDR_IN);
	hints->addr_format = FI_SOCKADDR_IN6;
	cr_assert_eq(ask(NULL, "9228", FI_SOURCE), 0);
	cr_assert_str_eq(str(info->src_addr), "[::]:9228");
	cr_assert_str_eq(info->fabric_attr->name, "fd00::/64");
	/* A wildcard in the hints keeps its family. */
	hints->addr_format = FI_FORMAT_UNSPEC;
	hint_addr(&hints->src_addr, &hints->src_addrlen, "::", 7);
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_str_eq(str(info->src_addr), "[::]:7");
}

CLEAN_TEST(addr, formats)
{
	fake_plain_host();
	hints->addr_format = FI_SOCKADDR;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 5);
	for (const struct fi_info *i = info; i; i = i->next)
		cr_assert_eq(i->addr_format, FI_SOCKADDR);
	hints->addr_format = FI_SOCKADDR_IN6;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 3);
	for (const struct fi_info *i = info; i; i = i->next)
		cr_assert_eq(i->addr_format, FI_SOCKADDR_IN6);
	cr_assert_eq(ask("127.0.0.1", NULL, FI_SOURCE), -FI_ENODATA);
	hints->addr_format = VRC_SOCKADDR_IP;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(info->addr_format, FI_SOCKADDR_IN);
	hints->addr_format = FI_SOCKADDR_IB;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("FI_SOCKADDR_IB");
	hints->addr_format = 0xdeadbeef;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
}

CLEAN_TEST(addr, garbage_addresses)
{
	uint8_t *bytes = calloc(1, 3);

	fake_plain_host();
	hints->src_addr = bytes;
	bytes[0] = AF_INET;
	for (hints->src_addrlen = 0; hints->src_addrlen <= 3;
	     hints->src_addrlen++) {
		cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
		says("src_addr");
	}
	hint_addr(&hints->src_addr, &hints->src_addrlen, "fd00::2", 0);
	hints->addr_format = FI_SOCKADDR_IN;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("addr_format");
}

/* A wildcard listener's connection, on a lesser device. */
CLEAN_TEST(addr, connreq)
{
	struct fake_device *small;
	struct fi_info *pep, *req;
	struct vrc_dev *dev;
	union vrc_sockaddr src = { 0 }, dst = { 0 };

	fake_roce_host();
	small = fake_add_iwarp("siw0");
	small->attr.max_qp_wr = 52;
	fake_ifaddr("eth2", "10.8.0.1", 24, IFF_UP);
	fake_bind(small, "10.8.0.1", 1);
	hints->mode = FI_RX_CQ_DATA;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->caps = FI_MSG;
	cr_assert_eq(ask(NULL, "7471", FI_SOURCE), 0);
	pep = info;
	pep->fabric_attr->prov_name = strdup("vrc");
	pep->fabric_attr->api_version = FI_VERSION(1, 9);

	dev = vrc_dev_get("siw0");
	cr_assert_not_null(dev);
	/* As a dual-stack listener shows it. */
	src.in6.sin6_family = AF_INET6;
	inet_pton(AF_INET6, "::ffff:10.8.0.1", &src.in6.sin6_addr);
	src.in6.sin6_port = htons(7471);
	dst = src;
	dst.in6.sin6_addr.s6_addr[15] = 9;
	dst.in6.sin6_port = htons(50000);
	req = vrc_info_for_connreq(dev, pep, &src.sa, &dst.sa);
	vrc_dev_put(dev);
	cr_assert_not_null(req);
	cr_assert_str_eq(req->domain_attr->name, "siw0");
	cr_assert_str_eq(str(req->src_addr), "10.8.0.1:7471");
	cr_assert_str_eq(str(req->dest_addr), "10.8.0.9:50000");
	cr_assert_eq(req->tx_attr->size, 50);
	cr_assert_eq(req->ep_attr->protocol, FI_PROTO_IWARP);
	cr_assert_eq(req->domain_attr->cq_data_size, 0);
	cr_assert_eq(req->rx_attr->mode, 0);
	cr_assert_eq(req->domain_attr->threading, FI_THREAD_DOMAIN);
	cr_assert_eq(req->domain_attr->mr_mode, pep->domain_attr->mr_mode);
	cr_assert_eq(req->caps & VRC_PRIMARY_CAPS, FI_MSG | FI_SEND | FI_RECV);
	cr_assert_str_eq(req->nic->device_attr->name, "siw0");
	cr_assert_str_eq(req->fabric_attr->prov_name, "vrc");
	cr_assert_str_eq(req->fabric_attr->name, pep->fabric_attr->name);
	cr_assert_eq(req->fabric_attr->api_version, FI_VERSION(1, 9));
	fi_freeinfo(req);

	/* The same device keeps what was negotiated. */
	dev = vrc_dev_get("roce0");
	req = vrc_info_for_connreq(dev, pep, &src.sa, &dst.sa);
	vrc_dev_put(dev);
	cr_assert_eq(req->rx_attr->mode, FI_RX_CQ_DATA);
	cr_assert_eq(req->mode, FI_RX_CQ_DATA);
	cr_assert_eq(req->domain_attr->cq_data_size, 4);
	cr_assert_eq(req->tx_attr->size, pep->tx_attr->size);
	fi_freeinfo(req);
}

CLEAN_TEST(addr, address_string)
{
	fake_plain_host();
	cr_assert_eq(ask("fi_sockaddr_in://127.0.0.1:7471", NULL, FI_SOURCE),
		     0);
	cr_assert_str_eq(str(info->src_addr), "127.0.0.1:7471");
	cr_assert_eq(ask("fi_sockaddr_in6://[::1]:80/x?qos=3", NULL, FI_SOURCE),
		     0);
	cr_assert_str_eq(str(info->src_addr), "[::1]:80");
	cr_assert_eq(ask("fi_sockaddr://192.0.2.9:5", NULL, 0), 0);
	cr_assert_str_eq(str(info->dest_addr), "192.0.2.9:5");
	cr_assert_eq(ask("fi_sockaddr://[::1]", NULL, FI_SOURCE), 0);
	cr_assert_str_eq(str(info->src_addr), "[::1]:0");
	cr_assert_eq(ask("fi_sockaddr_in://127.0.0.1", "5", FI_SOURCE),
		     -FI_ENODATA);
	says("service");
	cr_assert_eq(ask("fi_sockaddr_in://[", NULL, FI_SOURCE), -FI_ENODATA);
	cr_assert_eq(ask("fi_sockaddr_in6://127.0.0.1:1", NULL, FI_SOURCE),
		     -FI_ENODATA);
	cr_assert_eq(ask("fi_sockaddr_in://", NULL, FI_SOURCE), -FI_ENODATA);
	hints->addr_format = FI_SOCKADDR_IN6;
	cr_assert_eq(ask("fi_sockaddr_in://127.0.0.1:1", NULL, FI_SOURCE),
		     -FI_ENODATA);
}

/* More addresses than a line holds: whole ones, and a sign of more. */
CLEAN_TEST(addr, many_addresses)
{
	static char ip[8][16];
	struct fake_device *dev = fake_roce_host();

	for (int i = 0; i < 5; i++) {
		snprintf(ip[i], sizeof(ip[i]), "10.100.100.10%d", i);
		fake_ifaddr("eth1", ip[i], 24, IFF_UP);
		fake_bind(dev, ip[i], 1);
	}
	cr_assert_eq(ask("192.0.2.2", NULL, FI_SOURCE), -FI_ENODATA);
	says(", ...\n");
}

CLEAN_TEST(addr, sockaddr_helpers)
{
	union vrc_sockaddr a = { 0 }, b = { 0 }, out;
	size_t len;

	a.in.sin_family = AF_INET;
	cr_assert(vrc_sockaddr_is_any(&a.sa));
	vrc_sockaddr_set_port(&a.sa, 80);
	cr_assert_eq(vrc_sockaddr_port(&a.sa), 80);
	b.in6.sin6_family = AF_INET6;
	cr_assert(vrc_sockaddr_is_any(&b.sa));
	cr_assert_not(vrc_sockaddr_same_ip(&a.sa, &b.sa));
	b.in6.sin6_addr.s6_addr[15] = 1;
	cr_assert(vrc_sockaddr_is_loopback(&b.sa));

	len = 0;
	cr_assert_eq(vrc_sockaddr_copy_out(&a.sa, NULL, &len), -FI_ETOOSMALL);
	cr_assert_eq(len, 16);
	len = 4;
	memset(&out, 0xaa, sizeof(out));
	cr_assert_eq(vrc_sockaddr_copy_out(&a.sa, &out, &len), -FI_ETOOSMALL);
	cr_assert_eq(((uint8_t *)&out)[4], 0xaa);
	len = sizeof(out);
	cr_assert_eq(vrc_sockaddr_copy_out(&b.sa, &out, &len), 0);
	cr_assert_eq(len, 28);
	cr_assert(vrc_sockaddr_same_ip(&b.sa, &out.sa));
	a.sa.sa_family = AF_UNIX;
	cr_assert_eq(vrc_sockaddr_len(&a.sa), 0);
	cr_assert_not(vrc_sockaddr_is_any(&a.sa));
}
