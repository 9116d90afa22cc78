/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The shared receive context: one queue of receives (a verbs SRQ) for several
 * endpoints. Which of them a receive belongs to is known when a message has
 * come, so its record is in no endpoint's ring, and records are done with in any
 * order: who posts takes them from a list, who reads a completion queue puts
 * them back.
 */
#ifndef VRC_SRX_H
#define VRC_SRX_H

#include "vrc.h"

struct vrc_srx {
	struct fid_ep fid;
	struct ibv_srq *srq;
	bool locked;		/* posting takes the lock */
	bool local_reg;
	uint8_t empty_sge_cnt;
	uint32_t desc_tag;
	size_t iov_limit;
	size_t max_msg_size;
	uint64_t op_flags;
	struct word_lock lock;	/* guards free, and taking from freed */
	struct vrc_req *free;	/* linked by context */

	struct vrc_req *req;
	struct ibv_mr **mrs;	/* VRC_IOV_LIMIT a record, or NULL */
	uint32_t size;
	/* An endpoint counts its receives, or shows only those that ask for a
	 * completion: each completion's endpoint has to be looked up. */
	atomic_bool by_ep;

	/* Cold. */
	struct vrc_domain *domain;
	atomic_int ref;		/* endpoints bound */
	struct lock bind_lock;	/* before cq->lock; guards cqs */
	struct list cqs;	/* struct srx_cq, in vrc_srx.c */
	struct lock eps_lock;	/* after cq->lock; guards eps */
	struct list eps;	/* enabled ones; vrc_ep by srx_node */

	/* Put back by readers, in any number and without a lock; the one that
	 * posts takes the whole list. Linked by context. */
	_Alignas(CACHELINE) struct vrc_req *_Atomic freed;
};

static inline struct vrc_srx *vrc_srx(const struct fid_ep *fid)
{
	return (struct vrc_srx *)((char *)(uintptr_t)fid -
				  offsetof(struct vrc_srx, fid));
}

/* The record's completion is read: it may be used again. */
static __hot_inline void vrc_srx_put(struct vrc_srx *srx, struct vrc_req *req)
{
	struct vrc_req *first =
		atomic_load_explicit(&srx->freed, memory_order_relaxed);

	/* Release pairs with the acquire in vrc_srx.c: who posts sees the
	 * record as we leave it. */
	do {
		req->context = first;
	} while (!atomic_compare_exchange_weak_explicit(
		&srx->freed, &first, req, memory_order_release,
		memory_order_relaxed));
}

/* vrc_srx.c */
/* The endpoint whose queue pair that is, or NULL. Caller holds the lock of its
 * completion queue, which keeps it. */
struct vrc_ep *vrc_srx_ep(struct vrc_srx *srx, uint32_t qp_num);

#endif
