/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The looks of a device: what it says of itself, what it refuses, and what its
 * connections are like.
 */
#include "sv_int.h"

#include <criterion/criterion.h>

#include "cm_peer.h"

TestSuite(persona, .timeout = 60);

/* The first device, with this look. */
static struct ibv_context *open_as(const char *persona)
{
	struct ibv_device **list;
	struct ibv_context *ctx;

	cr_assert_eq(setenv("SOFTVERBS_PERSONA", persona, 1), 0);
	list = sv_get_device_list(NULL);
	cr_assert_not_null(list[0]);
	ctx = sv_open_device(list[0]);
	cr_assert_not_null(ctx);
	sv_free_device_list(list);
	return ctx;
}

static int loopback_gid(void)
{
	struct sockaddr_in lo = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	return sv_dev_gid_index((struct sockaddr *)&lo);
}

Test(persona, names_are_those_that_are_told)
{
	char names[128], *rest = names, *name;
	int cnt = 0;

	strcpy(names, sv_persona_names());
	while ((name = strsep(&rest, ", ")))
		if (*name) {
			cr_assert_not_null(sv_persona_find(name), "%s", name);
			cnt++;
		}
	cr_assert_eq(cnt, 4);
	cr_assert_null(sv_persona_find("rocev2"));
}

Test(persona, unknown_look_is_no_device)
{
	struct ibv_device **list;
	int cnt = -1;

	setenv("SOFTVERBS_PERSONA", "token-ring", 1);
	list = sv_get_device_list(&cnt);
	cr_assert_eq(cnt, 0);
	cr_assert_null(list[0]);
	sv_free_device_list(list);
	cr_assert_null(sv_cm_get_devices(&cnt));
	cr_assert_eq(errno, ENODEV);
}

Test(persona, roce1_has_no_v2)
{
	struct ibv_context *ctx = open_as("roce1");
	struct ibv_gid_entry gid;
	uint32_t i;

	for (i = 0; i < SV_MAX_GID; i++)
		if (!sv_query_gid_ex(ctx, 1, i, &gid, 0))
			cr_assert_eq(gid.gid_type, IBV_GID_TYPE_ROCE_V1);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, loopback_gid(), &gid, 0), 0);
	cr_assert_eq(gid.gid.raw[12], 127);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(persona, ib_has_lids_and_pkeys)
{
	struct ibv_context *ctx = open_as("ib");
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	__be16 pkey;

	cr_assert_eq(ctx->device->transport_type, IBV_TRANSPORT_IB);
	cr_assert_eq(sv_query_port(ctx, 1, &port), 0);
	cr_assert_eq(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
	cr_assert_neq(port.lid, 0);
	cr_assert_leq(port.lid, 0xbfff);
	cr_assert_neq(port.sm_lid, 0);
	cr_assert_eq(port.pkey_tbl_len, 2);
	cr_assert_eq(sv_query_pkey(ctx, 1, 1, &pkey), 0);
	cr_assert_eq(pkey, htobe16(0x7fff));
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 0, &gid, 0), 0);
	cr_assert_eq(gid.gid_type, IBV_GID_TYPE_IB);
	cr_assert_eq(gid.gid.global.subnet_prefix,
		     htobe64(0xfe80000000000000ull));
	cr_assert_eq(gid.gid.global.interface_id,
		     sv_get_device_guid(ctx->device));
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 1, &gid, 0), ENODATA);
	cr_assert_eq(loopback_gid(), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(persona, iwarp_is_an_rnic)
{
	struct ibv_context *ctx = open_as("iwarp");
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	static const uint8_t zeros[10];
	__be16 pkey;

	cr_assert_eq(ctx->device->node_type, IBV_NODE_RNIC);
	cr_assert_eq(ctx->device->transport_type, IBV_TRANSPORT_IWARP);
	cr_assert_eq(sv_query_device(ctx, &dev), 0);
	cr_assert_eq(dev.atomic_cap, IBV_ATOMIC_NONE);
	cr_assert_eq(sv_query_device_ex(ctx, NULL, &ex, sizeof(ex)), 0);
	cr_assert_eq(ex.odp_caps.per_transport_caps.rc_odp_caps &
		     IBV_ODP_SUPPORT_ATOMIC, 0);
	cr_assert_eq(dev.max_sge_rd, 1);
	cr_assert_eq(dev.device_cap_flags & IBV_DEVICE_RC_RNR_NAK_GEN, 0);
	cr_assert_eq(sv_query_port(ctx, 1, &port), 0);
	cr_assert_eq(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	cr_assert_eq(port.gid_tbl_len, 1);
	cr_assert_eq(port.pkey_tbl_len, 0);
	cr_assert_eq(sv_query_pkey(ctx, 1, 0, &pkey), -1);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 0, &gid, 0), 0);
	cr_assert_eq(memcmp(gid.gid.raw + 6, zeros, sizeof(zeros)), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

/* ---- connections ---- */

/* On a listener's channel: the request, whose id is a new peer's. */
static struct rdma_cm_event *request(struct peer *listener, struct peer *peer)
{
	struct rdma_cm_event *event;

	peer_open(peer);
	event = peer_expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	peer->id = event->id;
	return event;
}

Test(persona, ib_paths_go_by_lid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct peer listener, active, passive;
	struct ibv_sa_path_rec *path;
	struct ibv_port_attr port;
	uint16_t port_num;
	int mask;

	setenv("SOFTVERBS_PERSONA", "ib", 1);
	port_num = peer_listen(&listener, "127.0.0.1", 0, 0);
	peer_pair(&listener, &active, &passive, "127.0.0.1", port_num);
	cr_assert_eq(sv_query_port(active.id->verbs, 1, &port), 0);
	cr_assert_eq(active.id->route.num_paths, 1);
	path = active.id->route.path_rec;
	cr_assert_eq(path->slid, htobe16(port.lid));
	cr_assert_eq(path->dlid, htobe16(port.lid));
	cr_assert_eq(path->sgid.global.interface_id,
		     sv_get_device_guid(active.id->verbs->device));
	cr_assert_eq(sv_cm_init_qp_attr(active.id, &attr, &mask), 0);
	cr_assert_eq(attr.ah_attr.is_global, 0);
	cr_assert_eq(attr.ah_attr.dlid, port.lid);
	peer_transfer(&active, &passive);
	peer_end_pair(&active, &passive);
	peer_close(&listener);
}

Test(persona, iwarp_moves_the_queue_pair)
{
	struct peer listener, active, passive;
	struct rdma_conn_param param = { .private_data = "yes",
					 .private_data_len = 3 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_cm_event *event;
	uint16_t port;
	int mask;

	setenv("SOFTVERBS_PERSONA", "iwarp", 1);
	port = peer_listen(&listener, "127.0.0.1", 0, 0);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, "hello", 5);
	cr_assert_eq(active.id->route.num_paths, 0);
	event = request(&listener, &passive);
	/* As long as it was, not padded. */
	cr_assert_eq(event->param.conn.private_data_len, 5);
	cr_assert_eq(memcmp(event->param.conn.private_data, "hello", 5), 0);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(sv_cm_migrate_id(passive.id, passive.channel), 0);
	/* Nobody moves it beyond INIT but the connection manager. */
	peer_create_qp(&passive);
	param.qp_num = passive.qp->qp_num;
	cr_assert_eq(sv_cm_accept(passive.id, &param), 0);
	event = peer_expect(active.channel, RDMA_CM_EVENT_ESTABLISHED);
	cr_assert_eq(event->param.conn.private_data_len, 3);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	peer_established(&passive);
	cr_assert_eq(active.qp->state, IBV_QPS_RTS);
	cr_assert_eq(passive.qp->state, IBV_QPS_RTS);
	/* Who goes through the states nevertheless, as with RoCE, may. */
	for (attr.qp_state = IBV_QPS_INIT; attr.qp_state <= IBV_QPS_RTS;
	     attr.qp_state++) {
		cr_assert_eq(sv_cm_init_qp_attr(active.id, &attr, &mask), 0);
		cr_assert_eq(sv_modify_qp(active.qp, &attr, mask), 0);
	}
	cr_assert_eq(sv_cm_establish(active.id), 0);
	cr_assert_eq(active.qp->state, IBV_QPS_RTS);
	peer_transfer(&active, &passive);
	peer_transfer(&passive, &active);

	/* Both queue pairs end with it, and nothing follows. */
	peer_post_recv(&active);
	peer_post_recv(&passive);
	cr_assert_eq(sv_cm_disconnect(active.id), 0);
	cr_assert_eq(peer_complete(&active), IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(peer_complete(&passive), IBV_WC_WR_FLUSH_ERR);
	peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED);
	cr_assert_null(peer_event(active.channel, 1500));
	cr_assert_null(peer_event(passive.channel, 0));
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

static void iwarp_pair(struct peer *listener, struct peer *active,
		       struct peer *passive)
{
	uint16_t port;

	setenv("SOFTVERBS_PERSONA", "iwarp", 1);
	port = peer_listen(listener, "127.0.0.1", 0, 0);
	peer_open(active);
	peer_connect(active, "127.0.0.1", port, NULL, 0);
	peer_accept(listener, passive);
	peer_established(active);
	peer_established(passive);
}

/* Neither a retry nor a wait: iWARP has no way to say "not ready". */
Test(persona, iwarp_without_a_receive_ends)
{
	struct peer listener, active, passive;

	iwarp_pair(&listener, &active, &passive);
	peer_post_send(&active, 8);
	cr_assert_neq(peer_complete(&active), IBV_WC_SUCCESS);
	peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

Test(persona, iwarp_queue_pair_takes_the_connection)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct peer listener, active, passive;

	iwarp_pair(&listener, &active, &passive);
	cr_assert_eq(sv_modify_qp(passive.qp, &attr, IBV_QP_STATE), 0);
	peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED);
	cr_assert_eq(active.qp->state, IBV_QPS_ERR);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* Destroyed while the connection that owns it still stands. */
Test(persona, iwarp_queue_pair_goes_first)
{
	struct peer listener, active, passive;

	iwarp_pair(&listener, &active, &passive);
	peer_destroy_qp(&active);
	peer_close(&active);
	peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_close(&passive);
	peer_close(&listener);
}

/* By ibv_modify_qp alone, which on iWARP joins nobody: said at once. */
Test(persona, iwarp_is_connected_by_rdma_cm_only)
{
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	const int named = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int ready = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			  IBV_QP_MAX_QP_RD_ATOMIC;
	struct ibv_gid_entry gid;
	struct peer peer;
	int mask;

	setenv("SOFTVERBS_PERSONA", "iwarp", 1);
	peer_open(&peer);
	peer_bind(&peer, "127.0.0.1");
	peer_create_qp(&peer);
	cr_assert_eq(sv_query_gid_ex(peer.id->verbs, 1, 0, &gid, 0), 0);
	attr.ah_attr.grh.dgid = gid.gid;
	attr.dest_qp_num = peer.qp->qp_num;
	attr.qp_state = IBV_QPS_RTR;
	cr_assert_eq(sv_modify_qp(peer.qp, &attr, named), EINVAL);
	cr_assert_eq(peer.qp->state, IBV_QPS_INIT);
	/* What rdma_cm has to say, which names nobody, is in order. */
	cr_assert_eq(sv_cm_init_qp_attr(peer.id, &attr, &mask), 0);
	cr_assert_eq(sv_modify_qp(peer.qp, &attr, mask), 0);
	attr.qp_state = IBV_QPS_RTS;
	cr_assert_eq(sv_modify_qp(peer.qp, &attr, ready), EINVAL);
	cr_assert_eq(sv_modify_qp(peer.qp, &attr, IBV_QP_STATE), EINVAL);
	cr_assert_eq(peer.qp->state, IBV_QPS_RTR);
	peer_close(&peer);
}

Test(persona, iwarp_rejections_are_errnos)
{
	struct peer listener, active, passive;
	struct rdma_cm_event *event;
	uint16_t port;

	setenv("SOFTVERBS_PERSONA", "iwarp", 1);
	port = peer_listen(&listener, "127.0.0.1", 0, 0);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	event = request(&listener, &passive);
	cr_assert_eq(event->param.conn.private_data_len, 0);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(sv_cm_reject(passive.id, "no", 2), 0);
	event = peer_expect(active.channel, RDMA_CM_EVENT_REJECTED);
	cr_assert_eq(event->status, -ECONNRESET);
	cr_assert_eq(event->param.conn.private_data_len, 2);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED),
		     -ECONNREFUSED);
	peer_close(&active);
}

/* ---- what iWARP does not do ---- */

Test(persona, iwarp_refuses_in_its_turn)
{
	struct peer listener, active, passive;
	struct ibv_sge sge[2];
	struct ibv_send_wr wr[3] = {
		{ .wr_id = 0, .opcode = IBV_WR_SEND, .sg_list = sge,
		  .num_sge = 1, .send_flags = IBV_SEND_SIGNALED },
		{ .wr_id = 1, .sg_list = sge, .num_sge = 1 },
		{ .wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = sge,
		  .num_sge = 1, .send_flags = IBV_SEND_SIGNALED },
	};
	static const enum ibv_wr_opcode refused[] = {
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_RDMA_READ,
	};
	struct ibv_send_wr *bad;
	size_t i;

	iwarp_pair(&listener, &active, &passive);
	for (i = 0; i < 2; i++)
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)active.buf,
			.length = 8,
			.lkey = active.mr->lkey,
		};
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		wr[1].opcode = refused[i];
		wr[1].num_sge = refused[i] == IBV_WR_RDMA_READ ? 2 : 1;
		peer_post_recv(&passive);
		bad = NULL;
		cr_assert_eq(ibv_post_send(active.qp, wr, &bad), EINVAL);
		cr_assert_eq(bad, &wr[1]);
		cr_assert_eq(wr[0].next, &wr[1]);
		/* The first was posted, the third was not. */
		cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
		cr_assert_eq(peer_complete(&passive), IBV_WC_SUCCESS);
	}
	cr_assert_eq(ibv_post_send(active.qp, &wr[1], &bad), EINVAL);
	cr_assert_eq(bad, &wr[1]);
	peer_end_pair(&active, &passive);
	peer_close(&listener);
}

/* Where a read's answer goes the peer writes, by iWARP's lights. */
Test(persona, iwarp_read_needs_a_sink_that_peers_may_write)
{
	struct peer listener, active, passive;
	struct ibv_mr *local;
	struct ibv_sge sge = { .length = 8 };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_READ,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	iwarp_pair(&listener, &active, &passive);
	wr.wr.rdma.remote_addr = (uintptr_t)passive.buf;
	wr.wr.rdma.rkey = passive.mr->rkey;
	memset(passive.buf, 7, 8);
	sge.addr = (uintptr_t)active.buf;
	sge.lkey = active.mr->lkey;
	cr_assert_eq(ibv_post_send(active.qp, &wr, &bad), 0);
	cr_assert_eq(peer_complete(&active), IBV_WC_SUCCESS);
	cr_assert_eq(active.buf[7], 7);
	local = sv_reg_mr(active.pd, active.buf, 8, IBV_ACCESS_LOCAL_WRITE);
	cr_assert_not_null(local);
	sge.lkey = local->lkey;
	cr_assert_eq(ibv_post_send(active.qp, &wr, &bad), 0);
	cr_assert_eq(peer_complete(&active), IBV_WC_LOC_PROT_ERR);
	cr_assert_eq(sv_dereg_mr(local), 0);
	peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}
