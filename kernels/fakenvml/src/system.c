// SPDX-License-Identifier: Apache-2.0
/* Functions about the node: versions, the number of GPUs, names of processes. */
#include <stdio.h>
#include <string.h>
#include "call.h"

static nvmlReturn_t read_node_text(const char *function, const char *key, char *buffer, unsigned int size)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, function);

	if (code == NVML_SUCCESS)
		code = call_text(&call, key, buffer, size);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return read_node_text(__func__, "driver", version, length);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	return read_node_text(__func__, "nvml", version, length);
}

static nvmlReturn_t cuda_version(const char *function, int *version)
{
	struct call call;
	unsigned int number;
	nvmlReturn_t code = call_begin(&call, function);

	if (code == NVML_SUCCESS)
		code = version ? call_uint(&call, "cuda", &number) : NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		*version = (int)number;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	return cuda_version(__func__, version);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	return cuda_version(__func__, version);
}

static nvmlReturn_t device_count(const char *function, unsigned int *count)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, function);

	if (code == NVML_SUCCESS && !count)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		*count = call.scenario->gpu_count;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
	return device_count(__func__, count);
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	return device_count(__func__, count);
}

static nvmlReturn_t command_of(unsigned int pid, char *name, unsigned int length)
{
	char path[64];
	size_t got;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	file = fopen(path, "re");
	if (!file)
		return NVML_ERROR_NOT_FOUND;
	got = fread(name, 1, length - 1, file);
	fclose(file);
	name[got] = 0; /* ends at the first NUL, after the path of the program */
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, __func__);

	if (code == NVML_SUCCESS)
		code = name && length ? command_of(pid, name, length) : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}
