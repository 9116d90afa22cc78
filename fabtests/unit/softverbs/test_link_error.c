/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two QPs joined in one process: what happens when something is wrong, at which of
 * them, and to what was posted besides.
 */
#include "link.h"

TestSuite(link, .timeout = 120);

static void too_long(bool direct, uint32_t len)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, direct, NULL);
	memset(p.bbuf, 0, BUF);
	post_recv(&p.b, 1, p.mb, 0, len - 1);
	post_recv(&p.b, 2, p.mb, 0, BUF);
	post(&p.a, (struct post){ .id = 3,
				  .op = IBV_WR_SEND,
				  .mr = p.ma,
				  .len = len });
	post(&p.a, (struct post){ .id = 4, .op = IBV_WR_SEND });
	wc = wait_wc(p.b.rcq);
	cr_assert_eq(wc.status, IBV_WC_LOC_LEN_ERR);
	cr_assert_eq(wc.wr_id, 1);
	expect_flushed(&p.b, p.b.rcq, 2);
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_REM_INV_REQ_ERR);
	cr_assert_eq(wc.wr_id, 3);
	expect_flushed(&p.a, p.a.scq, 4);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	cr_assert_eq(p.b.qp->state, IBV_QPS_ERR);
	cr_assert_eq(p.bbuf[len - 1], 0);
	teardown(&p);
}

Test(link, too_long_slot) { too_long(true, 50); }
Test(link, too_long_data) { too_long(true, 5000); }
Test(link, too_long_pull) { too_long(true, 50000); }
Test(link, too_long_pieces) { too_long(false, 50000); }

/* A key or a range that is not the peer's to use. */
struct bad_rma {
	enum ibv_wr_opcode op;
	int mr_access;
	int qp_access;
	int64_t off;
	uint32_t len;
	uint64_t raddr; /* 0: that of the offset */
	uint32_t key_flip;
	bool other_pd;
};

static void bad_rma(bool direct, const struct bad_rma *c)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	struct ibv_wc wc;
	struct pair p;

	setup(&p, direct,
	      &(struct side_opts){ .access = c->qp_access ? c->qp_access :
							    all });
	pd = c->other_pd ? sv_alloc_pd(p.b.ctx) : p.b.pd;
	mr = sv_reg_mr(pd, p.bbuf, 4096, c->mr_access ? c->mr_access : all);
	cr_assert_not_null(mr);
	memset(p.bbuf, 0, BUF);
	memset(p.abuf, 'w', BUF);
	post_recv(&p.b, 9, p.mb, 0, 64);
	post(&p.a, (struct post){ .id = 1,
				  .op = c->op,
				  .mr = p.ma,
				  .len = c->len,
				  .raddr = c->raddr ? c->raddr :
						      (uintptr_t)p.bbuf + c->off,
				  .rkey = mr->rkey ^ c->key_flip });
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR, "status %d", wc.status);
	cr_assert_eq(wc.wr_id, 1);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	expect_flushed(&p.b, p.b.rcq, 9);
	expect_async(&p.b, IBV_EVENT_QP_ACCESS_ERR);
	cr_assert_eq(p.b.qp->state, IBV_QPS_ERR);
	cr_assert_eq(p.bbuf[0], 0);
	MUST(!sv_dereg_mr(mr));
	if (c->other_pd)
		MUST(!sv_dealloc_pd(pd));
	teardown(&p);
}

static const struct bad_rma bad_cases[] = {
	{ IBV_WR_RDMA_WRITE, .off = 4090, .len = 7 },
	{ IBV_WR_RDMA_WRITE, .off = -1, .len = 4 },
	{ IBV_WR_RDMA_WRITE, .len = 4, .key_flip = 1u << 30 },
	{ IBV_WR_RDMA_WRITE, .len = 4, .other_pd = true },
	{ IBV_WR_RDMA_WRITE, .len = 4,
	  .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ },
	{ IBV_WR_RDMA_WRITE, .len = 4, .qp_access = IBV_ACCESS_REMOTE_READ },
	{ IBV_WR_RDMA_WRITE, .len = 2 << 20 },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, .off = 4090, .len = 7 },
	{ IBV_WR_RDMA_WRITE, .len = 8, .raddr = UINT64_MAX - 3 },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, .len = 8, .raddr = UINT64_MAX - 7 },
	{ IBV_WR_RDMA_WRITE, .len = 100000, .raddr = UINT64_MAX - 70000 },
	{ IBV_WR_RDMA_READ, .len = 8, .raddr = UINT64_MAX - 3 },
	{ IBV_WR_RDMA_READ, .off = 4090, .len = 7 },
	{ IBV_WR_RDMA_READ, .len = 4,
	  .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
	{ IBV_WR_RDMA_READ, .len = 4, .qp_access = IBV_ACCESS_REMOTE_WRITE },
};

Test(link, rma_without_the_right)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad_cases); i++)
		bad_rma(true, &bad_cases[i]);
}

Test(link, rma_without_the_right_ring)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad_cases); i++)
		/* Through the ring the part before the fault is written. */
		if (bad_cases[i].len < 1 << 20)
			bad_rma(false, &bad_cases[i]);
}

/* The memory was registered, but is no longer: nothing happens to it. */
Test(link, write_to_deregistered)
{
	struct pair p;
	struct ibv_mr *mr;
	struct post w;

	setup(&p, true, NULL);
	mr = side_reg(&p.b, p.bbuf, 4096);
	w = (struct post){ .op = IBV_WR_RDMA_WRITE,
			   .flags = IBV_SEND_SIGNALED,
			   .mr = p.ma,
			   .len = 4,
			   .raddr = (uintptr_t)p.bbuf,
			   .rkey = mr->rkey };
	post(&p.a, w);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	MUST(!sv_dereg_mr(mr));
	post(&p.a, w);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_REM_ACCESS_ERR);
	teardown(&p);
}

/* Earlier work completes well first, later work is flushed: in order. */
Test(link, error_in_the_middle)
{
	struct pair p;
	struct ibv_wc wc;
	int i;

	setup(&p, true, NULL);
	for (i = 0; i < 3; i++) {
		post_recv(&p.b, i, p.mb, 0, 64);
		post(&p.a, (struct post){ .id = i,
					  .op = IBV_WR_SEND,
					  .flags = IBV_SEND_SIGNALED,
					  .mr = p.ma,
					  .len = 8 });
	}
	post(&p.a, (struct post){ .id = 3,
				  .op = IBV_WR_RDMA_WRITE,
				  .mr = p.ma,
				  .len = 8,
				  .raddr = 4096,
				  .rkey = 12345 });
	post(&p.a, (struct post){ .id = 4, .op = IBV_WR_SEND });
	for (i = 0; i < 3; i++) {
		wc = wait_wc(p.b.rcq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, i);
	}
	for (i = 0; i < 3; i++) {
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, i);
	}
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
	cr_assert_eq(wc.wr_id, 3);
	expect_flushed(&p.a, p.a.scq, 4);
	teardown(&p);
}

Test(link, bad_local_key)
{
	struct pair p;
	struct ibv_mr fake;

	setup(&p, true, NULL);
	fake = *p.ma;
	fake.lkey ^= 1u << 29;
	post_recv(&p.b, 1, p.mb, 0, 64);
	post(&p.a, (struct post){ .id = 5,
				  .op = IBV_WR_SEND,
				  .mr = &fake,
				  .len = 8 });
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_LOC_PROT_ERR);
	teardown(&p);
}

Test(link, bad_local_key_of_a_receive)
{
	struct pair p;
	struct ibv_mr fake;

	setup(&p, true, NULL);
	fake = *p.mb;
	fake.lkey ^= 1u << 29;
	post_recv(&p.b, 1, &fake, 0, 64);
	post(&p.a, (struct post){ .id = 5,
				  .op = IBV_WR_SEND,
				  .mr = p.ma,
				  .len = 8 });
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_LOC_PROT_ERR);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_REM_OP_ERR);
	teardown(&p);
}

/* IB: the peer's receives stay, its sends run into the retry limit. */
Test(link, peer_in_error)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, true, NULL);
	post_recv(&p.b, 1, p.mb, 0, 64);
	cr_assert_eq(side_error(&p.a), 0);
	cr_assert_not(wait_wc_ms(p.b.rcq, &wc, 50));
	cr_assert_eq(p.b.qp->state, IBV_QPS_RTS);
	post(&p.b, (struct post){ .id = 2,
				  .op = IBV_WR_SEND,
				  .mr = p.mb,
				  .len = 8 });
	wc = wait_wc(p.b.scq);
	cr_assert_eq(wc.status, IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(wc.wr_id, 2);
	expect_flushed(&p.b, p.b.rcq, 1);
	teardown(&p);
}

static void peer_destroyed(enum ibv_wr_opcode op)
{
	struct pair p;

	setup(&p, true, NULL);
	cr_assert_eq(sv_destroy_qp(p.a.qp), 0);
	p.a.qp = NULL;
	/* Without bytes, as keepalives are. */
	post(&p.b, (struct post){ .id = 2, .op = op });
	cr_assert_eq(wait_wc(p.b.scq).status, IBV_WC_RETRY_EXC_ERR);
	teardown(&p);
}

Test(link, peer_destroyed_send) { peer_destroyed(IBV_WR_SEND); }
Test(link, peer_destroyed_write) { peer_destroyed(IBV_WR_RDMA_WRITE); }

/* One completion too many: the CQ and its QP fail, memory does not. */
Test(link, cq_overrun_kills_the_qp)
{
	struct pair p;
	struct ibv_async_event event;
	struct ibv_wc wc[8];
	int i;

	setup(&p, true, &(struct side_opts){ .cqe = 4 });
	/* What connecting left to the engine is done: nothing else is. */
	usleep(50000);
	for (i = 0; i < 6; i++)
		post(&p.a, (struct post){ .op = IBV_WR_RDMA_WRITE,
					  .flags = IBV_SEND_SIGNALED });
	cr_assert_eq(sv_get_async_event(p.a.ctx, &event), 0);
	cr_assert_eq(event.event_type, IBV_EVENT_CQ_ERR);
	cr_assert_eq(event.element.cq, p.a.scq);
	sv_ack_async_event(&event);
	cr_assert_eq(ibv_poll_cq(p.a.scq, 8, wc), 4);
	expect_async(&p.a, IBV_EVENT_QP_FATAL);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	teardown(&p);
}
