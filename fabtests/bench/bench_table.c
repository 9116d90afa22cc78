/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The table for people: one section per workload, one row per provider, each
 * cell the median of the rounds with the least and the greatest beside it.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#include "bench_stat.h"

enum column {
	COL_LATENCY,
	COL_RATE,
	COL_BANDWIDTH,
	COL_CPU_INITIATOR,
	COL_CPU_TARGET,
	COL_CNT,
};

struct section {
	const char *key;
	const char *title;
	const char *unit[COL_CNT];
	/* What the speed ratio is taken of. */
	enum column headline;
	/* CPU time per GiB; else per operation. */
	bool cpu_per_gib;
};

static const char *const column_title[COL_CNT] = {
	"latency", "rate", "bandwidth", "CPU initiator", "CPU target",
};

static const struct section sections[BENCH_WORKLOAD_CNT] = {
	[BENCH_LATENCY] = {
		.key = "latency",
		.title = "64 B ping-pong",
		.unit = { "us, half RTT", "1000 RTT/s", "", "us/RTT",
			  "us/RTT" },
		.headline = COL_LATENCY,
	},
	[BENCH_RATE] = {
		.key = "rate",
		.title = "64 B message rate",
		.unit = { "", "1000 msg/s", "MiB/s", "us/msg", "us/msg" },
		.headline = COL_RATE,
	},
	[BENCH_READ] = {
		.key = "read",
		.title = "4 KiB random RMA read, 16 in flight (latency: 1)",
		.unit = { "us", "1000 reads/s", "MiB/s", "ms/GiB", "ms/GiB" },
		.headline = COL_RATE,
		.cpu_per_gib = true,
	},
	[BENCH_WRITE] = {
		.key = "write",
		.title = "1 MiB sequential RMA write, 8 in flight",
		.unit = { "", "1000 writes/s", "MiB/s", "ms/GiB", "ms/GiB" },
		.headline = COL_BANDWIDTH,
		.cpu_per_gib = true,
	},
	[BENCH_WRITE_POLLED] = {
		.key = "write-polled",
		.title = "1 MiB sequential RMA write, 8 in flight, target polls",
		.unit = { "", "1000 writes/s", "MiB/s", "ms/GiB", "ms/GiB" },
		.headline = COL_BANDWIDTH,
		.cpu_per_gib = true,
	},
};

const char *bench_workload_key(enum bench_workload workload)
{
	return sections[workload].key;
}

const char *bench_workload_title(enum bench_workload workload)
{
	return sections[workload].title;
}

static double cpu_cost(const struct section *section,
		       const struct bench_sample *sample,
		       const struct bench_cpu *cpu)
{
	if (section->cpu_per_gib)
		return cpu->total_ns / 1e6 / (sample->byte_cnt / 0x1p30);
	return cpu->total_ns / 1e3 / sample->op_cnt;
}

/* Negative where the workload does not measure it. */
static double metric(const struct section *section,
		     const struct bench_sample *sample, enum column column)
{
	double wall_s = sample->wall_ns / 1e9;

	if (!section->unit[column][0])
		return -1;
	switch (column) {
	case COL_LATENCY:
		return sample->latency_ns / 1e3;
	case COL_RATE:
		return sample->op_cnt / wall_s / 1e3;
	case COL_BANDWIDTH:
		return sample->byte_cnt / wall_s / 0x1p20;
	case COL_CPU_INITIATOR:
		return cpu_cost(section, sample, &sample->initiator);
	case COL_CPU_TARGET:
		return cpu_cost(section, sample, &sample->target);
	case COL_CNT:
		break;
	}
	return -1;
}

static struct bench_stat stat_of(const struct section *section,
				 const struct bench_series *series,
				 enum column column)
{
	double value[BENCH_MAX_ROUNDS];

	for (int i = 0; i < series->sample_cnt; i++)
		value[i] = metric(section, &series->sample[i], column);
	return bench_stat_of(value, series->sample_cnt);
}

static void print_cell(const struct section *section,
		       const struct bench_series *series, enum column column)
{
	struct bench_stat stat = stat_of(section, series, column);
	char mid[24], low[24], high[24], cell[80];

	bench_format3(mid, sizeof(mid), stat.median);
	if (stat.median < 0)
		snprintf(cell, sizeof(cell), "%s", mid);
	else
		snprintf(cell, sizeof(cell), "%s (%s..%s)", mid,
			 bench_format3(low, sizeof(low), stat.min),
			 bench_format3(high, sizeof(high), stat.max));
	printf("  %22s", cell);
}

/* Ratio of medians, so that the reader can check it in the table. */
static void print_ratio(const struct section *section,
			const struct bench_series *series,
			const struct bench_series *base, enum column column)
{
	double mine = stat_of(section, series, column).median;
	double other;
	double ratio;
	char text[24];

	if (!base || base->sample_cnt == 0) {
		printf("  %8s", "-");
		return;
	}
	other = stat_of(section, base, column).median;
	ratio = column == COL_LATENCY ? bench_ratio(other, mine)
				      : bench_ratio(mine, other);
	printf("  %7sx", bench_format3(text, sizeof(text), ratio));
}

static void print_row(const struct section *section, const char *provider,
		      const struct bench_series *series,
		      const struct bench_series *base)
{
	printf("  %-8s", provider);
	if (series->sample_cnt > 0) {
		for (enum column c = 0; c < COL_CNT; c++)
			print_cell(section, series, c);
		print_ratio(section, series, base, section->headline);
		print_ratio(section, series, base, COL_CPU_TARGET);
		printf("\n");
	}
	if (series->failed && series->sample_cnt > 0)
		printf("  %-8s", "");
	if (series->failed)
		printf("  FAILED in round %d: %s\n", series->failed_round,
		       series->reason);
}

static const struct bench_series *find_base(const struct bench_opts *opts,
					    const struct bench_series *series)
{
	for (int i = 0; i < opts->provider_cnt; i++) {
		if (strcmp(opts->providers[i], "tcp") == 0)
			return &series[i];
	}
	return NULL;
}

static void print_section(const struct bench_opts *opts,
			  const struct section *section,
			  const struct bench_series *series)
{
	const struct bench_series *base = find_base(opts, series);

	printf("\n%s\n", section->title);
	printf("  %-8s", "");
	for (enum column c = 0; c < COL_CNT; c++)
		printf("  %22s", column_title[c]);
	printf("  %8s  %8s\n  %-8s", "speed", "CPU tgt", "");
	for (enum column c = 0; c < COL_CNT; c++)
		printf("  %22s", section->unit[c][0] ? section->unit[c] : "-");
	printf("  %8s  %8s\n", "/ tcp", "/ tcp");
	for (int i = 0; i < opts->provider_cnt; i++)
		print_row(section, opts->providers[i], &series[i], base);
}

static void print_identity(const char *provider,
			   const struct bench_identity *id)
{
	if (!id->provider[0]) {
		printf("%-8s  not available: see its rows\n", provider);
		return;
	}
	printf("%-8s  runs on %s", provider, id->domain);
	if (id->device[0] && strcmp(id->device, id->domain) != 0)
		printf(" (device %s)", id->device);
	printf(", fabric %s, version %u.%u, %s, mr_mode 0x%x, inject %u B\n",
	       id->fabric, id->provider_version >> 16,
	       id->provider_version & 0xffff, id->progress, id->mr_mode,
	       id->inject_len);
}

static void print_noise(const struct bench_opts *opts,
			const struct bench_results *results)
{
	double value[BENCH_WORKLOAD_CNT * BENCH_MAX_PROVIDERS *
		     BENCH_MAX_ROUNDS];
	struct bench_stat stat;
	size_t cnt = 0;

	for (int w = 0; w < BENCH_WORKLOAD_CNT; w++) {
		for (int p = 0; p < opts->provider_cnt; p++) {
			const struct bench_series *s = &results->series[w][p];

			for (int i = 0; i < s->sample_cnt; i++)
				value[cnt++] = s->sample[i].foreign_cpus;
		}
	}
	stat = bench_stat_of(value, cnt);
	printf("Noise: other processes and the kernel kept %.2f of %d CPUs "
	       "busy (median of samples; worst %.2f).\n",
	       stat.median, results->host.cpu_cnt, stat.max);
	if (stat.median > 0.15)
		printf("       That is a lot: figures from a quieter machine "
		       "are worth more.\n");
}

static void print_legend(const struct bench_opts *opts)
{
	printf("\n"
	       "Cells: median (min..max) of %d rounds; each is a new pair of "
	       "processes on this host,\n"
	       "measured for %d ms after warm-up, its data checked outside of "
	       "the timed part.\n"
	       "CPU: time of the whole process with all its threads, user and "
	       "system; not what the\n"
	       "kernel does on its own account. Initiators poll; targets poll "
	       "in the message\n"
	       "workloads and where it says so, else they %s.\n"
	       "RMA goes to %d MiB of the target's memory, in %s pages.\n"
	       "speed: how many times faster than tcp, of the medians "
	       "(latency, rate or bandwidth).\n"
	       "CPU tgt: CPU time of the target as a multiple of tcp's.\n",
	       opts->round_cnt, opts->duration_ms,
	       opts->target_polls ? "poll as well (--target-polls)"
				  : "sleep in fi_cq_sread",
	       opts->region_mib, opts->huge_pages ? "huge" : "ordinary");
}

void bench_table_print(const struct bench_opts *opts,
		       const struct bench_results *results)
{
	printf("%s, %d x %s, FI_EP_MSG over %s, two processes%s%s\n",
	       results->host.kernel, results->host.cpu_cnt, results->host.cpu,
	       opts->addr, opts->pin ? ", pinned" : "",
	       opts->priority ? ", nice -20" : "");
	for (int i = 0; i < opts->provider_cnt; i++)
		print_identity(opts->providers[i], &results->identity[i]);
	for (int w = 0; w < BENCH_WORKLOAD_CNT; w++) {
		if (opts->workloads[w])
			print_section(opts, &sections[w], results->series[w]);
	}
	print_legend(opts);
	print_noise(opts, results);
	fflush(stdout);
}
