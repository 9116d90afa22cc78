/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SETUP, LISTEN, CONNECT and PAIR: opening, connecting and closing. Whatever
 * goes wrong here ends the case. Reading events and completions is in queue.c.
 */
#include <arpa/inet.h>

#include "common.h"
#include "queue.h"

struct fi_info *make_hints(const struct setup *how)
{
	static const struct setup plain;
	struct fi_info *hints = fi_allocinfo();

	if (!how)
		how = &plain;
	ASSERT(hints);
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = how->caps ? how->caps : FI_MSG | FI_RMA;
	hints->mode = FI_RX_CQ_DATA;
	hints->domain_attr->mode = FI_RX_CQ_DATA;
	hints->tx_attr->size = how->tx_size;
	hints->rx_attr->size = how->rx_size;
	hints->tx_attr->op_flags = how->tx_op_flags;
	hints->domain_attr->threading = how->threading;
	hints->domain_attr->resource_mgmt = how->resource_mgmt;
	hints->ep_attr->rx_ctx_cnt = how->shared_rx ? FI_SHARED_CONTEXT : 0;
	hints->ep_attr->tx_ctx_cnt = how->shared_tx ? FI_SHARED_CONTEXT : 0;
	hints->domain_attr->mr_mode = how->mr_mode ? how->mr_mode :
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
		FI_MR_PROV_KEY;
	if (how->no_mr_mode)
		hints->domain_attr->mr_mode = 0;
	hints->fabric_attr->prov_name = strdup(provider());
	ASSERT(hints->fabric_attr->prov_name);
	return hints;
}

struct fi_info *try_getinfo(const struct setup *how, const char *service,
			    uint64_t flags, int *ret)
{
	struct fi_info *hints = make_hints(how);
	struct fi_info *info = NULL;
	const char *node = how && how->node ? how->node : test_addr();

	*ret = fi_getinfo(TEST_API, node, service, flags, hints, &info);
	fi_freeinfo(hints);
	if (*ret)
		return NULL;
	ASSERT(info);
	return info;
}

static void open_queues(struct end *e)
{
	struct fi_eq_attr eq_attr = {
		.flags = FI_WRITE,
		.wait_obj = e->how.eq_wait ? e->how.eq_wait : FI_WAIT_UNSPEC,
	};
	struct fi_cq_attr cq_attr = {
		.size = e->how.cq_size,
		.format = e->how.format ? e->how.format : FI_CQ_FORMAT_DATA,
		.wait_obj = e->how.cq_wait,
	};
	struct fid_eq *eq;

	ASSERT_OK(fi_eq_open(e->fabric, &eq_attr, &eq, NULL));
	e->evq = evq_create(eq);
	ASSERT_OK(fi_cq_open(e->domain, &cq_attr, &e->cq, NULL));
	cq_register(e->cq);
	e->tx_cq = e->cq;
	if (!e->how.two_cqs)
		return;
	ASSERT_OK(fi_cq_open(e->domain, &cq_attr, &e->tx_cq, NULL));
	cq_register(e->tx_cq);
}

static void open_end(struct end *e, const struct setup *how,
		     const char *service, uint64_t flags)
{
	int ret;

	memset(e, 0, sizeof(*e));
	if (how)
		e->how = *how;
	e->info = try_getinfo(&e->how, service, flags, &ret);
	if (!e->info)
		FAIL("fi_getinfo(%s): %d (%s)", test_addr(), ret,
		     fi_strerror(-ret));
	ASSERT_OK(fi_fabric(e->info->fabric_attr, &e->fabric, NULL));
	ASSERT_OK(fi_domain(e->fabric, e->info, &e->domain, NULL));
	open_queues(e);
}

void open_passive(struct end *e, const struct setup *how)
{
	char port[8];

	snprintf(port, sizeof(port), "%u", how ? how->port : 0u);
	open_end(e, how, how && how->port ? port : NULL, FI_SOURCE);
}

void open_active_port(struct end *e, const struct setup *how, uint16_t port)
{
	char text[8];

	snprintf(text, sizeof(text), "%u", port);
	open_end(e, how, text, 0);
	ASSERT(e->info->dest_addr);
}

void open_active(struct end *e, const struct setup *how,
		 const struct end *srv)
{
	open_active_port(e, how, listen_port(srv));
}

void open_shared(struct end *e, struct end *owner, const struct end *srv)
{
	char port[8];
	int ret;

	memset(e, 0, sizeof(*e));
	e->how = owner->how;
	e->fabric = owner->fabric;
	e->domain = owner->domain;
	e->cq = owner->cq;
	e->tx_cq = owner->tx_cq;
	e->evq = owner->evq;
	e->borrowed = true;
	if (srv) {
		snprintf(port, sizeof(port), "%u", listen_port(srv));
		e->info = try_getinfo(&e->how, port, 0, &ret);
	} else {
		e->info = fi_dupinfo(owner->info);
	}
	ASSERT(e->info);
}

static void close_fid(struct fid *fid, const char *what)
{
	int ret = fi_close(fid);

	if (ret)
		FAIL("fi_close(%s): %d (%s)", what, ret, fi_strerror(-ret));
}

void close_ep(struct end *e)
{
	struct fid *fid = &e->ep->fid;

	ASSERT(e->ep);
	close_fid(fid, "endpoint");
	e->ep = NULL;
	evq_forget(e->evq, fid);
}

void close_end(struct end *e)
{
	if (e->ep)
		close_ep(e);
	if (e->pep) {
		struct fid *fid = &e->pep->fid;

		close_fid(fid, "passive endpoint");
		evq_forget(e->evq, fid);
	}
	if (!e->borrowed) {
		cq_unregister(e->cq);
		close_fid(&e->cq->fid, "completion queue");
		if (e->tx_cq != e->cq) {
			cq_unregister(e->tx_cq);
			close_fid(&e->tx_cq->fid, "completion queue");
		}
		evq_destroy(e->evq);
		close_fid(&e->domain->fid, "domain");
		close_fid(&e->fabric->fid, "fabric");
	}
	fi_freeinfo(e->info);
	memset(e, 0, sizeof(*e));
}

void listen_start(struct end *e)
{
	ASSERT_OK(fi_passive_ep(e->fabric, e->info, &e->pep, NULL));
	ASSERT_OK(fi_pep_bind(e->pep, &e->evq->eq->fid, 0));
	ASSERT_OK(fi_listen(e->pep));
}

uint16_t listen_port(const struct end *e)
{
	struct sockaddr_storage addr;
	size_t len = sizeof(addr);

	ASSERT(e->pep);
	memset(&addr, 0, sizeof(addr));
	ASSERT_OK(fi_getname(&e->pep->fid, &addr, &len));
	if (addr.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&addr)->sin6_port);
	ASSERT_EQ(addr.ss_family, AF_INET);
	return ntohs(((struct sockaddr_in *)&addr)->sin_port);
}

static void bind_cqs(struct end *e)
{
	if (e->how.tx_bind || e->how.rx_bind || e->how.two_cqs) {
		ASSERT_OK(fi_ep_bind(e->ep, &e->tx_cq->fid,
				     FI_TRANSMIT | e->how.tx_bind));
		ASSERT_OK(fi_ep_bind(e->ep, &e->cq->fid,
				     FI_RECV | e->how.rx_bind));
	} else {
		ASSERT_OK(fi_ep_bind(e->ep, &e->cq->fid,
				     FI_TRANSMIT | FI_RECV));
	}
}

void make_ep(struct end *e, struct fi_info *info)
{
	ASSERT(!e->ep);
	ASSERT_OK(fi_endpoint(e->domain, info, &e->ep, e));
	ASSERT_OK(fi_ep_bind(e->ep, &e->evq->eq->fid, 0));
	if (!e->how.no_cq)
		bind_cqs(e);
	if (e->how.bind)
		e->how.bind(e);
	ASSERT_OK(fi_enable(e->ep));
}

struct fid_cntr *make_cntr(struct end *e, uint64_t flags,
			   enum fi_wait_obj wait_obj)
{
	struct fi_cntr_attr attr = {
		.events = FI_CNTR_EVENTS_COMP,
		.wait_obj = wait_obj,
	};
	struct fid_cntr *cntr;

	ASSERT_OK(fi_cntr_open(e->domain, &attr, &cntr, NULL));
	ASSERT_EQ(fi_cntr_read(cntr), 0);
	ASSERT_EQ(fi_cntr_readerr(cntr), 0);
	ASSERT_OK(fi_ep_bind(e->ep, &cntr->fid, flags));
	return cntr;
}

void connect_start(struct end *e, const void *data, size_t len)
{
	if (!e->ep)
		make_ep(e, e->info);
	ASSERT_OK(fi_connect(e->ep, e->info->dest_addr, data, len));
}

void accept_start(struct end *srv, struct end *dst, const void *data,
		  size_t len, struct event *req)
{
	struct event ev;

	expect_event(srv, FI_CONNREQ, &ev);
	ASSERT(ev.fid == &srv->pep->fid);
	ASSERT(ev.info && ev.info->handle);
	make_ep(dst, ev.info);
	ASSERT_OK(fi_accept(dst->ep, data, len));
	fi_freeinfo(ev.info);
	ev.info = NULL;
	if (req)
		*req = ev;
}

void wait_connected(struct end *passive, struct end *active,
		    struct event *ev)
{
	struct event mine;

	expect_event(active, FI_CONNECTED, &mine);
	ASSERT(mine.fid == &active->ep->fid);
	if (ev)
		*ev = mine;
	expect_event(passive, FI_CONNECTED, &mine);
	ASSERT(mine.fid == &passive->ep->fid);
}

void connect_pair(struct end *srv, struct end *cli)
{
	connect_start(cli, NULL, 0);
	accept_start(srv, srv, NULL, 0, NULL);
	wait_connected(srv, cli, NULL);
}

void make_pair(struct end *srv, struct end *cli, const struct setup *how)
{
	open_passive(srv, how);
	listen_start(srv);
	open_active(cli, how, srv);
	connect_pair(srv, cli);
}

void close_pair(struct end *srv, struct end *cli)
{
	if (cli->ep)
		close_ep(cli);
	if (srv->ep)
		close_ep(srv);
	close_end(cli);
	close_end(srv);
}

void buf_open(struct end *e, struct buf *b, size_t len, uint64_t access)
{
	static uint64_t next_key = 1;
	bool prov_key = e->info->domain_attr->mr_mode & FI_MR_PROV_KEY;
	bool virt = e->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;

	memset(b, 0, sizeof(*b));
	b->len = len;
	/* Never less than a page, so that a length of 0 has an address. */
	ASSERT_OK(posix_memalign((void **)&b->p, 4096, len ? len : 4096));
	memset(b->p, 0, len);
	ASSERT_OK(fi_mr_reg(e->domain, b->p, len, access, 0,
			    prov_key ? 0 : next_key++, 0, &b->mr, NULL));
	b->desc = fi_mr_desc(b->mr);
	b->key = fi_mr_key(b->mr);
	ASSERT(b->key != FI_KEY_NOTAVAIL);
	b->addr = virt ? (uintptr_t)b->p : 0;
}

void buf_close(struct buf *b)
{
	close_fid(&b->mr->fid, "memory region");
	free(b->p);
	memset(b, 0, sizeof(*b));
}

void post_recv(struct end *e, struct buf *b, size_t off, size_t len,
	       void *context)
{
	ASSERT_OK(fi_recv(e->ep, b->p + off, len, b->desc, 0, context));
}

void post_send(struct end *e, struct buf *b, size_t off, size_t len,
	       void *context)
{
	ASSERT_TAKEN(fi_send(e->ep, b->p + off, len, b->desc, 0, context));
}

bool is_iwarp(const struct end *e)
{
	return e->info->ep_attr->protocol == FI_PROTO_IWARP;
}

bool has_credits(const struct end *e)
{
	const char *when = getenv("FI_VRC_CREDITS");

	return is_vrc() &&
	       (when && !strcmp(when, "always") ? true : is_iwarp(e));
}

bool has_cq_data(const struct end *e)
{
	return e->info->domain_attr->cq_data_size > 0;
}

bool takes_recv(const struct end *e)
{
	return (e->info->mode | e->info->rx_attr->mode) & FI_RX_CQ_DATA;
}

uint64_t remote_write_flags(void)
{
	/* tcp leaves FI_RMA out. */
	return (is_vrc() ? FI_RMA : 0) | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
}
