/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory that is taken back while a TCP link is sending it: by its region or its
 * window, with a peer that stops in the middle of the answer. That one gets whole
 * frames of what was there, and then is told.
 */
#include "tcp_raw.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/mman.h>

TestSuite(tcp_taken, .timeout = 60);

enum { ASKS = 16, MOVED = 1 << 20 };

enum how { DEREG, DEREG_WHILE_SENDING, REREG, DEALLOC, INVALIDATE };

struct taken {
	struct raw r;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	char *mem;
	char was[MOVED];
	uint64_t got; /* bytes of what is moved, one after the other */
};

static void taken_open(struct taken *t, const struct sv_tcp_setup *setup)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_MW_BIND;

	raw_open(&t->r, setup);
	t->mem = mmap(NULL, MOVED, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(t->mem != MAP_FAILED);
	fill(t->mem, MOVED, 3);
	memcpy(t->was, t->mem, MOVED);
	MUST((t->mr = sv_reg_mr(t->r.s.pd, t->mem, MOVED, access)));
	t->mw = NULL;
	t->got = 0;
}

static void taken_close(struct taken *t)
{
	if (t->mw)
		MUST(!sv_dealloc_mw(t->mw));
	if (t->mr)
		MUST(!sv_dereg_mr(t->mr));
	munmap(t->mem, MOVED);
	raw_close(&t->r);
}

/* Nobody reads what the side sends, until it can send no more. */
static void wait_blocked(struct raw *r)
{
	struct sv_qp *qp = sv_qp(r->s.qp);
	bool blocked = false;
	int i;

	for (i = 0; i < SIDE_WAIT_MS && !blocked; i++) {
		usleep(1000);
		sv_lock_take(&qp->lock);
		blocked = sv_tcp(qp->link)->blocked;
		sv_lock_drop(&qp->lock);
	}
	MUST(blocked);
}

static uint32_t bind_window(struct taken *t)
{
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
	};

	MUST((t->mw = sv_alloc_mw(t->r.s.pd, IBV_MW_TYPE_2)));
	wr.bind_mw.mw = t->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(t->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		t->mr, (uintptr_t)t->mem, MOVED, IBV_ACCESS_REMOTE_READ
	};
	MUST(!ibv_post_send(t->r.s.qp, &wr, &bad));
	MUST(wait_wc(t->r.s.scq).status == IBV_WC_SUCCESS);
	return wr.bind_mw.rkey;
}

/*
 * A frame of what was asked for or sent, which must be whole, and of what was there
 * then. False: it is something else. What two softverbs say of themselves besides
 * is read past.
 */
static bool answer(struct taken *t, struct sv_ddp *ddp, enum sv_rdmap_op op)
{
	do {
		raw_get(&t->r, ddp);
	} while (ddp->op == SV_RDMAP_CTRL && ddp->ulp != SV_CTRL_NAK &&
		 ddp->ulp != SV_CTRL_GONE);
	if (ddp->op != op)
		return false;
	cr_assert_eq(op == SV_RDMAP_SEND ? ddp->mo : ddp->to, t->got % MOVED);
	cr_assert(!memcmp(t->r.payload, t->was + t->got % MOVED,
			  ddp->payload_len),
		  "at %llu", (unsigned long long)t->got);
	t->got += ddp->payload_len;
	if (t->r.ext && op == SV_RDMAP_SEND && ddp->last)
		raw_ctrl(&t->r, SV_CTRL_ACK, t->got / MOVED, ASKS);
	return true;
}

static void *dereg(void *arg)
{
	struct taken *t = arg;

	MUST(!sv_dereg_mr(t->mr));
	return NULL;
}

/* Just now there is room for more, and who has withdrawn the key must wait. */
static void dereg_while_sending(struct taken *t)
{
	struct sv_qp *qp = sv_qp(t->r.s.qp);
	struct sv_tcp *tcp = sv_tcp(qp->link);
	struct pollfd pfd = { .fd = tcp->sock, .events = POLLOUT };
	const uint32_t key = t->mr->rkey;
	pthread_t thread;
	struct sv_ddp ddp;

	sv_lock_take(&qp->lock);
	MUST(!pthread_create(&thread, NULL, dereg, t));
	while (!sv_mr_leaving(key))
		usleep(1000);
	while (poll(&pfd, 1, 0) != 1)
		MUST(answer(t, &ddp, SV_RDMAP_READ_RESP));
	sv_tcp_push(tcp, true);
	sv_lock_drop(&qp->lock);
	MUST(!pthread_join(thread, NULL));
	t->mr = NULL;
}

static void take_back(struct taken *t, enum how how, uint32_t key)
{
	struct raw *r = &t->r;

	switch (how) {
	case DEREG:
		dereg(t);
		t->mr = NULL;
		break;
	case DEREG_WHILE_SENDING:
		dereg_while_sending(t);
		break;
	case REREG:
		MUST(!sv_rereg_mr(t->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL,
				  0, IBV_ACCESS_LOCAL_WRITE));
		break;
	case DEALLOC:
		MUST(!sv_dealloc_mw(t->mw));
		t->mw = NULL;
		break;
	case INVALIDATE:
		MUST(!post_recv(&r->s, 1, r->mr, 0, 8));
		raw_put(r, (struct sv_ddp){ .op = SV_RDMAP_SEND_INV,
					    .last = true, .msn = 1,
					    .ulp = key }, "", 0);
		MUST(wait_wc(r->s.rcq).status == IBV_WC_SUCCESS);
	}
	/* What is sent from there now is wrong. */
	if (t->mr)
		memset(t->mem, 0, MOVED);
	else
		munmap(t->mem, MOVED);
}

/* The reader gets what it was promised, intact, and then is told. */
static void read_of(enum how how, bool ext, bool crc)
{
	static struct taken t;
	struct raw *r = &t.r;
	struct sv_term term;
	struct sv_ddp ddp;
	uint32_t key, i, status;

	taken_open(&t, &(struct sv_tcp_setup){ .ext = ext, .crc = crc });
	r->hears_ctrl = true;
	key = how < DEALLOC ? t.mr->rkey : bind_window(&t);
	for (i = 0; i < ASKS; i++)
		raw_ask_key(r, i + 1, key, (uintptr_t)t.mem, MOVED);
	wait_blocked(r);
	take_back(&t, how, key);
	while (answer(&t, &ddp, SV_RDMAP_READ_RESP))
		;
	cr_assert_lt(t.got, (uint64_t)ASKS * MOVED);
	if (ext) {
		cr_assert_eq(ddp.ulp, SV_CTRL_NAK);
		sv_ctrl_link_decode(&i, &status, r->payload);
		cr_assert_eq(status, IBV_WC_REM_ACCESS_ERR);
	} else {
		cr_assert_eq(ddp.op, SV_RDMAP_TERMINATE);
		MUST(!sv_term_decode(&term, false, r->payload,
				     ddp.payload_len));
		cr_assert_eq(term.err, SV_TERM_PROT_ACCESS);
		cr_assert(raw_ended(r));
	}
	raw_event(r, IBV_EVENT_QP_ACCESS_ERR);
	taken_close(&t);
}

static void reads(bool ext, bool crc)
{
	enum how how;

	for (how = DEREG; how <= INVALIDATE; how++)
		read_of(how, ext, crc);
}

Test(tcp_taken, read) { reads(true, false); }
Test(tcp_taken, read_crc) { reads(true, true); }
Test(tcp_taken, plain_read) { reads(false, false); }
Test(tcp_taken, plain_read_crc) { reads(false, true); }

/* Our own, of which the peer has seen the beginning. */
static void send_of(bool ext)
{
	static struct taken t;
	struct sv_ddp ddp;
	struct ibv_wc wc;
	int i;

	taken_open(&t, &(struct sv_tcp_setup){ .ext = ext });
	t.r.hears_ctrl = true;
	if (ext)
		raw_ctrl(&t.r, SV_CTRL_ACK, 0, ASKS);
	for (i = 0; i < ASKS; i++)
		MUST(!post(&t.r.s, (struct post){ .id = i, .op = IBV_WR_SEND,
						  .mr = t.mr, .len = MOVED }));
	wait_blocked(&t.r);
	take_back(&t, DEREG, 0);
	while ((ext || !raw_ended(&t.r)) && answer(&t, &ddp, SV_RDMAP_SEND))
		;
	cr_assert(!ext || ddp.ulp == SV_CTRL_GONE);
	cr_assert_lt(t.got, (uint64_t)ASKS * MOVED);
	do {
		wc = wait_wc(t.r.s.scq);
	} while (wc.status == IBV_WC_SUCCESS);
	cr_assert_eq(wc.status, IBV_WC_LOC_PROT_ERR);
	cr_assert_eq(wc.wr_id, t.got / MOVED);
	taken_close(&t);
}

Test(tcp_taken, send) { send_of(true); }
Test(tcp_taken, plain_send) { send_of(false); }

/* Against the rules, but the process lives: the stream breaks. */
Test(tcp_taken, unmapped_before)
{
	static struct taken t;
	uint32_t i;
	char c;

	taken_open(&t, &(struct sv_tcp_setup){ .ext = true });
	for (i = 0; i < ASKS; i++)
		raw_ask_key(&t.r, i + 1, t.mr->rkey, (uintptr_t)t.mem, MOVED);
	wait_blocked(&t.r);
	munmap(t.mem, MOVED);
	MUST(!sv_dereg_mr(t.mr));
	t.mr = NULL;
	raw_event(&t.r, IBV_EVENT_QP_FATAL);
	while (recv(t.r.sock, &c, 1, 0) > 0)
		;
	taken_close(&t);
}
