/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* One-sided communication, with all three kinds of synchronisation. */
#include "verify.h"

static MPI_Win window(void *memory, size_t len)
{
	MPI_Win win;

	MPI_Win_create(memory, (MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
		       &win);
	return win;
}

/* Each puts into its right neighbour's window and reads it back from there. */
static void put_get(size_t len, bool fenced)
{
	uint8_t *mine = alloc(len);
	uint8_t *buf = alloc(len);
	int to = (world_rank + 1) % world_size;
	int from = (world_rank + world_size - 1) % world_size;
	MPI_Win win;

	fill(mine, len, 1000);
	fill(buf, len, (unsigned int)world_rank);
	win = window(mine, len);
	if (fenced)
		MPI_Win_fence(0, win);
	else
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
	MPI_Put(buf, (int)len, MPI_BYTE, to, 0, (int)len, MPI_BYTE, win);
	if (fenced)
		MPI_Win_fence(0, win);
	else
		MPI_Win_unlock(to, win);
	fill(buf, len, 2000);
	if (fenced) {
		MPI_Get(buf, (int)len, MPI_BYTE, to, 0, (int)len, MPI_BYTE,
			win);
		MPI_Win_fence(0, win);
	} else {
		MPI_Win_lock_all(0, win);
		MPI_Get(buf, (int)len, MPI_BYTE, to, 0, (int)len, MPI_BYTE,
			win);
		MPI_Win_flush(to, win);
		MPI_Win_unlock_all(win);
	}
	ASSERT_FILLED(buf, len, (unsigned int)world_rank);
	MPI_Win_free(&win);
	ASSERT_FILLED(mine, len, (unsigned int)from);
	free(mine);
	free(buf);
}

void test_put_get(void)
{
	static const size_t sizes[] = { 1, 8, 1000, 16384, 100001, 4 << 20 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		put_get(sizes[i], true);
		put_get(sizes[i], false);
	}
}

/* All add to all; nothing is lost. */
void test_accumulate(void)
{
	enum { COUNT = 64, ROUNDS = 20 };
	int64_t mine[COUNT] = { 0 };
	int64_t add[COUNT];
	MPI_Win win = window(mine, sizeof(mine));

	for (int i = 0; i < COUNT; i++)
		add[i] = world_rank + i;
	MPI_Win_fence(0, win);
	for (int n = 0; n < ROUNDS; n++)
		for (int to = 0; to < world_size; to++)
			MPI_Accumulate(add, COUNT, MPI_INT64_T, to, 0, COUNT,
				       MPI_INT64_T, MPI_SUM, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < COUNT; i++)
		ASSERT_EQ(mine[i], (int64_t)ROUNDS * world_size *
					   (world_size - 1) / 2 +
				   (int64_t)ROUNDS * world_size * i);
	MPI_Win_free(&win);
}

/* Tickets of a counter at rank 0: each is given out once. */
void test_tickets(void)
{
	enum { EACH = 50 };
	int total = EACH * world_size;
	int64_t counter[2] = { 0, 0 };
	int64_t *taken = alloc(EACH * sizeof(*taken));
	int64_t *all = alloc(total * sizeof(*all));
	char *seen = calloc(total, 1);
	const int64_t one = 1;
	MPI_Win win = window(counter, sizeof(counter));

	if (!seen)
		FAIL("no memory");
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < EACH; i++) {
		MPI_Fetch_and_op(&one, &taken[i], MPI_INT64_T, 0, 0, MPI_SUM,
				 win);
		MPI_Win_flush(0, win);
		if (i && taken[i] <= taken[i - 1])
			FAIL("ticket %lld after %lld", (long long)taken[i],
			     (long long)taken[i - 1]);
	}
	MPI_Win_unlock_all(win);
	MPI_Gather(taken, EACH, MPI_INT64_T, all, EACH, MPI_INT64_T, 0,
		   MPI_COMM_WORLD);
	for (int i = 0; !world_rank && i < total; i++) {
		if (all[i] < 0 || all[i] >= total || seen[all[i]]++)
			FAIL("ticket %lld of %d, or it was given out before",
			     (long long)all[i], total);
	}
	MPI_Win_free(&win);
	if (!world_rank)
		ASSERT_EQ(counter[0], total);
	free(taken);
	free(all);
	free(seen);
}

/* A value goes round by compare-and-swap; get_accumulate sees the last one. */
void test_compare_and_swap(void)
{
	enum { TURNS = 10 };
	int64_t word[2] = { 0, 0 };
	int64_t old, now, last = (int64_t)TURNS * world_size;
	MPI_Win win = window(word, sizeof(word));

	MPI_Win_lock_all(0, win);
	for (int64_t turn = 0; turn < TURNS; turn++) {
		int64_t want = turn * world_size + world_rank;

		now = want + 1;
		do {
			MPI_Compare_and_swap(&now, &want, &old, MPI_INT64_T, 0,
					     0, win);
			MPI_Win_flush(0, win);
		} while (old != want);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	now = 1;
	MPI_Get_accumulate(&now, 1, MPI_INT64_T, &old, 1, MPI_INT64_T, 0, 0, 1,
			   MPI_INT64_T, MPI_NO_OP, win);
	MPI_Get_accumulate(&now, 1, MPI_INT64_T, &word[1], 1, MPI_INT64_T, 0, 8,
			   1, MPI_INT64_T, MPI_SUM, win);
	MPI_Win_flush_all(win);
	MPI_Win_unlock_all(win);
	ASSERT_EQ(old, last);
	MPI_Win_free(&win);
}
