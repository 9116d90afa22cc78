/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Private data on the wire: what we send, and what a peer may send.
 */
#include <criterion/criterion.h>

#include "vrc_cmdata.h"
#include "vrc_ep.h"

static const uint8_t text[VRC_CM_DATA_SIZE] = "abcdefghijklmnopqrstuvwxyz01234";

static const struct vrc_peer self = {
	.features = 0x0102,
	.posted = 0x03040506,
	.rkey = 0x0708090a,
	.addr = 0x0b0c0d0e0f101112,
};

/* Every length survives, with and without the padding of InfiniBand. */
Test(cmdata, round_trip)
{
	uint8_t wire[196];
	struct vrc_cmdata out;

	for (size_t len = 0; len <= VRC_CM_DATA_SIZE; len++) {
		memset(wire, 0, sizeof(wire));
		vrc_cmdata_encode(wire, text, len, &self);
		cr_assert(vrc_cmdata_decode(wire, VRC_CM_WIRE_SIZE, &out));
		cr_assert_eq(out.len, len);
		cr_assert_arr_eq(out.data, text, len);
		cr_assert_eq(out.peer.version, VRC_CMDATA_VERSION);
		cr_assert_eq(out.peer.features, self.features);
		cr_assert_eq(out.peer.posted, self.posted);
		cr_assert_eq(out.peer.rkey, self.rkey);
		cr_assert_eq(out.peer.addr, self.addr);
		cr_assert(vrc_cmdata_decode(wire, sizeof(wire), &out));
		cr_assert_eq(out.len, len);
	}
}

/* The layout is fixed: other versions and libfabric's verbs read it. */
Test(cmdata, layout)
{
	uint8_t wire[VRC_CM_WIRE_SIZE];
	static const uint8_t trailer[23] = {
		'v',  'r',  'c',  1,	0,    0x01, 0x02, 0x03,
		0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,
		0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12,
	};

	vrc_cmdata_encode(wire, text, 3, &self);
	cr_assert_eq(wire[0], 3);
	cr_assert_arr_eq(wire + 1, "abc", 3);
	cr_assert_arr_eq(wire + 33, trailer, sizeof(trailer));
}

/* libfabric's verbs: a length, up to 55 bytes, no trailer. */
Test(cmdata, foreign)
{
	uint8_t wire[VRC_CM_WIRE_SIZE];
	struct vrc_cmdata out;

	for (unsigned int len = 0; len <= VRC_CMDATA_FOREIGN_MAX; len++) {
		memset(wire, 'x', sizeof(wire));
		wire[0] = (uint8_t)len;
		cr_assert(vrc_cmdata_decode(wire, sizeof(wire), &out));
		cr_assert_eq(out.len, len);
		cr_assert_eq(out.peer.version, 0);
		cr_assert_eq(out.peer.features, 0);
		/* Without padding, as on iWARP. */
		cr_assert(vrc_cmdata_decode(wire, len + 1, &out));
		cr_assert_eq(out.len, len);
	}
	cr_assert(vrc_cmdata_decode(NULL, 0, &out));
	cr_assert_eq(out.len, 0);
	cr_assert(vrc_cmdata_decode(wire, 0, &out));
}

/* All length bytes at all lengths: either refused, or inside what came. */
Test(cmdata, hostile)
{
	uint8_t wire[UINT8_MAX];
	struct vrc_cmdata out;

	for (unsigned int arrived = 1; arrived <= UINT8_MAX; arrived++) {
		for (unsigned int said = 0; said <= UINT8_MAX; said++) {
			memset(wire, 0xff, sizeof(wire));
			memcpy(wire + VRC_CMDATA_TRAILER, "vrc", 3);
			wire[0] = (uint8_t)said;
			if (!vrc_cmdata_decode(wire, arrived, &out)) {
				cr_assert(said >= arrived ||
					  said > VRC_CMDATA_FOREIGN_MAX);
				continue;
			}
			cr_assert_leq(1 + out.len, arrived);
			if (out.peer.features)
				cr_assert(arrived >= VRC_CM_WIRE_SIZE &&
					  said <= VRC_CM_DATA_SIZE);
		}
	}
}
