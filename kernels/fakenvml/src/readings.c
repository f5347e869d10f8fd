// SPDX-License-Identifier: Apache-2.0
/* Functions that read one value, or a few that belong together. */
#include <stdio.h>
#include "call.h"

#define READ_UINT(function, key)                                                                                       \
	API nvmlReturn_t function(nvmlDevice_t device, unsigned int *value)                                            \
	{                                                                                                              \
		return read_uint(__func__, device, key, value);                                                        \
	}
#define READ_ULONG(function, key)                                                                                      \
	API nvmlReturn_t function(nvmlDevice_t device, unsigned long long *value)                                      \
	{                                                                                                              \
		return read_ulong(__func__, device, key, value);                                                       \
	}
#define READ_TWO(function, key, other_key)                                                                             \
	API nvmlReturn_t function(nvmlDevice_t device, unsigned int *value, unsigned int *other)                       \
	{                                                                                                              \
		return read_two(__func__, device, (const char *[]){key, other_key}, value, other);                     \
	}

static nvmlReturn_t read_two(const char *function, nvmlDevice_t device, const char *const keys[2], unsigned int *first,
			     unsigned int *second)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, function, device);

	if (code == NVML_SUCCESS && (!first || !second))
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		code = call_uint(&call, keys[0], first);
	if (code == NVML_SUCCESS)
		code = call_uint(&call, keys[1], second);
	return call_end(&call, code);
}

READ_UINT(nvmlDeviceGetMinorNumber, "minor")
READ_UINT(nvmlDeviceGetBoardId, "board_id")
READ_UINT(nvmlDeviceGetModuleId, "module_id")
READ_UINT(nvmlDeviceGetBrand, "brand")
READ_UINT(nvmlDeviceGetArchitecture, "architecture")
READ_UINT(nvmlDeviceGetNumGpuCores, "cores")
READ_UINT(nvmlDeviceGetMemoryBusWidth, "memory.bus_width")
READ_UINT(nvmlDeviceGetNumaNodeId, "numa_node")
READ_UINT(nvmlDeviceGetPersistenceMode, "persistence")
READ_UINT(nvmlDeviceGetComputeMode, "compute_mode")
READ_UINT(nvmlDeviceGetDisplayMode, "display.mode")
READ_UINT(nvmlDeviceGetDisplayActive, "display.active")
READ_UINT(nvmlDeviceGetAccountingMode, "accounting")
READ_UINT(nvmlDeviceGetVirtualizationMode, "virtualization")
READ_TWO(nvmlDeviceGetCudaComputeCapability, "capability.major", "capability.minor")

READ_UINT(nvmlDeviceGetPowerUsage, "power.usage")
READ_UINT(nvmlDeviceGetPowerManagementMode, "power.management")
READ_UINT(nvmlDeviceGetPowerManagementLimit, "power.limit")
READ_UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power.limit.default")
READ_UINT(nvmlDeviceGetEnforcedPowerLimit, "power.limit.enforced")
READ_TWO(nvmlDeviceGetPowerManagementLimitConstraints, "power.limit.min", "power.limit.max")
READ_ULONG(nvmlDeviceGetTotalEnergyConsumption, "energy")
READ_UINT(nvmlDeviceGetPerformanceState, "pstate")
READ_UINT(nvmlDeviceGetPowerState, "pstate")

READ_TWO(nvmlDeviceGetEncoderUtilization, "utilization.encoder", "utilization.period_us")
READ_TWO(nvmlDeviceGetDecoderUtilization, "utilization.decoder", "utilization.period_us")
READ_TWO(nvmlDeviceGetJpgUtilization, "utilization.jpeg", "utilization.period_us")
READ_TWO(nvmlDeviceGetOfaUtilization, "utilization.ofa", "utilization.period_us")

READ_ULONG(nvmlDeviceGetCurrentClocksEventReasons, "clocks.reasons")
READ_ULONG(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks.reasons")
READ_ULONG(nvmlDeviceGetSupportedClocksEventReasons, "clocks.reasons.supported")
READ_ULONG(nvmlDeviceGetSupportedClocksThrottleReasons, "clocks.reasons.supported")

READ_UINT(nvmlDeviceGetPcieReplayCounter, "pcie.replay")
READ_UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.gen")
READ_UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
READ_UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.gen.max")
READ_UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.gen.max")
READ_UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie.width.max")
READ_UINT(nvmlDeviceGetPcieSpeed, "pcie.speed")
READ_UINT(nvmlDeviceGetNumFans, "fans")
READ_UINT(nvmlDeviceGetFanSpeed, "fan.0")

API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *percent)
{
	char key[32];

	snprintf(key, sizeof(key), "fan.%u", fan);
	return read_uint(__func__, device, key, percent);
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
	static const char *const KEYS[] = {"utilization.gpu", "utilization.memory"};

	return read_two(__func__, device, KEYS, rates ? &rates->gpu : NULL, rates ? &rates->memory : NULL);
}

/* Values that an enumeration chooses; an unknown member is an invalid argument. */
static nvmlReturn_t read_member(const char *function, nvmlDevice_t device, const char *key, unsigned int *value)
{
	return read_uint(function, device, key, key ? value : NULL);
}

static const char *member(const char *const keys[], size_t count, unsigned int index)
{
	return index < count ? keys[index] : NULL;
}

#define MEMBER(keys, index) member(keys, sizeof(keys) / sizeof((keys)[0]), index)

static const char *const CLOCKS[] = {"clock.graphics", "clock.sm", "clock.mem", "clock.video"};
static const char *const MAX_CLOCKS[] = {"clock.max.graphics", "clock.max.sm", "clock.max.mem", "clock.max.video"};
static const char *const APP_CLOCKS[] = {"clock.app.graphics", "clock.app.sm", "clock.app.mem", "clock.app.video"};
static const char *const DEFAULT_CLOCKS[] = {"clock.default.graphics", "clock.default.sm", "clock.default.mem",
					     "clock.default.video"};
static const char *const BOOST_CLOCKS[] = {"clock.boost.graphics", "clock.boost.sm", "clock.boost.mem",
					   "clock.boost.video"};

#define READ_CLOCK(function, keys)                                                                                     \
	API nvmlReturn_t function(nvmlDevice_t device, unsigned int type, unsigned int *mhz)                           \
	{                                                                                                              \
		return read_member(__func__, device, MEMBER(keys, type), mhz);                                         \
	}

READ_CLOCK(nvmlDeviceGetClockInfo, CLOCKS)
READ_CLOCK(nvmlDeviceGetMaxClockInfo, MAX_CLOCKS)
READ_CLOCK(nvmlDeviceGetApplicationsClock, APP_CLOCKS)
READ_CLOCK(nvmlDeviceGetDefaultApplicationsClock, DEFAULT_CLOCKS)
READ_CLOCK(nvmlDeviceGetMaxCustomerBoostClock, BOOST_CLOCKS)

API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int id, unsigned int *mhz)
{
	static const char *const *const BY_ID[] = {CLOCKS, APP_CLOCKS, DEFAULT_CLOCKS, BOOST_CLOCKS};

	return read_member(__func__, device, id < 4 && type < 4 ? BY_ID[id][type] : NULL, mhz);
}

static const char *const SENSORS[] = {"temperature.gpu", "temperature.gpu_max"};
static const char *const THRESHOLDS[] = {
	"temperature.threshold.shutdown",     "temperature.threshold.slowdown",	    "temperature.threshold.mem_max",
	"temperature.threshold.gpu_max",      "temperature.threshold.acoustic_min", "temperature.threshold.acoustic",
	"temperature.threshold.acoustic_max", "temperature.threshold.gps",
};

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius)
{
	return read_member(__func__, device, MEMBER(SENSORS, sensor), celsius);
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int type, unsigned int *celsius)
{
	return read_member(__func__, device, MEMBER(THRESHOLDS, type), celsius);
}

/* For structs that begin with their version. */
static nvmlReturn_t read_versioned(const char *function, nvmlDevice_t device, const char *key,
				   const unsigned int versions[2], int *value)
{
	struct call call;
	unsigned int number = 0;
	nvmlReturn_t code = call_begin_device(&call, function, device);

	if (code == NVML_SUCCESS && versions[0] != versions[1])
		code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (code == NVML_SUCCESS)
		code = key && value ? call_uint(&call, key, &number) : NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		*value = (int)number;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *info)
{
	unsigned int known = VERSION(nvmlTemperature_v1_t, 1);
	unsigned int versions[] = {info ? info->version : known, known};

	return read_versioned(__func__, device, info ? MEMBER(SENSORS, info->sensorType) : NULL, versions,
			      info ? &info->temperature : NULL);
}

API nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_v1_t *info)
{
	unsigned int known = VERSION(nvmlMarginTemperature_v1_t, 1);
	unsigned int versions[] = {info ? info->version : known, known};

	return read_versioned(__func__, device, "temperature.margin", versions, info ? &info->marginTemperature : NULL);
}

static const char *const DIRECTIONS[] = {"pcie.tx", "pcie.rx"};

API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter, unsigned int *kb_per_s)
{
	return read_member(__func__, device, MEMBER(DIRECTIONS, counter), kb_per_s);
}
