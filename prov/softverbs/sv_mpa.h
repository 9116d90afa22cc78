/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The frames that open a connection: MPA request and reply (RFC 5044, with the
 * enhanced set-up of RFC 6581), and the private control messages that follow
 * them between two softverbs peers. Encoding and decoding only: no socket, no
 * allocation, no state. Whatever comes in is hostile; nothing is read beyond
 * the length given.
 *
 *  MPA frame                               control message (one FPDU)
 *  0  "MPA ID Req Frame" | "... Rep ..."   0  u16 ULPDU length
 *  16 u8 M C R S ext...                    2  u8 0x41  u8 0x4F (opcode F)
 *  17 u8 revision (1, 2)                   4  u32 type
 *  18 u16 private data length              8  u32 queue number 4
 *  20 if S: u16 A B IRD, u16 C D ORD       12 u32 message number, u32 offset 0
 *  .. private data                         20 payload, pad to 4, u32 CRC (0)
 */
#ifndef SV_MPA_H
#define SV_MPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"

enum {
	SV_MPA_HDR_LEN = 20,
	SV_MPA_PD_MAX = 512,		/* RFC 5044 7.1, enhanced part included */
	SV_MPA_FRAME_MAX = SV_MPA_HDR_LEN + SV_MPA_PD_MAX,
	SV_MPA_RD_MAX = 0x3ffe,		/* 0x3fff: not negotiated */
	SV_MPA_RD_NONE = 0x3fff,
};

/*
 * What an MPA frame says. ext is our extension offered (request) or taken up
 * (reply): two different bits, because a foreign peer may echo the request's.
 */
struct sv_mpa {
	uint8_t rev;
	bool reply;
	bool markers;
	bool crc;
	bool reject;
	bool ext;
	bool enhanced;
	/* The rest is valid if enhanced. */
	bool p2p;
	bool rtr_fpdu;
	bool rtr_write;
	bool rtr_read;
	uint16_t ird;
	uint16_t ord;

	uint16_t pd_len;		/* without the enhanced part */
	uint8_t pd[SV_MPA_PD_MAX];
};

/* Returns the length of the frame, -EMSGSIZE or -EINVAL. */
int sv_mpa_encode(const struct sv_mpa *mpa, void *buf, size_t size);

/*
 * Decodes a frame of the kind asked for from the len bytes at buf. Returns how
 * many bytes it took, 0 if more are needed (at most SV_MPA_FRAME_MAX), -EPROTO
 * if this is no such frame, -EPROTONOSUPPORT for a revision we do not know.
 */
int sv_mpa_decode(struct sv_mpa *mpa, bool reply, const void *buf, size_t len);

/*
 * Control messages. They may be sent once the peer is known to understand
 * them: by the responder from when it saw the request's extension bit, by the
 * initiator from the responder's first HELLO.
 *
 *  initiator                                responder
 *   MPA request (ext offered)  ───────────►
 *                              ◄───────────  HELLO   host, token, UNIX name
 *   HELLO  host, token, QPN    ───────────►  (CONNECT_REQUEST; user accepts)
 *                              ◄───────────  MPA reply (ext taken), ACCEPT
 *   ··· hand-over on the UNIX socket (sv_handover.c), or
 *       the link goes on with this very stream (sv_cm_tcp.c) ···
 *   READY                      ───────────►  (ESTABLISHED)
 *   DREQ                       ◄──────────►  DREP
 *
 * Between two QPs that are connected by ibv_modify_qp (sv_rdv.c) the initiator
 * says MEET where it would say HELLO, so that no listener takes one for the
 * other, and the connection ends after READY:
 *
 *   MEET   host, token, QPNs,  ───────────►  (is this whom its QP expects?)
 *          PSNs                ◄───────────  MPA reply, ACCEPT; or a rejection
 */
enum sv_ctrl_type {
	SV_CTRL_HELLO = 1,
	SV_CTRL_ACCEPT = 2,
	SV_CTRL_READY = 3,
	SV_CTRL_DREQ = 4,
	SV_CTRL_DREP = 5,
	SV_CTRL_MEET = 6,

	/* Of the link, once it runs: two words, sv_ctrl_link_encode() of
	 * sv_iwarp.h. sv_ctrl_decode() knows them not. */
	SV_CTRL_ACK = 16,		/* messages taken, receives posted */
	SV_CTRL_NAK = 17,		/* messages taken, status of the next */
	SV_CTRL_GONE = 18,		/* sv_ctrl_gone, messages taken */
	SV_CTRL_WANT = 19,		/* receives wanted, 0 */
	SV_CTRL_PARAM = 20,		/* rnr_retry of the sender's QP, 0 */
	SV_CTRL_BYE = 21,		/* no more of types 1 to 6; 0, 0 */
	SV_CTRL_PING = 22,		/* to be answered by an ACK; 0, 0 */
};

/* The responder's HELLO offers, the initiator's names one. */
enum sv_ctrl_links {
	SV_LINKS_SHM = 1 << 0,
	SV_LINKS_TCP = 1 << 1,
};

enum sv_ctrl_gone {
	SV_GONE_ERROR = 1,		/* the QP is in the error state */
	SV_GONE_CLOSED = 2,		/* destroyed, or reset */
};

enum {
	SV_CTRL_VERSION = 1,
	SV_CTRL_HDR_LEN = 20,		/* length word and DDP header */
	SV_CTRL_PAYLOAD_MAX = 128,
	SV_CTRL_MAX = SV_CTRL_HDR_LEN + SV_CTRL_PAYLOAD_MAX + 4,
	SV_TOKEN_LEN = 16,
	SV_HOST_ID_LEN = 16,
	SV_UNIX_NAME_MAX = 31,		/* without the terminating zero */
};

/* Connection parameters that MPA has no place for. */
struct sv_ctrl_conn {
	uint32_t qp_num;
	uint32_t psn;
	uint8_t retry_cnt;
	uint8_t rnr_retry_cnt;
	uint8_t flow_control;
	uint8_t srq;
};

struct sv_ctrl {
	enum sv_ctrl_type type;
	/* HELLO and MEET. */
	uint16_t version;
	uint8_t links;		/* enum sv_ctrl_links: offered, or chosen */
	uint8_t host_id[SV_HOST_ID_LEN];	/* one boot of one machine */
	uint64_t netns;
	uint64_t user;		/* and its namespace */
	uint8_t token[SV_TOKEN_LEN];
	char unix_name[SV_UNIX_NAME_MAX + 1];	/* without the leading zero */
	/* HELLO of the initiator, MEET, and ACCEPT. */
	struct sv_ctrl_conn conn;
	/* MEET only. */
	uint32_t dest_qp_num;
	uint32_t sq_psn;
	bool sq_psn_known;	/* the initiator's QP is in RTS */
};

/* Returns the length of the message or -EMSGSIZE. */
int sv_ctrl_encode(const struct sv_ctrl *ctrl, uint32_t msn, void *buf,
		   size_t size);

/*
 * Decodes the message with number msn. Returns how many bytes it took, 0 if
 * more are needed (at most SV_CTRL_MAX), -EPROTO if malformed, and
 * -EPROTONOSUPPORT for a type or version that we do not know.
 */
int sv_ctrl_decode(struct sv_ctrl *ctrl, uint32_t msn, const void *buf,
		   size_t len);

#endif
