/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which sends, writes and receives take the short way, that what they post is what
 * the general way would, and that nothing takes it for which it does not do. The
 * device is the last work request.
 */
#include <criterion/criterion.h>

#include "vrc.h"
#include "vrc_credit.h"
#include "vrc_deliver.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_more.h"
#include "vrc_mr.h"
#include "vrc_post.h"

struct fi_provider vrc_prov = { .name = "vrc" };

enum { SIZE = 8, DESC_TAG = 0x76720001, INLINE = 64, INJECT = 256 };

static struct ibv_send_wr last; /* as it was posted */
static struct ibv_recv_wr last_recv;
static struct ibv_sge last_sge;
static bool stood_ready;
static unsigned int posted;
static int post_error;
static unsigned int held, delivered;

static struct vrc_req records[SIZE], rx_records[SIZE];
static struct vrc_ep *ep;
static char buf[1024];
static uint8_t bounce[SIZE * INJECT];
static void *desc;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	if (post_error)
		return post_error;
	last = *wr;
	last_sge = wr->num_sge ? wr->sg_list[0] : (struct ibv_sge){ 0 };
	stood_ready = wr == &ep->small[VRC_SMALL_SEND].wr ||
		      wr == &ep->small[VRC_SMALL_WRITE].wr ||
		      wr == &ep->small[VRC_SMALL_READ].wr;
	posted++;
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	if (post_error)
		return post_error;
	last_recv = *wr;
	last_sge = wr->num_sge ? wr->sg_list[0] : (struct ibv_sge){ 0 };
	stood_ready = wr == &ep->ready.wr;
	posted++;
	return 0;
}

static struct ibv_context context = {
	.ops.post_send = post_send,
	.ops.post_recv = post_recv,
};
static struct ibv_qp qp = { .context = &context };
static struct vrc_dev dev;
static struct vrc_domain domain = { .dev = &dev, .desc_tag = DESC_TAG };

/* The neighbours. */
int vrc_credit_take(struct vrc_ep *of, enum ibv_wr_opcode opcode)
{
	return -FI_EAGAIN;
}

void vrc_credit_return(struct vrc_ep *of, enum ibv_wr_opcode opcode)
{
}

void vrc_credit_posted(struct vrc_ep *of, unsigned int cnt)
{
}

int vrc_more_send(struct vrc_ep *of, struct ibv_send_wr *wr, bool hold)
{
	held += hold;
	return 0;
}

int vrc_more_recv(struct vrc_ep *of, struct ibv_recv_wr *wr, bool hold,
		  unsigned int *cnt)
{
	held += hold;
	*cnt = 0;
	return 0;
}

ssize_t vrc_deliver_post(struct vrc_ep *of, const struct vrc_tx *tx,
			 bool locked)
{
	delivered++;
	return 0;
}

void vrc_more_flush(struct vrc_ep *of)
{
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

static void init(void)
{
	ep = aligned_alloc(CACHELINE, sizeof(*ep));
	memset(ep, 0, sizeof(*ep));
	ep->domain = &domain;
	ep->desc_tag = DESC_TAG;
	ep->qp = &qp;
	ep->inject_size = INJECT;
	ep->inline_size = INLINE;
	ep->bounce = bounce;
	ep->max_msg_size = 1 << 20;
	ep->max_read_sge = VRC_IOV_LIMIT;
	ep->tx_visible = true;
	ep->tx.req = records;
	ep->tx.mask = SIZE - 1;
	ep->tx.size = SIZE;
	for (uint32_t i = 0; i < SIZE; i++)
		records[i] = (struct vrc_req){ .ep = ep, .slot = i };
	ep->rx_visible = true;
	ep->rx.req = rx_records;
	ep->rx.mask = SIZE - 1;
	ep->rx.size = SIZE;
	for (uint32_t i = 0; i < SIZE; i++)
		rx_records[i] = (struct vrc_req){ .ep = ep, .slot = i };
	word_lock_init(&ep->rx_lock);
	word_lock_init(&ep->tx_lock);
	atomic_init(&ep->state, VRC_EP_CONNECTED);
	ep->fid.msg = VRC_OPS(&vrc_msg_ops_locked);
	ep->fid.rma = VRC_OPS(&vrc_rma_ops_locked);
	vrc_small_setup(ep);
	desc = vrc_desc(DESC_TAG, 66);
}

static void fini(void)
{
	/* Whatever way was taken, the lock was given back. */
	cr_assert(word_lock_try(&ep->tx_lock));
	cr_assert(word_lock_try(&ep->rx_lock));
	free(ep);
}

TestSuite(small, .init = init, .fini = fini, .timeout = 60);

/* What was posted last is in the ledger, as the newest. */
static void ledger(enum vrc_op op, size_t len, void *op_context,
		   unsigned int flags)
{
	uint32_t head = atomic_load(&ep->tx.head);
	const struct vrc_req *req = &records[(head - 1) % SIZE];

	cr_assert_eq(last.wr_id, (uintptr_t)req);
	cr_assert_eq(req->op, op);
	cr_assert_eq(req->len, len);
	cr_assert_eq(req->next, head);
	cr_assert_eq(req->flags, flags);
	cr_assert_eq(req->context, op_context);
}

static void all_done(void)
{
	atomic_store(&ep->tx.tail, atomic_load(&ep->tx.head));
}

static void send_len(size_t len, bool ready)
{
	cr_assert_eq(fi_send(&ep->fid, buf, len, desc, 0, &posted), 0);
	cr_assert_eq(stood_ready, ready, "%zu bytes", len);
	cr_assert_eq(last.opcode, IBV_WR_SEND);
	cr_assert_eq(last.num_sge, !!len);
	cr_assert_eq(last_sge.length, len);
	cr_assert_eq(last.send_flags & IBV_SEND_INLINE,
		     len <= INLINE ? IBV_SEND_INLINE : 0);
	cr_assert(last.send_flags & IBV_SEND_SIGNALED);
	ledger(VRC_OP_SEND, len, &posted, VRC_REQ_VISIBLE);
	all_done();
}

Test(small, sends)
{
	send_len(1, true);
	send_len(INLINE, true);
	send_len(0, false);
	send_len(INLINE + 1, false);
	send_len(2, true);
}

Test(small, writes)
{
	cr_assert_eq(fi_write(&ep->fid, buf, 8, desc, 0, 0x1000, 7, &posted), 0);
	cr_assert(stood_ready);
	cr_assert_eq(last.opcode, IBV_WR_RDMA_WRITE);
	cr_assert_eq(last.wr.rdma.remote_addr, 0x1000);
	cr_assert_eq(last.wr.rdma.rkey, 7);
	cr_assert_eq(last_sge.addr, (uintptr_t)buf);
	ledger(VRC_OP_WRITE, 8, &posted, VRC_REQ_VISIBLE);
	cr_assert_eq(fi_inject_write(&ep->fid, buf, 9, 0, 0x2000, 8), 0);
	cr_assert(stood_ready);
	cr_assert_eq(last.wr.rdma.remote_addr, 0x2000);
	cr_assert_eq(last.wr.rdma.rkey, 8);
	ledger(VRC_OP_WRITE, 9, NULL, 0);
	/* No key of ours is that long. */
	cr_assert_eq(fi_write(&ep->fid, buf, 8, desc, 0, 0, 1ull << 32, NULL),
		     -FI_EKEYREJECTED);
	cr_assert_eq(posted, 2);
}

Test(small, reads)
{
	cr_assert_eq(fi_read(&ep->fid, buf, 500, desc, 0, 0x3000, 9, &posted), 0);
	cr_assert(stood_ready);
	cr_assert_eq(last.opcode, IBV_WR_RDMA_READ);
	cr_assert_eq(last.send_flags, IBV_SEND_SIGNALED);
	cr_assert_eq(last.wr.rdma.remote_addr, 0x3000);
	cr_assert_eq(last.wr.rdma.rkey, 9);
	cr_assert_eq(last_sge.addr, (uintptr_t)buf);
	cr_assert_eq(last_sge.length, 500);
	cr_assert_eq(last_sge.lkey, 66);
	ledger(VRC_OP_READ, 500, &posted, VRC_REQ_VISIBLE);
	cr_assert_eq(fi_read(&ep->fid, buf, 8, vrc_desc(DESC_TAG + 1, 66), 0,
			     0x3000, 9, NULL), -FI_EINVAL);
	cr_assert_eq(fi_read(&ep->fid, buf, (1 << 20) + 1, desc, 0, 0x3000, 9,
			     NULL), -FI_EMSGSIZE);
	cr_assert_eq(posted, 1);
}

/* One in a quarter of the ring, whether or not the device takes it at first. */
static void inject_quarters(int refused)
{
	unsigned int quiet = 0;

	for (int i = 0; i < 8 * SIZE; i++) {
		if (i == refused) {
			post_error = EINVAL;
			cr_assert_eq(fi_inject(&ep->fid, buf, 8, 0), -FI_EINVAL);
			post_error = 0;
		}
		cr_assert_eq(fi_inject(&ep->fid, buf, 8, 0), 0);
		cr_assert(stood_ready);
		ledger(VRC_OP_SEND, 8, NULL, 0);
		quiet = last.send_flags & IBV_SEND_SIGNALED ? 0 : quiet + 1;
		cr_assert_leq(quiet, SIZE / 4);
		all_done();
	}
}

Test(small, injects)
{
	inject_quarters(-1);
	for (int i = 0; i < SIZE; i++)
		inject_quarters(i);
	/* Longer than is inlined, and so from memory of ours. */
	cr_assert_eq(fi_inject(&ep->fid, buf, INLINE + 1, 0), 0);
	cr_assert(!stood_ready);
	cr_assert_eq(fi_inject(&ep->fid, buf, INJECT + 1, 0), -FI_EMSGSIZE);
}

Test(small, refused)
{
	post_error = ENOMEM;
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), -FI_ENOMEM);
	post_error = 0;
	for (int i = 0; i < SIZE; i++)
		cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), 0);
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), -FI_EAGAIN);
	cr_assert_eq(fi_inject(&ep->fid, buf, 8, 0), -FI_EAGAIN);
	cr_assert_eq(posted, SIZE);
	cr_assert_eq(atomic_load(&ep->tx.full), 2);
	all_done();
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), 0);
}

Test(small, not_connected)
{
	atomic_store(&ep->state, VRC_EP_CONNECTING);
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), -FI_ENOTCONN);
	atomic_store(&ep->state, VRC_EP_SHUTDOWN);
	cr_assert_eq(fi_inject(&ep->fid, buf, 8, 0), -FI_ESHUTDOWN);
	cr_assert_eq(fi_write(&ep->fid, buf, 8, desc, 0, 0, 7, NULL),
		     -FI_ESHUTDOWN);
	cr_assert_eq(posted, 0);
}

/* Behind an atomic, and where there are credits to wait for. */
Test(small, gate)
{
	atomic_store(&ep->gate, VRC_GATE_FENCE);
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), 0);
	cr_assert(last.send_flags & IBV_SEND_FENCE);
	cr_assert(!stood_ready);
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), 0);
	cr_assert(!(last.send_flags & IBV_SEND_FENCE));
	cr_assert(stood_ready);
	atomic_store(&ep->gate, VRC_GATE_CREDITS);
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), -FI_EAGAIN);
	cr_assert_eq(fi_inject(&ep->fid, buf, 8, 0), -FI_EAGAIN);
	cr_assert_eq(posted, 2);
}

/* What calls without flags ask for may be changed. */
Test(small, flags)
{
	ep->tx_op_flags = FI_DELIVERY_COMPLETE;
	vrc_small_setup(ep);
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, NULL), 0);
	cr_assert_eq(fi_write(&ep->fid, buf, 8, desc, 0, 0, 7, NULL), 0);
	cr_assert_eq(delivered, 2);
	cr_assert_eq(posted, 0);
	ep->tx_op_flags = 0;
	ep->tx_visible = false;
	vrc_small_setup(ep);
	cr_assert_eq(fi_send(&ep->fid, buf, 8, desc, 0, &posted), 0);
	cr_assert(stood_ready);
	cr_assert(!(last.send_flags & IBV_SEND_SIGNALED));
	ledger(VRC_OP_SEND, 8, &posted, 0);
	/* Counted: all are signalled, and none is ordinary. */
	ep->tx.signal_all = true;
	ep->tx.req_flags = VRC_REQ_SPECIAL;
	vrc_small_setup(ep);
	cr_assert_eq(fi_inject(&ep->fid, buf, 8, 0), 0);
	cr_assert(stood_ready);
	cr_assert(last.send_flags & IBV_SEND_SIGNALED);
	ledger(VRC_OP_SEND, 8, NULL, VRC_REQ_SPECIAL);
}

static void recv_len(size_t len, void *with, bool ready)
{
	uint32_t head = atomic_load(&ep->rx.head);
	const struct vrc_req *req = &rx_records[head % SIZE];

	cr_assert_eq(fi_recv(&ep->fid, buf, len, with, 0, &posted), 0);
	cr_assert_eq(stood_ready, ready, "%zu bytes", len);
	cr_assert_eq(last_recv.wr_id, (uintptr_t)req);
	cr_assert_eq(last_recv.num_sge, !!len);
	cr_assert_eq(last_sge.length, len);
	cr_assert_eq(last_sge.lkey, len ? vrc_desc_lkey(with) : 0);
	cr_assert_eq(req->op, VRC_OP_RECV);
	cr_assert_eq(req->len, len);
	cr_assert_eq(req->next, head + 1);
	cr_assert_eq(req->flags, VRC_REQ_VISIBLE);
	cr_assert_eq(req->context, &posted);
	cr_assert_eq(atomic_load(&ep->rx.head), head + 1);
	atomic_store(&ep->rx.tail, head + 1);
}

Test(small, receives)
{
	recv_len(1, desc, true);
	recv_len(sizeof(buf), desc, true);
	recv_len(0, desc, false);
	/* Before there is a connection, too, but the general way. */
	atomic_store(&ep->state, VRC_EP_ENABLED);
	recv_len(8, desc, false);
	atomic_store(&ep->state, VRC_EP_SHUTDOWN);
	cr_assert_eq(fi_recv(&ep->fid, buf, 8, desc, 0, NULL), -FI_ESHUTDOWN);
}

Test(small, receives_refused)
{
	cr_assert_eq(fi_recv(&ep->fid, buf, 8, vrc_desc(DESC_TAG + 1, 66), 0,
			     NULL), -FI_EINVAL);
	cr_assert_eq(fi_recv(&ep->fid, buf, (1 << 20) + 1, desc, 0, NULL),
		     -FI_EMSGSIZE);
	post_error = EINVAL;
	cr_assert_eq(fi_recv(&ep->fid, buf, 8, desc, 0, NULL), -FI_EINVAL);
	post_error = 0;
	for (int i = 0; i < SIZE; i++)
		cr_assert_eq(fi_recv(&ep->fid, buf, 8, desc, 0, NULL), 0);
	cr_assert_eq(fi_recv(&ep->fid, buf, 8, desc, 0, NULL), -FI_EAGAIN);
	cr_assert_eq(posted, SIZE);
	atomic_store(&ep->rx.tail, SIZE);
	/* Others are held, and this one has to wait for its turn. */
	atomic_store(&ep->rx_gate, VRC_RX_GATE_MORE);
	cr_assert_eq(fi_recv(&ep->fid, buf, 8, desc, 0, NULL), 0);
	cr_assert_eq(posted, SIZE);
	atomic_store(&ep->rx_gate, 0);
	/* Nobody says where it is registered, and we have to. */
	ep->local_reg = true;
	ep->rx.mrs = calloc(SIZE * VRC_IOV_LIMIT, sizeof(*ep->rx.mrs));
	vrc_small_setup(ep);
	cr_assert_eq(fi_recv(&ep->fid, buf, 8, desc, 0, NULL), -FI_ENOMEM);
	free(ep->rx.mrs);
}
