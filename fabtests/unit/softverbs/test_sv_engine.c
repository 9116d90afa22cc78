/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The engine: when its thread runs, that handlers are called and stop being
 * called exactly when promised, timers, deferred calls, fork.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sv_int.h"
#include "sv_engine.h"

TestSuite(sv_engine, .timeout = 60);

static int thread_cnt(void)
{
	DIR *dir = opendir("/proc/self/task");
	int cnt = 0;

	cr_assert_not_null(dir);
	while (readdir(dir))
		cnt++;
	closedir(dir);
	return cnt - 2;
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/* Until the value is reached, or five seconds have passed. */
static bool reaches(atomic_int *value, int wanted)
{
	int i;

	for (i = 0; i < 5000 && atomic_load(value) < wanted; i++)
		sleep_ms(1);
	return atomic_load(value) >= wanted;
}

static void raise_fd(int fd)
{
	uint64_t one = 1;

	cr_assert_eq(write(fd, &one, sizeof(one)), sizeof(one));
}

struct counter {
	int fd;
	atomic_int calls;
	atomic_int inside;
	int hold_ms;
};

static void on_fd(void *arg, uint32_t events)
{
	struct counter *counter = arg;
	uint64_t value;
	ssize_t ret;

	atomic_store(&counter->inside, 1);
	ret = read(counter->fd, &value, sizeof(value));
	(void)ret;
	sleep_ms(counter->hold_ms);
	atomic_fetch_add(&counter->calls, 1);
	atomic_store(&counter->inside, 0);
}

static void counter_init(struct counter *counter)
{
	counter->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	cr_assert_geq(counter->fd, 0);
	atomic_init(&counter->calls, 0);
	atomic_init(&counter->inside, 0);
	counter->hold_ms = 0;
}

Test(sv_engine, thread_starts_with_first_watch)
{
	struct counter counter;
	int before = thread_cnt();

	counter_init(&counter);
	cr_assert_eq(thread_cnt(), before);
	cr_assert_eq(sv_engine_watch(counter.fd, EPOLLIN, on_fd, &counter), 0);
	cr_assert_eq(thread_cnt(), before + 1);
	raise_fd(counter.fd);
	cr_assert(reaches(&counter.calls, 1));
	sv_engine_unwatch(counter.fd);
	close(counter.fd);
}

Test(sv_engine, bad_descriptor)
{
	struct counter counter = { .fd = -1 };

	cr_assert_eq(sv_engine_watch(-1, EPOLLIN, on_fd, &counter), EBADF);
	cr_assert_eq(sv_engine_watch(999, EPOLLIN, on_fd, &counter), EBADF);
	sv_engine_unwatch(-1);
	sv_engine_unwatch(123456);
	cr_assert_eq(sv_engine_rewatch(123456, EPOLLIN), EBADF);
}

/* Under the sanitizers a late call would be a use after free. */
Test(sv_engine, unwatch_waits_for_the_handler)
{
	struct counter *counter;
	int calls;
	int i;

	for (i = 0; i < 200; i++) {
		counter = malloc(sizeof(*counter));
		cr_assert_not_null(counter);
		counter_init(counter);
		counter->hold_ms = i % 3;
		cr_assert_eq(sv_engine_watch(counter->fd, EPOLLIN, on_fd,
					     counter), 0);
		raise_fd(counter->fd);
		if (i % 2)
			sleep_ms(1);
		sv_engine_unwatch(counter->fd);
		cr_assert_eq(atomic_load(&counter->inside), 0);
		calls = atomic_load(&counter->calls);
		raise_fd(counter->fd);
		cr_assert_eq(atomic_load(&counter->calls), calls);
		close(counter->fd);
		free(counter);
	}
}

/* A handler that is done with its descriptor, but not yet with its object. */
static void on_last(void *arg, uint32_t events)
{
	struct counter *counter = arg;

	atomic_store(&counter->inside, 1);
	sv_engine_unwatch(counter->fd);
	sleep_ms(counter->hold_ms);
	atomic_fetch_add(&counter->calls, 1);
	atomic_store(&counter->inside, 0);
}

Test(sv_engine, unwatch_waits_for_one_that_unwatched_itself)
{
	struct counter counter;
	int i;

	for (i = 0; i < 20; i++) {
		counter_init(&counter);
		counter.hold_ms = 20;
		cr_assert_eq(sv_engine_watch(counter.fd, EPOLLIN, on_last,
					     &counter), 0);
		raise_fd(counter.fd);
		cr_assert(reaches(&counter.inside, 1));
		sv_engine_unwatch(counter.fd);
		cr_assert_eq(atomic_load(&counter.calls), 1);
		close(counter.fd);
	}
}

/* Many events at once, and the first handler takes the others off the list. */
static struct counter pack[16];
static atomic_int pack_calls;

static void on_pack(void *arg, uint32_t events)
{
	size_t i;

	atomic_fetch_add(&pack_calls, 1);
	for (i = 0; i < ARRAY_SIZE(pack); i++)
		sv_engine_unwatch(pack[i].fd);
}

Test(sv_engine, unwatched_in_the_same_batch)
{
	struct counter gate;
	size_t i;

	counter_init(&gate);
	gate.hold_ms = 100;
	cr_assert_eq(sv_engine_watch(gate.fd, EPOLLIN, on_fd, &gate), 0);
	raise_fd(gate.fd);
	sleep_ms(20);		/* the engine is in the gate's handler */
	for (i = 0; i < ARRAY_SIZE(pack); i++) {
		counter_init(&pack[i]);
		raise_fd(pack[i].fd);
		cr_assert_eq(sv_engine_watch(pack[i].fd, EPOLLIN, on_pack,
					     &pack[i]), 0);
	}
	cr_assert(reaches(&pack_calls, 1));
	sleep_ms(50);
	cr_assert_eq(atomic_load(&pack_calls), 1);
	sv_engine_unwatch(gate.fd);
}

struct timed {
	struct sv_timer timer;
	struct timespec at;
	atomic_int calls;
};

static void on_timed(void *arg)
{
	struct timed *timed = arg;

	clock_gettime(CLOCK_MONOTONIC, &timed->at);
	atomic_fetch_add(&timed->calls, 1);
}

static long ms_between(const struct timespec *a, const struct timespec *b)
{
	return (b->tv_sec - a->tv_sec) * 1000 +
		(b->tv_nsec - a->tv_nsec) / 1000000;
}

Test(sv_engine, timers_fire_in_order_and_not_early)
{
	static const unsigned int spans[] = { 90, 30, 60, 30, 120, 1 };
	struct timed timed[ARRAY_SIZE(spans)] = { 0 };
	struct timespec start;
	size_t i;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (i = 0; i < ARRAY_SIZE(spans); i++)
		sv_timer_set(&timed[i].timer, spans[i], on_timed, &timed[i]);
	for (i = 0; i < ARRAY_SIZE(spans); i++) {
		cr_assert(reaches(&timed[i].calls, 1));
		cr_assert_geq(ms_between(&start, &timed[i].at),
			      (long)spans[i]);
		cr_assert(sv_timer_expired(&timed[i].timer));
	}
	cr_assert_geq(ms_between(&timed[1].at, &timed[0].at), 0);
}

Test(sv_engine, timer_cancelled_and_set_anew)
{
	struct timed timed = { 0 };

	sv_timer_set(&timed.timer, 30, on_timed, &timed);
	sv_timer_cancel(&timed.timer);
	sleep_ms(60);
	cr_assert_eq(atomic_load(&timed.calls), 0);
	cr_assert_not(sv_timer_expired(&timed.timer));

	sv_timer_set(&timed.timer, 10000, on_timed, &timed);
	sv_timer_set(&timed.timer, 10, on_timed, &timed);
	cr_assert(reaches(&timed.calls, 1));
	sv_timer_cancel(&timed.timer);
	cr_assert_not(sv_timer_expired(&timed.timer));
	sleep_ms(30);
	cr_assert_eq(atomic_load(&timed.calls), 1);
}

enum {
	CROWD = 1000,
	CROWD_BEFORE = 200, /* timers that may go before an event */
};

static atomic_int crowd_ready;
static atomic_int crowd_calls;
static atomic_int crowd_at_event;

static void on_gate(void *arg, uint32_t events)
{
	const int *fd = arg;

	sv_engine_unwatch(*fd);
	reaches(&crowd_ready, 1);
}

static void on_crowd(void *arg)
{
	atomic_fetch_add(&crowd_calls, 1);
}

static void on_among_crowd(void *arg, uint32_t events)
{
	const int *fd = arg;

	sv_engine_unwatch(*fd);
	atomic_store(&crowd_at_event, atomic_load(&crowd_calls) + 1);
}

/* Timers that are all due, and an event, when the engine comes back. */
Test(sv_engine, crowd_of_timers_lets_events_in)
{
	static struct sv_timer timers[CROWD];
	struct counter among;
	struct counter gate;
	int i;

	counter_init(&gate);
	counter_init(&among);
	cr_assert_eq(sv_engine_watch(gate.fd, EPOLLIN, on_gate, &gate.fd), 0);
	raise_fd(gate.fd);
	sleep_ms(20);
	for (i = 0; i < CROWD; i++)
		sv_timer_set(&timers[i], 0, on_crowd, NULL);
	raise_fd(among.fd);
	cr_assert_eq(sv_engine_watch(among.fd, EPOLLIN, on_among_crowd,
				     &among.fd), 0);
	atomic_store(&crowd_ready, 1);
	cr_assert(reaches(&crowd_calls, CROWD));
	cr_assert(reaches(&crowd_at_event, 1));
	cr_assert_leq(atomic_load(&crowd_at_event), CROWD_BEFORE);
}

struct deferred {
	struct sv_defer defer;
	struct counter *counter;
	atomic_int *freed;
};

static void on_defer(struct sv_defer *defer)
{
	struct deferred *deferred = container_of(defer, struct deferred, defer);

	cr_assert_eq(atomic_load(&deferred->counter->inside), 0);
	close(deferred->counter->fd);
	free(deferred->counter);
	atomic_fetch_add(deferred->freed, 1);
	free(deferred);
}

/* The way in which the connection manager gets rid of its objects. */
Test(sv_engine, defer_outlives_the_handler)
{
	struct deferred *deferred;
	atomic_int freed = 0;
	int i;

	for (i = 0; i < 200; i++) {
		deferred = calloc(1, sizeof(*deferred));
		cr_assert_not_null(deferred);
		deferred->freed = &freed;
		deferred->counter = malloc(sizeof(*deferred->counter));
		cr_assert_not_null(deferred->counter);
		counter_init(deferred->counter);
		deferred->counter->hold_ms = i % 2;
		cr_assert_eq(sv_engine_watch(deferred->counter->fd, EPOLLIN,
					     on_fd, deferred->counter), 0);
		raise_fd(deferred->counter->fd);
		if (i % 3)
			sched_yield();
		sv_engine_unwatch_nowait(deferred->counter->fd);
		sv_engine_defer(&deferred->defer, on_defer);
	}
	cr_assert(reaches(&freed, 200));
}

Test(sv_engine, defer_without_engine_is_immediate)
{
	struct deferred *deferred = calloc(1, sizeof(*deferred));
	int before = thread_cnt();
	atomic_int freed = 0;

	cr_assert_not_null(deferred);
	deferred->freed = &freed;
	deferred->counter = malloc(sizeof(*deferred->counter));
	cr_assert_not_null(deferred->counter);
	counter_init(deferred->counter);
	sv_engine_defer(&deferred->defer, on_defer);
	cr_assert_eq(atomic_load(&freed), 1);
	cr_assert_eq(thread_cnt(), before);
}

/* What the child of the next test tells its parent. */
struct at_exit {
	struct sv_defer defer;
	struct counter counter;
	atomic_int at_once;	/* the deferred call came inside the handler */
	atomic_int ran;
};

static void on_defer_at_exit(struct sv_defer *defer)
{
	struct at_exit *shared = container_of(defer, struct at_exit, defer);

	if (atomic_load(&shared->counter.inside))
		atomic_store(&shared->at_once, 1);
	atomic_fetch_add(&shared->ran, 1);
}

/* Waits until the engine is being stopped: then it takes nothing new. */
static void on_fd_at_exit(void *arg, uint32_t events)
{
	struct at_exit *shared = arg;
	int i;

	atomic_store(&shared->counter.inside, 1);
	for (i = 0; i < 5000 && !sv_engine_rewatch(shared->counter.fd, EPOLLIN);
	     i++)
		sleep_ms(1);
	sv_engine_defer(&shared->defer, on_defer_at_exit);
	atomic_store(&shared->counter.inside, 0);
}

static void exit_inside_handler(struct at_exit *shared)
{
	counter_init(&shared->counter);
	if (sv_engine_watch(shared->counter.fd, EPOLLIN, on_fd_at_exit, shared))
		_exit(2);
	raise_fd(shared->counter.fd);
	if (!reaches(&shared->counter.inside, 1))
		_exit(3);
	exit(0);
}

/* A handler defers the freeing of what it still works on. */
Test(sv_engine, defer_while_stopping_outlives_the_handler)
{
	struct at_exit *shared;
	int status;
	pid_t pid;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(shared, MAP_FAILED);
	pid = fork();
	if (!pid)
		exit_inside_handler(shared);
	cr_assert_gt(pid, 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "%d", WEXITSTATUS(status));
	cr_assert_eq(atomic_load(&shared->ran), 1);
	cr_assert_eq(atomic_load(&shared->at_once), 0);
	munmap(shared, sizeof(*shared));
}

/* exit() over a thread that holds a lock, as from a signal handler. */

static struct sv_lock held;
static atomic_int wants_it;

static void on_fd_wants(void *arg, uint32_t events)
{
	atomic_store(&wants_it, 1);
	sv_lock_take(&held);
}

Test(sv_engine, exits_under_a_lock, .exit_code = 7)
{
	struct counter counter;

	counter_init(&counter);
	sv_lock_init(&held);
	sv_lock_take(&held);
	cr_assert_eq(sv_engine_watch(counter.fd, EPOLLIN, on_fd_wants, NULL), 0);
	raise_fd(counter.fd);
	cr_assert(reaches(&wants_it, 1));
	exit(7);
}

/* The application's handlers must not find themselves on our thread. */
static atomic_int signalled_elsewhere;
static pthread_t main_thread;

static void on_signal(int signo)
{
	if (!pthread_equal(pthread_self(), main_thread))
		atomic_store(&signalled_elsewhere, 1);
}

Test(sv_engine, signals_stay_away)
{
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t set;
	int i;

	main_thread = pthread_self();
	cr_assert_eq(sv_engine_start(), 0);
	sigaction(SIGUSR1, &action, NULL);
	/* Blocked here, a process-wide signal would go to the engine. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (i = 0; i < 20; i++) {
		kill(getpid(), SIGUSR1);
		sleep_ms(1);
	}
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	cr_assert_eq(atomic_load(&signalled_elsewhere), 0);
}

static int child_checks(int watched)
{
	struct counter counter;

	/* None of the parent's threads; one of our own when we need it. */
	if (thread_cnt() != 1)
		return 2;
	sv_engine_unwatch(watched);
	counter_init(&counter);
	if (sv_engine_watch(counter.fd, EPOLLIN, on_fd, &counter))
		return 3;
	raise_fd(counter.fd);
	return reaches(&counter.calls, 1) ? 0 : 4;
}

Test(sv_engine, fork_leaves_the_parent_alone)
{
	struct counter counter;
	int status;
	pid_t pid;

	counter_init(&counter);
	cr_assert_eq(sv_engine_watch(counter.fd, EPOLLIN, on_fd, &counter), 0);
	/* A call shows that the thread has started. One that starts may hold
	 * a lock of the address sanitizer's, which the child would inherit. */
	raise_fd(counter.fd);
	cr_assert(reaches(&counter.calls, 1));
	sv_engine_fork_prepare();
	pid = fork();
	if (!pid) {
		sv_engine_fork_child();
		_exit(child_checks(counter.fd));
	}
	sv_engine_fork_parent();
	cr_assert_gt(pid, 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "%d", WEXITSTATUS(status));
	/* The child's unwatch must not have reached into our epoll set. */
	raise_fd(counter.fd);
	cr_assert(reaches(&counter.calls, 2));
}
