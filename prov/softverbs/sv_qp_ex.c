/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ibv_qp_ex: queue pairs whose sends are put together by calls. They write
 * straight into the slots behind what is posted; ibv_wr_complete() moves
 * sq.posted past them, all at once or not at all. What goes wrong on the way is
 * kept until then, and makes the calls that follow do nothing.
 *
 * From ibv_wr_start() on until ibv_wr_complete() or ibv_wr_abort() the builder's
 * lock is held, which ibv_post_send() takes too. qp->lock is not: the
 * application may poll, post receives or modify the queue pair meanwhile. A
 * thread that would wait for itself is told so: EINVAL.
 */
#include "sv_fault.h"
#include "sv_sq.h"

#include <stdlib.h>

enum {
	SV_SEND_OPS = IBV_QP_EX_WITH_RDMA_WRITE |
		      IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
		      IBV_QP_EX_WITH_RDMA_READ |
		      IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		      IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
		      IBV_QP_EX_WITH_SEND_WITH_INV,
};

static struct sv_qp *qp_of(struct ibv_qp_ex *qpx)
{
	return container_of(qpx, struct sv_qp, qp_ex);
}

/* ---- WRs ---- */

/* The WR at hand is complete. */
static void wr_end(struct sv_qp *qp)
{
	struct sv_builder *ex = qp->ex;

	if (unlikely(ex->swr && !ex->err && sv_opcode_is_rare(ex->swr->opcode)))
		ex->err = sv_swr_end_rare(qp, ex->swr);
	ex->swr = NULL;
}

/* The next WR, or NULL if something went wrong. */
static struct sv_swr *wr_begin(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode,
			       uint64_t op)
{
	struct sv_qp *qp = qp_of(qpx);
	struct sv_builder *ex = qp->ex;
	struct sv_swr *swr;

	wr_end(qp);
	if (unlikely(ex->err))
		return NULL;
	if (unlikely(!(ex->ops & op))) {
		sv_log("qp %06x: created without operation %#llx",
		       qp->qp.qp_num, (unsigned long long)op);
		ex->err = EOPNOTSUPP;
		return NULL;
	}
	if (unlikely(sv_op_refused(qp, opcode))) {
		ex->err = sv_op_refuse(qp, opcode);
		return NULL;
	}
	if (unlikely(!sv_wq_has_room(&qp->sq, ex->next))) {
		ex->err = ENOMEM;
		return NULL;
	}
	swr = sv_sq_slot(qp, ex->next++);
	/* Inline is what is given so, not what a flag says. */
	sv_swr_begin(qp, swr, qpx->wr_id, opcode,
		     qpx->wr_flags & ~IBV_SEND_INLINE);
	swr->len = 0;
	swr->num_sge = 0;
	ex->swr = swr;
	ex->has_data = false;
	return swr;
}

static void wr_remote(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode,
		      uint64_t op, uint32_t rkey, uint64_t raddr, __be32 imm)
{
	struct sv_swr *swr = wr_begin(qpx, opcode, op);

	if (unlikely(!swr))
		return;
	swr->rkey = rkey;
	swr->raddr = raddr;
	swr->imm = imm;
}

static void wr_send(struct ibv_qp_ex *qpx)
{
	wr_begin(qpx, IBV_WR_SEND, IBV_QP_EX_WITH_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qpx, __be32 imm)
{
	wr_remote(qpx, IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM, 0, 0,
		  imm);
}

static void wr_rdma_write(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t raddr)
{
	wr_remote(qpx, IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey,
		  raddr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qpx, uint32_t rkey,
			      uint64_t raddr, __be32 imm)
{
	wr_remote(qpx, IBV_WR_RDMA_WRITE_WITH_IMM,
		  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey, raddr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t raddr)
{
	wr_remote(qpx, IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, raddr,
		  0);
}

static void wr_atomic(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode,
		      uint64_t op, uint32_t rkey, uint64_t raddr,
		      struct sv_operands arg)
{
	struct sv_swr *swr = wr_begin(qpx, opcode, op);

	if (!swr)
		return;
	swr->rkey = rkey;
	swr->raddr = raddr;
	*sv_sq_operands(qp_of(qpx), swr) = arg;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qpx, uint32_t rkey,
			      uint64_t raddr, uint64_t compare, uint64_t swap)
{
	wr_atomic(qpx, IBV_WR_ATOMIC_CMP_AND_SWP,
		  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, rkey, raddr,
		  (struct sv_operands){ .compare_add = compare, .swap = swap });
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qpx, uint32_t rkey,
				uint64_t raddr, uint64_t add)
{
	wr_atomic(qpx, IBV_WR_ATOMIC_FETCH_AND_ADD,
		  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey, raddr,
		  (struct sv_operands){ .compare_add = add });
}

static void wr_send_inv(struct ibv_qp_ex *qpx, uint32_t rkey)
{
	wr_remote(qpx, IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV, 0, 0,
		  rkey);
}

static void wr_local_inv(struct ibv_qp_ex *qpx, uint32_t rkey)
{
	wr_remote(qpx, IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV, 0, 0, rkey);
}

static void wr_bind_mw(struct ibv_qp_ex *qpx, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct sv_swr *swr = wr_begin(qpx, IBV_WR_BIND_MW,
				      IBV_QP_EX_WITH_BIND_MW);

	if (!swr)
		return;
	qp_of(qpx)->ex->err = mw && mw->type == IBV_MW_TYPE_2 ?
				      sv_swr_set_bind(swr, mw, rkey, info) :
				      EINVAL;
}

/* ---- WRs that there are not ---- */

static void refuse(struct ibv_qp_ex *qpx, const char *what)
{
	struct sv_qp *qp = qp_of(qpx);

	sv_log("qp %06x: %s: not supported", qp->qp.qp_num, what);
	wr_end(qp);
	if (!qp->ex->err)
		qp->ex->err = EOPNOTSUPP;
}

static void wr_send_tso(struct ibv_qp_ex *qpx, void *hdr, uint16_t hdr_sz,
			uint16_t mss)
{
	refuse(qpx, __func__);
}

static void wr_set_ud_addr(struct ibv_qp_ex *qpx, struct ibv_ah *ah,
			   uint32_t remote_qpn, uint32_t remote_qkey)
{
	refuse(qpx, __func__);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qpx, uint32_t remote_srqn)
{
	refuse(qpx, __func__);
}

static void wr_atomic_write(struct ibv_qp_ex *qpx, uint32_t rkey,
			    uint64_t raddr, const void *data)
{
	refuse(qpx, __func__);
}

/* ---- data ---- */

/* The WR that is to get its data: there is one, and it has none yet. */
static struct sv_swr *data_begin(struct sv_qp *qp)
{
	struct sv_builder *ex = qp->ex;

	if (unlikely(ex->err))
		return NULL;
	if (unlikely(!ex->swr || ex->has_data || sv_swr_is_local(ex->swr))) {
		ex->err = EINVAL;
		return NULL;
	}
	ex->has_data = true;
	return ex->swr;
}

static void wr_set_sge_list(struct ibv_qp_ex *qpx, size_t num_sge,
			    const struct ibv_sge *sge)
{
	struct sv_qp *qp = qp_of(qpx);
	struct sv_swr *swr = data_begin(qp);

	if (unlikely(!swr))
		return;
	if (unlikely(num_sge > qp->sq.max_sge ||
		     (swr->opcode == IBV_WR_RDMA_READ &&
		      num_sge > qp->ctx->dev->lim.sge_rd)))
		qp->ex->err = EINVAL;
	else
		qp->ex->err = sv_swr_set_sges(qp, swr, sge, num_sge);
}

static void wr_set_sge(struct ibv_qp_ex *qpx, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	const struct ibv_sge sge = {
		.addr = addr,
		.length = length,
		.lkey = lkey,
	};

	wr_set_sge_list(qpx, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qpx, size_t num_buf,
				    const struct ibv_data_buf *buf)
{
	struct sv_qp *qp = qp_of(qpx);
	struct sv_swr *swr = data_begin(qp);
	size_t i;

	if (unlikely(!swr))
		return;
	if (unlikely(!sv_opcode_has_inline(swr->opcode)))
		qp->ex->err = EINVAL;
	swr->flags |= IBV_SEND_INLINE;
	for (i = 0; i < num_buf && !qp->ex->err; i++)
		qp->ex->err = sv_swr_add_inline(qp, swr, buf[i].addr,
						buf[i].length);
}

static void wr_set_inline_data(struct ibv_qp_ex *qpx, void *addr, size_t length)
{
	const struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(qpx, 1, &buf);
}

/* ---- the region ---- */

static void wr_start(struct ibv_qp_ex *qpx)
{
	struct sv_qp *qp = qp_of(qpx);
	struct sv_builder *ex = qp->ex;

	const bool again = sv_is_self(&ex->owner);

	/* Begun and not ended: it would wait for itself. */
	if (!again && !sv_ctx_dead(qp->qp.context))
		sv_lock_take(&ex->lock);
	atomic_store_explicit(&ex->owner, sv_self(), memory_order_relaxed);
	ex->base = sv_wq_posted(&qp->sq);
	ex->next = ex->base;
	ex->err = again ? EINVAL : 0;
	ex->swr = NULL;
}

static void region_end(struct sv_builder *ex)
{
	atomic_store_explicit(&ex->owner, 0, memory_order_relaxed);
	sv_lock_drop(&ex->lock);
}

static void wr_abort(struct ibv_qp_ex *qpx)
{
	struct sv_builder *ex = qp_of(qpx)->ex;

	if (sv_is_self(&ex->owner))
		region_end(ex);
}

static __cold int built_fault(struct sv_qp *qp)
{
	uint64_t bytes = 0, longest = 0;
	uint32_t i;

	for (i = qp->ex->base; i != qp->ex->next; i++) {
		bytes += sv_sq_slot(qp, i)->len;
		longest = max_size(longest, sv_sq_slot(qp, i)->len);
	}
	return sv_fault_send(qp, bytes, longest);
}

/* Positive errno: then nothing was posted. */
static int wr_complete(struct ibv_qp_ex *qpx)
{
	struct sv_qp *qp = qp_of(qpx);
	struct sv_builder *ex = qp->ex;
	int err;

	if (sv_ctx_dead(qp->qp.context))
		return ENODEV;
	if (unlikely(!sv_is_self(&ex->owner)))
		return EINVAL;
	wr_end(qp);
	err = ex->err;
	if (sv_fault_any() && !err)
		err = built_fault(qp);
	if (likely(!err)) {
		sv_lock_take(&qp->lock);
		/* Reset meanwhile, the queue begins elsewhere. */
		if (likely(sv_sq_open(qp) &&
			   sv_wq_posted(&qp->sq) == ex->base))
			sv_sq_publish(qp, ex->next);
		else
			err = EINVAL;
		sv_lock_drop(&qp->lock);
	}
	region_end(ex);
	return err;
}

/* ---- life ---- */

static const struct ibv_qp_ex calls = {
	.wr_atomic_cmp_swp = wr_atomic_cmp_swp,
	.wr_atomic_fetch_add = wr_atomic_fetch_add,
	.wr_bind_mw = wr_bind_mw,
	.wr_local_inv = wr_local_inv,
	.wr_rdma_read = wr_rdma_read,
	.wr_rdma_write = wr_rdma_write,
	.wr_rdma_write_imm = wr_rdma_write_imm,
	.wr_send = wr_send,
	.wr_send_imm = wr_send_imm,
	.wr_send_inv = wr_send_inv,
	.wr_send_tso = wr_send_tso,
	.wr_set_ud_addr = wr_set_ud_addr,
	.wr_set_xrc_srqn = wr_set_xrc_srqn,
	.wr_set_inline_data = wr_set_inline_data,
	.wr_set_inline_data_list = wr_set_inline_data_list,
	.wr_set_sge = wr_set_sge,
	.wr_set_sge_list = wr_set_sge_list,
	.wr_start = wr_start,
	.wr_complete = wr_complete,
	.wr_abort = wr_abort,
	.wr_atomic_write = wr_atomic_write,
};

/* What can be asked for on a device that looks so. */
static uint64_t ops_there_are(struct ibv_context *context)
{
	const struct sv_persona *persona = sv_ctx(context)->dev->persona;
	uint64_t ops = SV_SEND_OPS;

	if (persona->no_imm)
		ops &= ~(uint64_t)(IBV_QP_EX_WITH_SEND_WITH_IMM |
				   IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
	if (persona->no_atomics)
		ops &= ~(uint64_t)(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
	return ops;
}

/* Positive errno. */
static int attr_check(struct ibv_context *context,
		      const struct ibv_qp_init_attr_ex *attr)
{
	const uint64_t there = ops_there_are(context);
	const uint32_t known = IBV_QP_INIT_ATTR_PD |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	uint64_t ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ?
			       attr->send_ops_flags :
			       0;

	if (attr->comp_mask & ~known ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	     attr->create_flags)) {
		sv_log("QP with attributes %#x, flags %#x: not supported",
		       attr->comp_mask, attr->create_flags);
		return EOPNOTSUPP;
	}
	if (ops & ~there) {
		sv_log("QP with operations %#llx: not supported: %#llx",
		       (unsigned long long)ops,
		       (unsigned long long)(ops & ~there));
		return EOPNOTSUPP;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd ||
	    attr->pd->context != context)
		return EINVAL;
	return 0;
}

static struct sv_builder *builder_make(uint64_t ops)
{
	struct sv_builder *ex = calloc(1, sizeof(*ex));

	if (!ex)
		return NULL;
	sv_lock_init(&ex->lock);
	ex->ops = ops;
	return ex;
}

struct ibv_qp *sv_create_qp_ex(struct ibv_context *context,
			       struct ibv_qp_init_attr_ex *attr)
{
	struct sv_builder *ex = NULL;
	struct ibv_qp *ibqp;
	struct sv_qp *qp;
	int err;

	err = attr_check(context, attr);
	if (err)
		goto err_errno;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		ex = builder_make(attr->send_ops_flags);
		err = ENOMEM;
		if (!ex)
			goto err_errno;
	}
	/* verbs.h counts on this as well. */
	static_assert(offsetof(struct ibv_qp_init_attr_ex, sq_sig_all) ==
			      offsetof(struct ibv_qp_init_attr, sq_sig_all),
		      "begins like the structure of ibv_create_qp()");
	ibqp = sv_create_qp(attr->pd, (struct ibv_qp_init_attr *)attr);
	if (!ibqp) {
		err = errno;
		free(ex);
		goto err_errno;
	}
	qp = sv_qp(ibqp);
	if (ex)
		memcpy(&qp->qp_ex.comp_mask, &calls.comp_mask,
		       sizeof(calls) - offsetof(struct ibv_qp_ex, comp_mask));
	qp->ex = ex;
	return ibqp;

err_errno:
	errno = err;
	return NULL;
}

struct ibv_qp_ex *sv_qp_to_qp_ex(struct ibv_qp *ibqp)
{
	struct sv_qp *qp = sv_qp(ibqp);

	if (qp->ex)
		return &qp->qp_ex;
	errno = EOPNOTSUPP;
	return NULL;
}
