/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From the TCP connection to the shared-memory link. That both ends are on one
 * host is guessed from the ids in HELLO and proved by meeting on a UNIX socket:
 * the accepting process listens on one abstract name, the connecting one calls
 * there and shows the token that it was given over TCP, which tells whose
 * counterpart it is. Only the same user is let in.
 *
 *	connecting side                       accepting side
 *	offer: acceptor's token, hello, fds ──►  find the conn; make a link
 *	                                    ◄──  offer: connector's token, ...
 *	attach                                   attach
 *
 * The socket then belongs to the link. Everything happens in the engine or
 * under sv_cm.lock, and nothing blocks.
 */
#include "sv_handover.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	RETRY_MS = 10,
	UUID_LEN = 36,
};

/* Guarded by sv_cm.lock. */
static struct {
	bool known;
	uint8_t id[SV_HOST_ID_LEN];
	uint64_t netns;
	uint64_t userns;
} host;

static int hex_value(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return isxdigit(c) ? tolower(c) - 'a' + 10 : -1;
}

/* The id that the kernel draws at boot. Zeros if it cannot be read: then only
 * the meeting on the socket decides. False: for want of a descriptor, which will
 * not always be so. */
static bool read_host_id(uint8_t id[SV_HOST_ID_LEN])
{
	char text[UUID_LEN] = { 0 };
	ssize_t len = 0;
	size_t digits = 0;
	ssize_t i;
	int value;
	int fd;

	memset(id, 0, SV_HOST_ID_LEN);
	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno != EMFILE && errno != ENFILE;
	len = read(fd, text, sizeof(text));
	close(fd);
	for (i = 0; i < len && digits < 2 * SV_HOST_ID_LEN; i++) {
		value = hex_value((unsigned char)text[i]);
		if (value < 0)
			continue;
		id[digits / 2] |= (uint8_t)(value << (digits % 2 ? 0 : 4));
		digits++;
	}
	return true;
}

/* Abstract names, and the address 127.0.0.1, mean something within one of
 * networks; numbers of users within one of users. */
static uint64_t read_ns(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (uint64_t)st.st_ino;
}

/* Only its own kind is let in to a process's memory. */
static uint64_t own_user(void)
{
	return host.userns << 32 | geteuid();
}

static void know_host(void)
{
	if (host.known)
		return;
	host.known = read_host_id(host.id);
	host.netns = read_ns("/proc/self/ns/net");
	host.userns = read_ns("/proc/self/ns/user");
}

socklen_t sv_unix_addr(struct sockaddr_un *addr, const char *name)
{
	size_t len = strlen(name);

	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	memcpy(addr->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

bool sv_is_same_user(int sock, struct ucred *cred)
{
	socklen_t len = sizeof(*cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, cred, &len))
		return false;
	return cred->uid == geteuid();
}

void sv_fds_close(int *fds, size_t cnt)
{
	size_t i;

	for (i = 0; i < cnt; i++)
		close(fds[i]);
}

/*
 * Takes the descriptors out of a message; returns how many there were. The
 * control buffer's padding has room for one too many: it is closed, but counts.
 */
static size_t fds_take(struct msghdr *msg, int fds[SV_LINK_FDS])
{
	struct cmsghdr *cmsg;
	size_t taken = 0;
	size_t cnt;
	size_t i;
	int fd;

	for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET ||
		    cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		cnt = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < cnt; i++) {
			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int),
			       sizeof(fd));
			if (taken < SV_LINK_FDS)
				fds[taken] = fd;
			else
				close(fd);
			taken++;
		}
	}
	return taken;
}

/* 0, EAGAIN, or another positive errno. On 0 fds are the caller's. On EMFILE the
 * offer is whole, but for them: the kernel cuts off what it finds no room for. */
int sv_offer_recv(int sock, struct sv_offer *offer, int fds[SV_LINK_FDS])
{
	union {
		char buf[CMSG_SPACE(SV_LINK_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = offer, .iov_len = sizeof(*offer) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	bool whole;
	size_t cnt;
	ssize_t len;

	len = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (len < 0)
		return errno == EINTR ? EAGAIN : errno;
	cnt = fds_take(&msg, fds);
	whole = len == sizeof(*offer) && !(msg.msg_flags & MSG_TRUNC) &&
		offer->magic == SV_OFFER_MAGIC &&
		offer->version == SV_CTRL_VERSION;
	if (whole && cnt == SV_LINK_FDS && !(msg.msg_flags & MSG_CTRUNC))
		return 0;
	sv_fds_close(fds, min_size(cnt, SV_LINK_FDS));
	if (whole && cnt < SV_LINK_FDS && msg.msg_flags & MSG_CTRUNC)
		return EMFILE;
	return len ? EPROTO : ECONNRESET;
}

int sv_offer_send(struct sv_conn *conn, int sock)
{
	struct sv_offer offer = {
		.magic = SV_OFFER_MAGIC,
		.version = SV_CTRL_VERSION,
	};
	union {
		char buf[CMSG_SPACE(SV_LINK_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = &offer, .iov_len = sizeof(offer) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	int fds[SV_LINK_FDS];

	memcpy(offer.token, conn->hello.token, sizeof(offer.token));
	sv_shm_offer(conn->link, &offer.link, fds);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(cmsg), fds, sizeof(fds));
	if (sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return errno;
	return 0;
}

int sv_handover_make_link(struct sv_conn *conn)
{
	int err;

	conn->qp = sv_qp_find(conn->own_conn.qp_num);
	if (!conn->qp)
		return EINVAL;
	if (!conn->rdv)
		sv_rdv_quit(conn->qp);
	err = sv_shm_create(conn->qp, &conn->link);
	if (err)
		conn->link = NULL;
	return err;
}

/* Consumes fds, and the socket too (then -1) once the link has it. */
int sv_handover_attach(struct sv_conn *conn, const struct sv_offer *offer,
		       int fds[SV_LINK_FDS], int *sock,
		       const struct ucred *cred)
{
	int err;

	sv_engine_unwatch_nowait(*sock);
	err = sv_shm_attach(conn->link, &offer->link, fds, *sock, cred);
	if (err)
		return err;
	*sock = -1;
	err = sv_qp_attach_link(conn->qp, conn->link);
	if (err)
		return err;
	conn->link = NULL;	/* the QP's now */
	sv_qp_put(conn->qp);
	conn->qp = NULL;
	return 0;
}

void sv_handover_cancel(struct sv_conn *conn)
{
	if (conn->unix_sock >= 0) {
		sv_engine_unwatch_nowait(conn->unix_sock);
		close(conn->unix_sock);
		conn->unix_sock = -1;
	}
	if (conn->link)
		sv_link_close(conn->link);
	conn->link = NULL;
	if (conn->qp)
		sv_qp_put(conn->qp);
	conn->qp = NULL;
}

/*
 * One segment that is mapped twice, its own peer's. Nobody can hang up: what
 * stands for the socket is a descriptor that never has anything to say.
 */
int sv_handover_self(struct sv_qp *qp)
{
	struct ucred cred = { .pid = getpid(), .uid = geteuid() };
	struct sv_link_hello hello;
	int fds[SV_LINK_FDS];
	struct sv_link *link;
	size_t i;
	int sock;
	int err;

	err = sv_shm_create(qp, &link);
	if (err)
		return err;
	sv_shm_offer(link, &hello, fds);
	for (i = 0; i < SV_LINK_FDS; i++) {
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
		if (fds[i] < 0) {
			err = errno;
			sv_fds_close(fds, i);
			goto err_close_link;
		}
	}
	sock = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sock < 0) {
		err = errno;
		sv_fds_close(fds, SV_LINK_FDS);
		goto err_close_link;
	}
	err = sv_shm_attach(link, &hello, fds, sock, &cred);
	if (err)
		goto err_close_sock;
	err = sv_qp_attach_link(qp, link);
	if (err)
		goto err_close_link;
	return 0;

err_close_sock:
	close(sock);
err_close_link:
	sv_link_close(link);
	return err;
}

bool sv_handover_possible(const struct sv_ctrl *hello)
{
	know_host();
	return hello->netns == host.netns && hello->user == own_user() &&
		!memcmp(hello->host_id, host.id, SV_HOST_ID_LEN);
}

void sv_handover_fail(struct sv_conn *conn, int err)
{
	sv_log("cm: hand-over to shared memory failed: %s", strerror(err));
	sv_note_fds(err);
	sv_conn_fail(conn, RDMA_CM_EVENT_CONNECT_ERROR, -err);
}

/* Connecting side: the acceptor's offer is there, or the socket is broken. */
static void on_offer(void *arg, uint32_t events)
{
	struct sv_conn *conn = arg;
	int fds[SV_LINK_FDS];
	struct sv_offer offer;
	struct ucred cred;
	int sock;
	int err;

	lock_take(&sv_cm.lock);
	if (conn->dead || conn->unix_sock < 0)
		goto out;
	sock = conn->unix_sock;
	err = sv_offer_recv(sock, &offer, fds);
	if (err == EAGAIN)
		goto out;
	if (err)
		goto fail;
	err = EPERM;
	if (memcmp(offer.token, conn->token, SV_TOKEN_LEN) ||
	    !sv_is_same_user(sock, &cred)) {
		sv_fds_close(fds, SV_LINK_FDS);
		goto fail;
	}
	err = sv_handover_attach(conn, &offer, fds, &conn->unix_sock, &cred);
	if (err)
		goto fail;
	sv_active_linked(conn);
out:
	lock_drop(&sv_cm.lock);
	return;

fail:
	sv_handover_fail(conn, err);
	goto out;
}

/* 0, EAGAIN if the acceptor's queue is full, or another positive errno. */
static int unix_connect(struct sv_conn *conn)
{
	struct sockaddr_un addr;
	struct ucred cred;
	socklen_t len;
	int sock;
	int err;

	if (!conn->hello.unix_name[0])
		return EPROTO;
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		      0);
	if (sock < 0)
		return errno;
	len = sv_unix_addr(&addr, conn->hello.unix_name);
	if (connect(sock, (struct sockaddr *)&addr, len)) {
		err = errno;
		goto err_close;
	}
	/* Do not hand our memory to somebody else's process. */
	err = sv_is_same_user(sock, &cred) ? 0 : EPERM;
	if (!err)
		err = sv_offer_send(conn, sock);
	if (!err)
		err = sv_engine_watch(sock, EPOLLIN, on_offer, conn);
	if (err)
		goto err_close;
	conn->unix_sock = sock;
	return 0;

err_close:
	close(sock);
	return err;
}

void sv_handover_start(struct sv_conn *conn)
{
	int err = sv_handover_make_link(conn);

	if (err)
		sv_handover_fail(conn, err);
	else
		sv_handover_retry(conn);
}

static void on_retry(void *arg)
{
	struct sv_conn *conn = arg;

	lock_take(&sv_cm.lock);
	if (!conn->dead && sv_timer_expired(&conn->retry)) {
		sv_timer_cancel(&conn->retry);
		sv_handover_retry(conn);
	}
	lock_drop(&sv_cm.lock);
}

/* The hand-over's own time limit ends the retries. */
void sv_handover_retry(struct sv_conn *conn)
{
	int err = unix_connect(conn);

	if (err == EAGAIN)
		sv_timer_set(&conn->retry, RETRY_MS, on_retry, conn);
	else if (err)
		sv_handover_fail(conn, err);
}

/* What it lacks now, the first connection tries to get. */
void sv_handover_prepare(void)
{
	char name[SV_UNIX_NAME_MAX + 1];
	int err;

	know_host();
	if (!(sv_cm_links_offered() & SV_LINKS_SHM))
		return;
	err = sv_handover_listen(name);
	if (err)
		sv_log("cm: no hand-over yet: %s", strerror(err));
}

/* Only the accepting side needs to have a name. */
int sv_handover_hello(const struct sv_conn *conn, struct sv_ctrl *hello)
{
	int err;

	know_host();
	err = conn->passive && hello->links & SV_LINKS_SHM ?
		      sv_handover_listen(hello->unix_name) : 0;
	if (err)
		return err;
	hello->version = SV_CTRL_VERSION;
	memcpy(hello->host_id, host.id, SV_HOST_ID_LEN);
	hello->netns = host.netns;
	hello->user = own_user();
	memcpy(hello->token, conn->token, SV_TOKEN_LEN);
	return 0;
}
