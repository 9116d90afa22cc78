/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Atomics of several elements: each has its place, a queue takes all of a call or
 * none, and the one completion speaks for all.
 */
#include "atomic.h"

static void fill_words(uint64_t *words, size_t cnt, uint64_t seed)
{
	for (size_t i = 0; i < cnt; i++)
		words[i] = seed + i * 0x0101010101010101;
}

static void check_words(const uint64_t *words, size_t cnt, uint64_t seed)
{
	for (size_t i = 0; i < cnt; i++)
		ASSERT_EQ(words[i], seed + i * 0x0101010101010101);
}

/* Each has its place, at either side, however the vectors are cut. */
static int elements(void)
{
	static uint64_t operand[512], compare[512];
	size_t max, cnt;
	struct comp c;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	ASSERT_OK(fi_fetch_atomicvalid(cli.ep, FI_UINT64, FI_SUM, &max));
	ASSERT_CMP(max, >, 1);
	ASSERT_LE(max, 511);
	for (cnt = 2; cnt <= max; cnt = cnt < max ? min_size(cnt * 3, max) :
						     max + 1) {
		size_t half = cnt / 2;
		struct fi_ioc in[] = {
			{ operand, half }, { operand + half, 0 },
			{ operand + half, cnt - half },
		};
		struct fi_ioc cmp[] = { { compare, 1 }, { compare + 1, cnt - 1 } };
		struct fi_ioc out[] = {
			{ result(), cnt - 1 }, { result() + cnt - 1, 1 },
		};
		void *descs[] = { tx.desc, tx.desc };

		memset(tx.p, 0, LEN);
		fill_words(target(), 512, 7);
		fill_words(operand, cnt, 1000);
		ASSERT_TAKEN(fi_fetch_atomicv(cli.ep, in, NULL, 3, out, descs,
					      2, 0, rx.addr, rx.key, FI_UINT64,
					      FI_SUM, &tx));
		expect_ok(cli.cq, &tx, FETCHED, &c);
		check_words(result(), cnt, 7);
		ASSERT_EQ(result()[cnt < 512 ? cnt : 0], cnt < 512 ? 0 : 7);
		/* Now there is the sum of both. */
		for (size_t i = 0; i < cnt; i++)
			compare[i] = 1007 + i * 0x0202020202020202;
		compare[cnt - 1]++;
		ASSERT_TAKEN(fi_compare_atomicv(cli.ep, in, NULL, 3, cmp, NULL,
						2, out, descs, 2, 0, rx.addr,
						rx.key, FI_UINT64, FI_CSWAP,
						&tx));
		expect_ok(cli.cq, &tx, FETCHED, &c);
		compare[cnt - 1]--;
		ASSERT(!memcmp(result(), compare, cnt * 8));
		/* All but the last were swapped. */
		ASSERT_TAKEN(fi_fetch_atomic(cli.ep, NULL, cnt, NULL, result(),
					     tx.desc, 0, rx.addr, rx.key,
					     FI_UINT64, FI_ATOMIC_READ, &tx));
		expect_ok(cli.cq, &tx, FETCHED, &c);
		check_words(result(), cnt - 1, 1000);
		ASSERT_EQ(result()[cnt - 1], compare[cnt - 1]);
		ASSERT_TAKEN(fi_atomic(cli.ep, operand, cnt, NULL, 0, rx.addr,
				       rx.key, FI_UINT64, FI_SUM, &rx));
		expect_ok(cli.cq, &rx, ADDED, &c);
		/* Those behind are as they were. */
		check_words(target() + cnt, 512 - cnt,
			    7 + cnt * 0x0101010101010101);
		expect_no_comp(cli.cq, 0);
	}
	return pair_close_quiet();
}

/* A queue that has no room for all takes none. */
static int all_or_none(void)
{
	enum { DEPTH = 16, EACH = 5, TIMES = 500 };
	static const uint64_t ones[EACH] = { 1, 1, 1, 1, 1 };
	size_t max, taken = 0;
	struct comp c;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ .tx_size = DEPTH });
	ASSERT_OK(fi_atomicvalid(cli.ep, FI_UINT64, FI_SUM, &max));
	ASSERT_EQ(max, DEPTH - DEPTH / 4);
	for (int done = 0; done < TIMES;) {
		ssize_t ret = fi_atomic(cli.ep, ones, EACH, NULL, 0, rx.addr,
					rx.key, FI_UINT64, FI_SUM, &tx);

		ASSERT(!ret || ret == -FI_EAGAIN);
		taken += !ret;
		while ((ret ? next_comp(cli.cq, &c, slow_ms(1000)) :
			      poll_comp(cli.cq, &c))) {
			ASSERT_EQ(c.err, 0);
			done++;
			ret = 0;
		}
	}
	while (next_comp(cli.cq, &c, 50))
		ASSERT_EQ(c.err, 0);
	for (int i = 0; i < EACH; i++)
		ASSERT_EQ(target()[i], taken);
	ASSERT_EQ(target()[EACH], 0);
	return pair_close_quiet();
}

/* Reading completions makes room for them. */
static void most_once(const uint64_t *operands, size_t cnt)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	unsigned int turn = 0;
	ssize_t ret;

	while ((ret = fi_atomic(cli.ep, operands, cnt, NULL, 0, rx.addr, rx.key,
				FI_UINT64, FI_SUM, &tx)) == -FI_EAGAIN &&
	       now_us() < end) {
		fi_cq_read(cli.cq, NULL, 0);
		relax(&turn);
	}
	ASSERT_OK(ret);
}

/* As many as there may be in one call, behind something that nobody will ever be
 * told of. */
static int most_behind_injected(void)
{
	static const size_t depths[] = { 2, 4, 8, 64 };
	static const uint64_t zeros[64];
	const uint64_t zero = 0;
	size_t max;

	if (!has_atomics())
		return no_atomics();
	for (size_t i = 0; i < 4; i++) {
		open_all((struct setup){ .tx_size = depths[i],
					 .tx_bind = FI_SELECTIVE_COMPLETION,
					 .tx_op_flags = FI_COMPLETION });
		ASSERT_OK(fi_atomicvalid(cli.ep, FI_UINT64, FI_SUM, &max));
		ASSERT_LE(max, depths[i]);
		for (size_t k = 0; k < depths[i]; k++) {
			ASSERT_TAKEN(fi_inject_write(cli.ep, &zero,
						     sizeof(zero), 0, rx.addr,
						     rx.key));
			most_once(zeros, max);
			expect_ok(cli.cq, &tx, FI_ATOMIC | FI_WRITE, NULL);
		}
		pair_close_quiet();
	}
	return PASSED;
}

/* One that the target does not allow: the call's one completion says why. */
static int one_of_many_fails(void)
{
	static const uint64_t ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct comp c;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	ASSERT_TAKEN(fi_atomic(cli.ep, ones, 8, NULL, 0, rx.addr + LEN - 32,
			       rx.key, FI_UINT64, FI_SUM, &tx));
	expect_comp(cli.cq, &c);
	ASSERT(c.context == &tx);
	ASSERT_EQ(c.err, FI_EACCES);
	ASSERT_EQ(c.flags, ADDED);
	expect_no_comp(cli.cq, 20);
	expect_event(&cli, FI_SHUTDOWN, NULL);
	/* Those before it were carried out. */
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(target()[LEN / 8 - 4 + i], 1);
	return pair_close_quiet();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(elements), CASE(all_or_none),
		CASE(most_behind_injected), CASE(one_of_many_fails),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
