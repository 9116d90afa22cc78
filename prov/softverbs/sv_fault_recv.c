/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Receives that are posted, and not there yet: so a sender meets a receiver that
 * is not ready whenever that is wanted. They wait here, in the order in which they
 * were posted, and are posted for real when their time has come. What comes behind
 * one that waits, waits as well.
 */
#include "sv_fault.h"

#include "sv_engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	NS_PER_MS = 1000000,
};

/* One call's chain, with its SGEs behind. */
struct held {
	struct list node; /* helds */
	struct sv_timer timer;
	struct sv_defer defer;
	uint32_t qpn;
	struct ibv_recv_wr *wr;
};

/* Outside all locks of queue pairs. */
static struct lock held_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct list helds = { &helds, &helds }; /* held_lock; oldest first */

static void held_free(struct sv_defer *defer)
{
	struct held *held = container_of(defer, struct held, defer);

	free(held->wr);
	free(held);
}

/* Caller holds held_lock. */
static void release(struct held *held)
{
	struct sv_qp *qp = sv_qp_find(held->qpn);
	struct ibv_recv_wr *bad;
	int err = 0;

	if (qp)
		err = sv_post_recv(&qp->qp, held->wr, &bad);
	if (err)
		sv_log("fault: qp %06x: a receive that was held is not posted: %s",
		       held->qpn, strerror(err));
	if (qp)
		sv_qp_put(qp);
	list_del(&held->node);
	sv_timer_cancel(&held->timer);
	sv_engine_defer(&held->defer, held_free);
}

/* Those of its queue pair that are older are due as well. */
static void on_due(void *arg)
{
	struct held *due = arg, *held;
	struct list *pos, *tmp;
	uint32_t qpn;

	lock_take(&held_lock);
	if (!sv_timer_expired(&due->timer))
		goto out;
	qpn = due->qpn;
	list_for_each_safe(pos, tmp, &helds) {
		held = list_entry(pos, struct held, node);
		if (held->qpn == qpn)
			release(held);
		if (held == due)
			break;
	}
out:
	lock_drop(&held_lock);
}

static struct ibv_recv_wr *chain_copy(const struct ibv_recv_wr *wr)
{
	const struct ibv_recv_wr *pos;
	struct ibv_recv_wr *copy;
	struct ibv_sge *sge;
	size_t cnt = 0, sge_cnt = 0, i;

	for (pos = wr; pos; pos = pos->next) {
		cnt++;
		sge_cnt += pos->num_sge > 0 ? (size_t)pos->num_sge : 0;
	}
	copy = malloc(cnt * sizeof(*copy) + sge_cnt * sizeof(*sge));
	if (!copy)
		return NULL;
	sge = (struct ibv_sge *)(copy + cnt);
	for (i = 0; i < cnt; i++, wr = wr->next) {
		copy[i] = *wr;
		copy[i].next = i + 1 < cnt ? &copy[i + 1] : NULL;
		copy[i].sg_list = sge;
		if (wr->num_sge > 0) {
			memcpy(sge, wr->sg_list,
			       (size_t)wr->num_sge * sizeof(*sge));
			sge += wr->num_sge;
		}
	}
	return copy;
}

/* The youngest of the queue pair, or NULL. Caller holds held_lock. */
static struct held *youngest(uint32_t qpn)
{
	struct held *found = NULL, *held;
	struct list *pos;

	list_for_each(pos, &helds) {
		held = list_entry(pos, struct held, node);
		if (held->qpn == qpn)
			found = held;
	}
	return found;
}

/* Caller holds held_lock. */
static int hold(struct sv_qp *qp, const struct ibv_recv_wr *wr,
		uint64_t due_ns)
{
	struct held *held = calloc(1, sizeof(*held));
	uint64_t now_ns = sv_now_ns();

	if (!held)
		return ENOMEM;
	held->wr = chain_copy(wr);
	if (!held->wr) {
		free(held);
		return ENOMEM;
	}
	held->qpn = qp->qp.qp_num;
	list_add_tail(&helds, &held->node);
	sv_timer_set(&held->timer,
		     due_ns > now_ns ? (unsigned int)min_size(
				(due_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS,
				1u << 30) : 0, on_due, held);
	return 0;
}

bool sv_fault_hold_recv(struct sv_qp *qp, const struct ibv_recv_wr *wr,
			uint64_t hold_ns, int *err)
{
	uint64_t due_ns = hold_ns ? sv_now_ns() + hold_ns : 0;
	struct held *last;
	bool held = false;

	lock_take(&held_lock);
	last = youngest(qp->qp.qp_num);
	if (last && last->timer.due_ns > due_ns)
		due_ns = last->timer.due_ns;
	if (due_ns) {
		held = true;
		*err = hold(qp, wr, due_ns);
	}
	lock_drop(&held_lock);
	return held;
}

/* The timers are the parent's. */
void sv_fault_recv_fork_child(void)
{
	lock_init(&held_lock);
	list_init(&helds);
}
