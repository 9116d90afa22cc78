/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The rdma_cm event channels of an event queue, one per backend: making them and
 * taking from them. A thread does that (vrc_eq_thread.c), and so does who reads
 * the queue and finds nothing in it, which is faster when the reader polls.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "compiler.h"
#include "lock.h"
#include "vrc_cm.h"
#include "vrc_credit.h"
#include "vrc_eq.h"
#include "vrc_log.h"
#include "vrc_verbs.h"

enum {
	/* Connection events handled in one go, so that no call is endless. */
	PROGRESS_MAX = 1024,
};

/* Caller holds eq->lock. */
static void progress_chan(struct vrc_eq *eq, unsigned int i, bool all)
{
	const struct vrc_verbs_ops *ops = eq->chan[i].ops;
	struct rdma_cm_event *event;

	for (int n = 0; n < PROGRESS_MAX && (all || vrc_eq_is_empty(eq)); n++) {
		if (ops->get_cm_event(eq->chan[i].channel, &event)) {
			if (errno != EAGAIN && errno != EWOULDBLOCK)
				vrc_dbg(EQ, "eq: rdma_get_cm_event: %s\n",
					strerror(errno));
			return;
		}
		vrc_cm_event(eq, ops, event);
	}
}

void vrc_eq_poll(struct vrc_eq *eq, bool all)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(eq->chan); i++) {
		unsigned int c = (eq->first_chan + i) % ARRAY_SIZE(eq->chan);

		if (eq->chan[c].channel)
			progress_chan(eq, c, all);
	}
	eq->first_chan++;
	if (eq->cm_epoll_fd < 0 && atomic_exchange(&eq->tick_due, false)) {
		vrc_linger_tick(eq);
		vrc_credit_tick(eq);
	}
}

void vrc_eq_progress(struct vrc_eq *eq)
{
	lock_take(&eq->lock);
	vrc_eq_poll(eq, true);
	lock_drop(&eq->lock);
}

/* Non-blocking, and what the thread waits on, or else the application. */
static int channel_prepare(const struct vrc_eq *eq,
			   struct rdma_event_channel *channel)
{
	struct epoll_event event = { .events = EPOLLIN };
	int flags = fcntl(channel->fd, F_GETFL);

	if (flags < 0 ||
	    fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(channel->fd, F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	event.data.fd = channel->fd;
	if (eq->cm_epoll_fd >= 0)
		return epoll_ctl(eq->cm_epoll_fd, EPOLL_CTL_ADD, channel->fd,
				 &event);
	if (eq->epoll_fd < 0)
		return 0;
	return epoll_ctl(eq->epoll_fd, EPOLL_CTL_ADD, channel->fd, &event);
}

/* Caller holds eq->lock. */
static struct rdma_event_channel *channel_make(struct vrc_eq *eq,
					       unsigned int i,
					       const struct vrc_verbs_ops *ops)
{
	struct rdma_event_channel *channel = ops->create_event_channel();
	int err;

	if (!channel) {
		err = errno;
		vrc_warn(EQ, "eq: %s: no rdma_cm event channel: %s\n",
			 ops->name, strerror(err));
		goto out;
	}
	/* If it cannot be had, reading the queue does its work. */
	if (eq->cm_epoll_fd < 0)
		vrc_eq_thread_start(eq);
	if (channel_prepare(eq, channel)) {
		err = errno;
		vrc_warn(EQ, "eq: %s: rdma_cm event channel: %s\n",
			 ops->name, strerror(err));
		goto err_destroy_channel;
	}
	eq->chan[i].ops = ops;
	eq->chan[i].channel = channel;
	return channel;

err_destroy_channel:
	ops->destroy_event_channel(channel);
out:
	errno = err;
	return NULL;
}

struct rdma_event_channel *vrc_eq_channel(struct vrc_eq *eq,
					  const struct vrc_verbs_ops *ops)
{
	struct rdma_event_channel *channel = NULL;

	lock_take(&eq->lock);
	errno = ENOMEM;
	for (unsigned int i = 0; i < ARRAY_SIZE(eq->chan); i++) {
		if (eq->chan[i].ops == ops) {
			channel = eq->chan[i].channel;
			break;
		}
		if (!eq->chan[i].ops) {
			channel = channel_make(eq, i, ops);
			break;
		}
	}
	lock_drop(&eq->lock);
	return channel;
}
