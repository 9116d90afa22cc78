/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The same address again: a listener that was closed, or whose process was
 * killed, comes back on its port and is not taken for a duplicate; a client
 * that restarts is accepted while the server has not noticed.
 */
#include <signal.h>

#include "common.h"

enum { ROUNDS = 20 };

static void ping(struct end *from, struct end *to)
{
	struct buf a;
	struct buf b;

	buf_open(from, &a, 64, FI_SEND);
	buf_open(to, &b, 64, FI_RECV);
	post_recv(to, &b, 0, 64, &b);
	post_send(from, &a, 0, 64, &a);
	expect_ok(from->cq, &a, FI_SEND | FI_MSG, NULL);
	expect_ok(to->cq, &b, FI_RECV | FI_MSG, NULL);
	buf_close(&a);
	buf_close(&b);
}

/* Closed and opened again on the same port, with live connections between. */
static int listener_restarts(void)
{
	struct setup how = { .port = 0 };
	struct end srv;
	struct end cli;

	for (int i = 0; i < scaled(ROUNDS); i++) {
		open_passive(&srv, &how);
		listen_start(&srv);
		if (how.port)
			ASSERT_EQ(listen_port(&srv), how.port);
		how.port = listen_port(&srv);
		open_active(&cli, NULL, &srv);
		connect_pair(&srv, &cli);
		ping(&cli, &srv);
		/* Whoever ends it, the port is free at once. */
		if (i & 1)
			close_ep(&srv);
		close_pair(&srv, &cli);
	}
	return PASSED;
}

/* One port, one listener; the second is refused, the first goes on. */
static int port_in_use(void)
{
	struct setup how = { .port = 0 };
	struct end srv;
	struct end cli;
	struct end second;
	int ret;

	open_passive(&srv, &how);
	listen_start(&srv);
	how.port = listen_port(&srv);
	open_passive(&second, &how);
	/* The port may be taken when it is bound or when it is opened. */
	ret = fi_passive_ep(second.fabric, second.info, &second.pep, NULL);
	if (!ret) {
		ASSERT_OK(fi_pep_bind(second.pep, &second.evq->eq->fid, 0));
		ret = fi_listen(second.pep);
	}
	ASSERT_EQ(ret, -FI_EADDRINUSE);
	close_end(&second);
	open_active(&cli, NULL, &srv);
	connect_pair(&srv, &cli);
	ping(&cli, &srv);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Loads the providers, which takes longest, before it is this one's turn. */
static void load(void)
{
	int ret;

	fi_freeinfo(try_getinfo(NULL, NULL, FI_SOURCE, &ret));
}

/* A server's whole life: listen on the port told, accept, echo, be killed. */
static int server_main(int sock, void *arg)
{
	struct setup how = { .port = 0 };
	struct end e;
	struct buf b;
	uint16_t port;

	load();
	hear(sock, &how.port, sizeof(how.port));
	open_passive(&e, &how);
	listen_start(&e);
	port = listen_port(&e);
	tell(sock, &port, sizeof(port));
	buf_open(&e, &b, 64, ALL_ACCESS);
	accept_start(&e, &e, NULL, 0, NULL);
	post_recv(&e, &b, 0, 64, &b);
	expect_event(&e, FI_CONNECTED, NULL);
	expect_ok(e.cq, &b, FI_RECV | FI_MSG, NULL);
	tell(sock, "r", 1);
	for (;;) {
		struct event ev;

		next_event(&e, &ev, 100);
	}
	return 0;
}

static int killed_server_restarts(void)
{
	int n = scaled(ROUNDS);
	struct peer peers[ROUNDS];
	uint16_t port = 0;

	for (int i = 0; i < n; i++)
		peer_start(&peers[i], server_main, NULL);
	for (int i = 0; i < n; i++) {
		struct end cli;
		struct buf a;
		char byte;

		tell(peers[i].sock, &port, sizeof(port));
		hear(peers[i].sock, &port, sizeof(port));
		open_active_port(&cli, NULL, port);
		connect_start(&cli, NULL, 0);
		expect_event(&cli, FI_CONNECTED, NULL);
		buf_open(&cli, &a, 64, ALL_ACCESS);
		post_send(&cli, &a, 0, 64, &a);
		expect_ok(cli.cq, &a, FI_SEND | FI_MSG, NULL);
		hear(peers[i].sock, &byte, 1);
		peer_kill(&peers[i], SIGKILL);
		expect_event(&cli, FI_SHUTDOWN, NULL);
		close_ep(&cli);
		buf_close(&a);
		close_end(&cli);
	}
	return PASSED;
}

static int client_main(int sock, void *arg)
{
	struct end e;
	uint16_t port;

	load();
	hear(sock, &port, sizeof(port));
	open_active_port(&e, NULL, port);
	connect_start(&e, NULL, 0);
	expect_event(&e, FI_CONNECTED, NULL);
	tell(sock, "c", 1);
	for (;;) {
		struct event ev;

		next_event(&e, &ev, 100);
	}
	return 0;
}

/* The server has not looked at the end of the old connection when the new
 * request comes: the old one ends with FI_SHUTDOWN, the new one is taken. */
static int killed_client_restarts(void)
{
	int n = scaled(ROUNDS);
	struct peer peers[ROUNDS];
	struct end srv;
	struct end eps[ROUNDS];
	uint16_t port;
	char byte;

	for (int i = 0; i < n; i++)
		peer_start(&peers[i], client_main, NULL);
	open_passive(&srv, NULL);
	listen_start(&srv);
	port = listen_port(&srv);
	for (int i = 0; i < n; i++) {
		open_shared(&eps[i], &srv, NULL);
		tell(peers[i].sock, &port, sizeof(port));
		accept_start(&srv, &eps[i], NULL, 0, NULL);
		expect_event(&eps[i], FI_CONNECTED, NULL);
		hear(peers[i].sock, &byte, 1);
		peer_kill(&peers[i], SIGKILL);
	}
	for (int i = 0; i < n; i++) {
		expect_event(&eps[i], FI_SHUTDOWN, NULL);
		expect_no_event(&eps[i], 0);
		close_end(&eps[i]);
	}
	close_end(&srv);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(listener_restarts), CASE(port_in_use),
		CASE_COLD(killed_server_restarts),
		CASE_COLD(killed_client_restarts), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
