/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the tests with hostile peers have in common: their ways to end, and that
 * nothing is left of them, and that good clients are served.
 */
#ifndef HOSTILE_PEER_H
#define HOSTILE_PEER_H

#include <criterion/criterion.h>

#include "raw_peer.h"

enum {
	SETTLE_MS = 10000,
	SERVED_MS = 5000,		/* a good client, whoever else is there */
};

/* Who is served, within the time, is a client as clients should be. */
static inline void assert_serves(struct peer *listener, uint16_t port)
{
	struct peer passive;
	struct peer active;
	long start = peer_now_ms();

	peer_pair(listener, &active, &passive, "127.0.0.1", port);
	peer_transfer(&active, &passive);
	cr_assert_leq(peer_now_ms() - start, SERVED_MS);
	peer_end_pair(&active, &passive);
}

/* Requests that were reported go unanswered; those withdrawn do not show. */
static inline void drop_requests(struct peer *listener)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	while ((event = peer_event(listener->channel, 0))) {
		id = event->id;
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
			MUST(!sv_cm_ack_cm_event(event));
			continue;
		}
		MUST(!sv_cm_ack_cm_event(event));
		MUST(!sv_cm_destroy_id(id));
	}
}

/* Nothing stays open of those who have gone. */
static inline void assert_settles(struct peer *listener, int fds)
{
	long until = peer_now_ms() + SETTLE_MS;

	do {
		drop_requests(listener);
		if (peer_fd_cnt() <= fds)
			return;
		peer_sleep_ms(10);
	} while (peer_now_ms() < until);
	cr_assert_leq(peer_fd_cnt(), fds);
}

/* The first client makes the process open what it keeps. */
static inline uint16_t listen_warm(struct peer *listener, int *fds)
{
	uint16_t port = peer_listen(listener, "127.0.0.1", 0, 0);

	assert_serves(listener, port);
	peer_sleep_ms(100);
	*fds = peer_fd_cnt();
	return port;
}

/* Closing with a reset, as a peer does that crashes with bytes unread. */
static inline void raw_reset(int sock)
{
	struct linger linger = { .l_onoff = 1 };

	MUST(!setsockopt(sock, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	close(sock);
}

/* As much as the other end takes, for at most this long; true if it ended. */
static inline bool pour(int sock, int timeout_ms)
{
	long until = peer_now_ms() + timeout_ms;
	static const char junk[16384];
	ssize_t ret;

	while (peer_now_ms() < until) {
		ret = send(sock, junk, sizeof(junk),
			   MSG_DONTWAIT | MSG_NOSIGNAL);
		if (ret < 0 && errno != EAGAIN)
			return true;
		if (ret < 0)
			peer_sleep_ms(1);
	}
	return false;
}

#endif
