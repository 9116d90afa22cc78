/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The engine thread: epoll, timers, deferred calls (see sv_engine.h).
 *
 * It starts with the first descriptor watched or timer set, so programs that
 * only ask questions stay single-threaded, and stops when the process exits. All
 * signals but those of a crash are blocked in it. After fork() the child begins
 * again without an engine.
 *
 * Events carry descriptor and generation, never an address: an event that was
 * fetched before its descriptor was unwatched finds another generation.
 */
#include "sv_int.h"
#include "sv_engine.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
	BATCH = 64, /* events of a round, and timers */
	MIN_SLOTS = 64,
	NO_FD = -1,
	STOP_MS = 1000, /* whole seconds */
};

enum engine_state {
	ENGINE_IDLE,		/* not started yet */
	ENGINE_RUNNING,
	ENGINE_STOPPING,	/* nothing new; a handler may be under way */
	ENGINE_STOPPED,		/* the thread is gone */
};

struct slot {
	sv_engine_fn fn;	/* NULL: not watched */
	void *arg;
	uint32_t gen;
};

static struct {
	struct lock lock;	/* guards all below */
	pthread_cond_t idle;	/* a handler returned */
	enum engine_state state;
	pthread_t thread;
	int epoll_fd;
	int wake_fd;
	bool woken;		/* wake_fd is raised */
	struct slot *slots;	/* by descriptor */
	size_t slot_cnt;
	int running_fd;		/* whose handler is being called, or NO_FD */
	uint32_t running_gen;
	unsigned int waiters;
	struct sv_timer *first;	/* by due time */
	struct sv_timer *last;
	struct sv_defer *deferred;
} engine = {
	.lock = { PTHREAD_MUTEX_INITIALIZER },
	.idle = PTHREAD_COND_INITIALIZER,
	.epoll_fd = -1,
	.wake_fd = -1,
	.running_fd = NO_FD,
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Caller holds engine.lock. */
static bool in_engine(void)
{
	/* Also while it is being stopped: it must not wait for itself. */
	return engine.state != ENGINE_IDLE &&
		pthread_equal(pthread_self(), engine.thread);
}

/* Caller holds engine.lock. */
static void wake(void)
{
	uint64_t one = 1;

	if (engine.state != ENGINE_RUNNING || engine.woken || in_engine())
		return;
	engine.woken = true;
	if (write(engine.wake_fd, &one, sizeof(one)) < 0)
		engine.woken = false;	/* cannot be: the count is small */
}

static void call_handler(const struct epoll_event *event)
{
	int fd = (int)(event->data.u64 & 0x7fffffff);
	uint32_t gen = (uint32_t)(event->data.u64 >> 32);
	struct slot slot = { 0 };

	lock_take(&engine.lock);
	if ((size_t)fd < engine.slot_cnt)
		slot = engine.slots[fd];
	if (!slot.fn || slot.gen != gen) {
		lock_drop(&engine.lock);
		return;
	}
	engine.running_fd = fd;
	engine.running_gen = gen;
	lock_drop(&engine.lock);

	slot.fn(slot.arg, event->events);

	lock_take(&engine.lock);
	engine.running_fd = NO_FD;
	if (engine.waiters)
		pthread_cond_broadcast(&engine.idle);
	lock_drop(&engine.lock);
}

static void timer_unlink(struct sv_timer *timer)
{
	if (timer->prev)
		timer->prev->next = timer->next;
	else
		engine.first = timer->next;
	if (timer->next)
		timer->next->prev = timer->prev;
	else
		engine.last = timer->prev;
	timer->next = NULL;
	timer->prev = NULL;
}

/* True if the timer waits in the list: it may also be due and being called. */
static bool timer_is_linked(const struct sv_timer *timer)
{
	return timer->prev || engine.first == timer;
}

/* Most timers are set to the same few spans, so look from the end. */
static void timer_link(struct sv_timer *timer)
{
	struct sv_timer *prev = engine.last;

	while (prev && prev->due_ns > timer->due_ns)
		prev = prev->prev;
	timer->prev = prev;
	timer->next = prev ? prev->next : engine.first;
	if (timer->prev)
		timer->prev->next = timer;
	else
		engine.first = timer;
	if (timer->next)
		timer->next->prev = timer;
	else
		engine.last = timer;
}

/* No more than a batch: a crowd that is due does not keep events waiting. */
static void run_timers(void)
{
	struct sv_timer *timer;
	void (*fn)(void *arg);
	int left = BATCH;
	uint64_t now;
	void *arg;

	lock_take(&engine.lock);
	now = engine.first ? now_ns() : 0;
	while (left-- && (timer = engine.first) && timer->due_ns <= now) {
		timer_unlink(timer);
		fn = timer->fn;
		arg = timer->arg;
		lock_drop(&engine.lock);
		fn(arg);
		lock_take(&engine.lock);
	}
	lock_drop(&engine.lock);
}

static void run_deferred(void)
{
	struct sv_defer *defer;

	lock_take(&engine.lock);
	while ((defer = engine.deferred)) {
		engine.deferred = defer->next;
		lock_drop(&engine.lock);
		defer->fn(defer);
		lock_take(&engine.lock);
	}
	lock_drop(&engine.lock);
}

/* Caller holds engine.lock. */
static int timeout_ms(void)
{
	uint64_t now;

	if (engine.deferred)
		return 0;
	if (!engine.first)
		return -1;
	now = now_ns();
	if (engine.first->due_ns <= now)
		return 0;
	return (int)((engine.first->due_ns - now + 999999) / 1000000);
}

static void on_wake(void *arg, uint32_t events)
{
	uint64_t count;

	lock_take(&engine.lock);
	if (read(engine.wake_fd, &count, sizeof(count)) == sizeof(count))
		engine.woken = false;
	lock_drop(&engine.lock);
}

static void *engine_main(void *arg)
{
	struct epoll_event events[BATCH];
	int timeout;
	int cnt;
	int i;

	for (;;) {
		run_deferred();
		lock_take(&engine.lock);
		if (engine.state != ENGINE_RUNNING)
			break;
		timeout = timeout_ms();
		lock_drop(&engine.lock);

		cnt = epoll_wait(engine.epoll_fd, events, BATCH, timeout);
		for (i = 0; i < cnt; i++)
			call_handler(&events[i]);
		run_timers();
	}
	lock_drop(&engine.lock);
	return NULL;
}

/* Caller holds engine.lock. */
static int slots_grow(int fd)
{
	size_t cnt = pow2_at_least((size_t)fd + 1);
	struct slot *slots;

	if ((size_t)fd < engine.slot_cnt)
		return 0;
	cnt = max_size(cnt, MIN_SLOTS);
	slots = realloc(engine.slots, cnt * sizeof(*slots));
	if (!slots)
		return ENOMEM;
	memset(slots + engine.slot_cnt, 0,
	       (cnt - engine.slot_cnt) * sizeof(*slots));
	engine.slots = slots;
	engine.slot_cnt = cnt;
	return 0;
}

/* Caller holds engine.lock. Returns the generation that was watched last. */
static uint32_t slot_clear(int fd)
{
	struct slot *slot = &engine.slots[fd];

	if (slot->fn) {
		slot->fn = NULL;
		slot->arg = NULL;
		slot->gen++;
		epoll_ctl(engine.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	}
	return slot->gen - 1;
}

/* Caller holds engine.lock. */
static int watch_locked(int fd, uint32_t events, sv_engine_fn fn, void *arg)
{
	struct epoll_event event = { .events = events };
	struct slot *slot;
	int err;

	err = slots_grow(fd);
	if (err)
		return err;
	slot = &engine.slots[fd];
	slot_clear(fd);		/* if it was closed without being unwatched */
	event.data.u64 = (uint64_t)slot->gen << 32 | (uint32_t)fd;
	if (epoll_ctl(engine.epoll_fd, EPOLL_CTL_ADD, fd, &event))
		return errno;
	slot->fn = fn;
	slot->arg = arg;
	return 0;
}

/* The signals of a crash stay open, for the application's own handlers. */
static int thread_create(void)
{
	static const int crash[] = {
		SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS
	};
	sigset_t block;
	sigset_t old;
	size_t i;
	int err;

	sigfillset(&block);
	for (i = 0; i < ARRAY_SIZE(crash); i++)
		sigdelset(&block, crash[i]);
	err = pthread_sigmask(SIG_SETMASK, &block, &old);
	if (err)
		return err;
	/* The thread's first act is to take the lock that we hold. */
	err = pthread_create(&engine.thread, NULL, engine_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_setname_np(engine.thread, "softverbs");
	return err;
}

/* Caller holds engine.lock. */
static int start_locked(void)
{
	int err;

	if (engine.state == ENGINE_RUNNING)
		return 0;
	if (engine.state != ENGINE_IDLE)
		return ENODEV;
	engine.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (engine.epoll_fd < 0)
		return errno;
	engine.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine.wake_fd < 0) {
		err = errno;
		goto err_close_epoll;
	}
	err = watch_locked(engine.wake_fd, EPOLLIN, on_wake, NULL);
	if (err)
		goto err_close_wake;
	err = thread_create();
	if (err)
		goto err_unwatch;
	engine.state = ENGINE_RUNNING;
	return 0;

err_unwatch:
	engine.slots[engine.wake_fd].fn = NULL;
err_close_wake:
	close(engine.wake_fd);
	engine.wake_fd = -1;
err_close_epoll:
	close(engine.epoll_fd);
	engine.epoll_fd = -1;
	return err;
}

/* Not a word at exit, when it is the engine that ends. */
static void note_start(int err)
{
	static atomic_bool said;

	sv_note_fds(err);
	if ((err != EAGAIN && err != ENOMEM) || atomic_exchange(&said, true))
		return;
	sv_err("%s: no thread can be started (ulimit -u, -v): nothing connects without one",
	       strerror(err));
}

int sv_engine_start(void)
{
	int err;

	lock_take(&engine.lock);
	err = start_locked();
	lock_drop(&engine.lock);
	if (err)
		note_start(err);
	return err;
}

int sv_engine_watch(int fd, uint32_t events, sv_engine_fn fn, void *arg)
{
	bool starts;
	int err;

	if (fd < 0)
		return EBADF;
	lock_take(&engine.lock);
	err = start_locked();
	starts = !err;
	if (starts)
		err = watch_locked(fd, events, fn, arg);
	lock_drop(&engine.lock);
	if (!starts)
		note_start(err);
	return err;
}

int sv_engine_rewatch(int fd, uint32_t events)
{
	struct epoll_event event = { .events = events };
	int err = 0;

	lock_take(&engine.lock);
	if (engine.state != ENGINE_RUNNING || fd < 0 ||
	    (size_t)fd >= engine.slot_cnt || !engine.slots[fd].fn) {
		err = EBADF;
		goto out;
	}
	event.data.u64 = (uint64_t)engine.slots[fd].gen << 32 | (uint32_t)fd;
	if (epoll_ctl(engine.epoll_fd, EPOLL_CTL_MOD, fd, &event))
		err = errno;
out:
	lock_drop(&engine.lock);
	return err;
}

/*
 * Waits also for a handler that has unwatched its own descriptor and is still
 * running: the caller is about to free what it works on.
 */
static void unwatch(int fd, bool wait)
{
	uint32_t gen;

	lock_take(&engine.lock);
	if (fd < 0 || (size_t)fd >= engine.slot_cnt)
		goto out;
	gen = slot_clear(fd);
	if (!wait || in_engine())
		goto out;
	engine.waiters++;
	while (engine.running_fd == fd && engine.running_gen == gen)
		pthread_cond_wait(&engine.idle, &engine.lock.mutex);
	engine.waiters--;
out:
	lock_drop(&engine.lock);
}

void sv_engine_unwatch(int fd)
{
	unwatch(fd, true);
}

void sv_engine_unwatch_nowait(int fd)
{
	unwatch(fd, false);
}

void sv_timer_set(struct sv_timer *timer, unsigned int timeout_in_ms,
		  void (*fn)(void *arg), void *arg)
{
	lock_take(&engine.lock);
	if (timer_is_linked(timer))
		timer_unlink(timer);
	timer->due_ns = now_ns() + timeout_in_ms * 1000000ull;
	timer->fn = fn;
	timer->arg = arg;
	/* Without an engine there is nobody to call it: it just never fires. */
	if (!start_locked()) {
		timer_link(timer);
		if (engine.first == timer)
			wake();
	}
	lock_drop(&engine.lock);
}

void sv_timer_cancel(struct sv_timer *timer)
{
	lock_take(&engine.lock);
	if (timer_is_linked(timer))
		timer_unlink(timer);
	timer->due_ns = 0;
	lock_drop(&engine.lock);
}

bool sv_timer_expired(struct sv_timer *timer)
{
	bool expired;

	lock_take(&engine.lock);
	expired = timer->due_ns && !timer_is_linked(timer);
	lock_drop(&engine.lock);
	return expired;
}

void sv_engine_defer(struct sv_defer *defer, void (*fn)(struct sv_defer *defer))
{
	lock_take(&engine.lock);
	if (engine.state == ENGINE_IDLE || engine.state == ENGINE_STOPPED) {
		lock_drop(&engine.lock);
		fn(defer);
		return;
	}
	defer->fn = fn;
	defer->next = engine.deferred;
	engine.deferred = defer;
	wake();
	lock_drop(&engine.lock);
}

void sv_engine_fork_prepare(void)
{
	lock_take(&engine.lock);
}

void sv_engine_fork_parent(void)
{
	lock_drop(&engine.lock);
}

/*
 * The thread is gone, and the epoll set is shared with the parent: closing our
 * descriptor of it leaves the parent's entries alone, removing entries would
 * not.
 */
void sv_engine_fork_child(void)
{
	struct sv_defer *defer;

	if (engine.epoll_fd >= 0)
		close(engine.epoll_fd);
	if (engine.wake_fd >= 0)
		close(engine.wake_fd);
	engine.epoll_fd = -1;
	engine.wake_fd = -1;
	if (engine.slots)
		memset(engine.slots, 0,
		       engine.slot_cnt * sizeof(*engine.slots));
	engine.state = ENGINE_IDLE;
	engine.woken = false;
	engine.running_fd = NO_FD;
	engine.waiters = 0;
	engine.first = NULL;
	engine.last = NULL;
	lock_drop(&engine.lock);
	pthread_cond_init(&engine.idle, NULL);
	while ((defer = engine.deferred)) {
		engine.deferred = defer->next;
		defer->fn(defer);
	}
}

/*
 * exit() may be called in a signal handler, over a thread that holds any of our
 * locks and will never drop it. Nothing at exit waits for one longer than this.
 */
static bool take_for_stop(void)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	int ms;

	for (ms = 0; ms < STOP_MS; ms++) {
		if (lock_try(&engine.lock))
			return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

/* True if there is a thread to wait for. */
static bool stop_begin(void)
{
	bool join = false;

	if (!take_for_stop())
		return false;
	if (engine.state == ENGINE_RUNNING) {
		join = !in_engine();
		wake();
		engine.state = ENGINE_STOPPING;
	} else {
		engine.state = ENGINE_STOPPED;
	}
	lock_drop(&engine.lock);
	return join;
}

/* False if a handler waits for what exit() was called over. */
static bool thread_ends(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_MS / 1000;
	return !pthread_timedjoin_np(engine.thread, NULL, &until);
}

/*
 * No handler may run once the application's objects are gone. The wait is short:
 * handlers block on nothing but locks. What one of them defers meanwhile is called
 * when it is out, as ever. Nothing else of softverbs ends at exit: threads of the
 * application may still be at work with it.
 */
static void __attribute__((destructor)) engine_stop(void)
{
	if (!stop_begin() || !thread_ends())
		return;
	lock_take(&engine.lock);
	engine.state = ENGINE_STOPPED;
	lock_drop(&engine.lock);
	run_deferred();
	lock_take(&engine.lock);
	close(engine.epoll_fd);
	close(engine.wake_fd);
	engine.epoll_fd = -1;
	engine.wake_fd = -1;
	free(engine.slots);
	engine.slots = NULL;
	engine.slot_cnt = 0;
	lock_drop(&engine.lock);
}
