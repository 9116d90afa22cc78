/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a shared-memory link: making it, meeting the peer, doorbells,
 * the peer's death; sv_shm_down.c takes it down. The operations that the QP
 * layer calls are at the end.
 */
#include "sv_shm_rx.h"
#include "sv_shm_tx.h"
#include "sv_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
	SV_BELL_ROUNDS = 16,
};

static const struct sv_link_ops shm_ops;
static pthread_once_t allow_once = PTHREAD_ONCE_INIT;

/* ---- state of the peer ---- */

bool sv_shm_peer_open(struct sv_shm *shm)
{
	return atomic_load(&shm->peer->state) == SV_SEG_OPEN;
}

void sv_shm_protocol_error(struct sv_shm *shm)
{
	sv_log("qp %06x: peer broke the ring's rules", shm->link.qp->qp.qp_num);
	shm->rx_stop = true;
	sv_qp_error(shm->link.qp, IBV_EVENT_QP_FATAL);
}

/*
 * The peer process is gone without having closed its QP. What it had put into
 * our ring is still delivered. Caller holds qp->lock.
 */
static void shm_died(struct sv_shm *shm)
{
	int rounds = SV_BELL_ROUNDS;

	if (shm->link.dead)
		return;
	sv_log("qp %06x: peer process %d is gone", shm->link.qp->qp.qp_num,
	       shm->pid);
	shm->link.dead = true;
	if (shm->link.qp->link != &shm->link)
		return;
	while (rounds-- && sv_rx_work(shm))
		sv_shm_drain(shm);
	sv_link_fail_sends(&shm->link, IBV_EVENT_QP_FATAL);
}

/* ---- what the engine calls ---- */

static void bell_rung(void *arg, uint32_t events)
{
	struct sv_shm *shm = arg;
	int rounds = SV_BELL_ROUNDS;
	eventfd_t count;

	eventfd_read(shm->bell_fd, &count);
	sv_lock_take(&shm->link.qp->lock);
	if (likely(!shm->link.stalled))
		atomic_store(&shm->own->answer, atomic_load(&shm->own->ask));
	if (shm->link.qp->link == &shm->link) {
		do {
			shm->link.ops->progress(&shm->link);
		} while (--rounds && sv_rx_work(shm));
		shm->link.ops->rearm(&shm->link);
	}
	sv_lock_drop(&shm->link.qp->lock);
}

/* Nothing is ever sent on the socket once the link stands: it hangs up. */
static void sock_event(void *arg, uint32_t events)
{
	struct sv_shm *shm = arg;
	char junk[64];
	ssize_t n;

	n = recv(shm->sock_fd, junk, sizeof(junk), MSG_DONTWAIT);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	/* Not to wait for ourselves; while the engine stops, it would. */
	sv_engine_unwatch_nowait(shm->sock_fd);
	sv_lock_take(&shm->link.qp->lock);
	if (atomic_load(&shm->peer->state) == SV_SEG_CLOSED)
		sv_shm_check_peer(shm);
	else
		shm_died(shm);
	sv_lock_drop(&shm->link.qp->lock);
}

/* ---- making ---- */

static void shm_init(struct sv_shm *shm, struct sv_qp *qp)
{
	memset(shm, 0, sizeof(*shm));
	shm->link.ops = &shm_ops;
	shm->link.qp = qp;
	list_init(&shm->link.node);
	list_init(&shm->link.deadline_node);
	shm->own_fd = -1;
	shm->peer_bell_fd = -1;
	shm->sock_fd = -1;
	sv_random(shm->nonce, sizeof(shm->nonce));
}

int sv_shm_create(struct sv_qp *qp, struct sv_link **out)
{
	struct sv_shm *shm;
	void *mem;
	int err;

	pthread_once(&allow_once, sv_cma_allow);
	if (posix_memalign(&mem, CACHELINE, sizeof(*shm)))
		return ENOMEM;
	shm = mem;
	shm_init(shm, qp);
	shm->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (shm->bell_fd < 0) {
		err = errno;
		goto err_free;
	}
	err = sv_seg_create(&shm->own, &shm->own_fd);
	if (err)
		goto err_close;
	sv_qp_get(qp);
	*out = &shm->link;
	return 0;

err_close:
	close(shm->bell_fd);
err_free:
	free(shm);
	return err;
}

void sv_shm_offer(struct sv_link *link, struct sv_link_hello *hello,
		  int fds[SV_LINK_FDS])
{
	struct sv_shm *shm = sv_shm(link);

	*hello = (struct sv_link_hello){
		.magic = SV_HELLO_MAGIC,
		.version = SV_LINK_VERSION,
		.qpn = shm->link.qp->qp.qp_num,
		.pd_id = shm->link.qp->pd->id,
		.window_id = shm->link.qp->window_id,
		.seg_size = sizeof(struct sv_seg),
		.nonce_addr = (uintptr_t)shm->nonce,
	};
	memcpy(hello->nonce, shm->nonce, sizeof(hello->nonce));
	memcpy(hello->process, sv_core_identity(), sizeof(hello->process));
	fds[0] = shm->own_fd;
	fds[1] = sv_mr_fd();
	fds[2] = shm->bell_fd;
}

/*
 * Writing to a doorbell must not block us, whatever the peer sent as one: a
 * full pipe would. Positive errno.
 */
static int bell_check(int fd)
{
	static const char want[] = "anon_inode:[eventfd]";
	char path[32], name[sizeof(want)];
	ssize_t len;
	int flags;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, name, sizeof(name));
	if (len >= 0 && (len != (ssize_t)sizeof(want) - 1 ||
			 memcmp(name, want, sizeof(want) - 1)))
		return EPROTO;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return EPROTO;
	return 0;
}

/* Positive errno. What it has set by then, sv_link_close() undoes. */
static int meet_peer(struct sv_shm *shm, const struct sv_link_hello *hello,
		     const int fds[SV_LINK_FDS], const struct ucred *cred)
{
	int err;

	if (hello->magic != SV_HELLO_MAGIC ||
	    hello->version != SV_LINK_VERSION ||
	    hello->seg_size != sizeof(struct sv_seg))
		return EPROTO;
	err = bell_check(fds[2]);
	if (err)
		return err;
	err = sv_seg_map_peer(fds[0], &shm->peer);
	if (err)
		return err;
	shm->pid = cred->pid;
	shm->link.peer_qpn = hello->qpn;
	shm->peer_pd = hello->pd_id;
	shm->peer_window = hello->window_id;
	shm->in_process = cred->pid == getpid() &&
			   !memcmp(hello->process, sv_core_identity(),
				   sizeof(hello->process));
	if (shm->in_process) {
		shm->mr_tbl = sv_mr_table();
		shm->cma_ok = sv_cma_enabled();
	} else {
		err = sv_peer_tbl_get(fds[1], &shm->peer_tbl);
		if (err)
			return err;
		shm->mr_tbl = shm->peer_tbl->tbl;
		shm->cma_ok = sv_cma_enabled() &&
			       sv_cma_probe(cred->pid, hello->nonce_addr,
					    hello->nonce);
	}
	atomic_store(&shm->own->pull_ok, shm->cma_ok);
	return 0;
}

static int watch(struct sv_shm *shm)
{
	int err;

	err = sv_engine_watch(shm->bell_fd, EPOLLIN, bell_rung, shm);
	if (err)
		return err;
	err = sv_engine_watch(shm->sock_fd, EPOLLIN | EPOLLRDHUP, sock_event,
			      shm);
	if (err)
		sv_engine_unwatch(shm->bell_fd);
	return err;
}

int sv_shm_attach(struct sv_link *link, const struct sv_link_hello *hello,
		  int peer_fds[SV_LINK_FDS], int sock, const struct ucred *cred)
{
	struct sv_shm *shm = sv_shm(link);
	int err;

	err = meet_peer(shm, hello, peer_fds, cred);
	close(peer_fds[0]);
	close(peer_fds[1]);
	if (err) {
		close(peer_fds[2]);
		return err;
	}
	shm->peer_bell_fd = peer_fds[2];
	shm->sock_fd = sock;
	err = watch(shm);
	if (err) {
		shm->sock_fd = -1;
		return err;
	}
	/* The peer has its own descriptor of it by now. */
	close(shm->own_fd);
	shm->own_fd = -1;
	sv_link_add(link);
	return 0;
}

/* ---- what the QP layer calls ---- */

static void shm_push(struct sv_link *link)
{
	struct sv_shm *shm = sv_shm(link);
	sv_shm_push(shm);
	sv_shm_check_peer(shm);
	sv_shm_ring_if_due(shm, false);
}

static void shm_publish(struct sv_link *link)
{
	struct sv_shm *shm = sv_shm(link);
	static const enum sv_seg_state seg_state[] = {
		[IBV_QPS_RESET] = SV_SEG_CLOSED,
		[IBV_QPS_INIT] = SV_SEG_WAIT,
		[IBV_QPS_RTR] = SV_SEG_OPEN,
		[IBV_QPS_RTS] = SV_SEG_OPEN,
		[IBV_QPS_SQD] = SV_SEG_OPEN,
		[IBV_QPS_SQE] = SV_SEG_OPEN,
		[IBV_QPS_ERR] = SV_SEG_ERROR,
	};
	struct sv_qp *qp = shm->link.qp;
	uint32_t state = seg_state[qp->attr.qp_state];

	atomic_store(&shm->own->access, qp->attr.qp_access_flags);
	atomic_store(&shm->own->rd_depth, qp->attr.max_dest_rd_atomic);
	atomic_store(&shm->own->rnr_retry, qp->attr.rnr_retry);
	atomic_store_explicit(&shm->rx_on, sv_shm_receives(shm),
			      memory_order_relaxed);
	sv_shm_watch(shm);
	if (atomic_exchange(&shm->own->state, state) == state)
		return;
	/* Buffers go back to the application now, and what the peer could write to
	 * may be used for something else: no peer may be copying. It looks at the
	 * state once it has said that it does, and needs nothing of ours to end. */
	if (state >= SV_SEG_ERROR)
		sv_shm_wait_copies(shm);
	sv_shm_ring_hard(shm);
}

static void shm_rearm(struct sv_link *link)
{
	struct sv_shm *shm = sv_shm(link);
	bool need = sv_link_armed(link) || !sv_link_leased(link);

	/* seq_cst: before the look that follows. See sv_shm_ring(). */
	atomic_store(&shm->own->wake, need);
	if (!need)
		return;
	if (sv_shm_pending(link))
		sv_shm_progress(link);
	/* What the polls would have done from here on, the engine does. */
	sv_shm_ring_if_due(shm, false);
	if (sv_rx_work(shm))
		sv_shm_kick_self(shm);
}

/* One of the two is due, or was; what is not, is set again. */
static void shm_timeout(struct sv_link *link)
{
	struct sv_shm *shm = sv_shm(link);
	struct sv_qp *qp = link->qp;

	sv_shm_acks(shm);
	sv_link_gone_timeout(link, sv_shm_peer_gone(shm));
	if (shm->rnr_due_ns)
		sv_shm_drain(shm);
	/* What has been acknowledged may have made room. */
	if (qp->sq.sent != sv_wq_posted(&qp->sq))
		sv_shm_push(shm);
	sv_shm_ring_if_due(shm, false);
}

/* The engine of a peer that is there answers the bell, whatever else it is at. */
static bool shm_alive(struct sv_link *link, bool owes)
{
	struct sv_shm *shm = sv_shm(link);

	if (!owes)
		return true;
	if (atomic_load(&shm->peer->answer) != shm->asked)
		return false;
	atomic_store(&shm->peer->ask, ++shm->asked);
	sv_shm_ring_hard(shm);
	return true;
}

static void shm_enter(struct sv_link *link)
{
	struct sv_shm *shm = sv_shm(link);
	struct sv_qp *qp = link->qp;

	sv_lock_take(&qp->rq_lock);
	qp->rq_pub = &shm->own->rq_posted;
	atomic_store(qp->rq_pub, sv_wq_posted(&qp->rq));
	sv_lock_drop(&qp->rq_lock);
	shm_publish(link);
	shm_rearm(link);
	if (link->dead) {
		link->dead = false;
		shm_died(shm);
		return;
	}
	sv_shm_progress(link);
}

static void shm_acks(struct sv_link *link)
{
	sv_shm_acks(sv_shm(link));
}

static void shm_kick(struct sv_link *link)
{
	sv_shm_kick_self(sv_shm(link));
}

static const struct sv_link_ops shm_ops = {
	.pending = sv_shm_pending,
	.poll = sv_shm_poll,
	.progress = sv_shm_progress,
	.send = sv_shm_send,
	.push = shm_push,
	.acks = shm_acks,
	.publish = shm_publish,
	.rearm = shm_rearm,
	.timeout = shm_timeout,
	.alive = shm_alive,
	.enter = shm_enter,
	.kick = shm_kick,
	.close = sv_shm_close,
	.quiesce = sv_shm_quiesce,
	.fork_child = sv_shm_fork_child,
};
