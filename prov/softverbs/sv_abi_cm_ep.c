/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * librdmacm.so.1: rdma_create_ep() and rdma_get_request(), which put several
 * calls into one for programs that wait. A listener remembers with what
 * attributes the QPs of its connections are to be made.
 */
#include "sv_abi_cm.h"

#include <errno.h>
#include <stdlib.h>

enum {
	RESOLVE_MS = 2000,
};

struct ep {
	struct list node; /* eps */
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_qp_init_attr attr;
};

static struct lock ep_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct list eps = { &eps, &eps }; /* ep_lock */

/* Caller holds ep_lock. */
static struct ep *ep_find(const struct rdma_cm_id *id)
{
	struct list *pos;

	list_for_each(pos, &eps)
		if (list_entry(pos, struct ep, node)->id == id)
			return list_entry(pos, struct ep, node);
	return NULL;
}

static int ep_remember(struct rdma_cm_id *id, struct ibv_pd *pd,
		       const struct ibv_qp_init_attr *attr)
{
	struct ep *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return sv_abi_cm_fail(ENOMEM);
	ep->id = id;
	ep->pd = pd;
	ep->attr = *attr;
	lock_take(&ep_lock);
	list_add_tail(&eps, &ep->node);
	lock_drop(&ep_lock);
	return 0;
}

void sv_abi_ep_forget(struct rdma_cm_id *id)
{
	struct ep *ep;

	lock_take(&ep_lock);
	ep = ep_find(id);
	if (ep)
		list_del(&ep->node);
	lock_drop(&ep_lock);
	free(ep);
}

/* ---- making ---- */

static int ep_passive(struct rdma_cm_id *id, struct rdma_addrinfo *res,
		      struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(id, res->ai_src_addr))
		return -1;
	return attr ? ep_remember(id, pd, attr) : 0;
}

static int ep_active(struct rdma_cm_id *id, struct rdma_addrinfo *res,
		     struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr,
			      RESOLVE_MS) ||
	    rdma_resolve_route(id, RESOLVE_MS))
		return -1;
	if (!attr)
		return 0;
	attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return rdma_create_qp(id, pd, attr);
}

int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res,
		   struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	int err;

	if (!out || !res)
		return sv_abi_cm_fail(EINVAL);
	if (rdma_create_id(NULL, &id, NULL,
			   (enum rdma_port_space)res->ai_port_space))
		return -1;
	if (res->ai_flags & RAI_PASSIVE ? ep_passive(id, res, pd, attr) :
					  ep_active(id, res, pd, attr)) {
		err = errno;
		rdma_destroy_ep(id);
		return sv_abi_cm_fail(err);
	}
	*out = id;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

/* ---- requests ---- */

static int request_qp(struct rdma_cm_id *listen, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr;
	struct ibv_pd *pd = NULL;
	struct ep *ep;

	lock_take(&ep_lock);
	ep = ep_find(listen);
	if (ep) {
		attr = ep->attr;
		pd = ep->pd;
	}
	lock_drop(&ep_lock);
	if (!ep)
		return 0;
	attr.qp_type = id->qp_type;
	return rdma_create_qp(id, pd, &attr);
}

/* The event stays with the new id, which waits for its own from now on. */
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int err;

	if (!sv_id(listen)->sync)
		return sv_abi_cm_fail(EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->status || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		err = event->status < 0 ? -event->status : EINVAL;
		rdma_ack_cm_event(event);
		return sv_abi_cm_fail(err);
	}
	id = event->id;
	if (request_qp(listen, id) || rdma_migrate_id(id, NULL)) {
		err = errno;
		rdma_ack_cm_event(event);
		rdma_reject(id, NULL, 0);
		rdma_destroy_ep(id);
		return sv_abi_cm_fail(err);
	}
	id->event = event;
	*out = id;
	return 0;
}
