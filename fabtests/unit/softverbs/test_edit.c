/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A device that changes while it is in use, and the events that tell of it. */
#include "sv_edit.h"
#include "sv_int.h"

#include <criterion/criterion.h>

#include "cm_peer.h"

TestSuite(edit, .timeout = 60);

#define DEV "softverbs0"

static struct ibv_context *open_dev(void)
{
	struct ibv_device **list = sv_get_device_list(NULL);
	struct ibv_context *ctx = sv_open_device(list[0]);

	cr_assert_not_null(ctx);
	cr_assert_eq(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	sv_free_device_list(list);
	return ctx;
}

static void expect_event(struct ibv_context *ctx, enum ibv_event_type type)
{
	struct ibv_async_event event;

	cr_assert_eq(sv_get_async_event(ctx, &event), 0);
	cr_assert_eq(event.event_type, type);
	cr_assert_eq(event.element.port_num, 1);
	sv_ack_async_event(&event);
}

static void expect_none(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	cr_assert_eq(sv_get_async_event(ctx, &event), -1);
	cr_assert_eq(errno, EAGAIN);
}

Test(edit, gids_come_and_go)
{
	struct ibv_context *ctx = open_dev(), *other = open_dev();
	union ibv_gid gid = { .raw = { 0xfe, 0x80, [15] = 9 } };
	struct ibv_gid_entry entry;
	uint32_t last = SV_MAX_GID - 1;

	cr_assert_eq(sv_edit_gid_set(DEV, last, &gid, IBV_GID_TYPE_ROCE_V2), 0);
	expect_event(ctx, IBV_EVENT_GID_CHANGE);
	expect_event(other, IBV_EVENT_GID_CHANGE);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, last, &entry, 0), 0);
	cr_assert_eq(memcmp(&entry.gid, &gid, sizeof(gid)), 0);
	cr_assert_eq(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	/* Nothing changes, and nobody is told. */
	cr_assert_eq(sv_edit_gid_set(DEV, last, &gid, IBV_GID_TYPE_ROCE_V2), 0);
	expect_none(ctx);
	cr_assert_eq(sv_edit_gid_error(DEV, last, EIO), 0);
	expect_event(ctx, IBV_EVENT_GID_CHANGE);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, last, &entry, 0), EIO);
	cr_assert_eq(sv_edit_gid_set(DEV, last, NULL, 0), 0);
	expect_event(ctx, IBV_EVENT_GID_CHANGE);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, last, &entry, 0), ENODATA);

	cr_assert_eq(sv_edit_gid_set(DEV, SV_MAX_GID, &gid, 0), EINVAL);
	cr_assert_eq(sv_edit_gid_set("mlx5_0", 0, &gid, 0), ENODEV);
	cr_assert_eq(sv_edit_gid_set(NULL, 0, &gid, 0), ENODEV);
	cr_assert_eq(sv_edit_gid_error(DEV, 0, 0), EINVAL);
	expect_none(ctx);
	cr_assert_eq(sv_close_device(ctx), 0);
	cr_assert_eq(sv_close_device(other), 0);
}

/* The address of an id finds its GID wherever it has moved; without one it is
 * an address that the device does not serve. */
Test(edit, rdma_cm_follows_the_gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct peer listener, active, passive;
	struct sockaddr_storage addr;
	uint16_t port;
	int index, mask;

	port = peer_listen(&listener, "127.0.0.1", 0, 0);
	peer_addr(&addr, "127.0.0.1", 0);
	index = sv_dev_gid_index((struct sockaddr *)&addr);
	cr_assert_geq(index, 0);
	cr_assert_eq(sv_edit_gid_move(DEV, (uint32_t)index, 77), 0);
	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	cr_assert_eq(sv_cm_init_qp_attr(active.id, &attr, &mask), 0);
	cr_assert_eq(attr.ah_attr.grh.sgid_index, 77);
	peer_transfer(&active, &passive);
	peer_end_pair(&active, &passive);

	cr_assert_eq(sv_edit_gid_set(DEV, 77, NULL, 0), 0);
	peer_open(&active);
	peer_create_id(&active);
	cr_assert_eq(sv_cm_bind_addr(active.id, (struct sockaddr *)&addr), -1);
	cr_assert_eq(errno, ENODEV);
	peer_close(&active);
	peer_close(&listener);
}

Test(edit, keys_and_port)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_port_attr port;
	__be16 pkey;

	cr_assert_eq(sv_edit_pkey(DEV, 0, 0x8123), 0);
	expect_event(ctx, IBV_EVENT_PKEY_CHANGE);
	cr_assert_eq(sv_query_pkey(ctx, 1, 0, &pkey), 0);
	cr_assert_eq(pkey, htobe16(0x8123));
	cr_assert_eq(sv_edit_pkey(DEV, 1, 1), EINVAL);

	cr_assert_eq(sv_edit_port(DEV, IBV_PORT_DOWN), 0);
	expect_event(ctx, IBV_EVENT_PORT_ERR);
	cr_assert_eq(sv_query_port(ctx, 1, &port), 0);
	cr_assert_eq(port.state, IBV_PORT_DOWN);
	cr_assert_eq(sv_edit_port(DEV, IBV_PORT_INIT), 0);
	expect_none(ctx);
	cr_assert_eq(sv_edit_port(DEV, IBV_PORT_ACTIVE), 0);
	expect_event(ctx, IBV_EVENT_PORT_ACTIVE);
	cr_assert_eq(sv_edit_port(DEV, IBV_PORT_ACTIVE + 1), EINVAL);

	cr_assert_eq(sv_edit_lid(DEV, 5), EINVAL); /* Ethernet */
	cr_assert_eq(sv_edit_raise(DEV, IBV_EVENT_SM_CHANGE), 0);
	expect_event(ctx, IBV_EVENT_SM_CHANGE);
	cr_assert_eq(sv_edit_raise(DEV, IBV_EVENT_QP_FATAL), EINVAL);
	expect_none(ctx);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(edit, lid_of_infiniband)
{
	struct ibv_context *ctx;
	struct ibv_port_attr port;

	setenv("SOFTVERBS_PERSONA", "ib", 1);
	ctx = open_dev();
	cr_assert_eq(sv_edit_lid(DEV, 500), 0);
	expect_event(ctx, IBV_EVENT_LID_CHANGE);
	cr_assert_eq(sv_query_port(ctx, 1, &port), 0);
	cr_assert_eq(port.lid, 500);
	cr_assert_eq(sv_edit_lid(DEV, 0), EINVAL);
	cr_assert_eq(sv_edit_lid(DEV, 0xc000), EINVAL);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(edit, fatal_takes_the_queue_pairs)
{
	struct ibv_context *ctx = open_dev();
	struct peer listener, active, passive;
	uint16_t port;

	port = peer_listen(&listener, "127.0.0.1", 0, 0);
	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	peer_post_recv(&active);
	cr_assert_eq(sv_edit_fatal(DEV), 0);
	expect_event(ctx, IBV_EVENT_DEVICE_FATAL);
	expect_none(ctx);
	cr_assert_eq(peer_complete(&active), IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(active.qp->state, IBV_QPS_ERR);
	cr_assert_eq(passive.qp->state, IBV_QPS_ERR);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
	cr_assert_eq(sv_close_device(ctx), 0);
}
