/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One TCP connection of the connection manager: buffers, dispatch of what
 * arrives by phase, and the ways it ends. What each side does with a message is
 * in sv_cm_active.c and sv_cm_passive.c. After the hand-over only READY, DREQ
 * and DREP travel here; the data goes through the link. If the link goes on with
 * the connection itself, they go through it too (sv_cm_tcp.c).
 */
#include "sv_cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	READS_PER_EVENT = 8,
};

static void conn_free(struct sv_defer *defer)
{
	free(container_of(defer, struct sv_conn, defer));
}

struct sv_conn *sv_conn_new(int sock, enum sv_conn_phase phase)
{
	struct sv_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->sock = sock;
	conn->phase = phase;
	conn->passive = phase == SV_CONN_REQUEST;
	conn->unix_sock = -1;
	conn->since_ns = sv_now_ns();
	sv_random(conn->token, sizeof(conn->token));
	list_add_tail(&sv_cm.conns, &conn->node);
	return conn;
}

/* What both sides' frames have in common. */
void sv_conn_own_frame(struct sv_conn *conn, uint8_t ird, uint8_t ord)
{
	conn->own = (struct sv_mpa){
		.rev = 2,
		.reply = conn->passive,
		.enhanced = true,
		.ext = true,
		.crc = sv_cm_crc(),
		.p2p = true,
		.rtr_write = true,
		.rtr_read = true,
		.ird = ird,
		.ord = ord,
	};
}

/* Takes the conn from its id, so that nothing that follows raises an event. */
static void conn_detach(struct sv_conn *conn)
{
	if (conn->rdv)
		sv_rdv_closed(conn);
	if (conn->id)
		conn->id->conn = NULL;
	conn->id = NULL;
}

void sv_conn_close(struct sv_conn *conn)
{
	if (conn->dead)
		return;
	conn->dead = true;
	if (conn->listener)
		sv_cm.half_open--;
	conn->listener = NULL;
	conn_detach(conn);
	sv_timer_cancel(&conn->timer);
	sv_timer_cancel(&conn->retry);
	sv_handover_cancel(conn);
	if (conn->sock >= 0) {
		sv_engine_unwatch_nowait(conn->sock);
		close(conn->sock);
		conn->sock = -1;
	}
	if (conn->stream)
		sv_cm_tcp_release(conn);
	list_del(&conn->node);
	sv_engine_defer(&conn->defer, conn_free);
}

void sv_conn_fail(struct sv_conn *conn, enum rdma_cm_event_type type,
		  int status)
{
	struct sv_id *id = conn->id;

	sv_note_fds(-status);
	sv_conn_close(conn);
	if (!id)
		return;
	sv_id_qp_down(id);
	id->state = SV_ID_FAILED;
	sv_event_push(id, type, status);
}

static void on_timewait(void *arg)
{
	struct sv_id *id = arg;

	lock_take(&sv_cm.lock);
	if (!id->dead && sv_timer_expired(&id->timewait)) {
		sv_timer_cancel(&id->timewait);
		sv_event_push(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
	}
	lock_drop(&sv_cm.lock);
}

/* The one place that says so: once per connection. */
void sv_id_disconnected(struct sv_id *id, int status)
{
	if (id->state != SV_ID_CONNECTED && id->state != SV_ID_DISCONNECTING)
		return;
	id->state = SV_ID_DISCONNECTED;
	sv_id_qp_down(id);
	sv_event_push(id, RDMA_CM_EVENT_DISCONNECTED, status);
	if (sv_id_dev(id)->persona->has_timewait)
		sv_timer_set(&id->timewait, SV_CM_TIMEWAIT_MS, on_timewait, id);
}

/*
 * The TCP connection ended or broke the protocol. Before it was up that means
 * something else for each side; afterwards, that the peer is gone. Whether its
 * QP is, the link notices by itself.
 */
void sv_conn_lost(struct sv_conn *conn, int err)
{
	struct sv_id *id = conn->id;

	if (conn->phase == SV_CONN_UP && id &&
	    id->state != SV_ID_RESPONDED) {
		sv_conn_close(conn);
		sv_id_disconnected(id, 0);
	} else if (conn->passive) {
		sv_passive_lost(conn, err);
	} else {
		sv_active_lost(conn, err);
	}
}

static void conn_flush(struct sv_conn *conn)
{
	ssize_t ret;

	while (conn->tx_len) {
		ret = send(conn->sock, conn->tx, conn->tx_len,
			   MSG_DONTWAIT | MSG_NOSIGNAL);
		if (ret < 0 && errno == EINTR)
			continue;
		if (ret <= 0)
			break;
		conn->tx_len -= (size_t)ret;
		memmove(conn->tx, conn->tx + ret, conn->tx_len);
	}
}

/* Waits for room only while there is something to write. */
static void conn_rewatch(struct sv_conn *conn)
{
	uint32_t events = EPOLLIN | (conn->tx_len ? EPOLLOUT : 0);

	if (conn->phase == SV_CONN_TCP || events == conn->watched ||
	    conn->sock < 0)
		return;
	if (!sv_engine_rewatch(conn->sock, events))
		conn->watched = events;
}

static void conn_send(struct sv_conn *conn, int len)
{
	if (len < 0) {		/* our own message: it fits */
		sv_log("cm: message of ours not encoded: %d", len);
		return;
	}
	conn->tx_len += (size_t)len;
	conn_flush(conn);
	conn_rewatch(conn);
}

void sv_conn_send_mpa(struct sv_conn *conn, const struct sv_mpa *mpa)
{
	conn_send(conn, sv_mpa_encode(mpa, conn->tx + conn->tx_len,
				      sizeof(conn->tx) - conn->tx_len));
}

void sv_conn_send_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl)
{
	if (conn->stream) {
		sv_cm_tcp_send(conn, ctrl->type);
		return;
	}
	conn_send(conn, sv_ctrl_encode(ctrl, ++conn->tx_msn,
				       conn->tx + conn->tx_len,
				       sizeof(conn->tx) - conn->tx_len));
}

void sv_conn_send_plain(struct sv_conn *conn, enum sv_ctrl_type type)
{
	struct sv_ctrl ctrl = { .type = type };

	sv_conn_send_ctrl(conn, &ctrl);
}

/* The peer may well say the same at the same time; each answers the other. */
static int conn_up_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl)
{
	struct sv_id *id = conn->id;

	switch (ctrl->type) {
	case SV_CTRL_DREQ:
		sv_conn_send_plain(conn, SV_CTRL_DREP);
		sv_conn_stop_timer(conn);
		if (id->state == SV_ID_RESPONDED) {
			sv_conn_fail(conn, RDMA_CM_EVENT_REJECTED,
				     SV_CM_REJ_CONSUMER);
			return 0;
		}
		sv_id_disconnected(id, 0);
		return 0;
	case SV_CTRL_DREP:
		if (!conn->dreq_sent)
			return -EPROTO;
		sv_conn_close(conn);
		sv_id_disconnected(id, 0);
		return 0;
	default:
		return -EPROTO;
	}
}

static int conn_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl)
{
	if (conn->phase == SV_CONN_UP)
		return conn_up_ctrl(conn, ctrl);
	return conn->passive ? sv_passive_ctrl(conn, ctrl) :
		sv_active_ctrl(conn, ctrl);
}

/* One that came through the link. */
void sv_conn_ctrl(struct sv_conn *conn, const struct sv_ctrl *ctrl)
{
	int ret = -EPROTO;

	if (conn->phase == SV_CONN_READY || conn->phase == SV_CONN_UP)
		ret = conn_ctrl(conn, ctrl);
	if (ret < 0 && !conn->dead) {
		sv_log("cm: message %d in phase %d", ctrl->type, conn->phase);
		sv_conn_lost(conn, EPROTO);
	}
}

static int consume_ctrl(struct sv_conn *conn)
{
	struct sv_ctrl ctrl;
	int used;
	int ret;

	used = sv_ctrl_decode(&ctrl, conn->rx_msn + 1, conn->rx, conn->rx_len);
	if (used <= 0)
		return used;
	conn->rx_msn++;
	ret = conn_ctrl(conn, &ctrl);
	return ret ? ret : used;
}

static int consume_mpa(struct sv_conn *conn)
{
	int used;
	int ret;

	used = sv_mpa_decode(&conn->mpa, !conn->passive, conn->rx,
			     conn->rx_len);
	if (used <= 0)
		return used;
	ret = conn->passive ? sv_passive_request(conn) :
		sv_active_reply(conn);
	return ret ? ret : used;
}

/* Returns how many bytes were used, 0 for more needed, or a negative errno.
 * An MPA frame begins with a letter, a control message with a zero byte. */
static int conn_consume(struct sv_conn *conn)
{
	switch (conn->phase) {
	case SV_CONN_REQUEST:
		return consume_mpa(conn);
	case SV_CONN_REPLY:
		return conn->rx[0] ? consume_mpa(conn) : consume_ctrl(conn);
	case SV_CONN_HELLO:
	case SV_CONN_ACCEPT:
	case SV_CONN_READY:
	case SV_CONN_UP:
		return consume_ctrl(conn);
	default:
		return -EPROTO;	/* the peer has nothing to say now */
	}
}

/* Handles all that is complete in the buffer; false if the conn ended. */
static bool conn_dispatch(struct sv_conn *conn)
{
	int used;

	while (conn->rx_len) {
		used = conn_consume(conn);
		if (conn->dead)
			return false;
		if (used < 0) {
			sv_log("cm: peer broke the protocol in phase %d: %s",
			       conn->phase, strerror(-used));
			sv_conn_lost(conn, -used);
			return false;
		}
		if (!used)
			break;
		conn->rx_len -= (size_t)used;
		memmove(conn->rx, conn->rx + used, conn->rx_len);
		if (sv_cm_tcp_go(conn))
			return false;
	}
	if (conn->rx_len < sizeof(conn->rx))
		return true;
	sv_conn_lost(conn, EPROTO);
	return false;
}

static void conn_read(struct sv_conn *conn)
{
	ssize_t ret;
	int i;

	for (i = 0; i < READS_PER_EVENT; i++) {
		ret = recv(conn->sock, conn->rx + conn->rx_len,
			   sizeof(conn->rx) - conn->rx_len, MSG_DONTWAIT);
		if (ret < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (ret <= 0) {
			sv_conn_lost(conn, ret ? errno : 0);
			return;
		}
		conn->rx_len += (size_t)ret;
		if (!conn_dispatch(conn))
			return;
	}
}

static void on_conn(void *arg, uint32_t events)
{
	struct sv_conn *conn = arg;

	lock_take(&sv_cm.lock);
	if (conn->dead || conn->sock < 0) {
		lock_drop(&sv_cm.lock);
		return;
	}
	if (conn->phase == SV_CONN_TCP) {
		sv_active_connected(conn);
	} else {
		if (events & EPOLLOUT)
			conn_flush(conn);
		if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			conn_read(conn);
		if (!conn->dead)
			conn_rewatch(conn);
	}
	lock_drop(&sv_cm.lock);
}

int sv_conn_watch(struct sv_conn *conn, uint32_t events)
{
	conn->watched = events;
	return sv_engine_watch(conn->sock, events, on_conn, conn);
}

static void on_timer(void *arg)
{
	struct sv_conn *conn = arg;
	struct sv_id *id;

	lock_take(&sv_cm.lock);
	if (conn->dead || !sv_timer_expired(&conn->timer))
		goto out;
	sv_timer_cancel(&conn->timer);
	id = conn->id;
	if (conn->phase == SV_CONN_UP && id) {
		/* Only the answer to our DREQ is waited for then. */
		sv_conn_close(conn);
		sv_id_disconnected(id, -ETIMEDOUT);
	} else if (conn->passive) {
		sv_passive_timeout(conn);
	} else {
		sv_active_timeout(conn);
	}
out:
	lock_drop(&sv_cm.lock);
}

void sv_conn_set_timer(struct sv_conn *conn, unsigned int timeout_ms)
{
	sv_timer_set(&conn->timer, timeout_ms, on_timer, conn);
}

void sv_conn_stop_timer(struct sv_conn *conn)
{
	sv_timer_cancel(&conn->timer);
}

void sv_conn_disconnect(struct sv_conn *conn)
{
	conn->dreq_sent = true;
	sv_conn_send_plain(conn, SV_CTRL_DREQ);
	sv_conn_set_timer(conn, SV_CM_DREQ_MS);
}

/* The id is being destroyed: say what the peer's CM would be told. */
void sv_conn_goodbye(struct sv_conn *conn)
{
	enum sv_id_state state = conn->id->state;

	conn_detach(conn);
	/* Once closed, a conn is the engine's to free, at any moment. */
	if (state == SV_ID_REQUESTED) {
		sv_passive_reject(conn, NULL, 0);
		return;
	}
	if (state == SV_ID_CONNECTED || state == SV_ID_RESPONDED)
		sv_conn_send_plain(conn, SV_CTRL_DREQ);
	sv_conn_close(conn);
}
