/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Reading entries: the polling half of the hot path. Work completions are taken
 * from the device in batches into cq->wc and from there straight into the
 * caller's entries, by one body that is inlined once per entry format and
 * locking level. An ordinary completion succeeded, is to be seen, and retires
 * its record and no more; with the first that is not, or if something is kept
 * that comes before what the device has, the rest of the call goes the long way,
 * by way of struct vrc_comp (vrc_cq_read.c).
 */
#include "compiler.h"
#include "list.h"
#include "vrc_compat.h"
#include "vrc_cq.h"
#include "vrc_ep.h"
#include "word_lock.h"

/* The part of a completion that entries have. */
struct seen {
	void *context;
	uint64_t flags;
	size_t len;
	uint64_t data;
};

static __hot_inline size_t entry_size(const enum fi_cq_format format)
{
	switch (format) {
	case FI_CQ_FORMAT_CONTEXT:
		return sizeof(struct fi_cq_entry);
	case FI_CQ_FORMAT_MSG:
		return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA:
		return sizeof(struct fi_cq_data_entry);
	default:
		return sizeof(struct fi_cq_tagged_entry);
	}
}

static __hot_inline void entry_fill(void *entry, const struct seen *seen,
				    const enum fi_cq_format format)
{
	/* Each format begins with the one before it. */
	struct fi_cq_tagged_entry *e = entry;

	e->op_context = seen->context;
	if (format == FI_CQ_FORMAT_CONTEXT)
		return;
	e->flags = seen->flags;
	e->len = seen->len;
	if (format == FI_CQ_FORMAT_MSG)
		return;
	e->buf = NULL;
	e->data = seen->data;
	if (format == FI_CQ_FORMAT_TAGGED)
		e->tag = 0;
}

#define SAME_PLACE(struct_name, field)                                        \
	static_assert(offsetof(struct struct_name, field) ==                  \
			      offsetof(struct fi_cq_tagged_entry, field),     \
		      "the formats begin alike")
SAME_PLACE(fi_cq_entry, op_context);
SAME_PLACE(fi_cq_msg_entry, op_context);
SAME_PLACE(fi_cq_msg_entry, flags);
SAME_PLACE(fi_cq_msg_entry, len);
SAME_PLACE(fi_cq_data_entry, op_context);
SAME_PLACE(fi_cq_data_entry, flags);
SAME_PLACE(fi_cq_data_entry, len);
SAME_PLACE(fi_cq_data_entry, buf);
SAME_PLACE(fi_cq_data_entry, data);
#undef SAME_PLACE

/* Puts an ordinary completion into entry; false if it is none. */
static __hot_inline bool take(const struct ibv_wc *wc, void *entry,
			      const enum fi_cq_format format)
{
	const struct vrc_req *req =
		(const struct vrc_req *)(uintptr_t)wc->wr_id;
	struct vrc_ep *ep = req->ep;
	struct seen seen = { .context = req->context };

	if (unlikely(wc->status != IBV_WC_SUCCESS ||
		     req->flags != VRC_REQ_VISIBLE))
		return false;
	if (req->op == VRC_OP_RECV) {
		vrc_recv_seen(wc, &seen.flags, &seen.len, &seen.data);
		vrc_ring_retire(&ep->rx, req->next);
	} else {
		seen.flags = vrc_op_flags[req->op];
		vrc_ring_retire(&ep->tx, req->next);
	}
	entry_fill(entry, &seen, format);
	return true;
}

/* From the done-th entry on, the long way. Caller holds the lock if there is
 * one. */
static __noinline ssize_t read_on(struct vrc_cq *cq, char *entry, size_t count,
				  size_t done, enum fi_cq_format format)
{
	struct vrc_comp comp;
	bool drained = false;

	do {
		while (done < count) {
			if (cq->has_head)
				comp = cq->head;
			else if (!vrc_cq_next(cq, &comp, &drained))
				break;
			cq->has_head = comp.err != 0;
			if (comp.err) {
				cq->head = comp;
				return done ? (ssize_t)done : -FI_EAVAIL;
			}
			entry_fill(entry,
				   &(struct seen){ comp.context, comp.flags,
						   comp.len, comp.data },
				   format);
			entry += entry_size(format);
			done++;
		}
	} while (!done && vrc_cq_flushed(cq));
	return done ? (ssize_t)done : -FI_EAGAIN;
}

/* With room for none, programs drive progress: what nobody sees is retired, so
 * that what was full is not. 0 if there is something to read. */
static __cold ssize_t look(struct vrc_cq *cq)
{
	if (!vrc_cq_has_entry(cq))
		return -FI_EAGAIN;
	return cq->head.err ? -FI_EAVAIL : 0;
}

/* The device has none. */
static __hot_inline ssize_t read_none(struct vrc_cq *cq, char *entry,
				      size_t count, enum fi_cq_format format)
{
	if (likely(!atomic_load_explicit(&cq->due_cnt, memory_order_relaxed)))
		return -FI_EAGAIN;
	return read_on(cq, entry, count, 0, format);
}

/* One batch at most, so that nothing has to be kept across a second call of the
 * device. Caller holds the lock if there is one. */
static __hot_inline ssize_t entries_read(struct vrc_cq *cq, char *entry,
					 size_t count,
					 const enum fi_cq_format format)
{
	const struct ibv_wc *wc = cq->wc_next;
	size_t done = 0;

	if (unlikely(!count))
		return look(cq);
	if (unlikely(cq->has_head || !list_empty(&cq->soft)))
		return read_on(cq, entry, count, 0, format);
	if (wc == cq->wc_end) {
		if (!vrc_cq_poll(cq))
			return read_none(cq, entry, count, format);
		wc = cq->wc;
	}
	do {
		if (unlikely(!take(wc, entry, format))) {
			cq->wc_next = wc;
			return read_on(cq, entry, count, done, format);
		}
		entry += entry_size(format);
		wc++;
	} while (++done < count && wc != cq->wc_end);
	cq->wc_next = wc;
	return (ssize_t)done;
}

static __hot_inline ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count,
				    const enum fi_cq_format format,
				    const bool locked)
{
	struct vrc_cq *cq = vrc_cq(fid);
	ssize_t ret;

	if (locked)
		word_lock_take(&cq->lock);
	ret = entries_read(cq, buf, count, format);
	if (locked)
		word_lock_drop(&cq->lock);
	return ret;
}

static __hot_inline ssize_t cq_readfrom(struct fid_cq *fid, void *buf,
					size_t count, fi_addr_t *src_addr,
					const enum fi_cq_format format,
					const bool locked)
{
	ssize_t done = cq_read(fid, buf, count, format, locked);

	for (ssize_t i = 0; src_addr && i < done; i++)
		src_addr[i] = FI_ADDR_NOTAVAIL;
	return done;
}

/* One instance per entry format and locking level, and its table. */
#define VRC_CQ_OPS(name, format, locked)                                      \
	static ssize_t name##_read(struct fid_cq *cq, void *buf,              \
				   size_t count)                              \
	{                                                                     \
		return cq_read(cq, buf, count, format, locked);               \
	}                                                                     \
	static ssize_t name##_readfrom(struct fid_cq *cq, void *buf,          \
				       size_t count, fi_addr_t *src_addr)     \
	{                                                                     \
		return cq_readfrom(cq, buf, count, src_addr, format, locked); \
	}                                                                     \
	static const struct vrc_cq_table name##_table = {                     \
		.ops = {                                                      \
			.size = sizeof(struct fi_ops_cq),                     \
			.read = name##_read,                                  \
			.readfrom = name##_readfrom,                          \
			.readerr = vrc_cq_readerr,                            \
			.sread = vrc_cq_sread,                                \
			.sreadfrom = vrc_cq_sreadfrom,                        \
			.signal = vrc_cq_signal,                              \
			.strerror = vrc_cq_strerror,                          \
		},                                                            \
		VRC_LATER,                                                    \
	};

VRC_CQ_OPS(context, FI_CQ_FORMAT_CONTEXT, false)
VRC_CQ_OPS(msg, FI_CQ_FORMAT_MSG, false)
VRC_CQ_OPS(data, FI_CQ_FORMAT_DATA, false)
VRC_CQ_OPS(tagged, FI_CQ_FORMAT_TAGGED, false)
VRC_CQ_OPS(context_locked, FI_CQ_FORMAT_CONTEXT, true)
VRC_CQ_OPS(msg_locked, FI_CQ_FORMAT_MSG, true)
VRC_CQ_OPS(data_locked, FI_CQ_FORMAT_DATA, true)
VRC_CQ_OPS(tagged_locked, FI_CQ_FORMAT_TAGGED, true)

const struct fi_ops_cq *vrc_cq_ops(enum fi_cq_format format, bool locked)
{
	switch (format) {
	case FI_CQ_FORMAT_UNSPEC:
	case FI_CQ_FORMAT_CONTEXT:
		return locked ? &context_locked_table.ops : &context_table.ops;
	case FI_CQ_FORMAT_MSG:
		return locked ? &msg_locked_table.ops : &msg_table.ops;
	case FI_CQ_FORMAT_DATA:
		return locked ? &data_locked_table.ops : &data_table.ops;
	case FI_CQ_FORMAT_TAGGED:
		return locked ? &tagged_locked_table.ops : &tagged_table.ops;
	default:
		return NULL;
	}
}
