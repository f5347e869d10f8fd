/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The state of every thread, and which processes are watched closely. Shared between the probes by name. */
#pragma once

#include "kernel.h"
#include "waits.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tc_thread);
} threads SEC(".maps");

/* Processes whose threads' waits are divided; `watch_generation` grows with every change of them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u32);
} watch_generation SEC(".maps");

#define TC_ANYBODY 1 /* the key in watch_generation that says whether a thread has ever been watched */

static __always_inline bool tc_is_anybody_watched(void)
{
	u32 key = TC_ANYBODY, *anybody = bpf_map_lookup_elem(&watch_generation, &key);

	return anybody && *anybody;
}

static __always_inline void tc_note_watching(void)
{
	u32 key = TC_ANYBODY, *anybody = bpf_map_lookup_elem(&watch_generation, &key);

	if (anybody)
		*anybody = 1;
}
