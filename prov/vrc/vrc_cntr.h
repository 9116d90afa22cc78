/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The counter as an object: counted and waited for in vrc_cntr.c, bound to
 * endpoints and their completion queues in vrc_cntr_bind.c.
 */
#ifndef VRC_CNTR_H
#define VRC_CNTR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc_verbs.h"

struct vrc_cq;
struct vrc_domain;
struct vrc_ep;
struct vrc_req;
struct vrc_ring;

struct vrc_cntr {
	struct fid_cntr fid;
	struct vrc_domain *domain;
	atomic_int ref;
	enum fi_wait_obj wait_obj;
	struct fid_wait *wait_set; /* that epoll_fd belongs to, or NULL */
	_Atomic uint64_t value;
	_Atomic uint64_t errors;
	int channels_fd; /* an epoll descriptor: the channels of all queues */
	/* Those who sleep in fi_cntr_wait poll that and wake_fd; who polls the
	 * counter's own descriptor, that and signal_fd. */
	int wake_fd;
	int signal_fd;
	int epoll_fd;
	atomic_int waiters; /* wake_fd wakes them */
	atomic_bool armed; /* somebody may poll signal_fd */
	struct lock lock; /* guards what follows; before cq->lock */
	struct list waits; /* of those who sleep */
	struct list cqs; /* struct counted_cq */
	bool can_sleep; /* every queue has a channel */
	uint64_t value_seen; /* by fi_trywait */
	uint64_t errors_seen;
};

/* A queue whose completions a counter waits for. */
struct counted_cq {
	struct list node;
	struct vrc_cq *cq;
	int refs; /* endpoints' sides */
};

static inline struct vrc_cntr *vrc_cntr(struct fid_cntr *fid)
{
	return container_of(fid, struct vrc_cntr, fid);
}

/* Whether its descriptor is the application's to wait on. */
static inline bool vrc_cntr_has_fd(const struct vrc_cntr *cntr)
{
	return cntr->wait_obj == FI_WAIT_FD || cntr->wait_obj == FI_WAIT_SET;
}

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

#endif
