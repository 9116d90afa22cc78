/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The drop-in libraries: rdma-core's exported names over softverbs, so that
 * programs linked against libibverbs.so.1 and librdmacm.so.1 run unchanged.
 *
 *	libibverbs.so.1: the device, and
 *	sv_abi_verbs.c	what softverbs has: names, and little else
 *	sv_abi_text.c	strings, rates, files of sysfs
 *	sv_abi_kern.c	the kernel's structures to and from verbs'
 *	sv_abi_nosys.c	what softverbs does not have: EOPNOTSUPP
 *	sv_abi_driver.c	names that only drivers use; see abi-private
 *
 *	librdmacm.so.1, which uses the device of the former:
 *	sv_abi_cm.c	ids and events
 *	sv_abi_cm_qp.c	the QP that belongs to an id
 *	sv_abi_cm_ep.c	rdma_create_ep() and rdma_get_request()
 *	sv_abi_cm_ai.c	rdma_getaddrinfo()
 *	sv_abi_cm_nosys.c, sv_abi_rsocket.c	what there is not: EOPNOTSUPP
 *
 * The version scripts (libibverbs.map.in, librdmacm.map) say which names are
 * exported, and with which version.
 */
#ifndef SV_ABI_H
#define SV_ABI_H

#include "sv_int.h"

/* The names themselves are wanted here, not what the headers make of them. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct ib_user_path_rec;
struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ibv_sa_path_rec;

/* Exported, but in no header that is installed. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
		       unsigned int index, unsigned int *type);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf,
			size_t size);
const char *ibv_get_sysfs_path(void);
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to,
				struct ib_uverbs_ah_attr *from);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to,
				struct ib_uverbs_qp_attr *from);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to,
				 struct ib_user_path_rec *from);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to,
			       struct ibv_sa_path_rec *from);

/* sv_abi_driver.c. Says in the log that a driver called; EOPNOTSUPP. */
int sv_abi_driver_nosys(const char *name);

/* sv_abi_nosys.c. Sets errno to EOPNOTSUPP; NULL. */
void *sv_abi_null(const char *name);

#endif
