/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Figures between ranks 0 and 1; the others wait. Medians of several rounds. */
#include "verify.h"

enum { ROUNDS = 25, LONGEST = 4 << 20, WINDOW = 32 };

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median of what rank 0 measured, in microseconds, with the range. */
static void print_times(const char *what, size_t len, double *us, double bytes)
{
	if (world_rank)
		return;
	qsort(us, ROUNDS, sizeof(*us), ascending);
	printf("%-24s %8zu B %10.2f us (%.2f..%.2f)", what, len,
	       us[ROUNDS / 2], us[0], us[ROUNDS - 1]);
	if (bytes > 0)
		printf(" %9.1f MiB/s",
		       bytes / us[ROUNDS / 2] * 1e6 / (1 << 20));
	putchar('\n');
}

static int turns_for(size_t len)
{
	return len <= 4096 ? 100 : len <= 65536 ? 20 : 5;
}

static void pingpong(uint8_t *buf, size_t len, int turns)
{
	for (int i = 0; i < turns; i++) {
		if (!world_rank)
			MPI_Send(buf, (int)len, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(buf, (int)len, MPI_BYTE, world_rank ^ 1, 0,
			 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (world_rank)
			MPI_Send(buf, (int)len, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
}

void time_pingpong(void)
{
	static const size_t sizes[] = { 0, 8, 64, 1024, 4096, 16384, 65536,
					1 << 20, 4 << 20 };
	uint8_t *buf = alloc(LONGEST);
	double us[ROUNDS];

	fill(buf, LONGEST, 1);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		int turns = turns_for(sizes[s]);

		for (int n = -1; n < ROUNDS && world_rank < 2; n++) {
			double start = MPI_Wtime();

			pingpong(buf, sizes[s], turns);
			if (n >= 0)
				us[n] = (MPI_Wtime() - start) / turns / 2 * 1e6;
		}
		print_times("half a round trip", sizes[s], us, 0);
	}
	free(buf);
}

static void stream(uint8_t *buf, size_t len)
{
	MPI_Request requests[WINDOW];

	for (int i = 0; i < WINDOW; i++) {
		if (!world_rank)
			MPI_Isend(buf, (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD,
				  &requests[i]);
		else
			MPI_Irecv(buf, (int)len, MPI_BYTE, 0, 1, MPI_COMM_WORLD,
				  &requests[i]);
	}
	MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	if (!world_rank)
		MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	else
		MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
}

void time_bandwidth(void)
{
	static const size_t sizes[] = { 8, 4096, 65536, 1 << 20, 4 << 20 };
	uint8_t *buf = alloc(LONGEST);
	double us[ROUNDS];

	fill(buf, LONGEST, 1);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (int n = -1; n < ROUNDS && world_rank < 2; n++) {
			double start = MPI_Wtime();

			stream(buf, sizes[s]);
			if (n >= 0)
				us[n] = (MPI_Wtime() - start) * 1e6;
		}
		print_times("32 messages", sizes[s], us,
			    (double)WINDOW * (double)sizes[s]);
	}
	free(buf);
}

void time_one_sided(void)
{
	static const size_t sizes[] = { 8, 4096, 65536, 1 << 20 };
	uint8_t *buf = alloc(LONGEST);
	uint8_t *mine = alloc(LONGEST);
	int64_t one = 1, old;
	double us[ROUNDS];
	MPI_Win win;

	fill(mine, LONGEST, 1);
	fill(buf, LONGEST, 1);
	MPI_Win_create(mine, LONGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_lock_all(0, win);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (int get = 0; get < 2; get++) {
			int turns = turns_for(sizes[s]);
			int len = (int)sizes[s];

			for (int n = -1; n < ROUNDS && !world_rank; n++) {
				double start = MPI_Wtime();

				for (int i = 0; i < turns; i++) {
					if (get)
						MPI_Get(buf, len, MPI_BYTE, 1,
							0, len, MPI_BYTE, win);
					else
						MPI_Put(buf, len, MPI_BYTE, 1,
							0, len, MPI_BYTE, win);
					MPI_Win_flush(1, win);
				}
				if (n >= 0)
					us[n] = (MPI_Wtime() - start) / turns *
						1e6;
			}
			print_times(get ? "get and flush" : "put and flush",
				    sizes[s], us, (double)sizes[s]);
			MPI_Barrier(MPI_COMM_WORLD);
		}
	for (int n = -1; n < ROUNDS && !world_rank; n++) {
		double start = MPI_Wtime();

		for (int i = 0; i < 200; i++) {
			MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 1, 0, MPI_SUM,
					 win);
			MPI_Win_flush(1, win);
		}
		if (n >= 0)
			us[n] = (MPI_Wtime() - start) / 200 * 1e6;
	}
	print_times("fetch_and_op and flush", 8, us, 0);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	free(buf);
	free(mine);
}

void time_collectives(void)
{
	static const size_t sizes[] = { 8, 4096, 1 << 20 };
	uint8_t *in = alloc(LONGEST);
	uint8_t *out = alloc(LONGEST);
	double us[ROUNDS];

	fill(out, LONGEST, 1);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (int n = -1; n < ROUNDS; n++) {
			double start = MPI_Wtime();

			for (int i = 0; i < 10; i++)
				MPI_Allreduce(out, in, (int)sizes[s] / 8,
					      MPI_INT64_T, MPI_SUM,
					      MPI_COMM_WORLD);
			if (n >= 0)
				us[n] = (MPI_Wtime() - start) / 10 * 1e6;
		}
		print_times("allreduce", sizes[s], us, 0);
	}
	free(in);
	free(out);
}
