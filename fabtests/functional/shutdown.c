/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The end of a connection: exactly one FI_SHUTDOWN whoever ends it, data sent
 * before it arrives, every posted operation completes exactly once, nothing
 * comes after fi_close.
 */
#include "common.h"

static struct end srv;
static struct end cli;

enum who { SERVER, CLIENT, BOTH };

static void end_connection(enum who who, bool by_close)
{
	if (who != CLIENT && by_close)
		close_ep(&srv);
	else if (who != CLIENT)
		ASSERT_OK(fi_shutdown(srv.ep, 0));
	if (who != SERVER && by_close)
		close_ep(&cli);
	else if (who != SERVER)
		ASSERT_OK(fi_shutdown(cli.ep, 0));
}

static int count_shutdowns(struct end *e, int ms)
{
	struct event ev;
	int cnt = 0;

	while (next_event(e, &ev, ms)) {
		if (ev.type == ERROR_EVENT)
			FAIL("error event %d (%s) at a shutdown", ev.err,
			     fi_strerror(ev.err));
		ASSERT_EQ(ev.type, FI_SHUTDOWN);
		ASSERT(ev.fid == &e->ep->fid);
		ASSERT_EQ(ev.len, 0);
		cnt++;
		ms = 0;
	}
	return cnt;
}

/* Nothing is left in a queue once its endpoint is closed. */
static void no_stray_events(struct end *e)
{
	struct fi_eq_cm_entry entry;
	uint32_t type;

	ASSERT_EQ(fi_eq_read(e->evq->eq, &type, &entry, sizeof(entry), 0),
		  -FI_EAGAIN);
	ASSERT_EQ(e->evq->cnt, 0);
}

static void one_round(enum who who, bool by_close)
{
	connect_pair(&srv, &cli);
	end_connection(who, by_close);
	if (who == SERVER)
		ASSERT_EQ(count_shutdowns(&cli, 5000), 1);
	if (who == CLIENT)
		ASSERT_EQ(count_shutdowns(&srv, 5000), 1);
	if (who == BOTH) {
		/* Each was told or told the other; never twice. */
		ASSERT_LE(count_shutdowns(&cli, 1), 1);
		ASSERT_LE(count_shutdowns(&srv, 1), 1);
	}
	if (cli.ep && who == SERVER)
		ASSERT_EQ(count_shutdowns(&cli, 1), 0);
	if (srv.ep && who == CLIENT)
		ASSERT_EQ(count_shutdowns(&srv, 1), 0);
	/* The one that ended it hears of it once at most. */
	if (srv.ep && who == SERVER)
		ASSERT_LE(count_shutdowns(&srv, 0), 1);
	if (cli.ep && who == CLIENT)
		ASSERT_LE(count_shutdowns(&cli, 0), 1);
	if (cli.ep)
		close_ep(&cli);
	if (srv.ep)
		close_ep(&srv);
	no_stray_events(&cli);
	no_stray_events(&srv);
}

static int rounds(enum who who, bool by_close)
{
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	for (int i = 0; i < scaled(200); i++)
		one_round(who, by_close);
	close_pair(&srv, &cli);
	return PASSED;
}

static int server_first(void)
{
	return rounds(SERVER, false);
}

static int client_first(void)
{
	return rounds(CLIENT, false);
}

static int both_at_once(void)
{
	return rounds(BOTH, false);
}

static int server_closes(void)
{
	return rounds(SERVER, true);
}

static int client_closes(void)
{
	return rounds(CLIENT, true);
}

/* What completed at the sender before it shut down is received. */
static int data_arrives_first(void)
{
	enum { N = 10, LEN = 40000 };
	struct buf a;
	struct buf b;
	struct comp c;

	make_pair(&srv, &cli, NULL);
	buf_open(&cli, &a, LEN, FI_SEND);
	buf_open(&srv, &b, N * LEN, FI_RECV);
	for (int round = 0; round < scaled(20); round++) {
		fill(a.p, LEN, (uint32_t)round);
		memset(b.p, 0, N * LEN);
		for (uintptr_t i = 0; i < N; i++)
			post_recv(&srv, &b, i * LEN, LEN, (void *)(i + 1));
		for (int i = 0; i < N; i++)
			post_send(&cli, &a, 0, LEN, &a);
		for (int i = 0; i < N; i++)
			expect_ok(cli.cq, &a, FI_SEND | FI_MSG, NULL);
		ASSERT_OK(fi_shutdown(cli.ep, 0));
		for (uintptr_t i = 0; i < N; i++) {
			expect_ok(srv.cq, (void *)(i + 1), FI_RECV | FI_MSG,
				  &c);
			ASSERT_EQ(c.len, LEN);
			ASSERT_FILLED(b.p + i * LEN, LEN, (uint32_t)round);
		}
		ASSERT_EQ(count_shutdowns(&srv, 5000), 1);
		close_ep(&cli);
		close_ep(&srv);
		connect_pair(&srv, &cli);
	}
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&a);
	buf_close(&b);
	close_pair(&srv, &cli);
	return PASSED;
}

/* What the peer has received completes well, though we look only after the peer
 * has closed. */
static int received_completes_well(void)
{
	struct buf a;
	struct buf b;
	struct comp c;

	make_pair(&srv, &cli, NULL);
	buf_open(&srv, &a, 65536, FI_RECV);
	buf_open(&cli, &b, 65536, FI_SEND);
	for (size_t len = 1; len <= 65536; len *= 4) {
		uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;

		post_recv(&srv, &a, 0, len, &a);
		post_send(&cli, &b, 0, len, &b);
		while (!poll_comp(srv.cq, &c))
			ASSERT_CMP(now_us(), <, end);
		ASSERT_EQ(c.err, 0);
		close_ep(&srv);
		sleep_ms(20);
		expect_ok(cli.cq, &b, FI_SEND | FI_MSG, NULL);
		expect_event(&cli, FI_SHUTDOWN, NULL);
		close_ep(&cli);
		connect_pair(&srv, &cli);
	}
	buf_close(&a);
	buf_close(&b);
	close_pair(&srv, &cli);
	return PASSED;
}

enum { RECVS = 128, SENDS = 64, ALL = RECVS + SENDS };

/* Contexts 1 to ALL: receives, then sends; returns how many were taken. */
static int posted(struct end *e, struct buf *b, int recvs, int sends)
{
	for (uintptr_t i = 1; i <= (uintptr_t)recvs; i++)
		post_recv(e, b, 0, 64, (void *)i);
	for (uintptr_t i = 1; i <= (uintptr_t)sends; i++) {
		void *context = (void *)(RECVS + i);

		if (!has_credits(e)) {
			post_send(e, b, 64, 64, context);
			continue;
		}
		/* Held back: no receive waits for it. */
		ASSERT_EQ(fi_send(e->ep, b->p + 64, 64, b->desc, 0, context),
			  -FI_EAGAIN);
		return recvs;
	}
	return recvs + sends;
}

/* Collects until all are there or nothing comes for a while; every context at
 * most once, and what a completion says must fit to its context. */
static int drain(struct fid_cq *cq, int want, bool receives_fail)
{
	uint8_t seen[ALL + 1] = { 0 };
	struct comp c;
	int got = 0;

	while (next_comp(cq, &c, got < want ? 3000 : 20)) {
		uintptr_t i = (uintptr_t)c.context;
		bool is_recv = i <= RECVS;

		ASSERT(i >= 1 && i <= ALL);
		if (seen[i]++)
			FAIL("context %zu completed twice", (size_t)i);
		if (is_vrc() || !c.err)
			ASSERT_EQ(op_bits(c.flags), FI_MSG |
				  (is_recv ? FI_RECV : FI_SEND));
		if (is_recv && receives_fail)
			ASSERT_CMP(c.err, >, 0);
		if (is_recv && receives_fail && is_vrc())
			ASSERT_EQ(c.err, FI_ECANCELED);
		got++;
	}
	return got;
}

static void open_posted(struct buf *a, struct buf *b)
{
	make_pair(&srv, &cli, NULL);
	buf_open(&srv, a, 128, FI_SEND | FI_RECV);
	buf_open(&cli, b, 128, FI_SEND | FI_RECV);
}

static int close_posted(struct buf *a, struct buf *b)
{
	if (cli.ep)
		close_ep(&cli);
	if (srv.ep)
		close_ep(&srv);
	buf_close(a);
	buf_close(b);
	close_pair(&srv, &cli);
	return PASSED;
}

/* 128 receives and 64 sends that find no receive; then the peer closes. */
static int peer_closes_on_posted(void)
{
	struct buf a;
	struct buf b;
	int want;

	open_posted(&a, &b);
	want = posted(&srv, &a, RECVS, SENDS);
	close_ep(&cli);
	ASSERT_EQ(count_shutdowns(&srv, 5000), 1);
	ASSERT_EQ(drain(srv.cq, want, true), want);
	ASSERT_EQ(count_shutdowns(&srv, 1), 0);
	return close_posted(&a, &b);
}

/* The same at the side that shuts down: the queue pair must be flushed. */
static int own_shutdown_flushes(void)
{
	struct buf a;
	struct buf b;

	open_posted(&a, &b);
	posted(&srv, &a, 64, 0);
	posted(&cli, &b, 64, 0);
	ASSERT_OK(fi_shutdown(srv.ep, 0));
	ASSERT_EQ(drain(srv.cq, 64, true), 64);
	ASSERT_EQ(count_shutdowns(&cli, 5000), 1);
	ASSERT_EQ(drain(cli.cq, 64, true), 64);
	return close_posted(&a, &b);
}

/* "All canceled completions will be written before fi_shutdown returns." */
static int flushed_when_it_returns(void)
{
	struct buf a;
	struct buf b;
	struct comp c;
	int got = 0;

	open_posted(&a, &b);
	posted(&srv, &a, 64, 0);
	ASSERT_OK(fi_shutdown(srv.ep, 0));
	while (poll_comp(srv.cq, &c))
		got++;
	ASSERT_EQ(got, 64);
	return close_posted(&a, &b);
}

/* fi_close of our own endpoint: fi_endpoint(3) lets a provider drop the
 * completions; vrc promises them all. None may come twice. */
static int own_close_completes(void)
{
	struct buf a;
	struct buf b;
	int want;
	int got;

	open_posted(&a, &b);
	want = posted(&srv, &a, RECVS, SENDS);
	close_ep(&srv);
	got = drain(srv.cq, is_vrc() ? want : 0, true);
	if (is_vrc())
		ASSERT_EQ(got, want);
	return close_posted(&a, &b);
}

/* An endpoint that was enabled and given receives but never connected. */
static int close_unconnected(void)
{
	struct buf a;
	int got;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	buf_open(&cli, &a, 128, FI_SEND | FI_RECV);
	make_ep(&cli, cli.info);
	posted(&cli, &a, 64, 0);
	close_ep(&cli);
	got = drain(cli.cq, is_vrc() ? 64 : 0, true);
	if (is_vrc())
		ASSERT_EQ(got, 64);
	buf_close(&a);
	close_pair(&srv, &cli);
	return PASSED;
}

/* After the end: refused, and not by "try again". */
static int post_after(void)
{
	struct buf a;
	struct buf b;
	ssize_t ret;

	open_posted(&a, &b);
	ASSERT_OK(fi_shutdown(cli.ep, 0));
	ASSERT_EQ(count_shutdowns(&srv, 5000), 1);
	for (int side = 0; side < 2; side++) {
		struct end *e = side ? &srv : &cli;
		struct buf *buf = side ? &a : &b;
		struct comp c;

		/* Either not taken, or it completes with an error. */
		for (int i = 0; i < 3; i++) {
			ret = fi_send(e->ep, buf->p, 8, buf->desc, 0, buf);
			if (!ret) {
				expect_comp(e->cq, &c);
				ASSERT_CMP(c.err, >, 0);
				ASSERT(c.context == buf);
			} else if (is_vrc()) {
				ASSERT_NE(ret, -FI_EAGAIN);
			}
			ASSERT_LE(ret, 0);
		}
		ret = fi_recv(e->ep, buf->p, 8, buf->desc, 0, buf);
		if (!ret && is_vrc()) {
			expect_comp(e->cq, &c);
			ASSERT_CMP(c.err, >, 0);
		}
	}
	return close_posted(&a, &b);
}

/* Twice, too early, with flags: an answer, no crash, no second event. */
static int odd_calls(void)
{
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	make_ep(&cli, cli.info);
	ASSERT_LE(fi_shutdown(cli.ep, 0), 0);
	close_ep(&cli);
	connect_pair(&srv, &cli);
	if (is_vrc())
		ASSERT_EQ(fi_shutdown(cli.ep, FI_MORE), -FI_EINVAL);
	ASSERT_OK(fi_shutdown(cli.ep, 0));
	ASSERT_LE(fi_shutdown(cli.ep, 0), 0);
	ASSERT_EQ(count_shutdowns(&srv, 5000), 1);
	ASSERT_LE(fi_shutdown(srv.ep, 0), 0);
	ASSERT_EQ(count_shutdowns(&srv, 20), 0);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Closed while the connection is being made, from either side. */
static int close_while_connecting(void)
{
	struct event ev;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	for (int i = 0; i < scaled(50); i++) {
		connect_start(&cli, NULL, 0);
		if (i & 1) {
			expect_event(&srv, FI_CONNREQ, &ev);
			if (i & 2)
				make_ep(&srv, ev.info);
			if (i & 4 && i & 2)
				fi_accept(srv.ep, NULL, 0);
			else if (!(i & 2))
				fi_reject(srv.pep, ev.info->handle, NULL, 0);
			fi_freeinfo(ev.info);
		}
		close_ep(&cli);
		if (srv.ep)
			close_ep(&srv);
		while (next_event(&srv, &ev, i & 1 ? 0 : 20))
			if (ev.type == FI_CONNREQ) {
				fi_reject(srv.pep, ev.info->handle, NULL, 0);
				fi_freeinfo(ev.info);
			}
	}
	connect_pair(&srv, &cli);
	close_pair(&srv, &cli);
	return PASSED;
}

/* The peer accepts and is gone before its answer has been looked at. That is no fault of
 * any argument of ours. */
static int accepted_and_closed(void)
{
	struct event ev;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	for (int i = 0; i < scaled(50); i++) {
		connect_start(&cli, NULL, 0);
		accept_start(&srv, &srv, NULL, 0, NULL);
		close_ep(&srv);
		ASSERT(next_event(&cli, &ev, slow_ms(5000)));
		if (ev.type == FI_CONNECTED)
			expect_event(&cli, FI_SHUTDOWN, NULL);
		else if (ev.type != ERROR_EVENT ||
			 (ev.err != FI_ECONNRESET &&
			  ev.err != FI_ECONNABORTED &&
			  ev.err != FI_ECONNREFUSED))
			FAIL("%s: %s", event_name(ev.type),
			     ev.type == ERROR_EVENT ? fi_strerror(ev.err) : "");
		close_ep(&cli);
	}
	close_pair(&srv, &cli);
	return PASSED;
}

/* The same where the peer's goodbye does not wait until it is looked for. */
static int accepted_and_closed_over_tcp(void)
{
	ASSERT_OK(setenv("SOFTVERBS_LINK", "tcp", 1));
	return accepted_and_closed();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(server_first), CASE(client_first), CASE(both_at_once),
		CASE(server_closes), CASE(client_closes),
		CASE(data_arrives_first), CASE(received_completes_well),
		CASE(peer_closes_on_posted),
		CASE(own_shutdown_flushes), CASE(flushed_when_it_returns),
		CASE(own_close_completes), CASE(close_unconnected),
		CASE(post_after), CASE(odd_calls),
		CASE(close_while_connecting), CASE(accepted_and_closed),
		CASE_COLD(accepted_and_closed_over_tcp), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
