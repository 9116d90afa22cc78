/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SOFTVERBS_DEVICES: what it takes, what it refuses, and several devices at
 * once, with less than usual of this or that.
 */
#include "sv_int.h"
#include "sv_spec.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>

#include "cm_peer.h"

TestSuite(devspec, .timeout = 60);

static struct ibv_context *open_spec(const char *spec)
{
	struct ibv_device **list;
	struct ibv_context *ctx;

	setenv("SOFTVERBS_DEVICES", spec, 1);
	list = sv_get_device_list(NULL);
	cr_assert_not_null(list[0]);
	ctx = sv_open_device(list[0]);
	cr_assert_not_null(ctx);
	sv_free_device_list(list);
	return ctx;
}

/* ---- values ---- */

Test(devspec, numbers)
{
	static const struct {
		const char *text;
		bool ok;
		uint64_t value;
	} cases[] = {
		{ "0", true, 0 }, { "4096", true, 4096 }, { "0x1f", true, 31 },
		{ "4k", true, 4096 }, { "2M", true, 2 << 20 },
		{ "3g", true, 3ull << 30 },
		{ "18446744073709551615", true, UINT64_MAX },
		{ "0xffffffffffffffff", true, UINT64_MAX },
		{ "18446744073709551616", false, 0 },
		{ "0x10000000000000000", false, 0 },
		{ "18446744073709551615k", false, 0 },
		{ "", false, 0 }, { "-1", false, 0 }, { " 1", false, 0 },
		{ "1x", false, 0 }, { "0x", false, 0 }, { "k", false, 0 },
		{ "1kk", false, 0 }, { NULL, false, 0 },
	};
	uint64_t value;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		value = 77;
		cr_assert_eq(sv_spec_num(cases[i].text, &value), cases[i].ok,
			     "%s", cases[i].text);
		cr_assert_eq(value, cases[i].ok ? cases[i].value : 77);
	}
}

Test(devspec, times_and_chances)
{
	uint64_t value = 77;

	cr_assert(sv_spec_time("5ms", &value));
	cr_assert_eq(value, 5000000);
	cr_assert(sv_spec_time("1.5s", &value));
	cr_assert_eq(value, 1500000000);
	cr_assert(sv_spec_time("0.25us", &value));
	cr_assert_eq(value, 250);
	cr_assert(sv_spec_time("7ns", &value));
	cr_assert_eq(value, 7);
	cr_assert_not(sv_spec_time("7", &value));
	cr_assert_not(sv_spec_time("ms", &value));
	cr_assert_not(sv_spec_time("7 ms", &value));
	cr_assert_not(sv_spec_time("99999999999999999999s", &value));
	cr_assert(sv_spec_chance("1", &value));
	cr_assert_eq(value, 1ull << 32);
	cr_assert(sv_spec_chance("50%", &value));
	cr_assert_eq(value, 1ull << 31);
	cr_assert(sv_spec_chance("0.25", &value));
	cr_assert_eq(value, 1ull << 30);
	cr_assert(sv_spec_chance("0", &value));
	cr_assert_eq(value, 0);
	cr_assert_not(sv_spec_chance("1.1", &value));
	cr_assert_not(sv_spec_chance("101%", &value));
	cr_assert_not(sv_spec_chance("x", &value));
}

Test(devspec, errnos)
{
	int err;

	cr_assert(sv_spec_errno("ENOMEM", &err));
	cr_assert_eq(err, ENOMEM);
	cr_assert(sv_spec_errno("524", &err));
	cr_assert_eq(err, 524);
	cr_assert_not(sv_spec_errno("enomem", &err));
	cr_assert_not(sv_spec_errno("0", &err));
	cr_assert_not(sv_spec_errno("4096", &err));
}

/* ---- refusals ---- */

static unsigned int parse(const char *text, struct sv_dev **devs)
{
	return sv_devspec_parse(text, NULL, devs, SV_MAX_DEV);
}

Test(devspec, what_is_wrong_is_said_and_left_out)
{
	static const char many[] =
		"a,addr=1.1.1.1+1.1.1.2+1.1.1.3+1.1.1.4+1.1.1.5+1.1.1.6+1.1.1.7"
		"+1.1.1.8+1.1.1.9";
	static const char *const wrong[] = {
		"a,max_qp=65537", "a,max_qp=x", "a,max_qp=", "a,max_qp",
		"a,max_sge=0", "a,mtu=1000", "a,mtu=8192", "a,persona=fddi",
		"a,colour=red", "a,lid=0", "a,lid=49152", "a,guid=0",
		"a,pkeys=65536", "a,port=up", "a,addr=localhost", "a,addr=+",
		"a,netdev=a234567890123456", "a,gid.128=none", "a,gid.x=none",
		"a,gid.0=1.2.3.4", "a,gid.0=1.2.3.4/v3", "a,gid.0=x/v1",
		"a,gid.fill=maybe", "a b", "a/b", ".", ",max_qp=1", "=",
		"a234567890123456789012345678901234567890123456789012345678901234",
		many,
	};
	struct sv_dev *devs[SV_MAX_DEV];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		cr_assert_eq(parse(wrong[i], devs), 0, "%s", wrong[i]);
	cr_assert_eq(parse("", devs), 0);
	cr_assert_eq(parse(" ; ;", devs), 0);
	/* The others are there. */
	cr_assert_eq(parse("a;b,max_qp=x; c ;a", devs), 2);
	cr_assert_str_eq(devs[0]->device.name, "a");
	cr_assert_str_eq(devs[1]->device.name, "c");
	sv_dev_free(devs[0]);
	sv_dev_free(devs[1]);
	cr_assert_eq(sv_devspec_parse("a;b;c", NULL, devs, 2), 2);
	sv_dev_free(devs[0]);
	sv_dev_free(devs[1]);
}

Test(devspec, message_has_value_and_limit, .init = cr_redirect_stderr)
{
	struct sv_dev *devs[SV_MAX_DEV];
	char text[512] = "";
	FILE *err = cr_get_redirected_stderr();

	cr_assert_eq(parse("a,max_sge=99", devs), 0);
	fflush(stderr);
	cr_assert_gt(fread(text, 1, sizeof(text) - 1, err), 0);
	cr_assert_not_null(strstr(text, "max_sge=99"));
	cr_assert_not_null(strstr(text, "1 to 16"));
}

/* ---- limits ---- */

Test(devspec, limits_hold)
{
	struct ibv_context *ctx = open_spec(
		"few,max_pd=2,max_mr=1,max_cq=2,max_cqe=100,max_qp=1,max_srq=1,"
		"max_srq_wr=8,max_qp_wr=4,max_sge=2,max_inline=0,mtu=1024,"
		"max_msg_sz=1k,max_qp_rd_atom=2,max_qp_init_rd_atom=3");
	struct ibv_pd *pd = sv_alloc_pd(ctx), *pd2 = sv_alloc_pd(ctx);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 9 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_cq *cq = sv_create_cq(ctx, 100, NULL, NULL, 0), *cq2;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char buf[8];

	cr_assert_str_eq(ctx->device->name, "few");
	cr_assert_eq(sv_query_device(ctx, &attr), 0);
	cr_assert_eq(attr.max_qp, 1);
	cr_assert_eq(attr.max_cqe, 100);
	cr_assert_eq(attr.max_qp_rd_atom, 2);
	cr_assert_eq(attr.max_qp_init_rd_atom, 3);
	cr_assert_eq(sv_query_port(ctx, 1, &port), 0);
	cr_assert_eq(port.active_mtu, IBV_MTU_1024);
	cr_assert_eq(port.max_msg_sz, 1024);

	cr_assert_not_null(pd2);
	cr_assert_null(sv_alloc_pd(ctx));
	cr_assert_eq(errno, ENOMEM);
	cr_assert_eq(sv_dealloc_pd(pd2), 0);
	cr_assert_not_null((pd2 = sv_alloc_pd(ctx)));

	mr = sv_reg_mr(pd, buf, sizeof(buf), 0);
	cr_assert_not_null(mr);
	cr_assert_null(sv_reg_mr(pd, buf, sizeof(buf), 0));
	cr_assert_eq(errno, ENOMEM);

	cr_assert_not_null(cq);
	cr_assert_leq(cq->cqe, 100);
	cr_assert_null(sv_create_cq(ctx, 101, NULL, NULL, 0));
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_resize_cq(cq, 101), EINVAL);
	cr_assert_not_null((cq2 = sv_create_cq(ctx, 1, NULL, NULL, 0)));
	cr_assert_null(sv_create_cq(ctx, 1, NULL, NULL, 0));
	cr_assert_eq(errno, ENOMEM);

	cr_assert_null(sv_create_srq(pd, &srq_init));
	srq_init.attr.max_wr = 8;
	cr_assert_not_null((srq = sv_create_srq(pd, &srq_init)));
	cr_assert_null(sv_create_srq(pd, &srq_init));
	cr_assert_eq(errno, ENOMEM);

	init.send_cq = init.recv_cq = cq;
	init.cap.max_send_wr = 5;
	cr_assert_null(sv_create_qp(pd, &init));
	cr_assert_eq(errno, EINVAL);
	init.cap.max_send_wr = 4;
	init.cap.max_inline_data = 1;
	cr_assert_null(sv_create_qp(pd, &init));
	init.cap.max_inline_data = 0;
	init.cap.max_send_sge = 3;
	cr_assert_null(sv_create_qp(pd, &init));
	init.cap.max_send_sge = 2;
	cr_assert_not_null((qp = sv_create_qp(pd, &init)));
	cr_assert_null(sv_create_qp(pd, &init));
	cr_assert_eq(errno, ENOMEM);
	cr_assert_eq(sv_destroy_qp(qp), 0);
	cr_assert_not_null((qp = sv_create_qp(pd, &init)));

	cr_assert_eq(sv_destroy_qp(qp), 0);
	cr_assert_eq(sv_destroy_srq(srq), 0);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_eq(sv_destroy_cq(cq2), 0);
	cr_assert_eq(sv_dereg_mr(mr), 0);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_dealloc_pd(pd2), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(devspec, reads_in_flight_are_the_lesser_of_both)
{
	struct peer listener, active, passive;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	uint16_t port;
	int mask;

	setenv("SOFTVERBS_DEVICES",
	       "softverbs0,addr=127.0.0.2,max_qp_init_rd_atom=9;"
	       "softverbs1,addr=127.0.0.3,max_qp_rd_atom=4,rnr_retry=0", 1);
	port = peer_listen(&listener, "127.0.0.3", 0, 0);
	peer_open(&active);
	peer_bind(&active, "127.0.0.2");
	peer_connect(&active, "127.0.0.3", port, NULL, 0);
	peer_accept(&listener, &passive);
	cr_assert_eq(peer_take(active.channel,
			       RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	cr_assert_eq(sv_cm_init_qp_attr(active.id, &attr, &mask), 0);
	cr_assert_eq(attr.max_rd_atomic, 4);
	cr_assert_eq(attr.rnr_retry, 7);
	/* What one end's rdma_cm gives, it has of its own device. */
	attr.qp_state = IBV_QPS_RTS;
	cr_assert_eq(sv_cm_init_qp_attr(passive.id, &attr, &mask), 0);
	cr_assert_eq(attr.rnr_retry, 0);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* ---- tables ---- */

Test(devspec, gid_table_as_specified)
{
	struct ibv_context *ctx = open_spec(
		"softverbs0,gid.0=fe80::1/v1,gid.1=error,gid.2=none,"
		"gid.3=10.0.0.1/v2,gid_tbl_len=5,pkeys=0x8001+0+0xffff,"
		"port=down,guid=0x1122334455667788");
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	__be16 pkey;

	cr_assert_eq(sv_query_gid_ex(ctx, 1, 0, &gid, 0), 0);
	cr_assert_eq(gid.gid.raw[0], 0xfe);
	cr_assert_eq(gid.gid_type, IBV_GID_TYPE_ROCE_V1);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 1, &gid, 0), EINVAL);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 2, &gid, 0), ENODATA);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 3, &gid, 0), 0);
	cr_assert_eq(gid.gid.raw[12], 10);
	cr_assert_eq(gid.gid_type, IBV_GID_TYPE_ROCE_V2);
	/* The machine's fill what is left. */
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 4, &gid, 0), 0);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 5, &gid, 0), EINVAL);
	cr_assert_eq(sv_query_port(ctx, 1, &port), 0);
	cr_assert_eq(port.gid_tbl_len, 5);
	cr_assert_eq(port.pkey_tbl_len, 3);
	cr_assert_eq(port.state, IBV_PORT_DOWN);
	cr_assert_eq(sv_query_pkey(ctx, 1, 0, &pkey), 0);
	cr_assert_eq(pkey, htobe16(0x8001));
	cr_assert_eq(sv_get_device_guid(ctx->device),
		     htobe64(0x1122334455667788));
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(devspec, pkey_index_must_be_of_a_key)
{
	struct ibv_context *ctx = open_spec("softverbs0,pkeys=0xffff+0+0x8002");
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	struct ibv_cq *cq = sv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .send_cq = cq, .recv_cq = cq };
	struct ibv_qp *qp = sv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   IBV_QP_ACCESS_FLAGS;

	attr.pkey_index = 1;
	cr_assert_eq(sv_modify_qp(qp, &attr, mask), EINVAL);
	attr.pkey_index = 3;
	cr_assert_eq(sv_modify_qp(qp, &attr, mask), EINVAL);
	attr.pkey_index = 2;
	cr_assert_eq(sv_modify_qp(qp, &attr, mask), 0);
	cr_assert_eq(sv_destroy_qp(qp), 0);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(devspec, nothing_fills_a_table_that_is_told_not_to_be)
{
	struct ibv_context *ctx = open_spec(
		"softverbs0,gid.fill=no,gid.3=127.0.0.1/v2");
	struct sockaddr_storage addr;
	struct ibv_gid_entry gid;
	struct peer peer;
	uint32_t i;

	for (i = 0; i < SV_MAX_GID; i++)
		cr_assert_eq(sv_query_gid_ex(ctx, 1, i, &gid, 0),
			     i == 3 ? 0 : ENODATA);
	/* Address and GID: rdma_cm wants both. */
	peer_open(&peer);
	peer_create_id(&peer);
	peer_addr(&addr, "127.0.0.1", 0);
	cr_assert_eq(sv_cm_bind_addr(peer.id, (struct sockaddr *)&addr), 0);
	peer_destroy_id(&peer);
	peer_create_id(&peer);
	peer_addr(&addr, "::1", 0);
	cr_assert_eq(sv_cm_bind_addr(peer.id, (struct sockaddr *)&addr), -1);
	cr_assert_eq(errno, ENODEV);
	peer_close(&peer);
	cr_assert_eq(sv_close_device(ctx), 0);
}

/* ---- several ---- */

Test(devspec, ids_find_the_device_of_their_address)
{
	struct peer listener, active, passive;
	struct ibv_context **contexts;
	struct ibv_device **list;
	struct sockaddr_storage addr;
	uint16_t port;
	int cnt;

	setenv("SOFTVERBS_DEVICES",
	       "softverbs0;softverbs1,persona=ib,addr=127.0.0.2", 1);
	list = sv_get_device_list(&cnt);
	cr_assert_eq(cnt, 2);
	contexts = sv_cm_get_devices(&cnt);
	cr_assert_eq(cnt, 2);
	cr_assert_null(contexts[2]);
	cr_assert_eq(contexts[0]->device, list[0]);
	cr_assert_eq(contexts[1]->device, list[1]);
	cr_assert_neq(sv_get_device_guid(list[0]), sv_get_device_guid(list[1]));

	port = peer_listen(&listener, "127.0.0.2", 0, 0);
	cr_assert_eq(listener.id->verbs, contexts[1]);
	peer_pair(&listener, &active, &passive, "127.0.0.2", port);
	cr_assert_eq(passive.id->verbs, contexts[1]);
	peer_transfer(&active, &passive);
	peer_end_pair(&active, &passive);
	peer_close(&listener);

	/* All else is the first one's, as is the rest of 127/8. */
	peer_open(&active);
	peer_create_id(&active);
	peer_addr(&addr, "127.0.0.9", 0);
	cr_assert_eq(sv_cm_bind_addr(active.id, (struct sockaddr *)&addr), 0);
	cr_assert_eq(active.id->verbs, contexts[0]);
	peer_close(&active);

	/* A listener of all addresses hears of both. */
	port = peer_listen(&listener, "0.0.0.0", 0, 0);
	cr_assert_null(listener.id->verbs);
	peer_pair(&listener, &active, &passive, "127.0.0.2", port);
	cr_assert_eq(passive.id->verbs, contexts[1]);
	peer_end_pair(&active, &passive);
	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	cr_assert_eq(passive.id->verbs, contexts[0]);
	peer_end_pair(&active, &passive);
	peer_close(&listener);
	sv_cm_free_devices(contexts);
	sv_free_device_list(list);
}

/* One owns its queue pair, the other does not: each lives by its own rules. */
Test(devspec, different_looks_connect)
{
	struct peer listener, active, passive;
	uint16_t port;

	setenv("SOFTVERBS_DEVICES",
	       "softverbs0,addr=127.0.0.2;"
	       "softverbs1,persona=iwarp,addr=127.0.0.3", 1);
	port = peer_listen(&listener, "127.0.0.3", 0, 0);
	peer_open(&active);
	peer_bind(&active, "127.0.0.2");
	peer_connect(&active, "127.0.0.3", port, NULL, 0);
	peer_accept(&listener, &passive);
	peer_finish(&active);
	peer_established(&passive);
	peer_transfer(&active, &passive);
	peer_transfer(&passive, &active);
	peer_end_pair(&active, &passive);
	peer_close(&listener);

	port = peer_listen(&listener, "127.0.0.2", 0, 0);
	peer_open(&active);
	peer_bind(&active, "127.0.0.3");
	peer_connect(&active, "127.0.0.2", port, NULL, 0);
	peer_accept(&listener, &passive);
	peer_established(&active);
	peer_established(&passive);
	peer_transfer(&active, &passive);
	peer_end_pair(&active, &passive);
	peer_close(&listener);
}

Test(devspec, an_interface_of_its_own)
{
	struct ibv_context *ctx = open_spec("a,netdev=lo;b");
	struct ibv_device **list = sv_get_device_list(NULL);
	struct ibv_context *other = sv_open_device(list[1]);
	struct ibv_gid_entry gid;
	uint32_t i;

	for (i = 0; i < SV_MAX_GID; i++)
		if (!sv_query_gid_ex(other, 1, i, &gid, 0))
			cr_assert_neq(gid.gid.raw[12], 127);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 1, &gid, 0), 0);
	cr_assert_eq(gid.gid.raw[12], 127);
	sv_free_device_list(list);
	cr_assert_eq(sv_close_device(other), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}
