/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the two ends of a TCP link tell each other beside the messages of the
 * application, and how a link ends. All under qp->lock.
 *
 *	PARAM	our rnr_retry
 *	ACK	messages taken; receives posted
 *	WANT	we have messages for more receives than we know of
 *	NAK	messages taken; why the next one was not
 *	GONE	the QP no longer answers
 *	PING	is anybody there? The answer is an ACK
 *	READY, DREQ, DREP: of the connection manager; BYE: it has let go
 *	Terminate, to those who do not know NAK, and for a broken stream
 */
#include "sv_tcp.h"

#include <sys/socket.h>

/* ---- telling ---- */

static void put_ctrl(struct sv_tcp *tcp, enum sv_ctrl_type type, uint32_t a,
		     uint32_t b)
{
	struct sv_ddp ddp = {
		.op = SV_RDMAP_CTRL,
		.last = true,
		.ulp = type,
		.msn = ++tcp->tx_ctrl_msn,
	};
	uint8_t data[SV_CTRL_LINK_LEN];

	if (type >= SV_CTRL_ACK)
		ddp.payload_len = SV_CTRL_LINK_LEN;
	sv_ctrl_link_encode(data, a, b);
	sv_tcp_put(tcp, &ddp, data);
}

static void put_term(struct sv_tcp *tcp)
{
	struct sv_ddp ddp = {
		.op = SV_RDMAP_TERMINATE,
		.last = true,
		.msn = 1,
	};
	uint8_t data[SV_TERM_MAX];
	struct sv_term term;

	sv_term_init(&term, tcp->term_err, NULL, NULL);
	ddp.payload_len = sv_term_encode(data, &term);
	sv_tcp_put(tcp, &ddp, data);
}

static void put_rtr(struct sv_tcp *tcp)
{
	/* Some adapters do not like an STag of 0, even if it is not used. */
	struct sv_ddp ddp = { .op = SV_RDMAP_WRITE, .last = true, .stag = 1 };

	sv_tcp_put(tcp, &ddp, NULL);
}

/* How many receives there ever were; with an SRQ, of those that all its queue
 * pairs share: as good as promised, and taken by others nevertheless. */
static uint32_t recvs_posted(struct sv_tcp *tcp)
{
	struct sv_qp *qp = tcp->link.qp;

	return atomic_load(&qp->rq.posted) + (qp->srq ? sv_srq_avail(qp) : 0);
}

/* Whether the peer wants to hear of more than it has been told, or will be by
 * what is on its way. */
static bool is_short(const struct sv_tcp *tcp)
{
	return (int32_t)(tcp->recvs_wanted - tcp->told_recvs) > 0;
}

static void put_ack(struct sv_tcp *tcp)
{
	if (sv_tcp_attached(tcp) && !tcp->rx_stop) {
		tcp->told_recvs = recvs_posted(tcp);
		tcp->peer_wants = tcp->peer_wants && is_short(tcp);
	}
	tcp->told_msgs = tcp->rx_msgs;
	put_ctrl(tcp, SV_CTRL_ACK, tcp->told_msgs, tcp->told_recvs);
}

static bool only_ack(const struct sv_tcp *tcp)
{
	const struct sv_qp *qp = tcp->link.qp;

	return tcp->ctl == SV_TCP_CTL_ACK && !tcp->ask_cnt &&
	       (!sv_tcp_attached(tcp) ||
		qp->sq.sent == atomic_load_explicit(&qp->sq.posted,
						    memory_order_relaxed));
}

static void cm_fill(struct sv_tcp *tcp)
{
	if (tcp->ctl & SV_TCP_CTL_READY)
		put_ctrl(tcp, SV_CTRL_READY, 0, 0);
	if (tcp->ctl & SV_TCP_CTL_DREQ)
		put_ctrl(tcp, SV_CTRL_DREQ, 0, 0);
	if (tcp->ctl & SV_TCP_CTL_DREP)
		put_ctrl(tcp, SV_CTRL_DREP, 0, 0);
	if (tcp->ctl & SV_TCP_CTL_BYE)
		put_ctrl(tcp, SV_CTRL_BYE, 0, 0);
}

static __cold void rare_fill(struct sv_tcp *tcp)
{
	if (tcp->ctl & SV_TCP_CTL_RTR)
		put_rtr(tcp);
	if (tcp->ctl & SV_TCP_CTL_PARAM)
		put_ctrl(tcp, SV_CTRL_PARAM, tcp->rnr_told, 0);
	if (tcp->ctl & SV_TCP_CTL_WANT)
		put_ctrl(tcp, SV_CTRL_WANT, tcp->recvs_sent + 1, 0);
	if (tcp->ctl & SV_TCP_CTL_NAK)
		put_ctrl(tcp, SV_CTRL_NAK, tcp->rx_msgs, tcp->nak_status);
	if (tcp->ctl & SV_TCP_CTL_GONE)
		put_ctrl(tcp, SV_CTRL_GONE, tcp->gone_state, tcp->rx_msgs);
	if (tcp->ctl & SV_TCP_CTL_PING)
		put_ctrl(tcp, SV_CTRL_PING, 0, 0);
	cm_fill(tcp);
	if (tcp->ctl & SV_TCP_CTL_TERM)
		put_term(tcp);
}

/* All of this fits where a frame with a small payload would. */
void sv_tcp_ctl_fill(struct sv_tcp *tcp, bool ack)
{
	if (likely(!tcp->ctl) || (!ack && only_ack(tcp)))
		return;
	/* Nothing goes before the peer has begun, or we may: see rtr_wait(). Who
	 * was promised a first frame gets it, even if that is all. */
	if (unlikely(tcp->hold)) {
		if (!(tcp->ctl & SV_TCP_CTL_FIN))
			return;
		tcp->hold = false;
		tcp->ctl &= SV_TCP_CTL_FIN | SV_TCP_CTL_RTR;
	}
	if (tcp->ctl & SV_TCP_CTL_ACK)
		put_ack(tcp);
	if (unlikely(tcp->ctl & ~(uint32_t)SV_TCP_CTL_ACK))
		rare_fill(tcp);
	tcp->ctl &= SV_TCP_CTL_FIN;
}

/* ---- receives ---- */

void sv_tcp_credit(struct sv_tcp *tcp)
{
	struct sv_qp *qp = tcp->link.qp;

	if (likely(!tcp->peer_wants) || tcp->rx_stop)
		return;
	/* Who posts next makes progress with us: see sv_rq_peek(). */
	sv_rq_starve(qp);
	if (recvs_posted(tcp) == tcp->told_recvs) {
		if (qp->srq)
			sv_srq_await(qp);
		return;
	}
	tcp->peer_wants = false;
	tcp->ctl |= SV_TCP_CTL_ACK;
	if (!tcp->parked)
		atomic_store(&qp->rq_starved, false);
}

/*
 * The next message finds no receive, or its sender knows of none. The deadline
 * may outlive the wait: who it calls finds another message, or none waiting.
 */
void sv_tcp_no_recv(struct sv_tcp *tcp)
{
	uint64_t now_ns;

	if (tcp->peer_rnr_retry == 7 || tcp->rx_stop)
		return;
	now_ns = sv_now_ns();
	if (!tcp->rnr_due_ns || tcp->rnr_msg != tcp->rx_msgs) {
		tcp->rnr_msg = tcp->rx_msgs;
		tcp->rnr_due_ns = now_ns + sv_link_rnr_ns(&tcp->link,
							  tcp->peer_rnr_retry);
	}
	if (now_ns < tcp->rnr_due_ns) {
		sv_deadline_set(&tcp->link, tcp->rnr_due_ns);
		return;
	}
	/* The sender's error, not ours. */
	tcp->refuse_kill = false;
	tcp->nak_status = IBV_WC_RNR_RETRY_EXC_ERR;
	tcp->refusing = true;
	tcp->rx_stop = true;
}

/* ---- being told ---- */

static void ack_take(struct sv_tcp *tcp, uint32_t msgs)
{
	/* A peer that acknowledges what was never sent only harms itself. */
	if (msgs - tcp->tx_acked <= tcp->tx_msgs - tcp->tx_acked)
		tcp->tx_acked = msgs;
	else
		sv_tcp_nonsense(tcp, SV_TERM_OP_STREAM);
}

static bool nak_known(uint32_t status)
{
	return status == IBV_WC_REM_INV_REQ_ERR ||
	       status == IBV_WC_REM_ACCESS_ERR ||
	       status == IBV_WC_REM_OP_ERR ||
	       status == IBV_WC_RNR_RETRY_EXC_ERR;
}

static void link_take(struct sv_tcp *tcp, uint32_t type, uint32_t a, uint32_t b)
{
	if (type == SV_CTRL_PING)
		tcp->ctl |= SV_TCP_CTL_ACK | SV_TCP_CTL_PONG;
	if (!sv_tcp_attached(tcp))
		return;
	switch (type) {
	case SV_CTRL_ACK:
		ack_take(tcp, a);
		tcp->credits = b;
		tcp->wanting = false;
		sv_tcp_acks(tcp);
		break;
	case SV_CTRL_NAK:
		ack_take(tcp, a);
		tcp->refused = nak_known(b) ? b : IBV_WC_REM_OP_ERR;
		sv_tcp_acks(tcp);
		break;
	case SV_CTRL_GONE:
		ack_take(tcp, b);
		tcp->peer_gone = a == SV_GONE_CLOSED ? a : SV_GONE_ERROR;
		sv_tcp_acks(tcp);
		break;
	case SV_CTRL_WANT:
		tcp->recvs_wanted = a;
		tcp->peer_wants = is_short(tcp);
		sv_tcp_credit(tcp);
		if (tcp->peer_wants)
			sv_tcp_no_recv(tcp);
		break;
	case SV_CTRL_PARAM:
		tcp->peer_rnr_retry = a & 7;
		break;
	default:
		break;
	}
}

void sv_tcp_ctl_take(struct sv_tcp *tcp, const struct sv_ddp *ddp,
		     const uint8_t *data)
{
	uint32_t a, b;

	tcp->ctrl_msn++;
	switch (ddp->ulp) {
	case SV_CTRL_READY:
		sv_tcp_tell_cm(tcp, SV_TCP_CM_READY);
		return;
	case SV_CTRL_DREQ:
		sv_tcp_tell_cm(tcp, SV_TCP_CM_DREQ);
		return;
	case SV_CTRL_DREP:
		sv_tcp_tell_cm(tcp, SV_TCP_CM_DREP);
		return;
	case SV_CTRL_BYE:
		sv_tcp_tell_cm(tcp, SV_TCP_CM_EOF);
		return;
	case SV_CTRL_ACK:
	case SV_CTRL_NAK:
	case SV_CTRL_GONE:
	case SV_CTRL_WANT:
	case SV_CTRL_PARAM:
	case SV_CTRL_PING:
		if (ddp->payload_len != SV_CTRL_LINK_LEN)
			break;
		sv_ctrl_link_decode(&a, &b, data);
		link_take(tcp, ddp->ulp, a, b);
		return;
	default:
		break;
	}
	sv_log("qp %06x: control message %u of %u bytes",
	       tcp->link.qp->qp.qp_num, ddp->ulp, ddp->payload_len);
	sv_tcp_nonsense(tcp, SV_TERM_OP_STREAM);
}

/* Whose fault the peer says it is: the oldest read or atomic may be meant; of
 * what else there was, nobody waits for an answer. */
void sv_tcp_term_take(struct sv_tcp *tcp)
{
	struct sv_qp *qp = tcp->link.qp;
	struct sv_term term;

	if (sv_term_decode(&term, !tcp->ext, tcp->small,
			   tcp->seg.payload_len))
		term.err = SV_TERM_RDMAP_CATASTROPHIC;
	sv_log("qp %06x: peer ends the stream: %s (%#06x)", qp->qp.qp_num,
	       sv_term_str(term.err), term.err);
	tcp->rx_stop = true;
	tcp->ctl |= SV_TCP_CTL_FIN;
	if (!sv_tcp_attached(tcp) || qp->attr.qp_state == IBV_QPS_ERR)
		return;
	if (tcp->rd_cnt && tcp->rd_wr == qp->sq.done &&
	    (term.has_read_req || !term.ddp_len)) {
		tcp->refused = sv_term_status(term.err);
		sv_tcp_acks(tcp);
	}
	sv_qp_error(qp, IBV_EVENT_QP_FATAL);
}

/* ---- ending ---- */

/* All that came before is answered: now the refusal may be told. */
void sv_tcp_refuse_now(struct sv_tcp *tcp)
{
	sv_log("qp %06x: message refused: %s", tcp->link.qp->qp.qp_num,
	       sv_wc_status_str(tcp->nak_status));
	tcp->refusing = false;
	if (tcp->ext)
		tcp->ctl |= SV_TCP_CTL_NAK;
	else
		tcp->ctl |= SV_TCP_CTL_TERM | SV_TCP_CTL_FIN;
	if (tcp->refuse_kill && sv_tcp_attached(tcp))
		sv_qp_error(tcp->link.qp, tcp->refuse_event);
}

void sv_tcp_refuse(struct sv_tcp *tcp, enum ibv_wc_status status, int event,
		   enum sv_term_code err)
{
	tcp->rx_stop = true;
	tcp->to = SV_TCP_TO_NOWHERE;
	tcp->refusing = true;
	tcp->refuse_kill = true;
	tcp->refuse_event = event;
	tcp->nak_status = status;
	tcp->term_err = err;
	/* Outside of sending it is soon looked at: all taking ends there. */
	if (!tcp->ask_cnt)
		sv_tcp_refuse_now(tcp);
}

void sv_tcp_nonsense(struct sv_tcp *tcp, enum sv_term_code err)
{
	sv_log("qp %06x: peer broke the protocol: %s",
	       tcp->link.qp->qp.qp_num, sv_term_str(err));
	tcp->rx_state = SV_TCP_RX_DEAD;
	tcp->rx_stop = true;
	tcp->to = SV_TCP_TO_NOWHERE;
	tcp->term_err = err;
	tcp->ctl |= SV_TCP_CTL_TERM | SV_TCP_CTL_FIN;
	if (sv_tcp_attached(tcp))
		sv_qp_error(tcp->link.qp, IBV_EVENT_QP_FATAL);
}

/*
 * The stream has ended, and all that came before it has been taken. A peer of
 * ours that had closed its queue pair has left; one that had not is dead, be it that
 * its queue pair was in error. Anyone else's goodbye is the end of the stream.
 */
void sv_tcp_lost(struct sv_tcp *tcp)
{
	struct sv_link *link = &tcp->link;

	if (link->dead)
		return;
	link->dead = true;
	atomic_store_explicit(&tcp->open, false, memory_order_relaxed);
	sv_tcp_tell_cm(tcp, SV_TCP_CM_EOF);
	if (!sv_tcp_attached(tcp))
		return;
	if (tcp->peer_gone == SV_GONE_CLOSED) {
		sv_link_gone(link);
		return;
	}
	sv_log("qp %06x: stream to the peer has ended (%d)",
	       link->qp->qp.qp_num, tcp->err);
	tcp->rx_stop = true;
	if (tcp->ext || tcp->err)
		sv_link_fail_sends(link, IBV_EVENT_QP_FATAL);
	else
		sv_qp_error(link->qp, -1);
}
