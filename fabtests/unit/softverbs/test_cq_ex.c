/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Extended completion queues: what creating one refuses, the cursor, the
 * fields, the times.
 */
#include "pair.h"
#include "sv_fault.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(cq_ex, .timeout = 60);

enum { TIMES = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
	       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK };

static char abuf[4096], bbuf[4096];

static void setup(struct pair *p, const struct side_opts *opts)
{
	side_open(&p->a, opts);
	side_open(&p->b, opts);
	p->ma = side_reg(&p->a, abuf, sizeof(abuf));
	p->mb = side_reg(&p->b, bbuf, sizeof(bbuf));
	pair_up(&p->a, &p->b);
}

static struct ibv_cq_ex *ex(struct ibv_cq *cq)
{
	return (struct ibv_cq_ex *)cq;
}

/* Waits for the first completion; the cursor stands on it. */
static void wait_start(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t until = sv_now_ns() + SIDE_WAIT_MS * 1000000ull;
	int ret;

	while ((ret = ibv_start_poll(cq, &attr)) == ENOENT &&
	       sv_now_ns() < until)
		sched_yield();
	cr_assert_eq(ret, 0);
}

static void send_imm(struct pair *p, uint64_t id, uint32_t imm)
{
	MUST(!post_recv(&p->b, 100 + id, p->mb, 0, 64));
	MUST(!post(&p->a, (struct post){ .id = id,
					 .op = IBV_WR_SEND_WITH_IMM,
					 .flags = IBV_SEND_SIGNALED,
					 .mr = p->ma,
					 .len = 48,
					 .imm = imm }));
}

Test(cq_ex, empty_queue_says_so_and_can_be_asked_again)
{
	const struct side_opts opts = { .cq_ex = true };
	struct ibv_poll_cq_attr attr = { 0 };
	struct side s;

	side_open(&s, &opts);
	cr_assert_eq(ibv_start_poll(ex(s.scq), &attr), ENOENT);
	cr_assert_eq(ibv_start_poll(ex(s.scq), &attr), ENOENT);
	attr.comp_mask = 1;
	cr_assert_eq(ibv_start_poll(ex(s.scq), &attr), EINVAL);
	side_close(&s);
}

static void batch(uint32_t cq_flags)
{
	const struct side_opts opts = { .cq_ex = true,
					.wc_flags = IBV_WC_STANDARD_FLAGS,
					.cq_flags = cq_flags };
	struct ibv_cq_ex *cq;
	struct pair p;
	int i;

	setup(&p, &opts);
	for (i = 0; i < 5; i++)
		send_imm(&p, i, 1000 + i);
	cq = ex(p.b.rcq);
	for (i = 0; i < 5; i++) {
		if (i == 0 || i == 3)
			wait_start(cq);
		else
			cr_assert_eq(ibv_next_poll(cq), 0);
		cr_assert_eq(cq->status, IBV_WC_SUCCESS);
		cr_assert_eq(cq->wr_id, 100 + i);
		cr_assert_eq(ibv_wc_read_opcode(cq), IBV_WC_RECV);
		cr_assert_eq(ibv_wc_read_wc_flags(cq), IBV_WC_WITH_IMM);
		cr_assert_eq(be32toh(ibv_wc_read_imm_data(cq)), 1000 + i);
		cr_assert_eq(ibv_wc_read_byte_len(cq), 48);
		cr_assert_eq(ibv_wc_read_qp_num(cq), p.b.qp->qp_num);
		cr_assert_eq(ibv_wc_read_src_qp(cq), p.a.qp->qp_num);
		cr_assert_eq(ibv_wc_read_vendor_err(cq), 0);
		cr_assert_eq(ibv_wc_read_slid(cq), 0);
		cr_assert_eq(ibv_wc_read_sl(cq), 0);
		cr_assert_eq(ibv_wc_read_dlid_path_bits(cq), 0);
		if (i == 2)
			ibv_end_poll(cq);
	}
	cr_assert_eq(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	/* The senders' side by the other way of polling. */
	for (i = 0; i < 5; i++) {
		struct ibv_wc wc = wait_wc(p.a.scq);

		cr_assert_eq(wc.wr_id, i);
		cr_assert_eq(wc.opcode, IBV_WC_SEND);
	}
	teardown(&p);
}

Test(cq_ex, batch) { batch(0); }
Test(cq_ex, batch_of_one_thread) { batch(IBV_CREATE_CQ_ATTR_SINGLE_THREADED); }

Test(cq_ex, batches_do_not_nest)
{
	const struct side_opts opts = { .cq_ex = true };
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq;
	struct pair p;

	setup(&p, &opts);
	send_imm(&p, 1, 1);
	send_imm(&p, 2, 2);
	cq = ex(p.b.rcq);
	wait_start(cq);
	cr_assert_eq(ibv_start_poll(cq, &attr), EINVAL);
	cr_assert_eq(cq->wr_id, 101);
	ibv_end_poll(cq);
	ibv_end_poll(cq);
	wait_start(cq);
	cr_assert_eq(cq->wr_id, 102);
	ibv_end_poll(cq);
	teardown(&p);
}

Test(cq_ex, fails_on_purpose)
{
	const struct side_opts opts = { .cq_ex = true };
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq;
	struct pair p;

	setup(&p, &opts);
	cq = ex(p.b.rcq);
	MUST(!sv_fault_set("poll_cq,err=EIO,nth=1;wc,status=GENERAL_ERR,nth=1"));
	cr_assert_eq(ibv_start_poll(cq, &attr), EIO);
	send_imm(&p, 1, 1);
	wait_start(cq);
	cr_assert_eq(cq->status, IBV_WC_GENERAL_ERR);
	ibv_end_poll(cq);
	MUST(!sv_fault_set(NULL));
	teardown(&p);
}

Test(cq_ex, error_is_seen)
{
	const struct side_opts opts = { .cq_ex = true };
	struct ibv_cq_ex *cq;
	struct pair p;

	setup(&p, &opts);
	MUST(!post_recv(&p.b, 7, p.mb, 0, 64));
	MUST(!side_error(&p.b));
	cq = ex(p.b.rcq);
	wait_start(cq);
	cr_assert_eq(cq->status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(cq->wr_id, 7);
	ibv_end_poll(cq);
	teardown(&p);
}

/* Each lies between what both clocks said before the post and after the poll,
 * and is when it was queued, not when it was read. */
Test(cq_ex, times)
{
	const struct side_opts opts = { .cq_ex = true, .wc_flags = TIMES };
	struct ibv_values_ex before = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_values_ex queued = before;
	struct ibv_device_attr_ex attr;
	uint64_t wall, raw, last = 0;
	struct ibv_cq_ex *cq;
	struct pair p;
	int i;

	setup(&p, &opts);
	MUST(!sv_query_device_ex(p.a.ctx, NULL, &attr, sizeof(attr)));
	cr_assert_eq(attr.completion_timestamp_mask, UINT64_MAX);
	cr_assert_eq(attr.hca_core_clock, 1000000);
	wall = sv_clock_ns(CLOCK_REALTIME);
	MUST(!ibv_query_rt_values_ex(p.a.ctx, &before));
	for (i = 0; i < 3; i++)
		send_imm(&p, i, i);
	/* Receives take no reader: the sender's poll is what moves them on. */
	for (i = 0; i < 3; i++)
		wait_start(ex(p.b.rcq)), ibv_end_poll(ex(p.b.rcq));
	cq = ex(p.a.scq);
	wait_start(cq);
	MUST(!ibv_query_rt_values_ex(p.a.ctx, &queued));
	usleep(20000);
	for (i = 0; i < 3; i++) {
		raw = ibv_wc_read_completion_ts(cq);
		cr_assert(raw >= (uint64_t)before.raw_clock.tv_nsec);
		cr_assert(raw >= last);
		if (!i)
			cr_assert(raw <= (uint64_t)queued.raw_clock.tv_nsec);
		last = raw;
		cr_assert(ibv_wc_read_completion_wallclock_ns(cq) >= wall);
		cr_assert(ibv_wc_read_completion_wallclock_ns(cq) <=
			  sv_clock_ns(CLOCK_REALTIME));
		if (i < 2)
			MUST(!ibv_next_poll(cq));
	}
	ibv_end_poll(cq);
	before.comp_mask = IBV_VALUES_MASK_RESERVED;
	cr_assert_eq(ibv_query_rt_values_ex(p.a.ctx, &before), EINVAL);
	teardown(&p);
}

/* Those of the completions that stay, though the ring moves and others go. */
Test(cq_ex, times_survive_resize_and_purge)
{
	const struct side_opts opts = { .cq_ex = true,
					.wc_flags = TIMES,
					.cqe = 8,
					.one_cq = true };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_recv_wr = 1 } };
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct ibv_qp *first, *second;
	uint64_t from, to;
	struct side s;

	side_open(&s, &opts);
	init.send_cq = init.recv_cq = s.scq;
	MUST((first = sv_create_qp(s.pd, &init)));
	MUST((second = sv_create_qp(s.pd, &init)));
	MUST(!sv_modify_qp(first, &err, IBV_QP_STATE));
	MUST(!sv_modify_qp(second, &err, IBV_QP_STATE));
	MUST(!ibv_post_recv(first, &wr, &bad));
	usleep(2000);
	from = sv_clock_ns(CLOCK_MONOTONIC_RAW);
	wr.wr_id = 2;
	MUST(!ibv_post_recv(second, &wr, &bad));
	to = sv_clock_ns(CLOCK_MONOTONIC_RAW);
	MUST(!sv_resize_cq(s.scq, 64));
	MUST(!sv_destroy_qp(first));
	MUST(!sv_resize_cq(s.scq, 4));
	wait_start(ex(s.scq));
	cr_assert_eq(ex(s.scq)->wr_id, 2);
	cr_assert(ibv_wc_read_completion_ts(ex(s.scq)) >= from);
	cr_assert(ibv_wc_read_completion_ts(ex(s.scq)) <= to);
	cr_assert_eq(ibv_next_poll(ex(s.scq)), ENOENT);
	ibv_end_poll(ex(s.scq));
	MUST(!sv_destroy_qp(second));
	side_close(&s);
}

static int create_errno(struct ibv_context *ctx,
			struct ibv_cq_init_attr_ex attr)
{
	struct ibv_cq_ex *cq;

	errno = 0;
	cq = sv_create_cq_ex(ctx, &attr);
	if (!cq)
		return errno;
	cr_assert(attr.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ||
		  !cq->read_completion_ts);
	MUST(!sv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	return 0;
}

Test(cq_ex, create_refuses_what_it_cannot_do)
{
	const struct ibv_cq_init_attr_ex good = { .cqe = 8 };
	struct ibv_cq_init_attr_ex attr;
	uint64_t flag;
	struct side s, other;

	side_open(&s, &(struct side_opts){ .channel = true });
	side_open(&other, &(struct side_opts){ .channel = true });
	for (flag = 1; flag; flag <<= 1) {
		attr = good;
		attr.wc_flags = flag;
		cr_assert_eq(create_errno(s.ctx, attr),
			     flag & (IBV_WC_STANDARD_FLAGS | TIMES) ?
				     0 :
				     EOPNOTSUPP);
	}
	attr = good;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	cr_assert_eq(create_errno(s.ctx, attr), EOPNOTSUPP);
	attr.comp_mask = 1 << 7;
	cr_assert_eq(create_errno(s.ctx, attr), EOPNOTSUPP);
	attr = good;
	attr.cqe = 0;
	cr_assert_eq(create_errno(s.ctx, attr), EINVAL);
	attr.cqe = SV_MAX_CQE + 1;
	cr_assert_eq(create_errno(s.ctx, attr), EINVAL);
	attr = good;
	attr.comp_vector = s.ctx->num_comp_vectors;
	cr_assert_eq(create_errno(s.ctx, attr), EINVAL);
	attr = good;
	attr.channel = other.chan;
	cr_assert_eq(create_errno(s.ctx, attr), EINVAL);
	attr.channel = s.chan;
	cr_assert_eq(create_errno(s.ctx, attr), 0);
	side_close(&s);
	side_close(&other);
}
