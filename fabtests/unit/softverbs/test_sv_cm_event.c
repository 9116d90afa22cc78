/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs' connection manager: channels and events. What the descriptor
 * says, who waits for whom, where events go when ids move or are destroyed.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "cm_peer.h"

TestSuite(sv_cm_event, .timeout = 120);

Test(sv_cm_event, channel_descriptor)
{
	struct rdma_cm_event *event;
	struct sockaddr_storage dst;
	struct pollfd pfd;
	struct peer peer;

	peer_open(&peer);
	peer_create_id(&peer);
	pfd = (struct pollfd){ .fd = peer.channel->fd, .events = POLLIN };
	cr_assert_eq(poll(&pfd, 1, 0), 0);
	cr_assert_eq(fcntl(peer.channel->fd, F_GETFD), FD_CLOEXEC);
	cr_assert_eq(sv_cm_get_cm_event(peer.channel, &event), -1);
	cr_assert_eq(errno, EAGAIN);
	peer_addr(&dst, "127.0.0.1", 1);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, NULL, (struct sockaddr *)&dst,
					1), 0);
	cr_assert_eq(poll(&pfd, 1, 0), 1);
	cr_assert_eq(sv_cm_resolve_route(peer.id, 1), 0);
	/* Readable as long as there is one, and no longer. */
	cr_assert_eq(peer_take(peer.channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	cr_assert_eq(poll(&pfd, 1, 0), 1);
	cr_assert_eq(peer_take(peer.channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	cr_assert_eq(poll(&pfd, 1, 0), 0);
	cr_assert_eq(sv_cm_get_cm_event(peer.channel, &event), -1);
	cr_assert_eq(errno, EAGAIN);
	peer_close(&peer);
}

Test(sv_cm_event, destroy_drops_what_was_not_fetched)
{
	struct sockaddr_storage dst;
	struct pollfd pfd;
	struct peer peer;

	peer_open(&peer);
	peer_create_id(&peer);
	peer_addr(&dst, "127.0.0.1", 1);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, NULL, (struct sockaddr *)&dst,
					1), 0);
	peer_destroy_id(&peer);
	pfd = (struct pollfd){ .fd = peer.channel->fd, .events = POLLIN };
	cr_assert_eq(poll(&pfd, 1, 0), 0);
	peer_close(&peer);
}

struct acker {
	struct rdma_cm_event *event;
	atomic_bool acked;
};

static void *ack_later(void *arg)
{
	struct acker *acker = arg;

	peer_sleep_ms(150);
	atomic_store(&acker->acked, true);
	MUST(!sv_cm_ack_cm_event(acker->event));
	return NULL;
}

Test(sv_cm_event, destroy_waits_for_acknowledgement)
{
	struct acker acker = { 0 };
	struct sockaddr_storage dst;
	struct peer peer;
	pthread_t thread;

	peer_open(&peer);
	peer_create_id(&peer);
	peer_addr(&dst, "127.0.0.1", 1);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, NULL, (struct sockaddr *)&dst,
					1), 0);
	acker.event = peer_expect(peer.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_assert_eq(pthread_create(&thread, NULL, ack_later, &acker), 0);
	peer_destroy_id(&peer);
	cr_assert(atomic_load(&acker.acked));
	pthread_join(thread, NULL);
	peer_close(&peer);
}

static void *get_blocking(void *arg)
{
	struct rdma_event_channel *channel = arg;
	struct rdma_cm_event *event;

	MUST(!sv_cm_get_cm_event(channel, &event));
	return event;
}

Test(sv_cm_event, get_event_blocks)
{
	struct sockaddr_storage dst;
	struct rdma_cm_event *event;
	struct peer peer;
	pthread_t thread;
	void *result;

	peer_open(&peer);
	peer_create_id(&peer);
	cr_assert_eq(fcntl(peer.channel->fd, F_SETFL, 0), 0);
	cr_assert_eq(pthread_create(&thread, NULL, get_blocking, peer.channel),
		     0);
	peer_sleep_ms(50);
	peer_addr(&dst, "127.0.0.1", 1);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, NULL, (struct sockaddr *)&dst,
					1), 0);
	cr_assert_eq(pthread_join(thread, &result), 0);
	event = result;
	cr_assert_eq(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	peer_close(&peer);
}

/* Queued events move along, those of requests with their listener. */
Test(sv_cm_event, migrate)
{
	struct rdma_event_channel *other = sv_cm_create_event_channel();
	struct rdma_event_channel *old;
	struct rdma_cm_event *event;
	struct peer listener;
	struct peer active;
	struct pollfd pfd;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 0);

	cr_assert_not_null(other);
	cr_assert_eq(fcntl(other->fd, F_SETFL, O_NONBLOCK), 0);
	peer_open(&active);
	peer_connect(&active, "127.0.0.1", port, NULL, 0);
	pfd = (struct pollfd){ .fd = listener.channel->fd, .events = POLLIN };
	cr_assert_eq(poll(&pfd, 1, PEER_WAIT_MS), 1);
	old = listener.channel;
	cr_assert_eq(sv_cm_migrate_id(listener.id, other), 0);
	listener.channel = other;
	cr_assert_eq(poll(&pfd, 1, 0), 0);
	sv_cm_destroy_event_channel(old);
	event = peer_expect(other, RDMA_CM_EVENT_CONNECT_REQUEST);
	cr_assert_eq(event->id->channel, other);
	cr_assert_eq(sv_cm_destroy_id(event->id), 0);
	cr_assert_eq(sv_cm_ack_cm_event(event), 0);
	cr_assert_eq(peer_take(active.channel, RDMA_CM_EVENT_REJECTED), 28);
	peer_close(&active);
	peer_close(&listener);
}

/* An id without a channel waits for its events itself. */
Test(sv_cm_event, synchronous_id)
{
	struct sockaddr_storage dst;
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *id;

	cr_assert_eq(sv_cm_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	peer_addr(&dst, "255.255.255.255", 1);
	cr_assert_eq(sv_cm_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1),
		     -1);
	cr_assert_neq(errno, 0);
	peer_addr(&dst, "127.0.0.1", 1);
	cr_assert_eq(sv_cm_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1),
		     0);
	cr_assert_eq(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_assert_eq(sv_cm_resolve_route(id, 1), 0);
	cr_assert_eq(sv_cm_connect(id, &param), -1);
	cr_assert_eq(errno, ECONNREFUSED);
	cr_assert_eq(sv_cm_destroy_id(id), 0);
}

Test(sv_cm_event, synchronous_id_migrates)
{
	struct sockaddr_storage dst;
	struct peer peer;

	peer_open(&peer);
	cr_assert_eq(sv_cm_create_id(NULL, &peer.id, NULL, RDMA_PS_TCP), 0);
	peer_addr(&dst, "127.0.0.1", 1);
	cr_assert_eq(sv_cm_resolve_addr(peer.id, NULL, (struct sockaddr *)&dst,
					1), 0);
	cr_assert_eq(sv_cm_migrate_id(peer.id, peer.channel), 0);
	cr_assert_null(peer.id->event);
	cr_assert_eq(sv_cm_resolve_route(peer.id, 1), 0);
	cr_assert_eq(peer_take(peer.channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	peer_close(&peer);
}

static void on_signal(int signum)
{
}

static void *wait_for_ever(void *arg)
{
	struct rdma_cm_event *event;

	MUST(sv_cm_get_cm_event(arg, &event) == -1);
	MUST(errno == EINTR);
	return NULL;
}

/* Who waits may be woken by an event that is dropped with the id, and then find
 * the channel destroyed. He neither touches what is freed nor returns. */
Test(sv_cm_event, channel_is_destroyed_while_somebody_waits)
{
	struct sigaction act = { .sa_handler = on_signal };
	eventfd_t one;
	struct peer peer;
	pthread_t thread;
	int dup_fd;
	int fd;

	sigaction(SIGUSR1, &act, NULL);
	peer_open(&peer);
	fd = peer.channel->fd;
	dup_fd = dup(fd);
	cr_assert_eq(fcntl(fd, F_SETFL, 0), 0);
	peer_create_id(&peer);
	cr_assert_eq(pthread_create(&thread, NULL, wait_for_ever,
				    peer.channel), 0);
	peer_sleep_ms(50);
	peer_destroy_id(&peer);
	sv_cm_destroy_event_channel(peer.channel);
	cr_assert_eq(eventfd_write(dup_fd, 1), 0);
	peer_sleep_ms(20);
	cr_assert_eq(eventfd_read(dup_fd, &one), 0);
	peer_sleep_ms(50);
	cr_assert_eq(pthread_tryjoin_np(thread, NULL), EBUSY);
	cr_assert_eq(pthread_kill(thread, SIGUSR1), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	/* The last one that waited has closed the descriptor. */
	cr_assert_eq(fcntl(fd, F_GETFD), -1);
	close(dup_fd);
}

Test(sv_cm_event, event_names)
{
	cr_assert_str_eq(sv_cm_event_str(RDMA_CM_EVENT_ADDR_RESOLVED),
			 "RDMA_CM_EVENT_ADDR_RESOLVED");
	cr_assert_str_eq(sv_cm_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT),
			 "RDMA_CM_EVENT_TIMEWAIT_EXIT");
	cr_assert_str_eq(sv_cm_event_str((enum rdma_cm_event_type)99),
			 "UNKNOWN EVENT");
}
