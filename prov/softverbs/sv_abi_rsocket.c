/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * librdmacm.so.1: rsockets. There are none: rsocket() fails with EOPNOTSUPP, and
 * so does all that would need one. rpoll() and rselect() also serve programs
 * that have none, for ordinary descriptors.
 */
#include "sv_abi_cm.h"

#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/select.h>

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	return poll(fds, nfds, timeout);
}

int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
	    struct timeval *timeout)
{
	return select(nfds, readfds, writefds, exceptfds, timeout);
}

int rsocket(int domain, int type, int protocol)
{
	return sv_abi_cm_nosys(__func__);
}

int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return sv_abi_cm_nosys(__func__);
}

int rlisten(int socket, int backlog)
{
	return sv_abi_cm_nosys(__func__);
}

int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return sv_abi_cm_nosys(__func__);
}

int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return sv_abi_cm_nosys(__func__);
}

int rshutdown(int socket, int how)
{
	return sv_abi_cm_nosys(__func__);
}

int rclose(int socket)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags,
		  struct sockaddr *src_addr, socklen_t *addrlen)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
		const struct sockaddr *dest_addr, socklen_t addrlen)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rread(int socket, void *buf, size_t count)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return sv_abi_cm_nosys(__func__);
}

ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	return sv_abi_cm_nosys(__func__);
}

int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return sv_abi_cm_nosys(__func__);
}

int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return sv_abi_cm_nosys(__func__);
}

int rsetsockopt(int socket, int level, int optname, const void *optval,
		socklen_t optlen)
{
	return sv_abi_cm_nosys(__func__);
}

int rgetsockopt(int socket, int level, int optname, void *optval,
		socklen_t *optlen)
{
	return sv_abi_cm_nosys(__func__);
}

int rfcntl(int socket, int cmd, ...)
{
	return sv_abi_cm_nosys(__func__);
}

off_t riomap(int socket, void *buf, size_t len, int prot, int flags,
	     off_t offset)
{
	return sv_abi_cm_nosys(__func__);
}

int riounmap(int socket, void *buf, size_t len)
{
	return sv_abi_cm_nosys(__func__);
}

size_t riowrite(int socket, const void *buf, size_t count, off_t offset,
		int flags)
{
	return (size_t)sv_abi_cm_nosys(__func__);
}
