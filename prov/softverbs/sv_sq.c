/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Posting sends by ibv_post_send(). What is wrong with a WR in itself is
 * refused here; what hardware notices when it executes it (keys, bounds)
 * completes in error, in its turn.
 */
#include "sv_sq.h"
#include "sv_link.h"

__cold int sv_op_refuse(const struct sv_qp *qp, enum ibv_wr_opcode opcode)
{
	sv_log("qp %06x: the peer is no softverbs and has no operation %u",
	       qp->qp.qp_num, opcode);
	return EOPNOTSUPP;
}

/* Copies the payload (inline) or the SGEs behind the WR. Positive errno. */
static __hot_inline int swr_fill(struct sv_qp *qp, struct sv_swr *swr,
		    const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;
	int i, err = 0;

	if (!(wr->send_flags & IBV_SEND_INLINE))
		return sv_swr_set_sges(qp, swr, sge, wr->num_sge);
	if (!sv_opcode_has_inline(wr->opcode))
		return EINVAL;
	swr->len = 0;
	swr->num_sge = 0;
	for (i = 0; i < wr->num_sge && !err; i++)
		err = sv_swr_add_inline(qp, swr,
					(void *)(uintptr_t)sge[i].addr,
					sge[i].length);
	return err;
}

int sv_swr_end_rare(struct sv_qp *qp, struct sv_swr *swr)
{
	switch (swr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		swr->consumes_recv = false;
		return swr->len == sizeof(uint64_t) ? 0 : EINVAL;
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		swr->consumes_recv = false;
		swr->len = 0;
		swr->num_sge = 0;
		return 0;
	case IBV_WR_SEND_WITH_INV:
		return 0;
	default:
		return EOPNOTSUPP;
	}
}

/* window: the type that may be bound so. */
static __cold int swr_rare(struct sv_qp *qp, struct sv_swr *swr,
			   const struct ibv_send_wr *wr,
			   enum ibv_mw_type window)
{
	struct sv_operands *arg = sv_sq_operands(qp, swr);
	int err;

	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		swr->rkey = wr->wr.atomic.rkey;
		arg->compare_add = wr->wr.atomic.compare_add;
		arg->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_BIND_MW:
		if (!wr->bind_mw.mw || wr->bind_mw.mw->type != window)
			return EINVAL;
		err = sv_swr_set_bind(swr, wr->bind_mw.mw, wr->bind_mw.rkey,
				      &wr->bind_mw.bind_info);
		if (err)
			return err;
		break;
	default: /* nothing beside the key, which is where an immediate is */
		break;
	}
	return sv_swr_end_rare(qp, swr);
}

/* Writes one WR into the queue. Positive errno. Caller holds qp->lock. */
static __hot_inline int sq_add(struct sv_qp *qp, uint32_t index,
		  const struct ibv_send_wr *wr, enum ibv_mw_type window)
{
	struct sv_swr *swr = sv_sq_slot(qp, index);
	int err;

	if (unlikely(wr->num_sge < 0 ||
		     (uint32_t)wr->num_sge > qp->sq.max_sge))
		return EINVAL;
	if (unlikely(sv_op_refused(qp, wr->opcode)))
		return sv_op_refuse(qp, wr->opcode);
	if (unlikely(!sv_wq_has_room(&qp->sq, index)))
		return ENOMEM;
	err = swr_fill(qp, swr, wr);
	if (unlikely(err))
		return err;
	sv_swr_begin(qp, swr, wr->wr_id, wr->opcode, wr->send_flags);
	swr->raddr = wr->wr.rdma.remote_addr;
	swr->rkey = wr->wr.rdma.rkey;
	swr->imm = wr->imm_data;
	if (unlikely(sv_opcode_is_rare(wr->opcode)))
		return swr_rare(qp, swr, wr, window);
	return 0;
}

void sv_sq_publish(struct sv_qp *qp, uint32_t posted)
{
	atomic_store_explicit(&qp->sq.posted, posted, memory_order_relaxed);
	if (likely(qp->attr.qp_state == IBV_QPS_RTS)) {
		if (likely(qp->link))
			qp->link->ops->push(qp->link);
	} else if (qp->attr.qp_state == IBV_QPS_ERR ||
		   qp->attr.qp_state == IBV_QPS_SQE) {
		sv_flush(qp);
	}
}

/* Caller holds qp->lock, which is given back. */
static __noinline int post_locked(struct sv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad_wr,
				  enum ibv_mw_type window)
{
	uint32_t posted = sv_wq_posted(&qp->sq);
	int err = 0;

	if (unlikely(!sv_sq_open(qp)))
		err = EINVAL;
	for (; wr && !err; wr = wr->next) {
		err = sq_add(qp, posted, wr, window);
		if (unlikely(err))
			break;
		posted++;
	}
	sv_sq_publish(qp, posted);
	sv_lock_drop(&qp->lock);
	if (unlikely(err))
		*bad_wr = wr;
	return err;
}

/* What is left of those that could be sent past the queue: the link knows. Caller
 * holds qp->lock. */
static __hot_inline struct ibv_send_wr *send_past(struct sv_qp *qp,
						  struct ibv_send_wr *wr)
{
	struct sv_link *link = qp->link;

	if (likely(wr && link && link->ops->send) &&
	    qp->sq.sent == sv_wq_posted(&qp->sq))
		return link->ops->send(link, wr);
	return wr;
}

static __hot_inline int post_send(struct sv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad_wr,
				  enum ibv_mw_type window)
{
	sv_lock_take(&qp->lock);
	wr = send_past(qp, wr);
	if (unlikely(wr))
		return post_locked(qp, wr, bad_wr, window);
	sv_lock_drop(&qp->lock);
	return 0;
}

/* Not while somebody is building. */
static int post_send_ex(struct sv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad_wr, enum ibv_mw_type window)
{
	int err;

	if (sv_is_self(&qp->ex->owner)) {
		*bad_wr = wr;
		return EINVAL;
	}
	sv_lock_take(&qp->ex->lock);
	err = post_send(qp, wr, bad_wr, window);
	sv_lock_drop(&qp->ex->lock);
	return err;
}

int sv_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		 struct ibv_send_wr **bad_wr)
{
	struct sv_qp *qp = sv_qp(ibqp);

	if (unlikely(qp->ex))
		return post_send_ex(qp, wr, bad_wr, IBV_MW_TYPE_2);
	return post_send(qp, wr, bad_wr, IBV_MW_TYPE_2);
}

int sv_post_bind(struct sv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (qp->ex)
		return post_send_ex(qp, wr, &bad, IBV_MW_TYPE_1);
	return post_send(qp, wr, &bad, IBV_MW_TYPE_1);
}
