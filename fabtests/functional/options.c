/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Options of an endpoint: what they are, and that they cannot be changed. */
#include "common.h"

/* Of libfabric 2.x; its enumeration only grows. */
enum {
	OPT_MAX_MSG_SIZE = 12,
	OPT_MAX_TAGGED_SIZE = 13,
	OPT_MAX_RMA_SIZE = 14,
	OPT_INJECT_MSG_SIZE = 16,
	OPT_INJECT_RMA_SIZE = 18,
};

static struct end srv, cli;

static void expect_opt(int name, size_t want)
{
	size_t value = 12345;
	size_t len = sizeof(value);

	ASSERT_OK(fi_getopt(&cli.ep->fid, FI_OPT_ENDPOINT, name, &value, &len));
	ASSERT_EQ(value, want);
	ASSERT_EQ(len, sizeof(value));
}

static int what_the_info_says(void)
{
	make_pair(&srv, &cli, NULL);
	expect_opt(FI_OPT_TX_SIZE, cli.info->tx_attr->size);
	expect_opt(FI_OPT_RX_SIZE, cli.info->rx_attr->size);
	expect_opt(OPT_MAX_MSG_SIZE, cli.info->ep_attr->max_msg_size);
	expect_opt(OPT_MAX_RMA_SIZE, cli.info->ep_attr->max_msg_size);
	expect_opt(OPT_INJECT_MSG_SIZE, cli.info->tx_attr->inject_size);
	expect_opt(OPT_INJECT_RMA_SIZE, cli.info->tx_attr->inject_size);
	close_pair(&srv, &cli);
	return PASSED;
}

static int refusals(void)
{
	size_t value = 0;
	size_t len = sizeof(value);
	int p2p = FI_HMEM_P2P_REQUIRED;

	make_pair(&srv, &cli, NULL);
	ASSERT_EQ(fi_getopt(&cli.ep->fid, FI_OPT_ENDPOINT, OPT_MAX_TAGGED_SIZE,
			    &value, &len), -FI_ENOPROTOOPT);
	ASSERT_EQ(fi_getopt(&cli.ep->fid, FI_OPT_ENDPOINT, 4711, &value, &len),
		  -FI_ENOPROTOOPT);
	ASSERT_EQ(fi_getopt(&cli.ep->fid, 7, FI_OPT_TX_SIZE, &value, &len),
		  -FI_ENOPROTOOPT);
	len = 1;
	ASSERT_EQ(fi_getopt(&cli.ep->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE,
			    &value, &len), -FI_ETOOSMALL);
	ASSERT_EQ(len, sizeof(value));
	ASSERT_EQ(fi_getopt(&cli.ep->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, NULL,
			    &len), -FI_EINVAL);
	ASSERT_EQ(fi_setopt(&cli.ep->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE,
			    &value, sizeof(value)), -FI_ENOPROTOOPT);
	ASSERT_EQ(fi_setopt(&cli.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P,
			    &p2p, sizeof(p2p)), -FI_ENOPROTOOPT);
	expect_opt(FI_OPT_TX_SIZE, cli.info->tx_attr->size);
	close_pair(&srv, &cli);
	return PASSED;
}

static const struct test_case cases[] = {
	CASE(what_the_info_says),
	CASE(refusals),
	{ 0 },
};

int main(int argc, char **argv)
{
	return run_cases(argc, argv, cases);
}
