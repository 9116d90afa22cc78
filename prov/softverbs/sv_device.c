/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The devices: their list, their contexts, and what they have given away.
 */
#include "sv_int.h"
#include "sv_fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* list_lock guards the making of the list; constant once made. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sv_dev *the_devs[SV_MAX_DEV];
static unsigned int dev_cnt;
static atomic_bool made;

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- list ---- */

/* Caller holds list_lock. */
static void list_make(void)
{
	const char *look = sv_env("SOFTVERBS_PERSONA");
	const char *text = sv_env("SOFTVERBS_DEVICES");
	unsigned int i;

	sv_cm_check_env();
	sv_alive_check_env();
	if (look && !sv_persona_find(look)) {
		sv_err("SOFTVERBS_PERSONA=%s: not one of %s", look,
		       sv_persona_names());
		return;
	}
	dev_cnt = sv_devspec_parse(text ? text : "softverbs0", look, the_devs,
				   SV_MAX_DEV);
	if (!dev_cnt && text)
		sv_err("SOFTVERBS_DEVICES=%s: no device is left", text);
	for (i = 0; i < dev_cnt; i++) {
		the_devs[i]->index = i;
		/* Of the file in /dev, which the name need not be like. What
		 * looks there is answered by sv_preload.c. */
		snprintf(the_devs[i]->device.dev_name,
			 sizeof(the_devs[i]->device.dev_name), "softverbs%u",
			 i);
	}
}

unsigned int sv_dev_list(struct sv_dev ***devs)
{
	/* Pairs with the release below. */
	if (!atomic_load_explicit(&made, memory_order_acquire)) {
		pthread_mutex_lock(&list_lock);
		if (!atomic_load_explicit(&made, memory_order_relaxed))
			list_make();
		atomic_store_explicit(&made, true, memory_order_release);
		pthread_mutex_unlock(&list_lock);
	}
	*devs = the_devs;
	return dev_cnt;
}

struct sv_dev *sv_dev_by_name(const char *name)
{
	struct sv_dev **devs;
	unsigned int i, cnt = sv_dev_list(&devs);

	for (i = 0; i < cnt; i++)
		if (!strcmp(devs[i]->device.name, name))
			return devs[i];
	return NULL;
}

struct ibv_device **sv_get_device_list(int *num_devices)
{
	struct ibv_device **list;
	struct sv_dev **devs;
	unsigned int i, cnt = sv_dev_list(&devs);

	list = calloc(cnt + 1, sizeof(*list));
	if (num_devices)
		*num_devices = list ? (int)cnt : 0;
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	sv_dev_refresh();
	for (i = 0; i < cnt; i++)
		list[i] = &devs[i]->device;
	return list;
}

void sv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *sv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 sv_get_device_guid(struct ibv_device *device)
{
	struct sv_dev *dev = sv_dev(device);
	__be64 guid;

	lock_take(&dev->lock);
	guid = dev->guid;
	lock_drop(&dev->lock);
	return guid;
}

/* ---- what it has given away ---- */

static int limit_of(const struct sv_dev *dev, enum sv_res res)
{
	switch (res) {
	case SV_RES_PD:
		return (int)dev->lim.pd;
	case SV_RES_MR:
		return (int)dev->lim.mr;
	case SV_RES_CQ:
		return (int)dev->lim.cq;
	case SV_RES_SRQ:
		return (int)dev->lim.srq;
	default:
		return (int)dev->lim.qp;
	}
}

bool sv_dev_take(struct sv_dev *dev, enum sv_res res)
{
	if (atomic_fetch_add(&dev->used[res], 1) < limit_of(dev, res))
		return true;
	atomic_fetch_sub(&dev->used[res], 1);
	return false;
}

void sv_dev_give(struct sv_dev *dev, enum sv_res res)
{
	atomic_fetch_sub(&dev->used[res], 1);
}

/* ---- contexts ---- */

struct ibv_context *sv_open_device(struct ibv_device *device)
{
	struct sv_ctx *ctx = calloc(1, sizeof(*ctx));
	int err;

	if (!ctx)
		goto err_errno;
	err = sv_fault_call(SV_FAULT_open_device, sv_dev(device));
	if (err) {
		errno = err;
		goto err_free_ctx;
	}
	ctx->dev = sv_dev(device);
	ctx->v.context.device = device;
	ctx->v.context.num_comp_vectors = SV_NUM_COMP_VECTORS;
	ctx->v.context.async_fd =
		eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (ctx->v.context.async_fd < 0)
		goto err_free_ctx;
	/* No commands go there, but it can be duplicated, as programs do that
	 * mean to import the device elsewhere: they are refused then. */
	ctx->v.context.cmd_fd = ctx->v.context.async_fd;
	err = sv_core_start();
	if (err) {
		errno = err;
		goto err_close_fd;
	}
	lock_init(&ctx->lock);
	list_init(&ctx->async_list);
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	sv_ops_fill(ctx);
	sv_core_add_ctx(ctx);
	sv_dev_refresh();
	return &ctx->v.context;

err_close_fd:
	close(ctx->v.context.async_fd);
err_free_ctx:
	free(ctx);
err_errno:
	if (!errno)
		errno = ENOMEM;
	return NULL;
}

int sv_close_device(struct ibv_context *context)
{
	struct sv_ctx *ctx = sv_ctx(context);

	if (sv_ctx_dead(context))
		return 0;
	if (atomic_load(&ctx->users))
		return EBUSY;
	sv_core_del_ctx(ctx);
	sv_async_drop_all(ctx);
	close(context->async_fd);
	pthread_mutex_destroy(&context->mutex);
	lock_fini(&ctx->lock);
	free(ctx);
	return 0;
}

struct ibv_context *sv_ctx_shared(struct sv_dev *dev)
{
	struct ibv_context *context;

	pthread_mutex_lock(&shared_lock);
	if (!dev->shared)
		dev->shared = sv_open_device(&dev->device);
	context = dev->shared;
	pthread_mutex_unlock(&shared_lock);
	return context;
}

/* The child has none of the parent's objects. */
void sv_device_fork_child(void)
{
	unsigned int i, res;

	pthread_mutex_init(&list_lock, NULL);
	pthread_mutex_init(&shared_lock, NULL);
	for (i = 0; i < dev_cnt; i++) {
		lock_init(&the_devs[i]->lock);
		the_devs[i]->shared = NULL;
		for (res = 0; res < SV_RES_CNT; res++)
			atomic_store(&the_devs[i]->used[res], 0);
	}
}

/* A child's copy-on-write never moves memory away from the device here. */
int sv_fork_init(void)
{
	return 0;
}
