/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The sending side of a shared-memory link: from the send queue into the
 * peer's ring, or straight into the peer's memory. All under qp->lock. What
 * almost every message takes of it is in sv_shm_short.c, which comes here with
 * the rest; acknowledgements are in sv_shm_ack.c.
 *
 *	SEND		slot, data ring, or a PULL descriptor when long
 *	WRITE, READ	copied here and now if we may touch the peer's memory
 *			(sv_cma.c), else through the ring, carried out there;
 *			if it turns out that we may not any more, all anew
 *	WRITE_WITH_IMM	a WRITE, then a WRITTEN slot
 *	atomic		a slot; the peer carries it out and answers
 *
 * Order: WRs start in order and complete in order. A direct WRITE may pass
 * messages that the peer has not taken out of the ring yet only if receives
 * are posted for all of them; a READ never does, it must see what they wrote,
 * and no WRITE passes an atomic.
 */
#include "sv_shm_tx.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

enum push {
	PUSH_DONE,
	PUSH_FULL, /* the peer's head will move */
	PUSH_WAIT, /* for something that does not show in the ring */
};

/* ---- doorbell ---- */

void sv_shm_ring_hard(struct sv_shm *shm)
{
	if (shm->peer_bell_fd >= 0)
		eventfd_write(shm->peer_bell_fd, 1);
}

/* The engine shall go on with what we stop doing here. */
void sv_shm_kick_self(struct sv_shm *shm)
{
	eventfd_write(shm->bell_fd, 1);
}

/*
 * We wait for the peer in the middle of a WR, and it may be another CQ that
 * the application polls: lease or not, the peer shall ring.
 */
static void want_bell(struct sv_shm *shm)
{
	if (atomic_exchange(&shm->own->wake, 1))
		return;
	if (shm->link.ops->pending(&shm->link) ||
	    atomic_load(&shm->own->resp_tail) != shm->rd_head)
		sv_shm_kick_self(shm);
}

/* ---- ring space ---- */

/* Contiguous space in the data ring; returns its position, or false. */
static bool data_get(struct sv_shm *shm, uint32_t len, uint32_t *pos)
{
	uint32_t next = shm->data_next;
	uint32_t off = next & (SV_DATA_SIZE - 1);

	if (off + len > SV_DATA_SIZE)
		next += SV_DATA_SIZE - off;
	if (next + len - shm->data_acked > SV_DATA_SIZE)
		return false;
	*pos = next;
	return true;
}

/*
 * Room for a slot, and for len bytes of data ring at msg->pos if len is not 0.
 * The message is put together in msg, out of the peer's sight: tx_msg().
 */
static bool tx_room(struct sv_shm *shm, struct sv_slot *msg, uint32_t len)
{
	uint32_t pos = shm->data_next;

	if (unlikely(sv_tx_full(shm) || (len && !data_get(shm, len, &pos)))) {
		sv_shm_acks(shm);
		if (!sv_sq_runs(shm->link.qp) || sv_tx_full(shm) ||
		    (len && !data_get(shm, len, &pos)))
			return false;
	}
	msg->pos = pos;
	if (len)
		shm->data_next = (pos + len + CACHELINE - 1) &
				  ~(uint32_t)(CACHELINE - 1);
	return true;
}

static char *tx_data(struct sv_shm *shm, uint32_t pos)
{
	return shm->peer->data + (pos & (SV_DATA_SIZE - 1));
}

/* The message put together in msg, with len bytes of msg->data. */
static void tx_msg(struct sv_shm *shm, const struct sv_slot *msg, uint32_t len)
{
	struct sv_slot *slot = sv_tx_slot(shm, shm->tx_next);

	sv_tx_data(slot, msg->data, len);
	memcpy(&slot->op, &msg->op,
	       offsetof(struct sv_slot, data) - offsetof(struct sv_slot, op));
	sv_tx_publish(shm, slot);
	shm->tx_rung = true;
}

/* ---- sending ---- */

/* Ends here; its completion waits for its turn. Nothing follows. */
static enum push push_failed(struct sv_shm *shm, struct sv_swr *swr,
			     enum ibv_wc_status status)
{
	swr->state = SV_WR_DONE;
	swr->status = status;
	shm->tx_stop = true;
	return PUSH_DONE;
}

static enum push push_sent(struct sv_shm *shm, struct sv_swr *swr)
{
	sv_tx_sent(shm, swr);
	return PUSH_DONE;
}

/* A message that fits one slot, and the data ring if need be. */
static enum push push_slot(struct sv_shm *shm, struct sv_swr *swr)
{
	const bool in_ring = swr->len > SV_SLOT_DATA;
	struct sv_slot msg;

	if (unlikely(!tx_room(shm, &msg, in_ring ? swr->len : 0)))
		return PUSH_FULL;
	msg.op = SV_OP_SEND;
	msg.flags = SV_SLOT_FIRST | sv_tx_flags(swr->opcode, swr->flags) |
		    (in_ring ? SV_SLOT_RING : 0);
	msg.cnt = 0;
	msg.imm = swr->imm;
	msg.len = swr->len;
	msg.total = swr->len;
	msg.raddr = 0;
	sv_swr_gather(swr, 0,
		      in_ring ? tx_data(shm, msg.pos) : (char *)msg.data,
		      swr->len);
	tx_msg(shm, &msg, in_ring ? 0 : swr->len);
	return push_sent(shm, swr);
}

/* Where the message lies; the receiver reads it straight into its buffers. */
static enum push push_pull(struct sv_shm *shm, struct sv_swr *swr)
{
	const size_t size = swr->num_sge * sizeof(struct ibv_sge);
	const bool in_ring = size > SV_SLOT_DATA;
	struct sv_slot msg;

	if (!tx_room(shm, &msg, in_ring ? size : 0))
		return PUSH_FULL;
	msg.op = SV_OP_PULL;
	msg.flags = SV_SLOT_FIRST | sv_tx_flags(swr->opcode, swr->flags) |
		    (in_ring ? SV_SLOT_RING : 0);
	msg.cnt = swr->num_sge;
	msg.imm = swr->imm;
	msg.len = size;
	msg.total = swr->len;
	msg.raddr = 0;
	memcpy(in_ring ? tx_data(shm, msg.pos) : (char *)msg.data, swr->sge,
	       size);
	tx_msg(shm, &msg, in_ring ? 0 : size);
	shm->tx_pulls = true;
	shm->pull_end = shm->link.qp->sq.sent + 1;
	return push_sent(shm, swr);
}

/* A SEND or WRITE in pieces of the data ring. */
static enum push push_pieces(struct sv_shm *shm, struct sv_swr *swr,
			     enum sv_slot_op op)
{
	struct sv_slot msg;
	uint32_t len;

	do {
		len = min_size(swr->len - swr->offset, SV_EAGER_MAX);
		if (!tx_room(shm, &msg, len))
			return PUSH_FULL;
		msg.op = op;
		msg.flags = len ? SV_SLOT_RING : 0;
		if (!swr->offset)
			msg.flags |= SV_SLOT_FIRST;
		if (swr->offset + len == swr->len)
			msg.flags |= sv_tx_flags(swr->opcode, swr->flags);
		msg.cnt = 0;
		msg.imm = swr->imm;
		msg.len = len;
		if (op == SV_OP_WRITE)
			msg.rkey = swr->rkey;
		else
			msg.total = swr->len;
		msg.raddr = swr->raddr + swr->offset;
		if (len)
			sv_swr_gather(swr, swr->offset,
				      tx_data(shm, msg.pos), len);
		swr->offset += len;
		tx_msg(shm, &msg, 0);
	} while (swr->offset < swr->len);
	return push_sent(shm, swr);
}

static bool may_pass(struct sv_shm *shm, const struct sv_swr *swr)
{
	uint32_t posted;

	if (atomic_load_explicit(&shm->tx_acked, memory_order_relaxed) ==
	    shm->tx_next)
		return true;
	sv_shm_acks(shm);
	if (!sv_sq_runs(shm->link.qp))
		return false;
	if (atomic_load_explicit(&shm->tx_acked, memory_order_relaxed) ==
	    shm->tx_next)
		return true;
	if (swr->opcode == IBV_WR_RDMA_READ || shm->rd_cnt)
		return false;
	posted = atomic_load_explicit(&shm->peer->rq_posted,
				      memory_order_acquire);
	return (int32_t)(posted - shm->recvs_sent) >= 0;
}

/* A message of a header only. */
static bool push_header(struct sv_shm *shm, struct sv_slot msg)
{
	if (!tx_room(shm, &msg, 0))
		return false;
	tx_msg(shm, &msg, 0);
	return true;
}

static enum push push_written(struct sv_shm *shm, struct sv_swr *swr)
{
	if (!push_header(shm, (struct sv_slot){
				       .op = SV_OP_WRITTEN,
				       .flags = SV_SLOT_FIRST | sv_tx_flags(swr->opcode, swr->flags),
				       .imm = swr->imm,
				       .total = swr->len,
			       }))
		return PUSH_FULL;
	return push_sent(shm, swr);
}

/*
 * We were to reach into the peer's memory for it, or the peer into ours, and
 * that has been forbidden since. It begins again: what has been written or read
 * by then, is once more, but for what is all there.
 */
static bool is_overtaken(const struct sv_shm *shm, const struct sv_swr *swr)
{
	return (swr->mode == SV_TX_DIRECT && swr->offset < swr->len &&
		!shm->cma_ok) ||
	       (swr->mode == SV_TX_PULL && !atomic_load(&shm->peer->pull_ok));
}

static enum push push_direct(struct sv_shm *shm, struct sv_swr *swr,
			     size_t *budget)
{
	enum ibv_wc_status status;

	if (swr->offset < swr->len || !swr->len) {
		if (!sv_shm_peer_open(shm) || !may_pass(shm, swr))
			return PUSH_WAIT;
		if (!sv_shm_direct(shm, swr, budget, &status)) {
			sv_shm_kick_self(shm);
			return PUSH_WAIT;
		}
		if (unlikely(is_overtaken(shm, swr))) {
			sv_shm_kick_self(shm);
			return PUSH_WAIT;
		}
		if (status != IBV_WC_SUCCESS)
			return push_failed(shm, swr, status);
	}
	if (swr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return push_written(shm, swr);
	swr->state = SV_WR_DONE;
	return PUSH_DONE;
}

/* A READ, or an atomic with its operands. */
static enum push push_ask(struct sv_shm *shm, struct sv_swr *swr)
{
	struct sv_slot msg = {
		.op = SV_OP_READ,
		.flags = SV_SLOT_FIRST | SV_SLOT_LAST,
		.len = swr->len,
		.rkey = swr->rkey,
		.raddr = swr->raddr,
	};
	uint32_t size = 0;

	/* Even if it was set to 0 meanwhile: one, or it would wait for ever. */
	if (shm->rd_cnt && shm->rd_cnt >= shm->link.qp->attr.max_rd_atomic)
		return PUSH_WAIT;
	if (!tx_room(shm, &msg, 0))
		return PUSH_FULL;
	if (swr->opcode != IBV_WR_RDMA_READ) {
		msg.op = swr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ?
				 SV_OP_CMP_SWP :
				 SV_OP_FETCH_ADD;
		msg.len = size = sizeof(struct sv_operands);
		memcpy(msg.data, sv_sq_operands(shm->link.qp, swr), size);
	}
	tx_msg(shm, &msg, size);
	if (swr->len && shm->rd_cnt++ == 0)
		shm->rd_wr = shm->link.qp->sq.sent;
	return push_sent(shm, swr);
}

static __cold enum push push_local(struct sv_shm *shm, struct sv_swr *swr)
{
	enum ibv_wc_status status = sv_sq_local(shm->link.qp, swr);

	if (status != IBV_WC_SUCCESS)
		return push_failed(shm, swr, status);
	swr->state = SV_WR_DONE;
	return PUSH_DONE;
}

static enum sv_tx_mode mode_pick(struct sv_shm *shm, const struct sv_swr *swr)
{
	if (sv_swr_is_send(swr)) {
		if (swr->len <= SV_EAGER_MAX)
			return SV_TX_SLOT;
		/* What it says of itself; a lie costs its own messages. */
		return atomic_load(&shm->peer->pull_ok) ? SV_TX_PULL :
							   SV_TX_PIECES;
	}
	if (unlikely(sv_swr_is_local(swr)))
		return SV_TX_LOCAL;
	if (swr->opcode > IBV_WR_RDMA_READ)
		return SV_TX_ASK;
	if (shm->cma_ok)
		return SV_TX_DIRECT;
	return swr->opcode == IBV_WR_RDMA_READ ? SV_TX_ASK : SV_TX_PIECES;
}

/* Whether its local side is in order. */
static bool tx_memory_ok(struct sv_shm *shm, struct sv_swr *swr)
{
	struct sv_qp *qp = shm->link.qp;

	return unlikely(sv_swr_asks(swr)) ? sv_swr_writable(qp, swr) :
					    sv_swr_readable(qp, swr);
}

/* First look at a WR: how it goes. One that is never allowed to ask would wait
 * for ever. */
static bool tx_begin(struct sv_shm *shm, struct sv_swr *swr)
{
	swr->mode = mode_pick(shm, swr);
	return likely(!sv_swr_asks(swr)) ||
	       shm->link.qp->attr.max_rd_atomic;
}

static enum push push_one(struct sv_shm *shm, struct sv_swr *swr,
			  size_t *budget)
{
	if (swr->mode == SV_TX_UNSET) {
		if (swr->flags & IBV_SEND_FENCE && shm->rd_cnt)
			return PUSH_WAIT;
		if (unlikely(!tx_begin(shm, swr)))
			return push_failed(shm, swr, IBV_WC_LOC_QP_OP_ERR);
	}
	if (unlikely(is_overtaken(shm, swr))) {
		swr->offset = 0;
		swr->mode = mode_pick(shm, swr);
	}
	/* Each time: it may be long since it was last here. */
	if (unlikely(!tx_memory_ok(shm, swr)))
		return push_failed(shm, swr, IBV_WC_LOC_PROT_ERR);
	switch (swr->mode) {
	case SV_TX_SLOT:
		return push_slot(shm, swr);
	case SV_TX_PULL:
		return push_pull(shm, swr);
	case SV_TX_PIECES:
		return push_pieces(shm, swr,
				   sv_swr_is_send(swr) ? SV_OP_SEND :
							 SV_OP_WRITE);
	case SV_TX_LOCAL:
		return push_local(shm, swr);
	case SV_TX_ASK:
		return push_ask(shm, swr);
	default:
		return push_direct(shm, swr, budget);
	}
}

void sv_shm_push_any(struct sv_shm *shm)
{
	struct sv_qp *qp = shm->link.qp;
	size_t budget = SV_POST_BUDGET;
	enum push push = PUSH_DONE;
	bool direct = false;
	struct sv_swr *swr = NULL;

	if (unlikely(shm->tx_lift))
		sv_shm_lift_push(shm);
	while (qp->sq.sent != sv_wq_posted(&qp->sq) && !shm->tx_stop &&
	       sv_sq_runs(qp)) {
		swr = sv_sq_slot(qp, qp->sq.sent);
		push = push_one(shm, swr, &budget);
		/* Looking for room may have found the QP broken. */
		if (push != PUSH_DONE || qp->attr.qp_state == IBV_QPS_ERR)
			break;
		sv_shm_watch_sent(shm, swr, ++qp->sq.sent);
		direct |= swr->state == SV_WR_DONE;
	}
	if (direct)
		sv_shm_acks(shm);
	sv_shm_watch(shm);
	if (unlikely(shm->rd_cnt || shm->rd_serving || shm->tx_lift ||
		     (push == PUSH_FULL && swr->mode == SV_TX_PIECES)))
		want_bell(shm);
	atomic_store_explicit(&shm->link.attention,
			      qp->attr.qp_state != IBV_QPS_ERR &&
				      (push == PUSH_WAIT || shm->rd_cnt ||
				       shm->rd_serving || shm->tx_lift),
			      memory_order_relaxed);
}
