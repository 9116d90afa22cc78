/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults of calls: each that makes, changes or asks something fails as it is told, and
 * takes nothing along. How rules are set and how they repeat is tried on one of them.
 */
#include "fault.h"

TestSuite(fault_calls, .timeout = 60);

/* ---- rules ---- */

Test(fault_calls, a_wrong_rule_changes_nothing)
{
	struct ibv_context *ctx = open_dev();

	set("alloc_pd,err=EIO");
	cr_assert_eq(sv_fault_set("alloc_pd,err=EIO;nonsense"), EINVAL);
	cr_assert_null(sv_alloc_pd(ctx));
	cr_assert_eq(errno, EIO);
	cr_assert_eq(fired(SV_FAULT_alloc_pd), 1);
	set("");
	cr_assert_eq(sv_dealloc_pd(sv_alloc_pd(ctx)), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(fault_calls, seeds_repeat)
{
	struct ibv_context *ctx = open_dev();
	uint64_t got[2] = { 0, 0 };
	struct ibv_pd *pd;
	int i, j;

	for (i = 0; i < 2; i++) {
		sv_fault_seed(42);
		set("alloc_pd,err=EIO,chance=50%");
		for (j = 0; j < 64; j++) {
			pd = sv_alloc_pd(ctx);
			got[i] |= (uint64_t)!pd << j;
			if (pd)
				sv_dealloc_pd(pd);
		}
	}
	cr_assert_eq(got[0], got[1]);
	cr_assert_neq(got[0], 0);
	cr_assert_neq(got[0], UINT64_MAX);
	cr_assert_eq(sv_close_device(ctx), 0);
}

/* ---- calls ---- */

/* Each that makes something, and what is there stays whole: nothing leaks. */
Test(fault_calls, calls_fail_as_they_are_told)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	struct ibv_cq *cq = sv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .send_cq = cq, .recv_cq = cq };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_device **list = sv_get_device_list(NULL);
	struct ibv_qp *qp = sv_create_qp(pd, &init);
	struct ibv_async_event async;
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct ibv_mr *mr;
	__be16 pkey;
	char buf[8];

	mr = sv_reg_mr(pd, buf, sizeof(buf), 0);
	set("open_device,err=EACCES;query_device,err=EIO;query_port,err=EBUSY;"
	    "query_gid,index=1,err=EINVAL;query_pkey,err=ENODATA;"
	    "get_async_event,err=EIO;alloc_pd,err=ENOMEM;reg_mr,err=EPERM;"
	    "rereg_mr,err=ENOMEM;dereg_mr,err=EBUSY;create_cq,err=ENOMEM;"
	    "create_comp_channel,err=EMFILE;resize_cq,err=ENOSYS;"
	    "destroy_cq,err=EBUSY;create_srq,err=ENOMEM;create_qp,err=ENOMEM;"
	    "modify_qp,err=EINVAL;query_qp,err=EIO;destroy_qp,err=EBUSY");
	errno = 0;
	cr_assert_null(sv_open_device(list[0]));
	cr_assert_eq(errno, EACCES);
	cr_assert_eq(sv_query_device(ctx, &dev), EIO);
	cr_assert_eq(sv_query_port(ctx, 1, &port), EBUSY);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 0, &gid, 0), 0);
	cr_assert_eq(sv_query_gid_ex(ctx, 1, 1, &gid, 0), EINVAL);
	cr_assert_eq(sv_query_pkey(ctx, 1, 0, &pkey), -1);
	cr_assert_eq(errno, ENODATA);
	cr_assert_eq(sv_get_async_event(ctx, &async), -1);
	cr_assert_eq(errno, EIO);
	cr_assert_null(sv_alloc_pd(ctx));
	cr_assert_eq(errno, ENOMEM);
	cr_assert_null(sv_reg_mr(pd, buf, sizeof(buf), 0));
	cr_assert_eq(errno, EPERM);
	cr_assert_eq(sv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				 0), IBV_REREG_MR_ERR_INPUT);
	cr_assert_eq(sv_dereg_mr(mr), EBUSY);
	cr_assert_null(sv_create_comp_channel(ctx));
	cr_assert_eq(errno, EMFILE);
	cr_assert_null(sv_create_cq(ctx, 8, NULL, NULL, 0));
	cr_assert_eq(errno, ENOMEM);
	cr_assert_eq(sv_resize_cq(cq, 16), ENOSYS);
	cr_assert_eq(sv_destroy_cq(cq), EBUSY);
	cr_assert_null(sv_create_srq(pd, &srq));
	cr_assert_eq(errno, ENOMEM);
	cr_assert_null(sv_create_qp(pd, &init));
	cr_assert_eq(errno, ENOMEM);
	cr_assert_eq(sv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	cr_assert_eq(sv_query_qp(qp, &attr, 0, &init), EIO);
	cr_assert_eq(sv_destroy_qp(qp), EBUSY);
	set(NULL);
	cr_assert_eq(sv_destroy_qp(qp), 0);
	cr_assert_eq(sv_dereg_mr(mr), 0);
	cr_assert_eq(sv_destroy_cq(cq), 0);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
	sv_free_device_list(list);
}

Test(fault_calls, memory_has_a_budget_and_a_price)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	static char buf[64 << 10];
	struct ibv_mr *mr[2];
	long start;

	set("reg_mr,err=ENOMEM,budget=96k");
	mr[0] = sv_reg_mr(pd, buf, sizeof(buf), 0);
	cr_assert_not_null(mr[0]);
	cr_assert_null(sv_reg_mr(pd, buf, sizeof(buf), 0));
	cr_assert_eq(errno, ENOMEM);
	cr_assert_not_null((mr[1] = sv_reg_mr(pd, buf, 32 << 10, 0)));
	cr_assert_eq(sv_dereg_mr(mr[0]), 0);
	cr_assert_not_null((mr[0] = sv_reg_mr(pd, buf, sizeof(buf), 0)));

	set("reg_mr,per_page=1ms;dereg_mr,delay=10ms");
	cr_assert_eq(sv_dereg_mr(mr[1]), 0);
	start = peer_now_ms();
	cr_assert_not_null((mr[1] = sv_reg_mr(pd, buf, sizeof(buf), 0)));
	cr_assert_geq(peer_now_ms() - start, 16);
	start = peer_now_ms();
	cr_assert_eq(sv_dereg_mr(mr[1]), 0);
	cr_assert_geq(peer_now_ms() - start, 10);
	cr_assert_eq(sv_dereg_mr(mr[0]), 0);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

Test(fault_calls, rdma_cm_calls)
{
	struct rdma_conn_param param = { .private_data = NULL };
	struct sockaddr_storage addr;
	struct rdma_cm_id *id;
	struct peer peer;

	peer_addr(&addr, "127.0.0.1", 0);
	set("create_event_channel,err=EMFILE");
	cr_assert_null(sv_cm_create_event_channel());
	cr_assert_eq(errno, EMFILE);
	set("create_id,err=ENODEV;bind_addr,err=EADDRINUSE;"
	    "listen,err=EADDRNOTAVAIL;connect,err=ENETUNREACH");
	peer_open(&peer);
	cr_assert_eq(sv_cm_create_id(peer.channel, &id, NULL, RDMA_PS_TCP), -1);
	cr_assert_eq(errno, ENODEV);
	set("bind_addr,err=EADDRINUSE,count=1;listen,err=EADDRNOTAVAIL;"
	    "connect,err=ENETUNREACH;resolve_addr,delay=20ms");
	peer_create_id(&peer);
	cr_assert_eq(sv_cm_bind_addr(peer.id, (struct sockaddr *)&addr), -1);
	cr_assert_eq(errno, EADDRINUSE);
	cr_assert_eq(sv_cm_bind_addr(peer.id, (struct sockaddr *)&addr), 0);
	cr_assert_eq(sv_cm_listen(peer.id, 1), -1);
	cr_assert_eq(errno, EADDRNOTAVAIL);
	cr_assert_eq(sv_cm_connect(peer.id, &param), -1);
	cr_assert_eq(errno, ENETUNREACH);
	peer_close(&peer);
}

/* Memory windows and address handles. */
Test(fault_calls, windows)
{
	struct ibv_context *ctx = open_dev();
	struct ibv_pd *pd = sv_alloc_pd(ctx);
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1 };
	struct ibv_mw *mw;

	set("alloc_mw,err=ENOMEM,count=1;dealloc_mw,err=EBUSY,count=1;"
	    "create_ah,err=EAGAIN,count=1");
	errno = 0;
	cr_assert_null(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	cr_assert_eq(errno, ENOMEM);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	cr_assert_not_null(mw);
	cr_assert_eq(ibv_dealloc_mw(mw), EBUSY);
	cr_assert_eq(ibv_dealloc_mw(mw), 0);
	cr_assert_null(sv_create_ah(pd, &ah));
	cr_assert_eq(errno, EAGAIN);
	cr_assert_eq(sv_dealloc_pd(pd), 0);
	cr_assert_eq(sv_close_device(ctx), 0);
}

/* Nothing is posted, and the window keeps its key. */
Test(fault_calls, binding)
{
	struct ibv_mw_bind bind = { .wr_id = 1 };
	struct ibv_mw *mw;
	struct ibv_wc wc;
	uint32_t rkey;

	pair();
	mw = ibv_alloc_mw(active.qp->pd, IBV_MW_TYPE_1);
	cr_assert_not_null(mw);
	rkey = mw->rkey;
	set("bind_mw,err=ENOSYS");
	cr_assert_eq(ibv_bind_mw(active.qp, mw, &bind), ENOSYS);
	cr_assert_eq(mw->rkey, rkey);
	cr_assert_eq(ibv_poll_cq(active.cq, 1, &wc), 0);
	cr_assert_eq(ibv_dealloc_mw(mw), 0);
	unpair();
}
