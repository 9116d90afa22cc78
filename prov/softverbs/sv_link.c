/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the transports have in common: the list of all links that stand, and
 * what the QP layer does to a link of either kind.
 */
#include "sv_link.h"

#include "sv_alive.h"
#include "sv_fault.h"
#include "sv_key.h"

enum {
	SV_GRACE_MIN_MS = 10, /* for a peer that no longer answers */
	SV_GRACE_MAX_MS = 1000,
};

static struct lock links_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct list links = { &links, &links }; /* links_lock */
/* Held while the queue pairs' locks are taken: before sv_qp.lock. */
static struct lock rounds_lock = { PTHREAD_MUTEX_INITIALIZER };

bool sv_link_poll(struct sv_link *link, struct sv_cq_sink *sink)
{
	struct sv_qp *qp = link->qp;

	if (likely(!link->ops->pending(link)))
		return false;
	if (!sv_lock_try(&qp->lock))
		return true;
	qp->sink = sink;
	link->ops->progress(link);
	qp->sink = NULL;
	sv_lock_drop(&qp->lock);
	return true;
}

void sv_link_add(struct sv_link *link)
{
	lock_take(&links_lock);
	list_add_tail(&links, &link->node);
	sv_alive_start();
	lock_drop(&links_lock);
}

void sv_links_lock(bool take)
{
	if (take)
		lock_take(&links_lock);
	else
		lock_drop(&links_lock);
}

bool sv_links_none(void)
{
	return list_empty(&links);
}

void sv_link_del(struct sv_link *link)
{
	lock_take(&links_lock);
	list_del(&link->node);
	lock_drop(&links_lock);
}

void sv_link_quiesce_peers(uint32_t key, uint32_t timeout_ms)
{
	const uint64_t until_ns = sv_now_ns() + timeout_ms * 1000000ull;
	struct sv_link *link;
	struct list *pos;

	lock_take(&links_lock);
	list_for_each(pos, &links) {
		link = list_entry(pos, struct sv_link, node);
		link->ops->quiesce(link, key, until_ns);
	}
	lock_drop(&links_lock);
}

/*
 * Takes all queue pairs' locks once. Links move to the tail as their turn comes;
 * those that are added meanwhile are behind them, and need no visit.
 */
void sv_link_for_each(void (*fn)(struct sv_link *link, void *arg), void *arg)
{
	struct sv_link *link;
	struct list *pos;
	struct sv_qp *qp;
	size_t left = 0;

	lock_take(&rounds_lock);
	lock_take(&links_lock);
	list_for_each(pos, &links)
		left++;
	for (; left && !list_empty(&links); left--) {
		link = list_entry(links.next, struct sv_link, node);
		list_del(&link->node);
		list_add_tail(&links, &link->node);
		qp = link->qp;
		sv_qp_get(qp);
		lock_drop(&links_lock);
		sv_lock_take(&qp->lock);
		/* Else it may have been freed. */
		if (qp->link == link)
			fn(link, arg);
		sv_lock_drop(&qp->lock);
		sv_qp_put(qp);
		lock_take(&links_lock);
	}
	lock_drop(&links_lock);
	lock_drop(&rounds_lock);
}

void sv_link_withdraw(struct sv_link *link)
{
	const struct sv_link_ops *ops = link->stalled ? link->stalled :
							link->ops;

	if (ops->withdraw)
		ops->withdraw(link);
}

static void withdraw_one(struct sv_link *link, void *arg)
{
	sv_link_withdraw(link);
}

void sv_link_quiesce(uint32_t key, uint32_t timeout_ms)
{
	sv_link_quiesce_peers(key, timeout_ms);
	/*
	 * Whoever copies for us, a poller or the engine, looks at the key and
	 * copies in one hold of its queue pair's lock: when we have had all
	 * these locks once, nobody copies who found the key valid. So the data
	 * path pays nothing.
	 */
	sv_link_for_each(withdraw_one, NULL);
	sv_key_left(key);
}

void sv_link_enter(struct sv_link *link)
{
	link->qp->link = link;
	link->qp->ops_refused = link->ops_refused;
	link->ops->enter(link);
	sv_stall_link(link);
}

void sv_link_close(struct sv_link *link)
{
	link->ops->close(link);
}

void sv_link_kick(struct sv_link *link)
{
	link->ops->kick(link);
}

/* ---- the peer's requests ---- */

char *sv_link_target(const struct sv_link *link, uint32_t access, uint32_t rkey,
		     uint64_t addr, uint32_t len)
{
	const struct sv_qp *qp = link->qp;
	uint64_t va;

	if (!(qp->attr.qp_access_flags & access))
		return NULL;
	/* A window of type 2 is the queue pair's own. */
	if (likely(sv_mr_check(sv_mr_table(), rkey, qp->pd->id, access, addr,
			       len, &va)) ||
	    sv_mr_check(sv_mr_table(), rkey, qp->window_id, access, addr, len,
			&va))
		return (char *)(uintptr_t)va;
	return NULL;
}

bool sv_link_grants_va(const struct sv_link *link, uint32_t access,
		       uint32_t key, const void *va, uint64_t len)
{
	const struct sv_qp *qp = link->qp;

	return sv_mr_check_va(sv_mr_table(), key, qp->pd->id, access,
			      (uintptr_t)va, len) ||
	       sv_mr_check_va(sv_mr_table(), key, qp->window_id, access,
			      (uintptr_t)va, len);
}

/*
 * One operation of the CPU's, so that it is atomic towards every other: those
 * of other connections, processes, and of the program that owns the memory.
 */
uint64_t sv_link_atomic(bool add, uint64_t *to, const struct sv_operands *arg)
{
	uint64_t old = arg->compare_add;

	if (add)
		return __atomic_fetch_add(to, arg->compare_add,
					  __ATOMIC_SEQ_CST);
	/* Leaves what it found in old. */
	__atomic_compare_exchange_n(to, &old, arg->swap, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return old;
}

/* IBTA table 45: what min_rnr_timer says, in units of 10 us. */
static const uint32_t rnr_timer[32] = {
	65536, 1,    2,	   3,	 4,	6,     8,     12,
	16,    24,   32,   48,	 64,	96,    128,   192,
	256,   384,  512,  768,	 1024,	1536,  2048,  3072,
	4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

uint64_t sv_link_rnr_ns(const struct sv_link *link, uint32_t retry)
{
	return retry * 10000ull * rnr_timer[link->qp->attr.min_rnr_timer];
}

/* ---- a peer that has left ---- */

/* What a NIC would wait for an answer, within bounds. 0 there is forever. */
static uint64_t grace_ns(const struct sv_qp *qp)
{
	const uint64_t min = SV_GRACE_MIN_MS * 1000000ull;
	const uint64_t max = SV_GRACE_MAX_MS * 1000000ull;
	uint64_t ns;

	if (!qp->attr.timeout)
		return max;
	ns = (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1);
	return ns < min ? min : ns > max ? max : ns;
}

bool sv_link_sends_wait(struct sv_link *link)
{
	struct sv_qp *qp = link->qp;

	return (qp->attr.qp_state == IBV_QPS_RTS ||
		qp->attr.qp_state == IBV_QPS_SQD) &&
	       qp->sq.done != sv_wq_posted(&qp->sq);
}

void sv_link_gone(struct sv_link *link)
{
	if (!sv_link_sends_wait(link) || link->gone_due_ns)
		return;
	link->gone_due_ns = sv_now_ns() + grace_ns(link->qp);
	sv_deadline_set(link, link->gone_due_ns);
}

void sv_link_gone_timeout(struct sv_link *link, bool gone)
{
	uint64_t due_ns = link->gone_due_ns;

	if (!due_ns)
		return;
	if (sv_now_ns() < due_ns) {
		sv_deadline_set(link, due_ns);
		return;
	}
	link->gone_due_ns = 0;
	if (gone && sv_link_sends_wait(link))
		sv_link_fail_sends(link, -1);
}

void sv_link_fail_sends(struct sv_link *link, int event)
{
	struct sv_qp *qp = link->qp;

	link->ops->acks(link);
	if (qp->attr.qp_state == IBV_QPS_ERR)
		return;
	if (qp->sq.done != sv_wq_posted(&qp->sq)) {
		sv_sq_complete(qp, IBV_WC_RETRY_EXC_ERR);
		event = -1;
	} else {
		qp->peer_lost = true;
	}
	sv_qp_error(qp, event);
}

/* ---- fork ---- */

void sv_link_fork_prepare(void)
{
	lock_take(&links_lock);
}

void sv_link_fork_parent(void)
{
	lock_drop(&links_lock);
}

/* A child that lives on must not keep its parent's connections alive. */
void sv_link_fork_child(void)
{
	struct sv_link *link;
	struct list *pos;

	list_for_each(pos, &links) {
		link = list_entry(pos, struct sv_link, node);
		link->ops->fork_child(link);
	}
	list_init(&links);
	lock_init(&rounds_lock);
	sv_alive_fork_child();
	sv_peer_tbl_fork_child();
}
