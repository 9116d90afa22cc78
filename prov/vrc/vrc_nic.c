/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fi_info.nic: what the device is and how its link does. libfabric copies and
 * frees it through the fid's own ops, from fi_dupinfo and fi_freeinfo; but its
 * layered providers make copies by themselves, of the public structs, string by
 * string, and keep our ops. So these go by the public pointers only, each of
 * which is a block of memory of its own.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler.h"
#include "vrc.h"
#include "vrc_dev.h"
#include "vrc_info.h"
#include "vrc_nosys.h"

static const struct fi_ops nic_fi_ops;

static struct fid_nic *nic_of(const struct fid *fid)
{
	return (struct fid_nic *)((char *)(uintptr_t)fid -
				  offsetof(struct fid_nic, fid));
}

static void nic_free(struct fid_nic *nic)
{
	if (nic->device_attr) {
		free(nic->device_attr->name);
		free(nic->device_attr->device_id);
		free(nic->device_attr->device_version);
		free(nic->device_attr->vendor_id);
		free(nic->device_attr->driver);
		free(nic->device_attr->firmware);
	}
	if (nic->link_attr) {
		free(nic->link_attr->address);
		free(nic->link_attr->network_type);
	}
	free(nic->device_attr);
	free(nic->bus_attr);
	free(nic->link_attr);
	free(nic);
}

static int nic_close(struct fid *fid)
{
	nic_free(nic_of(fid));
	return 0;
}

/* With all attributes, empty. */
static struct fid_nic *nic_alloc(void)
{
	struct fid_nic *nic = calloc(1, sizeof(*nic));

	if (!nic)
		return NULL;
	nic->fid.fclass = FI_CLASS_NIC;
	nic->fid.ops = VRC_OPS(&nic_fi_ops);
	nic->device_attr = calloc(1, sizeof(*nic->device_attr));
	nic->bus_attr = calloc(1, sizeof(*nic->bus_attr));
	nic->link_attr = calloc(1, sizeof(*nic->link_attr));
	if (nic->device_attr && nic->bus_attr && nic->link_attr)
		return nic;
	nic_free(nic);
	return NULL;
}

/* False if out of memory. Nothing to copy is no failure. */
static bool copy_str(char **dst, const char *src)
{
	if (!src || !*src)
		return true;
	*dst = strdup(src);
	return *dst;
}

static bool copy_device(struct fi_device_attr *dst,
			const struct fi_device_attr *src)
{
	return copy_str(&dst->name, src->name) &&
	       copy_str(&dst->device_id, src->device_id) &&
	       copy_str(&dst->device_version, src->device_version) &&
	       copy_str(&dst->vendor_id, src->vendor_id) &&
	       copy_str(&dst->driver, src->driver) &&
	       copy_str(&dst->firmware, src->firmware);
}

static bool copy_link(struct fi_link_attr *dst, const struct fi_link_attr *src)
{
	dst->mtu = src->mtu;
	dst->speed = src->speed;
	dst->state = src->state;
	return copy_str(&dst->address, src->address) &&
	       copy_str(&dst->network_type, src->network_type);
}

static int nic_control(struct fid *fid, int command, void *arg)
{
	const struct fid_nic *nic = nic_of(fid);
	struct fid_nic **out = arg;
	struct fid_nic *copy;

	if (command != FI_DUP)
		return -FI_ENOSYS;
	copy = nic_alloc();
	if (!copy)
		return -FI_ENOMEM;
	if (nic->bus_attr)
		*copy->bus_attr = *nic->bus_attr;
	if ((nic->device_attr &&
	     !copy_device(copy->device_attr, nic->device_attr)) ||
	    (nic->link_attr && !copy_link(copy->link_attr, nic->link_attr))) {
		nic_free(copy);
		return -FI_ENOMEM;
	}
	*out = copy;
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

static void tostr_device(const struct fi_device_attr *device, char *buf,
			 size_t len)
{
	append(buf, len, "        fi_device_attr:\n            name: %s\n",
	       or_null(device->name));
	append(buf, len, "            device_id: %s\n",
	       or_null(device->device_id));
	append(buf, len, "            device_version: %s\n",
	       or_null(device->device_version));
	append(buf, len, "            vendor_id: %s\n",
	       or_null(device->vendor_id));
	append(buf, len, "            driver: %s\n", or_null(device->driver));
	append(buf, len, "            firmware: %s\n",
	       or_null(device->firmware));
}

static void tostr_bus(const struct fi_bus_attr *bus, char *buf, size_t len)
{
	const struct fi_pci_attr *pci = &bus->attr.pci;

	if (bus->bus_type == FI_BUS_PCI)
		append(buf, len,
		       "        fi_bus_attr:\n            pci: "
		       "%04x:%02x:%02x.%x\n",
		       pci->domain_id, pci->bus_id, pci->device_id,
		       pci->function_id);
}

static void tostr_link(const struct fi_link_attr *link, char *buf, size_t len)
{
	static const char *const states[] = { "FI_LINK_UNKNOWN", "FI_LINK_DOWN",
					      "FI_LINK_UP" };

	append(buf, len, "        fi_link_attr:\n            address: %s\n",
	       or_null(link->address));
	append(buf, len, "            mtu: %zu\n            speed: %zu\n",
	       link->mtu, link->speed);
	append(buf, len, "            state: %s\n",
	       (size_t)link->state < ARRAY_SIZE(states) ? states[link->state]
							: "Unknown");
	append(buf, len, "            network_type: %s\n",
	       or_null(link->network_type));
}

static int nic_tostr(const struct fid *fid, char *buf, size_t len)
{
	const struct fid_nic *nic = nic_of(fid);

	append(buf, len, "    nic:\n");
	if (nic->device_attr)
		tostr_device(nic->device_attr, buf, len);
	if (nic->bus_attr)
		tostr_bus(nic->bus_attr, buf, len);
	if (nic->link_attr)
		tostr_link(nic->link_attr, buf, len);
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

static bool fill_driver(struct fi_device_attr *device,
			const struct vrc_dev *dev)
{
	char path[128];
	char driver[32] = "";

	if (dev->ops->is_softverbs)
		return copy_str(&device->driver, dev->ops->name);
	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%.63s/device/driver", dev->name);
	sysfs_link(path, driver, sizeof(driver));
	return copy_str(&device->driver, driver);
}

static bool fill_device(struct fi_device_attr *device,
			const struct vrc_dev *dev)
{
	char device_id[16], device_version[16], vendor_id[16], firmware[64];
	const struct fi_device_attr all = {
		.name = (char *)(uintptr_t)dev->name,
		.device_id = device_id,
		.device_version = device_version,
		.vendor_id = vendor_id,
		.firmware = firmware,
	};

	snprintf(device_id, sizeof(device_id), "0x%04x",
		 dev->attr.vendor_part_id);
	snprintf(device_version, sizeof(device_version), "%u",
		 dev->attr.hw_ver);
	snprintf(vendor_id, sizeof(vendor_id), "0x%04x", dev->attr.vendor_id);
	snprintf(firmware, sizeof(firmware), "%.63s", dev->attr.fw_ver);
	return copy_device(device, &all) && fill_driver(device, dev);
}

static void fill_bus(struct fi_bus_attr *attr, const struct vrc_dev *dev)
{
	unsigned int domain, bus, device, function;
	char path[128];
	char pci[32];

	if (dev->ops->is_softverbs)
		return;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/device",
		 dev->name);
	if (!sysfs_link(path, pci, sizeof(pci)) ||
	    sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
		return;
	attr->bus_type = FI_BUS_PCI;
	attr->attr.pci.domain_id = (uint16_t)domain;
	attr->attr.pci.bus_id = (uint8_t)bus;
	attr->attr.pci.device_id = (uint8_t)device;
	attr->attr.pci.function_id = (uint8_t)function;
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

static void read_hw_address(const char *netdev, char *buf, size_t len)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/net/%.15s/address", netdev);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(buf, (int)len, file))
		buf[strcspn(buf, "\n")] = '\0';
	fclose(file);
}

static bool fill_link(struct fi_link_attr *link, const struct vrc_dev *dev,
		      const struct vrc_addr *addr)
{
	const struct ibv_port_attr *port = &dev->ports[addr->port_num - 1];
	bool is_ib = port->link_layer == IBV_LINK_LAYER_INFINIBAND;
	char address[64] = "";
	struct fi_link_attr all = {
		.address = address,
		.mtu = port_mtu(port),
		.speed = vrc_port_speed(port),
		.state = port->state == IBV_PORT_ACTIVE ? FI_LINK_UP :
							  FI_LINK_DOWN,
		.network_type = is_ib ? (char []){ "InfiniBand" } :
					(char []){ "Ethernet" },
	};

	read_hw_address(addr->netdev, address, sizeof(address));
	return copy_link(link, &all);
}

struct fid_nic *vrc_nic_create(const struct vrc_dev *dev,
			       const struct vrc_addr *addr)
{
	struct fid_nic *nic = nic_alloc();

	if (!nic)
		return NULL;
	fill_bus(nic->bus_attr, dev);
	if (fill_device(nic->device_attr, dev) &&
	    fill_link(nic->link_attr, dev, addr))
		return nic;
	nic_free(nic);
	return NULL;
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
