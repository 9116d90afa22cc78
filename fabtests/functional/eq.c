/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Event queues without connections: writing, reading, peeking, waiting,
 * descriptors, wait objects, closing while bound. See fi_eq(3).
 */
#include <poll.h>
#include <pthread.h>

#include "common.h"

static struct fi_info *info;
static struct fid_fabric *fabric;

static void open_fabric(void)
{
	int ret;

	info = try_getinfo(NULL, NULL, FI_SOURCE, &ret);
	ASSERT_OK(ret);
	ASSERT_OK(fi_fabric(info->fabric_attr, &fabric, NULL));
}

static int close_fabric(void)
{
	ASSERT_OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	return PASSED;
}

static struct fid_eq *open_eq(enum fi_wait_obj wait_obj)
{
	struct fi_eq_attr attr = {
		.size = 32, .flags = FI_WRITE, .wait_obj = wait_obj,
	};
	struct fid_eq *eq;

	ASSERT_OK(fi_eq_open(fabric, &attr, &eq, &attr));
	ASSERT(eq->fid.context == &attr);
	ASSERT_EQ(eq->fid.fclass, FI_CLASS_EQ);
	return eq;
}

static void write_event(struct fid_eq *eq, size_t value)
{
	struct fi_eq_entry entry = {
		.fid = &eq->fid, .context = &info, .data = value,
	};

	ASSERT_EQ(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0),
		  sizeof(entry));
}

static void read_event(struct fid_eq *eq, size_t value, uint64_t flags)
{
	struct fi_eq_entry entry;
	uint32_t type = ERROR_EVENT;

	memset(&entry, 0xff, sizeof(entry));
	ASSERT_EQ(fi_eq_read(eq, &type, &entry, sizeof(entry), flags),
		  sizeof(entry));
	ASSERT_EQ(type, FI_NOTIFY);
	ASSERT(entry.fid == &eq->fid);
	ASSERT(entry.context == &info);
	ASSERT_EQ(entry.data, value);
}

static void read_nothing(struct fid_eq *eq)
{
	struct fi_eq_entry entry;
	uint32_t type;

	ASSERT_EQ(fi_eq_read(eq, &type, &entry, sizeof(entry), 0), -FI_EAGAIN);
}

static int open_close(void)
{
	static const enum fi_wait_obj objs[] = {
		FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD,
	};

	open_fabric();
	for (size_t i = 0; i < ARRAY_SIZE(objs); i++)
		ASSERT_OK(fi_close(&open_eq(objs[i])->fid));
	return close_fabric();
}

/* What is not supported is refused at open, not when waiting. */
static int odd_wait_objects(void)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE };
	struct fid_eq *eq;

	open_fabric();
	for (int obj = FI_WAIT_SET; obj < 64; obj++) {
		int ret;

		if (obj == FI_WAIT_FD)
			continue;
		attr.wait_obj = (enum fi_wait_obj)obj;
		eq = NULL;
		ret = fi_eq_open(fabric, &attr, &eq, NULL);
		/* A wait set that is not given, or no such object at all. */
		if (obj == FI_WAIT_SET || obj > FI_WAIT_POLLFD)
			ASSERT_CMP(ret, <, 0);
		if (!ret) {
			write_event(eq, 1);
			read_event(eq, 1, 0);
			ASSERT_OK(fi_close(&eq->fid));
		}
	}
	return close_fabric();
}

static int no_attr(void)
{
	struct fi_eq_attr attr;
	struct fid_eq *eq;

	open_fabric();
	memset(&attr, 0, sizeof(attr));
	ASSERT_OK(fi_eq_open(fabric, &attr, &eq, NULL));
	read_nothing(eq);
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

static int write_read(void)
{
	struct fid_eq *eq;

	open_fabric();
	eq = open_eq(FI_WAIT_NONE);
	read_nothing(eq);
	for (size_t round = 0; round < 3; round++) {
		for (size_t i = 0; i < 32; i++)
			write_event(eq, round * 100 + i);
		for (size_t i = 0; i < 32; i++)
			read_event(eq, round * 100 + i, 0);
		read_nothing(eq);
	}
	/* Left unread: lost, not leaked. */
	write_event(eq, 1);
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

static int peek(void)
{
	struct fid_eq *eq;
	struct fi_eq_entry entry;
	uint32_t type;

	open_fabric();
	eq = open_eq(FI_WAIT_UNSPEC);
	ASSERT_EQ(fi_eq_read(eq, &type, &entry, sizeof(entry), FI_PEEK),
		  -FI_EAGAIN);
	write_event(eq, 1);
	write_event(eq, 2);
	for (int i = 0; i < 3; i++)
		read_event(eq, 1, FI_PEEK);
	ASSERT_EQ(fi_eq_sread(eq, &type, &entry, sizeof(entry), 100, FI_PEEK),
		  sizeof(entry));
	ASSERT_EQ(entry.data, 1);
	read_event(eq, 1, 0);
	read_event(eq, 2, FI_PEEK);
	read_event(eq, 2, 0);
	read_nothing(eq);
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

/* The event may be cut or kept; nothing is written past the room given. */
static int short_buffer(void)
{
	struct fid_eq *eq;
	uint8_t room[sizeof(struct fi_eq_entry)];
	uint32_t type;
	ssize_t n;

	open_fabric();
	eq = open_eq(FI_WAIT_NONE);
	for (size_t len = 0; len < sizeof(room); len += 4) {
		write_event(eq, 7);
		memset(room, 0xee, sizeof(room));
		n = fi_eq_read(eq, &type, room, len, 0);
		ASSERT_BYTES(room + len, sizeof(room) - len, 0xee);
		if (n < 0) {
			ASSERT_EQ(n, -FI_ETOOSMALL);
			read_event(eq, 7, 0); /* nothing is lost by it */
		} else {
			ASSERT_LE(n, len);
		}
		read_nothing(eq);
	}
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

static int readerr_empty(void)
{
	struct fid_eq *eq;
	struct fi_eq_err_entry err;
	char text[64] = "";

	open_fabric();
	eq = open_eq(FI_WAIT_NONE);
	memset(&err, 0, sizeof(err));
	ASSERT_EQ(fi_eq_readerr(eq, &err, 0), -FI_EAGAIN);
	write_event(eq, 1);
	ASSERT_EQ(fi_eq_readerr(eq, &err, 0), -FI_EAGAIN);
	read_event(eq, 1, 0);
	for (int i = -2; i < 40; i++)
		ASSERT(fi_eq_strerror(eq, i, NULL, text, sizeof(text)));
	ASSERT(fi_eq_strerror(eq, 1, NULL, NULL, 0));
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

/* The bound of a wait is kept: neither early nor for ever. */
static int sread_time(void)
{
	struct fid_eq *eq;
	struct fi_eq_entry entry;
	uint32_t type;
	uint64_t start;

	open_fabric();
	for (int obj = FI_WAIT_UNSPEC; obj <= FI_WAIT_FD; obj++) {
		if (obj == FI_WAIT_SET)
			continue;
		eq = open_eq((enum fi_wait_obj)obj);
		start = now_us();
		ASSERT_EQ(fi_eq_sread(eq, &type, &entry, sizeof(entry), 200, 0),
			  -FI_EAGAIN);
		ASSERT_GE(now_us() - start, 190 * 1000);
		ASSERT_LE(now_us() - start, slow_ms(700) * 1000);
		start = now_us();
		ASSERT_EQ(fi_eq_sread(eq, &type, &entry, sizeof(entry), 0, 0),
			  -FI_EAGAIN);
		ASSERT_LE(now_us() - start, slow_ms(100) * 1000);
		write_event(eq, 3);
		ASSERT_EQ(fi_eq_sread(eq, &type, &entry, sizeof(entry), -1, 0),
			  sizeof(entry));
		ASSERT_OK(fi_close(&eq->fid));
	}
	return close_fabric();
}

static void *write_later(void *arg)
{
	sleep_ms(100);
	write_event(arg, 9);
	return NULL;
}

/* An event from another thread ends a wait at once. */
static int sread_wakes(void)
{
	struct fid_eq *eq;
	struct fi_eq_entry entry;
	uint32_t type;
	uint64_t start;
	pthread_t thread;

	open_fabric();
	for (int obj = FI_WAIT_UNSPEC; obj <= FI_WAIT_FD; obj++) {
		if (obj == FI_WAIT_SET)
			continue;
		eq = open_eq((enum fi_wait_obj)obj);
		start = now_us();
		ASSERT_OK(pthread_create(&thread, NULL, write_later, eq));
		ASSERT_EQ(fi_eq_sread(eq, &type, &entry, sizeof(entry), -1, 0),
			  sizeof(entry));
		ASSERT_EQ(entry.data, 9);
		ASSERT_LE(now_us() - start, slow_ms(500) * 1000);
		ASSERT_OK(pthread_join(thread, NULL));
		ASSERT_OK(fi_close(&eq->fid));
	}
	return close_fabric();
}

/* No wait object: a blocking read is refused, it does not hang or crash. */
static int sread_none(void)
{
	struct fid_eq *eq;
	struct fi_eq_entry entry;
	uint32_t type;
	uint64_t start = now_us();

	open_fabric();
	eq = open_eq(FI_WAIT_NONE);
	if (is_vrc())
		ASSERT_CMP(fi_eq_sread(eq, &type, &entry, sizeof(entry), -1, 0),
			   <, 0);
	else
		ASSERT_CMP(fi_eq_sread(eq, &type, &entry, sizeof(entry), 10, 0),
			   <, 0);
	ASSERT_LE(now_us() - start, slow_ms(1000) * 1000);
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

static int wait_fd(void)
{
	struct fid_eq *eq;
	struct fid *fids[1];
	struct pollfd pfd = { .events = POLLIN };

	open_fabric();
	eq = open_eq(FI_WAIT_FD);
	fids[0] = &eq->fid;
	ASSERT_OK(fi_control(&eq->fid, FI_GETWAIT, &pfd.fd));
	ASSERT_GE(pfd.fd, 0);
	for (size_t round = 0; round < 20; round++) {
		ASSERT_OK(fi_trywait(fabric, fids, 1));
		ASSERT_EQ(poll(&pfd, 1, 5), 0);
		write_event(eq, round);
		write_event(eq, round + 1);
		/* Either of the two may say that there is something. */
		if (fi_trywait(fabric, fids, 1) != -FI_EAGAIN)
			ASSERT_EQ(poll(&pfd, 1, slow_ms(1000)), 1);
		read_event(eq, round, 0);
		if (fi_trywait(fabric, fids, 1) != -FI_EAGAIN)
			ASSERT_EQ(poll(&pfd, 1, slow_ms(1000)), 1);
		read_event(eq, round + 1, 0);
		read_nothing(eq);
	}
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

/* FI_GETWAIT where there is nothing to get. */
static int getwait_none(void)
{
	struct fid_eq *eq;
	int fd = -1;

	open_fabric();
	eq = open_eq(FI_WAIT_NONE);
	if (is_vrc())
		ASSERT_CMP(fi_control(&eq->fid, FI_GETWAIT, &fd), <, 0);
	ASSERT_CMP(fi_control(&eq->fid, 0x7777, &fd), <, 0);
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

static int not_writable(void)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_entry entry = { .data = 1 };
	struct fid_eq *eq;

	open_fabric();
	ASSERT_OK(fi_eq_open(fabric, &attr, &eq, NULL));
	if (is_vrc())
		ASSERT_CMP(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0),
			   <, 0);
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

/* Busy while something is bound; harmless to try. */
static int close_bound(void)
{
	struct fid_eq *eq;
	struct fid_pep *pep;

	open_fabric();
	eq = open_eq(FI_WAIT_UNSPEC);
	ASSERT_OK(fi_passive_ep(fabric, info, &pep, NULL));
	ASSERT_OK(fi_pep_bind(pep, &eq->fid, 0));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(fi_close(&eq->fid), -FI_EBUSY);
	write_event(eq, 1);
	read_event(eq, 1, 0);
	ASSERT_OK(fi_listen(pep));
	ASSERT_EQ(fi_close(&eq->fid), -FI_EBUSY);
	ASSERT_OK(fi_close(&pep->fid));
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

/* The fabric is busy while it has event queues. */
static int close_fabric_busy(void)
{
	struct fid_eq *eq;

	open_fabric();
	eq = open_eq(FI_WAIT_UNSPEC);
	ASSERT_EQ(fi_close(&fabric->fid), -FI_EBUSY);
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

/* A signal ends the wait, bounded or not, and is told from the end of the time. */
static int sread_interrupted(void)
{
	static const int timeouts[] = { 20000, -1 };
	struct fi_eq_entry entry;
	uint64_t start = now_us();
	struct fid_eq *eq;
	uint32_t type;

	open_fabric();
	eq = open_eq(FI_WAIT_FD);
	for (size_t i = 0; i < ARRAY_SIZE(timeouts); i++) {
		interrupt_in(50);
		ASSERT_EQ(fi_eq_sread(eq, &type, &entry, sizeof(entry),
				      timeouts[i], 0), -FI_EINTR);
	}
	ASSERT_LE(now_us() - start, (uint64_t)slow_ms(5000) * 1000);
	ASSERT_OK(fi_close(&eq->fid));
	return close_fabric();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(open_close), CASE(odd_wait_objects), CASE(no_attr),
		CASE(write_read), CASE(peek), CASE(short_buffer),
		CASE(readerr_empty), CASE(sread_time), CASE(sread_wakes),
		CASE(sread_none), CASE(sread_interrupted), CASE(wait_fd),
		CASE(getwait_none),
		CASE(not_writable), CASE(close_bound), CASE(close_fabric_busy),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
