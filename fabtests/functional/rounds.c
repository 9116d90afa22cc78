/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connect, transfer, close, again and again: nothing accumulates. The number
 * of rounds is the argument after "--" (100).
 */
#include <malloc.h>

#include "common.h"

static void transfer(struct end *srv, struct end *cli, uint32_t seed)
{
	enum { LEN = 10000 };
	struct buf a;
	struct buf b;

	buf_open(cli, &a, LEN, ALL_ACCESS);
	buf_open(srv, &b, LEN, ALL_ACCESS);
	fill(a.p, LEN, seed);
	post_recv(srv, &b, 0, LEN, &b);
	post_send(cli, &a, 0, LEN, &a);
	expect_ok(cli->cq, &a, FI_SEND | FI_MSG, NULL);
	expect_ok(srv->cq, &b, FI_RECV | FI_MSG, NULL);
	ASSERT_FILLED(b.p, LEN, seed);
	ASSERT_TAKEN(
		fi_read(cli->ep, a.p, 100, a.desc, 0, b.addr + 100, b.key, &a));
	expect_ok(cli->cq, &a, FI_RMA | FI_READ, NULL);
	ASSERT_OK(memcmp(a.p, b.p + 100, 100));
	/* Some are left posted. */
	for (int i = 0; i < 4; i++)
		post_recv(srv, &b, 0, LEN, &b);
	close_ep(seed & 1 ? cli : srv);
	close_ep(seed & 1 ? srv : cli);
	buf_close(&a);
	buf_close(&b);
}

/* No more than there were. A stream over TCP ends a moment after its endpoint. */
static void expect_fds(int fds)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(2000) * 1000;

	while (count_fds() > fds && now_us() < end)
		sleep_ms(1);
	ASSERT_LE(count_fds(), fds);
}

/* Everything from fi_getinfo on is new each time. */
static int all_new(void)
{
	int n = (int)test_arg(scaled(100));
	int fds = 0;

	for (int i = 0; i < n; i++) {
		struct end srv;
		struct end cli;

		make_pair(&srv, &cli, NULL);
		transfer(&srv, &cli, (uint32_t)i);
		close_pair(&srv, &cli);
		if (i == 1)
			fds = count_fds();
		if (i > 1)
			expect_fds(fds);
	}
	return PASSED;
}

static void drain(struct fid_cq *cq)
{
	struct comp c;

	while (poll_comp(cq, &c))
		ASSERT_CMP(c.err, >, 0);
}

static size_t min_heap(size_t so_far)
{
	size_t now = mallinfo2().uordblks;

	return now < so_far ? now : so_far;
}

/* Only the endpoints are. Memory may grow by a little, not by the round. What
 * the provider frees later comes and goes, so the least of some is compared. */
static int endpoints_new(void)
{
	int n = (int)test_arg(scaled(300));
	int span = n / 4 + 1;
	size_t early = SIZE_MAX;
	size_t late = SIZE_MAX;
	ssize_t grown;
	struct end srv;
	struct end cli;
	int fds = 0;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	for (int i = 0; i < n; i++) {
		connect_pair(&srv, &cli);
		transfer(&srv, &cli, (uint32_t)i);
		drain(srv.cq);
		drain(cli.cq);
		if (i == 1)
			fds = count_fds();
		if (i > 1)
			expect_fds(fds);
		if (i >= span && i < 2 * span)
			early = min_heap(early);
		if (i >= n - span)
			late = min_heap(late);
	}
	grown = (ssize_t)(late - early);
	printf("  heap grew by %zd bytes in %d rounds\n", grown, n - 2 * span);
	/* Dead connections may linger for a while; of a thousand rounds, a
	 * leak of one record in each is more than this. */
	ASSERT_LE(grown, 16 * n + 65536);
	close_pair(&srv, &cli);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(all_new), CASE(endpoints_new), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
