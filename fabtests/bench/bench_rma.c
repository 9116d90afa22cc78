/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The two RMA workloads: 4 KiB reads at random and 1 MiB writes in sequence,
 * over a region of the target. The target does nothing: it sleeps in
 * fi_cq_sread (or polls, if asked to) until the initiator's message, sent
 * after the last operation, says that the phase is over, and answers it.
 */
#include "bench_side.h"

#include <stdlib.h>
#include <string.h>

/*
 * Fills the side that data come from, once per seed. A reader's buffers are
 * wiped each time; a writer's target need not be, as every checked phase has
 * a seed of its own and no earlier data can pass for its.
 */
static void rma_prepare(struct side *side, const struct side_phase *phase)
{
	bool reads = side->workload->reads;

	if (reads && !side->job->is_target) {
		memset(side->region.base, 0, side->region.len);
		for (uint32_t i = 0; i < side->tx_cnt; i++)
			side->slots[side->rx_cnt + i].offset = SIDE_NO_OFFSET;
	}
	if (reads != side->job->is_target || side->region_seed == phase->seed)
		return;
	pattern_fill(side->region.base, side->region.len, phase->seed, 0);
	side->region_seed = phase->seed;
}

/* The message that ends a phase has gone both ways when this returns. */
static int finish(struct side *side)
{
	if (side_send_msg(side) != 0)
		return -1;
	return side_wait_msg(side);
}

static int rma_serve(struct side *side, const struct side_phase *phase)
{
	if (side_wait_msg(side) != 0)
		return -1;
	return side_send_msg(side);
}

static int check_read(struct side *side, const struct side_slot *slot,
		      uint64_t seed)
{
	if (slot->offset == SIDE_NO_OFFSET)
		return 0;
	if (pattern_matches(slot->buf, BENCH_READ_LEN, seed,
			    slot->offset / sizeof(uint64_t)))
		return 0;
	return side_wrong_data(side, "read at offset", slot->offset);
}

static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int rma_failed(struct side *side, const char *call, ssize_t ret)
{
	return side_fail(side, "%s: %s", call, fi_strerror((int)-ret));
}

static int read_initiate(struct side *side, const struct side_phase *phase)
{
	struct side_ring *ring = &side->ring[SIDE_TX];
	/* Slots that must stay unused for no more than depth to be in flight */
	uint32_t spare =
		side->tx_cnt - (uint32_t)min_size(phase->depth, side->tx_cnt);
	uint64_t random = phase->seed ^ phase->cnt;
	uint64_t mask =
		(side->job->region_len - 1) & ~(uint64_t)(BENCH_READ_LEN - 1);

	for (uint64_t posted = 0;
	     posted < phase->cnt || ring_cnt(ring) < side->tx_cnt;) {
		while (posted < phase->cnt && ring_cnt(ring) > spare) {
			struct side_slot *slot = ring_pop(ring);
			uint64_t offset = next_random(&random) & mask;
			ssize_t ret;

			if (unlikely(phase->check_each) &&
			    check_read(side, slot, phase->seed) != 0)
				return -1;
			ret = fi_read(side->ep, slot->buf, BENCH_READ_LEN,
				      side->region.desc, FI_ADDR_UNSPEC,
				      side->remote_addr + offset,
				      side->remote_key, &slot->context);
			if (unlikely(ret != 0)) {
				ring_push(ring, slot);
				if (ret == -FI_EAGAIN)
					break;
				return rma_failed(side, "fi_read", ret);
			}
			slot->offset = offset;
			posted++;
		}
		if (side_poll(side) != 0)
			return -1;
	}
	return finish(side);
}

static int write_initiate(struct side *side, const struct side_phase *phase)
{
	struct side_ring *ring = &side->ring[SIDE_TX];
	uint64_t mask = side->job->region_len - 1;

	for (uint64_t posted = 0;
	     posted < phase->cnt || ring_cnt(ring) < side->tx_cnt;) {
		while (posted < phase->cnt && ring_cnt(ring) > 0) {
			struct side_slot *slot = ring_pop(ring);
			uint64_t offset = posted * BENCH_WRITE_LEN & mask;
			ssize_t ret;

			ret = fi_write(side->ep, side->region.base + offset,
				       BENCH_WRITE_LEN, side->region.desc,
				       FI_ADDR_UNSPEC,
				       side->remote_addr + offset,
				       side->remote_key, &slot->context);
			if (unlikely(ret != 0)) {
				ring_push(ring, slot);
				if (ret == -FI_EAGAIN)
					break;
				return rma_failed(side, "fi_write", ret);
			}
			posted++;
		}
		if (side_poll(side) != 0)
			return -1;
	}
	return finish(side);
}

/* The last reads of the phase are still in their buffers. */
static int read_verify(struct side *side, const struct side_phase *phase)
{
	if (side->job->is_target)
		return 0;
	for (uint32_t i = 0; i < side->tx_cnt; i++) {
		if (check_read(side, &side->slots[side->rx_cnt + i],
			       phase->seed) != 0)
			return -1;
	}
	return 0;
}

/* All of what the phase has written, or the whole region. */
static int write_verify(struct side *side, const struct side_phase *phase)
{
	uint64_t end = min_size(phase->cnt * BENCH_WRITE_LEN, side->region.len);

	if (!side->job->is_target)
		return 0;
	for (uint64_t at = 0; at < end; at += BENCH_READ_LEN) {
		if (!pattern_matches(side->region.base + at, BENCH_READ_LEN,
				     phase->seed, at / sizeof(uint64_t)))
			return side_wrong_data(side, "write at offset", at);
	}
	return 0;
}

const struct side_workload side_read = {
	.op_len = BENCH_READ_LEN,
	.rma = true,
	.reads = true,
	.first_cnt = 64,
	.check_cnt = 256,
	.depth = 16,
	.initiator_rx_cnt = 4,
	.target_rx_cnt = 4,
	.latency_depth = 1,
	.latency_div = 1,
	.prepare = rma_prepare,
	.initiate = read_initiate,
	.serve = rma_serve,
	.verify = read_verify,
};

#define WRITE_COMMON                                                           \
	.op_len = BENCH_WRITE_LEN, .rma = true, .first_cnt = 32,               \
	.check_cnt = 32, .depth = 8, .initiator_rx_cnt = 4,                    \
	.target_rx_cnt = 4, .new_seed_per_phase = true,                        \
	.prepare = rma_prepare, .initiate = write_initiate,                    \
	.serve = rma_serve, .verify = write_verify

const struct side_workload side_write = {
	WRITE_COMMON,
};

const struct side_workload side_write_polled = {
	WRITE_COMMON,
	.target_polls = true,
};
