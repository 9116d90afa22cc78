/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults of events, those of connections and those of devices: lost, late, doubled and
 * made up.
 */
#include "fault.h"

TestSuite(fault_event, .timeout = 60);

/* ---- of connections ---- */

static uint16_t start_connecting(void)
{
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	return port;
}

Test(fault_event, event_lost)
{
	start_connecting();
	set("cm_event,event=ESTABLISHED,drop");
	peer_accept(&listener, &passive);
	peer_finish(&active);
	cr_assert_null(peer_event(passive.channel, 200));
	cr_assert_eq(fired(SV_FAULT_cm_event), 1);
	unpair();
}

/* Nobody ever knows of the id that it would have brought. */
Test(fault_event, request_lost)
{
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	set("cm_event,event=CONNECT_REQUEST,drop,count=1");
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	peer_take(active.channel, RDMA_CM_EVENT_REJECTED);
	peer_close(&active);
	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	unpair();
}

/* Nobody answers: the one who asks gives up by himself. */
Test(fault_event, request_swallowed)
{
	long start = peer_now_ms();

	set("cm_request,drop,count=1");
	start_connecting();
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_UNREACHABLE),
		     -ETIMEDOUT);
	cr_assert_geq(peer_now_ms() - start, 5500); /* no rejection */
	peer_close(&active);
	/* And the next one is heard. */
	peer_pair(&listener, &active, &passive, "127.0.0.1",
		  peer_port(&listener.id->route.addr.src_addr));
	unpair();
}

Test(fault_event, request_late)
{
	long start = peer_now_ms();

	set("cm_event,event=CONNECT_REQUEST,delay=100ms");
	start_connecting();
	peer_accept(&listener, &passive);
	cr_assert_geq(peer_now_ms() - start, 100);
	peer_finish(&active);
	peer_established(&passive);
	peer_transfer(&active, &passive);
	unpair();
}

/* Its listener goes first, or its peer: it goes with either. */
Test(fault_event, request_too_late)
{
	set("cm_event,event=CONNECT_REQUEST,delay=10s");
	start_connecting();
	cr_assert_null(peer_event(listener.channel, 100));
	peer_close(&listener);
	peer_take(active.channel, RDMA_CM_EVENT_REJECTED);
	peer_close(&active);

	start_connecting();
	cr_assert_null(peer_event(listener.channel, 100));
	peer_close(&active);
	peer_close(&listener);
}

Test(fault_event, event_late_and_overtaken)
{
	pair();
	set("cm_event,event=DISCONNECTED,delay=100ms");
	cr_assert_eq(sv_cm_disconnect(active.id), 0);
	/* TIMEWAIT_EXIT comes a second later: it is what comes first here. */
	peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_take(active.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	set("cm_event,event=DISCONNECTED,delay=10s");
	peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED);
	unpair();

	pair();
	set("cm_event,event=DISCONNECTED,delay=10s");
	cr_assert_eq(sv_cm_disconnect(active.id), 0);
	peer_take(active.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	unpair(); /* with its event still on the way */
}

Test(fault_event, events_doubled_and_made_up)
{
	pair();
	set("cm_event,event=DISCONNECTED,dup;"
	    "cm_event,event=TIMEWAIT_EXIT,inject=UNREACHABLE,"
	    "inject_status=-110,count=1");
	cr_assert_eq(sv_cm_disconnect(active.id), 0);
	peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_take(active.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	peer_take(passive.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	if (!peer_event(active.channel, 0))
		cr_assert_eq(peer_take(passive.channel,
				       RDMA_CM_EVENT_UNREACHABLE), -110);
	set(NULL);
}

/* ---- of devices and what is on them ---- */

Test(fault_event, objects_fail_by_the_clock)
{
	struct ibv_async_event event;

	pair();
	cr_assert_eq(active.id->verbs, passive.id->verbs);
	peer_post_recv(&active);
	set("async,event=QP_FATAL,dev=" DEV);
	cr_assert_eq(peer_complete(&active), IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(sv_get_async_event(active.id->verbs, &event), 0);
	cr_assert_eq(event.event_type, IBV_EVENT_QP_FATAL);
	sv_ack_async_event(&event);
	unpair();

	pair();
	set("async,event=CQ_ERR");
	do {
		cr_assert_eq(sv_get_async_event(active.id->verbs, &event), 0);
		sv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_CQ_ERR);
	unpair();
}

Test(fault_event, device_events_by_the_clock)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_async_event event;
	struct ibv_port_attr port;

	set("async,event=GID_CHANGE,start=20ms;async,event=PORT_ERR,start=60ms");
	cr_assert_eq(sv_get_async_event(ctx, &event), 0);
	cr_assert_eq(event.event_type, IBV_EVENT_GID_CHANGE);
	cr_assert_eq(sv_get_async_event(ctx, &event), 0);
	cr_assert_eq(event.event_type, IBV_EVENT_PORT_ERR);
	cr_assert_eq(sv_query_port(ctx, 1, &port), 0);
	cr_assert_eq(port.state, IBV_PORT_DOWN);
	cr_assert_eq(fired(SV_FAULT_async), 2);
	set(NULL);
	cr_assert_eq(sv_close_device(ctx), 0);
}
