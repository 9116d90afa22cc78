/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory registration. Access rights are what the request says and no more, so
 * that read-only memory can be sent from and exposed.
 *
 * A descriptor is not a pointer: its lower half is the lkey, its upper half
 * marks the domain. The data path reads no memory to use it, and a wrong one is
 * seen as such.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_compat.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_log.h"
#include "vrc_mr.h"
#include "vrc_nosys.h"

static_assert(sizeof(void *) == 8, "a descriptor holds a tag and an lkey");

enum {
	MR_ACCESS = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
		    FI_REMOTE_WRITE,
};

static int mr_close(struct fid *fid)
{
	struct vrc_mr *mr = container_of(fid, struct vrc_mr, fid.fid);
	int ret;

	ret = mr->domain->ops->dereg_mr(mr->mr);
	if (ret) {
		vrc_warn(MR, "mr key 0x%" PRIx64 ": cannot be deregistered: %s\n",
			 mr->fid.key, fi_strerror(-vrc_err(ret)));
		return vrc_err(ret);
	}
	atomic_fetch_sub(&mr->domain->mr_cnt, 1);
	atomic_fetch_sub(&mr->domain->mr_bytes, mr->len);
	atomic_fetch_sub(&mr->domain->ref, 1);
	free(mr);
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	const struct vrc_mr *mr = container_of(fid, struct vrc_mr, fid.fid);

	vrc_warn(MR, "mr key 0x%" PRIx64 ": fi_mr_bind not supported: %s\n",
		 mr->fid.key, bfid->fclass == FI_CLASS_CNTR ?
		 "a queue pair does not tell what is written to a region, so "
		 "there is no FI_RMA_EVENT to count" :
		 "a region is of its domain, not of an endpoint or anything else");
	return -FI_ENOSYS;
}

static const struct fi_ops mr_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = mr_bind,
	.control = vrc_nosys_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

int vrc_mr_access(const struct vrc_domain *domain, uint64_t access)
{
	int flags = 0;

	if (access & (FI_RECV | FI_READ))
		flags |= IBV_ACCESS_LOCAL_WRITE;
	if (access & FI_REMOTE_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	/* IBTA C10-56: remote write wants local write. */
	if (access & FI_REMOTE_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
	/* An atomic may always write, even if it only reads. */
	if (access & FI_REMOTE_WRITE && domain->scratch_mr)
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	/* RFC 5040 6.6: the sink of a read is written to by the peer. */
	if (domain->dev->is_iwarp && (access & FI_READ))
		flags |= IBV_ACCESS_REMOTE_WRITE;
	return flags;
}

void vrc_mr_explain(const struct vrc_domain *domain, const void *buf,
		    size_t len, int err)
{
	struct rlimit memlock = { 0 };

	getrlimit(RLIMIT_MEMLOCK, &memlock);
	if (err == ENOMEM && memlock.rlim_cur != RLIM_INFINITY)
		vrc_warn(MR, "domain %s: %zu bytes at %p cannot be registered: "
			 "%s; locked memory is limited to %llu bytes (ulimit -l)\n",
			 domain->dev->name, len, buf, fi_strerror(err),
			 (unsigned long long)memlock.rlim_cur);
	else
		vrc_warn(MR, "domain %s: %zu bytes at %p cannot be registered: %s\n",
			 domain->dev->name, len, buf, fi_strerror(err));
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **out)
{
	struct vrc_domain *domain;
	const struct iovec *iov;
	struct vrc_mr *mr;
	int ret;

	if (fid->fclass != FI_CLASS_DOMAIN || !attr)
		return -FI_EINVAL;
	domain = container_of(fid, struct vrc_domain, fid.fid);
	if (flags & ~VRC_MR_NOCACHE) {
		vrc_warn(MR, "fi_mr_reg: flags 0x%" PRIx64 " not supported\n",
			 flags & ~VRC_MR_NOCACHE);
		return -FI_EBADFLAGS;
	}
	if (flags & VRC_MR_NOCACHE)
		atomic_store_explicit(&domain->layered, true,
				      memory_order_relaxed);
	if (attr->iov_count != 1 || !attr->mr_iov) {
		vrc_warn(MR, "fi_mr_reg: %zu segments, the limit is 1\n",
			 attr->iov_count);
		return -FI_EINVAL;
	}
	if (attr->offset) {
		vrc_warn(MR, "fi_mr_reg: offset %" PRIu64 "; it must be 0\n",
			 attr->offset);
		return -FI_EINVAL;
	}
	if (attr->access & ~(uint64_t)MR_ACCESS) {
		vrc_warn(MR, "fi_mr_reg: access 0x%" PRIx64 " not supported\n",
			 attr->access & ~(uint64_t)MR_ACCESS);
		return -FI_EINVAL;
	}
	iov = attr->mr_iov;
	if (!iov->iov_len || (uintptr_t)iov->iov_base + iov->iov_len <
				     (uintptr_t)iov->iov_base) {
		vrc_warn(MR, "fi_mr_reg: %zu bytes at %p is no range of memory\n",
			 iov->iov_len, iov->iov_base);
		return -FI_EINVAL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	mr->mr = domain->ops->reg_mr(domain->pd, iov->iov_base, iov->iov_len,
				     vrc_mr_access(domain, attr->access));
	if (!mr->mr) {
		ret = errno;
		atomic_fetch_add(&domain->mr_failed, 1);
		vrc_mr_explain(domain, iov->iov_base, iov->iov_len, ret);
		free(mr);
		return vrc_err(ret);
	}
	mr->domain = domain;
	mr->len = iov->iov_len;
	atomic_fetch_add(&domain->mr_cnt, 1);
	atomic_fetch_add(&domain->mr_bytes, mr->len);
	atomic_fetch_add(&domain->ref, 1);
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = VRC_OPS(&mr_fi_ops);
	mr->fid.mem_desc = vrc_desc(domain->desc_tag, mr->mr->lkey);
	mr->fid.key = mr->mr->rkey;
	*out = &mr->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count,
		   uint64_t access, uint64_t offset, uint64_t requested_key,
		   uint64_t flags, struct fid_mr **mr, void *context)
{
	const struct fi_mr_attr attr = {
		.mr_iov = iov,
		.iov_count = count,
		.access = access,
		.offset = offset,
		.requested_key = requested_key,
		.context = context,
	};

	return mr_regattr(fid, &attr, flags, mr);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
		  uint64_t offset, uint64_t requested_key, uint64_t flags,
		  struct fid_mr **mr, void *context)
{
	const struct iovec iov = {
		.iov_base = (void *)(uintptr_t)buf,
		.iov_len = len,
	};

	return mr_regv(fid, &iov, 1, access, offset, requested_key, flags, mr,
		       context);
}

const struct fi_ops_mr vrc_mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};
