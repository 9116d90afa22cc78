/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Keys: what memory regions and windows have in common. Every one has an index
 * into the table that peers read, and a key that contains it:
 *
 *	31    26 25              8 7     0
 *	| random |      index     |  tag  |
 *
 * The tag is random, too, until a window's owner chooses another one.
 */
#ifndef SV_KEY_H
#define SV_KEY_H

#include "sv_int.h"

/* One published region or window. Valid while seq is even and key is not 0. */
struct sv_mr_ent {
	_Alignas(CACHELINE) atomic_uint seq;
	atomic_uint key;
	atomic_uint owner; /* of a protection domain or, SV_OWNER_QP, a QP */
	atomic_uint access; /* enum ibv_access_flags, SV_ACCESS_LOCAL */
	_Atomic(uint64_t) iova;
	_Atomic(uint64_t) len;
	_Atomic(uint64_t) va;
	atomic_uint leaving; /* what key was; 0: links know. Its owner's alone */
};

static_assert(sizeof(struct sv_mr_ent) == CACHELINE, "one line per region");

enum sv_key_kind {
	SV_KEY_REGION,
	SV_KEY_WINDOW,
};

/* First in struct sv_mr and struct sv_mw. Guarded by the keys' lock. */
struct sv_key {
	enum sv_key_kind kind;
	uint32_t index;
};

/* What a key gives, and to whom: see struct sv_mr_ent. */
struct sv_grant {
	uint32_t key;
	uint32_t owner;
	uint32_t access;
	uint64_t iova;
	uint64_t va;
	uint64_t len;
};

struct sv_mr {
	struct sv_key key;
	struct ibv_mr mr;
	struct sv_grant grant; /* as published */
	uint32_t windows; /* keys' lock: bound to it */
	void *map; /* of a dma-buf; NULL: the application's memory */
	size_t map_len;
};

static inline struct sv_mr *sv_mr(struct ibv_mr *mr)
{
	return container_of(mr, struct sv_mr, mr);
}

static inline uint32_t sv_key_index(uint32_t key)
{
	return key >> 8 & (SV_MAX_MR - 1);
}

/*
 * sv_key.c. All but take() want the lock held. add: gives it an index; *value is
 * a key for it that nobody could have known; false if there are too many. del:
 * what it was is no longer valid. publish: what it is from now on; nobody sees
 * it by halves. revoke: nothing, but the index stays. find: by index, or NULL.
 *
 * What a key was before it is published anew or revoked is leaving until left(),
 * which wants no lock: links still have frames to end out of its memory, which is
 * there until then.
 */
void sv_keys_take(void);
void sv_keys_drop(void);
bool sv_key_add(struct sv_key *key, uint32_t *value) __must_check;
void sv_key_del(struct sv_key *key);
void sv_key_publish(struct sv_key *key, const struct sv_grant *grant);
void sv_key_revoke(struct sv_key *key);
void sv_key_left(uint32_t value);
struct sv_key *sv_key_find(uint32_t value);

/* Memory registered on demand: whether it cannot be had. */
bool sv_key_faults(const struct sv_mr_ent *tbl, uint64_t va, uint64_t len,
		   uint32_t access) __cold;

/*
 * What sv_mr_check() and sv_mr_check_va() do, for where each message does it.
 * The entry is read as a seqlock; the acquire loads keep the second look at seq
 * behind the fields, and pair with sv_key_publish().
 */
static __hot_inline bool sv_key_check(const struct sv_mr_ent *tbl, uint32_t key,
				      uint32_t owner, uint32_t access,
				      uint64_t addr, uint64_t len, bool by_va,
				      uint64_t *va)
{
	const struct sv_mr_ent *ent = &tbl[sv_key_index(key)];
	uint32_t seq = atomic_load_explicit(&ent->seq, memory_order_acquire);
	uint64_t base, size, mem;
	uint32_t granted;

	if (unlikely(!key || seq & 1 ||
		     atomic_load_explicit(&ent->key, memory_order_acquire) !=
			     key ||
		     atomic_load_explicit(&ent->owner, memory_order_acquire) !=
			     owner))
		return false;
	granted = atomic_load_explicit(&ent->access, memory_order_acquire);
	base = atomic_load_explicit(&ent->iova, memory_order_acquire);
	mem = atomic_load_explicit(&ent->va, memory_order_acquire);
	size = atomic_load_explicit(&ent->len, memory_order_acquire);
	if (unlikely(atomic_load_explicit(&ent->seq, memory_order_relaxed) !=
			     seq ||
		     (granted & access) != access))
		return false;
	if (by_va)
		base = mem;
	if (unlikely(addr < base || addr - base > size ||
		     len > size - (addr - base)))
		return false;
	*va = mem + (addr - base);
	if (unlikely(granted & IBV_ACCESS_ON_DEMAND))
		return !sv_key_faults(tbl, *va, len, access);
	return true;
}

/* sv_mr.c: 0, or a positive errno if not all of this memory is there and can be
 * used so. It is faulted in. */
int sv_pages_check(uint64_t addr, uint64_t len, int access);

#endif
