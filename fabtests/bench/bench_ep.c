/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The connection: from fi_getinfo to a connected FI_EP_MSG endpoint with its
 * receives posted, and back. One set of hints for all providers; what they
 * return is honoured, and reported.
 */
#include "bench_side.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define MR_MODE_OFFERED                                                        \
	(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

/* A failed libfabric call, in words. */
static int call_failed(struct side *side, const char *call, ssize_t ret)
{
	return side_fail(side, "%s: %s", call, fi_strerror((int)-ret));
}

static struct fi_info *hints_create(struct side *side)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		return NULL;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = MR_MODE_OFFERED;
	/* A side has one thread: no provider needs to lock for us. */
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	switch (side->job->progress) {
	case BENCH_PROGRESS_AUTO:
		hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
		break;
	case BENCH_PROGRESS_MANUAL:
		hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
		break;
	case BENCH_PROGRESS_DEFAULT:
		break;
	}
	hints->fabric_attr->prov_name = strdup(side->job->provider);
	if (!hints->fabric_attr->prov_name) {
		fi_freeinfo(hints);
		return NULL;
	}
	return hints;
}

/* port is NULL for the target, which listens wherever there is room. */
static int get_info(struct side *side, const char *port)
{
	struct fi_info *hints = hints_create(side);
	int ret;

	if (!hints)
		return side_fail(side, "out of memory");
	ret = fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
			 side->job->addr, port ? port : "0",
			 port ? 0 : FI_SOURCE, hints, &side->info);
	fi_freeinfo(hints);
	if (ret == -FI_ENODATA)
		return side_fail(side,
				 "libfabric offers no such provider for "
				 "FI_EP_MSG with FI_MSG|FI_RMA on %s",
				 side->job->addr);
	if (ret != 0)
		return call_failed(side, "fi_getinfo", ret);
	if (strcmp(side->info->fabric_attr->prov_name, side->job->provider))
		return side_fail(side, "libfabric answered with provider %.60s",
				 side->info->fabric_attr->prov_name);
	return 0;
}

/*
 * libfabric takes a tenth of a second for its first call. The initiator makes
 * one while the target makes its own; what comes of it shows later.
 */
void side_start_libfabric(void)
{
	struct fi_info *info;

	if (fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), NULL,
		       NULL, FI_PROV_ATTR_ONLY, NULL, &info) == 0)
		fi_freeinfo(info);
}

static void copy_name(char *dst, const char *src)
{
	snprintf(dst, BENCH_NAME_LEN, "%s", src ? src : "");
}

static void identify(struct side *side)
{
	struct bench_identity *id = &side->report.identity;
	const struct fi_info *info = side->info;

	copy_name(id->provider, info->fabric_attr->prov_name);
	copy_name(id->domain, info->domain_attr->name);
	copy_name(id->fabric, info->fabric_attr->name);
	if (info->nic && info->nic->device_attr)
		copy_name(id->device, info->nic->device_attr->name);
	copy_name(id->progress, fi_tostr(&info->domain_attr->data_progress,
					 FI_TYPE_PROGRESS));
	id->provider_version = info->fabric_attr->prov_version;
	id->libfabric_version = fi_version();
	id->mr_mode = (uint32_t)info->domain_attr->mr_mode;
	id->inject_len = (uint32_t)info->tx_attr->inject_size;
	id->tx_depth = (uint32_t)info->tx_attr->size;
	id->rx_depth = (uint32_t)info->rx_attr->size;
}

/* What we were given must be something that we said we can do. */
static int check_info(struct side *side)
{
	const struct fi_info *info = side->info;
	uint64_t modes = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;

	identify(side);
	if (info->domain_attr->mr_mode & ~MR_MODE_OFFERED)
		return side_fail(side, "returned mr_mode 0x%x was not offered",
				 info->domain_attr->mr_mode);
	if (info->mode & ~modes)
		return side_fail(side, "returned mode 0x%llx was not offered",
				 (unsigned long long)info->mode);
	if (info->ep_attr->max_msg_size < side->workload->op_len)
		return side_fail(side, "max_msg_size is only %zu",
				 info->ep_attr->max_msg_size);
	if (info->tx_attr->size == 0 || info->rx_attr->size == 0)
		return side_fail(side, "transmit or receive size is 0");
	return 0;
}

static int open_fabric(struct side *side)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	int ret = fi_fabric(side->info->fabric_attr, &side->fabric, NULL);

	if (ret != 0)
		return call_failed(side, "fi_fabric", ret);
	ret = fi_eq_open(side->fabric, &attr, &side->eq, NULL);
	if (ret != 0)
		return call_failed(side, "fi_eq_open", ret);
	return 0;
}

/*
 * Opens everything that a connection needs and posts the receives. Only a
 * queue that is slept on has a wait object, as a program would have it.
 */
static int open_ep(struct side *side)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_MSG,
		.wait_obj = side->sleeps ? FI_WAIT_UNSPEC : FI_WAIT_NONE,
	};
	uint64_t tx_flags = FI_TRANSMIT;
	int ret = fi_domain(side->fabric, side->info, &side->domain, NULL);

	if (ret != 0)
		return call_failed(side, "fi_domain", ret);
	attr.size = side->info->tx_attr->size + side->info->rx_attr->size;
	ret = fi_cq_open(side->domain, &attr, &side->cq, NULL);
	if (ret != 0)
		return call_failed(side, "fi_cq_open", ret);
	ret = fi_endpoint(side->domain, side->info, &side->ep, NULL);
	if (ret != 0)
		return call_failed(side, "fi_endpoint", ret);
	ret = fi_ep_bind(side->ep, &side->eq->fid, 0);
	if (ret != 0)
		return call_failed(side, "fi_ep_bind of the EQ", ret);
	/* fi_sendmsg completes unless asked not to; fi_inject never does. */
	if (side->job->post == BENCH_POST_MORE && !side->workload->rma)
		tx_flags |= FI_SELECTIVE_COMPLETION;
	ret = fi_ep_bind(side->ep, &side->cq->fid, tx_flags);
	if (ret == 0)
		ret = fi_ep_bind(side->ep, &side->cq->fid, FI_RECV);
	if (ret != 0)
		return call_failed(side, "fi_ep_bind of the CQ", ret);
	ret = fi_enable(side->ep);
	if (ret != 0)
		return call_failed(side, "fi_enable", ret);

	if (side_memory_init(side) != 0)
		return -1;
	for (uint32_t i = 0; i < side->rx_cnt; i++) {
		if (side_post_rx(side, &side->slots[i]) != 0)
			return -1;
	}
	return 0;
}

/* Waits for one connection event, which must be the one expected. */
static int expect_event(struct side *side, uint32_t wanted,
			struct fi_eq_cm_entry *entry)
{
	int timeout_ms = side->job->timeout_ms;
	struct fi_eq_err_entry err = { 0 };
	uint32_t event = 0;
	ssize_t ret;

	ret = fi_eq_sread(side->eq, &event, entry, sizeof(*entry), timeout_ms,
			  0);
	if (ret == -FI_EAVAIL) {
		fi_eq_readerr(side->eq, &err, 0);
		return side_fail(side, "connection failed: %s",
				 fi_strerror(err.err));
	}
	if (ret == -FI_EAGAIN || ret == 0)
		return side_fail(side, "no connection event within %d ms",
				 timeout_ms);
	if (ret < 0)
		return call_failed(side, "fi_eq_sread", ret);
	if (event != wanted)
		return side_fail(side, "connection event %u instead of %u",
				 event, wanted);
	return 0;
}

static int listening_port(struct side *side, uint16_t *port)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} addr;
	size_t len = sizeof(addr);
	int ret = fi_getname(&side->pep->fid, &addr, &len);

	if (ret != 0)
		return call_failed(side, "fi_getname", ret);
	if (addr.any.sa_family == AF_INET)
		*port = ntohs(addr.in.sin_port);
	else if (addr.any.sa_family == AF_INET6)
		*port = ntohs(addr.in6.sin6_port);
	else
		return side_fail(side, "fi_getname: address family %d",
				 addr.any.sa_family);
	if (*port == 0)
		return side_fail(side, "fi_getname: port 0 after fi_listen");
	return 0;
}

int side_listen(struct side *side, uint16_t *port)
{
	int ret;

	if (get_info(side, NULL) != 0 || open_fabric(side) != 0)
		return -1;
	ret = fi_passive_ep(side->fabric, side->info, &side->pep, NULL);
	if (ret != 0)
		return call_failed(side, "fi_passive_ep", ret);
	ret = fi_pep_bind(side->pep, &side->eq->fid, 0);
	if (ret != 0)
		return call_failed(side, "fi_pep_bind", ret);
	ret = fi_listen(side->pep);
	if (ret != 0)
		return call_failed(side, "fi_listen", ret);
	return listening_port(side, port);
}

int side_accept(struct side *side)
{
	struct fi_eq_cm_entry entry;
	int ret;

	if (expect_event(side, FI_CONNREQ, &entry) != 0)
		return -1;
	/* The request's info is the connection's; the listener's is done. */
	fi_freeinfo(side->info);
	side->info = entry.info;
	if (check_info(side) != 0 || open_ep(side) != 0)
		return -1;
	ret = fi_accept(side->ep, NULL, 0);
	if (ret != 0)
		return call_failed(side, "fi_accept", ret);
	return expect_event(side, FI_CONNECTED, &entry);
}

int side_connect(struct side *side, uint16_t port)
{
	struct fi_eq_cm_entry entry;
	char text[8];
	int ret;

	snprintf(text, sizeof(text), "%u", port);
	if (get_info(side, text) != 0 || check_info(side) != 0 ||
	    open_fabric(side) != 0 || open_ep(side) != 0)
		return -1;
	ret = fi_connect(side->ep, side->info->dest_addr, NULL, 0);
	if (ret != 0)
		return call_failed(side, "fi_connect", ret);
	return expect_event(side, FI_CONNECTED, &entry);
}

static int close_fid(struct side *side, struct fid *fid, const char *what)
{
	int ret = fi_close(fid);

	if (ret != 0)
		return side_fail(side, "fi_close of the %s: %s", what,
				 fi_strerror(-ret));
	return 0;
}

/* Closes what is open, in reverse, all of it even if some of it fails. */
int side_close(struct side *side)
{
	int ret = 0;

	if (side->ep)
		ret |= close_fid(side, &side->ep->fid, "endpoint");
	side->ep = NULL;
	ret |= side_memory_fini(side);
	if (side->cq)
		ret |= close_fid(side, &side->cq->fid, "CQ");
	if (side->domain)
		ret |= close_fid(side, &side->domain->fid, "domain");
	if (side->pep)
		ret |= close_fid(side, &side->pep->fid, "passive endpoint");
	if (side->eq)
		ret |= close_fid(side, &side->eq->fid, "EQ");
	if (side->fabric)
		ret |= close_fid(side, &side->fabric->fid, "fabric");
	fi_freeinfo(side->info);
	side->info = NULL;
	return ret ? -1 : 0;
}
