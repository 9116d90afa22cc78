/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Aliases of an endpoint, and the flags that calls without flags have. */
#include "pair.h"

enum { LEN = 64, OPS = 8 };

/* Nothing completes visibly unless it asks for it. */
static void open_all(void)
{
	struct setup how = { .tx_bind = FI_SELECTIVE_COMPLETION,
			     .rx_bind = FI_SELECTIVE_COMPLETION,
			     .two_cqs = true };

	pair_open(&how, OPS * LEN);
}

static uint64_t flags_of(struct fid_ep *ep, uint64_t side)
{
	uint64_t flags = side;

	ASSERT_OK(fi_control(&ep->fid, FI_GETOPSFLAG, &flags));
	return flags;
}

/* The default is what the info said, here nothing. */
static void clear_flags(struct fid_ep *ep)
{
	uint64_t flags = FI_TRANSMIT;

	ASSERT_OK(fi_control(&ep->fid, FI_SETOPSFLAG, &flags));
	flags = FI_RECV;
	ASSERT_OK(fi_control(&ep->fid, FI_SETOPSFLAG, &flags));
}

static int completes_where_its_endpoint_does_not(void)
{
	struct fid_ep *loud = NULL, *loud_srv = NULL;

	open_all();
	clear_flags(cli.ep);
	clear_flags(srv.ep);
	ASSERT_OK(fi_ep_alias(cli.ep, &loud, FI_TRANSMIT | FI_COMPLETION));
	ASSERT_OK(fi_ep_alias(srv.ep, &loud_srv, FI_RECV | FI_COMPLETION));
	ASSERT_EQ(flags_of(loud, FI_TRANSMIT), FI_COMPLETION);
	ASSERT_EQ(flags_of(cli.ep, FI_TRANSMIT), 0);
	fill(tx.p, OPS * LEN, 1);
	for (int i = 0; i < OPS; i++) {
		struct fid_ep *from = i & 1 ? loud : cli.ep;
		struct fid_ep *to = i & 1 ? loud_srv : srv.ep;

		ASSERT_TAKEN(fi_recv(to, rx.p + i * LEN, LEN, rx.desc, 0,
				     &rx.p[i]));
		ASSERT_TAKEN(fi_send(from, tx.p + i * LEN, LEN, tx.desc, 0,
				     &tx.p[i]));
	}
	for (int i = 1; i < OPS; i += 2) {
		expect_ok(srv.cq, &rx.p[i], FI_RECV | FI_MSG, NULL);
		expect_ok(cli.tx_cq, &tx.p[i], FI_SEND | FI_MSG, NULL);
	}
	ASSERT_FILLED(rx.p, OPS * LEN, 1);
	fill(tx.p, OPS * LEN, 2);
	ASSERT_TAKEN(fi_write(loud, tx.p, LEN, tx.desc, 0, rx.addr, rx.key,
			      &tx));
	expect_ok(cli.tx_cq, &tx, FI_WRITE | FI_RMA, NULL);
	EXPECT_FILLED(rx.p, LEN, 2);
	memset(tx.p, 0, LEN);
	ASSERT_TAKEN(fi_read(loud, tx.p, LEN, tx.desc, 0, rx.addr, rx.key,
			     &tx));
	expect_ok(cli.tx_cq, &tx, FI_READ | FI_RMA, NULL);
	ASSERT_FILLED(tx.p, LEN, 2);
	expect_no_comp(cli.tx_cq, 20);
	expect_no_comp(srv.cq, 20);
	ASSERT_OK(fi_close(&loud->fid));
	ASSERT_OK(fi_close(&loud_srv->fid));
	return pair_close();
}

static int data_and_injects(void)
{
	struct fid_ep *loud = NULL;
	struct comp c;
	uint8_t word[8];

	open_all();
	ASSERT_OK(fi_ep_alias(cli.ep, &loud, FI_TRANSMIT | FI_COMPLETION));
	fill(word, sizeof(word), 3);
	ASSERT_TAKEN(fi_recvmsg(srv.ep, &(struct fi_msg){
			.msg_iov = &(struct iovec){ rx.p, LEN },
			.desc = &rx.desc, .iov_count = 1, .context = &rx },
			FI_COMPLETION));
	ASSERT_TAKEN(fi_inject(loud, word, sizeof(word), 0));
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, &c);
	ASSERT_EQ(c.len, sizeof(word));
	ASSERT_FILLED(rx.p, sizeof(word), 3);
	fill(word, sizeof(word), 4);
	ASSERT_TAKEN(fi_inject_write(loud, word, sizeof(word), 0, rx.addr,
				     rx.key));
	EXPECT_FILLED(rx.p, sizeof(word), 4);
	if (has_cq_data(&cli)) {
		ASSERT_TAKEN(fi_recvmsg(srv.ep, &(struct fi_msg){
				.msg_iov = &(struct iovec){ rx.p, LEN },
				.desc = &rx.desc, .iov_count = 1,
				.context = &rx }, FI_COMPLETION));
		ASSERT_TAKEN(fi_senddata(loud, tx.p, LEN, tx.desc, 77, 0, &tx));
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA,
			  &c);
		ASSERT_EQ(c.data, 77);
		expect_ok(cli.tx_cq, &tx, FI_SEND | FI_MSG, NULL);
	}
	expect_no_comp(cli.tx_cq, 20);
	ASSERT_OK(fi_close(&loud->fid));
	return pair_close();
}

/* An alias may change its mind, and is its endpoint in all else. */
static int one_endpoint_in_all_else(void)
{
	struct sockaddr_storage a, b;
	size_t la = sizeof(a), lb = sizeof(b);
	struct fid_ep *alias = NULL, *second = NULL;
	uint64_t flags;

	open_all();
	clear_flags(cli.ep);
	ASSERT_OK(fi_ep_alias(cli.ep, &alias, 0));
	ASSERT(alias->fid.context == cli.ep->fid.context);
	ASSERT_EQ(alias->fid.fclass, FI_CLASS_EP);
	ASSERT_OK(fi_getname(&cli.ep->fid, &a, &la));
	ASSERT_OK(fi_getname(&alias->fid, &b, &lb));
	ASSERT_EQ(la, lb);
	ASSERT(!memcmp(&a, &b, la));
	flags = FI_TRANSMIT | FI_COMPLETION;
	ASSERT_OK(fi_control(&alias->fid, FI_SETOPSFLAG, &flags));
	ASSERT_OK(fi_ep_alias(alias, &second, 0));
	ASSERT_EQ(flags_of(cli.ep, FI_TRANSMIT), 0);
	ASSERT_EQ(flags_of(alias, FI_TRANSMIT), FI_COMPLETION);
	ASSERT_EQ(flags_of(second, FI_TRANSMIT), 0);
	/* All aliases first. */
	ASSERT_EQ(fi_close(&cli.ep->fid), -FI_EBUSY);
	ASSERT_OK(fi_close(&alias->fid));
	ASSERT_EQ(fi_close(&cli.ep->fid), -FI_EBUSY);
	ASSERT_OK(fi_close(&second->fid));
	return pair_close();
}

static int refusals(void)
{
	uint64_t flags = FI_TRANSMIT | FI_RECV;
	struct fid_ep *alias;

	open_all();
	ASSERT_EQ(fi_ep_alias(cli.ep, &alias, FI_COMPLETION), -FI_EINVAL);
	ASSERT_EQ(fi_ep_alias(cli.ep, &alias, FI_TRANSMIT | FI_RECV),
		  -FI_EINVAL);
	ASSERT_EQ(fi_ep_alias(cli.ep, &alias, FI_RECV | FI_INJECT),
		  -FI_EBADFLAGS);
	ASSERT_EQ(fi_ep_alias(cli.ep, &alias, FI_TRANSMIT | FI_MATCH_COMPLETE),
		  -FI_EBADFLAGS);
	ASSERT_EQ(fi_control(&cli.ep->fid, FI_SETOPSFLAG, &flags), -FI_EINVAL);
	ASSERT_EQ(fi_control(&cli.ep->fid, FI_GETOPSFLAG, NULL), -FI_EINVAL);
	return pair_close();
}

static const struct test_case cases[] = {
	CASE(completes_where_its_endpoint_does_not),
	CASE(data_and_injects),
	CASE(one_endpoint_in_all_else),
	CASE(refusals),
	{ 0 },
};

int main(int argc, char **argv)
{
	return run_cases(argc, argv, cases);
}
