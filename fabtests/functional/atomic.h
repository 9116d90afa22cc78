/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the programs about atomics share: a pair with just the rights that they take,
 * results in tx and targets in rx; the three kinds of operation on the first word.
 */
#ifndef ATOMIC_H
#define ATOMIC_H

#include "pair.h"

#define ATOMIC_CAPS (FI_MSG | FI_RMA | FI_ATOMIC)
#define ADDED (FI_ATOMIC | FI_WRITE)
#define FETCHED (FI_ATOMIC | FI_READ)

enum { LEN = 4096 };

static inline bool has_atomics(void)
{
	const struct setup how = { .caps = ATOMIC_CAPS };
	struct fi_info *info;
	int ret;

	info = try_getinfo(&how, NULL, FI_SOURCE, &ret);
	fi_freeinfo(info);
	if (info)
		return true;
	ASSERT_EQ(ret, -FI_ENODATA);
	return false;
}

static inline int no_atomics(void)
{
	return skip("%s has none on this device", provider());
}

static inline void open_all(struct setup how)
{
	if (!how.caps)
		how.caps = ATOMIC_CAPS;
	make_pair(&srv, &cli, &how);
	buf_open(&cli, &tx, LEN, FI_READ | FI_WRITE | FI_SEND);
	buf_open(&srv, &rx, LEN,
		 FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE);
}

static inline uint64_t *target(void)
{
	return (uint64_t *)rx.p;
}

static inline uint64_t *result(void)
{
	return (uint64_t *)tx.p;
}

/* As the target's CPU sees it, which a completion does not promise. */
static inline void expect_target(uint64_t want)
{
	uint64_t end = now_us() + (uint64_t)slow_ms(5000) * 1000;
	unsigned int turn = 0;

	while (__atomic_load_n(target(), __ATOMIC_ACQUIRE) != want &&
	       now_us() < end)
		relax(&turn);
	ASSERT_EQ(*target(), want);
}

static inline void add(uint64_t value)
{
	ASSERT_TAKEN(fi_atomic(cli.ep, &value, 1, NULL, 0, rx.addr, rx.key,
			       FI_UINT64, FI_SUM, &value));
	expect_ok(cli.cq, &value, ADDED, NULL);
}

static inline uint64_t fetch(const void *operand, enum fi_datatype datatype,
			     enum fi_op op)
{
	*result() = 0xeeee;
	ASSERT_TAKEN(fi_fetch_atomic(cli.ep, operand, 1, NULL, result(),
				     tx.desc, 0, rx.addr, rx.key, datatype, op,
				     &tx));
	expect_ok(cli.cq, &tx, FETCHED, NULL);
	return *result();
}

static inline uint64_t swap(uint64_t compare, uint64_t value)
{
	*result() = 0xeeee;
	ASSERT_TAKEN(fi_compare_atomic(cli.ep, &value, 1, NULL, &compare, NULL,
				       result(), tx.desc, 0, rx.addr, rx.key,
				       FI_UINT64, FI_CSWAP, &tx));
	expect_ok(cli.cq, &tx, FETCHED, NULL);
	return *result();
}

/* What the calls that take vectors and messages are given. */
struct calls {
	struct fi_ioc operand;
	struct fi_ioc compare;
	struct fi_ioc result;
	struct fi_rma_ioc remote;
	struct fi_msg_atomic msg;
};

/* The message points into c. */
static inline void calls_fill(struct calls *c, uint64_t *operand,
			      uint64_t *compare)
{
	*c = (struct calls){
		.operand = { operand, 1 },
		.compare = { compare, 1 },
		.result = { result(), 1 },
		.remote = { rx.addr, 1, rx.key },
		.msg = {
			.msg_iov = &c->operand,
			.iov_count = 1,
			.rma_iov = &c->remote,
			.rma_iov_count = 1,
			.datatype = FI_UINT64,
			.op = FI_SUM,
			.context = &tx,
		},
	};
}

#endif
