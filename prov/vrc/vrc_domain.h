/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The domain: a device context and a protection domain of our own. */
#ifndef VRC_DOMAIN_H
#define VRC_DOMAIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "vrc.h"
#include "vrc_verbs.h"

struct vrc_dev;
struct vrc_fabric;
struct vrc_words;

struct vrc_domain {
	struct fid_domain fid;
	struct vrc_fabric *fabric;
	struct vrc_dev *dev;
	const struct vrc_verbs_ops *ops;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	atomic_int ref;
	/* Upper half of every descriptor of this domain; see vrc_mr.c. */
	uint32_t desc_tag;
	enum fi_threading threading;
	/* Threads may call into one object at once (FI_THREAD_SAFE). */
	bool thread_safe; /* who posts takes locks */
	bool cq_thread_safe; /* who looks for completions does */
	bool rm_disabled; /* FI_RM_DISABLED was asked for */
	/* The application registers nothing (no FI_MR_LOCAL): vrc_local.c. */
	bool local_reg;
	/* ofi_rxm is between us and the application: vrc_cq_read.c. Relaxed:
	 * it registers its pools before it posts. */
	atomic_bool layered;
	/* Takes what nobody wants of atomics; NULL without FI_ATOMIC. */
	uint64_t *scratch;
	struct ibv_mr *scratch_mr;
	/* Statistics: registrations that there are, and that were refused. */
	_Atomic uint64_t mr_cnt;
	_Atomic uint64_t mr_bytes;
	_Atomic uint64_t mr_failed;
	/* Words that peers read, and where theirs go: vrc_deliver.c. */
	struct vrc_words *words;
	struct ibv_mr *words_mr;
	/* The most that a queue pair was seen to inline, bytes. */
	atomic_uint max_inline;
};

VRC_CONVERTER(vrc_domain, fid_domain)

/* vrc_domain.c */
int vrc_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		    struct fid_domain **domain, void *context);

#endif
