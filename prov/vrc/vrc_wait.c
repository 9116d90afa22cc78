/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What waiting on several things at once needs: fi_trywait, and wait sets. The
 * members of a set have descriptors of their own, as if they had been opened with
 * FI_WAIT_FD; the set's is readable when one of them is.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_eq.h"
#include "vrc_fabric.h"
#include "vrc_log.h"
#include "vrc_nosys.h"
#include "vrc_util.h"
#include "vrc_wait.h"

enum { LOOK_MS = 100 }; /* what makes no event is seen within */

struct vrc_wait {
	struct fid_wait fid;
	struct vrc_fabric *fabric;
	int epoll_fd;
	struct lock lock; /* guards members; before every member's own */
	struct list members;
};

struct member {
	struct list node;
	struct fid *fid;
	int fd;
};

static struct vrc_wait *vrc_wait(struct fid_wait *fid)
{
	return container_of(fid, struct vrc_wait, fid);
}

/* ---- fi_trywait ---- */

static int set_trywait(struct vrc_wait *wait)
{
	struct list *pos;
	int ret = 0;

	lock_take(&wait->lock);
	list_for_each(pos, &wait->members) {
		ret = vrc_trywait(list_entry(pos, struct member, node)->fid);
		if (ret)
			break;
	}
	lock_drop(&wait->lock);
	return ret;
}

int vrc_trywait(struct fid *fid)
{
	switch (fid->fclass) {
	case FI_CLASS_EQ:
		return vrc_eq_trywait(container_of(fid, struct vrc_eq, fid.fid));
	case FI_CLASS_CQ:
		return vrc_cq_trywait(container_of(fid, struct vrc_cq, fid.fid));
	case FI_CLASS_CNTR:
		return vrc_cntr_trywait(fid);
	case FI_CLASS_WAIT:
		return set_trywait(container_of(fid, struct vrc_wait, fid.fid));
	default:
		vrc_warn(FABRIC, "fi_trywait: a fid of class %zu has no wait "
			 "object\n", fid->fclass);
		return -FI_EINVAL;
	}
}

/* ---- the set ---- */

/* Until one of the members has something, or somebody has signalled it. */
static int wait_wait(struct fid_wait *fid, int timeout)
{
	struct vrc_wait *wait = vrc_wait(fid);
	uint64_t deadline_ms = vrc_now_ms() + (uint64_t)(timeout > 0 ? timeout : 0);
	struct epoll_event event;
	uint64_t now;
	int ms, ret;

	for (;;) {
		ret = set_trywait(wait);
		if (ret)
			return ret == -FI_EAGAIN ? 0 : ret;
		now = vrc_now_ms();
		if (timeout >= 0 && now >= deadline_ms)
			return -FI_ETIMEDOUT;
		ms = LOOK_MS;
		if (timeout >= 0 && deadline_ms - now < LOOK_MS)
			ms = (int)(deadline_ms - now);
		if (epoll_wait(wait->epoll_fd, &event, 1, ms) < 0)
			return errno == EINTR ? -FI_EINTR : vrc_err(errno);
	}
}

static int wait_control(struct fid *fid, int command, void *arg)
{
	struct vrc_wait *wait = container_of(fid, struct vrc_wait, fid.fid);

	if (command != FI_GETWAIT && command != FI_GETWAITOBJ)
		return -FI_ENOSYS;
	if (!arg)
		return -FI_EINVAL;
	if (command == FI_GETWAIT)
		*(int *)arg = wait->epoll_fd;
	else
		*(enum fi_wait_obj *)arg = FI_WAIT_FD;
	return 0;
}

static int wait_close(struct fid *fid)
{
	struct vrc_wait *wait = container_of(fid, struct vrc_wait, fid.fid);
	bool used;

	lock_take(&wait->lock);
	used = !list_empty(&wait->members);
	lock_drop(&wait->lock);
	if (used)
		return -FI_EBUSY;
	close(wait->epoll_fd);
	lock_fini(&wait->lock);
	atomic_fetch_sub(&wait->fabric->ref, 1);
	free(wait);
	return 0;
}

static const struct fi_ops wait_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = wait_close,
	.bind = vrc_nosys_bind,
	.control = wait_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct fi_ops_wait wait_ops = {
	.size = sizeof(struct fi_ops_wait),
	.wait = wait_wait,
};

int vrc_wait_open(struct fid_fabric *fabric_fid, struct fi_wait_attr *attr,
		  struct fid_wait **out)
{
	struct vrc_fabric *fabric = vrc_fabric(fabric_fid);
	struct vrc_wait *wait;
	int ret;

	if (attr && attr->flags) {
		vrc_warn(FABRIC, "fi_wait_open: flags 0x%" PRIx64 " not "
			 "supported\n", attr->flags);
		return -FI_EBADFLAGS;
	}
	if (attr && attr->wait_obj != FI_WAIT_UNSPEC &&
	    attr->wait_obj != FI_WAIT_FD) {
		vrc_warn(FABRIC, "fi_wait_open: wait object %d not supported; "
			 "UNSPEC and FD are\n", attr->wait_obj);
		return -FI_ENOSYS;
	}
	wait = calloc(1, sizeof(*wait));
	if (!wait)
		return -FI_ENOMEM;
	wait->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (wait->epoll_fd < 0) {
		ret = vrc_err(errno);
		free(wait);
		return ret;
	}
	lock_init(&wait->lock);
	list_init(&wait->members);
	wait->fabric = fabric;
	atomic_fetch_add(&fabric->ref, 1);
	wait->fid.fid.fclass = FI_CLASS_WAIT;
	wait->fid.fid.ops = VRC_OPS(&wait_fi_ops);
	wait->fid.ops = VRC_OPS(&wait_ops);
	*out = &wait->fid;
	return 0;
}

/* ---- its members ---- */

int vrc_wait_obj_check(const char *call, const struct vrc_fabric *fabric,
		       enum fi_wait_obj obj, const struct fid_wait *set)
{
	switch (obj) {
	case FI_WAIT_NONE:
	case FI_WAIT_UNSPEC:
	case FI_WAIT_FD:
		return 0;
	case FI_WAIT_SET:
		if (set && set->fid.fclass == FI_CLASS_WAIT &&
		    set->fid.ops == &wait_fi_ops &&
		    container_of(set, struct vrc_wait, fid)->fabric == fabric)
			return 0;
		vrc_warn(FABRIC, "%s: FI_WAIT_SET, and the wait set %p is none "
			 "of fabric %s\n", call, (const void *)set,
			 fabric->name);
		return -FI_EINVAL;
	default:
		vrc_warn(FABRIC, "%s: wait object %d not supported; NONE, "
			 "UNSPEC, FD and SET are\n", call, (int)obj);
		return -FI_ENOSYS;
	}
}

int vrc_wait_join(struct fid_wait *set, struct fid *fid, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct vrc_wait *wait;
	struct member *member;
	int ret;

	if (!set)
		return 0;
	wait = vrc_wait(set);
	member = calloc(1, sizeof(*member));
	if (!member)
		return -FI_ENOMEM;
	member->fid = fid;
	member->fd = fd;
	if (epoll_ctl(wait->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		ret = vrc_err(errno);
		free(member);
		return ret;
	}
	lock_take(&wait->lock);
	list_add_tail(&wait->members, &member->node);
	lock_drop(&wait->lock);
	return 0;
}

void vrc_wait_leave(struct fid_wait *set, const struct fid *fid)
{
	struct list *pos, *tmp;
	struct member *member;
	struct vrc_wait *wait;

	if (!set)
		return;
	wait = vrc_wait(set);
	lock_take(&wait->lock);
	list_for_each_safe(pos, tmp, &wait->members) {
		member = list_entry(pos, struct member, node);
		if (member->fid != fid)
			continue;
		epoll_ctl(wait->epoll_fd, EPOLL_CTL_DEL, member->fd, NULL);
		list_del(&member->node);
		free(member);
	}
	lock_drop(&wait->lock);
}
