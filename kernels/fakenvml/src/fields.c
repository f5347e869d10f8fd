// SPDX-License-Identifier: Apache-2.0
/* nvmlDeviceGetFieldValues: many values in one call, each with a code of its own. */
#include <limits.h>
#include <stdio.h>
#include "call.h"

#define MAX_FIELD 308 /* NVML_FI_MAX of nvidia-ml-py 13.615 */

enum place {
	OF_DEVICE, /* the key as it is */
	OF_LINK,   /* of the link that the field's number means */
	OF_ALL_LINKS,
	OF_SCOPE, /* of the link that scopeId names; UINT_MAX is all */
	COUNT_OF_LINKS,
};

struct field {
	unsigned int first, last; /* field ids */
	const char *key;
	unsigned int type;
	enum place place;
	unsigned int first_link;
};

#define ONE(id, key, type)                                                                                             \
	{                                                                                                              \
		id, id, key, type, OF_DEVICE, 0                                                                        \
	}
#define LINKS(from_0, from_6, total, key)                                                                              \
	{from_0, from_0 + 5, key, VALUE_ULONGLONG, OF_LINK, 0},                                                        \
		{from_6, from_6 + 5, key, VALUE_ULONGLONG, OF_LINK, 6},                                                \
	{                                                                                                              \
		total, total, key, VALUE_ULONGLONG, OF_ALL_LINKS, 0                                                    \
	}
#define SCOPED(id, key, type)                                                                                          \
	{                                                                                                              \
		id, id, key, type, OF_SCOPE, 0                                                                         \
	}

static const struct field FIELDS[] = {
	ONE(1, "ecc.mode", VALUE_UINT),
	ONE(2, "ecc.pending", VALUE_UINT),
	ONE(3, "ecc.volatile.corrected", VALUE_ULONGLONG),
	ONE(4, "ecc.volatile.uncorrected", VALUE_ULONGLONG),
	ONE(5, "ecc.aggregate.corrected", VALUE_ULONGLONG),
	ONE(6, "ecc.aggregate.uncorrected", VALUE_ULONGLONG),
	ONE(11, "ecc.volatile.corrected.dram", VALUE_ULONGLONG),
	ONE(12, "ecc.volatile.uncorrected.dram", VALUE_ULONGLONG),
	ONE(22, "ecc.aggregate.corrected.dram", VALUE_ULONGLONG),
	ONE(23, "ecc.aggregate.uncorrected.dram", VALUE_ULONGLONG),
	ONE(29, "retired.sbe", VALUE_ULONGLONG),
	ONE(30, "retired.dbe", VALUE_ULONGLONG),
	ONE(31, "retired.pending", VALUE_ULONGLONG),
	LINKS(32, 96, 38, "crc_flit"),
	LINKS(39, 102, 45, "crc_data"),
	LINKS(46, 108, 52, "replay"),
	LINKS(53, 114, 59, "recovery"),
	LINKS(148, 154, 160, "ecc_data"),
	ONE(74, "violation.power", VALUE_ULONGLONG),
	ONE(75, "violation.thermal", VALUE_ULONGLONG),
	ONE(76, "violation.sync_boost", VALUE_ULONGLONG),
	ONE(77, "violation.board_limit", VALUE_ULONGLONG),
	ONE(78, "violation.low_utilization", VALUE_ULONGLONG),
	ONE(79, "violation.reliability", VALUE_ULONGLONG),
	ONE(80, "violation.app_clocks", VALUE_ULONGLONG),
	ONE(81, "violation.base_clocks", VALUE_ULONGLONG),
	ONE(82, "temperature.memory", VALUE_UINT),
	ONE(83, "energy", VALUE_ULONGLONG),
	{84, 89, "speed", VALUE_UINT, OF_LINK, 0},
	{132, 137, "speed", VALUE_UINT, OF_LINK, 6},
	{90, 90, "speed", VALUE_UINT, OF_LINK, 0}, /* of all links alike */
	{91, 91, "state", VALUE_UINT, COUNT_OF_LINKS, 0},
	ONE(94, "pcie.replay", VALUE_UINT),
	SCOPED(138, "tx", VALUE_ULONGLONG),
	SCOPED(139, "rx", VALUE_ULONGLONG),
	SCOPED(140, "raw_tx", VALUE_ULONGLONG),
	SCOPED(141, "raw_rx", VALUE_ULONGLONG),
	ONE(142, "remapped.correctable", VALUE_UINT),
	ONE(143, "remapped.uncorrectable", VALUE_UINT),
	ONE(144, "remapped.pending", VALUE_UINT),
	ONE(145, "remapped.failure", VALUE_UINT),
	SCOPED(161, "replay", VALUE_ULONGLONG),
	SCOPED(162, "recovery", VALUE_ULONGLONG),
	SCOPED(163, "crc_flit", VALUE_ULONGLONG),
	SCOPED(164, "speed", VALUE_UINT),
	SCOPED(165, "state", VALUE_UINT),
	SCOPED(166, "version", VALUE_UINT),
	ONE(185, "power.average", VALUE_UINT),
	ONE(186, "power.usage", VALUE_UINT),
	ONE(187, "power.limit.min", VALUE_UINT),
	ONE(188, "power.limit.max", VALUE_UINT),
	ONE(189, "power.limit.default", VALUE_UINT),
	ONE(190, "power.limit.enforced", VALUE_UINT),
	ONE(191, "energy", VALUE_ULONGLONG),
	ONE(192, "power.limit", VALUE_UINT),
	ONE(197, "pcie.tx_bytes", VALUE_ULONGLONG),
	ONE(198, "pcie.rx_bytes", VALUE_ULONGLONG),
};

static nvmlReturn_t link_value(const struct call *call, unsigned int link, const char *name, unsigned long long *value)
{
	char key[64];

	snprintf(key, sizeof(key), "nvlink.%u.%s", link, name);
	return link < MAX_LINKS ? call_ulong(call, key, value) : NVML_ERROR_INVALID_ARGUMENT;
}

/* Add up a value of all links that have it, or count them. */
static nvmlReturn_t all_links(const struct call *call, const struct field *field, unsigned long long *value)
{
	unsigned long long one, sum = 0, links = 0;

	for (unsigned int link = 0; link < MAX_LINKS; link++) {
		if (link_value(call, link, field->key, &one) == NVML_SUCCESS) {
			sum += one;
			links++;
		}
	}
	*value = field->place == COUNT_OF_LINKS ? links : sum;
	return links ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t derived(const struct call *call, const struct field *field, const nvmlFieldValue_t *wanted,
			    unsigned long long *value)
{
	switch (field->place) {
	case OF_DEVICE:
		return call_ulong(call, field->key, value);
	case OF_LINK:
		return link_value(call, field->first_link + wanted->fieldId - field->first, field->key, value);
	case OF_SCOPE:
		if (wanted->scopeId != UINT_MAX)
			return link_value(call, wanted->scopeId, field->key, value);
		return all_links(call, field, value);
	default:
		return all_links(call, field, value);
	}
}

static const struct field *known(unsigned int id)
{
	for (size_t i = 0; i < sizeof(FIELDS) / sizeof(FIELDS[0]); i++)
		if (FIELDS[i].first <= id && id <= FIELDS[i].last)
			return &FIELDS[i];
	return NULL;
}

/* What the scenario says about the field itself goes before what follows from other keys. */
static nvmlReturn_t field_value(const struct call *call, nvmlFieldValue_t *wanted)
{
	const struct field *field = known(wanted->fieldId);
	unsigned long long value = 0;
	nvmlReturn_t code;
	char key[64];

	if (!wanted->fieldId || wanted->fieldId >= MAX_FIELD)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(key, sizeof(key), "field.%u.%u", wanted->fieldId, wanted->scopeId);
	code = call_ulong(call, key, &value);
	if (code == NVML_ERROR_NOT_SUPPORTED) {
		snprintf(key, sizeof(key), "field.%u", wanted->fieldId);
		code = call_ulong(call, key, &value);
	}
	if (code == NVML_ERROR_NOT_SUPPORTED && field)
		code = derived(call, field, wanted, &value);
	wanted->valueType = field ? field->type : VALUE_ULONGLONG;
	wanted->value.ullVal = 0;
	if (wanted->valueType == VALUE_UINT)
		wanted->value.uiVal = (unsigned int)value;
	else
		wanted->value.ullVal = value;
	return code;
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS && (!values || count < 1))
		code = NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; code == NVML_SUCCESS && i < count; i++) {
		values[i].nvmlReturn = field_value(&call, &values[i]);
		values[i].timestamp = (long long)unix_us();
		values[i].latencyUsec = 0;
	}
	return call_end(&call, code);
}
