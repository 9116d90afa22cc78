/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * librdmacm.so.1: ids and events. Mostly names; where the id has a QP, it is
 * moved on the way. Contracts are those of rdma_X(3).
 */
#include "sv_abi_cm.h"

#include <errno.h>
#include <netinet/in.h>

enum {
	MAX_RETRY = 7,
};

int sv_abi_cm_fail(int err)
{
	errno = err;
	return -1;
}

/* ---- channels and events ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	return sv_cm_create_event_channel();
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	sv_cm_destroy_event_channel(channel);
}

/* The peer has accepted. With a QP of the id's, that is all: to the
 * application it is ESTABLISHED, or that the QP could not be moved. */
static void event_responded(struct rdma_cm_event *event)
{
	if (!event->id->qp)
		return;
	if (!sv_abi_qp_responded(event->id)) {
		event->event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	}
	event->event = RDMA_CM_EVENT_CONNECT_ERROR;
	event->status = -errno;
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **out)
{
	struct rdma_cm_event *event;

	if (sv_cm_get_cm_event(channel, out))
		return -1;
	event = *out;
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		sv_abi_id_bound(event->id);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		event_responded(event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		sv_abi_qp_to_err(event->id);
		break;
	default:
		break;
	}
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	return sv_cm_ack_cm_event(event);
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	return sv_cm_event_str(event);
}

/* ---- ids ---- */

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space ps)
{
	return sv_cm_create_id(channel, id, context, ps);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	sv_abi_ep_forget(id);
	return sv_cm_destroy_id(id);
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	return sv_cm_migrate_id(id, channel);
}

/* To the kernel's rdma_cm a loopback address is one of no device, as the wildcard
 * is; libfabric's verbs, asked for no address, then goes on from "localhost" to the
 * addresses of the host. */
static bool has_no_device(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(
			&((const struct sockaddr_in6 *)addr)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 ==
	       IN_LOOPBACKNET;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int ret = sv_cm_bind_addr(id, addr);

	if (!ret && has_no_device(addr)) {
		id->verbs = NULL;
		id->port_num = 0;
	}
	sv_abi_id_bound(id);
	return ret;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
		      struct sockaddr *dst_addr, int timeout_ms)
{
	int ret = sv_cm_resolve_addr(id, src_addr, dst_addr, timeout_ms);

	sv_abi_id_bound(id);
	return ret;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	return sv_cm_resolve_route(id, timeout_ms);
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
		    size_t optlen)
{
	return sv_cm_set_option(id, level, optname, optval, optlen);
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr,
		      int *qp_attr_mask)
{
	return sv_cm_init_qp_attr(id, qp_attr, qp_attr_mask);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_addr.sa_family == AF_INET6 ?
		id->route.addr.src_sin6.sin6_port :
		id->route.addr.src_sin.sin_port;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id->route.addr.dst_addr.sa_family == AF_INET6 ?
		id->route.addr.dst_sin6.sin6_port :
		id->route.addr.dst_sin.sin_port;
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
	return sv_cm_get_devices(num_devices);
}

void rdma_free_devices(struct ibv_context **list)
{
	sv_cm_free_devices(list);
}

/* ---- connections ---- */

/* What the application asks for, or what it gets if it does not ask. */
static struct rdma_conn_param param_of(const struct rdma_cm_id *id,
				       const struct rdma_conn_param *from)
{
	struct rdma_conn_param param = {
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = MAX_RETRY,
		.rnr_retry_count = MAX_RETRY,
	};

	if (from)
		param = *from;
	if (id->qp) {
		param.qp_num = id->qp->qp_num;
		param.srq = id->srq != NULL;
	}
	return param;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	sv_cm_keep_port(id);
	return sv_cm_listen(id, backlog);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	struct rdma_conn_param param = param_of(id, conn_param);

	if (sv_cm_connect(id, &param)) {
		if (id->event && id->event->event == RDMA_CM_EVENT_REJECTED)
			sv_abi_qp_to_err(id);
		return -1;
	}
	/* An id without a channel has its event already. */
	if (!id->event || id->event->event != RDMA_CM_EVENT_CONNECT_RESPONSE)
		return 0;
	event_responded(id->event);
	if (id->event->event == RDMA_CM_EVENT_CONNECT_ERROR)
		return sv_abi_cm_fail(-id->event->status);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	struct rdma_conn_param param = param_of(id, conn_param);
	int err;

	if (!conn_param && !id->qp)
		return sv_abi_cm_fail(EINVAL);
	if (id->qp && sv_abi_qp_to_rts(id, &param))
		return -1;
	if (!sv_cm_accept(id, &param))
		return 0;
	err = errno;
	sv_abi_qp_to_err(id);
	return sv_abi_cm_fail(err);
}

int rdma_establish(struct rdma_cm_id *id)
{
	if (id->qp)		/* then it is done already */
		return sv_abi_cm_fail(EINVAL);
	return sv_cm_establish(id);
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data,
		uint8_t private_data_len)
{
	return sv_cm_reject(id, private_data, private_data_len);
}

/* What is posted is flushed before the peer hears of it. */
int rdma_disconnect(struct rdma_cm_id *id)
{
	/* On iWARP the connection takes its queue pair along. */
	if (id->verbs &&
	    id->verbs->device->transport_type == IBV_TRANSPORT_IWARP)
		return sv_cm_disconnect(id);
	if (sv_abi_qp_to_err(id))
		return -1;
	return sv_cm_disconnect(id);
}
