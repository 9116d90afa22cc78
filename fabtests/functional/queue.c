/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Reading events and completions, with bounds.
 */
#include "common.h"
#include "queue.h"

enum { MAX_QUEUES = 256 };

/* All that are open, so that a wait on one end lets the others progress. */
static struct evq *evqs[MAX_QUEUES];
static int evq_cnt;
static struct fid_cq *cqs[MAX_QUEUES];
static int cq_cnt;

struct evq *evq_create(struct fid_eq *eq)
{
	struct evq *q = calloc(1, sizeof(*q));

	ASSERT(q);
	ASSERT(evq_cnt < MAX_QUEUES);
	q->eq = eq;
	evqs[evq_cnt++] = q;
	return q;
}

void cq_register(struct fid_cq *cq)
{
	ASSERT(cq_cnt < MAX_QUEUES);
	cqs[cq_cnt++] = cq;
}

void cq_unregister(struct fid_cq *cq)
{
	for (int i = 0; i < cq_cnt; i++)
		if (cqs[i] == cq) {
			cqs[i] = cqs[--cq_cnt];
			return;
		}
	FAIL("completion queue is not registered");
}

/*
 * A provider that says FI_PROGRESS_AUTO needs none of this, and vrc is held to
 * it. tcp of libfabric 1.17 says so, but moves data only while it is polled.
 */
void progress(void)
{
	if (is_vrc())
		return;
	for (int i = 0; i < cq_cnt; i++)
		fi_cq_read(cqs[i], NULL, 0);
}

static void drop_at(struct evq *q, unsigned int pos)
{
	struct event *ev = q->events[pos];

	memmove(&q->events[pos], &q->events[pos + 1],
		(q->cnt - pos - 1) * sizeof(q->events[0]));
	q->cnt--;
	fi_freeinfo(ev->info);
	free(ev);
}

void evq_destroy(struct evq *q)
{
	for (int i = 0; i < evq_cnt; i++)
		if (evqs[i] == q) {
			evqs[i] = evqs[--evq_cnt];
			break;
		}
	while (q->cnt)
		drop_at(q, 0);
	ASSERT_OK(fi_close(&q->eq->fid));
	free(q);
}

void evq_forget(struct evq *q, const struct fid *fid)
{
	for (unsigned int i = 0; i < q->cnt;)
		if (q->events[i]->fid == fid)
			drop_at(q, i);
		else
			i++;
}

static struct event *read_error(struct fid_eq *eq)
{
	struct event *ev = calloc(1, sizeof(*ev));
	struct fi_eq_err_entry err;
	ssize_t n;

	ASSERT(ev);
	memset(&err, 0, sizeof(err));
	err.err_data = ev->data;
	err.err_data_size = sizeof(ev->data);
	n = fi_eq_readerr(eq, &err, 0);
	ASSERT_EQ(n, (ssize_t)sizeof(err));
	ASSERT_CMP(err.err, >, 0);
	ASSERT_LE(err.err_data_size, sizeof(ev->data));
	/* For a caller's buffer, the provider fills that one. */
	ASSERT(!err.err_data_size || err.err_data == ev->data);
	ev->type = ERROR_EVENT;
	ev->fid = err.fid;
	ev->err = err.err;
	ev->prov_errno = err.prov_errno;
	ev->len = err.err_data_size;
	return ev;
}

static struct event *read_event(struct fid_eq *eq)
{
	union {
		struct fi_eq_cm_entry cm;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + 512];
	} entry;
	struct event *ev;
	uint32_t type = ERROR_EVENT;
	ssize_t n;

	n = fi_eq_read(eq, &type, &entry, sizeof(entry), 0);
	if (n == -FI_EAGAIN)
		return NULL;
	if (n == -FI_EAVAIL)
		return read_error(eq);
	ASSERT_GE(n, (ssize_t)sizeof(struct fi_eq_cm_entry));
	ev = calloc(1, sizeof(*ev));
	ASSERT(ev);
	ev->type = type;
	ev->fid = entry.cm.fid;
	if (type == FI_CONNREQ)
		ev->info = entry.cm.info;
	ev->len = (size_t)n - sizeof(struct fi_eq_cm_entry);
	memcpy(ev->data, entry.room + sizeof(struct fi_eq_cm_entry), ev->len);
	return ev;
}

static void progress_all(void)
{
	for (int i = 0; i < evq_cnt; i++) {
		struct evq *q = evqs[i];
		struct event *ev;

		while ((ev = read_event(q->eq))) {
			ASSERT_CMP(q->cnt, <, EVENT_QUEUE);
			q->events[q->cnt++] = ev;
		}
	}
}

static bool is_about(const struct end *e, const struct event *ev)
{
	if (e->ep && ev->fid == &e->ep->fid)
		return true;
	return e->pep && ev->fid == &e->pep->fid;
}

static bool take_event(struct end *e, struct event *ev)
{
	struct evq *q = e->evq;

	for (unsigned int i = 0; i < q->cnt; i++)
		if (is_about(e, q->events[i])) {
			*ev = *q->events[i];
			q->events[i]->info = NULL;
			drop_at(q, i);
			return true;
		}
	return false;
}

bool next_event(struct end *e, struct event *ev, int ms)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(ms) * 1000;
	unsigned int turn = 0;

	do {
		progress_all();
		if (take_event(e, ev))
			return true;
		progress();
		relax(&turn);
	} while (now_us() < end);
	return false;
}

const char *event_name(uint32_t type)
{
	switch (type) {
	case ERROR_EVENT:
		return "an error";
	case FI_CONNREQ:
		return "FI_CONNREQ";
	case FI_CONNECTED:
		return "FI_CONNECTED";
	case FI_SHUTDOWN:
		return "FI_SHUTDOWN";
	case FI_NOTIFY:
		return "FI_NOTIFY";
	default:
		return "another event";
	}
}

static void unexpected(const struct event *ev, const char *instead)
{
	if (ev->type != ERROR_EVENT)
		FAIL("%s, expected %s", event_name(ev->type), instead);
	FAIL("error event %d (%s), prov_errno %d, expected %s", ev->err,
	     fi_strerror(ev->err), ev->prov_errno, instead);
}

void expect_event(struct end *e, uint32_t type, struct event *ev)
{
	struct event mine;

	if (!next_event(e, &mine, 5000))
		FAIL("no event, expected %s", event_name(type));
	if (mine.type != type)
		unexpected(&mine, event_name(type));
	if (ev)
		*ev = mine;
	else
		fi_freeinfo(mine.info);
}

void expect_no_event(struct end *e, int ms)
{
	struct event ev;

	if (next_event(e, &ev, ms))
		unexpected(&ev, "none");
}

bool poll_comp(struct fid_cq *cq, struct comp *c)
{
	struct fi_cq_err_entry err;
	struct fi_cq_data_entry entry;
	uint8_t err_data[64];
	ssize_t n;

	memset(c, 0, sizeof(*c));
	n = fi_cq_read(cq, &entry, 1);
	if (n == -FI_EAGAIN)
		return false;
	if (n == 1) {
		c->context = entry.op_context;
		c->flags = entry.flags;
		c->len = entry.len;
		c->data = entry.data;
		return true;
	}
	ASSERT_EQ(n, -FI_EAVAIL);
	memset(&err, 0, sizeof(err));
	err.err_data = err_data;
	err.err_data_size = sizeof(err_data);
	ASSERT_EQ(fi_cq_readerr(cq, &err, 0), 1);
	ASSERT_CMP(err.err, >, 0);
	ASSERT_LE(err.err_data_size, sizeof(err_data));
	c->context = err.op_context;
	c->flags = err.flags;
	c->len = err.len;
	c->data = err.data;
	c->olen = err.olen;
	c->err = err.err;
	c->prov_errno = err.prov_errno;
	return true;
}

bool next_comp(struct fid_cq *cq, struct comp *c, int ms)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(ms) * 1000;
	unsigned int turn = 0;

	do {
		if (poll_comp(cq, c))
			return true;
		progress();
		relax(&turn);
	} while (now_us() < end);
	return false;
}

void expect_filled(const char *file, int line, const void *buf, size_t len,
		   uint32_t seed)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	unsigned int turn = 0;

	while (!is_filled(buf, len, seed)) {
		if (now_us() > end)
			check_filled(file, line, buf, len, seed);
		progress();
		relax(&turn);
	}
}

void expect_comp(struct fid_cq *cq, struct comp *c)
{
	if (!next_comp(cq, c, 5000))
		FAIL("no completion");
}

uint64_t op_bits(uint64_t flags)
{
	return flags & (FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_SEND |
			FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
			FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
}

void expect_ok(struct fid_cq *cq, const void *context, uint64_t flags,
	       struct comp *c)
{
	struct comp mine;

	expect_comp(cq, &mine);
	if (mine.err)
		FAIL("error completion %d (%s), prov_errno %d, flags 0x%" PRIx64,
		     mine.err, fi_strerror(mine.err), mine.prov_errno,
		     mine.flags);
	if (mine.context != context)
		FAIL("completion of context %p (flags 0x%" PRIx64
		     "), expected %p", mine.context, mine.flags, context);
	/* All that a completion may carry is documented; nothing internal
	 * may leak into it. */
	if ((is_vrc() ? mine.flags : op_bits(mine.flags)) != flags)
		FAIL("completion flags 0x%" PRIx64 ", expected 0x%" PRIx64,
		     mine.flags, flags);
	if (c)
		*c = mine;
}

void expect_no_comp(struct fid_cq *cq, int ms)
{
	struct comp c;

	if (next_comp(cq, &c, ms))
		FAIL("completion of context %p, flags 0x%" PRIx64
		     ", err %d; expected none", c.context, c.flags, c.err);
}
