// SPDX-License-Identifier: Apache-2.0
/* Event sets: what happened to the registered GPUs since they were registered, each event once, in order of time. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "call.h"

#define POLL_MS 20

struct event_set {
	struct {
		unsigned long long types;
		double since_s;
	} gpus[MAX_GPUS];
	unsigned char delivered[(MAX_EVENT_ID + 1) / 8 + 1];
};

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, __func__);
	struct event_set *fresh = NULL;

	if (code == NVML_SUCCESS && !set)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS) {
		fresh = calloc(1, sizeof(*fresh));
		library_lock();
		code = object_add(OBJECT_EVENT_SET, fresh) ? NVML_ERROR_MEMORY : NVML_SUCCESS;
		library_unlock();
	}
	if (code == NVML_SUCCESS)
		*set = fresh;
	else
		free(fresh);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, __func__);

	library_lock(); /* memory goes back also when the driver is gone */
	if (object_remove(OBJECT_EVENT_SET, set))
		code = code == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : code;
	else
		free(set);
	library_unlock();
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	return read_ulong(__func__, device, "events", types);
}

static nvmlReturn_t register_events(const struct call *call, struct event_set *set, unsigned long long types)
{
	unsigned long long supported;
	nvmlReturn_t code = call_ulong(call, "events", &supported);
	int gpu = call->section->gpu;

	if (code != NVML_SUCCESS || types & ~supported || call->section->mig >= 0)
		return NVML_ERROR_NOT_SUPPORTED;
	library_lock();
	code = object_is_live(OBJECT_EVENT_SET, set) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS) {
		if (!set->gpus[gpu].types)
			set->gpus[gpu].since_s = monotonic_s();
		set->gpus[gpu].types |= types;
	}
	library_unlock();
	return code;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = register_events(&call, set, types);
	return call_end(&call, code);
}

static int is_due(const struct event_set *set, const struct section *section, const struct event *event, double now_s)
{
	return section->gpu >= 0 && event->type & set->gpus[section->gpu].types &&
	       event->at_s >= set->gpus[section->gpu].since_s && event->at_s <= now_s &&
	       !(set->delivered[event->id / 8] & 1u << event->id % 8);
}

/* Under the lock: the earliest event that is due, of equally early ones that with the lowest id. */
static const struct event *earliest(const struct call *call, const struct event_set *set, int *gpu)
{
	const struct event *found = NULL;
	double now_s = monotonic_s();

	for (size_t i = 0; i < call->scenario->section_count; i++) {
		const struct section *section = &call->scenario->sections[i];

		for (size_t j = 0; j < section->event_count; j++) {
			const struct event *event = &section->events[j];

			if (!is_due(set, section, event, now_s))
				continue;
			if (found &&
			    (found->at_s < event->at_s || (found->at_s == event->at_s && found->id < event->id)))
				continue;
			found = event;
			*gpu = section->gpu;
		}
	}
	return found;
}

/* Deliver an event if one is due; NVML_ERROR_TIMEOUT if not. */
static nvmlReturn_t deliver(const struct call *call, struct event_set *set, nvmlEventData_t *data)
{
	const struct event *event;
	int gpu = -1;

	library_lock();
	if (!object_is_live(OBJECT_EVENT_SET, set)) {
		library_unlock();
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	event = earliest(call, set, &gpu);
	if (event)
		set->delivered[event->id / 8] |= (unsigned char)(1u << event->id % 8);
	library_unlock();
	if (!event)
		return NVML_ERROR_TIMEOUT;
	*data = (nvmlEventData_t){device_handle(gpu, -1), event->type, event->data, event->gpu_instance,
				  event->compute_instance};
	return NVML_SUCCESS;
}

static void pause_until(double until_s)
{
	double left_s = until_s - monotonic_s();
	struct timespec pause = {.tv_nsec = POLL_MS * 1000000};

	if (left_s > 0 && left_s < POLL_MS * 1e-3)
		pause.tv_nsec = (long)(left_s * 1e9);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

static nvmlReturn_t wait_for(const char *function, struct event_set *set, nvmlEventData_t *data,
			     unsigned int timeout_ms)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, function);
	double until_s = call.began_s + timeout_ms * 1e-3;

	for (;;) {
		if (code == NVML_SUCCESS)
			code = deliver(&call, set, data);
		if (code != NVML_ERROR_TIMEOUT || monotonic_s() >= until_s)
			return call_end(&call, code);
		pause_until(until_s);
		code = call_enter_section(&call, -1, -1); /* the scenario may have changed, or the driver gone */
	}
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	nvmlEventData_t nowhere;

	return wait_for(__func__, data ? set : NULL, data ? data : &nowhere, timeout_ms);
}

/* The first version's struct ends before the instances. */
API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, void *data, unsigned int timeout_ms)
{
	nvmlEventData_t full;
	nvmlReturn_t code = wait_for(__func__, data ? set : NULL, &full, timeout_ms);

	if (code == NVML_SUCCESS)
		memcpy(data, &full, offsetof(nvmlEventData_t, gpuInstanceId));
	return code;
}
