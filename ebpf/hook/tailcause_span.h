/* SPDX-License-Identifier: Apache-2.0 */
/* Marks the edges of a span for the agent's span probe. For servers that are not written in Python.
 *
 * Call start and end on the thread that does the span's work, with the ids of the OpenTelemetry span in host byte
 * order (span id 0x00f067aa0ba902b7 for "00f067aa0ba902b7"). Link with -ltailcause_span, or dlopen it and do without
 * when it is absent. A call costs a few nanoseconds while no agent listens and about 1.5 us while one does.
 * This interface is stable.
 */
#ifndef TAILCAUSE_SPAN_H
#define TAILCAUSE_SPAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void tailcause_span_start(uint64_t trace_hi, uint64_t trace_lo, uint64_t span_id);
void tailcause_span_end(uint64_t trace_hi, uint64_t trace_lo, uint64_t span_id);

#ifdef __cplusplus
}
#endif

#endif
