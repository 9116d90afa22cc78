/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether peers are still there: see sv_alive.c. Between it and sv_link.c.
 */
#ifndef SV_ALIVE_H
#define SV_ALIVE_H

#include "sv_link.h"

/* sv_alive.c. start: there is a link; caller holds the lock of the table of
 * links. fork_child: in a child of fork(), no lock is taken. */
void sv_alive_start(void);
void sv_alive_fork_child(void);

/*
 * sv_link.c. lock: takes or drops the lock of the table; none: it is empty, and
 * the lock is held. for_each: calls fn, with qp->lock held, for each link that is
 * its queue pair's; caller holds no lock that may be held with that one.
 */
void sv_links_lock(bool take);
bool sv_links_none(void);
void sv_link_for_each(void (*fn)(struct sv_link *link, void *arg), void *arg);

#endif
