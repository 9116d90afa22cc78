/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libibverbs.so.1: names that rdma-core's own drivers bind to. Programs pull
 * in libmlx5 and libefa, which then register and never hear of a device. The
 * names differ between versions of rdma-core, so abi-private makes the list,
 * and a function that fails with EOPNOTSUPP for each name that is not here.
 * Here are those to which that would mean something else than failure.
 */
#include "sv_abi.h"

#include <errno.h>

struct verbs_device;
struct verbs_device_ops;
struct verbs_context_ops;

/* Drivers find these through a header that is not installed. */
void verbs_register_driver_34(const struct verbs_device_ops *ops);
void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd,
				    size_t alloc_size,
				    struct verbs_context *offset,
				    uint32_t driver_id);
struct ibv_context *verbs_open_device(struct ibv_device *device, void *data);
void verbs_set_ops(struct verbs_context *v,
		   const struct verbs_context_ops *ops);
void verbs_uninit_context(struct verbs_context *v);
void __verbs_log(struct verbs_context *v, uint32_t level, const char *fmt,
		 ...);
unsigned int __ioctl_final_num_attrs(unsigned int num_attrs, void *link);
int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs,
			      const char *fmt, ...);

int sv_abi_driver_nosys(const char *name)
{
	sv_log("%s: no drivers here", name);
	return EOPNOTSUPP;
}

/* Called as a driver is loaded. It will be asked for nothing. */
void verbs_register_driver_34(const struct verbs_device_ops *ops)
{
}

void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd,
				    size_t alloc_size,
				    struct verbs_context *offset,
				    uint32_t driver_id)
{
	errno = sv_abi_driver_nosys(__func__);
	return NULL;
}

struct ibv_context *verbs_open_device(struct ibv_device *device, void *data)
{
	errno = sv_abi_driver_nosys(__func__);
	return NULL;
}

void verbs_set_ops(struct verbs_context *v, const struct verbs_context_ops *ops)
{
	sv_abi_driver_nosys(__func__);
}

void verbs_uninit_context(struct verbs_context *v)
{
	sv_abi_driver_nosys(__func__);
}

/* What a driver has to say is of no interest without one. */
void __verbs_log(struct verbs_context *v, uint32_t level, const char *fmt, ...)
{
}

unsigned int __ioctl_final_num_attrs(unsigned int num_attrs, void *link)
{
	sv_abi_driver_nosys(__func__);
	return 0;
}

/* Would return the length. */
int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs,
			      const char *fmt, ...)
{
	errno = sv_abi_driver_nosys(__func__);
	return -1;
}
