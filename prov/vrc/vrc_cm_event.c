/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What rdma_cm's events do to an endpoint. One table of event, states and
 * handler; what is not in it is late or a duplicate, and ignored.
 *
 *	          connect                      accept
 *	ENABLED ─────────► CONNECTING  ENABLED ──────► ACCEPTING
 *	                       │ ADDR_RESOLVED             │
 *	                       │ ROUTE_RESOLVED            │ ESTABLISHED
 *	                       │ CONNECT_RESPONSE          │
 *	                       │ (iWARP: ESTABLISHED)      │
 *	                       ▼                           ▼
 *	                   CONNECTED ◄─────────────────────┘
 *	                       │ DISCONNECTED, broken queue pair, fi_shutdown
 *	                       ▼
 *	  failures ───────► SHUTDOWN
 *
 * Every path into SHUTDOWN moves the queue pair to ERR, so that what is posted
 * flushes, and reports once: an error if the connection never was up, else
 * FI_SHUTDOWN. Everything here runs under eq->lock.
 */
#include <errno.h>
#include <limits.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_cmdata.h"
#include "vrc_credit.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_log.h"
#include "vrc_pep.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

static uint32_t ep_num(const struct vrc_ep *ep)
{
	return ep->qp ? ep->qp->qp_num : 0;
}

static enum vrc_ep_state ep_state(const struct vrc_ep *ep)
{
	/* Written under eq->lock, which we hold. */
	return (enum vrc_ep_state)atomic_load_explicit(&ep->state,
						       memory_order_relaxed);
}

static void ep_set_state(struct vrc_ep *ep, enum vrc_ep_state state)
{
	/* Release: who sees CONNECTED sees the queue pair ready. */
	atomic_store_explicit(&ep->state, state, memory_order_release);
}

static const char *event_name(const struct vrc_ep *ep,
			      const struct vrc_cm_note *note)
{
	return ep->domain->ops->event_str(note->type);
}

const char *vrc_cm_status_str(int status)
{
	/* IBTA 12.6.7.2, those that people meet. */
	switch (status) {
	case 1: return "no queue pair available at the peer";
	case 3: return "no resources available at the peer";
	case 4: return "the peer's connection manager timed out";
	case 8: return "nobody listens on that port, or what does hung up";
	case 10: return "stale connection";
	case 28: return "the peer's application refused";
	default:
		return status <= 0 && status > INT_MIN ? fi_strerror(-status) :
				     "refused by the peer's connection manager";
	}
}

static bool has_data(enum rdma_cm_event_type type)
{
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_REJECTED:
		return true;
	default:
		return false;
	}
}

void vrc_cm_note_take(struct vrc_cm_note *note, const struct vrc_verbs_ops *ops,
		      struct rdma_cm_event *event)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	size_t len = 0;

	memset(note, 0, offsetof(struct vrc_cm_note, wire));
	note->type = event->event;
	note->status = event->status;
	if (has_data(event->event)) {
		note->responder_resources = conn->responder_resources;
		note->initiator_depth = conn->initiator_depth;
		len = conn->private_data ? conn->private_data_len : 0;
	}
	if (len)
		memcpy(note->wire, conn->private_data, len);
	ops->ack_cm_event(event);
	note->data_ok = vrc_cmdata_decode(note->wire, len, &note->data);
	if (!note->data_ok)
		vrc_warn(EP_CTRL, "%s: private data from the peer says %u "
			 "bytes, %zu came; ignored\n", ops->name,
			 note->wire[0], len);
}

void vrc_cm_fail(struct vrc_ep *ep, int err, const struct vrc_cm_note *note)
{
	lock_assert_held(&ep->eq->lock);
	ep_set_state(ep, VRC_EP_SHUTDOWN);
	vrc_qp_error(ep);
	vrc_eq_post_err(ep->eq, &ep->fid.fid, err, note->status,
			note->data.data, note->data.len);
}

void vrc_cm_down(struct vrc_ep *ep, enum vrc_cm_end end)
{
	bool was_up = ep_state(ep) == VRC_EP_CONNECTED;

	lock_assert_held(&ep->eq->lock);
	ep_set_state(ep, VRC_EP_SHUTDOWN);
	if (end == VRC_END_BROKEN || !was_up ||
	    !vrc_linger(ep, end == VRC_END_PEER))
		vrc_qp_error(ep);
	/* Also the answer to the peer's, which has no other. It fails if the
	 * connection is gone altogether, and then nothing is lost. */
	ep->domain->ops->disconnect(ep->cm.id);
	vrc_eq_post_cm(ep->eq, FI_SHUTDOWN, &ep->fid.fid, NULL, NULL, 0);
}

/* A status that is an errno says more than our guess. */
static int status_err(const struct vrc_cm_note *note, int guess)
{
	return note->status < 0 ? -note->status : guess;
}

static void fail_step(struct vrc_ep *ep, struct vrc_cm_note *note,
		      const char *step, int err)
{
	char dst[VRC_ADDRSTR];

	vrc_warn(EP_CTRL, "ep 0x%x: %s to %s on device %s: %s\n", ep_num(ep),
		 step, vrc_sockaddr_str(&ep->cm.dst.sa, dst),
		 ep->domain->dev->name, fi_strerror(err));
	/* What a good answer brought is not about the error. */
	note->data.len = 0;
	note->status = -err;
	vrc_cm_fail(ep, err, note);
}

static void addr_resolved(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	struct vrc_cm *cm = &ep->cm;
	char src[VRC_ADDRSTR], dst[VRC_ADDRSTR];

	/* The queue pair is on the domain's device and one port of it. */
	if (!vrc_cm_id_fits(cm->id, ep->domain) ||
	    (cm->id->verbs && cm->id->port_num != ep->port_num)) {
		vrc_warn(EP_CTRL, "ep 0x%x: the route to %s leaves by %s, "
			 "not by port %u of device %s\n", ep_num(ep),
			 vrc_sockaddr_str(&cm->dst.sa, dst),
			 vrc_sockaddr_str(&cm->id->route.addr.src_addr, src),
			 ep->port_num, ep->domain->dev->name);
		note->status = -FI_EADDRNOTAVAIL;
		vrc_cm_fail(ep, FI_EADDRNOTAVAIL, note);
		return;
	}
	vrc_sockaddr_set(&cm->src, &cm->id->route.addr.src_addr);
	if (ep->domain->ops->resolve_route(cm->id, VRC_ROUTE_TIMEOUT_MS))
		fail_step(ep, note, "rdma_resolve_route", -vrc_err(errno));
}

static void route_resolved(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	if (ep->domain->ops->connect(ep->cm.id, &ep->cm.param))
		fail_step(ep, note, "rdma_connect", -vrc_err(errno));
}

static uint8_t min_u8(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static void connected(struct vrc_ep *ep, const struct vrc_cm_note *note)
{
	struct vrc_cm *cm = &ep->cm;

	if (!cm->passive) {
		cm->peer = note->data.peer;
		vrc_sockaddr_set(&cm->src, &cm->id->route.addr.src_addr);
	}
	vrc_dbg(EP_CTRL, "ep 0x%x: connected; the peer is %s, features 0x%x\n",
		ep_num(ep), cm->peer.version ? "vrc" : "not vrc",
		cm->peer.features);
	vrc_credit_agree(ep, &cm->peer);
	ep_set_state(ep, VRC_EP_CONNECTED);
	vrc_credit_start(ep);
	/* fi_eq(3): the listening side gets no data. */
	vrc_eq_post_cm(ep->eq, FI_CONNECTED, &ep->fid.fid, NULL,
		       note->data.data, cm->passive ? 0 : note->data.len);
	if (cm->broken)
		vrc_cm_down(ep, VRC_END_BROKEN);
}

static void connect_response(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	const struct vrc_verbs_ops *ops = ep->domain->ops;
	struct rdma_conn_param *param = &ep->cm.param;
	int ret;

	param->responder_resources = min_u8(param->responder_resources,
					    note->responder_resources);
	param->initiator_depth = min_u8(param->initiator_depth,
					note->initiator_depth);
	ret = vrc_qp_connect(ep);
	if (ret) {
		vrc_cm_id_reject(ops, ep->cm.id, NULL, 0);
		fail_step(ep, note, "preparing the queue pair for the "
			  "connection", -ret);
		return;
	}
	if (ops->establish(ep->cm.id)) {
		/* The id is good, so it is the peer that has gone since. */
		fail_step(ep, note, "rdma_establish",
			  errno == EINVAL ? FI_ECONNRESET : -vrc_err(errno));
		return;
	}
	connected(ep, note);
}

static void established(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	int ret;

	/* iWARP has no response that the connecting side would answer. */
	if (ep_state(ep) == VRC_EP_CONNECTING) {
		ret = vrc_qp_connect(ep);
		if (ret) {
			ep->domain->ops->disconnect(ep->cm.id);
			fail_step(ep, note, "preparing the queue pair for the "
				  "connection", -ret);
			return;
		}
	}
	connected(ep, note);
}

static void refused(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	char dst[VRC_ADDRSTR];

	vrc_info(EP_CTRL, "ep 0x%x: connection to %s refused: %s (%d)\n",
		 ep_num(ep), vrc_sockaddr_str(&ep->cm.dst.sa, dst),
		 vrc_cm_status_str(note->status), note->status);
	vrc_cm_fail(ep, FI_ECONNREFUSED, note);
}

static void unresolved(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	char src[VRC_ADDRSTR], dst[VRC_ADDRSTR];
	int err = status_err(note, FI_EHOSTUNREACH);

	vrc_warn(EP_CTRL, "ep 0x%x: no way from %s (device %s, port %u) to "
		 "%s: %s, %s; is the peer up and on the same network?\n",
		 ep_num(ep), vrc_sockaddr_str(&ep->cm.src.sa, src),
		 ep->domain->dev->name, ep->port_num,
		 vrc_sockaddr_str(&ep->cm.dst.sa, dst), event_name(ep, note),
		 vrc_cm_status_str(note->status));
	vrc_cm_fail(ep, err, note);
}

static void failed(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	char dst[VRC_ADDRSTR];
	int err = status_err(note, FI_ETIMEDOUT);

	vrc_warn(EP_CTRL, "ep 0x%x: connection with %s on device %s failed: "
		 "%s, %s%s\n", ep_num(ep),
		 vrc_sockaddr_str(&ep->cm.dst.sa, dst), ep->domain->dev->name,
		 event_name(ep, note), vrc_cm_status_str(note->status),
		 note->status == -EPERM && ep->domain->ops->is_softverbs ?
			 "; softverbs connects processes of one user" : "");
	vrc_cm_fail(ep, err, note);
}

static void aborted(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	char dst[VRC_ADDRSTR];

	vrc_info(EP_CTRL, "ep 0x%x: %s hung up while connecting\n",
		 ep_num(ep), vrc_sockaddr_str(&ep->cm.dst.sa, dst));
	ep->domain->ops->disconnect(ep->cm.id);
	vrc_cm_fail(ep, status_err(note, FI_ECONNABORTED), note);
}

/* Nothing is due to the application before it calls fi_accept. */
static void gave_up(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	char dst[VRC_ADDRSTR];

	if (!ep->cm.passive)
		return;
	vrc_info(EP_CTRL, "ep 0x%x: %s gave up before fi_accept\n", ep_num(ep),
		 vrc_sockaddr_str(&ep->cm.dst.sa, dst));
	ep->cm.dead = true;
}

static void down(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	vrc_dbg(EP_CTRL, "ep 0x%x: the peer hung up (%s)\n", ep_num(ep),
		event_name(ep, note));
	vrc_cm_down(ep, VRC_END_PEER);
}

/* The peer still waits for an answer that nobody else gives. */
static void answer_disconnect(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	vrc_linger_answered(ep);
	ep->domain->ops->disconnect(ep->cm.id);
}

static void answer_response(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	vrc_cm_id_reject(ep->domain->ops, ep->cm.id, NULL, 0);
}

static void device_removed(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	vrc_warn(EP_CTRL, "ep 0x%x: device %s was removed\n", ep_num(ep),
		 ep->domain->dev->name);
	if (ep_state(ep) == VRC_EP_CONNECTED) {
		vrc_cm_down(ep, VRC_END_BROKEN);
	} else if (ep_state(ep) > VRC_EP_ENABLED) {
		note->status = -FI_ENODEV;
		vrc_cm_fail(ep, FI_ENODEV, note);
	} else {
		gave_up(ep, note);
	}
}

static void addr_changed(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	char src[VRC_ADDRSTR];

	vrc_warn(EP_CTRL, "ep 0x%x: address %s moved to another interface\n",
		 ep_num(ep), vrc_sockaddr_str(&ep->cm.src.sa, src));
	/* Later on the queue pair itself finds out whether it still works. */
	if (ep_state(ep) == VRC_EP_CONNECTING) {
		note->status = -FI_EADDRNOTAVAIL;
		vrc_cm_fail(ep, FI_EADDRNOTAVAIL, note);
	}
}

enum {
	/* Sets of states. */
	NEW = 1 << VRC_EP_IDLE | 1 << VRC_EP_ENABLED,
	CONNECTING = 1 << VRC_EP_CONNECTING,
	ACCEPTING = 1 << VRC_EP_ACCEPTING,
	CONNECTED = 1 << VRC_EP_CONNECTED,
	SHUTDOWN = 1 << VRC_EP_SHUTDOWN,
};

static const struct {
	enum rdma_cm_event_type event;
	unsigned int states;
	void (*handle)(struct vrc_ep *ep, struct vrc_cm_note *note);
} table[] = {
	{ RDMA_CM_EVENT_ADDR_RESOLVED, CONNECTING, addr_resolved },
	{ RDMA_CM_EVENT_ADDR_ERROR, CONNECTING, unresolved },
	{ RDMA_CM_EVENT_ROUTE_RESOLVED, CONNECTING, route_resolved },
	{ RDMA_CM_EVENT_ROUTE_ERROR, CONNECTING, unresolved },
	{ RDMA_CM_EVENT_CONNECT_RESPONSE, CONNECTING, connect_response },
	{ RDMA_CM_EVENT_CONNECT_RESPONSE, SHUTDOWN, answer_response },
	{ RDMA_CM_EVENT_ESTABLISHED, CONNECTING | ACCEPTING, established },
	{ RDMA_CM_EVENT_ESTABLISHED, SHUTDOWN, answer_disconnect },
	{ RDMA_CM_EVENT_REJECTED, CONNECTING, refused },
	{ RDMA_CM_EVENT_REJECTED, ACCEPTING, aborted },
	{ RDMA_CM_EVENT_REJECTED, CONNECTED, down },
	{ RDMA_CM_EVENT_REJECTED, NEW, gave_up },
	/* Not CONNECTED: it may be overtaken by what brought us there. */
	{ RDMA_CM_EVENT_UNREACHABLE, CONNECTING | ACCEPTING, failed },
	{ RDMA_CM_EVENT_UNREACHABLE, NEW, gave_up },
	{ RDMA_CM_EVENT_CONNECT_ERROR, CONNECTING | ACCEPTING, failed },
	{ RDMA_CM_EVENT_CONNECT_ERROR, NEW, gave_up },
	{ RDMA_CM_EVENT_DISCONNECTED, CONNECTED | ACCEPTING, down },
	{ RDMA_CM_EVENT_DISCONNECTED, CONNECTING, aborted },
	{ RDMA_CM_EVENT_DISCONNECTED, SHUTDOWN, answer_disconnect },
	{ RDMA_CM_EVENT_DISCONNECTED, NEW, gave_up },
	{ RDMA_CM_EVENT_DEVICE_REMOVAL,
	  NEW | CONNECTING | ACCEPTING | CONNECTED, device_removed },
	{ RDMA_CM_EVENT_ADDR_CHANGE,
	  NEW | CONNECTING | ACCEPTING | CONNECTED, addr_changed },
	/* TIMEWAIT_EXIT: we never reuse a queue pair. */
};

static void ep_event(struct vrc_ep *ep, struct vrc_cm_note *note)
{
	unsigned int state = 1u << ep_state(ep);

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].event == note->type && table[i].states & state) {
			table[i].handle(ep, note);
			return;
		}
	}
	vrc_dbg(EP_CTRL, "ep 0x%x: %s in state %d ignored\n", ep_num(ep),
		event_name(ep, note), ep_state(ep));
}

void vrc_cm_event(struct vrc_eq *eq, const struct vrc_verbs_ops *ops,
		  struct rdma_cm_event *event)
{
	struct vrc_cm_note note;
	struct fid *fid;

	lock_assert_held(&eq->lock);
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		vrc_pep_connect_request(eq, ops, event);
		return;
	}
	fid = event->id->context;
	vrc_cm_note_take(&note, ops, event);
	switch (fid->fclass) {
	case FI_CLASS_EP:
		ep_event(container_of(fid, struct vrc_ep, fid.fid), &note);
		break;
	case FI_CLASS_CONNREQ:
		vrc_connreq_event(vrc_connreq(fid), &note);
		break;
	case FI_CLASS_PEP:
		vrc_pep_event(container_of(fid, struct vrc_pep, fid.fid),
			      &note);
		break;
	}
}
