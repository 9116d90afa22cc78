/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs' connection manager in a process that can open only so many more
 * descriptors: wherever a connection to or from it stops for want of one, both ends
 * hear of it soon, that end hears why, and the next one stands.
 */
#include <criterion/criterion.h>
#include <sys/resource.h>

#include "cm_peer.h"
#include "process.h"

/* A link over TCP needs no more than the connection. */
static void only_shm(void)
{
	setenv("SOFTVERBS_LINK", "shm", 1);
}

TestSuite(sv_cm_fds, .init = only_shm, .timeout = 120);

enum {
	SOON_MS = 5000, /* where a hand-over may take 20 s */
	FDS = 100, /* a process has fewer open */
	ENOUGH = 12,
	/* of outcome(), and negative errnos */
	NOTHING = 0,
	STANDS = 1,
};

struct fds {
	struct rlimit limit;
	int taken[FDS + 1];
	int cnt;
};

/* What is free below the limit is taken, so that nothing else is. */
static void fds_leave(struct fds *fds, int spare)
{
	struct rlimit few;
	int fd;

	fds->cnt = 0;
	do {
		MUST((fd = dup(STDERR_FILENO)) >= 0);
		fds->taken[fds->cnt++] = fd;
	} while (fd < FDS);
	MUST(!getrlimit(RLIMIT_NOFILE, &fds->limit));
	few = fds->limit;
	few.rlim_cur = (rlim_t)(fd + 1 + spare);
	MUST(!setrlimit(RLIMIT_NOFILE, &few));
}

static void fds_give_back(struct fds *fds)
{
	MUST(!setrlimit(RLIMIT_NOFILE, &fds->limit));
	while (fds->cnt)
		close(fds->taken[--fds->cnt]);
}

static int outcome(struct peer *peer, enum rdma_cm_event_type stands)
{
	struct rdma_cm_event *event = peer_event(peer->channel, SOON_MS);
	int result = -ECONNREFUSED;

	if (!event)
		return NOTHING;
	if (event->event == stands)
		result = STANDS;
	else if (event->event == RDMA_CM_EVENT_CONNECT_ERROR)
		result = event->status;
	MUST(!sv_cm_ack_cm_event(event));
	return result;
}

/* ---- who connects ---- */

static void client_open(struct peer *active, uint16_t port)
{
	peer_open(active);
	peer_resolve(active, "127.0.0.1", port);
	peer_create_qp(active);
}

static int client_connect(struct peer *active)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7,
					 .qp_num = active->qp->qp_num };
	int result;

	if (sv_cm_connect(active->id, &param))
		return -errno;
	result = outcome(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
	if (result != STANDS)
		return result;
	peer_move_qp(active);
	MUST(!sv_cm_establish(active->id));
	return result;
}

static void client(int in, int out, int none)
{
	uint16_t port = (uint16_t)hear(in);
	struct peer active;
	struct fds fds;
	int spare;

	for (;;) {
		spare = hear(in);
		client_open(&active, port);
		fds_leave(&fds, spare);
		say(out, client_connect(&active));
		fds_give_back(&fds);
		hear(in);
		peer_close(&active);
	}
}

/* ---- who is connected to ---- */

static int server_accept(struct peer *listener, struct peer *passive)
{
	struct rdma_cm_event *event = peer_event(listener->channel, SOON_MS);
	struct rdma_cm_id *id;

	if (!event)
		return NOTHING;
	id = event->id;
	MUST(!sv_cm_ack_cm_event(event));
	MUST(!sv_cm_migrate_id(id, passive->channel));
	peer_accept_id(passive, id, NULL, 0);
	return outcome(passive, RDMA_CM_EVENT_ESTABLISHED);
}

static void server(int in, int out, int none)
{
	struct peer listener, passive;
	struct fds fds;
	int spare;

	say(out, peer_listen(&listener, "127.0.0.1", 0, 0));
	for (;;) {
		spare = hear(in);
		peer_open(&passive);
		fds_leave(&fds, spare);
		say(out, 0);
		say(out, server_accept(&listener, &passive));
		fds_give_back(&fds);
		hear(in);
		peer_close(&passive);
	}
}

/* ---- both ---- */

static void assert_short(int spare, int theirs, int ours)
{
	if (theirs == STANDS) {
		cr_assert_eq(ours, STANDS, "%d left: %d", spare, ours);
		return;
	}
	cr_assert_eq(theirs, -EMFILE, "%d left: %d", spare, theirs);
	cr_assert_lt(ours, 0, "%d left: %d", spare, ours);
}

/* With so many left to the server. What became of it at the two ends. */
static void to_server(struct process *process, uint16_t port, int spare,
		      int *theirs, int *ours)
{
	struct peer active;

	say(process->out, spare);
	hear(process->in);
	client_open(&active, port);
	*ours = client_connect(&active);
	*theirs = hear(process->in);
	peer_close(&active);
	say(process->out, 0);
}

/* Or it has already said what became of it. */
static bool calls(const struct process *process, const struct peer *listener)
{
	struct pollfd pfd[] = {
		{ .fd = listener->channel->fd, .events = POLLIN },
		{ .fd = process->in, .events = POLLIN },
	};

	MUST(poll(pfd, 2, PEER_WAIT_MS) > 0);
	return pfd[0].revents;
}

static void from_client(struct process *process, struct peer *listener,
			int spare, int *theirs, int *ours)
{
	struct peer passive;

	say(process->out, spare);
	peer_open(&passive);
	*ours = calls(process, listener) ? server_accept(listener, &passive) :
					   NOTHING;
	*theirs = hear(process->in);
	peer_close(&passive);
	say(process->out, 0);
}

/* The first round warms up. Without a single one nobody can even be accepted. */
Test(sv_cm_fds, server_runs_out)
{
	struct process process = process_start(server, 0);
	uint16_t port = (uint16_t)hear(process.in);
	int theirs = STANDS;
	int spare, ours;

	for (spare = ENOUGH; spare; spare--) {
		to_server(&process, port, spare, &theirs, &ours);
		assert_short(spare, theirs, ours);
		cr_assert(spare < ENOUGH || theirs == STANDS);
	}
	cr_assert_eq(theirs, -EMFILE);
	process_kill(&process);
}

Test(sv_cm_fds, client_runs_out)
{
	struct process process = process_start(client, 0);
	struct peer listener;
	int theirs = STANDS;
	int spare, ours;

	say(process.out, peer_listen(&listener, "127.0.0.1", 0, 0));
	for (spare = ENOUGH; spare >= 0; spare--) {
		from_client(&process, &listener, spare, &theirs, &ours);
		if (spare)
			assert_short(spare, theirs, ours);
		else
			cr_assert(ours == NOTHING && theirs == -EMFILE);
		cr_assert(spare < ENOUGH || theirs == STANDS);
	}
	process_kill(&process);
	peer_close(&listener);
}

/* The very first lack them, at each step: what a process finds out once it does
 * when it can. */
Test(sv_cm_fds, server_begins_without)
{
	struct process process = process_start(server, 0);
	uint16_t port = (uint16_t)hear(process.in);
	int theirs, ours;
	int spare;

	for (spare = 1; spare <= ENOUGH; spare++) {
		to_server(&process, port, spare, &theirs, &ours);
		assert_short(spare, theirs, ours);
	}
	cr_assert_eq(theirs, STANDS);
	process_kill(&process);
}

Test(sv_cm_fds, client_begins_without)
{
	struct process process = process_start(client, 0);
	struct peer listener;
	int theirs, ours;
	int spare;

	say(process.out, peer_listen(&listener, "127.0.0.1", 0, 0));
	for (spare = 1; spare <= ENOUGH; spare++) {
		from_client(&process, &listener, spare, &theirs, &ours);
		cr_assert_eq(theirs == STANDS, ours == STANDS,
			     "%d left: %d, %d", spare, theirs, ours);
	}
	cr_assert_eq(theirs, STANDS);
	process_kill(&process);
	peer_close(&listener);
}
