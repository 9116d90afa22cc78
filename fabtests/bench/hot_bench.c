/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What is measured: each operation by itself, in stretches, with all that goes
 * on between them left out. A clock is read around each stretch. Instructions
 * are counted by callgrind, which is told to count in hot_counted and to write
 * down what it has when hot_phase_end is called (see the script).
 *
 * Prints one line a phase: the operation, the completions' format, how many
 * were measured, ns each.
 */
#include "hot.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_stat.h"

enum {
	MAX_ROUNDS = 100000,
	WAIT_S = 20,
	IDLE_READS = 64,
	MAX_VAIN = 10000000, /* reads */
};

enum phase {
	SEND,
	INJECT,
	RECV,
	WRITE,
	READ,
	SENT,		/* completions of sends, HOT_READ at a time */
	RECEIVED,	/* of receives */
	EMPTY,		/* a read that finds nothing */
	SEND_COMPLETE,	/* one send, and the one read that finds it done */
	PHASE_CNT,
};

static const char *const phase_name[PHASE_CNT] = {
	"send", "inject", "recv", "write", "read",
	"sent", "received", "empty", "send+complete",
};

static const struct hot_backend *be;
static double clock_ns; /* what reading it costs */

int hot_failed(const char *what, const char *why)
{
	fprintf(stderr, "hot_bench: %s: %s\n", what, why);
	return -1;
}

/* Reads until it has n. They are there, or nearly so. */
static int complete_all(enum hot_end end, int n)
{
	int vain = 0;

	while (n) {
		int got = be->complete(end, (int)min_size(n, HOT_READ));

		if (got < 0)
			return -1;
		if (unlikely(!got && ++vain > MAX_VAIN))
			return hot_failed("completions", "they do not come");
		n -= got;
	}
	return 0;
}

static int complete_none(int n)
{
	for (int i = 0; i < n; i++)
		if (be->complete(HOT_A, 1))
			return hot_failed("empty", "there was a completion");
	return 0;
}

static __noinline int hot_counted(enum phase phase, int n)
{
	switch (phase) {
	case SEND:
	case SEND_COMPLETE:
		return be->send(n);
	case INJECT:
		return be->inject(n);
	case RECV:
		return be->recv(n);
	case WRITE:
		return be->write(n);
	case READ:
		return be->read(n);
	case SENT:
		return complete_all(HOT_A, n);
	case RECEIVED:
		return complete_all(HOT_B, n);
	default:
		return complete_none(n);
	}
}

/* Its name is what callgrind knows. */
static __noinline void hot_phase_end(void)
{
	__asm__ volatile("" ::: "memory");
}

/* Reads in turns until each end has its completions, or in vain. An end that
 * waits for none is not read: what it has is measured later. */
static int settle(int sent, int received)
{
	uint64_t end = bench_now_ns() + WAIT_S * UINT64_C(1000000000);
	int left[HOT_ENDS] = { sent, received };

	while (left[HOT_A] > 0 || left[HOT_B] > 0) {
		for (enum hot_end i = HOT_A; i < HOT_ENDS; i++) {
			int got = left[i] > 0 ? be->complete(i, HOT_READ) : 0;

			if (got < 0)
				return -1;
			left[i] -= got;
		}
		if (bench_now_ns() > end)
			return hot_failed("completions", "they do not come");
	}
	return 0;
}

/* What a provider has signalled for itself is out of the way. */
static int idle(void)
{
	for (int i = 0; i < IDLE_READS; i++)
		for (enum hot_end end = HOT_A; end < HOT_ENDS; end++)
			if (be->complete(end, HOT_READ) < 0)
				return -1;
	return 0;
}

static int before(enum phase phase, int n)
{
	switch (phase) {
	case SEND:
	case INJECT:
		return be->recv(n);
	case SENT:
		return be->recv(n) || be->send(n) || settle(0, n) ? -1 : 0;
	case RECEIVED:
		return be->recv(n) || be->send(n) ? -1 : 0;
	case SEND_COMPLETE:
		return be->recv(n);
	default:
		return 0;
	}
}

static int after(enum phase phase, int n)
{
	switch (phase) {
	case SEND:
		return settle(n, n);
	case INJECT:
		return settle(0, n) ? -1 : idle();
	case RECV:
		return be->send(n) ? -1 : settle(n, n);
	case WRITE:
	case READ:
	case RECEIVED:
		return settle(n, 0);
	default:
		return 0;
	}
}

static int measured(enum phase phase, int n, double *ns)
{
	uint64_t start = bench_now_ns();
	int ret = hot_counted(phase, n);

	*ns += (double)(bench_now_ns() - start) - clock_ns;
	return ret;
}

/* One stretch; what it took, for each. */
static int round_run(enum phase phase, int n, double *ns)
{
	*ns = 0;
	if (before(phase, n) || measured(phase, n, ns))
		return -1;
	if (phase == SEND_COMPLETE &&
	    (settle(0, n) || measured(SENT, n, ns)))
		return -1;
	*ns /= n;
	return after(phase, n);
}

/* The mean of the middle half: a clock may tick in steps of many ns. */
static double middle(double *ns, int cnt)
{
	int from = cnt / 4, to = cnt - from;
	double sum = 0;

	bench_stat_of(ns, (size_t)cnt); /* sorts */
	for (int i = from; i < to; i++)
		sum += ns[i];
	return sum / (to - from);
}

static int phase_run(enum phase phase, const char *format, int rounds)
{
	/* A send and its completion are a pair; nothing else has to wait. */
	int n = phase == SEND_COMPLETE ? 1 : HOT_BATCH;
	double *ns = calloc((size_t)rounds, sizeof(*ns));
	int ret = ns ? idle() : hot_failed("calloc", "no memory");

	for (int i = 0; !ret && i < rounds; i++)
		ret = round_run(phase, n, &ns[i]);
	if (!ret) {
		hot_phase_end();
		printf("%s %s %d %.1f\n", phase_name[phase], format,
		       rounds * n, middle(ns, rounds));
	}
	free(ns);
	return ret;
}

/* Everything once in the first format; what depends on it in the others. */
static int format_run(const struct hot_opts *opts, bool first, int rounds)
{
	int ret = be->open(opts);

	for (enum phase i = 0; !ret && i < PHASE_CNT; i++)
		if (first || i == SENT || i == RECEIVED)
			ret = phase_run(i, opts->format, rounds);
	be->close();
	return ret;
}

static void clock_calibrate(void)
{
	double ns[1000];

	for (size_t i = 0; i < ARRAY_SIZE(ns); i++) {
		uint64_t start = bench_now_ns();

		ns[i] = (double)(bench_now_ns() - start);
	}
	clock_ns = middle(ns, ARRAY_SIZE(ns));
}

static int usage(void)
{
	fprintf(stderr,
		"usage: hot_bench [-s] [-r ROUNDS] -a ADDRESS [PROVIDER]\n"
		"  -s  FI_THREAD_SAFE; without it FI_THREAD_DOMAIN\n"
		"Without a provider: raw verbs.\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const char *const formats[] = { "msg", "context", "data",
					       "tagged" };
	struct hot_opts opts = { 0 };
	long rounds = 2000;
	int c;

	while ((c = getopt(argc, argv, "a:r:s")) != -1) {
		if (c == 'a')
			opts.addr = optarg;
		else if (c == 'r')
			rounds = strtol(optarg, NULL, 10);
		else if (c == 's')
			opts.safe = true;
		else
			return usage();
	}
	if (!opts.addr || argc - optind > 1)
		return usage();
	if (rounds < 1 || rounds > MAX_ROUNDS) {
		fprintf(stderr, "hot_bench: -r %ld: not in 1 .. %d\n", rounds,
			MAX_ROUNDS);
		return 2;
	}
	opts.provider = argv[optind];
	be = opts.provider ? &hot_fi : &hot_raw;
	clock_calibrate();
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		int ret;

		opts.format = formats[i];
		ret = format_run(&opts, i == 0, (int)rounds);
		/* Not every provider has every format; all have the first. */
		if (ret < 0 || (ret && i == 0))
			return 1;
		if (!opts.provider)
			break;
	}
	return 0;
}
