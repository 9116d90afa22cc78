/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Counters: what they count, with and without a completion queue beside them;
 * waiting for them; errors; what they refuse.
 */
#include <poll.h>
#include <pthread.h>

#include "pair.h"

enum { OPS = 1000, DEPTH = 64, LEN = 64 };

struct counters {
	struct fid_cntr *send;
	struct fid_cntr *recv;
	struct fid_cntr *read;
	struct fid_cntr *write;
	struct fid_cntr *remote;
};

static struct counters srv_c;
static struct counters cli_c;
static enum fi_wait_obj wait_obj;

/* ---- making ---- */

static void bind_all(struct end *e)
{
	struct counters *c = e == &srv ? &srv_c : &cli_c;

	c->send = make_cntr(e, FI_SEND, wait_obj);
	c->recv = make_cntr(e, FI_RECV, wait_obj);
	c->read = make_cntr(e, FI_READ, wait_obj);
	c->write = make_cntr(e, FI_WRITE, wait_obj);
	c->remote = make_cntr(e, FI_REMOTE_WRITE | FI_REMOTE_READ, wait_obj);
}

static void open_all(struct setup how)
{
	how.bind = bind_all;
	pair_open(&how, 4096);
}

static void counters_close(struct counters *c)
{
	ASSERT_OK(fi_close(&c->send->fid));
	ASSERT_OK(fi_close(&c->recv->fid));
	ASSERT_OK(fi_close(&c->read->fid));
	ASSERT_OK(fi_close(&c->write->fid));
	ASSERT_OK(fi_close(&c->remote->fid));
}

static int close_all(void)
{
	ASSERT_EQ(fi_close(&cli_c.send->fid), -FI_EBUSY);
	close_ep(&cli);
	close_ep(&srv);
	counters_close(&cli_c);
	counters_close(&srv_c);
	return pair_close();
}

/* ---- counting ---- */

/* Within the time a test has; reading is what makes progress. */
static void expect_count(struct fid_cntr *cntr, uint64_t want)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	unsigned int turn = 0;

	while (fi_cntr_read(cntr) < want && now_us() < end)
		relax(&turn);
	ASSERT_EQ(fi_cntr_read(cntr), want);
	ASSERT_EQ(fi_cntr_readerr(cntr), 0);
}

/* Nothing but counters is read, whatever waits in a completion queue. */
#define POST(call)                                                            \
	do {                                                                  \
		uint64_t end_ = now_us() + (uint64_t)slow_ms(5000) * 1000;    \
		ssize_t ret_;                                                 \
									      \
		while ((ret_ = (call)) == -FI_EAGAIN && now_us() < end_) {    \
			fi_cntr_read(cli_c.send);                             \
			fi_cntr_read(srv_c.recv);                             \
		}                                                             \
		ASSERT_EQ(ret_, 0);                                           \
	} while (0)

static void exchange(size_t ops)
{
	for (size_t i = 0; i < ops; i++) {
		POST(fi_recv(srv.ep, rx.p, LEN, rx.desc, 0, NULL));
		if (i & 1)
			POST(fi_send(cli.ep, tx.p, LEN, tx.desc, 0, NULL));
		else
			POST(fi_inject(cli.ep, tx.p, LEN, 0));
		POST(fi_write(cli.ep, tx.p, LEN, tx.desc, 0, rx.addr, rx.key,
			      NULL));
		POST(fi_read(cli.ep, tx.p, LEN, tx.desc, 0, rx.addr, rx.key,
			     NULL));
	}
	expect_count(cli_c.send, ops);
	expect_count(cli_c.write, ops);
	expect_count(cli_c.read, ops);
	expect_count(srv_c.recv, ops);
	ASSERT_EQ(fi_cntr_read(cli_c.recv), 0);
	ASSERT_EQ(fi_cntr_read(srv_c.send), 0);
	ASSERT_EQ(fi_cntr_read(srv_c.remote), 0);
}

static int no_queue_at_all(void)
{
	open_all((struct setup){ .no_cq = true });
	exchange(scaled(OPS));
	return close_all();
}

static int silent_queue(void)
{
	struct comp c;

	open_all((struct setup){ .tx_bind = FI_SELECTIVE_COMPLETION,
				 .rx_bind = FI_SELECTIVE_COMPLETION });
	exchange(scaled(OPS));
	ASSERT(!poll_comp(cli.cq, &c));
	ASSERT(!poll_comp(srv.cq, &c));
	return close_all();
}

/* What counters have seen is still there to read, once and in order. */
static int queue_that_is_read_later(void)
{
	struct comp c;

	open_all((struct setup){ 0 });
	for (size_t i = 0; i < DEPTH; i++)
		post_recv(&srv, &rx, 0, LEN, (void *)(i + 1));
	for (size_t i = 0; i < DEPTH; i++)
		POST(fi_send(cli.ep, tx.p, LEN, tx.desc, 0, (void *)(i + 1)));
	expect_count(srv_c.recv, DEPTH);
	expect_count(cli_c.send, DEPTH);
	for (size_t i = 0; i < DEPTH; i++) {
		expect_ok(srv.cq, (void *)(i + 1), FI_RECV | FI_MSG, &c);
		ASSERT_EQ(c.len, LEN);
		expect_ok(cli.cq, (void *)(i + 1), FI_SEND | FI_MSG, NULL);
	}
	expect_no_comp(cli.cq, 20);
	expect_no_comp(srv.cq, 20);
	expect_count(srv_c.recv, DEPTH);
	expect_count(cli_c.send, DEPTH);
	return close_all();
}

/* A program may as well read its queue, and ask the counter afterwards. */
static int queue_that_is_read_first(void)
{
	open_all((struct setup){ 0 });
	for (size_t i = 0; i < DEPTH; i++) {
		post_recv(&srv, &rx, 0, LEN, &rx);
		POST(fi_send(cli.ep, tx.p, LEN, tx.desc, 0, &tx));
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	}
	expect_count(srv_c.recv, DEPTH);
	expect_count(cli_c.send, DEPTH);
	return close_all();
}

/* A write with data is seen by its target: not as a message. */
static int writes_with_data(void)
{
	open_all((struct setup){ .no_cq = true });
	if (!has_cq_data(&cli)) {
		close_all();
		return skip("no remote completion data on iWARP");
	}
	for (size_t i = 0; i < DEPTH; i++) {
		if (takes_recv(&srv))
			POST(fi_recv(srv.ep, rx.p, LEN, rx.desc, 0, NULL));
		POST(fi_writedata(cli.ep, tx.p, LEN, tx.desc, i, 0, rx.addr,
				  rx.key, NULL));
	}
	expect_count(cli_c.write, DEPTH);
	expect_count(srv_c.remote, DEPTH);
	ASSERT_EQ(fi_cntr_read(srv_c.recv), 0);
	return close_all();
}

static int set_and_add(void)
{
	open_all((struct setup){ .no_cq = true });
	ASSERT_OK(fi_cntr_set(cli_c.send, 40));
	ASSERT_OK(fi_cntr_add(cli_c.send, 2));
	ASSERT_EQ(fi_cntr_read(cli_c.send), 42);
	ASSERT_OK(fi_cntr_seterr(cli_c.send, 6));
	ASSERT_OK(fi_cntr_adderr(cli_c.send, 1));
	ASSERT_EQ(fi_cntr_readerr(cli_c.send), 7);
	return close_all();
}

/* ---- errors ---- */

/* One that fails, then what it flushes: all of them errors, each once. */
static int failed_and_flushed(void)
{
	enum { POSTED = 8 };
	uint64_t end;

	open_all((struct setup){ .no_cq = true });
	for (int i = 0; i < POSTED; i++)
		POST(fi_recv(cli.ep, tx.p, LEN, tx.desc, 0, NULL));
	ASSERT_OK(fi_shutdown(cli.ep, 0));
	end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	while (fi_cntr_readerr(cli_c.recv) < POSTED && now_us() < end)
		sleep_ms(1);
	ASSERT_EQ(fi_cntr_readerr(cli_c.recv), POSTED);
	ASSERT_EQ(fi_cntr_read(cli_c.recv), 0);
	/* The rise of the errors is what a wait now ends with. */
	ASSERT_EQ(fi_cntr_wait(cli_c.recv, 1, 100), -FI_ETIMEDOUT);
	return close_all();
}

static int errors_beside_a_queue(void)
{
	enum { POSTED = 8 };
	uint64_t end;
	struct comp c;

	open_all((struct setup){ 0 });
	for (int i = 0; i < POSTED; i++)
		post_recv(&cli, &tx, 0, LEN, &tx);
	ASSERT_OK(fi_shutdown(cli.ep, 0));
	end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	while (fi_cntr_readerr(cli_c.recv) < POSTED && now_us() < end)
		sleep_ms(1);
	ASSERT_EQ(fi_cntr_readerr(cli_c.recv), POSTED);
	for (int i = 0; i < POSTED; i++) {
		expect_comp(cli.cq, &c);
		ASSERT_EQ(c.err, FI_ECANCELED);
	}
	expect_no_comp(cli.cq, 20);
	ASSERT_EQ(fi_cntr_readerr(cli_c.recv), POSTED);
	return close_all();
}

/* ---- waiting ---- */

static void *send_later(void *arg)
{
	sleep_ms(100);
	POST(fi_send(cli.ep, tx.p, LEN, tx.desc, 0, NULL));
	return NULL;
}

static void wait_for_one(struct setup how)
{
	uint64_t start, cpu;
	pthread_t thread;

	how.threading = FI_THREAD_SAFE;
	open_all(how);
	/* Time is kept, and nothing is done meanwhile. */
	start = now_us();
	cpu = cpu_us();
	ASSERT_EQ(fi_cntr_wait(srv_c.recv, 1, slow_ms(200)), -FI_ETIMEDOUT);
	ASSERT_GE(now_us() - start, 200000);
	ASSERT_LE(now_us() - start, (uint64_t)slow_ms(1000) * 1000);
	ASSERT_LE(cpu_us() - cpu, (uint64_t)slow_ms(100) * 1000);
	ASSERT_OK(fi_cntr_wait(srv_c.recv, 0, 0));
	post_recv(&srv, &rx, 0, LEN, NULL);
	ASSERT_OK(pthread_create(&thread, NULL, send_later, NULL));
	ASSERT_OK(fi_cntr_wait(srv_c.recv, 1, slow_ms(5000)));
	ASSERT_OK(pthread_join(thread, NULL));
	ASSERT_OK(fi_cntr_wait(cli_c.send, 1, slow_ms(5000)));
}

static int wait_without_queue(void)
{
	wait_for_one((struct setup){ .no_cq = true });
	return close_all();
}

static int wait_beside_a_queue(void)
{
	wait_for_one((struct setup){ .cq_wait = FI_WAIT_FD });
	return close_all();
}

static int wait_beside_one_that_only_polls(void)
{
	wait_for_one((struct setup){ 0 });
	return close_all();
}

static void *set_later(void *arg)
{
	sleep_ms(100);
	ASSERT_OK(fi_cntr_set(srv_c.recv, 5));
	return NULL;
}

static void *fail_later(void *arg)
{
	sleep_ms(100);
	ASSERT_OK(fi_cntr_adderr(srv_c.recv, 1));
	return NULL;
}

static int woken_by_the_application(void)
{
	pthread_t thread;
	uint64_t start;

	open_all((struct setup){ .no_cq = true, .threading = FI_THREAD_SAFE });
	ASSERT_OK(pthread_create(&thread, NULL, set_later, NULL));
	start = now_us();
	ASSERT_OK(fi_cntr_wait(srv_c.recv, 5, -1));
	ASSERT_LE(now_us() - start, (uint64_t)slow_ms(1000) * 1000);
	ASSERT_OK(pthread_join(thread, NULL));
	ASSERT_OK(pthread_create(&thread, NULL, fail_later, NULL));
	ASSERT_EQ(fi_cntr_wait(srv_c.recv, 6, -1), -FI_EAVAIL);
	ASSERT_OK(pthread_join(thread, NULL));
	return close_all();
}

/* A signal does not end the wait: there is nothing to do before it is over. */
static int wait_goes_on_after_a_signal(void)
{
	uint64_t start;

	open_all((struct setup){ .no_cq = true });
	start = now_us();
	interrupt_in(50);
	ASSERT_EQ(fi_cntr_wait(srv_c.recv, 1, 300), -FI_ETIMEDOUT);
	ASSERT_GE(now_us() - start, 300000);
	return close_all();
}

/* poll(2) on the descriptor, as fi_trywait(3) has it. */
static int by_descriptor(void)
{
	struct fid *fids[1];
	struct pollfd pfd = { .events = POLLIN };
	pthread_t thread;
	uint64_t end;
	int ret = 0;

	wait_obj = FI_WAIT_FD;
	open_all((struct setup){ .no_cq = true, .threading = FI_THREAD_SAFE });
	ASSERT_OK(fi_control(&srv_c.recv->fid, FI_GETWAIT, &pfd.fd));
	fids[0] = &srv_c.recv->fid;
	ASSERT_OK(fi_trywait(srv.fabric, fids, 1));
	/* Credits may wake who waits, as anything may that is not counted. */
	if (!has_credits(&srv))
		ASSERT_EQ(poll(&pfd, 1, 50), 0);
	post_recv(&srv, &rx, 0, LEN, NULL);
	ASSERT_OK(pthread_create(&thread, NULL, send_later, NULL));
	end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	while (!fi_cntr_read(srv_c.recv) && now_us() < end) {
		ret = fi_trywait(srv.fabric, fids, 1);
		if (!ret)
			ASSERT_GE(poll(&pfd, 1, slow_ms(5000)), 0);
		else
			ASSERT_EQ(ret, -FI_EAGAIN);
	}
	ASSERT_EQ(fi_cntr_read(srv_c.recv), 1);
	/* Once, that there is news; then there is none. */
	ASSERT_EQ(fi_trywait(srv.fabric, fids, 1), -FI_EAGAIN);
	ASSERT_OK(fi_trywait(srv.fabric, fids, 1));
	ASSERT_OK(pthread_join(thread, NULL));
	return close_all();
}

/* ---- refusals ---- */

static int what_is_refused(void)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *cntr, *of_srv;
	int fd;

	make_pair(&srv, &cli, NULL);
	attr.events = (enum fi_cntr_events)99;
	ASSERT_EQ(fi_cntr_open(cli.domain, &attr, &cntr, NULL), -FI_ENOSYS);
	attr.events = FI_CNTR_EVENTS_COMP;
	attr.wait_obj = FI_WAIT_SET; /* of which there is none */
	ASSERT_EQ(fi_cntr_open(cli.domain, &attr, &cntr, NULL), -FI_EINVAL);
	attr.wait_obj = FI_WAIT_MUTEX_COND;
	ASSERT_EQ(fi_cntr_open(cli.domain, &attr, &cntr, NULL), -FI_ENOSYS);
	attr.wait_obj = FI_WAIT_NONE;
	attr.flags = 1ull << 40;
	ASSERT_EQ(fi_cntr_open(cli.domain, &attr, &cntr, NULL), -FI_EBADFLAGS);
	attr.flags = 0;
	ASSERT_OK(fi_cntr_open(cli.domain, &attr, &cntr, NULL));
	ASSERT_OK(fi_cntr_open(srv.domain, &attr, &of_srv, NULL));
	/* Too late, once the endpoint is enabled. */
	ASSERT_EQ(fi_ep_bind(cli.ep, &cntr->fid, FI_SEND), -FI_EOPBADSTATE);
	ASSERT_EQ(fi_control(&cntr->fid, FI_GETWAIT, &fd), -FI_ENODATA);
	ASSERT_EQ(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
	close_ep(&cli);
	ASSERT_OK(fi_endpoint(cli.domain, cli.info, &cli.ep, NULL));
	ASSERT_EQ(fi_ep_bind(cli.ep, &cntr->fid, 0), -FI_EBADFLAGS);
	ASSERT_EQ(fi_ep_bind(cli.ep, &cntr->fid, FI_TAGGED), -FI_EBADFLAGS);
	ASSERT_EQ(fi_ep_bind(cli.ep, &of_srv->fid, FI_SEND), -FI_EINVAL);
	ASSERT_OK(fi_ep_bind(cli.ep, &cntr->fid, FI_SEND | FI_WRITE));
	ASSERT_EQ(fi_ep_bind(cli.ep, &cntr->fid, FI_WRITE), -FI_EINVAL);
	/* Receives would have nowhere to go. */
	ASSERT_OK(fi_ep_bind(cli.ep, &cli.evq->eq->fid, 0));
	ASSERT_EQ(fi_enable(cli.ep), -FI_ENOCQ);
	close_ep(&cli);
	close_ep(&srv);
	ASSERT_OK(fi_close(&cntr->fid));
	ASSERT_OK(fi_close(&of_srv->fid));
	close_pair(&srv, &cli);
	return PASSED;
}

static const struct test_case cases[] = {
	CASE(no_queue_at_all),
	CASE(silent_queue),
	CASE(queue_that_is_read_later),
	CASE(queue_that_is_read_first),
	CASE(writes_with_data),
	CASE(set_and_add),
	CASE(failed_and_flushed),
	CASE(errors_beside_a_queue),
	CASE(wait_without_queue),
	CASE(wait_beside_a_queue),
	CASE(wait_beside_one_that_only_polls),
	CASE(woken_by_the_application),
	CASE(wait_goes_on_after_a_signal),
	CASE(by_descriptor),
	CASE(what_is_refused),
	{ NULL, NULL, 0 },
};

int main(int argc, char **argv)
{
	return run_cases(argc, argv, cases);
}
