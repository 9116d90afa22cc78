/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory windows of both types, by work request and by call: what they open, and to
 * whom.
 */
#include "mw.h"
#include "sv_key.h"

#include <errno.h>

TestSuite(mw, .timeout = 60);

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
