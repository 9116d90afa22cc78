/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The numbers of queue pairs, and the table that finds them.
 *
 * A number says where its queue pair can be found by a peer that knows only GID
 * and number:
 *
 *	23          8 7       0
 *	 TCP port     index
 *
 * The port belongs to this process, one for each 256 queue pairs. It is only
 * bound, which keeps others off it; sv_rdv.c listens there when a queue
 * pair is connected without rdma_cm. A port once had is kept: whoever needed it
 * will need it again. Indices go round, so that a number that was given back
 * is not used again soon.
 *
 * Where no port can be had the number is random, and the queue pair can be
 * connected by rdma_cm only.
 */
#include "sv_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	BUCKETS = 4096,
	INDEX_BITS = 8,
	INDEX_CNT = 1 << INDEX_BITS,
	/* One index of each stays free: of the last port it is multicast's. */
	PORT_MAX_USED = INDEX_CNT - 1,
	MAX_PORTS = SV_MAX_QP / PORT_MAX_USED + 1,
	QPN_MAX = 0xfffffe,
};

struct qp_port {
	int sock;
	uint16_t port;
	uint8_t next; /* index to try first */
	unsigned int used; /* how many indices are */
};

static struct lock table_lock = { PTHREAD_MUTEX_INITIALIZER };
/* table_lock */
static struct sv_qp *table[BUCKETS];
static uint32_t table_cnt;
static struct qp_port ports[MAX_PORTS];
static unsigned int port_cnt;

/* ---- ports. Caller holds table_lock. ---- */

/* Positive errno. One socket for both families, if there are two. */
static int port_bind(int *sock, uint16_t *port)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
	socklen_t len;
	int off = 0;
	int err;
	int fd;

	fd = socket(AF_INET6, type, 0);
	if (fd >= 0) {
		len = sizeof(v6);
		if (!setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off,
				sizeof(off)) &&
		    !bind(fd, (struct sockaddr *)&v6, len) &&
		    !getsockname(fd, (struct sockaddr *)&v6, &len)) {
			*port = ntohs(v6.sin6_port);
			goto out;
		}
		close(fd);
	}
	fd = socket(AF_INET, type, 0);
	if (fd < 0)
		return errno;
	len = sizeof(v4);
	if (bind(fd, (struct sockaddr *)&v4, len) ||
	    getsockname(fd, (struct sockaddr *)&v4, &len)) {
		err = errno;
		close(fd);
		return err;
	}
	*port = ntohs(v4.sin_port);
out:
	*sock = fd;
	return 0;
}

static struct qp_port *port_new(void)
{
	struct qp_port *port = &ports[port_cnt];
	int err;

	if (port_cnt == MAX_PORTS)
		return NULL;
	err = port_bind(&port->sock, &port->port);
	if (err) {
		sv_log("no TCP port for the numbers of queue pairs: %s",
		       strerror(err));
		return NULL;
	}
	port->used = 0;
	sv_random(&port->next, sizeof(port->next));
	port_cnt++;
	return port;
}

static struct qp_port *port_of(uint32_t qpn)
{
	unsigned int i;

	for (i = 0; i < port_cnt; i++)
		if (ports[i].port == sv_qpn_port(qpn))
			return &ports[i];
	return NULL;
}

static struct qp_port *port_with_room(void)
{
	unsigned int i;

	for (i = 0; i < port_cnt; i++)
		if (ports[i].used < PORT_MAX_USED)
			return &ports[i];
	return port_new();
}

int sv_qpn_sock(uint32_t qpn)
{
	struct qp_port *port;
	int sock;

	lock_take(&table_lock);
	port = port_of(qpn);
	sock = port ? port->sock : -1;
	lock_drop(&table_lock);
	return sock;
}

/* ---- the table. Caller holds table_lock. ---- */

static struct sv_qp **table_slot(uint32_t qpn)
{
	struct sv_qp **pos = &table[qpn % BUCKETS];

	while (*pos && (*pos)->qp.qp_num != qpn)
		pos = &(*pos)->hash_next;
	return pos;
}

static bool qpn_is_free(uint32_t qpn)
{
	/* 0 and 1 are management's. */
	return qpn >= 2 && qpn <= QPN_MAX && !*table_slot(qpn);
}

static uint32_t qpn_of_port(struct qp_port *port)
{
	uint32_t qpn;

	do {
		qpn = (uint32_t)port->port << INDEX_BITS | port->next++;
	} while (!qpn_is_free(qpn));
	port->used++;
	return qpn;
}

/* Not one that seems to be of a port of ours: it would be counted there. */
static uint32_t qpn_random(void)
{
	uint32_t qpn;

	do {
		sv_random(&qpn, sizeof(qpn));
		qpn &= 0xffffff;
	} while (!qpn_is_free(qpn) || port_of(qpn));
	return qpn;
}

/* ---- what others call ---- */

int sv_qpn_add(struct sv_qp *qp)
{
	struct qp_port *port;
	struct sv_qp **pos;
	uint32_t qpn;

	lock_take(&table_lock);
	if (table_cnt == SV_MAX_QP) {
		lock_drop(&table_lock);
		return ENOMEM;
	}
	port = port_with_room();
	qpn = port ? qpn_of_port(port) : qpn_random();
	qp->qp.qp_num = qpn;
	qp->qp.handle = qpn;
	qp->hash_next = NULL;
	pos = table_slot(qpn);
	*pos = qp;
	table_cnt++;
	lock_drop(&table_lock);
	return 0;
}

void sv_qpn_del(struct sv_qp *qp)
{
	struct qp_port *port;
	struct sv_qp **pos;

	lock_take(&table_lock);
	pos = table_slot(qp->qp.qp_num);
	if (*pos == qp) {
		*pos = qp->hash_next;
		table_cnt--;
		port = port_of(qp->qp.qp_num);
		if (port)
			port->used--;
	}
	lock_drop(&table_lock);
}

struct sv_qp *sv_qp_find(uint32_t qpn)
{
	struct sv_qp *qp;

	lock_take(&table_lock);
	qp = *table_slot(qpn);
	if (qp)
		sv_qp_get(qp);
	lock_drop(&table_lock);
	return qp;
}

/* qp->lock comes before table_lock: fn is called without it. */
void sv_qp_for_each(void (*fn)(struct sv_qp *qp, void *arg), void *arg)
{
	uint32_t i, cnt = 0;
	struct sv_qp **all, *qp;

	lock_take(&table_lock);
	all = calloc(table_cnt + 1, sizeof(*all));
	for (i = 0; all && i < BUCKETS; i++)
		for (qp = table[i]; qp; qp = qp->hash_next) {
			sv_qp_get(qp);
			all[cnt++] = qp;
		}
	lock_drop(&table_lock);
	for (i = 0; i < cnt; i++) {
		fn(all[i], arg);
		sv_qp_put(all[i]);
	}
	free(all);
}

static void ports_close(void)
{
	while (port_cnt)
		close(ports[--port_cnt].sock);
}

/* The ports stay the parent's. */
void sv_qpn_fork_child(void)
{
	lock_init(&table_lock);
	memset(table, 0, sizeof(table));
	table_cnt = 0;
	ports_close();
}
