/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The application at the other end of a fuzzed link: one queue pair, three regions,
 * and what it does by itself (post, poll), driven by the input. What it may rely
 * on, whatever the peer does, is checked here:
 *
 *	memory that no key opens stays as it is; each receive completes once, in
 *	order, and is no longer than its buffers; everything is back once the
 *	queue pair is in the error state.
 *
 * The queue pair is used again for each input: as good as new, without the cost of
 * making it anew.
 */
#ifndef FUZZ_APP_H
#define FUZZ_APP_H

#include "../unit/softverbs/side.h"
#include "fuzz.h"

enum {
	APP_BUF_LEN = 16384,
	APP_RECV_MAX = 64,
	APP_WINDOW_LEN = 64,
	APP_PEER_QPN = 0x123456,
};

struct app {
	struct side side;
	struct ibv_mr *open;		/* for everybody */
	struct ibv_mr *own;		/* no remote rights, never posted; but */
	struct ibv_mw *window;		/* may be bound to its beginning, as */
	uint32_t window_key;
	bool bound;			/* or was, and was invalidated */
	struct ibv_mr *readable;	/* no write, local or remote */
	struct ibv_qp_attr attr;
	uint32_t recvs;
	uint32_t recv_len[APP_RECV_MAX];
	uint32_t recvs_done;
};

static inline struct ibv_mr *app_mr(struct app *app, int access)
{
	char *buf = calloc(1, APP_BUF_LEN);
	struct ibv_mr *mr;

	FUZZ_CHECK(buf);
	mr = sv_reg_mr(app->side.pd, buf, APP_BUF_LEN, access);
	FUZZ_CHECK(mr);
	return mr;
}

static inline void app_window(struct app *app)
{
	app->window = ibv_alloc_mw(app->side.pd, IBV_MW_TYPE_2);
	FUZZ_CHECK(app->window);
	app->window_key = ibv_inc_rkey(app->window->rkey);
}

/* The queue pair is in INIT then, and wants a link. srq: its receives are those of
 * a shared receive queue, which nobody shares. */
static inline void app_open(struct app *app, bool srq)
{
	side_open(&app->side, &(struct side_opts){
		.cqe = 256,
		.inl = 64,
		.srq_wr = srq ? APP_RECV_MAX : 0,
	});
	app->open = app_mr(app, IBV_ACCESS_LOCAL_WRITE |
				IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC);
	app->own = app_mr(app, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	app_window(app);
	app->readable = app_mr(app, IBV_ACCESS_REMOTE_READ);
	FUZZ_CHECK(!side_init(&app->side));
}

static inline void app_link(struct app *app, struct sv_link *link)
{
	struct ibv_qp_init_attr init;

	FUZZ_CHECK(!sv_qp_attach_link(sv_qp(app->side.qp), link));
	FUZZ_CHECK(!side_rtr(&app->side, APP_PEER_QPN) && !side_rts(&app->side));
	FUZZ_CHECK(!sv_query_qp(app->side.qp, &app->attr, 0, &init));
}

/* Caller holds qp->lock; the link is as good as new already. */
static inline void app_renew_locked(struct app *app)
{
	struct sv_qp *qp = sv_qp(app->side.qp);

	while (app->side.srq && sv_srq_avail(qp)) {
		sv_wq_reset(&qp->rq);
		sv_srq_take(qp);
	}
	sv_lock_take(&qp->rq_lock);
	sv_wq_reset(&qp->sq);
	sv_wq_reset(&qp->rq);
	sv_lock_drop(&qp->rq_lock);
	atomic_store(&qp->rq_starved, false);
	qp->attr = app->attr;
	sv_qp_set_state(qp, IBV_QPS_RTS);
}

static inline void app_renew(struct app *app)
{
	struct sv_qp *qp = sv_qp(app->side.qp);

	sv_cq_purge(qp->scq, qp);
	sv_cq_purge(qp->rcq, qp);
	sv_async_drop(qp->ctx, qp);
	/* No lease: the engine would wake for its end. */
	atomic_store(&qp->scq->polls_armed, atomic_load(&qp->scq->polls));
	atomic_store(&qp->rcq->polls_armed, atomic_load(&qp->rcq->polls));
	app->recvs = 0;
	app->recvs_done = 0;
	if (!app->bound)
		return;
	FUZZ_CHECK(!ibv_dealloc_mw(app->window));
	memset(app->own->addr, 0, APP_WINDOW_LEN);
	app_window(app);
	app->bound = false;
}

/* ---- what a peer may name ---- */

static inline uint32_t app_key(const struct app *app, struct fuzz_in *in)
{
	switch (fuzz_u8(in) % 8) {
	case 0:
		return app->own->rkey;
	case 1:
		return app->readable->rkey;
	case 2:
		return fuzz_u32(in);
	case 3:
		return app->window_key;
	default:
		return app->open->rkey;
	}
}

static inline uint64_t app_addr(const struct app *app, struct fuzz_in *in)
{
	uint8_t which = fuzz_u8(in) % 8;

	if (which == 0)
		return (uintptr_t)app->own->addr + fuzz_u16(in);
	if (which == 1)
		return (uintptr_t)app->readable->addr + fuzz_u16(in);
	if (which == 2)
		return fuzz_u64(in);
	return (uintptr_t)app->open->addr + fuzz_u16(in) % APP_BUF_LEN;
}

/* ---- steps ---- */

static inline void app_post_recv(struct app *app, struct fuzz_in *in)
{
	struct side *side = &app->side;
	struct ibv_recv_wr *bad;
	struct ibv_sge sge[4];
	struct ibv_recv_wr wr = { .wr_id = app->recvs, .sg_list = sge };
	const struct ibv_mr *mr;
	uint32_t sum = 0;
	uint8_t how;
	int i;

	if (app->recvs == APP_RECV_MAX)
		return;
	how = fuzz_u8(in);
	mr = how & 0x80 ? app->readable : app->open;
	wr.num_sge = (how & 0x7f) % 5;
	for (i = 0; i < wr.num_sge; i++) {
		/* Up to the end of the allocation. */
		sge[i].length = fuzz_u8(in) * 16;
		sge[i].addr = (uintptr_t)mr->addr + APP_BUF_LEN - sge[i].length;
		sge[i].lkey = mr->lkey;
		sum += sge[i].length;
	}
	if (side->srq ? !ibv_post_srq_recv(side->srq, &wr, &bad) :
			!ibv_post_recv(side->qp, &wr, &bad))
		app->recv_len[app->recvs++] = sum;
}

/* To the peer's memory at raddr, with one of its keys 0 .. 3. */
static inline void app_post_send(struct app *app, struct fuzz_in *in,
				 uint64_t raddr)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV,
	};
	uint8_t how = fuzz_u8(in);
	int cnt = how & 0x80 ? 20 : 1;
	struct post p = {
		.id = how,
		.op = ops[(how & 0x3f) % ARRAY_SIZE(ops)],
		.flags = fuzz_u8(in) & (IBV_SEND_SIGNALED | IBV_SEND_FENCE |
					IBV_SEND_SOLICITED | IBV_SEND_INLINE),
		.mr = how & 0x40 ? app->readable : app->open,
		.len = fuzz_u16(in) % APP_BUF_LEN,
		.raddr = raddr + fuzz_u8(in),
		.rkey = (fuzz_u8(in) % 4) << 8, /* index 0 to 3 */
	};

	if (p.op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    p.op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		p.len = 8;
	while (cnt-- && !post(&app->side, p))
		;
}

static inline void app_bind(struct app *app)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {
			.mw = app->window,
			.rkey = app->window_key,
			.bind_info = {
				.mr = app->own,
				.addr = (uintptr_t)app->own->addr,
				.length = APP_WINDOW_LEN,
				.mw_access_flags = IBV_ACCESS_REMOTE_WRITE |
						   IBV_ACCESS_REMOTE_READ,
			},
		},
	};
	struct ibv_send_wr *bad;

	if (!ibv_post_send(app->side.qp, &wr, &bad))
		app->bound = true;
}

static inline void app_take(struct app *app, const struct ibv_wc *wc)
{
	FUZZ_CHECK(wc->qp_num == app->side.qp->qp_num);
	FUZZ_CHECK(wc->wr_id == app->recvs_done);
	FUZZ_CHECK(app->recvs_done < app->recvs);
	if (wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV)
		FUZZ_CHECK(wc->byte_len <= app->recv_len[wc->wr_id]);
	app->recvs_done++;
}

static inline void app_poll(struct app *app)
{
	struct ibv_wc wc[16];
	int cnt;
	int i;

	cnt = ibv_poll_cq(app->side.rcq, ARRAY_SIZE(wc), wc);
	for (i = 0; i < cnt; i++)
		app_take(app, &wc[i]);
	cnt = ibv_poll_cq(app->side.scq, ARRAY_SIZE(wc), wc);
	FUZZ_CHECK(cnt >= 0);
}

/* What the engine does when it is woken. */
static inline void app_bell(struct sv_link *link)
{
	sv_lock_take(&link->qp->lock);
	link->ops->progress(link);
	link->ops->rearm(link);
	sv_lock_drop(&link->qp->lock);
}

/* Every deadline that is set has passed. */
static inline void app_timeout(struct sv_link *link, uint64_t *rnr_due_ns)
{
	sv_lock_take(&link->qp->lock);
	*rnr_due_ns = *rnr_due_ns ? 1 : 0;
	link->gone_due_ns = link->gone_due_ns ? 1 : 0;
	link->ops->timeout(link);
	sv_lock_drop(&link->qp->lock);
}

static inline void app_modify(struct app *app, struct fuzz_in *in)
{
	struct ibv_qp_attr attr = {
		.qp_state = fuzz_u8(in) & 1 ? IBV_QPS_RTS : IBV_QPS_SQD,
	};

	sv_modify_qp(app->side.qp, &attr, IBV_QP_STATE);
}

/* ---- the end ---- */

static inline bool app_mr_clean(const struct ibv_mr *mr, size_t from)
{
	const char *p = (const char *)mr->addr + from;

	return !p[0] && !memcmp(p, p + 1, mr->length - from - 1);
}

static inline void app_finish(struct app *app)
{
	uint32_t untaken = 0;
	uint32_t before;

	app_poll(app);
	FUZZ_CHECK(!side_error(&app->side));
	do {
		before = app->recvs_done;
		app_poll(app);
	} while (app->recvs_done != before);
	if (app->side.srq)
		untaken = sv_srq_avail(sv_qp(app->side.qp));
	FUZZ_CHECK(app->recvs_done + untaken == app->recvs);
	FUZZ_CHECK(app_mr_clean(app->own, app->bound ? APP_WINDOW_LEN : 0));
	FUZZ_CHECK(app_mr_clean(app->readable, 0));
}

#endif
