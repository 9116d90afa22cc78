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

static void connect_all(void)
{
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
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
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
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

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(all_at_once), CASE(some_close), CASE(connect_together),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
