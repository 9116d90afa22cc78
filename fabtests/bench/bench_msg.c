/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The two message workloads: ping-pong and message rate, 64 bytes each.
 *
 * Rate: the initiator streams; the target posts each receive again at once
 * and returns a credit message per quarter of its receives, so that a message
 * never finds no receive posted. No provider's flow control is exercised.
 */
#include "bench_side.h"

#include <stdlib.h>
#include <string.h>

enum { RATE_BURST = 32 };

/* The target's data differ from the initiator's. */
static uint64_t seed_of(bool target, uint64_t seed)
{
	return target ? ~seed : seed;
}

static ssize_t post_send(struct side *side)
{
	struct side_slot *slot = ring_pop(&side->ring[SIDE_TX]);
	ssize_t ret;

	if (!slot)
		return -FI_EAGAIN;
	ret = fi_send(side->ep, side->msg_tx, BENCH_MSG_LEN, side->msg.desc,
		      FI_ADDR_UNSPEC, &slot->context);
	if (ret != 0)
		ring_push(&side->ring[SIDE_TX], slot);
	return ret;
}

static ssize_t post_more(struct side *side, bool more)
{
	struct iovec iov = {
		.iov_base = side->msg_tx,
		.iov_len = BENCH_MSG_LEN,
	};
	struct fi_msg msg = {
		.msg_iov = &iov,
		.desc = &side->msg.desc,
		.iov_count = 1,
	};

	return fi_sendmsg(side->ep, &msg, FI_INJECT | (more ? FI_MORE : 0));
}

static __hot_inline ssize_t post_msg(struct side *side, bool more)
{
	switch (side->post) {
	case BENCH_POST_SEND:
		return post_send(side);
	case BENCH_POST_MORE:
		return post_more(side, more);
	case BENCH_POST_INJECT:
	default:
		return fi_inject(side->ep, side->msg_tx, BENCH_MSG_LEN,
				 FI_ADDR_UNSPEC);
	}
}

static __hot_inline int send_msg(struct side *side)
{
	ssize_t ret;

	while (unlikely((ret = post_msg(side, false)) != 0)) {
		if (ret != -FI_EAGAIN)
			return side_fail(side, "posting a message: %s",
					 fi_strerror((int)-ret));
		if (side_poll(side) != 0)
			return -1;
	}
	return 0;
}

/* Sends data of its own for message i, and waits until msg_tx is free. */
static int send_checked(struct side *side, uint64_t seed)
{
	pattern_fill(side->msg_tx, BENCH_MSG_LEN, seed, 0);
	if (send_msg(side) != 0)
		return -1;
	while (ring_cnt(&side->ring[SIDE_TX]) < side->tx_cnt) {
		if (side_poll(side) != 0)
			return -1;
	}
	return 0;
}

static int check_slot(struct side *side, struct side_slot *slot, uint64_t seed,
		      uint64_t which)
{
	if (slot->len == BENCH_MSG_LEN &&
	    pattern_matches(slot->buf, BENCH_MSG_LEN, seed, 0))
		return 0;
	return side_wrong_data(side, "message", which);
}

static __hot_inline struct side_slot *wait_rx(struct side *side)
{
	struct side_slot *slot;

	while (!(slot = ring_pop(&side->ring[SIDE_RX]))) {
		if (unlikely(side_poll(side) != 0))
			return NULL;
	}
	return slot;
}

int side_send_msg(struct side *side)
{
	return send_msg(side);
}

int side_wait_msg(struct side *side)
{
	struct side_slot *slot;

	while (!(slot = ring_pop(&side->ring[SIDE_RX]))) {
		if ((side->sleeps ? side_sleep(side) : side_poll(side)) != 0)
			return -1;
	}
	return side_post_rx(side, slot);
}

/* Outside of the timed part: no receive may hold an earlier phase's data. */
static void msg_prepare(struct side *side, const struct side_phase *phase)
{
	pattern_fill(side->msg_tx, BENCH_MSG_LEN,
		     seed_of(side->job->is_target, phase->seed), 0);
	for (uint32_t i = 0; i < side->rx_cnt; i++) {
		side->slots[i].len = 0;
		memset(side->slots[i].buf, 0, BENCH_MSG_LEN);
	}
}

/* All messages of a phase are alike unless check_each; see it in all slots. */
static int msg_verify(struct side *side, const struct side_phase *phase)
{
	uint64_t seed = seed_of(!side->job->is_target, phase->seed);
	uint64_t wanted = phase->cnt < side->rx_cnt ? phase->cnt : side->rx_cnt;
	uint64_t seen = 0;

	if (phase->check_each)
		return 0;
	for (uint32_t i = 0; i < side->rx_cnt; i++) {
		struct side_slot *slot = &side->slots[i];

		if (slot->len == 0)
			continue;
		seen++;
		if (check_slot(side, slot, seed, i) != 0)
			return -1;
	}
	if (seen < wanted)
		return side_wrong_data(side, "count of messages", seen);
	return 0;
}

static int latency_initiate(struct side *side, const struct side_phase *phase)
{
	for (uint64_t i = 0; i < phase->cnt; i++) {
		uint64_t seed = phase->seed + i;
		struct side_slot *slot;

		if (unlikely(phase->check_each)) {
			if (send_checked(side, seed) != 0)
				return -1;
		} else if (send_msg(side) != 0) {
			return -1;
		}
		slot = wait_rx(side);
		if (!slot)
			return -1;
		if (unlikely(phase->check_each) &&
		    check_slot(side, slot, seed_of(true, seed), i) != 0)
			return -1;
		if (side_post_rx(side, slot) != 0)
			return -1;
	}
	return 0;
}

static int latency_serve(struct side *side, const struct side_phase *phase)
{
	for (uint64_t i = 0; i < phase->cnt; i++) {
		uint64_t seed = phase->seed + i;
		struct side_slot *slot = wait_rx(side);

		if (!slot)
			return -1;
		if (unlikely(phase->check_each)) {
			if (check_slot(side, slot, seed, i) != 0 ||
			    send_checked(side, seed_of(true, seed)) != 0)
				return -1;
		} else if (send_msg(side) != 0) {
			return -1;
		}
		if (side_post_rx(side, slot) != 0)
			return -1;
	}
	return 0;
}

/* Posts up to cnt messages; *posted says how many went out. */
static __hot_inline int post_burst(struct side *side, uint64_t cnt,
				   uint64_t *posted)
{
	for (uint64_t i = 0; i < cnt; i++) {
		ssize_t ret = post_msg(side, i + 1 < cnt);

		if (unlikely(ret != 0)) {
			if (ret == -FI_EAGAIN)
				return 0;
			return side_fail(side, "posting a message: %s",
					 fi_strerror((int)-ret));
		}
		++*posted;
	}
	return 0;
}

static uint64_t credits_per_msg(uint32_t rx_cnt)
{
	return rx_cnt >= 4 ? rx_cnt / 4 : 1;
}

static int rate_initiate(struct side *side, const struct side_phase *phase)
{
	uint64_t window = side->peer_rx_cnt;
	uint64_t step = credits_per_msg(side->peer_rx_cnt);
	uint64_t posted = 0;
	uint64_t credited = 0;

	while (credited < phase->cnt) {
		uint64_t room = window - (posted - credited);
		struct side_slot *slot;

		room = min_size(room, phase->cnt - posted);
		if (unlikely(phase->check_each) && room) {
			if (send_checked(side, phase->seed + posted) != 0)
				return -1;
			posted++;
		} else if (post_burst(side, min_size(room, RATE_BURST),
				      &posted) != 0) {
			return -1;
		}
		if (side_poll(side) != 0)
			return -1;
		while ((slot = ring_pop(&side->ring[SIDE_RX]))) {
			credited = min_size(credited + step, phase->cnt);
			if (side_post_rx(side, slot) != 0)
				return -1;
		}
	}
	return 0;
}

static int rate_serve(struct side *side, const struct side_phase *phase)
{
	uint64_t step = credits_per_msg(side->rx_cnt);
	uint64_t told = 0;

	for (uint64_t got = 0; got < phase->cnt;) {
		struct side_slot *slot = wait_rx(side);

		if (!slot)
			return -1;
		if (unlikely(phase->check_each) &&
		    check_slot(side, slot, phase->seed + got, got) != 0)
			return -1;
		if (side_post_rx(side, slot) != 0)
			return -1;
		got++;
		if (got - told < step && got < phase->cnt)
			continue;
		if (send_msg(side) != 0)
			return -1;
		told = got;
	}
	return 0;
}

/* The initiator of the rate workload receives credits, not data. */
static int rate_verify(struct side *side, const struct side_phase *phase)
{
	return side->job->is_target ? msg_verify(side, phase) : 0;
}

const struct side_workload side_latency = {
	.op_len = BENCH_MSG_LEN,
	.first_cnt = 100,
	.check_cnt = 100,
	.depth = 16,
	.initiator_rx_cnt = 16,
	.target_rx_cnt = 16,
	.latency_depth = 0,
	.latency_div = 2,
	.new_seed_per_phase = true,
	.prepare = msg_prepare,
	.initiate = latency_initiate,
	.serve = latency_serve,
	.verify = msg_verify,
};

const struct side_workload side_rate = {
	.op_len = BENCH_MSG_LEN,
	.first_cnt = 512,
	.check_cnt = 300,
	.depth = 64,
	.initiator_rx_cnt = 64,
	.target_rx_cnt = 256,
	.new_seed_per_phase = true,
	.prepare = msg_prepare,
	.initiate = rate_initiate,
	.serve = rate_serve,
	.verify = rate_verify,
};
