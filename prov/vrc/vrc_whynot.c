/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The reasons for what fi_getinfo turned down; see vrc_whynot.h.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "compiler.h"
#include "vrc_log.h"
#include "vrc_whynot.h"

/* True if list, names separated by ',' or ';', has vrc without a '^'. The
 * latter before the first name turns the whole of FI_PROVIDER around. */
static bool names_vrc(const char *list)
{
	size_t len;

	if (!list || *list == '^')
		return false;
	for (; *list; list += len + !!list[len]) {
		len = strcspn(list, ",;");
		if (len == 3 && !strncasecmp(list, "vrc", 3))
			return true;
	}
	return false;
}

void vrc_whynot_init(struct vrc_whynot *why, const struct fi_info *hints,
		     bool layered)
{
	why->cnt = 0;
	why->dropped = 0;
	why->layered = layered;
	why->asked = (hints && hints->fabric_attr &&
		      names_vrc(hints->fabric_attr->prov_name)) ||
		     names_vrc(getenv("FI_PROVIDER"));
}

static void add(struct vrc_whynot *why, const char *subject, bool by_text,
		const char *fmt, va_list ap) __printf_like(4, 0);
static void add(struct vrc_whynot *why, const char *subject, bool by_text,
		const char *fmt, va_list ap)
{
	char text[VRC_WHYNOT_LEN];
	uint64_t key = (uintptr_t)subject;

	vsnprintf(text, sizeof(text), fmt, ap);
	for (size_t i = 0; i < why->cnt; i++) {
		if (why->reason[i].subject == subject &&
		    !strcmp(why->reason[i].text, text))
			return;
	}
	if (why->cnt == VRC_WHYNOT_MAX) {
		why->dropped++;
		return;
	}
	for (const char *c = text; by_text && *c; c++)
		key = (key ^ (unsigned char)*c) * 0x100000001b3ULL; /* FNV-1a */
	why->reason[why->cnt].subject = subject;
	why->reason[why->cnt].key = key;
	memcpy(why->reason[why->cnt].text, text, sizeof(text));
	why->cnt++;
}

void vrc_whynot_add(struct vrc_whynot *why, const char *subject,
		    const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(why, subject, false, fmt, ap);
	va_end(ap);
}

void vrc_whynot_place(struct vrc_whynot *why, const char *subject,
		      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(why, subject, true, fmt, ap);
	va_end(ap);
}

/* INFO and WARN have keys of their own. A race or a full table costs one line
 * more or less. */
static bool first_time(uint64_t key)
{
	static _Atomic uint64_t seen[128];
	uint64_t slot;

	for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
		slot = 0;
		/* Relaxed: the values stand for themselves. */
		if (atomic_compare_exchange_strong_explicit(
			    &seen[i], &slot, key, memory_order_relaxed,
			    memory_order_relaxed))
			return true;
		if (slot == key)
			return false;
	}
	return false;
}

void vrc_whynot_report(const struct vrc_whynot *why, bool found)
{
	size_t i = 0;

	if (!why->cnt)
		return;
	if (!found && !why->asked) {
		if (!why->layered && first_time(~why->reason[0].key))
			vrc_info(CORE, "not offered: %s: %s%s\n",
				 why->reason[0].subject, why->reason[0].text,
				 why->cnt > 1 ? " (and other reasons)" : "");
		return;
	}
	if (!found && !why->layered && first_time(why->reason[0].key)) {
		vrc_warn(CORE, "not offered: %s: %s\n", why->reason[0].subject,
			 why->reason[0].text);
		i = 1;
	}
	for (; i < why->cnt; i++)
		vrc_info(CORE, "not offered: %s: %s\n", why->reason[i].subject,
			 why->reason[i].text);
	if (why->dropped)
		vrc_info(CORE, "not offered: %zu more reasons\n", why->dropped);
}
