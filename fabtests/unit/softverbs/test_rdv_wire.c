/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs that ibv_modify_qp connects, with a peer that is a plain socket:
 * calls that are to be refused, or not to be made, and calls that break off.
 */
#include <criterion/criterion.h>

#include "raw_peer.h"

/* That is what the raw peer offers, whatever else is tested. */
static void over_shm(void)
{
	setenv("SOFTVERBS_LINK", "shm", 1);
}

TestSuite(rdv_wire, .timeout = 60, .init = over_shm);

enum {
	PSN_OUT = 0x111111, /* what our queue pairs send from */
	PSN_IN = 0x222222,
	QUIET_MS = 300,
};

/* A queue pair in INIT, on the loopback address. */
static void qp_open(struct peer *peer)
{
	struct sockaddr_storage addr;

	peer_open(peer);
	peer_create_id(peer);
	peer_addr(&addr, "127.0.0.1", 0);
	MUST(!sv_cm_bind_addr(peer->id, (struct sockaddr *)&addr));
	peer_create_qp(peer);
}

static void qp_to_rtr(struct peer *peer, uint32_t dest_qpn)
{
	struct sockaddr *own = &peer->id->route.addr.src_addr;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest_qpn,
		.rq_psn = PSN_IN,
		.max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};

	sv_gid_of_addr(own, &attr.ah_attr.grh.dgid);
	attr.ah_attr.grh.sgid_index = (uint8_t)sv_dev_gid_index(own);
	MUST(!sv_modify_qp(peer->qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER));
}

static void qp_to_rts(struct peer *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 10,
		.sq_psn = PSN_OUT,
		.max_rd_atomic = 1,
	};

	MUST(!sv_modify_qp(peer->qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Whoever calls at that port. -1 if nobody does within the time. */
static int raw_accept(int listener, int timeout_ms)
{
	struct pollfd pfd = { .fd = listener, .events = POLLIN };

	return poll(&pfd, 1, timeout_ms) == 1 ? accept(listener, NULL, NULL) :
						-1;
}

/* What the right peer, number src, would say to it. */
static void raw_meet(struct sv_ctrl *meet, const struct peer *peer,
		     uint32_t src)
{
	raw_hello(meet);
	meet->type = SV_CTRL_MEET;
	meet->conn.qp_num = src;
	meet->conn.psn = PSN_OUT;
	meet->dest_qp_num = peer->qp->qp_num;
	meet->sq_psn = PSN_IN;
	meet->sq_psn_known = true;
}

/* Calls a port and says that; returns the answer, and the socket. */
static void raw_call(int *sock, uint16_t port, const struct sv_ctrl *what,
		     struct sv_mpa *reply)
{
	struct sv_ctrl theirs;

	*sock = raw_connect(port);
	raw_send_mpa(*sock, false, true, false);
	raw_recv_ctrl(*sock, &theirs, 1);
	MUST(theirs.type == SV_CTRL_HELLO);
	raw_send_ctrl(*sock, what, 1);
	raw_recv_mpa(*sock, true, reply);
}

Test(rdv_wire, wrong_calls_are_refused)
{
	enum { OWN = 0x00f005 };
	struct sv_ctrl right;
	struct sv_mpa reply;
	struct sv_ctrl bad;
	struct peer peer;
	uint16_t port;
	int sock;
	int i;

	qp_open(&peer);
	port = sv_qpn_port(peer.qp->qp_num);
	qp_to_rtr(&peer, OWN);
	qp_to_rts(&peer);
	raw_meet(&right, &peer, OWN);
	for (i = 0; i < 6; i++) {
		bad = right;
		if (i == 0)
			bad.conn.qp_num ^= 1;
		if (i == 1)
			bad.conn.psn ^= 1;
		if (i == 2)
			bad.sq_psn ^= 1;
		if (i == 3)
			bad.dest_qp_num ^= 0x40;
		if (i == 4)
			bad.host_id[0] ^= 1;
		if (i == 5)
			bad.conn.psn = bad.sq_psn = 0;
		raw_call(&sock, port, &bad, &reply);
		cr_assert(reply.reject, "%d", i);
		cr_assert(raw_closed(sock, 2000));
		close(sock);
	}
	raw_call(&sock, port, &right, &reply);
	cr_assert_not(reply.reject);
	close(sock);
	peer_close(&peer);
}

/* Before RTS its own PSN to send from is not known: what is known must do. */
Test(rdv_wire, nothing_to_compare)
{
	enum { OWN = 0x00f005 };
	struct sv_ctrl meet;
	struct sv_mpa reply;
	struct peer peer;
	int sock;

	qp_open(&peer);
	qp_to_rtr(&peer, OWN);
	raw_meet(&meet, &peer, OWN);
	meet.sq_psn_known = false;
	raw_call(&sock, sv_qpn_port(peer.qp->qp_num), &meet, &reply);
	cr_assert(reply.reject);
	close(sock);
	meet.sq_psn_known = true;
	raw_call(&sock, sv_qpn_port(peer.qp->qp_num), &meet, &reply);
	cr_assert_not(reply.reject);
	close(sock);
	peer_close(&peer);
}

/* One who calls an id does not mean a queue pair, and the other way round. */
Test(rdv_wire, ids_and_queue_pairs_are_not_mixed_up)
{
	enum { OWN = 0x00f005 };
	struct peer listener;
	struct sv_ctrl theirs;
	struct sv_ctrl ctrl;
	struct peer peer;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int sock;

	qp_open(&peer);
	qp_to_rtr(&peer, OWN);
	qp_to_rts(&peer);

	sock = raw_connect(port);
	raw_send_mpa(sock, false, true, false);
	raw_recv_ctrl(sock, &theirs, 1);
	raw_meet(&ctrl, &peer, OWN);
	raw_send_ctrl(sock, &ctrl, 1);
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	cr_assert_null(peer_event(listener.channel, 0));

	sock = raw_connect(sv_qpn_port(peer.qp->qp_num));
	raw_send_mpa(sock, false, true, false);
	raw_recv_ctrl(sock, &theirs, 1);
	raw_hello(&ctrl);
	ctrl.conn.qp_num = OWN;
	raw_send_ctrl(sock, &ctrl, 1);
	cr_assert(raw_closed(sock, 2000));
	close(sock);
	peer_close(&peer);
	peer_close(&listener);
}

/* A call that breaks off half-way leaves the queue pair where it was. */
Test(rdv_wire, broken_calls_do_no_harm)
{
	enum { OWN = 0x00f005 };
	struct sv_ctrl meet;
	struct sv_mpa reply;
	struct peer peer;
	int sock;
	int i;

	qp_open(&peer);
	qp_to_rtr(&peer, OWN);
	qp_to_rts(&peer);
	raw_meet(&meet, &peer, OWN);
	for (i = 0; i < 3; i++) {
		raw_call(&sock, sv_qpn_port(peer.qp->qp_num), &meet, &reply);
		cr_assert_not(reply.reject);
		close(sock);
		peer_sleep_ms(20);
	}
	peer_close(&peer);
}

/* The callee must be the right one too. */
Test(rdv_wire, wrong_callee_is_left)
{
	struct sv_ctrl accept = { .type = SV_CTRL_ACCEPT };
	struct sv_mpa request;
	struct sv_ctrl hello;
	struct sv_ctrl meet;
	struct peer peer;
	uint16_t port;
	int listener = raw_listen(&port);
	uint32_t qpn = (uint32_t)port << 8 | 3;
	int sock;
	int i;

	qp_open(&peer);
	qp_to_rtr(&peer, qpn);
	qp_to_rts(&peer);
	for (i = 0; i < 2; i++) {
		sock = raw_accept(listener, PEER_WAIT_MS);
		MUST(sock >= 0);
		raw_recv_mpa(sock, false, &request);
		cr_assert(request.ext);
		raw_hello(&hello);
		raw_send_ctrl(sock, &hello, 1);
		raw_recv_ctrl(sock, &meet, 1);
		cr_assert_eq(meet.type, SV_CTRL_MEET);
		cr_assert_eq(meet.conn.qp_num, peer.qp->qp_num);
		cr_assert_eq(meet.conn.psn, PSN_IN);
		cr_assert_eq(meet.dest_qp_num, qpn);
		cr_assert_eq(meet.sq_psn, PSN_OUT);
		cr_assert(meet.sq_psn_known);
		accept.conn.qp_num = i ? qpn : qpn ^ 1;
		accept.conn.psn = i ? PSN_OUT ^ 1 : PSN_OUT;
		raw_send_mpa(sock, true, true, false);
		raw_send_ctrl(sock, &accept, 2);
		cr_assert(raw_closed(sock, 2000));
		close(sock);
	}
	peer_close(&peer);
	close(listener);
}

/* Makes the listener's program believe that rdma_cm connects it to qpn. */
static int cm_request(struct peer *listener, uint16_t port, struct peer *passive,
		      uint32_t qpn)
{
	int sock = raw_connect(port);
	struct rdma_cm_event *event;
	struct sv_ctrl theirs;
	struct sv_ctrl hello;

	raw_send_mpa(sock, false, true, false);
	raw_recv_ctrl(sock, &theirs, 1);
	raw_hello(&hello);
	hello.conn.qp_num = qpn;
	hello.conn.psn = PSN_IN;
	raw_send_ctrl(sock, &hello, 1);
	event = peer_expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	peer_open(passive);
	passive->id = event->id;
	MUST(!sv_cm_ack_cm_event(event));
	return sock;
}

/* Whether nobody listens there. */
static bool is_deaf(uint16_t port)
{
	struct sockaddr_storage addr;
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	bool deaf;

	MUST(sock >= 0);
	peer_addr(&addr, "127.0.0.1", port);
	deaf = connect(sock, (struct sockaddr *)&addr,
		       sizeof(struct sockaddr_in)) && errno == ECONNREFUSED;
	close(sock);
	return deaf;
}

/*
 * A queue pair that is made ready because rdma_cm will connect it calls nobody.
 * If nothing comes of that, it is one like others.
 */
Test(rdv_wire, rdma_cm_comes_first)
{
	struct peer listener;
	struct peer passive;
	uint16_t called;
	int calls = raw_listen(&called);
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);
	int cm_sock;
	int sock;

	cm_sock = cm_request(&listener, port, &passive,
			     (uint32_t)called << 8 | 9);
	peer_create_qp(&passive);
	peer_move_qp(&passive);
	cr_assert_eq(raw_accept(calls, QUIET_MS), -1);
	cr_assert(is_deaf(sv_qpn_port(passive.qp->qp_num)));

	MUST(!sv_cm_reject(passive.id, NULL, 0));
	sock = raw_accept(calls, PEER_WAIT_MS);
	cr_assert_geq(sock, 0);
	cr_assert_not(is_deaf(sv_qpn_port(passive.qp->qp_num)));
	close(sock);
	close(cm_sock);
	close(calls);
	peer_close(&passive);
	peer_close(&listener);
}
