/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory regions: that what is withdrawn is not touched any more, whoever was at
 * it; regions whose bytes are not addressed as they lie, come on demand, or
 * from a descriptor.
 */
#include "side.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

TestSuite(mr, .timeout = 120);

enum { LEN = 1 << 20 };

struct pair {
	struct side a, b;
};

static void setup(struct pair *p, bool direct)
{
	side_direct(direct);
	side_open(&p->a, NULL);
	side_open(&p->b, NULL);
	pair_up(&p->a, &p->b);
}

static void teardown(struct pair *p)
{
	side_close(&p->a);
	side_close(&p->b);
}

static void *map(void)
{
	void *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	MUST(mem != MAP_FAILED);
	return mem;
}

struct holder {
	struct sv_qp *qp;
	atomic_int step; /* 1: has the lock, 2: is about to give it back */
};

static void *hold(void *arg)
{
	struct holder *h = arg;

	sv_lock_take(&h->qp->lock);
	atomic_store(&h->step, 1);
	usleep(50000);
	atomic_store(&h->step, 2);
	sv_lock_drop(&h->qp->lock);
	return NULL;
}

/* What is done to a region while a thread is at work on one of the QPs. */
static void waits_for_holder(bool rereg)
{
	struct holder h = { .step = 0 };
	pthread_t thread;
	struct ibv_mr *mr;
	struct pair p;
	void *mem;

	setup(&p, true);
	mem = map();
	mr = side_reg(&p.b, mem, LEN);
	h.qp = sv_qp(p.b.qp);
	MUST(!pthread_create(&thread, NULL, hold, &h));
	while (!atomic_load(&h.step))
		sched_yield();
	if (rereg)
		MUST(!sv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				  0));
	else
		MUST(!sv_dereg_mr(mr));
	cr_assert_eq(atomic_load(&h.step), 2);
	pthread_join(thread, NULL);
	if (rereg)
		MUST(!sv_dereg_mr(mr));
	munmap(mem, LEN);
	teardown(&p);
}

Test(mr, dereg_waits_for_own_threads) { waits_for_holder(false); }
Test(mr, rereg_waits_for_own_threads) { waits_for_holder(true); }

/* A link that was given up before it stood is none to wait for. */
Test(mr, dereg_after_a_link_that_never_stood)
{
	struct sv_link *link;
	struct ibv_mr *mr;
	struct pair p;
	void *mem = map();
	int i;

	setup(&p, true);
	for (i = 0; i < 3; i++) {
		MUST(!sv_shm_create(sv_qp(p.a.qp), &link));
		sv_link_close(link);
	}
	mr = side_reg(&p.b, mem, LEN);
	MUST(!sv_dereg_mr(mr));
	munmap(mem, LEN);
	teardown(&p);
}

/* Polls until told to stop: it is in the middle of a copy most of the time. */
struct poller {
	struct ibv_cq *cq;
	atomic_bool stop;
};

static void *poll_on(void *arg)
{
	struct poller *p = arg;
	struct ibv_wc wc;

	while (!atomic_load(&p->stop))
		ibv_poll_cq(p->cq, 1, &wc);
	return NULL;
}

/* Another thread's polls put a message or write into memory that goes away. */
static void unmapped_under_copy(enum ibv_wr_opcode op)
{
	struct poller poller = { .stop = false };
	static char src[LEN];
	struct ibv_mr *ma, *mb;
	pthread_t thread;
	struct pair p;
	void *mem;
	int i;

	for (i = 0; i < 60; i++) {
		setup(&p, false);
		mem = map();
		ma = side_reg(&p.a, src, LEN);
		mb = side_reg(&p.b, mem, LEN);
		poller.cq = p.b.rcq;
		atomic_store(&poller.stop, false);
		MUST(!pthread_create(&thread, NULL, poll_on, &poller));
		MUST(!post_recv(&p.b, 1, mb, 0, LEN));
		MUST(!post(&p.a, (struct post){ .op = op,
						.flags = IBV_SEND_SIGNALED,
						.mr = ma,
						.len = LEN,
						.raddr = (uintptr_t)mem,
						.rkey = mb->rkey }));
		usleep(i * 3);
		MUST(!sv_dereg_mr(mb));
		munmap(mem, LEN);
		usleep(200);
		atomic_store(&poller.stop, true);
		pthread_join(thread, NULL);
		MUST(!sv_dereg_mr(ma));
		teardown(&p);
	}
}

Test(mr, unmapped_under_send) { unmapped_under_copy(IBV_WR_SEND); }
Test(mr, unmapped_under_write) { unmapped_under_copy(IBV_WR_RDMA_WRITE); }

/* A send stands still half way, for want of a receive, and loses its memory. */
static void source_goes(bool direct)
{
	static char dst[LEN];
	struct ibv_mr *ma, *mb;
	struct pair p;
	struct ibv_wc wc;
	void *mem;

	setup(&p, direct);
	mem = map();
	ma = side_reg(&p.a, mem, LEN);
	mb = side_reg(&p.b, dst, LEN);
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED,
					.mr = ma,
					.len = LEN }));
	MUST(!sv_dereg_mr(ma));
	munmap(mem, LEN);
	MUST(!post_recv(&p.b, 1, mb, 0, LEN));
	do {
		wait_wc_ms(p.b.rcq, &wc, 0);
	} while (!wait_wc_ms(p.a.scq, &wc, 1));
	cr_assert_eq(wc.status, IBV_WC_LOC_PROT_ERR);
	MUST(!sv_dereg_mr(mb));
	teardown(&p);
}

Test(mr, source_goes_ring) { source_goes(false); }
Test(mr, source_goes_pull) { source_goes(true); }

/* A read whose memory has gone when the answer comes. */
Test(mr, read_sink_goes)
{
	static char src[LEN];
	struct ibv_mr *ma, *mb;
	struct pair p;
	struct ibv_wc wc;
	void *mem;

	side_direct(false);
	side_open(&p.a, NULL);
	side_open(&p.b, NULL);
	mem = map();
	ma = side_reg(&p.a, mem, LEN);
	mb = side_reg(&p.b, src, LEN);
	MUST(!side_init(&p.a) && !side_init(&p.b));
	pair_links(&p.a, &p.b, getpid());
	MUST(!side_rtr(&p.a, p.b.qp->qp_num) && !side_rts(&p.a));
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_RDMA_READ,
					.flags = IBV_SEND_SIGNALED,
					.mr = ma,
					.len = LEN,
					.raddr = (uintptr_t)src,
					.rkey = mb->rkey }));
	MUST(!sv_dereg_mr(ma));
	munmap(mem, LEN);
	/* Now it may answer. */
	MUST(!side_rtr(&p.b, p.a.qp->qp_num) && !side_rts(&p.b));
	do {
		wait_wc_ms(p.b.rcq, &wc, 0);
	} while (!wait_wc_ms(p.a.scq, &wc, 1));
	cr_assert_eq(wc.status, IBV_WC_LOC_PROT_ERR);
	MUST(!sv_dereg_mr(mb));
	teardown(&p);
}

/* ---- other addresses ---- */

enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
	      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	PART = 100000,
};

/* Where the region's bytes lie, and how they are addressed. */
struct place {
	struct ibv_mr *mr;
	char *mem;
	uint64_t addr;
};

static struct ibv_sge at(const struct place *p, uint64_t off, uint32_t len)
{
	return (struct ibv_sge){ .addr = p->addr + off,
				 .length = len,
				 .lkey = p->mr->lkey };
}

static void send_list(struct side *s, struct ibv_sge *sge, int cnt,
		      enum ibv_wr_opcode op, const struct place *to,
		      uint64_t off)
{
	struct ibv_send_wr wr = {
		.sg_list = sge,
		.num_sge = cnt,
		.opcode = op,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = to->addr + off,
			     .rkey = to->mr->rkey },
	};
	struct ibv_send_wr *bad;

	MUST(!ibv_post_send(s->qp, &wr, &bad));
}

static void recv_list(struct side *s, struct ibv_sge *sge, int cnt)
{
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = cnt }, *bad;

	MUST(!ibv_post_recv(s->qp, &wr, &bad));
}

/* Every operation from a to b: sends of these lengths, a write, a read, an atomic,
 * with memory of either kind in one WR. */
static void traffic(struct pair *p, const struct place *a,
		    const struct place *b, const struct place *plain)
{
	static const uint32_t lens[] = { 1, 64, 5000, PART };
	struct ibv_send_wr atomic = { 0 }, *bad;
	struct ibv_sge from[2], to[2];
	struct ibv_wc wc;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		fill(a->mem + 10, lens[i], i);
		fill(plain->mem, 16, i + 7);
		memset(b->mem, 0, 2 * PART);
		from[0] = at(a, 10, lens[i]);
		from[1] = at(plain, 0, 16);
		to[0] = at(b, 3, lens[i] / 2);
		to[1] = at(b, PART, PART);
		recv_list(&p->b, to, 2);
		send_list(&p->a, from, 2, IBV_WR_SEND, b, 0);
		cr_assert_eq(wait_wc(p->b.rcq).status, IBV_WC_SUCCESS);
		wait_wc(p->a.scq);
		cr_assert(!memcmp(b->mem + 3, a->mem + 10, lens[i] / 2));
		cr_assert(!memcmp(b->mem + PART, a->mem + 10 + lens[i] / 2,
				  lens[i] - lens[i] / 2));
		cr_assert(filled(b->mem + PART + lens[i] - lens[i] / 2, 16,
				 i + 7));

		send_list(&p->a, from, 1, IBV_WR_RDMA_WRITE, b, 77);
		while (!wait_wc_ms(p->a.scq, &wc, 0))
			wait_wc_ms(p->b.rcq, &wc, 0);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert(filled(b->mem + 77, lens[i], i));

		from[0] = at(a, PART, lens[i]);
		send_list(&p->a, from, 1, IBV_WR_RDMA_READ, b, 77);
		while (!wait_wc_ms(p->a.scq, &wc, 0))
			wait_wc_ms(p->b.rcq, &wc, 0);
		cr_assert_eq(wc.status, IBV_WC_SUCCESS);
		cr_assert(filled(a->mem + PART, lens[i], i));
	}
	*(uint64_t *)b->mem = 5;
	from[0] = at(a, 8, 8);
	atomic.sg_list = from;
	atomic.num_sge = 1;
	atomic.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	atomic.send_flags = IBV_SEND_SIGNALED;
	atomic.wr.atomic.remote_addr = b->addr;
	atomic.wr.atomic.rkey = b->mr->rkey;
	atomic.wr.atomic.compare_add = 6;
	MUST(!ibv_post_send(p->a.qp, &atomic, &bad));
	while (!wait_wc_ms(p->a.scq, &wc, 0))
		wait_wc_ms(p->b.rcq, &wc, 0);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert_eq(*(uint64_t *)(a->mem + 8), 5);
	cr_assert_eq(*(uint64_t *)b->mem, 11);
}

/* One byte too many, at either end, at either side. */
static void out_of_bounds(const struct place *b, struct pair *p,
			  const struct place *plain)
{
	struct ibv_sge from[1] = { at(plain, 0, 8) };
	struct ibv_wc wc;

	send_list(&p->a, from, 1, IBV_WR_RDMA_WRITE, b, LEN - 7);
	while (!wait_wc_ms(p->a.scq, &wc, 0))
		wait_wc_ms(p->b.rcq, &wc, 0);
	cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
}

static void elsewhere(bool direct, uint64_t iova, int access)
{
	struct place a, b, plain;
	static char buf[4096];
	struct pair p;

	setup(&p, direct);
	a.mem = map();
	b.mem = map();
	plain.mem = buf;
	MUST((a.mr = sv_reg_mr_iova(p.a.pd, a.mem, LEN, iova, ALL | access)));
	MUST((b.mr = sv_reg_mr_iova(p.b.pd, b.mem, LEN, iova + 4096,
				    ALL | access)));
	MUST((plain.mr = sv_reg_mr(p.a.pd, buf, sizeof(buf), ALL)));
	a.addr = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	b.addr = access & IBV_ACCESS_ZERO_BASED ? 0 : iova + 4096;
	plain.addr = (uintptr_t)buf;
	traffic(&p, &a, &b, &plain);
	/* Where the bytes lie is no address. */
	if (iova != (uintptr_t)a.mem) {
		struct sv_qp *qp = sv_qp(p.a.qp);
		uint64_t va;

		cr_assert_not(sv_mr_check(sv_mr_table(), a.mr->lkey,
					  qp->pd->id, 0, (uintptr_t)a.mem, 1,
					  &va));
	}
	out_of_bounds(&b, &p, &plain);
	MUST(!sv_dereg_mr(a.mr) && !sv_dereg_mr(b.mr) &&
	     !sv_dereg_mr(plain.mr));
	munmap(a.mem, LEN);
	munmap(b.mem, LEN);
	teardown(&p);
}

Test(mr, iova) { elsewhere(true, 0x123456789000, 0); }
Test(mr, iova_ring) { elsewhere(false, 0x123456789000, 0); }
Test(mr, iova_0) { elsewhere(true, 0, 0); }
Test(mr, zero_based) { elsewhere(true, 0x1000, IBV_ACCESS_ZERO_BASED); }
Test(mr, zero_based_ring) { elsewhere(false, 0x1000, IBV_ACCESS_ZERO_BASED); }
Test(mr, on_demand) { elsewhere(true, 0x5000, IBV_ACCESS_ON_DEMAND); }
Test(mr, on_demand_ring) { elsewhere(false, 0x5000, IBV_ACCESS_ON_DEMAND); }

Test(mr, iova_must_not_wrap)
{
	struct side s;
	void *mem = map();

	side_open(&s, NULL);
	errno = 0;
	cr_assert_null(sv_reg_mr_iova(s.pd, mem, LEN, UINT64_MAX - 4095, ALL));
	cr_assert_eq(errno, EINVAL);
	munmap(mem, LEN);
	side_close(&s);
}

/* The receive is there before its memory moves: what it names means nothing. */
Test(mr, rereg_moves_iova_back)
{
	struct ibv_mr *mr;
	uint64_t va;
	struct side s;
	char *mem = map();

	side_open(&s, NULL);
	MUST((mr = sv_reg_mr_iova(s.pd, mem, LEN, 0x7000, ALL)));
	MUST(!sv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			  mem + 4096, 4096, 0));
	cr_assert_not(sv_mr_check(sv_mr_table(), mr->lkey, sv_pd(s.pd)->id, 0,
				  0x7000, 1, &va));
	cr_assert(sv_mr_check(sv_mr_table(), mr->lkey, sv_pd(s.pd)->id, 0,
			      (uintptr_t)mem + 4096, 4096, &va));
	MUST(!sv_dereg_mr(mr));
	munmap(mem, LEN);
	side_close(&s);
}

/* ---- on demand ---- */

/* All memory at once; some of it is not there, or goes. */
static void implicit(bool direct)
{
	struct place a = { .addr = 0 }, b = { .addr = 0 };
	struct ibv_sge from, to;
	struct ibv_wc wc;
	struct pair p;
	char *hole;

	setup(&p, direct);
	MUST((a.mr = sv_reg_mr(p.a.pd, NULL, SIZE_MAX,
			       ALL | IBV_ACCESS_ON_DEMAND)));
	MUST((b.mr = sv_reg_mr(p.b.pd, NULL, SIZE_MAX,
			       ALL | IBV_ACCESS_ON_DEMAND)));
	/* Mapped after it was registered. */
	a.mem = map();
	b.mem = map();
	fill(a.mem, 1000, 3);
	from = at(&a, (uintptr_t)a.mem, 1000);
	to = at(&b, (uintptr_t)b.mem, 1000);
	recv_list(&p.b, &to, 1);
	send_list(&p.a, &from, 1, IBV_WR_SEND, &b, 0);
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_SUCCESS);
	cr_assert(filled(b.mem, 1000, 3));
	wait_wc(p.a.scq);
	send_list(&p.a, &from, 1, IBV_WR_RDMA_WRITE, &b,
		  (uintptr_t)b.mem + 4096);
	while (!wait_wc_ms(p.a.scq, &wc, 0))
		wait_wc_ms(p.b.rcq, &wc, 0);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS);
	cr_assert(filled(b.mem + 4096, 1000, 3));
	/* What is not there is an error, and no more. */
	hole = map();
	munmap(hole, LEN);
	send_list(&p.a, &from, 1, IBV_WR_RDMA_WRITE, &b, (uintptr_t)hole);
	while (!wait_wc_ms(p.a.scq, &wc, 0))
		wait_wc_ms(p.b.rcq, &wc, 0);
	cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
	MUST(!sv_dereg_mr(a.mr) && !sv_dereg_mr(b.mr));
	munmap(a.mem, LEN);
	munmap(b.mem, LEN);
	teardown(&p);
}

Test(mr, implicit) { implicit(true); }
Test(mr, implicit_ring) { implicit(false); }

/* The source, or the receive, is not there. */
Test(mr, on_demand_hole_of_our_own)
{
	struct place a, b;
	struct ibv_sge sge;
	struct pair p;
	int i;

	for (i = 0; i < 2; i++) {
		setup(&p, true);
		a.mem = map();
		b.mem = map();
		a.addr = (uintptr_t)a.mem;
		b.addr = (uintptr_t)b.mem;
		MUST((a.mr = sv_reg_mr(p.a.pd, a.mem, LEN,
				       ALL | IBV_ACCESS_ON_DEMAND)));
		MUST((b.mr = sv_reg_mr(p.b.pd, b.mem, LEN,
				       ALL | IBV_ACCESS_ON_DEMAND)));
		munmap(i ? b.mem : a.mem, LEN);
		sge = at(&b, 0, 64);
		recv_list(&p.b, &sge, 1);
		sge = at(&a, 0, 64);
		send_list(&p.a, &sge, 1, IBV_WR_SEND, &b, 0);
		if (i)
			cr_assert_eq(wait_wc(p.b.rcq).status,
				     IBV_WC_LOC_PROT_ERR);
		cr_assert_eq(wait_wc(p.a.scq).status,
			     i ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR);
		MUST(!sv_dereg_mr(a.mr) && !sv_dereg_mr(b.mr));
		munmap(i ? a.mem : b.mem, LEN);
		teardown(&p);
	}
}

/* Everything that the manual page promises of advice. */
Test(mr, advice)
{
	const enum ibv_advise_mr_advice read = IBV_ADVISE_MR_ADVICE_PREFETCH,
					write =
		IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct ibv_mr *mr, *ro, *pinned;
	struct ibv_sge sge[2];
	unsigned char there;
	struct side s;
	char *mem;

	side_open(&s, NULL);
	mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(mem != MAP_FAILED);
	MUST((mr = sv_reg_mr(s.pd, mem, LEN, ALL | IBV_ACCESS_ON_DEMAND)));
	MUST((ro = sv_reg_mr(s.pd, mem, LEN, IBV_ACCESS_ON_DEMAND)));
	MUST(!mincore(mem + 8192, 4096, &there));
	cr_assert_not(there & 1);
	sge[0] = (struct ibv_sge){ .addr = (uintptr_t)mem + 8192,
				   .length = 4096,
				   .lkey = mr->lkey };
	cr_assert_eq(ibv_advise_mr(s.pd, write, IBV_ADVISE_MR_FLAG_FLUSH, sge,
				   1),
		     0);
	MUST(!mincore(mem + 8192, 4096, &there));
	cr_assert(there & 1);
	cr_assert_eq(ibv_advise_mr(s.pd, read, 0, sge, 1), 0);
	cr_assert_eq(ibv_advise_mr(s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
				   0, sge, 1),
		     0);
	cr_assert_eq(ibv_advise_mr(s.pd, read, 2, sge, 1), EINVAL);
	cr_assert_eq(ibv_advise_mr(s.pd, 17, 0, sge, 1), EOPNOTSUPP);
	sge[1] = sge[0];
	sge[1].lkey ^= 1;
	cr_assert_eq(ibv_advise_mr(s.pd, read, 0, sge, 2), ENOENT);
	sge[1].lkey = ro->lkey;
	cr_assert_eq(ibv_advise_mr(s.pd, read, 0, sge, 2), 0);
	cr_assert_eq(ibv_advise_mr(s.pd, write, 0, sge, 2), EPERM);
	sge[1] = sge[0];
	sge[1].length = LEN;
	cr_assert_eq(ibv_advise_mr(s.pd, read, 0, sge, 2), EFAULT);
	MUST((pinned = sv_reg_mr(s.pd, mem, LEN, ALL)));
	sge[1] = sge[0];
	sge[1].lkey = pinned->lkey;
	cr_assert_eq(ibv_advise_mr(s.pd, read, 0, sge, 2), EINVAL);
	munmap(mem, LEN);
	cr_assert_eq(ibv_advise_mr(s.pd, read, 0, sge, 1), EFAULT);
	MUST(!sv_dereg_mr(mr) && !sv_dereg_mr(ro) && !sv_dereg_mr(pinned));
	side_close(&s);
}

/* ---- from a descriptor ---- */

static int memfd(int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && !ftruncate(fd, LEN));
	MUST(!fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static void dmabuf(bool direct)
{
	const uint64_t iova = 0x40000000, off = 8192 + 100;
	int fd = memfd(F_SEAL_SHRINK);
	struct place a, b, plain;
	static char buf[4096];
	char *mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct pair p;

	MUST(mem != MAP_FAILED);
	setup(&p, direct);
	a.mem = map();
	a.addr = (uintptr_t)a.mem;
	MUST((a.mr = sv_reg_mr(p.a.pd, a.mem, LEN, ALL)));
	MUST((b.mr = sv_reg_dmabuf_mr(p.b.pd, off, 4 * PART, iova + 100, fd,
				      ALL)));
	b.mem = mem + off;
	b.addr = iova + 100;
	close(fd);
	/* Atomics want an aligned address. */
	b.mem += 4;
	b.addr += 4;
	plain.mem = buf;
	plain.addr = (uintptr_t)buf;
	MUST((plain.mr = sv_reg_mr(p.a.pd, buf, sizeof(buf), ALL)));
	traffic(&p, &a, &b, &plain);
	errno = 0;
	cr_assert_eq(sv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				 buf, 100, 0),
		     IBV_REREG_MR_ERR_INPUT);
	cr_assert_eq(errno, EOPNOTSUPP);
	MUST(!sv_dereg_mr(a.mr) && !sv_dereg_mr(b.mr) &&
	     !sv_dereg_mr(plain.mr));
	munmap(a.mem, LEN);
	munmap(mem, LEN);
	teardown(&p);
}

Test(mr, dmabuf) { dmabuf(true); }
Test(mr, dmabuf_ring) { dmabuf(false); }

static int dmabuf_errno(struct side *s, uint64_t off, size_t len, uint64_t iova,
			int fd, int access)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = sv_reg_dmabuf_mr(s->pd, off, len, iova, fd, access);
	if (!mr)
		return errno;
	MUST(!sv_dereg_mr(mr));
	return 0;
}

Test(mr, dmabuf_refusals)
{
	char path[] = "/tmp/dmabufXXXXXX";
	int sealed = memfd(F_SEAL_SHRINK), loose = memfd(0), file, pipefd[2];
	struct side s;

	MUST((file = mkstemp(path)) >= 0 && !ftruncate(file, LEN));
	MUST(!unlink(path) && !pipe(pipefd));
	side_open(&s, NULL);
	cr_assert_eq(dmabuf_errno(&s, 0, LEN, 0, sealed, ALL), 0);
	cr_assert_eq(dmabuf_errno(&s, 1, LEN, 1, sealed, ALL), EINVAL);
	cr_assert_eq(dmabuf_errno(&s, LEN, 1, 0, sealed, ALL), EINVAL);
	cr_assert_eq(dmabuf_errno(&s, UINT64_MAX, 2, 0, sealed, ALL), EINVAL);
	cr_assert_eq(dmabuf_errno(&s, 0, 0, 0, sealed, ALL), EINVAL);
	cr_assert_eq(dmabuf_errno(&s, 0, SIZE_MAX, 0, sealed, ALL), EINVAL);
	cr_assert_eq(dmabuf_errno(&s, 4, 8, 8, sealed, ALL), EINVAL);
	cr_assert_eq(dmabuf_errno(&s, 0, 8, 0, sealed, IBV_ACCESS_REMOTE_WRITE),
		     EINVAL);
	cr_assert_eq(dmabuf_errno(&s, 0, 8, 0, sealed,
				  ALL | IBV_ACCESS_ON_DEMAND),
		     EINVAL);
	/* Cut short under us it would kill us. */
	cr_assert_eq(dmabuf_errno(&s, 0, 8, 0, loose, ALL), EOPNOTSUPP);
	cr_assert_eq(dmabuf_errno(&s, 0, 8, 0, file, ALL), EOPNOTSUPP);
	cr_assert_eq(dmabuf_errno(&s, 0, 8, 0, pipefd[0], ALL), EOPNOTSUPP);
	cr_assert_eq(dmabuf_errno(&s, 0, 8, 0, 987654, ALL), EBADF);
	side_close(&s);
	close(sealed);
	close(loose);
	close(file);
}
