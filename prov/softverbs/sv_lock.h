/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The lock of the data path. A message takes ten of them, almost always free,
 * and a third of its instructions went into pthread_mutex calls: this is one
 * word, taken inline by one atomic operation and given back by a plain store. Who
 * finds it held spins for a moment, then sleeps in the kernel, as an adaptive
 * mutex does. Everything else uses lock.h, which in debug builds knows its holder.
 */
#ifndef SV_LOCK_H
#define SV_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "compiler.h"

enum sv_lock_word {
	SV_LOCK_FREE,
	SV_LOCK_HELD,
	SV_LOCK_WAITED, /* held, and someone may sleep for it */
};

struct sv_lock {
	atomic_uint word; /* enum sv_lock_word */
};

/* sv_util.c */
void sv_lock_wait(struct sv_lock *lock);
void sv_lock_wake(struct sv_lock *lock);

static inline void sv_lock_init(struct sv_lock *lock)
{
	atomic_init(&lock->word, SV_LOCK_FREE);
}

static inline bool sv_lock_try(struct sv_lock *lock)
{
	unsigned int expected = SV_LOCK_FREE;

	return atomic_compare_exchange_strong_explicit(
		&lock->word, &expected, SV_LOCK_HELD, memory_order_acquire,
		memory_order_relaxed);
}

static inline void sv_lock_take(struct sv_lock *lock)
{
	if (unlikely(!sv_lock_try(lock)))
		sv_lock_wait(lock);
}

/*
 * An exchange would notice every waiter, but it would hold us until all our stores
 * are out. So we look, and then store. Who begins to wait between the two is not
 * woken: no waiter sleeps longer than SV_LOCK_NAP_NS before he tries again.
 */
static inline void sv_lock_drop(struct sv_lock *lock)
{
	const bool waited = atomic_load_explicit(&lock->word,
						 memory_order_relaxed) ==
			    SV_LOCK_WAITED;

	atomic_store_explicit(&lock->word, SV_LOCK_FREE, memory_order_release);
	if (unlikely(waited))
		sv_lock_wake(lock);
}

#endif
