/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two threads store, pass a fence and look at what the other stored: at least one
 * sees it, also if one of the fences is the light one.
 */
#include <criterion/criterion.h>
#include <pthread.h>

#include "sv_fence.h"

TestSuite(fence, .timeout = 60);

enum { ROUNDS = 50000, DELAYS = 512 };

static struct {
	_Alignas(CACHELINE) atomic_int rounds[2]; /* each side's */
	_Alignas(CACHELINE) atomic_int light;
	_Alignas(CACHELINE) atomic_int heavy;
	bool heavy_saw; /* in the round that was done last */
} both;

/* Both have come to this round. */
static void meet(int side, int round)
{
	atomic_store(&both.rounds[side], round);
	while (atomic_load(&both.rounds[!side]) < round)
		cpu_relax();
}

static void *heavy_side(void *arg)
{
	for (int i = 1; i <= ROUNDS; i++) {
		meet(1, 2 * i);
		atomic_store_explicit(&both.heavy, i, memory_order_relaxed);
		sv_fence_heavy();
		both.heavy_saw = atomic_load_explicit(&both.light,
						      memory_order_relaxed) ==
				 i;
		meet(1, 2 * i + 1);
	}
	return arg;
}

/* The rounds in which neither side saw the other. */
static int missed(void)
{
	int count = 0;
	pthread_t thread;
	bool saw;

	cr_assert_eq(pthread_create(&thread, NULL, heavy_side, NULL), 0);
	for (int i = 1; i <= ROUNDS; i++) {
		meet(0, 2 * i);
		for (volatile int wait = i % DELAYS; wait; wait--)
			;
		atomic_store_explicit(&both.light, i, memory_order_relaxed);
		sv_fence_light();
		saw = atomic_load_explicit(&both.heavy, memory_order_relaxed) ==
		      i;
		meet(0, 2 * i + 1);
		count += !saw && !both.heavy_saw;
	}
	pthread_join(thread, NULL);
	return count;
}

Test(fence, one_of_two_sees_the_other)
{
	sv_fence_start();
	cr_expect_eq(missed(), 0);
}

/* A container's filter refuses the call: the light fence is a full one. */
Test(fence, without_the_system_call)
{
	sv_fence_is_paid = false;
	cr_expect_eq(missed(), 0);
}
