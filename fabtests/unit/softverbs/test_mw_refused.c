/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory windows: whom they do not let in, and binds that fail.
 */
#include "mw.h"

#include <errno.h>

TestSuite(mw, .timeout = 60);

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
