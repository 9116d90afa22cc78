/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Many requests while the server does not look: each attempt ends in exactly
 * one way, a backlog that was set is accepted, and the listener works
 * afterwards.
 */
#include "common.h"

enum { CLIENTS = 16 };

static struct end srv;
static struct end owner;
static struct end clis[CLIENTS];
static struct end eps[CLIENTS];

/* Connected, refused or timed out; one event each, nothing else. */
static void settle(int *connected, int *refused)
{
	struct event ev;

	*connected = *refused = 0;
	for (int i = 0; i < CLIENTS; i++) {
		if (!next_event(&clis[i], &ev, 10000))
			FAIL("attempt %d has no end", i);
		if (ev.type == FI_CONNECTED) {
			++*connected;
			continue;
		}
		ASSERT_EQ(ev.type, ERROR_EVENT);
		ASSERT(ev.err == FI_ECONNREFUSED || ev.err == FI_ETIMEDOUT ||
		       ev.err == FI_ECONNRESET);
		++*refused;
	}
	for (int i = 0; i < CLIENTS; i++)
		expect_no_event(&clis[i], 0);
}

static void start_all(void)
{
	for (int i = 0; i < CLIENTS; i++) {
		open_shared(&clis[i], &owner, &srv);
		connect_start(&clis[i], NULL, 0);
	}
}

/* Accepts whatever asks, as it comes. Returns how many. */
static int accept_all(void)
{
	struct event ev;
	int n = 0;

	while (next_event(&srv, &ev, n < CLIENTS ? 300 : 20)) {
		ASSERT_EQ(ev.type, FI_CONNREQ);
		ASSERT_CMP(n, <, CLIENTS);
		open_shared(&eps[n], &srv, NULL);
		make_ep(&eps[n], ev.info);
		ASSERT_OK(fi_accept(eps[n].ep, NULL, 0));
		fi_freeinfo(ev.info);
		n++;
	}
	return n;
}

static void close_all(int accepted)
{
	for (int i = 0; i < CLIENTS; i++)
		close_end(&clis[i]);
	for (int i = 0; i < accepted; i++)
		close_end(&eps[i]);
	/* As good as new. */
	connect_pair(&srv, &owner);
	close_pair(&srv, &owner);
}

static int one_run(int backlog)
{
	int connected;
	int refused;
	int accepted;

	open_passive(&srv, NULL);
	ASSERT_OK(fi_passive_ep(srv.fabric, srv.info, &srv.pep, NULL));
	ASSERT_OK(fi_pep_bind(srv.pep, &srv.evq->eq->fid, 0));
	if (backlog) {
		int ret = fi_control(&srv.pep->fid, FI_BACKLOG, &backlog);

		if (!is_vrc() && ret) {
			close_end(&srv);
			return skip("%s has no FI_BACKLOG", provider());
		}
		ASSERT_OK(ret);
	}
	ASSERT_OK(fi_listen(srv.pep));
	open_active(&owner, NULL, &srv);
	start_all();
	sleep_ms(200); /* nobody reads */
	accepted = accept_all();
	settle(&connected, &refused);
	printf("  backlog %d: %d requests, %d connected, %d refused\n", backlog,
	       accepted, connected, refused);
	ASSERT_EQ(connected + refused, CLIENTS);
	ASSERT_EQ(connected, accepted);
	ASSERT_CMP(connected, >, 0);
	for (int i = 0; i < accepted; i++)
		expect_event(&eps[i], FI_CONNECTED, NULL);
	if (!backlog)
		ASSERT_EQ(connected, CLIENTS); /* 16 is not many */
	close_all(accepted);
	return PASSED;
}

static int default_backlog(void)
{
	return one_run(0);
}

static int small_backlog(void)
{
	return one_run(4);
}

static int nonsense(void)
{
	int backlog = -1;

	if (!is_vrc())
		return skip("%s does not check it", provider());
	open_passive(&srv, NULL);
	ASSERT_OK(fi_passive_ep(srv.fabric, srv.info, &srv.pep, NULL));
	ASSERT_OK(fi_pep_bind(srv.pep, &srv.evq->eq->fid, 0));
	ASSERT_CMP(fi_control(&srv.pep->fid, FI_BACKLOG, &backlog), <, 0);
	backlog = 1 << 30;
	ASSERT_LE(fi_control(&srv.pep->fid, FI_BACKLOG, &backlog), 0);
	ASSERT_OK(fi_listen(srv.pep));
	open_active(&owner, NULL, &srv);
	connect_pair(&srv, &owner);
	close_pair(&srv, &owner);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(default_backlog), CASE(small_backlog), CASE(nonsense),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
