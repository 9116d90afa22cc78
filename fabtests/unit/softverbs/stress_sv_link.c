/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Links under load, to be run also under the thread sanitizer (Criterion
 * cannot be):
 *
 *	stress_sv_link [rounds]
 *
 * Two processes, joined without a connection manager: ping-pong by polling and
 * by events, random traffic of all kinds with its bytes verified, with direct
 * access and through the rings; several threads on one QP; a peer that is
 * killed; a process that neither polls nor sleeps on events uses no CPU.
 * Exits 0 if all went well.
 */
#include "side.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum {
	BUF = 1 << 20,
	SLOT = 128 << 10,
	DEPTH = 32,
};

#ifdef __SANITIZE_THREAD__
static const bool tsan = true;
#else
static const bool tsan;
#endif

static int rounds = 2000;

struct end {
	struct side side;
	struct ibv_mr *mr;
	char *buf;
	struct side_msg mine;
	struct side_msg theirs;
	unsigned int seed;
};

static void end_open(struct end *e, int sock, const struct side_opts *opts)
{
	memset(e, 0, sizeof(*e));
	side_open(&e->side, opts);
	MUST((e->buf = calloc(1, BUF)));
	e->mr = side_reg(&e->side, e->buf, BUF);
	e->mine.addr = (uintptr_t)e->buf;
	e->mine.rkey = e->mr->rkey;
	join_remote(&e->side, sock, &e->mine, &e->theirs);
}

static void end_close(struct end *e)
{
	MUST(!sv_dereg_mr(e->mr));
	side_close(&e->side);
	free(e->buf);
}

static pid_t child_start(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	MUST(pid >= 0);
	return pid;
}

static void child_end(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, 0) == pid);
	MUST(WIFEXITED(status) && !WEXITSTATUS(status));
}

/* Runs fn in two children, joined by a socket; this process stays clean. */
static void both(const char *what, void (*fn)(int sock, bool second))
{
	int sock[2], i;
	pid_t pid[2];

	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock));
	for (i = 0; i < 2; i++) {
		pid[i] = child_start();
		if (pid[i])
			continue;
		close(sock[!i]);
		fn(sock[i], i);
		exit(0);
	}
	close(sock[0]);
	close(sock[1]);
	child_end(pid[0]);
	child_end(pid[1]);
	printf("%s: ok\n", what);
}

static void alone(const char *what, void (*fn)(void))
{
	pid_t pid = child_start();

	if (!pid) {
		fn();
		exit(0);
	}
	child_end(pid);
	printf("%s: ok\n", what);
}

/* ---- ping-pong ---- */

static void pingpong(int sock, bool child)
{
	const uint32_t lens[] = { 8, 64, 500, 4096, 20000 };
	struct end e;
	struct ibv_wc wc;
	int i, turn;

	end_open(&e, sock, NULL);
	MUST(!post_recv(&e.side, 0, e.mr, BUF / 2, BUF / 2));
	for (i = 0; i < rounds; i++) {
		uint32_t len = lens[i % ARRAY_SIZE(lens)];

		for (turn = 0; turn < 2; turn++) {
			if ((turn == 0) == child) {
				wc = wait_wc(e.side.rcq);
				MUST(!wc.status && wc.byte_len == len);
				MUST(filled(e.buf + BUF / 2, len, i));
				MUST(!post_recv(&e.side, 0, e.mr, BUF / 2,
						BUF / 2));
			} else {
				fill(e.buf, len, i);
				MUST(!post(&e.side, (struct post){
							    .op = IBV_WR_SEND,
							    .flags = IBV_SEND_SIGNALED,
							    .mr = e.mr,
							    .len = len }));
				MUST(!wait_wc(e.side.scq).status);
			}
		}
	}
	end_close(&e);
}

/* One event per message, and sleep in between. */
static void event_wait(struct side *s, struct ibv_wc *wc)
{
	struct pollfd pfd = { .fd = s->chan->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	while (!ibv_poll_cq(s->rcq, 1, wc)) {
		MUST(!ibv_req_notify_cq(s->rcq, 0));
		if (ibv_poll_cq(s->rcq, 1, wc))
			return;
		MUST(poll(&pfd, 1, SIDE_WAIT_MS) == 1);
		MUST(!sv_get_cq_event(s->chan, &cq, &context));
		sv_ack_cq_events(cq, 1);
	}
}

static void events(int sock, bool child)
{
	struct end e;
	struct ibv_wc wc;
	int i, turn;

	end_open(&e, sock,
		 &(struct side_opts){ .channel = true, .one_cq = true });
	for (i = 0; i < 8; i++)
		MUST(!post_recv(&e.side, 0, e.mr, BUF / 2, 64));
	for (i = 0; i < rounds; i++) {
		for (turn = 0; turn < 2; turn++) {
			if ((turn == 0) == child) {
				event_wait(&e.side, &wc);
				MUST(!wc.status && wc.opcode == IBV_WC_RECV);
				MUST(be32toh(wc.imm_data) == (uint32_t)i);
				MUST(!post_recv(&e.side, 0, e.mr, BUF / 2, 64));
			} else {
				MUST(!post(&e.side,
					   (struct post){
						   .op = IBV_WR_SEND_WITH_IMM,
						   .flags = i % 8 ?
								    0 :
								    IBV_SEND_SIGNALED,
						   .imm = i }));
				if (i % 8)
					continue;
				/* Its own completion comes on the same CQ. */
				event_wait(&e.side, &wc);
				MUST(!wc.status && wc.opcode == IBV_WC_SEND);
			}
		}
	}
	end_close(&e);
}

/* ---- random traffic ---- */

/*
 * Each side sends, writes with immediate and reads, whatever the dice say;
 * every message says in its immediate of which number and length it is, and
 * both sides throw the same dice. A quarter of the buffer each: what is sent,
 * what is received, what the peer writes to, what is read into.
 */
struct traffic {
	struct end e;
	int sent, done, got, total;
};

static uint32_t dice(unsigned int seed, int i)
{
	uint32_t x = seed * 2654435761u ^ (i + 1) * 2246822519u;

	x ^= x >> 15;
	x *= 2654435761u;
	return x ^ x >> 13;
}

static uint32_t dice_len(uint32_t roll)
{
	static const uint32_t limit[] = { 1, 64, 200, 4096, 9000, 60000 };

	return roll % limit[roll / 7 % ARRAY_SIZE(limit)];
}

/*
 * With a window of half the lanes, to be allowed to send a message means that
 * the peer has looked at the one that used the lane before.
 */
enum { LANES = 4, WINDOW = LANES / 2, LANE = BUF / 4 / LANES };

static void traffic_send(struct traffic *t)
{
	uint32_t roll = dice(t->e.seed, t->sent), len = dice_len(roll);
	size_t lane = t->sent % LANES * LANE;
	struct post p = {
		.id = t->sent,
		.flags = IBV_SEND_SIGNALED,
		.mr = t->e.mr,
		.off = lane,
		.len = len,
		.imm = t->sent,
		.rkey = t->e.theirs.rkey,
		.op = IBV_WR_SEND_WITH_IMM,
	};

	fill(t->e.buf + lane, len, roll);
	if (roll & 1 << 20) {
		p.op = IBV_WR_RDMA_WRITE_WITH_IMM;
		p.raddr = t->e.theirs.addr + BUF / 2 + lane;
	}
	MUST(!post(&t->e.side, p));
	t->sent++;
}

static void traffic_got(struct traffic *t, const struct ibv_wc *wc,
			unsigned int peer_seed)
{
	uint32_t roll = dice(peer_seed, t->got), len = dice_len(roll);
	size_t lane = t->got % LANES * LANE;
	bool write = roll & 1 << 20;

	MUST(wc->status == IBV_WC_SUCCESS);
	MUST(wc->wr_id == (uint64_t)t->got);
	MUST(be32toh(wc->imm_data) == (uint32_t)t->got);
	MUST(wc->opcode ==
	     (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV));
	MUST(wc->byte_len == len);
	MUST(filled(t->e.buf + (write ? BUF / 2 : BUF / 4) + lane, len, roll));
	t->got++;
}

static void traffic_recv(struct traffic *t, int i)
{
	MUST(!post_recv(&t->e.side, i, t->e.mr, BUF / 4 + i % LANES * LANE,
			LANE));
}

static void traffic(int sock, bool child)
{
	struct traffic t = { .total = rounds };
	unsigned int peer_seed = child ? 1 : 2;
	uint64_t until = sv_now_ns() + 120 * 1000000000ull;
	struct ibv_wc wc;
	int i;

	end_open(&t.e, sock, &(struct side_opts){ .depth = DEPTH });
	t.e.seed = child ? 2 : 1;
	for (i = 0; i < LANES; i++)
		traffic_recv(&t, i);
	while (t.done < t.total || t.got < t.total) {
		MUST(sv_now_ns() < until);
		if (t.sent < t.total && t.sent - t.done < LANES &&
		    t.sent - t.got < WINDOW)
			traffic_send(&t);
		if (ibv_poll_cq(t.e.side.scq, 1, &wc)) {
			MUST(!wc.status && wc.wr_id == (uint64_t)t.done);
			t.done++;
		}
		if (ibv_poll_cq(t.e.side.rcq, 1, &wc)) {
			traffic_got(&t, &wc, peer_seed);
			traffic_recv(&t, t.got + LANES - 1);
		}
	}
	end_close(&t.e);
}

/* ---- the target does nothing ---- */

static uint64_t cpu_us(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000ull +
	       ru.ru_utime.tv_usec + ru.ru_stime.tv_usec;
}

/*
 * Sleeps until the peer has written the last byte. Looking at memory that is
 * written to is what is tested, so the thread sanitizer must not; the lock
 * tells it what order we found.
 */
__attribute__((no_sanitize("thread")))
static void sleep_until_written(struct end *e)
{
	const volatile char *last = e->buf + BUF - 1;
	int i;

	for (i = 0; i < SIDE_WAIT_MS && *last != 'd'; i++)
		usleep(1000);
	MUST(*last == 'd');
	sv_lock_take(&sv_qp(e->side.qp)->lock);
	sv_lock_drop(&sv_qp(e->side.qp)->lock);
}

static void target(struct end *e)
{
	uint64_t used = cpu_us();

	sleep_until_written(e);
	used = cpu_us() - used;
	if (!SIDE_IS_TCP && sv_shm(sv_qp(e->side.qp)->link)->cma_ok && used > 300000)
		MUST(!"the target's CPU was not needed");
	MUST(filled(e->buf, BUF / 2, 77));
}

static void one_op(struct end *e, enum ibv_wr_opcode op, size_t off,
		   uint32_t len)
{
	MUST(!post(&e->side, (struct post){ .op = op,
					    .flags = IBV_SEND_SIGNALED,
					    .mr = e->mr,
					    .off = off,
					    .len = len,
					    .raddr = e->theirs.addr + off,
					    .rkey = e->theirs.rkey }));
	MUST(!wait_wc(e->side.scq).status);
}

static void idle_target(int sock, bool child)
{
	struct end e;
	int i;

	end_open(&e, sock, NULL);
	if (child) {
		target(&e);
	} else {
		for (i = 0; i < 50; i++) {
			fill(e.buf, BUF / 2, i);
			one_op(&e, IBV_WR_RDMA_WRITE, 0, BUF / 2);
			memset(e.buf, 0, BUF / 2);
			one_op(&e, IBV_WR_RDMA_READ, 0, BUF / 2);
			MUST(filled(e.buf, BUF / 2, i));
		}
		fill(e.buf, BUF / 2, 77);
		e.buf[BUF - 1] = 'd';
		one_op(&e, IBV_WR_RDMA_WRITE, 0, BUF / 2);
		one_op(&e, IBV_WR_RDMA_WRITE, BUF - 1, 1);
	}
	end_close(&e);
}

/* ---- threads ---- */

enum { THREADS = 4 };

struct worker {
	pthread_t thread;
	struct side *side;
	struct ibv_mr *mr;
	atomic_int *count;
	int total;
	bool sends;
};

/* By turns in the two ways there are. */
static int send_one(struct worker *w, bool by_calls)
{
	struct ibv_qp_ex *qp = sv_qp_to_qp_ex(w->side->qp);

	if (!by_calls)
		return post(w->side, (struct post){ .op = IBV_WR_SEND,
						    .flags = IBV_SEND_SIGNALED,
						    .mr = w->mr,
						    .len = 64 });
	ibv_wr_start(qp);
	qp->wr_id = 0;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->mr->addr, 64);
	return ibv_wr_complete(qp);
}

/* Regions and windows come and go while others are in use. */
static void *come_and_go(void *arg)
{
	struct worker *w = arg;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	void *mem;

	while (atomic_load(w->count) < w->total) {
		mem = mmap(NULL, SLOT, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		MUST(mem != MAP_FAILED);
		mr = side_reg(w->side, mem, SLOT);
		MUST((mw = ibv_alloc_mw(w->side->pd, IBV_MW_TYPE_1)));
		MUST(!sv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				  IBV_ACCESS_LOCAL_WRITE));
		MUST(!ibv_dealloc_mw(mw));
		MUST(!sv_dereg_mr(mr));
		munmap(mem, SLOT);
		sched_yield();
	}
	return NULL;
}

/* All send on one QP, or all receive on one: verbs are thread safe. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct ibv_wc wc[4];
	uint64_t until = sv_now_ns() + 120 * 1000000000ull;
	int i, n, posted = 0;

	while (atomic_load(w->count) < w->total) {
		MUST(sv_now_ns() < until);
		if (w->sends && posted < w->total / THREADS &&
		    !send_one(w, posted & 1))
			posted++;
		n = ibv_poll_cq(w->sends ? w->side->scq : w->side->rcq, 4, wc);
		MUST(n >= 0);
		for (i = 0; i < n; i++) {
			MUST(!wc[i].status);
			if (!w->sends)
				MUST(!post_recv(w->side, 0, w->mr, 0, 64));
		}
		if (n)
			atomic_fetch_add(w->count, n);
		else
			sched_yield();
	}
	return NULL;
}

static void threads(void)
{
	static char abuf[64], bbuf[64];
	struct worker w[2 * THREADS], others;
	struct side a, b;
	struct ibv_mr *ma, *mb;
	atomic_int sent = 0, got = 0;
	int i;

	side_open(&a, &(struct side_opts){ .depth = 128,
					   .send_ops = IBV_QP_EX_WITH_SEND });
	side_open(&b, &(struct side_opts){ .depth = 128 });
	ma = side_reg(&a, abuf, 64);
	mb = side_reg(&b, bbuf, 64);
	pair_up(&a, &b);
	for (i = 0; i < 64; i++)
		MUST(!post_recv(&b, 0, mb, 0, 64));
	for (i = 0; i < 2 * THREADS; i++) {
		w[i] = (struct worker){
			.side = i < THREADS ? &a : &b,
			.mr = i < THREADS ? ma : mb,
			.sends = i < THREADS,
			.count = i < THREADS ? &sent : &got,
			.total = rounds / THREADS * THREADS,
		};
		MUST(!pthread_create(&w[i].thread, NULL, work, &w[i]));
	}
	others = w[THREADS];
	MUST(!pthread_create(&others.thread, NULL, come_and_go, &others));
	for (i = 0; i < 2 * THREADS; i++)
		pthread_join(w[i].thread, NULL);
	pthread_join(others.thread, NULL);
	MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
	side_close(&a);
	side_close(&b);
}

/* ---- death ---- */

/* The peer is killed in the middle of traffic: all comes back, once. */
static void killed(void)
{
	int sock[2], i, ok = 0, failed = 0, flushed = 0, recvs = 0;
	struct ibv_wc wc;
	struct end e;
	pid_t pid;

	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock));
	pid = child_start();
	if (!pid) {
		close(sock[0]);
		end_open(&e, sock[1], NULL);
		for (i = 0; i < 5; i++)
			MUST(!post_recv(&e.side, 0, e.mr, 0, BUF));
		for (i = 0; i < 5; i++)
			wait_wc(e.side.rcq);
		raise(SIGKILL);
	}
	close(sock[1]);
	end_open(&e, sock[0], NULL);
	for (i = 0; i < 3; i++)
		MUST(!post_recv(&e.side, 0, e.mr, 0, 64));
	for (i = 0; i < 20; i++)
		MUST(!post(&e.side, (struct post){ .id = i,
						   .op = IBV_WR_SEND,
						   .flags = IBV_SEND_SIGNALED,
						   .mr = e.mr,
						   .len = i % 2 ? 64 : 20000 }));
	for (i = 0; i < 20; i++) {
		wc = wait_wc(e.side.scq);
		MUST(wc.wr_id == (uint64_t)i);
		if (wc.status == IBV_WC_SUCCESS)
			ok++;
		else if (wc.status == IBV_WC_RETRY_EXC_ERR)
			failed++;
		else if (wc.status == IBV_WC_WR_FLUSH_ERR)
			flushed++;
	}
	MUST(ok <= 5 && failed == 1 && flushed == 19 - ok);
	for (i = 0; i < 3; i++)
		recvs += wait_wc(e.side.rcq).status == IBV_WC_WR_FLUSH_ERR;
	MUST(recvs == 3 && e.side.qp->state == IBV_QPS_ERR);
	MUST(!ibv_poll_cq(e.side.scq, 1, &wc));
	MUST(waitpid(pid, NULL, 0) == pid);
	end_close(&e);
}

/* The child's inherited objects are dead, new ones work; the parent's live. */
static void forked(void)
{
	struct side a, b;
	static char buf[64];
	struct ibv_mr *ma, *mb;
	struct ibv_wc wc;
	pid_t pid;

	side_open(&a, NULL);
	side_open(&b, NULL);
	ma = side_reg(&a, buf, 64);
	mb = side_reg(&b, buf, 64);
	pair_up(&a, &b);
	pid = child_start();
	if (!pid) {
		MUST(ibv_poll_cq(a.scq, 1, &wc) < 0);
		MUST(post_recv(&a, 0, ma, 0, 8) != 0);
		MUST(!sv_destroy_qp(a.qp) && !sv_dereg_mr(ma));
		side_open(&a, NULL);
		side_open(&b, NULL);
		ma = side_reg(&a, buf, 64);
		mb = side_reg(&b, buf, 64);
		pair_up(&a, &b);
	}
	MUST(!post_recv(&b, 5, mb, 0, 64));
	MUST(!post(&a, (struct post){ .op = IBV_WR_SEND, .mr = ma, .len = 8 }));
	MUST(wait_wc(b.rcq).wr_id == 5);
	MUST(!sv_dereg_mr(ma) && !sv_dereg_mr(mb));
	side_close(&a);
	side_close(&b);
	/* Nothing of what it inherited is freed by giving it back. */
	if (!pid)
		_exit(0);
	child_end(pid);
}

int main(int argc, char **argv)
{
	int direct;

	if (argc > 1)
		rounds = atoi(argv[1]);
	alarm(280);
	for (direct = 1; direct >= 0; direct--) {
		setenv("SOFTVERBS_CMA", direct ? "1" : "0", 1);
		printf("%s:\n", direct ? "direct" : "ring");
		both("ping-pong", pingpong);
		both("events", events);
		both("traffic", traffic);
		both("idle target", idle_target);
		alone("killed", killed);
	}
	alone("threads", threads);
	/* The thread sanitizer refuses threads in a child of threads. */
	if (!tsan)
		alone("forked", forked);
	return 0;
}
