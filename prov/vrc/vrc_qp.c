/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * An endpoint's queue pair: made when the endpoint is enabled, brought up by
 * ourselves so that timers and MTU are ours to choose and to report, moved to
 * ERR by ourselves because rdma_disconnect does not do it on every path.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_more.h"
#include "vrc_mr.h"
#include "vrc_params.h"
#include "vrc_post.h"
#include "vrc_srx.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

enum {
	/* 7: without end, as the sender of a message may expect. */
	QP_RNR_RETRY = 7,
};

static int ring_init(struct vrc_ring *ring, struct vrc_ep *ep, size_t size)
{
	size_t cnt = pow2_at_least(size);

	ring->req = calloc(cnt, sizeof(*ring->req));
	if (!ring->req)
		return -FI_ENOMEM;
	ring->mask = (uint32_t)cnt - 1;
	ring->size = (uint32_t)size;
	for (size_t i = 0; i < cnt; i++) {
		ring->req[i].ep = ep;
		ring->req[i].slot = (uint32_t)i;
	}
	if (ring->unordered || ring->counted_on || ep->local_reg)
		ring->req_flags = VRC_REQ_SPECIAL;
	return ep->local_reg ? vrc_local_open(ring) : 0;
}

static void ring_fini(struct vrc_ring *ring)
{
	free(ring->req);
	free(ring->mrs);
	ring->req = NULL;
	ring->mrs = NULL;
}

/* Memory from which what is injected goes out, where the device inlines less
 * than we promised. */
static int bounce_open(struct vrc_ep *ep)
{
	size_t len = ((size_t)ep->tx.mask + 1) * ep->inject_size;

	if (ep->inline_size >= ep->inject_size)
		return 0;
	ep->bounce = malloc(len);
	if (!ep->bounce)
		return -FI_ENOMEM;
	ep->bounce_mr = ep->domain->ops->reg_mr(ep->domain->pd, ep->bounce, len,
						0);
	if (!ep->bounce_mr)
		return vrc_err(errno);
	ep->bounce_lkey = ep->bounce_mr->lkey;
	return 0;
}

/* The device may inline less than we would like, and says so only by refusing:
 * halve until it agrees. */
static struct ibv_qp *create_qp(struct vrc_ep *ep,
				struct ibv_qp_init_attr *attr)
{
	struct vrc_domain *domain = ep->domain;
	unsigned int max_inline = atomic_load(&domain->max_inline);
	uint32_t size = ep->inject_size;
	struct ibv_qp *qp;

	if (size > max_inline)
		size = max_inline;
	for (;;) {
		struct ibv_qp_init_attr try = *attr;

		try.cap.max_inline_data = size;
		qp = domain->ops->create_qp(domain->pd, &try);
		if (qp) {
			*attr = try;
			break;
		}
		if (!size || (errno != EINVAL && errno != ENOMEM))
			return NULL;
		size /= 2;
		if (size < 16)
			size = 0;
	}
	if (size < ep->inject_size && size < max_inline)
		atomic_store(&domain->max_inline, size);
	return qp;
}

static int qp_to_init(struct vrc_ep *ep)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = ep->port_num,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};
	int ret;

	if (ep->info->caps & FI_ATOMIC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	ret = ep->domain->ops->modify_qp(ep->qp, &attr,
					 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						 IBV_QP_PORT |
						 IBV_QP_ACCESS_FLAGS);
	if (ret)
		vrc_warn(EP_CTRL, "ep %p: queue pair to INIT on %s port %u: %s\n",
			 (void *)ep, ep->domain->dev->name, ep->port_num,
			 fi_strerror(-vrc_err(ret)));
	return ret ? vrc_err(ret) : 0;
}

static void explain(const struct vrc_ep *ep, int err)
{
	const struct ibv_device_attr *attr = &ep->domain->dev->attr;

	vrc_warn(EP_CTRL, "ep %p: no queue pair on %s: %s; asked for %u sends "
		 "and %u receives (device limit %d each), the device has %d "
		 "queue pairs in all\n", (const void *)ep,
		 ep->domain->dev->name, fi_strerror(err), ep->tx.size,
		 ep->rx.size, attr->max_qp_wr, attr->max_qp);
}

int vrc_qp_create(struct vrc_ep *ep)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = ep->tx_cq->cq,
		.recv_cq = ep->rx_cq->cq,
		.srq = vrc_srx_srq(ep),
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = (uint32_t)ep->info->tx_attr->size +
				       VRC_CREDIT_WRITES,
			.max_recv_wr = (uint32_t)ep->info->rx_attr->size,
			.max_send_sge =
				(uint32_t)ep->info->tx_attr->iov_limit,
			.max_recv_sge =
				(uint32_t)ep->info->rx_attr->iov_limit,
		},
	};
	int ret;

	ret = vrc_credit_open(ep);
	if (ret)
		goto err_destroy;
	ep->tx.unordered = ep->domain->dev->is_iwarp;
	ep->tx.counted_on = vrc_cntr_tx(ep);
	/* The pieces of a read may need the whole of a small queue: then nothing
	 * may stay in it for want of a signal. */
	ep->tx.signal_all = ep->tx.unordered || ep->tx.counted_on ||
			    ep->info->tx_attr->size <= VRC_IOV_LIMIT;
	ep->rx.counted_on = vrc_cntr_rx(ep);
	ret = ring_init(&ep->tx, ep, ep->info->tx_attr->size);
	if (ret)
		goto err_destroy;
	if (attr.srq)
		attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
	else
		ret = ring_init(&ep->rx, ep, ep->info->rx_attr->size);
	if (ret)
		goto err_destroy;
	ep->qp = create_qp(ep, &attr);
	if (!ep->qp) {
		ret = vrc_err(errno);
		explain(ep, -ret);
		goto err_destroy;
	}
	ep->qp_num = ep->qp->qp_num;
	ep->inline_size = attr.cap.max_inline_data;
	ret = bounce_open(ep);
	if (!ret)
		ret = vrc_more_open(ep);
	if (ret)
		goto err_destroy;
	ret = qp_to_init(ep);
	if (ret)
		goto err_destroy;
	vrc_small_setup(ep);
	return 0;

err_destroy:
	vrc_qp_destroy(ep);
	return ret;
}

void vrc_qp_destroy(struct vrc_ep *ep)
{
	const struct vrc_verbs_ops *ops = ep->domain->ops;
	int ret;

	if (ep->qp) {
		ret = ops->destroy_qp(ep->qp);
		if (ret)
			vrc_warn(EP_CTRL, "ep %p: queue pair 0x%x cannot be "
				 "destroyed: %s\n", (void *)ep, ep->qp->qp_num,
				 fi_strerror(-vrc_err(ret)));
		ep->qp = NULL;
	}
	if (ep->bounce_mr)
		ops->dereg_mr(ep->bounce_mr);
	ep->bounce_mr = NULL;
	free(ep->bounce);
	ep->bounce = NULL;
	vrc_more_close(ep);
	vrc_credit_close(ep);
	ring_fini(&ep->tx);
	ring_fini(&ep->rx);
}

/* What the queue pair ended up with, which is not always what was asked. */
static void report(struct vrc_ep *ep)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	char src[VRC_ADDRSTR];
	char dst[VRC_ADDRSTR];

	if (ep->domain->ops->query_qp(ep->qp, &attr,
				      IBV_QP_TIMEOUT | IBV_QP_PATH_MTU |
					      IBV_QP_MIN_RNR_TIMER |
					      IBV_QP_MAX_QP_RD_ATOMIC |
					      IBV_QP_AV | IBV_QP_RETRY_CNT,
				      &init))
		return;
	vrc_info(EP_CTRL, "ep %p: %s port %u, %s -> %s, qpn 0x%x -> 0x%x, gid "
		 "index %u, mtu %u, ack timeout %u (%" PRIu64 " us) x %u, rnr "
		 "timer %u, reads in flight %u, inline %u\n", (void *)ep,
		 ep->domain->dev->name, ep->port_num,
		 vrc_sockaddr_str(&ep->cm.src.sa, src),
		 vrc_sockaddr_str(&ep->cm.dst.sa, dst), ep->qp->qp_num,
		 attr.dest_qp_num, attr.ah_attr.grh.sgid_index,
		 128u << attr.path_mtu, attr.timeout,
		 (UINT64_C(4096) << attr.timeout) / 1000, attr.retry_cnt + 1u,
		 attr.min_rnr_timer, attr.max_rd_atomic, ep->inline_size);
	if (vrc_params.ack_timeout >= 0 &&
	    attr.timeout != vrc_params.ack_timeout)
		vrc_warn(EP_CTRL, "ep %p: FI_VRC_ACK_TIMEOUT=%d asked for, the "
			 "device took %u\n", (void *)ep,
			 vrc_params.ack_timeout, attr.timeout);
}

/* The GID that was asked for may be the reason. */
static void explain_step(const struct vrc_ep *ep, enum ibv_qp_state state,
			 int err)
{
	const struct vrc_dev *dev = ep->domain->dev;
	bool rtr = state == IBV_QPS_RTR;
	char gid[100] = "";

	if (rtr && vrc_params.gid_index >= 0)
		snprintf(gid, sizeof(gid), "; FI_VRC_GID_INDEX is %d, and "
			 "port %u has %d GIDs", vrc_params.gid_index,
			 ep->port_num,
			 dev->ports[ep->port_num - 1].gid_tbl_len);
	vrc_warn(EP_CTRL, "ep %p: queue pair 0x%x on %s to %s: %s%s\n",
		 (const void *)ep, ep->qp->qp_num, dev->name,
		 rtr ? "RTR" : "RTS", fi_strerror(err), gid);
}

static int step(struct vrc_ep *ep, enum ibv_qp_state state)
{
	const struct vrc_verbs_ops *ops = ep->domain->ops;
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;
	int ret;

	if (ops->init_qp_attr(ep->cm.id, &attr, &mask))
		/* The id is good, so it is the peer that has gone since; its
		 * goodbye is still in the channel. */
		return errno == EINVAL ? -FI_ECONNRESET : vrc_err(errno);
	if (state == IBV_QPS_RTR) {
		/* rdma_cm leaves 0 here, which IBTA reads as 655 ms. */
		attr.min_rnr_timer = (uint8_t)vrc_params.min_rnr_timer;
		mask |= IBV_QP_MIN_RNR_TIMER;
		if (vrc_params.gid_index >= 0 && attr.ah_attr.is_global)
			attr.ah_attr.grh.sgid_index =
				(uint8_t)vrc_params.gid_index;
	} else {
		/* Of these the device takes notice on the way to RTS only. */
		attr.rnr_retry = QP_RNR_RETRY;
		if (vrc_params.ack_timeout >= 0)
			attr.timeout = (uint8_t)vrc_params.ack_timeout;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RNR_RETRY;
	}
	ret = ops->modify_qp(ep->qp, &attr, mask);
	if (ret)
		explain_step(ep, state, -vrc_err(ret));
	return ret ? vrc_err(ret) : 0;
}

int vrc_qp_connect(struct vrc_ep *ep)
{
	int ret;

	/* On iWARP the kernel owns the stream and moves the queue pair. */
	if (ep->domain->dev->is_iwarp)
		return 0;
	ret = step(ep, IBV_QPS_RTR);
	if (!ret)
		ret = step(ep, IBV_QPS_RTS);
	if (!ret)
		report(ep);
	return ret;
}

void vrc_qp_error(struct vrc_ep *ep)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	uint64_t none = 0;
	int ret;

	if (!ep->qp ||
	    !atomic_compare_exchange_strong(&ep->flush_deadline_ms, &none,
					    vrc_now_ms() +
						    VRC_FLUSH_TIMEOUT_MS))
		return;
	atomic_fetch_add(&ep->tx_cq->due_cnt, 1);
	atomic_fetch_add(&ep->rx_cq->due_cnt, 1);
	ret = ep->domain->ops->modify_qp(ep->qp, &attr, IBV_QP_STATE);
	if (ret)
		vrc_dbg(EP_CTRL, "ep %p: queue pair 0x%x to ERR: %s\n",
			(void *)ep, ep->qp->qp_num, fi_strerror(-vrc_err(ret)));
}
