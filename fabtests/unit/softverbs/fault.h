/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults, hook by hook: what is asked for happens, and what is not does not. Setting
 * them, counting them, and a device or a connection for them to strike.
 */
#ifndef FAULT_H
#define FAULT_H

#include "sv_fault.h"

#include <criterion/criterion.h>

#include "cm_peer.h"

#define DEV "softverbs0"

static struct peer listener, active, passive;

static inline struct ibv_context *open_dev(void)
{
	struct ibv_device **list = sv_get_device_list(NULL);
	struct ibv_context *ctx = sv_open_device(list[0]);

	sv_free_device_list(list);
	return ctx;
}

/* NULL: no faults from now on. */
static inline void set(const char *spec)
{
	cr_assert_eq(sv_fault_set(spec), 0, "%s", spec ? spec : "none");
}

static inline uint64_t fired(enum sv_fault_hook hook)
{
	uint64_t seen, cnt;

	sv_fault_count(hook, &seen, &cnt);
	return cnt;
}

static inline void pair(void)
{
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	peer_pair(&listener, &active, &passive, "127.0.0.1", port);
}

static inline void unpair(void)
{
	set(NULL);
	peer_close(&active);
	peer_close(&passive);
	peer_close(&listener);
}

#endif
