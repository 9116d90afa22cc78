/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * vrc_bench: the same four workloads over several libfabric providers, side
 * by side in one run.
 *
 *   parent (vrc_bench.c)     plans samples, prints; never calls libfabric
 *     bench_pair.c           one sample = two fresh processes on one host
 *       initiator  ----.     bench_side.c: set up, calibrate, measure, verify
 *       target     ----'     bench_ctl.c: the two talk over a socket pair
 *
 * Every sample is one provider, one workload, one connection. Both sides are
 * forked from the parent.
 */
#ifndef BENCH_H
#define BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"

enum {
	BENCH_MSG_LEN = 64,
	BENCH_READ_LEN = 4 << 10,
	BENCH_WRITE_LEN = 1 << 20,

	BENCH_MAX_PROVIDERS = 8,
	BENCH_MAX_ROUNDS = 31,
	BENCH_NAME_LEN = 64,
	BENCH_REASON_LEN = 320,
};

enum bench_workload {
	BENCH_LATENCY,
	BENCH_RATE,
	BENCH_READ,
	BENCH_WRITE,
	BENCH_WRITE_POLLED,
	BENCH_WORKLOAD_CNT,
};

/* How a 64 byte message is posted. */
enum bench_post {
	BENCH_POST_INJECT,
	BENCH_POST_SEND,
	BENCH_POST_MORE,
};

enum bench_progress {
	BENCH_PROGRESS_DEFAULT,
	BENCH_PROGRESS_AUTO,
	BENCH_PROGRESS_MANUAL,
};

/* What the target breaks on purpose, so that the checks can be checked. */
enum bench_break {
	BENCH_BREAK_NONE,
	BENCH_BREAK_DATA,
	BENCH_BREAK_DIE,
	BENCH_BREAK_STALL,
};

struct bench_opts {
	const char *providers[BENCH_MAX_PROVIDERS];
	int provider_cnt;
	bool workloads[BENCH_WORKLOAD_CNT];
	const char *addr;
	const char *json_path;
	int round_cnt;
	int duration_ms;
	int timeout_ms;
	/* The RMA workloads' region; a power of two. */
	int region_mib;
	bool huge_pages;
	/* All waits for a quiet machine together. */
	int quiet_s;
	bool pin;
	/* Give the sides precedence over what else runs here. */
	bool priority;
	bool target_polls;
	enum bench_post post;
	enum bench_progress progress;
	enum bench_break breakage;
};

/* CPU time of a whole process, all its threads. */
struct bench_cpu {
	uint64_t total_ns;
	uint64_t user_ns;
	uint64_t sys_ns;
	uint64_t switch_cnt;
};

/* One measured phase. latency_ns is 0 where the workload has none. */
struct bench_sample {
	double latency_ns;
	uint64_t op_cnt;
	uint64_t byte_cnt;
	uint64_t wall_ns;
	struct bench_cpu initiator;
	struct bench_cpu target;
	/* CPUs that all other processes kept busy meanwhile, on average. */
	double foreign_cpus;
};

/* What libfabric said it gave us. */
struct bench_identity {
	char provider[BENCH_NAME_LEN];
	char domain[BENCH_NAME_LEN];
	char fabric[BENCH_NAME_LEN];
	char device[BENCH_NAME_LEN];
	char progress[BENCH_NAME_LEN];
	uint32_t provider_version;
	uint32_t libfabric_version;
	uint32_t mr_mode;
	uint32_t inject_len;
	uint32_t tx_depth;
	uint32_t rx_depth;
};

/* What a side sends to the parent, once, before it exits. */
struct bench_report {
	int ret;
	/* The other side went away: its own report has the reason. */
	bool peer_lost;
	bool wrong_data;
	char reason[BENCH_REASON_LEN];
	struct bench_identity identity;
	struct bench_sample sample;
};

/* All samples of one provider in one workload. */
struct bench_series {
	struct bench_sample sample[BENCH_MAX_ROUNDS];
	int sample_cnt;
	bool failed;
	bool wrong_data;
	int failed_round;
	char reason[BENCH_REASON_LEN];
};

struct bench_host {
	char kernel[160];
	char cpu[128];
	int cpu_cnt;
};

struct bench_results {
	struct bench_series series[BENCH_WORKLOAD_CNT][BENCH_MAX_PROVIDERS];
	struct bench_identity identity[BENCH_MAX_PROVIDERS];
	struct bench_host host;
	double elapsed_s;
	/* Spent waiting for a quiet machine. */
	double waited_s;
};

/* What one side is told by the parent. */
struct bench_job {
	char provider[BENCH_NAME_LEN];
	char addr[BENCH_NAME_LEN];
	enum bench_workload workload;
	bool is_target;
	bool target_polls;
	bool priority;
	/* -1: not pinned */
	int cpu;
	int duration_ms;
	int timeout_ms;
	size_t region_len;
	bool huge_pages;
	enum bench_post post;
	enum bench_progress progress;
	enum bench_break breakage;
	int peer_fd;
	/* Becomes stderr, unless it is -1. */
	int log_fd;
};

/* bench_pair.c: runs one sample; false, with *report saying why, on failure. */
bool bench_pair_run(const struct bench_opts *opts, int provider,
		    enum bench_workload workload, struct bench_report *report);

/* bench_side.c: all of a side's life; returns the exit status. */
int bench_side_main(const struct bench_job *job, int report_fd);

/* bench_log.c: a file for the sides' stderr, or -1; and what it has to say. */
int bench_log_open(void);
void bench_log_show(int fd, const char *provider, bool failed);

/* bench_measure.c */
uint64_t bench_now_ns(void);
void bench_cpu_read(struct bench_cpu *cpu);
void bench_cpu_sub(struct bench_cpu *later, const struct bench_cpu *earlier);
void bench_host_describe(struct bench_host *host);
int bench_cpu_count(void);
int bench_cpu_nth(int nth);
void bench_cpu_pin(int cpu);
/* Gives this process and its children precedence; false if not permitted. */
bool bench_priority_raise(void);
/* CPU seconds that everything on this machine has used since it booted. */
double bench_machine_busy_s(void);
/* Returns when the machine is nearly idle, or after limit_s seconds. */
void bench_wait_quiet(double limit_s);

/* bench_table.c */
void bench_table_print(const struct bench_opts *opts,
		       const struct bench_results *results);
const char *bench_workload_key(enum bench_workload workload);
const char *bench_workload_title(enum bench_workload workload);

/* bench_json.c: 0, or -1 with a message printed. */
int bench_json_write(const struct bench_opts *opts,
		     const struct bench_results *results);

#endif
