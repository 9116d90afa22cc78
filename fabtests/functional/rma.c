/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Remote memory access that works: every read and write call, sizes, vectors,
 * inject, immediate data, ordering against messages, reads beyond the window.
 * What must not work is in rma_errors.c.
 */
#include <sys/mman.h>

#include "pair.h"

enum { SIZE = 1 << 20, GUARD = 64 };

static void open_as(size_t len, const struct setup *how)
{
	make_pair(&srv, &cli, how);
	buf_open(&cli, &tx, len, FI_READ | FI_WRITE | FI_SEND);
	buf_open(&srv, &rx, len + GUARD,
		 FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RECV);
	memset(rx.p, 0xee, len + GUARD);
}

static void wrote(size_t len, uint32_t seed)
{
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	EXPECT_FILLED(rx.p, len, seed);
	ASSERT_BYTES(rx.p + len, GUARD, 0xee);
	memset(rx.p, 0xee, len);
}

static void did_read(size_t len, uint32_t seed)
{
	expect_ok(cli.cq, &tx, FI_RMA | FI_READ, NULL);
	ASSERT_FILLED(tx.p, len, seed);
	memset(tx.p, 0, len);
}

static void open_all(size_t len)
{
	open_as(len, NULL);
}

/* The target does nothing meanwhile: no call of its own moves data. */
static int sizes(void)
{
	static const size_t list[] = {
		0, 1, 2, 7, 8, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097,
		65535, 65536, 65537, SIZE,
	};

	open_all(SIZE);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		uint32_t seed = (uint32_t)i + 1;

		fill(tx.p, list[i], seed);
		ASSERT_TAKEN(fi_write(cli.ep, tx.p, list[i], tx.desc, 0,
				      rx.addr, rx.key, &tx));
		wrote(list[i], seed);
		fill(rx.p, list[i], seed + 100);
		memset(tx.p, 0, list[i]);
		ASSERT_TAKEN(fi_read(cli.ep, tx.p, list[i], tx.desc, 0, rx.addr,
				     rx.key, &tx));
		did_read(list[i], seed + 100);
		memset(rx.p, 0xee, list[i]);
	}
	return pair_close_quiet();
}

static int big(void)
{
	size_t len = 16 << 20;

	open_all(len);
	/* rxe's limit is 8 MiB. */
	len = min_size(len, cli.info->ep_attr->max_msg_size);
	memset(rx.p, 0xee, rx.len);
	fill(tx.p, len, 1);
	ASSERT_TAKEN(
		fi_write(cli.ep, tx.p, len, tx.desc, 0, rx.addr, rx.key, &tx));
	wrote(len, 1);
	fill(rx.p, len, 2);
	ASSERT_TAKEN(
		fi_read(cli.ep, tx.p, len, tx.desc, 0, rx.addr, rx.key, &tx));
	did_read(len, 2);
	return pair_close_quiet();
}

/* Any byte of the region can be the first and any the last. */
static int offsets(void)
{
	open_all(4096);
	for (size_t off = 0; off < 64; off += 13)
		for (size_t len = 1; len < 100; len += 17) {
			memset(rx.p, 0xee, 4096);
			fill(tx.p, len, 3);
			ASSERT_TAKEN(fi_write(cli.ep, tx.p, len, tx.desc, 0,
					      rx.addr + off, rx.key, &tx));
			expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
			EXPECT_FILLED(rx.p + off, len, 3);
			ASSERT_BYTES(rx.p, off, 0xee);
			ASSERT_BYTES(rx.p + off + len, 100, 0xee);
		}
	ASSERT_TAKEN(fi_write(cli.ep, tx.p, 1, tx.desc, 0,
			      rx.addr + 4096 + GUARD - 1, rx.key, &tx));
	expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
	return pair_close_quiet();
}

static size_t split(size_t len, struct iovec *iov, void **desc, size_t cnt)
{
	size_t off = 0;

	for (size_t i = 0; i < cnt; i++) {
		iov[i].iov_base = tx.p + off;
		iov[i].iov_len = i + 1 == cnt ? len - off :
						len / cnt + (i & 1 ? 5 : 0);
		desc[i] = tx.desc;
		off += iov[i].iov_len;
	}
	return cnt;
}

static int vectors(void)
{
	enum { MAX = 16, LEN = 10007 };
	struct iovec iov[MAX];
	void *desc[MAX];
	size_t max;

	open_all(LEN);
	max = min_size(cli.info->tx_attr->iov_limit, MAX);
	for (size_t cnt = 1; cnt <= max; cnt++) {
		split(LEN, iov, desc, cnt);
		fill(tx.p, LEN, (uint32_t)cnt);
		ASSERT_TAKEN(fi_writev(cli.ep, iov, desc, cnt, 0, rx.addr,
				       rx.key, &tx));
		wrote(LEN, (uint32_t)cnt);
		/* A device may take fewer pieces for what it reads into;
		 * hiding that is the provider's business. */
		fill(rx.p, LEN, (uint32_t)cnt + 50);
		memset(tx.p, 0, LEN);
		ASSERT_TAKEN(fi_readv(cli.ep, iov, desc, cnt, 0, rx.addr,
				      rx.key, &tx));
		did_read(LEN, (uint32_t)cnt + 50);
		memset(rx.p, 0xee, LEN);
	}
	return pair_close_quiet();
}

static ssize_t post_msg(bool is_read, size_t len, size_t cnt, uint64_t flags,
			uint64_t data)
{
	struct iovec iov[16];
	void *desc[16];
	struct fi_rma_iov target = { rx.addr, len, rx.key };
	struct fi_msg_rma msg = {
		.msg_iov = iov,
		.desc = desc,
		.iov_count = split(len, iov, desc, cnt),
		.rma_iov = &target,
		.rma_iov_count = 1,
		.context = &tx,
		.data = data,
	};

	return is_read ? fi_readmsg(cli.ep, &msg, flags) :
			 fi_writemsg(cli.ep, &msg, flags);
}

static int readmsg_writemsg(void)
{
	static const uint64_t flags[] = {
		FI_COMPLETION, FI_COMPLETION | FI_TRANSMIT_COMPLETE,
		FI_COMPLETION | FI_FENCE, FI_COMPLETION,
	};

	open_all(5000);
	for (uint32_t i = 0; i < ARRAY_SIZE(flags); i++) {
		size_t cnt = 1 + i % cli.info->tx_attr->iov_limit;

		if (!is_vrc() && i == 2)
			continue;
		fill(tx.p, 5000, i);
		ASSERT_OK(post_msg(false, 5000, cnt, flags[i], 0));
		wrote(5000, i);
		fill(rx.p, 5000, i + 9);
		memset(tx.p, 0, 5000);
		ASSERT_OK(post_msg(true, 5000, cnt, flags[i], 0));
		did_read(5000, i + 9);
		memset(rx.p, 0xee, 5000);
	}
	return pair_close_quiet();
}

/* Several remote pieces, as far as rma_iov_limit promises. */
static int remote_vectors(void)
{
	struct fi_rma_iov target[16];
	struct iovec iov;
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &tx.desc, .iov_count = 1,
		.rma_iov = target, .context = &tx,
	};
	size_t max;

	open_all(4096);
	max = min_size(cli.info->tx_attr->rma_iov_limit, 16);
	ASSERT_GE(max, 1);
	for (size_t cnt = 1; cnt <= max; cnt++) {
		msg.rma_iov_count = cnt;
		iov.iov_base = tx.p;
		iov.iov_len = cnt * 100;
		for (size_t i = 0; i < cnt; i++)
			target[i] = (struct fi_rma_iov){
				.addr = rx.addr + i * 200,
				.len = 100,
				.key = rx.key,
			};
		memset(rx.p, 0xee, 4096);
		for (size_t i = 0; i < cnt; i++)
			fill(tx.p + i * 100, 100, (uint32_t)i);
		ASSERT_TAKEN(fi_writemsg(cli.ep, &msg, FI_COMPLETION));
		expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
		for (size_t i = 0; i < cnt; i++) {
			EXPECT_FILLED(rx.p + i * 200, 100, (uint32_t)i);
			ASSERT_BYTES(rx.p + i * 200 + 100, 100, 0xee);
		}
	}
	return pair_close_quiet();
}

/* Reads at the target after a send that followed: ordered, no completion. */
static void sync_by_message(void)
{
	post_recv(&srv, &rx, 4096, 0, &rx);
	ASSERT_TAKEN(fi_send(cli.ep, NULL, 0, NULL, 0, &srv));
	expect_ok(cli.cq, &srv, FI_SEND | FI_MSG, NULL);
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
}

static int inject_write(void)
{
	uint8_t *mem;
	size_t max;

	open_all(65536);
	max = cli.info->tx_attr->inject_size;
	mem = malloc(max + 1);
	ASSERT(mem);
	for (size_t len = 0; len <= max; len = len ? len * 2 : 1) {
		fill(mem, len, (uint32_t)len);
		ASSERT_TAKEN(
			fi_inject_write(cli.ep, mem, len, 0, rx.addr, rx.key));
		memset(mem, 0xdd, max);
		sync_by_message();
		ASSERT_FILLED(rx.p, len, (uint32_t)len);
		ASSERT_BYTES(rx.p + len, GUARD, 0xee);
		memset(rx.p, 0xee, len);
	}
	if (is_vrc()) {
		ssize_t ret = fi_inject_write(cli.ep, mem, max + 1, 0, rx.addr,
					      rx.key);

		ASSERT_CMP(ret, <, 0);
		ASSERT_NE(ret, -FI_EAGAIN);
	}
	free(mem);
	expect_no_comp(cli.cq, 20);
	return pair_close_quiet();
}

static void got_data(uint64_t data)
{
	struct comp c;

	expect_ok(srv.cq, takes_recv(&srv) ? &srv : NULL, remote_write_flags(),
		  &c);
	ASSERT_EQ(c.data, data);
}

static void arm_data(void)
{
	if (takes_recv(&srv))
		ASSERT_OK(fi_recv(srv.ep, NULL, 0, NULL, 0, &srv));
}

static int write_data(void)
{
	open_all(4096);
	if (!has_cq_data(&cli)) {
		pair_close_quiet();
		return skip("no immediate data on this device");
	}
	for (uint32_t i = 1; i < 4; i++) {
		fill(tx.p, 100, i);
		arm_data();
		ASSERT_TAKEN(fi_writedata(cli.ep, tx.p, 100, tx.desc,
					  0xabc0 + i, 0, rx.addr, rx.key, &tx));
		got_data(0xabc0 + i);
		wrote(100, i);

		fill(tx.p, 16, i + 10);
		arm_data();
		ASSERT_TAKEN(fi_inject_writedata(cli.ep, tx.p, 16, 0xdef0 + i,
						 0, rx.addr, rx.key));
		got_data(0xdef0 + i);
		ASSERT_FILLED(rx.p, 16, i + 10);
		memset(rx.p, 0xee, 16);

		/* And none is left for the next, plain one. */
		ASSERT_TAKEN(
			fi_inject_write(cli.ep, tx.p, 16, 0, rx.addr, rx.key));
		sync_by_message();
		memset(rx.p, 0xee, 16);

		fill(tx.p, 200, i + 20);
		arm_data();
		ASSERT_OK(post_msg(false, 200, 1,
				   FI_REMOTE_CQ_DATA | FI_COMPLETION, 0x55));
		got_data(0x55);
		wrote(200, i + 20);
	}
	return pair_close_quiet();
}

/* A write is visible when the send behind it has been received. */
static int write_then_send(void)
{
	open_all(SIZE);
	for (uint32_t i = 0; i < (uint32_t)scaled(50); i++) {
		size_t len = 1 + i * 20011u % SIZE;

		fill(tx.p, len, i);
		post_recv(&srv, &rx, SIZE, 0, &rx);
		ASSERT_TAKEN(fi_write(cli.ep, tx.p, len, tx.desc, 0, rx.addr,
				      rx.key, &tx));
		ASSERT_TAKEN(fi_send(cli.ep, NULL, 0, NULL, 0, &cli));
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, NULL);
		ASSERT_FILLED(rx.p, len, i);
		expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
		expect_ok(cli.cq, &cli, FI_SEND | FI_MSG, NULL);
	}
	return pair_close_quiet();
}

/* More reads in flight than any device has read contexts. */
static int many_reads(void)
{
	enum { N = 64, LEN = 1000 };

	open_all(N * LEN);
	fill(rx.p, N * LEN, 8);
	for (size_t i = 0; i < N; i++)
		ASSERT_TAKEN(fi_read(cli.ep, tx.p + i * LEN, LEN, tx.desc, 0,
				     rx.addr + i * LEN, rx.key, &tx));
	for (size_t i = 0; i < N; i++)
		expect_ok(cli.cq, &tx, FI_RMA | FI_READ, NULL);
	ASSERT_FILLED(tx.p, N * LEN, 8);
	return pair_close_quiet();
}

static ssize_t read_when_room(size_t cnt)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	ssize_t ret;
	struct comp c;

	while ((ret = post_msg(true, 5000, cnt, FI_COMPLETION, 0)) ==
		       -FI_EAGAIN && now_us() < end)
		ASSERT(!poll_comp(cli.cq, &c));
	return ret;
}

/*
 * A read of as many pieces as the send queue has places, on a device that takes one
 * piece at a time, behind a write that tells nobody that it is done.
 */
static int pieces_fill_the_queue(void)
{
	enum { PIECES = 4 };
	const struct setup how = {
		.tx_size = PIECES,
		.tx_bind = FI_SELECTIVE_COMPLETION,
	};

	setenv("SOFTVERBS_DEVICES", "one,addr=127.0.0.1,max_sge_rd=1", 0);
	open_as(5000, &how);
	fill(rx.p, 5000, 1);
	for (int i = 0; i < 2 * PIECES; i++) {
		ASSERT_TAKEN(fi_inject_write(cli.ep, tx.p, 0, 0, rx.addr,
					     rx.key));
		ASSERT_OK(read_when_room(PIECES));
		did_read(5000, 1);
	}
	return pair_close_quiet();
}

/* A sink registered for nothing but FI_READ is enough, iWARP or not. */
static int read_only_sink(void)
{
	struct buf sink;

	open_all(4096);
	buf_open(&cli, &sink, 4096, FI_READ);
	fill(rx.p, 4096, 5);
	ASSERT_TAKEN(fi_read(cli.ep, sink.p, 4096, sink.desc, 0, rx.addr,
			     rx.key, &sink));
	expect_ok(cli.cq, &sink, FI_RMA | FI_READ, NULL);
	ASSERT_FILLED(sink.p, 4096, 5);
	buf_close(&sink);
	return pair_close_quiet();
}

/* Memory that cannot be written: can be sent, and exposed to remote reads. */
static int read_only_memory(void)
{
	uint8_t *page;
	struct fid_mr *src;
	struct fid_mr *target;
	bool virt;

	open_all(4096);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT(page != MAP_FAILED);
	fill(page, 4096, 6);
	ASSERT_OK(mprotect(page, 4096, PROT_READ));
	ASSERT_OK(fi_mr_reg(cli.domain, page, 4096, FI_SEND | FI_WRITE, 0, 100,
			    0, &src, NULL));
	ASSERT_OK(fi_mr_reg(srv.domain, page, 4096, FI_REMOTE_READ, 0, 101, 0,
			    &target, NULL));
	virt = srv.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	ASSERT_TAKEN(fi_write(cli.ep, page, 4096, fi_mr_desc(src), 0, rx.addr,
			      rx.key, &tx));
	wrote(4096, 6);
	ASSERT_TAKEN(fi_read(cli.ep, tx.p, 4096, tx.desc, 0,
			     virt ? (uintptr_t)page : 0, fi_mr_key(target),
			     &tx));
	did_read(4096, 6);
	ASSERT_OK(fi_close(&src->fid));
	ASSERT_OK(fi_close(&target->fid));
	munmap(page, 4096);
	return pair_close_quiet();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(sizes), CASE(big), CASE(offsets), CASE(vectors),
		CASE(readmsg_writemsg), CASE(remote_vectors),
		CASE(inject_write), CASE(write_data), CASE(write_then_send),
		CASE(many_reads), CASE_COLD(pieces_fill_the_queue),
		CASE(read_only_sink), CASE(read_only_memory),
		{ NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
