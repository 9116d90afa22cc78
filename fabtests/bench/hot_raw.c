/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hot_bench by verbs alone: what a program would do that knows exactly what it
 * wants, on whatever device rdma_cm finds at the address.
 */
#include "hot.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <string.h>

enum { EVENT_MS = 20000 };

static struct {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *id[HOT_ENDS];
	struct ibv_cq *cq[HOT_ENDS];
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint64_t remote;
	uint32_t rkey;
	unsigned int injects;
	_Alignas(CACHELINE) char mem[2 * HOT_LEN];
} raw;

static int failed(const char *what)
{
	return hot_failed(what, strerror(errno));
}

/* The next event has to be this one; its id. */
static struct rdma_cm_id *expect(enum rdma_cm_event_type wanted)
{
	struct pollfd pfd = { .fd = raw.channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	enum rdma_cm_event_type got;

	if (poll(&pfd, 1, EVENT_MS) != 1) {
		hot_failed(rdma_event_str(wanted), "no event");
		return NULL;
	}
	if (rdma_get_cm_event(raw.channel, &event)) {
		failed("rdma_get_cm_event");
		return NULL;
	}
	id = event->id;
	got = event->event;
	rdma_ack_cm_event(event);
	if (got == wanted)
		return id;
	hot_failed(rdma_event_str(wanted), rdma_event_str(got));
	return NULL;
}

static int qp_create(enum hot_end end)
{
	struct rdma_cm_id *id = raw.id[end];
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = HOT_DEPTH,
			.max_recv_wr = HOT_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = HOT_LEN,
		},
		.qp_type = IBV_QPT_RC,
	};

	raw.cq[end] = ibv_create_cq(id->verbs, 2 * HOT_DEPTH, NULL, NULL, 0);
	if (!raw.cq[end])
		return failed("ibv_create_cq");
	attr.send_cq = raw.cq[end];
	attr.recv_cq = raw.cq[end];
	return rdma_create_qp(id, raw.pd, &attr) ? failed("rdma_create_qp") : 0;
}

static int memory(struct ibv_context *verbs)
{
	raw.pd = ibv_alloc_pd(verbs);
	if (!raw.pd)
		return failed("ibv_alloc_pd");
	raw.mr = ibv_reg_mr(raw.pd, raw.mem, sizeof(raw.mem),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_READ);
	if (!raw.mr)
		return failed("ibv_reg_mr");
	raw.remote = (uintptr_t)raw.mem + HOT_LEN;
	raw.rkey = raw.mr->rkey;
	return 0;
}

/* The listener's port comes with the first bind. */
static int call(struct sockaddr_in *sa)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(raw.channel, &raw.listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(raw.listener, (struct sockaddr *)sa) ||
	    rdma_listen(raw.listener, 1))
		return failed("rdma_listen");
	sa->sin_port = rdma_get_src_port(raw.listener);
	if (rdma_create_id(raw.channel, &raw.id[HOT_A], NULL, RDMA_PS_TCP))
		return failed("rdma_create_id");
	id = raw.id[HOT_A];
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)sa, EVENT_MS))
		return failed("rdma_resolve_addr");
	if (!expect(RDMA_CM_EVENT_ADDR_RESOLVED))
		return -1;
	if (rdma_resolve_route(id, EVENT_MS))
		return failed("rdma_resolve_route");
	return expect(RDMA_CM_EVENT_ROUTE_RESOLVED) ? 0 : -1;
}

static int connect_both(void)
{
	struct rdma_conn_param param = {
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	if (rdma_connect(raw.id[HOT_A], &param))
		return failed("rdma_connect");
	raw.id[HOT_B] = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!raw.id[HOT_B] || qp_create(HOT_B))
		return -1;
	if (rdma_accept(raw.id[HOT_B], &param))
		return failed("rdma_accept");
	return expect(RDMA_CM_EVENT_ESTABLISHED) &&
			       expect(RDMA_CM_EVENT_ESTABLISHED) ?
		       0 :
		       -1;
}

static int raw_open(const struct hot_opts *opts)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, opts->addr, &sa.sin_addr) != 1)
		return hot_failed(opts->addr, "not an IPv4 address");
	raw.channel = rdma_create_event_channel();
	if (!raw.channel)
		return failed("rdma_create_event_channel");
	if (call(&sa) || memory(raw.id[HOT_A]->verbs) || qp_create(HOT_A))
		return -1;
	return connect_both();
}

static void raw_close(void)
{
	for (enum hot_end end = HOT_A; end < HOT_ENDS; end++) {
		if (!raw.id[end])
			continue;
		if (raw.id[end]->qp)
			rdma_destroy_qp(raw.id[end]);
		rdma_destroy_id(raw.id[end]);
		if (raw.cq[end])
			ibv_destroy_cq(raw.cq[end]);
	}
	if (raw.mr)
		ibv_dereg_mr(raw.mr);
	if (raw.pd)
		ibv_dealloc_pd(raw.pd);
	if (raw.listener)
		rdma_destroy_id(raw.listener);
	if (raw.channel)
		rdma_destroy_event_channel(raw.channel);
}

static __hot_inline int post(enum ibv_wr_opcode opcode, unsigned int flags)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)raw.mem,
		.length = HOT_LEN,
		.lkey = raw.mr->lkey,
	};
	struct ibv_send_wr wr, *bad;
	int ret;

	wr.wr_id = 0;
	wr.next = NULL;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = opcode;
	wr.send_flags = flags;
	if (opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = raw.remote;
		wr.wr.rdma.rkey = raw.rkey;
	}
	ret = ibv_post_send(raw.id[HOT_A]->qp, &wr, &bad);
	return likely(!ret) ? 0 : hot_failed("ibv_post_send", strerror(ret));
}

static int raw_send(int n)
{
	for (int i = 0; i < n; i++)
		if (post(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE))
			return -1;
	return 0;
}

/* One in a quarter of the queue is signalled, as there must be one. */
static int raw_inject(int n)
{
	for (int i = 0; i < n; i++) {
		unsigned int due = ++raw.injects % (HOT_DEPTH / 4) ?
					   0 :
					   IBV_SEND_SIGNALED;

		if (post(IBV_WR_SEND, IBV_SEND_INLINE | due))
			return -1;
	}
	return 0;
}

static int raw_write(int n)
{
	for (int i = 0; i < n; i++)
		if (post(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE))
			return -1;
	return 0;
}

static int raw_read(int n)
{
	for (int i = 0; i < n; i++)
		if (post(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED))
			return -1;
	return 0;
}

static int raw_recv(int n)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)raw.mem,
		.length = HOT_LEN,
		.lkey = raw.mr->lkey,
	};

	for (int i = 0; i < n; i++) {
		struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
		int ret = ibv_post_recv(raw.id[HOT_B]->qp, &wr, &bad);

		if (unlikely(ret))
			return hot_failed("ibv_post_recv", strerror(ret));
	}
	return 0;
}

static int raw_complete(enum hot_end end, int max)
{
	struct ibv_wc wc[HOT_READ];
	int n = ibv_poll_cq(raw.cq[end], max, wc);

	if (unlikely(n < 0))
		return hot_failed("ibv_poll_cq", "failed");
	for (int i = 0; i < n; i++)
		if (unlikely(wc[i].status != IBV_WC_SUCCESS))
			return hot_failed("completion",
					  ibv_wc_status_str(wc[i].status));
	return n;
}

const struct hot_backend hot_raw = {
	.open = raw_open,
	.close = raw_close,
	.send = raw_send,
	.inject = raw_inject,
	.write = raw_write,
	.read = raw_read,
	.recv = raw_recv,
	.complete = raw_complete,
};
