// SPDX-License-Identifier: Apache-2.0
/* Reads scenario files, line by line. What the statements say is in statements.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "parser.h"

#define MAX_FILE_BYTES (4 << 20)

static void add_section(struct parser *parser, int gpu, int mig)
{
	struct scenario *scenario = parser->scenario;
	struct section *section =
		parser_grow(parser, (void **)&scenario->sections, &scenario->section_count, sizeof(struct section));

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
		parser_process(parser, rest);
	else if (!strcmp(word, "fail") || !strcmp(word, "hang"))
		parser_fault(parser, rest, word[0] == 'h');
	else if (!strcmp(word, "event"))
		parser_event(parser, rest);
	else
		parser_value(parser, word, *rest ? rest : NULL);
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
