/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Thread domains and parent domains. A parent domain is its protection domain by
 * another name (keys, windows and peers see no difference) which may bring
 * memory for queues. A thread domain promises that one thread at a time uses what
 * is made with it; an uncontended lock is so cheap here that nothing is made of it.
 */
#include "sv_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sv_td {
	struct ibv_td td;
	atomic_int users; /* parent domains */
};

static struct sv_td *sv_td(struct ibv_td *td)
{
	return container_of(td, struct sv_td, td);
}

/* ---- thread domains ---- */

struct ibv_td *sv_alloc_td(struct ibv_context *context,
			   struct ibv_td_init_attr *attr)
{
	struct sv_td *td;

	if (sv_ctx_dead(context) || attr->comp_mask) {
		errno = attr->comp_mask ? EINVAL : ENODEV;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td) {
		errno = ENOMEM;
		return NULL;
	}
	td->td.context = context;
	atomic_fetch_add(&sv_ctx(context)->users, 1);
	return &td->td;
}

int sv_dealloc_td(struct ibv_td *ibtd)
{
	struct sv_td *td = sv_td(ibtd);

	if (sv_ctx_dead(ibtd->context))
		return 0;
	if (atomic_load(&td->users))
		return EBUSY;
	atomic_fetch_sub(&sv_ctx(ibtd->context)->users, 1);
	free(td);
	return 0;
}

/* ---- parent domains ---- */

/* Positive errno. */
static int attr_check(const struct ibv_context *context,
		      const struct ibv_parent_domain_init_attr *attr)
{
	if (attr->comp_mask & ~(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
				IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT))
		return EOPNOTSUPP;
	if (!attr->pd || attr->pd->context != context ||
	    (attr->td && attr->td->context != context))
		return EINVAL;
	/* A parent domain of a parent domain would have two allocators. */
	if (sv_pd(attr->pd)->base)
		return EINVAL;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS &&
	    (!attr->alloc || !attr->free))
		return EINVAL;
	return 0;
}

struct ibv_pd *sv_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr)
{
	struct sv_pd *base, *pd;
	int err;

	err = sv_ctx_dead(context) ? ENODEV : attr_check(context, attr);
	if (err)
		goto err_errno;
	err = ENOMEM;
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		goto err_errno;
	base = sv_pd(attr->pd);
	pd->base = base;
	pd->td = attr->td;
	pd->id = base->id;
	pd->keys = base->keys;
	pd->pd.context = context;
	pd->pd.handle = base->pd.handle;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->pd_context = attr->pd_context;
	atomic_fetch_add(&base->users, 1);
	if (attr->td)
		atomic_fetch_add(&sv_td(attr->td)->users, 1);
	return &pd->pd;

err_errno:
	errno = err;
	return NULL;
}

void sv_parent_domain_fini(struct sv_pd *pd)
{
	atomic_fetch_sub(&pd->base->users, 1);
	if (pd->td)
		atomic_fetch_sub(&sv_td(pd->td)->users, 1);
}

/* ---- memory for queues ---- */

/* Zeroed, on a cache line's boundary. */
int sv_mem_get(struct sv_mem *mem, struct sv_pd *pd, size_t size)
{
	void *ptr;

	*mem = (struct sv_mem){ .ptr = NULL };
	if (pd && pd->alloc) {
		ptr = pd->alloc(&pd->pd, pd->pd_context, size, CACHELINE, 0);
		if (!ptr)
			return ENOMEM;
		if (ptr != IBV_ALLOCATOR_USE_DEFAULT) {
			if ((uintptr_t)ptr % CACHELINE) {
				sv_log("allocator: %p is not aligned to %d",
				       ptr, CACHELINE);
				pd->free(&pd->pd, pd->pd_context, ptr, 0);
				return EINVAL;
			}
			mem->ptr = memset(ptr, 0, size);
			mem->from = pd;
			return 0;
		}
	}
	/* What is large the kernel zeroes, when it is touched. */
	mem->block = calloc(1, size + CACHELINE);
	if (!mem->block)
		return ENOMEM;
	mem->ptr = (void *)(((uintptr_t)mem->block + CACHELINE - 1) &
			    ~(uintptr_t)(CACHELINE - 1));
	return 0;
}

void sv_mem_put(struct sv_mem *mem)
{
	if (mem->from)
		mem->from->free(&mem->from->pd, mem->from->pd_context,
				mem->ptr, 0);
	free(mem->block);
	*mem = (struct sv_mem){ .ptr = NULL };
}
