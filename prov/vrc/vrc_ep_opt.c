/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_getopt(3) and fi_setopt(3) of endpoints. All there is can only be read: the
 * limits are the info's, and follow from it.
 */
#include "compiler.h"
#include "vrc_compat.h"
#include "vrc_ep.h"
#include "vrc_log.h"

/* False: no such option. */
static bool value_of(const struct vrc_ep *ep, int name, size_t *value)
{
	const bool has_atomics = ep->info->caps & FI_ATOMIC;

	switch (name) {
	case FI_OPT_CM_DATA_SIZE:
		*value = VRC_CM_DATA_SIZE;
		return true;
	case FI_OPT_TX_SIZE:
		*value = ep->info->tx_attr->size;
		return true;
	case FI_OPT_RX_SIZE:
		*value = ep->info->rx_attr->size;
		return true;
	case VRC_OPT_MAX_MSG_SIZE:
	case VRC_OPT_MAX_RMA_SIZE:
		*value = ep->max_msg_size;
		return true;
	case VRC_OPT_INJECT_MSG_SIZE:
	case VRC_OPT_INJECT_RMA_SIZE:
		*value = ep->inject_size;
		return true;
	case VRC_OPT_MAX_ATOMIC_SIZE:
	case VRC_OPT_INJECT_ATOMIC_SIZE:
		*value = sizeof(uint64_t);
		return has_atomics;
	default:
		return false;
	}
}

int vrc_ep_getopt(fid_t fid, int level, int name, void *val, size_t *len)
{
	const struct vrc_ep *ep = container_of(fid, struct vrc_ep, fid.fid);
	size_t value;

	if (level != FI_OPT_ENDPOINT || !value_of(ep, name, &value))
		return -FI_ENOPROTOOPT;
	if (!val || !len)
		return -FI_EINVAL;
	if (*len < sizeof(value)) {
		*len = sizeof(value);
		return -FI_ETOOSMALL;
	}
	*(size_t *)val = value;
	*len = sizeof(value);
	return 0;
}

int vrc_ep_setopt(fid_t fid, int level, int name, const void *val, size_t len)
{
	const struct vrc_ep *ep = container_of(fid, struct vrc_ep, fid.fid);
	size_t value;

	if (level == FI_OPT_ENDPOINT && value_of(ep, name, &value))
		vrc_warn(EP_CTRL, "ep %p: option %d is %zu and can only be "
			 "read\n", (const void *)ep, name, value);
	return -FI_ENOPROTOOPT;
}
