/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the files of connection management share: vrc_cm.c (calls on active
 * endpoints), vrc_cm_id.c (rdma_cm ids) and vrc_cm_event.c (events). The listening
 * side is in vrc_pep.h.
 */
#ifndef VRC_CM_H
#define VRC_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>

#include "compiler.h"
#include "vrc_cmdata.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

struct vrc_addr;
struct vrc_dev;
struct vrc_domain;
struct vrc_ep;
struct vrc_eq;

/* An rdma_cm event, copied so that it could be acknowledged: an id whose event
 * is not must not be destroyed. */
struct vrc_cm_note {
	enum rdma_cm_event_type type;
	int status;
	uint8_t responder_resources; /* as we see them, not the peer */
	uint8_t initiator_depth;
	bool data_ok;		     /* false: the peer's length was a lie */
	struct vrc_cmdata data;	     /* points into wire */
	uint8_t wire[UINT8_MAX];
};

enum {
	VRC_ADDR_TIMEOUT_MS = 2000,
	VRC_ROUTE_TIMEOUT_MS = 2000,
};

/* vrc_cm.c */
extern const struct fi_ops_cm vrc_cm_ep_ops;
/* fi_endpoint: take over info->handle (a connection request or a passive
 * endpoint) and the addresses. */
int vrc_cm_init(struct vrc_ep *ep, const struct fi_info *info) __must_check;
/* fi_enable, before the queue pair exists: make or adopt the rdma_cm id, bind
 * it to the source address, learn port_num. */
int vrc_cm_enable(struct vrc_ep *ep) __must_check;
/* fi_close: disconnects, destroys the id, drops queued events. No event of
 * this endpoint can be handled or read once this returns. Takes eq->lock. */
void vrc_cm_fini(struct vrc_ep *ep);
/* The queue pair broke: one FI_SHUTDOWN, and the peer is told. Takes eq->lock,
 * may be called with a cq->lock held, any number of times. */
void vrc_cm_broken(struct vrc_ep *ep);

/* vrc_cm_event.c */
/* One rdma_cm event off eq's channel; acks it. Caller holds eq->lock. */
void vrc_cm_event(struct vrc_eq *eq, const struct vrc_verbs_ops *ops,
		  struct rdma_cm_event *event);
/* Copies and acknowledges. Only events of connections have private data. */
void vrc_cm_note_take(struct vrc_cm_note *note, const struct vrc_verbs_ops *ops,
		      struct rdma_cm_event *event);
/* What rdma_cm's status means: a reason of InfiniBand's CM, or -errno. */
const char *vrc_cm_status_str(int status);
/* The connection failed before it was up: flush, and one error event. err is
 * a positive FI_E*. Caller holds eq->lock. */
void vrc_cm_fail(struct vrc_ep *ep, int err, const struct vrc_cm_note *note);
enum vrc_cm_end {
	VRC_END_OWN,	/* fi_shutdown */
	VRC_END_PEER,	/* it ended the connection, in good order */
	VRC_END_BROKEN,
};
/* The connection is over: flush, tell the peer, one FI_SHUTDOWN. Caller holds
 * eq->lock. */
void vrc_cm_down(struct vrc_ep *ep, enum vrc_cm_end end);

/* vrc_linger.c; all with eq->lock held. */
enum { VRC_LINGER_MS = 20 };
/* False if the queue pair is to be flushed at once. */
bool vrc_linger(struct vrc_ep *ep, bool by_peer) __must_check;
/* The peer knows that the connection is over. */
void vrc_linger_answered(struct vrc_ep *ep);
/* A while after vrc_eq_tick: what lingers may be due. */
void vrc_linger_tick(struct vrc_eq *eq);
/* fi_shutdown: waits until it is over. Drops the lock meanwhile. */
void vrc_linger_end(struct vrc_ep *ep);

/* vrc_cm_id.c */
/* Family, port, address and scope only: a plain address that compares equal
 * bytewise; one that is IPv4 in IPv6's clothes becomes IPv4. False if it is
 * neither IPv4 nor IPv6. */
bool vrc_sockaddr_set(union vrc_sockaddr *dst, const struct sockaddr *src);
/* An id bound to *addr, whose port is then filled in. channel may be NULL: the
 * id is for migration later. If dual, a listener on [::] takes IPv4 too. */
int vrc_cm_id_bind(const struct vrc_verbs_ops *ops,
		   struct rdma_event_channel *channel, struct fid *owner,
		   union vrc_sockaddr *addr, bool dual,
		   struct rdma_cm_id **id) __must_check;
/* To eq's channel, unless it is there. */
int vrc_cm_id_migrate(const struct vrc_verbs_ops *ops, struct rdma_cm_id *id,
		      struct vrc_eq *eq) __must_check;
/* The id's device is the domain's, or it has none yet. */
bool vrc_cm_id_fits(const struct rdma_cm_id *id,
		    const struct vrc_domain *domain);
/* A local address of dev that suits dst; NULL if there is none. */
const struct vrc_addr *vrc_cm_pick_source(const struct vrc_dev *dev,
					  const struct sockaddr *dst);
/* Refuses, on either side; data is the application's. Failing, it says so in
 * the log only. */
void vrc_cm_id_reject(const struct vrc_verbs_ops *ops, struct rdma_cm_id *id,
		      const void *data, size_t len);

#endif
