/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Full queues: -FI_EAGAIN when there is no room, and only then; reading
 * completions makes room; a completion queue never loses an entry, however
 * small it was opened and however long nobody reads it.
 */
#include "pair.h"

/* More than any queue has; tcp's have no end. */
enum { MANY = 20000 };

/* Writes without reading a completion until refused. Contexts count up. */
static uintptr_t fill_tx(uintptr_t limit)
{
	uintptr_t n = 0;
	ssize_t ret;

	while (n < limit) {
		ret = fi_write(cli.ep, tx.p, 64, tx.desc, 0, rx.addr, rx.key,
			       (void *)(n + 1));
		if (ret) {
			ASSERT_EQ(ret, -FI_EAGAIN);
			break;
		}
		n++;
	}
	return n;
}

static void take_in_order(struct fid_cq *cq, uintptr_t from, uintptr_t to,
			  uint64_t flags)
{
	for (uintptr_t i = from; i <= to; i++)
		expect_ok(cq, (void *)i, flags, NULL);
}

static int tx_full(void)
{
	struct setup how = { .tx_size = 64 };
	size_t size;
	uintptr_t n;

	pair_open(&how, 65536);
	size = cli.info->tx_attr->size;
	ASSERT_GE(size, 64);
	for (int round = 0; round < 5; round++) {
		n = fill_tx(MANY);
		/* What was promised fits; and there is an end to it. */
		ASSERT_GE(n, size);
		if (is_vrc())
			ASSERT_CMP(n, <, MANY);
		/* Refused again, not queued in secret. */
		if (n < MANY)
			ASSERT_EQ(fi_write(cli.ep, tx.p, 64, tx.desc, 0,
					   rx.addr, rx.key, NULL), -FI_EAGAIN);
		sleep_ms(round * 5);
		take_in_order(cli.cq, 1, n, FI_RMA | FI_WRITE);
		expect_no_comp(cli.cq, 0);
	}
	return pair_close();
}

/* As soon as completions were read there is room for as many again. */
static int room_is_given_back(void)
{
	struct setup how = { .tx_size = 32 };
	uintptr_t done = 0;
	uintptr_t n;
	struct comp c;

	pair_open(&how, 65536);
	n = fill_tx(MANY);
	for (int i = 0; i < 2000; i++) {
		uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
		ssize_t ret;

		while ((ret = fi_write(cli.ep, tx.p, 8, tx.desc, 0, rx.addr,
				       rx.key, (void *)(n + 1))) ==
			       -FI_EAGAIN && now_us() < end) {
			if (poll_comp(cli.cq, &c)) {
				ASSERT_EQ(c.err, 0);
				ASSERT_EQ((uintptr_t)c.context, ++done);
			}
			progress();
		}
		ASSERT_OK(ret);
		n++;
	}
	take_in_order(cli.cq, done + 1, n, FI_RMA | FI_WRITE);
	return pair_close();
}

static int rx_full(void)
{
	struct setup how = { .rx_size = 64 };
	uintptr_t n = 0;
	ssize_t ret = 0;
	size_t size;

	pair_open(&how, 65536);
	size = srv.info->rx_attr->size;
	for (; n < 10000 && !ret; n++) {
		ret = fi_recv(srv.ep, rx.p, 64, rx.desc, 0, (void *)(n + 1));
		if (ret)
			break;
	}
	ASSERT_GE(n, size);
	if (is_vrc())
		ASSERT_CMP(n, <, 10000);
	if (ret)
		ASSERT_EQ(ret, -FI_EAGAIN);
	/* One message makes one place. */
	post_send(&cli, &tx, 0, 8, &tx);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	expect_ok(srv.cq, (void *)1, FI_RECV | FI_MSG, NULL);
	ASSERT_OK(fi_recv(srv.ep, rx.p, 64, rx.desc, 0, (void *)(n + 1)));
	if (ret)
		ASSERT_EQ(fi_recv(srv.ep, rx.p, 64, rx.desc, 0, NULL),
			  -FI_EAGAIN);
	return pair_close();
}

/* fi_inject has no completion, so its room comes back by itself. */
static int inject_only(void)
{
	struct setup how = { .tx_size = 32 };
	struct comp c;
	size_t n;
	size_t got = 0;

	pair_open(&how, 65536);
	n = 20 * cli.info->tx_attr->size;
	for (size_t i = 0; i < n; i++) {
		uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
		ssize_t ret;

		if (i - got < 32)
			post_recv(&srv, &rx, 0, 64, &rx);
		while ((ret = fi_inject(cli.ep, tx.p, 8, 0)) == -FI_EAGAIN &&
		       now_us() < end) {
			if (poll_comp(cli.cq, &c))
				FAIL("fi_inject completed");
			progress();
			if (poll_comp(srv.cq, &c)) {
				ASSERT_EQ(c.err, 0);
				got++;
				post_recv(&srv, &rx, 0, 64, &rx);
			}
		}
		ASSERT_OK(ret);
		while (poll_comp(srv.cq, &c)) {
			ASSERT_EQ(c.err, 0);
			got++;
		}
	}
	while (got < n && next_comp(srv.cq, &c, 3000)) {
		ASSERT_EQ(c.err, 0);
		got++;
		post_recv(&srv, &rx, 0, 64, &rx);
	}
	ASSERT_EQ(got, n);
	expect_no_comp(cli.cq, 0);
	return pair_close();
}

/* A queue of 16 for an endpoint of 128 and 128; all come, nothing is lost. */
static int small_cq(void)
{
	struct setup how = { .tx_size = 128, .rx_size = 128, .cq_size = 16 };
	uintptr_t recvs = 0;
	uintptr_t sends = 0;
	struct comp c;
	uintptr_t got = 0;

	pair_open(&how, 65536);
	while (recvs < 128 &&
	       !fi_recv(srv.ep, rx.p, 64, rx.desc, 0, (void *)(recvs + 1)))
		recvs++;
	ASSERT_EQ(recvs, 128);
	for (uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	     sends < 128 && now_us() < end;) {
		ssize_t ret = fi_send(cli.ep, tx.p, 64, tx.desc, 0,
				      (void *)(sends + 1));

		if (!ret) {
			sends++;
			continue;
		}
		ASSERT_EQ(ret, -FI_EAGAIN);
		if (poll_comp(cli.cq, &c)) {
			ASSERT_EQ(c.err, 0);
			ASSERT_EQ((uintptr_t)c.context, ++got);
		}
	}
	ASSERT_EQ(sends, 128);
	sleep_ms(50); /* nobody reads */
	take_in_order(cli.cq, got + 1, 128, FI_SEND | FI_MSG);
	take_in_order(srv.cq, 1, 128, FI_RECV | FI_MSG);
	expect_no_comp(cli.cq, 0);
	expect_no_comp(srv.cq, 0);
	return pair_close();
}

enum { EPS = 8, DEPTH = 64 };

/* Eight endpoints fill one completion queue; every one comes exactly once. */
static int shared_cq(void)
{
	struct setup how = { .tx_size = DEPTH, .rx_size = DEPTH };
	struct end srvs[EPS];
	struct end clis[EPS];
	uint16_t seen[EPS] = { 0 };
	size_t posted = 0;
	struct comp c;

	pair_open(&how, 65536);
	for (int i = 0; i < EPS; i++) {
		open_shared(&clis[i], &cli, &srv);
		open_shared(&srvs[i], &srv, NULL);
		connect_start(&clis[i], NULL, 0);
		accept_start(&srv, &srvs[i], NULL, 0, NULL);
		wait_connected(&srvs[i], &clis[i], NULL);
	}
	for (int i = 0; i < EPS; i++)
		for (uintptr_t k = 0; k < DEPTH; k++) {
			/* Number and endpoint in one context. */
			ssize_t ret = fi_write(clis[i].ep, tx.p, 64, tx.desc, 0,
					       rx.addr, rx.key,
					       (void *)(k * EPS + (uintptr_t)i));

			ASSERT_OK(ret);
			posted++;
		}
	sleep_ms(50);
	for (size_t n = 0; n < posted; n++) {
		uintptr_t i, k;

		expect_comp(cli.cq, &c);
		ASSERT_EQ(c.err, 0);
		i = (uintptr_t)c.context % EPS;
		k = (uintptr_t)c.context / EPS;
		ASSERT_EQ(k, seen[i]);
		seen[i]++;
	}
	expect_no_comp(cli.cq, 0);
	for (int i = 0; i < EPS; i++) {
		close_end(&clis[i]);
		close_end(&srvs[i]);
	}
	return pair_close();
}

/* Nobody reads either queue while ten times its depth goes through: the
 * poster is held back, and nothing is lost or repeated. */
static int never_overruns(void)
{
	struct setup how = { .tx_size = 32, .rx_size = 32, .cq_size = 32 };
	uintptr_t n = 0;

	pair_open(&how, 65536);
	for (int i = 0; i < MANY; i++) {
		ssize_t ret = fi_write(cli.ep, tx.p, 8, tx.desc, 0, rx.addr,
				       rx.key, (void *)(n + 1));

		if (ret) {
			ASSERT_EQ(ret, -FI_EAGAIN);
			if (i > 2000)
				break;
		} else {
			n++;
		}
	}
	sleep_ms(50);
	take_in_order(cli.cq, 1, n, FI_RMA | FI_WRITE);
	expect_no_comp(cli.cq, 0);
	return pair_close();
}

/* fi_cq_read with room for none drives progress: a queue that is full of what
 * nobody sees gets room again. */
static int count_zero_drives(void)
{
	struct setup how = { .tx_size = 16, .rx_size = 512 };
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	uint32_t n = 0;

	pair_open(&how, 65536);
	for (int i = 0; i < 200; i++)
		post_recv(&srv, &rx, 0, 64, NULL);
	while (n < 200 && now_us() < end) {
		ssize_t ret = fi_inject(cli.ep, &n, 4, 0);

		if (!ret) {
			n++;
			continue;
		}
		ASSERT_EQ(ret, -FI_EAGAIN);
		fi_cq_read(cli.cq, NULL, 0);
	}
	ASSERT_EQ(n, 200);
	for (int i = 0; i < 200; i++)
		expect_ok(srv.cq, NULL, FI_RECV | FI_MSG, NULL);
	expect_no_comp(cli.cq, 0);
	return pair_close();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(tx_full), CASE(room_is_given_back), CASE(rx_full),
		CASE(inject_only), CASE(small_cq), CASE(shared_cq),
		CASE(never_overruns), CASE(count_zero_drives),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
