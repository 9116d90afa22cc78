/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a device can look like. The default is RoCE v2, because applications do
 * without features on iWARP; the others are there to be met by software that
 * will meet them in the field. Figures of the iWARP look are siw's.
 *
 * All of them carry their data in the same way. Adding a look means adding an
 * entry here, not an if elsewhere.
 */
#include "sv_int.h"

#include <errno.h>
#include <string.h>

#define LIMITS_CA                                                             \
	.qp = SV_MAX_QP, .qp_wr = SV_MAX_QP_WR, .sge = SV_MAX_SGE,            \
	.sge_rd = SV_MAX_SGE, .inline_data = SV_MAX_INLINE, .cq = SV_MAX_CQ,  \
	.cqe = SV_MAX_CQE, .srq = SV_MAX_SRQ, .srq_wr = SV_MAX_SRQ_WR,        \
	.mr = SV_MAX_MR / 2, .pd = SV_MAX_PD, .msg = SV_MAX_MSG,              \
	.rd_out = SV_MAX_RD_ATOM, .rd_in = SV_MAX_RD_ATOM, .mtu = 4096,  \
	.rnr_retry = 7

static const struct sv_persona personas[] = {
	{
		.name = "roce2",
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.gid_plan = SV_GID_V1_V2,
		.cm_gid_type = IBV_GID_TYPE_ROCE_V2,
		.needs_grh = true,
		.pd_max = { 56, 196, 148 },
		.has_timewait = true,
		.pkey_cnt = 1,
		.pkeys = { 0xffff },
		.lim = { LIMITS_CA, .gid = SV_MAX_GID },
	},
	{
		.name = "roce1",
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.gid_plan = SV_GID_V1,
		.cm_gid_type = IBV_GID_TYPE_ROCE_V1,
		.needs_grh = true,
		.pd_max = { 56, 196, 148 },
		.has_timewait = true,
		.pkey_cnt = 1,
		.pkeys = { 0xffff },
		.lim = { LIMITS_CA, .gid = SV_MAX_GID },
	},
	{
		.name = "ib",
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.link_layer = IBV_LINK_LAYER_INFINIBAND,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_SYS_IMAGE_GUID_SUP,
		.gid_plan = SV_GID_GUID,
		.cm_gid_type = IBV_GID_TYPE_IB,
		.has_lid = true,
		.pd_max = { 56, 196, 148 },
		.has_timewait = true,
		.pkey_cnt = 2,
		.pkeys = { 0xffff, 0x7fff },
		.lim = { LIMITS_CA, .gid = 8 },
	},
	{
		.name = "iwarp",
		.node_type = IBV_NODE_RNIC,
		.transport_type = IBV_TRANSPORT_IWARP,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP,
		.gid_plan = SV_GID_MAC,
		.cm_gid_type = IBV_GID_TYPE_IB,
		.no_imm = true,
		.no_atomics = true,
		.remote_sink = true,
		.cm_owns_qp = true,
		.pd_exact = true,
		.pd_max = { 251, 251, 251 },
		.rej_service = -ECONNREFUSED,
		.rej_other = -ECONNRESET,
		.lim = {
			.qp = SV_MAX_QP,
			.qp_wr = SV_MAX_QP_WR,
			.sge = 6,
			.sge_rd = 1,
			.inline_data = 80,
			.cq = SV_MAX_CQ,
			.cqe = 102400,
			.srq = SV_MAX_SRQ,
			.srq_wr = SV_MAX_SRQ_WR,
			.mr = SV_MAX_MR / 2,
			.pd = SV_MAX_PD,
			.msg = SV_MAX_MSG,
			.rd_out = SV_MAX_RD_ATOM,
			.rd_in = SV_MAX_RD_ATOM,
			.mtu = 4096,
			.rnr_retry = 7,
			.gid = 1,
		},
	},
};

const struct sv_persona *sv_persona_find(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(personas); i++)
		if (!strcmp(personas[i].name, name))
			return &personas[i];
	return NULL;
}

const char *sv_persona_names(void)
{
	return "roce2, roce1, ib, iwarp";
}

/* Called as ibv_device_attr calls them, where it does. */
static const struct {
	const char *name;
	size_t offset;
	uint32_t min;
	uint32_t max;
} limits[] = {
#define LIMIT(name, member, min, max) \
	{ name, offsetof(struct sv_limits, member), min, max }
	LIMIT("max_qp", qp, 0, SV_MAX_QP),
	LIMIT("max_qp_wr", qp_wr, 1, SV_MAX_QP_WR),
	LIMIT("max_sge", sge, 1, SV_MAX_SGE),
	LIMIT("max_sge_rd", sge_rd, 1, SV_MAX_SGE),
	LIMIT("max_inline", inline_data, 0, SV_MAX_INLINE),
	LIMIT("max_cq", cq, 0, SV_MAX_CQ),
	LIMIT("max_cqe", cqe, 1, SV_MAX_CQE),
	LIMIT("max_srq", srq, 0, SV_MAX_SRQ),
	LIMIT("max_srq_wr", srq_wr, 1, SV_MAX_SRQ_WR),
	LIMIT("max_mr", mr, 0, SV_MAX_MR / 2),
	LIMIT("max_pd", pd, 0, SV_MAX_PD),
	LIMIT("max_msg_sz", msg, 1, SV_MAX_MSG),
	LIMIT("max_qp_init_rd_atom", rd_out, 0, SV_MAX_RD_ATOM),
	LIMIT("max_qp_rd_atom", rd_in, 0, SV_MAX_RD_ATOM),
	LIMIT("mtu", mtu, 256, 4096),
	LIMIT("rnr_retry", rnr_retry, 0, 7),
	LIMIT("gid_tbl_len", gid, 1, SV_MAX_GID),
#undef LIMIT
};

uint32_t *sv_limit_find(struct sv_limits *lim, const char *name, uint32_t *min,
			uint32_t *max)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(limits); i++) {
		if (strcmp(limits[i].name, name))
			continue;
		*min = limits[i].min;
		*max = limits[i].max;
		return (uint32_t *)((char *)lim + limits[i].offset);
	}
	return NULL;
}
