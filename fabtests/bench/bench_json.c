/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The table for programs: every sample as it was measured, in ns, bytes and
 * counts, and what it was measured on. Figures are derived by the reader.
 */
#include "bench.h"

#include <stdio.h>
#include <jansson.h>

static void set_int(json_t *obj, const char *key, uint64_t value)
{
	json_object_set_new(obj, key, json_integer((json_int_t)value));
}

static void set_str(json_t *obj, const char *key, const char *value)
{
	json_object_set_new(obj, key, json_string(value));
}

static void set_bool(json_t *obj, const char *key, bool value)
{
	json_object_set_new(obj, key, json_boolean(value));
}

/* libfabric's way of packing a version. */
static void set_version(json_t *obj, const char *key, uint32_t version)
{
	json_object_set_new(
		obj, key,
		json_sprintf("%u.%u", version >> 16, version & 0xffff));
}

static json_t *cpu_json(const struct bench_cpu *cpu)
{
	json_t *obj = json_object();

	set_int(obj, "total_ns", cpu->total_ns);
	set_int(obj, "user_ns", cpu->user_ns);
	set_int(obj, "system_ns", cpu->sys_ns);
	set_int(obj, "context_switches", cpu->switch_cnt);
	return obj;
}

static json_t *sample_json(const struct bench_sample *sample)
{
	json_t *obj = json_object();

	set_int(obj, "operations", sample->op_cnt);
	set_int(obj, "bytes", sample->byte_cnt);
	set_int(obj, "wall_ns", sample->wall_ns);
	if (sample->latency_ns > 0)
		json_object_set_new(obj, "latency_ns",
				    json_real(sample->latency_ns));
	json_object_set_new(obj, "initiator_cpu", cpu_json(&sample->initiator));
	json_object_set_new(obj, "target_cpu", cpu_json(&sample->target));
	json_object_set_new(obj, "foreign_cpus",
			    json_real(sample->foreign_cpus));
	return obj;
}

static json_t *series_json(const struct bench_series *series)
{
	json_t *obj = json_object();
	json_t *samples = json_array();

	for (int i = 0; i < series->sample_cnt; i++)
		json_array_append_new(samples, sample_json(&series->sample[i]));
	set_bool(obj, "ok", !series->failed);
	json_object_set_new(obj, "samples", samples);
	if (!series->failed)
		return obj;
	set_int(obj, "failed_round", series->failed_round);
	set_bool(obj, "wrong_data", series->wrong_data);
	set_str(obj, "reason", series->reason);
	return obj;
}

static json_t *identity_json(const struct bench_identity *id)
{
	json_t *obj;

	if (!id->provider[0])
		return json_null();
	obj = json_object();
	set_str(obj, "provider", id->provider);
	set_version(obj, "provider_version", id->provider_version);
	set_version(obj, "libfabric_version", id->libfabric_version);
	set_str(obj, "fabric", id->fabric);
	set_str(obj, "domain", id->domain);
	set_str(obj, "device", id->device);
	set_str(obj, "data_progress", id->progress);
	set_int(obj, "mr_mode", id->mr_mode);
	set_int(obj, "inject_bytes", id->inject_len);
	set_int(obj, "tx_depth", id->tx_depth);
	set_int(obj, "rx_depth", id->rx_depth);
	return obj;
}

static json_t *options_json(const struct bench_opts *opts)
{
	static const char *const post[] = { "inject", "send", "more" };
	static const char *const progress[] = { "default", "auto", "manual" };
	json_t *obj = json_object();

	set_str(obj, "address", opts->addr);
	set_int(obj, "rounds", opts->round_cnt);
	set_int(obj, "duration_ms", opts->duration_ms);
	set_int(obj, "timeout_ms", opts->timeout_ms);
	set_int(obj, "region_mib", opts->region_mib);
	set_bool(obj, "huge_pages", opts->huge_pages);
	set_bool(obj, "pinned", opts->pin);
	set_bool(obj, "priority", opts->priority);
	set_bool(obj, "all_targets_poll", opts->target_polls);
	set_str(obj, "post", post[opts->post]);
	set_str(obj, "progress", progress[opts->progress]);
	return obj;
}

static json_t *host_json(const struct bench_host *host)
{
	json_t *obj = json_object();

	set_str(obj, "kernel", host->kernel);
	set_str(obj, "cpu", host->cpu);
	set_int(obj, "cpus", host->cpu_cnt);
	return obj;
}

static json_t *results_json(const struct bench_opts *opts,
			    const struct bench_results *results)
{
	json_t *root = json_object();
	json_t *providers = json_object();
	json_t *workloads = json_object();

	for (int p = 0; p < opts->provider_cnt; p++)
		json_object_set_new(providers, opts->providers[p],
				    identity_json(&results->identity[p]));
	for (int w = 0; w < BENCH_WORKLOAD_CNT; w++) {
		json_t *rows = json_object();

		for (int p = 0; p < opts->provider_cnt && opts->workloads[w];
		     p++)
			json_object_set_new(
				rows, opts->providers[p],
				series_json(&results->series[w][p]));
		if (opts->workloads[w])
			json_object_set(workloads, bench_workload_key(w), rows);
		json_decref(rows);
	}
	set_int(root, "format", 1);
	json_object_set_new(root, "options", options_json(opts));
	json_object_set_new(root, "host", host_json(&results->host));
	json_object_set_new(root, "elapsed_s", json_real(results->elapsed_s));
	json_object_set_new(root, "waited_quiet_s",
			    json_real(results->waited_s));
	json_object_set_new(root, "providers", providers);
	json_object_set_new(root, "workloads", workloads);
	return root;
}

int bench_json_write(const struct bench_opts *opts,
		     const struct bench_results *results)
{
	json_t *root = results_json(opts, results);
	int ret = json_dump_file(root, opts->json_path,
				 JSON_INDENT(1) | JSON_REAL_PRECISION(9));

	json_decref(root);
	if (ret != 0)
		fprintf(stderr, "vrc_bench: cannot write %s\n",
			opts->json_path);
	return ret;
}
