/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Completion queues that show nothing for a while: the end of it. Who was told of
 * completions, saw none and sleeps again is to be told anew.
 */
#include "sv_fault.h"

#include "sv_engine.h"

#include <errno.h>
#include <stdlib.h>

enum {
	NS_PER_MS = 1000000,
};

/* Stays with its completion queue, once there is one. */
struct sv_cq_wake {
	struct sv_timer timer;
	struct sv_defer defer;
	struct sv_cq *cq;
};

/* Outside the locks of completion queues. */
static struct lock wake_lock = { PTHREAD_MUTEX_INITIALIZER };

static void raise_held(struct sv_cq *cq)
{
	sv_lock_take(&cq->lock);
	if (atomic_load(&cq->arm) != SV_ARM_NONE &&
	    atomic_load(&cq->prod) != atomic_load(&cq->cons)) {
		atomic_store(&cq->arm, SV_ARM_NONE);
		sv_chan_raise(cq);
	}
	sv_lock_drop(&cq->lock);
}

static void on_end(void *arg)
{
	struct sv_cq_wake *wake = arg;

	lock_take(&wake_lock);
	if (sv_timer_expired(&wake->timer)) {
		sv_timer_cancel(&wake->timer);
		raise_held(wake->cq);
	}
	lock_drop(&wake_lock);
}

int sv_fault_wake_cq(struct sv_cq *cq, uint64_t after_ns)
{
	int err = 0;

	lock_take(&wake_lock);
	if (!cq->fault_wake)
		cq->fault_wake = calloc(1, sizeof(*cq->fault_wake));
	if (!cq->fault_wake) {
		err = ENOMEM;
		goto out;
	}
	cq->fault_wake->cq = cq;
	/* A day at most, which fits. */
	sv_timer_set(&cq->fault_wake->timer,
		     (unsigned int)((after_ns + NS_PER_MS - 1) / NS_PER_MS),
		     on_end, cq->fault_wake);
out:
	lock_drop(&wake_lock);
	return err;
}

static void wake_free(struct sv_defer *defer)
{
	free(container_of(defer, struct sv_cq_wake, defer));
}

void sv_fault_drop_cq(struct sv_cq *cq)
{
	struct sv_cq_wake *wake = cq->fault_wake;

	if (!wake)
		return;
	lock_take(&wake_lock);
	cq->fault_wake = NULL;
	sv_timer_cancel(&wake->timer);
	lock_drop(&wake_lock);
	sv_engine_defer(&wake->defer, wake_free);
}

/* The timers are the parent's. */
void sv_fault_cq_fork_child(void)
{
	lock_init(&wake_lock);
}
