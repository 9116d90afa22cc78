/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the functional tests share. A program is a table of cases; each case
 * runs in a process of its own, so a crash or a failed assertion in one says
 * nothing about the next. Exit status: 0 passed, 1 failed, 77 all skipped.
 *
 *	program --list | program [case ...]
 *
 * Only the public libfabric API is used. Environment:
 *
 *	VRC_TEST_PROVIDER	provider under test (vrc)
 *	VRC_TEST_ADDR		a local address that it serves (127.0.0.1)
 *	VRC_TEST_TIMEOUT	seconds that the whole program may take (30)
 *	VRC_TEST_SLOW		multiplies every time bound (1)
 *	VRC_TEST_SCALE		divides round counts (1)
 *	VRC_TEST_NOFORK		run the one named case in this process
 */
#ifndef COMMON_H
#define COMMON_H

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "compiler.h"
#include "fi_names.h"

/* Written to the application's side of the API contract of this release. */
#define TEST_API FI_VERSION(1, 17)

/* Assertions: they end the case. Both values are printed. */
void fail_at(const char *file, int line, const char *fmt, ...)
	__printf_like(3, 4) __attribute__((noreturn));
void check_cmp(const char *file, int line, const char *expr, long long a,
	       const char *op, long long b);
bool cmp_holds(long long a, const char *op, long long b);

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define ASSERT(cond) \
	((cond) ? (void)0 : fail_at(__FILE__, __LINE__, "not so: %s", #cond))
#define ASSERT_CMP(a, op, b)                                            \
	check_cmp(__FILE__, __LINE__, #a " " #op " " #b, (long long)(a), \
		  #op, (long long)(b))
#define ASSERT_EQ(a, b) ASSERT_CMP(a, ==, b)
#define ASSERT_NE(a, b) ASSERT_CMP(a, !=, b)
#define ASSERT_LE(a, b) ASSERT_CMP(a, <=, b)
#define ASSERT_GE(a, b) ASSERT_CMP(a, >=, b)
#define ASSERT_OK(call) ASSERT_EQ(call, 0)
/* Of an operation that is posted. -FI_EAGAIN is no refusal as long as it clears
 * (fi_msg(3)), here while nothing else is done. */
#define ASSERT_TAKEN(call)                                                    \
	do {                                                                  \
		uint64_t end_ = now_us() + (uint64_t)slow_ms(5000) * 1000;    \
		unsigned int turn_ = 0;                                       \
		ssize_t ret_;                                                 \
									      \
		while ((ret_ = (call)) == -FI_EAGAIN && now_us() < end_) {    \
			progress();                                           \
			relax(&turn_);                                        \
		}                                                             \
		ASSERT_EQ(ret_, 0);                                           \
	} while (0)

enum { PASSED = 0, FAILED = 1, SKIPPED = 77 };

/* Prints why; to be returned from a case. */
int skip(const char *fmt, ...) __printf_like(1, 2);

enum case_flags {
	/* No file descriptors may be left when the case is over. */
	CASE_FDS = 1 << 0,
};

struct test_case {
	const char *name;
	int (*run)(void);
	unsigned int flags;
};

#define CASE(fn) { #fn, fn, CASE_FDS }
/* Nothing of libfabric is touched before the case starts (it will fork). */
#define CASE_COLD(fn) { #fn, fn, 0 }

/* The body of main(). The table ends with a NULL name. */
int run_cases(int argc, char **argv, const struct test_case *cases);
/* What followed the case names on the command line after "--", or dflt. */
long test_arg(long dflt);

/* Environment. */
const char *provider(void);
bool is_vrc(void);
const char *test_addr(void);
int slow_ms(int ms);	   /* a time bound, scaled */
int scaled(int rounds);	   /* at least 1 */

/* Time. */
uint64_t now_us(void);
uint64_t cpu_us(void);	/* of this process, all threads */
void sleep_ms(int ms);
/* A signal that is caught, and restarts no call. */
void interrupt_in(int ms);
/* Called in polling loops: spins briefly, then sleeps. *turn starts at 0. */
void relax(unsigned int *turn);

int count_fds(void);

/* Bytes that depend on their position and on seed. */
void fill(void *buf, size_t len, uint32_t seed);
void check_filled(const char *file, int line, const void *buf, size_t len,
		  uint32_t seed);
void check_bytes(const char *file, int line, const void *buf, size_t len,
		 uint8_t byte);
bool is_filled(const void *buf, size_t len, uint32_t seed);
#define ASSERT_FILLED(buf, len, seed) \
	check_filled(__FILE__, __LINE__, buf, len, seed)
#define ASSERT_BYTES(buf, len, byte) \
	check_bytes(__FILE__, __LINE__, buf, len, byte)

/*
 * fabric.c: the short forms SETUP, LISTEN, CONNECT, PAIR and drain.
 */

struct end;

/* How an end is to be made; zero means the default. */
struct setup {
	uint64_t caps;		/* FI_MSG | FI_RMA */
	int mr_mode;		/* LOCAL | VIRT_ADDR | ALLOCATED | PROV_KEY */
	bool no_mr_mode;	/* offer no mr_mode bit at all */
	bool two_cqs;		/* sends complete to tx_cq, not to cq */
	const char *node;	/* test_addr() */
	uint16_t port;		/* of the listener; any */
	size_t tx_size;
	size_t rx_size;
	size_t cq_size;
	enum fi_cq_format format; /* FI_CQ_FORMAT_DATA */
	enum fi_wait_obj cq_wait; /* FI_WAIT_NONE */
	enum fi_wait_obj eq_wait; /* FI_WAIT_UNSPEC */
	enum fi_threading threading;
	uint64_t tx_bind;	/* FI_SELECTIVE_COMPLETION */
	uint64_t rx_bind;
	uint64_t tx_op_flags;
	bool no_cq;		/* no completion queue is bound */
	bool shared_rx;		/* rx_ctx_cnt is FI_SHARED_CONTEXT */
	bool shared_tx;
	enum fi_resource_mgmt resource_mgmt;
	/* Binds what else there is to an endpoint before it is enabled. */
	void (*bind)(struct end *e);
};

/* FI_NOTIFY is 0, so an error needs a number of its own. */
enum { ERROR_EVENT = 0x7fffffff };

struct event {
	uint32_t type;	/* FI_CONNREQ ... or ERROR_EVENT */
	struct fid *fid;
	struct fi_info *info;
	int err;
	int prov_errno;
	uint8_t data[512];
	size_t len;	/* of data */
};

enum { EVENT_QUEUE = 1024 };

/* An event queue and what was read from it while looking for something else. */
struct evq {
	struct fid_eq *eq;
	struct event *events[EVENT_QUEUE];
	unsigned int head;
	unsigned int cnt;
};

/* One side of a connection. */
struct end {
	struct setup how;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_cq *tx_cq; /* cq, unless how.two_cqs */
	struct evq *evq;
	struct fid_pep *pep;
	struct fid_ep *ep;
	bool borrowed; /* fabric, domain, cq and evq belong to another end */
};

/* Hints as SETUP has them; caller frees. */
struct fi_info *make_hints(const struct setup *how);
/* fi_getinfo with them; NULL and *ret set if it failed. */
struct fi_info *try_getinfo(const struct setup *how, const char *service,
			    uint64_t flags, int *ret);

/* SETUP for the side that listens. how may be NULL. */
void open_passive(struct end *e, const struct setup *how);
/* SETUP for the side that connects to srv's listener. */
void open_active(struct end *e, const struct setup *how,
		 const struct end *srv);
/* The same, for a listener that may be in another process. */
void open_active_port(struct end *e, const struct setup *how, uint16_t port);
/* The same, with everything but the endpoint shared with owner. srv may be
 * NULL: an end that will accept. */
void open_shared(struct end *e, struct end *owner, const struct end *srv);
/* Closes what is open, in order; every close must succeed. */
void close_end(struct end *e);
void close_ep(struct end *e);

/* Passive endpoint, bound and listening. */
void listen_start(struct end *e);
/* From fi_getname. */
uint16_t listen_port(const struct end *e);
/* fi_endpoint, bind, enable. */
void make_ep(struct end *e, struct fi_info *info);
/* A new counter, at zero, of these operations of an endpoint: for how.bind. */
struct fid_cntr *make_cntr(struct end *e, uint64_t flags,
			   enum fi_wait_obj wait_obj);
/* make_ep and fi_connect with data. */
void connect_start(struct end *e, const void *data, size_t len);
/* Waits for FI_CONNREQ on srv, makes an endpoint on dst (which may be srv
 * itself), accepts with data. req (may be NULL) gets the request; its info is
 * gone by then. */
void accept_start(struct end *srv, struct end *dst, const void *data,
		  size_t len, struct event *req);
/* Waits until both have FI_CONNECTED; active's goes to ev (may be NULL). */
void wait_connected(struct end *passive, struct end *active,
		    struct event *ev);

/* PAIR: both ends opened with how, connected; the listener stays open. */
void make_pair(struct end *srv, struct end *cli, const struct setup *how);
/* CONNECT + accept between ends that are open and listening. */
void connect_pair(struct end *srv, struct end *cli);
/* Closes both, endpoints first. */
void close_pair(struct end *srv, struct end *cli);

/*
 * The next event about e's endpoint or listener. While waiting, the event
 * queues of all open ends are read, as a program with one loop per queue
 * would; what belongs to others is kept for them. False: none came.
 */
bool next_event(struct end *e, struct event *ev, int ms);
/* The next event of e must be this one. ev may be NULL. */
void expect_event(struct end *e, uint32_t type, struct event *ev);
void expect_no_event(struct end *e, int ms);
const char *event_name(uint32_t type);

/* A completion of either kind. err is 0 for a success. */
struct comp {
	void *context;
	uint64_t flags;
	size_t len;
	uint64_t data;
	size_t olen;
	int err;
	int prov_errno;
};

/* One completion of a FI_CQ_FORMAT_DATA queue, if there is one. */
bool poll_comp(struct fid_cq *cq, struct comp *c);
bool next_comp(struct fid_cq *cq, struct comp *c, int ms);
/* Lets a provider that moves data only while it is polled do so. */
void progress(void);
void expect_comp(struct fid_cq *cq, struct comp *c); /* any, within 5 s */
/* A success with this context and these operation flags. */
void expect_ok(struct fid_cq *cq, const void *context, uint64_t flags,
	       struct comp *c);
void expect_no_comp(struct fid_cq *cq, int ms);
/*
 * Waits until a peer's write has arrived in this memory. A write that has
 * completed is delivered, not yet visible (fi_cq(3), FI_TRANSMIT_COMPLETE).
 */
void expect_filled(const char *file, int line, const void *buf, size_t len,
		   uint32_t seed);
#define EXPECT_FILLED(buf, len, seed) \
	expect_filled(__FILE__, __LINE__, buf, len, seed)
/* The bits of a completion's flags that say what completed. */
uint64_t op_bits(uint64_t flags);

/* Registered memory. */
struct buf {
	uint8_t *p;
	size_t len;
	struct fid_mr *mr;
	void *desc;
	uint64_t key;
	uint64_t addr;	/* as a peer names it */
};
#define ALL_ACCESS \
	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
void buf_open(struct end *e, struct buf *b, size_t len, uint64_t access);
void buf_close(struct buf *b);

/* fi_recv and fi_send that must be taken. */
void post_recv(struct end *e, struct buf *b, size_t off, size_t len,
	       void *context);
void post_send(struct end *e, struct buf *b, size_t off, size_t len,
	       void *context);

/*
 * iWARP differs where TCP shows through: a write completes when it is on its
 * way, so what the target thinks of it is only seen as the connection's end.
 */
bool is_iwarp(const struct end *e);
/* A send is held back with -FI_EAGAIN until the peer has a receive for it. */
bool has_credits(const struct end *e);
/* Data with a completion at the other side can be had. */
bool has_cq_data(const struct end *e);
/* A remote write with data takes a posted receive. */
bool takes_recv(const struct end *e);
/* Completion flags of the target of a write with data. */
uint64_t remote_write_flags(void);

/*
 * peer.c: a second process with a channel to it.
 */
struct peer {
	pid_t pid;
	int sock;
};

/* fn runs in a child with the other end of the channel; it must return 0. */
void peer_start(struct peer *p, int (*fn)(int sock, void *arg), void *arg);
void peer_kill(struct peer *p, int sig);
/* Waits for its end and asserts that it returned 0. */
void peer_join(struct peer *p);
void tell(int sock, const void *data, size_t len);
void hear(int sock, void *data, size_t len);

#endif
