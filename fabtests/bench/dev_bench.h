/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dev_bench: what a verbs device costs over the bare means that it is made of.
 * Plain verbs and rdma_cm, so it measures whatever device they find.
 *
 *	dev_bench.c	pairs of processes, rounds, the table
 *	dev_bare.c	a ring in shared memory, process_vm_writev, a TCP stream
 *	dev_verbs.c	the same work by verbs
 *
 * A sample is two fresh processes, A and B, that share a socket pair and, for
 * the bare ring, memory. A returns the figure.
 */
#ifndef DEV_BENCH_H
#define DEV_BENCH_H

#include "bench.h"

enum {
	DEV_SMALL = 64,
	DEV_STREAM = 64 << 10,
	DEV_WRITE = 1 << 20,
	/* Written and streamed to in turn, so that it is the same cold or warm
	 * memory for both. */
	DEV_REGION = 16 << 20,
	DEV_CHAIN = 32,
};

struct dev_side {
	bool is_a;
	/* Of the socket pair: the sides' own talk, one byte and more at a time. */
	int ctl;
	uint64_t duration_ns;
	const char *addr;
	/* Shared by the two sides: DEV_SHARED_LEN bytes, zero at the start. */
	void *shared;
};

enum {
	DEV_SHARED_LEN = 1 << 20,
};

/* Runs one side; *value is A's figure. 0, or -1 with a message printed. */
typedef int (*dev_fn)(const struct dev_side *side, double *value);

/* dev_bare.c: ns per half round trip, MiB/s, MiB/s. */
int dev_bare_ring(const struct dev_side *side, double *value);
int dev_bare_writev(const struct dev_side *side, double *value);
int dev_bare_stream(const struct dev_side *side, double *value);

/* dev_verbs.c: ns per half round trip, MiB/s, MiB/s, 1000 messages/s. */
int dev_verbs_latency(const struct dev_side *side, double *value);
int dev_verbs_write(const struct dev_side *side, double *value);
int dev_verbs_stream(const struct dev_side *side, double *value);
int dev_verbs_chain(const struct dev_side *side, double *value);

/* dev_bench.c: all of len bytes, or -1 with a message printed. */
int dev_tell(const struct dev_side *side, const void *buf, size_t len);
int dev_hear(const struct dev_side *side, void *buf, size_t len);
/* Whether dev_hear() would not have to wait. */
bool dev_heard(const struct dev_side *side);
/* Both sides have come this far. */
int dev_meet(const struct dev_side *side);

/* Region memory with every page there; NULL with a message printed. */
void *dev_region(size_t len);

/* A loop that looks at the clock now and then. */
static inline bool dev_time_over(uint64_t start_ns, const struct dev_side *side)
{
	return bench_now_ns() - start_ns >= side->duration_ns;
}

#endif
