// SPDX-License-Identifier: Apache-2.0
/* Reads scenario files: one statement a line, `key value`, `gpu`, `mig`, `process`, `fail`, `hang`, `event`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "scenario.h"

#define MAX_FILE_BYTES (4 << 20)

struct parser {
	const char *path;
	unsigned int line;
	struct scenario *scenario;
	int last_gpu;
	const char *wrong; /* what is wrong with the line; NULL while all is well */
};

/* Make room for one more element and return it zeroed; arrays grow by doubling. */
static void *grow(struct parser *parser, void **array, size_t *count, size_t size)
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

static void add_section(struct parser *parser, int gpu, int mig)
{
	struct scenario *scenario = parser->scenario;
	struct section *section =
		grow(parser, (void **)&scenario->sections, &scenario->section_count, sizeof(struct section));

	if (section) {
		section->gpu = gpu;
		section->mig = mig;
	}
}

static void open_gpu(struct parser *parser)
{
	if (parser->last_gpu + 1 >= MAX_GPUS) {
		parser->wrong = "too many GPUs";
		return;
	}
	add_section(parser, ++parser->last_gpu, -1);
	parser->scenario->gpu_count++;
}

static void open_mig(struct parser *parser)
{
	unsigned int index = scenario_mig_count(parser->scenario, parser->last_gpu);

	if (parser->last_gpu < 0)
		parser->wrong = "a MIG device needs a gpu before it";
	else if (index >= MAX_MIGS)
		parser->wrong = "too many MIG devices";
	else
		add_section(parser, parser->last_gpu, (int)index);
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

static void add_value(struct parser *parser, const char *key, const char *text)
{
	struct section *section = last_section(parser);
	struct value *value;

	if (!text) {
		parser->wrong = "a key needs a value";
		return;
	}
	value = grow(parser, (void **)&section->values, &section->value_count, sizeof(struct value));
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

static void add_process(struct parser *parser, char *rest)
{
	struct section *section = last_section(parser);
	struct process *process =
		grow(parser, (void **)&section->processes, &section->process_count, sizeof(struct process));
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

static void add_fault(struct parser *parser, char *rest, int hangs)
{
	struct section *section = last_section(parser);
	struct fault *fault = grow(parser, (void **)&section->faults, &section->fault_count, sizeof(struct fault));
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

static void add_event(struct parser *parser, char *rest)
{
	struct section *section = last_section(parser);
	struct event *event = grow(parser, (void **)&section->events, &section->event_count, sizeof(struct event));
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

static void read_statement(struct parser *parser, char *line)
{
	char *rest, *word = strtok_r(line, " \t", &rest);
	size_t length;

	if (!word || word[0] == '#')
		return;
	rest += strspn(rest, " \t");
	length = strlen(rest);
	while (length && (rest[length - 1] == ' ' || rest[length - 1] == '\r'))
		rest[--length] = 0;
	if (!strcmp(word, "gpu"))
		open_gpu(parser);
	else if (!strcmp(word, "mig"))
		open_mig(parser);
	else if (!strcmp(word, "process"))
		add_process(parser, rest);
	else if (!strcmp(word, "fail") || !strcmp(word, "hang"))
		add_fault(parser, rest, word[0] == 'h');
	else if (!strcmp(word, "event"))
		add_event(parser, rest);
	else
		add_value(parser, word, *rest ? rest : NULL);
}

static int compare_keys(const void *left, const void *right)
{
	return strcmp(((const struct value *)left)->key, ((const struct value *)right)->key);
}

static void sort_values(struct parser *parser, struct section *section)
{
	if (!section->value_count)
		return;
	qsort(section->values, section->value_count, sizeof(struct value), compare_keys);
	for (size_t i = 1; i < section->value_count; i++)
		if (!compare_keys(&section->values[i - 1], &section->values[i]))
			parser->wrong = "a key stands twice in one section";
}

static void settle(struct parser *parser)
{
	struct scenario *scenario = parser->scenario;
	double epoch_s;

	for (size_t i = 0; i < scenario->section_count; i++)
		sort_values(parser, &scenario->sections[i]);
	scenario->epoch_s = monotonic_s();
	if (section_number(scenario, &scenario->sections[0], "epoch", &epoch_s) == NVML_SUCCESS)
		scenario->epoch_s = epoch_s;
	section_uint(scenario, &scenario->sections[0], "generation", &scenario->generation);
}

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = file ? malloc(MAX_FILE_BYTES) : NULL;
	size_t length = text ? fread(text, 1, MAX_FILE_BYTES - 1, file) : 0;
	char *fitted;

	if (!file || !text || ferror(file))
		fprintf(stderr, "fakenvml: cannot read %s: %s\n", path, strerror(errno));
	if (file)
		fclose(file);
	if (!text)
		return NULL;
	text[length] = 0;
	fitted = realloc(text, length + 1);
	return fitted ? fitted : text;
}

struct scenario *scenario_read(const char *path)
{
	struct parser parser = {.path = path, .last_gpu = -1};
	char *line, *rest;

	parser.scenario = calloc(1, sizeof(struct scenario));
	if (!parser.scenario)
		return NULL;
	parser.scenario->references = 1;
	parser.scenario->text = rest = read_file(path);
	add_section(&parser, -1, -1);
	while (rest && !parser.wrong) {
		parser.line++;
		line = strsep(&rest, "\n");
		read_statement(&parser, line);
	}
	if (parser.scenario->text && !parser.wrong)
		settle(&parser);
	if (!parser.scenario->text || parser.wrong) {
		if (parser.wrong)
			fprintf(stderr, "fakenvml: %s:%u: %s\n", path, parser.line, parser.wrong);
		scenario_free(parser.scenario);
		return NULL;
	}
	return parser.scenario;
}
