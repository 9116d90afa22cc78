/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A message that does not fit into its receive: FI_ETRUNC where that is
 * certain, nothing written past the buffer, and the end of an RC connection.
 */
#include "pair.h"

enum { LEN = 200 };

static void open_all(const struct setup *how)
{
	make_pair(&srv, &cli, how);
	buf_open(&cli, &tx, LEN, FI_SEND);
	buf_open(&srv, &rx, 4096, FI_RECV);
}

/* rxe says of a receive that is too short and of one whose descriptor is wrong
 * that it failed, and no more. */
static bool is_rxe(const struct end *e)
{
	return e->info->nic &&
	       !strcmp(e->info->nic->device_attr->vendor_id, "0xffffff");
}

/*
 * A message into a receive of len bytes that does not take it: an error at the
 * receiver, with its context, and not one byte written past the buffer. Returns
 * the error.
 */
static int failed_recv(size_t len)
{
	struct comp c;
	int err;

	fill(tx.p, LEN, 1);
	memset(rx.p, 0xee, rx.len);
	post_recv(&srv, &rx, 0, len, &rx);
	post_send(&cli, &tx, 0, LEN, &tx);
	expect_comp(srv.cq, &c);
	err = c.err;
	ASSERT_CMP(err, >, 0);
	ASSERT(c.context == &rx);
	ASSERT_EQ(op_bits(c.flags), FI_RECV | FI_MSG);
	ASSERT_BYTES(rx.p + len, rx.len - len, 0xee);
	if (is_vrc()) {
		/* RC breaks: the sender learns too, and both are told once. */
		expect_comp(cli.cq, &c);
		ASSERT(c.context == &tx);
		expect_event(&srv, FI_SHUTDOWN, NULL);
		expect_event(&cli, FI_SHUTDOWN, NULL);
		expect_no_event(&srv, 50);
		expect_no_event(&cli, 50);
	} else {
		next_comp(cli.cq, &c, 100);
	}
	return err;
}

static int registered(void)
{
	int err;

	open_all(NULL);
	err = failed_recv(LEN / 2);
	if (is_vrc())
		ASSERT_EQ(err, is_rxe(&srv) ? FI_EIO : FI_ETRUNC);
	return pair_close_quiet();
}

/* No memory, so nothing else can be wrong. */
static int empty(void)
{
	int err;

	open_all(NULL);
	err = failed_recv(0);
	if (is_vrc())
		ASSERT_EQ(err, FI_ETRUNC);
	return pair_close_quiet();
}

/* Nor when the provider registers it. */
static int unregistered(void)
{
	struct setup how = { .no_mr_mode = true, .caps = FI_MSG };
	struct fi_info *info;
	int err;

	info = try_getinfo(&how, NULL, FI_SOURCE, &err);
	if (!info) {
		ASSERT_EQ(err, -FI_ENODATA);
		return skip("not offered without FI_MR_LOCAL");
	}
	fi_freeinfo(info);
	open_all(&how);
	err = failed_recv(LEN / 2);
	if (is_vrc())
		ASSERT_EQ(err, FI_ETRUNC);
	return pair_close_quiet();
}

/* Long enough, but the descriptor is for less: that is no truncation. */
static int uncovered(void)
{
	struct fid_mr *mr;

	if (!is_vrc())
		return skip("other providers need no descriptor");
	open_all(NULL);
	ASSERT_OK(fi_mr_reg(srv.domain, rx.p, LEN / 2, FI_RECV, 0, 99, 0, &mr,
			    NULL));
	rx.desc = fi_mr_desc(mr);
	ASSERT_CMP(failed_recv(LEN), !=, FI_ETRUNC);
	ASSERT_BYTES(rx.p + LEN / 2, LEN / 2, 0xee);
	ASSERT_OK(fi_close(&mr->fid));
	return pair_close_quiet();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(registered), CASE(empty), CASE(unregistered),
		CASE(uncovered), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
