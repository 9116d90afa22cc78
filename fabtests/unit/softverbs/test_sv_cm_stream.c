/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Hostile peers once they are connected: on the stream of a TCP link, which carries
 * the connection manager's messages too. The peer is a plain socket; it claims to
 * be one of ours, or another iWARP device of the newer or the older revision.
 * Whatever it says, and wherever it ends: the connection ends too, within a bound
 * and with an event; the receive that was posted comes back; nothing stays; and
 * the listener serves the next.
 */
#include "hostile_peer.h"

#include "sv_iwarp.h"

TestSuite(sv_cm_stream, .timeout = 600);

enum kind {
	KIND_OURS,
	KIND_PEER_TO_PEER,		/* RFC 6581: begins with a write */
	KIND_OLD,			/* RFC 5044: is ready at once */
	KIND_CNT,
};

enum {
	STREAM_MAX = 1024,
	END_MS = 10000,
	RAW_QPN = 0x123456,
};

struct stream {
	size_t len;
	uint8_t bytes[STREAM_MAX];
};

static const char *const kind_str[] = { "ours", "peer to peer", "old" };

/* ---- connecting ---- */

static void send_request(int sock, enum kind kind)
{
	struct sv_mpa mpa = {
		.rev = kind == KIND_OLD ? 1 : 2,
		.enhanced = kind != KIND_OLD,
		.ext = kind == KIND_OURS,
		.p2p = kind != KIND_OLD,
		.rtr_write = kind != KIND_OLD,
		.pd_len = 4,
		.pd = "data",
	};
	uint8_t buf[SV_MPA_FRAME_MAX];
	int len;

	if (mpa.enhanced)
		mpa.ird = mpa.ord = 4;
	len = sv_mpa_encode(&mpa, buf, sizeof(buf));
	MUST(len > 0);
	raw_send(sock, buf, (size_t)len);
}

/* Connected and accepted, with a receive posted. */
static int ask(struct peer *listener, struct peer *passive, uint16_t port,
	       enum kind kind)
{
	int sock = raw_connect(port);
	struct sv_ctrl theirs;
	struct sv_ctrl hello;
	struct sv_mpa reply;

	send_request(sock, kind);
	if (kind == KIND_OURS) {
		raw_recv_ctrl(sock, &theirs, 1);
		raw_hello(&hello);
		hello.links = SV_LINKS_TCP;
		hello.conn.qp_num = RAW_QPN;
		raw_send_ctrl(sock, &hello, 1);
	}
	peer_accept(listener, passive);
	peer_post_recv(passive);
	raw_recv_mpa(sock, true, &reply);
	cr_assert_not(reply.reject, "%s", kind_str[kind]);
	return sock;
}

/* ---- what is said ---- */

static void say(struct stream *stream, struct sv_ddp ddp, const void *payload)
{
	uint8_t *p = stream->bytes + stream->len;
	size_t len = sv_ddp_encode(p, &ddp);

	memcpy(p + len, payload, ddp.payload_len);
	len += ddp.payload_len;
	len += sv_fpdu_put_tail(p + len, sv_ddp_ulpdu_len(&ddp), false, 0);
	stream->len += len;
	MUST(stream->len <= STREAM_MAX);
}

static void say_plain(struct stream *stream, enum sv_ctrl_type type,
		      uint32_t msn)
{
	say(stream, (struct sv_ddp){ .op = SV_RDMAP_CTRL, .last = true,
				     .ulp = type, .msn = msn }, "");
}

/* Begins as it should, sends a message, reads and writes where it may not. */
static void say_all(struct stream *stream, enum kind kind)
{
	uint8_t req[SV_READ_REQ_LEN];

	stream->len = 0;
	if (kind == KIND_OURS)
		say_plain(stream, SV_CTRL_READY, 2);
	else
		say(stream, (struct sv_ddp){ .op = SV_RDMAP_WRITE, .last = true,
					     .stag = 1 }, "");
	say(stream, (struct sv_ddp){ .op = SV_RDMAP_SEND, .last = true,
				     .payload_len = 7, .msn = 1 }, "message");
	sv_read_req_encode(req, &(struct sv_read_req){ .len = 64,
						       .src_stag = 77 });
	say(stream, (struct sv_ddp){ .op = SV_RDMAP_READ_REQ, .last = true,
				     .payload_len = sizeof(req), .msn = 1 },
	    req);
	say(stream, (struct sv_ddp){ .op = SV_RDMAP_WRITE, .last = true,
				     .payload_len = 5, .stag = 0x12345,
				     .to = 4096 }, "wrong");
}

/* ---- how it must end ---- */

static bool is_end(enum rdma_cm_event_type type)
{
	return type == RDMA_CM_EVENT_DISCONNECTED ||
		type == RDMA_CM_EVENT_CONNECT_ERROR ||
		type == RDMA_CM_EVENT_REJECTED ||
		type == RDMA_CM_EVENT_UNREACHABLE;
}

static bool ends(struct peer *passive, int timeout_ms)
{
	long until = peer_now_ms() + timeout_ms;
	struct rdma_cm_event *event;
	bool end = false;

	while (!end && peer_now_ms() < until) {
		event = peer_event(passive->channel, timeout_ms);
		if (!event)
			break;
		end = is_end(event->event);
		cr_assert(end || event->event == RDMA_CM_EVENT_ESTABLISHED,
			  "%s", sv_cm_event_str(event->event));
		MUST(!sv_cm_ack_cm_event(event));
	}
	return end;
}

/* With a message, or one too long, or flushed: by itself, or when the application
 * lets go. */
static void assert_recv_back(struct peer *passive)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	enum ibv_wc_status status;

	MUST(!sv_modify_qp(passive->qp, &attr, IBV_QP_STATE));
	status = peer_complete(passive);
	cr_assert(status == IBV_WC_SUCCESS || status == IBV_WC_LOC_LEN_ERR ||
		  status == IBV_WC_WR_FLUSH_ERR, "%d", status);
}

static void assert_over(struct peer *passive, const char *why, size_t len)
{
	cr_assert(ends(passive, END_MS), "%s, %zu bytes", why, len);
	assert_recv_back(passive);
	peer_close(passive);
}

/* ---- tests ---- */

static void stop_after(struct peer *listener, uint16_t port, enum kind kind,
		       size_t len, int how)
{
	struct stream stream;
	struct peer passive;
	int sock = ask(listener, &passive, port, kind);

	say_all(&stream, kind);
	MUST(len <= stream.len);
	if (len)
		raw_send(sock, stream.bytes, len);
	if (how == 0)
		close(sock);
	else if (how == 1)
		raw_reset(sock);
	else
		MUST(!shutdown(sock, SHUT_WR));
	assert_over(&passive, kind_str[kind], len);
	if (how < 2)
		return;
	/* Half closed: the other half is closed in answer. */
	cr_assert(raw_closed(sock, 5000), "%s, %zu bytes", kind_str[kind], len);
	close(sock);
}

static void each_byte(enum kind kind)
{
	struct peer listener;
	struct stream stream;
	size_t len;
	int how;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	say_all(&stream, kind);
	for (how = 0; how < 3; how++) {
		for (len = 0; len <= stream.len; len++)
			stop_after(&listener, port, kind, len, how);
		assert_settles(&listener, fds);
		assert_serves(&listener, port);
	}
	peer_close(&listener);
}

Test(sv_cm_stream, ours_ends_after_each_byte)
{
	each_byte(KIND_OURS);
}

Test(sv_cm_stream, peer_to_peer_ends_after_each_byte)
{
	each_byte(KIND_PEER_TO_PEER);
}

Test(sv_cm_stream, old_ends_after_each_byte)
{
	each_byte(KIND_OLD);
}

Test(sv_cm_stream, garbled)
{
	enum { ROUNDS = 300, SERVE_EVERY = 100 };
	struct peer listener;
	struct stream stream;
	struct peer passive;
	enum kind kind;
	int round;
	int sock;
	int fds;
	int i;
	uint16_t port = listen_warm(&listener, &fds);

	srand(1);
	for (round = 0; round < ROUNDS; round++) {
		kind = (enum kind)(round % KIND_CNT);
		sock = ask(&listener, &passive, port, kind);
		say_all(&stream, kind);
		for (i = rand() % 3; i >= 0; i--)
			stream.bytes[rand() % (int)stream.len] =
				(uint8_t)rand();
		/* It may be out before it has said all. */
		for (i = 0; i < (int)stream.len; i += 50)
			send(sock, stream.bytes + i,
			     min_size(50, stream.len - (size_t)i),
			     MSG_NOSIGNAL);
		close(sock);
		assert_over(&passive, "garbled", (size_t)round);
		if (round % SERVE_EVERY == 0)
			assert_serves(&listener, port);
	}
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/* Bytes without end, good or bad ones before. The connection ends while they come;
 * the stream does when the application lets go. */
Test(sv_cm_stream, does_not_stop)
{
	struct peer listener;
	struct stream stream;
	struct peer passive;
	enum kind kind;
	size_t said;
	int sock;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	for (kind = KIND_OURS; kind < KIND_CNT; kind++) {
		say_all(&stream, kind);
		for (said = 0; said <= stream.len; said += stream.len / 2) {
			sock = ask(&listener, &passive, port, kind);
			if (said)
				raw_send(sock, stream.bytes, said);
			pour(sock, 50);
			assert_over(&passive, kind_str[kind], said);
			cr_assert(pour(sock, END_MS), "%s, %zu bytes",
				  kind_str[kind], said);
			close(sock);
		}
	}
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/* Breaks the rules, and then neither speaks nor closes. */
Test(sv_cm_stream, breaks_the_rules_and_stays)
{
	static const uint8_t nonsense[64] = { 0, 40, 0xff, 0xff };
	struct peer listener;
	struct peer passive;
	enum kind kind;
	int sock;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	for (kind = KIND_OURS; kind < KIND_CNT; kind++) {
		sock = ask(&listener, &passive, port, kind);
		raw_send(sock, nonsense, sizeof(nonsense));
		assert_over(&passive, kind_str[kind], sizeof(nonsense));
		cr_assert(raw_closed(sock, 5000));
		close(sock);
	}
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/*
 * Asks for more than it may, and never reads. Its queue pair's counterpart is in
 * error, which with RoCE is not the end of the connection; what we would send it
 * does not pile up, and does not keep us when the application lets go.
 */
Test(sv_cm_stream, does_not_read)
{
	enum { READS = 3000 };
	uint8_t req[SV_READ_REQ_LEN];
	struct peer listener;
	struct stream stream;
	struct peer passive;
	uint32_t i;
	int sock;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	sock = ask(&listener, &passive, port, KIND_OURS);
	stream.len = 0;
	say_plain(&stream, SV_CTRL_READY, 2);
	raw_send(sock, stream.bytes, stream.len);
	peer_established(&passive);
	for (i = 1; i <= READS; i++) {
		stream.len = 0;
		sv_read_req_encode(req, &(struct sv_read_req){
			.len = sizeof(passive.buf),
			.src_stag = passive.mr->rkey,
			.src_to = (uintptr_t)passive.buf });
		say(&stream, (struct sv_ddp){ .op = SV_RDMAP_READ_REQ,
					      .last = true,
					      .payload_len = sizeof(req),
					      .msn = i }, req);
		if (send(sock, stream.bytes, stream.len,
			 MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
	}
	cr_assert_eq(peer_complete(&passive), IBV_WC_WR_FLUSH_ERR);
	peer_close(&passive);
	assert_settles(&listener, fds + 1);
	close(sock);
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}
