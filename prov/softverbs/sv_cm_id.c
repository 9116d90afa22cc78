/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_cm ids: creation and destruction, binding, resolution of addresses and
 * routes, listening, options. Ports are real TCP ports: the socket that will
 * listen or connect is bound when the id is, and so holds the port.
 */
#include "sv_cm.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sv_cm sv_cm = {
	.lock = { PTHREAD_MUTEX_INITIALIZER },
	.ids = { &sv_cm.ids, &sv_cm.ids },
	.conns = { &sv_cm.conns, &sv_cm.conns },
};

static void fork_prepare(void)
{
	lock_take(&sv_cm.lock);
}

static void fork_parent(void)
{
	lock_drop(&sv_cm.lock);
}

/*
 * Descriptors are close-on-exec, but a child that lives on without exec would
 * keep the parent's connections and ports alive: close what we inherited.
 * Conns go; ids stay until the child destroys them. sv_core.c's handler, which was
 * registered before this one, has ended the engine.
 */
static void fork_child(void)
{
	struct sv_conn *conn;
	struct sv_id *id;
	struct list *pos;

	while ((pos = list_pop(&sv_cm.conns))) {
		conn = list_entry(pos, struct sv_conn, node);
		if (conn->sock >= 0)
			close(conn->sock);
		if (conn->unix_sock >= 0)
			close(conn->unix_sock);
		free(conn);
	}
	sv_cm.half_open = 0;
	list_for_each(pos, &sv_cm.ids) {
		id = list_entry(pos, struct sv_id, node);
		if (id->sock >= 0)
			close(id->sock);
		id->sock = -1;
		id->conn = NULL;
		memset(&id->timewait, 0, sizeof(id->timewait));
		memset(&id->qp_ended, 0, sizeof(id->qp_ended));
		memset(&id->listener, 0, sizeof(id->listener));
	}
	sv_linger_fork_child();
	sv_rdv_fork_child();
	sv_fault_cm_fork_child();
	sv_handover_fork_child();
	sv_cm.process++;
	lock_drop(&sv_cm.lock);
}

int sv_cm_enter(void)
{
	lock_take(&sv_cm.lock);
	if (sv_cm.atfork)
		return 0;
	if (pthread_atfork(fork_prepare, fork_parent, fork_child)) {
		lock_drop(&sv_cm.lock);
		errno = ENOMEM;
		return -1;
	}
	sv_cm.atfork = true;
	return 0;
}

int sv_cm_enter_id(const struct sv_id *id)
{
	if (sv_cm_enter())
		return -1;
	return id->process == sv_cm.process ? 0 : sv_cm_leave(ENODEV);
}

int sv_cm_leave(int err)
{
	lock_drop(&sv_cm.lock);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

static struct sockaddr *src_addr(struct sv_id *id)
{
	return &id->id.route.addr.src_addr;
}

static void reserve_free(struct sv_id *id)
{
	struct list *node;

	while ((node = list_pop(&id->reserve)))
		free(list_entry(node, struct sv_event, node));
}

static void id_free(struct sv_defer *defer)
{
	struct sv_id *id = container_of(defer, struct sv_id, defer);

	reserve_free(id);
	if (id->qp)
		sv_qp_put(id->qp);
	pthread_cond_destroy(&id->acked);
	free(id->path);
	free(id);
}

void sv_id_free(struct sv_id *id)
{
	list_del(&id->node);
	sv_channel_put(sv_channel(id->id.channel));
	sv_engine_defer(&id->defer, id_free);
}

struct sv_id *sv_id_new(struct sv_channel *channel, void *context,
			enum rdma_port_space ps)
{
	struct sv_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	list_init(&id->reserve);
	pthread_cond_init(&id->acked, NULL);
	if (sv_event_reserve(id)) {
		id_free(&id->defer);
		return NULL;
	}
	id->state = SV_ID_IDLE;
	id->process = sv_cm.process;
	id->sock = -1;
	sv_random(&id->psn, sizeof(id->psn));
	id->psn &= 0xffffff;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = IBV_QPT_RC;
	id->id.channel = &channel->channel;
	channel->refs++;
	list_add_tail(&sv_cm.ids, &id->node);
	return id;
}

int sv_cm_create_id(struct rdma_event_channel *cm_channel,
		    struct rdma_cm_id **out, void *context,
		    enum rdma_port_space ps)
{
	struct sv_channel *channel;
	struct sv_id *id;

	if (!out) {
		errno = EINVAL;
		return -1;
	}
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB) {
		errno = ENOSYS;		/* datagrams are not offered */
		return -1;
	}
	if (sv_cm_fault(SV_FAULT_create_id, NULL) || sv_cm_enter())
		return -1;
	channel = cm_channel ? sv_channel(cm_channel) : sv_channel_new();
	if (!channel)
		return sv_cm_leave(ENOMEM);
	if (channel->process != sv_cm.process)
		return sv_cm_leave(ENODEV);
	id = sv_id_new(channel, context, ps);
	if (!cm_channel)
		sv_channel_put(channel);	/* now the id's alone */
	if (!id)
		return sv_cm_leave(ENOMEM);
	id->sync = !cm_channel;
	id->fetched = true;
	*out = &id->id;
	return sv_cm_leave(0);
}

void sv_id_close(struct sv_id *id)
{
	id->dead = true;
	if (id->conn)
		sv_conn_goodbye(id->conn);
	sv_id_qp_down(id);
	sv_timer_cancel(&id->timewait);
	sv_listener_stop(&id->listener);
	if (id->sock >= 0) {
		sv_engine_unwatch_nowait(id->sock);
		sv_linger_leave(id);
	}
	sv_event_drop(id);
	id->state = SV_ID_FAILED;
}

int sv_cm_destroy_id(struct rdma_cm_id *cm_id)
{
	struct sv_id *id = sv_id(cm_id);

	if (id->sync && cm_id->event) {
		sv_cm_ack_cm_event(cm_id->event);
		cm_id->event = NULL;
	}
	/* Not sv_cm_enter_id(): a forked child may free what it inherited. */
	lock_take(&sv_cm.lock);
	sv_id_close(id);
	while (id->events_got != id->events_acked &&
	       id->process == sv_cm.process)
		pthread_cond_wait(&id->acked, &sv_cm.lock.mutex);
	sv_id_free(id);
	lock_drop(&sv_cm.lock);
	return 0;
}

int sv_id_bind_verbs(struct sv_id *id)
{
	struct sv_dev *dev;
	int gid_index;

	dev = sv_dev_find(src_addr(id), &gid_index);
	if (!dev || gid_index < 0)
		return ENODEV;
	id->id.verbs = sv_ctx_shared(dev);
	if (!id->id.verbs)
		return ENODEV;
	id->id.port_num = SV_PORT;
	return 0;
}

int sv_id_set_tos(const struct sv_id *id, int sock)
{
	bool v4 = id->id.route.addr.src_addr.sa_family == AF_INET;
	int tos = id->tos;

	if (!id->tos_set)
		return 0;
	if (setsockopt(sock, v4 ? IPPROTO_IP : IPPROTO_IPV6,
		       v4 ? IP_TOS : IPV6_TCLASS, &tos, sizeof(tos)))
		return errno;
	return 0;
}

static int set_int(int sock, int level, int name, int value)
{
	return setsockopt(sock, level, name, &value, sizeof(value)) ? errno : 0;
}

/*
 * Connections of an earlier owner that linger must not keep a port from being
 * used again, but two ids that are both bound must clash at once, not only
 * when they listen. SO_REUSEADDR is both or neither, so try without it first.
 */
static int sock_bind(struct sv_id *id, int sock, const struct sockaddr *addr)
{
	bool v6 = addr->sa_family == AF_INET6;
	int err;

	if (v6) {
		err = set_int(sock, IPPROTO_IPV6, IPV6_V6ONLY, id->af_only);
		if (err)
			return err;
	}
	if (id->reuse_addr) {
		err = set_int(sock, SOL_SOCKET, SO_REUSEADDR, 1);
		if (err)
			return err;
	}
	if (!bind(sock, addr, sv_addr_len(addr)))
		return 0;
	if (errno != EADDRINUSE || id->reuse_addr)
		return errno;
	err = set_int(sock, SOL_SOCKET, SO_REUSEADDR, 1);
	if (err)
		return err;
	return bind(sock, addr, sv_addr_len(addr)) ? errno : 0;
}

/* Caller holds sv_cm.lock. */
static int id_bind(struct sv_id *id, const struct sockaddr *addr)
{
	struct sockaddr_storage bound = { 0 };
	socklen_t len = sizeof(bound);
	int sock;
	int err;

	sock = sv_linger_take(id, addr);
	if (sock < 0) {
		sock = socket(addr->sa_family,
			      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (sock < 0)
			return errno;
		err = sock_bind(id, sock, addr);
		if (err)
			goto err_close;
	}
	if (getsockname(sock, (struct sockaddr *)&bound, &len)) {
		err = errno;
		goto err_close;
	}
	sv_addr_copy(&id->id.route.addr.src_storage, (struct sockaddr *)&bound);
	if (!sv_addr_is_any(src_addr(id))) {
		err = sv_id_bind_verbs(id);
		if (err)
			goto err_unset;
	}
	id->sock = sock;
	id->state = SV_ID_BOUND;
	return 0;

err_unset:
	memset(&id->id.route.addr.src_storage, 0,
	       sizeof(id->id.route.addr.src_storage));
err_close:
	id->sock = sock;
	sv_linger_leave(id);
	return err;
}

int sv_cm_bind_addr(struct rdma_cm_id *cm_id, struct sockaddr *addr)
{
	struct sv_id *id = sv_id(cm_id);
	int err;

	if (sv_cm_fault(SV_FAULT_bind_addr, cm_id) || sv_cm_enter_id(id))
		return -1;
	err = sv_addr_check(addr);
	if (!err && id->state != SV_ID_IDLE)
		err = EINVAL;
	if (!err)
		err = id_bind(id, addr);
	return sv_cm_leave(err);
}

/*
 * The source that the call names becomes the id's as by bind_addr; without one
 * routing chooses, and the port is chosen when connecting.
 */
static int resolve_src(struct sv_id *id, const struct sockaddr *src,
		       const struct sockaddr *dst)
{
	if (src && src->sa_family != dst->sa_family)
		return EINVAL;
	if (id->state == SV_ID_BOUND)
		return src_addr(id)->sa_family == dst->sa_family ? 0 : EINVAL;
	if (!src || (sv_addr_is_any(src) && !sv_addr_port(src)))
		return 0;
	return id_bind(id, src);
}

/* Returns 0 or the negative errno that the event shall have. */
static int resolve_dst(struct sv_id *id, const struct sockaddr *dst)
{
	struct rdma_addr *addr = &id->id.route.addr;
	bool bound = id->state == SV_ID_BOUND;
	struct sockaddr_storage src;
	uint16_t port = 0;
	int err;

	sv_addr_copy(&addr->dst_storage, dst);
	if (sv_addr_is_any(dst))
		sv_addr_loopback(&addr->dst_storage);
	err = sv_addr_source(&addr->dst_addr, bound ? src_addr(id) : NULL,
			     &src);
	if (err)
		return -err;
	if (bound)
		port = sv_addr_port(src_addr(id));
	addr->src_storage = src;
	sv_addr_set_port(&addr->src_storage, port);
	return -sv_id_bind_verbs(id);
}

static int resolve_addr(struct sv_id *id, const struct sockaddr *src,
			const struct sockaddr *dst)
{
	enum sv_id_state old = id->state;
	int status;
	int err;

	err = sv_addr_check(dst);
	if (!err && src)
		err = sv_addr_check(src);
	if (err)
		return err;
	/* After ADDR_ERROR, or to another destination, it may be repeated. */
	if (old != SV_ID_IDLE && old != SV_ID_BOUND)
		return EINVAL;
	err = resolve_src(id, src, dst);
	if (err)
		return err;
	status = resolve_dst(id, dst);
	if (status) {
		sv_event_push(id, RDMA_CM_EVENT_ADDR_ERROR, status);
		return 0;
	}
	id->state = SV_ID_ADDR_RESOLVED;
	sv_event_push(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

/* Routing answers at once, so no timeout can pass: the event is queued here. */
int sv_cm_resolve_addr(struct rdma_cm_id *cm_id, struct sockaddr *src,
		       struct sockaddr *dst, int timeout_ms)
{
	struct sv_id *id = sv_id(cm_id);
	int err;

	if (sv_cm_fault(SV_FAULT_resolve_addr, cm_id) || sv_cm_enter_id(id))
		return -1;
	err = resolve_addr(id, src, dst);
	return sv_event_complete(id, sv_cm_leave(err));
}

int sv_cm_resolve_route(struct rdma_cm_id *cm_id, int timeout_ms)
{
	struct sv_id *id = sv_id(cm_id);
	int err = 0;

	if (sv_cm_fault(SV_FAULT_resolve_route, cm_id) || sv_cm_enter_id(id))
		return -1;
	if (id->state != SV_ID_ADDR_RESOLVED)
		err = EINVAL;
	else
		err = sv_id_set_path(id);
	if (!err) {
		id->state = SV_ID_ROUTE_RESOLVED;
		sv_event_push(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	}
	return sv_event_complete(id, sv_cm_leave(err));
}

/* An id that was not bound listens on any port of any address, as in rdma_cm.
 * Not an asynchronous call: there is no event. */
int sv_cm_listen(struct rdma_cm_id *cm_id, int backlog)
{
	struct sv_id *id = sv_id(cm_id);
	struct sockaddr_storage any;
	int err = 0;

	if (sv_cm_fault(SV_FAULT_listen, cm_id) || sv_cm_enter_id(id))
		return -1;
	if (id->state == SV_ID_IDLE) {
		sv_addr_any(&any, AF_INET);
		err = id_bind(id, (struct sockaddr *)&any);
	}
	if (!err && id->state != SV_ID_BOUND)
		err = EINVAL;
	if (err)
		return sv_cm_leave(err);
	if (backlog <= 0 || backlog > SV_CM_MAX_BACKLOG)
		backlog = SV_CM_MAX_BACKLOG;
	id->listener.backlog = (unsigned int)backlog;
	/* What it accepts inherits this, and then does not block the port. */
	err = set_int(id->sock, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!err)
		err = sv_listener_start(&id->listener, id->sock, id);
	if (!err) {
		id->state = SV_ID_LISTEN;
		sv_linger_end(id, true);
	}
	return sv_cm_leave(err);
}

static int set_id_option(struct sv_id *id, int name, const void *value,
			 size_t len)
{
	int on;

	switch (name) {
	case RDMA_OPTION_ID_TOS:
		if (len != sizeof(uint8_t))
			return EINVAL;
		id->tos = *(const uint8_t *)value;
		id->tos_set = true;
		return 0;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (len != sizeof(uint8_t) || *(const uint8_t *)value > 31)
			return EINVAL;
		id->ack_timeout = *(const uint8_t *)value;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
	case RDMA_OPTION_ID_AFONLY:
		if (len != sizeof(on) || id->state != SV_ID_IDLE)
			return EINVAL;
		memcpy(&on, value, sizeof(on));
		if (name == RDMA_OPTION_ID_AFONLY)
			id->af_only = on;
		else
			id->reuse_addr = on;
		return 0;
	default:
		return ENOSYS;
	}
}

int sv_cm_set_option(struct rdma_cm_id *cm_id, int level, int optname,
		     void *optval, size_t optlen)
{
	struct sv_id *id = sv_id(cm_id);
	int err;

	if (sv_cm_enter_id(id))
		return -1;
	if (!optval)
		err = EINVAL;
	else if (level != RDMA_OPTION_ID)
		err = ENOSYS;
	else
		err = set_id_option(id, optname, optval, optlen);
	return sv_cm_leave(err);
}
