/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Thread domains and parent domains: that a parent domain is its protection domain
 * by another name, and whose memory queues are in.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(domain, .timeout = 60);

/* What an application's allocator has given. */
struct heap {
	int given;
	int back;
	int asked;
	enum { HEAP_OURS, HEAP_DEFAULT, HEAP_NONE, HEAP_CROOKED } how;
};

static void *heap_alloc(struct ibv_pd *pd, void *ctx, size_t size,
			size_t alignment, uint64_t resource_type)
{
	struct heap *heap = ctx;
	void *ptr;

	heap->asked++;
	if (heap->how == HEAP_DEFAULT)
		return IBV_ALLOCATOR_USE_DEFAULT;
	if (heap->how == HEAP_NONE)
		return NULL;
	MUST(!posix_memalign(&ptr, alignment, size + alignment));
	/* Not zeroed: that is not counted on. */
	memset(ptr, 0xee, size);
	heap->given++;
	return heap->how == HEAP_CROOKED ? (char *)ptr + 8 : ptr;
}

static void heap_free(struct ibv_pd *pd, void *ctx, void *ptr,
		      uint64_t resource_type)
{
	struct heap *heap = ctx;

	heap->back++;
	free(heap->how == HEAP_CROOKED ? (char *)ptr - 8 : ptr);
}

static struct ibv_pd *parent(struct ibv_context *ctx, struct ibv_pd *pd,
			     struct ibv_td *td, struct heap *heap)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.td = td,
		.comp_mask = heap ? IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
					    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT :
				    0,
		.alloc = heap_alloc,
		.free = heap_free,
		.pd_context = heap,
	};

	return ibv_alloc_parent_domain(ctx, &attr);
}

Test(domain, objects_hold_each_other)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_pd *pd;
	struct ibv_td *td;
	struct side s;

	side_open(&s, NULL);
	MUST((td = ibv_alloc_td(s.ctx, &td_attr)));
	td_attr.comp_mask = 1;
	errno = 0;
	cr_assert_null(ibv_alloc_td(s.ctx, &td_attr));
	cr_assert_eq(errno, EINVAL);
	MUST((pd = parent(s.ctx, s.pd, td, NULL)));
	cr_assert_eq(ibv_dealloc_td(td), EBUSY);
	MUST(!sv_destroy_qp(s.qp));
	s.qp = NULL;
	cr_assert_eq(sv_dealloc_pd(s.pd), EBUSY);
	MUST(!sv_dealloc_pd(pd));
	cr_assert_eq(sv_close_device(s.ctx), EBUSY);
	MUST(!ibv_dealloc_td(td));
	side_close(&s);
}

Test(domain, refusals)
{
	struct ibv_parent_domain_init_attr attr = { .comp_mask = 0 };
	struct ibv_pd *pd;
	struct side s, other;

	side_open(&s, NULL);
	side_open(&other, NULL);
	errno = 0;
	cr_assert_null(ibv_alloc_parent_domain(s.ctx, &attr));
	cr_assert_eq(errno, EINVAL);
	attr.pd = other.pd;
	cr_assert_null(ibv_alloc_parent_domain(s.ctx, &attr));
	cr_assert_eq(errno, EINVAL);
	attr.pd = s.pd;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	cr_assert_null(ibv_alloc_parent_domain(s.ctx, &attr));
	cr_assert_eq(errno, EINVAL);
	attr.comp_mask = 1 << 5;
	cr_assert_null(ibv_alloc_parent_domain(s.ctx, &attr));
	cr_assert_eq(errno, EOPNOTSUPP);
	MUST((pd = parent(s.ctx, s.pd, NULL, NULL)));
	attr.comp_mask = 0;
	attr.pd = pd;
	cr_assert_null(ibv_alloc_parent_domain(s.ctx, &attr));
	cr_assert_eq(errno, EINVAL);
	MUST(!sv_dealloc_pd(pd));
	side_close(&s);
	side_close(&other);
}

/* Of two domains that are one: regions of this, queue pairs of that, windows. */
static void traffic(struct heap *heap)
{
	static char abuf[4096], bbuf[4096];
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 16, 16, 1, 1, 0 } };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 64 };
	struct ibv_mw_bind bind;
	struct ibv_mr *ma, *mb;
	struct ibv_cq_ex *cq;
	struct ibv_mw *mw;
	struct ibv_pd *pd;
	struct side a, b;
	struct ibv_wc wc;

	side_open(&a, NULL);
	side_open(&b, NULL);
	MUST(!sv_destroy_qp(b.qp));
	MUST((pd = parent(b.ctx, b.pd, NULL, heap)));
	cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	cq_attr.parent_domain = b.pd;
	errno = 0;
	cr_assert_null(ibv_create_cq_ex(b.ctx, &cq_attr));
	cr_assert_eq(errno, EINVAL);
	cq_attr.parent_domain = pd;
	MUST((cq = ibv_create_cq_ex(b.ctx, &cq_attr)));
	MUST(!sv_resize_cq(ibv_cq_ex_to_cq(cq), 128));
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	MUST((b.qp = sv_create_qp(pd, &init)));
	MUST(!sv_destroy_cq(b.scq) && !sv_destroy_cq(b.rcq));
	b.scq = b.rcq = ibv_cq_ex_to_cq(cq);
	ma = side_reg(&a, abuf, sizeof(abuf));
	MUST((mb = sv_reg_mr(b.pd, bbuf, sizeof(bbuf),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	MUST((mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1)));
	pair_up(&a, &b);

	fill(abuf, 4096, 1);
	MUST(!post_recv(&b, 1, mb, 0, 4096));
	MUST(!post(&a, (struct post){ .op = IBV_WR_SEND, .mr = ma,
				      .len = 4096 }));
	cr_assert_eq(wait_wc(b.rcq).status, IBV_WC_SUCCESS);
	cr_assert(filled(bbuf, 4096, 1));
	bind = (struct ibv_mw_bind){
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mb,
			       .addr = (uintptr_t)bbuf,
			       .length = 64,
			       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};
	MUST(!ibv_bind_mw(b.qp, mw, &bind));
	cr_assert_eq(wait_wc(b.scq).status, IBV_WC_SUCCESS);
	MUST(!post(&a, (struct post){ .op = IBV_WR_RDMA_WRITE,
				      .flags = IBV_SEND_SIGNALED,
				      .mr = ma,
				      .off = 64,
				      .len = 64,
				      .raddr = (uintptr_t)bbuf,
				      .rkey = mw->rkey }));
	while (!wait_wc_ms(a.scq, &wc, 0))
		ibv_poll_cq(b.rcq, 0, &wc);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert(!memcmp(bbuf, abuf + 64, 64));

	MUST(!ibv_dealloc_mw(mw) && !sv_dereg_mr(ma) && !sv_dereg_mr(mb));
	MUST(!sv_destroy_qp(b.qp));
	b.qp = NULL;
	cr_assert_eq(sv_dealloc_pd(pd), EBUSY);
	MUST(!sv_destroy_cq(b.rcq));
	MUST(!sv_dealloc_pd(pd));
	MUST((b.scq = b.rcq = sv_create_cq(b.ctx, 1, NULL, NULL, 0)));
	side_close(&a);
	side_close(&b);
}

Test(domain, traffic_plain) { traffic(NULL); }

Test(domain, traffic_in_the_applications_memory)
{
	struct heap heap = { .how = HEAP_OURS };

	traffic(&heap);
	/* Both queues, and the ring twice. */
	cr_assert_eq(heap.given, 4);
	cr_assert_eq(heap.back, 4);
}

Test(domain, traffic_in_memory_that_it_declines_to_give)
{
	struct heap heap = { .how = HEAP_DEFAULT };

	traffic(&heap);
	cr_assert_eq(heap.asked, 4);
	cr_assert_eq(heap.back, 0);
}

/* Shared receive queues too, also when they grow. */
Test(domain, srq)
{
	struct heap heap = { .how = HEAP_OURS };
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8,
						    .max_sge = 1 } };
	struct ibv_srq_attr attr = { .max_wr = 64 };
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct side s;

	side_open(&s, NULL);
	MUST((pd = parent(s.ctx, s.pd, NULL, &heap)));
	MUST((srq = sv_create_srq(pd, &init)));
	MUST(!ibv_post_srq_recv(srq, &wr, &bad));
	MUST(!sv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	cr_assert_eq(heap.given, 2);
	cr_assert_eq(heap.back, 1);
	MUST(!sv_destroy_srq(srq));
	cr_assert_eq(heap.back, 2);
	MUST(!sv_dealloc_pd(pd));
	side_close(&s);
}

Test(domain, allocators_that_fail)
{
	struct heap heap = { .how = HEAP_NONE };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_pd *pd;
	struct side s;

	side_open(&s, NULL);
	init.send_cq = init.recv_cq = s.scq;
	MUST((pd = parent(s.ctx, s.pd, NULL, &heap)));
	errno = 0;
	cr_assert_null(sv_create_qp(pd, &init));
	cr_assert_eq(errno, ENOMEM);
	heap.how = HEAP_CROOKED;
	errno = 0;
	cr_assert_null(sv_create_qp(pd, &init));
	cr_assert_eq(errno, EINVAL);
	cr_assert_eq(heap.given, heap.back);
	MUST(!sv_dealloc_pd(pd));
	side_close(&s);
}
