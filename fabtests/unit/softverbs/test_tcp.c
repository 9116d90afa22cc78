/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The TCP link and a peer that the test plays itself, frame by frame: somebody
 * who speaks plain iWARP, well or badly, or who claims to be a softverbs.
 */
#include "tcp_raw.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(tcp, .timeout = 60);

/* ---- as it should be ---- */

static void plain_send(bool crc, size_t piece)
{
	struct raw r;
	struct ibv_wc wc;

	raw_open(&r, &(struct sv_tcp_setup){ .crc = crc });
	r.piece = piece;
	MUST(!post_recv(&r.s, 3, r.mr, 0, 100));
	raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_SEND, .msn = 1 }, "hello ",
		6);
	raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_SEND, .last = true,
				     .msn = 1, .mo = 6 }, "world", 5);
	wc = wait_wc(r.s.rcq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(wc.wr_id, 3);
	cr_assert_eq(wc.byte_len, 11);
	cr_assert_arr_eq(r.buf, "hello world", 11);
	raw_close(&r);
}

Test(tcp, plain_send) { plain_send(false, 0); }
Test(tcp, plain_send_crc) { plain_send(true, 0); }
Test(tcp, plain_send_byte_by_byte) { plain_send(true, 1); }
Test(tcp, plain_send_in_odd_pieces) { plain_send(true, 7); }

/* A frame is no longer than a segment of TCP, and each is whole. */
Test(tcp, plain_message_is_cut)
{
	enum { LEN = 200000 };
	struct sv_ddp ddp;
	uint32_t done = 0;
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ .crc = true });
	fill(r.buf, LEN, 1);
	MUST(!post(&r.s, (struct post){ .id = 1, .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = r.mr, .len = LEN }));
	while (done < LEN) {
		raw_get(&r, &ddp);
		cr_assert_eq(ddp.op, SV_RDMAP_SEND);
		cr_assert_eq(ddp.msn, 1);
		cr_assert_eq(ddp.mo, done);
		cr_assert_leq(sv_ddp_ulpdu_len(&ddp), SV_MULPDU_MAX);
		cr_assert(!memcmp(r.payload, r.buf + done, ddp.payload_len));
		done += ddp.payload_len;
		cr_assert_eq(ddp.last, done == LEN);
	}
	/* Nobody acknowledges: it is complete. */
	cr_assert_eq(wait_wc(r.s.scq).status, IBV_WC_SUCCESS);
	raw_close(&r);
}

Test(tcp, plain_write_and_read)
{
	struct sv_read_req req;
	struct sv_ddp ddp;
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ 0 });
	raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_WRITE, .last = true,
				     .stag = r.mr->rkey,
				     .to = (uintptr_t)r.buf + 8 },
		"written", 7);
	raw_ask(&r, 1, (uintptr_t)r.buf + 8, 7);
	raw_get(&r, &ddp);
	cr_assert_eq(ddp.op, SV_RDMAP_READ_RESP);
	cr_assert_eq(ddp.stag, RAW_SINK);
	cr_assert_eq(ddp.payload_len, 7);
	cr_assert(ddp.last);
	cr_assert_arr_eq(r.payload, "written", 7);

	MUST(!post(&r.s, (struct post){ .id = 9, .op = IBV_WR_RDMA_READ,
					.flags = IBV_SEND_SIGNALED,
					.mr = r.mr, .off = 64, .len = 4,
					.raddr = 77, .rkey = 5 }));
	raw_get(&r, &ddp);
	cr_assert_eq(ddp.op, SV_RDMAP_READ_REQ);
	sv_read_req_decode(&req, r.payload);
	cr_assert_eq(req.len, 4);
	cr_assert_eq(req.src_stag, 5);
	cr_assert_eq(req.src_to, 77);
	cr_assert_neq(req.sink_stag, 0);
	raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_READ_RESP, .last = true,
				     .stag = req.sink_stag,
				     .to = req.sink_to }, "read", 4);
	cr_assert_eq(wait_wc(r.s.scq).status, IBV_WC_SUCCESS);
	cr_assert_arr_eq(r.buf + 64, "read", 4);
	raw_close(&r);
}

Test(tcp, plain_peer_has_no_immediates_or_atomics)
{
	struct post p = { .op = IBV_WR_SEND_WITH_IMM };
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ 0 });
	cr_assert_eq(post(&r.s, p), EOPNOTSUPP);
	p.op = IBV_WR_RDMA_WRITE_WITH_IMM;
	cr_assert_eq(post(&r.s, p), EOPNOTSUPP);
	p = (struct post){ .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
			   .mr = r.mr,
			   .len = 8 };
	cr_assert_eq(post(&r.s, p), EOPNOTSUPP);
	p.op = IBV_WR_ATOMIC_CMP_AND_SWP;
	cr_assert_eq(post(&r.s, p), EOPNOTSUPP);
	cr_assert_eq(r.s.qp->state, IBV_QPS_RTS);
	raw_close(&r);
}

/* ---- who begins ---- */

Test(tcp, initiator_sends_an_empty_write_first)
{
	struct sv_ddp ddp;
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ .rtr = true });
	MUST(!post(&r.s, (struct post){ .op = IBV_WR_SEND, .mr = r.mr,
					.len = 1 }));
	raw_get(&r, &ddp);
	cr_assert_eq(ddp.op, SV_RDMAP_WRITE);
	cr_assert_eq(ddp.payload_len, 0);
	cr_assert_neq(ddp.stag, 0);
	raw_get(&r, &ddp);
	cr_assert_eq(ddp.op, SV_RDMAP_SEND);
	raw_close(&r);
}

Test(tcp, responder_waits_for_the_first_frame)
{
	struct sv_ddp ddp;
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ .hold = true });
	MUST(!post(&r.s, (struct post){ .op = IBV_WR_SEND, .mr = r.mr,
					.len = 1 }));
	cr_assert(raw_silent(&r, 50));
	raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_WRITE, .last = true }, "",
		0);
	raw_get(&r, &ddp);
	cr_assert_eq(ddp.op, SV_RDMAP_SEND);
	raw_close(&r);
}

/* ---- what is wrong ---- */

struct wrong {
	const char *what;
	struct sv_ddp ddp;
	uint32_t len;
	int tweak; /* add to the STag or address, see wrong() */
	uint16_t err; /* 0: any */
	int event; /* -1: none */
	bool recv;
};

enum { NO_TWEAK, OWN_STAG, OWN_STAG_BEFORE, OWN_STAG_BEHIND, BAD_CRC, VERSION };

static const struct wrong wrongs[] = {
	{ "no receive", { .op = SV_RDMAP_SEND, .last = true, .msn = 1 }, 4,
	  .err = SV_TERM_UNTAGGED_NO_BUFFER, .event = IBV_EVENT_QP_FATAL },
	{ "message number", { .op = SV_RDMAP_SEND, .last = true, .msn = 2 }, 4,
	  .err = SV_TERM_UNTAGGED_MSN, .event = IBV_EVENT_QP_FATAL,
	  .recv = true },
	{ "offset", { .op = SV_RDMAP_SEND, .last = true, .msn = 1, .mo = 4 }, 4,
	  .err = SV_TERM_UNTAGGED_MO, .event = IBV_EVENT_QP_FATAL,
	  .recv = true },
	{ "too long", { .op = SV_RDMAP_SEND, .last = true, .msn = 1 }, 101,
	  .err = SV_TERM_UNTAGGED_TOO_LONG, .event = -1, .recv = true },
	{ "unknown STag", { .op = SV_RDMAP_WRITE, .last = true, .stag = 99 }, 4,
	  .err = SV_TERM_PROT_ACCESS, .event = IBV_EVENT_QP_ACCESS_ERR },
	{ "before the region", { .op = SV_RDMAP_WRITE, .last = true }, 4,
	  OWN_STAG_BEFORE, SV_TERM_PROT_ACCESS, IBV_EVENT_QP_ACCESS_ERR },
	{ "behind the region", { .op = SV_RDMAP_WRITE, .last = true }, 4,
	  OWN_STAG_BEHIND, SV_TERM_PROT_ACCESS, IBV_EVENT_QP_ACCESS_ERR },
	{ "wraps", { .op = SV_RDMAP_WRITE, .last = true, .to = UINT64_MAX - 3 },
	  8, OWN_STAG, SV_TERM_TAGGED_TO_WRAP, IBV_EVENT_QP_ACCESS_ERR },
	{ "answer unasked wraps", { .op = SV_RDMAP_READ_RESP, .last = true,
	  .to = UINT64_MAX - 3 }, 8, OWN_STAG, SV_TERM_TAGGED_STAG,
	  IBV_EVENT_QP_FATAL },
	{ "answer unasked", { .op = SV_RDMAP_READ_RESP, .last = true }, 4,
	  OWN_STAG, SV_TERM_TAGGED_STAG, IBV_EVENT_QP_FATAL },
	{ "immediate", { .op = SV_RDMAP_IMM, .last = true, .msn = 1 }, 8,
	  .err = SV_TERM_OP_OPCODE, .event = IBV_EVENT_QP_FATAL,
	  .recv = true },
	{ "checksum", { .op = SV_RDMAP_SEND, .last = true, .msn = 1 }, 4,
	  BAD_CRC, SV_TERM_MPA_CRC, IBV_EVENT_QP_FATAL, true },
	{ "version", { .op = SV_RDMAP_SEND, .last = true, .msn = 1 }, 4,
	  VERSION, SV_TERM_UNTAGGED_VERSION, IBV_EVENT_QP_FATAL, true },
};

/* Told by a Terminate, then the end of the stream. */
static void expect_refused(struct raw *r, uint16_t err)
{
	struct sv_term term;
	struct sv_ddp ddp;

	do {
		raw_get(r, &ddp);
	} while (ddp.op != SV_RDMAP_TERMINATE);
	cr_assert_eq(sv_term_decode(&term, false, r->payload, ddp.payload_len),
		     0);
	cr_assert_eq(term.err, err, "%s, not %s", sv_term_str(term.err),
		     sv_term_str(err));
	cr_assert(raw_ended(r));
}

static void wrong(const struct wrong *w, bool one_sided)
{
	struct sv_ddp ddp = w->ddp;
	char data[256] = "data";
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ .crc = true });
	if (w->recv)
		MUST(!post_recv(&r.s, 1, r.mr, 0, 100));
	if (w->tweak == OWN_STAG || w->tweak == OWN_STAG_BEFORE ||
	    w->tweak == OWN_STAG_BEHIND)
		ddp.stag = r.mr->rkey;
	if (w->tweak == OWN_STAG_BEFORE)
		ddp.to = (uintptr_t)r.buf - 1;
	if (w->tweak == OWN_STAG_BEHIND)
		ddp.to = (uintptr_t)r.buf + RAW_BUF - 3;
	r.bad_crc = w->tweak == BAD_CRC;
	r.bad_version = w->tweak == VERSION;
	raw_put(&r, ddp, data, w->len);
	if (!one_sided && w->recv)
		cr_assert_neq(wait_wc(r.s.rcq).status, IBV_WC_SUCCESS, "%s",
			      w->what);
	expect_refused(&r, w->err);
	if (w->event >= 0)
		raw_event(&r, w->event);
	cr_assert_eq(r.s.qp->state, IBV_QPS_ERR, "%s", w->what);
	raw_close(&r);
}

Test(tcp, wrong_frames)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wrongs); i++)
		wrong(&wrongs[i], false);
}

/* Nobody polls: the engine sees to it. */
Test(tcp, wrong_frames_unpolled)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wrongs); i++)
		wrong(&wrongs[i], true);
}

Test(tcp, more_reads_than_agreed)
{
	struct raw r;
	uint32_t i;

	raw_open(&r, &(struct sv_tcp_setup){ .crc = true });
	/* It is not read, so the answers cannot all go out. */
	for (i = 1; i <= 200 && !raw_stuck(&r); i++)
		raw_ask(&r, i, (uintptr_t)r.buf, RAW_BUF);
	expect_refused(&r, SV_TERM_OP_STREAM);
	raw_event(&r, IBV_EVENT_QP_REQ_ERR);
	raw_close(&r);
}

/* The kernel's siw has the two halves of a byte the wrong way round. */
static void terminated(const uint8_t *ctl, size_t len)
{
	struct sv_ddp ddp;
	struct ibv_wc wc;
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ 0 });
	MUST(!post(&r.s, (struct post){ .id = 4, .op = IBV_WR_RDMA_READ,
					.mr = r.mr, .len = 4, .rkey = 5 }));
	MUST(!post(&r.s, (struct post){ .id = 5, .op = IBV_WR_RDMA_READ,
					.mr = r.mr, .len = 4, .rkey = 5 }));
	raw_get(&r, &ddp);
	raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_TERMINATE, .last = true,
				     .msn = 1 }, ctl, len);
	wc = wait_wc(r.s.scq);
	cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
	cr_assert_eq(wc.wr_id, 4);
	wc = wait_wc(r.s.scq);
	cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(wc.wr_id, 5);
	raw_close(&r);
}

Test(tcp, terminate_from_the_peer)
{
	terminated((const uint8_t[]){ 0x01, 0x02, 0, 0 }, 4);
}

Test(tcp, terminate_from_siw)
{
	terminated((const uint8_t[]){ 0x10, 0x02, 0, 0 }, 4);
}

/* ---- ends ---- */

static void ends(bool reset)
{
	struct linger linger = { .l_onoff = 1 };
	struct sv_ddp ddp;
	struct ibv_wc wc;
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ 0 });
	MUST(!post_recv(&r.s, 1, r.mr, 0, 100));
	MUST(!post(&r.s, (struct post){ .id = 2, .op = IBV_WR_RDMA_READ,
					.mr = r.mr, .len = 4, .rkey = 5 }));
	/* Unread, it would make a reset of the close. */
	raw_get(&r, &ddp);
	if (reset)
		MUST(!setsockopt(r.sock, SOL_SOCKET, SO_LINGER, &linger,
				 sizeof(linger)));
	close(r.sock);
	r.sock = -1;
	wc = wait_wc(r.s.scq);
	cr_assert_eq(wc.status, reset ? IBV_WC_RETRY_EXC_ERR :
					IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(wait_wc(r.s.rcq).status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(r.s.qp->state, IBV_QPS_ERR);
	raw_close(&r);
}

Test(tcp, peer_closes) { ends(false); }
Test(tcp, peer_resets) { ends(true); }

/* In the middle of a frame, after each of its bytes. */
Test(tcp, peer_closes_in_a_frame)
{
	uint8_t frame[64];
	size_t len, cut;
	struct raw r;

	for (cut = 1, len = 2; cut < len; cut++) {
		raw_open(&r, &(struct sv_tcp_setup){ .crc = true });
		len = raw_frame(&r, frame,
				(struct sv_ddp){ .op = SV_RDMAP_SEND,
						 .last = true,
						 .msn = 1 },
				"twelve bytes", 12);
		MUST(!post_recv(&r.s, 1, r.mr, 0, 100));
		raw_write(&r, frame, cut);
		MUST(!shutdown(r.sock, SHUT_WR));
		cr_assert_eq(wait_wc(r.s.rcq).status, IBV_WC_WR_FLUSH_ERR);
		raw_close(&r);
	}
	cr_assert_gt(cut, 30);
}

/* ---- who says that it is a softverbs ---- */

Test(tcp, completes_when_it_is_acknowledged)
{
	struct ibv_wc wc;
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ .ext = true });
	MUST(!post(&r.s, (struct post){ .id = 1, .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = r.mr, .len = 8 }));
	MUST(!post(&r.s, (struct post){ .id = 2, .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = r.mr, .len = 8 }));
	cr_assert_not(wait_wc_ms(r.s.scq, &wc, 30));
	raw_ctrl(&r, SV_CTRL_ACK, 1, 0);
	cr_assert_eq(wait_wc(r.s.scq).wr_id, 1);
	cr_assert_not(wait_wc_ms(r.s.scq, &wc, 30));
	raw_ctrl(&r, SV_CTRL_NAK, 1, IBV_WC_REM_INV_REQ_ERR);
	wc = wait_wc(r.s.scq);
	cr_assert_eq(wc.wr_id, 2);
	cr_assert_eq(wc.status, IBV_WC_REM_INV_REQ_ERR);
	raw_close(&r);
}

/*
 * Whoever only receives learns of a peer that had given up and then ended, as one
 * does that was stopped meanwhile; one that closes its queue pair just leaves.
 */
static void gone_and_ends(enum sv_ctrl_gone how)
{
	struct ibv_wc wc;
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ .ext = true });
	MUST(!post_recv(&r.s, 1, r.mr, 0, 100));
	raw_ctrl(&r, SV_CTRL_GONE, how, 0);
	cr_assert_not(wait_wc_ms(r.s.rcq, &wc, 30));
	MUST(!shutdown(r.sock, SHUT_WR));
	if (how == SV_GONE_ERROR) {
		cr_assert_eq(wait_wc(r.s.rcq).status, IBV_WC_WR_FLUSH_ERR);
		raw_event(&r, IBV_EVENT_QP_FATAL);
	} else {
		cr_assert_not(wait_wc_ms(r.s.rcq, &wc, 100));
		cr_assert_eq(r.s.qp->state, IBV_QPS_RTS);
	}
	raw_close(&r);
}

Test(tcp, peer_in_error_ends) { gone_and_ends(SV_GONE_ERROR); }
Test(tcp, peer_closed_ends) { gone_and_ends(SV_GONE_CLOSED); }

static void bad_ctrl(uint32_t type, uint32_t a)
{
	struct raw r;

	raw_open(&r, &(struct sv_tcp_setup){ .ext = true });
	raw_ctrl(&r, type, a, 0);
	expect_refused(&r, SV_TERM_OP_STREAM);
	raw_event(&r, IBV_EVENT_QP_FATAL);
	raw_close(&r);
}

Test(tcp, acknowledges_what_was_not_sent) { bad_ctrl(SV_CTRL_ACK, 1); }
Test(tcp, unknown_control_message) { bad_ctrl(200, 0); }
Test(tcp, hello_again) { bad_ctrl(SV_CTRL_HELLO, 0); }

/*
 * More than the staging buffer holds behind a message that waits: it is read no
 * further, and all of it arrives once there are receives. What it says of itself
 * before is heard.
 */
Test(tcp, parked)
{
	enum { CNT = 400, LEN = 1000 };
	struct ibv_wc wc;
	char data[LEN];
	struct raw r;
	uint32_t i;

	raw_open(&r, &(struct sv_tcp_setup){ .ext = true, .crc = true });
	MUST(!post(&r.s, (struct post){ .id = 1, .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = r.mr, .len = 8 }));
	for (i = 0; i < CNT; i++) {
		fill(data, LEN, i);
		raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_SEND, .last = true,
					     .msn = i + 1 }, data, LEN);
		if (i == 20)
			raw_ctrl(&r, SV_CTRL_ACK, 1, 0);
	}
	cr_assert_eq(wait_wc(r.s.scq).status, IBV_WC_SUCCESS);
	cr_assert_not(wait_wc_ms(r.s.rcq, &wc, 10));
	for (i = 0; i < CNT; i++) {
		MUST(!post_recv(&r.s, i, r.mr, 0, LEN));
		wc = wait_wc(r.s.rcq);
		cr_assert_eq(wc.wr_id, i);
		cr_assert_eq(wc.byte_len, LEN);
		cr_assert(filled(r.buf, LEN, i), "message %u", i);
	}
	raw_close(&r);
}

/* Until it has told of cnt receives. */
static void told_of(struct raw *r, uint32_t cnt)
{
	struct sv_ddp ddp;
	struct ibv_wc wc;
	uint32_t a, b;

	raw_ctrl(r, SV_CTRL_PING, 0, 0);
	do {
		cr_assert_eq(ibv_poll_cq(r->s.rcq, 1, &wc), 0);
		raw_get(r, &ddp);
		cr_assert_eq(ddp.op, SV_RDMAP_CTRL);
		sv_ctrl_link_decode(&a, &b, r->payload);
	} while (ddp.ulp != SV_CTRL_ACK || b != cnt);
}

/*
 * That there are receives, and that the peer wants some, cross on the way: the
 * queue pair, which has room for one, takes one for a message and none for that.
 */
Test(tcp, wants_receives_that_it_is_being_told_of)
{
	struct sv_tcp_setup setup = { .ext = true };
	struct side_opts opts = { .srq_wr = 16 };
	enum { CNT = 8, LEN = 10 };
	struct ibv_wc wc;
	struct raw r;

	raw_open_with(&r, &setup, &opts);
	r.hears_ctrl = true;
	for (int i = 0; i < CNT; i++)
		MUST(!post_recv(&r.s, i, r.mr, i * LEN, LEN));
	told_of(&r, CNT);
	for (uint32_t i = 0; i < CNT; i++) {
		raw_ctrl(&r, SV_CTRL_WANT, i + 1, 0);
		raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_SEND, .msn = i + 1 },
			"hello ", 6);
		raw_ctrl(&r, SV_CTRL_PING, 0, 0);
		cr_assert_not(wait_wc_ms(r.s.rcq, &wc, 1));
		raw_put(&r, (struct sv_ddp){ .op = SV_RDMAP_SEND, .last = true,
					     .msn = i + 1, .mo = 6 },
			"peer", 4);
		wc = wait_wc(r.s.rcq);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert_eq(wc.wr_id, i);
		cr_assert_eq(wc.byte_len, LEN);
		cr_assert(!memcmp(r.buf + i * LEN, "hello peer", LEN));
	}
	raw_close(&r);
}
