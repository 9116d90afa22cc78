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

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_ep.h"
#include "vrc_verbs.h"
#include "word_lock.h"

struct vrc_domain;

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

VRC_CONVERTER(vrc_srx, fid_ep)

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
int vrc_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr,
		 struct fid_ep **srx, void *context);
/* fi_ep_bind; and when the endpoint closes. */
int vrc_srx_bind(struct vrc_ep *ep, struct fid *fid);
void vrc_srx_unbind(struct vrc_ep *ep);
/* fi_enable of an endpoint that has one: room in its completion queue; then,
 * when it has a queue pair, its place among those that a completion may be of.
 * And the reverse of both. */
int vrc_srx_reserve(struct vrc_ep *ep) __must_check;
void vrc_srx_unreserve(struct vrc_ep *ep);
void vrc_srx_attach(struct vrc_ep *ep);
void vrc_srx_detach(struct vrc_ep *ep);
struct ibv_srq *vrc_srx_srq(const struct vrc_ep *ep); /* or NULL */
ssize_t vrc_srx_size_left(struct fid_ep *srx);
/* The endpoint whose queue pair that is, or NULL. Caller holds the lock of its
 * completion queue, which keeps it. */
struct vrc_ep *vrc_srx_ep(struct vrc_srx *srx, uint32_t qp_num);

#endif
