/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One connection with memory at both ends, which is what most programs need: srv
 * listens and accepts, cli connects; tx is cli's memory, rx is srv's. They are the
 * program's own: it includes this once.
 */
#ifndef PAIR_H
#define PAIR_H

#include "common.h"

static struct end srv;
static struct end cli;
static struct buf tx;
static struct buf rx;

/* Connects, with len bytes at each end and every right to them. */
static inline void pair_open(const struct setup *how, size_t len)
{
	make_pair(&srv, &cli, how);
	buf_open(&cli, &tx, len, ALL_ACCESS);
	buf_open(&srv, &rx, len, ALL_ACCESS);
}

/* To be returned from a case, which may have closed an endpoint before. */
static inline int pair_close(void)
{
	if (cli.ep)
		close_ep(&cli);
	if (srv.ep)
		close_ep(&srv);
	buf_close(&tx);
	buf_close(&rx);
	close_pair(&srv, &cli);
	return PASSED;
}

/* The same, when there is no completion left that the case has not looked at. */
static inline int pair_close_quiet(void)
{
	expect_no_comp(cli.cq, 0);
	expect_no_comp(srv.cq, 0);
	return pair_close();
}

#endif
