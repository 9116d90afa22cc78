/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Names that programs written to libfabric 1.x use, and that the headers of 2.x
 * warn of or no longer have. The values are part of the ABI: they are the same in
 * all releases. Include this after any other header of libfabric's.
 */
#ifndef FI_NAMES_H
#define FI_NAMES_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#undef FI_MR_UNSPEC
#undef FI_MR_BASIC
#undef FI_MR_SCALABLE
#define FI_MR_UNSPEC 0
#define FI_MR_BASIC 1
#define FI_MR_SCALABLE 2

#undef FI_LOCAL_MR
#undef FI_VARIABLE_MSG
#define FI_LOCAL_MR (UINT64_C(1) << 55)
#define FI_VARIABLE_MSG (UINT64_C(1) << 48)

#undef FI_ORDER_STRICT
#undef FI_ORDER_DATA
#define FI_ORDER_STRICT UINT64_C(0x1ff)
#define FI_ORDER_DATA (UINT64_C(1) << 16)

#undef FI_EP_SOCK_DGRAM
#define FI_EP_SOCK_DGRAM 5

/* Poll and wait sets, which programs for 1.x have and 2.x is to give up. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#endif
