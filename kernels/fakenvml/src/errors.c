// SPDX-License-Identifier: Apache-2.0
/* What went wrong with a GPU: ECC, retired pages, remapped rows, time under a limit. */
#include <stdio.h>
#include "call.h"

#define KINDS 2
#define PAGE_BYTES 0x10000ull

static const char *const COUNTERS[] = {"volatile", "aggregate"};
static const char *const ERRORS[] = {"corrected", "uncorrected"};
static const char *const PLACES[] = {"l1", "l2", "dram", "register", "texture", "shm", "cbu", "sram"};
#define PLACE_COUNT (sizeof(PLACES) / sizeof(PLACES[0]))

struct ecc_query {
	unsigned int error, counter;
	const char *place; /* NULL: all of them */
};

/* With ECC switched off there are no counters. */
static nvmlReturn_t ecc_errors(const struct call *call, struct ecc_query query, unsigned long long *errors)
{
	unsigned int mode;
	char key[64];
	nvmlReturn_t code = call_uint(call, "ecc.mode", &mode);

	if (query.error >= KINDS || query.counter >= KINDS)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (code != NVML_SUCCESS || !mode)
		return NVML_ERROR_NOT_SUPPORTED;
	snprintf(key, sizeof(key), "ecc.%s.%s%s%s", COUNTERS[query.counter], ERRORS[query.error],
		 query.place ? "." : "", query.place ? query.place : "");
	return call_ulong(call, key, errors);
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = current && pending ? call_uint(&call, "ecc.mode", current) : NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS && call_uint(&call, "ecc.pending", pending) != NVML_SUCCESS)
		*pending = *current;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, unsigned int *mode)
{
	return read_uint(__func__, device, "ecc.default", mode);
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int error, unsigned int counter,
					     unsigned long long *errors)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = errors ? ecc_errors(&call, (struct ecc_query){error, counter, NULL}, errors)
			      : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int error, unsigned int counter,
						 unsigned int place, unsigned long long *errors)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = errors && place < PLACE_COUNT
			       ? ecc_errors(&call, (struct ecc_query){error, counter, PLACES[place]}, errors)
			       : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

/* The struct cannot tell "no such counter" from 0; supported is what has one of the four. */
static nvmlReturn_t detailed(const struct call *call, struct ecc_query query, nvmlEccErrorCounts_t *counts)
{
	unsigned long long *fields[] = {&counts->l1Cache, &counts->l2Cache, &counts->deviceMemory,
					&counts->registerFile};
	nvmlReturn_t code = NVML_ERROR_NOT_SUPPORTED;

	*counts = (nvmlEccErrorCounts_t){0};
	for (unsigned int i = 0; i < 4; i++) {
		query.place = PLACES[i];
		if (ecc_errors(call, query, fields[i]) == NVML_SUCCESS)
			code = NVML_SUCCESS;
	}
	return code;
}

API nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned int error, unsigned int counter,
						nvmlEccErrorCounts_t *counts)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = counts && error < KINDS && counter < KINDS
			       ? detailed(&call, (struct ecc_query){error, counter, NULL}, counts)
			       : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

/* Addresses and times are made up: page after page, from the time of the call. */
static nvmlReturn_t fill_pages(const struct call *call, const char *key, unsigned int *count,
			       unsigned long long *const arrays[2])
{
	unsigned int room = *count;
	nvmlReturn_t code = call_uint(call, key, count);

	if (code != NVML_SUCCESS)
		return code;
	if (*count > room || !arrays[0])
		return *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	for (unsigned int i = 0; i < *count; i++) {
		arrays[0][i] = (i + 1) * PAGE_BYTES;
		if (arrays[1])
			arrays[1][i] = unix_us();
	}
	return NVML_SUCCESS;
}

static nvmlReturn_t retired(struct call *call, unsigned int cause, unsigned int *count,
			    unsigned long long *const arrays[2])
{
	static const char *const KEYS[] = {"retired.sbe", "retired.dbe"};

	return count && cause < KINDS ? fill_pages(call, KEYS[cause], count, arrays) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause, unsigned int *count,
					   unsigned long long *addresses)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = retired(&call, cause, count, (unsigned long long *const[]){addresses, NULL});
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause, unsigned int *count,
					      unsigned long long *addresses, unsigned long long *times)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = retired(&call, cause, count, (unsigned long long *const[]){addresses, times});
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned int *pending)
{
	return read_uint(__func__, device, "retired.pending", pending);
}

/* Fill `count` numbers from as many keys. */
static nvmlReturn_t read_group(const char *function, nvmlDevice_t device, const char *const keys[],
			       unsigned int *const numbers[], unsigned int count)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, function, device);

	for (unsigned int i = 0; code == NVML_SUCCESS && i < count; i++)
		code = numbers[i] ? call_uint(&call, keys[i], numbers[i]) : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
					   unsigned int *pending, unsigned int *failure)
{
	static const char *const KEYS[] = {"remapped.correctable", "remapped.uncorrectable", "remapped.pending",
					   "remapped.failure"};
	unsigned int *const numbers[] = {correctable, uncorrectable, pending, failure};

	return read_group(__func__, device, KEYS, numbers, 4);
}

API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *banks)
{
	static const char *const KEYS[] = {"remapped.histogram.max", "remapped.histogram.high",
					   "remapped.histogram.partial", "remapped.histogram.low",
					   "remapped.histogram.none"};
	nvmlRowRemapperHistogramValues_t nowhere, *to = banks ? banks : &nowhere;
	unsigned int *const numbers[] = {banks ? &to->max : NULL, &to->high, &to->partial, &to->low, &to->none};

	return read_group(__func__, device, KEYS, numbers, 5);
}

static const char *const POLICIES[12] = {
	[0] = "violation.power",       [1] = "violation.thermal",	  [2] = "violation.sync_boost",
	[3] = "violation.board_limit", [4] = "violation.low_utilization", [5] = "violation.reliability",
	[10] = "violation.app_clocks", [11] = "violation.base_clocks",
};

API nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned int policy, nvmlViolationTime_t *times)
{
	const char *key = policy < sizeof(POLICIES) / sizeof(POLICIES[0]) ? POLICIES[policy] : NULL;
	nvmlReturn_t code = read_ulong(__func__, device, key, key && times ? &times->violationTime : NULL);

	if (code == NVML_SUCCESS)
		times->referenceTime = unix_us();
	return code;
}
