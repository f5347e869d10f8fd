/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#pragma once

#include "../include/slots.h"

#define TC_STALLED_THREADS 4096
#define TC_STALL_SERIES 1024

enum tc_stall {
	TC_STALL_RECLAIM = 0,	 /* the machine is out of free pages */
	TC_STALL_LIMIT = 1,	 /* the cgroup is at its limit */
	TC_STALL_COMPACTION = 2, /* no large page free */
};

struct tc_stall_key {
	u32 cgroup_slot;
	u32 stall; /* enum tc_stall */
};
_Static_assert(sizeof(struct tc_stall_key) == 8, "ebpf/layout.py mirrors this");

/* Changed by atomic additions, by all CPUs: next to the stall itself that costs nothing. */
struct tc_stalls {
	u64 slots[TC_SLOTS];
	u64 sum_ns;
};
_Static_assert(sizeof(struct tc_stalls) == 328, "ebpf/layout.py mirrors this");

struct tc_memory {
	u64 major_faults;
	u64 oom_kills;
};
_Static_assert(sizeof(struct tc_memory) == 16, "ebpf/layout.py mirrors this");

/* The out-of-memory killer's victim, as it comes through the ring buffer. */
struct tc_oom {
	u64 at_ns; /* CLOCK_MONOTONIC */
	u32 tgid;  /* in the initial pid namespace */
	u32 cgroup_slot;
	char comm[16];
};
_Static_assert(sizeof(struct tc_oom) == 32, "ebpf/layout.py mirrors this");
