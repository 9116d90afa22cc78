/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Protection domains, completion channels, and the life of completion queues.
 * What a CQ does while it lives is in sv_cq.c.
 */
#include "sv_int.h"
#include "sv_fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- protection domains ---- */

struct ibv_pd *sv_alloc_pd(struct ibv_context *context)
{
	static atomic_uint next_id = 1;
	struct sv_pd *pd;
	int err;

	err = sv_ctx_dead(context) ? ENODEV :
		sv_fault_call(SV_FAULT_alloc_pd, sv_ctx(context)->dev);
	if (err) {
		errno = err;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd || !sv_dev_take(sv_ctx(context)->dev, SV_RES_PD)) {
		free(pd);
		errno = ENOMEM;
		return NULL;
	}
	pd->id = atomic_fetch_add(&next_id, 1) & ~SV_OWNER_QP;
	pd->keys = sv_mr_table();
	pd->pd.context = context;
	pd->pd.handle = pd->id;
	atomic_fetch_add(&sv_ctx(context)->users, 1);
	return &pd->pd;
}

int sv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct sv_pd *pd = sv_pd(ibpd);

	if (sv_ctx_dead(ibpd->context))
		return 0;
	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->base) {
		sv_parent_domain_fini(pd);
		free(pd);
		return 0;
	}
	atomic_fetch_sub(&sv_ctx(ibpd->context)->users, 1);
	sv_dev_give(sv_ctx(ibpd->context)->dev, SV_RES_PD);
	free(pd);
	return 0;
}

/* ---- completion channels ---- */

struct ibv_comp_channel *sv_create_comp_channel(struct ibv_context *context)
{
	struct sv_chan *chan;
	int err;

	err = sv_ctx_dead(context) ? ENODEV :
		sv_fault_call(SV_FAULT_create_comp_channel,
			      sv_ctx(context)->dev);
	if (err) {
		errno = err;
		return NULL;
	}
	chan = calloc(1, sizeof(*chan));
	if (!chan) {
		errno = ENOMEM;
		return NULL;
	}
	chan->chan.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (chan->chan.fd < 0) {
		free(chan);
		return NULL;
	}
	chan->chan.context = context;
	lock_init(&chan->lock);
	list_init(&chan->events);
	atomic_fetch_add(&sv_ctx(context)->users, 1);
	return &chan->chan;
}

int sv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct sv_chan *chan = sv_chan(channel);

	if (sv_ctx_dead(channel->context))
		return 0;
	if (atomic_load(&chan->users))
		return EBUSY;
	atomic_fetch_sub(&sv_ctx(channel->context)->users, 1);
	close(channel->fd);
	lock_fini(&chan->lock);
	free(chan);
	return 0;
}

/* Caller holds cq->lock. The event is counted even if nobody ever reads it. */
void sv_chan_raise(struct sv_cq *cq)
{
	struct sv_chan *chan = cq->chan;

	if (!chan)
		return;
	lock_take(&chan->lock);
	if (cq->chan_pending++ == 0)
		list_add_tail(&chan->events, &cq->chan_node);
	eventfd_write(chan->chan.fd, 1);
	lock_drop(&chan->lock);
}

static struct sv_cq *chan_pop(struct sv_chan *chan)
{
	struct sv_cq *cq = NULL;
	struct list *node;
	eventfd_t one;

	lock_take(&chan->lock);
	node = list_pop(&chan->events);
	if (node) {
		cq = list_entry(node, struct sv_cq, chan_node);
		eventfd_read(chan->chan.fd, &one);
		cq->chan_got++;
		/* Behind the others: one busy CQ must not hide the rest. */
		if (--cq->chan_pending)
			list_add_tail(&chan->events, node);
	}
	lock_drop(&chan->lock);
	return cq;
}

int sv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ibcq,
		    void **cq_context)
{
	struct sv_chan *chan = sv_chan(channel);
	struct sv_cq *cq;
	int err;

	err = sv_ctx_dead(channel->context) ? ENODEV :
		sv_fault_call(SV_FAULT_get_cq_event,
			      sv_ctx(channel->context)->dev);
	if (err) {
		errno = err;
		return -1;
	}
	for (;;) {
		cq = chan_pop(chan);
		if (cq)
			break;
		if (sv_event_wait(channel->fd))
			return -1;
	}
	*ibcq = &cq->cq;
	*cq_context = cq->cq.cq_context;
	return 0;
}

void sv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (!nevents)
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_broadcast(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* Takes back what was raised and not fetched; returns what was fetched. */
static uint32_t chan_detach(struct sv_cq *cq)
{
	struct sv_chan *chan = cq->chan;
	eventfd_t one;
	uint32_t got;

	if (!chan)
		return 0;
	lock_take(&chan->lock);
	while (cq->chan_pending) {
		eventfd_read(chan->chan.fd, &one);
		cq->chan_pending--;
	}
	list_del(&cq->chan_node);
	got = cq->chan_got;
	lock_drop(&chan->lock);
	return got;
}

/* ---- completion queues ---- */

/* Where completions go: the ring itself, and their times if someone asked. */
struct rings {
	struct sv_mem mem;
	struct sv_cq_time *times;
};

/* Positive errno. */
static int rings_get(struct rings *rings, struct sv_pd *pd, size_t cnt,
		     bool times)
{
	int err = sv_mem_get(&rings->mem, pd, cnt * sizeof(struct sv_cqe));

	rings->times = NULL;
	if (err || !times)
		return err;
	rings->times = calloc(cnt, sizeof(struct sv_cq_time));
	if (rings->times)
		return 0;
	sv_mem_put(&rings->mem);
	return ENOMEM;
}

static void rings_put(struct rings *rings)
{
	sv_mem_put(&rings->mem);
	free(rings->times);
}

/* Caller holds cq->lock, or nobody else knows the CQ yet. */
static void rings_set(struct sv_cq *cq, const struct rings *rings, size_t cnt)
{
	cq->mem = rings->mem;
	cq->ring = rings->mem.ptr;
	cq->times = rings->times;
	cq->mask = cnt - 1;
	cq->cq.cqe = (int)min_size(cnt, cq->ctx->dev->lim.cqe);
}

static void cq_init(struct sv_cq *cq, struct ibv_context *context,
		    struct ibv_comp_channel *channel)
{
	cq->ctx = sv_ctx(context);
	cq->chan = channel ? sv_chan(channel) : NULL;
	cq->cq.context = context;
	cq->cq.channel = channel;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	sv_lock_init(&cq->lock);
	sv_lock_init(&cq->poll_lock);
	list_init(&cq->chan_node);
	list_init(&cq->lease_node);
	atomic_fetch_add(&cq->ctx->users, 1);
	if (cq->chan)
		atomic_fetch_add(&cq->chan->users, 1);
}

/* Positive errno. */
static int opts_check(struct ibv_context *context,
		      const struct sv_cq_opts *opts)
{
	const uint32_t max = sv_ctx(context)->dev->lim.cqe;

	if (sv_ctx_dead(context))
		return ENODEV;
	if (opts->cqe >= 1 && opts->cqe <= max &&
	    opts->comp_vector < (uint32_t)context->num_comp_vectors &&
	    (!opts->channel || opts->channel->context == context))
		return 0;
	sv_log("CQ of %u entries, vector %u: 1 to %u, and %d vectors",
	       opts->cqe, opts->comp_vector, max, context->num_comp_vectors);
	return EINVAL;
}

struct sv_cq *sv_cq_make(struct ibv_context *context,
			 const struct sv_cq_opts *opts)
{
	struct rings rings;
	struct sv_cq *cq;
	size_t cnt;
	int err;

	err = opts_check(context, opts);
	if (!err)
		err = sv_fault_call(SV_FAULT_create_cq, sv_ctx(context)->dev);
	if (err)
		goto err_errno;
	err = ENOMEM;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		goto err_errno;
	if (!sv_dev_take(sv_ctx(context)->dev, SV_RES_CQ))
		goto err_free_cq;
	cnt = pow2_at_least(opts->cqe);
	err = rings_get(&rings, opts->pd, cnt, opts->times);
	if (err)
		goto err_give;
	cq_init(cq, context, opts->channel);
	rings_set(cq, &rings, cnt);
	cq->pd = opts->pd;
	if (cq->pd)
		atomic_fetch_add(&cq->pd->users, 1);
	return cq;

err_give:
	sv_dev_give(sv_ctx(context)->dev, SV_RES_CQ);
err_free_cq:
	free(cq);
err_errno:
	errno = err;
	return NULL;
}

struct ibv_cq *sv_create_cq(struct ibv_context *context, int cqe,
			    void *cq_context, struct ibv_comp_channel *channel,
			    int comp_vector)
{
	const struct sv_cq_opts opts = {
		.cqe = (uint32_t)cqe,
		.comp_vector = (uint32_t)comp_vector,
		.channel = channel,
	};
	struct sv_cq *cq = sv_cq_make(context, &opts);

	if (!cq)
		return NULL;
	cq->cq.cq_context = cq_context;
	return &cq->cq;
}

int sv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct sv_cq *cq = sv_cq(ibcq);
	struct sv_cqe *ring;
	struct rings rings, old;
	uint32_t i, cons, used;
	size_t cnt;
	int err;

	if (sv_ctx_dead(ibcq->context))
		return ENODEV;
	err = sv_fault_call(SV_FAULT_resize_cq, cq->ctx->dev);
	if (err)
		return err;
	if (cqe < 1 || (uint32_t)cqe > cq->ctx->dev->lim.cqe)
		return EINVAL;
	cnt = pow2_at_least(cqe);
	err = rings_get(&rings, cq->pd, cnt, cq->times);
	if (err)
		return err;
	ring = rings.mem.ptr;
	sv_lock_take(&cq->lock);
	cons = atomic_load(&cq->cons);
	used = atomic_load(&cq->prod) - cons;
	if (used > cnt) {
		sv_lock_drop(&cq->lock);
		rings_put(&rings);
		return EINVAL;
	}
	for (i = cons; i != cons + used; i++) {
		ring[i & (cnt - 1)] = cq->ring[i & cq->mask];
		if (rings.times)
			rings.times[i & (cnt - 1)] = cq->times[i & cq->mask];
	}
	old = (struct rings){ .mem = cq->mem, .times = cq->times };
	rings_set(cq, &rings, cnt);
	sv_lock_drop(&cq->lock);
	rings_put(&old);
	return 0;
}

int sv_destroy_cq(struct ibv_cq *ibcq)
{
	struct sv_cq *cq = sv_cq(ibcq);
	uint32_t comp_got, async_got;
	int err;

	if (sv_ctx_dead(ibcq->context))
		return 0;
	err = sv_fault_call(SV_FAULT_destroy_cq, cq->ctx->dev);
	if (err)
		return err;
	if (atomic_load(&cq->users))
		return EBUSY;
	sv_lease_drop(cq);
	sv_fault_drop_cq(cq);
	comp_got = chan_detach(cq);
	sv_async_drop(cq->ctx, cq);
	lock_take(&cq->ctx->lock);
	async_got = cq->async_got;
	lock_drop(&cq->ctx->lock);
	err = sv_wait_acks(&ibcq->mutex, &ibcq->cond,
			   &ibcq->comp_events_completed, comp_got);
	if (!err)
		err = sv_wait_acks(&ibcq->mutex, &ibcq->cond,
				   &ibcq->async_events_completed, async_got);
	if (err)
		return err;

	if (cq->chan)
		atomic_fetch_sub(&cq->chan->users, 1);
	atomic_fetch_sub(&cq->ctx->users, 1);
	sv_dev_give(cq->ctx->dev, SV_RES_CQ);
	pthread_mutex_destroy(&ibcq->mutex);
	pthread_cond_destroy(&ibcq->cond);
	free(cq->links);
	sv_mem_put(&cq->mem);
	free(cq->times);
	if (cq->pd)
		atomic_fetch_sub(&cq->pd->users, 1);
	free(cq->cursor);
	free(cq);
	return 0;
}
