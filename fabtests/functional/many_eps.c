/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * 64 connections on one event queue and one completion queue at each side:
 * messages find their endpoint, and closing some leaves the others alone.
 */
#include "common.h"

enum { CONNS = 64, LEN = 256 };

static struct end srv;
static struct end cli;
static struct end s[CONNS];
static struct end c[CONNS];
static struct buf tx;
static struct buf rx;

/* Some devices' completion queues have no room for 64 of the default depth. */
static const struct setup shallow = { .tx_size = 64, .rx_size = 64 };

static void open_all(const struct setup *how)
{
	open_passive(&srv, how);
	listen_start(&srv);
	open_active(&cli, how, &srv);
}

static void connect_all(void)
{
	open_all(&shallow);
	buf_open(&cli, &tx, CONNS * LEN, ALL_ACCESS);
	buf_open(&srv, &rx, CONNS * LEN, ALL_ACCESS);
	for (int i = 0; i < CONNS; i++) {
		open_shared(&c[i], &cli, &srv);
		open_shared(&s[i], &srv, NULL);
		connect_start(&c[i], NULL, 0);
		accept_start(&srv, &s[i], NULL, 0, NULL);
		wait_connected(&s[i], &c[i], NULL);
	}
}

static int close_all(void)
{
	for (int i = 0; i < CONNS; i++) {
		close_end(&c[i]);
		close_end(&s[i]);
	}
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

/* One message on each of the connections that are open, all at once. */
static void round_trip(uint32_t seed)
{
	bool seen[CONNS] = { false };
	struct comp comp;
	int open = 0;

	memset(rx.p, 0, rx.len);
	for (size_t i = 0; i < CONNS; i++) {
		if (!c[i].ep)
			continue;
		open++;
		fill(tx.p + i * LEN, LEN, seed + (uint32_t)i);
		post_recv(&s[i], &rx, i * LEN, LEN, &s[i]);
	}
	for (size_t i = 0; i < CONNS; i++)
		if (c[i].ep)
			post_send(&c[i], &tx, i * LEN, LEN, &c[i]);
	for (int k = 0; k < open; k++) {
		size_t i;

		expect_comp(srv.cq, &comp);
		ASSERT_EQ(comp.err, 0);
		i = (size_t)((struct end *)comp.context - s);
		ASSERT_CMP(i, <, CONNS);
		ASSERT(!seen[i]);
		seen[i] = true;
		ASSERT_FILLED(rx.p + i * LEN, LEN, seed + (uint32_t)i);
	}
	for (int k = 0; k < open; k++) {
		expect_comp(cli.cq, &comp);
		ASSERT_EQ(comp.err, 0);
	}
	expect_no_comp(srv.cq, 0);
	expect_no_comp(cli.cq, 0);
}

static int all_at_once(void)
{
	connect_all();
	for (uint32_t i = 0; i < (uint32_t)scaled(20); i++)
		round_trip(i * 1000);
	return close_all();
}

/* A third is closed at the client, a third at the server. */
static int some_close(void)
{
	connect_all();
	round_trip(0);
	for (int i = 0; i < CONNS; i += 3) {
		close_ep(&c[i]);
		expect_event(&s[i], FI_SHUTDOWN, NULL);
		close_ep(&s[i]);
	}
	round_trip(500);
	for (int i = 1; i < CONNS; i += 3) {
		close_ep(&s[i]);
		expect_event(&c[i], FI_SHUTDOWN, NULL);
		close_ep(&c[i]);
	}
	round_trip(1000);
	for (int i = 2; i < CONNS; i += 3) {
		expect_no_event(&c[i], 0);
		expect_no_event(&s[i], 0);
	}
	return close_all();
}

/* All requests first, then all answers. */
static int connect_together(void)
{
	open_all(&shallow);
	for (int i = 0; i < CONNS; i++) {
		open_shared(&c[i], &cli, &srv);
		open_shared(&s[i], &srv, NULL);
		connect_start(&c[i], NULL, 0);
	}
	for (int i = 0; i < CONNS; i++)
		accept_start(&srv, &s[i], NULL, 0, NULL);
	for (int i = 0; i < CONNS; i++)
		wait_connected(&s[i], &c[i], NULL);
	for (int i = 0; i < CONNS; i++) {
		close_end(&c[i]);
		close_end(&s[i]);
	}
	close_pair(&srv, &cli);
	return PASSED;
}

/* With default depths all fit, or fi_enable says that there is no space: then
 * those that are there are none the worse, and closing one makes room. */
static int default_depths(void)
{
	struct fid_ep *eps[CONNS];
	int ret = 0;
	int n;

	open_all(NULL);
	for (n = 0; n < CONNS; n++) {
		ASSERT_OK(fi_endpoint(cli.domain, cli.info, &eps[n], NULL));
		ASSERT_OK(fi_ep_bind(eps[n], &cli.evq->eq->fid, 0));
		ret = fi_ep_bind(eps[n], &cli.cq->fid, FI_TRANSMIT | FI_RECV);
		if (!ret)
			ret = fi_enable(eps[n]);
		if (ret)
			break;
	}
	printf("  %d of %d fit\n", n, CONNS);
	if (ret) {
		ASSERT(ret == -FI_ENOSPC || ret == -FI_ENOMEM);
		ASSERT_CMP(n, >, 8);
		ASSERT_OK(fi_close(&eps[n]->fid));
		ASSERT_OK(fi_close(&eps[--n]->fid));
	}
	if (n == CONNS)
		ASSERT_OK(fi_close(&eps[--n]->fid));
	connect_pair(&srv, &cli);
	while (n)
		ASSERT_OK(fi_close(&eps[--n]->fid));
	close_pair(&srv, &cli);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(all_at_once), CASE(some_close), CASE(connect_together),
		CASE(default_depths), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
