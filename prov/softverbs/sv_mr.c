/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory regions. What a key is, and where everybody looks it up, is in
 * sv_key.c; windows onto regions are in sv_mw.c.
 *
 * A region's bytes have two addresses: where they lie in this process, and where
 * work requests say that they lie (iova). The two are one unless the application
 * wants it otherwise.
 */
#include "sv_key.h"
#include "sv_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum {
	SV_DEREG_WAIT_MS = 2000,
	SV_ACCESS_WRITES = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC,
};

/* What is to be registered. */
struct spec {
	struct ibv_pd *pd;
	uint64_t va;
	uint64_t len;
	uint64_t iova;
	int access;
	void *map; /* to be unmapped in the end */
	size_t map_len;
};

/* Of all regions, for a budget that a rule sets. */
static _Atomic(uint64_t) registered;

/* ---- checks ---- */

static uint64_t page_size(void)
{
	return sysconf(_SC_PAGESIZE);
}

/* Positive errno. */
static int access_check(int access)
{
	const int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
			  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB |
			  IBV_ACCESS_OPTIONAL_RANGE;

	if (access & ~known) {
		sv_log("access flags %#x: unknown: %#x", (unsigned int)access,
		       (unsigned int)(access & ~known));
		return EINVAL;
	}
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE)) {
		sv_log("access flags %#x: writes by peers need LOCAL_WRITE",
		       (unsigned int)access);
		return EINVAL;
	}
	return 0;
}

/*
 * Faults the pages in, as a NIC's driver would to pin them: finds memory that
 * is not there, or not writable, now and not in the middle of a transfer. On
 * demand it does so when a work request comes.
 */
int sv_pages_check(uint64_t addr, uint64_t length, int access)
{
	const bool writes = access & SV_ACCESS_WRITES;
	uint64_t page = page_size();
	uint64_t from = addr & ~(page - 1);
	uint64_t len = (addr + length - from + page - 1) & ~(page - 1);

	if (!madvise((void *)(uintptr_t)from, len,
		     writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return 0;
	if (errno != EINVAL)
		return errno == EAGAIN ? ENOMEM : EFAULT;
	/* Can be read, but it was to be written. */
	if (writes &&
	    !madvise((void *)(uintptr_t)from, len, MADV_POPULATE_READ))
		return EFAULT;
	/* A kernel before 5.14, or memory of a kind that it cannot fault. */
	return msync((void *)(uintptr_t)from, len, MS_ASYNC) ? EFAULT : 0;
}

/* Everything there is: what of it is mapped shows when it is used. */
static bool is_implicit(const struct spec *spec)
{
	return spec->access & IBV_ACCESS_ON_DEMAND && !spec->va &&
	       spec->len == SIZE_MAX;
}

/* Positive errno. */
static int spec_check(const struct spec *spec)
{
	int err = access_check(spec->access);

	if (err || is_implicit(spec))
		return err;
	if (!spec->len || spec->len > SV_MAX_MR_SIZE ||
	    spec->va + spec->len < spec->va ||
	    spec->iova + spec->len < spec->iova) {
		sv_log("region of %llu bytes at %#llx, iova %#llx: 1 to %llu, and no wrapping",
		       (unsigned long long)spec->len,
		       (unsigned long long)spec->va,
		       (unsigned long long)spec->iova, SV_MAX_MR_SIZE);
		return EINVAL;
	}
	/* A NIC translates whole pages; so does everybody who counts on it. */
	if ((spec->iova ^ spec->va) & (page_size() - 1) &&
	    !(spec->access & IBV_ACCESS_ZERO_BASED)) {
		sv_log("iova %#llx for %#llx: offsets in the page differ",
		       (unsigned long long)spec->iova,
		       (unsigned long long)spec->va);
		return EINVAL;
	}
	if (spec->access & IBV_ACCESS_ON_DEMAND)
		return 0;
	return sv_pages_check(spec->va, spec->len, spec->access);
}

static struct sv_grant grant_of(const struct spec *spec, uint32_t key)
{
	return (struct sv_grant){
		.key = key,
		.owner = sv_pd(spec->pd)->id,
		.access = (uint32_t)spec->access | SV_ACCESS_LOCAL,
		.iova = spec->access & IBV_ACCESS_ZERO_BASED ? 0 : spec->iova,
		.va = spec->va,
		.len = spec->len,
	};
}

/* ---- registering ---- */

static struct ibv_mr *reg(const struct spec *spec)
{
	struct sv_dev *dev = sv_ctx(spec->pd->context)->dev;
	struct sv_mr *mr;
	uint32_t key;
	int err;

	err = sv_ctx_dead(spec->pd->context) ? ENODEV : spec_check(spec);
	if (!err && !spec->map)
		err = sv_fault_call_mem(SV_FAULT_reg_mr, dev, spec->len,
					atomic_load(&registered) + spec->len);
	if (err)
		goto err_errno;
	err = ENOMEM;
	if (!sv_dev_take(dev, SV_RES_MR))
		goto err_errno;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		goto err_give;
	mr->key.kind = SV_KEY_REGION;
	mr->map = spec->map;
	mr->map_len = spec->map_len;
	mr->mr = (struct ibv_mr){
		.context = spec->pd->context,
		.pd = spec->pd,
		.addr = (void *)(uintptr_t)spec->va,
		.length = spec->len,
	};

	sv_keys_take();
	if (!sv_key_add(&mr->key, &key)) {
		sv_keys_drop();
		free(mr);
		goto err_give;
	}
	mr->mr.handle = mr->key.index;
	mr->mr.lkey = key;
	mr->mr.rkey = key;
	mr->grant = grant_of(spec, key);
	sv_key_publish(&mr->key, &mr->grant);
	sv_keys_drop();
	atomic_fetch_add(&registered, spec->len);
	atomic_fetch_add(&sv_pd(spec->pd)->users, 1);
	return &mr->mr;

err_give:
	sv_dev_give(dev, SV_RES_MR);
err_errno:
	errno = err;
	return NULL;
}

struct ibv_mr *sv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			 int access)
{
	return sv_reg_mr_iova(pd, addr, length, (uintptr_t)addr, access);
}

struct ibv_mr *sv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			      uint64_t iova, int access)
{
	const struct spec spec = {
		.pd = pd,
		.va = (uintptr_t)addr,
		.len = length,
		.iova = iova,
		.access = access,
	};

	return reg(&spec);
}

/*
 * The key stays, what it stands for changes in one go. What was begun with the
 * old meaning is waited for.
 */
int sv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr,
		size_t length, int access)
{
	struct sv_mr *mr = sv_mr(ibmr);
	struct spec spec = {
		.pd = flags & IBV_REREG_MR_CHANGE_PD ? pd : ibmr->pd,
		.va = mr->grant.va,
		.len = mr->grant.len,
		.iova = mr->grant.iova,
		.access = flags & IBV_REREG_MR_CHANGE_ACCESS ?
				  access :
				  (int)(mr->grant.access & ~SV_ACCESS_LOCAL),
	};
	int err = 0;

	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		spec.va = spec.iova = (uintptr_t)addr;
		spec.len = length;
	}
	if (sv_ctx_dead(ibmr->context))
		err = ENODEV;
	else if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || !spec.pd ||
		 spec.pd->context != ibmr->context)
		err = EINVAL;
	else if (mr->map && flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		err = EOPNOTSUPP;
	else
		err = spec_check(&spec);
	if (!err)
		err = sv_fault_call_mem(SV_FAULT_rereg_mr,
					sv_ctx(ibmr->context)->dev, spec.len,
					atomic_load(&registered) + spec.len -
						ibmr->length);
	if (err)
		goto err_errno;
	sv_keys_take();
	if (mr->windows) {
		sv_keys_drop();
		err = EBUSY;
		goto err_errno;
	}
	mr->grant = grant_of(&spec, ibmr->rkey);
	sv_key_publish(&mr->key, &mr->grant);
	sv_keys_drop();
	sv_link_quiesce(ibmr->rkey, SV_DEREG_WAIT_MS);
	atomic_fetch_add(&sv_pd(spec.pd)->users, 1);
	atomic_fetch_sub(&sv_pd(ibmr->pd)->users, 1);
	atomic_fetch_add(&registered, spec.len - ibmr->length);
	ibmr->pd = spec.pd;
	ibmr->addr = (void *)(uintptr_t)spec.va;
	ibmr->length = spec.len;
	return 0;

err_errno:
	errno = err;
	return IBV_REREG_MR_ERR_INPUT;
}

/*
 * From here on nobody starts a copy to or from the region, neither a peer nor a
 * thread of ours, and those that had started are waited for: the caller may
 * unmap the memory right after.
 */
int sv_dereg_mr(struct ibv_mr *ibmr)
{
	struct sv_mr *mr = sv_mr(ibmr);
	int err;

	if (sv_ctx_dead(ibmr->context))
		return 0;
	err = sv_fault_call_mem(SV_FAULT_dereg_mr, sv_ctx(ibmr->context)->dev,
				ibmr->length, atomic_load(&registered));
	if (err)
		return err;
	sv_keys_take();
	if (mr->windows) {
		sv_keys_drop();
		return EBUSY;
	}
	sv_key_del(&mr->key);
	sv_keys_drop();
	atomic_fetch_sub(&registered, ibmr->length);
	sv_link_quiesce(ibmr->rkey, SV_DEREG_WAIT_MS);
	atomic_fetch_sub(&sv_pd(ibmr->pd)->users, 1);
	sv_dev_give(sv_ctx(ibmr->context)->dev, SV_RES_MR);
	if (mr->map)
		munmap(mr->map, mr->map_len);
	free(mr);
	return 0;
}

/* ---- dma-bufs ---- */

/*
 * What the descriptor names must not get shorter while it is mapped, or we would
 * die of it: a dma-buf cannot, a memfd can be sealed. Positive errno.
 */
static int dmabuf_check(int fd, uint64_t offset, uint64_t length)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	off_t size;

	if (fstat(fd, &st))
		return EBADF;
	if (S_ISREG(st.st_mode) && (seals < 0 || !(seals & F_SEAL_SHRINK))) {
		sv_log("fd %d: neither a dma-buf nor sealed against shrinking",
		       fd);
		return EOPNOTSUPP;
	}
	size = lseek(fd, 0, SEEK_END);
	if (size < 0)
		return EOPNOTSUPP;
	if (offset > (uint64_t)size || length > (uint64_t)size - offset) {
		sv_log("fd %d: %llu bytes at %llu, it has %lld", fd,
		       (unsigned long long)length, (unsigned long long)offset,
		       (long long)size);
		return EINVAL;
	}
	return 0;
}

/* Peers on this host read and write it by process_vm_readv() and the like, which
 * some mappings of devices do not admit. */
static bool peers_reach(void *addr)
{
	char byte;
	struct iovec here = { .iov_base = &byte, .iov_len = 1 };
	struct iovec there = { .iov_base = addr, .iov_len = 1 };

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 ||
	       errno != EFAULT;
}

struct ibv_mr *sv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				size_t length, uint64_t iova, int fd,
				int access)
{
	const uint64_t in_page = offset & (page_size() - 1);
	struct spec spec = {
		.pd = pd,
		.len = length,
		.iova = iova,
		.access = access,
		.map_len = in_page + length,
	};
	struct ibv_mr *mr;
	int err;

	err = sv_ctx_dead(pd->context) ? ENODEV : access_check(access);
	if (!err)
		err = sv_fault_call_mem(SV_FAULT_reg_dmabuf_mr,
					sv_ctx(pd->context)->dev, length,
					atomic_load(&registered) + length);
	if (!err && (!length || length > SV_MAX_MR_SIZE ||
		     access & IBV_ACCESS_ON_DEMAND))
		err = EINVAL;
	if (!err)
		err = dmabuf_check(fd, offset, length);
	if (err)
		goto err_errno;
	err = EOPNOTSUPP;
	spec.map = mmap(NULL, spec.map_len,
			access & SV_ACCESS_WRITES ? PROT_READ | PROT_WRITE :
						    PROT_READ,
			MAP_SHARED, fd, (off_t)(offset - in_page));
	if (spec.map == MAP_FAILED) {
		sv_log("fd %d cannot be mapped: %m", fd);
		goto err_errno;
	}
	if (!peers_reach(spec.map)) {
		sv_log("fd %d: its memory can be mapped, but not shared", fd);
		goto err_unmap;
	}
	spec.va = (uintptr_t)spec.map + in_page;
	mr = reg(&spec);
	if (mr)
		return mr;
	err = errno;

err_unmap:
	munmap(spec.map, spec.map_len);
err_errno:
	errno = err;
	return NULL;
}

/* ---- advice ---- */

/* Positive errno, as ibv_advise_mr(3) has them. */
static int advise_one(const struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
		      const struct ibv_sge *sge)
{
	const bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct sv_grant grant = { .key = 0 };
	struct sv_key *key;

	sv_keys_take();
	key = sv_key_find(sge->lkey);
	if (key && key->kind == SV_KEY_REGION)
		grant = container_of(key, struct sv_mr, key)->grant;
	sv_keys_drop();
	if (grant.key != sge->lkey || !grant.key)
		return ENOENT;
	if (grant.owner != sv_pd((struct ibv_pd *)pd)->id ||
	    (write && !(grant.access & IBV_ACCESS_LOCAL_WRITE)))
		return EPERM;
	if (!(grant.access & IBV_ACCESS_ON_DEMAND))
		return EINVAL;
	if (sge->addr < grant.iova || sge->addr - grant.iova > grant.len ||
	    sge->length > grant.len - (sge->addr - grant.iova))
		return EFAULT;
	/* What is present for the CPU is so for us. */
	if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || !sge->length)
		return 0;
	return sv_pages_check(grant.va + (sge->addr - grant.iova), sge->length,
			      write ? IBV_ACCESS_LOCAL_WRITE : 0);
}

int sv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
		 uint32_t flags, struct ibv_sge *sg_list, uint32_t num_sge)
{
	uint32_t i;
	int err = 0;

	if (sv_ctx_dead(pd->context))
		return ENODEV;
	if (flags & ~IBV_ADVISE_MR_FLAG_FLUSH)
		return EINVAL;
	if ((unsigned int)advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	for (i = 0; i < num_sge && !err; i++)
		err = advise_one(pd, advice, &sg_list[i]);
	return err;
}
