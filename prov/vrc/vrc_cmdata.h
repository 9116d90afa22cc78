/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Private data as it travels in REQ, REP and REJ; always 56 bytes, because IB
 * and RoCE deliver it padded with zeros, and its length is lost.
 *
 *	offset	 size
 *	0	 1	length of the application's data
 *	1	 55	the application's data, of which we send at most 32
 *	33	 23	trailer, if the length is at most 32:
 *	  33	 3	"vrc"
 *	  36	 1	version, 1
 *	  37	 1	zero
 *	  38	 2	feature bits: 1, receiver credits (vrc_credit.c);
 *			2, a word may be read (vrc_deliver.c)
 *	  40	 4	with credits: receives posted so far
 *	  44	 4	rkey of a word: to write credits to, and to read
 *	  48	 8	address of that word
 *
 * Numbers are big endian. The first part is what libfabric's verbs provider
 * sends, so either end may be it; a peer without our trailer is plain RC. All
 * of it is the peer's word: the length is checked against what arrived, unknown
 * features are ignored.
 */
#ifndef VRC_CMDATA_H
#define VRC_CMDATA_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "vrc_ep.h"

enum {
	VRC_CMDATA_TRAILER = 1 + VRC_CM_DATA_SIZE,
	VRC_CMDATA_VERSION = 1,
	/* What a verbs peer may send. */
	VRC_CMDATA_FOREIGN_MAX = VRC_CM_WIRE_SIZE - 1,
};

struct vrc_cmdata_trailer {
	char magic[3];
	uint8_t version;
	uint8_t zero;
	uint8_t features[2];
	uint8_t posted[4];
	uint8_t rkey[4];
	uint8_t addr[8];
};

static_assert(VRC_CMDATA_TRAILER + sizeof(struct vrc_cmdata_trailer) ==
		      VRC_CM_WIRE_SIZE,
	      "data and trailer fill the private data");

struct vrc_cmdata {
	const void *data;
	size_t len;
	struct vrc_peer peer;
};

/* len is at most VRC_CM_DATA_SIZE; the caller has checked. */
static inline void vrc_cmdata_encode(uint8_t wire[VRC_CM_WIRE_SIZE],
				     const void *data, size_t len,
				     const struct vrc_peer *self)
{
	struct vrc_cmdata_trailer trailer = {
		.magic = { 'v', 'r', 'c' },
		.version = VRC_CMDATA_VERSION,
	};
	uint16_t features = htobe16(self->features);
	uint32_t posted = htobe32(self->posted);
	uint32_t rkey = htobe32(self->rkey);
	uint64_t addr = htobe64(self->addr);

	memset(wire, 0, VRC_CM_WIRE_SIZE);
	wire[0] = (uint8_t)len;
	if (len)
		memcpy(wire + 1, data, len);
	memcpy(trailer.features, &features, sizeof(features));
	memcpy(trailer.posted, &posted, sizeof(posted));
	memcpy(trailer.rkey, &rkey, sizeof(rkey));
	memcpy(trailer.addr, &addr, sizeof(addr));
	memcpy(wire + VRC_CMDATA_TRAILER, &trailer, sizeof(trailer));
}

static inline void vrc_cmdata_decode_trailer(const uint8_t *wire,
					     struct vrc_peer *peer)
{
	struct vrc_cmdata_trailer trailer;
	uint16_t features;
	uint32_t posted, rkey;
	uint64_t addr;

	memcpy(&trailer, wire + VRC_CMDATA_TRAILER, sizeof(trailer));
	if (memcmp(trailer.magic, "vrc", sizeof(trailer.magic)))
		return;
	memcpy(&features, trailer.features, sizeof(features));
	memcpy(&posted, trailer.posted, sizeof(posted));
	memcpy(&rkey, trailer.rkey, sizeof(rkey));
	memcpy(&addr, trailer.addr, sizeof(addr));
	peer->version = trailer.version;
	peer->features = be16toh(features);
	peer->posted = be32toh(posted);
	peer->rkey = be32toh(rkey);
	peer->addr = be64toh(addr);
}

/* False if the peer's length byte runs past what arrived. out points into
 * wire. Nothing at all is a peer that sends no private data. */
static inline bool vrc_cmdata_decode(const uint8_t *wire, size_t wire_len,
				     struct vrc_cmdata *out)
{
	memset(out, 0, sizeof(*out));
	if (!wire || !wire_len)
		return true;
	if (wire[0] > VRC_CMDATA_FOREIGN_MAX || wire[0] + 1u > wire_len)
		return false;
	out->data = wire + 1;
	out->len = wire[0];
	if (out->len <= VRC_CM_DATA_SIZE && wire_len >= VRC_CM_WIRE_SIZE)
		vrc_cmdata_decode_trailer(wire, &out->peer);
	return true;
}

#endif
