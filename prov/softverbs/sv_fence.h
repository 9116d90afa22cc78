/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Full fences: what was stored before is seen by others before what is looked at
 * afterwards. Two threads that each store and then look at what the other stored
 * need one each, or both miss it.
 *
 * Where one of the two comes with every message and the other is rare, and both are
 * of this process, the rare one may pay for both: membarrier(2) makes every thread
 * pass a fence, wherever it is. See sv_fence_light().
 */
#ifndef SV_FENCE_H
#define SV_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "compiler.h"

/* ThreadSanitizer does not know fences, but it knows this. */
static __hot_inline void sv_fence(void)
{
#ifdef __SANITIZE_THREAD__
	static atomic_int dummy;

	atomic_fetch_add(&dummy, 0);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* sv_fence.c. Whether the kernel has the call; constant once softverbs is in use. */
extern bool sv_fence_is_paid;

/* Costs nothing if those it pairs with are all sv_fence_heavy(). */
static __hot_inline void sv_fence_light(void)
{
	if (unlikely(!sv_fence_is_paid))
		sv_fence();
	else
		atomic_signal_fence(memory_order_seq_cst);
}

/* A system call. */
void sv_fence_heavy(void);

/* Before the first of either. Without the call both are sv_fence(). */
void sv_fence_start(void);

#endif
