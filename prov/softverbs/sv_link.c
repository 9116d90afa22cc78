/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a shared-memory link: making it, meeting the peer, doorbells,
 * the peer's death; sv_link_down.c takes it down. The operations that the QP
 * layer calls are at the end.
 */
#include "sv_link.h"
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
	SV_GRACE_MIN_MS = 10, /* for a peer that no longer answers */
	SV_GRACE_MAX_MS = 1000,
	SV_BELL_ROUNDS = 16,
};

static pthread_once_t allow_once = PTHREAD_ONCE_INIT;

/* ---- state of the peer ---- */

bool sv_link_peer_open(struct sv_link *link)
{
	return atomic_load(&link->peer->state) == SV_SEG_OPEN;
}

static bool peer_gone(struct sv_link *link)
{
	return atomic_load(&link->peer->state) >= SV_SEG_ERROR;
}

bool sv_link_receives(struct sv_link *link)
{
	enum ibv_qp_state state = link->qp->attr.qp_state;

	return !link->rx_stop && state >= IBV_QPS_RTR && state < IBV_QPS_ERR;
}

void sv_link_protocol_error(struct sv_link *link)
{
	sv_log("qp %06x: peer broke the ring's rules", link->qp->qp.qp_num);
	link->rx_stop = true;
	sv_qp_error(link->qp, IBV_EVENT_QP_FATAL);
}

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

static bool sends_wait(struct sv_qp *qp)
{
	return (qp->attr.qp_state == IBV_QPS_RTS ||
		qp->attr.qp_state == IBV_QPS_SQD) &&
	       qp->sq.done != sv_wq_posted(&qp->sq);
}

/* Caller holds qp->lock. A peer that has left answers no more sends. */
static void check_peer(struct sv_link *link)
{
	struct sv_qp *qp = link->qp;

	if (likely(!peer_gone(link)) || !sends_wait(qp) || link->gone_due_ns)
		return;
	link->gone_due_ns = sv_now_ns() + grace_ns(qp);
	sv_deadline_set(link, link->gone_due_ns);
}

/*
 * Whether the rings hold something for us. Relaxed looks: what is missed now
 * is seen in the next poll, or was followed by a doorbell.
 */
static bool ring_work(const struct sv_link *link)
{
	uint32_t next = atomic_load_explicit(&link->rx_next,
					     memory_order_relaxed);
	const struct sv_slot *slot = &link->own->slots[next % SV_SLOT_CNT];

	if (atomic_load_explicit(&slot->seq, memory_order_relaxed) ==
		    next / SV_SLOT_CNT + 1 &&
	    atomic_load_explicit(&link->rx_on, memory_order_relaxed) &&
	    !atomic_load_explicit(&link->qp->rq_starved,
				  memory_order_relaxed)) {
		__builtin_prefetch((const char *)slot + CACHELINE);
		return true;
	}
	return atomic_load_explicit(&link->peer->head, memory_order_relaxed) !=
		       atomic_load_explicit(&link->tx_acked,
					    memory_order_relaxed) &&
	       atomic_load_explicit(&link->tx_on, memory_order_relaxed);
}

/* Caller holds qp->lock. */
static void fail_sends(struct sv_link *link, int event)
{
	struct sv_qp *qp = link->qp;

	sv_tx_acks(link);
	if (qp->attr.qp_state == IBV_QPS_ERR)
		return;
	if (qp->sq.done != sv_wq_posted(&qp->sq)) {
		sv_sq_complete(qp, IBV_WC_RETRY_EXC_ERR);
		event = -1;
	}
	sv_qp_error(qp, event);
}

/*
 * The peer process is gone without having closed its QP. What it had put into
 * our ring is still delivered. Caller holds qp->lock.
 */
static void link_died(struct sv_link *link)
{
	int rounds = SV_BELL_ROUNDS;

	if (link->dead)
		return;
	sv_log("qp %06x: peer process %d is gone", link->qp->qp.qp_num,
	       link->pid);
	link->dead = true;
	if (link->qp->link != link)
		return;
	while (rounds-- && ring_work(link))
		sv_rx_drain(link);
	fail_sends(link, IBV_EVENT_QP_FATAL);
}

/* ---- what the engine calls ---- */

static void bell_rung(void *arg, uint32_t events)
{
	struct sv_link *link = arg;
	int rounds = SV_BELL_ROUNDS;
	eventfd_t count;

	eventfd_read(link->bell_fd, &count);
	sv_lock_take(&link->qp->lock);
	if (link->qp->link == link) {
		do {
			link->ops->progress(link);
		} while (--rounds && ring_work(link));
		link->ops->rearm(link);
	}
	sv_lock_drop(&link->qp->lock);
}

/* Nothing is ever sent on the socket once the link stands: it hangs up. */
static void sock_event(void *arg, uint32_t events)
{
	struct sv_link *link = arg;
	char junk[64];
	ssize_t n;

	n = recv(link->sock_fd, junk, sizeof(junk), MSG_DONTWAIT);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	/* Not to wait for ourselves; while the engine stops, it would. */
	sv_engine_unwatch_nowait(link->sock_fd);
	sv_lock_take(&link->qp->lock);
	if (atomic_load(&link->peer->state) == SV_SEG_CLOSED)
		check_peer(link);
	else
		link_died(link);
	sv_lock_drop(&link->qp->lock);
}

/* ---- making ---- */

static void link_init(struct sv_link *link, struct sv_qp *qp)
{
	memset(link, 0, sizeof(*link));
	link->ops = &sv_shm_link_ops;
	link->qp = qp;
	list_init(&link->node);
	list_init(&link->deadline_node);
	link->own_fd = -1;
	link->peer_bell_fd = -1;
	link->sock_fd = -1;
	sv_random(link->nonce, sizeof(link->nonce));
}

int sv_link_create(struct sv_qp *qp, struct sv_link **out)
{
	struct sv_link *link;
	void *mem;
	int err;

	pthread_once(&allow_once, sv_cma_allow);
	if (posix_memalign(&mem, CACHELINE, sizeof(*link)))
		return ENOMEM;
	link = mem;
	link_init(link, qp);
	link->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (link->bell_fd < 0) {
		err = errno;
		goto err_free;
	}
	err = sv_seg_create(&link->own, &link->own_fd);
	if (err)
		goto err_close;
	sv_qp_get(qp);
	*out = link;
	return 0;

err_close:
	close(link->bell_fd);
err_free:
	free(link);
	return err;
}

void sv_link_offer(struct sv_link *link, struct sv_link_hello *hello,
		   int fds[SV_LINK_FDS])
{
	*hello = (struct sv_link_hello){
		.magic = SV_HELLO_MAGIC,
		.version = SV_LINK_VERSION,
		.qpn = link->qp->qp.qp_num,
		.pd_id = link->qp->pd->id,
		.seg_size = sizeof(struct sv_seg),
		.nonce_addr = (uintptr_t)link->nonce,
	};
	memcpy(hello->nonce, link->nonce, sizeof(hello->nonce));
	memcpy(hello->process, sv_core_identity(), sizeof(hello->process));
	fds[0] = link->own_fd;
	fds[1] = sv_mr_fd();
	fds[2] = link->bell_fd;
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

/* Positive errno. What it has set by then, sv_link_destroy() undoes. */
static int meet_peer(struct sv_link *link, const struct sv_link_hello *hello,
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
	err = sv_seg_map_peer(fds[0], &link->peer);
	if (err)
		return err;
	link->pid = cred->pid;
	link->peer_qpn = hello->qpn;
	link->peer_pd = hello->pd_id;
	link->in_process = cred->pid == getpid() &&
			   !memcmp(hello->process, sv_core_identity(),
				   sizeof(hello->process));
	if (link->in_process) {
		link->mr_tbl = sv_mr_table();
		link->cma_ok = sv_cma_enabled();
	} else {
		err = sv_peer_tbl_get(fds[1], &link->peer_tbl);
		if (err)
			return err;
		link->mr_tbl = link->peer_tbl->tbl;
		link->cma_ok = sv_cma_enabled() &&
			       sv_cma_probe(cred->pid, hello->nonce_addr,
					    hello->nonce);
	}
	atomic_store(&link->own->pull_ok, link->cma_ok);
	return 0;
}

static int watch(struct sv_link *link)
{
	int err;

	err = sv_engine_watch(link->bell_fd, EPOLLIN, bell_rung, link);
	if (err)
		return err;
	err = sv_engine_watch(link->sock_fd, EPOLLIN | EPOLLRDHUP, sock_event,
			      link);
	if (err)
		sv_engine_unwatch(link->bell_fd);
	return err;
}

int sv_link_attach(struct sv_link *link, const struct sv_link_hello *hello,
		   int peer_fds[SV_LINK_FDS], int sock,
		   const struct ucred *cred)
{
	int err;

	err = meet_peer(link, hello, peer_fds, cred);
	close(peer_fds[0]);
	close(peer_fds[1]);
	if (err) {
		close(peer_fds[2]);
		return err;
	}
	link->peer_bell_fd = peer_fds[2];
	link->sock_fd = sock;
	err = watch(link);
	if (err) {
		link->sock_fd = -1;
		return err;
	}
	/* The peer has its own descriptor of it by now. */
	close(link->own_fd);
	link->own_fd = -1;
	sv_link_attached(link);
	return 0;
}

void sv_link_enter(struct sv_link *link)
{
	struct sv_qp *qp = link->qp;

	qp->link = link;
	sv_lock_take(&qp->rq_lock);
	qp->rq_pub = &link->own->rq_posted;
	atomic_store(qp->rq_pub, sv_wq_posted(&qp->rq));
	sv_lock_drop(&qp->rq_lock);
	link->ops->publish(link);
	link->ops->rearm(link);
	if (link->dead) {
		link->dead = false;
		link_died(link);
		return;
	}
	link->ops->progress(link);
}

/* ---- what the QP layer calls ---- */

static bool shm_pending(struct sv_link *link)
{
	return ring_work(link) ||
	       atomic_load_explicit(&link->attention, memory_order_relaxed);
}

/*
 * The fence in a ring has to wait until our stores are out. A receiver that
 * is being polled, and answers, need not wait for its acknowledgement too: the
 * answer's ring serves for both, or that of the next poll, or the lease's end.
 */
static void ring_if_due(struct sv_link *link, bool may_defer)
{
	if (!link->tx_rung && !link->ack_rung)
		return;
	if (may_defer && !link->tx_rung) {
		atomic_store_explicit(&link->attention, true,
				      memory_order_relaxed);
		return;
	}
	link->tx_rung = false;
	link->ack_rung = false;
	sv_link_ring(link);
}

static bool leased(const struct sv_cq *cq)
{
	return atomic_load_explicit(&cq->leased, memory_order_relaxed);
}

static bool cq_overrun(const struct sv_qp *qp)
{
	return atomic_load_explicit(&qp->scq->overrun, memory_order_relaxed) ||
	       atomic_load_explicit(&qp->rcq->overrun, memory_order_relaxed);
}

static void shm_progress(struct sv_link *link)
{
	struct sv_qp *qp = link->qp;
	bool deferred = link->ack_rung;
	uint32_t fault;

	sv_rx_drain(link);
	if (unlikely(link->rd_cnt))
		sv_resp_take(link);
	sv_tx_acks(link);
	if (unlikely(qp->sq.sent != sv_wq_posted(&qp->sq) ||
		     link->rd_serving ||
		     atomic_load_explicit(&link->attention,
					  memory_order_relaxed)))
		sv_tx_push(link);
	fault = atomic_load_explicit(&link->own->fault, memory_order_relaxed);
	if (unlikely(fault)) {
		atomic_store(&link->own->fault, 0);
		sv_qp_error(qp, fault == IBV_EVENT_QP_REQ_ERR ?
					IBV_EVENT_QP_REQ_ERR :
					IBV_EVENT_QP_ACCESS_ERR);
	}
	if (unlikely(cq_overrun(qp)))
		sv_qp_error(qp, IBV_EVENT_QP_FATAL);
	check_peer(link);
	ring_if_due(link, !deferred && (leased(qp->scq) || leased(qp->rcq)));
}

static void shm_push(struct sv_link *link)
{
	sv_tx_push(link);
	check_peer(link);
	ring_if_due(link, false);
}

static void shm_publish(struct sv_link *link)
{
	static const enum sv_seg_state seg_state[] = {
		[IBV_QPS_RESET] = SV_SEG_CLOSED,
		[IBV_QPS_INIT] = SV_SEG_WAIT,
		[IBV_QPS_RTR] = SV_SEG_OPEN,
		[IBV_QPS_RTS] = SV_SEG_OPEN,
		[IBV_QPS_SQD] = SV_SEG_OPEN,
		[IBV_QPS_SQE] = SV_SEG_OPEN,
		[IBV_QPS_ERR] = SV_SEG_ERROR,
	};
	struct sv_qp *qp = link->qp;
	uint32_t state = seg_state[qp->attr.qp_state];

	atomic_store(&link->own->access, qp->attr.qp_access_flags);
	atomic_store(&link->own->rd_depth, qp->attr.max_dest_rd_atomic);
	atomic_store(&link->own->rnr_retry, qp->attr.rnr_retry);
	atomic_store_explicit(&link->rx_on, sv_link_receives(link),
			      memory_order_relaxed);
	atomic_store_explicit(&link->tx_on, state == SV_SEG_OPEN,
			      memory_order_relaxed);
	if (atomic_exchange(&link->own->state, state) == state)
		return;
	/* Buffers go back to the application now: no peer may be reading. */
	if (state >= SV_SEG_ERROR)
		sv_link_wait_copies(link, SV_BUSY_PULL);
	sv_link_ring_hard(link);
}

static bool armed(const struct sv_cq *cq)
{
	return atomic_load(&cq->arm) != SV_ARM_NONE;
}

static void shm_rearm(struct sv_link *link)
{
	const struct sv_cq *scq = link->qp->scq, *rcq = link->qp->rcq;
	bool need = armed(scq) || armed(rcq) ||
		    !(atomic_load(&scq->leased) || atomic_load(&rcq->leased));

	/* seq_cst: before the look that follows. See sv_link_ring(). */
	atomic_store(&link->own->wake, need);
	if (!need)
		return;
	if (link->ops->pending(link))
		link->ops->progress(link);
	/* What the polls would have done from here on, the engine does. */
	ring_if_due(link, false);
	if (ring_work(link))
		sv_link_kick_self(link);
}

/* One of the two is due, or was; what is not, is set again. */
static void shm_timeout(struct sv_link *link)
{
	uint64_t gone_due_ns = link->gone_due_ns;

	if (gone_due_ns && sv_now_ns() < gone_due_ns) {
		sv_deadline_set(link, gone_due_ns);
	} else if (gone_due_ns) {
		link->gone_due_ns = 0;
		if (peer_gone(link) && sends_wait(link->qp))
			fail_sends(link, -1);
	}
	if (link->rnr_due_ns) {
		sv_rx_drain(link);
		ring_if_due(link, false);
	}
}

const struct sv_link_ops sv_shm_link_ops = {
	.pending = shm_pending,
	.progress = shm_progress,
	.push = shm_push,
	.acks = sv_tx_acks,
	.publish = shm_publish,
	.rearm = shm_rearm,
	.timeout = shm_timeout,
};
