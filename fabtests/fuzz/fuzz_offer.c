/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The datagram by which two processes hand a connection over to shared memory,
 * and the descriptors that come with it. Input:
 *
 *	u8	how many descriptors (0 .. 7)
 *	u8 ...	which each is, of the kinds below
 *	u8	bit 0: the bytes that follow lie over a good offer, at
 *	u8	this place; else they are the datagram
 *	...	bytes
 *
 * What is accepted is attached to a link, which is then closed. No descriptor is
 * left over, whatever came in.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/softverbs/side.h"
#include "sv_engine.h"
#include "sv_handover.h"

enum kind {
	KIND_SEG,
	KIND_TBL,
	KIND_BELL,
	KIND_SEG_UNSEALED,
	KIND_SEG_SHORT,
	KIND_SEG_EMPTY,			/* without magic */
	KIND_TBL_SHORT,
	KIND_PIPE,
	KIND_NULL,
	KIND_FILE,
	KIND_SOCKET,
	KIND_DIR,
	KIND_CNT,
};

enum {
	SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
	FDS_MAX = 7,
};

static int kinds[KIND_CNT];
static struct side side;
static struct sv_offer good;
static int sock[2];

static int file(size_t size, int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	FUZZ_CHECK(fd >= 0 && !ftruncate(fd, (off_t)size));
	FUZZ_CHECK(!seals || !fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

/* A good segment, but not sealed: could shrink under who maps it. */
static int unsealed(int seg)
{
	int fd = file(sizeof(struct sv_seg), 0);
	char head[64];

	FUZZ_CHECK(pread(seg, head, sizeof(head), 0) == sizeof(head));
	FUZZ_CHECK(pwrite(fd, head, sizeof(head), 0) == sizeof(head));
	return fd;
}

static void make_kinds(int seg)
{
	int pipe_fd[2];

	FUZZ_CHECK(!pipe(pipe_fd));
	kinds[KIND_SEG] = seg;
	kinds[KIND_TBL] = sv_mr_fd();
	kinds[KIND_BELL] = eventfd(0, EFD_CLOEXEC);
	kinds[KIND_SEG_UNSEALED] = unsealed(seg);
	kinds[KIND_SEG_SHORT] = file(4096, SEALS);
	kinds[KIND_SEG_EMPTY] = file(sizeof(struct sv_seg), SEALS);
	kinds[KIND_TBL_SHORT] = file(4096, SEALS);
	kinds[KIND_PIPE] = pipe_fd[1];
	kinds[KIND_NULL] = open("/dev/null", O_RDWR | O_CLOEXEC);
	kinds[KIND_FILE] = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	kinds[KIND_SOCKET] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	kinds[KIND_DIR] = open("/", O_RDONLY | O_CLOEXEC);
}

static void start(void)
{
	struct sv_link *link;
	struct sv_seg *seg;
	int fds[SV_LINK_FDS];
	int seg_fd;

	/* Now, for it has descriptors of its own. */
	FUZZ_CHECK(!sv_engine_start());
	side_open(&side, NULL);
	FUZZ_CHECK(!side_init(&side));
	FUZZ_CHECK(!sv_seg_create(&seg, &seg_fd));
	make_kinds(seg_fd);
	FUZZ_CHECK(!sv_shm_create(sv_qp(side.qp), &link));
	good.magic = SV_OFFER_MAGIC;
	good.version = SV_CTRL_VERSION;
	sv_shm_offer(link, &good.link, fds);
	sv_link_close(link);
	FUZZ_CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock));
}

static void send_datagram(const void *bytes, size_t len, int *fds, size_t cnt)
{
	union {
		char buf[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)bytes, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;

	if (cnt) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(cnt * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(cnt * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, cnt * sizeof(int));
	}
	FUZZ_CHECK(sendmsg(sock[0], &msg, MSG_DONTWAIT) == (ssize_t)len);
}

static int lowest_free_fd(void)
{
	int fd = fcntl(0, F_DUPFD_CLOEXEC, 0);

	close(fd);
	return fd;
}

/* As the acceptor does, with a socket of its own to give away. */
static void attach(const struct sv_offer *offer, int fds[SV_LINK_FDS])
{
	struct ucred cred = { .pid = getpid() };
	struct sv_link *link;
	int end[2];
	int err;

	FUZZ_CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end));
	FUZZ_CHECK(!sv_shm_create(sv_qp(side.qp), &link));
	err = sv_shm_attach(link, &offer->link, fds, end[0], &cred);
	FUZZ_CHECK(!err || err == EPROTO);
	if (!err)
		FUZZ_CHECK(sv_shm(link)->peer->magic == SV_SEG_MAGIC);
	sv_link_close(link);
	if (err)
		close(end[0]);
	close(end[1]);
}

static size_t read_datagram(struct fuzz_in *in, uint8_t *bytes, size_t size)
{
	bool over = fuzz_u8(in) & 1;
	size_t at = fuzz_u8(in);
	size_t len = in->left;

	if (over) {
		memcpy(bytes, &good, sizeof(good));
		at %= sizeof(good);
		if (len > sizeof(good) - at)
			len = sizeof(good) - at;
		fuzz_bytes(in, bytes + at, len);
		return sizeof(good);
	}
	if (len > size)
		len = size;
	fuzz_bytes(in, bytes, len);
	return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	uint8_t bytes[2 * sizeof(struct sv_offer)];
	static bool started;
	struct sv_offer offer;
	int fds[SV_LINK_FDS];
	int fd[FDS_MAX];
	size_t len;
	size_t cnt;
	size_t i;
	int before;
	int err;

	if (!started)
		start();
	started = true;
	cnt = fuzz_u8(&in) % (FDS_MAX + 1);
	for (i = 0; i < cnt; i++)
		fd[i] = kinds[fuzz_u8(&in) % KIND_CNT];
	len = read_datagram(&in, bytes, sizeof(bytes));
	before = lowest_free_fd();
	send_datagram(bytes, len, fd, cnt);
	err = sv_offer_recv(sock[1], &offer, fds);
	if (!err) {
		FUZZ_CHECK(cnt == SV_LINK_FDS && len == sizeof(offer));
		attach(&offer, fds);
	}
	FUZZ_CHECK(err != EAGAIN);
	FUZZ_CHECK(lowest_free_fd() == before);
	return 0;
}
