/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults of the data path. These functions stand in the operations of contexts
 * only while a rule wants them there; each goes on to what would have been there
 * otherwise.
 */
#include "sv_fault.h"

#include <errno.h>

enum {
	PAGE = 4096,
};

static bool hit_msg(enum sv_fault_hook hook, const struct sv_qp *qp,
		    uint64_t bytes, struct sv_fault_rule *hit)
{
	const struct sv_fault_at at = {
		.hook = hook,
		.dev = qp->ctx->dev->device.name,
		.qpn = qp->qp.qp_num,
		.index = -1,
		.event = -1,
		.bytes = bytes,
	};

	return sv_fault_hit(&at, hit);
}

static bool hit_qp(enum sv_fault_hook hook, const struct sv_qp *qp,
		   struct sv_fault_rule *hit)
{
	return hit_msg(hook, qp, 0, hit);
}

static bool hit_ctx(enum sv_fault_hook hook, struct ibv_context *context,
		    struct sv_fault_rule *hit)
{
	const struct sv_fault_at at = {
		.hook = hook,
		.dev = sv_ctx(context)->dev->device.name,
		.index = -1,
		.event = -1,
	};

	return sv_fault_hit(&at, hit);
}

/* ---- posting ---- */

int sv_fault_send(struct sv_qp *qp, uint64_t bytes, uint64_t longest)
{
	struct sv_fault_rule hit;

	if (hit_msg(SV_FAULT_blackhole, qp, longest, &hit))
		sv_qp_stall(qp, true);
	if (!hit_qp(SV_FAULT_post_send, qp, &hit))
		return 0;
	/* The price of a slow wire. */
	sv_fault_sleep(hit.delay_ns +
		       hit.per_page_ns * ((bytes + PAGE - 1) / PAGE));
	return hit.err;
}

static uint64_t wr_bytes(const struct ibv_send_wr *wr, uint64_t *longest)
{
	uint64_t bytes = 0, len;
	int i;

	for (*longest = 0; wr; wr = wr->next) {
		for (len = 0, i = 0; i < wr->num_sge; i++)
			len += wr->sg_list[i].length;
		bytes += len;
		*longest = max_size(*longest, len);
	}
	return bytes;
}

static int fault_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
			   struct ibv_send_wr **bad_wr)
{
	struct sv_qp *qp = sv_qp(ibqp);
	uint64_t longest, bytes = wr_bytes(wr, &longest);
	int err = sv_fault_send(qp, bytes, longest);

	if (!err)
		return sv_ops_post_send(qp->ctx)(ibqp, wr, bad_wr);
	*bad_wr = wr;
	return err;
}

static int fault_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
			   struct ibv_recv_wr **bad_wr)
{
	struct sv_fault_rule hit = { .hold_ns = 0 };
	int err;

	if (hit_qp(SV_FAULT_post_recv, sv_qp(ibqp), &hit)) {
		sv_fault_sleep(hit.delay_ns);
		if (hit.err) {
			*bad_wr = wr;
			return hit.err;
		}
	}
	if (!wr || !sv_fault_hold_recv(sv_qp(ibqp), wr, hit.hold_ns, &err))
		return sv_post_recv(ibqp, wr, bad_wr);
	*bad_wr = wr;
	return err;
}

static int fault_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			       struct ibv_recv_wr **bad_wr)
{
	struct sv_fault_rule hit;

	if (hit_ctx(SV_FAULT_post_srq_recv, srq->context, &hit)) {
		sv_fault_sleep(hit.delay_ns);
		if (hit.err) {
			*bad_wr = wr;
			return hit.err;
		}
	}
	return sv_post_srq_recv(srq, wr, bad_wr);
}

/* ---- polling ---- */

/* What IBTA leaves undefined in a failed completion, made so. */
static void garble(struct ibv_wc *wc)
{
	static atomic_ullong state;
	uint64_t prng = atomic_fetch_add(&state, 1);
	uint64_t bits = sv_fault_random(&prng);

	wc->opcode = (enum ibv_wc_opcode)(bits & 0xff);
	wc->byte_len = (uint32_t)(bits >> 32);
	wc->imm_data = (__be32)(bits >> 8);
	wc->wc_flags = (unsigned int)(bits >> 16) & 0xf;
	wc->vendor_err = (uint32_t)(bits >> 24);
}

static void wc_apply(struct ibv_wc *wc, const struct sv_fault_rule *hit)
{
	struct sv_qp *qp = hit->qp_error ? sv_qp_find(wc->qp_num) : NULL;

	if (hit->status)
		wc->status = (enum ibv_wc_status)hit->status;
	if (hit->garbage)
		garble(wc);
	if (!qp)
		return;
	sv_lock_take(&qp->lock);
	if (!qp->destroyed)
		sv_qp_error(qp, -1);
	sv_lock_drop(&qp->lock);
	sv_qp_put(qp);
}

static void wc_faults(struct ibv_context *context, struct ibv_wc *wc, int cnt)
{
	struct sv_fault_at at = {
		.hook = SV_FAULT_wc,
		.dev = sv_ctx(context)->dev->device.name,
		.index = -1,
		.event = -1,
	};
	struct sv_fault_rule hit;
	int i;

	for (i = 0; i < cnt; i++) {
		at.qpn = wc[i].qp_num;
		if (sv_fault_hit(&at, &hit))
			wc_apply(&wc[i], &hit);
	}
}

/* Nobody is to see yet what is there, or comes. */
static bool is_held(struct sv_cq *cq, uint64_t hold_ns)
{
	/* Whoever is woken at the end is to find that it has come. */
	const uint64_t until_ns = sv_now_ns() + hold_ns;

	if (hold_ns && !sv_fault_wake_cq(cq, hold_ns))
		cq->fault_hold_ns = until_ns;
	if (cq->fault_hold_ns && sv_now_ns() >= cq->fault_hold_ns)
		cq->fault_hold_ns = 0;
	return cq->fault_hold_ns;
}

/* Whether nothing is to come of this poll; *ret then is what it returns. */
static bool poll_fails(struct sv_cq *cq, int *ret)
{
	struct sv_fault_rule hit = { .hold_ns = 0 };

	*ret = 0;
	if (!cq->fault_hold_ns &&
	    hit_ctx(SV_FAULT_poll_cq, cq->cq.context, &hit)) {
		sv_fault_sleep(hit.delay_ns);
		if (hit.err) {
			*ret = hit.err > 0 ? -hit.err : hit.err;
			return true;
		}
	}
	return is_held(cq, hit.hold_ns);
}

static int fault_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	int got;

	if (poll_fails(sv_cq(ibcq), &got))
		return got;
	got = sv_poll_cq(ibcq, num, wc);
	if (got > 0)
		wc_faults(ibcq->context, wc, got);
	return got;
}

int sv_fault_poll_one(struct sv_cq *cq, struct ibv_wc *wc,
		      struct sv_cq_time *time)
{
	int got;

	if (poll_fails(cq, &got))
		return got;
	got = sv_cq_poll_one(cq, wc, time);
	if (got > 0)
		wc_faults(cq->cq.context, wc, got);
	return got;
}

static int fault_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct sv_fault_rule hit;

	if (hit_ctx(SV_FAULT_req_notify_cq, cq->context, &hit)) {
		sv_fault_sleep(hit.delay_ns);
		if (hit.err)
			return hit.err;
	}
	return sv_req_notify_cq(cq, solicited_only);
}

/* ---- which of them ---- */

bool sv_fault_is_data(enum sv_fault_hook hook)
{
	return (hook >= SV_FAULT_post_send && hook <= SV_FAULT_wc) ||
	       hook == SV_FAULT_blackhole;
}

void sv_fault_ops(struct ibv_context_ops *ops)
{
	ops->post_send = fault_post_send;
	ops->post_recv = fault_post_recv;
	ops->post_srq_recv = fault_post_srq_recv;
	ops->poll_cq = fault_poll_cq;
	ops->req_notify_cq = fault_req_notify_cq;
}

bool sv_fault_keeps(const struct sv_qp *qp)
{
	struct sv_fault_rule hit;

	return sv_fault_any() && hit_qp(SV_FAULT_flush, qp, &hit);
}
