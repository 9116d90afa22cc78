/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The shared-memory link: its layout, its state. Only its own files and the
 * tests include this.
 *
 * Each side of a connection owns one segment, a sealed memfd that both map:
 *
 *	header	static words, then one line per writer (see struct sv_seg)
 *	slots	ring of messages that the owner receives
 *	data	ring of bytes for messages too long for a slot
 *	resp	ring of bytes that answer the owner's atomics, and its reads if
 *		there is no CMA
 *	lift	ring of bytes of messages that the owner was to read out of its
 *		peer's memory, and may not any more
 *
 * A slot is published by storing the lap number in its seq word, so that the
 * receiver looks at one cache line only; it is given back, and acknowledged,
 * by moving seg->head. Everything in a peer's segment, and whatever the peer
 * writes into ours, is hostile: copied once, masked, checked.
 */
#ifndef SV_SHM_H
#define SV_SHM_H

#include "sv_link.h"

#include <endian.h>

#define SV_SEG_MAGIC 0x3167655376ull
#define SV_HELLO_MAGIC 0x316f6c6c65487653ull

enum {
	SV_LINK_VERSION = 5,
	SV_SLOT_CNT = 128,
	SV_SLOT_DATA = 96,
	SV_EAGER_MAX = 8192, /* longer messages are pulled by the receiver */
	SV_DATA_SIZE = 128 << 10,
	SV_RESP_SIZE = 64 << 10,
	SV_LIFT_SIZE = 64 << 10,
	SV_SLICE = 1 << 20, /* direct copy between two looks at the MR */
	SV_POST_BUDGET = 1 << 20, /* direct copy within one call */
};

enum sv_slot_op {
	SV_OP_SEND = 1,
	SV_OP_PULL, /* data: SGEs of the sender, to be read from its memory */
	SV_OP_WRITE,
	SV_OP_WRITTEN, /* immediate that follows a direct write */
	SV_OP_READ,
	SV_OP_CMP_SWP, /* data: struct sv_operands */
	SV_OP_FETCH_ADD, /* the same */
};

/* How a send WR goes. */
enum sv_tx_mode {
	SV_TX_UNSET,
	SV_TX_SLOT,
	SV_TX_PULL,
	SV_TX_PIECES,
	SV_TX_DIRECT,
	SV_TX_LOCAL, /* BIND_MW, LOCAL_INV: goes nowhere */
	SV_TX_ASK, /* READ through the ring, atomic: waits for an answer */
};

enum sv_slot_flags {
	SV_SLOT_RING = 1 << 0, /* payload is in the data ring */
	SV_SLOT_FIRST = 1 << 1,
	SV_SLOT_LAST = 1 << 2,
	SV_SLOT_IMM = 1 << 3,
	SV_SLOT_SOLICITED = 1 << 4,
	SV_SLOT_INV = 1 << 5, /* imm is a key to invalidate */
};

struct sv_slot {
	atomic_uint seq;
	union {
		struct {
			uint8_t op;
			uint8_t flags;
			uint16_t cnt; /* SGEs of a PULL, else 0 */
		};
		uint32_t what; /* all three: sv_slot_what() */
	};
	uint32_t imm; /* network order, as the application gave it, or a key */
	uint32_t len; /* payload bytes with this slot */
	uint32_t pos; /* of the payload in the data ring */
	union {
		uint32_t rkey; /* WRITE, READ, atomics */
		uint32_t total; /* message length: SEND, PULL, WRITTEN */
	};
	uint64_t raddr;
	uint8_t data[SV_SLOT_DATA];
};

static_assert(sizeof(struct sv_slot) == 2 * CACHELINE, "two lines");
static_assert(offsetof(struct sv_slot, data) == 32, "header is 32 bytes");

static inline uint32_t sv_slot_what(uint32_t op, uint32_t flags)
{
	return htole32(op | flags << 8);
}

static inline uint8_t sv_slot_flags(uint32_t what)
{
	return (uint8_t)(le32toh(what) >> 8);
}

/* What the owner of a segment lets its peer see of the QP. */
enum sv_seg_state {
	SV_SEG_WAIT, /* not yet ready to receive */
	SV_SEG_OPEN,
	SV_SEG_ERROR,
	SV_SEG_CLOSED,
};

struct sv_seg {
	uint64_t magic;
	uint32_t version;
	uint32_t size;

	/* written by the owner */
	_Alignas(CACHELINE) atomic_uint head; /* slots consumed */
	atomic_uint resp_head; /* bytes taken from resp */
	atomic_uint lift_head; /* and from lift */
	_Alignas(CACHELINE) atomic_uint rq_posted; /* receives ever posted */
	_Alignas(CACHELINE) atomic_uint state; /* enum sv_seg_state */
	atomic_uint access; /* qp_access_flags */
	atomic_uint pull_ok; /* the owner can read its peer's memory; 0 is final */
	atomic_uint rd_depth; /* max_dest_rd_atomic */
	atomic_uint rnr_retry; /* of the owner's sends; 7: for ever */
	atomic_uint answer; /* the last ask that the owner's engine has seen */

	/* set by the owner, taken by the peer with the duty to ring */
	_Alignas(CACHELINE) atomic_uint wake;

	/* written by the peer */
	_Alignas(CACHELINE) atomic_uint busy; /* rkey, or SV_BUSY_PULL */
	atomic_uint fault; /* ibv_event_type the owner's QP dies of */
	atomic_uint nak; /* ibv_wc_status of the owner's slot peer->head */
	atomic_uint ask; /* for a sign of life: numbered */
	_Alignas(CACHELINE) atomic_uint resp_tail; /* bytes put into resp */
	atomic_uint lift_tail; /* and into lift */

	_Alignas(4096) struct sv_slot slots[SV_SLOT_CNT];
	char data[SV_DATA_SIZE];
	char resp[SV_RESP_SIZE];
	char lift[SV_LIFT_SIZE];
};

/* A key is never this: see sv_key_add(). */
#define SV_BUSY_PULL UINT32_MAX

/* A peer process's table, mapped once however many links lead there. */
struct sv_peer_tbl {
	struct list node;
	dev_t dev;
	ino_t ino;
	int refs;
	const struct sv_mr_ent *tbl;
};

struct sv_shm {
	struct sv_link link;

	struct sv_seg *own;
	struct sv_seg *peer;
	struct sv_peer_tbl *peer_tbl; /* NULL if the peer is ourselves */
	const struct sv_mr_ent *mr_tbl;
	int own_fd; /* until attached */
	int bell_fd; /* rung by the peer */
	int peer_bell_fd;
	int sock_fd;
	uint64_t down_until_ns; /* for waits while it is taken down; 0: none yet */
	pid_t pid;
	uint32_t peer_pd;
	uint32_t peer_window;
	bool in_process;
	bool cma_ok; /* we can reach the peer's memory */
	bool cma_lost; /* we could: see sv_shm_lift.c */
	uint8_t nonce[32];

	/* receiving */
	_Alignas(CACHELINE) atomic_uint rx_next;
	uint32_t rx_published; /* what own->head says */
	uint32_t rx_len; /* message in pieces: bytes so far, total of a SEND */
	uint32_t rx_total;
	union {
		struct {
			uint8_t rx_partial; /* its op; 0: there is none */
			bool rx_stop; /* nothing is taken any more */
			bool rd_serving; /* an answer waits for room, or a
					  * message for its bytes */
			bool tx_rung; /* a slot or head is new for the peer
				       * since the last ring */
		};
		uint32_t poll_long; /* any of them: not by poll_short() */
	};
	atomic_bool rx_on; /* a filled slot means work; for ring_work() */
	atomic_bool tx_watch; /* a moved head does: see sv_shm_watch() */
	uint32_t rd_sent; /* READ being answered: bytes so far */
	uint32_t rd_tail; /* what we have written to peer->resp_tail */
	uint32_t rnr_slot; /* the slot that waits for a receive, */
	uint64_t rnr_due_ns; /* and until when; 0: for ever */
	uint32_t lift_len; /* message being lifted: bytes so far */
	uint32_t lift_head; /* what own->lift_head says */

	/* sending */
	_Alignas(CACHELINE) atomic_uint tx_acked;
	uint32_t tx_next;
	uint32_t data_next;
	uint32_t data_acked;
	uint32_t recvs_sent; /* messages sent that take a receive */
	uint32_t tx_due; /* index behind the newest WR that will complete */
	union {
		struct {
			bool tx_stop; /* a failed WR waits for its turn to
				       * complete */
			bool tx_lift; /* messages wait for room in lift */
		};
		uint16_t tx_long; /* either of them: not by push_short() */
	};
	bool tx_pulls; /* PULLs may be on their way, */
	uint32_t pull_end; /* the newest with the index before this */
	uint32_t lift_tail; /* what we have written to peer->lift_tail */
	bool ack_rung; /* as tx_rung, head only */
	uint32_t rd_cnt; /* WRs that wait for an answer */
	uint32_t rd_wr; /* the oldest of them */
	uint32_t rd_head; /* what own->resp_head says */
	uint32_t asked; /* what peer->ask says */
	uint32_t data_end[SV_SLOT_CNT];
};

/* sv_shm_down.c */
/* Waits until the peer is not copying. All waits of one link together are bounded
 * by a second. */
void sv_shm_wait_copies(struct sv_shm *shm);
void sv_shm_close(struct sv_link *link);
void sv_shm_quiesce(struct sv_link *link, uint32_t key, uint64_t until_ns);
void sv_shm_fork_child(struct sv_link *link);

static inline struct sv_shm *sv_shm(struct sv_link *link)
{
	return container_of(link, struct sv_shm, link);
}

/* sv_shm_seg.c: segments and peer tables. Positive errno. */
int sv_seg_create(struct sv_seg **out, int *fd) __must_check;
int sv_seg_map_peer(int fd, struct sv_seg **out) __must_check;
void sv_seg_unmap(struct sv_seg *seg);
int sv_peer_tbl_get(int fd, struct sv_peer_tbl **out) __must_check;
void sv_peer_tbl_put(struct sv_peer_tbl *tbl);

/*
 * sv_cma.c: access to the peer's memory. sv_shm_direct() runs a WRITE or READ from
 * swr->offset on, at most *budget bytes; caller holds qp->lock. Returns true
 * when the WR is finished, with its status. If it, or sv_shm_pull(), leaves cma_ok
 * false, nothing is finished: it has to go another way, from its beginning.
 */
bool sv_cma_enabled(void);
bool sv_cma_probe(pid_t pid, uint64_t addr, const uint8_t nonce[32]);
void sv_cma_allow(void);
bool sv_shm_direct(struct sv_shm *shm, struct sv_swr *swr, size_t *budget,
	       enum ibv_wc_status *status);
enum ibv_wc_status sv_shm_pull(struct sv_shm *shm, const struct ibv_sge *from,
			   int from_cnt, struct sv_rwr *rwr, uint32_t total);

/*
 * sv_shm_lift.c: what becomes of PULLs when the receiver may no longer read the
 * sender's memory. lost: we may not; look: does the peer still? push: on with
 * what it was to read; take: is the message all there, in rwr, or *broken?
 * Caller holds qp->lock.
 */
void sv_shm_cma_lost(struct sv_shm *shm);
void sv_shm_lift_look(struct sv_shm *shm);
void sv_shm_lift_push(struct sv_shm *shm);
bool sv_shm_lift_take(struct sv_shm *shm, const struct sv_rwr *rwr,
		      uint32_t total, bool *broken);

/*
 * sv_shm.c, sv_shm_ack.c, sv_shm_poll.c, sv_shm_short.c, sv_shm_tx.c,
 * sv_shm_rx.c. Caller holds qp->lock, but for pending and poll. acks: completes what the
 * peer has taken. push: all that may go now, push_any the same without the short
 * way; drain: takes what has come, likewise. pending, poll, progress, send: as
 * in struct sv_link_ops.
 */
bool sv_shm_pending(struct sv_link *link);
bool sv_shm_poll(struct sv_link *link, struct sv_cq_sink *sink);
void sv_shm_progress(struct sv_link *link);
void sv_shm_check_peer(struct sv_shm *shm);
void sv_shm_push(struct sv_shm *shm);
void sv_shm_push_any(struct sv_shm *shm);
struct ibv_send_wr *sv_shm_send(struct sv_link *link, struct ibv_send_wr *wr);
void sv_shm_acks(struct sv_shm *shm);
void sv_shm_drain(struct sv_shm *shm);
void sv_shm_ring_hard(struct sv_shm *shm);
void sv_shm_kick_self(struct sv_shm *shm);
bool sv_shm_peer_open(struct sv_shm *shm);
void sv_shm_protocol_error(struct sv_shm *shm);

static inline bool sv_shm_peer_gone(const struct sv_shm *shm)
{
	return atomic_load(&shm->peer->state) >= SV_SEG_ERROR;
}

static inline bool sv_shm_receives(const struct sv_shm *shm)
{
	return !shm->rx_stop && sv_link_receives(&shm->link);
}

/*
 * Whether somebody waits for what the peer's head will say: a completion that
 * the application wants, or a queue that stands still. Else the head is left
 * alone, and catching up can wait: each look at it takes its line from the peer,
 * which then waits for that line at the next message. To be called when any of
 * that may have changed.
 */
static __hot_inline void sv_shm_watch(struct sv_shm *shm)
{
	struct sv_qp *qp = shm->link.qp;
	const enum ibv_qp_state state = qp->attr.qp_state;

	atomic_store_explicit(&shm->tx_watch,
			      (state == IBV_QPS_RTS &&
			       ((int32_t)(shm->tx_due - qp->sq.done) > 0 ||
				qp->sq.sent != sv_wq_posted(&qp->sq) ||
				shm->tx_stop)) ||
				      state == IBV_QPS_SQD,
			      memory_order_relaxed);
}

/* This WR, with the index before next, has been sent. */
static __hot_inline void sv_shm_watch_sent(struct sv_shm *shm,
					   const struct sv_swr *swr,
					   uint32_t next)
{
	if (swr->flags & IBV_SEND_SIGNALED)
		shm->tx_due = next;
}

/* Whether the peer has taken slots since the last look. */
static inline bool sv_shm_head_moved(const struct sv_shm *shm)
{
	return atomic_load_explicit(&shm->peer->head, memory_order_relaxed) !=
	       atomic_load_explicit(&shm->tx_acked, memory_order_relaxed);
}

/* The same, if anybody wants to know. */
static __hot_inline bool sv_shm_acks_wanted(const struct sv_shm *shm)
{
	return atomic_load_explicit(&shm->tx_watch, memory_order_relaxed) &&
	       sv_shm_head_moved(shm);
}

/*
 * sv_shm_resp.c: the ring of answers. put: as many of len bytes as fit, or -1
 * if the peer broke its rules; room: how many would. take: scatters what has
 * come in to the WRs that wait for it. Caller holds qp->lock.
 */
int64_t sv_shm_resp_room(struct sv_shm *shm);
int64_t sv_shm_resp_put(struct sv_shm *shm, const void *data, uint32_t len);
void sv_shm_resp_take(struct sv_shm *shm);

#endif
