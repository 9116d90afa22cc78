/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "sv_fault_spec.h"

#include <infiniband/verbs.h>
#include <inttypes.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "sv_spec.h"

/* ---- names ---- */

static const char *const hook_names[SV_FAULT_HOOKS] = {
#define X(name) [SV_FAULT_##name] = #name,
	SV_FAULT_CALLS(X) SV_FAULT_OTHERS(X)
#undef X
};

struct name {
	const char *name;
	int value;
};

#define EVENT(name) { #name, RDMA_CM_EVENT_##name }
static const struct name cm_events[] = {
	EVENT(ADDR_RESOLVED), EVENT(ADDR_ERROR), EVENT(ROUTE_RESOLVED),
	EVENT(ROUTE_ERROR), EVENT(CONNECT_REQUEST), EVENT(CONNECT_RESPONSE),
	EVENT(CONNECT_ERROR), EVENT(UNREACHABLE), EVENT(REJECTED),
	EVENT(ESTABLISHED), EVENT(DISCONNECTED), EVENT(DEVICE_REMOVAL),
	EVENT(ADDR_CHANGE), EVENT(TIMEWAIT_EXIT), { NULL, 0 },
};
#undef EVENT

/* Those of a device or its port: the others name an object. */
#define EVENT(name) { #name, IBV_EVENT_##name }
static const struct name async_events[] = {
	EVENT(DEVICE_FATAL), EVENT(PORT_ACTIVE), EVENT(PORT_ERR),
	EVENT(LID_CHANGE), EVENT(PKEY_CHANGE), EVENT(SM_CHANGE),
	EVENT(CLIENT_REREGISTER), EVENT(GID_CHANGE), EVENT(QP_FATAL),
	EVENT(CQ_ERR), { NULL, 0 },
};
#undef EVENT

#define STATUS(name) { #name, IBV_WC_##name }
static const struct name statuses[] = {
	STATUS(LOC_LEN_ERR), STATUS(LOC_QP_OP_ERR), STATUS(LOC_PROT_ERR),
	STATUS(WR_FLUSH_ERR), STATUS(MW_BIND_ERR), STATUS(BAD_RESP_ERR),
	STATUS(LOC_ACCESS_ERR), STATUS(REM_INV_REQ_ERR),
	STATUS(REM_ACCESS_ERR), STATUS(REM_OP_ERR), STATUS(RETRY_EXC_ERR),
	STATUS(RNR_RETRY_EXC_ERR), STATUS(REM_ABORT_ERR), STATUS(FATAL_ERR),
	STATUS(RESP_TIMEOUT_ERR), STATUS(GENERAL_ERR), { NULL, 0 },
};
#undef STATUS

static bool find_name(const struct name *names, const char *text, int *value)
{
	for (; names->name; names++)
		if (!strcmp(names->name, text)) {
			*value = names->value;
			return true;
		}
	return false;
}

const char *sv_fault_hook_name(enum sv_fault_hook hook)
{
	return hook < SV_FAULT_HOOKS ? hook_names[hook] : "?";
}

/* ---- keys ---- */

enum key {
	KEY_DEV, KEY_QPN, KEY_INDEX, KEY_EVENT,
	KEY_NTH, KEY_EVERY, KEY_AFTER, KEY_COUNT, KEY_START, KEY_FOR,
	KEY_CHANCE, KEY_OVER, KEY_BUDGET,
	KEY_ERR, KEY_DELAY, KEY_PER_PAGE, KEY_HOLD, KEY_STATUS, KEY_GARBAGE,
	KEY_QP_ERROR, KEY_DROP, KEY_DUP, KEY_INJECT, KEY_INJECT_STATUS,
	KEYS,
};

static const char *const key_names[KEYS] = {
	"dev", "qpn", "index", "event",
	"nth", "every", "after", "count", "start", "for",
	"chance", "over", "budget",
	"err", "delay", "per_page", "hold", "status", "garbage",
	"qp_error", "drop", "dup", "inject", "inject_status",
};

#define BIT(key) (1u << KEY_##key)

enum {
	KEYS_WHEN = BIT(NTH) | BIT(EVERY) | BIT(AFTER) | BIT(COUNT) |
		    BIT(START) | BIT(FOR) | BIT(CHANCE) | BIT(DEV),
	KEYS_CALL = KEYS_WHEN | BIT(ERR) | BIT(DELAY),
	/* A rule without one of these would do nothing. */
	KEYS_WHAT = BIT(ERR) | BIT(DELAY) | BIT(PER_PAGE) | BIT(HOLD) |
		    BIT(STATUS) | BIT(GARBAGE) | BIT(QP_ERROR) | BIT(DROP) |
		    BIT(DUP) | BIT(INJECT),
	KEYS_FLAG = BIT(GARBAGE) | BIT(QP_ERROR) | BIT(DROP) | BIT(DUP),
};

static uint32_t keys_of(enum sv_fault_hook hook)
{
	switch (hook) {
	case SV_FAULT_reg_mr:
	case SV_FAULT_reg_dmabuf_mr:
	case SV_FAULT_rereg_mr:
		return KEYS_CALL | BIT(PER_PAGE) | BIT(BUDGET);
	case SV_FAULT_dereg_mr:
		return KEYS_CALL | BIT(PER_PAGE);
	case SV_FAULT_query_gid:
	case SV_FAULT_query_pkey:
		return KEYS_CALL | BIT(INDEX);
	case SV_FAULT_modify_qp:
	case SV_FAULT_query_qp:
	case SV_FAULT_destroy_qp:
	case SV_FAULT_bind_mw:
		return KEYS_CALL | BIT(QPN);
	case SV_FAULT_post_recv:
		return KEYS_CALL | BIT(QPN) | BIT(HOLD);
	case SV_FAULT_post_send:
		return KEYS_CALL | BIT(QPN) | BIT(PER_PAGE);
	case SV_FAULT_poll_cq:
		return KEYS_CALL | BIT(HOLD);
	case SV_FAULT_wc:
		return KEYS_WHEN | BIT(QPN) | BIT(STATUS) | BIT(GARBAGE) |
		       BIT(QP_ERROR);
	case SV_FAULT_flush:
		return KEYS_WHEN | BIT(QPN) | BIT(DROP);
	case SV_FAULT_blackhole:
		return KEYS_WHEN | BIT(QPN) | BIT(OVER);
	case SV_FAULT_cm_request:
		return KEYS_WHEN | BIT(DROP);
	case SV_FAULT_cm_event:
		return KEYS_WHEN | BIT(EVENT) | BIT(DELAY) | BIT(DROP) |
		       BIT(DUP) | BIT(INJECT) | BIT(INJECT_STATUS);
	case SV_FAULT_async:
		return BIT(START) | BIT(EVENT) | BIT(DEV);
	default:
		return KEYS_CALL;
	}
}

static bool fits_in_int(const char *text, int *out)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (!*text || *end || value < -4095 || value > 4095)
		return false;
	*out = (int)value;
	return true;
}

static bool num_from(const char *text, uint64_t min, uint64_t max,
		     uint64_t *out)
{
	uint64_t value;

	if (!sv_spec_num(text, &value) || value < min || value > max)
		return false;
	*out = value;
	return true;
}

static bool positive(const char *text, uint64_t *out)
{
	return num_from(text, 1, UINT64_MAX, out);
}

static const char time_is[] =
	"a time with its unit (ns, us, ms or s), at most 86400s";
static const char span_is[] =
	"a time above 0 with its unit (ns, us, ms or s), at most 86400s";

/* A day: what is longer is a slip, and might overflow what is added to it. */
static bool time_to(const char *text, uint64_t *out)
{
	return sv_spec_time(text, out) && *out <= 86400 * 1000000000ull;
}

/* What is said of a value that is none; NULL: it was taken. */
static const char *set_where(struct sv_fault_rule *rule, enum key key,
			     const char *value)
{
	const bool is_async = rule->hook == SV_FAULT_async;
	uint64_t num;

	switch (key) {
	case KEY_DEV:
		if (strlen(value) > SV_FAULT_NAME_MAX)
			return "a name of at most 63 characters";
		strcpy(rule->dev, value);
		return NULL;
	case KEY_QPN:
		if (!num_from(value, 1, 0xffffff, &num))
			return "a number from 1 to 0xffffff";
		rule->qpn = (int64_t)num;
		return NULL;
	case KEY_INDEX:
		if (!num_from(value, 0, 0xffff, &num))
			return "a number from 0 to 65535";
		rule->index = (int64_t)num;
		return NULL;
	default:
		if (!find_name(is_async ? async_events : cm_events, value,
			       &rule->event))
			return is_async ? "PORT_ERR or another event of a device" :
					  "ESTABLISHED or another event of rdma_cm";
		return NULL;
	}
}

static const char *set_when(struct sv_fault_rule *rule, enum key key,
			    const char *value)
{
	static const char count[] = "a number from 1 to 18446744073709551615";

	switch (key) {
	case KEY_NTH:
		return positive(value, &rule->nth) ? NULL : count;
	case KEY_EVERY:
		return positive(value, &rule->every) ? NULL : count;
	case KEY_AFTER:
		return positive(value, &rule->after) ? NULL : count;
	case KEY_COUNT:
		return positive(value, &rule->count) ? NULL : count;
	case KEY_START:
		return time_to(value, &rule->start_ns) ? NULL : time_is;
	case KEY_FOR:
		return time_to(value, &rule->for_ns) && rule->for_ns ?
			       NULL : span_is;
	case KEY_CHANCE:
		return sv_spec_chance(value, &rule->chance) ?
			       NULL : "a chance from 0 to 1, or 0% to 100%";
	case KEY_OVER:
		return positive(value, &rule->over) ?
			       NULL : "a number of bytes from 1 to 18446744073709551615";
	default:
		rule->has_budget = sv_spec_num(value, &rule->budget);
		return rule->has_budget ? NULL : "a number of bytes, at most 18446744073709551615";
	}
}

/* Some drivers return that where an errno is promised. */
static bool may_be_minus_one(enum sv_fault_hook hook)
{
	return hook >= SV_FAULT_post_send && hook <= SV_FAULT_req_notify_cq;
}

static const char *set_what(struct sv_fault_rule *rule, enum key key,
			    const char *value)
{
	switch (key) {
	case KEY_ERR:
		if (!strcmp(value, "-1") && may_be_minus_one(rule->hook))
			rule->err = -1;
		else if (!sv_spec_errno(value, &rule->err))
			return "a name (ENOMEM) or number (1 to 4095) of an error (or -1, of posts and polls)";
		return NULL;
	case KEY_DELAY:
		return time_to(value, &rule->delay_ns) ? NULL : time_is;
	case KEY_PER_PAGE:
		return time_to(value, &rule->per_page_ns) ? NULL : time_is;
	case KEY_HOLD:
		return time_to(value, &rule->hold_ns) ? NULL : time_is;
	case KEY_STATUS:
		return find_name(statuses, value, &rule->status) ?
			       NULL : "RETRY_EXC_ERR or another status but SUCCESS";
	case KEY_INJECT:
		return find_name(cm_events, value, &rule->inject) ?
			       NULL : "DISCONNECTED or another event of rdma_cm";
	default:
		return fits_in_int(value, &rule->inject_status) ?
			       NULL : "a number from -4095 to 4095";
	}
}

static void set_flag(struct sv_fault_rule *rule, enum key key)
{
	switch (key) {
	case KEY_GARBAGE:
		rule->garbage = true;
		break;
	case KEY_QP_ERROR:
		rule->qp_error = true;
		break;
	case KEY_DROP:
		rule->drop = true;
		break;
	default:
		rule->dup = true;
	}
}

/* False with the reason in why. */
static bool set_key(struct sv_fault_rule *rule, char *text,
		    char why[SV_FAULT_WHY_MAX])
{
	const char *hook = sv_fault_hook_name(rule->hook);
	char *value = sv_spec_value(text);
	const char *wanted = NULL;
	enum key key;

	for (key = 0; key < KEYS && strcmp(key_names[key], text); key++)
		;
	if (key == KEYS || !(keys_of(rule->hook) & 1u << key)) {
		snprintf(why, SV_FAULT_WHY_MAX, "%s: %.40s: %s", hook, text,
			 key == KEYS ? "no such key" : "not for this hook");
		return false;
	}
	rule->keys |= 1u << key;
	if (KEYS_FLAG & 1u << key) {
		if (!value) {
			set_flag(rule, key);
			return true;
		}
		wanted = "no value";
	} else if (!value) {
		wanted = "a value";
		value = text + strlen(text);
	} else if (key <= KEY_EVENT) {
		wanted = set_where(rule, key, value);
	} else if (key <= KEY_BUDGET) {
		wanted = set_when(rule, key, value);
	} else {
		wanted = set_what(rule, key, value);
	}
	if (wanted)
		snprintf(why, SV_FAULT_WHY_MAX, "%s: %s=%.40s: not %s", hook,
			 text, value, wanted);
	return !wanted;
}

/* ---- rules ---- */

static bool needs_action(enum sv_fault_hook hook)
{
	return hook != SV_FAULT_blackhole && hook != SV_FAULT_async &&
	       hook != SV_FAULT_flush;
}

static bool parse_rule(char *text, struct sv_fault_rule *rule,
		       char why[SV_FAULT_WHY_MAX])
{
	char *rest = text, *name = sv_spec_next(&rest, ','), *key;
	size_t hook = 0;

	while (name && hook < SV_FAULT_HOOKS && strcmp(hook_names[hook], name))
		hook++;
	if (!name || hook == SV_FAULT_HOOKS) {
		snprintf(why, SV_FAULT_WHY_MAX, "%.60s: no such hook",
			 name ? name : "");
		return false;
	}
	rule->hook = (enum sv_fault_hook)hook;
	while ((key = sv_spec_next(&rest, ',')))
		if (!set_key(rule, key, why))
			return false;
	if (needs_action(rule->hook) && !(rule->keys & KEYS_WHAT)) {
		snprintf(why, SV_FAULT_WHY_MAX, "%s: nothing is to happen (%s)",
			 name, keys_of(rule->hook) & BIT(ERR) ?
				       "err=, delay= ..." : "status=, drop ...");
		return false;
	}
	if (rule->hook == SV_FAULT_async && rule->event < 0) {
		snprintf(why, SV_FAULT_WHY_MAX, "async: event= is missing");
		return false;
	}
	return true;
}

static void rule_init(struct sv_fault_rule *rule, uint64_t now_ns)
{
	*rule = (struct sv_fault_rule){
		.qpn = -1,
		.index = -1,
		.event = -1,
		.inject = -1,
		.chance = 1ull << 32,
		.set_ns = now_ns,
	};
}

int sv_fault_parse(const char *text, uint64_t now_ns,
		   struct sv_fault_rule *rules, unsigned int max,
		   char why[SV_FAULT_WHY_MAX])
{
	char *copy = strdup(text ? text : ""), *rest = copy, *rule;
	unsigned int cnt = 0;
	bool ok = copy;

	if (!copy)
		snprintf(why, SV_FAULT_WHY_MAX, "no memory");
	while (ok && (rule = sv_spec_next(&rest, ';'))) {
		if (cnt == max) {
			snprintf(why, SV_FAULT_WHY_MAX, "more than %u rules",
				 max);
			ok = false;
			break;
		}
		rule_init(&rules[cnt], now_ns);
		ok = parse_rule(rule, &rules[cnt], why);
		cnt++;
	}
	free(copy);
	return ok ? (int)cnt : -1;
}

/* ---- when it fires ---- */

/* SplitMix64: any state will do, and each gives another sequence. */
uint64_t sv_fault_random(uint64_t *prng)
{
	uint64_t z = (*prng += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static bool is_here(const struct sv_fault_rule *rule,
		    const struct sv_fault_at *at)
{
	return rule->hook == at->hook &&
	       (!rule->dev[0] || (at->dev && !strcmp(rule->dev, at->dev))) &&
	       (rule->qpn < 0 || rule->qpn == at->qpn) &&
	       (rule->index < 0 || rule->index == at->index) &&
	       (rule->event < 0 || rule->event == at->event) &&
	       (!rule->over || at->bytes > rule->over) &&
	       (!rule->has_budget || at->bytes > rule->budget);
}

static bool is_now(const struct sv_fault_rule *rule, uint64_t now_ns)
{
	uint64_t age_ns = now_ns - rule->set_ns;

	return age_ns >= rule->start_ns &&
	       (!rule->for_ns || age_ns - rule->start_ns < rule->for_ns);
}

bool sv_fault_matches(const struct sv_fault_rule *rule,
		      const struct sv_fault_at *at, uint64_t now_ns)
{
	return is_here(rule, at) && is_now(rule, now_ns);
}

bool sv_fault_fires(struct sv_fault_rule *rule, const struct sv_fault_at *at,
		    uint64_t now_ns, uint64_t *prng)
{
	if (!sv_fault_matches(rule, at, now_ns))
		return false;
	rule->seen++;
	if ((rule->nth && rule->seen != rule->nth) ||
	    (rule->every && rule->seen % rule->every) ||
	    rule->seen <= rule->after ||
	    (rule->count && rule->fired >= rule->count))
		return false;
	if (rule->chance < 1ull << 32 &&
	    sv_fault_random(prng) >> 32 >= rule->chance)
		return false;
	rule->fired++;
	return true;
}
