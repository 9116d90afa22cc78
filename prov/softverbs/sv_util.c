/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Log, random numbers, time, waiting for a lock, the text of completion states.
 */
#include "sv_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static __printf_like(1, 0) void say(const char *fmt, va_list args)
{
	flockfile(stderr);
	fprintf(stderr, "softverbs[%d]: ", getpid());
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	funlockfile(stderr);
}

const char *sv_env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

void sv_err(const char *fmt, ...)
{
	int saved = errno;
	va_list args;

	va_start(args, fmt);
	say(fmt, args);
	va_end(args);
	errno = saved;
}

void sv_log(const char *fmt, ...)
{
	static atomic_int enabled = -1; /* relaxed: settles on one value */
	int on = atomic_load_explicit(&enabled, memory_order_relaxed);
	int saved = errno;
	const char *env;
	va_list args;

	if (on < 0) {
		env = sv_env("SOFTVERBS_LOG");
		on = env && strcmp(env, "0") != 0;
		atomic_store_explicit(&enabled, on, memory_order_relaxed);
	}
	if (on) {
		va_start(args, fmt);
		say(fmt, args);
		va_end(args);
	}
	errno = saved;
}

/* Most programs never ask for a log, and do not look for the limit. */
void sv_note_fds(int err)
{
	static atomic_bool said;
	struct rlimit limit = { 0 };

	if ((err != EMFILE && err != ENFILE) || atomic_exchange(&said, true))
		return;
	getrlimit(RLIMIT_NOFILE, &limit);
	sv_err("%s: connections fail or have to wait (RLIMIT_NOFILE is %ju)",
	       strerror(err), (uintmax_t)limit.rlim_cur);
}

/* The kernel counts a memfd as a file, and a signal ends who makes one that is
 * too large: so the limit is looked at before. */
static bool size_allowed(const char *name, size_t size)
{
	static atomic_bool said;
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) || size <= limit.rlim_cur)
		return true;
	if (!atomic_exchange(&said, true))
		sv_err("%s: %s has %zu bytes (RLIMIT_FSIZE is %ju)",
		       strerror(EFBIG), name, size, (uintmax_t)limit.rlim_cur);
	return false;
}

int sv_memfd_create(const char *name, size_t size, int *out)
{
	int err, fd;

	if (!size_allowed(name, size))
		return EFBIG;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return errno;
	if (ftruncate(fd, (off_t)size)) {
		err = errno;
		close(fd);
		return err;
	}
	*out = fd;
	return 0;
}

/*
 * Keys and numbers that peers must not guess. getrandom() can only fail where
 * the kernel has none or a filter forbids it; then /dev/urandom, and failing
 * that the clock: numbers stay unique, if no longer secret.
 */
void sv_random(void *buf, size_t len)
{
	static atomic_ullong weak;
	uint8_t *p = buf;
	ssize_t got;
	int fd;

	while (len) {
		got = getrandom(p, len, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		p += got;
		len -= got;
	}
	if (!len)
		return;
	fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = read(fd, p, len);
		close(fd);
		if (got == (ssize_t)len)
			return;
	}
	for (; len; len--, p++)
		*p = ((atomic_fetch_add(&weak, 1) + sv_now_ns()) *
		      0x9e3779b97f4a7c15ull) >> 56;
}

uint64_t sv_clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

uint64_t sv_now_ns(void)
{
	return sv_clock_ns(CLOCK_MONOTONIC);
}

const char *sv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const text[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "work request flushed",
		[IBV_WC_MW_BIND_ERR] = "memory bind error",
		[IBV_WC_BAD_RESP_ERR] = "bad response",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
		[IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation error",
		[IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
		[IBV_WC_REM_ABORT_ERR] = "aborted by peer",
		[IBV_WC_INV_EECN_ERR] = "invalid EE context number",
		[IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
		[IBV_WC_FATAL_ERR] = "fatal error",
		[IBV_WC_RESP_TIMEOUT_ERR] = "response timeout",
		[IBV_WC_GENERAL_ERR] = "general error",
		[IBV_WC_TM_ERR] = "tag matching error",
		[IBV_WC_TM_RNDV_INCOMPLETE] = "tag matching incomplete",
	};

	if ((unsigned int)status >= ARRAY_SIZE(text) || !text[status])
		return "unknown";
	return text[status];
}
