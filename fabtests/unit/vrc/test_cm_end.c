/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How connections end: by either side, by both, before they began, and with the queue
 * pair.
 */
#include "cm.h"
#include "vrc_cm.h"

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

/* The peer's goodbye may overtake its acknowledgements: the queue pair lives on
 * for a moment. One that is closed meanwhile is gone. */
CLEAN_TEST(cm, acknowledgements_may_follow)
{
	for (int closed = 0; closed < 2; closed++) {
		struct vrc_ep *ep = connected(closed);
		int errors = fake.calls[FAKE_QP_ERROR];
		uint64_t start = vrc_now_ms();

		event(ep, RDMA_CM_EVENT_DISCONNECTED);
		cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
		cr_assert_eq(fake.calls[FAKE_QP_ERROR], errors);
		while (!closed && fake.calls[FAKE_QP_ERROR] == errors) {
			settle();
			cr_assert_lt(vrc_now_ms() - start, 5000);
		}
		if (!closed)
			cr_assert_geq(vrc_now_ms() - start, VRC_LINGER_MS);
		fake_ep_close(ep);
		settle();
	}
}

/* What was received last may not be acknowledged yet when we say goodbye. The
 * queue pair lives on until the peer has answered, or does not. */
CLEAN_TEST(cm, acknowledgements_may_be_owed)
{
	for (int answered = 0; answered < 2; answered++) {
		struct vrc_ep *ep = connected(answered);
		int errors = fake.calls[FAKE_QP_ERROR];
		uint64_t start = vrc_now_ms();

		/* It waits in the channel already. */
		if (answered)
			event(ep, RDMA_CM_EVENT_DISCONNECTED);
		cr_assert_eq(fi_shutdown(&ep->fid, 0), 0);
		cr_assert_eq(fake_read(eq, NULL), FI_SHUTDOWN);
		cr_assert_eq(fake.calls[FAKE_QP_ERROR], errors + 1);
		if (!answered)
			cr_assert_geq(vrc_now_ms() - start, VRC_LINGER_MS);
		fake_ep_close(ep);
		fake.calls[FAKE_DISCONNECT] = 0;
		settle();
	}
}

/* Giving up while the peer is about to answer: it is told. */
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
