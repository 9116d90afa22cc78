/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "sv_edit.h"

#include "sv_int.h"
#include "sv_fault.h"

#include <errno.h>
#include <string.h>

/* Runs under dev->lock. 0, a positive errno, or -1 for no change. */
typedef int (*edit_fn)(struct sv_dev *dev, const void *arg);

static int edit(const char *name, edit_fn fn, const void *arg,
		enum ibv_event_type event)
{
	struct sv_dev *dev = name ? sv_dev_by_name(name) : NULL;
	int err;

	if (!dev)
		return ENODEV;
	/* Or what is edited could be filled by the first look. */
	sv_dev_refresh();
	lock_take(&dev->lock);
	err = fn(dev, arg);
	lock_drop(&dev->lock);
	if (!err)
		sv_core_raise(dev, event);
	return err > 0 ? err : 0;
}

/* ---- GIDs ---- */

struct gid_edit {
	uint32_t index;
	struct sv_gid entry;
};

static int gid_put(struct sv_dev *dev, const void *arg)
{
	const struct gid_edit *want = arg;
	struct sv_gid *entry;

	if (want->index >= dev->lim.gid)
		return EINVAL;
	entry = &dev->gid_tbl[want->index];
	if (!memcmp(entry, &want->entry, sizeof(*entry)))
		return -1;
	*entry = want->entry;
	return 0;
}

int sv_edit_gid_set(const char *device, uint32_t index,
		    const union ibv_gid *gid, enum ibv_gid_type type)
{
	struct gid_edit want = { .index = index };

	if (type > IBV_GID_TYPE_ROCE_V2)
		return EINVAL;
	want.entry.state = gid ? SV_GID_SET : SV_GID_HOLE;
	want.entry.type = gid ? type : IBV_GID_TYPE_IB;
	if (gid)
		want.entry.gid = *gid;
	return edit(device, gid_put, &want, IBV_EVENT_GID_CHANGE);
}

int sv_edit_gid_error(const char *device, uint32_t index, int err)
{
	struct gid_edit want = {
		.index = index,
		.entry = { .state = SV_GID_BROKEN, .err = err },
	};

	if (err <= 0)
		return EINVAL;
	return edit(device, gid_put, &want, IBV_EVENT_GID_CHANGE);
}

static int gid_move(struct sv_dev *dev, const void *arg)
{
	const uint32_t *index = arg;
	struct sv_gid entry;

	if (index[0] >= dev->lim.gid || index[1] >= dev->lim.gid)
		return EINVAL;
	if (index[0] == index[1])
		return -1;
	entry = dev->gid_tbl[index[0]];
	if (entry.state == SV_GID_AUTO)
		entry.state = SV_GID_SET;
	dev->gid_tbl[index[0]] = (struct sv_gid){ .state = SV_GID_HOLE };
	dev->gid_tbl[index[1]] = entry;
	return 0;
}

int sv_edit_gid_move(const char *device, uint32_t from, uint32_t to)
{
	const uint32_t index[] = { from, to };

	return edit(device, gid_move, index, IBV_EVENT_GID_CHANGE);
}

/* ---- keys, LIDs, the port ---- */

struct pkey_edit {
	uint32_t index;
	uint16_t pkey;
};

static int pkey_put(struct sv_dev *dev, const void *arg)
{
	const struct pkey_edit *want = arg;

	if (want->index >= dev->pkey_cnt)
		return EINVAL;
	if (dev->pkeys[want->index] == want->pkey)
		return -1;
	dev->pkeys[want->index] = want->pkey;
	return 0;
}

int sv_edit_pkey(const char *device, uint32_t index, uint16_t pkey)
{
	const struct pkey_edit want = { index, pkey };

	return edit(device, pkey_put, &want, IBV_EVENT_PKEY_CHANGE);
}

static int lid_put(struct sv_dev *dev, const void *arg)
{
	const uint16_t *lid = arg;

	if (!dev->persona->has_lid || !*lid || *lid > SV_MAX_LID)
		return EINVAL;
	if (dev->lid == *lid)
		return -1;
	dev->lid = *lid;
	return 0;
}

int sv_edit_lid(const char *device, uint16_t lid)
{
	return edit(device, lid_put, &lid, IBV_EVENT_LID_CHANGE);
}

static int port_put(struct sv_dev *dev, const void *arg)
{
	const enum ibv_port_state *state = arg;
	bool was = dev->port_state == IBV_PORT_ACTIVE;

	if (*state < IBV_PORT_DOWN || *state > IBV_PORT_ACTIVE)
		return EINVAL;
	dev->port_state = *state;
	return was == (*state == IBV_PORT_ACTIVE) ? -1 : 0;
}

int sv_edit_port(const char *device, enum ibv_port_state state)
{
	const bool is_up = state == IBV_PORT_ACTIVE;
	int err;

	err = edit(device, port_put, &state, is_up ? IBV_EVENT_PORT_ACTIVE :
						     IBV_EVENT_PORT_ERR);
	if (!err)
		sv_stall_set(sv_dev_by_name(device), -1, !is_up);
	return err;
}

/* ---- the device ---- */

static void qp_fail(struct sv_qp *qp, void *arg)
{
	if (qp->ctx->dev != arg)
		return;
	sv_lock_take(&qp->lock);
	if (!qp->destroyed)
		sv_qp_error(qp, -1);
	sv_lock_drop(&qp->lock);
}

static int fail(struct sv_dev *dev, const void *arg)
{
	dev->port_state = IBV_PORT_DOWN;
	return 0;
}

int sv_edit_fatal(const char *device)
{
	int err = edit(device, fail, NULL, IBV_EVENT_DEVICE_FATAL);

	if (!err)
		sv_qp_for_each(qp_fail, sv_dev_by_name(device));
	return err;
}

static int nothing(struct sv_dev *dev, const void *arg)
{
	return 0;
}

int sv_edit_raise(const char *device, enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		return edit(device, nothing, NULL, type);
	default:
		return EINVAL;
	}
}
