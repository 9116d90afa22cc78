/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libsoftverbs-preload.so: some programs (UCX) look whether they may open
 * the device's character device before they use it, and there is none. Asked
 * for /dev/infiniband/softverbs<N>, these answer for /dev/null, which everyone
 * may read and write. All else goes to the kernel as it is.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the C library; in no header that is current. */
int __xstat(int version, const char *path, struct stat *st);

static const char *redirected(const char *path)
{
	static const char device[] = "/dev/infiniband/softverbs";

	/* NULL is for the kernel to refuse. */
	if (path && !strncmp(path, device, sizeof(device) - 1))
		return "/dev/null";
	return path;
}

int access(const char *path, int mode)
{
	return faccessat(AT_FDCWD, redirected(path), mode, 0);
}

int stat(const char *restrict path, struct stat *restrict st)
{
	return fstatat(AT_FDCWD, redirected(path), st, 0);
}

#ifdef _LARGEFILE64_SOURCE
int stat64(const char *restrict path, struct stat64 *restrict st)
{
	return fstatat64(AT_FDCWD, redirected(path), st, 0);
}
#endif

/* What stat() was before glibc 2.33. */
int __xstat(int version, const char *path, struct stat *st)
{
	return stat(path, st);
}
