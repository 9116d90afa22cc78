/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Faults, hook by hook: what is asked for happens, and what is not does not. */
#include "sv_fault.h"

#include "sv_edit.h"
#include "sv_int.h"
#include "sv_link.h"

#include <criterion/criterion.h>

#include "cm_peer.h"

TestSuite(fault, .timeout = 60);

#define DEV "softverbs0"

static struct ibv_context *open_dev(void)
{
	struct ibv_device **list = sv_get_device_list(NULL);
	struct ibv_context *ctx = sv_open_device(list[0]);

	sv_free_device_list(list);
	return ctx;
}

static void set(const char *spec)
{
	cr_assert_eq(sv_fault_set(spec), 0, "%s", spec);
}

static uint64_t fired(enum sv_fault_hook hook)
{
	uint64_t seen, cnt;

	sv_fault_count(hook, &seen, &cnt);
	return cnt;
}

static struct peer listener, active, passive;

static void pair(void)
{
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
}

static void unpair(void)
{
	set(NULL);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* ---- setting ---- */

Test(fault, a_wrong_rule_changes_nothing)
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

Test(fault, seeds_repeat)
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
Test(fault, calls_fail_as_they_are_told)
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

Test(fault, memory_has_a_budget_and_a_price)
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

Test(fault, rdma_cm_calls)
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

/* ---- data path ---- */

Test(fault, posts_fail_and_take_nothing)
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

Test(fault, a_slow_wire)
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

Test(fault, one_queue_pair_of_two)
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

Test(fault, completions_say_what_they_are_told)
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

Test(fault, completions_are_held)
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
Test(fault, who_sleeps_is_woken_when_the_hold_ends)
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

Test(fault, nothing_is_flushed)
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

/* ---- silence ---- */

static void short_timeout(struct peer *peer)
{
	/* Not an attribute of RTS; sends wait at least this long anyway. */
	sv_qp(peer->qp)->attr.timeout = 8;
	sv_qp(peer->qp)->attr.retry_cnt = 1;
}

Test(fault, blackhole_by_the_clock)
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

Test(fault, blackhole_ends)
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

Test(fault, blackhole_from_a_post_on)
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

Test(fault, a_port_that_is_down_carries_nothing)
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
Test(fault, long_messages_are_lost)
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

Test(fault, receives_are_held)
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
Test(fault, receives_are_held_too_long)
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
Test(fault, receives_are_held_for_nobody)
{
	pair();
	set("post_recv,hold=100ms");
	peer_post_recv(&passive);
	unpair();
	peer_sleep_ms(200);
}

/* ---- events ---- */

static uint16_t start_connecting(void)
{
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	return port;
}

Test(fault, event_lost)
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
Test(fault, request_lost)
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
Test(fault, request_swallowed)
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

/* Memory windows and address handles. */
Test(fault, windows)
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
Test(fault, binding)
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

Test(fault, request_late)
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
Test(fault, request_too_late)
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

Test(fault, event_late_and_overtaken)
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

Test(fault, events_doubled_and_made_up)
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

Test(fault, objects_fail_by_the_clock)
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

Test(fault, device_events_by_the_clock)
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
