/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A Criterion test between the file's own init() and fini(). Criterion's .fini
 * would not do for the check that nothing is left: an assertion that fails
 * there is printed and then forgotten.
 */
#ifndef CLEAN_TEST_H
#define CLEAN_TEST_H

#define CLEAN_TEST(suite, name)           \
	static void suite##_##name(void); \
	Test(suite, name, .timeout = 60)  \
	{                                 \
		init();                   \
		suite##_##name();         \
		fini();                   \
	}                                 \
	static void suite##_##name(void)

#endif
