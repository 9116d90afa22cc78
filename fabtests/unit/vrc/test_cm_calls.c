/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The calls of connection management: what they refuse, what they say of addresses,
 * and each of them when rdma_cm or memory fails.
 */
#include "cm.h"

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

/* Whatever a step says: if the peer's goodbye is there, that is the reason. */
CLEAN_TEST(cm, gone_while_accepting)
{
	static const enum fake_call steps[] = { FAKE_QP_CONNECT, FAKE_ACCEPT };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct vrc_ep *ep = passive_ep();

		cr_assert_eq(fi_enable(&ep->fid), 0);
		event(ep, RDMA_CM_EVENT_REJECTED);
		fake.fail[steps[i]] = EINVAL;
		cr_assert_eq(fi_accept(&ep->fid, NULL, 0), -FI_ECONNABORTED);
		cr_assert_eq(ep->state, VRC_EP_SHUTDOWN);
		settle();
		fake_ep_close(ep);
	}
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
