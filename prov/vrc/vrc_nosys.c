/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What we do not offer, one function per signature, all -FI_ENOSYS. libfabric's
 * inlines jump through these tables without looking, so no slot may be NULL.
 */
#include "vrc_compat.h"
#include "vrc_nosys.h"

int vrc_nosys_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	return -FI_ENOSYS;
}

int vrc_nosys_control(struct fid *fid, int command, void *arg)
{
	return -FI_ENOSYS;
}

int vrc_nosys_ops_open(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context)
{
	return -FI_ENOSYS;
}

int vrc_nosys_tostr(const struct fid *fid, char *buf, size_t len)
{
	return -FI_ENOSYS;
}

int vrc_nosys_ops_set(struct fid *fid, const char *name, uint64_t flags,
		      void *ops, void *context)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_cancel(fid_t fid, void *context)
{
	return -FI_ENOSYS;
}

int vrc_nosys_getopt(fid_t fid, int level, int optname, void *optval,
		     size_t *optlen)
{
	return -FI_ENOPROTOOPT;
}

int vrc_nosys_setopt(fid_t fid, int level, int optname, const void *optval,
		     size_t optlen)
{
	return -FI_ENOPROTOOPT;
}

int vrc_nosys_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
		     struct fid_ep **tx_ep, void *context)
{
	return -FI_ENOSYS;
}

int vrc_nosys_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
		     struct fid_ep **rx_ep, void *context)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_size_left(struct fid_ep *ep)
{
	return -FI_ENOSYS;
}

const struct vrc_ep_table vrc_nosys_ep = {
	.ops = {
		.size = sizeof(struct fi_ops_ep),
		.cancel = vrc_nosys_cancel,
		.getopt = vrc_nosys_getopt,
		.setopt = vrc_nosys_setopt,
		.tx_ctx = vrc_nosys_tx_ctx,
		.rx_ctx = vrc_nosys_rx_ctx,
		.rx_size_left = vrc_nosys_size_left,
		.tx_size_left = vrc_nosys_size_left,
	},
	VRC_LATER,
};

static int name(fid_t fid, void *addr, size_t *addrlen)
{
	return -FI_ENOSYS;
}

static int setname(fid_t fid, void *addr, size_t addrlen)
{
	return -FI_ENOSYS;
}

static int getpeer(struct fid_ep *ep, void *addr, size_t *addrlen)
{
	return -FI_ENOSYS;
}

static int connect_ep(struct fid_ep *ep, const void *addr, const void *param,
		      size_t paramlen)
{
	return -FI_ENOSYS;
}

static int listen_pep(struct fid_pep *pep)
{
	return -FI_ENOSYS;
}

static int accept_ep(struct fid_ep *ep, const void *param, size_t paramlen)
{
	return -FI_ENOSYS;
}

static int reject_ep(struct fid_pep *pep, fid_t handle, const void *param,
		     size_t paramlen)
{
	return -FI_ENOSYS;
}

static int shutdown_ep(struct fid_ep *ep, uint64_t flags)
{
	return -FI_ENOSYS;
}

static int join(struct fid_ep *ep, const void *addr, uint64_t flags,
		struct fid_mc **mc, void *context)
{
	return -FI_ENOSYS;
}

const struct fi_ops_cm vrc_nosys_cm = {
	.size = sizeof(struct fi_ops_cm),
	.setname = setname,
	.getname = name,
	.getpeer = getpeer,
	.connect = connect_ep,
	.listen = listen_pep,
	.accept = accept_ep,
	.reject = reject_ep,
	.shutdown = shutdown_ep,
	.join = join,
};

ssize_t vrc_nosys_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
		       fi_addr_t src_addr, void *context)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_recvv(struct fid_ep *ep, const struct iovec *iov,
			void **desc, size_t count, fi_addr_t src_addr,
			void *context)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_msg(struct fid_ep *ep, const struct fi_msg *msg,
		      uint64_t flags)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_send(struct fid_ep *ep, const void *buf, size_t len,
		       void *desc, fi_addr_t dest_addr, void *context)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_sendv(struct fid_ep *ep, const struct iovec *iov,
			void **desc, size_t count, fi_addr_t dest_addr,
			void *context)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_inject(struct fid_ep *ep, const void *buf, size_t len,
			 fi_addr_t dest_addr)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_senddata(struct fid_ep *ep, const void *buf, size_t len,
			   void *desc, uint64_t data, fi_addr_t dest_addr,
			   void *context)
{
	return -FI_ENOSYS;
}

ssize_t vrc_nosys_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			     uint64_t data, fi_addr_t dest_addr)
{
	return -FI_ENOSYS;
}

static ssize_t rma_read(struct fid_ep *ep, void *buf, size_t len, void *desc,
			fi_addr_t src_addr, uint64_t addr, uint64_t key,
			void *context)
{
	return -FI_ENOSYS;
}

/* readv and writev */
static ssize_t rma_iov(struct fid_ep *ep, const struct iovec *iov, void **desc,
		       size_t count, fi_addr_t peer, uint64_t addr,
		       uint64_t key, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t rma_msg(struct fid_ep *ep, const struct fi_msg_rma *msg,
		       uint64_t flags)
{
	return -FI_ENOSYS;
}

static ssize_t rma_write(struct fid_ep *ep, const void *buf, size_t len,
			 void *desc, fi_addr_t dest_addr, uint64_t addr,
			 uint64_t key, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t rma_inject(struct fid_ep *ep, const void *buf, size_t len,
			  fi_addr_t dest_addr, uint64_t addr, uint64_t key)
{
	return -FI_ENOSYS;
}

static ssize_t rma_writedata(struct fid_ep *ep, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t dest_addr,
			     uint64_t addr, uint64_t key, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t rma_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest_addr, uint64_t addr,
			      uint64_t key)
{
	return -FI_ENOSYS;
}

const struct fi_ops_rma vrc_nosys_rma = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_iov,
	.readmsg = rma_msg,
	.write = rma_write,
	.writev = rma_iov,
	.writemsg = rma_msg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};

static ssize_t trecv(struct fid_ep *ep, void *buf, size_t len, void *desc,
		     fi_addr_t src_addr, uint64_t tag, uint64_t ignore,
		     void *context)
{
	return -FI_ENOSYS;
}

static ssize_t trecvv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		      size_t count, fi_addr_t src_addr, uint64_t tag,
		      uint64_t ignore, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t tmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
		    uint64_t flags)
{
	return -FI_ENOSYS;
}

static ssize_t tsend(struct fid_ep *ep, const void *buf, size_t len, void *desc,
		     fi_addr_t dest_addr, uint64_t tag, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t tsendv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		      size_t count, fi_addr_t dest_addr, uint64_t tag,
		      void *context)
{
	return -FI_ENOSYS;
}

static ssize_t tinject(struct fid_ep *ep, const void *buf, size_t len,
		       fi_addr_t dest_addr, uint64_t tag)
{
	return -FI_ENOSYS;
}

static ssize_t tsenddata(struct fid_ep *ep, const void *buf, size_t len,
			 void *desc, uint64_t data, fi_addr_t dest_addr,
			 uint64_t tag, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t tinjectdata(struct fid_ep *ep, const void *buf, size_t len,
			   uint64_t data, fi_addr_t dest_addr, uint64_t tag)
{
	return -FI_ENOSYS;
}

const struct fi_ops_tagged vrc_nosys_tagged = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = trecv,
	.recvv = trecvv,
	.recvmsg = tmsg,
	.send = tsend,
	.sendv = tsendv,
	.sendmsg = tmsg,
	.inject = tinject,
	.senddata = tsenddata,
	.injectdata = tinjectdata,
};

static ssize_t atomic_write(struct fid_ep *ep, const void *buf, size_t count,
			    void *desc, fi_addr_t dest_addr, uint64_t addr,
			    uint64_t key, enum fi_datatype datatype,
			    enum fi_op op, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov,
			     void **desc, size_t count, fi_addr_t dest_addr,
			     uint64_t addr, uint64_t key,
			     enum fi_datatype datatype, enum fi_op op,
			     void *context)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_writemsg(struct fid_ep *ep,
			       const struct fi_msg_atomic *msg, uint64_t flags)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_inject(struct fid_ep *ep, const void *buf, size_t count,
			     fi_addr_t dest_addr, uint64_t addr, uint64_t key,
			     enum fi_datatype datatype, enum fi_op op)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_readwrite(struct fid_ep *ep, const void *buf,
				size_t count, void *desc, void *result,
				void *result_desc, fi_addr_t dest_addr,
				uint64_t addr, uint64_t key,
				enum fi_datatype datatype, enum fi_op op,
				void *context)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_readwritev(struct fid_ep *ep, const struct fi_ioc *iov,
				 void **desc, size_t count,
				 struct fi_ioc *resultv, void **result_desc,
				 size_t result_count, fi_addr_t dest_addr,
				 uint64_t addr, uint64_t key,
				 enum fi_datatype datatype, enum fi_op op,
				 void *context)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_readwritemsg(struct fid_ep *ep,
				   const struct fi_msg_atomic *msg,
				   struct fi_ioc *resultv, void **result_desc,
				   size_t result_count, uint64_t flags)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_compwrite(struct fid_ep *ep, const void *buf,
				size_t count, void *desc, const void *compare,
				void *compare_desc, void *result,
				void *result_desc, fi_addr_t dest_addr,
				uint64_t addr, uint64_t key,
				enum fi_datatype datatype, enum fi_op op,
				void *context)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_compwritev(struct fid_ep *ep, const struct fi_ioc *iov,
				 void **desc, size_t count,
				 const struct fi_ioc *comparev,
				 void **compare_desc, size_t compare_count,
				 struct fi_ioc *resultv, void **result_desc,
				 size_t result_count, fi_addr_t dest_addr,
				 uint64_t addr, uint64_t key,
				 enum fi_datatype datatype, enum fi_op op,
				 void *context)
{
	return -FI_ENOSYS;
}

static ssize_t atomic_compwritemsg(struct fid_ep *ep,
				   const struct fi_msg_atomic *msg,
				   const struct fi_ioc *comparev,
				   void **compare_desc, size_t compare_count,
				   struct fi_ioc *resultv, void **result_desc,
				   size_t result_count, uint64_t flags)
{
	return -FI_ENOSYS;
}

static int atomic_valid(struct fid_ep *ep, enum fi_datatype datatype,
			enum fi_op op, size_t *count)
{
	return -FI_EOPNOTSUPP;
}

const struct fi_ops_atomic vrc_nosys_atomic = {
	.size = sizeof(struct fi_ops_atomic),
	.write = atomic_write,
	.writev = atomic_writev,
	.writemsg = atomic_writemsg,
	.inject = atomic_inject,
	.readwrite = atomic_readwrite,
	.readwritev = atomic_readwritev,
	.readwritemsg = atomic_readwritemsg,
	.compwrite = atomic_compwrite,
	.compwritev = atomic_compwritev,
	.compwritemsg = atomic_compwritemsg,
	.writevalid = atomic_valid,
	.readwritevalid = atomic_valid,
	.compwritevalid = atomic_valid,
};

static ssize_t barrier(struct fid_ep *ep, fi_addr_t coll_addr, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t broadcast(struct fid_ep *ep, void *buf, size_t count,
			 void *desc, fi_addr_t coll_addr, fi_addr_t root_addr,
			 enum fi_datatype datatype, uint64_t flags,
			 void *context)
{
	return -FI_ENOSYS;
}

/* alltoall and allgather */
static ssize_t all(struct fid_ep *ep, const void *buf, size_t count, void *desc,
		   void *result, void *result_desc, fi_addr_t coll_addr,
		   enum fi_datatype datatype, uint64_t flags, void *context)
{
	return -FI_ENOSYS;
}

/* allreduce and reduce_scatter */
static ssize_t allreduce(struct fid_ep *ep, const void *buf, size_t count,
			 void *desc, void *result, void *result_desc,
			 fi_addr_t coll_addr, enum fi_datatype datatype,
			 enum fi_op op, uint64_t flags, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t reduce(struct fid_ep *ep, const void *buf, size_t count,
		      void *desc, void *result, void *result_desc,
		      fi_addr_t coll_addr, fi_addr_t root_addr,
		      enum fi_datatype datatype, enum fi_op op, uint64_t flags,
		      void *context)
{
	return -FI_ENOSYS;
}

/* scatter and gather */
static ssize_t rooted(struct fid_ep *ep, const void *buf, size_t count,
		      void *desc, void *result, void *result_desc,
		      fi_addr_t coll_addr, fi_addr_t root_addr,
		      enum fi_datatype datatype, uint64_t flags, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t collective_msg(struct fid_ep *ep,
			      const struct fi_msg_collective *msg,
			      struct fi_ioc *resultv, void **result_desc,
			      size_t result_count, uint64_t flags)
{
	return -FI_ENOSYS;
}

static ssize_t barrier2(struct fid_ep *ep, fi_addr_t coll_addr, uint64_t flags,
			void *context)
{
	return -FI_ENOSYS;
}

const struct fi_ops_collective vrc_nosys_collective = {
	.size = sizeof(struct fi_ops_collective),
	.barrier = barrier,
	.broadcast = broadcast,
	.alltoall = all,
	.allreduce = allreduce,
	.allgather = all,
	.reduce_scatter = allreduce,
	.reduce = reduce,
	.scatter = rooted,
	.gather = rooted,
	.msg = collective_msg,
	.barrier2 = barrier2,
};
