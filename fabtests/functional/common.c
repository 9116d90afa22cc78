/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The part of the harness that knows nothing of libfabric but how to load it:
 * running cases, assertions, time, patterns.
 */
#include <dirent.h>
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "common.h"

static const char *current_case = "start";
static volatile pid_t case_pid;
static long arg_value = -1;

static long env_long(const char *name, long dflt)
{
	const char *text = getenv(name);
	char *end;
	long value;

	if (!text || !*text)
		return dflt;
	value = strtol(text, &end, 10);
	if (*end || value < 1) {
		fprintf(stderr, "%s=%s: not a positive number\n", name, text);
		exit(FAILED);
	}
	return value;
}

const char *provider(void)
{
	const char *name = getenv("VRC_TEST_PROVIDER");

	return name && *name ? name : "vrc";
}

bool is_vrc(void)
{
	return !strcmp(provider(), "vrc");
}

const char *test_addr(void)
{
	const char *addr = getenv("VRC_TEST_ADDR");

	return addr && *addr ? addr : "127.0.0.1";
}

int slow_ms(int ms)
{
	return ms * (int)env_long("VRC_TEST_SLOW", 1);
}

int scaled(int rounds)
{
	rounds /= (int)env_long("VRC_TEST_SCALE", 1);
	return rounds ? rounds : 1;
}

long test_arg(long dflt)
{
	return arg_value > 0 ? arg_value : dflt;
}

void fail_at(const char *file, int line, const char *fmt, ...)
{
	const char *base = strrchr(file, '/');
	va_list ap;

	fflush(stdout);
	flockfile(stderr);
	fprintf(stderr, "  FAIL %s: %s:%d: ", current_case,
		base ? base + 1 : file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(FAILED);
}

/* Small negative numbers in these tests are nearly always -FI_E*. */
static const char *error_text(long long v, char *buf, size_t len)
{
	if (v < 0 && v > -512)
		snprintf(buf, len, " (%s)", fi_strerror((int)-v));
	else
		buf[0] = 0;
	return buf;
}

bool cmp_holds(long long a, const char *op, long long b)
{
	switch (op[0]) {
	case '=':
		return a == b;
	case '!':
		return a != b;
	case '<':
		return op[1] ? a <= b : a < b;
	default:
		return op[1] ? a >= b : a > b;
	}
}

void check_cmp(const char *file, int line, const char *expr, long long a,
	       const char *op, long long b)
{
	char ta[128];
	char tb[128];

	if (cmp_holds(a, op, b))
		return;
	fail_at(file, line, "not so: %s: %lld%s, %lld%s", expr, a,
		error_text(a, ta, sizeof(ta)), b,
		error_text(b, tb, sizeof(tb)));
}

int skip(const char *fmt, ...)
{
	va_list ap;

	printf("  skip %s: ", current_case);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	return SKIPPED;
}

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void caught(int sig)
{
	(void)sig;
}

/* SIGALRM is the harness's own. */
void interrupt_in(int ms)
{
	const struct sigaction action = { .sa_handler = caught };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
				  .sigev_signo = SIGUSR1 };
	const struct itimerspec when = {
		.it_value = { ms / 1000, ms % 1000 * 1000000 },
	};
	timer_t timer;

	ASSERT_OK(sigaction(SIGUSR1, &action, NULL));
	ASSERT_OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
	ASSERT_OK(timer_settime(timer, 0, &when, NULL));
}

void sleep_ms(int ms)
{
	struct timespec ts = { ms / 1000, (ms % 1000) * 1000000L };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

void relax(unsigned int *turn)
{
	struct timespec ts = { 0, 50000 };

	/* Two processors are shared by all that run: never spin for long. */
	if (++*turn > 200)
		nanosleep(&ts, NULL);
}

enum { MAX_FDS = 1024 };

/* Marks the descriptors that are open; returns how many. */
static int list_fds(bool open[MAX_FDS])
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *de;
	int cnt = 0;

	ASSERT(dir);
	memset(open, 0, MAX_FDS * sizeof(*open));
	while ((de = readdir(dir))) {
		int fd = de->d_name[0] == '.' ? -1 : atoi(de->d_name);

		if (fd < 0 || fd >= MAX_FDS || fd == dirfd(dir))
			continue;
		open[fd] = true;
		cnt++;
	}
	closedir(dir);
	return cnt;
}

int count_fds(void)
{
	bool open[MAX_FDS];

	return list_fds(open);
}

static void print_new_fds(const bool before[MAX_FDS])
{
	bool open[MAX_FDS];

	list_fds(open);
	for (int fd = 0; fd < MAX_FDS; fd++) {
		char path[32];
		char target[128];
		ssize_t n;

		if (!open[fd] || before[fd])
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		printf("  open: %d -> %.*s\n", fd, (int)(n > 0 ? n : 0),
		       target);
	}
}

static uint8_t pattern(size_t pos, uint32_t seed)
{
	uint32_t x = ((uint32_t)pos + seed * 40503u) * 2654435761u;

	return (uint8_t)(x >> 24);
}

void fill(void *buf, size_t len, uint32_t seed)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		p[i] = pattern(i, seed);
}

static size_t first_bad(const uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != pattern(i, seed))
			return i;
	return len;
}

/* Memory that a peer writes is watched without any synchronisation: that is
 * what remote writes are like, and no race of this program. */
__attribute__((no_sanitize("thread")))
bool is_filled(const void *buf, size_t len, uint32_t seed)
{
	const volatile uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		if (p[i] != pattern(i, seed))
			return false;
	return true;
}

void check_filled(const char *file, int line, const void *buf, size_t len,
		  uint32_t seed)
{
	const uint8_t *p = buf;
	size_t bad = first_bad(p, len, seed);

	if (bad < len)
		fail_at(file, line, "byte %zu of %zu is 0x%02x, should be 0x%02x",
			bad, len, p[bad], pattern(bad, seed));
}

void check_bytes(const char *file, int line, const void *buf, size_t len,
		 uint8_t byte)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		if (p[i] != byte)
			fail_at(file, line,
				"byte %zu of %zu is 0x%02x, should be untouched (0x%02x)",
				i, len, p[i], byte);
}

/* Not async-signal-safe in letter; the process is about to end either way. */
static void on_case_alarm(int sig)
{
	static const char text[] = "  FAIL: timeout; it hangs here:\n";
	void *frames[32];

	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(FAILED);
	backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
	_exit(FAILED);
}

static void on_program_alarm(int sig)
{
	pid_t pid = case_pid;

	/* The case had its own, earlier alarm; it must be stuck for good. */
	if (pid > 0)
		kill(pid, SIGKILL);
	_exit(FAILED);
}

static void arm(void (*handler)(int), unsigned int seconds)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = handler;
	sigaction(SIGALRM, &sa, NULL);
	alarm(seconds);
}

/* One round of everything, so that what the provider keeps for the life of
 * the process (threads, timers, listeners) is there before the count. */
static void warm_up(void)
{
	struct end srv;
	struct end cli;
	struct buf a;
	struct buf b;

	make_pair(&srv, &cli, NULL);
	buf_open(&cli, &a, 4096, FI_SEND);
	buf_open(&srv, &b, 4096, FI_RECV);
	for (int i = 0; i < 2; i++) {
		post_recv(&srv, &b, 0, 4096, &b);
		post_send(&cli, &a, 0, 4096, &a);
		expect_ok(cli.cq, &a, FI_SEND | FI_MSG, NULL);
		expect_ok(srv.cq, &b, FI_RECV | FI_MSG, NULL);
		expect_no_comp(cli.cq, 10);
		expect_no_comp(srv.cq, 10);
	}
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&a);
	buf_close(&b);
	close_pair(&srv, &cli);
}

static void check_fds(const bool before[MAX_FDS], int before_cnt)
{
	/* A thread of the provider may still be closing one. */
	for (int i = 0; i < 100; i++) {
		if (count_fds() <= before_cnt)
			return;
		sleep_ms(10);
	}
	print_new_fds(before);
	FAIL("%d file descriptors left over", count_fds() - before_cnt);
}

static int run_case(const struct test_case *tc)
{
	bool fds[MAX_FDS];
	int cnt = 0;
	int ret;

	current_case = tc->name;
	setenv("FI_PROVIDER", provider(), 0);
	/* PSM and PSM2, where libfabric loads them, would catch signals. */
	setenv("IPATH_NO_BACKTRACE", "1", 0);
	setenv("HFI_NO_BACKTRACE", "1", 0);
	if (tc->flags & CASE_FDS) {
		warm_up();
		cnt = list_fds(fds);
	}
	ret = tc->run();
	if (ret == PASSED && (tc->flags & CASE_FDS))
		check_fds(fds, cnt);
	return ret;
}

static int fork_case(const struct test_case *tc, long seconds_left)
{
	uint64_t start = now_us();
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		return FAILED;
	}
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		current_case = tc->name;
		arm(on_case_alarm, seconds_left > 2 ? seconds_left - 1 : 1);
		exit(run_case(tc));
	}
	case_pid = pid;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	case_pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == PASSED)
		printf("  ok %s (%" PRIu64 " ms)\n", tc->name,
		       (now_us() - start) / 1000);
	else if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		return SKIPPED;
	else if (WIFEXITED(status))
		printf("  failed %s: exit %d\n", tc->name, WEXITSTATUS(status));
	else
		printf("  failed %s: %s\n", tc->name, strsignal(WTERMSIG(status)));
	fflush(stdout);
	return WIFEXITED(status) && !WEXITSTATUS(status) ? PASSED : FAILED;
}

static bool wanted(const char *name, char **names, int cnt)
{
	for (int i = 0; i < cnt; i++)
		if (!strcmp(names[i], name))
			return true;
	return !cnt;
}

static int parse_names(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--")) {
			arg_value = i + 1 < argc ? strtol(argv[i + 1], NULL, 0) : -1;
			return i - 1;
		}
	return argc - 1;
}

int run_cases(int argc, char **argv, const struct test_case *cases)
{
	int names = parse_names(argc, argv);
	long timeout = env_long("VRC_TEST_TIMEOUT", 120);
	uint64_t start = now_us();
	int count[3] = { 0, 0, 0 }; /* passed, failed, skipped */

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "--list")) {
		for (const struct test_case *tc = cases; tc->name; tc++)
			puts(tc->name);
		return 0;
	}
	if (!getenv("VRC_TEST_NOFORK"))
		arm(on_program_alarm, timeout);
	for (const struct test_case *tc = cases; tc->name; tc++) {
		long used = (long)((now_us() - start) / 1000000);
		int ret;

		if (!wanted(tc->name, argv + 1, names))
			continue;
		ret = getenv("VRC_TEST_NOFORK") ?
			run_case(tc) : fork_case(tc, timeout - used);
		count[ret == PASSED ? 0 : ret == SKIPPED ? 2 : 1]++;
	}
	if (!(count[0] + count[1] + count[2])) {
		fprintf(stderr, "no such case\n");
		return FAILED;
	}
	if (count[1])
		return FAILED;
	return count[0] ? PASSED : SKIPPED;
}
