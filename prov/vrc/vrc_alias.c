/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_ep_alias(3): a second front to an endpoint, with default flags of its own.
 * Each call becomes the one of the endpoint that takes flags, so that the endpoint
 * itself pays nothing for having aliases.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_alias.h"
#include "vrc_compat.h"
#include "vrc_ep.h"
#include "vrc_nosys.h"
#include "vrc_stats.h"

/* ---- messages ---- */

static ssize_t alias_recvv(struct fid_ep *fid, const struct iovec *iov,
			   void **desc, size_t cnt, fi_addr_t src_addr,
			   void *context)
{
	const struct fi_msg msg = { .msg_iov = iov,
				    .desc = desc,
				    .iov_count = cnt,
				    .context = context };

	return fi_recvmsg(vrc_alias_parent(fid), &msg, vrc_alias(fid)->rx_flags);
}

static ssize_t alias_recv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			  fi_addr_t src_addr, void *context)
{
	const struct iovec iov = { buf, len };

	return alias_recvv(fid, &iov, &desc, 1, src_addr, context);
}

static ssize_t alias_recvmsg(struct fid_ep *fid, const struct fi_msg *msg,
			     uint64_t flags)
{
	return fi_recvmsg(vrc_alias_parent(fid), msg, flags);
}

static ssize_t send_flags(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t cnt, uint64_t data, void *context,
			  uint64_t flags)
{
	const struct fi_msg msg = { .msg_iov = iov,
				    .desc = desc,
				    .iov_count = cnt,
				    .context = context,
				    .data = data };

	return fi_sendmsg(vrc_alias_parent(fid), &msg, vrc_alias(fid)->tx_flags | flags);
}

static ssize_t alias_sendv(struct fid_ep *fid, const struct iovec *iov,
			   void **desc, size_t cnt, fi_addr_t dest_addr,
			   void *context)
{
	return send_flags(fid, iov, desc, cnt, 0, context, 0);
}

static ssize_t alias_send(struct fid_ep *fid, const void *buf, size_t len,
			  void *desc, fi_addr_t dest_addr, void *context)
{
	const struct iovec iov = { (void *)(uintptr_t)buf, len };

	return send_flags(fid, &iov, &desc, 1, 0, context, 0);
}

static ssize_t alias_senddata(struct fid_ep *fid, const void *buf, size_t len,
			      void *desc, uint64_t data, fi_addr_t dest_addr,
			      void *context)
{
	const struct iovec iov = { (void *)(uintptr_t)buf, len };

	return send_flags(fid, &iov, &desc, 1, data, context,
			  FI_REMOTE_CQ_DATA);
}

static ssize_t alias_sendmsg(struct fid_ep *fid, const struct fi_msg *msg,
			     uint64_t flags)
{
	return fi_sendmsg(vrc_alias_parent(fid), msg, flags);
}

static ssize_t alias_inject(struct fid_ep *fid, const void *buf, size_t len,
			    fi_addr_t dest_addr)
{
	return fi_inject(vrc_alias_parent(fid), buf, len, dest_addr);
}

static ssize_t alias_injectdata(struct fid_ep *fid, const void *buf, size_t len,
				uint64_t data, fi_addr_t dest_addr)
{
	return fi_injectdata(vrc_alias_parent(fid), buf, len, data, dest_addr);
}

static const struct fi_ops_msg alias_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = alias_recv,
	.recvv = alias_recvv,
	.recvmsg = alias_recvmsg,
	.send = alias_send,
	.sendv = alias_sendv,
	.sendmsg = alias_sendmsg,
	.inject = alias_inject,
	.senddata = alias_senddata,
	.injectdata = alias_injectdata,
};

/* ---- remote memory ---- */

static struct fi_msg_rma rma_msg(const struct iovec *iov, void **desc,
				 size_t cnt, struct fi_rma_iov *rma,
				 uint64_t data, void *context)
{
	struct fi_msg_rma msg = {
		.msg_iov = iov,
		.desc = desc,
		.iov_count = cnt,
		.rma_iov = rma,
		.rma_iov_count = 1,
		.context = context,
		.data = data,
	};

	for (size_t i = 0; i < cnt; i++)
		rma->len += iov[i].iov_len;
	return msg;
}

static ssize_t alias_readv(struct fid_ep *fid, const struct iovec *iov,
			   void **desc, size_t cnt, fi_addr_t src_addr,
			   uint64_t addr, uint64_t key, void *context)
{
	struct fi_rma_iov rma = { .addr = addr, .key = key };
	const struct fi_msg_rma msg =
		rma_msg(iov, desc, cnt, &rma, 0, context);

	return fi_readmsg(vrc_alias_parent(fid), &msg, vrc_alias(fid)->tx_flags);
}

static ssize_t alias_read(struct fid_ep *fid, void *buf, size_t len, void *desc,
			  fi_addr_t src_addr, uint64_t addr, uint64_t key,
			  void *context)
{
	const struct iovec iov = { buf, len };

	return alias_readv(fid, &iov, &desc, 1, src_addr, addr, key, context);
}

static ssize_t alias_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			     uint64_t flags)
{
	return fi_readmsg(vrc_alias_parent(fid), msg, flags);
}

static ssize_t alias_writev(struct fid_ep *fid, const struct iovec *iov,
			    void **desc, size_t cnt, fi_addr_t dest_addr,
			    uint64_t addr, uint64_t key, void *context)
{
	struct fi_rma_iov rma = { .addr = addr, .key = key };
	const struct fi_msg_rma msg =
		rma_msg(iov, desc, cnt, &rma, 0, context);

	return fi_writemsg(vrc_alias_parent(fid), &msg, vrc_alias(fid)->tx_flags);
}

static ssize_t alias_write(struct fid_ep *fid, const void *buf, size_t len,
			   void *desc, fi_addr_t dest_addr, uint64_t addr,
			   uint64_t key, void *context)
{
	const struct iovec iov = { (void *)(uintptr_t)buf, len };

	return alias_writev(fid, &iov, &desc, 1, dest_addr, addr, key, context);
}

static ssize_t alias_writedata(struct fid_ep *fid, const void *buf, size_t len,
			       void *desc, uint64_t data, fi_addr_t dest_addr,
			       uint64_t addr, uint64_t key, void *context)
{
	const struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct fi_rma_iov rma = { .addr = addr, .key = key };
	const struct fi_msg_rma msg =
		rma_msg(&iov, &desc, 1, &rma, data, context);

	return fi_writemsg(vrc_alias_parent(fid), &msg,
			   vrc_alias(fid)->tx_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t alias_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			      uint64_t flags)
{
	return fi_writemsg(vrc_alias_parent(fid), msg, flags);
}

static ssize_t alias_inject_write(struct fid_ep *fid, const void *buf,
				  size_t len, fi_addr_t dest_addr,
				  uint64_t addr, uint64_t key)
{
	return fi_inject_write(vrc_alias_parent(fid), buf, len, dest_addr, addr, key);
}

static ssize_t alias_inject_writedata(struct fid_ep *fid, const void *buf,
				      size_t len, uint64_t data,
				      fi_addr_t dest_addr, uint64_t addr,
				      uint64_t key)
{
	return fi_inject_writedata(vrc_alias_parent(fid), buf, len, data, dest_addr, addr,
				   key);
}

static const struct fi_ops_rma alias_rma_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = alias_read,
	.readv = alias_readv,
	.readmsg = alias_readmsg,
	.write = alias_write,
	.writev = alias_writev,
	.writemsg = alias_writemsg,
	.inject = alias_inject_write,
	.writedata = alias_writedata,
	.injectdata = alias_inject_writedata,
};

/* ---- connection, options ---- */

static int alias_setname(fid_t fid, void *addr, size_t len)
{
	return fi_setname(&vrc_alias_parent(container_of(fid, struct fid_ep, fid))->fid,
			  addr, len);
}

static int alias_getname(fid_t fid, void *addr, size_t *len)
{
	return fi_getname(&vrc_alias_parent(container_of(fid, struct fid_ep, fid))->fid,
			  addr, len);
}

static int alias_getpeer(struct fid_ep *fid, void *addr, size_t *len)
{
	return fi_getpeer(vrc_alias_parent(fid), addr, len);
}

static int alias_connect(struct fid_ep *fid, const void *addr,
			 const void *param, size_t len)
{
	return fi_connect(vrc_alias_parent(fid), addr, param, len);
}

static int alias_listen(struct fid_pep *pep)
{
	return -FI_ENOSYS;
}

static int alias_accept(struct fid_ep *fid, const void *param, size_t len)
{
	return fi_accept(vrc_alias_parent(fid), param, len);
}

static int alias_reject(struct fid_pep *pep, fid_t handle, const void *param,
			size_t len)
{
	return -FI_ENOSYS;
}

static int alias_shutdown(struct fid_ep *fid, uint64_t flags)
{
	return fi_shutdown(vrc_alias_parent(fid), flags);
}

static int alias_join(struct fid_ep *fid, const void *addr, uint64_t flags,
		      struct fid_mc **mc, void *context)
{
	return -FI_ENOSYS;
}

static const struct fi_ops_cm alias_cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = alias_setname,
	.getname = alias_getname,
	.getpeer = alias_getpeer,
	.connect = alias_connect,
	.listen = alias_listen,
	.accept = alias_accept,
	.reject = alias_reject,
	.shutdown = alias_shutdown,
	.join = alias_join,
};

static ssize_t alias_cancel(fid_t fid, void *context)
{
	return fi_cancel(&vrc_alias_parent(container_of(fid, struct fid_ep, fid))->fid,
			 context);
}

static int alias_getopt(fid_t fid, int level, int name, void *val, size_t *len)
{
	return fi_getopt(&vrc_alias_parent(container_of(fid, struct fid_ep, fid))->fid,
			 level, name, val, len);
}

static int alias_setopt(fid_t fid, int level, int name, const void *val,
			size_t len)
{
	return fi_setopt(&vrc_alias_parent(container_of(fid, struct fid_ep, fid))->fid,
			 level, name, val, len);
}

static int alias_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
			struct fid_ep **tx_ep, void *context)
{
	return -FI_ENOSYS;
}

static int alias_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
			struct fid_ep **rx_ep, void *context)
{
	return -FI_ENOSYS;
}

static ssize_t alias_rx_size_left(struct fid_ep *fid)
{
	struct fid_ep *ep = vrc_alias_parent(fid);

	return ep->ops->rx_size_left(ep);
}

static ssize_t alias_tx_size_left(struct fid_ep *fid)
{
	struct fid_ep *ep = vrc_alias_parent(fid);

	return ep->ops->tx_size_left(ep);
}

static const struct vrc_ep_table alias_ep_ops = {
	.ops = {
		.size = sizeof(struct fi_ops_ep),
		.cancel = alias_cancel,
		.getopt = alias_getopt,
		.setopt = alias_setopt,
		.tx_ctx = alias_tx_ctx,
		.rx_ctx = alias_rx_ctx,
		.rx_size_left = alias_rx_size_left,
		.tx_size_left = alias_tx_size_left,
	},
	VRC_LATER,
};

/* ---- the alias itself ---- */

static int alias_close(struct fid *fid)
{
	struct vrc_alias *alias = container_of(fid, struct vrc_alias, fid.fid);

	atomic_fetch_sub(&alias->ep->aliases, 1);
	free(alias);
	return 0;
}

static int alias_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	return fi_ep_bind(vrc_alias_parent(container_of(fid, struct fid_ep, fid)), bfid,
			  flags);
}

static int alias_control(struct fid *fid, int command, void *arg)
{
	struct vrc_alias *alias = container_of(fid, struct vrc_alias, fid.fid);

	switch (command) {
	case FI_GETOPSFLAG:
	case FI_SETOPSFLAG:
		return vrc_ep_op_flags(alias->ep, command, arg,
				       &alias->tx_flags, &alias->rx_flags);
	default:
		return fi_control(&alias->ep->fid.fid, command, arg);
	}
}

static const struct fi_ops alias_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = alias_close,
	.bind = alias_bind,
	.control = alias_control,
	.ops_open = vrc_stats_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

bool vrc_is_alias(const struct fid *fid)
{
	return fid->ops == &alias_fi_ops;
}

int vrc_ep_alias(struct vrc_ep *ep, struct fi_alias *arg)
{
	struct vrc_alias *alias;
	int ret;

	if (!arg || !arg->fid)
		return -FI_EINVAL;
	alias = calloc(1, sizeof(*alias));
	if (!alias)
		return -FI_ENOMEM;
	alias->tx_flags = ep->tx_op_flags;
	alias->rx_flags = ep->rx_op_flags;
	if (arg->flags) {
		ret = vrc_ep_op_flags(ep, FI_SETOPSFLAG, &arg->flags,
				      &alias->tx_flags, &alias->rx_flags);
		if (ret) {
			free(alias);
			return ret;
		}
	}
	alias->ep = ep;
	atomic_fetch_add(&ep->aliases, 1);
	alias->fid = ep->fid;
	alias->fid.fid.ops = VRC_OPS(&alias_fi_ops);
	alias->fid.ops = VRC_OPS(&alias_ep_ops);
	alias->fid.cm = VRC_OPS(&alias_cm_ops);
	alias->fid.msg = VRC_OPS(&alias_msg_ops);
	alias->fid.rma = VRC_OPS(&alias_rma_ops);
	alias->fid.atomic = VRC_OPS(&vrc_alias_atomic_ops);
	*arg->fid = &alias->fid.fid;
	return 0;
}
