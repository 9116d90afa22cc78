/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Receiver credits, on every device: a send is held back with -FI_EAGAIN until
 * the peer has a receive for it, whoever reads which queue and whoever sleeps.
 */
#include <poll.h>
#include <pthread.h>

#include "pair.h"

enum { LEN = 64 };

static int close_all(void)
{
	expect_no_event(&srv, 0);
	expect_no_event(&cli, 0);
	return pair_close();
}

static ssize_t try_send(struct end *e, struct buf *b)
{
	return fi_send(e->ep, b->p, LEN, b->desc, 0, b);
}

/* Nothing is taken from any queue meanwhile. */
static void send_within(struct end *e, struct buf *b, int ms)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(ms) * 1000;
	ssize_t ret;

	while ((ret = try_send(e, b)) == -FI_EAGAIN && now_us() < end)
		sleep_ms(1);
	ASSERT_OK(ret);
}

/* Of a send or of a receive. */
static void expect_success(struct fid_cq *cq, const void *context)
{
	struct comp c;

	expect_comp(cq, &c);
	ASSERT_EQ(c.err, 0);
	ASSERT(c.context == context);
}

/* As many as there are receives, and not one more, in either direction. */
static int exactly(void)
{
	pair_open(NULL, 4096);
	for (int round = 0; round < 3; round++) {
		ASSERT_EQ(try_send(&cli, &tx), -FI_EAGAIN);
		ASSERT_EQ(try_send(&srv, &rx), -FI_EAGAIN);
		for (int i = 0; i < 10 + round; i++) {
			post_recv(&srv, &rx, 0, LEN, &rx);
			post_recv(&cli, &tx, 0, LEN, &tx);
		}
		for (int i = 0; i < 10 + round; i++) {
			send_within(&cli, &tx, 1000);
			send_within(&srv, &rx, 1000);
		}
		ASSERT_EQ(try_send(&cli, &tx), -FI_EAGAIN);
		ASSERT_EQ(try_send(&srv, &rx), -FI_EAGAIN);
		for (int i = 0; i < 2 * (10 + round); i++) {
			expect_success(cli.cq, &tx);
			expect_success(srv.cq, &rx);
		}
	}
	return close_all();
}

/* RMA needs no receive; but with data for the peer's queue it does. */
static int rma_passes(void)
{
	pair_open(NULL, 4096);
	ASSERT_EQ(try_send(&cli, &tx), -FI_EAGAIN);
	ASSERT_TAKEN(
		fi_write(cli.ep, tx.p, LEN, tx.desc, 0, rx.addr, rx.key, &tx));
	ASSERT_TAKEN(
		fi_read(cli.ep, tx.p, LEN, tx.desc, 0, rx.addr, rx.key, &tx));
	expect_ok(cli.cq, &tx, FI_WRITE | FI_RMA, NULL);
	expect_ok(cli.cq, &tx, FI_READ | FI_RMA, NULL);
	if (has_cq_data(&cli))
		ASSERT_EQ(fi_writedata(cli.ep, tx.p, LEN, tx.desc, 7, 0,
				       rx.addr, rx.key, &tx), -FI_EAGAIN);
	return close_all();
}

/* The receiver never looks at any queue: what it has posted counts. */
static int nobody_reads(void)
{
	enum { N = 100 };

	pair_open(NULL, 4096);
	for (int i = 0; i < N; i++)
		post_recv(&srv, &rx, 0, LEN, &rx);
	for (int i = 0; i < N; i++)
		send_within(&cli, &tx, 1000);
	ASSERT_EQ(try_send(&cli, &tx), -FI_EAGAIN);
	for (int i = 0; i < N; i++)
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	return close_all();
}

/* The receiver reads what it receives, but never the queue of its sends, where
 * the writes of its credits complete; and has completions of its own there. */
static int tx_queue_unread(void)
{
	struct setup how = { .two_cqs = true };
	enum { MINE = 5 };

	pair_open(&how, 4096);
	for (int i = 0; i < MINE; i++) {
		post_recv(&cli, &tx, 0, LEN, &tx);
		send_within(&srv, &rx, 1000);
	}
	for (int i = 0; i < scaled(3000); i++) {
		post_recv(&srv, &rx, 0, LEN, &rx);
		send_within(&cli, &tx, 1000);
		expect_ok(cli.tx_cq, &tx, FI_SEND | FI_MSG, NULL);
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	}
	for (int i = 0; i < MINE; i++)
		expect_ok(srv.tx_cq, &rx, FI_SEND | FI_MSG, NULL);
	expect_no_comp(srv.tx_cq, 20);
	return close_all();
}

struct sleeper {
	struct end *e;
	struct buf *b;
	int wakeups;
};

/* Sends once; told -FI_EAGAIN, it sleeps until its queue says something. */
static void *send_asleep(void *arg)
{
	struct sleeper *s = arg;
	struct fid *fids[1] = { &s->e->tx_cq->fid };
	struct pollfd pfd = { .events = POLLIN };
	ssize_t ret;

	ASSERT_OK(fi_control(&s->e->tx_cq->fid, FI_GETWAIT, &pfd.fd));
	while ((ret = try_send(s->e, s->b)) == -FI_EAGAIN) {
		fi_cq_read(s->e->tx_cq, NULL, 0);
		if (fi_trywait(s->e->fabric, fids, 1))
			continue;
		if (poll(&pfd, 1, slow_ms(3000)) == 0)
			FAIL("nobody says that there are credits");
		s->wakeups++;
	}
	ASSERT_OK(ret);
	return NULL;
}

static void wake_sender(struct end *from, struct buf *a, struct end *to,
			struct buf *b, int nap)
{
	struct sleeper s = { from, a, 0 };
	pthread_t thread;

	ASSERT_OK(pthread_create(&thread, NULL, send_asleep, &s));
	sleep_ms(nap);
	post_recv(to, b, 0, LEN, b);
	ASSERT_OK(pthread_join(thread, NULL));
	/* Asleep, not busy. */
	ASSERT_LE(s.wakeups, 10);
	expect_ok(from->tx_cq, a, FI_SEND | FI_MSG, NULL);
	expect_ok(to->cq, b, FI_RECV | FI_MSG, NULL);
}

/* A sender that sleeps is woken; either side first. */
static int sender_sleeps(void)
{
	struct setup how = { .cq_wait = FI_WAIT_FD };

	pair_open(&how, 4096);
	for (int i = 0; i < 5; i++) {
		wake_sender(&srv, &rx, &cli, &tx, 20 * i);
		wake_sender(&cli, &tx, &srv, &rx, 20 * i);
	}
	return close_all();
}

/* Receives from before the connection are known when it is there. */
static int posted_early(void)
{
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	buf_open(&cli, &tx, 4096, ALL_ACCESS);
	buf_open(&srv, &rx, 4096, ALL_ACCESS);
	make_ep(&cli, cli.info);
	for (int i = 0; i < 3; i++)
		post_recv(&cli, &tx, 0, LEN, &tx);
	connect_start(&cli, NULL, 0);
	accept_start(&srv, &srv, NULL, 0, NULL);
	wait_connected(&srv, &cli, NULL);
	for (int i = 0; i < 3; i++)
		send_within(&srv, &rx, 1000);
	ASSERT_EQ(try_send(&srv, &rx), -FI_EAGAIN);
	for (int i = 0; i < 3; i++) {
		expect_ok(cli.cq, &tx, FI_RECV | FI_MSG, NULL);
		expect_ok(srv.cq, &rx, FI_SEND | FI_MSG, NULL);
	}
	return close_all();
}

/* A stream through a short queue: nothing is lost, doubled or out of order. */
static int stream(void)
{
	struct setup how = { .tx_size = 32, .rx_size = 7 };
	uint32_t n = (uint32_t)scaled(20000);
	uint32_t sent = 0, got = 0, posted = 0;
	uint64_t end = now_us() + (uint64_t)slow_ms(30000) * 1000;
	struct comp c;

	pair_open(&how, 4096);
	while (got < n) {
		if (now_us() > end)
			FAIL("%u of %u messages came, %u sent", got, n, sent);
		for (; posted < n && posted - got < 7; posted++)
			post_recv(&srv, &rx, 8 * (posted % 7), 8, &rx);
		for (; sent < n && !fi_inject(cli.ep, &sent, 4, 0); sent++)
			;
		ASSERT_LE(sent, posted);
		fi_cq_read(cli.cq, NULL, 0);
		while (poll_comp(srv.cq, &c)) {
			ASSERT_EQ(c.err, 0);
			ASSERT_EQ(*(uint32_t *)(rx.p + 8 * (got % 7)), got);
			got++;
		}
	}
	return close_all();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(exactly), CASE(rma_passes), CASE(nobody_reads),
		CASE(tx_queue_unread), CASE(sender_sleeps), CASE(posted_early),
		CASE(stream),
		{ NULL, NULL, 0 },
	};

	if (!is_vrc()) {
		puts("skip: only vrc has credits");
		return 77;
	}
	setenv("FI_VRC_CREDITS", "always", 1);
	return run_cases(argc, argv, cases);
}
