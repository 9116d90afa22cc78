/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Atomics: what they do, in which order, what they refuse, and that nothing of
 * anybody else's gets lost between their two halves, whoever that is: another
 * connection, another process, or the owner of the memory itself. And reads,
 * where they share limits with atomics.
 */
#include "pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>

TestSuite(atomic, .timeout = 120);

enum { CELLS = 1 << 14 };

static uint64_t abuf[CELLS], bbuf[CELLS];

static void open_pair(struct pair *p, bool direct, const struct side_opts *opts)
{
	side_direct(direct);
	side_open(&p->a, opts);
	side_open(&p->b, opts);
	p->ma = side_reg(&p->a, abuf, sizeof(abuf));
	p->mb = side_reg(&p->b, bbuf, sizeof(bbuf));
}

static void setup(struct pair *p, bool direct)
{
	open_pair(p, direct, &(struct side_opts){ .depth = 256 });
	pair_up(&p->a, &p->b);
}

/* Cell i of the peer's; the answer goes to cell i of ours. */
static struct post add(const struct pair *p, int i, uint64_t n)
{
	return (struct post){ .id = i,
			      .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
			      .flags = IBV_SEND_SIGNALED,
			      .mr = p->ma,
			      .off = i * 8,
			      .len = 8,
			      .raddr = (uintptr_t)&bbuf[i],
			      .rkey = p->mb->rkey,
			      .compare_add = n };
}

static struct post cas(const struct pair *p, int i, uint64_t from, uint64_t to)
{
	struct post post = add(p, i, from);

	post.op = IBV_WR_ATOMIC_CMP_AND_SWP;
	post.swap = to;
	return post;
}

static struct post rma(const struct pair *p, enum ibv_wr_opcode op, int i,
		       uint32_t len)
{
	struct post post = add(p, i, 0);

	post.op = op;
	post.len = len;
	return post;
}

static void both_kinds(bool direct)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, direct);
	bbuf[3] = 0xfffffffffffffff0;
	MUST(!post(&p.a, add(&p, 3, 0x20)));
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.opcode, IBV_WC_FETCH_ADD);
	cr_assert_eq(wc.wr_id, 3);
	cr_assert_eq(wc.byte_len, 8);
	cr_assert_eq(abuf[3], 0xfffffffffffffff0);
	cr_assert_eq(bbuf[3], 0x10);

	MUST(!post(&p.a, cas(&p, 3, 0x11, 7)));
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.opcode, IBV_WC_COMP_SWAP);
	cr_assert_eq(abuf[3], 0x10);
	cr_assert_eq(bbuf[3], 0x10);
	MUST(!post(&p.a, cas(&p, 3, 0x10, UINT64_MAX)));
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	cr_assert_eq(abuf[3], 0x10);
	cr_assert_eq(bbuf[3], UINT64_MAX);
	cr_assert_eq(bbuf[2], 0);
	cr_assert_eq(bbuf[4], 0);
	teardown(&p);
}

Test(atomic, both_kinds) { both_kinds(true); }
Test(atomic, both_kinds_ring) { both_kinds(false); }

Test(atomic, answer_goes_to_scattered_memory)
{
	struct pair p;
	struct ibv_sge sge[3];
	struct ibv_send_wr wr = {
		.sg_list = sge,
		.num_sge = 3,
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	char *to = (char *)abuf;
	uint64_t got;

	setup(&p, true);
	sge[0] = (struct ibv_sge){ (uintptr_t)to + 1, 3, p.ma->lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)to + 9, 4, p.ma->lkey };
	sge[2] = (struct ibv_sge){ (uintptr_t)to + 19, 1, p.ma->lkey };
	wr.wr.atomic.remote_addr = (uintptr_t)bbuf;
	wr.wr.atomic.rkey = p.mb->rkey;
	wr.wr.atomic.compare_add = 1;
	bbuf[0] = 0x0102030405060708;
	MUST(!ibv_post_send(p.a.qp, &wr, &bad));
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	memcpy(&got, to + 1, 3);
	memcpy((char *)&got + 3, to + 9, 4);
	memcpy((char *)&got + 7, to + 19, 1);
	cr_assert_eq(got, 0x0102030405060708);
	cr_assert_eq(bbuf[0], 0x0102030405060709);
	teardown(&p);
}

/* ---- order ---- */

/* Atomics, reads of any length, empty ones too, and sends among them: many at
 * once, more than may be under way; done in order, each with its own answer. */
static void mixed(bool direct, int depth)
{
	enum { CNT = 128 };
	static const uint32_t lens[] = { 0, 8, 8 * 1000, 8 * 9000 };
	struct pair p;
	struct ibv_wc wc;
	int i, round;

	open_pair(&p, direct, &(struct side_opts){ .depth = 256 });
	p.a.rd_out = depth;
	pair_up(&p.a, &p.b);
	for (i = 0; i < CELLS; i++)
		bbuf[i] = i;
	for (round = 0; round < 8; round++) {
		bbuf[0] = 1000 * round;
		for (i = 0; i < CNT; i++) {
			struct post w = add(&p, 0, 1);

			w.off = (CELLS - CNT + i) * 8;
			if (i % 3 == 1) {
				w = rma(&p, IBV_WR_RDMA_READ, 0,
					lens[i / 3 % 4]);
				w.off = 8;
				w.raddr += 8;
			} else if (i % 3 == 2) {
				w = (struct post){ .op = IBV_WR_SEND,
						   .flags = IBV_SEND_SIGNALED };
				MUST(!post_recv(&p.b, i, p.mb, 0, 0));
			}
			w.id = i;
			MUST(!post(&p.a, w));
		}
		for (i = 0; i < CNT; i++) {
			wc = wait_wc(p.a.scq);
			cr_assert_eq(wc.status, IBV_WC_SUCCESS);
			cr_assert_eq(wc.wr_id, i);
			if (i % 3 == 0)
				cr_assert_eq(abuf[CELLS - CNT + i],
					     1000u * round + i / 3);
			else if (i % 3 == 2)
				cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
		}
		for (i = 1; i < 9001; i++)
			cr_assert_eq(abuf[i], i);
		memset(abuf, 0, sizeof(abuf));
	}
	teardown(&p);
}

Test(atomic, mixed_with_reads_and_sends) { mixed(true, 16); }
Test(atomic, mixed_with_reads_and_sends_ring) { mixed(false, 16); }
Test(atomic, mixed_one_at_a_time) { mixed(true, 1); }
Test(atomic, mixed_one_at_a_time_ring) { mixed(false, 1); }

/* Behind a send that nobody receives; a write does not overtake it either. */
Test(atomic, order_with_sends_and_writes)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, true);
	abuf[8] = 77;
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_SEND }));
	MUST(!post(&p.a, add(&p, 0, 5)));
	struct post w = rma(&p, IBV_WR_RDMA_WRITE, 8, 8);

	w.raddr = (uintptr_t)&bbuf[0];
	MUST(!post(&p.a, w));
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 50));
	cr_assert_eq(bbuf[0], 0);
	MUST(!post_recv(&p.b, 1, p.mb, 0, 0));
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 0);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 8);
	cr_assert_eq(abuf[0], 0);
	cr_assert_eq(bbuf[0], 77);
	teardown(&p);
}

/*
 * The peer has receives for all that is under way, so a write may go ahead of
 * sends; of an atomic it may not. The peer takes nothing yet: it is not ready.
 */
Test(atomic, write_never_passes_an_atomic)
{
	struct pair p;
	struct ibv_wc wc;
	struct post w;
	int i;

	open_pair(&p, true, NULL);
	MUST(!side_init(&p.a) && !side_init(&p.b));
	MUST(!post_recv(&p.b, 1, p.mb, 0, 0));
	pair_links(&p.a, &p.b, getpid());
	MUST(!side_rtr(&p.a, p.b.qp->qp_num) && !side_rts(&p.a));
	/* What the peer says is open; that it takes nothing, only it knows. */
	MUST(!side_rtr(&p.b, p.a.qp->qp_num));
	sv_lock_take(&sv_qp(p.b.qp)->lock);
	MUST(!post(&p.a, add(&p, 0, 5)));
	abuf[8] = 77;
	w = rma(&p, IBV_WR_RDMA_WRITE, 8, 8);
	w.raddr = (uintptr_t)&bbuf[0];
	MUST(!post(&p.a, w));
	for (i = 0; i < 100; i++)
		cr_assert_eq(ibv_poll_cq(p.a.scq, 1, &wc), 0);
	cr_assert_eq(bbuf[0], 0);
	sv_lock_drop(&sv_qp(p.b.qp)->lock);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 0);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 8);
	cr_assert_eq(abuf[0], 0);
	cr_assert_eq(bbuf[0], 77);
	teardown(&p);
}

/* Nothing is polled at the target, ever: its engine does it. */
Test(atomic, idle_target)
{
	struct pair p;
	int i;

	setup(&p, true);
	for (i = 0; i < 100; i++) {
		MUST(!post(&p.a, add(&p, 1, 1)));
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
		cr_assert_eq(abuf[1], i);
		if (i % 10 == 0)
			usleep(12000); /* the poller's lease runs out */
	}
	teardown(&p);
}

/* ---- refused ---- */

struct bad {
	int mr_access;
	int qp_access;
	int64_t off;
	uint32_t key_flip;
	bool other_pd;
	enum ibv_wc_status want;
};

static const struct bad bad_cases[] = {
	{ .off = 4, .want = IBV_WC_REM_INV_REQ_ERR },
	{ .off = 1, .want = IBV_WC_REM_INV_REQ_ERR },
	{ .off = 4096, .want = IBV_WC_REM_ACCESS_ERR },
	{ .off = -8, .want = IBV_WC_REM_ACCESS_ERR },
	{ .key_flip = 1u << 30, .want = IBV_WC_REM_ACCESS_ERR },
	{ .other_pd = true, .want = IBV_WC_REM_ACCESS_ERR },
	{ .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		       IBV_ACCESS_REMOTE_READ,
	  .want = IBV_WC_REM_ACCESS_ERR },
	{ .qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	  .want = IBV_WC_REM_ACCESS_ERR },
};

static void expect_dead(struct side *s, enum ibv_event_type type)
{
	struct ibv_async_event event;

	MUST(!sv_get_async_event(s->ctx, &event));
	cr_assert_eq(event.event_type, type);
	cr_assert_eq(event.element.qp, s->qp);
	sv_ack_async_event(&event);
	cr_assert_eq(s->qp->state, IBV_QPS_ERR);
}

static void refused(const struct bad *c, bool direct, enum ibv_wr_opcode op)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct side_opts opts = { .access = c->qp_access };
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	struct ibv_wc wc;
	struct pair p;
	struct post w;

	open_pair(&p, direct, &opts);
	pair_up(&p.a, &p.b);
	pd = c->other_pd ? sv_alloc_pd(p.b.ctx) : p.b.pd;
	mr = sv_reg_mr(pd, bbuf, 4096, c->mr_access ? c->mr_access : all);
	MUST(mr);
	memset(bbuf, 0, sizeof(bbuf));
	abuf[1] = 42;
	w = add(&p, 1, 0);
	w.op = op;
	w.swap = 1;
	w.compare_add = op == IBV_WR_ATOMIC_FETCH_AND_ADD;
	w.raddr = (uintptr_t)bbuf + c->off;
	w.rkey = mr->rkey ^ c->key_flip;
	MUST(!post(&p.a, add(&p, 1025, 0)));
	MUST(!post(&p.a, w));
	MUST(!post(&p.a, add(&p, 1026, 0)));
	wc = wait_wc(p.a.scq);
	if (!c->qp_access) {
		/* What was asked before is answered. */
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, 1025);
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.wr_id, 1);
	}
	cr_assert_eq(wc.status, c->want, "status %d", wc.status);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_WR_FLUSH_ERR);
	expect_dead(&p.b, c->want == IBV_WC_REM_INV_REQ_ERR ?
				  IBV_EVENT_QP_REQ_ERR :
				  IBV_EVENT_QP_ACCESS_ERR);
	cr_assert_eq(abuf[1], 42);
	cr_assert_eq(bbuf[0], 0);
	cr_assert_eq(bbuf[512], 0);
	MUST(!sv_dereg_mr(mr));
	if (c->other_pd)
		MUST(!sv_dealloc_pd(pd));
	teardown(&p);
}

Test(atomic, without_the_right)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad_cases); i++) {
		refused(&bad_cases[i], true, IBV_WR_ATOMIC_FETCH_AND_ADD);
		refused(&bad_cases[i], false, IBV_WR_ATOMIC_CMP_AND_SWP);
	}
}

/* A queue pair that may not ask, or does not answer. */
static void no_depth(bool direct, enum ibv_wr_opcode op, bool out)
{
	struct ibv_wc wc;
	struct pair p;

	open_pair(&p, direct, NULL);
	if (out)
		p.a.rd_out = 0;
	else
		p.b.rd_in = 0;
	pair_up(&p.a, &p.b);
	bbuf[1] = 3;
	abuf[1] = 42;
	struct post w = rma(&p, op, 1, 8);

	w.compare_add = 1;
	MUST(!post(&p.a, w));
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.wr_id, 1);
	cr_assert_eq(wc.status, out ? IBV_WC_LOC_QP_OP_ERR :
				      IBV_WC_REM_INV_REQ_ERR,
		     "status %d", wc.status);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	if (!out)
		expect_dead(&p.b, IBV_EVENT_QP_REQ_ERR);
	cr_assert_eq(bbuf[1], 3);
	cr_assert_eq(abuf[1], 42);
	teardown(&p);
}

Test(atomic, depth_of_zero_refuses)
{
	int i;

	for (i = 0; i < 4; i++) {
		no_depth(i & 1, IBV_WR_ATOMIC_FETCH_AND_ADD, i & 2);
		no_depth(i & 1, IBV_WR_RDMA_READ, i & 2);
	}
}

Test(atomic, answer_needs_writable_memory)
{
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct pair p;
	struct post w;

	setup(&p, true);
	mr = sv_reg_mr(p.a.pd, abuf, 64, 0);
	MUST(mr);
	w = add(&p, 0, 1);
	w.mr = mr;
	bbuf[0] = 0;
	MUST(!post(&p.a, w));
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_LOC_PROT_ERR);
	cr_assert_eq(bbuf[0], 0);
	MUST(!sv_dereg_mr(mr));
	teardown(&p);
}

/* The answer has come; on TCP, that it has is seen by its being thrown away. */
static bool answered(struct side *s)
{
	struct sv_link *link = sv_qp(s->qp)->link;

	if (SIDE_IS_TCP)
		return sv_tcp(link)->rx_state == SV_TCP_RX_HDR &&
		       sv_tcp(link)->seg.op == SV_RDMAP_READ_RESP;
	return atomic_load(&sv_shm(link)->own->resp_tail);
}

/* Flushed, its buffer is the application's: an answer comes too late. */
Test(atomic, late_answer_is_dropped)
{
	struct ibv_wc wc;
	struct pair p;
	int i;

	open_pair(&p, false, NULL);
	MUST(!side_init(&p.a) && !side_init(&p.b));
	pair_links(&p.a, &p.b, getpid());
	MUST(!side_rtr(&p.a, p.b.qp->qp_num) && !side_rts(&p.a));
	memset(bbuf, 'x', 64);
	memset(abuf, 0, 64);
	MUST(!post(&p.a, rma(&p, IBV_WR_RDMA_READ, 0, 64)));
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 5));
	MUST(!side_error(&p.a));
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_WR_FLUSH_ERR);
	MUST(!side_rtr(&p.b, p.a.qp->qp_num));
	for (i = 0; i < 1000 && !answered(&p.a); i++)
		usleep(1000);
	cr_assert_lt(i, 1000);
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 20));
	for (i = 0; i < 8; i++)
		cr_assert_eq(abuf[i], 0);
	teardown(&p);
}

/* ---- everybody at once ---- */

enum { PEERS = 3, OPS = 3000 };

/* A peer process: adds one OPS times, and one more OPS times by swapping. */
static void peer_main(int sock)
{
	static uint64_t cell[8];
	struct side_msg mine = { 0 }, theirs;
	struct ibv_mr *mr;
	struct post w;
	struct side s;
	uint64_t seen = 0;
	int i;

	side_open(&s, NULL);
	mr = side_reg(&s, cell, sizeof(cell));
	join_remote(&s, sock, &mine, &theirs);
	for (i = 0; i < OPS; i++) {
		w = (struct post){ .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
				   .flags = IBV_SEND_SIGNALED,
				   .mr = mr,
				   .len = 8,
				   .raddr = theirs.addr,
				   .rkey = theirs.rkey,
				   .compare_add = 1 };
		MUST(!post(&s, w));
		MUST(!wait_wc(s.scq).status);
		MUST(!i || cell[0] > seen);
		seen = cell[0];
		w.op = IBV_WR_ATOMIC_CMP_AND_SWP;
		do {
			w.compare_add = cell[0];
			w.swap = cell[0] + 1;
			MUST(!post(&s, w));
			MUST(!wait_wc(s.scq).status);
		} while (cell[0] != w.compare_add);
	}
	MUST(!sv_dereg_mr(mr));
	side_close(&s);
	_exit(0);
}

/* Some poll, some leave it to the engine; the owner counts with them. */
Test(atomic, processes_count_together)
{
	static _Atomic(uint64_t) cell[8];
	struct side_msg mine, theirs;
	struct ibv_mr *mr[PEERS];
	struct side s[PEERS];
	pid_t pid[PEERS];
	int sock[PEERS][2], i, k, status;
	struct ibv_wc wc;

	unsetenv("SOFTVERBS_CMA");
	for (i = 0; i < PEERS; i++) {
		MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock[i]));
		MUST((pid[i] = fork()) >= 0);
		if (!pid[i]) {
			close(sock[i][0]);
			peer_main(sock[i][1]);
		}
		close(sock[i][1]);
	}
	for (i = 0; i < PEERS; i++) {
		side_open(&s[i], NULL);
		mr[i] = side_reg(&s[i], cell, sizeof(cell));
		mine = (struct side_msg){ .addr = (uintptr_t)&cell[0],
					  .rkey = mr[i]->rkey };
		join_remote(&s[i], sock[i][0], &mine, &theirs);
	}
	for (k = 0; k < OPS; k++) {
		atomic_fetch_add(&cell[0], 1);
		for (i = 0; i < PEERS - 1; i++)
			cr_assert_eq(ibv_poll_cq(s[i].rcq, 1, &wc), 0);
	}
	for (i = 0; i < PEERS; i++) {
		MUST(waitpid(pid[i], &status, 0) == pid[i]);
		cr_assert_eq(status, 0);
	}
	cr_assert_eq(atomic_load(&cell[0]), OPS + 2ull * OPS * PEERS);
	for (i = 0; i < PEERS; i++) {
		MUST(!sv_dereg_mr(mr[i]));
		side_close(&s[i]);
	}
}
