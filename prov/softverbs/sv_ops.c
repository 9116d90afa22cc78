/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The tables that the inlines of <infiniband/verbs.h> jump through. They are
 * never checked for NULL there, so what is not supported has a function too.
 * In a child of fork() every context gets the dead table: it shares rings and
 * descriptors with its parent and must touch neither.
 */
#include "sv_int.h"
#include "sv_fault.h"

#include <errno.h>

static int dead_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
			struct ibv_mw_bind *bind)
{
	return EBADF;
}

static int dead_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	return -EBADF;
}

static int dead_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return EBADF;
}

static int dead_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			  struct ibv_send_wr **bad_wr)
{
	*bad_wr = wr;
	return EBADF;
}

static int dead_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			  struct ibv_recv_wr **bad_wr)
{
	*bad_wr = wr;
	return EBADF;
}

static int dead_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			      struct ibv_recv_wr **bad_wr)
{
	*bad_wr = wr;
	return EBADF;
}

static const struct ibv_context_ops live_ops = {
	.alloc_mw = sv_alloc_mw,
	.bind_mw = sv_bind_mw,
	.dealloc_mw = sv_dealloc_mw,
	.poll_cq = sv_poll_cq,
	.req_notify_cq = sv_req_notify_cq,
	.post_srq_recv = sv_post_srq_recv,
	.post_send = sv_post_send,
	.post_recv = sv_post_recv,
};

static const struct ibv_context_ops dead_ops = {
	.alloc_mw = sv_alloc_mw,
	.bind_mw = dead_bind_mw,
	.dealloc_mw = sv_dealloc_mw,
	.poll_cq = dead_poll_cq,
	.req_notify_cq = dead_req_notify_cq,
	.post_srq_recv = dead_post_srq_recv,
	.post_send = dead_post_send,
	.post_recv = dead_post_recv,
};

sv_post_send_fn sv_ops_post_send(const struct sv_ctx *ctx)
{
	const struct sv_dev *dev = ctx->dev;

	return dev->persona->no_imm || dev->persona->no_atomics ||
			       dev->lim.sge_rd < dev->lim.sge ?
		       sv_post_send_look : sv_post_send;
}

/* Faults stand in the table only while there are some. */
static void ops_choose(struct sv_ctx *ctx)
{
	struct ibv_context_ops ops = live_ops;

	ops.post_send = sv_ops_post_send(ctx);
	if (sv_fault_wants_data())
		sv_fault_ops(&ops);
	ctx->v.context.ops = ops;
}

void sv_ops_refresh(void)
{
	sv_core_for_each_ctx(ops_choose);
}

/* v was allocated zeroed: a NULL entry of it means "not supported". */
void sv_ops_fill(struct sv_ctx *ctx)
{
	struct verbs_context *v = &ctx->v;

	v->sz = sizeof(*v);
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	ops_choose(ctx);
	v->query_port = sv_query_port_len;
	v->query_device_ex = sv_query_device_ex;
	v->advise_mr = sv_advise_mr;
	v->query_rt_values = sv_query_rt_values;
	v->alloc_td = sv_alloc_td;
	v->dealloc_td = sv_dealloc_td;
	v->alloc_parent_domain = sv_alloc_parent_domain;
	v->create_cq_ex = sv_create_cq_ex;
	v->create_qp_ex = sv_create_qp_ex;
}

void sv_ops_kill(struct verbs_context *v)
{
	v->context.ops = dead_ops;
}
