/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What differs between libfabric 1.17 and 2.x. We build against either; what was
 * built against 1.17 also loads on 2.x. Nothing else in the provider tests a version.
 */
#ifndef VRC_COMPAT_H
#define VRC_COMPAT_H

#include <rdma/fabric.h>

#include "compiler.h"
#include "fi_names.h"

/*
 * "Not through a cache": a flag of libfabric's own, in no public header, with
 * which the providers that it layers over others (ofi_rxm) register their pools.
 * The same bit in 1.17 and in 2.x.
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

/* The mr_mode bits that FI_MR_BASIC stood for before API version 1.5. */
enum {
	VRC_MR_BASIC_MAP =
		FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
};

#endif
