/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Messages: fi_send(3) and fi_recv(3) and their kin.
 */
#include "compiler.h"
#include "vrc_ep.h"
#include "vrc_nosys.h"
#include "vrc_post.h"
#include "vrc_small.h"

static __hot_inline ssize_t send_iov(struct fid_ep *fid,
				     const struct iovec *iov, void **desc,
				     size_t cnt, void *context, bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);
	const struct vrc_tx tx = {
		.op = VRC_OP_SEND,
		.opcode = IBV_WR_SEND,
		.iov = iov,
		.desc = desc,
		.iov_cnt = cnt,
		.flags = ep->tx_op_flags,
		.context = context,
		.visible = ep->tx_visible,
	};

	return vrc_tx_post(ep, &tx, locked);
}

static __hot_inline ssize_t send_data(struct fid_ep *fid, const void *buf,
				      size_t len, void *desc, uint64_t data,
				      void *context, bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);
	const struct iovec iov = { (void *)(uintptr_t)buf, len };
	const struct vrc_tx tx = {
		.op = VRC_OP_SEND,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.iov = &iov,
		.desc = &desc,
		.iov_cnt = 1,
		.flags = ep->tx_op_flags,
		.data = data,
		.context = context,
		.visible = ep->tx_visible,
	};

	if (unlikely(!vrc_data_ok(ep, data)))
		return vrc_data_refused(ep);
	return vrc_tx_post(ep, &tx, locked);
}

static __hot_inline ssize_t send_msg(struct fid_ep *fid,
				     const struct fi_msg *msg, uint64_t flags,
				     enum ibv_wr_opcode opcode, bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);
	const struct vrc_tx tx = {
		.op = VRC_OP_SEND,
		.opcode = opcode,
		.iov = msg->msg_iov,
		.desc = msg->desc,
		.iov_cnt = msg->iov_count,
		.flags = flags,
		.data = msg->data,
		.context = msg->context,
		.visible = !ep->tx_selective || (flags & FI_COMPLETION),
		.fence = flags & FI_FENCE,
		.more = flags & FI_MORE,
	};

	if (unlikely(flags & ~VRC_TX_FLAGS))
		return -FI_EBADFLAGS;
	if (opcode == IBV_WR_SEND_WITH_IMM &&
	    unlikely(!vrc_data_ok(ep, msg->data)))
		return vrc_data_refused(ep);
	return vrc_tx_post(ep, &tx, locked);
}

static __hot_inline ssize_t send_inject(struct fid_ep *fid, const void *buf,
					size_t len, uint64_t data,
					enum ibv_wr_opcode opcode, bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);
	const struct iovec iov = { (void *)(uintptr_t)buf, len };
	const struct vrc_tx tx = {
		.op = VRC_OP_SEND,
		.opcode = opcode,
		.iov = &iov,
		.iov_cnt = 1,
		.flags = FI_INJECT,
		.data = data,
		.visible = false,
	};

	if (unlikely(opcode == IBV_WR_SEND_WITH_IMM &&
		     !vrc_data_ok(ep, data)))
		return vrc_data_refused(ep);
	return vrc_tx_post(ep, &tx, locked);
}

static __hot_inline ssize_t recv_iov(struct fid_ep *fid,
				     const struct iovec *iov, void **desc,
				     size_t cnt, void *context, bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);

	return vrc_rx_post(ep, iov, desc, cnt, context, ep->rx_visible, false,
			   locked);
}

static __hot_inline ssize_t recv_msg(struct fid_ep *fid,
				     const struct fi_msg *msg, uint64_t flags,
				     bool locked)
{
	struct vrc_ep *ep = vrc_ep(fid);

	if (unlikely(flags & ~VRC_RX_FLAGS))
		return -FI_EBADFLAGS;
	return vrc_rx_post(ep, msg->msg_iov, msg->desc, msg->iov_count,
			   msg->context,
			   !ep->rx_selective || (flags & FI_COMPLETION),
			   flags & FI_MORE, locked);
}

/* One instance of every call per locking level, and its table. */
#define VRC_MSG_OPS(level, locked)                                            \
	static __noinline ssize_t level##_recv_any(                           \
		struct fid_ep *ep, void *buf, size_t len, void *desc,         \
		fi_addr_t src_addr, void *context)                            \
	{                                                                     \
		const struct iovec iov = { buf, len };                        \
                                                                              \
		return recv_iov(ep, &iov, &desc, 1, context, locked);         \
	}                                                                     \
	static ssize_t level##_recv(struct fid_ep *ep, void *buf, size_t len, \
				    void *desc, fi_addr_t src_addr,           \
				    void *context)                            \
	{                                                                     \
		if (unlikely(!vrc_recv_start(vrc_ep(ep), len, desc, locked))) \
			return level##_recv_any(ep, buf, len, desc, src_addr, \
						context);                     \
		return vrc_recv_post(vrc_ep(ep), buf, len, desc, context,     \
				     locked);                                 \
	}                                                                     \
	static ssize_t level##_recvv(struct fid_ep *ep,                       \
				     const struct iovec *iov, void **desc,    \
				     size_t cnt, fi_addr_t src_addr,          \
				     void *context)                           \
	{                                                                     \
		return recv_iov(ep, iov, desc, cnt, context, locked);         \
	}                                                                     \
	static ssize_t level##_recvmsg(struct fid_ep *ep,                     \
				       const struct fi_msg *msg,              \
				       uint64_t flags)                        \
	{                                                                     \
		return recv_msg(ep, msg, flags, locked);                      \
	}                                                                     \
	static __noinline ssize_t level##_send_any(                           \
		struct fid_ep *ep, const void *buf, size_t len, void *desc,   \
		void *context)                                                \
	{                                                                     \
		const struct iovec iov = { (void *)(uintptr_t)buf, len };     \
                                                                              \
		return send_iov(ep, &iov, &desc, 1, context, locked);         \
	}                                                                     \
	static ssize_t level##_send(struct fid_ep *ep, const void *buf,       \
				    size_t len, void *desc,                   \
				    fi_addr_t dest_addr, void *context)       \
	{                                                                     \
		const struct vrc_small_op small = {                           \
			.kind = VRC_SMALL_SEND,                               \
			.op = VRC_OP_SEND,                                    \
			.buf = buf,                                           \
			.len = len,                                           \
			.context = context,                                   \
			.flags = vrc_ep(ep)->small_flags,                     \
		};                                                            \
                                                                              \
		if (unlikely(!vrc_small_start(vrc_ep(ep), &small, locked)))   \
			return level##_send_any(ep, buf, len, desc, context); \
		return vrc_small_post(vrc_ep(ep), &small, locked);            \
	}                                                                     \
	static ssize_t level##_sendv(struct fid_ep *ep,                       \
				     const struct iovec *iov, void **desc,    \
				     size_t cnt, fi_addr_t dest_addr,         \
				     void *context)                           \
	{                                                                     \
		return send_iov(ep, iov, desc, cnt, context, locked);         \
	}                                                                     \
	static __noinline ssize_t level##_sendmsg_data(                       \
		struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)  \
	{                                                                     \
		return send_msg(ep, msg, flags, IBV_WR_SEND_WITH_IMM,         \
				locked);                                      \
	}                                                                     \
	static ssize_t level##_sendmsg(struct fid_ep *ep,                     \
				       const struct fi_msg *msg,              \
				       uint64_t flags)                        \
	{                                                                     \
		if (flags & FI_REMOTE_CQ_DATA)                                \
			return level##_sendmsg_data(ep, msg, flags);          \
		return send_msg(ep, msg, flags, IBV_WR_SEND, locked);         \
	}                                                                     \
	static __noinline ssize_t level##_inject_any(                         \
		struct fid_ep *ep, const void *buf, size_t len)               \
	{                                                                     \
		return send_inject(ep, buf, len, 0, IBV_WR_SEND, locked);     \
	}                                                                     \
	static ssize_t level##_inject(struct fid_ep *ep, const void *buf,     \
				      size_t len, fi_addr_t dest_addr)        \
	{                                                                     \
		const struct vrc_small_op small = {                           \
			.kind = VRC_SMALL_SEND,                               \
			.op = VRC_OP_SEND,                                    \
			.buf = buf,                                           \
			.len = len,                                           \
			.flags = vrc_ep(ep)->tx.req_flags,                    \
		};                                                            \
                                                                              \
		if (unlikely(!vrc_small_start(vrc_ep(ep), &small, locked)))   \
			return level##_inject_any(ep, buf, len);              \
		return vrc_small_post(vrc_ep(ep), &small, locked);            \
	}                                                                     \
	static ssize_t level##_senddata(struct fid_ep *ep, const void *buf,   \
					size_t len, void *desc,               \
					uint64_t data, fi_addr_t dest_addr,   \
					void *context)                        \
	{                                                                     \
		return send_data(ep, buf, len, desc, data, context, locked);  \
	}                                                                     \
	static ssize_t level##_injectdata(struct fid_ep *ep, const void *buf, \
					  size_t len, uint64_t data,          \
					  fi_addr_t dest_addr)                \
	{                                                                     \
		return send_inject(ep, buf, len, data, IBV_WR_SEND_WITH_IMM,  \
				   locked);                                   \
	}                                                                     \
	const struct fi_ops_msg vrc_msg_ops_##level = {                       \
		.size = sizeof(struct fi_ops_msg),                            \
		.recv = level##_recv,                                         \
		.recvv = level##_recvv,                                       \
		.recvmsg = level##_recvmsg,                                   \
		.send = level##_send,                                         \
		.sendv = level##_sendv,                                       \
		.sendmsg = level##_sendmsg,                                   \
		.inject = level##_inject,                                     \
		.senddata = level##_senddata,                                 \
		.injectdata = level##_injectdata,                             \
	};                                                                    \
	const struct fi_ops_msg vrc_msg_ops_##level##_srx = {                 \
		.size = sizeof(struct fi_ops_msg),                            \
		.recv = vrc_nosys_recv,                                       \
		.recvv = vrc_nosys_recvv,                                     \
		.recvmsg = vrc_nosys_msg,                                     \
		.send = level##_send,                                         \
		.sendv = level##_sendv,                                       \
		.sendmsg = level##_sendmsg,                                   \
		.inject = level##_inject,                                     \
		.senddata = level##_senddata,                                 \
		.injectdata = level##_injectdata,                             \
	};

VRC_MSG_OPS(locked, true)
VRC_MSG_OPS(unlocked, false)
