/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory windows: keys of their own onto parts of regions, which work requests
 * bind and invalidate. A window of type 1 is for its protection domain, one of
 * type 2 (2B) for the queue pair that bound it. Peers see bound windows in the
 * table of keys, beside the regions.
 *
 * A bound window keeps its region: ibv_dereg_mr() fails with EBUSY.
 */
#include "sv_fault.h"
#include "sv_key.h"
#include "sv_sq.h"

#include <stdlib.h>

enum {
	SV_MW_WAIT_MS = 1000, /* for a peer that copies */
};

struct sv_mw {
	struct sv_key key;
	struct ibv_mw mw;
	/* keys' lock: */
	struct sv_mr *mr; /* NULL: not bound */
	uint32_t bound; /* the key, if it is */
	uint32_t owner; /* to whom */
};

static struct sv_mw *sv_mw(struct ibv_mw *mw)
{
	return container_of(mw, struct sv_mw, mw);
}

/* ---- life ---- */

struct ibv_mw *sv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct sv_dev *dev = sv_ctx(pd->context)->dev;
	struct sv_mw *mw;
	uint32_t key;
	int err;

	err = sv_ctx_dead(pd->context) ? ENODEV : 0;
	if (!err && type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		err = EINVAL;
	if (!err)
		err = sv_fault_call(SV_FAULT_alloc_mw, dev);
	if (err)
		goto err_errno;
	err = ENOMEM;
	if (!sv_dev_take(dev, SV_RES_MR))
		goto err_errno;
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		goto err_give;
	mw->key.kind = SV_KEY_WINDOW;
	sv_keys_take();
	if (!sv_key_add(&mw->key, &key)) {
		sv_keys_drop();
		free(mw);
		goto err_give;
	}
	mw->mw = (struct ibv_mw){
		.context = pd->context,
		.pd = pd,
		.rkey = key,
		.handle = mw->key.index,
		.type = type,
	};
	sv_keys_drop();
	atomic_fetch_add(&sv_pd(pd)->users, 1);
	return &mw->mw;

err_give:
	sv_dev_give(dev, SV_RES_MR);
err_errno:
	errno = err;
	return NULL;
}

/* Caller holds the keys' lock. Returns the key that is no longer valid, or 0. */
static uint32_t unbind(struct sv_mw *mw)
{
	uint32_t key = mw->bound;

	if (!mw->mr)
		return 0;
	sv_key_revoke(&mw->key);
	mw->mr->windows--;
	mw->mr = NULL;
	mw->bound = 0;
	return key;
}

int sv_dealloc_mw(struct ibv_mw *ibmw)
{
	struct sv_mw *mw = sv_mw(ibmw);
	uint32_t key;
	int err;

	if (sv_ctx_dead(ibmw->context))
		return 0;
	err = sv_fault_call(SV_FAULT_dealloc_mw, sv_ctx(ibmw->context)->dev);
	if (err)
		return err;
	sv_keys_take();
	key = unbind(mw);
	sv_key_del(&mw->key);
	sv_keys_drop();
	if (key)
		sv_link_quiesce(key, SV_MW_WAIT_MS);
	atomic_fetch_sub(&sv_pd(ibmw->pd)->users, 1);
	sv_dev_give(sv_ctx(ibmw->context)->dev, SV_RES_MR);
	free(mw);
	return 0;
}

/*
 * A key is gone for good, by a work request of this queue pair or its peer. Other
 * queue pairs', whose locks cannot be had, may be in the middle of sending what it
 * gave; only of a window of type 1. They see that it is gone. Caller: qp->lock.
 */
static void unbound(struct sv_qp *qp, uint32_t key)
{
	sv_link_quiesce_peers(key, SV_MW_WAIT_MS);
	if (qp->link)
		sv_link_withdraw(qp->link);
	sv_key_left(key);
}

/* ---- binding ---- */

/* Caller holds the keys' lock. The region that this bind names, if it may. */
static struct sv_mr *bind_region(const struct sv_mw *mw,
				 const struct sv_bind *bind)
{
	struct sv_key *key = sv_key_find(bind->region);
	const struct sv_grant *grant;
	struct sv_mr *mr;

	if (!key || key->kind != SV_KEY_REGION)
		return NULL;
	mr = container_of(key, struct sv_mr, key);
	grant = &mr->grant;
	if (grant->key != bind->region || sv_pd(mr->mr.pd)->id != sv_pd(mw->mw.pd)->id ||
	    !(grant->access & IBV_ACCESS_MW_BIND) ||
	    grant->access & IBV_ACCESS_ZERO_BASED)
		return NULL;
	if (bind->access & (IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(grant->access & IBV_ACCESS_LOCAL_WRITE))
		return NULL;
	if (bind->addr < grant->iova ||
	    bind->addr - grant->iova > grant->len ||
	    bind->len > grant->len - (bind->addr - grant->iova))
		return NULL;
	return mr;
}

/* Caller holds the keys' lock. */
static void bind_publish(struct sv_mw *mw, struct sv_mr *mr,
			 const struct sv_bind *bind, uint32_t key)
{
	const struct sv_grant grant = {
		.key = key,
		.owner = mw->owner,
		/* Not SV_ACCESS_LOCAL: it is no lkey. */
		.access = bind->access | (mr->grant.access &
					  IBV_ACCESS_ON_DEMAND),
		.iova = bind->access & IBV_ACCESS_ZERO_BASED ? 0 : bind->addr,
		.va = mr->grant.va + (bind->addr - mr->grant.iova),
		.len = bind->len,
	};

	mw->mr = mr;
	mw->bound = key;
	mr->windows++;
	sv_key_publish(&mw->key, &grant);
}

/*
 * Carries out a bind. A window of type 1 may be bound, and is then bound anew, or
 * to nothing if the length is 0; one of type 2 must not be.
 */
static bool bind_run(struct sv_qp *qp, const struct sv_bind *bind,
		     uint32_t rkey)
{
	struct sv_key *key;
	struct sv_mr *mr = NULL;
	struct sv_mw *mw;
	uint32_t old = 0;
	bool ok = false;

	sv_keys_take();
	key = sv_key_find(rkey);
	if (!key || key->kind != SV_KEY_WINDOW)
		goto out_drop;
	mw = container_of(key, struct sv_mw, key);
	if (mw->mw.rkey >> 8 != rkey >> 8 ||
	    sv_pd(mw->mw.pd)->id != qp->pd->id ||
	    (mw->mr && mw->mw.type != IBV_MW_TYPE_1))
		goto out_drop;
	if (bind->len)
		mr = bind_region(mw, bind);
	if (!mr && (bind->len || mw->mw.type != IBV_MW_TYPE_1))
		goto out_drop;
	old = unbind(mw);
	mw->owner = mw->mw.type == IBV_MW_TYPE_1 ? qp->pd->id : qp->window_id;
	if (mr)
		bind_publish(mw, mr, bind, rkey);
	ok = true;
out_drop:
	sv_keys_drop();
	if (old)
		unbound(qp, old);
	return ok;
}

/* Only a window of type 2 that this queue pair has bound. Caller: qp->lock. */
bool sv_key_invalidate(struct sv_qp *qp, uint32_t rkey)
{
	struct sv_mw *mw = NULL;
	struct sv_key *key;
	uint32_t old = 0;

	sv_keys_take();
	key = sv_key_find(rkey);
	if (key && key->kind == SV_KEY_WINDOW)
		mw = container_of(key, struct sv_mw, key);
	if (mw && mw->mr && mw->bound == rkey && mw->owner == qp->window_id)
		old = unbind(mw);
	sv_keys_drop();
	if (old)
		unbound(qp, old);
	return old;
}

/* ---- work requests ---- */

/*
 * What verbs calls a memory bind error, IBTA a memory management operation
 * error: it says so of both.
 */
enum ibv_wc_status sv_sq_local(struct sv_qp *qp, struct sv_swr *swr)
{
	const struct sv_bind *bind = (const void *)swr->sge;
	bool ok;

	if (swr->opcode == IBV_WR_LOCAL_INV)
		ok = sv_key_invalidate(qp, swr->imm);
	else
		ok = bind_run(qp, bind, swr->rkey);
	if (!ok)
		sv_log("qp %06x: key %#x: cannot be bound or invalidated so",
		       qp->qp.qp_num,
		       swr->opcode == IBV_WR_LOCAL_INV ? swr->imm : swr->rkey);
	return ok ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
}

int sv_swr_set_bind(struct sv_swr *swr, const struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *info)
{
	const unsigned int known = IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC |
				   IBV_ACCESS_ZERO_BASED |
				   IBV_ACCESS_OPTIONAL_RANGE;
	struct sv_bind *bind = (void *)swr->sge;

	if (sv_key_index(rkey) != sv_key_index(mw->rkey) ||
	    rkey >> 8 != mw->rkey >> 8 || info->mw_access_flags & ~known ||
	    (info->length && !info->mr))
		return EINVAL;
	*bind = (struct sv_bind){
		.addr = info->addr,
		.len = info->length,
		.region = info->length ? info->mr->lkey : 0,
		.access = info->mw_access_flags,
	};
	swr->rkey = rkey;
	return 0;
}

/* verbs.h has looked at the type and at the protection domain. */
int sv_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = bind->bind_info,
		},
	};
	int err = sv_fault_call_qp(SV_FAULT_bind_mw, sv_qp(ibqp));

	if (!err)
		err = sv_post_bind(sv_qp(ibqp), &wr);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}
