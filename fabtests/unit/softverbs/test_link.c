/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two QPs joined in one process: what arrives, in which order, and what
 * happens when something is wrong. Each test of data runs twice, with direct
 * access to the peer's memory and with everything through the rings.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/mman.h>

TestSuite(link, .timeout = 120);

enum { BUF = 3 << 20 };

struct pair {
	struct side a, b;
	struct ibv_mr *ma, *mb;
	char *abuf, *bbuf;
};

static void setup(struct pair *p, bool direct, const struct side_opts *opts)
{
	side_direct(direct);
	side_open(&p->a, opts);
	side_open(&p->b, opts);
	MUST((p->abuf = malloc(BUF)) && (p->bbuf = malloc(BUF)));
	p->ma = side_reg(&p->a, p->abuf, BUF);
	p->mb = side_reg(&p->b, p->bbuf, BUF);
	pair_up(&p->a, &p->b);
	if (!SIDE_IS_TCP)
		cr_assert_eq(sv_shm(sv_qp(p->a.qp)->link)->cma_ok, direct);
}

static void teardown(struct pair *p)
{
	MUST(!sv_dereg_mr(p->ma) && !sv_dereg_mr(p->mb));
	side_close(&p->a);
	side_close(&p->b);
	free(p->abuf);
	free(p->bbuf);
}

static const uint32_t lens[] = { 0,    1,	  31,	  96,	97,   4096,
				 8192, 8193, 65536, 65537, 1 << 20, BUF };

static void send_all_lengths(bool direct)
{
	struct pair p;
	struct ibv_wc wc;
	size_t i;

	setup(&p, direct, NULL);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		fill(p.abuf, lens[i], i);
		memset(p.bbuf, 0, lens[i]);
		cr_assert_eq(post_recv(&p.b, 7 + i, p.mb, 0, BUF), 0);
		cr_assert_eq(post(&p.a, (struct post){ .id = i,
						       .op = IBV_WR_SEND_WITH_IMM,
						       .flags = IBV_SEND_SIGNALED,
						       .mr = p.ma,
						       .len = lens[i],
						       .imm = 1000 + i }),
			     0);
		wc = wait_wc(p.b.rcq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.opcode, IBV_WC_RECV);
		cr_assert_eq(wc.wr_id, 7 + i);
		cr_assert_eq(wc.byte_len, lens[i]);
		cr_assert_eq(wc.wc_flags, IBV_WC_WITH_IMM);
		cr_assert_eq(be32toh(wc.imm_data), 1000 + i);
		cr_assert_eq(wc.qp_num, p.b.qp->qp_num);
		cr_assert_eq(wc.src_qp, p.a.qp->qp_num);
		cr_assert(filled(p.bbuf, lens[i], i), "%u bytes", lens[i]);
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.opcode, IBV_WC_SEND);
		cr_assert_eq(wc.wr_id, i);
	}
	teardown(&p);
}

Test(link, send_all_lengths) { send_all_lengths(true); }
Test(link, send_all_lengths_ring) { send_all_lengths(false); }

static void rma_all_lengths(bool direct)
{
	struct pair p;
	struct ibv_wc wc;
	size_t i;

	setup(&p, direct, NULL);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		struct post w = {
			.id = i,
			.op = IBV_WR_RDMA_WRITE,
			.flags = IBV_SEND_SIGNALED,
			.mr = p.ma,
			.len = lens[i],
			.raddr = (uintptr_t)p.bbuf,
			.rkey = p.mb->rkey,
			.imm = i,
		};

		fill(p.abuf, lens[i], i);
		memset(p.bbuf, 0, BUF);
		cr_assert_eq(post(&p.a, w), 0);
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.opcode, IBV_WC_RDMA_WRITE);
		cr_assert(filled(p.bbuf, lens[i], i), "write %u", lens[i]);
		cr_assert(lens[i] == BUF || !p.bbuf[lens[i]]);

		memset(p.abuf, 0, lens[i]);
		w.op = IBV_WR_RDMA_READ;
		cr_assert_eq(post(&p.a, w), 0);
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.opcode, IBV_WC_RDMA_READ);
		cr_assert_eq(wc.byte_len, lens[i]);
		cr_assert(filled(p.abuf, lens[i], i), "read %u", lens[i]);

		memset(p.bbuf, 0, lens[i]);
		w.op = IBV_WR_RDMA_WRITE_WITH_IMM;
		cr_assert_eq(post_recv(&p.b, 9, p.mb, 0, 0), 0);
		cr_assert_eq(post(&p.a, w), 0);
		wc = wait_wc(p.b.rcq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		cr_assert_eq(wc.byte_len, lens[i]);
		cr_assert_eq(be32toh(wc.imm_data), i);
		cr_assert(filled(p.bbuf, lens[i], i), "imm %u", lens[i]);
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	}
	teardown(&p);
}

Test(link, rma_all_lengths) { rma_all_lengths(true); }
Test(link, rma_all_lengths_ring) { rma_all_lengths(false); }

/* Scattered at both ends, pieces of odd sizes, some empty. */
static void scatter_gather(bool direct, size_t unit)
{
	const size_t out[4] = { 3 * unit, 0, 7 * unit + 1, unit };
	const size_t in[4] = { unit + 5, 9 * unit, 0, 2 * unit };
	size_t total = out[0] + out[1] + out[2] + out[3], off = 0, i;
	struct ibv_sge so[4], si[4];
	struct ibv_send_wr wr = { .sg_list = so,
				  .num_sge = 4,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_recv_wr rr = { .sg_list = si, .num_sge = 4 }, *rbad;
	struct pair p;
	char *all;

	setup(&p, direct, NULL);
	all = malloc(total);
	fill(all, total, 5);
	for (i = 0; i < 4; i++) {
		size_t at = i * (BUF / 4) + 13;

		so[i] = (struct ibv_sge){ (uintptr_t)p.abuf + at, out[i],
					  p.ma->lkey };
		si[i] = (struct ibv_sge){ (uintptr_t)p.bbuf + at, in[i],
					  p.mb->lkey };
		memcpy(p.abuf + at, all + off, out[i]);
		off += out[i];
	}
	cr_assert_eq(ibv_post_recv(p.b.qp, &rr, &rbad), 0);
	cr_assert_eq(ibv_post_send(p.a.qp, &wr, &bad), 0);
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, total);
	for (i = 0, off = 0; i < 4 && off < total; i++) {
		size_t n = min_size(in[i], total - off);

		cr_assert_eq(memcmp((void *)(uintptr_t)si[i].addr, all + off,
				    n),
			     0);
		off += n;
	}
	cr_assert_eq(off, total);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	free(all);
	teardown(&p);
}

Test(link, scatter_gather_slot) { scatter_gather(true, 5); }
Test(link, scatter_gather_data) { scatter_gather(true, 300); }
Test(link, scatter_gather_pull) { scatter_gather(true, 30000); }
Test(link, scatter_gather_pieces) { scatter_gather(false, 30000); }

Test(link, inline_data_is_taken_at_once)
{
	const uint32_t sizes[] = { 1, 64, 96, 97, 512 };
	struct pair p;
	size_t i;

	setup(&p, true, &(struct side_opts){ .inl = SV_MAX_INLINE });
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct post w = { .op = IBV_WR_SEND,
				  .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
				  .mr = p.ma,
				  .len = sizes[i] };

		fill(p.abuf, sizes[i], i);
		/* Without a receive the message has to wait. */
		cr_assert_eq(post(&p.a, w), 0);
		memset(p.abuf, 0xee, sizes[i]);
		cr_assert_eq(post_recv(&p.b, 1, p.mb, 0, 4096), 0);
		cr_assert_eq(wait_wc(p.b.rcq).byte_len, sizes[i]);
		cr_assert(filled(p.bbuf, sizes[i], i));
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);

		fill(p.abuf, sizes[i], i + 1);
		w.op = IBV_WR_RDMA_WRITE;
		w.raddr = (uintptr_t)p.bbuf;
		w.rkey = p.mb->rkey;
		cr_assert_eq(post(&p.a, w), 0);
		memset(p.abuf, 0xee, sizes[i]);
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
		cr_assert(filled(p.bbuf, sizes[i], i + 1));
	}
	teardown(&p);
}

/* ---- order and flow ---- */

/* More than the ring holds, with receives coming late and in small lots. */
static void stream(bool direct, uint32_t len, int cnt)
{
	int sent = 0, got = 0, recvs = 0, done = 0, i;
	struct ibv_wc wc[16];
	struct pair p;
	uint64_t until = sv_now_ns() + 60 * 1000000000ull;

	setup(&p, direct, &(struct side_opts){ .depth = 256 });
	while (got < cnt || done < cnt) {
		MUST(sv_now_ns() < until);
		for (i = 0; i < 200 && sent < cnt; i++) {
			/* Sent bytes carry the number of the message. */
			uint32_t *at = (void *)(p.abuf + (sent % 256) * len);

			if (sent - done >= 256)
				break;
			at[0] = sent;
			at[len / 4 - 1] = ~sent;
			MUST(!post(&p.a,
				   (struct post){ .id = sent,
						  .op = IBV_WR_SEND,
						  .flags = IBV_SEND_SIGNALED,
						  .mr = p.ma,
						  .off = (sent % 256) * len,
						  .len = len }));
			sent++;
		}
		for (i = 0; i < 37 && recvs < cnt && recvs - got < 256;
		     i++, recvs++)
			MUST(!post_recv(&p.b, recvs, p.mb,
					(recvs % 256) * len, len));
		int n = ibv_poll_cq(p.b.rcq, 16, wc);

		for (i = 0; i < n; i++, got++) {
			uint32_t *at = (void *)(p.bbuf + (got % 256) * len);

			cr_assert_eq(wc[i].status, IBV_WC_SUCCESS);
			cr_assert_eq(wc[i].wr_id, got);
			cr_assert_eq(at[0], got);
			cr_assert_eq(at[len / 4 - 1], ~got);
		}
		n = ibv_poll_cq(p.a.scq, 16, wc);
		for (i = 0; i < n; i++, done++) {
			cr_assert_eq(wc[i].status, IBV_WC_SUCCESS);
			cr_assert_eq(wc[i].wr_id, done);
		}
	}
	teardown(&p);
}

Test(link, stream_small) { stream(true, 64, 20000); }
Test(link, stream_data) { stream(true, 1000, 20000); }
Test(link, stream_pull) { stream(true, 12000, 3000); }
Test(link, stream_pieces) { stream(false, 12000, 3000); }

/* Not signalled: silent, and the next signalled one gives the slots back. */
Test(link, unsignalled)
{
	struct pair p;
	struct ibv_wc wc;
	int i;

	setup(&p, true, &(struct side_opts){ .depth = 8 });
	for (i = 0; i < 1000; i++) {
		cr_assert_eq(post_recv(&p.b, i, p.mb, 0, 64), 0);
		cr_assert_eq(post(&p.a, (struct post){
						.id = i,
						.op = IBV_WR_SEND,
						.flags = i % 8 == 7 ?
							 IBV_SEND_SIGNALED :
							 0,
						.mr = p.ma,
						.len = 64 }),
			     0);
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
		if (i % 8 == 7) {
			cr_assert_eq(wait_wc(p.a.scq).wr_id, i);
			cr_assert_eq(ibv_poll_cq(p.a.scq, 1, &wc), 0);
		}
	}
	teardown(&p);
}

/* A write waits behind a send that has no receive; with one, it may go. */
Test(link, write_does_not_pass_an_unaccepted_send)
{
	struct pair p;
	struct ibv_wc wc;
	struct post w;

	setup(&p, true, NULL);
	p.abuf[0] = 'x';
	p.bbuf[100] = 0;
	cr_assert_eq(post(&p.a, (struct post){ .id = 1,
					       .op = IBV_WR_SEND,
					       .flags = IBV_SEND_SIGNALED,
					       .mr = p.ma,
					       .len = 1 }),
		     0);
	w = (struct post){ .id = 2,
			   .op = IBV_WR_RDMA_WRITE,
			   .flags = IBV_SEND_SIGNALED,
			   .mr = p.ma,
			   .len = 1,
			   .raddr = (uintptr_t)p.bbuf + 100,
			   .rkey = p.mb->rkey };
	cr_assert_eq(post(&p.a, w), 0);
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 50));
	cr_assert_not(wait_wc_ms(p.b.rcq, &wc, 1));
	cr_assert_eq(p.bbuf[100], 0);
	cr_assert_eq(post_recv(&p.b, 1, p.mb, 0, 64), 0);
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 1);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 2);
	cr_assert_eq(p.bbuf[100], 'x');
	teardown(&p);
}

/* What a send carried is seen by a read behind it. */
static void read_after_send(bool direct)
{
	struct pair p;
	int i;

	setup(&p, direct, NULL);
	for (i = 0; i < 200; i++) {
		fill(p.abuf, 4000, i);
		memset(p.abuf + 5000, 0, 4000);
		cr_assert_eq(post_recv(&p.b, i, p.mb, 0, 4000), 0);
		cr_assert_eq(post(&p.a, (struct post){ .op = IBV_WR_SEND,
						       .mr = p.ma,
						       .len = 4000 }),
			     0);
		cr_assert_eq(post(&p.a,
				  (struct post){ .op = IBV_WR_RDMA_READ,
						 .flags = IBV_SEND_SIGNALED |
							  IBV_SEND_FENCE,
						 .mr = p.ma,
						 .off = 5000,
						 .len = 4000,
						 .raddr = (uintptr_t)p.bbuf,
						 .rkey = p.mb->rkey }),
			     0);
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
		cr_assert(filled(p.abuf + 5000, 4000, i));
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
	}
	teardown(&p);
}

Test(link, read_after_send) { read_after_send(true); }
Test(link, read_after_send_ring) { read_after_send(false); }

/* ---- what is wrong ---- */

static void expect_flushed(struct side *s, struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc = wait_wc(cq);

	cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(wc.wr_id, id);
	cr_assert_eq(wc.qp_num, s->qp->qp_num);
}

static void expect_async(struct side *s, enum ibv_event_type type)
{
	struct ibv_async_event event;

	cr_assert_eq(sv_get_async_event(s->ctx, &event), 0);
	cr_assert_eq(event.event_type, type);
	cr_assert_eq(event.element.qp, s->qp);
	sv_ack_async_event(&event);
}

static void too_long(bool direct, uint32_t len)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, direct, NULL);
	memset(p.bbuf, 0, BUF);
	post_recv(&p.b, 1, p.mb, 0, len - 1);
	post_recv(&p.b, 2, p.mb, 0, BUF);
	post(&p.a, (struct post){ .id = 3,
				  .op = IBV_WR_SEND,
				  .mr = p.ma,
				  .len = len });
	post(&p.a, (struct post){ .id = 4, .op = IBV_WR_SEND });
	wc = wait_wc(p.b.rcq);
	cr_assert_eq(wc.status, IBV_WC_LOC_LEN_ERR);
	cr_assert_eq(wc.wr_id, 1);
	expect_flushed(&p.b, p.b.rcq, 2);
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_REM_INV_REQ_ERR);
	cr_assert_eq(wc.wr_id, 3);
	expect_flushed(&p.a, p.a.scq, 4);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	cr_assert_eq(p.b.qp->state, IBV_QPS_ERR);
	cr_assert_eq(p.bbuf[len - 1], 0);
	teardown(&p);
}

Test(link, too_long_slot) { too_long(true, 50); }
Test(link, too_long_data) { too_long(true, 5000); }
Test(link, too_long_pull) { too_long(true, 50000); }
Test(link, too_long_pieces) { too_long(false, 50000); }

/* A key or a range that is not the peer's to use. */
struct bad_rma {
	enum ibv_wr_opcode op;
	int mr_access;
	int qp_access;
	int64_t off;
	uint32_t len;
	uint32_t key_flip;
	bool other_pd;
};

static void bad_rma(bool direct, const struct bad_rma *c)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	struct ibv_wc wc;
	struct pair p;

	setup(&p, direct,
	      &(struct side_opts){ .access = c->qp_access ? c->qp_access :
							    all });
	pd = c->other_pd ? sv_alloc_pd(p.b.ctx) : p.b.pd;
	mr = sv_reg_mr(pd, p.bbuf, 4096, c->mr_access ? c->mr_access : all);
	cr_assert_not_null(mr);
	memset(p.bbuf, 0, BUF);
	memset(p.abuf, 'w', BUF);
	post_recv(&p.b, 9, p.mb, 0, 64);
	post(&p.a, (struct post){ .id = 1,
				  .op = c->op,
				  .mr = p.ma,
				  .len = c->len,
				  .raddr = (uintptr_t)p.bbuf + c->off,
				  .rkey = mr->rkey ^ c->key_flip });
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR, "status %d", wc.status);
	cr_assert_eq(wc.wr_id, 1);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	expect_flushed(&p.b, p.b.rcq, 9);
	expect_async(&p.b, IBV_EVENT_QP_ACCESS_ERR);
	cr_assert_eq(p.b.qp->state, IBV_QPS_ERR);
	cr_assert_eq(p.bbuf[0], 0);
	MUST(!sv_dereg_mr(mr));
	if (c->other_pd)
		MUST(!sv_dealloc_pd(pd));
	teardown(&p);
}

static const struct bad_rma bad_cases[] = {
	{ IBV_WR_RDMA_WRITE, .off = 4090, .len = 7 },
	{ IBV_WR_RDMA_WRITE, .off = -1, .len = 4 },
	{ IBV_WR_RDMA_WRITE, .len = 4, .key_flip = 1u << 30 },
	{ IBV_WR_RDMA_WRITE, .len = 4, .other_pd = true },
	{ IBV_WR_RDMA_WRITE, .len = 4,
	  .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ },
	{ IBV_WR_RDMA_WRITE, .len = 4, .qp_access = IBV_ACCESS_REMOTE_READ },
	{ IBV_WR_RDMA_WRITE, .len = 2 << 20 },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, .off = 4090, .len = 7 },
	{ IBV_WR_RDMA_READ, .off = 4090, .len = 7 },
	{ IBV_WR_RDMA_READ, .len = 4,
	  .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
	{ IBV_WR_RDMA_READ, .len = 4, .qp_access = IBV_ACCESS_REMOTE_WRITE },
};

Test(link, rma_without_the_right)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad_cases); i++)
		bad_rma(true, &bad_cases[i]);
}

Test(link, rma_without_the_right_ring)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad_cases); i++)
		/* Through the ring the part before the fault is written. */
		if (bad_cases[i].len < 1 << 20)
			bad_rma(false, &bad_cases[i]);
}

/* The memory was registered, but is no longer: nothing happens to it. */
Test(link, write_to_deregistered)
{
	struct pair p;
	struct ibv_mr *mr;
	struct post w;

	setup(&p, true, NULL);
	mr = side_reg(&p.b, p.bbuf, 4096);
	w = (struct post){ .op = IBV_WR_RDMA_WRITE,
			   .flags = IBV_SEND_SIGNALED,
			   .mr = p.ma,
			   .len = 4,
			   .raddr = (uintptr_t)p.bbuf,
			   .rkey = mr->rkey };
	post(&p.a, w);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	MUST(!sv_dereg_mr(mr));
	post(&p.a, w);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_REM_ACCESS_ERR);
	teardown(&p);
}

/* Earlier work completes well first, later work is flushed: in order. */
Test(link, error_in_the_middle)
{
	struct pair p;
	struct ibv_wc wc;
	int i;

	setup(&p, true, NULL);
	for (i = 0; i < 3; i++) {
		post_recv(&p.b, i, p.mb, 0, 64);
		post(&p.a, (struct post){ .id = i,
					  .op = IBV_WR_SEND,
					  .flags = IBV_SEND_SIGNALED,
					  .mr = p.ma,
					  .len = 8 });
	}
	post(&p.a, (struct post){ .id = 3,
				  .op = IBV_WR_RDMA_WRITE,
				  .mr = p.ma,
				  .len = 8,
				  .raddr = 4096,
				  .rkey = 12345 });
	post(&p.a, (struct post){ .id = 4, .op = IBV_WR_SEND });
	for (i = 0; i < 3; i++) {
		wc = wait_wc(p.b.rcq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, i);
	}
	for (i = 0; i < 3; i++) {
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, i);
	}
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
	cr_assert_eq(wc.wr_id, 3);
	expect_flushed(&p.a, p.a.scq, 4);
	teardown(&p);
}

Test(link, bad_local_key)
{
	struct pair p;
	struct ibv_mr fake;

	setup(&p, true, NULL);
	fake = *p.ma;
	fake.lkey ^= 1u << 29;
	post_recv(&p.b, 1, p.mb, 0, 64);
	post(&p.a, (struct post){ .id = 5,
				  .op = IBV_WR_SEND,
				  .mr = &fake,
				  .len = 8 });
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_LOC_PROT_ERR);
	teardown(&p);
}

Test(link, bad_local_key_of_a_receive)
{
	struct pair p;
	struct ibv_mr fake;

	setup(&p, true, NULL);
	fake = *p.mb;
	fake.lkey ^= 1u << 29;
	post_recv(&p.b, 1, &fake, 0, 64);
	post(&p.a, (struct post){ .id = 5,
				  .op = IBV_WR_SEND,
				  .mr = p.ma,
				  .len = 8 });
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_LOC_PROT_ERR);
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_REM_OP_ERR);
	teardown(&p);
}

/* IB: the peer's receives stay, its sends run into the retry limit. */
Test(link, peer_in_error)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, true, NULL);
	post_recv(&p.b, 1, p.mb, 0, 64);
	cr_assert_eq(side_error(&p.a), 0);
	cr_assert_not(wait_wc_ms(p.b.rcq, &wc, 50));
	cr_assert_eq(p.b.qp->state, IBV_QPS_RTS);
	post(&p.b, (struct post){ .id = 2,
				  .op = IBV_WR_SEND,
				  .mr = p.mb,
				  .len = 8 });
	wc = wait_wc(p.b.scq);
	cr_assert_eq(wc.status, IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(wc.wr_id, 2);
	expect_flushed(&p.b, p.b.rcq, 1);
	teardown(&p);
}

static void peer_destroyed(enum ibv_wr_opcode op)
{
	struct pair p;

	setup(&p, true, NULL);
	cr_assert_eq(sv_destroy_qp(p.a.qp), 0);
	p.a.qp = NULL;
	/* Without bytes, as keepalives are. */
	post(&p.b, (struct post){ .id = 2, .op = op });
	cr_assert_eq(wait_wc(p.b.scq).status, IBV_WC_RETRY_EXC_ERR);
	teardown(&p);
}

Test(link, peer_destroyed_send) { peer_destroyed(IBV_WR_SEND); }
Test(link, peer_destroyed_write) { peer_destroyed(IBV_WR_RDMA_WRITE); }

/* Posted before the link exists: goes out once it does. */
Test(link, work_waits_for_the_link)
{
	struct side a, b;
	static char abuf[64], bbuf[64];
	struct ibv_mr *ma, *mb;

	side_open(&a, NULL);
	side_open(&b, NULL);
	ma = side_reg(&a, abuf, 64);
	mb = side_reg(&b, bbuf, 64);
	MUST(!side_init(&a) && !side_rtr(&a, b.qp->qp_num) && !side_rts(&a));
	post(&a, (struct post){ .op = IBV_WR_SEND,
				.flags = IBV_SEND_SIGNALED,
				.mr = ma,
				.len = 5 });
	memcpy(abuf, "hello", 5);
	MUST(!side_init(&b));
	MUST(!post_recv(&b, 1, mb, 0, 64));
	pair_links(&a, &b, getpid());
	/* The receiver is not ready yet; the message is not lost on it. */
	MUST(!side_rtr(&b, a.qp->qp_num));
	cr_assert_eq(wait_wc(b.rcq).byte_len, 5);
	cr_assert_eq(memcmp(bbuf, "hello", 5), 0);
	cr_assert_eq(wait_wc(a.scq).status, IBV_WC_SUCCESS);
	MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
	side_close(&a);
	side_close(&b);
}

/* One completion too many: the CQ and its QP fail, memory does not. */
Test(link, cq_overrun_kills_the_qp)
{
	struct pair p;
	struct ibv_async_event event;
	struct ibv_wc wc[8];
	int i;

	setup(&p, true, &(struct side_opts){ .cqe = 4 });
	/* What connecting left to the engine is done: nothing else is. */
	usleep(50000);
	for (i = 0; i < 6; i++)
		post(&p.a, (struct post){ .op = IBV_WR_RDMA_WRITE,
					  .flags = IBV_SEND_SIGNALED });
	cr_assert_eq(sv_get_async_event(p.a.ctx, &event), 0);
	cr_assert_eq(event.event_type, IBV_EVENT_CQ_ERR);
	cr_assert_eq(event.element.cq, p.a.scq);
	sv_ack_async_event(&event);
	cr_assert_eq(ibv_poll_cq(p.a.scq, 8, wc), 4);
	expect_async(&p.a, IBV_EVENT_QP_FATAL);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	teardown(&p);
}

Test(link, drained_is_announced)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD,
				    .en_sqd_async_notify = 1 };
	struct ibv_qp_init_attr init;
	struct pair p;
	struct ibv_wc wc;

	setup(&p, true, NULL);
	post(&p.a, (struct post){ .id = 1,
				  .op = IBV_WR_SEND,
				  .flags = IBV_SEND_SIGNALED });
	cr_assert_eq(sv_modify_qp(p.a.qp, &attr,
				  IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
		     0);
	cr_assert_eq(sv_query_qp(p.a.qp, &attr, 0, &init), 0);
	cr_assert_eq(attr.sq_draining, 1);
	post(&p.a, (struct post){ .id = 2,
				  .op = IBV_WR_SEND,
				  .flags = IBV_SEND_SIGNALED });
	post_recv(&p.b, 1, p.mb, 0, 8);
	post_recv(&p.b, 2, p.mb, 0, 8);
	expect_async(&p.a, IBV_EVENT_SQ_DRAINED);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 1);
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 20));
	attr.qp_state = IBV_QPS_RTS;
	cr_assert_eq(sv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 2);
	teardown(&p);
}

/* Whether something of the first WR is out. */
static bool begun(struct sv_qp *qp)
{
	bool ret;

	sv_lock_take(&qp->lock);
	ret = qp->sq.sent || sv_sq_slot(qp, 0)->offset;
	sv_lock_drop(&qp->lock);
	return ret;
}

/* A message that is half out when the queue is drained is not left so. */
static void drained_in_the_middle(bool direct)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD,
				    .en_sqd_async_notify = 1 };
	struct ibv_qp_init_attr init;
	struct pair p;
	struct ibv_wc wc;

	setup(&p, direct, NULL);
	fill(p.abuf, BUF, 5);
	memset(p.bbuf, 0, BUF);
	/* Over TCP nothing begins that has no receive. */
	if (SIDE_IS_TCP)
		MUST(!post_recv(&p.b, 1, p.mb, 0, BUF));
	MUST(!post(&p.a, (struct post){ .id = 1,
					.op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = p.ma,
					.len = BUF }));
	MUST(!post(&p.a, (struct post){ .id = 2,
					.op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED }));
	while (SIDE_IS_TCP && !begun(sv_qp(p.a.qp)))
		sched_yield();
	MUST(!sv_modify_qp(p.a.qp, &attr,
			   IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	if (!SIDE_IS_TCP) {
		MUST(!sv_query_qp(p.a.qp, &attr, 0, &init));
		cr_assert_eq(attr.sq_draining, 1);
		cr_assert_not(wait_wc_ms(p.a.scq, &wc, 20));
		MUST(!post_recv(&p.b, 1, p.mb, 0, BUF));
	}
	MUST(!post_recv(&p.b, 2, p.mb, 0, 0));
	wc = wait_wc(p.b.rcq);
	cr_assert_eq(wc.byte_len, BUF);
	cr_assert(filled(p.bbuf, BUF, 5));
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 1);
	MUST(!sv_query_qp(p.a.qp, &attr, 0, &init));
	/* The second may have been out as well, where there was room. */
	if (!wait_wc_ms(p.a.scq, &wc, 20)) {
		expect_async(&p.a, IBV_EVENT_SQ_DRAINED);
		cr_assert_eq(attr.sq_draining, 0);
		attr.qp_state = IBV_QPS_RTS;
		MUST(!sv_modify_qp(p.a.qp, &attr, IBV_QP_STATE));
		wc = wait_wc(p.a.scq);
	} else {
		expect_async(&p.a, IBV_EVENT_SQ_DRAINED);
	}
	cr_assert_eq(wc.wr_id, 2);
	cr_assert_eq(wait_wc(p.b.rcq).byte_len, 0);
	teardown(&p);
}

Test(link, drained_in_the_middle) { drained_in_the_middle(true); }
Test(link, drained_in_the_middle_ring) { drained_in_the_middle(false); }

/* What stands behind a fence begins when the read before it is complete. */
Test(link, fence_waits_for_reads)
{
	struct pair p;

	setup(&p, false, NULL);
	fill(p.bbuf, BUF, 3);
	memset(p.abuf, 0, BUF);
	MUST(!post_recv(&p.b, 1, p.mb, 0, 0));
	MUST(!post(&p.a, (struct post){ .id = 1,
					.op = IBV_WR_RDMA_READ,
					.mr = p.ma,
					.len = BUF,
					.raddr = (uintptr_t)p.bbuf,
					.rkey = p.mb->rkey }));
	MUST(!post(&p.a, (struct post){ .id = 2,
					.op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED |
						 IBV_SEND_FENCE }));
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	cr_assert(filled(p.abuf, BUF, 3));
	cr_assert_eq(wait_wc(p.a.scq).wr_id, 2);
	teardown(&p);
}

/* Armed for what is solicited, a queue says nothing of what is not. */
Test(link, solicited_events)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	const struct side_opts opts = { .channel = true };
	struct ibv_cq *cq;
	struct pair p;
	void *context;
	size_t i;
	int turn;

	setup(&p, true, &opts);
	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		for (turn = 0; turn < 2; turn++) {
			struct pollfd pfd = { .fd = p.b.chan->fd,
					      .events = POLLIN };

			MUST(!ibv_req_notify_cq(p.b.rcq, 1));
			MUST(!post_recv(&p.b, 1, p.mb, 0, 64));
			MUST(!post(&p.a,
				   (struct post){
					   .op = ops[i],
					   .flags = turn ? IBV_SEND_SOLICITED |
								   IBV_SEND_SIGNALED :
							   IBV_SEND_SIGNALED,
					   .mr = p.ma,
					   .len = 8,
					   .raddr = (uintptr_t)p.bbuf,
					   .rkey = p.mb->rkey }));
			cr_assert_eq(poll(&pfd, 1, turn ? SIDE_WAIT_MS : 50),
				     turn, "case %zu", i);
			if (turn) {
				MUST(!sv_get_cq_event(p.b.chan, &cq, &context));
				cr_assert_eq(cq, p.b.rcq);
				sv_ack_cq_events(cq, 1);
			}
			wait_wc(p.b.rcq);
			wait_wc(p.a.scq);
		}
	}
	teardown(&p);
}

/* Through RESET and a new link the same QP works again. */
/* Withdrawing memory asks all links that stand, and no more than there are. */
Test(link, one_that_never_stood)
{
	struct sv_link *link;
	struct side c;
	struct pair p;
	int i;

	setup(&p, true, NULL);
	side_open(&c, NULL);
	/* More than stand. */
	for (i = 0; i < 3; i++) {
		MUST(!sv_shm_create(sv_qp(c.qp), &link));
		sv_link_close(link);
	}
	side_close(&c);
	/* Its regions: this comes back. */
	teardown(&p);
}

Test(link, reset_and_again)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct pair p;
	int i;

	setup(&p, true, NULL);
	for (i = 0; i < 5; i++) {
		post_recv(&p.b, i, p.mb, 0, 64);
		post(&p.a, (struct post){ .id = i,
					  .op = IBV_WR_SEND,
					  .flags = IBV_SEND_SIGNALED });
		cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
		/* Left behind: must not come back later. */
		post_recv(&p.b, 77, p.mb, 0, 64);
		MUST(!sv_modify_qp(p.a.qp, &reset, IBV_QP_STATE));
		MUST(!sv_modify_qp(p.b.qp, &reset, IBV_QP_STATE));
		pair_up(&p.a, &p.b);
	}
	teardown(&p);
}

/* Sleeping on the channel: the peer's doorbell and the engine wake us. */
Test(link, completion_channel_wakes)
{
	struct ibv_cq *cq;
	struct pair p;
	void *context;
	int i;

	setup(&p, true, &(struct side_opts){ .channel = true });
	for (i = 0; i < 300; i++) {
		MUST(!ibv_req_notify_cq(p.b.rcq, 0));
		post_recv(&p.b, i, p.mb, 0, 64);
		post(&p.a, (struct post){ .id = i,
					  .op = IBV_WR_SEND,
					  .flags = IBV_SEND_SIGNALED });
		cr_assert_eq(sv_get_cq_event(p.b.chan, &cq, &context), 0);
		cr_assert_eq(cq, p.b.rcq);
		sv_ack_cq_events(cq, 1);
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, i);
		cr_assert_eq(wait_wc(p.a.scq).wr_id, i);
	}
	teardown(&p);
}
