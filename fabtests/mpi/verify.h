/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the parts of the MPI program share: patterns whose bytes depend on who
 * sent them and on where they stand, and assertions that name the rank.
 */
#ifndef VERIFY_H
#define VERIFY_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern int world_rank;
extern int world_size;

/* Ends the whole program. */
void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define ASSERT_EQ(a, b)                                                     \
	do {                                                                \
		long long a_ = (long long)(a), b_ = (long long)(b);         \
									    \
		if (a_ != b_)                                               \
			FAIL("%s is %lld, should be %s (%lld)", #a, a_, #b, \
			     b_);                                           \
	} while (0)

void *alloc(size_t len);
void fill(uint8_t *buf, size_t len, unsigned int seed);
/* Every byte is compared. */
void check(const char *file, int line, const uint8_t *buf, size_t len,
	   unsigned int seed);
#define ASSERT_FILLED(buf, len, seed) \
	check(__FILE__, __LINE__, buf, len, seed)

/* msg.c */
void test_pingpong(void);
void test_all_to_all(void);
void test_unexpected(void);
void test_any_source(void);
void test_collectives(void);

/* rma.c */
void test_put_get(void);
void test_accumulate(void);
void test_tickets(void);
void test_compare_and_swap(void);

/* figures.c */
void time_pingpong(void);
void time_bandwidth(void);
void time_one_sided(void);
void time_collectives(void);

#endif
