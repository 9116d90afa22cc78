/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Several who wait for what completes in one queue: by its descriptor, by those of
 * counters, in fi_cq_sread, in fi_cntr_wait. Whoever wakes first, or looks, takes nothing from the others.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "pair.h"

enum { LEN = 64, ROUNDS = 300, LIMIT_MS = 5000 };

static struct fid_cntr *sent, *received; /* of srv */
static atomic_bool stop;

static void bind_counters(struct end *e)
{
	if (e != &srv)
		return;
	sent = make_cntr(e, FI_SEND, FI_WAIT_FD);
	received = make_cntr(e, FI_RECV, FI_WAIT_FD);
}

static void open_all(enum fi_threading threading)
{
	const struct setup how = {
		.cq_wait = FI_WAIT_FD,
		.threading = threading,
		.bind = bind_counters,
	};

	pair_open(&how, 4096);
	atomic_store(&stop, false);
}

static int close_all(void)
{
	close_ep(&cli);
	close_ep(&srv);
	ASSERT_OK(fi_close(&sent->fid));
	ASSERT_OK(fi_close(&received->fid));
	return pair_close();
}

static struct pollfd descriptor(struct fid_cntr *cntr)
{
	struct pollfd pfd = { .events = POLLIN };

	ASSERT_OK(fi_control(&cntr->fid, FI_GETWAIT, &pfd.fd));
	return pfd;
}

/* Until it says that there is no news. */
static void trywait(struct fid_cntr *cntr)
{
	struct fid *fids[1] = { &cntr->fid };
	int ret;

	while ((ret = fi_trywait(srv.fabric, fids, 1)) == -FI_EAGAIN)
		;
	ASSERT_OK(ret);
}

static void message(void)
{
	ASSERT_TAKEN(fi_send(cli.ep, tx.p, LEN, tx.desc, 0, &tx));
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
}

/* A message comes between the two calls that a program makes before it polls both:
 * the second looks at the queue that the first was about to wait for. */
static int two_descriptors(void)
{
	struct pollfd pfds[2];

	open_all(FI_THREAD_SAFE);
	pfds[0] = descriptor(received);
	pfds[1] = descriptor(sent);
	for (int i = 0; i < 20; i++) {
		post_recv(&srv, &rx, 0, LEN, &rx);
		trywait(received);
		message();
		sleep_ms(slow_ms(5));
		trywait(sent);
		ASSERT_CMP(poll(pfds, 2, slow_ms(LIMIT_MS)), >, 0);
		ASSERT_EQ(fi_cntr_read(received), i + 1);
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	}
	return close_all();
}

static void *reads_entries(void *arg)
{
	struct fi_cq_data_entry entry;
	ssize_t got;

	for (int i = 0; i < ROUNDS; i += got == 1) {
		got = fi_cq_sread(srv.cq, &entry, 1, NULL, slow_ms(LIMIT_MS));
		if (got != 1 && got != -FI_EAGAIN)
			return (void *)got;
	}
	return NULL;
}

/* One thread polls a counter's descriptor, another sleeps for the entries. */
static int descriptor_beside_sread(void)
{
	struct pollfd pfd;
	pthread_t thread;
	uint64_t value;
	void *err;

	open_all(FI_THREAD_SAFE);
	pfd = descriptor(received);
	ASSERT_OK(pthread_create(&thread, NULL, reads_entries, NULL));
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		post_recv(&srv, &rx, 0, LEN, &rx);
		trywait(received);
		if (i % 2)
			sleep_ms(1);
		message();
		do {
			ASSERT_CMP(poll(&pfd, 1, slow_ms(LIMIT_MS)), >, 0);
			value = fi_cntr_read(received);
			trywait(received);
		} while (value < i);
	}
	ASSERT_OK(pthread_join(thread, &err));
	ASSERT_EQ((ssize_t)err, 0);
	return close_all();
}

/* ---- several who wait for one counter ---- */

enum { FAR = 3, NEAR = 300, LATE_US = 50000 };

static void *waits_for_more(void *arg)
{
	while (!atomic_load(&stop))
		fi_cntr_wait(received, UINT64_MAX, 200);
	return NULL;
}

static _Atomic uint64_t told_us;

static void *waits_for_next(void *arg)
{
	void *ret = (void *)(intptr_t)fi_cntr_wait(received, (uintptr_t)arg,
						   slow_ms(LIMIT_MS));

	atomic_store(&told_us, now_us());
	return ret;
}

static void *polls_for_next(void *arg)
{
	struct pollfd pfd = descriptor(received);
	int got;

	trywait(received);
	/* It may have come before. */
	got = fi_cntr_read(received) >= (uintptr_t)arg ||
	      poll(&pfd, 1, slow_ms(LIMIT_MS)) > 0;
	atomic_store(&told_us, now_us());
	return (void *)(intptr_t)!got;
}

static void count_one(uint64_t i)
{
	if (i % 2) {
		ASSERT_OK(fi_cntr_add(received, 1));
		return;
	}
	post_recv(&srv, &rx, 0, LEN, &rx);
	message();
}

/* Who is not there yet takes no wake-up from who is. */
static int beside_those_who_wait_for_more(void *(*next)(void *arg))
{
	pthread_t far[FAR], near;
	unsigned int late = 0;
	uint64_t start;
	void *ret;

	open_all(FI_THREAD_SAFE);
	for (int i = 0; i < FAR; i++)
		ASSERT_OK(pthread_create(&far[i], NULL, waits_for_more, NULL));
	sleep_ms(slow_ms(20));
	for (uint64_t i = 1; i <= NEAR; i++) {
		ASSERT_OK(pthread_create(&near, NULL, next, (void *)i));
		sleep_ms(2);
		start = now_us();
		count_one(i);
		ASSERT_OK(pthread_join(near, &ret));
		ASSERT_EQ((intptr_t)ret, 0);
		late += atomic_load(&told_us) > start + (uint64_t)slow_ms(1) * LATE_US;
		if (!(i % 2))
			expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	}
	/* A busy machine may be the reason, now and then. */
	ASSERT_LE(late, NEAR / 100);
	atomic_store(&stop, true);
	for (int i = 0; i < FAR; i++)
		ASSERT_OK(pthread_join(far[i], NULL));
	return close_all();
}

static int waits_for_different_values(void)
{
	return beside_those_who_wait_for_more(waits_for_next);
}

static int descriptor_beside_waits(void)
{
	return beside_those_who_wait_for_more(polls_for_next);
}

static void *reads_counter(void *arg)
{
	while (!atomic_load(&stop))
		fi_cntr_read(received);
	return NULL;
}

/* FI_THREAD_ENDPOINT is one thread per endpoint: not one for its queue and counters. */
static int counter_beside_queue(void)
{
	const int many = scaled(10 * ROUNDS);
	struct fi_cq_data_entry entry;
	pthread_t thread;
	ssize_t got;

	open_all(FI_THREAD_ENDPOINT);
	ASSERT_OK(pthread_create(&thread, NULL, reads_counter, NULL));
	for (int i = 0; i < many; i++) {
		post_recv(&srv, &rx, 0, LEN, &rx);
		ASSERT_TAKEN(fi_send(cli.ep, tx.p, LEN, tx.desc, 0, &tx));
		do
			got = fi_cq_sread(srv.cq, &entry, 1, NULL,
					  slow_ms(LIMIT_MS));
		while (got == -FI_EAGAIN && has_credits(&srv));
		ASSERT_EQ(got, 1);
		ASSERT(entry.op_context == &rx);
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	}
	atomic_store(&stop, true);
	ASSERT_OK(pthread_join(thread, NULL));
	ASSERT_EQ(fi_cntr_read(received), many);
	return close_all();
}

/* A counter has kept an entry, and said so to whoever may sleep for it. When it has been
 * read, that is no reason to return. */
static int no_early_return(void)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(LIMIT_MS) * 1000;
	struct fi_cq_data_entry entry;
	uint64_t start;

	open_all(FI_THREAD_SAFE);
	post_recv(&srv, &rx, 0, LEN, &rx);
	message();
	while (!fi_cntr_read(received) && now_us() < end)
		;
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	start = now_us();
	ASSERT_EQ(fi_cq_sread(srv.cq, &entry, 1, NULL, 300), -FI_EAGAIN);
	ASSERT_GE(now_us() - start, 300000);
	return close_all();
}

static void *sleeps(void *arg)
{
	struct fi_cq_data_entry entry;

	return (void *)fi_cq_sread(srv.cq, &entry, 1, NULL,
				   slow_ms(LIMIT_MS));
}

/* fi_cq_signal is for all who sleep, and once. */
static int signal_wakes_all(void)
{
	struct fi_cq_data_entry entry;
	pthread_t threads[4];
	uint64_t start;
	void *got;

	open_all(FI_THREAD_SAFE);
	for (int round = 0; round < 5; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
			ASSERT_OK(pthread_create(&threads[i], NULL, sleeps,
						 NULL));
		sleep_ms(slow_ms(50));
		start = now_us();
		ASSERT_OK(fi_cq_signal(srv.cq));
		for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
			ASSERT_OK(pthread_join(threads[i], &got));
			ASSERT_EQ((ssize_t)got, -FI_EAGAIN);
		}
		ASSERT_LE(now_us() - start,
			  (uint64_t)slow_ms(LIMIT_MS) * 1000 / 2);
		start = now_us();
		ASSERT_EQ(fi_cq_sread(srv.cq, &entry, 1, NULL, 100),
			  -FI_EAGAIN);
		ASSERT_GE(now_us() - start, 100000);
	}
	return close_all();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(two_descriptors),
		CASE(descriptor_beside_sread),
		CASE(waits_for_different_values),
		CASE(descriptor_beside_waits),
		CASE(counter_beside_queue),
		CASE(no_early_return),
		CASE(signal_wakes_all),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
