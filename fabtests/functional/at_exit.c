/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The process ends while a thread of it is inside the provider, or one of the
 * provider's own is at work: main() returns without closing anything, as some
 * programs do, and nothing crashes. libfabric closes the provider's library on
 * that occasion. Each round is a process of its own.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "pair.h"

/* libfabric alone takes a tenth of a second and more to start. */
enum { ROUNDS = 20, FEW_ROUNDS = 8, LEN = 64 };

/* What a process is at when it ends. */
struct scene {
	void (*begin)(void);
	void *(*thread)(void *arg);
	int round;
};

static atomic_bool at_work;

static int end_amid(int sock, void *arg)
{
	const struct scene *scene = arg;
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	pthread_t thread;

	scene->begin();
	ASSERT_OK(pthread_create(&thread, NULL, scene->thread, NULL));
	while (!atomic_load(&at_work) && now_us() < end)
		sleep_ms(1);
	ASSERT(atomic_load(&at_work));
	sleep_ms(scene->round % 4);
	return PASSED;
}

static int many_ends(struct scene *scene, int cnt)
{
	struct peer peer;

	for (int i = 0; i < scaled(cnt); i++) {
		scene->round = i;
		peer_start(&peer, end_amid, scene);
		peer_join(&peer);
	}
	return PASSED;
}

static void begin_pair(void)
{
	static const struct setup how = {
		.cq_wait = FI_WAIT_FD,
		.threading = FI_THREAD_SAFE,
	};

	pair_open(&how, LEN);
}

/* What calls return after main() has is nobody's business. */
static void *read_on(void *arg)
{
	struct fi_cq_data_entry entry;

	for (;;) {
		fi_cq_sread(srv.cq, &entry, 1, NULL, 1);
		atomic_store(&at_work, true);
	}
	return NULL;
}

static int in_fi_cq_sread(void)
{
	struct scene scene = { begin_pair, read_on, 0 };

	return many_ends(&scene, ROUNDS);
}

static void *write_on(void *arg)
{
	struct fi_cq_data_entry entry[4];

	for (;;) {
		fi_write(cli.ep, tx.p, LEN, tx.desc, 0, rx.addr, rx.key, NULL);
		if (fi_cq_read(cli.cq, entry, 4) > 0)
			atomic_store(&at_work, true);
	}
	return NULL;
}

static int amid_writes(void)
{
	struct scene scene = { begin_pair, write_on, 0 };

	return many_ends(&scene, FEW_ROUNDS);
}

/* The provider's threads hear of it while the process ends. */
static void *shut_down(void *arg)
{
	fi_shutdown(cli.ep, 0);
	atomic_store(&at_work, true);
	return NULL;
}

static int amid_shutdown(void)
{
	struct scene scene = { begin_pair, shut_down, 0 };

	return many_ends(&scene, FEW_ROUNDS);
}

/* Without a domain that stays open. */
static void begin_nothing(void)
{
	open_passive(&srv, NULL);
	ASSERT_OK(fi_close(&srv.cq->fid));
	ASSERT_OK(fi_close(&srv.domain->fid));
}

static void *open_on(void *arg)
{
	struct fid_domain *domain;

	for (;;) {
		if (!fi_domain(srv.fabric, srv.info, &domain, NULL))
			fi_close(&domain->fid);
		atomic_store(&at_work, true);
	}
	return NULL;
}

static int amid_opening(void)
{
	struct scene scene = { begin_nothing, open_on, 0 };

	return many_ends(&scene, FEW_ROUNDS);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE_COLD(in_fi_cq_sread),
		CASE_COLD(amid_writes),
		CASE_COLD(amid_shutdown),
		CASE_COLD(amid_opening),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
