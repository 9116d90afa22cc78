/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Access to the peer's memory: by process_vm_readv/writev, or plain memcpy if
 * the peer is this process. The target's CPU takes no part, so the rights are
 * checked here, against the table that the target publishes. That guards
 * against mistakes, as a key check does; against malice the kernel's own check
 * (same user, ptrace access) stands.
 *
 * While a copy runs, seg->busy in the target's segment names the region. The
 * target withdraws a region and then waits for busy to change; we set busy and
 * then look whether the region is still there. Both seq_cst: one sees the
 * other. Copies go in slices, so that the wait is short.
 */
#include "sv_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/*
 * Yama's mode 1 lets only a tracer that we name reach our memory. There is
 * one such name per process, and many peers: any process of our user.
 */
void sv_cma_allow(void)
{
	char mode = '0';
	int fd;

	fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (read(fd, &mode, 1) == 1 && mode == '1' &&
	    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0))
		sv_log("PR_SET_PTRACER: %m");
	close(fd);
}

/* SOFTVERBS_CMA=0 sends everything through the rings, as where it is forbidden. */
bool sv_cma_enabled(void)
{
	const char *knob = sv_env("SOFTVERBS_CMA");

	return !knob || strcmp(knob, "0") != 0;
}

/* Proves that pid is the peer and that we may read its memory. */
bool sv_cma_probe(pid_t pid, uint64_t addr, const uint8_t nonce[32])
{
	uint8_t got[32];
	struct iovec local = { .iov_base = got, .iov_len = sizeof(got) };
	struct iovec remote = {
		.iov_base = (void *)(uintptr_t)addr,
		.iov_len = sizeof(got),
	};

	if (pid <= 0 ||
	    process_vm_readv(pid, &local, 1, &remote, 1, 0) != sizeof(got)) {
		sv_log("no access to memory of process %d: %m", pid);
		return false;
	}
	return !memcmp(got, nonce, sizeof(got));
}

/*
 * Copies between local and one remote range; returns 0, or the errno that
 * stopped it. A short count means a fault further on: the next call, which
 * starts there, reports it.
 */
static int copy(struct sv_shm *shm, const struct iovec *local, int local_cnt,
		uint64_t remote, bool to_peer)
{
	struct iovec left[SV_MAX_SGE];
	struct iovec there;
	int i, first = 0;
	ssize_t n;

	memcpy(left, local, local_cnt * sizeof(*left));
	while (first < local_cnt) {
		there.iov_base = (void *)(uintptr_t)remote;
		there.iov_len = 0;
		for (i = first; i < local_cnt; i++)
			there.iov_len += left[i].iov_len;
		if (to_peer)
			n = process_vm_writev(shm->pid, &left[first],
					      local_cnt - first, &there, 1, 0);
		else
			n = process_vm_readv(shm->pid, &left[first],
					     local_cnt - first, &there, 1, 0);
		if (n <= 0)
			return n ? errno : EFAULT;
		remote += n;
		while (first < local_cnt && (size_t)n >= left[first].iov_len)
			n -= left[first++].iov_len;
		if (first < local_cnt) {
			left[first].iov_base = (char *)left[first].iov_base + n;
			left[first].iov_len -= n;
		}
	}
	return 0;
}

/* Not that something is missing: the process may not, or not any more. */
static bool is_forbidden(int err)
{
	return err == EPERM || err == EACCES || err == ENOSYS;
}

/* Whether it is our own memory that is not there: the kernel does not say. */
static __cold bool is_missing(const struct iovec *iov, int cnt)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct iovec byte, at;
	size_t off;
	char got;
	int i;

	byte = (struct iovec){ &got, 1 };
	for (i = 0; i < cnt; i++)
		for (off = 0; off < iov[i].iov_len;
		     off += page - ((uintptr_t)at.iov_base & (page - 1))) {
			at.iov_base = (char *)iov[i].iov_base + off;
			at.iov_len = 1;
			if (process_vm_readv(getpid(), &byte, 1, &at, 1, 0) < 0)
				return true;
		}
	return false;
}

static void copy_here(const struct iovec *local, int local_cnt, uint64_t there,
		      bool to_peer)
{
	char *remote = (void *)(uintptr_t)there;
	int i;

	for (i = 0; i < local_cnt; i++) {
		if (to_peer)
			memcpy(remote, local[i].iov_base, local[i].iov_len);
		else
			memcpy(local[i].iov_base, remote, local[i].iov_len);
		remote += local[i].iov_len;
	}
}

static uint32_t access_needed(const struct sv_swr *swr)
{
	return swr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ :
						 IBV_ACCESS_REMOTE_WRITE;
}

/* What the peer gives to all in its protection domain, or to its queue pair. */
static bool peer_grants(const struct sv_shm *shm, const struct sv_swr *swr,
			uint32_t offset, uint32_t len, uint64_t *va)
{
	const uint64_t addr = swr->raddr + offset;
	const uint32_t access = access_needed(swr);

	return likely(sv_mr_check(shm->mr_tbl, swr->rkey, shm->peer_pd, access,
				  addr, len, va)) ||
	       sv_mr_check(shm->mr_tbl, swr->rkey, shm->peer_window, access,
			   addr, len, va);
}

/* One slice of a WRITE or READ. */
static enum ibv_wc_status slice(struct sv_shm *shm, struct sv_swr *swr,
				uint32_t len)
{
	const bool write = swr->opcode != IBV_WR_RDMA_READ;
	const uint32_t access = access_needed(swr);
	enum ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
	struct iovec iov[SV_MAX_SGE], inl;
	const struct iovec *from = iov;
	uint64_t va;
	int cnt, err = 0;

	if (swr->flags & IBV_SEND_INLINE) {
		inl.iov_base = (char *)swr->sge + swr->offset;
		inl.iov_len = len;
		from = &inl;
		cnt = 1;
	} else {
		cnt = sv_sges_iov(swr->sge, swr->num_sge, swr->offset, len,
				  iov);
	}
	atomic_store(&shm->peer->busy, swr->rkey);
	if (!sv_shm_peer_open(shm)) {
		status = IBV_WC_RETRY_EXC_ERR;
	} else if (atomic_load(&shm->peer->access) & access &&
		   peer_grants(shm, swr, swr->offset, len, &va)) {
		if (shm->in_process)
			copy_here(from, cnt, va, write);
		else
			err = copy(shm, from, cnt, va, write);
		status = IBV_WC_SUCCESS;
	}
	atomic_store_explicit(&shm->peer->busy, 0, memory_order_release);
	if (err)
		sv_log("qp %06x: copy of %u bytes: %s", shm->link.qp->qp.qp_num,
		       len, strerror(err));
	if (is_forbidden(err))
		sv_shm_cma_lost(shm);
	/* ESRCH: died just now. What else is left is memory not there. */
	if (err == ESRCH)
		return IBV_WC_RETRY_EXC_ERR;
	if (err == EFAULT && is_missing(from, cnt))
		return IBV_WC_LOC_PROT_ERR;
	return err ? IBV_WC_REM_ACCESS_ERR : status;
}

bool sv_shm_direct(struct sv_shm *shm, struct sv_swr *swr, size_t *budget,
	       enum ibv_wc_status *status)
{
	uint32_t len;
	uint64_t va;

	*status = IBV_WC_SUCCESS;
	if (!swr->offset && swr->opcode == IBV_WR_RDMA_READ &&
	    !atomic_load(&shm->peer->rd_depth)) {
		*status = IBV_WC_REM_INV_REQ_ERR;
		return true;
	}
	/* IBTA: of a message without bytes the key is not looked at. */
	if (!swr->len)
		return true;
	/* The whole range first: a write that must fail changes nothing. */
	if (!swr->offset && swr->len > SV_SLICE &&
	    !peer_grants(shm, swr, 0, swr->len, &va)) {
		*status = IBV_WC_REM_ACCESS_ERR;
		return true;
	}
	while (swr->offset < swr->len) {
		if (!*budget)
			return false;
		len = min_size(min_size(swr->len - swr->offset, SV_SLICE),
			       *budget);
		*status = slice(shm, swr, len);
		if (*status != IBV_WC_SUCCESS)
			return true;
		swr->offset += len;
		*budget -= len;
	}
	return true;
}

/*
 * Receives a message by reading it out of the sender's memory. The sender
 * does not take its buffers back while busy is set; if it had already given
 * up the message, nothing is delivered: RETRY_EXC, which is not a status of
 * receives, says so. Its keys are looked at here, too: it may have withdrawn a
 * region meanwhile, and then waits for busy as it does for a WRITE.
 */
enum ibv_wc_status sv_shm_pull(struct sv_shm *shm, const struct ibv_sge *from,
			   int from_cnt, struct sv_rwr *rwr, uint32_t total)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct iovec iov[SV_MAX_SGE];
	uint32_t done = 0, off, len;
	int i, cnt, err = 0;

	atomic_store(&shm->peer->busy, SV_BUSY_PULL);
	if (!sv_shm_peer_open(shm)) {
		status = IBV_WC_RETRY_EXC_ERR;
		goto out;
	}
	for (i = 0; i < from_cnt && done < total; i++) {
		if (from[i].length &&
		    !sv_mr_check_va(shm->mr_tbl, from[i].lkey, shm->peer_pd,
				    SV_ACCESS_LOCAL, from[i].addr,
				    from[i].length)) {
			status = IBV_WC_REM_OP_ERR;
			goto out;
		}
		for (off = 0; off < from[i].length && done < total;
		     off += len, done += len) {
			len = min_size(from[i].length - off, total - done);
			cnt = sv_sges_iov(rwr->sge, rwr->num_sge, done, len,
					  iov);
			if (shm->in_process)
				copy_here(iov, cnt, from[i].addr + off, false);
			else
				err = copy(shm, iov, cnt, from[i].addr + off,
					   false);
			if (err) {
				status = err == ESRCH ? IBV_WC_RETRY_EXC_ERR :
							IBV_WC_REM_OP_ERR;
				goto out;
			}
		}
	}
	if (done != total)
		status = IBV_WC_REM_OP_ERR;
out:
	atomic_store_explicit(&shm->peer->busy, 0, memory_order_release);
	if (is_forbidden(err))
		sv_shm_cma_lost(shm);
	return status;
}
