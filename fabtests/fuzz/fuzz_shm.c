/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A peer that writes whatever it likes, whenever it likes, into the shared memory
 * of a connection: our ring, its own header, its table of keys. The victim is a
 * queue pair that stands, with its application posting and polling; the peer is
 * this program, and a child process whose memory is there to be read and written.
 *
 * Input: one byte (bit 0: without access to the peer's memory, bits 1 .. 3: the
 * peer's rnr_retry, bit 4: receives are a shared queue's), then steps, one byte
 * each and what they need; see steps[].
 *
 * What must hold is in app.h.
 */
#include "app.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
	STEPS_MAX = 64,
	TBL_LEN = SV_MAX_MR * sizeof(struct sv_mr_ent),
	PEER_PD = 77,
	CLEAN_LEN = 4096,		/* of the rings, between two inputs */
};

/* Of the peer: the same addresses here and in the child. */
static uint8_t peer_nonce[32];
static char peer_buf[APP_BUF_LEN];

struct victim {
	struct app app;
	struct sv_shm *shm;
	struct sv_shm fresh;		/* as it was when it was new */
	struct sv_seg *peer;		/* the peer's view of its own segment */
	struct sv_mr_ent *tbl;
};

/* One input's run. */
struct run {
	struct victim *v;
	struct fuzz_in *in;
};

static struct victim victims[4];	/* with and without CMA; with an SRQ */
static pid_t child = -1;

/* ---- making ---- */

static void start_child(void)
{
	child = fork();
	FUZZ_CHECK(child >= 0);
	if (child)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

static int make_tbl(struct victim *v)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	FUZZ_CHECK(fd >= 0 && !ftruncate(fd, TBL_LEN));
	FUZZ_CHECK(!fcntl(fd, F_ADD_SEALS,
			  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	v->tbl = mmap(NULL, TBL_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	FUZZ_CHECK(v->tbl != MAP_FAILED);
	return fd;
}

static void make_link(struct victim *v)
{
	struct ucred cred = { .pid = child, .uid = getuid() };
	struct sv_link_hello hello = {
		.magic = SV_HELLO_MAGIC,
		.version = SV_LINK_VERSION,
		.qpn = APP_PEER_QPN,
		.pd_id = PEER_PD,
		.seg_size = sizeof(struct sv_seg),
		.nonce_addr = (uintptr_t)peer_nonce,
	};
	struct sv_link *link;
	int fds[SV_LINK_FDS];
	int sock[2];

	memcpy(hello.nonce, peer_nonce, sizeof(peer_nonce));
	FUZZ_CHECK(!sv_seg_create(&v->peer, &fds[0]));
	fds[1] = make_tbl(v);
	fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	FUZZ_CHECK(fds[2] >= 0);
	FUZZ_CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock));
	FUZZ_CHECK(!sv_shm_create(sv_qp(v->app.side.qp), &link));
	FUZZ_CHECK(!sv_shm_attach(link, &hello, fds, sock[0], &cred));
	v->shm = sv_shm(link);
	/* Doorbells are a step of the input, not another thread's chance. */
	sv_engine_unwatch(v->shm->bell_fd);
}

static void make_victim(struct victim *v, bool srq)
{
	app_open(&v->app, srq);
	make_link(v);
	app_link(&v->app, &v->shm->link);
	v->fresh = *v->shm;
}

static void start(void)
{
	start_child();
	make_victim(&victims[0], false);
	make_victim(&victims[2], true);
	setenv("SOFTVERBS_CMA", "0", 1);
	make_victim(&victims[1], false);
	make_victim(&victims[3], true);
	unsetenv("SOFTVERBS_CMA");
	FUZZ_CHECK(!victims[1].shm->cma_ok);
	/* What it was to read is brought to it. */
	victims[1].shm->cma_lost = true;
	if (!victims[0].shm->cma_ok)
		fprintf(stderr, "no access to a child's memory here: the "
			"copies between processes are not tried\n");
}

/* ---- between two inputs ---- */

static void clean_seg(struct sv_seg *seg)
{
	const size_t head = offsetof(struct sv_seg, head);

	memset((char *)seg + head, 0,
	       offsetof(struct sv_seg, data) + CLEAN_LEN - head);
	memset(seg->resp, 0, CLEAN_LEN);
}

static void clean_peer(struct victim *v, uint8_t rnr_retry)
{
	struct sv_mr_ent *ent = &v->tbl[1];

	clean_seg(v->peer);
	atomic_store(&v->peer->state, SV_SEG_OPEN);
	atomic_store(&v->peer->access, v->app.attr.qp_access_flags);
	atomic_store(&v->peer->pull_ok, v->shm->cma_ok);
	atomic_store(&v->peer->rd_depth, 16);
	atomic_store(&v->peer->rnr_retry, rnr_retry);
	memset(v->tbl, 0, 8 * sizeof(*ent));
	atomic_store(&ent->key, 1 << 8); /* index 1 */
	atomic_store(&ent->owner, PEER_PD);
	atomic_store(&ent->access,
		     v->app.attr.qp_access_flags | SV_ACCESS_LOCAL);
	atomic_store(&ent->iova, (uintptr_t)peer_buf);
	atomic_store(&ent->va, (uintptr_t)peer_buf);
	atomic_store(&ent->len, APP_BUF_LEN);
}

static void revive(struct victim *v, uint8_t rnr_retry)
{
	const size_t from = offsetof(struct sv_shm, rx_next);
	struct sv_qp *qp = sv_qp(v->app.side.qp);

	sv_lock_take(&qp->lock);
	sv_deadline_clear(&v->shm->link);
	clean_seg(v->shm->own);
	clean_peer(v, rnr_retry);
	memcpy((char *)v->shm + from, (char *)&v->fresh + from,
	       sizeof(v->fresh) - from);
	atomic_store(&v->shm->link.attention, false);
	v->shm->link.gone_due_ns = 0;
	/* Waits for the peer to end a copy are long over. */
	v->shm->down_until_ns = 1;
	atomic_store(&v->shm->own->pull_ok, v->shm->cma_ok);
	app_renew_locked(&v->app);
	sv_lock_drop(&qp->lock);
	app_renew(&v->app);
}

/* ---- the peer's steps ---- */

/* Mostly short. */
static uint32_t any_len(struct run *r)
{
	uint8_t len = fuzz_u8(r->in);

	if (len < 200)
		return len;
	return len < 250 ? fuzz_u16(r->in) : fuzz_u32(r->in);
}

static void pull_data(struct run *r, struct sv_slot *slot)
{
	struct ibv_sge sge[SV_SLOT_DATA / sizeof(struct ibv_sge)];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sge); i++)
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)peer_buf + fuzz_u8(r->in),
			.length = any_len(r),
			.lkey = 1 << 8,
		};
	memcpy(slot->data, sge, sizeof(sge));
	slot->cnt = fuzz_u8(r->in) % (ARRAY_SIZE(sge) + 1);
	slot->len = (uint32_t)(slot->cnt * sizeof(*sge));
}

static void step_slot(struct run *r)
{
	struct sv_shm *shm = r->v->shm;
	uint8_t how = fuzz_u8(r->in);
	uint32_t next = atomic_load(&shm->rx_next) + how % 4;
	struct sv_slot *slot = &shm->own->slots[next % SV_SLOT_CNT];
	struct sv_slot msg = { .flags = SV_SLOT_FIRST | SV_SLOT_LAST };

	msg.op = fuzz_u8(r->in) % (SV_OP_FETCH_ADD + 2);
	if (how & 4)
		msg.flags = fuzz_u8(r->in);
	msg.imm = msg.flags & SV_SLOT_INV ? app_key(&r->v->app, r->in) : how;
	msg.len = any_len(r);
	msg.raddr = app_addr(&r->v->app, r->in);
	if (msg.op == SV_OP_PULL && how & 8)
		pull_data(r, &msg);
	else
		fuzz_bytes(r->in, msg.data, how >> 4);
	if (msg.op == SV_OP_SEND || msg.op == SV_OP_PULL ||
	    msg.op == SV_OP_WRITTEN)
		msg.total = how & 8 && msg.op != SV_OP_PULL ? msg.len :
			any_len(r);
	else
		msg.rkey = app_key(&r->v->app, r->in);
	if (msg.flags & SV_SLOT_RING)
		msg.pos = fuzz_u8(r->in) * (SV_DATA_SIZE / 255);
	memcpy((char *)slot + 4, (char *)&msg + 4, sizeof(msg) - 4);
	atomic_store(&slot->seq, next / SV_SLOT_CNT + 1);
}

static void write_bytes(struct run *r, struct sv_seg *seg, uint32_t at,
			uint8_t len)
{
	if (len > sizeof(*seg) - at)
		len = (uint8_t)(sizeof(*seg) - at);
	fuzz_bytes(r->in, (char *)seg + at, len);
}

/* Anywhere behind the static words, which nobody reads again. */
static void step_write_ring(struct run *r)
{
	const uint32_t from = offsetof(struct sv_seg, head);
	uint32_t at = fuzz_u32(r->in) % (sizeof(struct sv_seg) - from);

	write_bytes(r, r->v->shm->own, from + at, fuzz_u8(r->in) % 64);
}

static void step_write_slot(struct run *r)
{
	const uint32_t from = offsetof(struct sv_seg, slots);
	uint32_t at = fuzz_u16(r->in) % (8 * sizeof(struct sv_slot));

	write_bytes(r, r->v->shm->own, from + at, fuzz_u8(r->in) % 128);
}

static void step_peer_header(struct run *r)
{
	struct sv_seg *seg = r->v->peer;
	atomic_uint *words[] = {
		&seg->head, &seg->resp_head, &seg->rq_posted,
		&seg->state, &seg->access, &seg->pull_ok, &seg->rd_depth,
		&seg->rnr_retry, &seg->wake, &seg->lift_head,
	};
	atomic_uint *word = words[fuzz_u8(r->in) % ARRAY_SIZE(words)];

	atomic_store(word, any_len(r));
}

static void step_answer(struct run *r)
{
	struct sv_seg *seg = r->v->shm->own;
	uint32_t tail = atomic_load(&seg->resp_tail);

	fuzz_bytes(r->in, seg->resp + tail % CLEAN_LEN / 2, 8);
	atomic_store(&seg->resp_tail, tail + any_len(r));
	if (tail & 1)
		atomic_fetch_add(&seg->lift_tail, any_len(r));
}

static void step_fault(struct run *r)
{
	const uint8_t which = fuzz_u8(r->in);

	if (which & 1)
		atomic_store(&r->v->shm->own->fault, fuzz_u8(r->in));
	else if (which & 2)
		atomic_store(&r->v->shm->own->nak, fuzz_u8(r->in));
	else
		atomic_store(&r->v->shm->own->busy, any_len(r));
}

static void step_ack(struct run *r)
{
	atomic_store(&r->v->peer->head, r->v->shm->tx_next - fuzz_u8(r->in) % 4);
}

static void step_table(struct run *r)
{
	char *ent = (char *)&r->v->tbl[fuzz_u8(r->in) % 4];
	uint8_t at = fuzz_u8(r->in) % 40;

	fuzz_bytes(r->in, ent + at, fuzz_u8(r->in) % (41 - at));
}

/* ---- the victim's steps ---- */

static void step_post_recv(struct run *r)
{
	app_post_recv(&r->v->app, r->in);
}

static void step_post_send(struct run *r)
{
	app_post_send(&r->v->app, r->in, (uintptr_t)peer_buf);
}

static void step_bind(struct run *r)
{
	app_bind(&r->v->app);
}

static void step_poll(struct run *r)
{
	app_poll(&r->v->app);
}

static void step_bell(struct run *r)
{
	app_bell(&r->v->shm->link);
}

static void step_timeout(struct run *r)
{
	app_timeout(&r->v->shm->link, &r->v->shm->rnr_due_ns);
}

static void step_modify(struct run *r)
{
	app_modify(&r->v->app, r->in);
}

static void (*const steps[])(struct run *r) = {
	step_slot, step_post_recv, step_poll, step_post_send, step_bell,
	step_peer_header, step_ack, step_write_slot, step_write_ring,
	step_answer, step_fault, step_table, step_timeout, step_modify,
	step_slot, step_poll, step_bind,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	struct run run = { .in = &in };
	uint8_t how;
	int i;

	if (child < 0)
		start();
	how = fuzz_u8(&in);
	run.v = &victims[(how & 1) | (how >> 3 & 2)];
	revive(run.v, how >> 1 & 7);
	for (i = 0; i < STEPS_MAX && in.left; i++)
		steps[fuzz_u8(&in) % ARRAY_SIZE(steps)](&run);
	app_finish(&run.v->app);
	return 0;
}
