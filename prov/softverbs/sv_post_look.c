/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Posting on a look that has less than the device can do: immediates, atomics,
 * more than one SGE of a read. Other looks do not come here at all.
 */
#include "sv_int.h"

#include <errno.h>

static bool wr_fits(const struct sv_dev *dev, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return !dev->persona->no_imm;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return !dev->persona->no_atomics;
	case IBV_WR_RDMA_READ:
		return wr->num_sge <= (int)dev->lim.sge_rd;
	default:
		return true;
	}
}

/* What stands before the one that does not fit is posted, as always. */
int sv_post_send_look(struct ibv_qp *qp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad_wr)
{
	const struct sv_dev *dev = sv_qp(qp)->ctx->dev;
	struct ibv_send_wr *last = NULL, *bad = wr;
	int err;

	while (bad && wr_fits(dev, bad)) {
		last = bad;
		bad = bad->next;
	}
	if (!bad)
		return sv_post_send(qp, wr, bad_wr);
	if (last) {
		last->next = NULL;
		err = sv_post_send(qp, wr, bad_wr);
		last->next = bad;
		if (err)
			return err;
	}
	*bad_wr = bad;
	return EINVAL;
}
