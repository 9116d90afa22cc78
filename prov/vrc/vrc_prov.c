/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The provider's entry point and its parameters. fi_prov_ini is the only
 * symbol that the library exports.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "vrc_dev.h"
#include "vrc_fabric.h"
#include "vrc_info.h"
#include "vrc_log.h"
#include "vrc_params.h"

struct vrc_params vrc_params = {
	.softverbs = VRC_SOFTVERBS_AUTO,
	.tx_size = 384,
	.rx_size = 384,
	.inject_size = 256,
	.gid_index = -1,
	.min_rnr_timer = 12, /* 0.64 ms */
	.ack_timeout = -1,
};

static void param_str(const char *name, char **value, const char *help)
{
	char *str = NULL;

	fi_param_define(&vrc_prov, name, FI_PARAM_STRING, "%s", help);
	if (fi_param_get_str(&vrc_prov, name, &str) == 0 && str && *str)
		*value = str;
}

/* As it was given; NULL if it was not by the environment. */
static const char *text_of(const char *name)
{
	char var[64];

	snprintf(var, sizeof(var), "FI_VRC_%s", name);
	return getenv(var);
}

/* libfabric turns what is too large for an int into another number, what is none
 * into 0, and takes no notice of what follows one. */
static bool is_number(const char *text)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 0);
	return end != text && !*end && !errno && value >= INT_MIN &&
	       value <= INT_MAX;
}

/* What is no number or out of range is refused by name and the default stays. True if
 * it was given and taken. */
static bool param_int(const char *name, int *value, int min, int max,
		      const char *help)
{
	const char *text = text_of(name);
	int given = *value;
	int ret;

	fi_param_define(&vrc_prov, name, FI_PARAM_INT,
			"%s (%d to %d, default %d)", help, min, max, *value);
	ret = fi_param_get_int(&vrc_prov, name, &given);
	if (ret == -FI_ENODATA)
		return false;
	if (ret || given < min || given > max || (text && !is_number(text))) {
		vrc_warn(CORE, "FI_VRC_%s=%s: not a number from %d to %d; "
			 "using %d\n", name, text ? text : "?", min, max,
			 *value);
		return false;
	}
	*value = given;
	return true;
}

static bool param_size(const char *name, size_t *value, int min, int max,
		       const char *help)
{
	int given = (int)*value;
	bool taken = param_int(name, &given, min, max, help);

	*value = (size_t)given;
	return taken;
}

/* auto, always or never: 0, 1 or 2. */
static int param_when(const char *name, const char *help)
{
	static const char *const words[] = { "auto", "always", "never" };
	char *str = NULL;

	param_str(name, &str, help);
	if (!str)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(str, words[i]))
			return (int)i;
	vrc_warn(CORE, "FI_VRC_%s=%s: not auto, always or never; using auto\n",
		 name, str);
	return 0;
}

static void params_read(void)
{
	vrc_params.softverbs = (enum vrc_softverbs_mode)param_when(
		"SOFTVERBS",
		"when to offer the embedded device softverbs: auto (only where "
		"there is no usable RDMA device), always, never (default auto)");
	vrc_params.credits = (enum vrc_credits_mode)param_when(
		"CREDITS",
		"when to hold a send back until the peer has a receive for it: "
		"auto (on iWARP, where it would end the connection), always, "
		"never (default auto)");
	vrc_params.tx_size_given = param_size(
		"TX_SIZE", &vrc_params.tx_size, 1, 1 << 20,
		"default depth of an endpoint's send queue, operations");
	vrc_params.rx_size_given = param_size(
		"RX_SIZE", &vrc_params.rx_size, 1, 1 << 20,
		"default depth of an endpoint's receive queue, operations");
	param_size("INJECT_SIZE", &vrc_params.inject_size, 0, 4096,
		   "default inject_size, bytes; kept by a copy where the device "
		   "inlines less");
	param_str("IFACE", &vrc_params.iface,
		  "use only this network interface, e.g. eth0");
	param_str("DEVICE_NAME", &vrc_params.device,
		  "use only this verbs device, e.g. mlx5_0, rxe0 or softverbs0");
	param_int("GID_INDEX", &vrc_params.gid_index, -1, INT_MAX,
		  "index of the GID to connect from; -1: the one that the "
		  "route's source address has");
	param_int("MIN_RNR_TIMER", &vrc_params.min_rnr_timer, 1, 31,
		  "how long a peer waits before it sends again when we had no "
		  "receive posted, as IBTA encodes it; 12 is 0.64 ms");
	param_int("ACK_TIMEOUT", &vrc_params.ack_timeout, -1, 31,
		  "how long to wait for an acknowledgement, 4.096 us * 2^N; "
		  "-1: what rdma_cm proposes");
}

static void cleanup(void)
{
	vrc_dev_forget();
}

struct fi_provider vrc_prov = {
	.name = "vrc",
	.version = FI_VERSION(0, 1),
	.getinfo = vrc_getinfo,
	.fabric = vrc_fabric_open,
	.cleanup = cleanup,
};

FI_EXT_INI;
FI_EXT_INI
{
	/*
	 * Callers that ask for a newer API than this are passed over without
	 * a word, so claim whatever the library that loaded us is.
	 */
	vrc_prov.fi_version = fi_version();
	params_read();
	return &vrc_prov;
}
