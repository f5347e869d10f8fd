/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#pragma once

#include "../include/kernel.h"
#include "../include/waits.h"

#define TC_OPEN_SPANS 16384

enum tc_span_flags {
	TC_SPAN_MOVED = 1, /* started on another thread: the waits are unknown, only the times are kept */
};

/* One finished span, as it comes through the ring buffer. */
struct tc_span {
	u64 trace_hi;
	u64 trace_lo;
	u64 span_id;
	u64 start_ns; /* CLOCK_MONOTONIC */
	u64 end_ns;
	u32 tgid; /* in the initial pid namespace */
	u32 tid;
	u32 flags;
	u32 cgroup_slot;
	u64 wait_ns[TC_WAITS];
};
_Static_assert(sizeof(struct tc_span) == 152, "ebpf/layout.py mirrors this");
