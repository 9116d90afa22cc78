/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connection requests: they arrive on a passive endpoint, are read as FI_CONNREQ
 * and end with an endpoint that takes them, or with fi_reject. Until then they
 * are on their event queue's list. A request that was read outlives its passive
 * endpoint, because programs close that before they call fi_endpoint; one that
 * nobody has read is refused with it.
 */
#include <stdlib.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc_cm.h"
#include "vrc_dev.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_pep.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

void vrc_connreq_free(struct vrc_connreq *req)
{
	lock_assert_held(&req->eq->lock);
	list_del(&req->node);
	if (req->id) {
		if (!req->dead)
			vrc_cm_id_reject(req->ops, req->id, NULL, 0);
		req->ops->destroy_id(req->id);
	}
	free(req);
}

/* By address, as a request that is gone must not be looked at. Caller holds
 * eq->lock. */
static struct vrc_connreq *find_connreq(struct vrc_pep *pep,
					const struct fid *handle)
{
	struct vrc_connreq *req;
	struct list *pos;

	list_for_each(pos, &pep->eq->connreqs) {
		req = list_entry(pos, struct vrc_connreq, node);
		if (&req->fid == handle)
			return req;
	}
	return NULL;
}

int vrc_connreq_reject(struct fid_pep *fid, fid_t handle, const void *param,
		       size_t paramlen)
{
	struct vrc_pep *pep = vrc_pep(fid);
	struct vrc_connreq *req;
	int ret = 0;

	if (paramlen > VRC_CM_DATA_SIZE || (paramlen && !param)) {
		vrc_warn(EP_CTRL, "pep: fi_reject with %zu bytes; at most %d "
			 "are sent (FI_OPT_CM_DATA_SIZE)\n", paramlen,
			 VRC_CM_DATA_SIZE);
		return -FI_EINVAL;
	}
	if (!pep->eq)
		return -FI_ENOEQ;
	lock_take(&pep->eq->lock);
	req = find_connreq(pep, handle);
	if (req) {
		if (!req->dead)
			vrc_cm_id_reject(req->ops, req->id, param, paramlen);
		req->dead = true;
		vrc_connreq_free(req);
	} else {
		/* Not a warning: programs do that when accepting failed. */
		vrc_info(EP_CTRL, "pep: fi_reject: the request has an "
			 "endpoint or is gone\n");
		ret = -FI_EINVAL;
	}
	lock_drop(&pep->eq->lock);
	return ret;
}

void vrc_connreq_event(struct vrc_connreq *req, const struct vrc_cm_note *note)
{
	char str[VRC_ADDRSTR];

	lock_assert_held(&req->eq->lock);
	switch (note->type) {
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		vrc_info(EP_CTRL, "pep: %s gave up waiting for an answer\n",
			 vrc_sockaddr_str(&req->id->route.addr.dst_addr, str));
		req->dead = true;
		break;
	default:
		break;
	}
}

/* Refuses a request that the application does not get to see. */
static void turn_down(const struct vrc_verbs_ops *ops, struct rdma_cm_id *id,
		      const char *why)
{
	char str[VRC_ADDRSTR];

	vrc_warn(EP_CTRL, "pep: connection from %s refused: %s\n",
		 vrc_sockaddr_str(&id->route.addr.dst_addr, str), why);
	vrc_cm_id_reject(ops, id, NULL, 0);
	ops->destroy_id(id);
}

static struct fi_info *connreq_info(const struct vrc_pep *pep,
				    const struct vrc_verbs_ops *ops,
				    const struct rdma_cm_id *id)
{
	union vrc_sockaddr src, dst;
	struct fi_info *info;
	struct vrc_dev *dev;

	if (!id->verbs || !vrc_sockaddr_set(&src, &id->route.addr.src_addr) ||
	    !vrc_sockaddr_set(&dst, &id->route.addr.dst_addr))
		return NULL;
	dev = vrc_dev_get(ops->get_device_name(id->verbs->device));
	if (!dev)
		return NULL;
	info = vrc_info_for_connreq(dev, pep->info, &src.sa, &dst.sa);
	vrc_dev_put(dev);
	return info;
}

/* Caller holds eq->lock; pep's ids and info do not change while listening. */
static void queue_request(struct vrc_pep *pep, const struct vrc_verbs_ops *ops,
			  struct rdma_cm_id *id, const struct vrc_cm_note *note)
{
	struct vrc_connreq *req;
	struct fi_info *info;

	info = connreq_info(pep, ops, id);
	if (!info) {
		turn_down(ops, id, "no info for its device and addresses");
		return;
	}
	req = calloc(1, sizeof(*req));
	if (!req)
		goto err_free_info;
	req->fid.fclass = FI_CLASS_CONNREQ;
	req->fid.context = pep->fid.fid.context;
	req->ops = ops;
	req->id = id;
	req->pep = pep;
	req->eq = pep->eq;
	req->peer = note->data.peer;
	req->responder_resources = note->responder_resources;
	req->initiator_depth = note->initiator_depth;
	info->handle = &req->fid;
	if (vrc_eq_post_cm(pep->eq, FI_CONNREQ, &pep->fid.fid, info,
			   note->data.data, note->data.len))
		goto err_free_req;
	list_add_tail(&pep->eq->connreqs, &req->node);
	id->context = &req->fid;
	pep->unread++;
	return;

err_free_req:
	free(req);
err_free_info:
	info->handle = NULL;
	fi_freeinfo(info);
	turn_down(ops, id, "out of memory");
}

void vrc_pep_connect_request(struct vrc_eq *eq,
			     const struct vrc_verbs_ops *ops,
			     struct rdma_cm_event *event)
{
	struct fid *fid = event->listen_id->context;
	struct vrc_pep *pep = container_of(fid, struct vrc_pep, fid.fid);
	struct rdma_cm_id *id = event->id;
	struct vrc_cm_note note;

	lock_assert_held(&eq->lock);
	/* The event counts for the listener: with it acknowledged, either id
	 * may be destroyed. */
	vrc_cm_note_take(&note, ops, event);
	if (!note.data_ok)
		turn_down(ops, id, "malformed private data");
	else if (pep->unread >= (unsigned int)pep->backlog)
		turn_down(ops, id, "the backlog is full; is the event queue "
			  "read?");
	else
		queue_request(pep, ops, id, &note);
}
