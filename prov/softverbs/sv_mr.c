/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory regions: one table per process, in a memfd that peers map read-only,
 * because a peer's RDMA write is carried out by the peer: it looks the key up
 * here itself. Up to SV_MAX_MR entries; the file is sparse, so only pages with
 * regions in use cost memory.
 *
 * A key is a table index with random bits above it; the index is random within
 * a window that is kept at most half full. So a guess hits with a chance of
 * about (regions / 2^24) or less, and a freed index is not reused soon.
 */
#include "sv_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum {
	SV_MR_WINDOW_MIN = 1024,
	SV_MR_INDEX_BITS = 18,
	SV_DEREG_WAIT_MS = 2000,
};

static_assert(SV_MAX_MR == 1 << SV_MR_INDEX_BITS, "a key holds an index");

static struct lock mr_lock = { PTHREAD_MUTEX_INITIALIZER };
/* mr_lock; tbl and fd are constant once set */
static struct sv_mr_ent *mr_tbl;
static int mr_fd = -1;
static uint32_t mr_cnt;
static uint32_t mr_window = SV_MR_WINDOW_MIN;

static const size_t mr_tbl_size = SV_MAX_MR * sizeof(struct sv_mr_ent);

/* Makes the table. Positive errno. */
int sv_mr_start(void)
{
	void *map;
	int err = 0;
	int fd;

	lock_take(&mr_lock);
	if (mr_tbl)
		goto out_unlock;
	fd = memfd_create("softverbs-mr", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		err = errno;
		goto out_unlock;
	}
	if (ftruncate(fd, mr_tbl_size))
		goto err_close;
	map = mmap(NULL, mr_tbl_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	if (map == MAP_FAILED)
		goto err_close;
	/* Older kernels cannot stop peers from writing; the rest is a must. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE))
		sv_log("MR table stays writable for peers: %m");
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto err_unmap;
	mr_tbl = map;
	mr_fd = fd;
	goto out_unlock;

err_unmap:
	err = errno;
	munmap(map, mr_tbl_size);
err_close:
	if (!err)
		err = errno;
	close(fd);
out_unlock:
	lock_drop(&mr_lock);
	return err;
}

int sv_mr_fd(void)
{
	return mr_fd;
}

const struct sv_mr_ent *sv_mr_table(void)
{
	return mr_tbl;
}

/* Peers have descriptors of their own. The table stays: a thread of the
 * application may still be at work. */
static void __sv_last mr_fini(void)
{
	if (mr_fd >= 0)
		close(mr_fd);
	mr_fd = -1;
}

/* The mapping is shared with the parent: leave it alone, make a new one. */
void sv_mr_fork_child(void)
{
	lock_init(&mr_lock);
	if (mr_fd >= 0)
		close(mr_fd);
	mr_tbl = NULL;
	mr_fd = -1;
	mr_cnt = 0;
	mr_window = SV_MR_WINDOW_MIN;
}

/*
 * The one check of a key: exists, belongs to pd_id, grants access, covers
 * [addr, addr + len) without wrapping. On success *va is where addr lies in
 * the owner's memory. The entry is read as a seqlock; the acquire loads keep
 * the second look at seq behind the fields, and pair with mr_publish().
 */
bool sv_mr_check(const struct sv_mr_ent *tbl, uint32_t key, uint32_t pd_id,
		 uint32_t access, uint64_t addr, uint64_t len, uint64_t *va)
{
	const struct sv_mr_ent *ent = &tbl[key & (SV_MAX_MR - 1)];
	uint32_t seq = atomic_load_explicit(&ent->seq, memory_order_acquire);
	uint64_t base, size, mem;
	bool ok;

	if (!key || seq & 1)
		return false;
	base = atomic_load_explicit(&ent->iova, memory_order_acquire);
	size = atomic_load_explicit(&ent->len, memory_order_acquire);
	mem = atomic_load_explicit(&ent->va, memory_order_acquire);
	ok = atomic_load_explicit(&ent->key, memory_order_acquire) == key &&
	     atomic_load_explicit(&ent->pd_id, memory_order_acquire) == pd_id &&
	     (atomic_load_explicit(&ent->access, memory_order_acquire) &
	      access) == access;
	if (atomic_load_explicit(&ent->seq, memory_order_relaxed) != seq)
		return false;
	if (!ok || addr < base || addr - base > size ||
	    len > size - (addr - base))
		return false;
	*va = mem + (addr - base);
	return true;
}

/* Caller holds mr_lock. Writes never overlap reads unnoticed: see above. */
static void mr_publish(struct sv_mr_ent *ent, uint32_t key, uint32_t pd_id,
		       uint32_t access, const struct ibv_mr *mr)
{
	uint32_t seq = atomic_load_explicit(&ent->seq, memory_order_relaxed);

	atomic_store(&ent->seq, seq + 1);
	atomic_store_explicit(&ent->key, key, memory_order_release);
	atomic_store_explicit(&ent->pd_id, pd_id, memory_order_release);
	atomic_store_explicit(&ent->access, access, memory_order_release);
	atomic_store_explicit(&ent->iova, (uintptr_t)mr->addr,
			      memory_order_release);
	atomic_store_explicit(&ent->va, (uintptr_t)mr->addr,
			      memory_order_release);
	atomic_store_explicit(&ent->len, mr->length, memory_order_release);
	atomic_store(&ent->seq, seq + 2);
}

/* Caller holds mr_lock. Random probing of a table at most half full. */
static bool mr_pick(uint32_t *index, uint32_t *key)
{
	uint32_t rnd[2];

	while (mr_cnt >= mr_window / 2 && mr_window < SV_MAX_MR)
		mr_window *= 2;
	if (mr_cnt >= SV_MAX_MR / 2)
		return false;
	do {
		sv_random(rnd, sizeof(rnd));
		*index = rnd[0] & (mr_window - 1);
	} while (atomic_load_explicit(&mr_tbl[*index].key,
				      memory_order_relaxed));
	*key = *index | rnd[1] << SV_MR_INDEX_BITS;
	/* Never 0 in the upper part: a key is no plain small number. */
	if (!(*key >> SV_MR_INDEX_BITS))
		*key |= 1u << SV_MR_INDEX_BITS;
	/* SV_BUSY_PULL is not a key. */
	if (*key == SV_BUSY_PULL)
		*key &= ~(1u << 31);
	return true;
}

static int access_check(int access)
{
	const int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			  IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

	if (access & (IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		      IBV_ACCESS_ON_DEMAND))
		return EOPNOTSUPP;
	if (access & ~known)
		return EINVAL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return 0;
}

/*
 * Faults the pages in, as a NIC's driver would to pin them: finds memory that
 * is not there, or not writable, now and not in the middle of a transfer.
 */
static int pages_check(void *addr, size_t length, int access)
{
	const int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC;
	uintptr_t page = sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)addr & ~(page - 1);
	size_t len = (uintptr_t)addr + length - from;

	len = (len + page - 1) & ~(page - 1);
	if (!madvise((void *)from, len,
		     access & writes ? MADV_POPULATE_WRITE :
				       MADV_POPULATE_READ))
		return 0;
	if (errno != EINVAL)
		return errno == EAGAIN ? ENOMEM : EFAULT;
	/* Can be read, but it was to be written. */
	if (access & writes &&
	    !madvise((void *)from, len, MADV_POPULATE_READ))
		return EFAULT;
	/* A kernel before 5.14, or memory of a kind that it cannot fault. */
	return msync((void *)from, len, MS_ASYNC) ? EFAULT : 0;
}

/* Positive errno. */
static int range_check(void *addr, size_t length, int access)
{
	if (!length || length > SV_MAX_MR_SIZE ||
	    (uintptr_t)addr + length < (uintptr_t)addr)
		return EINVAL;
	return pages_check(addr, length, access);
}

struct ibv_mr *sv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			 int access)
{
	struct sv_dev *dev = sv_ctx(pd->context)->dev;
	struct sv_mr *mr;
	uint32_t key;
	int err;

	err = sv_ctx_dead(pd->context) ? ENODEV : access_check(access);
	if (!err)
		err = range_check(addr, length, access);
	if (err)
		goto err_errno;
	err = ENOMEM;
	if (!sv_dev_take(dev, SV_RES_MR))
		goto err_errno;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		goto err_give;
	mr->mr = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.addr = addr,
		.length = length,
	};

	lock_take(&mr_lock);
	if (!mr_pick(&mr->index, &key)) {
		lock_drop(&mr_lock);
		free(mr);
		goto err_give;
	}
	mr->mr.handle = mr->index;
	mr->mr.lkey = key;
	mr->mr.rkey = key;
	mr_publish(&mr_tbl[mr->index], key, sv_pd(pd)->id, access, &mr->mr);
	mr_cnt++;
	lock_drop(&mr_lock);
	atomic_fetch_add(&sv_pd(pd)->users, 1);
	return &mr->mr;

err_give:
	sv_dev_give(dev, SV_RES_MR);
err_errno:
	errno = err;
	return NULL;
}

/*
 * The key stays, what it stands for changes in one go. What was begun with the
 * old meaning is waited for.
 */
int sv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr,
		size_t length, int access)
{
	struct sv_mr *mr = sv_mr(ibmr);
	struct sv_mr_ent *ent = &mr_tbl[mr->index];
	struct ibv_mr want = *ibmr;
	int err = 0;

	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = atomic_load_explicit(&ent->access,
					      memory_order_relaxed);
	if (flags & IBV_REREG_MR_CHANGE_PD)
		want.pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		want.addr = addr;
		want.length = length;
	}
	if (sv_ctx_dead(ibmr->context))
		err = ENODEV;
	else if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED ||
		 !want.pd || want.pd->context != ibmr->context)
		err = EINVAL;
	else
		err = access_check(access);
	if (!err)
		err = range_check(want.addr, want.length, access);
	if (err) {
		errno = err;
		return IBV_REREG_MR_ERR_INPUT;
	}
	lock_take(&mr_lock);
	mr_publish(ent, ibmr->rkey, sv_pd(want.pd)->id, access, &want);
	lock_drop(&mr_lock);
	sv_link_quiesce(ibmr->rkey, SV_DEREG_WAIT_MS);
	atomic_fetch_add(&sv_pd(want.pd)->users, 1);
	atomic_fetch_sub(&sv_pd(ibmr->pd)->users, 1);
	*ibmr = want;
	return 0;
}

/*
 * From here on nobody starts a copy to or from the region, neither a peer nor a
 * thread of ours, and those that had started are waited for: the caller may
 * unmap the memory right after.
 */
int sv_dereg_mr(struct ibv_mr *ibmr)
{
	static const struct ibv_mr none;
	struct sv_mr *mr = sv_mr(ibmr);

	if (sv_ctx_dead(ibmr->context))
		return ENODEV;
	lock_take(&mr_lock);
	mr_publish(&mr_tbl[mr->index], 0, 0, 0, &none);
	mr_cnt--;
	lock_drop(&mr_lock);
	sv_link_quiesce(ibmr->rkey, SV_DEREG_WAIT_MS);
	atomic_fetch_sub(&sv_pd(ibmr->pd)->users, 1);
	sv_dev_give(sv_ctx(ibmr->context)->dev, SV_RES_MR);
	free(mr);
	return 0;
}
