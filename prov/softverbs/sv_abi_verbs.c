/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libibverbs.so.1: the names of what softverbs has. Contracts are those of
 * ibv_X(3); sv.h says the same of sv_X.
 */
#include "sv_abi.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* ---- devices ---- */

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	return sv_get_device_list(num_devices);
}

void ibv_free_device_list(struct ibv_device **list)
{
	sv_free_device_list(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return sv_get_device_name(device);
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return sv_get_device_guid(device);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return sv_open_device(device);
}

/*
 * A kernel takes back what is left of a context when it is closed, and programs
 * count on it (ib_send_bw forgets a CQ). Here it stays until the process ends.
 */
int ibv_close_device(struct ibv_context *context)
{
	int err = sv_close_device(context);

	if (err != EBUSY)
		return err;
	sv_log("ibv_close_device: objects are left, so it stays open");
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return sv_query_device(context, attr);
}

/* For programs that are older than the members behind flags. */
int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *attr)
{
	return sv_query_port_len(context, port_num, (struct ibv_port_attr *)attr,
				 offsetof(struct ibv_port_attr,
					  port_cap_flags2));
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
		      uint32_t gid_index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry full;
	int err = sv_query_gid_ex(context, port_num, gid_index, &full, flags);

	if (!err)
		memcpy(entry, &full, min_size(entry_size, sizeof(full)));
	return err;
}

/* Returns how many there are, or a negative errno. */
ssize_t _ibv_query_gid_table(struct ibv_context *context,
			     struct ibv_gid_entry *entries, size_t max_entries,
			     uint32_t flags, size_t entry_size)
{
	char *to = (char *)entries;
	size_t cnt = 0;
	uint32_t i;
	int err;

	if (flags || (max_entries && entry_size < sizeof(*entries)))
		return -EINVAL;
	for (i = 0; i < SV_MAX_GID; i++) {
		struct ibv_gid_entry entry;

		err = sv_query_gid_ex(context, SV_PORT, i, &entry, 0);
		if (err)
			continue;
		if (cnt == max_entries)
			return -EINVAL;
		memcpy(to + cnt++ * entry_size, &entry, sizeof(entry));
	}
	return (ssize_t)cnt;
}

/* An empty entry is no error here: it reads as zero. */
int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
		  union ibv_gid *gid)
{
	struct ibv_gid_entry entry = { 0 };
	int err = sv_query_gid_ex(context, port_num, (uint32_t)index, &entry,
				  0);

	if (err && err != ENODATA) {
		errno = err;
		return -1;
	}
	*gid = entry.gid;
	return 0;
}

/* Counts from 0, where ibv_gid_entry.gid_type has InfiniBand first. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
		       unsigned int index, unsigned int *type)
{
	struct ibv_gid_entry entry = { .gid_type = IBV_GID_TYPE_ROCE_V1 };
	int err = sv_query_gid_ex(context, port_num, index, &entry, 0);

	if (err && err != ENODATA) {
		errno = err;
		return -1;
	}
	*type = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
		   __be16 *pkey)
{
	return sv_query_pkey(context, port_num, index, pkey);
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num,
		       __be16 pkey)
{
	__be16 entry;
	int i;

	for (i = 0; !sv_query_pkey(context, port_num, i, &entry); i++)
		if (entry == pkey)
			return i;
	errno = EINVAL;
	return -1;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	return sv_get_async_event(context, event);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	sv_ack_async_event(event);
}

/* ---- fork ---- */

int ibv_fork_init(void)
{
	return sv_fork_init();
}

/* Nothing here is harmed by copy-on-write. */
enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}

/* ---- protection domains and memory ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	return sv_alloc_pd(context);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return sv_dealloc_pd(pd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	return sv_reg_mr(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	return sv_reg_mr_iova(pd, addr, length, iova, (int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, int access)
{
	return sv_reg_mr_iova(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	return sv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	return sv_rereg_mr(mr, flags, pd, addr, length, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	return sv_dereg_mr(mr);
}

/* ---- completion queues ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	return sv_create_comp_channel(context);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return sv_destroy_comp_channel(channel);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
			     void *cq_context, struct ibv_comp_channel *channel,
			     int comp_vector)
{
	return sv_create_cq(context, cqe, cq_context, channel, comp_vector);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	return sv_resize_cq(cq, cqe);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return sv_destroy_cq(cq);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	return sv_get_cq_event(channel, cq, cq_context);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	sv_ack_cq_events(cq, nevents);
}

/* ---- shared receive queues ---- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	return sv_create_srq(pd, attr);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
		   int attr_mask)
{
	return sv_modify_srq(srq, attr, attr_mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	return sv_query_srq(srq, attr);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	return sv_destroy_srq(srq);
}

/* ---- address handles ---- */

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return sv_create_ah(pd, attr);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	return sv_destroy_ah(ah);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
			struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *attr)
{
	return sv_init_ah_from_wc(context, port_num, wc, grh, attr);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
				     struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (sv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return sv_create_ah(pd, &attr);
}

/* ---- queue pairs ---- */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return sv_create_qp(pd, attr);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return sv_qp_to_qp_ex(qp);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	return sv_modify_qp(qp, attr, attr_mask);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		 struct ibv_qp_init_attr *init_attr)
{
	return sv_query_qp(qp, attr, attr_mask, init_attr);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	return sv_destroy_qp(qp);
}

/* 0: the order in which the bytes of a message land is not promised. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
			       uint32_t flags)
{
	return 0;
}
