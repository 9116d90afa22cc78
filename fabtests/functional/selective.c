/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FI_SELECTIVE_COMPLETION: only what asks for a completion gets one, the
 * queue still drains, errors are told regardless.
 */
#include "pair.h"

static ssize_t write_msg(uint64_t flags)
{
	struct iovec iov = { tx.p, 64 };
	struct fi_rma_iov target = { rx.addr, 64, rx.key };
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.rma_iov = &target, .rma_iov_count = 1, .context = &tx,
	};

	return fi_writemsg(cli.ep, &msg, flags);
}

/* Posts until taken; reading the completion queue is what makes room, and
 * nothing may come out of it. */
static void insist(uint64_t flags, bool plain)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	struct comp c;
	ssize_t ret;

	for (;;) {
		ret = plain ? fi_write(cli.ep, tx.p, 64, tx.desc, 0, rx.addr,
				       rx.key, &rx) : write_msg(flags);
		if (ret != -FI_EAGAIN)
			break;
		if (poll_comp(cli.cq, &c))
			FAIL("completion nobody asked for: context %p err %d",
			     c.context, c.err);
		progress();
		if (now_us() > end)
			FAIL("the queue never drains");
	}
	ASSERT_OK(ret);
}

static int ten_times_tx_size(void)
{
	struct setup how = { .tx_bind = FI_SELECTIVE_COMPLETION };
	size_t n;

	pair_open(&how, 4096);
	n = 10 * cli.info->tx_attr->size;
	for (size_t i = 0; i < n; i++)
		insist(0, i & 1);
	/* The one that asks is the one that comes. */
	insist(FI_COMPLETION, false);
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	expect_no_comp(cli.cq, 50);
	return pair_close();
}

/* Every 7th asks: exactly those come, in order. */
static int every_seventh(void)
{
	struct setup how = { .tx_bind = FI_SELECTIVE_COMPLETION };
	struct iovec iov;
	struct fi_rma_iov target;
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.rma_iov = &target, .rma_iov_count = 1,
	};
	uintptr_t next = 7;
	struct comp c;

	pair_open(&how, 4096);
	iov = (struct iovec){ tx.p, 64 };
	target = (struct fi_rma_iov){ rx.addr, 64, rx.key };
	for (uintptr_t i = 1; i <= 700; i++) {
		uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
		ssize_t ret;

		msg.context = (void *)i;
		do {
			ret = fi_writemsg(cli.ep, &msg,
					  i % 7 ? 0 : FI_COMPLETION);
			while (poll_comp(cli.cq, &c)) {
				ASSERT_EQ(c.err, 0);
				ASSERT_EQ((uintptr_t)c.context, next);
				next += 7;
			}
			progress();
		} while (ret == -FI_EAGAIN && now_us() < end);
		ASSERT_OK(ret);
	}
	for (; next <= 700; next += 7)
		expect_ok(cli.cq, (void *)next, FI_RMA | FI_WRITE, NULL);
	expect_no_comp(cli.cq, 50);
	return pair_close();
}

/* Without the bind flag every one completes, with or without FI_COMPLETION. */
static int not_selective(void)
{
	pair_open(NULL, 4096);
	ASSERT_OK(write_msg(0));
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	ASSERT_OK(write_msg(FI_COMPLETION));
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	/* FI_INJECT frees the buffer; it does not take the completion away. */
	ASSERT_OK(write_msg(FI_INJECT));
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	return pair_close();
}

static void send_one(void)
{
	ASSERT_TAKEN(fi_inject(cli.ep, tx.p, 8, 0));
}

/* On the receive side. */
static int receives(void)
{
	struct setup how = { .rx_bind = FI_SELECTIVE_COMPLETION };
	struct iovec iov;
	struct fi_msg msg = {
		.msg_iov = &iov, .desc = &rx.desc, .iov_count = 1,
		.context = &rx,
	};

	pair_open(&how, 4096);
	fill(tx.p, 8, 1);
	iov = (struct iovec){ rx.p, 64 };
	for (int i = 0; i < 3; i++) {
		post_recv(&srv, &rx, 0, 64, &srv);
		send_one();
		EXPECT_FILLED(rx.p, 8, 1);
		expect_no_comp(srv.cq, 10);
		memset(rx.p, 0, 8);
		ASSERT_OK(fi_recvmsg(srv.ep, &msg, FI_COMPLETION));
		send_one();
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
		ASSERT_FILLED(rx.p, 8, 1);
		memset(rx.p, 0, 8);
	}
	return pair_close();
}

/* tx_attr->op_flags = FI_COMPLETION asks for all calls without flags. */
static int op_flags_ask(void)
{
	struct setup how = {
		.tx_bind = FI_SELECTIVE_COMPLETION,
		.tx_op_flags = FI_COMPLETION,
	};

	pair_open(&how, 4096);
	ASSERT_TAKEN(
		fi_write(cli.ep, tx.p, 64, tx.desc, 0, rx.addr, rx.key, &tx));
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	/* "Operations that take flags as input override the op_flags." */
	if (is_vrc()) {
		ASSERT_OK(write_msg(0));
		expect_no_comp(cli.cq, 50);
	}
	ASSERT_TAKEN(fi_inject_write(cli.ep, tx.p, 8, 0, rx.addr, rx.key));
	expect_no_comp(cli.cq, 20);
	return pair_close();
}

/* Told although not asked for: the failing one, and those flushed. */
static int errors_are_told(void)
{
	struct setup how = { .tx_bind = FI_SELECTIVE_COMPLETION };
	struct comp c;

	if (!is_vrc())
		return skip("%s does not check remote access", provider());
	pair_open(&how, 4096);
	for (int i = 0; i < 3; i++)
		ASSERT_OK(write_msg(0));
	/* A read: even iWARP learns that it failed, if only by flushing it. */
	ASSERT_TAKEN(
		fi_read(cli.ep, tx.p, 64, tx.desc, 0, rx.addr, 0xdead00, &tx));
	expect_comp(cli.cq, &c);
	ASSERT_CMP(c.err, >, 0);
	if (!is_iwarp(&cli))
		ASSERT_NE(c.err, FI_ECANCELED);
	ASSERT_EQ(c.flags, FI_RMA | FI_READ);
	/* Nobody had to give one, so it may be the endpoint's. */
	ASSERT(c.context == &tx || c.context == &cli);
	expect_no_comp(cli.cq, 20);
	return pair_close();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(ten_times_tx_size), CASE(every_seventh),
		CASE(not_selective), CASE(receives), CASE(op_flags_ask),
		CASE(errors_are_told), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
