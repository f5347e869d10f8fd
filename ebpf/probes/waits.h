/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#pragma once

#include "../include/kernel.h"
#include "../include/waits.h"

/* One thread as the iterator found it. The first 32 bytes stay as they are while it goes on with the same thing. */
struct tc_sample {
	u32 tgid; /* in the initial pid namespace */
	u32 tid;
	u64 started_ns; /* CLOCK_BOOTTIME; tells a thread from a later one with the same number */
	u64 since_ns;	/* when it last left or got the CPU, CLOCK_MONOTONIC */
	u32 current;	/* enum tc_wait: where its time goes since then, as far as can be told */
	u32 asleep;	/* it is certainly not waiting for a CPU */

	u64 at_ns;    /* when this was looked at */
	u64 total_ns; /* sum of the waits: grows exactly as `since_ns` does, or this was read while it changed */
	char comm[16];
	u32 wait_us[TC_WAITS]; /* all time up to `since_ns`, from when the thread was first watched; wraps */
};
_Static_assert(sizeof(struct tc_sample) == 112, "ebpf/layout.py mirrors this");
