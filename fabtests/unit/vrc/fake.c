/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * See fake.h.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake.h"
#include "fake_alloc.h"
#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_deliver.h"
#include "vrc_domain.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_params.h"

struct fi_provider vrc_prov = { .name = "vrc" };
struct vrc_params vrc_params;
struct fake fake;

/* What this file makes is not the provider's. */
#undef calloc
#undef free

int fake_live;
int fake_fail_alloc;

void *fake_calloc(size_t n, size_t size)
{
	void *p;

	if (fake_fail_alloc && !--fake_fail_alloc)
		return NULL;
	p = calloc(n, size);
	if (p)
		__atomic_add_fetch(&fake_live, 1, __ATOMIC_RELAXED);
	return p;
}

void fake_free(void *p)
{
	if (p)
		__atomic_sub_fetch(&fake_live, 1, __ATOMIC_RELAXED);
	free(p);
}

struct fake_channel {
	struct rdma_event_channel channel;
	struct list events;
};

struct fake_evt {
	struct rdma_cm_event event;
	struct list node;
	uint8_t data[UINT8_MAX];
};

static struct ibv_device fake_device;
static struct ibv_context fake_context = { .device = &fake_device };
static struct ibv_qp fake_qp = { .qp_num = 0x77 };
static struct vrc_addr fake_addrs[2];
static struct vrc_dev *fake_devs[2];
static uint16_t next_port;

struct vrc_dev fake_dev;

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.afonly = -1;
	next_port = 40000;
	fake_addrs[0].addr = fake_addr(1, 0);
	fake_addrs[0].prefix_len = 24;
	fake_addrs[0].port_num = 1;
	fake_addrs[1].addr = fake_addr(2, 0);
	fake_addrs[1].prefix_len = 24;
	fake_addrs[1].port_num = 2;
	fake_dev = (struct vrc_dev){
		.ops = &fake_ops,
		.name = "fake0",
		.attr = { .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 300 },
		.addrs = fake_addrs,
		.addr_cnt = 2,
	};
	fake_devs[0] = &fake_dev;
	fake_devs[1] = NULL;
}

void fake_second_device(void)
{
	static struct vrc_dev second;

	second = fake_dev;
	second.ops = &fake_ops_second;
	strcpy(second.name, "fake1");
	fake_devs[1] = &second;
}

void fake_check_clean(void)
{
	cr_assert_eq(fake.ids, 0, "%d ids left", fake.ids);
	cr_assert_eq(fake.channels, 0, "%d channels left", fake.channels);
	cr_assert_eq(fake.unacked, 0, "%d events not acked", fake.unacked);
	cr_assert_eq(fake_live, 0, "%d allocations leaked", fake_live);
}

union vrc_sockaddr fake_addr(uint8_t host, uint16_t port)
{
	union vrc_sockaddr a;

	memset(&a, 0, sizeof(a));
	a.in.sin_family = AF_INET;
	a.in.sin_port = htons(port);
	a.in.sin_addr.s_addr = htonl(0x0a000000u + host);
	return a;
}

/* Counts; 0, or -1 with errno if the test wants it to fail. */
static int called(enum fake_call call)
{
	int err = fake.fail[call];

	fake.calls[call]++;
	fake.fail[call] = 0;
	if (!err)
		return 0;
	errno = err;
	return -1;
}

static struct fake_channel *channel_of(struct rdma_event_channel *channel)
{
	return container_of(channel, struct fake_channel, channel);
}

static struct rdma_event_channel *create_channel(void)
{
	struct fake_channel *ch;

	if (called(FAKE_CREATE_CHANNEL))
		return NULL;
	ch = calloc(1, sizeof(*ch));
	ch->channel.fd = eventfd(0, EFD_SEMAPHORE);
	list_init(&ch->events);
	fake.channels++;
	return &ch->channel;
}

static void destroy_channel(struct rdma_event_channel *channel)
{
	struct fake_channel *ch = channel_of(channel);

	cr_assert(list_empty(&ch->events), "channel destroyed with events");
	close(channel->fd);
	free(ch);
	fake.channels--;
}

static int get_event(struct rdma_event_channel *channel,
		     struct rdma_cm_event **event)
{
	struct fake_channel *ch = channel_of(channel);
	struct fake_evt *ev;
	uint64_t one;

	cr_assert(fcntl(channel->fd, F_GETFL) & O_NONBLOCK);
	cr_assert(fcntl(channel->fd, F_GETFD) & FD_CLOEXEC);
	if (list_empty(&ch->events)) {
		errno = EAGAIN;
		return -1;
	}
	ev = list_entry(list_pop(&ch->events), struct fake_evt, node);
	cr_assert_eq(read(channel->fd, &one, sizeof(one)), sizeof(one));
	fake.unacked++;
	*event = &ev->event;
	return 0;
}

static int ack_event(struct rdma_cm_event *event)
{
	struct fake_evt *ev = container_of(event, struct fake_evt, event);

	/* Whoever still looks at it after this shall notice. */
	memset(ev, 0xee, sizeof(*ev));
	free(ev);
	fake.unacked--;
	return 0;
}

static struct rdma_cm_id *id_alloc(struct rdma_event_channel *channel,
				   void *context)
{
	struct rdma_cm_id *id = calloc(1, sizeof(*id));

	id->channel = channel;
	id->context = context;
	id->ps = RDMA_PS_TCP;
	fake.ids++;
	return id;
}

static int create_id(struct rdma_event_channel *channel,
		     struct rdma_cm_id **id, void *context,
		     enum rdma_port_space ps)
{
	if (called(FAKE_CREATE_ID))
		return -1;
	cr_assert_eq(ps, RDMA_PS_TCP);
	*id = id_alloc(channel, context);
	return 0;
}

static int destroy_id(struct rdma_cm_id *id)
{
	struct list *pos, *tmp;
	struct fake_evt *ev;
	uint64_t one;

	cr_assert_eq(fake.unacked, 0, "rdma_destroy_id would hang");
	if (id->channel) {
		list_for_each_safe(pos, tmp, &channel_of(id->channel)->events) {
			ev = list_entry(pos, struct fake_evt, node);
			if (ev->event.id != id && ev->event.listen_id != id)
				continue;
			list_del(pos);
			cr_assert_eq(read(id->channel->fd, &one, sizeof(one)),
				     sizeof(one));
			if (ev->event.listen_id == id) {
				free(ev->event.id);
				fake.ids--;
			}
			free(ev);
		}
	}
	free(id);
	fake.ids--;
	return 0;
}

static int migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	if (called(FAKE_MIGRATE))
		return -1;
	id->channel = channel;
	return 0;
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	if (called(FAKE_BIND))
		return -1;
	memcpy(&id->route.addr.src_storage, addr, vrc_sockaddr_len(addr));
	if (!vrc_sockaddr_port(addr))
		vrc_sockaddr_set_port(&id->route.addr.src_addr, next_port++);
	memcpy(&fake.bound, &id->route.addr.src_storage, sizeof(fake.bound));
	if (!vrc_sockaddr_is_any(addr)) {
		const struct vrc_addr *a = vrc_dev_find_addr(&fake_dev, addr);

		id->verbs = &fake_context;
		id->port_num = a ? a->port_num : 1;
	}
	return 0;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
			struct sockaddr *dst, int timeout_ms)
{
	cr_assert_gt(timeout_ms, 0);
	if (called(FAKE_RESOLVE_ADDR))
		return -1;
	memcpy(&id->route.addr.dst_storage, dst, vrc_sockaddr_len(dst));
	return 0;
}

static int resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	cr_assert_gt(timeout_ms, 0);
	return called(FAKE_RESOLVE_ROUTE);
}

static int do_listen(struct rdma_cm_id *id, int backlog)
{
	return called(FAKE_LISTEN);
}

static void keep_param(const struct rdma_conn_param *param)
{
	fake.param = *param;
	cr_assert_eq(param->private_data_len, VRC_CM_WIRE_SIZE);
	memcpy(fake.param_data, param->private_data, VRC_CM_WIRE_SIZE);
}

static int do_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	keep_param(param);
	return called(FAKE_CONNECT);
}

static int do_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	/* The queue pair is ready first: the peer may send at once. */
	cr_assert(fake.qp_brings_up);
	keep_param(param);
	return called(FAKE_ACCEPT);
}

static int establish(struct rdma_cm_id *id)
{
	cr_assert(fake.qp_brings_up);
	return called(FAKE_ESTABLISH);
}

static int reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	cr_assert_eq(len, VRC_CM_WIRE_SIZE);
	memcpy(fake.reject_data, data, len);
	return called(FAKE_REJECT);
}

static int disconnect(struct rdma_cm_id *id)
{
	return called(FAKE_DISCONNECT);
}

static int set_option(struct rdma_cm_id *id, int level, int optname,
		      void *optval, size_t optlen)
{
	cr_assert_eq(level, RDMA_OPTION_ID);
	cr_assert_eq(optname, RDMA_OPTION_ID_AFONLY);
	cr_assert_eq(optlen, sizeof(int));
	fake.afonly = *(int *)optval;
	return 0;
}

static const char *event_str(enum rdma_cm_event_type event)
{
	return "an event";
}

static const char *device_name(struct ibv_device *device)
{
	return "fake0";
}

#define FAKE_OPS                                                           \
	.get_device_name = device_name,                                    \
	.create_event_channel = create_channel,                            \
	.destroy_event_channel = destroy_channel, .get_cm_event = get_event, \
	.ack_cm_event = ack_event, .event_str = event_str,                 \
	.create_id = create_id, .destroy_id = destroy_id,                  \
	.migrate_id = migrate_id, .bind_addr = bind_addr,                  \
	.resolve_addr = resolve_addr, .resolve_route = resolve_route,      \
	.listen = do_listen, .connect = do_connect, .accept = do_accept,   \
	.establish = establish, .reject = reject,                          \
	.disconnect = disconnect, .set_option = set_option

const struct vrc_verbs_ops fake_ops = { .name = "fake", FAKE_OPS };
const struct vrc_verbs_ops fake_ops_second = { .name = "second", FAKE_OPS };

static void put_event(struct fake_evt *ev, struct rdma_event_channel *channel,
		      const void *data, size_t len)
{
	uint64_t one = 1;

	if (data) {
		memcpy(ev->data, data, len);
		ev->event.param.conn.private_data = ev->data;
		ev->event.param.conn.private_data_len = (uint8_t)len;
	}
	ev->event.param.conn.responder_resources = 4;
	ev->event.param.conn.initiator_depth = 5;
	list_add_tail(&channel_of(channel)->events, &ev->node);
	cr_assert_eq(write(channel->fd, &one, sizeof(one)), sizeof(one));
}

void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		int status, const void *data, size_t len)
{
	struct fake_evt *ev = calloc(1, sizeof(*ev));

	ev->event.id = id;
	ev->event.event = type;
	ev->event.status = status;
	put_event(ev, id->channel, data, len);
}

struct rdma_cm_id *fake_request(struct rdma_cm_id *listener,
				const struct sockaddr *peer, const void *data,
				size_t len)
{
	struct fake_evt *ev = calloc(1, sizeof(*ev));
	struct rdma_cm_id *id = id_alloc(listener->channel, listener->context);

	memcpy(&id->route.addr.src_storage, &listener->route.addr.src_storage,
	       sizeof(id->route.addr.src_storage));
	memcpy(&id->route.addr.dst_storage, peer, vrc_sockaddr_len(peer));
	id->verbs = &fake_context;
	id->port_num = 1;
	ev->event.id = id;
	ev->event.listen_id = listener;
	ev->event.event = RDMA_CM_EVENT_CONNECT_REQUEST;
	put_event(ev, listener->channel, data, len);
	return id;
}

/* vrc_qp.c */
int vrc_qp_connect(struct vrc_ep *ep)
{
	lock_assert_held(&ep->eq->lock);
	if (called(FAKE_QP_CONNECT))
		return -errno;
	fake.qp_brings_up++;
	return 0;
}

void vrc_qp_error(struct vrc_ep *ep)
{
	called(FAKE_QP_ERROR);
}

/* vrc_credit.c */
void vrc_credit_offer(struct vrc_ep *ep, struct vrc_peer *self)
{
	self->features = VRC_FEATURE_CREDITS;
	self->posted = 333;
}

void vrc_deliver_offer(const struct vrc_ep *ep, struct vrc_peer *self)
{
	self->features |= VRC_FEATURE_WORD;
}

void vrc_credit_agree(struct vrc_ep *ep, const struct vrc_peer *peer)
{
	lock_assert_held(&ep->eq->lock);
	cr_assert_neq(ep->state, VRC_EP_CONNECTED);
}

void vrc_credit_start(struct vrc_ep *ep)
{
	lock_assert_held(&ep->eq->lock);
	cr_assert_eq(ep->state, VRC_EP_CONNECTED);
	called(FAKE_CREDIT_START);
}

void vrc_credit_stop(struct vrc_ep *ep)
{
	lock_assert_held(&ep->eq->lock);
}

void vrc_credit_tick(struct vrc_eq *evq)
{
	lock_assert_held(&evq->lock);
}

/* vrc_dev.c */
int vrc_dev_list_get(struct vrc_dev_list *list)
{
	list->devs = fake_devs;
	list->cnt = fake_devs[1] ? 2 : 1;
	return 0;
}

void vrc_dev_list_free(struct vrc_dev_list *list)
{
}

struct vrc_dev *vrc_dev_get(const char *name)
{
	return strcmp(name, fake_dev.name) ? NULL : &fake_dev;
}

void vrc_dev_put(struct vrc_dev *dev)
{
}

const struct vrc_addr *vrc_dev_find_addr(const struct vrc_dev *dev,
					 const struct sockaddr *sa)
{
	for (const struct vrc_addr *a = dev->addrs; a != vrc_addr_end(dev); a++)
		if (vrc_sockaddr_same_ip(&a->addr.sa, sa))
			return a;
	return NULL;
}

bool vrc_dev_on_link(const struct vrc_addr *addr, const struct sockaddr *sa)
{
	return addr->addr.sa.sa_family == sa->sa_family;
}

/* vrc_info.c */
struct fi_info *vrc_info_for_connreq(const struct vrc_dev *dev,
				     const struct fi_info *pep_info,
				     const struct sockaddr *src,
				     const struct sockaddr *dst)
{
	struct fi_info *info = called(FAKE_INFO) ? NULL : fi_allocinfo();

	if (!info)
		return NULL;
	info->src_addrlen = vrc_sockaddr_len(src);
	info->src_addr = calloc(1, info->src_addrlen);
	memcpy(info->src_addr, src, info->src_addrlen);
	info->dest_addrlen = vrc_sockaddr_len(dst);
	info->dest_addr = calloc(1, info->dest_addrlen);
	memcpy(info->dest_addr, dst, info->dest_addrlen);
	return info;
}

struct vrc_fabric *fake_fabric(void)
{
	static struct vrc_fabric fabric;

	fabric.fid.api_version = FI_VERSION(1, 17);
	return &fabric;
}

struct vrc_eq *fake_eq(struct vrc_fabric *fabric, enum fi_wait_obj wait_obj,
		       uint64_t flags)
{
	struct fi_eq_attr attr = { .wait_obj = wait_obj, .flags = flags };
	struct fid_eq *eq;

	cr_assert_eq(vrc_eq_open(&fabric->fid, &attr, &eq, NULL), 0);
	cr_assert_gt(fake_live, 0, "not compiled with -include fake_alloc.h");
	return vrc_eq(eq);
}

void fake_eq_close(struct vrc_eq *eq)
{
	cr_assert_eq(fi_close(&eq->fid.fid), 0);
}

static int enable(struct fid *fid, int command, void *arg)
{
	struct vrc_ep *ep = container_of(fid, struct vrc_ep, fid.fid);
	int ret;

	cr_assert_eq(command, FI_ENABLE);
	ret = vrc_cm_enable(ep);
	if (ret)
		return ret;
	ep->qp = &fake_qp;
	atomic_store(&ep->state, VRC_EP_ENABLED);
	return 0;
}

struct vrc_ep *fake_ep(struct vrc_eq *eq, struct fid *handle, int *ret)
{
	static struct fi_ops ops = { .size = sizeof(ops), .control = enable };
	static struct vrc_domain domain;
	union vrc_sockaddr src = fake_addr(2, 0);
	struct fi_info info = { .src_addr = &src, .handle = handle };
	struct vrc_ep *ep = aligned_alloc(CACHELINE, (sizeof(*ep) | 63) + 1);

	domain.ops = &fake_ops;
	domain.dev = &fake_dev;
	memset(ep, 0, sizeof(*ep));
	ep->domain = &domain;
	ep->rx.size = 333;
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.ops = &ops;
	ep->fid.fid.context = ep;
	ep->fid.cm = VRC_OPS(&vrc_cm_ep_ops);
	*ret = vrc_cm_init(ep, &info);
	if (*ret) {
		free(ep);
		return NULL;
	}
	ep->eq = eq;
	atomic_fetch_add(&eq->ref, 1);
	return ep;
}

void fake_ep_close(struct vrc_ep *ep)
{
	vrc_cm_fini(ep);
	atomic_fetch_sub(&ep->eq->ref, 1);
	free(ep);
}

int fake_read(struct vrc_eq *eq, struct fi_eq_cm_entry *entry)
{
	struct fi_eq_cm_entry dummy;
	uint32_t event = 0;
	ssize_t ret;

	ret = fi_eq_read(&eq->fid, &event, entry ? entry : &dummy,
			 sizeof(dummy), 0);
	return ret < 0 ? (int)ret : (int)event;
}

/* No thread: a test handles events when it wants to. */
void vrc_eq_tick(struct vrc_eq *eq)
{
	atomic_store(&eq->tick_due, true);
}

int vrc_eq_thread_start(struct vrc_eq *eq)
{
	return -FI_ENOSYS;
}

void vrc_eq_thread_stop(struct vrc_eq *eq)
{
}

int vrc_cq_trywait(struct vrc_cq *cq)
{
	return -FI_EINVAL;
}

int vrc_cntr_trywait(struct fid *fid)
{
	return -FI_EINVAL;
}
