/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A small number for every cgroup, so that histograms are arrays and a pair of cgroups fits 64 bits.
 *
 * The agent fills `free_slots` at start and gives the slot of a cgroup that is gone back; number 0 stands for
 * "some other cgroup" when none is free, and `stats.cgroups_full` counts how often.
 */
#pragma once

#include "config.h"
#include "kernel.h"
#include "stats.h"
#include "waits.h"

#include <bpf/bpf_core_read.h>

#define TC_MAX_CGROUPS 1024
#define TC_OTHER 0
#define TC_IDLE 1 /* nobody held the CPU: the time it takes to wake one up */
#define TC_FIRST_FREE 2

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TC_MAX_CGROUPS);
	__type(key, u64);
	__type(value, u32);
} cgroup_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, TC_MAX_CGROUPS);
	__type(value, u32);
} free_slots SEC(".maps");

static __noinline u32 tc_find_slot(u64 cgroup_id)
{
	u32 *known = bpf_map_lookup_elem(&cgroup_slots, &cgroup_id);
	u32 slot = TC_OTHER;

	if (known)
		return *known;
	if (bpf_map_pop_elem(&free_slots, &slot)) {
		tc_count(&stats.cgroups_full);
		return TC_OTHER;
	}
	if (bpf_map_update_elem(&cgroup_slots, &cgroup_id, &slot, BPF_NOEXIST)) {
		/* another CPU was first */
		bpf_map_push_elem(&free_slots, &slot, 0);
		known = bpf_map_lookup_elem(&cgroup_slots, &cgroup_id);
		return known ? *known : TC_OTHER;
	}
	return slot;
}

static __always_inline u64 tc_cgroup_id(struct task_struct *task)
{
	struct css_set *set = task->cgroups;

	if (config.cgroup_hierarchy == TC_UNIFIED)
		return set->dfl_cgrp->kn->id;
	return set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)]->cgroup->kn->id;
}

/* The slot of a task's cgroup, which its thread knows unless it has moved since its last switch. */
static __always_inline u32 tc_slot_of(struct task_struct *task, struct tc_thread *thread)
{
	u64 id = tc_cgroup_id(task);

	return thread && thread->cgroup_id == id ? thread->cgroup_slot : tc_find_slot(id);
}
