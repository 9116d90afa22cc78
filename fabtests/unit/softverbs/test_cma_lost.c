/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Processes that reach into each other's memory until one of them puts itself out
 * of reach, as by setuid(): what it does from then on, and what was under way,
 * goes through the rings, and nobody notices.
 */
#include "process.h"
#include "side.h"

#include <criterion/criterion.h>
#include <sys/prctl.h>

TestSuite(cma_lost, .timeout = 60);

enum {
	LEN = 3 << 20,
	NOBODY = 65534,
	/* Ids of sends begin there. */
	SENDS = 100,
};

/* Through a slot, the data ring, and read by the receiver; with more of those
 * than one lap of the ring that takes their place. */
static const uint32_t lens[] = { 20000, 50, 300000, 9000, 100, 70000, 8000,
				 131072, 65536, 1 };

struct end {
	struct side side;
	struct ibv_mr *mr;
	struct side_msg peer;
	char *buf;
};

static int link_sock[2];

/* Root reaches everybody. */
static void drop_root(void)
{
	if (geteuid())
		return;
	MUST(!setgid(NOBODY) && !setuid(NOBODY));
	MUST(!prctl(PR_SET_DUMPABLE, 1));
}

static void out_of_reach(void)
{
	MUST(!prctl(PR_SET_DUMPABLE, 0));
}

static struct sv_shm *end_shm(struct end *e)
{
	return sv_shm(sv_qp(e->side.qp)->link);
}

static bool end_open(struct end *e, int sock)
{
	struct side_msg mine = { 0 };

	memset(e, 0, sizeof(*e));
	MUST(e->buf = malloc(LEN));
	side_open(&e->side, NULL);
	e->mr = side_reg(&e->side, e->buf, LEN);
	mine.addr = (uintptr_t)e->buf;
	mine.rkey = e->mr->rkey;
	join_remote(&e->side, sock, &mine, &e->peer);
	return end_shm(e)->cma_ok;
}

static void end_close(struct end *e)
{
	if (e->mr)
		MUST(!sv_dereg_mr(e->mr));
	side_close(&e->side);
	free(e->buf);
}

/* Our end, and a process for the other; skips where there is nothing to lose. */
static struct process open_both(struct end *e,
				void (*fn)(int in, int out, int arg), int arg)
{
	struct process process;

	drop_root();
	side_direct(true);
	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link_sock));
	process = process_start(fn, arg);
	close(link_sock[1]);
	if (!end_open(e, link_sock[0]) || !hear(process.in)) {
		process_kill(&process);
		cr_skip_test("processes cannot reach each other here");
	}
	say(process.out, 1);
	return process;
}

/* In the other process; returns when both have their links. */
static void peer_open(struct end *e, int in, int out)
{
	close(link_sock[0]);
	say(out, end_open(e, link_sock[1]));
	hear(in);
}

static void close_both(struct end *e, struct process *process)
{
	MUST(!prctl(PR_SET_DUMPABLE, 1));
	process_kill(process);
	end_close(e);
}

static void must_complete(struct ibv_cq *cq, uint64_t id)
{
	struct ibv_wc wc = wait_wc(cq);

	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != id)
		fprintf(stderr, "%s: wr_id %lu, not %lu\n",
			sv_wc_status_str(wc.status), (long)wc.wr_id, (long)id);
	MUST(wc.status == IBV_WC_SUCCESS && wc.wr_id == id);
}

/* ---- what one does to the other's memory ---- */

static void be_memory(int in, int out, int arg)
{
	struct end e;

	peer_open(&e, in, out);
	hear(in);
	out_of_reach();
	MUST(!post_recv(&e.side, 1, e.mr, 0, 0));
	say(out, 1);
	hear(in);
}

static int post_rma(struct end *e, uint64_t id, enum ibv_wr_opcode op)
{
	return post(&e->side, (struct post){ .id = id,
					     .op = op,
					     .flags = IBV_SEND_SIGNALED,
					     .mr = e->mr,
					     .len = LEN,
					     .raddr = e->peer.addr,
					     .rkey = e->peer.rkey });
}

static void memory_goes(enum ibv_wr_opcode first)
{
	struct process process;
	struct end e;

	process = open_both(&e, be_memory, 0);
	fill(e.buf, LEN, 1);
	MUST(!post_rma(&e, 1, IBV_WR_RDMA_WRITE));
	must_complete(e.side.scq, 1);
	cr_assert(end_shm(&e)->cma_ok);
	say(process.out, 1);
	hear(process.in);
	if (first == IBV_WR_RDMA_READ)
		memset(e.buf, 0, LEN);
	else
		fill(e.buf, LEN, 2);
	MUST(!post_rma(&e, 2, first));
	must_complete(e.side.scq, 2);
	cr_assert(!end_shm(&e)->cma_ok);
	cr_assert(filled(e.buf, LEN, first == IBV_WR_RDMA_READ ? 1 : 2));
	memset(e.buf, 0, LEN);
	MUST(!post_rma(&e, 3, IBV_WR_RDMA_READ));
	must_complete(e.side.scq, 3);
	cr_assert(filled(e.buf, LEN, first == IBV_WR_RDMA_READ ? 1 : 2));
	close_both(&e, &process);
}

Test(cma_lost, write) { memory_goes(IBV_WR_RDMA_WRITE); }
Test(cma_lost, write_imm) { memory_goes(IBV_WR_RDMA_WRITE_WITH_IMM); }
Test(cma_lost, read) { memory_goes(IBV_WR_RDMA_READ); }

/* ---- messages that were to be read ---- */

static size_t offset_of(size_t i)
{
	size_t off = 0;

	while (i--)
		off += lens[i];
	return off;
}

static int post_send(struct end *e, size_t i)
{
	return post(&e->side, (struct post){ .id = SENDS + i,
					     .op = IBV_WR_SEND,
					     .flags = IBV_SEND_SIGNALED,
					     .mr = e->mr,
					     .off = offset_of(i),
					     .len = lens[i] });
}

/* The first is read; those behind it are under way when that ends. */
static void sends(struct end *e, int in, int out)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lens); i++)
		fill(e->buf + offset_of(i), lens[i], i);
	MUST(!post_send(e, 0));
	must_complete(e->side.scq, SENDS);
	for (i = 1; i < ARRAY_SIZE(lens); i++)
		MUST(!post_send(e, i));
	out_of_reach();
	say(out, 1);
	for (i = 1; i < ARRAY_SIZE(lens); i++)
		must_complete(e->side.scq, SENDS + i);
	MUST(!post_send(e, 2));
	must_complete(e->side.scq, SENDS + 2);
	hear(in);
}

static void receive(struct end *e, size_t i)
{
	memset(e->buf, 0, lens[i] + 1);
	MUST(!post_recv(&e->side, i, e->mr, 0, LEN));
	must_complete(e->side.rcq, i);
	MUST(filled(e->buf, lens[i], i) && !e->buf[lens[i]]);
}

static void receives(struct end *e, int in, int out)
{
	struct ibv_wc wc;
	size_t i;

	receive(e, 0);
	MUST(end_shm(e)->cma_ok);
	hear(in);
	for (i = 1; i < ARRAY_SIZE(lens); i++)
		receive(e, i);
	MUST(!end_shm(e)->cma_ok);
	receive(e, 2);
	MUST(!wait_wc_ms(e->side.rcq, &wc, 0));
	say(out, 1);
}

static void be_sender(int in, int out, int arg)
{
	struct end e;

	peer_open(&e, in, out);
	sends(&e, in, out);
	say(out, 1);
	hear(in);
}

static void be_receiver(int in, int out, int arg)
{
	struct end e;

	peer_open(&e, in, out);
	receives(&e, in, out);
	hear(in);
}

Test(cma_lost, messages_of_a_peer)
{
	struct process process;
	struct end e;

	process = open_both(&e, be_sender, 0);
	receives(&e, process.in, process.out);
	cr_assert_eq(hear(process.in), 1);
	close_both(&e, &process);
}

Test(cma_lost, messages_of_our_own)
{
	struct process process;
	struct end e;

	process = open_both(&e, be_receiver, 0);
	sends(&e, process.in, process.out);
	close_both(&e, &process);
}

/* Nobody polls: both engines bring it to its end. */
static void be_idle_sender(int in, int out, int arg)
{
	struct end e;

	peer_open(&e, in, out);
	fill(e.buf, LEN, 7);
	MUST(!post(&e.side, (struct post){ .op = IBV_WR_SEND,
					   .mr = e.mr,
					   .len = LEN }));
	out_of_reach();
	say(out, 1);
	hear(in);
}

Test(cma_lost, without_polling)
{
	struct process process;
	struct end e;
	int ms;

	process = open_both(&e, be_idle_sender, 0);
	hear(process.in);
	memset(e.buf, 0, LEN);
	MUST(!post_recv(&e.side, 1, e.mr, 0, LEN));
	for (ms = 0; ms < 10000 && !filled(e.buf, LEN, 7); ms += 20)
		usleep(20000);
	must_complete(e.side.rcq, 1);
	cr_assert(filled(e.buf, LEN, 7));
	close_both(&e, &process);
}

/* Of a message that is under way the memory goes, too. */
static void be_late_receiver(int in, int out, int arg)
{
	struct end e;

	peer_open(&e, in, out);
	hear(in);
	MUST(!post_recv(&e.side, 1, e.mr, 0, LEN));
	say(out, 1);
	hear(in);
}

Test(cma_lost, memory_goes_as_well)
{
	struct process process;
	struct ibv_wc wc;
	struct end e;

	process = open_both(&e, be_late_receiver, 0);
	MUST(!post(&e.side, (struct post){ .id = 1,
					   .op = IBV_WR_SEND,
					   .flags = IBV_SEND_SIGNALED,
					   .mr = e.mr,
					   .len = LEN }));
	out_of_reach();
	MUST(!sv_dereg_mr(e.mr));
	e.mr = NULL;
	say(process.out, 1);
	hear(process.in);
	wc = wait_wc(e.side.scq);
	cr_assert_eq(wc.wr_id, 1);
	cr_assert_eq(wc.status, IBV_WC_LOC_PROT_ERR, "%s",
		     sv_wc_status_str(wc.status));
	close_both(&e, &process);
}

/* Neither reads what the other has announced. */
static void cross(struct end *e, int in, int out)
{
	enum { PART = LEN / 4 };
	int i;

	fill(e->buf, PART, 1);
	fill(e->buf + PART, PART, 2);
	for (i = 0; i < 2; i++)
		MUST(!post(&e->side, (struct post){ .id = SENDS + i,
						    .op = IBV_WR_SEND,
						    .flags = IBV_SEND_SIGNALED,
						    .mr = e->mr,
						    .off = i * PART,
						    .len = PART }));
	out_of_reach();
	say(out, 1);
	hear(in);
	for (i = 2; i < 4; i++)
		MUST(!post_recv(&e->side, i, e->mr, i * PART, PART));
	for (i = 0; i < 2; i++) {
		must_complete(e->side.rcq, 2 + i);
		MUST(filled(e->buf + (2 + i) * PART, PART, 1 + i));
	}
	for (i = 0; i < 2; i++)
		must_complete(e->side.scq, SENDS + i);
}

static void be_other(int in, int out, int arg)
{
	struct end e;

	peer_open(&e, in, out);
	cross(&e, in, out);
	say(out, 1);
	hear(in);
}

Test(cma_lost, messages_both_ways)
{
	struct process process;
	struct end e;

	process = open_both(&e, be_other, 0);
	cross(&e, process.in, process.out);
	cr_assert_eq(hear(process.in), 1);
	close_both(&e, &process);
}
