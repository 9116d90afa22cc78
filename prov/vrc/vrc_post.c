/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The cold side of posting: what is said when an operation cannot be taken.
 */
#include <errno.h>

#include "vrc_post.h"

int vrc_tx_not_ready(const struct vrc_ep *ep)
{
	switch (atomic_load(&ep->state)) {
	case VRC_EP_IDLE:
		return -FI_EOPBADSTATE;
	case VRC_EP_SHUTDOWN:
		return -FI_ESHUTDOWN;
	default:
		return -FI_ENOTCONN;
	}
}

int vrc_rx_not_ready(const struct vrc_ep *ep)
{
	return atomic_load(&ep->state) == VRC_EP_IDLE ? -FI_EOPBADSTATE :
							 -FI_ESHUTDOWN;
}

int vrc_post_failed(struct vrc_ep *ep, struct vrc_ring *ring,
		    const struct vrc_req *req, int err)
{
	if (ring->mrs)
		vrc_local_release(ep, ring, req->slot, req->slot + 1);
	/* Some drivers return -1 and set errno. */
	if (err < 0)
		err = errno;
	if (err == ENOMEM &&
	    atomic_load(&ring->head) != atomic_load(&ring->tail))
		return -FI_EAGAIN;
	return vrc_err(err);
}
