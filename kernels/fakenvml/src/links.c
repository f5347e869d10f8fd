// SPDX-License-Identifier: Apache-2.0
/* NVLink, a link at a time. */
#include <stdio.h>
#include "call.h"

/* Write the key of one link's value; an impossible link has none. */
static const char *link_key(char *buffer, size_t size, unsigned int link, const char *name)
{
	if (link >= MAX_LINKS || !name)
		return NULL;
	snprintf(buffer, size, "nvlink.%u.%s", link, name);
	return buffer;
}

static nvmlReturn_t read_link(const char *function, nvmlDevice_t device, const char *key, unsigned int *value)
{
	return read_uint(function, device, key, key ? value : NULL);
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *active)
{
	char key[64];

	return read_link(__func__, device, link_key(key, sizeof(key), link, "state"), active);
}

API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
	char key[64];

	return read_link(__func__, device, link_key(key, sizeof(key), link, "version"), version);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type)
{
	char key[64];

	return read_link(__func__, device, link_key(key, sizeof(key), link, "remote_type"), type);
}

API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter,
						 unsigned long long *errors)
{
	static const char *const COUNTERS[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
	char buffer[64];
	const char *key = link_key(buffer, sizeof(buffer), link, counter < 5 ? COUNTERS[counter] : NULL);

	return read_ulong(__func__, device, key, key ? errors : NULL);
}

/* Deprecated, and not supported from Hopper on: the throughput fields took its place. */
API nvmlReturn_t nvmlDeviceGetNvLinkUtilizationCounter(nvmlDevice_t device, unsigned int link, unsigned int counter,
						       unsigned long long *rx, unsigned long long *tx)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = link < MAX_LINKS && counter < 2 && rx && tx ? NVML_ERROR_NOT_SUPPORTED
								   : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}
