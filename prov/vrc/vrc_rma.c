/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Remote memory: fi_read(3) and fi_write(3) and their kin.
 */
#include "compiler.h"
#include "vrc_ep.h"
#include "vrc_post.h"
#include "vrc_small.h"
#include "word_lock.h"

/* What differs from call to call. */
struct rma {
	const struct iovec *iov;
	void **desc;
	size_t cnt;
	uint64_t addr;
	uint64_t key;
	uint64_t data;
	uint64_t flags;
	void *context;
	bool visible;
	bool fence;
	bool more;
};

/* All or none: what is wrong is found before anything is posted. Caller holds
 * the lock if there is one. */
static int read_check(struct vrc_ep *ep, const struct vrc_tx *tx)
{
	struct ibv_sge sge[VRC_IOV_LIMIT];
	struct vrc_ring *ring = &ep->tx;
	uint32_t used = vrc_ring_head(ring) - atomic_load(&ring->tail);
	int n;

	if (tx->iov_cnt > VRC_IOV_LIMIT || tx->iov_cnt > ring->size)
		return -FI_EINVAL;
	if (vrc_iov_len(tx->iov, tx->iov_cnt) > ep->max_msg_size)
		return -FI_EMSGSIZE;
	n = vrc_sge_fill(ep, sge, tx->iov, tx->desc, tx->iov_cnt,
			 ep->local_reg ? VRC_DESC_NONE : VRC_DESC_ANY);
	if (n < 0)
		return n;
	return used + tx->iov_cnt > ring->size ? vrc_ring_full(ep, ring) : 0;
}

/* A read that the device cannot scatter to all of its pieces is one for each;
 * the last speaks for all. */
static __attribute__((noinline)) ssize_t read_pieces(struct vrc_ep *ep,
						     const struct vrc_tx *tx,
						     bool locked)
{
	struct vrc_tx piece = *tx;
	size_t i;
	ssize_t ret;

	if (locked)
		word_lock_take(&ep->tx_lock);
	ret = read_check(ep, tx);
	piece.iov_cnt = 1;
	for (i = 0; !ret && i < tx->iov_cnt; i++) {
		piece.iov = &tx->iov[i];
		piece.desc = tx->desc ? &tx->desc[i] : NULL;
		piece.part = i + 1 < tx->iov_cnt;
		piece.visible = tx->visible && !piece.part;
		piece.more = tx->more || piece.part;
		ret = vrc_tx_post(ep, &piece, false);
		piece.remote_addr += tx->iov[i].iov_len;
	}
	if (locked)
		word_lock_drop(&ep->tx_lock);
	return ret;
}

static __hot_inline ssize_t rma_post(struct vrc_ep *ep, enum vrc_op op,
				     const struct rma *rma, bool locked)
{
	const struct vrc_tx tx = {
		.op = op,
		.opcode = op == VRC_OP_READ ? IBV_WR_RDMA_READ :
			  (rma->flags & FI_REMOTE_CQ_DATA) ?
					      IBV_WR_RDMA_WRITE_WITH_IMM :
					      IBV_WR_RDMA_WRITE,
		.iov = rma->iov,
		.desc = rma->desc,
		.iov_cnt = rma->cnt,
		.flags = rma->flags,
		.data = rma->data,
		.remote_addr = rma->addr,
		.rkey = rma->key,
		.context = rma->context,
		.visible = rma->visible,
		.fence = rma->fence,
		.more = rma->more,
	};

	if (unlikely(rma->key > UINT32_MAX))
		return -FI_EKEYREJECTED;
	if (op == VRC_OP_READ && unlikely(tx.iov_cnt > ep->max_read_sge))
		return read_pieces(ep, &tx, locked);
	return vrc_tx_post(ep, &tx, locked);
}

/* The calls without flags take the endpoint's. */
static __hot_inline ssize_t rma_iov(struct fid_ep *fid, enum vrc_op op,
				    const struct iovec *iov, void **desc,
				    size_t cnt, uint64_t addr, uint64_t key,
				    void *context, bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);
	const struct rma rma = {
		.iov = iov,
		.desc = desc,
		.cnt = cnt,
		.addr = addr,
		.key = key,
		.flags = op == VRC_OP_READ ? 0 : ep->tx_op_flags,
		.context = context,
		.visible = ep->tx_visible,
	};

	return rma_post(ep, op, &rma, locked);
}

static __hot_inline ssize_t rma_msg(struct fid_ep *fid, enum vrc_op op,
				    const struct fi_msg_rma *msg,
				    uint64_t flags, bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);
	struct rma rma = {
		.iov = msg->msg_iov,
		.desc = msg->desc,
		.cnt = msg->iov_count,
		.data = msg->data,
		.flags = flags,
		.context = msg->context,
		.visible = !ep->tx_selective || (flags & FI_COMPLETION),
		.fence = flags & FI_FENCE,
		.more = flags & FI_MORE,
	};

	/* A read has arrived when it completes: that is delivery. */
	if (op == VRC_OP_READ)
		rma.flags &= ~(FI_DELIVERY_COMPLETE | FI_INJECT |
			       FI_REMOTE_CQ_DATA);
	if (unlikely(rma.flags & ~VRC_TX_FLAGS))
		return -FI_EBADFLAGS;
	if (unlikely((rma.flags & FI_REMOTE_CQ_DATA) &&
		     !vrc_data_ok(ep, rma.data)))
		return vrc_data_refused(ep);
	if (unlikely(msg->rma_iov_count != 1))
		return -FI_EINVAL;
	rma.addr = msg->rma_iov[0].addr;
	rma.key = msg->rma_iov[0].key;
	return rma_post(ep, op, &rma, locked);
}

static __hot_inline ssize_t write_buf(struct fid_ep *fid, const void *buf,
				      size_t len, void *desc,
				      const struct rma *call, bool locked)
{
	const struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct rma rma = *call;

	rma.iov = &iov;
	rma.desc = &desc;
	rma.cnt = 1;
	return rma_post(vrc_ep(fid), VRC_OP_WRITE, &rma, locked);
}

static __hot_inline ssize_t write_data(struct fid_ep *fid, const void *buf,
				       size_t len, void *desc, uint64_t data,
				       uint64_t addr, uint64_t key,
				       void *context, bool locked)
{
	const struct vrc_ep *ep = vrc_ep(fid);
	const struct rma rma = {
		.addr = addr,
		.key = key,
		.data = data,
		.flags = ep->tx_op_flags | FI_REMOTE_CQ_DATA,
		.context = context,
		.visible = ep->tx_visible,
	};

	if (unlikely(!vrc_data_ok(ep, data)))
		return vrc_data_refused(ep);
	return write_buf(fid, buf, len, desc, &rma, locked);
}

static __hot_inline ssize_t write_inject(struct fid_ep *fid, const void *buf,
					 size_t len, uint64_t flags,
					 uint64_t data, uint64_t addr,
					 uint64_t key, bool locked)
{
	const struct rma rma = {
		.addr = addr,
		.key = key,
		.data = data,
		.flags = flags | FI_INJECT,
		.visible = false,
	};

	if (unlikely((flags & FI_REMOTE_CQ_DATA) &&
		     !vrc_data_ok(vrc_ep(fid), data)))
		return vrc_data_refused(vrc_ep(fid));
	return write_buf(fid, buf, len, NULL, &rma, locked);
}

/* One instance of every call per locking level, and its table. */
#define VRC_RMA_OPS(level, locked)                                             \
	static __noinline ssize_t level##_read_any(                            \
		struct fid_ep *ep, void *buf, size_t len, void *desc,          \
		fi_addr_t src_addr, uint64_t addr, uint64_t key,               \
		void *context)                                                 \
	{                                                                      \
		const struct iovec iov = { buf, len };                         \
                                                                               \
		return rma_iov(ep, VRC_OP_READ, &iov, &desc, 1, addr, key,     \
			       context, locked);                               \
	}                                                                      \
	static ssize_t level##_read(struct fid_ep *ep, void *buf, size_t len,  \
				    void *desc, fi_addr_t src_addr,            \
				    uint64_t addr, uint64_t key,               \
				    void *context)                             \
	{                                                                      \
		const struct vrc_small_op small = {                            \
			.kind = VRC_SMALL_READ,                                \
			.op = VRC_OP_READ,                                     \
			.buf = buf,                                            \
			.len = len,                                            \
			.context = context,                                    \
			.remote_addr = addr,                                   \
			.rkey = key,                                           \
			.desc = desc,                                          \
			.flags = vrc_ep(ep)->small_flags,                      \
		};                                                             \
                                                                               \
		if (unlikely(!vrc_small_start(vrc_ep(ep), &small, locked)))    \
			return level##_read_any(ep, buf, len, desc, src_addr,  \
						addr, key, context);           \
		return vrc_small_post(vrc_ep(ep), &small, locked);             \
	}                                                                      \
	static ssize_t level##_readv(struct fid_ep *ep,                        \
				     const struct iovec *iov, void **desc,     \
				     size_t cnt, fi_addr_t src_addr,           \
				     uint64_t addr, uint64_t key,              \
				     void *context)                            \
	{                                                                      \
		return rma_iov(ep, VRC_OP_READ, iov, desc, cnt, addr, key,     \
			       context, locked);                               \
	}                                                                      \
	static ssize_t level##_readmsg(struct fid_ep *ep,                      \
				       const struct fi_msg_rma *msg,           \
				       uint64_t flags)                         \
	{                                                                      \
		return rma_msg(ep, VRC_OP_READ, msg, flags, locked);           \
	}                                                                      \
	static __noinline ssize_t level##_write_any(                           \
		struct fid_ep *ep, const void *buf, size_t len, void *desc,    \
		fi_addr_t dest_addr, uint64_t addr, uint64_t key,              \
		void *context)                                                 \
	{                                                                      \
		const struct iovec iov = { (void *)(uintptr_t)buf, len };      \
                                                                               \
		return rma_iov(ep, VRC_OP_WRITE, &iov, &desc, 1, addr, key,    \
			       context, locked);                               \
	}                                                                      \
	static ssize_t level##_write(struct fid_ep *ep, const void *buf,       \
				     size_t len, void *desc,                   \
				     fi_addr_t dest_addr, uint64_t addr,       \
				     uint64_t key, void *context)              \
	{                                                                      \
		const struct vrc_small_op small = {                            \
			.kind = VRC_SMALL_WRITE,                               \
			.op = VRC_OP_WRITE,                                    \
			.buf = buf,                                            \
			.len = len,                                            \
			.context = context,                                    \
			.remote_addr = addr,                                   \
			.rkey = key,                                           \
			.flags = vrc_ep(ep)->small_flags,                      \
		};                                                             \
                                                                               \
		if (unlikely(!vrc_small_start(vrc_ep(ep), &small, locked)))    \
			return level##_write_any(ep, buf, len, desc,           \
						 dest_addr, addr, key,         \
						 context);                     \
		return vrc_small_post(vrc_ep(ep), &small, locked);             \
	}                                                                      \
	static ssize_t level##_writev(struct fid_ep *ep,                       \
				      const struct iovec *iov, void **desc,    \
				      size_t cnt, fi_addr_t dest_addr,         \
				      uint64_t addr, uint64_t key,             \
				      void *context)                           \
	{                                                                      \
		return rma_iov(ep, VRC_OP_WRITE, iov, desc, cnt, addr, key,    \
			       context, locked);                               \
	}                                                                      \
	static ssize_t level##_writemsg(struct fid_ep *ep,                     \
					const struct fi_msg_rma *msg,          \
					uint64_t flags)                        \
	{                                                                      \
		return rma_msg(ep, VRC_OP_WRITE, msg, flags, locked);          \
	}                                                                      \
	static __noinline ssize_t level##_inject_any(                          \
		struct fid_ep *ep, const void *buf, size_t len,                \
		fi_addr_t dest_addr, uint64_t addr, uint64_t key)              \
	{                                                                      \
		return write_inject(ep, buf, len, 0, 0, addr, key, locked);    \
	}                                                                      \
	static ssize_t level##_inject(struct fid_ep *ep, const void *buf,      \
				      size_t len, fi_addr_t dest_addr,         \
				      uint64_t addr, uint64_t key)             \
	{                                                                      \
		const struct vrc_small_op small = {                            \
			.kind = VRC_SMALL_WRITE,                               \
			.op = VRC_OP_WRITE,                                    \
			.buf = buf,                                            \
			.len = len,                                            \
			.remote_addr = addr,                                   \
			.rkey = key,                                           \
			.flags = vrc_ep(ep)->tx.req_flags,                     \
		};                                                             \
                                                                               \
		if (unlikely(!vrc_small_start(vrc_ep(ep), &small, locked)))    \
			return level##_inject_any(ep, buf, len, dest_addr,     \
						  addr, key);                  \
		return vrc_small_post(vrc_ep(ep), &small, locked);             \
	}                                                                      \
	static ssize_t level##_writedata(struct fid_ep *ep, const void *buf,   \
					 size_t len, void *desc,               \
					 uint64_t data, fi_addr_t dest_addr,   \
					 uint64_t addr, uint64_t key,          \
					 void *context)                        \
	{                                                                      \
		return write_data(ep, buf, len, desc, data, addr, key,         \
				  context, locked);                            \
	}                                                                      \
	static ssize_t level##_injectdata(struct fid_ep *ep, const void *buf,  \
					  size_t len, uint64_t data,           \
					  fi_addr_t dest_addr, uint64_t addr,  \
					  uint64_t key)                        \
	{                                                                      \
		return write_inject(ep, buf, len, FI_REMOTE_CQ_DATA, data,     \
				    addr, key, locked);                        \
	}                                                                      \
	const struct fi_ops_rma vrc_rma_ops_##level = {                        \
		.size = sizeof(struct fi_ops_rma),                             \
		.read = level##_read,                                          \
		.readv = level##_readv,                                        \
		.readmsg = level##_readmsg,                                    \
		.write = level##_write,                                        \
		.writev = level##_writev,                                      \
		.writemsg = level##_writemsg,                                  \
		.inject = level##_inject,                                      \
		.writedata = level##_writedata,                                \
		.injectdata = level##_injectdata,                              \
	};

VRC_RMA_OPS(locked, true)
VRC_RMA_OPS(unlocked, false)
