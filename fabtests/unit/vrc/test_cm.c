/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Connection management of active endpoints against a scripted rdma_cm: connections
 * of either side, every event in every state, orders that networks produce, what the
 * peer says.
 */
#include "cm.h"
#include "vrc_cm.h"

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

static void flushed_soon(int errors)
{
	uint64_t start = vrc_now_ms();

	while (fake.calls[FAKE_QP_ERROR] == errors) {
		settle();
		cr_assert_lt(vrc_now_ms() - start, 5000);
	}
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
			/* The end of a connection flushes what is posted; soon,
			 * if it was in good order. */
			if (got == 'E')
				cr_assert_gt(fake.calls[FAKE_QP_ERROR],
					     errors);
			else if (got == 'S')
				flushed_soon(errors);
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
