/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the fuzzers share. Each is one file with LLVMFuzzerTestOneInput(), linked
 * either with libFuzzer (--enable-fuzz) or with fuzz_main.c, which replays the
 * seeds and a short random run. See README.md.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise that the code under test has broken: the input is a finding. */
#define FUZZ_CHECK(cond)                                                \
	do {                                                            \
		if (!(cond)) {                                          \
			fprintf(stderr, "%s:%d: broken: %s\n",          \
				__FILE__, __LINE__, #cond);             \
			abort();                                        \
		}                                                       \
	} while (0)

/* The input, taken from the front; what is not there reads as 0. */
struct fuzz_in {
	const uint8_t *p;
	size_t left;
};

static inline void fuzz_bytes(struct fuzz_in *in, void *to, size_t len)
{
	size_t have = len < in->left ? len : in->left;

	memset(to, 0, len);
	memcpy(to, in->p, have);
	in->p += have;
	in->left -= have;
}

static inline uint8_t fuzz_u8(struct fuzz_in *in)
{
	uint8_t v;

	fuzz_bytes(in, &v, sizeof(v));
	return v;
}

static inline uint16_t fuzz_u16(struct fuzz_in *in)
{
	uint8_t b[2];

	fuzz_bytes(in, b, sizeof(b));
	return (uint16_t)(b[0] << 8 | b[1]);
}

static inline uint32_t fuzz_u32(struct fuzz_in *in)
{
	uint32_t high = fuzz_u16(in);

	return high << 16 | fuzz_u16(in);
}

static inline uint64_t fuzz_u64(struct fuzz_in *in)
{
	uint64_t high = fuzz_u32(in);

	return high << 32 | fuzz_u32(in);
}

#endif
