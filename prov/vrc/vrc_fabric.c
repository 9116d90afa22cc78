/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The fabric: the IP network that its endpoints share. Owns nothing but its
 * name; domains, event queues and passive endpoints hold references.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_eq.h"
#include "vrc_fabric.h"
#include "vrc_log.h"
#include "vrc_nosys.h"
#include "vrc_pep.h"
#include "vrc_wait.h"

static int fabric_close(struct fid *fid)
{
	struct vrc_fabric *fabric =
		container_of(fid, struct vrc_fabric, fid.fid);

	if (atomic_load(&fabric->ref))
		return -FI_EBUSY;
	free(fabric->name);
	free(fabric);
	return 0;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	int ret = 0;

	for (int i = 0; i < count && !ret; i++)
		ret = vrc_trywait(fids[i]);
	return ret;
}

static int domain2(struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **domain, uint64_t flags, void *context)
{
	if (flags)
		return -FI_EINVAL;
	return vrc_domain_open(fabric, info, domain, context);
}

static const struct fi_ops fabric_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
	.bind = vrc_nosys_bind,
	.control = vrc_nosys_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = vrc_domain_open,
	.passive_ep = vrc_pep_open,
	.eq_open = vrc_eq_open,
	.wait_open = vrc_wait_open,
	.trywait = trywait,
	.domain2 = domain2,
};

/* Some device has an address on the network of that name. */
static bool fabric_is_known(const char *name)
{
	const struct vrc_addr *addr;
	struct vrc_dev_list list;
	bool found = false;

	if (vrc_dev_list_get(&list))
		return false;
	for (size_t i = 0; i < list.cnt && !found; i++)
		for (addr = list.devs[i]->addrs;
		     addr != vrc_addr_end(list.devs[i]) && !found; addr++)
			found = !strcmp(addr->fabric, name);
	vrc_dev_list_free(&list);
	return found;
}

int vrc_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out,
		    void *context)
{
	struct vrc_fabric *fabric;

	if (!attr || !attr->name) {
		vrc_warn(FABRIC, "fi_fabric: no name in the attributes\n");
		return -FI_EINVAL;
	}
	if (!fabric_is_known(attr->name)) {
		vrc_warn(FABRIC, "fi_fabric: no device has an address on %s\n",
			 attr->name);
		return -FI_ENODATA;
	}
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -FI_ENOMEM;
	fabric->name = strdup(attr->name);
	if (!fabric->name)
		goto err_free_fabric;
	fabric->fid.fid.fclass = FI_CLASS_FABRIC;
	fabric->fid.fid.context = context;
	fabric->fid.fid.ops = VRC_OPS(&fabric_fi_ops);
	fabric->fid.ops = VRC_OPS(&fabric_ops);
	fabric->fid.api_version = attr->api_version;
	*out = &fabric->fid;
	return 0;

err_free_fabric:
	free(fabric);
	return -FI_ENOMEM;
}
