/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs that ibv_modify_qp alone connects, and whose peers never come or are
 * not the right ones.
 */
#include "rdv.h"

#include <errno.h>
#include <sys/resource.h>

TestSuite(rdv_lost, .timeout = 60);

enum {
	LONG_MS = 3000, /* for a send without a peer to fail at the least */
	CROWD = 400, /* each gives all of them 10 ms more, above LONG_MS */
};

Test(rdv_lost, without_sends_it_waits)
{
	struct side a, b;

	side_open(&a, NULL);
	side_open(&b, NULL);
	up(&a, whom(&b));
	nap_ms(LONG_MS);
	cr_assert_eq(state_of(&a), IBV_QPS_RTS);
	up(&b, whom(&a));
	talk(&a, &b, 8);
	side_close(&a);
	side_close(&b);
}

/* The peer is there, but was told something else than this one. */
static void expect_refused(struct whom a_to, struct whom b_to, struct side *a,
			   struct side *b)
{
	struct ibv_mr *mr = side_reg(a, abuf, BUF);

	up(b, b_to);
	up(a, a_to);
	send_one(a, mr, 8);
	send_one(a, mr, 8);
	cr_assert_eq(sent(a), IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(sent(a), IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(state_of(a), IBV_QPS_ERR);
	cr_assert_eq(state_of(b), IBV_QPS_RTS);
	cr_assert_null(sv_qp(b->qp)->link);
	MUST(!sv_dereg_mr(mr));
}

Test(rdv_lost, nobody_there)
{
	uint64_t start_ns;
	struct ibv_mr *mr;
	struct side a, b;

	side_open(&a, NULL);
	side_open(&b, NULL);
	mr = side_reg(&a, abuf, BUF);
	start_ns = sv_now_ns();
	up(&a, whom(&b));
	send_one(&a, mr, 8);
	cr_assert_eq(sent(&a), IBV_WC_RETRY_EXC_ERR);
	cr_assert_gt(sv_now_ns() - start_ns, 1000000000ull);
	cr_assert_eq(state_of(&a), IBV_QPS_ERR);
	MUST(!sv_dereg_mr(mr));
	side_close(&a);
	side_close(&b);
}

/* Finding a peer takes as long as others are about to find theirs. */
Test(rdv_lost, time_for_a_crowd)
{
	static struct ibv_qp *qp[CROWD];
	struct whom nobody = { .qpn = 0x000101, .psn = 1 };
	struct ibv_qp_init_attr init;
	struct side a, other;
	struct ibv_mr *mr;
	uint64_t start_ns;
	int i;

	side_open(&a, NULL);
	mr = side_reg(&a, abuf, BUF);
	other = a;
	init = (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.send_cq = a.scq,
		.recv_cq = a.rcq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
	};
	for (i = 0; i < CROWD; i++) {
		MUST((qp[i] = sv_create_qp(a.pd, &init)));
		other.qp = qp[i];
		up(&other, nobody);
	}
	start_ns = sv_now_ns();
	up(&a, nobody);
	send_one(&a, mr, 8);
	cr_assert_eq(sent(&a), IBV_WC_RETRY_EXC_ERR);
	cr_assert_gt(sv_now_ns() - start_ns, LONG_MS * 1000000ull);
	for (i = 0; i < CROWD; i++)
		MUST(!sv_destroy_qp(qp[i]));
	MUST(!sv_dereg_mr(mr));
	side_close(&a);
}

Test(rdv_lost, wrong_psn)
{
	struct whom a_to, b_to;
	struct side a, b;

	side_open(&a, NULL);
	side_open(&b, NULL);
	a_to = whom(&b);
	b_to = whom(&a);
	b_to.psn ^= 1;
	expect_refused(a_to, b_to, &a, &b);
	side_close(&a);
	side_close(&b);
}

/* What one sends from may be said after the two have met. */
Test(rdv_lost, wrong_psn_said_late)
{
	struct whom a_to;
	struct ibv_mr *mr;
	struct side a, b;

	side_open(&a, NULL);
	side_open(&b, NULL);
	a_to = whom(&b);
	MUST(!side_init(&a) && !to_rtr(&a, a_to));
	up(&b, whom(&a));
	talk(&b, &a, 15);
	a_to.psn ^= 1;
	MUST(!to_rts(&a, a_to));
	mr = side_reg(&a, abuf, BUF);
	send_one(&a, mr, 8);
	cr_assert_eq(sent(&a), IBV_WC_RETRY_EXC_ERR);
	MUST(!sv_dereg_mr(mr));
	side_close(&a);
	side_close(&b);
}

Test(rdv_lost, wrong_peer)
{
	struct side a, b, c;

	side_open(&a, NULL);
	side_open(&b, NULL);
	side_open(&c, NULL);
	expect_refused(whom(&b), whom(&c), &a, &b);
	side_close(&a);
	side_close(&b);
	side_close(&c);
}

/* A number from a process that is gone, or never was. */
Test(rdv_lost, no_such_number)
{
	struct whom nobody = { .qpn = 0x000101, .psn = 1 };
	struct ibv_mr *mr;
	struct side a;

	side_open(&a, NULL);
	mr = side_reg(&a, abuf, BUF);
	up(&a, nobody);
	send_one(&a, mr, 8);
	cr_assert_eq(sent(&a), IBV_WC_RETRY_EXC_ERR);
	MUST(!sv_dereg_mr(mr));
	side_close(&a);
}

/* Without a port of its own it cannot be called, but it can call. */
Test(rdv_lost, no_port_to_be_had)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_device **list = sv_get_device_list(NULL);
	struct rlimit none = { .rlim_cur = 0 }, old;
	struct ibv_context *ctx;
	struct side a, b;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	MUST(list && (ctx = sv_open_device(list[0])));
	sv_free_device_list(list);
	MUST((pd = sv_alloc_pd(ctx)) && (cq = sv_create_cq(ctx, 8, 0, 0, 0)));
	init.send_cq = init.recv_cq = cq;
	init.cap.max_send_wr = init.cap.max_recv_wr = 4;
	MUST(!getrlimit(RLIMIT_NOFILE, &old));
	none.rlim_max = old.rlim_max;
	MUST(!setrlimit(RLIMIT_NOFILE, &none));
	qp = sv_create_qp(pd, &init);
	MUST(!setrlimit(RLIMIT_NOFILE, &old));
	MUST(qp);
	cr_assert_eq(sv_qpn_sock(qp->qp_num), -1);

	side_open(&b, NULL);
	cr_assert_geq(sv_qpn_sock(b.qp->qp_num), 0);
	a = (struct side){ .ctx = ctx, .pd = pd, .scq = cq, .rcq = cq, .qp = qp };
	a.access = IBV_ACCESS_LOCAL_WRITE;
	a.rd_in = a.rd_out = 1;
	up(&b, whom(&a));
	up(&a, whom(&b));
	talk(&a, &b, 16);
	side_close(&a);
	side_close(&b);
}
