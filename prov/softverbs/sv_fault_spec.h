/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The language of faults: what is to go wrong, where, and when. Knows no device:
 * whoever carries verbs out asks at each hook whether a rule fires, and does
 * what it says. No lock, no output.
 *
 *	spec	= rule { ";" rule }
 *	rule	= hook { "," key [ "=" value ] }
 *
 * man/softverbs.7.md has the tables of hooks and keys.
 */
#ifndef SV_FAULT_SPEC_H
#define SV_FAULT_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Calls are named as verbs and rdma_cm name them. */
#define SV_FAULT_CALLS(X)                                               \
	X(open_device) X(query_device) X(query_port) X(query_gid)       \
	X(query_pkey) X(get_async_event) X(alloc_pd) X(reg_mr)          \
	X(rereg_mr) X(dereg_mr) X(reg_dmabuf_mr) X(create_comp_channel) \
	X(get_cq_event) X(create_cq) X(resize_cq) X(destroy_cq)         \
	X(create_srq) X(create_qp) X(modify_qp) X(query_qp)             \
	X(destroy_qp) X(create_event_channel) X(create_id)              \
	X(bind_addr) X(resolve_addr) X(resolve_route) X(listen)         \
	X(connect) X(accept) X(establish) X(reject) X(disconnect)       \
	X(get_cm_event) X(init_qp_attr) X(create_ah) X(alloc_mw)        \
	X(dealloc_mw) X(bind_mw)

/* The data path, and what is no call. */
#define SV_FAULT_OTHERS(X)                                       \
	X(post_send) X(post_recv) X(post_srq_recv) X(poll_cq)    \
	X(req_notify_cq) X(wc) X(flush) X(blackhole) X(cm_event) \
	X(cm_request) X(async)

enum sv_fault_hook {
#define X(name) SV_FAULT_##name,
	SV_FAULT_CALLS(X) SV_FAULT_OTHERS(X)
#undef X
	SV_FAULT_HOOKS,
};

enum {
	SV_FAULT_MAX_RULES = 64,
	SV_FAULT_NAME_MAX = 63,
	SV_FAULT_WHY_MAX = 160,
};

struct sv_fault_rule {
	enum sv_fault_hook hook;
	uint32_t keys; /* those that were given: bits of an enum of the parser's */

	/* where */
	char dev[SV_FAULT_NAME_MAX + 1]; /* "": any */
	int64_t qpn; /* -1: any */
	int64_t index; /* of a table; -1: any */
	int event; /* enum ibv_event_type or rdma_cm_event_type; -1: any */
	/* when; 0: no matter */
	uint64_t nth;
	uint64_t every;
	uint64_t after;
	uint64_t count;
	uint64_t start_ns; /* since the rule was set */
	uint64_t for_ns; /* from then on */
	uint64_t chance; /* of 2^32 */
	uint64_t budget; /* bytes; has_budget */
	bool has_budget;
	uint64_t over; /* bytes of a message; 0: no matter */

	/* what */
	int err; /* positive errno, -1, or 0 */
	uint64_t delay_ns;
	uint64_t per_page_ns;
	uint64_t hold_ns;
	int status; /* enum ibv_wc_status; 0: as it was */
	bool garbage;
	bool qp_error;
	bool drop;
	bool dup;
	int inject; /* enum rdma_cm_event_type; -1: none */
	int inject_status;

	/* how often; kept by sv_fault_fires() */
	uint64_t set_ns;
	uint64_t seen; /* occasions that match where and the time */
	uint64_t fired;
};

/* An occasion. Zeroed but for the hook is "of no particular ...". */
struct sv_fault_at {
	enum sv_fault_hook hook;
	const char *dev;
	int64_t qpn; /* 0: none */
	int64_t index; /* -1: none */
	int event; /* -1: none */
	uint64_t bytes; /* registered in all, with this call; of a message */
};

const char *sv_fault_hook_name(enum sv_fault_hook hook);

/*
 * Parses text, which may be NULL or empty, into at most max rules set at
 * now_ns. Returns how many there are, or -1 with the reason in why: rule, key,
 * value, and what would be allowed.
 */
int sv_fault_parse(const char *text, uint64_t now_ns,
		   struct sv_fault_rule *rules, unsigned int max,
		   char why[SV_FAULT_WHY_MAX]);

/* Whether where and when the rule is about are here and now; counts nothing. */
bool sv_fault_matches(const struct sv_fault_rule *rule,
		      const struct sv_fault_at *at, uint64_t now_ns);

/*
 * Whether the rule fires at this occasion; counts it. prng: state of the
 * generator that chances are taken from, any value. Caller holds whatever lock
 * guards the rule.
 */
bool sv_fault_fires(struct sv_fault_rule *rule, const struct sv_fault_at *at,
		    uint64_t now_ns, uint64_t *prng);

/* The next 64 random bits of the state. */
uint64_t sv_fault_random(uint64_t *prng);

#endif
