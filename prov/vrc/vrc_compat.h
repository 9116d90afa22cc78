/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What differs between libfabric 1.17 and 2.x. We build against either; what was
 * built against 1.17 also loads on 2.x. Nothing else in the provider tests a version.
 */
#ifndef VRC_COMPAT_H
#define VRC_COMPAT_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "compiler.h"
#include "fi_names.h"

/*
 * "Not through a cache": a flag of libfabric's own, in no public header, with
 * which the providers that it layers over others (ofi_rxm) register their pools.
 * The same bit in 1.17 and in 2.x. It also tells us that one is there.
 */
#define VRC_MR_NOCACHE (UINT64_C(1) << 60)

/* Options of 2.x, in the order of its enumeration, which only grows. */
enum {
	VRC_OPT_MAX_MSG_SIZE = 12,
	VRC_OPT_MAX_RMA_SIZE = 14,
	VRC_OPT_MAX_ATOMIC_SIZE = 15,
	VRC_OPT_INJECT_MSG_SIZE = 16,
	VRC_OPT_INJECT_RMA_SIZE = 18,
	VRC_OPT_INJECT_ATOMIC_SIZE = 19,
};

/*
 * After 2.6, the tables of endpoints, completion queues and counters end with one
 * more slot, export_xpu, and its calls jump through it whatever .size says. Where
 * our headers do not have it, ours stands behind the table.
 */
struct vrc_ep_table {
	struct fi_ops_ep ops;
	int (*later)(void);
};

struct vrc_cq_table {
	struct fi_ops_cq ops;
	int (*later)(void);
};

struct vrc_cntr_table {
	struct fi_ops_cntr ops;
	int (*later)(void);
};

static inline int vrc_nosys_later(void)
{
	return -FI_ENOSYS;
}

#ifdef VRC_HAVE_EXPORT_XPU
#define VRC_LATER .ops.export_xpu = (void *)vrc_nosys_later
#else
#define VRC_LATER .later = vrc_nosys_later
#endif

/* The mr_mode bits that FI_MR_BASIC stood for before API version 1.5. */
enum {
	VRC_MR_BASIC_MAP =
		FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
};

#endif
