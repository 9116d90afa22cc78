/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * unhex SEEDS DIRECTORY: writes each seed into a file of its own, as libFuzzer
 * wants them.
 */
#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>

static int write_seed(const char *dir, size_t number, const struct seed *seed)
{
	char path[4096];
	FILE *file;
	int ret;

	ret = snprintf(path, sizeof(path), "%s/seed-%03zu", dir, number);
	if (ret < 0 || (size_t)ret >= sizeof(path)) {
		fprintf(stderr, "%s: path too long\n", dir);
		return -1;
	}
	file = fopen(path, "wb");
	if (!file) {
		perror(path);
		return -1;
	}
	ret = fwrite(seed->bytes, 1, seed->len, file) == seed->len ? 0 : -1;
	if (fclose(file))
		ret = -1;
	if (ret)
		perror(path);
	return ret;
}

int main(int argc, char **argv)
{
	struct seeds seeds;
	size_t i;

	if (argc != 3) {
		fprintf(stderr, "usage: %s SEEDS DIRECTORY\n", argv[0]);
		return 2;
	}
	if (seeds_read(argv[1], &seeds))
		return 1;
	for (i = 0; i < seeds.cnt; i++)
		if (write_seed(argv[2], i, &seeds.seed[i]))
			return 1;
	free(seeds.seed);
	return 0;
}
