/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether an endpoint can be what its info says. The info came from fi_getinfo,
 * but programs change it before they call fi_endpoint.
 */
#include <inttypes.h>

#include "compiler.h"
#include "vrc_deliver.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_info.h"
#include "vrc_log.h"

static bool in_range(const char *name, size_t value, size_t min, size_t max)
{
	if (value >= min && value <= max)
		return true;
	vrc_warn(EP_CTRL, "fi_endpoint: %s is %zu; %zu to %zu are possible\n",
		 name, value, min, max);
	return false;
}

static bool no_more_than(const char *name, uint64_t value, uint64_t allowed)
{
	if (!(value & ~allowed))
		return true;
	vrc_warn(EP_CTRL, "%s: 0x%" PRIx64 "; 0x%" PRIx64
		 " of that cannot be had\n", name, value, value & ~allowed);
	return false;
}

static bool sizes_ok(const struct vrc_dev *dev, const struct fi_info *info)
{
	size_t depth = vrc_max_depth(dev);
	size_t pieces = min_size(VRC_IOV_LIMIT, (size_t)dev->attr.max_sge);

	return in_range("tx_attr->size", info->tx_attr->size, 1, depth) &&
	       in_range("rx_attr->size", info->rx_attr->size, 1, depth) &&
	       in_range("tx_attr->iov_limit", info->tx_attr->iov_limit, 1,
			pieces) &&
	       in_range("rx_attr->iov_limit", info->rx_attr->iov_limit, 1,
			pieces) &&
	       in_range("tx_attr->rma_iov_limit", info->tx_attr->rma_iov_limit,
			0, 1) &&
	       in_range("tx_attr->inject_size", info->tx_attr->inject_size, 0,
			VRC_INJECT_MAX) &&
	       in_range("ep_attr->max_msg_size", info->ep_attr->max_msg_size,
			1, vrc_max_msg_size(dev));
}

/* Which shared contexts there are is looked at when it is enabled. */
static bool contexts_ok(const struct fi_ep_attr *attr)
{
	return (attr->tx_ctx_cnt == FI_SHARED_CONTEXT ||
		in_range("ep_attr->tx_ctx_cnt", attr->tx_ctx_cnt, 0, 1)) &&
	       (attr->rx_ctx_cnt == FI_SHARED_CONTEXT ||
		in_range("ep_attr->rx_ctx_cnt", attr->rx_ctx_cnt, 0, 1));
}

static bool delivery_ok(const char *what, uint64_t tx_flags, size_t size)
{
	if (!(tx_flags & FI_DELIVERY_COMPLETE) || size >= VRC_DELIVER_PLACES)
		return true;
	vrc_warn(EP_CTRL, "%s: FI_DELIVERY_COMPLETE, and tx_attr->size is %zu; "
		 "it takes at least %d\n", what, size, VRC_DELIVER_PLACES);
	return false;
}

int vrc_ep_op_flags(const struct vrc_ep *ep, int command, uint64_t *flags,
		    _Atomic uint64_t *tx, _Atomic uint64_t *rx)
{
	uint64_t side, value;

	if (!flags)
		return -FI_EINVAL;
	side = *flags & (FI_TRANSMIT | FI_RECV);
	value = *flags & ~(FI_TRANSMIT | FI_RECV);
	if (side != FI_TRANSMIT && side != FI_RECV) {
		vrc_warn(EP_CTRL, "ep %p: operation flags 0x%" PRIx64 "; one of "
			 "FI_TRANSMIT and FI_RECV must be among them\n",
			 (const void *)ep, *flags);
		return -FI_EINVAL;
	}
	if (command == FI_GETOPSFLAG) {
		*flags = side == FI_TRANSMIT ? *tx : *rx;
		return 0;
	}
	if (!no_more_than("operation flags", value,
			  side == FI_TRANSMIT ?
				  vrc_tx_op_flags(ep->domain->dev) :
				  VRC_RX_OP_FLAGS) ||
	    !delivery_ok("operation flags", value, ep->info->tx_attr->size))
		return -FI_EBADFLAGS;
	*(side == FI_TRANSMIT ? tx : rx) = value;
	return 0;
}

static bool atomics_ok(const struct vrc_domain *domain,
		       const struct fi_info *info)
{
	if (!(info->caps & FI_ATOMIC) || domain->scratch_mr)
		return true;
	vrc_warn(EP_CTRL, "fi_endpoint: caps has FI_ATOMIC; %s %s\n",
		 domain->dev->name,
		 vrc_dev_has_atomics(domain->dev) ?
			 "was opened as a domain without it" :
			 "has no atomic operations");
	return false;
}

int vrc_ep_info_check(const struct vrc_domain *domain,
		      const struct fi_info *info)
{
	const struct vrc_dev *dev = domain->dev;

	if (!info || !info->ep_attr || !info->tx_attr || !info->rx_attr ||
	    info->ep_attr->type != FI_EP_MSG) {
		vrc_warn(EP_CTRL, "fi_endpoint: the info is not one of ours\n");
		return -FI_EINVAL;
	}

	if (sizes_ok(dev, info) && contexts_ok(info->ep_attr) &&
	    atomics_ok(domain, info) &&
	    no_more_than("caps", info->caps,
			 VRC_PRIMARY_CAPS | VRC_SECONDARY_CAPS) &&
	    no_more_than("tx_attr->op_flags", info->tx_attr->op_flags,
			 vrc_tx_op_flags(dev)) &&
	    delivery_ok("tx_attr->op_flags", info->tx_attr->op_flags,
			info->tx_attr->size) &&
	    no_more_than("rx_attr->op_flags", info->rx_attr->op_flags,
			 VRC_RX_OP_FLAGS))
		return 0;
	return -FI_EINVAL;
}
