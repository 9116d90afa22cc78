/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Peers that break the rules of a link: what they write into shared memory,
 * what they send as descriptors. The QP dies at worst, the process never.
 * And many links on one completion queue.
 */
#include "pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

TestSuite(link_hostile, .timeout = 120);

static char abuf[1 << 16], bbuf[1 << 16];

static void setup(struct pair *p)
{
	side_open(&p->a, NULL);
	side_open(&p->b, NULL);
	p->ma = side_reg(&p->a, abuf, sizeof(abuf));
	p->mb = side_reg(&p->b, bbuf, sizeof(bbuf));
	pair_up(&p->a, &p->b);
}

/* Puts a slot into the ring that b receives from, as its peer could; ahead: of
 * those that wait there already. */
static void inject_at(struct side *b, uint32_t ahead, const struct sv_slot *bad)
{
	struct sv_shm *shm = sv_shm(sv_qp(b->qp)->link);
	uint32_t next = atomic_load(&shm->rx_next) + ahead;
	struct sv_slot *slot = &shm->own->slots[next % SV_SLOT_CNT];

	memcpy((char *)slot + 4, (const char *)bad + 4, sizeof(*bad) - 4);
	atomic_store(&slot->seq, next / SV_SLOT_CNT + 1);
}

static void inject(struct side *b, const struct sv_slot *bad)
{
	inject_at(b, 0, bad);
}

static const struct sv_slot broken[] = {
	{ .op = 0, .flags = SV_SLOT_FIRST | SV_SLOT_LAST },
	{ .op = 99, .flags = SV_SLOT_FIRST | SV_SLOT_LAST },
	{ .op = SV_OP_SEND, .flags = SV_SLOT_LAST },
	{ .op = SV_OP_SEND, .flags = SV_SLOT_FIRST | SV_SLOT_LAST,
	  .len = SV_SLOT_DATA + 1, .total = SV_SLOT_DATA + 1 },
	{ .op = SV_OP_SEND, .flags = SV_SLOT_FIRST | SV_SLOT_LAST, .len = 8,
	  .total = 4 },
	{ .op = SV_OP_SEND, .flags = SV_SLOT_FIRST | SV_SLOT_LAST, .len = 8,
	  .total = 16 },
	{ .op = SV_OP_SEND,
	  .flags = SV_SLOT_FIRST | SV_SLOT_LAST | SV_SLOT_RING, .len = 100,
	  .total = 100, .pos = SV_DATA_SIZE - 50 },
	{ .op = SV_OP_SEND,
	  .flags = SV_SLOT_FIRST | SV_SLOT_LAST | SV_SLOT_RING,
	  .len = UINT32_MAX, .total = UINT32_MAX, .pos = 64 },
	{ .op = SV_OP_PULL, .flags = SV_SLOT_FIRST | SV_SLOT_LAST, .cnt = 17,
	  .len = 17 * 16, .total = 8 },
	{ .op = SV_OP_PULL, .flags = SV_SLOT_FIRST | SV_SLOT_LAST, .cnt = 2,
	  .len = 16, .total = 8 },
	{ .op = SV_OP_WRITTEN, .flags = SV_SLOT_FIRST | SV_SLOT_LAST },
	{ .op = SV_OP_WRITE, .flags = SV_SLOT_LAST, .len = 8 },
	{ .op = SV_OP_CMP_SWP, .flags = SV_SLOT_FIRST | SV_SLOT_LAST,
	  .len = 8 },
	{ .op = SV_OP_FETCH_ADD, .flags = SV_SLOT_FIRST | SV_SLOT_LAST,
	  .len = 24 },
	{ .op = SV_OP_FETCH_ADD,
	  .flags = SV_SLOT_FIRST | SV_SLOT_LAST | SV_SLOT_RING, .len = 16 },
};

Test(link_hostile, broken_slots)
{
	struct ibv_async_event event;
	struct pair p;
	struct ibv_wc wc;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(broken); i++) {
		setup(&p);
		MUST(!post_recv(&p.b, 1, p.mb, 0, sizeof(bbuf)));
		inject(&p.b, &broken[i]);
		MUST(wait_wc_ms(p.b.rcq, &wc, SIDE_WAIT_MS));
		cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR, "slot %zu", i);
		cr_assert_eq(p.b.qp->state, IBV_QPS_ERR);
		MUST(!sv_get_async_event(p.b.ctx, &event));
		cr_assert_eq(event.event_type, IBV_EVENT_QP_FATAL);
		sv_ack_async_event(&event);
		teardown(&p);
	}
}

/*
 * A piece of another message in the middle of one. If it counted for this one, its
 * length would let the next piece pass the end of the receive's buffers.
 */
Test(link_hostile, pieces_of_two_messages)
{
	const struct sv_slot send = { .op = SV_OP_SEND, .len = 8 };
	struct sv_slot slot;
	struct pair p;
	struct ibv_wc wc;
	int last;

	for (last = 0; last < 2; last++) {
		setup(&p);
		memset(bbuf, 0, sizeof(bbuf));
		MUST(!post_recv(&p.b, 1, p.mb, 0, 16));
		slot = send;
		slot.flags = SV_SLOT_FIRST;
		slot.total = 16;
		memset(slot.data, 1, 8);
		/* The first goes in last: only then are the others looked at. */
		inject_at(&p.b, 2, &(struct sv_slot){
			.op = SV_OP_SEND,
			.flags = last ? SV_SLOT_LAST : 0,
			.len = last ? 0 : 90,
			.data = { 3 },
		});
		inject_at(&p.b, 1, &(struct sv_slot){
			.op = SV_OP_WRITE,
			.len = last ? 8 : 90,
			.rkey = p.mb->rkey,
			.raddr = (uintptr_t)bbuf + 4096,
			.data = { 2 },
		});
		inject(&p.b, &slot);
		wc = wait_wc(p.b.rcq);
		cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
		cr_assert_eq(p.b.qp->state, IBV_QPS_ERR);
		cr_assert_eq(bbuf[7], 1);
		cr_assert_eq(bbuf[4096], 0);
		teardown(&p);
	}
}

/* Whatever the bytes, one slot makes at most one completion go out well. */
Test(link_hostile, random_slots)
{
	struct sv_slot slot;
	struct pair p;
	struct ibv_wc wc;
	unsigned int i, op;

	srand(1);
	for (i = 0; i < 300; i++) {
		setup(&p);
		MUST(!post_recv(&p.b, 1, p.mb, 0, 4096));
		fill(&slot, sizeof(slot), i);
		op = rand() % (SV_OP_FETCH_ADD + 2);
		/* A PULL in one process is trusted: it is our own memory. */
		slot.op = op == SV_OP_PULL ? SV_OP_WRITE : op;
		if (i % 2)
			slot.len %= 200;
		if (i % 4 == 1)
			slot.total = slot.len;
		slot.flags = rand() % 32;
		inject(&p.b, &slot);
		wait_wc_ms(p.b.rcq, &wc, 2);
		teardown(&p);
	}
}

/* More acknowledged than was ever sent; nonsense as the reason of a refusal. */
Test(link_hostile, broken_acknowledgements)
{
	struct sv_shm *shm;
	struct pair p;
	struct ibv_wc wc;

	setup(&p);
	shm = sv_shm(sv_qp(p.a.qp)->link);
	MUST(!post_recv(&p.a, 1, p.ma, 0, 64));
	/* Its head is looked at when a completion is wanted. */
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED }));
	atomic_store(&shm->peer->head, 77);
	wc = wait_wc(p.a.rcq);
	cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	teardown(&p);

	setup(&p);
	shm = sv_shm(sv_qp(p.a.qp)->link);
	atomic_store(&shm->own->nak, 0xabcdef);
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_SEND }));
	sv_shm_ring_hard(sv_shm(sv_qp(p.b.qp)->link));
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_REM_OP_ERR);
	teardown(&p);
}

/* More of an answer than the ring holds; an answer that nobody asked for. */
Test(link_hostile, broken_answers)
{
	struct sv_shm *shm;
	struct pair p;
	struct ibv_wc wc;

	setup(&p);
	shm = sv_shm(sv_qp(p.a.qp)->link);
	/* Its peer has no receive, so the atomic behind stays unanswered. */
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_SEND }));
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
					.mr = p.ma,
					.len = 8,
					.raddr = (uintptr_t)bbuf,
					.rkey = p.mb->rkey }));
	atomic_store(&shm->own->resp_tail, SV_RESP_SIZE + 1);
	wc = wait_wc(p.a.scq);
	cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(p.a.qp->state, IBV_QPS_ERR);
	teardown(&p);

	setup(&p);
	shm = sv_shm(sv_qp(p.a.qp)->link);
	abuf[0] = 0;
	atomic_store(&shm->own->resp_tail, SV_RESP_SIZE);
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_RDMA_WRITE,
					.flags = IBV_SEND_SIGNALED,
					.mr = p.ma,
					.len = 8,
					.raddr = (uintptr_t)bbuf,
					.rkey = p.mb->rkey }));
	cr_assert_eq(wait_wc(p.a.scq).status, IBV_WC_SUCCESS);
	teardown(&p);
}

/* The same of a message that the peer is to bring, because we cannot read it. */
Test(link_hostile, broken_lift)
{
	struct sv_shm *shm;
	struct sv_qp *qp;
	struct pair p;

	setup(&p);
	qp = sv_qp(p.b.qp);
	shm = sv_shm(qp->link);
	/* It waits for a receive until we have lost the way. */
	MUST(!post(&p.a, (struct post){ .op = IBV_WR_SEND,
					.mr = p.ma,
					.len = SV_EAGER_MAX + 1 }));
	sv_lock_take(&qp->lock);
	sv_shm_cma_lost(shm);
	atomic_store(&shm->own->lift_tail, SV_LIFT_SIZE + 1);
	sv_lock_drop(&qp->lock);
	MUST(!post_recv(&p.b, 1, p.mb, 0, sizeof(bbuf)));
	cr_assert_eq(wait_wc(p.b.rcq).status, IBV_WC_WR_FLUSH_ERR);
	teardown(&p);
}

/* The peer claims for ever to be copying: nothing waits for it for ever. */
Test(link_hostile, busy_for_ever)
{
	uint64_t start;
	struct pair p;

	setup(&p);
	atomic_store(&sv_shm(sv_qp(p.a.qp)->link)->own->busy, p.ma->rkey);
	start = sv_now_ns();
	MUST(!sv_dereg_mr(p.ma));
	cr_assert_lt(sv_now_ns() - start, 10 * 1000000000ull);
	p.ma = side_reg(&p.a, abuf, sizeof(abuf));
	atomic_store(&sv_shm(sv_qp(p.a.qp)->link)->own->busy, SV_BUSY_PULL);
	start = sv_now_ns();
	MUST(!side_error(&p.a));
	cr_assert_lt(sv_now_ns() - start, 10 * 1000000000ull);
	teardown(&p);
}

/* ---- descriptors ---- */

static int try_attach(struct side *s, const struct sv_link_hello *hello,
		      int seg, int tbl, int bell)
{
	struct ucred cred = { .pid = getpid() + 1 };
	int fds[SV_LINK_FDS] = { seg, tbl, bell };
	struct sv_link *link;
	int sock[2], err;

	MUST(!sv_shm_create(sv_qp(s->qp), &link));
	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	err = sv_shm_attach(link, hello, fds, sock[0], &cred);
	if (err)
		close(sock[0]);
	close(sock[1]);
	sv_link_close(link);
	return err;
}

static int file(size_t size, int seals)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING);

	MUST(fd >= 0 && !ftruncate(fd, size) &&
	     (!seals || !fcntl(fd, F_ADD_SEALS, seals)));
	return fd;
}

static int a_bell(void)
{
	struct side s;
	struct sv_link *link;
	struct sv_link_hello hello;
	int fds[SV_LINK_FDS], fd;

	side_open(&s, NULL);
	MUST(!sv_shm_create(sv_qp(s.qp), &link));
	sv_shm_offer(link, &hello, fds);
	fd = dup(fds[2]);
	sv_link_close(link);
	side_close(&s);
	return fd;
}

Test(link_hostile, descriptors_that_are_not_what_they_should_be)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	const size_t size = sizeof(struct sv_seg);
	struct sv_link_hello hello, bad;
	int fds[SV_LINK_FDS], pipe_fd[2];
	struct sv_link *link;
	struct side s;

	side_open(&s, NULL);
	MUST(!sv_shm_create(sv_qp(s.qp), &link));
	sv_shm_offer(link, &hello, fds);

	/* Not sealed: could shrink under us. Too short. No segment at all. */
	cr_assert_eq(try_attach(&s, &hello, file(size, 0), dup(fds[1]),
				a_bell()),
		     EPROTO);
	cr_assert_eq(try_attach(&s, &hello, file(4096, seals), dup(fds[1]),
				a_bell()),
		     EPROTO);
	cr_assert_eq(try_attach(&s, &hello, file(size, seals), dup(fds[1]),
				a_bell()),
		     EPROTO);
	cr_assert_eq(try_attach(&s, &hello, dup(fds[0]), file(4096, seals),
				a_bell()),
		     EPROTO);
	cr_assert_eq(try_attach(&s, &hello, open("/dev/null", O_RDWR),
				dup(fds[1]), a_bell()),
		     EPROTO);
	/* A pipe as a doorbell would block us once it is full. */
	MUST(!pipe(pipe_fd));
	cr_assert_eq(try_attach(&s, &hello, dup(fds[0]), dup(fds[1]),
				pipe_fd[1]),
		     EPROTO);
	close(pipe_fd[0]);
	bad = hello;
	bad.version++;
	cr_assert_eq(try_attach(&s, &bad, dup(fds[0]), dup(fds[1]), a_bell()),
		     EPROTO);
	bad = hello;
	bad.seg_size -= 4096;
	cr_assert_eq(try_attach(&s, &bad, dup(fds[0]), dup(fds[1]), a_bell()),
		     EPROTO);
	sv_link_close(link);
	side_close(&s);
}

/* Peers must not be able to write to the table of keys. */
Test(link_hostile, mr_table_is_read_only_for_peers)
{
	struct side s;
	void *map;

	side_open(&s, NULL);
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, sv_mr_fd(),
		   0);
	cr_assert_eq(map, MAP_FAILED);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, sv_mr_fd(), 0);
	cr_assert_neq(map, MAP_FAILED);
	cr_assert_neq(mprotect(map, 4096, PROT_READ | PROT_WRITE), 0);
	munmap(map, 4096);
	side_close(&s);
}

/* ---- many ---- */

/* Hot and cold links of one CQ: each is served, in any order of use. */
Test(link_many, one_cq)
{
	enum { CNT = 100 };
	struct side a[CNT], b[CNT];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_mr *ma, *mb;
	struct ibv_wc wc;
	int i, round, k;

	side_open(&a[0], &(struct side_opts){ .cqe = 1024 });
	side_open(&b[0], &(struct side_opts){ .cqe = 1024 });
	ma = side_reg(&a[0], abuf, sizeof(abuf));
	mb = side_reg(&b[0], bbuf, sizeof(bbuf));
	for (i = 0; i < CNT; i++) {
		if (i) {
			a[i] = a[0];
			b[i] = b[0];
			MUST(!sv_query_qp(a[0].qp, &attr, 0, &init));
			MUST((a[i].qp = sv_create_qp(a[0].pd, &init)));
			MUST(!sv_query_qp(b[0].qp, &attr, 0, &init));
			MUST((b[i].qp = sv_create_qp(b[0].pd, &init)));
		}
		pair_up(&a[i], &b[i]);
		MUST(!post_recv(&b[i], i, mb, i * 64, 64));
	}
	for (round = 0; round < 20; round++) {
		for (i = 0; i < CNT; i++) {
			k = (i * 37 + round) % CNT;
			MUST(!post(&a[k], (struct post){
						  .id = k,
						  .op = IBV_WR_SEND,
						  .flags = IBV_SEND_SIGNALED,
						  .mr = ma,
						  .len = 8 }));
			wc = wait_wc(b[0].rcq);
			cr_assert_eq(wc.status, IBV_WC_SUCCESS);
			cr_assert_eq(wc.wr_id, k);
			cr_assert_eq(wc.qp_num, b[k].qp->qp_num);
			MUST(!post_recv(&b[k], k, mb, k * 64, 64));
			cr_assert_eq(wait_wc(a[0].scq).wr_id, k);
		}
	}
	for (i = CNT - 1; i > 0; i--)
		MUST(!sv_destroy_qp(a[i].qp) && !sv_destroy_qp(b[i].qp));
	MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
	side_close(&a[0]);
	side_close(&b[0]);
}
