/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The completion queue as an object: opening, the entries it must have room
 * for, errors. Reading is in vrc_cq_read.c, waiting in vrc_cq_wait.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "list.h"
#include "vrc.h"
#include "vrc_cq.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_fabric.h"
#include "vrc_log.h"
#include "vrc_nosys.h"
#include "vrc_stats.h"
#include "vrc_util.h"
#include "vrc_wait.h"
#include "word_lock.h"

enum {
	CQ_DEFAULT_SIZE = 1024,
	/* Devices that cannot resize a queue get one with room to spare. */
	CQ_IWARP_MIN_SIZE = 65536,
};

static int cq_close(struct fid *fid)
{
	struct vrc_cq *cq = container_of(fid, struct vrc_cq, fid.fid);
	struct vrc_domain *domain = cq->domain;
	struct list *node;

	if (atomic_load(&cq->ref))
		return -FI_EBUSY;
	if (cq->unacked_events)
		domain->ops->ack_cq_events(cq->cq, cq->unacked_events);
	cq->unacked_events = 0;
	vrc_wait_leave(cq->wait_set, fid);
	domain->ops->destroy_cq(cq->cq);
	vrc_cq_wait_close(cq);
	while ((node = list_pop(&cq->soft)))
		free(list_entry(node, struct vrc_soft, node));
	atomic_fetch_sub(&domain->ref, 1);
	free(cq);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct vrc_cq *cq = container_of(fid, struct vrc_cq, fid.fid);

	switch (command) {
	case FI_GETWAIT:
		if (!arg)
			return -FI_EINVAL;
		if (!cq->channel)
			return -FI_ENODATA;
		*(int *)arg = cq->epoll_fd;
		return 0;
	case FI_GETWAITOBJ:
		if (!arg)
			return -FI_EINVAL;
		*(enum fi_wait_obj *)arg =
			cq->wait_set ? FI_WAIT_SET :
			cq->channel  ? FI_WAIT_FD :
				       FI_WAIT_NONE;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

const char *vrc_cq_strerror(struct fid_cq *fid, int prov_errno,
			    const void *err_data, char *buf, size_t len)
{
	struct vrc_cq *cq = vrc_cq(fid);
	const char *text =
		cq->domain->ops->wc_status_str((enum ibv_wc_status)prov_errno);

	if (buf && len)
		snprintf(buf, len, "%s", text);
	return text;
}

ssize_t vrc_cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *entry,
		       uint64_t flags)
{
	struct vrc_cq *cq = vrc_cq(fid);
	uint32_t api_version = cq->domain->fabric->fid.api_version;
	const char *text;
	size_t size;
	ssize_t ret = -FI_EAGAIN;

	if (cq->thread_safe)
		word_lock_take(&cq->lock);
	if (!vrc_cq_has_entry(cq) || !cq->head.err)
		goto out;
	entry->op_context = cq->head.context;
	entry->flags = cq->head.flags;
	entry->len = cq->head.len;
	entry->buf = NULL;
	entry->data = cq->head.data;
	entry->tag = 0;
	entry->olen = 0;
	entry->err = cq->head.err;
	entry->prov_errno = cq->head.prov_errno;
	/* Before 1.5 the fields were output only; then err_data_size became
	 * the size of the caller's buffer, 0 for none. */
	if (api_version < FI_VERSION(1, 5)) {
		entry->err_data = NULL;
		entry->err_data_size = 0;
	} else if (entry->err_data && entry->err_data_size) {
		text = vrc_cq_strerror(fid, entry->prov_errno, NULL, NULL, 0);
		size = min_size(strlen(text) + 1, entry->err_data_size);
		memcpy(entry->err_data, text, size);
		((char *)entry->err_data)[size - 1] = '\0';
		entry->err_data_size = size;
	}
	cq->has_head = false;
	ret = 1;
out:
	if (cq->thread_safe)
		word_lock_drop(&cq->lock);
	return ret;
}

int vrc_cq_reserve(struct vrc_cq *cq, int cnt)
{
	int max = cq->domain->dev->attr.max_cqe;
	int want;
	int ret = 0;

	word_lock_take(&cq->lock);
	want = cq->reserved + cnt;
	if (want > cq->cq->cqe && want > max)
		ret = ENOSPC;
	else if (want > cq->cq->cqe)
		/* Double, so that many endpoints do not resize it each time. */
		ret = cq->domain->ops->resize_cq(
			cq->cq, want > max / 2 ? max : want * 2);
	if (!ret)
		cq->reserved = want;
	word_lock_drop(&cq->lock);
	if (!ret)
		return 0;
	vrc_warn(CQ, "cq %p on %s: its endpoints may need %d entries, it has "
		 "%d and cannot grow (device limit %d): %s; open it with that "
		 "size\n", (void *)cq, cq->domain->dev->name, want,
		 cq->cq->cqe, max, fi_strerror(-vrc_err(ret)));
	return -FI_ENOSPC;
}

void vrc_cq_unreserve(struct vrc_cq *cq, int cnt)
{
	word_lock_take(&cq->lock);
	cq->reserved -= cnt;
	word_lock_drop(&cq->lock);
}

static const struct fi_ops cq_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.bind = vrc_nosys_bind,
	.control = cq_control,
	.ops_open = vrc_stats_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static int attr_check(const struct fi_cq_attr *attr)
{
	if (attr->wait_obj != FI_WAIT_NONE &&
	    attr->wait_cond != FI_CQ_COND_NONE) {
		vrc_warn(CQ, "fi_cq_open: wait condition %d not supported\n",
			 attr->wait_cond);
		return -FI_ENOSYS;
	}
	if (attr->flags & ~(uint64_t)FI_AFFINITY) {
		vrc_warn(CQ, "fi_cq_open: flags 0x%" PRIx64 " not supported\n",
			 attr->flags);
		return -FI_EBADFLAGS;
	}
	return 0;
}

/* Entries to ask the device for. */
static int size_clamp(const struct vrc_dev *dev, size_t size)
{
	size_t max = (size_t)dev->attr.max_cqe;

	if (!size)
		size = CQ_DEFAULT_SIZE;
	if (dev->is_iwarp)
		size = max_size(size, CQ_IWARP_MIN_SIZE);
	if (size > max) {
		vrc_info(CQ, "cq on %s: %zu entries asked for, the device's "
			 "limit is %zu\n", dev->name, size, max);
		size = max;
	}
	return (int)size;
}

int vrc_cq_open(struct fid_domain *domain_fid, struct fi_cq_attr *attr,
		struct fid_cq **out, void *context)
{
	struct vrc_domain *domain = vrc_domain(domain_fid);
	const struct fi_ops_cq *ops;
	struct vrc_cq *cq;
	int vector;
	int ret;

	if (!attr)
		return -FI_EINVAL;
	ret = vrc_wait_obj_check("fi_cq_open", domain->fabric, attr->wait_obj,
				 attr->wait_set);
	if (!ret)
		ret = attr_check(attr);
	if (ret)
		return ret;
	ops = vrc_cq_ops(attr->format, domain->cq_thread_safe);
	if (!ops) {
		vrc_warn(CQ, "fi_cq_open: format %d not known\n", attr->format);
		return -FI_EINVAL;
	}
	vector = (attr->flags & FI_AFFINITY) ? attr->signaling_vector : 0;
	if (vector < 0 || (vector && vector >= domain->verbs->num_comp_vectors)) {
		vrc_warn(CQ, "fi_cq_open: signaling vector %d, %s has %d\n",
			 vector, domain->dev->name,
			 domain->verbs->num_comp_vectors);
		return -FI_EINVAL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	cq->domain = domain;
	cq->thread_safe = domain->cq_thread_safe;
	cq->epoll_fd = -1;
	cq->signal_fd = -1;
	list_init(&cq->soft);
	list_init(&cq->tx_eps);
	list_init(&cq->rx_eps);
	if (attr->wait_obj != FI_WAIT_NONE) {
		ret = vrc_cq_wait_open(cq);
		if (ret)
			goto err_wait_close;
	}
	cq->cq = domain->ops->create_cq(domain->verbs,
					size_clamp(domain->dev, attr->size), cq,
					cq->channel, vector);
	if (!cq->cq) {
		ret = vrc_err(errno);
		vrc_warn(CQ, "cq on %s: %zu entries cannot be had: %s\n",
			 domain->dev->name, attr->size, fi_strerror(-ret));
		goto err_wait_close;
	}
	word_lock_init(&cq->lock);
	word_lock_init(&cq->sleep_lock);
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = VRC_OPS(&cq_fi_ops);
	cq->fid.ops = VRC_OPS(ops);
	if (attr->wait_obj == FI_WAIT_SET) {
		ret = vrc_wait_join(attr->wait_set, &cq->fid.fid, cq->epoll_fd);
		if (ret)
			goto err_destroy_cq;
		cq->wait_set = attr->wait_set;
	}
	atomic_fetch_add(&domain->ref, 1);
	*out = &cq->fid;
	return 0;

err_destroy_cq:
	domain->ops->destroy_cq(cq->cq);
err_wait_close:
	vrc_cq_wait_close(cq);
	free(cq);
	return ret;
}
