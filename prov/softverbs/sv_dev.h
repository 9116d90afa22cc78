/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Devices: what one looks like (its persona), how much it has (its limits),
 * and its tables. For all of softverbs; sv_int.h includes it.
 *
 *	sv_persona.c	the looks, a const table
 *	sv_devspec.c	SOFTVERBS_DEVICES: which devices there are
 *	sv_device.c	their list, their contexts, what they have given away
 *	sv_gid.c	whose an address is; GID tables
 *	sv_query.c	what they say of themselves
 *
 * Persona, limits and name never change once the device is in the list.
 */
#ifndef SV_DEV_H
#define SV_DEV_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "lock.h"

enum {
	SV_MAX_DEV = 16,
	SV_MAX_DEV_NETDEV = 8,
	SV_MAX_DEV_ADDR = 128,
	SV_MAX_GID = 128,
	SV_MAX_PKEY = 128,
	SV_MAX_LID = 0xbfff, /* above are multicast's */
	SV_MAX_QP = 65536,
	SV_MAX_QP_WR = 32768,
	SV_MAX_SRQ = 65536,
	SV_MAX_SRQ_WR = 32768,
	SV_MAX_CQ = 65536,
	SV_MAX_CQE = 4 << 20,
	SV_MAX_SGE = 16,
	SV_MAX_INLINE = 512,
	SV_MAX_MR = 1 << 18,
	SV_MAX_PD = 1 << 20,
	SV_MAX_RD_ATOM = 128,
	SV_NUM_COMP_VECTORS = 1,
	SV_PORT = 1,
	SV_VENDOR_ID = 0x025376, /* nobody has it: locally administered, "Sv" */
};

#define SV_MAX_MSG (1u << 31)
#define SV_MAX_MR_SIZE (1ull << 47)

/* All of one type: sv_limit_find() tells them by offset. */
struct sv_limits {
	uint32_t qp;
	uint32_t qp_wr;
	uint32_t sge;
	uint32_t sge_rd;
	uint32_t inline_data; /* bytes */
	uint32_t cq;
	uint32_t cqe;
	uint32_t srq;
	uint32_t srq_wr;
	uint32_t mr;
	uint32_t pd;
	uint32_t msg; /* bytes */
	uint32_t rd_out; /* reads and atomics in flight, of one QP */
	uint32_t rd_in; /* those that one QP answers at a time */
	uint32_t mtu; /* bytes */
	uint32_t rnr_retry; /* at most, by rdma_cm; 7: for ever */
	uint32_t gid; /* length of the table */
};

/* What the messages of connecting carry of the application's. */
enum sv_cm_msg {
	SV_CM_REQ,
	SV_CM_REP,
	SV_CM_REJ,
	SV_CM_MSGS,
};

enum sv_gid_plan {
	SV_GID_V1_V2, /* each address twice */
	SV_GID_V1,
	SV_GID_GUID, /* one: the subnet prefix and the GUID */
	SV_GID_MAC, /* one: the MAC address and zeros */
};

struct sv_persona {
	const char *name;
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	uint8_t link_layer;
	uint32_t port_cap_flags;
	enum sv_gid_plan gid_plan;
	enum ibv_gid_type cm_gid_type; /* the entry that rdma_cm picks */
	bool has_lid;
	bool needs_grh; /* addresses by GID only */
	bool no_imm;
	bool no_atomics;
	/* Of a read the memory that it fills must be writable by the peer. */
	bool remote_sink;
	/*
	 * iWARP: queue pair and connection are one. rdma_cm moves the queue
	 * pair, its attributes are not asked for, and it ends with the
	 * connection; no receive for a message ends both.
	 */
	bool cm_owns_qp;
	bool pd_exact; /* private data has the length that the peer gave it */
	uint8_t pd_max[SV_CM_MSGS];
	bool has_timewait;
	/* A rejection's status: nobody listens, all else. 0: IB's numbers. */
	int rej_service;
	int rej_other;
	uint32_t pkey_cnt;
	uint16_t pkeys[4];
	struct sv_limits lim;
};

enum sv_gid_state {
	SV_GID_FREE,
	SV_GID_AUTO, /* an address of this machine */
	SV_GID_SET, /* by a specification or an edit: stays */
	SV_GID_HOLE, /* the same, empty */
	SV_GID_BROKEN, /* the same, cannot be read */
};

struct sv_gid {
	union ibv_gid gid;
	enum ibv_gid_type type;
	uint32_t ifindex;
	enum sv_gid_state state;
	int err; /* BROKEN: a positive errno */
};

struct sv_dev_addr {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	};
	uint32_t ifindex;
};

enum sv_res {
	SV_RES_PD,
	SV_RES_MR,
	SV_RES_CQ,
	SV_RES_SRQ,
	SV_RES_QP,
	SV_RES_CNT,
};

struct sv_dev {
	struct ibv_device device; /* first: applications see only this */
	/*
	 * rdma-core's private struct verbs_device continues here, and
	 * libraries such as libmlx5 look at ops to tell whose device it is.
	 */
	const void *ops;
	int refcount;
	struct list node;
	void *sysfs;
	uint64_t core_support;
	/* ours; constant */
	const struct sv_persona *persona;
	struct sv_limits lim;
	unsigned int index; /* in the list */
	/* Whose addresses it has. None of both: all that nobody else wants. */
	char netdevs[SV_MAX_DEV_NETDEV][IF_NAMESIZE];
	unsigned int netdev_cnt;
	struct sv_dev_addr wanted[SV_MAX_DEV_NETDEV];
	unsigned int wanted_cnt;
	bool gid_manual; /* the machine's addresses do not fill the table */
	bool lid_given;

	atomic_int used[SV_RES_CNT];

	struct lock lock; /* guards all below */
	bool identified;
	__be64 guid;
	struct sv_dev_addr addrs[SV_MAX_DEV_ADDR];
	unsigned int addr_cnt;
	struct sv_gid gid_tbl[SV_MAX_GID];
	uint16_t pkeys[SV_MAX_PKEY]; /* 0: invalid entry */
	uint32_t pkey_cnt;
	uint16_t lid;
	uint16_t sm_lid;
	enum ibv_port_state port_state;
	struct ibv_context *shared; /* shared_lock in sv_device.c */
};

/*
 * sv_persona.c. NULL: no such look. names: all of them, for messages.
 * limit_find: where a limit of this name is, and its range; NULL: none is
 * called so.
 */
const struct sv_persona *sv_persona_find(const char *name);
const char *sv_persona_names(void);
uint32_t *sv_limit_find(struct sv_limits *lim, const char *name, uint32_t *min,
			uint32_t *max);

/*
 * sv_devspec.c. Makes the devices that text names, at most max; returns how many
 * it made. What is wrong is said on stderr, and its device left out. look: for
 * those that name no persona; NULL: the default.
 */
unsigned int sv_devspec_parse(const char *text, const char *look,
			      struct sv_dev **devs, unsigned int max);
struct sv_dev *sv_dev_new(const char *name, const struct sv_persona *persona);
void sv_dev_free(struct sv_dev *dev); /* one that is in no list */

/*
 * sv_device.c. The list, made on first use; constant then. take: false if the
 * device has given away all that it has of this kind.
 */
unsigned int sv_dev_list(struct sv_dev ***devs);
struct sv_dev *sv_dev_by_name(const char *name);
bool sv_dev_take(struct sv_dev *dev, enum sv_res res);
void sv_dev_give(struct sv_dev *dev, enum sv_res res);
/*
 * The context that ids of this device get as id->verbs; opened on first use,
 * stays open.
 */
struct ibv_context *sv_ctx_shared(struct sv_dev *dev);

/*
 * sv_gid.c. of_addr: how RoCE writes an IPv4 or IPv6 address. find: whose this address of the machine is (all of 127/8 is the
 * machine's), NULL if nobody's, and the index of the GID that rdma_cm picks
 * for it; addresses are read anew if it is not found at first. refresh: reads
 * them. path: the GID and LID that stand for an address on the fabric of dev,
 * whether it is ours or a peer's. of_path: the other way round, where it has
 * LIDs; gid may be NULL, then it is known to devices of this machine only.
 */
void sv_gid_of_addr(const struct sockaddr *addr, union ibv_gid *gid);
struct sv_dev *sv_dev_find(const struct sockaddr *addr, int *gid_index);
int sv_dev_gid_index(const struct sockaddr *addr);
void sv_dev_refresh(void);
void sv_dev_path(struct sv_dev *dev, const struct sockaddr *addr,
		 union ibv_gid *gid, uint16_t *lid);
bool sv_dev_of_path(const union ibv_gid *gid, uint16_t lid,
		    struct sv_dev_addr *addr);
void sv_gid_fork_child(void);

#endif
