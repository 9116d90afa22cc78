/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a TCP link: making it, what the QP layer and the engine call, its
 * two owners, its end.
 *
 * The engine waits for the socket with one-shot events. While the application
 * polls, an event that comes is left unanswered, and no further one comes; when
 * the polling ends, or an event is asked for, rearm() waits anew, and what has
 * come in the meantime wakes the engine at once.
 */
#include "sv_tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	SV_TCP_LINGER_MS = 2000, /* for the peer's end of the stream */
	SV_TCP_IDLE_S = 10, /* until a silent peer is asked for a sign */
	SV_TCP_PROBE_S = 5,
	SV_TCP_PROBES = 3,
	SV_TCP_DEAD_MIN_MS = 2000, /* bytes that nobody acknowledges */
	SV_TCP_DEAD_MAX_MS = 60000,
	SV_TCP_TRUST = 64, /* answers in a row */
	SV_TCP_MEM = SV_TCP_RX_SIZE + SV_TCP_SLAB,
};

static const struct sv_link_ops tcp_ops;

/* ---- the regions' memory ---- */

/* See tcp_quiesce(). True if it is ours to end. */
static bool touch_begin(struct sv_tcp *tcp)
{
	uint32_t epoch = atomic_load_explicit(&tcp->epoch,
					      memory_order_relaxed);

	if (epoch & 1)
		return false;
	/* seq_cst: before any key is looked up. */
	atomic_store(&tcp->epoch, epoch + 1);
	return true;
}

static void touch_end(struct sv_tcp *tcp, bool mine)
{
	if (mine)
		atomic_store_explicit(
			&tcp->epoch,
			atomic_load_explicit(&tcp->epoch,
					     memory_order_relaxed) + 1,
			memory_order_release);
}

/* ---- the engine ---- */

/* What the engine shall wait for; only what may come. */
static uint32_t events_wanted(const struct sv_tcp *tcp)
{
	uint32_t events = EPOLLONESHOT;

	if (!tcp->eof)
		events |= tcp->parked && tcp->rx_off == 0 &&
					  tcp->rx_len == SV_TCP_RX_SIZE ?
				  EPOLLRDHUP :
				  EPOLLIN | EPOLLRDHUP;
	if (tcp->blocked)
		events |= EPOLLOUT;
	return events;
}

static void arm(struct sv_tcp *tcp)
{
	uint32_t events = events_wanted(tcp);

	if (tcp->freed || events == tcp->armed || events == EPOLLONESHOT)
		return;
	if (!sv_engine_rewatch(tcp->sock, events))
		tcp->armed = events;
}

static void on_timer(void *arg);

static void kick(struct sv_tcp *tcp)
{
	if (!tcp->freed && !tcp->closing)
		sv_timer_set(&tcp->timer, 0, on_timer, tcp);
}

/* The engine goes on with what is left to do, if nobody else does. */
static void settle(struct sv_tcp *tcp)
{
	arm(tcp);
	if (unlikely(atomic_load_explicit(&tcp->link.attention,
					  memory_order_relaxed)))
		kick(tcp);
}

void sv_tcp_tell_cm(struct sv_tcp *tcp, uint32_t events)
{
	if (!tcp->cm_side)
		return;
	tcp->cm_events |= events;
	kick(tcp);
}

/* Its own CQs, or its peer, may leave the QP nothing to live on. */
static void check(struct sv_tcp *tcp)
{
	if (unlikely(sv_link_overrun(&tcp->link)))
		sv_qp_error(tcp->link.qp, IBV_EVENT_QP_FATAL);
	if (unlikely(tcp->peer_gone))
		sv_link_gone(&tcp->link);
}

/* Takes what came in, sends what waits; ack: acknowledgements too. */
static void work(struct sv_tcp *tcp, bool ack)
{
	bool mine = touch_begin(tcp);
	bool more = false;

	atomic_store_explicit(&tcp->link.attention, false,
			      memory_order_relaxed);
	if (!tcp->link.dead) {
		more = sv_tcp_drain(tcp);
		if (tcp->eof)
			sv_tcp_lost(tcp);
	}
	if (sv_tcp_attached(tcp))
		sv_tcp_credit(tcp);
	sv_tcp_push(tcp, ack);
	/* Who broke the rules has been told, and is not waited for. */
	if (unlikely(tcp->rx_state == SV_TCP_RX_DEAD && tcp->fin_sent &&
		     !tcp->eof)) {
		tcp->eof = true;
		sv_tcp_lost(tcp);
	}
	if (sv_tcp_attached(tcp))
		check(tcp);
	if (unlikely(more))
		atomic_store_explicit(&tcp->link.attention, true,
				      memory_order_relaxed);
	touch_end(tcp, mine);
}

/* ---- its end ---- */

static void tcp_free(struct sv_defer *defer)
{
	struct sv_tcp *tcp = container_of(defer, struct sv_tcp, defer);

	munmap(tcp->rx_buf, SV_TCP_MEM);
	free(tcp->asks);
	free(tcp->tail);
	sv_qp_put(tcp->link.qp);
	free(tcp);
}

/* Caller holds qp->lock. True: call tcp_gone() without it. */
static bool may_go(struct sv_tcp *tcp)
{
	if (!tcp->closing || tcp->freed || !tcp->eof)
		return false;
	tcp->freed = true;
	return true;
}

static void tcp_gone(struct sv_tcp *tcp)
{
	sv_deadline_clear(&tcp->link);
	sv_timer_cancel(&tcp->timer);
	sv_link_del(&tcp->link);
	sv_engine_unwatch_nowait(tcp->sock);
	close(tcp->sock);
	sv_engine_defer(&tcp->defer, tcp_free);
}

/* Caller holds qp->lock; an owner has let go. */
static bool owner_left(struct sv_tcp *tcp)
{
	int unsent;

	if (tcp->qp_side || tcp->cm_side || tcp->closing)
		return false;
	tcp->closing = true;
	sv_tcp_push(tcp, true);
	/* With a peer that knows it is over, once it has all our bytes. */
	if (tcp->ext && sv_tcp_batch_empty(tcp) &&
	    !ioctl(tcp->sock, SIOCOUTQ, &unsent) && !unsent)
		tcp->eof = true;
	tcp->ctl |= SV_TCP_CTL_FIN;
	sv_tcp_push(tcp, true);
	arm(tcp);
	sv_timer_set(&tcp->timer, SV_TCP_LINGER_MS, on_timer, tcp);
	return may_go(tcp);
}

/* ---- what the engine calls ---- */

/* Caller holds qp->lock, which is dropped. */
static void serve_done(struct sv_tcp *tcp)
{
	void (*fn)(struct sv_link *link) = NULL;
	bool gone;

	if (tcp->cm_events && tcp->cm_side)
		fn = tcp->cm_fn;
	gone = may_go(tcp);
	sv_lock_drop(&tcp->link.qp->lock);
	/* Freeing waits until the engine is back in its loop. */
	if (fn)
		fn(&tcp->link);
	if (gone)
		tcp_gone(tcp);
}

static bool needs_engine(const struct sv_tcp *tcp)
{
	return tcp->need_wake || !sv_tcp_attached(tcp);
}

static void on_socket(void *arg, uint32_t events)
{
	struct sv_tcp *tcp = arg;

	sv_lock_take(&tcp->link.qp->lock);
	tcp->armed = 0;
	if (tcp->entered && !tcp->freed && needs_engine(tcp)) {
		work(tcp, true);
		settle(tcp);
	}
	serve_done(tcp);
}

/* Kicked; or, when nobody owns it any more, out of patience. */
static void on_timer(void *arg)
{
	struct sv_tcp *tcp = arg;

	sv_lock_take(&tcp->link.qp->lock);
	if (!tcp->freed && sv_timer_expired(&tcp->timer)) {
		sv_timer_cancel(&tcp->timer);
		if (tcp->closing)
			tcp->eof = true;
		else if (tcp->entered)
			work(tcp, true);
		if (tcp->entered && needs_engine(tcp))
			settle(tcp);
	}
	serve_done(tcp);
}

/* ---- making ---- */

/*
 * A peer that does not acknowledge bytes for as long as a NIC would try is dead;
 * one that has nothing to say is asked now and then. Not a word of the peer's
 * program is needed for that.
 */
static void set_timeout(struct sv_tcp *tcp)
{
	const struct ibv_qp_attr *attr = &tcp->link.qp->attr;
	uint64_t ms = SV_TCP_DEAD_MAX_MS;
	int dead_ms;

	if (attr->timeout)
		ms = (4096ull << attr->timeout) * (attr->retry_cnt + 1) /
		     1000000;
	if (ms < SV_TCP_DEAD_MIN_MS)
		ms = SV_TCP_DEAD_MIN_MS;
	if (ms > SV_TCP_DEAD_MAX_MS)
		ms = SV_TCP_DEAD_MAX_MS;
	dead_ms = ms;
	if (dead_ms == tcp->dead_ms)
		return;
	tcp->dead_ms = dead_ms;
	setsockopt(tcp->sock, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms,
		   sizeof(dead_ms));
}

static void set_keepalive(int sock)
{
	static const struct {
		int level;
		int option;
		int value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, SV_TCP_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, SV_TCP_PROBE_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, SV_TCP_PROBES },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(options); i++)
		setsockopt(sock, options[i].level, options[i].option,
			   &options[i].value, sizeof(options[i].value));
}

/* Adapters want a frame to be within one segment of TCP. */
static uint32_t seg_max(int sock, bool ext)
{
	socklen_t len = sizeof(int);
	int mss = 0;

	if (ext)
		return SV_TCP_SEG;
	if (getsockopt(sock, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) || mss <= 0)
		mss = 536;
	return sv_mulpdu_payload(sv_mulpdu(mss));
}

static void tcp_init(struct sv_tcp *tcp, struct sv_qp *qp, int sock,
		     const struct sv_tcp_setup *setup)
{
	memset(tcp, 0, sizeof(*tcp));
	tcp->link.ops = &tcp_ops;
	tcp->link.qp = qp;
	tcp->link.peer_qpn = setup->peer_qpn;
	if (!setup->ext)
		tcp->link.ops_refused = 1u << IBV_WR_RDMA_WRITE_WITH_IMM |
					1u << IBV_WR_SEND_WITH_IMM |
					1u << IBV_WR_ATOMIC_CMP_AND_SWP |
					1u << IBV_WR_ATOMIC_FETCH_AND_ADD;
	list_init(&tcp->link.node);
	list_init(&tcp->link.deadline_node);
	tcp->sock = sock;
	tcp->ext = setup->ext;
	tcp->crc = setup->crc;
	tcp->seg_max = seg_max(sock, setup->ext);
	tcp->hold = setup->hold;
	tcp->tx_ctrl_msn = setup->tx_ctrl_msn;
	tcp->ctrl_msn = setup->rx_ctrl_msn;
	tcp->cm_fn = setup->cm_fn;
	tcp->cm = setup->cm;
	tcp->qp_side = true;
	tcp->rnr_told = 7;
	tcp->peer_rnr_retry = 7;
	if (setup->rtr)
		tcp->ctl |= SV_TCP_CTL_RTR;
	atomic_init(&tcp->open, true);
}

/* What the MPA exchange has left over. */
static void tcp_inherit(struct sv_tcp *tcp, const struct sv_tcp_setup *setup)
{
	if (setup->rx_len)
		memcpy(tcp->rx_buf, setup->rx, setup->rx_len);
	tcp->rx_len = setup->rx_len;
	if (!setup->tx_len)
		return;
	memcpy(tcp->slab, setup->tx, setup->tx_len);
	tcp->slab_used = setup->tx_len;
	tcp->iov[0] = (struct iovec){ tcp->slab, setup->tx_len };
	tcp->iov_cnt = 1;
}

int sv_tcp_create(struct sv_qp *qp, int sock, const struct sv_tcp_setup *setup,
		  struct sv_link **out)
{
	struct sv_tcp *tcp;
	void *mem;
	int err;

	if (setup->rx_len > SV_TCP_RX_SIZE || setup->tx_len > SV_TCP_SLAB)
		return EMSGSIZE;
	if (posix_memalign(&mem, CACHELINE, sizeof(*tcp)))
		return ENOMEM;
	tcp = mem;
	tcp_init(tcp, qp, sock, setup);
	tcp->asks = calloc(SV_MAX_RD_ATOM, sizeof(*tcp->asks));
	if (!tcp->asks) {
		err = ENOMEM;
		goto err_free;
	}
	mem = mmap(NULL, SV_TCP_MEM, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED) {
		err = errno;
		goto err_free_asks;
	}
	tcp->rx_buf = mem;
	tcp->slab = tcp->rx_buf + SV_TCP_RX_SIZE;
	tcp_inherit(tcp, setup);
	set_keepalive(sock);
	err = sv_engine_watch(sock, EPOLLONESHOT, on_socket, tcp);
	if (err)
		goto err_unmap;
	sv_qp_get(qp);
	sv_link_add(&tcp->link);
	/* From here on its end is the stream's. */
	tcp->cm_side = setup->cm_fn != NULL;
	*out = &tcp->link;
	return 0;

err_unmap:
	munmap(tcp->rx_buf, SV_TCP_MEM);
err_free_asks:
	free(tcp->asks);
err_free:
	free(tcp);
	return err;
}

/* ---- the connection manager's side ---- */

void **sv_tcp_cm(struct sv_link *link)
{
	return &sv_tcp(link)->cm;
}

uint32_t sv_tcp_cm_take(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	uint32_t events;

	sv_lock_take(&link->qp->lock);
	events = tcp->cm_events;
	tcp->cm_events = 0;
	sv_lock_drop(&link->qp->lock);
	return events;
}

void sv_tcp_cm_send(struct sv_link *link, enum sv_tcp_cm_event what)
{
	struct sv_tcp *tcp = sv_tcp(link);

	sv_lock_take(&link->qp->lock);
	if (!tcp->ext) {
		/* Anyone else is told by the end of the stream. */
		if (what == SV_TCP_CM_DREQ)
			tcp->ctl |= SV_TCP_CTL_FIN;
	} else if (what == SV_TCP_CM_READY) {
		tcp->ctl |= SV_TCP_CTL_READY;
	} else {
		tcp->ctl |= what == SV_TCP_CM_DREQ ? SV_TCP_CTL_DREQ :
						     SV_TCP_CTL_DREP;
	}
	sv_tcp_push(tcp, true);
	if (tcp->blocked)
		arm(tcp);
	sv_lock_drop(&link->qp->lock);
}

void sv_tcp_cm_release(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	bool gone;

	sv_lock_take(&link->qp->lock);
	tcp->cm_side = false;
	if (tcp->ext)
		tcp->ctl |= SV_TCP_CTL_BYE;
	sv_tcp_push(tcp, false);
	gone = owner_left(tcp);
	if (tcp->blocked)
		arm(tcp);
	sv_lock_drop(&link->qp->lock);
	if (gone)
		tcp_gone(tcp);
}

/* ---- what the QP layer calls ---- */

static bool tcp_pending(struct sv_link *link)
{
	return atomic_load_explicit(&sv_tcp(link)->open, memory_order_relaxed) ||
	       atomic_load_explicit(&link->attention, memory_order_relaxed);
}

/*
 * The peer's sends complete when they are acknowledged: that cannot wait until
 * the application polls again, which it may not do for long. But one that has
 * answered every message at once for some time is trusted to do so this time:
 * then the acknowledgement goes with the answer, at no cost.
 */
static void tcp_progress(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	uint32_t told = tcp->told_msgs;

	if (tcp->acked || tcp->ctl & SV_TCP_CTL_ACK)
		tcp->answers = 0;
	work(tcp, tcp->answers < SV_TCP_TRUST || !sv_link_leased(link));
	tcp->acked = tcp->told_msgs != told;
	if (tcp->need_wake)
		settle(tcp);
}

static void tcp_push(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	bool mine = touch_begin(tcp);

	if (tcp->acked && tcp->answers < SV_TCP_TRUST)
		tcp->answers++;
	tcp->acked = false;
	sv_tcp_push(tcp, false);
	touch_end(tcp, mine);
	check(tcp);
	if (tcp->need_wake)
		settle(tcp);
}

static void tcp_acks(struct sv_link *link)
{
	sv_tcp_acks(sv_tcp(link));
}

/* The QP no longer takes or asks anything. */
static void stop(struct sv_tcp *tcp, uint32_t gone_state)
{
	tcp->rx_stop = true;
	if (tcp->rx_state != SV_TCP_RX_HDR &&
	    tcp->seg.op != SV_RDMAP_CTRL && tcp->seg.op != SV_RDMAP_TERMINATE)
		tcp->to = SV_TCP_TO_NOWHERE;
	sv_tcp_freeze(tcp);
	sv_tcp_asks_drop(tcp);
	tcp->rd_cnt = 0;
	tcp->tx_mid = false;
	tcp->gone_state = gone_state;
	tcp->ctl |= tcp->ext ? SV_TCP_CTL_GONE : SV_TCP_CTL_FIN;
}

static void tcp_publish(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	const struct ibv_qp_attr *attr = &link->qp->attr;
	bool mine = touch_begin(tcp);

	if (attr->qp_state == IBV_QPS_ERR) {
		stop(tcp, SV_GONE_ERROR);
	} else if (attr->qp_state == IBV_QPS_RESET) {
		stop(tcp, SV_GONE_CLOSED);
	} else if (attr->qp_state == IBV_QPS_RTS && tcp->ext &&
		   attr->rnr_retry != tcp->rnr_told) {
		tcp->rnr_told = attr->rnr_retry;
		tcp->ctl |= SV_TCP_CTL_PARAM;
	}
	if (attr->qp_state == IBV_QPS_RTS)
		set_timeout(tcp);
	if (tcp->entered)
		sv_tcp_push(tcp, false);
	touch_end(tcp, mine);
	if (tcp->entered && tcp->need_wake)
		settle(tcp);
}

static void tcp_rearm(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);

	/* seq_cst, before the look that follows. */
	tcp->need_wake = sv_link_armed(link) || !sv_link_leased(link);
	if (!tcp->need_wake)
		return;
	work(tcp, true);
	settle(tcp);
}

static void tcp_timeout(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);

	sv_link_gone_timeout(link, tcp->peer_gone);
	if (tcp->rnr_due_ns) {
		if (tcp->peer_wants)
			sv_tcp_no_recv(tcp);
		work(tcp, true);
	}
}

static void tcp_enter(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);

	tcp->entered = true;
	if (tcp->ext)
		tcp->ctl |= SV_TCP_CTL_ACK;
	tcp_publish(link);
	tcp_rearm(link);
	if (!tcp->need_wake)
		tcp_progress(link);
}

static void tcp_kick(struct sv_link *link)
{
	kick(sv_tcp(link));
}

/* The QP lets go; its state has told the peer why. */
static void tcp_close(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	bool gone;

	sv_deadline_clear(link);
	sv_lock_take(&link->qp->lock);
	tcp->qp_side = false;
	tcp->need_wake = true;
	if (!tcp->entered) {
		tcp->entered = true;
		stop(tcp, SV_GONE_CLOSED);
	}
	gone = owner_left(tcp);
	arm(tcp);
	sv_lock_drop(&link->qp->lock);
	if (gone)
		tcp_gone(tcp);
}

/*
 * Whoever touches memory of regions does so while the epoch is odd, and has
 * looked the keys up since it became so.
 */
static void tcp_quiesce(struct sv_link *link, uint32_t key, uint64_t until_ns)
{
	struct sv_tcp *tcp = sv_tcp(link);
	uint32_t epoch = atomic_load(&tcp->epoch);

	if (!(epoch & 1))
		return;
	while (atomic_load_explicit(&tcp->epoch, memory_order_acquire) ==
		       epoch &&
	       sv_now_ns() < until_ns)
		sched_yield();
}

static void tcp_fork_child(struct sv_link *link)
{
	close(sv_tcp(link)->sock);
}

static const struct sv_link_ops tcp_ops = {
	.pending = tcp_pending,
	.progress = tcp_progress,
	.push = tcp_push,
	.acks = tcp_acks,
	.publish = tcp_publish,
	.rearm = tcp_rearm,
	.timeout = tcp_timeout,
	.enter = tcp_enter,
	.kick = tcp_kick,
	.close = tcp_close,
	.quiesce = tcp_quiesce,
	.fork_child = tcp_fork_child,
};
