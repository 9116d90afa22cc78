/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a child of fork() has inherited: of it nothing can be made, all of it may be
 * destroyed, and the parent, whose it is, notices neither.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/wait.h>

TestSuite(fork, .timeout = 60);

struct objects {
	struct side *side;
	struct ibv_pd *parent;
	struct ibv_td *td;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	char buf[64];
};

static struct ibv_ah_attr there = { .is_global = 1, .port_num = 1 };
static struct ibv_srq_init_attr srq_of_one = { .attr = { 1, 1, 0 } };

static struct ibv_pd *make_parent(const struct objects *o)
{
	struct ibv_parent_domain_init_attr attr = { .pd = o->side->pd };

	return sv_alloc_parent_domain(o->side->ctx, &attr);
}

static struct ibv_td *make_td(const struct objects *o)
{
	struct ibv_td_init_attr attr = { .comp_mask = 0 };

	return sv_alloc_td(o->side->ctx, &attr);
}

static struct ibv_qp *make_qp(const struct objects *o)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = o->side->scq,
		.recv_cq = o->side->rcq,
	};

	return sv_create_qp(o->side->pd, &attr);
}

static void make(struct objects *o, struct side *side)
{
	o->side = side;
	MUST(o->parent = make_parent(o));
	MUST(o->td = make_td(o));
	MUST(o->mr = sv_reg_mr(side->pd, o->buf, sizeof(o->buf), 0));
	MUST(o->mw = sv_alloc_mw(side->pd, IBV_MW_TYPE_2));
	MUST(o->ah = sv_create_ah(side->pd, &there));
}

#define REFUSED(call) (errno = 0, !(call) && errno == ENODEV)

/* The number of the first that goes wrong, or 0. */
static int none_is_made(struct objects *o)
{
	struct side *s = o->side;

	const bool refused[] = {
		REFUSED(sv_alloc_pd(s->ctx)),
		REFUSED(sv_create_comp_channel(s->ctx)),
		REFUSED(make_td(o)),
		REFUSED(make_parent(o)),
		REFUSED(sv_create_cq(s->ctx, 8, NULL, NULL, 0)),
		REFUSED(sv_create_srq(s->pd, &srq_of_one)),
		REFUSED(make_qp(o)),
		REFUSED(sv_reg_mr(s->pd, o->buf, sizeof(o->buf), 0)),
		REFUSED(sv_alloc_mw(s->pd, IBV_MW_TYPE_2)),
		REFUSED(sv_create_ah(s->pd, &there)),
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(refused); i++)
		if (!refused[i])
			return (int)i + 1;
	return 0;
}

/* In no order that the parent might use. */
static int all_is_destroyed(struct objects *o)
{
	struct side *s = o->side;
	const int err[] = {
		sv_close_device(s->ctx),
		sv_dealloc_pd(s->pd),
		sv_dealloc_pd(o->parent),
		sv_dealloc_td(o->td),
		sv_destroy_comp_channel(s->chan),
		sv_destroy_cq(s->scq),
		sv_destroy_srq(s->srq),
		sv_destroy_qp(s->qp),
		sv_dereg_mr(o->mr),
		sv_dealloc_mw(o->mw),
		sv_destroy_ah(o->ah),
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(err); i++)
		if (err[i])
			return 100 + (int)i;
	return 0;
}

Test(fork, nothing_is_made_and_all_is_destroyed)
{
	const struct side_opts opts = { .channel = true, .srq_wr = 8 };
	struct side side;
	struct objects o;
	int status;
	pid_t pid;

	side_open(&side, &opts);
	make(&o, &side);
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		status = none_is_made(&o);
		_exit(status ? status : all_is_destroyed(&o));
	}
	MUST(waitpid(pid, &status, 0) == pid);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "%d", WEXITSTATUS(status));
	/* Here all of it is still there, and counted. */
	cr_assert_eq(sv_close_device(side.ctx), EBUSY);
	cr_assert_eq(sv_destroy_ah(o.ah), 0);
	cr_assert_eq(sv_dealloc_mw(o.mw), 0);
	cr_assert_eq(sv_dereg_mr(o.mr), 0);
	cr_assert_eq(sv_dealloc_td(o.td), 0);
	cr_assert_eq(sv_dealloc_pd(o.parent), 0);
	side_close(&side);
}
