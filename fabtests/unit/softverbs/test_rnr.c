/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Receiver not ready: how long a message waits for its receive, by the sender's
 * rnr_retry and the receiver's min_rnr_timer, and what becomes of it then.
 */
#include "pair.h"

#include <criterion/criterion.h>

TestSuite(rnr, .timeout = 60);

enum {
	BUF = 1 << 16,
	TIMER = 24, /* 40.96 ms */
	TIMER_MS = 40,
	LATE_MS = 5000, /* on a machine that is busy */
};

static char abuf[BUF], bbuf[BUF];

static void setup(struct pair *p, int retry, int timer,
		  const struct side_opts *opts)
{
	side_open(&p->a, NULL);
	side_open(&p->b, opts);
	p->ma = side_reg(&p->a, abuf, sizeof(abuf));
	p->mb = side_reg(&p->b, bbuf, sizeof(bbuf));
	p->a.rnr_retry = retry;
	p->b.rnr_timer = timer;
	pair_up(&p->a, &p->b);
}

static struct post message(const struct pair *p, enum ibv_wr_opcode op,
			   uint32_t len)
{
	return (struct post){ .id = 1,
			      .op = op,
			      .flags = IBV_SEND_SIGNALED,
			      .mr = p->ma,
			      .len = len,
			      .raddr = (uintptr_t)bbuf,
			      .rkey = p->mb->rkey };
}

static unsigned int since_ms(uint64_t start_ns)
{
	return (sv_now_ns() - start_ns) / 1000000;
}

struct kind {
	enum ibv_wr_opcode op;
	uint32_t len;
	bool direct;
	bool srq;
};

static const struct kind kinds[] = {
	{ IBV_WR_SEND, 8, true, false },
	{ IBV_WR_SEND, 8, true, true },
	{ IBV_WR_SEND, 50000, true, false }, /* pulled */
	{ IBV_WR_SEND, 50000, false, false }, /* in pieces */
	{ IBV_WR_RDMA_WRITE_WITH_IMM, 8, true, false },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, 50000, false, true },
};

/* The sender's error comes when it is due; the receiver has none. */
static void runs_out(const struct kind *k, int retry)
{
	struct ibv_wc wc;
	struct pair p;
	uint64_t start;

	side_direct(k->direct);
	setup(&p, retry, TIMER, &(struct side_opts){ .srq_wr = k->srq ? 8 : 0 });
	start = sv_now_ns();
	MUST(!post(&p.a, message(&p, k->op, k->len)));
	MUST(!post(&p.a, (struct post){ .id = 2, .op = IBV_WR_SEND }));
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_RNR_RETRY_EXC_ERR, "%d", wc.status);
	cr_assert_eq(wc.wr_id, 1);
	cr_assert_geq(since_ms(start), retry * TIMER_MS);
	cr_assert_lt(since_ms(start), retry * TIMER_MS + LATE_MS);
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(wc.wr_id, 2);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	cr_assert_eq(p.b.qp->state, IBV_QPS_RTS);
	/* It is not delivered any more. */
	MUST(!post_recv(&p.b, 3, p.mb, 0, BUF));
	cr_assert_not(wait_wc_ms(p.b.rcq, &wc, 20));
	teardown(&p);
}

Test(rnr, none_at_all)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		runs_out(&kinds[i], 0);
}

Test(rnr, runs_out)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		runs_out(&kinds[i], i % 2 ? 1 : 3);
}

/* Nobody polls at the receiver: it is its engine that counts. */
Test(rnr, earlier_messages_are_well)
{
	struct ibv_wc wc;
	struct pair p;
	int i;

	setup(&p, 2, TIMER, NULL);
	for (i = 0; i < 3; i++)
		MUST(!post_recv(&p.b, i, p.mb, 0, 64));
	for (i = 0; i < 4; i++)
		MUST(!post(&p.a, message(&p, IBV_WR_SEND, 8)));
	for (i = 0; i < 3; i++)
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_RNR_RETRY_EXC_ERR);
	for (i = 0; i < 3; i++)
		cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	cr_assert_not(wait_wc_ms(p.b.rcq, &wc, 1));
	teardown(&p);
}

/* Each message has its own time: many short waits are no long one. */
static void in_time(bool srq)
{
	struct pair p;
	struct ibv_wc wc;
	int i;

	setup(&p, 6, TIMER + 2, &(struct side_opts){ .srq_wr = srq ? 8 : 0 });
	for (i = 0; i < 12; i++) {
		MUST(!post(&p.a, message(&p, IBV_WR_SEND, 8)));
		cr_assert_not(wait_wc_ms(p.a.scq, &wc, 60));
		MUST(!post_recv(&p.b, i, p.mb, 0, 64));
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	}
	/* Nor does a clock that was started strike when all is well. */
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 600));
	cr_assert_eq(p.a.qp->state, IBV_QPS_RTS);
	teardown(&p);
}

Test(rnr, in_time) { in_time(false); }
Test(rnr, in_time_srq) { in_time(true); }

Test(rnr, seven_is_for_ever)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, 7, 1, NULL);
	MUST(!post(&p.a, message(&p, IBV_WR_SEND, 8)));
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 500));
	MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	teardown(&p);
}

/* Waiting for a receive hides from nobody that the peer has left. */
Test(rnr, peer_leaves_meanwhile)
{
	struct pair p;
	struct ibv_wc wc;
	uint64_t start;

	setup(&p, 6, 0, NULL); /* 3.9 s */
	MUST(!post(&p.a, message(&p, IBV_WR_SEND, 8)));
	MUST(!post(&p.b, (struct post){ .id = 5, .op = IBV_WR_SEND }));
	cr_assert_not(wait_wc_ms(p.b.scq, &wc, 20));
	start = sv_now_ns();
	MUST(!side_error(&p.a));
	wc = wait_wc(p.b.scq);
	cr_assert_eq(wc.status, IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(wc.wr_id, 5);
	cr_assert_lt(since_ms(start), 2500);
	teardown(&p);
}
