/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Atomics: what is offered is right, whatever call it comes by; what is not
 * offered is refused and leaves the target alone; order against the other
 * operations; many that add to one word at once.
 */
#include <pthread.h>

#include "common.h"

#define ATOMIC_CAPS (FI_MSG | FI_RMA | FI_ATOMIC)
#define ADDED (FI_ATOMIC | FI_WRITE)
#define FETCHED (FI_ATOMIC | FI_READ)

enum { LEN = 4096 };

static struct end srv;
static struct end cli;
static struct buf tx; /* results */
static struct buf rx; /* targets */

/* ---- making ---- */

static bool has_atomics(void)
{
	const struct setup how = { .caps = ATOMIC_CAPS };
	struct fi_info *info;
	int ret;

	info = try_getinfo(&how, NULL, FI_SOURCE, &ret);
	fi_freeinfo(info);
	if (info)
		return true;
	ASSERT_EQ(ret, -FI_ENODATA);
	return false;
}

static int no_atomics(void)
{
	return skip("%s has none on this device", provider());
}

static void open_all(struct setup how)
{
	if (!how.caps)
		how.caps = ATOMIC_CAPS;
	make_pair(&srv, &cli, &how);
	buf_open(&cli, &tx, LEN, FI_READ | FI_WRITE | FI_SEND);
	buf_open(&srv, &rx, LEN,
		 FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE);
}

static int close_all(void)
{
	expect_no_comp(cli.cq, 0);
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

static uint64_t *target(void)
{
	return (uint64_t *)rx.p;
}

static uint64_t *result(void)
{
	return (uint64_t *)tx.p;
}

/* As the target's CPU sees it, which a completion does not promise. */
static void expect_target(uint64_t want)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	unsigned int turn = 0;

	while (__atomic_load_n(target(), __ATOMIC_ACQUIRE) != want &&
	       now_us() < end)
		relax(&turn);
	ASSERT_EQ(*target(), want);
}

static void add(uint64_t value)
{
	ASSERT_TAKEN(fi_atomic(cli.ep, &value, 1, NULL, 0, rx.addr, rx.key,
			       FI_UINT64, FI_SUM, &value));
	expect_ok(cli.cq, &value, ADDED, NULL);
}

static uint64_t fetch(const void *operand, enum fi_datatype datatype,
		      enum fi_op op)
{
	*result() = 0xeeee;
	ASSERT_TAKEN(fi_fetch_atomic(cli.ep, operand, 1, NULL, result(),
				     tx.desc, 0, rx.addr, rx.key, datatype, op,
				     &tx));
	expect_ok(cli.cq, &tx, FETCHED, NULL);
	return *result();
}

static uint64_t swap(uint64_t compare, uint64_t value)
{
	*result() = 0xeeee;
	ASSERT_TAKEN(fi_compare_atomic(cli.ep, &value, 1, NULL, &compare, NULL,
				       result(), tx.desc, 0, rx.addr, rx.key,
				       FI_UINT64, FI_CSWAP, &tx));
	expect_ok(cli.cq, &tx, FETCHED, NULL);
	return *result();
}

/* ---- what is offered ---- */

enum family { BASE, FETCH, COMPARE };

static bool offered(enum family family, int datatype, int op)
{
	bool integer = datatype == FI_INT64 || datatype == FI_UINT64;

	if (family == COMPARE)
		return op == FI_CSWAP && integer;
	if (family == FETCH && op == FI_ATOMIC_READ)
		return integer || datatype == FI_DOUBLE ||
		       datatype == FI_FLOAT_COMPLEX;
	return op == FI_SUM && integer;
}

static ssize_t call(enum family family, int datatype, int op)
{
	static const uint8_t ones[64] = { 1 };
	enum fi_datatype type = (enum fi_datatype)datatype;
	enum fi_op what = (enum fi_op)op;

	switch (family) {
	case BASE:
		return fi_atomic(cli.ep, ones, 1, NULL, 0, rx.addr, rx.key,
				 type, what, &tx);
	case FETCH:
		return fi_fetch_atomic(cli.ep, ones, 1, NULL, tx.p, tx.desc, 0,
				       rx.addr, rx.key, type, what, &tx);
	default:
		return fi_compare_atomic(cli.ep, ones, 1, NULL, ones, NULL,
					 tx.p, tx.desc, 0, rx.addr, rx.key,
					 type, what, &tx);
	}
}

static void check_offer(enum family family, int datatype, int op)
{
	static const uint64_t flags[] = {
		0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC,
	};
	int want = offered(family, datatype, op) ? 0 : -FI_EOPNOTSUPP;
	enum fi_datatype type = (enum fi_datatype)datatype;
	enum fi_op what = (enum fi_op)op;
	struct fi_atomic_attr attr = { 0 };
	size_t cnt = 99;

	switch (family) {
	case BASE:
		ASSERT_EQ(fi_atomicvalid(cli.ep, type, what, &cnt), want);
		break;
	case FETCH:
		ASSERT_EQ(fi_fetch_atomicvalid(cli.ep, type, what, &cnt),
			  want);
		break;
	default:
		ASSERT_EQ(fi_compare_atomicvalid(cli.ep, type, what, &cnt),
			  want);
	}
	ASSERT(want ? !cnt : cnt >= 1 && cnt <= cli.info->tx_attr->size);
	ASSERT_EQ(fi_query_atomic(cli.domain, type, what, &attr,
				  flags[family]), want);
	ASSERT(want ? !attr.count : attr.count >= cnt);
	ASSERT_EQ(attr.size, want ? 0 : 8);
	if (!want)
		return;
	/* It is not carried out as something else. */
	ASSERT_EQ(call(family, datatype, op), -FI_EOPNOTSUPP);
	ASSERT_EQ(*target(), 7);
}

static int what_is_offered(void)
{
	struct fi_atomic_attr attr;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	*target() = 7;
	/* One beyond what there is, at both ends. */
	for (int type = -1; type <= FI_LONG_DOUBLE_COMPLEX + 1; type++) {
		for (int op = -1; op <= FI_MSWAP + 1; op++) {
			check_offer(BASE, type, op);
			check_offer(FETCH, type, op);
			check_offer(COMPARE, type, op);
		}
	}
	ASSERT_EQ(fi_query_atomic(cli.domain, FI_UINT64, FI_SUM, &attr,
				  FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC),
		  -FI_EINVAL);
	ASSERT_EQ(fi_query_atomic(cli.domain, FI_UINT64, FI_SUM, &attr,
				  FI_TAGGED), -FI_EOPNOTSUPP);
	expect_no_comp(cli.cq, 20);
	return close_all();
}

/* Who does not ask for them gets none. */
static int not_asked(void)
{
	uint64_t one = 1;

	open_all((struct setup){ .caps = FI_MSG | FI_RMA });
	ASSERT(!(cli.info->caps & FI_ATOMIC));
	if (is_vrc())
		ASSERT_CMP(fi_atomic(cli.ep, &one, 1, NULL, 0, rx.addr, rx.key,
				     FI_UINT64, FI_SUM, NULL), <, 0);
	return close_all();
}

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
	return close_all();
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
	return close_all();
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
	return close_all();
}

/* ---- every call ---- */

struct calls {
	struct fi_ioc operand;
	struct fi_ioc compare;
	struct fi_ioc result;
	struct fi_rma_ioc remote;
	struct fi_msg_atomic msg;
};

/* The message points into c. */
static void calls_fill(struct calls *c, uint64_t *operand, uint64_t *compare)
{
	*c = (struct calls){
		.operand = { operand, 1 },
		.compare = { compare, 1 },
		.result = { result(), 1 },
		.remote = { rx.addr, 1, rx.key },
		.msg = {
			.msg_iov = &c->operand,
			.iov_count = 1,
			.rma_iov = &c->remote,
			.rma_iov_count = 1,
			.datatype = FI_UINT64,
			.op = FI_SUM,
			.context = &tx,
		},
	};
}

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
	return close_all();
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
	return close_all();
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
	return close_all();
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
	return close_all();
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
	return close_all();
}

/* ---- several elements ---- */

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
	return close_all();
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
	return close_all();
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
		close_all();
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
	return close_all();
}

/* ---- what is wrong ---- */

static int refused(void)
{
	uint64_t one = 1;
	size_t max;
	struct calls c;
	struct fid_ep *ep;

	if (!has_atomics())
		return no_atomics();
	open_all((struct setup){ 0 });
	ep = cli.ep;
	*target() = 7;
	for (uint64_t off = 1; off < 8; off++)
		ASSERT_EQ(fi_atomic(ep, &one, 1, NULL, 0, rx.addr + off,
				    rx.key, FI_UINT64, FI_SUM, &tx),
			  -FI_EINVAL);
	ASSERT_EQ(fi_atomic(ep, &one, 0, NULL, 0, rx.addr, rx.key, FI_UINT64,
			    FI_SUM, &tx), -FI_EINVAL);
	ASSERT_OK(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &max));
	ASSERT_EQ(fi_atomic(ep, tx.p, max + 1, NULL, 0, rx.addr, rx.key,
			    FI_UINT64, FI_SUM, &tx), -FI_EMSGSIZE);
	ASSERT_EQ(fi_atomic(ep, tx.p, SIZE_MAX, NULL, 0, rx.addr, rx.key,
			    FI_UINT64, FI_SUM, &tx), -FI_EMSGSIZE);
	ASSERT_EQ(fi_inject_atomic(ep, tx.p,
				   cli.info->tx_attr->inject_size / 8 + 1, 0,
				   rx.addr, rx.key, FI_UINT64, FI_SUM),
		  -FI_EMSGSIZE);
	ASSERT_EQ(fi_atomic(ep, NULL, 1, NULL, 0, rx.addr, rx.key, FI_UINT64,
			    FI_SUM, &tx), -FI_EINVAL);
	ASSERT_EQ(fi_atomic(ep, &one, 1, NULL, 0, rx.addr, 1ULL << 32,
			    FI_UINT64, FI_SUM, &tx), -FI_EKEYREJECTED);
	ASSERT_EQ(fi_fetch_atomic(ep, &one, 1, NULL, NULL, tx.desc, 0, rx.addr,
				  rx.key, FI_UINT64, FI_SUM, &tx), -FI_EINVAL);
	ASSERT_EQ(fi_fetch_atomic(ep, &one, 1, NULL, tx.p, NULL, 0, rx.addr,
				  rx.key, FI_UINT64, FI_SUM, &tx), -FI_EINVAL);
	ASSERT_EQ(fi_compare_atomic(ep, &one, 1, NULL, NULL, NULL, tx.p,
				    tx.desc, 0, rx.addr, rx.key, FI_UINT64,
				    FI_CSWAP, &tx), -FI_EINVAL);
	calls_fill(&c, &one, &one);
	ASSERT_EQ(fi_atomicmsg(ep, &c.msg, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
	ASSERT_EQ(fi_atomicmsg(ep, &c.msg, FI_TAGGED), -FI_EBADFLAGS);
	c.msg.rma_iov_count = 2;
	ASSERT_EQ(fi_atomicmsg(ep, &c.msg, 0), -FI_EINVAL);
	/* As many here as there. */
	calls_fill(&c, &one, &one);
	c.remote.count = 2;
	ASSERT_EQ(fi_atomicmsg(ep, &c.msg, 0), -FI_EINVAL);
	calls_fill(&c, &one, &one);
	c.operand.count = 2;
	ASSERT_EQ(fi_atomicmsg(ep, &c.msg, 0), -FI_EINVAL);
	c.operand.count = 1;
	c.result.count = 2;
	ASSERT_EQ(fi_fetch_atomicmsg(ep, &c.msg, &c.result, &tx.desc, 1, 0),
		  -FI_EINVAL);
	c.result.count = 1;
	c.compare.count = 2;
	c.msg.op = FI_CSWAP;
	ASSERT_EQ(fi_compare_atomicmsg(ep, &c.msg, &c.compare, NULL, 1,
				       &c.result, &tx.desc, 1, 0), -FI_EINVAL);
	c.msg.op = FI_SUM;
	ASSERT_EQ(fi_fetch_atomicmsg(ep, &c.msg, &c.result, &tx.desc, 0, 0),
		  -FI_EINVAL);
	expect_no_comp(cli.cq, 20);
	/* And none of them has had an effect. */
	ASSERT_EQ(fetch(&one, FI_UINT64, FI_SUM), 7);
	return close_all();
}

/* What the target has not allowed breaks the connection, and nothing else. */
static int no_right(void)
{
	uint64_t before;
	struct comp c;

	if (!has_atomics())
		return no_atomics();
	for (int i = 0; i < 3; i++) {
		struct buf mine;

		open_all((struct setup){ 0 });
		/* The right to write is what it takes; and a key that is one. */
		buf_open(&srv, &mine, LEN, i ? FI_REMOTE_READ : ALL_ACCESS);
		memset(mine.p, 0x11, LEN);
		memcpy(&before, mine.p, sizeof(before));
		ASSERT_TAKEN(fi_fetch_atomic(
			cli.ep, &before, 1, NULL, result(), tx.desc, 0,
			mine.addr + (i == 2 ? 8 : 0),
			i ? mine.key : mine.key ^ 0x5500, FI_UINT64,
			i ? FI_ATOMIC_READ : FI_SUM, &tx));
		expect_comp(cli.cq, &c);
		ASSERT(c.context == &tx);
		ASSERT_CMP(c.err, >, 0);
		ASSERT_NE(c.err, FI_ECANCELED);
		ASSERT_EQ(c.flags, FETCHED);
		ASSERT_EQ(c.len, 8);
		ASSERT_BYTES(mine.p, LEN, 0x11);
		expect_event(&cli, FI_SHUTDOWN, NULL);
		expect_event(&srv, FI_SHUTDOWN, NULL);
		close_ep(&cli);
		close_ep(&srv);
		buf_close(&mine);
		connect_pair(&srv, &cli);
		add(3);
		expect_target(3);
		close_all();
	}
	return PASSED;
}

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
	return close_all();
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
	return close_all();
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
	return close_all();
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
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(what_is_offered), CASE(not_asked), CASE(sums),
		CASE(reads), CASE(swaps), CASE(vectors_and_messages),
		CASE(injected), CASE(selective), CASE(unregistered_result),
		CASE(many), CASE(elements), CASE(all_or_none),
		CASE(most_behind_injected), CASE(one_of_many_fails), CASE(refused), CASE(no_right),
		CASE(ordered_with_rma), CASE(ordered_with_sends),
		CASE(from_several), CASE(counted), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
