/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs: the public face of the embedded verbs device.
 *
 * Every function has the signature and the contract of the rdma-core call
 * whose name it bears: sv_X is ibv_X(3), sv_cm_X is rdma_X(3). Errors are
 * reported the same way (errno or a positive errno value, as the man page of
 * that call says). The data path (ibv_post_send, ibv_post_recv,
 * ibv_post_srq_recv, ibv_poll_cq, ibv_req_notify_cq) goes through ibv_context.ops, as it does for hardware.
 *
 * An object made here must never be handed to the rdma-core function of the
 * same name, nor the other way round. All calls are thread safe as rdma-core's
 * are.
 */
#ifndef SV_H
#define SV_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* In our libibverbs.so.1 librdmacm.so.1 finds them; elsewhere a version script
 * hides them. */
#pragma GCC visibility push(default)

/* Devices. */
struct ibv_device **sv_get_device_list(int *num_devices);
void sv_free_device_list(struct ibv_device **list);
const char *sv_get_device_name(struct ibv_device *device);
__be64 sv_get_device_guid(struct ibv_device *device);
struct ibv_context *sv_open_device(struct ibv_device *device);
int sv_close_device(struct ibv_context *context);
int sv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int sv_query_port(struct ibv_context *context, uint8_t port_num,
		  struct ibv_port_attr *attr);
int sv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
		    uint32_t gid_index, struct ibv_gid_entry *entry,
		    uint32_t flags);
int sv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
		  __be16 *pkey);
int sv_get_async_event(struct ibv_context *context,
		       struct ibv_async_event *event);
void sv_ack_async_event(struct ibv_async_event *event);
int sv_fork_init(void);

/* Protection domains and memory. */
struct ibv_pd *sv_alloc_pd(struct ibv_context *context);
int sv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *sv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			 int access);
struct ibv_mr *sv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			      uint64_t iova, int access);
struct ibv_mr *sv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				size_t length, uint64_t iova, int fd,
				int access);
int sv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		size_t length, int access);
int sv_dereg_mr(struct ibv_mr *mr);

/* Address handles. */
struct ibv_ah *sv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int sv_destroy_ah(struct ibv_ah *ah);
int sv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
		       struct ibv_wc *wc, struct ibv_grh *grh,
		       struct ibv_ah_attr *attr);

/* Completion queues. */
struct ibv_comp_channel *sv_create_comp_channel(struct ibv_context *context);
int sv_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *sv_create_cq(struct ibv_context *context, int cqe,
			    void *cq_context, struct ibv_comp_channel *channel,
			    int comp_vector);
struct ibv_cq_ex *sv_create_cq_ex(struct ibv_context *context,
				  struct ibv_cq_init_attr_ex *attr);
int sv_resize_cq(struct ibv_cq *cq, int cqe);
int sv_destroy_cq(struct ibv_cq *cq);
int sv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		    void **cq_context);
void sv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents);
const char *sv_wc_status_str(enum ibv_wc_status status);

/* Queue pairs. */
struct ibv_qp *sv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *sv_create_qp_ex(struct ibv_context *context,
			       struct ibv_qp_init_attr_ex *attr);
struct ibv_qp_ex *sv_qp_to_qp_ex(struct ibv_qp *qp);
int sv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask);
int sv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		struct ibv_qp_init_attr *init_attr);
int sv_destroy_qp(struct ibv_qp *qp);

/* Shared receive queues. */
struct ibv_srq *sv_create_srq(struct ibv_pd *pd,
			      struct ibv_srq_init_attr *init_attr);
int sv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
		  int attr_mask);
int sv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int sv_destroy_srq(struct ibv_srq *srq);

/* Connection management. */
struct rdma_event_channel *sv_cm_create_event_channel(void);
void sv_cm_destroy_event_channel(struct rdma_event_channel *channel);
int sv_cm_get_cm_event(struct rdma_event_channel *channel,
		       struct rdma_cm_event **event);
int sv_cm_ack_cm_event(struct rdma_cm_event *event);
const char *sv_cm_event_str(enum rdma_cm_event_type event);
int sv_cm_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		    void *context, enum rdma_port_space ps);
int sv_cm_destroy_id(struct rdma_cm_id *id);
int sv_cm_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel);
int sv_cm_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
int sv_cm_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
		       struct sockaddr *dst_addr, int timeout_ms);
int sv_cm_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int sv_cm_listen(struct rdma_cm_id *id, int backlog);
/*
 * When this id has listened and is closed, its port is kept for three seconds: for a
 * program that may be about to open it again (sv_cm_linger.c).
 */
void sv_cm_keep_port(struct rdma_cm_id *id);
int sv_cm_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);
int sv_cm_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param);
int sv_cm_establish(struct rdma_cm_id *id);
int sv_cm_reject(struct rdma_cm_id *id, const void *private_data,
		 uint8_t private_data_len);
int sv_cm_disconnect(struct rdma_cm_id *id);
int sv_cm_set_option(struct rdma_cm_id *id, int level, int optname,
		     void *optval, size_t optlen);
int sv_cm_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr,
		       int *qp_attr_mask);
struct ibv_context **sv_cm_get_devices(int *num_devices);
void sv_cm_free_devices(struct ibv_context **list);

#pragma GCC visibility pop

#endif
