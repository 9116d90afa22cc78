/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Shared memory: making our segment, and mapping what a peer sent us. A file
 * that could shrink under us would mean SIGBUS, so seals and size are verified
 * before anything is mapped.
 */
#include "sv_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct lock peers_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct list peers = { &peers, &peers }; /* peers_lock */

/* ---- segments ---- */

int sv_seg_create(struct sv_seg **out, int *out_fd)
{
	const size_t size = sizeof(struct sv_seg);
	struct sv_seg *seg;
	int err, fd;

	err = sv_memfd_create("softverbs-link", size, &fd);
	if (err)
		return err;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto err_close;
	seg = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (seg == MAP_FAILED)
		goto err_close;
	seg->magic = SV_SEG_MAGIC;
	seg->version = SV_LINK_VERSION;
	seg->size = size;
	*out_fd = fd;
	*out = seg;
	return 0;

err_close:
	err = errno;
	close(fd);
	return err;
}

/* A sealed memfd of at least this size. Positive errno. */
static int fd_check(int fd, size_t size, bool exact)
{
	const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & want) != want || fstat(fd, &st))
		return EPROTO;
	if ((size_t)st.st_size < size || (exact && (size_t)st.st_size != size))
		return EPROTO;
	return 0;
}

int sv_seg_map_peer(int fd, struct sv_seg **out)
{
	const size_t size = sizeof(struct sv_seg);
	struct sv_seg *seg;
	int err;

	err = fd_check(fd, size, true);
	if (err)
		return err;
	seg = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (seg == MAP_FAILED)
		return errno;
	if (seg->magic != SV_SEG_MAGIC || seg->version != SV_LINK_VERSION ||
	    seg->size != size) {
		munmap(seg, size);
		return EPROTO;
	}
	*out = seg;
	return 0;
}

void sv_seg_unmap(struct sv_seg *seg)
{
	if (seg)
		munmap(seg, sizeof(*seg));
}

/* ---- peers' MR tables ---- */

static const size_t tbl_size = SV_MAX_MR * sizeof(struct sv_mr_ent);

/* Caller holds peers_lock. */
static int tbl_map(const struct stat *st, int fd, struct sv_peer_tbl **out)
{
	struct sv_peer_tbl *tbl;
	void *map;
	int err;

	tbl = calloc(1, sizeof(*tbl));
	if (!tbl)
		return ENOMEM;
	map = mmap(NULL, tbl_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		err = errno;
		free(tbl);
		return err;
	}
	tbl->dev = st->st_dev;
	tbl->ino = st->st_ino;
	tbl->tbl = map;
	tbl->refs = 1;
	list_add_tail(&peers, &tbl->node);
	*out = tbl;
	return 0;
}

/*
 * Tables are told apart by the file that they are, not by what a peer says
 * who it is: a liar must not get its table used for links to others.
 */
int sv_peer_tbl_get(int fd, struct sv_peer_tbl **out)
{
	struct sv_peer_tbl *tbl;
	struct list *pos;
	struct stat st;
	int err;

	err = fd_check(fd, tbl_size, false);
	if (err)
		return err;
	if (fstat(fd, &st))
		return errno;
	lock_take(&peers_lock);
	list_for_each(pos, &peers) {
		tbl = list_entry(pos, struct sv_peer_tbl, node);
		if (tbl->dev == st.st_dev && tbl->ino == st.st_ino) {
			tbl->refs++;
			*out = tbl;
			goto out;
		}
	}
	err = tbl_map(&st, fd, out);
out:
	lock_drop(&peers_lock);
	return err;
}

void sv_peer_tbl_put(struct sv_peer_tbl *tbl)
{
	bool last;

	if (!tbl)
		return;
	lock_take(&peers_lock);
	last = --tbl->refs == 0;
	if (last)
		list_del(&tbl->node);
	lock_drop(&peers_lock);
	if (!last)
		return;
	munmap((void *)tbl->tbl, tbl_size);
	free(tbl);
}

void sv_peer_tbl_fork_child(void)
{
	lock_init(&peers_lock);
	list_init(&peers);
}
