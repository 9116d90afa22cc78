/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Every call that libfabric's headers offer on the objects of a connected
 * endpoint, once: what is not supported answers -FI_ENOSYS or another errno,
 * nothing jumps through a null pointer. Also looks at the tables themselves,
 * for programs reach them by inlines that do not check.
 */
#include <rdma/fi_collective.h>

#include "pair.h"

/* A table is a size and then pointers to functions. */
static void check_table(const char *name, const void *table, size_t known)
{
	const char *p = table;
	size_t size;
	size_t i;

	if (!table)
		FAIL("no table %s", name);
	memcpy(&size, p, sizeof(size));
	/* Built against these headers: neither shorter nor longer. */
	if (size < known)
		FAIL("table %s: size %zu, should be %zu", name, size, known);
	for (i = sizeof(size); i + sizeof(void *) <= known;
	     i += sizeof(void *)) {
		void *fn;

		memcpy(&fn, p + i, sizeof(fn));
		if (!fn)
			FAIL("table %s: slot %zu is NULL", name,
			     i / sizeof(void *) - 1);
	}
}
#define CHECK_TABLE(p) check_table(#p, p, sizeof(*(p)))

static int tables(void)
{
	if (!is_vrc())
		return skip("%s has holes", provider());
	pair_open(NULL, 4096);
	CHECK_TABLE(cli.fabric->ops);
	CHECK_TABLE(cli.fabric->fid.ops);
	CHECK_TABLE(cli.domain->ops);
	CHECK_TABLE(cli.domain->mr);
	CHECK_TABLE(cli.domain->fid.ops);
	CHECK_TABLE(cli.evq->eq->ops);
	CHECK_TABLE(cli.evq->eq->fid.ops);
	CHECK_TABLE(cli.cq->ops);
	CHECK_TABLE(cli.cq->fid.ops);
	CHECK_TABLE(srv.pep->ops);
	CHECK_TABLE(srv.pep->cm);
	CHECK_TABLE(srv.pep->fid.ops);
	CHECK_TABLE(tx.mr->fid.ops);
	CHECK_TABLE(cli.ep->fid.ops);
	CHECK_TABLE(cli.ep->ops);
	CHECK_TABLE(cli.ep->cm);
	CHECK_TABLE(cli.ep->msg);
	CHECK_TABLE(cli.ep->rma);
	CHECK_TABLE(cli.ep->tagged);
	CHECK_TABLE(cli.ep->atomic);
	CHECK_TABLE(cli.ep->collective);
	return pair_close();
}

/* The slot that tables have since after 2.6: fi_ep_export_xpu() and its kin jump
 * through it without looking at the size. */
static int later_slot(const void *table, size_t known, void *fid)
{
	int (*export_xpu)(void *fid, uint64_t flags, void *out);

	memcpy(&export_xpu, (const char *)table + known, sizeof(export_xpu));
	ASSERT(export_xpu);
	return export_xpu(fid, 0, NULL);
}

#define END_OF(type, last) (offsetof(struct type, last) + sizeof(void *))

static int tables_of_later(void)
{
	struct fi_cntr_attr attr = { 0 };
	struct fid_cntr *cntr;

	if (!is_vrc())
		return skip("%s has its own", provider());
	pair_open(NULL, 4096);
	ASSERT_OK(fi_cntr_open(cli.domain, &attr, &cntr, NULL));
	ASSERT_EQ(later_slot(cli.ep->ops, END_OF(fi_ops_ep, tx_size_left),
			     cli.ep), -FI_ENOSYS);
	ASSERT_EQ(later_slot(cli.cq->ops, END_OF(fi_ops_cq, strerror),
			     cli.cq), -FI_ENOSYS);
	ASSERT_EQ(later_slot(cntr->ops, END_OF(fi_ops_cntr, seterr), cntr),
		  -FI_ENOSYS);
	ASSERT_OK(fi_close(&cntr->fid));
	return pair_close();
}

static int fid_classes(void)
{
	pair_open(NULL, 4096);
	ASSERT_EQ(cli.fabric->fid.fclass, FI_CLASS_FABRIC);
	ASSERT_EQ(cli.domain->fid.fclass, FI_CLASS_DOMAIN);
	ASSERT_EQ(cli.evq->eq->fid.fclass, FI_CLASS_EQ);
	ASSERT_EQ(cli.cq->fid.fclass, FI_CLASS_CQ);
	ASSERT_EQ(srv.pep->fid.fclass, FI_CLASS_PEP);
	ASSERT_EQ(cli.ep->fid.fclass, FI_CLASS_EP);
	ASSERT_EQ(tx.mr->fid.fclass, FI_CLASS_MR);
	ASSERT(cli.ep->fid.context == &cli);
	return pair_close();
}

/* Bind, control and tables by name on every object: nonsense is refused. */
static int common_ops(void)
{
	struct fid *fids[7];
	uint8_t room[256] = { 0 };

	if (!is_vrc())
		return skip("%s has holes", provider());
	pair_open(NULL, 4096);
	fids[0] = &cli.fabric->fid;
	fids[1] = &cli.domain->fid;
	fids[2] = &cli.evq->eq->fid;
	fids[3] = &cli.cq->fid;
	fids[4] = &srv.pep->fid;
	fids[5] = &cli.ep->fid;
	fids[6] = &tx.mr->fid;
	for (size_t i = 0; i < ARRAY_SIZE(fids); i++) {
		void *ops = NULL;

		ASSERT_CMP(fids[i]->ops->bind(fids[i], &cli.fabric->fid, 0), <,
			   0);
		ASSERT_CMP(fi_control(fids[i], 0x7777, room), <, 0);
		/* ofi_rxm takes no other answer for this one. */
		ASSERT_EQ(fi_open_ops(fids[i], "ofix_flow_ctrl_v1", 0, &ops,
				      NULL), -FI_ENOSYS);
		ASSERT_CMP(fi_set_ops(fids[i], "dynamic rbuf", 0, room, NULL),
			   <, 0);
		fids[i]->ops->tostr(fids[i], (char *)room, sizeof(room));
	}
	for (int cmd = 0; cmd < 32; cmd++) {
		if (cmd == FI_ENABLE || cmd == FI_GETWAIT)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(fids); i++) {
			memset(room, 0, sizeof(room));
			ASSERT_LE(fi_control(fids[i], cmd, room), 0);
		}
	}
	return pair_close();
}

static int fabric_and_domain(void)
{
	struct fi_av_attr av_attr = { 0 };
	struct fi_cntr_attr cntr_attr = { 0 };
	struct fi_poll_attr poll_attr = { 0 };
	struct fi_wait_attr wait_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_atomic_attr atomic_attr;
	struct fi_collective_attr coll_attr = { 0 };
	struct fid_av *av;
	struct fid_cntr *cntr;
	struct fid_poll *pollset;
	struct fid_wait *wait;
	struct fid_stx *stx;
	struct fid_ep *ep;

	if (!is_vrc())
		return skip("%s has holes", provider());
	pair_open(NULL, 4096);
	if (!fi_av_open(cli.domain, &av_attr, &av, NULL))
		ASSERT_OK(fi_close(&av->fid));
	if (!fi_cntr_open(cli.domain, &cntr_attr, &cntr, NULL))
		ASSERT_OK(fi_close(&cntr->fid));
	if (!fi_poll_open(cli.domain, &poll_attr, &pollset))
		ASSERT_OK(fi_close(&pollset->fid));
	if (!fi_wait_open(cli.fabric, &wait_attr, &wait))
		ASSERT_OK(fi_close(&wait->fid));
	if (!fi_stx_context(cli.domain, cli.info->tx_attr, &stx, NULL))
		ASSERT_OK(fi_close(&stx->fid));
	if (!fi_srx_context(cli.domain, cli.info->rx_attr, &ep, NULL))
		ASSERT_OK(fi_close(&ep->fid));
	if (!fi_scalable_ep(cli.domain, cli.info, &ep, NULL))
		ASSERT_OK(fi_close(&ep->fid));
	if (!fi_endpoint2(cli.domain, cli.info, &ep, 0, NULL))
		ASSERT_OK(fi_close(&ep->fid));
	ASSERT_CMP(fi_domain_bind(cli.domain, &cli.cq->fid, 0), <, 0);
	fi_domain_bind(cli.domain, &cli.evq->eq->fid, 1ULL << 59);
	ASSERT_LE(fi_query_atomic(cli.domain, FI_UINT64, FI_SUM, &atomic_attr,
				  0), 0);
	ASSERT_LE(fi_query_collective(cli.domain, FI_BARRIER, &coll_attr, 0),
		  0);
	return pair_close();
}

static int mr_ops(void)
{
	uint8_t key[64];
	size_t key_size = sizeof(key);
	uint64_t base = 0;
	uint64_t mapped = 0;
	struct iovec iov;

	if (!is_vrc())
		return skip("%s has holes", provider());
	pair_open(NULL, 4096);
	iov = (struct iovec){ tx.p, 64 };
	ASSERT_CMP(fi_mr_bind(tx.mr, &cli.cq->fid, 0), <, 0);
	ASSERT_LE(fi_mr_refresh(tx.mr, &iov, 1, 0), 0);
	ASSERT_LE(fi_mr_enable(tx.mr), 0);
	/* "It is safe to use this call with any memory region." */
	if (!fi_mr_raw_attr(tx.mr, &base, key, &key_size, 0)) {
		ASSERT_LE(key_size, sizeof(key));
		if (!fi_mr_map_raw(cli.domain, base, key, key_size, &mapped, 0))
			ASSERT_LE(fi_mr_unmap_key(cli.domain, mapped), 0);
	}
	return pair_close();
}

static int endpoint_ops(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	uint8_t room[64] = { 0 };
	size_t len = sizeof(room);
	struct fid_ep *ep;
	struct fid_mc *mc;

	if (!is_vrc())
		return skip("%s has holes", provider());
	pair_open(NULL, 4096);
	ASSERT_LE(fi_cancel(&cli.ep->fid, &tx), 0);
	for (int name = -1; name < 20; name++) {
		len = sizeof(room);
		ASSERT_LE(fi_getopt(&cli.ep->fid, FI_OPT_ENDPOINT, name, room,
				    &len), 0);
		len = 0;
		ASSERT_CMP(fi_getopt(&cli.ep->fid, FI_OPT_ENDPOINT, name, room,
				     &len), <, 0);
		ASSERT_CMP(fi_getopt(&cli.ep->fid, 77, name, room, &len), <,
			   0);
		ASSERT_LE(fi_setopt(&cli.ep->fid, FI_OPT_ENDPOINT, name, room,
				    1), 0);
		ASSERT_LE(fi_getopt(&srv.pep->fid, FI_OPT_ENDPOINT, name, room,
				    &len), 0);
		ASSERT_LE(fi_setopt(&srv.pep->fid, FI_OPT_ENDPOINT, name, room,
				    1), 0);
	}
	ASSERT_CMP(fi_tx_context(cli.ep, 0, NULL, &ep, NULL), <, 0);
	ASSERT_CMP(fi_rx_context(cli.ep, 0, NULL, &ep, NULL), <, 0);
	if (!fi_ep_alias(cli.ep, &ep, FI_TRANSMIT))
		ASSERT_OK(fi_close(&ep->fid));
	cli.ep->ops->rx_size_left(cli.ep);
	cli.ep->ops->tx_size_left(cli.ep);
	ASSERT_CMP(fi_join(cli.ep, &addr, 0, &mc, NULL), <, 0);
	ASSERT_CMP(fi_setname(&cli.ep->fid, &addr, sizeof(addr)), <, 0);
	/* Of the passive endpoint's, those that are an active one's. */
	ASSERT_CMP(srv.pep->cm->getpeer((struct fid_ep *)srv.pep, room, &len),
		   <, 0);
	ASSERT_CMP(srv.pep->cm->connect((struct fid_ep *)srv.pep, &addr, NULL,
					0), <, 0);
	ASSERT_CMP(srv.pep->cm->accept((struct fid_ep *)srv.pep, NULL, 0), <,
		   0);
	ASSERT_CMP(srv.pep->cm->shutdown((struct fid_ep *)srv.pep, 0), <, 0);
	ASSERT_CMP(srv.pep->cm->join((struct fid_ep *)srv.pep, &addr, 0, &mc,
				     NULL), <, 0);
	ASSERT_CMP(cli.ep->cm->listen((struct fid_pep *)cli.ep), <, 0);
	ASSERT_CMP(cli.ep->cm->reject((struct fid_pep *)cli.ep, NULL, NULL, 0),
		   <, 0);
	return pair_close();
}

static int tagged_ops(void)
{
	struct iovec iov;
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
	};
	struct fid_ep *ep;

	pair_open(NULL, 4096);
	ep = cli.ep;
	if (cli.info->caps & FI_TAGGED || !is_vrc()) {
		pair_close();
		return skip("%s offers it", provider());
	}
	iov = (struct iovec){ tx.p, 8 };
	ASSERT_CMP(fi_trecv(ep, tx.p, 8, tx.desc, 0, 1, 0, NULL), <, 0);
	ASSERT_CMP(fi_trecvv(ep, &iov, &tx.desc, 1, 0, 1, 0, NULL), <, 0);
	ASSERT_CMP(fi_trecvmsg(ep, &msg, 0), <, 0);
	ASSERT_CMP(fi_tsend(ep, tx.p, 8, tx.desc, 0, 1, NULL), <, 0);
	ASSERT_CMP(fi_tsendv(ep, &iov, &tx.desc, 1, 0, 1, NULL), <, 0);
	ASSERT_CMP(fi_tsendmsg(ep, &msg, 0), <, 0);
	ASSERT_CMP(fi_tinject(ep, tx.p, 8, 0, 1), <, 0);
	ASSERT_CMP(fi_tsenddata(ep, tx.p, 8, tx.desc, 1, 0, 1, NULL), <, 0);
	ASSERT_CMP(fi_tinjectdata(ep, tx.p, 8, 1, 0, 1), <, 0);
	expect_no_comp(cli.cq, 10);
	return pair_close();
}

static int atomic_ops(void)
{
	struct fi_ioc ioc;
	struct fi_rma_ioc target;
	struct fi_msg_atomic msg = {
		.msg_iov = &ioc, .desc = &tx.desc, .iov_count = 1,
		.rma_iov = &target, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM,
	};
	void *d;
	void *p;
	struct fid_ep *ep;
	size_t n = 0;

	pair_open(NULL, 4096);
	ep = cli.ep;
	d = tx.desc;
	p = tx.p;
	if (cli.info->caps & FI_ATOMIC || !is_vrc()) {
		pair_close();
		return skip("offered, or not looked at for %s", provider());
	}
	ioc = (struct fi_ioc){ p, 1 };
	target = (struct fi_rma_ioc){ rx.addr, 1, rx.key };
	ASSERT_CMP(fi_atomic(ep, p, 1, d, 0, rx.addr, rx.key, FI_UINT64,
			     FI_SUM, NULL), <, 0);
	ASSERT_CMP(fi_atomicv(ep, &ioc, &d, 1, 0, rx.addr, rx.key, FI_UINT64,
			      FI_SUM, NULL), <, 0);
	ASSERT_CMP(fi_atomicmsg(ep, &msg, 0), <, 0);
	ASSERT_CMP(fi_inject_atomic(ep, p, 1, 0, rx.addr, rx.key, FI_UINT64,
				    FI_SUM), <, 0);
	ASSERT_CMP(fi_fetch_atomic(ep, p, 1, d, p, d, 0, rx.addr, rx.key,
				   FI_UINT64, FI_SUM, NULL), <, 0);
	ASSERT_CMP(fi_fetch_atomicv(ep, &ioc, &d, 1, &ioc, &d, 1, 0, rx.addr,
				    rx.key, FI_UINT64, FI_SUM, NULL), <, 0);
	ASSERT_CMP(fi_fetch_atomicmsg(ep, &msg, &ioc, &d, 1, 0), <, 0);
	ASSERT_CMP(fi_compare_atomic(ep, p, 1, d, p, d, p, d, 0, rx.addr,
				     rx.key, FI_UINT64, FI_CSWAP, NULL), <, 0);
	ASSERT_CMP(fi_compare_atomicv(ep, &ioc, &d, 1, &ioc, &d, 1, &ioc, &d,
				      1, 0, rx.addr, rx.key, FI_UINT64,
				      FI_CSWAP, NULL), <, 0);
	ASSERT_CMP(fi_compare_atomicmsg(ep, &msg, &ioc, &d, 1, &ioc, &d, 1, 0),
		   <, 0);
	ASSERT_CMP(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &n), <, 0);
	ASSERT_CMP(fi_fetch_atomicvalid(ep, FI_UINT64, FI_SUM, &n), <, 0);
	ASSERT_CMP(fi_compare_atomicvalid(ep, FI_UINT64, FI_CSWAP, &n), <, 0);
	expect_no_comp(cli.cq, 10);
	return pair_close();
}

static int collective_ops(void)
{
	struct fid_ep *ep;
	struct fid_mc *mc;
	void *d;
	void *p;

	if (!is_vrc())
		return skip("%s has holes", provider());
	pair_open(NULL, 4096);
	ep = cli.ep;
	d = tx.desc;
	p = tx.p;
	ASSERT_CMP(fi_barrier(ep, 0, NULL), <, 0);
	ASSERT_CMP(fi_broadcast(ep, p, 1, d, 0, 0, FI_UINT8, 0, NULL), <, 0);
	ASSERT_CMP(fi_alltoall(ep, p, 1, d, p, d, 0, FI_UINT8, 0, NULL), <, 0);
	ASSERT_CMP(fi_allreduce(ep, p, 1, d, p, d, 0, FI_UINT8, FI_SUM, 0,
				NULL), <, 0);
	ASSERT_CMP(fi_allgather(ep, p, 1, d, p, d, 0, FI_UINT8, 0, NULL), <,
		   0);
	ASSERT_CMP(fi_reduce_scatter(ep, p, 1, d, p, d, 0, FI_UINT8, FI_SUM,
				     0, NULL), <, 0);
	ASSERT_CMP(fi_reduce(ep, p, 1, d, p, d, 0, 0, FI_UINT8, FI_SUM, 0,
			     NULL), <, 0);
	ASSERT_CMP(fi_scatter(ep, p, 1, d, p, d, 0, 0, FI_UINT8, 0, NULL), <,
		   0);
	ASSERT_CMP(fi_gather(ep, p, 1, d, p, d, 0, 0, FI_UINT8, 0, NULL), <,
		   0);
	ASSERT_CMP(fi_join(ep, p, FI_COLLECTIVE, &mc, NULL), <, 0);
	return pair_close();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(tables), CASE(tables_of_later), CASE(fid_classes),
		CASE(common_ops),
		CASE(fabric_and_domain), CASE(mr_ops), CASE(endpoint_ops),
		CASE(tagged_ops), CASE(atomic_ops), CASE(collective_ops),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
