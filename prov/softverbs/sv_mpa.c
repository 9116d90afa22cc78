/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Encoding and decoding of MPA start-up frames and of softverbs' control
 * messages (layouts: sv_mpa.h). Pure functions; see there for the contract.
 */
#include "sv_mpa.h"

#include <errno.h>
#include <string.h>

#include "sv_iwarp.h"

enum {
	ID_LEN = 16,
	ENH_LEN = 4,

	/* Byte 16 of an MPA frame. */
	FLAG_MARKERS = 0x80,
	FLAG_CRC = 0x40,
	FLAG_REJECT = 0x20,
	FLAG_ENHANCED = 0x10,
	FLAG_EXT_OFFER = 0x04,
	FLAG_EXT_TAKEN = 0x02,

	/* The two words of the enhanced part (RFC 6581 4.1). */
	IRD_P2P = 0x8000,
	IRD_RTR_FPDU = 0x4000,
	ORD_RTR_WRITE = 0x8000,
	ORD_RTR_READ = 0x4000,
	RD_MASK = 0x3fff,

	CONN_LEN = 12,
	HELLO_LEN = 2 + 2 + SV_HOST_ID_LEN + 8 + 8 + SV_TOKEN_LEN +
		SV_UNIX_NAME_MAX + 1 + CONN_LEN,
	MEET_LEN = HELLO_LEN + 8,
	QPN_MASK = 0xffffff,
	MEET_PSN_KNOWN = 1 << 24,	/* beside the PSN */
};

static_assert((int)MEET_LEN <= (int)SV_CTRL_PAYLOAD_MAX, "all must fit");
static_assert(MEET_LEN % 4 == 0 && HELLO_LEN % 4 == 0 && CONN_LEN % 4 == 0, "messages are unpadded");

static const char id_request[ID_LEN + 1] = "MPA ID Req Frame";
static const char id_reply[ID_LEN + 1] = "MPA ID Rep Frame";

static uint8_t mpa_flags(const struct sv_mpa *mpa)
{
	uint8_t flags = 0;

	if (mpa->markers)
		flags |= FLAG_MARKERS;
	if (mpa->crc)
		flags |= FLAG_CRC;
	if (mpa->reject)
		flags |= FLAG_REJECT;
	if (mpa->enhanced)
		flags |= FLAG_ENHANCED;
	if (mpa->ext)
		flags |= mpa->reply ? FLAG_EXT_TAKEN : FLAG_EXT_OFFER;
	return flags;
}

int sv_mpa_encode(const struct sv_mpa *mpa, void *buf, size_t size)
{
	size_t enh_len = mpa->enhanced ? ENH_LEN : 0;
	size_t pd_len = enh_len + mpa->pd_len;
	uint8_t *p = buf;

	if (mpa->ird > RD_MASK || mpa->ord > RD_MASK ||
	    (mpa->enhanced && mpa->rev < 2) || (mpa->reject && !mpa->reply))
		return -EINVAL;
	if (pd_len > SV_MPA_PD_MAX || size < SV_MPA_HDR_LEN + pd_len)
		return -EMSGSIZE;

	p = sv_put_bytes(p, mpa->reply ? id_reply : id_request, ID_LEN);
	*p++ = mpa_flags(mpa);
	*p++ = mpa->rev;
	p = sv_put16(p, (uint16_t)pd_len);
	if (mpa->enhanced) {
		p = sv_put16(p, mpa->ird | (mpa->p2p ? IRD_P2P : 0) |
			  (mpa->rtr_fpdu ? IRD_RTR_FPDU : 0));
		p = sv_put16(p, mpa->ord | (mpa->rtr_write ? ORD_RTR_WRITE : 0) |
			  (mpa->rtr_read ? ORD_RTR_READ : 0));
	}
	sv_put_bytes(p, mpa->pd, mpa->pd_len);
	return (int)(SV_MPA_HDR_LEN + pd_len);
}

static void decode_flags(struct sv_mpa *mpa, uint8_t flags)
{
	mpa->markers = flags & FLAG_MARKERS;
	mpa->crc = flags & FLAG_CRC;
	/* R means nothing in a request, S nothing before revision 2. */
	mpa->reject = mpa->reply && (flags & FLAG_REJECT);
	mpa->enhanced = mpa->rev >= 2 && (flags & FLAG_ENHANCED);
	/* A reply with the offer's bit still set is an echo, not an answer. */
	if (mpa->reply)
		mpa->ext = (flags & FLAG_EXT_TAKEN) &&
			!(flags & FLAG_EXT_OFFER);
	else
		mpa->ext = flags & FLAG_EXT_OFFER;
}

static void decode_enhanced(struct sv_mpa *mpa, const uint8_t *p)
{
	uint16_t ird = sv_get16(p);
	uint16_t ord = sv_get16(p + 2);

	mpa->p2p = ird & IRD_P2P;
	mpa->rtr_fpdu = ird & IRD_RTR_FPDU;
	mpa->rtr_write = ord & ORD_RTR_WRITE;
	mpa->rtr_read = ord & ORD_RTR_READ;
	mpa->ird = ird & RD_MASK;
	mpa->ord = ord & RD_MASK;
}

int sv_mpa_decode(struct sv_mpa *mpa, bool reply, const void *buf, size_t len)
{
	const uint8_t *p = buf;
	size_t enh_len;
	size_t pd_len;

	/* Garbage is recognised by its first bytes, without waiting for more. */
	if (memcmp(p, reply ? id_reply : id_request, min_size(len, ID_LEN)))
		return -EPROTO;
	if (len < SV_MPA_HDR_LEN)
		return 0;
	pd_len = sv_get16(p + 18);
	if (pd_len > SV_MPA_PD_MAX)
		return -EPROTO;
	if (p[17] < 1 || p[17] > 2)
		return -EPROTONOSUPPORT;

	memset(mpa, 0, sizeof(*mpa));
	mpa->reply = reply;
	mpa->rev = p[17];
	decode_flags(mpa, p[16]);
	enh_len = mpa->enhanced ? ENH_LEN : 0;
	if (pd_len < enh_len)
		return -EPROTO;
	if (len < SV_MPA_HDR_LEN + pd_len)
		return 0;
	p += SV_MPA_HDR_LEN;
	if (mpa->enhanced)
		decode_enhanced(mpa, p);
	mpa->pd_len = (uint16_t)(pd_len - enh_len);
	memcpy(mpa->pd, p + enh_len, mpa->pd_len);
	return (int)(SV_MPA_HDR_LEN + pd_len);
}

static size_t ctrl_payload_len(uint32_t type)
{
	switch (type) {
	case SV_CTRL_HELLO:
		return HELLO_LEN;
	case SV_CTRL_MEET:
		return MEET_LEN;
	case SV_CTRL_ACCEPT:
		return CONN_LEN;
	default:
		return 0;
	}
}

static uint8_t *put_conn(uint8_t *p, const struct sv_ctrl_conn *conn)
{
	p = sv_put32(p, conn->qp_num & QPN_MASK);
	p = sv_put32(p, conn->psn & QPN_MASK);
	*p++ = conn->retry_cnt;
	*p++ = conn->rnr_retry_cnt;
	*p++ = conn->flow_control;
	*p++ = conn->srq;
	return p;
}

static void get_conn(struct sv_ctrl_conn *conn, const uint8_t *p)
{
	conn->qp_num = sv_get32(p) & QPN_MASK;
	conn->psn = sv_get32(p + 4) & QPN_MASK;
	conn->retry_cnt = p[8] & 7;
	conn->rnr_retry_cnt = p[9] & 7;
	conn->flow_control = !!p[10];
	conn->srq = !!p[11];
}

static uint8_t *put_hello(uint8_t *p, const struct sv_ctrl *ctrl)
{
	size_t name_len = strnlen(ctrl->unix_name, SV_UNIX_NAME_MAX);

	p = sv_put16(p, ctrl->version);
	*p++ = ctrl->links;
	*p++ = (uint8_t)name_len;
	p = sv_put_bytes(p, ctrl->host_id, SV_HOST_ID_LEN);
	p = sv_put64(sv_put64(p, ctrl->netns), ctrl->user);
	p = sv_put_bytes(p, ctrl->token, SV_TOKEN_LEN);
	memset(p, 0, SV_UNIX_NAME_MAX + 1);
	memcpy(p, ctrl->unix_name, name_len);
	return put_conn(p + SV_UNIX_NAME_MAX + 1, &ctrl->conn);
}

static uint8_t *put_meet(uint8_t *p, const struct sv_ctrl *ctrl)
{
	p = sv_put32(put_hello(p, ctrl), ctrl->dest_qp_num & QPN_MASK);
	return sv_put32(p, (ctrl->sq_psn & QPN_MASK) |
		     (ctrl->sq_psn_known ? MEET_PSN_KNOWN : 0));
}

static int get_hello(struct sv_ctrl *ctrl, const uint8_t *p)
{
	uint8_t name_len = p[3];

	ctrl->version = sv_get16(p);
	if (ctrl->version != SV_CTRL_VERSION)
		return -EPROTONOSUPPORT;
	ctrl->links = p[2];
	if (name_len > SV_UNIX_NAME_MAX)
		return -EPROTO;
	p += 4;
	memcpy(ctrl->host_id, p, SV_HOST_ID_LEN);
	p += SV_HOST_ID_LEN;
	ctrl->netns = sv_get64(p);
	ctrl->user = sv_get64(p + 8);
	p += 16;
	memcpy(ctrl->token, p, SV_TOKEN_LEN);
	p += SV_TOKEN_LEN;
	if (memchr(p, 0, name_len))
		return -EPROTO;
	memcpy(ctrl->unix_name, p, name_len);
	get_conn(&ctrl->conn, p + SV_UNIX_NAME_MAX + 1);
	return 0;
}

static int get_meet(struct sv_ctrl *ctrl, const uint8_t *p)
{
	uint32_t psn = sv_get32(p + HELLO_LEN + 4);

	ctrl->dest_qp_num = sv_get32(p + HELLO_LEN) & QPN_MASK;
	ctrl->sq_psn = psn & QPN_MASK;
	ctrl->sq_psn_known = psn & MEET_PSN_KNOWN;
	return get_hello(ctrl, p);
}

int sv_ctrl_encode(const struct sv_ctrl *ctrl, uint32_t msn, void *buf,
		   size_t size)
{
	const struct sv_ddp ddp = {
		.op = SV_RDMAP_CTRL,
		.last = true,
		.payload_len = (uint32_t)ctrl_payload_len(ctrl->type),
		.ulp = ctrl->type,
		.msn = msn,
	};
	size_t len = sv_fpdu_size(sv_ddp_ulpdu_len(&ddp));
	uint8_t *p = buf;

	if (size < len)
		return -EMSGSIZE;
	p += sv_ddp_encode(p, &ddp);
	if (ctrl->type == SV_CTRL_HELLO)
		p = put_hello(p, ctrl);
	else if (ctrl->type == SV_CTRL_MEET)
		p = put_meet(p, ctrl);
	else if (ctrl->type == SV_CTRL_ACCEPT)
		p = put_conn(p, &ctrl->conn);
	sv_fpdu_put_tail(p, sv_ddp_ulpdu_len(&ddp), false, 0);
	return (int)len;
}

int sv_ctrl_decode(struct sv_ctrl *ctrl, uint32_t msn, const void *buf,
		   size_t len)
{
	const uint8_t *p = buf;
	enum sv_term_code err;
	struct sv_ddp ddp;
	int ret;

	ret = sv_ddp_decode(&ddp, true, p, len, &err);
	if (ret <= 0)
		return ret;
	if (ddp.op != SV_RDMAP_CTRL || ddp.msn != msn)
		return -EPROTO;
	if (ddp.ulp < SV_CTRL_HELLO || ddp.ulp > SV_CTRL_MEET)
		return -EPROTONOSUPPORT;
	if (ddp.payload_len != ctrl_payload_len(ddp.ulp))
		return -EPROTO;
	if (len < sv_fpdu_size(sv_ddp_ulpdu_len(&ddp)))
		return 0;

	memset(ctrl, 0, sizeof(*ctrl));
	ctrl->type = (enum sv_ctrl_type)ddp.ulp;
	p += SV_CTRL_HDR_LEN;
	ret = 0;
	if (ctrl->type == SV_CTRL_HELLO)
		ret = get_hello(ctrl, p);
	else if (ctrl->type == SV_CTRL_MEET)
		ret = get_meet(ctrl, p);
	else if (ctrl->type == SV_CTRL_ACCEPT)
		get_conn(&ctrl->conn, p);
	return ret ? ret : (int)sv_fpdu_size(sv_ddp_ulpdu_len(&ddp));
}
