/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What an id's connection means for the attributes of its queue pair: the path
 * that it takes, and what each state is to be given.
 */
#include "sv_cm.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEFAULT_ACK_TIMEOUT = 18,	/* 4.096 us * 2^18: about a second */
	HOP_LIMIT = 64,
};

/* What a subnet manager would say about the path. iWARP knows of none. */
int sv_id_set_path(struct sv_id *id)
{
	struct rdma_route *route = &id->id.route;
	struct sv_dev *dev = sv_id_dev(id);
	struct ibv_sa_path_rec *path;
	uint16_t slid, dlid;

	if (dev->persona->cm_owns_qp)
		return 0;
	if (!id->path)
		id->path = calloc(1, sizeof(*id->path));
	if (!id->path)
		return ENOMEM;
	path = id->path;
	sv_dev_path(dev, &route->addr.src_addr, &path->sgid, &slid);
	sv_dev_path(dev, &route->addr.dst_addr, &path->dgid, &dlid);
	path->slid = htobe16(slid);
	path->dlid = htobe16(dlid);
	path->hop_limit = dev->persona->has_lid ? 0 : HOP_LIMIT;
	path->traffic_class = id->tos;
	path->reversible = 1;
	path->numb_path = 1;
	path->pkey = htobe16(0xffff);
	path->mtu_selector = 2;	/* exactly */
	path->mtu = (uint8_t)sv_dev_mtu(dev);
	path->rate_selector = 2;
	path->rate = IBV_RATE_100_GBPS;
	path->packet_life_time_selector = 2;
	path->packet_life_time = 16;
	route->addr.addr.ibaddr.sgid = path->sgid;
	route->addr.addr.ibaddr.dgid = path->dgid;
	route->addr.addr.ibaddr.pkey = path->pkey;
	route->path_rec = path;
	route->num_paths = 1;
	return 0;
}

int sv_path_addr(struct sv_dev *dev, const union ibv_gid *gid, uint16_t lid,
		 uint32_t ifindex, struct sockaddr_storage *addr)
{
	struct sv_dev_addr found;

	if (!dev->persona->has_lid)
		return gid ? sv_addr_of_gid(gid, ifindex, addr) : EINVAL;
	if (!sv_dev_of_path(gid, lid, &found))
		return EINVAL;
	sv_addr_copy(addr, &found.sa);
	return 0;
}

static bool knows_remote(const struct sv_id *id)
{
	switch (id->state) {
	case SV_ID_RESPONDED:
	case SV_ID_REQUESTED:
	case SV_ID_ACCEPTED:
	case SV_ID_CONNECTED:
	case SV_ID_DISCONNECTING:
	case SV_ID_DISCONNECTED:
		return true;
	default:
		return false;
	}
}

static void attr_init(struct sv_id *id, struct ibv_qp_attr *attr, int *mask)
{
	attr->pkey_index = 0;
	attr->port_num = id->id.port_num;
	attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ;
	if (!sv_id_dev(id)->persona->no_atomics)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		IBV_QP_ACCESS_FLAGS;
}

/* Within one subnet InfiniBand needs no GRH; RoCE has nothing but it. */
static int attr_path(struct sv_id *id, struct ibv_ah_attr *ah)
{
	struct rdma_addr *addr = &id->id.route.addr;
	struct sv_dev *dev = sv_id_dev(id);
	int gid_index;

	if (!sv_dev_find(&addr->src_addr, &gid_index) || gid_index < 0)
		return ENODEV;
	memset(ah, 0, sizeof(*ah));
	ah->port_num = id->id.port_num;
	sv_dev_path(dev, &addr->dst_addr, &ah->grh.dgid, &ah->dlid);
	ah->grh.sgid_index = (uint8_t)gid_index;
	ah->grh.traffic_class = id->tos;
	if (dev->persona->has_lid)
		return 0;
	ah->is_global = 1;
	ah->grh.hop_limit = HOP_LIMIT;
	return 0;
}

static int attr_rtr(struct sv_id *id, struct ibv_qp_attr *attr, int *mask)
{
	int err = attr_path(id, &attr->ah_attr);

	if (err)
		return err;
	attr->path_mtu = sv_dev_mtu(sv_id_dev(id));
	attr->dest_qp_num = id->remote.qp_num;
	/* Each side receives from its own number, and tells the peer. */
	attr->rq_psn = id->psn;
	attr->max_dest_rd_atomic = id->responder_resources;
	attr->min_rnr_timer = 0;
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER;
	return 0;
}

static void attr_rts(struct sv_id *id, struct ibv_qp_attr *attr, int *mask)
{
	attr->sq_psn = id->remote.psn;
	attr->timeout = id->ack_timeout ? id->ack_timeout :
		DEFAULT_ACK_TIMEOUT;
	attr->retry_cnt = id->retry_cnt;
	attr->rnr_retry = (uint8_t)min_size(id->remote.rnr_retry_cnt,
					    sv_id_dev(id)->lim.rnr_retry);
	attr->max_rd_atomic = id->initiator_depth;
	*mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
}

/* iWARP: the connection manager does the rest by itself. */
static int attr_owned(struct sv_id *id, struct ibv_qp_attr *attr, int *mask)
{
	*mask = 0;
	if (attr->qp_state == IBV_QPS_RTS)
		return 0;
	if (attr->qp_state != IBV_QPS_INIT && attr->qp_state != IBV_QPS_RTR)
		return EINVAL;
	attr->port_num = id->id.port_num;
	attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ;
	*mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	return 0;
}

/* attr->qp_state says which state the attributes are for. */
int sv_cm_init_qp_attr(struct rdma_cm_id *cm_id, struct ibv_qp_attr *attr,
		       int *mask)
{
	struct sv_id *id = sv_id(cm_id);
	int err = 0;

	if (sv_cm_fault(SV_FAULT_init_qp_attr, cm_id) || sv_cm_enter_id(id))
		return -1;
	if (!attr || !mask || !cm_id->verbs)
		return sv_cm_leave(EINVAL);
	if (sv_id_dev(id)->persona->cm_owns_qp)
		err = attr_owned(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_INIT)
		attr_init(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTR && knows_remote(id))
		err = attr_rtr(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTS && knows_remote(id))
		attr_rts(id, attr, mask);
	else
		err = EINVAL;
	return sv_cm_leave(err);
}
