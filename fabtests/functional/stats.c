/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Statistics by fi_open_ops: vrc's own, see rdma/fi_ext_vrc.h. */
#include <rdma/fi_ext_vrc.h>

#include "pair.h"

enum { LEN = 64, ROOM = 64, DEPTH = 8 };

static uint64_t stat_of(struct fid *fid, const char *name)
{
	struct fi_vrc_stat stats[ROOM];
	struct fi_vrc_ops_stats *ops;
	size_t cnt = ROOM;

	ASSERT_OK(fi_open_ops(fid, FI_VRC_STATS, 0, (void **)&ops, NULL));
	ASSERT_GE(ops->size, sizeof(*ops));
	ASSERT_OK(ops->read(fid, stats, &cnt));
	for (size_t i = 0; i < cnt; i++)
		if (!strcmp(stats[i].name, name))
			return stats[i].value;
	FAIL("there is no statistic %s", name);
}

static const char *const names[] = {
	"tx_posted", "rx_posted", "errors", "connected", "qp_num", "path_mtu",
};

static void open_all(void)
{
	struct setup how = { .tx_size = DEPTH, .rx_size = DEPTH };

	pair_open(&how, LEN);
}

static int of_an_endpoint(void)
{
	struct fid *fid;
	uint64_t before;

	open_all();
	fid = &srv.ep->fid;
	ASSERT_EQ(stat_of(fid, "rx_posted"), 0);
	for (int i = 0; i < DEPTH; i++)
		post_recv(&srv, &rx, 0, LEN, &rx);
	ASSERT_EQ(stat_of(fid, "rx_posted"), DEPTH);
	ASSERT_EQ(stat_of(fid, "rx_in_flight"), DEPTH);
	ASSERT_EQ(stat_of(fid, "rx_full"), 0);
	ASSERT_EQ(fi_recv(srv.ep, rx.p, LEN, rx.desc, 0, NULL), -FI_EAGAIN);
	ASSERT_EQ(stat_of(fid, "rx_full"), 1);
	before = stat_of(&cli.ep->fid, "tx_posted");
	post_send(&cli, &tx, 0, LEN, &tx);
	ASSERT_EQ(stat_of(&cli.ep->fid, "tx_posted") - before, 1);
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	ASSERT_EQ(stat_of(fid, "rx_in_flight"), DEPTH - 1);
	ASSERT_EQ(stat_of(fid, "errors"), 0);
	return pair_close();
}

/* An alias is its endpoint: it has the same. */
static int of_an_alias(void)
{
	struct fid_ep *alias = NULL, *second = NULL;

	open_all();
	ASSERT_OK(fi_ep_alias(cli.ep, &alias, FI_TRANSMIT | FI_COMPLETION));
	ASSERT_OK(fi_ep_alias(alias, &second, 0));
	post_recv(&srv, &rx, 0, LEN, &rx);
	ASSERT_TAKEN(fi_send(alias, tx.p, LEN, tx.desc, 0, &tx));
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	ASSERT_GE(stat_of(&alias->fid, "tx_posted"), 1);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		ASSERT_EQ(stat_of(&alias->fid, names[i]),
			  stat_of(&cli.ep->fid, names[i]));
		ASSERT_EQ(stat_of(&second->fid, names[i]),
			  stat_of(&cli.ep->fid, names[i]));
	}
	ASSERT_OK(fi_close(&second->fid));
	ASSERT_OK(fi_close(&alias->fid));
	return pair_close();
}

static int of_a_connection(void)
{
	struct fid *fid;
	struct comp c;

	open_all();
	fid = &srv.ep->fid;
	ASSERT_EQ(stat_of(fid, "connected"), 1);
	ASSERT_NE(stat_of(fid, "qp_num"), 0);
	if (!is_iwarp(&srv)) {
		ASSERT_EQ(stat_of(fid, "qp_num"),
			  stat_of(&cli.ep->fid, "dest_qp_num"));
		ASSERT_GE(stat_of(fid, "path_mtu"), 256);
		ASSERT_GE(stat_of(fid, "retry_cnt"), 1);
		ASSERT_GE(stat_of(fid, "max_rd_atomic"), 1);
		ASSERT_GE(stat_of(fid, "ack_timeout_ns"), 4096);
	}
	for (int i = 0; i < DEPTH; i++)
		post_recv(&srv, &rx, 0, LEN, &rx);
	ASSERT_OK(fi_shutdown(srv.ep, 0));
	for (int i = 0; i < DEPTH; i++) {
		expect_comp(srv.cq, &c);
		ASSERT_EQ(c.err, FI_ECANCELED);
	}
	ASSERT_EQ(stat_of(fid, "errors"), DEPTH);
	ASSERT_EQ(stat_of(fid, "connected"), 0);
	ASSERT_EQ(stat_of(fid, "path_mtu"), 0);
	return pair_close();
}

static int of_queue_and_domain(void)
{
	uint64_t cnt, bytes;
	struct buf more;

	open_all();
	ASSERT_GE(stat_of(&cli.cq->fid, "entries"),
		  stat_of(&cli.cq->fid, "entries_reserved"));
	ASSERT_GE(stat_of(&cli.cq->fid, "entries_reserved"), 2 * DEPTH);
	cnt = stat_of(&cli.domain->fid, "mr_cnt");
	bytes = stat_of(&cli.domain->fid, "mr_bytes");
	ASSERT_EQ(cnt, 1);
	buf_open(&cli, &more, 4096, ALL_ACCESS);
	ASSERT_EQ(stat_of(&cli.domain->fid, "mr_cnt"), cnt + 1);
	ASSERT_EQ(stat_of(&cli.domain->fid, "mr_bytes"), bytes + 4096);
	buf_close(&more);
	ASSERT_EQ(stat_of(&cli.domain->fid, "mr_cnt"), cnt);
	ASSERT_EQ(stat_of(&cli.domain->fid, "mr_bytes"), bytes);
	return pair_close();
}

static int refusals(void)
{
	struct fi_vrc_stat stats[ROOM];
	struct fi_vrc_ops_stats *ops;
	size_t cnt = 0, all;

	open_all();
	ASSERT_EQ(fi_open_ops(&cli.ep->fid, "no such thing", 0, (void **)&ops,
			      NULL), -FI_ENOSYS);
	ASSERT_EQ(fi_open_ops(&cli.ep->fid, FI_VRC_STATS, 1, (void **)&ops,
			      NULL), -FI_EBADFLAGS);
	ASSERT_EQ(fi_open_ops(&cli.evq->eq->fid, FI_VRC_STATS, 0, (void **)&ops,
			      NULL), -FI_ENOSYS);
	ASSERT_EQ(fi_set_ops(&cli.ep->fid, FI_VRC_STATS, 0, stats, NULL),
		  -FI_ENOSYS);
	ASSERT_OK(fi_open_ops(&cli.ep->fid, FI_VRC_STATS, 0, (void **)&ops,
			      NULL));
	/* How many there are, and then as many as there is room for. */
	ASSERT_EQ(ops->read(&cli.ep->fid, NULL, &cnt), -FI_ETOOSMALL);
	all = cnt;
	ASSERT_GE(all, 2);
	cnt = 1;
	stats[1].name = NULL;
	ASSERT_EQ(ops->read(&cli.ep->fid, stats, &cnt), -FI_ETOOSMALL);
	ASSERT_EQ(cnt, all);
	ASSERT(!stats[1].name);
	ASSERT_EQ(ops->read(&cli.ep->fid, NULL, &cnt), -FI_EINVAL);
	ASSERT_EQ(ops->read(&cli.ep->fid, stats, NULL), -FI_EINVAL);
	ASSERT_EQ(ops->read(&cli.evq->eq->fid, stats, &cnt), -FI_EINVAL);
	return pair_close();
}

static const struct test_case cases[] = {
	CASE(of_an_endpoint),
	CASE(of_an_alias),
	CASE(of_a_connection),
	CASE(of_queue_and_domain),
	CASE(refusals),
	{ 0 },
};

int main(int argc, char **argv)
{
	return run_cases(argc, argv, cases);
}
