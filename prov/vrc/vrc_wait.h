/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What may be waited for: fi_trywait, wait sets (vrc_wait.c), poll sets (vrc_poll.c). */
#ifndef VRC_WAIT_H
#define VRC_WAIT_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "compiler.h"

struct vrc_fabric;

/* vrc_wait.c */
/* 0 if it is safe to wait for fid's descriptor, -FI_EAGAIN if there is news. */
int vrc_trywait(struct fid *fid);
int vrc_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr,
		  struct fid_wait **waitset);
/* 0, or an error and a warning: what obj says cannot be waited for. */
int vrc_wait_obj_check(const char *call, const struct vrc_fabric *fabric,
		       enum fi_wait_obj obj, const struct fid_wait *set);
/* fid, which fd stands for, becomes a member; or ends to be one. A set that is
 * NULL is none. */
int vrc_wait_join(struct fid_wait *set, struct fid *fid, int fd) __must_check;
void vrc_wait_leave(struct fid_wait *set, const struct fid *fid);

/* vrc_poll.c */
int vrc_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		  struct fid_poll **pollset);

#endif
