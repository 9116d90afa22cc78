/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The parent's part in a sample: starts the two sides, waits for their two
 * reports within a bound, sees them exit, and makes one verdict of it all.
 */
#include "bench.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	INITIATOR,
	TARGET,
	SIDES,
	/* The parent has a dozen open. */
	LAST_FD = 256,
	/* Beyond the sum of the sides' own bounds, which come first. */
	PARENT_SLACK_MS = 5000,
	/* For the other side's report, and for exiting, after the first. */
	GRACE_MS = 10000,
	ARG_LEN = 24,
};

static const char *const side_name[SIDES] = { "initiator", "target" };

struct child {
	pid_t pid;
	int report_fd;
	bool reported;
	bool ended;
	bool killed;
	int status;
	double cpu_s;
	struct bench_report report;
};

/* A descriptor that is left open here would keep its other end from EOF. */
static void close_others(int report_fd, const struct bench_job *job)
{
	for (int fd = STDERR_FILENO + 1; fd < LAST_FD; fd++) {
		if (fd != report_fd && fd != job->peer_fd)
			close(fd);
	}
}

/*
 * The child does not exec: the libraries that libfabric needs take a quarter
 * of a second to load, and libfabric itself starts at the first call, which
 * the parent never makes.
 */
static void run_side(int report_fd, const struct bench_job *job)
{
	static const int caught[] = { SIGSEGV, SIGBUS, SIGILL,
				      SIGABRT, SIGINT, SIGTERM };

	/* PSM2, which Debian's libfabric loads, catches signals: let them be.
	 */
	for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
		signal(caught[i], SIG_DFL);
	if (job->log_fd >= 0)
		dup2(job->log_fd, STDERR_FILENO);
	close_others(report_fd, job);
	if (job->priority)
		bench_priority_raise();
	setenv("FI_PROVIDER", job->provider, 1);
	/* Others' warnings, of which there are many, are not about this. */
	setenv("FI_LOG_PROV", job->provider, 0);
	exit(bench_side_main(job, report_fd));
}

static int start_side(struct child *child, const struct bench_job *job)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) != 0)
		return -1;
	child->pid = fork();
	if (child->pid == 0)
		run_side(fd[1], job);
	close(fd[1]);
	if (child->pid < 0) {
		close(fd[0]);
		return -1;
	}
	child->report_fd = fd[0];
	return 0;
}

static void kill_side(struct child *child)
{
	if (child->pid > 0 && !child->ended) {
		child->killed = true;
		kill(child->pid, SIGKILL);
	}
}

static void take_report(struct child *child)
{
	ssize_t len = recv(child->report_fd, &child->report,
			   sizeof(child->report), 0);

	child->reported = len == sizeof(child->report);
	close(child->report_fd);
	child->report_fd = -1;
}

/* Both reports, or the ends of those that have none, within the bound. */
static void wait_reports(struct child *child, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd pfd[SIDES];
		int64_t left_ms;
		int open_cnt = 0;

		for (int i = 0; i < SIDES; i++) {
			pfd[i].fd = child[i].report_fd;
			pfd[i].events = POLLIN;
			pfd[i].revents = 0;
			open_cnt += child[i].report_fd >= 0;
		}
		left_ms = ((int64_t)deadline_ns - (int64_t)bench_now_ns()) /
			  1000000;
		if (open_cnt == 0 || left_ms <= 0)
			return;
		if (poll(pfd, SIDES, (int)left_ms) <= 0)
			continue;
		for (int i = 0; i < SIDES; i++) {
			if (pfd[i].fd < 0 || !pfd[i].revents)
				continue;
			take_report(&child[i]);
			/* The other has nothing more to wait for. */
			left_ms = (int64_t)bench_now_ns() +
				  (int64_t)GRACE_MS * 1000000;
			if ((uint64_t)left_ms < deadline_ns)
				deadline_ns = (uint64_t)left_ms;
		}
	}
}

static bool try_reap(struct child *child)
{
	struct rusage usage;

	if (child->ended || child->pid <= 0)
		return true;
	if (wait4(child->pid, &child->status, WNOHANG, &usage) != child->pid)
		return false;
	child->ended = true;
	child->cpu_s = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
		       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	return true;
}

static void reap(struct child *child)
{
	uint64_t deadline_ns = bench_now_ns() + (uint64_t)GRACE_MS * 1000000;

	while (!try_reap(child)) {
		if (bench_now_ns() > deadline_ns)
			kill_side(child);
		usleep(1000);
	}
	if (child->report_fd >= 0)
		close(child->report_fd);
}

/* In the order of how much each says about the cause. */
static bool died(const struct child *child, int which,
		 struct bench_report *report)
{
	if (!child->ended || child->killed || !WIFSIGNALED(child->status))
		return false;
	snprintf(report->reason, sizeof(report->reason),
		 "%s died: signal %d (%s)", side_name[which],
		 WTERMSIG(child->status), strsignal(WTERMSIG(child->status)));
	return true;
}

static bool complained(const struct child *child, int which,
		       struct bench_report *report)
{
	if (!child->reported || child->report.ret == 0)
		return false;
	report->wrong_data = child->report.wrong_data;
	snprintf(report->reason, sizeof(report->reason), "%s: %.300s",
		 side_name[which], child->report.reason);
	return true;
}

static bool hung(const struct child *child, int which,
		 struct bench_report *report)
{
	if (child->reported && !child->killed)
		return false;
	snprintf(report->reason, sizeof(report->reason),
		 child->killed ? "%s hung and was killed"
			       : "%s ended without a report",
		 side_name[which]);
	return true;
}

static bool find_failure(const struct child *child, struct bench_report *report)
{
	for (int i = 0; i < SIDES; i++) {
		if (died(&child[i], i, report))
			return true;
	}
	for (int i = SIDES - 1; i >= 0; i--) {
		if (!child[i].report.peer_lost &&
		    complained(&child[i], i, report))
			return true;
	}
	for (int i = 0; i < SIDES; i++) {
		if (hung(&child[i], i, report))
			return true;
	}
	for (int i = 0; i < SIDES; i++) {
		if (complained(&child[i], i, report))
			return true;
	}
	return false;
}

static void wait_pair(const struct bench_opts *opts, struct child *child)
{
	/* Set-up, at most eight phases of a sample, closing. */
	uint64_t bound_ms = 3 * (uint64_t)opts->timeout_ms +
			    8 * (uint64_t)opts->duration_ms + PARENT_SLACK_MS;

	wait_reports(child, bench_now_ns() + bound_ms * 1000000);
	for (int i = 0; i < SIDES; i++) {
		if (child[i].report_fd >= 0)
			kill_side(&child[i]);
	}
	for (int i = 0; i < SIDES; i++)
		reap(&child[i]);
}

/* Both sides; the parent keeps no end of their control channel. */
static int start_pair(const struct bench_opts *opts, struct bench_job *job,
		      struct child *child)
{
	int fd[SIDES];
	int ret = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) != 0)
		return -1;
	for (int i = 0; i < SIDES && ret == 0; i++) {
		job->is_target = i == TARGET;
		job->cpu = opts->pin ? bench_cpu_nth(i) : -1;
		job->peer_fd = fd[i];
		ret = start_side(&child[i], job);
	}
	close(fd[INITIATOR]);
	close(fd[TARGET]);
	return ret;
}

bool bench_pair_run(const struct bench_opts *opts, int provider,
		    enum bench_workload workload, struct bench_report *report)
{
	struct bench_job job = {
		.workload = workload,
		.target_polls = opts->target_polls,
		.priority = opts->priority,
		.duration_ms = opts->duration_ms,
		.timeout_ms = opts->timeout_ms,
		.huge_pages = opts->huge_pages,
		.region_len = (size_t)opts->region_mib << 20,
		.post = opts->post,
		.progress = opts->progress,
		.breakage = opts->breakage,
		.log_fd = bench_log_open(),
	};
	struct child child[SIDES] = { { .report_fd = -1 },
				      { .report_fd = -1 } };
	double busy_s = bench_machine_busy_s();
	uint64_t start_ns = bench_now_ns();
	double wall_s;
	bool failed;

	memset(report, 0, sizeof(*report));
	snprintf(job.provider, sizeof(job.provider), "%s",
		 opts->providers[provider]);
	snprintf(job.addr, sizeof(job.addr), "%s", opts->addr);
	if (start_pair(opts, &job, child) != 0)
		snprintf(report->reason, sizeof(report->reason),
			 "cannot start a process: %s", strerror(errno));
	wait_pair(opts, child);
	report->identity = child[INITIATOR].report.identity;
	failed = report->reason[0] || find_failure(child, report);
	bench_log_show(job.log_fd, job.provider, failed);
	if (failed)
		return false;
	report->sample = child[INITIATOR].report.sample;
	wall_s = (bench_now_ns() - start_ns) / 1e9;
	busy_s = bench_machine_busy_s() - busy_s - child[INITIATOR].cpu_s -
		 child[TARGET].cpu_s;
	report->sample.foreign_cpus = busy_s > 0 ? busy_s / wall_s : 0;
	return true;
}
