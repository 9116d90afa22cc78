/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Messages: every send and receive call, sizes around every limit, immediate
 * data. The data is always verified. Messages that do not fit are in
 * truncation.c.
 */
#include "pair.h"

enum { GUARD = 64 };

static void open_all(size_t len)
{
	make_pair(&srv, &cli, NULL);
	buf_open(&cli, &tx, len, FI_SEND);
	buf_open(&srv, &rx, len + GUARD, FI_RECV);
}

/* What the receiver must have got: len bytes of the seed and not one more. */
static void check_received(size_t len, uint32_t seed, uint64_t extra_flags,
			   uint64_t data)
{
	struct comp c;

	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG | extra_flags, &c);
	ASSERT_EQ(c.len, len);
	if (extra_flags & FI_REMOTE_CQ_DATA)
		ASSERT_EQ(c.data, data);
	ASSERT_FILLED(rx.p, len, seed);
	ASSERT_BYTES(rx.p + len, GUARD, 0xee);
}

static void arm_recv(size_t len)
{
	memset(rx.p, 0xee, len + GUARD);
	post_recv(&srv, &rx, 0, len, &rx);
}

static void one_send(size_t len, uint32_t seed)
{
	fill(tx.p, len, seed);
	arm_recv(len);
	post_send(&cli, &tx, 0, len, &tx);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	check_received(len, seed, 0, 0);
}

static int sizes(void)
{
	size_t inject;
	size_t list[] = { 0, 1, 2, 3, 7, 8, 63, 64, 65, 4095, 4096, 4097,
			  65535, 65536, 65537, 1 << 20, 0, 0, 0 };

	open_all(1 << 20);
	inject = cli.info->tx_attr->inject_size;
	list[16] = inject ? inject - 1 : 0;
	list[17] = inject;
	list[18] = inject + 1;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		one_send(list[i], (uint32_t)i);
	return pair_close_quiet();
}

static int big(void)
{
	size_t len = 16 << 20;

	open_all(len);
	if (cli.info->ep_attr->max_msg_size < len)
		len = cli.info->ep_attr->max_msg_size;
	one_send(len, 5);
	one_send(len - 1, 6);
	return pair_close_quiet();
}

/* Both directions at once, several in flight. */
static int duplex(void)
{
	enum { N = 16, LEN = 32768 };
	struct buf a;
	struct buf b;
	struct comp c;
	int got = 0;

	make_pair(&srv, &cli, NULL);
	buf_open(&cli, &a, 2 * N * LEN, FI_SEND | FI_RECV);
	buf_open(&srv, &b, 2 * N * LEN, FI_SEND | FI_RECV);
	fill(a.p, N * LEN, 1);
	fill(b.p, N * LEN, 2);
	for (size_t i = 0; i < N; i++) {
		post_recv(&cli, &a, (N + i) * LEN, LEN, &a);
		post_recv(&srv, &b, (N + i) * LEN, LEN, &b);
	}
	for (size_t i = 0; i < N; i++) {
		post_send(&cli, &a, i * LEN, LEN, NULL);
		post_send(&srv, &b, i * LEN, LEN, NULL);
	}
	for (uint64_t end = now_us() + 5000000; got < 4 * N && now_us() < end;)
		for (int side = 0; side < 2; side++)
			if (poll_comp(side ? srv.cq : cli.cq, &c)) {
				ASSERT_EQ(c.err, 0);
				got++;
			}
	ASSERT_EQ(got, 4 * N);
	ASSERT_FILLED(a.p + N * LEN, N * LEN, 2);
	ASSERT_FILLED(b.p + N * LEN, N * LEN, 1);
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&a);
	buf_close(&b);
	close_pair(&srv, &cli);
	return PASSED;
}

/* iov entries of uneven sizes over [0, len) of b; returns the count. */
static size_t split(const struct buf *b, size_t len, struct iovec *iov,
		    void **desc, size_t limit)
{
	size_t off = 0;

	for (size_t i = 0; i < limit; i++) {
		iov[i].iov_base = b->p + off;
		iov[i].iov_len = i + 1 == limit ? len - off :
						  len / limit + (i & 1 ? 3 : 0);
		desc[i] = b->desc;
		off += iov[i].iov_len;
	}
	return limit;
}

static int vectors(void)
{
	enum { MAX = 16, LEN = 10001 };
	struct iovec siov[MAX];
	struct iovec riov[MAX];
	void *sdesc[MAX];
	void *rdesc[MAX];
	size_t smax;
	size_t rmax;

	open_all(LEN);
	smax = min_size(cli.info->tx_attr->iov_limit, MAX);
	rmax = min_size(srv.info->rx_attr->iov_limit, MAX);
	for (size_t s = 1; s <= smax; s++)
		for (size_t r = 1; r <= rmax; r++) {
			uint32_t seed = (uint32_t)(s * 16 + r);

			fill(tx.p, LEN, seed);
			memset(rx.p, 0xee, LEN + GUARD);
			split(&rx, LEN, riov, rdesc, r);
			ASSERT_OK(fi_recvv(srv.ep, riov, rdesc, r, 0, &rx));
			split(&tx, LEN, siov, sdesc, s);
			ASSERT_TAKEN(fi_sendv(cli.ep, siov, sdesc, s, 0, &tx));
			expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
			check_received(LEN, seed, 0, 0);
		}
	return pair_close_quiet();
}

/* An empty entry is legal anywhere in a vector. */
static int empty_iov_entry(void)
{
	struct iovec iov[3];
	void *desc[3];

	open_all(300);
	if (cli.info->tx_attr->iov_limit < 3) {
		pair_close_quiet();
		return skip("iov_limit is below 3");
	}
	for (int empty = 0; empty < 3; empty++) {
		size_t off = 0;

		fill(tx.p, 200, 9);
		arm_recv(200);
		for (int i = 0; i < 3; i++) {
			iov[i].iov_base = tx.p + off;
			iov[i].iov_len = i == empty ? 0 : 100;
			desc[i] = tx.desc;
			off += iov[i].iov_len;
		}
		ASSERT_TAKEN(fi_sendv(cli.ep, iov, desc, 3, 0, &tx));
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
		check_received(200, 9, 0, 0);
	}
	return pair_close_quiet();
}

static void send_msg(size_t len, size_t cnt, uint64_t flags, uint64_t data,
		     void **use_desc)
{
	struct iovec iov[4];
	void *desc[4];
	struct fi_msg msg = {
		.msg_iov = iov,
		.desc = use_desc ? use_desc : desc,
		.iov_count = split(&tx, len, iov, desc, cnt),
		.context = &tx,
		.data = data,
	};

	ASSERT_TAKEN(fi_sendmsg(cli.ep, &msg, flags));
}

static int sendmsg_recvmsg(void)
{
	struct iovec iov;
	void *desc;
	struct fi_msg msg = {
		.msg_iov = &iov, .desc = &desc, .iov_count = 1, .context = &rx,
	};

	open_all(5000);
	for (uint32_t seed = 1; seed <= 2; seed++) {
		fill(tx.p, 5000, seed);
		memset(rx.p, 0xee, 5000 + GUARD);
		iov.iov_base = rx.p;
		iov.iov_len = 5000;
		desc = rx.desc;
		ASSERT_OK(fi_recvmsg(srv.ep, &msg, FI_COMPLETION));
		send_msg(5000, seed, FI_COMPLETION, 0, NULL);
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
		check_received(5000, seed, 0, 0);
	}
	return pair_close_quiet();
}

/* Many chained with FI_MORE; the last one without. */
static int more(void)
{
	enum { N = 8, LEN = 100 };
	struct comp c;

	open_all(N * LEN);
	fill(tx.p, N * LEN, 3);
	for (size_t i = 0; i < N; i++)
		post_recv(&srv, &rx, i * LEN, LEN, &rx);
	for (size_t i = 0; i < N; i++) {
		struct iovec iov = { tx.p + i * LEN, LEN };
		struct fi_msg msg = {
			.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
			.context = &tx,
		};

		ASSERT_TAKEN(fi_sendmsg(cli.ep, &msg,
					i + 1 < N ? FI_MORE | FI_COMPLETION
						  : FI_COMPLETION));
	}
	for (size_t i = 0; i < N; i++) {
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, &c);
		ASSERT_EQ(c.len, LEN);
	}
	ASSERT_FILLED(rx.p, N * LEN, 3);
	return pair_close_quiet();
}

/* fi_inject: buffer free at once, no completion, nothing to register. */
static int inject(void)
{
	uint8_t *mem;
	size_t max;

	open_all(65536);
	max = cli.info->tx_attr->inject_size;
	ASSERT_CMP(max, >, 0);
	mem = malloc(max + 1);
	ASSERT(mem);
	for (size_t len = 0; len <= max; len = len < 8 ? len + 1 : len * 2) {
		fill(mem, len, (uint32_t)len);
		arm_recv(len);
		ASSERT_TAKEN(fi_inject(cli.ep, mem, len, 0));
		memset(mem, 0xdd, max + 1);
		check_received(len, (uint32_t)len, 0, 0);
	}
	fill(mem, max, 77);
	arm_recv(max);
	ASSERT_TAKEN(fi_inject(cli.ep, mem, max, 0));
	memset(mem, 0xdd, max + 1);
	check_received(max, 77, 0, 0);
	free(mem);
	expect_no_comp(cli.cq, 50);
	return pair_close_quiet();
}

/* One byte more is refused at once and for good: never -FI_EAGAIN. */
static int inject_too_long(void)
{
	uint8_t *mem;
	size_t max;
	struct iovec iov;
	void *desc = NULL;
	struct fi_msg msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1 };
	ssize_t ret;

	open_all(4096);
	max = cli.info->tx_attr->inject_size;
	mem = calloc(1, max + 1);
	ASSERT(mem);
	if (!is_vrc()) {
		free(mem);
		pair_close_quiet();
		return skip("%s does not check this in every build",
			    provider());
	}
	ret = fi_inject(cli.ep, mem, max + 1, 0);
	ASSERT_CMP(ret, <, 0);
	ASSERT_NE(ret, -FI_EAGAIN);
	iov.iov_base = mem;
	iov.iov_len = max + 1;
	ret = fi_sendmsg(cli.ep, &msg, FI_INJECT);
	ASSERT_CMP(ret, <, 0);
	ASSERT_NE(ret, -FI_EAGAIN);
	free(mem);
	one_send(100, 4); /* no harm done */
	return pair_close_quiet();
}

/* FI_INJECT on fi_sendmsg: completes, buffer free, NULL desc is fine. */
static int inject_flag(void)
{
	void *none[4] = { NULL, NULL, NULL, NULL };
	size_t len;

	open_all(4096);
	len = min_size(cli.info->tx_attr->inject_size, 4096);
	for (size_t cnt = 1; cnt <= min_size(cli.info->tx_attr->iov_limit, 4);
	     cnt++) {
		fill(tx.p, len, (uint32_t)cnt);
		arm_recv(len);
		send_msg(len, cnt, FI_INJECT | FI_COMPLETION, 0, none);
		memset(tx.p, 0xdd, len);
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
		check_received(len, (uint32_t)cnt, 0, 0);
	}
	return pair_close_quiet();
}

static int cq_data(void)
{
	uint64_t mask;
	uint64_t data;

	open_all(4096);
	if (!has_cq_data(&cli)) {
		pair_close_quiet();
		return skip("no immediate data on this device");
	}
	mask = cli.info->domain_attr->cq_data_size >= 8 ?
		UINT64_MAX :
		(1ULL << (8 * cli.info->domain_attr->cq_data_size)) - 1;
	data = 0x8123456789abcdefULL & mask;

	fill(tx.p, 100, 1);
	arm_recv(100);
	ASSERT_TAKEN(fi_senddata(cli.ep, tx.p, 100, tx.desc, data, 0, &tx));
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	check_received(100, 1, FI_REMOTE_CQ_DATA, data);

	arm_recv(0);
	ASSERT_TAKEN(fi_senddata(cli.ep, NULL, 0, NULL, mask, 0, &tx));
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	check_received(0, 0, FI_REMOTE_CQ_DATA, mask);

	arm_recv(100);
	send_msg(100, 1, FI_REMOTE_CQ_DATA | FI_COMPLETION, 0, NULL);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	check_received(100, 1, FI_REMOTE_CQ_DATA, 0);
	return pair_close_quiet();
}

/* Data with more bytes than the peer would get is refused, not cut; but not where it
 * means nothing. */
static int too_much_data(void)
{
	struct iovec iov = { NULL, 8 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };
	size_t size;

	open_all(4096);
	size = cli.info->domain_attr->cq_data_size;
	if (!size || size >= 8) {
		pair_close_quiet();
		return skip("any data of 64 bits, or none");
	}
	iov.iov_base = tx.p;
	msg.desc = &tx.desc;
	msg.context = &tx;
	arm_recv(8);
	for (size_t bit = 8 * size; bit < 64; bit++) {
		msg.data = 1ULL << bit | 1;
		ASSERT_EQ(fi_senddata(cli.ep, tx.p, 8, tx.desc, msg.data, 0,
				      &tx), -FI_EINVAL);
		ASSERT_EQ(fi_injectdata(cli.ep, tx.p, 8, msg.data, 0),
			  -FI_EINVAL);
		ASSERT_EQ(fi_sendmsg(cli.ep, &msg, FI_REMOTE_CQ_DATA |
							   FI_COMPLETION),
			  -FI_EINVAL);
	}
	fill(tx.p, 8, 1);
	ASSERT_TAKEN(fi_sendmsg(cli.ep, &msg, FI_COMPLETION));
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	check_received(8, 1, 0, 0);
	return pair_close_quiet();
}

/* After fi_injectdata, a plain inject or send carries no data. */
static int stale_data(void)
{
	open_all(4096);
	if (!has_cq_data(&cli)) {
		pair_close_quiet();
		return skip("no immediate data on this device");
	}
	for (int round = 0; round < 3; round++) {
		fill(tx.p, 8, 1);
		arm_recv(8);
		ASSERT_TAKEN(fi_injectdata(cli.ep, tx.p, 8, 0x1234, 0));
		check_received(8, 1, FI_REMOTE_CQ_DATA, 0x1234);

		arm_recv(8);
		ASSERT_TAKEN(fi_inject(cli.ep, tx.p, 8, 0));
		check_received(8, 1, 0, 0);

		one_send(8, 2);
		arm_recv(8);
		send_msg(8, 1, FI_COMPLETION, 0x777, NULL);
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
		check_received(8, 2, 0, 0);
	}
	expect_no_comp(cli.cq, 20);
	return pair_close_quiet();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(sizes), CASE(big), CASE(duplex), CASE(vectors),
		CASE(empty_iov_entry), CASE(sendmsg_recvmsg), CASE(more),
		CASE(inject), CASE(inject_too_long), CASE(inject_flag),
		CASE(cq_data), CASE(too_much_data), CASE(stale_data),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
