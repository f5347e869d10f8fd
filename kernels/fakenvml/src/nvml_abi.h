/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVML's binary interface that this library speaks: codes, layouts, versions.
 *
 * Source: NVML API reference (docs.nvidia.com/deploy/nvml-api) and the ctypes layouts of nvidia-ml-py 13.615.
 * Values and layouts are the interface; the tests compare every one of them through the real binding.
 */
#ifndef NVML_ABI_H
#define NVML_ABI_H

#define API __attribute__((visibility("default")))

typedef enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_IRQ_ISSUE = 11,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_CORRUPTED_INFOROM = 14,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16,
	NVML_ERROR_OPERATING_SYSTEM = 17,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_NO_DATA = 21,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_NOT_READY = 27,
	NVML_ERROR_GPU_NOT_FOUND = 28,
	NVML_ERROR_INVALID_STATE = 29,
	NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef void *nvmlDevice_t; /* opaque: see handles.h */
typedef void *nvmlGpuInstance_t;
typedef void *nvmlComputeInstance_t;
typedef struct event_set *nvmlEventSet_t;
typedef struct gpm_sample *nvmlGpmSample_t;

#define NO_INSTANCE 0xFFFFFFFFu
#define NOT_AVAILABLE 0xFFFFFFFFFFFFFFFFull
#define MAX_LINKS 36
#define VERSION(type, number) ((unsigned int)sizeof(type) | (number##u << 24))

enum { VALUE_DOUBLE, VALUE_UINT, VALUE_ULONG, VALUE_ULONGLONG, VALUE_LONGLONG, VALUE_INT };

typedef struct {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "nvmlPciInfo_t");

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
_Static_assert(VERSION(nvmlMemory_v2_t, 2) == 0x02000028, "nvmlMemory_v2");

typedef struct {
	unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;

typedef struct {
	unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
	unsigned long long referenceTime, violationTime; /* us and ns */
} nvmlViolationTime_t;

typedef struct {
	unsigned int version, sensorType;
	int temperature;
} nvmlTemperature_v1_t;
_Static_assert(VERSION(nvmlTemperature_v1_t, 1) == 0x0100000C, "nvmlTemperature_v1");

typedef struct {
	unsigned int version;
	int marginTemperature;
} nvmlMarginTemperature_v1_t;
_Static_assert(VERSION(nvmlMarginTemperature_v1_t, 1) == 0x01000008, "nvmlMarginTemperature_v1");

typedef struct {
	unsigned long long l1Cache, l2Cache, deviceMemory, registerFile;
} nvmlEccErrorCounts_t;

typedef struct {
	unsigned int max, high, partial, low, none;
} nvmlRowRemapperHistogramValues_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "nvmlProcessInfo_v1_t");

typedef struct { /* _v2 and _v3 have the same layout */
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t");

typedef struct {
	unsigned int pid;
	unsigned long long timeStamp;
	unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "nvmlProcessUtilizationSample_t");

typedef struct {
	unsigned long long timeStamp;
	unsigned int pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;
_Static_assert(sizeof(nvmlProcessUtilizationInfo_v1_t) == 40, "nvmlProcessUtilizationInfo_v1_t");

typedef struct {
	unsigned int version, processSamplesCount;
	unsigned long long lastSeenTimeStamp;
	nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;
_Static_assert(VERSION(nvmlProcessesUtilizationInfo_v1_t, 1) == 0x01000018, "nvmlProcessesUtilizationInfo_v1");

typedef union {
	double dVal;
	unsigned int uiVal;
	unsigned long ulVal;
	unsigned long long ullVal;
	long long sllVal;
	int siVal;
} nvmlValue_t;

typedef struct {
	unsigned int fieldId, scopeId;
	long long timestamp, latencyUsec; /* since 1970, in us */
	unsigned int valueType, nvmlReturn;
	nvmlValue_t value;
} nvmlFieldValue_t;
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "nvmlFieldValue_t");

typedef struct {
	unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
	unsigned int sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
	unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "nvmlDeviceAttributes_t");

typedef struct {
	unsigned int start, size;
} nvmlInstancePlacement_t;

typedef struct {
	nvmlDevice_t device;
	unsigned int id, profileId;
	nvmlInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
	nvmlDevice_t device;
	nvmlGpuInstance_t gpuInstance;
	unsigned int id, profileId;
	nvmlInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType, eventData;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
_Static_assert(sizeof(nvmlEventData_t) == 32, "nvmlEventData_t");

typedef struct {
	unsigned int version, isSupportedDevice;
} nvmlGpmSupport_t;

typedef struct {
	unsigned int metricId, nvmlReturn;
	double value;
	const char *shortName, *longName, *unit;
} nvmlGpmMetric_t;
_Static_assert(sizeof(nvmlGpmMetric_t) == 40, "nvmlGpmMetric_t");

typedef struct { /* followed by as many metrics as the caller's header knows; numMetrics of them are used */
	unsigned int version, numMetrics;
	nvmlGpmSample_t sample1, sample2;
	nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;

#endif
