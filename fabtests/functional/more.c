/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FI_MORE: what is posted with it may wait for what follows, and no longer than
 * until the application looks for completions. Order, contexts and errors are as
 * without it.
 */
#include <pthread.h>

#include "pair.h"

enum { LEN = 64, SLOTS = 64 };

static void open_all(const struct setup *how)
{
	pair_open(how, SLOTS * LEN);
	for (size_t i = 0; i < SLOTS; i++)
		fill(tx.p + i * LEN, LEN, (uint32_t)i);
}

/* Contexts of both sides are where the message is. */
static void *slot(struct buf *b, size_t i)
{
	return b->p + (i % SLOTS) * LEN;
}

static ssize_t try_send(size_t i, uint64_t flags)
{
	struct iovec iov = { slot(&tx, i), LEN };
	struct fi_msg msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.context = iov.iov_base,
	};

	return fi_sendmsg(cli.ep, &msg, flags);
}

static void send_one(size_t i, uint64_t flags)
{
	ASSERT_TAKEN(try_send(i, flags | FI_COMPLETION));
}

static void recv_one(size_t i, uint64_t flags)
{
	struct iovec iov = { slot(&rx, i), LEN };
	struct fi_msg msg = {
		.msg_iov = &iov, .desc = &rx.desc, .iov_count = 1,
		.context = iov.iov_base,
	};

	ASSERT_OK(fi_recvmsg(srv.ep, &msg, flags | FI_COMPLETION));
}

static void expect_received(size_t i)
{
	struct comp c;

	expect_ok(srv.cq, slot(&rx, i), FI_RECV | FI_MSG, &c);
	ASSERT_EQ(c.len, LEN);
	ASSERT_FILLED(slot(&rx, i), LEN, (uint32_t)(i % SLOTS));
}

static void expect_sent(size_t i)
{
	expect_ok(cli.cq, slot(&tx, i), FI_SEND | FI_MSG, NULL);
}

/* Until the peer may be sent that many, where it says how many (credits are told
 * a moment after they are posted). */
static void settle(void)
{
	sleep_ms(slow_ms(20));
}

/* Held until one comes without the flag, then all are there. */
static int held(void)
{
	struct comp c;

	open_all(NULL);
	for (size_t i = 0; i < 4; i++)
		post_recv(&srv, &rx, i * LEN, LEN, slot(&rx, i));
	settle();
	for (size_t i = 0; i < 3; i++)
		ASSERT_TAKEN(try_send(i, FI_MORE | FI_COMPLETION));
	/* A hint, to which others need not listen. */
	if (is_vrc() && next_comp(srv.cq, &c, 50))
		FAIL("what is followed by more was not held");
	ASSERT_TAKEN(fi_send(cli.ep, slot(&tx, 3), LEN, tx.desc, 0,
			     slot(&tx, 3)));
	for (size_t i = 0; i < 4; i++)
		expect_received(i);
	for (size_t i = 0; i < 4; i++)
		expect_sent(i);
	return pair_close();
}

static ssize_t read_one(struct fi_cq_data_entry *entry)
{
	return fi_cq_read(cli.cq, entry, 1);
}

static ssize_t sread_one(struct fi_cq_data_entry *entry)
{
	return fi_cq_sread(cli.cq, entry, 1, NULL, slow_ms(5000));
}

/* Nothing follows; whoever looks for the completions gets them. */
static int looked_for(const struct setup *how,
		      ssize_t (*get)(struct fi_cq_data_entry *entry))
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	struct fi_cq_data_entry entry;

	open_all(how);
	for (size_t i = 0; i < 3; i++)
		post_recv(&srv, &rx, i * LEN, LEN, slot(&rx, i));
	settle();
	for (size_t i = 0; i < 3; i++)
		ASSERT_TAKEN(try_send(i, FI_MORE | FI_COMPLETION));
	for (size_t i = 0; i < 3; i++) {
		ssize_t ret;

		do {
			ret = get(&entry);
			progress();
		} while (ret == -FI_EAGAIN && now_us() < end);
		ASSERT_EQ(ret, 1);
		ASSERT(entry.op_context == slot(&tx, i));
	}
	for (size_t i = 0; i < 3; i++)
		expect_received(i);
	return pair_close();
}

static int flushed_by_read(void)
{
	return looked_for(NULL, read_one);
}

static int flushed_by_sread(void)
{
	const struct setup how = { .cq_wait = FI_WAIT_FD };

	return looked_for(&how, sread_one);
}

/* fi_trywait says whether it is safe to sleep; then the wait must end. */
static int flushed_by_trywait(void)
{
	const struct setup how = { .cq_wait = FI_WAIT_FD };
	struct fid *fid;

	open_all(&how);
	post_recv(&srv, &rx, 0, LEN, slot(&rx, 0));
	settle();
	send_one(0, FI_MORE);
	fid = &cli.cq->fid;
	(void)fi_trywait(cli.fabric, &fid, 1);
	expect_received(0);
	expect_sent(0);
	return pair_close();
}

static struct fid_cntr *cntr;

static void bind_cntr(struct end *e)
{
	if (e == &cli)
		ASSERT_OK(fi_ep_bind(e->ep, &cntr->fid, FI_SEND));
}

static int flushed_by_counter(void)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	const struct setup how = { .bind = bind_cntr };

	open_passive(&srv, &how);
	listen_start(&srv);
	open_active(&cli, &how, &srv);
	ASSERT_OK(fi_cntr_open(cli.domain, &attr, &cntr, NULL));
	connect_pair(&srv, &cli);
	buf_open(&cli, &tx, SLOTS * LEN, ALL_ACCESS);
	buf_open(&srv, &rx, SLOTS * LEN, ALL_ACCESS);
	for (size_t i = 0; i < 3; i++) {
		fill(slot(&tx, i), LEN, (uint32_t)i);
		post_recv(&srv, &rx, i * LEN, LEN, slot(&rx, i));
	}
	settle();
	for (size_t i = 0; i < 3; i++)
		ASSERT_TAKEN(try_send(i, FI_MORE | FI_COMPLETION));
	ASSERT_OK(fi_cntr_wait(cntr, 3, slow_ms(5000)));
	for (size_t i = 0; i < 3; i++)
		expect_received(i);
	close_ep(&cli);
	ASSERT_OK(fi_close(&cntr->fid));
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Every one says that more follow, until the queue is full: also then they come,
 * all and in order. */
static int never_ends(void)
{
	const struct setup how = { .tx_size = 24, .rx_size = 64 };
	size_t n = (size_t)scaled(5000);
	size_t sent = 0, got = 0, done = 0, posted = 0;
	uint64_t end = now_us() + (uint64_t)slow_ms(20000) * 1000;
	struct comp c;
	ssize_t ret;

	open_all(&how);
	while (got < n && now_us() < end) {
		for (; posted < n && posted - got < SLOTS; posted++)
			recv_one(posted, posted % 5 ? FI_MORE : 0);
		/* Until it is refused. */
		while (sent < n && sent - got < SLOTS / 2) {
			ret = try_send(sent, FI_MORE | FI_COMPLETION);
			if (ret) {
				ASSERT_EQ(ret, -FI_EAGAIN);
				break;
			}
			sent++;
		}
		while (poll_comp(cli.cq, &c)) {
			ASSERT_EQ(c.err, 0);
			ASSERT(c.context == slot(&tx, done));
			done++;
		}
		while (poll_comp(srv.cq, &c)) {
			ASSERT_EQ(c.err, 0);
			ASSERT(c.context == slot(&rx, got));
			ASSERT_FILLED(slot(&rx, got), LEN,
				      (uint32_t)(got % SLOTS));
			memset(slot(&rx, got), 0, LEN);
			got++;
		}
	}
	ASSERT_EQ(got, n);
	for (; done < n; done++)
		expect_sent(done);
	expect_no_comp(cli.cq, 10);
	expect_no_comp(srv.cq, 0);
	return pair_close();
}

/* Receives as well: those held are in front of the ones that follow. */
static int receives(void)
{
	open_all(NULL);
	for (size_t i = 0; i < 40; i++)
		recv_one(i, i % 20 == 19 ? 0 : FI_MORE);
	settle();
	for (size_t i = 0; i < 40; i++)
		send_one(i, 0);
	for (size_t i = 0; i < 40; i++)
		expect_received(i);
	/* Nothing follows, but somebody looks. */
	for (size_t i = 40; i < 43; i++)
		recv_one(i, FI_MORE);
	expect_no_comp(srv.cq, 20);
	for (size_t i = 40; i < 43; i++)
		send_one(i, 0);
	for (size_t i = 40; i < 43; i++)
		expect_received(i);
	for (size_t i = 0; i < 43; i++)
		expect_sent(i);
	return pair_close();
}

/* The buffer is ours again at once. */
static int injected(void)
{
	uint8_t saved[LEN];

	open_all(NULL);
	memcpy(saved, tx.p, LEN);
	for (size_t i = 0; i < 4; i++)
		post_recv(&srv, &rx, i * LEN, LEN, slot(&rx, i));
	settle();
	send_one(0, FI_MORE);
	for (size_t i = 1; i < 4; i++) {
		send_one(i, FI_INJECT | (i < 3 ? FI_MORE : 0));
		memset(slot(&tx, i), 0xee, LEN);
	}
	for (size_t i = 0; i < 4; i++)
		expect_received(i);
	for (size_t i = 0; i < 4; i++)
		expect_sent(i);
	return pair_close();
}

static ssize_t try_write(size_t i, uint64_t key, uint64_t flags)
{
	struct iovec iov = { slot(&tx, i), LEN };
	struct fi_rma_iov target = { rx.addr + i * LEN, LEN, key };
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.rma_iov = &target, .rma_iov_count = 1,
		.context = iov.iov_base,
	};

	return fi_writemsg(cli.ep, &msg, flags);
}

/* Writes, a read of them behind a fence, a send: one chain. */
static int mixed(void)
{
	struct iovec iov;
	struct fi_rma_iov target;
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.rma_iov = &target, .rma_iov_count = 1,
	};

	open_all(NULL);
	post_recv(&srv, &rx, 40 * LEN, LEN, slot(&rx, 40));
	settle();
	for (size_t i = 0; i < 4; i++)
		ASSERT_TAKEN(try_write(i, rx.key, FI_MORE | FI_COMPLETION));
	iov = (struct iovec){ slot(&tx, 20), 4 * LEN };
	target = (struct fi_rma_iov){ rx.addr, 4 * LEN, rx.key };
	msg.context = &iov;
	ASSERT_TAKEN(fi_readmsg(cli.ep, &msg,
				FI_MORE | FI_FENCE | FI_COMPLETION));
	send_one(40, 0);
	for (size_t i = 0; i < 4; i++)
		expect_ok(cli.cq, slot(&tx, i), FI_RMA | FI_WRITE, NULL);
	if (!is_iwarp(&cli)) {
		expect_ok(cli.cq, &iov, FI_RMA | FI_READ, NULL);
		expect_sent(40);
	} else {
		struct comp c;

		/* What follows a read may complete before it. */
		expect_comp(cli.cq, &c);
		ASSERT_EQ(c.err, 0);
		expect_comp(cli.cq, &c);
		ASSERT_EQ(c.err, 0);
	}
	for (size_t i = 0; i < 4; i++)
		ASSERT_FILLED(slot(&tx, 20 + i), LEN, (uint32_t)i);
	expect_received(40);
	return pair_close();
}

/* One of the chain is refused by the peer: that one is told, those before it are
 * done, those after it flushed; none is lost. */
static int one_fails(void)
{
	struct comp c;

	if (!is_vrc())
		return skip("%s does not check remote access", provider());
	open_all(NULL);
	if (is_iwarp(&cli)) {
		pair_close();
		return skip("iWARP does not say which write failed");
	}
	for (size_t i = 0; i < 6; i++)
		ASSERT_TAKEN(try_write(i, i == 2 ? 0xdead00 : rx.key,
				       FI_COMPLETION | (i < 5 ? FI_MORE : 0)));
	for (size_t i = 0; i < 6; i++) {
		expect_comp(cli.cq, &c);
		ASSERT(c.context == slot(&tx, i));
		ASSERT_EQ(c.err, i < 2 ? 0 : i == 2 ? FI_EACCES : FI_ECANCELED);
	}
	expect_no_comp(cli.cq, 20);
	return pair_close();
}

/* The connection, or the endpoint, ends while some are held. */
static int ends_while_held(void)
{
	bool seen[8] = { false };
	struct comp c;

	open_all(NULL);
	for (size_t i = 0; i < 4; i++)
		recv_one(i, FI_MORE);
	for (size_t i = 0; i < 8; i++)
		if (try_send(i, FI_MORE | FI_COMPLETION))
			seen[i] = true; /* no receive: not taken */
	close_ep(&srv);
	for (size_t i = 0; i < 4; i++) {
		expect_comp(srv.cq, &c);
		ASSERT(c.context == slot(&rx, i));
		ASSERT_EQ(c.err, FI_ECANCELED);
	}
	close_ep(&cli);
	for (size_t i = 0; i < 8; i++) {
		if (seen[i])
			continue;
		expect_comp(cli.cq, &c);
		ASSERT(c.context == slot(&tx, i));
	}
	expect_no_comp(cli.cq, 20);
	expect_no_comp(srv.cq, 0);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

struct reader {
	size_t want;
	size_t got;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	uint64_t end = now_us() + (uint64_t)slow_ms(20000) * 1000;
	unsigned int turn = 0;
	struct comp c;

	while (r->got < r->want && now_us() < end) {
		if (!poll_comp(cli.cq, &c)) {
			relax(&turn);
			continue;
		}
		ASSERT_EQ(c.err, 0);
		ASSERT(c.context == slot(&tx, r->got));
		r->got++;
	}
	return NULL;
}

/* One thread posts and never comes to an end, another reads. */
static int two_threads(enum fi_threading level)
{
	const struct setup how = { .threading = level };
	size_t n = (size_t)scaled(5000);
	uint64_t end = now_us() + (uint64_t)slow_ms(20000) * 1000;
	struct reader r = { .want = n };
	size_t sent = 0, got = 0, posted = 0;
	unsigned int turn = 0;
	pthread_t thread;
	struct comp c;

	open_all(&how);
	ASSERT_OK(pthread_create(&thread, NULL, read_all, &r));
	while (got < n && now_us() < end) {
		for (; posted < n && posted - got < SLOTS; posted++)
			recv_one(posted, FI_MORE);
		while (sent < n && sent - got < SLOTS / 2 &&
		       !try_send(sent, FI_MORE | FI_COMPLETION))
			sent++;
		if (!poll_comp(srv.cq, &c)) {
			relax(&turn);
			continue;
		}
		ASSERT_EQ(c.err, 0);
		ASSERT(c.context == slot(&rx, got));
		ASSERT_FILLED(slot(&rx, got), LEN, (uint32_t)(got % SLOTS));
		got++;
	}
	ASSERT_EQ(got, n);
	ASSERT_OK(pthread_join(thread, NULL));
	ASSERT_EQ(r.got, n);
	return pair_close();
}

static int threads_safe(void)
{
	return two_threads(FI_THREAD_SAFE);
}

/* The reader's object is the queue, not the endpoint. */
static int threads_endpoint(void)
{
	return two_threads(FI_THREAD_ENDPOINT);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(held), CASE(flushed_by_read), CASE(flushed_by_sread),
		CASE(flushed_by_trywait), CASE(flushed_by_counter),
		CASE(never_ends), CASE(receives), CASE(injected), CASE(mixed),
		CASE(one_fails), CASE(ends_while_held), CASE(threads_safe),
		CASE(threads_endpoint), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
