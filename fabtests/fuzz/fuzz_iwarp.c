/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FPDUs. Input: one byte (bit 0: the peer may use our extension, bit 1: it may be
 * siw), then the stream. What is read and written again is what came in, but for
 * reserved bits; each payload of fixed length, too.
 */
#include "fuzz.h"

#include <errno.h>

#include "sv_iwarp.h"
#include "sv_mpa.h"

static void fuzz_header(const struct sv_ddp *ddp, const uint8_t *data, int len)
{
	uint8_t buf[SV_FPDU_HDR_MAX];
	uint8_t want[SV_FPDU_HDR_MAX];

	FUZZ_CHECK(len == (sv_op_is_tagged(ddp->op) ? SV_FPDU_TAGGED_LEN :
			   SV_FPDU_UNTAGGED_LEN));
	FUZZ_CHECK(sv_ddp_ulpdu_len(ddp) == sv_get16(data));
	FUZZ_CHECK((int)sv_ddp_encode(buf, ddp) == len);
	memcpy(want, data, len);
	want[2] &= 0xc3;
	want[3] &= 0xcf;
	FUZZ_CHECK(!memcmp(buf, want, len));
}

static void fuzz_term(const uint8_t *p, size_t len, bool foreign)
{
	uint8_t buf[SV_TERM_MAX];
	struct sv_term term;
	struct sv_term again;
	size_t size;

	if (sv_term_decode(&term, foreign, p, len)) {
		FUZZ_CHECK(len < SV_TERM_CTRL_LEN);
		return;
	}
	FUZZ_CHECK(sv_term_str(term.err));
	FUZZ_CHECK(sv_term_status(term.err) != IBV_WC_SUCCESS);
	size = sv_term_encode(buf, &term);
	FUZZ_CHECK(size <= SV_TERM_MAX);
	FUZZ_CHECK(!sv_term_decode(&again, false, buf, size));
	FUZZ_CHECK(!memcmp(&term, &again, sizeof(term)));
}

static void fuzz_atomic(const uint8_t *p)
{
	uint8_t buf[SV_ATOMIC_REQ_LEN];
	struct sv_atomic_req req;
	enum sv_term_code err;

	if (sv_atomic_req_decode(&req, p, &err)) {
		FUZZ_CHECK(err == SV_TERM_OP_OPCODE);
		return;
	}
	sv_atomic_req_encode(buf, &req);
	FUZZ_CHECK(!memcmp(buf + 4, p + 4, sizeof(buf) - 4));
	FUZZ_CHECK(sv_get32(buf) == (sv_get32(p) & 15));
}

static void fuzz_payload(const struct sv_ddp *ddp, const uint8_t *p,
			 bool foreign)
{
	uint8_t buf[SV_READ_REQ_LEN];
	struct sv_atomic_resp resp;
	struct sv_read_req read;
	uint32_t a;
	uint32_t b;

	switch (ddp->op) {
	case SV_RDMAP_READ_REQ:
		sv_read_req_decode(&read, p);
		sv_read_req_encode(buf, &read);
		FUZZ_CHECK(!memcmp(buf, p, SV_READ_REQ_LEN));
		break;
	case SV_RDMAP_TERMINATE:
		fuzz_term(p, ddp->payload_len, foreign);
		break;
	case SV_RDMAP_IMM:
	case SV_RDMAP_IMM_SE:
		sv_imm_decode(&a, &b, p);
		sv_imm_encode(buf, a, b);
		FUZZ_CHECK(!memcmp(buf, p, SV_IMM_LEN));
		break;
	case SV_RDMAP_ATOMIC_REQ:
		fuzz_atomic(p);
		break;
	case SV_RDMAP_ATOMIC_RESP:
		sv_atomic_resp_decode(&resp, p);
		sv_atomic_resp_encode(buf, &resp);
		FUZZ_CHECK(!memcmp(buf, p, SV_ATOMIC_RESP_LEN));
		break;
	default:
		break;
	}
}

/* An FPDU that is all there: its tail is where we say, sealed or not. */
static void fuzz_tail(const struct sv_ddp *ddp, const uint8_t *data)
{
	size_t ulpdu_len = sv_ddp_ulpdu_len(ddp);
	size_t size = sv_fpdu_size(ulpdu_len);
	size_t len = 2 + ulpdu_len;
	uint8_t *copy = malloc(size);
	uint32_t crc;

	FUZZ_CHECK(copy);
	memcpy(copy, data, size);
	crc = sv_crc32c(0, copy, len);
	sv_fpdu_tail_ok(copy + len, ulpdu_len, crc);
	sv_fpdu_seal(copy);
	FUZZ_CHECK(sv_fpdu_tail_ok(copy + len, ulpdu_len, crc));
	FUZZ_CHECK(!memcmp(copy, data, len));
	copy[len - 1] ^= 1;
	FUZZ_CHECK(!sv_fpdu_tail_ok(copy + len, ulpdu_len,
				    sv_crc32c(0, copy, len)));
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum sv_term_code err = SV_TERM_NONE;
	bool foreign;
	struct sv_ddp ddp;
	bool ext;
	int ret;

	if (!size)
		return 0;
	ext = data[0] & 1;
	foreign = data[0] & 2;
	data++;
	size--;
	for (;;) {
		ret = sv_ddp_decode(&ddp, ext, data, size, &err);
		FUZZ_CHECK(ret <= (int)size);
		FUZZ_CHECK((ret == -EPROTO) == (err != SV_TERM_NONE));
		FUZZ_CHECK(ret || size < SV_FPDU_HDR_MAX);
		if (ret <= 0) {
			FUZZ_CHECK(strcmp(sv_term_str((uint16_t)err),
					  "unknown error") ||
				   err == SV_TERM_NONE);
			return 0;
		}
		fuzz_header(&ddp, data, ret);
		FUZZ_CHECK(!sv_ddp_decode(&ddp, ext, data, ret - 1, &err));
		FUZZ_CHECK(sv_ddp_decode(&ddp, ext, data, ret, &err) == ret);
		if (size < sv_fpdu_size(sv_ddp_ulpdu_len(&ddp)))
			return 0;
		fuzz_payload(&ddp, data + ret, foreign);
		fuzz_tail(&ddp, data);
		ret = (int)sv_fpdu_size(sv_ddp_ulpdu_len(&ddp));
		data += ret;
		size -= ret;
	}
}
