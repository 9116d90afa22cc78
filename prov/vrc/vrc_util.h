/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Clocks and socket addresses. */
#ifndef VRC_UTIL_H
#define VRC_UTIL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* A sockaddr of any family that rdma_cm takes. */
union vrc_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};

/* vrc_util.c */
uint64_t vrc_now_ms(void);
uint64_t vrc_now_us(void);
socklen_t vrc_sockaddr_len(const struct sockaddr *sa);
/* AF_INET and AF_INET6 only; false if the families differ. Ports ignored. */
bool vrc_sockaddr_same_ip(const struct sockaddr *a, const struct sockaddr *b);
bool vrc_sockaddr_is_any(const struct sockaddr *sa);
bool vrc_sockaddr_is_loopback(const struct sockaddr *sa);
uint16_t vrc_sockaddr_port(const struct sockaddr *sa); /* host order */
void vrc_sockaddr_set_port(struct sockaddr *sa, uint16_t port);
/* "10.7.0.1:47592", "[fe80::1%2]:0"; for messages. Returns buf. */
enum { VRC_ADDRSTR = 72 };
const char *vrc_sockaddr_str(const struct sockaddr *sa, char buf[VRC_ADDRSTR]);
/* Copies as fi_getname(3) says: -FI_ETOOSMALL and the size needed. */
int vrc_sockaddr_copy_out(const struct sockaddr *sa, void *addr, size_t *len);

#endif
