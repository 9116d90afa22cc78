/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Decoding of what iWARP peers send, and the encoding that no data path needs.
 * Pure functions; see sv_iwarp.h for the layouts and the contract.
 */
#include "sv_iwarp.h"

#include <errno.h>
#include <isa-l/crc.h>

#include "sv_mpa.h"

enum {
	DDP_TAGGED = 0x80,
	DDP_LAST = 0x40,
	DDP_VERSION_MASK = 0x03,
	DDP_VERSION = 1,
	RDMAP_VERSION_MASK = 0xc0,
	RDMAP_VERSION = 0x40,
	RDMAP_OP_MASK = 0x0f,

	/* Third byte of a Terminate message. */
	TERM_HAS_LEN = 0x80,
	TERM_HAS_DDP = 0x40,
	TERM_HAS_RDMAP = 0x20,
	TERM_FLAGS = TERM_HAS_LEN | TERM_HAS_DDP | TERM_HAS_RDMAP,
	SIW_HAS_LEN = 0x01,
	SIW_HAS_DDP = 0x02,
	SIW_HAS_RDMAP = 0x04,
	SIW_FLAGS = SIW_HAS_LEN | SIW_HAS_DDP | SIW_HAS_RDMAP,
};

static_assert((int)SV_FPDU_UNTAGGED_LEN == (int)SV_CTRL_HDR_LEN,
	      "a control message is an untagged segment");

/*
 * What a payload may be, opcode by opcode. A message of fixed length is one
 * segment: there is no buffer that a second could go to.
 */
static const struct {
	bool known;
	bool ext;
	bool single;
	uint8_t min;
	uint8_t max;			/* 0: no limit */
} ops[16] = {
	[SV_RDMAP_WRITE] = { .known = true },
	[SV_RDMAP_READ_REQ] = { .known = true, .single = true,
		.min = SV_READ_REQ_LEN, .max = SV_READ_REQ_LEN },
	[SV_RDMAP_READ_RESP] = { .known = true },
	[SV_RDMAP_SEND] = { .known = true },
	[SV_RDMAP_SEND_INV] = { .known = true },
	[SV_RDMAP_SEND_SE] = { .known = true },
	[SV_RDMAP_SEND_SE_INV] = { .known = true },
	/* RFC 5040 has it end where its flags say; longer ones are only odd. */
	[SV_RDMAP_TERMINATE] = { .known = true, .single = true,
		.min = SV_TERM_CTRL_LEN, .max = UINT8_MAX },
	[SV_RDMAP_IMM] = { .known = true, .ext = true, .single = true,
		.min = SV_IMM_LEN, .max = SV_IMM_LEN },
	[SV_RDMAP_IMM_SE] = { .known = true, .ext = true, .single = true,
		.min = SV_IMM_LEN, .max = SV_IMM_LEN },
	[SV_RDMAP_ATOMIC_REQ] = { .known = true, .ext = true, .single = true,
		.min = SV_ATOMIC_REQ_LEN, .max = SV_ATOMIC_REQ_LEN },
	[SV_RDMAP_ATOMIC_RESP] = { .known = true, .ext = true, .single = true,
		.min = SV_ATOMIC_RESP_LEN, .max = SV_ATOMIC_RESP_LEN },
	[SV_RDMAP_SEND_IMM] = { .known = true, .ext = true },
	[SV_RDMAP_SEND_SE_IMM] = { .known = true, .ext = true },
	[SV_RDMAP_CTRL] = { .known = true, .ext = true, .single = true,
		.max = SV_CTRL_PAYLOAD_MAX },
};

uint32_t sv_crc32c(uint32_t crc, const void *buf, size_t len)
{
	/* ISA-L takes an int, and a pointer that it does not write through. */
	enum { CHUNK = 1 << 30 };
	unsigned char *p = (unsigned char *)(uintptr_t)buf;

	crc = ~crc;
	for (; len > CHUNK; len -= CHUNK, p += CHUNK)
		crc = crc32_iscsi(p, CHUNK, crc);
	return ~crc32_iscsi(p, (int)len, crc);
}

void sv_fpdu_seal(uint8_t *fpdu)
{
	size_t ulpdu_len = sv_get16(fpdu);
	size_t len = 2 + ulpdu_len;

	sv_fpdu_put_tail(fpdu + len, ulpdu_len, true, sv_crc32c(0, fpdu, len));
}

/* The checks that both kinds of segment share; b are bytes 2 and 3. */
static enum sv_term_code check_ctrl(const uint8_t *b, bool ext)
{
	bool tagged = b[0] & DDP_TAGGED;
	unsigned int op = b[1] & RDMAP_OP_MASK;

	/* Reserved bits are not looked at: RFC 5040 and 5041 want it so. */
	if ((b[0] & DDP_VERSION_MASK) != DDP_VERSION)
		return tagged ? SV_TERM_TAGGED_VERSION :
			SV_TERM_UNTAGGED_VERSION;
	if ((b[1] & RDMAP_VERSION_MASK) != RDMAP_VERSION)
		return SV_TERM_OP_VERSION;
	if (!ops[op].known || (ops[op].ext && !ext) ||
	    tagged != sv_op_is_tagged((enum sv_rdmap_op)op))
		return SV_TERM_OP_OPCODE;
	return SV_TERM_NONE;
}

static enum sv_term_code check_untagged(const struct sv_ddp *ddp, uint32_t qn,
					bool ext)
{
	uint32_t qn_max = ext ? SV_QN_CTRL : SV_QN_ATOMIC_RESP;

	if (qn > qn_max)
		return SV_TERM_UNTAGGED_QN;
	if (qn != sv_op_qn(ddp->op))
		return SV_TERM_OP_OPCODE;
	if (ddp->mo > UINT32_MAX - ddp->payload_len)
		return SV_TERM_UNTAGGED_MO;
	if (!ops[ddp->op].single)
		return SV_TERM_NONE;
	if (ddp->mo)
		return SV_TERM_UNTAGGED_MO;
	if (!ddp->last ||
	    (ops[ddp->op].max && ddp->payload_len > ops[ddp->op].max))
		return SV_TERM_UNTAGGED_TOO_LONG;
	if (ddp->payload_len < ops[ddp->op].min)
		return SV_TERM_OP_UNSPECIFIED;
	return SV_TERM_NONE;
}

static int refuse(enum sv_term_code *err, enum sv_term_code why)
{
	*err = why;
	return -EPROTO;
}

int sv_ddp_decode(struct sv_ddp *ddp, bool ext, const uint8_t *p, size_t len,
		  enum sv_term_code *err)
{
	enum sv_term_code why;
	size_t ulpdu_len;
	size_t hdr_len;

	if (len < 4)
		return 0;
	why = check_ctrl(p + 2, ext);
	if (unlikely(why != SV_TERM_NONE))
		return refuse(err, why);
	ddp->op = (enum sv_rdmap_op)(p[3] & RDMAP_OP_MASK);
	ddp->last = p[2] & DDP_LAST;
	ulpdu_len = sv_get16(p);
	hdr_len = sv_ddp_len(ddp->op);
	if (unlikely(ulpdu_len < hdr_len))
		return refuse(err, SV_TERM_MPA_LENGTH);
	if (len < 2 + hdr_len)
		return 0;
	ddp->payload_len = (uint32_t)(ulpdu_len - hdr_len);

	if (sv_op_is_tagged(ddp->op)) {
		ddp->stag = sv_get32(p + 4);
		ddp->to = sv_get64(p + 8);
		ddp->ulp = ddp->msn = ddp->mo = 0;
		return SV_FPDU_TAGGED_LEN;
	}
	ddp->stag = 0;
	ddp->to = 0;
	ddp->ulp = sv_get32(p + 4);
	ddp->msn = sv_get32(p + 12);
	ddp->mo = sv_get32(p + 16);
	why = check_untagged(ddp, sv_get32(p + 8), ext);
	if (unlikely(why != SV_TERM_NONE))
		return refuse(err, why);
	return SV_FPDU_UNTAGGED_LEN;
}

void sv_atomic_req_encode(uint8_t *p, const struct sv_atomic_req *req)
{
	p = sv_put32(p, req->op);
	p = sv_put32(p, req->id);
	p = sv_put32(p, req->stag);
	p = sv_put64(p, req->to);
	p = sv_put64(p, req->swap_add);
	p = sv_put64(p, req->swap_add_mask);
	p = sv_put64(p, req->compare);
	sv_put64(p, req->compare_mask);
}

int sv_atomic_req_decode(struct sv_atomic_req *req, const uint8_t *p,
			 enum sv_term_code *err)
{
	/* The 28 bits before the operation are reserved. */
	uint32_t op = sv_get32(p) & 0xf;

	if (op != SV_ATOMIC_FETCH_ADD && op != SV_ATOMIC_CMP_SWAP)
		return refuse(err, SV_TERM_OP_OPCODE);
	req->op = (enum sv_atomic_op)op;
	req->id = sv_get32(p + 4);
	req->stag = sv_get32(p + 8);
	req->to = sv_get64(p + 12);
	req->swap_add = sv_get64(p + 20);
	req->swap_add_mask = sv_get64(p + 28);
	req->compare = sv_get64(p + 36);
	req->compare_mask = sv_get64(p + 44);
	return 0;
}

void sv_term_init(struct sv_term *term, enum sv_term_code err,
		  const uint8_t *hdr, const struct sv_ddp *ddp)
{
	memset(term, 0, sizeof(*term));
	term->err = (uint16_t)err;
	if (!hdr)
		return;
	term->seg_len = (uint16_t)sv_ddp_ulpdu_len(ddp);
	term->ddp_len = (uint8_t)sv_ddp_len(ddp->op);
	memcpy(term->ddp, hdr, term->ddp_len);
}

size_t sv_term_encode(uint8_t *p, const struct sv_term *term)
{
	uint8_t *begin = p;

	p = sv_put16(p, term->err);
	*p++ = (term->ddp_len ? TERM_HAS_LEN | TERM_HAS_DDP : 0) |
		(term->ddp_len && term->has_read_req ? TERM_HAS_RDMAP : 0);
	*p++ = 0;
	if (term->ddp_len) {
		p = sv_put16(p, term->seg_len);
		p = sv_put_bytes(p, term->ddp, term->ddp_len);
		if (term->has_read_req)
			p = sv_put_bytes(p, term->read_req, SV_READ_REQ_LEN);
	}
	return (size_t)(p - begin);
}

static const struct {
	uint16_t err;
	uint16_t status;		/* enum ibv_wc_status */
	const char *str;
} terms[] = {
	{ SV_TERM_RDMAP_CATASTROPHIC, IBV_WC_REM_OP_ERR,
	  "RDMAP: local catastrophic error" },
	{ SV_TERM_PROT_STAG, IBV_WC_REM_ACCESS_ERR, "RDMAP: invalid STag" },
	{ SV_TERM_PROT_BOUNDS, IBV_WC_REM_ACCESS_ERR,
	  "RDMAP: out of the region's bounds" },
	{ SV_TERM_PROT_ACCESS, IBV_WC_REM_ACCESS_ERR,
	  "RDMAP: access rights violated" },
	{ SV_TERM_PROT_NOT_ASSOCIATED, IBV_WC_REM_ACCESS_ERR,
	  "RDMAP: STag of another protection domain" },
	{ SV_TERM_PROT_TO_WRAP, IBV_WC_REM_ACCESS_ERR,
	  "RDMAP: tagged offset wraps" },
	{ SV_TERM_PROT_INVALIDATE, IBV_WC_REM_ACCESS_ERR,
	  "RDMAP: STag cannot be invalidated (protection)" },
	{ SV_TERM_PROT_UNSPECIFIED, IBV_WC_REM_ACCESS_ERR,
	  "RDMAP: unspecified protection error" },
	{ SV_TERM_OP_VERSION, IBV_WC_REM_OP_ERR, "RDMAP: version" },
	{ SV_TERM_OP_OPCODE, IBV_WC_REM_OP_ERR, "RDMAP: unexpected opcode" },
	{ SV_TERM_OP_STREAM, IBV_WC_REM_OP_ERR,
	  "RDMAP: catastrophic error of the stream" },
	{ SV_TERM_OP_GLOBAL, IBV_WC_REM_OP_ERR,
	  "RDMAP: catastrophic error of the device" },
	{ SV_TERM_OP_INVALIDATE, IBV_WC_REM_OP_ERR,
	  "RDMAP: STag cannot be invalidated" },
	{ SV_TERM_OP_UNSPECIFIED, IBV_WC_REM_OP_ERR,
	  "RDMAP: unspecified error" },
	{ SV_TERM_DDP_CATASTROPHIC, IBV_WC_REM_OP_ERR,
	  "DDP: local catastrophic error" },
	{ SV_TERM_TAGGED_STAG, IBV_WC_REM_ACCESS_ERR, "DDP: invalid STag" },
	{ SV_TERM_TAGGED_BOUNDS, IBV_WC_REM_ACCESS_ERR,
	  "DDP: out of the region's bounds" },
	{ SV_TERM_TAGGED_NOT_ASSOCIATED, IBV_WC_REM_ACCESS_ERR,
	  "DDP: STag of another stream" },
	{ SV_TERM_TAGGED_TO_WRAP, IBV_WC_REM_ACCESS_ERR,
	  "DDP: tagged offset wraps" },
	{ SV_TERM_TAGGED_VERSION, IBV_WC_REM_OP_ERR,
	  "DDP: version (tagged)" },
	{ SV_TERM_UNTAGGED_QN, IBV_WC_REM_OP_ERR, "DDP: invalid queue" },
	{ SV_TERM_UNTAGGED_NO_BUFFER, IBV_WC_RNR_RETRY_EXC_ERR,
	  "DDP: no receive posted" },
	{ SV_TERM_UNTAGGED_MSN, IBV_WC_REM_OP_ERR,
	  "DDP: message number out of range" },
	{ SV_TERM_UNTAGGED_MO, IBV_WC_REM_OP_ERR,
	  "DDP: invalid message offset" },
	{ SV_TERM_UNTAGGED_TOO_LONG, IBV_WC_REM_INV_REQ_ERR,
	  "DDP: message too long for the buffer" },
	{ SV_TERM_UNTAGGED_VERSION, IBV_WC_REM_OP_ERR,
	  "DDP: version (untagged)" },
	{ SV_TERM_MPA_CLOSED, IBV_WC_RETRY_EXC_ERR, "MPA: connection lost" },
	{ SV_TERM_MPA_CRC, IBV_WC_RETRY_EXC_ERR, "MPA: wrong CRC" },
	{ SV_TERM_MPA_LENGTH, IBV_WC_RETRY_EXC_ERR,
	  "MPA: marker and length do not match" },
	{ SV_TERM_MPA_FRAME, IBV_WC_RETRY_EXC_ERR,
	  "MPA: invalid request or reply" },
	{ SV_TERM_MPA_LOCAL, IBV_WC_RETRY_EXC_ERR,
	  "MPA: local catastrophic error" },
	{ SV_TERM_MPA_IRD, IBV_WC_RETRY_EXC_ERR, "MPA: too few reads allowed" },
	{ SV_TERM_MPA_RTR, IBV_WC_RETRY_EXC_ERR,
	  "MPA: no ready-to-receive message in common" },
};

static int find_term(uint16_t err)
{
	int i;

	for (i = 0; i < (int)ARRAY_SIZE(terms); i++)
		if (terms[i].err == err)
			return i;
	return -1;
}

const char *sv_term_str(uint16_t err)
{
	int i = find_term(err);

	return i < 0 ? "unknown error" : terms[i].str;
}

enum ibv_wc_status sv_term_status(uint16_t err)
{
	int i = find_term(err);

	return i < 0 ? IBV_WC_REM_OP_ERR : (enum ibv_wc_status)terms[i].status;
}

static uint16_t swap_nibbles(uint16_t err)
{
	return (uint16_t)((err & 0xf000) >> 4 | (err & 0x0f00) << 4 |
			  (err & 0x00ff));
}

/*
 * Whether err, with those flags, was written in siw's order. siw says more than
 * the error wherever a DDP header is to blame, so its flags often tell. If not,
 * and both readings have a meaning, the one is taken that blames RDMAP: the other
 * would be an error in setting the connection up, which had its chance earlier.
 */
static bool is_siw_order(uint16_t err, uint8_t flags)
{
	uint16_t swapped = swap_nibbles(err);

	if (flags & TERM_FLAGS)
		return false;
	if (flags & SIW_FLAGS)
		return true;
	if (find_term(swapped) < 0)
		return false;
	return find_term(err) < 0 || swapped >> 12 == 0;
}

static uint8_t flags_from_siw(uint8_t flags)
{
	return (flags & SIW_HAS_LEN ? TERM_HAS_LEN : 0) |
		(flags & SIW_HAS_DDP ? TERM_HAS_DDP : 0) |
		(flags & SIW_HAS_RDMAP ? TERM_HAS_RDMAP : 0);
}

/* The copies behind the error: the length belongs to the header. */
static void decode_copies(struct sv_term *term, uint8_t flags, const uint8_t *p,
			  size_t len)
{
	size_t ddp_len;

	if (!(flags & TERM_HAS_DDP) || len < 3)
		return;
	ddp_len = p[2] & DDP_TAGGED ? SV_DDP_TAGGED_LEN : SV_DDP_UNTAGGED_LEN;
	if (len < 2 + ddp_len)
		return;
	term->seg_len = sv_get16(p);
	term->ddp_len = (uint8_t)ddp_len;
	memcpy(term->ddp, p + 2, ddp_len);
	if (!(flags & TERM_HAS_RDMAP) || len < 2 + ddp_len + SV_READ_REQ_LEN)
		return;
	term->has_read_req = true;
	memcpy(term->read_req, p + 2 + ddp_len, SV_READ_REQ_LEN);
}

int sv_term_decode(struct sv_term *term, bool foreign, const uint8_t *p,
		   size_t len)
{
	uint8_t flags;

	if (len < SV_TERM_CTRL_LEN)
		return -EPROTO;
	memset(term, 0, sizeof(*term));
	term->err = sv_get16(p);
	flags = p[2];
	if (foreign && is_siw_order(term->err, flags)) {
		term->err = swap_nibbles(term->err);
		flags = flags_from_siw(flags);
	}
	decode_copies(term, flags, p + SV_TERM_CTRL_LEN, len - SV_TERM_CTRL_LEN);
	return 0;
}
