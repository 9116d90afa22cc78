/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs' connection manager with peers that lie: plain sockets on which the
 * test itself says what no softverbs would, or says nothing.
 */
#include <criterion/criterion.h>

#include "raw_peer.h"

TestSuite(sv_cm_wire, .timeout = 120);

/* ---- liars who connect ---- */

Test(sv_cm_wire, garbage_is_closed_at_once)
{
	static const char garbage[][24] = {
		"GET / HTTP/1.1\r\n\r\n",
		"MPA ID Rep Frame\0\2\0\0",
		"MPA ID Req Frame\x10\3\0\4",
		"MPA ID Req Frame\x10\2\xff\xff",
		"\0\x6a\x41\x4f",
	};
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	size_t i;
	int sock;

	for (i = 0; i < ARRAY_SIZE(garbage); i++) {
		sock = raw_connect(port);
		raw_send(sock, garbage[i], sizeof(garbage[i]));
		cr_assert(raw_closed(sock, 2000), "%zu", i);
		close(sock);
	}
	cr_assert_null(peer_event(listener.channel, 0));
	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* Unless there may be links over TCP. */
Test(sv_cm_wire, foreign_request_is_rejected)
{
	struct peer listener;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int sock = raw_connect(port);
	struct sv_mpa reply;

	setenv("SOFTVERBS_LINK", "shm", 1);
	raw_send_mpa(sock, false, false, false);
	raw_recv_mpa(sock, true, &reply);
	cr_assert(reply.reject);
	cr_assert_not(reply.ext);
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	cr_assert_null(peer_event(listener.channel, 0));
	peer_close(&listener);
}

Test(sv_cm_wire, request_from_another_host_is_rejected)
{
	struct peer listener;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int sock = raw_connect(port);
	struct sv_ctrl theirs;
	struct sv_ctrl hello;
	struct sv_mpa reply;

	raw_send_mpa(sock, false, true, false);
	raw_recv_ctrl(sock, &theirs, 1);
	cr_assert_eq(theirs.type, SV_CTRL_HELLO);
	cr_assert_neq(theirs.unix_name[0], 0);
	raw_hello(&hello);
	hello.host_id[3] ^= 1;
	raw_send_ctrl(sock, &hello, 1);
	raw_recv_mpa(sock, true, &reply);
	cr_assert(reply.reject);
	close(sock);
	cr_assert_null(peer_event(listener.channel, 0));
	peer_close(&listener);
}

Test(sv_cm_wire, words_out_of_turn)
{
	struct sv_ctrl ready = { .type = SV_CTRL_READY };
	struct peer listener;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	struct sv_ctrl hello;
	struct sv_ctrl theirs;
	int sock;

	raw_hello(&hello);
	/* READY instead of HELLO. */
	sock = raw_connect(port);
	raw_send_mpa(sock, false, true, false);
	raw_recv_ctrl(sock, &theirs, 1);
	raw_send_ctrl(sock, &ready, 1);
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	/* A wrong number. */
	sock = raw_connect(port);
	raw_send_mpa(sock, false, true, false);
	raw_send_ctrl(sock, &hello, 2);
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	/* READY before there is a link. */
	sock = raw_connect(port);
	raw_send_mpa(sock, false, true, false);
	raw_send_ctrl(sock, &hello, 1);
	raw_send_ctrl(sock, &ready, 2);
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	cr_assert_null(peer_event(listener.channel, 0));
	peer_close(&listener);
}

Test(sv_cm_wire, silent_ones_are_put_out)
{
	struct peer listener;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int silent = raw_connect(port);
	int slow = raw_connect(port);
	long start = peer_now_ms();
	const char *frame = "MPA ID Req Frame";

	/* A byte now and then does not buy time. */
	while (*frame && !raw_closed(slow, 500) &&
	       send(slow, frame++, 1, MSG_NOSIGNAL) == 1)
		;
	cr_assert_leq(peer_now_ms() - start, SV_CM_REQUEST_MS + 3000);
	cr_assert_geq(peer_now_ms() - start, SV_CM_REQUEST_MS - 1000);
	cr_assert(raw_closed(silent, 2000));
	close(silent);
	close(slow);
	peer_close(&listener);
}

/* More silent ones than may be half open, and twice as many again: who speaks
 * gets in, soon. */
Test(sv_cm_wire, crowd_at_the_door)
{
	int crowd[3 * SV_CM_MAX_HALF_OPEN];
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int fds = peer_fd_cnt();
	uint64_t start;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(crowd); i++)
		crowd[i] = raw_connect(port);
	peer_sleep_ms(200);
	start = peer_now_ms();
	fds = peer_fd_cnt() - fds;
	cr_assert_leq(fds, (int)ARRAY_SIZE(crowd) + SV_CM_MAX_HALF_OPEN);
	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	cr_assert_leq(peer_now_ms() - start, 3000);
	peer_transfer(&active, &passive);
	peer_close(&active);
	peer_close(&passive);
	for (i = 0; i < ARRAY_SIZE(crowd); i++)
		close(crowd[i]);
	peer_close(&listener);
}

/* ---- liars who are connected to ---- */

static int accept_raw(int listener, struct peer *active, uint16_t port)
{
	struct sv_mpa request;
	int sock;

	peer_open(active);
	peer_connect(active, "127.0.0.1", port, "hi", 2);
	sock = accept(listener, NULL, NULL);
	MUST(sock >= 0);
	raw_recv_mpa(sock, false, &request);
	cr_assert(request.ext && request.enhanced && request.p2p);
	cr_assert_eq(request.pd_len, 2);
	return sock;
}

static void assert_outcome(struct peer *active, int sock,
			   enum rdma_cm_event_type type, int status)
{
	cr_assert_eq(peer_take(active->channel, type), status);
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	cr_assert_null(peer_event(active->channel, 0));
	peer_close(active);
}

Test(sv_cm_wire, servers_that_are_none)
{
	struct peer active;
	uint16_t port;
	int listener = raw_listen(&port);
	struct sv_ctrl hello;
	int sock;

	/* Goes away without a word. */
	sock = accept_raw(listener, &active, port);
	shutdown(sock, SHUT_RDWR);
	assert_outcome(&active, sock, RDMA_CM_EVENT_REJECTED,
		       SV_CM_REJ_INVALID_SERVICE);
	/* Speaks something else. */
	sock = accept_raw(listener, &active, port);
	raw_send(sock, "220 ready\r\n", 11);
	assert_outcome(&active, sock, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO);
	/* Is an iWARP device, but not one of ours. */
	setenv("SOFTVERBS_LINK", "shm", 1);
	sock = accept_raw(listener, &active, port);
	raw_send_mpa(sock, true, false, false);
	assert_outcome(&active, sock, RDMA_CM_EVENT_CONNECT_ERROR,
		       -EOPNOTSUPP);
	unsetenv("SOFTVERBS_LINK");
	/* Claims our extension without having said hello. */
	sock = accept_raw(listener, &active, port);
	raw_send_mpa(sock, true, true, false);
	assert_outcome(&active, sock, RDMA_CM_EVENT_CONNECT_ERROR,
		       -EOPNOTSUPP);
	/* Is on another host. */
	raw_hello(&hello);
	hello.netns++;
	sock = accept_raw(listener, &active, port);
	raw_send_ctrl(sock, &hello, 1);
	assert_outcome(&active, sock, RDMA_CM_EVENT_CONNECT_ERROR,
		       -EHOSTUNREACH);
	close(listener);
}

Test(sv_cm_wire, servers_that_let_down)
{
	struct sv_ctrl accepted = { .type = SV_CTRL_ACCEPT };
	struct rdma_cm_event *event;
	struct peer active;
	uint16_t port;
	int listener = raw_listen(&port);
	struct sv_ctrl hello;
	struct sv_ctrl ours;
	int sock;

	raw_hello(&hello);
	/* Rejects. */
	sock = accept_raw(listener, &active, port);
	raw_send_ctrl(sock, &hello, 1);
	raw_recv_ctrl(sock, &ours, 1);
	cr_assert_eq(ours.conn.qp_num, active.qp->qp_num);
	raw_send_mpa(sock, true, true, true);
	event = peer_expect(active.channel, RDMA_CM_EVENT_REJECTED);
	cr_assert_eq(event->status, SV_CM_REJ_CONSUMER);
	cr_assert_arr_eq(event->param.conn.private_data, "data", 5);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	close(sock);
	peer_close(&active);
	/* Goes away after hello. */
	sock = accept_raw(listener, &active, port);
	raw_send_ctrl(sock, &hello, 1);
	raw_recv_ctrl(sock, &ours, 1);
	shutdown(sock, SHUT_RDWR);
	assert_outcome(&active, sock, RDMA_CM_EVENT_REJECTED,
		       SV_CM_REJ_CONSUMER);
	/* Says hello twice. */
	sock = accept_raw(listener, &active, port);
	raw_send_ctrl(sock, &hello, 1);
	raw_send_ctrl(sock, &hello, 2);
	assert_outcome(&active, sock, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO);
	/* Accepts, and is then nowhere to be found. */
	sock = accept_raw(listener, &active, port);
	raw_send_ctrl(sock, &hello, 1);
	raw_send_mpa(sock, true, true, false);
	raw_send_ctrl(sock, &accepted, 2);
	assert_outcome(&active, sock, RDMA_CM_EVENT_CONNECT_ERROR,
		       -ECONNREFUSED);
	close(listener);
}

Test(sv_cm_wire, server_that_never_answers)
{
	struct peer active;
	uint16_t port;
	int listener = raw_listen(&port);
	long start = peer_now_ms();
	int sock = accept_raw(listener, &active, port);

	assert_outcome(&active, sock, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	cr_assert_geq(peer_now_ms() - start, SV_CM_HELLO_MS - 1000);
	close(listener);
}

/* ---- liars on the UNIX socket ---- */

static int raw_guest(const char *name)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	struct sockaddr_un addr;
	socklen_t len = sv_unix_addr(&addr, name);

	MUST(sock >= 0);
	MUST(!connect(sock, (struct sockaddr *)&addr, len));
	return sock;
}

static void raw_offer(int sock, const struct sv_offer *offer, size_t len,
		      size_t fd_cnt)
{
	union {
		char buf[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)offer, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;
	int fds[8];
	size_t i;

	for (i = 0; i < fd_cnt; i++) {
		fds[i] = open("/dev/null", O_RDWR);
		MUST(fds[i] >= 0);
	}
	if (fd_cnt) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(fd_cnt * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(fd_cnt * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, fd_cnt * sizeof(int));
	}
	MUST(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)len);
	sv_fds_close(fds, fd_cnt);
}

/* Up to where the passive side waits for the UNIX connection. */
static int raw_accepted(struct peer *listener, struct peer *passive,
			uint16_t port, struct sv_ctrl *theirs)
{
	int sock = raw_connect(port);
	struct sv_ctrl hello;

	raw_send_mpa(sock, false, true, false);
	raw_recv_ctrl(sock, theirs, 1);
	raw_hello(&hello);
	raw_send_ctrl(sock, &hello, 1);
	peer_accept(listener, passive);
	return sock;
}

Test(sv_cm_wire, guests_with_nothing_to_show)
{
	struct sv_offer offer = { .magic = SV_OFFER_MAGIC,
				  .version = SV_CTRL_VERSION };
	struct peer listener;
	struct peer passive;
	struct peer active;
	struct peer other;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	struct sv_ctrl theirs;
	int before;
	int guest;
	int sock = raw_accepted(&listener, &passive, port, &theirs);
	size_t cnt;

	before = peer_fd_cnt();
	for (cnt = 0; cnt <= 8; cnt++) {
		/* No token, too short, and no message at all. */
		guest = raw_guest(theirs.unix_name);
		raw_offer(guest, &offer, sizeof(offer), cnt);
		cr_assert(raw_closed(guest, 2000));
		close(guest);
		guest = raw_guest(theirs.unix_name);
		raw_offer(guest, &offer, 8, cnt);
		cr_assert(raw_closed(guest, 2000));
		close(guest);
		guest = raw_guest(theirs.unix_name);
		close(guest);
	}
	peer_sleep_ms(50);
	/* Whatever they brought has been closed. */
	cr_assert_eq(peer_fd_cnt(), before);
	cr_assert_null(peer_event(passive.channel, 0));
	peer_pair(&listener, &active, &other, "127.0.0.1", port);
	peer_close(&active);
	peer_close(&other);
	close(sock);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_REJECTED),
		     SV_CM_REJ_CONSUMER);
	peer_close(&passive);
	peer_close(&listener);
}

Test(sv_cm_wire, guest_with_the_token_and_rubbish)
{
	struct sv_offer offer = { .magic = SV_OFFER_MAGIC,
				  .version = SV_CTRL_VERSION };
	struct peer listener;
	struct peer passive;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	struct sv_ctrl theirs;
	int sock = raw_accepted(&listener, &passive, port, &theirs);
	int guest = raw_guest(theirs.unix_name);
	int before = peer_fd_cnt();

	memcpy(offer.token, theirs.token, sizeof(offer.token));
	raw_offer(guest, &offer, sizeof(offer), SV_LINK_FDS);
	cr_assert_lt(peer_take(passive.channel, RDMA_CM_EVENT_CONNECT_ERROR),
		     0);
	cr_assert(raw_closed(guest, 2000));
	cr_assert(raw_closed(sock, 2000));
	cr_assert_leq(peer_fd_cnt(), before);
	close(guest);
	close(sock);
	peer_close(&passive);
	peer_close(&listener);
}

Test(sv_cm_wire, peer_that_accepts_no_guest_in_time)
{
	struct peer listener;
	struct peer passive;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	struct sv_ctrl theirs;
	int sock = raw_accepted(&listener, &passive, port, &theirs);

	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_UNREACHABLE),
		     -ETIMEDOUT);
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	peer_close(&passive);
	peer_close(&listener);
}
