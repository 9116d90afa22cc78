/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * librdmacm.so.1: what softverbs does not have: multicast, enhanced connection
 * establishment. Each sets errno to EOPNOTSUPP and returns -1.
 */
#include "sv_abi_cm.h"

#include <errno.h>

int sv_abi_cm_nosys(const char *name)
{
	sv_log("%s: not supported", name);
	return sv_abi_cm_fail(EOPNOTSUPP);
}

/* The device raises no event that connection management would need. */
int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	return sv_abi_cm_nosys(__func__);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr,
			void *context)
{
	return sv_abi_cm_nosys(__func__);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id,
			   struct rdma_cm_join_mc_attr_ex *mc_join_attr,
			   void *context)
{
	return sv_abi_cm_nosys(__func__);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	return sv_abi_cm_nosys(__func__);
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	return sv_abi_cm_nosys(__func__);
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	return sv_abi_cm_nosys(__func__);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data,
		    uint8_t private_data_len)
{
	return sv_abi_cm_nosys(__func__);
}
