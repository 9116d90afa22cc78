/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Stands in for libFuzzer where there is none: replays the seeds, then as many
 * inputs made of them at random, the same ones in each run.
 *
 *	fuzz_NAME [RUNS [SEED [SEEDS]]]
 *
 * An input that breaks something is printed in the form that the seeds have.
 */
#include "fuzz.h"
#include "seeds.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

enum {
	DEFAULT_RUNS = 20000,
	TIMEOUT_S = 240,
	CHANGES_MAX = 6,
};

static uint64_t random_state;
static struct seed now;			/* what is being run */

static uint32_t random_u32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 32);
}

static size_t random_below(size_t limit)
{
	return random_u32() % limit;
}

/* Only calls that a signal handler may make. */
static void print_input(int sig)
{
	static const char digits[] = "0123456789abcdef";
	static const char says[] = "the input was:\n";
	static char text[2 * SEED_MAX + 1];
	size_t len = 0;
	size_t i;

	for (i = 0; i < now.len; i++) {
		text[len++] = digits[now.bytes[i] >> 4];
		text[len++] = digits[now.bytes[i] & 15];
	}
	text[len++] = '\n';
	if (write(2, says, sizeof(says) - 1) < 0 || write(2, text, len) < 0)
		_exit(3);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void change_byte(void)
{
	static const uint8_t values[] = { 0, 1, 0x7f, 0x80, 0xff, 0x40, 0x41 };
	uint8_t *at = &now.bytes[random_below(now.len)];

	switch (random_below(4)) {
	case 0:
		*at ^= (uint8_t)(1 << random_below(8));
		break;
	case 1:
		*at = values[random_below(sizeof(values))];
		break;
	case 2:
		*at = (uint8_t)(*at + (random_below(2) ? 1 : -1));
		break;
	default:
		*at = (uint8_t)random_u32();
	}
}

static void cut(void)
{
	now.len = 1 + random_below(now.len);
}

static void append(const struct seed *other)
{
	size_t from = random_below(other->len);
	size_t len = other->len - from;

	if (len > SEED_MAX - now.len)
		len = SEED_MAX - now.len;
	memcpy(now.bytes + now.len, other->bytes + from, len);
	now.len += len;
}

static void make_input(const struct seeds *seeds)
{
	size_t changes = 1 + random_below(CHANGES_MAX);

	now = seeds->seed[random_below(seeds->cnt)];
	while (changes--) {
		switch (random_below(8)) {
		case 0:
			cut();
			break;
		case 1:
			append(&seeds->seed[random_below(seeds->cnt)]);
			break;
		default:
			change_byte();
		}
	}
}

/* A copy that ends where its allocation ends, for the address sanitizer. */
static void run(void)
{
	uint8_t *copy = malloc(now.len ? now.len : 1);

	FUZZ_CHECK(copy);
	memcpy(copy, now.bytes, now.len);
	LLVMFuzzerTestOneInput(copy, now.len);
	free(copy);
}

/* Those that have the name of the program behind its "fuzz_". */
static void own_seeds(char *path, size_t size)
{
	const char *name = strstr(program_invocation_short_name, "fuzz_");

	snprintf(path, size, "%s/%s.hex", FUZZ_CORPUS,
		 name ? name + strlen("fuzz_") : program_invocation_short_name);
}

int main(int argc, char **argv)
{
	unsigned long runs = argc > 1 ? strtoul(argv[1], NULL, 0) : DEFAULT_RUNS;
	uint64_t start = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	char path[4096];
	struct seeds seeds;
	unsigned long i;

	if (argc > 3)
		snprintf(path, sizeof(path), "%s", argv[3]);
	else
		own_seeds(path, sizeof(path));
	if (seeds_read(path, &seeds))
		return 1;
	signal(SIGABRT, print_input);
	signal(SIGALRM, print_input);
#if !defined(__SANITIZE_ADDRESS__)
	signal(SIGSEGV, print_input);
	signal(SIGBUS, print_input);
#endif
	alarm(TIMEOUT_S);
	for (i = 0; i < seeds.cnt; i++) {
		now = seeds.seed[i];
		run();
	}
	random_state = start * 0x9e3779b97f4a7c15u | 1;
	for (i = 0; i < runs; i++) {
		make_input(&seeds);
		run();
	}
	printf("%zu seeds and %lu inputs made of them\n", seeds.cnt, runs);
	free(seeds.seed);
	return 0;
}
