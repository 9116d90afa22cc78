/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What exists once per process: its start, the list of its contexts, and what
 * becomes of it all in a child of fork().
 */
#include "sv_int.h"
#include "sv_fault.h"
#include "sv_fence.h"
#include "sv_engine.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

static struct lock core_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct lock contexts_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct list contexts = { &contexts, &contexts }; /* contexts_lock */
static uint8_t identity[16]; /* core_lock; constant once started */
static bool started; /* core_lock */
static int atfork_err; /* constant once loaded */

/* Each connection takes a few descriptors, and the soft limit is often 1024. */
static void raise_fd_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur == lim.rlim_max)
		return;
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}

/* The engine's comes last, as everywhere: timers are set under the others. */
static void fork_prepare(void)
{
	lock_take(&contexts_lock);
	sv_link_fork_prepare();
	sv_engine_fork_prepare();
}

static void fork_parent(void)
{
	sv_engine_fork_parent();
	sv_link_fork_parent();
	lock_drop(&contexts_lock);
}

static void fork_child(void)
{
	sv_engine_fork_child();
	sv_core_fork_child();
	sv_link_fork_parent();
	lock_drop(&contexts_lock);
}

/*
 * At load time, so that it is before the connection manager's: of handlers
 * registered later the prepare part runs earlier, and its lock comes first.
 */
static void __attribute__((constructor)) fork_register(void)
{
	atfork_err = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* Positive errno. */
int sv_core_start(void)
{
	int err = 0;

	lock_take(&core_lock);
	if (started)
		goto out;
	err = atfork_err;
	if (err)
		goto out;
	err = sv_mr_start();
	if (err)
		goto out;
	raise_fd_limit();
	sv_fence_start();
	sv_random(identity, sizeof(identity));
	started = true;
out:
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
	lock_take(&contexts_lock);
	list_add_tail(&contexts, &ctx->node);
	lock_drop(&contexts_lock);
}

void sv_core_del_ctx(struct sv_ctx *ctx)
{
	lock_take(&contexts_lock);
	list_del(&ctx->node);
	lock_drop(&contexts_lock);
}

void sv_core_raise(struct sv_dev *dev, enum ibv_event_type type)
{
	struct ibv_async_event event = {
		.element.port_num = SV_PORT,
		.event_type = type,
	};
	struct sv_ctx *ctx;
	struct list *pos;

	lock_take(&contexts_lock);
	list_for_each(pos, &contexts) {
		ctx = list_entry(pos, struct sv_ctx, node);
		if (ctx->dev == dev)
			sv_async_raise(ctx, &event);
	}
	lock_drop(&contexts_lock);
}

void sv_core_for_each_ctx(void (*fn)(struct sv_ctx *ctx))
{
	struct list *pos;

	lock_take(&contexts_lock);
	list_for_each(pos, &contexts)
		fn(list_entry(pos, struct sv_ctx, node));
	lock_drop(&contexts_lock);
}

/*
 * The child has one thread and copies of locks in any state: none is taken.
 * Its inherited objects are dead, but a device opened anew works.
 */
void sv_core_fork_child(void)
{
	struct sv_ctx *ctx;
	struct list *pos;

	list_for_each(pos, &contexts) {
		ctx = list_entry(pos, struct sv_ctx, node);
		ctx->dead = true;
		sv_ops_kill(&ctx->v);
	}
	list_init(&contexts);
	lock_init(&core_lock);
	started = false;
	sv_device_fork_child();
	sv_fault_fork_child();
	sv_lease_fork_child();
	sv_link_fork_child();
	sv_qpn_fork_child();
	sv_mr_fork_child();
}
