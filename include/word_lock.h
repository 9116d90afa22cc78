/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The lock of the data path: one word, taken inline by one atomic operation and
 * given back by a plain store, where a mutex costs a call and 40 instructions each
 * way. Who finds it held spins for a moment, then sleeps in the kernel, as an
 * adaptive mutex does. It does not know its holder.
 */
#ifndef VRC_WORD_LOCK_H
#define VRC_WORD_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "compiler.h"

enum word_lock_state {
	WORD_LOCK_FREE,
	WORD_LOCK_HELD,
	WORD_LOCK_WAITED, /* held, and someone may sleep for it */
};

enum {
	WORD_LOCK_SPINS = 100,
	WORD_LOCK_NAP_NS = 1000000,
};

struct word_lock {
	atomic_uint word; /* enum word_lock_state */
};

static inline void word_lock_init(struct word_lock *lock)
{
	atomic_init(&lock->word, WORD_LOCK_FREE);
}

static inline bool word_lock_try(struct word_lock *lock)
{
	unsigned int expected = WORD_LOCK_FREE;

	return atomic_compare_exchange_strong_explicit(
		&lock->word, &expected, WORD_LOCK_HELD, memory_order_acquire,
		memory_order_relaxed);
}

/*
 * The word goes to WAITED before we sleep, and whoever then takes the lock from
 * WAITED leaves it there: it cannot know whether others sleep too, and a wake
 * too many does no harm. Nor does one that fails to come: see word_lock_drop.
 */
static __cold __maybe_unused void word_lock_wait(struct word_lock *lock)
{
	const struct timespec nap = { .tv_nsec = WORD_LOCK_NAP_NS };

	for (int i = 0; i < WORD_LOCK_SPINS; i++) {
		if (atomic_load_explicit(&lock->word, memory_order_relaxed) ==
			    WORD_LOCK_FREE &&
		    word_lock_try(lock))
			return;
		cpu_relax();
	}
	while (atomic_exchange_explicit(&lock->word, WORD_LOCK_WAITED,
					memory_order_acquire) != WORD_LOCK_FREE)
		syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE,
			WORD_LOCK_WAITED, &nap, NULL, 0);
}

static __cold __maybe_unused void word_lock_wake(struct word_lock *lock)
{
	syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static inline void word_lock_take(struct word_lock *lock)
{
	if (unlikely(!word_lock_try(lock)))
		word_lock_wait(lock);
}

/*
 * An exchange would notice every waiter, but it would hold us until all our stores
 * are out. So we look, and then store; release pairs with the acquire of whoever
 * takes it next. Who begins to wait between the two is not woken: no waiter sleeps
 * longer than WORD_LOCK_NAP_NS before he tries again.
 */
static inline void word_lock_drop(struct word_lock *lock)
{
	const bool waited = atomic_load_explicit(&lock->word,
						 memory_order_relaxed) ==
			    WORD_LOCK_WAITED;

	atomic_store_explicit(&lock->word, WORD_LOCK_FREE,
			      memory_order_release);
	if (unlikely(waited))
		word_lock_wake(lock);
}

#endif
