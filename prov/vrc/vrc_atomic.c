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
 * towards atomics. One call is one element.
 *
 * The operands travel in the work request, so no memory of theirs is needed. A
 * result that nobody wants goes to memory of the domain's.
 */
#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "vrc_post.h"

enum { ATOMIC_LEN = 8 };

/* One element, whichever call it came by. */
struct atomic {
	enum fi_datatype datatype;
	enum fi_op op;
	const void *operand;
	const void *compare;
	void *result;
	void *desc;		/* of result */
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

static int valid(enum family family, enum fi_datatype datatype, enum fi_op op,
		 size_t *count)
{
	bool has = has_op(family, datatype, op);

	if (count)
		*count = has;
	return has ? 0 : -FI_EOPNOTSUPP;
}

static int base_valid(struct fid_ep *ep, enum fi_datatype datatype,
		      enum fi_op op, size_t *count)
{
	return valid(BASE, datatype, op, count);
}

static int fetch_valid(struct fid_ep *ep, enum fi_datatype datatype,
		       enum fi_op op, size_t *count)
{
	return valid(FETCH, datatype, op, count);
}

static int compare_valid(struct fid_ep *ep, enum fi_datatype datatype,
			 enum fi_op op, size_t *count)
{
	return valid(COMPARE, datatype, op, count);
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
	attr->count = 1;
	attr->size = ATOMIC_LEN;
	return 0;
}

/* ---- memory for results that nobody wants ---- */

/* A page of its own, so that registering it concerns nothing else. */
int vrc_atomic_open(struct vrc_domain *domain)
{
	int ret;

	domain->scratch = mmap(NULL, ATOMIC_LEN, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (domain->scratch == MAP_FAILED)
		return vrc_err(errno);
	domain->scratch_mr = domain->ops->reg_mr(domain->pd, domain->scratch,
						 ATOMIC_LEN,
						 IBV_ACCESS_LOCAL_WRITE);
	if (domain->scratch_mr)
		return 0;
	ret = errno;
	vrc_mr_explain(domain, domain->scratch, ATOMIC_LEN, ret);
	munmap(domain->scratch, ATOMIC_LEN);
	return vrc_err(ret);
}

void vrc_atomic_close(struct vrc_domain *domain)
{
	if (!domain->scratch_mr)
		return;
	domain->ops->dereg_mr(domain->scratch_mr);
	domain->scratch_mr = NULL;
	munmap(domain->scratch, ATOMIC_LEN);
}

/* ---- posting ---- */

static __cold int misaligned(const struct vrc_ep *ep, uint64_t addr)
{
	vrc_warn(EP_DATA, "ep %p: atomic at 0x%" PRIx64 "; the address must be "
		 "a multiple of %d\n", (const void *)ep, addr, ATOMIC_LEN);
	return -FI_EINVAL;
}

/* One vector of one element; *addr is where it is. */
static __hot_inline int one(const struct fi_ioc *iov, size_t cnt, void **addr)
{
	if (unlikely(cnt != 1 || iov->count != 1))
		return cnt && iov->count ? -FI_EMSGSIZE : -FI_EINVAL;
	*addr = iov->addr;
	return 0;
}

static __hot_inline int count_ok(size_t count)
{
	return likely(count == 1) ? 0 : count ? -FI_EMSGSIZE : -FI_EINVAL;
}

static __hot_inline uint64_t load(const void *operand)
{
	uint64_t value;

	memcpy(&value, operand, sizeof(value));
	return value;
}

static __hot_inline ssize_t post(struct vrc_ep *ep, enum family family,
				 const struct atomic *a, bool locked)
{
	const struct vrc_domain *domain = ep->domain;
	bool reads = family == FETCH && a->op == FI_ATOMIC_READ;
	struct iovec iov = { a->result, ATOMIC_LEN };
	void *desc = a->desc;
	struct vrc_tx tx = {
		.op = family == BASE ? VRC_OP_ATOMIC : VRC_OP_FETCH_ATOMIC,
		.opcode = family == COMPARE ? IBV_WR_ATOMIC_CMP_AND_SWP :
					      IBV_WR_ATOMIC_FETCH_AND_ADD,
		.iov = &iov,
		.desc = &desc,
		.iov_cnt = 1,
		.flags = a->flags,
		.remote_addr = a->addr,
		.rkey = a->key,
		.context = a->context,
		.visible = a->visible,
		.more = a->flags & FI_MORE,
	};

	if (unlikely(!has_op(family, a->datatype, a->op)))
		return -FI_EOPNOTSUPP;
	if (unlikely((!a->operand && !reads) ||
		     (family == COMPARE && !a->compare) ||
		     (family != BASE && !a->result)))
		return -FI_EINVAL;
	if (unlikely(a->key > UINT32_MAX))
		return -FI_EKEYREJECTED;
	if (unlikely(a->addr % ATOMIC_LEN))
		return misaligned(ep, a->addr);
	if (family == COMPARE) {
		tx.compare_add = load(a->compare);
		tx.swap = load(a->operand);
	} else if (!reads) {
		tx.compare_add = load(a->operand);
	}
	if (family == BASE) {
		iov.iov_base = domain->scratch;
		desc = vrc_desc(domain->desc_tag, domain->scratch_mr->lkey);
	}
	return vrc_tx_post(ep, &tx, locked);
}

/* The calls without flags take the endpoint's. */
static __hot_inline struct atomic plain(const struct vrc_ep *ep,
					enum fi_datatype datatype,
					enum fi_op op, uint64_t addr,
					uint64_t key, void *context)
{
	return (struct atomic){
		.datatype = datatype,
		.op = op,
		.addr = addr,
		.key = key,
		.context = context,
		.visible = ep->tx_visible,
	};
}

/* What a call with flags says; operand, compare and result are left. */
static __hot_inline int from_msg(const struct vrc_ep *ep,
				 const struct fi_msg_atomic *msg,
				 uint64_t flags, struct atomic *a)
{
	/* The answer says that it has been done: that is delivery. */
	flags &= ~FI_DELIVERY_COMPLETE;
	if (unlikely(flags & ~(VRC_TX_FLAGS | FI_ATOMIC) ||
		     flags & FI_REMOTE_CQ_DATA))
		return -FI_EBADFLAGS;
	if (unlikely(msg->rma_iov_count != 1))
		return msg->rma_iov_count ? -FI_EMSGSIZE : -FI_EINVAL;
	a->datatype = msg->datatype;
	a->op = msg->op;
	a->addr = msg->rma_iov->addr;
	a->key = msg->rma_iov->key;
	a->flags = flags;
	a->context = msg->context;
	a->visible = !ep->tx_selective || (flags & FI_COMPLETION);
	return count_ok(msg->rma_iov->count);
}

/* The operand of a read is not looked at, and need not be there. */
static __hot_inline int operand_of(const struct fi_ioc *iov, size_t cnt,
				   enum family family, enum fi_op op,
				   void **operand)
{
	if (family == FETCH && op == FI_ATOMIC_READ)
		return 0;
	return one(iov, cnt, operand);
}

struct vectors {
	const struct fi_ioc *operand;
	size_t operand_cnt;
	const struct fi_ioc *compare;
	size_t compare_cnt;
	const struct fi_ioc *result;
	void **result_desc;
	size_t result_cnt;
};

static __hot_inline ssize_t post_vectors(struct vrc_ep *ep, enum family family,
					 struct atomic *a,
					 const struct vectors *v, bool locked)
{
	void *operand = NULL, *compare = NULL;
	int ret;

	ret = operand_of(v->operand, v->operand_cnt, family, a->op, &operand);
	if (!ret && family == COMPARE)
		ret = one(v->compare, v->compare_cnt, &compare);
	if (!ret && family != BASE)
		ret = one(v->result, v->result_cnt, &a->result);
	if (unlikely(ret))
		return ret;
	a->operand = operand;
	a->compare = compare;
	a->desc = v->result_desc ? v->result_desc[0] : NULL;
	return post(ep, family, a, locked);
}

static __hot_inline ssize_t post_msg(struct fid_ep *fid, enum family family,
				     const struct fi_msg_atomic *msg,
				     struct vectors *v, uint64_t flags,
				     bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);
	struct atomic a = { .result = NULL };
	int ret;

	ret = from_msg(ep, msg, flags, &a);
	if (unlikely(ret))
		return ret;
	v->operand = msg->msg_iov;
	v->operand_cnt = msg->iov_count;
	return post_vectors(ep, family, &a, v, locked);
}

/* One instance of every call per locking level, and its table. */
#define VRC_ATOMIC_OPS(level, locked)                                          \
	static ssize_t level##_write(struct fid_ep *ep, const void *buf,       \
				     size_t count, void *desc,                 \
				     fi_addr_t dest_addr, uint64_t addr,       \
				     uint64_t key, enum fi_datatype datatype,  \
				     enum fi_op op, void *context)             \
	{                                                                      \
		struct atomic a = plain(vrc_ep(ep), datatype, op, addr, key,   \
					context);                              \
                                                                               \
		a.operand = buf;                                               \
		a.flags = vrc_ep(ep)->tx_op_flags;                             \
		if (unlikely(count != 1))                                      \
			return count_ok(count);                                \
		return post(vrc_ep(ep), BASE, &a, locked);                     \
	}                                                                      \
	static ssize_t level##_writev(struct fid_ep *ep,                       \
				      const struct fi_ioc *iov, void **desc,   \
				      size_t count, fi_addr_t dest_addr,       \
				      uint64_t addr, uint64_t key,             \
				      enum fi_datatype datatype,               \
				      enum fi_op op, void *context)            \
	{                                                                      \
		struct atomic a = plain(vrc_ep(ep), datatype, op, addr, key,   \
					context);                              \
		const struct vectors v = {                                     \
			.operand = iov,                                        \
			.operand_cnt = count,                                  \
		};                                                             \
                                                                               \
		a.flags = vrc_ep(ep)->tx_op_flags;                             \
		return post_vectors(vrc_ep(ep), BASE, &a, &v, locked);         \
	}                                                                      \
	static ssize_t level##_writemsg(struct fid_ep *ep,                     \
					const struct fi_msg_atomic *msg,       \
					uint64_t flags)                        \
	{                                                                      \
		struct vectors v = { .operand = NULL };                        \
                                                                               \
		return post_msg(ep, BASE, msg, &v, flags, locked);             \
	}                                                                      \
	static ssize_t level##_inject(struct fid_ep *ep, const void *buf,      \
				      size_t count, fi_addr_t dest_addr,       \
				      uint64_t addr, uint64_t key,             \
				      enum fi_datatype datatype,               \
				      enum fi_op op)                           \
	{                                                                      \
		const struct atomic a = {                                      \
			.datatype = datatype,                                  \
			.op = op,                                              \
			.operand = buf,                                        \
			.addr = addr,                                          \
			.key = key,                                            \
			.flags = FI_INJECT,                                    \
		};                                                             \
                                                                               \
		if (unlikely(count != 1))                                      \
			return count_ok(count);                                \
		return post(vrc_ep(ep), BASE, &a, locked);                     \
	}                                                                      \
	static ssize_t level##_readwrite(                                      \
		struct fid_ep *ep, const void *buf, size_t count, void *desc,  \
		void *result, void *result_desc, fi_addr_t dest_addr,          \
		uint64_t addr, uint64_t key, enum fi_datatype datatype,        \
		enum fi_op op, void *context)                                  \
	{                                                                      \
		struct atomic a = plain(vrc_ep(ep), datatype, op, addr, key,   \
					context);                              \
                                                                               \
		a.operand = buf;                                               \
		a.result = result;                                             \
		a.desc = result_desc;                                          \
		if (unlikely(count != 1))                                      \
			return count_ok(count);                                \
		return post(vrc_ep(ep), FETCH, &a, locked);                    \
	}                                                                      \
	static ssize_t level##_readwritev(                                     \
		struct fid_ep *ep, const struct fi_ioc *iov, void **desc,      \
		size_t count, struct fi_ioc *resultv, void **result_desc,      \
		size_t result_count, fi_addr_t dest_addr, uint64_t addr,       \
		uint64_t key, enum fi_datatype datatype, enum fi_op op,        \
		void *context)                                                 \
	{                                                                      \
		struct atomic a = plain(vrc_ep(ep), datatype, op, addr, key,   \
					context);                              \
		const struct vectors v = {                                     \
			.operand = iov,                                        \
			.operand_cnt = count,                                  \
			.result = resultv,                                     \
			.result_desc = result_desc,                            \
			.result_cnt = result_count,                            \
		};                                                             \
                                                                               \
		return post_vectors(vrc_ep(ep), FETCH, &a, &v, locked);        \
	}                                                                      \
	static ssize_t level##_readwritemsg(                                   \
		struct fid_ep *ep, const struct fi_msg_atomic *msg,            \
		struct fi_ioc *resultv, void **result_desc,                    \
		size_t result_count, uint64_t flags)                           \
	{                                                                      \
		struct vectors v = {                                           \
			.result = resultv,                                     \
			.result_desc = result_desc,                            \
			.result_cnt = result_count,                            \
		};                                                             \
                                                                               \
		return post_msg(ep, FETCH, msg, &v, flags, locked);            \
	}                                                                      \
	static ssize_t level##_compwrite(                                      \
		struct fid_ep *ep, const void *buf, size_t count, void *desc,  \
		const void *compare, void *compare_desc, void *result,         \
		void *result_desc, fi_addr_t dest_addr, uint64_t addr,         \
		uint64_t key, enum fi_datatype datatype, enum fi_op op,        \
		void *context)                                                 \
	{                                                                      \
		struct atomic a = plain(vrc_ep(ep), datatype, op, addr, key,   \
					context);                              \
                                                                               \
		a.operand = buf;                                               \
		a.compare = compare;                                           \
		a.result = result;                                             \
		a.desc = result_desc;                                          \
		if (unlikely(count != 1))                                      \
			return count_ok(count);                                \
		return post(vrc_ep(ep), COMPARE, &a, locked);                  \
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
		struct atomic a = plain(vrc_ep(ep), datatype, op, addr, key,   \
					context);                              \
		const struct vectors v = {                                     \
			.operand = iov,                                        \
			.operand_cnt = count,                                  \
			.compare = comparev,                                   \
			.compare_cnt = compare_count,                          \
			.result = resultv,                                     \
			.result_desc = result_desc,                            \
			.result_cnt = result_count,                            \
		};                                                             \
                                                                               \
		return post_vectors(vrc_ep(ep), COMPARE, &a, &v, locked);      \
	}                                                                      \
	static ssize_t level##_compwritemsg(                                   \
		struct fid_ep *ep, const struct fi_msg_atomic *msg,            \
		const struct fi_ioc *comparev, void **compare_desc,            \
		size_t compare_count, struct fi_ioc *resultv,                  \
		void **result_desc, size_t result_count, uint64_t flags)       \
	{                                                                      \
		struct vectors v = {                                           \
			.compare = comparev,                                   \
			.compare_cnt = compare_count,                          \
			.result = resultv,                                     \
			.result_desc = result_desc,                            \
			.result_cnt = result_count,                            \
		};                                                             \
                                                                               \
		return post_msg(ep, COMPARE, msg, &v, flags, locked);          \
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
