/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FI_PROGRESS_AUTO for connections: one thread per event queue that sleeps on
 * its rdma_cm channels and handles what arrives, so that connecting goes on
 * while the application does something else. It starts with the first channel,
 * never spins, and touches no data path. Credits that are to be told or waited
 * for (vrc_credit.c), and connections that have just ended (vrc_linger.c), make
 * it tick.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lock.h"
#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_credit.h"
#include "vrc_eq.h"
#include "vrc_log.h"
#include "vrc_util.h"

/* Between two ticks. */
enum { TICK_MS = 1 };

static void tick(struct vrc_eq *eq)
{
	/* First, as it may become due again. */
	atomic_store(&eq->tick_due, false);
	lock_take(&eq->lock);
	vrc_linger_tick(eq);
	vrc_credit_tick(eq);
	lock_drop(&eq->lock);
}

static void *thread_main(void *arg)
{
	struct vrc_eq *eq = arg;
	struct epoll_event event;
	uint64_t last_tick_ms = 0;
	uint64_t woken;
	int cnt;

	while (!atomic_load(&eq->stop)) {
		cnt = epoll_wait(eq->cm_epoll_fd, &event, 1,
				 atomic_load(&eq->tick_due) ? TICK_MS : -1);
		if (cnt < 0 && errno != EINTR) {
			vrc_warn(EQ, "eq: waiting for connection events: %s\n",
				 strerror(errno));
			return NULL;
		}
		if (cnt > 0 && event.data.fd != eq->wake_fd)
			vrc_eq_progress(eq);
		else if (cnt > 0 &&
			 read(eq->wake_fd, &woken, sizeof(woken)) < 0)
			vrc_dbg(EQ, "eq: eventfd: %s\n", strerror(errno));
		if (!atomic_load(&eq->tick_due) ||
		    vrc_now_ms() - last_tick_ms < TICK_MS)
			continue;
		tick(eq);
		last_tick_ms = vrc_now_ms();
	}
	return NULL;
}

static void wake(struct vrc_eq *eq)
{
	uint64_t one = 1;

	/* Only a full counter refuses, and that one wakes as well. */
	if (write(eq->wake_fd, &one, sizeof(one)) < 0)
		vrc_dbg(EQ, "eq: eventfd: %s\n", strerror(errno));
}

void vrc_eq_tick(struct vrc_eq *eq)
{
	if (!atomic_exchange(&eq->tick_due, true) && eq->cm_epoll_fd >= 0)
		wake(eq);
}

/* The application's signals are the application's. */
static int start_thread(struct vrc_eq *eq)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&eq->thread, NULL, thread_main, eq);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_setname_np(eq->thread, "vrc-cm");
	return err;
}

int vrc_eq_thread_start(struct vrc_eq *eq)
{
	struct epoll_event event = { .events = EPOLLIN };
	int err;

	eq->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (eq->wake_fd < 0)
		return vrc_err(errno);
	eq->cm_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (eq->cm_epoll_fd < 0)
		goto err_close_wake;
	event.data.fd = eq->wake_fd;
	if (epoll_ctl(eq->cm_epoll_fd, EPOLL_CTL_ADD, eq->wake_fd, &event))
		goto err_close_epoll;
	err = start_thread(eq);
	if (!err)
		return 0;
	errno = err;

err_close_epoll:
	err = errno;
	close(eq->cm_epoll_fd);
	errno = err;
err_close_wake:
	err = errno;
	close(eq->wake_fd);
	eq->cm_epoll_fd = -1;
	vrc_warn(EQ, "eq: no thread for connection events: %s; they are "
		 "handled when the queue is read\n", strerror(err));
	return vrc_err(err);
}

void vrc_eq_thread_stop(struct vrc_eq *eq)
{
	if (eq->cm_epoll_fd < 0)
		return;
	atomic_store(&eq->stop, true);
	wake(eq);
	pthread_join(eq->thread, NULL);
	close(eq->cm_epoll_fd);
	close(eq->wake_fd);
	eq->cm_epoll_fd = -1;
}
