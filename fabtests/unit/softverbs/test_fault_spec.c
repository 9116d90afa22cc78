/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The language of faults: what it takes and refuses, and when a rule fires. */
#include "sv_fault.h"
#include "sv_fault_spec.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

#include "compiler.h"

TestSuite(fault_spec, .timeout = 30);

static struct sv_fault_rule rules[4];
static char why[SV_FAULT_WHY_MAX];

static int parse(const char *text)
{
	return sv_fault_parse(text, 1000, rules, ARRAY_SIZE(rules), why);
}

/* How often the first rule fires on the n-th of cnt occasions, as bits. */
static uint64_t fires(const char *text, unsigned int cnt)
{
	struct sv_fault_at at = { .index = -1, .event = -1 };
	uint64_t prng = 1, bits = 0;
	unsigned int i;

	cr_assert_eq(parse(text), 1, "%s: %s", text, why);
	at.hook = rules[0].hook;
	for (i = 0; i < cnt; i++)
		bits |= (uint64_t)sv_fault_fires(&rules[0], &at, 1000, &prng)
			<< i;
	return bits;
}

Test(fault_spec, each_hook_has_its_name)
{
	char text[64];
	int hook;

	for (hook = 0; hook < SV_FAULT_HOOKS; hook++) {
		const char *name = sv_fault_hook_name(hook);

		cr_assert_not_null(name);
		cr_assert_neq(*name, '\0');
		/* Some action of each is taken. */
		snprintf(text, sizeof(text), "%s,%s", name,
			 hook == SV_FAULT_wc ? "garbage" :
			 hook == SV_FAULT_flush ? "drop" :
			 hook == SV_FAULT_blackhole ? "nth=1" :
			 hook == SV_FAULT_cm_event ? "dup" :
			 hook == SV_FAULT_cm_request ? "drop" :
			 hook == SV_FAULT_async ? "event=PORT_ERR" :
						  "err=EIO");
		cr_assert_eq(parse(text), 1, "%s: %s", text, why);
		cr_assert_eq(rules[0].hook, hook);
	}
	cr_assert_str_eq(sv_fault_hook_name(SV_FAULT_HOOKS), "?");
}

Test(fault_spec, values_arrive)
{
	cr_assert_eq(parse(" reg_mr , nth = 3, err=ENOMEM,delay=2ms ,"
			   "per_page=10ns,budget=64m,dev=softverbs1;;"
			   "cm_event,event=ESTABLISHED,inject=DISCONNECTED,"
			   "inject_status=-110; wc,qpn=0x1234,"
			   "status=RETRY_EXC_ERR,chance=50%"), 3, "%s", why);
	cr_assert_eq(rules[0].hook, SV_FAULT_reg_mr);
	cr_assert_eq(rules[0].nth, 3);
	cr_assert_eq(rules[0].err, ENOMEM);
	cr_assert_eq(rules[0].delay_ns, 2000000);
	cr_assert_eq(rules[0].per_page_ns, 10);
	cr_assert(rules[0].has_budget);
	cr_assert_eq(rules[0].budget, 64 << 20);
	cr_assert_str_eq(rules[0].dev, "softverbs1");
	cr_assert_eq(rules[0].qpn, -1);
	cr_assert_eq(rules[0].set_ns, 1000);
	cr_assert_eq(rules[1].event, RDMA_CM_EVENT_ESTABLISHED);
	cr_assert_eq(rules[1].inject, RDMA_CM_EVENT_DISCONNECTED);
	cr_assert_eq(rules[1].inject_status, -110);
	cr_assert_eq(rules[2].qpn, 0x1234);
	cr_assert_eq(rules[2].status, IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(rules[2].chance, 1ull << 31);
	cr_assert_eq(parse("post_send,err=-1"), 1);
	cr_assert_eq(rules[0].err, -1);
	cr_assert_eq(parse("reg_dmabuf_mr,err=524"), 1);
	cr_assert_eq(rules[0].err, 524);
	cr_assert_eq(parse(NULL), 0);
	cr_assert_eq(parse(" ; "), 0);
}

Test(fault_spec, refusals_say_why)
{
	static const struct {
		const char *text;
		const char *part; /* of the reason */
	} cases[] = {
		{ "reg_mt,err=EIO", "reg_mt" },
		{ "reg_mr", "nothing is to happen" },
		{ "reg_mr,nth=2", "nothing is to happen" },
		{ "reg_mr,err=EWHAT", "err=EWHAT" },
		{ "reg_mr,err=-1", "err=-1" },
		{ "reg_mr,err", "a value" },
		{ "reg_mr,err=", "err=" },
		{ "reg_mr,nth=0,err=EIO", "from 1 to 18446744073709551615" },
		{ "reg_mr,nth=18446744073709551616,err=EIO",
		  "from 1 to 18446744073709551615" },
		{ "reg_mr,err=4096", "(1 to 4095)" },
		{ "reg_mr,delay=86401s", "at most 86400s" },
		{ "reg_mr,per_page=86400001ms", "at most 86400s" },
		{ "poll_cq,hold=1000000s", "at most 86400s" },
		{ "blackhole,start=86401s", "at most 86400s" },
		{ "blackhole,for=0s", "above 0" },
		{ "blackhole,over=0", "from 1 to 18446744073709551615" },
		{ "reg_mr,err=EIO,chance=1.5", "0% to 100%" },
		{ "reg_mr,delay=5", "unit" },
		{ "reg_mr,colour=red", "no such key" },
		{ "reg_mr,err=EIO,qpn=3", "not for this hook" },
		{ "wc,garbage=1", "no value" },
		{ "wc,err=EIO", "not for this hook" },
		{ "wc,status=SUCCESS", "status=SUCCESS" },
		{ "cm_event,event=PORT_ERR,drop", "event of rdma_cm" },
		{ "async,event=ESTABLISHED", "event of a device" },
		{ "async,start=1s", "event= is missing" },
		{ "async,event=PORT_ERR,nth=1", "not for this hook" },
		{ "blackhole,qpn=0", "1 to 0xffffff" },
		{ "query_gid,index=65536,err=EIO", "65535" },
		{ "cm_event,inject=ESTABLISHED,inject_status=x", "4095" },
		{ "=", "no such hook" },
		{ "post_send,err=EIO;bogus", "bogus" },
		{ "flush;flush;flush;flush;flush", "more than 4" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		why[0] = '\0';
		cr_assert_eq(parse(cases[i].text), -1, "%s", cases[i].text);
		cr_assert_not_null(strstr(why, cases[i].part), "%s: %s",
				   cases[i].text, why);
	}
}

/* One that is wrong takes the others along, which one would look for in vain. */
Test(fault_spec, message_says_that_there_is_none, .init = cr_redirect_stderr)
{
	FILE *err = cr_get_redirected_stderr();
	char said[512] = "";
	size_t len;

	cr_assert_eq(sv_fault_set("reg_mr,err=EIO;poll_cq,err=EFOO"), EINVAL);
	fflush(stderr);
	len = fread(said, 1, sizeof(said) - 1, err);
	said[len] = 0;
	cr_assert(strstr(said, "EFOO"), "%s", said);
	cr_assert(strstr(said, "none of the rules is in force"), "%s", said);
}

Test(fault_spec, selectors)
{
	cr_assert_eq(fires("alloc_pd,err=EIO", 4), 0xf);
	cr_assert_eq(fires("alloc_pd,err=EIO,nth=2", 8), 0x02);
	cr_assert_eq(fires("alloc_pd,err=EIO,every=3", 9), 0x124);
	cr_assert_eq(fires("alloc_pd,err=EIO,after=2", 6), 0x3c);
	cr_assert_eq(fires("alloc_pd,err=EIO,after=1,count=2", 8), 0x06);
	cr_assert_eq(fires("alloc_pd,err=EIO,every=2,count=2", 8), 0x0a);
	cr_assert_eq(fires("alloc_pd,err=EIO,chance=0", 64), 0);
	cr_assert_eq(fires("alloc_pd,err=EIO,chance=100%", 8), 0xff);
	cr_assert_eq(rules[0].seen, 8);
	cr_assert_eq(rules[0].fired, 8);
}

Test(fault_spec, chances_are_fair_and_repeat)
{
	uint64_t first = fires("alloc_pd,err=EIO,chance=25%", 64);
	struct sv_fault_at at = { .hook = SV_FAULT_alloc_pd, .index = -1,
				  .event = -1 };
	uint64_t prng = 7;
	int i, cnt = 0;

	cr_assert_eq(fires("alloc_pd,err=EIO,chance=25%", 64), first);
	for (i = 0; i < 100000; i++)
		cnt += sv_fault_fires(&rules[0], &at, 1000, &prng);
	cr_assert_gt(cnt, 24000);
	cr_assert_lt(cnt, 26000);
}

Test(fault_spec, only_here_and_only_now)
{
	struct sv_fault_at at = {
		.hook = SV_FAULT_query_gid, .dev = "a", .index = 1,
		.event = -1,
	};
	uint64_t prng = 0;

	cr_assert_eq(parse("query_gid,err=EIO,dev=a,index=1,start=2us,for=3us"),
		     1);
	cr_assert(!sv_fault_fires(&rules[0], &at, 2999, &prng));
	cr_assert(sv_fault_fires(&rules[0], &at, 3000, &prng));
	cr_assert(sv_fault_fires(&rules[0], &at, 5999, &prng));
	cr_assert(!sv_fault_fires(&rules[0], &at, 6000, &prng));
	at.index = 2;
	cr_assert(!sv_fault_fires(&rules[0], &at, 3000, &prng));
	at.index = 1;
	at.dev = "ab";
	cr_assert(!sv_fault_fires(&rules[0], &at, 3000, &prng));
	at.dev = NULL;
	cr_assert(!sv_fault_fires(&rules[0], &at, 3000, &prng));
	at.dev = "a";
	at.hook = SV_FAULT_query_pkey;
	cr_assert(!sv_fault_fires(&rules[0], &at, 3000, &prng));
	/* What is not here does not count. */
	cr_assert_eq(rules[0].seen, 2);
	cr_assert_eq(parse("reg_mr,err=ENOMEM,budget=100"), 1);
	at = (struct sv_fault_at){ .hook = SV_FAULT_reg_mr, .index = -1,
				   .event = -1, .bytes = 100 };
	cr_assert(!sv_fault_fires(&rules[0], &at, 1000, &prng));
	at.bytes = 101;
	cr_assert(sv_fault_fires(&rules[0], &at, 1000, &prng));
}
