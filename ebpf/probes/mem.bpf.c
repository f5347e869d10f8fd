// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Memory: time that threads spend freeing or moving pages before they get one, major faults, and OOM kills.
 *
 * Whoever stalls is the current task, so its cgroup is charged. A major fault has no tracepoint, and the one of all
 * faults fires thousands of times as often: the kernel's software event for major faults calls us for those alone.
 */
#include "mem.h"

#include <bpf/bpf_tracing.h>

#include "../include/cgroups.h"
#include "../include/stats.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SIGKILL 9

struct thread_stall {
	u32 tid;
	u32 stall;
};

/* Not task storage: that would allocate memory for a thread which is short of it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TC_STALLED_THREADS);
	__type(key, struct thread_stall);
	__type(value, u64);
} stalled SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TC_STALL_SERIES);
	__type(key, struct tc_stall_key);
	__type(value, struct tc_stalls);
} stalls SEC(".maps");

/* What a new series starts from: too big for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tc_stalls);
} blank SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TC_MAX_CGROUPS);
	__type(key, u32);
	__type(value, struct tc_memory);
} memory SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 14);
} oom_kills SEC(".maps");

static __always_inline struct task_struct *current_task(void)
{
	return (struct task_struct *)bpf_get_current_task_btf();
}

static __always_inline int begin(u32 stall)
{
	struct thread_stall key = {.tid = (u32)bpf_get_current_pid_tgid(), .stall = stall};
	u64 now = bpf_ktime_get_ns();

	if (bpf_map_update_elem(&stalled, &key, &now, BPF_ANY))
		tc_count(&stats.storage_full);
	return 0;
}

static __always_inline struct tc_stalls *series(u32 cgroup_slot, u32 stall)
{
	struct tc_stall_key key = {.cgroup_slot = cgroup_slot, .stall = stall};
	struct tc_stalls *found = bpf_map_lookup_elem(&stalls, &key), *nothing;
	u32 zero = 0;

	if (found)
		return found;
	nothing = bpf_map_lookup_elem(&blank, &zero);
	if (nothing)
		bpf_map_update_elem(&stalls, &key, nothing, BPF_NOEXIST);
	return bpf_map_lookup_elem(&stalls, &key);
}

static __always_inline int end(u32 stall)
{
	struct thread_stall key = {.tid = (u32)bpf_get_current_pid_tgid(), .stall = stall};
	u64 *since = bpf_map_lookup_elem(&stalled, &key), ns;
	struct tc_stalls *found;
	u32 slot;

	if (!since) /* began before we were there, or found no room */
		return 0;
	ns = bpf_ktime_get_ns() - *since;
	bpf_map_delete_elem(&stalled, &key);
	slot = tc_slot(ns);
	found = series(tc_find_slot(tc_cgroup_id(current_task())), stall);
	if (!found || slot >= TC_SLOTS) {
		tc_count(&stats.pairs_full);
		return 0;
	}
	__sync_fetch_and_add(&found->slots[slot], 1);
	__sync_fetch_and_add(&found->sum_ns, ns);
	return 0;
}

SEC("?tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(reclaim_begin)
{
	return begin(TC_STALL_RECLAIM);
}

SEC("?tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(reclaim_end)
{
	return end(TC_STALL_RECLAIM);
}

SEC("?tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(limit_begin)
{
	return begin(TC_STALL_LIMIT);
}

SEC("?tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(limit_end)
{
	return end(TC_STALL_LIMIT);
}

/* kcompactd compacts ahead of need: nobody waits for it. */
SEC("?tp_btf/mm_compaction_begin")
int BPF_PROG(compaction_begin)
{
	return current_task()->flags & PF_KTHREAD ? 0 : begin(TC_STALL_COMPACTION);
}

SEC("?tp_btf/mm_compaction_end")
int BPF_PROG(compaction_end)
{
	return current_task()->flags & PF_KTHREAD ? 0 : end(TC_STALL_COMPACTION);
}

SEC("perf_event")
int major_fault(void *ctx)
{
	u32 slot = tc_find_slot(tc_cgroup_id(current_task()));
	struct tc_memory *found = bpf_map_lookup_elem(&memory, &slot);

	if (found)
		found->major_faults++;
	return 0;
}

static __always_inline int report(struct tc_oom *victim)
{
	u32 slot = victim->cgroup_slot;
	struct tc_memory *found = bpf_map_lookup_elem(&memory, &slot);

	if (found)
		found->oom_kills++;
	victim->at_ns = bpf_ktime_get_ns();
	if (bpf_ringbuf_output(&oom_kills, victim, sizeof(*victim), 0))
		tc_count(&stats.events_lost);
	return 0;
}

static __always_inline void describe(struct tc_oom *victim, struct task_struct *task)
{
	victim->tgid = BPF_CORE_READ(task, tgid);
	victim->cgroup_slot = tc_find_slot(tc_cgroup_id(task));
	BPF_CORE_READ_INTO(&victim->comm, task, comm);
}

/* Since 6.8 the tracepoint hands over the victim. */
SEC("?tp_btf/mark_victim")
int BPF_PROG(victim_task, struct task_struct *task)
{
	struct tc_oom victim = {};

	describe(&victim, task);
	return report(&victim);
}

/* Before, it hands over a number. The killer sends the signal first, and that tracepoint knows the task. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, struct tc_oom);
} condemned SEC(".maps");

SEC("?tp_btf/signal_generate")
int BPF_PROG(victim_signal, int signal, void *info, struct task_struct *task)
{
	struct tc_oom victim = {};
	u32 tgid;

	if (signal != SIGKILL)
		return 0;
	describe(&victim, task);
	tgid = victim.tgid;
	bpf_map_update_elem(&condemned, &tgid, &victim, BPF_ANY);
	return 0;
}

SEC("?tp_btf/mark_victim")
int BPF_PROG(victim_number, int number)
{
	u32 tgid = number;
	struct tc_oom *known = bpf_map_lookup_elem(&condemned, &tgid), victim = {};

	if (known)
		victim = *known;
	victim.tgid = tgid;
	return report(&victim);
}
