/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shared receive queues: many queue pairs that take from one, in order; what
 * waits when it is empty; its limit; and that it outlives its queue pairs.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(srq, .timeout = 120);

enum { BUF = 1 << 20, MAX_QPS = 16 };

/* One side that sends over many queue pairs, one that receives from one SRQ. */
struct star {
	struct side a[MAX_QPS], b[MAX_QPS];
	struct ibv_mr *ma, *mb;
	int cnt;
};

static char abuf[BUF], bbuf[BUF];

static void star_open(struct star *s, int cnt, bool direct, uint32_t srq_wr)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int i;

	side_direct(direct);
	side_open(&s->a[0], &(struct side_opts){ .cqe = 4096 });
	side_open(&s->b[0],
		  &(struct side_opts){ .cqe = 4096, .srq_wr = srq_wr });
	s->ma = side_reg(&s->a[0], abuf, BUF);
	s->mb = side_reg(&s->b[0], bbuf, BUF);
	s->cnt = cnt;
	for (i = 0; i < cnt; i++) {
		if (i) {
			s->a[i] = s->a[0];
			s->b[i] = s->b[0];
			MUST(!sv_query_qp(s->a[0].qp, &attr, 0, &init));
			MUST((s->a[i].qp = sv_create_qp(s->a[0].pd, &init)));
			MUST(!sv_query_qp(s->b[0].qp, &attr, 0, &init));
			cr_assert_eq(init.srq, s->b[0].srq);
			MUST((s->b[i].qp = sv_create_qp(s->b[0].pd, &init)));
		}
		pair_up(&s->a[i], &s->b[i]);
	}
}

static void star_close(struct star *s)
{
	int i;

	for (i = s->cnt - 1; i > 0; i--)
		MUST(!sv_destroy_qp(s->a[i].qp) && !sv_destroy_qp(s->b[i].qp));
	MUST(!sv_dereg_mr(s->ma) && !sv_dereg_mr(s->mb));
	side_close(&s->a[0]);
	side_close(&s->b[0]);
}

static void send_on(struct star *s, int i, size_t off, uint32_t len)
{
	MUST(!post(&s->a[i], (struct post){ .id = i,
					    .op = IBV_WR_SEND,
					    .flags = IBV_SEND_SIGNALED,
					    .mr = s->ma,
					    .off = off,
					    .len = len }));
}

static void expect_event(struct ibv_context *ctx, enum ibv_event_type type,
			 void *element)
{
	struct ibv_async_event event;

	MUST(!sv_get_async_event(ctx, &event));
	cr_assert_eq(event.event_type, type);
	cr_assert_eq(event.element.qp, element);
	sv_ack_async_event(&event);
}

static bool has_event(struct ibv_context *ctx)
{
	struct pollfd pfd = { .fd = ctx->async_fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

/* ---- the object ---- */

Test(srq, attributes)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 10 } };
	struct ibv_srq_attr attr;
	struct ibv_device_attr dev;
	struct ibv_srq *srq;
	struct side s;

	side_open(&s, NULL);
	MUST(!sv_query_device(s.ctx, &dev));
	cr_assert_gt(dev.max_srq, 0);
	init.srq_context = &s;
	srq = sv_create_srq(s.pd, &init);
	cr_assert_not_null(srq);
	cr_assert_eq(srq->srq_context, &s);
	cr_assert_eq(srq->pd, s.pd);
	cr_assert_eq(srq->context, s.ctx);
	cr_assert_geq(init.attr.max_wr, 10);
	cr_assert_geq(init.attr.max_sge, 1);
	attr.srq_limit = 5;
	MUST(!sv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	attr.max_wr = 100;
	MUST(!sv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	MUST(!sv_query_srq(srq, &attr));
	cr_assert_eq(attr.srq_limit, 5);
	cr_assert_geq(attr.max_wr, 100);
	attr.srq_limit = attr.max_wr + 1;
	cr_assert_eq(sv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	attr.max_wr = 0;
	cr_assert_eq(sv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.max_wr = dev.max_srq_wr + 1;
	cr_assert_eq(sv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	cr_assert_eq(sv_modify_srq(srq, &attr, 1 << 5), EINVAL);
	cr_assert_eq(sv_dealloc_pd(s.pd), EBUSY);
	MUST(!sv_destroy_srq(srq));

	init.attr.max_wr = 0;
	errno = 0;
	cr_assert_null(sv_create_srq(s.pd, &init));
	cr_assert_eq(errno, EINVAL);
	init.attr.max_wr = dev.max_srq_wr + 1;
	cr_assert_null(sv_create_srq(s.pd, &init));
	init.attr.max_wr = 1;
	init.attr.max_sge = dev.max_srq_sge + 1;
	cr_assert_null(sv_create_srq(s.pd, &init));
	side_close(&s);
}

Test(srq, busy_while_queue_pairs_use_it)
{
	struct ibv_sge sge = { 0 };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct side s;

	side_open(&s, &(struct side_opts){ .srq_wr = 4 });
	cr_assert_eq(s.qp->srq, s.srq);
	cr_assert_eq(sv_destroy_srq(s.srq), EBUSY);
	MUST(!side_init(&s));
	/* Such a queue pair has no receive queue of its own. */
	bad = NULL;
	cr_assert_neq(ibv_post_recv(s.qp, &wr, &bad), 0);
	cr_assert_eq(bad, &wr);
	side_close(&s);
}

Test(srq, posting_limits)
{
	struct ibv_sge sge[5] = { 0 };
	struct ibv_recv_wr wr[6] = { 0 }, *bad = NULL;
	struct ibv_srq_attr attr;
	struct side s;
	int i;

	side_open(&s, &(struct side_opts){ .srq_wr = 4 });
	for (i = 0; i < 6; i++)
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
	cr_assert_eq(ibv_post_srq_recv(s.srq, wr, &bad), ENOMEM);
	cr_assert_eq(bad, &wr[4]);
	wr[0] = (struct ibv_recv_wr){ .sg_list = sge, .num_sge = 5 };
	cr_assert_eq(ibv_post_srq_recv(s.srq, wr, &bad), EINVAL);
	cr_assert_eq(bad, wr);
	/* Four are in it. */
	attr.max_wr = 3;
	cr_assert_eq(sv_modify_srq(s.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.max_wr = 9;
	MUST(!sv_modify_srq(s.srq, &attr, IBV_SRQ_MAX_WR));
	wr[0].num_sge = 0;
	for (i = 0; i < 5; i++)
		MUST(!ibv_post_srq_recv(s.srq, wr, &bad));
	cr_assert_eq(ibv_post_srq_recv(s.srq, wr, &bad), ENOMEM);
	side_close(&s);
}

/* ---- traffic ---- */

/* Whoever's message comes next takes the oldest receive. */
static void order(bool direct, uint32_t len)
{
	struct ibv_srq_attr attr = { .max_wr = 200 };
	struct star s;
	struct ibv_wc wc;
	int i, round;

	star_open(&s, 5, direct, 16);
	for (i = 0; i < 8; i++)
		MUST(!post_recv(&s.b[0], i, s.mb, i % 8 * len, len));
	for (round = 0; round < 200; round++) {
		int k = round * 7 % 5;

		if (round == 50)
			MUST(!sv_modify_srq(s.b[0].srq, &attr,
					    IBV_SRQ_MAX_WR));
		fill(abuf, len, round);
		send_on(&s, k, 0, len);
		wc = wait_wc(s.b[0].rcq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, round);
		cr_assert_eq(wc.qp_num, s.b[k].qp->qp_num);
		cr_assert_eq(wc.byte_len, len);
		cr_assert(filled(bbuf + round % 8 * len, len, round));
		cr_assert_eq(wait_wc(s.a[0].scq).status, IBV_WC_SUCCESS);
		MUST(!post_recv(&s.b[0], round + 8, s.mb, round % 8 * len,
				len));
	}
	star_close(&s);
}

Test(srq, order_slot) { order(true, 64); }
Test(srq, order_pull) { order(true, 20000); }
Test(srq, order_pieces) { order(false, 20000); }

/* A write's immediate takes one as well, of any length, also none. */
Test(srq, write_with_immediate)
{
	struct star s;
	struct ibv_wc wc;
	struct post w;
	int i;

	star_open(&s, 2, true, 4);
	for (i = 0; i < 20; i++) {
		w = (struct post){ .op = IBV_WR_RDMA_WRITE_WITH_IMM,
				   .flags = IBV_SEND_SIGNALED,
				   .mr = s.ma,
				   .len = i,
				   .raddr = (uintptr_t)bbuf,
				   .rkey = s.mb->rkey,
				   .imm = i };
		fill(abuf, i, i);
		MUST(!post(&s.a[i % 2], w));
		if (i % 3)
			cr_assert_not(wait_wc_ms(s.a[0].scq, &wc, 1));
		MUST(!post_recv(&s.b[0], i, s.mb, 0, 0));
		wc = wait_wc(s.b[0].rcq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		cr_assert_eq(wc.wr_id, i);
		cr_assert_eq(be32toh(wc.imm_data), i);
		cr_assert(filled(bbuf, i, i));
		cr_assert_eq(wait_wc(s.a[0].scq).status, IBV_WC_SUCCESS);
	}
	star_close(&s);
}

/* Empty: all wait, and one receive lets one go, whoever waits longest. */
Test(srq, empty_is_back_pressure)
{
	enum { CNT = 6 };
	struct star s;
	struct ibv_wc wc;
	int i, round;

	star_open(&s, CNT, true, 64);
	for (round = 0; round < 20; round++) {
		for (i = 0; i < CNT; i++) {
			send_on(&s, i, 0, 8);
			send_on(&s, i, 0, 8);
			/* It has arrived, and waits. */
			cr_assert_not(wait_wc_ms(s.b[0].rcq, &wc, 1));
		}
		cr_assert_not(wait_wc_ms(s.a[0].scq, &wc, 5));
		for (i = 0; i < CNT; i++) {
			MUST(!post_recv(&s.b[0], i, s.mb, 0, 8));
			wc = wait_wc(s.b[0].rcq);
			cr_assert_eq(wc.wr_id, i);
			cr_assert_eq(wc.qp_num, s.b[i].qp->qp_num, "%d", i);
			cr_assert_not(wait_wc_ms(s.b[0].rcq, &wc, 1));
		}
		for (i = 0; i < CNT; i++)
			MUST(!post_recv(&s.b[0], 100 + i, s.mb, 0, 8));
		for (i = 0; i < CNT; i++)
			cr_assert_eq(wait_wc(s.b[0].rcq).wr_id, 100 + i);
		for (i = 0; i < 2 * CNT; i++)
			cr_assert_eq(wait_wc(s.a[0].scq).status,
				     IBV_WC_SUCCESS);
	}
	star_close(&s);
}

/* A write must not pass a send that has not got its receive. */
Test(srq, write_behind_a_send_that_waits)
{
	struct star s;
	struct ibv_wc wc;

	star_open(&s, 1, true, 64);
	bbuf[100] = 0;
	abuf[0] = 'x';
	send_on(&s, 0, 0, 1);
	MUST(!post(&s.a[0], (struct post){ .id = 9,
					   .op = IBV_WR_RDMA_WRITE,
					   .flags = IBV_SEND_SIGNALED,
					   .mr = s.ma,
					   .len = 1,
					   .raddr = (uintptr_t)bbuf + 100,
					   .rkey = s.mb->rkey }));
	cr_assert_not(wait_wc_ms(s.a[0].scq, &wc, 20));
	cr_assert_eq(bbuf[100], 0);
	MUST(!post_recv(&s.b[0], 1, s.mb, 0, 64));
	cr_assert_eq(wait_wc(s.a[0].scq).wr_id, 0);
	cr_assert_eq(wait_wc(s.a[0].scq).wr_id, 9);
	cr_assert_eq(bbuf[100], 'x');
	cr_assert_eq(wait_wc(s.b[0].rcq).wr_id, 1);
	star_close(&s);
}

/* Many messages of many peers, receives in small lots from another thread. */
struct feeder {
	struct star *star;
	int total;
};

static void *feeder_main(void *arg)
{
	struct feeder *f = arg;
	int i = 0;

	while (i < f->total) {
		if (post_recv(&f->star->b[0], i, f->star->mb, i % 64 * 64, 64))
			sched_yield();
		else
			i++;
		if (i % 97 == 0)
			usleep(100);
	}
	return NULL;
}

Test(srq, storm)
{
	enum { CNT = 8, EACH = 2000 };
	int sent[CNT] = { 0 }, got[CNT] = { 0 }, done = 0, recvd = 0, i;
	bool seen[CNT * EACH] = { false };
	struct star s;
	struct feeder f = { &s, CNT * EACH };
	uint64_t until = sv_now_ns() + 60 * 1000000000ull;
	pthread_t thread;
	struct ibv_wc wc;

	star_open(&s, CNT, true, 32);
	MUST(!pthread_create(&thread, NULL, feeder_main, &f));
	while (recvd < CNT * EACH || done < CNT * EACH) {
		MUST(sv_now_ns() < until);
		for (i = 0; i < CNT; i++)
			if (sent[i] < EACH && sent[i] - got[i] < 50) {
				send_on(&s, i, 0, 32);
				sent[i]++;
			}
		while (ibv_poll_cq(s.b[0].rcq, 1, &wc)) {
			cr_assert_eq(wc.status, IBV_WC_SUCCESS);
			cr_assert_not(seen[wc.wr_id]);
			seen[wc.wr_id] = true;
			recvd++;
		}
		while (ibv_poll_cq(s.a[0].scq, 1, &wc)) {
			cr_assert_eq(wc.status, IBV_WC_SUCCESS);
			got[wc.wr_id]++;
			done++;
		}
	}
	MUST(!pthread_join(thread, NULL));
	star_close(&s);
}

/* ---- limit ---- */

Test(srq, limit_event_once_per_arming)
{
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct star s;
	int i;

	star_open(&s, 1, true, 16);
	for (i = 0; i < 5; i++)
		MUST(!post_recv(&s.b[0], i, s.mb, 0, 8));
	MUST(!sv_modify_srq(s.b[0].srq, &attr, IBV_SRQ_LIMIT));
	for (i = 0; i < 5; i++) {
		/* The third leaves two: below three. */
		cr_assert_eq(has_event(s.b[0].ctx), i == 3);
		if (i == 3) {
			expect_event(s.b[0].ctx, IBV_EVENT_SRQ_LIMIT_REACHED,
				     s.b[0].srq);
			MUST(!sv_query_srq(s.b[0].srq, &attr));
			cr_assert_eq(attr.srq_limit, 0);
		}
		send_on(&s, 0, 0, 8);
		cr_assert_eq(wait_wc(s.b[0].rcq).wr_id, i);
		cr_assert_eq(wait_wc(s.a[0].scq).status, IBV_WC_SUCCESS);
	}
	cr_assert_not(has_event(s.b[0].ctx));
	/* Armed while it is empty: the next message says so. */
	attr.srq_limit = 1;
	MUST(!sv_modify_srq(s.b[0].srq, &attr, IBV_SRQ_LIMIT));
	send_on(&s, 0, 0, 8);
	expect_event(s.b[0].ctx, IBV_EVENT_SRQ_LIMIT_REACHED, s.b[0].srq);
	MUST(!post_recv(&s.b[0], 7, s.mb, 0, 8));
	cr_assert_eq(wait_wc(s.b[0].rcq).wr_id, 7);
	star_close(&s);
}

static void *acker(void *arg)
{
	usleep(100 * 1000);
	sv_ack_async_event(arg);
	return NULL;
}

Test(srq, destruction_waits_for_the_ack)
{
	struct ibv_srq_attr attr = { .srq_limit = 1 };
	struct ibv_async_event event;
	struct star s;
	pthread_t thread;
	uint64_t start;

	star_open(&s, 1, true, 16);
	MUST(!sv_modify_srq(s.b[0].srq, &attr, IBV_SRQ_LIMIT));
	send_on(&s, 0, 0, 8);
	MUST(!sv_get_async_event(s.b[0].ctx, &event));
	cr_assert_eq(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	MUST(!sv_destroy_qp(s.b[0].qp));
	s.b[0].qp = NULL;
	start = sv_now_ns();
	pthread_create(&thread, NULL, acker, &event);
	MUST(!sv_destroy_srq(s.b[0].srq));
	s.b[0].srq = NULL;
	cr_assert_geq(sv_now_ns() - start, 90 * 1000000ull);
	pthread_join(thread, NULL);
	star_close(&s);
}

/* ---- ends ---- */

/* What nobody has taken stays; the others go on with it. */
Test(srq, outlives_its_queue_pairs)
{
	struct star s;
	struct ibv_wc wc;

	star_open(&s, 3, true, 16);
	MUST(!post_recv(&s.b[0], 1, s.mb, 0, 8));
	MUST(!side_error(&s.b[1]));
	expect_event(s.b[0].ctx, IBV_EVENT_QP_LAST_WQE_REACHED, s.b[1].qp);
	MUST(!sv_destroy_qp(s.b[2].qp) && !sv_destroy_qp(s.a[2].qp));
	s.cnt = 2;
	cr_assert_not(wait_wc_ms(s.b[0].rcq, &wc, 5));
	send_on(&s, 0, 0, 8);
	wc = wait_wc(s.b[0].rcq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.wr_id, 1);
	/* Once only. */
	MUST(!side_error(&s.b[1]));
	cr_assert_not(has_event(s.b[0].ctx));
	star_close(&s);
}

/* One that waits, and goes: nobody waits for it, and nothing is lost. */
static void goes_while_waiting(bool destroy)
{
	struct star s;
	struct ibv_wc wc;

	star_open(&s, 2, true, 16);
	send_on(&s, 1, 0, 8);
	cr_assert_not(wait_wc_ms(s.b[0].rcq, &wc, 5));
	send_on(&s, 0, 0, 8);
	cr_assert_not(wait_wc_ms(s.b[0].rcq, &wc, 5));
	if (destroy) {
		MUST(!sv_destroy_qp(s.b[1].qp) && !sv_destroy_qp(s.a[1].qp));
		s.cnt = 1;
	} else {
		MUST(!side_error(&s.b[1]));
	}
	MUST(!post_recv(&s.b[0], 5, s.mb, 0, 8));
	wc = wait_wc(s.b[0].rcq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.wr_id, 5);
	cr_assert_eq(wc.qp_num, s.b[0].qp->qp_num);
	star_close(&s);
}

Test(srq, destroyed_while_waiting) { goes_while_waiting(true); }
Test(srq, error_while_waiting) { goes_while_waiting(false); }

#ifndef SIDE_TCP
/* A message half way in: its receive is flushed, no other is. */
Test(srq, flush_of_the_one_in_use)
{
	struct sv_slot slot = { .op = SV_OP_SEND,
				.flags = SV_SLOT_FIRST,
				.len = 8,
				.total = 100 };
	struct sv_shm *shm;
	struct ibv_wc wc;
	struct star s;
	int i;

	star_open(&s, 2, true, 16);
	for (i = 0; i < 3; i++)
		MUST(!post_recv(&s.b[0], i, s.mb, 0, 200));
	shm = sv_shm(sv_qp(s.b[1].qp)->link);
	memcpy((char *)&shm->own->slots[0] + 4, (char *)&slot + 4,
	       sizeof(slot) - 4);
	atomic_store(&shm->own->slots[0].seq, 1);
	cr_assert_not(wait_wc_ms(s.b[0].rcq, &wc, 5));
	MUST(!side_error(&s.b[1]));
	wc = wait_wc(s.b[0].rcq);
	cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(wc.wr_id, 0);
	cr_assert_eq(wc.qp_num, s.b[1].qp->qp_num);
	expect_event(s.b[0].ctx, IBV_EVENT_QP_LAST_WQE_REACHED, s.b[1].qp);
	for (i = 1; i < 3; i++) {
		send_on(&s, 0, 0, 8);
		wc = wait_wc(s.b[0].rcq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, i);
	}
	star_close(&s);
}
#endif

/* The receive is in a domain of the SRQ's, which need not be the QP's. */
Test(srq, own_protection_domain)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4,
						    .max_sge = 1 } };
	struct ibv_qp_init_attr qp_init;
	struct ibv_qp_attr attr;
	struct ibv_recv_wr wr = { .wr_id = 3, .num_sge = 1 }, *bad;
	struct ibv_mr *ma, *mb;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct side a, b;
	struct ibv_pd *pd;
	struct ibv_srq *srq;

	side_open(&a, NULL);
	side_open(&b, NULL);
	MUST((pd = sv_alloc_pd(b.ctx)));
	MUST((srq = sv_create_srq(pd, &init)));
	MUST(!sv_query_qp(b.qp, &attr, 0, &qp_init));
	MUST(!sv_destroy_qp(b.qp));
	qp_init.srq = srq;
	MUST((b.qp = sv_create_qp(b.pd, &qp_init)));
	ma = side_reg(&a, abuf, BUF);
	MUST((mb = sv_reg_mr(pd, bbuf, BUF, IBV_ACCESS_LOCAL_WRITE)));
	pair_up(&a, &b);
	sge = (struct ibv_sge){ (uintptr_t)bbuf, 64, mb->lkey };
	wr.sg_list = &sge;
	MUST(!ibv_post_srq_recv(srq, &wr, &bad));
	MUST(!post(&a, (struct post){ .op = IBV_WR_SEND,
				      .mr = ma,
				      .len = 8 }));
	wc = wait_wc(b.rcq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.wr_id, 3);
	MUST(!sv_destroy_qp(b.qp));
	b.qp = NULL;
	MUST(!sv_destroy_srq(srq) && !sv_dereg_mr(mb) && !sv_dealloc_pd(pd));
	MUST(!sv_dereg_mr(ma));
	side_close(&a);
	side_close(&b);
}
