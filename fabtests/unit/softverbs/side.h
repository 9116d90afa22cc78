/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One end of a connection for the tests of softverbs' verbs half, and two ways
 * to join two of them without a connection manager: in one process, and over
 * a socket to another process.
 */
#ifndef SIDE_H
#define SIDE_H

#include "must.h"
#include "sv_shm.h"
#include "sv_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Longest wait for anything; tests that get there fail. */
enum {
	SIDE_WAIT_MS = 10000,
};

struct side_opts {
	uint32_t depth; /* of both queues; 0: 64 */
	int cqe; /* 0: twice the depth */
	int access; /* of the QP, 0: all */
	bool one_cq;
	bool channel;
	bool sig_all;
	uint32_t sges; /* 0: 4 */
	uint32_t inl;
	uint32_t srq_wr; /* 0: receives are the QP's own */
	uint64_t send_ops; /* 0: no builder */
	bool cq_ex; /* CQs are extended ones, with: */
	uint64_t wc_flags;
	uint32_t cq_flags;
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *chan;
	struct ibv_cq *scq;
	struct ibv_cq *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	int access;
	uint8_t rd_out; /* max_rd_atomic */
	uint8_t rd_in; /* max_dest_rd_atomic */
	uint8_t rnr_retry;
	uint8_t rnr_timer; /* min_rnr_timer */
};

static inline struct ibv_cq *side_cq(struct side *s, int cqe,
				     const struct side_opts *o)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.cq_context = s,
		.channel = s->chan,
		.wc_flags = o->wc_flags,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = o->cq_flags,
	};
	struct ibv_cq *cq;

	if (o->cq_ex)
		cq = ibv_cq_ex_to_cq(sv_create_cq_ex(s->ctx, &attr));
	else
		cq = sv_create_cq(s->ctx, cqe, s, s->chan, 0);
	MUST(cq);
	return cq;
}

static inline struct ibv_qp *side_qp(struct side *s, struct ibv_qp_init_attr *init,
				     uint64_t send_ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.sq_sig_all = init->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->pd,
		.send_ops_flags = send_ops,
	};

	return send_ops ? sv_create_qp_ex(s->ctx, &attr) :
			  sv_create_qp(s->pd, init);
}

static inline void side_open(struct side *s, const struct side_opts *opts)
{
	struct side_opts o = opts ? *opts : (struct side_opts){ 0 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq = { .srq_context = s };
	struct ibv_device **list = sv_get_device_list(NULL);
	int cqe;

	memset(s, 0, sizeof(*s));
	MUST(list && list[0]);
	if (!o.depth)
		o.depth = 64;
	cqe = o.cqe ? o.cqe : 2 * (int)o.depth;
	s->access = o.access ? o.access :
			       IBV_ACCESS_LOCAL_WRITE |
				       IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ |
				       IBV_ACCESS_REMOTE_ATOMIC;
	s->rd_out = 16;
	s->rd_in = 16;
	s->rnr_retry = 7;
	s->rnr_timer = 12;
	MUST((s->ctx = sv_open_device(list[0])));
	sv_free_device_list(list);
	MUST((s->pd = sv_alloc_pd(s->ctx)));
	if (o.channel)
		MUST((s->chan = sv_create_comp_channel(s->ctx)));
	s->scq = side_cq(s, cqe, &o);
	s->rcq = s->scq;
	if (!o.one_cq)
		s->rcq = side_cq(s, cqe, &o);
	srq.attr.max_wr = o.srq_wr;
	srq.attr.max_sge = o.sges ? o.sges : 4;
	if (o.srq_wr)
		MUST((s->srq = sv_create_srq(s->pd, &srq)));
	init.srq = s->srq;
	init.send_cq = s->scq;
	init.recv_cq = s->rcq;
	init.sq_sig_all = o.sig_all;
	init.cap = (struct ibv_qp_cap){
		.max_send_wr = o.depth,
		.max_recv_wr = o.depth,
		.max_send_sge = o.sges ? o.sges : 4,
		.max_recv_sge = o.sges ? o.sges : 4,
		.max_inline_data = o.inl,
	};
	MUST((s->qp = side_qp(s, &init, o.send_ops)));
}

static inline int side_init(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = s->access,
	};

	return sv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS);
}

static inline int side_rtr(struct side *s, uint32_t dest_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = dest_qpn,
		.max_dest_rd_atomic = s->rd_in,
		.min_rnr_timer = s->rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};

	return sv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
}

static inline int side_rts(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 10,
		.retry_cnt = 7,
		.rnr_retry = s->rnr_retry,
		.max_rd_atomic = s->rd_out,
	};

	return sv_modify_qp(s->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC);
}

static inline int side_error(struct side *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return sv_modify_qp(s->qp, &attr, IBV_QP_STATE);
}

static inline void side_close(struct side *s)
{
	if (s->qp)
		MUST(!sv_destroy_qp(s->qp));
	if (s->srq)
		MUST(!sv_destroy_srq(s->srq));
	if (s->rcq != s->scq)
		MUST(!sv_destroy_cq(s->rcq));
	MUST(!sv_destroy_cq(s->scq));
	if (s->chan)
		MUST(!sv_destroy_comp_channel(s->chan));
	MUST(!sv_dealloc_pd(s->pd));
	MUST(!sv_close_device(s->ctx));
}

static inline void fds_dup(int to[SV_LINK_FDS], const int from[SV_LINK_FDS])
{
	int i;

	for (i = 0; i < SV_LINK_FDS; i++)
		MUST((to[i] = dup(from[i])) >= 0);
}

/* Gives both QPs their links; they are in INIT or later. */
static inline void pair_shm(struct side *a, struct side *b, pid_t pid)
{
	struct side *s[2] = { a, b };
	struct sv_link_hello hello[2];
	int fds[2][SV_LINK_FDS], theirs[SV_LINK_FDS], sock[2], i;
	struct ucred cred = { .pid = pid, .uid = getuid(), .gid = getgid() };
	struct sv_link *link[2];

	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock));
	for (i = 0; i < 2; i++) {
		MUST(!sv_shm_create(sv_qp(s[i]->qp), &link[i]));
		sv_shm_offer(link[i], &hello[i], fds[i]);
	}
	/* Each attach closes what it offered: copy both before. */
	for (i = 0; i < 2; i++) {
		fds_dup(theirs, fds[!i]);
		if (!i) {
			fds[0][0] = dup(fds[0][0]);
			MUST(fds[0][0] >= 0);
		}
		MUST(!sv_shm_attach(link[i], &hello[!i], theirs, sock[i],
				     &cred));
	}
	close(fds[0][0]);
	for (i = 0; i < 2; i++)
		MUST(!sv_qp_attach_link(sv_qp(s[i]->qp), link[i]));
}

/* Two ends of a TCP connection over the loopback interface. */
static inline void tcp_pair(int sock[2])
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(addr);
	int on = 1, i, lsock;

	lsock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	MUST(lsock >= 0);
	MUST(!bind(lsock, (struct sockaddr *)&addr, len) && !listen(lsock, 1));
	MUST(!getsockname(lsock, (struct sockaddr *)&addr, &len));
	sock[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	MUST(sock[0] >= 0);
	MUST(!connect(sock[0], (struct sockaddr *)&addr, len));
	MUST((sock[1] = accept4(lsock, NULL, NULL, SOCK_CLOEXEC)) >= 0);
	close(lsock);
	for (i = 0; i < 2; i++)
		MUST(!setsockopt(sock[i], IPPROTO_TCP, TCP_NODELAY, &on,
				 sizeof(on)));
}

static inline void tcp_join(struct side *s, int sock,
			    const struct sv_tcp_setup *setup)
{
	struct sv_link *link;

	MUST(!sv_tcp_create(sv_qp(s->qp), sock, setup, &link));
	MUST(!sv_qp_attach_link(sv_qp(s->qp), link));
}

static inline void pair_tcp(struct side *a, struct side *b, bool ext, bool crc)
{
	struct sv_tcp_setup setup = { .ext = ext, .crc = crc };
	int sock[2];

	tcp_pair(sock);
	setup.peer_qpn = b->qp->qp_num;
	tcp_join(a, sock[0], &setup);
	setup.peer_qpn = a->qp->qp_num;
	tcp_join(b, sock[1], &setup);
}

/*
 * A test that is about what any link does is built twice. What the shared memory
 * does directly or through its rings, TCP does without and with checksums.
 */
#ifdef SIDE_TCP
enum { SIDE_IS_TCP = 1 };
#else
enum { SIDE_IS_TCP = 0 };
#endif

static inline void side_direct(bool direct)
{
	setenv("SOFTVERBS_CMA", direct ? "1" : "0", 1);
	setenv("SIDE_CRC", direct ? "0" : "1", 1);
}

/* Gives both QPs their links; they are in INIT or later. */
static inline void pair_links(struct side *a, struct side *b, pid_t pid)
{
	const char *crc = getenv("SIDE_CRC");

	if (SIDE_IS_TCP)
		pair_tcp(a, b, true, crc && *crc == '1');
	else
		pair_shm(a, b, pid);
}

static inline void pair_up(struct side *a, struct side *b)
{
	MUST(!side_init(a) && !side_init(b));
	pair_links(a, b, getpid());
	MUST(!side_rtr(a, b->qp->qp_num) && !side_rtr(b, a->qp->qp_num));
	MUST(!side_rts(a) && !side_rts(b));
}

/* What the two processes of a remote pair tell each other. */
struct side_msg {
	struct sv_link_hello hello;
	pid_t pid;
	uint64_t addr; /* the test's own */
	uint32_t rkey;
};

static inline void msg_send(int sock, const struct side_msg *msg,
			    const int fds[SV_LINK_FDS])
{
	char ctl[CMSG_SPACE(SV_LINK_FDS * sizeof(int))] = { 0 };
	struct iovec iov = {
		.iov_base = (void *)msg,
		.iov_len = sizeof(*msg),
	};
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = ctl,
		.msg_controllen = sizeof(ctl),
	};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(SV_LINK_FDS * sizeof(int));
	memcpy(CMSG_DATA(cm), fds, SV_LINK_FDS * sizeof(int));
	MUST(sendmsg(sock, &mh, 0) == sizeof(*msg));
}

static inline void msg_recv(int sock, struct side_msg *msg,
			    int fds[SV_LINK_FDS])
{
	char ctl[CMSG_SPACE(SV_LINK_FDS * sizeof(int))];
	struct iovec iov = { .iov_base = msg, .iov_len = sizeof(*msg) };
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = ctl,
		.msg_controllen = sizeof(ctl),
	};
	struct cmsghdr *cm;

	MUST(recvmsg(sock, &mh, MSG_CMSG_CLOEXEC | MSG_WAITALL) ==
	     sizeof(*msg));
	cm = CMSG_FIRSTHDR(&mh);
	MUST(cm && cm->cmsg_type == SCM_RIGHTS);
	memcpy(fds, CMSG_DATA(cm), SV_LINK_FDS * sizeof(int));
}

static inline void join_remote_shm(struct side *s, int sock,
				   struct side_msg *mine,
				   struct side_msg *theirs)
{
	struct ucred cred = { .uid = getuid(), .gid = getgid() };
	int fds[SV_LINK_FDS], peer_fds[SV_LINK_FDS];
	struct sv_link *link;

	MUST(!sv_shm_create(sv_qp(s->qp), &link));
	sv_shm_offer(link, &mine->hello, fds);
	msg_send(sock, mine, fds);
	msg_recv(sock, theirs, peer_fds);
	cred.pid = theirs->pid;
	MUST(!sv_shm_attach(link, &theirs->hello, peer_fds, dup(sock),
			     &cred));
	MUST(!sv_qp_attach_link(sv_qp(s->qp), link));
}

/* Whose process has the lower number offers the other one a connection. */
static inline void join_remote_tcp(struct side *s, int sock,
				   struct side_msg *mine,
				   struct side_msg *theirs)
{
	struct sv_tcp_setup setup = { .ext = true };
	int pair[2], fds[SV_LINK_FDS], peer_fds[SV_LINK_FDS], i;

	tcp_pair(pair);
	for (i = 0; i < SV_LINK_FDS; i++)
		fds[i] = pair[1];
	mine->hello.qpn = s->qp->qp_num;
	msg_send(sock, mine, fds);
	msg_recv(sock, theirs, peer_fds);
	setup.peer_qpn = theirs->hello.qpn;
	if (mine->pid < theirs->pid) {
		for (i = 0; i < SV_LINK_FDS; i++)
			close(peer_fds[i]);
		close(pair[1]);
		tcp_join(s, pair[0], &setup);
	} else {
		for (i = 1; i < SV_LINK_FDS; i++)
			close(peer_fds[i]);
		close(pair[0]);
		close(pair[1]);
		tcp_join(s, peer_fds[0], &setup);
	}
}

/*
 * Joins this process's QP to the one at the other end of sock, which calls
 * the same; sock is consumed. mine->addr and rkey are delivered as theirs.
 */
static inline void join_remote(struct side *s, int sock, struct side_msg *mine,
			       struct side_msg *theirs)
{
	mine->pid = getpid();
	MUST(!side_init(s));
	if (SIDE_IS_TCP)
		join_remote_tcp(s, sock, mine, theirs);
	else
		join_remote_shm(s, sock, mine, theirs);
	MUST(!side_rtr(s, theirs->hello.qpn));
	MUST(!side_rts(s));
	close(sock);
}

static inline struct ibv_mr *side_reg(struct side *s, void *buf, size_t len)
{
	struct ibv_mr *mr = sv_reg_mr(s->pd, buf, len,
				      IBV_ACCESS_LOCAL_WRITE |
					      IBV_ACCESS_REMOTE_WRITE |
					      IBV_ACCESS_REMOTE_READ |
					      IBV_ACCESS_REMOTE_ATOMIC);

	MUST(mr);
	return mr;
}

static inline int post_recv(struct side *s, uint64_t id, struct ibv_mr *mr,
			    size_t off, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr + off,
		.length = len,
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad;

	return s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) :
			ibv_post_recv(s->qp, &wr, &bad);
}

struct post {
	uint64_t id;
	enum ibv_wr_opcode op;
	unsigned int flags;
	struct ibv_mr *mr;
	size_t off;
	uint32_t len;
	uint64_t raddr;
	uint32_t rkey;
	uint32_t imm;
	uint64_t compare_add; /* atomics */
	uint64_t swap;
};

static inline int post(struct side *s, struct post p)
{
	struct ibv_sge sge = {
		.addr = p.mr ? (uintptr_t)p.mr->addr + p.off : 0,
		.length = p.len,
		.lkey = p.mr ? p.mr->lkey : 0,
	};
	struct ibv_send_wr wr = {
		.wr_id = p.id,
		.sg_list = &sge,
		.num_sge = p.mr ? 1 : 0,
		.opcode = p.op,
		.send_flags = p.flags,
		.imm_data = htobe32(p.imm),
		.wr.rdma = { .remote_addr = p.raddr, .rkey = p.rkey },
	};
	struct ibv_send_wr *bad;

	if (p.op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    p.op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = p.raddr;
		wr.wr.atomic.rkey = p.rkey;
		wr.wr.atomic.compare_add = p.compare_add;
		wr.wr.atomic.swap = p.swap;
	}
	return ibv_post_send(s->qp, &wr, &bad);
}

/* Polls for one completion; false after ms milliseconds. */
static inline bool wait_wc_ms(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	uint64_t until = sv_now_ns() + ms * 1000000ull;
	int i, n;

	do {
		for (i = 0; i < 64; i++) {
			n = ibv_poll_cq(cq, 1, wc);
			MUST(n >= 0);
			if (n)
				return true;
		}
		sched_yield();
	} while (sv_now_ns() < until);
	return false;
}

static inline struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	MUST(wait_wc_ms(cq, &wc, SIDE_WAIT_MS));
	return wc;
}

static inline void fill(void *buf, size_t len, unsigned int seed)
{
	uint8_t *p = buf;
	uint32_t x = seed * 2654435761u + 1;
	size_t i;

	for (i = 0; i < len; i++) {
		x = x * 1664525 + 1013904223;
		p[i] = x >> 24;
	}
}

static inline bool filled(const void *buf, size_t len, unsigned int seed)
{
	const uint8_t *p = buf;
	uint32_t x = seed * 2654435761u + 1;
	size_t i;

	for (i = 0; i < len; i++) {
		x = x * 1664525 + 1013904223;
		if (p[i] != (uint8_t)(x >> 24))
			return false;
	}
	return true;
}

#endif
