/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connection management of active endpoints against a scripted rdma_cm: every
 * event in every state, orders that networks produce, and calls that fail.
 */
#include <criterion/criterion.h>

#include "fake.h"
#include "fake_alloc.h"
#include "vrc_cm.h"
#include "vrc_cmdata.h"
#include "vrc_pep.h"

static struct vrc_eq *eq;

static void init(void)
{
	fake_reset();
	eq = fake_eq(fake_fabric(), FI_WAIT_FD, 0);
}

static void fini(void)
{
	fake_eq_close(eq);
	fake_check_clean();
}

static const struct vrc_peer peer_vrc = { .features = 1, .posted = 128 };

/* The peer's answer, as vrc and verbs send it. */
static void answer(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		   int status, const char *data)
{
	uint8_t wire[VRC_CM_WIRE_SIZE];

	vrc_cmdata_encode(wire, data, strlen(data), &peer_vrc);
	fake_event(id, type, status, wire, sizeof(wire));
}

static void event(struct vrc_ep *ep, enum rdma_cm_event_type type)
{
	if (type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
	    type == RDMA_CM_EVENT_ESTABLISHED ||
	    type == RDMA_CM_EVENT_REJECTED)
		answer(ep->cm.id, type, type == RDMA_CM_EVENT_REJECTED ? 28 : 0,
		       "hi");
	else
		fake_event(ep->cm.id, type, 0, NULL, 0);
}

/* Lets everything that is queued happen; the queue must stay empty. */
static void settle(void)
{
	cr_assert_eq(fake_read(eq, NULL), -FI_EAGAIN);
}

static struct vrc_ep *open_ep(void)
{
	int ret;
	struct vrc_ep *ep = fake_ep(eq, NULL, &ret);

	cr_assert_eq(ret, 0);
	return ep;
}

static void start_connect(struct vrc_ep *ep, const void *data, size_t len)
{
	union vrc_sockaddr dst = fake_addr(9, 1234);

	cr_assert_eq(fi_connect(&ep->fid, &dst, data, len), 0);
	cr_assert_eq(ep->state, VRC_EP_CONNECTING);
}

static struct vrc_ep *connect_sent(void)
{
	struct vrc_ep *ep = open_ep();
	int before = fake.calls[FAKE_CONNECT];

	start_connect(ep, NULL, 0);
	event(ep, RDMA_CM_EVENT_ADDR_RESOLVED);
	event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED);
	settle();
	cr_assert_eq(fake.calls[FAKE_CONNECT], before + 1);
	return ep;
}

/* A request that waits for an answer, without a passive endpoint. */
static struct vrc_connreq *make_request(void)
{
	struct vrc_connreq *req = calloc(1, sizeof(*req));
	union vrc_sockaddr src = fake_addr(1, 1234), peer = fake_addr(9, 999);

	cr_assert(vrc_eq_channel(eq, &fake_ops));
	req->fid.fclass = FI_CLASS_CONNREQ;
	req->ops = &fake_ops;
	req->eq = eq;
	req->peer.posted = 77;
	req->responder_resources = 3;
	req->initiator_depth = 200;
	cr_assert_eq(fake_ops.create_id(vrc_eq_channel(eq, &fake_ops),
					&req->id, &req->fid, RDMA_PS_TCP), 0);
	memcpy(&req->id->route.addr.src_storage, &src, sizeof(src.in));
	memcpy(&req->id->route.addr.dst_storage, &peer, sizeof(peer.in));
	list_add_tail(&eq->connreqs, &req->node);
	return req;
}

static struct vrc_ep *passive_ep(void)
{
	int ret;
	struct vrc_ep *ep = fake_ep(eq, &make_request()->fid, &ret);

	cr_assert_eq(ret, 0);
	return ep;
}

static struct vrc_ep *accept_sent(void)
{
	struct vrc_ep *ep = passive_ep();

	cr_assert_eq(fi_accept(&ep->fid, "yes", 3), 0);
	cr_assert_eq(ep->state, VRC_EP_ACCEPTING);
	return ep;
}

static struct vrc_ep *connected(bool passive)
{
	struct vrc_ep *ep = passive ? accept_sent() : connect_sent();

	event(ep, passive ? RDMA_CM_EVENT_ESTABLISHED :
			    RDMA_CM_EVENT_CONNECT_RESPONSE);
	cr_assert_eq(fake_read(eq, NULL), FI_CONNECTED);
	cr_assert_eq(ep->state, VRC_EP_CONNECTED);
	return ep;
}

CLEAN_TEST(cm, active_connection)
{
	union {
		struct fi_eq_cm_entry entry;
		char room[sizeof(struct fi_eq_cm_entry) + 64];
	} buf;
	union vrc_sockaddr name, want = fake_addr(9, 1234);
	size_t len = sizeof(name);
	struct vrc_ep *ep = open_ep();
	struct vrc_cmdata sent;
	uint32_t ev;

	cr_assert_eq(fi_getpeer(&ep->fid, &name, &len), -FI_ENOTCONN);
	start_connect(ep, "hello", 5);
	cr_assert_eq(ep->port_num, 2);
	cr_assert_eq(fake.calls[FAKE_RESOLVE_ADDR], 1);
	event(ep, RDMA_CM_EVENT_ADDR_RESOLVED);
	settle();
	cr_assert_eq(fake.calls[FAKE_RESOLVE_ROUTE], 1);
	event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED);
	settle();
	cr_assert_eq(fake.calls[FAKE_CONNECT], 1);
	cr_assert_eq(fake.param.qp_num, 0x77);
	cr_assert_eq(fake.param.retry_count, 7);
	cr_assert_eq(fake.param.rnr_retry_count, 7);
	cr_assert_eq(fake.param.flow_control, 1);
	cr_assert_eq(fake.param.responder_resources, 16);
	cr_assert_eq(fake.param.initiator_depth, 255);
	cr_assert(vrc_cmdata_decode(fake.param_data, VRC_CM_WIRE_SIZE, &sent));
	cr_assert_eq(sent.len, 5);
	cr_assert_arr_eq(sent.data, "hello", 5);
	cr_assert_eq(sent.peer.posted, 333);
	answer(ep->cm.id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, "welcome");
	cr_assert_eq(fi_eq_read(&eq->fid, &ev, &buf, sizeof(buf), 0),
		     sizeof(buf.entry) + 7);
	cr_assert_eq(ev, FI_CONNECTED);
	cr_assert_eq(buf.entry.fid, &ep->fid.fid);
	cr_assert_arr_eq(buf.entry.data, "welcome", 7);
	cr_assert_eq(fake.calls[FAKE_QP_CONNECT], 1);
	cr_assert_eq(fake.calls[FAKE_ESTABLISH], 1);
	cr_assert_eq(fake.calls[FAKE_CREDIT_START], 1);
	cr_assert_eq(ep->cm.peer.posted, 128);
	/* The smaller of both sides. */
	cr_assert_eq(ep->cm.param.responder_resources, 4);
	cr_assert_eq(ep->cm.param.initiator_depth, 5);
	len = sizeof(name);
	cr_assert_eq(fi_getpeer(&ep->fid, &name, &len), 0);
	cr_assert_eq(len, sizeof(name.in));
	cr_assert_arr_eq(&name, &want, sizeof(name.in));
	fake_ep_close(ep);
	cr_assert_eq(fake.calls[FAKE_DISCONNECT], 1);
	settle();
}

/* On iWARP the kernel brings the queue pair up, and there is no response. */
CLEAN_TEST(cm, active_on_iwarp)
{
	struct vrc_ep *ep = connect_sent();

	event(ep, RDMA_CM_EVENT_ESTABLISHED);
	cr_assert_eq(fake_read(eq, NULL), FI_CONNECTED);
	cr_assert_eq(fake.calls[FAKE_QP_CONNECT], 1);
	cr_assert_eq(fake.calls[FAKE_ESTABLISH], 0);
	cr_assert_eq(fake.calls[FAKE_CREDIT_START], 1);
	fake_ep_close(ep);
}

CLEAN_TEST(cm, passive_connection)
{
	struct fi_eq_cm_entry entry;
	union vrc_sockaddr name, want = fake_addr(1, 1234);
	size_t len = sizeof(name);
	struct vrc_ep *ep = accept_sent();
	char buf[sizeof(entry) + 8];
	struct vrc_cmdata sent;
	uint32_t ev;

	cr_assert_eq(fake.param.responder_resources, 3);
	cr_assert_eq(fake.param.initiator_depth, 200);
	cr_assert_eq(fake.param.qp_num, 0x77);
	cr_assert(vrc_cmdata_decode(fake.param_data, VRC_CM_WIRE_SIZE, &sent));
	cr_assert_eq(sent.len, 3);
	cr_assert_eq(ep->cm.peer.posted, 77);
	event(ep, RDMA_CM_EVENT_ESTABLISHED);
	/* No data for the listening side. */
	cr_assert_eq(fi_eq_read(&eq->fid, &ev, buf, sizeof(buf), 0),
		     sizeof(entry));
	cr_assert_eq(ev, FI_CONNECTED);
	cr_assert_eq(fi_getname(&ep->fid.fid, &name, &len), 0);
	cr_assert_arr_eq(&name, &want, sizeof(name.in));
	fake_ep_close(ep);
}

/*
 * What each event must do in each state: nothing that is seen ('.'), a state
 * of its own ('a'), CONNECTED ('C'), FI_SHUTDOWN ('S') or an error ('E').
 */
struct expect {
	enum rdma_cm_event_type event;
	char outcome[9]; /* by column, see make_state */
};

enum { COLUMNS = 8 };

static const struct expect expected[] = {
	/* active: idle enabled connecting connected shutdown
	 * passive: enabled accepting connected */
	{ RDMA_CM_EVENT_ADDR_RESOLVED,	  "........" },
	{ RDMA_CM_EVENT_ADDR_ERROR,	  "..E....." },
	{ RDMA_CM_EVENT_ROUTE_RESOLVED,	  "........" },
	{ RDMA_CM_EVENT_ROUTE_ERROR,	  "..E....." },
	{ RDMA_CM_EVENT_CONNECT_RESPONSE, "..C....." },
	{ RDMA_CM_EVENT_CONNECT_ERROR,	  "..E...E." },
	{ RDMA_CM_EVENT_UNREACHABLE,	  "..E...E." },
	{ RDMA_CM_EVENT_REJECTED,	  "..ES..ES" },
	{ RDMA_CM_EVENT_ESTABLISHED,	  "..C...C." },
	{ RDMA_CM_EVENT_DISCONNECTED,	  "..ES..SS" },
	{ RDMA_CM_EVENT_DEVICE_REMOVAL,	  "..ES..ES" },
	{ RDMA_CM_EVENT_MULTICAST_JOIN,	  "........" },
	{ RDMA_CM_EVENT_MULTICAST_ERROR,  "........" },
	{ RDMA_CM_EVENT_ADDR_CHANGE,	  "..E....." },
	{ RDMA_CM_EVENT_TIMEWAIT_EXIT,	  "........" },
};

static struct vrc_ep *make_state(int column)
{
	struct vrc_ep *ep;

	switch (column) {
	case 0: {
		union vrc_sockaddr src = fake_addr(2, 0);

		/* Idle, with an id as setname makes it, on our channel. */
		ep = open_ep();
		cr_assert_eq(fi_setname(&ep->fid.fid, &src, sizeof(src.in)),
			     0);
		cr_assert_eq(vrc_cm_id_migrate(&fake_ops, ep->cm.id, eq), 0);
		return ep;
	}
	case 1:
		ep = open_ep();
		cr_assert_eq(fi_enable(&ep->fid), 0);
		return ep;
	case 2:
		return connect_sent();
	case 3:
		return connected(false);
	case 4:
		ep = connected(false);
		cr_assert_eq(fi_shutdown(&ep->fid, 0), 0);
		cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
		return ep;
	case 5:
		ep = passive_ep();
		cr_assert_eq(fi_enable(&ep->fid), 0);
		return ep;
	case 6:
		return accept_sent();
	default:
		return connected(true);
	}
}

static char outcome(struct vrc_ep *ep)
{
	struct fi_eq_err_entry err = { 0 };
	struct fi_eq_cm_entry entry;
	int ret = fake_read(eq, &entry);

	switch (ret) {
	case -FI_EAGAIN:
		return '.';
	case -FI_EAVAIL:
		cr_assert_gt(fi_eq_readerr(&eq->fid, &err, 0), 0);
		cr_assert_eq(err.fid, &ep->fid.fid);
		cr_assert_eq(err.context, ep);
		cr_assert_gt(err.err, 0);
		cr_assert_eq(ep->state, VRC_EP_SHUTDOWN);
		return 'E';
	case FI_CONNECTED:
		cr_assert_eq(ep->state, VRC_EP_CONNECTED);
		break;
	case FI_SHUTDOWN:
		cr_assert_eq(ep->state, VRC_EP_SHUTDOWN);
		break;
	default:
		cr_assert_fail("event %d", ret);
	}
	cr_assert_eq(entry.fid, &ep->fid.fid);
	return ret == FI_CONNECTED ? 'C' : 'S';
}

CLEAN_TEST(cm, every_event_in_every_state)
{
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		for (int col = 0; col < COLUMNS; col++) {
			struct vrc_ep *ep = make_state(col);
			int errors = fake.calls[FAKE_QP_ERROR];
			char got;

			event(ep, expected[i].event);
			got = outcome(ep);
			cr_assert_eq(got, expected[i].outcome[col],
				     "event %d in column %d: %c",
				     expected[i].event, col, got);
			/* The end of a connection flushes what is posted. */
			if (got == 'E' || got == 'S')
				cr_assert_gt(fake.calls[FAKE_QP_ERROR],
					     errors);
			else
				cr_assert_eq(fake.calls[FAKE_QP_ERROR],
					     errors);
			/* Twice is once. */
			event(ep, expected[i].event);
			if (expected[i].event != RDMA_CM_EVENT_REJECTED ||
			    got != 'C')
				settle();
			fake_ep_close(ep);
			settle();
		}
	}
}

/* Any three events in a row, from each state: never more than one end, never
 * anything after it, and nothing leaks. */
CLEAN_TEST(cm, every_three_events)
{
	size_t n = ARRAY_SIZE(expected);

	for (size_t i = 0; i < n * n * n * 3; i++) {
		static const int columns[] = { 2, 3, 6 };
		struct vrc_ep *ep = make_state(columns[i % 3]);
		int ends = 0, ups = 0;
		char got;

		event(ep, expected[i / 3 % n].event);
		event(ep, expected[i / 3 / n % n].event);
		event(ep, expected[i / 3 / n / n].event);
		while ((got = outcome(ep)) != '.') {
			if (got == 'C') {
				cr_assert_eq(ends, 0);
				ups++;
			} else {
				ends++;
			}
		}
		cr_assert_leq(ends, 1);
		cr_assert_leq(ups, 1);
		fake_ep_close(ep);
	}
}

CLEAN_TEST(cm, refusal_brings_the_peers_data)
{
	struct fi_eq_err_entry err = { 0 };
	struct vrc_ep *ep = connect_sent();

	answer(ep->cm.id, RDMA_CM_EVENT_REJECTED, 28, "too busy");
	cr_assert_eq(fake_read(eq, NULL), -FI_EAVAIL);
	cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), sizeof(err));
	cr_assert_eq(err.err, FI_ECONNREFUSED);
	cr_assert_eq(err.prov_errno, 28);
	cr_assert_eq(err.err_data_size, 8);
	cr_assert_arr_eq(err.err_data, "too busy", 8);
	cr_assert_eq(fake.calls[FAKE_QP_ERROR], 1);
	fake_ep_close(ep);
}

CLEAN_TEST(cm, errors_have_the_cause)
{
	static const struct {
		enum rdma_cm_event_type event;
		int status, err;
	} cases[] = {
		{ RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, FI_ETIMEDOUT },
		{ RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, FI_EHOSTUNREACH },
		{ RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, FI_ENODEV },
		{ RDMA_CM_EVENT_ROUTE_ERROR, 3, FI_EHOSTUNREACH },
		{ RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, FI_ETIMEDOUT },
		{ RDMA_CM_EVENT_UNREACHABLE, 0, FI_ETIMEDOUT },
		{ RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET, FI_ECONNRESET },
		{ RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, FI_ECONNREFUSED },
		{ RDMA_CM_EVENT_REJECTED, 8, FI_ECONNREFUSED },
		{ RDMA_CM_EVENT_ADDR_CHANGE, 0, FI_EADDRNOTAVAIL },
		{ RDMA_CM_EVENT_DEVICE_REMOVAL, 0, FI_ENODEV },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fi_eq_err_entry err = { 0 };
		struct vrc_ep *ep = open_ep();

		start_connect(ep, NULL, 0);
		fake_event(ep->cm.id, cases[i].event, cases[i].status, NULL,
			   0);
		cr_assert_eq(fake_read(eq, NULL), -FI_EAVAIL);
		cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), sizeof(err));
		cr_assert_eq(err.err, cases[i].err, "case %zu: %d", i,
			     err.err);
		if (cases[i].status)
			cr_assert_eq(err.prov_errno, cases[i].status);
		cr_assert_eq(err.err_data_size, 0);
		fake_ep_close(ep);
	}
}

/* A peer that lies about its length gets no say in our memory. */
CLEAN_TEST(cm, hostile_private_data)
{
	uint8_t wire[VRC_CM_WIRE_SIZE];
	struct vrc_ep *ep = connect_sent();
	struct fi_eq_err_entry err = { 0 };

	memset(wire, 0xff, sizeof(wire));
	fake_event(ep->cm.id, RDMA_CM_EVENT_REJECTED, 28, wire, sizeof(wire));
	cr_assert_eq(fake_read(eq, NULL), -FI_EAVAIL);
	cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), sizeof(err));
	cr_assert_eq(err.err_data_size, 0);
	fake_ep_close(ep);

	ep = connect_sent();
	fake_event(ep->cm.id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, wire, 1);
	cr_assert_eq(fake_read(eq, NULL), FI_CONNECTED);
	cr_assert_eq(ep->cm.peer.posted, 0);
	fake_ep_close(ep);
}

CLEAN_TEST(cm, bad_arguments)
{
	union vrc_sockaddr dst = fake_addr(9, 1234), noport = fake_addr(9, 0);
	struct sockaddr_in6 dst6 = { .sin6_family = AF_INET6,
				     .sin6_port = htons(5),
				     .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_un_like {
		sa_family_t family;
		char rest[100];
	} other = { .family = AF_UNIX };
	char data[VRC_CM_DATA_SIZE + 1] = { 0 };
	struct vrc_ep *ep = open_ep();
	struct vrc_ep *passive = passive_ep();

	cr_assert_eq(fi_connect(&ep->fid, &dst, data, sizeof(data)),
		     -FI_EINVAL);
	cr_assert_eq(fi_connect(&ep->fid, &dst, NULL, 1), -FI_EINVAL);
	cr_assert_eq(fi_connect(&ep->fid, NULL, NULL, 0), -FI_EINVAL);
	cr_assert_eq(fi_connect(&ep->fid, &other, NULL, 0), -FI_EINVAL);
	cr_assert_eq(fi_connect(&ep->fid, &noport, NULL, 0), -FI_EINVAL);
	cr_assert_eq(fi_connect(&ep->fid, &dst6, NULL, 0), -FI_EINVAL);
	cr_assert_eq(fi_accept(&ep->fid, NULL, 0), -FI_EOPBADSTATE);
	cr_assert_eq(fi_shutdown(&ep->fid, 0), -FI_ENOTCONN);
	cr_assert_eq(fi_shutdown(&ep->fid, 1), -FI_EINVAL);
	cr_assert_eq(fi_accept(&passive->fid, data, sizeof(data)), -FI_EINVAL);
	cr_assert_eq(fi_connect(&passive->fid, &dst, NULL, 0),
		     -FI_EOPBADSTATE);
	cr_assert_eq(ep->fid.cm->listen(NULL), -FI_ENOSYS);
	cr_assert_eq(ep->fid.cm->reject(NULL, NULL, NULL, 0), -FI_ENOSYS);
	cr_assert_eq(ep->fid.cm->join(&ep->fid, NULL, 0, NULL, NULL),
		     -FI_ENOSYS);
	/* None of it spoilt the endpoint. */
	start_connect(ep, data, VRC_CM_DATA_SIZE);
	cr_assert_eq(fi_connect(&ep->fid, &dst, NULL, 0), -FI_EOPBADSTATE);
	fake_ep_close(ep);
	fake_ep_close(passive);
}

/* An IPv4 address in IPv6's clothes is that IPv4 address. */
CLEAN_TEST(cm, mapped_address)
{
	struct sockaddr_in6 mapped = { .sin6_family = AF_INET6,
				       .sin6_port = htons(1234) };
	union vrc_sockaddr want = fake_addr(9, 1234), name;
	size_t len = sizeof(name);
	struct vrc_ep *ep = open_ep();

	mapped.sin6_addr.s6_addr[10] = 0xff;
	mapped.sin6_addr.s6_addr[11] = 0xff;
	memcpy(&mapped.sin6_addr.s6_addr[12], &want.in.sin_addr, 4);
	cr_assert_eq(fi_connect(&ep->fid, &mapped, NULL, 0), 0);
	cr_assert_eq(fi_getpeer(&ep->fid, &name, &len), 0);
	cr_assert_arr_eq(&name, &want, sizeof(want.in));
	fake_ep_close(ep);
}

/* Each step of connecting fails: one error, a flush, nothing left. */
CLEAN_TEST(cm, every_step_fails)
{
	static const enum fake_call steps[] = {
		FAKE_RESOLVE_ROUTE, FAKE_CONNECT, FAKE_QP_CONNECT,
		FAKE_ESTABLISH,
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct fi_eq_err_entry err = { 0 };
		struct vrc_ep *ep = open_ep();

		fake.calls[FAKE_REJECT] = 0;
		start_connect(ep, NULL, 0);
		fake.fail[steps[i]] = ENETUNREACH;
		event(ep, RDMA_CM_EVENT_ADDR_RESOLVED);
		event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED);
		event(ep, RDMA_CM_EVENT_CONNECT_RESPONSE);
		cr_assert_eq(fake_read(eq, NULL), -FI_EAVAIL);
		cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), sizeof(err));
		cr_assert_eq(err.err, FI_ENETUNREACH);
		cr_assert_eq(err.err_data_size, 0);
		settle();
		/* The peer that has answered is told. */
		if (steps[i] == FAKE_QP_CONNECT)
			cr_assert_eq(fake.calls[FAKE_REJECT], 1);
		fake_ep_close(ep);
	}
}

CLEAN_TEST(cm, calls_fail)
{
	union vrc_sockaddr dst = fake_addr(9, 1234);
	struct vrc_ep *ep = open_ep();

	fake.fail[FAKE_CREATE_CHANNEL] = EMFILE;
	cr_assert_eq(fi_enable(&ep->fid), -FI_EMFILE);
	fake.fail[FAKE_CREATE_ID] = ENOMEM;
	cr_assert_eq(fi_enable(&ep->fid), -FI_ENOMEM);
	fake.fail[FAKE_BIND] = EADDRINUSE;
	cr_assert_eq(fi_enable(&ep->fid), -FI_EADDRINUSE);
	fake.fail[FAKE_RESOLVE_ADDR] = ENETUNREACH;
	cr_assert_eq(fi_connect(&ep->fid, &dst, NULL, 0), -FI_ENETUNREACH);
	cr_assert_eq(ep->state, VRC_EP_ENABLED);
	start_connect(ep, NULL, 0);
	fake_ep_close(ep);

	/* A peer that cannot be accepted is told at once. */
	ep = passive_ep();
	fake.fail[FAKE_QP_CONNECT] = ENOMEM;
	cr_assert_eq(fi_accept(&ep->fid, NULL, 0), -FI_ENOMEM);
	cr_assert_eq(fake.calls[FAKE_REJECT], 1);
	fake_ep_close(ep);
	ep = passive_ep();
	fake.fail[FAKE_ACCEPT] = ECONNRESET;
	cr_assert_eq(fi_accept(&ep->fid, NULL, 0), -FI_ECONNRESET);
	cr_assert_eq(ep->state, VRC_EP_SHUTDOWN);
	fake_ep_close(ep);
}

/* The route decides; if it is not by the queue pair's port, it is of no use. */
CLEAN_TEST(cm, route_by_another_port)
{
	struct fi_eq_err_entry err = { 0 };
	struct vrc_ep *ep = open_ep();

	start_connect(ep, NULL, 0);
	ep->cm.id->port_num = 1;
	event(ep, RDMA_CM_EVENT_ADDR_RESOLVED);
	cr_assert_eq(fake_read(eq, NULL), -FI_EAVAIL);
	cr_assert_gt(fi_eq_readerr(&eq->fid, &err, 0), 0);
	cr_assert_eq(err.err, FI_EADDRNOTAVAIL);
	fake_ep_close(ep);
}

/* Who shuts down gets one FI_SHUTDOWN at once, and none from the peer's. */
CLEAN_TEST(cm, shutdown_from_both_sides)
{
	for (int passive = 0; passive < 2; passive++) {
		struct vrc_ep *ep = connected(passive);

		event(ep, RDMA_CM_EVENT_DISCONNECTED);
		cr_assert_eq(fi_shutdown(&ep->fid, 0), 0);
		event(ep, RDMA_CM_EVENT_DISCONNECTED);
		event(ep, RDMA_CM_EVENT_TIMEWAIT_EXIT);
		cr_assert_eq(fi_shutdown(&ep->fid, 0), 0);
		cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
		settle();
		/* Ours, and an answer to each of the peer's. */
		cr_assert_eq(fake.calls[FAKE_DISCONNECT], 3);
		fake_ep_close(ep);
		fake.calls[FAKE_DISCONNECT] = 0;
	}
}

/* Giving up while the peer is about to answer: it is told. */
/* The peer's goodbye may overtake its acknowledgements: with sends out, the
 * queue pair lives on for a moment. One that is closed meanwhile is gone. */
CLEAN_TEST(cm, acknowledgements_may_follow)
{
	for (int closed = 0; closed < 2; closed++) {
		struct vrc_ep *ep = connected(closed);
		int errors = fake.calls[FAKE_QP_ERROR];
		uint64_t start = vrc_now_ms();

		atomic_store(&ep->tx.head, 1);
		event(ep, RDMA_CM_EVENT_DISCONNECTED);
		cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
		cr_assert_eq(fake.calls[FAKE_QP_ERROR], errors);
		while (!closed && fake.calls[FAKE_QP_ERROR] == errors) {
			settle();
			cr_assert_lt(vrc_now_ms() - start, 5000);
		}
		if (!closed)
			cr_assert_geq(vrc_now_ms() - start, VRC_LINGER_MS);
		atomic_store(&ep->tx.head, 0);
		fake_ep_close(ep);
		settle();
	}
}

CLEAN_TEST(cm, shutdown_while_connecting)
{
	struct vrc_ep *ep = connect_sent();

	cr_assert_eq(fi_shutdown(&ep->fid, 0), 0);
	cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
	event(ep, RDMA_CM_EVENT_CONNECT_RESPONSE);
	settle();
	cr_assert_eq(fake.calls[FAKE_REJECT], 1);
	fake_ep_close(ep);

	ep = accept_sent();
	cr_assert_eq(fi_shutdown(&ep->fid, 0), 0);
	cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
	fake.calls[FAKE_DISCONNECT] = 0;
	event(ep, RDMA_CM_EVENT_ESTABLISHED);
	settle();
	cr_assert_eq(fake.calls[FAKE_DISCONNECT], 1);
	fake_ep_close(ep);
}

/* A queue pair that breaks ends the connection, once. */
CLEAN_TEST(cm, broken_queue_pair)
{
	struct vrc_ep *ep = connected(false);

	for (int i = 0; i < 3; i++)
		vrc_cm_broken(ep);
	event(ep, RDMA_CM_EVENT_DISCONNECTED);
	cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
	settle();
	cr_assert_geq(fake.calls[FAKE_DISCONNECT], 1);
	fake_ep_close(ep);

	/* Before ESTABLISHED was read: up, then down, in that order. */
	ep = accept_sent();
	vrc_cm_broken(ep);
	settle();
	event(ep, RDMA_CM_EVENT_ESTABLISHED);
	cr_assert_eq(fake_read(eq, NULL), FI_CONNECTED);
	cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
	vrc_cm_broken(ep);
	settle();
	fake_ep_close(ep);

	ep = open_ep();
	vrc_cm_broken(ep);
	settle();
	fake_ep_close(ep);
}

/* No event of an endpoint is read once it is closed. */
CLEAN_TEST(cm, silence_after_close)
{
	struct vrc_ep *ep = connected(false);
	struct vrc_ep *other = connected(true);
	struct fi_eq_cm_entry entry;

	event(ep, RDMA_CM_EVENT_DISCONNECTED);
	vrc_eq_progress(eq);
	event(ep, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	event(other, RDMA_CM_EVENT_DISCONNECTED);
	fake_ep_close(ep);
	cr_assert_eq(fake_read(eq, &entry), FI_SHUTDOWN);
	cr_assert_eq(entry.fid, &other->fid.fid);
	settle();
	fake_ep_close(other);
}

/* The peer gave up before or after the endpoint was enabled. */
CLEAN_TEST(cm, peer_gave_up)
{
	struct vrc_connreq *req = make_request();
	struct vrc_ep *ep;
	int ret;

	ep = fake_ep(eq, &req->fid, &ret);
	cr_assert_eq(ret, 0);
	cr_assert_null(fake_ep(eq, &req->fid, &ret));
	cr_assert_eq(ret, -FI_EBUSY);
	fake_event(req->id, RDMA_CM_EVENT_REJECTED, 4, NULL, 0);
	settle();
	cr_assert_eq(fi_enable(&ep->fid), 0);
	cr_assert_eq(fi_accept(&ep->fid, NULL, 0), -FI_ECONNABORTED);
	fake_ep_close(ep);
	cr_assert_eq(fake.calls[FAKE_REJECT], 0);

	ep = passive_ep();
	cr_assert_eq(fi_enable(&ep->fid), 0);
	event(ep, RDMA_CM_EVENT_UNREACHABLE);
	settle();
	cr_assert_eq(fi_accept(&ep->fid, NULL, 0), -FI_ECONNABORTED);
	fake_ep_close(ep);
	cr_assert_eq(fake.calls[FAKE_REJECT], 0);
}

/* An endpoint that closes without having accepted refuses. */
CLEAN_TEST(cm, close_refuses)
{
	struct vrc_ep *ep = passive_ep();

	fake_ep_close(ep);
	cr_assert_eq(fake.calls[FAKE_REJECT], 1);
	ep = passive_ep();
	cr_assert_eq(fi_enable(&ep->fid), 0);
	fake_ep_close(ep);
	cr_assert_eq(fake.calls[FAKE_REJECT], 2);
	ep = accept_sent();
	fake_ep_close(ep);
	cr_assert_eq(fake.calls[FAKE_REJECT], 2);
}

/* The request came by one queue, the endpoint lives on another. */
CLEAN_TEST(cm, endpoint_on_another_queue)
{
	struct vrc_eq *other = fake_eq(fake_fabric(), FI_WAIT_FD, 0);
	struct vrc_connreq *req = make_request();
	struct vrc_ep *ep;
	int ret;

	ep = fake_ep(other, &req->fid, &ret);
	/* It depends on the request's queue until it is enabled. */
	cr_assert_eq(fi_close(&eq->fid.fid), -FI_EBUSY);
	fake.fail[FAKE_MIGRATE] = ENODEV;
	cr_assert_eq(fi_enable(&ep->fid), -FI_ENODEV);
	cr_assert_eq(fi_enable(&ep->fid), 0);
	cr_assert_eq(fake.calls[FAKE_MIGRATE], 2);
	fake_eq_close(eq);
	eq = other;
	cr_assert_eq(fi_accept(&ep->fid, NULL, 0), 0);
	event(ep, RDMA_CM_EVENT_ESTABLISHED);
	cr_assert_eq(fake_read(other, NULL), FI_CONNECTED);
	fake_ep_close(ep);
}

CLEAN_TEST(cm, names)
{
	union vrc_sockaddr src = fake_addr(1, 5555), name;
	size_t len = 0;
	struct vrc_ep *ep = open_ep();

	cr_assert_eq(fi_getname(&ep->fid.fid, NULL, &len), -FI_ETOOSMALL);
	cr_assert_eq(len, sizeof(name.in));
	cr_assert_eq(fi_setname(&ep->fid.fid, &src, 3), -FI_EINVAL);
	cr_assert_eq(fi_setname(&ep->fid.fid, NULL, 16), -FI_EINVAL);
	cr_assert_eq(fi_setname(&ep->fid.fid, &src, sizeof(src.in)), 0);
	cr_assert_eq(fi_getname(&ep->fid.fid, &name, &len), 0);
	cr_assert_arr_eq(&name, &src, sizeof(src.in));
	src = fake_addr(2, 0);
	cr_assert_eq(fi_setname(&ep->fid.fid, &src, sizeof(src.in)), 0);
	cr_assert_eq(fi_getname(&ep->fid.fid, &name, &len), 0);
	cr_assert_neq(name.in.sin_port, 0);
	cr_assert_eq(fi_enable(&ep->fid), 0);
	cr_assert_eq(ep->port_num, 2);
	cr_assert_eq(fi_setname(&ep->fid.fid, &src, sizeof(src.in)),
		     -FI_EOPBADSTATE);
	fake_ep_close(ep);
}

/* Memory runs out at any point of a connection's life: events may be lost,
 * nothing else. */
CLEAN_TEST(cm, out_of_memory)
{
	for (int n = 1; n < 12; n++) {
		struct fi_eq_err_entry err = { 0 };
		struct vrc_ep *ep = open_ep();

		fake_fail_alloc = n;
		start_connect(ep, NULL, 0);
		event(ep, RDMA_CM_EVENT_ADDR_RESOLVED);
		event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED);
		event(ep, RDMA_CM_EVENT_CONNECT_RESPONSE);
		event(ep, n % 2 ? RDMA_CM_EVENT_DISCONNECTED :
				  RDMA_CM_EVENT_REJECTED);
		while (fake_read(eq, NULL) != -FI_EAGAIN)
			fi_eq_readerr(&eq->fid, &err, 0);
		cr_assert_eq(ep->state, VRC_EP_SHUTDOWN);
		fake_ep_close(ep);
		fake_fail_alloc = 0;
	}
}
