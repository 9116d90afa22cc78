/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Signs of life on a TCP link. Bytes that come in are one. If there are none,
 * another softverbs is asked, once (PING), and answers with an ACK. Until the
 * question is there, it is one that the bytes before it are acknowledged:
 * behind it, the peer's kernel alone would do that. What waits for a receive may
 * fill the stream, so that no question gets through; then the peer says by
 * itself, each time it looks, that it is there.
 *
 * Anyone else's kernel, or adapter, is the peer: it acknowledges, or is gone.
 */
#include "sv_tcp.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* Whether the kernel at the other end acknowledges what it is sent. */
static bool kernel_answers(const struct tcp_info *info)
{
	return !info->tcpi_retransmits && !info->tcpi_probes;
}

/* Our own program posts no receive, and what is behind is not read. */
static bool deaf(const struct sv_tcp *tcp)
{
	return tcp->parked && !tcp->rx_off && tcp->rx_len == SV_TCP_RX_SIZE;
}

static void say(struct sv_tcp *tcp, uint32_t ctl)
{
	tcp->ctl |= ctl;
	tcp->link.ops->kick(&tcp->link);
}

/* Bytes that were not acknowledged when the question was handed to the kernel. */
static void asking(struct sv_tcp *tcp, const struct tcp_info *info)
{
	switch (tcp->ask_state) {
	case SV_TCP_ASK_NONE:
		tcp->ask_state = SV_TCP_ASK_PUT;
		say(tcp, SV_TCP_CTL_PING);
		break;
	case SV_TCP_ASK_PUT:
		if (tcp->ctl & SV_TCP_CTL_PING || !sv_tcp_batch_empty(tcp))
			break;
		tcp->ask_state = SV_TCP_ASK_SENT;
		tcp->ask_end = info->tcpi_bytes_sent -
			       info->tcpi_bytes_retrans +
			       info->tcpi_notsent_bytes;
		break;
	default:
		break;
	}
}

static bool peer_alive(struct sv_tcp *tcp, const struct tcp_info *info,
		       bool acked)
{
	bool moving = acked && (tcp->ask_state != SV_TCP_ASK_SENT ||
				info->tcpi_bytes_acked < tcp->ask_end);

	if (deaf(tcp))
		return true;
	asking(tcp, info);
	return moving;
}

bool sv_tcp_alive(struct sv_link *link, bool owes)
{
	struct sv_tcp *tcp = sv_tcp(link);
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);
	bool heard, acked;

	if (tcp->closing || tcp->eof || tcp->peer_gone)
		return true;
	if (tcp->parked && tcp->ext)
		say(tcp, SV_TCP_CTL_ACK | SV_TCP_CTL_PONG);
	if (getsockopt(tcp->sock, IPPROTO_TCP, TCP_INFO, &info, &len))
		return true;
	heard = info.tcpi_bytes_received != tcp->seen_in;
	acked = info.tcpi_bytes_acked != tcp->seen_acked;
	tcp->seen_in = info.tcpi_bytes_received;
	tcp->seen_acked = info.tcpi_bytes_acked;
	if (heard)
		tcp->ask_state = SV_TCP_ASK_NONE;
	if (heard || !owes || !tcp->ext)
		return heard || acked || kernel_answers(&info);
	return peer_alive(tcp, &info, acked);
}

/*
 * The connection manager waits for the end of the stream, which has something to
 * say to the peer now: the kernel would go on saying it for a quarter of an hour.
 */
void sv_tcp_give_up(struct sv_link *link)
{
	const int now_ms = 1;

	setsockopt(sv_tcp(link)->sock, IPPROTO_TCP, TCP_USER_TIMEOUT, &now_ms,
		   sizeof(now_ms));
}
