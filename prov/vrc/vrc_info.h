/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the files of the discovery half share: vrc_scan.c finds devices
 * and addresses, vrc_dev.c keeps what was found, vrc_getaddr.c
 * reads the caller's addresses, vrc_getinfo.c picks those that the caller
 * means, vrc_hints.c compares the hints with what they offer, vrc_info.c and
 * vrc_nic.c write the answer.
 */
#ifndef VRC_INFO_H
#define VRC_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>

#include "compiler.h"
#include "vrc_dev.h"
#include "vrc_util.h"
#include "vrc_verbs.h"
#include "vrc_whynot.h"

struct ifaddrs;

enum {
	/* The most that hints may ask of inject_size. */
	VRC_INJECT_MAX = 4096,
	VRC_DEV_NOTES = 512,
	/* A refusing peer's data, or a completion error in words. */
	VRC_MAX_ERR_DATA = 128,
	/* Values that libfabric 2.x added to enumerations of 1.17. */
	VRC_SOCKADDR_IP = 17,
	VRC_PROGRESS_CONTROL_UNIFIED = 3,
};

#define VRC_PRIMARY_CAPS                                                       \
	(FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ |           \
	 FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define VRC_SECONDARY_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define VRC_TX_CAPS                                                            \
	(FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE)
#define VRC_RX_CAPS                                                            \
	(FI_MSG | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ |              \
	 FI_REMOTE_WRITE)
#define VRC_RX_OP_FLAGS FI_COMPLETION
/* Reads and atomics may overtake nothing; writes and sends may overtake an
 * earlier read, whose answer is still on its way (IBTA 10.8.3.3). Where an atomic
 * is one of the two, vrc_post.c fences what needs it. */
#define VRC_MSG_ORDER                                                          \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAW |           \
	 FI_ORDER_WAS | FI_ORDER_SAW | FI_ORDER_SAS | FI_ORDER_RMA_RAR |       \
	 FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW)
#define VRC_ATOMIC_ORDER                                                       \
	(FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR |     \
	 FI_ORDER_ATOMIC_WAW)

/* What one call of fi_getinfo asks. */
struct vrc_query {
	uint32_t version;
	const struct fi_info *hints; /* or NULL */
	struct vrc_whynot why;
};

/* vrc_getinfo.c */
int vrc_getinfo(uint32_t version, const char *node, const char *service,
		uint64_t flags, const struct fi_info *hints,
		struct fi_info **info);
/* The info of an incoming connection on dev: pep_info narrowed to the device
 * and the two addresses. Caller owns it (fi_freeinfo). NULL: out of memory. */
struct fi_info *vrc_info_for_connreq(const struct vrc_dev *dev,
				     const struct fi_info *pep_info,
				     const struct sockaddr *src,
				     const struct sockaddr *dst);

/* vrc_getaddr.c */
enum { VRC_MAX_ADDRS = 16 };
struct vrc_addrs {
	union vrc_sockaddr addr[VRC_MAX_ADDRS];
	size_t cnt;
};
/* The family that hints->addr_format stands for, or AF_UNSPEC. */
int vrc_hints_family(const struct fi_info *hints);
bool vrc_hints_family_ok(const struct fi_info *hints,
			 const struct sockaddr *sa);
/* The sources and destinations that the caller gives; both may be none. 0,
 * -FI_ENOMEM, or -FI_ENODATA: a reason was added. */
int vrc_getaddr(struct vrc_query *query, const char *node, const char *service,
		uint64_t flags, struct vrc_addrs *srcs,
		struct vrc_addrs *dsts) __must_check;
/* The address that packets to dst leave from. Sends none. 0 or an errno. */
int vrc_route_src(const struct sockaddr *dst, union vrc_sockaddr *src);

/* vrc_scan.c */
struct vrc_scan {
	/* Set by the caller. */
	const struct ifaddrs *ifaddrs;
	/* Usable devices, best first. The caller's to free, also on errors. */
	struct vrc_dev_list list;
	/* Why others are not there; "" if there is nothing to say. */
	char notes[VRC_DEV_NOTES];
};
/* Both backends by the rules of FI_VRC_SOFTVERBS. 0 or -FI_ENOMEM. */
int vrc_scan_all(struct vrc_scan *scan) __must_check;
/* The embedded device whether or not it would be offered. */
int vrc_scan_softverbs(struct vrc_scan *scan) __must_check;

/* vrc_hints.c */
/* What can be said without looking at a device. False: a reason was added. */
bool vrc_hints_check(struct vrc_query *query) __must_check;
/* limits is what vrc_info_limits made of the device. */
bool vrc_hints_check_limits(struct vrc_query *query,
			    const struct fi_info *limits,
			    const struct vrc_dev *dev) __must_check;
/* hints->caps with what they imply; all that we have if there are none. */
uint64_t vrc_hints_caps(const struct fi_info *hints);
/* Adds the modifiers that FI_MSG and FI_RMA imply if there are none. */
uint64_t vrc_hints_expand(uint64_t caps);
/* True if the caller can live with immediate data consuming a receive. */
bool vrc_hints_rx_cq_data(const struct fi_info *hints);
/*
 * What the answer says about memory registration. FI_MR_LOCAL only if it is
 * offered: it saves a registration per large operation.
 */
struct vrc_mr_answer {
	int mr_mode;
	uint64_t mode; /* FI_LOCAL_MR if the caller speaks the old language */
	uint64_t caps; /* primary ones */
};
/* False: a reason was added; why may be NULL. */
bool vrc_hints_mr(const struct fi_info *hints, uint32_t version,
		  struct vrc_whynot *why, struct vrc_mr_answer *answer);

/* vrc_info.c */
/* A fi_info with the most that the device can do at that address; no
 * addresses yet. NULL: out of memory. */
struct fi_info *vrc_info_limits(const struct vrc_dev *dev,
				const struct vrc_addr *addr, uint32_t version);
size_t vrc_max_msg_size(const struct vrc_dev *dev);
/* Shared receive contexts: whether the device has them for a program that does
 * (not) see to it itself that receives are posted; why not, in words; pieces of
 * a receive. */
bool vrc_srx_possible(const struct vrc_dev *dev, bool rm_disabled);
const char *vrc_srx_whynot(const struct vrc_dev *dev);
size_t vrc_srx_iov_limit(const struct vrc_dev *dev);
/* Operations that a queue of the device can hold for the application. */
size_t vrc_max_depth(const struct vrc_dev *dev);
/* What may stand in tx_attr->op_flags. */
uint64_t vrc_tx_op_flags(const struct vrc_dev *dev);
/* Turns limits into the answer to hints, which have been checked. */
void vrc_info_tailor(struct fi_info *info, const struct fi_info *hints,
		     const struct vrc_dev *dev, uint32_t version);
/* FI_SOCKADDR if that was asked, else what goes with the family. */
uint32_t vrc_info_addr_format(uint32_t hint, const struct sockaddr *sa);
/* Replaces an address; false: out of memory. */
bool vrc_info_set_addr(void **addr, size_t *addrlen, const struct sockaddr *sa);

/* vrc_nic.c */
/* Bits per second of an active link; 0: not known. */
size_t vrc_port_speed(const struct ibv_port_attr *port);
/* The device's description for fi_info.nic, freed and copied by libfabric
 * through its own ops. NULL: out of memory. */
struct fid_nic *vrc_nic_create(const struct vrc_dev *dev,
			       const struct vrc_addr *addr);

#endif
