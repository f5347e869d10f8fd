// SPDX-License-Identifier: Apache-2.0
/* What the process shares: the scenario in force, initialisation, objects that are not freed yet, status and trace. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "call.h"

#define MAX_OBJECTS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	struct scenario *scenario;
	struct stat file;		/* of the scenario, as last read */
	unsigned int inits, generation; /* the driver that the library is initialised with */
	unsigned char handed_out[MAX_GPUS * 256 / 8];
	unsigned int handles;
	void *objects[OBJECT_KINDS][MAX_OBJECTS];
	unsigned int object_count[OBJECT_KINDS];
} library;

void library_lock(void)
{
	pthread_mutex_lock(&lock);
}

void library_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

unsigned int library_generation(void)
{
	unsigned int generation;

	library_lock();
	generation = library.generation;
	library_unlock();
	return generation;
}

/* One JSON object in $FAKENVML_STATUS/PID, replaced as a whole. */
static void write_status(void)
{
	const char *folder = getenv("FAKENVML_STATUS");
	char path[4096], draft[4096 + 8];
	FILE *file;

	if (!folder || snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid()) >= (int)sizeof(path))
		return;
	snprintf(draft, sizeof(draft), "%s.draft", path);
	file = fopen(draft, "we");
	if (!file)
		return;
	fprintf(file,
		"{\"pid\": %d, \"inits\": %u, \"generation\": %u, \"device_handles\": %u, \"event_sets\": %u, "
		"\"gpm_samples\": %u}\n",
		(int)getpid(), library.inits, library.generation, library.handles,
		library.object_count[OBJECT_EVENT_SET], library.object_count[OBJECT_GPM_SAMPLE]);
	fclose(file);
	rename(draft, path);
}

void library_release(struct scenario *scenario)
{
	if (scenario && --scenario->references == 0)
		scenario_free(scenario);
}

static int same_file(const struct stat *left, const struct stat *right)
{
	return left->st_ino == right->st_ino && left->st_size == right->st_size &&
	       left->st_mtim.tv_sec == right->st_mtim.tv_sec && left->st_mtim.tv_nsec == right->st_mtim.tv_nsec;
}

struct scenario *library_scenario(void)
{
	const char *path = getenv("FAKENVML_SCENARIO");
	struct scenario *fresh;
	struct stat file;

	if (!path || stat(path, &file)) {
		if (!library.scenario)
			fprintf(stderr, "fakenvml: FAKENVML_SCENARIO must name a scenario file (is: %s)\n",
				path ? path : "not set");
		return library.scenario;
	}
	if (same_file(&file, &library.file))
		return library.scenario;
	library.file = file;
	fresh = scenario_read(path);
	if (fresh) { /* a broken rewrite leaves the last good scenario in force */
		library_release(library.scenario);
		library.scenario = fresh;
	}
	return library.scenario;
}

nvmlReturn_t library_state(const char *function)
{
	if (!library.scenario)
		return NVML_ERROR_UNKNOWN;
	if (!strncmp(function, "nvmlInit", strlen("nvmlInit")))
		return NVML_SUCCESS;
	if (!library.inits)
		return NVML_ERROR_UNINITIALIZED;
	return library.scenario->generation == library.generation ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

void library_handed_out(const struct handle *handle)
{
	unsigned int bit = handle->gpu * 256 + handle->first;

	if (library.handed_out[bit / 8] & 1u << bit % 8)
		return;
	library.handed_out[bit / 8] |= (unsigned char)(1u << bit % 8);
	library.handles++;
	write_status();
}

int object_add(enum object_kind kind, void *object)
{
	if (!object || library.object_count[kind] == MAX_OBJECTS)
		return -1;
	library.objects[kind][library.object_count[kind]++] = object;
	write_status();
	return 0;
}

int object_is_live(enum object_kind kind, const void *object)
{
	for (unsigned int i = 0; i < library.object_count[kind]; i++)
		if (library.objects[kind][i] == object)
			return 1;
	return 0;
}

int object_remove(enum object_kind kind, const void *object)
{
	for (unsigned int i = 0; i < library.object_count[kind]; i++) {
		if (library.objects[kind][i] == object) {
			library.objects[kind][i] = library.objects[kind][--library.object_count[kind]];
			write_status();
			return 0;
		}
	}
	return -1;
}

/* One line a call in $FAKENVML_TRACE: seconds, thread, function, GPU, MIG device, code, duration. */
void library_trace(const struct call *call, nvmlReturn_t code)
{
	const char *path = getenv("FAKENVML_TRACE");
	const struct section *section = call->section;
	double now_s = monotonic_s();
	char line[256];
	int descriptor, length;

	if (!path)
		return;
	length = snprintf(line, sizeof(line), "%.6f %ld %s %d %d %d %.6f\n", call->began_s, (long)syscall(SYS_gettid),
			  call->function, section ? section->gpu : -1, section ? section->mig : -1, (int)code,
			  now_s - call->began_s);
	descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (descriptor < 0)
		return;
	if (write(descriptor, line, (size_t)length) != length)
		fprintf(stderr, "fakenvml: cannot write %s\n", path);
	close(descriptor);
}

static nvmlReturn_t initialise(const char *function)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, function);

	library_lock();
	if (code == NVML_SUCCESS && !library.inits++) {
		library.generation = call.scenario->generation;
		memset(library.handed_out, 0, sizeof(library.handed_out));
		library.handles = 0;
	}
	write_status();
	library_unlock();
	return call_end(&call, code);
}

API nvmlReturn_t nvmlInit(void)
{
	return initialise(__func__);
}

API nvmlReturn_t nvmlInit_v2(void)
{
	return initialise(__func__);
}

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return initialise(__func__);
}

API nvmlReturn_t nvmlShutdown(void)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, __func__);

	library_lock();
	if (library.inits) { /* also after the driver was reloaded */
		library.inits--;
		if (code == NVML_ERROR_UNINITIALIZED)
			code = NVML_SUCCESS;
		if (!library.inits)
			library.handles = 0;
	}
	write_status();
	library_unlock();
	return call_end(&call, code);
}
