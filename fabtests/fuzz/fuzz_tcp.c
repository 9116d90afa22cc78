/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A peer that sends whatever it likes on the stream of a TCP link. The victim is a
 * queue pair that stands, with its application posting and polling; the peer is
 * this program, at the other end of a socket pair.
 *
 * Input: one byte (bit 0: the peer is not one of ours, bit 1: with checksums, bit 2:
 * receives are a shared queue's), then steps, one byte each and what they need; see steps[]. Frames come as bytes
 * of the input, or are put together: numbered as they should be, with a right
 * checksum, unless the input says otherwise.
 *
 * What must hold is in app.h.
 */
#include "app.h"
#include "sv_alive.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	STEPS_MAX = 32,
	FRAME_STEPS = 10,		/* of steps[]: those that only send */
	PAYLOAD_MAX = 8192,
	OUT_MAX = 32768,
	PEER_ADDR = 0x10000,		/* nobody looks whether it is there */
};

struct victim {
	struct app app;
	struct sv_tcp *tcp;
	struct sv_tcp fresh;		/* as it was when it was new */
	int peer;			/* the other end of tcp->sock */
	bool peer_shut;
};

/* One input's run; what a peer that counts right would count. */
struct run {
	struct victim *v;
	struct fuzz_in *in;
	uint32_t msn[SV_QN_CTRL + 1];
	uint32_t mo;			/* of the send that has begun */
	uint32_t read_done;		/* of the read that is being answered */
};

static struct victim victims[8];	/* by the first byte */

/* What the peer is about to send: frames in a row go in one system call. */
static struct {
	size_t len;
	uint8_t bytes[OUT_MAX];
} out;

static bool started;

/* ---- making ---- */

static void make_victim(struct victim *v, bool ext, bool crc, bool srq)
{
	const struct sv_tcp_setup setup = {
		.ext = ext,
		.crc = crc,
		.peer_qpn = APP_PEER_QPN,
	};
	struct sv_link *link;
	int sock[2];

	app_open(&v->app, srq);
	FUZZ_CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock));
	FUZZ_CHECK(!sv_tcp_create(sv_qp(v->app.side.qp), sock[0], &setup,
				  &link));
	v->tcp = sv_tcp(link);
	v->peer = sock[1];
	/* What the engine would do is a step of the input. */
	sv_engine_unwatch(sock[0]);
	app_link(&v->app, link);
	v->fresh = *v->tcp;
}

static void start(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(victims); i++)
		make_victim(&victims[i], !(i & 1), i & 2, i & 4);
}

/* ---- between two inputs ---- */

static void empty(int sock)
{
	char junk[16384];

	while (recv(sock, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		;
}

/* In the place of the old ones: what was left in those is gone with them. */
static void new_sockets(struct victim *v)
{
	int sock[2];

	close(v->peer);
	FUZZ_CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock));
	FUZZ_CHECK(dup3(sock[0], v->tcp->sock, O_CLOEXEC) == v->tcp->sock);
	close(sock[0]);
	v->peer = sock[1];
}

static void clean_sockets(struct victim *v)
{
	if (v->tcp->fin_sent || v->tcp->eof || v->peer_shut) {
		new_sockets(v);
	} else {
		empty(v->peer);
		empty(v->tcp->sock);
	}
	v->peer_shut = false;
}

static void revive(struct victim *v)
{
	struct sv_qp *qp = sv_qp(v->app.side.qp);
	struct sv_tcp *tcp = v->tcp;
	struct sv_timer timer;
	struct sv_link link;

	sv_lock_take(&qp->lock);
	sv_deadline_clear(&tcp->link);
	sv_timer_cancel(&tcp->timer);
	free(tcp->tail);
	clean_sockets(v);
	/* But for what is in somebody's list, and whoever looks for signs of life
	 * turns that of the links. */
	sv_links_lock(true);
	link = tcp->link;
	timer = tcp->timer;
	*tcp = v->fresh;
	tcp->link = link;
	tcp->timer = timer;
	sv_links_lock(false);
	tcp->tail = NULL;
	atomic_store(&tcp->link.attention, false);
	atomic_store(&tcp->link.dead, false);
	tcp->link.gone_due_ns = 0;
	app_renew_locked(&v->app);
	sv_lock_drop(&qp->lock);
	app_renew(&v->app);
}

/* ---- the peer's steps ---- */

static void peer_flush(struct run *r)
{
	const uint8_t *p = out.bytes;
	ssize_t ret;

	/* Who does not read gets no more than fits. */
	while (out.len) {
		ret = send(r->v->peer, p, out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (ret <= 0)
			break;
		p += ret;
		out.len -= (size_t)ret;
	}
	out.len = 0;
}

static void peer_send(struct run *r, const void *buf, size_t len)
{
	if (out.len + len > OUT_MAX)
		peer_flush(r);
	memcpy(out.bytes + out.len, buf, len);
	out.len += len;
}

static void step_bytes(struct run *r)
{
	uint8_t buf[UINT8_MAX];
	uint8_t len = fuzz_u8(r->in);

	fuzz_bytes(r->in, buf, len);
	peer_send(r, buf, len);
}

static uint32_t any_len(struct run *r)
{
	uint8_t len = fuzz_u8(r->in);

	return len < 200 ? len : fuzz_u16(r->in) % PAYLOAD_MAX;
}

/*
 * Sends a frame. how: bit 0: with another number, bit 1: another offset, bit 2:
 * a wrong checksum, bit 3: cut in two with a poll between.
 */
static void peer_frame(struct run *r, struct sv_ddp *ddp, const uint8_t *payload,
		       uint8_t how)
{
	static uint8_t frame[SV_FPDU_HDR_MAX + PAYLOAD_MAX + SV_FPDU_TAIL_MAX];
	enum sv_ddp_qn qn = sv_op_qn(ddp->op);
	size_t len;
	size_t cut;

	if (!sv_op_is_tagged(ddp->op)) {
		ddp->msn = r->msn[qn] + 1 + (how & 1 ? fuzz_u8(r->in) : 0);
		if (ddp->last)
			r->msn[qn]++;
	}
	if (how & 2)
		ddp->mo = fuzz_u32(r->in);
	len = sv_ddp_encode(frame, ddp);
	memcpy(frame + len, payload, ddp->payload_len);
	len += ddp->payload_len;
	len += sv_fpdu_put_tail(frame + len, sv_ddp_ulpdu_len(ddp), false, 0);
	sv_fpdu_seal(frame);
	if (how & 4)
		frame[len - 1] ^= 1;
	cut = how & 8 ? 1 + fuzz_u16(r->in) % len : len;
	peer_send(r, frame, cut);
	if (cut == len)
		return;
	peer_flush(r);
	app_poll(&r->v->app);
	peer_send(r, frame + cut, len - cut);
}

static void fill_payload(struct run *r, uint8_t *payload, uint32_t len)
{
	memset(payload, 0x5a, len);
	fuzz_bytes(r->in, payload, len < 16 ? len : 16);
}

static void step_send(struct run *r)
{
	static const enum sv_rdmap_op ops[] = {
		SV_RDMAP_SEND, SV_RDMAP_SEND_SE, SV_RDMAP_SEND_INV,
		SV_RDMAP_SEND_SE_INV, SV_RDMAP_SEND_IMM, SV_RDMAP_SEND_SE_IMM,
	};
	static uint8_t payload[PAYLOAD_MAX];
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = ops[fuzz_u8(r->in) % ARRAY_SIZE(ops)],
		.last = !(how & 0x80),
		.payload_len = any_len(r),
		.ulp = how & 0x40 ? app_key(&r->v->app, r->in) : how,
		.mo = r->mo,
	};

	fill_payload(r, payload, ddp.payload_len);
	r->mo = ddp.last ? 0 : r->mo + ddp.payload_len;
	peer_frame(r, &ddp, payload, how);
}

static void step_write(struct run *r)
{
	static uint8_t payload[PAYLOAD_MAX];
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = SV_RDMAP_WRITE,
		.last = !(how & 0x80),
		.payload_len = any_len(r),
		.stag = app_key(&r->v->app, r->in),
		.to = app_addr(&r->v->app, r->in),
	};

	fill_payload(r, payload, ddp.payload_len);
	peer_frame(r, &ddp, payload, how);
}

static void step_imm(struct run *r)
{
	uint8_t payload[SV_IMM_LEN];
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = how & 0x80 ? SV_RDMAP_IMM_SE : SV_RDMAP_IMM,
		.last = true,
		.payload_len = SV_IMM_LEN,
	};

	sv_imm_encode(payload, how & 0x40 ? fuzz_u8(r->in) : SV_IMM_WRITE,
		      fuzz_u8(r->in));
	peer_frame(r, &ddp, payload, how);
}

static void step_read_req(struct run *r)
{
	uint8_t payload[SV_READ_REQ_LEN];
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = SV_RDMAP_READ_REQ,
		.last = true,
		.payload_len = SV_READ_REQ_LEN,
	};
	struct sv_read_req req = {
		.sink_stag = fuzz_u8(r->in),
		.len = how & 0x80 ? fuzz_u32(r->in) : any_len(r),
		.src_stag = app_key(&r->v->app, r->in),
		.src_to = app_addr(&r->v->app, r->in),
	};

	sv_read_req_encode(payload, &req);
	peer_frame(r, &ddp, payload, how);
}

static void step_atomic_req(struct run *r)
{
	uint8_t payload[SV_ATOMIC_REQ_LEN];
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = SV_RDMAP_ATOMIC_REQ,
		.last = true,
		.payload_len = SV_ATOMIC_REQ_LEN,
	};
	struct sv_atomic_req req = {
		.op = (enum sv_atomic_op)(how & 0x80 ? fuzz_u8(r->in) % 4 :
					  how >> 4 & 2),
		.id = fuzz_u8(r->in),
		.stag = app_key(&r->v->app, r->in),
		.to = app_addr(&r->v->app, r->in) & ~(how & 0x40 ? 0ull : 7ull),
		.swap_add = fuzz_u8(r->in),
		.compare = fuzz_u8(r->in),
	};

	if (req.op == SV_ATOMIC_CMP_SWAP)
		req.swap_add_mask = req.compare_mask = UINT64_MAX;
	sv_atomic_req_encode(payload, &req);
	peer_frame(r, &ddp, payload, how);
}

/* To the oldest question, if there is one; else to one that nobody asked. */
static void step_read_resp(struct run *r)
{
	static uint8_t payload[PAYLOAD_MAX];
	struct sv_tcp *tcp = r->v->tcp;
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = SV_RDMAP_READ_RESP,
		.payload_len = any_len(r),
		.stag = sv_tcp_sink(tcp->rd_wr) + (how & 0x20 ?
						   fuzz_u8(r->in) : 0),
		.to = r->read_done,
	};
	uint32_t left = UINT32_MAX;

	if (tcp->rd_cnt)
		left = sv_sq_slot(sv_qp(r->v->app.side.qp), tcp->rd_wr)->len -
			r->read_done;
	/* All of it, or more than that. */
	if (!(how & 0x40) && ddp.payload_len > left)
		ddp.payload_len = left % PAYLOAD_MAX;
	ddp.last = how & 0x80 ? how & 0x10 : ddp.payload_len >= left;
	r->read_done = ddp.last ? 0 : r->read_done + ddp.payload_len;
	if (how & 2)
		ddp.to = fuzz_u8(r->in);
	fill_payload(r, payload, ddp.payload_len);
	peer_frame(r, &ddp, payload, how & ~2);
}

static void step_atomic_resp(struct run *r)
{
	uint8_t payload[SV_ATOMIC_RESP_LEN];
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = SV_RDMAP_ATOMIC_RESP,
		.last = true,
		.payload_len = SV_ATOMIC_RESP_LEN,
	};
	struct sv_atomic_resp resp = {
		.id = how & 0x80 ? fuzz_u8(r->in) : sv_tcp_sink(r->v->tcp->rd_wr),
		.value = how,
	};

	sv_atomic_resp_encode(payload, &resp);
	peer_frame(r, &ddp, payload, how);
}

static void step_ctrl(struct run *r)
{
	uint8_t payload[SV_CTRL_PAYLOAD_MAX];
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = SV_RDMAP_CTRL,
		.last = true,
		.payload_len = SV_CTRL_LINK_LEN,
		.ulp = how & 0x40 ? SV_CTRL_ACK + (fuzz_u8(r->in) % 6) :
			SV_CTRL_ACK,
	};
	uint32_t taken = r->v->tcp->tx_msgs;

	if (how & 0x80) {
		ddp.ulp = fuzz_u8(r->in);
		ddp.payload_len = fuzz_u8(r->in) % (sizeof(payload) + 1);
		fuzz_bytes(r->in, payload, ddp.payload_len);
	} else if (how & 0x20) {
		sv_ctrl_link_encode(payload, any_len(r), any_len(r));
	} else {
		sv_ctrl_link_encode(payload, taken - fuzz_u8(r->in) % 4, 1000);
	}
	peer_frame(r, &ddp, payload, how);
}

static void step_term(struct run *r)
{
	uint8_t payload[SV_TERM_MAX];
	uint8_t how = fuzz_u8(r->in);
	struct sv_ddp ddp = {
		.op = SV_RDMAP_TERMINATE,
		.last = true,
		.payload_len = fuzz_u8(r->in) % (sizeof(payload) + 1),
	};

	fuzz_bytes(r->in, payload, ddp.payload_len);
	peer_frame(r, &ddp, payload, how);
}

/* Reads what the victim has sent, which is not looked at. */
static void step_read(struct run *r)
{
	empty(r->v->peer);
}

static void step_shutdown(struct run *r)
{
	shutdown(r->v->peer, fuzz_u8(r->in) & 1 ? SHUT_WR : SHUT_RDWR);
	r->v->peer_shut = true;
}

/* ---- the victim's steps ---- */

static void step_post_recv(struct run *r)
{
	app_post_recv(&r->v->app, r->in);
}

static void step_post_send(struct run *r)
{
	app_post_send(&r->v->app, r->in, PEER_ADDR);
}

static void step_bind(struct run *r)
{
	app_bind(&r->v->app);
}

static void step_poll(struct run *r)
{
	app_poll(&r->v->app);
}

static void step_bell(struct run *r)
{
	app_bell(&r->v->tcp->link);
}

static void step_timeout(struct run *r)
{
	app_timeout(&r->v->tcp->link, &r->v->tcp->rnr_due_ns);
}

static void step_modify(struct run *r)
{
	app_modify(&r->v->app, r->in);
}

static void (*const steps[])(struct run *r) = {
	step_send, step_write, step_imm, step_read_req, step_atomic_req,
	step_read_resp, step_atomic_resp, step_ctrl, step_term, step_bytes,
	step_read, step_shutdown, step_post_recv, step_post_send, step_poll,
	step_bell, step_timeout, step_modify, step_bind,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	struct run run = { .in = &in };
	size_t step;
	int i;

	if (!started)
		start();
	started = true;
	run.v = &victims[fuzz_u8(&in) % ARRAY_SIZE(victims)];
	revive(run.v);
	for (i = 0; i < STEPS_MAX && in.left; i++) {
		step = fuzz_u8(&in) % ARRAY_SIZE(steps);
		if (step >= FRAME_STEPS)
			peer_flush(&run);
		steps[step](&run);
	}
	peer_flush(&run);
	app_finish(&run.v->app);
	return 0;
}
