/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs' connection manager: how connections end, and how they do not come
 * about because either side changes its mind on the way.
 */
#include <criterion/criterion.h>

#include "cm_peer.h"

TestSuite(sv_cm_end, .timeout = 120);

Test(sv_cm_end, disconnect_from_either_side_or_both)
{
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int i;

	for (i = 0; i < 60; i++) {
		peer_pair(&listener, &active, &passive, "127.0.0.1", port);
		if (i % 3 != 0)
			cr_assert_eq(sv_cm_disconnect(active.id), 0);
		if (i % 3 != 1)
			cr_assert_eq(sv_cm_disconnect(passive.id), 0);
		cr_assert_eq(peer_take(active.channel,
				       RDMA_CM_EVENT_DISCONNECTED), 0);
		cr_assert_eq(peer_take(passive.channel,
				       RDMA_CM_EVENT_DISCONNECTED), 0);
		/* Answering what has happened is no error and no news. */
		cr_assert_eq(sv_cm_disconnect(active.id), 0);
		cr_assert_eq(sv_cm_disconnect(passive.id), 0);
		cr_assert_null(peer_event(active.channel, 1));
		cr_assert_null(peer_event(passive.channel, 1));
		peer_close(&active);
		peer_close(&passive);
	}
	peer_close(&listener);
}

Test(sv_cm_end, timewait_exit_comes_last)
{
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	cr_assert_eq(sv_cm_disconnect(active.id), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED),
		     0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT),
		     0);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* The peer's QP works on until it is told otherwise by its owner. */
Test(sv_cm_end, disconnect_leaves_the_qps_alone)
{
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	cr_assert_eq(sv_cm_disconnect(active.id), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED),
		     0);
	peer_transfer(&passive, &active);
	peer_destroy_id(&active);
	peer_sleep_ms(20);
	peer_transfer(&active, &passive);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

Test(sv_cm_end, destroy_disconnects)
{
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	peer_destroy_id(&active);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED),
		     0);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* Every step at which the connecting side may think better of it. */
Test(sv_cm_end, active_gives_up)
{
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	struct rdma_cm_id *id;

	/* Before anybody has seen the request: as if it had not been. */
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	peer_sleep_ms(100);
	peer_close(&active);
	peer_sleep_ms(100);
	cr_assert_null(peer_event(listener.channel, 0));

	/* While the other side is making up its mind. */
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	peer_close(&active);
	cr_assert_eq(peer_take(listener.channel, RDMA_CM_EVENT_REJECTED), 4);
	cr_assert_eq(sv_cm_destroy_id(id), 0);

	/* Instead of establish: by destroying, and by disconnecting. */
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	peer_accept(&listener, &passive);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_CONNECT_RESPONSE),
		     0);
	peer_close(&active);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_REJECTED), 28);
	peer_close(&passive);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	peer_accept(&listener, &passive);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_CONNECT_RESPONSE),
		     0);
	cr_assert_eq(sv_cm_disconnect(active.id), 0);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_REJECTED), 28);
	cr_assert_null(peer_event(active.channel, 20));
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* And the accepting side. */
Test(sv_cm_end, passive_gives_up)
{
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	cr_assert_eq(sv_cm_destroy_id(event->id), 0);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 28);
	peer_close(&active);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	peer_accept(&listener, &passive);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_CONNECT_RESPONSE),
		     0);
	peer_destroy_id(&passive);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 4);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* The QP whose number was given is not there when it is needed. */
Test(sv_cm_end, qp_gone_before_the_link)
{
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	peer_destroy_qp(&active);
	peer_accept(&listener, &passive);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_CONNECT_ERROR),
		     -EINVAL);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_REJECTED), 28);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}
