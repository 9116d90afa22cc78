/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Receiver credits by themselves: which counts are written when, what is made of
 * those that come in, and counts that wrap. The device is a list of the writes.
 */
#include <criterion/criterion.h>

/* To start near the end of the numbers. */
#include "../../../prov/vrc/vrc_credit.c"

struct vrc_params vrc_params;
struct fi_provider vrc_prov = { .name = "vrc" };

/* What was written, oldest first. */
static struct {
	uint32_t posted;
	uint32_t rkey;
	uint64_t addr;
	uint64_t wr_id;
} writes[64];
static unsigned int write_cnt;
static int post_error;
static unsigned int ticks, reaps, wakes;
static uint64_t now_ms;

static struct ibv_context context;
static struct ibv_qp qp = { .context = &context };
static struct ibv_mr mr = { .lkey = 1, .rkey = 2 };
static struct vrc_dev dev;
static struct vrc_domain domain;
static struct vrc_eq eq;
static struct vrc_ep *ep;
static const struct vrc_peer peer = {
	.version = 1,
	.features = VRC_FEATURE_CREDITS,
	.rkey = 77,
	.addr = 0x1234,
};

static int post_send(struct ibv_qp *on, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	const __be32 *word = (const __be32 *)(uintptr_t)wr->sg_list->addr;

	if (post_error)
		return post_error;
	cr_assert_eq(wr->opcode, IBV_WR_RDMA_WRITE);
	cr_assert_eq(wr->sg_list->length, 8);
	cr_assert_eq(word[1], ~word[0]);
	cr_assert_lt(write_cnt, ARRAY_SIZE(writes));
	writes[write_cnt].posted = be32toh(word[0]);
	writes[write_cnt].rkey = wr->wr.rdma.rkey;
	writes[write_cnt].addr = wr->wr.rdma.remote_addr;
	writes[write_cnt++].wr_id = wr->wr_id;
	return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     int access)
{
	cr_assert(access & IBV_ACCESS_REMOTE_WRITE);
	mr.addr = addr;
	return &mr;
}

static int dereg_mr(struct ibv_mr *old)
{
	return 0;
}

static const struct vrc_verbs_ops ops = {
	.reg_mr = reg_mr,
	.dereg_mr = dereg_mr,
};

/* The neighbours. */
uint64_t vrc_now_ms(void)
{
	return now_ms;
}

void vrc_eq_tick(struct vrc_eq *evq)
{
	ticks++;
}

void vrc_cq_reap(struct vrc_cq *cq)
{
	reaps++;
}

void vrc_cq_try_reap(struct vrc_cq *cq)
{
	reaps++;
}

void vrc_cq_interrupt(struct vrc_cq *cq)
{
	wakes++;
}

void vrc_mr_explain(const struct vrc_domain *in, const void *buf, size_t len,
		    int err)
{
}

/* Connected; both counts begin at start. */
static void connect_ep(bool iwarp, bool passive, uint32_t start)
{
	struct vrc_peer theirs = peer, mine = { 0 };

	vrc_params.credits = VRC_CREDITS_ALWAYS;
	context.ops.post_send = post_send;
	dev.is_iwarp = iwarp;
	domain.dev = &dev;
	domain.ops = &ops;
	lock_init(&eq.lock);
	list_init(&eq.credit_eps);
	ep = aligned_alloc(CACHELINE, sizeof(*ep));
	memset(ep, 0, sizeof(*ep));
	ep->domain = &domain;
	ep->eq = &eq;
	ep->qp = &qp;
	ep->inline_size = 64;
	ep->cm.passive = passive;
	atomic_init(&ep->rx.head, start);
	atomic_init(&ep->rx.tail, start);
	cr_assert_eq(vrc_credit_open(ep), 0);
	vrc_credit_offer(ep, &mine);
	cr_assert_eq(mine.features, VRC_FEATURE_CREDITS);
	cr_assert_eq(mine.posted, start);
	cr_assert_eq(mine.rkey, 2);
	cr_assert_eq(mine.addr, (uintptr_t)mr.addr);
	theirs.posted = start;
	lock_take(&eq.lock);
	vrc_credit_agree(ep, &theirs);
	atomic_store(&ep->state, VRC_EP_CONNECTED);
	vrc_credit_start(ep);
	lock_drop(&eq.lock);
}

static void run_tick(void)
{
	lock_take(&eq.lock);
	vrc_credit_tick(&eq);
	lock_drop(&eq.lock);
}

static void post_one(void)
{
	atomic_fetch_add(&ep->rx.head, 1);
	vrc_credit_posted(ep, 1);
}

/* All writes are done. */
static void complete(void)
{
	static unsigned int done;

	for (; done < write_cnt; done++)
		vrc_credit_written((struct vrc_req *)(uintptr_t)
					   writes[done].wr_id);
}

static void peer_writes(uint32_t posted)
{
	__be32 *in = mr.addr;

	in[0] = htobe32(posted);
	in[1] = ~in[0];
}

static int take_send(void)
{
	return vrc_credit_take(ep, IBV_WR_SEND);
}

/* The whole way round 2^32 makes no difference. */
Test(credit, wraps)
{
	uint32_t start = UINT32_MAX - 5;

	connect_ep(false, false, start);
	ep->credit->sent = start;
	for (uint32_t i = 1; i <= 20; i++) {
		cr_assert_eq(take_send(), -FI_EAGAIN);
		peer_writes(start + i);
		cr_assert_eq(take_send(), 0);
		post_one();
		cr_assert_eq(write_cnt, i);
		cr_assert_eq(writes[i - 1].posted, start + i);
		cr_assert_eq(writes[i - 1].rkey, 77);
		cr_assert_eq(writes[i - 1].addr, 0x1234);
		complete();
		atomic_fetch_add(&ep->rx.tail, 1);
	}
}

/* A count is believed only if it is whole. */
Test(credit, torn)
{
	__be32 *in;

	connect_ep(false, false, 0);
	in = mr.addr;
	cr_assert_eq(take_send(), -FI_EAGAIN);
	in[0] = htobe32(9);
	cr_assert_eq(take_send(), -FI_EAGAIN);
	in[1] = ~htobe32(8);
	cr_assert_eq(take_send(), -FI_EAGAIN);
	in[1] = ~htobe32(9);
	for (int i = 0; i < 9; i++)
		cr_assert_eq(take_send(), 0);
	cr_assert_eq(take_send(), -FI_EAGAIN);
	vrc_credit_return(ep, IBV_WR_SEND);
	cr_assert_eq(take_send(), 0);
	/* Neither takes a receive. */
	cr_assert_eq(vrc_credit_take(ep, IBV_WR_RDMA_WRITE), 0);
	cr_assert_eq(vrc_credit_take(ep, IBV_WR_RDMA_READ), 0);
	cr_assert_eq(vrc_credit_take(ep, IBV_WR_RDMA_WRITE_WITH_IMM),
		     -FI_EAGAIN);
}

/* Writes are few, and none is left out for long. */
Test(credit, few_writes)
{
	connect_ep(false, false, 0);
	for (int i = 0; i < 256; i++) {
		post_one();
		complete();
	}
	cr_assert_leq(write_cnt, 10);
	run_tick();
	cr_assert_eq(writes[write_cnt - 1].posted, 256);
	complete();
	write_cnt = 0;
	/* A full window, one in, one out: one write for half of it. */
	for (int i = 0; i < 1024; i++) {
		atomic_fetch_add(&ep->rx.tail, 1);
		post_one();
		if (write_cnt)
			vrc_credit_written((struct vrc_req *)(uintptr_t)
						   writes[write_cnt - 1].wr_id);
	}
	cr_assert_leq(write_cnt, 8);
	cr_assert_geq(write_cnt, 4);
}

/* With both writes in flight, or none to be had, it is told later. */
Test(credit, told_later)
{
	connect_ep(false, false, 0);
	for (int i = 0; i < 5; i++) {
		post_one();
		atomic_fetch_add(&ep->rx.tail, 1);
	}
	cr_assert_eq(write_cnt, VRC_CREDIT_WRITES);
	cr_assert_gt(reaps, 0);
	cr_assert_gt(ticks, 0);
	complete();
	run_tick();
	cr_assert_eq(writes[write_cnt - 1].posted, 5);
	complete();
	post_error = ENOMEM;
	post_one();
	cr_assert_eq(writes[write_cnt - 1].posted, 5);
	post_error = 0;
	run_tick();
	cr_assert_eq(writes[write_cnt - 1].posted, 6);
}

/* Who was refused is woken by a new count, and not before. */
Test(credit, wakes)
{
	connect_ep(false, false, 3);
	cr_assert_eq(take_send(), 0);
	cr_assert_eq(take_send(), 0);
	cr_assert_eq(take_send(), 0);
	cr_assert_eq(take_send(), -FI_EAGAIN);
	run_tick();
	run_tick();
	cr_assert_eq(wakes, 0);
	peer_writes(4);
	run_tick();
	cr_assert_eq(wakes, 1);
	run_tick();
	cr_assert_eq(wakes, 1);
}

/* iWARP's accepting side says nothing before it has heard, then answers. */
Test(credit, iwarp_accepting)
{
	connect_ep(true, true, 5);
	post_one();
	run_tick();
	cr_assert_eq(write_cnt, 0);
	cr_assert_eq(take_send(), -FI_EAGAIN);
	cr_assert_eq(vrc_credit_take(ep, IBV_WR_RDMA_WRITE), -FI_EAGAIN);
	/* No more than was known, but it is heard. */
	peer_writes(5);
	run_tick();
	cr_assert_eq(write_cnt, 1);
	cr_assert_eq(writes[0].posted, 6);
	cr_assert_eq(wakes, 1);
	cr_assert_eq(vrc_credit_take(ep, IBV_WR_RDMA_WRITE), 0);
	cr_assert_eq(take_send(), 0);
}

/* It answers even if it has nothing to tell. */
Test(credit, iwarp_answers)
{
	connect_ep(true, true, 0);
	run_tick();
	cr_assert_eq(write_cnt, 0);
	peer_writes(0);
	run_tick();
	cr_assert_eq(write_cnt, 1);
	run_tick();
	cr_assert_eq(write_cnt, 1);
}

/* The connecting side speaks at once, and again at growing intervals. */
Test(credit, iwarp_connecting)
{
	now_ms = 1000;
	connect_ep(true, false, 0);
	cr_assert_eq(write_cnt, 1);
	cr_assert_eq(writes[0].posted, 0);
	for (int i = 0; i < 1000; i++) {
		now_ms++;
		complete();
		run_tick();
	}
	cr_assert_geq(write_cnt, 8);
	cr_assert_leq(write_cnt, 20);
	peer_writes(0);
	run_tick();
	ticks = 0;
	write_cnt = 0;
	now_ms += 1000;
	run_tick();
	cr_assert_eq(ticks + write_cnt, 0);
}

/* A peer that offers none gets none. */
Test(credit, foreign_peer)
{
	const struct vrc_peer foreign = { 0 };

	connect_ep(false, false, 0);
	atomic_store(&ep->gate, 0);
	lock_take(&eq.lock);
	vrc_credit_stop(ep);
	vrc_credit_agree(ep, &foreign);
	vrc_credit_start(ep);
	lock_drop(&eq.lock);
	cr_assert_eq(atomic_load(&ep->gate), 0);
	post_one();
	cr_assert_eq(write_cnt, 0);
	vrc_credit_close(ep);
	cr_assert_null(ep->credit);
}
