/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "sv_fault.h"

#include "sv_edit.h"
#include "sv_engine.h"
#include "sv_spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	NS_PER_MS = 1000000,
};

atomic_bool sv_fault_on;

static struct lock rules_lock = { PTHREAD_MUTEX_INITIALIZER };
/* rules_lock */
static struct sv_fault_rule rules[SV_FAULT_MAX_RULES];
static unsigned int rule_cnt;
static uint64_t prng;
static bool seeded;
static uint64_t asked[SV_FAULT_HOOKS];
static uint64_t fired[SV_FAULT_HOOKS];

/* What goes by the clock: async, and blackhole without an occasion. */
static struct lock set_lock = { PTHREAD_MUTEX_INITIALIZER };
/* set_lock, which is outside rules_lock: begin and end of each rule */
static struct sv_timer timers[SV_FAULT_MAX_RULES][2];

/* ---- asking ---- */

bool sv_fault_hit(const struct sv_fault_at *at, struct sv_fault_rule *hit)
{
	uint64_t now_ns = sv_now_ns();
	bool found = false;
	unsigned int i;

	lock_take(&rules_lock);
	asked[at->hook]++;
	for (i = 0; i < rule_cnt && !found; i++) {
		found = sv_fault_fires(&rules[i], at, now_ns, &prng);
		if (found)
			*hit = rules[i];
	}
	if (found)
		fired[at->hook]++;
	lock_drop(&rules_lock);
	return found;
}

void sv_fault_sleep(uint64_t ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(ns / 1000000000),
		.tv_nsec = (long)(ns % 1000000000),
	};

	if (ns)
		while (nanosleep(&ts, &ts) && errno == EINTR)
			;
}

__cold int sv_fault_call_slow(enum sv_fault_hook hook, const struct sv_dev *dev,
			      int64_t qpn, int64_t index, uint64_t len,
			      uint64_t total)
{
	struct sv_fault_at at = {
		.hook = hook,
		.dev = dev ? dev->device.name : NULL,
		.qpn = qpn,
		.index = index,
		.event = -1,
		.bytes = total,
	};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct sv_fault_rule hit;

	if (!sv_fault_hit(&at, &hit))
		return 0;
	sv_fault_sleep(hit.delay_ns + hit.per_page_ns * (len / page + 1));
	if (hit.err)
		sv_log("fault: %s: error %d", sv_fault_hook_name(hook),
		       hit.err);
	return hit.err;
}

void sv_fault_count(enum sv_fault_hook hook, uint64_t *seen_cnt,
		    uint64_t *fired_cnt)
{
	lock_take(&rules_lock);
	*seen_cnt = hook < SV_FAULT_HOOKS ? asked[hook] : 0;
	*fired_cnt = hook < SV_FAULT_HOOKS ? fired[hook] : 0;
	lock_drop(&rules_lock);
}

/* ---- by the clock ---- */

static const struct sv_dev *rule_dev(const struct sv_fault_rule *rule)
{
	return rule->dev[0] ? sv_dev_by_name(rule->dev) : NULL;
}

static bool is_timed(const struct sv_fault_rule *rule)
{
	if (rule->hook == SV_FAULT_async)
		return true;
	return rule->hook == SV_FAULT_blackhole && !rule->nth &&
	       !rule->every && !rule->after && !rule->over &&
	       rule->chance == 1ull << 32;
}

static void qp_fatal(struct sv_qp *qp, void *arg)
{
	if (qp->ctx->dev != arg)
		return;
	sv_lock_take(&qp->lock);
	if (!qp->destroyed)
		sv_qp_error(qp, IBV_EVENT_QP_FATAL);
	sv_lock_drop(&qp->lock);
}

/* Of a CQ that has no queue pair nobody is told. */
static void cq_err(struct sv_qp *qp, void *arg)
{
	if (qp->ctx->dev != arg)
		return;
	sv_lock_take(&qp->lock);
	if (!qp->destroyed) {
		sv_cq_fail(qp->scq, qp);
		sv_cq_fail(qp->rcq, qp);
	}
	sv_lock_drop(&qp->lock);
}

static void raise(struct sv_dev *dev, enum ibv_event_type type)
{
	const char *name = dev->device.name;

	switch (type) {
	case IBV_EVENT_PORT_ERR:
		sv_edit_port(name, IBV_PORT_DOWN);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		sv_edit_port(name, IBV_PORT_ACTIVE);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		sv_edit_fatal(name);
		break;
	case IBV_EVENT_QP_FATAL:
		sv_qp_for_each(qp_fatal, dev);
		break;
	case IBV_EVENT_CQ_ERR:
		sv_qp_for_each(cq_err, dev);
		break;
	default:
		sv_edit_raise(name, type);
	}
}

static void rule_begins(const struct sv_fault_rule *rule)
{
	const struct sv_dev *only = rule_dev(rule);
	struct sv_dev **devs;
	unsigned int i, cnt = sv_dev_list(&devs);

	if (rule->dev[0] && !only)
		return;
	if (rule->hook == SV_FAULT_blackhole) {
		sv_stall_set(only, rule->qpn, true);
		return;
	}
	for (i = 0; i < cnt; i++)
		if (!only || devs[i] == only)
			raise(devs[i], (enum ibv_event_type)rule->event);
}

/* The rule of a timer, if it is still set; false if the timer is not due. */
static bool timer_rule(struct sv_timer *timer, struct sv_fault_rule *rule)
{
	/* Of either of a pair. */
	size_t i = (size_t)(timer - timers[0]) / 2;
	bool due;

	lock_take(&set_lock);
	due = sv_timer_expired(timer);
	if (due)
		sv_timer_cancel(timer);
	lock_take(&rules_lock);
	if (due && i < rule_cnt) {
		*rule = rules[i];
		asked[rule->hook]++;
		fired[rule->hook]++;
	} else {
		due = false;
	}
	lock_drop(&rules_lock);
	lock_drop(&set_lock);
	return due;
}

static void on_begin(void *arg)
{
	struct sv_fault_rule rule;

	if (timer_rule(arg, &rule))
		rule_begins(&rule);
}

static void on_end(void *arg)
{
	struct sv_fault_rule rule;

	if (timer_rule(arg, &rule))
		sv_stall_set(rule_dev(&rule), rule.qpn, false);
}

/* Milliseconds are enough here; none is early. */
static unsigned int ms_of(uint64_t ns)
{
	return (unsigned int)min_size((ns + NS_PER_MS - 1) / NS_PER_MS,
				      1u << 30);
}

/* Caller holds set_lock. */
static void timers_set(const struct sv_fault_rule *set, unsigned int cnt)
{
	unsigned int i;

	for (i = 0; i < SV_FAULT_MAX_RULES; i++) {
		sv_timer_cancel(&timers[i][0]);
		sv_timer_cancel(&timers[i][1]);
	}
	for (i = 0; i < cnt; i++) {
		if (!is_timed(&set[i]))
			continue;
		sv_timer_set(&timers[i][0], ms_of(set[i].start_ns), on_begin,
			     &timers[i][0]);
		if (set[i].for_ns)
			sv_timer_set(&timers[i][1],
				     ms_of(set[i].start_ns + set[i].for_ns),
				     on_end, &timers[i][1]);
	}
}

/* ---- setting ---- */

/* A number that another run will not have. */
static uint64_t any_seed(void)
{
	uint64_t seed;

	sv_random(&seed, sizeof(seed));
	return seed;
}

int sv_fault_set(const char *spec)
{
	static struct sv_fault_rule set[SV_FAULT_MAX_RULES]; /* set_lock */
	char why[SV_FAULT_WHY_MAX] = "";
	int cnt;

	lock_take(&set_lock);
	cnt = sv_fault_parse(spec, sv_now_ns(), set, SV_FAULT_MAX_RULES, why);
	if (cnt < 0) {
		lock_drop(&set_lock);
		sv_err("SOFTVERBS_FAULT: %s; none of the rules is in force",
		       why);
		return EINVAL;
	}
	lock_take(&rules_lock);
	memcpy(rules, set, (size_t)cnt * sizeof(*set));
	rule_cnt = (unsigned int)cnt;
	if (!seeded)
		prng = any_seed();
	seeded = true;
	lock_drop(&rules_lock);
	atomic_store_explicit(&sv_fault_on, cnt > 0, memory_order_relaxed);
	timers_set(set, (unsigned int)cnt);
	lock_drop(&set_lock);
	/* Nobody is stalled whom no rule stalls; those by the clock come back. */
	sv_stall_set(NULL, -1, false);
	sv_ops_refresh();
	return 0;
}

void sv_fault_seed(uint64_t seed)
{
	lock_take(&rules_lock);
	prng = seed;
	seeded = true;
	lock_drop(&rules_lock);
}

bool sv_fault_wants_data(void)
{
	bool wants = false;
	unsigned int i;

	lock_take(&rules_lock);
	for (i = 0; i < rule_cnt && !wants; i++)
		wants = sv_fault_is_data(rules[i].hook);
	lock_drop(&rules_lock);
	return wants;
}

bool sv_fault_stalls(const struct sv_qp *qp)
{
	const struct sv_fault_at at = {
		.hook = SV_FAULT_blackhole,
		.dev = qp->ctx->dev->device.name,
		.qpn = qp->qp.qp_num,
		.index = -1,
		.event = -1,
	};
	uint64_t now_ns = sv_now_ns();
	bool stalls = false;
	unsigned int i;

	if (!sv_fault_any())
		return false;
	lock_take(&rules_lock);
	for (i = 0; i < rule_cnt && !stalls; i++)
		stalls = is_timed(&rules[i]) &&
			 sv_fault_matches(&rules[i], &at, now_ns);
	lock_drop(&rules_lock);
	return stalls;
}

static void __attribute__((constructor)) fault_start(void)
{
	const char *spec = sv_env("SOFTVERBS_FAULT");
	const char *seed = sv_env("SOFTVERBS_FAULT_SEED");
	uint64_t value;

	if (seed && sv_spec_num(seed, &value))
		sv_fault_seed(value);
	else if (seed)
		sv_err("SOFTVERBS_FAULT_SEED=%s: not a number from 0 to %ju; it is ignored",
		       seed, (uintmax_t)UINT64_MAX);
	if (spec)
		sv_fault_set(spec);
}

/* The rules stay; what the clock would bring, the parent has. */
void sv_fault_fork_child(void)
{
	lock_init(&rules_lock);
	lock_init(&set_lock);
	memset(timers, 0, sizeof(timers));
	sv_fault_recv_fork_child();
	sv_fault_cq_fork_child();
}
