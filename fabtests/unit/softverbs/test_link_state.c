/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two QPs joined in one process: states of a link that have work in them, and events
 * that tell of it.
 */
#include "link.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

TestSuite(link, .timeout = 120);

/* Posted before the link exists: goes out once it does. */
Test(link, work_waits_for_the_link)
{
	struct side a, b;
	static char abuf[64], bbuf[64];
	struct ibv_mr *ma, *mb;

	side_open(&a, NULL);
	side_open(&b, NULL);
	ma = side_reg(&a, abuf, 64);
	mb = side_reg(&b, bbuf, 64);
	MUST(!side_init(&a) && !side_rtr(&a, b.qp->qp_num) && !side_rts(&a));
	post(&a, (struct post){ .op = IBV_WR_SEND,
				.flags = IBV_SEND_SIGNALED,
				.mr = ma,
				.len = 5 });
	memcpy(abuf, "hello", 5);
	MUST(!side_init(&b));
	MUST(!post_recv(&b, 1, mb, 0, 64));
	pair_links(&a, &b, getpid());
	/* The receiver is not ready yet; the message is not lost on it. */
	MUST(!side_rtr(&b, a.qp->qp_num));
	cr_assert_eq(wait_wc(b.rcq).byte_len, 5);
	cr_assert_eq(memcmp(bbuf, "hello", 5), 0);
	cr_assert_eq(wait_wc(a.scq).status, IBV_WC_SUCCESS);
	MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
	side_close(&a);
	side_close(&b);
}

Test(link, drained_is_announced)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD,
				    .en_sqd_async_notify = 1 };
	struct ibv_qp_init_attr init;
	struct pair p;
	struct ibv_wc wc;

	setup(&p, true, NULL);
	post(&p.a, (struct post){ .id = 1,
				  .op = IBV_WR_SEND,
				  .flags = IBV_SEND_SIGNALED });
	cr_assert_eq(sv_modify_qp(p.a.qp, &attr,
				  IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
		     0);
	cr_assert_eq(sv_query_qp(p.a.qp, &attr, 0, &init), 0);
	cr_assert_eq(attr.sq_draining, 1);
	post(&p.a, (struct post){ .id = 2,
				  .op = IBV_WR_SEND,
				  .flags = IBV_SEND_SIGNALED });
	post_recv(&p.b, 1, p.mb, 0, 8);
	post_recv(&p.b, 2, p.mb, 0, 8);
	expect_async(&p.a, IBV_EVENT_SQ_DRAINED);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 1);
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 20));
	attr.qp_state = IBV_QPS_RTS;
	cr_assert_eq(sv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 2);
	teardown(&p);
}

/* Whether something of the first WR is out. */
static bool begun(struct sv_qp *qp)
{
	bool ret;

	sv_lock_take(&qp->lock);
	ret = qp->sq.sent || sv_sq_slot(qp, 0)->offset;
	sv_lock_drop(&qp->lock);
	return ret;
}

/* A message that is half out when the queue is drained is not left so. */
static void drained_in_the_middle(bool direct)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD,
				    .en_sqd_async_notify = 1 };
	struct ibv_qp_init_attr init;
	struct pair p;
	struct ibv_wc wc;

	setup(&p, direct, NULL);
	fill(p.abuf, BUF, 5);
	memset(p.bbuf, 0, BUF);
	/* Over TCP nothing begins that has no receive. */
	if (SIDE_IS_TCP)
		MUST(!post_recv(&p.b, 1, p.mb, 0, BUF));
	MUST(!post(&p.a, (struct post){ .id = 1,
					.op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = p.ma,
					.len = BUF }));
	MUST(!post(&p.a, (struct post){ .id = 2,
					.op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED }));
	while (SIDE_IS_TCP && !begun(sv_qp(p.a.qp)))
		sched_yield();
	MUST(!sv_modify_qp(p.a.qp, &attr,
			   IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	if (!SIDE_IS_TCP) {
		MUST(!sv_query_qp(p.a.qp, &attr, 0, &init));
		cr_assert_eq(attr.sq_draining, 1);
		cr_assert_not(wait_wc_ms(p.a.scq, &wc, 20));
		MUST(!post_recv(&p.b, 1, p.mb, 0, BUF));
	}
	MUST(!post_recv(&p.b, 2, p.mb, 0, 0));
	wc = wait_wc(p.b.rcq);
	cr_assert_eq(wc.byte_len, BUF);
	cr_assert(filled(p.bbuf, BUF, 5));
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 1);
	MUST(!sv_query_qp(p.a.qp, &attr, 0, &init));
	/* The second may have been out as well, where there was room. */
	if (!wait_wc_ms(p.a.scq, &wc, 20)) {
		expect_async(&p.a, IBV_EVENT_SQ_DRAINED);
		cr_assert_eq(attr.sq_draining, 0);
		attr.qp_state = IBV_QPS_RTS;
		MUST(!sv_modify_qp(p.a.qp, &attr, IBV_QP_STATE));
		wc = wait_wc(p.a.scq);
	} else {
		expect_async(&p.a, IBV_EVENT_SQ_DRAINED);
	}
	cr_assert_eq(wc.wr_id, 2);
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, 0);
	teardown(&p);
}

Test(link, drained_in_the_middle) { drained_in_the_middle(true); }
Test(link, drained_in_the_middle_ring) { drained_in_the_middle(false); }

/* Armed for what is solicited, a queue says nothing of what is not. */
Test(link, solicited_events)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	const struct side_opts opts = { .channel = true };
	struct ibv_cq *cq;
	struct pair p;
	void *context;
	size_t i;
	int turn;

	setup(&p, true, &opts);
	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		for (turn = 0; turn < 2; turn++) {
			struct pollfd pfd = { .fd = p.b.chan->fd,
					      .events = POLLIN };

			MUST(!ibv_req_notify_cq(p.b.rcq, 1));
			MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
			MUST(!post(&p.a,
				   (struct post){
					   .op = ops[i],
					   .flags = turn ? IBV_SEND_SOLICITED |
								   IBV_SEND_SIGNALED :
							   IBV_SEND_SIGNALED,
					   .mr = p.ma,
					   .len = 8,
					   .raddr = (uintptr_t)p.bbuf,
					   .rkey = p.mb->rkey }));
			cr_assert_eq(poll(&pfd, 1, turn ? SIDE_WAIT_MS : 50),
				     turn, "case %zu", i);
			if (turn) {
				MUST(!sv_get_cq_event(p.b.chan, &cq, &context));
				cr_assert_eq(cq, p.b.rcq);
				sv_ack_cq_events(cq, 1);
			}
			wait_wc(p.b.rcq);
			wait_wc(p.a.scq);
		}
	}
	teardown(&p);
}

/* Withdrawing memory asks all links that stand, and no more than there are. */
Test(link, one_that_never_stood)
{
	struct sv_link *link;
	struct side c;
	struct pair p;
	int i;

	setup(&p, true, NULL);
	side_open(&c, NULL);
	/* More than stand. */
	for (i = 0; i < 3; i++) {
		MUST(!sv_shm_create(sv_qp(c.qp), &link));
		sv_link_close(link);
	}
	side_close(&c);
	/* Its regions: this comes back. */
	teardown(&p);
}

/* A file that is larger than a process's may be ends it by a signal. */
Test(link, no_file_may_be_so_large)
{
	struct rlimit was, limit;
	struct sv_link *link;
	struct side s;

	side_open(&s, NULL);
	MUST(!getrlimit(RLIMIT_FSIZE, &was));
	limit = was;
	limit.rlim_cur = 4096;
	MUST(!setrlimit(RLIMIT_FSIZE, &limit));
	cr_assert_eq(sv_shm_create(sv_qp(s.qp), &link), EFBIG);
	MUST(!setrlimit(RLIMIT_FSIZE, &was));
	MUST(!sv_shm_create(sv_qp(s.qp), &link));
	sv_link_close(link);
	side_close(&s);
}

/* Through RESET and a new link the same QP works again. */
Test(link, reset_and_again)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct pair p;
	int i;

	setup(&p, true, NULL);
	for (i = 0; i < 5; i++) {
		post_recv(&p.b, i, p.mb, 0, 64);
		post(&p.a, (struct post){ .id = i,
					  .op = IBV_WR_SEND,
					  .flags = IBV_SEND_SIGNALED });
		cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
		/* Left behind: must not come back later. */
		post_recv(&p.b, 77, p.mb, 0, 64);
		MUST(!sv_modify_qp(p.a.qp, &reset, IBV_QP_STATE));
		MUST(!sv_modify_qp(p.b.qp, &reset, IBV_QP_STATE));
		pair_up(&p.a, &p.b);
	}
	teardown(&p);
}

/* A peer that is in the middle of a write, for a while. */
static void *copying(void *arg)
{
	struct pair *p = arg;
	struct sv_seg *seg = sv_shm(sv_qp(p->b.qp)->link)->own;

	poll(NULL, 0, 100);
	p->bbuf[0] = 'w';
	atomic_store(&seg->busy, 0);
	return NULL;
}

/* Once a queue pair is in the error state, nothing of the peer's lands any more. */
Test(link, error_waits_for_a_write, .disabled = SIDE_IS_TCP)
{
	pthread_t thread;
	struct pair p;

	setup(&p, true, NULL);
	p.bbuf[0] = 0;
	atomic_store(&sv_shm(sv_qp(p.b.qp)->link)->own->busy, p.mb->rkey);
	MUST(!pthread_create(&thread, NULL, copying, &p));
	MUST(!side_error(&p.b));
	cr_assert_eq(p.bbuf[0], 'w');
	MUST(!pthread_join(thread, NULL));
	teardown(&p);
}

/* Writes as much as it can, until one fails; and then ends its own side. */
struct writer {
	struct side *side;
	struct ibv_mr *from;
	struct ibv_mr *to;
	pthread_barrier_t *begin;
};

static void *writing(void *arg)
{
	struct writer *w = arg;
	int i;

	pthread_barrier_wait(w->begin);
	for (i = 0; i < 3; i++)
		MUST(!post(w->side, (struct post){
					    .op = IBV_WR_RDMA_WRITE,
					    .mr = w->from,
					    .len = BUF,
					    .raddr = (uintptr_t)w->to->addr,
					    .rkey = w->to->rkey }));
	MUST(!side_error(w->side));
	return NULL;
}

/* Each waits for the other's copy, and neither for the other. */
Test(link, error_at_both_ends_at_once)
{
	pthread_barrier_t begin;
	struct writer w[2];
	pthread_t thread[2];
	struct pair p;
	uint64_t start;
	int i, round;

	MUST(!pthread_barrier_init(&begin, NULL, 2));
	for (round = 0; round < 10; round++) {
		setup(&p, true, NULL);
		w[0] = (struct writer){ &p.a, p.ma, p.mb, &begin };
		w[1] = (struct writer){ &p.b, p.mb, p.ma, &begin };
		start = sv_now_ns();
		for (i = 0; i < 2; i++)
			MUST(!pthread_create(&thread[i], NULL, writing, &w[i]));
		for (i = 0; i < 2; i++)
			MUST(!pthread_join(thread[i], NULL));
		cr_assert_lt(sv_now_ns() - start, 10 * 1000000000ull);
		teardown(&p);
	}
	pthread_barrier_destroy(&begin);
}

/* Sleeping on the channel: the peer's doorbell and the engine wake us. */
Test(link, completion_channel_wakes)
{
	struct ibv_cq *cq;
	struct pair p;
	void *context;
	int i;

	setup(&p, true, &(struct side_opts){ .channel = true });
	for (i = 0; i < 300; i++) {
		MUST(!ibv_req_notify_cq(p.b.rcq, 0));
		post_recv(&p.b, i, p.mb, 0, 64);
		post(&p.a, (struct post){ .id = i,
					  .op = IBV_WR_SEND,
					  .flags = IBV_SEND_SIGNALED });
		cr_assert_eq(sv_get_cq_event(p.b.chan, &cq, &context), 0);
		cr_assert_eq(cq, p.b.rcq);
		sv_ack_cq_events(cq, 1);
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
		cr_assert_eq(wait_wc(p.a.scq).wr_id, i);
	}
	teardown(&p);
}
