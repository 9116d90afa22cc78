/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The fabric: the name of an IP network. */
#ifndef VRC_FABRIC_H
#define VRC_FABRIC_H

#include <stdatomic.h>

#include <rdma/fabric.h>

#include "vrc.h"

struct vrc_fabric {
	struct fid_fabric fid;
	atomic_int ref;
	char *name;
};

VRC_CONVERTER(vrc_fabric, fid_fabric)

/* vrc_fabric.c */
int vrc_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		    void *context);

#endif
