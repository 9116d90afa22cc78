/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Endpoints in each state of a connection, against the scripted rdma_cm of fake.h.
 */
#ifndef CM_H
#define CM_H

#include <criterion/criterion.h>

#include <rdma/fi_cm.h>

#include "fake.h"
#include "fake_alloc.h"
#include "vrc_cmdata.h"
#include "vrc_pep.h"

static struct vrc_eq *eq;

static inline void init(void)
{
	fake_reset();
	eq = fake_eq(fake_fabric(), FI_WAIT_FD, 0);
}

static inline void fini(void)
{
	fake_eq_close(eq);
	fake_check_clean();
}

static const struct vrc_peer peer_vrc = { .features = 1, .posted = 128 };

/* The peer's answer, as vrc and verbs send it. */
static inline void answer(struct rdma_cm_id *id, enum rdma_cm_event_type type,
			  int status, const char *data)
{
	uint8_t wire[VRC_CM_WIRE_SIZE];

	vrc_cmdata_encode(wire, data, strlen(data), &peer_vrc);
	fake_event(id, type, status, wire, sizeof(wire));
}

static inline void event(struct vrc_ep *ep, enum rdma_cm_event_type type)
{
	if (type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
	    type == RDMA_CM_EVENT_ESTABLISHED ||
	    type == RDMA_CM_EVENT_REJECTED)
		answer(ep->cm.id, type, type == RDMA_CM_EVENT_REJECTED ? 28 : 0,
		       "hi");
	else
		fake_event(ep->cm.id, type, 0, NULL, 0);
}

/* Lets everything that is queued happen; the queue must stay empty. */
static inline void settle(void)
{
	cr_assert_eq(fake_read(eq, NULL), -FI_EAGAIN);
}

static inline struct vrc_ep *open_ep(void)
{
	int ret;
	struct vrc_ep *ep = fake_ep(eq, NULL, &ret);

	cr_assert_eq(ret, 0);
	return ep;
}

static inline void start_connect(struct vrc_ep *ep, const void *data,
				 size_t len)
{
	union vrc_sockaddr dst = fake_addr(9, 1234);

	cr_assert_eq(fi_connect(&ep->fid, &dst, data, len), 0);
	cr_assert_eq(ep->state, VRC_EP_CONNECTING);
}

static inline struct vrc_ep *connect_sent(void)
{
	struct vrc_ep *ep = open_ep();
	int before = fake.calls[FAKE_CONNECT];

	start_connect(ep, NULL, 0);
	event(ep, RDMA_CM_EVENT_ADDR_RESOLVED);
	event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED);
	settle();
	cr_assert_eq(fake.calls[FAKE_CONNECT], before + 1);
	return ep;
}

/* A request that waits for an answer, without a passive endpoint. */
static inline struct vrc_connreq *make_request(void)
{
	struct vrc_connreq *req = calloc(1, sizeof(*req));
	union vrc_sockaddr src = fake_addr(1, 1234), peer = fake_addr(9, 999);

	cr_assert(vrc_eq_channel(eq, &fake_ops));
	req->fid.fclass = FI_CLASS_CONNREQ;
	req->ops = &fake_ops;
	req->eq = eq;
	req->peer.posted = 77;
	req->responder_resources = 3;
	req->initiator_depth = 200;
	cr_assert_eq(fake_ops.create_id(vrc_eq_channel(eq, &fake_ops),
					&req->id, &req->fid, RDMA_PS_TCP), 0);
	memcpy(&req->id->route.addr.src_storage, &src, sizeof(src.in));
	memcpy(&req->id->route.addr.dst_storage, &peer, sizeof(peer.in));
	list_add_tail(&eq->connreqs, &req->node);
	return req;
}

static inline struct vrc_ep *passive_ep(void)
{
	int ret;
	struct vrc_ep *ep = fake_ep(eq, &make_request()->fid, &ret);

	cr_assert_eq(ret, 0);
	return ep;
}

static inline struct vrc_ep *accept_sent(void)
{
	struct vrc_ep *ep = passive_ep();

	cr_assert_eq(fi_accept(&ep->fid, "yes", 3), 0);
	cr_assert_eq(ep->state, VRC_EP_ACCEPTING);
	return ep;
}

static inline struct vrc_ep *connected(bool passive)
{
	struct vrc_ep *ep = passive ? accept_sent() : connect_sent();

	event(ep, passive ? RDMA_CM_EVENT_ESTABLISHED :
			    RDMA_CM_EVENT_CONNECT_RESPONSE);
	cr_assert_eq(fake_read(eq, NULL), FI_CONNECTED);
	cr_assert_eq(ep->state, VRC_EP_CONNECTED);
	return ep;
}

#endif
