/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which link a connection gets, and the one that goes on with its TCP connection
 * (sv_tcp.c). This is the one place that decides: SOFTVERBS_LINK is shm, tcp or
 * auto, which is shared memory for peers on this host that are of the same user, and
 * TCP for all others.
 *
 * Peers that are no softverbs are known by the bit that is missing in their MPA
 * frame. They have no HELLO, no ACCEPT and no READY: what would be told in these
 * is assumed, the first frame is READY, the end of the stream is DREQ and DREP.
 */
#include "sv_cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	FOREIGN_RETRY = 7,
	FOREIGN_RD = 16,	/* reads, of who does not negotiate them */
	FOREIGN_PD_MAX = 251,	/* of the kernel's siw */
};

/* ---- what the environment wants ---- */

uint8_t sv_cm_links_offered(void)
{
	const char *value = sv_env("SOFTVERBS_LINK");

	if (value && !strcmp(value, "shm"))
		return SV_LINKS_SHM;
	if (value && !strcmp(value, "tcp"))
		return SV_LINKS_TCP;
	return SV_LINKS_SHM | SV_LINKS_TCP;
}

enum crc_policy {
	CRC_AUTO,	/* if the peer asks for it */
	CRC_ON,
	CRC_OFF,	/* and who asks for it is refused */
};

static enum crc_policy crc_policy(void)
{
	const char *value = sv_env("SOFTVERBS_CRC");

	if (value && !strcmp(value, "on"))
		return CRC_ON;
	if (value && !strcmp(value, "off"))
		return CRC_OFF;
	return CRC_AUTO;
}

static void check(const char *name, const char *a, const char *b)
{
	const char *value = sv_env(name);

	if (value && strcmp(value, "auto") && strcmp(value, a) &&
	    strcmp(value, b))
		sv_err("%s=%s: not auto, %s or %s; auto is taken", name, value,
		       a, b);
}

static void check_flag(const char *name)
{
	const char *value = sv_env(name);

	if (value && strcmp(value, "0") && strcmp(value, "1"))
		sv_err("%s=%s: not 0 or 1; 1 is taken", name, value);
}

void sv_cm_check_env(void)
{
	check("SOFTVERBS_LINK", "shm", "tcp");
	check("SOFTVERBS_CRC", "on", "off");
	check_flag("SOFTVERBS_CMA");
	check_flag("SOFTVERBS_LOG");
}

bool sv_cm_crc(void)
{
	return crc_policy() == CRC_ON;
}

uint8_t sv_cm_links_pick(const struct sv_ctrl *hello)
{
	uint8_t links = sv_cm_links_offered() & hello->links;

	if (links & SV_LINKS_SHM && sv_handover_possible(hello))
		return SV_LINKS_SHM;
	if (links & SV_LINKS_TCP)
		return SV_LINKS_TCP;
	if (links)
		sv_log("cm: peer is not on this host or not of this user, and SOFTVERBS_LINK=shm");
	else
		sv_log("cm: we allow links %u of 1 (shm) and 2 (tcp), the peer %u",
		       sv_cm_links_offered(), hello->links);
	return 0;
}

/* ---- peers that are no softverbs ---- */

bool sv_cm_foreign(struct sv_conn *conn)
{
	const struct sv_mpa *mpa = &conn->mpa;

	if (mpa->markers) {
		sv_log("cm: peer wants MPA markers, which we do not have");
		return false;
	}
	if (mpa->crc && crc_policy() == CRC_OFF) {
		sv_log("cm: peer wants checksums, and SOFTVERBS_CRC=off");
		return false;
	}
	if (!(sv_cm_links_offered() & SV_LINKS_TCP)) {
		sv_log("cm: peer is no softverbs, and SOFTVERBS_LINK=shm");
		return false;
	}
	conn->foreign = true;
	conn->use_tcp = true;
	conn->hello.conn.retry_cnt = FOREIGN_RETRY;
	conn->hello.conn.rnr_retry_cnt = FOREIGN_RETRY;
	if (!mpa->enhanced || mpa->ird == SV_MPA_RD_NONE)
		conn->mpa.ird = FOREIGN_RD;
	if (!mpa->enhanced || mpa->ord == SV_MPA_RD_NONE)
		conn->mpa.ord = FOREIGN_RD;
	return true;
}

/* Of what it can do to begin, one thing is chosen; it then does that first. */
void sv_cm_foreign_reply(struct sv_conn *conn)
{
	const struct sv_mpa *mpa = &conn->mpa;
	struct sv_mpa *own = &conn->own;

	own->ext = false;
	own->rev = mpa->rev;
	own->enhanced = mpa->enhanced;
	own->crc |= mpa->crc;
	own->p2p = mpa->p2p;
	own->rtr_fpdu = false;
	own->rtr_read = mpa->p2p && !mpa->rtr_write && mpa->rtr_read;
	own->rtr_write = mpa->p2p && !own->rtr_read;
	if (own->pd_len > FOREIGN_PD_MAX)
		own->pd_len = FOREIGN_PD_MAX;
}

/* ---- the stream goes on as a link ---- */

static const struct {
	enum sv_tcp_cm_event event;
	enum sv_ctrl_type type;
} messages[] = {
	{ SV_TCP_CM_READY, SV_CTRL_READY },
	{ SV_TCP_CM_DREQ, SV_CTRL_DREQ },
	{ SV_TCP_CM_DREP, SV_CTRL_DREP },
};

static void stream_events(struct sv_conn *conn, uint32_t events)
{
	struct sv_ctrl ctrl = { 0 };
	size_t i;

	if (events & SV_TCP_CM_FIRST && conn->foreign && conn->passive &&
	    conn->phase == SV_CONN_READY)
		events |= SV_TCP_CM_READY;
	for (i = 0; i < ARRAY_SIZE(messages) && !conn->dead; i++) {
		if (!(events & messages[i].event))
			continue;
		ctrl.type = messages[i].type;
		sv_conn_ctrl(conn, &ctrl);
	}
	if (events & SV_TCP_CM_EOF && !conn->dead)
		sv_conn_lost(conn, 0);
}

/* Called by the engine. */
static void on_stream(struct sv_link *link)
{
	struct sv_conn *conn;

	lock_take(&sv_cm.lock);
	conn = *sv_tcp_cm(link);
	if (conn)
		stream_events(conn, sv_tcp_cm_take(link));
	lock_drop(&sv_cm.lock);
}

void sv_cm_tcp_send(struct sv_conn *conn, enum sv_ctrl_type type)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(messages); i++)
		if (messages[i].type == type)
			sv_tcp_cm_send(conn->stream, messages[i].event);
}

void sv_cm_tcp_release(struct sv_conn *conn)
{
	struct sv_link *link = conn->stream;

	conn->stream = NULL;
	*sv_tcp_cm(link) = NULL;
	sv_tcp_cm_release(link);
}

/* 0 or a positive errno. What it has made by then, sv_conn_close() undoes. */
static int stream_link(struct sv_conn *conn)
{
	struct sv_tcp_setup setup = {
		.ext = !conn->foreign,
		.crc = conn->mpa.crc || conn->own.crc,
		.rtr = conn->foreign && !conn->passive && conn->mpa.p2p,
		.hold = conn->foreign && conn->passive,
		.peer_qpn = conn->hello.conn.qp_num,
		.tx_ctrl_msn = conn->tx_msn,
		.rx_ctrl_msn = conn->rx_msn,
		.rx = conn->rx,
		.rx_len = conn->rx_len,
		.tx = conn->tx,
		.tx_len = conn->tx_len,
		.cm_fn = on_stream,
		.cm = conn,
	};
	int err;

	conn->qp = sv_qp_find(conn->own_conn.qp_num);
	if (!conn->qp)
		return EINVAL;
	if (!conn->rdv)
		sv_rdv_quit(conn->qp);
	sv_engine_unwatch_nowait(conn->sock);
	err = sv_tcp_create(conn->qp, conn->sock, &setup, &conn->link);
	if (err) {
		conn->link = NULL;
		return err;
	}
	conn->sock = -1;
	conn->rx_len = 0;
	conn->tx_len = 0;
	conn->stream = conn->link;
	err = sv_qp_attach_link(conn->qp, conn->link);
	if (err)
		return err;
	sv_log("qp %06x: over TCP, peer is %s, checksums %s",
	       conn->own_conn.qp_num,
	       conn->foreign ? "no softverbs" : "softverbs",
	       setup.crc ? "on" : "off");
	conn->link = NULL;	/* the QP's now */
	sv_qp_put(conn->qp);
	conn->qp = NULL;
	return 0;
}

bool sv_cm_tcp_go(struct sv_conn *conn)
{
	int err;

	if (!conn->use_tcp || conn->phase != SV_CONN_HANDOVER || conn->stream)
		return false;
	err = stream_link(conn);
	if (err) {
		sv_log("cm: no link over TCP: %s", strerror(err));
		sv_note_fds(err);
		sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -err);
	} else if (conn->passive) {
		sv_passive_linked(conn);
	} else {
		sv_active_linked(conn);
	}
	return true;
}
