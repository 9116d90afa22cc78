/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One end of an rdma_cm connection for the tests of softverbs' connection
 * manager, through sv.h only: an event channel, an id, and the QP, CQ and
 * memory that go with it. What fails prints where and aborts. Every wait is
 * bounded.
 */
#ifndef CM_PEER_H
#define CM_PEER_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "must.h"
#include "sv.h"

enum {
	PEER_WAIT_MS = 60000,
	PEER_BUF_SIZE = 4096,
	PEER_DEPTH = 16,
};

struct peer {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char buf[PEER_BUF_SIZE];
};

static inline void peer_sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static inline long peer_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static inline int peer_fd_cnt(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int cnt = 0;

	MUST(dir);
	while (readdir(dir))
		cnt++;
	closedir(dir);
	return cnt;
}

static inline void peer_addr(struct sockaddr_storage *addr, const char *ip,
			     uint16_t port)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)addr;
	struct sockaddr_in *v4 = (struct sockaddr_in *)addr;

	memset(addr, 0, sizeof(*addr));
	if (strchr(ip, ':')) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		MUST(inet_pton(AF_INET6, ip, &v6->sin6_addr) == 1);
	} else {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		MUST(inet_pton(AF_INET, ip, &v4->sin_addr) == 1);
	}
}

static inline uint16_t peer_port(const struct sockaddr *addr)
{
	return ntohs(addr->sa_family == AF_INET ?
		     ((const struct sockaddr_in *)addr)->sin_port :
		     ((const struct sockaddr_in6 *)addr)->sin6_port);
}

/*
 * The next event within the time, or NULL. An event may be withdrawn before it
 * is fetched: that the descriptor was readable is no promise.
 */
static inline struct rdma_cm_event *
peer_event(struct rdma_event_channel *channel, int timeout_ms)
{
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };
	long until = peer_now_ms() + timeout_ms;
	struct rdma_cm_event *event;

	while (poll(&pfd, 1, timeout_ms) == 1) {
		if (!sv_cm_get_cm_event(channel, &event))
			return event;
		MUST(errno == EAGAIN);
		if (peer_now_ms() >= until)
			break;
	}
	return NULL;
}

/* The next event, which must be this one; to be acknowledged. */
static inline struct rdma_cm_event *
peer_expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = peer_event(channel, PEER_WAIT_MS);

	MUST(event);
	if (event->event != type)
		fprintf(stderr, "got %s, status %d, not %s\n",
			sv_cm_event_str(event->event), event->status,
			sv_cm_event_str(type));
	MUST(event->event == type);
	return event;
}

/* The same, acknowledged; returns the status. */
static inline int peer_take(struct rdma_event_channel *channel,
			    enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = peer_expect(channel, type);
	int status = event->status;

	MUST(!sv_cm_ack_cm_event(event));
	return status;
}

static inline void peer_open(struct peer *peer)
{
	memset(peer, 0, sizeof(*peer));
	peer->channel = sv_cm_create_event_channel();
	MUST(peer->channel);
	MUST(!fcntl(peer->channel->fd, F_SETFL, O_NONBLOCK));
}

static inline void peer_create_id(struct peer *peer)
{
	MUST(!sv_cm_create_id(peer->channel, &peer->id, peer, RDMA_PS_TCP));
}

/* A QP in INIT, on the device that the id has found. */
static inline void peer_create_qp(struct peer *peer)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = PEER_DEPTH,
			.max_recv_wr = PEER_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	MUST(peer->id->verbs);
	peer->pd = sv_alloc_pd(peer->id->verbs);
	MUST(peer->pd);
	peer->cq = sv_create_cq(peer->id->verbs, 4 * PEER_DEPTH, NULL, NULL, 0);
	MUST(peer->cq);
	init.send_cq = peer->cq;
	init.recv_cq = peer->cq;
	peer->qp = sv_create_qp(peer->pd, &init);
	MUST(peer->qp);
	peer->mr = sv_reg_mr(peer->pd, peer->buf, sizeof(peer->buf),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			     IBV_ACCESS_REMOTE_READ);
	MUST(peer->mr);
	MUST(!sv_cm_init_qp_attr(peer->id, &attr, &mask));
	MUST(!sv_modify_qp(peer->qp, &attr, mask));
}

/* To RTR and RTS, as the connection manager says. */
static inline void peer_move_qp(struct peer *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask;

	MUST(!sv_cm_init_qp_attr(peer->id, &attr, &mask));
	MUST(!sv_modify_qp(peer->qp, &attr, mask));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!sv_cm_init_qp_attr(peer->id, &attr, &mask));
	MUST(!sv_modify_qp(peer->qp, &attr, mask));
}

static inline void peer_destroy_qp(struct peer *peer)
{
	if (!peer->qp)
		return;
	MUST(!sv_destroy_qp(peer->qp));
	MUST(!sv_dereg_mr(peer->mr));
	MUST(!sv_destroy_cq(peer->cq));
	MUST(!sv_dealloc_pd(peer->pd));
	peer->qp = NULL;
}

static inline void peer_destroy_id(struct peer *peer)
{
	if (peer->id)
		MUST(!sv_cm_destroy_id(peer->id));
	peer->id = NULL;
}

static inline void peer_close(struct peer *peer)
{
	peer_destroy_qp(peer);
	peer_destroy_id(peer);
	if (peer->channel)
		sv_cm_destroy_event_channel(peer->channel);
	peer->channel = NULL;
}

/* A listener; returns its port. */
static inline uint16_t peer_listen(struct peer *peer, const char *ip,
				   uint16_t port, int backlog)
{
	struct sockaddr_storage addr;

	peer_open(peer);
	peer_create_id(peer);
	peer_addr(&addr, ip, port);
	MUST(!sv_cm_bind_addr(peer->id, (struct sockaddr *)&addr));
	MUST(!sv_cm_listen(peer->id, backlog));
	return peer_port(&peer->id->route.addr.src_addr);
}

/* A new id, bound to this address and a free port. */
static inline void peer_bind(struct peer *peer, const char *ip)
{
	struct sockaddr_storage addr;

	peer_create_id(peer);
	peer_addr(&addr, ip, 0);
	MUST(!sv_cm_bind_addr(peer->id, (struct sockaddr *)&addr));
}

static inline void peer_resolve(struct peer *peer, const char *ip,
				uint16_t port)
{
	struct sockaddr_storage addr;

	if (!peer->id)
		peer_create_id(peer);
	peer_addr(&addr, ip, port);
	MUST(!sv_cm_resolve_addr(peer->id, NULL, (struct sockaddr *)&addr,
				 2000));
	MUST(!peer_take(peer->channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	MUST(!sv_cm_resolve_route(peer->id, 2000));
	MUST(!peer_take(peer->channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
}

/* On a channel that is open; the outcome is still to come. */
static inline void peer_connect(struct peer *peer, const char *ip,
				uint16_t port, const void *pd, uint8_t pd_len)
{
	struct rdma_conn_param param = {
		.private_data = pd,
		.private_data_len = pd_len,
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	peer_resolve(peer, ip, port);
	peer_create_qp(peer);
	param.qp_num = peer->qp->qp_num;
	MUST(!sv_cm_connect(peer->id, &param));
}

/* Takes over the id of a request and accepts it. */
static inline void peer_accept_id(struct peer *peer, struct rdma_cm_id *id,
				  const void *pd, uint8_t pd_len)
{
	struct rdma_conn_param param = {
		.private_data = pd,
		.private_data_len = pd_len,
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.rnr_retry_count = 7,
	};

	peer->id = id;
	peer_create_qp(peer);
	peer_move_qp(peer);
	param.qp_num = peer->qp->qp_num;
	MUST(!sv_cm_accept(id, &param));
}

/* Waits for a request; its events go to peer's own channel from then on. */
static inline void peer_accept(struct peer *listener, struct peer *peer)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	peer_open(peer);
	event = peer_expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(event->listen_id == listener->id);
	id = event->id;
	MUST(!sv_cm_ack_cm_event(event));
	MUST(!sv_cm_migrate_id(id, peer->channel));
	peer_accept_id(peer, id, NULL, 0);
}

/* The connecting side's last step. */
static inline void peer_finish(struct peer *peer)
{
	MUST(!peer_take(peer->channel, RDMA_CM_EVENT_CONNECT_RESPONSE));
	peer_move_qp(peer);
	MUST(!sv_cm_establish(peer->id));
}

static inline void peer_established(struct peer *peer)
{
	MUST(!peer_take(peer->channel, RDMA_CM_EVENT_ESTABLISHED));
}

/* Both ends in this process, from nothing to established. */
static inline void peer_pair(struct peer *listener, struct peer *active,
			     struct peer *passive, const char *ip,
			     uint16_t port)
{
	peer_open(active);
	peer_connect(active, ip, port, NULL, 0);
	peer_accept(listener, passive);
	peer_finish(active);
	peer_established(passive);
}

/* From established to nothing, with the events that there must be. */
static inline void peer_end_pair(struct peer *active, struct peer *passive)
{
	MUST(!sv_cm_disconnect(active->id));
	MUST(!peer_take(active->channel, RDMA_CM_EVENT_DISCONNECTED));
	MUST(!peer_take(passive->channel, RDMA_CM_EVENT_DISCONNECTED));
	peer_close(active);
	peer_close(passive);
}

static inline void peer_post_recv(struct peer *peer)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)peer->buf,
		.length = sizeof(peer->buf),
		.lkey = peer->mr->lkey,
	};
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	MUST(!ibv_post_recv(peer->qp, &wr, &bad));
}

static inline void peer_post_send(struct peer *peer, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)peer->buf,
		.length = len,
		.lkey = peer->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	MUST(!ibv_post_send(peer->qp, &wr, &bad));
}

/* The next completion within the time; its status. */
static inline enum ibv_wc_status peer_complete(struct peer *peer)
{
	long until = peer_now_ms() + PEER_WAIT_MS;
	struct ibv_wc wc;
	int cnt;

	do {
		cnt = ibv_poll_cq(peer->cq, 1, &wc);
		MUST(cnt >= 0);
		if (!cnt)
			sched_yield();
	} while (!cnt && peer_now_ms() < until);
	MUST(cnt == 1);
	return wc.status;
}

/* A message from one end to the other, both in this process. */
static inline void peer_transfer(struct peer *from, struct peer *to)
{
	static _Thread_local unsigned int seed;
	char fill = (char)++seed;

	memset(from->buf, fill, sizeof(from->buf));
	memset(to->buf, 0, sizeof(to->buf));
	peer_post_recv(to);
	peer_post_send(from, sizeof(from->buf));
	MUST(peer_complete(to) == IBV_WC_SUCCESS);
	MUST(peer_complete(from) == IBV_WC_SUCCESS);
	MUST(!memcmp(from->buf, to->buf, sizeof(to->buf)));
}

#endif
