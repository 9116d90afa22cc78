/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hot_bench by libfabric: the same through whichever provider is asked for.
 */
#include "hot.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

enum { EVENT_MS = 20000 };

static struct {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_pep *pep;
	struct fid_domain *domain;
	struct fid_cq *cq[HOT_ENDS];
	struct fid_ep *ep[HOT_ENDS];
	struct fid_mr *mr;
	void *desc;
	uint64_t remote;
	uint64_t key;
	enum fi_cq_format format;
	struct fi_context context[HOT_DEPTH];
	_Alignas(CACHELINE) char mem[2 * HOT_LEN];
} fi;

static const struct {
	const char *name;
	enum fi_cq_format format;
} formats[] = {
	{ "context", FI_CQ_FORMAT_CONTEXT },
	{ "msg", FI_CQ_FORMAT_MSG },
	{ "data", FI_CQ_FORMAT_DATA },
	{ "tagged", FI_CQ_FORMAT_TAGGED },
};

static int failed(const char *what, ssize_t ret)
{
	return hot_failed(what, fi_strerror((int)-ret));
}

static int get_info(const struct hot_opts *opts, const char *port,
		    struct fi_info **info)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	if (!hints)
		return failed("fi_allocinfo", -FI_ENOMEM);
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_RX_CQ_DATA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading =
		opts->safe ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
	hints->tx_attr->size = HOT_DEPTH;
	hints->rx_attr->size = HOT_DEPTH;
	hints->fabric_attr->prov_name = strdup(opts->provider);
	ret = fi_getinfo(FI_VERSION(1, 9), opts->addr, port,
			 strcmp(port, "0") ? 0 : FI_SOURCE, hints, info);
	fi_freeinfo(hints);
	return ret ? failed("fi_getinfo", ret) : 0;
}

/* The next event has to be this one. */
static int expect(uint32_t wanted, struct fi_eq_cm_entry *entry)
{
	struct fi_eq_err_entry err = { 0 };
	uint32_t event;
	ssize_t ret = fi_eq_sread(fi.eq, &event, entry, sizeof(*entry),
				  EVENT_MS, 0);

	if (ret == -FI_EAVAIL && fi_eq_readerr(fi.eq, &err, 0) > 0)
		return failed("connection", -err.err);
	if (ret < 0)
		return failed("fi_eq_sread", ret);
	return event == wanted ? 0 : hot_failed("fi_eq_sread", "another event");
}

static int endpoint(enum hot_end end, struct fi_info *info)
{
	struct fi_cq_attr attr = {
		.size = 2 * HOT_DEPTH,
		.format = fi.format,
		.wait_obj = FI_WAIT_NONE,
	};
	int ret;

	ret = fi_cq_open(fi.domain, &attr, &fi.cq[end], NULL);
	if (ret == -FI_ENOSYS)
		return 1;
	if (!ret)
		ret = fi_endpoint(fi.domain, info, &fi.ep[end], NULL);
	if (!ret)
		ret = fi_ep_bind(fi.ep[end], &fi.eq->fid, 0);
	if (!ret)
		ret = fi_ep_bind(fi.ep[end], &fi.cq[end]->fid,
				 FI_TRANSMIT | FI_RECV);
	if (!ret)
		ret = fi_enable(fi.ep[end]);
	return ret ? failed("endpoint", ret) : 0;
}

static int listen_here(void)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	int ret = fi_fabric(fi.info->fabric_attr, &fi.fabric, NULL);

	if (!ret)
		ret = fi_eq_open(fi.fabric, &attr, &fi.eq, NULL);
	if (!ret)
		ret = fi_passive_ep(fi.fabric, fi.info, &fi.pep, NULL);
	if (!ret)
		ret = fi_pep_bind(fi.pep, &fi.eq->fid, 0);
	if (!ret)
		ret = fi_listen(fi.pep);
	return ret ? failed("listening", ret) : 0;
}

static int memory(void)
{
	int ret = fi_mr_reg(fi.domain, fi.mem, sizeof(fi.mem),
			    FI_SEND | FI_RECV | FI_READ | FI_WRITE |
				    FI_REMOTE_READ | FI_REMOTE_WRITE,
			    0, 1, 0, &fi.mr, NULL);

	if (ret)
		return failed("fi_mr_reg", ret);
	fi.desc = fi_mr_desc(fi.mr);
	fi.key = fi_mr_key(fi.mr);
	fi.remote = HOT_LEN;
	if (fi.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		fi.remote += (uintptr_t)fi.mem;
	return 0;
}

static int connect_both(struct fi_info *info)
{
	struct fi_eq_cm_entry entry;
	int ret;

	ret = fi_domain(fi.fabric, info, &fi.domain, NULL);
	if (ret)
		return failed("fi_domain", ret);
	if (memory())
		return -1;
	ret = endpoint(HOT_A, info);
	if (ret)
		return ret;
	ret = fi_connect(fi.ep[HOT_A], info->dest_addr, NULL, 0);
	if (ret)
		return failed("fi_connect", ret);
	if (expect(FI_CONNREQ, &entry))
		return -1;
	ret = endpoint(HOT_B, entry.info);
	fi_freeinfo(entry.info);
	if (ret)
		return ret;
	ret = fi_accept(fi.ep[HOT_B], NULL, 0);
	if (ret)
		return failed("fi_accept", ret);
	return expect(FI_CONNECTED, &entry) || expect(FI_CONNECTED, &entry) ?
		       -1 :
		       0;
}

static int fi_open_pair(const struct hot_opts *opts)
{
	struct fi_info *info = NULL;
	struct sockaddr_in sa;
	size_t len = sizeof(sa);
	char port[8];
	int ret;

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (!strcmp(formats[i].name, opts->format))
			fi.format = formats[i].format;
	if (get_info(opts, "0", &fi.info) || listen_here())
		return -1;
	ret = fi_getname(&fi.pep->fid, &sa, &len);
	if (ret)
		return failed("fi_getname", ret);
	snprintf(port, sizeof(port), "%u", ntohs(sa.sin_port));
	if (get_info(opts, port, &info))
		return -1;
	ret = connect_both(info);
	fi_freeinfo(info);
	return ret;
}

static void close_fid(void *fid)
{
	if (fid && fi_close(fid))
		hot_failed("fi_close", "failed");
}

static void fi_close_pair(void)
{
	for (enum hot_end end = HOT_A; end < HOT_ENDS; end++)
		close_fid(fi.ep[end]);
	for (enum hot_end end = HOT_A; end < HOT_ENDS; end++)
		close_fid(fi.cq[end]);
	close_fid(fi.pep);
	close_fid(fi.mr);
	close_fid(fi.domain);
	close_fid(fi.eq);
	close_fid(fi.fabric);
	fi_freeinfo(fi.info);
	memset(&fi, 0, sizeof(fi));
}

static int fi_send_n(int n)
{
	for (int i = 0; i < n; i++) {
		ssize_t ret = fi_send(fi.ep[HOT_A], fi.mem, HOT_LEN, fi.desc, 0,
				      &fi.context[i]);

		if (unlikely(ret))
			return failed("fi_send", ret);
	}
	return 0;
}

static int fi_inject_n(int n)
{
	for (int i = 0; i < n; i++) {
		ssize_t ret = fi_inject(fi.ep[HOT_A], fi.mem, HOT_LEN, 0);

		if (unlikely(ret))
			return failed("fi_inject", ret);
	}
	return 0;
}

static int fi_write_n(int n)
{
	for (int i = 0; i < n; i++) {
		ssize_t ret = fi_write(fi.ep[HOT_A], fi.mem, HOT_LEN, fi.desc,
				       0, fi.remote, fi.key, &fi.context[i]);

		if (unlikely(ret))
			return failed("fi_write", ret);
	}
	return 0;
}

static int fi_read_n(int n)
{
	for (int i = 0; i < n; i++) {
		ssize_t ret = fi_read(fi.ep[HOT_A], fi.mem, HOT_LEN, fi.desc, 0,
				      fi.remote, fi.key, &fi.context[i]);

		if (unlikely(ret))
			return failed("fi_read", ret);
	}
	return 0;
}

static int fi_recv_n(int n)
{
	for (int i = 0; i < n; i++) {
		ssize_t ret = fi_recv(fi.ep[HOT_B], fi.mem, HOT_LEN, fi.desc, 0,
				      &fi.context[HOT_BATCH + i]);

		if (unlikely(ret))
			return failed("fi_recv", ret);
	}
	return 0;
}

static int cq_failed(enum hot_end end, ssize_t ret)
{
	struct fi_cq_err_entry err = { 0 };

	if (ret == -FI_EAVAIL && fi_cq_readerr(fi.cq[end], &err, 0) == 1)
		return failed("completion", -err.err);
	return failed("fi_cq_read", ret);
}

static int fi_complete(enum hot_end end, int max)
{
	/* Room for the largest kind of entry. */
	struct fi_cq_tagged_entry entry[HOT_READ];
	ssize_t n = fi_cq_read(fi.cq[end], entry, (size_t)max);

	if (likely(n >= 0))
		return (int)n;
	return likely(n == -FI_EAGAIN) ? 0 : cq_failed(end, n);
}

const struct hot_backend hot_fi = {
	.open = fi_open_pair,
	.close = fi_close_pair,
	.send = fi_send_n,
	.inject = fi_inject_n,
	.write = fi_write_n,
	.read = fi_read_n,
	.recv = fi_recv_n,
	.complete = fi_complete,
};
