/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The calls that make, end and describe a connection. Ids have no QP of their
 * own here: the caller names its QP by number and moves it itself, with the
 * attributes that init_qp_attr gives.
 */
#include "sv_cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEFAULT_ACK_TIMEOUT = 18,	/* 4.096 us * 2^18: about a second */
	MAX_RETRY = 7,
	HOP_LIMIT = 64,
	QPN_MASK = 0xffffff,
};

static int param_check(const struct rdma_conn_param *param, size_t pd_max)
{
	if (!param || param->private_data_len > pd_max ||
	    (param->private_data_len && !param->private_data))
		return EINVAL;
	if (param->responder_resources != RDMA_MAX_RESP_RES &&
	    param->responder_resources > SV_MAX_RD_ATOM)
		return EINVAL;
	if (param->initiator_depth != RDMA_MAX_INIT_DEPTH &&
	    param->initiator_depth > SV_MAX_RD_ATOM)
		return EINVAL;
	return 0;
}

static void frame_init(struct sv_conn *conn, const struct sv_id *id,
		       const struct rdma_conn_param *param)
{
	struct sv_mpa *mpa = &conn->own;

	sv_conn_own_frame(conn, id->responder_resources, id->initiator_depth);
	mpa->pd_len = param->private_data_len;
	if (mpa->pd_len)
		memcpy(mpa->pd, param->private_data, mpa->pd_len);
}

static void own_conn_init(struct sv_ctrl_conn *conn, const struct sv_id *id,
			  const struct rdma_conn_param *param)
{
	conn->qp_num = param->qp_num & QPN_MASK;
	conn->psn = id->psn;
	conn->retry_cnt = (uint8_t)min_size(param->retry_count, MAX_RETRY);
	conn->rnr_retry_cnt =
		(uint8_t)min_size(param->rnr_retry_count, MAX_RETRY);
	conn->flow_control = param->flow_control;
	conn->srq = param->srq;
}

static int connect_id(struct sv_id *id, const struct rdma_conn_param *param)
{
	struct sv_conn *conn;
	int err;

	err = param_check(param, SV_CM_REQ_PD);
	if (err)
		return err;
	if (id->state != SV_ID_ROUTE_RESOLVED)
		return EINVAL;
	conn = sv_conn_new(-1, SV_CONN_TCP);
	if (!conn)
		return ENOMEM;
	id->responder_resources = (uint8_t)min_size(param->responder_resources,
						    SV_MAX_RD_ATOM);
	id->initiator_depth = (uint8_t)min_size(param->initiator_depth,
						SV_MAX_RD_ATOM);
	frame_init(conn, id, param);
	own_conn_init(&conn->own_conn, id, param);
	id->retry_cnt = conn->own_conn.retry_cnt;
	conn->id = id;
	id->conn = conn;
	id->state = SV_ID_CONNECTING;
	err = sv_active_connect(id);
	if (err) {
		sv_conn_close(conn);
		id->state = SV_ID_FAILED;
	}
	return err;
}

int sv_cm_connect(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	struct sv_id *id = sv_id(cm_id);
	int err;

	if (sv_cm_enter_id(id))
		return -1;
	err = connect_id(id, param);
	return sv_event_complete(id, sv_cm_leave(err));
}

/* "Maximum" is what the peer asked for, as far as the device can. */
static uint8_t accept_depth(uint8_t wanted, uint8_t asked)
{
	return wanted == RDMA_MAX_RESP_RES ? asked : wanted;
}

static int accept_id(struct sv_id *id, const struct rdma_conn_param *param)
{
	struct sv_conn *conn = id->conn;
	struct sv_qp *qp;
	int err;

	err = param_check(param, SV_CM_REP_PD);
	if (err)
		return err;
	if (id->state != SV_ID_REQUESTED)
		return EINVAL;
	qp = sv_qp_find(param->qp_num & QPN_MASK);
	if (!qp)
		return EINVAL;
	sv_qp_put(qp);
	id->responder_resources = accept_depth(param->responder_resources,
					       id->responder_resources);
	id->initiator_depth = accept_depth(param->initiator_depth,
					   id->initiator_depth);
	frame_init(conn, id, param);
	own_conn_init(&conn->own_conn, id, param);
	id->state = SV_ID_ACCEPTED;
	sv_passive_accept(conn);
	return 0;
}

int sv_cm_accept(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	struct sv_id *id = sv_id(cm_id);
	int err;

	if (sv_cm_enter_id(id))
		return -1;
	err = accept_id(id, param);
	return sv_event_complete(id, sv_cm_leave(err));
}

int sv_cm_reject(struct rdma_cm_id *cm_id, const void *pd, uint8_t pd_len)
{
	struct sv_id *id = sv_id(cm_id);

	if (sv_cm_enter_id(id))
		return -1;
	if (id->state != SV_ID_REQUESTED || pd_len > SV_CM_REJ_PD ||
	    (pd_len && !pd))
		return sv_cm_leave(EINVAL);
	sv_passive_reject(id->conn, pd, pd_len);
	id->state = SV_ID_FAILED;
	return sv_cm_leave(0);
}

int sv_cm_establish(struct rdma_cm_id *cm_id)
{
	struct sv_id *id = sv_id(cm_id);

	if (sv_cm_enter_id(id))
		return -1;
	if (id->state != SV_ID_RESPONDED)
		return sv_cm_leave(EINVAL);
	id->state = SV_ID_CONNECTED;
	sv_conn_send_plain(id->conn, SV_CTRL_READY);
	return sv_cm_leave(0);
}

/*
 * Before the connection is established this ends its making, and the peer gets
 * REJECTED; the caller gets no event. Once the peer has disconnected there is
 * nothing left to do, and that is no error.
 */
int sv_cm_disconnect(struct rdma_cm_id *cm_id)
{
	struct sv_id *id = sv_id(cm_id);
	bool has_event = false;
	int err = 0;

	if (sv_cm_enter_id(id))
		return -1;
	switch (id->state) {
	case SV_ID_CONNECTED:
		has_event = true;
		id->state = SV_ID_DISCONNECTING;
		sv_conn_disconnect(id->conn);
		break;
	case SV_ID_DISCONNECTING:
	case SV_ID_DISCONNECTED:
		break;
	case SV_ID_CONNECTING:
	case SV_ID_RESPONDED:
	case SV_ID_REQUESTED:
	case SV_ID_ACCEPTED:
		sv_conn_goodbye(id->conn);
		id->state = SV_ID_FAILED;
		break;
	default:
		err = EINVAL;
	}
	err = sv_cm_leave(err);
	return has_event ? sv_event_complete(id, err) : err;
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
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		IBV_QP_ACCESS_FLAGS;
}

static int attr_rtr(struct sv_id *id, struct ibv_qp_attr *attr, int *mask)
{
	struct rdma_addr *addr = &id->id.route.addr;
	int gid_index = sv_addr_gid_index(&addr->src_addr);

	if (gid_index < 0)
		return ENODEV;
	memset(&attr->ah_attr, 0, sizeof(attr->ah_attr));
	attr->ah_attr.is_global = 1;
	attr->ah_attr.port_num = id->id.port_num;
	sv_addr_gid(&addr->dst_addr, &attr->ah_attr.grh.dgid);
	attr->ah_attr.grh.sgid_index = (uint8_t)gid_index;
	attr->ah_attr.grh.hop_limit = HOP_LIMIT;
	attr->ah_attr.grh.traffic_class = id->tos;
	attr->path_mtu = IBV_MTU_4096;
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
	attr->rnr_retry = id->remote.rnr_retry_cnt;
	attr->max_rd_atomic = id->initiator_depth;
	*mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
}

/* attr->qp_state says which state the attributes are for. */
int sv_cm_init_qp_attr(struct rdma_cm_id *cm_id, struct ibv_qp_attr *attr,
		       int *mask)
{
	struct sv_id *id = sv_id(cm_id);
	int err = 0;

	if (sv_cm_enter_id(id))
		return -1;
	if (!attr || !mask || !cm_id->verbs)
		return sv_cm_leave(EINVAL);
	if (attr->qp_state == IBV_QPS_INIT)
		attr_init(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTR && knows_remote(id))
		err = attr_rtr(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTS && knows_remote(id))
		attr_rts(id, attr, mask);
	else
		err = EINVAL;
	return sv_cm_leave(err);
}

/* The context is the one that ids have, so that PDs made with it fit them. */
struct ibv_context **sv_cm_get_devices(int *num_devices)
{
	struct ibv_context **list = calloc(2, sizeof(*list));

	if (num_devices)
		*num_devices = 0;
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	list[0] = sv_ctx_shared();
	if (!list[0]) {
		free(list);
		return NULL;
	}
	if (num_devices)
		*num_devices = 1;
	return list;
}

void sv_cm_free_devices(struct ibv_context **list)
{
	free(list);
}
