/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a verbs device costs over the bare means it is made of, in one run.
 *
 *	dev_bench [-r ROUNDS] [-d MILLISECONDS] [-a ADDRESS]
 *
 * Rows are pairs: the bare means, and verbs. Rounds go over all of them, each
 * sample in two fresh processes; the table has medians and their ratio. Which
 * link softverbs shall take is set per row (SOFTVERBS_LINK); other devices do
 * not look at that. Exit status: 0, or 1 if a sample failed.
 */
#include "dev_bench.h"
#include "bench_stat.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	SIDE_LIMIT_S = 20,
	QUIET_S = 10,
	ROUNDS_MAX = BENCH_MAX_ROUNDS,
};

struct means {
	const char *name;
	const char *link; /* NULL: bare */
	dev_fn run;
};

struct row {
	const char *title;
	const char *unit;
	bool less_is_better;
	struct means means[2]; /* the second may be missing */
	const char *bar;
};

static const struct row rows[] = {
	{
		"64 B, half a round trip", "ns", true,
		{ { "ring in shared memory", NULL, dev_bare_ring },
		  { "send, shared memory", "shm", dev_verbs_latency } },
		"<= 1.5",
	},
	{
		"1 MiB written to another process", "MiB/s", false,
		{ { "process_vm_writev", NULL, dev_bare_writev },
		  { "RDMA write, shared memory", "shm", dev_verbs_write } },
		">= 0.9",
	},
	{
		"64 KiB messages", "MiB/s", false,
		{ { "TCP stream", NULL, dev_bare_stream },
		  { "send, TCP", "tcp", dev_verbs_stream } },
		">= 0.9",
	},
	{
		"64 B in chains of 32", "1000/s", false,
		{ { "send, TCP", "tcp", dev_verbs_chain } },
		">= 2000",
	},
};

struct options {
	int rounds;
	int duration_ms;
	const char *addr;
};

/* ---- what the sides use ---- */

int dev_tell(const struct dev_side *side, const void *buf, size_t len)
{
	if (send(side->ctl, buf, len, MSG_NOSIGNAL) == (ssize_t)len)
		return 0;
	perror("dev_bench: the other side");
	return -1;
}

int dev_hear(const struct dev_side *side, void *buf, size_t len)
{
	ssize_t n = recv(side->ctl, buf, len, MSG_WAITALL);

	if (n == (ssize_t)len)
		return 0;
	fprintf(stderr, "dev_bench: the other side %s\n",
		n < 0 ? strerror(errno) : "has gone");
	return -1;
}

bool dev_heard(const struct dev_side *side)
{
	struct pollfd pfd = { .fd = side->ctl, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

int dev_meet(const struct dev_side *side)
{
	char c = 0;

	return dev_tell(side, &c, 1) || dev_hear(side, &c, 1);
}

void *dev_region(size_t len)
{
	void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (mem != MAP_FAILED)
		return mem;
	perror("dev_bench: mmap");
	return NULL;
}

/* ---- one sample ---- */

static void side_main(const struct means *means, struct dev_side *side,
		      int out)
{
	double value = 0;

	alarm(SIDE_LIMIT_S);
	bench_cpu_pin(bench_cpu_nth(side->is_a ? 0 : 1));
	if (means->link)
		setenv("SOFTVERBS_LINK", means->link, 1);
	if (means->run(side, &value))
		exit(1);
	if (side->is_a && write(out, &value, sizeof(value)) != sizeof(value))
		exit(1);
	exit(0);
}

static pid_t side_start(const struct means *means, struct dev_side *side,
			const int ctl[2], const int out[2])
{
	pid_t pid = fork();

	if (pid)
		return pid;
	side->ctl = ctl[side->is_a];
	close(ctl[!side->is_a]);
	close(out[0]);
	side_main(means, side, out[1]);
	return -1;
}

static bool side_ended_well(pid_t pid)
{
	int status;

	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* The figure, or -1 if a side failed. */
static double sample(const struct means *means, const struct options *opts)
{
	struct dev_side side = {
		.duration_ns = opts->duration_ms * 1000000ull,
		.addr = opts->addr,
	};
	double value = -1;
	int ctl[2], out[2];
	pid_t pid[2];
	bool ok;

	side.shared = mmap(NULL, DEV_SHARED_LEN, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (side.shared == MAP_FAILED ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ctl) ||
	    pipe(out)) {
		perror("dev_bench");
		return -1;
	}
	for (int i = 0; i < 2; i++) {
		side.is_a = i;
		pid[i] = side_start(means, &side, ctl, out);
	}
	close(ctl[0]);
	close(ctl[1]);
	close(out[1]);
	ok = read(out[0], &value, sizeof(value)) == sizeof(value);
	for (int i = 0; i < 2; i++)
		ok &= side_ended_well(pid[i]);
	close(out[0]);
	munmap(side.shared, DEV_SHARED_LEN);
	return ok ? value : -1;
}

/* ---- rounds and table ---- */

struct series {
	double value[ROUNDS_MAX];
	int cnt;
	int failed;
};

static void measure(struct series series[][2], const struct options *opts)
{
	for (int round = 0; round < opts->rounds; round++)
		for (size_t r = 0; r < ARRAY_SIZE(rows); r++)
			for (int m = 0; m < 2 && rows[r].means[m].run; m++) {
				struct series *s = &series[r][m];
				double v = sample(&rows[r].means[m], opts);

				if (v < 0)
					s->failed++;
				else
					s->value[s->cnt++] = v;
			}
}

static void line_print(const struct means *means, struct series *s,
		       struct bench_stat *stat)
{
	char median[32], min[32], max[32];

	*stat = bench_stat_of(s->value, s->cnt);
	printf("  %-28s %8s (%s..%s)", means->name,
	       bench_format3(median, sizeof(median), stat->median),
	       bench_format3(min, sizeof(min), stat->min),
	       bench_format3(max, sizeof(max), stat->max));
	if (s->failed)
		printf("  %d of %d samples FAILED", s->failed,
		       s->failed + s->cnt);
}

/* Returns how many samples failed. */
static int row_print(const struct row *row, struct series *series)
{
	struct bench_stat first, second;
	char ratio[32];

	printf("\n%s, %s (%s is better)\n", row->title, row->unit,
	       row->less_is_better ? "less" : "more");
	line_print(&row->means[0], &series[0], &first);
	if (!row->means[1].run) {
		printf("  wanted %s\n", row->bar);
		return series[0].failed;
	}
	printf("\n");
	line_print(&row->means[1], &series[1], &second);
	printf("  %sx, wanted %s\n",
	       bench_format3(ratio, sizeof(ratio),
			     bench_ratio(second.median, first.median)),
	       row->bar);
	return series[0].failed + series[1].failed;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: dev_bench [-r ROUNDS (1..%d)] [-d MILLISECONDS (10..10000)] [-a IPV4-ADDRESS]\n",
		ROUNDS_MAX);
	return 2;
}

static bool number(const char *text, int min, int max, int *out)
{
	char *end;
	long value = strtol(text, &end, 10);

	*out = (int)value;
	return end != text && !*end && value >= min && value <= max;
}

int main(int argc, char **argv)
{
	struct options opts = { 7, 300, "127.0.0.1" };
	static struct series series[ARRAY_SIZE(rows)][2];
	struct bench_host host;
	int opt, failed = 0;

	while ((opt = getopt(argc, argv, "r:d:a:")) != -1) {
		if (opt == 'a')
			opts.addr = optarg;
		else if (!(opt == 'r' && number(optarg, 1, ROUNDS_MAX,
						&opts.rounds)) &&
			 !(opt == 'd' && number(optarg, 10, 10000,
						&opts.duration_ms)))
			return usage();
	}
	if (optind != argc)
		return usage();
	bench_host_describe(&host);
	bench_priority_raise();
	bench_wait_quiet(QUIET_S);
	printf("%s, %d x %s; %d rounds of %d ms: median (min..max)\n",
	       host.kernel, host.cpu_cnt, host.cpu, opts.rounds,
	       opts.duration_ms);
	fflush(stdout);
	measure(series, &opts);
	for (size_t r = 0; r < ARRAY_SIZE(rows); r++)
		failed += row_print(&rows[r], series[r]);
	return failed != 0;
}
