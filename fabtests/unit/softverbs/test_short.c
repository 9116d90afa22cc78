/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Short messages, which take ways of their own where they can: every length,
 * from inline data and from a region, alone and in a chain; what is received in
 * one poll and in several; and that a region which is known from the message
 * before is looked at again when it has changed.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(short_way, .timeout = 60);

enum {
	LEN_MAX = 200, /* more than a slot holds, and than a short copy takes */
	BUF = 4096,
	GUARD = 0x5a,
};

struct pair {
	struct side a, b;
	struct ibv_mr *ma, *mb;
	char abuf[BUF], bbuf[BUF];
};

static void setup(struct pair *p, bool one_cq)
{
	struct side_opts opts = { .inl = LEN_MAX, .one_cq = one_cq };

	side_direct(true);
	side_open(&p->a, &opts);
	side_open(&p->b, &opts);
	p->ma = side_reg(&p->a, p->abuf, BUF);
	p->mb = side_reg(&p->b, p->bbuf, BUF);
	pair_up(&p->a, &p->b);
}

static void teardown(struct pair *p)
{
	MUST(!sv_dereg_mr(p->ma) && !sv_dereg_mr(p->mb));
	side_close(&p->a);
	side_close(&p->b);
}

static uint64_t send_id(uint32_t len)
{
	return 1000 + len;
}

/* Sends len bytes; chained: the same bytes twice, by one call. */
static void send_bytes(struct pair *p, uint32_t len, bool inl, bool chained)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)p->abuf,
		.length = len,
		.lkey = inl ? 0 : p->ma->lkey,
	};
	struct ibv_send_wr second = {
		.wr_id = send_id(len),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = htobe32(len),
		.send_flags = IBV_SEND_SIGNALED | (inl ? IBV_SEND_INLINE : 0),
	};
	struct ibv_send_wr first = second, *bad;

	first.next = chained ? &second : NULL;
	cr_assert_eq(sv_post_send(p->a.qp, &first, &bad), 0);
	/* Inline data may go as soon as it is posted. */
	if (inl)
		memset(p->abuf, 0, len);
}

static void got_bytes(struct pair *p, uint32_t len, uint32_t off)
{
	struct ibv_wc wc = wait_wc(p->b.rcq);

	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.opcode, IBV_WC_RECV);
	cr_assert_eq(wc.byte_len, len);
	cr_assert_eq(wc.wr_id, off);
	cr_assert_eq(wc.wc_flags, IBV_WC_WITH_IMM);
	cr_assert_eq(be32toh(wc.imm_data), len);
	cr_assert_eq(wc.qp_num, p->b.qp->qp_num);
	cr_assert_eq(wc.src_qp, p->a.qp->qp_num);
	cr_assert(filled(p->bbuf + off, len, len), "%u bytes", len);
	cr_assert_eq(p->bbuf[off + len], GUARD, "behind %u bytes", len);
	wc = wait_wc(p->a.scq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.opcode, IBV_WC_SEND);
	cr_assert_eq(wc.wr_id, send_id(len));
}

static void all_lengths(bool inl, bool chained)
{
	struct pair p;
	uint32_t len;

	setup(&p, false);
	for (len = 0; len <= LEN_MAX; len++) {
		fill(p.abuf, len, len);
		memset(p.bbuf, GUARD, BUF);
		cr_assert_eq(post_recv(&p.b, 0, p.mb, 0, len), 0);
		if (chained)
			cr_assert_eq(post_recv(&p.b, 1024, p.mb, 1024, LEN_MAX),
				     0);
		send_bytes(&p, len, inl, chained);
		got_bytes(&p, len, 0);
		if (chained)
			got_bytes(&p, len, 1024);
	}
	teardown(&p);
}

Test(short_way, inline_alone) { all_lengths(true, false); }
Test(short_way, inline_chained) { all_lengths(true, true); }
Test(short_way, region_alone) { all_lengths(false, false); }
Test(short_way, region_chained) { all_lengths(false, true); }

/*
 * A chain of messages of these lengths, of which the one at wrong, if there is one,
 * has more pieces than the queue takes: those before it are sent, and arrive in
 * their order, and it is named.
 */
static void chain(const uint32_t *lens, int cnt, int wrong)
{
	struct ibv_send_wr wr[8], *bad = NULL;
	struct ibv_sge sge[8];
	int i, ok = wrong < cnt ? wrong : cnt;
	struct ibv_wc wc;
	struct pair p;

	setup(&p, false);
	fill(p.abuf, LEN_MAX, 7);
	for (i = 0; i < cnt; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)p.abuf, lens[i],
					   p.ma->lkey };
		wr[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 < cnt ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = i == wrong ? 1000 : 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
		};
		MUST(!post_recv(&p.b, 100 + i, p.mb, i * 256, LEN_MAX));
	}
	cr_assert_eq(sv_post_send(p.a.qp, wr, &bad), wrong < cnt ? EINVAL : 0);
	cr_assert_eq(bad, wrong < cnt ? &wr[wrong] : NULL);
	for (i = 0; i < ok; i++) {
		wc = wait_wc(p.b.rcq);
		cr_assert_eq(wc.wr_id, 100 + i);
		cr_assert_eq(wc.byte_len, lens[i]);
		cr_assert(filled(p.bbuf + i * 256, lens[i], 7));
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, i);
	}
	cr_assert_eq(sv_poll_cq(p.b.rcq, 1, &wc), 0);
	teardown(&p);
}

static const uint32_t mixed[] = { 8, 64, 200, 96, 97, 16, 200, 1 };

Test(short_way, short_and_long_in_a_chain) { chain(mixed, 8, 8); }
Test(short_way, first_of_a_chain_is_wrong) { chain(mixed, 8, 0); }
Test(short_way, second_of_a_chain_is_wrong) { chain(mixed, 8, 1); }
Test(short_way, last_of_a_chain_is_wrong) { chain(mixed, 8, 7); }

/* More has come than a poll asks for: nothing is lost, nothing overtakes. */
Test(short_way, polled_by_pieces)
{
	static const int nums[] = { 1, 3, 2, 16, 1 };
	struct ibv_wc wc[16];
	struct pair p;
	uint64_t want = 0, sent = 0;
	int round, i, n, tries;

	setup(&p, false);
	for (round = 0; round < 200; round++) {
		for (i = 0; i < 8; i++) {
			cr_assert_eq(post_recv(&p.b, sent + i, p.mb, 0, 8), 0);
			cr_assert_eq(post(&p.a, (struct post){
							.op = IBV_WR_SEND,
							.flags = i == 7 ?
							  IBV_SEND_SIGNALED : 0,
							.mr = p.ma,
							.len = 8 }),
				     0);
		}
		sent += 8;
		for (tries = 0; want < sent && tries < 1000000; tries++) {
			n = sv_poll_cq(p.b.rcq, nums[tries % ARRAY_SIZE(nums)],
				       wc);
			cr_assert_leq(n, nums[tries % ARRAY_SIZE(nums)]);
			for (i = 0; i < n; i++) {
				cr_assert_eq(wc[i].status, IBV_WC_SUCCESS);
				cr_assert_eq(wc[i].wr_id, want++);
			}
		}
		cr_assert_eq(want, sent);
		cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	}
	teardown(&p);
}

/* Both find their way to one CQ in one poll, the question first. */
Test(short_way, answer_behind_its_question)
{
	struct ibv_wc wc;
	struct pair p;
	uint64_t i;

	setup(&p, true);
	for (i = 0; i < 100; i++) {
		MUST(!post_recv(&p.a, 1, p.ma, 64, 64));
		MUST(!post_recv(&p.b, 2, p.mb, 64, 64));
		MUST(!post(&p.a, (struct post){ .id = 3,
						.op = IBV_WR_SEND,
						.flags = IBV_SEND_SIGNALED,
						.mr = p.ma,
						.len = 8 }));
		cr_assert_eq(wait_wc(p.b.rcq).wr_id, 2);
		MUST(!post(&p.b, (struct post){ .id = 4,
						.op = IBV_WR_SEND,
						.flags = IBV_SEND_SIGNALED,
						.mr = p.mb,
						.len = 8 }));
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.wr_id, 3, "round %lu: %lu first", i, wc.wr_id);
		cr_assert_eq(wait_wc(p.a.scq).wr_id, 1);
		cr_assert_eq(wait_wc(p.b.scq).wr_id, 4);
	}
	teardown(&p);
}

/* One message with both regions; how it ends, for the sender. */
static enum ibv_wc_status one(struct pair *p, struct ibv_mr *from,
			      struct ibv_mr *to)
{
	MUST(!post_recv(&p->b, 1, to, 0, 64));
	MUST(!post(&p->a, (struct post){ .op = IBV_WR_SEND,
					 .flags = IBV_SEND_SIGNALED,
					 .mr = from,
					 .len = 64 }));
	return wait_wc(p->a.scq).status;
}

static void region_goes(bool sender)
{
	struct ibv_mr *mr, was;
	struct pair p;
	struct side *s;
	int i;

	setup(&p, false);
	s = sender ? &p.a : &p.b;
	mr = side_reg(s, sender ? p.abuf : p.bbuf, BUF);
	was = *mr;
	for (i = 0; i < 3; i++) {
		cr_assert_eq(one(&p, sender ? mr : p.ma, sender ? p.mb : mr),
			     IBV_WC_SUCCESS);
		cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	}
	MUST(!sv_dereg_mr(mr));
	cr_assert_eq(one(&p, sender ? &was : p.ma, sender ? p.mb : &was),
		     sender ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR);
	if (!sender)
		cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_LOC_PROT_ERR);
	teardown(&p);
}

Test(short_way, known_source_goes) { region_goes(true); }
Test(short_way, known_sink_goes) { region_goes(false); }

/* Just behind, and just before, the region that the message before was in. */
static void bounds(int64_t shift, int64_t len)
{
	struct ibv_mr *mr, moved;
	struct pair p;

	setup(&p, false);
	mr = side_reg(&p.b, p.bbuf + 256, 128);
	cr_assert_eq(one(&p, p.ma, mr), IBV_WC_SUCCESS);
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	moved = *mr;
	moved.addr = (char *)mr->addr + shift;
	MUST(!post_recv(&p.b, 1, &moved, 0, len));
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = p.ma,
					.len = 8 }));
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_LOC_PROT_ERR);
	MUST(!sv_dereg_mr(mr));
	teardown(&p);
}

Test(short_way, one_byte_behind) { bounds(64, 65); }
Test(short_way, one_byte_before) { bounds(-1, 64); }
Test(short_way, far_behind) { bounds(128, 64); }

/* What is refused by itself must not have been sent. */
Test(short_way, too_much_inline)
{
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_INLINE }, *bad = NULL;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct pair p;

	setup(&p, false);
	sge = (struct ibv_sge){ .addr = (uintptr_t)p.abuf,
				.length = sv_qp(p.a.qp)->cap.max_inline_data +
					  1 };
	wr.sg_list = &sge;
	MUST(!post_recv(&p.b, 1, p.mb, 0, BUF));
	cr_assert_eq(sv_post_send(p.a.qp, &wr, &bad), EINVAL);
	cr_assert_eq(bad, &wr);
	cr_assert_eq(sv_poll_cq(p.b.rcq, 1, &wc), 0);
	teardown(&p);
}

/* Posts cnt sends that complete only if they fail; the peer takes all of them. */
static void taken_silently(struct pair *p, int cnt)
{
	int i;

	for (i = 0; i < cnt; i++)
		cr_assert_eq(post_recv(&p->b, i, p->mb, 0, BUF), 0);
	for (i = 0; i < cnt; i++)
		cr_assert_eq(post(&p->a, (struct post){ .op = IBV_WR_SEND,
							.mr = p->ma,
							.len = 64 }),
			     0);
	for (i = 0; i < cnt; i++)
		cr_assert_eq(wait_wc(p->b.rcq).status, IBV_WC_SUCCESS);
}

#ifndef SIDE_TCP /* where the acknowledgement may still be on its way */
/* Nobody has asked what became of them; then the queue pair ends. */
Test(short_way, silent_ones_are_done)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, false);
	taken_silently(&p, 3);
	cr_assert_eq(post_recv(&p.a, 7, p.ma, 0, BUF), 0);
	MUST(!side_error(&p.a));
	cr_assert_eq(wait_wc(p.a.rcq).status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 50));
	teardown(&p);
}
#endif

/* The peer goes, after it has taken all: there is nothing that could fail. */
Test(short_way, silent_ones_outlive_the_peer)
{
	struct pair p;
	struct ibv_wc wc;

	setup(&p, false);
	taken_silently(&p, 3);
	MUST(!sv_destroy_qp(p.b.qp));
	p.b.qp = NULL;
	cr_assert_not(wait_wc_ms(p.a.scq, &wc, 300));
	cr_assert_eq(p.a.qp->state, IBV_QPS_RTS);
	teardown(&p);
}

/* More of them than the ring holds, and one at the end that is to be told of. */
Test(short_way, silent_ones_make_room)
{
	struct pair p;
	struct ibv_wc wc;
	int i;

	setup(&p, false);
	for (i = 0; i < 10; i++) {
		taken_silently(&p, 48);
		cr_assert_eq(post_recv(&p.b, 0, p.mb, 0, BUF), 0);
		cr_assert_eq(post(&p.a, (struct post){ .op = IBV_WR_SEND,
						       .id = 99,
						       .flags = IBV_SEND_SIGNALED,
						       .mr = p.ma,
						       .len = 64 }),
			     0);
		cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
		wc = wait_wc(p.a.scq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, 99);
	}
	teardown(&p);
}
