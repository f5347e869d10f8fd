/* SPDX-License-Identifier: Apache-2.0 */
/* What every function of the interface does first and last. */
#ifndef CALL_H
#define CALL_H

#include "handles.h"
#include "scenario.h"

struct call {
	const char *function;
	struct scenario *scenario;     /* held until call_end, so that a rewrite cannot pull it away */
	const struct section *section; /* of the device; the node's for calls without one */
	double began_s;
};

/* Start a call: re-read a changed scenario, check the library's state and the handle, hang or fail as told.
 * call_end must follow, whatever this returns.
 */
nvmlReturn_t call_begin(struct call *call, const char *function);
nvmlReturn_t call_begin_device(struct call *call, const char *function, nvmlDevice_t device);

/* Check the faults of a GPU that the call names by other means than a handle. */
nvmlReturn_t call_enter_section(struct call *call, int gpu, int mig);

/* Finish a call: leave its line in the trace, let the scenario go, and return the code. */
nvmlReturn_t call_end(struct call *call, nvmlReturn_t code);

nvmlDevice_t device_handle(int gpu, int mig);

/* Values of the call's section. */
nvmlReturn_t call_uint(const struct call *call, const char *key, unsigned int *number);
nvmlReturn_t call_ulong(const struct call *call, const char *key, unsigned long long *number);
nvmlReturn_t call_text(const struct call *call, const char *key, char *buffer, unsigned int size);

/* Calls that read one value of a device. */
nvmlReturn_t read_uint(const char *function, nvmlDevice_t device, const char *key, unsigned int *number);
nvmlReturn_t read_ulong(const char *function, nvmlDevice_t device, const char *key, unsigned long long *number);
nvmlReturn_t read_text(const char *function, nvmlDevice_t device, const char *key, char *buffer, unsigned int size);

/* library.c: initialisation, the scenario in force, live objects, the status file. */
enum object_kind { OBJECT_EVENT_SET, OBJECT_GPM_SAMPLE, OBJECT_KINDS };

void library_lock(void);
void library_unlock(void);
struct scenario *library_scenario(void); /* under the lock: the scenario in force, re-read if its file changed */
nvmlReturn_t library_state(const char *function); /* under the lock: initialised, and by this driver? */
void library_release(struct scenario *scenario);
void library_trace(const struct call *call, nvmlReturn_t code);
void library_handed_out(const struct handle *handle);
unsigned int library_generation(void); /* takes the lock */

/* Under the lock: objects that the caller has to free. */
int object_add(enum object_kind kind, void *object);
int object_is_live(enum object_kind kind, const void *object);
int object_remove(enum object_kind kind, const void *object);

#endif
