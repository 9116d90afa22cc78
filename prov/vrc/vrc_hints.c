/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Hints against what we have. First what needs no device, since most calls
 * that fail, fail there; then the limits of one device. Each refusal leaves a
 * reason that names the hint, what it asks, and what there is.
 *
 * A hint that is zero asks nothing, but for modes (which the caller offers, and
 * we may need). Values that we do not know are refused like any other that we
 * do not have.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compiler.h"
#include "fi_names.h"
#include "vrc_deliver.h"
#include "vrc_dev.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_params.h"
#include "vrc_whynot.h"

enum { FLAGS_STR = 160 };

#define MSG_DIRECTION (FI_SEND | FI_RECV)
#define RMA_DIRECTION (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define TX_ONLY (FI_SEND | FI_READ | FI_WRITE)
#define RX_ONLY (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define RMA_TARGET (FI_REMOTE_READ | FI_REMOTE_WRITE)

/* "0x2000 (FI_REMOTE_WRITE)" */
static const char *flags_str(char buf[FLAGS_STR], uint64_t flags,
			     enum fi_type type)
{
	char names[FLAGS_STR - 24] = "";

	fi_tostr_r(names, sizeof(names), &flags, type);
	snprintf(buf, FLAGS_STR, "0x%" PRIx64 "%s%s%s", flags,
		 *names ? " (" : "", names, *names ? ")" : "");
	return buf;
}

/* False, with a reason, if asked has a bit that have lacks. */
static bool check_flags(struct vrc_query *query, const char *subject,
			uint64_t asked, uint64_t have, enum fi_type type)
{
	char missing_str[FLAGS_STR], have_str[FLAGS_STR];

	if (!(asked & ~have))
		return true;
	vrc_whynot_add(&query->why, subject, "asks %s, and vrc has %s",
		       flags_str(missing_str, asked & ~have, type),
		       flags_str(have_str, have, type));
	return false;
}

static bool check_enum(struct vrc_query *query, const char *subject, int asked,
		       int max)
{
	if (asked >= 0 && asked <= max)
		return true;
	vrc_whynot_add(&query->why, subject, "is %d, not one of 0 to %d", asked,
		       max);
	return false;
}

uint64_t vrc_hints_expand(uint64_t caps)
{
	if ((caps & FI_MSG) && !(caps & MSG_DIRECTION))
		caps |= MSG_DIRECTION;
	if ((caps & (FI_RMA | FI_ATOMIC)) && !(caps & RMA_DIRECTION))
		caps |= RMA_DIRECTION;
	return caps;
}

uint64_t vrc_hints_caps(const struct fi_info *hints)
{
	return hints && hints->caps ? vrc_hints_expand(hints->caps)
				    : VRC_PRIMARY_CAPS;
}

bool vrc_hints_rx_cq_data(const struct fi_info *hints)
{
	if (!hints)
		return true;
	/* fi_endpoint(3): the context's mode counts unless it is zero. */
	if (hints->rx_attr && hints->rx_attr->mode)
		return hints->rx_attr->mode & FI_RX_CQ_DATA;
	return hints->mode & FI_RX_CQ_DATA;
}

static bool check_caps(struct vrc_query *query)
{
	const struct fi_info *hints = query->hints;
	uint64_t caps = vrc_hints_caps(hints);

	if (hints->caps & FI_RMA_EVENT) {
		vrc_whynot_add(&query->why, "caps",
			       "asks FI_RMA_EVENT, and an RC queue pair tells "
			       "its target nothing of reads and writes");
		return false;
	}
	if (!check_flags(query, "caps", hints->caps,
			 VRC_PRIMARY_CAPS | VRC_SECONDARY_CAPS, FI_TYPE_CAPS))
		return false;
	/* A context may have less than its endpoint. Bits that belong to the
	 * other direction were once legal here, and mean nothing. */
	if (hints->tx_attr &&
	    !check_flags(query, "tx_attr->caps", hints->tx_attr->caps,
			 caps | RX_ONLY | VRC_SECONDARY_CAPS, FI_TYPE_CAPS))
		return false;
	return !hints->rx_attr ||
	       check_flags(query, "rx_attr->caps", hints->rx_attr->caps,
			   caps | TX_ONLY | VRC_SECONDARY_CAPS, FI_TYPE_CAPS);
}

static bool check_addr_format(struct vrc_query *query)
{
	uint32_t format = query->hints->addr_format;
	char str[FLAGS_STR] = "";

	switch (format) {
	case FI_FORMAT_UNSPEC:
	case FI_SOCKADDR:
	case FI_SOCKADDR_IN:
	case FI_SOCKADDR_IN6:
	case VRC_SOCKADDR_IP:
		return true;
	default:
		fi_tostr_r(str, sizeof(str), &format, FI_TYPE_ADDR_FORMAT);
		vrc_whynot_add(&query->why, "addr_format",
			       "is %u (%s), and vrc has FI_SOCKADDR, "
			       "FI_SOCKADDR_IN and FI_SOCKADDR_IN6",
			       format, str);
		return false;
	}
}

static bool mr_refuse(struct vrc_whynot *why, const char *text)
{
	if (why)
		vrc_whynot_add(why, "domain_attr->mr_mode", "%s", text);
	return false;
}

/* The languages of before API 1.5, which the caller may still speak. */
static bool mr_old(const struct fi_info *hints, int asked,
		   struct vrc_whynot *why, struct vrc_mr_answer *answer)
{
	if (asked & ~(FI_MR_BASIC | FI_MR_SCALABLE) ||
	    asked == (FI_MR_BASIC | FI_MR_SCALABLE))
		return mr_refuse(why, "FI_MR_BASIC and FI_MR_SCALABLE go with "
				      "no other bit, and API versions before "
				      "1.5 know no other");
	answer->mr_mode = asked ? asked : FI_MR_BASIC;
	/* Who is no target registers nothing that a peer could name. */
	if (asked == FI_MR_SCALABLE && answer->caps & RMA_TARGET)
		return mr_refuse(why, "is FI_MR_SCALABLE; keys and addresses "
				      "are the device's, as in FI_MR_BASIC");
	if (!hints || hints->mode & FI_LOCAL_MR)
		answer->mode |= FI_LOCAL_MR;
	return true;
}

bool vrc_hints_mr(const struct fi_info *hints, uint32_t version,
		  struct vrc_whynot *why, struct vrc_mr_answer *answer)
{
	const int target = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED;
	const int local = FI_MR_LOCAL | FI_MR_ALLOCATED;
	int asked = hints && hints->domain_attr ? hints->domain_attr->mr_mode
						: local | target;
	char str[FLAGS_STR];

	answer->caps = vrc_hints_caps(hints);
	answer->mode = 0;
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)) &&
	    !(hints && hints->domain_attr))
		asked = 0;
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)) ||
	    asked & (FI_MR_BASIC | FI_MR_SCALABLE))
		return mr_old(hints, asked, why, answer);
	/* Who does not care about capabilities gets those that fit. */
	if (hints && !hints->caps && target & ~asked)
		answer->caps &= ~RMA_TARGET;
	answer->mr_mode = (asked & local) == local ? local : 0;
	if (answer->caps & RMA_TARGET)
		answer->mr_mode |= target;
	if (!(answer->mr_mode & ~asked))
		return true;
	if (why)
		vrc_whynot_add(why, "domain_attr->mr_mode",
			       "lacks %s, which being a target of RMA needs",
			       flags_str(str,
					 (uint64_t)(answer->mr_mode & ~asked),
					 FI_TYPE_MR_MODE));
	return false;
}

static bool check_order(struct vrc_query *query)
{
	const uint64_t order = VRC_MSG_ORDER | VRC_ATOMIC_ORDER;
	const struct fi_tx_attr *tx = query->hints->tx_attr;
	const struct fi_rx_attr *rx = query->hints->rx_attr;

	if (tx && (!check_flags(query, "tx_attr->msg_order", tx->msg_order,
				order, FI_TYPE_MSG_ORDER) ||
		   !check_flags(query, "tx_attr->comp_order", tx->comp_order,
				FI_ORDER_STRICT, FI_TYPE_MSG_ORDER)))
		return false;
	return !rx || (check_flags(query, "rx_attr->msg_order", rx->msg_order,
				   order, FI_TYPE_MSG_ORDER) &&
		       check_flags(query, "rx_attr->comp_order", rx->comp_order,
				   FI_ORDER_STRICT, FI_TYPE_MSG_ORDER));
}

static bool check_ep(struct vrc_query *query, const struct fi_ep_attr *attr)
{
	if (attr->type != FI_EP_UNSPEC && attr->type != FI_EP_MSG) {
		vrc_whynot_add(&query->why, "ep_attr->type",
			       "is %d, and vrc has FI_EP_MSG only%s",
			       (int)attr->type,
			       attr->type == FI_EP_RDM
				       ? "; for FI_EP_RDM use the provider "
					 "\"vrc;ofi_rxm\""
				       : "");
		return false;
	}
	return true;
}

static bool check_domain(struct vrc_query *query,
			 const struct fi_domain_attr *attr)
{
	return check_enum(query, "domain_attr->threading", (int)attr->threading,
			  FI_THREAD_ENDPOINT) &&
	       check_enum(query, "domain_attr->control_progress",
			  (int)attr->control_progress,
			  VRC_PROGRESS_CONTROL_UNIFIED) &&
	       check_enum(query, "domain_attr->data_progress",
			  (int)attr->data_progress,
			  VRC_PROGRESS_CONTROL_UNIFIED) &&
	       check_enum(query, "domain_attr->resource_mgmt",
			  (int)attr->resource_mgmt, FI_RM_ENABLED) &&
	       check_enum(query, "domain_attr->av_type", (int)attr->av_type,
			  FI_AV_TABLE);
}

bool vrc_hints_check(struct vrc_query *query)
{
	const struct fi_info *hints = query->hints;
	struct vrc_mr_answer answer;

	if (hints && hints->ep_attr && !check_ep(query, hints->ep_attr))
		return false;
	if (hints && (!check_caps(query) || !check_addr_format(query) ||
		      !check_order(query)))
		return false;
	if (hints && hints->domain_attr &&
	    !check_domain(query, hints->domain_attr))
		return false;
	if (hints && hints->fabric_attr &&
	    hints->fabric_attr->prov_version > vrc_prov.version) {
		vrc_whynot_add(&query->why, "fabric_attr->prov_version",
			       "is %u.%u, and this is vrc %u.%u",
			       FI_MAJOR(hints->fabric_attr->prov_version),
			       FI_MINOR(hints->fabric_attr->prov_version),
			       FI_MAJOR(vrc_prov.version),
			       FI_MINOR(vrc_prov.version));
		return false;
	}
	return vrc_hints_mr(hints, query->version, &query->why, &answer);
}

/* Every hint that is a number which may not be larger than ours. */
struct size_hint {
	const char *subject;
	size_t attr;  /* offset of the pointer in fi_info */
	size_t field; /* offset of the size_t in what it points to */
	bool rma;     /* only with RMA among the capabilities */
	bool shareable; /* FI_SHARED_CONTEXT is no number */
	bool since_1_5;
};

#define SIZE_HINT(part, type, name, ...)                                       \
	{                                                                      \
#part "->" #name, offsetof(struct fi_info, part),              \
			offsetof(struct type, name), __VA_ARGS__               \
	}

static const struct size_hint size_hints[] = {
	SIZE_HINT(tx_attr, fi_tx_attr, size),
	SIZE_HINT(tx_attr, fi_tx_attr, inject_size),
	SIZE_HINT(tx_attr, fi_tx_attr, iov_limit),
	SIZE_HINT(tx_attr, fi_tx_attr, rma_iov_limit),
	SIZE_HINT(rx_attr, fi_rx_attr, size),
	SIZE_HINT(rx_attr, fi_rx_attr, iov_limit),
	SIZE_HINT(rx_attr, fi_rx_attr, total_buffered_recv),
	SIZE_HINT(ep_attr, fi_ep_attr, max_msg_size),
	SIZE_HINT(ep_attr, fi_ep_attr, max_order_raw_size, .rma = true),
	SIZE_HINT(ep_attr, fi_ep_attr, max_order_war_size, .rma = true),
	SIZE_HINT(ep_attr, fi_ep_attr, max_order_waw_size, .rma = true),
	SIZE_HINT(ep_attr, fi_ep_attr, tx_ctx_cnt, .shareable = true),
	SIZE_HINT(ep_attr, fi_ep_attr, rx_ctx_cnt, .shareable = true),
	SIZE_HINT(ep_attr, fi_ep_attr, auth_key_size, .since_1_5 = true),
	SIZE_HINT(domain_attr, fi_domain_attr, cq_data_size),
	SIZE_HINT(domain_attr, fi_domain_attr, cq_cnt),
	SIZE_HINT(domain_attr, fi_domain_attr, ep_cnt),
	SIZE_HINT(domain_attr, fi_domain_attr, tx_ctx_cnt),
	SIZE_HINT(domain_attr, fi_domain_attr, rx_ctx_cnt),
	SIZE_HINT(domain_attr, fi_domain_attr, max_ep_tx_ctx),
	SIZE_HINT(domain_attr, fi_domain_attr, max_ep_rx_ctx),
	SIZE_HINT(domain_attr, fi_domain_attr, max_ep_stx_ctx),
	SIZE_HINT(domain_attr, fi_domain_attr, max_ep_srx_ctx),
	SIZE_HINT(domain_attr, fi_domain_attr, cntr_cnt, .since_1_5 = true),
	SIZE_HINT(domain_attr, fi_domain_attr, mr_iov_limit, .since_1_5 = true),
	SIZE_HINT(domain_attr, fi_domain_attr, max_err_data, .since_1_5 = true),
	SIZE_HINT(domain_attr, fi_domain_attr, mr_cnt, .since_1_5 = true),
	SIZE_HINT(domain_attr, fi_domain_attr, auth_key_size,
		  .since_1_5 = true),
};

/* False if the caller left that part of the hints out. */
static bool size_get(const struct fi_info *info, const struct size_hint *hint,
		     size_t *value)
{
	const char *attr;

	memcpy(&attr, (const char *)info + hint->attr, sizeof(attr));
	if (!attr)
		return false;
	memcpy(value, attr + hint->field, sizeof(*value));
	return true;
}

static bool check_sizes(struct vrc_query *query, const struct fi_info *limits,
			const struct vrc_dev *dev)
{
	size_t asked, have = 0;

	for (size_t i = 0; i < ARRAY_SIZE(size_hints); i++) {
		const struct size_hint *hint = &size_hints[i];

		if ((hint->since_1_5 &&
		     FI_VERSION_LT(query->version, FI_VERSION(1, 5))) ||
		    (hint->rma &&
		     !(query->hints->caps & (FI_RMA | FI_ATOMIC))) ||
		    !size_get(query->hints, hint, &asked))
			continue;
		size_get(limits, hint, &have);
		if (asked <= have || (hint->shareable &&
				      asked == FI_SHARED_CONTEXT))
			continue;
		vrc_whynot_add(&query->why, hint->subject,
			       "is %zu, and %s has at most %zu", asked,
			       dev->name, have);
		return false;
	}
	return true;
}

/* Such an operation and what follows it are in the queue together. */
static bool check_delivery(struct vrc_query *query)
{
	const struct fi_tx_attr *tx = query->hints->tx_attr;
	size_t size = tx->size ? tx->size : vrc_params.tx_size;

	if (!(tx->op_flags & FI_DELIVERY_COMPLETE) ||
	    size >= VRC_DELIVER_PLACES)
		return true;
	vrc_whynot_add(&query->why, "tx_attr->size",
		       "is %zu, and tx_attr->op_flags asks "
		       "FI_DELIVERY_COMPLETE, which takes at least %d", size,
		       VRC_DELIVER_PLACES);
	return false;
}

static bool check_shared(struct vrc_query *query, const struct vrc_dev *dev)
{
	const struct fi_domain_attr *domain = query->hints->domain_attr;

	if (query->hints->ep_attr->rx_ctx_cnt != FI_SHARED_CONTEXT ||
	    vrc_srx_possible(dev, domain && domain->resource_mgmt ==
						    FI_RM_DISABLED))
		return true;
	vrc_whynot_add(&query->why, "ep_attr->rx_ctx_cnt",
		       "is FI_SHARED_CONTEXT, and of %s: %s", dev->name,
		       vrc_srx_whynot(dev));
	return false;
}

static bool check_protocol(struct vrc_query *query,
			   const struct fi_info *limits,
			   const struct vrc_dev *dev)
{
	const struct fi_ep_attr *asked = query->hints->ep_attr;
	const struct fi_ep_attr *have = limits->ep_attr;

	if (asked->protocol && asked->protocol != have->protocol) {
		vrc_whynot_add(&query->why, "ep_attr->protocol",
			       "is %u, and %s speaks %u (%s)", asked->protocol,
			       dev->name, have->protocol,
			       dev->is_iwarp ? "FI_PROTO_IWARP"
					     : "FI_PROTO_RDMA_CM_IB_RC");
		return false;
	}
	if (asked->protocol_version > have->protocol_version) {
		vrc_whynot_add(&query->why, "ep_attr->protocol_version",
			       "is %u, and vrc has %u", asked->protocol_version,
			       have->protocol_version);
		return false;
	}
	return true;
}

/* Asked for, or meant by an order that only they can have. */
static bool check_atomics(struct vrc_query *query, const struct fi_info *limits,
			  const struct vrc_dev *dev)
{
	const struct fi_info *hints = query->hints;
	uint64_t order = (hints->tx_attr ? hints->tx_attr->msg_order : 0) |
			 (hints->rx_attr ? hints->rx_attr->msg_order : 0);

	if (limits->caps & FI_ATOMIC)
		return true;
	if (hints->caps & FI_ATOMIC)
		vrc_whynot_add(&query->why, "caps",
			       "asks FI_ATOMIC, and %s has no atomic "
			       "operations", dev->name);
	else if (order & VRC_ATOMIC_ORDER)
		vrc_whynot_add(&query->why, "msg_order",
			       "asks for an order of atomics, and %s has no "
			       "atomic operations", dev->name);
	else
		return true;
	return false;
}

bool vrc_hints_check_limits(struct vrc_query *query,
			    const struct fi_info *limits,
			    const struct vrc_dev *dev)
{
	const struct fi_info *hints = query->hints;

	if (!hints)
		return true;
	if (!check_atomics(query, limits, dev) ||
	    !check_flags(query, "caps", hints->caps & VRC_SECONDARY_CAPS,
			 limits->caps, FI_TYPE_CAPS) ||
	    !check_sizes(query, limits, dev))
		return false;
	if (hints->ep_attr && (!check_protocol(query, limits, dev) ||
			       !check_shared(query, dev)))
		return false;
	if (hints->domain_attr &&
	    !check_flags(query, "domain_attr->caps", hints->domain_attr->caps,
			 limits->domain_attr->caps, FI_TYPE_CAPS))
		return false;
	if (hints->tx_attr &&
	    (!check_flags(query, "tx_attr->op_flags", hints->tx_attr->op_flags,
			  limits->tx_attr->op_flags, FI_TYPE_OP_FLAGS) ||
	     !check_delivery(query)))
		return false;
	return !hints->rx_attr ||
	       check_flags(query, "rx_attr->op_flags", hints->rx_attr->op_flags,
			   limits->rx_attr->op_flags, FI_TYPE_OP_FLAGS);
}
