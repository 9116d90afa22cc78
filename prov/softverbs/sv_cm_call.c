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
	MAX_RETRY = 7,
	QPN_MASK = 0xffffff,
};

static int param_check(const struct sv_id *id,
		       const struct rdma_conn_param *param, enum sv_cm_msg msg)
{
	const struct sv_dev *dev = sv_id_dev(id);

	if (!param || param->private_data_len > dev->persona->pd_max[msg] ||
	    (param->private_data_len && !param->private_data))
		return EINVAL;
	if (param->responder_resources != RDMA_MAX_RESP_RES &&
	    param->responder_resources > dev->lim.rd_in)
		return EINVAL;
	if (param->initiator_depth != RDMA_MAX_INIT_DEPTH &&
	    param->initiator_depth > dev->lim.rd_out)
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

	if (id->state != SV_ID_ROUTE_RESOLVED)
		return EINVAL;
	err = param_check(id, param, SV_CM_REQ);
	if (!err)
		err = sv_id_qp_take(id, param->qp_num & QPN_MASK);
	if (err)
		return err;
	conn = sv_conn_new(-1, SV_CONN_TCP);
	if (!conn)
		return ENOMEM;
	sv_id_set_depths(id, param->responder_resources,
			 param->initiator_depth);
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

	if (sv_cm_fault(SV_FAULT_connect, cm_id) || sv_cm_enter_id(id))
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

	if (id->state != SV_ID_REQUESTED)
		return EINVAL;
	err = param_check(id, param, SV_CM_REP);
	if (err)
		return err;
	qp = sv_qp_find(param->qp_num & QPN_MASK);
	if (!qp)
		return EINVAL;
	sv_qp_put(qp);
	id->responder_resources = accept_depth(param->responder_resources,
					       id->responder_resources);
	id->initiator_depth = accept_depth(param->initiator_depth,
					   id->initiator_depth);
	err = sv_id_qp_take(id, param->qp_num & QPN_MASK);
	if (!err)
		err = sv_id_qp_up(id);
	if (err)
		return err;
	frame_init(conn, id, param);
	own_conn_init(&conn->own_conn, id, param);
	id->state = SV_ID_ACCEPTED;
	if (conn->foreign)
		sv_cm_foreign_reply(conn);
	sv_passive_accept(conn);
	sv_cm_tcp_go(conn);
	return 0;
}

int sv_cm_accept(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	struct sv_id *id = sv_id(cm_id);
	int err;

	if (sv_cm_fault(SV_FAULT_accept, cm_id) || sv_cm_enter_id(id))
		return -1;
	err = accept_id(id, param);
	return sv_event_complete(id, sv_cm_leave(err));
}

int sv_cm_reject(struct rdma_cm_id *cm_id, const void *pd, uint8_t pd_len)
{
	struct sv_id *id = sv_id(cm_id);

	if (sv_cm_fault(SV_FAULT_reject, cm_id) || sv_cm_enter_id(id))
		return -1;
	if (id->state != SV_ID_REQUESTED ||
	    pd_len > sv_id_dev(id)->persona->pd_max[SV_CM_REJ] ||
	    (pd_len && !pd))
		return sv_cm_leave(EINVAL);
	sv_passive_reject(id->conn, pd, pd_len);
	id->state = SV_ID_FAILED;
	return sv_cm_leave(0);
}

int sv_cm_establish(struct rdma_cm_id *cm_id)
{
	struct sv_id *id = sv_id(cm_id);

	if (sv_cm_fault(SV_FAULT_establish, cm_id) || sv_cm_enter_id(id))
		return -1;
	/* Where the connection owns the QP there is nothing left to say. */
	if (id->state == SV_ID_CONNECTED && sv_id_dev(id)->persona->cm_owns_qp)
		return sv_cm_leave(0);
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

	if (sv_cm_fault(SV_FAULT_disconnect, cm_id) || sv_cm_enter_id(id))
		return -1;
	switch (id->state) {
	case SV_ID_CONNECTED:
		has_event = true;
		id->state = SV_ID_DISCONNECTING;
		sv_id_qp_down(id);
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
		sv_id_qp_down(id);
		id->state = SV_ID_FAILED;
		break;
	default:
		err = EINVAL;
	}
	err = sv_cm_leave(err);
	return has_event ? sv_event_complete(id, err) : err;
}

/* The contexts are those that ids have, so that PDs made with them fit. */
struct ibv_context **sv_cm_get_devices(int *num_devices)
{
	struct ibv_context **list;
	struct sv_dev **devs;
	unsigned int i, cnt = sv_dev_list(&devs);
	int opened = 0;

	if (num_devices)
		*num_devices = 0;
	list = calloc(cnt + 1, sizeof(*list));
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	for (i = 0; i < cnt; i++) {
		list[opened] = sv_ctx_shared(devs[i]);
		if (list[opened])
			opened++;
	}
	if (!opened) {
		free(list);
		if (!cnt)
			errno = ENODEV;
		return NULL;
	}
	if (num_devices)
		*num_devices = opened;
	return list;
}

void sv_cm_free_devices(struct ibv_context **list)
{
	free(list);
}
