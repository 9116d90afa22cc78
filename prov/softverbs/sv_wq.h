/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Work queues: their memory, their work requests, and what is done with them. For
 * all of softverbs; sv_int.h includes it. sv_sq.h is for who puts sends together.
 */
#ifndef SV_WQ_H
#define SV_WQ_H

#include <assert.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "compiler.h"

struct sv_cqe;
struct sv_pd;
struct sv_qp;

/* Memory of a queue: the application's allocator's, or ours. */
struct sv_mem {
	void *ptr;
	struct sv_pd *from; /* a parent domain; NULL: block */
	void *block;
};

/*
 * A work queue: WRs of fixed stride. Indices run freely; slot = index & mask.
 * free <= done <= sent <= posted. A slot is reused only after the application
 * has polled the completion that retires it, as on hardware.
 */
struct sv_wq {
	char *slots;
	struct sv_mem mem; /* where they are */
	uint32_t stride;
	uint32_t mask;
	uint32_t max_wr;
	uint32_t max_sge;
	atomic_uint posted;
	uint32_t sent; /* send queue: handed to the link */
	uint32_t done; /* completed */
	atomic_uint free; /* written as completions are polled */
};

enum sv_wr_state {
	SV_WR_POSTED,
	SV_WR_SENT, /* waits for the peer to pass ring_end */
	SV_WR_DONE,
};

/* Send WR as queued; followed by SGEs or inline bytes. */
struct sv_swr {
	uint64_t wr_id;
	uint64_t raddr;
	uint32_t rkey;
	__be32 imm;
	uint32_t len;
	uint32_t offset; /* progress of a WR that goes in pieces */
	uint32_t ring_end;
	uint16_t num_sge;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags; /* enum ibv_send_flags */
	uint8_t state; /* enum sv_wr_state */
	uint8_t status; /* enum ibv_wc_status, valid when DONE */
	uint8_t mode; /* enum sv_tx_mode; the link's own */
	bool by_va; /* the SGEs say where in memory, no longer iova */
	bool consumes_recv;
	struct ibv_sge sge[];
};

/* IBV_WR_BIND_MW has this in place of the SGEs; swr.rkey is the window's. */
struct sv_bind {
	uint64_t addr;
	uint64_t len; /* 0: bound to nothing */
	uint32_t region; /* lkey */
	uint32_t access;
};

/* READs and atomics: their SGEs are written to, when the answer comes. */
static inline bool sv_swr_asks(const struct sv_swr *swr)
{
	static_assert(IBV_WR_ATOMIC_FETCH_AND_ADD - IBV_WR_RDMA_READ == 2,
		      "one comparison");
	return (unsigned int)(swr->opcode - IBV_WR_RDMA_READ) <= 2;
}

/* Their SGEs are read, and the peer gives a receive for them. */
static inline bool sv_swr_is_send(const struct sv_swr *swr)
{
	return swr->opcode == IBV_WR_SEND ||
	       swr->opcode == IBV_WR_SEND_WITH_IMM ||
	       swr->opcode == IBV_WR_SEND_WITH_INV;
}

/* They never leave this process: sv_sq_local(). */
static inline bool sv_swr_is_local(const struct sv_swr *swr)
{
	return swr->opcode == IBV_WR_LOCAL_INV ||
	       swr->opcode == IBV_WR_BIND_MW;
}

/* Behind the SGEs that a WR may have at most: see sv_sq_operands(). */
struct sv_operands {
	uint64_t compare_add;
	uint64_t swap;
};

struct sv_rwr {
	uint64_t wr_id;
	uint16_t num_sge;
	bool by_va; /* as in sv_swr */
	uint32_t len; /* sum of the SGEs, saturated */
	struct ibv_sge sge[];
};

/*
 * Field by field, and the compiler may not join them: the application has just
 * written them so, and one load of 16 bytes would wait until those stores have
 * left the CPU's buffer, longer than all else that posting takes.
 */
static __hot_inline void sv_sge_copy(struct ibv_sge *to,
				     const struct ibv_sge *from)
{
	to->addr = *(const volatile uint64_t *)&from->addr;
	to->length = *(const volatile uint32_t *)&from->length;
	to->lkey = *(const volatile uint32_t *)&from->lkey;
}

static inline uint32_t sv_wq_posted(struct sv_wq *wq)
{
	return atomic_load_explicit(&wq->posted, memory_order_acquire);
}

/* Whether the WR with this index, behind those posted, has a slot. */
static inline bool sv_wq_has_room(struct sv_wq *wq, uint32_t index)
{
	/* Pairs with the releases in cq_pop() and sv_rq_complete_ok(). */
	return index - atomic_load_explicit(&wq->free, memory_order_acquire) <
	       wq->max_wr;
}

/*
 * sv_domain.c. mem_get: 0 or a positive errno; the memory is zeroed, and aligned
 * to a cache line. pd may be NULL. mem_put may be called again.
 */
int sv_mem_get(struct sv_mem *mem, struct sv_pd *pd, size_t size) __must_check;
void sv_mem_put(struct sv_mem *mem);

/* sv_sq.c, sv_wq.c */
int sv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		 struct ibv_send_wr **bad_wr);
int sv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		 struct ibv_recv_wr **bad_wr);
/* sv_post_look.c: the same for a look that refuses what the device can do. */
int sv_post_send_look(struct ibv_qp *qp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad_wr);
int sv_wq_init(struct sv_wq *wq, struct sv_pd *pd, uint32_t max_wr,
	       uint32_t max_sge, size_t stride) __must_check;
void sv_wq_fini(struct sv_wq *wq);
void sv_wq_reset(struct sv_wq *wq);
struct sv_operands *sv_sq_operands(struct sv_qp *qp, struct sv_swr *swr);
int sv_wq_add_recv(struct sv_wq *wq, const struct ibv_recv_wr *wr);
void sv_rq_starve(struct sv_qp *qp);
void sv_rq_kick(struct sv_qp *qp);
bool sv_sq_runs(struct sv_qp *qp);
bool sv_sq_drained(struct sv_qp *qp); /* nothing is on its way */
void sv_sq_complete(struct sv_qp *qp, enum ibv_wc_status status);
void sv_rq_complete(struct sv_qp *qp, struct sv_cqe *cqe, bool solicited);
void sv_flush(struct sv_qp *qp);
void sv_swr_gather(const struct sv_swr *swr, uint32_t offset, void *to,
		   uint32_t len);
void sv_sges_scatter(const struct ibv_sge *sge, uint32_t offset,
		     const void *from, uint32_t len);
int sv_sges_iov(const struct ibv_sge *sge, int cnt, uint32_t offset,
		uint32_t len, struct iovec *iov);

#endif
