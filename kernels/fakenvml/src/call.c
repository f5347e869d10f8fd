// SPDX-License-Identifier: Apache-2.0
/* The way into and out of every function: state of the library, handles, staged hangs and failures. */
#include <fnmatch.h>
#include <string.h>
#include <time.h>
#include "call.h"

#define HANG_POLL_MS 5

static void sleep_ms(long ms)
{
	struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

/* A pattern means the function itself and all of its versions: nvmlX stands for nvmlX_v2, too. */
static int applies(const char *pattern, const char *function)
{
	const char *version = strstr(function, "_v");
	char plain[128];

	if (!fnmatch(pattern, function, 0))
		return 1;
	if (!version || (size_t)(version - function) >= sizeof(plain))
		return 0;
	memcpy(plain, function, (size_t)(version - function));
	plain[version - function] = 0;
	return !fnmatch(pattern, plain, 0);
}

static const struct fault *find_fault(const struct section *section, const char *function, int hangs)
{
	for (size_t i = 0; section && i < section->fault_count; i++) {
		const struct fault *fault = &section->faults[i];

		if ((fault->code == NVML_SUCCESS) == hangs && applies(fault->pattern, function))
			return fault;
	}
	return NULL;
}

/* Faults of a MIG device are its own and those of its GPU, since it is the same driver that answers. */
static const struct fault *staged(const struct call *call, int hangs)
{
	const struct section *section = call->section;
	const struct fault *fault = find_fault(section, call->function, hangs);

	if (!fault && section && section->mig >= 0)
		fault = find_fault(scenario_section(call->scenario, section->gpu, -1), call->function, hangs);
	return fault;
}

/* Take hold of the scenario in force and find the call's section in it. */
static nvmlReturn_t take(struct call *call, int gpu, int mig)
{
	struct scenario *scenario = library_scenario();
	nvmlReturn_t code = library_state(call->function);

	library_release(call->scenario);
	call->scenario = scenario;
	call->section = NULL;
	if (!scenario)
		return NVML_ERROR_UNKNOWN;
	scenario->references++;
	call->section = scenario_section(scenario, gpu, mig);
	if (code == NVML_SUCCESS && !call->section)
		code = NVML_ERROR_INVALID_ARGUMENT;
	return code;
}

/* Wait as long as the scenario in force says that this call hangs. The lock is not held meanwhile. */
static nvmlReturn_t hang_or_fail(struct call *call, int gpu, int mig)
{
	double began_s = monotonic_s();

	for (;;) {
		nvmlReturn_t code = take(call, gpu, mig);
		const struct fault *fault;

		if (code != NVML_SUCCESS)
			return code;
		fault = staged(call, 1);
		if (!fault || monotonic_s() - began_s >= fault->hang_s) {
			fault = staged(call, 0);
			return fault ? fault->code : NVML_SUCCESS;
		}
		library_unlock();
		sleep_ms(HANG_POLL_MS);
		library_lock();
	}
}

static nvmlReturn_t begin(struct call *call, const char *function, int gpu, int mig)
{
	nvmlReturn_t code;

	*call = (struct call){.function = function, .began_s = monotonic_s()};
	library_lock();
	code = hang_or_fail(call, gpu, mig);
	library_unlock();
	return code;
}

nvmlReturn_t call_begin(struct call *call, const char *function)
{
	return begin(call, function, -1, -1);
}

nvmlReturn_t call_enter_section(struct call *call, int gpu, int mig)
{
	nvmlReturn_t code;

	library_lock();
	code = hang_or_fail(call, gpu, mig);
	library_unlock();
	return code;
}

nvmlReturn_t call_begin_device(struct call *call, const char *function, nvmlDevice_t device)
{
	struct handle handle = handle_unpack(device);
	nvmlReturn_t code = begin(call, function, -1, -1);

	if (code != NVML_SUCCESS)
		return code;
	if (handle.kind != HANDLE_DEVICE || handle.generation != (library_generation() & 0xFFFF))
		return NVML_ERROR_INVALID_ARGUMENT;
	return call_enter_section(call, (int)handle.gpu, handle.first == NO_MIG ? -1 : (int)handle.first);
}

nvmlReturn_t call_end(struct call *call, nvmlReturn_t code)
{
	library_trace(call, code);
	library_lock();
	library_release(call->scenario);
	library_unlock();
	return code;
}

nvmlDevice_t device_handle(int gpu, int mig)
{
	struct handle handle = {
		.kind = HANDLE_DEVICE,
		.generation = library_generation(),
		.gpu = (unsigned int)gpu,
		.first = mig < 0 ? NO_MIG : (unsigned int)mig,
	};

	library_lock();
	library_handed_out(&handle);
	library_unlock();
	return handle_pack(handle);
}

nvmlReturn_t call_uint(const struct call *call, const char *key, unsigned int *number)
{
	return section_uint(call->scenario, call->section, key, number);
}

nvmlReturn_t call_ulong(const struct call *call, const char *key, unsigned long long *number)
{
	return section_ulong(call->scenario, call->section, key, number);
}

nvmlReturn_t call_text(const struct call *call, const char *key, char *buffer, unsigned int size)
{
	const char *text = section_text(call->section, key, NULL);

	if (!buffer)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!text)
		return NVML_ERROR_NOT_SUPPORTED;
	if (strlen(text) >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(buffer, text, strlen(text) + 1);
	return NVML_SUCCESS;
}

nvmlReturn_t read_uint(const char *function, nvmlDevice_t device, const char *key, unsigned int *number)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, function, device);

	if (code == NVML_SUCCESS)
		code = number ? call_uint(&call, key, number) : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

nvmlReturn_t read_ulong(const char *function, nvmlDevice_t device, const char *key, unsigned long long *number)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, function, device);

	if (code == NVML_SUCCESS)
		code = number ? call_ulong(&call, key, number) : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

nvmlReturn_t read_text(const char *function, nvmlDevice_t device, const char *key, char *buffer, unsigned int size)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, function, device);

	if (code == NVML_SUCCESS)
		code = call_text(&call, key, buffer, size);
	return call_end(&call, code);
}
