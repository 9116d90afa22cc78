/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two QPs joined in one process, with memory that is large enough for every way in
 * which data travels.
 */
#ifndef LINK_H
#define LINK_H

#include "side.h"

#include <criterion/criterion.h>

enum { BUF = 3 << 20 };

struct pair {
	struct side a, b;
	struct ibv_mr *ma, *mb;
	char *abuf, *bbuf;
};

static inline void setup(struct pair *p, bool direct,
			 const struct side_opts *opts)
{
	side_direct(direct);
	side_open(&p->a, opts);
	side_open(&p->b, opts);
	MUST((p->abuf = malloc(BUF)) && (p->bbuf = malloc(BUF)));
	p->ma = side_reg(&p->a, p->abuf, BUF);
	p->mb = side_reg(&p->b, p->bbuf, BUF);
	pair_up(&p->a, &p->b);
	if (!SIDE_IS_TCP)
		cr_assert_eq(sv_shm(sv_qp(p->a.qp)->link)->cma_ok, direct);
}

static inline void teardown(struct pair *p)
{
	MUST(!sv_dereg_mr(p->ma) && !sv_dereg_mr(p->mb));
	side_close(&p->a);
	side_close(&p->b);
	free(p->abuf);
	free(p->bbuf);
}

static inline void expect_flushed(struct side *s, struct ibv_cq *cq,
				  uint64_t id)
{
	struct ibv_wc wc = wait_wc(cq);

	cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(wc.wr_id, id);
	cr_assert_eq(wc.qp_num, s->qp->qp_num);
}

static inline void expect_async(struct side *s, enum ibv_event_type type)
{
	struct ibv_async_event event;

	cr_assert_eq(sv_get_async_event(s->ctx, &event), 0);
	cr_assert_eq(event.event_type, type);
	cr_assert_eq(event.element.qp, s->qp);
	sv_ack_async_event(&event);
}

#endif
