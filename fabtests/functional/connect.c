/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connecting: private data of exact length both ways, addresses, IPv4 and
 * IPv6, who speaks first, receives posted early, a listener's port given to an
 * endpoint, crossing connections, what does not block.
 */
#include <arpa/inet.h>

#include "common.h"

static size_t cm_data_size(struct fid *fid)
{
	size_t size = 0;
	size_t len = sizeof(size);

	ASSERT_OK(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &size,
			    &len));
	ASSERT_EQ(len, sizeof(size));
	/* ofi_rxm needs 24. */
	ASSERT_GE(size, 24);
	return size;
}

static void one_exchange(struct end *srv, struct end *cli, size_t len)
{
	uint8_t there[512];
	uint8_t back[512];
	struct event req;
	struct event done;

	fill(there, len, (uint32_t)len);
	fill(back, len, (uint32_t)len + 1000);
	connect_start(cli, there, len);
	accept_start(srv, srv, back, len, &req);
	wait_connected(srv, cli, &done);
	ASSERT_EQ(req.len, len);
	ASSERT_FILLED(req.data, len, (uint32_t)len);
	ASSERT_EQ(done.len, len);
	ASSERT_FILLED(done.data, len, (uint32_t)len + 1000);
	close_ep(cli);
	close_ep(srv);
}

static int private_data(void)
{
	struct end srv;
	struct end cli;
	size_t max;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	make_ep(&cli, cli.info);
	max = cm_data_size(&cli.ep->fid);
	ASSERT_EQ(cm_data_size(&srv.pep->fid), max);
	ASSERT_LE(max, 512);
	close_ep(&cli);

	one_exchange(&srv, &cli, 0);
	one_exchange(&srv, &cli, 1);
	one_exchange(&srv, &cli, 7);
	one_exchange(&srv, &cli, 24);
	one_exchange(&srv, &cli, max - 1);
	one_exchange(&srv, &cli, max);
	one_exchange(&srv, &cli, 0); /* nothing left of the last one */
	close_pair(&srv, &cli);
	return PASSED;
}

/* Data that begins or ends in zeros keeps its length. */
static int private_data_zeros(void)
{
	uint8_t zeros[24] = { 0 };
	struct end srv;
	struct end cli;
	struct event req;
	struct event done;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	connect_start(&cli, zeros, sizeof(zeros));
	accept_start(&srv, &srv, zeros, 3, &req);
	wait_connected(&srv, &cli, &done);
	ASSERT_EQ(req.len, sizeof(zeros));
	ASSERT_EQ(done.len, 3);
	close_pair(&srv, &cli);
	return PASSED;
}

/* One byte too many is refused at once, and the endpoint is still good. */
static int private_data_too_long(void)
{
	uint8_t data[600] = { 0 };
	struct end srv;
	struct end cli;
	struct event req;
	struct event done;
	size_t max;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	make_ep(&cli, cli.info);
	max = cm_data_size(&cli.ep->fid);
	ASSERT_EQ(fi_connect(cli.ep, cli.info->dest_addr, data, max + 1),
		  -FI_EINVAL);
	connect_start(&cli, data, max);
	expect_event(&srv, FI_CONNREQ, &req);
	make_ep(&srv, req.info);
	/* fi_cm(3) would let a provider cut it silently; vrc never does. */
	if (is_vrc()) {
		ASSERT_EQ(fi_accept(srv.ep, data, max + 1), -FI_EINVAL);
		ASSERT_OK(fi_accept(srv.ep, data, max));
		wait_connected(&srv, &cli, &done);
		ASSERT_EQ(done.len, max);
	}
	fi_freeinfo(req.info);
	close_pair(&srv, &cli);
	return PASSED;
}

static void same_addr(const void *a, const void *b, bool with_port)
{
	const struct sockaddr_in *a4 = a;
	const struct sockaddr_in *b4 = b;
	const struct sockaddr_in6 *a6 = a;
	const struct sockaddr_in6 *b6 = b;

	ASSERT_EQ(a4->sin_family, b4->sin_family);
	if (with_port)
		ASSERT_EQ(ntohs(a4->sin_port), ntohs(b4->sin_port));
	if (a4->sin_family == AF_INET)
		ASSERT_EQ(ntohl(a4->sin_addr.s_addr), ntohl(b4->sin_addr.s_addr));
	else
		ASSERT_OK(memcmp(&a6->sin6_addr, &b6->sin6_addr, 16));
}

static void name_of(struct fid *fid, struct sockaddr_storage *addr)
{
	size_t len = sizeof(*addr);

	memset(addr, 0, sizeof(*addr));
	ASSERT_OK(fi_getname(fid, addr, &len));
	ASSERT_EQ(len, addr->ss_family == AF_INET ?
		       sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
}

static void peer_of(struct fid_ep *ep, struct sockaddr_storage *addr)
{
	size_t len = sizeof(*addr);

	memset(addr, 0, sizeof(*addr));
	ASSERT_OK(fi_getpeer(ep, addr, &len));
}

/* getname and getpeer of both sides agree with each other. */
static void check_names(struct end *srv, struct end *cli)
{
	struct sockaddr_storage s, c, p, l;
	uint8_t room[64];
	size_t len = 3;

	name_of(&srv->pep->fid, &l);
	name_of(&cli->ep->fid, &c);
	peer_of(cli->ep, &p);
	same_addr(&p, &l, true);
	same_addr(&p, cli->info->dest_addr, true);
	name_of(&srv->ep->fid, &s);
	same_addr(&s, &l, false);
	peer_of(srv->ep, &p);
	same_addr(&p, &c, false);

	/* Too small: cut, with the size that is needed. */
	memset(room, 0xee, sizeof(room));
	ASSERT_EQ(fi_getname(&cli->ep->fid, room, &len), -FI_ETOOSMALL);
	ASSERT_BYTES(room + 3, sizeof(room) - 3, 0xee);
	ASSERT_GE(len, sizeof(struct sockaddr_in));
	len = 0;
	ASSERT_EQ(fi_getpeer(cli->ep, NULL, &len), -FI_ETOOSMALL);
	ASSERT_GE(len, sizeof(struct sockaddr_in));
	len = 0;
	ASSERT_EQ(fi_getname(&srv->pep->fid, NULL, &len), -FI_ETOOSMALL);
	ASSERT_GE(len, sizeof(struct sockaddr_in));
}

static void one_message(struct end *from, struct end *to)
{
	struct buf a;
	struct buf b;

	buf_open(from, &a, 64, FI_SEND);
	buf_open(to, &b, 64, FI_RECV);
	fill(a.p, 64, 1);
	post_recv(to, &b, 0, 64, &b);
	post_send(from, &a, 0, 64, &a);
	expect_ok(from->cq, &a, FI_SEND | FI_MSG, NULL);
	expect_ok(to->cq, &b, FI_RECV | FI_MSG, NULL);
	ASSERT_FILLED(b.p, 64, 1);
	buf_close(&a);
	buf_close(&b);
}

static int names(void)
{
	struct end srv;
	struct end cli;

	make_pair(&srv, &cli, NULL);
	check_names(&srv, &cli);
	one_message(&cli, &srv);
	close_pair(&srv, &cli);
	return PASSED;
}

static int ipv6(void)
{
	struct setup how = { .node = "::1" };
	struct fi_info *info;
	struct end srv;
	struct end cli;
	int ret;

	if (getenv("VRC_TEST_ADDR"))
		return skip("VRC_TEST_ADDR chooses the device");
	info = try_getinfo(&how, NULL, FI_SOURCE, &ret);
	if (!info)
		return skip("no ::1 here");
	fi_freeinfo(info);
	make_pair(&srv, &cli, &how);
	check_names(&srv, &cli);
	one_message(&cli, &srv);
	one_message(&srv, &cli);
	close_pair(&srv, &cli);
	return PASSED;
}

/* The listening side may be the first to speak (hard on iWARP). */
static int server_speaks_first(void)
{
	struct end srv;
	struct end cli;

	for (int round = 0; round < 5; round++) {
		make_pair(&srv, &cli, NULL);
		one_message(&srv, &cli);
		one_message(&cli, &srv);
		close_pair(&srv, &cli);
	}
	return PASSED;
}

/* Receives posted after fi_enable, before fi_connect and fi_accept. */
static int early_receives(void)
{
	struct end srv;
	struct end cli;
	struct event req;
	struct buf a;
	struct buf b;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	buf_open(&srv, &a, 64, FI_SEND | FI_RECV);
	buf_open(&cli, &b, 64, FI_SEND | FI_RECV);
	make_ep(&cli, cli.info);
	post_recv(&cli, &b, 0, 32, &b);
	post_recv(&cli, &b, 32, 32, &b);
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &req);
	make_ep(&srv, req.info);
	fi_freeinfo(req.info);
	post_recv(&srv, &a, 0, 32, &a);
	ASSERT_OK(fi_accept(srv.ep, NULL, 0));
	wait_connected(&srv, &cli, NULL);
	post_send(&srv, &a, 32, 32, &a);
	expect_ok(srv.cq, &a, FI_SEND | FI_MSG, NULL);
	post_send(&srv, &a, 32, 32, &a);
	expect_ok(srv.cq, &a, FI_SEND | FI_MSG, NULL);
	for (int i = 0; i < 2; i++)
		expect_ok(cli.cq, &b, FI_RECV | FI_MSG, NULL);
	post_send(&cli, &b, 0, 32, &b);
	expect_ok(cli.cq, &b, FI_SEND | FI_MSG, NULL);
	expect_ok(srv.cq, &a, FI_RECV | FI_MSG, NULL);
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&a);
	buf_close(&b);
	close_pair(&srv, &cli);
	return PASSED;
}

/* fi_connect and fi_accept enable the endpoint when it is not yet. */
static int implicit_enable(void)
{
	struct end srv;
	struct end cli;
	struct event req;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	ASSERT_OK(fi_endpoint(cli.domain, cli.info, &cli.ep, NULL));
	ASSERT_OK(fi_ep_bind(cli.ep, &cli.evq->eq->fid, 0));
	ASSERT_OK(fi_ep_bind(cli.ep, &cli.cq->fid, FI_TRANSMIT | FI_RECV));
	ASSERT_OK(fi_connect(cli.ep, cli.info->dest_addr, NULL, 0));
	expect_event(&srv, FI_CONNREQ, &req);
	ASSERT_OK(fi_endpoint(srv.domain, req.info, &srv.ep, NULL));
	fi_freeinfo(req.info);
	ASSERT_OK(fi_ep_bind(srv.ep, &srv.evq->eq->fid, 0));
	ASSERT_OK(fi_ep_bind(srv.ep, &srv.cq->fid, FI_TRANSMIT | FI_RECV));
	ASSERT_OK(fi_accept(srv.ep, NULL, 0));
	wait_connected(&srv, &cli, NULL);
	one_message(&cli, &srv);
	close_pair(&srv, &cli);
	return PASSED;
}

/* FI_PROGRESS_AUTO is a promise: the request arrives although the connecting
 * side never reads its event queue. */
static int auto_progress(void)
{
	struct end srv;
	struct end cli;
	struct fi_eq_cm_entry entry;
	uint32_t type;
	ssize_t n;

	open_passive(&srv, NULL);
	if (srv.info->domain_attr->control_progress != FI_PROGRESS_AUTO ||
	    !is_vrc()) {
		close_end(&srv);
		return skip("progress is manual (tcp 1.17: whatever it says)");
	}
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	connect_start(&cli, NULL, 0);
	n = fi_eq_sread(srv.evq->eq, &type, &entry, sizeof(entry),
			slow_ms(3000), 0);
	ASSERT_EQ(n, sizeof(entry));
	ASSERT_EQ(type, FI_CONNREQ);
	make_ep(&srv, entry.info);
	ASSERT_OK(fi_accept(srv.ep, NULL, 0));
	fi_freeinfo(entry.info);
	wait_connected(&srv, &cli, NULL);
	close_pair(&srv, &cli);
	return PASSED;
}

/* An address that a passive endpoint reserved goes to an active one. */
static int handle_of_pep(void)
{
	struct sockaddr_storage before, after;
	struct end srv;
	struct end cli;
	struct fid_pep *pep;
	struct fi_info *info;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	ASSERT_OK(fi_passive_ep(cli.fabric, cli.info, &pep, NULL));
	name_of(&pep->fid, &before);
	info = fi_dupinfo(cli.info);
	ASSERT(info);
	info->handle = &pep->fid;
	make_ep(&cli, info);
	name_of(&cli.ep->fid, &after);
	if (((struct sockaddr_in *)&before)->sin_port)
		same_addr(&before, &after, true);
	ASSERT_OK(fi_close(&pep->fid));
	ASSERT_OK(fi_connect(cli.ep, cli.info->dest_addr, NULL, 0));
	accept_start(&srv, &srv, NULL, 0, NULL);
	wait_connected(&srv, &cli, NULL);
	name_of(&cli.ep->fid, &after);
	if (((struct sockaddr_in *)&before)->sin_port)
		same_addr(&before, &after, true);
	one_message(&cli, &srv);
	info->handle = NULL;
	fi_freeinfo(info);
	close_pair(&srv, &cli);
	return PASSED;
}

/* A and B listen and connect to each other at once: two connections. */
static int crossing(void)
{
	struct end a, b, ca, cb;

	open_passive(&a, NULL);
	listen_start(&a);
	open_passive(&b, NULL);
	listen_start(&b);
	open_shared(&ca, &a, &b);
	open_shared(&cb, &b, &a);
	connect_start(&ca, NULL, 0);
	connect_start(&cb, NULL, 0);
	accept_start(&a, &a, NULL, 0, NULL);
	accept_start(&b, &b, NULL, 0, NULL);
	wait_connected(&b, &ca, NULL);
	wait_connected(&a, &cb, NULL);
	expect_no_event(&a, 20);
	expect_no_event(&b, 0);
	close_end(&ca);
	close_end(&cb);
	close_end(&a);
	close_end(&b);
	return PASSED;
}

/* Neither opening nor connecting waits for the network. */
static int does_not_block(void)
{
	struct setup how = { .node = NULL };
	struct end srv;
	struct end cli;
	uint64_t start;

	open_passive(&srv, &how);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	start = now_us();
	make_ep(&cli, cli.info);
	connect_start(&cli, NULL, 0);
	ASSERT_LE(now_us() - start, slow_ms(100) * 1000);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Once in a lifetime; and accept is for endpoints made from a request. */
static int wrong_order(void)
{
	struct end srv;
	struct end cli;

	make_pair(&srv, &cli, NULL);
	if (!is_vrc()) {
		close_pair(&srv, &cli);
		return skip("%s does not check it", provider());
	}
	ASSERT_CMP(fi_connect(cli.ep, cli.info->dest_addr, NULL, 0), <, 0);
	ASSERT_CMP(fi_accept(cli.ep, NULL, 0), <, 0);
	ASSERT_CMP(fi_accept(srv.ep, NULL, 0), <, 0);
	ASSERT_CMP(fi_connect(srv.ep, cli.info->dest_addr, NULL, 0), <, 0);
	ASSERT_CMP(fi_listen(srv.pep), <, 0);
	one_message(&cli, &srv);
	close_ep(&cli);
	make_ep(&cli, cli.info);
	ASSERT_CMP(fi_accept(cli.ep, NULL, 0), <, 0);
	close_pair(&srv, &cli);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(private_data), CASE(private_data_zeros),
		CASE(private_data_too_long), CASE(names), CASE(ipv6),
		CASE(server_speaks_first), CASE(early_receives),
		CASE(implicit_enable), CASE(auto_progress),
		CASE(handle_of_pep), CASE(crossing), CASE(does_not_block),
		CASE(wrong_order), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
