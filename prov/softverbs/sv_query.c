/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a device says of itself, of its port, and of the port's tables.
 */
#include "sv_int.h"
#include "sv_fault.h"

#include <errno.h>
#include <string.h>

enum {
	PHYS_POLLING = 2,
	PHYS_LINK_UP = 5,
};

int sv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct sv_dev *dev = sv_ctx(context)->dev;
	const struct sv_limits *lim = &dev->lim;
	__be64 guid = sv_get_device_guid(&dev->device);
	int err = sv_fault_call(SV_FAULT_query_device, dev);

	if (err)
		return err;
	*attr = (struct ibv_device_attr){
		.fw_ver = "1.0.0",
		.node_guid = guid,
		.sys_image_guid = guid,
		.max_mr_size = SV_MAX_MR_SIZE,
		.page_size_cap = ~0xfffull,
		.vendor_id = SV_VENDOR_ID,
		.max_qp = (int)lim->qp,
		.max_qp_wr = (int)lim->qp_wr,
		.device_cap_flags = IBV_DEVICE_SYS_IMAGE_GUID |
				    IBV_DEVICE_SRQ_RESIZE |
				    IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_WINDOW_TYPE_2B |
				    IBV_DEVICE_PORT_ACTIVE_EVENT,
		.max_sge = (int)lim->sge,
		.max_sge_rd = (int)lim->sge_rd,
		.max_cq = (int)lim->cq,
		.max_cqe = (int)lim->cqe,
		.max_mr = (int)lim->mr, /* together with windows */
		.max_mw = (int)lim->mr,
		.max_pd = (int)lim->pd,
		.max_qp_rd_atom = (int)lim->rd_in,
		.max_res_rd_atom = (int)(lim->rd_in * lim->qp),
		.max_qp_init_rd_atom = (int)lim->rd_out,
		/* They are the CPU's own, and atomic to it, too; but NICs say
		 * no more than this, and UCX uses none where more is said. */
		.atomic_cap = dev->persona->no_atomics ? IBV_ATOMIC_NONE :
							 IBV_ATOMIC_HCA,
		.max_srq = (int)lim->srq,
		.max_srq_wr = (int)lim->srq_wr,
		.max_srq_sge = (int)lim->sge,
		.max_pkeys = (uint16_t)dev->pkey_cnt,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
	if (!dev->persona->cm_owns_qp)
		attr->device_cap_flags |= IBV_DEVICE_RC_RNR_NAK_GEN;
	return 0;
}

/* attr_size is how much of it the program knows. */
int sv_query_device_ex(struct ibv_context *context,
		       const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex full = {
		.odp_caps = {
			.general_caps = IBV_ODP_SUPPORT |
					IBV_ODP_SUPPORT_IMPLICIT,
			.per_transport_caps.rc_odp_caps =
				IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
				IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
				IBV_ODP_SUPPORT_ATOMIC |
				IBV_ODP_SUPPORT_SRQ_RECV,
		},
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = 1000000, /* kHz: see sv_query_rt_values() */
		.phys_port_cnt_ex = 1,
	};
	int err;

	if (attr_size < sizeof(full.orig_attr) || (input && input->comp_mask))
		return EINVAL;
	err = sv_query_device(context, &full.orig_attr);
	if (err)
		return err;
	if (sv_ctx(context)->dev->persona->no_atomics)
		full.odp_caps.per_transport_caps.rc_odp_caps &=
			~(uint32_t)IBV_ODP_SUPPORT_ATOMIC;
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
	memset(attr, 0, attr_size);
	memcpy(attr, &full, min_size(attr_size, sizeof(full)));
	return 0;
}

enum ibv_mtu sv_dev_mtu(const struct sv_dev *dev)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && 128u << mtu < dev->lim.mtu)
		mtu++;
	return mtu;
}

int sv_query_port(struct ibv_context *context, uint8_t port_num,
		  struct ibv_port_attr *attr)
{
	struct sv_dev *dev = sv_ctx(context)->dev;
	const struct sv_persona *persona = dev->persona;
	enum ibv_mtu mtu = sv_dev_mtu(dev);
	int err = sv_fault_call(SV_FAULT_query_port, dev);

	if (err)
		return err;
	if (port_num != SV_PORT)
		return EINVAL;
	lock_take(&dev->lock);
	*attr = (struct ibv_port_attr){
		.state = dev->port_state,
		.max_mtu = mtu,
		.active_mtu = mtu,
		.gid_tbl_len = (int)dev->lim.gid,
		.port_cap_flags = persona->port_cap_flags,
		.max_msg_sz = dev->lim.msg,
		.pkey_tbl_len = (uint16_t)dev->pkey_cnt,
		.lid = dev->lid,
		.sm_lid = dev->sm_lid,
		.max_vl_num = 1,
		.active_width = 2, /* 4x */
		.active_speed = 32, /* EDR */
		.phys_state = dev->port_state >= IBV_PORT_INIT ? PHYS_LINK_UP :
								 PHYS_POLLING,
		.link_layer = persona->link_layer,
	};
	lock_drop(&dev->lock);
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
	const struct sv_gid *gid;
	int err = sv_fault_call_entry(SV_FAULT_query_gid, dev, gid_index);

	if (err)
		return err;
	if (flags || port_num != SV_PORT || gid_index >= dev->lim.gid)
		return EINVAL;
	err = ENODATA;
	lock_take(&dev->lock);
	gid = &dev->gid_tbl[gid_index];
	if (gid->state == SV_GID_BROKEN) {
		err = gid->err;
	} else if (gid->state == SV_GID_AUTO || gid->state == SV_GID_SET) {
		*entry = (struct ibv_gid_entry){
			.gid = gid->gid,
			.gid_index = gid_index,
			.port_num = port_num,
			.gid_type = gid->type,
			.ndev_ifindex = gid->ifindex,
		};
		err = 0;
	}
	lock_drop(&dev->lock);
	return err;
}

int sv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
		  __be16 *pkey)
{
	struct sv_dev *dev = sv_ctx(context)->dev;
	int err = sv_fault_call_entry(SV_FAULT_query_pkey, dev, index);
	bool ok;

	if (err) {
		errno = err;
		return -1;
	}
	lock_take(&dev->lock);
	ok = port_num == SV_PORT && index >= 0 &&
	     (uint32_t)index < dev->pkey_cnt;
	if (ok)
		*pkey = htobe16(dev->pkeys[index]);
	lock_drop(&dev->lock);
	if (ok)
		return 0;
	errno = EINVAL;
	return -1;
}
