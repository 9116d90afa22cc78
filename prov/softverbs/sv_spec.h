/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The text that devices and faults are specified in, and its values. Knows
 * neither; no state, no allocation, no output.
 *
 *	spec	= entry { ";" entry }
 *	entry	= word { "," key [ "=" value ] }
 *
 * Spaces around the pieces, and empty pieces, do not count.
 */
#ifndef SV_SPEC_H
#define SV_SPEC_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The next piece of *rest, up to sep or the end; NULL if there is none. Writes
 * into the text, and moves *rest on.
 */
char *sv_spec_next(char **rest, char sep);

/* Ends the key at its "="; returns the value, or NULL if there is none. */
char *sv_spec_value(char *key);

/*
 * False if text is no such value; *out is unchanged then.
 *
 *	num	decimal, 0x hexadecimal; k, m, g behind it: times 1024 and so on
 *	time	a number with a fraction and a unit: ns, us, ms, s; in *out as ns
 *	chance	0.25 or 25%; in *out as how many of 2^32
 *	errno	a name (ENOMEM) or a number
 *	bool	yes, no, 1, 0
 */
bool sv_spec_num(const char *text, uint64_t *out);
bool sv_spec_time(const char *text, uint64_t *out);
bool sv_spec_chance(const char *text, uint64_t *out);
bool sv_spec_errno(const char *text, int *out);
bool sv_spec_bool(const char *text, bool *out);

#endif
