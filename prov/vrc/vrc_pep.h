/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The listening side: the passive endpoint (vrc_pep.c), and the requests that came to
 * it (vrc_connreq.c).
 */
#ifndef VRC_PEP_H
#define VRC_PEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_ep.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

struct vrc_cm_note;
struct vrc_eq;
struct vrc_fabric;

struct vrc_pep {
	struct fid_pep fid;
	struct vrc_fabric *fabric;
	struct vrc_eq *eq;
	struct fi_info *info;
	/* Guards what follows against concurrent calls; taken before
	 * eq->lock. src.sa.sa_family is 0 until an address is known. */
	struct lock lock;
	union vrc_sockaddr src;
	int backlog;
	bool listening;
	unsigned int unread; /* requests in the queue; guarded by eq->lock */
	/* Bound ids: a wildcard listens on every backend there is. */
	struct {
		const struct vrc_verbs_ops *ops;
		struct rdma_cm_id *id;
	} ids[2];
};

/* A connection request; info->handle of FI_CONNREQ points to fid. */
struct vrc_connreq {
	struct fid fid; /* fclass FI_CLASS_CONNREQ */
	struct list node;	/* eq->connreqs, until an endpoint takes it */
	const struct vrc_verbs_ops *ops;
	struct rdma_cm_id *id;
	struct vrc_pep *pep;	/* there until the request is read */
	struct vrc_eq *eq;
	bool dead;		/* the peer gave up */
	struct vrc_peer peer;
	uint8_t responder_resources;
	uint8_t initiator_depth;
};

VRC_CONVERTER(vrc_pep, fid_pep)
VRC_CONVERTER(vrc_connreq, fid)

/* vrc_pep.c */
int vrc_pep_open(struct fid_fabric *fabric, struct fi_info *info,
		 struct fid_pep **pep, void *context);
/* RDMA_CM_EVENT_CONNECT_REQUEST on a listening id. Caller holds eq->lock. */
void vrc_pep_connect_request(struct vrc_eq *eq,
			     const struct vrc_verbs_ops *ops,
			     struct rdma_cm_event *event);
/* An event on a listening id. Caller holds eq->lock. */
void vrc_pep_event(struct vrc_pep *pep, const struct vrc_cm_note *note);
/* The address, and the bound id for that backend, are the caller's from now
 * on. Both stay as they are if pep has no address. */
int vrc_pep_take_id(struct vrc_pep *pep, const struct vrc_verbs_ops *ops,
		    union vrc_sockaddr *src,
		    struct rdma_cm_id **id) __must_check;

/* vrc_connreq.c */
/* fi_reject. */
int vrc_connreq_reject(struct fid_pep *pep, fid_t handle, const void *param,
		       size_t paramlen);
/* An event on a request that has no endpoint yet. Caller holds eq->lock. */
void vrc_connreq_event(struct vrc_connreq *req, const struct vrc_cm_note *note);
/* Frees a connection request; rejects it if its id is still there. Caller
 * holds req->eq->lock. */
void vrc_connreq_free(struct vrc_connreq *req);

#endif
