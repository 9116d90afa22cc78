/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shared transmit contexts. A queue pair cannot share its send queue, so this is
 * a name under which endpoints stand together, each with a queue of its own of
 * the context's depth. A program cannot tell: it posts to endpoints, and its
 * completions come to their queues.
 */
#include <stdlib.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_nosys.h"
#include "vrc_stx.h"

struct vrc_stx {
	struct fid_stx fid;
	struct vrc_domain *domain;
	atomic_int ref; /* endpoints bound */
};

static int stx_close(struct fid *fid)
{
	struct vrc_stx *stx = container_of(fid, struct vrc_stx, fid.fid);

	if (atomic_load(&stx->ref))
		return -FI_EBUSY;
	atomic_fetch_sub(&stx->domain->ref, 1);
	free(stx);
	return 0;
}

static int stx_control(struct fid *fid, int command, void *arg)
{
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

int vrc_stx_bind(struct vrc_ep *ep, struct fid *fid)
{
	struct vrc_stx *stx = container_of(fid, struct vrc_stx, fid.fid);

	if (ep->stx) {
		vrc_warn(EP_CTRL, "ep %p: already bound to a shared transmit "
			 "context\n", (void *)ep);
		return -FI_EINVAL;
	}
	if (stx->domain != ep->domain) {
		vrc_warn(EP_CTRL, "ep %p: shared transmit context of another "
			 "domain\n", (void *)ep);
		return -FI_EINVAL;
	}
	ep->stx = stx;
	atomic_fetch_add(&stx->ref, 1);
	return 0;
}

void vrc_stx_unbind(struct vrc_ep *ep)
{
	if (ep->stx)
		atomic_fetch_sub(&ep->stx->ref, 1);
	ep->stx = NULL;
}

static const struct fi_ops stx_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = stx_close,
	.bind = vrc_nosys_bind,
	.control = stx_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

int vrc_stx_open(struct fid_domain *domain_fid, struct fi_tx_attr *attr,
		 struct fid_stx **out, void *context)
{
	struct vrc_domain *domain = vrc_domain(domain_fid);
	struct vrc_stx *stx;

	stx = calloc(1, sizeof(*stx));
	if (!stx)
		return -FI_ENOMEM;
	stx->domain = domain;
	stx->fid.fid.fclass = FI_CLASS_STX_CTX;
	stx->fid.fid.context = context;
	stx->fid.fid.ops = VRC_OPS(&stx_fi_ops);
	stx->fid.ops = VRC_OPS(&vrc_nosys_ep);
	atomic_fetch_add(&domain->ref, 1);
	*out = &stx->fid;
	return 0;
}
