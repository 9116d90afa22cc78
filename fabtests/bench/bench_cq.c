/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Completions: collecting them into the side's rings, waiting for them with a
 * bound, and turning a failed one into words.
 */
#include "bench_side.h"

#include <errno.h>
#include <sys/socket.h>

enum { SLEEP_SLICE_MS = 500 };

void side_collect(struct side *side, const struct fi_cq_msg_entry *entry,
		  ssize_t cnt)
{
	for (ssize_t i = 0; i < cnt; i++) {
		struct side_slot *slot = entry[i].op_context;

		slot->len = (uint32_t)entry[i].len;
		ring_push(&side->ring[slot->kind], slot);
	}
}

int side_cq_failed(struct side *side, ssize_t ret)
{
	struct fi_cq_err_entry err = { 0 };
	char text[128] = "";
	ssize_t got;

	if (ret != -FI_EAVAIL)
		return side_fail(side, "fi_cq_read: %s",
				 fi_strerror((int)-ret));
	got = fi_cq_readerr(side->cq, &err, 0);
	if (got != 1)
		return side_fail(side, "fi_cq_readerr returned %zd", got);
	/* Flushed because the connection went: the peer knows why. */
	if (err.err == FI_ECANCELED)
		side->report.peer_lost = true;
	fi_cq_strerror(side->cq, err.prov_errno, err.err_data, text,
		       sizeof(text));
	return side_fail(side, "operation failed: %s (provider: %d %.100s)",
			 fi_strerror(err.err), err.prov_errno, text);
}

/* The connection's own word that the peer has gone. */
static int check_eq(struct side *side)
{
	struct fi_eq_cm_entry entry;
	struct fi_eq_err_entry err = { 0 };
	uint32_t event;
	ssize_t ret = fi_eq_read(side->eq, &event, &entry, sizeof(entry), 0);

	if (ret == -FI_EAGAIN)
		return 0;
	if (ret == -FI_EAVAIL) {
		fi_eq_readerr(side->eq, &err, 0);
		return side_fail(side, "connection event error: %s",
				 fi_strerror(err.err));
	}
	if (ret < 0)
		return side_fail(side, "fi_eq_read: %s",
				 fi_strerror((int)-ret));
	if (event == FI_SHUTDOWN) {
		side->report.peer_lost = true;
		return side_fail(side, "the connection was shut down");
	}
	return 0;
}

int side_check_alive(struct side *side)
{
	char byte;

	if (bench_now_ns() > side->deadline_ns)
		return side_fail(side, "no end within %d ms",
				 side->job->timeout_ms);
	if (recv(side->job->peer_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
		side->report.peer_lost = true;
		return side_fail(side, "the other process ended");
	}
	return check_eq(side);
}

int side_sleep(struct side *side)
{
	struct fi_cq_msg_entry entry[SIDE_POLL_BATCH];
	ssize_t cnt;

	cnt = fi_cq_sread(side->cq, entry, SIDE_POLL_BATCH, NULL,
			  SLEEP_SLICE_MS);
	if (cnt > 0) {
		side_collect(side, entry, cnt);
		return 0;
	}
	if (cnt == 0 || cnt == -FI_EAGAIN || cnt == -FI_EINTR)
		return side_check_alive(side);
	return side_cq_failed(side, cnt);
}

int side_post_rx(struct side *side, struct side_slot *slot)
{
	ssize_t ret;

	while ((ret = fi_recv(side->ep, slot->buf, BENCH_MSG_LEN,
			      side->msg.desc, FI_ADDR_UNSPEC,
			      &slot->context)) == -FI_EAGAIN) {
		if (side_poll(side) != 0)
			return -1;
	}
	if (ret != 0)
		return side_fail(side, "fi_recv: %s", fi_strerror((int)-ret));
	return 0;
}
