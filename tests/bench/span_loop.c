/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes spans in a loop; prints how many microseconds one took.
 *
 *     span_loop LIBRARY COUNT
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void (*hook)(uint64_t trace_hi, uint64_t trace_lo, uint64_t span_id);

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	hook start = library ? (hook)dlsym(library, "tailcause_span_start") : NULL;
	hook end = library ? (hook)dlsym(library, "tailcause_span_end") : NULL;
	long count = argc == 3 ? atol(argv[2]) : 0;
	double began_us;

	if (!start || !end || count <= 0)
		return 2;
	began_us = now_us();
	for (long i = 1; i <= count; i++) {
		start(1, 2, i);
		end(1, 2, i);
	}
	printf("%f\n", (now_us() - began_us) / count);
	return 0;
}
