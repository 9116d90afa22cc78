/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * vrc_bench: options, the order of the samples, and the verdict. bench.h
 * shows the parts; README.md says what is measured and what is not.
 */
#include "bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	EXIT_OK = 0,
	/* vrc failed, or any provider delivered wrong data. */
	EXIT_BAD = 1,
	EXIT_USAGE = 2,
};

enum {
	OPT_QUICK = 256,
	OPT_JSON,
	OPT_QUIET,
	OPT_HUGE_PAGES,
	OPT_NO_PIN,
	OPT_NO_PRIORITY,
	OPT_TARGET_POLLS,
	OPT_POST,
	OPT_PROGRESS,
	OPT_BREAK,
};

static const struct option long_opts[] = {
	{ "address", required_argument, NULL, 'a' },
	{ "providers", required_argument, NULL, 'p' },
	{ "workloads", required_argument, NULL, 'w' },
	{ "rounds", required_argument, NULL, 'r' },
	{ "duration", required_argument, NULL, 'd' },
	{ "timeout", required_argument, NULL, 't' },
	{ "region", required_argument, NULL, 'm' },
	{ "help", no_argument, NULL, 'h' },
	{ "quick", no_argument, NULL, OPT_QUICK },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "quiet", required_argument, NULL, OPT_QUIET },
	{ "huge-pages", no_argument, NULL, OPT_HUGE_PAGES },
	{ "no-pin", no_argument, NULL, OPT_NO_PIN },
	{ "no-priority", no_argument, NULL, OPT_NO_PRIORITY },
	{ "target-polls", no_argument, NULL, OPT_TARGET_POLLS },
	{ "post", required_argument, NULL, OPT_POST },
	{ "progress", required_argument, NULL, OPT_PROGRESS },
	/* Not in the help: for the tests. */
	{ "break", required_argument, NULL, OPT_BREAK },
	{ NULL, 0, NULL, 0 },
};

static const char usage_text[] =
	"usage: vrc_bench [option]...\n"
	"Measures libfabric providers side by side, each over FI_EP_MSG.\n"
	"\n"
	"  -p, --providers LIST  what to compare [vrc,tcp,sockets]\n"
	"  -w, --workloads LIST  of latency,rate,read,write,write-polled "
	"[all]\n"
	"  -a, --address ADDR    a local address to connect over [127.0.0.1]\n"
	"  -r, --rounds N        samples of each kind, interleaved [5]\n"
	"  -d, --duration MS     timed part of each sample [300]\n"
	"  -t, --timeout MS      bound on each wait [10000]\n"
	"  -m, --region MIB      target memory of the RMA workloads [32]\n"
	"      --huge-pages      have that memory in huge pages\n"
	"      --quick           3 rounds of 50 ms, --quiet 1\n"
	"      --json FILE       write all samples as JSON too\n"
	"      --quiet S         in all, wait this long for an idle machine "
	"[10]\n"
	"      --no-pin          let the scheduler place the two processes\n"
	"      --no-priority     do not run the two at nice -20, where "
	"permitted\n"
	"      --target-polls    all RMA targets poll instead of sleeping\n"
	"      --post HOW        64 B messages by fi_inject, fi_send, or\n"
	"                        fi_sendmsg with FI_MORE: inject, send, more\n"
	"                        [inject]\n"
	"      --progress MODE   data progress to ask for: default, auto, "
	"manual\n"
	"                        [manual]\n"
	"\n"
	"Exit status: 0; 1 if vrc failed or data were wrong; 2 for bad "
	"usage.\n";

static int usage(const char *why, const char *what)
{
	fprintf(stderr, "vrc_bench: %s%s%s\nTry: vrc_bench --help\n", why,
		what ? ": " : "", what ? what : "");
	return -1;
}

static int parse_number(const char *text, int low, int high, int *value)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || number < low || number > high)
		return usage("number out of range", text);
	*value = (int)number;
	return 0;
}

/* The index of text among the names, which end with NULL; -1 if not there. */
static int parse_name(const char *text, const char *const *names)
{
	for (int i = 0; names[i]; i++) {
		if (strcmp(text, names[i]) == 0)
			return i;
	}
	return usage("unknown word", text);
}

/* Cuts list, which stays as the names' storage. */
static int parse_providers(char *list, struct bench_opts *opts)
{
	char *state;

	opts->provider_cnt = 0;
	for (char *name = strtok_r(list, ",", &state); name;
	     name = strtok_r(NULL, ",", &state)) {
		if (opts->provider_cnt == BENCH_MAX_PROVIDERS)
			return usage("too many providers", NULL);
		if (strlen(name) >= BENCH_NAME_LEN)
			return usage("provider name too long", name);
		opts->providers[opts->provider_cnt++] = name;
	}
	return opts->provider_cnt ? 0 : usage("no providers", NULL);
}

static int parse_workloads(char *list, struct bench_opts *opts)
{
	static const char *const names[] = { "latency", "rate",		"read",
					     "write",	"write-polled", NULL };
	char *state;

	memset(opts->workloads, 0, sizeof(opts->workloads));
	for (char *name = strtok_r(list, ",", &state); name;
	     name = strtok_r(NULL, ",", &state)) {
		int workload = parse_name(name, names);

		if (workload < 0)
			return -1;
		opts->workloads[workload] = true;
	}
	return 0;
}

static int parse_choice(int opt, const char *text, struct bench_opts *opts)
{
	static const char *const post[] = { "inject", "send", "more", NULL };
	static const char *const progress[] = { "default", "auto", "manual",
						NULL };
	static const char *const breaks[] = { "none", "data", "die", "stall",
					      NULL };
	int index = parse_name(text, opt == OPT_POST	   ? post
				     : opt == OPT_PROGRESS ? progress
							   : breaks);

	if (index < 0)
		return -1;
	if (opt == OPT_POST)
		opts->post = index;
	else if (opt == OPT_PROGRESS)
		opts->progress = index;
	else
		opts->breakage = index;
	return 0;
}

static int parse_opt(int opt, char *arg, struct bench_opts *opts)
{
	switch (opt) {
	case 'a':
		opts->addr = arg;
		return strlen(arg) < BENCH_NAME_LEN
			       ? 0
			       : usage("address too long", arg);
	case 'p':
		return parse_providers(arg, opts);
	case 'w':
		return parse_workloads(arg, opts);
	case 'r':
		return parse_number(arg, 1, BENCH_MAX_ROUNDS, &opts->round_cnt);
	case 'd':
		return parse_number(arg, 1, 60000, &opts->duration_ms);
	case 't':
		return parse_number(arg, 100, 600000, &opts->timeout_ms);
	case 'm':
		if (parse_number(arg, 1, 1024, &opts->region_mib) != 0)
			return -1;
		return opts->region_mib & (opts->region_mib - 1)
			       ? usage("not a power of two", arg)
			       : 0;
	case OPT_QUICK:
		opts->round_cnt = 3;
		opts->duration_ms = 50;
		opts->quiet_s = 1;
		return 0;
	case OPT_JSON:
		opts->json_path = arg;
		return 0;
	case OPT_QUIET:
		return parse_number(arg, 0, 3600, &opts->quiet_s);
	case OPT_HUGE_PAGES:
		opts->huge_pages = true;
		return 0;
	case OPT_NO_PIN:
		opts->pin = false;
		return 0;
	case OPT_NO_PRIORITY:
		opts->priority = false;
		return 0;
	case OPT_TARGET_POLLS:
		opts->target_polls = true;
		return 0;
	case OPT_POST:
	case OPT_PROGRESS:
	case OPT_BREAK:
		return parse_choice(opt, arg, opts);
	default:
		return usage("bad option", NULL);
	}
}

static void keep_result(struct bench_results *results, int provider,
			enum bench_workload workload, int round,
			const struct bench_report *report, bool ok)
{
	struct bench_series *series = &results->series[workload][provider];

	if (report->identity.provider[0])
		results->identity[provider] = report->identity;
	if (ok) {
		series->sample[series->sample_cnt++] = report->sample;
		return;
	}
	series->failed = true;
	series->failed_round = round + 1;
	series->wrong_data = report->wrong_data;
	memcpy(series->reason, report->reason, sizeof(series->reason));
}

static void wait_quiet(const struct bench_opts *opts,
		       struct bench_results *results)
{
	uint64_t start_ns = bench_now_ns();

	bench_wait_quiet(opts->quiet_s - results->waited_s);
	results->waited_s += (bench_now_ns() - start_ns) / 1e9;
}

/*
 * Rounds outside, providers inside: what changes slowly on this machine hits
 * all providers alike. What has failed once is not tried again.
 */
static void run_all(const struct bench_opts *opts,
		    struct bench_results *results)
{
	bool shows = isatty(STDERR_FILENO);

	for (int round = 0; round < opts->round_cnt; round++) {
		for (int w = 0; w < BENCH_WORKLOAD_CNT; w++) {
			for (int i = 0; i < opts->provider_cnt; i++) {
				/* A different provider goes first each time. */
				int p = (i + round) % opts->provider_cnt;
				struct bench_report report;
				bool ok;

				if (!opts->workloads[w] ||
				    results->series[w][p].failed)
					continue;
				if (shows)
					fprintf(stderr,
						"\r\033[Kround %d of %d: %s, "
						"%s ",
						round + 1, opts->round_cnt,
						bench_workload_title(w),
						opts->providers[p]);
				wait_quiet(opts, results);
				ok = bench_pair_run(opts, p, w, &report);
				keep_result(results, p, w, round, &report, ok);
			}
		}
	}
	if (shows)
		fprintf(stderr, "\r\033[K");
}

/* Tried in a child: the parent stays as it is. */
static bool may_raise_priority(void)
{
	int status = 1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(!bench_priority_raise());
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int verdict(const struct bench_opts *opts,
		   const struct bench_results *results)
{
	int ret = EXIT_OK;

	for (int p = 0; p < opts->provider_cnt; p++) {
		for (int w = 0; w < BENCH_WORKLOAD_CNT; w++) {
			const struct bench_series *s = &results->series[w][p];

			if (!s->failed)
				continue;
			if (s->wrong_data)
				fprintf(stderr,
					"vrc_bench: %s delivered WRONG DATA "
					"(%s)\n",
					opts->providers[p],
					bench_workload_key(w));
			if (s->wrong_data ||
			    strcmp(opts->providers[p], "vrc") == 0)
				ret = EXIT_BAD;
		}
	}
	return ret;
}

int main(int argc, char **argv)
{
	static char default_providers[] = "vrc,tcp,sockets";
	static struct bench_results results;
	struct bench_opts opts = {
		.workloads = { true, true, true, true, true },
		.addr = "127.0.0.1",
		.round_cnt = 5,
		.duration_ms = 300,
		.timeout_ms = 10000,
		.quiet_s = 10,
		.region_mib = 32,
		/* Both sides poll or sleep on their CQ: see README.md. */
		.progress = BENCH_PROGRESS_MANUAL,
		.pin = true,
		.priority = true,
	};
	uint64_t start_ns = bench_now_ns();
	int opt;

	parse_providers(default_providers, &opts);
	while ((opt = getopt_long(argc, argv, "a:p:w:r:d:t:m:h", long_opts,
				  NULL)) != -1) {
		if (opt == 'h')
			return fputs(usage_text, stdout) < 0;
		if (parse_opt(opt, optarg, &opts) != 0)
			return EXIT_USAGE;
	}
	if (optind < argc) {
		usage("no arguments expected", argv[optind]);
		return EXIT_USAGE;
	}
	if (opts.timeout_ms < 4 * opts.duration_ms)
		opts.timeout_ms = 4 * opts.duration_ms;
	if (bench_cpu_count() < 2)
		opts.pin = false;
	if (opts.priority)
		opts.priority = may_raise_priority();
	bench_host_describe(&results.host);
	run_all(&opts, &results);
	results.elapsed_s = (bench_now_ns() - start_ns) / 1e9;
	bench_table_print(&opts, &results);
	if (opts.json_path && bench_json_write(&opts, &results) != 0)
		return EXIT_USAGE;
	return verdict(&opts, &results);
}
