/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A scripted rdma_cm for unit tests of connection management: ids and channels
 * that only count, events that the test injects, calls that fail when told to.
 * Also stands in for vrc_qp.c, vrc_dev.c and vrc_info.c.
 */
#ifndef FAKE_H
#define FAKE_H

#include "clean_test.h"
#include "vrc_dev.h"
#include "vrc_ep.h"
#include "vrc_eq.h"
#include "vrc_fabric.h"
#include "vrc_util.h"
#include "vrc_verbs.h"

enum fake_call {
	FAKE_CREATE_CHANNEL,
	FAKE_CREATE_ID,
	FAKE_BIND,
	FAKE_MIGRATE,
	FAKE_RESOLVE_ADDR,
	FAKE_RESOLVE_ROUTE,
	FAKE_LISTEN,
	FAKE_CONNECT,
	FAKE_ACCEPT,
	FAKE_ESTABLISH,
	FAKE_REJECT,
	FAKE_DISCONNECT,
	FAKE_QP_CONNECT,
	FAKE_QP_ERROR,
	FAKE_CREDIT_START,
	FAKE_INFO,
	FAKE_CALL_CNT,
};

struct fake {
	int calls[FAKE_CALL_CNT];
	int fail[FAKE_CALL_CNT]; /* errno of the next call, once */
	int ids;		 /* alive */
	int channels;
	int unacked;
	int qp_brings_up;	 /* calls of vrc_qp_connect that succeeded */
	bool iwarp;
	uint8_t reject_data[VRC_CM_WIRE_SIZE];
	struct rdma_conn_param param; /* of the last connect or accept */
	uint8_t param_data[VRC_CM_WIRE_SIZE];
	union vrc_sockaddr bound;     /* of the last bind */
	int afonly;		      /* last value set, -1: never */
};

extern struct fake fake;
extern struct vrc_dev fake_dev;
extern const struct vrc_verbs_ops fake_ops;
extern const struct vrc_verbs_ops fake_ops_second;

void fake_reset(void);
/* Another device, of another backend, on address 10.0.0.1 too. */
void fake_second_device(void);
/* Everything that was made is gone. */
void fake_check_clean(void);
/* Puts an event on the id's channel; data may be NULL. */
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		int status, const void *data, size_t len);
/* A connection request from peer on a listening id; returns the new id. */
struct rdma_cm_id *fake_request(struct rdma_cm_id *listener,
				const struct sockaddr *peer, const void *data,
				size_t len);
/* 10.0.0.<host>:port */
union vrc_sockaddr fake_addr(uint8_t host, uint16_t port);

struct vrc_fabric *fake_fabric(void);
struct vrc_eq *fake_eq(struct vrc_fabric *fabric, enum fi_wait_obj wait_obj,
		       uint64_t flags);
void fake_eq_close(struct vrc_eq *eq);
/* An endpoint bound to eq, as vrc_ep_open and fi_ep_bind would leave it. handle
 * may be NULL. */
struct vrc_ep *fake_ep(struct vrc_eq *eq, struct fid *handle, int *ret);
void fake_ep_close(struct vrc_ep *ep);

/* What the next read gives: an event, -FI_EAVAIL or -FI_EAGAIN. */
int fake_read(struct vrc_eq *eq, struct fi_eq_cm_entry *entry);

#endif
