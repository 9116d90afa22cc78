/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Receiver credits: how many receives the peer has posted. */
#ifndef VRC_CREDIT_H
#define VRC_CREDIT_H

#include <stdbool.h>

#include "compiler.h"
#include "vrc_verbs.h"

struct vrc_dev;
struct vrc_ep;
struct vrc_eq;
struct vrc_peer;
struct vrc_req;

enum {
	/* Work requests of our own that a send queue holds besides those of
	 * the application. */
	VRC_CREDIT_WRITES = 2,
};

/* vrc_credit.c */
bool vrc_credit_wanted(const struct vrc_dev *dev);
/* fi_enable, before the queue pair is made. */
int vrc_credit_open(struct vrc_ep *ep) __must_check;
/* The queue pair is gone. */
void vrc_credit_close(struct vrc_ep *ep);
/* Adds to what we say of ourselves when we connect or accept. */
void vrc_credit_offer(struct vrc_ep *ep, struct vrc_peer *self);
/* The peer's offer, before the endpoint's state says that it is connected.
 * Caller holds eq->lock, here and in the next two. */
void vrc_credit_agree(struct vrc_ep *ep, const struct vrc_peer *peer);
/* After the state says so. */
void vrc_credit_start(struct vrc_ep *ep);
/* The endpoint leaves its event queue. */
void vrc_credit_stop(struct vrc_ep *ep);
/* The device was given cnt receives more. Caller holds no lock. */
void vrc_credit_posted(struct vrc_ep *ep, unsigned int cnt);
/* The same for who may hold locks: the peer is told at the next tick. */
void vrc_credit_add(struct vrc_ep *ep, unsigned int cnt);
/* 0 or -FI_EAGAIN: whether ep, whose gate is not 0, may post a work request of
 * that kind. Caller holds tx_lock, and gives it back if it is not posted. */
int vrc_credit_take(struct vrc_ep *ep, enum ibv_wr_opcode opcode);
void vrc_credit_return(struct vrc_ep *ep, enum ibv_wr_opcode opcode);
/* The work request of req, a VRC_OP_CREDIT, is done. */
void vrc_credit_written(const struct vrc_req *req);
/* A while after vrc_eq_tick. Caller holds eq->lock. */
void vrc_credit_tick(struct vrc_eq *eq);

#endif
