/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The provider's objects, and the prototypes of each file.
 *
 *	fabric -- eq -- pep
 *	   \       \
 *	  domain -- ep -- tx ring, rx ring (the ledger)
 *	   |  \      \
 *	   mr  cq ----+
 *
 * Lock order, outermost first:
 *
 *	ep->tx_lock, ep->rx_lock	posting; never both
 *	srx->lock			posting to a shared context
 *	poll->lock, wait->lock		members of a set; see vrc_poll.c, vrc_wait.c
 *	cntr->lock			a counter's queues; see vrc_cntr.c
 *	pep->lock			a passive endpoint's address and ids
 *	srx->bind_lock			which queues a shared context ends in
 *	cq->lock			reading completions, draining an endpoint
 *	srx->eps_lock			a shared context's endpoints
 *	eq->lock			connection events and endpoint states
 *	ep->credit->lock		what the peer was told; see vrc_credit.c
 *
 * A reader of a completion queue that finds a broken queue pair tells the
 * event queue (cq->lock, then eq->lock). The event queue's thread wants cq->lock
 * as well, and only tries to get it. ep->more->lock is taken after tx_lock or
 * rx_lock; the reader of a completion queue wants it too, and only tries.
 */
#ifndef VRC_H
#define VRC_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc_compat.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_verbs.h"

enum {
	/* Scatter/gather entries that an operation may have. */
	VRC_IOV_LIMIT = 4,
	/* Work completions taken from the device in one call. */
	VRC_CQ_BATCH = 16,
	/* How long a closing or broken queue pair may take to flush. */
	VRC_FLUSH_TIMEOUT_MS = 1000,
	/* How long acknowledgements may come after the peer's goodbye. */
	VRC_LINGER_MS = 20,
	VRC_ADDR_TIMEOUT_MS = 2000,
	VRC_ROUTE_TIMEOUT_MS = 2000,
	/* Work requests of our own that a send queue holds besides those of
	 * the application. */
	VRC_CREDIT_WRITES = 2,
};

/* vrc_prov.c: read once in fi_prov_ini, constant afterwards. */
enum vrc_softverbs_mode {
	VRC_SOFTVERBS_AUTO, /* only where there is no other usable device */
	VRC_SOFTVERBS_ALWAYS,
	VRC_SOFTVERBS_NEVER,
};

enum vrc_credits_mode {
	VRC_CREDITS_AUTO, /* where a send without a receive ends the connection */
	VRC_CREDITS_ALWAYS,
	VRC_CREDITS_NEVER,
};

struct vrc_params {
	enum vrc_softverbs_mode softverbs;
	size_t tx_size;	    /* default queue depths, operations */
	size_t rx_size;
	size_t inject_size; /* bytes */
	char *iface;	    /* only this network interface, or NULL */
	char *device;	    /* only this verbs device, or NULL */
	int gid_index;	    /* -1: by route */
	int min_rnr_timer;  /* the 5-bit IBTA encoding */
	int ack_timeout;    /* the 5-bit IBTA encoding, -1: rdma_cm's */
	enum vrc_credits_mode credits;
};

extern struct vrc_params vrc_params;

/* vrc_dev.c: what a device is and which addresses lead to it. */
struct vrc_addr {
	union vrc_sockaddr addr; /* port 0 */
	uint8_t prefix_len;
	uint8_t port_num;	/* of the verbs device */
	char netdev[16];	/* network interface */
	char fabric[64];	/* name of the IP network, e.g. 10.7.0.0/24 */
};

/*
 * A snapshot of one device, taken when it was found; never changes, shared by
 * reference.
 */
struct vrc_dev {
	atomic_int ref;
	const struct vrc_verbs_ops *ops;
	char name[64];
	__be64 guid;
	bool is_iwarp;
	struct ibv_device_attr attr;
	struct ibv_port_attr *ports; /* ports[n - 1] is port n */
	struct vrc_addr *addrs;
	size_t addr_cnt;
};

struct vrc_fabric {
	struct fid_fabric fid;
	atomic_int ref;
	char *name;
};

struct vrc_domain {
	struct fid_domain fid;
	struct vrc_fabric *fabric;
	struct vrc_dev *dev;
	const struct vrc_verbs_ops *ops;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	atomic_int ref;
	/* Upper half of every descriptor of this domain; see vrc_mr.c. */
	uint32_t desc_tag;
	enum fi_threading threading;
	/* Threads may call into one object at once (FI_THREAD_SAFE). */
	bool thread_safe;
	bool rm_disabled; /* FI_RM_DISABLED was asked for */
	/* The application registers nothing (no FI_MR_LOCAL): vrc_local.c. */
	bool local_reg;
	/* ofi_rxm is between us and the application: vrc_cq_read.c. Relaxed:
	 * it registers its pools before it posts. */
	atomic_bool layered;
	/* Takes what nobody wants of atomics; NULL without FI_ATOMIC. */
	uint64_t *scratch;
	struct ibv_mr *scratch_mr;
	/* Statistics: registrations that there are, and that were refused. */
	_Atomic uint64_t mr_cnt;
	_Atomic uint64_t mr_bytes;
	_Atomic uint64_t mr_failed;
	/* Words that peers read, and where theirs go: vrc_deliver.c. */
	struct vrc_words *words;
	struct ibv_mr *words_mr;
	/* The most that a queue pair was seen to inline, bytes. */
	atomic_uint max_inline;
};

struct vrc_mr {
	struct fid_mr fid;
	struct vrc_domain *domain;
	struct ibv_mr *mr;
	size_t len;
};

/* What the application is told about one operation. */
struct vrc_comp {
	void *context;
	uint64_t flags;
	size_t len;
	uint64_t data;
	int err;	/* 0: success */
	int prov_errno;
};

struct vrc_cq {
	struct fid_cq fid;
	struct ibv_cq *cq;
	bool thread_safe;
	bool nobody_reads; /* of an endpoint that has counters only */
	/* Guards all that follows but ref; taken only if thread_safe, or by
	 * those that are not the application's reader. */
	struct word_lock lock;

	/* Taken from the device, not yet given to the application: from wc_next
	 * up to wc_end. */
	const struct ibv_wc *wc_next;
	const struct ibv_wc *wc_end;
	struct ibv_wc wc[VRC_CQ_BATCH];

	struct list soft; /* vrc_soft, read before wc[] and the device */
	struct list tx_eps; /* vrc_ep by tx_node */
	struct list rx_eps; /* vrc_ep by rx_node */
	/* The oldest completion, when it was looked at before it was asked
	 * for, or is an error that waits for fi_cq_readerr. */
	bool has_head;
	struct vrc_comp head;

	/* Cold. */
	struct vrc_domain *domain;
	atomic_int ref;
	struct ibv_comp_channel *channel; /* NULL: FI_WAIT_NONE */
	struct fid_wait *wait_set; /* that epoll_fd belongs to, or NULL */
	int epoll_fd;	/* channel's fd and signal_fd */
	int signal_fd;	/* eventfd: fi_cq_signal and soft completions */
	unsigned int unacked_events;
	int reserved;	/* entries that bound endpoints may need */
	/* What the reader has to see to, vrc_cq_attend, when it finds nothing:
	 * the deadlines of queue pairs that have left RTS and may have something
	 * to flush, and work requests that are held back (vrc_more.c). */
	atomic_int due_cnt;
};

/*
 * A completion taken from the device outside fi_cq_read: while an endpoint was
 * drained, or made from the ledger. Raw ones belong to endpoints that are
 * still open, and are resolved when they are read.
 */
struct vrc_soft {
	struct list node;
	bool raw;
	union {
		struct ibv_wc wc;
		struct vrc_comp comp;
	};
};

struct vrc_eq {
	struct fid_eq fid;
	struct vrc_fabric *fabric;
	atomic_int ref;
	bool writable; /* FI_WRITE in attr.flags */
	/* Guards the channels, the queue, and every bound endpoint's cm and
	 * state. */
	struct lock lock;
	/* One rdma_cm event channel per backend, made on first use. */
	struct {
		const struct vrc_verbs_ops *ops;
		struct rdma_event_channel *channel;
	} chan[2];
	struct list events;	/* struct vrc_eq_event, in vrc_eq.c */
	struct list errors;
	/* The last error read, whose data the application may still look at;
	 * freed when the next one is read. */
	struct vrc_eq_event *last_error;
	struct list connreqs;	/* requests that no endpoint has taken */
	struct list credit_eps;	/* connected with credits */
	struct list lingering;	/* vrc_ep by cm.linger_node */
	unsigned int first_chan; /* the channels take turns */
	int epoll_fd;
	int signal_fd;		/* eventfd: counts as readable while queued */
	enum fi_wait_obj wait_obj;
	struct fid_wait *wait_set; /* that epoll_fd belongs to, or NULL */
	/* The thread that handles connection events; cm_epoll_fd is -1 if
	 * there is none, and then epoll_fd has the channels. */
	pthread_t thread;
	int cm_epoll_fd;
	int wake_fd;
	atomic_bool stop;
	atomic_bool tick_due;
};

struct vrc_pep {
	struct fid_pep fid;
	struct vrc_fabric *fabric;
	struct vrc_eq *eq;
	struct fi_info *info;
	/* Guards what follows against concurrent calls; taken before
	 * eq->lock. src.sa.sa_family is 0 until an address is known. */
	struct lock lock;
	union vrc_sockaddr src;
	int backlog;
	bool listening;
	unsigned int unread; /* requests in the queue; guarded by eq->lock */
	/* Bound ids: a wildcard listens on every backend there is. */
	struct {
		const struct vrc_verbs_ops *ops;
		struct rdma_cm_id *id;
	} ids[2];
};

/* A connection request; info->handle of FI_CONNREQ points to fid. */
struct vrc_connreq {
	struct fid fid; /* fclass FI_CLASS_CONNREQ */
	struct list node;	/* eq->connreqs, until an endpoint takes it */
	const struct vrc_verbs_ops *ops;
	struct rdma_cm_id *id;
	struct vrc_pep *pep;	/* there until the request is read */
	struct vrc_eq *eq;
	bool dead;		/* the peer gave up */
	struct vrc_peer peer;
	uint8_t responder_resources;
	uint8_t initiator_depth;
};

#define VRC_CONVERTER(obj, fid_type)                                       \
	static inline struct obj *obj(const struct fid_type *fid)         \
	{                                                                  \
		return (struct obj *)((char *)(uintptr_t)fid -            \
				      offsetof(struct obj, fid));          \
	}
VRC_CONVERTER(vrc_fabric, fid_fabric)
VRC_CONVERTER(vrc_domain, fid_domain)
VRC_CONVERTER(vrc_ep, fid_ep)
VRC_CONVERTER(vrc_pep, fid_pep)
VRC_CONVERTER(vrc_eq, fid_eq)
VRC_CONVERTER(vrc_cq, fid_cq)
VRC_CONVERTER(vrc_mr, fid_mr)
VRC_CONVERTER(vrc_connreq, fid)
#undef VRC_CONVERTER

/* libfabric's fids point to tables that nobody writes, without const. */
#define VRC_OPS(table) ((void *)(uintptr_t)(table))

/* verbs' errno, of either sign or from errno, to -FI_E*; never returns 0. */
static inline int vrc_err(int verbs_errno)
{
	if (verbs_errno < 0)
		verbs_errno = -verbs_errno;
	return verbs_errno ? -verbs_errno : -FI_EOTHER;
}

static inline struct vrc_addr *vrc_addr_end(const struct vrc_dev *dev)
{
	return dev->addrs + dev->addr_cnt;
}

/* vrc_util.c */
uint64_t vrc_now_ms(void);
uint64_t vrc_now_us(void);
socklen_t vrc_sockaddr_len(const struct sockaddr *sa);
/* AF_INET and AF_INET6 only; false if the families differ. Ports ignored. */
bool vrc_sockaddr_same_ip(const struct sockaddr *a, const struct sockaddr *b);
bool vrc_sockaddr_is_any(const struct sockaddr *sa);
bool vrc_sockaddr_is_loopback(const struct sockaddr *sa);
uint16_t vrc_sockaddr_port(const struct sockaddr *sa); /* host order */
void vrc_sockaddr_set_port(struct sockaddr *sa, uint16_t port);
/* "10.7.0.1:47592", "[fe80::1%2]:0"; for messages. Returns buf. */
enum { VRC_ADDRSTR = 72 };
const char *vrc_sockaddr_str(const struct sockaddr *sa, char buf[VRC_ADDRSTR]);
/* Copies as fi_getname(3) says: -FI_ETOOSMALL and the size needed. */
int vrc_sockaddr_copy_out(const struct sockaddr *sa, void *addr, size_t *len);

/* vrc_dev.c */
struct vrc_dev_list {
	struct vrc_dev **devs;
	size_t cnt;
};
/* All devices with their addresses, real ones first, softverbs by the rules of
 * FI_VRC_SOFTVERBS. Release with vrc_dev_list_free. */
int vrc_dev_list_get(struct vrc_dev_list *list) __must_check;
void vrc_dev_list_free(struct vrc_dev_list *list);
/* A reference to the device of that name, or NULL. */
struct vrc_dev *vrc_dev_get(const char *name) __must_check;
struct vrc_dev *vrc_dev_ref(struct vrc_dev *dev);
void vrc_dev_put(struct vrc_dev *dev);
/* The device's entry for that IP, or NULL. */
const struct vrc_addr *vrc_dev_find_addr(const struct vrc_dev *dev,
					 const struct sockaddr *sa);
/* Whether the device carries out atomics. mlx5 says so only if their results
 * have the host's byte order. */
static inline bool vrc_dev_has_atomics(const struct vrc_dev *dev)
{
	return dev->attr.atomic_cap != IBV_ATOMIC_NONE;
}
/* A context of our own on the device; errno is set when NULL. */
struct ibv_context *vrc_dev_open(const struct vrc_dev *dev) __must_check;

/* vrc_getinfo.c */
int vrc_getinfo(uint32_t version, const char *node, const char *service,
		uint64_t flags, const struct fi_info *hints,
		struct fi_info **info);
/* The info of an incoming connection on dev: pep_info narrowed to the device
 * and the two addresses. Caller owns it (fi_freeinfo). NULL: out of memory. */
struct fi_info *vrc_info_for_connreq(const struct vrc_dev *dev,
				     const struct fi_info *pep_info,
				     const struct sockaddr *src,
				     const struct sockaddr *dst);

/* vrc_fabric.c */
int vrc_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		    void *context);

/* vrc_domain.c */
int vrc_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		    struct fid_domain **domain, void *context);

/* vrc_mr.c */
extern const struct fi_ops_mr vrc_mr_ops;
/* ibv_access_flags for FI_SEND, FI_REMOTE_READ and so on. */
int vrc_mr_access(const struct vrc_domain *domain, uint64_t access);
/* Says why memory could not be registered; err is a positive errno. */
void vrc_mr_explain(const struct vrc_domain *domain, const void *buf,
		    size_t len, int err);
/* True if desc came from a registration in the domain with that tag. */
static inline bool vrc_desc_ok(uint32_t desc_tag, const void *desc)
{
	return (uint32_t)((uintptr_t)desc >> 32) == desc_tag;
}
static inline void *vrc_desc(uint32_t desc_tag, uint32_t lkey)
{
	return (void *)((uintptr_t)desc_tag << 32 | lkey);
}
static inline uint32_t vrc_desc_lkey(const void *desc)
{
	return (uint32_t)(uintptr_t)desc;
}

/* vrc_eq.c */
int vrc_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		struct fid_eq **eq, void *context);
/* fi_trywait: 0 if it is safe to wait, -FI_EAGAIN if there is an event. */
int vrc_eq_trywait(struct vrc_eq *eq);
/* No event and no error is queued. Caller holds eq->lock. */
bool vrc_eq_is_empty(const struct vrc_eq *eq);
/* Queue an event. Caller holds eq->lock. info and data are copied or taken as
 * documented in vrc_eq.c. Never fails loudly: -FI_ENOMEM is logged. */
int vrc_eq_post_cm(struct vrc_eq *eq, uint32_t event, struct fid *fid,
		   struct fi_info *info, const void *data, size_t len);
int vrc_eq_post_err(struct vrc_eq *eq, struct fid *fid, int err,
		    int prov_errno, const void *data, size_t len);
/* Drop what is queued for a fid that is closing. Caller holds eq->lock. */
void vrc_eq_forget(struct vrc_eq *eq, const struct fid *fid);

/* vrc_eq_chan.c */
/* The event channel for that backend; NULL with errno set. Takes eq->lock. */
struct rdma_event_channel *vrc_eq_channel(struct vrc_eq *eq,
					  const struct vrc_verbs_ops *ops);
/* Handles connection events that wait in the kernel: until something is queued,
 * or all there is. Caller holds eq->lock. */
void vrc_eq_poll(struct vrc_eq *eq, bool all);
/* All there is. Takes eq->lock. */
void vrc_eq_progress(struct vrc_eq *eq);

/* vrc_eq_thread.c */
/* Starts the thread that handles connection events; without it they are
 * handled when the queue is read. */
int vrc_eq_thread_start(struct vrc_eq *eq);
void vrc_eq_thread_stop(struct vrc_eq *eq);
/* vrc_cm_tick and vrc_credit_tick are called a little later. Takes no lock. */
void vrc_eq_tick(struct vrc_eq *eq);

/* vrc_cm.c */
extern const struct fi_ops_cm vrc_cm_ep_ops;
/* fi_endpoint: take over info->handle (a connection request or a passive
 * endpoint) and the addresses. */
int vrc_cm_init(struct vrc_ep *ep, const struct fi_info *info) __must_check;
/* fi_enable, before the queue pair exists: make or adopt the rdma_cm id, bind
 * it to the source address, learn port_num. */
int vrc_cm_enable(struct vrc_ep *ep) __must_check;
/* fi_close: disconnects, destroys the id, drops queued events. No event of
 * this endpoint can be handled or read once this returns. Takes eq->lock. */
void vrc_cm_fini(struct vrc_ep *ep);
/* The queue pair broke: one FI_SHUTDOWN, and the peer is told. Takes eq->lock,
 * may be called with a cq->lock held, any number of times. */
void vrc_cm_broken(struct vrc_ep *ep);
/* A while after vrc_eq_tick: what lingers may be due. Caller holds eq->lock. */
void vrc_cm_tick(struct vrc_eq *eq);
/* One rdma_cm event off eq's channel; acks it. Caller holds eq->lock. */
void vrc_cm_event(struct vrc_eq *eq, const struct vrc_verbs_ops *ops,
		  struct rdma_cm_event *event);

/* vrc_pep.c */
int vrc_pep_open(struct fid_fabric *fabric, struct fi_info *info,
		 struct fid_pep **pep, void *context);
/* RDMA_CM_EVENT_CONNECT_REQUEST on a listening id. Caller holds eq->lock. */
void vrc_pep_connect_request(struct vrc_eq *eq,
			     const struct vrc_verbs_ops *ops,
			     struct rdma_cm_event *event);
/* Frees a connection request; rejects it if its id is still there. Caller
 * holds req->eq->lock. */
void vrc_connreq_free(struct vrc_connreq *req);

/* vrc_ep.c */
int vrc_ep_open(struct fid_domain *domain, struct fi_info *info,
		struct fid_ep **ep, void *context);

/* vrc_alias.c */
int vrc_ep_alias(struct vrc_ep *ep, struct fi_alias *arg);
/* vrc_srx.c: shared receive contexts; see vrc_srx.h. */
int vrc_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr,
		 struct fid_ep **srx, void *context);
/* fi_ep_bind; and when the endpoint closes. */
int vrc_srx_bind(struct vrc_ep *ep, struct fid *fid);
void vrc_srx_unbind(struct vrc_ep *ep);
/* fi_enable of an endpoint that has one: room in its completion queue; then,
 * when it has a queue pair, its place among those that a completion may be of.
 * And the reverse of both. */
int vrc_srx_reserve(struct vrc_ep *ep) __must_check;
void vrc_srx_unreserve(struct vrc_ep *ep);
void vrc_srx_attach(struct vrc_ep *ep);
void vrc_srx_detach(struct vrc_ep *ep);
struct ibv_srq *vrc_srx_srq(const struct vrc_ep *ep); /* or NULL */
ssize_t vrc_srx_size_left(struct fid_ep *srx);

/* vrc_stx.c: shared transmit contexts. */
int vrc_stx_open(struct fid_domain *domain, struct fi_tx_attr *attr,
		 struct fid_stx **stx, void *context);
int vrc_stx_bind(struct vrc_ep *ep, struct fid *fid);
void vrc_stx_unbind(struct vrc_ep *ep);

/* vrc_ep_opt.c */
int vrc_ep_getopt(fid_t fid, int level, int name, void *val, size_t *len);
int vrc_ep_setopt(fid_t fid, int level, int name, const void *val, size_t len);

/* vrc_ep_info.c */
/* FI_GETOPSFLAG and FI_SETOPSFLAG: *flags has FI_TRANSMIT or FI_RECV, and is or
 * becomes the rest of *tx or *rx. */
int vrc_ep_op_flags(const struct vrc_ep *ep, int command, uint64_t *flags,
		    _Atomic uint64_t *tx, _Atomic uint64_t *rx);
/* 0, or -FI_EINVAL and a warning that says what is wrong with info. */
int vrc_ep_info_check(const struct vrc_domain *domain,
		      const struct fi_info *info) __must_check;

/* vrc_qp.c: an endpoint's queue pair. All return 0 or -FI_E*. */
/* Makes the queue pair and brings it to INIT, so that receives can be posted.
 * ep->port_num is known. */
int vrc_qp_create(struct vrc_ep *ep) __must_check;
/* To RTR and RTS with ep->cm.id's path and our timers; reads the ACK timeout
 * back. On iWARP the kernel does it: nothing to do. */
int vrc_qp_connect(struct vrc_ep *ep) __must_check;
/* To ERR, so that everything posted flushes. Harmless when repeated. */
void vrc_qp_error(struct vrc_ep *ep);
void vrc_qp_destroy(struct vrc_ep *ep);

/* vrc_credit.c */
bool vrc_credit_wanted(const struct vrc_dev *dev);
/* fi_enable, before the queue pair is made. */
int vrc_credit_open(struct vrc_ep *ep) __must_check;
/* The queue pair is gone. */
void vrc_credit_close(struct vrc_ep *ep);
/* Adds to what we say of ourselves when we connect or accept. */
void vrc_credit_offer(struct vrc_ep *ep, struct vrc_peer *self);
/* The peer's offer, before the endpoint's state says that it is connected.
 * Caller holds eq->lock, here and in the next two. */
void vrc_credit_agree(struct vrc_ep *ep, const struct vrc_peer *peer);
/* After the state says so. */
void vrc_credit_start(struct vrc_ep *ep);
/* The endpoint leaves its event queue. */
void vrc_credit_stop(struct vrc_ep *ep);
/* The device was given cnt receives more. Caller holds no lock. */
void vrc_credit_posted(struct vrc_ep *ep, unsigned int cnt);
/* The same for who may hold locks: the peer is told at the next tick. */
void vrc_credit_add(struct vrc_ep *ep, unsigned int cnt);
/* 0 or -FI_EAGAIN: whether ep, whose gate is not 0, may post a work request of
 * that kind. Caller holds tx_lock, and gives it back if it is not posted. */
int vrc_credit_take(struct vrc_ep *ep, enum ibv_wr_opcode opcode);
void vrc_credit_return(struct vrc_ep *ep, enum ibv_wr_opcode opcode);
/* The work request of req, a VRC_OP_CREDIT, is done. */
void vrc_credit_written(const struct vrc_req *req);
/* A while after vrc_eq_tick. Caller holds eq->lock. */
void vrc_credit_tick(struct vrc_eq *eq);

/* vrc_deliver.c */
int vrc_deliver_open(struct vrc_domain *domain) __must_check;
void vrc_deliver_close(struct vrc_domain *domain);
/* Adds to what we say of ourselves, after vrc_credit_offer. */
void vrc_deliver_offer(const struct vrc_ep *ep, struct vrc_peer *self);

/* vrc_more.c */
int vrc_more_open(struct vrc_ep *ep) __must_check;
void vrc_more_close(struct vrc_ep *ep);
/* Posts wr behind what is held, or holds it as well; 0 or what ibv_post_send
 * returns. Caller holds tx_lock if there is one. */
int vrc_more_send(struct vrc_ep *ep, struct ibv_send_wr *wr, bool hold);
/* The same with rx_lock; *cnt is how many receives the device was given. */
int vrc_more_recv(struct vrc_ep *ep, struct ibv_recv_wr *wr, bool hold,
		  unsigned int *cnt);
/* Posts what is held. */
void vrc_more_flush(struct vrc_ep *ep);
/* The same, unless somebody is at it; for who holds cq->lock. */
void vrc_more_try_flush(struct vrc_ep *ep);

/* vrc_local.c */
int vrc_local_open(struct vrc_ring *ring) __must_check;
/* Registers the cnt pieces of sge for an operation, whose registrations are
 * kept in the VRC_IOV_LIMIT of slot, and fills in the lkeys; access is
 * ibv_access_flags. Returns cnt or -FI_E*. */
int vrc_local_reg(struct vrc_domain *domain, struct ibv_mr **slot, int cnt,
		  int access, struct ibv_sge *sge) __must_check;
/* Deregisters what a slot holds. */
void vrc_local_drop(struct vrc_domain *domain, struct ibv_mr **slot);
/* Deregisters what the records first .. end - 1 hold. */
void vrc_local_release(struct vrc_ep *ep, struct vrc_ring *ring, uint32_t first,
		       uint32_t end);

/* vrc_atomic.c */
extern const struct fi_ops_atomic vrc_atomic_ops_locked;
extern const struct fi_ops_atomic vrc_atomic_ops_unlocked;
/* fi_domain with FI_ATOMIC, and its reverse. */
int vrc_atomic_open(struct vrc_domain *domain) __must_check;
void vrc_atomic_close(struct vrc_domain *domain);
int vrc_query_atomic(struct fid_domain *domain, enum fi_datatype datatype,
		     enum fi_op op, struct fi_atomic_attr *attr,
		     uint64_t flags);

/* vrc_msg.c, vrc_rma.c */
extern const struct fi_ops_msg vrc_msg_ops_locked;
extern const struct fi_ops_msg vrc_msg_ops_unlocked;
/* Of endpoints whose receives are posted to a shared context. */
extern const struct fi_ops_msg vrc_msg_ops_locked_srx;
extern const struct fi_ops_msg vrc_msg_ops_unlocked_srx;
extern const struct fi_ops_rma vrc_rma_ops_locked;
extern const struct fi_ops_rma vrc_rma_ops_unlocked;

/* vrc_cq.c */
int vrc_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		struct fid_cq **cq, void *context);
int vrc_cq_trywait(struct vrc_cq *cq);
ssize_t vrc_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf,
		       uint64_t flags);
ssize_t vrc_cq_sread(struct fid_cq *cq, void *buf, size_t count,
		     const void *cond, int timeout);
ssize_t vrc_cq_sreadfrom(struct fid_cq *cq, void *buf, size_t count,
			 fi_addr_t *src_addr, const void *cond, int timeout);
int vrc_cq_signal(struct fid_cq *cq);
const char *vrc_cq_strerror(struct fid_cq *cq, int prov_errno,
			    const void *err_data, char *buf, size_t len);
/* Sets aside cnt entries so that the queue cannot overrun. */
int vrc_cq_reserve(struct vrc_cq *cq, int cnt) __must_check;
void vrc_cq_unreserve(struct vrc_cq *cq, int cnt);
/* Wakes those who wait on cq; never blocks. */
void vrc_cq_wake(struct vrc_cq *cq);
/* The next completion makes an event on cq's channel, if it has one. */
int vrc_cq_arm(struct vrc_cq *cq) __must_check;

/* vrc_cq_entry.c: the format's table; NULL if we do not have that format. */
const struct fi_ops_cq *vrc_cq_ops(enum fi_cq_format format, bool locked);

/* vrc_cq_read.c */
/* FI_* flags that completions of an enum vrc_op carry; receives may have more. */
extern const uint64_t vrc_op_flags[VRC_OP_CNT];
/* True if fi_cq_read would return an entry or an error. Caller holds the
 * lock if there is one. */
bool vrc_cq_has_entry(struct vrc_cq *cq);
/* The next completion that the application is to see; false if there is none. A
 * batch that was not full emptied the device's queue, which *drained remembers.
 * Caller holds the lock if there is one. */
bool vrc_cq_next(struct vrc_cq *cq, struct vrc_comp *comp, bool *drained);
/* Completes what broken endpoints did not flush; true if that made some. Caller
 * holds the lock if there is one. */
bool vrc_cq_flushed(struct vrc_cq *cq);
/* What one work completion means; false if the application sees nothing of it.
 * Retires the record and all before it. Caller holds the CQ's lock. */
bool vrc_cq_resolve(const struct ibv_wc *wc, struct vrc_comp *comp);
/* For who asks a counter: takes what the device has, so that it is counted,
 * and keeps what the application is to read. */
void vrc_cq_count(struct vrc_cq *cq);
/* One that is kept as it is has been taken. Caller holds the CQ's lock. */
void vrc_cq_count_raw(const struct ibv_wc *wc);

/* vrc_drain.c */
/* fi_close: every posted operation is turned into a completion that does not
 * need the endpoint, then the queue pair is destroyed. Bounded by
 * VRC_FLUSH_TIMEOUT_MS. */
int vrc_ep_drain(struct vrc_ep *ep) __must_check;
/* Completes from the ledger what broken endpoints failed to flush in time, and
 * posts what is held back. Caller holds cq->lock. */
void vrc_cq_attend(struct vrc_cq *cq);
/* Takes what the device has, so that work requests of our own are seen to be
 * done; the application's completions are kept. */
void vrc_cq_reap(struct vrc_cq *cq);
/* The same, unless somebody holds cq->lock; may be called with eq->lock held. */
void vrc_cq_try_reap(struct vrc_cq *cq);
/* The same; caller holds the lock if there is one. Returns how many there were,
 * or -FI_ENOMEM. */
int vrc_cq_keep(struct vrc_cq *cq);

/* vrc_poll.c */
int vrc_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		  struct fid_poll **pollset);

/* vrc_stats.c: fi_open_ops of endpoints, completion queues and domains. */
int vrc_stats_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context);

/* vrc_wait.c */
/* 0 if it is safe to wait for fid's descriptor, -FI_EAGAIN if there is news. */
int vrc_trywait(struct fid *fid);
int vrc_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr,
		  struct fid_wait **waitset);
/* 0, or an error and a warning: what obj says cannot be waited for. */
int vrc_wait_obj_check(const char *call, const struct vrc_fabric *fabric,
		       enum fi_wait_obj obj, const struct fid_wait *set);
/* fid, which fd stands for, becomes a member; or ends to be one. A set that is
 * NULL is none. */
int vrc_wait_join(struct fid_wait *set, struct fid *fid, int fd) __must_check;
void vrc_wait_leave(struct fid_wait *set, const struct fid *fid);

/* vrc_cntr.c, vrc_cntr_bind.c */
int vrc_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		  struct fid_cntr **cntr, void *context);
int vrc_cntr_trywait(struct fid *fid);
/* What holds a reference on a counter of that domain; NULL: it is another's. */
atomic_int *vrc_cntr_refs(struct fid *fid, const struct vrc_domain *domain);
/* fi_ep_bind; and when the endpoint closes. */
int vrc_cntr_bind(struct vrc_ep *ep, struct fid *fid, uint64_t flags);
void vrc_cntr_unbind(struct vrc_ep *ep);
/* fi_enable, when the completion queues are known; and its reverse. */
int vrc_cntr_enable(struct vrc_ep *ep) __must_check;
void vrc_cntr_disable(struct vrc_ep *ep);
/* Whether that side's work requests are counted. */
bool vrc_cntr_tx(const struct vrc_ep *ep);
bool vrc_cntr_rx(const struct vrc_ep *ep);
/* The completion of req, and so of all before next, has been taken. Does no
 * harm the second time. Caller holds the lock of the completion queue. */
void vrc_cntr_count(struct vrc_ring *ring, const struct ibv_wc *wc,
		    struct vrc_req *req, uint32_t next);
/* The same for one of a shared context, which came to ep. */
void vrc_cntr_count_shared(struct vrc_ep *ep, const struct ibv_wc *wc,
			   struct vrc_req *req);
/* Record number i failed without a completion. */
void vrc_cntr_cancel(struct vrc_ring *ring, struct vrc_req *req, uint32_t i);

/* vrc_nosys.c: one function per signature that libfabric may call. */
ssize_t vrc_nosys_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
		       fi_addr_t src_addr, void *context);
ssize_t vrc_nosys_recvv(struct fid_ep *ep, const struct iovec *iov,
			void **desc, size_t count, fi_addr_t src_addr,
			void *context);
ssize_t vrc_nosys_msg(struct fid_ep *ep, const struct fi_msg *msg,
		      uint64_t flags);
ssize_t vrc_nosys_send(struct fid_ep *ep, const void *buf, size_t len,
		       void *desc, fi_addr_t dest_addr, void *context);
ssize_t vrc_nosys_sendv(struct fid_ep *ep, const struct iovec *iov,
			void **desc, size_t count, fi_addr_t dest_addr,
			void *context);
ssize_t vrc_nosys_inject(struct fid_ep *ep, const void *buf, size_t len,
			 fi_addr_t dest_addr);
ssize_t vrc_nosys_senddata(struct fid_ep *ep, const void *buf, size_t len,
			   void *desc, uint64_t data, fi_addr_t dest_addr,
			   void *context);
ssize_t vrc_nosys_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			     uint64_t data, fi_addr_t dest_addr);
ssize_t vrc_nosys_cancel(fid_t fid, void *context);
int vrc_nosys_getopt(fid_t fid, int level, int optname, void *optval,
		     size_t *optlen);
int vrc_nosys_setopt(fid_t fid, int level, int optname, const void *optval,
		     size_t optlen);
int vrc_nosys_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
		     struct fid_ep **tx_ep, void *context);
int vrc_nosys_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
		     struct fid_ep **rx_ep, void *context);
ssize_t vrc_nosys_size_left(struct fid_ep *ep);
extern const struct vrc_ep_table vrc_nosys_ep;
extern const struct fi_ops_cm vrc_nosys_cm;
extern const struct fi_ops_rma vrc_nosys_rma;
extern const struct fi_ops_tagged vrc_nosys_tagged;
extern const struct fi_ops_atomic vrc_nosys_atomic;
extern const struct fi_ops_collective vrc_nosys_collective;
int vrc_nosys_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int vrc_nosys_control(struct fid *fid, int command, void *arg);
int vrc_nosys_ops_open(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context);
int vrc_nosys_tostr(const struct fid *fid, char *buf, size_t len);
int vrc_nosys_ops_set(struct fid *fid, const char *name, uint64_t flags,
		      void *ops, void *context);

#endif
