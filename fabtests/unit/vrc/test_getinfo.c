/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_getinfo: hints against limits, and what the refusals say. Addresses and
 * devices are in test_getinfo_addr.c. Every test runs in its own process.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_verbs.h"
#include "fi_names.h"
#include "vrc_dev.h"
#include "vrc_ep.h"
#include "vrc_info.h"
#include "vrc_params.h"

#define RMA_MR                                                                 \
	(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

static struct fi_info *hints;
static struct fi_info *info;
static struct fake_device *roce;

static void init(void)
{
	fake_reset();
	roce = fake_roce_host();
	hints = fi_allocinfo();
	hints->fabric_attr->prov_name = strdup("vrc");
	hints->domain_attr->mr_mode = RMA_MR;
	info = NULL;
}

static void fini(void)
{
	fi_freeinfo(hints);
	fi_freeinfo(info);
	vrc_dev_forget();
	fake_check_clean();
}

static int ask(void)
{
	fi_freeinfo(info);
	return fake_getinfo(NULL, NULL, 0, hints, &info);
}

/* The hints are turned down, and the log says all of these. */
static void refused(const char *a, const char *b, const char *c)
{
	const char *words[] = { a, b, c };

	cr_assert_eq(ask(), -FI_ENODATA);
	cr_assert_null(info);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		cr_assert(!words[i] || strstr(fake.log, words[i]),
			  "no \"%s\" in: %s", words[i], fake.log);
	cr_assert_eq(fake.warns, 1, "%d warnings: %s", fake.warns, fake.log);
}

CLEAN_TEST(getinfo, no_hints)
{
	cr_assert_eq(fake_getinfo(NULL, NULL, 0, NULL, &info), 0);
	cr_assert_eq(fake.warns, 0);
	cr_assert_eq(info->ep_attr->type, FI_EP_MSG);
	cr_assert_eq(info->ep_attr->protocol, FI_PROTO_RDMA_CM_IB_RC);
	cr_assert_eq(info->caps, VRC_PRIMARY_CAPS | VRC_SECONDARY_CAPS);
	cr_assert_eq(info->tx_attr->caps, VRC_TX_CAPS);
	cr_assert_eq(info->rx_attr->caps, VRC_RX_CAPS);
	cr_assert_eq(info->domain_attr->mr_mode, RMA_MR);
	cr_assert_eq(info->mode, FI_RX_CQ_DATA);
	cr_assert_eq(info->rx_attr->mode, FI_RX_CQ_DATA);
	cr_assert_eq(info->domain_attr->cq_data_size, 4);
	cr_assert_eq(info->tx_attr->size, 384);
	cr_assert_eq(info->tx_attr->inject_size, 256);
	cr_assert_eq(info->tx_attr->iov_limit, VRC_IOV_LIMIT);
	cr_assert_eq(info->tx_attr->op_flags, 0);
	cr_assert_eq(info->ep_attr->max_msg_size, 1u << 30);
	cr_assert_eq(info->domain_attr->ep_cnt, 1000);
	cr_assert_eq(info->domain_attr->cntr_cnt, info->domain_attr->cq_cnt);
	cr_assert_str_eq(info->domain_attr->name, "roce0");
	cr_assert_str_eq(info->fabric_attr->name, "10.7.0.0/24");
	cr_assert_null(info->fabric_attr->prov_name);
}

/* What comes back with no hints must be good as hints. */
CLEAN_TEST(getinfo, answer_as_hints)
{
	struct fi_info *again;

	cr_assert_eq(fake_getinfo(NULL, NULL, 0, NULL, &info), 0);
	info->tx_attr->size = 16382;
	info->tx_attr->inject_size = VRC_INJECT_MAX;
	cr_assert_eq(fake_getinfo(NULL, NULL, 0, info, &again), 0, "%s",
		     fake.log);
	cr_assert_eq(again->tx_attr->size, 16382);
	cr_assert_eq(again->tx_attr->inject_size, VRC_INJECT_MAX);
	cr_assert_eq(again->domain_attr->mr_mode, RMA_MR);
	fi_freeinfo(again);
}

CLEAN_TEST(getinfo, hints_without_parts)
{
	struct fi_info bare = { .caps = FI_MSG };

	cr_assert_eq(fake_getinfo(NULL, NULL, 0, &bare, &info), 0);
	cr_assert_eq(info->caps & VRC_PRIMARY_CAPS, FI_MSG | FI_SEND | FI_RECV);
}

struct refusal {
	const char *subject;
	const char *text;
	size_t attr, field;
	uint64_t value;
	size_t size;
};

#define REFUSAL(part, type, name, value_, text_)                               \
	{                                                                      \
#part "->" #name, text_, offsetof(struct fi_info, part),       \
			offsetof(struct type, name), value_,                   \
			sizeof(((struct type *)0)->name)                       \
	}

static const struct refusal refusals[] = {
	REFUSAL(tx_attr, fi_tx_attr, size, 16383, "16382"),
	REFUSAL(tx_attr, fi_tx_attr, size, SIZE_MAX, "18446744073709551615"),
	REFUSAL(rx_attr, fi_rx_attr, size, 16383, "16382"),
	REFUSAL(tx_attr, fi_tx_attr, inject_size, 4097, "4096"),
	REFUSAL(tx_attr, fi_tx_attr, iov_limit, 5, "at most 4"),
	REFUSAL(tx_attr, fi_tx_attr, rma_iov_limit, 2, "at most 1"),
	REFUSAL(rx_attr, fi_rx_attr, iov_limit, 5, "at most 4"),
	REFUSAL(tx_attr, fi_tx_attr, op_flags, FI_COMMIT_COMPLETE,
		"0x40000000"),
	REFUSAL(rx_attr, fi_rx_attr, op_flags, FI_MULTI_RECV, "FI_MULTI_RECV"),
	REFUSAL(tx_attr, fi_tx_attr, op_flags, 1ULL << 62,
		"0x4000000000000000"),
	REFUSAL(tx_attr, fi_tx_attr, msg_order, FI_ORDER_WAR, "FI_ORDER_WAR"),
	REFUSAL(rx_attr, fi_rx_attr, msg_order, FI_ORDER_SAR, "FI_ORDER_SAR"),
	REFUSAL(rx_attr, fi_rx_attr, comp_order, FI_ORDER_DATA, "0x10000"),
	REFUSAL(tx_attr, fi_tx_attr, caps, FI_ATOMIC, "FI_ATOMIC"),
	REFUSAL(rx_attr, fi_rx_attr, caps, FI_TAGGED, "FI_TAGGED"),
	REFUSAL(ep_attr, fi_ep_attr, type, FI_EP_RDM, "vrc;ofi_rxm"),
	REFUSAL(ep_attr, fi_ep_attr, type, 77, "77"),
	REFUSAL(ep_attr, fi_ep_attr, protocol, FI_PROTO_IWARP,
		"FI_PROTO_RDMA_CM_IB_RC"),
	REFUSAL(ep_attr, fi_ep_attr, protocol_version, 2, "vrc has 1"),
	REFUSAL(ep_attr, fi_ep_attr, max_msg_size, (1u << 30) + 1,
		"1073741824"),
	REFUSAL(ep_attr, fi_ep_attr, tx_ctx_cnt, 2, "at most 1"),
	/* The fake devices have no shared receive queues. */
	REFUSAL(ep_attr, fi_ep_attr, rx_ctx_cnt, FI_SHARED_CONTEXT,
		"no shared receive queues"),
	REFUSAL(ep_attr, fi_ep_attr, auth_key_size, 8, "at most 0"),
	REFUSAL(domain_attr, fi_domain_attr, cq_data_size, 8, "at most 4"),
	REFUSAL(domain_attr, fi_domain_attr, ep_cnt, 1001, "1000"),
	REFUSAL(domain_attr, fi_domain_attr, cq_cnt, 2001, "2000"),
	REFUSAL(domain_attr, fi_domain_attr, mr_cnt, 3001, "3000"),
	REFUSAL(domain_attr, fi_domain_attr, cntr_cnt, 2001, "2000"),
	REFUSAL(domain_attr, fi_domain_attr, mr_iov_limit, 2, "at most 1"),
	REFUSAL(domain_attr, fi_domain_attr, max_ep_srx_ctx, 1, "at most 0"),
	REFUSAL(domain_attr, fi_domain_attr, caps, FI_SHARED_AV,
		"FI_SHARED_AV"),
	REFUSAL(domain_attr, fi_domain_attr, threading, 99, "99"),
	REFUSAL(domain_attr, fi_domain_attr, threading, (uint32_t)-1, "-1"),
	REFUSAL(domain_attr, fi_domain_attr, data_progress, 9, "is 9"),
	REFUSAL(domain_attr, fi_domain_attr, control_progress, 9, "is 9"),
	REFUSAL(domain_attr, fi_domain_attr, resource_mgmt, 9, "is 9"),
	REFUSAL(domain_attr, fi_domain_attr, av_type, 9, "is 9"),
	REFUSAL(domain_attr, fi_domain_attr, mr_mode, FI_MR_LOCAL,
		"FI_MR_VIRT_ADDR"),
	REFUSAL(domain_attr, fi_domain_attr, mr_mode, FI_MR_SCALABLE,
		"FI_MR_SCALABLE"),
	REFUSAL(fabric_attr, fi_fabric_attr, prov_version, FI_VERSION(9, 9),
		"9.9"),
};

/* By index: the worker process has other addresses. */
ParameterizedTestParameters(getinfo, refusal)
{
	static int index[ARRAY_SIZE(refusals)];

	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		index[i] = (int)i;
	return cr_make_param_array(int, index, ARRAY_SIZE(refusals));
}

/* One hint too many: one warning that names it and the limit. */
static void refusal(const struct refusal *param)
{
	char *attr;

	hints->caps = FI_MSG | FI_RMA;
	memcpy(&attr, (char *)hints + param->attr, sizeof(attr));
	memcpy(attr + param->field, &param->value, param->size);
	refused(param->subject, param->text, NULL);
}

ParameterizedTest(int *index, getinfo, refusal, .timeout = 60)
{
	init();
	refusal(&refusals[*index]);
	fini();
}

CLEAN_TEST(getinfo, caps_refused)
{
	static const uint64_t other[] = { FI_TAGGED,	    FI_TRIGGER,
					  FI_MULTICAST,	    FI_HMEM,
					  FI_MULTI_RECV,    FI_RMA_EVENT,
					  FI_DIRECTED_RECV, 1ULL << 60 };

	for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
		hints->caps = FI_MSG | other[i];
		cr_assert_eq(ask(), -FI_ENODATA);
		cr_assert(strstr(fake.log, "caps"), "%s", fake.log);
	}
}

/* Not just that there is none of it. */
CLEAN_TEST(getinfo, no_rma_events)
{
	hints->caps = FI_MSG | FI_RMA | FI_RMA_EVENT;
	refused("caps", "FI_RMA_EVENT", "tells its target nothing");
}

CLEAN_TEST(getinfo, caps_modifiers)
{
	hints->caps = FI_MSG;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->caps & VRC_PRIMARY_CAPS, FI_MSG | FI_SEND | FI_RECV);
	cr_assert_eq(info->tx_attr->caps, FI_MSG | FI_SEND);
	cr_assert_eq(info->rx_attr->caps, FI_MSG | FI_RECV);
	cr_assert_eq(info->domain_attr->mr_mode, FI_MR_LOCAL | FI_MR_ALLOCATED);

	hints->caps = FI_MSG | FI_RMA | FI_WRITE;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->caps & VRC_PRIMARY_CAPS,
		     FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_WRITE);
	cr_assert_eq(info->tx_attr->caps, FI_MSG | FI_RMA | FI_SEND | FI_WRITE);
	cr_assert_eq(info->rx_attr->caps, FI_MSG | FI_RMA | FI_RECV);

	hints->caps = FI_RMA;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->rx_attr->caps,
		     FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE);

	/* A context may want less than its endpoint. */
	hints->caps = FI_MSG | FI_RMA;
	hints->tx_attr->caps = FI_MSG;
	hints->rx_attr->caps = FI_RMA | FI_REMOTE_WRITE;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->tx_attr->caps, FI_MSG | FI_SEND);
	cr_assert_eq(info->rx_attr->caps, FI_RMA | FI_REMOTE_WRITE);

	/* But not more. */
	hints->caps = FI_MSG;
	hints->rx_attr->caps = FI_RMA;
	refused("rx_attr->caps", "FI_RMA", NULL);
}

/* FI_MR_LOCAL is used if it is offered, and can be done without. */
CLEAN_TEST(getinfo, mr_mode_bits)
{
	hints->caps = FI_MSG | FI_RMA;
	/* Bits that nobody knows are offered, not asked. */
	hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->domain_attr->mr_mode, RMA_MR);

	hints->domain_attr->mr_mode = RMA_MR & ~FI_MR_LOCAL;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->domain_attr->mr_mode, RMA_MR & ~FI_MR_LOCAL);
	cr_assert_eq(info->mode & FI_LOCAL_MR, 0);

	hints->caps = FI_MSG;
	hints->domain_attr->mr_mode = 0;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->domain_attr->mr_mode, 0);

	/* Nothing asked: what fits what is offered. */
	hints->caps = 0;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->caps & (FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
	cr_assert(info->caps & FI_RMA);
	cr_assert_eq(info->domain_attr->mr_mode, 0);
}

CLEAN_TEST(getinfo, mr_mode_every_combination)
{
	static const int bits[] = { FI_MR_LOCAL,     FI_MR_RAW,
				    FI_MR_VIRT_ADDR, FI_MR_ALLOCATED,
				    FI_MR_PROV_KEY,  FI_MR_MMU_NOTIFY,
				    FI_MR_RMA_EVENT, FI_MR_ENDPOINT };
	const int need = RMA_MR & ~FI_MR_LOCAL;
	int mode, ret;

	for (int i = 0; i < 256; i++) {
		mode = 0;
		for (int b = 0; b < 8; b++)
			mode |= i & 1 << b ? bits[b] : 0;
		hints->domain_attr->mr_mode = mode;
		hints->caps = FI_MSG | FI_RMA;
		ret = ask();
		cr_assert_eq(ret, (mode & need) == need ? 0 : -FI_ENODATA,
			     "0x%x: %d", mode, ret);
		if (!ret)
			cr_assert_eq(info->domain_attr->mr_mode & ~mode, 0);
	}
}

CLEAN_TEST(getinfo, mr_mode_old_api)
{
	hints->mode = FI_LOCAL_MR;
	hints->domain_attr->mr_mode = FI_MR_BASIC;
	hints->caps = FI_RMA;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->domain_attr->mr_mode, FI_MR_BASIC);
	cr_assert(info->mode & FI_LOCAL_MR);

	hints->mode = 0;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->domain_attr->mr_mode, FI_MR_BASIC);
	cr_assert_eq(info->mode & FI_LOCAL_MR, 0);

	for (int mode = 0; mode <= 3; mode++) {
		fi_freeinfo(info);
		info = NULL;
		hints->domain_attr->mr_mode = mode;
		cr_assert_eq(vrc_getinfo(FI_VERSION(1, 0), NULL, NULL, 0, hints,
					 &info),
			     mode <= FI_MR_BASIC ? 0 : -FI_ENODATA);
		if (info)
			cr_assert_eq(info->domain_attr->mr_mode, FI_MR_BASIC);
	}

	hints->domain_attr->mr_mode = FI_MR_BASIC | FI_MR_LOCAL;
	cr_assert_eq(ask(), -FI_ENODATA);
}

CLEAN_TEST(getinfo, cq_data)
{
	hints->mode = FI_RX_CQ_DATA;
	hints->domain_attr->cq_data_size = 4;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->domain_attr->cq_data_size, 4);
	cr_assert_eq(info->mode, FI_RX_CQ_DATA);
	cr_assert_eq(info->rx_attr->mode, FI_RX_CQ_DATA);
	cr_assert_eq(info->tx_attr->mode, 0);

	/* For the receive context alone. */
	hints->mode = 0;
	hints->rx_attr->mode = FI_RX_CQ_DATA;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->mode, 0);
	cr_assert_eq(info->rx_attr->mode, FI_RX_CQ_DATA);

	/* What the context says counts, if it says anything. */
	hints->mode = FI_RX_CQ_DATA | FI_CONTEXT;
	hints->rx_attr->mode = FI_CONTEXT;
	hints->domain_attr->cq_data_size = 0;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->domain_attr->cq_data_size, 0);
	cr_assert_eq(info->mode | info->rx_attr->mode, 0);

	/* Not offered, and so not to be had, asked for or not. */
	hints->rx_attr->mode = 0;
	hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | FI_ASYNC_IOV;
	for (size_t size = 0; size <= 4; size += 4) {
		hints->domain_attr->cq_data_size = size;
		cr_assert_eq(ask(), 0);
		cr_assert_eq(info->domain_attr->cq_data_size, 0);
		cr_assert_eq(info->mode, 0);
		cr_assert_eq(info->rx_attr->mode, 0);
	}
}

CLEAN_TEST(getinfo, progress_and_threading_come_back)
{
	for (int p = FI_PROGRESS_AUTO; p <= FI_PROGRESS_MANUAL; p++) {
		hints->domain_attr->data_progress = (enum fi_progress)p;
		hints->domain_attr->control_progress = (enum fi_progress)p;
		cr_assert_eq(ask(), 0);
		cr_assert_eq((int)info->domain_attr->data_progress, p);
		cr_assert_eq((int)info->domain_attr->control_progress, p);
	}
	for (int t = FI_THREAD_SAFE; t <= FI_THREAD_ENDPOINT; t++) {
		hints->domain_attr->threading = (enum fi_threading)t;
		cr_assert_eq(ask(), 0);
		cr_assert_eq((int)info->domain_attr->threading, t);
	}
	hints->domain_attr->threading = FI_THREAD_UNSPEC;
	hints->domain_attr->resource_mgmt = FI_RM_DISABLED;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->domain_attr->threading, FI_THREAD_SAFE);
	cr_assert_eq(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
}

CLEAN_TEST(getinfo, order)
{
	hints->tx_attr->msg_order = VRC_MSG_ORDER;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->tx_attr->comp_order = FI_ORDER_STRICT;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->tx_attr->msg_order, VRC_MSG_ORDER | VRC_ATOMIC_ORDER);
	cr_assert_eq(info->rx_attr->msg_order, VRC_MSG_ORDER | VRC_ATOMIC_ORDER);
	cr_assert_eq(info->tx_attr->comp_order, FI_ORDER_STRICT);
	cr_assert_eq(info->ep_attr->max_order_raw_size, 1u << 30);
	cr_assert_eq(info->ep_attr->max_order_waw_size, 1u << 30);
	cr_assert_eq(info->ep_attr->max_order_war_size, 0);

	fi_freeinfo(info);
	info = NULL;
	cr_assert_eq(vrc_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, hints, &info),
		     0);
	cr_assert_eq(info->tx_attr->comp_order, 0);
	cr_assert_eq(info->rx_attr->comp_order, 0);

	hints->caps = FI_RMA;
	hints->ep_attr->max_order_raw_size = (1u << 30) + 1;
	refused("max_order_raw_size", "1073741825", "1073741824");
}

CLEAN_TEST(getinfo, atomics)
{
	hints->caps = FI_ATOMIC;
	hints->tx_attr->msg_order = VRC_ATOMIC_ORDER;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->caps & VRC_PRIMARY_CAPS,
		     FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ |
			     FI_REMOTE_WRITE);
	cr_assert_eq(info->tx_attr->caps, FI_ATOMIC | FI_READ | FI_WRITE);
	cr_assert_eq(info->rx_attr->caps,
		     FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE);
	/* Being the target takes what it takes for RMA. */
	hints->domain_attr->mr_mode = FI_MR_LOCAL;
	refused("mr_mode", "FI_MR_VIRT_ADDR", NULL);
}

/* There is a device, but it has none of them. */
CLEAN_TEST(getinfo, no_atomics)
{
	roce->attr.atomic_cap = IBV_ATOMIC_NONE;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->caps & VRC_PRIMARY_CAPS,
		     VRC_PRIMARY_CAPS & ~FI_ATOMIC);
	cr_assert(!(info->tx_attr->caps & FI_ATOMIC));
	cr_assert(!(info->rx_attr->caps & FI_ATOMIC));
	cr_assert_eq(info->tx_attr->msg_order, VRC_MSG_ORDER);
	cr_assert_eq(info->rx_attr->msg_order, VRC_MSG_ORDER);
	hints->caps = FI_MSG | FI_ATOMIC;
	refused("caps", "FI_ATOMIC", "roce0");
}

CLEAN_TEST(getinfo, no_order_of_atomics)
{
	roce->attr.atomic_cap = IBV_ATOMIC_NONE;
	hints->rx_attr->msg_order = FI_ORDER_ATOMIC_RAW;
	refused("msg_order", "order of atomics", "roce0");
}

/* inject_size is a promise, whatever the device inlines. */
CLEAN_TEST(getinfo, sizes_as_asked)
{
	hints->tx_attr->inject_size = 64;
	hints->tx_attr->size = 16382;
	hints->rx_attr->size = 1;
	hints->tx_attr->op_flags = FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;
	hints->rx_attr->op_flags = FI_COMPLETION;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->tx_attr->inject_size, 64);
	cr_assert_eq(info->tx_attr->size, 16382);
	cr_assert_eq(info->rx_attr->size, 1);
	cr_assert_eq(info->tx_attr->op_flags,
		     FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE);
	cr_assert_eq(info->rx_attr->op_flags, FI_COMPLETION);
}

/* What takes two places in the queue. */
CLEAN_TEST(getinfo, delivery_in_a_small_queue)
{
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->tx_attr->size = 2;
	cr_assert_eq(ask(), 0);
	hints->tx_attr->size = 1;
	refused("tx_attr->size", "is 1, and", "at least 2");
	hints->tx_attr->op_flags = 0;
	cr_assert_eq(ask(), 0);
}

/* The default of the environment is a size as any other. */
CLEAN_TEST(getinfo, delivery_in_a_small_default)
{
	vrc_params.tx_size = 1;
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	refused("tx_attr->size", "is 1, and", "at least 2");
	hints->tx_attr->size = 2;
	cr_assert_eq(ask(), 0);
}

/* Defaults shrink to what a small device has. */
CLEAN_TEST(getinfo, small_device)
{
	roce->attr.max_qp_wr = 10;
	roce->attr.max_sge = 2;
	roce->attr.max_mr = -1;
	roce->port[0].max_msg_sz = 128;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->tx_attr->size, 8);
	cr_assert_eq(info->rx_attr->size, 8);
	cr_assert_eq(info->tx_attr->iov_limit, 2);
	cr_assert_eq(info->tx_attr->inject_size, 128);
	cr_assert_eq(info->domain_attr->mr_cnt, 0);
	hints->tx_attr->size = 9;
	refused("tx_attr->size", "is 9", "at most 8");
}

/* A handle is passed on, as fi_getinfo(3) says. */
CLEAN_TEST(getinfo, handle)
{
	struct fid fid = { .fclass = FI_CLASS_PEP };

	hints->handle = &fid;
	cr_assert_eq(ask(), 0);
	cr_assert_eq(info->handle, &fid);
	hints->handle = NULL;
}

CLEAN_TEST(getinfo, bad_flags)
{
	cr_assert_eq(fake_getinfo(NULL, NULL, FI_SOURCE, hints, &info),
		     -FI_EINVAL);
	cr_assert_eq(fake_getinfo(NULL, NULL, 1ULL << 40, hints, &info),
		     -FI_EINVAL);
	cr_assert_null(info);
	cr_assert_eq(fake_getinfo("10.7.0.1", NULL,
				  FI_PROV_ATTR_ONLY | FI_SOURCE, hints, &info),
		     0);
	cr_assert_null(info->next);
}

/* The same hint warns once; others are for those who read INFO. */
CLEAN_TEST(getinfo, warns_once_per_hint)
{
	hints->caps = FI_TAGGED;
	cr_assert_eq(ask(), -FI_ENODATA);
	cr_assert_eq(fake.warns, 1);
	cr_assert_eq(ask(), -FI_ENODATA);
	cr_assert_eq(fake.warns, 0);
	cr_assert_eq(fake.infos, 1);
	hints->caps = 0;
	hints->tx_attr->size = SIZE_MAX;
	cr_assert_eq(ask(), -FI_ENODATA);
	cr_assert_eq(fake.warns, 1);
}

/* Nobody asked for vrc. */
CLEAN_TEST(getinfo, unasked_never_warns)
{
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = NULL;
	hints->caps = FI_TAGGED;
	cr_assert_eq(ask(), -FI_ENODATA);
	cr_assert_eq(fake.warns, 0);
	cr_assert_eq(fake.infos, 1, "%s", fake.log);
	/* And once is enough. */
	cr_assert_eq(ask(), -FI_ENODATA);
	cr_assert_eq(fake.infos, 0, "%s", fake.log);
	setenv("FI_PROVIDER", "^vrc", 1);
	hints->tx_attr->size = SIZE_MAX;
	hints->caps = 0;
	cr_assert_eq(ask(), -FI_ENODATA);
	cr_assert_eq(fake.warns, 0);
	setenv("FI_PROVIDER", "tcp;vrc", 1);
	hints->tx_attr->size = 0;
	hints->rx_attr->size = SIZE_MAX;
	cr_assert_eq(ask(), -FI_ENODATA);
	cr_assert_eq(fake.warns, 1);
}

/* A utility provider tries this and that on its user's behalf. */
CLEAN_TEST(getinfo, layered_never_warns)
{
	hints->caps |= FI_TAGGED;
	cr_assert_eq(fake_getinfo(NULL, NULL, 1ULL << 59, hints, &info),
		     -FI_ENODATA);
	cr_assert_eq(fake.warns, 0);
	cr_assert_eq(fake.infos, 1);
	/* Nor says a word if nobody asked for vrc. */
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = NULL;
	cr_assert_eq(fake_getinfo(NULL, NULL, 1ULL << 59, hints, &info),
		     -FI_ENODATA);
	cr_assert_eq(fake.infos, 0);
}
