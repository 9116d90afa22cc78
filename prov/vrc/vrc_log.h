/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Logging over fi_log. A message is written once, where the error is decided,
 * and begins with the object that it is about. warn: the user must act. info:
 * what was chosen and lifecycle. dbg: per connection. Never on the data path.
 */
#ifndef VRC_LOG_H
#define VRC_LOG_H

#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

extern struct fi_provider vrc_prov;

#define vrc_warn(subsys, ...) FI_WARN(&vrc_prov, FI_LOG_##subsys, __VA_ARGS__)
#define vrc_info(subsys, ...) FI_INFO(&vrc_prov, FI_LOG_##subsys, __VA_ARGS__)
#define vrc_dbg(subsys, ...) FI_DBG(&vrc_prov, FI_LOG_##subsys, __VA_ARGS__)

#endif
