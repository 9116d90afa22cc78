/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Locks. A mutex for what may sleep or call the kernel (adaptive, so a short
 * hold is spun for), and an optional form of it for objects whose threading
 * level may promise that no lock is needed.
 *
 * A pure spin lock is deliberately absent: machines with two cores are common
 * and a spinning waiter takes the core that the holder needs.
 */
#ifndef VRC_LOCK_H
#define VRC_LOCK_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "compiler.h"

struct lock {
	pthread_mutex_t mutex;
};

static inline void lock_init(struct lock *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
#ifdef NDEBUG
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
#else
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
#endif
	pthread_mutex_init(&lock->mutex, &attr);
	pthread_mutexattr_destroy(&attr);
}

static inline void lock_fini(struct lock *lock)
{
	pthread_mutex_destroy(&lock->mutex);
}

static inline void lock_take(struct lock *lock)
{
	int err = pthread_mutex_lock(&lock->mutex);

	assert(err == 0);
	(void)err;
}

static inline bool lock_try(struct lock *lock)
{
	return pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void lock_drop(struct lock *lock)
{
	int err = pthread_mutex_unlock(&lock->mutex);

	assert(err == 0);
	(void)err;
}

/* Debug builds use error-checking mutexes, which know their holder. */
static inline void lock_assert_held(struct lock *lock)
{
#ifndef NDEBUG
	assert(pthread_mutex_lock(&lock->mutex) == EDEADLK);
#else
	(void)lock;
#endif
}

#endif
