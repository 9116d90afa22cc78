/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* FI_MORE: work requests that wait for those that follow. */
#ifndef VRC_MORE_H
#define VRC_MORE_H

#include <stdbool.h>

#include "compiler.h"
#include "vrc_verbs.h"

struct vrc_ep;

/* vrc_more.c */
int vrc_more_open(struct vrc_ep *ep) __must_check;
void vrc_more_close(struct vrc_ep *ep);
/* Posts wr behind what is held, or holds it as well; 0 or what ibv_post_send
 * returns. Caller holds tx_lock if there is one. */
int vrc_more_send(struct vrc_ep *ep, struct ibv_send_wr *wr, bool hold);
/* The same with rx_lock; *cnt is how many receives the device was given. */
int vrc_more_recv(struct vrc_ep *ep, struct ibv_recv_wr *wr, bool hold,
		  unsigned int *cnt);
/* Posts what is held. */
void vrc_more_flush(struct vrc_ep *ep);
/* The same, unless somebody is at it; for who holds cq->lock. */
void vrc_more_try_flush(struct vrc_ep *ep);

#endif
