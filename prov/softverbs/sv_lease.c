/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Leases and deadlines: all that happens by the clock.
 *
 * While the application polls a CQ, its links hold a lease: their peers are
 * told not to ring (seg->wake is 0), so that neither side makes a system call
 * per message and the engine sleeps. A timer looks now and then whether the
 * polling goes on; when it does not, or the application arms the CQ, the links
 * ask for doorbells again and are looked at once more, so that nothing that
 * came in between is missed.
 *
 * Invariant: seg->wake is set, or a doorbell is on its way, unless a CQ of the
 * link is leased and none is armed.
 */
#include "sv_link.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
	SV_LEASE_MIN_MS = 2,
	SV_LEASE_MAX_MS = 8,
};

static struct lock lease_lock = { PTHREAD_MUTEX_INITIALIZER };
/* lease_lock */
static struct list leases = { &leases, &leases };
static uint32_t lease_ms = SV_LEASE_MIN_MS;

/* How many there are; seq_cst against cq->arm, see sv_lease_stop(). */
static atomic_int lease_cnt;

/* Innermost, beside the table locks. */
static struct lock timer_lock = { PTHREAD_MUTEX_INITIALIZER };
/* timer_lock */
static struct list deadlines = { &deadlines, &deadlines };
static int timer_fd = -1;
static uint64_t timer_due_ns; /* 0: not running */

/* ---- the timer ---- */

static void timer_fired(void *arg, uint32_t events);

/* Positive errno. Caller holds timer_lock. */
static int timer_start(void)
{
	int err, fd;

	if (timer_fd >= 0)
		return 0;
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (fd < 0)
		return errno;
	err = sv_engine_watch(fd, EPOLLIN, timer_fired,
			      (void *)(intptr_t)fd);
	if (err) {
		close(fd);
		return err;
	}
	timer_fd = fd;
	timer_due_ns = 0;
	return 0;
}

/* Caller holds timer_lock. */
static void timer_at(uint64_t due_ns)
{
	struct itimerspec its = {
		.it_value.tv_sec = due_ns / 1000000000,
		.it_value.tv_nsec = due_ns % 1000000000,
	};

	if (timer_due_ns && timer_due_ns <= due_ns)
		return;
	timer_due_ns = due_ns;
	timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &its, NULL);
}

/* ---- leases ---- */

/* Caller holds lease_lock. */
static void lease_end(struct sv_cq *cq)
{
	list_del(&cq->lease_node);
	atomic_store(&cq->leased, false);
	atomic_fetch_sub(&lease_cnt, 1);
}

void sv_lease_start(struct sv_cq *cq)
{
	int err;

	lock_take(&lease_lock);
	if (atomic_load(&cq->leased))
		goto out;
	lock_take(&timer_lock);
	err = timer_start();
	if (!err)
		timer_at(sv_now_ns() + SV_LEASE_MIN_MS * 1000000ull);
	lock_drop(&timer_lock);
	if (err)
		goto out;
	lease_ms = SV_LEASE_MIN_MS;
	list_add_tail(&leases, &cq->lease_node);
	cq->polls_seen = atomic_load_explicit(&cq->polls, memory_order_relaxed);
	atomic_store(&cq->leased, true);
	atomic_fetch_add(&lease_cnt, 1);
	sv_cq_rearm(cq);
out:
	lock_drop(&lease_lock);
}

/*
 * The CQ was armed. The count is read after cq->arm was written, and another
 * thread that starts a lease on the links' other CQ writes the count before it
 * reads cq->arm: one of the two sees the other.
 */
void sv_lease_stop(struct sv_cq *cq)
{
	if (!atomic_load(&lease_cnt))
		return;
	lock_take(&lease_lock);
	if (atomic_load(&cq->leased))
		lease_end(cq);
	sv_cq_rearm(cq);
	lock_drop(&lease_lock);
}

/* The CQ is going away; it has no links any more. */
void sv_lease_drop(struct sv_cq *cq)
{
	lock_take(&lease_lock);
	if (atomic_load(&cq->leased))
		lease_end(cq);
	lock_drop(&lease_lock);
}

/* In how many milliseconds to look again; 0: no lease is left. */
static uint32_t leases_check(void)
{
	struct list *pos, *tmp;
	struct sv_cq *cq;
	uint32_t polls;
	uint32_t ms = 0;

	lock_take(&lease_lock);
	list_for_each_safe(pos, tmp, &leases) {
		cq = list_entry(pos, struct sv_cq, lease_node);
		polls = atomic_load_explicit(&cq->polls, memory_order_relaxed);
		if (polls != cq->polls_seen) {
			cq->polls_seen = polls;
			continue;
		}
		lease_end(cq);
		/* The next lease is earned by polling on. */
		atomic_store_explicit(&cq->polls_armed, polls,
				      memory_order_relaxed);
		sv_cq_rearm(cq);
	}
	if (!list_empty(&leases)) {
		if (lease_ms < SV_LEASE_MAX_MS)
			lease_ms *= 2;
		ms = lease_ms;
	}
	lock_drop(&lease_lock);
	return ms;
}

/* ---- deadlines ---- */

/* Caller holds qp->lock. An earlier deadline of the link stays. */
void sv_deadline_set(struct sv_link *link, uint64_t due_ns)
{
	lock_take(&timer_lock);
	if ((!link->deadline_ns || link->deadline_ns > due_ns) &&
	    !timer_start()) {
		list_del(&link->deadline_node);
		link->deadline_ns = due_ns;
		list_add_tail(&deadlines, &link->deadline_node);
		timer_at(due_ns);
	}
	lock_drop(&timer_lock);
}

void sv_deadline_clear(struct sv_link *link)
{
	lock_take(&timer_lock);
	list_del(&link->deadline_node);
	link->deadline_ns = 0;
	lock_drop(&timer_lock);
}

/* One that has passed, with its QP referenced, or NULL. */
static struct sv_link *deadline_pop(uint64_t now_ns, struct sv_qp **qp)
{
	struct sv_link *link = NULL;
	struct list *pos;

	lock_take(&timer_lock);
	list_for_each(pos, &deadlines) {
		link = list_entry(pos, struct sv_link, deadline_node);
		if (link->deadline_ns <= now_ns)
			break;
	}
	if (pos == &deadlines) {
		link = NULL;
	} else {
		list_del(pos);
		link->deadline_ns = 0;
		*qp = link->qp;
		sv_qp_get(*qp);
	}
	lock_drop(&timer_lock);
	return link;
}

/* The link may be gone by the time its QP is locked: the QP knows. */
static void deadlines_check(uint64_t now_ns)
{
	struct sv_link *link;
	struct sv_qp *qp;

	while ((link = deadline_pop(now_ns, &qp))) {
		sv_lock_take(&qp->lock);
		if (qp->link == link)
			link->ops->timeout(link);
		sv_lock_drop(&qp->lock);
		sv_qp_put(qp);
	}
}

static void timer_fired(void *arg, uint32_t events)
{
	struct sv_link *link;
	uint64_t now_ns, due_ns, count;
	struct list *pos;
	uint32_t left_ms;

	if (read((intptr_t)arg, &count, sizeof(count)) != sizeof(count))
		return;
	lock_take(&timer_lock);
	timer_due_ns = 0;
	lock_drop(&timer_lock);
	left_ms = leases_check();
	now_ns = sv_now_ns();
	deadlines_check(now_ns);

	lock_take(&timer_lock);
	due_ns = left_ms ? now_ns + left_ms * 1000000ull : 0;
	list_for_each(pos, &deadlines) {
		link = list_entry(pos, struct sv_link, deadline_node);
		if (!due_ns || link->deadline_ns < due_ns)
			due_ns = link->deadline_ns;
	}
	if (due_ns)
		timer_at(due_ns);
	lock_drop(&timer_lock);
}

/* The engine's thread does not exist in the child, and no lock is ours. */
void sv_lease_fork_child(void)
{
	lock_init(&lease_lock);
	lock_init(&timer_lock);
	list_init(&leases);
	list_init(&deadlines);
	atomic_store(&lease_cnt, 0);
	if (timer_fd >= 0)
		close(timer_fd);
	timer_fd = -1;
	timer_due_ns = 0;
}
