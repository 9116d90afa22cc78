/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which work requests atomics become, and which of those around them are fenced,
 * so that the order that is promised is kept on a device that keeps no more than
 * it must. The device is a list of the work requests.
 */
#include <criterion/criterion.h>

#include "vrc.h"
#include "vrc_atomic.h"
#include "vrc_cm.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_deliver.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_more.h"
#include "vrc_mr.h"
#include "vrc_post.h"
#include "vrc_verbs.h"

struct fi_provider vrc_prov = { .name = "vrc" };

enum { SIZE = 8, MOST = 6, DESC_TAG = 0x76720001 };

static struct ibv_send_wr last;	  /* as it was posted */
static struct ibv_sge last_sge;
static unsigned int posted, calls;
static int post_error;
static int post_error_after = -1; /* so many that are taken; -1: see above */
static unsigned int broken;
static bool no_credit;
static unsigned int returned;

static struct vrc_req records[SIZE];
static struct vrc_ep *ep;
static uint64_t operand = 3, compare = 4, result;
static void *desc;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	calls++;
	for (; wr; wr = wr->next) {
		*bad = wr;
		if (post_error || !post_error_after)
			return post_error ? post_error : ENOMEM;
		post_error_after -= post_error_after > 0;
		last = *wr;
		last_sge = wr->num_sge ? wr->sg_list[0] : (struct ibv_sge){ 0 };
		posted++;
	}
	return 0;
}

static int deregistered;

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     int access)
{
	static struct ibv_mr mr = { .lkey = 55 };

	cr_assert_eq(access, IBV_ACCESS_LOCAL_WRITE);
	cr_assert_eq(len, 8);
	return &mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	deregistered++;
	return 0;
}

static const struct vrc_verbs_ops ops = {
	.reg_mr = reg_mr,
	.dereg_mr = dereg_mr,
};

static struct ibv_context context = { .ops.post_send = post_send };
static struct ibv_qp qp = { .context = &context };
static struct vrc_dev dev;
static struct vrc_domain domain = {
	.dev = &dev, .ops = &ops, .desc_tag = DESC_TAG,
};

/* The neighbours. */
int vrc_credit_take(struct vrc_ep *of, enum ibv_wr_opcode opcode)
{
	return no_credit ? -FI_EAGAIN : 0;
}

void vrc_credit_return(struct vrc_ep *of, enum ibv_wr_opcode opcode)
{
	returned++;
}

void vrc_cm_broken(struct vrc_ep *of)
{
	broken++;
}

void vrc_qp_error(struct vrc_ep *of)
{
}

void vrc_credit_posted(struct vrc_ep *of, unsigned int cnt)
{
}

void vrc_credit_add(struct vrc_ep *of, unsigned int cnt)
{
}

ssize_t vrc_deliver_post(struct vrc_ep *of, const struct vrc_tx *tx,
			 bool locked)
{
	return -FI_EOPNOTSUPP;
}

int vrc_local_reg(struct vrc_domain *of, struct ibv_mr **slot, int cnt,
		  int access, struct ibv_sge *sge)
{
	return -FI_ENOMEM;
}

void vrc_local_release(struct vrc_ep *of, struct vrc_ring *ring, uint32_t first,
		       uint32_t end)
{
}

int vrc_mr_access(const struct vrc_domain *of, uint64_t access)
{
	return 0;
}

void vrc_mr_explain(const struct vrc_domain *of, const void *buf, size_t len,
		    int err)
{
}

static struct fi_tx_attr tx_attr = { .size = SIZE };
static struct fi_info info = { .tx_attr = &tx_attr };
static struct vrc_cq cq;

static void init(void)
{
	ep = aligned_alloc(CACHELINE, sizeof(*ep));
	memset(ep, 0, sizeof(*ep));
	cr_assert_eq(vrc_atomic_open(&domain), 0);
	ep->domain = &domain;
	ep->desc_tag = DESC_TAG;
	ep->info = &info;
	ep->tx_cq = &cq;
	ep->rx_cq = &cq;
	cr_assert_eq(vrc_more_open(ep), 0);
	ep->qp = &qp;
	ep->inject_size = 64;
	ep->inline_size = 64;
	ep->max_msg_size = 1 << 20;
	ep->max_read_sge = VRC_IOV_LIMIT;
	ep->tx_visible = true;
	ep->tx.req = records;
	ep->tx.mask = SIZE - 1;
	ep->tx.size = SIZE;
	for (uint32_t i = 0; i < SIZE; i++)
		records[i] = (struct vrc_req){ .ep = ep, .slot = i };
	atomic_init(&ep->state, VRC_EP_CONNECTED);
	ep->fid.msg = VRC_OPS(&vrc_msg_ops_unlocked);
	ep->fid.rma = VRC_OPS(&vrc_rma_ops_unlocked);
	ep->fid.atomic = VRC_OPS(&vrc_atomic_ops_unlocked);
	desc = vrc_desc(DESC_TAG, 66);
}

static void fini(void)
{
	vrc_atomic_close(&domain);
	cr_assert_eq(deregistered, 1);
	vrc_more_close(ep);
	free(ep);
}

TestSuite(atomic, .init = init, .fini = fini, .timeout = 60);

/* Each returns whether it was fenced. */
static bool fenced(ssize_t ret, unsigned int before)
{
	cr_assert_eq(ret, 0, "%zd", ret);
	cr_assert_eq(posted, before + 1);
	return last.send_flags & IBV_SEND_FENCE;
}

static bool do_add(void)
{
	unsigned int before = posted;

	return fenced(fi_atomic(&ep->fid, &operand, 1, NULL, 0, 0x1000, 7,
				FI_UINT64, FI_SUM, NULL), before);
}

static bool do_swap(void)
{
	unsigned int before = posted;

	return fenced(fi_compare_atomic(&ep->fid, &operand, 1, NULL, &compare,
					NULL, &result, desc, 0, 0x1000, 7,
					FI_INT64, FI_CSWAP, NULL), before);
}

static bool do_read(void)
{
	unsigned int before = posted;

	return fenced(fi_read(&ep->fid, &result, 8, desc, 0, 0x1000, 7, NULL),
		      before);
}

static bool do_write(void)
{
	unsigned int before = posted;

	return fenced(fi_write(&ep->fid, &result, 8, desc, 0, 0x1000, 7, NULL),
		      before);
}

static bool do_send(void)
{
	unsigned int before = posted;

	return fenced(fi_inject(&ep->fid, &result, 8, 0), before);
}

/* The n oldest have completed. */
static void retire(uint32_t n)
{
	atomic_fetch_add(&ep->tx.tail, n);
}

Test(atomic, work_requests)
{
	do_add();
	cr_assert_eq(last.opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
	cr_assert_eq(last.wr.atomic.remote_addr, 0x1000);
	cr_assert_eq(last.wr.atomic.rkey, 7);
	cr_assert_eq(last.wr.atomic.compare_add, 3);
	cr_assert_eq(last.num_sge, 1);
	cr_assert_eq(last_sge.addr, (uintptr_t)domain.scratch);
	cr_assert_eq(last_sge.length, 8);
	cr_assert_eq(last_sge.lkey, 55);
	cr_assert(!(last.send_flags & IBV_SEND_INLINE));

	do_swap();
	cr_assert_eq(last.opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
	cr_assert_eq(last.wr.atomic.rkey, 7);
	cr_assert_eq(last.wr.atomic.compare_add, 4);
	cr_assert_eq(last.wr.atomic.swap, 3);
	cr_assert_eq(last_sge.addr, (uintptr_t)&result);
	cr_assert_eq(last_sge.lkey, 66);

	/* Reading adds nothing. */
	cr_assert_eq(fi_fetch_atomic(&ep->fid, &operand, 1, NULL, &result, desc,
				     0, 0x1000, 7, FI_DOUBLE, FI_ATOMIC_READ,
				     NULL), 0);
	cr_assert_eq(last.opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
	cr_assert_eq(last.wr.atomic.compare_add, 0);
	cr_assert_eq(records[2].op, VRC_OP_FETCH_ATOMIC);
	cr_assert_eq(records[2].len, 8);
}

/* What comes behind an atomic and may overtake it: the first of them. */
Test(atomic, fence_behind)
{
	cr_assert(!do_send());
	cr_assert(!do_add());
	cr_assert(!do_swap());
	cr_assert(!do_read());
	cr_assert(do_send());
	cr_assert(!do_write());
	retire(6);
	cr_assert(!do_swap());
	cr_assert(do_write());
	cr_assert(!do_send());
	cr_assert_eq(atomic_load(&ep->gate), 0);
}

/* An atomic behind a read that may be carried out again: one of them. */
Test(atomic, fence_in_front)
{
	cr_assert(!do_read());
	cr_assert(do_add());
	cr_assert(!do_swap());
	cr_assert(!do_read());
	cr_assert(!do_read());
	cr_assert(do_swap());
	cr_assert(!do_add());
	retire(7);
	cr_assert(!do_read());
	retire(1);
	cr_assert(!do_add());
	/* Its record is used again by what is no read. */
	for (int i = 0; i < 3 * SIZE; i++) {
		do_write();
		retire(1);
		cr_assert(!do_add());
		retire(1);
	}
}

/* By a call that was taken. */
static bool asked(ssize_t ret)
{
	return fenced(ret, posted - 1);
}

/* FI_FENCE, on whatever takes flags. */
Test(atomic, fence_asked_for)
{
	struct iovec iov = { &result, 8 };
	struct fi_ioc ioc = { &operand, 1 };
	struct fi_rma_iov there = { 0x1000, 8, 7 };
	struct fi_rma_ioc word = { 0x1000, 1, 7 };
	const struct fi_msg msg = {
		.msg_iov = &iov, .desc = &desc, .iov_count = 1,
	};
	const struct fi_msg_rma rma = {
		.msg_iov = &iov, .desc = &desc, .iov_count = 1,
		.rma_iov = &there, .rma_iov_count = 1,
	};
	const struct fi_msg_atomic add = {
		.msg_iov = &ioc, .iov_count = 1, .rma_iov = &word,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
	};

	for (int f = 0; f < 2; f++) {
		uint64_t flags = f ? FI_FENCE : 0;

		cr_assert_eq(asked(fi_sendmsg(&ep->fid, &msg, flags)), f);
		cr_assert_eq(asked(fi_writemsg(&ep->fid, &rma, flags)), f);
		cr_assert_eq(asked(fi_atomicmsg(&ep->fid, &add, flags)), f);
		cr_assert_eq(asked(fi_readmsg(&ep->fid, &rma, flags)), f);
		retire(4);
	}
}

/* What the device does not take has fenced nothing. */
Test(atomic, fence_is_kept)
{
	do_read();
	post_error = ENOMEM;
	cr_assert_eq(fi_atomic(&ep->fid, &operand, 1, NULL, 0, 0x1000, 7,
			       FI_UINT64, FI_SUM, NULL), -FI_EAGAIN);
	post_error = 0;
	cr_assert(do_add());
	post_error = ENOMEM;
	cr_assert_eq(fi_inject(&ep->fid, &operand, 8, 0), -FI_EAGAIN);
	post_error = 0;
	cr_assert(do_write());
	cr_assert(!do_write());
	cr_assert_eq(returned, 0);
}

/* Beside credits, which have the same gate. */
Test(atomic, fence_and_credits)
{
	atomic_store(&ep->gate, VRC_GATE_CREDITS);
	do_add();
	no_credit = true;
	cr_assert_eq(fi_inject(&ep->fid, &operand, 8, 0), -FI_EAGAIN);
	no_credit = false;
	post_error = ENOMEM;
	cr_assert_eq(fi_inject(&ep->fid, &operand, 8, 0), -FI_EAGAIN);
	cr_assert_eq(returned, 1);
	post_error = 0;
	cr_assert(do_send());
	cr_assert(!do_send());
	cr_assert_eq(atomic_load(&ep->gate), VRC_GATE_CREDITS);
}

static ssize_t add_many(size_t cnt)
{
	static const uint64_t values[SIZE + 1] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };

	return fi_atomic(&ep->fid, values, cnt, NULL, 0, 0x1000, 7, FI_UINT64,
			 FI_SUM, &operand);
}

/* A work request each; the last has the context and is the one to be seen. */
Test(atomic, elements)
{
	size_t max;

	cr_assert_eq(fi_atomicvalid(&ep->fid, FI_UINT64, FI_SUM, &max), 0);
	cr_assert_eq(max, MOST);
	cr_assert_eq(add_many(MOST + 1), -FI_EMSGSIZE);
	cr_assert_eq(posted, 0);
	do_read();
	cr_assert_eq(add_many(3), 0);
	cr_assert_eq(posted, 4);
	cr_assert_eq(calls, 2);
	cr_assert_eq(last.wr.atomic.remote_addr, 0x1010);
	cr_assert_eq(last.wr.atomic.compare_add, 3);
	cr_assert(!(last.send_flags & IBV_SEND_FENCE));
	cr_assert_eq(records[1].flags, VRC_REQ_PART);
	cr_assert_eq(records[2].flags, VRC_REQ_PART);
	cr_assert_eq(records[3].flags, VRC_REQ_VISIBLE);
	cr_assert_eq(records[3].context, &operand);
	/* There is room for four. */
	cr_assert_eq(add_many(5), -FI_EAGAIN);
	cr_assert_eq(posted, 4);
	cr_assert_eq(add_many(4), 0);
	retire(8);
	cr_assert_eq(add_many(MOST), 0);
}

/* Trying again would add twice: it is no case for -FI_EAGAIN. */
Test(atomic, half_done)
{
	post_error_after = 2;
	cr_assert_eq(add_many(3), -FI_EIO);
	cr_assert_eq(posted, 2);
	cr_assert_eq(broken, 1);
	post_error_after = 1;
	cr_assert_eq(add_many(3), -FI_ESHUTDOWN);
	cr_assert_eq(posted, 3);
	cr_assert_eq(broken, 2);
	/* Unless the connection is over anyway. */
	retire(4);
	atomic_store(&ep->state, VRC_EP_SHUTDOWN);
	cr_assert_eq(add_many(3), -FI_ESHUTDOWN);
	cr_assert_eq(broken, 2);
}

/* Results that nobody registered are, one by one. */
Test(atomic, unregistered)
{
	uint64_t results[2];
	size_t max;

	ep->local_reg = true;
	cr_assert_eq(fi_fetch_atomicvalid(&ep->fid, FI_UINT64, FI_SUM, &max),
		     0);
	cr_assert_eq(max, 1);
	cr_assert_eq(fi_atomicvalid(&ep->fid, FI_UINT64, FI_SUM, &max), 0);
	cr_assert_eq(max, MOST);
	cr_assert_eq(fi_fetch_atomic(&ep->fid, results, 2, NULL, results, NULL,
				     0, 0x1000, 7, FI_UINT64, FI_SUM, NULL),
		     -FI_EMSGSIZE);
	cr_assert_eq(add_many(2), 0);
}
