/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A peer in a process of its own, to which one talks by numbers, and which is killed
 * in the end.
 */
#ifndef PROCESS_H
#define PROCESS_H

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

enum {
	PROCESS_WAIT_MS = 60000,
};

struct process {
	pid_t pid;
	int in; /* its words to us */
	int out; /* ours to it */
};

static inline void say(int fd, int word)
{
	MUST(write(fd, &word, sizeof(word)) == sizeof(word));
}

static inline int hear(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int word;

	MUST(poll(&pfd, 1, PROCESS_WAIT_MS) == 1);
	MUST(read(fd, &word, sizeof(word)) == sizeof(word));
	return word;
}

/* arg is for fn, which hears us at in and speaks to us at out. */
static inline struct process process_start(void (*fn)(int in, int out, int arg),
					   int arg)
{
	struct process process;
	int down[2];
	int up[2];

	MUST(!pipe(down) && !pipe(up));
	process.pid = fork();
	MUST(process.pid >= 0);
	if (!process.pid) {
		close(down[1]);
		close(up[0]);
		fn(down[0], up[1], arg);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	process.in = up[0];
	process.out = down[1];
	return process;
}

static inline void process_kill(struct process *process)
{
	int status;

	MUST(!kill(process->pid, SIGKILL));
	MUST(waitpid(process->pid, &status, 0) == process->pid);
	close(process->in);
	close(process->out);
}

#endif
