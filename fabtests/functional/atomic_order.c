/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Atomics and their neighbours: the order against other operations of the same
 * endpoint; several endpoints that change one word at once.
 */
#include <pthread.h>

#include "atomic.h"

/* ---- order ---- */

static void write_word(uint64_t value)
{
	ASSERT_TAKEN(fi_inject_write(cli.ep, &value, sizeof(value), 0, rx.addr,
				     rx.key));
}

/* Writes, atomics and reads of one word, none waited for: each sees those
 * before it and none behind. */
static int ordered_with_rma(void)
{
	enum { ROUNDS = 500 };
	uint64_t *r;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	ASSERT(cli.info->tx_attr->msg_order & FI_ORDER_WAW);
	ASSERT(cli.info->tx_attr->msg_order & FI_ORDER_ATOMIC_WAR);
	r = result();
	for (uint64_t i = 0; i < (uint64_t)scaled(ROUNDS); i++) {
		uint64_t seed = i << 16, one = 1, two = 2, three = seed + 3;
		uint64_t nine = seed + 9;

		memset(r, 0xee, 64);
		write_word(seed);
		ASSERT_TAKEN(fi_fetch_atomic(cli.ep, &one, 1, NULL, &r[0],
					     tx.desc, 0, rx.addr, rx.key,
					     FI_UINT64, FI_SUM, NULL));
		ASSERT_TAKEN(fi_read(cli.ep, &r[1], 8, tx.desc, 0, rx.addr,
				     rx.key, NULL));
		ASSERT_TAKEN(fi_inject_atomic(cli.ep, &two, 1, 0, rx.addr,
					      rx.key, FI_UINT64, FI_SUM));
		ASSERT_TAKEN(fi_compare_atomic(cli.ep, &nine, 1, NULL, &three,
					       NULL, &r[2], tx.desc, 0,
					       rx.addr, rx.key, FI_UINT64,
					       FI_CSWAP, NULL));
		write_word(seed + 20);
		ASSERT_TAKEN(fi_read(cli.ep, &r[3], 8, tx.desc, 0, rx.addr,
				     rx.key, NULL));
		ASSERT_TAKEN(fi_fetch_atomic(cli.ep, NULL, 1, NULL, &r[4],
					     tx.desc, 0, rx.addr, rx.key,
					     FI_UINT64, FI_ATOMIC_READ, NULL));
		expect_ok(cli.cq, NULL, FETCHED, NULL);
		expect_ok(cli.cq, NULL, FI_RMA | FI_READ, NULL);
		expect_ok(cli.cq, NULL, FETCHED, NULL);
		expect_ok(cli.cq, NULL, FI_RMA | FI_READ, NULL);
		expect_ok(cli.cq, NULL, FETCHED, NULL);
		ASSERT_EQ(r[0], seed);
		ASSERT_EQ(r[1], seed + 1);
		ASSERT_EQ(r[2], seed + 3);
		ASSERT_EQ(r[3], seed + 20);
		ASSERT_EQ(r[4], seed + 20);
	}
	return pair_close_quiet();
}

/* A message is behind the atomics that were posted before it. */
static int ordered_with_sends(void)
{
	enum { ROUNDS = 500, N = 5 };

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	for (uint64_t i = 1; i <= (uint64_t)scaled(ROUNDS); i++) {
		uint64_t one = 1;

		post_recv(&srv, &rx, 8, 0, &rx);
		for (int n = 0; n < N; n++)
			ASSERT_TAKEN(fi_inject_atomic(cli.ep, &one, 1, 0,
						      rx.addr, rx.key,
						      FI_UINT64, FI_SUM));
		ASSERT_TAKEN(fi_send(cli.ep, NULL, 0, NULL, 0, &cli));
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
		ASSERT_EQ(__atomic_load_n(target(), __ATOMIC_ACQUIRE), i * N);
		expect_ok(cli.cq, &cli, FI_SEND | FI_MSG, NULL);
	}
	return pair_close_quiet();
}

/* ---- several at once ---- */

enum { SIDES = 2, TURNS = 5000 };

struct side {
	struct end cli;
	struct end srv;
	struct buf results;
	pthread_t thread;
	uint64_t last;
};

static uint64_t side_do(struct side *s, bool compare, uint64_t expected,
			uint64_t value, uint64_t off)
{
	uint64_t *r = (uint64_t *)s->results.p;
	struct fi_cq_data_entry entry;
	unsigned int turn = 0;
	ssize_t ret;

	ret = compare ? fi_compare_atomic(s->cli.ep, &value, 1, NULL,
					  &expected, NULL, r, s->results.desc,
					  0, rx.addr + off, rx.key, FI_UINT64,
					  FI_CSWAP, s) :
			fi_fetch_atomic(s->cli.ep, &value, 1, NULL, r,
					s->results.desc, 0, rx.addr + off,
					rx.key, FI_UINT64, FI_SUM, s);
	ASSERT_OK(ret);
	while ((ret = fi_cq_read(s->cli.cq, &entry, 1)) == -FI_EAGAIN)
		relax(&turn);
	ASSERT_EQ(ret, 1);
	ASSERT(entry.op_context == s);
	return *r;
}

/* Adds to the first word, and adds to the second by comparing and swapping. */
static void *side_run(void *arg)
{
	struct side *s = arg;
	uint64_t now, seen = 0;

	for (int i = 0; i < scaled(TURNS); i++) {
		now = side_do(s, false, 0, 1, 0);
		if (i)
			ASSERT_CMP(now, >, s->last);
		s->last = now;
		while ((now = side_do(s, true, seen, seen + 1, 8)) != seen)
			seen = now;
		seen++;
	}
	return NULL;
}

static int from_several(void)
{
	static struct side sides[SIDES];
	const struct setup how = { .caps = ATOMIC_CAPS };
	uint64_t want = (uint64_t)scaled(TURNS) * SIDES;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	for (int i = 0; i < SIDES; i++) {
		struct side *s = &sides[i];

		open_active(&s->cli, &how, &srv);
		open_shared(&s->srv, &srv, NULL);
		connect_start(&s->cli, NULL, 0);
		accept_start(&srv, &s->srv, NULL, 0, NULL);
		wait_connected(&s->srv, &s->cli, NULL);
		buf_open(&s->cli, &s->results, 8, FI_READ);
	}
	for (int i = 0; i < SIDES; i++)
		ASSERT_OK(pthread_create(&sides[i].thread, NULL, side_run,
					 &sides[i]));
	for (int i = 0; i < SIDES; i++)
		ASSERT_OK(pthread_join(sides[i].thread, NULL));
	expect_target(want);
	ASSERT_EQ(target()[1], want);
	for (int i = 0; i < SIDES; i++) {
		close_ep(&sides[i].cli);
		buf_close(&sides[i].results);
		close_end(&sides[i].srv);
		close_end(&sides[i].cli);
	}
	return pair_close_quiet();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(ordered_with_rma), CASE(ordered_with_sends),
		CASE(from_several), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
