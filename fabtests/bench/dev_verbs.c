/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The same work by verbs, on whatever device rdma_cm finds at the address.
 */
#include "dev_bench.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEPTH = 512, /* of either queue */
	WRITES_OUT = 4,
	STREAMS_OUT = 16,
	CHAINS_OUT = 8,
	WAIT_MS = 5000,
	ROUNDS_PER_LOOK = 1000,
};

struct conn {
	struct rdma_cm_id *listen;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char *region;
	uint64_t addr; /* the peer's region */
	uint32_t rkey;
	char small[DEV_SMALL]; /* what a ping-pong sends, as the bare ring does */
};

struct hello {
	uint64_t addr;
	uint32_t rkey;
};

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return -1;
}

/* ---- connecting ---- */

static int endpoint(const struct dev_side *side, const char *port,
		    struct rdma_cm_id **id)
{
	struct rdma_addrinfo hints = {
		.ai_port_space = RDMA_PS_TCP,
		.ai_flags = side->is_a ? 0 : RAI_PASSIVE,
	};
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = DEV_SMALL,
		},
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_addrinfo *info;
	int ret;

	if (rdma_getaddrinfo(side->addr, port, &hints, &info))
		return failed("rdma_getaddrinfo");
	ret = rdma_create_ep(id, info, NULL, &attr);
	rdma_freeaddrinfo(info);
	return ret ? failed("rdma_create_ep") : 0;
}

static int memory(struct conn *conn)
{
	conn->region = dev_region(DEV_REGION);
	if (!conn->region)
		return -1;
	conn->mr = ibv_reg_mr(conn->id->pd, conn->region, DEV_REGION,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return conn->mr ? 0 : failed("ibv_reg_mr");
}

/* Posts receives number nth to nth + cnt - 1, in one go. Each has its place. */
static int recvs_post(struct conn *conn, uint64_t nth, int cnt, size_t len)
{
	struct ibv_recv_wr wr[DEV_CHAIN], *bad;
	struct ibv_sge sge[DEV_CHAIN];

	for (int i = 0; i < cnt; i++) {
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)conn->region +
				(nth + i) % DEPTH * len % DEV_REGION,
			.length = len,
			.lkey = conn->mr->lkey,
		};
		wr[i] = (struct ibv_recv_wr){
			.next = i + 1 < cnt ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
		};
	}
	errno = ibv_post_recv(conn->id->qp, wr, &bad);
	return errno ? failed("ibv_post_recv") : 0;
}

/* All that a workload starts with, before anything can arrive. */
static int recvs_first(struct conn *conn, int cnt, size_t len)
{
	for (int i = 0; i < cnt; i++)
		if (recvs_post(conn, i, 1, len))
			return -1;
	return 0;
}

static int call(const struct dev_side *side, struct conn *conn, int recvs,
		size_t len)
{
	struct rdma_conn_param param = {
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	char port[8];
	uint16_t num;

	if (dev_hear(side, &num, sizeof(num)))
		return -1;
	snprintf(port, sizeof(port), "%u", num);
	if (endpoint(side, port, &conn->id) || memory(conn) ||
	    recvs_first(conn, recvs, len))
		return -1;
	return rdma_connect(conn->id, &param) ? failed("rdma_connect") : 0;
}

static int answer(const struct dev_side *side, struct conn *conn, int recvs,
		  size_t len)
{
	uint16_t num;

	if (endpoint(side, "0", &conn->listen))
		return -1;
	if (rdma_listen(conn->listen, 1))
		return failed("rdma_listen");
	num = be16toh(rdma_get_src_port(conn->listen));
	if (dev_tell(side, &num, sizeof(num)))
		return -1;
	if (rdma_get_request(conn->listen, &conn->id))
		return failed("rdma_get_request");
	if (memory(conn) || recvs_first(conn, recvs, len))
		return -1;
	return rdma_accept(conn->id, NULL) ? failed("rdma_accept") : 0;
}

static int conn_open(const struct dev_side *side, struct conn *conn, int recvs,
		     size_t len)
{
	struct hello mine, theirs;
	int ret;

	memset(conn, 0, sizeof(*conn));
	ret = side->is_a ? call(side, conn, recvs, len) :
			   answer(side, conn, recvs, len);
	if (ret)
		return -1;
	mine.addr = (uintptr_t)conn->region;
	mine.rkey = conn->mr->rkey;
	if (dev_tell(side, &mine, sizeof(mine)) ||
	    dev_hear(side, &theirs, sizeof(theirs)))
		return -1;
	conn->addr = theirs.addr;
	conn->rkey = theirs.rkey;
	return 0;
}

static int conn_close(const struct dev_side *side, struct conn *conn)
{
	if (dev_meet(side))
		return -1;
	rdma_disconnect(conn->id);
	ibv_dereg_mr(conn->mr);
	rdma_destroy_ep(conn->id);
	if (conn->listen)
		rdma_destroy_ep(conn->listen);
	return 0;
}

/* ---- completions ---- */

static bool all_good(const struct ibv_wc *wc, int cnt)
{
	for (int i = 0; i < cnt; i++) {
		if (wc[i].status == IBV_WC_SUCCESS)
			continue;
		fprintf(stderr, "completion: %s\n",
			ibv_wc_status_str(wc[i].status));
		return false;
	}
	return true;
}

/* Up to cnt of them, one at the least; -1 with a message printed. */
static int reap(struct ibv_cq *cq, int cnt)
{
	struct ibv_wc wc[DEV_CHAIN];
	uint64_t until_ns = 0;
	unsigned int turn = 0;
	int n;

	cnt = cnt < DEV_CHAIN ? cnt : DEV_CHAIN;
	while (!(n = ibv_poll_cq(cq, cnt, wc))) {
		if (++turn % 65536)
			continue;
		if (!until_ns)
			until_ns = bench_now_ns() + WAIT_MS * 1000000ull;
		if (bench_now_ns() > until_ns) {
			fprintf(stderr, "no completion in %d ms\n", WAIT_MS);
			return -1;
		}
	}
	return all_good(wc, n) ? n : -1;
}

static int reap_all(struct ibv_cq *cq, int cnt)
{
	int n;

	for (; cnt > 0; cnt -= n) {
		n = reap(cq, cnt);
		if (n < 0)
			return -1;
	}
	return 0;
}

static int post(struct conn *conn, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	errno = ibv_post_send(conn->id->qp, wr, &bad);
	return errno ? failed("ibv_post_send") : 0;
}

/* ---- 64 B ping-pong ---- */

/*
 * Its work requests are put together once: clearing one costs as much as posting
 * it, and that is no time of the device's.
 */
struct ping {
	struct conn conn;
	struct ibv_sge send_sge, recv_sge;
	struct ibv_send_wr send_wr;
	struct ibv_recv_wr recv_wr;
};

static int ping_open(const struct dev_side *side, struct ping *ping)
{
	struct conn *conn = &ping->conn;

	memset(ping, 0, sizeof(*ping));
	if (conn_open(side, conn, DEPTH, DEV_SMALL))
		return -1;
	ping->send_sge.addr = (uintptr_t)conn->small;
	ping->send_sge.length = sizeof(conn->small);
	ping->send_wr.sg_list = &ping->send_sge;
	ping->send_wr.num_sge = 1;
	ping->send_wr.opcode = IBV_WR_SEND;
	ping->recv_sge.length = DEV_SMALL;
	ping->recv_sge.lkey = conn->mr->lkey;
	ping->recv_wr.sg_list = &ping->recv_sge;
	ping->recv_wr.num_sge = 1;
	return dev_meet(side);
}

static int send_small(struct ping *ping, unsigned int nth, char first)
{
	struct conn *conn = &ping->conn;

	ping->send_wr.send_flags = IBV_SEND_INLINE |
				   (nth % DEV_CHAIN ? 0 : IBV_SEND_SIGNALED);
	if (conn->small[0] != first)
		conn->small[0] = first;
	if (post(conn, &ping->send_wr))
		return -1;
	return nth % DEV_CHAIN ? 0 : reap_all(conn->id->send_cq, 1);
}

/* Receives complete in the order they were posted: nth is in the nth buffer. */
static int take_small(struct ping *ping, unsigned int nth, char *first)
{
	struct conn *conn = &ping->conn;
	char *buf = conn->region + nth % DEPTH * DEV_SMALL;
	struct ibv_recv_wr *bad;

	if (reap_all(conn->id->recv_cq, 1))
		return -1;
	*first = *buf;
	ping->recv_sge.addr = (uintptr_t)buf;
	errno = ibv_post_recv(conn->id->qp, &ping->recv_wr, &bad);
	return errno ? failed("ibv_post_recv") : 0;
}

int dev_verbs_latency(const struct dev_side *side, double *value)
{
	struct ping ping;
	uint64_t start_ns;
	unsigned int i = 0;
	char more = 1, got;

	if (ping_open(side, &ping))
		return -1;
	start_ns = bench_now_ns();
	do {
		if (!side->is_a) {
			if (take_small(&ping, i, &more) ||
			    send_small(&ping, ++i, more))
				return -1;
			continue;
		}
		if (i % ROUNDS_PER_LOOK == 0 && dev_time_over(start_ns, side))
			more = 0;
		if (send_small(&ping, i + 1, more) ||
		    take_small(&ping, i++, &got))
			return -1;
	} while (more);
	*value = (double)(bench_now_ns() - start_ns) / i / 2;
	return conn_close(side, &ping.conn);
}

/* ---- large transfers ---- */

static int post_large(struct conn *conn, enum ibv_wr_opcode opcode, size_t off,
		      size_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)conn->region + off,
		.length = len,
		.lkey = conn->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = conn->addr + off,
			.rkey = conn->rkey,
		},
	};

	return post(conn, &wr);
}

/* Posts for the time given, with so many out; returns how many, or -1. */
static int64_t pump(const struct dev_side *side, struct conn *conn,
		    enum ibv_wr_opcode opcode, size_t len, int out)
{
	uint64_t start_ns = bench_now_ns();
	int64_t cnt = 0;

	while (!dev_time_over(start_ns, side)) {
		if (cnt >= out && reap_all(conn->id->send_cq, 1))
			return -1;
		if (post_large(conn, opcode, cnt++ * len % DEV_REGION, len))
			return -1;
	}
	if (reap_all(conn->id->send_cq, cnt < out ? cnt : out))
		return -1;
	return cnt;
}

/* The target sleeps, as that of process_vm_writev does. */
int dev_verbs_write(const struct dev_side *side, double *value)
{
	struct conn conn;
	uint64_t start_ns;
	int64_t cnt;

	if (conn_open(side, &conn, 0, 0))
		return -1;
	if (!side->is_a)
		return dev_meet(side) || conn_close(side, &conn);
	start_ns = bench_now_ns();
	cnt = pump(side, &conn, IBV_WR_RDMA_WRITE, DEV_WRITE, WRITES_OUT);
	if (cnt < 0)
		return -1;
	*value = cnt * (DEV_WRITE / 1048576.0) /
		 ((bench_now_ns() - start_ns) / 1e9);
	return dev_meet(side) || conn_close(side, &conn);
}

/*
 * Takes messages until A has said, over the socket pair, how many there are;
 * receives are posted again so many at a time.
 */
static int take(const struct dev_side *side, struct conn *conn, size_t len,
		unsigned int batch)
{
	uint64_t taken = 0, posted = 0, sent = UINT64_MAX;
	struct ibv_wc wc[DEV_CHAIN];
	int n;

	while (taken < sent) {
		n = ibv_poll_cq(conn->id->recv_cq, DEV_CHAIN, wc);
		if (n < 0 || !all_good(wc, n))
			return -1;
		for (taken += n; taken - posted >= batch; posted += batch)
			if (recvs_post(conn, posted, batch, len))
				return -1;
		if (!n && sent == UINT64_MAX && dev_heard(side) &&
		    dev_hear(side, &sent, sizeof(sent)))
			return -1;
	}
	return dev_tell(side, &taken, sizeof(taken));
}

/* A: the rate at which cnt messages have arrived; -1 with a message printed. */
static double arrived_per_s(const struct dev_side *side, uint64_t start_ns,
			    int64_t cnt)
{
	uint64_t taken;

	if (cnt < 0 || dev_tell(side, &cnt, sizeof(cnt)) ||
	    dev_hear(side, &taken, sizeof(taken)))
		return -1;
	return taken / ((bench_now_ns() - start_ns) / 1e9);
}

int dev_verbs_stream(const struct dev_side *side, double *value)
{
	struct conn conn;
	uint64_t start_ns;
	double rate;

	if (conn_open(side, &conn, side->is_a ? 0 : DEPTH, DEV_STREAM) ||
	    dev_meet(side))
		return -1;
	if (!side->is_a)
		return take(side, &conn, DEV_STREAM, 1) ||
		       conn_close(side, &conn);
	start_ns = bench_now_ns();
	rate = arrived_per_s(side, start_ns,
			     pump(side, &conn, IBV_WR_SEND, DEV_STREAM,
				  STREAMS_OUT));
	*value = rate * (DEV_STREAM / 1048576.0);
	return rate < 0 || conn_close(side, &conn);
}

/* ---- chains of 64 B sends ---- */

static int post_chain(struct conn *conn)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)conn->region,
		.length = DEV_SMALL,
		.lkey = conn->mr->lkey,
	};
	struct ibv_send_wr wr[DEV_CHAIN];

	for (int i = 0; i < DEV_CHAIN; i++)
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < DEV_CHAIN ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_INLINE |
				      (i + 1 < DEV_CHAIN ? 0 :
							   IBV_SEND_SIGNALED),
		};
	return post(conn, wr);
}

/* Returns how many messages were sent, or -1. */
static int64_t pump_chains(const struct dev_side *side, struct conn *conn)
{
	uint64_t start_ns = bench_now_ns();
	int64_t cnt = 0;

	while (!dev_time_over(start_ns, side)) {
		if (cnt >= CHAINS_OUT && reap_all(conn->id->send_cq, 1))
			return -1;
		if (post_chain(conn))
			return -1;
		cnt++;
	}
	if (reap_all(conn->id->send_cq, cnt < CHAINS_OUT ? cnt : CHAINS_OUT))
		return -1;
	return cnt * DEV_CHAIN;
}

int dev_verbs_chain(const struct dev_side *side, double *value)
{
	struct conn conn;
	uint64_t start_ns;
	double rate;

	if (conn_open(side, &conn, side->is_a ? 0 : DEPTH, DEV_SMALL) ||
	    dev_meet(side))
		return -1;
	if (!side->is_a)
		return take(side, &conn, DEV_SMALL, DEV_CHAIN) ||
		       conn_close(side, &conn);
	start_ns = bench_now_ns();
	rate = arrived_per_s(side, start_ns, pump_chains(side, &conn));
	*value = rate / 1000;
	return rate < 0 || conn_close(side, &conn);
}
