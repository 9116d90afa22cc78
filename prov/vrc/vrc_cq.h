/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The completion queue, and what those that take completions have in common. */
#ifndef VRC_CQ_H
#define VRC_CQ_H

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include "compiler.h"
#include "list.h"
#include "vrc.h"
#include "vrc_ep.h"
#include "vrc_verbs.h"
#include "word_lock.h"

struct vrc_domain;

enum {
	/* Work completions taken from the device in one call. */
	VRC_CQ_BATCH = 16,
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
	/* Guards all that follows but ref; taken only if thread_safe, by who goes
	 * to sleep, or by those that are not the application's reader. */
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
	unsigned int counters; /* that count what completes here */

	/* Cold. */
	struct vrc_domain *domain;
	atomic_int ref;
	struct ibv_comp_channel *channel; /* NULL: FI_WAIT_NONE */
	struct fid_wait *wait_set; /* that epoll_fd belongs to, or NULL */
	int epoll_fd;	/* channel's fd and signal_fd */
	int signal_fd;	/* eventfd: vrc_cq_wake */
	struct word_lock sleep_lock; /* nothing is taken under it; guards: */
	uint32_t sleepers; /* threads in fi_cq_sread */
	uint32_t signal_gen; /* calls of fi_cq_signal */
	uint32_t signal_due; /* sleepers whom the last one has still to wake */
	bool signal_kept; /* it found none */
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

VRC_CONVERTER(vrc_cq, fid_cq)

/* vrc_cq_wait.c */
int vrc_cq_wait_open(struct vrc_cq *cq) __must_check;
void vrc_cq_wait_close(struct vrc_cq *cq);
int vrc_cq_trywait(struct vrc_cq *cq);
ssize_t vrc_cq_sread(struct fid_cq *cq, void *buf, size_t count,
		     const void *cond, int timeout);
ssize_t vrc_cq_sreadfrom(struct fid_cq *cq, void *buf, size_t count,
			 fi_addr_t *src_addr, const void *cond, int timeout);
int vrc_cq_signal(struct fid_cq *cq);
/* The same from within: fi_cq_sread returns without an entry. */
void vrc_cq_interrupt(struct vrc_cq *cq);

/* vrc_cq.c */
int vrc_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		struct fid_cq **cq, void *context);
ssize_t vrc_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf,
		       uint64_t flags);
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
void vrc_cq_count_locked(struct vrc_cq *cq); /* caller holds the lock */
/* One that is kept as it is has been taken. Caller holds the CQ's lock. */
void vrc_cq_count_raw(const struct ibv_wc *wc);

/* vrc_drain.c */
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

/* Refills the empty cq->wc; how many there were. */
static __hot_inline int vrc_cq_poll(struct vrc_cq *cq)
{
	int cnt = ibv_poll_cq(cq->cq, VRC_CQ_BATCH, cq->wc);

	if (unlikely(cnt < 0))
		cnt = 0;
	cq->wc_next = cq->wc;
	cq->wc_end = cq->wc + cnt;
	return cnt;
}

/* What is reported of a receive that succeeded. */
static __hot_inline void vrc_recv_seen(const struct ibv_wc *wc, uint64_t *flags,
				       size_t *len, uint64_t *data)
{
	*flags = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ?
			 FI_REMOTE_WRITE | FI_RMA :
			 FI_RECV | FI_MSG;
	*len = wc->byte_len;
	*data = 0;
	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		*flags |= FI_REMOTE_CQ_DATA;
		*data = ntohl(wc->imm_data);
	}
}

/* The records before next may be used again; pairs with the acquire in
 * vrc_ring_next. */
static __hot_inline void vrc_ring_retire(struct vrc_ring *ring, uint32_t next)
{
	atomic_store_explicit(&ring->tail, next, memory_order_release);
}

#endif
