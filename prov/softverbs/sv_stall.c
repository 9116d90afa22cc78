/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs whose packets go nowhere: a port that is down, a rule that says
 * so. The link's operations are exchanged for others that do nothing, and come
 * back when it is over. Sends fail when the time for their retries is over, if
 * there is such a time.
 *
 * What a peer does to our memory by itself (RDMA on one host) it goes on doing,
 * until it is stalled as well.
 */
#include "sv_fault.h"
#include "sv_link.h"

#include <string.h>

static bool no_pending(struct sv_link *link)
{
	return false;
}

static void nothing(struct sv_link *link)
{
}

/* As long as the attributes say that retries take, be it a minute: with a peer
 * that has left for good it need not be that long. */
static void stalled_push(struct sv_link *link)
{
	const struct ibv_qp_attr *attr = &link->qp->attr;

	if (!attr->timeout || link->gone_due_ns || !sv_link_sends_wait(link))
		return;
	link->gone_due_ns = sv_now_ns() +
			    (4096ull << attr->timeout) * (attr->retry_cnt + 1u);
	sv_deadline_set(link, link->gone_due_ns);
}

static void stalled_timeout(struct sv_link *link)
{
	sv_link_gone_timeout(link, true);
}

static void stalled_close(struct sv_link *link)
{
	link->ops = link->stalled;
	link->stalled = NULL;
	link->ops->close(link);
}

static void stalled_quiesce(struct sv_link *link, uint32_t key,
			    uint64_t until_ns)
{
	link->stalled->quiesce(link, key, until_ns);
}

static void stalled_fork_child(struct sv_link *link)
{
	link->stalled->fork_child(link);
}

static const struct sv_link_ops stalled_ops = {
	.pending = no_pending,
	.poll = sv_link_poll,
	.progress = nothing,
	.push = stalled_push,
	.acks = nothing,
	.publish = nothing,
	.rearm = nothing,
	.timeout = stalled_timeout,
	.alive = NULL, /* nobody asks it */
	.enter = nothing,
	.kick = nothing,
	.close = stalled_close,
	.quiesce = stalled_quiesce,
	.fork_child = stalled_fork_child,
};

/* Caller holds qp->lock. Pollers read link->ops without it: they may look once
 * more by the old one, and find the lock taken or the new one. */
static void link_stall(struct sv_link *link)
{
	if (link->stalled)
		return;
	link->stalled = link->ops;
	__atomic_store_n(&link->ops, &stalled_ops, __ATOMIC_RELAXED);
	stalled_push(link);
}

/* Caller holds qp->lock. */
static void link_resume(struct sv_link *link)
{
	if (!link->stalled)
		return;
	__atomic_store_n(&link->ops, link->stalled, __ATOMIC_RELAXED);
	link->stalled = NULL;
	/* The clock of sends that wait runs no more. */
	link->gone_due_ns = 0;
	link->ops->publish(link);
	link->ops->progress(link);
	link->ops->kick(link);
}

void sv_qp_stall(struct sv_qp *qp, bool on)
{
	sv_lock_take(&qp->lock);
	if (qp->link && on)
		link_stall(qp->link);
	else if (qp->link)
		link_resume(qp->link);
	sv_lock_drop(&qp->lock);
}

/* ---- who is stalled ---- */

struct who {
	const struct sv_dev *dev;
	int64_t qpn;
	bool on;
};

static bool port_is_down(struct sv_dev *dev)
{
	bool down;

	lock_take(&dev->lock);
	down = dev->port_state != IBV_PORT_ACTIVE;
	lock_drop(&dev->lock);
	return down;
}

static void stall_one(struct sv_qp *qp, void *arg)
{
	const struct who *who = arg;

	if ((who->dev && who->dev != qp->ctx->dev) ||
	    (who->qpn >= 0 && who->qpn != qp->qp.qp_num))
		return;
	sv_qp_stall(qp, who->on || port_is_down(qp->ctx->dev) ||
				sv_fault_stalls(qp));
}

void sv_stall_set(const struct sv_dev *dev, int64_t qpn, bool on)
{
	struct who who = { dev, qpn, on };

	sv_qp_for_each(stall_one, &who);
}

/* Caller holds qp->lock. A rule that goes by occasions waits for one. */
void sv_stall_link(struct sv_link *link)
{
	if (port_is_down(link->qp->ctx->dev) || sv_fault_stalls(link->qp))
		link_stall(link);
}
