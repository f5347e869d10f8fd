// SPDX-License-Identifier: Apache-2.0
/* GPU instances and compute instances: the parts that a MIG device names by its ids. */
#include "call.h"

static unsigned int id_of(const struct call *call, const struct section *section, const char *key)
{
	unsigned int id = NO_INSTANCE;

	section_uint(call->scenario, section, key, &id); /* stays NO_INSTANCE when it does not say */
	return id;
}

/* The next section of the call's GPU that is a MIG device with this value of this key. */
static const struct section *next_with(const struct call *call, const char *key, unsigned int value, size_t *position)
{
	while (*position < call->scenario->section_count) {
		const struct section *section = &call->scenario->sections[(*position)++];

		if (section->gpu == call->section->gpu && section->mig >= 0 && id_of(call, section, key) == value)
			return section;
	}
	return NULL;
}

static const struct section *find_instance(const struct call *call, unsigned int gi, unsigned int ci)
{
	const struct section *section;
	size_t position = 0;

	while ((section = next_with(call, "gi", gi, &position)))
		if (ci == NO_INSTANCE || id_of(call, section, "ci") == ci)
			return section;
	return NULL;
}

static void *instance_handle(const struct call *call, enum handle_kind kind, unsigned int gi, unsigned int ci)
{
	return handle_pack((struct handle){kind, library_generation(), (unsigned int)call->section->gpu, gi, ci});
}

/* Start a call about an instance and find the MIG device that it belongs to. */
static nvmlReturn_t begin_instance(struct call *call, const char *function, const void *instance, enum handle_kind kind,
				   const struct section **found)
{
	struct handle handle = handle_unpack(instance);
	nvmlReturn_t code = call_begin(call, function);

	if (code != NVML_SUCCESS)
		return code;
	if (handle.kind != kind || handle.generation != (library_generation() & 0xFFFF))
		return NVML_ERROR_INVALID_ARGUMENT;
	code = call_enter_section(call, (int)handle.gpu, -1);
	if (code != NVML_SUCCESS)
		return code;
	*found = find_instance(call, handle.first, kind == HANDLE_GPU_INSTANCE ? NO_INSTANCE : handle.second);
	return *found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS && !instance)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS && !find_instance(&call, id, NO_INSTANCE))
		code = NVML_ERROR_NOT_FOUND;
	if (code == NVML_SUCCESS)
		*instance = instance_handle(&call, HANDLE_GPU_INSTANCE, id, 0);
	return call_end(&call, code);
}

/* The caller's array holds as many as the profile can have; compute instances share a GPU instance, so count it once. */
API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile, nvmlGpuInstance_t *instances,
					   unsigned int *count)
{
	struct call call;
	const struct section *section;
	size_t position = 0;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS && (!instances || !count))
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		*count = 0;
	while (code == NVML_SUCCESS && (section = next_with(&call, "gi.profile", profile, &position))) {
		unsigned int gi = id_of(&call, section, "gi");

		if (find_instance(&call, gi, NO_INSTANCE) == section)
			instances[(*count)++] = instance_handle(&call, HANDLE_GPU_INSTANCE, gi, 0);
	}
	return call_end(&call, code);
}

API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
	struct call call;
	const struct section *mig = NULL;
	nvmlReturn_t code = begin_instance(&call, __func__, instance, HANDLE_GPU_INSTANCE, &mig);

	if (code == NVML_SUCCESS && !info)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS) {
		info->device = device_handle(mig->gpu, -1);
		info->id = id_of(&call, mig, "gi");
		info->profileId = id_of(&call, mig, "gi.profile");
		info->placement.start = id_of(&call, mig, "gi.start");
		info->placement.size = id_of(&call, mig, "gi.size");
	}
	return call_end(&call, code);
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
						       nvmlComputeInstance_t *compute)
{
	struct call call;
	const struct section *mig = NULL;
	nvmlReturn_t code = begin_instance(&call, __func__, instance, HANDLE_GPU_INSTANCE, &mig);
	unsigned int gi = code == NVML_SUCCESS ? id_of(&call, mig, "gi") : NO_INSTANCE;

	if (code == NVML_SUCCESS && !compute)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS && !find_instance(&call, gi, id))
		code = NVML_ERROR_NOT_FOUND;
	if (code == NVML_SUCCESS)
		*compute = instance_handle(&call, HANDLE_COMPUTE_INSTANCE, gi, id);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
	struct call call;
	const struct section *mig = NULL;
	nvmlReturn_t code = begin_instance(&call, __func__, instance, HANDLE_COMPUTE_INSTANCE, &mig);

	if (code == NVML_SUCCESS && !info)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS) {
		info->device = device_handle(mig->gpu, -1);
		info->gpuInstance = instance_handle(&call, HANDLE_GPU_INSTANCE, id_of(&call, mig, "gi"), 0);
		info->id = id_of(&call, mig, "ci");
		info->profileId = id_of(&call, mig, "ci.profile");
		info->placement.start = id_of(&call, mig, "ci.start");
		info->placement.size = id_of(&call, mig, "ci.size");
	}
	return call_end(&call, code);
}
