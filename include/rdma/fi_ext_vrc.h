/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the vrc provider offers beyond libfabric's own interface; see fi_vrc(7).
 */
#ifndef FI_EXT_VRC_H
#define FI_EXT_VRC_H

#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Statistics, of an endpoint, a completion queue or a domain:
 *
 *	struct fi_vrc_ops_stats *ops;
 *
 *	fi_open_ops(&ep->fid, FI_VRC_STATS, 0, (void **)&ops, NULL);
 */
#define FI_VRC_STATS "vrc_stats"

struct fi_vrc_stat {
	const char *name; /* constant; fi_vrc(7) lists them, with their units */
	uint64_t value;
};

struct fi_vrc_ops_stats {
	size_t size; /* of this structure, as the provider knows it */
	/*
	 * Reads what fid (the one that the table was opened on) has to say now.
	 *
	 * stats: room for *cnt entries, or NULL if *cnt is 0
	 * cnt: in, the room; out, how many there are
	 *
	 * Returns 0; -FI_ETOOSMALL if there is less room than needed, and then
	 * as many as fit are there; -FI_EINVAL. May be called by any thread at
	 * any time at which fid is open, and slows nobody down: values that belong
	 * together may have been read one after the other.
	 */
	int (*read)(struct fid *fid, struct fi_vrc_stat *stats, size_t *cnt);
};

#ifdef __cplusplus
}
#endif

#endif
