/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The device and its passive objects: attributes, GIDs, PDs, memory regions
 * with their keys, bounds and rights, completion queues and channels.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>

TestSuite(objects, .timeout = 60);

static struct ibv_context *open_dev(void)
{
	int cnt;
	struct ibv_device **list = sv_get_device_list(&cnt);
	struct ibv_context *ctx;

	cr_assert_eq(cnt, 1);
	cr_assert_str_eq(sv_get_device_name(list[0]), "softverbs0");
	cr_assert_null(list[1]);
	ctx = sv_open_device(list[0]);
	sv_free_device_list(list);
	cr_assert_not_null(ctx);
	return ctx;
}

Test(objects, device_says_what_it_is)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_device_attr_ex dev_ex;
	struct ibv_device_attr dev;
	struct verbs_context *vctx;
	struct ibv_port_attr port;
	__be16 pkey;

	cr_assert_eq(ctx->device->node_type, IBV_NODE_CA);
	cr_assert_eq(ctx->device->transport_type, IBV_TRANSPORT_IB);
	cr_assert_eq(sv_query_device(ctx, &dev), 0);
	cr_assert_eq(dev.phys_port_cnt, 1);
	cr_assert_neq(dev.vendor_id, 0);
	cr_assert_neq(dev.node_guid, 0);
	cr_assert_eq(dev.node_guid, sv_get_device_guid(ctx->device));
	/* As the header's inline does it. */
	vctx = verbs_get_ctx_op(ctx, query_port);
	cr_assert_not_null(vctx);
	cr_assert_eq(vctx->query_port(ctx, 1, &port, sizeof(port)), 0);
	cr_assert_eq(port.state, IBV_PORT_ACTIVE);
	cr_assert_eq(port.active_mtu, IBV_MTU_4096);
	cr_assert_eq(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	vctx = verbs_get_ctx_op(ctx, query_device_ex);
	cr_assert_not_null(vctx);
	cr_assert_eq(vctx->query_device_ex(ctx, NULL, &dev_ex, sizeof(dev_ex)),
		     0);
	cr_assert_eq(dev_ex.phys_port_cnt_ex, 1);
	cr_assert_eq(memcmp(&dev_ex.orig_attr, &dev, sizeof(dev)), 0);
	/* A program that is older than most of the structure. */
	memset(&dev_ex, 0xff, sizeof(dev_ex));
	cr_assert_eq(vctx->query_device_ex(ctx, NULL, &dev_ex,
					   sizeof(dev) + 4), 0);
	cr_assert_neq(dev_ex.phys_port_cnt_ex, 1);
	cr_assert_eq(vctx->query_device_ex(ctx, NULL, &dev_ex, 4), EINVAL);
	cr_assert_eq(sv_query_port(ctx, 2, &port), EINVAL);
	cr_assert_eq(sv_query_pkey(ctx, 1, 0, &pkey), 0);
	cr_assert_eq(pkey, 0xffff);
	cr_assert_eq(sv_query_pkey(ctx, 1, 1, &pkey), -1);
	cr_assert_eq(sv_close_device(ctx), 0);
}

/* Their table of keys is a file to the kernel. */
Test(objects, no_file_may_be_so_large)
{
	struct ibv_device **list;
	struct rlimit was, limit;
	struct side s;

	MUST(!getrlimit(RLIMIT_FSIZE, &was));
	limit = was;
	limit.rlim_cur = 1 << 20;
	MUST(!setrlimit(RLIMIT_FSIZE, &limit));
	MUST((list = sv_get_device_list(NULL)) && list[0]);
	cr_assert_null(sv_open_device(list[0]));
	cr_assert_eq(errno, EFBIG);
	sv_free_device_list(list);
	MUST(!setrlimit(RLIMIT_FSIZE, &was));
	side_open(&s, NULL);
	side_close(&s);
}

Test(objects, unsupported_inlines_say_so)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	struct ibv_alloc_dm_attr dm = { .length = 64 };

	errno = 0;
	cr_assert_null(ibv_alloc_dm(ctx, &dm));
	cr_assert_eq(errno, EOPNOTSUPP);
	errno = 0;
	cr_assert_null(ibv_alloc_null_mr(pd));
	cr_assert_eq(errno, EOPNOTSUPP);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(objects, gids_come_in_pairs_and_hold_loopback)
{
	struct ibv_context *ctx = open_dev();
	struct sockaddr_in lo = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct sockaddr_in foreign = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(0xc6336401), /* TEST-NET-2 */
	};
	struct ibv_gid_entry v1, v2;
	int index = sv_dev_gid_index((struct sockaddr *)&lo);

	cr_assert_geq(index, 1);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, index, &v2, 0), 0);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, index - 1, &v1, 0), 0);
	cr_assert_eq(v2.gid_type, IBV_GID_TYPE_ROCE_V2);
	cr_assert_eq(v1.gid_type, IBV_GID_TYPE_ROCE_V1);
	cr_assert_eq(memcmp(&v1.gid, &v2.gid, 16), 0);
	cr_assert_eq(v2.gid.raw[10], 0xff);
	cr_assert_eq(v2.gid.raw[12], 127);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, SV_MAX_GID - 1, &v1, 0), ENODATA);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, SV_MAX_GID, &v1, 0), EINVAL);
	cr_assert_eq(sv_dev_gid_index((struct sockaddr *)&foreign), -1);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(objects, address_handles_are_checked)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	struct ibv_ah_attr good = { .is_global = 1, .port_num = 1 };
	struct ibv_wc wc = { .slid = 7, .sl = 3 };
	struct ibv_ah_attr attr;
	struct ibv_gid_entry gid;
	struct ibv_grh grh = { 0 };
	struct ibv_ah *ah;

	cr_assert_eq(sv_query_gid_ex(ctx, 1, 1, &gid, 0), 0);
	cr_assert_eq(gid.gid_type, IBV_GID_TYPE_ROCE_V2);
	cr_assert_not_null(ah = sv_create_ah(pd, &good));
	cr_assert_eq(ah->pd, pd);
	cr_assert_eq(sv_dealloc_pd(pd), EBUSY);
	cr_assert_eq(sv_destroy_ah(ah), 0);
	attr = good;
	attr.port_num = 2;
	errno = 0;
	cr_assert_null(sv_create_ah(pd, &attr));
	cr_assert_eq(errno, EINVAL);
	attr = good;
	attr.is_global = 0;
	cr_assert_null(sv_create_ah(pd, &attr));
	attr = good;
	attr.grh.sgid_index = SV_MAX_GID - 1;
	cr_assert_null(sv_create_ah(pd, &attr));

	cr_assert_eq(sv_init_ah_from_wc(ctx, 1, &wc, &grh, &attr), 0);
	cr_assert_eq(attr.dlid, 7);
	cr_assert_eq(attr.sl, 3);
	cr_assert_eq(attr.is_global, 0);
	wc.wc_flags = IBV_WC_GRH;
	cr_assert_eq(sv_init_ah_from_wc(ctx, 1, &wc, &grh, &attr), -1);
	grh.dgid = gid.gid;
	grh.sgid.raw[15] = 9;
	grh.version_tclass_flow = htobe32(6u << 28 | 0x5au << 20 | 0x12345);
	cr_assert_eq(sv_init_ah_from_wc(ctx, 1, &wc, &grh, &attr), 0);
	cr_assert_eq(attr.is_global, 1);
	cr_assert_eq(attr.grh.sgid_index, 1);
	cr_assert_eq(attr.grh.dgid.raw[15], 9);
	cr_assert_eq(attr.grh.traffic_class, 0x5a);
	cr_assert_eq(attr.grh.flow_label, 0x12345);
	cr_assert_not_null(ah = sv_create_ah(pd, &attr));
	cr_assert_eq(sv_destroy_ah(ah), 0);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(objects, parents_are_busy_while_children_live)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	struct ibv_comp_channel *chan = sv_create_comp_channel(ctx);
	struct ibv_cq *cq = sv_create_cq(ctx, 8, NULL, chan, 0);
	char buf[64];
	struct ibv_mr *mr = sv_reg_mr(pd, buf, sizeof(buf), 0);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
	};
	struct ibv_qp *qp = sv_create_qp(pd, &init);

	cr_assert_not_null(mr);
	cr_assert_not_null(qp);
	cr_assert_eq(sv_close_device(ctx), EBUSY);
	cr_assert_eq(sv_destroy_comp_channel(chan), EBUSY);
	cr_assert_eq(sv_destroy_cq(cq), EBUSY);
	cr_assert_eq(sv_dealloc_pd(pd), EBUSY);
	cr_assert_eq(sv_destroy_qp(qp), 0);
	cr_assert_eq(sv_dealloc_pd(pd), EBUSY);
	cr_assert_eq(sv_dereg_mr(mr), 0);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_eq(sv_destroy_comp_channel(chan), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

/* ---- memory regions ---- */

Test(objects, mr_rights_that_make_no_sense)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	char buf[64];

	errno = 0;
	cr_assert_null(sv_reg_mr(pd, buf, 64, IBV_ACCESS_REMOTE_WRITE));
	cr_assert_eq(errno, EINVAL);
	cr_assert_null(sv_reg_mr(pd, buf, 0, IBV_ACCESS_LOCAL_WRITE));
	cr_assert_null(sv_reg_mr(pd, (void *)-64, 128, 0));
	errno = 0;
	cr_assert_null(sv_reg_mr(pd, buf, 64, 1 << 15));
	cr_assert_eq(errno, EINVAL);
	/* All there is, but to be there at once. */
	errno = 0;
	cr_assert_null(sv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE));
	cr_assert_eq(errno, EINVAL);
	/* The offset in the page differs. */
	errno = 0;
	cr_assert_null(sv_reg_mr_iova(pd, buf, 64, (uintptr_t)buf + 4100, 0));
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(objects, mr_of_memory_that_is_not_there)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	struct ibv_mr *mr;
	char *map = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);

	cr_assert_neq(map, MAP_FAILED);
	/* Read-only memory can be read from, not written to. */
	mr = sv_reg_mr(pd, map, 8192, IBV_ACCESS_REMOTE_READ);
	cr_assert_not_null(mr);
	cr_assert_eq(sv_dereg_mr(mr), 0);
	errno = 0;
	cr_assert_null(sv_reg_mr(pd, map, 8192, IBV_ACCESS_LOCAL_WRITE));
	cr_assert_eq(errno, EFAULT);
	munmap(map, 8192);
	errno = 0;
	cr_assert_null(sv_reg_mr(pd, map, 8192, 0));
	cr_assert_eq(errno, EFAULT);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(objects, mr_key_bounds_domain_rights)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx), *other = sv_alloc_pd(ctx);
	const struct sv_mr_ent *tbl = sv_mr_table();
	static char buf[4096];
	struct ibv_mr *mr = sv_reg_mr(pd, buf, sizeof(buf),
				      IBV_ACCESS_LOCAL_WRITE |
					      IBV_ACCESS_REMOTE_WRITE);
	uint32_t id = sv_pd(pd)->id, key, w = IBV_ACCESS_REMOTE_WRITE;
	uint64_t base = (uintptr_t)buf, va;

	cr_assert_not_null(mr);
	key = mr->rkey;
	cr_assert(sv_mr_check(tbl, key, id, w, base, 4096, &va) && va == base);
	cr_assert(sv_mr_check(tbl, key, id, w, base + 4095, 1, &va));
	cr_assert(sv_mr_check(tbl, key, id, w, base + 4096, 0, &va));
	cr_assert_not(sv_mr_check(tbl, key, id, w, base, 4097, &va));
	cr_assert_not(sv_mr_check(tbl, key, id, w, base - 1, 1, &va));
	cr_assert_not(sv_mr_check(tbl, key, id, w, base + 4096, 1, &va));
	cr_assert_not(sv_mr_check(tbl, key, id, w, base + 1, UINT64_MAX, &va));
	cr_assert_not(sv_mr_check(tbl, key, id, w, UINT64_MAX, 2, &va));
	cr_assert_not(sv_mr_check(tbl, key, sv_pd(other)->id, w, base, 1, &va));
	cr_assert_not(sv_mr_check(tbl, key, id, IBV_ACCESS_REMOTE_READ, base, 1,
				  &va));
	cr_assert_not(sv_mr_check(tbl, key ^ 1u << 31, id, w, base, 1, &va));
	cr_assert_not(sv_mr_check(tbl, 0, id, 0, base, 1, &va));
	cr_assert_eq(sv_dereg_mr(mr), 0);
	cr_assert_not(sv_mr_check(tbl, key, id, w, base, 1, &va));
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_dealloc_pd(other), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

/* The key is the same, and stands for something else; or nothing changes. */
Test(objects, mr_anew)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx), *other = sv_alloc_pd(ctx);
	const int all = IBV_REREG_MR_CHANGE_TRANSLATION |
			IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
	const struct sv_mr_ent *tbl = sv_mr_table();
	static char buf[8192];
	struct ibv_mr *mr = sv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	uint32_t id = sv_pd(pd)->id, key = mr->rkey;
	uint64_t base = (uintptr_t)buf, va;

	cr_assert_eq(sv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				 IBV_ACCESS_LOCAL_WRITE |
					 IBV_ACCESS_REMOTE_READ),
		     0);
	key = mr->rkey;
	cr_assert(sv_mr_check(tbl, key, id, IBV_ACCESS_REMOTE_READ, base, 4096,
			      &va));
	cr_assert_eq(sv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				 buf + 4096, 100, 0),
		     0);
	key = mr->rkey;
	cr_assert_eq(mr->addr, buf + 4096);
	cr_assert_eq(mr->length, 100);
	cr_assert(sv_mr_check(tbl, key, id, IBV_ACCESS_REMOTE_READ,
			      base + 4096, 100, &va));
	cr_assert_eq(va, base + 4096);
	cr_assert_not(sv_mr_check(tbl, key, id, 0, base, 1, &va));
	cr_assert_not(sv_mr_check(tbl, key, id, 0, base + 4096, 101, &va));

	/* Wrong in some way: as it was. */
	cr_assert_neq(sv_rereg_mr(mr, all, other, buf, 4096,
				  IBV_ACCESS_REMOTE_WRITE),
		      0);
	cr_assert_neq(sv_rereg_mr(mr, all, other, buf, 0, 0), 0);
	cr_assert_neq(sv_rereg_mr(mr, all, NULL, buf, 4096, 0), 0);
	cr_assert_neq(sv_rereg_mr(mr, 0, other, buf, 4096, 0), 0);
	cr_assert_neq(sv_rereg_mr(mr, 64, other, buf, 4096, 0), 0);
	cr_assert_eq(mr->pd, pd);
	cr_assert(sv_mr_check(tbl, mr->rkey, id, IBV_ACCESS_REMOTE_READ,
			      base + 4096, 100, &va));

	cr_assert_eq(sv_rereg_mr(mr, all, other, buf, 10, 0), 0);
	key = mr->rkey;
	cr_assert_eq(mr->pd, other);
	cr_assert(sv_mr_check(tbl, key, sv_pd(other)->id, 0, base, 10, &va));
	cr_assert_not(sv_mr_check(tbl, key, id, 0, base, 10, &va));
	cr_assert_not(sv_mr_check(tbl, key, sv_pd(other)->id,
				  IBV_ACCESS_REMOTE_READ, base, 10, &va));
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_dealloc_pd(other), EBUSY);
	cr_assert_eq(sv_dereg_mr(mr), 0);
	cr_assert_eq(sv_dealloc_pd(other), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

static int by_key(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* As many as promised, each with a key of its own that is no small number. */
Test(objects, mr_many)
{
	enum { CNT = 70000 };
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	static struct ibv_mr *mr[CNT];
	static uint32_t keys[CNT];
	static char buf[64];
	int i;

	for (i = 0; i < CNT; i++) {
		mr[i] = sv_reg_mr(pd, buf, sizeof(buf), 0);
		cr_assert_not_null(mr[i], "region %d", i);
		keys[i] = mr[i]->rkey;
		cr_assert_geq(keys[i], 1u << 18);
	}
	qsort(keys, CNT, sizeof(keys[0]), by_key);
	for (i = 1; i < CNT; i++)
		cr_assert_neq(keys[i], keys[i - 1]);
	for (i = 0; i < CNT; i++)
		cr_assert_eq(sv_dereg_mr(mr[i]), 0);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

/* ---- completion queues and channels ---- */

static struct sv_cqe cqe_of(uint64_t id, enum ibv_wc_status status)
{
	return (struct sv_cqe){ .wc = { .wr_id = id, .status = status } };
}

static void push(struct ibv_cq *cq, uint64_t id, bool solicited)
{
	struct sv_cqe cqe = cqe_of(id, IBV_WC_SUCCESS);

	sv_cq_push(sv_cq(cq), &cqe, solicited);
}

Test(objects, cq_keeps_order_over_resize)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_cq *cq = sv_create_cq(ctx, 5, NULL, NULL, 0);
	struct ibv_wc wc[16];
	int i;

	cr_assert_geq(cq->cqe, 5);
	for (i = 0; i < 3; i++)
		push(cq, 100 + i, false);
	cr_assert_eq(ibv_poll_cq(cq, 2, wc), 2);
	cr_assert_eq(wc[0].wr_id, 100);
	for (i = 3; i < 8; i++)
		push(cq, 100 + i, false);
	cr_assert_eq(sv_resize_cq(cq, 1), EINVAL);
	cr_assert_eq(sv_resize_cq(cq, 100), 0);
	cr_assert_geq(cq->cqe, 100);
	for (i = 8; i < 12; i++)
		push(cq, 100 + i, false);
	cr_assert_eq(ibv_poll_cq(cq, 16, wc), 10);
	for (i = 0; i < 10; i++)
		cr_assert_eq(wc[i].wr_id, 102 + i);
	cr_assert_eq(ibv_poll_cq(cq, 16, wc), 0);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(objects, cq_limits)
{
	struct ibv_context *ctx = open_dev();

	errno = 0;
	cr_assert_null(sv_create_cq(ctx, 0, NULL, NULL, 0));
	cr_assert_eq(errno, EINVAL);
	cr_assert_null(sv_create_cq(ctx, SV_MAX_CQE + 1, NULL, NULL, 0));
	cr_assert_null(sv_create_cq(ctx, 1, NULL, NULL, 1));
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(objects, cq_overrun_is_reported)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_cq *cq = sv_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_async_event event;
	struct ibv_wc wc[8];
	int i;

	for (i = 0; i < 6; i++)
		push(cq, i, false);
	cr_assert_eq(sv_get_async_event(ctx, &event), 0);
	cr_assert_eq(event.event_type, IBV_EVENT_CQ_ERR);
	cr_assert_eq(event.element.cq, cq);
	sv_ack_async_event(&event);
	cr_assert_eq(ibv_poll_cq(cq, 8, wc), 4);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

static bool readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

Test(objects, channel_one_event_per_arming)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_comp_channel *chan = sv_create_comp_channel(ctx);
	int mark;
	struct ibv_cq *cq = sv_create_cq(ctx, 16, &mark, chan, 0), *got;
	void *got_context;

	fcntl(chan->fd, F_SETFL, O_NONBLOCK);
	push(cq, 1, true);
	cr_assert_not(readable(chan->fd));
	cr_assert_eq(ibv_req_notify_cq(cq, 0), 0);
	cr_assert_not(readable(chan->fd));
	push(cq, 2, false);
	push(cq, 3, false);
	cr_assert(readable(chan->fd));
	cr_assert_eq(sv_get_cq_event(chan, &got, &got_context), 0);
	cr_assert_eq(got, cq);
	cr_assert_eq(got_context, &mark);
	cr_assert_not(readable(chan->fd));
	errno = 0;
	cr_assert_eq(sv_get_cq_event(chan, &got, &got_context), -1);
	cr_assert_eq(errno, EAGAIN);
	sv_ack_cq_events(cq, 1);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_eq(sv_destroy_comp_channel(chan), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(objects, channel_solicited_only)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_comp_channel *chan = sv_create_comp_channel(ctx);
	struct ibv_cq *cq = sv_create_cq(ctx, 16, NULL, chan, 0), *got;
	struct sv_cqe failed = cqe_of(9, IBV_WC_WR_FLUSH_ERR);
	void *got_context;

	ibv_req_notify_cq(cq, 1);
	push(cq, 1, false);
	cr_assert_not(readable(chan->fd));
	push(cq, 2, true);
	cr_assert(readable(chan->fd));
	cr_assert_eq(sv_get_cq_event(chan, &got, &got_context), 0);
	/* An error counts as solicited. */
	ibv_req_notify_cq(cq, 1);
	sv_cq_push(sv_cq(cq), &failed, false);
	cr_assert(readable(chan->fd));
	/* Not fetched: goes with the CQ. */
	sv_ack_cq_events(cq, 1);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_not(readable(chan->fd));
	cr_assert_eq(sv_destroy_comp_channel(chan), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

static void *acker(void *arg)
{
	usleep(100 * 1000);
	sv_ack_cq_events(arg, 1);
	return NULL;
}

Test(objects, cq_destruction_waits_for_the_ack)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_comp_channel *chan = sv_create_comp_channel(ctx);
	struct ibv_cq *cq = sv_create_cq(ctx, 16, NULL, chan, 0), *got;
	uint64_t start;
	void *got_context;
	pthread_t thread;

	ibv_req_notify_cq(cq, 0);
	push(cq, 1, false);
	cr_assert_eq(sv_get_cq_event(chan, &got, &got_context), 0);
	start = sv_now_ns();
	pthread_create(&thread, NULL, acker, cq);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_geq(sv_now_ns() - start, 90 * 1000000ull);
	pthread_join(thread, NULL);
	cr_assert_eq(sv_destroy_comp_channel(chan), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}
