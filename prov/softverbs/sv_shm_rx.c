/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The receiving side of a shared-memory link: takes messages out of our ring,
 * and serves what the peer could not do to our memory by itself. All under
 * qp->lock. Each slot's header is copied once and every field of it checked;
 * the payload is copied from where we say it is, never by a pointer of theirs
 * (but for PULL, whose addresses are in the peer's memory). What almost every
 * message takes of it is in sv_shm_poll.c.
 *
 * A message for which no receive is posted stays in the ring, and so does all
 * behind it: that is the RNR back-pressure. It lasts for ever if the sender's
 * rnr_retry says so; if not, as long as that many of our min_rnr_timer, counted
 * here, where the receive is missing.
 */
#include "sv_shm_rx.h"

#include <errno.h>
#include <string.h>

enum {
	SV_RX_BATCH = 64, /* slots per call */
	SV_RX_PUBLISH = 16, /* give slots back at least this often */
};

enum rx {
	RX_NEXT, /* slot is done with */
	RX_WAIT, /* slot stays, try later */
	RX_RNR, /* the same, until there is a receive */
	RX_STOP, /* the QP has left the states in which it receives */
};

/* struct sv_slot without the sequence word and the payload. */
struct hdr {
	uint8_t op;
	uint8_t flags;
	uint16_t cnt;
	uint32_t imm;
	uint32_t len;
	uint32_t pos;
	union {
		uint32_t rkey;
		uint32_t total;
	};
	uint64_t raddr;
	const char *payload;
};

/* ---- refusing ---- */

/*
 * Tells the requester why its message is not accepted, and takes no more. nak
 * is written after the last head: who sees it sees all that was accepted.
 */
static __cold enum rx rx_nak(struct sv_shm *shm, enum ibv_wc_status nak)
{
	sv_rx_publish(shm);
	shm->rx_stop = true;
	atomic_store_explicit(&shm->rx_on, false, memory_order_relaxed);
	atomic_store_explicit(&shm->peer->nak, nak, memory_order_release);
	sv_shm_ring_hard(shm);
	return RX_STOP;
}

static __cold enum rx rx_refuse(struct sv_shm *shm, enum ibv_wc_status nak,
				int event)
{
	rx_nak(shm, nak);
	sv_shm_acks(shm);
	sv_qp_error(shm->link.qp, event);
	return RX_STOP;
}

/* The receive at hand fails, and the message with it. */
static __cold enum rx rx_fail_recv(struct sv_shm *shm,
				   enum ibv_wc_status status,
				   enum ibv_wc_status nak)
{
	struct sv_cqe cqe = { .wc.status = status };

	sv_log("qp %06x: receive fails: %s", shm->link.qp->qp.qp_num,
	       sv_wc_status_str(status));
	sv_rq_complete(shm->link.qp, &cqe, false);
	return rx_refuse(shm, nak, -1);
}

static __cold enum rx rx_nonsense(struct sv_shm *shm)
{
	sv_shm_protocol_error(shm);
	return RX_STOP;
}

/* ---- receiving ---- */

static void rx_complete(struct sv_shm *shm, const struct hdr *h,
			enum ibv_wc_opcode opcode, uint32_t len)
{
	struct sv_qp *qp = shm->link.qp;

	sv_rq_complete_ok(qp, sv_rq_slot(qp, qp->rq.done),
			  sv_rx_news(shm, h->flags, h->imm, opcode, len));
}

/* A whole message is in place; its sender may want a key invalidated. */
static enum rx rx_done(struct sv_shm *shm, const struct hdr *h, uint32_t total)
{
	if (unlikely(h->flags & SV_SLOT_INV) &&
	    !sv_key_invalidate(shm->link.qp, h->imm))
		return rx_fail_recv(shm, IBV_WC_REM_INV_REQ_ERR,
				    IBV_WC_REM_ACCESS_ERR);
	rx_complete(shm, h, IBV_WC_RECV, total);
	return RX_NEXT;
}

/* The receive that takes a message of this length. NULL: *rx says why. */
static struct sv_rwr *rx_recv(struct sv_shm *shm, uint32_t total,
			      enum rx *rx)
{
	struct sv_rwr *rwr = sv_rq_peek(shm->link.qp);

	if (unlikely(!rwr)) {
		*rx = RX_RNR;
		return NULL;
	}
	if (unlikely(total > rwr->len)) {
		*rx = rx_fail_recv(shm, IBV_WC_LOC_LEN_ERR,
				   IBV_WC_REM_INV_REQ_ERR);
		return NULL;
	}
	if (unlikely(total && !sv_rwr_writable(shm->link.qp, rwr))) {
		*rx = rx_fail_recv(shm, IBV_WC_LOC_PROT_ERR,
				   IBV_WC_REM_OP_ERR);
		return NULL;
	}
	return rwr;
}

/* Whether a piece is one that may come now: pieces of two messages do not mix. */
static bool rx_in_order(const struct sv_shm *shm, const struct hdr *h)
{
	return shm->rx_partial == (h->flags & SV_SLOT_FIRST ? 0 : h->op);
}

static enum rx rx_send(struct sv_shm *shm, const struct hdr *h)
{
	const bool first = h->flags & SV_SLOT_FIRST;
	const bool last = h->flags & SV_SLOT_LAST;
	uint32_t total = first ? h->total : shm->rx_total;
	uint32_t done = first ? 0 : shm->rx_len;
	struct sv_rwr *rwr;
	enum rx rx;

	if (unlikely(!rx_in_order(shm, h) || h->len > total - done ||
		     (last && done + h->len != total)))
		return rx_nonsense(shm);
	rwr = rx_recv(shm, total, &rx);
	if (unlikely(!rwr))
		return rx;
	sv_sges_scatter(rwr->sge, done, h->payload, h->len);
	shm->rx_len = done + h->len;
	shm->rx_total = total;
	shm->rx_partial = last ? 0 : h->op;
	return last ? rx_done(shm, h, total) : RX_NEXT;
}

/* We were to read it; its sender brings it. */
static __cold enum rx rx_lift(struct sv_shm *shm, const struct hdr *h,
			      const struct sv_rwr *rwr)
{
	bool broken = false;
	bool done = sv_shm_lift_take(shm, rwr, h->total, &broken);

	if (broken)
		return rx_nonsense(shm);
	/* The sender took it back, or died: as in rx_pull(). */
	if (!done && !sv_shm_peer_open(shm)) {
		shm->rd_serving = false;
		return rx_nak(shm, IBV_WC_REM_OP_ERR);
	}
	shm->rd_serving = !done;
	/* What brings us back is the sender's bell, or a poll; not the slot. */
	atomic_store_explicit(&shm->rx_on, done, memory_order_relaxed);
	if (done)
		return rx_done(shm, h, h->total);
	atomic_store_explicit(&shm->link.attention, true, memory_order_relaxed);
	return RX_WAIT;
}

static enum rx rx_pull(struct sv_shm *shm, const struct hdr *h)
{
	struct ibv_sge from[SV_MAX_SGE];
	enum ibv_wc_status status;
	struct sv_rwr *rwr;
	enum rx rx;

	if (shm->rx_partial || h->cnt > SV_MAX_SGE ||
	    h->len != h->cnt * sizeof(*from) ||
	    (!shm->cma_ok && !shm->cma_lost))
		return rx_nonsense(shm);
	rwr = rx_recv(shm, h->total, &rx);
	if (!rwr)
		return rx;
	if (unlikely(!shm->cma_ok))
		return rx_lift(shm, h, rwr);
	memcpy(from, h->payload, h->len);
	status = sv_shm_pull(shm, from, h->cnt, rwr, h->total);
	if (unlikely(!shm->cma_ok))
		return rx_lift(shm, h, rwr);
	/* The sender took it back, or died: there is no message. */
	if (status == IBV_WC_RETRY_EXC_ERR)
		return rx_nak(shm, IBV_WC_REM_OP_ERR);
	/* The sender's memory is not there: its own local error. */
	if (status != IBV_WC_SUCCESS)
		return rx_nak(shm, IBV_WC_LOC_PROT_ERR);
	return rx_done(shm, h, h->total);
}

static enum rx rx_write(struct sv_shm *shm, const struct hdr *h)
{
	const bool first = h->flags & SV_SLOT_FIRST;
	const bool last = h->flags & SV_SLOT_LAST;
	uint32_t done = first ? 0 : shm->rx_len;
	char *to;

	if (!rx_in_order(shm, h) || h->len > SV_MAX_MSG - done)
		return rx_nonsense(shm);
	if (last && h->flags & SV_SLOT_IMM && !sv_rq_peek(shm->link.qp))
		return RX_RNR;
	if (h->len) {
		to = sv_link_target(&shm->link, IBV_ACCESS_REMOTE_WRITE, h->rkey,
			       h->raddr, h->len);
		if (!to)
			return rx_refuse(shm, IBV_WC_REM_ACCESS_ERR,
					 IBV_EVENT_QP_ACCESS_ERR);
		memcpy(to, h->payload, h->len);
	}
	shm->rx_len = done + h->len;
	shm->rx_partial = last ? 0 : h->op;
	if (last && h->flags & SV_SLOT_IMM)
		rx_complete(shm, h, IBV_WC_RECV_RDMA_WITH_IMM, shm->rx_len);
	return RX_NEXT;
}

static enum rx rx_written(struct sv_shm *shm, const struct hdr *h)
{
	if (shm->rx_partial || !(h->flags & SV_SLOT_IMM))
		return rx_nonsense(shm);
	if (!sv_rq_peek(shm->link.qp))
		return RX_RNR;
	rx_complete(shm, h, IBV_WC_RECV_RDMA_WITH_IMM, h->total);
	return RX_NEXT;
}

/* Answers a READ through the peer's resp ring, as far as there is room. */
static enum rx rx_read(struct sv_shm *shm, const struct hdr *h)
{
	const char *from;
	int64_t len;

	if (shm->rx_partial)
		return rx_nonsense(shm);
	if (!shm->link.qp->attr.max_dest_rd_atomic)
		return rx_refuse(shm, IBV_WC_REM_INV_REQ_ERR,
				 IBV_EVENT_QP_REQ_ERR);
	while (shm->rd_sent < h->len) {
		len = sv_shm_resp_room(shm);
		if (len < 0)
			return rx_nonsense(shm);
		shm->rd_serving = true;
		if (!len)
			return RX_WAIT;
		len = min_size(len, h->len - shm->rd_sent);
		from = sv_link_target(&shm->link, IBV_ACCESS_REMOTE_READ, h->rkey,
				 h->raddr + shm->rd_sent, len);
		if (!from)
			return rx_refuse(shm, IBV_WC_REM_ACCESS_ERR,
					 IBV_EVENT_QP_ACCESS_ERR);
		len = sv_shm_resp_put(shm, from, len);
		if (len < 0)
			return rx_nonsense(shm);
		shm->rd_sent += len;
	}
	shm->rd_sent = 0;
	shm->rd_serving = false;
	return RX_NEXT;
}

/* Done once or not at all: the answer's room comes first. */
static enum rx rx_atomic(struct sv_shm *shm, const struct hdr *h)
{
	struct sv_operands arg;
	int64_t room = sv_shm_resp_room(shm);
	uint64_t old;
	char *to;

	if (shm->rx_partial || h->len != sizeof(arg) ||
	    h->flags & SV_SLOT_RING || room < 0)
		return rx_nonsense(shm);
	if (!shm->link.qp->attr.max_dest_rd_atomic || h->raddr % sizeof(old))
		return rx_refuse(shm, IBV_WC_REM_INV_REQ_ERR,
				 IBV_EVENT_QP_REQ_ERR);
	to = sv_link_target(&shm->link, IBV_ACCESS_REMOTE_ATOMIC, h->rkey, h->raddr,
		       sizeof(old));
	if (!to || (uintptr_t)to % sizeof(old))
		return rx_refuse(shm, IBV_WC_REM_ACCESS_ERR,
				 IBV_EVENT_QP_ACCESS_ERR);
	shm->rd_serving = room < (int64_t)sizeof(old);
	if (shm->rd_serving)
		return RX_WAIT;
	memcpy(&arg, h->payload, sizeof(arg));
	old = sv_link_atomic(h->op == SV_OP_FETCH_ADD, (uint64_t *)to, &arg);
	return sv_shm_resp_put(shm, &old, sizeof(old)) == sizeof(old) ?
		       RX_NEXT :
		       rx_nonsense(shm);
}

/* ---- receiver not ready ---- */

/*
 * The message in the next slot finds no receive. The deadline may outlive the
 * wait: who it calls looks here again, and finds another slot, or none waiting.
 */
static __cold void rx_rnr(struct sv_shm *shm, uint32_t next)
{
	uint32_t retry = atomic_load(&shm->peer->rnr_retry) & 7;
	uint64_t now_ns;

	if (retry == 7)
		return;
	now_ns = sv_now_ns();
	if (!shm->rnr_due_ns || shm->rnr_slot != next) {
		shm->rnr_slot = next;
		shm->rnr_due_ns = now_ns + sv_link_rnr_ns(&shm->link, retry);
	}
	if (now_ns >= shm->rnr_due_ns)
		rx_nak(shm, IBV_WC_RNR_RETRY_EXC_ERR);
	else
		sv_deadline_set(&shm->link, shm->rnr_due_ns);
}

/* ---- the ring ---- */

/* Copies the header; says where the payload is, if it is where it may be. */
static bool hdr_read(struct sv_shm *shm, const struct sv_slot *slot,
		     struct hdr *h)
{
	uint32_t off;

	h->op = slot->op;
	h->flags = slot->flags;
	h->cnt = slot->cnt;
	h->imm = slot->imm;
	h->len = slot->len;
	h->pos = slot->pos;
	h->total = slot->total;
	h->raddr = slot->raddr;
	sv_rx_read_once();
	if (h->op == SV_OP_READ)
		return true;
	if (!(h->flags & SV_SLOT_RING)) {
		h->payload = (const char *)slot->data;
		return h->len <= SV_SLOT_DATA;
	}
	off = h->pos & (SV_DATA_SIZE - 1);
	h->payload = shm->own->data + off;
	return h->len <= SV_EAGER_MAX && off + h->len <= SV_DATA_SIZE;
}

static __noinline enum rx rx_any(struct sv_shm *shm, const struct sv_slot *slot)
{
	struct hdr h;

	if (unlikely(!hdr_read(shm, slot, &h)))
		return rx_nonsense(shm);
	switch (h.op) {
	case SV_OP_SEND:
		return rx_send(shm, &h);
	case SV_OP_PULL:
		return rx_pull(shm, &h);
	case SV_OP_WRITE:
		return rx_write(shm, &h);
	case SV_OP_WRITTEN:
		return rx_written(shm, &h);
	case SV_OP_READ:
		return rx_read(shm, &h);
	case SV_OP_CMP_SWP:
	case SV_OP_FETCH_ADD:
		return rx_atomic(shm, &h);
	default:
		return rx_nonsense(shm);
	}
}

/*
 * The slot is filled; next is its number. RX_NEXT: and the QP is still in a state
 * in which it receives.
 */
static __hot_inline enum rx rx_one(struct sv_shm *shm,
				   const struct sv_slot *slot, uint32_t next)
{
	enum rx rx;

	/* An answer does not overtake the completion of its question. */
	if (sv_shm_acks_wanted(shm)) {
		sv_shm_acks(shm);
		if (unlikely(!sv_shm_receives(shm)))
			return RX_STOP;
	}
	rx = rx_any(shm, slot);
	if (rx == RX_RNR)
		rx_rnr(shm, next);
	return rx;
}

void sv_shm_drain(struct sv_shm *shm)
{
	uint32_t next = sv_rx_next(shm);
	const struct sv_slot *slot;
	int i;

	if (unlikely(!sv_shm_receives(shm)))
		return;
	for (i = 0; i < SV_RX_BATCH; i++) {
		slot = sv_rx_slot(shm, next);
		if (!sv_rx_filled(slot, next))
			break;
		if (unlikely(rx_one(shm, slot, next) != RX_NEXT))
			break;
		next++;
		atomic_store_explicit(&shm->rx_next, next,
				      memory_order_relaxed);
		if (next - shm->rx_published == SV_RX_PUBLISH)
			sv_rx_publish(shm);
	}
	sv_rx_publish(shm);
}
