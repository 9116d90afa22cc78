/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the two files of the hand-over share (sv_handover.c: the steps and the
 * connecting end; sv_handover_serve.c: the accepting end).
 */
#ifndef SV_HANDOVER_H
#define SV_HANDOVER_H

#include "sv_cm.h"

#include <sys/un.h>

#define SV_OFFER_MAGIC 0x72656666304f7673ull

/* One datagram each way. Both ends are one build on one host, or are refused. */
struct sv_offer {
	uint64_t magic;
	uint32_t version;
	uint8_t token[SV_TOKEN_LEN];
	uint32_t reserved;
	struct sv_link_hello link;
};

/*
 * sv_handover.c. Caller holds sv_cm.lock. Functions that return int return 0 or
 * a positive errno.
 *
 * offer_recv: EAGAIN if there is none yet; on 0 the descriptors are the
 * caller's; EMFILE if there is no room for them, and all else is there.
 * offer_send: what conn's link offers, to whom conn's peer is.
 * make_link: for the conn's QP. attach: consumes fds, and the socket too (then
 * -1) once the link has it; watches of it end. fail: ends the conn.
 */
int sv_offer_recv(int sock, struct sv_offer *offer, int fds[SV_LINK_FDS]);
int sv_offer_send(struct sv_conn *conn, int sock);
int sv_handover_make_link(struct sv_conn *conn);
int sv_handover_attach(struct sv_conn *conn, const struct sv_offer *offer,
		       int fds[SV_LINK_FDS], int *sock,
		       const struct ucred *cred);
void sv_handover_fail(struct sv_conn *conn, int err);
void sv_fds_close(int *fds, size_t cnt);
bool sv_is_same_user(int sock, struct ucred *cred);
socklen_t sv_unix_addr(struct sockaddr_un *addr, const char *name);

/* sv_handover_serve.c. listen: starts it if need be, and tells its name. */
int sv_handover_listen(char name[SV_UNIX_NAME_MAX + 1]);

#endif
