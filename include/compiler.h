/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Compiler helpers shared by the provider and the device. No types, no state.
 */
#ifndef VRC_COMPILER_H
#define VRC_COMPILER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

#ifndef container_of
#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))
#endif

#define __must_check __attribute__((warn_unused_result))
#define __noinline __attribute__((noinline))
#define __cold __attribute__((cold, noinline))
#define __hot_inline inline __attribute__((always_inline))
#define __maybe_unused __attribute__((unused))
#define __printf_like(fmt, args) __attribute__((format(printf, fmt, args)))

/* Reads memory that a device writes to: softverbs does so with a plain copy,
 * which the thread sanitizer takes for a race. */
#define __device_written __attribute__((no_sanitize_thread))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

enum { CACHELINE = 64 };

/* Who spins lets the other thread of the core go first. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Smallest power of two that is at least n; n in 1 .. 2^63. */
static inline size_t pow2_at_least(size_t n)
{
	size_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

#endif
