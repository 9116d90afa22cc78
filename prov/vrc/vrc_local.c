/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Programs that do not offer FI_MR_LOCAL pass memory that nobody registered.
 * What is too large to go inline or through the bounce memory is registered
 * when it is posted and deregistered when its record is retired. That costs a
 * registration per operation; programs that mind offer FI_MR_LOCAL.
 */
#include <errno.h>
#include <stdlib.h>

#include "vrc.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_mr.h"

int vrc_local_open(struct vrc_ring *ring)
{
	ring->mrs = calloc(((size_t)ring->mask + 1) * VRC_IOV_LIMIT,
			   sizeof(struct ibv_mr *));
	return ring->mrs ? 0 : -FI_ENOMEM;
}

void vrc_local_drop(struct vrc_domain *domain, struct ibv_mr **slot)
{
	for (int i = 0; i < VRC_IOV_LIMIT; i++) {
		if (slot[i] && domain->ops->dereg_mr(slot[i]))
			vrc_warn(MR, "%zu bytes at %p registered for one "
				 "operation cannot be deregistered\n",
				 slot[i]->length, slot[i]->addr);
		slot[i] = NULL;
	}
}

int vrc_local_reg(struct vrc_domain *domain, struct ibv_mr **slot, int cnt,
		  int access, struct ibv_sge *sge)
{
	int ret;

	for (int i = 0; i < cnt; i++) {
		void *addr = (void *)(uintptr_t)sge[i].addr;

		slot[i] = domain->ops->reg_mr(domain->pd, addr, sge[i].length,
					      access);
		if (!slot[i]) {
			ret = errno;
			vrc_mr_explain(domain, addr, sge[i].length, ret);
			vrc_local_drop(domain, slot);
			return vrc_err(ret);
		}
		sge[i].lkey = slot[i]->lkey;
	}
	return cnt;
}

void vrc_local_release(struct vrc_ep *ep, struct vrc_ring *ring, uint32_t first,
		       uint32_t end)
{
	for (; first != end; first++)
		vrc_local_drop(ep->domain,
			       &ring->mrs[(size_t)(first & ring->mask) *
					  VRC_IOV_LIMIT]);
}
