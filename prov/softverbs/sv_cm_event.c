/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Event channels and events. A channel's descriptor is an eventfd whose count
 * is 1 exactly while events are queued: it is written and read under the lock
 * when the queue stops or begins to be empty, so neither ever blocks, whatever
 * flags the application has set on it.
 *
 * An event counts against the id that it is about, a CONNECT_REQUEST against
 * the listener. destroy_id and migrate_id wait until what was fetched of an
 * id's events has been acknowledged.
 */
#include "sv_cm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
	RESERVE = 2,		/* how it ended, and that it ended */
};

/* An inherited descriptor counts for the parent; a destroyed one for nobody. */
static bool channel_counts(const struct sv_channel *channel)
{
	return !channel->destroyed && channel->process == sv_cm.process;
}

static void channel_raise(struct sv_channel *channel)
{
	uint64_t one = 1;
	ssize_t ret;

	if (!channel_counts(channel))
		return;
	ret = write(channel->channel.fd, &one, sizeof(one));
	(void)ret;		/* the count was 0: there is room */
}

static void channel_lower(struct sv_channel *channel)
{
	uint64_t count;
	ssize_t ret;

	if (!channel_counts(channel))
		return;
	ret = read(channel->channel.fd, &count, sizeof(count));
	(void)ret;		/* the count was 1: there is something */
}

struct sv_channel *sv_channel_new(void)
{
	struct sv_channel *channel;

	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return NULL;
	channel->channel.fd = eventfd(0, EFD_CLOEXEC);
	if (channel->channel.fd < 0) {
		free(channel);
		return NULL;
	}
	list_init(&channel->events);
	channel->refs = 1;
	channel->process = sv_cm.process;
	return channel;
}

void sv_channel_put(struct sv_channel *channel)
{
	if (--channel->refs)
		return;
	if (channel->channel.fd >= 0)
		close(channel->channel.fd);
	free(channel);
}

struct rdma_event_channel *sv_cm_create_event_channel(void)
{
	struct sv_channel *channel = NULL;

	if (sv_cm_fault(SV_FAULT_create_event_channel, NULL) || sv_cm_enter())
		return NULL;
	channel = sv_channel_new();
	sv_cm_leave(0);
	if (!channel)
		return NULL;
	return &channel->channel;
}

/*
 * Ids that still use the channel keep the memory, but get no more events. A
 * thread that waits goes on waiting, as it does in the kernel, where closing
 * the descriptor does not end a call: rping has such a thread as it exits.
 */
void sv_cm_destroy_event_channel(struct rdma_event_channel *cm_channel)
{
	struct sv_channel *channel = sv_channel(cm_channel);

	lock_take(&sv_cm.lock);
	channel->destroyed = true;
	if (!channel->waiters) {
		close(channel->channel.fd);
		channel->channel.fd = -1;
	}
	sv_channel_put(channel);
	lock_drop(&sv_cm.lock);
}

int sv_event_reserve(struct sv_id *id)
{
	struct sv_event *event;
	int i;

	for (i = 0; i < RESERVE; i++) {
		event = calloc(1, sizeof(*event));
		if (!event)
			return ENOMEM;
		list_add_tail(&id->reserve, &event->node);
	}
	return 0;
}

struct sv_event *sv_event_new(struct sv_id *id, enum rdma_cm_event_type type,
			      int status)
{
	struct sv_event *event = calloc(1, sizeof(*event));
	struct list *node;

	if (!event) {
		node = list_pop(&id->reserve);
		if (!node)
			return NULL;
		event = list_entry(node, struct sv_event, node);
		memset(event, 0, sizeof(*event));
	}
	list_init(&event->node);
	event->counted = id;
	event->event.id = &id->id;
	event->event.event = type;
	event->event.status = type == RDMA_CM_EVENT_REJECTED ?
		sv_id_reject_status(id, status) : status;
	return event;
}

/* InfiniBand's messages have a fixed room for private data: the rest is 0. The
 * event names the id that it is for. */
void sv_event_set_pd(struct sv_event *event, enum sv_cm_msg msg, const void *pd,
		     size_t len)
{
	const struct sv_persona *persona =
		sv_id_dev(sv_id(event->event.id))->persona;
	size_t max = persona->pd_max[msg];

	len = min_size(len, max);
	if (len)
		memcpy(event->pd, pd, len);
	if (!persona->pd_exact)
		len = max;
	event->event.param.conn.private_data = len ? event->pd : NULL;
	event->event.param.conn.private_data_len = (uint8_t)len;
}

/* An id that nobody knows of yet is where its listener is: it may have moved
 * while the event was late. */
static void child_follow(struct sv_event *event)
{
	struct rdma_event_channel *to = event->counted->id.channel;
	struct rdma_event_channel *from = event->child->id.channel;

	if (from == to)
		return;
	sv_channel(to)->refs++;
	event->child->id.channel = to;
	sv_channel_put(sv_channel(from));
}

void sv_event_queue(struct sv_event *event)
{
	if (sv_fault_any())
		sv_fault_event(event);
	else
		sv_event_enqueue(event);
}

void sv_event_enqueue(struct sv_event *event)
{
	struct sv_channel *channel = sv_channel(event->counted->id.channel);
	bool was_empty = list_empty(&channel->events);

	if (event->child)
		child_follow(event);

	list_add_tail(&channel->events, &event->node);
	if (was_empty)
		channel_raise(channel);
}

void sv_event_push(struct sv_id *id, enum rdma_cm_event_type type, int status)
{
	struct sv_event *event = sv_event_new(id, type, status);

	if (!event) {
		sv_log("cm: no memory for %s", sv_cm_event_str(type));
		return;
	}
	if (type == RDMA_CM_EVENT_REJECTED)
		sv_event_set_pd(event, SV_CM_REJ, NULL, 0);
	sv_event_queue(event);
}

/* Takes an event off its queue. */
static void event_unqueue(struct sv_channel *channel, struct sv_event *event)
{
	list_del(&event->node);
	if (list_empty(&channel->events))
		channel_lower(channel);
	if (event->child)
		event->counted->listener.pending--;
}

/* The event is on no queue, and counts no more. */
static void event_forget(struct sv_event *event, const struct sv_id *but)
{
	struct sv_id *child = event->child;

	free(event);
	/* Its own queue is empty: it was not known to anyone. */
	if (child && child != but) {
		child->fetched = true;
		sv_id_close(child);
		sv_id_free(child);
	}
}

void sv_event_discard(struct sv_event *event, const struct sv_id *but)
{
	if (event->child)
		event->counted->listener.pending--;
	event_forget(event, but);
}

void sv_event_drop(struct sv_id *id)
{
	struct sv_channel *channel = sv_channel(id->id.channel);
	struct sv_event *event;
	struct list *pos;
	struct list *tmp;

	sv_fault_event_drop(id);
	list_for_each_safe(pos, tmp, &channel->events) {
		event = list_entry(pos, struct sv_event, node);
		if (event->counted != id && event->child != id)
			continue;
		event_unqueue(channel, event);
		event_forget(event, id);
	}
}

/* Caller holds sv_cm.lock. The user comes to know the event, and its id. */
static struct sv_event *event_fetch(struct sv_channel *channel)
{
	struct sv_event *event;

	if (list_empty(&channel->events) || channel->destroyed)
		return NULL;
	event = list_entry(channel->events.next, struct sv_event, node);
	event_unqueue(channel, event);
	event->counted->events_got++;
	if (event->child)
		event->child->fetched = true;
	return event;
}

/* 0 when there may be something to fetch, else a positive errno. */
static int channel_wait(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return errno;
	if (flags & O_NONBLOCK)
		return EAGAIN;
	if (poll(&pfd, 1, -1) < 0)
		return errno;
	return pfd.revents & POLLNVAL ? EBADF : 0;
}

/* Caller holds sv_cm.lock, which is dropped while there is nothing to fetch; the
 * channel stays meanwhile. Positive errno. */
static int channel_fetch(struct sv_channel *channel, struct sv_event **out)
{
	int err = 0;

	channel->refs++;
	channel->waiters++;
	while (!err && !(*out = event_fetch(channel))) {
		lock_drop(&sv_cm.lock);
		err = channel_wait(channel->channel.fd);
		lock_take(&sv_cm.lock);
	}
	channel->waiters--;
	sv_channel_put(channel);
	return err;
}

int sv_cm_get_cm_event(struct rdma_event_channel *cm_channel,
		       struct rdma_cm_event **out)
{
	struct sv_event *event = NULL;
	int err;

	if (!cm_channel || !out) {
		errno = EINVAL;
		return -1;
	}
	if (sv_cm_fault(SV_FAULT_get_cm_event, NULL) || sv_cm_enter())
		return -1;
	if (sv_channel(cm_channel)->process != sv_cm.process)
		return sv_cm_leave(ENODEV);
	err = channel_fetch(sv_channel(cm_channel), &event);
	if (!err)
		*out = &event->event;
	return sv_cm_leave(err);
}

int sv_cm_ack_cm_event(struct rdma_cm_event *cm_event)
{
	struct sv_event *event;

	if (!cm_event) {
		errno = EINVAL;
		return -1;
	}
	event = sv_event(cm_event);
	lock_take(&sv_cm.lock);
	event->counted->events_acked++;
	pthread_cond_broadcast(&event->counted->acked);
	lock_drop(&sv_cm.lock);
	free(event);
	return 0;
}

int sv_event_complete(struct sv_id *id, int ret)
{
	int status;

	if (ret || !id->sync)
		return ret;
	if (id->id.event) {
		sv_cm_ack_cm_event(id->id.event);
		id->id.event = NULL;
	}
	ret = sv_cm_get_cm_event(id->id.channel, &id->id.event);
	if (ret)
		return ret;
	status = id->id.event->status;
	if (!status)
		return 0;
	if (id->id.event->event == RDMA_CM_EVENT_REJECTED)
		errno = ECONNREFUSED;
	else
		errno = status < 0 ? -status : EIO;
	return -1;
}

static void events_move(struct sv_id *id, struct sv_channel *from)
{
	struct sv_event *event;
	struct list *pos;
	struct list *tmp;

	list_for_each_safe(pos, tmp, &from->events) {
		event = list_entry(pos, struct sv_event, node);
		if (event->counted != id)
			continue;
		list_del(&event->node);
		if (list_empty(&from->events))
			channel_lower(from);
		/* What nobody knows of yet follows its listener. */
		if (event->child) {
			sv_channel(id->id.channel)->refs++;
			event->child->id.channel = id->id.channel;
			sv_channel_put(from);
		}
		sv_event_queue(event);
	}
}

/* Waits until the events fetched so far are acknowledged, as rdma-core does. */
int sv_cm_migrate_id(struct rdma_cm_id *cm_id,
		     struct rdma_event_channel *cm_channel)
{
	struct sv_id *id = sv_id(cm_id);
	struct sv_channel *from;
	struct sv_channel *to;

	if (id->sync && !cm_channel) {
		errno = EINVAL;
		return -1;
	}
	if (id->sync && cm_id->event) {
		sv_cm_ack_cm_event(cm_id->event);
		cm_id->event = NULL;
	}
	if (sv_cm_enter_id(id))
		return -1;
	while (id->events_got != id->events_acked)
		pthread_cond_wait(&id->acked, &sv_cm.lock.mutex);
	from = sv_channel(cm_id->channel);
	to = cm_channel ? sv_channel(cm_channel) : sv_channel_new();
	if (!to)
		return sv_cm_leave(ENOMEM);
	/* A private channel has no reference but its ids'. */
	if (cm_channel)
		to->refs++;
	cm_id->channel = &to->channel;
	id->sync = !cm_channel;
	events_move(id, from);
	sv_channel_put(from);
	return sv_cm_leave(0);
}

const char *sv_cm_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
		[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
		[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
		[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
		[RDMA_CM_EVENT_CONNECT_REQUEST] =
			"RDMA_CM_EVENT_CONNECT_REQUEST",
		[RDMA_CM_EVENT_CONNECT_RESPONSE] =
			"RDMA_CM_EVENT_CONNECT_RESPONSE",
		[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
		[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
		[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
		[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
		[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
		[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
		[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
		[RDMA_CM_EVENT_MULTICAST_ERROR] =
			"RDMA_CM_EVENT_MULTICAST_ERROR",
		[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
		[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	if ((unsigned int)event >= ARRAY_SIZE(names) || !names[event])
		return "UNKNOWN EVENT";
	return names[event];
}
