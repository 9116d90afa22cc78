/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults of data on its way: posts that fail, a wire that is slow or silent, receives
 * that come too late.
 */
#include "fault.h"

#include "sv_edit.h"
#include "sv_int.h"
#include "sv_link.h"

TestSuite(fault_data, .timeout = 60);

/* ---- posts ---- */

Test(fault_data, posts_fail_and_take_nothing)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr rwr = { .wr_id = 1 };
	struct ibv_send_wr *bad = NULL;
	struct ibv_recv_wr *bad_recv = NULL;

	pair();
	set("post_send,err=ENOMEM,nth=1;post_send,err=-1,nth=1;"
	    "post_recv,err=ENOMEM,count=1");
	cr_assert_eq(ibv_post_send(active.qp, &wr, &bad), ENOMEM);
	cr_assert_eq(bad, &wr);
	cr_assert_eq(ibv_post_send(active.qp, &wr, &bad), -1);
	cr_assert_eq(ibv_post_recv(passive.qp, &rwr, &bad_recv), ENOMEM);
	cr_assert_eq(bad_recv, &rwr);
	/* From here on all is well. */
	peer_transfer(&active, &passive);
	cr_assert_eq(fired(SV_FAULT_post_send), 2);
	unpair();
}

Test(fault_data, a_slow_wire)
{
	long start;

	pair();
	set("post_send,delay=5ms,per_page=20ms");
	start = peer_now_ms();
	peer_post_send(&active, 0);
	cr_assert_geq(peer_now_ms() - start, 5);
	start = peer_now_ms();
	peer_post_send(&active, PEER_BUF_SIZE);
	cr_assert_geq(peer_now_ms() - start, 25);
	unpair();
}

Test(fault_data, one_queue_pair_of_two)
{
	char spec[64];

	pair();
	snprintf(spec, sizeof(spec), "post_send,err=EIO,qpn=0x%x",
		 active.qp->qp_num);
	set(spec);
	peer_transfer(&passive, &active);
	cr_assert_eq(fired(SV_FAULT_post_send), 0);
	unpair();
}

/* ---- silence ---- */

static void short_timeout(struct peer *peer)
{
	/* Not an attribute of RTS; sends wait at least this long anyway. */
	sv_qp(peer->qp)->attr.timeout = 8;
	sv_qp(peer->qp)->attr.retry_cnt = 1;
}

Test(fault_data, blackhole_by_the_clock)
{
	pair();
	short_timeout(&active);
	set("blackhole,for=20s");
	peer_sleep_ms(50); /* the clock is the engine's */
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	cr_assert_eq(peer_complete(&active), IBV_WC_RETRY_EXC_ERR);
	unpair();
}

Test(fault_data, blackhole_ends)
{
	struct ibv_wc wc;

	pair();
	set("blackhole,for=300ms");
	peer_sleep_ms(50);
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	cr_assert_eq(ibv_poll_cq(passive.cq, 1, &wc), 0);
	/* What waited goes through then. */
	cr_assert_eq(peer_complete(&passive), IBV_WC_SUCCESS);
	cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
	peer_transfer(&passive, &active);
	unpair();
}

Test(fault_data, blackhole_from_a_post_on)
{
	pair();
	short_timeout(&active);
	set("blackhole,nth=3");
	peer_transfer(&active, &passive);
	peer_transfer(&passive, &active);
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	cr_assert_eq(peer_complete(&active), IBV_WC_RETRY_EXC_ERR);
	unpair();
}

Test(fault_data, a_port_that_is_down_carries_nothing)
{
	struct ibv_wc wc;

	pair();
	cr_assert_eq(sv_edit_port(DEV, IBV_PORT_DOWN), 0);
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	peer_sleep_ms(20);
	cr_assert_eq(ibv_poll_cq(passive.cq, 1, &wc), 0);
	cr_assert_eq(sv_edit_port(DEV, IBV_PORT_ACTIVE), 0);
	cr_assert_eq(peer_complete(&passive), IBV_WC_SUCCESS);
	cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
	unpair();
}

/* As between two ends whose MTUs differ: what is short gets through. */
Test(fault_data, long_messages_are_lost)
{
	pair();
	short_timeout(&active);
	set("blackhole,over=32");
	peer_post_recv(&passive);
	peer_post_send(&active, 32);
	cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
	cr_assert_eq(peer_complete(&passive), IBV_WC_SUCCESS);
	peer_post_recv(&passive);
	peer_post_send(&active, 33);
	cr_assert_eq(peer_complete(&active), IBV_WC_RETRY_EXC_ERR);
	unpair();
}

/* ---- receivers that are not ready ---- */

static void rnr_attrs(uint8_t retry, uint8_t timer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .min_rnr_timer = timer };

	cr_assert_eq(sv_modify_qp(passive.qp, &attr,
				  IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER), 0);
	/* Told to the peer when it is set, which is at RTS. */
	sv_lock_take(&sv_qp(active.qp)->lock);
	sv_qp(active.qp)->attr.rnr_retry = retry;
	sv_qp(active.qp)->link->ops->publish(sv_qp(active.qp)->link);
	sv_lock_drop(&sv_qp(active.qp)->lock);
}

Test(fault_data, receives_are_held)
{
	long start;

	pair();
	set("post_recv,hold=300ms,nth=1");
	start = peer_now_ms();
	peer_post_recv(&passive);
	/* In their order: the second is not held itself. */
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
	cr_assert_geq(peer_now_ms() - start, 299);
	cr_assert_eq(peer_complete(&passive), IBV_WC_SUCCESS);
	peer_post_send(&active, 8);
	cr_assert_eq(peer_complete(&passive), IBV_WC_SUCCESS);
	cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
	peer_transfer(&active, &passive);
	unpair();
}

/* A time that is shorter than the receiver takes, by both attributes. */
Test(fault_data, receives_are_held_too_long)
{
	long start;

	pair();
	rnr_attrs(2, 26); /* twice 81.92 ms */
	set("post_recv,hold=5s");
	start = peer_now_ms();
	peer_post_recv(&passive);
	peer_post_send(&active, 8);
	cr_assert_eq(peer_complete(&active), IBV_WC_RNR_RETRY_EXC_ERR);
	cr_assert_geq(peer_now_ms() - start, 160);
	cr_assert_lt(peer_now_ms() - start, 4900);
	unpair();
}

/* Who is destroyed meanwhile takes what is held along. */
Test(fault_data, receives_are_held_for_nobody)
{
	pair();
	set("post_recv,hold=100ms");
	peer_post_recv(&passive);
	unpair();
	peer_sleep_ms(200);
}
