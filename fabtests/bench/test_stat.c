/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Unit test of bench_stat.c: exit status 0 or 1, each failure on one line.
 */
#include "bench_stat.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect(const char *what, double got, double wanted)
{
	if (got == wanted)
		return;
	printf("%s: got %g, wanted %g\n", what, got, wanted);
	failures++;
}

static void expect_text(double value, const char *wanted)
{
	char buf[32];

	bench_format3(buf, sizeof(buf), value);
	if (strcmp(buf, wanted) == 0)
		return;
	printf("format of %g: got %s, wanted %s\n", value, buf, wanted);
	failures++;
}

static void test_order(void)
{
	double odd[] = { 5, 1, 9, 3, 7 };
	double even[] = { 4, 1, 3, 2 };
	double one[] = { 2.5 };
	struct bench_stat stat = bench_stat_of(odd, 5);

	expect("min of five", stat.min, 1);
	expect("median of five", stat.median, 5);
	expect("max of five", stat.max, 9);
	stat = bench_stat_of(even, 4);
	expect("min of four", stat.min, 1);
	expect("median of four", stat.median, 2.5);
	expect("max of four", stat.max, 4);
	stat = bench_stat_of(one, 1);
	expect("min of one", stat.min, 2.5);
	expect("median of one", stat.median, 2.5);
	expect("max of one", stat.max, 2.5);
	stat = bench_stat_of(one, 0);
	expect("min of none", stat.min, 0);
	expect("median of none", stat.median, 0);
	expect("max of none", stat.max, 0);
}

/* One wild sample must not move the median out of the others. */
static void test_outlier(void)
{
	double value[] = { 1.1, 1000, 1.0, 1.2, 0.9 };
	struct bench_stat stat = bench_stat_of(value, 5);

	expect("median beside an outlier", stat.median, 1.1);
	expect("the outlier is shown", stat.max, 1000);
}

static void test_ratio(void)
{
	expect("ratio", bench_ratio(6, 3), 2);
	expect("ratio over zero", bench_ratio(6, 0), 0);
	expect("ratio over less", bench_ratio(6, -1), 0);
}

static void test_format(void)
{
	expect_text(0, "0");
	expect_text(-1, "-");
	expect_text(1.0 / 0.0, "-");
	expect_text(0.0 / 0.0, "-");
	expect_text(123456, "123456");
	expect_text(99.96, "100");
	expect_text(99.94, "99.9");
	expect_text(9.996, "10.0");
	expect_text(9.994, "9.99");
	expect_text(0.9996, "1.00");
	expect_text(0.1234, "0.123");
	expect_text(0.01234, "0.0123");
	expect_text(0.001234, "0.00123");
}

int main(void)
{
	test_order();
	test_outlier();
	test_ratio();
	test_format();
	return failures ? 1 : 0;
}
