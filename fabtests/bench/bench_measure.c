/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Clocks, CPU time, CPU placement and the description of the machine. The
 * only file that looks at /proc.
 */
#include "bench.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static uint64_t timeval_ns(const struct timeval *tv)
{
	return (uint64_t)tv->tv_sec * 1000000000 + tv->tv_usec * 1000;
}

uint64_t bench_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/*
 * The total comes from the scheduler's own account, which is exact. On many
 * kernels getrusage splits that total by sampling, so that user and system
 * parts are estimates.
 */
void bench_cpu_read(struct bench_cpu *cpu)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	cpu->total_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	cpu->user_ns = timeval_ns(&usage.ru_utime);
	cpu->sys_ns = timeval_ns(&usage.ru_stime);
	cpu->switch_cnt = usage.ru_nvcsw + usage.ru_nivcsw;
}

void bench_cpu_sub(struct bench_cpu *later, const struct bench_cpu *earlier)
{
	later->total_ns -= earlier->total_ns;
	later->user_ns -= earlier->user_ns;
	later->sys_ns -= earlier->sys_ns;
	later->switch_cnt -= earlier->switch_cnt;
}

int bench_cpu_count(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	return CPU_COUNT(&set);
}

/* The nth CPU that we may run on, counted from 0; -1 if there are fewer. */
int bench_cpu_nth(int nth)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &set) && nth-- == 0)
			return cpu;
	}
	return -1;
}

/*
 * Pins the calling thread only. Threads that the provider has started keep
 * the process's CPUs: a spinning caller must not starve them. Not being able
 * to pin costs repeatability, not truth, so it is no error.
 */
void bench_cpu_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0 || cpu >= CPU_SETSIZE)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		perror("vrc_bench: sched_setaffinity");
}

/*
 * Not a real-time class: a provider's own threads must not starve behind two
 * polling processes on a machine with two CPUs. Where the kernel groups
 * processes by session, their nice value counts only among themselves, and it
 * is the group that needs one.
 */
bool bench_priority_raise(void)
{
	FILE *file;

	setsid();
	if (setpriority(PRIO_PROCESS, 0, -20) != 0)
		return false;
	file = fopen("/proc/self/autogroup", "we");
	if (file) {
		fputs("-20", file);
		fclose(file);
	}
	return true;
}

double bench_machine_busy_s(void)
{
	/* user, nice, system, idle, iowait, irq, softirq, steal */
	unsigned long long ticks[8] = { 0 };
	FILE *file = fopen("/proc/stat", "re");
	int got;

	if (!file)
		return 0;
	got = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu",
		     &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4],
		     &ticks[5], &ticks[6], &ticks[7]);
	fclose(file);
	if (got != 8)
		return 0;
	return (double)(ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] +
			ticks[7]) /
	       sysconf(_SC_CLK_TCK);
}

void bench_wait_quiet(double limit_s)
{
	uint64_t start_ns = bench_now_ns();
	uint64_t now_ns = start_ns;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	while ((now_ns - start_ns) / 1e9 < limit_s) {
		double busy_s = bench_machine_busy_s();
		uint64_t from_ns = now_ns;

		usleep(60000);
		now_ns = bench_now_ns();
		busy_s = bench_machine_busy_s() - busy_s;
		/* As fine as ticks of 10 ms can tell. */
		if (busy_s / ((now_ns - from_ns) / 1e9) < 0.1 * cpus)
			return;
	}
}

static void read_cpu_model(char *model, size_t len)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];
	char *value;

	snprintf(model, len, "unknown");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "model name", 10) != 0)
			continue;
		value = strchr(line, ':');
		if (!value)
			continue;
		value += strspn(value, ": \t");
		value[strcspn(value, "\n")] = '\0';
		snprintf(model, len, "%s", value);
		break;
	}
	fclose(file);
}

void bench_host_describe(struct bench_host *host)
{
	struct utsname name;

	if (uname(&name) == 0)
		snprintf(host->kernel, sizeof(host->kernel),
			 "%.40s %.80s %.32s", name.sysname, name.release,
			 name.machine);
	else
		snprintf(host->kernel, sizeof(host->kernel), "unknown");
	read_cpu_model(host->cpu, sizeof(host->cpu));
	host->cpu_cnt = bench_cpu_count();
}
