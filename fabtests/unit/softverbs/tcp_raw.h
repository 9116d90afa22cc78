/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A queue pair over TCP whose peer is a plain socket, on which the test writes
 * and reads frames.
 */
#ifndef TCP_RAW_H
#define TCP_RAW_H

#define SIDE_TCP
#include "side.h"

enum {
	RAW_BUF = 1 << 20,
	RAW_SINK = 0x1234,
};

struct raw {
	struct side s;
	struct ibv_mr *mr;
	char *buf;
	int sock;
	bool ext;
	bool crc;
	bool bad_crc; /* of the next frames */
	bool bad_version;
	bool hears_ctrl; /* raw_get() does not read past it */
	size_t piece; /* bytes in one write; 0: all */
	uint32_t ctrl_msn;
	uint8_t payload[SV_ULPDU_MAX];
};

static inline void raw_open_with(struct raw *r, const struct sv_tcp_setup *setup,
				 const struct side_opts *opts)
{
	int sock[2];

	memset(r, 0, sizeof(*r));
	side_open(&r->s, opts);
	MUST((r->buf = calloc(1, RAW_BUF)));
	r->mr = side_reg(&r->s, r->buf, RAW_BUF);
	r->ext = setup->ext;
	r->crc = setup->crc;
	tcp_pair(sock);
	MUST(!side_init(&r->s));
	tcp_join(&r->s, sock[0], setup);
	r->sock = sock[1];
	MUST(!side_rtr(&r->s, 0) && !side_rts(&r->s));
}

static inline void raw_open(struct raw *r, const struct sv_tcp_setup *setup)
{
	raw_open_with(r, setup, NULL);
}

static inline void raw_close(struct raw *r)
{
	MUST(!sv_dereg_mr(r->mr));
	side_close(&r->s);
	free(r->buf);
	if (r->sock >= 0)
		close(r->sock);
}

/* Returns its length. */
static inline size_t raw_frame(struct raw *r, uint8_t *p, struct sv_ddp ddp,
			       const void *data, uint32_t len)
{
	size_t ulpdu, hdr;

	ddp.payload_len = len;
	ulpdu = sv_ddp_ulpdu_len(&ddp);
	hdr = sv_ddp_encode(p, &ddp);
	if (r->bad_version)
		p[2] ^= 2;
	memcpy(p + hdr, data, len);
	sv_fpdu_put_tail(p + 2 + ulpdu, ulpdu, r->crc,
			 sv_crc32c(0, p, 2 + ulpdu));
	if (r->bad_crc)
		p[2 + ulpdu + sv_fpdu_pad(ulpdu)] ^= 1;
	return sv_fpdu_size(ulpdu);
}

static inline void raw_write(struct raw *r, const uint8_t *p, size_t len)
{
	size_t n;

	while (len) {
		n = r->piece ? min_size(r->piece, len) : len;
		MUST(send(r->sock, p, n, MSG_NOSIGNAL) == (ssize_t)n);
		p += n;
		len -= n;
	}
}

static inline void raw_put(struct raw *r, struct sv_ddp ddp, const void *data,
			   uint32_t len)
{
	uint8_t *p = malloc(sv_fpdu_size(SV_ULPDU_MAX));

	MUST(p);
	raw_write(r, p, raw_frame(r, p, ddp, data, len));
	free(p);
}

static inline void raw_ctrl(struct raw *r, uint32_t type, uint32_t a, uint32_t b)
{
	uint8_t data[SV_CTRL_LINK_LEN];

	sv_ctrl_link_encode(data, a, b);
	raw_put(r, (struct sv_ddp){ .op = SV_RDMAP_CTRL, .last = true,
				    .ulp = type, .msn = ++r->ctrl_msn },
		data, sizeof(data));
}

/* A read of the side's memory. */
static inline void raw_ask_key(struct raw *r, uint32_t msn, uint32_t key,
			       uint64_t addr, uint32_t len)
{
	struct sv_read_req req = {
		.sink_stag = RAW_SINK,
		.len = len,
		.src_stag = key,
		.src_to = addr,
	};
	uint8_t data[SV_READ_REQ_LEN];

	sv_read_req_encode(data, &req);
	raw_put(r, (struct sv_ddp){ .op = SV_RDMAP_READ_REQ, .last = true,
				    .msn = msn }, data, sizeof(data));
}

static inline void raw_ask(struct raw *r, uint32_t msn, uint64_t addr,
			   uint32_t len)
{
	raw_ask_key(r, msn, r->mr->rkey, addr, len);
}

static inline bool raw_silent(struct raw *r, int ms)
{
	struct pollfd pfd = { .fd = r->sock, .events = POLLIN };

	return !poll(&pfd, 1, ms);
}

/* The side has stopped, or can no longer send what it was asked for. */
static inline bool raw_stuck(struct raw *r)
{
	usleep(1000);
	return r->s.qp->state == IBV_QPS_ERR;
}

static inline void raw_read(struct raw *r, void *buf, size_t len)
{
	struct pollfd pfd = { .fd = r->sock, .events = POLLIN };
	char *p = buf;
	ssize_t ret;

	while (len) {
		MUST(poll(&pfd, 1, SIDE_WAIT_MS) == 1);
		ret = recv(r->sock, p, len, 0);
		MUST(ret > 0);
		p += ret;
		len -= ret;
	}
}

/* The next frame, which must be whole and right; but for what two softverbs say to
 * each other at the beginning. Its payload is in r->payload. */
static inline void raw_get(struct raw *r, struct sv_ddp *ddp)
{
	uint8_t *p = malloc(sv_fpdu_size(SV_ULPDU_MAX));
	enum sv_term_code err;
	size_t ulpdu;
	int hdr;

	MUST(p);
	do {
		raw_read(r, p, 2);
		ulpdu = sv_get16(p);
		raw_read(r, p + 2, sv_fpdu_size(ulpdu) - 2);
		hdr = sv_ddp_decode(ddp, r->ext, p, sv_fpdu_size(ulpdu), &err);
		MUST(hdr > 0);
		MUST(!r->crc ||
		     sv_fpdu_tail_ok(p + 2 + ulpdu, ulpdu,
				     sv_crc32c(0, p, 2 + ulpdu)));
		memcpy(r->payload, p + hdr, ddp->payload_len);
	} while (ddp->op == SV_RDMAP_CTRL && !r->hears_ctrl);
	free(p);
}

static inline void raw_event(struct raw *r, int type)
{
	struct ibv_async_event event;

	MUST(!sv_get_async_event(r->s.ctx, &event));
	MUST((int)event.event_type == type);
	sv_ack_async_event(&event);
}

/* What comes next, soon, is the end. */
static inline bool raw_ended(struct raw *r)
{
	struct pollfd pfd = { .fd = r->sock, .events = POLLIN };
	char c;

	return poll(&pfd, 1, SIDE_WAIT_MS) == 1 &&
	       recv(r->sock, &c, 1, MSG_PEEK) <= 0;
}

#endif
