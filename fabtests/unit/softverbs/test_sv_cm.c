/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs' connection manager: making connections. Parameters and private
 * data, rejections and backlog, the order of calls, QP attributes. How they end
 * is in test_sv_cm_end.c, addresses are in test_sv_cm_addr.c, events in
 * test_sv_cm_event.c, peers that die in test_sv_cm_kill.c and those that lie in
 * test_sv_cm_wire.c.
 */
#include <criterion/criterion.h>
#include <sys/resource.h>

#include "cm_peer.h"

TestSuite(sv_cm, .timeout = 120);

Test(sv_cm, create)
{
	struct rdma_cm_id *id;
	struct peer peer;

	peer_open(&peer);
	cr_assert_eq(sv_cm_create_id(peer.channel, &id, NULL, RDMA_PS_UDP), -1);
	cr_assert_eq(errno, ENOSYS);
	cr_assert_eq(sv_cm_create_id(peer.channel, &id, &peer, RDMA_PS_TCP), 0);
	cr_assert_eq(id->context, &peer);
	cr_assert_eq(id->channel, peer.channel);
	cr_assert_eq(id->ps, RDMA_PS_TCP);
	cr_assert_eq(id->qp_type, IBV_QPT_RC);
	cr_assert_null(id->verbs);
	cr_assert_null(id->qp);
	cr_assert_eq(sv_cm_destroy_id(id), 0);
	peer_close(&peer);
}

static bool is_padded(const void *pd, const char *text, size_t len)
{
	static const char zeros[256];
	size_t text_len = strlen(text);

	return !memcmp(pd, text, text_len) &&
		!memcmp((const char *)pd + text_len, zeros, len - text_len);
}

static void check_request(const struct rdma_conn_param *conn,
			  const struct rdma_conn_param *sent)
{
	cr_assert_eq(conn->private_data_len, 56);
	cr_assert(is_padded(conn->private_data, "question", 56));
	cr_assert_eq(conn->qp_num, sent->qp_num);
	/* What one side starts the other one answers. */
	cr_assert_eq(conn->responder_resources, 5);
	cr_assert_eq(conn->initiator_depth, 3);
	cr_assert_eq(conn->retry_count, 6);
	cr_assert_eq(conn->rnr_retry_count, 5);
	cr_assert_eq(conn->flow_control, 1);
	cr_assert_eq(conn->srq, 1);
}

static void check_response(const struct rdma_conn_param *conn, uint32_t qp_num)
{
	cr_assert_eq(conn->private_data_len, 196);
	cr_assert(is_padded(conn->private_data, "answer", 196));
	cr_assert_eq(conn->qp_num, qp_num);
	cr_assert_eq(conn->responder_resources, 2);
	cr_assert_eq(conn->initiator_depth, 5);
	cr_assert_eq(conn->rnr_retry_count, 4);
}

Test(sv_cm, parameters_and_private_data)
{
	struct rdma_conn_param accept = {
		.private_data = "answer",
		.private_data_len = 6,
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = 2,
		.rnr_retry_count = 4,
	};
	struct rdma_conn_param connect = {
		.private_data = "question",
		.private_data_len = 8,
		.responder_resources = 3,
		.initiator_depth = 5,
		.flow_control = 1,
		.retry_count = 6,
		.rnr_retry_count = 5,
		.srq = 1,
	};
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_open(&active);
	peer_open(&passive);
	peer_resolve(&active, "127.0.0.1", port);
	peer_create_qp(&active);
	connect.qp_num = active.qp->qp_num;
	cr_assert_eq(sv_cm_connect(active.id, &connect), 0);

	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	check_request(&event->param.conn, &connect);
	cr_assert_eq(event->id->context, listener.id->context);
	passive.id = event->id;
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	peer_create_qp(&passive);
	accept.qp_num = passive.qp->qp_num;
	peer_move_qp(&passive);
	cr_assert_eq(sv_cm_accept(passive.id, &accept), 0);

	event = peer_expect(active.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	check_response(&event->param.conn, accept.qp_num);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	peer_move_qp(&active);
	cr_assert_eq(sv_cm_establish(active.id), 0);
	event = peer_expect(listener.channel, RDMA_CM_EVENT_ESTABLISHED);
	cr_assert_eq(event->id, passive.id);
	cr_assert_eq(event->param.conn.private_data_len, 0);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	peer_close(&active);
	cr_assert_eq(peer_take(listener.channel, RDMA_CM_EVENT_DISCONNECTED),
		     0);
	peer_close(&passive);
	peer_close(&listener);
}

Test(sv_cm, private_data_too_long)
{
	static const char data[256];
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = 57,
	};
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_open(&active);
	peer_open(&passive);
	peer_resolve(&active, "127.0.0.1", port);
	cr_assert_eq(sv_cm_connect(active.id, &param), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_connect(active.id, NULL), -1);
	cr_assert_eq(errno, EINVAL);
	/* More reads than the device can. */
	param.private_data_len = 56;
	param.initiator_depth = 200;
	cr_assert_eq(sv_cm_connect(active.id, &param), -1);
	cr_assert_eq(errno, EINVAL);
	param.initiator_depth = 1;
	peer_create_qp(&active);
	param.qp_num = active.qp->qp_num;
	cr_assert_eq(sv_cm_connect(active.id, &param), 0);

	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	passive.id = event->id;
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	peer_create_qp(&passive);
	param.qp_num = passive.qp->qp_num;
	param.private_data_len = 197;
	cr_assert_eq(sv_cm_accept(passive.id, &param), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_reject(passive.id, data, 149), -1);
	cr_assert_eq(errno, EINVAL);
	/* No such QP. */
	param.private_data_len = 196;
	param.qp_num ^= 0x40;
	cr_assert_eq(sv_cm_accept(passive.id, &param), -1);
	cr_assert_eq(errno, EINVAL);
	param.qp_num ^= 0x40;
	cr_assert_eq(sv_cm_accept(passive.id, &param), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_CONNECT_RESPONSE),
		     0);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

Test(sv_cm, reject_with_data)
{
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	struct rdma_cm_id *id;

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(sv_cm_reject(id, "busy", 4), 0);
	cr_assert_eq(sv_cm_reject(id, "busy", 4), -1);
	cr_assert_eq(errno, EINVAL);
	event = peer_expect(active.channel, RDMA_CM_EVENT_REJECTED);
	cr_assert_eq(event->status, 28);
	cr_assert_eq(event->param.conn.private_data_len, 148);
	cr_assert(is_padded(event->param.conn.private_data, "busy", 148));
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(sv_cm_destroy_id(id), 0);
	/* The id has had its chance. */
	cr_assert_eq(sv_cm_establish(active.id), -1);
	cr_assert_eq(errno, EINVAL);
	peer_close(&active);
	peer_close(&listener);
}

Test(sv_cm, nobody_listens)
{
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int i;

	peer_close(&listener);
	for (i = 0; i < 20; i++) {
		peer_open(&active);
		peer_connect(&active, "127.0.0.1", port, NULL, 0);
		event = peer_expect(active.channel, RDMA_CM_EVENT_REJECTED);
		cr_assert_eq(event->status, 8);
		cr_assert_eq(event->param.conn.private_data_len, 148);
		cr_assert_eq(sv_cm_ack_cm_event(event), 0);
		peer_close(&active);
	}
}

static void close_keeping_port(struct peer *peer)
{
	sv_cm_keep_port(peer->id);
	peer_close(peer);
}

/* A listener that is closed and opened again is gone for a moment only. */
static void comes_back(const char *where)
{
	const struct timespec moment = { .tv_nsec = 20000000 };
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer active;
	struct peer closed;
	uint16_t port = peer_listen(&closed, where, 0, 0);

	close_keeping_port(&closed);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	nanosleep(&moment, NULL);
	cr_assert_eq(peer_listen(&listener, where, port, 0), port);
	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	cr_assert_eq(sv_cm_reject(event->id, NULL, 0), 0);
	cr_assert_eq(sv_cm_destroy_id(event->id), 0);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 28);
	peer_close(&active);
	peer_close(&listener);
}

Test(sv_cm, listener_comes_back)
{
	comes_back("127.0.0.1");
	comes_back("0.0.0.0");
}

/* Who was not there in time is not waited for. */
Test(sv_cm, listener_stays_away)
{
	struct peer active, late, closed;
	uint16_t port = peer_listen(&closed, "127.0.0.1", 0, 0);

	close_keeping_port(&closed);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 8);
	/* And the port is free. */
	cr_assert_eq(peer_listen(&late, "0.0.0.0", port, 0), port);
	close_keeping_port(&late);
	/* An address that is another one, of the same port. */
	cr_assert_eq(peer_listen(&late, "127.0.0.1", port, 0), port);
	peer_close(&late);
	peer_close(&active);
}

/* It is bound again, and does not listen: that is refused, and may be changed. */
Test(sv_cm, listener_is_only_bound_again)
{
	struct sockaddr_storage addr;
	struct peer active, bound, closed;
	uint16_t port = peer_listen(&closed, "127.0.0.1", 0, 0);
	struct rdma_cm_event *event;

	close_keeping_port(&closed);
	peer_open(&bound);
	peer_create_id(&bound);
	peer_addr(&addr, "127.0.0.1", port);
	cr_assert_eq(sv_cm_bind_addr(bound.id, (struct sockaddr *)&addr), 0);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 8);
	peer_close(&active);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 8);
	peer_close(&active);
	cr_assert_eq(sv_cm_listen(bound.id, 0), 0);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	event = peer_expect(bound.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	cr_assert_eq(peer_port(&event->listen_id->route.addr.src_addr), port);
	cr_assert_eq(sv_cm_reject(event->id, NULL, 0), 0);
	cr_assert_eq(sv_cm_destroy_id(event->id), 0);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 28);
	peer_close(&active);
	peer_close(&bound);
}

/* Who has listened, and binds again to connect from there, may. */
Test(sv_cm, listener_connects)
{
	struct sockaddr_storage addr;
	struct rdma_cm_event *event;
	struct peer active, closed, listener;
	uint16_t port = peer_listen(&closed, "127.0.0.1", 0, 0);
	uint16_t to = peer_listen(&listener, "127.0.0.1", 0, 0);

	close_keeping_port(&closed);
	peer_open(&active);
	peer_create_id(&active);
	peer_addr(&addr, "127.0.0.1", port);
	cr_assert_eq(sv_cm_bind_addr(active.id, (struct sockaddr *)&addr), 0);
	peer_connect(&active, "127.0.0.1", to, NULL, 0);
	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	cr_assert_eq(peer_port(&event->id->route.addr.dst_addr), port);
	cr_assert_eq(sv_cm_reject(event->id, NULL, 0), 0);
	cr_assert_eq(sv_cm_destroy_id(event->id), 0);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 28);
	peer_close(&active);
	peer_close(&listener);
}

/* Descriptors run out: that is said, once, and what waited goes on later. */
Test(sv_cm, descriptors_run_out)
{
	struct rdma_conn_param param = { .responder_resources = 1,
					 .initiator_depth = 1,
					 .rnr_retry_count = 7 };
	struct rlimit limit, few;
	struct peer listener, active, passive;
	char text[4096] = "";
	int said[2], own;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	cr_assert_eq(pipe(said), 0);
	peer_open(&active);
	peer_resolve(&active, "127.0.0.1", port);
	peer_create_qp(&active);
	param.qp_num = active.qp->qp_num;
	own = dup(STDERR_FILENO);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = (rlim_t)own + 2; /* for the one that connects */
	dup2(said[1], STDERR_FILENO);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	cr_assert_eq(sv_cm_connect(active.id, &param), 0);
	peer_sleep_ms(300);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	dup2(own, STDERR_FILENO);
	cr_assert_gt(read(said[0], text, sizeof(text) - 1), 0);
	cr_assert_not_null(strstr(text, "RLIMIT_NOFILE"), "%s", text);
	cr_assert_null(strstr(strstr(text, "RLIMIT_NOFILE") + 1,
			      "RLIMIT_NOFILE"), "%s", text);
	peer_accept(&listener, &passive);
	peer_finish(&active);
	peer_established(&passive);
	peer_transfer(&active, &passive);
	peer_end_pair(&active, &passive);
	peer_close(&listener);
}

/* Bound is not listening. */
Test(sv_cm, bound_port_rejects)
{
	struct sockaddr_storage addr;
	struct peer active;
	struct peer bound;

	peer_open(&bound);
	peer_create_id(&bound);
	peer_addr(&addr, "127.0.0.1", 0);
	cr_assert_eq(sv_cm_bind_addr(bound.id, (struct sockaddr *)&addr), 0);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1",
		     peer_port(&bound.id->route.addr.src_addr), NULL, 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 8);
	peer_close(&active);
	peer_close(&bound);
}

/* Of those that come while nobody fetches, as many as the backlog may stay. */
Test(sv_cm, backlog)
{
	struct peer active[8];
	struct peer listener;
	struct peer passive;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 3);
	int rejected = 0;
	size_t i;

	for (i = 0; i < 8; i++) {
		peer_open(&active[i]);
		peer_connect(&active[i], "127.0.0.1", port, NULL, 0);
		/* One after the other, so that it is clear who is who. */
		peer_sleep_ms(i < 3 ? 100 : 0);
	}
	for (i = 3; i < 8; i++)
		rejected += peer_take(active[i].channel,
				      RDMA_CM_EVENT_REJECTED) == 28;
	cr_assert_eq(rejected, 5);
	for (i = 0; i < 3; i++) {
		peer_accept(&listener, &passive);
		peer_finish(&active[i]);
		peer_established(&passive);
		peer_transfer(&active[i], &passive);
		peer_end_pair(&active[i], &passive);
	}
	cr_assert_null(peer_event(listener.channel, 50));
	for (i = 3; i < 8; i++)
		peer_close(&active[i]);
	/* There is room again. */
	peer_pair(&listener, &active[0], &passive, "127.0.0.1", port);
	peer_end_pair(&active[0], &passive);
	peer_close(&listener);
}

/* What was not fetched goes with the listener. */
Test(sv_cm, listener_destroyed_with_requests_queued)
{
	struct peer active[3];
	struct peer listener;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	size_t i;

	for (i = 0; i < 3; i++) {
		peer_open(&active[i]);
		peer_connect(&active[i], "127.0.0.1", port, NULL, 0);
	}
	peer_sleep_ms(200);
	peer_close(&listener);
	for (i = 0; i < 3; i++) {
		cr_assert_eq(peer_take(active[i].channel,
				       RDMA_CM_EVENT_REJECTED), 28);
		peer_close(&active[i]);
	}
}

/* And a request that was fetched outlives its listener. */
Test(sv_cm, request_outlives_listener)
{
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	struct rdma_cm_id *id;

	peer_open(&active);
	peer_open(&passive);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(sv_cm_migrate_id(id, passive.channel), 0);
	peer_close(&listener);
	peer_accept_id(&passive, id, NULL, 0);
	peer_finish(&active);
	peer_established(&passive);
	peer_transfer(&active, &passive);
	peer_end_pair(&active, &passive);
}

Test(sv_cm, states)
{
	struct rdma_conn_param param = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct peer peer;
	int mask;

	peer_open(&peer);
	peer_create_id(&peer);
	cr_assert_eq(sv_cm_connect(peer.id, &param), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_accept(peer.id, &param), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_reject(peer.id, NULL, 0), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_establish(peer.id), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_disconnect(peer.id), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_init_qp_attr(peer.id, &attr, &mask), -1);
	cr_assert_eq(errno, EINVAL);
	peer_resolve(&peer, "127.0.0.1", 1);
	cr_assert_eq(sv_cm_init_qp_attr(peer.id, &attr, &mask), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_listen(peer.id, 1), -1);
	cr_assert_eq(errno, EINVAL);
	peer_close(&peer);
}

/* Not bound: any address, and a port of the system's choice. */
Test(sv_cm, listen_unbound)
{
	struct peer listener;
	struct peer passive;
	struct peer active;

	peer_open(&listener);
	peer_create_id(&listener);
	cr_assert_eq(sv_cm_listen(listener.id, 0), 0);
	peer_pair(&listener, &active, &passive, "127.0.0.1",
		  peer_port(&listener.id->route.addr.src_addr));
	peer_end_pair(&active, &passive);
	peer_close(&listener);
}

Test(sv_cm, qp_attributes)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_qp_attr peer_attr = { .qp_state = IBV_QPS_RTS };
	static const uint8_t timeout = 14;
	static const uint8_t tos = 0x68;
	struct ibv_gid_entry gid;
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int mask;

	peer_open(&active);
	peer_create_id(&active);
	cr_assert_eq(sv_cm_set_option(active.id, RDMA_OPTION_ID,
				      RDMA_OPTION_ID_ACK_TIMEOUT,
				      (void *)&timeout, sizeof(timeout)), 0);
	cr_assert_eq(sv_cm_set_option(active.id, RDMA_OPTION_ID,
				      RDMA_OPTION_ID_TOS, (void *)&tos,
				      sizeof(tos)), 0);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	peer_accept(&listener, &passive);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_CONNECT_RESPONSE),
		     0);

	cr_assert_eq(sv_cm_init_qp_attr(active.id, &attr, &mask), 0);
	cr_assert_eq(mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	cr_assert_eq(attr.dest_qp_num, passive.qp->qp_num);
	cr_assert_eq(attr.path_mtu, IBV_MTU_4096);
	cr_assert_eq(attr.ah_attr.is_global, 1);
	cr_assert_eq(attr.ah_attr.port_num, 1);
	cr_assert_eq(attr.ah_attr.grh.traffic_class, tos);
	cr_assert_arr_eq(attr.ah_attr.grh.dgid.raw,
			 "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
	cr_assert_eq(sv_query_gid_ex(active.id->verbs, 1,
				     attr.ah_attr.grh.sgid_index, &gid, 0), 0);
	cr_assert_eq(gid.gid_type, IBV_GID_TYPE_ROCE_V2);
	cr_assert_arr_eq(gid.gid.raw, attr.ah_attr.grh.dgid.raw, 16);
	/* One side's numbers are the other's. */
	cr_assert_eq(sv_cm_init_qp_attr(passive.id, &peer_attr, &mask), 0);
	cr_assert_eq(mask, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		     IBV_QP_MAX_QP_RD_ATOMIC);
	cr_assert_eq(peer_attr.sq_psn, attr.rq_psn);
	cr_assert_eq(peer_attr.max_rd_atomic, attr.max_dest_rd_atomic);
	cr_assert_eq(peer_attr.retry_cnt, 7);
	cr_assert_eq(peer_attr.rnr_retry, 7);
	attr.qp_state = IBV_QPS_RTS;
	cr_assert_eq(sv_cm_init_qp_attr(active.id, &attr, &mask), 0);
	cr_assert_eq(attr.timeout, timeout);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

Test(sv_cm, options)
{
	struct peer peer;
	uint8_t byte = 32;
	int on = 1;

	peer_open(&peer);
	peer_create_id(&peer);
	cr_assert_eq(sv_cm_set_option(peer.id, RDMA_OPTION_ID,
				      RDMA_OPTION_ID_REUSEADDR, &on,
				      sizeof(on)), 0);
	cr_assert_eq(sv_cm_set_option(peer.id, RDMA_OPTION_ID,
				      RDMA_OPTION_ID_AFONLY, &on, sizeof(on)),
		     0);
	cr_assert_eq(sv_cm_set_option(peer.id, RDMA_OPTION_ID,
				      RDMA_OPTION_ID_TOS, &on, sizeof(on)), -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_set_option(peer.id, RDMA_OPTION_ID,
				      RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1),
		     -1);
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_cm_set_option(peer.id, RDMA_OPTION_ID, 99, &on,
				      sizeof(on)), -1);
	cr_assert_eq(errno, ENOSYS);
	cr_assert_eq(sv_cm_set_option(peer.id, RDMA_OPTION_IB, 1, &on,
				      sizeof(on)), -1);
	cr_assert_eq(errno, ENOSYS);
	peer_close(&peer);
}
