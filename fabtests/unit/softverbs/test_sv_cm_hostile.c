/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A listener of softverbs' connection manager among peers that do all wrong: who
 * stop after each byte, dribble, send everything at once or far too much, whose
 * bytes are garbled, and crowds of them. Each is done with within a bound, nothing
 * of it stays, and the next good client is served.
 */
#include <criterion/criterion.h>
#include <sys/resource.h>

#include "hostile_peer.h"

TestSuite(sv_cm_hostile, .timeout = 300);

enum {
	REQ_PD = 56, /* rdma_connect(3): what RoCE delivers, padded */
	TALK_MAX = 1024,
};

struct talk {
	size_t len;
	size_t asked;			/* bytes until a request is complete */
	uint8_t bytes[TALK_MAX];
};

/* All that an initiator says until its connection is up, in one piece. */
static void say_all(struct talk *talk)
{
	struct sv_mpa mpa = {
		.rev = 2,
		.ext = true,
		.enhanced = true,
		.ird = 1,
		.ord = 1,
		.pd_len = 4,
		.pd = "data",
	};
	struct sv_ctrl ready = { .type = SV_CTRL_READY };
	struct sv_ctrl hello;
	uint8_t *p = talk->bytes;
	int len;

	raw_hello(&hello);
	len = sv_mpa_encode(&mpa, p, TALK_MAX);
	MUST(len > 0);
	talk->len = (size_t)len;
	len = sv_ctrl_encode(&hello, 1, p + talk->len, TALK_MAX - talk->len);
	MUST(len > 0);
	talk->len += (size_t)len;
	talk->asked = talk->len;
	len = sv_ctrl_encode(&ready, 2, p + talk->len, TALK_MAX - talk->len);
	MUST(len > 0);
	talk->len += (size_t)len;
}

/* ---- ends ---- */

static void stop_after(uint16_t port, const struct talk *talk, size_t len,
		       int how)
{
	int sock = raw_connect(port);

	if (len)
		raw_send(sock, talk->bytes, len);
	if (how == 0) {
		close(sock);
	} else if (how == 1) {
		raw_reset(sock);
	} else {
		/* Half closed: it has said all, and listens on. */
		MUST(!shutdown(sock, SHUT_WR));
		cr_assert(raw_closed(sock, 5000), "%zu bytes", len);
		close(sock);
	}
}

Test(sv_cm_hostile, ends_after_each_byte)
{
	struct peer listener;
	struct talk talk;
	size_t len;
	int how;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	say_all(&talk);
	for (how = 0; how < 3; how++) {
		for (len = 0; len <= talk.len; len++) {
			stop_after(port, &talk, len, how);
			drop_requests(&listener);
		}
		assert_settles(&listener, fds);
		assert_serves(&listener, port);
	}
	peer_close(&listener);
}

/* A request in single bytes is a request. */
Test(sv_cm_hostile, dribbles)
{
	struct rdma_cm_event *event;
	struct peer listener;
	struct talk talk;
	size_t i;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);
	int sock = raw_connect(port);
	struct rdma_cm_id *id;

	say_all(&talk);
	for (i = 0; i < talk.asked; i++) {
		raw_send(sock, talk.bytes + i, 1);
		peer_sleep_ms(1);
	}
	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	cr_assert_arr_eq(event->param.conn.private_data, "data", 4);
	id = event->id;
	MUST(!sv_cm_ack_cm_event(event));
	MUST(!sv_cm_destroy_id(id));
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/* ---- too much ---- */

/* Bytes without end behind each step of the talk. */
Test(sv_cm_hostile, does_not_stop)
{
	struct peer listener;
	struct talk talk;
	size_t ends[5];
	size_t i;
	int sock;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	say_all(&talk);
	ends[0] = 0;
	ends[1] = 16;			/* the key of the frame */
	ends[2] = SV_MPA_HDR_LEN + 4 + 4;
	ends[3] = talk.asked;
	ends[4] = talk.len;
	for (i = 0; i < ARRAY_SIZE(ends); i++) {
		sock = raw_connect(port);
		if (ends[i])
			raw_send(sock, talk.bytes, ends[i]);
		cr_assert(pour(sock, SV_CM_REQUEST_MS + 3000), "%zu bytes",
			  ends[i]);
		close(sock);
		drop_requests(&listener);
	}
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/* Everything at once: nobody may speak before it is its turn. */
Test(sv_cm_hostile, says_all_at_once)
{
	struct peer listener;
	struct talk talk;
	int round;
	int sock;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	say_all(&talk);
	for (round = 0; round < 50; round++) {
		sock = raw_connect(port);
		raw_send(sock, talk.bytes, talk.len);
		cr_assert(raw_closed(sock, 5000));
		close(sock);
		drop_requests(&listener);
	}
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/* A request whose frame announces, and brings, so much private data. */
static int ask_with_pd(uint16_t port, size_t pd_len)
{
	uint8_t frame[SV_MPA_HDR_LEN] = "MPA ID Req Frame\x14\2";
	static uint8_t pd[UINT16_MAX];
	struct sv_ctrl hello;
	int sock = raw_connect(port);
	size_t done = 0;
	ssize_t ret;

	memset(pd, 'p', sizeof(pd));
	memset(pd, 0, 4);		/* the enhanced part */
	frame[18] = (uint8_t)(pd_len >> 8);
	frame[19] = (uint8_t)pd_len;
	raw_send(sock, frame, sizeof(frame));
	/* It may be refused before it has all been sent. */
	while (done < pd_len) {
		ret = send(sock, pd + done, pd_len - done, MSG_NOSIGNAL);
		if (ret <= 0)
			return sock;
		done += (size_t)ret;
	}
	raw_hello(&hello);
	if (pd_len <= SV_MPA_PD_MAX && pd_len >= 4)
		raw_send_ctrl(sock, &hello, 1);
	return sock;
}

/* What fits a frame is delivered as far as the look of the device has room for it;
 * what does not fit is refused. */
Test(sv_cm_hostile, private_data_of_any_length)
{
	static const size_t too_long[] = {
		513, 514, 516, 520, 1000, 1023, 1024, 1025, 4096, 32767, 32768,
		65534, 65535,
	};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct peer listener;
	size_t len;
	int sock;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	for (len = 0; len < 4; len++) {
		sock = ask_with_pd(port, len);
		cr_assert(raw_closed(sock, 2000), "%zu", len);
		close(sock);
	}
	for (len = 4; len <= SV_MPA_PD_MAX; len += 3) {
		sock = ask_with_pd(port, len);
		event = peer_expect(listener.channel,
				    RDMA_CM_EVENT_CONNECT_REQUEST);
		cr_assert_eq(event->param.conn.private_data_len, REQ_PD);
		id = event->id;
		MUST(!sv_cm_ack_cm_event(event));
		MUST(!sv_cm_destroy_id(id));
		close(sock);
	}
	for (len = 0; len < ARRAY_SIZE(too_long); len++) {
		sock = ask_with_pd(port, too_long[len]);
		cr_assert(raw_closed(sock, 2000), "%zu", too_long[len]);
		close(sock);
		cr_assert_null(peer_event(listener.channel, 0));
	}
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/* ---- garbled ---- */

Test(sv_cm_hostile, garbled)
{
	enum { ROUNDS = 600, SERVE_EVERY = 100 };
	struct peer listener;
	struct talk good;
	struct talk bad;
	int round;
	int sock;
	int fds;
	int i;
	uint16_t port = listen_warm(&listener, &fds);

	say_all(&good);
	srand(1);
	for (round = 0; round < ROUNDS; round++) {
		bad = good;
		for (i = rand() % 3; i >= 0; i--)
			bad.bytes[rand() % (int)bad.len] = (uint8_t)rand();
		if (rand() % 2)
			bad.len = 1 + (size_t)rand() % bad.len;
		sock = raw_connect(port);
		/* Cut at a place where it may stop for a moment. */
		i = rand() % (int)bad.len;
		if (i)
			raw_send(sock, bad.bytes, (size_t)i);
		if (rand() % 4 == 0)
			peer_sleep_ms(1);
		/* It may be gone by now. */
		if (send(sock, bad.bytes + i, bad.len - (size_t)i,
			 MSG_NOSIGNAL) < 0)
			cr_assert(errno == EPIPE || errno == ECONNRESET);
		close(sock);
		drop_requests(&listener);
		if (round % SERVE_EVERY == 0)
			assert_serves(&listener, port);
	}
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/* ---- crowds ---- */

static void want_fds(rlim_t cnt)
{
	struct rlimit limit;

	MUST(!getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_cur >= cnt)
		return;
	limit.rlim_cur = limit.rlim_max < cnt ? limit.rlim_max : cnt;
	MUST(!setrlimit(RLIMIT_NOFILE, &limit));
	MUST(limit.rlim_cur >= cnt);
}

/* A thousand who have said something, but not all, and stay; each says one byte
 * more. Good clients are served among them, and in the end all of the crowd is out. */
Test(sv_cm_hostile, thousand_half_open)
{
	enum { CROWD = 1000, CLIENTS = 5 };
	static int crowd[CROWD];
	struct peer listener;
	struct talk talk;
	long start;
	size_t said;
	int fds;
	int i;
	int k;
	uint16_t port;

	want_fds(2 * CROWD + SV_CM_MAX_HALF_OPEN + 100);
	port = listen_warm(&listener, &fds);
	say_all(&talk);
	for (i = 0; i < CROWD; i++) {
		crowd[i] = raw_connect(port);
		said = (size_t)i % (talk.asked - 1);
		if (said && send(crowd[i], talk.bytes, said, MSG_NOSIGNAL) < 0)
			cr_assert(errno == EPIPE || errno == ECONNRESET);
	}
	for (k = 0; k < CLIENTS; k++) {
		assert_serves(&listener, port);
		for (i = k; i < CROWD; i += CLIENTS) {
			said = (size_t)i % (talk.asked - 1);
			/* Those who are out get an error, and nobody minds. */
			send(crowd[i], talk.bytes + said, 1,
			     MSG_NOSIGNAL | MSG_DONTWAIT);
		}
	}
	start = peer_now_ms();
	for (i = 0; i < CROWD; i++) {
		cr_assert(raw_closed(crowd[i], 2 * SV_CM_REQUEST_MS), "%d", i);
		close(crowd[i]);
	}
	cr_assert_leq(peer_now_ms() - start, 3 * SV_CM_REQUEST_MS);
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}

/* As fast as they can: come, and go with a reset. */
Test(sv_cm_hostile, comes_and_goes)
{
	struct peer listener;
	struct talk talk;
	int round;
	int sock;
	int fds;
	uint16_t port = listen_warm(&listener, &fds);

	say_all(&talk);
	for (round = 0; round < 3000; round++) {
		sock = raw_connect(port);
		if (round % 3)
			raw_send(sock, talk.bytes, talk.asked / (1 + round % 2));
		raw_reset(sock);
		if (round % 64 == 0)
			drop_requests(&listener);
	}
	assert_settles(&listener, fds);
	assert_serves(&listener, port);
	peer_close(&listener);
}
