/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The iWARP codec: bytes of the RFCs and of the kernel's siw are read and written
 * as they stand there, what goes out comes in again, every field that can be wrong
 * is refused with the code that RFC 5040, 5041 and 5044 have for it, and nothing
 * that is sent can hurt. Buffers are allocated to the byte, so that a sanitizer or
 * valgrind sees a read beyond the end.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sv_iwarp.h"
#include "sv_mpa.h"

TestSuite(iwarp_mpa, .timeout = 60);
TestSuite(iwarp_ddp, .timeout = 60);
TestSuite(iwarp_term, .timeout = 60);

static const enum sv_rdmap_op all_ops[] = {
	SV_RDMAP_WRITE, SV_RDMAP_READ_REQ, SV_RDMAP_READ_RESP, SV_RDMAP_SEND,
	SV_RDMAP_SEND_INV, SV_RDMAP_SEND_SE, SV_RDMAP_SEND_SE_INV, SV_RDMAP_TERMINATE,
	SV_RDMAP_IMM, SV_RDMAP_IMM_SE, SV_RDMAP_ATOMIC_REQ, SV_RDMAP_ATOMIC_RESP,
	SV_RDMAP_SEND_IMM, SV_RDMAP_SEND_SE_IMM, SV_RDMAP_CTRL,
};

static uint32_t any_payload_len(enum sv_rdmap_op op)
{
	switch (op) {
	case SV_RDMAP_READ_REQ:
		return SV_READ_REQ_LEN;
	case SV_RDMAP_TERMINATE:
		return SV_TERM_CTRL_LEN;
	case SV_RDMAP_IMM:
	case SV_RDMAP_IMM_SE:
		return SV_IMM_LEN;
	case SV_RDMAP_ATOMIC_REQ:
		return SV_ATOMIC_REQ_LEN;
	case SV_RDMAP_ATOMIC_RESP:
		return SV_ATOMIC_RESP_LEN;
	case SV_RDMAP_CTRL:
		return SV_CTRL_LINK_LEN;
	default:
		return 1000;
	}
}

/* Decodes a copy that ends where the allocation ends. */
static int decode(struct sv_ddp *ddp, bool ext, const uint8_t *buf, size_t len,
		  enum sv_term_code *err)
{
	uint8_t *copy = malloc(len ? len : 1);
	int ret;

	cr_assert_not_null(copy);
	memcpy(copy, buf, len);
	*err = SV_TERM_NONE;
	ret = sv_ddp_decode(ddp, ext, copy, len, err);
	cr_assert_eq(ret < 0, *err != SV_TERM_NONE);
	free(copy);
	return ret;
}

static int decode_term(struct sv_term *term, bool foreign, const uint8_t *buf,
		       size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	int ret;

	cr_assert_not_null(copy);
	memcpy(copy, buf, len);
	ret = sv_term_decode(term, foreign, copy, len);
	free(copy);
	return ret;
}

static void assert_crc(const uint8_t *buf, size_t len, const char *wire)
{
	uint8_t out[4];

	sv_put_le32(out, sv_crc32c(0, buf, len));
	cr_assert_arr_eq(out, wire, 4, "%02x %02x %02x %02x", out[0], out[1],
			 out[2], out[3]);
}

/* The check value of the algorithm, and the examples of RFC 3720 B.4. */
Test(iwarp_mpa, crc_vectors)
{
	static const uint8_t scsi_read[48] = {
		0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14,
		[31] = 0x18, 0x28, [40] = 0x02,
	};
	uint8_t buf[32];
	size_t i;

	assert_crc((const uint8_t *)"123456789", 9, "\x83\x92\x06\xe3");
	memset(buf, 0, sizeof(buf));
	assert_crc(buf, sizeof(buf), "\xaa\x36\x91\x8a");
	memset(buf, 0xff, sizeof(buf));
	assert_crc(buf, sizeof(buf), "\x43\xab\xa8\x62");
	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)i;
	assert_crc(buf, sizeof(buf), "\x4e\x79\xdd\x46");
	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(31 - i);
	assert_crc(buf, sizeof(buf), "\x5c\xdb\x3f\x11");
	assert_crc(scsi_read, sizeof(scsi_read), "\x56\x3a\x96\xd9");
	cr_assert_eq(sv_crc32c(0, buf, 0), 0);
}

Test(iwarp_mpa, crc_of_pieces)
{
	uint8_t buf[300];
	uint32_t whole;
	size_t i;

	srand(1);
	for (i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)rand();
	whole = sv_crc32c(0, buf, sizeof(buf));
	for (i = 0; i <= sizeof(buf); i++)
		cr_assert_eq(sv_crc32c(sv_crc32c(0, buf, i), buf + i,
				       sizeof(buf) - i), whole, "cut at %zu", i);
}

Test(iwarp_mpa, an_fpdu_is_whole_words)
{
	uint8_t tail[SV_FPDU_TAIL_MAX + 1];
	size_t size;
	size_t len;
	uint32_t crc;

	for (len = 0; len <= SV_ULPDU_MAX; len++) {
		size = sv_fpdu_size(len);
		cr_assert_eq(size % 4, 0);
		cr_assert_geq(size, 2 + len + 4);
		cr_assert_lt(size, 2 + len + 4 + 4);
		cr_assert_lt(sv_fpdu_pad(len), 4);
		memset(tail, 0xee, sizeof(tail));
		cr_assert_eq(sv_fpdu_put_tail(tail, len, false, 1),
			     size - 2 - len);
		cr_assert_eq(tail[size - 2 - len], 0xee);
		cr_assert_eq(sv_get32(tail), 0);
		cr_assert_eq(sv_get32(tail + sv_fpdu_pad(len)), 0);
	}
	/* The pad counts. */
	for (len = 18; len < 22; len++) {
		crc = sv_crc32c(0, "header", 6);
		sv_fpdu_put_tail(tail, len, true, crc);
		cr_assert(sv_fpdu_tail_ok(tail, len, crc));
		cr_assert_not(sv_fpdu_tail_ok(tail, len, crc ^ 1));
		if (!sv_fpdu_pad(len))
			continue;
		tail[0] ^= 1;
		cr_assert_not(sv_fpdu_tail_ok(tail, len, crc));
	}
}

Test(iwarp_mpa, seal)
{
	uint8_t fpdu[2 + 21 + 3 + 4 + 1];
	size_t bit;

	memset(fpdu, 0x5a, sizeof(fpdu));
	sv_put16(fpdu, 21);
	sv_fpdu_seal(fpdu);
	cr_assert_eq(sv_fpdu_size(21), sizeof(fpdu) - 3);
	cr_assert_eq(sv_get_le32(fpdu + 24), sv_crc32c(0, fpdu, 24));
	cr_assert_eq(fpdu[23], 0);
	cr_assert_eq(fpdu[28], 0x5a);
	for (bit = 0; bit < 28 * 8; bit++) {
		fpdu[bit / 8] ^= 1 << bit % 8;
		cr_assert_not(sv_fpdu_tail_ok(fpdu + 23, 21,
					      sv_crc32c(0, fpdu, 23)));
		fpdu[bit / 8] ^= 1 << bit % 8;
	}
	cr_assert(sv_fpdu_tail_ok(fpdu + 23, 21, sv_crc32c(0, fpdu, 23)));
}

Test(iwarp_mpa, mulpdu)
{
	uint32_t emss;
	uint32_t len;

	cr_assert_eq(sv_mulpdu(1460), 1454);
	cr_assert_eq(sv_mulpdu(1461), 1454);
	cr_assert_eq(sv_mulpdu(1463), 1454);
	cr_assert_eq(sv_mulpdu(65483), 64768);
	for (emss = 0; emss < 70000; emss++) {
		len = sv_mulpdu(emss);
		cr_assert(len >= SV_MULPDU_MIN && len <= SV_MULPDU_MAX);
		cr_assert(emss < SV_MULPDU_MIN + 9 || sv_fpdu_size(len) <= emss);
		len = sv_mulpdu_payload(len);
		cr_assert(len % 8 == 0 && len >= 104);
		cr_assert_leq(SV_DDP_UNTAGGED_LEN + len, sv_mulpdu(emss));
		cr_assert_eq(sv_fpdu_pad(SV_DDP_TAGGED_LEN + len), 0);
		cr_assert_eq(sv_fpdu_pad(SV_DDP_UNTAGGED_LEN + len), 0);
	}
}

/* First bytes as they were seen on the wire or stand in siw. */
Test(iwarp_ddp, kernel_headers)
{
	static const struct {
		struct sv_ddp ddp;
		const char *bytes;
		size_t len;
	} cases[] = {
		{ { .op = SV_RDMAP_WRITE, .last = true, .stag = 1 },
		  "\x00\x0e\xc1\x40\0\0\0\1\0\0\0\0\0\0\0\0", 16 },
		{ { .op = SV_RDMAP_WRITE, .payload_len = 1440, .stag = 0xdeadbeef,
		    .to = 0x0102030405060708 },
		  "\x05\xae\x81\x40\xde\xad\xbe\xef\1\2\3\4\5\6\7\x8", 16 },
		{ { .op = SV_RDMAP_READ_REQ, .last = true, .payload_len = 28,
		    .msn = 7 },
		  "\x00\x2e\x41\x41\0\0\0\0\0\0\0\1\0\0\0\7\0\0\0\0", 20 },
		{ { .op = SV_RDMAP_READ_RESP, .last = true, .payload_len = 2,
		    .stag = 0x100, .to = 9 },
		  "\x00\x10\xc1\x42\0\0\1\0\0\0\0\0\0\0\0\x9", 16 },
		{ { .op = SV_RDMAP_SEND, .last = true, .payload_len = 16,
		    .msn = 1 },
		  "\x00\x22\x41\x43\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0", 20 },
		{ { .op = SV_RDMAP_SEND, .payload_len = 16, .msn = 2, .mo = 256 },
		  "\x00\x22\x01\x43\0\0\0\0\0\0\0\0\0\0\0\2\0\0\1\0", 20 },
		{ { .op = SV_RDMAP_SEND_INV, .last = true, .ulp = 0x11223344,
		    .msn = 1 },
		  "\x00\x12\x41\x44\x11\x22\x33\x44\0\0\0\0\0\0\0\1\0\0\0\0",
		  20 },
		{ { .op = SV_RDMAP_SEND_SE, .last = true, .msn = 1 },
		  "\x00\x12\x41\x45\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0", 20 },
		{ { .op = SV_RDMAP_SEND_SE_INV, .last = true, .ulp = 5, .msn = 1 },
		  "\x00\x12\x41\x46\0\0\0\5\0\0\0\0\0\0\0\1\0\0\0\0", 20 },
		{ { .op = SV_RDMAP_TERMINATE, .last = true, .payload_len = 4,
		    .msn = 1 },
		  "\x00\x16\x41\x47\0\0\0\0\0\0\0\2\0\0\0\1\0\0\0\0", 20 },
	};
	uint8_t buf[SV_FPDU_HDR_MAX];
	enum sv_term_code err;
	struct sv_ddp out;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		cr_assert_eq(sv_ddp_encode(buf, &cases[i].ddp), cases[i].len);
		cr_assert_arr_eq(buf, cases[i].bytes, cases[i].len, "%zu", i);
		cr_assert_eq(decode(&out, false, buf, cases[i].len, &err),
			     (int)cases[i].len, "%zu: %s", i, sv_term_str(err));
		cr_assert_eq(out.op, cases[i].ddp.op);
		cr_assert_eq(out.last, cases[i].ddp.last);
	}
}

Test(iwarp_ddp, round_trip)
{
	uint8_t buf[SV_FPDU_HDR_MAX + 1];
	enum sv_term_code err;
	struct sv_ddp out;
	struct sv_ddp in;
	size_t i;
	int len;
	int j;

	for (i = 0; i < ARRAY_SIZE(all_ops); i++) {
		in = (struct sv_ddp){
			.op = all_ops[i],
			.last = true,
			.payload_len = any_payload_len(all_ops[i]),
		};
		if (sv_op_is_tagged(in.op)) {
			in.stag = 0x89abcdef;
			in.to = 0xfedcba9876543210;
		} else {
			in.ulp = 0x13579bdf;
			in.msn = 0x2468ace0;
		}
		memset(buf, 0xee, sizeof(buf));
		len = (int)sv_ddp_encode(buf, &in);
		cr_assert_eq(buf[len], 0xee);
		for (j = 0; j < len; j++)
			cr_assert_eq(decode(&out, true, buf, j, &err), 0);
		cr_assert_eq(decode(&out, true, buf, len, &err), len,
			     "opcode %x: %s", in.op, sv_term_str(err));
		cr_assert_eq(out.op, in.op);
		cr_assert_eq(out.last, in.last);
		cr_assert_eq(out.payload_len, in.payload_len);
		cr_assert_eq(out.stag, in.stag);
		cr_assert_eq(out.to, in.to);
		cr_assert_eq(out.ulp, in.ulp);
		cr_assert_eq(out.msn, in.msn);
		cr_assert_eq(out.mo, in.mo);
		/* A peer that did not agree to more ends at opcode 7. */
		cr_assert_eq(decode(&out, false, buf, len, &err),
			     in.op <= SV_RDMAP_TERMINATE ? len : -EPROTO);
		if (in.op > SV_RDMAP_TERMINATE)
			cr_assert_eq(err, SV_TERM_OP_OPCODE);
	}
}

/* All 65536 values of the two bytes that say what a segment is. */
Test(iwarp_ddp, every_control_word)
{
	uint8_t buf[SV_FPDU_HDR_MAX] = { 0 };
	enum sv_term_code err;
	enum sv_rdmap_op op;
	struct sv_ddp out;
	unsigned int word;
	unsigned int last;
	bool known;
	bool single;
	int ret;

	for (word = 0; word < 0x10000; word++) {
		op = (enum sv_rdmap_op)(word & 0xf);
		known = op != 0xe;
		last = word >> 14 & 1;
		sv_put16(buf, (uint16_t)(sv_ddp_len(op) + any_payload_len(op)));
		sv_put16(buf + 2, (uint16_t)word);
		sv_put32(buf + 8, sv_op_qn(op));
		ret = decode(&out, true, buf, sizeof(buf), &err);
		single = known && !sv_op_is_tagged(op) &&
			any_payload_len(op) != 1000;
		if ((word >> 8 & 3) != 1)
			cr_assert_eq(err, word >> 15 ? SV_TERM_TAGGED_VERSION :
				     SV_TERM_UNTAGGED_VERSION, "%x", word);
		else if ((word >> 6 & 3) != 1)
			cr_assert_eq(err, SV_TERM_OP_VERSION, "%x", word);
		else if (!known || word >> 15 != sv_op_is_tagged(op))
			cr_assert_eq(err, SV_TERM_OP_OPCODE, "%x", word);
		else if (single && !last)
			cr_assert_eq(err, SV_TERM_UNTAGGED_TOO_LONG, "%x", word);
		else
			cr_assert(ret > 0 && out.op == op && out.last == last,
				  "%x: %s", word, sv_term_str(err));
	}
}

Test(iwarp_ddp, malformed)
{
	static const struct {
		const char *why;
		struct sv_ddp ddp;
		int at;			/* 16 bits set there; -1: the length */
		uint16_t value;
		enum sv_term_code err;
	} cases[] = {
		{ "no room for the tagged header", { .op = SV_RDMAP_WRITE },
		  -1, 13, SV_TERM_MPA_LENGTH },
		{ "no room for the untagged header", { .op = SV_RDMAP_SEND },
		  -1, 17, SV_TERM_MPA_LENGTH },
		{ "empty segment", { .op = SV_RDMAP_SEND }, -1, 0,
		  SV_TERM_MPA_LENGTH },
		{ "message offset wraps", { .op = SV_RDMAP_SEND,
		  .payload_len = 2, .mo = UINT32_MAX - 1 }, 0, 0,
		  SV_TERM_UNTAGGED_MO },
		{ "queue 5", { .op = SV_RDMAP_SEND }, 10, 5, SV_TERM_UNTAGGED_QN },
		{ "queue 65536", { .op = SV_RDMAP_SEND }, 8, 1,
		  SV_TERM_UNTAGGED_QN },
		{ "a send on the reads' queue", { .op = SV_RDMAP_SEND }, 10, 1,
		  SV_TERM_OP_OPCODE },
		{ "a read on the sends' queue", { .op = SV_RDMAP_READ_REQ,
		  .last = true, .payload_len = 28 }, 10, 0, SV_TERM_OP_OPCODE },
		{ "a long read request", { .op = SV_RDMAP_READ_REQ, .last = true,
		  .payload_len = 29 }, 0, 0, SV_TERM_UNTAGGED_TOO_LONG },
		{ "a short read request", { .op = SV_RDMAP_READ_REQ, .last = true,
		  .payload_len = 27 }, 0, 0, SV_TERM_OP_UNSPECIFIED },
		{ "a read request's second half", { .op = SV_RDMAP_READ_REQ,
		  .last = true, .payload_len = 28, .mo = 28 }, 0, 0,
		  SV_TERM_UNTAGGED_MO },
		{ "a read request's first half", { .op = SV_RDMAP_READ_REQ,
		  .payload_len = 28 }, 0, 0, SV_TERM_UNTAGGED_TOO_LONG },
		{ "a long atomic", { .op = SV_RDMAP_ATOMIC_REQ, .last = true,
		  .payload_len = 56 }, 0, 0, SV_TERM_UNTAGGED_TOO_LONG },
		{ "a short answer", { .op = SV_RDMAP_ATOMIC_RESP, .last = true,
		  .payload_len = 11 }, 0, 0, SV_TERM_OP_UNSPECIFIED },
		{ "no immediate", { .op = SV_RDMAP_IMM, .last = true,
		  .payload_len = 7 }, 0, 0, SV_TERM_OP_UNSPECIFIED },
		{ "half a Terminate", { .op = SV_RDMAP_TERMINATE, .last = true,
		  .payload_len = 3 }, 0, 0, SV_TERM_OP_UNSPECIFIED },
		{ "a long control message", { .op = SV_RDMAP_CTRL, .last = true,
		  .payload_len = SV_CTRL_PAYLOAD_MAX + 1 }, 0, 0,
		  SV_TERM_UNTAGGED_TOO_LONG },
	};
	uint8_t buf[SV_FPDU_HDR_MAX];
	enum sv_term_code err;
	struct sv_ddp out;
	size_t i;
	int len;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		len = (int)sv_ddp_encode(buf, &cases[i].ddp);
		if (cases[i].at)
			sv_put16(buf + (cases[i].at > 0 ? cases[i].at : 0),
				 cases[i].value);
		cr_assert_eq(decode(&out, true, buf, len, &err), -EPROTO, "%s",
			     cases[i].why);
		cr_assert_eq(err, cases[i].err, "%s: %s", cases[i].why,
			     sv_term_str(err));
	}
	/* Queue 4 is ours. */
	len = (int)sv_ddp_encode(buf, &(struct sv_ddp){ .op = SV_RDMAP_SEND });
	sv_put32(buf + 8, SV_QN_CTRL);
	decode(&out, false, buf, len, &err);
	cr_assert_eq(err, SV_TERM_UNTAGGED_QN);
	decode(&out, true, buf, len, &err);
	cr_assert_eq(err, SV_TERM_OP_OPCODE);
}

/* The last byte that a length and an offset can name is still good. */
Test(iwarp_ddp, limits)
{
	struct sv_ddp in = {
		.op = SV_RDMAP_WRITE,
		.payload_len = SV_ULPDU_MAX - SV_DDP_TAGGED_LEN,
	};
	uint8_t buf[SV_FPDU_HDR_MAX];
	enum sv_term_code err;
	struct sv_ddp out;

	in.to = UINT64_MAX - in.payload_len;
	sv_ddp_encode(buf, &in);
	cr_assert_eq(sv_get16(buf), SV_ULPDU_MAX);
	cr_assert_eq(decode(&out, false, buf, 16, &err), 16);
	cr_assert_eq(out.to, in.to);
	in.op = SV_RDMAP_SEND;
	in.payload_len = SV_ULPDU_MAX - SV_DDP_UNTAGGED_LEN;
	in.mo = UINT32_MAX - in.payload_len;
	sv_ddp_encode(buf, &in);
	cr_assert_eq(decode(&out, false, buf, 20, &err), 20);
	cr_assert_eq(out.mo, in.mo);
	cr_assert_eq(out.payload_len, in.payload_len);
}

Test(iwarp_ddp, read_request)
{
	static const struct sv_read_req in = {
		.sink_stag = 0x11223344,
		.sink_to = 0x0102030405060708,
		.len = 0x80000000,
		.src_stag = 0x55667788,
		.src_to = 0x1112131415161718,
	};
	static const uint8_t bytes[SV_READ_REQ_LEN] = {
		0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 6, 7, 8,
		0x80, 0, 0, 0, 0x55, 0x66, 0x77, 0x88,
		0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
	};
	uint8_t buf[SV_READ_REQ_LEN];
	struct sv_read_req out;

	sv_read_req_encode(buf, &in);
	cr_assert_arr_eq(buf, bytes, sizeof(bytes));
	sv_read_req_decode(&out, bytes);
	cr_assert_eq(out.sink_stag, in.sink_stag);
	cr_assert_eq(out.sink_to, in.sink_to);
	cr_assert_eq(out.len, in.len);
	cr_assert_eq(out.src_stag, in.src_stag);
	cr_assert_eq(out.src_to, in.src_to);
}

Test(iwarp_ddp, atomics)
{
	static const uint8_t bytes[SV_ATOMIC_REQ_LEN] = {
		0, 0, 0, 2, 0, 0, 0, 9, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 1, 0,
		0, 0, 0, 0, 0, 0, 0, 7,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0, 0, 0, 0, 0, 0, 0, 6,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	};
	uint8_t buf[SV_ATOMIC_REQ_LEN];
	struct sv_atomic_resp resp = { .id = 9, .value = 0x0102030405060708 };
	struct sv_atomic_resp resp_out;
	struct sv_atomic_req req;
	enum sv_term_code err;
	uint32_t op;

	cr_assert_eq(sv_atomic_req_decode(&req, bytes, &err), 0);
	cr_assert_eq(req.op, SV_ATOMIC_CMP_SWAP);
	cr_assert_eq(req.id, 9);
	cr_assert_eq(req.stag, 0x01020304);
	cr_assert_eq(req.to, 256);
	cr_assert_eq(req.swap_add, 7);
	cr_assert_eq(req.compare, 6);
	cr_assert(sv_atomic_is_plain(&req));
	sv_atomic_req_encode(buf, &req);
	cr_assert_arr_eq(buf, bytes, sizeof(bytes));

	req.compare_mask = 0xff;
	cr_assert_not(sv_atomic_is_plain(&req));
	req.op = SV_ATOMIC_FETCH_ADD;
	cr_assert_not(sv_atomic_is_plain(&req));
	req.swap_add_mask = 0;
	cr_assert(sv_atomic_is_plain(&req));

	for (op = 0; op < 16; op++) {
		/* With reserved bits. */
		sv_put32(buf, 0xabcdef0 | op);
		cr_assert_eq(sv_atomic_req_decode(&req, buf, &err),
			     op == 0 || op == 2 ? 0 : -EPROTO);
		cr_assert(op == 0 || op == 2 || err == SV_TERM_OP_OPCODE);
	}

	sv_atomic_resp_encode(buf, &resp);
	cr_assert_arr_eq(buf, "\0\0\0\x9\1\2\3\4\5\6\7\x8", SV_ATOMIC_RESP_LEN);
	sv_atomic_resp_decode(&resp_out, buf);
	cr_assert_eq(resp_out.id, resp.id);
	cr_assert_eq(resp_out.value, resp.value);
}

Test(iwarp_ddp, immediate)
{
	uint8_t buf[SV_IMM_LEN];
	uint32_t kind;
	uint32_t imm;

	sv_imm_encode(buf, SV_IMM_WRITE, 0xcafef00d);
	cr_assert_arr_eq(buf, "\0\0\0\1\xca\xfe\xf0\x0d", SV_IMM_LEN);
	sv_imm_decode(&kind, &imm, buf);
	cr_assert_eq(kind, SV_IMM_WRITE);
	cr_assert_eq(imm, 0xcafef00d);
}

Test(iwarp_ddp, link_control)
{
	uint8_t buf[SV_CTRL_LINK_LEN];
	uint32_t a;
	uint32_t b;

	sv_ctrl_link_encode(buf, 0x01020304, UINT32_MAX);
	cr_assert_arr_eq(buf, "\1\2\3\4\xff\xff\xff\xff", SV_CTRL_LINK_LEN);
	sv_ctrl_link_decode(&a, &b, buf);
	cr_assert_eq(a, 0x01020304);
	cr_assert_eq(b, UINT32_MAX);
}

/* siw's answer to opcode F, byte for byte; and as the RFC would have it. */
Test(iwarp_term, kernel_order)
{
	static const uint8_t frame[24] = {
		0x00, 0x16, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2,
		0, 0, 0, 1, 0, 0, 0, 0, 0x20, 0x06, 0, 0,
	};
	enum sv_term_code err;
	struct sv_term term;
	struct sv_ddp ddp;

	cr_assert_eq(decode(&ddp, false, frame, sizeof(frame), &err), 20);
	cr_assert_eq(ddp.payload_len, SV_TERM_CTRL_LEN);
	cr_assert_eq(decode_term(&term, true, frame + 20, 4), 0);
	cr_assert_eq(term.err, SV_TERM_OP_OPCODE);
	cr_assert_eq(term.ddp_len, 0);
	cr_assert_eq(sv_term_status(term.err), IBV_WC_REM_OP_ERR);
	/* One of us never swaps. */
	cr_assert_eq(decode_term(&term, false, frame + 20, 4), 0);
	cr_assert_eq(term.err, SV_TERM_MPA_IRD);
}

Test(iwarp_term, both_orders)
{
	static const struct {
		const char *bytes;
		uint16_t err;
	} cases[] = {
		/* Flags at one end or the other tell. */
		{ "\x10\x00\x07\x00", SV_TERM_PROT_STAG },
		{ "\x10\x02\x07\x00", SV_TERM_PROT_ACCESS },
		{ "\x01\x02\xe0\x00", SV_TERM_PROT_ACCESS },
		{ "\x21\x02\x03\x00", SV_TERM_UNTAGGED_NO_BUFFER },
		{ "\x12\x02\xc0\x00", SV_TERM_UNTAGGED_NO_BUFFER },
		{ "\x11\x01\x03\x00", SV_TERM_TAGGED_BOUNDS },
		{ "\x11\x01\xc0\x00", SV_TERM_TAGGED_BOUNDS },
		{ "\x20\x05\xc0\x00", SV_TERM_MPA_LOCAL },
		/* Without flags only one reading may make sense, */
		{ "\x20\x02\x00\x00", SV_TERM_MPA_CRC },
		{ "\x02\x02\x00\x00", SV_TERM_MPA_CRC },
		{ "\x21\x06\x00\x00", SV_TERM_UNTAGGED_VERSION },
		{ "\x12\x06\x00\x00", SV_TERM_UNTAGGED_VERSION },
		{ "\x01\x04\x00\x00", SV_TERM_PROT_TO_WRAP },
		/* or both, */
		{ "\x20\x05\x00\x00", SV_TERM_OP_VERSION },
		{ "\x02\x06\x00\x00", SV_TERM_OP_OPCODE },
		{ "\x01\x00\x00\x00", SV_TERM_PROT_STAG },
		/* or neither. */
		{ "\x77\x06\x00\x00", 0x7706 },
		{ "\xf3\x99\x00\x00", 0xf399 },
	};
	struct sv_term term;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		cr_assert_eq(decode_term(&term, true,
			(const uint8_t *)cases[i].bytes, 4), 0);
		cr_assert_eq(term.err, cases[i].err, "%zu: %04x", i, term.err);
	}
}

Test(iwarp_term, round_trip_with_copies)
{
	struct sv_ddp ddp = {
		.op = SV_RDMAP_READ_REQ,
		.last = true,
		.payload_len = SV_READ_REQ_LEN,
		.msn = 3,
	};
	uint8_t hdr[SV_FPDU_HDR_MAX];
	uint8_t buf[SV_TERM_MAX + 1];
	struct sv_term out;
	struct sv_term in;
	size_t len;
	size_t i;

	sv_ddp_encode(hdr, &ddp);
	sv_term_init(&in, SV_TERM_PROT_BOUNDS, hdr + 2, &ddp);
	in.has_read_req = true;
	memset(in.read_req, 0x77, sizeof(in.read_req));
	memset(buf, 0xee, sizeof(buf));
	len = sv_term_encode(buf, &in);
	cr_assert_eq(len, SV_TERM_MAX);
	cr_assert_eq(buf[len], 0xee);
	cr_assert_arr_eq(buf, "\x01\x01\xe0\x00\x00\x2e", 6);
	for (i = 0; i <= len; i++) {
		cr_assert_eq(decode_term(&out, false, buf, i),
			     i < 4 ? -EPROTO : 0);
		if (i < 4)
			continue;
		cr_assert_eq(out.err, SV_TERM_PROT_BOUNDS);
		cr_assert_eq(out.ddp_len, i < 24 ? 0 : SV_DDP_UNTAGGED_LEN);
		cr_assert_eq(out.has_read_req, i == SV_TERM_MAX);
	}
	cr_assert_eq(out.seg_len, 46);
	cr_assert_arr_eq(out.ddp, hdr + 2, SV_DDP_UNTAGGED_LEN);
	cr_assert_arr_eq(out.read_req, in.read_req, SV_READ_REQ_LEN);
	/* With the flags at siw's end, and its order. */
	buf[0] = 0x10;
	buf[2] = 7;
	cr_assert_eq(decode_term(&out, true, buf, len), 0);
	cr_assert_eq(out.err, SV_TERM_PROT_BOUNDS);
	cr_assert(out.has_read_req);

	ddp = (struct sv_ddp){ .op = SV_RDMAP_WRITE, .stag = 4 };
	sv_ddp_encode(hdr, &ddp);
	sv_term_init(&in, SV_TERM_TAGGED_STAG, hdr + 2, &ddp);
	len = sv_term_encode(buf, &in);
	cr_assert_eq(len, 4 + 2 + SV_DDP_TAGGED_LEN);
	cr_assert_eq(decode_term(&out, true, buf, len), 0);
	cr_assert_eq(out.ddp_len, SV_DDP_TAGGED_LEN);
	cr_assert_not(out.has_read_req);

	sv_term_init(&in, SV_TERM_MPA_CRC, NULL, NULL);
	cr_assert_eq(sv_term_encode(buf, &in), SV_TERM_CTRL_LEN);
	cr_assert_arr_eq(buf, "\x20\x02\0\0", 4);
}

/* Each error that one of us sends has its meaning and comes back as itself. */
Test(iwarp_term, every_code)
{
	uint8_t buf[SV_TERM_MAX];
	struct sv_term out;
	struct sv_term in;
	uint32_t known = 0;
	uint32_t err;

	for (err = 0; err < 0x10000; err++) {
		sv_term_init(&in, (enum sv_term_code)err, NULL, NULL);
		cr_assert_eq(sv_term_encode(buf, &in), SV_TERM_CTRL_LEN);
		cr_assert_eq(decode_term(&out, false, buf, 4), 0);
		cr_assert_eq(out.err, err);
		if (!strcmp(sv_term_str((uint16_t)err), "unknown error"))
			continue;
		known++;
		cr_assert_neq(sv_term_status((uint16_t)err), IBV_WC_SUCCESS);
	}
	cr_assert_eq(known, 33);
	cr_assert_eq(sv_term_status(SV_TERM_PROT_ACCESS), IBV_WC_REM_ACCESS_ERR);
	cr_assert_eq(sv_term_status(SV_TERM_TAGGED_BOUNDS),
		     IBV_WC_REM_ACCESS_ERR);
	cr_assert_eq(sv_term_status(SV_TERM_UNTAGGED_TOO_LONG),
		     IBV_WC_REM_INV_REQ_ERR);
	cr_assert_eq(sv_term_status(SV_TERM_MPA_CRC), IBV_WC_RETRY_EXC_ERR);
}
