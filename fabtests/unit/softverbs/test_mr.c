/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory regions: that what is withdrawn is not touched any more, whoever was at
 * it.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

TestSuite(mr, .timeout = 120);

enum { LEN = 1 << 20 };

struct pair {
	struct side a, b;
};

static void setup(struct pair *p, bool direct)
{
	setenv("SV_CMA", direct ? "1" : "0", 1);
	side_open(&p->a, NULL);
	side_open(&p->b, NULL);
	pair_up(&p->a, &p->b);
}

static void teardown(struct pair *p)
{
	side_close(&p->a);
	side_close(&p->b);
}

static void *map(void)
{
	void *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	MUST(mem != MAP_FAILED);
	return mem;
}

struct holder {
	struct sv_qp *qp;
	atomic_int step; /* 1: has the lock, 2: is about to give it back */
};

static void *hold(void *arg)
{
	struct holder *h = arg;

	sv_lock_take(&h->qp->lock);
	atomic_store(&h->step, 1);
	usleep(50000);
	atomic_store(&h->step, 2);
	sv_lock_drop(&h->qp->lock);
	return NULL;
}

/* What is done to a region while a thread is at work on one of the QPs. */
static void waits_for_holder(bool rereg)
{
	struct holder h = { .step = 0 };
	pthread_t thread;
	struct ibv_mr *mr;
	struct pair p;
	void *mem;

	setup(&p, true);
	mem = map();
	mr = side_reg(&p.b, mem, LEN);
	h.qp = sv_qp(p.b.qp);
	MUST(!pthread_create(&thread, NULL, hold, &h));
	while (!atomic_load(&h.step))
		sched_yield();
	if (rereg)
		MUST(!sv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				  0));
	else
		MUST(!sv_dereg_mr(mr));
	cr_assert_eq(atomic_load(&h.step), 2);
	pthread_join(thread, NULL);
	if (rereg)
		MUST(!sv_dereg_mr(mr));
	munmap(mem, LEN);
	teardown(&p);
}

Test(mr, dereg_waits_for_own_threads) { waits_for_holder(false); }
Test(mr, rereg_waits_for_own_threads) { waits_for_holder(true); }

/* Polls until told to stop: it is in the middle of a copy most of the time. */
struct poller {
	struct ibv_cq *cq;
	atomic_bool stop;
};

static void *poll_on(void *arg)
{
	struct poller *p = arg;
	struct ibv_wc wc;

	while (!atomic_load(&p->stop))
		ibv_poll_cq(p->cq, 1, &wc);
	return NULL;
}

/* Another thread's polls put a message or write into memory that goes away. */
static void unmapped_under_copy(enum ibv_wr_opcode op)
{
	struct poller poller = { .stop = false };
	static char src[LEN];
	struct ibv_mr *ma, *mb;
	pthread_t thread;
	struct pair p;
	void *mem;
	int i;

	for (i = 0; i < 60; i++) {
		setup(&p, false);
		mem = map();
		ma = side_reg(&p.a, src, LEN);
		mb = side_reg(&p.b, mem, LEN);
		poller.cq = p.b.rcq;
		atomic_store(&poller.stop, false);
		MUST(!pthread_create(&thread, NULL, poll_on, &poller));
		MUST(!post_recv(&p.b, 1, mb, 0, LEN));
		MUST(!post(&p.a, (struct post){ .op = op,
						.flags = IBV_SEND_SIGNALED,
						.mr = ma,
						.len = LEN,
						.raddr = (uintptr_t)mem,
						.rkey = mb->rkey }));
		usleep(i * 3);
		MUST(!sv_dereg_mr(mb));
		munmap(mem, LEN);
		usleep(200);
		atomic_store(&poller.stop, true);
		pthread_join(thread, NULL);
		MUST(!sv_dereg_mr(ma));
		teardown(&p);
	}
}

Test(mr, unmapped_under_send) { unmapped_under_copy(IBV_WR_SEND); }
Test(mr, unmapped_under_write) { unmapped_under_copy(IBV_WR_RDMA_WRITE); }

/* A send stands still half way, for want of a receive, and loses its memory. */
static void source_goes(bool direct)
{
	static char dst[LEN];
	struct ibv_mr *ma, *mb;
	struct pair p;
	struct ibv_wc wc;
	void *mem;

	setup(&p, direct);
	mem = map();
	ma = side_reg(&p.a, mem, LEN);
	mb = side_reg(&p.b, dst, LEN);
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = ma,
					.len = LEN }));
	MUST(!sv_dereg_mr(ma));
	munmap(mem, LEN);
	MUST(!post_recv(&p.b, 1, mb, 0, LEN));
	do {
		wait_wc_ms(p.b.rcq, &wc, 0);
	} while (!wait_wc_ms(p.a.scq, &wc, 1));
	cr_assert_eq(wc.status, IBV_WC_LOC_PROT_ERR);
	MUST(!sv_dereg_mr(mb));
	teardown(&p);
}

Test(mr, source_goes_ring) { source_goes(false); }
Test(mr, source_goes_pull) { source_goes(true); }

/* A read whose memory has gone when the answer comes. */
Test(mr, read_sink_goes)
{
	static char src[LEN];
	struct ibv_mr *ma, *mb;
	struct pair p;
	struct ibv_wc wc;
	void *mem;

	setenv("SV_CMA", "0", 1);
	side_open(&p.a, NULL);
	side_open(&p.b, NULL);
	mem = map();
	ma = side_reg(&p.a, mem, LEN);
	mb = side_reg(&p.b, src, LEN);
	MUST(!side_init(&p.a) && !side_init(&p.b));
	pair_links(&p.a, &p.b, getpid());
	MUST(!side_rtr(&p.a, p.b.qp->qp_num) && !side_rts(&p.a));
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_RDMA_READ,
					.flags = IBV_SEND_SIGNALED,
					.mr = ma,
					.len = LEN,
					.raddr = (uintptr_t)src,
					.rkey = mb->rkey }));
	MUST(!sv_dereg_mr(ma));
	munmap(mem, LEN);
	/* Now it may answer. */
	MUST(!side_rtr(&p.b, p.a.qp->qp_num) && !side_rts(&p.b));
	do {
		wait_wc_ms(p.b.rcq, &wc, 0);
	} while (!wait_wc_ms(p.a.scq, &wc, 1));
	cr_assert_eq(wc.status, IBV_WC_LOC_PROT_ERR);
	MUST(!sv_dereg_mr(mb));
	teardown(&p);
}
