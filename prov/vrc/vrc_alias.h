/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The alias of an endpoint: vrc_alias.c, and its atomics, vrc_alias_atomic.c. */
#ifndef VRC_ALIAS_H
#define VRC_ALIAS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>

#include "vrc_ep.h"

struct vrc_alias {
	struct fid_ep fid;
	struct vrc_ep *ep;
	/* May be set while others post. */
	_Atomic uint64_t tx_flags;
	_Atomic uint64_t rx_flags;
};

static inline const struct vrc_alias *vrc_alias(const struct fid_ep *fid)
{
	return (const struct vrc_alias *)((const char *)fid -
					  offsetof(struct vrc_alias, fid));
}

static inline struct fid_ep *vrc_alias_parent(const struct fid_ep *fid)
{
	return &vrc_alias(fid)->ep->fid;
}

/* vrc_alias.c */
int vrc_ep_alias(struct vrc_ep *ep, struct fi_alias *arg);
/* Whether a fid of class FI_CLASS_EP is one, not an endpoint itself. */
bool vrc_is_alias(const struct fid *fid);

/* vrc_alias_atomic.c */
extern const struct fi_ops_atomic vrc_alias_atomic_ops;

#endif
