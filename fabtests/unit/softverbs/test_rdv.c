/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs that ibv_modify_qp alone connects: whoever comes first, peers
 * that never come or are not the right ones, use and reuse, self, death.
 */
#include "side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <criterion/criterion.h>

TestSuite(rdv, .timeout = 60);

enum {
	BUF = 1 << 16,
	LONG_MS = 3000, /* for a send without a peer to fail at the least */
	MANY = 600, /* more than two ports' worth */
	CROWD = 400, /* each gives all of them 10 ms more, above LONG_MS */
};

/* Whom a queue pair is told to connect to. */
struct whom {
	uint32_t qpn;
	uint32_t psn; /* it sends from; and what it expects to be sent from */
	const char *addr;
	uint8_t timeout; /* 0: 10 */
};

static char abuf[BUF], bbuf[BUF];

static int gid_index(const char *addr, union ibv_gid *gid)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct ibv_gid_entry entry;
	struct ibv_context *ctx;
	int index;

	if (inet_pton(AF_INET, addr, &v4.sin_addr) == 1)
		index = sv_dev_gid_index((struct sockaddr *)&v4);
	else if (inet_pton(AF_INET6, addr, &v6.sin6_addr) == 1)
		index = sv_dev_gid_index((struct sockaddr *)&v6);
	else
		abort();
	if (index < 0)
		return -1;
	ctx = sv_ctx_shared(sv_dev_by_name("softverbs0"));
	MUST(ctx && !sv_query_gid_ex(ctx, 1, index, &entry, 0));
	*gid = entry.gid;
	return index;
}

static int to_rtr(struct side *s, struct whom to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to.qpn,
		.rq_psn = to.psn,
		.max_dest_rd_atomic = s->rd_in,
		.min_rnr_timer = s->rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	int index = gid_index(to.addr ? to.addr : "127.0.0.1",
			      &attr.ah_attr.grh.dgid);

	MUST(index >= 0);
	attr.ah_attr.grh.sgid_index = index;
	return sv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct side *s, struct whom to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = to.timeout ? to.timeout : 10,
		.retry_cnt = 1,
		.rnr_retry = 7,
		.sq_psn = to.psn,
		.max_rd_atomic = s->rd_out,
	};

	return sv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC);
}

static void up(struct side *s, struct whom to)
{
	MUST(!side_init(s) && !to_rtr(s, to) && !to_rts(s, to));
}

static void reset(struct side *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	MUST(!sv_modify_qp(s->qp, &attr, IBV_QP_STATE));
}

static enum ibv_qp_state state_of(struct side *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(!sv_query_qp(s->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static struct whom whom(const struct side *s)
{
	return (struct whom){ .qpn = s->qp->qp_num, .psn = 0x123456 };
}

static void send_one(struct side *s, struct ibv_mr *mr, uint32_t len)
{
	MUST(!post(s, (struct post){ .id = 1,
				     .op = IBV_WR_SEND,
				     .flags = IBV_SEND_SIGNALED,
				     .mr = mr,
				     .len = len }));
}

static enum ibv_wc_status sent(struct side *s)
{
	return wait_wc(s->scq).status;
}

/* A message from one to the other, whoever they are. */
static void talk(struct side *from, struct side *to, unsigned int seed)
{
	struct ibv_mr *mf = side_reg(from, abuf, BUF);
	struct ibv_mr *mt = side_reg(to, bbuf, BUF);
	struct ibv_wc wc;

	fill(abuf, 1000, seed);
	MUST(!post_recv(to, 7, mt, 0, BUF));
	send_one(from, mf, 1000);
	cr_assert_eq(sent(from), IBV_WC_SUCCESS);
	wc = wait_wc(to->rcq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.byte_len, 1000);
	cr_assert(filled(bbuf, 1000, seed));
	MUST(!sv_dereg_mr(mf) && !sv_dereg_mr(mt));
}

static void nap_ms(int ms)
{
	poll(NULL, 0, ms);
}

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

/* ---- nobody comes ---- */

Test(rdv, without_sends_it_waits)
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

Test(rdv, nobody_there)
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
Test(rdv, time_for_a_crowd)
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

Test(rdv, wrong_psn)
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
Test(rdv, wrong_psn_said_late)
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

Test(rdv, wrong_peer)
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
Test(rdv, no_such_number)
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
Test(rdv, no_port_to_be_had)
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

Test(rdv, two_processes_and_death)
{
	struct ibv_mr *mr;
	struct whom to;
	struct side a;
	pid_t pid;
	int sock[2];

	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		alarm(30);
		child_main(sock[1]);
	}
	side_open(&a, NULL);
	mr = side_reg(&a, abuf, BUF);
	to = whom(&a);
	swap(sock[0], &to.qpn, &to.qpn, sizeof(to.qpn));
	MUST(!side_init(&a));
	MUST(!post_recv(&a, 1, mr, 8192, 8192));
	MUST(!to_rtr(&a, to) && !to_rts(&a, to));
	fill(abuf, 5000, 12);
	send_one(&a, mr, 5000);
	cr_assert_eq(sent(&a), IBV_WC_SUCCESS);
	cr_assert_eq(wait_wc(a.rcq).status, IBV_WC_SUCCESS);
	cr_assert(filled(abuf + 8192, 5000, 12));
	MUST(!kill(pid, SIGKILL));
	MUST(waitpid(pid, NULL, 0) == pid);
	send_one(&a, mr, 8);
	/* Or it was flushed, if the death was noticed first. */
	cr_assert_neq(sent(&a), IBV_WC_SUCCESS);
	MUST(!sv_dereg_mr(mr));
	side_close(&a);
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
