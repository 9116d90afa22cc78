/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs that ibv_modify_qp alone connects: whoever comes first, use and reuse,
 * self, death. Peers that do not come are in test_rdv_lost.c.
 */
#include "rdv.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

TestSuite(rdv, .timeout = 60);

enum {
	MANY = 600, /* more than two ports' worth */
};

/* ---- finding each other ---- */

Test(rdv, both_ways_and_rdma)
{
	struct ibv_mr *ma, *mb;
	struct side a, b;

	side_open(&a, NULL);
	side_open(&b, NULL);
	up(&a, whom(&b));
	up(&b, whom(&a));
	talk(&a, &b, 1);
	talk(&b, &a, 2);
	ma = side_reg(&a, abuf, BUF);
	mb = side_reg(&b, bbuf, BUF);
	fill(abuf, BUF, 3);
	MUST(!post(&a, (struct post){ .op = IBV_WR_RDMA_WRITE,
				      .flags = IBV_SEND_SIGNALED,
				      .mr = ma,
				      .len = BUF,
				      .raddr = (uintptr_t)bbuf,
				      .rkey = mb->rkey }));
	cr_assert_eq(sent(&a), IBV_WC_SUCCESS);
	cr_assert(filled(bbuf, BUF, 3));
	MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
	side_close(&a);
	side_close(&b);
}

/* What is posted before the peer is there waits, in order. */
Test(rdv, who_comes_first_waits)
{
	struct side s[2];
	struct ibv_mr *ma, *mb;
	int first, i;

	for (first = 0; first < 2; first++) {
		struct side *a = &s[first], *b = &s[!first];

		side_open(&s[0], NULL);
		side_open(&s[1], NULL);
		ma = side_reg(a, abuf, BUF);
		mb = side_reg(b, bbuf, BUF);
		up(a, whom(b));
		fill(abuf, BUF, 9);
		for (i = 0; i < 8; i++)
			MUST(!post(a, (struct post){
					      .id = i,
					      .op = IBV_WR_SEND,
					      .flags = IBV_SEND_SIGNALED,
					      .mr = ma,
					      .off = i * 100,
					      .len = 100 }));
		nap_ms(200);
		MUST(!side_init(b));
		for (i = 0; i < 8; i++)
			MUST(!post_recv(b, i, mb, i * 100, 100));
		MUST(!to_rtr(b, whom(a)) && !to_rts(b, whom(a)));
		for (i = 0; i < 8; i++) {
			struct ibv_wc wc = wait_wc(b->rcq);

			cr_assert_eq(wc.status, IBV_WC_SUCCESS);
			cr_assert_eq(wc.wr_id, i);
			cr_assert_eq(sent(a), IBV_WC_SUCCESS);
		}
		cr_assert(filled(bbuf, 800, 9));
		MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
		side_close(&s[0]);
		side_close(&s[1]);
	}
}

/* One that only receives never leaves RTR. */
Test(rdv, ready_to_receive_is_enough)
{
	struct side s[2];
	int from;

	for (from = 0; from < 2; from++) {
		struct side *a = &s[from], *b = &s[!from];

		side_open(&s[0], NULL);
		side_open(&s[1], NULL);
		MUST(!side_init(b) && !to_rtr(b, whom(a)));
		nap_ms(20);
		up(a, whom(b));
		talk(a, b, 4);
		cr_assert_eq(state_of(b), IBV_QPS_RTR);
		side_close(&s[0]);
		side_close(&s[1]);
	}
}

Test(rdv, itself)
{
	struct side_opts opts = { .one_cq = false };
	uint64_t word = 40, old = 0;
	struct ibv_mr *mr, *mo;
	struct side a;

	side_open(&a, &opts);
	up(&a, whom(&a));
	talk(&a, &a, 5);
	mr = side_reg(&a, &word, sizeof(word));
	mo = side_reg(&a, &old, sizeof(old));
	MUST(!post(&a, (struct post){ .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
				      .flags = IBV_SEND_SIGNALED,
				      .mr = mo,
				      .len = 8,
				      .raddr = (uintptr_t)&word,
				      .rkey = mr->rkey,
				      .compare_add = 2 }));
	cr_assert_eq(sent(&a), IBV_WC_SUCCESS);
	cr_assert_eq(word, 42);
	cr_assert_eq(old, 40);
	MUST(!post(&a, (struct post){ .op = IBV_WR_RDMA_READ,
				      .flags = IBV_SEND_SIGNALED,
				      .mr = mo,
				      .len = 8,
				      .raddr = (uintptr_t)&word,
				      .rkey = mr->rkey }));
	cr_assert_eq(sent(&a), IBV_WC_SUCCESS);
	cr_assert_eq(old, 42);
	MUST(!sv_dereg_mr(mr) && !sv_dereg_mr(mo));
	side_close(&a);
}

Test(rdv, ipv6)
{
	struct side a, b;
	union ibv_gid gid;
	struct whom to;

	if (gid_index("::1", &gid) < 0)
		cr_skip_test("no IPv6 here");
	side_open(&a, NULL);
	side_open(&b, NULL);
	to = whom(&b);
	to.addr = "::1";
	up(&a, to);
	to = whom(&a);
	to.addr = "::1";
	up(&b, to);
	talk(&a, &b, 6);
	side_close(&a);
	side_close(&b);
}

/* More queue pairs than one port has numbers for. */
Test(rdv, many)
{
	static struct ibv_qp *qp[MANY];
	struct ibv_qp_init_attr init;
	struct side a, b;
	int i;

	side_open(&a, NULL);
	init = (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.send_cq = a.scq,
		.recv_cq = a.rcq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
	};
	for (i = 0; i < MANY; i++) {
		MUST((qp[i] = sv_create_qp(a.pd, &init)));
		cr_assert(sv_qpn_sock(qp[i]->qp_num) >= 0);
		cr_assert_neq(qp[i]->qp_num, 0xffffff);
	}
	side_open(&b, NULL);
	cr_assert_neq(sv_qpn_port(a.qp->qp_num), sv_qpn_port(b.qp->qp_num));
	up(&a, whom(&b));
	up(&b, whom(&a));
	talk(&a, &b, 7);
	for (i = 0; i < MANY; i++)
		MUST(!sv_destroy_qp(qp[i]));
	side_close(&a);
	side_close(&b);
}

/* ---- changing one's mind ---- */

Test(rdv, reset_while_waiting)
{
	struct side a, b, c;

	side_open(&a, NULL);
	side_open(&b, NULL);
	side_open(&c, NULL);
	up(&a, whom(&b));
	nap_ms(5);
	reset(&a);
	up(&a, whom(&c));
	up(&c, whom(&a));
	talk(&a, &c, 10);
	MUST(!side_error(&b));
	side_close(&a);
	side_close(&b);
	side_close(&c);
}

/* From one peer to the next, and back. */
Test(rdv, another_peer)
{
	struct side a, b, c;
	int i;

	side_open(&a, NULL);
	side_open(&b, NULL);
	side_open(&c, NULL);
	for (i = 0; i < 20; i++) {
		struct side *peer = i % 2 ? &b : &c;

		up(&a, whom(peer));
		up(peer, whom(&a));
		talk(i % 3 ? &a : peer, i % 3 ? peer : &a, i);
		MUST(!side_error(&a));
		reset(&a);
		reset(peer);
	}
	side_close(&a);
	side_close(&b);
	side_close(&c);
}

/* At whatever point they are torn down, nothing hangs and nothing is left. */
Test(rdv, torn_down_at_any_time)
{
	struct side a, b;
	int i;

	for (i = 0; i < 100; i++) {
		side_open(&a, NULL);
		side_open(&b, NULL);
		up(&a, whom(&b));
		up(&b, whom(&a));
		usleep(i * 20);
		side_close(i % 2 ? &a : &b);
		side_close(i % 2 ? &b : &a);
	}
}

Test(rdv, peer_goes_away)
{
	struct ibv_mr *mr;
	struct side a, b;

	side_open(&a, NULL);
	side_open(&b, NULL);
	up(&a, whom(&b));
	up(&b, whom(&a));
	talk(&a, &b, 11);
	side_close(&b);
	mr = side_reg(&a, abuf, BUF);
	send_one(&a, mr, 8);
	cr_assert_eq(sent(&a), IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(state_of(&a), IBV_QPS_ERR);
	MUST(!sv_dereg_mr(mr));
	side_close(&a);
}

/* ---- two processes ---- */

static void swap(int sock, const void *mine, void *theirs, size_t len)
{
	MUST(write(sock, mine, len) == (ssize_t)len);
	MUST(read(sock, theirs, len) == (ssize_t)len);
}

static void child_main(int sock)
{
	struct whom to = { .qpn = 0 };
	struct ibv_mr *mr;
	struct side s;

	side_open(&s, NULL);
	mr = side_reg(&s, bbuf, BUF);
	to = whom(&s);
	swap(sock, &to.qpn, &to.qpn, sizeof(to.qpn));
	MUST(!side_init(&s));
	MUST(!post_recv(&s, 1, mr, 0, BUF));
	MUST(!to_rtr(&s, to) && !to_rts(&s, to));
	MUST(wait_wc(s.rcq).status == IBV_WC_SUCCESS);
	MUST(filled(bbuf, 5000, 12));
	send_one(&s, mr, 5000);
	MUST(sent(&s) == IBV_WC_SUCCESS);
	pause(); /* until we are killed */
}

/* The peer in a process of its own, with which we have talked. */
struct other {
	struct side a;
	struct ibv_mr *mr;
	pid_t pid;
};

static void other_start(struct other *o)
{
	struct whom to;
	int sock[2];

	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	o->pid = fork();
	MUST(o->pid >= 0);
	if (!o->pid) {
		alarm(30);
		child_main(sock[1]);
	}
	side_open(&o->a, NULL);
	o->mr = side_reg(&o->a, abuf, BUF);
	to = whom(&o->a);
	swap(sock[0], &to.qpn, &to.qpn, sizeof(to.qpn));
	MUST(!side_init(&o->a));
	MUST(!post_recv(&o->a, 1, o->mr, 8192, 8192));
	MUST(!to_rtr(&o->a, to) && !to_rts(&o->a, to));
	fill(abuf, 5000, 12);
	send_one(&o->a, o->mr, 5000);
	cr_assert_eq(sent(&o->a), IBV_WC_SUCCESS);
	cr_assert_eq(wait_wc(o->a.rcq).status, IBV_WC_SUCCESS);
	cr_assert(filled(abuf + 8192, 5000, 12));
}

static void other_kill(struct other *o)
{
	MUST(!kill(o->pid, SIGKILL));
	MUST(waitpid(o->pid, NULL, 0) == o->pid);
}

static void other_close(struct other *o)
{
	MUST(!sv_dereg_mr(o->mr));
	side_close(&o->a);
}

Test(rdv, two_processes_and_death)
{
	struct other o;

	other_start(&o);
	other_kill(&o);
	send_one(&o.a, o.mr, 8);
	cr_assert_eq(sent(&o.a), IBV_WC_RETRY_EXC_ERR);
	other_close(&o);
}

/* Nothing waited to be sent, as with reads that are done as they are posted. */
static void death_while_idle(struct other *o)
{
	struct ibv_async_event event;

	other_start(o);
	MUST(!post_recv(&o->a, 2, o->mr, 8192, 8192));
	other_kill(o);
	cr_assert_eq(sv_get_async_event(o->a.ctx, &event), 0);
	cr_assert_eq(event.event_type, IBV_EVENT_QP_FATAL);
	sv_ack_async_event(&event);
	cr_assert_eq(wait_wc(o->a.rcq).status, IBV_WC_WR_FLUSH_ERR);
}

/* As soon as something does, it says what has happened. */
Test(rdv, death_while_idle)
{
	struct other o;

	death_while_idle(&o);
	send_one(&o.a, o.mr, 8);
	send_one(&o.a, o.mr, 8);
	cr_assert_eq(sent(&o.a), IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(sent(&o.a), IBV_WC_WR_FLUSH_ERR);
	other_close(&o);
}

/* Not to who has ended it himself since. */
Test(rdv, death_and_own_end)
{
	struct other o;

	death_while_idle(&o);
	MUST(!side_error(&o.a));
	send_one(&o.a, o.mr, 8);
	cr_assert_eq(sent(&o.a), IBV_WC_WR_FLUSH_ERR);
	other_close(&o);
}

/* A child may not take its parent's queue pairs along, and has its own. */
Test(rdv, fork_while_waiting)
{
	struct side a, b;
	pid_t pid;
	int status;

	side_open(&a, NULL);
	side_open(&b, NULL);
	up(&a, whom(&b));
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		struct side c, d;

		alarm(30);
		side_open(&c, NULL);
		side_open(&d, NULL);
		up(&c, whom(&d));
		up(&d, whom(&c));
		talk(&c, &d, 13);
		side_close(&c);
		side_close(&d);
		_exit(0);
	}
	up(&b, whom(&a));
	talk(&a, &b, 14);
	MUST(waitpid(pid, &status, 0) == pid);
	cr_assert_eq(status, 0);
	side_close(&a);
	side_close(&b);
}
