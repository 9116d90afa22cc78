/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A side's memory: message buffers, the RMA region, their registration as the
 * returned mr_mode asks for it, the slots, and the data pattern.
 */
#include "bench_side.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	KEY_MSG = 0x7601,
	KEY_REGION = 0x7602,
};

/* splitmix64: every word differs, and none can be had from its neighbour. */
static inline uint64_t pattern_word(uint64_t seed, uint64_t word)
{
	uint64_t x = seed + word * 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* word is the index that buf's first 8 bytes have in the pattern. */
void pattern_fill(void *buf, size_t len, uint64_t seed, uint64_t word)
{
	uint64_t *p = buf;

	for (size_t i = 0; i < len / sizeof(*p); i++)
		p[i] = pattern_word(seed, word + i);
}

bool pattern_matches(const void *buf, size_t len, uint64_t seed, uint64_t word)
{
	const uint64_t *p = buf;
	uint64_t diff = 0;

	for (size_t i = 0; i < len / sizeof(*p); i++)
		diff |= p[i] ^ pattern_word(seed, word + i);
	return diff == 0;
}

/*
 * Pages are touched, so that FI_MR_ALLOCATED holds. They are what the system
 * gives by default, unless huge ones are asked for; those it may refuse.
 */
static int memory_map(struct side *side, struct side_memory *mem, size_t len)
{
	void *base = mmap(NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED)
		return side_fail(side, "cannot map %zu bytes: %s", len,
				 strerror(errno));
	if (side->job->huge_pages)
		madvise(base, len, MADV_HUGEPAGE);
	memset(base, 0, len);
	mem->base = base;
	mem->len = len;
	return 0;
}

static int memory_reg(struct side *side, struct side_memory *mem,
		      uint64_t access, uint64_t key)
{
	/* The provider picks the key where it says so; else it is ours. */
	if (side->info->domain_attr->mr_mode & FI_MR_PROV_KEY)
		key = 0;

	int ret = fi_mr_reg(side->domain, mem->base, mem->len, access, 0, key,
			    0, &mem->mr, NULL);

	if (ret != 0)
		return side_fail(side, "fi_mr_reg of %zu bytes: %s", mem->len,
				 fi_strerror(-ret));
	mem->desc = fi_mr_desc(mem->mr);
	return 0;
}

static int memory_unmap(struct side *side, struct side_memory *mem)
{
	int ret = 0;

	if (mem->mr)
		ret = fi_close(&mem->mr->fid);
	mem->mr = NULL;
	if (mem->base)
		munmap(mem->base, mem->len);
	mem->base = NULL;
	if (ret != 0)
		return side_fail(side, "fi_close of a memory region: %s",
				 fi_strerror(-ret));
	return 0;
}

static int ring_init(struct side *side, struct side_ring *ring, uint32_t cnt)
{
	size_t len = pow2_at_least(cnt ? cnt : 1);

	ring->slot = calloc(len, sizeof(struct side_slot *));
	if (!ring->slot)
		return side_fail(side, "out of memory");
	ring->mask = (uint32_t)len - 1;
	return 0;
}

static int slots_init(struct side *side)
{
	const struct side_workload *wl = side->workload;
	uint32_t cnt = side->rx_cnt + side->tx_cnt;

	side->slots = calloc(cnt, sizeof(*side->slots));
	if (!side->slots)
		return side_fail(side, "out of memory");
	if (ring_init(side, &side->ring[SIDE_RX], side->rx_cnt) != 0 ||
	    ring_init(side, &side->ring[SIDE_TX], side->tx_cnt) != 0)
		return -1;
	for (uint32_t i = 0; i < cnt; i++) {
		struct side_slot *slot = &side->slots[i];

		slot->offset = SIDE_NO_OFFSET;
		if (i < side->rx_cnt) {
			slot->kind = SIDE_RX;
			slot->buf = side->msg.base + i * BENCH_MSG_LEN;
			continue;
		}
		slot->kind = SIDE_TX;
		if (wl->reads && !side->job->is_target)
			slot->buf = side->region.base +
				    (i - side->rx_cnt) * wl->op_len;
		ring_push(&side->ring[SIDE_TX], slot);
	}
	side->msg_tx = side->msg.base + side->rx_cnt * BENCH_MSG_LEN;
	return 0;
}

/* Depths are what we would like, cut to what the provider returned. */
static void depths_init(struct side *side)
{
	const struct side_workload *wl = side->workload;
	uint32_t rx =
		side->job->is_target ? wl->target_rx_cnt : wl->initiator_rx_cnt;

	side->rx_cnt = (uint32_t)min_size(rx, side->info->rx_attr->size);
	side->tx_cnt = (uint32_t)min_size(wl->depth, side->info->tx_attr->size);
	side->post = side->job->post;
	/* Only message workloads bind their CQ for selective completion. */
	if (side->post == BENCH_POST_MORE && wl->rma)
		side->post = BENCH_POST_INJECT;
	if (side->post != BENCH_POST_SEND &&
	    side->info->tx_attr->inject_size < BENCH_MSG_LEN)
		side->post = BENCH_POST_SEND;
}

int side_memory_init(struct side *side)
{
	const struct side_workload *wl = side->workload;
	bool local = side->info->domain_attr->mr_mode & FI_MR_LOCAL;
	bool target = side->job->is_target;
	size_t region_len = 0;

	depths_init(side);
	/* A reader needs a buffer per read; all others the whole region. */
	if (wl->rma)
		region_len = wl->reads && !target ? side->tx_cnt * wl->op_len
						  : side->job->region_len;
	if (memory_map(side, &side->msg, (side->rx_cnt + 1) * BENCH_MSG_LEN) !=
	    0)
		return -1;
	if (local &&
	    memory_reg(side, &side->msg, FI_SEND | FI_RECV, KEY_MSG) != 0)
		return -1;
	if (region_len) {
		if (memory_map(side, &side->region, region_len) != 0)
			return -1;
		if (target) {
			if (memory_reg(side, &side->region,
				       FI_REMOTE_READ | FI_REMOTE_WRITE,
				       KEY_REGION) != 0)
				return -1;
		} else if (local &&
			   memory_reg(side, &side->region, FI_READ | FI_WRITE,
				      KEY_REGION) != 0) {
			return -1;
		}
	}
	return slots_init(side);
}

int side_memory_fini(struct side *side)
{
	int ret = memory_unmap(side, &side->region);

	if (memory_unmap(side, &side->msg) != 0)
		ret = -1;
	free(side->ring[SIDE_RX].slot);
	free(side->ring[SIDE_TX].slot);
	free(side->slots);
	side->slots = NULL;
	return ret;
}
