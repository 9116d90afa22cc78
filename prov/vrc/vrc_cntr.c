/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Counters: how many operations of an endpoint have been carried out, and how
 * many have failed.
 *
 * An endpoint that counts has all its work requests signalled. Each ring knows
 * up to which record it has counted, so that it is the same whether a completion
 * is seen because the application reads its queue, or because it asks a counter:
 * that takes what the device has, and keeps what is the application's to read.
 *
 * Several may wait for one counter, for different values. Who is about to sleep takes
 * the word that the counter has changed, which is there once for all who sleep. So he
 * says it again if it is another whom it lets go, and gives him the time to go.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cntr.h"
#include "vrc_compat.h"
#include "vrc_cq.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_nosys.h"
#include "vrc_util.h"
#include "vrc_wait.h"

enum {
	SPIN_US = 50, /* before a wait sleeps */
	NAP_US = 50,  /* where there is nothing to sleep on, or others go first */
	LOOK_MS = 100, /* what makes no event is seen within */
};

/* ---- counting ---- */

static void word_write(const struct vrc_cntr *cntr, int fd)
{
	uint64_t one = 1;

	/* One that is already full wakes just as well. */
	if (write(fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		vrc_warn(CNTR, "counter %p: cannot be signalled: %s\n",
			 (const void *)cntr, fi_strerror(errno));
}

static void wake(struct vrc_cntr *cntr)
{
	/* Between this look and the waiter's to the value: both seq_cst. Who polls
	 * the descriptor is told once: what the device had signalled for it may
	 * have been taken by others who wait for the same queue. */
	if (atomic_load(&cntr->waiters))
		word_write(cntr, cntr->wake_fd);
	if (atomic_load(&cntr->armed) && atomic_exchange(&cntr->armed, false))
		word_write(cntr, cntr->signal_fd);
}

static void add(struct vrc_cntr *cntr, bool failed)
{
	if (!cntr)
		return;
	atomic_fetch_add(failed ? &cntr->errors : &cntr->value, 1);
	wake(cntr);
}

static enum vrc_cntr_kind kind_of(const struct vrc_req *req, bool by_write)
{
	static const enum vrc_cntr_kind kinds[VRC_OP_CNT] = {
		[VRC_OP_SEND] = VRC_CNTR_SEND,
		[VRC_OP_RECV] = VRC_CNTR_RECV,
		[VRC_OP_SHARED_RECV] = VRC_CNTR_RECV,
		[VRC_OP_READ] = VRC_CNTR_READ,
		[VRC_OP_WRITE] = VRC_CNTR_WRITE,
		[VRC_OP_ATOMIC] = VRC_CNTR_WRITE,
		[VRC_OP_FETCH_ATOMIC] = VRC_CNTR_READ,
	};

	return by_write ? VRC_CNTR_REMOTE_WRITE : kinds[req->op];
}

/* The last part of an operation speaks for all. */
static bool counts(const struct vrc_req *req)
{
	return !(req->flags & (VRC_REQ_PART | VRC_REQ_CANCELLED));
}

void vrc_cntr_count(struct vrc_ring *ring, const struct ibv_wc *wc,
		    struct vrc_req *req, uint32_t next)
{
	bool failed = wc->status != IBV_WC_SUCCESS;
	bool by_write = !failed && req->op == VRC_OP_RECV &&
			wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
	struct vrc_req *r;

	if (ring->unordered) {
		if (counts(req) && !(req->flags & VRC_REQ_COUNTED))
			add(req->ep->cntr[kind_of(req, false)], failed);
		req->flags |= VRC_REQ_COUNTED;
		return;
	}
	for (; (int32_t)(next - ring->counted) > 0; ring->counted++) {
		r = &ring->req[ring->counted & ring->mask];
		if (counts(r))
			add(r->ep->cntr[kind_of(r, r == req && by_write)],
			    r == req && failed);
	}
}

void vrc_cntr_count_shared(struct vrc_ep *ep, const struct ibv_wc *wc,
			   struct vrc_req *req)
{
	bool failed = wc->status != IBV_WC_SUCCESS;
	bool by_write = !failed && wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;

	if (!(req->flags & VRC_REQ_COUNTED))
		add(ep->cntr[kind_of(req, by_write)], failed);
	req->flags |= VRC_REQ_COUNTED;
}

void vrc_cntr_cancel(struct vrc_ring *ring, struct vrc_req *req, uint32_t i)
{
	if (ring->unordered ? req->flags & VRC_REQ_COUNTED :
			      (int32_t)(ring->counted - i) > 0)
		return;
	if (counts(req))
		add(req->ep->cntr[kind_of(req, false)], true);
	if (!ring->unordered)
		ring->counted = i + 1;
}

/* Caller holds cntr->lock. */
static void progress(struct vrc_cntr *cntr)
{
	struct list *pos;

	list_for_each(pos, &cntr->cqs)
		vrc_cq_count(list_entry(pos, struct counted_cq, node)->cq);
}

static void progress_locked(struct vrc_cntr *cntr)
{
	lock_take(&cntr->lock);
	progress(cntr);
	lock_drop(&cntr->lock);
}

/* ---- the API ---- */

static uint64_t cntr_read(struct fid_cntr *fid)
{
	struct vrc_cntr *cntr = vrc_cntr(fid);

	progress_locked(cntr);
	return atomic_load(&cntr->value);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	struct vrc_cntr *cntr = vrc_cntr(fid);

	progress_locked(cntr);
	return atomic_load(&cntr->errors);
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	atomic_fetch_add(&vrc_cntr(fid)->value, value);
	wake(vrc_cntr(fid));
	return 0;
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	atomic_fetch_add(&vrc_cntr(fid)->errors, value);
	wake(vrc_cntr(fid));
	return 0;
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	atomic_store(&vrc_cntr(fid)->value, value);
	wake(vrc_cntr(fid));
	return 0;
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
	atomic_store(&vrc_cntr(fid)->errors, value);
	wake(vrc_cntr(fid));
	return 0;
}

static int word_drain(int fd)
{
	uint64_t cnt;

	return read(fd, &cnt, sizeof(cnt)) < 0 && errno != EAGAIN ?
		       vrc_err(errno) :
		       0;
}

/* So that what comes from now on makes the descriptors readable; the words have been
 * drained before this look at what they stood for. Caller holds cntr->lock. */
static int arm(struct vrc_cntr *cntr)
{
	struct list *pos;
	int ret = 0;

	list_for_each(pos, &cntr->cqs)
		if (!ret)
			ret = vrc_cq_arm(
				list_entry(pos, struct counted_cq, node)->cq);
	progress(cntr);
	return ret;
}

/* One who is in fi_cntr_wait. */
struct wait {
	struct list node; /* in cntr->waits, once he sleeps */
	uint64_t threshold;
	uint64_t errors; /* when it began */
	uint64_t deadline_us;
	bool forever;
};

/* 0, an error that ends the wait, or -FI_EAGAIN: but for the time. */
static int counted(struct vrc_cntr *cntr, const struct wait *wait)
{
	if (atomic_load(&cntr->value) >= wait->threshold)
		return 0;
	if (atomic_load(&cntr->errors) != wait->errors)
		return -FI_EAVAIL;
	return -FI_EAGAIN;
}

static int reached(struct vrc_cntr *cntr, const struct wait *wait)
{
	int ret = counted(cntr, wait);

	if (ret == -FI_EAGAIN && !wait->forever &&
	    vrc_now_us() >= wait->deadline_us)
		return -FI_ETIMEDOUT;
	return ret;
}

/* Caller holds cntr->lock. */
static bool others_go(struct vrc_cntr *cntr, const struct wait *me)
{
	const struct wait *wait;
	struct list *pos;

	list_for_each(pos, &cntr->waits) {
		wait = list_entry(pos, struct wait, node);
		if (wait != me && counted(cntr, wait) != -FI_EAGAIN)
			return true;
	}
	return false;
}

/* *may_sleep: whatever comes will make the descriptors readable. */
static int prepare(struct vrc_cntr *cntr, const struct wait *me, bool *may_sleep)
{
	bool others;
	int ret;

	lock_take(&cntr->lock);
	ret = word_drain(cntr->wake_fd);
	if (!ret)
		ret = arm(cntr);
	others = others_go(cntr, me);
	if (others)
		word_write(cntr, cntr->wake_fd);
	*may_sleep = cntr->can_sleep && !others;
	lock_drop(&cntr->lock);
	return ret;
}

/* 0 when it is over, -FI_EAGAIN when it may be, or an error. */
static int nap(struct vrc_cntr *cntr, const struct wait *wait)
{
	const struct timespec ts = { .tv_nsec = NAP_US * 1000 };
	struct pollfd pfds[] = {
		{ .fd = cntr->channels_fd, .events = POLLIN },
		{ .fd = cntr->wake_fd, .events = POLLIN },
	};
	bool may_sleep;
	uint64_t now;
	int ms = LOOK_MS;
	int ret;

	ret = prepare(cntr, wait, &may_sleep);
	if (!ret)
		ret = reached(cntr, wait);
	if (ret != -FI_EAGAIN)
		return ret;
	if (!may_sleep) {
		nanosleep(&ts, NULL);
		return ret;
	}
	now = vrc_now_us();
	if (!wait->forever && now < wait->deadline_us &&
	    wait->deadline_us - now < LOOK_MS * 1000)
		ms = (int)((wait->deadline_us - now + 999) / 1000);
	if (poll(pfds, ARRAY_SIZE(pfds), ms) < 0 && errno != EINTR)
		return vrc_err(errno);
	return ret;
}

static int sleep_until(struct vrc_cntr *cntr, struct wait *wait)
{
	int ret;

	lock_take(&cntr->lock);
	list_add_tail(&cntr->waits, &wait->node);
	lock_drop(&cntr->lock);
	/* Before the first look at the value: see wake(). */
	atomic_fetch_add(&cntr->waiters, 1);
	do
		ret = nap(cntr, wait);
	while (ret == -FI_EAGAIN);
	atomic_fetch_sub(&cntr->waiters, 1);
	lock_take(&cntr->lock);
	list_del(&wait->node);
	lock_drop(&cntr->lock);
	return ret;
}

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct vrc_cntr *cntr = vrc_cntr(fid);
	uint64_t spin_until = vrc_now_us() + SPIN_US;
	struct wait wait = {
		.threshold = threshold,
		.errors = atomic_load(&cntr->errors),
		.deadline_us = vrc_now_us() +
			       (uint64_t)(timeout > 0 ? timeout : 0) * 1000,
		.forever = timeout < 0,
	};
	int ret;

	do {
		progress_locked(cntr);
		ret = reached(cntr, &wait);
	} while (ret == -FI_EAGAIN && vrc_now_us() < spin_until);
	return ret == -FI_EAGAIN ? sleep_until(cntr, &wait) : ret;
}

int vrc_cntr_trywait(struct fid *fid)
{
	struct vrc_cntr *cntr = container_of(fid, struct vrc_cntr, fid.fid);
	uint64_t value, errors;
	bool news;
	int ret;

	if (!vrc_cntr_has_fd(cntr) || !cntr->can_sleep)
		return -FI_EINVAL;
	lock_take(&cntr->lock);
	ret = word_drain(cntr->signal_fd);
	atomic_store(&cntr->armed, true);
	if (!ret)
		ret = arm(cntr);
	value = atomic_load(&cntr->value);
	errors = atomic_load(&cntr->errors);
	news = value != cntr->value_seen || errors != cntr->errors_seen;
	cntr->value_seen = value;
	cntr->errors_seen = errors;
	lock_drop(&cntr->lock);
	if (ret)
		return ret;
	return news ? -FI_EAGAIN : 0;
}

atomic_int *vrc_cntr_refs(struct fid *fid, const struct vrc_domain *domain)
{
	struct vrc_cntr *cntr = container_of(fid, struct vrc_cntr, fid.fid);

	return cntr->domain == domain ? &cntr->ref : NULL;
}

static int cntr_control(struct fid *fid, int command, void *arg)
{
	struct vrc_cntr *cntr = container_of(fid, struct vrc_cntr, fid.fid);

	if (command != FI_GETWAIT && command != FI_GETWAITOBJ)
		return -FI_ENOSYS;
	if (!arg)
		return -FI_EINVAL;
	if (command == FI_GETWAITOBJ) {
		*(enum fi_wait_obj *)arg = cntr->wait_obj;
		return 0;
	}
	if (!vrc_cntr_has_fd(cntr))
		return -FI_ENODATA;
	*(int *)arg = cntr->epoll_fd;
	return 0;
}

/* ---- opening and closing ---- */

static void wait_close(struct vrc_cntr *cntr)
{
	const int fds[] = { cntr->epoll_fd, cntr->signal_fd, cntr->wake_fd,
			    cntr->channels_fd };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static int wait_open(struct vrc_cntr *cntr)
{
	struct epoll_event event = { .events = EPOLLIN };

	cntr->channels_fd = epoll_create1(EPOLL_CLOEXEC);
	cntr->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cntr->signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cntr->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (cntr->channels_fd < 0 || cntr->wake_fd < 0 ||
	    cntr->signal_fd < 0 || cntr->epoll_fd < 0 ||
	    epoll_ctl(cntr->epoll_fd, EPOLL_CTL_ADD, cntr->channels_fd,
		      &event) ||
	    epoll_ctl(cntr->epoll_fd, EPOLL_CTL_ADD, cntr->signal_fd, &event))
		return vrc_err(errno);
	return 0;
}

static int cntr_close(struct fid *fid)
{
	struct vrc_cntr *cntr = container_of(fid, struct vrc_cntr, fid.fid);

	if (atomic_load(&cntr->ref))
		return -FI_EBUSY;
	vrc_wait_leave(cntr->wait_set, fid);
	wait_close(cntr);
	lock_fini(&cntr->lock);
	atomic_fetch_sub(&cntr->domain->ref, 1);
	free(cntr);
	return 0;
}

static const struct fi_ops cntr_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = cntr_close,
	.bind = vrc_nosys_bind,
	.control = cntr_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct vrc_cntr_table cntr_ops = {
	.ops = {
		.size = sizeof(struct fi_ops_cntr),
		.read = cntr_read,
		.readerr = cntr_readerr,
		.add = cntr_add,
		.set = cntr_set,
		.wait = cntr_wait,
		.adderr = cntr_adderr,
		.seterr = cntr_seterr,
	},
	VRC_LATER,
};

static int attr_check(const struct fi_cntr_attr *attr)
{
	if (attr->events != FI_CNTR_EVENTS_COMP) {
		vrc_warn(CNTR, "fi_cntr_open: events %d not supported; "
			 "FI_CNTR_EVENTS_COMP is\n", (int)attr->events);
		return -FI_ENOSYS;
	}
	if (attr->flags) {
		vrc_warn(CNTR, "fi_cntr_open: flags 0x%" PRIx64 " not "
			 "supported\n", attr->flags);
		return -FI_EBADFLAGS;
	}
	return 0;
}

int vrc_cntr_open(struct fid_domain *domain_fid, struct fi_cntr_attr *attr,
		  struct fid_cntr **out, void *context)
{
	struct vrc_domain *domain = vrc_domain(domain_fid);
	struct vrc_cntr *cntr;
	int ret;

	ret = attr ? vrc_wait_obj_check("fi_cntr_open", domain->fabric,
					attr->wait_obj, attr->wait_set) : 0;
	if (!ret && attr)
		ret = attr_check(attr);
	if (ret)
		return ret;
	cntr = calloc(1, sizeof(*cntr));
	if (!cntr)
		return -FI_ENOMEM;
	cntr->domain = domain;
	cntr->wait_obj = attr ? attr->wait_obj : FI_WAIT_UNSPEC;
	cntr->can_sleep = true;
	lock_init(&cntr->lock);
	list_init(&cntr->waits);
	list_init(&cntr->cqs);
	cntr->fid.fid.fclass = FI_CLASS_CNTR;
	cntr->fid.fid.context = context;
	cntr->fid.fid.ops = VRC_OPS(&cntr_fi_ops);
	cntr->fid.ops = VRC_OPS(&cntr_ops);
	ret = wait_open(cntr);
	if (!ret && cntr->wait_obj == FI_WAIT_SET) {
		ret = vrc_wait_join(attr->wait_set, &cntr->fid.fid,
				    cntr->epoll_fd);
		cntr->wait_set = attr->wait_set;
	}
	if (ret) {
		wait_close(cntr);
		lock_fini(&cntr->lock);
		free(cntr);
		return ret;
	}
	atomic_fetch_add(&domain->ref, 1);
	*out = &cntr->fid;
	return 0;
}
