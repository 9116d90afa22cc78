/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Taking a shared-memory link down, and waiting for the peer to end a copy.
 *
 * A link is reached by pollers (through its CQs' lists), by the engine
 * (through the two descriptors it watches), by its QP, by the deadline timer
 * and by sv_link_quiesce(). What closes it cuts these ways one by one before
 * it frees anything.
 */
#include "sv_shm.h"
#include "sv_engine.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	SV_BUSY_WAIT_MS = 1000, /* for a peer's copy to end */
	SV_BUSY_YIELDS = 100,	/* before we look whether the peer is there */
};

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A peer that died in a copy leaves its mark; its socket is closed by then. */
static bool sock_hung_up(const struct sv_shm *shm)
{
	struct pollfd pfd = { .fd = shm->sock_fd, .events = POLLRDHUP };

	return shm->sock_fd >= 0 && poll(&pfd, 1, 1) > 0 &&
	       pfd.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* Waits until the peer is not copying (value 0: at all), within a bound. */
static void busy_wait(struct sv_shm *shm, uint32_t value, uint64_t until_ns)
{
	unsigned int turn = 0;
	uint32_t busy;

	for (;;) {
		busy = atomic_load(&shm->own->busy);
		if (!busy || (value && busy != value) || shm->link.dead)
			return;
		if (sv_now_ns() > until_ns) {
			sv_log("qp %06x: peer does not end its copy",
			       shm->link.qp->qp.qp_num);
			return;
		}
		if (++turn < SV_BUSY_YIELDS)
			sched_yield();
		else if (sock_hung_up(shm))
			return;
	}
}

/* One bound for all the waits that taking a link down takes. */
static uint64_t down_until_ns(struct sv_shm *shm)
{
	if (!shm->down_until_ns)
		shm->down_until_ns =
			sv_now_ns() + SV_BUSY_WAIT_MS * 1000000ull;
	return shm->down_until_ns;
}

void sv_shm_wait_copies(struct sv_shm *shm)
{
	busy_wait(shm, 0, down_until_ns(shm));
}

void sv_shm_quiesce(struct sv_link *link, uint32_t key, uint64_t until_ns)
{
	struct sv_shm *shm = sv_shm(link);
	uint32_t busy = atomic_load(&shm->own->busy);

	/* A pull does not say which regions. */
	if (busy == key || busy == SV_BUSY_PULL)
		busy_wait(shm, busy, until_ns);
}

void sv_shm_close(struct sv_link *link)
{
	struct sv_shm *shm = sv_shm(link);

	sv_deadline_clear(link);
	if (shm->sock_fd >= 0) {
		sv_engine_unwatch(shm->bell_fd);
		sv_engine_unwatch(shm->sock_fd);
	}
	sv_link_del(link);
	if (shm->peer) {
		atomic_store(&shm->own->state, SV_SEG_CLOSED);
		sv_shm_ring_hard(shm);
		sv_shm_wait_copies(shm);
	}
	fd_close(&shm->sock_fd);
	fd_close(&shm->peer_bell_fd);
	fd_close(&shm->own_fd);
	fd_close(&shm->bell_fd);
	sv_peer_tbl_put(shm->peer_tbl);
	sv_seg_unmap(shm->peer);
	sv_seg_unmap(shm->own);
	sv_qp_put(link->qp);
	free(shm);
}

void sv_shm_fork_child(struct sv_link *link)
{
	struct sv_shm *shm = sv_shm(link);

	fd_close(&shm->sock_fd);
	fd_close(&shm->bell_fd);
	fd_close(&shm->peer_bell_fd);
}
