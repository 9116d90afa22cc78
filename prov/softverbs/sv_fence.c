/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The rare end of a pair of fences: membarrier(2). It is asked for once; a
 * container's filter may refuse it.
 */
#include "sv_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool sv_fence_is_paid;

static bool membarrier(int cmd)
{
	return !syscall(SYS_membarrier, cmd, 0, 0);
}

void sv_fence_start(void)
{
	sv_fence_is_paid =
		membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

/* It cannot fail in a process that has registered. */
void sv_fence_heavy(void)
{
	sv_fence();
	if (likely(sv_fence_is_paid))
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}
