/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How many work requests the device is handed at once, with FI_MORE and with
 * FI_DELIVERY_COMPLETE, and what becomes of those that it refuses. The device is
 * a list of the work requests.
 */
#include <criterion/criterion.h>

#include "vrc.h"
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

enum { SIZE = 32, TAG = 0x76720001 };

static unsigned int calls, taken;
static unsigned int refuse_at = UINT32_MAX; /* taken before it */
static int sent[64]; /* opcodes; contexts are numbers */
static uint8_t sent_byte[64]; /* the first of each one's data */
static unsigned int broken, errors, credits;
static struct vrc_req records[2][SIZE];
static struct vrc_ep *ep;
static struct vrc_cq cq;
static uint8_t buf[64];

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	calls++;
	for (; wr; wr = wr->next) {
		*bad = wr;
		if (taken == refuse_at)
			return EINVAL;
		if (wr->num_sge)
			sent_byte[taken] =
				*(uint8_t *)(uintptr_t)wr->sg_list->addr;
		sent[taken++] = (int)wr->opcode;
	}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	calls++;
	for (; wr; wr = wr->next) {
		*bad = wr;
		if (taken == refuse_at)
			return EINVAL;
		taken++;
	}
	return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     int access)
{
	static struct ibv_mr mr = { .lkey = 5, .rkey = 6 };

	return &mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	return 0;
}

static const struct vrc_verbs_ops ops = {
	.reg_mr = reg_mr,
	.dereg_mr = dereg_mr,
};
static struct ibv_context context = {
	.ops = { .post_send = post_send, .post_recv = post_recv },
};
static struct ibv_qp qp = { .context = &context };
static struct vrc_dev dev;
static struct vrc_domain domain = { .dev = &dev, .ops = &ops, .desc_tag = TAG };

/* The neighbours. */
int vrc_credit_take(struct vrc_ep *of, enum ibv_wr_opcode opcode)
{
	return 0;
}

void vrc_credit_return(struct vrc_ep *of, enum ibv_wr_opcode opcode)
{
}

void vrc_credit_posted(struct vrc_ep *of, unsigned int cnt)
{
	credits += cnt;
}

void vrc_credit_add(struct vrc_ep *of, unsigned int cnt)
{
	credits += cnt;
}

void vrc_cm_broken(struct vrc_ep *of)
{
	broken++;
}

void vrc_qp_error(struct vrc_ep *of)
{
	errors++;
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

void vrc_mr_explain(const struct vrc_domain *of, const void *at, size_t len,
		    int err)
{
}

static void ring_init(struct vrc_ring *ring, struct vrc_req *req)
{
	ring->req = req;
	ring->mask = SIZE - 1;
	ring->size = SIZE;
	for (uint32_t i = 0; i < SIZE; i++)
		req[i] = (struct vrc_req){ .ep = ep, .slot = i };
}

static void init(void)
{
	ep = aligned_alloc(CACHELINE, sizeof(*ep));
	memset(ep, 0, sizeof(*ep));
	ep->domain = &domain;
	ep->desc_tag = TAG;
	ep->qp = &qp;
	ep->tx_cq = &cq;
	ep->rx_cq = &cq;
	ep->inject_size = 64;
	ep->inline_size = 64;
	ep->max_msg_size = 1 << 20;
	ring_init(&ep->tx, records[0]);
	ring_init(&ep->rx, records[1]);
	atomic_init(&ep->state, VRC_EP_CONNECTED);
	ep->fid.msg = VRC_OPS(&vrc_msg_ops_unlocked);
	cr_assert_eq(vrc_more_open(ep), 0);
	cr_assert_eq(vrc_deliver_open(&domain), 0);
}

static void fini(void)
{
	vrc_deliver_close(&domain);
	vrc_more_close(ep);
	free(ep);
}

TestSuite(more, .init = init, .fini = fini, .timeout = 60);

static ssize_t do_msg(uint64_t flags, bool receive)
{
	struct iovec iov = { buf, sizeof(buf) };
	void *desc = (void *)((uintptr_t)TAG << 32 | 7);
	struct fi_msg msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1 };

	return receive ? fi_recvmsg(&ep->fid, &msg, flags) :
			 fi_sendmsg(&ep->fid, &msg, flags);
}

static ssize_t do_send(uint64_t flags)
{
	return do_msg(flags, false);
}

static void expect(unsigned int calls_now, unsigned int taken_now)
{
	cr_assert_eq(calls, calls_now, "%u calls, not %u", calls, calls_now);
	cr_assert_eq(taken, taken_now, "%u taken, not %u", taken, taken_now);
}

/* Nothing is left for a reader to see to. */
static void expect_open(void)
{
	cr_assert_eq(atomic_load(&ep->gate), 0);
	cr_assert_eq(atomic_load(&ep->rx_gate), 0);
	cr_assert_eq(atomic_load(&cq.due_cnt), 0);
}

Test(more, one_call)
{
	for (int i = 0; i < 3; i++)
		cr_assert_eq(do_send(FI_MORE), 0);
	expect(0, 0);
	cr_assert_eq(atomic_load(&cq.due_cnt), 1);
	cr_assert_eq(do_send(0), 0);
	expect(1, 4);
	expect_open();
	cr_assert_eq(do_send(0), 0);
	expect(2, 5);
	/* Sixteen are enough. */
	for (int i = 0; i < 16; i++)
		cr_assert_eq(do_send(FI_MORE), 0);
	expect(3, 21);
	expect_open();
}

Test(more, receives)
{
	for (int i = 0; i < 3; i++)
		cr_assert_eq(do_msg(FI_MORE, true), 0);
	expect(0, 0);
	cr_assert_eq(credits, 0);
	cr_assert_eq(do_msg(0, true), 0);
	expect(1, 4);
	cr_assert_eq(credits, 4);
	expect_open();
	cr_assert_eq(do_msg(FI_MORE, true), 0);
	vrc_more_try_flush(ep);
	expect(2, 5);
	cr_assert_eq(credits, 5);
	expect_open();
}

/* Three that are held, and one that brings them along, each with a byte of its own
 * in a buffer that is the caller's again each time. */
static void inject_four(void)
{
	calls = taken = 0;
	for (uint8_t i = 0; i < 4; i++) {
		expect(0, 0);
		buf[0] = i;
		cr_assert_eq(do_send(FI_INJECT | (i < 3 ? FI_MORE : 0)), 0);
	}
	buf[0] = 0xee;
	expect(1, 4);
	for (uint8_t i = 0; i < 4; i++)
		cr_assert_eq(sent_byte[i], i);
	expect_open();
}

Test(more, injected)
{
	inject_four();
	/* A call without flags brings along what is held. */
	cr_assert_eq(do_send(FI_MORE), 0);
	cr_assert_eq(fi_inject(&ep->fid, buf, 8, 0), 0);
	expect(2, 6);
	expect_open();
}

/* The same where the device does not inline that much. */
Test(more, injected_not_inline)
{
	static uint8_t bounce[SIZE * sizeof(buf)];

	ep->inline_size = 16;
	ep->bounce = bounce;
	inject_four();
}

/* A full ring does not hold any back. */
Test(more, full)
{
	for (int i = 0; i < SIZE - 2; i++)
		cr_assert_eq(do_send(0), 0);
	cr_assert_eq(do_send(FI_MORE), 0);
	cr_assert_eq(do_send(FI_MORE), 0);
	cr_assert_eq(taken, SIZE - 2);
	cr_assert_eq(do_send(FI_MORE), -FI_EAGAIN);
	cr_assert_eq(taken, SIZE);
	expect_open();
}

/* The last one is refused: that is all, and it was not posted. */
Test(more, last_refused)
{
	refuse_at = 2;
	cr_assert_eq(do_send(FI_MORE), 0);
	cr_assert_eq(do_send(FI_MORE), 0);
	cr_assert_eq(do_send(0), -FI_EINVAL);
	expect(1, 2);
	cr_assert_eq(broken + errors, 0);
	cr_assert_eq(atomic_load(&ep->tx.head), 2);
	expect_open();
}

/* One that was said to be posted is refused: the queue pair is given up, so that
 * it completes. */
Test(more, held_refused)
{
	refuse_at = 1;
	cr_assert_eq(do_send(FI_MORE), 0);
	cr_assert_eq(do_send(FI_MORE), 0);
	cr_assert_eq(do_send(0), -FI_ESHUTDOWN);
	cr_assert_eq(errors, 1);
	cr_assert_eq(broken, 1);
	cr_assert_eq(atomic_load(&ep->tx.head), 2);
	expect_open();
	taken = 0;
	cr_assert_eq(do_msg(FI_MORE, true), 0);
	cr_assert_eq(do_msg(FI_MORE, true), 0);
	vrc_more_flush(ep);
	cr_assert_eq(errors, 2);
	cr_assert_eq(credits, 0);
	expect_open();
}

/* A read follows, in the same call, of the word that the peer has named. */
Test(more, delivered)
{
	ep->cm.peer.features = VRC_FEATURE_WORD;
	cr_assert_eq(do_send(FI_DELIVERY_COMPLETE | FI_COMPLETION), 0);
	expect(1, 2);
	cr_assert_eq(sent[0], IBV_WR_SEND);
	cr_assert_eq(sent[1], IBV_WR_RDMA_READ);
	cr_assert_eq(records[0][0].flags, VRC_REQ_PART);
	cr_assert_eq(records[0][1].flags, VRC_REQ_VISIBLE);
	cr_assert_eq(records[0][1].op, VRC_OP_SEND);
	expect_open();
	/* Nobody would know. */
	ep->tx_selective = true;
	cr_assert_eq(do_send(FI_DELIVERY_COMPLETE), 0);
	expect(2, 3);
}

/* Both or none. */
Test(more, no_room_for_both)
{
	ep->cm.peer.features = VRC_FEATURE_WORD;
	for (int i = 0; i < SIZE - 1; i++)
		cr_assert_eq(do_send(0), 0);
	cr_assert_eq(do_send(FI_DELIVERY_COMPLETE), -FI_EAGAIN);
	cr_assert_eq(taken, SIZE - 1);
	atomic_store(&ep->tx.tail, SIZE - 1);
	ep->tx.size = 1;
	cr_assert_eq(do_send(FI_DELIVERY_COMPLETE), -FI_EINVAL);
}

/* libfabric's verbs has no word. */
Test(more, foreign_peer)
{
	cr_assert_eq(do_send(FI_DELIVERY_COMPLETE), -FI_EOPNOTSUPP);
	expect(0, 0);
	cr_assert_eq(do_send(0), 0);
}

/* What we say of ourselves: the word of the credits is one. */
Test(more, offer)
{
	struct vrc_peer self = { 0 };

	vrc_deliver_offer(ep, &self);
	cr_assert_eq(self.features, VRC_FEATURE_WORD);
	cr_assert_eq(self.rkey, 6);
	cr_assert_neq(self.addr, 0);
	self = (struct vrc_peer){ .features = VRC_FEATURE_CREDITS, .rkey = 9,
				  .addr = 10 };
	vrc_deliver_offer(ep, &self);
	cr_assert_eq(self.features, VRC_FEATURE_CREDITS | VRC_FEATURE_WORD);
	cr_assert_eq(self.rkey, 9);
	cr_assert_eq(self.addr, 10);
}
