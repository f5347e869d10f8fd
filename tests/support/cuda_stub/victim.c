/* SPDX-License-Identifier: Apache-2.0 */
/* Calls functions of a library by name as it is told to, and adds up what they return.
 *
 *   load PATH             dlopen
 *   call NAME COUNT ARG   call COUNT times; says the sum and the wall ns
 *   span ID NAME ARG      call once between the hooks of the span library (loaded before); says wall and CPU ns
 *   start NAME ARG        call on a thread of its own until `stop`
 *   stop                  says how often it called and the sum
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

struct work {
	function called;
	uint64_t argument, calls, sum;
	volatile int stop;
};

static function find(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found) {
		fprintf(stderr, "no function %s\n", name);
		exit(1);
	}
	return (function)found;
}

static uint64_t call(function called, uint64_t argument)
{
	return called(argument, 0, 0, 0, 0, 0, 0, 0, 0);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *run(void *context)
{
	struct work *work = context;

	while (!work->stop) {
		work->sum += call(work->called, work->argument);
		work->calls++;
	}
	return NULL;
}

static void in_span(uint64_t id, function called, uint64_t argument)
{
	void (*start)(uint64_t, uint64_t, uint64_t) = (void *)find("tailcause_span_start");
	void (*end)(uint64_t, uint64_t, uint64_t) = (void *)find("tailcause_span_end");
	uint64_t wall_ns, cpu_ns;

	start(1, 2, id);
	wall_ns = clock_ns(CLOCK_MONOTONIC);
	cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	call(called, argument);
	wall_ns = clock_ns(CLOCK_MONOTONIC) - wall_ns;
	cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	end(1, 2, id);
	printf("%" PRIu64 " %" PRIu64 "\n", wall_ns, cpu_ns);
}

int main(void)
{
	static struct work work;
	char line[4096], name[3072];
	uint64_t count, argument, sum;
	pthread_t thread;

	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "load %3071s", name) == 1) {
			if (!dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
				fprintf(stderr, "%s\n", dlerror());
				return 1;
			}
			printf("loaded\n");
		} else if (sscanf(line, "call %255s %" SCNu64 " %" SCNu64, name, &count, &argument) == 3) {
			function called = find(name);
			uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
			for (sum = 0; count; count--)
				sum += call(called, argument);
			printf("%" PRIu64 " %" PRIu64 "\n", sum, clock_ns(CLOCK_MONOTONIC) - start_ns);
		} else if (sscanf(line, "span %" SCNu64 " %255s %" SCNu64, &count, name, &argument) == 3) {
			in_span(count, find(name), argument);
		} else if (sscanf(line, "start %255s %" SCNu64, name, &argument) == 2) {
			work = (struct work){.called = find(name), .argument = argument};
			pthread_create(&thread, NULL, run, &work);
			printf("started\n");
		} else if (!strcmp(line, "stop\n")) {
			work.stop = 1;
			pthread_join(thread, NULL);
			printf("%" PRIu64 " %" PRIu64 "\n", work.calls, work.sum);
		} else {
			fprintf(stderr, "not understood: %s", line);
			return 1;
		}
		fflush(stdout);
	}
	return 0;
}
