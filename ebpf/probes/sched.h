/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#pragma once

#include "../include/slots.h"

#define TC_PAIRS 1024
#define TC_MATRIX 16384

/* Run-queue delay of one cgroup. */
struct tc_delay {
	u64 slots[TC_SLOTS];
	u64 sum_ns;
	u64 involuntary;  /* switches away from a thread that could have gone on */
	u64 throttled_ns; /* waited for quota rather than for a CPU: in neither slots nor sum */
};
_Static_assert(sizeof(struct tc_delay) == 344, "ebpf/layout.py mirrors this");

/* Nanoseconds that threads of `victim` waited for a CPU on which `aggressor` ran. */
struct tc_pair {
	u32 victim;
	u32 aggressor;
	u64 ns;
};
_Static_assert(sizeof(struct tc_pair) == 16, "ebpf/layout.py mirrors this");
