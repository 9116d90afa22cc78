/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two sides and a region of each: how they end. How they begin is what differs.
 */
#ifndef PAIR_H
#define PAIR_H

#include "side.h"

struct pair {
	struct side a, b;
	struct ibv_mr *ma, *mb;
};

static inline void teardown(struct pair *p)
{
	MUST(!sv_dereg_mr(p->ma) && !sv_dereg_mr(p->mb));
	side_close(&p->a);
	side_close(&p->b);
}

#endif
