/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The short way out of a send queue: a SEND that fits a slot of the peer's ring,
 * lies in one piece, and has nothing to wait for. Almost every message is one,
 * and its time is counted in instructions. All that it cannot do, or that is
 * wrong, is left to sv_shm_tx.c before anything has been done. Under qp->lock.
 */
#include "sv_shm_tx.h"
#include "sv_sq.h"

/* Nothing that was sent before stands in the way of what comes now. */
static __hot_inline bool way_is_free(const struct sv_shm *shm)
{
	return !shm->tx_long && !shm->rd_cnt && !shm->rd_serving &&
	       shm->link.qp->attr.qp_state == IBV_QPS_RTS;
}

static __hot_inline bool is_short(const struct sv_shm *shm, unsigned int opcode,
				  int num_sge, uint32_t len)
{
	static_assert(IBV_WR_SEND + 1 == IBV_WR_SEND_WITH_IMM,
		      "one comparison");
	return opcode - IBV_WR_SEND <= 1 && num_sge == 1 &&
	       len <= SV_SLOT_DATA && !sv_tx_full(shm);
}

/* What sv_tx_flags() says of one that is_short(), without asking. */
static __hot_inline uint8_t short_flags(unsigned int opcode,
					unsigned int send_flags)
{
	return SV_SLOT_FIRST | SV_SLOT_LAST |
	       (opcode - IBV_WR_SEND) * SV_SLOT_IMM |
	       (send_flags & IBV_SEND_SOLICITED) / IBV_SEND_SOLICITED *
		       SV_SLOT_SOLICITED;
}

/* What a slot says. */
struct shot {
	const void *from;
	uint32_t len;
	uint32_t imm;
	uint8_t flags;
};

static __hot_inline void slot_put(struct sv_shm *shm, struct shot shot)
{
	struct sv_slot *slot = sv_tx_slot(shm, shm->tx_next);

	sv_tx_data(slot, shot.from, shot.len);
	slot->what = sv_slot_what(SV_OP_SEND, shot.flags);
	slot->imm = shot.imm;
	slot->len = shot.len;
	slot->total = shot.len;
	sv_tx_publish(shm, slot);
}

/* One that was queued. */
static __hot_inline bool push_short(struct sv_shm *shm, struct sv_swr *swr)
{
	const bool inl = swr->flags & IBV_SEND_INLINE;

	if (unlikely(!is_short(shm, swr->opcode, inl ? 1 : swr->num_sge,
			       swr->len) ||
		     swr->mode != SV_TX_UNSET ||
		     !sv_swr_readable(shm->link.qp, swr)))
		return false;
	slot_put(shm, (struct shot){
			      .from = inl ? swr->sge :
					    (void *)(uintptr_t)swr->sge[0].addr,
			      .len = swr->len,
			      .imm = swr->imm,
			      .flags = short_flags(swr->opcode, swr->flags),
		      });
	sv_tx_sent(shm, swr);
	shm->tx_rung = true;
	return true;
}

void sv_shm_push(struct sv_shm *shm)
{
	struct sv_qp *qp = shm->link.qp;
	const uint32_t posted = sv_wq_posted(&qp->sq);
	struct sv_swr *swr;

	if (unlikely(!way_is_free(shm))) {
		sv_shm_push_any(shm);
		return;
	}
	while (qp->sq.sent != posted) {
		swr = sv_sq_slot(qp, qp->sq.sent);
		if (unlikely(!push_short(shm, swr))) {
			sv_shm_push_any(shm);
			return;
		}
		sv_shm_watch_sent(shm, swr, ++qp->sq.sent);
	}
	sv_shm_watch(shm);
	atomic_store_explicit(&shm->link.attention, false,
			      memory_order_relaxed);
}

/* Where the bytes of one to be posted are, or NULL: not as in the one before. */
static __hot_inline const void *wr_data(struct sv_qp *qp,
					const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;

	if (unlikely(wr->send_flags & IBV_SEND_INLINE ?
			     sge->length > qp->cap.max_inline_data :
			     !sv_key_same(&qp->read_seen, sge)))
		return NULL;
	return (void *)(uintptr_t)sge->addr;
}

/* In the queue stays only what completing it will need. */
static __hot_inline void sq_enter_sent(struct sv_shm *shm,
				       const struct ibv_send_wr *wr)
{
	struct sv_qp *qp = shm->link.qp;
	const uint32_t index = qp->sq.sent;
	struct sv_swr *swr = sv_sq_slot(qp, index);

	sv_swr_begin(qp, swr, wr->wr_id, wr->opcode, wr->send_flags);
	swr->len = wr->sg_list->length;
	swr->num_sge = 0;
	swr->state = SV_WR_SENT;
	swr->ring_end = shm->tx_next;
	shm->recvs_sent++;
	atomic_store_explicit(&qp->sq.posted, index + 1, memory_order_relaxed);
	qp->sq.sent = index + 1;
	if (swr->flags & IBV_SEND_SIGNALED) {
		shm->tx_due = index + 1;
		atomic_store_explicit(&shm->tx_watch, true,
				      memory_order_relaxed);
	}
}

/*
 * The bytes go straight to the peer; all else is done when they are on their way.
 * Nothing is called in between: what would have to be kept across a call has its
 * price, too.
 */
static __hot_inline bool shoot(struct sv_shm *shm,
			       const struct ibv_send_wr *wr)
{
	struct sv_qp *qp = shm->link.qp;
	const void *from;

	if (unlikely(wr->num_sge != 1 ||
		     !is_short(shm, wr->opcode, 1, wr->sg_list->length) ||
		     !sv_wq_has_room(&qp->sq, qp->sq.sent)))
		return false;
	from = wr_data(qp, wr);
	if (unlikely(!from))
		return false;
	slot_put(shm, (struct shot){
			      .from = from,
			      .len = wr->sg_list->length,
			      .imm = wr->imm_data,
			      .flags = short_flags(wr->opcode, wr->send_flags),
		      });
	sq_enter_sent(shm, wr);
	return true;
}

/* The peer wants to be woken, or leaves. */
static __cold void sent_otherwise(struct sv_shm *shm)
{
	sv_shm_ring(shm);
	if (sv_shm_peer_gone(shm))
		sv_link_gone(&shm->link);
}

/* The peer is told once, of all. */
struct ibv_send_wr *sv_shm_send(struct sv_link *link, struct ibv_send_wr *wr)
{
	struct sv_shm *shm = sv_shm(link);

	if (unlikely(!way_is_free(shm) || !link->qp->sq.max_sge ||
		     !shoot(shm, wr)))
		return wr;
	do
		wr = wr->next;
	while (unlikely(wr) && shoot(shm, wr));
	shm->ack_rung = false;
	atomic_store_explicit(&link->attention, false, memory_order_relaxed);
	if (unlikely(sv_shm_wants_ring(shm) || sv_shm_peer_gone(shm)))
		sent_otherwise(shm);
	return wr;
}
