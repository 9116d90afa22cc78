/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a user writes into SOFTVERBS_DEVICES and SOFTVERBS_FAULT. Input: one byte
 * (which of them), then the text. What is refused has a reason; devices that are
 * made have the names, limits and tables that devices may have; rules that are
 * taken can be asked, and keep to their counts.
 */
#include "fuzz.h"

#include "sv_fault_spec.h"
#include "sv_int.h"

enum {
	RULES = 8,
	OCCASIONS = 16,
	DEVICES = 4,
};

/* Each refusal is a line on stderr: not thousands of them. */
static unsigned int parse_quietly(const char *text, struct sv_dev **devs)
{
	static FILE *null;
	FILE *keep = stderr;
	unsigned int cnt;

	if (!null)
		null = fopen("/dev/null", "w");
	if (null)
		stderr = null;
	cnt = sv_devspec_parse(text, NULL, devs, DEVICES);
	stderr = keep;
	return cnt;
}

static void check_device(const struct sv_dev *dev)
{
	FUZZ_CHECK(*dev->device.name);
	FUZZ_CHECK(memchr(dev->device.name, 0, sizeof(dev->device.name)));
	FUZZ_CHECK(dev->lim.qp_wr && dev->lim.qp_wr <= SV_MAX_QP_WR);
	FUZZ_CHECK(dev->lim.sge && dev->lim.sge <= SV_MAX_SGE);
	FUZZ_CHECK(dev->lim.gid && dev->lim.gid <= SV_MAX_GID);
	FUZZ_CHECK(dev->lim.inline_data <= SV_MAX_INLINE);
	FUZZ_CHECK(dev->lim.rd_in <= SV_MAX_RD_ATOM);
	FUZZ_CHECK(dev->pkey_cnt <= SV_MAX_PKEY);
	FUZZ_CHECK(dev->netdev_cnt <= SV_MAX_DEV_NETDEV);
	FUZZ_CHECK(dev->wanted_cnt <= SV_MAX_DEV_NETDEV);
	FUZZ_CHECK(dev->lid <= SV_MAX_LID);
}

static void fuzz_devices(const char *text)
{
	struct sv_dev *devs[DEVICES];
	unsigned int i, j, cnt = parse_quietly(text, devs);

	FUZZ_CHECK(cnt <= DEVICES);
	for (i = 0; i < cnt; i++) {
		check_device(devs[i]);
		for (j = 0; j < i; j++)
			FUZZ_CHECK(strcmp(devs[i]->device.name,
					  devs[j]->device.name));
	}
	for (i = 0; i < cnt; i++)
		sv_dev_free(devs[i]);
}

static void check_rule(struct sv_fault_rule *rule)
{
	struct sv_fault_at at = {
		.hook = rule->hook,
		.dev = *rule->dev ? rule->dev : NULL,
		.qpn = rule->qpn,
		.index = rule->index,
		.event = rule->event,
		.bytes = UINT64_MAX,
	};
	uint64_t now_ns = rule->set_ns + rule->start_ns;
	uint64_t prng = 1;
	int i, fired = 0;

	FUZZ_CHECK(rule->hook < SV_FAULT_HOOKS);
	FUZZ_CHECK(memchr(rule->dev, 0, sizeof(rule->dev)));
	FUZZ_CHECK(rule->err >= -1 && rule->err <= 4095);
	FUZZ_CHECK(rule->chance <= 1ull << 32);
	for (i = 0; i < OCCASIONS; i++)
		fired += sv_fault_fires(rule, &at, now_ns, &prng);
	FUZZ_CHECK(rule->seen <= OCCASIONS && rule->fired == (uint64_t)fired);
	FUZZ_CHECK(!rule->count || rule->fired <= rule->count);
	FUZZ_CHECK(!rule->nth || rule->fired <= 1);
}

static void fuzz_faults(const char *text)
{
	struct sv_fault_rule rules[RULES];
	char why[SV_FAULT_WHY_MAX] = "";
	int i, cnt = sv_fault_parse(text, 0, rules, RULES, why);

	FUZZ_CHECK(cnt >= -1 && cnt <= RULES);
	FUZZ_CHECK(memchr(why, 0, sizeof(why)));
	FUZZ_CHECK((cnt < 0) == (*why != '\0'));
	for (i = 0; i < cnt; i++)
		check_rule(&rules[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	text = calloc(1, size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	if (data[0] & 1)
		fuzz_faults(text);
	else
		fuzz_devices(text);
	free(text);
	return 0;
}
