/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Atomics that are not carried out: what is not offered is refused, and so is what is
 * wrong; both leave the target alone. What the target does not allow ends the
 * connection.
 */
#include "atomic.h"

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
	return pair_close_quiet();
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
	return pair_close_quiet();
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
	return pair_close_quiet();
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
		pair_close_quiet();
	}
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(what_is_offered), CASE(not_asked), CASE(refused),
		CASE(no_right), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
