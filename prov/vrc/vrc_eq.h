/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The event queue: connection events, their channels and the thread that handles them. */
#ifndef VRC_EQ_H
#define VRC_EQ_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_verbs.h"

struct vrc_eq_event;
struct vrc_fabric;

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

VRC_CONVERTER(vrc_eq, fid_eq)

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

#endif
