/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Rounds of connect, transfer and disconnect, to be run also under the thread
 * sanitizer and valgrind (Criterion cannot be):
 *
 *	stress_sv_cm [rounds [threads [late]]]
 *
 * First both ends in one process, by turns over 127.0.0.1 and ::1, then each
 * end in a process of its own, then several threads that each do it at once.
 * At the end no descriptor may be left. Exits 0 if all went well. late=0 leaves
 * out the fork of a process that has threads: the thread sanitizer takes what
 * was locked around it for locked ever after.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

#include "cm_peer.h"

enum {
	WARM_UP = 5,
	ONCE = 2,	/* descriptors that the process opens when need be */
};

static void round_in_process(struct peer *listener, const char *ip,
			     uint16_t port, int round)
{
	struct peer passive;
	struct peer active;
	struct peer *first = round % 2 ? &active : &passive;
	struct peer *second = round % 2 ? &passive : &active;

	peer_pair(listener, &active, &passive, ip, port);
	peer_transfer(&active, &passive);
	peer_transfer(&passive, &active);
	MUST(!sv_cm_disconnect(first->id));
	if (round % 3 == 0)
		MUST(!sv_cm_disconnect(second->id));
	MUST(!peer_take(first->channel, RDMA_CM_EVENT_DISCONNECTED));
	MUST(!peer_take(second->channel, RDMA_CM_EVENT_DISCONNECTED));
	peer_close(first);
	peer_close(second);
}

static void in_process(int rounds)
{
	struct peer v4;
	struct peer v6;
	uint16_t port4 = peer_listen(&v4, "127.0.0.1", 0, 16);
	uint16_t port6 = peer_listen(&v6, "::1", 0, 16);
	int fds = 0;
	int i;

	for (i = 0; i < rounds + WARM_UP; i++) {
		if (i == WARM_UP)
			fds = peer_fd_cnt();
		if (i % 2)
			round_in_process(&v4, "127.0.0.1", port4, i);
		else
			round_in_process(&v6, "::1", port6, i);
	}
	MUST(peer_fd_cnt() <= fds + ONCE);
	peer_close(&v4);
	peer_close(&v6);
}

static void serve(int out, int rounds)
{
	struct peer listener;
	struct peer passive;
	uint16_t port = peer_listen(&listener, "0.0.0.0", 0, 16);
	int fds = 0;
	int i;

	MUST(write(out, &port, sizeof(port)) == sizeof(port));
	for (i = 0; i < rounds; i++) {
		if (i == WARM_UP)
			fds = peer_fd_cnt();
		peer_accept(&listener, &passive);
		peer_established(&passive);
		peer_post_recv(&passive);
		MUST(peer_complete(&passive) == IBV_WC_SUCCESS);
		peer_post_send(&passive, sizeof(passive.buf));
		MUST(peer_complete(&passive) == IBV_WC_SUCCESS);
		MUST(!peer_take(passive.channel, RDMA_CM_EVENT_DISCONNECTED));
		peer_close(&passive);
	}
	MUST(peer_fd_cnt() <= fds + ONCE);
	peer_close(&listener);
}

static void call(int in, int rounds)
{
	struct peer active;
	uint16_t port;
	int fds = 0;
	int i;

	MUST(read(in, &port, sizeof(port)) == sizeof(port));
	for (i = 0; i < rounds; i++) {
		if (i == WARM_UP)
			fds = peer_fd_cnt();
		peer_open(&active);
		peer_connect(&active, "127.0.0.1", port, NULL, 0);
		peer_finish(&active);
		memset(active.buf, i, sizeof(active.buf));
		peer_post_send(&active, sizeof(active.buf));
		MUST(peer_complete(&active) == IBV_WC_SUCCESS);
		memset(active.buf, ~i, sizeof(active.buf));
		peer_post_recv(&active);
		MUST(peer_complete(&active) == IBV_WC_SUCCESS);
		MUST(active.buf[PEER_BUF_SIZE - 1] == (char)i);
		MUST(!sv_cm_disconnect(active.id));
		MUST(!peer_take(active.channel, RDMA_CM_EVENT_DISCONNECTED));
		peer_close(&active);
	}
	MUST(peer_fd_cnt() <= fds + ONCE);
}

static void two_processes(int rounds)
{
	int fds[2];
	int status;
	pid_t pid;

	MUST(!pipe(fds));
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		serve(fds[1], rounds);
		/* Not exit(): what a late child inherited is no leak. */
		_exit(0);
	}
	call(fds[0], rounds);
	MUST(waitpid(pid, &status, 0) == pid);
	MUST(WIFEXITED(status) && !WEXITSTATUS(status));
	close(fds[0]);
	close(fds[1]);
}

static void *churn(void *arg)
{
	int rounds = *(int *)arg;
	struct peer listener;
	uint16_t port = peer_listen(&listener, "127.0.0.1", 0, 16);
	int i;

	for (i = 0; i < rounds; i++)
		round_in_process(&listener, "127.0.0.1", port, i);
	peer_close(&listener);
	return NULL;
}

static void many_threads(int rounds, int threads)
{
	pthread_t thread[16];
	int i;

	MUST(threads <= 16);
	for (i = 0; i < threads; i++)
		MUST(!pthread_create(&thread[i], NULL, churn, &rounds));
	for (i = 0; i < threads; i++)
		MUST(!pthread_join(thread[i], NULL));
}

static long lap(const char *what, long since)
{
	long now = peer_now_ms();

	printf("%-16s %6ld ms\n", what, now - since);
	fflush(stdout);
	return now;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100;
	int threads = argc > 2 ? atoi(argv[2]) : 2;
	int late = argc > 3 ? atoi(argv[3]) : 1;
	long at = peer_now_ms();

	two_processes(rounds);
	at = lap("two processes", at);
	in_process(rounds);
	at = lap("one process", at);
	/* Once more, forked from a process that has a history. */
	if (late)
		two_processes(rounds / 10 + 2 * WARM_UP);
	at = lap("forked late", at);
	many_threads(rounds / 2, threads);
	lap("threads", at);
	return 0;
}
