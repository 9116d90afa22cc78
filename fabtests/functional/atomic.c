/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Atomics: what is offered is right, whatever call it comes by, however many are in
 * flight, and counted. Calls of several elements are in atomic_elements.c, what is
 * not carried out in atomic_refused.c, order in atomic_order.c.
 */
#include "atomic.h"

/* ---- that it is right ---- */

static int sums(void)
{
	static const uint64_t values[] = {
		0, 1, 41, UINT32_MAX, 1ULL << 63, UINT64_MAX, 0x0102030405060708,
	};
	uint64_t sum = 0;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		add(values[i]);
		sum += values[i];
		expect_target(sum);
		ASSERT_EQ(fetch(&values[i], FI_UINT64, FI_SUM), sum);
		sum += values[i];
		expect_target(sum);
	}
	for (int64_t v = -3; v <= 3; v++) {
		ASSERT_EQ(fetch(&v, FI_INT64, FI_SUM), sum);
		sum += (uint64_t)v;
	}
	expect_target(sum);
	/* Eight bytes, and those beside them untouched. */
	ASSERT_BYTES(rx.p + 8, LEN - 8, 0);
	ASSERT_BYTES(tx.p + 8, LEN - 8, 0);
	return pair_close_quiet();
}

static int reads(void)
{
	const double value = -0.1;
	uint64_t bits;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	memcpy(&bits, &value, sizeof(bits));
	*target() = bits;
	ASSERT_EQ(fetch(NULL, FI_DOUBLE, FI_ATOMIC_READ), bits);
	ASSERT_EQ(fetch(NULL, FI_FLOAT_COMPLEX, FI_ATOMIC_READ), bits);
	ASSERT_EQ(fetch(&value, FI_UINT64, FI_ATOMIC_READ), bits);
	ASSERT_EQ(fetch(&value, FI_INT64, FI_ATOMIC_READ), bits);
	ASSERT_EQ(*target(), bits);
	return pair_close_quiet();
}

static int swaps(void)
{
	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	*target() = 5;
	ASSERT_EQ(swap(5, UINT64_MAX), 5);
	expect_target(UINT64_MAX);
	ASSERT_EQ(swap(5, 6), UINT64_MAX);
	ASSERT_EQ(swap(UINT32_MAX, 6), UINT64_MAX);
	ASSERT_EQ(*target(), UINT64_MAX);
	ASSERT_EQ(swap(UINT64_MAX, 0x0102030405060708), UINT64_MAX);
	ASSERT_EQ(swap(0, 1), 0x0102030405060708);
	ASSERT_EQ(*target(), 0x0102030405060708);
	return pair_close_quiet();
}

/* ---- every call ---- */

static int vectors_and_messages(void)
{
	static const uint64_t flags[] = {
		0, FI_COMPLETION, FI_INJECT, FI_FENCE, FI_COMPLETION | FI_MORE,
		FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
		FI_DELIVERY_COMPLETE | FI_FENCE | FI_INJECT,
	};
	uint64_t one = 1, now = 0;
	struct calls c;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	calls_fill(&c, &one, &now);
	ASSERT_TAKEN(fi_atomicv(cli.ep, &c.operand, NULL, 1, 0, rx.addr,
				rx.key, FI_UINT64, FI_SUM, &tx));
	expect_ok(cli.cq, &tx, ADDED, NULL);
	ASSERT_TAKEN(fi_fetch_atomicv(cli.ep, &c.operand, NULL, 1, &c.result,
				      &tx.desc, 1, 0, rx.addr, rx.key,
				      FI_UINT64, FI_SUM, &tx));
	expect_ok(cli.cq, &tx, FETCHED, NULL);
	ASSERT_EQ(*result(), 1);
	now = 2;
	ASSERT_TAKEN(fi_compare_atomicv(cli.ep, &c.operand, NULL, 1,
					&c.compare, NULL, 1, &c.result,
					&tx.desc, 1, 0, rx.addr, rx.key,
					FI_UINT64, FI_CSWAP, &tx));
	expect_ok(cli.cq, &tx, FETCHED, NULL);
	ASSERT_EQ(*result(), 2);
	expect_target(1);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		uint64_t last = flags[i] & ~FI_MORE;

		c.msg.op = FI_SUM;
		ASSERT_TAKEN(fi_atomicmsg(cli.ep, &c.msg, flags[i]));
		ASSERT_TAKEN(fi_fetch_atomicmsg(cli.ep, &c.msg, &c.result,
						&tx.desc, 1, last));
		expect_ok(cli.cq, &tx, ADDED, NULL);
		expect_ok(cli.cq, &tx, FETCHED, NULL);
		ASSERT_EQ(*result(), 2);
		now = 3;
		c.msg.op = FI_CSWAP;
		ASSERT_TAKEN(fi_compare_atomicmsg(cli.ep, &c.msg, &c.compare,
						  NULL, 1, &c.result, &tx.desc,
						  1, last));
		expect_ok(cli.cq, &tx, FETCHED, NULL);
		ASSERT_EQ(*result(), 3);
		expect_target(1);
	}
	return pair_close_quiet();
}

static int injected(void)
{
	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	for (uint64_t i = 1; i <= 100; i++) {
		uint64_t value = i;

		ASSERT_TAKEN(fi_inject_atomic(cli.ep, &value, 1, 0, rx.addr,
					      rx.key, FI_UINT64, FI_SUM));
		value = 1000000;
	}
	ASSERT_EQ(fetch(NULL, FI_UINT64, FI_ATOMIC_READ), 5050);
	expect_no_comp(cli.cq, 20);
	return pair_close_quiet();
}

/* Completions for those that ask, and what was silent done by then. */
static int selective(void)
{
	uint64_t one = 1;
	struct calls how;
	struct comp c;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ .tx_bind = FI_SELECTIVE_COMPLETION });
	calls_fill(&how, &one, &one);
	for (int i = 0; i < 1000;) {
		ssize_t ret = fi_atomic(cli.ep, &one, 1, NULL, 0, rx.addr,
					rx.key, FI_UINT64, FI_SUM, NULL);

		/* Reading is what empties the queue, though it shows nothing. */
		ASSERT(!poll_comp(cli.cq, &c));
		ASSERT(!ret || ret == -FI_EAGAIN);
		i += !ret;
	}
	expect_no_comp(cli.cq, 20);
	ASSERT_TAKEN(fi_fetch_atomicmsg(cli.ep, &how.msg, &how.result,
					&tx.desc, 1, FI_COMPLETION));
	expect_ok(cli.cq, &tx, FETCHED, NULL);
	ASSERT_EQ(*result(), 1000);
	return pair_close_quiet();
}

/* Without FI_MR_LOCAL results go to memory that nobody registered. */
static int unregistered_result(void)
{
	uint64_t here = 0, one = 1;
	struct setup how = {
		.caps = ATOMIC_CAPS,
		.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
	};

	if (!has_atomics())
		return no_atomics();
	open_all(how);
	for (uint64_t i = 0; i < 1000; i++) {
		ASSERT_TAKEN(fi_fetch_atomic(cli.ep, &one, 1, NULL, &here,
					     NULL, 0, rx.addr, rx.key,
					     FI_UINT64, FI_SUM, &tx));
		expect_ok(cli.cq, &tx, FETCHED, NULL);
		ASSERT_EQ(here, 2 * i);
		add(1);
	}
	return pair_close_quiet();
}

/* More in flight than any device answers at once, and than the queue takes. */
static int many(void)
{
	enum { N = 2000, DEPTH = 64 };
	uint64_t *results;
	struct comp c;
	size_t done = 0;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ .tx_size = DEPTH });
	results = result();
	for (size_t i = 0; i < N; i++) {
		uint64_t one = 1;
		ssize_t ret;

		while ((ret = fi_fetch_atomic(cli.ep, &one, 1, NULL,
					      &results[i % DEPTH], tx.desc, 0,
					      rx.addr, rx.key, FI_UINT64,
					      FI_SUM, (void *)i)) ==
		       -FI_EAGAIN) {
			expect_comp(cli.cq, &c);
			ASSERT_EQ(c.err, 0);
			ASSERT_EQ((uintptr_t)c.context, done);
			ASSERT_EQ(results[done % DEPTH], done);
			done++;
		}
		ASSERT_OK(ret);
	}
	for (; done < N; done++) {
		expect_ok(cli.cq, (void *)done, FETCHED, NULL);
		ASSERT_EQ(results[done % DEPTH], done);
	}
	expect_target(N);
	return pair_close_quiet();
}

/* ---- counters ---- */

static struct fid_cntr *reads_done;
static struct fid_cntr *writes_done;

static void bind_counters(struct end *e)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };

	if (e != &cli)
		return;
	ASSERT_OK(fi_cntr_open(e->domain, &attr, &reads_done, NULL));
	ASSERT_OK(fi_cntr_open(e->domain, &attr, &writes_done, NULL));
	ASSERT_OK(fi_ep_bind(e->ep, &reads_done->fid, FI_READ));
	ASSERT_OK(fi_ep_bind(e->ep, &writes_done->fid, FI_WRITE));
}

static int counted(void)
{
	enum { N = 100 };
	uint64_t one = 1;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ .bind = bind_counters });
	for (int i = 0; i < N; i++) {
		ASSERT_TAKEN(fi_inject_atomic(cli.ep, &one, 1, 0, rx.addr,
					      rx.key, FI_UINT64, FI_SUM));
		fetch(&one, FI_UINT64, FI_SUM);
		swap(0, 0);
		/* One, however many elements it has. */
		ASSERT_TAKEN(fi_atomic(cli.ep, rx.p, 10, NULL, 0, rx.addr,
				       rx.key, FI_UINT64, FI_SUM, &rx));
		expect_ok(cli.cq, &rx, ADDED, NULL);
	}
	ASSERT_OK(fi_cntr_wait(writes_done, 2 * N, slow_ms(5000)));
	ASSERT_EQ(fi_cntr_read(writes_done), 2 * N);
	ASSERT_EQ(fi_cntr_read(reads_done), 2 * N);
	ASSERT_EQ(fi_cntr_readerr(reads_done), 0);
	close_ep(&cli);
	ASSERT_OK(fi_close(&reads_done->fid));
	ASSERT_OK(fi_close(&writes_done->fid));
	return pair_close();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(sums), CASE(reads), CASE(swaps),
		CASE(vectors_and_messages), CASE(injected), CASE(selective),
		CASE(unregistered_result), CASE(many), CASE(counted),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
