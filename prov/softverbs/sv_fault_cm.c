/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults of rdma_cm: calls that fail or take their time, and events that are
 * lost, late, doubled, or about nothing that has happened.
 *
 * A late event is on no channel yet. It counts for its id as a queued one does:
 * it goes with the id, and to the channel that the id has by then.
 */
#include "sv_cm.h"
#include "sv_fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	NS_PER_MS = 1000000,
};

struct late {
	struct list node; /* lates */
	struct sv_timer timer;
	struct sv_defer defer;
	struct sv_event *event; /* NULL: it was dropped */
};

static struct list lates = { &lates, &lates }; /* sv_cm.lock */

static const struct sv_dev *dev_of(const struct rdma_cm_id *id)
{
	return id && id->verbs ? sv_ctx(id->verbs)->dev : NULL;
}

bool sv_cm_fault_slow(enum sv_fault_hook hook, const struct rdma_cm_id *id)
{
	int err = sv_fault_call(hook, dev_of(id));

	if (!err)
		return false;
	errno = err;
	return true;
}

/* ---- late events ---- */

static void late_free(struct sv_defer *defer)
{
	free(container_of(defer, struct late, defer));
}

static void late_end(struct late *late)
{
	late->event = NULL;
	list_del(&late->node);
	sv_timer_cancel(&late->timer);
	sv_engine_defer(&late->defer, late_free);
}

static void on_late(void *arg)
{
	struct late *late = arg;
	struct sv_event *event;

	lock_take(&sv_cm.lock);
	event = late->event;
	if (event && sv_timer_expired(&late->timer)) {
		late_end(late);
		sv_event_enqueue(event);
	}
	lock_drop(&sv_cm.lock);
}

/* False if memory is short: then it is not late. */
static bool make_late(struct sv_event *event, uint64_t delay_ns)
{
	struct late *late = calloc(1, sizeof(*late));

	if (!late)
		return false;
	late->event = event;
	list_add_tail(&lates, &late->node);
	sv_timer_set(&late->timer, (unsigned int)min_size(
			     (delay_ns + NS_PER_MS - 1) / NS_PER_MS, 1u << 30),
		     on_late, late);
	return true;
}

static struct late *late_of(const struct sv_id *id)
{
	struct late *late;
	struct list *pos;

	list_for_each(pos, &lates) {
		late = list_entry(pos, struct late, node);
		if (late->event->counted == id || late->event->child == id)
			return late;
	}
	return NULL;
}

/* From the start each time: what an event takes along may be late itself. */
void sv_fault_event_drop(struct sv_id *id)
{
	struct sv_event *event;
	struct late *late;

	while ((late = late_of(id))) {
		event = late->event;
		late_end(late);
		sv_event_discard(event, id);
	}
}

/* ---- what becomes of an event ---- */

static struct sv_event *event_copy(const struct sv_event *event)
{
	struct sv_event *copy = calloc(1, sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *event;
	list_init(&copy->node);
	if (event->event.param.conn.private_data)
		copy->event.param.conn.private_data = copy->pd;
	return copy;
}

static void inject(struct sv_id *id, const struct sv_fault_rule *hit)
{
	enum rdma_cm_event_type type = (enum rdma_cm_event_type)hit->inject;
	struct sv_event *event = sv_event_new(id, type, hit->inject_status);

	if (!event)
		return;
	sv_log("fault: cm: %s injected", sv_cm_event_str(type));
	if (!hit->delay_ns || !make_late(event, hit->delay_ns))
		sv_event_enqueue(event);
}

/* The id to which the event is news: a request's is not known yet. */
static void event_fault(struct sv_event *event, const struct sv_fault_rule *hit)
{
	struct sv_id *id = event->counted;
	struct sv_event *copy = NULL;

	sv_log("fault: cm: %s%s%s%s", sv_cm_event_str(event->event.event),
	       hit->drop ? " dropped" : "", hit->dup ? " doubled" : "",
	       hit->delay_ns && hit->inject < 0 ? " delayed" : "");
	/* A request names an id that is born with it: there are no two. */
	if (hit->dup && !event->child)
		copy = event_copy(event);
	if (hit->drop)
		sv_event_discard(event, NULL);
	else if (!hit->delay_ns || hit->inject >= 0 ||
		 !make_late(event, hit->delay_ns))
		sv_event_enqueue(event);
	if (copy)
		sv_event_enqueue(copy);
	if (hit->inject >= 0)
		inject(id, hit);
}

void sv_fault_event(struct sv_event *event)
{
	const struct sv_dev *dev = dev_of(event->event.id);
	const struct sv_fault_at at = {
		.hook = SV_FAULT_cm_event,
		.dev = dev ? dev->device.name : NULL,
		.index = -1,
		.event = (int)event->event.event,
	};
	struct sv_fault_rule hit;

	if (sv_fault_hit(&at, &hit))
		event_fault(event, &hit);
	else
		sv_event_enqueue(event);
}

/* ---- requests ---- */

/* Nothing that comes is looked at any more, and nothing is said; but the peer
 * gives up first. */
bool sv_fault_request(struct sv_conn *conn)
{
	const struct sv_id *listen = conn->listener->id;
	const struct sv_dev *dev = listen ? dev_of(&listen->id) : NULL;
	const struct sv_fault_at at = {
		.hook = SV_FAULT_cm_request,
		.dev = dev ? dev->device.name : NULL,
		.index = -1,
		.event = -1,
	};
	struct sv_fault_rule hit;

	if (!sv_fault_hit(&at, &hit))
		return false;
	sv_log("fault: cm: request swallowed");
	sv_engine_unwatch_nowait(conn->sock);
	sv_conn_set_timer(conn, SV_CM_REPLY_MS);
	return true;
}

/* The timers are the parent's; the events go with their ids. */
void sv_fault_cm_fork_child(void)
{
	struct list *pos;

	list_for_each(pos, &lates)
		memset(&list_entry(pos, struct late, node)->timer, 0,
		       sizeof(struct sv_timer));
}
