/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Delivery complete: the peer has a word that can be read. */
#ifndef VRC_DELIVER_H
#define VRC_DELIVER_H

#include <stdbool.h>
#include <sys/types.h>

#include "compiler.h"

struct vrc_domain;
struct vrc_ep;
struct vrc_peer;
struct vrc_tx;

/* That one operation takes in the send queue: itself, and the read behind it. */
enum { VRC_DELIVER_PLACES = 2 };

/* vrc_deliver.c */
int vrc_deliver_open(struct vrc_domain *domain) __must_check;
void vrc_deliver_close(struct vrc_domain *domain);
/* Adds to what we say of ourselves, after vrc_credit_offer. */
void vrc_deliver_offer(const struct vrc_ep *ep, struct vrc_peer *self);
/* vrc_tx_post for FI_DELIVERY_COMPLETE. */
ssize_t vrc_deliver_post(struct vrc_ep *ep, const struct vrc_tx *tx,
			 bool locked);

#endif
