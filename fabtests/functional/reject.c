/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connections that do not come about: refused with and without data, nobody
 * listening, the listener closed meanwhile. One error event each, and the
 * listener goes on.
 */
#include "common.h"

static struct end srv;
static struct end cli;

static void open_all(void)
{
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
}

/* The one terminal event of an attempt that fails. */
static void expect_refused(struct event *ev)
{
	expect_event(&cli, ERROR_EVENT, ev);
	ASSERT_EQ(ev->err, FI_ECONNREFUSED);
	ASSERT(ev->fid == &cli.ep->fid);
}

static void reject_once(size_t len)
{
	uint8_t data[600];
	struct event ev;

	fill(data, len, (uint32_t)len);
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &ev);
	ASSERT_OK(fi_reject(srv.pep, ev.info->handle, len ? data : NULL, len));
	fi_freeinfo(ev.info);
	expect_refused(&ev);
	ASSERT_EQ(ev.len, len);
	ASSERT_FILLED(ev.data, len, (uint32_t)len);
	close_ep(&cli);
}

static int with_data(void)
{
	size_t max = 0;
	size_t size = sizeof(max);

	open_all();
	ASSERT_OK(fi_getopt(&srv.pep->fid, FI_OPT_ENDPOINT,
			    FI_OPT_CM_DATA_SIZE, &max, &size));
	reject_once(0);
	reject_once(1);
	reject_once(7);
	reject_once(max);
	reject_once(0);
	connect_pair(&srv, &cli); /* the listener is as good as new */
	close_pair(&srv, &cli);
	return PASSED;
}

static int too_long(void)
{
	uint8_t data[600] = { 0 };
	size_t max = 0;
	size_t size = sizeof(max);
	struct event ev;

	if (!is_vrc())
		return skip("fi_cm(3) lets %s cut it silently", provider());
	open_all();
	ASSERT_OK(fi_getopt(&srv.pep->fid, FI_OPT_ENDPOINT,
			    FI_OPT_CM_DATA_SIZE, &max, &size));
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &ev);
	ASSERT_EQ(fi_reject(srv.pep, ev.info->handle, data, max + 1),
		  -FI_EINVAL);
	/* Nothing was sent by that. */
	ASSERT_OK(fi_reject(srv.pep, ev.info->handle, data, max));
	fi_freeinfo(ev.info);
	expect_refused(&ev);
	ASSERT_EQ(ev.len, max);
	close_pair(&srv, &cli);
	return PASSED;
}

/* A reader that gives no buffer gets the provider's (fi_eq(3)). */
static int providers_buffer(void)
{
	struct fi_eq_err_entry err;
	struct fi_eq_cm_entry entry;
	struct event ev;
	uint32_t type;
	ssize_t n = -FI_EAGAIN;
	char text[64];

	open_all();
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &ev);
	/* Refused before the client's queue is looked at again. */
	ASSERT_OK(fi_reject(srv.pep, ev.info->handle, "busy", 4));
	fi_freeinfo(ev.info);
	for (int i = 0; i < slow_ms(5000) && n == -FI_EAGAIN; i++) {
		progress();
		n = fi_eq_read(cli.evq->eq, &type, &entry, sizeof(entry), 0);
		sleep_ms(1);
	}
	ASSERT_EQ(n, -FI_EAVAIL);
	/* It stays that way until the error has been read. */
	ASSERT_EQ(fi_eq_read(cli.evq->eq, &type, &entry, sizeof(entry), 0),
		  -FI_EAVAIL);
	ASSERT_EQ(fi_eq_sread(cli.evq->eq, &type, &entry, sizeof(entry), 1000,
			      0), -FI_EAVAIL);
	memset(&err, 0, sizeof(err));
	ASSERT_EQ(fi_eq_readerr(cli.evq->eq, &err, 0), sizeof(err));
	ASSERT_EQ(err.err, FI_ECONNREFUSED);
	ASSERT(err.fid == &cli.ep->fid);
	ASSERT_EQ(err.err_data_size, 4);
	ASSERT_OK(memcmp(err.err_data, "busy", 4));
	ASSERT(fi_eq_strerror(cli.evq->eq, err.prov_errno, err.err_data, text,
			      sizeof(text)));
	ASSERT_EQ(fi_eq_readerr(cli.evq->eq, &err, 0), -FI_EAGAIN);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Less room than there is data: cut, and nothing past it. */
static int short_err_data(void)
{
	struct fi_eq_err_entry err;
	struct event ev;
	uint8_t room[16];
	unsigned int turn = 0;
	uint64_t end;

	open_all();
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &ev);
	ASSERT_OK(fi_reject(srv.pep, ev.info->handle, "0123456789", 10));
	fi_freeinfo(ev.info);
	memset(room, 0xee, sizeof(room));
	memset(&err, 0, sizeof(err));
	err.err_data = room;
	err.err_data_size = 3;
	end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	while (fi_eq_readerr(cli.evq->eq, &err, 0) == -FI_EAGAIN &&
	       now_us() < end) {
		struct fi_eq_cm_entry entry;
		uint32_t type;

		fi_eq_read(cli.evq->eq, &type, &entry, sizeof(entry), 0);
		relax(&turn);
	}
	ASSERT_EQ(err.err, FI_ECONNREFUSED);
	ASSERT_LE(err.err_data_size, 3);
	ASSERT_BYTES(room + 3, sizeof(room) - 3, 0xee);
	if (err.err_data_size)
		ASSERT_OK(memcmp(room, "0123456789", err.err_data_size));
	close_pair(&srv, &cli);
	return PASSED;
}

static int nobody_listens(void)
{
	struct event ev;

	open_all();
	ASSERT_OK(fi_close(&srv.pep->fid));
	srv.pep = NULL;
	for (int i = 0; i < scaled(20); i++) {
		connect_start(&cli, "x", 1);
		expect_refused(&ev);
		ASSERT_EQ(ev.len, 0);
		close_ep(&cli);
	}
	close_pair(&srv, &cli);
	return PASSED;
}

/* A request that was read outlives its listener: it can be accepted, or at
 * least is refused in a way that both sides learn of. */
static int listener_closes(void)
{
	struct event ev;
	int ret;

	if (!is_vrc())
		return skip("%s forgets them", provider());
	open_all();
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &ev);
	ASSERT_OK(fi_close(&srv.pep->fid));
	srv.pep = NULL;
	ret = fi_endpoint(srv.domain, ev.info, &srv.ep, NULL);
	if (!ret) {
		ASSERT_OK(fi_ep_bind(srv.ep, &srv.evq->eq->fid, 0));
		ASSERT_OK(fi_ep_bind(srv.ep, &srv.cq->fid,
				     FI_TRANSMIT | FI_RECV));
		ret = fi_accept(srv.ep, NULL, 0);
	}
	fi_freeinfo(ev.info);
	if (!ret) {
		wait_connected(&srv, &cli, NULL);
	} else {
		expect_event(&cli, ERROR_EVENT, &ev);
		ASSERT(ev.err == FI_ECONNREFUSED || ev.err == FI_ECONNRESET ||
		       ev.err == FI_ETIMEDOUT);
	}
	close_pair(&srv, &cli);
	return PASSED;
}

/* One that nobody has read is refused for us. */
static int listener_closes_unread(void)
{
	struct fi_eq_cm_entry entry;
	struct event ev;
	uint32_t type;

	if (!is_vrc())
		return skip("%s forgets them", provider());
	open_all();
	connect_start(&cli, NULL, 0);
	/* Only the client's queue is read, until the request is out. */
	for (int i = 0; i < slow_ms(200); i++) {
		ASSERT_EQ(fi_eq_read(cli.evq->eq, &type, &entry, sizeof(entry),
				     0), -FI_EAGAIN);
		sleep_ms(1);
	}
	ASSERT_OK(fi_close(&srv.pep->fid));
	srv.pep = NULL;
	expect_refused(&ev);
	ASSERT_EQ(ev.len, 0);
	close_pair(&srv, &cli);
	return PASSED;
}

/* The endpoint made for a request is closed instead of accepting. */
static int closed_instead_of_accepted(void)
{
	struct event ev;

	open_all();
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &ev);
	make_ep(&srv, ev.info);
	fi_freeinfo(ev.info);
	close_ep(&srv);
	expect_event(&cli, ERROR_EVENT, &ev);
	ASSERT(ev.err == FI_ECONNREFUSED || ev.err == FI_ECONNRESET ||
	       ev.err == FI_ETIMEDOUT || !is_vrc());
	close_ep(&cli);
	connect_pair(&srv, &cli);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Receives posted to an endpoint whose connection is refused come back. */
static int posted_receives_return(void)
{
	struct event ev;
	struct comp c;
	struct buf b;

	open_all();
	buf_open(&cli, &b, 64, FI_RECV);
	make_ep(&cli, cli.info);
	for (uintptr_t i = 1; i <= 8; i++)
		post_recv(&cli, &b, 0, 64, (void *)i);
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &ev);
	ASSERT_OK(fi_reject(srv.pep, ev.info->handle, NULL, 0));
	fi_freeinfo(ev.info);
	expect_refused(&ev);
	close_ep(&cli);
	if (is_vrc()) {
		for (uintptr_t i = 1; i <= 8; i++) {
			expect_comp(cli.cq, &c);
			ASSERT(c.context == (void *)i);
			ASSERT_EQ(c.err, FI_ECANCELED);
		}
		expect_no_comp(cli.cq, 10);
	}
	buf_close(&b);
	close_pair(&srv, &cli);
	return PASSED;
}

/* What a refusal costs; printed, and bounded only against the absurd. */
static int storm(void)
{
	struct event ev;
	uint64_t start;
	int n = scaled(500);

	open_all();
	ASSERT_OK(fi_close(&srv.pep->fid));
	srv.pep = NULL;
	start = now_us();
	for (int i = 0; i < n; i++) {
		connect_start(&cli, NULL, 0);
		expect_refused(&ev);
		close_ep(&cli);
	}
	printf("  %d refusals, %d us each\n", n,
	       (int)((now_us() - start) / (uint64_t)n));
	ASSERT_LE((now_us() - start) / (uint64_t)n, slow_ms(10) * 1000);
	close_pair(&srv, &cli);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(with_data), CASE(too_long), CASE(providers_buffer),
		CASE(short_err_data), CASE(nobody_listens),
		CASE(listener_closes), CASE(listener_closes_unread),
		CASE(closed_instead_of_accepted),
		CASE(posted_receives_return), CASE(storm),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
