/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hot_bench: what one operation costs, in raw verbs and through libfabric, on
 * the same device. Two connected endpoints of one process, driven by one thread,
 * so that a count of instructions is the same each time.
 *
 *	hot_bench.c	what is measured, and when the counting is on
 *	hot_raw.c	the same by verbs alone
 *	hot_fi.c	the same by libfabric, any provider
 *	hot		runs it on all of them and prints the table
 */
#ifndef HOT_H
#define HOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "compiler.h"

enum {
	HOT_LEN = 64,	/* bytes of every message, write and read */
	HOT_BATCH = 32, /* operations that are measured at a stretch */
	HOT_READ = 16,	/* completions asked for in one call */
	HOT_DEPTH = 256,
};

/* Who: A sends, B receives. */
enum hot_end { HOT_A, HOT_B, HOT_ENDS };

struct hot_opts {
	const char *addr;	/* of this machine, numeric */
	const char *provider;
	const char *format;	/* of completions: "context" and so on */
	bool safe;		/* FI_THREAD_SAFE, else FI_THREAD_DOMAIN */
};

/* One way to do the work. All return -1 with the reason printed; open may return
 * 1 if there is no such format. */
struct hot_backend {
	int (*open)(const struct hot_opts *opts);
	void (*close)(void);
	/* Each does it n times, n at most HOT_BATCH. */
	int (*send)(int n);
	int (*inject)(int n);
	int (*write)(int n);
	int (*read)(int n);
	int (*recv)(int n);
	/* One call that asks for up to max completions, max at most HOT_READ;
	 * how many there were. */
	int (*complete)(enum hot_end end, int max);
};

extern const struct hot_backend hot_raw;
extern const struct hot_backend hot_fi;

/* hot_bench.c: prints what failed and why; -1. */
int hot_failed(const char *what, const char *why);

#endif
