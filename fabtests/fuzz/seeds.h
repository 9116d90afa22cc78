/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Seeds: files of hexadecimal bytes, one input a line. Blanks between bytes and
 * empty lines mean nothing, '#' begins a comment.
 */
#ifndef FUZZ_SEEDS_H
#define FUZZ_SEEDS_H

#include <stddef.h>
#include <stdint.h>

enum {
	SEED_MAX = 4096,
	SEEDS_MAX = 512,
};

struct seed {
	size_t len;
	uint8_t bytes[SEED_MAX];
};

struct seeds {
	size_t cnt;
	struct seed *seed;		/* by malloc */
};

/* Returns 0, or -1 after saying on stderr what is wrong where. */
int seeds_read(const char *path, struct seeds *seeds);

#endif
