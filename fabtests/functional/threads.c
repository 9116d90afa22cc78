/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FI_THREAD_SAFE: threads on endpoints of their own and on one endpoint, one
 * completion queue read by all, data verified; opening and closing beside
 * traffic.
 */
#include <pthread.h>

#include "pair.h"

enum { THREADS = 4, LEN = 512, WINDOW = 8 };

static struct end s[THREADS];
static struct end c[THREADS];

/* One poster's share: where it writes, and how far it is. */
struct lane {
	pthread_t thread;
	struct fid_ep *ep;
	struct buf *tx;
	struct buf *rx;
	size_t off;
	uint32_t seed;
	int rounds;
	_Atomic int in_flight;
	_Atomic int done;
};

static struct lane lanes[THREADS];

static const struct setup safe = { .threading = FI_THREAD_SAFE };

/* Any thread may find any thread's completion. */
static bool reap(struct fid_cq *cq)
{
	struct fi_cq_data_entry e[4];
	struct fi_cq_err_entry err;
	ssize_t n = fi_cq_read(cq, e, 4);

	if (n == -FI_EAGAIN)
		return false;
	if (n == -FI_EAVAIL) {
		memset(&err, 0, sizeof(err));
		n = fi_cq_readerr(cq, &err, 0);
		/* Another thread may have been quicker. */
		if (n == -FI_EAGAIN)
			return false;
		FAIL("error completion %d (%s)", err.err, fi_strerror(err.err));
	}
	ASSERT_CMP(n, >, 0);
	for (ssize_t i = 0; i < n; i++) {
		struct lane *lane = e[i].op_context;

		ASSERT(lane >= lanes && lane < lanes + THREADS);
		lane->in_flight--;
		lane->done++;
	}
	return true;
}

/* Even rounds write a slot, odd ones read it back into the next slot. */
static ssize_t try_post(struct lane *l, int i)
{
	size_t local = l->off + (size_t)(i % WINDOW) * LEN;
	uint64_t remote = l->rx->addr + l->off +
			  (size_t)(i % WINDOW & ~1) * LEN;

	if (i & 1)
		return fi_read(l->ep, l->tx->p + local, LEN, l->tx->desc, 0,
			       remote, l->rx->key, l);
	return fi_write(l->ep, l->tx->p + local, LEN, l->tx->desc, 0, remote,
			l->rx->key, l);
}

static void wait_below(struct lane *l, int in_flight)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(10000) * 1000;
	unsigned int turn = 0;

	while (l->in_flight > in_flight && now_us() < end)
		if (!reap(cli.cq)) {
			progress();
			relax(&turn);
		}
	ASSERT_LE(l->in_flight, in_flight);
}

static void post_one(struct lane *l, int i)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(10000) * 1000;
	unsigned int turn = 0;
	ssize_t ret;

	do {
		l->in_flight++;
		ret = try_post(l, i);
		if (!ret)
			return;
		l->in_flight--;
		ASSERT_EQ(ret, -FI_EAGAIN);
		if (!reap(cli.cq))
			relax(&turn);
		progress();
	} while (now_us() < end);
	FAIL("no room for 10 s");
}

static void *one_lane(void *arg)
{
	struct lane *l = arg;

	for (int i = 0; i < l->rounds; i++) {
		uint8_t *slot = l->tx->p + l->off + (size_t)(i % WINDOW) * LEN;

		if (i & 1)
			memset(slot, 0, LEN);
		else
			fill(slot, LEN, l->seed + (uint32_t)i);
		post_one(l, i);
		if (i % 4 == 3) {
			wait_below(l, 0);
			/* A read is behind the write it follows. */
			ASSERT_FILLED(slot, LEN, l->seed + (uint32_t)i - 1);
		}
	}
	wait_below(l, 0);
	return NULL;
}

static void start_lane(int i, struct fid_ep *ep, int rounds)
{
	lanes[i] = (struct lane){
		.ep = ep, .tx = &tx, .rx = &rx,
		.off = (size_t)i * WINDOW * LEN, .seed = (uint32_t)i * 10000,
		.rounds = rounds,
	};
	ASSERT_OK(pthread_create(&lanes[i].thread, NULL, one_lane, &lanes[i]));
}

static void join_lanes(void)
{
	for (int i = 0; i < THREADS; i++)
		ASSERT_OK(pthread_join(lanes[i].thread, NULL));
	for (int i = 0; i < THREADS; i++) {
		uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;

		while (lanes[i].in_flight && now_us() < end) {
			reap(cli.cq);
			progress();
		}
		ASSERT_EQ(lanes[i].in_flight, 0);
		ASSERT_EQ(lanes[i].done, lanes[i].rounds);
	}
	expect_no_comp(cli.cq, 0);
}

static void open_all(void)
{
	open_passive(&srv, &safe);
	ASSERT_EQ(srv.info->domain_attr->threading, FI_THREAD_SAFE);
	listen_start(&srv);
	open_active(&cli, &safe, &srv);
	buf_open(&cli, &tx, THREADS * WINDOW * LEN, ALL_ACCESS);
	buf_open(&srv, &rx, THREADS * WINDOW * LEN, ALL_ACCESS);
}

static void connect_lanes(void)
{
	for (int i = 0; i < THREADS; i++) {
		open_shared(&c[i], &cli, &srv);
		open_shared(&s[i], &srv, NULL);
		connect_start(&c[i], NULL, 0);
		accept_start(&srv, &s[i], NULL, 0, NULL);
		wait_connected(&s[i], &c[i], NULL);
	}
}

static void close_lanes(void)
{
	for (int i = 0; i < THREADS; i++) {
		close_end(&c[i]);
		close_end(&s[i]);
	}
}

/* What was written last to each slot is there. */
static void check_memory(void)
{
	for (int i = 0; i < THREADS; i++)
		for (int k = 0; k < WINDOW; k += 2) {
			size_t off = lanes[i].off + (size_t)k * LEN;
			int last = lanes[i].rounds - WINDOW + k;

			EXPECT_FILLED(rx.p + off, LEN,
				      lanes[i].seed + (uint32_t)last);
		}
}

static int own_endpoints(void)
{
	open_all();
	connect_lanes();
	for (int i = 0; i < THREADS; i++)
		start_lane(i, c[i].ep, scaled(2000) / WINDOW * WINDOW + WINDOW);
	join_lanes();
	check_memory();
	close_lanes();
	return pair_close();
}

static int one_endpoint(void)
{
	open_all();
	connect_pair(&srv, &cli);
	for (int i = 0; i < THREADS; i++)
		start_lane(i, cli.ep, scaled(2000) / WINDOW * WINDOW + WINDOW);
	join_lanes();
	check_memory();
	return pair_close();
}

/* Default flags are set while others post: to what they were, so that it is the
 * same for these. */
static int flags_beside_posting(void)
{
	uint64_t both[] = { FI_TRANSMIT | FI_COMPLETION,
			    FI_RECV | FI_COMPLETION };
	bool ends = false;
	int ret;

	open_all();
	connect_pair(&srv, &cli);
	ret = fi_control(&cli.ep->fid, FI_SETOPSFLAG, &both[0]);
	if (ret) {
		pair_close();
		return skip("fi_set_ops_flag: %s", fi_strerror(-ret));
	}
	for (int i = 0; i < THREADS; i++)
		start_lane(i, cli.ep, scaled(8000) / WINDOW * WINDOW + WINDOW);
	while (!ends) {
		for (int i = 0; i < 2; i++)
			ASSERT_OK(fi_control(&cli.ep->fid, FI_SETOPSFLAG,
					     &both[i]));
		ends = true;
		for (int i = 0; i < THREADS; i++)
			ends &= lanes[i].done == lanes[i].rounds;
		sched_yield();
	}
	join_lanes();
	check_memory();
	return pair_close();
}

/* Messages: two threads send, two receive on the other side. Every number
 * arrives once. */
enum { MESSAGES = 4000 };
static _Atomic int to_send;
static _Atomic int received;
static _Atomic uint8_t seen[MESSAGES];
static struct { pthread_t thread; bool sends; } workers[THREADS];

static void send_numbers(void)
{
	int total = scaled(MESSAGES);
	struct fi_cq_data_entry e[8];
	uint64_t end = now_us() + (uint64_t)slow_ms(15000) * 1000;

	while (now_us() < end) {
		int n = to_send++;
		uint32_t word = (uint32_t)n;

		if (n >= total)
			return;
		while (fi_inject(cli.ep, &word, sizeof(word), 0) &&
		       now_us() < end) {
			fi_cq_read(cli.cq, e, 8);
			sched_yield();
		}
	}
}

static void receive_numbers(void)
{
	int total = scaled(MESSAGES);
	uint64_t end = now_us() + (uint64_t)slow_ms(15000) * 1000;
	unsigned int turn = 0;
	struct comp comp;

	while (received < total && now_us() < end) {
		uint32_t n;

		if (!poll_comp(srv.cq, &comp)) {
			relax(&turn);
			continue;
		}
		turn = 0;
		ASSERT_EQ(comp.err, 0);
		memcpy(&n, comp.context, sizeof(n));
		ASSERT_CMP(n, <, total);
		ASSERT_EQ(seen[n]++, 0);
		ASSERT_OK(fi_recv(srv.ep, comp.context, sizeof(n), rx.desc, 0,
				  comp.context));
		received++;
	}
}

static void *worker(void *arg)
{
	if (*(bool *)arg)
		send_numbers();
	else
		receive_numbers();
	return NULL;
}

static int messages(void)
{
	open_all();
	connect_pair(&srv, &cli);
	for (size_t i = 0; i < 64; i++)
		ASSERT_OK(fi_recv(srv.ep, rx.p + i * 64, 4, rx.desc, 0,
				  rx.p + i * 64));
	for (int i = 0; i < THREADS; i++) {
		workers[i].sends = i & 1;
		ASSERT_OK(pthread_create(&workers[i].thread, NULL, worker,
					 &workers[i].sends));
	}
	for (int i = 0; i < THREADS; i++)
		ASSERT_OK(pthread_join(workers[i].thread, NULL));
	ASSERT_EQ(received, scaled(MESSAGES));
	return pair_close();
}

/* fi_endpoint, fi_enable and fi_close in four threads, for themselves. */
static void *open_and_close(void *arg)
{
	int rounds = scaled(200);

	for (int i = 0; i < rounds; i++) {
		struct fid_ep *ep;
		struct fid_mr *mr;
		uint8_t page[256];

		ASSERT_OK(fi_endpoint(cli.domain, cli.info, &ep, NULL));
		ASSERT_OK(fi_ep_bind(ep, &cli.evq->eq->fid, 0));
		ASSERT_OK(fi_ep_bind(ep, &cli.cq->fid, FI_TRANSMIT | FI_RECV));
		ASSERT_OK(fi_mr_reg(cli.domain, page, sizeof(page), FI_RECV, 0,
				    (uintptr_t)arg * 1000 + (uintptr_t)i, 0,
				    &mr, NULL));
		ASSERT_OK(fi_enable(ep));
		ASSERT_OK(fi_close(&ep->fid));
		ASSERT_OK(fi_close(&mr->fid));
	}
	return NULL;
}

static int endpoints_come_and_go(void)
{
	pthread_t threads[THREADS];

	open_all();
	for (uintptr_t i = 0; i < THREADS; i++)
		ASSERT_OK(pthread_create(&threads[i], NULL, open_and_close,
					 (void *)(i + 1)));
	for (int i = 0; i < THREADS; i++)
		ASSERT_OK(pthread_join(threads[i], NULL));
	return pair_close();
}

/* One thread waits in fi_eq_sread while others close what it may report. */
static _Atomic bool stop;

static void *read_events(void *arg)
{
	while (!stop) {
		struct fi_eq_cm_entry entry;
		struct fi_eq_err_entry err;
		uint32_t type;
		ssize_t n = fi_eq_sread(cli.evq->eq, &type, &entry,
					sizeof(entry), 20, 0);

		if (n == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			fi_eq_readerr(cli.evq->eq, &err, 0);
		}
	}
	return NULL;
}

static int close_beside_reader(void)
{
	pthread_t thread;
	struct event ev;

	open_all();
	stop = false;
	ASSERT_OK(pthread_create(&thread, NULL, read_events, NULL));
	for (int i = 0; i < scaled(100); i++) {
		struct fid_ep *ep;

		ASSERT_OK(fi_endpoint(cli.domain, cli.info, &ep, NULL));
		ASSERT_OK(fi_ep_bind(ep, &cli.evq->eq->fid, 0));
		ASSERT_OK(fi_ep_bind(ep, &cli.cq->fid, FI_TRANSMIT | FI_RECV));
		ASSERT_OK(fi_connect(ep, cli.info->dest_addr, NULL, 0));
		if (i & 1)
			sleep_ms(1);
		ASSERT_OK(fi_close(&ep->fid));
	}
	stop = true;
	ASSERT_OK(pthread_join(thread, NULL));
	while (next_event(&srv, &ev, 50))
		if (ev.type == FI_CONNREQ) {
			fi_reject(srv.pep, ev.info->handle, NULL, 0);
			fi_freeinfo(ev.info);
		}
	return pair_close();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(own_endpoints), CASE(one_endpoint),
		CASE(flags_beside_posting), CASE(messages),
		CASE(endpoints_come_and_go), CASE(close_beside_reader),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
