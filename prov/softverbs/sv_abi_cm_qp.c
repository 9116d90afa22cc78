/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * librdmacm.so.1: the QP that belongs to an id. It is made in INIT, goes to
 * RTS when the connection is accepted, and to ERR when it ends. What the
 * application does not bring (PD, CQs with their channels) is made for it.
 */
#include "sv_abi_cm.h"

#include <errno.h>

/* The ids of a device are of one context, which lives as long as the process.
 * After fork() the child's are others. */
static struct lock pd_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct ibv_pd *default_pds[SV_MAX_DEV]; /* pd_lock; by device */

void sv_abi_id_bound(struct rdma_cm_id *id)
{
	struct ibv_pd **pd;

	if (!id->verbs || id->pd)
		return;
	lock_take(&pd_lock);
	pd = &default_pds[sv_dev(id->verbs->device)->index];
	if (!*pd || (*pd)->context != id->verbs)
		*pd = ibv_alloc_pd(id->verbs);
	id->pd = *pd;
	lock_drop(&pd_lock);
}

/* ---- making ---- */

static void cqs_destroy(struct rdma_cm_id *id)
{
	if (id->recv_cq)
		ibv_destroy_cq(id->recv_cq);
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	if (id->send_cq)
		ibv_destroy_cq(id->send_cq);
	if (id->send_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
}

static struct ibv_cq *cq_make(struct rdma_cm_id *id, uint32_t cqe,
			      struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return NULL;
	return ibv_create_cq(id->verbs, cqe ? (int)cqe : 1, id, *channel, 0);
}

static int cqs_make(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (!attr->recv_cq) {
		id->recv_cq = cq_make(id, attr->cap.max_recv_wr,
				      &id->recv_cq_channel);
		if (!id->recv_cq)
			return -1;
		attr->recv_cq = id->recv_cq;
	}
	if (!attr->send_cq) {
		id->send_cq = cq_make(id, attr->cap.max_send_wr,
				      &id->send_cq_channel);
		if (!id->send_cq)
			return -1;
		attr->send_cq = id->send_cq;
	}
	return 0;
}

static int qp_modify(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int mask)
{
	int err = ibv_modify_qp(id->qp, attr, mask);

	return err ? sv_abi_cm_fail(err) : 0;
}

static int qp_to_init(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	if (sv_cm_init_qp_attr(id, &attr, &mask))
		return -1;
	return qp_modify(id, &attr, mask);
}

/* Positive errno. */
static int attr_check(const struct rdma_cm_id *id,
		      const struct ibv_qp_init_attr_ex *attr)
{
	if (id->qp || !id->verbs)
		return EINVAL;
	if (attr->qp_type != id->qp_type)
		return EINVAL;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_PD && attr->pd &&
	    attr->pd->context != id->verbs)
		return EINVAL;
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	int err = attr_check(id, attr);

	if (err)
		return sv_abi_cm_fail(err);
	sv_abi_id_bound(id);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	if (!attr->srq)
		attr->srq = id->srq;
	if (cqs_make(id, attr))
		goto err_destroy_cqs;
	id->qp = ibv_create_qp_ex(id->verbs, attr);
	if (!id->qp)
		goto err_destroy_cqs;
	if (qp_to_init(id))
		goto err_destroy_qp;
	id->pd = id->qp->pd;
	return 0;

err_destroy_qp:
	err = errno;
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
	errno = err;
err_destroy_cqs:
	err = errno;
	cqs_destroy(id);
	return sv_abi_cm_fail(err);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};

	if (rdma_create_qp_ex(id, &ex))
		return -1;
	attr->send_cq = ex.send_cq;
	attr->recv_cq = ex.recv_cq;
	attr->cap = ex.cap;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (!id->qp)
		return;
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
	cqs_destroy(id);
}

/* ---- moving ---- */

int sv_abi_qp_to_rts(struct rdma_cm_id *id, const struct rdma_conn_param *param)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask;

	if (sv_cm_init_qp_attr(id, &attr, &mask))
		return -1;
	if (param && param->responder_resources != RDMA_MAX_RESP_RES)
		attr.max_dest_rd_atomic = param->responder_resources;
	if (qp_modify(id, &attr, mask))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	if (sv_cm_init_qp_attr(id, &attr, &mask))
		return -1;
	if (param && param->initiator_depth != RDMA_MAX_INIT_DEPTH)
		attr.max_rd_atomic = param->initiator_depth;
	return qp_modify(id, &attr, mask);
}

int sv_abi_qp_to_err(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return id->qp ? qp_modify(id, &attr, IBV_QP_STATE) : 0;
}

int sv_abi_qp_responded(struct rdma_cm_id *id)
{
	int err;

	if (!sv_abi_qp_to_rts(id, NULL) && !sv_cm_establish(id))
		return 0;
	err = errno;
	sv_abi_qp_to_err(id);
	sv_cm_disconnect(id);
	return sv_abi_cm_fail(err);
}

/* ---- shared receive queues ---- */

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	if (id->srq || !id->verbs)
		return sv_abi_cm_fail(EINVAL);
	sv_abi_id_bound(id);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	id->srq = ibv_create_srq_ex(id->verbs, attr);
	return id->srq ? 0 : -1;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
		    struct ibv_srq_init_attr *attr)
{
	if (id->srq || !id->verbs)
		return sv_abi_cm_fail(EINVAL);
	sv_abi_id_bound(id);
	if (pd && pd->context != id->verbs)
		return sv_abi_cm_fail(EINVAL);
	id->srq = ibv_create_srq(pd ? pd : id->pd, attr);
	return id->srq ? 0 : -1;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
