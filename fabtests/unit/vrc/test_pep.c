/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Passive endpoints and connection requests against a scripted rdma_cm.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include <rdma/fi_cm.h>

#include "fake.h"
#include "fake_alloc.h"
#include "vrc_cmdata.h"
#include "vrc_pep.h"

static struct vrc_eq *eq;
static struct vrc_pep *pep;
static struct fi_info *info;

static struct vrc_pep *open_pep(const union vrc_sockaddr *src,
				uint32_t addr_format)
{
	struct fid_pep *fid;

	info = fi_allocinfo();
	info->ep_attr->type = FI_EP_MSG;
	info->addr_format = addr_format;
	if (src) {
		info->src_addrlen = vrc_sockaddr_len(&src->sa);
		info->src_addr = malloc(info->src_addrlen);
		memcpy(info->src_addr, src, info->src_addrlen);
	}
	cr_assert_eq(vrc_pep_open(&fake_fabric()->fid, info, &fid, NULL), 0);
	fi_freeinfo(info);
	return vrc_pep(fid);
}

static void init(void)
{
	union vrc_sockaddr src = fake_addr(1, 0);

	fake_reset();
	eq = fake_eq(fake_fabric(), FI_WAIT_FD, 0);
	pep = open_pep(&src, FI_SOCKADDR_IN);
	cr_assert_eq(fi_pep_bind(&pep->fid, &eq->fid.fid, 0), 0);
}

static void fini(void)
{
	if (pep)
		cr_assert_eq(fi_close(&pep->fid.fid), 0);
	if (eq)
		fake_eq_close(eq);
	cr_assert_eq(fake_fabric()->ref, 0);
	fake_check_clean();
}

static void request(const char *data)
{
	union vrc_sockaddr peer = fake_addr(9, 999);
	uint8_t wire[VRC_CM_WIRE_SIZE];

	static const struct vrc_peer self = { .posted = 64 };

	vrc_cmdata_encode(wire, data, strlen(data), &self);
	fake_request(pep->ids[0].id, &peer.sa, wire, sizeof(wire));
}

/* Reads FI_CONNREQ; the caller frees the info. */
static struct fi_info *read_request(void)
{
	struct fi_eq_cm_entry entry;

	cr_assert_eq(fake_read(eq, &entry), FI_CONNREQ);
	cr_assert_eq(entry.fid, &pep->fid.fid);
	return entry.info;
}

CLEAN_TEST(pep, name_is_real)
{
	union vrc_sockaddr name, again;
	size_t len = 0;

	cr_assert_eq(fi_getname(&pep->fid.fid, NULL, &len), -FI_ETOOSMALL);
	cr_assert_eq(len, sizeof(name.in));
	cr_assert_eq(fi_getname(&pep->fid.fid, &name, &len), 0);
	cr_assert_neq(name.in.sin_port, 0);
	cr_assert_eq(fi_listen(&pep->fid), 0);
	cr_assert_eq(fi_getname(&pep->fid.fid, &again, &len), 0);
	cr_assert_arr_eq(&name, &again, sizeof(name.in));
	cr_assert_eq(fake.calls[FAKE_BIND], 1);
	cr_assert_eq(fi_listen(&pep->fid), -FI_EOPBADSTATE);
}

CLEAN_TEST(pep, setname_binds_anew)
{
	union vrc_sockaddr src = fake_addr(2, 7777), name;
	size_t len = sizeof(name);

	fi_getname(&pep->fid.fid, &name, &len);
	cr_assert_eq(fi_setname(&pep->fid.fid, &src, sizeof(src.in)), 0);
	cr_assert_eq(fake.ids, 1);
	cr_assert_eq(fi_getname(&pep->fid.fid, &name, &len), 0);
	cr_assert_arr_eq(&name, &src, sizeof(src.in));
	src = fake_addr(77, 7777);
	cr_assert_eq(fi_setname(&pep->fid.fid, &src, sizeof(src.in)),
		     -FI_EADDRNOTAVAIL);
	src.sa.sa_family = AF_UNIX;
	cr_assert_eq(fi_setname(&pep->fid.fid, &src, sizeof(src.in)),
		     -FI_EINVAL);
	cr_assert_eq(fi_setname(&pep->fid.fid, &src, 1), -FI_EINVAL);
	cr_assert_eq(fi_listen(&pep->fid), 0);
	cr_assert_eq(fi_setname(&pep->fid.fid, &name, len), -FI_EOPBADSTATE);
}

static void wildcard(uint32_t format, int family, int afonly)
{
	union vrc_sockaddr any = { .in.sin_family = AF_INET }, name;
	struct vrc_pep *p = open_pep(&any, format);
	size_t len = sizeof(name);

	fake.afonly = -1;
	cr_assert_eq(fi_pep_bind(&p->fid, &eq->fid.fid, 0), 0);
	cr_assert_eq(fi_listen(&p->fid), 0);
	cr_assert_eq(fake.bound.sa.sa_family, family);
	cr_assert_eq(fake.afonly, afonly);
	/* The application asked for IPv4 and is told IPv4. */
	cr_assert_eq(fi_getname(&p->fid.fid, &name, &len), 0);
	cr_assert_eq(name.sa.sa_family, AF_INET);
	cr_assert_neq(name.in.sin_port, 0);
	cr_assert_eq(fi_close(&p->fid.fid), 0);
}

CLEAN_TEST(pep, wildcard_takes_both_families)
{
	wildcard(FI_FORMAT_UNSPEC, AF_INET6, 0);
	wildcard(FI_SOCKADDR, AF_INET6, 0);
	wildcard(FI_SOCKADDR_IN, AF_INET, -1);
	/* A host without IPv6. */
	fake.fail[FAKE_BIND] = EAFNOSUPPORT;
	fake.afonly = -1;
	wildcard(FI_SOCKADDR, AF_INET, 0);
}

CLEAN_TEST(pep, busy_port)
{
	union vrc_sockaddr any = { .in.sin_family = AF_INET };
	struct vrc_pep *p = open_pep(&any, FI_SOCKADDR);

	cr_assert_eq(fi_listen(&p->fid), -FI_ENOEQ);
	cr_assert_eq(fi_pep_bind(&p->fid, &eq->fid.fid, 0), 0);
	cr_assert_eq(fi_pep_bind(&p->fid, &eq->fid.fid, 0), -FI_EINVAL);
	fake.fail[FAKE_BIND] = EADDRINUSE;
	cr_assert_eq(fi_listen(&p->fid), -FI_EADDRINUSE);
	fake.fail[FAKE_LISTEN] = EADDRINUSE;
	cr_assert_eq(fi_listen(&p->fid), -FI_EADDRINUSE);
	fake.fail[FAKE_MIGRATE] = ENODEV;
	cr_assert_eq(fi_listen(&p->fid), -FI_ENODEV);
	cr_assert_eq(fi_listen(&p->fid), 0);
	cr_assert_eq(fi_close(&p->fid.fid), 0);
}

CLEAN_TEST(pep, no_address_at_all)
{
	struct vrc_pep *p = open_pep(NULL, FI_SOCKADDR_IN6);
	union vrc_sockaddr name;
	size_t len = sizeof(name);

	cr_assert_eq(fi_getname(&p->fid.fid, &name, &len), -FI_EADDRNOTAVAIL);
	cr_assert_eq(fi_pep_bind(&p->fid, &eq->fid.fid, 0), 0);
	cr_assert_eq(fi_listen(&p->fid), 0);
	cr_assert_eq(fi_getname(&p->fid.fid, &name, &len), 0);
	cr_assert_eq(name.sa.sa_family, AF_INET6);
	cr_assert_eq(fi_close(&p->fid.fid), 0);
}

CLEAN_TEST(pep, request_and_endpoint)
{
	union {
		struct fi_eq_cm_entry entry;
		char room[sizeof(struct fi_eq_cm_entry) + 64];
	} buf;
	union vrc_sockaddr want = fake_addr(9, 999);
	struct vrc_ep *ep;
	uint32_t event;
	int ret;

	cr_assert_eq(fi_listen(&pep->fid), 0);
	request("please");
	cr_assert_eq(fi_eq_read(&eq->fid, &event, &buf, sizeof(buf), 0),
		     sizeof(buf.entry) + 6);
	cr_assert_eq(event, FI_CONNREQ);
	cr_assert_arr_eq(buf.entry.data, "please", 6);
	cr_assert_arr_eq(buf.entry.info->dest_addr, &want, sizeof(want.in));
	ep = fake_ep(eq, buf.entry.info->handle, &ret);
	cr_assert_eq(ret, 0);
	/* As programs do when accepting failed; it must not hurt. */
	cr_assert_eq(fi_reject(&pep->fid, buf.entry.info->handle, NULL, 0),
		     -FI_EINVAL);
	fi_freeinfo(buf.entry.info);
	cr_assert_eq(fi_accept(&ep->fid, NULL, 0), 0);
	cr_assert_eq(fi_reject(&pep->fid, (fid_t)(uintptr_t)0xdead, NULL, 0),
		     -FI_EINVAL);
	fake_event(ep->cm.id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	cr_assert_eq(fake_read(eq, NULL), FI_CONNECTED);
	fake_ep_close(ep);
}

CLEAN_TEST(pep, reject)
{
	char data[VRC_CM_DATA_SIZE + 1] = "not today";
	struct vrc_cmdata sent;
	struct fi_info *req;

	cr_assert_eq(fi_listen(&pep->fid), 0);
	request("");
	req = read_request();
	cr_assert_eq(fi_reject(&pep->fid, req->handle, data, sizeof(data)),
		     -FI_EINVAL);
	cr_assert_eq(fi_reject(&pep->fid, req->handle, data, 9), 0);
	cr_assert(vrc_cmdata_decode(fake.reject_data, VRC_CM_WIRE_SIZE,
				    &sent));
	cr_assert_eq(sent.len, 9);
	cr_assert_arr_eq(sent.data, "not today", 9);
	cr_assert_eq(fi_reject(&pep->fid, req->handle, data, 9), -FI_EINVAL);
	cr_assert_eq(fake.ids, 1);
	fi_freeinfo(req);

	/* The peer was faster. */
	request("");
	req = read_request();
	fake_event(vrc_connreq(req->handle)->id, RDMA_CM_EVENT_REJECTED, 4,
		   NULL, 0);
	cr_assert_eq(fake_read(eq, NULL), -FI_EAGAIN);
	cr_assert_eq(fi_reject(&pep->fid, req->handle, data, 9), 0);
	cr_assert_eq(fake.calls[FAKE_REJECT], 1);
	fi_freeinfo(req);
}

/* Unread requests go with the passive endpoint; one that was read can still be
 * accepted, as with tcp. */
CLEAN_TEST(pep, close_before_the_requests_end)
{
	struct fi_info *kept, *left;
	struct vrc_ep *ep;
	int ret;

	cr_assert_eq(fi_listen(&pep->fid), 0);
	request("kept");
	request("left");
	request("unread");
	request("on the channel");
	kept = read_request();
	left = read_request();
	cr_assert_eq(fi_eq_read(&eq->fid, NULL, NULL, 0, 0), -FI_ETOOSMALL);
	cr_assert_eq(fi_close(&pep->fid.fid), 0);
	pep = NULL;
	cr_assert_eq(fake.calls[FAKE_REJECT], 1);
	cr_assert_eq(fake.ids, 2);
	cr_assert_eq(fake_read(eq, NULL), -FI_EAGAIN);
	ep = fake_ep(eq, kept->handle, &ret);
	cr_assert_eq(fi_accept(&ep->fid, NULL, 0), 0);
	fake_ep_close(ep);
	/* Nobody ever answers this one: the queue's end does. */
	fake_eq_close(eq);
	eq = NULL;
	cr_assert_eq(fake.calls[FAKE_REJECT], 2);
	fi_freeinfo(kept);
	fi_freeinfo(left);
}

CLEAN_TEST(pep, backlog)
{
	int backlog = 3, zero = 0;
	int got = 0;

	cr_assert_eq(fi_control(&pep->fid.fid, FI_BACKLOG, &zero), -FI_EINVAL);
	cr_assert_eq(fi_control(&pep->fid.fid, FI_BACKLOG, NULL), -FI_EINVAL);
	cr_assert_eq(fi_control(&pep->fid.fid, FI_BACKLOG, &backlog), 0);
	cr_assert_eq(fi_listen(&pep->fid), 0);
	cr_assert_eq(fi_control(&pep->fid.fid, FI_BACKLOG, &backlog),
		     -FI_EOPBADSTATE);
	for (int i = 0; i < 10; i++)
		request("");
	vrc_eq_progress(eq);
	cr_assert_eq(fake.calls[FAKE_REJECT], 7);
	for (; got < 3; got++) {
		struct fi_info *req = read_request();

		cr_assert_eq(fi_reject(&pep->fid, req->handle, NULL, 0), 0);
		fi_freeinfo(req);
	}
	/* Room again. */
	request("");
	fi_freeinfo(read_request());
}

CLEAN_TEST(pep, bad_requests)
{
	union vrc_sockaddr peer = fake_addr(9, 999);
	uint8_t wire[VRC_CM_WIRE_SIZE];

	cr_assert_eq(fi_listen(&pep->fid), 0);
	memset(wire, 0xff, sizeof(wire));
	fake_request(pep->ids[0].id, &peer.sa, wire, sizeof(wire));
	fake.fail[FAKE_INFO] = ENOMEM;
	request("no info");
	fake_request(pep->ids[0].id, &peer.sa, "x", 1)->verbs = NULL;
	peer.sa.sa_family = AF_UNIX;
	fake_request(pep->ids[0].id, &peer.sa, NULL, 0);
	cr_assert_eq(fake_read(eq, NULL), -FI_EAGAIN);
	cr_assert_eq(fake.calls[FAKE_REJECT], 4);
	cr_assert_eq(fake.ids, 1);
}

/* fi_msg_sockets: an active endpoint takes over the name. */
CLEAN_TEST(pep, gives_its_address_away)
{
	union vrc_sockaddr src = fake_addr(2, 7777), name;
	size_t len = sizeof(name);
	struct vrc_ep *ep;
	int ret;

	cr_assert_eq(fi_setname(&pep->fid.fid, &src, sizeof(src.in)), 0);
	ep = fake_ep(eq, &pep->fid.fid, &ret);
	cr_assert_eq(ret, 0);
	cr_assert_eq(fi_getname(&pep->fid.fid, &name, &len), 0);
	cr_assert_arr_eq(&name, &src, sizeof(src.in));
	cr_assert_eq(fi_close(&pep->fid.fid), 0);
	pep = NULL;
	cr_assert_eq(fi_enable(&ep->fid), 0);
	cr_assert_eq(fi_getname(&ep->fid.fid, &name, &len), 0);
	cr_assert_arr_eq(&name, &src, sizeof(src.in));
	cr_assert_eq(ep->port_num, 2);
	cr_assert_eq(fake.ids, 1);
	fake_ep_close(ep);
}

CLEAN_TEST(pep, one_that_listens_keeps_its_address)
{
	int ret;

	cr_assert_eq(fi_listen(&pep->fid), 0);
	cr_assert_null(fake_ep(eq, &pep->fid.fid, &ret));
	cr_assert_eq(ret, -FI_EOPBADSTATE);
}

CLEAN_TEST(pep, device_trouble)
{
	struct fi_eq_err_entry err = { 0 };

	cr_assert_eq(fi_listen(&pep->fid), 0);
	fake_event(pep->ids[0].id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	cr_assert_eq(fake_read(eq, NULL), -FI_EAVAIL);
	cr_assert_gt(fi_eq_readerr(&eq->fid, &err, 0), 0);
	cr_assert_eq(err.err, FI_ENODEV);
	cr_assert_eq(err.fid, &pep->fid.fid);
	fake_event(pep->ids[0].id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0);
	cr_assert_eq(fake_read(eq, NULL), -FI_EAGAIN);
}

CLEAN_TEST(pep, options_and_stubs)
{
	size_t size = 0, len = sizeof(size);
	void *p = NULL;

	cr_assert_eq(fi_getopt(&pep->fid.fid, FI_OPT_ENDPOINT,
			       FI_OPT_CM_DATA_SIZE, &size, &len), 0);
	cr_assert_eq(size, VRC_CM_DATA_SIZE);
	len = 1;
	cr_assert_eq(fi_getopt(&pep->fid.fid, FI_OPT_ENDPOINT,
			       FI_OPT_CM_DATA_SIZE, &size, &len),
		     -FI_ETOOSMALL);
	cr_assert_eq(fi_getopt(&pep->fid.fid, FI_OPT_ENDPOINT,
			       FI_OPT_MIN_MULTI_RECV, &size, &len),
		     -FI_ENOPROTOOPT);
	cr_assert_eq(fi_setopt(&pep->fid.fid, FI_OPT_ENDPOINT,
			       FI_OPT_CM_DATA_SIZE, &size, sizeof(size)),
		     -FI_ENOPROTOOPT);
	/* No slot is NULL. */
	for (size_t i = 1; i < sizeof(*pep->fid.cm) / sizeof(p); i++)
		cr_assert(((void **)pep->fid.cm)[i]);
	for (size_t i = 1; i < sizeof(*pep->fid.ops) / sizeof(p); i++)
		cr_assert(((void **)pep->fid.ops)[i]);
	for (size_t i = 1; i < sizeof(*pep->fid.fid.ops) / sizeof(p); i++)
		cr_assert(((void **)pep->fid.fid.ops)[i]);
	cr_assert_eq(pep->fid.cm->connect(NULL, NULL, NULL, 0), -FI_ENOSYS);
	cr_assert_eq(pep->fid.cm->accept(NULL, NULL, 0), -FI_ENOSYS);
	cr_assert_eq(pep->fid.cm->shutdown(NULL, 0), -FI_ENOSYS);
	cr_assert_eq(pep->fid.cm->getpeer(NULL, NULL, NULL), -FI_ENOSYS);
	cr_assert_eq(pep->fid.ops->cancel(NULL, NULL), -FI_ENOSYS);
}

CLEAN_TEST(pep, bad_infos)
{
	struct sockaddr bad = { .sa_family = AF_UNIX };
	struct fi_info *bad_info = fi_allocinfo();
	struct fid_pep *fid;

	cr_assert_eq(vrc_pep_open(&fake_fabric()->fid, NULL, &fid, NULL),
		     -FI_EINVAL);
	bad_info->ep_attr->type = FI_EP_RDM;
	cr_assert_eq(vrc_pep_open(&fake_fabric()->fid, bad_info, &fid, NULL),
		     -FI_EINVAL);
	bad_info->ep_attr->type = FI_EP_MSG;
	bad_info->src_addr = &bad;
	bad_info->src_addrlen = sizeof(bad);
	cr_assert_eq(vrc_pep_open(&fake_fabric()->fid, bad_info, &fid, NULL),
		     -FI_EINVAL);
	bad_info->src_addr = NULL;
	fi_freeinfo(bad_info);
}

/* A request that finds no memory is refused, not forgotten. */
CLEAN_TEST(pep, out_of_memory)
{
	struct fi_info *dup = fi_allocinfo();
	struct fid_pep *fid;
	struct fid_eq *no_eq;

	cr_assert_eq(fi_listen(&pep->fid), 0);
	for (int n = 1; n <= 2; n++) {
		fake_fail_alloc = n;
		request("x");
		cr_assert_eq(fake_read(eq, NULL), -FI_EAGAIN);
		cr_assert_eq(fake.calls[FAKE_REJECT], n);
		cr_assert_eq(fake.ids, 1);
	}
	fake_fail_alloc = 1;
	dup->ep_attr->type = FI_EP_MSG;
	cr_assert_eq(vrc_pep_open(&fake_fabric()->fid, dup, &fid, NULL),
		     -FI_ENOMEM);
	fake_fail_alloc = 1;
	cr_assert_eq(vrc_eq_open(&fake_fabric()->fid, NULL, &no_eq, NULL),
		     -FI_ENOMEM);
	fi_freeinfo(dup);
}

/* A wildcard is on every backend, with one port. */
CLEAN_TEST(pep, two_backends)
{
	union vrc_sockaddr any = { .in.sin_family = AF_INET }, name;
	union vrc_sockaddr peer = fake_addr(9, 999);
	struct fi_eq_cm_entry entry;
	struct vrc_pep *p = open_pep(&any, FI_SOCKADDR_IN);
	size_t len = sizeof(name);

	fake_second_device();
	cr_assert_eq(fi_pep_bind(&p->fid, &eq->fid.fid, 0), 0);
	cr_assert_eq(fi_listen(&p->fid), 0);
	cr_assert_eq(fake.calls[FAKE_LISTEN], 2);
	cr_assert_eq(p->ids[0].ops, &fake_ops);
	cr_assert_eq(p->ids[1].ops, &fake_ops_second);
	cr_assert_eq(fi_getname(&p->fid.fid, &name, &len), 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(vrc_sockaddr_port(
				     &p->ids[i].id->route.addr.src_addr),
			     ntohs(name.in.sin_port));
	/* Requests come by either. */
	for (int i = 0; i < 2; i++) {
		fake_request(p->ids[i].id, &peer.sa, NULL, 0);
		cr_assert_eq(fake_read(eq, &entry), FI_CONNREQ);
		cr_assert_eq(vrc_connreq(entry.info->handle)->ops,
			     p->ids[i].ops);
		cr_assert_eq(fi_reject(&p->fid, entry.info->handle, NULL, 0),
			     0);
		fi_freeinfo(entry.info);
	}
	cr_assert_eq(fi_close(&p->fid.fid), 0);
}

/* A named domain's address is on that domain's device only. */
CLEAN_TEST(pep, named_device)
{
	union vrc_sockaddr src = fake_addr(1, 0);
	struct vrc_pep *p;

	fake_second_device();
	p = open_pep(&src, FI_SOCKADDR_IN);
	p->info->domain_attr->name = strdup("fake1");
	cr_assert_eq(fi_pep_bind(&p->fid, &eq->fid.fid, 0), 0);
	cr_assert_eq(fi_listen(&p->fid), 0);
	cr_assert_eq(p->ids[0].ops, &fake_ops_second);
	cr_assert_null(p->ids[1].ops);
	cr_assert_eq(fi_close(&p->fid.fid), 0);
}
