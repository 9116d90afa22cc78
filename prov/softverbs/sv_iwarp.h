/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iWARP on the wire, once a connection is set up: FPDUs of MPA (RFC 5044), DDP
 * segments (RFC 5041), RDMAP messages (RFC 5040) with immediate data and atomics
 * (RFC 7306), and what two softverbs peers add. Encoding and decoding only: no
 * socket, no allocation, no state. Whatever comes in is hostile; nothing is read
 * beyond the length given. Any thread may call anything here.
 *
 *  FPDU                                    opcode              T  queue, payload
 *  0  u16 ULPDU length                     0    write          T
 *  2  T L rsvd:4 DDP version:2 (1)         1    read request   -  1, 28 bytes
 *  3  RDMAP version:2 (1) rsvd:2 opcode:4  2    read response  T
 *     tagged            untagged           3..6 send, SE, inv  -  0
 *  4  u32 STag          u32 for the ULP    7    terminate      -  2, 4 .. 54
 *  8  u64 TO            u32 queue number   8, 9 immediate, SE  -  0, 8 bytes
 *  12  ..               u32 message number A    atomic         -  1, 52 bytes
 *  16 payload           u32 offset         B    atomic resp.   -  3, 12 bytes
 *  20  ..               payload            C, D send imm., SE  -  0 (ours)
 *  .. 0 .. 3 zero bytes: the length of     F    control        -  4 (ours)
 *     the FPDU is a multiple of 4
 *  .. u32 CRC32C, little-endian, or 0
 *
 * Opcodes from 8 on are legal only if both MPA frames had the extension's bits
 * (sv_mpa.h): RFC 7306 has no way to ask for them, and the kernel's siw ends a
 * connection over one.
 */
#ifndef SV_IWARP_H
#define SV_IWARP_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"
#include "sv_wire.h"

enum sv_rdmap_op {
	SV_RDMAP_WRITE = 0x0,
	SV_RDMAP_READ_REQ = 0x1,
	SV_RDMAP_READ_RESP = 0x2,
	SV_RDMAP_SEND = 0x3,
	SV_RDMAP_SEND_INV = 0x4,
	SV_RDMAP_SEND_SE = 0x5,		/* solicited event */
	SV_RDMAP_SEND_SE_INV = 0x6,
	SV_RDMAP_TERMINATE = 0x7,
	SV_RDMAP_IMM = 0x8,
	SV_RDMAP_IMM_SE = 0x9,
	SV_RDMAP_ATOMIC_REQ = 0xa,
	SV_RDMAP_ATOMIC_RESP = 0xb,
	SV_RDMAP_SEND_IMM = 0xc,		/* the immediate is the ULP word */
	SV_RDMAP_SEND_SE_IMM = 0xd,
	SV_RDMAP_CTRL = 0xf,		/* the ULP word is a type, sv_mpa.h */
};

/* Untagged queues. Message numbers begin at 1 in each, in each direction. */
enum sv_ddp_qn {
	SV_QN_SEND = 0,
	SV_QN_REQ = 1,			/* reads and atomics */
	SV_QN_TERMINATE = 2,
	SV_QN_ATOMIC_RESP = 3,
	SV_QN_CTRL = 4,
};

enum {
	SV_ULPDU_MAX = 0xffff,
	SV_DDP_TAGGED_LEN = 14,
	SV_DDP_UNTAGGED_LEN = 18,
	SV_FPDU_TAGGED_LEN = 16,	/* header with the length before it */
	SV_FPDU_UNTAGGED_LEN = 20,
	SV_FPDU_HDR_MAX = SV_FPDU_UNTAGGED_LEN,
	SV_FPDU_CRC_LEN = 4,
	SV_FPDU_TAIL_MAX = 3 + SV_FPDU_CRC_LEN,

	SV_READ_REQ_LEN = 28,
	SV_IMM_LEN = 8,
	SV_ATOMIC_REQ_LEN = 52,
	SV_ATOMIC_RESP_LEN = 12,
	SV_CTRL_LINK_LEN = 8,		/* payload of SV_CTRL_ACK and its like */
	SV_TERM_CTRL_LEN = 4,
	SV_TERM_MAX = SV_TERM_CTRL_LEN + 2 + SV_DDP_UNTAGGED_LEN +
		SV_READ_REQ_LEN,

	SV_MULPDU_MIN = 128,		/* RFC 5044 */
	SV_MULPDU_MAX = 64768,
};

/* The DDP and RDMAP header of one segment. */
struct sv_ddp {
	enum sv_rdmap_op op;
	bool last;			/* segment of its message */
	uint32_t payload_len;		/* bytes of this segment */
	/* Tagged: write, read response. */
	uint32_t stag;
	uint64_t to;
	/* Untagged: all others. The queue follows from the opcode. */
	uint32_t ulp;			/* STag to invalidate, immediate, type */
	uint32_t msn;
	uint32_t mo;
};

/*
 * Errors as a Terminate message carries them: layer, type and code in the order
 * of the wire. sv_term_str() has their meaning.
 */
enum sv_term_code {
	SV_TERM_NONE = 0xffff,

	SV_TERM_RDMAP_CATASTROPHIC = 0x0000,
	SV_TERM_PROT_STAG = 0x0100,
	SV_TERM_PROT_BOUNDS = 0x0101,
	SV_TERM_PROT_ACCESS = 0x0102,
	SV_TERM_PROT_NOT_ASSOCIATED = 0x0103,
	SV_TERM_PROT_TO_WRAP = 0x0104,
	SV_TERM_PROT_INVALIDATE = 0x0109,
	SV_TERM_PROT_UNSPECIFIED = 0x01ff,
	SV_TERM_OP_VERSION = 0x0205,
	SV_TERM_OP_OPCODE = 0x0206,
	SV_TERM_OP_STREAM = 0x0207,	/* catastrophic, this stream */
	SV_TERM_OP_GLOBAL = 0x0208,
	SV_TERM_OP_INVALIDATE = 0x0209,
	SV_TERM_OP_UNSPECIFIED = 0x02ff,

	SV_TERM_DDP_CATASTROPHIC = 0x1000,
	SV_TERM_TAGGED_STAG = 0x1100,
	SV_TERM_TAGGED_BOUNDS = 0x1101,
	SV_TERM_TAGGED_NOT_ASSOCIATED = 0x1102,
	SV_TERM_TAGGED_TO_WRAP = 0x1103,
	SV_TERM_TAGGED_VERSION = 0x1104,
	SV_TERM_UNTAGGED_QN = 0x1201,
	SV_TERM_UNTAGGED_NO_BUFFER = 0x1202,
	SV_TERM_UNTAGGED_MSN = 0x1203,
	SV_TERM_UNTAGGED_MO = 0x1204,
	SV_TERM_UNTAGGED_TOO_LONG = 0x1205,
	SV_TERM_UNTAGGED_VERSION = 0x1206,

	SV_TERM_MPA_CLOSED = 0x2001,
	SV_TERM_MPA_CRC = 0x2002,
	SV_TERM_MPA_LENGTH = 0x2003,
	SV_TERM_MPA_FRAME = 0x2004,
	SV_TERM_MPA_LOCAL = 0x2005,
	SV_TERM_MPA_IRD = 0x2006,
	SV_TERM_MPA_RTR = 0x2007,
};

/* A Terminate message, which always is one segment with message number 1. */
struct sv_term {
	uint16_t err;			/* enum sv_term_code, or unknown */
	/* The segment that was refused: its length without the length word, and
	 * its DDP header; 0 and unset if the message does not say. */
	uint16_t seg_len;
	uint8_t ddp_len;		/* 0, SV_DDP_TAGGED_LEN or _UNTAGGED_LEN */
	bool has_read_req;
	uint8_t ddp[SV_DDP_UNTAGGED_LEN];
	uint8_t read_req[SV_READ_REQ_LEN];
};

struct sv_read_req {
	uint32_t sink_stag;
	uint64_t sink_to;
	uint32_t len;
	uint32_t src_stag;
	uint64_t src_to;
};

enum sv_atomic_op {
	SV_ATOMIC_FETCH_ADD = 0,
	SV_ATOMIC_CMP_SWAP = 2,
};

/*
 * With both masks all ones compare and swap is that of the verbs; fetch and add
 * is, whose carry goes from bit to bit but not out of one that the mask has set,
 * with a mask of 0. sv_atomic_is_plain() tells.
 */
struct sv_atomic_req {
	enum sv_atomic_op op;
	uint32_t id;			/* the response returns it */
	uint32_t stag;
	uint64_t to;
	uint64_t swap_add;
	uint64_t swap_add_mask;
	uint64_t compare;
	uint64_t compare_mask;
};

struct sv_atomic_resp {
	uint32_t id;
	uint64_t value;			/* what was there before */
};

/* What the immediate is of; the upper half of an immediate data message. */
enum sv_imm_kind {
	SV_IMM_WRITE = 1,		/* the write just before */
};

/* ---- MPA: where an FPDU ends ---- */

/* The zero bytes behind a segment of ulpdu_len bytes. */
static inline size_t sv_fpdu_pad(size_t ulpdu_len)
{
	return -(2 + ulpdu_len) & 3;
}

/* Bytes of the whole FPDU, length word to CRC. */
static inline size_t sv_fpdu_size(size_t ulpdu_len)
{
	return 2 + ulpdu_len + sv_fpdu_pad(ulpdu_len) + SV_FPDU_CRC_LEN;
}

/*
 * CRC32C of what crc is the checksum of, followed by len bytes; 0 to begin.
 * Pieces of a frame can so be summed where they lie.
 */
uint32_t sv_crc32c(uint32_t crc, const void *buf, size_t len);

/*
 * Writes pad and CRC behind a segment; at most SV_FPDU_TAIL_MAX bytes. crc is the
 * sum of length word, header and payload; it is not looked at without crc_on.
 * Returns how many bytes it wrote.
 */
static inline size_t sv_fpdu_put_tail(uint8_t *p, size_t ulpdu_len, bool crc_on,
				      uint32_t crc)
{
	size_t pad = sv_fpdu_pad(ulpdu_len);

	memset(p, 0, SV_FPDU_CRC_LEN);
	if (crc_on && pad)
		crc = sv_crc32c(crc, p, pad);
	sv_put_le32(p + pad, crc_on ? crc : 0);
	return pad + SV_FPDU_CRC_LEN;
}

/*
 * Whether the tail at p, pad and CRC of sv_fpdu_pad(ulpdu_len) + 4 bytes, is right;
 * crc is the sum of all before it. Call it only with CRCs on: a peer without them
 * may leave anything there.
 */
static inline bool sv_fpdu_tail_ok(const uint8_t *p, size_t ulpdu_len,
				   uint32_t crc)
{
	size_t pad = sv_fpdu_pad(ulpdu_len);

	if (pad)
		crc = sv_crc32c(crc, p, pad);
	return sv_get_le32(p + pad) == crc;
}

/* Writes the CRC of a whole FPDU that lies in one piece. */
void sv_fpdu_seal(uint8_t *fpdu);

/* Largest ULPDU, in bytes, for a TCP segment of emss bytes (no markers). */
static inline uint32_t sv_mulpdu(uint32_t emss)
{
	uint32_t overhead = 6 + emss % 4;

	if (emss < SV_MULPDU_MIN + overhead)
		return SV_MULPDU_MIN;
	emss -= overhead;
	return emss < SV_MULPDU_MAX ? emss : SV_MULPDU_MAX;
}

/*
 * Payload of a segment that is not the last: fits with either header, needs no
 * pad behind a tagged or an untagged one, and keeps the offsets multiples of 8.
 * 104 or more, since mulpdu is 128 or more.
 */
static inline uint32_t sv_mulpdu_payload(uint32_t mulpdu)
{
	return (mulpdu - SV_DDP_UNTAGGED_LEN) & ~7u;
}

/* ---- DDP and RDMAP headers ---- */

static inline bool sv_op_is_tagged(enum sv_rdmap_op op)
{
	return op == SV_RDMAP_WRITE || op == SV_RDMAP_READ_RESP;
}

/* A message that takes a receive: QN 0. */
static inline bool sv_op_is_send(enum sv_rdmap_op op)
{
	return (op >= SV_RDMAP_SEND && op <= SV_RDMAP_SEND_SE_INV) ||
		op == SV_RDMAP_IMM || op == SV_RDMAP_IMM_SE ||
		op == SV_RDMAP_SEND_IMM || op == SV_RDMAP_SEND_SE_IMM;
}

static inline bool sv_op_is_solicited(enum sv_rdmap_op op)
{
	return op == SV_RDMAP_SEND_SE || op == SV_RDMAP_SEND_SE_INV ||
		op == SV_RDMAP_IMM_SE || op == SV_RDMAP_SEND_SE_IMM;
}

static inline enum sv_ddp_qn sv_op_qn(enum sv_rdmap_op op)
{
	switch (op) {
	case SV_RDMAP_READ_REQ:
	case SV_RDMAP_ATOMIC_REQ:
		return SV_QN_REQ;
	case SV_RDMAP_TERMINATE:
		return SV_QN_TERMINATE;
	case SV_RDMAP_ATOMIC_RESP:
		return SV_QN_ATOMIC_RESP;
	case SV_RDMAP_CTRL:
		return SV_QN_CTRL;
	default:
		return SV_QN_SEND;
	}
}

/* DDP header length without the length word. */
static inline size_t sv_ddp_len(enum sv_rdmap_op op)
{
	return sv_op_is_tagged(op) ? SV_DDP_TAGGED_LEN : SV_DDP_UNTAGGED_LEN;
}

/* The length word of a segment of payload_len bytes. */
static inline size_t sv_ddp_ulpdu_len(const struct sv_ddp *ddp)
{
	return sv_ddp_len(ddp->op) + ddp->payload_len;
}

/*
 * Writes length word and header: at most SV_FPDU_HDR_MAX bytes. The segment must
 * not be longer than SV_ULPDU_MAX. Returns how many bytes it wrote.
 */
static inline size_t sv_ddp_encode(uint8_t *p, const struct sv_ddp *ddp)
{
	bool tagged = sv_op_is_tagged(ddp->op);

	p = sv_put16(p, (uint16_t)sv_ddp_ulpdu_len(ddp));
	*p++ = (tagged ? 0x80 : 0) | (ddp->last ? 0x40 : 0) | 1;
	*p++ = (uint8_t)(0x40 | ddp->op);
	if (tagged) {
		p = sv_put32(p, ddp->stag);
		sv_put64(p, ddp->to);
		return SV_FPDU_TAGGED_LEN;
	}
	p = sv_put32(p, ddp->ulp);
	p = sv_put32(p, sv_op_qn(ddp->op));
	p = sv_put32(p, ddp->msn);
	sv_put32(p, ddp->mo);
	return SV_FPDU_UNTAGGED_LEN;
}

/*
 * Decodes length word and header from the len bytes at p; ext says whether the
 * peer may use opcodes from 8 on. Returns how many bytes they take, SV_FPDU_TAGGED_LEN
 * or SV_FPDU_UNTAGGED_LEN; 0 if more are needed; -EPROTO if the segment must be
 * refused, with *err the reason. All that can be told from one segment is checked:
 * versions, opcode, T bit, queue, lengths, message offsets that would wrap, and
 * that messages of fixed length are one segment of that length. What needs state
 * is not: message numbers, offsets; nor is what the segment asks for: STags and
 * the range, which may wrap.
 */
int sv_ddp_decode(struct sv_ddp *ddp, bool ext, const uint8_t *p, size_t len,
		  enum sv_term_code *err);

/* ---- payloads of fixed length ---- */

static inline void sv_read_req_encode(uint8_t *p, const struct sv_read_req *req)
{
	p = sv_put32(p, req->sink_stag);
	p = sv_put64(p, req->sink_to);
	p = sv_put32(p, req->len);
	p = sv_put32(p, req->src_stag);
	sv_put64(p, req->src_to);
}

static inline void sv_read_req_decode(struct sv_read_req *req, const uint8_t *p)
{
	req->sink_stag = sv_get32(p);
	req->sink_to = sv_get64(p + 4);
	req->len = sv_get32(p + 12);
	req->src_stag = sv_get32(p + 16);
	req->src_to = sv_get64(p + 20);
}

void sv_atomic_req_encode(uint8_t *p, const struct sv_atomic_req *req);

/* Returns 0, or -EPROTO for an operation that we do not know, with *err set. */
int sv_atomic_req_decode(struct sv_atomic_req *req, const uint8_t *p,
			 enum sv_term_code *err);

/* Whether the masks leave the operation what ibv_post_send() knows. */
static inline bool sv_atomic_is_plain(const struct sv_atomic_req *req)
{
	if (req->op == SV_ATOMIC_CMP_SWAP)
		return req->swap_add_mask == UINT64_MAX &&
			req->compare_mask == UINT64_MAX;
	return req->swap_add_mask == 0 ||
		req->swap_add_mask == (uint64_t)1 << 63;
}

static inline void sv_atomic_resp_encode(uint8_t *p,
					 const struct sv_atomic_resp *resp)
{
	sv_put64(sv_put32(p, resp->id), resp->value);
}

static inline void sv_atomic_resp_decode(struct sv_atomic_resp *resp,
					 const uint8_t *p)
{
	resp->id = sv_get32(p);
	resp->value = sv_get64(p + 4);
}

/* Immediate data message: kind is enum sv_imm_kind or, from others, anything. */
static inline void sv_imm_encode(uint8_t *p, uint32_t kind, uint32_t imm)
{
	sv_put32(sv_put32(p, kind), imm);
}

static inline void sv_imm_decode(uint32_t *kind, uint32_t *imm,
				 const uint8_t *p)
{
	*kind = sv_get32(p);
	*imm = sv_get32(p + 4);
}

/* The two words of a link's control message; all counts are cumulative. */
static inline void sv_ctrl_link_encode(uint8_t *p, uint32_t a, uint32_t b)
{
	sv_put32(sv_put32(p, a), b);
}

static inline void sv_ctrl_link_decode(uint32_t *a, uint32_t *b,
				       const uint8_t *p)
{
	*a = sv_get32(p);
	*b = sv_get32(p + 4);
}

/* ---- Terminate ---- */

/*
 * Writes the payload of a Terminate message, at most SV_TERM_MAX bytes. Returns how
 * many bytes it wrote.
 */
size_t sv_term_encode(uint8_t *p, const struct sv_term *term);

/* Fills term: err for the segment with header ddp, ddp_len bytes at hdr, which is
 * without the length word; NULL if there is none to show. */
void sv_term_init(struct sv_term *term, enum sv_term_code err,
		  const uint8_t *hdr, const struct sv_ddp *ddp);

/*
 * Reads a Terminate message's payload of len bytes. The kernel's siw swaps layer and
 * type, and has its flags at the wrong end: foreign says that the peer may be one;
 * then the reading that makes sense is taken. Returns 0, or -EPROTO if even the
 * error is not there. Copies that are cut off are left out.
 */
int sv_term_decode(struct sv_term *term, bool foreign, const uint8_t *p,
		   size_t len);

/* What an error means, for a log; never NULL. */
const char *sv_term_str(uint16_t err);

/* The completion status of a request that the peer refused with err. */
enum ibv_wc_status sv_term_status(uint16_t err);

#endif
