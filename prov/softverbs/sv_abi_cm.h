/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * librdmacm.so.1: what its files share. softverbs' ids have no QP of their
 * own; here rdma_cm_id.qp is one that the library moves along with the
 * connection, as rdma-core does. The members of the public struct are all
 * there is to know about it.
 */
#ifndef SV_ABI_CM_H
#define SV_ABI_CM_H

#include "sv_cm.h"

#include <rdma/rdma_verbs.h>

/* Sets errno and returns -1; SOFTVERBS_LOG names what is not supported. */
int sv_abi_cm_fail(int err);
int sv_abi_cm_nosys(const char *name);

/*
 * sv_abi_cm_qp.c. Return 0, or -1 with errno. bound: the id has a device now;
 * gives it the default PD. to_rts: from INIT to RTS, when the peer is known;
 * the numbers of reads are param's, unless NULL or "maximum". responded: does
 * that to an id that has a QP, and tells the peer that it is ready.
 */
void sv_abi_id_bound(struct rdma_cm_id *id);
int sv_abi_qp_to_rts(struct rdma_cm_id *id,
		     const struct rdma_conn_param *param);
int sv_abi_qp_to_err(struct rdma_cm_id *id);
int sv_abi_qp_responded(struct rdma_cm_id *id);

/* sv_abi_cm_ep.c. Forgets what rdma_create_ep() has stored for the id. */
void sv_abi_ep_forget(struct rdma_cm_id *id);

#endif
