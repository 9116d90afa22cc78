/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Private data as it travels in REQ, REP and REJ; always 56 bytes, because IB
 * and RoCE deliver it padded with zeros, and its length is lost.
 *
 *	offset	 size
 *	0	 1	length of the application's data
 *	1	 55	the application's data, of which we send at most 35
 *	36	 20	trailer, if the length is at most 35:
 *	  36	 3	"vrc"
 *	  39	 1	version, 1
 *	  40	 4	feature bits, big endian; none are defined yet
 *	  44	 4	receive queue depth, big endian
 *	  48	 8	zero
 *
 * The first part is what libfabric's verbs provider sends, so either end may
 * be it; a peer without our trailer is plain RC. All of it is the peer's word:
 * the length is checked against what arrived, unknown features are ignored.
 */
#ifndef VRC_CMDATA_H
#define VRC_CMDATA_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "vrc.h"

enum {
	VRC_CMDATA_TRAILER = 1 + VRC_CM_DATA_SIZE,
	VRC_CMDATA_VERSION = 1,
	/* What a verbs peer may send. */
	VRC_CMDATA_FOREIGN_MAX = VRC_CM_WIRE_SIZE - 1,
};

static_assert(VRC_CMDATA_TRAILER + 20 == VRC_CM_WIRE_SIZE,
	      "data and trailer fill the private data");

struct vrc_cmdata {
	const void *data;
	size_t len;
	uint32_t rx_size; /* 0: no trailer */
};

/* len is at most VRC_CM_DATA_SIZE; the caller has checked. */
static inline void vrc_cmdata_encode(uint8_t wire[VRC_CM_WIRE_SIZE],
				     const void *data, size_t len,
				     uint32_t rx_size)
{
	uint8_t *trailer = wire + VRC_CMDATA_TRAILER;
	uint32_t be = htonl(rx_size);

	memset(wire, 0, VRC_CM_WIRE_SIZE);
	wire[0] = (uint8_t)len;
	if (len)
		memcpy(wire + 1, data, len);
	memcpy(trailer, "vrc", 3);
	trailer[3] = VRC_CMDATA_VERSION;
	memcpy(trailer + 8, &be, sizeof(be));
}

/* False if the peer's length byte runs past what arrived. out points into
 * wire. Nothing at all is a peer that sends no private data. */
static inline bool vrc_cmdata_decode(const uint8_t *wire, size_t wire_len,
				     struct vrc_cmdata *out)
{
	uint32_t be;

	memset(out, 0, sizeof(*out));
	if (!wire || !wire_len)
		return true;
	if (wire[0] > VRC_CMDATA_FOREIGN_MAX || wire[0] + 1u > wire_len)
		return false;
	out->data = wire + 1;
	out->len = wire[0];
	if (out->len <= VRC_CM_DATA_SIZE && wire_len >= VRC_CM_WIRE_SIZE &&
	    !memcmp(wire + VRC_CMDATA_TRAILER, "vrc", 3)) {
		memcpy(&be, wire + VRC_CMDATA_TRAILER + 8, sizeof(be));
		out->rx_size = ntohl(be);
	}
	return true;
}

#endif
