/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FI_DELIVERY_COMPLETE: when such a send or write completes, the message can be
 * read from the peer's queue and the data is in the peer's memory, now, not a
 * moment later. It completes once, as what it is.
 */
#include "pair.h"

enum { LEN = 4096, SLOTS = 16, BIG = SLOTS * LEN };

static ssize_t try_send(size_t len, void *context, uint64_t flags)
{
	struct iovec iov = { tx.p, len };
	struct fi_msg msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.context = context,
	};

	return fi_sendmsg(cli.ep, &msg, flags);
}

static ssize_t try_write(size_t len, uint64_t key, void *context,
			 uint64_t flags)
{
	struct iovec iov = { tx.p, len };
	struct fi_rma_iov target = { rx.addr, len, key };
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.rma_iov = &target, .rma_iov_count = 1, .context = context,
	};

	return fi_writemsg(cli.ep, &msg, flags);
}

/* Without waiting. */
static void expect_received_already(size_t len, uint32_t seed)
{
	struct comp c;

	ASSERT(poll_comp(srv.cq, &c));
	ASSERT_EQ(c.err, 0);
	ASSERT_EQ(c.len, len);
	ASSERT_FILLED(rx.p, len, seed);
}

/* Short enough to go inline, and not. */
static const size_t lens[] = { 0, 8, 200, LEN, BIG };

static int sends(void)
{
	pair_open(NULL, BIG);
	for (uint32_t i = 0; i < (uint32_t)scaled(200); i++) {
		size_t len = lens[i % ARRAY_SIZE(lens)];

		fill(tx.p, len, i);
		post_recv(&srv, &rx, 0, BIG, &rx);
		ASSERT_TAKEN(try_send(len, &tx, FI_DELIVERY_COMPLETE |
							FI_COMPLETION));
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
		expect_received_already(len, i);
	}
	expect_no_comp(cli.cq, 10);
	return pair_close();
}

static int writes(void)
{
	pair_open(NULL, BIG);
	for (uint32_t i = 0; i < (uint32_t)scaled(200); i++) {
		size_t len = lens[i % ARRAY_SIZE(lens)];

		fill(tx.p, len, i);
		ASSERT_TAKEN(try_write(len, rx.key, &tx,
				       FI_DELIVERY_COMPLETE | FI_COMPLETION));
		expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
		ASSERT_FILLED(rx.p, len, i);
	}
	expect_no_comp(cli.cq, 10);
	return pair_close();
}

/* It is not delivered before there is a receive. */
static int late_receive(void)
{
	pair_open(NULL, BIG);
	if (has_credits(&cli)) {
		pair_close();
		return skip("a send without a receive is not taken");
	}
	fill(tx.p, LEN, 1);
	ASSERT_TAKEN(try_send(LEN, &tx, FI_DELIVERY_COMPLETE | FI_COMPLETION));
	expect_no_comp(cli.cq, 100);
	post_recv(&srv, &rx, 0, LEN, &rx);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	expect_received_already(LEN, 1);
	return pair_close();
}

/* For calls without flags, too; and those that may not tell what they do. */
static int by_default(void)
{
	const struct setup how = { .tx_op_flags = FI_DELIVERY_COMPLETE };

	pair_open(&how, BIG);
	ASSERT_EQ(cli.info->tx_attr->op_flags, FI_DELIVERY_COMPLETE);
	for (uint32_t i = 0; i < 20; i++) {
		fill(tx.p, LEN, i);
		post_recv(&srv, &rx, 0, LEN, &rx);
		post_send(&cli, &tx, 0, LEN, &tx);
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
		expect_received_already(LEN, i);
		fill(tx.p, LEN, i + 100);
		ASSERT_TAKEN(fi_write(cli.ep, tx.p, LEN, tx.desc, 0, rx.addr,
				      rx.key, &tx));
		expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
		ASSERT_FILLED(rx.p, LEN, i + 100);
		ASSERT_TAKEN(fi_read(cli.ep, tx.p, LEN, tx.desc, 0, rx.addr,
				     rx.key, &tx));
		expect_ok(cli.cq, &tx, FI_RMA | FI_READ, NULL);
		post_recv(&srv, &rx, 0, LEN, &rx);
		ASSERT_TAKEN(fi_inject(cli.ep, tx.p, 8, 0));
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	}
	expect_no_comp(cli.cq, 10);
	return pair_close();
}

static int injected(void)
{
	size_t len;

	pair_open(NULL, BIG);
	len = cli.info->tx_attr->inject_size;
	fill(tx.p, len, 3);
	post_recv(&srv, &rx, 0, len, &rx);
	ASSERT_TAKEN(try_send(len, &tx, FI_DELIVERY_COMPLETE | FI_COMPLETION |
						FI_INJECT | FI_MORE));
	memset(tx.p, 0xee, len);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	expect_received_already(len, 3);
	return pair_close();
}

/* Until the queue is full, over and over; each completes once, in order. */
static int full(void)
{
	const struct setup how = { .tx_size = 5 };
	uint64_t end = now_us() + (uint64_t)slow_ms(20000) * 1000;
	uintptr_t n = (uintptr_t)scaled(3000);
	uintptr_t posted = 0, done = 0;
	struct comp c;

	pair_open(&how, BIG);
	while (done < n && now_us() < end) {
		uint64_t flags = FI_COMPLETION |
				 (posted % 3 ? FI_DELIVERY_COMPLETE : 0) |
				 (posted % 4 ? FI_MORE : 0);
		ssize_t ret = -FI_EAGAIN;

		if (posted < n)
			ret = try_write(64, rx.key, (void *)posted, flags);
		if (!ret) {
			posted++;
			continue;
		}
		ASSERT_EQ(ret, -FI_EAGAIN);
		while (poll_comp(cli.cq, &c)) {
			ASSERT_EQ(c.err, 0);
			ASSERT_EQ(c.flags, FI_RMA | FI_WRITE);
			if (!is_iwarp(&cli))
				ASSERT_EQ((uintptr_t)c.context, done);
			done++;
		}
	}
	ASSERT_EQ(done, n);
	expect_no_comp(cli.cq, 10);
	return pair_close();
}

/* One that fails says why, once. */
static int fails(void)
{
	struct comp c;

	pair_open(NULL, BIG);
	ASSERT_TAKEN(try_write(64, 0xdead00, &tx,
			       FI_DELIVERY_COMPLETE | FI_COMPLETION));
	expect_comp(cli.cq, &c);
	ASSERT(c.context == &tx);
	ASSERT_EQ(c.flags, FI_RMA | FI_WRITE);
	/* An iWARP device may have completed the write by then. */
	if (is_iwarp(&cli))
		ASSERT_CMP(c.err, >, 0);
	else
		ASSERT_EQ(c.err, FI_EACCES);
	expect_no_comp(cli.cq, 20);
	return pair_close();
}

static int selective(void)
{
	const struct setup how = { .tx_bind = FI_SELECTIVE_COMPLETION };

	pair_open(&how, BIG);
	ASSERT_TAKEN(try_write(64, rx.key, &tx, FI_DELIVERY_COMPLETE));
	expect_no_comp(cli.cq, 20);
	ASSERT_TAKEN(try_write(64, rx.key, &rx,
			       FI_DELIVERY_COMPLETE | FI_COMPLETION));
	expect_ok(cli.cq, &rx, FI_RMA | FI_WRITE, NULL);
	expect_no_comp(cli.cq, 20);
	return pair_close();
}

static struct fid_cntr *cntr;

static void bind_cntr(struct end *e)
{
	if (e == &cli)
		ASSERT_OK(fi_ep_bind(e->ep, &cntr->fid, FI_WRITE));
}

/* A counter counts what has been delivered. */
static int counted(void)
{
	const struct setup how = { .bind = bind_cntr,
				   .tx_bind = FI_SELECTIVE_COMPLETION };
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };

	open_passive(&srv, &how);
	listen_start(&srv);
	open_active(&cli, &how, &srv);
	ASSERT_OK(fi_cntr_open(cli.domain, &attr, &cntr, NULL));
	connect_pair(&srv, &cli);
	buf_open(&cli, &tx, BIG, ALL_ACCESS);
	buf_open(&srv, &rx, BIG, ALL_ACCESS);
	for (uint32_t i = 1; i <= 20; i++) {
		fill(tx.p, LEN, i);
		ASSERT_TAKEN(try_write(LEN, rx.key, &tx, FI_DELIVERY_COMPLETE));
		ASSERT_OK(fi_cntr_wait(cntr, i, slow_ms(5000)));
		ASSERT_FILLED(rx.p, LEN, i);
	}
	ASSERT_EQ(fi_cntr_read(cntr), 20);
	close_ep(&cli);
	ASSERT_OK(fi_close(&cntr->fid));
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

/* The end of the connection leaves none out. */
static int flushed(void)
{
	enum { N = 6 };
	bool seen[N] = { false };
	struct comp c;
	int n = 0;

	pair_open(NULL, BIG);
	for (; n < N; n++)
		if (try_send(LEN, &seen[n],
			     FI_DELIVERY_COMPLETE | FI_COMPLETION))
			break; /* no receive: not taken */
	close_ep(&cli);
	for (int i = 0; i < n; i++) {
		bool *mine;

		expect_comp(cli.cq, &c);
		mine = c.context;
		ASSERT_CMP(c.err, >, 0);
		ASSERT(mine >= seen && mine < seen + N && !*mine);
		*mine = true;
	}
	expect_no_comp(cli.cq, 20);
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

/* A queue of one place has none for what comes behind the operation: that is said
 * before something is posted. */
static int queue_of_one(void)
{
	struct setup how = { .tx_size = 1 };
	uint64_t flags = FI_TRANSMIT | FI_DELIVERY_COMPLETE;
	struct fid_ep *ep;
	struct fi_info *info;

	pair_open(&how, BIG);
	ASSERT_EQ(fi_control(&cli.ep->fid, FI_SETOPSFLAG, &flags),
		  -FI_EBADFLAGS);
	ASSERT_EQ(fi_ep_alias(cli.ep, &ep, flags), -FI_EBADFLAGS);
	info = fi_dupinfo(cli.info);
	ASSERT(info);
	info->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	ASSERT_EQ(fi_endpoint(cli.domain, info, &ep, NULL), -FI_EINVAL);
	info->tx_attr->size = 2;
	ASSERT_OK(fi_endpoint(cli.domain, info, &ep, NULL));
	ASSERT_OK(fi_close(&ep->fid));
	fi_freeinfo(info);
	/* Everything else goes. */
	post_recv(&srv, &rx, 0, LEN, &rx);
	post_send(&cli, &tx, 0, LEN, &tx);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	return pair_close();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(sends), CASE(writes), CASE(late_receive),
		CASE(by_default), CASE(injected), CASE(full), CASE(fails),
		CASE(selective), CASE(counted), CASE(flushed),
		CASE(queue_of_one),
		{ NULL, NULL, 0 },
	};

	if (!is_vrc())
		return skip("for vrc alone");
	return run_cases(argc, argv, cases);
}
