/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Peers that no longer answer: a process that is stopped, a host that has
 * vanished. Nobody is told of these, so once a second each link whose peer owes
 * us something looks for a sign of life, and asks for one if there was none. Its
 * engine answers, however long its program may sleep or compute, and also while
 * a message of ours waits there for a receive.
 *
 * Silence is counted in ticks that we have lived through, not by the clock: who
 * was stopped itself, or did not get to run, blames nobody for it.
 */
#include "sv_alive.h"

#include "sv_engine.h"
#include "sv_spec.h"

enum {
	SV_TICK_MS = 1000,
	SV_TICK_MAX_MS = 2000, /* what one counts at most */
	SV_SILENCE_MIN_MS = 10000, /* longer than a loaded machine is slow */
	SV_SILENCE_MAX_MS = 60000,
	SV_PEER_TIMEOUT_MAX = 86400,
};

/* All of it: the lock of the table of links. */
static struct sv_timer timer;
static bool ticking;
static uint64_t ticked_ns;
/* Of all queue pairs, if the environment says so; -1: as their attributes say.
 * Written before the timer runs. */
static int64_t wanted_ms = -1;

/* ---- how long ---- */

static int64_t env_ms(bool complain)
{
	const char *value = sv_env("SOFTVERBS_PEER_TIMEOUT");
	uint64_t seconds;

	if (!value)
		return -1;
	if (sv_spec_num(value, &seconds) && seconds <= SV_PEER_TIMEOUT_MAX)
		return seconds * 1000;
	if (complain)
		sv_err("SOFTVERBS_PEER_TIMEOUT=%s: not a number of seconds from 0 to %d; it is ignored",
		       value, SV_PEER_TIMEOUT_MAX);
	return -1;
}

void sv_alive_check_env(void)
{
	env_ms(true);
}

/* 0: for ever. A timeout of 0 would be that, by the book; here it is the longest. */
static uint64_t silence_ms(const struct ibv_qp_attr *attr)
{
	uint64_t ms;

	if (wanted_ms >= 0)
		return wanted_ms;
	if (!attr->timeout)
		return SV_SILENCE_MAX_MS;
	ms = (4096ull << attr->timeout) * (attr->retry_cnt + 1u) / 1000000;
	if (ms < SV_SILENCE_MIN_MS)
		return SV_SILENCE_MIN_MS;
	return ms > SV_SILENCE_MAX_MS ? SV_SILENCE_MAX_MS : ms;
}

/* ---- the tick ---- */

/* Caller holds qp->lock. */
static void look(struct sv_link *link, void *arg)
{
	const uint32_t *step_ms = arg;
	struct sv_qp *qp = link->qp;
	uint64_t limit_ms = silence_ms(&qp->attr);
	bool owes;

	/* What completes silently, nobody may have looked for. */
	if (sv_link_sends_wait(link)) {
		link->ops->acks(link);
		/* That may have made room for what waits in the queue, and
		 * whoever polls sees no change any more. */
		link->ops->progress(link);
	}
	owes = sv_link_sends_wait(link) && qp->sq.done == link->alive_done;
	link->alive_done = qp->sq.done;
	/* A stalled link has a clock of its own: sv_stall.c. */
	if (link->dead || link->stalled || !limit_ms ||
	    link->ops->alive(link, owes)) {
		link->silent_ms = 0;
		return;
	}
	link->silent_ms += *step_ms;
	if (link->silent_ms < limit_ms)
		return;
	sv_log("qp %06x: no sign of life from the peer for %u ms",
	       qp->qp.qp_num, link->silent_ms);
	link->silent_ms = 0;
	sv_link_fail_sends(link, IBV_EVENT_QP_FATAL);
	if (link->ops->give_up)
		link->ops->give_up(link);
}

static void tick(void *arg);

/* Caller holds the lock of the table. */
static void tick_set(void)
{
	ticked_ns = sv_now_ns();
	sv_timer_set(&timer, SV_TICK_MS, tick, NULL);
}

static void tick(void *arg)
{
	uint32_t step_ms = SV_TICK_MAX_MS;
	uint64_t passed_ms;
	bool none;

	sv_links_lock(true);
	none = !sv_timer_expired(&timer) || sv_links_none();
	if (none)
		ticking = false;
	passed_ms = (sv_now_ns() - ticked_ns) / 1000000;
	sv_links_lock(false);
	if (none)
		return;
	if (passed_ms < step_ms)
		step_ms = passed_ms;
	sv_link_for_each(look, &step_ms);
	sv_links_lock(true);
	tick_set();
	sv_links_lock(false);
}

void sv_alive_start(void)
{
	if (ticking)
		return;
	wanted_ms = env_ms(false);
	ticking = true;
	tick_set();
}

void sv_alive_fork_child(void)
{
	timer = (struct sv_timer){ 0 };
	ticking = false;
}
