/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a program gets wrong: each is refused with an errno that fits and never
 * with "try again", nothing crashes, and the object is none the worse.
 */
#include <limits.h>
#include <sys/socket.h>

#include "pair.h"

/* The connection still works, and nothing strange is in the queues. */
static int close_all(void)
{
	struct comp c;

	expect_no_comp(cli.cq, 0);
	expect_no_comp(srv.cq, 0);
	fill(tx.p, 100, 1);
	post_recv(&srv, &rx, 0, 100, &rx);
	post_send(&cli, &tx, 0, 100, &tx);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, &c);
	ASSERT_FILLED(rx.p, 100, 1);
	return pair_close();
}

static int only_vrc(void)
{
	return skip("%s leaves this undefined", provider());
}

#define ASSERT_REFUSED(call)                                         \
	do {                                                         \
		ssize_t ret_ = (call);                               \
		check_cmp(__FILE__, __LINE__, #call " < 0", ret_, "<", 0); \
		check_cmp(__FILE__, __LINE__, #call " != -FI_EAGAIN", ret_, \
			  "!=", -FI_EAGAIN);                         \
	} while (0)

/* fi_enable(3): -FI_ENOCQ, -FI_ENOEQ for what is not bound. */
static int enable_unbound(void)
{
	struct fid_ep *ep;
	uint64_t cq_flags[] = { 0, FI_TRANSMIT, FI_RECV };

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	for (size_t i = 0; i < ARRAY_SIZE(cq_flags); i++) {
		ASSERT_OK(fi_endpoint(cli.domain, cli.info, &ep, NULL));
		ASSERT_OK(fi_ep_bind(ep, &cli.evq->eq->fid, 0));
		if (cq_flags[i])
			ASSERT_OK(fi_ep_bind(ep, &cli.cq->fid, cq_flags[i]));
		ASSERT_EQ(fi_enable(ep), -FI_ENOCQ);
		if (is_vrc())
			ASSERT_EQ(fi_connect(ep, cli.info->dest_addr, NULL, 0),
				  -FI_ENOCQ);
		/* Binding what was missing makes it good. */
		if (!(cq_flags[i] & FI_TRANSMIT))
			ASSERT_OK(fi_ep_bind(ep, &cli.cq->fid, FI_TRANSMIT));
		if (!(cq_flags[i] & FI_RECV))
			ASSERT_OK(fi_ep_bind(ep, &cli.cq->fid, FI_RECV));
		ASSERT_OK(fi_enable(ep));
		ASSERT_OK(fi_close(&ep->fid));
	}
	ASSERT_OK(fi_endpoint(cli.domain, cli.info, &ep, NULL));
	ASSERT_OK(fi_ep_bind(ep, &cli.cq->fid, FI_TRANSMIT | FI_RECV));
	if (is_vrc())
		ASSERT_EQ(fi_enable(ep), -FI_ENOEQ);
	ASSERT_OK(fi_close(&ep->fid));
	close_pair(&srv, &cli);
	return PASSED;
}

static int bind_wrong(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA };
	struct fid_cq *other;
	struct fid_ep *ep;
	struct buf b;

	if (!is_vrc())
		return only_vrc();
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	buf_open(&cli, &b, 64, ALL_ACCESS);
	ASSERT_OK(fi_cq_open(cli.domain, &attr, &other, NULL));
	ASSERT_OK(fi_endpoint(cli.domain, cli.info, &ep, NULL));
	/* Things that an endpoint is not bound to, and no direction. */
	ASSERT_REFUSED(fi_ep_bind(ep, &cli.fabric->fid, 0));
	ASSERT_REFUSED(fi_ep_bind(ep, &cli.domain->fid, 0));
	ASSERT_REFUSED(fi_ep_bind(ep, &ep->fid, 0));
	ASSERT_REFUSED(fi_ep_bind(ep, &b.mr->fid, 0));
	ASSERT_REFUSED(fi_ep_bind(ep, &cli.cq->fid, 0));
	ASSERT_REFUSED(fi_ep_bind(ep, &cli.cq->fid, FI_SELECTIVE_COMPLETION));
	ASSERT_REFUSED(fi_ep_bind(ep, &cli.cq->fid, FI_TRANSMIT | FI_MORE));
	/* Twice: a single queue for a type of operation. */
	ASSERT_OK(fi_ep_bind(ep, &cli.cq->fid, FI_TRANSMIT));
	ASSERT_REFUSED(fi_ep_bind(ep, &other->fid, FI_TRANSMIT));
	ASSERT_OK(fi_ep_bind(ep, &other->fid, FI_RECV));
	ASSERT_REFUSED(fi_ep_bind(ep, &cli.cq->fid, FI_RECV));
	ASSERT_OK(fi_ep_bind(ep, &cli.evq->eq->fid, 0));
	ASSERT_REFUSED(fi_ep_bind(ep, &cli.evq->eq->fid, 0));
	ASSERT_OK(fi_enable(ep));
	/* Too late. */
	ASSERT_REFUSED(fi_ep_bind(ep, &cli.cq->fid, FI_TRANSMIT));
	ASSERT_OK(fi_close(&ep->fid));
	/* A queue of another domain. */
	ASSERT_OK(fi_endpoint(cli.domain, cli.info, &ep, NULL));
	ASSERT_REFUSED(fi_ep_bind(ep, &srv.cq->fid, FI_TRANSMIT | FI_RECV));
	ASSERT_OK(fi_close(&ep->fid));
	ASSERT_OK(fi_close(&other->fid));
	buf_close(&b);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Before fi_enable nothing is taken; before FI_CONNECTED no send. */
static int too_early(void)
{
	struct fid_ep *ep;
	struct buf b;

	if (!is_vrc())
		return only_vrc();
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	buf_open(&cli, &b, 64, ALL_ACCESS);
	ASSERT_OK(fi_endpoint(cli.domain, cli.info, &ep, NULL));
	for (int enabled = 0; enabled < 2; enabled++) {
		if (!enabled)
			ASSERT_REFUSED(fi_recv(ep, b.p, 8, b.desc, 0, NULL));
		ASSERT_CMP(fi_send(ep, b.p, 8, b.desc, 0, NULL), <, 0);
		ASSERT_CMP(fi_inject(ep, b.p, 8, 0), <, 0);
		ASSERT_CMP(fi_write(ep, b.p, 8, b.desc, 0, b.addr, b.key,
				    NULL), <, 0);
		ASSERT_CMP(fi_read(ep, b.p, 8, b.desc, 0, b.addr, b.key,
				   NULL), <, 0);
		ASSERT_CMP(fi_inject_write(ep, b.p, 8, 0, b.addr, b.key), <,
			   0);
		if (enabled)
			break;
		ASSERT_OK(fi_ep_bind(ep, &cli.evq->eq->fid, 0));
		ASSERT_OK(fi_ep_bind(ep, &cli.cq->fid, FI_TRANSMIT | FI_RECV));
		ASSERT_OK(fi_enable(ep));
	}
	expect_no_comp(cli.cq, 20);
	ASSERT_OK(fi_close(&ep->fid));
	expect_no_comp(cli.cq, 0);
	buf_close(&b);
	close_pair(&srv, &cli);
	return PASSED;
}

static int iov_over_limit(void)
{
	enum { MAX = 64 };
	struct iovec iov[MAX];
	void *desc[MAX];
	struct fi_rma_iov target = { 0 };
	struct fi_msg msg = { .msg_iov = iov, .desc = desc };
	struct fi_msg_rma rma = {
		.msg_iov = iov, .desc = desc, .rma_iov = &target,
		.rma_iov_count = 1,
	};

	if (!is_vrc())
		return only_vrc();
	pair_open(NULL, 8192);
	target = (struct fi_rma_iov){ rx.addr, MAX, rx.key };
	for (size_t i = 0; i < MAX; i++) {
		iov[i] = (struct iovec){ tx.p + i, 1 };
		desc[i] = tx.desc;
	}
	for (size_t cnt = cli.info->tx_attr->iov_limit + 1; cnt <= MAX;
	     cnt += 7) {
		msg.iov_count = cnt;
		rma.iov_count = cnt;
		ASSERT_EQ(fi_sendv(cli.ep, iov, desc, cnt, 0, NULL),
			  -FI_EINVAL);
		ASSERT_EQ(fi_sendmsg(cli.ep, &msg, FI_COMPLETION), -FI_EINVAL);
		ASSERT_EQ(fi_recvv(cli.ep, iov, desc, cnt, 0, NULL),
			  -FI_EINVAL);
		ASSERT_EQ(fi_recvmsg(cli.ep, &msg, 0), -FI_EINVAL);
		ASSERT_EQ(fi_writev(cli.ep, iov, desc, cnt, 0, rx.addr, rx.key,
				    NULL), -FI_EINVAL);
		ASSERT_EQ(fi_readv(cli.ep, iov, desc, cnt, 0, rx.addr, rx.key,
				   NULL), -FI_EINVAL);
		ASSERT_EQ(fi_writemsg(cli.ep, &rma, 0), -FI_EINVAL);
		ASSERT_EQ(fi_readmsg(cli.ep, &rma, 0), -FI_EINVAL);
	}
	rma.iov_count = 1;
	rma.rma_iov_count = cli.info->tx_attr->rma_iov_limit + 1;
	ASSERT_EQ(fi_writemsg(cli.ep, &rma, 0), -FI_EINVAL);
	ASSERT_EQ(fi_readmsg(cli.ep, &rma, 0), -FI_EINVAL);
	return close_all();
}

/* Lengths no message can have; above 4 GiB it must not be cut to 32 bits. */
static int huge_lengths(void)
{
	static const size_t lens[] = {
		SIZE_MAX, SIZE_MAX / 2, (1ULL << 32) + 4, 1ULL << 40,
	};

	if (!is_vrc())
		return only_vrc();
	pair_open(NULL, 8192);
	ASSERT_CMP(cli.info->ep_attr->max_msg_size, <, 1ULL << 32);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		size_t len = lens[i];
		struct iovec iov[2] = { { tx.p, len }, { tx.p, 8 } };
		void *desc[2] = { tx.desc, tx.desc };

		ASSERT_EQ(fi_send(cli.ep, tx.p, len, tx.desc, 0, NULL),
			  -FI_EMSGSIZE);
		ASSERT_EQ(fi_write(cli.ep, tx.p, len, tx.desc, 0, rx.addr,
				   rx.key, NULL), -FI_EMSGSIZE);
		ASSERT_EQ(fi_read(cli.ep, tx.p, len, tx.desc, 0, rx.addr,
				  rx.key, NULL), -FI_EMSGSIZE);
		/* The sum may wrap around to something small. */
		ASSERT_EQ(fi_sendv(cli.ep, iov, desc, 2, 0, NULL),
			  -FI_EMSGSIZE);
		ASSERT_EQ(fi_writev(cli.ep, iov, desc, 2, 0, rx.addr, rx.key,
				    NULL), -FI_EMSGSIZE);
		ASSERT_REFUSED(fi_inject(cli.ep, tx.p, len, 0));
		ASSERT_REFUSED(fi_inject_write(cli.ep, tx.p, len, 0, rx.addr,
					       rx.key));
		ASSERT_REFUSED(fi_recv(cli.ep, tx.p, len, tx.desc, 0, NULL));
	}
	return close_all();
}

/* One more than max_msg_size. */
static int over_max_msg_size(void)
{
	size_t max;

	if (!is_vrc())
		return only_vrc();
	pair_open(NULL, 8192);
	max = cli.info->ep_attr->max_msg_size;
	ASSERT_EQ(fi_send(cli.ep, tx.p, max + 1, tx.desc, 0, NULL),
		  -FI_EMSGSIZE);
	ASSERT_EQ(fi_write(cli.ep, tx.p, max + 1, tx.desc, 0, rx.addr, rx.key,
			   NULL), -FI_EMSGSIZE);
	return close_all();
}

/* Less than the device's, because the program said so: as small as they are, each
 * is one too many. */
static int over_own_limits(void)
{
	enum { INJECT = 20, MAX = 32 };

	if (!is_vrc())
		return only_vrc();
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	cli.info->tx_attr->inject_size = INJECT;
	cli.info->ep_attr->max_msg_size = MAX;
	connect_pair(&srv, &cli);
	buf_open(&cli, &tx, MAX + 1, ALL_ACCESS);
	buf_open(&srv, &rx, MAX + 1, ALL_ACCESS);
	ASSERT_EQ(fi_inject(cli.ep, tx.p, INJECT + 1, 0), -FI_EMSGSIZE);
	ASSERT_EQ(fi_inject_write(cli.ep, tx.p, INJECT + 1, 0, rx.addr, rx.key),
		  -FI_EMSGSIZE);
	ASSERT_EQ(fi_send(cli.ep, tx.p, MAX + 1, tx.desc, 0, NULL),
		  -FI_EMSGSIZE);
	ASSERT_EQ(fi_write(cli.ep, tx.p, MAX + 1, tx.desc, 0, rx.addr, rx.key,
			   NULL), -FI_EMSGSIZE);
	ASSERT_EQ(fi_read(cli.ep, tx.p, MAX + 1, tx.desc, 0, rx.addr, rx.key,
			  NULL), -FI_EMSGSIZE);
	ASSERT_EQ(fi_recv(cli.ep, tx.p, MAX + 1, tx.desc, 0, NULL),
		  -FI_EMSGSIZE);
	ASSERT_OK(fi_write(cli.ep, tx.p, MAX, tx.desc, 0, rx.addr, rx.key,
			   &tx));
	expect_ok(cli.cq, &tx, FI_WRITE | FI_RMA, NULL);
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

static bool needs_desc(void)
{
	return cli.info->domain_attr->mr_mode & FI_MR_LOCAL;
}

/* The call is refused, or the operation is completed with an error and the
 * connection is made anew. */
static void refused_somehow(ssize_t ret)
{
	struct comp c;

	ASSERT_NE(ret, -FI_EAGAIN);
	ASSERT_LE(ret, 0);
	if (ret)
		return;
	expect_comp(cli.cq, &c);
	ASSERT_CMP(c.err, >, 0);
	close_ep(&cli);
	close_ep(&srv);
	while (poll_comp(srv.cq, &c) || poll_comp(cli.cq, &c))
		ASSERT_CMP(c.err, >, 0);
	connect_pair(&srv, &cli);
}

/* A descriptor that looks good: what is wrong with it is found out by the
 * device, once the peer has a receive. */
static void send_refused(void *p, size_t len, void *desc)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(3000) * 1000;
	ssize_t ret;

	post_recv(&srv, &rx, 0, len, &rx);
	do
		ret = fi_send(cli.ep, p, len, desc, 0, p);
	while (ret == -FI_EAGAIN && now_us() < end);
	refused_somehow(ret);
}

/* Descriptors that are none. Never a crash, never somebody else's memory. */
static int wrong_desc(void)
{
	void *bad[] = {
		NULL, (void *)1, (void *)0x1234, (void *)-1,
		(void *)0xdeadbeefdeadbeef, &bad,
	};
	struct fid_mr *mr;
	uint8_t *p = malloc(8192);

	ASSERT(p);
	if (!is_vrc())
		return only_vrc();
	pair_open(NULL, 8192);
	if (!needs_desc()) {
		free(p);
		close_all();
		return skip("descriptors are not needed");
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refused_somehow(fi_send(cli.ep, p, 8192, bad[i], 0, p));
		refused_somehow(fi_write(cli.ep, p, 8192, bad[i], 0, rx.addr,
					 rx.key, p));
		refused_somehow(fi_read(cli.ep, p, 8192, bad[i], 0, rx.addr,
					rx.key, p));
		if (bad[i])
			ASSERT_REFUSED(fi_recv(cli.ep, p, 8192, bad[i], 0, p));
	}
	/* A good one of another domain. */
	refused_somehow(fi_send(cli.ep, rx.p, 8192, rx.desc, 0, p));
	/* A good one for other memory. */
	send_refused(p, 8192, tx.desc);
	/* One that is no more. */
	ASSERT_OK(fi_mr_reg(cli.domain, p, 8192, ALL_ACCESS, 0, 99, 0, &mr,
			    NULL));
	bad[0] = fi_mr_desc(mr);
	ASSERT_OK(fi_close(&mr->fid));
	send_refused(p, 8192, bad[0]);
	free(p);
	return close_all();
}

/* The array of descriptors may be missing altogether; sends of nothing need
 * neither memory nor descriptor. */
static int null_desc_array(void)
{
	struct iovec iov = { NULL, 0 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &tx };
	struct comp c;

	if (!is_vrc())
		return only_vrc();
	pair_open(NULL, 8192);
	for (int i = 0; i < 5; i++) {
		ASSERT_OK(fi_recv(srv.ep, NULL, 0, NULL, 0, &rx));
		switch (i) {
		case 0:
			ASSERT_TAKEN(fi_sendmsg(cli.ep, &msg, FI_COMPLETION));
			break;
		case 1:
			ASSERT_TAKEN(fi_sendv(cli.ep, &iov, NULL, 1, 0, &tx));
			break;
		case 2:
			ASSERT_TAKEN(fi_sendv(cli.ep, NULL, NULL, 0, 0, &tx));
			break;
		case 3:
			msg.msg_iov = NULL;
			msg.iov_count = 0;
			ASSERT_TAKEN(fi_sendmsg(cli.ep, &msg, FI_COMPLETION));
			break;
		default:
			/* Small enough to inject: no local key is needed. */
			iov = (struct iovec){ tx.p, 8 };
			msg.msg_iov = &iov;
			msg.iov_count = 1;
			ASSERT_OK(fi_recv(srv.ep, rx.p, 8, rx.desc, 0, &srv));
			ASSERT_TAKEN(fi_inject(cli.ep, NULL, 0, 0));
			ASSERT_TAKEN(fi_sendmsg(cli.ep, &msg,
						FI_INJECT | FI_COMPLETION));
			expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, &c);
			ASSERT_EQ(c.len, 0);
			expect_ok(srv.cq, &srv, FI_RECV | FI_MSG, &c);
			ASSERT_EQ(c.len, 8);
			break;
		}
		expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
		if (i < 4)
			expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
	}
	return close_all();
}

/* Flags that ask for what is not offered: ignoring them would be a lie. */
static int bad_flags(void)
{
	struct iovec iov;
	struct fi_rma_iov target;
	struct fi_msg msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.context = &tx,
	};
	struct fi_msg_rma rma = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.rma_iov = &target, .rma_iov_count = 1, .context = &tx,
	};

	if (!is_vrc())
		return only_vrc();
	pair_open(NULL, 8192);
	iov = (struct iovec){ tx.p, 8 };
	target = (struct fi_rma_iov){ rx.addr, 8, rx.key };
	ASSERT_REFUSED(fi_sendmsg(cli.ep, &msg, FI_TRIGGER));
	ASSERT_REFUSED(fi_sendmsg(cli.ep, &msg, FI_MULTICAST));
	ASSERT_REFUSED(fi_sendmsg(cli.ep, &msg, FI_MATCH_COMPLETE));
	ASSERT_REFUSED(fi_recvmsg(cli.ep, &msg, FI_TRIGGER));
	ASSERT_REFUSED(fi_recvmsg(cli.ep, &msg, FI_MULTI_RECV));
	ASSERT_REFUSED(fi_recvmsg(cli.ep, &msg, FI_CLAIM));
	ASSERT_REFUSED(fi_recvmsg(cli.ep, &msg, FI_PEEK));
	ASSERT_REFUSED(fi_writemsg(cli.ep, &rma, FI_TRIGGER));
	ASSERT_REFUSED(fi_writemsg(cli.ep, &rma, FI_COMMIT_COMPLETE));
	ASSERT_REFUSED(fi_readmsg(cli.ep, &rma, FI_TRIGGER));
	ASSERT_REFUSED(fi_sendmsg(cli.ep, &msg, 1ULL << 63));
	ASSERT_REFUSED(fi_recvmsg(cli.ep, &msg, 1ULL << 63));
	ASSERT_REFUSED(fi_writemsg(cli.ep, &rma, 1ULL << 63));
	ASSERT_REFUSED(fi_readmsg(cli.ep, &rma, 1ULL << 63));
	return close_all();
}

/* Opening things from the wrong description. */
/* fi_endpoint refuses info with that field changed. */
#define REFUSES(field, value)                                                 \
	do {                                                                  \
		info->field = value;                                          \
		ASSERT_REFUSED(fi_endpoint(cli.domain, info, &ep, NULL));     \
		info->field = cli.info->field;                                \
	} while (0)

static int wrong_info(void)
{
	struct fid_domain *domain;
	struct fid_fabric *fabric;
	struct fi_info *info;
	struct fid_ep *ep;

	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	info = fi_dupinfo(cli.info);
	ASSERT(info);
	info->ep_attr->type = FI_EP_DGRAM;
	ASSERT_REFUSED(fi_endpoint(cli.domain, info, &ep, NULL));
	info->ep_attr->type = FI_EP_MSG;
	if (is_vrc()) {
		REFUSES(tx_attr->size, SIZE_MAX);
		REFUSES(tx_attr->size, 0);
		REFUSES(rx_attr->size, SIZE_MAX);
		REFUSES(rx_attr->iov_limit, SIZE_MAX);
		REFUSES(tx_attr->iov_limit, 0);
		REFUSES(tx_attr->rma_iov_limit, 2);
		REFUSES(tx_attr->inject_size, SIZE_MAX);
		/* What is longer than the device's would be cut. */
		REFUSES(ep_attr->max_msg_size, SIZE_MAX);
		REFUSES(ep_attr->max_msg_size,
			cli.info->ep_attr->max_msg_size + 1);
		REFUSES(ep_attr->rx_ctx_cnt, 2);
		REFUSES(ep_attr->tx_ctx_cnt, 2);
		REFUSES(tx_attr->op_flags, FI_COMMIT_COMPLETE);
		REFUSES(rx_attr->op_flags, FI_MULTI_RECV);
		REFUSES(caps, cli.info->caps | FI_TAGGED);
		ASSERT_OK(fi_endpoint(cli.domain, info, &ep, NULL));
		ASSERT_OK(fi_close(&ep->fid));
		info->domain_attr->threading = 99;
		ASSERT_REFUSED(fi_domain(cli.fabric, info, &domain, NULL));
		info->domain_attr->threading = cli.info->domain_attr->threading;
		free(info->domain_attr->name);
		info->domain_attr->name = strdup("no-such-domain");
		ASSERT_REFUSED(fi_domain(cli.fabric, info, &domain, NULL));
		free(info->fabric_attr->name);
		info->fabric_attr->name = strdup("no-such-fabric");
		ASSERT_REFUSED(fi_fabric(info->fabric_attr, &fabric, NULL));
	}
	fi_freeinfo(info);
	connect_pair(&srv, &cli);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Where the man pages want a pointer or a size, and there is none. */
static int no_pointer(void)
{
	struct setup how = { .cq_wait = FI_WAIT_FD };
	uint16_t family = AF_INET;
	size_t size = sizeof(size_t);

	if (!is_vrc())
		return only_vrc();
	open_passive(&srv, &how);
	make_ep(&srv, srv.info);
	ASSERT_REFUSED(fi_control(&srv.cq->fid, FI_GETWAIT, NULL));
	ASSERT_REFUSED(fi_control(&srv.cq->fid, FI_GETWAITOBJ, NULL));
	ASSERT_REFUSED(fi_control(&srv.evq->eq->fid, FI_GETWAIT, NULL));
	ASSERT_REFUSED(fi_getopt(&srv.ep->fid, FI_OPT_ENDPOINT,
				 FI_OPT_CM_DATA_SIZE, NULL, &size));
	ASSERT_REFUSED(fi_getopt(&srv.ep->fid, FI_OPT_ENDPOINT,
				 FI_OPT_CM_DATA_SIZE, &size, NULL));
	ASSERT_REFUSED(fi_setname(&srv.ep->fid, &family, 0));
	ASSERT_REFUSED(fi_setname(&srv.ep->fid, &family, sizeof(family)));
	ASSERT_REFUSED(fi_setname(&srv.ep->fid, NULL, 16));
	ASSERT(fi_eq_strerror(srv.evq->eq, INT_MIN, NULL, NULL, 0));
	ASSERT(fi_cq_strerror(srv.cq, INT_MIN, NULL, NULL, 0));
	close_end(&srv);
	return PASSED;
}

static int connect_nowhere(void)
{
	struct sockaddr_storage addr;
	struct fid_ep *ep;

	if (!is_vrc())
		return only_vrc();
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	make_ep(&cli, cli.info);
	ep = cli.ep;
	memset(&addr, 0, sizeof(addr));
	addr.ss_family = AF_UNIX;
	ASSERT_REFUSED(fi_connect(ep, &addr, NULL, 0));
	addr.ss_family = 0x7777;
	ASSERT_REFUSED(fi_connect(ep, &addr, NULL, 0));
	ASSERT_REFUSED(fi_connect(ep, cli.info->dest_addr, NULL, 5));
	connect_pair(&srv, &cli); /* the endpoint is still good */
	close_pair(&srv, &cli);
	return PASSED;
}

static int listen_wrong(void)
{
	struct fid_pep *pep;

	if (!is_vrc())
		return only_vrc();
	open_passive(&srv, NULL);
	ASSERT_OK(fi_passive_ep(srv.fabric, srv.info, &pep, NULL));
	ASSERT_REFUSED(fi_listen(pep)); /* no event queue */
	ASSERT_REFUSED(fi_pep_bind(pep, &srv.cq->fid, 0));
	ASSERT_REFUSED(fi_pep_bind(pep, &srv.fabric->fid, 0));
	ASSERT_REFUSED(fi_reject(pep, NULL, NULL, 0));
	ASSERT_REFUSED(fi_reject(pep, &pep->fid, NULL, 0));
	ASSERT_OK(fi_pep_bind(pep, &srv.evq->eq->fid, 0));
	ASSERT_REFUSED(fi_pep_bind(pep, &srv.evq->eq->fid, 0));
	ASSERT_OK(fi_listen(pep));
	ASSERT_REFUSED(fi_listen(pep));
	ASSERT_OK(fi_close(&pep->fid));
	close_end(&srv);
	return PASSED;
}

/* What is in use is busy, says so as often as it is asked, and stays good. */
static int close_busy(void)
{
	if (!is_vrc())
		return skip("tcp 1.17 frees something twice");
	pair_open(NULL, 8192);
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(fi_close(&cli.fabric->fid), -FI_EBUSY);
		ASSERT_EQ(fi_close(&cli.domain->fid), -FI_EBUSY);
		ASSERT_EQ(fi_close(&cli.cq->fid), -FI_EBUSY);
		ASSERT_EQ(fi_close(&cli.evq->eq->fid), -FI_EBUSY);
		ASSERT_EQ(fi_close(&srv.evq->eq->fid), -FI_EBUSY);
		ASSERT_EQ(fi_close(&srv.domain->fid), -FI_EBUSY);
	}
	return close_all();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(enable_unbound), CASE(bind_wrong), CASE(too_early),
		CASE(iov_over_limit), CASE(huge_lengths),
		CASE(over_max_msg_size), CASE(over_own_limits),
		CASE(wrong_desc),
		CASE(null_desc_array), CASE(bad_flags), CASE(wrong_info), CASE(no_pointer),
		CASE(connect_nowhere), CASE(listen_wrong), CASE(close_busy),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
