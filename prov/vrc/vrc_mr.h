/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Registered memory: by the application, whose descriptors are numbers, and by us for
 * one operation (vrc_local.c).
 */
#ifndef VRC_MR_H
#define VRC_MR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_verbs.h"

struct vrc_domain;
struct vrc_ep;
struct vrc_ring;

struct vrc_mr {
	struct fid_mr fid;
	struct vrc_domain *domain;
	struct ibv_mr *mr;
	size_t len;
};

VRC_CONVERTER(vrc_mr, fid_mr)

/* vrc_mr.c */
extern const struct fi_ops_mr vrc_mr_ops;
/* ibv_access_flags for FI_SEND, FI_REMOTE_READ and so on. */
int vrc_mr_access(const struct vrc_domain *domain, uint64_t access);
/* Says why memory could not be registered; err is a positive errno. */
void vrc_mr_explain(const struct vrc_domain *domain, const void *buf,
		    size_t len, int err);
/* True if desc came from a registration in the domain with that tag. */
static inline bool vrc_desc_ok(uint32_t desc_tag, const void *desc)
{
	return (uint32_t)((uintptr_t)desc >> 32) == desc_tag;
}
static inline void *vrc_desc(uint32_t desc_tag, uint32_t lkey)
{
	return (void *)((uintptr_t)desc_tag << 32 | lkey);
}
static inline uint32_t vrc_desc_lkey(const void *desc)
{
	return (uint32_t)(uintptr_t)desc;
}

/* vrc_local.c */
int vrc_local_open(struct vrc_ring *ring) __must_check;
/* Registers the cnt pieces of sge for an operation, whose registrations are
 * kept in the VRC_IOV_LIMIT of slot, and fills in the lkeys; access is
 * ibv_access_flags. Returns cnt or -FI_E*. */
int vrc_local_reg(struct vrc_domain *domain, struct ibv_mr **slot, int cnt,
		  int access, struct ibv_sge *sge) __must_check;
/* Deregisters what a slot holds. */
void vrc_local_drop(struct vrc_domain *domain, struct ibv_mr **slot);
/* Deregisters what the records first .. end - 1 hold. */
void vrc_local_release(struct vrc_ep *ep, struct vrc_ring *ring, uint32_t first,
		       uint32_t end);

#endif
