/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Asynchronous events of a context. async_fd is a counting eventfd that holds
 * one per queued event; both change under ctx->lock only, so that a reader who
 * finds the list filled can read without blocking.
 */
#include "sv_int.h"
#include "sv_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct sv_async {
	struct list node; /* ctx->lock */
	struct ibv_async_event event;
};

void sv_async_raise(struct sv_ctx *ctx, struct ibv_async_event *event)
{
	struct sv_async *async = calloc(1, sizeof(*async));

	if (!async) {
		sv_log("no memory for event %d, dropped", event->event_type);
		return;
	}
	async->event = *event;
	lock_take(&ctx->lock);
	list_add_tail(&ctx->async_list, &async->node);
	eventfd_write(ctx->v.context.async_fd, 1);
	lock_drop(&ctx->lock);
}

void sv_async_raise_qp(struct sv_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event event = {
		.element.qp = &qp->qp,
		.event_type = type,
	};

	sv_async_raise(qp->ctx, &event);
}

static bool is_qp_event(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return true;
	default:
		return false;
	}
}

static bool is_srq_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

/* Caller holds ctx->lock. */
static struct sv_async *async_pop(struct sv_ctx *ctx)
{
	struct list *node = list_pop(&ctx->async_list);
	eventfd_t one;

	if (!node)
		return NULL;
	eventfd_read(ctx->v.context.async_fd, &one);
	return list_entry(node, struct sv_async, node);
}

/* Waits for fd to be readable; -1 with errno EAGAIN if it is non-blocking. */
int sv_event_wait(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -1;
	if (flags & O_NONBLOCK) {
		errno = EAGAIN;
		return -1;
	}
	return poll(&pfd, 1, -1) < 0 ? -1 : 0;
}

int sv_get_async_event(struct ibv_context *context,
		       struct ibv_async_event *event)
{
	struct sv_ctx *ctx = sv_ctx(context);
	struct sv_async *async;
	int err;

	err = sv_ctx_dead(context) ? ENODEV :
		sv_fault_call(SV_FAULT_get_async_event, ctx->dev);
	if (err) {
		errno = err;
		return -1;
	}
	for (;;) {
		lock_take(&ctx->lock);
		async = async_pop(ctx);
		if (async && is_qp_event(async->event.event_type))
			sv_qp(async->event.element.qp)->async_got++;
		else if (async && async->event.event_type == IBV_EVENT_CQ_ERR)
			sv_cq(async->event.element.cq)->async_got++;
		else if (async && is_srq_event(async->event.event_type))
			sv_srq_event_got(async->event.element.srq);
		lock_drop(&ctx->lock);
		if (async)
			break;
		if (sv_event_wait(context->async_fd))
			return -1;
	}
	*event = async->event;
	free(async);
	return 0;
}

void sv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_cq *cq;

	if (is_qp_event(event->event_type)) {
		qp = event->element.qp;
		pthread_mutex_lock(&qp->mutex);
		qp->events_completed++;
		pthread_cond_broadcast(&qp->cond);
		pthread_mutex_unlock(&qp->mutex);
	} else if (event->event_type == IBV_EVENT_CQ_ERR) {
		cq = event->element.cq;
		pthread_mutex_lock(&cq->mutex);
		cq->async_events_completed++;
		pthread_cond_broadcast(&cq->cond);
		pthread_mutex_unlock(&cq->mutex);
	} else if (is_srq_event(event->event_type)) {
		srq = event->element.srq;
		pthread_mutex_lock(&srq->mutex);
		srq->events_completed++;
		pthread_cond_broadcast(&srq->cond);
		pthread_mutex_unlock(&srq->mutex);
	}
}

/* Forgets the events that name element and were not fetched. */
void sv_async_drop(struct sv_ctx *ctx, const void *element)
{
	struct list *pos, *tmp;
	struct sv_async *async;
	eventfd_t one;

	lock_take(&ctx->lock);
	list_for_each_safe(pos, tmp, &ctx->async_list) {
		async = list_entry(pos, struct sv_async, node);
		if (element && async->event.element.qp != element)
			continue;
		list_del(pos);
		eventfd_read(ctx->v.context.async_fd, &one);
		free(async);
	}
	lock_drop(&ctx->lock);
}

void sv_async_drop_all(struct sv_ctx *ctx)
{
	sv_async_drop(ctx, NULL);
}

/*
 * Waits, as ibv_destroy_qp(3) and ibv_destroy_cq(3) promise, until the
 * application has acknowledged what it fetched; gives up after SV_ACK_WAIT_S.
 */
int sv_wait_acks(pthread_mutex_t *mutex, pthread_cond_t *cond,
		 const uint32_t *done, uint32_t want)
{
	struct timespec until;
	int err = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += SV_ACK_WAIT_S;
	pthread_mutex_lock(mutex);
	while (*done != want && !err)
		err = pthread_cond_timedwait(cond, mutex, &until);
	pthread_mutex_unlock(mutex);
	return err ? EBUSY : 0;
}
