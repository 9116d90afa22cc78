/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Taking a shared-memory link down, and the list of all of them.
 *
 * A link is reached by pollers (through its CQs' lists), by the engine
 * (through the two descriptors it watches), by its QP, by the deadline timer
 * and by sv_link_quiesce(). sv_link_close() cuts these ways one by one before
 * it frees anything.
 */
#include "sv_link.h"
#include "sv_engine.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	SV_BUSY_WAIT_MS = 1000, /* for a peer's copy to end */
	SV_BUSY_YIELDS = 100,	/* before we look whether the peer is there */
};

static struct lock links_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct list links = { &links, &links }; /* links_lock */

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A peer that died in a copy leaves its mark; its socket is closed by then. */
static bool sock_hung_up(const struct sv_link *link)
{
	struct pollfd pfd = { .fd = link->sock_fd, .events = POLLRDHUP };

	return link->sock_fd >= 0 && poll(&pfd, 1, 1) > 0 &&
	       pfd.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* Waits until the peer is not copying (value 0: at all), within a bound. */
static void busy_wait(struct sv_link *link, uint32_t value, uint64_t until_ns)
{
	unsigned int turn = 0;
	uint32_t busy;

	for (;;) {
		busy = atomic_load(&link->own->busy);
		if (!busy || (value && busy != value) || link->dead)
			return;
		if (sv_now_ns() > until_ns) {
			sv_log("qp %06x: peer does not end its copy",
			       link->qp->qp.qp_num);
			return;
		}
		if (++turn < SV_BUSY_YIELDS)
			sched_yield();
		else if (sock_hung_up(link))
			return;
	}
}

/* One bound for all the waits that taking a link down takes. */
static uint64_t down_until_ns(struct sv_link *link)
{
	if (!link->down_until_ns)
		link->down_until_ns =
			sv_now_ns() + SV_BUSY_WAIT_MS * 1000000ull;
	return link->down_until_ns;
}

void sv_link_wait_copies(struct sv_link *link, uint32_t value)
{
	busy_wait(link, value, down_until_ns(link));
}

void sv_link_attached(struct sv_link *link)
{
	lock_take(&links_lock);
	list_add_tail(&links, &link->node);
	lock_drop(&links_lock);
}

void sv_link_quiesce(uint32_t key, uint32_t timeout_ms)
{
	uint64_t until_ns = 0;
	struct sv_link *link;
	struct list *pos;

	lock_take(&links_lock);
	list_for_each(pos, &links) {
		link = list_entry(pos, struct sv_link, node);
		if (atomic_load(&link->own->busy) != key)
			continue;
		if (!until_ns)
			until_ns = sv_now_ns() + timeout_ms * 1000000ull;
		busy_wait(link, key, until_ns);
	}
	lock_drop(&links_lock);
}

void sv_link_close(struct sv_link *link)
{
	sv_deadline_clear(link);
	if (link->sock_fd >= 0) {
		sv_engine_unwatch(link->bell_fd);
		sv_engine_unwatch(link->sock_fd);
	}
	lock_take(&links_lock);
	list_del(&link->node);
	lock_drop(&links_lock);
	if (link->peer) {
		atomic_store(&link->own->state, SV_SEG_CLOSED);
		sv_link_ring_hard(link);
		sv_link_wait_copies(link, 0);
	}
	fd_close(&link->sock_fd);
	fd_close(&link->peer_bell_fd);
	fd_close(&link->own_fd);
	fd_close(&link->bell_fd);
	sv_peer_tbl_put(link->peer_tbl);
	sv_seg_unmap(link->peer);
	sv_seg_unmap(link->own);
	sv_qp_put(link->qp);
	free(link);
}

void sv_link_destroy(struct sv_link *link)
{
	sv_link_close(link);
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
		fd_close(&link->sock_fd);
		fd_close(&link->bell_fd);
		fd_close(&link->peer_bell_fd);
	}
	list_init(&links);
	sv_shm_fork_child();
}
