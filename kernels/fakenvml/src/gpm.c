// SPDX-License-Identifier: Apache-2.0
/* GPU performance monitoring: two samples, and metrics between them. */
#include <stdlib.h>
#include <string.h>
#include "call.h"

#define MAX_METRICS 128

struct gpm_sample {
	int gpu, mig;
	double at_s; /* 0: not taken yet */
	unsigned int count;
	struct {
		unsigned int id;
		double value;
	} metrics[MAX_METRICS];
};

static int has_metrics(const struct section *section)
{
	for (size_t i = 0; i < section->value_count; i++)
		if (!strncmp(section->values[i].key, "gpm.", 4))
			return 1;
	return 0;
}

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS && !support)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS && support->version != 1)
		code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (code == NVML_SUCCESS)
		support->isSupportedDevice = (unsigned int)has_metrics(call.section);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, __func__);
	struct gpm_sample *fresh = NULL;

	if (code == NVML_SUCCESS && !sample)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS) {
		fresh = calloc(1, sizeof(*fresh));
		library_lock();
		code = object_add(OBJECT_GPM_SAMPLE, fresh) ? NVML_ERROR_MEMORY : NVML_SUCCESS;
		library_unlock();
	}
	if (code == NVML_SUCCESS)
		*sample = fresh;
	else
		free(fresh);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, __func__);

	library_lock(); /* memory goes back also when the driver is gone */
	if (object_remove(OBJECT_GPM_SAMPLE, sample))
		code = code == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : code;
	else
		free(sample);
	library_unlock();
	return call_end(&call, code);
}

/* Under the lock: keep what the section says now. */
static nvmlReturn_t fill(const struct call *call, struct gpm_sample *sample)
{
	const struct section *section = call->section;

	if (!object_is_live(OBJECT_GPM_SAMPLE, sample))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!has_metrics(section))
		return NVML_ERROR_NOT_SUPPORTED;
	sample->gpu = section->gpu;
	sample->mig = section->mig;
	sample->at_s = monotonic_s();
	sample->count = 0;
	for (size_t i = 0; i < section->value_count && sample->count < MAX_METRICS; i++) {
		const char *key = section->values[i].key;
		double value;

		if (strncmp(key, "gpm.", 4) || section_number(call->scenario, section, key, &value))
			continue;
		sample->metrics[sample->count].id = (unsigned int)strtoul(key + 4, NULL, 10);
		sample->metrics[sample->count++].value = value;
	}
	return NVML_SUCCESS;
}

static nvmlReturn_t take_sample(struct call *call, struct gpm_sample *sample)
{
	nvmlReturn_t code;

	library_lock();
	code = fill(call, sample);
	library_unlock();
	return code;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS)
		code = take_sample(&call, sample);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpu_instance, nvmlGpmSample_t sample)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);
	int gpu = code == NVML_SUCCESS ? call.section->gpu : -1, mig = -1;
	unsigned int gi;

	for (size_t i = 0; code == NVML_SUCCESS && mig < 0 && i < call.scenario->section_count; i++) {
		const struct section *section = &call.scenario->sections[i];

		if (section->gpu == gpu && section->mig >= 0 &&
		    section_uint(call.scenario, section, "gi", &gi) == NVML_SUCCESS && gi == gpu_instance)
			mig = section->mig;
	}
	if (code == NVML_SUCCESS)
		code = mig < 0 ? NVML_ERROR_INVALID_ARGUMENT : call_enter_section(&call, gpu, mig);
	if (code == NVML_SUCCESS)
		code = take_sample(&call, sample);
	return call_end(&call, code);
}

static int value_in(const struct gpm_sample *sample, unsigned int id, double *value)
{
	for (unsigned int i = 0; i < sample->count; i++) {
		if (sample->metrics[i].id == id) {
			*value = sample->metrics[i].value;
			return 0;
		}
	}
	return -1;
}

/* Under the lock. A metric is the mean of its values at the two samples. */
static nvmlReturn_t compute(nvmlGpmMetricsGet_t *get)
{
	const struct gpm_sample *first = get->sample1, *second = get->sample2;
	double before, after;

	if (!object_is_live(OBJECT_GPM_SAMPLE, first) || !object_is_live(OBJECT_GPM_SAMPLE, second))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (first->at_s == 0 || second->at_s <= first->at_s || first->gpu != second->gpu || first->mig != second->mig)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < get->numMetrics; i++) {
		nvmlGpmMetric_t *metric = &get->metrics[i];
		int missing = value_in(first, metric->metricId, &before) | value_in(second, metric->metricId, &after);

		metric->nvmlReturn = missing ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
		metric->value = missing ? 0 : (before + after) / 2;
		metric->shortName = metric->longName = metric->unit = "";
	}
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, __func__);

	if (code == NVML_SUCCESS && !get)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS && get->version != 1)
		code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (code == NVML_SUCCESS) {
		library_lock();
		code = compute(get);
		library_unlock();
	}
	return call_end(&call, code);
}
