/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory windows: b owns the memory and the windows, a uses them. Binding, using and
 * invalidating one, with the completion that came of it.
 */
#ifndef MW_H
#define MW_H

#include "pair.h"

#include <criterion/criterion.h>

enum {
	LEN = 1 << 16,
	LOCAL = IBV_ACCESS_LOCAL_WRITE,
	W = IBV_ACCESS_REMOTE_WRITE,
	R = IBV_ACCESS_REMOTE_READ,
	A = IBV_ACCESS_REMOTE_ATOMIC,
	OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
	      IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW,
};

static char abuf[LEN], bbuf[LEN];

static inline void setup_mr(struct pair *p, bool direct, int access)
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

static inline void setup(struct pair *p, bool direct)
{
	setup_mr(p, direct, LOCAL | IBV_ACCESS_MW_BIND);
}

/* The next send completion of s, while the other side is polled as well. */
static inline struct ibv_wc settle(struct pair *p, struct side *s)
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

static inline enum ibv_wc_status rma(struct pair *p, enum ibv_wr_opcode op,
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

static inline enum ibv_wc_status write_to(struct pair *p, uint32_t rkey,
					  size_t off, uint32_t len)
{
	return rma(p, IBV_WR_RDMA_WRITE, rkey, (uintptr_t)bbuf + off, len);
}

static inline struct ibv_mw_bind_info info(struct ibv_mr *mr, size_t off,
					   size_t len, int access)
{
	return (struct ibv_mw_bind_info){ .mr = mr,
					  .addr = (uintptr_t)bbuf + off,
					  .length = len,
					  .mw_access_flags = access };
}

static inline enum ibv_wc_status bind1(struct pair *p, struct ibv_mw *mw,
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

static inline enum ibv_wc_status bind2(struct pair *p, struct side *s,
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

static inline enum ibv_wc_status local_inv(struct pair *p, struct side *s,
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

#endif
