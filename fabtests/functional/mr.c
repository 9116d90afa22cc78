/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory registration: every call, every combination of rights, keys and
 * descriptors, what must be refused, closing order. See fi_mr(3). What the
 * keys protect is in rma.c and rma_errors.c.
 */
#include <sys/mman.h>

#include "common.h"

static struct end e;

static void open_all(void)
{
	open_passive(&e, NULL);
}

static int close_all(void)
{
	close_end(&e);
	return PASSED;
}

static bool prov_key(void)
{
	return e.info->domain_attr->mr_mode & FI_MR_PROV_KEY;
}

static int try_reg(const void *buf, size_t len, uint64_t access,
		   uint64_t key, struct fid_mr **mr)
{
	*mr = NULL;
	return fi_mr_reg(e.domain, buf, len, access, 0, key, 0, mr, &e);
}

/* All 63 combinations; a right alone and all together. */
static int access_combinations(void)
{
	static const uint64_t rights[] = {
		FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ,
		FI_REMOTE_WRITE,
	};
	uint8_t *p;
	struct fid_mr *mr;

	open_all();
	p = malloc(10000);
	ASSERT(p);
	for (unsigned int set = 1; set < 64; set++) {
		uint64_t access = 0;

		for (unsigned int i = 0; i < 6; i++)
			if (set & (1 << i))
				access |= rights[i];
		ASSERT_OK(try_reg(p, 10000, access, set, &mr));
		ASSERT(mr);
		ASSERT_EQ(mr->fid.fclass, FI_CLASS_MR);
		ASSERT(mr->fid.context == &e);
		ASSERT(fi_mr_key(mr) != FI_KEY_NOTAVAIL);
		if (!prov_key())
			ASSERT_EQ(fi_mr_key(mr), set);
		if (e.info->domain_attr->mr_mode & FI_MR_LOCAL)
			ASSERT(fi_mr_desc(mr));
		ASSERT_OK(fi_close(&mr->fid));
	}
	free(p);
	return close_all();
}

/* Odd addresses and lengths, one byte to 64 MiB. */
static int lengths(void)
{
	enum { MAX = 64 << 20 };
	uint8_t *p;
	struct fid_mr *mr;

	open_all();
	p = mmap(NULL, MAX, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT(p != MAP_FAILED);
	for (size_t len = 1; len <= MAX; len *= 4) {
		ASSERT_OK(try_reg(p, len, ALL_ACCESS, 1, &mr));
		ASSERT_OK(fi_close(&mr->fid));
		if (len > 8) {
			ASSERT_OK(try_reg(p + 3, len - 5, ALL_ACCESS, 1, &mr));
			ASSERT_OK(fi_close(&mr->fid));
		}
	}
	munmap(p, MAX);
	return close_all();
}

/* Many at once: keys differ, each can be closed in any order. */
static int many(void)
{
	enum { N = 500 };
	static struct fid_mr *mrs[N];
	uint8_t *p;

	open_all();
	p = malloc(N * 100);
	ASSERT(p);
	for (size_t i = 0; i < N; i++) {
		ASSERT_OK(try_reg(p + i * 100, 100, ALL_ACCESS, i + 1,
				  &mrs[i]));
		for (size_t k = 0; k < i; k += 7)
			ASSERT(fi_mr_key(mrs[k]) != fi_mr_key(mrs[i]));
	}
	for (size_t i = 0; i < N; i++)
		ASSERT_OK(fi_close(&mrs[i * 7 % N]->fid));
	free(p);
	return close_all();
}

/* The same memory twice: two regions, each good while the other goes. */
static int twice(void)
{
	struct fid_mr *a;
	struct fid_mr *b;
	uint8_t *p = malloc(4096);

	ASSERT(p);
	open_all();
	ASSERT_OK(try_reg(p, 4096, FI_REMOTE_READ, 1, &a));
	ASSERT_OK(try_reg(p, 4096, ALL_ACCESS, 2, &b));
	ASSERT(fi_mr_key(a) != fi_mr_key(b));
	ASSERT(a != b);
	ASSERT_OK(fi_close(&a->fid));
	ASSERT(fi_mr_key(b) != FI_KEY_NOTAVAIL);
	ASSERT_OK(fi_close(&b->fid));
	free(p);
	return close_all();
}

static int regv(void)
{
	struct iovec iov[64];
	struct fid_mr *mr;
	uint8_t *p = malloc(8192);
	size_t limit;

	ASSERT(p);
	open_all();
	limit = e.info->domain_attr->mr_iov_limit;
	ASSERT_GE(limit, 1);
	for (size_t i = 0; i < 64; i++)
		iov[i] = (struct iovec){ p + i * 128, 64 };
	ASSERT_OK(fi_mr_regv(e.domain, iov, 1, ALL_ACCESS, 0, 1, 0, &mr, &e));
	ASSERT(mr->fid.context == &e);
	ASSERT_OK(fi_close(&mr->fid));
	if (limit < 64 && is_vrc()) {
		ASSERT_EQ(fi_mr_regv(e.domain, iov, limit + 1, ALL_ACCESS, 0, 1,
				     0, &mr, NULL), -FI_EINVAL);
		ASSERT_EQ(fi_mr_regv(e.domain, iov, 0, ALL_ACCESS, 0, 1, 0, &mr,
				     NULL), -FI_EINVAL);
	}
	free(p);
	return close_all();
}

static int regattr(void)
{
	uint8_t *p = malloc(4096);
	struct iovec iov = { p, 4096 };
	struct fi_mr_attr attr = {
		.mr_iov = &iov, .iov_count = 1, .access = ALL_ACCESS,
		.requested_key = 9, .context = &iov,
	};
	struct fid_mr *mr;

	ASSERT(p);
	open_all();
	ASSERT_OK(fi_mr_regattr(e.domain, &attr, 0, &mr));
	ASSERT(mr->fid.context == &iov);
	if (!prov_key())
		ASSERT_EQ(fi_mr_key(mr), 9);
	ASSERT_OK(fi_close(&mr->fid));
	if (is_vrc()) {
		attr.offset = 8; /* "reserved for future use and must be 0" */
		ASSERT_EQ(fi_mr_regattr(e.domain, &attr, 0, &mr), -FI_EINVAL);
		attr.offset = 0;
		attr.iov_count = 0;
		ASSERT_EQ(fi_mr_regattr(e.domain, &attr, 0, &mr), -FI_EINVAL);
	}
	free(p);
	return close_all();
}

/* fi_mr(3): the length must be above 0. */
static int refused(void)
{
	uint8_t *p = malloc(4096);
	struct fid_mr *mr;

	ASSERT(p);
	if (!is_vrc()) {
		free(p);
		return skip("%s registers nothing, so it checks nothing",
			    provider());
	}
	open_all();
	ASSERT_EQ(try_reg(p, 0, ALL_ACCESS, 1, &mr), -FI_EINVAL);
	ASSERT_EQ(try_reg(NULL, 0, ALL_ACCESS, 1, &mr), -FI_EINVAL);
	/* Rights that do not exist. */
	ASSERT_EQ(try_reg(p, 4096, 1ULL << 59, 1, &mr), -FI_EINVAL);
	ASSERT_EQ(try_reg(p, 4096, FI_SEND | FI_MULTICAST, 1, &mr),
		  -FI_EINVAL);
	/* No memory there (FI_MR_ALLOCATED), or a length that wraps. */
	if (e.info->domain_attr->mr_mode & FI_MR_ALLOCATED) {
		ASSERT_CMP(try_reg((void *)4096, 4096, ALL_ACCESS, 1, &mr), <,
			   0);
		ASSERT_CMP(try_reg(p, SIZE_MAX, ALL_ACCESS, 1, &mr), <, 0);
		ASSERT_CMP(try_reg(p, 1ULL << 46, ALL_ACCESS, 1, &mr), <, 0);
	}
	ASSERT_EQ(fi_mr_reg(e.domain, p, 4096, ALL_ACCESS, 8, 1, 0, &mr, NULL),
		  -FI_EINVAL);
	ASSERT_CMP(fi_mr_reg(e.domain, p, 4096, ALL_ACCESS, 0, 1, 1ULL << 62,
			     &mr, NULL), <, 0);
	/* The domain is none the worse. */
	ASSERT_OK(try_reg(p, 4096, ALL_ACCESS, 1, &mr));
	ASSERT_OK(fi_close(&mr->fid));
	free(p);
	return close_all();
}

/* libfabric's own "not through a cache", which ofi_rxm gives for its pools. */
static int uncached(void)
{
	struct fid_mr *mr;
	void *p = malloc(4096);

	ASSERT(p);
	open_all();
	ASSERT_OK(fi_mr_reg(e.domain, p, 4096, ALL_ACCESS, 0, 1, 1ULL << 60,
			    &mr, NULL));
	ASSERT_OK(fi_close(&mr->fid));
	free(p);
	return close_all();
}

/* Memory that may not be written: what needs writing is refused, with an
 * errno that says so. */
static int read_only(void)
{
	struct fid_mr *mr;
	uint8_t *p;
	int ret;

	if (!is_vrc())
		return skip("%s registers nothing", provider());
	open_all();
	p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT(p != MAP_FAILED);
	ASSERT_OK(try_reg(p, 8192, FI_SEND, 1, &mr));
	ASSERT_OK(fi_close(&mr->fid));
	ASSERT_OK(try_reg(p, 8192, FI_REMOTE_READ, 1, &mr));
	ASSERT_OK(fi_close(&mr->fid));
	ASSERT_OK(try_reg(p, 8192, FI_WRITE | FI_SEND | FI_REMOTE_READ, 1,
			  &mr));
	ASSERT_OK(fi_close(&mr->fid));
	ret = try_reg(p, 8192, FI_REMOTE_WRITE, 1, &mr);
	ASSERT(ret == -FI_EFAULT || ret == -FI_EACCES || ret == -FI_EPERM ||
	       ret == -FI_EINVAL);
	ASSERT_CMP(try_reg(p, 8192, FI_RECV, 1, &mr), <, 0);
	munmap(p, 8192);
	return close_all();
}

/* The domain is busy while it has regions, and usable after being told so. */
static int close_order(void)
{
	uint8_t *p = malloc(4096);
	struct fid_mr *mr;

	ASSERT(p);
	open_all();
	ASSERT_OK(try_reg(p, 4096, ALL_ACCESS, 1, &mr));
	ASSERT_OK(fi_close(&e.cq->fid));
	ASSERT_EQ(fi_close(&e.domain->fid), -FI_EBUSY);
	ASSERT_EQ(fi_close(&e.domain->fid), -FI_EBUSY);
	ASSERT_OK(fi_close(&mr->fid));
	ASSERT_OK(try_reg(p, 4096, ALL_ACCESS, 1, &mr));
	ASSERT_OK(fi_close(&mr->fid));
	ASSERT_OK(fi_close(&e.domain->fid));
	ASSERT_OK(fi_close(&e.evq->eq->fid));
	ASSERT_OK(fi_close(&e.fabric->fid));
	fi_freeinfo(e.info);
	free(e.evq);
	free(p);
	return PASSED;
}

/* A buffer of an unmapped and remapped address is what is there now. */
static int remapped(void)
{
	enum { LEN = 1 << 20 };
	struct end srv;
	struct end cli;
	struct buf rx;
	struct fid_mr *mr;
	uint8_t *p = NULL;
	struct comp c;

	make_pair(&srv, &cli, NULL);
	buf_open(&srv, &rx, LEN, FI_RECV);
	for (uint32_t i = 0; i < (uint32_t)scaled(30); i++) {
		p = mmap(p, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | (p ? MAP_FIXED : 0), -1,
			 0);
		ASSERT(p != MAP_FAILED);
		fill(p, LEN, i);
		ASSERT_OK(fi_mr_reg(cli.domain, p, LEN, FI_SEND, 0, 5, 0, &mr,
				    NULL));
		post_recv(&srv, &rx, 0, LEN, &rx);
		ASSERT_TAKEN(fi_send(cli.ep, p, LEN, fi_mr_desc(mr), 0, p));
		expect_ok(cli.cq, p, FI_SEND | FI_MSG, NULL);
		expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, &c);
		ASSERT_FILLED(rx.p, LEN, i);
		ASSERT_OK(fi_close(&mr->fid));
		munmap(p, LEN);
	}
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

/* Programs that register nothing, as on tcp: no mr_mode bit offered. */
static int unregistered(void)
{
	struct setup how = { .no_mr_mode = true, .caps = FI_MSG };
	struct end srv;
	struct end cli;
	struct fi_info *info;
	struct comp c;
	uint8_t *a;
	uint8_t *b;
	int ret;

	info = try_getinfo(&how, NULL, FI_SOURCE, &ret);
	if (!info) {
		ASSERT_EQ(ret, -FI_ENODATA);
		return skip("not offered without FI_MR_LOCAL");
	}
	ASSERT_EQ(info->domain_attr->mr_mode, 0);
	fi_freeinfo(info);
	a = malloc(1 << 20);
	b = malloc(1 << 20);
	ASSERT(a && b);
	make_pair(&srv, &cli, &how);
	for (size_t len = 0; len <= 1 << 20; len = len ? len * 4 : 1) {
		fill(a, len, (uint32_t)len);
		ASSERT_OK(fi_recv(srv.ep, b, len, NULL, 0, b));
		ASSERT_TAKEN(fi_send(cli.ep, a, len, NULL, 0, a));
		expect_ok(cli.cq, a, FI_SEND | FI_MSG, NULL);
		expect_ok(srv.cq, b, FI_RECV | FI_MSG, &c);
		ASSERT_EQ(c.len, len);
		ASSERT_FILLED(b, len, (uint32_t)len);
	}
	close_pair(&srv, &cli);
	free(a);
	free(b);
	return PASSED;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(access_combinations), CASE(lengths), CASE(many),
		CASE(twice), CASE(regv), CASE(regattr), CASE(refused),
		CASE(read_only), CASE(close_order), CASE(remapped),
		CASE(unregistered), CASE(uncached), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
