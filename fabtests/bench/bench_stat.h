/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Order statistics over the few samples of a series. No I/O, no state: this
 * is what the unit test links.
 */
#ifndef BENCH_STAT_H
#define BENCH_STAT_H

#include <stddef.h>

struct bench_stat {
	double min;
	double median;
	double max;
};

/*
 * Sorts value[0 .. cnt-1] in place. All zero when cnt is 0; the mean of the
 * two middle values when cnt is even.
 */
struct bench_stat bench_stat_of(double *value, size_t cnt);

/* num / den, or 0 when den is not positive. */
double bench_ratio(double num, double den);

/*
 * value with three significant digits and no exponent ("0.00123", "12.3",
 * "1234"); "-" for a negative value, which stands for "not measured".
 */
const char *bench_format3(char *buf, size_t len, double value);

#endif
