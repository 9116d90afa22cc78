/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The batch of a TCP link: frames are put together, headers, small payloads and
 * tails in a slab, larger payloads where they lie, and handed to the kernel in
 * one call. What it does not take stays, and nothing is added until it has: so
 * a batch is always the beginning of what follows. All under qp->lock.
 */
#include "sv_tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	SV_TCP_TX_ROUNDS = 32, /* batches in one call */
	SV_TCP_RESP_ROW = 4, /* answers before the next of our messages */
	SV_FRAME_SLAB = SV_FPDU_HDR_MAX + SV_TCP_COPY_MAX + SV_FPDU_TAIL_MAX,
};

static_assert((int)SV_TCP_COPY_MAX >= (int)SV_MAX_INLINE,
	      "inline data goes beside its header");
static_assert((int)SV_TCP_COPY_MAX >= (int)SV_CTRL_PAYLOAD_MAX,
	      "and so do control messages");

bool sv_tcp_room(const struct sv_tcp *tcp)
{
	return tcp->iov_cnt + SV_MAX_SGE + 2 <= SV_TCP_IOVS &&
	       tcp->slab_used + SV_FRAME_SLAB <= SV_TCP_SLAB &&
	       tcp->batch_len < SV_TCP_BATCH;
}

/* ---- putting frames together ---- */

/* len bytes at the end of the slab join the batch. */
static void add_slab(struct sv_tcp *tcp, uint32_t len)
{
	uint8_t *at = tcp->slab + tcp->slab_used;
	struct iovec *last;

	tcp->slab_used += len;
	if (tcp->iov_cnt > tcp->iov_first) {
		last = &tcp->iov[tcp->iov_cnt - 1];
		if ((uint8_t *)last->iov_base + last->iov_len == at &&
		    !tcp->ref[tcp->iov_cnt - 1].key) {
			last->iov_len += len;
			return;
		}
	}
	tcp->iov[tcp->iov_cnt] = (struct iovec){ at, len };
	tcp->ref[tcp->iov_cnt].key = 0;
	tcp->iov_cnt++;
}

static void add_mem(struct sv_tcp *tcp, const struct sv_tcp_ref *ref,
		    const void *mem, uint32_t len)
{
	tcp->iov[tcp->iov_cnt] = (struct iovec){ (void *)mem, len };
	tcp->ref[tcp->iov_cnt] = *ref;
	tcp->iov_cnt++;
}

static uint32_t crc_add(const struct sv_tcp *tcp, uint32_t crc, const void *p,
			size_t len)
{
	return unlikely(tcp->crc) ? sv_crc32c(crc, p, len) : 0;
}

/* A frame whose payload has been copied behind its header. */
static void frame_end(struct sv_tcp *tcp, const struct sv_ddp *ddp, size_t hdr)
{
	uint8_t *p = tcp->slab + tcp->slab_used;
	size_t len = hdr + ddp->payload_len;
	uint32_t crc = crc_add(tcp, 0, p, len);

	len += sv_fpdu_put_tail(p + len, sv_ddp_ulpdu_len(ddp), tcp->crc, crc);
	add_slab(tcp, len);
	tcp->batch_len += ddp->payload_len;
}

void sv_tcp_put(struct sv_tcp *tcp, const struct sv_ddp *ddp, const void *data)
{
	uint8_t *p = tcp->slab + tcp->slab_used;
	size_t hdr = sv_ddp_encode(p, ddp);

	if (ddp->payload_len)
		memcpy(p + hdr, data, ddp->payload_len);
	frame_end(tcp, ddp, hdr);
}

static void tail_put(struct sv_tcp *tcp, const struct sv_ddp *ddp, uint32_t crc)
{
	add_slab(tcp, sv_fpdu_put_tail(tcp->slab + tcp->slab_used,
				       sv_ddp_ulpdu_len(ddp), tcp->crc, crc));
	tcp->batch_len += ddp->payload_len;
}

void sv_tcp_put_mem(struct sv_tcp *tcp, const struct sv_ddp *ddp,
		    const struct sv_tcp_ref *ref, const void *mem)
{
	uint8_t *p = tcp->slab + tcp->slab_used;
	uint32_t crc;
	size_t hdr;

	if (ddp->payload_len <= SV_TCP_COPY_MAX) {
		sv_tcp_put(tcp, ddp, mem);
		return;
	}
	hdr = sv_ddp_encode(p, ddp);
	crc = crc_add(tcp, 0, p, hdr);
	add_slab(tcp, hdr);
	add_mem(tcp, ref, mem, ddp->payload_len);
	tail_put(tcp, ddp, crc_add(tcp, crc, mem, ddp->payload_len));
}

/* Where len bytes of the WR from offset on are. Returns how many pieces. */
static int swr_pieces(const struct sv_swr *swr, uint32_t offset, uint32_t len,
		      struct iovec *iov, struct sv_tcp_ref *ref)
{
	const struct ibv_sge *sge = swr->sge;
	int cnt = 0;
	size_t n;

	for (; len; sge++) {
		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		n = min_size(sge->length - offset, len);
		ref[cnt] = (struct sv_tcp_ref){ sge->lkey, SV_ACCESS_LOCAL };
		iov[cnt].iov_base = (void *)(uintptr_t)(sge->addr + offset);
		iov[cnt].iov_len = n;
		cnt++;
		len -= n;
		offset = 0;
	}
	return cnt;
}

bool sv_tcp_put_swr(struct sv_tcp *tcp, const struct sv_ddp *ddp,
		    struct sv_swr *swr, uint32_t offset)
{
	uint8_t *p = tcp->slab + tcp->slab_used;
	struct sv_tcp_ref ref[SV_MAX_SGE];
	struct iovec iov[SV_MAX_SGE];
	size_t hdr;
	uint32_t crc;
	int cnt, i;

	if (unlikely(!sv_swr_readable(tcp->link.qp, swr)))
		return false;
	if (ddp->payload_len <= SV_TCP_COPY_MAX) {
		hdr = sv_ddp_encode(p, ddp);
		sv_swr_gather(swr, offset, p + hdr, ddp->payload_len);
		frame_end(tcp, ddp, hdr);
		return true;
	}
	cnt = swr_pieces(swr, offset, ddp->payload_len, iov, ref);
	hdr = sv_ddp_encode(p, ddp);
	crc = crc_add(tcp, 0, p, hdr);
	add_slab(tcp, hdr);
	for (i = 0; i < cnt; i++) {
		add_mem(tcp, &ref[i], iov[i].iov_base, iov[i].iov_len);
		crc = crc_add(tcp, crc, iov[i].iov_base, iov[i].iov_len);
	}
	tail_put(tcp, ddp, crc);
	return true;
}

/* ---- handing them to the kernel ---- */

static void batch_reset(struct sv_tcp *tcp)
{
	tcp->iov_first = 0;
	tcp->iov_cnt = 0;
	tcp->grown |= tcp->slab_used > SV_TCP_KEEP;
	tcp->slab_used = 0;
	tcp->batch_len = 0;
	free(tcp->tail);
	tcp->tail = NULL;
	/* Whoever does not acknowledge: it is out of our hands. */
	if (!tcp->ext)
		tcp->tx_acked = tcp->tx_msgs;
}

static bool ref_granted(const struct sv_tcp *tcp, uint32_t i)
{
	return !tcp->ref[i].key ||
	       sv_link_grants_va(&tcp->link, tcp->ref[i].access,
				 tcp->ref[i].key, tcp->iov[i].iov_base,
				 tcp->iov[i].iov_len);
}

/*
 * While it waited, the memory may have gone to somebody else. If it is just about
 * to, it is ours until sv_tcp_withdraw(): that it once was granted is enough.
 */
static bool refs_ok(const struct sv_tcp *tcp)
{
	uint32_t i;

	for (i = tcp->iov_first; i < tcp->iov_cnt; i++)
		if (!ref_granted(tcp, i) && !sv_mr_leaving(tcp->ref[i].key))
			return false;
	return true;
}

static void batch_advance(struct sv_tcp *tcp, size_t len)
{
	struct iovec *iov;
	size_t n;

	while (len) {
		iov = &tcp->iov[tcp->iov_first];
		n = min_size(len, iov->iov_len);
		iov->iov_base = (char *)iov->iov_base + n;
		iov->iov_len -= n;
		len -= n;
		if (!iov->iov_len)
			tcp->iov_first++;
	}
}

/* The stream cannot be continued. What came in is still taken first. */
static void tx_broken(struct sv_tcp *tcp, int err)
{
	if (!tcp->err)
		tcp->err = err;
	tcp->fin_sent = true;
	batch_reset(tcp);
	tcp->blocked = false;
}

/* What has begun cannot be ended: its memory is gone, or there is none to copy it. */
static __cold void cut_off(struct sv_tcp *tcp, int err)
{
	sv_log("qp %06x: memory went away while it was being sent: %s",
	       tcp->link.qp->qp.qp_num, strerror(err));
	shutdown(tcp->sock, SHUT_RDWR);
	tx_broken(tcp, err);
}

/* True if all of it is out. */
static bool batch_send(struct sv_tcp *tcp)
{
	struct msghdr msg = { 0 };
	size_t left = 0;
	ssize_t ret;
	uint32_t i;

	if (unlikely(tcp->fin_sent)) {
		batch_reset(tcp);
		return false;
	}
	if (unlikely(tcp->blocked) && !refs_ok(tcp)) {
		cut_off(tcp, EFAULT);
		return false;
	}
	msg.msg_iov = &tcp->iov[tcp->iov_first];
	msg.msg_iovlen = tcp->iov_cnt - tcp->iov_first;
	for (i = tcp->iov_first; i < tcp->iov_cnt; i++)
		left += tcp->iov[i].iov_len;
	do {
		ret = sendmsg(tcp->sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (ret < 0 && errno == EINTR);
	if (likely(ret == (ssize_t)left)) {
		batch_reset(tcp);
		tcp->blocked = false;
		return true;
	}
	if (ret >= 0) {
		batch_advance(tcp, ret);
		tcp->blocked = true;
	} else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
		tcp->blocked = true;
	} else {
		tx_broken(tcp, errno);
	}
	return false;
}

/*
 * Messages are not mixed: what has begun goes on. Between them the peer's
 * questions come first, a few at a time.
 */
static void batch_fill(struct sv_tcp *tcp, bool ack)
{
	int row = 0;

	sv_tcp_ctl_fill(tcp, ack);
	if (tcp->hold)
		return;
	while (sv_tcp_room(tcp)) {
		if (!tcp->tx_mid &&
		    (tcp->resp_mid || row < SV_TCP_RESP_ROW) &&
		    sv_tcp_resp_one(tcp)) {
			row++;
			continue;
		}
		if (!tcp->resp_mid && !sv_tcp_sq_one(tcp) &&
		    (!row || tcp->tx_mid))
			break;
		row = 0;
	}
	/* What has come up while filling. */
	if (unlikely(tcp->ctl & ~(uint32_t)SV_TCP_CTL_ACK) && sv_tcp_room(tcp))
		sv_tcp_ctl_fill(tcp, ack);
}

static void fin_check(struct sv_tcp *tcp)
{
	if (tcp->ctl != SV_TCP_CTL_FIN || tcp->fin_sent)
		return;
	tcp->fin_sent = true;
	shutdown(tcp->sock, SHUT_WR);
}

void sv_tcp_push(struct sv_tcp *tcp, bool ack)
{
	int rounds = SV_TCP_TX_ROUNDS;

	/* From inside: what is new, is seen by who is at it. */
	if (tcp->pushing)
		return;
	tcp->pushing = true;
	while (rounds--) {
		if (sv_tcp_batch_empty(tcp))
			batch_fill(tcp, ack);
		if (sv_tcp_batch_empty(tcp)) {
			/* The last of what was asked may now be answered. */
			if (unlikely(tcp->refusing && !tcp->ask_cnt)) {
				sv_tcp_refuse_now(tcp);
				continue;
			}
			fin_check(tcp);
			break;
		}
		if (!batch_send(tcp))
			break;
		if (unlikely(!tcp->ext) && sv_tcp_attached(tcp))
			sv_tcp_acks(tcp);
	}
	tcp->pushing = false;
	if (rounds < 0)
		atomic_store_explicit(&tcp->link.attention, true,
				      memory_order_relaxed);
}

/* ---- when memory is taken back ---- */

/*
 * Copies what is left of the batch, len bytes. False if the memory is not there:
 * who unmaps it before it is deregistered shall not die of it here.
 */
static bool batch_copy(const struct sv_tcp *tcp, void *to, size_t len)
{
	struct iovec here = { .iov_base = to, .iov_len = len };
	const struct iovec *iov = &tcp->iov[tcp->iov_first];
	const uint32_t cnt = tcp->iov_cnt - tcp->iov_first;
	ssize_t ret = process_vm_readv(getpid(), &here, 1, iov, cnt, 0);
	uint32_t i;

	if (ret >= 0 || errno == EFAULT)
		return ret == (ssize_t)len;
	/* Where that is forbidden there is no such mercy. */
	for (i = 0; i < cnt; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to = (char *)to + iov[i].iov_len;
	}
	return true;
}

/*
 * The application gets its memory back, but a frame that has begun must end if
 * anything is to follow it. Caller has not yet flushed the QP.
 */
void sv_tcp_freeze(struct sv_tcp *tcp)
{
	bool refs = false;
	size_t len = 0;
	void *to;
	uint32_t i;

	for (i = tcp->iov_first; i < tcp->iov_cnt; i++) {
		refs |= tcp->ref[i].key != 0;
		len += tcp->iov[i].iov_len;
	}
	if (!refs)
		return;
	to = malloc(len);
	if (!to || !refs_ok(tcp) || !batch_copy(tcp, to, len)) {
		cut_off(tcp, to ? EFAULT : ENOMEM);
		free(to);
		return;
	}
	/* One that was frozen before is in the copy. */
	free(tcp->tail);
	tcp->tail = to;
	tcp->iov_first = 0;
	tcp->iov_cnt = 1;
	tcp->iov[0] = (struct iovec){ to, len };
	tcp->ref[0].key = 0;
}

/*
 * Frames that have been put together are sent as they are, a frame that has begun
 * at that: so the peer is answered as before until its next piece is refused, and
 * the stream goes on to where it is told why.
 */
void sv_tcp_withdraw(struct sv_tcp *tcp)
{
	uint32_t i;

	for (i = tcp->iov_first; i < tcp->iov_cnt; i++)
		if (!ref_granted(tcp, i)) {
			sv_tcp_freeze(tcp);
			return;
		}
}
