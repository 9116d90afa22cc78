/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A peer of the connection manager that is a plain socket, on which the test
 * itself says what no softverbs would.
 */
#ifndef RAW_PEER_H
#define RAW_PEER_H

#include <sys/socket.h>
#include <sys/un.h>

#include "cm_peer.h"
#include "sv_handover.h"

static inline int raw_connect(uint16_t port)
{
	struct sockaddr_storage addr;
	int sock = socket(AF_INET, SOCK_STREAM, 0);

	MUST(sock >= 0);
	peer_addr(&addr, "127.0.0.1", port);
	MUST(!connect(sock, (struct sockaddr *)&addr,
		      sizeof(struct sockaddr_in)));
	return sock;
}

static inline int raw_listen(uint16_t *port)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(struct sockaddr_in);
	int sock = socket(AF_INET, SOCK_STREAM, 0);

	MUST(sock >= 0);
	peer_addr(&addr, "127.0.0.1", 0);
	MUST(!bind(sock, (struct sockaddr *)&addr, len));
	MUST(!listen(sock, 8));
	MUST(!getsockname(sock, (struct sockaddr *)&addr, &len));
	*port = peer_port((struct sockaddr *)&addr);
	return sock;
}

static inline void raw_send(int sock, const void *buf, size_t len)
{
	MUST(send(sock, buf, len, MSG_NOSIGNAL) == (ssize_t)len);
}

/* True if the other end closes within the time; what it says is dropped. */
static inline bool raw_closed(int sock, int timeout_ms)
{
	struct pollfd pfd = { .fd = sock, .events = POLLIN };
	long until = peer_now_ms() + timeout_ms;
	char junk[512];

	while (peer_now_ms() <= until) {
		if (poll(&pfd, 1, 10) == 1 &&
		    recv(sock, junk, sizeof(junk), 0) <= 0)
			return true;
	}
	return false;
}

static inline void raw_recv(int sock, void *buf, size_t len)
{
	struct pollfd pfd = { .fd = sock, .events = POLLIN };
	size_t got = 0;
	ssize_t ret;

	while (got < len) {
		MUST(poll(&pfd, 1, PEER_WAIT_MS) == 1);
		ret = recv(sock, (char *)buf + got, len - got, 0);
		MUST(ret > 0);
		got += (size_t)ret;
	}
}

static inline void raw_send_mpa(int sock, bool reply, bool ext, bool reject)
{
	struct sv_mpa mpa = {
		.rev = 2,
		.reply = reply,
		.ext = ext,
		.reject = reject,
		.enhanced = true,
		.pd_len = 4,
		.pd = "data",
	};
	uint8_t buf[SV_MPA_FRAME_MAX];
	int len = sv_mpa_encode(&mpa, buf, sizeof(buf));

	MUST(len > 0);
	raw_send(sock, buf, (size_t)len);
}

static inline void raw_recv_mpa(int sock, bool reply, struct sv_mpa *mpa)
{
	uint8_t buf[SV_MPA_FRAME_MAX];
	size_t len = 0;
	int ret;

	do {
		raw_recv(sock, buf + len, 1);
		ret = sv_mpa_decode(mpa, reply, buf, ++len);
		MUST(ret >= 0);
	} while (!ret);
}

static inline void raw_send_ctrl(int sock, const struct sv_ctrl *ctrl, uint32_t msn)
{
	uint8_t buf[SV_CTRL_MAX];
	int len = sv_ctrl_encode(ctrl, msn, buf, sizeof(buf));

	MUST(len > 0);
	raw_send(sock, buf, (size_t)len);
}

static inline void raw_recv_ctrl(int sock, struct sv_ctrl *ctrl, uint32_t msn)
{
	uint8_t buf[SV_CTRL_MAX];
	size_t len = 0;
	int ret;

	do {
		raw_recv(sock, buf + len, 1);
		ret = sv_ctrl_decode(ctrl, msn, buf, ++len);
		MUST(ret >= 0);
	} while (!ret);
}

/* What a peer on this host says of itself; nobody answers at that name. */
static inline void raw_hello(struct sv_ctrl *hello)
{
	struct sv_conn conn = { .token = "0123456789abcdef" };

	memset(hello, 0, sizeof(*hello));
	hello->type = SV_CTRL_HELLO;
	hello->links = SV_LINKS_SHM;
	MUST(!sv_handover_hello(&conn, hello));
	strcpy(hello->unix_name, "sv-nobody");
}

#endif
