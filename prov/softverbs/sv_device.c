/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The device: its list, its contexts, its GID table and what it says of
 * itself. One device with a RoCE v2 look on one active Ethernet port, whose
 * GIDs are this machine's addresses, loopback included.
 */
#include "sv_int.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct sv_dev the_dev = {
	.device = {
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.name = "softverbs0",
		.dev_name = "softverbs0",
	},
	.ops = &the_dev, /* ours: no driver's table compares equal */
	.refcount = 1,
	.lock = { PTHREAD_MUTEX_INITIALIZER },
};

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_context *shared_ctx; /* shared_lock */

/* ---- GID table ---- */

static bool gid_of_addr(const struct sockaddr *addr, union ibv_gid *gid)
{
	const struct sockaddr_in6 *in6 = (const void *)addr;
	const struct sockaddr_in *in = (const void *)addr;

	memset(gid, 0, sizeof(*gid));
	switch (addr->sa_family) {
	case AF_INET:
		gid->raw[10] = 0xff;
		gid->raw[11] = 0xff;
		memcpy(&gid->raw[12], &in->sin_addr, 4);
		return true;
	case AF_INET6:
		memcpy(gid->raw, &in6->sin6_addr, 16);
		return true;
	default:
		return false;
	}
}

/* Caller holds dev->lock. */
static int gid_find(struct sv_dev *dev, const union ibv_gid *gid,
		    enum ibv_gid_type type)
{
	int i;

	for (i = 0; i < dev->gid_cnt; i++)
		if (dev->gid_tbl[i].type == type &&
		    !memcmp(&dev->gid_tbl[i].gid, gid, sizeof(*gid)))
			return i;
	return -1;
}

/* Caller holds dev->lock. */
static void gid_add(struct sv_dev *dev, const struct ifaddrs *ifa)
{
	union ibv_gid gid;
	int type;

	if (!gid_of_addr(ifa->ifa_addr, &gid) ||
	    gid_find(dev, &gid, IBV_GID_TYPE_ROCE_V2) >= 0)
		return;
	for (type = IBV_GID_TYPE_ROCE_V1; type <= IBV_GID_TYPE_ROCE_V2; type++) {
		if (dev->gid_cnt == SV_MAX_GID)
			return;
		dev->gid_tbl[dev->gid_cnt++] = (struct sv_gid){
			.gid = gid,
			.type = type,
			.ifindex = if_nametoindex(ifa->ifa_name),
		};
	}
}

/* The GUID is made from the first hardware address, as NICs make theirs. */
static void guid_from(struct sv_dev *dev, const struct ifaddrs *ifa)
{
	const struct sockaddr_ll *ll = (const void *)ifa->ifa_addr;
	static const uint8_t zero[6];
	uint8_t eui[8];

	if (dev->guid || ll->sll_halen != 6 || !memcmp(ll->sll_addr, zero, 6))
		return;
	memcpy(eui, ll->sll_addr, 3);
	eui[0] ^= 2;
	eui[3] = 0xff;
	eui[4] = 0xfe;
	memcpy(eui + 5, ll->sll_addr + 3, 3);
	memcpy(&dev->guid, eui, 8);
}

/*
 * Reads the machine's addresses. Indices of known GIDs stay as they are: GIDs
 * are only ever added, an address that has gone simply stops working.
 * Caller holds dev->lock.
 */
static void gid_refresh(struct sv_dev *dev)
{
	static const uint8_t fallback[8] = { 0x02, 0, 0, 0xff, 0xfe, 0, 0, 1 };
	struct ifaddrs *list, *ifa;

	if (getifaddrs(&list))
		list = NULL;
	for (ifa = list; ifa; ifa = ifa->ifa_next) {
		if (!ifa->ifa_addr || !(ifa->ifa_flags & IFF_UP))
			continue;
		if (ifa->ifa_addr->sa_family == AF_PACKET)
			guid_from(dev, ifa);
		else if (!(ifa->ifa_flags & IFF_LOOPBACK))
			gid_add(dev, ifa);
	}
	/* Loopback last: what picks the first GID gets a real address. */
	for (ifa = list; ifa; ifa = ifa->ifa_next)
		if (ifa->ifa_addr && (ifa->ifa_flags & IFF_UP) &&
		    (ifa->ifa_flags & IFF_LOOPBACK))
			gid_add(dev, ifa);
	if (list)
		freeifaddrs(list);
	if (!dev->guid)
		memcpy(&dev->guid, fallback, 8);
}

int sv_dev_gid_index(const struct sockaddr *addr)
{
	union ibv_gid gid;
	int index;

	if (!gid_of_addr(addr, &gid))
		return -1;
	lock_take(&the_dev.lock);
	index = gid_find(&the_dev, &gid, IBV_GID_TYPE_ROCE_V2);
	if (index < 0) {
		gid_refresh(&the_dev);
		index = gid_find(&the_dev, &gid, IBV_GID_TYPE_ROCE_V2);
	}
	lock_drop(&the_dev.lock);
	return index;
}

/* ---- list ---- */

struct ibv_device **sv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (num_devices)
		*num_devices = list ? 1 : 0;
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	lock_take(&the_dev.lock);
	gid_refresh(&the_dev);
	lock_drop(&the_dev.lock);
	list[0] = &the_dev.device;
	return list;
}

void sv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *sv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 sv_get_device_guid(struct ibv_device *device)
{
	return sv_dev(device)->guid;
}

/* ---- contexts ---- */

struct ibv_context *sv_open_device(struct ibv_device *device)
{
	struct sv_ctx *ctx = calloc(1, sizeof(*ctx));
	int err;

	if (!ctx)
		goto err_errno;
	ctx->dev = sv_dev(device);
	ctx->v.context.device = device;
	ctx->v.context.cmd_fd = -1;
	ctx->v.context.num_comp_vectors = SV_NUM_COMP_VECTORS;
	ctx->v.context.async_fd =
		eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (ctx->v.context.async_fd < 0)
		goto err_free_ctx;
	err = sv_core_start();
	if (err) {
		errno = err;
		goto err_close_fd;
	}
	lock_init(&ctx->lock);
	list_init(&ctx->async_list);
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	sv_ops_fill(&ctx->v);
	sv_core_add_ctx(ctx);
	lock_take(&ctx->dev->lock);
	gid_refresh(ctx->dev);
	lock_drop(&ctx->dev->lock);
	return &ctx->v.context;

err_close_fd:
	close(ctx->v.context.async_fd);
err_free_ctx:
	free(ctx);
err_errno:
	if (!errno)
		errno = ENOMEM;
	return NULL;
}

int sv_close_device(struct ibv_context *context)
{
	struct sv_ctx *ctx = sv_ctx(context);

	if (sv_ctx_dead(context))
		return ENODEV;
	if (atomic_load(&ctx->users))
		return EBUSY;
	sv_core_del_ctx(ctx);
	sv_async_drop_all(ctx);
	close(context->async_fd);
	pthread_mutex_destroy(&context->mutex);
	lock_fini(&ctx->lock);
	free(ctx);
	return 0;
}

struct ibv_context *sv_ctx_shared(void)
{
	struct ibv_context *context;

	pthread_mutex_lock(&shared_lock);
	if (!shared_ctx)
		shared_ctx = sv_open_device(&the_dev.device);
	context = shared_ctx;
	pthread_mutex_unlock(&shared_lock);
	return context;
}

/* 101: after the engine has stopped, which may still use it. */
static void __attribute__((destructor(101))) shared_close(void)
{
	if (shared_ctx)
		sv_close_device(shared_ctx);
	shared_ctx = NULL;
}

void sv_device_fork_child(void)
{
	shared_ctx = NULL;
	lock_init(&the_dev.lock);
	pthread_mutex_init(&shared_lock, NULL);
}

/* ---- what it says of itself ---- */

int sv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	__be64 guid = sv_ctx(context)->dev->guid;

	*attr = (struct ibv_device_attr){
		.fw_ver = "1.0.0",
		.node_guid = guid,
		.sys_image_guid = guid,
		.max_mr_size = SV_MAX_MR_SIZE,
		.page_size_cap = ~0xfffull,
		.vendor_id = SV_VENDOR_ID,
		.max_qp = SV_MAX_QP,
		.max_qp_wr = SV_MAX_QP_WR,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_SYS_IMAGE_GUID |
				    IBV_DEVICE_SRQ_RESIZE |
				    IBV_DEVICE_PORT_ACTIVE_EVENT,
		.max_sge = SV_MAX_SGE,
		.max_sge_rd = SV_MAX_SGE,
		.max_cq = SV_MAX_CQ,
		.max_cqe = SV_MAX_CQE,
		.max_mr = SV_MAX_MR / 2,
		.max_pd = 1 << 20,
		.max_qp_rd_atom = SV_MAX_RD_ATOM,
		.max_res_rd_atom = SV_MAX_RD_ATOM * SV_MAX_QP,
		.max_qp_init_rd_atom = SV_MAX_RD_ATOM,
		/* The CPU's own operations: no other agent sees them halfway. */
		.atomic_cap = IBV_ATOMIC_GLOB,
		.max_srq = SV_MAX_SRQ,
		.max_srq_wr = SV_MAX_SRQ_WR,
		.max_srq_sge = SV_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
	return 0;
}

/* Of what there is beyond sv_query_device(), on-demand paging and so on, the
 * device has nothing. attr_size is how much of it the program knows. */
int sv_query_device_ex(struct ibv_context *context,
		       const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex full = { .phys_port_cnt_ex = 1 };
	int err;

	if (attr_size < sizeof(full.orig_attr) || (input && input->comp_mask))
		return EINVAL;
	err = sv_query_device(context, &full.orig_attr);
	if (err)
		return err;
	memset(attr, 0, attr_size);
	memcpy(attr, &full, min_size(attr_size, sizeof(full)));
	return 0;
}

int sv_query_port(struct ibv_context *context, uint8_t port_num,
		  struct ibv_port_attr *attr)
{
	if (port_num != SV_PORT)
		return EINVAL;
	*attr = (struct ibv_port_attr){
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = SV_MAX_GID,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = SV_MAX_MSG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2, /* 4x */
		.active_speed = 32, /* EDR */
		.phys_state = 5, /* link up */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
	return 0;
}

/* The verbs.h inline says how much of the structure its program knows. */
int sv_query_port_len(struct ibv_context *context, uint8_t port_num,
		      struct ibv_port_attr *attr, size_t len)
{
	struct ibv_port_attr full;
	int err = sv_query_port(context, port_num, &full);

	if (!err)
		memcpy(attr, &full, min_size(len, sizeof(full)));
	return err;
}

int sv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
		    uint32_t gid_index, struct ibv_gid_entry *entry,
		    uint32_t flags)
{
	struct sv_dev *dev = sv_ctx(context)->dev;
	int err = ENODATA;

	if (flags || port_num != SV_PORT || gid_index >= SV_MAX_GID)
		return EINVAL;
	lock_take(&dev->lock);
	if (gid_index < (uint32_t)dev->gid_cnt) {
		*entry = (struct ibv_gid_entry){
			.gid = dev->gid_tbl[gid_index].gid,
			.gid_index = gid_index,
			.port_num = port_num,
			.gid_type = dev->gid_tbl[gid_index].type,
			.ndev_ifindex = dev->gid_tbl[gid_index].ifindex,
		};
		err = 0;
	}
	lock_drop(&dev->lock);
	return err;
}

int sv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
		  __be16 *pkey)
{
	if (port_num != SV_PORT || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

/* A child's copy-on-write never moves memory away from the device here. */
int sv_fork_init(void)
{
	return 0;
}
