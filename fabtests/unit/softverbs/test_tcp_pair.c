/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two queue pairs over TCP: what shared memory does not have to fear. That both
 * send and nobody reads, that acknowledgements stand behind messages that wait,
 * that there are many streams, and that nobody polls.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>

TestSuite(tcp_pair, .timeout = 120);

enum { BUF = 8 << 20 };

struct pair {
	struct side a, b;
	struct ibv_mr *ma, *mb;
	char *abuf, *bbuf;
};

static void setup(struct pair *p, const struct side_opts *opts)
{
	side_open(&p->a, opts);
	side_open(&p->b, opts);
	MUST((p->abuf = calloc(1, BUF)) && (p->bbuf = calloc(1, BUF)));
	p->ma = side_reg(&p->a, p->abuf, BUF);
	p->mb = side_reg(&p->b, p->bbuf, BUF);
	pair_up(&p->a, &p->b);
}

static void teardown(struct pair *p)
{
	MUST(!sv_dereg_mr(p->ma) && !sv_dereg_mr(p->mb));
	side_close(&p->a);
	side_close(&p->b);
	free(p->abuf);
	free(p->bbuf);
}

static struct post send_of(struct ibv_mr *mr, uint64_t id, uint32_t len)
{
	return (struct post){ .id = id,
			      .op = IBV_WR_SEND,
			      .flags = IBV_SEND_SIGNALED,
			      .mr = mr,
			      .len = len };
}

/* Both sides send far more than the sockets hold before either polls. */
static void both_send(uint32_t len, int cnt)
{
	struct pair p;
	int i;

	setup(&p, NULL);
	for (i = 0; i < cnt; i++) {
		MUST(!post_recv(&p.a, i, p.ma, 0, len));
		MUST(!post_recv(&p.b, i, p.mb, 0, len));
	}
	for (i = 0; i < cnt; i++) {
		MUST(!post(&p.a, send_of(p.ma, i, len)));
		MUST(!post(&p.b, send_of(p.mb, i, len)));
	}
	for (i = 0; i < cnt; i++) {
		cr_assert_eq(wait_wc(p.a.rcq).wr_id, i);
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
		cr_assert_eq(wait_wc(p.a.scq).wr_id, i);
		cr_assert_eq(wait_wc(p.b.scq).wr_id, i);
	}
	teardown(&p);
}

Test(tcp_pair, both_send_large) { both_send(BUF, 6); }
Test(tcp_pair, both_send_many) { both_send(100000, 64); }

/*
 * b has sent what a has no receives for. Nevertheless a's own messages complete:
 * a posts its receives only then.
 */
static void waits_behind(uint32_t b_len, uint32_t a_len)
{
	enum { CNT = 60 };
	struct ibv_wc wc;
	struct pair p;
	int i;

	setup(&p, NULL);
	fill(p.bbuf, b_len, 5);
	for (i = 0; i < CNT; i++)
		MUST(!post_recv(&p.b, i, p.mb, BUF / 2, a_len));
	for (i = 0; i < CNT; i++)
		MUST(!post(&p.b, send_of(p.mb, i, b_len)));
	for (i = 0; i < CNT; i++)
		MUST(!post(&p.a, send_of(p.ma, i, a_len)));
	for (i = 0; i < CNT; i++) {
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
		cr_assert_eq(wait_wc(p.a.scq).wr_id, i);
	}
	cr_assert_not(wait_wc_ms(p.b.scq, &wc, 10));
	for (i = 0; i < CNT; i++)
		MUST(!post_recv(&p.a, i, p.ma, 0, b_len));
	for (i = 0; i < CNT; i++) {
		cr_assert_eq(wait_wc(p.a.rcq).wr_id, i);
		cr_assert_eq(wait_wc(p.b.scq).wr_id, i);
	}
	cr_assert(filled(p.abuf, b_len, 5));
	teardown(&p);
}

Test(tcp_pair, waits_behind_small) { waits_behind(64, 64); }
Test(tcp_pair, waits_behind_medium) { waits_behind(5000, 5000); }
Test(tcp_pair, waits_behind_large) { waits_behind(1 << 20, 100000); }
Test(tcp_pair, waits_behind_larger_than_it) { waits_behind(64, 1 << 20); }

/* Writes behind a send that waits wait with it, however long they are. */
Test(tcp_pair, write_behind_what_waits)
{
	struct ibv_wc wc;
	struct pair p;
	struct post w;

	setup(&p, NULL);
	fill(p.abuf, BUF, 7);
	MUST(!post(&p.a, send_of(p.ma, 1, 8)));
	w = send_of(p.ma, 2, BUF);
	w.op = IBV_WR_RDMA_WRITE;
	w.raddr = (uintptr_t)p.bbuf;
	w.rkey = p.mb->rkey;
	MUST(!post(&p.a, w));
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 20));
	cr_assert_eq(p.bbuf[BUF - 1], 0);
	MUST(!post_recv(&p.b, 3, p.mb, 0, 8));
	cr_assert_eq(wait_wc(p.b.rcq).wr_id, 3);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 1);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 2);
	cr_assert(filled(p.bbuf, BUF, 7));
	teardown(&p);
}

/* The target does nothing at all. */
Test(tcp_pair, one_sided_while_the_target_computes)
{
	struct post w;
	struct pair p;
	uint64_t *cell;
	int i;

	setup(&p, NULL);
	cell = (uint64_t *)p.bbuf;
	w = send_of(p.ma, 1, 1 << 20);
	w.raddr = (uintptr_t)p.bbuf + 4096;
	w.rkey = p.mb->rkey;
	for (i = 0; i < 20; i++) {
		fill(p.abuf, 1 << 20, i);
		w.op = IBV_WR_RDMA_WRITE;
		MUST(!post(&p.a, w));
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
		cr_assert(filled(p.bbuf + 4096, 1 << 20, i));
		memset(p.abuf, 0, 1 << 20);
		w.op = IBV_WR_RDMA_READ;
		MUST(!post(&p.a, w));
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
		cr_assert(filled(p.abuf, 1 << 20, i));
		MUST(!post(&p.a,
			   (struct post){ .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
					  .flags = IBV_SEND_SIGNALED,
					  .mr = p.ma,
					  .len = 8,
					  .raddr = (uintptr_t)cell,
					  .rkey = p.mb->rkey,
					  .compare_add = 3 }));
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
		cr_assert_eq(*(uint64_t *)p.abuf, i * 3);
	}
	cr_assert_eq(*cell, 60);
	teardown(&p);
}

/* Whoever stops polling leaves nothing behind for whoever waits for it. */
Test(tcp_pair, sender_stops_polling)
{
	struct pair p;

	setup(&p, NULL);
	fill(p.abuf, BUF, 3);
	MUST(!post_recv(&p.b, 1, p.mb, 0, BUF));
	MUST(!post(&p.a, send_of(p.ma, 1, BUF)));
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, BUF);
	cr_assert(filled(p.bbuf, BUF, 3));
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	teardown(&p);
}

/* An event, whoever polled before, and however long. */
Test(tcp_pair, wakes)
{
	struct pollfd pfd;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct pair p;
	void *arg;
	int i, k;

	setup(&p, &(struct side_opts){ .channel = true });
	pfd = (struct pollfd){ .fd = p.b.chan->fd, .events = POLLIN };
	for (i = 0; i < 200; i++) {
		MUST(!post_recv(&p.b, i, p.mb, 0, 64));
		/* Some of the time it is leased when it is armed. */
		for (k = 0; k < (i % 3) * 20; k++)
			cr_assert_eq(ibv_poll_cq(p.b.rcq, 1, &wc), 0);
		MUST(!ibv_req_notify_cq(p.b.rcq, 0));
		MUST(!post(&p.a, send_of(p.ma, i, 64)));
		cr_assert_eq(poll(&pfd, 1, SIDE_WAIT_MS), 1, "round %d", i);
		MUST(!sv_get_cq_event(p.b.chan, &cq, &arg));
		sv_ack_cq_events(cq, 1);
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	}
	teardown(&p);
}

/* ---- many ---- */

enum { MANY = 100, ROUNDS = 20 };

/* All queue pairs of a side share its CQs. */
Test(tcp_pair, many_on_one_cq)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct side a, b, many_a[MANY], many_b[MANY];
	static uint64_t got[MANY];
	struct ibv_mr *ma, *mb;
	char *abuf, *bbuf;
	struct ibv_wc wc;
	int i, k, n;

	side_open(&a, &(struct side_opts){ .depth = 2048, .one_cq = true });
	side_open(&b, &(struct side_opts){ .depth = 2048, .one_cq = true });
	MUST((abuf = calloc(1, BUF)) && (bbuf = calloc(1, BUF)));
	ma = side_reg(&a, abuf, BUF);
	mb = side_reg(&b, bbuf, BUF);
	init.cap = (struct ibv_qp_cap){ 16, 16, 1, 1, 0 };
	for (i = 0; i < MANY; i++) {
		many_a[i] = a;
		many_b[i] = b;
		init.send_cq = init.recv_cq = a.scq;
		MUST((many_a[i].qp = sv_create_qp(a.pd, &init)));
		init.send_cq = init.recv_cq = b.scq;
		MUST((many_b[i].qp = sv_create_qp(b.pd, &init)));
		pair_up(&many_a[i], &many_b[i]);
	}
	for (k = 0; k < ROUNDS; k++) {
		for (i = 0; i < MANY; i++) {
			MUST(!post_recv(&many_b[i], i, mb, i * 4096, 4096));
			abuf[i * 4096] = k + i;
			MUST(!post(&many_a[i],
				   (struct post){ .id = 1000,
						  .op = IBV_WR_SEND,
						  .flags = IBV_SEND_SIGNALED,
						  .mr = ma,
						  .off = i * 4096,
						  .len = 4096 }));
		}
		for (n = 0; n < MANY; n++) {
			wc = wait_wc(b.rcq);
			cr_assert_eq(wc.status, IBV_WC_SUCCESS);
			got[wc.wr_id]++;
			cr_assert_eq(bbuf[wc.wr_id * 4096],
				     (char)(k + wc.wr_id));
		}
		for (n = 0; n < MANY; n++)
			cr_assert_eq(wait_wc(a.scq).wr_id, 1000);
	}
	for (i = 0; i < MANY; i++) {
		cr_assert_eq(got[i], ROUNDS);
		MUST(!sv_destroy_qp(many_a[i].qp));
		MUST(!sv_destroy_qp(many_b[i].qp));
	}
	MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
	side_close(&a);
	side_close(&b);
	free(abuf);
	free(bbuf);
}

static int fd_cnt(void)
{
	int fd, cnt = 0;

	for (fd = 0; fd < 1024; fd++)
		cnt += fcntl(fd, F_GETFD) >= 0;
	return cnt;
}

static void rounds(int cnt)
{
	struct pair p;
	int i;

	for (i = 0; i < cnt; i++) {
		setup(&p, NULL);
		MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
		MUST(!post(&p.a, send_of(p.ma, 1, 64)));
		cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
		teardown(&p);
	}
}

/* Who polls for so long needs the timer. */
static void one_that_waits(void)
{
	struct ibv_wc wc;
	struct pair p;

	setup(&p, NULL);
	MUST(!post(&p.a, send_of(p.ma, 1, 64)));
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 200));
	MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	teardown(&p);
}

/* Whoever is destroyed gives everything back, now or soon. What the process has
 * once, the timer for one, is made when it is first needed. */
Test(tcp_pair, nothing_stays)
{
	int before, i;

	one_that_waits();
	rounds(50);
	before = fd_cnt();
	rounds(300);
	for (i = 0; i < 500 && fd_cnt() > before; i++)
		usleep(10000);
	cr_assert_leq(fd_cnt(), before);
}
