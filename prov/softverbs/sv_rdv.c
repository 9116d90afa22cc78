/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Rendezvous: queue pairs that find each other without rdma_cm. Each has been
 * told by ibv_modify_qp whom it is for: a GID, which is an address, and a
 * number, which names the TCP port where the peer's process listens (sv_qpn.c).
 *
 * From RTR on a queue pair that has no link listens, and calls its peer: at
 * once, and then after pauses that grow. Whoever comes first finds nobody; who
 * comes second finds the first. If they call at the same time, the call of the
 * one with the lower number stands. The callee compares what the caller says of
 * itself with what its own queue pair was given: numbers and packet sequence
 * numbers, which are the secret that the two share. Then both go through
 * the same hand-over as with rdma_cm. What a queue pair sends from is known when
 * it goes to RTS only; if that is not what its peer was told, they part again.
 *
 * A queue pair that is being connected by rdma_cm is moved to RTR as well, by
 * the accepting side before it accepts. It is told from others by its peer,
 * for whom a connection request is pending; it calls nobody, and does not listen.
 * Once rdma_cm has given it a link, it needs no other.
 *
 * Sends that were posted and find no peer fail as on a NIC when its retries are
 * used up. A queue pair with nothing to send waits for ever.
 *
 * Everything here is under sv_cm.lock; the attributes are under qp->lock.
 */
#include "sv_cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	DELAY_MIN_MS = 1,
	DELAY_MAX_MS = 1000,
	DELAY_CM_MS = 100, /* by then rdma_cm will have connected it */
	/* For sends without a peer: finding it takes longer than a NIC's packet,
	 * and 0, which is forever on a NIC, has an end here. */
	SENDS_MIN_MS = 2000,
	SENDS_MAX_MS = 20000,
	/* For each that looks for its peer at the same time: they share the engine. */
	SENDS_EACH_MS = 10,
	NS_PER_MS = 1000000,
};

struct sv_rdv {
	struct list node; /* rdvs */
	struct sv_defer defer;
	struct sv_qp *qp; /* referenced; NULL once it is over */
	struct sv_conn *conn; /* a call that is under way, in or out */
	struct sv_timer timer;
	unsigned int delay_ms;
	bool listens; /* or has tried to */
	uint64_t sends_until_ns; /* 0: nothing waits to be sent */
	bool is_callable; /* the peer's GID is an address */
	union ibv_gid own_gid;
	union ibv_gid peer_gid;
	struct sockaddr_storage src;
	struct sockaddr_storage dst;
};

/* A port where some QPs of this process are called. Stays to the end. */
struct rdv_port {
	struct list node;
	int sock; /* sv_qpn.c's */
	struct sv_listener listener;
};

/* sv_cm.lock */
static struct list rdvs = { &rdvs, &rdvs };
static unsigned int rdv_cnt; /* in rdvs */
static struct list ports = { &ports, &ports };

/* What the QP was given, as far as it matters to its peer. */
struct terms {
	enum ibv_qp_state state;
	uint32_t dest_qp_num;
	uint32_t rq_psn;
	uint32_t sq_psn;
	bool sq_psn_known;
	uint8_t rd_in;
	uint8_t rd_out;
};

static void terms_read(struct sv_qp *qp, struct terms *terms)
{
	sv_lock_take(&qp->lock);
	*terms = (struct terms){
		.state = qp->attr.qp_state,
		.dest_qp_num = qp->attr.dest_qp_num,
		.rq_psn = qp->attr.rq_psn,
		.sq_psn = qp->attr.sq_psn,
		.sq_psn_known = qp->attr.qp_state > IBV_QPS_RTR,
		.rd_in = qp->attr.max_dest_rd_atomic,
		.rd_out = qp->attr.max_rd_atomic,
	};
	sv_lock_drop(&qp->lock);
}

/* What its peer receives from; SV_PSN_ANY forgets it. */
static void wants_psn(struct sv_qp *qp, uint32_t psn)
{
	sv_lock_take(&qp->lock);
	qp->psn_wanted = psn;
	sv_lock_drop(&qp->lock);
}

/* Whether the QP sends from where its peer receives. If that is open yet, it will
 * be seen at RTS. */
static bool sends_from(struct sv_qp *qp, uint32_t psn)
{
	bool ok = true;

	sv_lock_take(&qp->lock);
	if (qp->attr.qp_state > IBV_QPS_RTR)
		ok = qp->attr.sq_psn == psn;
	else
		qp->psn_wanted = psn;
	sv_lock_drop(&qp->lock);
	return ok;
}

/* ---- the end ---- */

static void rdv_free(struct sv_defer *defer)
{
	free(container_of(defer, struct sv_rdv, defer));
}

static void rdv_end(struct sv_rdv *rdv)
{
	struct sv_qp *qp = rdv->qp;

	rdv->qp = NULL;
	qp->rdv = NULL;
	list_del(&rdv->node);
	rdv_cnt--;
	sv_timer_cancel(&rdv->timer);
	if (rdv->conn)
		sv_conn_close(rdv->conn);
	sv_engine_defer(&rdv->defer, rdv_free);
	sv_qp_put(qp);
}

void sv_rdv_quit(struct sv_qp *qp)
{
	if (!qp->rdv)
		return;
	wants_psn(qp, SV_PSN_ANY);
	rdv_end(qp->rdv);
}

void sv_rdv_cancel(struct sv_qp *qp)
{
	lock_take(&sv_cm.lock);
	sv_rdv_quit(qp);
	lock_drop(&sv_cm.lock);
}

void sv_rdv_closed(struct sv_conn *conn)
{
	conn->rdv->conn = NULL;
	conn->rdv = NULL;
}

/* The conn goes on without us, until the peer has its link too. */
void sv_rdv_linked(struct sv_conn *conn)
{
	struct sv_rdv *rdv = conn->rdv;

	sv_rdv_closed(conn);
	rdv_end(rdv);
}

/* ---- being called ---- */

/* 0 or a positive errno. */
static int port_listen(uint32_t qpn)
{
	int sock = sv_qpn_sock(qpn);
	struct rdv_port *port;
	struct list *pos;
	int err;

	if (sock < 0)
		return EADDRNOTAVAIL;
	list_for_each(pos, &ports)
		if (list_entry(pos, struct rdv_port, node)->sock == sock)
			return 0;
	port = calloc(1, sizeof(*port));
	if (!port)
		return ENOMEM;
	port->sock = sock;
	err = sv_listener_start(&port->listener, sock, NULL);
	if (err)
		free(port);
	else
		list_add_tail(&ports, &port->node);
	return err;
}

static void rdv_listen(struct sv_rdv *rdv)
{
	uint32_t qpn = rdv->qp->qp.qp_num;
	int err;

	if (rdv->listens)
		return;
	rdv->listens = true;
	err = port_listen(qpn);
	if (err)
		sv_log("qp %06x: its peer cannot call it, only rdma_cm can connect it: %s",
		       qpn, strerror(err));
}

/* Both sides come to the same answer. Numbers first: of those each is sure. */
static bool own_call_stands(const struct sv_rdv *rdv, uint32_t peer_qpn)
{
	uint32_t own_qpn = rdv->qp->qp.qp_num;

	if (own_qpn != peer_qpn)
		return own_qpn < peer_qpn;
	return memcmp(&rdv->own_gid, &rdv->peer_gid, sizeof(rdv->own_gid)) < 0;
}

/* NULL if the peer is whom this QP expects, else what is wrong. */
static const char *request_wrong(struct sv_qp *qp, const struct terms *terms,
				 const struct sv_ctrl *meet)
{
	if (terms->state < IBV_QPS_RTR || terms->state > IBV_QPS_SQE)
		return "not ready";
	if (terms->dest_qp_num != meet->conn.qp_num)
		return "it is for another one";
	if (meet->sq_psn_known && meet->sq_psn != terms->rq_psn)
		return "wrong PSN to receive from";
	/* Neither side knows yet what only the right peer can. */
	if (!meet->sq_psn_known && !terms->sq_psn_known)
		return "too early";
	if (!sends_from(qp, meet->conn.psn))
		return "wrong PSN to send from";
	return NULL;
}

static void request_accept(struct sv_rdv *rdv, struct sv_conn *conn,
			   const struct terms *terms)
{
	sv_cm.half_open--;
	conn->listener = NULL;
	conn->rdv = rdv;
	rdv->conn = conn;
	conn->own_conn.qp_num = rdv->qp->qp.qp_num;
	conn->own_conn.psn = terms->rq_psn;
	sv_conn_own_frame(conn, terms->rd_in, terms->rd_out);
	sv_passive_accept(conn);
}

void sv_rdv_request(struct sv_conn *conn)
{
	const struct sv_ctrl *meet = &conn->hello;
	struct sv_qp *qp = sv_qp_find(meet->dest_qp_num);
	struct sv_rdv *rdv = qp ? qp->rdv : NULL;
	const char *wrong = "nobody waits there";
	struct terms terms;

	if (rdv) {
		terms_read(qp, &terms);
		wrong = request_wrong(qp, &terms, meet);
	}
	if (!wrong && rdv->conn) {
		if (rdv->conn->passive ||
		    own_call_stands(rdv, meet->conn.qp_num))
			wrong = "another call is under way";
		else
			sv_conn_close(rdv->conn);
	}
	if (wrong) {
		sv_log("qp %06x: call of qp %06x refused: %s",
		       meet->dest_qp_num, meet->conn.qp_num, wrong);
		sv_passive_reject(conn, NULL, 0);
	} else {
		request_accept(rdv, conn, &terms);
	}
	if (qp)
		sv_qp_put(qp);
}

/* ---- calling ---- */

void sv_rdv_meet(const struct sv_conn *conn, struct sv_ctrl *hello)
{
	struct terms terms;

	terms_read(conn->rdv->qp, &terms);
	hello->type = SV_CTRL_MEET;
	hello->dest_qp_num = terms.dest_qp_num;
	hello->conn.psn = terms.rq_psn;
	hello->sq_psn = terms.sq_psn;
	hello->sq_psn_known = terms.sq_psn_known;
}

int sv_rdv_accepted(const struct sv_conn *conn)
{
	const struct sv_ctrl_conn *peer = &conn->hello.conn;
	struct terms terms;

	terms_read(conn->rdv->qp, &terms);
	if (peer->qp_num != terms.dest_qp_num ||
	    !sends_from(conn->rdv->qp, peer->psn))
		return -EPROTO;
	return 0;
}

/* A failed call is not the end: the timer brings the next. */
static void rdv_call(struct sv_rdv *rdv)
{
	struct sv_conn *conn;
	struct terms terms;
	uint32_t port;
	int sock;

	terms_read(rdv->qp, &terms);
	port = sv_qpn_port(terms.dest_qp_num);
	if (!rdv->is_callable || !port)
		return;
	sock = sv_active_socket((struct sockaddr *)&rdv->src);
	if (sock < 0)
		return;
	conn = sv_conn_new(sock, SV_CONN_TCP);
	if (!conn) {
		close(sock);
		return;
	}
	conn->rdv = rdv;
	rdv->conn = conn;
	conn->own_conn.qp_num = rdv->qp->qp.qp_num;
	sv_conn_own_frame(conn, terms.rd_in, terms.rd_out);
	sv_addr_set_port(&rdv->dst, (uint16_t)port);
	if (sv_active_dial(conn, (struct sockaddr *)&rdv->dst))
		sv_conn_close(conn);
}

/* rdma_cm has been asked to connect that peer, and will give us a link. */
static bool peer_is_cm(const struct sv_rdv *rdv, uint32_t peer_qpn)
{
	const struct sv_id *id;
	union ibv_gid gid;
	struct list *pos;
	uint16_t lid;

	list_for_each(pos, &sv_cm.ids) {
		id = list_entry(pos, struct sv_id, node);
		if ((id->state != SV_ID_REQUESTED &&
		     id->state != SV_ID_ACCEPTED) ||
		    id->remote.qp_num != peer_qpn)
			continue;
		sv_dev_path(rdv->qp->ctx->dev, &id->id.route.addr.dst_addr,
			    &gid, &lid);
		if (!memcmp(&gid, &rdv->peer_gid, sizeof(gid)))
			return true;
	}
	return false;
}

/* ---- by the clock ---- */

static uint64_t sends_limit_ns(const struct ibv_qp_attr *attr)
{
	const uint64_t max = SENDS_MAX_MS * (uint64_t)NS_PER_MS;
	uint64_t min = max_size(SENDS_MIN_MS, rdv_cnt * (size_t)SENDS_EACH_MS);
	uint64_t ns = (4096ull << attr->timeout) * (attr->retry_cnt + 1u);

	min = min_size(min, SENDS_MAX_MS) * NS_PER_MS;
	return !attr->timeout || ns > max ? max : ns < min ? min : ns;
}

/* Whether the QP still wants a peer. Fails sends that have waited too long. */
static bool rdv_check(struct sv_rdv *rdv, bool by_cm)
{
	struct sv_qp *qp = rdv->qp;
	bool waits;

	sv_lock_take(&qp->lock);
	waits = !qp->link && !qp->destroyed &&
		qp->attr.qp_state >= IBV_QPS_RTR &&
		qp->attr.qp_state < IBV_QPS_ERR;
	if (!waits || by_cm || qp->attr.qp_state != IBV_QPS_RTS ||
	    qp->sq.done == sv_wq_posted(&qp->sq)) {
		rdv->sends_until_ns = 0;
	} else if (!rdv->sends_until_ns) {
		rdv->sends_until_ns = sv_now_ns() + sends_limit_ns(&qp->attr);
	} else if (sv_now_ns() >= rdv->sends_until_ns) {
		sv_log("qp %06x: no peer: a send fails", qp->qp.qp_num);
		sv_sq_complete(qp, IBV_WC_RETRY_EXC_ERR);
		sv_qp_error(qp, -1);
		waits = false;
	}
	sv_lock_drop(&qp->lock);
	return waits;
}

static void on_timer(void *arg);

static void rdv_step(struct sv_rdv *rdv)
{
	unsigned int left_ms = rdv->delay_ms;
	uint64_t now_ns = sv_now_ns();
	struct terms terms;
	bool by_cm;

	terms_read(rdv->qp, &terms);
	by_cm = peer_is_cm(rdv, terms.dest_qp_num);
	if (!rdv_check(rdv, by_cm)) {
		rdv_end(rdv);
		return;
	}
	if (rdv->sends_until_ns > now_ns)
		left_ms = (unsigned int)min_size(
			left_ms, (rdv->sends_until_ns - now_ns) / NS_PER_MS + 1);
	if (by_cm && left_ms < DELAY_CM_MS)
		left_ms = DELAY_CM_MS;
	sv_timer_set(&rdv->timer, left_ms, on_timer, rdv);
	rdv->delay_ms = (unsigned int)min_size(rdv->delay_ms * 2, DELAY_MAX_MS);
	if (by_cm)
		return;
	rdv_listen(rdv);
	if (!rdv->conn)
		rdv_call(rdv);
}

static void on_timer(void *arg)
{
	struct sv_rdv *rdv = arg;

	lock_take(&sv_cm.lock);
	if (rdv->qp && sv_timer_expired(&rdv->timer)) {
		sv_timer_cancel(&rdv->timer);
		rdv_step(rdv);
	}
	lock_drop(&sv_cm.lock);
}

/* ---- the beginning ---- */

/* Both ends' addresses. Without one the QP can only be called. */
static void rdv_address(struct sv_rdv *rdv, const struct ibv_ah_attr *av)
{
	struct ibv_context *context = rdv->qp->qp.context;
	struct sv_dev *dev = rdv->qp->ctx->dev;
	struct ibv_gid_entry own = { .ndev_ifindex = 0 };
	struct sockaddr_storage *src = &rdv->src;
	struct sockaddr_storage *dst = &rdv->dst;

	if (sv_query_gid_ex(context, SV_PORT, av->grh.sgid_index, &own, 0))
		sv_log("qp %06x: no GID %u any more", rdv->qp->qp.qp_num,
		       av->grh.sgid_index);
	rdv->own_gid = own.gid;
	rdv->peer_gid = av->grh.dgid;
	rdv->is_callable = !sv_path_addr(dev, av->is_global ? &rdv->peer_gid :
							      NULL,
					 av->dlid, own.ndev_ifindex, dst);
	if (sv_path_addr(dev, &own.gid, 0, own.ndev_ifindex, src) ||
	    src->ss_family != dst->ss_family)
		sv_addr_any(src, dst->ss_family);
	if (!rdv->is_callable)
		sv_log("qp %06x: no address is known for the peer's GID or LID",
		       rdv->qp->qp.qp_num);
}

/* The peer is the QP itself, which can do without a rendezvous. */
static bool is_self(const struct sv_rdv *rdv, uint32_t dest_qp_num)
{
	return dest_qp_num == rdv->qp->qp.qp_num && rdv->is_callable &&
	       sv_dev_gid_index((const struct sockaddr *)&rdv->dst) >= 0;
}

static int rdv_new(struct sv_qp *qp)
{
	struct sv_rdv *rdv = calloc(1, sizeof(*rdv));
	struct ibv_ah_attr av;
	uint32_t dest_qp_num;

	if (!rdv)
		return ENOMEM;
	sv_lock_take(&qp->lock);
	av = qp->attr.ah_attr;
	dest_qp_num = qp->attr.dest_qp_num;
	sv_lock_drop(&qp->lock);
	wants_psn(qp, SV_PSN_ANY);
	rdv->qp = qp;
	rdv->delay_ms = DELAY_MIN_MS;
	rdv_address(rdv, &av);
	if (is_self(rdv, dest_qp_num)) {
		free(rdv);
		return sv_handover_self(qp);
	}
	sv_qp_get(qp);
	list_add_tail(&rdvs, &rdv->node);
	rdv_cnt++;
	qp->rdv = rdv;
	rdv_step(rdv);
	return 0;
}

int sv_rdv_begin(struct sv_qp *qp)
{
	int err;

	if (sv_cm_enter())
		return errno;
	sv_rdv_quit(qp);
	err = rdv_new(qp);
	lock_drop(&sv_cm.lock);
	return err;
}

/* Their sockets are sv_qpn.c's. */
static void ports_free(void)
{
	struct list *pos;

	while ((pos = list_pop(&ports)))
		free(list_entry(pos, struct rdv_port, node));
}

/* The sockets are closed with the conns. */
void sv_rdv_fork_child(void)
{
	struct list *pos;
	struct sv_rdv *rdv;

	while ((pos = list_pop(&rdvs))) {
		rdv = list_entry(pos, struct sv_rdv, node);
		rdv->qp->rdv = NULL;
		free(rdv);
	}
	rdv_cnt = 0;
	ports_free();
}
