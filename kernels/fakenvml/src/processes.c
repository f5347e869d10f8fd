// SPDX-License-Identifier: Apache-2.0
/* Processes on a GPU or MIG device: memory in three layouts, utilisation in two. */
#include <string.h>
#include "call.h"

#define SAMPLE_PERIOD_US 100000

/* Whether a process of the GPU belongs to the device that was asked: a MIG device has those of its instances. */
static int belongs(const struct call *call, const struct process *process)
{
	unsigned int gpu_instance, compute_instance;

	if (call->section->mig < 0)
		return 1;
	return section_uint(call->scenario, call->section, "gi", &gpu_instance) == NVML_SUCCESS &&
	       section_uint(call->scenario, call->section, "ci", &compute_instance) == NVML_SUCCESS &&
	       process->gpu_instance == gpu_instance && process->compute_instance == compute_instance;
}

/* The next process of a kind after `*position`; kind NULL: of those that have used the GPU. */
static const struct process *next(const struct call *call, const char *kind, size_t *position)
{
	const struct section *gpu = scenario_section(call->scenario, call->section->gpu, -1);

	while (*position < gpu->process_count) {
		const struct process *process = &gpu->processes[(*position)++];

		if (belongs(call, process) && (kind ? !strcmp(process->kind, kind) : process->has_use))
			return process;
	}
	return NULL;
}

static unsigned int count_of(const struct call *call, const char *kind)
{
	unsigned int count = 0;
	size_t position = 0;

	while (next(call, kind, &position))
		count++;
	return count;
}

static void fill_v1(const struct process *process, void *entry)
{
	*(nvmlProcessInfo_v1_t *)entry = (nvmlProcessInfo_v1_t){process->pid, process->memory};
}

static void fill_v2(const struct process *process, void *entry)
{
	*(nvmlProcessInfo_t *)entry =
		(nvmlProcessInfo_t){process->pid, process->memory, process->gpu_instance, process->compute_instance};
}

struct layout {
	size_t size;
	void (*fill)(const struct process *process, void *entry);
};

static const struct layout V1 = {sizeof(nvmlProcessInfo_v1_t), fill_v1};
static const struct layout V2 = {sizeof(nvmlProcessInfo_t), fill_v2};

static nvmlReturn_t fill_list(const struct call *call, const char *kind, const struct layout *layout,
			      unsigned int *count, char *entries)
{
	unsigned int room = *count;
	const struct process *process;
	size_t position = 0;

	*count = count_of(call, kind);
	if (*count > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (*count && !entries)
		return NVML_ERROR_INVALID_ARGUMENT;
	while ((process = next(call, kind, &position))) {
		layout->fill(process, entries);
		entries += layout->size;
	}
	return NVML_SUCCESS;
}

struct query {
	const char *function, *kind;
	const struct layout *layout;
};

static nvmlReturn_t list(struct query query, nvmlDevice_t device, unsigned int *count, void *entries)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, query.function, device);

	if (code == NVML_SUCCESS)
		code = count ? fill_list(&call, query.kind, query.layout, count, entries) : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

#define PROCESS_LIST(function, kind, layout)                                                                           \
	API nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, void *entries)                             \
	{                                                                                                              \
		return list((struct query){__func__, kind, &layout}, device, count, entries);                          \
	}

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, "compute", V1)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, "compute", V2)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, "compute", V2)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, "graphics", V1)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics", V2)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", V2)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, "mps", V1)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps", V2)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", V2)

/* When the newest sample was taken; the driver samples at its own pace, not at the caller's. */
static unsigned long long sampled_us(void)
{
	unsigned long long now = unix_us();

	return now - now % SAMPLE_PERIOD_US;
}

/* How many samples there are after `last_seen_us`, or why there is none. */
static nvmlReturn_t samples_due(const struct call *call, unsigned long long last_seen_us, unsigned int *count)
{
	unsigned int mig = 0;

	section_uint(call->scenario, call->section, "mig.mode", &mig);
	if (mig || call->section->mig >= 0) /* the API reference: not supported on MIG-enabled GPUs */
		return NVML_ERROR_NOT_SUPPORTED;
	*count = sampled_us() > last_seen_us ? count_of(call, NULL) : 0;
	return *count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t fill_samples(const struct call *call, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
				 unsigned long long last_seen_us)
{
	unsigned int room = *count;
	nvmlReturn_t code = samples_due(call, last_seen_us, count);
	const struct process *process;
	size_t position = 0;

	if (code != NVML_SUCCESS)
		return code;
	if (!samples || room < *count)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	while ((process = next(call, NULL, &position)))
		*samples++ = (nvmlProcessUtilizationSample_t){process->pid, sampled_us(), process->sm,
							      process->mem, process->enc, process->dec};
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
						 unsigned int *count, unsigned long long last_seen_us)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = count ? fill_samples(&call, samples, count, last_seen_us) : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

static nvmlReturn_t fill_infos(const struct call *call, nvmlProcessesUtilizationInfo_v1_t *info)
{
	unsigned int room = info->processSamplesCount;
	nvmlReturn_t code = samples_due(call, info->lastSeenTimeStamp, &info->processSamplesCount);
	nvmlProcessUtilizationInfo_v1_t *sample = info->procUtilArray;
	const struct process *process;
	size_t position = 0;

	if (code != NVML_SUCCESS)
		return code;
	if (!sample || room < info->processSamplesCount)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	while ((process = next(call, NULL, &position)))
		*sample++ = (nvmlProcessUtilizationInfo_v1_t){sampled_us(), process->pid, process->sm, process->mem,
							      process->enc, process->dec, 0,	       0};
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS && !info)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS && info->version != VERSION(nvmlProcessesUtilizationInfo_v1_t, 1))
		code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (code == NVML_SUCCESS)
		code = fill_infos(&call, info);
	return call_end(&call, code);
}
