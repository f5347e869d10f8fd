/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What a thread can be doing, and the state that is kept for each thread. */
#pragma once

#include "kernel.h"

/* Retired numbers are marked here and never used again; ebpf/layout.py mirrors the order. */
enum tc_wait {
	TC_CPU = 0,
	TC_RUNQUEUE = 1,
	TC_THROTTLED = 2,
	TC_DISK = 3,
	TC_NETWORK = 4,
	TC_LOCK = 5,
	TC_FAULT = 6,
	TC_SLEEP = 7,
	TC_GPU_SYNC = 8,
	TC_RECLAIM = 9,
	TC_POLL = 10,
	TC_OTHER_WAIT = 11,
	TC_WAITS = 12,
};

enum tc_watching {
	TC_WATCH_PROCESS = 1, /* its process is on the list */
	TC_WATCH_SPANS = 2,   /* it has opened a span */
};

struct tc_thread {
	/* for every thread */
	u64 run_delay_ns; /* sched_info.run_delay when it was last looked at */
	u64 cgroup_id;
	u32 cgroup_slot;
	u32 changes;	       /* odd while what follows is being changed, for who looks from another CPU */
	u32 generation;	       /* of `watched` when `watching` was last decided; 0: never */
	u16 watching;	       /* enum tc_watching, together */
	u8 throttled;	       /* it left the CPU because its cgroup's quota was used up */
	u8 moved_asleep;       /* it was moved in its sleep: run_delay holds the rest of that sleep */
	u64 throttle_clock_ns; /* its run queue's throttled time when it last left the CPU */

	/* for watched threads: wait[] holds all time up to `since_ns` but for `pending_ns` */
	u64 since_ns;
	u64 pending_ns; /* off the CPU, not yet divided between run queue and `reason` */
	u32 reason;
	u32 gpu_depth; /* inside of how many GPU synchronisation calls */
	u64 wait_ns[TC_WAITS];
};
_Static_assert(sizeof(struct tc_thread) == 160, "ebpf/layout.py mirrors this");
