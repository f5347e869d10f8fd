// SPDX-License-Identifier: Apache-2.0
/* Return codes and event types by the names that scenario files use. */
#include <string.h>
#include "scenario.h"

static const struct {
	const char *name, *sentence;
	nvmlReturn_t code;
} CODES[] = {
	{"SUCCESS", "Success", NVML_SUCCESS},
	{"UNINITIALIZED", "Uninitialized", NVML_ERROR_UNINITIALIZED},
	{"INVALID_ARGUMENT", "Invalid Argument", NVML_ERROR_INVALID_ARGUMENT},
	{"NOT_SUPPORTED", "Not Supported", NVML_ERROR_NOT_SUPPORTED},
	{"NO_PERMISSION", "Insufficient Permissions", NVML_ERROR_NO_PERMISSION},
	{"NOT_FOUND", "Not Found", NVML_ERROR_NOT_FOUND},
	{"INSUFFICIENT_SIZE", "Insufficient Size", NVML_ERROR_INSUFFICIENT_SIZE},
	{"DRIVER_NOT_LOADED", "Driver Not Loaded", NVML_ERROR_DRIVER_NOT_LOADED},
	{"TIMEOUT", "Timeout", NVML_ERROR_TIMEOUT},
	{"IRQ_ISSUE", "Interrupt Request Issue", NVML_ERROR_IRQ_ISSUE},
	{"LIBRARY_NOT_FOUND", "Library Not Found", NVML_ERROR_LIBRARY_NOT_FOUND},
	{"FUNCTION_NOT_FOUND", "Function Not Found", NVML_ERROR_FUNCTION_NOT_FOUND},
	{"CORRUPTED_INFOROM", "Corrupted infoROM", NVML_ERROR_CORRUPTED_INFOROM},
	{"GPU_IS_LOST", "GPU is lost", NVML_ERROR_GPU_IS_LOST},
	{"RESET_REQUIRED", "GPU requires reset", NVML_ERROR_RESET_REQUIRED},
	{"OPERATING_SYSTEM", "Blocked by the operating system", NVML_ERROR_OPERATING_SYSTEM},
	{"LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch", NVML_ERROR_LIB_RM_VERSION_MISMATCH},
	{"IN_USE", "In use by another client", NVML_ERROR_IN_USE},
	{"MEMORY", "Insufficient Memory", NVML_ERROR_MEMORY},
	{"NO_DATA", "No data", NVML_ERROR_NO_DATA},
	{"ARGUMENT_VERSION_MISMATCH", "Argument version mismatch", NVML_ERROR_ARGUMENT_VERSION_MISMATCH},
	{"NOT_READY", "Not ready", NVML_ERROR_NOT_READY},
	{"GPU_NOT_FOUND", "GPU not found", NVML_ERROR_GPU_NOT_FOUND},
	{"INVALID_STATE", "Invalid state", NVML_ERROR_INVALID_STATE},
	{"UNKNOWN", "Unknown Error", NVML_ERROR_UNKNOWN},
};

static const struct {
	const char *name;
	unsigned long long type;
} EVENTS[] = {
	{"ecc_single", 0x1},
	{"ecc_double", 0x2},
	{"pstate", 0x4},
	{"xid", 0x8},
	{"clock", 0x10},
	{"power_source", 0x80},
	{"mig_config", 0x100},
	{"ecc_storm", 0x200},
	{"dram_retirement", 0x400},
	{"dram_failure", 0x800},
	{"non_fatal_poison", 0x1000},
	{"fatal_poison", 0x2000},
	{"gpu_unavailable", 0x4000},
	{"recovery_action", 0x8000},
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

int code_by_name(const char *name, nvmlReturn_t *code)
{
	for (size_t i = 0; i < LENGTH(CODES); i++) {
		if (!strcmp(CODES[i].name, name)) {
			*code = CODES[i].code;
			return 0;
		}
	}
	return -1;
}

int event_type_by_name(const char *name, unsigned long long *type)
{
	for (size_t i = 0; i < LENGTH(EVENTS); i++) {
		if (!strcmp(EVENTS[i].name, name)) {
			*type = EVENTS[i].type;
			return 0;
		}
	}
	return -1;
}

API const char *nvmlErrorString(nvmlReturn_t code)
{
	for (size_t i = 0; i < LENGTH(CODES); i++)
		if (CODES[i].code == code)
			return CODES[i].sentence;
	return "Unknown Error";
}
