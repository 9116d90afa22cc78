/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * MPA frames and control messages: what goes out comes in again, what real
 * peers send is read as they mean it, and nothing that is sent can hurt.
 * Buffers are allocated to the byte, so that a sanitizer or valgrind sees a
 * read beyond the end.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sv_mpa.h"

TestSuite(sv_mpa, .timeout = 60);
TestSuite(sv_ctrl, .timeout = 60);

static const struct sv_mpa request = {
	.rev = 2,
	.ext = true,
	.enhanced = true,
	.p2p = true,
	.rtr_write = true,
	.ird = 16,
	.ord = 0x3fff,
	.pd_len = 5,
	.pd = "hello",
};

static const struct sv_ctrl hello = {
	.type = SV_CTRL_HELLO,
	.version = SV_CTRL_VERSION,
	.host_id = "0123456789abcdef",
	.netns = 0x1122334455667788ull,
	.user = 0x99aabbccddeeff00ull,
	.links = SV_LINKS_SHM | SV_LINKS_TCP,
	.token = "fedcba9876543210",
	.unix_name = "sv-abc",
	.conn = {
		.qp_num = 0xabcdef,
		.psn = 0x123456,
		.retry_cnt = 7,
		.rnr_retry_cnt = 6,
		.flow_control = 1,
		.srq = 1,
	},
};

/* Decodes a copy that ends where the allocation ends. */
static int decode_mpa(struct sv_mpa *mpa, bool reply, const void *buf,
		      size_t len)
{
	void *copy = malloc(len ? len : 1);
	int ret;

	cr_assert_not_null(copy);
	memcpy(copy, buf, len);
	ret = sv_mpa_decode(mpa, reply, copy, len);
	free(copy);
	return ret;
}

static int decode_ctrl(struct sv_ctrl *ctrl, uint32_t msn, const void *buf,
		       size_t len)
{
	void *copy = malloc(len ? len : 1);
	int ret;

	cr_assert_not_null(copy);
	memcpy(copy, buf, len);
	ret = sv_ctrl_decode(ctrl, msn, copy, len);
	free(copy);
	return ret;
}

static void assert_same(const struct sv_mpa *a, const struct sv_mpa *b)
{
	cr_assert_eq(a->rev, b->rev);
	cr_assert_eq(a->reply, b->reply);
	cr_assert_eq(a->markers, b->markers);
	cr_assert_eq(a->crc, b->crc);
	cr_assert_eq(a->reject, b->reject);
	cr_assert_eq(a->ext, b->ext);
	cr_assert_eq(a->enhanced, b->enhanced);
	cr_assert_eq(a->p2p, b->p2p);
	cr_assert_eq(a->rtr_fpdu, b->rtr_fpdu);
	cr_assert_eq(a->rtr_write, b->rtr_write);
	cr_assert_eq(a->rtr_read, b->rtr_read);
	cr_assert_eq(a->ird, b->ird);
	cr_assert_eq(a->ord, b->ord);
	cr_assert_eq(a->pd_len, b->pd_len, "%u != %u", a->pd_len, b->pd_len);
	cr_assert_arr_eq(a->pd, b->pd, a->pd_len);
}

static void round_trip(const struct sv_mpa *in)
{
	uint8_t buf[SV_MPA_FRAME_MAX + 8];
	struct sv_mpa out;
	int len;
	int i;

	len = sv_mpa_encode(in, buf, sizeof(buf));
	cr_assert_gt(len, 0, "encode: %d", len);
	memset(buf + len, 'x', sizeof(buf) - len);
	for (i = 0; i < len; i++)
		cr_assert_eq(decode_mpa(&out, in->reply, buf, i), 0);
	cr_assert_eq(decode_mpa(&out, in->reply, buf, len), len);
	assert_same(in, &out);
	/* What follows is not touched. */
	cr_assert_eq(decode_mpa(&out, in->reply, buf, sizeof(buf)), len);
	/* Not one byte too many is written. */
	cr_assert_eq(sv_mpa_encode(in, buf, len - 1), -EMSGSIZE);
	cr_assert_eq(decode_mpa(&out, !in->reply, buf, len), -EPROTO);
}

Test(sv_mpa, every_flag_survives)
{
	struct sv_mpa mpa;
	unsigned int bits;

	for (bits = 0; bits < 1u << 10; bits++) {
		mpa = request;
		mpa.reply = bits & 1;
		mpa.crc = bits & 2;
		mpa.markers = bits & 4;
		mpa.ext = bits & 8;
		mpa.p2p = bits & 16;
		mpa.rtr_fpdu = bits & 32;
		mpa.rtr_write = bits & 64;
		mpa.rtr_read = bits & 128;
		mpa.reject = mpa.reply && bits & 256;
		if (bits & 512)
			mpa.ird = 1;
		round_trip(&mpa);
	}
}

Test(sv_mpa, every_length_of_private_data)
{
	struct sv_mpa mpa = request;
	uint8_t buf[SV_MPA_FRAME_MAX];

	memset(mpa.pd, 0xa5, sizeof(mpa.pd));
	for (mpa.pd_len = 0; mpa.pd_len <= SV_MPA_PD_MAX - 4; mpa.pd_len += 12)
		round_trip(&mpa);
	mpa.pd_len = SV_MPA_PD_MAX - 4;
	round_trip(&mpa);
	mpa.pd_len++;
	cr_assert_eq(sv_mpa_encode(&mpa, buf, sizeof(buf)), -EMSGSIZE);

	mpa = (struct sv_mpa){ .rev = 1, .pd_len = SV_MPA_PD_MAX };
	round_trip(&mpa);
	mpa.pd_len++;
	cr_assert_eq(sv_mpa_encode(&mpa, buf, sizeof(buf)), -EMSGSIZE);
}

Test(sv_mpa, encode_refuses_nonsense)
{
	uint8_t buf[SV_MPA_FRAME_MAX];
	struct sv_mpa mpa = request;

	mpa.ird = 0x4000;
	cr_assert_eq(sv_mpa_encode(&mpa, buf, sizeof(buf)), -EINVAL);
	mpa = request;
	mpa.rev = 1;
	cr_assert_eq(sv_mpa_encode(&mpa, buf, sizeof(buf)), -EINVAL);
	mpa = request;
	mpa.reject = true;
	cr_assert_eq(sv_mpa_encode(&mpa, buf, sizeof(buf)), -EINVAL);
}

/* As the kernel's siw sends it for one read in flight and no data. */
Test(sv_mpa, kernel_request)
{
	static const uint8_t frame[] = "MPA ID Req Frame"
		"\x10\x02\x00\x04\x00\x01\x00\x01";
	struct sv_mpa mpa;

	cr_assert_eq(decode_mpa(&mpa, false, frame, sizeof(frame) - 1), 24);
	cr_assert_eq(mpa.rev, 2);
	cr_assert(mpa.enhanced && !mpa.ext && !mpa.crc && !mpa.p2p);
	cr_assert_eq(mpa.ird, 1);
	cr_assert_eq(mpa.ord, 1);
	cr_assert_eq(mpa.pd_len, 0);
}

/* It echoes unknown bits of our request: that is not our extension. */
Test(sv_mpa, echoed_bit_is_no_answer)
{
	static const uint8_t echo[] = "MPA ID Rep Frame"
		"\x14\x02\x00\x04\x80\x08\x80\x08";
	static const uint8_t both[] = "MPA ID Rep Frame"
		"\x16\x02\x00\x04\x80\x08\x80\x08";
	static const uint8_t taken[] = "MPA ID Rep Frame"
		"\x12\x02\x00\x04\x80\x08\x80\x08";
	struct sv_mpa mpa;

	cr_assert_eq(decode_mpa(&mpa, true, echo, 24), 24);
	cr_assert_not(mpa.ext);
	cr_assert_eq(decode_mpa(&mpa, true, both, 24), 24);
	cr_assert_not(mpa.ext);
	cr_assert_eq(decode_mpa(&mpa, true, taken, 24), 24);
	cr_assert(mpa.ext);
	cr_assert(mpa.p2p && mpa.rtr_write && !mpa.rtr_read);
}

Test(sv_mpa, revision_one_has_no_enhanced_part)
{
	static const uint8_t frame[] = "MPA ID Req Frame\x10\x01\x00\x04" "abcd";
	struct sv_mpa mpa;

	cr_assert_eq(decode_mpa(&mpa, false, frame, 24), 24);
	cr_assert_not(mpa.enhanced);
	cr_assert_eq(mpa.pd_len, 4);
	cr_assert_arr_eq(mpa.pd, "abcd", 4);
}

Test(sv_mpa, malformed)
{
	static const struct {
		const char *why;
		const char *frame;
		size_t len;
		int ret;
	} cases[] = {
		{ "first byte", "G", 1, -EPROTO },
		{ "last byte of the key", "MPA ID Req Framf", 16, -EPROTO },
		{ "revision 0", "MPA ID Req Frame\0\0\0\0", 20,
		  -EPROTONOSUPPORT },
		{ "revision 3", "MPA ID Req Frame\x10\3\0\4", 20,
		  -EPROTONOSUPPORT },
		{ "513 bytes", "MPA ID Req Frame\0\1\2\1", 20, -EPROTO },
		{ "65535 bytes", "MPA ID Req Frame\0\1\xff\xff", 20, -EPROTO },
		{ "no room for IRD", "MPA ID Req Frame\x10\2\0\3", 20,
		  -EPROTO },
		{ "half a header", "MPA ID Req Frame\x10", 17, 0 },
		{ "nothing", "", 0, 0 },
	};
	struct sv_mpa mpa;
	size_t i;
	int ret;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ret = decode_mpa(&mpa, false, cases[i].frame, cases[i].len);
		cr_assert_eq(ret, cases[i].ret, "%s: %d", cases[i].why, ret);
	}
}

Test(sv_ctrl, hello_round_trip)
{
	uint8_t buf[SV_CTRL_MAX + 8];
	struct sv_ctrl out;
	int len;
	int i;

	len = sv_ctrl_encode(&hello, 7, buf, sizeof(buf));
	cr_assert_gt(len, 0);
	cr_assert_eq(len % 4, 0);
	cr_assert_leq(len, SV_CTRL_MAX);
	memset(buf + len, 'x', sizeof(buf) - len);
	for (i = 0; i < len; i++)
		cr_assert_eq(decode_ctrl(&out, 7, buf, i), 0);
	cr_assert_eq(decode_ctrl(&out, 7, buf, len), len);
	cr_assert_eq(out.type, hello.type);
	cr_assert_eq(out.version, hello.version);
	cr_assert_arr_eq(out.host_id, hello.host_id, SV_HOST_ID_LEN);
	cr_assert_eq(out.netns, hello.netns);
	cr_assert_eq(out.user, hello.user);
	cr_assert_eq(out.links, hello.links);
	cr_assert_arr_eq(out.token, hello.token, SV_TOKEN_LEN);
	cr_assert_str_eq(out.unix_name, hello.unix_name);
	cr_assert_eq(out.conn.qp_num, hello.conn.qp_num);
	cr_assert_eq(out.conn.psn, hello.conn.psn);
	cr_assert_eq(out.conn.retry_cnt, hello.conn.retry_cnt);
	cr_assert_eq(out.conn.rnr_retry_cnt, hello.conn.rnr_retry_cnt);
	cr_assert_eq(out.conn.flow_control, 1);
	cr_assert_eq(out.conn.srq, 1);
	cr_assert_eq(sv_ctrl_encode(&hello, 7, buf, len - 1), -EMSGSIZE);
}

Test(sv_ctrl, every_type)
{
	uint8_t buf[SV_CTRL_MAX];
	struct sv_ctrl in = hello;
	struct sv_ctrl out;
	int len;

	for (in.type = SV_CTRL_HELLO; in.type <= SV_CTRL_MEET; in.type++) {
		len = sv_ctrl_encode(&in, 1, buf, sizeof(buf));
		cr_assert_gt(len, 0);
		cr_assert_eq(decode_ctrl(&out, 1, buf, len), len);
		cr_assert_eq(out.type, in.type);
		cr_assert_eq(out.conn.qp_num, in.type <= SV_CTRL_ACCEPT ||
			     in.type == SV_CTRL_MEET ? hello.conn.qp_num : 0);
	}
}

Test(sv_ctrl, meet_round_trip)
{
	uint8_t buf[SV_CTRL_MAX];
	struct sv_ctrl in = hello;
	struct sv_ctrl out;
	int known;
	int len;
	int i;

	in.type = SV_CTRL_MEET;
	in.dest_qp_num = 0xfedcba;
	in.sq_psn = 0xffffff;
	for (known = 0; known < 2; known++) {
		in.sq_psn_known = known;
		len = sv_ctrl_encode(&in, 2, buf, sizeof(buf));
		cr_assert_gt(len, 0);
		for (i = 0; i < len; i++)
			cr_assert_eq(decode_ctrl(&out, 2, buf, i), 0);
		cr_assert_eq(decode_ctrl(&out, 2, buf, len), len);
		cr_assert_eq(out.dest_qp_num, 0xfedcba);
		cr_assert_eq(out.sq_psn, 0xffffff);
		cr_assert_eq(out.sq_psn_known, known);
		cr_assert_eq(out.conn.psn, hello.conn.psn);
		cr_assert_str_eq(out.unix_name, hello.unix_name);
		cr_assert_eq(sv_ctrl_encode(&in, 2, buf, len - 1), -EMSGSIZE);
	}
}

Test(sv_ctrl, longest_name)
{
	uint8_t buf[SV_CTRL_MAX];
	struct sv_ctrl in = hello;
	struct sv_ctrl out;
	int len;

	memset(in.unix_name, 'n', SV_UNIX_NAME_MAX);
	in.unix_name[SV_UNIX_NAME_MAX] = 0;
	len = sv_ctrl_encode(&in, 1, buf, sizeof(buf));
	cr_assert_eq(decode_ctrl(&out, 1, buf, len), len);
	cr_assert_str_eq(out.unix_name, in.unix_name);
}

Test(sv_ctrl, malformed)
{
	uint8_t good[SV_CTRL_MAX];
	uint8_t bad[SV_CTRL_MAX];
	struct sv_ctrl out;
	static const struct {
		const char *why;
		int at;
		uint8_t value;
		int ret;
	} cases[] = {
		{ "long", 0, 1, -EPROTO },
		{ "short", 1, 17, -EPROTO },
		{ "length of another type", 1, 18, -EPROTO },
		{ "tagged", 2, 0xc1, -EPROTO },
		{ "DDP version", 2, 0x42, -EPROTO },
		{ "opcode", 3, 0x43, -EPROTO },
		{ "type 0", 7, 0, -EPROTONOSUPPORT },
		{ "type 7", 7, 7, -EPROTONOSUPPORT },
		{ "queue", 11, 0, -EPROTO },
		{ "number", 15, 2, -EPROTO },
		{ "offset", 19, 1, -EPROTO },
		{ "version", 21, 2, -EPROTONOSUPPORT },
		{ "name too long", 23, SV_UNIX_NAME_MAX + 1, -EPROTO },
		{ "zero in the name", 23, 7, -EPROTO },
	};
	size_t i;
	int len;
	int ret;

	len = sv_ctrl_encode(&hello, 1, good, sizeof(good));
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memcpy(bad, good, sizeof(bad));
		bad[cases[i].at] = cases[i].value;
		ret = decode_ctrl(&out, 1, bad, len);
		cr_assert_eq(ret, cases[i].ret, "%s: %d", cases[i].why, ret);
	}
}

/* Whatever a frame is turned into: no crash, and never more than was there. */
Test(sv_ctrl, bits_flipped)
{
	uint8_t ctrl_buf[SV_CTRL_MAX];
	uint8_t mpa_buf[SV_MPA_FRAME_MAX];
	struct sv_ctrl ctrl;
	struct sv_mpa mpa;
	int ctrl_len;
	int mpa_len;
	int round;
	int ret;
	int len;
	int i;

	srand(1);
	for (round = 0; round < 20000; round++) {
		ctrl_len = sv_ctrl_encode(&hello, 1, ctrl_buf,
					  sizeof(ctrl_buf));
		mpa_len = sv_mpa_encode(&request, mpa_buf, sizeof(mpa_buf));
		for (i = rand() % 4; i >= 0; i--) {
			ctrl_buf[rand() % ctrl_len] = (uint8_t)rand();
			mpa_buf[16 + rand() % (mpa_len - 16)] =
				(uint8_t)rand();
		}
		len = rand() % (ctrl_len + 1);
		ret = decode_ctrl(&ctrl, 1, ctrl_buf, len);
		cr_assert_leq(ret, len);
		len = rand() % (mpa_len + 1);
		ret = decode_mpa(&mpa, false, mpa_buf, len);
		cr_assert_leq(ret, len);
	}
}
