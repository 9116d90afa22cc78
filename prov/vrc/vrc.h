/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How the provider's objects hang together, the order of their locks, and what all
 * of them need. Each object, with the prototypes of its files, is in a header of
 * its own name: vrc_fabric.h, vrc_eq.h, vrc_pep.h, vrc_domain.h, vrc_ep.h (with the
 * ledger), vrc_mr.h, vrc_cq.h, and vrc_cntr.h, vrc_srx.h, vrc_stx.h.
 *
 *	fabric -- eq -- pep
 *	   \       \
 *	  domain -- ep -- tx ring, rx ring (the ledger)
 *	   |  \      \
 *	   mr  cq ----+
 *
 * Lock order, outermost first:
 *
 *	ep->tx_lock, ep->rx_lock	posting; never both
 *	srx->lock			posting to a shared context
 *	poll->lock, wait->lock		members of a set; see vrc_poll.c, vrc_wait.c
 *	cntr->lock			a counter's queues; see vrc_cntr.c
 *	pep->lock			a passive endpoint's address and ids
 *	srx->bind_lock			which queues a shared context ends in
 *	cq->lock			reading completions, draining an endpoint
 *	srx->eps_lock			a shared context's endpoints
 *	eq->lock			connection events and endpoint states
 *	ep->credit->lock		what the peer was told; see vrc_credit.c
 *
 * A reader of a completion queue that finds a broken queue pair tells the
 * event queue (cq->lock, then eq->lock). The event queue's thread wants cq->lock
 * as well, and only tries to get it. ep->more->lock is taken after tx_lock or
 * rx_lock; the reader of a completion queue wants it too, and only tries.
 */
#ifndef VRC_H
#define VRC_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/fi_errno.h>

/* The object that a fid is part of: each object's header has one of these. */
#define VRC_CONVERTER(obj, fid_type)                                       \
	static inline struct obj *obj(const struct fid_type *fid)         \
	{                                                                  \
		return (struct obj *)((char *)(uintptr_t)fid -            \
				      offsetof(struct obj, fid));          \
	}

/* libfabric's fids point to tables that nobody writes, without const. */
#define VRC_OPS(table) ((void *)(uintptr_t)(table))

/* verbs' errno, of either sign or from errno, to -FI_E*; never returns 0. */
static inline int vrc_err(int verbs_errno)
{
	if (verbs_errno < 0)
		verbs_errno = -verbs_errno;
	return verbs_errno ? -verbs_errno : -FI_EOTHER;
}

#endif
