/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Changing a device while programs use it, as cables, subnet managers and
 * administrators do. For tests: in this process only, and not installed; but
 * our libibverbs.so.1 exports it, so that tests of other programs find it with
 * dlsym().
 *
 * device: its name. All return 0 or a positive errno: ENODEV, no device is
 * called so; EINVAL, an index is beyond the table, or a value is none. Any
 * thread may call them, at any time, from no handler of softverbs' own. The
 * asynchronous event that hardware would raise is raised on every context of
 * the device before they return, and only if something has changed.
 */
#ifndef SV_EDIT_H
#define SV_EDIT_H

#include <infiniband/verbs.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/*
 * The GID table. set: gid NULL leaves a hole. error: reading the entry fails
 * with err. move: from becomes a hole. What was edited no longer follows the
 * machine's addresses. IBV_EVENT_GID_CHANGE.
 */
int sv_edit_gid_set(const char *device, uint32_t index,
		    const union ibv_gid *gid, enum ibv_gid_type type);
int sv_edit_gid_error(const char *device, uint32_t index, int err);
int sv_edit_gid_move(const char *device, uint32_t from, uint32_t to);

/* 0 is no key. The table does not grow. IBV_EVENT_PKEY_CHANGE. */
int sv_edit_pkey(const char *device, uint32_t index, uint16_t pkey);

/* 1 to 0xbfff, on a look that has LIDs. IBV_EVENT_LID_CHANGE. */
int sv_edit_lid(const char *device, uint16_t lid);

/*
 * IBV_PORT_DOWN to IBV_PORT_ACTIVE. IBV_EVENT_PORT_ERR when it stops being
 * active, IBV_EVENT_PORT_ACTIVE when it begins to be. Meanwhile nothing gets
 * through: queue pairs neither send nor take anything.
 */
int sv_edit_port(const char *device, enum ibv_port_state state);

/*
 * The device fails: all its queue pairs go to the error state and flush, the
 * port goes down. IBV_EVENT_DEVICE_FATAL, and no other.
 */
int sv_edit_fatal(const char *device);

/* Raises an event of the device or its port, and changes nothing. EINVAL for
 * those that are about a queue pair, a CQ or an SRQ. */
int sv_edit_raise(const char *device, enum ibv_event_type type);

#pragma GCC visibility pop

#endif
