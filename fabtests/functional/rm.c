/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Resource management: a message that finds no receive waits for one, or is
 * held back until there is one. Neither is it lost, nor does the connection end.
 */
#include "pair.h"

static bool open_all(const struct setup *how)
{
	pair_open(how, 1 << 20);
	return cli.info->domain_attr->resource_mgmt == FI_RM_ENABLED;
}

static int not_managed(void)
{
	pair_close();
	return skip("resource_mgmt is not FI_RM_ENABLED");
}

/* A send that nothing was posted for: taken, or held back. */
static void send_early(size_t len)
{
	if (has_credits(&cli))
		ASSERT_EQ(fi_send(cli.ep, tx.p, len, tx.desc, 0, &tx),
			  -FI_EAGAIN);
	else
		post_send(&cli, &tx, 0, len, &tx);
}

/* The receive has been posted since. */
static void send_held(size_t len)
{
	if (has_credits(&cli))
		post_send(&cli, &tx, 0, len, &tx);
}

static void send_and_wait(size_t len, int ms)
{
	struct comp c;

	fill(tx.p, len, 1);
	send_early(len);
	for (int t = 0; t < ms; t += 10) {
		progress();
		sleep_ms(10);
	}
	post_recv(&srv, &rx, 0, len, &rx);
	send_held(len);
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, &c);
	ASSERT_EQ(c.len, len);
	ASSERT_FILLED(rx.p, len, 1);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	expect_no_event(&srv, 0);
	expect_no_event(&cli, 0);
}

/* The receive comes late: by 1 ms, 100 ms and 3 s. */
static int late_receive(void)
{
	if (!open_all(NULL))
		return not_managed();
	send_and_wait(64, 1);
	send_and_wait(8192, 100);
	send_and_wait(1 << 20, 100);
	send_and_wait(64, 3000);
	send_and_wait(64, 0);
	return pair_close();
}

/* Twice as many messages as there are receives, taken slowly, in order. */
static int slow_receiver(void)
{
	struct setup how = { .tx_size = 64, .rx_size = 16 };
	enum { N = 300 };
	uintptr_t sent = 0;
	uintptr_t done = 0;
	uintptr_t posted = 0;
	uintptr_t got = 0;
	uint64_t end = now_us() + (uint64_t)slow_ms(20000) * 1000;
	struct comp c;

	if (!open_all(&how))
		return not_managed();
	while (got < N && now_us() < end) {
		while (sent < N) {
			uint32_t *word = (uint32_t *)(tx.p + 64 * (sent % 256));
			ssize_t ret;

			if (sent - done >= 256)
				break;
			*word = (uint32_t)sent;
			ret = fi_send(cli.ep, word, 4, tx.desc, 0, NULL);
			if (ret) {
				ASSERT_EQ(ret, -FI_EAGAIN);
				break;
			}
			sent++;
		}
		while (poll_comp(cli.cq, &c)) {
			ASSERT_EQ(c.err, 0);
			done++;
		}
		if (got + 1 > posted) {
			post_recv(&srv, &rx, 0, 64, NULL);
			posted++;
		}
		if (!next_comp(srv.cq, &c, has_credits(&cli) ? 1 : 3000))
			continue;
		ASSERT_EQ(c.err, 0);
		ASSERT_EQ(*(uint32_t *)rx.p, got);
		got++;
	}
	ASSERT_EQ(got, N);
	while (done < N) {
		expect_ok(cli.cq, NULL, FI_SEND | FI_MSG, NULL);
		done++;
	}
	expect_no_event(&srv, 0);
	expect_no_event(&cli, 0);
	return pair_close();
}

/* A send that waits does not stop the other direction. */
static int other_direction_flows(void)
{
	bool sent = false;
	struct comp c;

	if (!open_all(NULL))
		return not_managed();
	send_early(64);
	for (int i = 0; i < 20; i++) {
		post_recv(&cli, &tx, 4096, 64, &cli);
		post_send(&srv, &rx, 4096, 64, &srv);
		expect_ok(srv.cq, &srv, FI_SEND | FI_MSG, NULL);
		do {
			/* The one that waits may count as transmitted. */
			expect_comp(cli.cq, &c);
			ASSERT_EQ(c.err, 0);
			if (c.context == &tx) {
				ASSERT(!sent);
				sent = true;
			}
		} while (c.context == &tx);
		ASSERT(c.context == &cli);
	}
	post_recv(&srv, &rx, 0, 64, &rx);
	send_held(64);
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	if (!sent)
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	return pair_close();
}

/* Burst of tx depth against a receiver one shorter. */
static int one_too_many(void)
{
	struct setup how = { .tx_size = 33, .rx_size = 32 };
	struct comp c;
	int got = 0;

	if (!open_all(&how))
		return not_managed();
	for (int i = 0; i < 32; i++)
		post_recv(&srv, &rx, 0, 64, &rx);
	for (int i = 0; i < 32; i++)
		post_send(&cli, &tx, 0, 64, &tx);
	send_early(64);
	for (; got < 32; got++)
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	if (next_comp(srv.cq, &c, 50))
		FAIL("a receive completed that was not posted");
	post_recv(&srv, &rx, 0, 64, &rx);
	send_held(64);
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	for (int i = 0; i < 33; i++)
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	expect_no_event(&srv, 0);
	expect_no_event(&cli, 0);
	return pair_close();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(late_receive), CASE(slow_receiver),
		CASE(other_direction_flows), CASE(one_too_many),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
