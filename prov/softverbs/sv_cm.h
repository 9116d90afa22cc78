/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The connection manager's structs, and its prototypes by file.
 *
 *	sv_cm_event.c	event channels; queueing, fetching, acknowledging
 *	sv_cm_id.c	ids: create, bind, resolve, options, destroy
 *	sv_cm_call.c	connect, accept, reject, establish, disconnect
 *	sv_cm_attr.c	paths, and the attributes of QPs
 *	sv_cm_qp.c	what the device's look means for a connection
 *	sv_cm_conn.c	one TCP connection: buffers, messages, end of life
 *	sv_cm_active.c	what the connecting side does, step by step
 *	sv_cm_passive.c	the same for the accepting side
 *	sv_cm_listen.c	listeners
 *	sv_rdv.c	QPs that find each other without rdma_cm
 *	sv_cm_tcp.c	which link it is to be; going on with this TCP connection
 *	sv_handover.c	same-host proof, passing of the link; the connecting end
 *	sv_handover_serve.c	its accepting end: the UNIX socket and its guests
 *	sv_fault_cm.c	what goes wrong on purpose
 *	sv_addr.c	addresses
 *
 * Locking. One lock, sv_cm.lock, guards every struct below. Public calls and
 * engine handlers take it and do everything under it; no socket of ours blocks.
 * The order is sv_cm.lock, then what sv_int.h lists, then the engine's lock.
 * Only destroy_id and migrate_id sleep (on sv_id.acked, which drops the lock).
 *
 * After fork() the child may use what it makes anew. What it inherited is dead:
 * calls fail with ENODEV, and destroying frees the memory and no more.
 *
 * Lifetimes. An id lives from create (or from the connection request, for the
 * passive side) to destroy. A conn is one TCP connection with what was read and
 * not yet written; it belongs to its id once it has one, and goes when the
 * TCP connection has served. Ids and conns are freed through the engine
 * (sv_engine_defer), because a handler may hold their address; such a handler
 * finds ->dead set. Events live from queueing to acknowledgement.
 *
 *              an id's states                          a conn's phases
 *
 *  IDLE ──bind──► BOUND ──listen──► LISTEN      active            passive
 *    └──resolve─────┴──► ADDR_RESOLVED
 *                          │ resolve_route      TCP               REQUEST
 *                        ROUTE_RESOLVED         REPLY             HELLO
 *    (passive)             │ connect            ACCEPT            USER
 *  REQUESTED ──────┐     CONNECTING             HANDOVER          HANDOVER
 *    │ reject      │accept │                    UP                READY
 *    │             │     RESPONDED                                UP
 *    │        ACCEPTED     │ establish
 *    ▼             └──► CONNECTED ──disconnect──► DISCONNECTING
 *  FAILED ◄── any failure   └── peer's DREQ, EOF ──► DISCONNECTED ◄─┘
 *
 * A conn that is made for a rendezvous (sv_rdv.c) has no id. It goes through the
 * same phases, but for USER, and ends with READY.
 */
#ifndef SV_CM_H
#define SV_CM_H

#include "sv_int.h"
#include "sv_engine.h"
#include "sv_fault.h"
#include "sv_mpa.h"

enum {
	SV_CM_PD_MAX = 255,	/* of any look: see sv_persona.pd_max */

	/* Reasons of a rejection, as InfiniBand's CM numbers them: what an
	 * event says of them is sv_id_reject_status(). */
	SV_CM_REJ_TIMEOUT = 4,
	SV_CM_REJ_INVALID_SERVICE = 8,
	SV_CM_REJ_CONSUMER = 28,

	SV_CM_REQUEST_MS = 5000,	/* accepted, no request yet */
	SV_CM_HELLO_MS = 10000,		/* connect to the peer's first word */
	/* HELLO to reply: the peer's application may take its time, as it
	 * may on RoCE, where 16 tries of 4.3 s are made */
	SV_CM_REPLY_MS = 68000,
	SV_CM_HANDOVER_MS = 20000,	/* reply to link */
	SV_CM_READY_MS = 30000,		/* link to the peer's establish */
	SV_CM_DREQ_MS = 1000,		/* disconnect to its answer */
	SV_CM_TIMEWAIT_MS = 1000,

	SV_CM_MAX_BACKLOG = 1024,	/* also for backlog <= 0 */
	SV_CM_MAX_HALF_OPEN = 256,	/* accepted, no request yet; process */
	SV_CM_RX_SIZE = 1024,
	SV_CM_TX_SIZE = 1024,
};

enum sv_id_state {
	SV_ID_IDLE,
	SV_ID_BOUND,
	SV_ID_ADDR_RESOLVED,
	SV_ID_ROUTE_RESOLVED,
	SV_ID_LISTEN,
	SV_ID_CONNECTING,
	SV_ID_RESPONDED,
	SV_ID_REQUESTED,
	SV_ID_ACCEPTED,
	SV_ID_CONNECTED,
	SV_ID_DISCONNECTING,
	SV_ID_DISCONNECTED,
	SV_ID_FAILED,
};

enum sv_conn_phase {
	SV_CONN_TCP,		/* active: TCP connection under way */
	SV_CONN_REPLY,		/* request sent, HELLO or reply awaited */
	SV_CONN_ACCEPT,		/* reply read, ACCEPT awaited */
	SV_CONN_REQUEST,	/* passive: request awaited */
	SV_CONN_HELLO,		/* HELLO sent, the peer's awaited */
	SV_CONN_USER,		/* accept or reject awaited */
	SV_CONN_HANDOVER,	/* both: link being made */
	SV_CONN_READY,		/* passive: peer's READY awaited */
	SV_CONN_UP,
};

struct sv_rdv;

struct sv_channel {
	struct rdma_event_channel channel;	/* first: public */
	struct list events;	/* sv_event.node */
	unsigned int refs;	/* the user's, one per id, one per waiter */
	unsigned int waiters;	/* threads that wait for an event */
	bool destroyed;
	unsigned int process;	/* sv_cm.process when it was made */
};

struct sv_event {
	struct rdma_cm_event event;	/* first: public */
	struct list node;		/* queued, or its id's reserve */
	struct sv_id *counted;		/* whose destroy waits for the ack */
	struct sv_id *child;		/* CONNECT_REQUEST: the id it brings */
	uint8_t pd[SV_CM_PD_MAX];
};

struct sv_listener {
	bool on;
	int sock;		/* its owner's */
	struct sv_id *id;	/* NULL: of QPs' numbers, see sv_rdv.c */
	unsigned int backlog;
	unsigned int pending;	/* requests queued and not fetched */
	struct sv_timer pause;	/* until when nothing is accepted */
};

struct sv_id {
	struct rdma_cm_id id;	/* first: public */
	struct list node;	/* sv_cm.ids */
	struct sv_defer defer;
	enum sv_id_state state;
	unsigned int process;	/* sv_cm.process when it was made */
	bool dead;		/* destroyed, on its way to being freed */
	bool sync;		/* made without a channel */
	bool fetched;		/* the user knows it */
	int sock;		/* bound or listening; -1 once a conn has it */
	struct sv_conn *conn;
	struct sv_listener listener;
	struct ibv_sa_path_rec *path;	/* what route.path_rec points to */
	struct sv_qp *qp;	/* where the connection owns it: referenced */
	struct sv_timer qp_ended;	/* qp->lock */

	unsigned int events_got;	/* fetched by the user */
	unsigned int events_acked;
	pthread_cond_t acked;
	struct list reserve;	/* sv_event, for when memory is short */
	struct sv_timer timewait;

	/* Options. */
	uint8_t tos;
	bool tos_set;
	bool reuse_addr;
	bool keep_port;
	bool af_only;
	bool af_only_set;
	uint8_t ack_timeout;	/* 0: not set */

	/* For the QP's attributes. */
	uint32_t psn;
	struct sv_ctrl_conn remote;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry_cnt;	/* the active side's, for both */
};

struct sv_conn {
	struct list node;	/* sv_cm.conns, oldest first */
	uint64_t since_ns;
	struct sv_defer defer;
	enum sv_conn_phase phase;
	bool dead;
	bool passive;
	bool dreq_sent;
	int sock;
	struct sv_id *id;	/* NULL: half open, no request yet */
	struct sv_rdv *rdv;	/* or this; until the link stands */
	struct sv_listener *listener; /* passive, until the request was read */
	struct sv_timer timer;
	struct sv_mpa mpa;	/* the peer's frame */
	struct sv_ctrl hello;	/* the peer's HELLO; type 0: none came */
	uint8_t token[SV_TOKEN_LEN];	/* ours */

	/* Hand-over. */
	struct sv_qp *qp;
	struct sv_link *link;
	int unix_sock;		/* active side's, until the link has it */
	bool foreign;		/* the peer is no softverbs */
	bool use_tcp;		/* the link will be this connection, */
	struct sv_link *stream;	/* and is: sock is -1 then */
	struct sv_timer retry;	/* acceptor's queue was full */

	uint32_t tx_msn;
	uint32_t rx_msn;
	size_t rx_len;
	size_t tx_len;
	uint32_t watched;	/* what the engine waits for */
	uint8_t rx[SV_CM_RX_SIZE];
	uint8_t tx[SV_CM_TX_SIZE];
	struct sv_mpa own;	/* our frame, as long as it waits to be sent */
	struct sv_ctrl_conn own_conn;	/* what we tell beside it */
};

struct sv_cm {
	struct lock lock;
	unsigned int process;	/* grows with fork(): tells what is inherited */
	bool atfork;		/* handlers are registered */
	struct list ids;	/* sv_id.node */
	struct list conns;	/* sv_conn.node */
	unsigned int half_open;	/* conns without an id */
};

extern struct sv_cm sv_cm;

static inline struct sv_id *sv_id(struct rdma_cm_id *id)
{
	return container_of(id, struct sv_id, id);
}

static inline struct sv_channel *sv_channel(struct rdma_event_channel *channel)
{
	return container_of(channel, struct sv_channel, channel);
}

static inline struct sv_event *sv_event(struct rdma_cm_event *event)
{
	return container_of(event, struct sv_event, event);
}

/*
 * sv_addr.c. No lock needed. check: 0, or EAFNOSUPPORT/EINVAL if this is no
 * IPv4 or IPv6 address. source: fills src with the address that a datagram to
 * dst would leave from; 0 or a positive errno. unmap: ::ffff:1.2.3.4 becomes
 * 1.2.3.4. of_gid: the address that RoCE writes as this GID, port 0; ifindex is
 * for those that mean something on one link only; EINVAL if nobody can be reached
 * there.
 */
int sv_addr_check(const struct sockaddr *addr);
socklen_t sv_addr_len(const struct sockaddr *addr);
bool sv_addr_is_any(const struct sockaddr *addr);
void sv_addr_copy(struct sockaddr_storage *dst, const struct sockaddr *src);
void sv_addr_any(struct sockaddr_storage *addr, sa_family_t family);
void sv_addr_loopback(struct sockaddr_storage *addr);
void sv_addr_unmap(struct sockaddr_storage *addr);
uint16_t sv_addr_port(const struct sockaddr *addr);
void sv_addr_set_port(struct sockaddr_storage *addr, uint16_t port);
int sv_addr_source(const struct sockaddr *dst, const struct sockaddr *bound,
		   struct sockaddr_storage *src);
int sv_addr_of_gid(const union ibv_gid *gid, uint32_t ifindex,
		   struct sockaddr_storage *addr);

/*
 * sv_cm_event.c. Caller holds sv_cm.lock.
 *
 * event_new: for this id, from its reserve if memory is short; or NULL.
 * event_push: makes an event without more data and queues it. drop: frees what
 * is queued for the id and not fetched, with the ids that it would have
 * brought.
 */
struct sv_channel *sv_channel_new(void);
void sv_channel_put(struct sv_channel *channel);
int sv_event_reserve(struct sv_id *id);
struct sv_event *sv_event_new(struct sv_id *id, enum rdma_cm_event_type type,
			      int status);
void sv_event_set_pd(struct sv_event *event, enum sv_cm_msg msg, const void *pd,
		     size_t len);
void sv_event_queue(struct sv_event *event);
/* enqueue: the same, past faults. discard: one that is on no queue, with the id
 * that it would have brought, unless that is but. */
void sv_event_enqueue(struct sv_event *event);
void sv_event_discard(struct sv_event *event, const struct sv_id *but);
void sv_event_push(struct sv_id *id, enum rdma_cm_event_type type, int status);
void sv_event_drop(struct sv_id *id);
/* For ids without a channel: waits for the event. Caller holds no lock. */
int sv_event_complete(struct sv_id *id, int ret);

/*
 * sv_cm_id.c. Caller holds sv_cm.lock. new: an id in state IDLE. bind_verbs:
 * sets id->verbs and port_num, 0 or a positive errno. close: ends whatever the
 * id does, without an event. free: after close.
 */
struct sv_id *sv_id_new(struct sv_channel *channel, void *context,
			enum rdma_port_space ps);
int sv_id_bind_verbs(struct sv_id *id);
void sv_id_close(struct sv_id *id);
void sv_id_free(struct sv_id *id);
/*
 * enter takes sv_cm.lock, or sets errno and returns -1; enter_id also if the
 * id is not this process's. leave drops it and returns 0, or sets errno to err
 * and returns -1.
 */
int sv_cm_enter(void);
int sv_cm_enter_id(const struct sv_id *id);
int sv_cm_leave(int err);
int sv_id_set_tos(const struct sv_id *id, int sock);

/*
 * sv_cm_attr.c. Caller holds sv_cm.lock. 0 or a positive errno. path_addr: where
 * the GID, or without one the LID, of the fabric of dev leads to.
 */
int sv_id_set_path(struct sv_id *id);
int sv_path_addr(struct sv_dev *dev, const union ibv_gid *gid, uint16_t lid,
		 uint32_t ifindex, struct sockaddr_storage *addr);

/*
 * sv_cm_qp.c. Caller holds sv_cm.lock. dev: of an id that has verbs.
 * set_depths: as asked for, as far as the device goes. take: this QP is the
 * connection's, if the look wants it so; up: to RTS, and when it leaves that,
 * so does the connection; down: to ERR. Positive errnos.
 */
struct sv_dev *sv_id_dev(const struct sv_id *id);
void sv_id_set_depths(struct sv_id *id, size_t rd_in, size_t rd_out);
int sv_id_reject_status(const struct sv_id *id, int reason);
int sv_id_qp_take(struct sv_id *id, uint32_t qpn) __must_check;
int sv_id_qp_up(struct sv_id *id) __must_check;
void sv_id_qp_down(struct sv_id *id);

/*
 * sv_fault_cm.c. fault: at the beginning of a call, no lock held; true with
 * errno set if it is to fail. The others: caller holds sv_cm.lock. event: takes
 * one that is to be queued; drop: forgets what is late for the id.
 */
bool sv_cm_fault_slow(enum sv_fault_hook hook, const struct rdma_cm_id *id);
void sv_fault_event(struct sv_event *event);
bool sv_fault_request(struct sv_conn *conn); /* true: it is swallowed */
void sv_fault_event_drop(struct sv_id *id);
void sv_fault_cm_fork_child(void);

static inline bool sv_cm_fault(enum sv_fault_hook hook,
			       const struct rdma_cm_id *id)
{
	return sv_fault_any() && sv_cm_fault_slow(hook, id);
}

/*
 * sv_cm_conn.c. Caller holds sv_cm.lock.
 *
 * new: takes over sock. own_frame: fills conn->own, but for private data. send:
 * queues, and sends what the socket takes; a lost peer is noticed when reading.
 * fail: ends the conn with this event on its id. close: ends it silently.
 * goodbye: ends it telling the peer what fits.
 */
struct sv_conn *sv_conn_new(int sock, enum sv_conn_phase phase);
int sv_conn_watch(struct sv_conn *conn, uint32_t events);
void sv_conn_own_frame(struct sv_conn *conn, uint8_t ird, uint8_t ord);
void sv_conn_send_mpa(struct sv_conn *conn, const struct sv_mpa *mpa);
void sv_conn_send_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl);
void sv_conn_send_plain(struct sv_conn *conn, enum sv_ctrl_type type);
void sv_conn_set_timer(struct sv_conn *conn, unsigned int timeout_ms);
void sv_conn_stop_timer(struct sv_conn *conn);
void sv_conn_fail(struct sv_conn *conn, enum rdma_cm_event_type type,
		  int status);
void sv_conn_lost(struct sv_conn *conn, int err);
void sv_conn_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl);
void sv_conn_close(struct sv_conn *conn);
void sv_conn_goodbye(struct sv_conn *conn);
void sv_conn_disconnect(struct sv_conn *conn);
void sv_id_disconnected(struct sv_id *id, int status);

/*
 * sv_cm_listen.c. Caller holds sv_cm.lock. start: sock is bound, and stays the
 * caller's; 0 or a positive errno. stop: ends connections of which nobody
 * knows yet; the listener may still be looked at by a handler that is under way.
 */
int sv_listener_start(struct sv_listener *listener, int sock,
		      struct sv_id *id) __must_check;
void sv_listener_stop(struct sv_listener *listener);

/*
 * sv_cm_linger.c. Caller holds sv_cm.lock. leave: the id lets go of its socket,
 * which goes on for a moment if it has listened and keeps its port, else is closed.
 * take: the socket of such a moment ago, bound to this address, or -1; it goes on to
 * listen until end: it really does now, or, if not listens, no more.
 */
void sv_linger_leave(struct sv_id *id);
int sv_linger_take(struct sv_id *id, const struct sockaddr *addr);
void sv_linger_end(struct sv_id *id, bool listens);
void sv_linger_fork_child(void);

/*
 * sv_cm_active.c, sv_cm_passive.c. Caller holds sv_cm.lock. The functions that
 * take a message return 0, or a negative errno if the peer broke the protocol.
 * lost: the TCP connection ended (err 0: in order) before it was up. socket:
 * bound to src without a port, or a negative errno. dial: begins with phase TCP;
 * 0 or a positive errno.
 */
int sv_active_connect(struct sv_id *id);
int sv_active_socket(const struct sockaddr *src);
int sv_active_dial(struct sv_conn *conn, const struct sockaddr *dst);
void sv_active_connected(struct sv_conn *conn);
int sv_active_reply(struct sv_conn *conn);
int sv_active_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl);
void sv_active_linked(struct sv_conn *conn);
void sv_active_lost(struct sv_conn *conn, int err);
void sv_active_timeout(struct sv_conn *conn);

int sv_passive_request(struct sv_conn *conn);
int sv_passive_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl);
void sv_passive_accept(struct sv_conn *conn);
void sv_passive_report(struct sv_conn *conn);
void sv_passive_reject(struct sv_conn *conn, const void *pd, size_t len);
void sv_passive_linked(struct sv_conn *conn);
void sv_passive_lost(struct sv_conn *conn, int err);
void sv_passive_timeout(struct sv_conn *conn);

/*
 * sv_rdv.c. Caller holds sv_cm.lock. meet: makes a MEET of a HELLO. request: a
 * MEET has come in, accepts or refuses it. accepted: 0, or a negative errno if
 * the peer is not whom the QP expects. linked: the QP has its link. closed: the
 * conn is not the rendezvous' any more. quit: the QP, if it waits, waits no
 * longer.
 */
void sv_rdv_meet(const struct sv_conn *conn, struct sv_ctrl *hello);
void sv_rdv_request(struct sv_conn *conn);
int sv_rdv_accepted(const struct sv_conn *conn);
void sv_rdv_linked(struct sv_conn *conn);
void sv_rdv_closed(struct sv_conn *conn);
void sv_rdv_quit(struct sv_qp *qp);
void sv_rdv_fork_child(void);

/*
 * sv_handover.c. Caller holds sv_cm.lock. prepare: gets what hand-overs to a
 * listener need, before its callers take the descriptors for that. hello: fills
 * what is ours in a HELLO; 0 or a positive errno. possible: whether the sender of this HELLO is
 * on this host. start: active side, once accepted. The end is
 * sv_active_linked() or sv_passive_linked(), or sv_conn_fail(). cancel: gives
 * back what the conn holds for it. self: links a QP with itself; 0 or a positive
 * errno.
 */
void sv_handover_prepare(void);
int sv_handover_hello(const struct sv_conn *conn, struct sv_ctrl *hello);
bool sv_handover_possible(const struct sv_ctrl *hello);
void sv_handover_start(struct sv_conn *conn);
void sv_handover_retry(struct sv_conn *conn);
void sv_handover_cancel(struct sv_conn *conn);
int sv_handover_self(struct sv_qp *qp);
void sv_handover_fork_child(void);

/*
 * sv_cm_tcp.c. Caller holds sv_cm.lock.
 *
 * offered: which links SOFTVERBS_LINK allows, enum sv_ctrl_links. pick: the best
 * of those that the peer's HELLO has too and that can reach it; 0: none, and it
 * has been logged. foreign: takes up a peer that is no softverbs; false: we do
 * not want such a one, or not as it wants us. foreign_reply: makes our frame one
 * that such a peer understands. crc: what our frames say of
 * checksums. go: the rest of the stream is the link's, if it is to be; true: it
 * is, or the conn has failed. send, release: to the peer, through the link; the
 * link is let go of.
 */
uint8_t sv_cm_links_offered(void);
uint8_t sv_cm_links_pick(const struct sv_ctrl *hello);
bool sv_cm_foreign(struct sv_conn *conn);
void sv_cm_foreign_reply(struct sv_conn *conn);
bool sv_cm_crc(void);
bool sv_cm_tcp_go(struct sv_conn *conn);
void sv_cm_tcp_send(struct sv_conn *conn, enum sv_ctrl_type type);
void sv_cm_tcp_release(struct sv_conn *conn);

#endif
