/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Waiting for a completion queue, and waking those who do.
 *
 * What makes the descriptor readable is taken by whoever is about to sleep: the
 * device's events, and the word that something is there which made none. Others may
 * sleep for what it stood for, or poll the descriptor themselves, or that of a counter.
 * So whoever has taken something, and then finds that he need not sleep, says so again;
 * and counters count what came.
 *
 * fi_cq_signal(3) ends the waits of all who are in fi_cq_sread(3), or, if nobody is, the
 * next one.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vrc.h"
#include "vrc_cq.h"
#include "vrc_domain.h"
#include "vrc_log.h"
#include "vrc_util.h"
#include "word_lock.h"

void vrc_cq_wait_close(struct vrc_cq *cq)
{
	if (cq->epoll_fd >= 0)
		close(cq->epoll_fd);
	if (cq->signal_fd >= 0)
		close(cq->signal_fd);
	if (cq->channel)
		cq->domain->ops->destroy_comp_channel(cq->channel);
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? vrc_err(errno) :
								0;
}

int vrc_cq_wait_open(struct vrc_cq *cq)
{
	int flags;
	int ret;

	cq->channel = cq->domain->ops->create_comp_channel(cq->domain->verbs);
	if (!cq->channel)
		return vrc_err(errno);
	flags = fcntl(cq->channel->fd, F_GETFL);
	if (flags < 0 ||
	    fcntl(cq->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return vrc_err(errno);
	cq->signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cq->signal_fd < 0)
		return vrc_err(errno);
	cq->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (cq->epoll_fd < 0)
		return vrc_err(errno);
	ret = watch(cq->epoll_fd, cq->channel->fd);
	return ret ? ret : watch(cq->epoll_fd, cq->signal_fd);
}

void vrc_cq_wake(struct vrc_cq *cq)
{
	uint64_t one = 1;

	/* A counter that is already full wakes just as well. */
	if (cq->signal_fd >= 0 &&
	    write(cq->signal_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		vrc_warn(CQ, "cq %p: cannot be signalled: %s\n", (void *)cq,
			 fi_strerror(errno));
}

/* ---- fi_cq_signal ---- */

void vrc_cq_interrupt(struct vrc_cq *cq)
{
	word_lock_take(&cq->sleep_lock);
	cq->signal_gen++;
	cq->signal_due = cq->sleepers;
	cq->signal_kept = !cq->sleepers;
	word_lock_drop(&cq->sleep_lock);
	vrc_cq_wake(cq);
}

int vrc_cq_signal(struct fid_cq *fid)
{
	struct vrc_cq *cq = vrc_cq(fid);

	if (!cq->channel)
		return -FI_ENOSYS;
	vrc_cq_interrupt(cq);
	return 0;
}

/* One who is in fi_cq_sread. */
struct sleeper {
	struct vrc_cq *cq;
	uint32_t gen; /* of signals, when he came */
};

static struct sleeper sleeper_enter(struct vrc_cq *cq)
{
	struct sleeper me = { .cq = cq };

	word_lock_take(&cq->sleep_lock);
	cq->sleepers++;
	me.gen = cq->signal_gen;
	word_lock_drop(&cq->sleep_lock);
	return me;
}

static void sleeper_leave(const struct sleeper *me)
{
	struct vrc_cq *cq = me->cq;

	word_lock_take(&cq->sleep_lock);
	cq->sleepers--;
	if (me->gen != cq->signal_gen && cq->signal_due)
		cq->signal_due--;
	word_lock_drop(&cq->sleep_lock);
}

/* me: NULL for one who does not sleep here. */
static bool signalled(struct vrc_cq *cq, const struct sleeper *me)
{
	bool is;

	word_lock_take(&cq->sleep_lock);
	is = cq->signal_kept || (me && me->gen != cq->signal_gen);
	cq->signal_kept = false;
	word_lock_drop(&cq->sleep_lock);
	return is;
}

/* ---- going to sleep ---- */

/* Takes what the device has signalled. Caller holds the lock. */
static bool channel_drain(struct vrc_cq *cq)
{
	struct ibv_cq *ev_cq;
	void *ev_context;
	bool some = false;

	while (!cq->domain->ops->get_cq_event(cq->channel, &ev_cq,
					      &ev_context)) {
		cq->unacked_events++;
		some = true;
	}
	/* Acknowledging takes a mutex in libibverbs: by the hundred. */
	if (cq->unacked_events >= 128) {
		cq->domain->ops->ack_cq_events(cq->cq, cq->unacked_events);
		cq->unacked_events = 0;
	}
	return some;
}

/* The same for vrc_cq_wake(); not as long as it has to wake others. */
static bool word_drain(struct vrc_cq *cq)
{
	uint64_t cnt;
	bool some;

	word_lock_take(&cq->sleep_lock);
	some = !cq->signal_due &&
	       read(cq->signal_fd, &cnt, sizeof(cnt)) == sizeof(cnt);
	word_lock_drop(&cq->sleep_lock);
	return some;
}

/* Takes what would keep the descriptor readable, and arms. Caller holds the lock. */
static int drain_and_arm(struct vrc_cq *cq, bool *some)
{
	*some = channel_drain(cq);
	*some |= word_drain(cq);
	return ibv_req_notify_cq(cq->cq, 0) ? -FI_EIO : 0;
}

static int prepare(struct vrc_cq *cq, const struct sleeper *me, bool *signal)
{
	bool some;
	int ret;

	*signal = signalled(cq, me);
	if (*signal || vrc_cq_has_entry(cq))
		return -FI_EAGAIN;
	ret = drain_and_arm(cq, &some);
	if (ret)
		return ret;
	if (some && cq->counters)
		vrc_cq_count_locked(cq);
	/* What came before the queue was armed makes no event. */
	if (!vrc_cq_has_entry(cq))
		return 0;
	if (some)
		vrc_cq_wake(cq);
	return -FI_EAGAIN;
}

/* 0: armed and empty, so the descriptor will become readable. -FI_EAGAIN: there is an
 * entry, or a signal, which is none but ends a wait. */
static int prepare_wait(struct vrc_cq *cq, const struct sleeper *me,
			bool *signal)
{
	int ret;

	word_lock_take(&cq->lock);
	ret = prepare(cq, me, signal);
	word_lock_drop(&cq->lock);
	return ret;
}

int vrc_cq_arm(struct vrc_cq *cq)
{
	int ret;

	if (!cq->channel)
		return 0;
	word_lock_take(&cq->lock);
	/* Not vrc_cq_wake()'s word, which is for others; whom vrc_cq_count() tells
	 * what there is for them. */
	channel_drain(cq);
	ret = ibv_req_notify_cq(cq->cq, 0) ? -FI_EIO : 0;
	word_lock_drop(&cq->lock);
	return ret;
}

int vrc_cq_trywait(struct vrc_cq *cq)
{
	bool signal;

	return cq->channel ? prepare_wait(cq, NULL, &signal) : -FI_EINVAL;
}

/* Sleeps until the fd is readable; 0 if it is, -FI_EAGAIN if time is up. */
static int wait_fd(struct vrc_cq *cq, uint64_t deadline_us, bool forever)
{
	struct epoll_event event;
	uint64_t now = vrc_now_us();
	int ms = -1;
	int cnt;

	if (!forever && now >= deadline_us)
		return -FI_EAGAIN;
	if (!forever)
		ms = (int)((deadline_us - now + 999) / 1000);
	/* An endpoint that does not flush makes no event: look again when its
	 * time is up. */
	if (atomic_load(&cq->due_cnt) && (ms < 0 || ms > 100))
		ms = 100;
	cnt = epoll_wait(cq->epoll_fd, &event, 1, ms);
	if (cnt < 0)
		return errno == EINTR ? -FI_EINTR : vrc_err(errno);
	return 0;
}

static ssize_t sread(const struct sleeper *me, void *buf, size_t count,
		     int timeout)
{
	struct vrc_cq *cq = me->cq;
	uint64_t deadline_us = vrc_now_us() +
			       (uint64_t)(timeout > 0 ? timeout : 0) * 1000;
	bool signal = false;
	ssize_t ret;

	for (;;) {
		ret = cq->fid.ops->read(&cq->fid, buf, count);
		if (ret != -FI_EAGAIN || signal)
			return ret;
		ret = prepare_wait(cq, me, &signal);
		if (ret == -FI_EAGAIN)
			continue;
		if (ret)
			return ret;
		ret = wait_fd(cq, deadline_us, timeout < 0);
		if (ret)
			return ret;
	}
}

ssize_t vrc_cq_sread(struct fid_cq *fid, void *buf, size_t count,
		     const void *cond, int timeout)
{
	struct vrc_cq *cq = vrc_cq(fid);
	struct sleeper me;
	ssize_t ret;

	if (!cq->channel) {
		vrc_warn(CQ, "cq %p: opened with FI_WAIT_NONE, so it cannot be "
			 "waited on\n", (void *)cq);
		return -FI_ENOSYS;
	}
	/* Who finds something at once does not sleep, and takes no lock for it. */
	ret = cq->fid.ops->read(fid, buf, count);
	if (ret != -FI_EAGAIN)
		return ret;
	me = sleeper_enter(cq);
	ret = sread(&me, buf, count, timeout);
	sleeper_leave(&me);
	return ret;
}

ssize_t vrc_cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count,
			 fi_addr_t *src_addr, const void *cond, int timeout)
{
	ssize_t done = vrc_cq_sread(fid, buf, count, cond, timeout);

	for (ssize_t i = 0; src_addr && i < done; i++)
		src_addr[i] = FI_ADDR_NOTAVAIL;
	return done;
}
