// SPDX-License-Identifier: Apache-2.0
/* Look-ups in a scenario. Its file is read in parse.c. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "scenario.h"

double monotonic_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

unsigned long long unix_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (unsigned long long)now.tv_sec * 1000000ull + (unsigned long long)now.tv_nsec / 1000ull;
}

void scenario_free(struct scenario *scenario)
{
	if (!scenario)
		return;
	for (size_t i = 0; i < scenario->section_count; i++) {
		free(scenario->sections[i].values);
		free(scenario->sections[i].processes);
		free(scenario->sections[i].faults);
		free(scenario->sections[i].events);
	}
	free(scenario->sections);
	free(scenario->text);
	free(scenario);
}

const struct section *scenario_section(const struct scenario *scenario, int gpu, int mig)
{
	for (size_t i = 0; i < scenario->section_count; i++)
		if (scenario->sections[i].gpu == gpu && scenario->sections[i].mig == mig)
			return &scenario->sections[i];
	return NULL;
}

unsigned int scenario_mig_count(const struct scenario *scenario, int gpu)
{
	unsigned int count = 0;

	for (size_t i = 0; i < scenario->section_count; i++)
		count += scenario->sections[i].gpu == gpu && scenario->sections[i].mig >= 0;
	return count;
}

static int by_key(const void *key, const void *value)
{
	return strcmp(key, ((const struct value *)value)->key);
}

const struct value *section_value(const struct section *section, const char *key)
{
	if (!section->value_count)
		return NULL;
	return bsearch(key, section->values, section->value_count, sizeof(struct value), by_key);
}

const char *section_text(const struct section *section, const char *key, const char *otherwise)
{
	const struct value *value = section_value(section, key);

	return value ? value->text : otherwise;
}

nvmlReturn_t section_number(const struct scenario *scenario, const struct section *section, const char *key,
			    double *number)
{
	const struct value *value = section_value(section, key);
	double elapsed_s;

	if (!value || !value->is_number)
		return NVML_ERROR_NOT_SUPPORTED;
	elapsed_s = value->per_s == 0 ? 0 : monotonic_s() - scenario->epoch_s;
	*number = value->base + (elapsed_s > 0 ? value->per_s * elapsed_s : 0);
	return NVML_SUCCESS;
}

nvmlReturn_t section_uint(const struct scenario *scenario, const struct section *section, const char *key,
			  unsigned int *number)
{
	unsigned long long wide;
	nvmlReturn_t code = section_ulong(scenario, section, key, &wide);

	if (code == NVML_SUCCESS)
		*number = (unsigned int)wide;
	return code;
}

nvmlReturn_t section_ulong(const struct scenario *scenario, const struct section *section, const char *key,
			   unsigned long long *number)
{
	double real;
	nvmlReturn_t code = section_number(scenario, section, key, &real);

	if (code == NVML_SUCCESS)
		*number = real > 0 ? (unsigned long long)real : 0;
	return code;
}
