/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One side (initiator or target) of a sample: its libfabric objects, its
 * memory and its completions. A side is single-threaded.
 *
 *   phase      initiator                        target
 *              prepare                          waits for control messages
 *              RUN{cnt, seed} ----------------> prepare, read CPU time
 *              read CPU time, clock <----- GO
 *              initiate()  <=== workload ===>   serve()
 *              clock, CPU time                  CPU time
 *              verify                           verify
 *                           <----- DONE{CPU time}
 */
#ifndef BENCH_SIDE_H
#define BENCH_SIDE_H

#include <sched.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "bench.h"

enum {
	SIDE_POLL_BATCH = 32,
	/* Empty polls between two looks at the clock. */
	SIDE_IDLE_CHECK = 4096,
};

enum side_slot_kind {
	SIDE_RX,
	SIDE_TX,
	SIDE_SLOT_KINDS,
};

/* One operation that may be in flight. */
struct side_slot {
	/* Owned by the provider while the operation is posted. */
	struct fi_context2 context;
	enum side_slot_kind kind;
	/* Of the last completion; 0 since prepare() if there was none. */
	uint32_t len;
	char *buf;
	/* RMA: offset in the target's region; SIDE_NO_OFFSET if never posted */
	uint64_t offset;
};

#define SIDE_NO_OFFSET UINT64_MAX

static_assert(offsetof(struct side_slot, context) == 0,
	      "a completion's context is the slot");

/* Slots that have completed (SIDE_RX) or may be posted (SIDE_TX), in order. */
struct side_ring {
	struct side_slot **slot;
	uint32_t head;
	uint32_t tail;
	uint32_t mask;
};

struct side_phase {
	uint64_t cnt;
	uint64_t seed;
	/* Operations in flight at once. */
	uint32_t depth;
	/* Data are new and verified; not so while warming up. */
	bool checked;
	/* Moreover every message or read is checked as it completes. */
	bool check_each;
};

struct side_memory {
	char *base;
	size_t len;
	struct fid_mr *mr;
	void *desc;
};

enum ctl_kind {
	CTL_LISTENING = 1,
	CTL_MEMORY,
	CTL_RUN,
	CTL_GO,
	CTL_DONE,
	CTL_QUIT,
};

/* What the sides tell each other outside of libfabric. */
struct ctl_msg {
	enum ctl_kind kind;
	uint16_t port;
	struct side_phase phase;
	struct bench_cpu cpu;
	/* The target's region and the receives that it keeps posted. */
	uint64_t addr;
	uint64_t key;
	uint32_t rx_cnt;
};

struct side;

struct side_workload {
	size_t op_len;
	bool rma;
	/* RMA: data come from the target. */
	bool reads;
	/* The target polls as well, for providers that need it. */
	bool target_polls;
	/* The least count that is worth measuring. */
	uint64_t first_cnt;
	uint64_t check_cnt;
	uint32_t depth;
	uint32_t initiator_rx_cnt;
	uint32_t target_rx_cnt;
	/* Measured first, one operation at a time, where it is not 0. */
	uint32_t latency_depth;
	/* Operations per unit of latency: 2 for half a round trip. */
	uint32_t latency_div;
	bool new_seed_per_phase;

	void (*prepare)(struct side *side, const struct side_phase *phase);
	int (*initiate)(struct side *side, const struct side_phase *phase);
	int (*serve)(struct side *side, const struct side_phase *phase);
	int (*verify)(struct side *side, const struct side_phase *phase);
};

struct side {
	const struct bench_job *job;
	const struct side_workload *workload;
	struct bench_report report;

	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_pep *pep;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_ep *ep;

	/* 64 byte buffers: one per receive, and the last to send from. */
	struct side_memory msg;
	char *msg_tx;
	/* Exposed by the target, local to the initiator. */
	struct side_memory region;
	uint64_t region_seed;
	uint64_t remote_addr;
	uint64_t remote_key;
	uint32_t peer_rx_cnt;

	struct side_slot *slots;
	uint32_t rx_cnt;
	uint32_t tx_cnt;
	struct side_ring ring[SIDE_SLOT_KINDS];
	enum bench_post post;

	uint64_t deadline_ns;
	uint32_t idle_cnt;
	bool yields;
	/* This is a target that sleeps in its CQ. */
	bool sleeps;
	/* The connection is about to go: completions no longer matter. */
	bool quits;
};

/*
 * bench_side.c. side_fail records the reason, unless there is one already,
 * and returns -1; every int function of a side returns 0 or -1.
 */
int side_fail(struct side *side, const char *fmt, ...) __printf_like(2, 3);
int side_wrong_data(struct side *side, const char *what, uint64_t which);

/* bench_ep.c: listen or connect; everything is open and posted on return. */
void side_start_libfabric(void);
int side_listen(struct side *side, uint16_t *port);
int side_accept(struct side *side);
int side_connect(struct side *side, uint16_t port);
int side_close(struct side *side);

/* bench_mem.c */
int side_memory_init(struct side *side);
int side_memory_fini(struct side *side);
void pattern_fill(void *buf, size_t len, uint64_t seed, uint64_t word);
bool pattern_matches(const void *buf, size_t len, uint64_t seed, uint64_t word);

/* bench_ctl.c */
int ctl_send(struct side *side, const struct ctl_msg *msg);
int ctl_recv(struct side *side, struct ctl_msg *msg);
int ctl_expect(struct side *side, enum ctl_kind kind, struct ctl_msg *msg);

/* bench_cq.c */
void side_collect(struct side *side, const struct fi_cq_msg_entry *entry,
		  ssize_t cnt);
int side_cq_failed(struct side *side, ssize_t ret);
int side_check_alive(struct side *side);
/* Sleeps in fi_cq_sread until there is a completion; the wait is bounded. */
int side_sleep(struct side *side);
int side_post_rx(struct side *side, struct side_slot *slot);

/* bench_msg.c, bench_rma.c */
extern const struct side_workload side_latency;
extern const struct side_workload side_rate;
extern const struct side_workload side_read;
extern const struct side_workload side_write;
extern const struct side_workload side_write_polled;
/* Sends msg_tx, waiting for room as long as need be. */
int side_send_msg(struct side *side);
/* Waits for a receive to complete and posts it again. */
int side_wait_msg(struct side *side);

static inline uint32_t ring_cnt(const struct side_ring *ring)
{
	return ring->tail - ring->head;
}

static inline void ring_push(struct side_ring *ring, struct side_slot *slot)
{
	ring->slot[ring->tail++ & ring->mask] = slot;
}

static inline struct side_slot *ring_pop(struct side_ring *ring)
{
	if (ring->head == ring->tail)
		return NULL;
	return ring->slot[ring->head++ & ring->mask];
}

/* Takes what has completed, if anything; looks at the clock now and then. */
static __hot_inline int side_poll(struct side *side)
{
	struct fi_cq_msg_entry entry[SIDE_POLL_BATCH];
	ssize_t cnt = fi_cq_read(side->cq, entry, SIDE_POLL_BATCH);

	if (cnt > 0) {
		side_collect(side, entry, cnt);
		return 0;
	}
	if (unlikely(cnt != -FI_EAGAIN && cnt != 0))
		return side_cq_failed(side, cnt);
	if (unlikely(side->yields))
		sched_yield();
	if (likely(++side->idle_cnt % SIDE_IDLE_CHECK))
		return 0;
	return side_check_alive(side);
}

#endif
