/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * An MPI program that verifies whatever it gets, for any number of ranks from
 * two on. It is compiled with mpicc by fabtests/mpi/run, which also says over
 * which provider it goes.
 *
 *	verify [NAME ...]		without a name: all tests, no figures
 */
#include <stdarg.h>
#include <string.h>

#include "verify.h"

int world_rank;
int world_size;

void fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "rank %d: %s:%d: ", world_rank, file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

void *alloc(size_t len)
{
	void *p = malloc(len ? len : 1);

	if (!p)
		FAIL("no memory: %zu bytes", len);
	return p;
}

/* No period that a power of two has. */
static uint8_t pattern(size_t i, unsigned int seed)
{
	return (uint8_t)(i * 31 + (i >> 8) * 17 + (i >> 16) * 5 + seed * 101);
}

void fill(uint8_t *buf, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern(i, seed);
}

void check(const char *file, int line, const uint8_t *buf, size_t len,
	   unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != pattern(i, seed))
			fail_at(file, line,
				"byte %zu of %zu is 0x%02x, should be 0x%02x",
				i, len, buf[i], pattern(i, seed));
}

static const struct part {
	const char *name;
	void (*run)(void);
	bool figures;
} parts[] = {
	{ "pingpong", test_pingpong, false },
	{ "all_to_all", test_all_to_all, false },
	{ "unexpected", test_unexpected, false },
	{ "any_source", test_any_source, false },
	{ "collectives", test_collectives, false },
	{ "put_get", test_put_get, false },
	{ "accumulate", test_accumulate, false },
	{ "tickets", test_tickets, false },
	{ "compare_and_swap", test_compare_and_swap, false },
	{ "time_pingpong", time_pingpong, true },
	{ "time_bandwidth", time_bandwidth, true },
	{ "time_one_sided", time_one_sided, true },
	{ "time_collectives", time_collectives, true },
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static void run_part(const struct part *part)
{
	double start;

	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	part->run();
	MPI_Barrier(MPI_COMM_WORLD);
	if (!world_rank && !part->figures)
		printf("ok %s, %d ranks (%.0f ms)\n", part->name, world_size,
		       (MPI_Wtime() - start) * 1e3);
	fflush(stdout);
}

static const struct part *find_part(const char *name)
{
	for (int i = 0; i < PARTS; i++)
		if (!strcmp(parts[i].name, name))
			return &parts[i];
	FAIL("no part is called %s", name);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world_size);
	if (world_size < 2)
		FAIL("%d ranks; it takes two", world_size);
	for (int i = 1; i < argc; i++)
		run_part(find_part(argv[i]));
	for (int i = 0; argc < 2 && i < PARTS; i++)
		if (!parts[i].figures)
			run_part(&parts[i]);
	MPI_Finalize();
	return 0;
}
