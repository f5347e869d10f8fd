// SPDX-License-Identifier: Apache-2.0
/* MIG: devices cut out of a GPU, and the GPU and compute instances that they consist of. */
#include "call.h"

/* The functions about a GPU's MIG devices want the GPU; a MIG handle is not one. */
static nvmlReturn_t begin_whole(struct call *call, const char *function, nvmlDevice_t device, unsigned int *mode)
{
	nvmlReturn_t code = call_begin_device(call, function, device);

	if (code == NVML_SUCCESS && call->section->mig >= 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	return code == NVML_SUCCESS ? call_uint(call, "mig.mode", mode) : code;
}

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	struct call call;
	unsigned int mode = 0;
	nvmlReturn_t code = begin_whole(&call, __func__, device, &mode);

	if (code == NVML_SUCCESS && (!current || !pending))
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS) {
		*current = *pending = mode;
		call_uint(&call, "mig.pending", pending); /* as now when it does not say */
	}
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	struct call call;
	unsigned int mode = 0;
	nvmlReturn_t code = begin_whole(&call, __func__, device, &mode);

	if (code == NVML_ERROR_NOT_SUPPORTED) /* the API reference: zero if not supported or not enabled */
		code = NVML_SUCCESS;
	if (code == NVML_SUCCESS && !count)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS) {
		*count = 0;
		if (mode)
			code = call_uint(&call, "mig.max", count);
	}
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
	struct call call;
	unsigned int mode = 0;
	nvmlReturn_t code = begin_whole(&call, __func__, device, &mode);
	int gpu = code == NVML_SUCCESS ? call.section->gpu : -1;

	if (code == NVML_SUCCESS && (!mig || index >= MAX_MIGS))
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS && (!mode || !scenario_section(call.scenario, gpu, (int)index)))
		code = NVML_ERROR_NOT_FOUND;
	if (code == NVML_SUCCESS)
		code = call_enter_section(&call, gpu, (int)index);
	if (code == NVML_SUCCESS)
		*mig = device_handle(gpu, (int)index);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS && !is_mig)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		*is_mig = call.section->mig >= 0;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, mig);

	if (code == NVML_SUCCESS && (!device || call.section->mig < 0))
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		*device = device_handle(call.section->gpu, -1);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	return read_uint(__func__, device, "gi", id);
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	return read_uint(__func__, device, "ci", id);
}

static nvmlReturn_t fill_attributes(const struct call *call, nvmlDeviceAttributes_t *attributes)
{
	const struct {
		const char *key;
		unsigned int *number;
	} parts[] = {
		{"attribute.sm", &attributes->multiprocessorCount},
		{"attribute.copy", &attributes->sharedCopyEngineCount},
		{"attribute.decoder", &attributes->sharedDecoderCount},
		{"attribute.encoder", &attributes->sharedEncoderCount},
		{"attribute.jpeg", &attributes->sharedJpegCount},
		{"attribute.ofa", &attributes->sharedOfaCount},
		{"attribute.gi_slices", &attributes->gpuInstanceSliceCount},
		{"attribute.ci_slices", &attributes->computeInstanceSliceCount},
	};
	nvmlReturn_t code = call_ulong(call, "attribute.memory_mb", &attributes->memorySizeMB);

	for (size_t i = 0; code == NVML_SUCCESS && i < sizeof(parts) / sizeof(parts[0]); i++)
		code = call_uint(call, parts[i].key, parts[i].number);
	return code;
}

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = attributes ? fill_attributes(&call, attributes) : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}
