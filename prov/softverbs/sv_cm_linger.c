/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Listeners that were closed a moment ago. A program may close its listener only
 * to open it anew, as perftest's server between its two connections; on a busy
 * machine that takes a tenth of a second and more. Whoever connects meanwhile
 * would be refused. So a socket that has listened stays as it is for a little
 * while: the kernel queues who comes, and whoever binds to the same address again
 * in this process goes on with it. When the time is over, those that wait are
 * refused. A port where nobody has listened just before is refused at once.
 *
 * Only for ids that ask for it, librdmacm.so.1's: vrc's programs close a listener
 * when they want no more of it, and then its port is free, and refuses, at once.
 *
 * All under sv_cm.lock.
 */
#include "sv_cm.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	LINGER_MS = 3000,
	LINGER_MAX = 16, /* sockets; for more, the oldest goes */
};

struct sv_linger {
	struct list node; /* oldest first */
	struct sv_timer timer;
	struct sv_defer defer;
	struct sockaddr_storage addr;
	bool af_only;
	int sock;
	struct sv_id *id; /* whose the socket is: bound again, not listening */
};

static struct list lingers = { &lingers, &lingers };

static void linger_free(struct sv_defer *defer)
{
	free(container_of(defer, struct sv_linger, defer));
}

/* The socket is somebody else's, or closed. */
static void forget(struct sv_linger *linger)
{
	list_del(&linger->node);
	sv_timer_cancel(&linger->timer);
	sv_engine_defer(&linger->defer, linger_free);
}

/*
 * Ends listening, and keeps the port: a port that the kernel had chosen is bound
 * again, one that was asked for the kernel has not let go, and refuses.
 */
static void unlisten(struct sv_linger *linger)
{
	const struct sockaddr *addr = (struct sockaddr *)&linger->addr;

	shutdown(linger->sock, SHUT_RD);
	if (bind(linger->sock, addr, sv_addr_len(addr)) && errno != EINVAL)
		sv_log("cm: a port is lost: %m");
}

static void end(struct sv_linger *linger)
{
	if (linger->id)
		unlisten(linger);
	else
		close(linger->sock);
	forget(linger);
}

static void on_over(void *arg)
{
	struct sv_linger *linger = arg;

	lock_take(&sv_cm.lock);
	if (sv_timer_expired(&linger->timer))
		end(linger);
	lock_drop(&sv_cm.lock);
}

static struct sv_linger *find(const struct sv_id *id)
{
	struct sv_linger *linger;
	struct list *pos;

	list_for_each(pos, &lingers) {
		linger = list_entry(pos, struct sv_linger, node);
		if (linger->id == id)
			return linger;
	}
	return NULL;
}

static void make_room(void)
{
	struct list *pos;
	int cnt = 0;

	list_for_each(pos, &lingers)
		cnt++;
	if (cnt >= LINGER_MAX)
		end(list_entry(lingers.next, struct sv_linger, node));
}

void sv_cm_keep_port(struct rdma_cm_id *cm_id)
{
	lock_take(&sv_cm.lock);
	sv_id(cm_id)->keep_port = true;
	lock_drop(&sv_cm.lock);
}

void sv_linger_leave(struct sv_id *id)
{
	struct sv_linger *linger = find(id);
	int sock = id->sock;

	id->sock = -1;
	if (linger) {
		linger->id = NULL;
		return;
	}
	linger = NULL;
	if (id->keep_port && id->state == SV_ID_LISTEN)
		linger = calloc(1, sizeof(*linger));
	if (!linger) {
		close(sock);
		return;
	}
	make_room();
	sv_addr_copy(&linger->addr, &id->id.route.addr.src_addr);
	linger->af_only = id->af_only;
	linger->sock = sock;
	list_add_tail(&lingers, &linger->node);
	sv_timer_set(&linger->timer, LINGER_MS, on_over, linger);
}

int sv_linger_take(struct sv_id *id, const struct sockaddr *addr)
{
	struct sockaddr_storage same = { 0 };
	struct list *pos, *tmp;
	struct sv_linger *linger;

	sv_addr_copy(&same, addr);
	list_for_each_safe(pos, tmp, &lingers) {
		linger = list_entry(pos, struct sv_linger, node);
		if (linger->id || sv_addr_port(addr) !=
		    sv_addr_port((struct sockaddr *)&linger->addr))
			continue;
		if (linger->af_only == id->af_only &&
		    !memcmp(&same, &linger->addr, sizeof(same))) {
			linger->id = id;
			return linger->sock;
		}
		/* It would be in the way. */
		end(linger);
	}
	return -1;
}

void sv_linger_end(struct sv_id *id, bool listens)
{
	struct sv_linger *linger = find(id);

	if (linger && listens)
		forget(linger);
	else if (linger)
		end(linger);
}

void sv_linger_fork_child(void)
{
	struct sv_linger *linger;
	struct list *pos;

	while ((pos = list_pop(&lingers))) {
		linger = list_entry(pos, struct sv_linger, node);
		if (!linger->id)
			close(linger->sock);
		free(linger);
	}
}
