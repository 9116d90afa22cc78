/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the sides of a sample write to stderr, mostly libfabric's warnings.
 * There are dozens of processes in a run: each different line is shown once,
 * and libfabric's core, which has something to say about providers that
 * nobody asked for, is heard only when the sample has failed.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	SEEN_MAX = 128,
	LOG_MAX = 64 << 10,
};

int bench_log_open(void)
{
	return memfd_create("vrc_bench stderr", MFD_CLOEXEC);
}

/* "libfabric:PID:TIME::PROVIDER:..." begins to matter at PROVIDER. */
static const char *skip_stamp(const char *line)
{
	const char *rest = strstr(line, "::");

	return strncmp(line, "libfabric:", 10) == 0 && rest ? rest + 2 : line;
}

static uint64_t hash_of(const char *text)
{
	uint64_t hash = 14695981039346656037u;

	while (*text)
		hash = (hash ^ (unsigned char)*text++) * 1099511628211u;
	return hash;
}

/* Remembers the line; when there is no more room, all lines are old. */
static bool is_new(const char *line)
{
	static uint64_t seen[SEEN_MAX];
	static int seen_cnt;
	uint64_t hash = hash_of(line);

	for (int i = 0; i < seen_cnt; i++) {
		if (seen[i] == hash)
			return false;
	}
	if (seen_cnt == SEEN_MAX)
		return false;
	seen[seen_cnt++] = hash;
	return true;
}

void bench_log_show(int fd, const char *provider, bool failed)
{
	static char text[LOG_MAX];
	/* The progress line, where there is one. */
	const char *erase = isatty(STDERR_FILENO) ? "\r\033[K" : "";
	ssize_t len;
	char *state;

	if (fd < 0)
		return;
	len = pread(fd, text, sizeof(text) - 1, 0);
	close(fd);
	if (len <= 0)
		return;
	text[len] = '\0';
	for (char *line = strtok_r(text, "\n", &state); line;
	     line = strtok_r(NULL, "\n", &state)) {
		const char *what = skip_stamp(line);

		if (what != line && strncmp(what, "core:", 5) == 0 && !failed)
			continue;
		if (is_new(what))
			fprintf(stderr, "%s%s> %s\n", erase, provider, what);
	}
}
