/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of a side: connect, check the data, warm up until the pace is
 * known, measure, check the data again, close, report. bench_side.h shows a
 * phase; the parent watches over both sides' total time.
 */
#include "bench_side.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct side_workload *const workloads[BENCH_WORKLOAD_CNT] = {
	[BENCH_LATENCY] = &side_latency,
	[BENCH_RATE] = &side_rate,
	[BENCH_READ] = &side_read,
	[BENCH_WRITE] = &side_write,
	[BENCH_WRITE_POLLED] = &side_write_polled,
};

/* What one phase took. */
struct phase_result {
	uint64_t wall_ns;
	struct bench_cpu initiator;
	struct bench_cpu target;
};

int side_fail(struct side *side, const char *fmt, ...)
{
	va_list args;

	if (side->report.reason[0])
		return -1;
	va_start(args, fmt);
	vsnprintf(side->report.reason, sizeof(side->report.reason), fmt, args);
	va_end(args);
	return -1;
}

int side_wrong_data(struct side *side, const char *what, uint64_t which)
{
	side->report.wrong_data = true;
	return side_fail(side, "WRONG DATA: %s %llu", what,
			 (unsigned long long)which);
}

static void deadline_start(struct side *side)
{
	side->deadline_ns =
		bench_now_ns() + (uint64_t)side->job->timeout_ms * 1000000;
}

static int run_phase(struct side *side, struct side_phase *phase,
		     struct phase_result *result)
{
	struct ctl_msg msg = { .kind = CTL_RUN, .phase = *phase };
	struct bench_cpu start;
	uint64_t start_ns;

	if (phase->checked)
		side->workload->prepare(side, phase);
	deadline_start(side);
	if (ctl_send(side, &msg) != 0 || ctl_expect(side, CTL_GO, &msg) != 0)
		return -1;
	deadline_start(side);
	bench_cpu_read(&start);
	start_ns = bench_now_ns();
	if (side->workload->initiate(side, phase) != 0)
		return -1;
	result->wall_ns = bench_now_ns() - start_ns;
	bench_cpu_read(&result->initiator);
	bench_cpu_sub(&result->initiator, &start);
	if (phase->checked && side->workload->verify(side, phase) != 0)
		return -1;
	deadline_start(side);
	if (ctl_expect(side, CTL_DONE, &msg) != 0)
		return -1;
	result->target = msg.cpu;
	return 0;
}

static void next_seed(struct side *side, struct side_phase *phase)
{
	if (side->workload->new_seed_per_phase)
		phase->seed = phase->seed * 6364136223846793005 + 1;
}

/*
 * Runs ever longer phases until one is long enough to tell the pace, which
 * warms everything up, and then one of the duration asked for.
 */
static int measure(struct side *side, struct side_phase *phase,
		   uint64_t duration_ns, struct phase_result *result)
{
	phase->cnt = side->workload->first_cnt;
	phase->checked = false;
	for (;;) {
		double factor;

		if (run_phase(side, phase, result) != 0)
			return -1;
		if (result->wall_ns == 0)
			result->wall_ns = 1;
		factor = (double)duration_ns / result->wall_ns;
		if (factor <= 5) {
			phase->cnt = (uint64_t)(phase->cnt * factor) + 1;
			break;
		}
		phase->cnt = (uint64_t)(phase->cnt *
					(factor > 48 ? 16 : factor / 3));
	}
	if (phase->cnt < side->workload->first_cnt)
		phase->cnt = side->workload->first_cnt;
	phase->checked = true;
	next_seed(side, phase);
	return run_phase(side, phase, result);
}

static int initiate_all(struct side *side)
{
	const struct side_workload *wl = side->workload;
	struct bench_sample *sample = &side->report.sample;
	uint64_t duration_ns = (uint64_t)side->job->duration_ms * 1000000;
	struct side_phase phase = {
		.seed = 0x5eed,
		.cnt = wl->check_cnt,
		.depth = wl->depth,
		.checked = true,
		.check_each = true,
	};
	struct phase_result result;

	if (run_phase(side, &phase, &result) != 0)
		return -1;
	phase.check_each = false;
	if (wl->latency_depth) {
		phase.depth = wl->latency_depth;
		if (measure(side, &phase, duration_ns / 2, &result) != 0)
			return -1;
		sample->latency_ns = (double)result.wall_ns / phase.cnt;
		phase.depth = wl->depth;
	}
	if (measure(side, &phase, duration_ns, &result) != 0)
		return -1;
	if (wl->latency_div && !wl->latency_depth)
		sample->latency_ns =
			(double)result.wall_ns / phase.cnt / wl->latency_div;
	sample->op_cnt = phase.cnt;
	sample->byte_cnt = phase.cnt * wl->op_len;
	sample->wall_ns = result.wall_ns;
	sample->initiator = result.initiator;
	sample->target = result.target;
	return 0;
}

static int initiator_run(struct side *side)
{
	struct ctl_msg msg;

	side_start_libfabric();
	deadline_start(side);
	if (ctl_expect(side, CTL_LISTENING, &msg) != 0 ||
	    side_connect(side, msg.port) != 0 ||
	    ctl_expect(side, CTL_MEMORY, &msg) != 0)
		return -1;
	side->remote_addr = msg.addr;
	side->remote_key = msg.key;
	side->peer_rx_cnt = msg.rx_cnt;
	bench_cpu_pin(side->job->cpu);
	if (initiate_all(side) != 0)
		return -1;
	/*
	 * Neither side may close while the other still polls: receives that
	 * are flushed then would look like failures.
	 */
	side->quits = true;
	msg = (struct ctl_msg){ .kind = CTL_QUIT };
	deadline_start(side);
	if (ctl_send(side, &msg) != 0)
		return -1;
	return ctl_expect(side, CTL_DONE, &msg);
}

/* For the tests of the bench itself. */
static void break_something(struct side *side)
{
	switch (side->job->breakage) {
	case BENCH_BREAK_NONE:
		break;
	case BENCH_BREAK_DATA:
		/* What verify looks at, here or over there. */
		for (size_t at = 0; at < side->region.len; at += 4096)
			side->region.base[at] ^= 1;
		if (!side->region.len)
			side->slots[0].buf[7] ^= 1;
		break;
	case BENCH_BREAK_DIE:
		raise(SIGKILL);
		break;
	case BENCH_BREAK_STALL:
		for (;;)
			pause();
	}
}

static int serve_phase(struct side *side, const struct side_phase *phase)
{
	bool early = side->workload->reads ||
		     side->job->breakage != BENCH_BREAK_DATA;
	struct ctl_msg msg = { .kind = CTL_GO };
	struct bench_cpu start;

	if (phase->checked)
		side->workload->prepare(side, phase);
	deadline_start(side);
	if (early && phase->checked)
		break_something(side);
	bench_cpu_read(&start);
	if (ctl_send(side, &msg) != 0 ||
	    side->workload->serve(side, phase) != 0)
		return -1;
	bench_cpu_read(&msg.cpu);
	bench_cpu_sub(&msg.cpu, &start);
	if (!early && phase->checked)
		break_something(side);
	if (phase->checked && side->workload->verify(side, phase) != 0)
		return -1;
	msg.kind = CTL_DONE;
	return ctl_send(side, &msg);
}

static int target_run(struct side *side)
{
	struct ctl_msg msg = { .kind = CTL_LISTENING };

	deadline_start(side);
	if (side_listen(side, &msg.port) != 0 || ctl_send(side, &msg) != 0 ||
	    side_accept(side) != 0)
		return -1;
	msg.kind = CTL_MEMORY;
	msg.rx_cnt = side->rx_cnt;
	if (side->region.mr) {
		msg.key = fi_mr_key(side->region.mr);
		if (msg.key == FI_KEY_NOTAVAIL)
			return side_fail(side, "fi_mr_key: no key");
		if (side->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
			msg.addr = (uintptr_t)side->region.base;
	}
	if (ctl_send(side, &msg) != 0)
		return -1;
	bench_cpu_pin(side->job->cpu);
	for (;;) {
		deadline_start(side);
		if (ctl_recv(side, &msg) != 0)
			return -1;
		if (msg.kind == CTL_QUIT) {
			msg.kind = CTL_DONE;
			return ctl_send(side, &msg);
		}
		if (msg.kind != CTL_RUN)
			return side_fail(side, "control message %d", msg.kind);
		if (serve_phase(side, &msg.phase) != 0)
			return -1;
	}
}

int bench_side_main(const struct bench_job *job, int report_fd)
{
	static struct side side;
	int ret;

	/* A parent that dies leaves nothing behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, job->is_target ? "vrc_bench/tgt" : "vrc_bench/ini");
	side.job = job;
	side.workload = workloads[job->workload];
	side.sleeps = job->is_target && side.workload->rma &&
		      !side.workload->target_polls && !job->target_polls;
	side.yields = bench_cpu_count() < 2;
	ret = job->is_target ? target_run(&side) : initiator_run(&side);
	if (side_close(&side) != 0)
		ret = -1;
	side.report.ret = ret;
	if (send(report_fd, &side.report, sizeof(side.report), MSG_NOSIGNAL) !=
	    sizeof(side.report))
		return 1;
	return ret == 0 ? 0 : 1;
}
