/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Sides whose queue pairs ibv_modify_qp alone connects.
 */
#ifndef RDV_H
#define RDV_H

#include "side.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <criterion/criterion.h>

enum { BUF = 1 << 16 };

/* Whom a queue pair is told to connect to. */
struct whom {
	uint32_t qpn;
	uint32_t psn; /* it sends from; and what it expects to be sent from */
	const char *addr;
	uint8_t timeout; /* 0: 10 */
};

static char abuf[BUF], bbuf[BUF];

static inline int gid_index(const char *addr, union ibv_gid *gid)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct ibv_gid_entry entry;
	struct ibv_context *ctx;
	int index;

	if (inet_pton(AF_INET, addr, &v4.sin_addr) == 1)
		index = sv_dev_gid_index((struct sockaddr *)&v4);
	else if (inet_pton(AF_INET6, addr, &v6.sin6_addr) == 1)
		index = sv_dev_gid_index((struct sockaddr *)&v6);
	else
		abort();
	if (index < 0)
		return -1;
	ctx = sv_ctx_shared(sv_dev_by_name("softverbs0"));
	MUST(ctx && !sv_query_gid_ex(ctx, 1, index, &entry, 0));
	*gid = entry.gid;
	return index;
}

static inline int to_rtr(struct side *s, struct whom to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to.qpn,
		.rq_psn = to.psn,
		.max_dest_rd_atomic = s->rd_in,
		.min_rnr_timer = s->rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	int index = gid_index(to.addr ? to.addr : "127.0.0.1",
			      &attr.ah_attr.grh.dgid);

	MUST(index >= 0);
	attr.ah_attr.grh.sgid_index = index;
	return sv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
}

static inline int to_rts(struct side *s, struct whom to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = to.timeout ? to.timeout : 10,
		.retry_cnt = 1,
		.rnr_retry = 7,
		.sq_psn = to.psn,
		.max_rd_atomic = s->rd_out,
	};

	return sv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC);
}

static inline void up(struct side *s, struct whom to)
{
	MUST(!side_init(s) && !to_rtr(s, to) && !to_rts(s, to));
}

static inline void reset(struct side *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	MUST(!sv_modify_qp(s->qp, &attr, IBV_QP_STATE));
}

static inline enum ibv_qp_state state_of(struct side *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(!sv_query_qp(s->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static inline struct whom whom(const struct side *s)
{
	return (struct whom){ .qpn = s->qp->qp_num, .psn = 0x123456 };
}

static inline void send_one(struct side *s, struct ibv_mr *mr, uint32_t len)
{
	MUST(!post(s, (struct post){ .id = 1,
				     .op = IBV_WR_SEND,
				     .flags = IBV_SEND_SIGNALED,
				     .mr = mr,
				     .len = len }));
}

static inline enum ibv_wc_status sent(struct side *s)
{
	return wait_wc(s->scq).status;
}

/* A message from one to the other, whoever they are. */
static inline void talk(struct side *from, struct side *to, unsigned int seed)
{
	struct ibv_mr *mf = side_reg(from, abuf, BUF);
	struct ibv_mr *mt = side_reg(to, bbuf, BUF);
	struct ibv_wc wc;

	fill(abuf, 1000, seed);
	MUST(!post_recv(to, 7, mt, 0, BUF));
	send_one(from, mf, 1000);
	cr_assert_eq(sent(from), IBV_WC_SUCCESS);
	wc = wait_wc(to->rcq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.byte_len, 1000);
	cr_assert(filled(bbuf, 1000, seed));
	MUST(!sv_dereg_mr(mf) && !sv_dereg_mr(mt));
}

static inline void nap_ms(int ms)
{
	poll(NULL, 0, ms);
}

#endif
