/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libibverbs.so.1: what softverbs does not have. Each fails as its man page
 * says that it fails, with EOPNOTSUPP, and SOFTVERBS_LOG names it.
 */
#include "sv_abi.h"

#include <errno.h>

static int nosys(const char *name)
{
	sv_log("%s: not supported", name);
	return EOPNOTSUPP;
}

void *sv_abi_null(const char *name)
{
	errno = nosys(name);
	return NULL;
}

/* ---- devices ---- */

/* The kernel does not know the device, so it has not numbered it. */
int ibv_get_device_index(struct ibv_device *device)
{
	errno = nosys(__func__);
	return -1;
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	return sv_abi_null(__func__);
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	return sv_abi_null(__func__);
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	nosys(__func__);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	return sv_abi_null(__func__);
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	nosys(__func__);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	return sv_abi_null(__func__);
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	nosys(__func__);
}

/* ---- queue pairs ---- */

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return nosys(__func__);
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return nosys(__func__);
}

/* ---- datagrams ---- */

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context,
				struct ibv_ah_attr *attr,
				uint8_t eth_mac[ETHERNET_LL_SIZE],
				uint16_t *vid)
{
	return nosys(__func__);
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return nosys(__func__);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return nosys(__func__);
}
