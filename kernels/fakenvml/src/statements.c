// SPDX-License-Identifier: Apache-2.0
/* The statements of a scenario: `key value`, `process`, `fail`, `hang`, `event`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "parser.h"

void *parser_grow(struct parser *parser, void **array, size_t *count, size_t size)
{
	void *grown = *array;

	if ((*count & (*count - 1)) == 0) {
		grown = realloc(*array, size * (*count ? *count * 2 : 1));
		if (!grown) {
			parser->wrong = "out of memory";
			return NULL;
		}
		*array = grown;
	}
	memset((char *)grown + *count * size, 0, size);
	return (char *)grown + (*count)++ * size;
}

static struct section *last_section(struct parser *parser)
{
	return &parser->scenario->sections[parser->scenario->section_count - 1];
}

static int number(const char *text, double *parsed)
{
	char *end;

	*parsed = strtod(text, &end);
	return end == text || *end ? -1 : 0;
}

static int whole(const char *text, unsigned int *parsed)
{
	char *end;
	unsigned long value = strtoul(text, &end, 0);

	*parsed = (unsigned int)value;
	return end == text || *end || value > 0xFFFFFFFFul ? -1 : 0;
}

/* "BASE" or "BASE +RATE/s"; anything else is text. */
static void read_number(struct value *value)
{
	char *end, *tail;

	value->base = strtod(value->text, &end);
	if (end == value->text)
		return;
	if (!*end) {
		value->is_number = 1;
		return;
	}
	if (end[0] != ' ' || (end[1] != '+' && end[1] != '-'))
		return;
	value->per_s = strtod(end + 1, &tail);
	value->is_number = tail > end + 1 && !strcmp(tail, "/s");
}

void parser_value(struct parser *parser, const char *key, const char *text)
{
	struct section *section = last_section(parser);
	struct value *value;

	if (!text) {
		parser->wrong = "a key needs a value";
		return;
	}
	value = parser_grow(parser, (void **)&section->values, &section->value_count, sizeof(struct value));
	if (!value)
		return;
	value->key = key;
	value->text = text;
	read_number(value);
}

static int process_option(struct process *process, const char *name, const char *text)
{
	double bytes;

	if (!strcmp(name, "kind")) {
		process->kind = text;
		return strcmp(text, "compute") && strcmp(text, "graphics") && strcmp(text, "mps") ? -1 : 0;
	}
	if (!strcmp(name, "memory")) {
		if (number(text, &bytes) || bytes < 0)
			return -1;
		process->memory = (unsigned long long)bytes;
		return 0;
	}
	if (!strcmp(name, "gi"))
		return whole(text, &process->gpu_instance);
	if (!strcmp(name, "ci"))
		return whole(text, &process->compute_instance);
	process->has_use = 1;
	if (!strcmp(name, "sm"))
		return whole(text, &process->sm);
	if (!strcmp(name, "mem"))
		return whole(text, &process->mem);
	if (!strcmp(name, "enc"))
		return whole(text, &process->enc);
	return strcmp(name, "dec") ? -1 : whole(text, &process->dec);
}

void parser_process(struct parser *parser, char *rest)
{
	struct section *section = last_section(parser);
	struct process *process =
		parser_grow(parser, (void **)&section->processes, &section->process_count, sizeof(struct process));
	char *word = strtok_r(rest, " ", &rest), *equals;

	if (!process)
		return;
	process->kind = "compute";
	process->memory = NOT_AVAILABLE;
	process->gpu_instance = process->compute_instance = NO_INSTANCE;
	if (!word || whole(word, &process->pid)) {
		parser->wrong = "process PID [kind=…] [memory=…] [sm=…] [mem=…] [enc=…] [dec=…] [gi=…] [ci=…]";
		return;
	}
	while ((word = strtok_r(NULL, " ", &rest))) {
		equals = strchr(word, '=');
		if (equals)
			*equals = 0;
		if (!equals || process_option(process, word, equals + 1)) {
			parser->wrong = "unknown or unreadable option of a process";
			return;
		}
	}
}

void parser_fault(struct parser *parser, char *rest, int hangs)
{
	struct section *section = last_section(parser);
	struct fault *fault =
		parser_grow(parser, (void **)&section->faults, &section->fault_count, sizeof(struct fault));
	char *what;

	if (!fault)
		return;
	fault->pattern = strtok_r(rest, " ", &rest);
	what = strtok_r(NULL, " ", &rest);
	if (!fault->pattern || !what)
		parser->wrong = "fail PATTERN CODE, hang PATTERN SECONDS";
	else if (hangs && (number(what, &fault->hang_s) || fault->hang_s < 0))
		parser->wrong = "hang PATTERN SECONDS";
	else if (!hangs && (code_by_name(what, &fault->code) || fault->code == NVML_SUCCESS))
		parser->wrong = "fail PATTERN CODE: no such code";
}

void parser_event(struct parser *parser, char *rest)
{
	struct section *section = last_section(parser);
	struct event *event =
		parser_grow(parser, (void **)&section->events, &section->event_count, sizeof(struct event));
	char type[32];
	int read;

	if (!event)
		return;
	event->gpu_instance = event->compute_instance = NO_INSTANCE;
	read = sscanf(rest, "%u %lf %31s %llu gi=%u ci=%u", &event->id, &event->at_s, type, &event->data,
		      &event->gpu_instance, &event->compute_instance);
	if (read < 4 || event->id > MAX_EVENT_ID || event_type_by_name(type, &event->type))
		parser->wrong = "event ID MONOTONIC_SECONDS TYPE DATA [gi=… [ci=…]], ID up to 4095";
	else if (section->gpu < 0 || section->mig >= 0)
		parser->wrong = "an event belongs to a gpu";
}
