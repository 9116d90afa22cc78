/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Atomic operations. */
#ifndef VRC_ATOMIC_H
#define VRC_ATOMIC_H

#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>

#include "compiler.h"

struct vrc_domain;

/* vrc_atomic.c */
extern const struct fi_ops_atomic vrc_atomic_ops_locked;
extern const struct fi_ops_atomic vrc_atomic_ops_unlocked;
/* fi_domain with FI_ATOMIC, and its reverse. */
int vrc_atomic_open(struct vrc_domain *domain) __must_check;
void vrc_atomic_close(struct vrc_domain *domain);
int vrc_query_atomic(struct fid_domain *domain, enum fi_datatype datatype,
		     enum fi_op op, struct fi_atomic_attr *attr,
		     uint64_t flags);

#endif
