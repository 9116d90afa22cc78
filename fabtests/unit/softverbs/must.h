/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What has to hold in a test; if not, it says what and where, and dies. */
#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(cond)                                                    \
	do {                                                          \
		if (!(cond)) {                                        \
			fprintf(stderr, "%s:%d: failed: %s (%m)\n",   \
				__FILE__, __LINE__, #cond);           \
			abort();                                      \
		}                                                     \
	} while (0)

#endif
