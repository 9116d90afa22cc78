/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Between fabric.c and queue.c: an event queue with what was read from it
 * while looking for something else. Not for use by several threads.
 */
#ifndef QUEUE_H
#define QUEUE_H

#include "common.h"

struct evq *evq_create(struct fid_eq *eq);
/* Closes the event queue, which must work. */
void evq_destroy(struct evq *q);
/* Drops what was read about a fid that is closed now. An event that the
 * provider still delivers after this fails the case. */
void evq_forget(struct evq *q, const struct fid *fid);

/* Completion queues of open ends. */
void cq_register(struct fid_cq *cq);
void cq_unregister(struct fid_cq *cq);

#endif
