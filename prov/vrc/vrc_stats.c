/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Statistics for fi_open_ops(3): names and values. The data path counts nothing
 * for them: they are what is there anyway, what is counted where something went
 * wrong, and what the queue pair says of itself when it is asked.
 */
#include <inttypes.h>
#include <string.h>

#include <rdma/fi_ext_vrc.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_alias.h"
#include "vrc_cq.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_post.h"
#include "vrc_stats.h"
#include "word_lock.h"

/* Where the values go: as many as fit, and how many there are. */
struct out {
	struct fi_vrc_stat *stats;
	size_t room;
	size_t cnt;
};

static void put(struct out *out, const char *name, uint64_t value)
{
	if (out->cnt < out->room)
		out->stats[out->cnt] = (struct fi_vrc_stat){ name, value };
	out->cnt++;
}

static void put_ring(struct out *out, const struct vrc_ring *ring,
		     const char *posted, const char *in_flight, const char *full)
{
	put(out, posted, atomic_load(&ring->head));
	put(out, in_flight, vrc_ring_used(ring));
	put(out, full, atomic_load(&ring->full));
}

/* What the connection runs with, which is not always what was asked for. */
static void put_qp(struct out *out, struct vrc_ep *ep)
{
	struct ibv_qp_init_attr init = { 0 };
	struct ibv_qp_attr attr = { 0 };
	bool up = atomic_load(&ep->state) == VRC_EP_CONNECTED &&
		  !ep->domain->ops->query_qp(
			  ep->qp, &attr,
			  IBV_QP_TIMEOUT | IBV_QP_PATH_MTU | IBV_QP_AV |
				  IBV_QP_MIN_RNR_TIMER | IBV_QP_RETRY_CNT |
				  IBV_QP_MAX_QP_RD_ATOMIC |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_RNR_RETRY |
				  IBV_QP_DEST_QPN,
			  &init);

	put(out, "connected", up);
	put(out, "qp_num", up ? ep->qp->qp_num : 0);
	put(out, "dest_qp_num", attr.dest_qp_num);
	put(out, "port_num", ep->port_num);
	put(out, "gid_index", attr.ah_attr.grh.sgid_index);
	put(out, "path_mtu", up ? 128u << attr.path_mtu : 0);
	/* IBTA: 0 is "never". */
	put(out, "ack_timeout_ns",
	    attr.timeout ? UINT64_C(4096) << (attr.timeout & 31) : 0);
	put(out, "retry_cnt", attr.retry_cnt);
	put(out, "rnr_retry", attr.rnr_retry);
	put(out, "min_rnr_timer", attr.min_rnr_timer);
	put(out, "max_rd_atomic", attr.max_rd_atomic);
	put(out, "max_dest_rd_atomic", attr.max_dest_rd_atomic);
	put(out, "inline_size", up ? ep->inline_size : 0);
}

static void put_ep(struct out *out, struct vrc_ep *ep)
{
	put_ring(out, &ep->tx, "tx_posted", "tx_in_flight", "tx_full");
	put_ring(out, &ep->rx, "rx_posted", "rx_in_flight", "rx_full");
	put(out, "tx_held_back", atomic_load(&ep->held_back));
	put(out, "errors", atomic_load(&ep->errors));
	put_qp(out, ep);
}

static void put_cq(struct out *out, struct vrc_cq *cq)
{
	word_lock_take(&cq->lock);
	put(out, "entries", (uint64_t)cq->cq->cqe);
	put(out, "entries_reserved", (uint64_t)cq->reserved);
	word_lock_drop(&cq->lock);
}

static void put_domain(struct out *out, struct vrc_domain *domain)
{
	put(out, "mr_cnt", atomic_load(&domain->mr_cnt));
	put(out, "mr_bytes", atomic_load(&domain->mr_bytes));
	put(out, "mr_failed", atomic_load(&domain->mr_failed));
}

/* An alias is of an endpoint's class, and has that endpoint's. */
static struct vrc_ep *ep_of(struct fid *fid)
{
	return vrc_is_alias(fid) ?
		       container_of(fid, struct vrc_alias, fid.fid)->ep :
		       container_of(fid, struct vrc_ep, fid.fid);
}

static int stats_read(struct fid *fid, struct fi_vrc_stat *stats, size_t *cnt)
{
	struct out out = { .stats = stats };

	if (!fid || !cnt || (*cnt && !stats))
		return -FI_EINVAL;
	out.room = *cnt;
	switch (fid->fclass) {
	case FI_CLASS_EP:
		/* Perhaps another provider's. */
		if (fid->ops->ops_open != vrc_stats_open)
			return -FI_EINVAL;
		put_ep(&out, ep_of(fid));
		break;
	case FI_CLASS_CQ:
		put_cq(&out, container_of(fid, struct vrc_cq, fid.fid));
		break;
	case FI_CLASS_DOMAIN:
		put_domain(&out, container_of(fid, struct vrc_domain, fid.fid));
		break;
	default:
		return -FI_EINVAL;
	}
	*cnt = out.cnt;
	return out.cnt > out.room ? -FI_ETOOSMALL : 0;
}

static const struct fi_vrc_ops_stats stats_ops = {
	.size = sizeof(struct fi_vrc_ops_stats),
	.read = stats_read,
};

int vrc_stats_open(struct fid *fid, const char *name, uint64_t flags,
		   void **ops, void *context)
{
	if (!name || !ops)
		return -FI_EINVAL;
	if (strcmp(name, FI_VRC_STATS))
		return -FI_ENOSYS;
	if (flags) {
		vrc_warn(CORE, "fi_open_ops: %s with flags 0x%" PRIx64 "; there "
			 "are none\n", name, flags);
		return -FI_EBADFLAGS;
	}
	*ops = VRC_OPS(&stats_ops);
	return 0;
}
