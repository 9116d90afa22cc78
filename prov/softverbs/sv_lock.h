/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The lock of the data path, of which a message takes ten, almost always free.
 * Everything else uses lock.h, which in debug builds knows its holder.
 */
#ifndef SV_LOCK_H
#define SV_LOCK_H

#include "word_lock.h"

struct sv_lock {
	struct word_lock lock;
};

static inline void sv_lock_init(struct sv_lock *lock)
{
	word_lock_init(&lock->lock);
}

static inline bool sv_lock_try(struct sv_lock *lock)
{
	return word_lock_try(&lock->lock);
}

static inline void sv_lock_take(struct sv_lock *lock)
{
	word_lock_take(&lock->lock);
}

static inline void sv_lock_drop(struct sv_lock *lock)
{
	word_lock_drop(&lock->lock);
}

#endif
