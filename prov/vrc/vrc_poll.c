/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Poll sets: one call that looks at several completion queues and counters, and
 * says in which of them something has come.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "compiler.h"
#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_domain.h"
#include "vrc_log.h"
#include "vrc_nosys.h"
#include "vrc_wait.h"
#include "word_lock.h"

struct vrc_poll {
	struct fid_poll fid;
	struct vrc_domain *domain;
	struct lock lock; /* guards members; before every member's own */
	struct list members;
};

struct member {
	struct list node;
	struct fid *fid;
	uint64_t value; /* of a counter, when it was last reported */
	uint64_t errors;
};

static struct vrc_poll *vrc_poll(struct fid_poll *fid)
{
	return container_of(fid, struct vrc_poll, fid);
}

static bool cq_has_news(struct vrc_cq *cq)
{
	bool has;

	if (cq->thread_safe)
		word_lock_take(&cq->lock);
	has = vrc_cq_has_entry(cq);
	if (cq->thread_safe)
		word_lock_drop(&cq->lock);
	return has;
}

static bool cntr_has_news(struct member *member)
{
	struct fid_cntr *cntr =
		container_of(member->fid, struct fid_cntr, fid);
	uint64_t value = fi_cntr_read(cntr);
	uint64_t errors = fi_cntr_readerr(cntr);
	bool news = value != member->value || errors != member->errors;

	member->value = value;
	member->errors = errors;
	return news;
}

static bool has_news(struct member *member)
{
	if (member->fid->fclass == FI_CLASS_CQ)
		return cq_has_news(container_of(member->fid, struct vrc_cq,
						fid.fid));
	return cntr_has_news(member);
}

/* Those that are told of go to the end, so that a short array starves nobody. */
static int poll_poll(struct fid_poll *fid, void **context, int count)
{
	struct vrc_poll *poll = vrc_poll(fid);
	struct list *pos, *tmp;
	struct list told;
	struct member *member;
	int cnt = 0;

	if (!context || count < 1) {
		vrc_warn(DOMAIN, "fi_poll: room for %d contexts at %p\n", count,
			 (void *)context);
		return -FI_EINVAL;
	}
	list_init(&told);
	lock_take(&poll->lock);
	list_for_each_safe(pos, tmp, &poll->members) {
		if (cnt == count)
			break;
		member = list_entry(pos, struct member, node);
		if (!has_news(member))
			continue;
		context[cnt++] = member->fid->context;
		list_del(&member->node);
		list_add_tail(&told, &member->node);
	}
	while ((pos = list_pop(&told)))
		list_add_tail(&poll->members, pos);
	lock_drop(&poll->lock);
	return cnt;
}

/* The references that keep fid from being closed; NULL: it cannot be polled. */
static atomic_int *refs_of(const struct vrc_poll *poll, struct fid *fid)
{
	struct vrc_cq *cq;

	switch (fid->fclass) {
	case FI_CLASS_CQ:
		cq = container_of(fid, struct vrc_cq, fid.fid);
		return cq->domain == poll->domain ? &cq->ref : NULL;
	case FI_CLASS_CNTR:
		return vrc_cntr_refs(fid, poll->domain);
	default:
		return NULL;
	}
}

static struct member *find(struct vrc_poll *poll, const struct fid *fid)
{
	struct member *member;
	struct list *pos;

	list_for_each(pos, &poll->members) {
		member = list_entry(pos, struct member, node);
		if (member->fid == fid)
			return member;
	}
	return NULL;
}

static int poll_add(struct fid_poll *poll_fid, struct fid *fid, uint64_t flags)
{
	struct vrc_poll *poll = vrc_poll(poll_fid);
	atomic_int *refs = refs_of(poll, fid);
	struct member *member;
	int ret = 0;

	if (flags)
		return -FI_EBADFLAGS;
	if (!refs) {
		vrc_warn(DOMAIN, "fi_poll_add: a fid of class %zu, or of "
			 "another domain; completion queues and counters of the "
			 "poll set's domain can be polled\n", fid->fclass);
		return -FI_EINVAL;
	}
	member = calloc(1, sizeof(*member));
	if (!member)
		return -FI_ENOMEM;
	member->fid = fid;
	lock_take(&poll->lock);
	if (find(poll, fid)) {
		ret = -FI_EALREADY;
	} else {
		atomic_fetch_add(refs, 1);
		list_add_tail(&poll->members, &member->node);
	}
	lock_drop(&poll->lock);
	if (ret)
		free(member);
	return ret;
}

static void member_free(struct vrc_poll *poll, struct member *member)
{
	atomic_fetch_sub(refs_of(poll, member->fid), 1);
	list_del(&member->node);
	free(member);
}

static int poll_del(struct fid_poll *poll_fid, struct fid *fid, uint64_t flags)
{
	struct vrc_poll *poll = vrc_poll(poll_fid);
	struct member *member;

	if (flags)
		return -FI_EBADFLAGS;
	lock_take(&poll->lock);
	member = find(poll, fid);
	if (member)
		member_free(poll, member);
	lock_drop(&poll->lock);
	return member ? 0 : -FI_ENOENT;
}

static int poll_close(struct fid *fid)
{
	struct vrc_poll *poll = container_of(fid, struct vrc_poll, fid.fid);
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &poll->members)
		member_free(poll, list_entry(pos, struct member, node));
	lock_fini(&poll->lock);
	atomic_fetch_sub(&poll->domain->ref, 1);
	free(poll);
	return 0;
}

static const struct fi_ops poll_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = poll_close,
	.bind = vrc_nosys_bind,
	.control = vrc_nosys_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = vrc_nosys_tostr,
	.ops_set = vrc_nosys_ops_set,
};

static const struct fi_ops_poll poll_ops = {
	.size = sizeof(struct fi_ops_poll),
	.poll = poll_poll,
	.poll_add = poll_add,
	.poll_del = poll_del,
};

int vrc_poll_open(struct fid_domain *domain_fid, struct fi_poll_attr *attr,
		  struct fid_poll **out)
{
	struct vrc_domain *domain = vrc_domain(domain_fid);
	struct vrc_poll *poll;

	if (attr && attr->flags) {
		vrc_warn(DOMAIN, "fi_poll_open: flags 0x%" PRIx64 " not "
			 "supported\n", attr->flags);
		return -FI_EBADFLAGS;
	}
	poll = calloc(1, sizeof(*poll));
	if (!poll)
		return -FI_ENOMEM;
	lock_init(&poll->lock);
	list_init(&poll->members);
	poll->domain = domain;
	atomic_fetch_add(&domain->ref, 1);
	poll->fid.fid.fclass = FI_CLASS_POLL;
	poll->fid.fid.ops = VRC_OPS(&poll_fi_ops);
	poll->fid.ops = VRC_OPS(&poll_ops);
	*out = &poll->fid;
	return 0;
}
