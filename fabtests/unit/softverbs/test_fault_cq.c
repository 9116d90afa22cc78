/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults of completion queues: completions that lie, are held or never come.
 */
#include "fault.h"

TestSuite(fault_cq, .timeout = 60);

Test(fault_cq, completions_say_what_they_are_told)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	enum ibv_wc_opcode opcode;

	pair();
	set("wc,status=REM_OP_ERR,qp_error,nth=2");
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	cr_assert_eq(peer_complete(&passive), IBV_WC_SUCCESS);
	cr_assert_eq(passive.qp->state, IBV_QPS_RTS);
	cr_assert_eq(peer_complete(&active), IBV_WC_REM_OP_ERR);
	cr_assert_eq(active.qp->state, IBV_QPS_ERR);
	cr_assert_eq(fired(SV_FAULT_wc), 1);
	unpair();

	/* What is garbage is not the same twice. */
	pair();
	set("wc,garbage");
	peer_post_recv(&passive);
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	peer_post_send(&active, 8);
	while (!ibv_poll_cq(passive.cq, 1, &wc))
		sched_yield();
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	opcode = wc.opcode;
	while (!ibv_poll_cq(passive.cq, 1, &wc))
		sched_yield();
	cr_assert(wc.opcode != opcode || wc.byte_len != 8);
	unpair();
}

Test(fault_cq, completions_are_held)
{
	struct ibv_wc wc;
	long start;

	pair();
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	cr_assert_eq(peer_complete(&passive), IBV_WC_SUCCESS);
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	set("poll_cq,hold=50ms,count=1");
	start = peer_now_ms();
	cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
	cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
	cr_assert_geq(peer_now_ms() - start, 49);
	set("poll_cq,err=EIO");
	cr_assert_eq(ibv_poll_cq(active.cq, 1, &wc), -EIO);
	set("req_notify_cq,err=EINVAL");
	cr_assert_eq(ibv_req_notify_cq(active.cq, 0), EINVAL);
	unpair();
}

/* Told of a completion, it sees none, and sleeps: it is told anew. */
Test(fault_cq, who_sleeps_is_woken_when_the_hold_ends)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_context *ctx = open_dev();
	struct ibv_comp_channel *chan = sv_create_comp_channel(ctx);
	struct ibv_cq *cq = sv_create_cq(ctx, 8, NULL, chan, 0), *got;
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	struct pollfd sleep = { .fd = chan->fd, .events = POLLIN };
	struct ibv_recv_wr wr = { .wr_id = 7 }, *bad;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	void *arg;

	init.send_cq = init.recv_cq = cq;
	qp = sv_create_qp(pd, &init);
	set("poll_cq,hold=50ms,count=1");
	cr_assert_eq(sv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	cr_assert_eq(ibv_post_recv(qp, &wr, &bad), 0);
	cr_assert_eq(ibv_req_notify_cq(cq, 0), 0);
	cr_assert_eq(ibv_poll_cq(cq, 1, &wc), 0);
	cr_assert_eq(poll(&sleep, 1, 0), 0);
	cr_assert_eq(poll(&sleep, 1, 5000), 1);
	cr_assert_eq(sv_get_cq_event(chan, &got, &arg), 0);
	cr_assert_eq(ibv_poll_cq(cq, 1, &wc), 1);
	cr_assert_eq(wc.wr_id, 7);
	sv_ack_cq_events(cq, 1);
	/* Who has it already, or is not armed, hears nothing; nor does who goes. */
	set("poll_cq,hold=20ms,count=1");
	cr_assert_eq(ibv_post_recv(qp, &wr, &bad), 0);
	cr_assert_eq(ibv_poll_cq(cq, 1, &wc), 0);
	cr_assert_eq(poll(&sleep, 1, 60), 0);
	cr_assert_eq(ibv_poll_cq(cq, 1, &wc), 1);
	set("poll_cq,hold=10ms,count=1");
	cr_assert_eq(ibv_poll_cq(cq, 1, &wc), 0);
	cr_assert_eq(sv_destroy_qp(qp), 0);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	usleep(30000);
	set(NULL);
	cr_assert_eq(sv_destroy_comp_channel(chan), 0);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(fault_cq, nothing_is_flushed)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;

	pair();
	peer_post_recv(&active);
	set("flush");
	cr_assert_eq(sv_modify_qp(active.qp, &attr, IBV_QP_STATE), 0);
	cr_assert_eq(ibv_poll_cq(active.cq, 1, &wc), 0);
	cr_assert_gt(fired(SV_FAULT_flush), 0);
	unpair();
}
