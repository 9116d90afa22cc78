/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Order statistics and number formatting for the table: see bench_stat.h.
 */
#include "bench_stat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int cmp_double(const void *left, const void *right)
{
	double a = *(const double *)left;
	double b = *(const double *)right;

	return (a > b) - (a < b);
}

struct bench_stat bench_stat_of(double *value, size_t cnt)
{
	struct bench_stat stat = { 0 };

	if (cnt == 0)
		return stat;
	qsort(value, cnt, sizeof(*value), cmp_double);
	stat.min = value[0];
	stat.max = value[cnt - 1];
	stat.median = cnt % 2 ? value[cnt / 2]
			      : (value[cnt / 2 - 1] + value[cnt / 2]) / 2;
	return stat;
}

double bench_ratio(double num, double den)
{
	return den > 0 ? num / den : 0;
}

const char *bench_format3(char *buf, size_t len, double value)
{
	int digits;

	if (value < 0 || !isfinite(value)) {
		snprintf(buf, len, "-");
		return buf;
	}
	/* Rounding may carry into a new digit: 9.996 is "10.0". */
	if (value >= 99.95 || value == 0)
		digits = 0;
	else if (value >= 9.995)
		digits = 1;
	else if (value >= 0.9995)
		digits = 2;
	else if (value >= 0.09995)
		digits = 3;
	else if (value >= 0.009995)
		digits = 4;
	else
		digits = 5;
	snprintf(buf, len, "%.*f", digits, value);
	return buf;
}
