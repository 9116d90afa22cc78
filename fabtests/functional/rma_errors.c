/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Remote memory access that must be refused: wrong keys, bounds and rights.
 * The completion names the operation; the connection ends with one
 * FI_SHUTDOWN at each side; what was queued behind flushes; a new connection
 * works.
 */
#include "pair.h"

enum { LEN = 4096 };

static void open_all(uint64_t access)
{
	make_pair(&srv, &cli, NULL);
	buf_open(&cli, &tx, LEN, ALL_ACCESS);
	buf_open(&srv, &rx, LEN, access);
	memset(rx.p, 0xee, LEN);
}

/* tcp of libfabric 1.17 closes the connection, or does not check at all. */
static bool checks_access(void)
{
	return is_vrc();
}

static int not_checked(void)
{
	return skip("%s does not check remote access", provider());
}

static void post(uint64_t op, size_t len, uint64_t addr, uint64_t key)
{
	if (op == FI_READ)
		ASSERT_TAKEN(
			fi_read(cli.ep, tx.p, len, tx.desc, 0, addr, key, &tx));
	else
		ASSERT_TAKEN(fi_write(cli.ep, tx.p, len, tx.desc, 0, addr, key,
				      &tx));
}

/* How the connection ends: both are told, once. */
static void ended(void)
{
	expect_event(&cli, FI_SHUTDOWN, NULL);
	expect_event(&srv, FI_SHUTDOWN, NULL);
	expect_no_event(&cli, 20);
	expect_no_event(&srv, 0);
}

/* The failed operation, and the end. */
static void refused(uint64_t op, size_t len)
{
	struct comp c;

	expect_comp(cli.cq, &c);
	ASSERT(c.context == &tx);
	ASSERT_EQ(c.flags, FI_RMA | op);
	if (is_iwarp(&cli)) {
		/* A write was on its way; a read gets no answer. */
		if (op == FI_READ)
			ASSERT_CMP(c.err, >, 0);
	} else {
		ASSERT_CMP(c.err, >, 0);
		ASSERT_NE(c.err, FI_ECANCELED);
	}
	if (c.err)
		ASSERT_EQ(c.len, len);
	ended();
}

static void reconnect(void)
{
	close_ep(&cli);
	close_ep(&srv);
	connect_pair(&srv, &cli);
	if (rx.mr) {
		post(FI_READ, 1, rx.addr, rx.key);
		expect_ok(cli.cq, &tx, FI_RMA | FI_READ, NULL);
	}
}

static int bad_key(void)
{
	if (!checks_access())
		return not_checked();
	open_all(ALL_ACCESS);
	for (int i = 0; i < 4; i++) {
		uint64_t op = i & 1 ? FI_READ : FI_WRITE;
		/* One that never was; and one just beside a good one. */
		uint64_t key = i & 2 ? rx.key ^ 1 : 0xdead00;

		post(op, 100, rx.addr, key);
		refused(op, 100);
		ASSERT_BYTES(rx.p, LEN, 0xee);
		reconnect();
	}
	return pair_close_quiet();
}

static int out_of_bounds(void)
{
	struct { int64_t off; size_t len; } bad[] = {
		{ LEN, 1 }, { LEN - 1, 2 }, { -1, 1 }, { -1, 2 },
		{ 0, LEN + 1 }, { LEN / 2, LEN }, { 1LL << 40, 8 },
		{ -(1LL << 40), 8 },
	};

	if (!checks_access())
		return not_checked();
	open_all(ALL_ACCESS);
	buf_close(&tx);
	buf_open(&cli, &tx, 2 * LEN, ALL_ACCESS);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(bad); i++) {
		uint64_t op = i & 1 ? FI_READ : FI_WRITE;

		post(op, bad[i / 2].len, rx.addr + (uint64_t)bad[i / 2].off,
		     rx.key);
		refused(op, bad[i / 2].len);
		ASSERT_BYTES(rx.p, LEN, 0xee);
		reconnect();
	}
	return pair_close_quiet();
}

/* The rights are those asked for: no more. */
static int no_right(void)
{
	static const struct { uint64_t access, op; } bad[] = {
		{ FI_REMOTE_READ, FI_WRITE },
		{ FI_SEND | FI_RECV | FI_READ | FI_WRITE, FI_WRITE },
		{ FI_SEND | FI_RECV | FI_READ | FI_WRITE, FI_READ },
		{ FI_REMOTE_WRITE, FI_READ },
	};

	if (!checks_access())
		return not_checked();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		open_all(bad[i].access);
		/* On iWARP a peer must be able to write to what is read into. */
		if (is_iwarp(&cli) && bad[i].op == FI_WRITE &&
		    bad[i].access & FI_READ) {
			pair_close_quiet();
			continue;
		}
		post(bad[i].op, 100, rx.addr, rx.key);
		refused(bad[i].op, 100);
		ASSERT_BYTES(rx.p, LEN, 0xee);
		pair_close_quiet();
	}
	return PASSED;
}

/* A key is worth nothing once its region is closed. */
static int closed_region(void)
{
	struct fid_mr *mr;
	uint64_t key;

	if (!checks_access())
		return not_checked();
	open_all(ALL_ACCESS);
	ASSERT_OK(fi_mr_reg(srv.domain, rx.p, LEN, FI_REMOTE_WRITE, 0, 77, 0,
			    &mr, NULL));
	key = fi_mr_key(mr);
	post(FI_WRITE, 8, rx.addr, key);
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	ASSERT_OK(fi_close(&mr->fid));
	memset(rx.p, 0xee, 8);
	post(FI_WRITE, 8, rx.addr, key);
	refused(FI_WRITE, 8);
	ASSERT_BYTES(rx.p, LEN, 0xee);
	return pair_close_quiet();
}

/* A region of another domain at the target is none of this connection's. */
static int other_domain(void)
{
	struct end other;
	struct buf foreign;

	if (!checks_access())
		return not_checked();
	open_all(ALL_ACCESS);
	open_passive(&other, NULL);
	buf_open(&other, &foreign, LEN, ALL_ACCESS);
	memset(foreign.p, 0xee, LEN);
	post(FI_WRITE, 8, foreign.addr, foreign.key);
	refused(FI_WRITE, 8);
	ASSERT_BYTES(foreign.p, LEN, 0xee);
	buf_close(&foreign);
	close_end(&other);
	return pair_close_quiet();
}

/* What was queued behind the failing one: all of it comes back, in order. */
static int flush_behind(void)
{
	enum { N = 32 };
	struct comp c;

	if (!checks_access())
		return not_checked();
	open_all(ALL_ACCESS);
	for (uintptr_t i = 1; i <= N; i++)
		post_recv(&cli, &tx, 0, 8, (void *)(100 + i));
	post(FI_WRITE, 8, rx.addr, 0xdead00);
	for (uintptr_t i = 1; i <= N; i++) {
		ssize_t ret = fi_write(cli.ep, tx.p, 8, tx.desc, 0, rx.addr,
				       rx.key, (void *)i);

		/* It may already have broken. */
		if (ret) {
			ASSERT_NE(ret, -FI_EAGAIN);
			break;
		}
	}
	expect_comp(cli.cq, &c);
	ASSERT(c.context == &tx);
	if (is_iwarp(&cli)) {
		/* Some may have been on their way; the order holds anyway. */
		uintptr_t last = 0;

		do {
			uintptr_t i = (uintptr_t)c.context;

			if (i && i < 100)
				ASSERT_EQ(i, ++last);
		} while (next_comp(cli.cq, &c, 500));
		ended();
		return pair_close_quiet();
	}
	ASSERT_CMP(c.err, >, 0);
	for (uintptr_t next = 1, next_recv = 101; next_comp(cli.cq, &c,
	     next_recv <= 100 + N ? 3000 : 50);) {
		ASSERT_EQ(c.err, FI_ECANCELED);
		if ((uintptr_t)c.context > 100) {
			ASSERT_EQ((uintptr_t)c.context, next_recv++);
			ASSERT_EQ(c.flags, FI_RECV | FI_MSG);
		} else {
			ASSERT_EQ((uintptr_t)c.context, next++);
			ASSERT_EQ(c.flags, FI_RMA | FI_WRITE);
			ASSERT_EQ(c.len, 8);
		}
		if (next_recv > 100 + N + 1)
			FAIL("too many");
	}
	expect_event(&cli, FI_SHUTDOWN, NULL);
	expect_no_event(&cli, 20);
	return pair_close_quiet();
}

/* Nobody asked for this completion, but errors are always told. */
static int inject_fails(void)
{
	struct comp c;
	bool told;

	if (!checks_access())
		return not_checked();
	open_all(ALL_ACCESS);
	ASSERT_TAKEN(fi_inject_write(cli.ep, tx.p, 8, 0, rx.addr, 0xdead00));
	/* On iWARP it may count as done once it is on its way. */
	told = next_comp(cli.cq, &c, is_iwarp(&cli) ? 200 : 5000);
	ASSERT(told || is_iwarp(&cli));
	if (told) {
		ASSERT_CMP(c.err, >, 0);
		ASSERT_NE(c.err, FI_ECANCELED);
		ASSERT_EQ(c.flags, FI_RMA | FI_WRITE);
		/* fi_endpoint(3) says the endpoint's, fi_cq(3) says NULL. */
		ASSERT(c.context == &cli || !c.context);
	}
	ended();
	ASSERT_BYTES(rx.p, LEN, 0xee);
	return pair_close_quiet();
}

/* Data with more bytes than the peer would get is refused, not cut. */
static int too_much_data(void)
{
	struct fi_rma_iov target = { .len = 8 };
	struct iovec iov = { NULL, 8 };
	struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1,
				  .rma_iov = &target, .rma_iov_count = 1 };
	size_t size;

	pair_open(NULL, LEN);
	size = cli.info->domain_attr->cq_data_size;
	if (!size || size >= 8) {
		pair_close_quiet();
		return skip("any data of 64 bits, or none");
	}
	iov.iov_base = tx.p;
	msg.desc = &tx.desc;
	msg.context = &tx;
	target.addr = rx.addr;
	target.key = rx.key;
	for (size_t bit = 8 * size; bit < 64; bit++) {
		msg.data = 1ULL << bit | 1;
		ASSERT_EQ(fi_writedata(cli.ep, tx.p, 8, tx.desc, msg.data, 0,
				       rx.addr, rx.key, &tx), -FI_EINVAL);
		ASSERT_EQ(fi_inject_writedata(cli.ep, tx.p, 8, msg.data, 0,
					      rx.addr, rx.key), -FI_EINVAL);
		ASSERT_EQ(fi_writemsg(cli.ep, &msg, FI_REMOTE_CQ_DATA |
							    FI_COMPLETION),
			  -FI_EINVAL);
	}
	ASSERT_TAKEN(fi_writemsg(cli.ep, &msg, FI_COMPLETION));
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	ASSERT_TAKEN(fi_readmsg(cli.ep, &msg, FI_COMPLETION));
	expect_ok(cli.cq, &tx, FI_RMA | FI_READ, NULL);
	return pair_close_quiet();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(bad_key), CASE(out_of_bounds), CASE(no_right),
		CASE(closed_region), CASE(other_domain), CASE(flush_behind),
		CASE(inject_fails), CASE(too_much_data), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
