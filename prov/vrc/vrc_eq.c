/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The event queue: events and errors wait in two lists until they are read,
 * errors first. The rdma_cm event channels of its endpoints hang on it too
 * (vrc_eq_chan.c).
 *
 * What to wait on is an epoll descriptor over an eventfd whose count is not
 * zero exactly while an event or an error is queued.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_eq.h"
#include "vrc_fabric.h"
#include "vrc_log.h"
#include "vrc_nosys.h"
#include "vrc_pep.h"
#include "vrc_util.h"
#include "vrc_wait.h"

struct vrc_eq_event {
	struct list node;
	struct fid *fid;      /* NULL: from fi_eq_write, not ours to follow */
	struct fi_info *info; /* FI_CONNREQ: owned until it is read */
	uint32_t event;
	int err;	      /* 0: not an error */
	int prov_errno;
	size_t min_len;	      /* less room than this is -FI_ETOOSMALL */
	size_t len;
	/* What fi_eq_read gives; an error's err_data. */
	_Alignas(8) uint8_t data[];
};

bool vrc_eq_is_empty(const struct vrc_eq *eq)
{
	return list_empty(&eq->events) && list_empty(&eq->errors);
}

static void signal_set(struct vrc_eq *eq)
{
	uint64_t one = 1;

	/* Cannot fail: the count is 0 or 1. */
	if (eq->signal_fd >= 0 && write(eq->signal_fd, &one, sizeof(one)) < 0)
		vrc_dbg(EQ, "eq: eventfd: %s\n", strerror(errno));
}

static void signal_clear(struct vrc_eq *eq)
{
	uint64_t count;

	if (eq->signal_fd >= 0 &&
	    read(eq->signal_fd, &count, sizeof(count)) < 0)
		vrc_dbg(EQ, "eq: eventfd: %s\n", strerror(errno));
}

static void queue(struct vrc_eq *eq, struct vrc_eq_event *ev)
{
	bool was_empty = vrc_eq_is_empty(eq);

	list_add_tail(ev->err ? &eq->errors : &eq->events, &ev->node);
	if (was_empty)
		signal_set(eq);
}

static void dequeue(struct vrc_eq *eq, struct vrc_eq_event *ev)
{
	list_del(&ev->node);
	if (vrc_eq_is_empty(eq))
		signal_clear(eq);
}

/* A connection request that nobody has seen dies with its event. */
static void event_free(struct vrc_eq_event *ev)
{
	if (ev->info) {
		if (ev->info->handle)
			vrc_connreq_free(vrc_connreq(ev->info->handle));
		fi_freeinfo(ev->info);
	}
	free(ev);
}

static struct vrc_eq_event *event_alloc(struct fid *fid, uint32_t event,
					size_t len)
{
	struct vrc_eq_event *ev = calloc(1, sizeof(*ev) + len);

	if (!ev) {
		vrc_warn(EQ, "eq: out of memory, event %u is lost\n", event);
		return NULL;
	}
	ev->fid = fid;
	ev->event = event;
	ev->len = len;
	ev->min_len = len;
	return ev;
}

/* Takes info when it succeeds; copies data. */
int vrc_eq_post_cm(struct vrc_eq *eq, uint32_t event, struct fid *fid,
		   struct fi_info *info, const void *data, size_t len)
{
	struct fi_eq_cm_entry entry = { .fid = fid, .info = info };
	struct vrc_eq_event *ev;

	lock_assert_held(&eq->lock);
	ev = event_alloc(fid, event, sizeof(entry) + len);
	if (!ev)
		return -FI_ENOMEM;
	/* fi_eq(3): the application's room limits the data, no more. */
	ev->min_len = sizeof(entry);
	ev->info = info;
	memcpy(ev->data, &entry, sizeof(entry));
	if (len)
		memcpy(ev->data + sizeof(entry), data, len);
	queue(eq, ev);
	return 0;
}

/* err is a positive FI_E*; copies data. */
int vrc_eq_post_err(struct vrc_eq *eq, struct fid *fid, int err,
		    int prov_errno, const void *data, size_t len)
{
	struct vrc_eq_event *ev;

	lock_assert_held(&eq->lock);
	assert(err > 0);
	ev = event_alloc(fid, 0, len);
	if (!ev)
		return -FI_ENOMEM;
	ev->err = err;
	ev->prov_errno = prov_errno;
	if (len)
		memcpy(ev->data, data, len);
	queue(eq, ev);
	return 0;
}

static void forget(struct vrc_eq *eq, struct list *head, const struct fid *fid)
{
	struct vrc_eq_event *ev;
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, head) {
		ev = list_entry(pos, struct vrc_eq_event, node);
		if (!fid || ev->fid == fid) {
			dequeue(eq, ev);
			event_free(ev);
		}
	}
}

void vrc_eq_forget(struct vrc_eq *eq, const struct fid *fid)
{
	lock_assert_held(&eq->lock);
	forget(eq, &eq->events, fid);
	forget(eq, &eq->errors, fid);
}

/* Caller holds eq->lock. */
static ssize_t take_event(struct vrc_eq *eq, uint32_t *event, void *buf,
			  size_t len, uint64_t flags)
{
	struct vrc_eq_event *ev;

	if (!list_empty(&eq->errors))
		return -FI_EAVAIL;
	if (list_empty(&eq->events))
		return -FI_EAGAIN;
	ev = list_entry(eq->events.next, struct vrc_eq_event, node);
	if (len < ev->min_len)
		return -FI_ETOOSMALL;
	len = min_size(len, ev->len);
	if (len)
		memcpy(buf, ev->data, len);
	if (event)
		*event = ev->event;
	if (!(flags & FI_PEEK)) {
		dequeue(eq, ev);
		/* The request is the application's now, as is the info. */
		if (ev->info)
			vrc_connreq(ev->info->handle)->pep->unread--;
		ev->info = NULL;
		event_free(ev);
	}
	return (ssize_t)len;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf,
		       size_t len, uint64_t flags)
{
	struct vrc_eq *eq = vrc_eq(fid);
	ssize_t ret;

	if (!buf)
		len = 0;
	lock_take(&eq->lock);
	vrc_eq_poll(eq, false);
	ret = take_event(eq, event, buf, len, flags);
	lock_drop(&eq->lock);
	return ret;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buf,
			size_t len, int timeout, uint64_t flags)
{
	struct vrc_eq *eq = vrc_eq(fid);
	struct pollfd pfd = { .fd = eq->epoll_fd, .events = POLLIN };
	uint64_t now, deadline = 0;
	int left = -1;
	ssize_t ret;

	if (eq->wait_obj == FI_WAIT_NONE) {
		vrc_warn(EQ, "eq: fi_eq_sread on a queue opened with "
			 "FI_WAIT_NONE\n");
		return -FI_ENOSYS;
	}
	if (timeout >= 0)
		deadline = vrc_now_ms() + (unsigned int)timeout;
	for (;;) {
		ret = eq_read(fid, event, buf, len, flags);
		if (ret != -FI_EAGAIN)
			return ret;
		if (timeout >= 0) {
			now = vrc_now_ms();
			if (now >= deadline)
				return -FI_EAGAIN;
			left = (int)(deadline - now);
		}
		/* A signal ends the wait, as fi_eq(3) wants it, and does not pass
		 * for the end of the time: as in fi_cq_sread. */
		if (poll(&pfd, 1, left) < 0)
			return errno == EINTR ? -FI_EINTR : vrc_err(errno);
	}
}

/* Where an error's data goes: to the application's buffer if there is one,
 * otherwise it stays ours until the next error is read. */
static void give_err_data(const struct vrc_eq *eq, struct vrc_eq_event *ev,
			  struct fi_eq_err_entry *entry)
{
	if (entry->err_data_size && entry->err_data &&
	    FI_VERSION_GE(eq->fabric->fid.api_version, FI_VERSION(1, 5))) {
		entry->err_data_size = min_size(entry->err_data_size, ev->len);
		memcpy(entry->err_data, ev->data, entry->err_data_size);
		return;
	}
	entry->err_data = ev->len ? ev->data : NULL;
	entry->err_data_size = ev->len;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *entry,
			  uint64_t flags)
{
	struct vrc_eq *eq = vrc_eq(fid);
	struct vrc_eq_event *ev;
	ssize_t ret = -FI_EAGAIN;

	if (!entry)
		return -FI_EINVAL;
	lock_take(&eq->lock);
	vrc_eq_poll(eq, false);
	if (list_empty(&eq->errors))
		goto out;
	ev = list_entry(eq->errors.next, struct vrc_eq_event, node);
	entry->fid = ev->fid;
	entry->context = ev->fid->context;
	entry->data = 0;
	entry->err = ev->err;
	entry->prov_errno = ev->prov_errno;
	give_err_data(eq, ev, entry);
	if (!(flags & FI_PEEK)) {
		dequeue(eq, ev);
		free(eq->last_error);
		eq->last_error = ev;
	}
	ret = sizeof(*entry);
out:
	lock_drop(&eq->lock);
	return ret;
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t event, const void *buf,
			size_t len, uint64_t flags)
{
	struct vrc_eq *eq = vrc_eq(fid);
	struct vrc_eq_event *ev;

	if (!eq->writable) {
		vrc_warn(EQ, "eq: fi_eq_write on a queue opened without "
			 "FI_WRITE\n");
		return -FI_EINVAL;
	}
	if ((len && !buf) || len > PTRDIFF_MAX - sizeof(*ev))
		return -FI_EINVAL;
	ev = event_alloc(NULL, event, len);
	if (!ev)
		return -FI_ENOMEM;
	if (len)
		memcpy(ev->data, buf, len);
	lock_take(&eq->lock);
	queue(eq, ev);
	lock_drop(&eq->lock);
	return (ssize_t)len;
}

static const char *eq_strerror(struct fid_eq *fid, int prov_errno,
			       const void *err_data, char *buf, size_t len)
{
	const char *text = vrc_cm_status_str(prov_errno);

	if (buf && len)
		snprintf(buf, len, "%s", text);
	return buf && len ? buf : text;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	struct vrc_eq *eq = container_of(fid, struct vrc_eq, fid.fid);

	switch (command) {
	case FI_GETWAIT:
		if (!arg)
			return -FI_EINVAL;
		if (eq->wait_obj == FI_WAIT_NONE)
			return -FI_ENODATA;
		*(int *)arg = eq->epoll_fd;
		return 0;
	case FI_GETWAITOBJ:
		if (!arg)
			return -FI_EINVAL;
		*(enum fi_wait_obj *)arg = eq->wait_set ? FI_WAIT_SET :
							  eq->wait_obj;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

int vrc_eq_trywait(struct vrc_eq *eq)
{
	int ret;

	if (eq->wait_obj == FI_WAIT_NONE)
		return -FI_EINVAL;
	lock_take(&eq->lock);
	vrc_eq_poll(eq, false);
	ret = vrc_eq_is_empty(eq) ? 0 : -FI_EAGAIN;
	lock_drop(&eq->lock);
	return ret;
}

static void wait_fini(struct vrc_eq *eq)
{
	if (eq->signal_fd >= 0)
		close(eq->signal_fd);
	if (eq->epoll_fd >= 0)
		close(eq->epoll_fd);
}

static int wait_init(struct vrc_eq *eq)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ret;

	eq->epoll_fd = -1;
	eq->signal_fd = -1;
	if (eq->wait_obj == FI_WAIT_NONE)
		return 0;
	eq->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (eq->epoll_fd >= 0)
		eq->signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (eq->signal_fd < 0 ||
	    epoll_ctl(eq->epoll_fd, EPOLL_CTL_ADD, eq->signal_fd, &event)) {
		ret = vrc_err(errno);
		vrc_warn(EQ, "fi_eq_open: wait object: %s\n",
			 fi_strerror(-ret));
		wait_fini(eq);
		return ret;
	}
	return 0;
}

static int eq_close(struct fid *fid)
{
	struct vrc_eq *eq = container_of(fid, struct vrc_eq, fid.fid);
	struct list *pos, *tmp;

	if (atomic_load(&eq->ref))
		return -FI_EBUSY;
	vrc_wait_leave(eq->wait_set, fid);
	vrc_eq_thread_stop(eq);
	lock_take(&eq->lock);
	vrc_eq_forget(eq, NULL);
	/* Requests of closed passive endpoints that nobody answered. */
	list_for_each_safe(pos, tmp, &eq->connreqs)
		vrc_connreq_free(list_entry(pos, struct vrc_connreq, node));
	lock_drop(&eq->lock);
	free(eq->last_error);
	for (unsigned int i = 0; i < ARRAY_SIZE(eq->chan); i++) {
		if (eq->chan[i].channel)
			eq->chan[i].ops->destroy_event_channel(
				eq->chan[i].channel);
	}
	wait_fini(eq);
	lock_fini(&eq->lock);
	atomic_fetch_sub(&eq->fabric->ref, 1);
	free(eq);
	return 0;
}

static const struct fi_ops eq_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = eq_close,
	.bind = vrc_nosys_bind,
	.control = eq_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq),
	.read = eq_read,
	.readerr = eq_readerr,
	.write = eq_write,
	.sread = eq_sread,
	.strerror = eq_strerror,
};

static int check_attr(const struct vrc_fabric *fabric,
		      const struct fi_eq_attr *attr)
{
	if (attr->flags & ~(FI_WRITE | FI_AFFINITY)) {
		vrc_warn(EQ, "fi_eq_open: unknown flags 0x%" PRIx64 "\n",
			 attr->flags);
		return -FI_EINVAL;
	}
	return vrc_wait_obj_check("fi_eq_open", fabric, attr->wait_obj,
				  attr->wait_set);
}

int vrc_eq_open(struct fid_fabric *fabric_fid, struct fi_eq_attr *attr,
		struct fid_eq **out, void *context)
{
	static const struct fi_eq_attr defaults;
	struct vrc_fabric *fabric = vrc_fabric(fabric_fid);
	struct vrc_eq *eq;
	int ret;

	ret = check_attr(fabric, attr ? attr : &defaults);
	if (ret)
		return ret;
	eq = calloc(1, sizeof(*eq));
	if (!eq)
		return -FI_ENOMEM;
	eq->wait_obj = attr ? attr->wait_obj : FI_WAIT_NONE;
	/* What a program gets that leaves the choice to us. */
	if (eq->wait_obj == FI_WAIT_UNSPEC || eq->wait_obj == FI_WAIT_SET)
		eq->wait_obj = FI_WAIT_FD;
	eq->writable = attr && attr->flags & FI_WRITE;
	ret = wait_init(eq);
	if (ret)
		goto err_free_eq;
	lock_init(&eq->lock);
	list_init(&eq->events);
	list_init(&eq->errors);
	list_init(&eq->connreqs);
	list_init(&eq->credit_eps);
	list_init(&eq->lingering);
	eq->cm_epoll_fd = -1;
	eq->fabric = fabric;
	eq->fid.fid.fclass = FI_CLASS_EQ;
	eq->fid.fid.context = context;
	eq->fid.fid.ops = VRC_OPS(&eq_fi_ops);
	eq->fid.ops = VRC_OPS(&eq_ops);
	if (attr && attr->wait_obj == FI_WAIT_SET) {
		ret = vrc_wait_join(attr->wait_set, &eq->fid.fid, eq->epoll_fd);
		if (ret)
			goto err_wait_fini;
		eq->wait_set = attr->wait_set;
	}
	atomic_fetch_add(&fabric->ref, 1);
	*out = &eq->fid;
	return 0;

err_wait_fini:
	wait_fini(eq);
	lock_fini(&eq->lock);
err_free_eq:
	free(eq);
	return ret;
}
