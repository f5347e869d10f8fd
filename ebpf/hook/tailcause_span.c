/* SPDX-License-Identifier: Apache-2.0 */
/* Two functions that do nothing. The agent's uprobes fire on their first instruction, which is a nop: the kernel skips
 * a nop without single-stepping it, which would cost twenty times as much.
 *
 * It must not be five bytes long: Linux 6.18 turns such a nop into a call to a page that a forked child does not have.
 */
#include "tailcause_span.h"

#if defined(__x86_64__)
#define NOP ".byte 0x66, 0x66, 0x66, 0x90" /* emulated by every kernel; 0f 1f 40 00 only by new ones */
#else
#define NOP "nop"
#endif

#define EXPORTED __attribute__((visibility("default"), noinline))

EXPORTED void tailcause_span_start(uint64_t trace_hi, uint64_t trace_lo, uint64_t span_id)
{
	__asm__ volatile(NOP : : "r"(trace_hi), "r"(trace_lo), "r"(span_id) : "memory");
}

EXPORTED void tailcause_span_end(uint64_t trace_hi, uint64_t trace_lo, uint64_t span_id)
{
	__asm__ volatile(NOP : : "r"(trace_hi), "r"(trace_lo), "r"(span_id) : "memory");
}
