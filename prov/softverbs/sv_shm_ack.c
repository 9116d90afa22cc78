/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Acknowledgements on a shared-memory link: how far the peer has taken our
 * messages out of its ring, what it refused, and which WRs are complete by that.
 * All under qp->lock.
 */
#include "sv_shm.h"

static __cold void tx_fail(struct sv_shm *shm, enum ibv_wc_status status)
{
	struct sv_qp *qp = shm->link.qp;

	sv_log("qp %06x: send fails: %s", qp->qp.qp_num,
	       sv_wc_status_str(status));
	sv_sq_complete(qp, status);
	sv_qp_error(qp, -1);
}

/* We have refused it for the peer: its CPU took no part, so it must be told. */
static __cold void tx_fail_here(struct sv_shm *shm, enum ibv_wc_status status)
{
	if (status == IBV_WC_REM_ACCESS_ERR ||
	    status == IBV_WC_REM_INV_REQ_ERR) {
		atomic_store(&shm->peer->fault,
			     status == IBV_WC_REM_ACCESS_ERR ?
				     IBV_EVENT_QP_ACCESS_ERR :
				     IBV_EVENT_QP_REQ_ERR);
		sv_shm_ring_hard(shm);
	}
	tx_fail(shm, status);
}

/* Moves tx_acked to what the peer says; false if it talks nonsense. */
static __hot_inline bool ack_update(struct sv_shm *shm)
{
	uint32_t head = atomic_load_explicit(&shm->peer->head,
					     memory_order_acquire);
	uint32_t acked = atomic_load_explicit(&shm->tx_acked,
					      memory_order_relaxed);

	if (head == acked)
		return true;
	if (unlikely(head - acked > shm->tx_next - acked))
		return false;
	shm->data_acked = shm->data_end[(head - 1) % SV_SLOT_CNT];
	atomic_store_explicit(&shm->tx_acked, head, memory_order_relaxed);
	return true;
}

static bool nak_known(uint32_t status)
{
	return status == IBV_WC_LOC_PROT_ERR ||
	       status == IBV_WC_REM_INV_REQ_ERR ||
	       status == IBV_WC_REM_ACCESS_ERR ||
	       status == IBV_WC_REM_OP_ERR ||
	       status == IBV_WC_RNR_RETRY_EXC_ERR;
}

/* Whether the peer has taken all of the oldest WR, and answered it. */
static inline bool tx_finished(struct sv_shm *shm, const struct sv_swr *swr)
{
	if (unlikely(shm->rd_cnt) && shm->rd_wr == shm->link.qp->sq.done)
		return false;
	return (int32_t)(atomic_load_explicit(&shm->tx_acked,
					      memory_order_relaxed) -
			 swr->ring_end) >= 0;
}

static __hot_inline void acks(struct sv_shm *shm)
{
	struct sv_qp *qp = shm->link.qp;
	struct sv_swr *swr;
	uint32_t nak;

	/* Before head: whatever precedes the refused slot is in head then. */
	nak = atomic_load_explicit(&shm->own->nak, memory_order_acquire);
	/* And so are the answers to what was asked before it. */
	if (unlikely(nak) && shm->rd_cnt)
		sv_shm_resp_take(shm);
	if (unlikely(!ack_update(shm))) {
		sv_shm_protocol_error(shm);
		return;
	}
	while (qp->sq.done != qp->sq.sent) {
		swr = sv_sq_slot(qp, qp->sq.done);
		if (unlikely(swr->state == SV_WR_DONE)) {
			if (swr->status != IBV_WC_SUCCESS) {
				tx_fail_here(shm, swr->status);
				return;
			}
		} else if (!tx_finished(shm, swr)) {
			break;
		}
		sv_sq_complete_ok(qp, swr);
	}
	if (unlikely(qp->attr.qp_state == IBV_QPS_SQD) && sv_sq_drained(qp))
		sv_qp_drained(qp);
	if (unlikely(nak) && qp->sq.done != sv_wq_posted(&qp->sq))
		tx_fail(shm, nak_known(nak) ? nak : IBV_WC_REM_OP_ERR);
}

void sv_shm_acks(struct sv_shm *shm)
{
	acks(shm);
	sv_shm_watch(shm);
}
