/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What exists once per process: its start, the list of its contexts, and what
 * becomes of it all in a child of fork().
 */
#include "sv_int.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

static struct lock core_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct list contexts = { &contexts, &contexts }; /* core_lock */
static uint8_t identity[16]; /* core_lock; constant once started */
static bool started; /* core_lock */

/* Each connection takes a few descriptors, and the soft limit is often 1024. */
static void raise_fd_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur == lim.rlim_max)
		return;
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}

/* Positive errno. */
int sv_core_start(void)
{
	int err = 0;

	lock_take(&core_lock);
	if (!started) {
		err = sv_mr_start();
		if (!err) {
			raise_fd_limit();
			sv_random(identity, sizeof(identity));
			started = true;
		}
	}
	lock_drop(&core_lock);
	return err;
}

/* Tells this process from every other, forked children included. */
const uint8_t *sv_core_identity(void)
{
	return identity;
}

void sv_core_add_ctx(struct sv_ctx *ctx)
{
	lock_take(&core_lock);
	list_add_tail(&contexts, &ctx->node);
	lock_drop(&core_lock);
}

void sv_core_del_ctx(struct sv_ctx *ctx)
{
	lock_take(&core_lock);
	list_del(&ctx->node);
	lock_drop(&core_lock);
}

/*
 * The child has one thread and copies of locks in any state: none is taken.
 * Its inherited objects are dead, but a device opened anew works.
 */
void sv_core_fork_child(void)
{
	struct list *pos;

	list_for_each(pos, &contexts)
		sv_ops_kill(&list_entry(pos, struct sv_ctx, node)->v);
	list_init(&contexts);
	lock_init(&core_lock);
	started = false;
	sv_device_fork_child();
	sv_lease_fork_child();
	sv_link_fork_child();
	sv_qp_fork_child();
	sv_mr_fork_child();
}
