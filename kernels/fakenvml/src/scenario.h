/* SPDX-License-Identifier: Apache-2.0 */
/* A scenario as read from its file: sections of keys and values, processes, faults, events. Immutable once read. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <stddef.h>
#include "nvml_abi.h"

#define MAX_GPUS 64
#define MAX_MIGS 32
#define MAX_EVENT_ID 4095

struct value {
	const char *key, *text;
	int is_number;
	double base, per_s;
};

struct process {
	const char *kind; /* compute, graphics, mps */
	unsigned int pid, sm, mem, enc, dec;
	int has_use;
	unsigned int gpu_instance, compute_instance;
	unsigned long long memory;
};

struct fault {
	const char *pattern; /* of function names, as fnmatch(3) */
	nvmlReturn_t code;   /* NVML_SUCCESS: it hangs */
	double hang_s;
};

struct event {
	unsigned int id, gpu_instance, compute_instance;
	double at_s; /* CLOCK_MONOTONIC */
	unsigned long long type, data;
};

/* The node (gpu -1), a GPU (mig -1) or a MIG device of a GPU. */
struct section {
	int gpu, mig;
	struct value *values;
	struct process *processes;
	struct fault *faults;
	struct event *events;
	size_t value_count, process_count, fault_count, event_count;
};

struct scenario {
	int references;
	char *text;	/* what keys and texts point into */
	double epoch_s; /* CLOCK_MONOTONIC: where ramps begin */
	unsigned int generation, gpu_count;
	struct section *sections;
	size_t section_count;
};

/* Read a scenario; on failure say on stderr what is wrong with which line, and return NULL. */
struct scenario *scenario_read(const char *path);
void scenario_free(struct scenario *scenario);

const struct section *scenario_section(const struct scenario *scenario, int gpu, int mig);
unsigned int scenario_mig_count(const struct scenario *scenario, int gpu);
const struct value *section_value(const struct section *section, const char *key);
const char *section_text(const struct section *section, const char *key, const char *otherwise);

/* The value now, ramps included; NVML_ERROR_NOT_SUPPORTED when the section does not have the key. */
nvmlReturn_t section_number(const struct scenario *scenario, const struct section *section, const char *key,
			    double *number);
nvmlReturn_t section_uint(const struct scenario *scenario, const struct section *section, const char *key,
			  unsigned int *number);
nvmlReturn_t section_ulong(const struct scenario *scenario, const struct section *section, const char *key,
			   unsigned long long *number);

double monotonic_s(void);
unsigned long long unix_us(void);

/* names.c */
int code_by_name(const char *name, nvmlReturn_t *code);
int event_type_by_name(const char *name, unsigned long long *type);

#endif
