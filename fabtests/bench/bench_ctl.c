/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The control channel between the two sides: a socket pair that the parent
 * made. Used between phases only, never in the timed part. A side that waits
 * here keeps polling its completion queue, for providers whose progress is
 * the application's business.
 */
#include "bench_side.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

static int peer_ended(struct side *side)
{
	side->report.peer_lost = true;
	return side_fail(side, "the other process ended");
}

int ctl_send(struct side *side, const struct ctl_msg *msg)
{
	ssize_t len = send(side->job->peer_fd, msg, sizeof(*msg), MSG_NOSIGNAL);

	if (len == sizeof(*msg))
		return 0;
	if (len < 0 && (errno == EPIPE || errno == ECONNRESET))
		return peer_ended(side);
	return side_fail(side, "control channel: %s", strerror(errno));
}

int ctl_recv(struct side *side, struct ctl_msg *msg)
{
	struct pollfd pfd = { .fd = side->job->peer_fd, .events = POLLIN };
	ssize_t len;

	while (poll(&pfd, 1, 1) <= 0) {
		if (bench_now_ns() > side->deadline_ns)
			return side_fail(
				side, "the other side said nothing for %d ms",
				side->job->timeout_ms);
		if (side->ep && !side->quits && side_poll(side) != 0)
			return -1;
	}
	len = recv(pfd.fd, msg, sizeof(*msg), 0);
	if (len == sizeof(*msg))
		return 0;
	if (len == 0 || (len < 0 && errno == ECONNRESET))
		return peer_ended(side);
	return side_fail(side, "control channel: %s",
			 len < 0 ? strerror(errno) : "short message");
}

int ctl_expect(struct side *side, enum ctl_kind kind, struct ctl_msg *msg)
{
	if (ctl_recv(side, msg) != 0)
		return -1;
	if (msg->kind != kind)
		return side_fail(side, "control message %d instead of %d",
				 msg->kind, kind);
	return 0;
}
