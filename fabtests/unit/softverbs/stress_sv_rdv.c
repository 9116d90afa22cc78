/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs that ibv_modify_qp connects, many at a time: threads join pairs in
 * any order, use them, and tear them down at any point. Without Criterion, which
 * the thread sanitizer cannot follow.
 */
#include "side.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>

enum {
	THREADS = 4,
	ROUNDS = 40,
	LEN = 256,
};

struct worker {
	pthread_t thread;
	unsigned int seed;
	char from[LEN];
	char to[LEN];
};

static union ibv_gid gid;
static uint8_t gid_index;

static void find_gid(void)
{
	struct sockaddr_in lo = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int index = sv_dev_gid_index((struct sockaddr *)&lo);
	struct ibv_context *ctx = sv_ctx_shared(sv_dev_by_name("softverbs0"));
	struct ibv_gid_entry entry;

	MUST(index >= 0 && ctx);
	MUST(!sv_query_gid_ex(ctx, 1, (uint32_t)index, &entry, 0));
	gid = entry.gid;
	gid_index = (uint8_t)index;
}

static void connect_side(struct side *s, const struct side *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = peer->qp->qp_num & 0xfff,
		.max_dest_rd_atomic = 1,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = gid, .sgid_index = gid_index },
		},
	};

	MUST(!side_init(s));
	MUST(!sv_modify_qp(s->qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 20,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = s->qp->qp_num & 0xfff,
		.max_rd_atomic = 1,
	};
	MUST(!sv_modify_qp(s->qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC));
}

static void talk(struct worker *w, struct side *a, struct side *b)
{
	struct ibv_mr *ma = side_reg(a, w->from, LEN);
	struct ibv_mr *mb = side_reg(b, w->to, LEN);

	fill(w->from, LEN, w->seed);
	MUST(!post_recv(b, 1, mb, 0, LEN));
	MUST(!post(a, (struct post){ .op = IBV_WR_SEND,
				     .flags = IBV_SEND_SIGNALED,
				     .mr = ma,
				     .len = LEN }));
	MUST(wait_wc(a->scq).status == IBV_WC_SUCCESS);
	MUST(wait_wc(b->rcq).status == IBV_WC_SUCCESS);
	MUST(filled(w->to, LEN, w->seed));
	MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct side s[2];
	int i;

	for (i = 0; i < ROUNDS; i++) {
		unsigned int how = (unsigned int)rand_r(&w->seed);
		struct side *a = &s[how & 1], *b = &s[!(how & 1)];

		side_open(&s[0], NULL);
		side_open(&s[1], NULL);
		connect_side(a, b);
		if (how & 2)
			usleep(how >> 8 & 0xfff);
		connect_side(b, a);
		if (how & 4)
			talk(w, how & 8 ? a : b, how & 8 ? b : a);
		else
			usleep(how >> 20);
		side_close(how & 16 ? a : b);
		side_close(how & 16 ? b : a);
	}
	return NULL;
}

int main(void)
{
	static struct worker workers[THREADS];
	uint64_t start_ns = sv_now_ns();
	int i;

	alarm(300);
	find_gid();
	for (i = 0; i < THREADS; i++) {
		workers[i].seed = (unsigned int)i + 1;
		MUST(!pthread_create(&workers[i].thread, NULL, worker_main,
				     &workers[i]));
	}
	for (i = 0; i < THREADS; i++)
		MUST(!pthread_join(workers[i].thread, NULL));
	printf("%d pairs in %d threads: %u ms\n", THREADS * ROUNDS, THREADS,
	       (unsigned int)((sv_now_ns() - start_ns) / 1000000));
	return 0;
}
