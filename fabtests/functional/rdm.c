/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Reliable datagrams: what libfabric's ofi_rxm makes of a provider's connected
 * endpoints, which is how MPI uses it. All nodes are in one process, but for one
 * that is killed, and whoever waits for one reads the completion queues of all.
 */
#include <signal.h>

#include <rdma/fi_atomic.h>

#include "common.h"

enum {
	NODES = 4,
	LONGEST = 4 << 20,
	WAITING = 4096, /* completions that nobody has asked for yet */
	NAME_MAX_LEN = 64,
	MULTI_RECV_MIN = 100,
};

struct node {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peers[NODES];
	struct fi_cq_tagged_entry got[WAITING];
	unsigned int got_cnt;
	char name[NAME_MAX_LEN];
	size_t name_len;
};

static struct node nodes[NODES];
static unsigned int node_cnt;

static const char *layered(void)
{
	static char name[64];

	snprintf(name, sizeof(name), "%s%s", provider(),
		 strchr(provider(), ';') ? "" : ";ofi_rxm");
	return name;
}

static struct fi_info *rdm_info(const char *service)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_info *info;

	ASSERT(hints);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode =
		FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup(layered());
	if (fi_getinfo(TEST_API, test_addr(), service, FI_SOURCE, hints, &info))
		info = NULL;
	fi_freeinfo(hints);
	return info;
}

static void open_node(struct node *n, const char *service)
{
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_TAGGED,
		.size = WAITING,
	};
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = NODES };
	size_t min = MULTI_RECV_MIN;

	n->info = rdm_info(service);
	ASSERT(n->info);
	ASSERT_OK(fi_fabric(n->info->fabric_attr, &n->fabric, NULL));
	ASSERT_OK(fi_domain(n->fabric, n->info, &n->domain, NULL));
	ASSERT_OK(fi_cq_open(n->domain, &cq_attr, &n->cq, NULL));
	ASSERT_OK(fi_av_open(n->domain, &av_attr, &n->av, NULL));
	ASSERT_OK(fi_endpoint(n->domain, n->info, &n->ep, NULL));
	ASSERT_OK(fi_ep_bind(n->ep, &n->av->fid, 0));
	ASSERT_OK(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV));
	/* ofi_rxm of 2.x looks at this when it is enabled, and not later. */
	if (n->info->caps & FI_MULTI_RECV)
		ASSERT_OK(fi_setopt(&n->ep->fid, FI_OPT_ENDPOINT,
				    FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)));
	ASSERT_OK(fi_enable(n->ep));
	n->name_len = sizeof(n->name);
	ASSERT_OK(fi_getname(&n->ep->fid, n->name, &n->name_len));
	n->got_cnt = 0;
}

/* False: there is no such provider, and the case says so. */
static bool open_nodes(unsigned int cnt)
{
	struct fi_info *info = rdm_info(NULL);

	if (!info)
		return false;
	fi_freeinfo(info);
	node_cnt = cnt;
	for (unsigned int i = 0; i < cnt; i++)
		open_node(&nodes[i], NULL);
	for (unsigned int i = 0; i < cnt; i++)
		for (unsigned int k = 0; k < cnt; k++)
			ASSERT_EQ(fi_av_insert(nodes[i].av, nodes[k].name, 1,
					       &nodes[i].peers[k], 0, NULL),
				  1);
	return true;
}

static int no_provider(void)
{
	return skip("there is no %s", layered());
}

static void close_node(struct node *n)
{
	ASSERT_OK(fi_close(&n->ep->fid));
	ASSERT_OK(fi_close(&n->cq->fid));
	ASSERT_OK(fi_close(&n->av->fid));
	ASSERT_OK(fi_close(&n->domain->fid));
	ASSERT_OK(fi_close(&n->fabric->fid));
	fi_freeinfo(n->info);
}

static int close_nodes(void)
{
	for (unsigned int i = 0; i < node_cnt; i++)
		close_node(&nodes[i]);
	return PASSED;
}

/* Errors are failures unless the case expects them. */
static bool errors_expected;
static unsigned int error_cnt;

static void read_error(struct node *n)
{
	struct fi_cq_err_entry err = { 0 };
	char text[128];

	ASSERT_EQ(fi_cq_readerr(n->cq, &err, 0), 1);
	error_cnt++;
	if (!errors_expected)
		FAIL("node %td: completion error %d (%s), %d (%s)", n - nodes,
		     err.err, fi_strerror(err.err), err.prov_errno,
		     fi_cq_strerror(n->cq, err.prov_errno, err.err_data, text,
				    sizeof(text)));
}

static void poll_all(void)
{
	for (unsigned int i = 0; i < node_cnt; i++) {
		struct node *n = &nodes[i];
		ssize_t ret;

		if (n->got_cnt == WAITING)
			FAIL("node %u: more than %d completions", i, WAITING);
		ret = fi_cq_read(n->cq, &n->got[n->got_cnt], 1);
		if (ret == 1)
			n->got_cnt++;
		else if (ret == -FI_EAVAIL)
			read_error(n);
		else
			ASSERT_EQ(ret, -FI_EAGAIN);
	}
}

/* Takes the completion with this context out of those that have come. */
static bool take(struct node *n, const void *context,
		 struct fi_cq_tagged_entry *out)
{
	for (unsigned int i = 0; i < n->got_cnt; i++) {
		if (n->got[i].op_context != context)
			continue;
		*out = n->got[i];
		memmove(&n->got[i], &n->got[i + 1],
			(--n->got_cnt - i) * sizeof(n->got[0]));
		return true;
	}
	return false;
}

static void expect(struct node *n, const void *context, uint64_t flags,
		   struct fi_cq_tagged_entry *out)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(10000) * 1000;
	struct fi_cq_tagged_entry entry;
	unsigned int turn = 0;

	while (!take(n, context, &entry)) {
		if (now_us() > end)
			FAIL("node %td: no completion for %p", n - nodes,
			     context);
		poll_all();
		relax(&turn);
	}
	ASSERT_EQ(entry.flags & flags, flags);
	if (out)
		*out = entry;
}

/* Posts; connecting goes on behind -FI_EAGAIN. */
#define POST(call)                                                         \
	do {                                                               \
		uint64_t end_ = now_us() + (uint64_t)slow_ms(10000) * 1000; \
		ssize_t ret_;                                              \
									   \
		while ((ret_ = (call)) == -FI_EAGAIN && now_us() < end_)   \
			poll_all();                                        \
		ASSERT_EQ(ret_, 0);                                        \
	} while (0)

static void send_one(unsigned int from, unsigned int to, uint8_t *tx,
		     uint8_t *rx, size_t len, uint32_t seed)
{
	static struct fi_context2 rx_context, tx_context;
	struct fi_cq_tagged_entry entry;

	fill(tx, len, seed);
	memset(rx, 0xee, len + 1);
	POST(fi_recv(nodes[to].ep, rx, len + 1, NULL, FI_ADDR_UNSPEC,
		     &rx_context));
	POST(fi_send(nodes[from].ep, tx, len, NULL, nodes[from].peers[to],
		     &tx_context));
	expect(&nodes[to], &rx_context, FI_RECV, &entry);
	ASSERT_EQ(entry.len, len);
	expect(&nodes[from], &tx_context, FI_SEND, NULL);
	ASSERT_FILLED(rx, len, seed);
	ASSERT_EQ(rx[len], 0xee);
}

/* Around where ofi_rxm changes its way: injected, eager, in parts, rendezvous. */
static const size_t sizes[] = {
	0, 1, 64, 1000, 16000, 16384, 16385, 65536, 131073, (1 << 20) + 5,
	LONGEST,
};

static void all_sizes(void)
{
	uint8_t *tx = malloc(LONGEST);
	uint8_t *rx = malloc(LONGEST + 1);

	ASSERT(tx && rx);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		send_one(0, 1, tx, rx, sizes[i], (uint32_t)i);
		send_one(1, 0, tx, rx, sizes[i], (uint32_t)i + 100);
	}
	free(tx);
	free(rx);
}

static int messages(void)
{
	if (!open_nodes(2))
		return no_provider();
	all_sizes();
	return close_nodes();
}

/* To oneself, too. */
static int to_itself(void)
{
	uint8_t tx[1000], rx[1001];

	if (!open_nodes(1))
		return no_provider();
	send_one(0, 0, tx, rx, sizeof(tx), 3);
	return close_nodes();
}

/* Several nodes that receive by one shared context each, ofi_rxm's option. */
static int shared_receives(void)
{
	uint8_t tx[20000], rx[20001];

	setenv("FI_OFI_RXM_USE_SRX", "1", 1);
	if (!open_nodes(NODES))
		return no_provider();
	for (unsigned int round = 0; round < 20; round++)
		for (unsigned int from = 0; from < NODES; from++)
			for (unsigned int to = 0; to < NODES; to++)
				send_one(from, to, tx, rx,
					 round % 2 ? 50 : sizeof(tx),
					 round * 16 + from * 4 + to);
	all_sizes();
	return close_nodes();
}

/* Posted in one order, sent in another; the last one takes any tag. */
static int tagged(void)
{
	enum { COUNT = 64, LEN = 700 };
	static struct fi_context2 rx_context[COUNT + 1];
	static struct fi_context2 tx_context;
	static uint8_t rx[COUNT + 1][LEN];
	uint8_t tx[LEN];
	struct fi_cq_tagged_entry entry;

	if (!open_nodes(2))
		return no_provider();
	for (uint64_t i = 0; i < COUNT; i++)
		POST(fi_trecv(nodes[1].ep, rx[i], LEN, NULL, FI_ADDR_UNSPEC, i,
			      0, &rx_context[i]));
	POST(fi_trecv(nodes[1].ep, rx[COUNT], LEN, NULL, FI_ADDR_UNSPEC,
		      0xabcd0000, 0xffff, &rx_context[COUNT]));
	for (uint64_t i = COUNT; i <= COUNT; i--) {
		uint64_t tag = i == COUNT ? 0xabcd1234 : i;

		fill(tx, LEN, (uint32_t)i);
		POST(fi_tsend(nodes[0].ep, tx, LEN, NULL, nodes[0].peers[1],
			      tag, &tx_context));
		expect(&nodes[0], &tx_context, FI_SEND | FI_TAGGED, NULL);
		expect(&nodes[1], &rx_context[i], FI_RECV | FI_TAGGED, &entry);
		ASSERT_EQ(entry.tag, tag);
		ASSERT_FILLED(rx[i], LEN, (uint32_t)i);
	}
	return close_nodes();
}

static int data_and_inject(void)
{
	static struct fi_context2 rx_context, tx_context;
	struct fi_cq_tagged_entry entry;
	uint8_t tx[64], rx[64];

	if (!open_nodes(2))
		return no_provider();
	for (uint64_t i = 0; i < 20; i++) {
		fill(tx, sizeof(tx), (uint32_t)i);
		POST(fi_recv(nodes[1].ep, rx, sizeof(rx), NULL, FI_ADDR_UNSPEC,
			     &rx_context));
		if (i % 2) {
			POST(fi_senddata(nodes[0].ep, tx, sizeof(tx), NULL, i,
					 nodes[0].peers[1], &tx_context));
			expect(&nodes[0], &tx_context, FI_SEND, NULL);
		} else {
			POST(fi_injectdata(nodes[0].ep, tx, sizeof(tx), i,
					   nodes[0].peers[1]));
		}
		memset(tx, 0, sizeof(tx));
		expect(&nodes[1], &rx_context, FI_RECV | FI_REMOTE_CQ_DATA,
		       &entry);
		ASSERT_EQ(entry.data, i);
		if (!(i % 2))
			ASSERT_FILLED(rx, sizeof(rx), (uint32_t)i);
	}
	return close_nodes();
}

/* Sent before there is a receive; more than the endpoint below has receives. */
static int unexpected(void)
{
	enum { COUNT = 600, LEN = 900 };
	static struct fi_context2 tx_context[COUNT], rx_context;
	static uint8_t tx[COUNT][LEN];
	struct fi_cq_tagged_entry entry;
	uint8_t rx[LEN];

	if (!open_nodes(2))
		return no_provider();
	for (unsigned int i = 0; i < COUNT; i++) {
		fill(tx[i], LEN, i);
		POST(fi_send(nodes[0].ep, tx[i], LEN, NULL, nodes[0].peers[1],
			     &tx_context[i]));
	}
	for (unsigned int i = 0; i < COUNT; i++) {
		POST(fi_recv(nodes[1].ep, rx, LEN, NULL, FI_ADDR_UNSPEC,
			     &rx_context));
		expect(&nodes[1], &rx_context, FI_RECV, &entry);
		ASSERT_EQ(entry.len, LEN);
		ASSERT_FILLED(rx, LEN, i);
	}
	for (unsigned int i = 0; i < COUNT; i++)
		expect(&nodes[0], &tx_context[i], FI_SEND, NULL);
	return close_nodes();
}

/* Everybody's first message is to everybody, at once: connections cross. */
static int all_at_once(void)
{
	static struct fi_context2 tx_context[NODES][NODES];
	static struct fi_context2 rx_context[NODES][NODES];
	static uint8_t tx[NODES][NODES][256], rx[NODES][NODES][256];
	bool sent[NODES][NODES] = { 0 };
	unsigned int left = NODES * NODES;
	unsigned int from_seen[NODES] = { 0 };
	uint64_t end = now_us() + (uint64_t)slow_ms(20000) * 1000;

	if (!open_nodes(NODES))
		return no_provider();
	for (unsigned int i = 0; i < NODES; i++)
		for (unsigned int k = 0; k < NODES; k++) {
			POST(fi_recv(nodes[i].ep, rx[i][k], 256, NULL,
				     FI_ADDR_UNSPEC, &rx_context[i][k]));
			fill(tx[i][k], 256, i * NODES + k);
		}
	for (; left && now_us() < end; poll_all())
		for (unsigned int i = 0; i < NODES * NODES; i++) {
			unsigned int from = i / NODES, to = i % NODES;
			ssize_t ret;

			if (sent[from][to])
				continue;
			ret = fi_send(nodes[from].ep, tx[from][to], 256, NULL,
				      nodes[from].peers[to],
				      &tx_context[from][to]);
			if (ret == -FI_EAGAIN)
				continue;
			ASSERT_EQ(ret, 0);
			sent[from][to] = true;
			left--;
		}
	ASSERT_EQ(left, 0);
	for (unsigned int i = 0; i < NODES; i++)
		for (unsigned int k = 0; k < NODES; k++) {
			expect(&nodes[i], &rx_context[i][k], FI_RECV, NULL);
			expect(&nodes[i], &tx_context[i][k], FI_SEND, NULL);
		}
	/* Each got one of each, in whatever order. */
	for (unsigned int i = 0; i < NODES; i++)
		for (unsigned int k = 0; k < NODES; k++) {
			unsigned int from = 0;

			while (from < NODES &&
			       !is_filled(rx[i][k], 256, from * NODES + i))
				from++;
			ASSERT_CMP(from, <, NODES);
			from_seen[from]++;
		}
	for (unsigned int i = 0; i < NODES; i++)
		ASSERT_EQ(from_seen[i], NODES);
	return close_nodes();
}

/* Memory of node 1 that node 0 reaches. */
struct target {
	uint8_t *p;
	struct fid_mr *mr;
	uint64_t addr;
	uint64_t key;
};

static void open_target(struct target *t, size_t len)
{
	t->p = calloc(1, len);
	ASSERT(t->p);
	ASSERT_OK(fi_mr_reg(nodes[1].domain, t->p, len,
			    FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 77, 0, &t->mr,
			    NULL));
	if (nodes[1].info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
		ASSERT_OK(fi_mr_bind(t->mr, &nodes[1].ep->fid, 0));
		ASSERT_OK(fi_mr_enable(t->mr));
	}
	t->key = fi_mr_key(t->mr);
	t->addr = nodes[1].info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
			  ? (uintptr_t)t->p
			  : 0;
}

static void close_target(struct target *t)
{
	ASSERT_OK(fi_close(&t->mr->fid));
	free(t->p);
}

static int rma(void)
{
	static struct fi_context2 context;
	uint8_t *buf = malloc(LONGEST);
	struct target t;

	ASSERT(buf);
	if (!open_nodes(2)) {
		free(buf);
		return no_provider();
	}
	open_target(&t, LONGEST);
	for (size_t i = 1; i < ARRAY_SIZE(sizes); i++) {
		fill(buf, sizes[i], (uint32_t)i);
		POST(fi_write(nodes[0].ep, buf, sizes[i], NULL,
			      nodes[0].peers[1], t.addr, t.key, &context));
		expect(&nodes[0], &context, FI_WRITE, NULL);
		memset(buf, 0, sizes[i]);
		POST(fi_read(nodes[0].ep, buf, sizes[i], NULL,
			     nodes[0].peers[1], t.addr, t.key, &context));
		expect(&nodes[0], &context, FI_READ, NULL);
		ASSERT_FILLED(buf, sizes[i], (uint32_t)i);
		ASSERT_FILLED(t.p, sizes[i], (uint32_t)i);
	}
	close_target(&t);
	free(buf);
	return close_nodes();
}

static int atomics(void)
{
	static struct fi_context2 context;
	uint64_t one = 1, old, expected = 10, hundred = 100;
	struct target t;

	if (!open_nodes(2))
		return no_provider();
	open_target(&t, 64);
	for (uint64_t i = 0; i < 10; i++) {
		POST(fi_fetch_atomic(nodes[0].ep, &one, 1, NULL, &old, NULL,
				     nodes[0].peers[1], t.addr, t.key,
				     FI_UINT64, FI_SUM, &context));
		expect(&nodes[0], &context, FI_ATOMIC, NULL);
		ASSERT_EQ(old, i);
	}
	POST(fi_compare_atomic(nodes[0].ep, &hundred, 1, NULL, &expected, NULL,
			       &old, NULL, nodes[0].peers[1], t.addr, t.key,
			       FI_UINT64, FI_CSWAP, &context));
	expect(&nodes[0], &context, FI_ATOMIC, NULL);
	ASSERT_EQ(old, 10);
	memcpy(&old, t.p, sizeof(old));
	ASSERT_EQ(old, 100);
	close_target(&t);
	return close_nodes();
}

/* One buffer for many messages. That it is full is said with the last of them, or,
 * by ofi_rxm of 2.x, beside it. */
static int multi_recv(void)
{
	enum { LEN = MULTI_RECV_MIN, COUNT = 12, BUFFER = LEN * COUNT };
	static struct fi_context2 rx_context, tx_context;
	static uint8_t rx[BUFFER];
	struct iovec iov = { rx, BUFFER };
	struct fi_msg msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = FI_ADDR_UNSPEC,
		.context = &rx_context,
	};
	uint8_t tx[LEN];
	struct fi_cq_tagged_entry entry;
	unsigned int arrived = 0, full = 0;

	if (!open_nodes(2))
		return no_provider();
	if (!(nodes[1].info->caps & FI_MULTI_RECV)) {
		close_nodes();
		return skip("%s has none", layered());
	}
	POST(fi_recvmsg(nodes[1].ep, &msg, FI_MULTI_RECV));
	for (unsigned int i = 0; i < COUNT; i++) {
		fill(tx, LEN, i);
		POST(fi_send(nodes[0].ep, tx, LEN, NULL, nodes[0].peers[1],
			     &tx_context));
		expect(&nodes[0], &tx_context, FI_SEND, NULL);
	}
	while (arrived < COUNT || !full) {
		expect(&nodes[1], &rx_context, 0, &entry);
		if (entry.flags & FI_MULTI_RECV)
			full++;
		if (!(entry.flags & FI_RECV))
			continue;
		ASSERT_EQ(entry.len, LEN);
		ASSERT_EQ((uint8_t *)entry.buf - rx, arrived * LEN);
		ASSERT_FILLED(entry.buf, LEN, arrived);
		arrived++;
	}
	ASSERT_EQ(arrived, COUNT);
	ASSERT_EQ(full, 1);
	return close_nodes();
}

static int peer_main(int sock, void *arg)
{
	struct node *n = &nodes[0];
	struct fi_info *info = rdm_info(NULL);
	unsigned int turn = 0;

	(void)arg;
	if (info) {
		fi_freeinfo(info);
		node_cnt = 1;
		open_node(n, NULL);
	}
	tell(sock, &n->name_len, sizeof(n->name_len));
	tell(sock, n->name, n->name_len);
	while (node_cnt) {
		poll_all();
		relax(&turn);
	}
	return 0;
}

/*
 * A peer dies before it has taken what was injected. ofi_rxm has no context for
 * what it injects, and must not be told of one that fails. What is sent behind it
 * is told, unless it went into a socket.
 */
static int injects_fail(void)
{
	enum { INJECTS = 50 };
	static struct fi_context2 context;
	struct fi_cq_tagged_entry entry;
	struct node *n = &nodes[0];
	uint8_t tx[1000] = { 0 };
	char name[NAME_MAX_LEN];
	unsigned int turn = 0;
	size_t name_len;
	struct peer p;
	uint64_t end;

	peer_start(&p, peer_main, NULL);
	hear(p.sock, &name_len, sizeof(name_len));
	if (!name_len) {
		peer_join(&p);
		return no_provider();
	}
	hear(p.sock, name, name_len);
	node_cnt = 1;
	open_node(n, NULL);
	ASSERT_EQ(fi_av_insert(n->av, name, 1, &n->peers[1], 0, NULL), 1);
	POST(fi_inject(n->ep, tx, 8, n->peers[1]));
	peer_kill(&p, SIGSTOP);
	for (unsigned int i = 0; i < INJECTS; i++)
		POST(fi_inject(n->ep, tx, 8, n->peers[1]));
	POST(fi_send(n->ep, tx, sizeof(tx), NULL, n->peers[1], &context));
	peer_kill(&p, SIGKILL);
	errors_expected = true;
	end = now_us() + (uint64_t)slow_ms(10000) * 1000;
	while (!error_cnt && !take(n, &context, &entry)) {
		if (now_us() > end)
			FAIL("the send to a dead peer never completed");
		poll_all();
		relax(&turn);
	}
	return close_nodes();
}

/*
 * A peer goes and another comes where it was. What was under way may fail; after
 * that, all is well.
 */
static int comes_back(void)
{
	static struct fi_context2 context;
	struct sockaddr_in addr;
	uint8_t tx[1000], rx[1001];
	char port[16];

	if (!open_nodes(2))
		return no_provider();
	if (nodes[1].name_len != sizeof(addr)) {
		close_nodes();
		return skip("the address is not one of IPv4");
	}
	memcpy(&addr, nodes[1].name, sizeof(addr));
	snprintf(port, sizeof(port), "%u", ntohs(addr.sin_port));
	send_one(0, 1, tx, rx, 1000, 1);
	send_one(1, 0, tx, rx, 1000, 2);
	/* Receives that will never be met. */
	POST(fi_recv(nodes[1].ep, rx, 1000, NULL, FI_ADDR_UNSPEC, &context));
	close_node(&nodes[1]);
	node_cnt = 1;
	errors_expected = true;
	for (uint64_t end = now_us() + 100000; now_us() < end;)
		poll_all();
	open_node(&nodes[1], port);
	ASSERT_EQ(fi_av_insert(nodes[1].av, nodes[0].name, 1,
			       &nodes[1].peers[0], 0, NULL), 1);
	node_cnt = 2;
	for (unsigned int i = 0; i < 20; i++) {
		send_one(0, 1, tx, rx, 1000, i);
		send_one(1, 0, tx, rx, 1000, i + 50);
	}
	return close_nodes();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(messages), CASE(to_itself), CASE_COLD(shared_receives),
		CASE(tagged), CASE(data_and_inject), CASE(unexpected),
		CASE(all_at_once), CASE(rma), CASE(atomics), CASE(multi_recv),
		CASE(injects_fail), CASE(comes_back), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
