/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory windows: both types, by work request and by call; rights, bounds, who may
 * use them; the ways in which they end.
 */
#include "side.h"

#include "sv_key.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(mw, .timeout = 60);

enum {
	LEN = 1 << 16,
	LOCAL = IBV_ACCESS_LOCAL_WRITE,
	W = IBV_ACCESS_REMOTE_WRITE,
	R = IBV_ACCESS_REMOTE_READ,
	A = IBV_ACCESS_REMOTE_ATOMIC,
	OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
	      IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW,
};

/* b owns the memory and the windows, a uses them. */
struct pair {
	struct side a, b;
	struct ibv_mr *ma, *mb;
};

static char abuf[LEN], bbuf[LEN];

static void setup_mr(struct pair *p, bool direct, int access)
{
	const struct side_opts opts = { .send_ops = 0 };
	const struct side_opts ex = { .send_ops = OPS };

	side_direct(direct);
	side_open(&p->a, &opts);
	side_open(&p->b, &ex);
	p->ma = side_reg(&p->a, abuf, sizeof(abuf));
	MUST((p->mb = sv_reg_mr(p->b.pd, bbuf, sizeof(bbuf), access)));
	memset(bbuf, 0, sizeof(bbuf));
	pair_up(&p->a, &p->b);
}

static void setup(struct pair *p, bool direct)
{
	setup_mr(p, direct, LOCAL | IBV_ACCESS_MW_BIND);
}

static void teardown(struct pair *p)
{
	MUST(!sv_dereg_mr(p->ma) && !sv_dereg_mr(p->mb));
	side_close(&p->a);
	side_close(&p->b);
}

/* The next send completion of s, while the other side is polled as well. */
static struct ibv_wc settle(struct pair *p, struct side *s)
{
	struct side *other = s == &p->a ? &p->b : &p->a;
	uint64_t until = sv_now_ns() + SIDE_WAIT_MS * 1000000ull;
	struct ibv_wc wc;

	while (!wait_wc_ms(s->scq, &wc, 0)) {
		MUST(sv_now_ns() < until);
		/* Progress, no completion of ours: those are on scq. */
		ibv_poll_cq(other->scq, 0, &wc);
		sched_yield();
	}
	return wc;
}

static enum ibv_wc_status rma(struct pair *p, enum ibv_wr_opcode op,
			      uint32_t rkey, uint64_t raddr, uint32_t len)
{
	MUST(!post(&p->a, (struct post){ .op = op,
					 .flags = IBV_SEND_SIGNALED,
					 .mr = p->ma,
					 .len = len,
					 .raddr = raddr,
					 .rkey = rkey }));
	return settle(p, &p->a).status;
}

static enum ibv_wc_status write_to(struct pair *p, uint32_t rkey, size_t off,
				   uint32_t len)
{
	return rma(p, IBV_WR_RDMA_WRITE, rkey, (uintptr_t)bbuf + off, len);
}

static struct ibv_mw_bind_info info(struct ibv_mr *mr, size_t off, size_t len,
				    int access)
{
	return (struct ibv_mw_bind_info){ .mr = mr,
					  .addr = (uintptr_t)bbuf + off,
					  .length = len,
					  .mw_access_flags = access };
}

static enum ibv_wc_status bind1(struct pair *p, struct ibv_mw *mw,
				struct ibv_mw_bind_info bind_info)
{
	struct ibv_mw_bind bind = { .wr_id = 5,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = bind_info };
	struct ibv_wc wc;

	MUST(!ibv_bind_mw(p->b.qp, mw, &bind));
	wc = settle(p, &p->b);
	if (wc.status == IBV_WC_SUCCESS)
		cr_assert_eq(wc.opcode, IBV_WC_BIND_MW);
	cr_assert_eq(wc.wr_id, 5);
	return wc.status;
}

static enum ibv_wc_status bind2(struct pair *p, struct side *s,
				struct ibv_mw *mw, uint32_t rkey,
				struct ibv_mw_bind_info bind_info)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW,
				  .send_flags = IBV_SEND_SIGNALED,
				  .bind_mw = { .mw = mw,
					       .rkey = rkey,
					       .bind_info = bind_info } };
	struct ibv_send_wr *bad;

	MUST(!ibv_post_send(s->qp, &wr, &bad));
	return settle(p, s).status;
}

static enum ibv_wc_status local_inv(struct pair *p, struct side *s,
				    uint32_t rkey)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = IBV_SEND_SIGNALED,
				  .invalidate_rkey = rkey };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	MUST(!ibv_post_send(s->qp, &wr, &bad));
	wc = settle(p, s);
	if (wc.status == IBV_WC_SUCCESS)
		cr_assert_eq(wc.opcode, IBV_WC_LOCAL_INV);
	return wc.status;
}

/* ---- what a window opens ---- */

static void type_1(bool direct)
{
	struct ibv_mw *mw;
	uint32_t first;
	struct pair p;

	setup(&p, direct);
	fill(abuf, 100, 6);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1)));
	first = mw->rkey;
	cr_assert_eq(bind1(&p, mw, info(p.mb, 1000, 100, W)), IBV_WC_SUCCESS);
	cr_assert_neq(mw->rkey, first);
	cr_assert_eq(mw->rkey >> 8, first >> 8);
	cr_assert_eq(write_to(&p, mw->rkey, 1000, 100), IBV_WC_SUCCESS);
	cr_assert(filled(bbuf + 1000, 100, 6));
	/* Anew: the old key is none, and the new place is another one. */
	first = mw->rkey;
	cr_assert_eq(bind1(&p, mw, info(p.mb, 2000, 100, W)), IBV_WC_SUCCESS);
	cr_assert_neq(mw->rkey, first);
	cr_assert_eq(write_to(&p, mw->rkey, 2000, 100), IBV_WC_SUCCESS);
	cr_assert(filled(bbuf + 2000, 100, 6));
	cr_assert_eq(write_to(&p, first, 1000, 1), IBV_WC_REM_ACCESS_ERR);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

Test(mw, type_1) { type_1(true); }
Test(mw, type_1_ring) { type_1(false); }

static void type_2(bool direct)
{
	struct ibv_mw *mw;
	struct pair p;
	uint32_t key;

	setup(&p, direct);
	fill(abuf, 8, 6);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	key = (mw->rkey & ~0xffu) | 0xff;
	cr_assert_eq(bind2(&p, &p.b, mw, key, info(p.mb, 64, 128, W | R | A)),
		     IBV_WC_SUCCESS);
	cr_assert_eq(write_to(&p, key, 64, 8), IBV_WC_SUCCESS);
	cr_assert(filled(bbuf + 64, 8, 6));
	cr_assert_eq(rma(&p, IBV_WR_RDMA_READ, key, (uintptr_t)bbuf + 64, 128),
		     IBV_WC_SUCCESS);
	cr_assert_eq(rma(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, key,
			 (uintptr_t)bbuf + 64, 8),
		     IBV_WC_SUCCESS);
	/* Taken back, given again with the next key. */
	cr_assert_eq(local_inv(&p, &p.b, key), IBV_WC_SUCCESS);
	key = ibv_inc_rkey(key);
	cr_assert_eq(bind2(&p, &p.b, mw, key, info(p.mb, 0, 16, W)),
		     IBV_WC_SUCCESS);
	cr_assert_eq(write_to(&p, key, 8, 8), IBV_WC_SUCCESS);
	cr_assert_eq(local_inv(&p, &p.b, key), IBV_WC_SUCCESS);
	cr_assert_eq(write_to(&p, key, 8, 8), IBV_WC_REM_ACCESS_ERR);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

Test(mw, type_2) { type_2(true); }
Test(mw, type_2_ring) { type_2(false); }

/* Offsets in a zero-based window count from its beginning. */
Test(mw, zero_based)
{
	struct ibv_mw *mw;
	struct pair p;

	setup(&p, true);
	fill(abuf, 50, 2);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	cr_assert_eq(bind2(&p, &p.b, mw, ibv_inc_rkey(mw->rkey),
			   info(p.mb, 300, 50, W | IBV_ACCESS_ZERO_BASED)),
		     IBV_WC_SUCCESS);
	cr_assert_eq(rma(&p, IBV_WR_RDMA_WRITE, ibv_inc_rkey(mw->rkey), 0, 50),
		     IBV_WC_SUCCESS);
	cr_assert(filled(bbuf + 300, 50, 2));
	cr_assert_eq(rma(&p, IBV_WR_RDMA_WRITE, ibv_inc_rkey(mw->rkey), 1, 50),
		     IBV_WC_REM_ACCESS_ERR);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

/* Onto a region that is not addressed as it lies. */
Test(mw, onto_iova)
{
	struct ibv_mw_bind_info bind;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	struct pair p;

	setup(&p, true);
	fill(abuf, 50, 2);
	MUST((mr = sv_reg_mr_iova(p.b.pd, bbuf, LEN,
				  0x70000 + (uintptr_t)bbuf % 4096,
				  LOCAL | IBV_ACCESS_MW_BIND)));
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	bind = info(mr, 0, 50, W);
	bind.addr = 0x70000 + (uintptr_t)bbuf % 4096 + 500;
	cr_assert_eq(bind2(&p, &p.b, mw, mw->rkey, bind), IBV_WC_SUCCESS);
	cr_assert_eq(rma(&p, IBV_WR_RDMA_WRITE, mw->rkey, bind.addr, 50),
		     IBV_WC_SUCCESS);
	cr_assert(filled(bbuf + 500, 50, 2));
	MUST(!ibv_dealloc_mw(mw) && !sv_dereg_mr(mr));
	teardown(&p);
}

/* ---- what it does not ---- */

struct stranger {
	int access; /* of the window */
	enum ibv_wr_opcode op;
	long off; /* the window is 100 .. 200 */
	uint32_t len;
	bool ok;
};

static void refusals(bool direct, enum ibv_mw_type type)
{
	static const struct stranger cases[] = {
		{ W, IBV_WR_RDMA_WRITE, 100, 100, true },
		{ W, IBV_WR_RDMA_WRITE, 199, 1, true },
		{ W, IBV_WR_RDMA_WRITE, 200, 1, false },
		{ W, IBV_WR_RDMA_WRITE, 99, 1, false },
		{ W, IBV_WR_RDMA_WRITE, 100, 101, false },
		{ R, IBV_WR_RDMA_WRITE, 100, 1, false },
		{ 0, IBV_WR_RDMA_WRITE, 100, 1, false },
		{ LOCAL, IBV_WR_RDMA_WRITE, 100, 1, false },
		{ W, IBV_WR_RDMA_READ, 100, 1, false },
		{ R, IBV_WR_RDMA_READ, 100, 1, true },
		{ R | W, IBV_WR_ATOMIC_FETCH_AND_ADD, 104, 8, false },
		{ A, IBV_WR_ATOMIC_FETCH_AND_ADD, 104, 8, true },
		{ A, IBV_WR_ATOMIC_FETCH_AND_ADD, 200, 8, false },
	};
	struct ibv_mw *mw;
	uint32_t key;
	struct pair p;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		setup(&p, direct);
		MUST((mw = ibv_alloc_mw(p.b.pd, type)));
		key = ibv_inc_rkey(mw->rkey);
		if (type == IBV_MW_TYPE_1)
			cr_assert_eq(bind1(&p, mw, info(p.mb, 100, 100,
							cases[i].access)),
				     IBV_WC_SUCCESS);
		else
			cr_assert_eq(bind2(&p, &p.b, mw, key,
					   info(p.mb, 100, 100,
						cases[i].access)),
				     IBV_WC_SUCCESS);
		cr_assert_eq(rma(&p, cases[i].op, key,
				 (uintptr_t)bbuf + cases[i].off, cases[i].len),
			     cases[i].ok ? IBV_WC_SUCCESS :
					   IBV_WC_REM_ACCESS_ERR,
			     "case %zu", i);
		MUST(!ibv_dealloc_mw(mw));
		teardown(&p);
	}
}

Test(mw, refusals_1) { refusals(true, IBV_MW_TYPE_1); }
Test(mw, refusals_2) { refusals(true, IBV_MW_TYPE_2); }
Test(mw, refusals_2_ring) { refusals(false, IBV_MW_TYPE_2); }

/* A second queue pair in the protection domain: type 1 is for it, 2 is not. */
static void other_qp(bool direct, enum ibv_mw_type type)
{
	struct ibv_qp *first;
	struct side a2, b2;
	struct pair p, q;
	struct ibv_mw *mw;
	uint32_t key;

	setup(&p, direct);
	side_open(&a2, NULL);
	side_open(&b2, NULL);
	/* b2 becomes a queue pair of b's domain. */
	MUST(!sv_destroy_qp(b2.qp));
	first = p.b.qp;
	MUST((b2.qp = sv_create_qp(p.b.pd, &(struct ibv_qp_init_attr){
						.qp_type = IBV_QPT_RC,
						.send_cq = p.b.scq,
						.recv_cq = p.b.rcq,
						.cap = { 4, 4, 1, 1, 0 } })));
	pair_up(&a2, &b2);
	MUST((mw = ibv_alloc_mw(p.b.pd, type)));
	key = ibv_inc_rkey(mw->rkey);
	if (type == IBV_MW_TYPE_1)
		cr_assert_eq(bind1(&p, mw, info(p.mb, 0, 100, W)),
			     IBV_WC_SUCCESS);
	else
		cr_assert_eq(bind2(&p, &p.b, mw, key, info(p.mb, 0, 100, W)),
			     IBV_WC_SUCCESS);
	cr_assert_eq(p.b.qp, first);
	q.a = a2;
	q.b = p.b;
	q.mb = p.mb;
	q.ma = side_reg(&a2, abuf, sizeof(abuf));
	cr_assert_eq(write_to(&q, key, 0, 10), type == IBV_MW_TYPE_1 ?
						       IBV_WC_SUCCESS :
						       IBV_WC_REM_ACCESS_ERR);
	/* It is as good as before for whom it is. */
	if (type == IBV_MW_TYPE_2)
		cr_assert_eq(write_to(&p, key, 0, 10), IBV_WC_SUCCESS);
	MUST(!sv_dereg_mr(q.ma));
	MUST(!ibv_dealloc_mw(mw));
	MUST(!sv_destroy_qp(b2.qp));
	b2.qp = NULL;
	side_close(&a2);
	side_close(&b2);
	teardown(&p);
}

Test(mw, other_qp_1) { other_qp(true, IBV_MW_TYPE_1); }
Test(mw, other_qp_2) { other_qp(true, IBV_MW_TYPE_2); }
Test(mw, other_qp_2_ring) { other_qp(false, IBV_MW_TYPE_2); }

/* A window's key is no lkey. */
Test(mw, is_not_for_local_use)
{
	struct ibv_mr fake;
	struct ibv_mw *mw;
	struct pair p;

	setup(&p, true);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1)));
	cr_assert_eq(bind1(&p, mw, info(p.mb, 0, 100, W | R)),
		     IBV_WC_SUCCESS);
	fake = *p.mb;
	fake.lkey = mw->rkey;
	MUST(!post(&p.b, (struct post){ .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = &fake,
					.len = 10 }));
	cr_assert_eq(settle(&p, &p.b).status, IBV_WC_LOC_PROT_ERR);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

/* ---- binds that fail ---- */

struct bad_bind {
	int mr_access;
	size_t off, len;
	int access;
	bool other_pd; /* of the region */
	bool ok;
};

Test(mw, binds_that_fail)
{
	static const struct bad_bind cases[] = {
		{ LOCAL | IBV_ACCESS_MW_BIND, 0, LEN, W, false, true },
		{ LOCAL | IBV_ACCESS_MW_BIND, 0, LEN + 1, W, false, false },
		{ LOCAL | IBV_ACCESS_MW_BIND, LEN, 1, W, false, false },
		{ LOCAL | IBV_ACCESS_MW_BIND, 0, SIZE_MAX, W, false, false },
		{ LOCAL | IBV_ACCESS_MW_BIND, 0, 0, W, false, false },
		{ LOCAL, 0, LEN, W, false, false },
		{ IBV_ACCESS_MW_BIND, 0, LEN, W, false, false },
		{ IBV_ACCESS_MW_BIND, 0, LEN, A, false, false },
		{ IBV_ACCESS_MW_BIND, 0, LEN, R, false, true },
		{ LOCAL | IBV_ACCESS_MW_BIND, 0, LEN, W, true, false },
	};
	struct ibv_pd *other;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	struct pair p;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		setup(&p, true);
		MUST((other = sv_alloc_pd(p.b.ctx)));
		MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
		MUST((mr = sv_reg_mr(cases[i].other_pd ? other : p.b.pd, bbuf,
				     LEN, cases[i].mr_access)));
		cr_assert_eq(bind2(&p, &p.b, mw, mw->rkey,
				   info(mr, cases[i].off, cases[i].len,
					cases[i].access)),
			     cases[i].ok ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR,
			     "case %zu", i);
		MUST(!ibv_dealloc_mw(mw) && !sv_dereg_mr(mr) &&
		     !sv_dealloc_pd(other));
		teardown(&p);
	}
}

/* Type 2 that is bound must be invalidated first. */
Test(mw, bound_twice)
{
	struct ibv_mw *mw;
	struct pair p;

	setup(&p, true);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	cr_assert_eq(bind2(&p, &p.b, mw, mw->rkey, info(p.mb, 0, 10, W)),
		     IBV_WC_SUCCESS);
	cr_assert_eq(bind2(&p, &p.b, mw, ibv_inc_rkey(mw->rkey),
			   info(p.mb, 0, 10, W)),
		     IBV_WC_MW_BIND_ERR);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

Test(mw, what_posting_refuses)
{
	struct ibv_mw *one, *two;
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW }, *bad;
	struct ibv_mw_bind bind = { .wr_id = 1 };
	struct pair p;

	setup(&p, true);
	errno = 0;
	cr_assert_null(ibv_alloc_mw(p.b.pd, 3));
	cr_assert_eq(errno, EINVAL);
	MUST((one = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1)));
	MUST((two = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	cr_assert_eq(ibv_post_send(p.b.qp, &wr, &bad), EINVAL);
	wr.bind_mw.mw = one;
	wr.bind_mw.rkey = one->rkey;
	wr.bind_mw.bind_info = info(p.mb, 0, 10, W);
	cr_assert_eq(ibv_post_send(p.b.qp, &wr, &bad), EINVAL);
	wr.bind_mw.mw = two;
	/* Another's index. */
	cr_assert_eq(ibv_post_send(p.b.qp, &wr, &bad), EINVAL);
	wr.bind_mw.rkey = two->rkey ^ 1u << 31;
	cr_assert_eq(ibv_post_send(p.b.qp, &wr, &bad), EINVAL);
	wr.bind_mw.rkey = two->rkey;
	wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
	cr_assert_eq(ibv_post_send(p.b.qp, &wr, &bad), EINVAL);
	wr.bind_mw.bind_info = info(NULL, 0, 10, W);
	cr_assert_eq(ibv_post_send(p.b.qp, &wr, &bad), EINVAL);
	bind.bind_info = info(p.mb, 0, 10, W);
	cr_assert_eq(ibv_bind_mw(p.b.qp, two, &bind), EINVAL);
	MUST(!ibv_dealloc_mw(one) && !ibv_dealloc_mw(two));
	teardown(&p);
}

/* ---- how it ends ---- */

Test(mw, keeps_its_region)
{
	struct ibv_mw *mw;
	struct pair p;

	setup(&p, true);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1)));
	cr_assert_eq(bind1(&p, mw, info(p.mb, 0, 10, W)), IBV_WC_SUCCESS);
	cr_assert_eq(sv_dereg_mr(p.mb), EBUSY);
	errno = 0;
	cr_assert_eq(sv_rereg_mr(p.mb, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL,
				 0, 0),
		     IBV_REREG_MR_ERR_INPUT);
	cr_assert_eq(errno, EBUSY);
	cr_assert_eq(sv_dealloc_pd(p.b.pd), EBUSY);
	cr_assert_eq(write_to(&p, mw->rkey, 0, 10), IBV_WC_SUCCESS);
	/* To nothing. */
	cr_assert_eq(bind1(&p, mw, info(p.mb, 0, 0, 0)), IBV_WC_SUCCESS);
	cr_assert_eq(write_to(&p, mw->rkey, 0, 10), IBV_WC_REM_ACCESS_ERR);
	MUST(!sv_dereg_mr(p.mb));
	MUST(!ibv_dealloc_mw(mw));
	MUST((p.mb = sv_reg_mr(p.b.pd, bbuf, LEN, LOCAL)));
	teardown(&p);
}

Test(mw, dealloc_ends_it)
{
	struct ibv_mw *mw;
	uint32_t key;
	struct pair p;

	setup(&p, true);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	key = mw->rkey;
	cr_assert_eq(bind2(&p, &p.b, mw, key, info(p.mb, 0, 10, W)),
		     IBV_WC_SUCCESS);
	cr_assert_eq(write_to(&p, key, 0, 10), IBV_WC_SUCCESS);
	MUST(!ibv_dealloc_mw(mw));
	cr_assert_eq(write_to(&p, key, 0, 10), IBV_WC_REM_ACCESS_ERR);
	teardown(&p);
}

/* The window outlives its queue pair, and its key is then nobody's. */
Test(mw, qp_ends_before_it)
{
	struct ibv_mw *mw;
	struct pair p;

	setup(&p, true);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	cr_assert_eq(bind2(&p, &p.b, mw, mw->rkey, info(p.mb, 0, 10, W)),
		     IBV_WC_SUCCESS);
	MUST(!sv_destroy_qp(p.b.qp));
	p.b.qp = NULL;
	cr_assert_eq(sv_dereg_mr(p.mb), EBUSY);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

static enum ibv_wc_status send_inv(struct pair *p, uint32_t key, uint32_t len,
				   struct ibv_wc *recv)
{
	struct ibv_sge sge = { .addr = (uintptr_t)abuf,
			       .length = len,
			       .lkey = p->ma->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .invalidate_rkey = key };
	struct ibv_send_wr *bad;

	MUST(!post_recv(&p->b, 1, p->mb, 0, LEN));
	MUST(!ibv_post_send(p->a.qp, &wr, &bad));
	*recv = wait_wc(p->b.rcq);
	return settle(p, &p->a).status;
}

static void remote_inv(bool direct, uint32_t len)
{
	struct ibv_wc wc;
	struct ibv_mw *mw;
	uint32_t key;
	struct pair p;

	setup(&p, direct);
	fill(abuf, len, 8);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	key = ibv_inc_rkey(mw->rkey);
	cr_assert_eq(bind2(&p, &p.b, mw, key, info(p.mb, 0, 100, W)),
		     IBV_WC_SUCCESS);
	cr_assert_eq(write_to(&p, key, 0, 100), IBV_WC_SUCCESS);
	cr_assert_eq(send_inv(&p, key, len, &wc), IBV_WC_SUCCESS);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.opcode, IBV_WC_RECV);
	cr_assert_eq(wc.wc_flags, IBV_WC_WITH_INV);
	cr_assert_eq(wc.invalidated_rkey, key);
	cr_assert_eq(wc.byte_len, len);
	cr_assert(filled(bbuf, len, 8));
	cr_assert_eq(write_to(&p, key, 0, 100), IBV_WC_REM_ACCESS_ERR);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

Test(mw, remote_inv_0) { remote_inv(true, 0); }
Test(mw, remote_inv_slot) { remote_inv(true, 64); }
Test(mw, remote_inv_pull) { remote_inv(true, 50000); }
Test(mw, remote_inv_pieces) { remote_inv(false, 50000); }

enum nonsense {
	NO_KEY,
	REGION,
	UNBOUND,
	TYPE_1,
	OTHERS,
	WRONG_TAG,
	NONSENSES,
};

/* A key that is none, or is not this queue pair's to give up. */
static uint32_t nonsense_key(struct pair *p, enum nonsense what,
			     struct ibv_mw *mw[2])
{
	MUST((mw[0] = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_1)));
	MUST((mw[1] = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_2)));
	switch (what) {
	case REGION:
		return p->mb->rkey;
	case UNBOUND:
		return mw[1]->rkey;
	case TYPE_1:
		MUST(bind1(p, mw[0], info(p->mb, 0, 10, W)) ==
		     IBV_WC_SUCCESS);
		return mw[0]->rkey;
	case OTHERS:
		MUST(bind2(p, &p->b, mw[1], mw[1]->rkey,
			   info(p->mb, 0, 10, W)) == IBV_WC_SUCCESS);
		/* As if another had. */
		sv_qp(p->b.qp)->window_id++;
		return mw[1]->rkey;
	case WRONG_TAG:
		MUST(bind2(p, &p->b, mw[1], mw[1]->rkey,
			   info(p->mb, 0, 10, W)) == IBV_WC_SUCCESS);
		return ibv_inc_rkey(mw[1]->rkey);
	default:
		return 0x12345;
	}
}

Test(mw, remote_inv_of_nonsense)
{
	enum nonsense what;
	struct ibv_mw *mw[2];
	struct ibv_wc wc;
	uint32_t key;
	struct pair p;

	for (what = 0; what < NONSENSES; what++) {
		setup(&p, true);
		key = nonsense_key(&p, what, mw);
		cr_assert_eq(send_inv(&p, key, 10, &wc), IBV_WC_REM_ACCESS_ERR,
			     "case %d", what);
		cr_assert_eq(wc.status, IBV_WC_REM_INV_REQ_ERR);
		MUST(!ibv_dealloc_mw(mw[0]) && !ibv_dealloc_mw(mw[1]));
		teardown(&p);
	}
}

Test(mw, local_inv_of_nonsense)
{
	enum nonsense what;
	struct ibv_mw *mw[2];
	uint32_t key;
	struct pair p;

	for (what = 0; what < NONSENSES; what++) {
		setup(&p, true);
		key = nonsense_key(&p, what, mw);
		cr_assert_eq(local_inv(&p, &p.b, key), IBV_WC_MW_BIND_ERR,
			     "case %d", what);
		MUST(!ibv_dealloc_mw(mw[0]) && !ibv_dealloc_mw(mw[1]));
		teardown(&p);
	}
}

/* ---- by calls, and in one batch with what uses it ---- */

Test(mw, by_calls_in_order)
{
	struct ibv_mw_bind_info bind;
	struct ibv_qp_ex *qp;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	uint32_t key;
	struct pair p;
	int i;

	setup(&p, true);
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2)));
	MUST((qp = sv_qp_to_qp_ex(p.b.qp)));
	key = ibv_inc_rkey(mw->rkey);
	bind = info(p.mb, 0, 64, W);
	MUST(!post_recv(&p.a, 1, p.ma, 0, 64));
	MUST(!post_recv(&p.a, 2, p.ma, 0, 64));
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 1;
	ibv_wr_bind_mw(qp, mw, key, &bind);
	qp->wr_id = 2;
	ibv_wr_send(qp);
	cr_assert_eq(ibv_wr_complete(qp), 0);
	/* The message came behind the bind. */
	wait_wc(p.a.rcq);
	cr_assert_eq(write_to(&p, key, 0, 64), IBV_WC_SUCCESS);
	for (i = 1; i <= 2; i++) {
		wc = settle(&p, &p.b);
		cr_assert_eq(wc.wr_id, i);
		cr_assert_eq(wc.opcode, i == 1 ? IBV_WC_BIND_MW : IBV_WC_SEND);
	}
	ibv_wr_start(qp);
	qp->wr_id = 3;
	ibv_wr_local_inv(qp, key);
	qp->wr_id = 4;
	ibv_wr_send(qp);
	cr_assert_eq(ibv_wr_complete(qp), 0);
	wait_wc(p.a.rcq);
	cr_assert_eq(write_to(&p, key, 0, 64), IBV_WC_REM_ACCESS_ERR);

	/* No data belongs to these, and type 1 is not bound so. */
	ibv_wr_start(qp);
	ibv_wr_local_inv(qp, key);
	ibv_wr_set_sge(qp, 0, 0, 0);
	cr_assert_eq(ibv_wr_complete(qp), EINVAL);
	MUST(!ibv_dealloc_mw(mw));
	MUST((mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_1)));
	ibv_wr_start(qp);
	ibv_wr_bind_mw(qp, mw, mw->rkey, &bind);
	cr_assert_eq(ibv_wr_complete(qp), EINVAL);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

/* Inline data, and a key to invalidate, by a call. */
Test(mw, send_inv_by_call)
{
	struct ibv_qp_ex *qp;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	struct pair p;

	setup(&p, true);
	MUST((qp = sv_qp_to_qp_ex(p.b.qp)));
	MUST((mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2)));
	/* a's region was not registered for it. */
	MUST(!post_recv(&p.a, 1, p.ma, 0, 64));
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_inv(qp, mw->rkey);
	ibv_wr_set_sge(qp, p.mb->lkey, (uintptr_t)bbuf, 3);
	cr_assert_eq(ibv_wr_complete(qp), 0);
	wc = wait_wc(p.a.rcq);
	cr_assert_eq(wc.status, IBV_WC_REM_INV_REQ_ERR);
	cr_assert_eq(settle(&p, &p.b).status, IBV_WC_REM_ACCESS_ERR);
	MUST(!ibv_dealloc_mw(mw));
	teardown(&p);
}

/* As many as one likes, and a key never comes twice in a row. */
Test(mw, many)
{
	enum { MANY = 3000 };
	static struct ibv_mw *mw[MANY];
	struct side s;
	int i;

	side_open(&s, NULL);
	for (i = 0; i < MANY; i++) {
		MUST((mw[i] = ibv_alloc_mw(s.pd, 1 + i % 2)));
		cr_assert(mw[i]->rkey > 1u << 26);
		cr_assert_neq(mw[i]->rkey >> 26, 63);
		if (i)
			cr_assert_neq(sv_key_index(mw[i]->rkey),
				      sv_key_index(mw[i - 1]->rkey));
	}
	for (i = 0; i < MANY; i++)
		MUST(!ibv_dealloc_mw(mw[i]));
	side_close(&s);
}
