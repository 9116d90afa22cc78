/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_getinfo: which devices are offered, in which order, and why others are not; the
 * nic; devices and memory that fail. Every test runs in its own process.
 */
#include <linux/capability.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "getinfo_addr.h"
#include "vrc_params.h"

CLEAN_TEST(addr, two_devices)
{
	struct fake_device *second;

	fake_roce_host();
	second = fake_add_roce("roce1");
	fake_ifaddr("eth2", "10.8.0.1", 24, IFF_UP);
	fake_bind(second, "10.8.0.1", 1);
	second->attr.max_qp_wr = 100;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 3);
	cr_assert_str_eq(info->domain_attr->name, "roce0");

	cr_assert_eq(ask("10.8.0.1", NULL, FI_SOURCE), 0);
	cr_assert_str_eq(info->domain_attr->name, "roce1");

	hints->domain_attr->name = strdup("roce1");
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(str(info->src_addr), "10.8.0.1:0");
	free(hints->domain_attr->name);
	hints->domain_attr->name = strdup("roce2");
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("domain_attr->name: is roce2, and there is roce0");
	free(hints->domain_attr->name);
	hints->domain_attr->name = NULL;

	hints->fabric_attr->name = strdup("10.8.0.0/24");
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(info->domain_attr->name, "roce1");
	cr_assert_eq(ask(NULL, "1", FI_SOURCE), 0);
	cr_assert_eq(count(), 1);
	free(hints->fabric_attr->name);
	hints->fabric_attr->name = NULL;

	/* A hint that only one of them can keep. */
	hints->tx_attr->size = 1000;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 2);
	says("tx_attr->size: is 1000, and roce1 has at most 98");
	cr_assert_eq(fake.warns, 0);
}

/* The faster one first, however they are listed. */
CLEAN_TEST(addr, faster_first)
{
	struct fake_device *second;

	fake_roce_host();
	second = fake_add_roce("roce1");
	second->port[0].active_speed = 64;
	fake_ifaddr("eth2", "10.8.0.1", 24, IFF_UP);
	fake_bind(second, "10.8.0.1", 1);
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_str_eq(info->domain_attr->name, "roce1");
}

/* The route says one device, the caller the other on the same net. */
CLEAN_TEST(addr, destination_through_the_other_device)
{
	struct fake_device *second;

	fake_roce_host();
	second = fake_add_roce("roce1");
	fake_ifaddr("eth2", "10.7.0.2", 24, IFF_UP);
	fake_bind(second, "10.7.0.2", 1);
	hints->domain_attr->name = strdup("roce1");
	cr_assert_eq(ask("10.7.0.9", "5", 0), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(str(info->src_addr), "10.7.0.2:0");
	cr_assert_str_eq(str(info->dest_addr), "10.7.0.9:5");
}

CLEAN_TEST(addr, dead_port)
{
	struct fake_device *dev = fake_roce_host();

	dev->attr.phys_port_cnt = 2;
	dev->port[0].state = IBV_PORT_DOWN;
	fake_ifaddr("eth2", "10.8.0.1", 24, IFF_UP);
	fake_bind(dev, "10.8.0.1", 2);
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(str(info->src_addr), "10.8.0.1:0");
	says("roce0 port 1 (eth1, 10.7.0.1:0) is down, not active");

	dev->port[1].state = IBV_PORT_INIT;
	vrc_params.softverbs = VRC_SOFTVERBS_NEVER;
	vrc_dev_forget();
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("roce0 port 2 (eth2, 10.8.0.1:0) is initializing, not active");
	cr_assert_eq(fake.warns, 1);
}

/* A dead port's device leaves its place to softverbs. */
CLEAN_TEST(addr, dead_hardware_falls_back)
{
	struct fake_device *dev = fake_roce_host();

	dev->port[0].state = IBV_PORT_DOWN;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_str_eq(info->domain_attr->name, "softverbs0");
	says("roce0 port 1");
}

CLEAN_TEST(addr, devices_that_fail)
{
	struct fake_device *dev = fake_roce_host();

	dev->open_errno = EACCES;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_str_eq(info->domain_attr->name, "softverbs0");
	says("roce0: cannot be opened: Permission denied");
	dev->open_errno = 0;
	dev->addr[0].port_num = 3;
	dev->addr[1].port_num = 0;
	vrc_dev_forget();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_str_eq(info->domain_attr->name, "softverbs0");
	fake.no_rdma_cm = true;
	vrc_dev_forget();
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("no rdma_cm");
}

/* A bond, and plain InfiniBand with its one GID. */
CLEAN_TEST(addr, bond_and_ib)
{
	struct fake_device *bond = fake_add_roce("mlx5_bond_0");
	struct fake_device *ib = fake_add_ib("mlx5_2");

	fake_ifaddr("bond0", "10.9.0.1", 16, IFF_UP);
	fake_ifaddr("bond0:1", "10.9.0.2", 16, IFF_UP);
	fake_ifaddr("ib0", "10.10.0.1", 16, IFF_UP);
	fake_bind(bond, "10.9.0.1", 1);
	fake_bind(bond, "10.9.0.2", 1);
	fake_bind(ib, "10.10.0.1", 1);
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 3);
	cr_assert_str_eq(info->fabric_attr->name, "10.9.0.0/16");
	cr_assert_str_eq(info->next->next->domain_attr->name, "mlx5_2");
	cr_assert_str_eq(info->next->next->nic->link_attr->network_type,
			 "InfiniBand");
	vrc_params.iface = (char *)(uintptr_t) "bond0";
	vrc_dev_forget();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 2);
	says("mlx5_2: no usable IP address on FI_VRC_IFACE=bond0");
	vrc_params.iface = NULL;
	vrc_params.device = (char *)(uintptr_t) "mlx5_2";
	vrc_dev_forget();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(count(), 1);
	cr_assert_str_eq(info->domain_attr->name, "mlx5_2");
}

CLEAN_TEST(addr, iwarp)
{
	struct fake_device *dev = fake_add_iwarp("siw0");

	fake_ifaddr("eth0", "10.1.0.1", 24, IFF_UP);
	fake_bind(dev, "10.1.0.1", 1);
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(info->ep_attr->protocol, FI_PROTO_IWARP);
	hints->mode = FI_RX_CQ_DATA;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(info->domain_attr->cq_data_size, 0);
	cr_assert_eq(info->mode | info->rx_attr->mode, 0);
	hints->domain_attr->cq_data_size = 4;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("domain_attr->cq_data_size: is 4, and siw0 has at most 0");
	hints->domain_attr->cq_data_size = 0;
	hints->tx_attr->op_flags = FI_TRANSMIT_COMPLETE;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("FI_TRANSMIT_COMPLETE");
}

/* The list is kept for a while; addresses are noticed at once. */
CLEAN_TEST(addr, cache)
{
	struct fake_device *dev = fake_roce_host();
	int looks;

	for (int i = 0; i < 100; i++)
		cr_assert_eq(ask(NULL, NULL, 0), 0);
	looks = fake.looks;
	cr_assert_leq(looks, 2);
	fake_ifaddr("eth3", "10.11.0.1", 24, IFF_UP);
	fake_bind(dev, "10.11.0.1", 1);
	cr_assert_eq(ask("10.11.0.1", NULL, FI_SOURCE), 0);
	dev->gone = true;
	cr_assert_eq(ask(NULL, NULL, 1ULL << 35 /* FI_RESCAN */), 0);
	cr_assert_str_eq(info->domain_attr->name, "softverbs0");
}

static void *getinfo_thread(void *arg)
{
	struct fi_info *list;

	for (int i = 0; i < 200; i++) {
		list = NULL;
		if (vrc_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list))
			return (void *)(uintptr_t) "failed";
		fi_freeinfo(list);
		if (i % 50 == 0)
			vrc_dev_forget();
	}
	return NULL;
}

CLEAN_TEST(addr, threads)
{
	pthread_t thread[4];
	void *result;

	fake_plain_host();
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, getinfo_thread, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &result);
		cr_assert_null(result);
	}
}

CLEAN_TEST(addr, nic)
{
	struct fi_info *copy;
	char text[8192];

	fake_roce_host();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	copy = fi_dupinfo(info);
	fi_freeinfo(info);
	info = copy;
	cr_assert_str_eq(copy->nic->device_attr->name, "roce0");
	cr_assert_str_eq(copy->nic->device_attr->firmware, "1.2.3");
	cr_assert_str_eq(copy->nic->device_attr->vendor_id, "0x02c9");
	cr_assert_eq(copy->nic->link_attr->mtu, 1024);
	cr_assert_eq(copy->nic->link_attr->speed, 100000000000);
	cr_assert_eq(copy->nic->link_attr->state, FI_LINK_UP);
	cr_assert_str_eq(copy->nic->link_attr->network_type, "Ethernet");
	fi_tostr_r(text, sizeof(text), copy, FI_TYPE_INFO);
	cr_assert(strstr(text, "firmware: 1.2.3"), "%s", text);
	/* As a filter. */
	hints->nic = NULL;
	fi_control(&copy->nic->fid, FI_DUP, &hints->nic);
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	snprintf(hints->nic->device_attr->name, 64, "other");
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("nic->device_attr->name: is other");
}

CLEAN_TEST(addr, nic_ops)
{
	struct fid *fid;

	fake_roce_host();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	fid = &info->nic->fid;
	cr_assert_eq(fid->fclass, FI_CLASS_NIC);
	cr_assert_eq(fid->ops->bind(fid, fid, 0), -FI_ENOSYS);
	cr_assert_eq(fid->ops->control(fid, FI_ALIAS, NULL), -FI_ENOSYS);
	cr_assert_eq(fid->ops->ops_open(fid, "x", 0, NULL, NULL), -FI_ENOSYS);
	cr_assert_eq(fid->ops->ops_set(fid, "x", 0, NULL, NULL), -FI_ENOSYS);
}

CLEAN_TEST(addr, gid_index_beyond_the_table)
{
	fake_roce_host();
	vrc_params.gid_index = 7;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	vrc_params.gid_index = 999;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("FI_VRC_GID_INDEX: is 999, and port 1 of roce0 has 8 GIDs");
	cr_assert_eq(fake.warns, 1);
}

CLEAN_TEST(addr, gid_index_of_an_empty_entry)
{
	struct fake_device *roce = fake_roce_host();

	roce->gid_cnt = 6;
	vrc_params.gid_index = 5;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	vrc_dev_forget();
	vrc_params.gid_index = 6;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("FI_VRC_GID_INDEX: is 6, and port 1 of roce0 has 8 GIDs "
	     "(0 to 7), that one empty");
	/* It has no meaning there. */
	vrc_dev_forget();
	roce->device.transport_type = IBV_TRANSPORT_IWARP;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
}

/* rxe has a thousand, and a queue pair's attributes have a byte. */
CLEAN_TEST(addr, gid_index_beyond_a_byte)
{
	struct fake_device *roce = fake_roce_host();

	roce->port[0].gid_tbl_len = 1024;
	roce->gid_cnt = 1024;
	vrc_params.gid_index = 255;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	vrc_dev_forget();
	vrc_params.gid_index = 256;
	cr_assert_eq(ask(NULL, NULL, 0), -FI_ENODATA);
	says("is 256, and port 1 of roce0 has 1024 GIDs (0 to 255)");
}

/* The environment's queue depth, in range but more than there is: told once, where it
 * is the answer, and not where the caller says what he wants or nobody did. */
CLEAN_TEST(addr, depth_beyond_the_device)
{
	fake_roce_host()->attr.max_qp_wr = 100;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(fake.warns, 0);
	vrc_params.tx_size = 1 << 20;
	vrc_params.tx_size_given = true;
	hints->tx_attr->size = 98;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(fake.warns, 0);
	hints->tx_attr->size = 0;
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(ask(NULL, NULL, 0), 0);
		cr_assert_eq(info->tx_attr->size, 98);
		cr_assert_eq(fake.warns, !i);
		if (!i)
			says("FI_VRC_TX_SIZE=1048576: roce0 has at most 98");
	}
	vrc_params.rx_size = 99;
	vrc_params.rx_size_given = true;
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(fake.warns, 1);
	says("FI_VRC_RX_SIZE=99: roce0 has at most 98");
}

/* The entry stays, and the limit is named. */
CLEAN_TEST(addr, small_memlock)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	struct rlimit limit = { 64 << 10, 64 << 10 };

	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	cr_assert_eq(syscall(SYS_capget, &head, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	cr_assert_eq(syscall(SYS_capset, &head, data), 0);
	fake_roce_host();
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(fake.warns, 1);
	says("roce0: only 64 KiB of memory may be locked (RLIMIT_MEMLOCK)");
	cr_assert_eq(ask(NULL, NULL, 0), 0);
	cr_assert_eq(fake.warns, 0);
}

static int sweep_ask(void)
{
	int ret = ask("10.7.0.9", "5", 0);

	cr_assert((ret == 0) == (info != NULL));
	return ret;
}

/* Whichever allocation fails: -FI_ENOMEM or an answer, and nothing is left. */
CLEAN_TEST(addr, every_allocation_fails)
{
	int n, ret;

	vrc_params.softverbs = VRC_SOFTVERBS_ALWAYS;
	fake_roce_host();
	for (n = 0;; n++) {
		vrc_dev_forget();
		fake.fail_alloc = n;
		ret = sweep_ask();
		if (fake.fail_alloc >= 0)
			break;
		cr_assert_eq(ret, -FI_ENOMEM, "%d: %d", n, ret);
		cr_assert_eq(fake.contexts | fake.ids | fake.channels |
				     fake.lists,
			     0, "at %d", n);
	}
	cr_assert_eq(ret, 0);
	cr_assert_gt(n, 10);
	fake.fail_alloc = -1;
}

/* Whichever verb fails: never fatal, and nothing is left open. */
CLEAN_TEST(addr, every_verb_fails)
{
	int n, ret;

	vrc_params.softverbs = VRC_SOFTVERBS_ALWAYS;
	fake_roce_host();
	for (n = 0;; n++) {
		vrc_dev_forget();
		fake.fail_verb = n;
		ret = sweep_ask();
		if (fake.fail_verb >= 0)
			break;
		cr_assert(ret == 0 || ret == -FI_ENODATA || ret == -FI_EIO,
			  "%d: %d", n, ret);
		cr_assert_eq(fake.contexts | fake.ids | fake.channels |
				     fake.lists,
			     0, "at %d", n);
	}
	cr_assert_eq(ret, 0);
	cr_assert_gt(n, 10);
}
