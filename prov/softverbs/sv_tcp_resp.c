/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The peer's reads and atomics, from when they came in until they are answered,
 * in their order. An atomic is carried out when nothing stands before it, so it
 * sees and is seen as its place says; a read reads when its answer is put
 * together. What the peer may touch is checked then, segment by segment. All under
 * qp->lock.
 */
#include "sv_tcp.h"

static struct sv_tcp_ask *ask_at(struct sv_tcp *tcp, uint32_t i)
{
	return &tcp->asks[(tcp->ask_first + i) % SV_MAX_RD_ATOM];
}

static void ask_drop(struct sv_tcp *tcp)
{
	tcp->ask_first = (tcp->ask_first + 1) % SV_MAX_RD_ATOM;
	tcp->ask_cnt--;
	tcp->resp_mid = false;
}

void sv_tcp_asks_drop(struct sv_tcp *tcp)
{
	tcp->ask_cnt = 0;
	tcp->resp_mid = false;
}

static bool denied(struct sv_tcp *tcp, enum ibv_wc_status status, int event,
		   enum sv_term_code err)
{
	sv_tcp_asks_drop(tcp);
	sv_tcp_refuse(tcp, status, event, err);
	return false;
}

/* False: the peer may not, and has been told. */
static bool atomic_run(struct sv_tcp *tcp, struct sv_tcp_ask *ask)
{
	const struct sv_atomic_req *req = &ask->req;
	bool add = req->op == SV_ATOMIC_FETCH_ADD;
	struct sv_operands arg = {
		.compare_add = add ? req->swap_add : req->compare,
		.swap = req->swap_add,
	};
	char *to;

	if (ask->done)
		return true;
	if (req->to % sizeof(uint64_t))
		return denied(tcp, IBV_WC_REM_INV_REQ_ERR,
			      IBV_EVENT_QP_REQ_ERR, SV_TERM_OP_UNSPECIFIED);
	to = sv_link_target(&tcp->link, IBV_ACCESS_REMOTE_ATOMIC, req->stag,
			    req->to, sizeof(uint64_t));
	if (!to || (uintptr_t)to % sizeof(uint64_t))
		return denied(tcp, IBV_WC_REM_ACCESS_ERR,
			      IBV_EVENT_QP_ACCESS_ERR, SV_TERM_PROT_ACCESS);
	ask->value = sv_link_atomic(add, (uint64_t *)to, &arg);
	ask->done = true;
	return true;
}

static bool atomic_one(struct sv_tcp *tcp, struct sv_tcp_ask *ask)
{
	struct sv_ddp ddp = {
		.op = SV_RDMAP_ATOMIC_RESP,
		.last = true,
		.payload_len = SV_ATOMIC_RESP_LEN,
	};
	uint8_t data[SV_ATOMIC_RESP_LEN];

	if (!atomic_run(tcp, ask))
		return false;
	ddp.msn = ++tcp->tx_answer_msn;
	sv_atomic_resp_encode(data, &(struct sv_atomic_resp){
					    .id = ask->req.id,
					    .value = ask->value,
				    });
	sv_tcp_put(tcp, &ddp, data);
	ask_drop(tcp);
	return true;
}

static bool read_one(struct sv_tcp *tcp, struct sv_tcp_ask *ask)
{
	const struct sv_read_req *req = &ask->read;
	uint32_t len = min_size(req->len - ask->done_len, tcp->seg_max);
	struct sv_tcp_ref ref = {
		.key = req->src_stag,
		.access = IBV_ACCESS_REMOTE_READ,
	};
	struct sv_ddp ddp = {
		.op = SV_RDMAP_READ_RESP,
		.last = ask->done_len + len == req->len,
		.payload_len = len,
		.stag = req->sink_stag,
		.to = req->sink_to + ask->done_len,
	};
	const char *from = NULL;

	if (len) {
		from = sv_link_target(&tcp->link, ref.access, ref.key,
				      req->src_to + ask->done_len, len);
		if (!from)
			return denied(tcp, IBV_WC_REM_ACCESS_ERR,
				      IBV_EVENT_QP_ACCESS_ERR,
				      SV_TERM_PROT_ACCESS);
	}
	sv_tcp_put_mem(tcp, &ddp, &ref, from);
	ask->done_len += len;
	tcp->resp_mid = !ddp.last;
	if (ddp.last)
		ask_drop(tcp);
	return true;
}

bool sv_tcp_resp_one(struct sv_tcp *tcp)
{
	struct sv_tcp_ask *ask;

	if (!tcp->ask_cnt)
		return false;
	ask = ask_at(tcp, 0);
	return ask->atomic ? atomic_one(tcp, ask) : read_one(tcp, ask);
}

bool sv_tcp_ask_add(struct sv_tcp *tcp, const struct sv_tcp_ask *ask)
{
	struct sv_tcp_ask *to;

	if (tcp->ask_cnt >= tcp->link.qp->attr.max_dest_rd_atomic)
		return false;
	to = ask_at(tcp, tcp->ask_cnt++);
	*to = *ask;
	if (to->atomic && tcp->ask_cnt == 1)
		atomic_run(tcp, to);
	return true;
}
