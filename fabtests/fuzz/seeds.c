/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Reads seeds; see seeds.h for their form. */
#include "seeds.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static int digit(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return isxdigit(c) ? tolower(c) - 'a' + 10 : -1;
}

/* One line; returns why it is not one, or NULL. */
static const char *parse(const char *line, struct seed *seed)
{
	int high;
	int low;

	seed->len = 0;
	while (*line && *line != '#') {
		if (isspace((unsigned char)*line)) {
			line++;
			continue;
		}
		high = digit((unsigned char)line[0]);
		low = high < 0 ? -1 : digit((unsigned char)line[1]);
		if (low < 0)
			return "not two hexadecimal digits";
		if (seed->len == SEED_MAX)
			return "longer than SEED_MAX bytes";
		seed->bytes[seed->len++] = (uint8_t)(high << 4 | low);
		line += 2;
	}
	return NULL;
}

int seeds_read(const char *path, struct seeds *seeds)
{
	FILE *file = fopen(path, "r");
	const char *why = NULL;
	char *line = NULL;
	size_t size = 0;
	int number = 0;

	seeds->cnt = 0;
	seeds->seed = calloc(SEEDS_MAX, sizeof(*seeds->seed));
	if (!file || !seeds->seed) {
		perror(path);
		goto err_free;
	}
	while (!why && getline(&line, &size, file) >= 0) {
		number++;
		if (seeds->cnt == SEEDS_MAX)
			why = "more than SEEDS_MAX seeds";
		else
			why = parse(line, &seeds->seed[seeds->cnt]);
		if (!why && seeds->seed[seeds->cnt].len)
			seeds->cnt++;
	}
	if (!why && !seeds->cnt)
		why = "no seeds";
	if (why) {
		fprintf(stderr, "%s:%d: %s\n", path, number, why);
		goto err_free;
	}
	free(line);
	fclose(file);
	return 0;

err_free:
	free(line);
	free(seeds->seed);
	if (file)
		fclose(file);
	return -1;
}
