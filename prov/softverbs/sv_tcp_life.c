/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a TCP link: how it is made, its two owners, its end.
 */
#include "sv_tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	SV_TCP_LINGER_MS = 2000, /* for the peer's end of the stream */
	SV_TCP_IDLE_S = 10, /* until a silent peer is asked for a sign */
	SV_TCP_PROBE_S = 5,
	SV_TCP_PROBES = 3,
	SV_TCP_LEFT_MS = 10000, /* for what is left to say, without a QP */
	SV_TCP_RTR_MS = 10, /* before the first frame to others */
	SV_TCP_MEM = SV_TCP_RX_SIZE + SV_TCP_SLAB,
};

/* ---- its end ---- */

static void tcp_free(struct sv_defer *defer)
{
	struct sv_tcp *tcp = container_of(defer, struct sv_tcp, defer);

	munmap(tcp->rx_buf, SV_TCP_MEM);
	free(tcp->asks);
	free(tcp->tail);
	sv_qp_put(tcp->link.qp);
	free(tcp);
}

/* Caller holds qp->lock. True: call sv_tcp_gone() without it. */
bool sv_tcp_may_go(struct sv_tcp *tcp)
{
	if (!tcp->closing || tcp->freed || !tcp->eof)
		return false;
	tcp->freed = true;
	return true;
}

void sv_tcp_gone(struct sv_tcp *tcp)
{
	sv_deadline_clear(&tcp->link);
	sv_timer_cancel(&tcp->timer);
	sv_link_del(&tcp->link);
	sv_engine_unwatch_nowait(tcp->sock);
	close(tcp->sock);
	sv_engine_defer(&tcp->defer, tcp_free);
}

/* Caller holds qp->lock; an owner has let go. */
static bool owner_left(struct sv_tcp *tcp)
{
	int unsent;

	if (tcp->qp_side || tcp->cm_side || tcp->closing)
		return false;
	tcp->closing = true;
	sv_tcp_push(tcp, true);
	/* With a peer that knows it is over, once it has all our bytes. */
	if (tcp->ext && sv_tcp_batch_empty(tcp) &&
	    !ioctl(tcp->sock, SIOCOUTQ, &unsent) && !unsent)
		tcp->eof = true;
	tcp->ctl |= SV_TCP_CTL_FIN;
	sv_tcp_push(tcp, true);
	sv_tcp_arm(tcp);
	sv_timer_set(&tcp->timer, SV_TCP_LINGER_MS, sv_tcp_on_timer, tcp);
	return sv_tcp_may_go(tcp);
}

void sv_tcp_shrink(struct sv_tcp *tcp)
{
	if (!tcp->grown || tcp->rx_len || !sv_tcp_batch_empty(tcp))
		return;
	tcp->grown = false;
	madvise(tcp->rx_buf + SV_TCP_KEEP, SV_TCP_RX_SIZE - SV_TCP_KEEP,
		MADV_DONTNEED);
	madvise(tcp->slab + SV_TCP_KEEP, SV_TCP_SLAB - SV_TCP_KEEP,
		MADV_DONTNEED);
}

/* ---- making ---- */

/* A peer that has nothing to say is asked now and then, kernel by kernel; who
 * owes something is sv_tcp_alive.c's. */
static void set_keepalive(int sock)
{
	static const struct {
		int level;
		int option;
		int value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, SV_TCP_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, SV_TCP_PROBE_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, SV_TCP_PROBES },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(options); i++)
		setsockopt(sock, options[i].level, options[i].option,
			   &options[i].value, sizeof(options[i].value));
}

/* Adapters want a frame to be within one segment of TCP. */
static uint32_t seg_max(int sock, bool ext)
{
	socklen_t len = sizeof(int);
	int mss = 0;

	if (ext)
		return SV_TCP_SEG;
	if (getsockopt(sock, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) || mss <= 0)
		mss = 536;
	return sv_mulpdu_payload(sv_mulpdu(mss));
}

static void tcp_init(struct sv_tcp *tcp, struct sv_qp *qp, int sock,
		     const struct sv_tcp_setup *setup)
{
	memset(tcp, 0, sizeof(*tcp));
	tcp->link.ops = &sv_tcp_ops;
	tcp->link.qp = qp;
	tcp->link.peer_qpn = setup->peer_qpn;
	if (!setup->ext)
		tcp->link.ops_refused = 1u << IBV_WR_RDMA_WRITE_WITH_IMM |
					1u << IBV_WR_SEND_WITH_IMM |
					1u << IBV_WR_ATOMIC_CMP_AND_SWP |
					1u << IBV_WR_ATOMIC_FETCH_AND_ADD;
	list_init(&tcp->link.node);
	list_init(&tcp->link.deadline_node);
	tcp->sock = sock;
	tcp->ext = setup->ext;
	tcp->crc = setup->crc;
	tcp->seg_max = seg_max(sock, setup->ext);
	tcp->hold = setup->hold;
	tcp->tx_ctrl_msn = setup->tx_ctrl_msn;
	tcp->ctrl_msn = setup->rx_ctrl_msn;
	tcp->cm_fn = setup->cm_fn;
	tcp->cm = setup->cm;
	tcp->qp_side = true;
	tcp->rnr_told = 7;
	tcp->peer_rnr_retry = 7;
	if (setup->rtr) {
		tcp->ctl |= SV_TCP_CTL_RTR;
		tcp->hold = true;
		tcp->rtr_due_ns = sv_now_ns() + SV_TCP_RTR_MS * 1000000ull;
	}
	atomic_init(&tcp->open, true);
}

/* What the MPA exchange has left over. */
static void tcp_inherit(struct sv_tcp *tcp, const struct sv_tcp_setup *setup)
{
	if (setup->rx_len)
		memcpy(tcp->rx_buf, setup->rx, setup->rx_len);
	tcp->rx_len = setup->rx_len;
	if (!setup->tx_len)
		return;
	memcpy(tcp->slab, setup->tx, setup->tx_len);
	tcp->slab_used = setup->tx_len;
	tcp->iov[0] = (struct iovec){ tcp->slab, setup->tx_len };
	tcp->iov_cnt = 1;
}

int sv_tcp_create(struct sv_qp *qp, int sock, const struct sv_tcp_setup *setup,
		  struct sv_link **out)
{
	struct sv_tcp *tcp;
	void *mem;
	int err;

	if (setup->rx_len > SV_TCP_RX_SIZE || setup->tx_len > SV_TCP_SLAB)
		return EMSGSIZE;
	if (posix_memalign(&mem, CACHELINE, sizeof(*tcp)))
		return ENOMEM;
	tcp = mem;
	tcp_init(tcp, qp, sock, setup);
	tcp->asks = calloc(SV_MAX_RD_ATOM, sizeof(*tcp->asks));
	if (!tcp->asks) {
		err = ENOMEM;
		goto err_free;
	}
	mem = mmap(NULL, SV_TCP_MEM, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED) {
		err = errno;
		goto err_free_asks;
	}
	tcp->rx_buf = mem;
	tcp->slab = tcp->rx_buf + SV_TCP_RX_SIZE;
	tcp_inherit(tcp, setup);
	set_keepalive(sock);
	err = sv_engine_watch(sock, EPOLLONESHOT, sv_tcp_on_socket, tcp);
	if (err)
		goto err_unmap;
	sv_qp_get(qp);
	sv_link_add(&tcp->link);
	/* From here on its end is the stream's. */
	tcp->cm_side = setup->cm_fn != NULL;
	*out = &tcp->link;
	return 0;

err_unmap:
	munmap(tcp->rx_buf, SV_TCP_MEM);
err_free_asks:
	free(tcp->asks);
err_free:
	free(tcp);
	return err;
}

/* The QP lets go; its state has told the peer why. */
void sv_tcp_close(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	const int left_ms = SV_TCP_LEFT_MS;
	bool gone;

	sv_deadline_clear(link);
	setsockopt(tcp->sock, IPPROTO_TCP, TCP_USER_TIMEOUT, &left_ms,
		   sizeof(left_ms));
	sv_lock_take(&link->qp->lock);
	tcp->qp_side = false;
	tcp->need_wake = true;
	if (!tcp->entered) {
		tcp->entered = true;
		sv_tcp_stop(tcp, SV_GONE_CLOSED);
	}
	gone = owner_left(tcp);
	sv_tcp_arm(tcp);
	sv_lock_drop(&link->qp->lock);
	if (gone)
		sv_tcp_gone(tcp);
}

/* ---- the connection manager's side ---- */

void **sv_tcp_cm(struct sv_link *link)
{
	return &sv_tcp(link)->cm;
}

uint32_t sv_tcp_cm_take(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	uint32_t events;

	sv_lock_take(&link->qp->lock);
	events = tcp->cm_events;
	tcp->cm_events = 0;
	sv_lock_drop(&link->qp->lock);
	return events;
}

void sv_tcp_cm_send(struct sv_link *link, enum sv_tcp_cm_event what)
{
	struct sv_tcp *tcp = sv_tcp(link);

	sv_lock_take(&link->qp->lock);
	if (!tcp->ext) {
		/* Anyone else is told by the end of the stream. */
		if (what == SV_TCP_CM_DREQ)
			tcp->ctl |= SV_TCP_CTL_FIN;
	} else if (what == SV_TCP_CM_READY) {
		tcp->ctl |= SV_TCP_CTL_READY;
	} else {
		tcp->ctl |= what == SV_TCP_CM_DREQ ? SV_TCP_CTL_DREQ :
						     SV_TCP_CTL_DREP;
	}
	sv_tcp_push(tcp, true);
	if (tcp->blocked)
		sv_tcp_arm(tcp);
	sv_lock_drop(&link->qp->lock);
}

void sv_tcp_cm_release(struct sv_link *link)
{
	struct sv_tcp *tcp = sv_tcp(link);
	bool gone;

	sv_lock_take(&link->qp->lock);
	tcp->cm_side = false;
	if (tcp->ext)
		tcp->ctl |= SV_TCP_CTL_BYE;
	sv_tcp_push(tcp, false);
	gone = owner_left(tcp);
	if (tcp->blocked)
		sv_tcp_arm(tcp);
	sv_lock_drop(&link->qp->lock);
	if (gone)
		sv_tcp_gone(tcp);
}
