/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the segments that come in on a TCP link mean: in which order they may come,
 * where their payload goes, and what happens when a message is complete. Nothing
 * in them is believed. All under qp->lock.
 */
#include "sv_tcp.h"

#include <string.h>

/* ---- where a segment begins ---- */

/* In an unused place: the rest of the segment is read past. */
static bool nowhere(struct sv_tcp *tcp)
{
	tcp->to = SV_TCP_TO_NOWHERE;
	return true;
}

static bool bad(struct sv_tcp *tcp, enum sv_term_code err)
{
	sv_tcp_nonsense(tcp, err);
	return nowhere(tcp);
}

/* The receive at hand fails, and the message with it. */
static __cold bool fail_recv(struct sv_tcp *tcp, enum ibv_wc_status status,
			     enum ibv_wc_status nak, enum sv_term_code err)
{
	struct sv_cqe cqe = { .wc.status = status };

	sv_log("qp %06x: receive fails: %s", tcp->link.qp->qp.qp_num,
	       sv_wc_status_str(status));
	sv_rq_complete(tcp->link.qp, &cqe, false);
	sv_tcp_refuse(tcp, nak, -1, err);
	return nowhere(tcp);
}

/* The QP is not yet in a state to receive, or there is no receive. */
static bool wait_recv(struct sv_tcp *tcp)
{
	if (!sv_link_receives(&tcp->link))
		return false;
	if (tcp->ext) {
		sv_tcp_no_recv(tcp);
		/* It may have been given up just now. */
		return tcp->rx_stop ? nowhere(tcp) : false;
	}
	sv_tcp_refuse(tcp, IBV_WC_RNR_RETRY_EXC_ERR, IBV_EVENT_QP_FATAL,
		      SV_TERM_UNTAGGED_NO_BUFFER);
	return nowhere(tcp);
}

static bool begin_send(struct sv_tcp *tcp)
{
	struct sv_qp *qp = tcp->link.qp;
	const struct sv_ddp *seg = &tcp->seg;
	struct sv_rwr *rwr;

	if (unlikely(seg->msn != tcp->send_msn + 1))
		return bad(tcp, SV_TERM_UNTAGGED_MSN);
	if (unlikely(seg->mo != (tcp->send_open ? tcp->send_len : 0)))
		return bad(tcp, SV_TERM_UNTAGGED_MO);
	if (unlikely(!sv_link_receives(&tcp->link)))
		return wait_recv(tcp);
	rwr = sv_rq_peek(qp);
	if (unlikely(!rwr))
		return wait_recv(tcp);
	if (seg->op == SV_RDMAP_IMM || seg->op == SV_RDMAP_IMM_SE) {
		tcp->to = SV_TCP_TO_SMALL;
		return true;
	}
	if (unlikely((uint64_t)seg->mo + seg->payload_len > rwr->len))
		return fail_recv(tcp, IBV_WC_LOC_LEN_ERR,
				 IBV_WC_REM_INV_REQ_ERR,
				 SV_TERM_UNTAGGED_TOO_LONG);
	if (!tcp->send_open) {
		tcp->send_open = true;
		tcp->send_len = 0;
	}
	tcp->to = SV_TCP_TO_RECV;
	return true;
}

static bool begin_write(struct sv_tcp *tcp)
{
	/* Whether it may is asked when there are bytes to write. */
	if (unlikely(!sv_link_receives(&tcp->link)))
		return false;
	if (!tcp->write_open) {
		tcp->write_open = true;
		tcp->write_len = 0;
	}
	if (unlikely(tcp->seg.payload_len > SV_MAX_MSG - tcp->write_len))
		return bad(tcp, SV_TERM_TAGGED_BOUNDS);
	/* A request for what no region has, from a peer that keeps the rules. */
	if (unlikely(tcp->seg.to > UINT64_MAX - tcp->seg.payload_len)) {
		sv_tcp_refuse(tcp, IBV_WC_REM_ACCESS_ERR,
			      IBV_EVENT_QP_ACCESS_ERR, SV_TERM_TAGGED_TO_WRAP);
		return nowhere(tcp);
	}
	tcp->to = SV_TCP_TO_MEM;
	return true;
}

/* The oldest of our reads, if this is the next piece of its answer. */
static struct sv_swr *read_of(struct sv_tcp *tcp)
{
	const struct sv_ddp *seg = &tcp->seg;
	struct sv_swr *swr;

	if (!tcp->rd_cnt)
		return NULL;
	swr = sv_sq_slot(tcp->link.qp, tcp->rd_wr);
	if (swr->opcode != IBV_WR_RDMA_READ ||
	    seg->stag != sv_tcp_sink(tcp->rd_wr) || seg->to != swr->offset ||
	    seg->payload_len > swr->len - swr->offset ||
	    seg->last != (swr->offset + seg->payload_len == swr->len))
		return NULL;
	return swr;
}

static bool begin_answer(struct sv_tcp *tcp)
{
	if (tcp->seg.op == SV_RDMAP_READ_RESP) {
		if (!read_of(tcp))
			return bad(tcp, SV_TERM_TAGGED_STAG);
		tcp->to = SV_TCP_TO_READ;
		return true;
	}
	if (tcp->seg.msn != tcp->answer_msn + 1)
		return bad(tcp, SV_TERM_UNTAGGED_MSN);
	tcp->to = SV_TCP_TO_SMALL;
	return true;
}

static bool begin_ask(struct sv_tcp *tcp)
{
	if (unlikely(!sv_link_receives(&tcp->link)))
		return false;
	if (tcp->seg.msn != tcp->req_msn + 1)
		return bad(tcp, SV_TERM_UNTAGGED_MSN);
	tcp->to = SV_TCP_TO_SMALL;
	return true;
}

static bool begin_ctrl(struct sv_tcp *tcp)
{
	if (tcp->seg.op == SV_RDMAP_CTRL &&
	    tcp->seg.msn != tcp->ctrl_msn + 1)
		return bad(tcp, SV_TERM_UNTAGGED_MSN);
	if (tcp->seg.payload_len > sizeof(tcp->small))
		return bad(tcp, SV_TERM_UNTAGGED_TOO_LONG);
	tcp->to = SV_TCP_TO_SMALL;
	return true;
}

bool sv_tcp_seg_begin(struct sv_tcp *tcp)
{
	const enum sv_rdmap_op op = tcp->seg.op;

	if (op == SV_RDMAP_CTRL || op == SV_RDMAP_TERMINATE)
		return begin_ctrl(tcp);
	if (unlikely(tcp->rx_stop))
		return nowhere(tcp);
	switch (op) {
	case SV_RDMAP_WRITE:
		return begin_write(tcp);
	case SV_RDMAP_READ_REQ:
	case SV_RDMAP_ATOMIC_REQ:
		return begin_ask(tcp);
	case SV_RDMAP_READ_RESP:
	case SV_RDMAP_ATOMIC_RESP:
		return begin_answer(tcp);
	default:
		return begin_send(tcp);
	}
}

/* ---- where its payload goes ---- */

static int dest_recv(struct sv_tcp *tcp, uint32_t len, struct iovec *iov)
{
	struct sv_qp *qp = tcp->link.qp;
	struct sv_rwr *rwr = sv_rq_slot(qp, qp->rq.done);

	if (unlikely(!sv_rwr_writable(qp, rwr))) {
		fail_recv(tcp, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR,
			  SV_TERM_DDP_CATASTROPHIC);
		return -1;
	}
	return sv_sges_iov(rwr->sge, rwr->num_sge,
			   tcp->seg.mo + tcp->seg_done, len, iov);
}

static int dest_mem(struct sv_tcp *tcp, uint32_t len, struct iovec *iov)
{
	char *to = sv_link_target(&tcp->link, IBV_ACCESS_REMOTE_WRITE,
				  tcp->seg.stag, tcp->seg.to + tcp->seg_done,
				  len);

	if (unlikely(!to)) {
		sv_tcp_refuse(tcp, IBV_WC_REM_ACCESS_ERR,
			      IBV_EVENT_QP_ACCESS_ERR, SV_TERM_PROT_ACCESS);
		nowhere(tcp);
		return -1;
	}
	*iov = (struct iovec){ to, len };
	return 1;
}

static int dest_read(struct sv_tcp *tcp, uint32_t len, struct iovec *iov)
{
	struct sv_qp *qp = tcp->link.qp;
	struct sv_swr *swr = sv_sq_slot(qp, tcp->rd_wr);

	if (unlikely(!sv_swr_writable(qp, swr))) {
		tcp->refused = IBV_WC_LOC_PROT_ERR;
		nowhere(tcp);
		sv_tcp_acks(tcp);
		return -1;
	}
	return sv_sges_iov(swr->sge, swr->num_sge, swr->offset + tcp->seg_done,
			   len, iov);
}

int sv_tcp_seg_dest(struct sv_tcp *tcp, uint32_t len, struct iovec *iov)
{
	switch (tcp->to) {
	case SV_TCP_TO_SMALL:
		*iov = (struct iovec){ tcp->small + tcp->seg_done, len };
		return 1;
	case SV_TCP_TO_RECV:
		return dest_recv(tcp, len, iov);
	case SV_TCP_TO_MEM:
		return dest_mem(tcp, len, iov);
	case SV_TCP_TO_READ:
		return dest_read(tcp, len, iov);
	default:
		return 0;
	}
}

/* ---- where it ends ---- */

static void taken(struct sv_tcp *tcp)
{
	tcp->rx_msgs++;
	if (tcp->ext)
		tcp->ctl |= SV_TCP_CTL_ACK;
}

/* flags: IBV_WC_WITH_IMM and data, or IBV_WC_WITH_INV and a key. */
static void recv_done(struct sv_tcp *tcp, enum ibv_wc_opcode opcode,
		      uint32_t len, unsigned int flags, uint32_t data)
{
	struct sv_cqe cqe = {
		.wc = {
			.opcode = opcode,
			.byte_len = len,
			.src_qp = tcp->link.peer_qpn,
			.wc_flags = flags,
		},
	};

	if (flags & IBV_WC_WITH_IMM)
		cqe.wc.imm_data = htobe32(data);
	else if (flags & IBV_WC_WITH_INV)
		cqe.wc.invalidated_rkey = data;
	sv_rq_complete(tcp->link.qp, &cqe, sv_op_is_solicited(tcp->seg.op));
	tcp->send_msn++;
	taken(tcp);
}

static void end_send(struct sv_tcp *tcp)
{
	const enum sv_rdmap_op op = tcp->seg.op;
	unsigned int flags = 0;

	tcp->send_len += tcp->seg.payload_len;
	if (!tcp->seg.last)
		return;
	tcp->send_open = false;
	if (op == SV_RDMAP_SEND_IMM || op == SV_RDMAP_SEND_SE_IMM)
		flags = IBV_WC_WITH_IMM;
	else if (op == SV_RDMAP_SEND_INV || op == SV_RDMAP_SEND_SE_INV)
		flags = IBV_WC_WITH_INV;
	if (unlikely(flags & IBV_WC_WITH_INV) &&
	    !sv_key_invalidate(tcp->link.qp, tcp->seg.ulp)) {
		fail_recv(tcp, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR,
			  SV_TERM_PROT_INVALIDATE);
		return;
	}
	recv_done(tcp, IBV_WC_RECV, tcp->send_len, flags, tcp->seg.ulp);
}

static void end_imm(struct sv_tcp *tcp)
{
	uint32_t kind, imm;

	sv_imm_decode(&kind, &imm, tcp->small);
	if (kind != SV_IMM_WRITE || tcp->write_open || tcp->send_open) {
		sv_tcp_nonsense(tcp, SV_TERM_OP_STREAM);
		return;
	}
	recv_done(tcp, IBV_WC_RECV_RDMA_WITH_IMM, tcp->write_len,
		  IBV_WC_WITH_IMM, imm);
}

static void end_write(struct sv_tcp *tcp)
{
	tcp->write_len += tcp->seg.payload_len;
	if (!tcp->seg.last)
		return;
	tcp->write_open = false;
	taken(tcp);
}

static void end_ask(struct sv_tcp *tcp)
{
	struct sv_tcp_ask ask = {
		.atomic = tcp->seg.op == SV_RDMAP_ATOMIC_REQ,
	};
	enum sv_term_code err = SV_TERM_NONE;

	tcp->req_msn++;
	if (!ask.atomic) {
		sv_read_req_decode(&ask.read, tcp->small);
		if (ask.read.len > SV_MAX_MSG)
			err = SV_TERM_OP_UNSPECIFIED;
	} else if (!sv_atomic_req_decode(&ask.req, tcp->small, &err) &&
		   !sv_atomic_is_plain(&ask.req)) {
		err = SV_TERM_OP_UNSPECIFIED;
	}
	if (err == SV_TERM_NONE && tcp->ask_cnt >= tcp->link.qp->attr.max_dest_rd_atomic)
		err = SV_TERM_OP_STREAM;
	if (err != SV_TERM_NONE) {
		sv_tcp_refuse(tcp, IBV_WC_REM_INV_REQ_ERR,
			      IBV_EVENT_QP_REQ_ERR, err);
		return;
	}
	taken(tcp);
	sv_tcp_ask_add(tcp, &ask);
}

static void end_read(struct sv_tcp *tcp)
{
	struct sv_swr *swr = sv_sq_slot(tcp->link.qp, tcp->rd_wr);

	swr->offset += tcp->seg.payload_len;
	if (!tcp->seg.last)
		return;
	sv_tcp_answered(tcp);
	sv_tcp_acks(tcp);
}

static void end_atomic(struct sv_tcp *tcp)
{
	struct sv_qp *qp = tcp->link.qp;
	struct sv_atomic_resp resp;
	struct sv_swr *swr;

	tcp->answer_msn++;
	sv_atomic_resp_decode(&resp, tcp->small);
	swr = tcp->rd_cnt ? sv_sq_slot(qp, tcp->rd_wr) : NULL;
	if (!swr || swr->opcode == IBV_WR_RDMA_READ ||
	    resp.id != sv_tcp_sink(tcp->rd_wr)) {
		sv_tcp_nonsense(tcp, SV_TERM_OP_STREAM);
		return;
	}
	if (!sv_swr_writable(qp, swr))
		tcp->refused = IBV_WC_LOC_PROT_ERR;
	else
		sv_sges_scatter(swr->sge, 0, &resp.value, sizeof(resp.value));
	if (!tcp->refused)
		sv_tcp_answered(tcp);
	sv_tcp_acks(tcp);
}

static __cold void first_came(struct sv_tcp *tcp)
{
	tcp->first_came = true;
	tcp->hold = false;
	sv_tcp_tell_cm(tcp, SV_TCP_CM_FIRST);
}

void sv_tcp_seg_end(struct sv_tcp *tcp)
{
	if (unlikely(!tcp->first_came))
		first_came(tcp);
	if (unlikely(tcp->seg.op == SV_RDMAP_CTRL)) {
		sv_tcp_ctl_take(tcp, &tcp->seg, tcp->small);
		return;
	}
	if (unlikely(tcp->seg.op == SV_RDMAP_TERMINATE)) {
		sv_tcp_term_take(tcp);
		return;
	}
	/* Refused, or the QP died in the middle of it. */
	if (unlikely(tcp->to == SV_TCP_TO_NOWHERE || tcp->rx_stop))
		return;
	switch (tcp->seg.op) {
	case SV_RDMAP_WRITE:
		end_write(tcp);
		break;
	case SV_RDMAP_READ_REQ:
	case SV_RDMAP_ATOMIC_REQ:
		end_ask(tcp);
		break;
	case SV_RDMAP_READ_RESP:
		end_read(tcp);
		break;
	case SV_RDMAP_ATOMIC_RESP:
		end_atomic(tcp);
		break;
	case SV_RDMAP_IMM:
	case SV_RDMAP_IMM_SE:
		end_imm(tcp);
		break;
	default:
		end_send(tcp);
	}
}
