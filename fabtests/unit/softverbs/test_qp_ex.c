/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Sends that are put together by calls: every operation, data in every form, what
 * is refused, all or nothing, and ibv_post_send() beside it.
 */
#include "side.h"
#include "sv_fault.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>

TestSuite(qp_ex, .timeout = 60);

enum {
	OPS = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
	      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
	      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	LEN = 64 << 10,
	DEPTH = 16,
};

struct pair {
	struct side a, b;
	struct ibv_mr *ma, *mb;
	struct ibv_qp_ex *qp;
};

static char abuf[LEN], bbuf[LEN];

static void setup_ops(struct pair *p, uint64_t ops)
{
	const struct side_opts opts = { .send_ops = ops,
					.depth = DEPTH,
					.inl = 128 };

	side_open(&p->a, &opts);
	side_open(&p->b, &opts);
	p->ma = side_reg(&p->a, abuf, sizeof(abuf));
	p->mb = side_reg(&p->b, bbuf, sizeof(bbuf));
	p->qp = sv_qp_to_qp_ex(p->a.qp);
	MUST(p->qp);
	memset(bbuf, 0, sizeof(bbuf));
	pair_up(&p->a, &p->b);
}

static void setup(struct pair *p)
{
	setup_ops(p, OPS);
}

static void teardown(struct pair *p)
{
	MUST(!sv_dereg_mr(p->ma) && !sv_dereg_mr(p->mb));
	side_close(&p->a);
	side_close(&p->b);
}

static void start(struct pair *p, uint64_t id)
{
	ibv_wr_start(p->qp);
	p->qp->wr_id = id;
	p->qp->wr_flags = IBV_SEND_SIGNALED;
}

static void sge(struct pair *p, size_t off, uint32_t len)
{
	ibv_wr_set_sge(p->qp, p->ma->lkey, (uintptr_t)abuf + off, len);
}

static void wait_send(struct pair *p, uint64_t id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = wait_wc(p->a.scq);

	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.wr_id, id);
	cr_assert_eq(wc.opcode, opcode);
}

Test(qp_ex, is_there_only_if_asked_for)
{
	struct side s;

	side_open(&s, NULL);
	errno = 0;
	cr_assert_null(sv_qp_to_qp_ex(s.qp));
	cr_assert_eq(errno, EOPNOTSUPP);
	side_close(&s);
}

static void sends(uint32_t len)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p);
	fill(abuf, len, 3);
	MUST(!post_recv(&p.b, 1, p.mb, 0, LEN));
	MUST(!post_recv(&p.b, 2, p.mb, 0, LEN));
	start(&p, 10);
	ibv_wr_send(p.qp);
	sge(&p, 0, len);
	p.qp->wr_id = 11;
	ibv_wr_send_imm(p.qp, htobe32(77));
	sge(&p, 0, len);
	cr_assert_eq(ibv_wr_complete(p.qp), 0);
	wc = wait_wc(p.b.rcq);
	cr_assert_eq(wc.byte_len, len);
	cr_assert_eq(wc.wc_flags, 0);
	wc = wait_wc(p.b.rcq);
	cr_assert_eq(wc.wc_flags, IBV_WC_WITH_IMM);
	cr_assert_eq(be32toh(wc.imm_data), 77);
	cr_assert(filled(bbuf, len, 3));
	wait_send(&p, 10, IBV_WC_SEND);
	wait_send(&p, 11, IBV_WC_SEND);
	teardown(&p);
}

Test(qp_ex, sends_0) { sends(0); }
Test(qp_ex, sends_64) { sends(64); }
Test(qp_ex, sends_large) { sends(LEN); }

Test(qp_ex, send_without_data)
{
	struct pair p;

	setup(&p);
	MUST(!post_recv(&p.b, 1, p.mb, 0, LEN));
	start(&p, 1);
	ibv_wr_send(p.qp);
	cr_assert_eq(ibv_wr_complete(p.qp), 0);
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, 0);
	teardown(&p);
}

Test(qp_ex, write_read_atomics)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p);
	fill(abuf, 512, 9);
	MUST(!post_recv(&p.b, 1, p.mb, 0, 0));
	start(&p, 1);
	ibv_wr_rdma_write(p.qp, p.mb->rkey, (uintptr_t)bbuf + 64);
	sge(&p, 0, 256);
	p.qp->wr_id = 2;
	ibv_wr_rdma_write_imm(p.qp, p.mb->rkey, (uintptr_t)bbuf + 320,
			      htobe32(5));
	sge(&p, 256, 256);
	cr_assert_eq(ibv_wr_complete(p.qp), 0);
	wait_send(&p, 1, IBV_WC_RDMA_WRITE);
	wait_send(&p, 2, IBV_WC_RDMA_WRITE);
	wc = wait_wc(p.b.rcq);
	cr_assert_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	cr_assert_eq(be32toh(wc.imm_data), 5);
	cr_assert(filled(bbuf + 64, 512, 9));

	start(&p, 3);
	ibv_wr_rdma_read(p.qp, p.mb->rkey, (uintptr_t)bbuf + 64);
	sge(&p, 1024, 512);
	cr_assert_eq(ibv_wr_complete(p.qp), 0);
	wait_send(&p, 3, IBV_WC_RDMA_READ);
	cr_assert(filled(abuf + 1024, 512, 9));

	*(uint64_t *)bbuf = 40;
	start(&p, 4);
	ibv_wr_atomic_fetch_add(p.qp, p.mb->rkey, (uintptr_t)bbuf, 2);
	sge(&p, 2048, 8);
	p.qp->wr_id = 5;
	ibv_wr_atomic_cmp_swp(p.qp, p.mb->rkey, (uintptr_t)bbuf, 42, 7);
	sge(&p, 2056, 8);
	cr_assert_eq(ibv_wr_complete(p.qp), 0);
	wait_send(&p, 4, IBV_WC_FETCH_ADD);
	wait_send(&p, 5, IBV_WC_COMP_SWAP);
	cr_assert_eq(*(uint64_t *)(abuf + 2048), 40);
	cr_assert_eq(*(uint64_t *)(abuf + 2056), 42);
	cr_assert_eq(*(uint64_t *)bbuf, 7);
	teardown(&p);
}

Test(qp_ex, lists_and_inline)
{
	char in1[100], in2[28];
	const struct ibv_data_buf bufs[2] = {
		{ .addr = in1, .length = sizeof(in1) },
		{ .addr = in2, .length = sizeof(in2) },
	};
	struct ibv_sge list[4];
	struct pair p;
	int i;

	setup(&p);
	fill(abuf, 400, 1);
	for (i = 0; i < 4; i++)
		list[i] = (struct ibv_sge){ .addr = (uintptr_t)abuf + 100 * i,
					    .length = 100,
					    .lkey = p.ma->lkey };
	MUST(!post_recv(&p.b, 1, p.mb, 0, 1024));
	MUST(!post_recv(&p.b, 2, p.mb, 1024, 1024));
	MUST(!post_recv(&p.b, 3, p.mb, 2048, 1024));
	memcpy(in1, abuf, 100);
	memcpy(in2, abuf + 100, 28);
	start(&p, 1);
	ibv_wr_send(p.qp);
	ibv_wr_set_sge_list(p.qp, 4, list);
	ibv_wr_send(p.qp);
	ibv_wr_set_inline_data(p.qp, in1, 100);
	ibv_wr_send(p.qp);
	ibv_wr_set_inline_data_list(p.qp, 2, bufs);
	/* It was copied. */
	memset(in1, 0, sizeof(in1));
	memset(in2, 0, sizeof(in2));
	cr_assert_eq(ibv_wr_complete(p.qp), 0);
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, 400);
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, 100);
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, 128);
	cr_assert(filled(bbuf, 400, 1));
	cr_assert(filled(bbuf + 1024, 100, 1));
	cr_assert(filled(bbuf + 2048, 128, 1));
	teardown(&p);
}

/* An inline flag without inline data means nothing: the data has a key. */
Test(qp_ex, inline_flag_means_nothing)
{
	struct pair p;

	setup(&p);
	fill(abuf, 1000, 4);
	MUST(!post_recv(&p.b, 1, p.mb, 0, LEN));
	start(&p, 1);
	p.qp->wr_flags |= IBV_SEND_INLINE;
	ibv_wr_send(p.qp);
	sge(&p, 0, 1000);
	cr_assert_eq(ibv_wr_complete(p.qp), 0);
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, 1000);
	cr_assert(filled(bbuf, 1000, 4));
	teardown(&p);
}

/* Nothing of a batch is posted that was aborted, or that has a mistake. */
static void nothing_sent(struct pair *p)
{
	struct ibv_wc wc;

	cr_assert_not(wait_wc_ms(p->a.scq, &wc, 20));
	start(p, 99);
	ibv_wr_send(p->qp);
	cr_assert_eq(ibv_wr_complete(p->qp), 0);
	wait_send(p, 99, IBV_WC_SEND);
}

static void no_abort(struct pair *p)
{
	ibv_wr_abort(p->qp);
}

static void bad_too_many(struct pair *p)
{
	int i;

	for (i = 0; i < DEPTH; i++)
		ibv_wr_send(p->qp);
	cr_assert_eq(ibv_wr_complete(p->qp), ENOMEM);
}

static void bad_not_asked(struct pair *p)
{
	ibv_wr_rdma_read(p->qp, p->mb->rkey, (uintptr_t)bbuf);
	ibv_wr_send(p->qp);
	cr_assert_eq(ibv_wr_complete(p->qp), EOPNOTSUPP);
}

static void bad_tso(struct pair *p)
{
	ibv_wr_send_tso(p->qp, abuf, 16, 100);
	cr_assert_eq(ibv_wr_complete(p->qp), EOPNOTSUPP);
}

static void bad_ud(struct pair *p)
{
	ibv_wr_send(p->qp);
	ibv_wr_set_ud_addr(p->qp, NULL, 1, 1);
	cr_assert_eq(ibv_wr_complete(p->qp), EOPNOTSUPP);
}

static void bad_atomic_length(struct pair *p)
{
	ibv_wr_atomic_fetch_add(p->qp, p->mb->rkey, (uintptr_t)bbuf, 1);
	sge(p, 0, 16);
	cr_assert_eq(ibv_wr_complete(p->qp), EINVAL);
}

static void bad_atomic_no_data(struct pair *p)
{
	ibv_wr_atomic_fetch_add(p->qp, p->mb->rkey, (uintptr_t)bbuf, 1);
	ibv_wr_send(p->qp);
	cr_assert_eq(ibv_wr_complete(p->qp), EINVAL);
}

static void bad_atomic_inline(struct pair *p)
{
	ibv_wr_atomic_fetch_add(p->qp, p->mb->rkey, (uintptr_t)bbuf, 1);
	ibv_wr_set_inline_data(p->qp, abuf, 8);
	cr_assert_eq(ibv_wr_complete(p->qp), EINVAL);
}

static void bad_inline_length(struct pair *p)
{
	ibv_wr_send(p->qp);
	ibv_wr_set_inline_data(p->qp, abuf, 129);
	cr_assert_eq(ibv_wr_complete(p->qp), EINVAL);
}

static void bad_data_twice(struct pair *p)
{
	ibv_wr_send(p->qp);
	sge(p, 0, 1);
	sge(p, 0, 1);
	cr_assert_eq(ibv_wr_complete(p->qp), EINVAL);
}

static void bad_data_first(struct pair *p)
{
	sge(p, 0, 1);
	cr_assert_eq(ibv_wr_complete(p->qp), EINVAL);
}

static void bad_sges(struct pair *p)
{
	const struct ibv_sge list[5] = { { .length = 0 } };

	ibv_wr_send(p->qp);
	ibv_wr_set_sge_list(p->qp, 5, list);
	cr_assert_eq(ibv_wr_complete(p->qp), EINVAL);
}

Test(qp_ex, all_or_nothing)
{
	static void (*const cases[])(struct pair *p) = {
		no_abort,	   bad_too_many,	bad_not_asked,
		bad_tso,	   bad_ud,		bad_atomic_length,
		bad_atomic_no_data, bad_atomic_inline,	bad_inline_length,
		bad_data_twice,	   bad_data_first,	bad_sges,
	};
	struct pair p;
	size_t i;

	setup_ops(&p, OPS & ~IBV_QP_EX_WITH_RDMA_READ);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		MUST(!post_recv(&p.b, 1, p.mb, 0, LEN));
		start(&p, 1);
		/* A good one first. */
		if (cases[i] != bad_data_first)
			ibv_wr_send(p.qp);
		cases[i](&p);
		nothing_sent(&p);
		wait_wc(p.b.rcq);
	}
	teardown(&p);
}

Test(qp_ex, state_must_allow_it)
{
	const struct side_opts opts = { .send_ops = OPS };
	struct ibv_qp_ex *qp;
	struct side s;

	side_open(&s, &opts);
	qp = sv_qp_to_qp_ex(s.qp);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	cr_assert_eq(ibv_wr_complete(qp), EINVAL);
	MUST(!side_init(&s));
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	cr_assert_eq(ibv_wr_complete(qp), EINVAL);
	/* In ERR it is flushed. */
	MUST(!side_error(&s));
	ibv_wr_start(qp);
	qp->wr_id = 6;
	ibv_wr_send(qp);
	cr_assert_eq(ibv_wr_complete(qp), 0);
	cr_assert_eq(wait_wc(s.scq).status, IBV_WC_WR_FLUSH_ERR);
	side_close(&s);
}

/* What was being put together when the queue was reset is not posted. */
Test(qp_ex, reset_meanwhile)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;
	struct pair p;

	setup(&p);
	MUST(!post_recv(&p.b, 1, p.mb, 0, LEN));
	start(&p, 1);
	ibv_wr_send(p.qp);
	MUST(!ibv_wr_complete(p.qp));
	wait_send(&p, 1, IBV_WC_SEND);
	start(&p, 2);
	ibv_wr_send(p.qp);
	MUST(!sv_modify_qp(p.a.qp, &reset, IBV_QP_STATE));
	MUST(!sv_modify_qp(p.a.qp, &err, IBV_QP_STATE));
	cr_assert_eq(ibv_wr_complete(p.qp), EINVAL);
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 20));
	teardown(&p);
}

/* While one is building, the same thread may do all else with the QP. */
Test(qp_ex, the_rest_goes_on_meanwhile)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	struct pair p;

	setup(&p);
	start(&p, 1);
	ibv_wr_send(p.qp);
	MUST(!post_recv(&p.a, 1, p.ma, 0, 64));
	MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
	MUST(!sv_query_qp(p.a.qp, &attr, 0, &init));
	cr_assert_eq(attr.qp_state, IBV_QPS_RTS);
	MUST(!post(&p.b, (struct post){ .op = IBV_WR_SEND }));
	cr_assert(wait_wc_ms(p.a.rcq, &wc, SIDE_WAIT_MS));
	cr_assert_eq(ibv_wr_complete(p.qp), 0);
	wait_send(&p, 1, IBV_WC_SEND);
	teardown(&p);
}

/* Who would wait for himself is told. */
Test(qp_ex, regions_do_not_nest)
{
	struct pair p;

	setup(&p);
	MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
	start(&p, 1);
	ibv_wr_send(p.qp);
	cr_assert_eq(post(&p.a, (struct post){ .op = IBV_WR_SEND }), EINVAL);
	start(&p, 2);
	ibv_wr_send(p.qp);
	cr_assert_eq(ibv_wr_complete(p.qp), EINVAL);
	cr_assert_eq(ibv_wr_complete(p.qp), EINVAL);
	ibv_wr_abort(p.qp);
	nothing_sent(&p);
	cr_assert_eq(post(&p.a, (struct post){ .op = IBV_WR_SEND }), 0);
	teardown(&p);
}

Test(qp_ex, fails_on_purpose)
{
	struct pair p;

	setup(&p);
	MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
	MUST(!sv_fault_set("post_send,err=ENOSPC,nth=1"));
	start(&p, 1);
	ibv_wr_send(p.qp);
	cr_assert_eq(ibv_wr_complete(p.qp), ENOSPC);
	nothing_sent(&p);
	MUST(!sv_fault_set(NULL));
	teardown(&p);
}

enum { EACH = 2000 };

/* Every second one of these threads' sends goes the other way. */
static void *sender(void *arg)
{
	struct pair *p = arg;
	int i, err;

	for (i = 0; i < EACH; i++) {
		do {
			if (i % 2) {
				err = post(&p->a,
					   (struct post){ .id = i,
							  .op = IBV_WR_SEND });
			} else {
				ibv_wr_start(p->qp);
				p->qp->wr_id = i;
				p->qp->wr_flags = 0;
				ibv_wr_send(p->qp);
				err = ibv_wr_complete(p->qp);
			}
			if (err)
				sched_yield();
		} while (err == ENOMEM);
		MUST(!err);
	}
	return NULL;
}

Test(qp_ex, two_threads_two_ways)
{
	pthread_t thread[2];
	struct ibv_wc wc;
	struct pair p;
	int i, sent = 0;

	setup_ops(&p, IBV_QP_EX_WITH_SEND);
	/* Signalled, so that the queue's room comes back. */
	sv_qp(p.a.qp)->sq_sig_all = true;
	for (i = 0; i < DEPTH; i++)
		MUST(!post_recv(&p.b, i, p.mb, 0, 64));
	for (i = 0; i < 2; i++)
		MUST(!pthread_create(&thread[i], NULL, sender, &p));
	for (i = 0; i < 2 * EACH;) {
		if (wait_wc_ms(p.b.rcq, &wc, 0)) {
			cr_assert_eq(wc.status, IBV_WC_SUCCESS);
			MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
			i++;
		}
		sent += wait_wc_ms(p.a.scq, &wc, 0);
	}
	while (sent < 2 * EACH) {
		wait_wc(p.a.scq);
		sent++;
	}
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	teardown(&p);
}

Test(qp_ex, create_refuses_what_it_cannot_do)
{
	struct ibv_qp_init_attr_ex good = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = OPS,
	}, attr;
	struct ibv_qp *qp;
	struct side s;

	side_open(&s, NULL);
	good.send_cq = s.scq;
	good.recv_cq = s.rcq;
	good.pd = s.pd;
	attr = good;
	MUST((qp = sv_create_qp_ex(s.ctx, &attr)));
	/* What was given is told. */
	cr_assert_eq(attr.cap.max_send_sge, 1);
	MUST(!sv_destroy_qp(qp));
	attr = good;
	attr.send_ops_flags |= IBV_QP_EX_WITH_TSO;
	cr_assert_null(sv_create_qp_ex(s.ctx, &attr));
	cr_assert_eq(errno, EOPNOTSUPP);
	attr = good;
	attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	attr.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	cr_assert_null(sv_create_qp_ex(s.ctx, &attr));
	cr_assert_eq(errno, EOPNOTSUPP);
	attr = good;
	attr.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
	cr_assert_null(sv_create_qp_ex(s.ctx, &attr));
	cr_assert_eq(errno, EOPNOTSUPP);
	attr = good;
	attr.comp_mask &= ~IBV_QP_INIT_ATTR_PD;
	cr_assert_null(sv_create_qp_ex(s.ctx, &attr));
	cr_assert_eq(errno, EINVAL);
	attr = good;
	attr.cap.max_send_wr = SV_MAX_QP_WR + 1;
	cr_assert_null(sv_create_qp_ex(s.ctx, &attr));
	cr_assert_eq(errno, EINVAL);
	side_close(&s);
}
