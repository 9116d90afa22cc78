/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults on purpose: SOFTVERBS_FAULT, or sv_fault_set() in this process. What
 * they are is in sv_fault_spec.h and man/softverbs.7.md.
 *
 *	sv_fault.c	the rules that are set; calls; what goes by the clock
 *	sv_fault_data.c	the data path
 *	sv_fault_recv.c	receives that are held back
 *	sv_fault_cq.c	completion queues that are
 *	sv_fault_cm.c	events of rdma_cm
 *	sv_stall.c	queue pairs that hear and say nothing
 *
 * Without rules a call pays one look at a flag, and the data path nothing: the
 * operations of each context are exchanged when a rule wants that.
 */
#ifndef SV_FAULT_H
#define SV_FAULT_H

#include "sv_fault_spec.h"
#include "sv_int.h"

#pragma GCC visibility push(default)

/*
 * set: these rules and no others, counted from now; NULL or "": none. 0, or
 * EINVAL with the reason on stderr, and then nothing has changed. Not while
 * another thread posts or polls, if a rule old or new is about that. seed: the
 * chances from here on repeat (SOFTVERBS_FAULT_SEED; else they differ from run
 * to run). count: how often rules of this hook were asked, and fired.
 */
int sv_fault_set(const char *spec);
void sv_fault_seed(uint64_t seed);
void sv_fault_count(enum sv_fault_hook hook, uint64_t *seen, uint64_t *fired);

#pragma GCC visibility pop

/* Relaxed: who sets rules says from when on they hold. */
extern atomic_bool sv_fault_on;

/* True if a rule fires, which is then copied to hit. Takes a lock that is inside
 * all others. */
bool sv_fault_hit(const struct sv_fault_at *at, struct sv_fault_rule *hit);
int sv_fault_call_slow(enum sv_fault_hook hook, const struct sv_dev *dev,
		       int64_t qpn, int64_t index, uint64_t len,
		       uint64_t total);
void sv_fault_sleep(uint64_t ns);
void sv_fault_fork_child(void);

static inline bool sv_fault_any(void)
{
	return unlikely(atomic_load_explicit(&sv_fault_on,
					     memory_order_relaxed));
}

/* At the beginning of a call, with no lock held: a positive errno or 0. */
static inline int sv_fault_call(enum sv_fault_hook hook,
				const struct sv_dev *dev)
{
	return sv_fault_any() ? sv_fault_call_slow(hook, dev, 0, -1, 0, 0) : 0;
}

static inline int sv_fault_call_qp(enum sv_fault_hook hook,
				   const struct sv_qp *qp)
{
	return sv_fault_any() ? sv_fault_call_slow(hook, qp->ctx->dev,
						   qp->qp.qp_num, -1, 0, 0) : 0;
}

static inline int sv_fault_call_entry(enum sv_fault_hook hook,
				      const struct sv_dev *dev, int64_t index)
{
	return sv_fault_any() ? sv_fault_call_slow(hook, dev, 0, index, 0, 0) :
				0;
}

/* total: what is registered, this included. */
static inline int sv_fault_call_mem(enum sv_fault_hook hook,
				    const struct sv_dev *dev, uint64_t len,
				    uint64_t total)
{
	return sv_fault_any() ? sv_fault_call_slow(hook, dev, 0, -1, len,
						   total) : 0;
}

/* Whether a rule that is set is about the data path; whether one that goes by the
 * clock stalls this QP now. */
bool sv_fault_wants_data(void);
bool sv_fault_stalls(const struct sv_qp *qp);

/* sv_fault_data.c */
bool sv_fault_is_data(enum sv_fault_hook hook);
void sv_fault_ops(struct ibv_context_ops *ops);
/* What does not go through these operations: what a send of so many bytes, and
 * so many in its longest message, is to fail with, or 0; one completion, as
 * sv_cq_poll_one() has it, or a negative errno. */
int sv_fault_send(struct sv_qp *qp, uint64_t bytes, uint64_t longest);
int sv_fault_poll_one(struct sv_cq *cq, struct ibv_wc *wc,
		      struct sv_cq_time *time);
/* sv_fault_recv.c. Whether these receives are held back, so long and as long as
 * older ones are; *err, a positive errno or 0, is then what posting returns. */
bool sv_fault_hold_recv(struct sv_qp *qp, const struct ibv_recv_wr *wr,
			uint64_t hold_ns, int *err);
void sv_fault_recv_fork_child(void);
/* sv_fault_cq.c. When this time is over, a completion queue that is armed and has
 * something raises its event. Returns 0 or a positive errno. drop: it goes. */
int sv_fault_wake_cq(struct sv_cq *cq, uint64_t after_ns);
void sv_fault_drop_cq(struct sv_cq *cq);
void sv_fault_cq_fork_child(void);
/* Everything stays as it is: what is posted is not flushed. */
bool sv_fault_keeps(const struct sv_qp *qp);

/*
 * sv_stall.c. A stalled queue pair takes nothing and sends nothing; its peer
 * hears no more of it. Sends fail when the time for their retries is over. qp: no lock held. link: it is about to stand, is it to be stalled at once?
 */
void sv_qp_stall(struct sv_qp *qp, bool on);
void sv_stall_link(struct sv_link *link);
/* Queue pairs of dev (NULL: any) with this number (-1: any). */
void sv_stall_set(const struct sv_dev *dev, int64_t qpn, bool on);

#endif
