/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The TCP link: iWARP (sv_iwarp.h) on a socket that the connection manager has
 * taken through the MPA exchange. Only its own files and the tests include this;
 * what makes one is in sv_int.h.
 *
 *	sv_tcp.c	what the QP layer and the engine call
 *	sv_tcp_life.c	making it, its two owners, its end
 *	sv_tcp_tx.c	the batch: frames put together and handed to the kernel
 *	sv_tcp_sq.c	the send queue into frames; acknowledgements
 *	sv_tcp_resp.c	answers to the peer's reads and atomics
 *	sv_tcp_rx.c	bytes into frames, and their payload where it belongs
 *	sv_tcp_msg.c	what a frame that came in means
 *	sv_tcp_alive.c	whether the peer is still there
 *	sv_tcp_ctl.c	control messages, Terminate, and how a link ends
 *
 * Two kinds of peer. Another softverbs (ext) acknowledges messages, tells how
 * many receives it has, and names the status of what it refuses; a send that
 * finds no receive waits there. Anyone else speaks plain iWARP: what TCP has
 * taken is complete, and what goes wrong ends in a Terminate.
 *
 * Two owners. The QP, until it is reset or destroyed, and the connection
 * manager, whose DREQ and DREP travel in the same stream. When both have let go
 * the stream is closed in order, and the engine frees the link. Everything here
 * is guarded by qp->lock, also when the QP has another link or is destroyed: the
 * link holds a reference on it.
 *
 * What keeps two peers from waiting for each other for ever: nobody blocks in
 * sending; nobody stops reading because it cannot send; and a message without a
 * receive parks the stream, but not what the link itself has to say. For that
 * a sender that does not know of receives for all it has sent has at most
 * SV_TCP_WINDOW bytes more on their way, so that the peer can read on, into its
 * staging buffer, and finds the acknowledgements behind.
 */
#ifndef SV_TCP_H
#define SV_TCP_H

#include "sv_engine.h"
#include "sv_iwarp.h"
#include "sv_link.h"
#include "sv_mpa.h"

enum {
	SV_TCP_RX_SIZE = 64 << 10, /* staging */
	SV_TCP_SLAB = 32 << 10, /* headers and small payloads of a batch */
	SV_TCP_IOVS = 192,
	SV_TCP_BATCH = 256 << 10, /* payload of a batch */
	SV_TCP_COPY_MAX = 512, /* payload that goes beside its header */
	SV_TCP_SEG = 32 << 10, /* payload of a frame, between softverbs */
	SV_TCP_WINDOW = 32 << 10,
	SV_TCP_DIRECT = 4096, /* payload that is read where it belongs */
	SV_TCP_KEEP = 4096, /* of staging and slab, for idle ones */
	SV_TCP_AHEAD = 64, /* bytes read behind it */
};

/* Where the payload of the segment at hand goes. */
enum sv_tcp_to {
	SV_TCP_TO_NOWHERE,
	SV_TCP_TO_SMALL,
	SV_TCP_TO_RECV,
	SV_TCP_TO_MEM,
	SV_TCP_TO_READ,
};

enum sv_tcp_rx_state {
	SV_TCP_RX_HDR,
	SV_TCP_RX_PAYLOAD,
	SV_TCP_RX_TAIL,
	SV_TCP_RX_DEAD, /* not understood: nothing is read any more */
};

/* What waits to be told to the peer, by the bits of sv_tcp.ctl. */
enum sv_tcp_ctl {
	SV_TCP_CTL_RTR = 1 << 0, /* the empty write that MPA wants */
	SV_TCP_CTL_PARAM = 1 << 1,
	SV_TCP_CTL_ACK = 1 << 2,
	SV_TCP_CTL_WANT = 1 << 3,
	SV_TCP_CTL_NAK = 1 << 4,
	SV_TCP_CTL_GONE = 1 << 5,
	SV_TCP_CTL_READY = 1 << 6, /* these three: connection manager's */
	SV_TCP_CTL_DREQ = 1 << 7,
	SV_TCP_CTL_DREP = 1 << 8,
	SV_TCP_CTL_BYE = 1 << 9, /* it has let go */
	SV_TCP_CTL_TERM = 1 << 10,
	SV_TCP_CTL_FIN = 1 << 11, /* our direction is closed behind it all */
	SV_TCP_CTL_PING = 1 << 12,
	SV_TCP_CTL_PONG = 1 << 13, /* the ACK goes even if there is nothing else */
};

/* How far a PING is. */
enum sv_tcp_ask_state {
	SV_TCP_ASK_NONE,
	SV_TCP_ASK_PUT, /* it is to go into a batch */
	SV_TCP_ASK_SENT, /* the kernel has it */
};

/* Whose memory an entry of the batch is; key 0: ours. */
struct sv_tcp_ref {
	uint32_t key;
	uint32_t access;
};

/* A read or an atomic of the peer's that is not answered yet. */
struct sv_tcp_ask {
	bool atomic;
	bool done; /* the atomic has been carried out: value */
	uint32_t done_len; /* of the read */
	union {
		struct sv_read_req read;
		struct sv_atomic_req req;
	};
	uint64_t value;
};

struct sv_tcp {
	struct sv_link link;
	int sock;
	bool ext;
	bool crc;
	uint32_t seg_max; /* payload of a frame */

	/* life */
	bool qp_side; /* the QP owns it */
	bool cm_side; /* the connection manager does */
	bool entered; /* it has been qp->link */
	bool closing; /* nobody does: the end of the stream is awaited */
	bool freed;
	bool eof; /* nothing comes any more; and what ended it: */
	int err; /* 0: the peer closed in order */
	bool fin_sent;
	bool need_wake; /* the engine shall look after it */
	uint32_t armed; /* the events that the engine waits for */
	atomic_bool open; /* polling it makes sense, from this time on: */
	_Atomic(uint64_t) rest_ns; /* 0: always */
	uint32_t empty; /* looks that found nothing, in a row */
	bool came; /* the last one found something */
	bool grown; /* staging or slab is large, and may be given back */
	struct sv_timer timer; /* engine: kick, linger */
	struct sv_defer defer;
	void (*cm_fn)(struct sv_link *link);
	void *cm; /* connection manager's, under its lock */
	uint32_t cm_events; /* enum sv_tcp_cm_event */

	/* what the peer is to be told */
	uint32_t ctl; /* enum sv_tcp_ctl */
	uint32_t gone_state;
	uint32_t nak_status;
	uint16_t term_err;
	uint8_t rnr_told;
	bool hold; /* first something must come in, or this time come: */
	uint64_t rtr_due_ns; /* 0: no */
	bool acked; /* since the last look an ACK has gone, alone */
	uint8_t answers; /* how often a message of ours then followed */
	bool refusing; /* as soon as all asks are answered: */
	bool refuse_kill; /* the QP dies of it, with */
	int refuse_event;

	/* sv_tcp_alive.c: at its last look */
	uint64_t seen_in; /* bytes that had come, */
	uint64_t seen_acked; /* that were acknowledged, */
	uint64_t ask_end; /* that had been sent, with the question */
	enum sv_tcp_ask_state ask_state;

	/* what it told us */
	uint32_t peer_gone; /* enum sv_ctrl_gone; 0: it is there */
	uint8_t peer_rnr_retry;
	bool peer_wants; /* to hear of receives, */
	uint32_t recvs_wanted; /* this many */

	/* receiving */
	_Alignas(CACHELINE) uint8_t *rx_buf;
	uint32_t rx_off;
	uint32_t rx_len;
	enum sv_tcp_rx_state rx_state;
	enum sv_tcp_to to;
	struct sv_ddp seg;
	uint32_t seg_left;
	uint32_t seg_done; /* bytes of the segment that are placed */
	uint32_t rx_crc;
	bool rx_big; /* the last segment was */
	bool rx_stop; /* nothing but control is taken any more */
	bool parked; /* the segment at hand waits for a receive */
	bool send_open; /* a send has begun */
	bool first_came;
	uint32_t peeked; /* rx_len when we looked behind it */
	uint32_t send_len; /* bytes of that send */
	uint32_t write_len; /* of the write under way, or of the last */
	bool write_open;
	uint32_t send_msn; /* last one of each queue */
	uint32_t req_msn;
	uint32_t answer_msn;
	uint32_t ctrl_msn;
	uint32_t rx_msgs; /* messages taken */
	uint32_t told_msgs;
	uint32_t told_recvs;
	uint64_t rnr_due_ns; /* until when the parked one waits; 0: for ever */
	uint32_t rnr_msg;
	uint8_t small[UINT8_MAX + 1]; /* longest Terminate that is known */

	/* asked of us: a ring */
	uint32_t ask_first;
	uint32_t ask_cnt;
	struct sv_tcp_ask *asks;

	/* sending */
	_Alignas(CACHELINE) uint8_t *slab;
	uint32_t slab_used;
	uint32_t iov_first;
	uint32_t iov_cnt;
	uint32_t batch_len;
	bool blocked; /* the socket took no more */
	bool pushing;
	void *tail; /* what is left of a batch when the QP dies */
	uint32_t tx_msgs; /* messages put into batches */
	uint32_t tx_acked; /* of those, done with */
	uint32_t tx_send_msn;
	uint32_t tx_req_msn;
	uint32_t tx_answer_msn;
	uint32_t tx_ctrl_msn;
	uint32_t recvs_sent; /* messages sent that take a receive */
	uint32_t credits; /* receives that the peer has told of */
	uint32_t over; /* bytes sent since there were too few */
	bool wanting; /* the peer has been told that there are */
	bool tx_stop; /* a failed WR waits for its turn to complete */
	bool tx_mid; /* in the middle of a WR */
	bool resp_mid; /* in the middle of an answer */
	uint32_t rd_cnt; /* WRs that wait for an answer */
	uint32_t rd_wr; /* the oldest of them */
	uint32_t refused; /* ibv_wc_status of the oldest WR; 0: none */
	struct iovec iov[SV_TCP_IOVS];
	struct sv_tcp_ref ref[SV_TCP_IOVS];
};

static inline struct sv_tcp *sv_tcp(struct sv_link *link)
{
	return container_of(link, struct sv_tcp, link);
}

/* It is the QP's link: the QP's state and queues may be looked at. */
static inline bool sv_tcp_attached(const struct sv_tcp *tcp)
{
	return tcp->link.qp->link == &tcp->link;
}

static inline bool sv_tcp_batch_empty(const struct sv_tcp *tcp)
{
	return tcp->iov_first == tcp->iov_cnt;
}

/* How we name, to the peer, the WR that waits for an answer. Never 0. */
static inline uint32_t sv_tcp_sink(uint32_t wr)
{
	return (wr & 0xffffff) << 8 | 1;
}

/* All below: caller holds qp->lock. */

/*
 * sv_tcp.c. tell_cm: bits for the connection manager, which the engine tells. arm:
 * the engine waits for what may come. stop: the QP no longer takes or asks
 * anything. on_socket, on_timer: for the engine; no lock is held.
 */
extern const struct sv_link_ops sv_tcp_ops;
void sv_tcp_tell_cm(struct sv_tcp *tcp, uint32_t events);
void sv_tcp_arm(struct sv_tcp *tcp);
void sv_tcp_stop(struct sv_tcp *tcp, uint32_t gone_state);
void sv_tcp_on_socket(void *arg, uint32_t events);
void sv_tcp_on_timer(void *arg);

/*
 * sv_tcp_life.c. shrink: it is idle: memory is given back. may_go: nobody owns
 * it, and its end is seen; then gone() has to be called, without the lock.
 */
void sv_tcp_shrink(struct sv_tcp *tcp);
bool sv_tcp_may_go(struct sv_tcp *tcp);
void sv_tcp_gone(struct sv_tcp *tcp);
void sv_tcp_close(struct sv_link *link);

/*
 * sv_tcp_tx.c. room: for one more frame. put: a frame with its payload flat, as
 * much of it as ddp->payload_len says. put_swr: from the WR's offset on; false if
 * its memory is no longer registered. put_mem: from memory of ours that the peer
 * named. push: sends what there is to send; ack: also acknowledgements, if there
 * is nothing else. freeze: what is in the batch no longer refers to memory of the
 * application. withdraw: nor to memory whose key is leaving.
 */
bool sv_tcp_room(const struct sv_tcp *tcp);
void sv_tcp_put(struct sv_tcp *tcp, const struct sv_ddp *ddp, const void *data);
bool sv_tcp_put_swr(struct sv_tcp *tcp, const struct sv_ddp *ddp,
		    struct sv_swr *swr, uint32_t offset);
void sv_tcp_put_mem(struct sv_tcp *tcp, const struct sv_ddp *ddp,
		    const struct sv_tcp_ref *ref, const void *mem);
void sv_tcp_push(struct sv_tcp *tcp, bool ack);
void sv_tcp_freeze(struct sv_tcp *tcp);
void sv_tcp_withdraw(struct sv_tcp *tcp);

/* sv_tcp_sq.c. one: puts one frame into the batch; false: none can go now. */
bool sv_tcp_sq_one(struct sv_tcp *tcp);
void sv_tcp_acks(struct sv_tcp *tcp);
void sv_tcp_answered(struct sv_tcp *tcp);

/* sv_tcp_resp.c. one: as above. add: true, or there are more than allowed. */
bool sv_tcp_resp_one(struct sv_tcp *tcp);
bool sv_tcp_ask_add(struct sv_tcp *tcp, const struct sv_tcp_ask *ask);
void sv_tcp_asks_drop(struct sv_tcp *tcp);

/* sv_tcp_rx.c. drain: true if there may be more. */
bool sv_tcp_drain(struct sv_tcp *tcp);

/* sv_tcp_alive.c, as in struct sv_link_ops */
bool sv_tcp_alive(struct sv_link *link, bool owes);
void sv_tcp_give_up(struct sv_link *link);

/*
 * sv_tcp_msg.c. begin: false if the segment has to wait. dest: where the next len
 * bytes of its payload go; -1 if they may not, and the peer has been told. end:
 * the segment is complete and intact.
 */
bool sv_tcp_seg_begin(struct sv_tcp *tcp);
int sv_tcp_seg_dest(struct sv_tcp *tcp, uint32_t len, struct iovec *iov);
void sv_tcp_seg_end(struct sv_tcp *tcp);

/*
 * sv_tcp_ctl.c. fill: puts into the batch what waits in ctl. take: a control
 * message in tcp->small. refuse: the message at hand, with this status for its
 * sender, this event for our QP unless it is -1. nonsense: the peer broke the
 * rules. credit: tells of receives if that is asked for. lost: the stream has
 * ended.
 */
void sv_tcp_ctl_fill(struct sv_tcp *tcp, bool ack);
void sv_tcp_ctl_take(struct sv_tcp *tcp, const struct sv_ddp *ddp,
		     const uint8_t *data);
void sv_tcp_term_take(struct sv_tcp *tcp);
void sv_tcp_refuse(struct sv_tcp *tcp, enum ibv_wc_status status, int event,
		   enum sv_term_code err);
void sv_tcp_refuse_now(struct sv_tcp *tcp);
void sv_tcp_no_recv(struct sv_tcp *tcp);
void sv_tcp_nonsense(struct sv_tcp *tcp, enum sv_term_code err);
void sv_tcp_credit(struct sv_tcp *tcp);
void sv_tcp_lost(struct sv_tcp *tcp);

#endif
