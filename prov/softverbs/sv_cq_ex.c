/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ibv_cq_ex: completions that are read field by field. Each is taken off the
 * ring when the cursor gets there, as by ibv_poll_cq(); the two may be mixed.
 * Unless the CQ was created for one thread the cursor's lock is held from
 * ibv_start_poll() to ibv_end_poll().
 */
#include "sv_fault.h"
#include "sv_int.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
	SV_WC_TIMES = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
		      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	SV_WC_FLAGS = IBV_WC_STANDARD_FLAGS | SV_WC_TIMES,
};

static struct sv_cq *cq_of(struct ibv_cq_ex *cq_ex)
{
	return container_of(cq_ex, struct sv_cq, cq_ex);
}

static const struct ibv_wc *wc_of(struct ibv_cq_ex *cq_ex)
{
	return &cq_of(cq_ex)->cursor->wc;
}

/* ---- the cursor ---- */

static int next_poll(struct ibv_cq_ex *cq_ex)
{
	struct sv_cq *cq = cq_of(cq_ex);
	struct sv_cursor *cursor = cq->cursor;
	int got;

	if (sv_fault_any())
		got = sv_fault_poll_one(cq, &cursor->wc, &cursor->time);
	else
		got = sv_cq_poll_one(cq, &cursor->wc, &cursor->time);
	if (got <= 0)
		return got ? -got : ENOENT;
	cq_ex->wr_id = cursor->wc.wr_id;
	cq_ex->status = cursor->wc.status;
	return 0;
}

/* ibv_end_poll() is not called if this fails. */
static int start_poll(struct ibv_cq_ex *cq_ex, struct ibv_poll_cq_attr *attr)
{
	struct sv_cursor *cursor = cq_of(cq_ex)->cursor;
	int err;

	if (unlikely(attr->comp_mask))
		return EINVAL;
	if (sv_ctx_dead(cq_ex->context))
		return ENODEV;
	/* Begun and not ended: it would wait for itself. */
	if (unlikely(sv_is_self(&cursor->owner)))
		return EINVAL;
	if (cursor->shared)
		sv_lock_take(&cursor->lock);
	err = next_poll(cq_ex);
	if (!err)
		atomic_store_explicit(&cursor->owner, sv_self(),
				      memory_order_relaxed);
	else if (cursor->shared)
		sv_lock_drop(&cursor->lock);
	return err;
}

static void end_poll(struct ibv_cq_ex *cq_ex)
{
	struct sv_cursor *cursor = cq_of(cq_ex)->cursor;

	if (unlikely(!sv_is_self(&cursor->owner)))
		return;
	atomic_store_explicit(&cursor->owner, 0, memory_order_relaxed);
	if (cursor->shared)
		sv_lock_drop(&cursor->lock);
}

/* ---- what it stands on ---- */

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq_ex)
{
	return wc_of(cq_ex)->dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq_ex)
{
	return cq_of(cq_ex)->cursor->time.raw_ns;
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cq_ex)
{
	return cq_of(cq_ex)->cursor->time.wall_ns;
}

/* ---- life ---- */

/* Positive errno. */
static int attr_check(const struct ibv_context *context,
		      const struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ?
				       attr->flags :
				       0;

	if (attr->wc_flags & ~(uint64_t)SV_WC_FLAGS ||
	    attr->comp_mask & ~(IBV_CQ_INIT_ATTR_MASK_FLAGS |
				IBV_CQ_INIT_ATTR_MASK_PD) ||
	    flags & ~IBV_CREATE_CQ_ATTR_SINGLE_THREADED) {
		sv_log("CQ with wc_flags %#llx, attributes %#x, flags %#x: not supported",
		       (unsigned long long)attr->wc_flags, attr->comp_mask,
		       flags);
		return EOPNOTSUPP;
	}
	/* A plain protection domain has nothing to do with a CQ. */
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD &&
	    (!attr->parent_domain || attr->parent_domain->context != context ||
	     !sv_pd(attr->parent_domain)->base))
		return EINVAL;
	return 0;
}

/* Times only where they were asked for: elsewhere nobody takes them. */
static void calls_set(struct ibv_cq_ex *cq_ex, uint64_t wc_flags)
{
	cq_ex->start_poll = start_poll;
	cq_ex->next_poll = next_poll;
	cq_ex->end_poll = end_poll;
	cq_ex->read_opcode = read_opcode;
	cq_ex->read_vendor_err = read_vendor_err;
	cq_ex->read_byte_len = read_byte_len;
	cq_ex->read_imm_data = read_imm_data;
	cq_ex->read_qp_num = read_qp_num;
	cq_ex->read_src_qp = read_src_qp;
	cq_ex->read_wc_flags = read_wc_flags;
	cq_ex->read_slid = read_slid;
	cq_ex->read_sl = read_sl;
	cq_ex->read_dlid_path_bits = read_dlid_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq_ex->read_completion_ts = read_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		cq_ex->read_completion_wallclock_ns =
			read_completion_wallclock_ns;
}

struct ibv_cq_ex *sv_create_cq_ex(struct ibv_context *context,
				  struct ibv_cq_init_attr_ex *attr)
{
	struct sv_cq_opts opts = {
		.cqe = attr->cqe,
		.comp_vector = attr->comp_vector,
		.channel = attr->channel,
		.times = attr->wc_flags & SV_WC_TIMES,
	};
	struct sv_cursor *cursor;
	struct sv_cq *cq;
	int err;

	err = attr_check(context, attr);
	if (err)
		goto err_errno;
	err = ENOMEM;
	cursor = calloc(1, sizeof(*cursor));
	if (!cursor)
		goto err_errno;
	sv_lock_init(&cursor->lock);
	cursor->shared = !(attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
			   attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		opts.pd = sv_pd(attr->parent_domain);
	cq = sv_cq_make(context, &opts);
	if (!cq) {
		err = errno;
		goto err_free_cursor;
	}
	cq->cq.cq_context = attr->cq_context;
	cq->cursor = cursor;
	calls_set(&cq->cq_ex, attr->wc_flags);
	return &cq->cq_ex;

err_free_cursor:
	free(cursor);
err_errno:
	errno = err;
	return NULL;
}

/* The device's clock, in cycles, of which there are 10^9 in a second. */
int sv_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	if (sv_ctx_dead(context))
		return ENODEV;
	if (values->comp_mask & ~IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
		values->raw_clock = (struct timespec){
			.tv_nsec = (long)sv_clock_ns(CLOCK_MONOTONIC_RAW),
		};
	return 0;
}
