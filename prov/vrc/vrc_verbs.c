/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The two backends behind the seam. This is the only file of the provider that
 * may name an ibv_ or rdma_ function.
 */
#include <errno.h>

#include "sv.h"
#include "vrc_verbs.h"

/* ibv_query_port and friends are macros over several entry points; these give
 * them an address. */
static int core_query_port(struct ibv_context *context, uint8_t port_num,
			   struct ibv_port_attr *attr)
{
	return ibv_query_port(context, port_num, attr);
}

static int core_query_gid_ex(struct ibv_context *context, uint32_t port_num,
			     uint32_t gid_index, struct ibv_gid_entry *entry,
			     uint32_t flags)
{
	return ibv_query_gid_ex(context, port_num, gid_index, entry, flags);
}

static struct ibv_mr *core_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
				  int access)
{
	return ibv_reg_mr(pd, addr, length, access);
}

static __be64 core_get_device_guid(struct ibv_device *device)
{
	return ibv_get_device_guid(device);
}

const struct vrc_verbs_ops vrc_verbs_rdma_core = {
	.name = "rdma-core",
	.is_softverbs = false,

	.get_device_list = ibv_get_device_list,
	.free_device_list = ibv_free_device_list,
	.get_device_name = ibv_get_device_name,
	.get_device_guid = core_get_device_guid,
	.open_device = ibv_open_device,
	.close_device = ibv_close_device,
	.query_device = ibv_query_device,
	.query_port = core_query_port,
	.query_gid_ex = core_query_gid_ex,
	.query_pkey = ibv_query_pkey,
	.get_async_event = ibv_get_async_event,
	.ack_async_event = ibv_ack_async_event,
	.fork_init = ibv_fork_init,

	.alloc_pd = ibv_alloc_pd,
	.dealloc_pd = ibv_dealloc_pd,
	.reg_mr = core_reg_mr,
	.dereg_mr = ibv_dereg_mr,

	.create_comp_channel = ibv_create_comp_channel,
	.destroy_comp_channel = ibv_destroy_comp_channel,
	.create_cq = ibv_create_cq,
	.resize_cq = ibv_resize_cq,
	.destroy_cq = ibv_destroy_cq,
	.get_cq_event = ibv_get_cq_event,
	.ack_cq_events = ibv_ack_cq_events,
	.wc_status_str = ibv_wc_status_str,

	.create_qp = ibv_create_qp,
	.modify_qp = ibv_modify_qp,
	.query_qp = ibv_query_qp,
	.destroy_qp = ibv_destroy_qp,

	.create_srq = ibv_create_srq,
	.destroy_srq = ibv_destroy_srq,

	.create_event_channel = rdma_create_event_channel,
	.destroy_event_channel = rdma_destroy_event_channel,
	.get_cm_event = rdma_get_cm_event,
	.ack_cm_event = rdma_ack_cm_event,
	.event_str = rdma_event_str,
	.create_id = rdma_create_id,
	.destroy_id = rdma_destroy_id,
	.migrate_id = rdma_migrate_id,
	.bind_addr = rdma_bind_addr,
	.resolve_addr = rdma_resolve_addr,
	.resolve_route = rdma_resolve_route,
	.listen = rdma_listen,
	.connect = rdma_connect,
	.accept = rdma_accept,
	.establish = rdma_establish,
	.reject = rdma_reject,
	.disconnect = rdma_disconnect,
	.set_option = rdma_set_option,
	.init_qp_attr = rdma_init_qp_attr,
};

const struct vrc_verbs_ops vrc_verbs_softverbs = {
	.name = "softverbs",
	.is_softverbs = true,

	.get_device_list = sv_get_device_list,
	.free_device_list = sv_free_device_list,
	.get_device_name = sv_get_device_name,
	.get_device_guid = sv_get_device_guid,
	.open_device = sv_open_device,
	.close_device = sv_close_device,
	.query_device = sv_query_device,
	.query_port = sv_query_port,
	.query_gid_ex = sv_query_gid_ex,
	.query_pkey = sv_query_pkey,
	.get_async_event = sv_get_async_event,
	.ack_async_event = sv_ack_async_event,
	.fork_init = sv_fork_init,

	.alloc_pd = sv_alloc_pd,
	.dealloc_pd = sv_dealloc_pd,
	.reg_mr = sv_reg_mr,
	.dereg_mr = sv_dereg_mr,

	.create_comp_channel = sv_create_comp_channel,
	.destroy_comp_channel = sv_destroy_comp_channel,
	.create_cq = sv_create_cq,
	.resize_cq = sv_resize_cq,
	.destroy_cq = sv_destroy_cq,
	.get_cq_event = sv_get_cq_event,
	.ack_cq_events = sv_ack_cq_events,
	.wc_status_str = sv_wc_status_str,

	.create_qp = sv_create_qp,
	.modify_qp = sv_modify_qp,
	.query_qp = sv_query_qp,
	.destroy_qp = sv_destroy_qp,

	.create_srq = sv_create_srq,
	.destroy_srq = sv_destroy_srq,

	.create_event_channel = sv_cm_create_event_channel,
	.destroy_event_channel = sv_cm_destroy_event_channel,
	.get_cm_event = sv_cm_get_cm_event,
	.ack_cm_event = sv_cm_ack_cm_event,
	.event_str = sv_cm_event_str,
	.create_id = sv_cm_create_id,
	.destroy_id = sv_cm_destroy_id,
	.migrate_id = sv_cm_migrate_id,
	.bind_addr = sv_cm_bind_addr,
	.resolve_addr = sv_cm_resolve_addr,
	.resolve_route = sv_cm_resolve_route,
	.listen = sv_cm_listen,
	.connect = sv_cm_connect,
	.accept = sv_cm_accept,
	.establish = sv_cm_establish,
	.reject = sv_cm_reject,
	.disconnect = sv_cm_disconnect,
	.set_option = sv_cm_set_option,
	.init_qp_attr = sv_cm_init_qp_attr,
};
