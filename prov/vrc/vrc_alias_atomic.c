/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Atomics of an alias: see vrc_alias.c. */
#include "vrc_alias.h"

/* What the calls without a struct have in common. */
struct call {
	const struct fi_ioc *iov;
	void **desc;
	size_t cnt;
	uint64_t addr;
	uint64_t key;
	enum fi_datatype datatype;
	enum fi_op op;
	void *context;
};

static struct fi_msg_atomic msg_of(const struct call *call,
				   struct fi_rma_ioc *rma)
{
	struct fi_msg_atomic msg = {
		.msg_iov = call->iov,
		.desc = call->desc,
		.iov_count = call->cnt,
		.rma_iov = rma,
		.rma_iov_count = 1,
		.datatype = call->datatype,
		.op = call->op,
		.context = call->context,
	};

	*rma = (struct fi_rma_ioc){ .addr = call->addr, .key = call->key };
	for (size_t i = 0; i < call->cnt; i++)
		rma->count += call->iov[i].count;
	return msg;
}

static ssize_t atomic_writev(struct fid_ep *fid, const struct fi_ioc *iov,
			     void **desc, size_t cnt, fi_addr_t dest_addr,
			     uint64_t addr, uint64_t key,
			     enum fi_datatype datatype, enum fi_op op,
			     void *context)
{
	const struct call call = { iov, desc, cnt, addr, key, datatype, op,
				   context };
	struct fi_rma_ioc rma;
	const struct fi_msg_atomic msg = msg_of(&call, &rma);

	return fi_atomicmsg(vrc_alias_parent(fid), &msg,
			    vrc_alias(fid)->tx_flags);
}

static ssize_t atomic_write(struct fid_ep *fid, const void *buf, size_t count,
			    void *desc, fi_addr_t dest_addr, uint64_t addr,
			    uint64_t key, enum fi_datatype datatype,
			    enum fi_op op, void *context)
{
	const struct fi_ioc iov = { (void *)(uintptr_t)buf, count };

	return atomic_writev(fid, &iov, &desc, 1, dest_addr, addr, key,
			     datatype, op, context);
}

static ssize_t atomic_writemsg(struct fid_ep *fid,
			       const struct fi_msg_atomic *msg, uint64_t flags)
{
	return fi_atomicmsg(vrc_alias_parent(fid), msg, flags);
}

static ssize_t atomic_inject(struct fid_ep *fid, const void *buf, size_t count,
			     fi_addr_t dest_addr, uint64_t addr, uint64_t key,
			     enum fi_datatype datatype, enum fi_op op)
{
	return fi_inject_atomic(vrc_alias_parent(fid), buf, count, dest_addr,
				addr, key, datatype, op);
}

static ssize_t atomic_readwritev(struct fid_ep *fid, const struct fi_ioc *iov,
				 void **desc, size_t cnt, struct fi_ioc *result,
				 void **result_desc, size_t result_cnt,
				 fi_addr_t dest_addr, uint64_t addr,
				 uint64_t key, enum fi_datatype datatype,
				 enum fi_op op, void *context)
{
	const struct call call = { iov, desc, cnt, addr, key, datatype, op,
				   context };
	struct fi_rma_ioc rma;
	const struct fi_msg_atomic msg = msg_of(&call, &rma);

	return fi_fetch_atomicmsg(vrc_alias_parent(fid), &msg, result,
				  result_desc, result_cnt,
				  vrc_alias(fid)->tx_flags);
}

static ssize_t atomic_readwrite(struct fid_ep *fid, const void *buf,
				size_t count, void *desc, void *result,
				void *result_desc, fi_addr_t dest_addr,
				uint64_t addr, uint64_t key,
				enum fi_datatype datatype, enum fi_op op,
				void *context)
{
	const struct fi_ioc iov = { (void *)(uintptr_t)buf, count };
	struct fi_ioc res = { result, count };

	return atomic_readwritev(fid, &iov, &desc, 1, &res, &result_desc, 1,
				 dest_addr, addr, key, datatype, op, context);
}

static ssize_t atomic_readwritemsg(struct fid_ep *fid,
				   const struct fi_msg_atomic *msg,
				   struct fi_ioc *result, void **result_desc,
				   size_t result_cnt, uint64_t flags)
{
	return fi_fetch_atomicmsg(vrc_alias_parent(fid), msg, result,
				  result_desc, result_cnt, flags);
}

static ssize_t atomic_compwritev(struct fid_ep *fid, const struct fi_ioc *iov,
				 void **desc, size_t cnt,
				 const struct fi_ioc *compare,
				 void **compare_desc, size_t compare_cnt,
				 struct fi_ioc *result, void **result_desc,
				 size_t result_cnt, fi_addr_t dest_addr,
				 uint64_t addr, uint64_t key,
				 enum fi_datatype datatype, enum fi_op op,
				 void *context)
{
	const struct call call = { iov, desc, cnt, addr, key, datatype, op,
				   context };
	struct fi_rma_ioc rma;
	const struct fi_msg_atomic msg = msg_of(&call, &rma);

	return fi_compare_atomicmsg(vrc_alias_parent(fid), &msg, compare,
				    compare_desc, compare_cnt, result,
				    result_desc, result_cnt,
				    vrc_alias(fid)->tx_flags);
}

static ssize_t atomic_compwrite(struct fid_ep *fid, const void *buf,
				size_t count, void *desc, const void *compare,
				void *compare_desc, void *result,
				void *result_desc, fi_addr_t dest_addr,
				uint64_t addr, uint64_t key,
				enum fi_datatype datatype, enum fi_op op,
				void *context)
{
	const struct fi_ioc iov = { (void *)(uintptr_t)buf, count };
	const struct fi_ioc cmp = { (void *)(uintptr_t)compare, count };
	struct fi_ioc res = { result, count };

	return atomic_compwritev(fid, &iov, &desc, 1, &cmp, &compare_desc, 1,
				 &res, &result_desc, 1, dest_addr, addr, key,
				 datatype, op, context);
}

static ssize_t atomic_compwritemsg(struct fid_ep *fid,
				   const struct fi_msg_atomic *msg,
				   const struct fi_ioc *compare,
				   void **compare_desc, size_t compare_cnt,
				   struct fi_ioc *result, void **result_desc,
				   size_t result_cnt, uint64_t flags)
{
	return fi_compare_atomicmsg(vrc_alias_parent(fid), msg, compare,
				    compare_desc, compare_cnt, result,
				    result_desc, result_cnt, flags);
}

static int atomic_writevalid(struct fid_ep *fid, enum fi_datatype datatype,
			     enum fi_op op, size_t *count)
{
	return fi_atomicvalid(vrc_alias_parent(fid), datatype, op, count);
}

static int atomic_readwritevalid(struct fid_ep *fid, enum fi_datatype datatype,
				 enum fi_op op, size_t *count)
{
	return fi_fetch_atomicvalid(vrc_alias_parent(fid), datatype, op, count);
}

static int atomic_compwritevalid(struct fid_ep *fid, enum fi_datatype datatype,
				 enum fi_op op, size_t *count)
{
	return fi_compare_atomicvalid(vrc_alias_parent(fid), datatype, op,
				      count);
}

const struct fi_ops_atomic vrc_alias_atomic_ops = {
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
	.writevalid = atomic_writevalid,
	.readwritevalid = atomic_readwritevalid,
	.compwritevalid = atomic_compwritevalid,
};
