/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The bare means: what is left to gain. Nothing here checks, counts credits or
 * survives anything.
 */
#include "dev_bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- a ring of messages in shared memory ---- */

enum {
	SLOTS = 128,
	ROUNDS_PER_LOOK = 1000,
};

struct slot {
	_Alignas(2 * CACHELINE) atomic_uint seq;
	char data[DEV_SMALL];
};

static void put(struct slot *ring, unsigned int at, const char *from)
{
	struct slot *slot = &ring[at % SLOTS];

	memcpy(slot->data, from, DEV_SMALL);
	atomic_store_explicit(&slot->seq, at + 1, memory_order_release);
}

static void get(struct slot *ring, unsigned int at, char *to)
{
	struct slot *slot = &ring[at % SLOTS];

	while (atomic_load_explicit(&slot->seq, memory_order_acquire) != at + 1)
		;
	memcpy(to, slot->data, DEV_SMALL);
}

/* The first byte of a message says whether there is another one. */
int dev_bare_ring(const struct dev_side *side, double *value)
{
	struct slot *to_b = side->shared;
	struct slot *to_a = to_b + SLOTS;
	char out[DEV_SMALL] = { 1 }, in[DEV_SMALL];
	uint64_t start_ns;
	unsigned int i = 0;

	if (dev_meet(side))
		return -1;
	start_ns = bench_now_ns();
	if (!side->is_a) {
		do {
			get(to_b, i, in);
			put(to_a, i++, in);
		} while (in[0]);
		return 0;
	}
	do {
		if (i % ROUNDS_PER_LOOK == 0 && dev_time_over(start_ns, side))
			out[0] = 0;
		put(to_b, i, out);
		get(to_a, i++, in);
	} while (out[0]);
	*value = (double)(bench_now_ns() - start_ns) / i / 2;
	return 0;
}

/* ---- process_vm_writev ---- */

struct there {
	pid_t pid;
	void *addr;
};

static int write_there(const struct there *there, char *from, size_t off)
{
	struct iovec local = { .iov_base = from, .iov_len = DEV_WRITE };
	struct iovec remote = {
		.iov_base = (char *)there->addr + off,
		.iov_len = DEV_WRITE,
	};

	if (process_vm_writev(there->pid, &local, 1, &remote, 1, 0) ==
	    DEV_WRITE)
		return 0;
	perror("process_vm_writev");
	return -1;
}

int dev_bare_writev(const struct dev_side *side, double *value)
{
	char *region = dev_region(DEV_REGION);
	struct there there = { .pid = getpid(), .addr = region };
	uint64_t start_ns, cnt = 0;
	size_t off;

	if (!region)
		return -1;
	if (!side->is_a)
		return dev_tell(side, &there, sizeof(there)) || dev_meet(side);
	if (dev_hear(side, &there, sizeof(there)))
		return -1;
	start_ns = bench_now_ns();
	do {
		off = cnt++ * DEV_WRITE % DEV_REGION;
		if (write_there(&there, region + off, off))
			return -1;
	} while (!dev_time_over(start_ns, side));
	*value = cnt * (DEV_WRITE / 1048576.0) /
		 ((bench_now_ns() - start_ns) / 1e9);
	return dev_meet(side);
}

/* ---- a TCP stream ---- */

static int stream_socket(const struct dev_side *side)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);
	int on = 1;
	int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int conn;

	inet_pton(AF_INET, side->addr, &addr.sin_addr);
	if (sock < 0)
		return -1;
	if (side->is_a) {
		if (dev_hear(side, &addr, sizeof(addr)) ||
		    connect(sock, (struct sockaddr *)&addr, len))
			return -1;
		setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		return sock;
	}
	if (bind(sock, (struct sockaddr *)&addr, len) || listen(sock, 1) ||
	    getsockname(sock, (struct sockaddr *)&addr, &len) ||
	    dev_tell(side, &addr, sizeof(addr)))
		return -1;
	conn = accept(sock, NULL, NULL);
	close(sock);
	return conn;
}

static int stream_all(int sock, char *buf, bool out)
{
	size_t done = 0;
	ssize_t n;

	while (done < DEV_STREAM) {
		n = out ? send(sock, buf + done, DEV_STREAM - done,
			       MSG_NOSIGNAL) :
			  recv(sock, buf + done, DEV_STREAM - done, 0);
		if (n <= 0)
			return n ? -1 : 1;
		done += n;
	}
	return 0;
}

/* B's last word, after the stream has ended, is how much has arrived. */
int dev_bare_stream(const struct dev_side *side, double *value)
{
	char *region = dev_region(DEV_REGION);
	uint64_t start_ns, cnt = 0, arrived;
	int sock, ret = 0;

	if (!region)
		return -1;
	sock = stream_socket(side);
	if (sock < 0) {
		perror("bare stream");
		return -1;
	}
	start_ns = bench_now_ns();
	while (!ret && (!side->is_a || !dev_time_over(start_ns, side)))
		ret = stream_all(sock, region + cnt++ * DEV_STREAM % DEV_REGION,
				 side->is_a);
	if (!side->is_a) {
		cnt--;
		return ret < 0 || dev_tell(side, &cnt, sizeof(cnt));
	}
	shutdown(sock, SHUT_WR);
	if (ret || dev_hear(side, &arrived, sizeof(arrived)) || arrived != cnt) {
		fprintf(stderr, "bare stream: broken\n");
		return -1;
	}
	*value = cnt * (DEV_STREAM / 1048576.0) /
		 ((bench_now_ns() - start_ns) / 1e9);
	return 0;
}
