/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Statistics by fi_open_ops. */
#ifndef VRC_STATS_H
#define VRC_STATS_H

#include <stdint.h>

#include <rdma/fabric.h>

/* vrc_stats.c: fi_open_ops of endpoints, completion queues and domains. */
int vrc_stats_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context);

#endif
