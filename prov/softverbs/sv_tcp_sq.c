/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The send queue of a TCP link: work requests into frames, in order, and what
 * the peer has acknowledged back into completions, in order too. All under
 * qp->lock.
 *
 * A WR is one message, a write with immediate two. Messages are numbered from 1;
 * swr->ring_end is the number of a WR's last. Reads and atomics are done when
 * they are answered, all else when the peer has taken the message.
 */
#include "sv_tcp.h"

enum sv_tcp_mode {
	SV_TCP_UNSET,
	SV_TCP_DATA,
	SV_TCP_IMM, /* the write is out, its immediate is not */
	SV_TCP_ASK,
};

/* What a message costs the peer's staging buffer beside its payload. */
enum {
	SV_TCP_MSG_COST = 64,
};

/* ---- acknowledgements ---- */

static __cold void tx_fail(struct sv_tcp *tcp, enum ibv_wc_status status)
{
	sv_log("qp %06x: send fails: %s", tcp->link.qp->qp.qp_num,
	       sv_wc_status_str(status));
	sv_sq_complete(tcp->link.qp, status);
	sv_qp_error(tcp->link.qp, -1);
}

static bool tx_finished(const struct sv_tcp *tcp, const struct sv_swr *swr)
{
	if (swr->state == SV_WR_DONE)
		return true;
	return swr->mode != SV_TCP_ASK &&
	       (int32_t)(tcp->tx_acked - swr->ring_end) >= 0;
}

void sv_tcp_acks(struct sv_tcp *tcp)
{
	struct sv_qp *qp = tcp->link.qp;
	struct sv_swr *swr;

	while (qp->sq.done != qp->sq.sent) {
		swr = sv_sq_slot(qp, qp->sq.done);
		if (!tx_finished(tcp, swr))
			break;
		if (unlikely(swr->state == SV_WR_DONE &&
			     swr->status != IBV_WC_SUCCESS)) {
			tx_fail(tcp, swr->status);
			return;
		}
		sv_sq_complete(qp, IBV_WC_SUCCESS);
		if (unlikely(qp->attr.qp_state == IBV_QPS_SQD) &&
		    sv_sq_drained(qp))
			sv_qp_drained(qp);
	}
	if (unlikely(tcp->refused) && qp->attr.qp_state != IBV_QPS_ERR &&
	    qp->sq.done != sv_wq_posted(&qp->sq))
		tx_fail(tcp, tcp->refused);
}

/* The oldest question is answered: on to the next one, if there is one. */
void sv_tcp_answered(struct sv_tcp *tcp)
{
	struct sv_qp *qp = tcp->link.qp;

	sv_sq_slot(qp, tcp->rd_wr)->state = SV_WR_DONE;
	if (!--tcp->rd_cnt)
		return;
	while (sv_sq_slot(qp, ++tcp->rd_wr)->mode != SV_TCP_ASK)
		;
}

/* ---- may it go? ---- */

/*
 * See sv_tcp.h. Without receives for all that was sent, what follows has to fit
 * into the peer's staging buffer, so that it can read on behind it.
 */
static bool window_ok(struct sv_tcp *tcp, const struct sv_swr *swr)
{
	uint32_t cost = swr->len + SV_TCP_MSG_COST;

	if (!tcp->ext)
		return true;
	if (swr->opcode >= IBV_WR_RDMA_READ && !swr->consumes_recv)
		cost = SV_TCP_MSG_COST * 2;
	if (likely((int32_t)(tcp->recvs_sent + swr->consumes_recv -
			     tcp->credits) <= 0)) {
		tcp->over = 0;
		return true;
	}
	if (tcp->over + cost <= SV_TCP_WINDOW) {
		tcp->over += cost;
		return true;
	}
	if (!tcp->wanting)
		tcp->ctl |= SV_TCP_CTL_WANT;
	tcp->wanting = true;
	return false;
}

/* Ends here; its completion waits for its turn. Nothing follows. */
static bool failed(struct sv_tcp *tcp, struct sv_swr *swr,
		   enum ibv_wc_status status)
{
	swr->state = SV_WR_DONE;
	swr->status = status;
	tcp->tx_stop = true;
	tcp->tx_mid = false;
	tcp->link.qp->sq.sent++;
	sv_tcp_acks(tcp);
	return false;
}

/* First look at a WR; false: not now, or it has failed. */
static bool begin(struct sv_tcp *tcp, struct sv_swr *swr)
{
	struct sv_qp *qp = tcp->link.qp;

	if (swr->flags & IBV_SEND_FENCE && tcp->rd_cnt)
		return false;
	if (unlikely(tcp->link.ops_refused >> swr->opcode & 1))
		return failed(tcp, swr, IBV_WC_LOC_QP_OP_ERR);
	if (sv_swr_asks(swr)) {
		/* Even if it was set to 0 meanwhile: one, or it would wait for
		 * ever. */
		if (!qp->attr.max_rd_atomic)
			return failed(tcp, swr, IBV_WC_LOC_QP_OP_ERR);
		if (tcp->rd_cnt && tcp->rd_cnt >= qp->attr.max_rd_atomic)
			return false;
		if (!sv_swr_writable(qp, swr))
			return failed(tcp, swr, IBV_WC_LOC_PROT_ERR);
	}
	if (likely(!sv_swr_is_local(swr)) && !window_ok(tcp, swr))
		return false;
	swr->mode = sv_swr_asks(swr) ? SV_TCP_ASK : SV_TCP_DATA;
	return true;
}

/* ---- into frames ---- */

static bool wr_sent(struct sv_tcp *tcp, struct sv_swr *swr)
{
	swr->state = SV_WR_SENT;
	swr->ring_end = ++tcp->tx_msgs;
	if (swr->consumes_recv)
		tcp->recvs_sent++;
	tcp->tx_mid = false;
	tcp->link.qp->sq.sent++;
	return true;
}

static bool send_one(struct sv_tcp *tcp, struct sv_swr *swr)
{
	const bool se = swr->flags & IBV_SEND_SOLICITED;
	uint32_t len = min_size(swr->len - swr->offset, tcp->seg_max);
	struct sv_ddp ddp = {
		.op = se ? SV_RDMAP_SEND_SE : SV_RDMAP_SEND,
		.last = swr->offset + len == swr->len,
		.payload_len = len,
		.msn = tcp->tx_send_msn + 1,
		.mo = swr->offset,
	};

	if (swr->opcode == IBV_WR_SEND_WITH_IMM) {
		ddp.op = se ? SV_RDMAP_SEND_SE_IMM : SV_RDMAP_SEND_IMM;
		ddp.ulp = be32toh(swr->imm);
	} else if (swr->opcode == IBV_WR_SEND_WITH_INV) {
		ddp.op = se ? SV_RDMAP_SEND_SE_INV : SV_RDMAP_SEND_INV;
		ddp.ulp = swr->imm;
	}
	if (!sv_tcp_put_swr(tcp, &ddp, swr, swr->offset))
		return failed(tcp, swr, IBV_WC_LOC_PROT_ERR);
	swr->offset += len;
	tcp->tx_mid = !ddp.last;
	if (!ddp.last)
		return true;
	tcp->tx_send_msn++;
	return wr_sent(tcp, swr);
}

static bool imm_one(struct sv_tcp *tcp, struct sv_swr *swr)
{
	struct sv_ddp ddp = {
		.op = swr->flags & IBV_SEND_SOLICITED ? SV_RDMAP_IMM_SE :
							SV_RDMAP_IMM,
		.last = true,
		.payload_len = SV_IMM_LEN,
		.msn = ++tcp->tx_send_msn,
	};
	uint8_t data[SV_IMM_LEN];

	sv_imm_encode(data, SV_IMM_WRITE, be32toh(swr->imm));
	sv_tcp_put(tcp, &ddp, data);
	return wr_sent(tcp, swr);
}

static bool write_one(struct sv_tcp *tcp, struct sv_swr *swr)
{
	uint32_t len = min_size(swr->len - swr->offset, tcp->seg_max);
	struct sv_ddp ddp = {
		.op = SV_RDMAP_WRITE,
		.last = swr->offset + len == swr->len,
		.payload_len = len,
		.stag = swr->rkey,
		.to = swr->raddr + swr->offset,
	};

	if (swr->mode == SV_TCP_IMM)
		return imm_one(tcp, swr);
	if (!sv_tcp_put_swr(tcp, &ddp, swr, swr->offset))
		return failed(tcp, swr, IBV_WC_LOC_PROT_ERR);
	swr->offset += len;
	tcp->tx_mid = !ddp.last;
	if (!ddp.last)
		return true;
	if (swr->opcode == IBV_WR_RDMA_WRITE)
		return wr_sent(tcp, swr);
	tcp->tx_msgs++;
	swr->mode = SV_TCP_IMM;
	tcp->tx_mid = true;
	return true;
}

/* A read, or an atomic with its operands. The answer names the WR's place in
 * the queue, and the offset in what it asks for. */
static bool ask_one(struct sv_tcp *tcp, struct sv_swr *swr)
{
	struct sv_qp *qp = tcp->link.qp;
	struct sv_ddp ddp = {
		.op = SV_RDMAP_READ_REQ,
		.last = true,
		.payload_len = SV_READ_REQ_LEN,
		.msn = ++tcp->tx_req_msn,
	};
	uint8_t data[SV_ATOMIC_REQ_LEN];

	if (swr->opcode == IBV_WR_RDMA_READ) {
		sv_read_req_encode(data, &(struct sv_read_req){
						 .sink_stag = sv_tcp_sink(qp->sq.sent),
						 .len = swr->len,
						 .src_stag = swr->rkey,
						 .src_to = swr->raddr,
					 });
	} else {
		const struct sv_operands *arg = sv_sq_operands(qp, swr);
		bool add = swr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
		const uint64_t mask = add ? 0 : UINT64_MAX;

		ddp.op = SV_RDMAP_ATOMIC_REQ;
		ddp.payload_len = SV_ATOMIC_REQ_LEN;
		sv_atomic_req_encode(
			data, &(struct sv_atomic_req){
				      .op = add ? SV_ATOMIC_FETCH_ADD :
						  SV_ATOMIC_CMP_SWAP,
				      .id = sv_tcp_sink(qp->sq.sent),
				      .stag = swr->rkey,
				      .to = swr->raddr,
				      .swap_add = add ? arg->compare_add :
							arg->swap,
				      .swap_add_mask = mask,
				      .compare = add ? 0 : arg->compare_add,
				      .compare_mask = mask,
			      });
	}
	sv_tcp_put(tcp, &ddp, data);
	if (tcp->rd_cnt++ == 0)
		tcp->rd_wr = qp->sq.sent;
	return wr_sent(tcp, swr);
}

/* Of windows the peer is not told. */
static __cold bool local_one(struct sv_tcp *tcp, struct sv_swr *swr)
{
	enum ibv_wc_status status = sv_sq_local(tcp->link.qp, swr);

	if (status != IBV_WC_SUCCESS)
		return failed(tcp, swr, status);
	swr->state = SV_WR_DONE;
	tcp->link.qp->sq.sent++;
	sv_tcp_acks(tcp);
	return true;
}

bool sv_tcp_sq_one(struct sv_tcp *tcp)
{
	struct sv_qp *qp = tcp->link.qp;
	struct sv_swr *swr;

	if (unlikely(!sv_tcp_attached(tcp)) || tcp->tx_stop ||
	    qp->sq.sent == sv_wq_posted(&qp->sq))
		return false;
	if (unlikely(!sv_sq_runs(qp)))
		return false;
	swr = sv_sq_slot(qp, qp->sq.sent);
	if (swr->mode == SV_TCP_UNSET && !begin(tcp, swr))
		return false;
	if (unlikely(sv_swr_is_local(swr)))
		return local_one(tcp, swr);
	if (unlikely(swr->mode == SV_TCP_ASK))
		return ask_one(tcp, swr);
	if (swr->opcode == IBV_WR_RDMA_WRITE ||
	    swr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return write_one(tcp, swr);
	return send_one(tcp, swr);
}
