/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Poll sets and wait sets: several queues and counters looked at, and waited
 * for, as one. */
#include <poll.h>
#include <pthread.h>

#include "pair.h"

enum { LEN = 64 };

/* Of srv, in place of what make_ep would open. */
static struct fid_wait *waitset;
static struct fid_cq *cq;
static struct fid_cntr *cntr;

static void bind_own(struct end *e)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_DATA };
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fi_wait_attr wait_attr = { .wait_obj = FI_WAIT_FD };

	if (e != &srv) {
		ASSERT_OK(fi_ep_bind(e->ep, &e->cq->fid,
				     FI_TRANSMIT | FI_RECV));
		return;
	}
	if (srv.how.cq_wait == FI_WAIT_FD) {
		ASSERT_OK(fi_wait_open(e->fabric, &wait_attr, &waitset));
		cq_attr.wait_obj = cntr_attr.wait_obj = FI_WAIT_SET;
		cq_attr.wait_set = cntr_attr.wait_set = waitset;
	}
	ASSERT_OK(fi_cq_open(e->domain, &cq_attr, &cq, &cq));
	ASSERT_OK(fi_cntr_open(e->domain, &cntr_attr, &cntr, &cntr));
	ASSERT_OK(fi_ep_bind(e->ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	ASSERT_OK(fi_ep_bind(e->ep, &cntr->fid, FI_RECV));
}

static void open_all(enum fi_wait_obj wait_obj)
{
	struct setup how = { .no_cq = true,
			     .cq_wait = wait_obj,
			     .threading = FI_THREAD_SAFE,
			     .bind = bind_own };

	pair_open(&how, LEN);
}

static int close_all(void)
{
	close_ep(&cli);
	if (srv.ep)
		close_ep(&srv);
	ASSERT_OK(fi_close(&cq->fid));
	ASSERT_OK(fi_close(&cntr->fid));
	if (waitset)
		ASSERT_OK(fi_close(&waitset->fid));
	return pair_close();
}

/* ---- poll sets ---- */

/* Polls until something has come; returns how many, their contexts in ctx. */
static int poll_some(struct fid_poll *set, void **ctx, int room)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	unsigned int turn = 0;
	int cnt;

	while (!(cnt = fi_poll(set, ctx, room)) && now_us() < end)
		relax(&turn);
	return cnt;
}

static int poll_queue_and_counter(void)
{
	struct fid_poll *set;
	void *ctx[4];
	int seen = 0;

	open_all(FI_WAIT_NONE);
	ASSERT_OK(fi_poll_open(srv.domain, NULL, &set));
	ASSERT_EQ(fi_poll(set, ctx, 4), 0);
	ASSERT_OK(fi_poll_add(set, &cq->fid, 0));
	ASSERT_OK(fi_poll_add(set, &cntr->fid, 0));
	ASSERT_EQ(fi_poll(set, ctx, 4), 0);
	post_recv(&srv, &rx, 0, LEN, &rx);
	ASSERT_EQ(fi_poll(set, ctx, 4), 0);
	post_send(&cli, &tx, 0, LEN, &tx);
	/* With room for one, both are told of one after the other: the counter
	 * once, the queue as long as it is not empty. */
	for (int i = 0; i < 4 && seen != 3; i++) {
		ASSERT_EQ(poll_some(set, ctx, 1), 1);
		ASSERT(ctx[0] == &cq || ctx[0] == &cntr);
		seen |= ctx[0] == &cq ? 1 : 2;
	}
	ASSERT_EQ(seen, 3);
	ASSERT_EQ(fi_poll(set, ctx, 4), 1);
	ASSERT(ctx[0] == &cq);
	ASSERT_EQ(fi_cntr_read(cntr), 1);
	expect_ok(cq, &rx, FI_RECV | FI_MSG, NULL);
	ASSERT_EQ(fi_poll(set, ctx, 4), 0);
	/* What fails is news as well. */
	ASSERT_OK(fi_cntr_adderr(cntr, 1));
	ASSERT_EQ(fi_poll(set, ctx, 4), 1);
	ASSERT(ctx[0] == &cntr);
	ASSERT_OK(fi_poll_del(set, &cntr->fid, 0));
	ASSERT_OK(fi_cntr_adderr(cntr, 1));
	ASSERT_EQ(fi_poll(set, ctx, 4), 0);
	ASSERT_OK(fi_close(&set->fid));
	return close_all();
}

static int poll_refusals(void)
{
	struct fi_poll_attr attr = { .flags = 1 };
	struct fid_poll *set;
	void *ctx[1];

	open_all(FI_WAIT_NONE);
	ASSERT_EQ(fi_poll_open(srv.domain, &attr, &set), -FI_EBADFLAGS);
	ASSERT_OK(fi_poll_open(srv.domain, NULL, &set));
	ASSERT_EQ(fi_poll(set, ctx, 0), -FI_EINVAL);
	ASSERT_EQ(fi_poll(set, NULL, 1), -FI_EINVAL);
	ASSERT_EQ(fi_poll_add(set, &srv.ep->fid, 0), -FI_EINVAL);
	ASSERT_EQ(fi_poll_add(set, &cli.cq->fid, 0), -FI_EINVAL);
	ASSERT_EQ(fi_poll_add(set, &cq->fid, 1), -FI_EBADFLAGS);
	ASSERT_OK(fi_poll_add(set, &cq->fid, 0));
	ASSERT_EQ(fi_poll_add(set, &cq->fid, 0), -FI_EALREADY);
	ASSERT_EQ(fi_poll_del(set, &cntr->fid, 0), -FI_ENOENT);
	/* A member stays as long as the set has it. */
	close_ep(&srv);
	ASSERT_EQ(fi_close(&cq->fid), -FI_EBUSY);
	ASSERT_EQ(fi_close(&srv.domain->fid), -FI_EBUSY);
	ASSERT_OK(fi_close(&set->fid));
	return close_all();
}

/* ---- wait sets ---- */

static void *send_later(void *arg)
{
	sleep_ms(100);
	post_send(&cli, &tx, 0, LEN, &tx);
	return NULL;
}

/* Credits may wake who waits, as anything may that is no completion. */
static void wait_out(int ms)
{
	uint64_t end = now_us() + (uint64_t)ms * 1000;
	int ret = 0;

	while (ret != -FI_ETIMEDOUT && now_us() < end) {
		ret = fi_wait(waitset, ms);
		if (!has_credits(&srv))
			ASSERT_EQ(ret, -FI_ETIMEDOUT);
	}
}

static void wait_for_one(void)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	struct comp c;

	while (!poll_comp(cq, &c)) {
		ASSERT(now_us() < end);
		ASSERT_OK(fi_wait(waitset, slow_ms(5000)));
	}
	ASSERT_EQ(c.err, 0);
}

static int wait_for_queue_and_counter(void)
{
	pthread_t thread;
	uint64_t start, cpu;

	open_all(FI_WAIT_FD);
	start = now_us();
	cpu = cpu_us();
	wait_out(200);
	ASSERT_GE(now_us() - start, 190000);
	ASSERT_LE(cpu_us() - cpu, (uint64_t)slow_ms(100) * 1000);
	for (int i = 0; i < 3; i++) {
		post_recv(&srv, &rx, 0, LEN, &rx);
		ASSERT_OK(pthread_create(&thread, NULL, send_later, NULL));
		wait_for_one();
		ASSERT_OK(pthread_join(thread, NULL));
		ASSERT_EQ(fi_cntr_read(cntr), (uint64_t)i + 1);
	}
	return close_all();
}

static void *signal_later(void *arg)
{
	sleep_ms(100);
	ASSERT_OK(fi_cq_signal(cq));
	return NULL;
}

static int woken_by_a_signal(void)
{
	pthread_t thread;

	open_all(FI_WAIT_FD);
	ASSERT_OK(pthread_create(&thread, NULL, signal_later, NULL));
	ASSERT_OK(fi_wait(waitset, -1));
	ASSERT_OK(pthread_join(thread, NULL));
	return close_all();
}

/* poll(2) on the set's descriptor, after fi_trywait of the set alone. */
static int by_descriptor(void)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	struct pollfd pfd = { .events = POLLIN };
	enum fi_wait_obj obj;
	struct fid *fids[1];
	pthread_t thread;
	struct comp c;

	open_all(FI_WAIT_FD);
	fids[0] = &waitset->fid;
	ASSERT_OK(fi_control(&waitset->fid, FI_GETWAIT, &pfd.fd));
	ASSERT_OK(fi_control(&cq->fid, FI_GETWAITOBJ, &obj));
	ASSERT_EQ(obj, FI_WAIT_SET);
	post_recv(&srv, &rx, 0, LEN, &rx);
	ASSERT_OK(pthread_create(&thread, NULL, send_later, NULL));
	while (!poll_comp(cq, &c)) {
		ASSERT(now_us() < end);
		if (!fi_trywait(srv.fabric, fids, 1))
			ASSERT_GE(poll(&pfd, 1, slow_ms(5000)), 0);
	}
	ASSERT_OK(pthread_join(thread, NULL));
	return close_all();
}

/* Connecting is waited for in the same way. */
static int wait_for_event(void)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_SET, .flags = FI_WRITE };
	struct fi_eq_entry entry = { .context = &attr };
	struct fid_eq *eq;
	uint32_t event;

	open_all(FI_WAIT_FD);
	attr.wait_set = waitset;
	ASSERT_OK(fi_eq_open(srv.fabric, &attr, &eq, NULL));
	wait_out(20);
	ASSERT_EQ(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0),
		  (ssize_t)sizeof(entry));
	ASSERT_OK(fi_wait(waitset, slow_ms(5000)));
	ASSERT_EQ(fi_eq_read(eq, &event, &entry, sizeof(entry), 0),
		  (ssize_t)sizeof(entry));
	ASSERT_EQ(event, FI_NOTIFY);
	wait_out(20);
	ASSERT_OK(fi_close(&eq->fid));
	return close_all();
}

static int wait_refusals(void)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_SET };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_SET };
	struct fid_wait *set;
	struct fid_cq *other;
	struct fid_eq *eq;

	open_all(FI_WAIT_FD);
	ASSERT_EQ(fi_wait_open(srv.fabric, &attr, &set), -FI_ENOSYS);
	attr.wait_obj = FI_WAIT_UNSPEC;
	attr.flags = 1;
	ASSERT_EQ(fi_wait_open(srv.fabric, &attr, &set), -FI_EBADFLAGS);
	ASSERT_EQ(fi_cq_open(srv.domain, &cq_attr, &other, NULL), -FI_EINVAL);
	ASSERT_EQ(fi_eq_open(srv.fabric, &eq_attr, &eq, NULL), -FI_EINVAL);
	/* The client's fabric is another one. */
	cq_attr.wait_set = waitset;
	ASSERT_EQ(fi_cq_open(cli.domain, &cq_attr, &other, NULL), -FI_EINVAL);
	ASSERT_EQ(fi_close(&waitset->fid), -FI_EBUSY);
	return close_all();
}

static const struct test_case cases[] = {
	CASE(poll_queue_and_counter),
	CASE(poll_refusals),
	CASE(wait_for_queue_and_counter),
	CASE(woken_by_a_signal),
	CASE(by_descriptor),
	CASE(wait_for_event),
	CASE(wait_refusals),
	{ 0 },
};

int main(int argc, char **argv)
{
	return run_cases(argc, argv, cases);
}
