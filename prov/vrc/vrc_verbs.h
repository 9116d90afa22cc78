/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The seam: every control verb, registration and rdma_cm call that the
 * provider makes goes through one of these tables. There is one instance per
 * backend (rdma-core and softverbs), both in vrc_verbs.c. Names, signatures
 * and error conventions are rdma-core's: see ibv_X(3) and rdma_X(3).
 *
 * The data path does not come through here. ibv_post_send, ibv_post_recv,
 * ibv_post_srq_recv, ibv_poll_cq and ibv_req_notify_cq are inlines in <infiniband/verbs.h> that
 * jump through ibv_context.ops, which both backends fill. No other ibv_ or
 * rdma_ name may be called outside vrc_verbs.c: several of them are macros that
 * call into libibverbs, which must never see a softverbs object.
 */
#ifndef VRC_VERBS_H
#define VRC_VERBS_H

#include <stdbool.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

struct vrc_verbs_ops {
	/* "rdma-core" or "softverbs", for messages and fi_info. */
	const char *name;
	bool is_softverbs;

	struct ibv_device **(*get_device_list)(int *num_devices);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	__be64 (*get_device_guid)(struct ibv_device *device);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	int (*query_device)(struct ibv_context *context,
			    struct ibv_device_attr *attr);
	int (*query_port)(struct ibv_context *context, uint8_t port_num,
			  struct ibv_port_attr *attr);
	int (*query_gid_ex)(struct ibv_context *context, uint32_t port_num,
			    uint32_t gid_index, struct ibv_gid_entry *entry,
			    uint32_t flags);
	int (*query_pkey)(struct ibv_context *context, uint8_t port_num,
			  int index, __be16 *pkey);
	int (*get_async_event)(struct ibv_context *context,
			       struct ibv_async_event *event);
	void (*ack_async_event)(struct ibv_async_event *event);
	int (*fork_init)(void);

	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length,
				 int access);
	int (*dereg_mr)(struct ibv_mr *mr);

	struct ibv_comp_channel *(*create_comp_channel)(
		struct ibv_context *context);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe,
				    void *cq_context,
				    struct ibv_comp_channel *channel,
				    int comp_vector);
	int (*resize_cq)(struct ibv_cq *cq, int cqe);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel,
			    struct ibv_cq **cq, void **cq_context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int nevents);
	const char *(*wc_status_str)(enum ibv_wc_status status);

	struct ibv_qp *(*create_qp)(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			 int attr_mask);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			int attr_mask, struct ibv_qp_init_attr *init_attr);
	int (*destroy_qp)(struct ibv_qp *qp);

	struct ibv_srq *(*create_srq)(struct ibv_pd *pd,
				      struct ibv_srq_init_attr *attr);
	int (*destroy_srq)(struct ibv_srq *srq);

	struct rdma_event_channel *(*create_event_channel)(void);
	void (*destroy_event_channel)(struct rdma_event_channel *channel);
	int (*get_cm_event)(struct rdma_event_channel *channel,
			    struct rdma_cm_event **event);
	int (*ack_cm_event)(struct rdma_cm_event *event);
	const char *(*event_str)(enum rdma_cm_event_type event);
	int (*create_id)(struct rdma_event_channel *channel,
			 struct rdma_cm_id **id, void *context,
			 enum rdma_port_space ps);
	int (*destroy_id)(struct rdma_cm_id *id);
	int (*migrate_id)(struct rdma_cm_id *id,
			  struct rdma_event_channel *channel);
	int (*bind_addr)(struct rdma_cm_id *id, struct sockaddr *addr);
	int (*resolve_addr)(struct rdma_cm_id *id, struct sockaddr *src_addr,
			    struct sockaddr *dst_addr, int timeout_ms);
	int (*resolve_route)(struct rdma_cm_id *id, int timeout_ms);
	int (*listen)(struct rdma_cm_id *id, int backlog);
	int (*connect)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*accept)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*establish)(struct rdma_cm_id *id);
	int (*reject)(struct rdma_cm_id *id, const void *private_data,
		      uint8_t private_data_len);
	int (*disconnect)(struct rdma_cm_id *id);
	int (*set_option)(struct rdma_cm_id *id, int level, int optname,
			  void *optval, size_t optlen);
	int (*init_qp_attr)(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
			    int *attr_mask);
};

/* vrc_verbs.c */
extern const struct vrc_verbs_ops vrc_verbs_rdma_core;
extern const struct vrc_verbs_ops vrc_verbs_softverbs;

#endif
