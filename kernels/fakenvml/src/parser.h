/* SPDX-License-Identifier: Apache-2.0 */
/* A scenario file being read. */
#ifndef PARSER_H
#define PARSER_H

#include "scenario.h"

struct parser {
	const char *path;
	unsigned int line;
	struct scenario *scenario;
	int last_gpu;
	const char *wrong; /* what is wrong with the line; NULL while all is well */
};

/* Make room for one more element and return it zeroed, or NULL; arrays grow by doubling. */
void *parser_grow(struct parser *parser, void **array, size_t *count, size_t size);

/* Take a statement into the last section; what makes no sense is left in `wrong`. */
void parser_value(struct parser *parser, const char *key, const char *text);
void parser_process(struct parser *parser, char *rest);
void parser_fault(struct parser *parser, char *rest, int hangs);
void parser_event(struct parser *parser, char *rest);

#endif
