/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * FI_PROGRESS_AUTO for connections: one thread per event queue that sleeps on
 * its rdma_cm channels and handles what arrives, so that connecting goes on
 * while the application does something else. It starts with the first channel,
 * never spins, and touches no data path.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vrc.h"

static void *thread_main(void *arg)
{
	struct vrc_eq *eq = arg;
	struct epoll_event event;

	for (;;) {
		if (epoll_wait(eq->cm_epoll_fd, &event, 1, -1) < 0) {
			if (errno == EINTR)
				continue;
			vrc_warn(EQ, "eq: waiting for connection events: %s\n",
				 strerror(errno));
			return NULL;
		}
		if (event.data.fd == eq->stop_fd)
			return NULL;
		vrc_eq_progress(eq);
	}
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

	eq->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (eq->stop_fd < 0)
		return vrc_err(errno);
	eq->cm_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (eq->cm_epoll_fd < 0)
		goto err_close_stop;
	event.data.fd = eq->stop_fd;
	if (epoll_ctl(eq->cm_epoll_fd, EPOLL_CTL_ADD, eq->stop_fd, &event))
		goto err_close_epoll;
	err = start_thread(eq);
	if (!err)
		return 0;
	errno = err;

err_close_epoll:
	err = errno;
	close(eq->cm_epoll_fd);
	errno = err;
err_close_stop:
	err = errno;
	close(eq->stop_fd);
	eq->cm_epoll_fd = -1;
	vrc_warn(EQ, "eq: no thread for connection events: %s; they are "
		 "handled when the queue is read\n", strerror(err));
	return vrc_err(err);
}

void vrc_eq_thread_stop(struct vrc_eq *eq)
{
	uint64_t one = 1;

	if (eq->cm_epoll_fd < 0)
		return;
	/* An eventfd at 0 takes a 1. */
	if (write(eq->stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join(eq->thread, NULL);
	close(eq->cm_epoll_fd);
	close(eq->stop_fd);
	eq->cm_epoll_fd = -1;
}
