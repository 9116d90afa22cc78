/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the QP layer and the engine ask of a TCP link.
 *
 * The engine waits for the socket with one-shot events. While the application
 * polls, an event that comes is left unanswered, and no further one comes; when
 * the polling ends, or an event is asked for, rearm() waits anew, and what has
 * come in the meantime wakes the engine at once.
 */
#include "sv_tcp.h"

#include <sys/epoll.h>
#include <unistd.h>

enum {
	SV_TCP_TRUST = 64, /* answers in a row */
	SV_TCP_REST_AFTER = 8, /* looks that found nothing, then this long: */
	SV_TCP_REST_NS = 500, /* doubled each time, */
	SV_TCP_REST_MAX = SV_TCP_REST_AFTER + 5, /* up to 16 us */
};

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

void sv_tcp_arm(struct sv_tcp *tcp)
{
	uint32_t events = events_wanted(tcp);

	if (tcp->freed || events == tcp->armed || events == EPOLLONESHOT)
		return;
	if (!sv_engine_rewatch(tcp->sock, events))
		tcp->armed = events;
}

static void kick(struct sv_tcp *tcp)
{
	if (!tcp->freed && !tcp->closing)
		sv_timer_set(&tcp->timer, 0, sv_tcp_on_timer, tcp);
}

/* The engine goes on with what is left to do, if nobody else does. */
static void settle(struct sv_tcp *tcp)
{
	sv_tcp_arm(tcp);
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

/*
 * The kernel's siw sends its reply and only then begins to listen for the first
 * frame: one that comes at once is not noticed before the next, and if the
 * connection ends meanwhile, its kernel does not survive. It gets some time.
 */
static void rtr_wait(struct sv_tcp *tcp)
{
	uint64_t now_ns = sv_now_ns();

	if (now_ns < tcp->rtr_due_ns) {
		sv_timer_set(&tcp->timer, (tcp->rtr_due_ns - now_ns) / 1000000 +
						  1, sv_tcp_on_timer, tcp);
		return;
	}
	tcp->rtr_due_ns = 0;
	tcp->hold = false;
}

/* Takes what came in, sends what waits; ack: acknowledgements too. */
static void work(struct sv_tcp *tcp, bool ack)
{
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
	if (unlikely(tcp->rtr_due_ns))
		rtr_wait(tcp);
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
}

/* ---- what the engine calls ---- */

/* Caller holds qp->lock, which is dropped. */
static void serve_done(struct sv_tcp *tcp)
{
	void (*fn)(struct sv_link *link) = NULL;
	bool gone;

	if (tcp->cm_events && tcp->cm_side)
		fn = tcp->cm_fn;
	gone = sv_tcp_may_go(tcp);
	sv_lock_drop(&tcp->link.qp->lock);
	/* Freeing waits until the engine is back in its loop. */
	if (fn)
		fn(&tcp->link);
	if (gone)
		sv_tcp_gone(tcp);
}

static bool needs_engine(const struct sv_tcp *tcp)
{
	return tcp->need_wake || !sv_tcp_attached(tcp);
}

void sv_tcp_on_socket(void *arg, uint32_t events)
{
	struct sv_tcp *tcp = arg;

	sv_lock_take(&tcp->link.qp->lock);
	tcp->armed = 0;
	if (tcp->entered && !tcp->freed && !tcp->link.stalled &&
	    needs_engine(tcp)) {
		work(tcp, true);
		settle(tcp);
	}
	serve_done(tcp);
}

/* Kicked; or, when nobody owns it any more, out of patience. */
void sv_tcp_on_timer(void *arg)
{
	struct sv_tcp *tcp = arg;

	sv_lock_take(&tcp->link.qp->lock);
	if (!tcp->freed && sv_timer_expired(&tcp->timer)) {
		sv_timer_cancel(&tcp->timer);
		if (tcp->closing)
			tcp->eof = true;
		else if (tcp->entered && !tcp->link.stalled)
			work(tcp, true);
		if (tcp->entered && !tcp->link.stalled && needs_engine(tcp))
			settle(tcp);
	}
	serve_done(tcp);
}

/* ---- what the QP layer calls ---- */

static bool tcp_pending(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	uint64_t rest_ns;

	if (atomic_load_explicit(&link->attention, memory_order_relaxed))
		return true;
	if (!atomic_load_explicit(&tcp->open, memory_order_relaxed))
		return false;
	rest_ns = atomic_load_explicit(&tcp->rest_ns, memory_order_relaxed);
	return !rest_ns || sv_now_ns() >= rest_ns;
}

/*
 * Each look is a system call. Among many links those where nothing comes are
 * looked at less often; a link on its own always.
 */
static void rest(struct sv_tcp *tcp)
{
	const struct sv_qp *qp = tcp->link.qp;
	uint64_t rest_ns = 0;

	if (tcp->came ||
	    (atomic_load_explicit(&qp->scq->link_cnt, memory_order_relaxed) <
		     2 &&
	     atomic_load_explicit(&qp->rcq->link_cnt, memory_order_relaxed) <
		     2)) {
		tcp->empty = 0;
	} else if (tcp->empty < SV_TCP_REST_MAX) {
		tcp->empty++;
	}
	if (tcp->empty > SV_TCP_REST_AFTER)
		rest_ns = sv_now_ns() + (SV_TCP_REST_NS
					 << (tcp->empty - SV_TCP_REST_AFTER));
	atomic_store_explicit(&tcp->rest_ns, rest_ns, memory_order_relaxed);
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
	rest(tcp);
	if (tcp->need_wake)
		settle(tcp);
}

static void tcp_push(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);

	if (tcp->acked && tcp->answers < SV_TCP_TRUST)
		tcp->answers++;
	tcp->acked = false;
	sv_tcp_push(tcp, false);
	check(tcp);
	if (tcp->need_wake)
		settle(tcp);
}

static void tcp_acks(struct sv_link *link)
{
	sv_tcp_acks(sv_tcp(link));
}

/* The QP no longer takes or asks anything. */
void sv_tcp_stop(struct sv_tcp *tcp, uint32_t gone_state)
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

	if (attr->qp_state == IBV_QPS_ERR) {
		sv_tcp_stop(tcp, SV_GONE_ERROR);
	} else if (attr->qp_state == IBV_QPS_RESET) {
		sv_tcp_stop(tcp, SV_GONE_CLOSED);
	} else if (attr->qp_state == IBV_QPS_RTS && tcp->ext &&
		   attr->rnr_retry != tcp->rnr_told) {
		tcp->rnr_told = attr->rnr_retry;
		tcp->ctl |= SV_TCP_CTL_PARAM;
	}
	if (tcp->entered)
		sv_tcp_push(tcp, false);
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
	if (!sv_link_armed(link))
		sv_tcp_shrink(tcp);
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

/* Whoever of ours touches memory holds qp->lock, and no peer does. */
static void tcp_quiesce(struct sv_link *link, uint32_t key, uint64_t until_ns)
{
}

static void tcp_withdraw(struct sv_link *link)
{
	sv_tcp_withdraw(sv_tcp(link));
}

static void tcp_fork_child(struct sv_link *link)
{
	close(sv_tcp(link)->sock);
}

const struct sv_link_ops sv_tcp_ops = {
	.pending = tcp_pending,
	.poll = sv_link_poll,
	.progress = tcp_progress,
	.push = tcp_push,
	.acks = tcp_acks,
	.publish = tcp_publish,
	.rearm = tcp_rearm,
	.timeout = tcp_timeout,
	.alive = sv_tcp_alive,
	.give_up = sv_tcp_give_up,
	.enter = tcp_enter,
	.kick = tcp_kick,
	.close = sv_tcp_close,
	.quiesce = tcp_quiesce,
	.withdraw = tcp_withdraw,
	.fork_child = tcp_fork_child,
};
