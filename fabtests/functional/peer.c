/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A second process for tests that need one to die. It is forked before this
 * process touches libfabric, and never outlives it.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "common.h"

void peer_start(struct peer *p, int (*fn)(int sock, void *arg), void *arg)
{
	int sv[2];

	ASSERT_OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
	fflush(stdout);
	p->pid = fork();
	ASSERT(p->pid >= 0);
	if (!p->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sv[0]);
		exit(fn(sv[1], arg));
	}
	close(sv[1]);
	p->sock = sv[0];
}

void peer_kill(struct peer *p, int sig)
{
	int status;

	ASSERT(p->pid > 0);
	ASSERT_OK(kill(p->pid, sig));
	if (sig == SIGSTOP) {
		/* It runs on for a while. */
		ASSERT_EQ(waitpid(p->pid, &status, WUNTRACED), p->pid);
		ASSERT(WIFSTOPPED(status));
	}
	if (sig == SIGKILL) {
		ASSERT_EQ(waitpid(p->pid, NULL, 0), p->pid);
		close(p->sock);
		p->pid = 0;
	}
}

void peer_join(struct peer *p)
{
	int status;

	ASSERT_EQ(waitpid(p->pid, &status, 0), p->pid);
	close(p->sock);
	p->pid = 0;
	if (WIFSIGNALED(status))
		FAIL("the peer died: %s", strsignal(WTERMSIG(status)));
	ASSERT_EQ(WEXITSTATUS(status), 0);
}

void tell(int sock, const void *data, size_t len)
{
	ASSERT_EQ(send(sock, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

void hear(int sock, void *data, size_t len)
{
	char *p = data;
	ssize_t n;

	while (len) {
		n = recv(sock, p, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			FAIL("the other process is gone");
		p += n;
		len -= (size_t)n;
	}
}
