/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * SOFTVERBS_DEVICES: which devices there are, what each looks like and how much
 * it has. One entry a device, its name first:
 *
 *	softverbs0;softverbs1,persona=ib,addr=127.0.0.2,max_qp=4,lid=7
 *
 * man/softverbs.7.md has the list of keys.
 */
#include "sv_int.h"
#include "sv_spec.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a key's function says of a value that it does not take; NULL: taken. */
typedef const char *(*key_fn)(struct sv_dev *dev, char *value);

static const char *key_netdev(struct sv_dev *dev, char *value)
{
	char *name;

	while ((name = sv_spec_next(&value, '+'))) {
		if (strlen(name) >= IF_NAMESIZE)
			return "interface name of 16 characters or more";
		if (dev->netdev_cnt == SV_MAX_DEV_NETDEV)
			return "more than 8 interfaces";
		strcpy(dev->netdevs[dev->netdev_cnt++], name);
	}
	return dev->netdev_cnt ? NULL : "no interface";
}

static bool addr_parse(const char *text, struct sv_dev_addr *addr)
{
	memset(addr, 0, sizeof(*addr));
	if (inet_pton(AF_INET, text, &addr->in.sin_addr) == 1) {
		addr->in.sin_family = AF_INET;
		return true;
	}
	if (inet_pton(AF_INET6, text, &addr->in6.sin6_addr) == 1) {
		addr->in6.sin6_family = AF_INET6;
		return true;
	}
	return false;
}

static const char *key_addr(struct sv_dev *dev, char *value)
{
	char *text;

	while ((text = sv_spec_next(&value, '+'))) {
		if (dev->wanted_cnt == SV_MAX_DEV_NETDEV)
			return "more than 8 addresses";
		if (!addr_parse(text, &dev->wanted[dev->wanted_cnt]))
			return "not an IPv4 or IPv6 address";
		dev->wanted_cnt++;
	}
	return dev->wanted_cnt ? NULL : "no address";
}

static const char *key_guid(struct sv_dev *dev, char *value)
{
	uint64_t guid;

	if (!sv_spec_num(value, &guid) || !guid)
		return "not a number of 1 to 64 bits";
	dev->guid = htobe64(guid);
	return NULL;
}

static const char *key_lid(struct sv_dev *dev, char *value)
{
	uint64_t lid;

	if (!sv_spec_num(value, &lid) || !lid || lid > SV_MAX_LID)
		return "not a LID, 1 to 0xbfff";
	dev->lid = (uint16_t)lid;
	dev->lid_given = true;
	return NULL;
}

static const char *key_pkeys(struct sv_dev *dev, char *value)
{
	uint64_t pkey;
	char *text;

	dev->pkey_cnt = 0;
	while ((text = sv_spec_next(&value, '+'))) {
		if (dev->pkey_cnt == SV_MAX_PKEY)
			return "more than 128 pkeys";
		if (!sv_spec_num(text, &pkey) || pkey > 0xffff)
			return "not a pkey, 0 to 0xffff";
		dev->pkeys[dev->pkey_cnt++] = (uint16_t)pkey;
	}
	return NULL;
}

static const char *key_port(struct sv_dev *dev, char *value)
{
	static const char *const names[] = {
		[IBV_PORT_DOWN] = "down",
		[IBV_PORT_INIT] = "init",
		[IBV_PORT_ARMED] = "armed",
		[IBV_PORT_ACTIVE] = "active",
	};
	size_t i;

	for (i = IBV_PORT_DOWN; i < ARRAY_SIZE(names); i++)
		if (!strcmp(value, names[i])) {
			dev->port_state = (enum ibv_port_state)i;
			return NULL;
		}
	return "not down, init, armed or active";
}

static const char *key_gid_fill(struct sv_dev *dev, char *value)
{
	bool fill;

	if (!sv_spec_bool(value, &fill))
		return "not yes or no";
	dev->gid_manual = !fill;
	return NULL;
}

static const char *gid_parse(struct sv_gid *entry, char *value)
{
	char *type = strchr(value, '/');
	struct sv_dev_addr addr;

	if (!strcmp(value, "none")) {
		entry->state = SV_GID_HOLE;
		return NULL;
	}
	if (!strcmp(value, "error")) {
		entry->state = SV_GID_BROKEN;
		entry->err = EINVAL;
		return NULL;
	}
	if (!type)
		return "neither none, nor error, nor ADDRESS/TYPE";
	*type++ = '\0';
	if (!strcmp(type, "v1"))
		entry->type = IBV_GID_TYPE_ROCE_V1;
	else if (!strcmp(type, "v2"))
		entry->type = IBV_GID_TYPE_ROCE_V2;
	else if (!strcmp(type, "ib"))
		entry->type = IBV_GID_TYPE_IB;
	else
		return "type is not v1, v2 or ib";
	if (!addr_parse(value, &addr))
		return "not an IPv4 or IPv6 address";
	sv_gid_of_addr(&addr.sa, &entry->gid);
	entry->state = SV_GID_SET;
	return NULL;
}

/* gid.N=... */
static const char *key_gid(struct sv_dev *dev, const char *index, char *value)
{
	uint64_t i;

	if (!sv_spec_num(index, &i) || i >= SV_MAX_GID)
		return "index is not 0 to 127";
	return gid_parse(&dev->gid_tbl[i], value);
}

static const struct {
	const char *name;
	key_fn fn;
} keys[] = {
	{ "netdev", key_netdev }, { "addr", key_addr },
	{ "guid", key_guid },	  { "lid", key_lid },
	{ "pkeys", key_pkeys },	  { "port", key_port },
	{ "gid.fill", key_gid_fill },
};

/* A limit by its name; false if none is called so. */
static bool set_limit(struct sv_dev *dev, const char *key, const char *value,
		      bool *bad)
{
	uint32_t min, max;
	uint32_t *limit = sv_limit_find(&dev->lim, key, &min, &max);
	uint64_t num;

	if (!limit)
		return false;
	*bad = !sv_spec_num(value, &num) || num < min || num > max ||
	       (!strcmp(key, "mtu") && num & (num - 1));
	if (*bad)
		sv_err("SOFTVERBS_DEVICES: %s: %s=%s: not a number from "
		       "%" PRIu32 " to %" PRIu32 "%s", dev->device.name, key,
		       value, min, max,
		       strcmp(key, "mtu") ? "" : ", power of two");
	else
		*limit = (uint32_t)num;
	return true;
}

static bool set_key(struct sv_dev *dev, char *key)
{
	char *value = sv_spec_value(key);
	const char *why = "no such key";
	char shown[64];
	bool bad = false;
	size_t i;

	if (!value) {
		sv_err("SOFTVERBS_DEVICES: %s: %s: no value",
		       dev->device.name, key);
		return false;
	}
	if (!strcmp(key, "persona")) /* was looked at first */
		return true;
	if (set_limit(dev, key, value, &bad))
		return !bad;
	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strcmp(keys[i].name, key))
			break;
	/* The functions write into the value. */
	snprintf(shown, sizeof(shown), "%s", value);
	if (i < ARRAY_SIZE(keys))
		why = keys[i].fn(dev, value);
	else if (!strncmp(key, "gid.", 4))
		why = key_gid(dev, key + 4, value);
	if (why)
		sv_err("SOFTVERBS_DEVICES: %s: %s=%s: %s", dev->device.name,
		       key, shown, why);
	return !why;
}

static bool name_ok(const char *name)
{
	size_t i;

	for (i = 0; name[i]; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("_.-", name[i]))
			return false;
	return i && i < IBV_SYSFS_NAME_MAX && name[0] != '.';
}

struct sv_dev *sv_dev_new(const char *name, const struct sv_persona *persona)
{
	struct sv_dev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	strcpy(dev->device.name, name);
	dev->device.node_type = persona->node_type;
	dev->device.transport_type = persona->transport_type;
	dev->ops = dev; /* ours: no driver's table compares equal */
	dev->refcount = 1;
	list_init(&dev->node);
	dev->persona = persona;
	dev->lim = persona->lim;
	lock_init(&dev->lock);
	dev->port_state = IBV_PORT_ACTIVE;
	dev->pkey_cnt = persona->pkey_cnt;
	memcpy(dev->pkeys, persona->pkeys, sizeof(persona->pkeys));
	return dev;
}

void sv_dev_free(struct sv_dev *dev)
{
	lock_fini(&dev->lock);
	free(dev);
}

/* The persona that pairs, "a=b,c=d", name; or else look. */
static const struct sv_persona *find_look(const char *name, const char *pairs,
					  const char *look)
{
	char *copy = strdup(pairs ? pairs : ""), *rest = copy, *pair, *value;
	const struct sv_persona *persona;

	while (copy && (pair = sv_spec_next(&rest, ','))) {
		value = sv_spec_value(pair);
		if (value && !strcmp(pair, "persona"))
			look = value;
	}
	persona = sv_persona_find(look);
	if (!persona)
		sv_err("SOFTVERBS_DEVICES: %s: persona=%s: not one of %s", name,
		       look, sv_persona_names());
	free(copy);
	return persona;
}

/* One device of "name,key=value,..."; NULL if something is wrong with it. */
static struct sv_dev *parse_dev(char *entry, const char *look)
{
	char *rest = entry, *name = sv_spec_next(&rest, ','), *pair;
	const struct sv_persona *persona;
	struct sv_dev *dev;
	bool ok = true;

	if (!name || !name_ok(name)) {
		sv_err("SOFTVERBS_DEVICES: '%s': not a name of 1 to %d letters, "
		       "digits, '_', '.' and '-'", name ? name : entry,
		       IBV_SYSFS_NAME_MAX - 1);
		return NULL;
	}
	persona = find_look(name, rest, look);
	dev = persona ? sv_dev_new(name, persona) : NULL;
	if (!dev)
		return NULL;
	while ((pair = sv_spec_next(&rest, ',')))
		ok = set_key(dev, pair) && ok;
	if (ok)
		return dev;
	sv_err("SOFTVERBS_DEVICES: %s: left out", name);
	sv_dev_free(dev);
	return NULL;
}

static bool is_taken(struct sv_dev **devs, unsigned int cnt, const char *name)
{
	while (cnt--)
		if (!strcmp(devs[cnt]->device.name, name))
			return true;
	return false;
}

unsigned int sv_devspec_parse(const char *text, const char *look,
			      struct sv_dev **devs, unsigned int max)
{
	char *copy = strdup(text), *rest = copy, *entry;
	unsigned int cnt = 0;
	struct sv_dev *dev;

	while (copy && (entry = sv_spec_next(&rest, ';'))) {
		dev = parse_dev(entry, look ? look : "roce2");
		if (!dev)
			continue;
		if (cnt < max && !is_taken(devs, cnt, dev->device.name)) {
			devs[cnt++] = dev;
			continue;
		}
		if (cnt < max)
			sv_err("SOFTVERBS_DEVICES: %s: there is one of that name already",
			       dev->device.name);
		else
			sv_err("SOFTVERBS_DEVICES: %s: one device too many, left out; %u is the limit",
			       dev->device.name, max);
		sv_dev_free(dev);
	}
	free(copy);
	return cnt;
}
