/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Messages: both sides of what a provider's endpoints are used for by MPI, eager
 * and rendezvous, expected and not.
 */
#include "verify.h"

/* Around where ofi_rxm changes its way: injected, eager, in parts, rendezvous. */
static const size_t sizes[] = {
	0, 1, 8, 64, 255, 1024, 4096, 16383, 16384, 16385, 65536, 131073,
	(1 << 20) + 3, 4 << 20,
};
enum {
	SIZES = sizeof(sizes) / sizeof(sizes[0]),
	LONGEST = 4 << 20,
	ROUNDS = 5,
};

static unsigned int seed_of(int from, int to, int n)
{
	return (unsigned int)(from * 7 + to * 13 + n);
}

static void exchange(uint8_t *out, uint8_t *in, size_t len, int peer, int n)
{
	MPI_Status status;
	int got;

	fill(out, len, seed_of(world_rank, peer, n));
	if (world_rank < peer) {
		MPI_Send(out, (int)len, MPI_BYTE, peer, n, MPI_COMM_WORLD);
		MPI_Recv(in, LONGEST, MPI_BYTE, peer, n, MPI_COMM_WORLD,
			 &status);
	} else {
		MPI_Recv(in, LONGEST, MPI_BYTE, peer, n, MPI_COMM_WORLD,
			 &status);
		MPI_Send(out, (int)len, MPI_BYTE, peer, n, MPI_COMM_WORLD);
	}
	MPI_Get_count(&status, MPI_BYTE, &got);
	ASSERT_EQ(got, len);
	ASSERT_EQ(status.MPI_SOURCE, peer);
	ASSERT_FILLED(in, len, seed_of(peer, world_rank, n));
}

/* Pairs of neighbours; the last of an odd number looks on. */
void test_pingpong(void)
{
	int peer = world_rank ^ 1;
	uint8_t *out = alloc(LONGEST);
	uint8_t *in = alloc(LONGEST);

	for (int s = 0; s < SIZES && peer < world_size; s++)
		for (int n = 0; n < ROUNDS; n++)
			exchange(out, in, sizes[s], peer, s * ROUNDS + n);
	free(out);
	free(in);
}

/* All at once, so that every two connect to each other at the same time. */
void test_all_to_all(void)
{
	enum { LEN = 40000 };
	MPI_Request *requests = alloc(2 * world_size * sizeof(*requests));
	uint8_t *out = alloc((size_t)world_size * LEN);
	uint8_t *in = alloc((size_t)world_size * LEN);

	for (int len = 100; len <= LEN; len += LEN - 100) {
		for (int peer = 0; peer < world_size; peer++)
			MPI_Irecv(in + (size_t)peer * LEN, len, MPI_BYTE, peer,
				  len, MPI_COMM_WORLD, &requests[peer]);
		for (int peer = 0; peer < world_size; peer++) {
			uint8_t *to = out + (size_t)peer * LEN;

			fill(to, len, seed_of(world_rank, peer, len));
			MPI_Isend(to, len, MPI_BYTE, peer, len, MPI_COMM_WORLD,
				  &requests[world_size + peer]);
		}
		MPI_Waitall(2 * world_size, requests, MPI_STATUSES_IGNORE);
		for (int peer = 0; peer < world_size; peer++)
			ASSERT_FILLED(in + (size_t)peer * LEN, len,
				      seed_of(peer, world_rank, len));
	}
	free(requests);
	free(out);
	free(in);
}

/* Sent before there is a receive for them, and received in the reverse order. */
void test_unexpected(void)
{
	enum { COUNT = 200, LEN = 3000 };
	MPI_Request requests[COUNT];
	uint8_t *out = alloc((size_t)COUNT * LEN);
	uint8_t *in = alloc(LEN);
	int to = (world_rank + 1) % world_size;
	int from = (world_rank + world_size - 1) % world_size;

	for (int i = 0; i < COUNT; i++) {
		fill(out + (size_t)i * LEN, LEN, seed_of(world_rank, to, i));
		MPI_Isend(out + (size_t)i * LEN, LEN, MPI_BYTE, to, i,
			  MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = COUNT - 1; i >= 0; i--) {
		MPI_Recv(in, LEN, MPI_BYTE, from, i, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		ASSERT_FILLED(in, LEN, seed_of(from, world_rank, i));
	}
	MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
	free(out);
	free(in);
}

/* Rank 0 takes what comes; of one sender, in order. */
void test_any_source(void)
{
	enum { COUNT = 300 };
	int *next = alloc(world_size * sizeof(*next));
	MPI_Status status;
	int value;

	for (int i = 0; i < world_size; i++)
		next[i] = 0;
	for (int i = 0; world_rank && i < COUNT; i++)
		MPI_Send(&i, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
	for (int i = 0; !world_rank && i < COUNT * (world_size - 1); i++) {
		MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
			 MPI_COMM_WORLD, &status);
		ASSERT_EQ(status.MPI_TAG, 7);
		ASSERT_EQ(value, next[status.MPI_SOURCE]++);
	}
	free(next);
}

static void allreduce(int count)
{
	int64_t *out = alloc(count * sizeof(*out));
	int64_t *in = alloc(count * sizeof(*in));
	int64_t ranks = (int64_t)world_size * (world_size - 1) / 2;

	for (int i = 0; i < count; i++)
		out[i] = (int64_t)world_rank + i;
	MPI_Allreduce(out, in, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		ASSERT_EQ(in[i], ranks + (int64_t)world_size * i);
	MPI_Allreduce(out, in, count, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		ASSERT_EQ(in[i], world_size - 1 + (int64_t)i);
	free(out);
	free(in);
}

static void broadcast(size_t len, int root)
{
	uint8_t *buf = alloc(len);

	if (world_rank == root)
		fill(buf, len, seed_of(root, 0, (int)len));
	MPI_Bcast(buf, (int)len, MPI_BYTE, root, MPI_COMM_WORLD);
	ASSERT_FILLED(buf, len, seed_of(root, 0, (int)len));
	free(buf);
}

void test_collectives(void)
{
	for (int count = 1; count <= 1 << 17; count = count * 8 + 1)
		allreduce(count);
	for (int root = 0; root < world_size; root++)
		broadcast(root % 2 ? 300000 : 500, root);
	for (int i = 0; i < 50; i++)
		MPI_Barrier(MPI_COMM_WORLD);
}
