/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "sv_spec.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "compiler.h"

enum {
	FRACTION_DIGITS = 9,
};

static bool is_space(char c)
{
	return isspace((unsigned char)c);
}

char *sv_spec_next(char **rest, char sep)
{
	char *from, *to;

	while (*rest) {
		from = *rest;
		to = strchr(from, sep);
		*rest = to ? to + 1 : NULL;
		if (!to)
			to = from + strlen(from);
		while (from < to && is_space(*from))
			from++;
		while (to > from && is_space(to[-1]))
			to--;
		*to = '\0';
		if (*from)
			return from;
	}
	return NULL;
}

char *sv_spec_value(char *key)
{
	char *value = strchr(key, '=');
	char *end = value;

	if (!value)
		return NULL;
	*value++ = '\0';
	while (end > key && is_space(end[-1]))
		*--end = '\0';
	while (is_space(*value))
		value++;
	return value;
}

/* Decimal digits; false if there are none or too many. */
static bool digits(const char **text, uint64_t *out)
{
	const char *p = *text;
	uint64_t value = 0;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
			return false;
	if (p == *text)
		return false;
	*text = p;
	*out = value;
	return true;
}

static bool hex_digits(const char **text, uint64_t *out)
{
	const char *p = *text;
	uint64_t value = 0;

	for (; isxdigit((unsigned char)*p); p++) {
		if (value >> 60)
			return false;
		value = value << 4 |
			(uint64_t)(*p <= '9' ? *p - '0' : (*p | 32) - 'a' + 10);
	}
	if (p == *text)
		return false;
	*text = p;
	*out = value;
	return true;
}

bool sv_spec_num(const char *text, uint64_t *out)
{
	unsigned int shift = 0;
	uint64_t value;

	if (!text)
		return false;
	if (text[0] == '0' && (text[1] | 32) == 'x') {
		text += 2;
		if (!hex_digits(&text, &value) || *text)
			return false;
		*out = value;
		return true;
	}
	if (!digits(&text, &value))
		return false;
	switch (*text) {
	case 'k': case 'K': shift = 10; break;
	case 'm': case 'M': shift = 20; break;
	case 'g': case 'G': shift = 30; break;
	default: break;
	}
	if (shift)
		text++;
	if (*text || value > UINT64_MAX >> shift)
		return false;
	*out = value << shift;
	return true;
}

/* "12.5" as 12500000000: nine digits of a fraction are kept. */
static bool decimal(const char **text, uint64_t *out)
{
	uint64_t whole, fraction = 0, scale = 1000000000;
	const char *p = *text;

	if (!digits(&p, &whole) ||
	    __builtin_mul_overflow(whole, scale, &whole))
		return false;
	if (*p == '.') {
		for (p++; *p >= '0' && *p <= '9'; p++) {
			scale /= 10;
			fraction += scale * (uint64_t)(*p - '0');
		}
	}
	if (__builtin_add_overflow(whole, fraction, out))
		return false;
	*text = p;
	return true;
}

bool sv_spec_time(const char *text, uint64_t *out)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{ "ns", 1 }, { "us", 1000 }, { "ms", 1000000 },
		{ "s", 1000000000 },
	};
	uint64_t value;
	size_t i;

	if (!text || !decimal(&text, &value))
		return false;
	for (i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(text, units[i].name))
			continue;
		/* value is in units of 1e-9 of the unit; its fraction beyond
		 * a nanosecond is lost. */
		if (units[i].ns == 1000000000)
			*out = value;
		else
			*out = value / (1000000000 / units[i].ns);
		return true;
	}
	return false;
}

bool sv_spec_chance(const char *text, uint64_t *out)
{
	const uint64_t one = 1000000000; /* below 2^30 */
	uint64_t value;

	if (!text || !decimal(&text, &value))
		return false;
	if (!strcmp(text, "%"))
		value /= 100;
	else if (*text)
		return false;
	if (value > one)
		return false;
	*out = (value << 32) / one;
	return true;
}

bool sv_spec_errno(const char *text, int *out)
{
	static const struct {
		const char *name;
		int err;
	} names[] = {
#define NAME(err) { #err, err }
		NAME(EPERM), NAME(ENOENT), NAME(EINTR), NAME(EIO),
		NAME(ENXIO), NAME(E2BIG), NAME(EBADF), NAME(EAGAIN),
		NAME(ENOMEM), NAME(EACCES), NAME(EFAULT), NAME(EBUSY),
		NAME(EEXIST), NAME(ENODEV), NAME(EINVAL), NAME(EMFILE),
		NAME(ENOSPC), NAME(EPIPE), NAME(ERANGE), NAME(ENOSYS),
		NAME(ENODATA), NAME(EPROTO), NAME(EOVERFLOW),
		NAME(EMSGSIZE), NAME(EPROTONOSUPPORT), NAME(EOPNOTSUPP),
		NAME(EAFNOSUPPORT), NAME(EADDRINUSE), NAME(EADDRNOTAVAIL),
		NAME(ENETDOWN), NAME(ENETUNREACH), NAME(ECONNABORTED),
		NAME(ECONNRESET), NAME(ENOBUFS), NAME(EISCONN),
		NAME(ENOTCONN), NAME(ETIMEDOUT), NAME(ECONNREFUSED),
		NAME(EHOSTDOWN), NAME(EHOSTUNREACH), NAME(ENOTSUP),
		NAME(ECANCELED),
#undef NAME
	};
	uint64_t value;
	size_t i;

	if (!text)
		return false;
	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i].name, text)) {
			*out = names[i].err;
			return true;
		}
	/* The kernel has numbers of its own, up to 4095. */
	if (!sv_spec_num(text, &value) || !value || value > 4095)
		return false;
	*out = (int)value;
	return true;
}

bool sv_spec_bool(const char *text, bool *out)
{
	if (!text)
		return false;
	if (!strcmp(text, "yes") || !strcmp(text, "1"))
		*out = true;
	else if (!strcmp(text, "no") || !strcmp(text, "0"))
		*out = false;
	else
		return false;
	return true;
}
