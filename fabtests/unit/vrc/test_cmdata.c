/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Private data on the wire: what we send, and what a peer may send.
 */
#include <criterion/criterion.h>

#include "../../../prov/vrc/vrc_cmdata.h"

static const uint8_t text[VRC_CM_DATA_SIZE] = "abcdefghijklmnopqrstuvwxyz012345678";

/* Every length survives, with and without the padding of InfiniBand. */
Test(cmdata, round_trip)
{
	uint8_t wire[196];
	struct vrc_cmdata out;

	for (size_t len = 0; len <= VRC_CM_DATA_SIZE; len++) {
		memset(wire, 0, sizeof(wire));
		vrc_cmdata_encode(wire, text, len, 0x01020304);
		cr_assert(vrc_cmdata_decode(wire, VRC_CM_WIRE_SIZE, &out));
		cr_assert_eq(out.len, len);
		cr_assert_arr_eq(out.data, text, len);
		cr_assert_eq(out.rx_size, 0x01020304);
		cr_assert(vrc_cmdata_decode(wire, sizeof(wire), &out));
		cr_assert_eq(out.len, len);
	}
}

/* The layout is fixed: other versions and libfabric's verbs read it. */
Test(cmdata, layout)
{
	uint8_t wire[VRC_CM_WIRE_SIZE];
	static const uint8_t trailer[20] = { 'v', 'r', 'c', 1, 0, 0, 0, 0,
					     0, 0, 1, 0x77 };

	vrc_cmdata_encode(wire, text, 3, 0x177);
	cr_assert_eq(wire[0], 3);
	cr_assert_arr_eq(wire + 1, "abc", 3);
	cr_assert_arr_eq(wire + 36, trailer, sizeof(trailer));
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
		cr_assert_eq(out.rx_size, 0);
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
			if (out.rx_size)
				cr_assert(arrived >= VRC_CM_WIRE_SIZE &&
					  said <= VRC_CM_DATA_SIZE);
		}
	}
}
