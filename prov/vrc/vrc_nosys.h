/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What libfabric may call and we do not have: one function per signature. */
#ifndef VRC_NOSYS_H
#define VRC_NOSYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "vrc_compat.h"

/* vrc_nosys.c */
ssize_t vrc_nosys_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
		       fi_addr_t src_addr, void *context);
ssize_t vrc_nosys_recvv(struct fid_ep *ep, const struct iovec *iov,
			void **desc, size_t count, fi_addr_t src_addr,
			void *context);
ssize_t vrc_nosys_msg(struct fid_ep *ep, const struct fi_msg *msg,
		      uint64_t flags);
ssize_t vrc_nosys_send(struct fid_ep *ep, const void *buf, size_t len,
		       void *desc, fi_addr_t dest_addr, void *context);
ssize_t vrc_nosys_sendv(struct fid_ep *ep, const struct iovec *iov,
			void **desc, size_t count, fi_addr_t dest_addr,
			void *context);
ssize_t vrc_nosys_inject(struct fid_ep *ep, const void *buf, size_t len,
			 fi_addr_t dest_addr);
ssize_t vrc_nosys_senddata(struct fid_ep *ep, const void *buf, size_t len,
			   void *desc, uint64_t data, fi_addr_t dest_addr,
			   void *context);
ssize_t vrc_nosys_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			     uint64_t data, fi_addr_t dest_addr);
ssize_t vrc_nosys_cancel(fid_t fid, void *context);
int vrc_nosys_getopt(fid_t fid, int level, int optname, void *optval,
		     size_t *optlen);
int vrc_nosys_setopt(fid_t fid, int level, int optname, const void *optval,
		     size_t optlen);
int vrc_nosys_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
		     struct fid_ep **tx_ep, void *context);
int vrc_nosys_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
		     struct fid_ep **rx_ep, void *context);
ssize_t vrc_nosys_size_left(struct fid_ep *ep);
extern const struct vrc_ep_table vrc_nosys_ep;
extern const struct fi_ops_cm vrc_nosys_cm;
extern const struct fi_ops_rma vrc_nosys_rma;
extern const struct fi_ops_tagged vrc_nosys_tagged;
extern const struct fi_ops_atomic vrc_nosys_atomic;
extern const struct fi_ops_collective vrc_nosys_collective;
int vrc_nosys_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int vrc_nosys_control(struct fid *fid, int command, void *arg);
int vrc_nosys_ops_open(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context);
int vrc_nosys_tostr(const struct fid *fid, char *buf, size_t len);
int vrc_nosys_ops_set(struct fid *fid, const char *name, uint64_t flags,
		      void *ops, void *context);

#endif
