/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a completion says, in each format: context, flags, length, data; of
 * sends, receives, reads, writes and remote writes with data; reading several
 * at once; errors out of band. See fi_cq(3).
 */
#include "common.h"

static struct end srv;
static struct end cli;
static struct buf tx;
static struct buf rx;

enum { LEN = 256, DATA = 0x5aa5 };

/* A completion in any format, with what the format lacks set to all ones. */
static void read_one(struct fid_cq *cq, enum fi_cq_format format,
		     struct fi_cq_tagged_entry *out)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	unsigned int turn = 0;
	ssize_t n;

	memset(out, 0xff, sizeof(*out));
	while ((n = fi_cq_read(cq, out, 1)) == -FI_EAGAIN && now_us() < end) {
		fi_cq_read(cli.cq, NULL, 0);
		fi_cq_read(srv.cq, NULL, 0);
		relax(&turn);
	}
	ASSERT_EQ(n, 1);
	/* The part behind the format's structure is not the provider's. */
	switch (format) {
	case FI_CQ_FORMAT_CONTEXT:
		ASSERT_BYTES(&out->flags, sizeof(*out) - 8, 0xff);
		break;
	case FI_CQ_FORMAT_MSG:
		ASSERT_BYTES(&out->buf, sizeof(*out) - 24, 0xff);
		break;
	case FI_CQ_FORMAT_DATA:
		ASSERT_BYTES(&out->tag, sizeof(*out) - 40, 0xff);
		break;
	default:
		break;
	}
}

static void check_one(struct fid_cq *cq, enum fi_cq_format format,
		      const void *context, uint64_t flags, size_t len)
{
	struct fi_cq_tagged_entry e;

	read_one(cq, format, &e);
	if (context)
		ASSERT(e.op_context == context);
	if (format == FI_CQ_FORMAT_CONTEXT)
		return;
	ASSERT_EQ(is_vrc() ? e.flags : op_bits(e.flags), flags);
	if (flags & FI_RECV)
		ASSERT_EQ(e.len, len);
	if (format != FI_CQ_FORMAT_MSG && (flags & FI_REMOTE_CQ_DATA))
		ASSERT_EQ(e.data, DATA);
}

static void one_message(enum fi_cq_format format, bool with_data)
{
	uint64_t flags = FI_RECV | FI_MSG;

	post_recv(&srv, &rx, 0, LEN, &rx);
	if (with_data) {
		flags |= FI_REMOTE_CQ_DATA;
		ASSERT_TAKEN(
			fi_senddata(cli.ep, tx.p, 100, tx.desc, DATA, 0, &tx));
	} else {
		post_send(&cli, &tx, 0, 100, &tx);
	}
	check_one(cli.cq, format, &tx, FI_SEND | FI_MSG, 0);
	check_one(srv.cq, format, &rx, flags, 100);
}

static void one_write_with_data(enum fi_cq_format format)
{
	uint64_t flags = remote_write_flags();

	if (takes_recv(&srv))
		post_recv(&srv, &rx, 0, 0, &rx);
	ASSERT_TAKEN(fi_writedata(cli.ep, tx.p, 100, tx.desc, DATA, 0, rx.addr,
				  rx.key, &tx));
	check_one(cli.cq, format, &tx, FI_RMA | FI_WRITE, 0);
	/* The context is that of the receive, where it took one. */
	check_one(srv.cq, format, takes_recv(&srv) ? &rx : NULL, flags, 100);
}

static int one_format(enum fi_cq_format format)
{
	struct setup how = { .format = format };

	make_pair(&srv, &cli, &how);
	buf_open(&cli, &tx, LEN, ALL_ACCESS);
	buf_open(&srv, &rx, LEN, ALL_ACCESS);
	for (int round = 0; round < 3; round++) {
		one_message(format, false);
		ASSERT_TAKEN(fi_write(cli.ep, tx.p, 64, tx.desc, 0, rx.addr,
				      rx.key, &tx));
		check_one(cli.cq, format, &tx, FI_RMA | FI_WRITE, 0);
		ASSERT_TAKEN(fi_read(cli.ep, tx.p, 64, tx.desc, 0, rx.addr,
				     rx.key, &rx));
		check_one(cli.cq, format, &rx, FI_RMA | FI_READ, 0);
		if (has_cq_data(&cli)) {
			one_message(format, true);
			one_write_with_data(format);
		}
		/* Flags of one kind must not stick to the next. */
		one_message(format, false);
	}
	ASSERT_EQ(fi_cq_read(cli.cq, &(struct fi_cq_tagged_entry){ 0 }, 1),
		  -FI_EAGAIN);
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

static int format_context(void)
{
	return one_format(FI_CQ_FORMAT_CONTEXT);
}

static int format_msg(void)
{
	return one_format(FI_CQ_FORMAT_MSG);
}

static int format_data(void)
{
	return one_format(FI_CQ_FORMAT_DATA);
}

/* TAGGED is a superset; a provider without tags may refuse it, at open. */
static int format_tagged(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_cq *cq = NULL;
	struct end e;
	int ret;

	open_passive(&e, NULL);
	ret = fi_cq_open(e.domain, &attr, &cq, NULL);
	if (!ret)
		ASSERT_OK(fi_close(&cq->fid));
	close_end(&e);
	if (ret) {
		ASSERT(ret == -FI_ENOSYS || ret == -FI_EINVAL ||
		       ret == -FI_EOPNOTSUPP);
		return skip("FI_CQ_FORMAT_TAGGED is not supported");
	}
	return one_format(FI_CQ_FORMAT_TAGGED);
}

static int bad_attr(void)
{
	struct fi_cq_attr attr;
	struct fid_cq *cq;
	struct end e;

	open_passive(&e, NULL);
	memset(&attr, 0, sizeof(attr));
	attr.format = (enum fi_cq_format)77;
	ASSERT_CMP(fi_cq_open(e.domain, &attr, &cq, NULL), <, 0);
	if (is_vrc()) {
		memset(&attr, 0, sizeof(attr));
		attr.wait_obj = FI_WAIT_FD;
		attr.wait_cond = (enum fi_cq_wait_cond)77;
		ASSERT_CMP(fi_cq_open(e.domain, &attr, &cq, NULL), <, 0);
		/* More entries than any device has: refused or clamped. */
		memset(&attr, 0, sizeof(attr));
		attr.size = SIZE_MAX;
		if (!fi_cq_open(e.domain, &attr, &cq, NULL))
			ASSERT_OK(fi_close(&cq->fid));
	}
	close_end(&e);
	return PASSED;
}

/* Sizes from 1 to 64 Ki; what rxm asks for must be had. */
static int open_sizes(void)
{
	struct fi_cq_attr attr;
	struct fid_cq *cq;
	struct end e;

	open_passive(&e, NULL);
	for (size_t size = 1; size <= 65536; size *= 2) {
		memset(&attr, 0, sizeof(attr));
		attr.size = size;
		attr.format = FI_CQ_FORMAT_DATA;
		ASSERT_OK(fi_cq_open(e.domain, &attr, &cq, &attr));
		ASSERT(cq->fid.context == &attr);
		ASSERT_EQ(cq->fid.fclass, FI_CLASS_CQ);
		ASSERT_OK(fi_close(&cq->fid));
	}
	close_end(&e);
	return PASSED;
}

/* Several per call, never more than asked for, in order, none twice. */
static int batches(void)
{
	enum { N = 60 };
	struct fi_cq_data_entry e[N + 1];
	uintptr_t next_tx = 0;
	uintptr_t next_rx = 0;
	struct comp c;

	make_pair(&srv, &cli, NULL);
	buf_open(&cli, &tx, LEN, ALL_ACCESS);
	buf_open(&srv, &rx, LEN, ALL_ACCESS);
	for (uintptr_t i = 0; i < N; i++)
		post_recv(&srv, &rx, 0, 4, (void *)i);
	for (uintptr_t i = 0; i < N; i++)
		post_send(&cli, &tx, 0, 4, (void *)i);
	while (next_tx < N) {
		size_t ask = 1 + next_tx % 7;
		ssize_t n = fi_cq_read(cli.cq, e, ask);

		fi_cq_read(srv.cq, NULL, 0);
		if (n == -FI_EAGAIN)
			continue;
		ASSERT_CMP(n, >, 0);
		ASSERT_LE(n, ask);
		for (ssize_t i = 0; i < n; i++)
			ASSERT(e[i].op_context == (void *)next_tx++);
	}
	for (; next_rx < N; next_rx++) {
		expect_ok(srv.cq, (void *)next_rx, FI_RECV | FI_MSG, &c);
		ASSERT_EQ(c.len, 4);
	}
	ASSERT_EQ(fi_cq_read(cli.cq, e, N), -FI_EAGAIN);
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

/* fi_cq_readfrom: no source addresses on a connected endpoint. */
static int readfrom(void)
{
	struct fi_cq_data_entry e;
	fi_addr_t src = 0;
	ssize_t n;

	make_pair(&srv, &cli, NULL);
	buf_open(&cli, &tx, LEN, ALL_ACCESS);
	buf_open(&srv, &rx, LEN, ALL_ACCESS);
	post_recv(&srv, &rx, 0, 4, &rx);
	post_send(&cli, &tx, 0, 4, &tx);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	for (int i = 0; i < slow_ms(5000); i++) {
		n = fi_cq_readfrom(srv.cq, &e, 1, &src);
		if (n != -FI_EAGAIN)
			break;
		sleep_ms(1);
	}
	if (n == -FI_ENOSYS) {
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	} else {
		ASSERT_EQ(n, 1);
		ASSERT(e.op_context == &rx);
		if (is_vrc())
			ASSERT(src == FI_ADDR_NOTAVAIL);
	}
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

/*
 * Errors come out of band: fi_cq_read says -FI_EAVAIL until fi_cq_readerr has
 * taken it; the entry tells context, flags, reason; err_data is untouched with
 * err_data_size 0 or valid text, and strerror always has an answer.
 */
static int errors(void)
{
	struct fi_cq_err_entry err;
	struct fi_cq_data_entry e;
	char text[128];
	ssize_t n = -FI_EAGAIN;

	make_pair(&srv, &cli, NULL);
	buf_open(&srv, &rx, LEN, ALL_ACCESS);
	memset(&err, 0, sizeof(err));
	ASSERT_EQ(fi_cq_readerr(srv.cq, &err, 0), -FI_EAGAIN);
	post_recv(&srv, &rx, 0, LEN, &rx);
	close_ep(&cli);
	for (int i = 0; i < slow_ms(5000) && n == -FI_EAGAIN; i++) {
		struct event ev;

		next_event(&srv, &ev, 0);
		n = fi_cq_read(srv.cq, &e, 1);
		sleep_ms(1);
	}
	ASSERT_EQ(n, -FI_EAVAIL);
	ASSERT_EQ(fi_cq_read(srv.cq, &e, 1), -FI_EAVAIL);
	memset(&err, 0, sizeof(err));
	ASSERT_EQ(fi_cq_readerr(srv.cq, &err, 0), 1);
	ASSERT(err.op_context == &rx);
	ASSERT_CMP(err.err, >, 0);
	if (is_vrc()) {
		ASSERT_EQ(err.err, FI_ECANCELED);
		ASSERT_EQ(err.flags, FI_RECV | FI_MSG);
	}
	ASSERT(fi_cq_strerror(srv.cq, err.prov_errno, err.err_data, text,
			      sizeof(text)));
	for (int i = -2; i < 40; i++)
		ASSERT(fi_cq_strerror(srv.cq, i, NULL, NULL, 0));
	ASSERT_EQ(fi_cq_read(srv.cq, &e, 1), -FI_EAGAIN);
	ASSERT_EQ(fi_cq_readerr(srv.cq, &err, 0), -FI_EAGAIN);
	close_ep(&srv);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(format_context), CASE(format_msg), CASE(format_data),
		CASE(format_tagged), CASE(bad_attr), CASE(open_sizes),
		CASE(batches), CASE(readfrom), CASE(errors),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
