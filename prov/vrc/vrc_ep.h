/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The endpoint: its ledger (two rings of records, one per posted operation), its
 * connection, its queue pair.
 */
#ifndef VRC_EP_H
#define VRC_EP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_util.h"
#include "vrc_verbs.h"
#include "word_lock.h"

struct vrc_cntr;
struct vrc_connreq;
struct vrc_credit;
struct vrc_cq;
struct vrc_domain;
struct vrc_eq;
struct vrc_more;
struct vrc_srx;
struct vrc_stx;

enum {
	/* Scatter/gather entries that an operation may have. */
	VRC_IOV_LIMIT = 4,
	/* How long a closing or broken queue pair may take to flush. */
	VRC_FLUSH_TIMEOUT_MS = 1000,
};

/* What a record in the ledger is about. */
enum vrc_op {
	VRC_OP_SEND,
	VRC_OP_RECV,
	VRC_OP_READ,
	VRC_OP_WRITE,
	VRC_OP_ATOMIC,	     /* changes, and nothing comes back */
	VRC_OP_FETCH_ATOMIC, /* what was there comes back */
	/* From here on the record is in no ring; see vrc_req_in_ring. */
	VRC_OP_SHARED_RECV, /* vrc_srx.h */
	VRC_OP_CREDIT, /* ours, never shown to the application */
	VRC_OP_CNT,
};

enum vrc_req_flags {
	/* The application wants to see this one when it succeeds. */
	VRC_REQ_VISIBLE = 1 << 0,
	/* In an unordered ring: completed, while one before it has not. */
	VRC_REQ_DONE = 1 << 1,
	/* Not the last work request of an operation, which speaks for all. */
	VRC_REQ_PART = 1 << 2,
	/* Completed from the ledger; what the device says of it is late. */
	VRC_REQ_CANCELLED = 1 << 3,
	/* In an unordered ring, or in none: a counter has it. */
	VRC_REQ_COUNTED = 1 << 4,
	/* More is to be done when it completes than to report it and to move
	 * the ring's tail. One that has only VRC_REQ_VISIBLE is ordinary. */
	VRC_REQ_SPECIAL = 1 << 5,
	/* From this bit on: enum ibv_wc_status of a part that failed; on the
	 * record that speaks for it. */
	VRC_REQ_STATUS = 8,
};

/*
 * One posted operation. A work request's wr_id is the address of its record.
 * On an error the device leaves everything else in the work completion
 * undefined, so all that is reported comes from here.
 */
struct vrc_req {
	void *context;
	union { /* set once, when the record is made */
		struct vrc_ep *ep;
		struct vrc_srx *srx; /* of a VRC_OP_SHARED_RECV */
	};
	uint32_t len;
	uint32_t next; /* in a ring: index of the record behind it */
	uint32_t slot; /* set once */
	uint16_t op;   /* enum vrc_op */
	uint16_t flags;
};

static_assert(sizeof(struct vrc_req) == 32, "two records to a cache line");

/*
 * A ring of records. head and tail run freely; the slot is index & mask. Work
 * requests of one queue complete in order, so a completion retires every
 * record before it; except on iWARP, where what follows a read may complete
 * before it. There everything is signalled, and a record is retired when all
 * before it are done.
 */
struct vrc_ring {
	struct vrc_req *req;
	uint32_t mask;
	uint32_t size;	/* records that the application may have in flight */
	struct ibv_mr **mrs; /* VRC_IOV_LIMIT a record; see vrc_local.c, or NULL */
	uint32_t last_signal; /* head of the last signalled one */
	uint16_t req_flags; /* VRC_REQ_SPECIAL if its records are */
	bool unordered;
	bool signal_all; /* unordered, counted, or small */
	bool counted_on; /* counters are bound; see vrc_cntr.c */
	uint32_t counted; /* records before it are; guarded as tail is */
	_Atomic uint32_t full; /* posts that found it so: statistics */
	/* Written by posting only, after the device has the work request: the
	 * completion of a record may be read before head is past it. Read by
	 * others when a queue pair broke. */
	_Atomic uint32_t head;
	/* Written by the reader of the completion queue (release); read by
	 * posting (acquire), so that a record is reused only when retired. */
	_Alignas(CACHELINE) _Atomic uint32_t tail;
};

enum vrc_ep_state {
	VRC_EP_IDLE,
	VRC_EP_ENABLED,
	VRC_EP_CONNECTING, /* fi_connect called */
	VRC_EP_ACCEPTING,  /* fi_accept called */
	VRC_EP_CONNECTED,
	VRC_EP_SHUTDOWN,   /* FI_SHUTDOWN reported, or the connection failed */
};

/* Private data as it travels: see vrc_cmdata.h. */
enum { VRC_CM_WIRE_SIZE = 56, VRC_CM_DATA_SIZE = 32 };

enum {
	VRC_FEATURE_CREDITS = 1 << 0,
	VRC_FEATURE_WORD = 1 << 1, /* a word may be read: vrc_deliver.c */
};

/* What vrc says of itself in the private data; all 0: not vrc. */
struct vrc_peer {
	uint8_t version;
	uint16_t features;
	uint32_t posted; /* with credits: see vrc_credit.c */
	uint32_t rkey;	 /* of the word */
	uint64_t addr;
};

/* The endpoint's side of connection management; owned by vrc_cm.c. */
struct vrc_cm {
	struct rdma_cm_id *id;
	struct vrc_connreq *connreq; /* taken from info->handle, until enable */
	union vrc_sockaddr src;
	union vrc_sockaddr dst;
	struct rdma_conn_param param;
	uint8_t wire[VRC_CM_WIRE_SIZE]; /* our private data */
	bool passive;
	bool dead;   /* passive: the peer gave up before fi_accept */
	bool broken; /* the queue pair broke before ESTABLISHED was read */
	struct list linger_node; /* eq->lingering: flushed at linger_ms */
	uint64_t linger_ms;
	bool linger_own; /* we ended the connection */
	struct vrc_peer peer;
};

/* What a send has to pass before it may be posted; see vrc_credit.c. Nothing
 * costs those anything that have none of it. */
enum vrc_gate {
	VRC_GATE_CREDITS = 1 << 0, /* the peer must have a receive posted */
	VRC_GATE_FIRST = 1 << 1,   /* the peer must speak first */
	VRC_GATE_FENCE = 1 << 2,   /* behind an atomic; see vrc_post.c */
	VRC_GATE_MORE = 1 << 3,	   /* behind what is held; see vrc_more.c */
};

/* The same of a receive. */
enum vrc_rx_gate {
	VRC_RX_GATE_CREDITS = 1 << 0, /* the peer is told how many there are */
	VRC_RX_GATE_MORE = 1 << 1,
};

enum vrc_cntr_kind {
	VRC_CNTR_SEND,
	VRC_CNTR_RECV,
	VRC_CNTR_READ,
	VRC_CNTR_WRITE,
	/* Nothing is seen of a read, nor of a write without data. */
	VRC_CNTR_REMOTE_READ,
	VRC_CNTR_REMOTE_WRITE,
	VRC_CNTR_CNT,
};

/* Work requests that stand ready. */
enum vrc_small_kind {
	VRC_SMALL_SEND,
	VRC_SMALL_WRITE,
	VRC_SMALL_READ, /* of any length */
	VRC_SMALL_CNT,
};

struct vrc_ep {
	struct fid_ep fid;
	struct ibv_qp *qp;

	struct vrc_ring tx; /* guarded by tx_lock; tail by tx_cq->lock */
	struct vrc_ring rx; /* guarded by rx_lock; tail by rx_cq->lock */

	/* 0 until the queue pair goes to ERR; then when what it did not flush
	 * is completed from the ledger. vrc_now_ms(). */
	_Atomic uint64_t flush_deadline_ms;
	_Atomic int state;	/* enum vrc_ep_state; written under eq->lock */
	_Atomic unsigned int gate; /* enum vrc_gate; 0: nothing to pass */
	_Atomic unsigned int rx_gate; /* enum vrc_rx_gate; 0: nothing to do */
	struct vrc_credit *credit; /* vrc_credit.c; NULL: not offered */
	struct vrc_more *more;
	bool tx_selective;	/* FI_SELECTIVE_COMPLETION on the bind */
	bool rx_selective;
	bool has_imm;		/* the device carries immediate data */
	bool local_reg;		/* descriptors are not needed, nor looked at */
	uint8_t empty_sge_cnt;	/* pieces of a receive of no bytes: 1 on iWARP */
	uint8_t max_read_sge;	/* pieces that a read may be scattered to */
	uint32_t inline_size;	/* what the queue pair really inlines */
	uint32_t inject_size;
	/* What calls without flags ask for; may be set while others post. */
	_Atomic uint64_t tx_op_flags;
	_Atomic uint64_t rx_op_flags;
	atomic_bool tx_visible; /* they want a completion */
	atomic_bool rx_visible;
	size_t max_msg_size;
	uint32_t desc_tag;
	uint8_t *bounce;	/* tx slots of inject_size, when larger than inline */
	uint32_t bounce_lkey;
	uint32_t no_read_before; /* an atomic, and with it every record of tx
				  * before this one, is behind all reads
				  * there; guarded by tx_lock */

	struct word_lock tx_lock;
	struct word_lock rx_lock;

	/* The short way, vrc_small.h: up to so many bytes, 0 for none; and work
	 * requests that lack what differs from call to call. Guarded by tx_lock. */
	_Atomic uint32_t small_len; /* as tx_op_flags */
	_Atomic uint16_t small_flags; /* VRC_REQ_* of calls without flags */
	struct {
		struct ibv_send_wr wr;
		struct ibv_sge sge;
	} small[VRC_SMALL_CNT];
	size_t ready_len; /* of reads and receives: the same */
	/* The same of receives; guarded by rx_lock. */
	_Atomic uint16_t ready_flags;
	struct {
		struct ibv_recv_wr wr;
		struct ibv_sge sge;
	} ready;

	/* Cold. */
	struct vrc_domain *domain;
	atomic_int aliases;
	_Atomic uint64_t errors; /* statistics: failed completions, */
	_Atomic uint64_t held_back; /* sends that waited for credits */
	struct vrc_eq *eq;
	struct vrc_cq *tx_cq;
	struct vrc_cq *rx_cq;
	struct vrc_cq *own_cq; /* of a side that has counters only; or NULL */
	struct vrc_cntr *cntr[VRC_CNTR_CNT];
	struct vrc_srx *srx;	/* instead of rx; or NULL */
	struct vrc_stx *stx;	/* or NULL */
	struct list srx_node;	/* srx->eps, while it is enabled */
	uint32_t qp_num;	/* still known when the queue pair is gone */
	struct fi_info *info;
	struct ibv_mr *bounce_mr;
	struct vrc_cm cm;
	uint8_t port_num;
	/* On tx_cq's and rx_cq's list of endpoints; guarded by that cq->lock. */
	struct list tx_node;
	struct list rx_node;
	bool tx_settled;	/* past the deadline; guarded as tx_node is */
	bool rx_settled;
};

VRC_CONVERTER(vrc_ep, fid_ep)

static inline bool vrc_req_in_ring(const struct vrc_req *req)
{
	return req->op < VRC_OP_SHARED_RECV;
}

static inline struct vrc_ring *vrc_req_ring(const struct vrc_req *req)
{
	return req->op == VRC_OP_RECV ? &req->ep->rx : &req->ep->tx;
}

/* vrc_ep.c */
int vrc_ep_open(struct fid_domain *domain, struct fi_info *info,
		struct fid_ep **ep, void *context);

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

/* vrc_drain.c */
/* fi_close: every posted operation is turned into a completion that does not
 * need the endpoint, then the queue pair is destroyed. Bounded by
 * VRC_FLUSH_TIMEOUT_MS. */
int vrc_ep_drain(struct vrc_ep *ep) __must_check;

#endif
