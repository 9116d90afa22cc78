/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the transports have in common: the list of all links that stand, and
 * what the QP layer does to a link of either kind.
 */
#include "sv_link.h"

#include "sv_int.h"

static struct lock links_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct list links = { &links, &links }; /* links_lock */

void sv_link_add(struct sv_link *link)
{
	lock_take(&links_lock);
	list_add_tail(&links, &link->node);
	lock_drop(&links_lock);
}

void sv_link_del(struct sv_link *link)
{
	lock_take(&links_lock);
	list_del(&link->node);
	lock_drop(&links_lock);
}

void sv_link_quiesce(uint32_t key, uint32_t timeout_ms)
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

void sv_link_enter(struct sv_link *link)
{
	link->qp->link = link;
	link->ops->enter(link);
}

void sv_link_close(struct sv_link *link)
{
	link->ops->close(link);
}

void sv_link_kick(struct sv_link *link)
{
	link->ops->kick(link);
}

bool sv_link_receives(const struct sv_link *link)
{
	enum ibv_qp_state state = link->qp->attr.qp_state;

	return state >= IBV_QPS_RTR && state < IBV_QPS_ERR;
}

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
	sv_peer_tbl_fork_child();
}
