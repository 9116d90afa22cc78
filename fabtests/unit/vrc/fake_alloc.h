/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Forced upon every file of a unit test (-include): counts what the provider
 * allocates, and fails the Nth allocation if a test says so.
 */
#ifndef FAKE_ALLOC_H
#define FAKE_ALLOC_H

/* First, so that only calls are renamed. */
#include <stdlib.h>

void *fake_calloc(size_t n, size_t size);
void fake_free(void *p);

/* Not freed yet. */
extern int fake_live;
/* Allocations until one fails; 0: none does. */
extern int fake_fail_alloc;

#define calloc fake_calloc
#define free fake_free

#endif
