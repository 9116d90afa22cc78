/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The provider's parameters: read once in fi_prov_ini, constant afterwards. */
#ifndef VRC_PARAMS_H
#define VRC_PARAMS_H

#include <stdbool.h>
#include <stddef.h>

/* vrc_prov.c */
enum vrc_softverbs_mode {
	VRC_SOFTVERBS_AUTO, /* only where there is no other usable device */
	VRC_SOFTVERBS_ALWAYS,
	VRC_SOFTVERBS_NEVER,
};

enum vrc_credits_mode {
	VRC_CREDITS_AUTO, /* where a send without a receive ends the connection */
	VRC_CREDITS_ALWAYS,
	VRC_CREDITS_NEVER,
};

struct vrc_params {
	enum vrc_softverbs_mode softverbs;
	size_t tx_size;	    /* default queue depths, operations */
	size_t rx_size;
	bool tx_size_given; /* by the environment */
	bool rx_size_given;
	size_t inject_size; /* bytes */
	char *iface;	    /* only this network interface, or NULL */
	char *device;	    /* only this verbs device, or NULL */
	int gid_index;	    /* -1: by route */
	int min_rnr_timer;  /* the 5-bit IBTA encoding */
	int ack_timeout;    /* the 5-bit IBTA encoding, -1: rdma_cm's */
	enum vrc_credits_mode credits;
};

extern struct vrc_params vrc_params;

#endif
