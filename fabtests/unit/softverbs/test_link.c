/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two QPs joined in one process: what arrives, and in which order. Each test of data
 * runs twice, with direct access to the peer's memory and with everything through the
 * rings.
 */
#include "link.h"

TestSuite(link, .timeout = 120);

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
