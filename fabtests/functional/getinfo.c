/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_getinfo: hints are honoured, what cannot be is -FI_ENODATA, everything
 * returned can be opened. See fi_getinfo(3). Addresses are in getinfo_addr.c.
 */
#include "common.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable()
#define __lsan_enable()
#endif

/* libfabric 1.17 itself loses some bytes when its utility providers are asked
 * for other endpoint types; that is not ours to report. */
static int query_any(const char *node, const char *service, uint64_t flags,
		     const struct fi_info *hints, struct fi_info **info)
{
	int ret;

	__lsan_disable();
	ret = fi_getinfo(TEST_API, node, service, flags, hints, info);
	__lsan_enable();
	return ret;
}

static int query(const char *node, const char *service, uint64_t flags,
		 const struct fi_info *hints, struct fi_info **info)
{
	*info = NULL;
	if (!hints || !hints->ep_attr || hints->ep_attr->type != FI_EP_MSG)
		return query_any(node, service, flags, hints, info);
	return fi_getinfo(TEST_API, node, service, flags, hints, info);
}

static void check_attrs(const struct fi_info *i)
{
	ASSERT(i->fabric_attr && i->fabric_attr->name);
	ASSERT(i->fabric_attr->prov_name);
	ASSERT_OK(strcmp(i->fabric_attr->prov_name, provider()));
	ASSERT(i->domain_attr && i->domain_attr->name);
	ASSERT_EQ(i->ep_attr->type, FI_EP_MSG);
	ASSERT_NE(i->ep_attr->protocol, FI_PROTO_UNSPEC);
	ASSERT_NE(i->domain_attr->threading, FI_THREAD_UNSPEC);
	ASSERT_NE(i->domain_attr->control_progress, FI_PROGRESS_UNSPEC);
	ASSERT_NE(i->domain_attr->data_progress, FI_PROGRESS_UNSPEC);
	ASSERT_NE(i->domain_attr->resource_mgmt, FI_RM_UNSPEC);
	ASSERT_CMP(i->tx_attr->size, >, 0);
	ASSERT_CMP(i->rx_attr->size, >, 0);
	ASSERT_CMP(i->tx_attr->iov_limit, >, 0);
	ASSERT_CMP(i->rx_attr->iov_limit, >, 0);
	ASSERT(i->ep_attr->max_msg_size > 0);
	ASSERT_EQ(i->ep_attr->msg_prefix_size, 0);
	ASSERT_EQ(i->ep_attr->tx_ctx_cnt, 1);
	ASSERT(i->ep_attr->rx_ctx_cnt == 1 ||
	       i->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT);
	/* Capabilities of the parts are those of the whole. */
	ASSERT_EQ(i->tx_attr->caps & ~i->caps, 0);
	ASSERT_EQ(i->rx_attr->caps & ~i->caps, 0);
	ASSERT((i->src_addr != NULL) == (i->src_addrlen != 0));
	ASSERT((i->dest_addr != NULL) == (i->dest_addrlen != 0));
	ASSERT(!i->handle);
	/* Nobody should have to pass struct fi_context. */
	ASSERT_EQ((i->mode | i->tx_attr->mode | i->rx_attr->mode) &
		  (FI_CONTEXT | FI_CONTEXT2), 0);
}

static void open_everything(struct fi_info *i)
{
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_DATA };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;

	ASSERT_OK(fi_fabric(i->fabric_attr, &fabric, NULL));
	ASSERT_OK(fi_domain(fabric, i, &domain, NULL));
	ASSERT_OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	ASSERT_OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	ASSERT_OK(fi_endpoint(domain, i, &ep, NULL));
	ASSERT_OK(fi_ep_bind(ep, &eq->fid, 0));
	ASSERT_OK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	ASSERT_OK(fi_enable(ep));
	ASSERT_OK(fi_close(&ep->fid));
	ASSERT_OK(fi_close(&cq->fid));
	ASSERT_OK(fi_close(&eq->fid));
	ASSERT_OK(fi_close(&domain->fid));
	ASSERT_OK(fi_close(&fabric->fid));
}

/* All that is returned, for no address at all, can be used. */
static int all_can_be_opened(void)
{
	struct fi_info *hints = make_hints(NULL);
	struct fi_info *info;
	int n = 0;

	ASSERT_OK(query(NULL, NULL, 0, hints, &info));
	for (struct fi_info *i = info; i; i = i->next) {
		struct fi_info *copy = fi_dupinfo(i);

		ASSERT(copy);
		check_attrs(i);
		check_attrs(copy);
		open_everything(copy);
		fi_freeinfo(copy);
		n++;
	}
	printf("  %d entries\n", n);
	ASSERT_CMP(n, >, 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return PASSED;
}

static int no_hints(void)
{
	struct fi_info *info;
	bool found = false;

	ASSERT_OK(query(NULL, NULL, 0, NULL, &info));
	for (struct fi_info *i = info; i; i = i->next)
		if (!strcmp(i->fabric_attr->prov_name, provider()) &&
		    i->ep_attr->type == FI_EP_MSG) {
			check_attrs(i);
			found = true;
		}
	ASSERT(found);
	fi_freeinfo(info);
	return PASSED;
}

/* Hints need none of their parts. */
static int partial_hints(void)
{
	for (int part = 0; part < 5; part++) {
		struct fi_info *hints = make_hints(NULL);
		struct fi_info *info;

		switch (part) {
		case 0:
			free(hints->tx_attr);
			hints->tx_attr = NULL;
			break;
		case 1:
			free(hints->rx_attr);
			hints->rx_attr = NULL;
			break;
		case 2:
			free(hints->ep_attr);
			hints->ep_attr = NULL;
			break;
		case 3:
			/* No mr_mode bit is offered then. */
			free(hints->domain_attr);
			hints->domain_attr = NULL;
			hints->caps = FI_MSG;
			break;
		default:
			free(hints->fabric_attr->prov_name);
			free(hints->fabric_attr);
			hints->fabric_attr = NULL;
			break;
		}
		if (!query(NULL, NULL, 0, hints, &info))
			fi_freeinfo(info);
		else
			ASSERT_EQ(part, 3);
		fi_freeinfo(hints);
	}
	return PASSED;
}

/* A change to the hints, and whether there may be an answer. */
struct change {
	const char *what;
	size_t offset; /* of a size_t, in tx, rx, domain or ep */
	int part;
	size_t value;
};

enum { TX, RX, DOMAIN, EP };

static size_t *field(struct fi_info *info, const struct change *c)
{
	void *part[] = { info->tx_attr, info->rx_attr, info->domain_attr,
			 info->ep_attr };

	return (size_t *)((char *)part[c->part] + c->offset);
}

#define TX_FIELD(f) #f, offsetof(struct fi_tx_attr, f), TX
#define RX_FIELD(f) #f, offsetof(struct fi_rx_attr, f), RX
#define DOMAIN_FIELD(f) #f, offsetof(struct fi_domain_attr, f), DOMAIN
#define EP_FIELD(f) #f, offsetof(struct fi_ep_attr, f), EP

/* What is asked for is the least that is returned. */
static int sizes_honoured(void)
{
	static const struct change changes[] = {
		{ TX_FIELD(size), 1 },	    { TX_FIELD(size), 17 },
		{ TX_FIELD(size), 200 },    { RX_FIELD(size), 1 },
		{ RX_FIELD(size), 17 },	    { RX_FIELD(size), 200 },
		{ TX_FIELD(iov_limit), 1 }, { TX_FIELD(iov_limit), 2 },
		{ RX_FIELD(iov_limit), 1 }, { RX_FIELD(iov_limit), 2 },
		{ TX_FIELD(inject_size), 8 }, { TX_FIELD(inject_size), 64 },
		{ TX_FIELD(rma_iov_limit), 1 }, { EP_FIELD(max_msg_size), 4096 },
		{ EP_FIELD(max_msg_size), 1 << 20 },
		{ DOMAIN_FIELD(ep_cnt), 2 }, { DOMAIN_FIELD(cq_cnt), 2 },
		{ DOMAIN_FIELD(mr_iov_limit), 1 },
	};

	for (size_t n = 0; n < ARRAY_SIZE(changes); n++) {
		const struct change *c = &changes[n];
		struct fi_info *hints = make_hints(NULL);
		struct fi_info *info;
		int ret;

		*field(hints, c) = c->value;
		ret = query(test_addr(), NULL, FI_SOURCE, hints, &info);
		if (ret)
			FAIL("%s = %zu: %s", c->what, c->value,
			     fi_strerror(-ret));
		for (struct fi_info *i = info; i; i = i->next)
			if (*field(i, c) < c->value)
				FAIL("%s = %zu: got %zu", c->what, c->value,
				     *field(i, c));
		open_everything(info);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
	return PASSED;
}

static int sizes_too_large(void)
{
	static const struct change changes[] = {
		{ TX_FIELD(size), SIZE_MAX }, { RX_FIELD(size), SIZE_MAX },
		{ TX_FIELD(size), 1ULL << 32 }, { RX_FIELD(size), 1ULL << 32 },
		{ TX_FIELD(iov_limit), 1 << 20 },
		{ RX_FIELD(iov_limit), 1 << 20 },
		{ TX_FIELD(rma_iov_limit), 1 << 20 },
		{ TX_FIELD(inject_size), SIZE_MAX },
		{ TX_FIELD(inject_size), 1 << 30 },
		{ EP_FIELD(max_msg_size), SIZE_MAX },
		{ EP_FIELD(max_order_war_size), SIZE_MAX },
		{ EP_FIELD(tx_ctx_cnt), 1000 }, { EP_FIELD(rx_ctx_cnt), 1000 },
		{ DOMAIN_FIELD(cq_data_size), 64 },
		{ DOMAIN_FIELD(cntr_cnt), SIZE_MAX },
		{ DOMAIN_FIELD(ep_cnt), SIZE_MAX },
		{ DOMAIN_FIELD(cq_cnt), SIZE_MAX },
		{ DOMAIN_FIELD(mr_iov_limit), SIZE_MAX },
		{ DOMAIN_FIELD(max_ep_tx_ctx), 1000 },
		{ DOMAIN_FIELD(max_ep_stx_ctx), SIZE_MAX },
		{ RX_FIELD(total_buffered_recv), SIZE_MAX },
	};

	if (!is_vrc())
		return skip("%s has other limits", provider());
	for (size_t n = 0; n < ARRAY_SIZE(changes); n++) {
		struct fi_info *hints = make_hints(NULL);
		struct fi_info *info;
		int ret;

		*field(hints, &changes[n]) = changes[n].value;
		ret = query(test_addr(), NULL, FI_SOURCE, hints, &info);
		if (ret != -FI_ENODATA)
			FAIL("%s = %zu: %d, should be -FI_ENODATA",
			     changes[n].what, changes[n].value, ret);
		ASSERT(!info);
		fi_freeinfo(hints);
	}
	return PASSED;
}

static void no_data(struct fi_info *hints, const char *what)
{
	struct fi_info *info;
	int ret = query(NULL, NULL, 0, hints, &info);

	if (ret && ret != -FI_ENODATA)
		FAIL("%s: %d, should be -FI_ENODATA", what, ret);
	/* Others, such as "vrc;ofi_rxm", may have it. */
	for (struct fi_info *i = info; i; i = i->next)
		if (!strcmp(i->fabric_attr->prov_name, provider()))
			FAIL("%s: an entry, should be -FI_ENODATA", what);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* What a reliable connection cannot do, and names of nobody. */
static int not_offered(void)
{
	static const uint64_t caps[] = {
		FI_MSG | FI_MULTICAST, FI_MSG | FI_COLLECTIVE,
		FI_MSG | FI_DIRECTED_RECV, FI_MSG | FI_NAMED_RX_CTX,
		FI_MSG | FI_VARIABLE_MSG, FI_MSG | 1ULL << 59,
		FI_MSG | FI_TRIGGER, FI_MSG | FI_SOURCE,
	};
	struct fi_info *hints;

	if (!is_vrc())
		return skip("%s offers other things", provider());
	for (size_t i = 0; i < ARRAY_SIZE(caps); i++) {
		hints = make_hints(NULL);
		hints->caps = caps[i];
		no_data(hints, "caps");
	}
	for (int type = FI_EP_DGRAM; type <= FI_EP_SOCK_DGRAM; type++) {
		hints = make_hints(NULL);
		hints->ep_attr->type = (enum fi_ep_type)type;
		no_data(hints, "ep_attr->type");
	}
	hints = make_hints(NULL);
	hints->ep_attr->protocol = FI_PROTO_GNI;
	no_data(hints, "protocol");
	hints = make_hints(NULL);
	hints->fabric_attr->name = strdup("no-such-fabric");
	no_data(hints, "fabric name");
	hints = make_hints(NULL);
	hints->domain_attr->name = strdup("no-such-domain");
	no_data(hints, "domain name");
	hints = make_hints(NULL);
	hints->addr_format = FI_ADDR_GNI;
	no_data(hints, "addr_format");
	hints = make_hints(NULL);
	hints->tx_attr->msg_order = FI_ORDER_SAR;
	no_data(hints, "msg_order");
	hints = make_hints(NULL);
	hints->tx_attr->op_flags = FI_COMMIT_COMPLETE;
	no_data(hints, "tx op_flags");
	hints = make_hints(NULL);
	hints->rx_attr->op_flags = FI_MULTI_RECV;
	no_data(hints, "rx op_flags");
	return PASSED;
}

/* A name that was returned finds it again, and nothing else. */
static int names_find(void)
{
	struct fi_info *hints = make_hints(NULL);
	struct fi_info *all;
	struct fi_info *one;

	if (!is_vrc()) {
		fi_freeinfo(hints);
		return skip("%s looks for names that begin so", provider());
	}
	ASSERT_OK(query(NULL, NULL, 0, hints, &all));
	for (struct fi_info *i = all; i; i = i->next) {
		free(hints->domain_attr->name);
		free(hints->fabric_attr->name);
		hints->domain_attr->name = strdup(i->domain_attr->name);
		hints->fabric_attr->name = strdup(i->fabric_attr->name);
		ASSERT_OK(query(NULL, NULL, 0, hints, &one));
		for (struct fi_info *k = one; k; k = k->next) {
			ASSERT_OK(strcmp(k->domain_attr->name,
					 i->domain_attr->name));
			ASSERT_OK(strcmp(k->fabric_attr->name,
					 i->fabric_attr->name));
		}
		fi_freeinfo(one);
	}
	fi_freeinfo(all);
	fi_freeinfo(hints);
	return PASSED;
}

/* Primary capabilities are those asked for; others come with them. */
static int caps_honoured(void)
{
	static const uint64_t asked[] = {
		FI_MSG, FI_RMA, FI_MSG | FI_RMA, FI_MSG | FI_SEND,
		FI_MSG | FI_RECV, FI_RMA | FI_WRITE | FI_REMOTE_WRITE,
		FI_RMA | FI_READ, FI_MSG | FI_RMA | FI_LOCAL_COMM,
	};
	uint64_t primary = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC |
			   FI_MULTICAST | FI_COLLECTIVE;

	for (size_t n = 0; n < ARRAY_SIZE(asked); n++) {
		struct fi_info *hints = make_hints(NULL);
		struct fi_info *info;

		hints->caps = asked[n];
		ASSERT_OK(query(test_addr(), NULL, FI_SOURCE, hints, &info));
		for (struct fi_info *i = info; i; i = i->next) {
			ASSERT_EQ(i->caps & asked[n], asked[n]);
			ASSERT_EQ(i->caps & primary, asked[n] & primary);
		}
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
	return PASSED;
}

/* Bits that were not offered are never asked for. */
static int mr_modes(void)
{
	int all = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
		  FI_MR_PROV_KEY | FI_MR_RAW | FI_MR_ENDPOINT | FI_MR_HMEM;

	for (int n = 0; n < 32; n++) {
		struct fi_info *hints = make_hints(NULL);
		struct fi_info *info;
		int mode = (n & 1 ? FI_MR_LOCAL : 0) |
			   (n & 2 ? FI_MR_VIRT_ADDR : 0) |
			   (n & 4 ? FI_MR_ALLOCATED : 0) |
			   (n & 8 ? FI_MR_PROV_KEY : 0) |
			   (n & 16 ? all : 0);
		int ret;

		hints->domain_attr->mr_mode = mode;
		ret = query(test_addr(), NULL, FI_SOURCE, hints, &info);
		/* All that a device may want must be enough. */
		if ((mode & 15) == 15 || mode & FI_MR_RAW)
			ASSERT_OK(ret);
		if (!ret)
			for (struct fi_info *i = info; i; i = i->next)
				ASSERT_EQ(i->domain_attr->mr_mode & ~mode, 0);
		else
			ASSERT_EQ(ret, -FI_ENODATA);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
	return PASSED;
}

/* Immediate data: as large as asked for, or the entry is not there. */
static int cq_data(void)
{
	for (size_t size = 1; size <= 16; size *= 2) {
		struct fi_info *hints = make_hints(NULL);
		struct fi_info *info;
		int ret;

		hints->domain_attr->cq_data_size = size;
		ret = query(test_addr(), NULL, FI_SOURCE, hints, &info);
		if (!ret)
			for (struct fi_info *i = info; i; i = i->next)
				ASSERT_GE(i->domain_attr->cq_data_size, size);
		else
			ASSERT_EQ(ret, -FI_ENODATA);
		if (size > 8)
			ASSERT_EQ(ret, -FI_ENODATA);
		fi_freeinfo(info);
		/* Without FI_RX_CQ_DATA no receive may be consumed by it. */
		hints->domain_attr->cq_data_size = 0;
		hints->mode = hints->domain_attr->mode = 0;
		ASSERT_OK(query(test_addr(), NULL, FI_SOURCE, hints, &info));
		for (struct fi_info *i = info; i; i = i->next)
			ASSERT_EQ((i->mode | i->rx_attr->mode) &
				  FI_RX_CQ_DATA, 0);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
	return PASSED;
}

/* Old and new callers. */
static int versions(void)
{
	for (uint32_t minor = 0; minor <= 17; minor++) {
		struct fi_info *hints = make_hints(NULL);
		struct fi_info *info = NULL;
		int ret;

		if (minor < 5)
			hints->domain_attr->mr_mode = FI_MR_BASIC;
		ret = fi_getinfo(FI_VERSION(1, minor), test_addr(), NULL,
				 FI_SOURCE, hints, &info);
		if (minor >= 5)
			ASSERT_OK(ret);
		if (!ret && minor < 5)
			ASSERT_LE(info->domain_attr->mr_mode, FI_MR_SCALABLE);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
	return PASSED;
}

/* Attributes without looking at addresses. */
static int attributes_only(void)
{
	struct fi_info *hints = make_hints(NULL);
	struct fi_info *info;

	ASSERT_OK(query(NULL, NULL, FI_PROV_ATTR_ONLY, hints, &info));
	for (struct fi_info *i = info; i; i = i->next)
		ASSERT(i->fabric_attr && i->fabric_attr->prov_name);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return PASSED;
}

/* A thousand times: no file, and no memory to speak of, stays. */
static int repeated(void)
{
	struct fi_info *hints = make_hints(NULL);
	struct fi_info *info;
	uint64_t start = now_us();
	int n = scaled(1000);

	for (int i = 0; i < n; i++) {
		ASSERT_OK(query(test_addr(), NULL, FI_SOURCE, hints, &info));
		fi_freeinfo(info);
	}
	printf("  fi_getinfo: %d us\n", (int)((now_us() - start) / n));
	fi_freeinfo(hints);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(all_can_be_opened), CASE(no_hints), CASE(partial_hints),
		CASE(sizes_honoured), CASE(sizes_too_large),
		CASE(not_offered), CASE(names_find), CASE(caps_honoured),
		CASE(mr_modes), CASE(cq_data), CASE(versions),
		CASE(attributes_only), CASE(repeated), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
