/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Links: what the QP layer asks of a transport, and what all of them have.
 */
#ifndef SV_LINK_H
#define SV_LINK_H

#include "sv_int.h"
#include "sv_wr.h"

/*
 * What a transport gives the QP layer. pending(), poll(), close(), quiesce()
 * and fork_child() aside, they are called with qp->lock held. progress() may move
 * the QP to the error state.
 */
struct sv_link_ops {
	/* No lock, no side effect: is there anything to do? */
	bool (*pending)(struct sv_link *link);
	/*
	 * Both, for who polls a CQ and holds cq->poll_lock, not qp->lock; with
	 * sink for what is found. False: there was nothing to do.
	 */
	bool (*poll)(struct sv_link *link, struct sv_cq_sink *sink);
	/* Take what came in, complete what is acknowledged, send what waits. */
	void (*progress)(struct sv_link *link);
	/*
	 * WRs are posted with nothing before them: sends those past the queue
	 * that are one copy and no more, and enters them there as sent. Returns
	 * the first that is not such a one, with which nothing has been done, or
	 * NULL. In RTS only its caller need not be; NULL if the link has no such
	 * way.
	 */
	struct ibv_send_wr *(*send)(struct sv_link *link,
				    struct ibv_send_wr *wr);
	/* The send queue has grown. */
	void (*push)(struct sv_link *link);
	/* Complete what is acknowledged, no more. */
	void (*acks)(struct sv_link *link);
	/* State or access flags of the QP have changed. */
	void (*publish)(struct sv_link *link);
	/* Ask for a doorbell (or not) as the CQs' leases and arming demand. */
	void (*rearm)(struct sv_link *link);
	/* The deadline set by sv_deadline_set() has passed. */
	void (*timeout)(struct sv_link *link);
	/*
	 * Whether the peer has given a sign of life since the last call. owes:
	 * sends wait for it, and none has completed; it is asked for one.
	 */
	bool (*alive)(struct sv_link *link, bool owes);
	/* The peer has been silent for too long, and the QP is in error: what
	 * else hangs on the link shall end, too. NULL: nothing does. */
	void (*give_up)(struct sv_link *link);
	/* It has become qp->link: what was posted before it stood may go. */
	void (*enter)(struct sv_link *link);
	/* The engine shall call progress() soon, whoever else is polling. */
	void (*kick)(struct sv_link *link);
	/* Undoes whatever was done to make it, and frees it. No lock is held:
	 * waits for pollers and the engine to let go. */
	void (*close)(struct sv_link *link);
	/* The region with this key is withdrawn: waits, until then, for a copy
	 * from or to it that is under way. The link table's lock is held. */
	void (*quiesce)(struct sv_link *link, uint32_t key, uint64_t until_ns);
	/* Keys are leaving: their memory is touched now if it must be, and not
	 * any more. NULL: it never is but in one hold of qp->lock. */
	void (*withdraw)(struct sv_link *link);
	/* In a child of fork(): closes descriptors, no more. */
	void (*fork_child)(struct sv_link *link);
};

struct sv_link {
	const struct sv_link_ops *ops;
	struct sv_qp *qp; /* referenced */
	struct list node; /* link table lock: all links that stand */
	const struct sv_link_ops *stalled; /* by sv_stall.c: the real ones */
	atomic_bool attention; /* progress even if nothing came in */
	atomic_bool dead; /* peer is gone; written under qp->lock */
	uint32_t peer_qpn;
	uint32_t ops_refused; /* bits of enum ibv_wr_opcode; constant */
	struct list deadline_node; /* timer_lock */
	uint64_t deadline_ns; /* timer_lock; 0: none */
	uint64_t gone_due_ns; /* when sends to a peer that left fail; 0: no */
	uint32_t alive_done; /* sv_alive.c: sq.done at its last look, */
	uint32_t silent_ms; /* and for how long the peer has been silent */
};

/* sv_link.c. What poll() is if a link has no shorter way. */
bool sv_link_poll(struct sv_link *link, struct sv_cq_sink *sink);

/* sv_link.c. The table of links that stand. */
void sv_link_add(struct sv_link *link);
void sv_link_del(struct sv_link *link);

/* Whether the QP's state is one in which it takes messages. qp->lock. */
static inline bool sv_link_receives(const struct sv_link *link)
{
	enum ibv_qp_state state = link->qp->attr.qp_state;

	return state >= IBV_QPS_RTR && state < IBV_QPS_ERR;
}

/* A CQ of the QP is in error. */
static inline bool sv_link_overrun(const struct sv_link *link)
{
	const struct sv_qp *qp = link->qp;

	return atomic_load_explicit(&qp->scq->overrun, memory_order_relaxed) ||
	       atomic_load_explicit(&qp->rcq->overrun, memory_order_relaxed);
}

/* Either CQ is being polled; either wants an event. seq_cst: these come before
 * what the caller looks at next, see sv_lease_stop(). */
static inline bool sv_link_leased(const struct sv_link *link)
{
	return atomic_load(&link->qp->scq->leased) ||
	       atomic_load(&link->qp->rcq->leased);
}

static inline bool sv_link_armed(const struct sv_link *link)
{
	return atomic_load(&link->qp->scq->arm) != SV_ARM_NONE ||
	       atomic_load(&link->qp->rcq->arm) != SV_ARM_NONE;
}

/*
 * sv_link.c, what both kinds of link do alike. Caller holds qp->lock.
 *
 * target: len bytes of our memory as the peer names them,
 * or NULL if it has no right to them. grants_va: whether a key still gives
 * these rights to these bytes; an lkey too, with SV_ACCESS_LOCAL. atomic: fetch and add, or compare and
 * swap, at an aligned address; what was there before. rnr_ns: how long a message
 * waits for a receive if its sender tries so often.
 */
char *sv_link_target(const struct sv_link *link, uint32_t access, uint32_t rkey,
		     uint64_t addr, uint32_t len);
bool sv_link_grants_va(const struct sv_link *link, uint32_t access,
		       uint32_t key, const void *va, uint64_t len);
uint64_t sv_link_atomic(bool add, uint64_t *to, const struct sv_operands *arg);
uint64_t sv_link_rnr_ns(const struct sv_link *link, uint32_t retry);

/*
 * A peer that has left answers no more sends: gone starts the time that a NIC
 * would wait for an answer, if any send waits; gone_timeout fails them when that
 * is over, or sets the deadline anew. fail_sends: the oldest with RETRY_EXC_ERR,
 * or, if there is none, event, unless that is -1; and the QP with it. Then it is
 * the next to be posted that fails so.
 */
bool sv_link_sends_wait(struct sv_link *link);
void sv_link_gone(struct sv_link *link);
void sv_link_gone_timeout(struct sv_link *link, bool gone);
void sv_link_fail_sends(struct sv_link *link, int event);

/* sv_shm_seg.c */
void sv_peer_tbl_fork_child(void);

#endif
