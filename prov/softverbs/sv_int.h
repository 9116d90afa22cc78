/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs: what its source files share. Objects, lock order, prototypes by
 * file. sv.h is the public face; sv_link.h is what a transport is;
 * sv_shm.h, the shared-memory one, is for its own files only; sv_cm.h holds the connection manager's structs.
 *
 * Objects and who owns whom
 *
 *	sv_dev (sv_dev.h)    <- sv_ctx <- sv_pd <- sv_mr, sv_srq, sv_qp
 *	                               <- sv_chan <- sv_cq <- sv_qp
 *	                                  sv_srq <- sv_qp
 *	sv_link: one connection between two QPs. Made by the connection manager
 *	for a QP, owned by the QP once sv_qp_attach_link() has taken it.
 *
 * Lock order, outermost first. Locks on one line are never held together.
 *
 *	connection manager's locks (sv_cm.h)
 *	lease_lock (sv_lease.c)
 *	sv_cursor.lock | sv_builder.lock	held across calls of the application
 *	sv_cq.poll_lock		never two of them | rounds_lock (sv_link.c)
 *	sv_qp.lock		never two of them
 *	sv_qp.rq_lock | sv_srq.lock
 *	sv_cq.lock		never two of them
 *	sv_chan.lock | sv_ctx.lock | sv_dev.lock | timer_lock (sv_lease.c) |
 *	table locks (MR, QP, links, peers, contexts)
 *	engine's lock (sv_engine.c)
 *
 * Nothing here is held while the application or an engine handler is called.
 * Of the link and QP files' functions only sv_modify_qp() and sv_destroy_qp() call
 * up into the connection manager, when they hold nothing: see sv_rdv.c.
 *
 * Two halves. The verbs half (device, objects, work queues, links) needs from
 * the other one only sv_engine_*; the connection half needs the "contract"
 * sections marked (CM) below. How the connection manager hands a QP its link:
 *
 *	qp = sv_qp_find(conn_param.qp_num);		reference
 *	sv_shm_create(qp, &link);			our ring and doorbell
 *	sv_shm_offer(link, &hello, fds);		send both over the
 *							UNIX socket, fds by
 *							SCM_RIGHTS (borrowed)
 *	... receive peer hello and fds, SO_PEERCRED ...
 *	sv_shm_attach(link, &peer_hello, peer_fds, sock, &cred);
 *	sv_qp_attach_link(qp, link);			QP owns it now
 *	sv_qp_put(qp);
 *	... report CONNECT_RESPONSE or ESTABLISHED ...
 *
 * The UNIX socket belongs to the link afterwards: it carries no more data, its
 * hang-up is how the peer's death is noticed. CM messages (disconnect) travel
 * on the CM's own TCP socket. Work posted in RTS before the link is attached
 * waits in the send queue.
 */
#ifndef SV_INT_H
#define SV_INT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "sv.h"
#include "sv_dev.h"
#include "sv_lock.h"
#include "sv_wq.h"

enum {
	SV_ACK_WAIT_S = 30, /* for events the application does not ack */
};

struct sv_link;
struct sv_cq_wake;
struct sv_qp;
struct sv_rdv;
struct sv_srq;

struct sv_ctx {
	struct sv_dev *dev;
	struct list node; /* contexts_lock in sv_core.c */
	bool dead; /* inherited by fork(): set before the child runs on */
	atomic_int users; /* PDs, channels, CQs */
	struct lock lock; /* guards async_list and reads of async_fd */
	struct list async_list; /* sv_async.node */
	struct verbs_context v; /* last: ends in the ibv_context */
};

/*
 * Whom a key is for, in the published table: a protection domain, or a queue pair
 * (windows of type 2). Both are numbered process-wide, never twice, the latter
 * with this bit.
 */
#define SV_OWNER_QP (1u << 31)

/* In the rights of a key, beside enum ibv_access_flags: it is an lkey as well. */
#define SV_ACCESS_LOCAL (1u << 30)

struct sv_mr_ent;

struct sv_pd {
	struct ibv_pd pd;
	uint32_t id;
	const struct sv_mr_ent *keys; /* sv_mr_table(); constant */
	atomic_int users; /* MRs, MWs, SRQs, QPs, parent domains */
	/* Of a parent domain: */
	struct sv_pd *base; /* NULL: it is none */
	struct ibv_td *td;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size,
		       size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr,
		     uint64_t resource_type);
	void *pd_context;
};

struct sv_chan {
	struct ibv_comp_channel chan;
	struct lock lock; /* guards events, and fd's count == length */
	struct list events; /* sv_cq.chan_node of CQs with chan_pending > 0 */
	atomic_int users;
};

/* One completion as queued: what poll_cq hands out, and what it frees. */
struct sv_cqe {
	struct ibv_wc wc;
	struct sv_qp *qp;
	uint32_t wqe_end; /* queue index behind the WR that this retires */
	uint8_t is_recv;
};

static_assert(sizeof(struct sv_cqe) == CACHELINE, "one line per completion");

/* When a completion was queued, if the CQ was created to tell. */
struct sv_cq_time {
	uint64_t raw_ns; /* CLOCK_MONOTONIC_RAW: the device's clock, 1 GHz */
	uint64_t wall_ns; /* CLOCK_REALTIME */
};

/* sv_cq_ex.c: what ibv_start_poll() and the like keep. */
struct sv_cursor {
	struct sv_lock lock; /* from start_poll to end_poll, if shared */
	bool shared; /* by threads */
	atomic_ulong owner; /* whose turn it is, sv_self(); 0: nobody's */
	struct ibv_wc wc;
	struct sv_cq_time time;
};

enum sv_arm {
	SV_ARM_NONE,
	SV_ARM_SOLICITED,
	SV_ARM_ANY,
};

struct sv_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex cq_ex;
	};
	struct sv_ctx *ctx;
	struct sv_chan *chan;

	struct sv_lock lock; /* guards ring, times, mask, arm; orders pushes */
	struct sv_cqe *ring;
	struct sv_mem mem; /* where it is */
	struct sv_cq_time *times; /* goes with ring; NULL: nobody asked */
	uint32_t mask;
	atomic_uint prod; /* written under lock, read without */
	atomic_uint cons; /* the same */
	atomic_int arm; /* enum sv_arm; the same */
	atomic_bool overrun;
	struct list chan_node; /* chan->lock */
	uint32_t chan_pending; /* chan->lock: raised, not fetched */
	uint32_t chan_got; /* chan->lock: fetched */
	uint32_t async_got; /* ctx->lock */

	struct sv_lock poll_lock; /* guards links, link_cnt, link_cap, cold */
	struct sv_link **links;
	atomic_uint link_cnt;
	uint32_t link_cap;
	uint32_t cold; /* where the round over idle links stands */

	atomic_bool leased; /* written under lease_lock */
	atomic_uint polls; /* relaxed: counts, orders nothing */
	atomic_uint polls_armed; /* polls when last armed or let lapse */
	uint64_t fault_hold_ns; /* sv_fault_data.c: until when nobody sees */
	struct sv_cq_wake *fault_wake; /* sv_fault_cq.c; NULL: never held */
	uint32_t polls_seen; /* lease_lock */
	struct list lease_node; /* lease_lock */
	atomic_int users; /* QPs */
	struct sv_pd *pd; /* the parent domain that it was made with, or NULL */
	struct sv_cursor *cursor; /* NULL: made by ibv_create_cq() */
};

/* What a QP made with operations to be put together by calls has besides. */
struct sv_builder {
	struct sv_lock lock; /* from wr_start to wr_complete; before sv_qp.lock */
	atomic_ulong owner; /* whose region it is, sv_self(); 0: nobody's */
	uint64_t ops; /* enum ibv_qp_create_send_ops_flags */
	uint32_t base; /* sq.posted at the start */
	uint32_t next; /* index of the next WR */
	struct sv_swr *swr; /* being put together */
	bool has_data;
	int err; /* the first that happened; positive errno */
};

enum sv_rq_state {
	SV_RQ_RESET, /* posting is an error */
	SV_RQ_READY,
	SV_RQ_ERROR, /* what is posted is flushed */
};

#define SV_PSN_ANY UINT32_MAX

/*
 * A region that was found in order, to be recognised by one look: as long as its
 * entry's seq is the same, so is all else. Only memory addressed as it lies.
 */
struct sv_key_seen {
	const atomic_uint *seq;
	uint32_t seq_was;
	uint32_t key;
	uint64_t addr;
	uint64_t len; /* 0: none */
};

struct sv_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex qp_ex;
	};
	struct sv_ctx *ctx;
	struct sv_pd *pd;
	struct sv_cq *scq;
	struct sv_cq *rcq;
	struct sv_qp *hash_next; /* QP table lock */
	atomic_int refs;
	struct sv_srq *srq; /* NULL: receives are the QP's own */
	struct sv_pd *rq_pd; /* whose memory receives name */
	bool sq_sig_all;
	uint32_t sink_access; /* what memory must grant that a read fills */
	uint32_t max_msg;
	uint32_t window_id; /* owner of windows that it binds */
	struct sv_builder *ex; /* NULL: sends are posted by ibv_post_send() */

	struct sv_lock lock; /* guards all below but rq, and the link's insides */
	struct ibv_qp_attr attr; /* attr.qp_state is the state */
	struct ibv_qp_cap cap;
	struct sv_wq sq;
	struct sv_link *link; /* NULL until attached */
	uint32_t ops_refused; /* bits of enum ibv_wr_opcode: not by this link */
	struct sv_rdv *rdv; /* connection manager's lock; see sv_rdv.c */
	struct sv_cq_sink *sink; /* of who polls rcq and is at work here, or NULL */
	struct sv_key_seen read_seen; /* by sends */
	struct sv_key_seen write_seen; /* by receives */
	uint32_t psn_wanted; /* by the peer, before we are in RTS; sv_rdv.c */
	bool destroyed;
	bool peer_lost; /* told to nobody yet: the next send says so */
	void (*error_fn)(void *arg); /* see sv_qp_connect() */
	void *error_arg;
	uint32_t async_got; /* ctx->lock */

	/* Receives: posted under rq_lock, taken and completed under lock. */
	struct sv_lock rq_lock; /* guards rq.posted, rq_state, rq_pub */
	struct sv_wq rq;
	enum sv_rq_state rq_state;
	atomic_uint *rq_pub; /* where the peer sees rq.posted */
	atomic_uint rq_pub_none; /* what rq_pub points at without a link */
	atomic_bool rq_starved; /* a message waits for a receive */
	/* With an SRQ: rq holds at most one that is taken, and is under lock. */
	struct list srq_node; /* srq->lock */
};

/* Names the calling thread; relaxed where it is compared: only the thread itself
 * writes its name, or takes it away. */
static inline unsigned long sv_self(void)
{
	return (unsigned long)pthread_self();
}

static inline bool sv_is_self(atomic_ulong *owner)
{
	return atomic_load_explicit(owner, memory_order_relaxed) == sv_self();
}

static inline struct sv_dev *sv_dev(struct ibv_device *device)
{
	return container_of(device, struct sv_dev, device);
}

static inline struct sv_ctx *sv_ctx(struct ibv_context *context)
{
	return container_of(context, struct sv_ctx, v.context);
}

/* In a child of fork() the parent's objects answer ENODEV, without a lock; to be
 * destroyed they only seem, and stay. */
static inline bool sv_ctx_dead(struct ibv_context *context)
{
	return unlikely(sv_ctx(context)->dead);
}

static inline struct sv_pd *sv_pd(struct ibv_pd *pd)
{
	return container_of(pd, struct sv_pd, pd);
}

static inline struct sv_chan *sv_chan(struct ibv_comp_channel *chan)
{
	return container_of(chan, struct sv_chan, chan);
}

static inline struct sv_cq *sv_cq(struct ibv_cq *cq)
{
	return container_of(cq, struct sv_cq, cq);
}

static inline struct sv_qp *sv_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct sv_qp, qp);
}

/* ------------------------------------------------------------------------
 * Contract (CM): what the connection half calls.
 */

/* What a link sends to its peer beside the file descriptors. Plain bytes. */
struct sv_link_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t qpn;
	uint32_t pd_id;
	uint32_t seg_size;
	uint64_t nonce_addr; /* where nonce lies in the sender's memory */
	uint8_t nonce[32];
	uint8_t process[16]; /* random identity of the sending process */
	uint32_t window_id;
	uint8_t reserved[44];
};

static_assert(sizeof(struct sv_link_hello) == 128, "same in every build");

/* Order of a hello's descriptors: ring memfd, MR table memfd, doorbell. */
enum {
	SV_LINK_FDS = 3,
};

/*
 * sv_shm.c. All return 0 or a positive errno.
 *
 * create: makes segment, doorbell and nonce for this QP; takes a reference of
 * the QP. offer: fills the hello; fds stay the link's. attach: checks the
 * peer's hello, seals and sizes, maps, probes CMA; peer_fds are consumed in any
 * case, sock only on success; watches doorbell and sock in the engine. May
 * block no longer than a few system calls do. Before sv_qp_attach_link()
 * sv_link_close() undoes it; later the QP does that.
 */
int sv_shm_create(struct sv_qp *qp, struct sv_link **out) __must_check;
void sv_shm_offer(struct sv_link *link, struct sv_link_hello *hello,
		  int fds[SV_LINK_FDS]);
int sv_shm_attach(struct sv_link *link, const struct sv_link_hello *hello,
		  int peer_fds[SV_LINK_FDS], int sock,
		  const struct ucred *cred) __must_check;

/*
 * sv_tcp.c: the link over the TCP connection on which MPA frames have been
 * exchanged. It has two owners, the QP and the connection manager: the QP lets go
 * of it by sv_link_close(), the connection manager by sv_tcp_cm_release(). In
 * whichever order, after the second one the stream is ended in order.
 *
 * create: takes a reference of the QP; sock, which nobody watches any more, is
 * consumed on success. 0 or a positive errno. cm_fn is called by the engine,
 * without a lock, when there is something for the connection manager, which then
 * fetches it with cm_take. cm_send: tells the peer's.
 */
enum sv_tcp_cm_event {
	SV_TCP_CM_READY = 1 << 0,
	SV_TCP_CM_DREQ = 1 << 1,
	SV_TCP_CM_DREP = 1 << 2,
	SV_TCP_CM_FIRST = 1 << 3, /* something has come in */
	SV_TCP_CM_EOF = 1 << 4,
};

struct sv_tcp_setup {
	bool ext; /* the peer is one of ours, and both frames say so */
	bool crc; /* either frame asks for it */
	bool rtr; /* an empty write is to go first */
	bool hold; /* nothing may go before something has come */
	uint32_t peer_qpn;
	uint32_t tx_ctrl_msn; /* last numbers of control messages */
	uint32_t rx_ctrl_msn;
	const void *rx; /* what was read behind the frames, and */
	size_t rx_len;
	const void *tx; /* what has to go before anything else */
	size_t tx_len;
	void (*cm_fn)(struct sv_link *link); /* NULL: no connection manager */
	void *cm;
};

int sv_tcp_create(struct sv_qp *qp, int sock, const struct sv_tcp_setup *setup,
		  struct sv_link **out) __must_check;
/* What setup->cm was; the connection manager's lock guards it. */
void **sv_tcp_cm(struct sv_link *link);
uint32_t sv_tcp_cm_take(struct sv_link *link);
void sv_tcp_cm_send(struct sv_link *link, enum sv_tcp_cm_event what);
void sv_tcp_cm_release(struct sv_link *link);

/*
 * sv_qp.c, sv_qpn.c. find takes a reference or returns NULL; it does not find a
 * QP whose destruction has begun. attach_link: 0, or EINVAL (no state to have
 * one, has one already, being destroyed), then the link stays the caller's.
 * for_each: of the process; not if memory is short. qpn_sock: the socket, bound
 * and no more, of the port that a QP's number names, or -1.
 */
struct sv_qp *sv_qp_find(uint32_t qpn);
void sv_qp_for_each(void (*fn)(struct sv_qp *qp, void *arg), void *arg);
int sv_qpn_sock(uint32_t qpn);
void sv_qp_get(struct sv_qp *qp);
void sv_qp_put(struct sv_qp *qp);
int sv_qp_attach_link(struct sv_qp *qp, struct sv_link *link) __must_check;

/* sv_util.c. log: SOFTVERBS_LOG=1; err: always, what the user must mend. Not
 * hidden: our librdmacm.so.1 calls them. */
void sv_log(const char *fmt, ...) __printf_like(1, 2)
	__attribute__((visibility("default")));
void sv_err(const char *fmt, ...) __printf_like(1, 2)
	__attribute__((visibility("default")));
/* Says once, always, if this errno means that descriptors have run out. */
void sv_note_fds(int err);
/* Memory to be shared, of this size and not sealed yet. Positive errno; EFBIG if a
 * limit forbids it, which is said once. */
int sv_memfd_create(const char *name, size_t size, int *fd) __must_check;
void sv_random(void *buf, size_t len);
/* sv_util.c. The variable's value; NULL if it is not set, or empty. */
const char *sv_env(const char *name);
/* sv_cm_tcp.c. Says what is wrong with SOFTVERBS_LINK and SOFTVERBS_CRC. */
void sv_cm_check_env(void);
/* sv_alive.c. The same of SOFTVERBS_PEER_TIMEOUT. */
void sv_alive_check_env(void);

/*
 * sv_core.c. To be called in the child after fork(): no lock is taken. Does no
 * harm the second time: sv_core.c registers it with pthread_atfork() as well.
 */
void sv_core_fork_child(void);

/* ------------------------------------------------------------------------
 * Contract (engine): what the connection half provides to all.
 *
 * sv_engine.c. One thread per process, started by the first watch; sleeps in
 * epoll_wait. events is EPOLLIN etc., level triggered. unwatch returns when
 * the handler is not running and will not be called again (called from the
 * engine's own thread it returns at once, and no event already fetched for
 * this fd is delivered later, even if the number is reused). Handlers may
 * watch and unwatch. watch returns 0 or a positive errno.
 */
typedef void (*sv_engine_fn)(void *arg, uint32_t events);
int sv_engine_watch(int fd, uint32_t events, sv_engine_fn fn,
		    void *arg) __must_check;
void sv_engine_unwatch(int fd);

/* ------------------------------------------------------------------------
 * Connection half's own section.
 */

/*
 * sv_rdv.c. For a QP that ibv_modify_qp alone connects: begin, when it has gone
 * to RTR without a link or has lost it, looks for its peer; 0 or a positive
 * errno. cancel: it does not want one any more. Called without any lock; takes the
 * connection manager's.
 */
int sv_rdv_begin(struct sv_qp *qp) __must_check;
void sv_rdv_cancel(struct sv_qp *qp);

/* ------------------------------------------------------------------------
 * Verbs half's own section.
 */

/* sv_core.c, sv_util.c, sv_ops.c, sv_query.c */
int sv_core_start(void) __must_check;
const uint8_t *sv_core_identity(void);
void sv_core_add_ctx(struct sv_ctx *ctx);
void sv_core_del_ctx(struct sv_ctx *ctx);
/* On every context of the device, for its one port. */
void sv_core_raise(struct sv_dev *dev, enum ibv_event_type type);
uint64_t sv_now_ns(void);
uint64_t sv_clock_ns(clockid_t clock);
void sv_core_for_each_ctx(void (*fn)(struct sv_ctx *ctx));
typedef int (*sv_post_send_fn)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			       struct ibv_send_wr **bad_wr);
/* What posting is in this context but for faults. */
sv_post_send_fn sv_ops_post_send(const struct sv_ctx *ctx);
void sv_ops_refresh(void); /* faults have come or gone */
void sv_ops_fill(struct sv_ctx *ctx);
void sv_ops_kill(struct verbs_context *v);
enum ibv_mtu sv_dev_mtu(const struct sv_dev *dev);
int sv_query_port_len(struct ibv_context *context, uint8_t port_num,
		      struct ibv_port_attr *attr, size_t len);
int sv_query_device_ex(struct ibv_context *context,
		       const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size);

/* In a child of fork(): no lock is taken. */
void sv_link_fork_prepare(void);
void sv_link_fork_parent(void);
void sv_device_fork_child(void);
void sv_lease_fork_child(void);
void sv_link_fork_child(void);
void sv_qpn_fork_child(void);
void sv_mr_fork_child(void);

/* sv_async.c. element.qp, .cq or .srq must live until the event is acked. */
void sv_async_raise(struct sv_ctx *ctx, struct ibv_async_event *event);
void sv_async_raise_qp(struct sv_qp *qp, enum ibv_event_type type);
void sv_async_drop(struct sv_ctx *ctx, const void *element);
void sv_async_drop_all(struct sv_ctx *ctx);
int sv_event_wait(int fd);
int sv_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond,
		 const uint32_t *done, uint32_t want) __must_check;

/* sv_cq_ex.c */
int sv_query_rt_values(struct ibv_context *context,
		       struct ibv_values_ex *values);

/* sv_obj.c. Caller holds cq->lock. */
void sv_chan_raise(struct sv_cq *cq);

/* sv_cq.c */
int sv_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc);
int sv_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void sv_cq_push(struct sv_cq *cq, const struct sv_cqe *cqe, bool solicited);
void sv_cq_fail(struct sv_cq *cq, const struct sv_qp *qp);
void sv_cq_purge(struct sv_cq *cq, struct sv_qp *qp);
int sv_cq_add_link(struct sv_cq *cq, struct sv_link *link) __must_check;
void sv_cq_del_link(struct sv_cq *cq, struct sv_link *link);
void sv_cq_rearm(struct sv_cq *cq);
int sv_cq_poll_one(struct sv_cq *cq, struct ibv_wc *wc, struct sv_cq_time *time);

/* sv_obj.c: as sv_create_cq(), with times if so wished, and a parent domain,
 * or NULL. */
struct sv_cq_opts {
	uint32_t cqe;
	uint32_t comp_vector;
	struct ibv_comp_channel *channel;
	struct sv_pd *pd;
	bool times;
};

struct sv_cq *sv_cq_make(struct ibv_context *context,
			 const struct sv_cq_opts *opts);

/* sv_domain.c */
struct ibv_td *sv_alloc_td(struct ibv_context *context,
			   struct ibv_td_init_attr *attr);
int sv_dealloc_td(struct ibv_td *td);
struct ibv_pd *sv_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr);
void sv_parent_domain_fini(struct sv_pd *pd);

/* sv_lease.c. Deadlines: caller holds qp->lock. */
void sv_lease_start(struct sv_cq *cq);
void sv_lease_stop(struct sv_cq *cq);
void sv_lease_drop(struct sv_cq *cq);
void sv_deadline_set(struct sv_link *link, uint64_t due_ns);
void sv_deadline_clear(struct sv_link *link);

/*
 * sv_key.c. check: the key exists, is for this owner, grants access, covers [addr,
 * addr + len) without wrapping; *va is where addr lies in the memory of the
 * process whose table it is. check_va: the same for such an address. Memory that
 * is registered on demand is there afterwards. leaving: our key is no longer valid,
 * but its memory is still there; not for long, so under qp->lock.
 */
int sv_mr_start(void) __must_check;
int sv_mr_fd(void);
const struct sv_mr_ent *sv_mr_table(void);
bool sv_mr_check(const struct sv_mr_ent *tbl, uint32_t key, uint32_t owner,
		 uint32_t access, uint64_t addr, uint64_t len, uint64_t *va);
bool sv_mr_check_va(const struct sv_mr_ent *tbl, uint32_t key, uint32_t owner,
		    uint32_t access, uint64_t addr, uint64_t len);
bool sv_mr_leaving(uint32_t key);

/* sv_mr.c */
int sv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
		 uint32_t flags, struct ibv_sge *sg_list, uint32_t num_sge);

/*
 * sv_mw.c. key_invalidate: the window of type 2 with this key, which the queue
 * pair has bound; false if it has none such. sq_local: carries out a LOCAL_INV or
 * BIND_MW. Caller holds qp->lock.
 */
bool sv_key_invalidate(struct sv_qp *qp, uint32_t rkey) __must_check;
enum ibv_wc_status sv_sq_local(struct sv_qp *qp, struct sv_swr *swr);
struct ibv_mw *sv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int sv_dealloc_mw(struct ibv_mw *mw);
int sv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* sv_wq.h has the rest; these look into a queue pair. */
static inline struct sv_swr *sv_sq_slot(struct sv_qp *qp, uint32_t index)
{
	return (void *)(qp->sq.slots +
			(size_t)(index & qp->sq.mask) * qp->sq.stride);
}

static inline struct sv_rwr *sv_rq_slot(struct sv_qp *qp, uint32_t index)
{
	return (void *)(qp->rq.slots +
			(size_t)(index & qp->rq.mask) * qp->rq.stride);
}

/*
 * The oldest receive, or NULL: then the next sv_post_recv() makes progress.
 * Caller holds qp->lock.
 */
struct sv_rwr *sv_rq_peek_hard(struct sv_qp *qp);
static inline struct sv_rwr *sv_rq_peek(struct sv_qp *qp)
{
	if (likely(sv_wq_posted(&qp->rq) != qp->rq.done))
		return sv_rq_slot(qp, qp->rq.done);
	return sv_rq_peek_hard(qp);
}

/* sv_ah.c */
bool sv_ah_attr_ok(struct ibv_context *context, const struct ibv_ah_attr *attr);

/* sv_srq.c */
int sv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad_wr);
void sv_srq_event_got(struct ibv_srq *srq);
void sv_srq_join(struct sv_qp *qp, struct ibv_srq *srq);
void sv_srq_leave(struct sv_qp *qp);
void sv_srq_forget(struct sv_qp *qp);
struct sv_rwr *sv_srq_take(struct sv_qp *qp);
void sv_srq_await(struct sv_qp *qp);
uint32_t sv_srq_avail(struct sv_qp *qp);

/* sv_qpn.c. add: gives it a number; 0 or ENOMEM. port: which one of its process's
 * a number names. */
static inline uint16_t sv_qpn_port(uint32_t qpn)
{
	return (uint16_t)(qpn >> 8);
}

int sv_qpn_add(struct sv_qp *qp) __must_check;
void sv_qpn_del(struct sv_qp *qp);

/*
 * sv_qp.c, sv_qp_state.c. error: to the error state, flushing; event, unless
 * -1, is raised. Caller holds qp->lock.
 */
void sv_qp_error(struct sv_qp *qp, int event);
void sv_qp_set_state(struct sv_qp *qp, enum ibv_qp_state state);
/*
 * sv_qp_owned.c, for looks whose connection owns the queue pair. Caller holds
 * none of the locks of this half.
 *
 * connect: moves it to RTS, or EINVAL. When it goes to ERR otherwise than by
 * disconnect, error_fn(error_arg) is called once, with qp->lock held: it may
 * set a timer and little else. disconnect: takes what has come in and moves it
 * to ERR; error_fn will not be called any more.
 */
struct sv_qp_conn {
	uint32_t dest_qpn;
	uint8_t rd_in;
	uint8_t rd_out;
	void (*error_fn)(void *arg);
	void *error_arg;
};
int sv_qp_connect(struct sv_qp *qp, const struct sv_qp_conn *conn) __must_check;
void sv_qp_disconnect(struct sv_qp *qp);
struct sv_link *sv_qp_take_link(struct sv_qp *qp);
void sv_qp_drained(struct sv_qp *qp);
void sv_qp_drop_link(struct sv_qp *qp, struct sv_link *link);

/*
 * sv_link.c. quiesce: nobody is copying to or from the region with this key any
 * more; peers, at least: in other processes, or here without the CPU of the
 * region's owner, or the time is over. Caller of the former holds no lock, and the
 * key has left. withdraw: the same for what this link, whose queue pair's lock is
 * held, has of keys that are leaving. close: undoes attach; the link is on no CQ,
 * and qp->link no longer leads to it.
 */
void sv_link_quiesce(uint32_t key, uint32_t timeout_ms);
void sv_link_quiesce_peers(uint32_t key, uint32_t timeout_ms);
void sv_link_withdraw(struct sv_link *link);
void sv_link_close(struct sv_link *link);
void sv_link_enter(struct sv_link *link); /* makes it qp->link; qp->lock */
void sv_link_kick(struct sv_link *link); /* qp->lock */

#endif
