/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The event queue: order, room, peeking, errors and their data, waiting.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "fake.h"

static struct vrc_eq *eq;
static struct fid some_fid;

static void init(void)
{
	fake_reset();
	eq = fake_eq(fake_fabric(), FI_WAIT_FD, FI_WRITE);
}

static void fini(void)
{
	fake_eq_close(eq);
	cr_assert_eq(fake_fabric()->ref, 0);
	fake_check_clean();
}

static int fd_ready(void)
{
	struct pollfd pfd = { .events = POLLIN };

	cr_assert_eq(fi_control(&eq->fid.fid, FI_GETWAIT, &pfd.fd), 0);
	return poll(&pfd, 1, 0);
}

static void put(uintptr_t n)
{
	struct fi_eq_entry entry = { .context = (void *)n };

	cr_assert_eq(fi_eq_write(&eq->fid, FI_NOTIFY, &entry, sizeof(entry),
				 0), sizeof(entry));
}

static ssize_t get(uintptr_t *n, uint64_t flags)
{
	struct fi_eq_entry entry = { 0 };
	uint32_t event;
	ssize_t ret = fi_eq_read(&eq->fid, &event, &entry, sizeof(entry),
				 flags);

	if (ret > 0)
		cr_assert_eq(event, FI_NOTIFY);
	*n = (uintptr_t)entry.context;
	return ret;
}

CLEAN_TEST(eq, in_order_and_peek)
{
	uintptr_t n;

	for (uintptr_t i = 0; i < 100; i++)
		put(i);
	for (uintptr_t i = 0; i < 100; i++) {
		cr_assert_gt(get(&n, FI_PEEK), 0);
		cr_assert_eq(n, i);
		cr_assert_gt(get(&n, 0), 0);
		cr_assert_eq(n, i);
	}
	cr_assert_eq(get(&n, 0), -FI_EAGAIN);
	cr_assert_eq(get(&n, FI_PEEK), -FI_EAGAIN);
}

/* The descriptor is readable exactly while something is queued. */
CLEAN_TEST(eq, descriptor_is_level)
{
	uintptr_t n;

	cr_assert_eq(fd_ready(), 0);
	cr_assert_eq(vrc_eq_trywait(eq), 0);
	for (int round = 0; round < 3; round++) {
		put(1);
		put(2);
		cr_assert_eq(vrc_eq_trywait(eq), -FI_EAGAIN);
		cr_assert_eq(fd_ready(), 1);
		get(&n, FI_PEEK);
		cr_assert_eq(fd_ready(), 1);
		get(&n, 0);
		cr_assert_eq(fd_ready(), 1);
		get(&n, 0);
		cr_assert_eq(fd_ready(), 0);
		cr_assert_eq(vrc_eq_trywait(eq), 0);
	}
}

CLEAN_TEST(eq, too_small_stays)
{
	char buf[sizeof(struct fi_eq_cm_entry)];
	uint32_t event = 0;
	uintptr_t n;

	put(5);
	for (size_t len = 0; len < sizeof(struct fi_eq_entry); len++)
		cr_assert_eq(fi_eq_read(&eq->fid, &event, buf, len, 0),
			     -FI_ETOOSMALL);
	cr_assert_eq(fi_eq_read(&eq->fid, &event, NULL, 100, 0),
		     -FI_ETOOSMALL);
	cr_assert_eq(fd_ready(), 1);
	cr_assert_gt(get(&n, 0), 0);
	cr_assert_eq(n, 5);
}

/* fi_eq(3): connection data is cut to the room there is. */
CLEAN_TEST(eq, connection_data_is_cut)
{
	union {
		struct fi_eq_cm_entry entry;
		char room[sizeof(struct fi_eq_cm_entry) + 8];
	} buf;
	size_t head = sizeof(struct fi_eq_cm_entry);
	uint32_t event;

	for (size_t room = 0; room <= 8; room++) {
		lock_take(&eq->lock);
		vrc_eq_post_cm(eq, FI_CONNECTED, &some_fid, NULL, "abcde", 5);
		lock_drop(&eq->lock);
		memset(&buf, 0, sizeof(buf));
		cr_assert_eq(fi_eq_read(&eq->fid, &event, &buf, head - 1, 0),
			     -FI_ETOOSMALL);
		cr_assert_eq(fi_eq_read(&eq->fid, &event, &buf, head + room,
					0), (ssize_t)(head + (room < 5 ?
							      room : 5)));
		cr_assert_eq(event, FI_CONNECTED);
		cr_assert_eq(buf.entry.fid, &some_fid);
		cr_assert_arr_eq(buf.entry.data, "abcde\0\0\0", room < 5 ? room : 8);
	}
}

static void post_err(int err, const char *data)
{
	lock_take(&eq->lock);
	vrc_eq_post_err(eq, &some_fid, err, -err, data, strlen(data));
	lock_drop(&eq->lock);
}

/* Errors come first, out of band, and hide nothing. */
CLEAN_TEST(eq, errors)
{
	struct fi_eq_err_entry err = { 0 };
	uintptr_t n;

	some_fid.context = &n;
	cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), -FI_EAGAIN);
	put(7);
	cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), -FI_EAGAIN);
	post_err(FI_ECONNREFUSED, "why");
	post_err(FI_ETIMEDOUT, "");
	cr_assert_eq(get(&n, 0), -FI_EAVAIL);
	cr_assert_eq(get(&n, FI_PEEK), -FI_EAVAIL);
	for (int i = 0; i < 2; i++) {
		memset(&err, 0, sizeof(err));
		cr_assert_eq(fi_eq_readerr(&eq->fid, &err, i ? 0 : FI_PEEK),
			     sizeof(err));
		cr_assert_eq(err.err, FI_ECONNREFUSED);
		cr_assert_eq(err.prov_errno, -FI_ECONNREFUSED);
		cr_assert_eq(err.fid, &some_fid);
		cr_assert_eq(err.context, &n);
		cr_assert_eq(err.err_data_size, 3);
		cr_assert_arr_eq(err.err_data, "why", 3);
	}
	/* Still there: no error has been read since. */
	cr_assert_eq(get(&n, 0), -FI_EAVAIL);
	cr_assert_arr_eq(err.err_data, "why", 3);
	memset(&err, 0, sizeof(err));
	cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), sizeof(err));
	cr_assert_eq(err.err, FI_ETIMEDOUT);
	cr_assert_null(err.err_data);
	cr_assert_eq(err.err_data_size, 0);
	cr_assert_gt(get(&n, 0), 0);
	cr_assert_eq(n, 7);
	cr_assert_eq(fd_ready(), 0);
}

CLEAN_TEST(eq, err_data_in_the_callers_buffer)
{
	char buf[16];
	struct fi_eq_err_entry err;

	for (size_t room = 1; room < sizeof(buf); room++) {
		memset(buf, '-', sizeof(buf));
		err = (struct fi_eq_err_entry){ .err_data = buf,
						.err_data_size = room };
		post_err(FI_ECONNREFUSED, "reason");
		cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), sizeof(err));
		cr_assert_eq(err.err_data, buf);
		cr_assert_eq(err.err_data_size, room < 6 ? room : 6);
		cr_assert_arr_eq(buf, "reason", err.err_data_size);
		cr_assert_eq(buf[err.err_data_size], '-');
	}
	/* Programs of before 1.5 leave these fields unset. */
	fake_fabric()->fid.api_version = FI_VERSION(1, 4);
	err = (struct fi_eq_err_entry){ .err_data = (void *)1,
					.err_data_size = 99 };
	post_err(FI_ECONNREFUSED, "reason");
	cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), sizeof(err));
	cr_assert_eq(err.err_data_size, 6);
	cr_assert_arr_eq(err.err_data, "reason", 6);
}

CLEAN_TEST(eq, sread_waits_as_long_as_it_should)
{
	struct fi_eq_entry entry;
	uint32_t event;
	uint64_t start = vrc_now_ms();

	cr_assert_eq(fi_eq_sread(&eq->fid, &event, &entry, sizeof(entry), 200,
				 0), -FI_EAGAIN);
	cr_assert_geq(vrc_now_ms() - start, 199);
	cr_assert_leq(vrc_now_ms() - start, 20000);
	start = vrc_now_ms();
	cr_assert_eq(fi_eq_sread(&eq->fid, &event, &entry, sizeof(entry), 0,
				 0), -FI_EAGAIN);
	cr_assert_leq(vrc_now_ms() - start, 5000);
}

static void *write_later(void *arg)
{
	usleep(100 * 1000);
	put(1);
	return NULL;
}

static void *err_later(void *arg)
{
	usleep(100 * 1000);
	post_err(FI_ETIMEDOUT, "");
	return NULL;
}

/* Waiting without end ends with an event, an error or a signal. */
CLEAN_TEST(eq, sread_wakes)
{
	struct fi_eq_entry entry;
	struct fi_eq_err_entry err = { 0 };
	uint32_t event;
	pthread_t thread;

	pthread_create(&thread, NULL, write_later, NULL);
	cr_assert_eq(fi_eq_sread(&eq->fid, &event, &entry, sizeof(entry), -1,
				 0), sizeof(entry));
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, err_later, NULL);
	cr_assert_eq(fi_eq_sread(&eq->fid, &event, &entry, sizeof(entry), -1,
				 0), -FI_EAVAIL);
	pthread_join(thread, NULL);
	cr_assert_gt(fi_eq_readerr(&eq->fid, &err, 0), 0);
}

static void on_alarm(int sig)
{
}

CLEAN_TEST(eq, sread_ends_with_a_signal)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct fi_eq_entry entry;
	uint32_t event;

	sigaction(SIGALRM, &act, NULL);
	alarm(1);
	cr_assert_eq(fi_eq_sread(&eq->fid, &event, &entry, sizeof(entry), -1,
				 0), -FI_EINTR);
}

/* Two threads wait, events come one by one: each is read once, none sleeps
 * through. */
static _Atomic int taken;

static void *reader(void *arg)
{
	struct fi_eq_entry entry;
	uint32_t event;

	while (atomic_load(&taken) < 2000) {
		if (fi_eq_sread(&eq->fid, &event, &entry, sizeof(entry), 100,
				0) > 0)
			atomic_fetch_add(&taken, 1);
	}
	return NULL;
}

CLEAN_TEST(eq, no_lost_wakeup)
{
	pthread_t threads[2];
	uint64_t start = vrc_now_ms();

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, reader, NULL);
	for (uintptr_t i = 0; i < 2000; i++)
		put(i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(taken, 2000);
	cr_assert_leq(vrc_now_ms() - start, 20000);
	cr_assert_eq(fd_ready(), 0);
}

CLEAN_TEST(eq, forget)
{
	struct fi_eq_err_entry err = { 0 };
	struct fid other = { 0 };
	struct fi_eq_cm_entry entry;

	lock_take(&eq->lock);
	vrc_eq_post_cm(eq, FI_SHUTDOWN, &some_fid, NULL, NULL, 0);
	vrc_eq_post_cm(eq, FI_SHUTDOWN, &other, NULL, NULL, 0);
	vrc_eq_post_err(eq, &some_fid, FI_ETIMEDOUT, 0, NULL, 0);
	vrc_eq_forget(eq, &some_fid);
	lock_drop(&eq->lock);
	cr_assert_eq(fi_eq_readerr(&eq->fid, &err, 0), -FI_EAGAIN);
	cr_assert_eq(fake_read(eq, &entry), FI_SHUTDOWN);
	cr_assert_eq(entry.fid, &other);
	cr_assert_eq(fake_read(eq, NULL), -FI_EAGAIN);
	cr_assert_eq(fd_ready(), 0);
}

CLEAN_TEST(eq, one_channel_per_backend)
{
	struct rdma_event_channel *a, *b;

	fake.fail[FAKE_CREATE_CHANNEL] = ENODEV;
	cr_assert_null(vrc_eq_channel(eq, &fake_ops));
	cr_assert_eq(errno, ENODEV);
	a = vrc_eq_channel(eq, &fake_ops);
	b = vrc_eq_channel(eq, &fake_ops_second);
	cr_assert(a && b && a != b);
	cr_assert_eq(vrc_eq_channel(eq, &fake_ops), a);
	cr_assert_eq(vrc_eq_channel(eq, &fake_ops_second), b);
	cr_assert_eq(fake.channels, 2);
}

CLEAN_TEST(eq, strings)
{
	char buf[8];

	cr_assert_str_eq(fi_eq_strerror(&eq->fid, -ETIMEDOUT, NULL, NULL, 0),
			 fi_strerror(FI_ETIMEDOUT));
	cr_assert_str_eq(fi_eq_strerror(&eq->fid, 8, NULL, NULL, 0),
			 "nobody listens on that port, or what does hung up");
	cr_assert_eq(fi_eq_strerror(&eq->fid, 8, NULL, buf, sizeof(buf)), buf);
	cr_assert_str_eq(buf, "nobody ");
	for (int i = -200; i < 200; i++)
		cr_assert(fi_eq_strerror(&eq->fid, i, NULL, NULL, 0));
}

CLEAN_TEST(eq, attributes)
{
	static const enum fi_wait_obj bad[] = {
		FI_WAIT_MUTEX_COND, FI_WAIT_YIELD, FI_WAIT_POLLFD, 99,
	};
	struct fi_eq_attr attr = { 0 };
	struct fi_eq_entry entry = { 0 };
	enum fi_wait_obj obj;
	struct fid_eq *fid;
	struct vrc_eq *none;
	uint32_t event;
	int fd;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		attr.wait_obj = bad[i];
		cr_assert_eq(vrc_eq_open(&fake_fabric()->fid, &attr, &fid,
					 NULL), -FI_ENOSYS);
	}
	attr = (struct fi_eq_attr){ .flags = FI_READ };
	cr_assert_eq(vrc_eq_open(&fake_fabric()->fid, &attr, &fid, NULL),
		     -FI_EINVAL);
	cr_assert_eq(vrc_eq_open(&fake_fabric()->fid, NULL, &fid, NULL), 0);
	none = vrc_eq(fid);
	cr_assert_eq(fi_eq_sread(fid, &event, &entry, sizeof(entry), -1, 0),
		     -FI_ENOSYS);
	cr_assert_eq(fi_eq_write(fid, FI_NOTIFY, &entry, sizeof(entry), 0),
		     -FI_EINVAL);
	cr_assert_eq(vrc_eq_trywait(none), -FI_EINVAL);
	cr_assert_lt(fi_control(&fid->fid, FI_GETWAIT, &fd), 0);
	cr_assert_eq(fi_control(&fid->fid, FI_GETWAITOBJ, &obj), 0);
	cr_assert_eq(obj, FI_WAIT_NONE);
	/* Events arrive without a wait object as well. */
	lock_take(&none->lock);
	vrc_eq_post_cm(none, FI_SHUTDOWN, &some_fid, NULL, NULL, 0);
	lock_drop(&none->lock);
	cr_assert_eq(fake_read(none, NULL), FI_SHUTDOWN);
	atomic_fetch_add(&none->ref, 1);
	cr_assert_eq(fi_close(&fid->fid), -FI_EBUSY);
	atomic_fetch_sub(&none->ref, 1);
	fake_eq_close(none);
}

/* What is unread when the queue closes is gone, and not leaked. */
CLEAN_TEST(eq, close_with_events)
{
	put(1);
	post_err(FI_ETIMEDOUT, "data");
}
