/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The receiving side of a TCP link: bytes into frames. What is small is read
 * into a staging buffer, many frames at a time; the rest of a large payload is
 * read straight to where it belongs, with the next header behind it. A checksum
 * is reckoned up as the bytes come and looked at before anything completes. All
 * under qp->lock.
 */
#include "sv_tcp.h"

#include <errno.h>
#include <string.h>

enum {
	SV_TCP_RX_ROUNDS = 64, /* reads in one call */
	SV_TCP_RX_BUDGET = 1 << 20, /* bytes in one call */
};

/* ---- frames ---- */

static void crc_add(struct sv_tcp *tcp, const void *p, size_t len)
{
	if (unlikely(tcp->crc))
		tcp->rx_crc = sv_crc32c(tcp->rx_crc, p, len);
}

/*
 * A stream that waits for a receive: what the link itself has to say is heard
 * all the same, and taken out of the staging buffer.
 */
static __cold void peek(struct sv_tcp *tcp)
{
	uint32_t off = tcp->rx_off;
	enum sv_term_code err;
	struct sv_ddp ddp;
	uint32_t ulpdu, size;
	uint8_t *p;

	if (tcp->peeked == tcp->rx_len || !tcp->ext)
		return;
	while (tcp->rx_len - off >= 2 && tcp->rx_state == SV_TCP_RX_HDR) {
		p = tcp->rx_buf + off;
		ulpdu = sv_get16(p);
		size = sv_fpdu_size(ulpdu);
		if (tcp->rx_len - off < size ||
		    sv_ddp_decode(&ddp, true, p, size, &err) <= 0)
			break;
		if (ddp.op != SV_RDMAP_CTRL ||
		    ddp.msn != tcp->ctrl_msn + 1 ||
		    ddp.payload_len > SV_CTRL_PAYLOAD_MAX ||
		    (tcp->crc &&
		     !sv_fpdu_tail_ok(p + 2 + ulpdu, ulpdu,
				      sv_crc32c(0, p, 2 + ulpdu)))) {
			off += size;
			continue;
		}
		sv_tcp_ctl_take(tcp, &ddp, p + SV_FPDU_UNTAGGED_LEN);
		memmove(p, p + size, tcp->rx_len - off - size);
		tcp->rx_len -= size;
	}
	tcp->peeked = tcp->rx_len;
}

/* Copies n bytes at p to where they belong, if they may go there. */
static void place(struct sv_tcp *tcp, const uint8_t *p, uint32_t n)
{
	struct iovec iov[SV_MAX_SGE];
	int cnt, i;

	cnt = sv_tcp_seg_dest(tcp, n, iov);
	for (i = 0; i < cnt; i++) {
		memcpy(iov[i].iov_base, p, iov[i].iov_len);
		p += iov[i].iov_len;
	}
}

static void placed(struct sv_tcp *tcp, uint32_t n)
{
	tcp->seg_done += n;
	tcp->seg_left -= n;
	if (!tcp->seg_left)
		tcp->rx_state = SV_TCP_RX_TAIL;
}

/* False: more bytes are needed, or the segment waits. */
static bool parse_hdr(struct sv_tcp *tcp)
{
	const uint8_t *p = tcp->rx_buf + tcp->rx_off;
	enum sv_term_code err;
	int len;

	len = sv_ddp_decode(&tcp->seg, tcp->ext, p, tcp->rx_len - tcp->rx_off,
			    &err);
	if (!len)
		return false;
	if (unlikely(len < 0)) {
		sv_tcp_nonsense(tcp, err);
		return false;
	}
	tcp->parked = !sv_tcp_seg_begin(tcp);
	if (unlikely(tcp->parked)) {
		peek(tcp);
		return false;
	}
	tcp->peeked = 0;
	if (unlikely(tcp->rx_state == SV_TCP_RX_DEAD))
		return false;
	tcp->rx_crc = 0;
	crc_add(tcp, p, len);
	tcp->rx_off += len;
	tcp->seg_left = tcp->seg.payload_len;
	tcp->seg_done = 0;
	tcp->rx_big = tcp->seg_left >= SV_TCP_DIRECT;
	tcp->rx_state = tcp->seg_left ? SV_TCP_RX_PAYLOAD : SV_TCP_RX_TAIL;
	return true;
}

static bool parse_payload(struct sv_tcp *tcp)
{
	const uint8_t *p = tcp->rx_buf + tcp->rx_off;
	uint32_t n = min_size(tcp->rx_len - tcp->rx_off, tcp->seg_left);

	if (!n)
		return false;
	crc_add(tcp, p, n);
	place(tcp, p, n);
	tcp->rx_off += n;
	placed(tcp, n);
	return true;
}

static bool parse_tail(struct sv_tcp *tcp)
{
	const size_t ulpdu = sv_ddp_ulpdu_len(&tcp->seg);
	const size_t len = sv_fpdu_pad(ulpdu) + SV_FPDU_CRC_LEN;

	if (tcp->rx_len - tcp->rx_off < len)
		return false;
	if (unlikely(tcp->crc) &&
	    !sv_fpdu_tail_ok(tcp->rx_buf + tcp->rx_off, ulpdu, tcp->rx_crc)) {
		sv_tcp_nonsense(tcp, SV_TERM_MPA_CRC);
		return false;
	}
	tcp->rx_off += len;
	tcp->rx_state = SV_TCP_RX_HDR;
	sv_tcp_seg_end(tcp);
	return true;
}

static void parse(struct sv_tcp *tcp)
{
	bool more = true;

	while (more) {
		switch (tcp->rx_state) {
		case SV_TCP_RX_HDR:
			more = parse_hdr(tcp);
			break;
		case SV_TCP_RX_PAYLOAD:
			more = parse_payload(tcp);
			break;
		case SV_TCP_RX_TAIL:
			more = parse_tail(tcp);
			break;
		default:
			tcp->rx_off = tcp->rx_len;
			more = false;
		}
	}
	if (tcp->rx_off == tcp->rx_len) {
		tcp->rx_off = 0;
		tcp->rx_len = 0;
	}
}

/* ---- reading ---- */

static ssize_t rx_recv(struct sv_tcp *tcp, struct iovec *iov, int cnt)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = cnt };
	ssize_t ret;

	do {
		ret = recvmsg(tcp->sock, &msg, MSG_DONTWAIT);
	} while (ret < 0 && errno == EINTR);
	return ret;
}

/* Straight to its place, as much as is left of the segment, and a little more
 * into staging, which is empty. */
static ssize_t read_direct(struct sv_tcp *tcp, size_t *want)
{
	struct iovec iov[SV_MAX_SGE + 1];
	uint32_t direct;
	ssize_t ret, left;
	int cnt, i;

	cnt = sv_tcp_seg_dest(tcp, tcp->seg_left, iov);
	if (cnt <= 0)
		return -1;
	*want = tcp->seg_left + SV_TCP_AHEAD;
	iov[cnt] = (struct iovec){ tcp->rx_buf, SV_TCP_AHEAD };
	ret = rx_recv(tcp, iov, cnt + 1);
	if (ret <= 0)
		return ret;
	direct = min_size(ret, tcp->seg_left);
	for (i = 0, left = direct; i < cnt && left; i++) {
		crc_add(tcp, iov[i].iov_base, min_size(left, iov[i].iov_len));
		left -= min_size(left, iov[i].iov_len);
	}
	placed(tcp, direct);
	tcp->rx_len = ret - direct;
	return ret;
}

/* 0: staging is full, and waits for a receive. */
static size_t staging_room(struct sv_tcp *tcp)
{
	const bool empty = tcp->rx_off == tcp->rx_len;

	if (tcp->rx_off && SV_TCP_RX_SIZE - tcp->rx_len < SV_TCP_DIRECT) {
		memmove(tcp->rx_buf, tcp->rx_buf + tcp->rx_off,
			tcp->rx_len - tcp->rx_off);
		tcp->rx_len -= tcp->rx_off;
		tcp->rx_off = 0;
	}
	/* Where a large segment is to come, only its header belongs here. */
	if (tcp->rx_big && empty && tcp->rx_state == SV_TCP_RX_HDR)
		return SV_TCP_AHEAD;
	return SV_TCP_RX_SIZE - tcp->rx_len;
}

static bool may_read_direct(const struct sv_tcp *tcp)
{
	return tcp->rx_state == SV_TCP_RX_PAYLOAD &&
	       tcp->seg_left >= SV_TCP_DIRECT &&
	       tcp->to >= SV_TCP_TO_RECV && tcp->rx_off == tcp->rx_len;
}

/* False: there is nothing more now. */
static bool read_some(struct sv_tcp *tcp, size_t *got)
{
	struct iovec iov;
	size_t want;
	ssize_t ret = -1;

	if (may_read_direct(tcp)) {
		tcp->rx_off = 0;
		tcp->rx_len = 0;
		ret = read_direct(tcp, &want);
		/* If the place has just been refused, it is nowhere now. */
		if (ret < 0 && tcp->to == SV_TCP_TO_NOWHERE)
			return true;
	} else {
		want = staging_room(tcp);
		if (!want)
			return false;
		iov = (struct iovec){ tcp->rx_buf + tcp->rx_len, want };
		ret = rx_recv(tcp, &iov, 1);
		if (ret > 0)
			tcp->rx_len += ret;
	}
	if (ret > 0) {
		*got += ret;
		tcp->came = true;
		tcp->grown |= tcp->rx_len > SV_TCP_KEEP;
		parse(tcp);
		return (size_t)ret == want;
	}
	if (ret == 0 || (errno != EAGAIN && errno != EINTR)) {
		tcp->eof = true;
		if (ret && !tcp->err)
			tcp->err = errno;
	}
	return false;
}

bool sv_tcp_drain(struct sv_tcp *tcp)
{
	int rounds = SV_TCP_RX_ROUNDS;
	size_t got = 0;

	tcp->came = false;
	/* What waited for a receive, and what was read with the MPA frames. */
	if (tcp->rx_len)
		parse(tcp);
	while (!tcp->eof && read_some(tcp, &got))
		if (!--rounds || got > SV_TCP_RX_BUDGET)
			return true;
	return false;
}
