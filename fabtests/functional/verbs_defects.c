/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults that were seen in libfabric's verbs provider, each as a test that vrc
 * does not have it. README.md in this directory lists all of them by letter, with
 * those that other programs look at.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "pair.h"

enum { LEN = 4096 };

/* Of the embedded device, which fails to order. */
static bool is_softverbs(void)
{
	const char *when = getenv("FI_VRC_SOFTVERBS");

	return is_vrc() && when && !strcmp(when, "always");
}

static int only_softverbs(void)
{
	return skip("only softverbs fails to order");
}

static void message(uint32_t seed)
{
	struct comp c;

	fill(tx.p, 100, seed);
	post_recv(&srv, &rx, 0, LEN, &rx);
	post_send(&cli, &tx, 0, 100, &tx);
	expect_ok(cli.cq, &tx, FI_SEND | FI_MSG, NULL);
	expect_ok(srv.cq, &rx, FI_RECV | FI_MSG, &c);
	ASSERT_EQ(c.len, 100);
	ASSERT_FILLED(rx.p, 100, seed);
}

/* ---- c: every failure to post becomes -FI_EAGAIN ---- */

static void try_post(int want, bool recv)
{
	ssize_t ret;

	ret = recv ? fi_recv(srv.ep, rx.p, LEN, rx.desc, 0, &rx) :
		     fi_send(cli.ep, tx.p, 8, tx.desc, 0, &tx);
	ASSERT_EQ(ret, want);
}

/* Nothing is in flight that could clear it, so that trying again would not end.
 * What failed leaves nothing behind. */
static int c_post_failures(void)
{
	if (!is_softverbs())
		return only_softverbs();
	setenv("SOFTVERBS_FAULT",
	       "post_send,err=EINVAL,nth=2;post_send,err=ENOMEM,nth=2;"
	       "post_send,err=EIO,nth=2;post_recv,err=EINVAL,nth=2;"
	       "post_recv,err=ENOMEM,nth=2", 1);
	/* Posts of our own, of credits, would be counted. */
	setenv("FI_VRC_CREDITS", "never", 1);
	pair_open(NULL, LEN);
	for (uint32_t i = 0; i < 3; i++) {
		static const int errors[] = { FI_EINVAL, FI_ENOMEM, FI_EIO };

		if (!i)
			message(i);
		try_post(-errors[i], false);
		if (i < 2)
			try_post(-errors[i], true);
	}
	message(4);
	return pair_close_quiet();
}

/* ---- d: an endless loop over the list of infos ---- */

static int d_several_infos(void)
{
	struct setup how = { 0 };
	struct fi_info *hints, *list, *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	char *name;
	int cnt = 0;

	if (!is_softverbs())
		return only_softverbs();
	setenv("SOFTVERBS_DEVICES",
	       "one,addr=127.0.0.1;two,addr=::1;three", 1);
	hints = make_hints(&how);
	ASSERT_OK(fi_getinfo(TEST_API, NULL, NULL, 0, hints, &list));
	for (info = list; info; info = info->next, cnt++) {
		/* The info is one of a list, and stands for itself. */
		ASSERT_OK(fi_fabric(info->fabric_attr, &fabric, NULL));
		ASSERT_OK(fi_domain(fabric, info, &domain, NULL));
		ASSERT_OK(fi_close(&domain->fid));
		/* One that is none of them. */
		name = info->domain_attr->name;
		info->domain_attr->name = strdup("four");
		ASSERT_EQ(fi_domain(fabric, info, &domain, NULL), -FI_ENODEV);
		free(info->domain_attr->name);
		info->domain_attr->name = name;
		ASSERT_OK(fi_close(&fabric->fid));
	}
	fi_freeinfo(list);
	fi_freeinfo(hints);
	return cnt > 1 ? PASSED : skip("no second address on this machine");
}

/* ---- e: a close that is refused destroys something ---- */

static int e_busy_close(void)
{
	pair_open(NULL, LEN);
	for (uint32_t i = 0; i < 3; i++) {
		ASSERT_EQ(fi_close(&cli.domain->fid), -FI_EBUSY);
		ASSERT_EQ(fi_close(&srv.domain->fid), -FI_EBUSY);
		ASSERT_EQ(fi_close(&cli.fabric->fid), -FI_EBUSY);
		if (is_vrc())
			ASSERT_EQ(fi_close(&cli.cq->fid), -FI_EBUSY);
		message(i);
	}
	/* And connecting, registering and opening go on as well. */
	close_ep(&cli);
	close_ep(&srv);
	buf_close(&tx);
	ASSERT_EQ(fi_close(&cli.domain->fid), -FI_EBUSY);
	buf_open(&cli, &tx, LEN, ALL_ACCESS);
	connect_pair(&srv, &cli);
	message(5);
	return pair_close_quiet();
}

/* ---- f: that an injected message failed is not told ---- */

static int f_failed_inject(void)
{
	struct comp c;

	if (!is_vrc())
		return skip("%s ends the connection", provider());
	pair_open(NULL, LEN);
	if (is_iwarp(&cli)) {
		pair_close_quiet();
		return skip("on iWARP it is done when it is on its way");
	}
	post_recv(&srv, &rx, 0, 4, &rx);
	ASSERT_TAKEN(fi_inject(cli.ep, tx.p, 64, 0));
	expect_comp(cli.cq, &c);
	ASSERT_CMP(c.err, >, 0);
	ASSERT_NE(c.err, FI_ECANCELED);
	ASSERT_EQ(c.flags, FI_SEND | FI_MSG);
	ASSERT_EQ(c.len, 64);
	expect_event(&cli, FI_SHUTDOWN, NULL);
	expect_no_comp(cli.cq, 0);
	return pair_close();
}

/* ---- i: -FI_EAGAIN with the wrong sign ---- */

static int i_full_receive_queue(void)
{
	struct setup how = { .rx_size = 8 };
	ssize_t ret;
	int cnt = 0;

	pair_open(&how, LEN);
	while (!(ret = fi_recv(srv.ep, rx.p, LEN, rx.desc, 0, &rx)))
		ASSERT_CMP(++cnt, <, 100000);
	ASSERT_EQ(ret, -FI_EAGAIN);
	if (is_vrc())
		ASSERT_EQ(cnt, 8);
	return pair_close_quiet();
}

/* ---- j: posting before there is a queue pair ---- */

static void post_all_early(struct end *e, int want)
{
	struct iovec iov = { tx.p, 8 };
	struct fi_msg msg = { .msg_iov = &iov, .desc = &tx.desc, .iov_count = 1 };

	ASSERT_EQ(fi_send(e->ep, tx.p, 8, tx.desc, 0, NULL), want);
	ASSERT_EQ(fi_sendmsg(e->ep, &msg, 0), want);
	ASSERT_EQ(fi_inject(e->ep, tx.p, 8, 0), want);
	ASSERT_EQ(fi_write(e->ep, tx.p, 8, tx.desc, 0, 0x1000, 1, NULL), want);
	ASSERT_EQ(fi_read(e->ep, tx.p, 8, tx.desc, 0, 0x1000, 1, NULL), want);
	ASSERT_EQ(fi_inject_write(e->ep, tx.p, 8, 0, 0x1000, 1), want);
}

static int j_too_early(void)
{
	if (!is_vrc())
		return skip("%s takes them", provider());
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	buf_open(&cli, &tx, LEN, ALL_ACCESS);
	ASSERT_OK(fi_endpoint(cli.domain, cli.info, &cli.ep, &cli));
	post_all_early(&cli, -FI_EOPBADSTATE);
	close_ep(&cli);
	make_ep(&cli, cli.info);
	post_all_early(&cli, -FI_ENOTCONN);
	connect_start(&cli, NULL, 0);
	/* Nobody has accepted, however far it has come. */
	for (int i = 0; i < 20; i++) {
		post_all_early(&cli, -FI_ENOTCONN);
		sleep_ms(1);
	}
	accept_start(&srv, &srv, NULL, 0, NULL);
	wait_connected(&srv, &cli, NULL);
	buf_open(&srv, &rx, LEN, ALL_ACCESS);
	message(1);
	return pair_close_quiet();
}

/* ---- l: a parameter that is read and has no effect ---- */

struct param {
	const char *name;
	const char *value;
	/* 0 if it shows; in a process of its own. */
	int (*shows)(void);
};

static struct fi_info *ask(void)
{
	struct fi_info *info;
	int ret;

	info = try_getinfo(NULL, NULL, FI_SOURCE, &ret);
	return info;
}

static int nothing_offered(void)
{
	return ask() != NULL;
}

static int tx_size_shows(void)
{
	struct fi_info *info = ask();

	return !info || info->tx_attr->size != 17;
}

static int rx_size_shows(void)
{
	struct fi_info *info = ask();

	return !info || info->rx_attr->size != 19;
}

static int inject_size_shows(void)
{
	struct fi_info *info = ask();

	return !info || info->tx_attr->inject_size != 99;
}

static FILE *log_keep(void)
{
	FILE *file = tmpfile();

	ASSERT(file);
	setenv("FI_LOG_LEVEL", "info", 1);
	setenv("FI_LOG_PROV", "vrc", 1);
	ASSERT_GE(dup2(fileno(file), STDERR_FILENO), 0);
	return file;
}

static bool log_has(FILE *file, const char *what)
{
	char log[65536];
	size_t len;

	rewind(file);
	len = fread(log, 1, sizeof(log) - 1, file);
	log[len] = '\0';
	return strstr(log, what);
}

/* Only in what the queue pair ended up with, which the log tells. */
static int log_says(const char *what)
{
	FILE *file = log_keep();

	pair_open(NULL, LEN);
	message(1);
	return !log_has(file, what);
}

/* The log says what is wrong with it, as soon as can be known. */
static int empty_gid_is_named(void)
{
	FILE *file = log_keep();

	return nothing_offered() ||
	       !log_has(file, "FI_VRC_GID_INDEX: is 77, and port 1 of "
			      "softverbs0 has 128 GIDs (0 to 127), that one "
			      "empty");
}

/* An entry that cannot be read may be good, so only the connection tells. */
static int bad_gid_is_named(void)
{
	FILE *file = log_keep();
	struct event ev;

	setenv("SOFTVERBS_DEVICES", "softverbs0,gid.77=error", 1);
	open_passive(&srv, NULL);
	listen_start(&srv);
	open_active(&cli, NULL, &srv);
	connect_start(&cli, NULL, 0);
	expect_event(&srv, FI_CONNREQ, &ev);
	make_ep(&srv, ev.info);
	return fi_accept(srv.ep, NULL, 0) != -FI_EINVAL ||
	       !log_has(file, "FI_VRC_GID_INDEX is 77, and port 1 has 128 "
			      "GIDs");
}

static int rnr_timer_shows(void)
{
	return log_says("rnr timer 21,");
}

static int ack_timeout_shows(void)
{
	return log_says("ack timeout 19 ");
}

/* A send that has no receive is held back. */
static int credits_show(void)
{
	pair_open(NULL, LEN);
	sleep_ms(50);
	return fi_send(cli.ep, tx.p, 8, tx.desc, 0, &tx) != -FI_EAGAIN;
}

static const struct param params[] = {
	{ "FI_VRC_SOFTVERBS", "never", nothing_offered },
	{ "FI_VRC_CREDITS", "always", credits_show },
	{ "FI_VRC_TX_SIZE", "17", tx_size_shows },
	{ "FI_VRC_RX_SIZE", "19", rx_size_shows },
	{ "FI_VRC_INJECT_SIZE", "99", inject_size_shows },
	{ "FI_VRC_IFACE", "no-such", nothing_offered },
	{ "FI_VRC_DEVICE_NAME", "no-such", nothing_offered },
	{ "FI_VRC_GID_INDEX", "12345", nothing_offered },
	{ "FI_VRC_MIN_RNR_TIMER", "21", rnr_timer_shows },
	{ "FI_VRC_ACK_TIMEOUT", "19", ack_timeout_shows },
};

static int tx_size_stays(void)
{
	struct fi_info *info = ask();

	return !info || info->tx_attr->size != 384;
}

static int inject_size_stays(void)
{
	struct fi_info *info = ask();

	return !info || info->tx_attr->inject_size != 256;
}

static int rnr_timer_stays(void)
{
	return log_says("rnr timer 12,");
}

/* A timeout of 0 is none. */
static int ack_timeout_stays(void)
{
	return !log_says("ack timeout 0 ");
}

/* No numbers, or none that may be: the default stays. */
static const struct param wrong_params[] = {
	{ "FI_VRC_TX_SIZE", "17k", tx_size_stays },
	{ "FI_VRC_TX_SIZE", "0", tx_size_stays },
	{ "FI_VRC_TX_SIZE", "4294967313", tx_size_stays },
	{ "FI_VRC_TX_SIZE", "99999999999999999999", tx_size_stays },
	{ "FI_VRC_INJECT_SIZE", "none", inject_size_stays },
	{ "FI_VRC_INJECT_SIZE", "", inject_size_stays },
	{ "FI_VRC_INJECT_SIZE", "-1", inject_size_stays },
	{ "FI_VRC_MIN_RNR_TIMER", "21 ms", rnr_timer_stays },
	{ "FI_VRC_ACK_TIMEOUT", "default", ack_timeout_stays },
};

/* A number that may be, and leads to nothing. */
static const struct param useless_params[] = {
	{ "FI_VRC_GID_INDEX", "77", empty_gid_is_named },
	{ "FI_VRC_GID_INDEX", "77", bad_gid_is_named },
};

static void check_param(const struct param *p)
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	ASSERT(pid >= 0);
	if (!pid) {
		setenv(p->name, p->value, 1);
		/* Without exit handlers: not all is closed. */
		_exit(p->shows());
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		FAIL("%s=%s shows in nothing, or where it should not",
		     p->name, p->value);
}

static int l_parameters(void)
{
	struct fi_param *known;
	int cnt, ours = 0;

	if (!is_softverbs())
		return only_softverbs();
	/* They have a meaning on RoCE only. */
	setenv("SOFTVERBS_PERSONA", "roce2", 1);
	unsetenv("SOFTVERBS_DEVICES");
	for (size_t i = 0; i < ARRAY_SIZE(params); i++)
		check_param(&params[i]);
	for (size_t i = 0; i < ARRAY_SIZE(wrong_params); i++)
		check_param(&wrong_params[i]);
	for (size_t i = 0; i < ARRAY_SIZE(useless_params); i++)
		check_param(&useless_params[i]);
	/* And there are no others. */
	fi_freeinfo(ask());
	ASSERT_OK(fi_getparams(&known, &cnt));
	for (int i = 0; i < cnt; i++) {
		size_t k = 0;

		if (strncmp(known[i].name, "FI_VRC_", 7))
			continue;
		while (k < ARRAY_SIZE(params) &&
		       strcmp(known[i].name, params[k].name))
			k++;
		if (k == ARRAY_SIZE(params))
			FAIL("%s is not looked at here", known[i].name);
		ours++;
	}
	ASSERT_EQ(ours, ARRAY_SIZE(params));
	fi_freeparams(known);
	return PASSED;
}

/* ---- m: regions of the same memory share what should be their own ---- */

static int m_same_memory(void)
{
	static const uint64_t access[] = { FI_REMOTE_READ, FI_REMOTE_WRITE };
	struct fid_mr *mr[2];
	struct comp c;

	if (!is_vrc())
		return skip("%s does not check remote access", provider());
	for (int wrong = 0; wrong < 2; wrong++) {
		pair_open(NULL, LEN);
		if (is_iwarp(&cli)) {
			pair_close_quiet();
			return skip("siw lets a peer read what is registered");
		}
		for (int i = 0; i < 2; i++)
			ASSERT_OK(fi_mr_reg(srv.domain, rx.p, LEN, access[i], 0,
					    1 + (uint64_t)i, 0, &mr[i],
					    &mr[i]));
		ASSERT(mr[0] != mr[1]);
		ASSERT(mr[0]->fid.context == &mr[0]);
		ASSERT(mr[1]->fid.context == &mr[1]);
		ASSERT(fi_mr_key(mr[0]) != fi_mr_key(mr[1]));
		ASSERT_TAKEN(fi_read(cli.ep, tx.p, 8, tx.desc, 0, rx.addr,
				     fi_mr_key(mr[0]), &tx));
		expect_ok(cli.cq, &tx, FI_RMA | FI_READ, NULL);
		ASSERT_TAKEN(fi_write(cli.ep, tx.p, 8, tx.desc, 0, rx.addr,
				      fi_mr_key(mr[1]), &tx));
		expect_ok(cli.cq, &tx, FI_RMA | FI_WRITE, NULL);
		if (wrong)
			ASSERT_TAKEN(fi_read(cli.ep, tx.p, 8, tx.desc, 0,
					     rx.addr, fi_mr_key(mr[1]), &tx));
		else
			ASSERT_TAKEN(fi_write(cli.ep, tx.p, 8, tx.desc, 0,
					      rx.addr, fi_mr_key(mr[0]), &tx));
		expect_comp(cli.cq, &c);
		ASSERT_EQ(c.err, FI_EACCES);
		for (int i = 0; i < 2; i++)
			ASSERT_OK(fi_close(&mr[i]->fid));
		pair_close_quiet();
	}
	return PASSED;
}

/* ---- p: a region of no bytes that is none ---- */

static int p_no_bytes(void)
{
	struct iovec iov;
	struct fid_mr *mr = (void *)1;

	if (!is_vrc())
		return skip("%s registers nothing", provider());
	pair_open(NULL, LEN);
	iov = (struct iovec){ rx.p, 0 };
	ASSERT_EQ(fi_mr_reg(srv.domain, rx.p, 0, ALL_ACCESS, 0, 1, 0, &mr,
			    NULL), -FI_EINVAL);
	ASSERT_EQ(fi_mr_reg(srv.domain, NULL, 0, FI_SEND, 0, 1, 0, &mr, NULL),
		  -FI_EINVAL);
	ASSERT_EQ(fi_mr_regv(srv.domain, &iov, 1, ALL_ACCESS, 0, 1, 0, &mr,
			     NULL), -FI_EINVAL);
	ASSERT(mr == (void *)1);
	message(1);
	return pair_close_quiet();
}

/* ---- without a letter ---- */

static volatile bool stop;

/* Messages that nobody wants to see. */
static void *send_silently(void *arg)
{
	while (!stop) {
		fi_inject(cli.ep, tx.p, 8, 0);
		sleep_ms(20);
	}
	return NULL;
}

/* A wait that is woken by what shows nothing goes on for what is left of its
 * time, not for all of it again. */
static int sread_with_silent_traffic(void)
{
	enum { MS = 300, N = 100 };
	struct setup how = {
		.cq_wait = FI_WAIT_FD,
		.rx_bind = FI_SELECTIVE_COMPLETION,
		.rx_size = N,
	};
	struct iovec iov;
	struct fi_msg msg = { .msg_iov = &iov, .desc = &rx.desc,
			      .iov_count = 1 };
	struct fi_cq_data_entry e;
	pthread_t thread;
	uint64_t start;

	pair_open(&how, LEN);
	iov = (struct iovec){ rx.p, 8 };
	for (int i = 0; i < N; i++)
		ASSERT_OK(fi_recvmsg(srv.ep, &msg, 0));
	ASSERT_OK(pthread_create(&thread, NULL, send_silently, NULL));
	start = now_us();
	ASSERT_EQ(fi_cq_sread(srv.cq, &e, 1, NULL, MS), -FI_EAGAIN);
	ASSERT_GE(now_us() - start + 5000, MS * 1000);
	ASSERT_LE(now_us() - start, slow_ms(MS + 400) * 1000);
	stop = true;
	ASSERT_OK(pthread_join(thread, NULL));
	return pair_close_quiet();
}

/* A signal to a queue that nobody can wait for goes nowhere, and above all not
 * to descriptor 0. */
static int signal_without_wait(void)
{
	int fds[2], old;
	char byte;

	pair_open(NULL, LEN);
	ASSERT_OK(pipe(fds));
	ASSERT_OK(fcntl(fds[0], F_SETFL, O_NONBLOCK));
	old = dup(STDIN_FILENO);
	ASSERT_EQ(dup2(fds[1], STDIN_FILENO), STDIN_FILENO);
	for (int i = 0; i < 10; i++)
		fi_cq_signal(srv.cq);
	ASSERT_EQ(read(fds[0], &byte, 1), -1);
	ASSERT_EQ(errno, EAGAIN);
	if (old >= 0)
		dup2(old, STDIN_FILENO);
	else
		close(STDIN_FILENO);
	close(old);
	close(fds[0]);
	close(fds[1]);
	message(1);
	return pair_close_quiet();
}

/* The first vector that is none. */
static int signaling_vector(void)
{
	struct fi_cq_attr attr = {
		.wait_obj = FI_WAIT_FD, .flags = FI_AFFINITY,
	};
	struct fid_cq *cq;
	int ret = 0;

	if (!is_vrc())
		return skip("%s has none", provider());
	pair_open(NULL, LEN);
	while (!ret && attr.signaling_vector < 4096) {
		ret = fi_cq_open(cli.domain, &attr, &cq, NULL);
		if (ret)
			break;
		ASSERT_OK(fi_close(&cq->fid));
		attr.signaling_vector++;
	}
	ASSERT_EQ(ret, -FI_EINVAL);
	ASSERT_GE(attr.signaling_vector, 1);
	attr.signaling_vector = -1;
	ASSERT_EQ(fi_cq_open(cli.domain, &attr, &cq, NULL), -FI_EINVAL);
	return pair_close_quiet();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE_COLD(c_post_failures), CASE_COLD(d_several_infos),
		CASE(e_busy_close), CASE(f_failed_inject),
		CASE(i_full_receive_queue), CASE(j_too_early),
		CASE_COLD(l_parameters), CASE(m_same_memory), CASE(p_no_bytes),
		CASE(sread_with_silent_traffic), CASE(signal_without_wait),
		CASE(signaling_vector), { NULL, NULL, 0 },
	};

	return run_cases(argc, argv, cases);
}
