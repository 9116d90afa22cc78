/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Why fi_getinfo turned something down. One vrc_whynot lives on the stack of
 * one call; reasons are collected while candidates are tried, and reported
 * once, when the outcome is known:
 *
 *	something found			each reason at INFO
 *	nothing, caller asked for vrc	the first reason as WARN if it is a new
 *					one; the rest at INFO
 *	nothing, nobody asked		one line at INFO if it is a new one
 *
 * A utility provider that asks on somebody's behalf tries one thing after the
 * other: never WARN, and nothing at all if nobody asked for vrc.
 *
 * A caller asks for vrc by hints->fabric_attr->prov_name or by FI_PROVIDER.
 */
#ifndef VRC_WHYNOT_H
#define VRC_WHYNOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>

#include "compiler.h"

enum {
	VRC_WHYNOT_MAX = 8, /* reasons kept; later ones are counted */
	VRC_WHYNOT_LEN = 320,
};

struct vrc_whynot {
	bool asked;
	bool layered; /* the caller is a utility provider */
	size_t cnt;
	size_t dropped;
	struct {
		/* The hint, e.g. "tx_attr->size"; a string constant. */
		const char *subject;
		uint64_t key; /* what may warn once */
		char text[VRC_WHYNOT_LEN];
	} reason[VRC_WHYNOT_MAX];
};

void vrc_whynot_init(struct vrc_whynot *why, const struct fi_info *hints,
		     bool layered);
/*
 * A hint that cannot be kept. subject is a string constant that names it; the
 * line in the log begins with it. Programs try hints by the hundred, so each
 * subject warns once per process. Equal reasons are kept once.
 */
void vrc_whynot_add(struct vrc_whynot *why, const char *subject,
		    const char *fmt, ...) __printf_like(3, 4);
/* The same for addresses, names and devices, where each text warns once. */
void vrc_whynot_place(struct vrc_whynot *why, const char *subject,
		      const char *fmt, ...) __printf_like(3, 4);
void vrc_whynot_report(const struct vrc_whynot *why, bool found);

#endif
