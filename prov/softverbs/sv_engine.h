/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The engine: one thread per process that sleeps in epoll_wait and calls
 * handlers. Watching and unwatching descriptors for everyone is declared in
 * sv_int.h; here is what only the connection manager uses.
 *
 * The connection manager takes its one lock in every handler and calls the
 * engine with that lock held. It can therefore not wait for a handler that is
 * running. Instead it marks its object dead, unwatches without waiting, and
 * leaves freeing it to the engine: sv_engine_defer() runs a function when no
 * handler can hold the object's address any more.
 *
 * Handlers are called without any lock. The engine's own lock is a leaf.
 */
#ifndef SV_ENGINE_H
#define SV_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"

/*
 * A one-shot timer, embedded in its owner; zeroed memory is a timer at rest.
 * The owner calls set, cancel and expired under one lock of its own. The
 * handler may start just before a cancel or a new set: it takes the owner's
 * lock and then asks sv_timer_expired(), which tells whether it is wanted.
 */
struct sv_timer {
	struct sv_timer *next;
	struct sv_timer *prev;
	uint64_t due_ns;	/* 0: at rest */
	void (*fn)(void *arg);
	void *arg;
};

struct sv_defer {
	struct sv_defer *next;
	void (*fn)(struct sv_defer *defer);
};

/* Starts the thread if need be. Returns 0 or a positive errno; that there can be no
 * thread is said once, always. */
int sv_engine_start(void) __must_check;

/* As sv_engine_unwatch(), but does not wait for a handler that is running. */
void sv_engine_unwatch_nowait(int fd);

/* Changes what is waited for. Returns 0 or a positive errno. */
int sv_engine_rewatch(int fd, uint32_t events);

void sv_timer_set(struct sv_timer *timer, unsigned int timeout_ms,
		  void (*fn)(void *arg), void *arg);
void sv_timer_cancel(struct sv_timer *timer);
bool sv_timer_expired(struct sv_timer *timer);

/* Runs fn once no handler is under way that started before; or now if the
 * engine does not run. defer must stay untouched until then. */
void sv_engine_defer(struct sv_defer *defer,
		     void (*fn)(struct sv_defer *defer));

/* For pthread_atfork: around the fork, with the caller's locks outside. */
void sv_engine_fork_prepare(void);
void sv_engine_fork_parent(void);
void sv_engine_fork_child(void);

#endif
