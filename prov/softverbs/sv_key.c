/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The table of keys: one per process, in a memfd that peers map read-only,
 * because a peer's RDMA write is carried out by the peer: it looks the key up
 * here itself. Up to SV_MAX_MR entries; the file is sparse, so only pages with
 * keys in use cost memory.
 *
 * An index is random within a window that is kept at most half full, and 14 more
 * bits of the key are random. So a guess hits with a chance of about
 * (keys / 2^24) or less, and a freed index is not reused soon.
 */
#include "sv_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum {
	SV_MR_WINDOW_MIN = 1024,
	SV_MR_INDEX_BITS = 18,
	SV_MR_INDEX_SHIFT = 8,
	SV_MR_RANDOM_SHIFT = SV_MR_INDEX_SHIFT + SV_MR_INDEX_BITS,
};

static_assert(SV_MAX_MR == 1 << SV_MR_INDEX_BITS, "a key holds an index");

static struct lock key_lock = { PTHREAD_MUTEX_INITIALIZER };
/* key_lock; tbl, objects and fd are constant once set */
static struct sv_mr_ent *mr_tbl;
static struct sv_key **objects; /* by index; ours alone */
static int mr_fd = -1;
static uint32_t key_cnt;
static uint32_t key_window = SV_MR_WINDOW_MIN;

static const size_t mr_tbl_size = SV_MAX_MR * sizeof(struct sv_mr_ent);
static const size_t objects_size = SV_MAX_MR * sizeof(struct sv_key *);

/* ---- life ---- */

/* Caller holds key_lock. Positive errno. */
static int tbl_map(int fd)
{
	void *map;
	int err;

	map = mmap(NULL, mr_tbl_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	if (map == MAP_FAILED)
		return errno;
	/* Older kernels cannot stop peers from writing; the rest is a must. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE))
		sv_log("MR table stays writable for peers: %m");
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		err = errno;
		munmap(map, mr_tbl_size);
		return err;
	}
	mr_tbl = map;
	return 0;
}

/* Makes the table. Positive errno. */
int sv_mr_start(void)
{
	struct sv_key **objs;
	int err = 0;
	int fd;

	lock_take(&key_lock);
	if (mr_tbl)
		goto out_unlock;
	/* Zeroed by the kernel: costs nothing where it is not used. It stays, as
	 * the table does. */
	objs = mmap(NULL, objects_size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (objs == MAP_FAILED) {
		err = errno;
		goto out_unlock;
	}
	err = sv_memfd_create("softverbs-mr", mr_tbl_size, &fd);
	if (err)
		goto err_free;
	err = tbl_map(fd);
	if (err)
		goto err_close;
	objects = objs;
	mr_fd = fd;
	goto out_unlock;

err_close:
	close(fd);
err_free:
	munmap(objs, objects_size);
out_unlock:
	lock_drop(&key_lock);
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

/* The mapping is shared with the parent: leave it alone, make a new one. */
void sv_mr_fork_child(void)
{
	lock_init(&key_lock);
	if (mr_fd >= 0)
		close(mr_fd);
	mr_tbl = NULL;
	objects = NULL;
	mr_fd = -1;
	key_cnt = 0;
	key_window = SV_MR_WINDOW_MIN;
}

/* ---- looking up ---- */

/* Of a peer's memory the kernel tells whether it is there. */
bool sv_key_faults(const struct sv_mr_ent *tbl, uint64_t va, uint64_t len,
		   uint32_t access)
{
	return tbl == mr_tbl && sv_pages_check(va, len, access);
}

bool sv_mr_check(const struct sv_mr_ent *tbl, uint32_t key, uint32_t owner,
		 uint32_t access, uint64_t addr, uint64_t len, uint64_t *va)
{
	return sv_key_check(tbl, key, owner, access, addr, len, false, va);
}

bool sv_mr_check_va(const struct sv_mr_ent *tbl, uint32_t key, uint32_t owner,
		    uint32_t access, uint64_t addr, uint64_t len)
{
	uint64_t va;

	return sv_key_check(tbl, key, owner, access, addr, len, true, &va);
}

/* ---- changing ---- */

void sv_keys_take(void)
{
	lock_take(&key_lock);
}

void sv_keys_drop(void)
{
	lock_drop(&key_lock);
}

struct sv_key *sv_key_find(uint32_t value)
{
	return objects[sv_key_index(value)];
}

/* Random probing of a table at most half full. */
bool sv_key_add(struct sv_key *key, uint32_t *value)
{
	uint32_t rnd[2];

	while (key_cnt >= key_window / 2 && key_window < SV_MAX_MR)
		key_window *= 2;
	if (key_cnt >= SV_MAX_MR / 2)
		return false;
	do {
		sv_random(rnd, sizeof(rnd));
		key->index = rnd[0] & (key_window - 1);
	} while (objects[key->index]);
	objects[key->index] = key;
	key_cnt++;
	/* Never 0 above: a key is no plain small number. Never all ones: it is
	 * not SV_BUSY_PULL, whatever the tag. */
	*value = (1 + (rnd[1] >> 8) % 62) << SV_MR_RANDOM_SHIFT |
		 key->index << SV_MR_INDEX_SHIFT | (rnd[1] & 0xff);
	return true;
}

/* Writes never overlap reads unnoticed: see sv_key_check(). */
void sv_key_publish(struct sv_key *key, const struct sv_grant *grant)
{
	struct sv_mr_ent *ent = &mr_tbl[key->index];
	uint32_t seq = atomic_load_explicit(&ent->seq, memory_order_relaxed);
	uint32_t old = atomic_load_explicit(&ent->key, memory_order_relaxed);

	/* Before: who finds the key gone has to see it. */
	if (old)
		atomic_store(&ent->leaving, old);
	atomic_store(&ent->seq, seq + 1);
	atomic_store_explicit(&ent->key, grant->key, memory_order_release);
	atomic_store_explicit(&ent->owner, grant->owner, memory_order_release);
	atomic_store_explicit(&ent->access, grant->access,
			      memory_order_release);
	atomic_store_explicit(&ent->iova, grant->iova, memory_order_release);
	atomic_store_explicit(&ent->va, grant->va, memory_order_release);
	atomic_store_explicit(&ent->len, grant->len, memory_order_release);
	atomic_store(&ent->seq, seq + 2);
}

void sv_key_revoke(struct sv_key *key)
{
	static const struct sv_grant none;

	sv_key_publish(key, &none);
}

/* A key that has taken its place meanwhile is not meant. */
void sv_key_left(uint32_t value)
{
	struct sv_mr_ent *ent = &mr_tbl[sv_key_index(value)];
	uint32_t was = value;

	atomic_compare_exchange_strong(&ent->leaving, &was, 0);
}

bool sv_mr_leaving(uint32_t key)
{
	return atomic_load(&mr_tbl[sv_key_index(key)].leaving) == key;
}

void sv_key_del(struct sv_key *key)
{
	sv_key_revoke(key);
	objects[key->index] = NULL;
	key_cnt--;
}
