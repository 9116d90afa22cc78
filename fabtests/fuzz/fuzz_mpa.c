/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The frames that open a connection. Input: one byte (which kind, message number),
 * then what a peer sent. A frame that is read can be written, and reads the same
 * again; a frame cut short is never taken for a whole one, nor for a broken one.
 */
#include "fuzz.h"

#include <errno.h>

#include "sv_mpa.h"

static void check_result(int ret, size_t len)
{
	FUZZ_CHECK(ret <= (int)len);
	FUZZ_CHECK(ret >= 0 || ret == -EPROTO || ret == -EPROTONOSUPPORT);
}

static void fuzz_frame(bool reply, const uint8_t *data, size_t len)
{
	uint8_t buf[SV_MPA_FRAME_MAX];
	struct sv_mpa again;
	struct sv_mpa mpa;
	int ret;

	ret = sv_mpa_decode(&mpa, reply, data, len);
	check_result(ret, len);
	FUZZ_CHECK(ret || len < SV_MPA_FRAME_MAX);
	if (ret <= 0)
		return;
	FUZZ_CHECK(mpa.reply == reply && mpa.pd_len <= SV_MPA_PD_MAX);
	FUZZ_CHECK(sv_mpa_encode(&mpa, buf, sizeof(buf)) == ret);
	FUZZ_CHECK(sv_mpa_decode(&again, reply, buf, ret) == ret);
	FUZZ_CHECK(!memcmp(&mpa, &again, sizeof(mpa)));
	FUZZ_CHECK(!sv_mpa_decode(&again, reply, data, ret - 1));
	FUZZ_CHECK(!sv_mpa_decode(&again, reply, data, ret / 2));
}

static void fuzz_ctrl(uint32_t msn, const uint8_t *data, size_t len)
{
	uint8_t buf[SV_CTRL_MAX];
	struct sv_ctrl ctrl;
	struct sv_ctrl again;
	int ret;

	ret = sv_ctrl_decode(&ctrl, msn, data, len);
	check_result(ret, len);
	FUZZ_CHECK(ret || len < SV_CTRL_MAX);
	if (ret <= 0)
		return;
	FUZZ_CHECK(memchr(ctrl.unix_name, 0, sizeof(ctrl.unix_name)));
	FUZZ_CHECK(sv_ctrl_encode(&ctrl, msn, buf, sizeof(buf)) == ret);
	FUZZ_CHECK(sv_ctrl_decode(&again, msn, buf, ret) == ret);
	FUZZ_CHECK(!memcmp(&ctrl, &again, sizeof(ctrl)));
	FUZZ_CHECK(!sv_ctrl_decode(&again, msn, data, ret - 1));
	FUZZ_CHECK(sv_ctrl_decode(&again, msn + 1, data, ret) == -EPROTO);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] & 2)
		fuzz_ctrl(data[0] >> 2, data + 1, size - 1);
	else
		fuzz_frame(data[0] & 1, data + 1, size - 1);
	return 0;
}
