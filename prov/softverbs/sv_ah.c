/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Address handles. No datagram is ever sent here: they exist because programs
 * make one to learn whether a GID can be reached (UCX), or to have its
 * attributes checked. What a queue pair is told of its peer is checked in the
 * same way.
 */
#include "sv_fault.h"
#include "sv_int.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* RoCE addresses by GID only, InfiniBand by LID if it likes. */
bool sv_ah_attr_ok(struct ibv_context *context, const struct ibv_ah_attr *attr)
{
	const struct sv_persona *persona = sv_ctx(context)->dev->persona;
	struct ibv_gid_entry gid;

	if (attr->port_num != SV_PORT)
		return false;
	if (!attr->is_global)
		return persona->has_lid ? attr->dlid : !persona->needs_grh;
	return !sv_query_gid_ex(context, SV_PORT, attr->grh.sgid_index, &gid,
				0);
}

struct ibv_ah *sv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah;
	int err = EINVAL;

	if (sv_ctx_dead(pd->context))
		err = ENODEV;
	else if (!sv_ah_attr_ok(pd->context, attr))
		sv_log("ibv_create_ah: port %u, sgid_index %u%s: not valid",
		       attr->port_num, attr->grh.sgid_index,
		       attr->is_global ? "" : ", no GRH");
	else
		err = sv_fault_call(SV_FAULT_create_ah,
				    sv_ctx(pd->context)->dev);
	ah = err ? NULL : calloc(1, sizeof(*ah));
	if (!ah) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	ah->context = pd->context;
	ah->pd = pd;
	atomic_fetch_add(&sv_pd(pd)->users, 1);
	return ah;
}

int sv_destroy_ah(struct ibv_ah *ah)
{
	if (sv_ctx_dead(ah->context))
		return 0;
	atomic_fetch_sub(&sv_pd(ah->pd)->users, 1);
	free(ah);
	return 0;
}

/* The entry of the GID that a message came to, or -1. */
static int gid_index_of(struct ibv_context *context, const union ibv_gid *gid)
{
	const struct sv_dev *dev = sv_ctx(context)->dev;
	struct ibv_gid_entry entry;
	uint32_t i;

	for (i = 0; i < dev->lim.gid; i++)
		if (!sv_query_gid_ex(context, SV_PORT, i, &entry, 0) &&
		    entry.gid_type == dev->persona->cm_gid_type &&
		    !memcmp(&entry.gid, gid, sizeof(*gid)))
			return (int)i;
	return -1;
}

int sv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
		       struct ibv_wc *wc, struct ibv_grh *grh,
		       struct ibv_ah_attr *attr)
{
	uint32_t flow;
	int index;

	*attr = (struct ibv_ah_attr){
		.dlid = wc->slid,
		.sl = wc->sl,
		.src_path_bits = wc->dlid_path_bits,
		.port_num = port_num,
	};
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	index = gid_index_of(context, &grh->dgid);
	if (index < 0) {
		errno = EINVAL;
		return -1;
	}
	flow = be32toh(grh->version_tclass_flow);
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.flow_label = flow & 0xfffff;
	attr->grh.traffic_class = (flow >> 20) & 0xff;
	attr->grh.hop_limit = 0xff;
	return 0;
}
