/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The table for programs: every sample as it was measured, in ns, bytes and
 * counts, and what it was measured on. Figures are derived by the reader.
 */
#include "bench.h"

#include <stdio.h>
#include <jansson.h>

static json_t *cpu_json(const struct bench_cpu *cpu)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "total_ns",
			 (json_int_t)cpu->total_ns, "user_ns",
			 (json_int_t)cpu->user_ns, "system_ns",
			 (json_int_t)cpu->sys_ns, "context_switches",
			 (json_int_t)cpu->switch_cnt);
}

static json_t *sample_json(const struct bench_sample *sample)
{
	json_t *obj = json_pack("{s:I, s:I, s:I, s:f, s:o, s:o}", "operations",
				(json_int_t)sample->op_cnt, "bytes",
				(json_int_t)sample->byte_cnt, "wall_ns",
				(json_int_t)sample->wall_ns, "foreign_cpus",
				sample->foreign_cpus, "initiator_cpu",
				cpu_json(&sample->initiator), "target_cpu",
				cpu_json(&sample->target));

	if (sample->latency_ns > 0)
		json_object_set_new(obj, "latency_ns",
				    json_real(sample->latency_ns));
	return obj;
}

static json_t *series_json(const struct bench_series *series)
{
	json_t *samples = json_array();
	json_t *obj;

	for (int i = 0; i < series->sample_cnt; i++)
		json_array_append_new(samples, sample_json(&series->sample[i]));
	obj = json_pack("{s:b, s:o}", "ok", !series->failed, "samples",
			samples);
	if (!series->failed)
		return obj;
	json_object_set_new(obj, "failed_round",
			    json_integer(series->failed_round));
	json_object_set_new(obj, "wrong_data",
			    json_boolean(series->wrong_data));
	json_object_set_new(obj, "reason", json_string(series->reason));
	return obj;
}

static json_t *version_json(uint32_t version)
{
	return json_sprintf("%u.%u", version >> 16, version & 0xffff);
}

static json_t *identity_json(const struct bench_identity *id)
{
	if (!id->provider[0])
		return json_null();
	return json_pack(
		"{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:i, s:i, s:i, s:i}",
		"provider", id->provider, "domain", id->domain, "fabric",
		id->fabric, "device", id->device, "data_progress", id->progress,
		"provider_version", version_json(id->provider_version),
		"libfabric_version", version_json(id->libfabric_version),
		"mr_mode", (int)id->mr_mode, "inject_bytes",
		(int)id->inject_len, "tx_depth", (int)id->tx_depth, "rx_depth",
		(int)id->rx_depth);
}

static json_t *options_json(const struct bench_opts *opts)
{
	static const char *const post[] = { "inject", "send", "more" };
	static const char *const progress[] = { "default", "auto", "manual" };

	return json_pack(
		"{s:s, s:i, s:i, s:i, s:i, s:b, s:b, s:b, s:s, s:s}", "address",
		opts->addr, "rounds", opts->round_cnt, "duration_ms",
		opts->duration_ms, "timeout_ms", opts->timeout_ms, "region_mib",
		opts->region_mib, "pinned", opts->pin, "priority",
		opts->priority, "rma_target_polls", opts->target_polls, "post",
		post[opts->post], "progress", progress[opts->progress]);
}

static json_t *results_json(const struct bench_opts *opts,
			    const struct bench_results *results)
{
	json_t *providers = json_object();
	json_t *workloads = json_object();

	for (int p = 0; p < opts->provider_cnt; p++)
		json_object_set_new(providers, opts->providers[p],
				    identity_json(&results->identity[p]));
	for (int w = 0; w < BENCH_WORKLOAD_CNT; w++) {
		json_t *rows;

		if (!opts->workloads[w])
			continue;
		rows = json_object();
		for (int p = 0; p < opts->provider_cnt; p++)
			json_object_set_new(
				rows, opts->providers[p],
				series_json(&results->series[w][p]));
		json_object_set_new(workloads, bench_workload_key(w), rows);
	}
	return json_pack("{s:i, s:o, s:{s:s, s:s, s:i}, s:f, s:f, s:o, s:o}",
			 "format", 1, "options", options_json(opts), "host",
			 "kernel", results->host.kernel, "cpu",
			 results->host.cpu, "cpus", results->host.cpu_cnt,
			 "elapsed_s", results->elapsed_s, "waited_quiet_s",
			 results->waited_s, "providers", providers, "workloads",
			 workloads);
}

int bench_json_write(const struct bench_opts *opts,
		     const struct bench_results *results)
{
	json_t *root = results_json(opts, results);
	int ret = -1;

	if (root)
		ret = json_dump_file(root, opts->json_path,
				     JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	json_decref(root);
	if (ret != 0)
		fprintf(stderr, "vrc_bench: cannot write %s\n",
			opts->json_path);
	return ret;
}
