/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Shared transmit contexts. */
#ifndef VRC_STX_H
#define VRC_STX_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

struct vrc_ep;

/* vrc_stx.c */
int vrc_stx_open(struct fid_domain *domain, struct fi_tx_attr *attr,
		 struct fid_stx **stx, void *context);
int vrc_stx_bind(struct vrc_ep *ep, struct fid *fid);
void vrc_stx_unbind(struct vrc_ep *ep);

#endif
