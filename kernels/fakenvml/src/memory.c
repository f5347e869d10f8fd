// SPDX-License-Identifier: Apache-2.0
/* Frame buffer and BAR1. `used` of the first version holds what the driver reserves, that of the second does not. */
#include "call.h"

static nvmlReturn_t fill_memory(const struct call *call, nvmlMemory_v2_t *memory)
{
	nvmlReturn_t code = call_ulong(call, "memory.total", &memory->total);

	if (code == NVML_SUCCESS)
		code = call_ulong(call, "memory.used", &memory->used);
	memory->reserved = 0;
	call_ulong(call, "memory.reserved", &memory->reserved); /* 0 when it does not say */
	memory->free = memory->total - memory->used - memory->reserved;
	return code;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct call call;
	nvmlMemory_v2_t full;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = memory ? fill_memory(&call, &full) : NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		*memory = (nvmlMemory_t){full.total, full.free, full.used + full.reserved};
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS && !memory)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS && memory->version != VERSION(nvmlMemory_v2_t, 2))
		code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (code == NVML_SUCCESS)
		code = fill_memory(&call, memory);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = memory ? call_ulong(&call, "bar1.total", &memory->bar1Total) : NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		code = call_ulong(&call, "bar1.used", &memory->bar1Used);
	if (code == NVML_SUCCESS)
		memory->bar1Free = memory->bar1Total - memory->bar1Used;
	return call_end(&call, code);
}
