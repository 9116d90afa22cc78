/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What completions do to the rings of records: what each retires and reports, in
 * the orders in which devices, posting threads and a breaking queue pair may
 * bring them.
 */
#include <criterion/criterion.h>

#include "vrc_cm.h"
#include "vrc_cntr.h"
#include "vrc_cq.h"
#include "vrc_credit.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_log.h"
#include "vrc_mr.h"
#include "vrc_post.h"
#include "vrc_srx.h"

struct fi_provider vrc_prov = { .name = "vrc" };
static int broken;
static struct vrc_ep *bound; /* to the shared context */
static uint32_t released; /* end of what was released last */

/* The neighbours. */
void vrc_cm_broken(struct vrc_ep *ep)
{
	broken++;
}

void vrc_credit_written(const struct vrc_req *req)
{
}

void vrc_local_release(struct vrc_ep *ep, struct vrc_ring *ring, uint32_t first,
		       uint32_t end)
{
	cr_assert_eq(first, released);
	released = end;
}

void vrc_cntr_count(struct vrc_ring *ring, const struct ibv_wc *wc,
		    struct vrc_req *req, uint32_t next)
{
}

void vrc_cntr_count_shared(struct vrc_ep *ep, const struct ibv_wc *wc,
			   struct vrc_req *req)
{
}

bool vrc_cntr_rx(const struct vrc_ep *ep)
{
	return false;
}

struct vrc_ep *vrc_srx_ep(struct vrc_srx *srx, uint32_t qp_num)
{
	return bound->qp_num == qp_num ? bound : NULL;
}

void vrc_local_drop(struct vrc_domain *domain, struct ibv_mr **slot)
{
}

int vrc_cq_keep(struct vrc_cq *cq)
{
	return 0;
}

void vrc_cq_wake(struct vrc_cq *cq)
{
}

void vrc_cq_attend(struct vrc_cq *cq)
{
}

ssize_t vrc_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf,
		       uint64_t flags)
{
	return -FI_ENOSYS;
}

ssize_t vrc_cq_sread(struct fid_cq *cq, void *buf, size_t count,
		     const void *cond, int timeout)
{
	return -FI_ENOSYS;
}

ssize_t vrc_cq_sreadfrom(struct fid_cq *cq, void *buf, size_t count,
			 fi_addr_t *src_addr, const void *cond, int timeout)
{
	return -FI_ENOSYS;
}

int vrc_cq_signal(struct fid_cq *cq)
{
	return -FI_ENOSYS;
}

const char *vrc_cq_strerror(struct fid_cq *cq, int prov_errno,
			    const void *err_data, char *buf, size_t len)
{
	return "";
}

enum { SIZE = 8 };

static struct vrc_dev dev;
static struct vrc_domain domain = { .dev = &dev };
static struct vrc_req records[SIZE];
static struct vrc_ep *ep;

static void make_ring(uint32_t start, bool unordered)
{
	ep = aligned_alloc(CACHELINE, sizeof(*ep));
	memset(ep, 0, sizeof(*ep));
	ep->domain = &domain;
	ep->tx.req = records;
	ep->tx.mask = SIZE - 1;
	ep->tx.size = SIZE;
	ep->tx.unordered = unordered;
	atomic_init(&ep->tx.head, start);
	atomic_init(&ep->tx.tail, start);
	for (uint32_t i = 0; i < SIZE; i++)
		records[i] = (struct vrc_req){ .ep = ep, .slot = i };
}

/* The device has it; head is not past it yet. */
static struct vrc_req *hand_over(unsigned int op, uint16_t flags)
{
	struct vrc_req *req = &records[atomic_load(&ep->tx.head) & (SIZE - 1)];

	req->op = (uint16_t)op;
	req->flags = flags;
	req->context = req;
	req->len = 77;
	req->next = atomic_load(&ep->tx.head) + 1;
	return req;
}

static struct vrc_req *post(unsigned int op, uint16_t flags)
{
	struct vrc_req *req = hand_over(op, flags);

	atomic_fetch_add(&ep->tx.head, 1);
	return req;
}

static bool complete(struct vrc_req *req, enum ibv_wc_status status,
		     struct vrc_comp *comp)
{
	struct ibv_wc wc = { .wr_id = (uintptr_t)req, .status = status };

	return vrc_cq_resolve(&wc, comp);
}

static bool succeeds(struct vrc_req *req)
{
	struct vrc_comp comp;
	bool visible = complete(req, IBV_WC_SUCCESS, &comp);

	cr_assert(!visible || (comp.context == req && !comp.err));
	return visible;
}

static uint32_t tail(void)
{
	return atomic_load(&ep->tx.tail);
}

/* A completion retires what was posted without one before it; round the end of
 * the numbers, too. */
Test(ledger, retires_all_before)
{
	struct vrc_req *last;

	make_ring(UINT32_MAX - 1, false);
	post(VRC_OP_WRITE, 0);
	post(VRC_OP_WRITE, 0);
	last = post(VRC_OP_SEND, VRC_REQ_VISIBLE);
	cr_assert(succeeds(last));
	cr_assert_eq(tail(), 1);
	last = post(VRC_OP_SEND, 0);
	cr_assert(!succeeds(last));
	cr_assert_eq(tail(), 2);
}

/* Errors are told whether or not a completion was wanted. */
Test(ledger, errors_are_told)
{
	struct vrc_comp comp;
	struct vrc_req *req;

	make_ring(0, false);
	req = post(VRC_OP_WRITE, 0);
	cr_assert(complete(req, IBV_WC_REM_ACCESS_ERR, &comp));
	cr_assert_eq(comp.err, FI_EACCES);
	cr_assert_eq(comp.len, 77);
	cr_assert_eq(comp.flags, FI_RMA | FI_WRITE);
	cr_assert_eq(broken, 1);
	/* Of an operation in several pieces, by the last one only. */
	req = post(VRC_OP_READ, VRC_REQ_PART);
	cr_assert(!complete(req, IBV_WC_WR_FLUSH_ERR, &comp));
}

/* What is injected has no context. Its failure is told, but not to ofi_rxm, whose
 * own it is; it is retired and breaks the connection all the same. */
Test(ledger, injected)
{
	struct vrc_comp comp;
	struct vrc_req *req;

	make_ring(0, false);
	for (uint32_t i = 1; i <= 2; i++) {
		req = post(VRC_OP_SEND, 0);
		req->context = NULL;
		cr_assert_eq(complete(req, IBV_WC_RETRY_EXC_ERR, &comp),
			     i == 1);
		cr_assert_eq(broken, i);
		cr_assert_eq(tail(), i);
		atomic_store(&domain.layered, true);
	}
	req = post(VRC_OP_SEND, 0);
	cr_assert(complete(req, IBV_WC_WR_FLUSH_ERR, &comp));
	cr_assert_eq(comp.context, req);
	cr_assert_eq(comp.err, FI_ECANCELED);
}

/* Of several pieces the last is flushed, and tells why. */
Test(ledger, cause_is_told)
{
	struct vrc_req *first, *second, *last, *next;
	struct vrc_comp comp;

	for (uint32_t start = SIZE - 2; start < SIZE; start++) {
		make_ring(start, false);
		first = post(VRC_OP_READ, VRC_REQ_PART);
		second = post(VRC_OP_READ, VRC_REQ_PART);
		last = post(VRC_OP_READ, VRC_REQ_VISIBLE);
		next = post(VRC_OP_READ, VRC_REQ_VISIBLE);
		cr_assert(!complete(first, IBV_WC_REM_ACCESS_ERR, &comp));
		cr_assert(!complete(second, IBV_WC_WR_FLUSH_ERR, &comp));
		cr_assert(complete(last, IBV_WC_WR_FLUSH_ERR, &comp));
		cr_assert_eq(comp.err, FI_EACCES);
		cr_assert_eq(comp.prov_errno, IBV_WC_REM_ACCESS_ERR);
		cr_assert_eq(comp.context, last);
		cr_assert(complete(next, IBV_WC_WR_FLUSH_ERR, &comp));
		cr_assert_eq(comp.err, FI_ECANCELED);
		/* The last is not posted yet. */
		first = post(VRC_OP_READ, VRC_REQ_PART);
		cr_assert(!complete(first, IBV_WC_REM_ACCESS_ERR, &comp));
		last = post(VRC_OP_READ, VRC_REQ_VISIBLE);
		cr_assert(complete(last, IBV_WC_WR_FLUSH_ERR, &comp));
		cr_assert_eq(comp.err, FI_ECANCELED);
	}
}

/* Another thread reads the completion before posting has moved head: nothing is
 * lost, broken queue pair or not. */
Test(ledger, read_before_posted)
{
	struct vrc_comp comp;
	struct vrc_req *req;

	make_ring(0, false);
	for (uint64_t i = 0; i < 4; i++) {
		atomic_store(&ep->flush_deadline_ms, i & 1);
		ep->tx.unordered = i & 2;
		req = hand_over(VRC_OP_SEND, VRC_REQ_VISIBLE);
		cr_assert(complete(req, IBV_WC_WR_FLUSH_ERR, &comp));
		cr_assert_eq(comp.err, FI_ECANCELED);
		cr_assert_eq(vrc_ring_used(&ep->tx), 0);
		atomic_fetch_add(&ep->tx.head, 1);
		cr_assert_eq(tail(), atomic_load(&ep->tx.head));
	}
}

/* What was completed from the ledger is not completed again. */
Test(ledger, late_completion)
{
	struct vrc_comp comp;
	struct vrc_req *req;

	make_ring(0, false);
	req = post(VRC_OP_SEND, VRC_REQ_VISIBLE);
	atomic_store(&ep->flush_deadline_ms, 1);
	req->flags = VRC_REQ_CANCELLED;
	atomic_store(&ep->tx.tail, 1);
	cr_assert(!complete(req, IBV_WC_WR_FLUSH_ERR, &comp));
	cr_assert_eq(tail(), 1);
}

/* Where what follows a read completes before it, each is reported when it comes
 * and its record kept until all before it are done. */
Test(ledger, unordered)
{
	struct vrc_req *read1, *write2, *read3, *send4;
	static struct ibv_mr *mrs[SIZE * VRC_IOV_LIMIT];

	make_ring(0, true);
	ep->tx.mrs = mrs;
	read1 = post(VRC_OP_READ, VRC_REQ_VISIBLE);
	write2 = post(VRC_OP_WRITE, 0);
	read3 = post(VRC_OP_READ, VRC_REQ_VISIBLE);
	send4 = post(VRC_OP_SEND, VRC_REQ_VISIBLE);
	cr_assert(succeeds(send4));
	cr_assert(!succeeds(write2));
	cr_assert_eq(tail(), 0);
	cr_assert(succeeds(read1));
	cr_assert_eq(tail(), 2);
	cr_assert(succeeds(read3));
	cr_assert_eq(tail(), 4);
	cr_assert_eq(released, 4);
}

/* Receives of a shared context come back in any order, belong to the endpoint
 * whose queue pair the device names, and can all be used again. */
Test(ledger, shared_receives)
{
	static struct vrc_srx srx = { .domain = &domain };
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS, .byte_len = 5 };
	struct vrc_req *req, shared[SIZE] = { 0 };
	struct vrc_comp comp;
	int cnt = 0;

	make_ring(0, false);
	ep->qp_num = 42;
	bound = ep;
	for (uint32_t i = 0; i < SIZE; i++)
		shared[i] = (struct vrc_req){ .srx = &srx, .slot = i, .len = 77,
					      .op = VRC_OP_SHARED_RECV,
					      .context = &shared[i] };
	for (uint32_t i = SIZE - 1; i; i--) {
		wc.wr_id = (uintptr_t)&shared[i];
		cr_assert(vrc_cq_resolve(&wc, &comp));
		cr_assert_eq(comp.context, &shared[i]);
		cr_assert_eq(comp.len, 5);
		cr_assert_eq(comp.flags, FI_RECV | FI_MSG);
	}
	cr_assert_eq(broken, 0);
	wc.wr_id = (uintptr_t)&shared[0];
	wc.status = IBV_WC_LOC_LEN_ERR;
	wc.qp_num = 42;
	cr_assert(vrc_cq_resolve(&wc, &comp));
	cr_assert_eq(comp.err, FI_ETRUNC);
	cr_assert_eq(comp.len, 77);
	cr_assert_eq(comp.context, &shared[0]);
	cr_assert_eq(broken, 1);
	for (req = atomic_load(&srx.freed); req; req = req->context)
		cnt++;
	cr_assert_eq(cnt, SIZE);
	cr_assert_eq(tail(), 0);
}

/* Of an endpoint that shows only what asks for it. */
Test(ledger, shared_selective)
{
	static struct vrc_srx srx = { .domain = &domain, .by_ep = true };
	struct vrc_req req = { .srx = &srx, .op = VRC_OP_SHARED_RECV };
	struct ibv_wc wc = { .wr_id = (uintptr_t)&req, .qp_num = 42 };
	struct vrc_comp comp;

	make_ring(0, false);
	ep->qp_num = 42;
	bound = ep;
	cr_assert(vrc_cq_resolve(&wc, &comp));
	ep->rx_selective = true;
	cr_assert(!vrc_cq_resolve(&wc, &comp));
	req.flags = VRC_REQ_VISIBLE;
	cr_assert(vrc_cq_resolve(&wc, &comp));
}
