/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_info.nic: what the device is and how its link does. libfabric copies and
 * frees it through the fid's own ops, from fi_dupinfo and fi_freeinfo. One
 * block of memory holds it all, so a copy is a copy and new pointers.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vrc_info.h"

struct vrc_nic {
	struct fid_nic fid;
	struct fi_device_attr device;
	struct fi_bus_attr bus;
	struct fi_link_attr link;
	char name[64];
	char device_id[16];
	char device_version[16];
	char vendor_id[16];
	char driver[32];
	char firmware[64];
	char address[64];
	char network_type[16];
};

static const struct fi_ops nic_fi_ops;

static char *text(char *str)
{
	return *str ? str : NULL;
}

static void nic_wire(struct vrc_nic *nic)
{
	nic->device.name = nic->name;
	nic->device.device_id = text(nic->device_id);
	nic->device.device_version = text(nic->device_version);
	nic->device.vendor_id = text(nic->vendor_id);
	nic->device.driver = text(nic->driver);
	nic->device.firmware = text(nic->firmware);
	nic->link.address = text(nic->address);
	nic->link.network_type = text(nic->network_type);
	nic->fid.fid.fclass = FI_CLASS_NIC;
	nic->fid.fid.ops = VRC_OPS(&nic_fi_ops);
	nic->fid.device_attr = &nic->device;
	nic->fid.bus_attr = &nic->bus;
	nic->fid.link_attr = &nic->link;
}

static struct vrc_nic *vrc_nic(const struct fid *fid)
{
	return (struct vrc_nic *)((char *)(uintptr_t)fid -
				  offsetof(struct vrc_nic, fid.fid));
}

static int nic_close(struct fid *fid)
{
	free(vrc_nic(fid));
	return 0;
}

static int nic_control(struct fid *fid, int command, void *arg)
{
	struct fid_nic **out = arg;
	struct vrc_nic *copy;

	if (command != FI_DUP)
		return -FI_ENOSYS;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -FI_ENOMEM;
	memcpy(copy, vrc_nic(fid), sizeof(*copy));
	nic_wire(copy);
	*out = &copy->fid;
	return 0;
}

/* Appends to what is in buf already, as libfabric's fi_tostr expects. */
static void append(char *buf, size_t len, const char *fmt, ...)
	__printf_like(3, 4);
static void append(char *buf, size_t len, const char *fmt, ...)
{
	size_t used = strnlen(buf, len);
	va_list ap;

	if (used >= len)
		return;
	va_start(ap, fmt);
	vsnprintf(buf + used, len - used, fmt, ap);
	va_end(ap);
}

static const char *or_null(const char *str)
{
	return str ? str : "(null)";
}

static int nic_tostr(const struct fid *fid, char *buf, size_t len)
{
	static const char *const states[] = { "FI_LINK_UNKNOWN", "FI_LINK_DOWN",
					      "FI_LINK_UP" };
	const struct vrc_nic *nic = vrc_nic(fid);
	const struct fi_device_attr *device = &nic->device;
	const struct fi_pci_attr *pci = &nic->bus.attr.pci;
	const struct fi_link_attr *link = &nic->link;

	append(buf, len, "    nic:\n        fi_device_attr:\n");
	append(buf, len, "            name: %s\n", or_null(device->name));
	append(buf, len, "            device_id: %s\n",
	       or_null(device->device_id));
	append(buf, len, "            device_version: %s\n",
	       or_null(device->device_version));
	append(buf, len, "            vendor_id: %s\n",
	       or_null(device->vendor_id));
	append(buf, len, "            driver: %s\n", or_null(device->driver));
	append(buf, len, "            firmware: %s\n",
	       or_null(device->firmware));
	if (nic->bus.bus_type == FI_BUS_PCI)
		append(buf, len,
		       "        fi_bus_attr:\n            pci: "
		       "%04x:%02x:%02x.%x\n",
		       pci->domain_id, pci->bus_id, pci->device_id,
		       pci->function_id);
	append(buf, len, "        fi_link_attr:\n            address: %s\n",
	       or_null(link->address));
	append(buf, len, "            mtu: %zu\n            speed: %zu\n",
	       link->mtu, link->speed);
	append(buf, len, "            state: %s\n",
	       (size_t)link->state < ARRAY_SIZE(states) ? states[link->state]
							: "Unknown");
	append(buf, len, "            network_type: %s\n",
	       or_null(link->network_type));
	return 0;
}

/* The last part of what a link in sysfs points to; false if there is none. */
static bool sysfs_link(const char *path, char *buf, size_t len)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	const char *slash;

	if (n <= 0)
		return false;
	target[n] = '\0';
	slash = strrchr(target, '/');
	snprintf(buf, len, "%.*s", (int)len - 1, slash ? slash + 1 : target);
	return true;
}

static void fill_bus(struct vrc_nic *nic, const struct vrc_dev *dev)
{
	unsigned int domain, bus, device, function;
	char path[128];
	char pci[32];

	if (dev->ops->is_softverbs) {
		snprintf(nic->driver, sizeof(nic->driver), "%s",
			 dev->ops->name);
		return;
	}
	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%.63s/device/driver", dev->name);
	sysfs_link(path, nic->driver, sizeof(nic->driver));
	snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/device",
		 dev->name);
	if (!sysfs_link(path, pci, sizeof(pci)) ||
	    sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
		return;
	nic->bus.bus_type = FI_BUS_PCI;
	nic->bus.attr.pci.domain_id = (uint16_t)domain;
	nic->bus.attr.pci.bus_id = (uint8_t)bus;
	nic->bus.attr.pci.device_id = (uint8_t)device;
	nic->bus.attr.pci.function_id = (uint8_t)function;
}

static size_t port_mtu(const struct ibv_port_attr *port)
{
	return port->active_mtu >= IBV_MTU_256 &&
			       port->active_mtu <= IBV_MTU_4096
		       ? (size_t)128 << port->active_mtu
		       : 0;
}

/* Width and lane speed as IBTA's PortInfo encodes them (14.2.5.6). */
size_t vrc_port_speed(const struct ibv_port_attr *port)
{
	static const struct {
		uint8_t code;
		uint64_t value;
	} widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } },
	  lanes[] = { { 1, 2500000000 },   { 2, 5000000000 },
		      { 4, 10000000000 },  { 8, 10000000000 },
		      { 16, 14000000000 }, { 32, 25000000000 },
		      { 64, 50000000000 }, { 128, 100000000000 } };
	uint64_t width = 0, lane = 0;

	for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
		if (widths[i].code == port->active_width)
			width = widths[i].value;
	}
	for (size_t i = 0; i < ARRAY_SIZE(lanes); i++) {
		if (lanes[i].code == port->active_speed)
			lane = lanes[i].value;
	}
	return width * lane;
}

static void fill_link(struct vrc_nic *nic, const struct vrc_dev *dev,
		      const struct vrc_addr *addr)
{
	const struct ibv_port_attr *port = &dev->ports[addr->port_num - 1];
	char path[64];
	FILE *file;

	nic->link.mtu = port_mtu(port);
	nic->link.speed = vrc_port_speed(port);
	nic->link.state =
		port->state == IBV_PORT_ACTIVE ? FI_LINK_UP : FI_LINK_DOWN;
	snprintf(nic->network_type, sizeof(nic->network_type), "%s",
		 port->link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
							       : "Ethernet");
	snprintf(path, sizeof(path), "/sys/class/net/%.15s/address",
		 addr->netdev);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(nic->address, sizeof(nic->address), file))
		nic->address[strcspn(nic->address, "\n")] = '\0';
	fclose(file);
}

struct fid_nic *vrc_nic_create(const struct vrc_dev *dev,
			       const struct vrc_addr *addr)
{
	struct vrc_nic *nic = calloc(1, sizeof(*nic));

	if (!nic)
		return NULL;
	snprintf(nic->name, sizeof(nic->name), "%s", dev->name);
	snprintf(nic->device_id, sizeof(nic->device_id), "0x%04x",
		 dev->attr.vendor_part_id);
	snprintf(nic->device_version, sizeof(nic->device_version), "%u",
		 dev->attr.hw_ver);
	snprintf(nic->vendor_id, sizeof(nic->vendor_id), "0x%04x",
		 dev->attr.vendor_id);
	snprintf(nic->firmware, sizeof(nic->firmware), "%.63s",
		 dev->attr.fw_ver);
	fill_bus(nic, dev);
	fill_link(nic, dev, addr);
	nic_wire(nic);
	return &nic->fid;
}

static const struct fi_ops nic_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = nic_close,
	.bind = vrc_nosys_bind,
	.control = nic_control,
	.ops_open = vrc_nosys_ops_open,
	.tostr = nic_tostr,
	.ops_set = vrc_nosys_ops_set,
};
