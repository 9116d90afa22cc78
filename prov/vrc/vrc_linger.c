/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A connection that has ended in good order, and whose queue pair stays up for a
 * moment, because goodbyes travel by another way than messages and acknowledgements
 * and may overtake them:
 *
 *	the peer said goodbye	our last sends, which it has received, may not be
 *				acknowledged yet;
 *	we did			what we have received may not be: rxe completes a
 *				receive before it acknowledges the message, and a
 *				queue pair in error acknowledges nothing more. By the
 *				time that the peer answers it has been.
 *
 * On iWARP all goes by one stream, and softverbs looks after itself.
 */
#include <time.h>

#include "list.h"
#include "lock.h"
#include "vrc.h"
#include "vrc_cm.h"
#include "vrc_dev.h"
#include "vrc_domain.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_util.h"

bool vrc_linger(struct vrc_ep *ep, bool by_peer)
{
	lock_assert_held(&ep->eq->lock);
	if (ep->domain->dev->is_iwarp || ep->domain->ops->is_softverbs)
		return false;
	/* Even if nothing seems to be out: somebody may be posting. */
	ep->cm.linger_ms = vrc_now_ms() + VRC_LINGER_MS;
	ep->cm.linger_own = !by_peer;
	list_add_tail(&ep->eq->lingering, &ep->cm.linger_node);
	vrc_eq_tick(ep->eq);
	return true;
}

void vrc_linger_answered(struct vrc_ep *ep)
{
	lock_assert_held(&ep->eq->lock);
	if (ep->cm.linger_own)
		ep->cm.linger_ms = 0;
}

void vrc_linger_tick(struct vrc_eq *eq)
{
	struct list *pos, *tmp;
	struct vrc_ep *ep;

	lock_assert_held(&eq->lock);
	list_for_each_safe(pos, tmp, &eq->lingering) {
		ep = list_entry(pos, struct vrc_ep, cm.linger_node);
		if (vrc_now_ms() < ep->cm.linger_ms)
			continue;
		list_del(pos);
		vrc_qp_error(ep);
	}
	if (!list_empty(&eq->lingering))
		vrc_eq_tick(eq);
}

void vrc_linger_end(struct vrc_ep *ep)
{
	const struct timespec nap = { .tv_nsec = 200000 };
	struct vrc_eq *eq = ep->eq;

	lock_assert_held(&eq->lock);
	while (!list_empty(&ep->cm.linger_node)) {
		lock_drop(&eq->lock);
		nanosleep(&nap, NULL);
		lock_take(&eq->lock);
		vrc_eq_poll(eq, true);
		vrc_linger_tick(eq);
	}
}
