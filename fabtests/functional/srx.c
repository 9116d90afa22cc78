/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shared receive contexts: whatever is posted to one serves every endpoint that
 * is bound to it, once; a completion comes to the queue of the endpoint that got
 * the message; an endpoint that ends takes nothing with it. And shared transmit
 * contexts, which endpoints can be bound to.
 */
#include <pthread.h>

#include "common.h"

enum { MAX_CONNS = 64, LEN = 256, DEPTH = 32 };

static struct end srv;
static struct end cli;
static struct end s[MAX_CONNS];
static struct end c[MAX_CONNS];
static int conns;
static struct buf tx;
static struct buf rx;
static struct fid_ep *srx;

static void bind_srx(struct end *e)
{
	ASSERT_OK(fi_ep_bind(e->ep, &srx->fid, 0));
}

static const struct setup plain_srv = {
	.tx_size = 16, .rx_size = DEPTH, .shared_rx = true, .bind = bind_srx,
};
static const struct setup plain_cli = { .tx_size = 64, .rx_size = 16 };

/* fi_rx_size_left is deprecated, and there. */
static ssize_t rx_left(void)
{
	return srx->ops->rx_size_left(srx);
}

/* False if the device has no such context. */
static bool open_ends(const struct setup *srv_how)
{
	struct fi_info *info;
	int ret;

	info = try_getinfo(srv_how, NULL, FI_SOURCE, &ret);
	if (!info) {
		ASSERT_EQ(ret, -FI_ENODATA);
		return false;
	}
	fi_freeinfo(info);
	open_passive(&srv, srv_how);
	listen_start(&srv);
	open_active(&cli, &plain_cli, &srv);
	ASSERT_EQ(srv.info->ep_attr->rx_ctx_cnt, FI_SHARED_CONTEXT);
	ASSERT_OK(fi_srx_context(srv.domain, srv.info->rx_attr, &srx, &srv));
	buf_open(&cli, &tx, MAX_CONNS * LEN, ALL_ACCESS);
	buf_open(&srv, &rx, MAX_CONNS * LEN, ALL_ACCESS);
	conns = 0;
	return true;
}

static int no_srx(void)
{
	return skip("no shared receive context on this device");
}

static void connect_one(void)
{
	int i = conns++;

	open_shared(&c[i], &cli, &srv);
	if (!s[i].domain)
		open_shared(&s[i], &srv, NULL);
	connect_start(&c[i], NULL, 0);
	accept_start(&srv, &s[i], NULL, 0, NULL);
	wait_connected(&s[i], &c[i], NULL);
}

static bool open_all(const struct setup *srv_how, int n)
{
	if (!open_ends(srv_how))
		return false;
	while (conns < n)
		connect_one();
	return true;
}

static int close_all(void)
{
	for (int i = 0; i < conns; i++) {
		close_end(&c[i]);
		close_end(&s[i]);
	}
	ASSERT_OK(fi_close(&srx->fid));
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

static void post_shared(size_t i)
{
	ASSERT_OK(fi_recv(srx, rx.p + i * LEN, LEN, rx.desc, 0,
			  rx.p + i * LEN));
}

/* Connection i's message number n: who sent it can be read in it. */
static void send_one(int i, uint32_t n)
{
	uint8_t *p = tx.p + (size_t)i * LEN;

	fill(p, LEN, n * MAX_CONNS + (uint32_t)i);
	memcpy(p, &(uint32_t[]){ (uint32_t)i, n }, 8);
	post_send(&c[i], &tx, (size_t)i * LEN, LEN, &c[i]);
}

/* What has come into the receive of that completion. */
static int sender_of(const struct comp *comp, uint32_t *n)
{
	const uint8_t *p = comp->context;
	uint8_t want[LEN];
	uint32_t word[2];

	ASSERT_EQ(comp->err, 0);
	ASSERT_EQ(op_bits(comp->flags), FI_RECV | FI_MSG);
	ASSERT_EQ(comp->len, LEN);
	ASSERT(p >= rx.p && p < rx.p + rx.len && (p - rx.p) % LEN == 0);
	memcpy(word, p, 8);
	ASSERT_CMP(word[0], <, MAX_CONNS);
	fill(want, LEN, word[1] * MAX_CONNS + word[0]);
	ASSERT(!memcmp(want + 8, p + 8, LEN - 8));
	*n = word[1];
	return (int)word[0];
}

/* Twice as many senders as receives, which are posted anew as they complete:
 * nobody starves, each sender's messages come in order. */
static int all_to_one(void)
{
	int rounds = scaled(50);
	uint32_t next[MAX_CONNS] = { 0 };
	uint32_t sent[MAX_CONNS] = { 0 };
	uint32_t done[MAX_CONNS] = { 0 };
	int got = 0;
	struct comp comp;

	if (!open_all(&plain_srv, MAX_CONNS))
		return no_srx();
	for (size_t i = 0; i < DEPTH; i++)
		post_shared(i);
	for (int i = 0; i < MAX_CONNS; i++)
		send_one(i, sent[i]++);
	while (got < MAX_CONNS * rounds) {
		uint32_t n;
		int from;

		expect_comp(srv.cq, &comp);
		from = sender_of(&comp, &n);
		ASSERT_EQ(n, next[from]);
		next[from]++;
		got++;
		post_shared((size_t)((uint8_t *)comp.context - rx.p) / LEN);
		while (done[from] < sent[from]) {
			expect_comp(cli.cq, &comp);
			ASSERT_EQ(comp.err, 0);
			done[(struct end *)comp.context - c]++;
		}
		if (sent[from] < (uint32_t)rounds)
			send_one(from, sent[from]++);
	}
	expect_no_comp(srv.cq, 20);
	return close_all();
}

/* Nothing is posted when the messages come. */
static int late_receives(void)
{
	bool seen[8] = { false };
	struct comp comp;
	uint32_t n;

	if (!open_all(&plain_srv, 8))
		return no_srx();
	for (int i = 0; i < 8; i++)
		send_one(i, 7);
	expect_no_comp(srv.cq, 50);
	for (size_t i = 0; i < 8; i++)
		post_shared(i);
	for (int i = 0; i < 8; i++) {
		int from;

		expect_comp(srv.cq, &comp);
		from = sender_of(&comp, &n);
		ASSERT(from < 8 && !seen[from]);
		seen[from] = true;
	}
	for (int i = 0; i < 8; i++)
		expect_no_event(&s[i], 0);
	return close_all();
}

/* As many as the context's size and no more; a completion makes room. */
static int depth(void)
{
	struct comp comp;

	if (!open_all(&plain_srv, 2))
		return no_srx();
	ASSERT_EQ(rx_left(), DEPTH);
	for (size_t i = 0; i < DEPTH; i++)
		post_shared(i);
	ASSERT_EQ(fi_recv(srx, rx.p, LEN, rx.desc, 0, &rx), -FI_EAGAIN);
	ASSERT_EQ(rx_left(), 0);
	send_one(0, 0);
	send_one(1, 0);
	expect_comp(srv.cq, &comp);
	expect_comp(srv.cq, &comp);
	ASSERT_EQ(rx_left(), 2);
	post_shared(0);
	post_shared(1);
	ASSERT_EQ(fi_recv(srx, rx.p, LEN, rx.desc, 0, &rx), -FI_EAGAIN);
	return close_all();
}

/* Of endpoints on two queues, each gets what came to its own. */
static int two_queues(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA };
	struct fid_cq *cq;
	struct comp comp;
	uint32_t n;

	if (!open_ends(&plain_srv))
		return no_srx();
	connect_one();
	ASSERT_OK(fi_cq_open(srv.domain, &attr, &cq, NULL));
	open_shared(&s[1], &srv, NULL);
	s[1].cq = cq;
	s[1].tx_cq = cq;
	connect_one();
	for (size_t i = 0; i < DEPTH; i++)
		post_shared(i);
	for (uint32_t k = 0; k < DEPTH; k++)
		send_one((int)(k & 1), k);
	for (int k = 0; k < DEPTH / 2; k++) {
		expect_comp(srv.cq, &comp);
		ASSERT_EQ(sender_of(&comp, &n), 0);
		expect_comp(cq, &comp);
		ASSERT_EQ(sender_of(&comp, &n), 1);
	}
	expect_no_comp(srv.cq, 10);
	expect_no_comp(cq, 0);
	close_end(&c[1]);
	close_end(&s[1]);
	conns = 1;
	ASSERT_OK(fi_close(&cq->fid));
	return close_all();
}

/* One connection ends, with messages unread: those can be read, and all other
 * receives serve who is left. */
static int one_ends(void)
{
	struct comp comp;
	int got = 0;
	uint32_t n;

	if (!open_all(&plain_srv, 3))
		return no_srx();
	for (size_t i = 0; i < DEPTH; i++)
		post_shared(i);
	for (uint32_t k = 0; k < 3; k++) {
		send_one(0, k);
		expect_ok(cli.cq, &c[0], FI_SEND | FI_MSG, NULL);
	}
	/* One end by the peer, one by ourselves. */
	close_ep(&c[0]);
	expect_event(&s[0], FI_SHUTDOWN, NULL);
	close_ep(&s[0]);
	close_ep(&s[1]);
	for (uint32_t k = 0; k < 3; k++) {
		expect_comp(srv.cq, &comp);
		ASSERT_EQ(sender_of(&comp, &n), 0);
		ASSERT_EQ(n, k);
	}
	expect_no_comp(srv.cq, 20);
	for (uint32_t k = 3; k < DEPTH; k++) {
		send_one(2, k);
		expect_ok(cli.cq, &c[2], FI_SEND | FI_MSG, NULL);
		got++;
	}
	for (; got; got--) {
		expect_comp(srv.cq, &comp);
		ASSERT_EQ(sender_of(&comp, &n), 2);
	}
	ASSERT_EQ(rx_left(), DEPTH);
	return close_all();
}

/* Too long for its receive: that one fails, once, and the others stay. */
static int one_breaks(void)
{
	struct comp comp;
	uint32_t n;

	if (!is_vrc())
		return skip("%s keeps the connection", provider());
	if (!open_all(&plain_srv, 2))
		return no_srx();
	ASSERT_OK(fi_recv(srx, rx.p, 8, rx.desc, 0, rx.p));
	for (size_t i = 1; i < DEPTH; i++)
		post_shared(i);
	send_one(0, 0);
	expect_comp(srv.cq, &comp);
	ASSERT_CMP(comp.err, >, 0);
	ASSERT_NE(comp.err, FI_ECANCELED);
	ASSERT(comp.context == rx.p);
	expect_event(&s[0], FI_SHUTDOWN, NULL);
	expect_no_comp(srv.cq, 20);
	for (uint32_t k = 1; k < DEPTH; k++) {
		send_one(1, k);
		expect_comp(srv.cq, &comp);
		ASSERT_EQ(sender_of(&comp, &n), 1);
	}
	return close_all();
}

/* What cannot be, and that it is said. */
static int refused(void)
{
	struct fid_domain *domain;
	struct fid_ep *other, *ep;
	struct fi_rx_attr attr = { .size = SIZE_MAX / 2 };

	if (!open_all(&plain_srv, 1))
		return no_srx();
	ASSERT_EQ(fi_close(&srx->fid), -FI_EBUSY);
	/* Receives are the context's. */
	ASSERT_CMP(fi_recv(s[0].ep, rx.p, LEN, rx.desc, 0, &rx), <, 0);
	if (!is_vrc())
		return close_all();
	ASSERT_EQ(fi_send(srx, rx.p, LEN, rx.desc, 0, &rx), -FI_ENOSYS);
	ASSERT_EQ(fi_read(srx, rx.p, LEN, rx.desc, 0, 0, 0, &rx), -FI_ENOSYS);
	ASSERT_EQ(fi_srx_context(srv.domain, &attr, &other, NULL), -FI_EINVAL);
	ASSERT_EQ(fi_recv(srx, rx.p, LEN, NULL, 0, &rx), -FI_EINVAL);
	/* Another domain's. */
	ASSERT_OK(fi_domain(srv.fabric, srv.info, &domain, NULL));
	ASSERT_OK(fi_endpoint(domain, srv.info, &ep, NULL));
	ASSERT_EQ(fi_ep_bind(ep, &srx->fid, 0), -FI_EINVAL);
	ASSERT_OK(fi_ep_bind(ep, &srv.evq->eq->fid, 0));
	/* One was promised. */
	ASSERT_CMP(fi_enable(ep), <, 0);
	ASSERT_OK(fi_close(&ep->fid));
	ASSERT_OK(fi_close(&domain->fid));
	return close_all();
}

/* FI_SELECTIVE_COMPLETION is the endpoint's, not the context's. */
static int selective(void)
{
	struct iovec iov;
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };
	struct comp comp;
	uint32_t n;

	if (!open_ends(&plain_srv))
		return no_srx();
	connect_one();
	open_shared(&s[1], &srv, NULL);
	s[1].how.rx_bind = FI_SELECTIVE_COMPLETION;
	connect_one();
	post_shared(0);
	send_one(0, 0);
	expect_comp(srv.cq, &comp);
	ASSERT_EQ(sender_of(&comp, &n), 0);
	post_shared(1);
	send_one(1, 1);
	expect_no_comp(srv.cq, 20);
	iov = (struct iovec){ rx.p, LEN };
	msg.desc = &rx.desc;
	msg.context = rx.p;
	ASSERT_OK(fi_recvmsg(srx, &msg, FI_COMPLETION));
	send_one(1, 2);
	expect_comp(srv.cq, &comp);
	ASSERT_EQ(sender_of(&comp, &n), 1);
	ASSERT_EQ(n, 2);
	ASSERT_EQ(rx_left(), DEPTH);
	return close_all();
}

static struct fid_cntr *cntr;

static void bind_cntr(struct end *e)
{
	bind_srx(e);
	ASSERT_OK(fi_ep_bind(e->ep, &cntr->fid, FI_RECV));
}

/* An endpoint's counter counts what came to it. */
static int counters(void)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct comp comp;

	if (!open_ends(&plain_srv))
		return no_srx();
	connect_one();
	ASSERT_OK(fi_cntr_open(srv.domain, &attr, &cntr, NULL));
	open_shared(&s[1], &srv, NULL);
	s[1].how.bind = bind_cntr;
	connect_one();
	for (size_t i = 0; i < DEPTH; i++)
		post_shared(i);
	for (uint32_t k = 0; k < 12; k++)
		send_one(k % 3 ? 0 : 1, k);
	ASSERT_OK(fi_cntr_wait(cntr, 4, slow_ms(5000)));
	for (int k = 0; k < 12; k++)
		expect_comp(srv.cq, &comp);
	ASSERT_EQ(fi_cntr_read(cntr), 4);
	ASSERT_EQ(fi_cntr_readerr(cntr), 0);
	for (int i = 0; i < 2; i++) {
		close_end(&c[i]);
		close_end(&s[i]);
	}
	conns = 0;
	ASSERT_OK(fi_close(&cntr->fid));
	return close_all();
}

/* A write with data takes a receive of the context. */
static int remote_data(void)
{
	struct comp comp;

	if (!open_all(&plain_srv, 2))
		return no_srx();
	if (!has_cq_data(&cli) || !takes_recv(&cli)) {
		close_all();
		return skip("no remote data, or no receive is taken for it");
	}
	post_shared(0);
	ASSERT_TAKEN(fi_writedata(c[1].ep, tx.p, 64, tx.desc, 0xabcd, 0,
				  rx.addr + LEN, rx.key, &c[1]));
	expect_comp(srv.cq, &comp);
	ASSERT_EQ(comp.err, 0);
	ASSERT_EQ(comp.flags, remote_write_flags());
	ASSERT_EQ(comp.data, 0xabcd);
	ASSERT_EQ(rx_left(), DEPTH);
	return close_all();
}

/* Memory that nobody has registered. */
static int unregistered(void)
{
	struct setup how = plain_srv;
	enum { BIG = 65536 };
	uint8_t *from, *to;
	struct comp comp;

	how.no_mr_mode = true;
	how.caps = FI_MSG;
	if (!open_all(&how, 1))
		return no_srx();
	ASSERT(!(srv.info->domain_attr->mr_mode & FI_MR_LOCAL));
	from = malloc(BIG);
	to = calloc(1, BIG);
	ASSERT(from && to);
	fill(from, BIG, 3);
	memcpy(tx.p, from, tx.len < BIG ? tx.len : BIG);
	ASSERT_OK(fi_recv(srx, to, BIG, NULL, 0, to));
	ASSERT_TAKEN(fi_send(c[0].ep, tx.p, tx.len, tx.desc, 0, &c[0]));
	expect_comp(srv.cq, &comp);
	ASSERT_EQ(comp.err, 0);
	ASSERT_EQ(comp.len, tx.len);
	ASSERT(!memcmp(from, to, tx.len));
	/* One that is never used is let go with the context. */
	ASSERT_OK(fi_recv(srx, to, BIG, NULL, 0, to));
	close_all();
	free(from);
	free(to);
	return PASSED;
}

struct reader {
	struct fid_cq *cq;
	int want;
	int got;
	bool seen[DEPTH];
};

/* Reads what comes to one queue and posts each receive anew. */
static void *read_all(void *arg)
{
	struct reader *r = arg;
	uint64_t end = now_us() + (uint64_t)slow_ms(20000) * 1000;
	struct comp comp;
	unsigned int turn = 0;

	while (r->got < r->want && now_us() < end) {
		if (!poll_comp(r->cq, &comp)) {
			relax(&turn);
			continue;
		}
		ASSERT_EQ(comp.err, 0);
		r->got++;
		post_shared((size_t)((uint8_t *)comp.context - rx.p) / LEN);
	}
	return NULL;
}

/* Two threads, each with a queue of its own, share the context. */
static int threads(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA };
	struct setup how = plain_srv;
	int rounds = scaled(5000);
	struct reader r[2] = { { 0 } };
	pthread_t thread[2];
	struct fid_cq *cq;

	how.threading = FI_THREAD_SAFE;
	if (!open_ends(&how))
		return no_srx();
	connect_one();
	ASSERT_OK(fi_cq_open(srv.domain, &attr, &cq, NULL));
	open_shared(&s[1], &srv, NULL);
	s[1].cq = cq;
	s[1].tx_cq = cq;
	connect_one();
	for (size_t i = 0; i < DEPTH; i++)
		post_shared(i);
	r[0] = (struct reader){ .cq = srv.cq, .want = rounds };
	r[1] = (struct reader){ .cq = cq, .want = rounds };
	for (int i = 0; i < 2; i++)
		ASSERT_OK(pthread_create(&thread[i], NULL, read_all, &r[i]));
	for (int k = 0; k < rounds; k++)
		for (int i = 0; i < 2; i++) {
			post_send(&c[i], &tx, 0, LEN, NULL);
			expect_ok(cli.cq, NULL, FI_SEND | FI_MSG, NULL);
		}
	for (int i = 0; i < 2; i++) {
		ASSERT_OK(pthread_join(thread[i], NULL));
		ASSERT_EQ(r[i].got, rounds);
	}
	ASSERT_EQ(rx_left(), 0);
	close_end(&c[1]);
	close_end(&s[1]);
	conns = 1;
	ASSERT_OK(fi_close(&cq->fid));
	return close_all();
}

/* Where messages may not come too early, only for who sees to that. */
static int on_iwarp(void)
{
	struct setup how = plain_srv;
	struct fi_info *info;
	struct comp comp;
	uint32_t n;
	int ret;

	info = try_getinfo(&plain_cli, NULL, FI_SOURCE, &ret);
	ASSERT(info);
	ret = info->ep_attr->protocol;
	fi_freeinfo(info);
	if (ret != FI_PROTO_IWARP)
		return skip("not iWARP");
	info = try_getinfo(&plain_srv, NULL, FI_SOURCE, &ret);
	ASSERT(!info && ret == -FI_ENODATA);
	how.resource_mgmt = FI_RM_DISABLED;
	if (!open_ends(&how))
		return no_srx();
	ASSERT_EQ(srv.info->domain_attr->resource_mgmt, FI_RM_DISABLED);
	connect_one();
	connect_one();
	for (size_t i = 0; i < DEPTH; i++)
		post_shared(i);
	for (uint32_t k = 0; k < DEPTH; k++) {
		send_one((int)(k & 1), k);
		expect_comp(srv.cq, &comp);
		ASSERT_EQ(sender_of(&comp, &n), (int)(k & 1));
		ASSERT_EQ(n, k);
	}
	return close_all();
}

static struct fid_stx *stx;

static void bind_stx(struct end *e)
{
	ASSERT_OK(fi_ep_bind(e->ep, &stx->fid, 0));
}

static int transmit(void)
{
	struct setup how = plain_cli;
	struct fid_ep *ep;
	struct comp comp;

	how.shared_tx = true;
	open_passive(&srv, &plain_cli);
	listen_start(&srv);
	if (!is_vrc()) {
		close_end(&srv);
		return skip("not for %s", provider());
	}
	open_active(&cli, &how, &srv);
	ASSERT_EQ(cli.info->ep_attr->tx_ctx_cnt, FI_SHARED_CONTEXT);
	ASSERT_OK(fi_stx_context(cli.domain, cli.info->tx_attr, &stx, NULL));
	ASSERT_OK(fi_endpoint(cli.domain, cli.info, &ep, NULL));
	ASSERT_OK(fi_ep_bind(ep, &cli.evq->eq->fid, 0));
	ASSERT_CMP(fi_enable(ep), <, 0);
	ASSERT_OK(fi_close(&ep->fid));
	buf_open(&cli, &tx, 2 * LEN, ALL_ACCESS);
	buf_open(&srv, &rx, 2 * LEN, ALL_ACCESS);
	for (int i = 0; i < 2; i++) {
		open_shared(&c[i], &cli, NULL);
		open_shared(&s[i], &srv, NULL);
		c[i].how.bind = bind_stx;
		connect_start(&c[i], NULL, 0);
		accept_start(&srv, &s[i], NULL, 0, NULL);
		wait_connected(&s[i], &c[i], NULL);
	}
	ASSERT_EQ(fi_close(&stx->fid), -FI_EBUSY);
	for (size_t i = 0; i < 2; i++) {
		post_recv(&s[i], &rx, i * LEN, LEN, &s[i]);
		fill(tx.p + i * LEN, LEN, (uint32_t)i);
		post_send(&c[i], &tx, i * LEN, LEN, &c[i]);
	}
	for (size_t i = 0; i < 2; i++)
		expect_comp(srv.cq, &comp);
	for (size_t i = 0; i < 2; i++)
		ASSERT_FILLED(rx.p + i * LEN, LEN, (uint32_t)i);
	for (int i = 0; i < 2; i++) {
		close_end(&c[i]);
		close_end(&s[i]);
	}
	ASSERT_OK(fi_close(&stx->fid));
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(all_to_one), CASE(late_receives), CASE(depth),
		CASE(two_queues), CASE(one_ends), CASE(one_breaks),
		CASE(refused), CASE(selective), CASE(counters),
		CASE(remote_data), CASE(unregistered), CASE(threads),
		CASE(on_iwarp), CASE(transmit), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
