/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Peers that are there but do not answer, and peers that answer but do not
 * receive: the first are dead after a while, the second never. And whose fault it
 * is that memory is not there.
 */
#include "sv_alive.h"
#include "sv_engine.h"
#include "side.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

TestSuite(alive, .timeout = 120);

enum {
	BUF = 1 << 20,
	LIMIT_S = 2, /* SOFTVERBS_PEER_TIMEOUT */
	LATE_MS = 15000, /* on a machine that is busy */
};

/* The peer's process: connects, posts receives when told to, and else sleeps. */
struct peer {
	pid_t pid;
	int sock;
	struct side s; /* our end */
	struct ibv_mr *mr;
	uint64_t addr;
	uint32_t rkey;
};

static char buf[BUF];

/* No words here: a byte is how many receives to post. */
static void peer_life(int sock, int link_sock)
{
	struct side_msg mine = { 0 }, theirs;
	struct side s;
	struct ibv_mr *mr;
	uint8_t cnt;
	int i;

	side_open(&s, NULL);
	mr = side_reg(&s, buf, sizeof(buf));
	mine.addr = (uintptr_t)buf;
	mine.rkey = mr->rkey;
	join_remote(&s, link_sock, &mine, &theirs);
	while (read(sock, &cnt, 1) == 1) {
		for (i = 0; i < cnt; i++)
			MUST(!post_recv(&s, i, mr, 0, BUF));
		MUST(write(sock, &cnt, 1) == 1);
	}
	_exit(0);
}

static void peer_post(struct peer *p, uint8_t cnt)
{
	MUST(write(p->sock, &cnt, 1) == 1);
	MUST(read(p->sock, &cnt, 1) == 1);
}

/* Returns our end of the socket to connect through. */
static int peer_fork(struct peer *p)
{
	int sock[2], link_sock[2];

	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, link_sock));
	p->pid = fork();
	MUST(p->pid >= 0);
	if (!p->pid) {
		/* Stopped ones would outlive a test that fails. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sock[0]);
		close(link_sock[0]);
		peer_life(sock[1], link_sock[1]);
	}
	close(sock[1]);
	close(link_sock[1]);
	p->sock = sock[0];
	return link_sock[0];
}

static void peer_join(struct peer *p, int link_sock)
{
	struct side_msg mine = { 0 }, theirs;

	side_open(&p->s, NULL);
	p->mr = side_reg(&p->s, buf, sizeof(buf));
	join_remote(&p->s, link_sock, &mine, &theirs);
	p->addr = theirs.addr;
	p->rkey = theirs.rkey;
	/* It is ready to receive. */
	peer_post(p, 0);
}

static void peer_start(struct peer *p)
{
	peer_join(p, peer_fork(p));
}

/*
 * All are there before there is a thread of ours: in a child that is forked beside
 * one, the address sanitizer's allocator may stay locked.
 */
static void peers_start(struct peer *a, struct peer *b)
{
	int sock_a = peer_fork(a);
	int sock_b = peer_fork(b);

	peer_join(a, sock_a);
	peer_join(b, sock_b);
}

static void peer_end(struct peer *p)
{
	kill(p->pid, SIGKILL);
	MUST(waitpid(p->pid, NULL, 0) == p->pid);
	close(p->sock);
	MUST(!sv_dereg_mr(p->mr));
	side_close(&p->s);
}

static void peer_stop(struct peer *p)
{
	int status;

	MUST(!kill(p->pid, SIGSTOP));
	MUST(waitpid(p->pid, &status, WUNTRACED) == p->pid);
	MUST(WIFSTOPPED(status));
}

static struct post message(const struct peer *p, enum ibv_wr_opcode op,
			   uint32_t len)
{
	return (struct post){ .id = 1,
			      .op = op,
			      .flags = IBV_SEND_SIGNALED,
			      .mr = p->mr,
			      .len = len,
			      .raddr = p->addr,
			      .rkey = p->rkey };
}

static void limit(int seconds)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", seconds);
	setenv("SOFTVERBS_PEER_TIMEOUT", text, 1);
}

static unsigned int since_ms(uint64_t start_ns)
{
	return (sv_now_ns() - start_ns) / 1000000;
}

static void expect_death(struct peer *p, unsigned int after_ms)
{
	uint64_t start = sv_now_ns();
	struct ibv_wc wc;

	MUST(!post(&p->s, (struct post){ .id = 2, .op = IBV_WR_SEND }));
	MUST(wait_wc_ms(p->s.scq, &wc, after_ms + LATE_MS));
	cr_assert_eq(wc.status, IBV_WC_RETRY_EXC_ERR, "%d", wc.status);
	cr_assert_eq(wc.wr_id, 1);
	cr_assert_geq(since_ms(start), after_ms);
	MUST(wait_wc_ms(p->s.scq, &wc, LATE_MS));
	cr_assert_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
	cr_assert_eq(wc.wr_id, 2);
	cr_assert_eq(p->s.qp->state, IBV_QPS_ERR);
}

/* And whoever else there is, is not harmed. */
static void stopped(enum ibv_wr_opcode op, uint32_t len, bool direct)
{
	struct peer p, other;
	struct ibv_wc wc;

	limit(LIMIT_S);
	side_direct(direct);
	peers_start(&p, &other);
	peer_post(&p, 8);
	MUST(!post(&p.s, message(&p, op, len)));
	cr_assert_eq(wait_wc(p.s.scq).status, IBV_WC_SUCCESS);
	peer_stop(&p);
	MUST(!post(&p.s, message(&p, op, len)));
	expect_death(&p, LIMIT_S * 1000 - 100);
	peer_post(&other, 1);
	MUST(!post(&other.s, message(&other, IBV_WR_SEND, 8)));
	wc = wait_wc(other.s.scq);
	cr_assert_eq(wc.status, IBV_WC_SUCCESS, "%d", wc.status);
	peer_end(&p);
	peer_end(&other);
}

Test(alive, stopped_send) { stopped(IBV_WR_SEND, 8, true); }
Test(alive, stopped_send_large) { stopped(IBV_WR_SEND, BUF, true); }
Test(alive, stopped_send_pieces) { stopped(IBV_WR_SEND, BUF, false); }
Test(alive, stopped_atomic) { stopped(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, true); }
Test(alive, stopped_read) { stopped(IBV_WR_RDMA_READ, BUF, false); }
Test(alive, stopped_write) { stopped(IBV_WR_RDMA_WRITE, BUF, false); }

/* Reads and writes of memory on this host do not need the peer. */
Test(alive, stopped_direct, .disabled = SIDE_IS_TCP)
{
	struct peer p;

	limit(LIMIT_S);
	side_direct(true);
	peer_start(&p);
	peer_stop(&p);
	MUST(!post(&p.s, message(&p, IBV_WR_RDMA_READ, BUF)));
	cr_assert_eq(wait_wc(p.s.scq).status, IBV_WC_SUCCESS);
	MUST(!post(&p.s, message(&p, IBV_WR_RDMA_WRITE, BUF)));
	cr_assert_eq(wait_wc(p.s.scq).status, IBV_WC_SUCCESS);
	peer_end(&p);
}

/* It owes nothing for what it has taken, though nobody has looked whether it did:
 * such sends complete silently. */
Test(alive, stopped_owes_nothing)
{
	struct ibv_wc wc;
	struct post silent;
	struct peer p;

	limit(LIMIT_S);
	peer_start(&p);
	peer_post(&p, 2);
	silent = message(&p, IBV_WR_SEND, 8);
	silent.flags = 0;
	MUST(!post(&p.s, silent));
	MUST(!wait_wc_ms(p.s.scq, &wc, 300));
	peer_stop(&p);
	cr_assert_not(wait_wc_ms(p.s.scq, &wc, LIMIT_S * 1000 + 2500));
	cr_assert_eq(p.s.qp->state, IBV_QPS_RTS);
	peer_end(&p);
}

/* Memory of ours that is not there is not the peer's fault. */
static void into_nothing(enum ibv_wr_opcode op)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ibv_mr *mr;
	struct peer p;
	char *mem;

	side_direct(true);
	peer_start(&p);
	mem = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(mem != MAP_FAILED);
	mr = side_reg(&p.s, mem, 2 * page);
	MUST(!munmap(mem + page, page));
	MUST(!post(&p.s, (struct post){ .op = op,
					.flags = IBV_SEND_SIGNALED,
					.mr = mr,
					.len = (uint32_t)page + 100,
					.off = 50,
					.raddr = p.addr,
					.rkey = p.rkey }));
	cr_assert_eq(wait_wc(p.s.scq).status, IBV_WC_LOC_PROT_ERR);
	MUST(!sv_dereg_mr(mr));
	peer_end(&p);
}

Test(alive, read_into_nothing, .disabled = SIDE_IS_TCP)
{
	into_nothing(IBV_WR_RDMA_READ);
}

Test(alive, write_out_of_nothing, .disabled = SIDE_IS_TCP)
{
	into_nothing(IBV_WR_RDMA_WRITE);
}

/* The attributes say 34 ms: that is the least, which is longer. */
Test(alive, least)
{
	struct peer p;

	peer_start(&p);
	peer_stop(&p);
	MUST(!post(&p.s, message(&p, IBV_WR_SEND, 8)));
	expect_death(&p, 9900);
	peer_end(&p);
}

/* Nobody polls: the event comes all the same. */
Test(alive, stopped_asleep)
{
	struct pollfd pfd = { .events = POLLIN };
	struct ibv_wc wc;
	struct peer p;

	limit(LIMIT_S);
	peer_start(&p);
	peer_stop(&p);
	MUST(!post(&p.s, message(&p, IBV_WR_SEND, 8)));
	pfd.fd = p.s.ctx->async_fd;
	/* It is the send that fails: there is no event of the queue pair. */
	MUST(!poll(&pfd, 1, LIMIT_S * 1000 + 2500));
	MUST(wait_wc_ms(p.s.scq, &wc, LATE_MS));
	cr_assert_eq(wc.status, IBV_WC_RETRY_EXC_ERR);
	peer_end(&p);
}

/* Its program sleeps, and has posted no receive: it is there. */
static void asleep(uint32_t len, bool direct)
{
	struct ibv_wc wc;
	struct peer p;

	limit(LIMIT_S);
	side_direct(direct);
	peer_start(&p);
	MUST(!post(&p.s, message(&p, IBV_WR_SEND, len)));
	MUST(!post(&p.s, message(&p, IBV_WR_SEND, len)));
	cr_assert_not(wait_wc_ms(p.s.scq, &wc, 3 * LIMIT_S * 1000));
	peer_post(&p, 2);
	cr_assert_eq(wait_wc(p.s.scq).status, IBV_WC_SUCCESS);
	cr_assert_eq(wait_wc(p.s.scq).status, IBV_WC_SUCCESS);
	peer_end(&p);
}

Test(alive, asleep_short) { asleep(8, true); }
Test(alive, asleep_large) { asleep(BUF, true); }
Test(alive, asleep_pieces) { asleep(BUF, false); }

/* We were stopped ourselves, for longer than the limit. */
Test(alive, self_stopped)
{
	struct ibv_wc wc;
	struct peer p;
	uint8_t byte;
	int sock[2], status;
	pid_t self;

	limit(LIMIT_S);
	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
	self = fork();
	MUST(self >= 0);
	if (!self) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		peer_start(&p);
		MUST(!post(&p.s, message(&p, IBV_WR_SEND, 8)));
		MUST(write(sock[1], "", 1) == 1);
		if (wait_wc_ms(p.s.scq, &wc, 3 * LIMIT_S * 1000))
			_exit(1);
		peer_post(&p, 1);
		wc = wait_wc(p.s.scq);
		peer_end(&p);
		_exit(wc.status == IBV_WC_SUCCESS ? 0 : 2);
	}
	MUST(read(sock[0], &byte, 1) == 1);
	MUST(!kill(self, SIGSTOP));
	sleep(3 * LIMIT_S);
	MUST(!kill(self, SIGCONT));
	MUST(waitpid(self, &status, 0) == self);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "%d", WEXITSTATUS(status));
}

/*
 * Two queue pairs are promised the same receives of a shared queue. One of them
 * finds none, with more bytes behind than the peer may read.
 */
Test(alive, shared_receives_run_out)
{
	enum { CNT = 4 };
	struct side_opts shared = { .srq_wr = 2 * CNT };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct side a[2], b[2];
	struct ibv_mr *ma[2], *mb;
	struct ibv_wc wc;
	int i, k, done = 0;

	limit(LIMIT_S);
	side_open(&b[0], &shared);
	b[1] = b[0];
	init.srq = b[0].srq;
	init.send_cq = b[0].scq;
	init.recv_cq = b[0].rcq;
	init.cap = (struct ibv_qp_cap){ 16, 16, 4, 4, 0 };
	b[1].qp = side_qp(&b[1], &init, 0);
	mb = side_reg(&b[0], buf, sizeof(buf));
	for (i = 0; i < CNT; i++)
		MUST(!post_recv(&b[0], i, mb, 0, BUF));
	for (k = 0; k < 2; k++) {
		side_open(&a[k], NULL);
		ma[k] = side_reg(&a[k], buf, sizeof(buf));
		pair_up(&a[k], &b[k]);
	}
	for (i = 0; i < CNT; i++)
		for (k = 0; k < 2; k++)
			MUST(!post(&a[k], (struct post){
						  .op = IBV_WR_SEND,
						  .flags = IBV_SEND_SIGNALED,
						  .mr = ma[k],
						  .len = BUF }));
	for (i = 0; i < 3 * LIMIT_S * 100; i++)
		for (k = 0; k < 2; k++)
			if (wait_wc_ms(a[k].scq, &wc, 5)) {
				cr_assert_eq(wc.status, IBV_WC_SUCCESS);
				done++;
			}
	cr_assert_eq(done, CNT);
	for (i = 0; i < CNT; i++)
		MUST(!post_recv(&b[0], i, mb, 0, BUF));
	for (i = 0; done < 2 * CNT && i < LATE_MS; i++)
		for (k = 0; k < 2; k++)
			if (wait_wc_ms(a[k].scq, &wc, 1)) {
				cr_assert_eq(wc.status, IBV_WC_SUCCESS);
				done++;
			}
	cr_assert_eq(done, 2 * CNT);
	for (k = 0; k < 2; k++) {
		MUST(!sv_dereg_mr(ma[k]));
		side_close(&a[k]);
	}
	MUST(!sv_destroy_qp(b[1].qp));
	MUST(!sv_dereg_mr(mb));
	side_close(&b[0]);
}

/* As the first link does, whose peer is to be looked after. */
static struct sv_timer far;
static atomic_bool holds;

static void never(void *arg)
{
}

static void *begin_to_tick(void *arg)
{
	sv_links_lock(true);
	holds = true;
	usleep(100000);
	sv_timer_set(&far, 60000, never, NULL);
	sv_links_lock(false);
	sv_timer_cancel(&far);
	return NULL;
}

/* The program forks while a link comes: neither waits for the other for ever. */
Test(alive, forked_meanwhile)
{
	struct rdma_event_channel *channel = sv_cm_create_event_channel();
	struct rdma_cm_id *id;
	pthread_t thread;
	pid_t pid;

	/* With a connection manager, which has locks of its own. */
	MUST(channel);
	MUST(!sv_cm_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MUST(!pthread_create(&thread, NULL, begin_to_tick, NULL));
	while (!holds)
		sched_yield();
	pid = fork();
	MUST(pid >= 0);
	if (!pid)
		_exit(0);
	MUST(waitpid(pid, NULL, 0) == pid);
	MUST(!pthread_join(thread, NULL));
	MUST(!sv_cm_destroy_id(id));
	sv_cm_destroy_event_channel(channel);
}
