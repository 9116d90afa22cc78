/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The domain: one opened device and one protection domain. Registrations,
 * completion queues and endpoints hold references.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "fi_names.h"
#include "vrc.h"
#include "vrc_atomic.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_deliver.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_fabric.h"
#include "vrc_log.h"
#include "vrc_mr.h"
#include "vrc_nosys.h"
#include "vrc_srx.h"
#include "vrc_stats.h"
#include "vrc_stx.h"
#include "vrc_wait.h"

static int domain_close(struct fid *fid)
{
	struct vrc_domain *domain =
		container_of(fid, struct vrc_domain, fid.fid);
	int ret;

	if (atomic_load(&domain->ref))
		return -FI_EBUSY;
	vrc_atomic_close(domain);
	vrc_deliver_close(domain);
	ret = domain->ops->dealloc_pd(domain->pd);
	if (ret) {
		vrc_warn(DOMAIN, "domain %s: protection domain cannot be freed: %s\n",
			 domain->dev->name, fi_strerror(-vrc_err(ret)));
		return vrc_err(ret);
	}
	domain->ops->close_device(domain->verbs);
	vrc_dev_put(domain->dev);
	atomic_fetch_sub(&domain->fabric->ref, 1);
	free(domain);
	return 0;
}

static int av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		   struct fid_av **av, void *context)
{
	return -FI_ENOSYS;
}

static int scalable_ep(struct fid_domain *domain, struct fi_info *info,
		       struct fid_ep **sep, void *context)
{
	return -FI_ENOSYS;
}

static int query_collective(struct fid_domain *domain,
			    enum fi_collective_op coll,
			    struct fi_collective_attr *attr, uint64_t flags)
{
	return -FI_EOPNOTSUPP;
}

static int endpoint2(struct fid_domain *domain, struct fi_info *info,
		     struct fid_ep **ep, uint64_t flags, void *context)
{
	if (flags)
		return -FI_EINVAL;
	return vrc_ep_open(domain, info, ep, context);
}

static const struct fi_ops domain_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = domain_close,
	.bind = vrc_nosys_bind,
	.control = vrc_nosys_control,
	.ops_open = vrc_stats_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = av_open,
	.cq_open = vrc_cq_open,
	.endpoint = vrc_ep_open,
	.scalable_ep = scalable_ep,
	.cntr_open = vrc_cntr_open,
	.poll_open = vrc_poll_open,
	.stx_ctx = vrc_stx_open,
	.srx_ctx = vrc_srx_open,
	.query_atomic = vrc_query_atomic,
	.query_collective = query_collective,
	.endpoint2 = endpoint2,
};

/*
 * A pointer whose upper half marks the domain, so that a descriptor of another
 * domain, or no descriptor at all, is refused without being followed.
 */
static uint32_t next_desc_tag(void)
{
	static atomic_uint serial;

	return 0x76720000u | ((atomic_fetch_add(&serial, 1) + 1) & 0xffff);
}

int vrc_domain_open(struct fid_fabric *fabric_fid, struct fi_info *info,
		    struct fid_domain **out, void *context)
{
	struct vrc_fabric *fabric = vrc_fabric(fabric_fid);
	struct vrc_domain *domain;
	int ret;

	if (!info || !info->domain_attr || !info->domain_attr->name) {
		vrc_warn(DOMAIN, "fi_domain: no domain name in the info\n");
		return -FI_EINVAL;
	}
	if (info->domain_attr->threading > FI_THREAD_ENDPOINT) {
		vrc_warn(DOMAIN, "fi_domain: threading %d is not known\n",
			 info->domain_attr->threading);
		return -FI_EINVAL;
	}
	domain = calloc(1, sizeof(*domain));
	if (!domain)
		return -FI_ENOMEM;
	domain->dev = vrc_dev_get(info->domain_attr->name);
	if (!domain->dev) {
		vrc_warn(DOMAIN, "domain %s: no such device\n",
			 info->domain_attr->name);
		ret = -FI_ENODEV;
		goto err_free_domain;
	}
	domain->ops = domain->dev->ops;
	domain->verbs = vrc_dev_open(domain->dev);
	if (!domain->verbs) {
		ret = vrc_err(errno);
		vrc_warn(DOMAIN, "domain %s: cannot open the device: %s\n",
			 domain->dev->name, fi_strerror(-ret));
		goto err_put_dev;
	}
	domain->pd = domain->ops->alloc_pd(domain->verbs);
	if (!domain->pd) {
		ret = vrc_err(errno);
		vrc_warn(DOMAIN, "domain %s: no protection domain: %s\n",
			 domain->dev->name, fi_strerror(-ret));
		goto err_close_device;
	}
	ret = vrc_deliver_open(domain);
	if (ret)
		goto err_dealloc_pd;
	if (info->caps & FI_ATOMIC && vrc_dev_has_atomics(domain->dev)) {
		ret = vrc_atomic_open(domain);
		if (ret)
			goto err_close_deliver;
	}
	domain->threading = info->domain_attr->threading;
	domain->rm_disabled =
		info->domain_attr->resource_mgmt == FI_RM_DISABLED;
	/* Only the levels below SAFE promise one thread per object at a time. */
	domain->thread_safe =
		info->domain_attr->threading == FI_THREAD_SAFE ||
		info->domain_attr->threading == FI_THREAD_UNSPEC ||
		info->domain_attr->threading == FI_THREAD_FID ||
		vrc_credit_wanted(domain->dev); /* posts and reaps elsewhere */
	/* One thread per endpoint, but not for its queues and counters together,
	 * which all look for completions. */
	domain->cq_thread_safe =
		domain->thread_safe ||
		info->domain_attr->threading == FI_THREAD_ENDPOINT;
	/* FI_MR_BASIC is of a time when a mode bit said so. */
	domain->local_reg = !(info->domain_attr->mr_mode & FI_MR_LOCAL) &&
			    !(info->mode & FI_LOCAL_MR);
	domain->desc_tag = next_desc_tag();
	atomic_init(&domain->max_inline, UINT_MAX);
	domain->fabric = fabric;
	atomic_fetch_add(&fabric->ref, 1);
	domain->fid.fid.fclass = FI_CLASS_DOMAIN;
	domain->fid.fid.context = context;
	domain->fid.fid.ops = VRC_OPS(&domain_fi_ops);
	domain->fid.ops = VRC_OPS(&domain_ops);
	domain->fid.mr = VRC_OPS(&vrc_mr_ops);
	*out = &domain->fid;
	return 0;

err_close_deliver:
	vrc_deliver_close(domain);
err_dealloc_pd:
	domain->ops->dealloc_pd(domain->pd);
err_close_device:
	domain->ops->close_device(domain->verbs);
err_put_dev:
	vrc_dev_put(domain->dev);
err_free_domain:
	free(domain);
	return ret;
}
