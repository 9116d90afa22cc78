/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory windows: the ways in which they end, by this side and by the peer, and what
 * cannot be ended.
 */
#include "mw.h"

#include <errno.h>

TestSuite(mw, .timeout = 60);

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
