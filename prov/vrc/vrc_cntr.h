/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The counter as an object: counted and waited for in vrc_cntr.c, bound to
 * endpoints and their completion queues in vrc_cntr_bind.c.
 */
#ifndef VRC_CNTR_H
#define VRC_CNTR_H

#include "vrc.h"

struct vrc_cntr {
	struct fid_cntr fid;
	struct vrc_domain *domain;
	atomic_int ref;
	enum fi_wait_obj wait_obj;
	struct fid_wait *wait_set; /* that epoll_fd belongs to, or NULL */
	_Atomic uint64_t value;
	_Atomic uint64_t errors;
	atomic_int waiters; /* signal_fd wakes them */
	int signal_fd;
	int epoll_fd; /* signal_fd, and the channels of all queues; or -1 */
	struct lock lock; /* guards what follows; before cq->lock */
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

#endif
