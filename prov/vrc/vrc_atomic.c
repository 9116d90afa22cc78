/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Atomics: fi_atomic(3) and its kin, as far as an RC queue pair tells the truth
 * about them. It adds to, or compares and swaps, eight aligned bytes, and hands
 * back what was there. From that can be made:
 *
 *			base	fetch	compare
 *	FI_SUM		FAA	FAA	-	64-bit integers
 *	FI_ATOMIC_READ	-	FAA 0	-	any type of 8 bytes
 *	FI_CSWAP	-	-	CAS	64-bit integers
 *
 * Everything else is refused. Floating point is not equal when its bits are;
 * FI_ATOMIC_WRITE and the rest take a loop of compare-and-swaps, which is no
 * one operation; and an RDMA write or read of eight bytes need not be atomic
 * towards atomics.
 *
 * Each element is a work request and a record of its own, for it is elements that
 * are atomic, not calls; the last speaks for all. The operands travel in the work
 * request, so no memory of theirs is needed. A result that nobody wants goes to
 * memory of the domain's.
 */
#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_atomic.h"
#include "vrc_cm.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_mr.h"
#include "vrc_post.h"
#include "word_lock.h"

enum {
	ELEM_LEN = 8,
	/* Elements of a call, and no more than the queue takes at once. */
	ELEMS_MAX = 256,
};

/* One operand, or the result, as the API calls describe it. */
struct vec {
	const struct fi_ioc *iov;
	void **desc;
	size_t cnt;
};

/* One call, whichever it is. */
struct atomic {
	enum fi_datatype datatype;
	enum fi_op op;
	struct vec operand;
	struct vec compare;
	struct vec result;
	size_t cnt;	/* elements at the target; 0: as many as here */
	uint64_t addr;
	uint64_t key;
	uint64_t flags;
	void *context;
	bool visible;
};

/* The three families of calls. */
enum family { BASE, FETCH, COMPARE };

/* ---- what there is ---- */

static __hot_inline bool is_int64(enum fi_datatype datatype)
{
	return datatype == FI_INT64 || datatype == FI_UINT64;
}

static __hot_inline bool has_op(enum family family, enum fi_datatype datatype,
				enum fi_op op)
{
	if (family == COMPARE)
		return op == FI_CSWAP && is_int64(datatype);
	if (family == FETCH && op == FI_ATOMIC_READ)
		return is_int64(datatype) || datatype == FI_DOUBLE ||
		       datatype == FI_FLOAT_COMPLEX;
	return op == FI_SUM && is_int64(datatype);
}

/* A result that nobody has registered is, for each work request; what is begun
 * must not fail for that half way. */
static size_t elems_max(bool local_reg, enum family family)
{
	return local_reg && family != BASE ? 1 : ELEMS_MAX;
}

static __hot_inline size_t ep_max(const struct vrc_ep *ep, enum family family)
{
	return min_size(elems_max(ep->local_reg, family),
			vrc_ring_most(ep->info->tx_attr->size));
}

static int valid(struct fid_ep *fid, enum family family,
		 enum fi_datatype datatype, enum fi_op op, size_t *count)
{
	bool has = has_op(family, datatype, op);

	if (count)
		*count = has ? ep_max(vrc_ep(fid), family) : 0;
	return has ? 0 : -FI_EOPNOTSUPP;
}

static int base_valid(struct fid_ep *ep, enum fi_datatype datatype,
		      enum fi_op op, size_t *count)
{
	return valid(ep, BASE, datatype, op, count);
}

static int fetch_valid(struct fid_ep *ep, enum fi_datatype datatype,
		       enum fi_op op, size_t *count)
{
	return valid(ep, FETCH, datatype, op, count);
}

static int compare_valid(struct fid_ep *ep, enum fi_datatype datatype,
			 enum fi_op op, size_t *count)
{
	return valid(ep, COMPARE, datatype, op, count);
}

int vrc_query_atomic(struct fid_domain *domain, enum fi_datatype datatype,
		     enum fi_op op, struct fi_atomic_attr *attr,
		     uint64_t flags)
{
	enum family family = flags & FI_FETCH_ATOMIC   ? FETCH :
			     flags & FI_COMPARE_ATOMIC ? COMPARE :
							 BASE;
	const uint64_t both = FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC;

	if (!attr || (flags & both) == both ||
	    flags & ~(both | FI_TAGGED))
		return -FI_EINVAL;
	if (!vrc_domain(domain)->scratch_mr || flags & FI_TAGGED ||
	    !has_op(family, datatype, op))
		return -FI_EOPNOTSUPP;
	attr->count = elems_max(vrc_domain(domain)->local_reg, family);
	attr->size = ELEM_LEN;
	return 0;
}

/* ---- memory for results that nobody wants ---- */

/* A page of its own, so that registering it concerns nothing else. */
int vrc_atomic_open(struct vrc_domain *domain)
{
	int ret;

	domain->scratch = mmap(NULL, ELEM_LEN, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (domain->scratch == MAP_FAILED)
		return vrc_err(errno);
	domain->scratch_mr = domain->ops->reg_mr(domain->pd, domain->scratch,
						 ELEM_LEN,
						 IBV_ACCESS_LOCAL_WRITE);
	if (domain->scratch_mr)
		return 0;
	ret = errno;
	vrc_mr_explain(domain, domain->scratch, ELEM_LEN, ret);
	munmap(domain->scratch, ELEM_LEN);
	return vrc_err(ret);
}

void vrc_atomic_close(struct vrc_domain *domain)
{
	if (!domain->scratch_mr)
		return;
	domain->ops->dereg_mr(domain->scratch_mr);
	domain->scratch_mr = NULL;
	munmap(domain->scratch, ELEM_LEN);
}

/* ---- checking ---- */

static __cold int misaligned(const struct vrc_ep *ep, uint64_t addr)
{
	vrc_warn(EP_DATA, "ep %p: atomic at 0x%" PRIx64 "; the address must be "
		 "a multiple of %d\n", (const void *)ep, addr, ELEM_LEN);
	return -FI_EINVAL;
}

/* How many elements; 0 if it makes no sense. */
static __hot_inline size_t vec_len(const struct vec *vec)
{
	size_t len = 0;

	if (unlikely(vec->cnt > VRC_IOV_LIMIT))
		return 0;
	for (size_t i = 0; i < vec->cnt; i++) {
		if (unlikely(vec->iov[i].count > ELEMS_MAX))
			return SIZE_MAX;
		if (unlikely(vec->iov[i].count && !vec->iov[i].addr))
			return 0;
		len += vec->iov[i].count;
	}
	return len;
}

/* The operand of a read is not looked at, and need not be there. */
static __hot_inline bool has_operand(enum family family, const struct atomic *a)
{
	return family != FETCH || a->op != FI_ATOMIC_READ;
}

/* How many elements, or -FI_E*. */
static __hot_inline ssize_t check(const struct vrc_ep *ep, enum family family,
				  const struct atomic *a)
{
	size_t cnt;

	if (unlikely(!has_op(family, a->datatype, a->op)))
		return -FI_EOPNOTSUPP;
	cnt = vec_len(family == BASE ? &a->operand : &a->result);
	if (unlikely(!cnt ||
		     (has_operand(family, a) && family != BASE &&
		      vec_len(&a->operand) != cnt) ||
		     (family == COMPARE && vec_len(&a->compare) != cnt) ||
		     (a->cnt && a->cnt != cnt)))
		return -FI_EINVAL;
	if (unlikely(cnt > ep_max(ep, family) ||
		     (a->flags & FI_INJECT && cnt * ELEM_LEN > ep->inject_size)))
		return -FI_EMSGSIZE;
	if (unlikely(a->key > UINT32_MAX))
		return -FI_EKEYREJECTED;
	if (unlikely(a->addr % ELEM_LEN))
		return misaligned(ep, a->addr);
	return (ssize_t)cnt;
}

/* ---- posting ---- */

/* Where element i is; its descriptor in *desc unless that is NULL. */
static __hot_inline void *vec_at(const struct vec *vec, size_t i, void **desc)
{
	size_t n = 0;

	for (; i >= vec->iov[n].count; n++)
		i -= vec->iov[n].count;
	if (desc)
		*desc = vec->desc ? vec->desc[n] : NULL;
	return (char *)vec->iov[n].addr + i * ELEM_LEN;
}

static __hot_inline uint64_t load(const void *operand)
{
	uint64_t value;

	memcpy(&value, operand, sizeof(value));
	return value;
}

/* Element i of cnt. */
static __hot_inline ssize_t post_elem(struct vrc_ep *ep, enum family family,
				      const struct atomic *a, size_t i,
				      size_t cnt, bool locked)
{
	const struct vrc_domain *domain = ep->domain;
	struct iovec iov = { NULL, ELEM_LEN };
	void *desc;
	struct vrc_tx tx = {
		.op = family == BASE ? VRC_OP_ATOMIC : VRC_OP_FETCH_ATOMIC,
		.opcode = family == COMPARE ? IBV_WR_ATOMIC_CMP_AND_SWP :
					      IBV_WR_ATOMIC_FETCH_AND_ADD,
		.iov = &iov,
		.desc = &desc,
		.iov_cnt = 1,
		.flags = a->flags,
		.remote_addr = a->addr + i * ELEM_LEN,
		.rkey = a->key,
		.context = a->context,
		.part = i + 1 < cnt,
		/* One is enough. */
		.fence = !i && a->flags & FI_FENCE,
	};

	tx.visible = a->visible && !tx.part;
	/* The parts of a call go to the device together. */
	tx.more = tx.part || (a->flags & FI_MORE);
	if (family == COMPARE) {
		tx.compare_add = load(vec_at(&a->compare, i, NULL));
		tx.swap = load(vec_at(&a->operand, i, NULL));
	} else if (has_operand(family, a)) {
		tx.compare_add = load(vec_at(&a->operand, i, NULL));
	}
	if (family == BASE) {
		iov.iov_base = domain->scratch;
		desc = vrc_desc(domain->desc_tag, domain->scratch_mr->lkey);
	} else {
		iov.iov_base = vec_at(&a->result, i, &desc);
	}
	return vrc_tx_post(ep, &tx, locked);
}

/* All or none: what can be wrong is found before anything is posted. Caller
 * holds the lock if there is one. */
static int many_check(struct vrc_ep *ep, enum family family,
		      const struct atomic *a, size_t cnt)
{
	struct vrc_ring *ring = &ep->tx;
	uint32_t used = atomic_load(&ring->head) - atomic_load(&ring->tail);
	void *desc;

	for (size_t i = 0; family != BASE && !ep->local_reg && i < cnt; i++) {
		vec_at(&a->result, i, &desc);
		if (!vrc_desc_ok(ep->desc_tag, desc))
			return -FI_EINVAL;
	}
	return used + cnt > ring->size ? vrc_ring_full(ep, ring) : 0;
}

/* What has been begun cannot be taken back, and must not be done twice. */
static __cold ssize_t half_done(struct vrc_ep *ep, ssize_t ret)
{
	if (ret == -FI_ESHUTDOWN)
		return ret;
	vrc_warn(EP_DATA, "ep %p: the device took only some elements of an "
		 "atomic (%s); the connection ends\n", (void *)ep,
		 fi_strerror((int)-ret));
	vrc_cm_broken(ep);
	return -FI_EIO;
}

static __attribute__((noinline)) ssize_t post_many(struct vrc_ep *ep,
						   enum family family,
						   const struct atomic *a,
						   size_t cnt, bool locked)
{
	size_t i = 0;
	ssize_t ret;

	if (atomic_load(&ep->state) != VRC_EP_CONNECTED)
		return vrc_tx_not_ready(ep);
	if (locked)
		word_lock_take(&ep->tx_lock);
	ret = many_check(ep, family, a, cnt);
	for (; !ret && i < cnt; i++) {
		if (family == BASE)
			ret = post_elem(ep, BASE, a, i, cnt, false);
		else if (family == FETCH)
			ret = post_elem(ep, FETCH, a, i, cnt, false);
		else
			ret = post_elem(ep, COMPARE, a, i, cnt, false);
	}
	if (ret && i > 1)
		ret = half_done(ep, ret);
	if (locked)
		word_lock_drop(&ep->tx_lock);
	return ret;
}

static __hot_inline ssize_t post(struct fid_ep *fid, enum family family,
				 const struct atomic *a, bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);
	ssize_t cnt = check(ep, family, a);

	if (unlikely(cnt < 0))
		return cnt;
	if (unlikely(cnt > 1))
		return post_many(ep, family, a, (size_t)cnt, locked);
	return post_elem(ep, family, a, 0, 1, locked);
}

/* ---- the calls ---- */

/* What those without flags have in common, which take the endpoint's. */
static __hot_inline struct atomic plain(const struct fid_ep *ep,
					enum family family,
					enum fi_datatype datatype,
					enum fi_op op, uint64_t addr,
					uint64_t key, void *context)
{
	return (struct atomic){
		.datatype = datatype,
		.op = op,
		.addr = addr,
		.key = key,
		.flags = family == BASE ? vrc_ep(ep)->tx_op_flags : 0,
		.context = context,
		.visible = vrc_ep(ep)->tx_visible,
	};
}

/* What one with flags says; compare and result are there. */
static __hot_inline ssize_t post_msg(struct fid_ep *fid, enum family family,
				     const struct fi_msg_atomic *msg,
				     uint64_t flags, struct atomic *a,
				     bool locked)
{
	const struct vrc_ep *ep = vrc_ep(fid);

	/* The answer says that it has been done: that is delivery. */
	flags &= ~FI_DELIVERY_COMPLETE;
	if (unlikely(flags & ~(VRC_TX_FLAGS | FI_ATOMIC) ||
		     flags & FI_REMOTE_CQ_DATA))
		return -FI_EBADFLAGS;
	if (unlikely(msg->rma_iov_count != 1 || !msg->rma_iov->count))
		return -FI_EINVAL;
	a->datatype = msg->datatype;
	a->op = msg->op;
	a->operand = (struct vec){ msg->msg_iov, NULL, msg->iov_count };
	a->cnt = msg->rma_iov->count;
	a->addr = msg->rma_iov->addr;
	a->key = msg->rma_iov->key;
	a->flags = flags;
	a->context = msg->context;
	a->visible = !ep->tx_selective || (flags & FI_COMPLETION);
	return post(fid, family, a, locked);
}

/* One instance of every call per locking level, and its table. */
#define VRC_ATOMIC_OPS(level, locked)                                          \
	static ssize_t level##_write(struct fid_ep *ep, const void *buf,       \
				     size_t count, void *desc,                 \
				     fi_addr_t dest_addr, uint64_t addr,       \
				     uint64_t key, enum fi_datatype datatype,  \
				     enum fi_op op, void *context)             \
	{                                                                      \
		const struct fi_ioc x = { (void *)(uintptr_t)buf, count };     \
		struct atomic a = plain(ep, BASE, datatype, op, addr, key,     \
					context);                              \
                                                                               \
		a.operand = (struct vec){ &x, NULL, 1 };                       \
		return post(ep, BASE, &a, locked);                             \
	}                                                                      \
	static ssize_t level##_writev(struct fid_ep *ep,                       \
				      const struct fi_ioc *iov, void **desc,   \
				      size_t count, fi_addr_t dest_addr,       \
				      uint64_t addr, uint64_t key,             \
				      enum fi_datatype datatype,               \
				      enum fi_op op, void *context)            \
	{                                                                      \
		struct atomic a = plain(ep, BASE, datatype, op, addr, key,     \
					context);                              \
                                                                               \
		a.operand = (struct vec){ iov, NULL, count };                  \
		return post(ep, BASE, &a, locked);                             \
	}                                                                      \
	static ssize_t level##_writemsg(struct fid_ep *ep,                     \
					const struct fi_msg_atomic *msg,       \
					uint64_t flags)                        \
	{                                                                      \
		struct atomic a = { .cnt = 0 };                                \
                                                                               \
		return post_msg(ep, BASE, msg, flags, &a, locked);             \
	}                                                                      \
	static ssize_t level##_inject(struct fid_ep *ep, const void *buf,      \
				      size_t count, fi_addr_t dest_addr,       \
				      uint64_t addr, uint64_t key,             \
				      enum fi_datatype datatype,               \
				      enum fi_op op)                           \
	{                                                                      \
		const struct fi_ioc x = { (void *)(uintptr_t)buf, count };     \
		const struct atomic a = {                                      \
			.datatype = datatype,                                  \
			.op = op,                                              \
			.operand = { &x, NULL, 1 },                            \
			.addr = addr,                                          \
			.key = key,                                            \
			.flags = FI_INJECT,                                    \
		};                                                             \
                                                                               \
		return post(ep, BASE, &a, locked);                             \
	}                                                                      \
	static ssize_t level##_readwrite(                                      \
		struct fid_ep *ep, const void *buf, size_t count, void *desc,  \
		void *result, void *result_desc, fi_addr_t dest_addr,          \
		uint64_t addr, uint64_t key, enum fi_datatype datatype,        \
		enum fi_op op, void *context)                                  \
	{                                                                      \
		const struct fi_ioc x = { (void *)(uintptr_t)buf, count };     \
		const struct fi_ioc r = { result, count };                     \
		struct atomic a = plain(ep, FETCH, datatype, op, addr, key,    \
					context);                              \
                                                                               \
		a.operand = (struct vec){ &x, NULL, 1 };                       \
		a.result = (struct vec){ &r, &result_desc, 1 };                \
		return post(ep, FETCH, &a, locked);                            \
	}                                                                      \
	static ssize_t level##_readwritev(                                     \
		struct fid_ep *ep, const struct fi_ioc *iov, void **desc,      \
		size_t count, struct fi_ioc *resultv, void **result_desc,      \
		size_t result_count, fi_addr_t dest_addr, uint64_t addr,       \
		uint64_t key, enum fi_datatype datatype, enum fi_op op,        \
		void *context)                                                 \
	{                                                                      \
		struct atomic a = plain(ep, FETCH, datatype, op, addr, key,    \
					context);                              \
                                                                               \
		a.operand = (struct vec){ iov, NULL, count };                  \
		a.result = (struct vec){ resultv, result_desc, result_count }; \
		return post(ep, FETCH, &a, locked);                            \
	}                                                                      \
	static ssize_t level##_readwritemsg(                                   \
		struct fid_ep *ep, const struct fi_msg_atomic *msg,            \
		struct fi_ioc *resultv, void **result_desc,                    \
		size_t result_count, uint64_t flags)                           \
	{                                                                      \
		struct atomic a = {                                            \
			.result = { resultv, result_desc, result_count },      \
		};                                                             \
                                                                               \
		return post_msg(ep, FETCH, msg, flags, &a, locked);            \
	}                                                                      \
	static ssize_t level##_compwrite(                                      \
		struct fid_ep *ep, const void *buf, size_t count, void *desc,  \
		const void *compare, void *compare_desc, void *result,         \
		void *result_desc, fi_addr_t dest_addr, uint64_t addr,         \
		uint64_t key, enum fi_datatype datatype, enum fi_op op,        \
		void *context)                                                 \
	{                                                                      \
		const struct fi_ioc x = { (void *)(uintptr_t)buf, count };     \
		const struct fi_ioc c = { (void *)(uintptr_t)compare, count }; \
		const struct fi_ioc r = { result, count };                     \
		struct atomic a = plain(ep, COMPARE, datatype, op, addr, key,  \
					context);                              \
                                                                               \
		a.operand = (struct vec){ &x, NULL, 1 };                       \
		a.compare = (struct vec){ &c, NULL, 1 };                       \
		a.result = (struct vec){ &r, &result_desc, 1 };                \
		return post(ep, COMPARE, &a, locked);                          \
	}                                                                      \
	static ssize_t level##_compwritev(                                     \
		struct fid_ep *ep, const struct fi_ioc *iov, void **desc,      \
		size_t count, const struct fi_ioc *comparev,                   \
		void **compare_desc, size_t compare_count,                     \
		struct fi_ioc *resultv, void **result_desc,                    \
		size_t result_count, fi_addr_t dest_addr, uint64_t addr,       \
		uint64_t key, enum fi_datatype datatype, enum fi_op op,        \
		void *context)                                                 \
	{                                                                      \
		struct atomic a = plain(ep, COMPARE, datatype, op, addr, key,  \
					context);                              \
                                                                               \
		a.operand = (struct vec){ iov, NULL, count };                  \
		a.compare = (struct vec){ comparev, NULL, compare_count };     \
		a.result = (struct vec){ resultv, result_desc, result_count }; \
		return post(ep, COMPARE, &a, locked);                          \
	}                                                                      \
	static ssize_t level##_compwritemsg(                                   \
		struct fid_ep *ep, const struct fi_msg_atomic *msg,            \
		const struct fi_ioc *comparev, void **compare_desc,            \
		size_t compare_count, struct fi_ioc *resultv,                  \
		void **result_desc, size_t result_count, uint64_t flags)       \
	{                                                                      \
		struct atomic a = {                                            \
			.compare = { comparev, NULL, compare_count },          \
			.result = { resultv, result_desc, result_count },      \
		};                                                             \
                                                                               \
		return post_msg(ep, COMPARE, msg, flags, &a, locked);          \
	}                                                                      \
	const struct fi_ops_atomic vrc_atomic_ops_##level = {                  \
		.size = sizeof(struct fi_ops_atomic),                          \
		.write = level##_write,                                        \
		.writev = level##_writev,                                      \
		.writemsg = level##_writemsg,                                  \
		.inject = level##_inject,                                      \
		.readwrite = level##_readwrite,                                \
		.readwritev = level##_readwritev,                              \
		.readwritemsg = level##_readwritemsg,                          \
		.compwrite = level##_compwrite,                                \
		.compwritev = level##_compwritev,                              \
		.compwritemsg = level##_compwritemsg,                          \
		.writevalid = base_valid,                                      \
		.readwritevalid = fetch_valid,                                 \
		.compwritevalid = compare_valid,                               \
	};

VRC_ATOMIC_OPS(locked, true)
VRC_ATOMIC_OPS(unlocked, false)
