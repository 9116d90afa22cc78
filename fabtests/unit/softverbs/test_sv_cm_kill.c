/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs' connection manager with peers that die: processes of their own
 * that are killed at chosen points. And with fork().
 */
#include <criterion/criterion.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "cm_peer.h"
#include "process.h"
#include "sv_cm.h"
#include "sv_tcp.h"

TestSuite(sv_cm_kill, .timeout = 120);

enum { STRANGER = 65534 };

enum point {
	REQUESTED,	/* client: request sent; server: request fetched */
	RESPONDED,	/* client: has the response; server: has accepted */
	ESTABLISHED,
};

static void client(int in, int out, int point)
{
	struct peer active;
	uint16_t port = (uint16_t)hear(in);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	if (point >= RESPONDED)
		MUST(!peer_take(active.channel,
				RDMA_CM_EVENT_CONNECT_RESPONSE));
	if (point >= ESTABLISHED) {
		peer_move_qp(&active);
		MUST(!sv_cm_establish(active.id));
	}
	say(out, 0);
	pause();
}

static void server(int in, int out, int point)
{
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer passive;

	say(out, peer_listen(&listener, "127.0.0.1", 0, 0));
	if (point == REQUESTED) {
		event = peer_expect(listener.channel,
				    RDMA_CM_EVENT_CONNECT_REQUEST);
		MUST(event);
	} else {
		peer_accept(&listener, &passive);
	}
	if (point == ESTABLISHED)
		peer_established(&passive);
	say(out, 0);
	pause();
}

/* Nothing that is posted to a peer that is no more may wait for ever. */
static void assert_send_fails(struct peer *peer)
{
	peer_post_send(peer, 8);
	cr_assert_neq(peer_complete(peer), IBV_WC_SUCCESS);
}

static void kill_server(enum point point, enum rdma_cm_event_type type,
			int status)
{
	struct process process = process_start(server, point);
	struct peer active;
	uint16_t port = (uint16_t)hear(process.in);

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	if (point >= RESPONDED)
		cr_assert_eq(peer_take(active.channel,
				       RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	if (point >= ESTABLISHED) {
		peer_move_qp(&active);
		cr_assert_eq(sv_cm_establish(active.id), 0);
	}
	hear(process.in);
	process_kill(&process);
	cr_assert_eq(peer_take(active.channel, type), status);
	if (point == ESTABLISHED)
		assert_send_fails(&active);
	peer_close(&active);
}

Test(sv_cm_kill, server_killed_with_the_request)
{
	kill_server(REQUESTED, RDMA_CM_EVENT_REJECTED, SV_CM_REJ_CONSUMER);
}

Test(sv_cm_kill, server_killed_after_accepting)
{
	kill_server(RESPONDED, RDMA_CM_EVENT_REJECTED, SV_CM_REJ_TIMEOUT);
}

Test(sv_cm_kill, server_killed_when_established)
{
	kill_server(ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED, 0);
}

Test(sv_cm_kill, client_killed_before_the_request_is_fetched)
{
	struct process process = process_start(client, REQUESTED);
	struct peer listener;
	struct pollfd pfd;

	say(process.out, peer_listen(&listener, "127.0.0.1", 0, 0));
	pfd = (struct pollfd){ .fd = listener.channel->fd, .events = POLLIN };
	cr_assert_eq(poll(&pfd, 1, PEER_WAIT_MS), 1);
	process_kill(&process);
	peer_sleep_ms(200);
	cr_assert_eq(poll(&pfd, 1, 0), 0);
	peer_close(&listener);
}

Test(sv_cm_kill, client_killed_before_it_is_answered)
{
	struct process process = process_start(client, REQUESTED);
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_event *event;
	struct peer listener;
	struct rdma_cm_id *id;

	say(process.out, peer_listen(&listener, "127.0.0.1", 0, 0));
	event = peer_expect(listener.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	process_kill(&process);
	cr_assert_eq(peer_take(listener.channel, RDMA_CM_EVENT_REJECTED),
		     SV_CM_REJ_TIMEOUT);
	cr_assert_eq(sv_cm_accept(id, &param), -1);
	cr_assert_eq(sv_cm_destroy_id(id), 0);
	peer_close(&listener);
}

static void kill_client(enum point point, enum rdma_cm_event_type type,
			int status)
{
	struct process process = process_start(client, point);
	struct peer listener;
	struct peer passive;

	say(process.out, peer_listen(&listener, "127.0.0.1", 0, 0));
	peer_accept(&listener, &passive);
	if (point == ESTABLISHED)
		peer_established(&passive);
	hear(process.in);
	process_kill(&process);
	cr_assert_eq(peer_take(passive.channel, type), status);
	if (point == ESTABLISHED)
		assert_send_fails(&passive);
	peer_close(&passive);
	peer_close(&listener);
}

Test(sv_cm_kill, client_killed_with_the_response)
{
	kill_client(RESPONDED, RDMA_CM_EVENT_REJECTED, SV_CM_REJ_CONSUMER);
}

Test(sv_cm_kill, client_killed_when_established)
{
	kill_client(ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED, 0);
}

static void stranger(int in, int out, int point)
{
	MUST(!setresuid(STRANGER, STRANGER, STRANGER));
	client(in, out, point);
}

/* Whose memory is not for us to touch is still to be talked to. */
Test(sv_cm_kill, client_of_another_user)
{
	struct process process;
	struct peer listener;
	struct peer passive;

	if (geteuid())
		cr_skip_test("only root can be two users");
	process = process_start(stranger, ESTABLISHED);
	say(process.out, peer_listen(&listener, "127.0.0.1", 0, 0));
	peer_accept(&listener, &passive);
	peer_established(&passive);
	hear(process.in);
	cr_assert_eq(sv_qp(passive.qp)->link->ops, &sv_tcp_ops);
	process_kill(&process);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED),
		     0);
	assert_send_fails(&passive);
	peer_close(&passive);
	peer_close(&listener);
}

Test(sv_cm_kill, killed_again_and_again)
{
	int i;

	for (i = 0; i < 10; i++) {
		kill_client(ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED, 0);
		kill_server(ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
}

/* A child that it has forked does not keep a dead process's connection up. */
static void client_with_child(int in, int out, int point)
{
	struct peer active;
	uint16_t port = (uint16_t)hear(in);
	pid_t pid;

	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	peer_finish(&active);
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		say(out, getpid());
		for (;;)
			pause();
	}
	for (;;)
		pause();
}

Test(sv_cm_kill, killed_with_a_child_that_lives)
{
	struct process process = process_start(client_with_child, ESTABLISHED);
	struct peer listener;
	struct peer passive;
	pid_t child;

	say(process.out, peer_listen(&listener, "127.0.0.1", 0, 0));
	peer_accept(&listener, &passive);
	peer_established(&passive);
	child = hear(process.in);
	process_kill(&process);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED),
		     0);
	cr_assert_eq(kill(child, SIGKILL), 0);
	peer_close(&passive);
	peer_close(&listener);
}

/* What a child inherits is dead; what it makes is not; the parent sees none. */
static int forked(struct peer *listener, struct peer *active)
{
	struct rdma_cm_event *event;
	struct peer own_listener;
	struct peer own_passive;
	struct peer own_active;
	uint16_t port;

	if (sv_cm_disconnect(active->id) != -1 || errno != ENODEV)
		return 2;
	if (sv_cm_get_cm_event(listener->channel, &event) != -1 ||
	    errno != ENODEV)
		return 3;
	if (sv_cm_destroy_id(active->id) || sv_cm_destroy_id(listener->id))
		return 4;
	port = peer_listen(&own_listener, "127.0.0.1", 0, 0);
	peer_pair(&own_listener, &own_active, &own_passive, "127.0.0.1", port);
	peer_transfer(&own_active, &own_passive);
	peer_close(&own_active);
	peer_close(&own_passive);
	peer_close(&own_listener);
	return 0;
}

Test(sv_cm_kill, fork)
{
	struct peer listener;
	struct peer passive;
	struct peer active;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int status;
	pid_t pid;

	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	pid = fork();
	MUST(pid >= 0);
	if (!pid)
		_exit(forked(&listener, &active));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "%d", WEXITSTATUS(status));
	cr_assert_null(peer_event(passive.channel, 50));
	peer_transfer(&active, &passive);
	peer_close(&active);
	peer_close(&passive);
	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

/* No packet reaches this end any more; it would soon ask for one. */
static void vanish(struct peer *peer)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog filter = { .len = 1, .filter = &drop };
	int sock = sv_tcp(sv_qp(peer->qp)->link)->sock;
	int soon_s = 1;

	MUST(!setsockopt(sock, IPPROTO_TCP, TCP_KEEPIDLE, &soon_s,
			 sizeof(soon_s)));
	MUST(!setsockopt(sock, IPPROTO_TCP, TCP_KEEPINTVL, &soon_s,
			 sizeof(soon_s)));
	MUST(!setsockopt(sock, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
			 sizeof(filter)));
}

/* Who only waits hears of it from both: its queue pair, and rdma_cm. */
Test(sv_cm_kill, host_vanished)
{
	struct peer listener, active, passive;
	uint16_t port;

	setenv("SOFTVERBS_LINK", "tcp", 1);
	setenv("SOFTVERBS_PEER_TIMEOUT", "1", 1);
	port = peer_listen(&listener, "127.0.0.1", 0, 0);
	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
	peer_transfer(&active, &passive);
	peer_post_recv(&active);
	peer_post_recv(&passive);
	vanish(&active);
	vanish(&passive);
	cr_assert_eq(peer_complete(&active), IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(peer_complete(&passive), IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	cr_assert_eq(peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}
