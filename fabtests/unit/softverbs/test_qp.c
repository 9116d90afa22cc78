/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs without a peer: creation limits, the state table, what may be
 * posted when, flushing.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/resource.h>

TestSuite(qp, .timeout = 60);

Test(qp, creation_limits)
{
	struct side s;
	struct ibv_qp_init_attr init;
	const struct ibv_qp_cap good = {
		.max_send_wr = 4,
		.max_recv_wr = 4,
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	struct ibv_qp_cap bad[5] = { good, good, good, good, good };
	struct ibv_qp *qp;
	size_t i;

	side_open(&s, NULL);
	bad[0].max_send_wr = SV_MAX_QP_WR + 1;
	bad[1].max_recv_wr = SV_MAX_QP_WR + 1;
	bad[2].max_send_sge = SV_MAX_SGE + 1;
	bad[3].max_recv_sge = SV_MAX_SGE + 1;
	bad[4].max_inline_data = SV_MAX_INLINE + 1;
	init = (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.send_cq = s.scq,
		.recv_cq = s.rcq,
	};
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		init.cap = bad[i];
		errno = 0;
		cr_assert_null(sv_create_qp(s.pd, &init), "case %zu", i);
		cr_assert_eq(errno, EINVAL);
	}
	init.cap = good;
	init.qp_type = IBV_QPT_UD;
	cr_assert_null(sv_create_qp(s.pd, &init));
	cr_assert_eq(errno, EOPNOTSUPP);
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = SV_MAX_QP_WR;
	init.cap.max_inline_data = SV_MAX_INLINE;
	qp = sv_create_qp(s.pd, &init);
	cr_assert_not_null(qp);
	cr_assert_geq(init.cap.max_inline_data, SV_MAX_INLINE);
	cr_assert_leq(qp->qp_num, 0xffffff);
	cr_assert_eq(sv_destroy_qp(qp), 0);
	side_close(&s);
}

Test(qp, found_by_number_until_destroyed)
{
	struct side s;
	struct sv_qp *qp;
	uint32_t qpn;

	side_open(&s, NULL);
	qpn = s.qp->qp_num;
	qp = sv_qp_find(qpn);
	cr_assert_eq(qp, sv_qp(s.qp));
	cr_assert_null(sv_qp_find(qpn ^ 1));
	cr_assert_eq(sv_destroy_qp(s.qp), 0);
	s.qp = NULL;
	cr_assert_null(sv_qp_find(qpn));
	cr_assert(qp->destroyed);
	sv_qp_put(qp);
	side_close(&s);
}

/* All that RC admits: [from][to], by the letters R I T(RTR) S(RTS) D E(SQE) X.
 * SQE is a state of other kinds of queue pair; from there only out. */
static const char *const legal[7] = {
	[IBV_QPS_RESET] = "RI    X", [IBV_QPS_INIT] = "RIT   X",
	[IBV_QPS_RTR] = "R  S  X",   [IBV_QPS_RTS] = "R  SD X",
	[IBV_QPS_SQD] = "R  SD X",   [IBV_QPS_SQE] = "R     X",
	[IBV_QPS_ERR] = "R     X",
};

static const int required[7] = {
	[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	[IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER,
	[IBV_QPS_RTS] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
};

static struct ibv_qp_attr attr_to(enum ibv_qp_state to)
{
	return (struct ibv_qp_attr){
		.qp_state = to,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 77,
		.rq_psn = 1234,
		.sq_psn = 4321,
		.max_rd_atomic = 3,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 5,
		.timeout = 6,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
}

static int go(struct side *s, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = attr_to(to);

	return sv_modify_qp(s->qp, &attr, IBV_QP_STATE | required[to]);
}

/* Brings a fresh QP into a state the long way round. */
static void bring(struct side *s, enum ibv_qp_state state)
{
	MUST(!go(s, IBV_QPS_RESET));
	if (state == IBV_QPS_RESET)
		return;
	if (state == IBV_QPS_ERR) {
		MUST(!go(s, IBV_QPS_ERR));
		return;
	}
	MUST(!go(s, IBV_QPS_INIT));
	if (state >= IBV_QPS_RTR)
		MUST(!go(s, IBV_QPS_RTR));
	if (state >= IBV_QPS_RTS)
		MUST(!go(s, IBV_QPS_RTS));
	/* No RC QP gets there. */
	if (state == IBV_QPS_SQE) {
		sv_qp(s->qp)->attr.qp_state = state;
		s->qp->state = state;
	}
	if (state == IBV_QPS_SQD) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };

		MUST(!sv_modify_qp(s->qp, &attr, IBV_QP_STATE));
	}
}

static bool from_running(enum ibv_qp_state from)
{
	return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
}

Test(qp, transitions)
{
	struct ibv_qp_attr attr;
	struct side s;
	int from, to, mask, err;

	side_open(&s, NULL);
	for (from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++) {
		for (to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
			bring(&s, from);
			attr = attr_to(to);
			mask = IBV_QP_STATE;
			if (!from_running(from) && !(from == IBV_QPS_INIT &&
						     to == IBV_QPS_INIT))
				mask |= required[to];
			err = sv_modify_qp(s.qp, &attr, mask);
			cr_assert_eq(err, legal[from][to] == ' ' ? EINVAL : 0,
				     "%d -> %d: %d", from, to, err);
			cr_assert_eq(s.qp->state, err ? from : to);
		}
	}
	side_close(&s);
}

/* Each required attribute is missed; one that has no place is refused. */
/*
 * Nobody would look for its peer, nor notice that there is none. It may be tried
 * again.
 */
Test(qp, no_thread_to_connect_it)
{
	struct rlimit was, limit;
	struct side s;

	side_open(&s, NULL);
	MUST(!side_init(&s));
	/* Root may have as many as there can be. */
	if (!geteuid())
		MUST(!setgid(65534) && !setuid(65534));
	MUST(!getrlimit(RLIMIT_NPROC, &was));
	limit = was;
	limit.rlim_cur = 1;
	MUST(!setrlimit(RLIMIT_NPROC, &limit));
	cr_assert_eq(side_rtr(&s, 17), EAGAIN);
	cr_assert_eq(s.qp->state, IBV_QPS_INIT);
	cr_assert_eq(side_rtr(&s, 17), EAGAIN);
	MUST(!setrlimit(RLIMIT_NPROC, &was));
	cr_assert_eq(side_rtr(&s, 17), 0);
	side_close(&s);
}

Test(qp, attribute_masks)
{
	static const enum ibv_qp_state order[] = { IBV_QPS_INIT, IBV_QPS_RTR,
						   IBV_QPS_RTS };
	struct ibv_qp_attr attr;
	struct side s;
	size_t i;
	int bit, mask;

	side_open(&s, NULL);
	for (i = 0; i < ARRAY_SIZE(order); i++) {
		attr = attr_to(order[i]);
		mask = IBV_QP_STATE | required[order[i]];
		for (bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
			if (!(required[order[i]] & bit))
				continue;
			cr_assert_eq(sv_modify_qp(s.qp, &attr, mask & ~bit),
				     EINVAL);
		}
		cr_assert_eq(sv_modify_qp(s.qp, &attr, mask | IBV_QP_QKEY),
			     EINVAL);
		cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), 0);
	}
	/* libfabric sets the timer in RTS. */
	attr.min_rnr_timer = 12;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
	attr.cur_qp_state = IBV_QPS_RTR;
	attr.qp_state = IBV_QPS_RTS;
	cr_assert_eq(sv_modify_qp(s.qp, &attr,
				  IBV_QP_STATE | IBV_QP_CUR_STATE),
		     EINVAL);
	side_close(&s);
}

Test(qp, attribute_values)
{
	struct ibv_qp_attr attr;
	struct side s;
	int mask;

	side_open(&s, NULL);
	attr = attr_to(IBV_QPS_INIT);
	mask = IBV_QP_STATE | required[IBV_QPS_INIT];
	attr.port_num = 2;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), EINVAL);
	attr.port_num = 1;
	attr.pkey_index = 1;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), EINVAL);
	attr.pkey_index = 0;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), 0);

	attr = attr_to(IBV_QPS_RTR);
	mask = IBV_QP_STATE | required[IBV_QPS_RTR];
	attr.ah_attr.is_global = 0;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), EINVAL);
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.sgid_index = SV_MAX_GID - 1;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), EINVAL);
	attr.ah_attr.grh.sgid_index = 0;
	attr.max_dest_rd_atomic = SV_MAX_RD_ATOM + 1;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), EINVAL);
	attr.max_dest_rd_atomic = 1;
	attr.path_mtu = 0;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), EINVAL);
	attr.path_mtu = IBV_MTU_256;
	cr_assert_eq(sv_modify_qp(s.qp, &attr, mask), 0);
	side_close(&s);
}

Test(qp, query_returns_what_was_set)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct side s;

	side_open(&s, &(struct side_opts){ .depth = 9, .sig_all = true });
	bring(&s, IBV_QPS_RTS);
	cr_assert_eq(sv_query_qp(s.qp, &attr, -1, &init), 0);
	cr_assert_eq(attr.qp_state, IBV_QPS_RTS);
	cr_assert_eq(attr.cur_qp_state, IBV_QPS_RTS);
	cr_assert_eq(attr.path_mtu, IBV_MTU_1024);
	cr_assert_eq(attr.dest_qp_num, 77);
	cr_assert_eq(attr.rq_psn, 1234);
	cr_assert_eq(attr.sq_psn, 4321);
	cr_assert_eq(attr.max_rd_atomic, 3);
	cr_assert_eq(attr.max_dest_rd_atomic, 4);
	cr_assert_eq(attr.timeout, 6);
	cr_assert_eq(attr.cap.max_send_wr, 9);
	cr_assert_eq(init.send_cq, s.scq);
	cr_assert_eq(init.sq_sig_all, 1);
	side_close(&s);
}

/* ---- posting ---- */

Test(qp, posting_needs_the_right_state)
{
	static const struct {
		enum ibv_qp_state state;
		int recv;
		int send;
	} want[] = {
		{ IBV_QPS_RESET, EINVAL, EINVAL }, { IBV_QPS_INIT, 0, EINVAL },
		{ IBV_QPS_RTR, 0, EINVAL },	   { IBV_QPS_RTS, 0, 0 },
		{ IBV_QPS_SQD, 0, 0 },		   { IBV_QPS_ERR, 0, 0 },
	};
	static char buf[64];
	struct ibv_mr *mr;
	struct side s;
	size_t i;

	side_open(&s, NULL);
	mr = side_reg(&s, buf, sizeof(buf));
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		bring(&s, want[i].state);
		cr_assert_eq(post_recv(&s, 1, mr, 0, 8), want[i].recv);
		cr_assert_eq(post(&s, (struct post){ .op = IBV_WR_SEND }),
			     want[i].send, "state %d", want[i].state);
	}
	cr_assert_eq(sv_dereg_mr(mr), 0);
	side_close(&s);
}

Test(qp, full_queue_names_the_culprit)
{
	struct ibv_send_wr wr[6], *bad_send = NULL;
	struct ibv_recv_wr rr[6], *bad_recv = NULL;
	struct side s;
	int i;

	side_open(&s, &(struct side_opts){ .depth = 4 });
	bring(&s, IBV_QPS_RTS);
	memset(wr, 0, sizeof(wr));
	memset(rr, 0, sizeof(rr));
	for (i = 0; i < 6; i++) {
		wr[i].opcode = IBV_WR_SEND;
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
		rr[i].next = i < 5 ? &rr[i + 1] : NULL;
	}
	cr_assert_eq(ibv_post_send(s.qp, wr, &bad_send), ENOMEM);
	cr_assert_eq(bad_send, &wr[4]);
	cr_assert_eq(ibv_post_recv(s.qp, rr, &bad_recv), ENOMEM);
	cr_assert_eq(bad_recv, &rr[4]);
	side_close(&s);
}

Test(qp, bad_requests_are_refused)
{
	static char buf[1024];
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_sge sge = { .addr = (uintptr_t)buf, .length = 65 };
	struct side s;

	side_open(&s, &(struct side_opts){ .inl = 64, .sges = 2 });
	bring(&s, IBV_QPS_RTS);
	wr.num_sge = 3;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), EINVAL);
	cr_assert_eq(bad, &wr);
	wr.num_sge = 1;
	wr.sg_list = &sge;
	wr.send_flags = IBV_SEND_INLINE;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), EINVAL);
	sge.length = 64;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), 0);
	wr.opcode = IBV_WR_RDMA_READ;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), EINVAL);
	wr.send_flags = 0;
	/* An atomic is eight bytes, and never inline. */
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), EINVAL);
	sge.length = 8;
	wr.send_flags = IBV_SEND_INLINE;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), EINVAL);
	wr.send_flags = 0;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), 0);
	wr.opcode = IBV_WR_TSO;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), EOPNOTSUPP);
	wr.opcode = (enum ibv_wr_opcode)77;
	cr_assert_eq(ibv_post_send(s.qp, &wr, &bad), EOPNOTSUPP);
	side_close(&s);
}

/* Posted before and after the fall: all comes back, once, in order. */
Test(qp, error_state_flushes)
{
	static char buf[64];
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct side s;
	int i;

	side_open(&s, NULL);
	mr = side_reg(&s, buf, sizeof(buf));
	bring(&s, IBV_QPS_RTS);
	for (i = 0; i < 3; i++) {
		cr_assert_eq(post_recv(&s, 10 + i, mr, 0, 8), 0);
		/* Not signalled: an error is reported all the same. */
		cr_assert_eq(post(&s, (struct post){ .id = 20 + i,
						     .op = IBV_WR_SEND }),
			     0);
	}
	cr_assert_eq(side_error(&s), 0);
	cr_assert_eq(post_recv(&s, 13, mr, 0, 8), 0);
	cr_assert_eq(post(&s, (struct post){ .id = 23, .op = IBV_WR_SEND }), 0);
	for (i = 0; i < 4; i++) {
		wc = wait_wc(s.rcq);
		cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		cr_assert_eq(wc.wr_id, 10 + i);
		cr_assert_eq(wc.qp_num, s.qp->qp_num);
		wc = wait_wc(s.scq);
		cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		cr_assert_eq(wc.wr_id, 20 + i);
	}
	cr_assert_eq(ibv_poll_cq(s.rcq, 1, &wc), 0);
	cr_assert_eq(ibv_poll_cq(s.scq, 1, &wc), 0);
	cr_assert_eq(sv_dereg_mr(mr), 0);
	side_close(&s);
}

Test(qp, destruction_takes_its_completions_along)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct side s, t;
	struct ibv_wc wc;

	side_open(&s, &(struct side_opts){ .one_cq = true });
	cr_assert_eq(sv_query_qp(s.qp, &attr, 0, &init), 0);
	t = s;
	t.qp = sv_create_qp(s.pd, &init);
	cr_assert_not_null(t.qp);
	cr_assert_eq(side_error(&s) || side_error(&t), 0);
	post(&s, (struct post){ .id = 1, .op = IBV_WR_SEND });
	post(&t, (struct post){ .id = 2, .op = IBV_WR_SEND });
	post(&s, (struct post){ .id = 3, .op = IBV_WR_SEND });
	post(&t, (struct post){ .id = 4, .op = IBV_WR_SEND });
	cr_assert_eq(sv_destroy_qp(s.qp), 0);
	s.qp = t.qp;
	cr_assert_eq(wait_wc(s.scq).wr_id, 2);
	cr_assert_eq(wait_wc(s.scq).wr_id, 4);
	cr_assert_eq(ibv_poll_cq(s.scq, 1, &wc), 0);
	side_close(&s);
}

/* Slots come back when the completion is polled, not before. */
Test(qp, slots_return_with_the_poll)
{
	struct ibv_wc wc;
	struct side s;

	side_open(&s, &(struct side_opts){ .depth = 1 });
	cr_assert_eq(side_error(&s), 0);
	cr_assert_eq(post(&s, (struct post){ .op = IBV_WR_SEND }), 0);
	cr_assert_eq(post(&s, (struct post){ .op = IBV_WR_SEND }), ENOMEM);
	cr_assert_eq(ibv_poll_cq(s.scq, 1, &wc), 1);
	cr_assert_eq(post(&s, (struct post){ .op = IBV_WR_SEND }), 0);
	side_close(&s);
}
