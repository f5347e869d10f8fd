/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Time inside of a library's calls, by cgroup: what the cuda and nccl probes share.
 *
 * Only a thread's outermost call counts: cudaLaunchKernel calls cuLaunchKernel, and that is one launch. A call is inside
 * of another while its stack pointer lies below; unlike a counter this comes right by itself when a return is never
 * seen (longjmp, or a probe detached in mid-call).
 */
#pragma once

#include "account.h"
#include "cgroups.h"
#include "kernel.h"
#include "slots.h"
#include "stats.h"
#include "threads.h"

#include <bpf/bpf_tracing.h>

#define TC_CALL_SERIES 4096
#define TC_GAP 0 /* in place of an API: from the end of a launch to the thread's next */
#define TC_SAME_TRAP_NS 50000

/* What a uprobe's cookie says about the function that it sits on. */
enum tc_call_cookie {
	TC_CALL_API = 0xff,	   /* its place in the user side's table, from 1 */
	TC_CALL_WAITS = 1 << 8,	   /* it returns when the GPU has got there */
	TC_CALL_LAUNCH = 1 << 9,   /* it puts work on the GPU's queue */
	TC_CALL_STEPPED = 1 << 10, /* the kernel single-steps its first instruction */
};

enum tc_call_trap { TC_TRAP_ENTRY = 0, TC_TRAP_STEPPED = 1, TC_TRAP_RETURN = 2, TC_TRAPS = 3 };

struct tc_call_key {
	u32 cgroup_slot;
	u32 tgid; /* 0 where processes are not told apart */
	u32 api;
	u32 reserved;
};
_Static_assert(sizeof(struct tc_call_key) == 16, "ebpf/layout.py mirrors this");

struct tc_call_time {
	u64 slots[TC_SLOTS];
	u64 sum_ns;
};
_Static_assert(sizeof(struct tc_call_time) == 328, "ebpf/layout.py mirrors this");

struct open_call {
	u64 stack; /* of the outermost call; 0: in none */
	u64 start_ns;
	u64 waiting_stack; /* of the outermost call that waits for the GPU */
	u64 launched_ns;   /* end of the last launch */
	u64 api;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct open_call);
} open_calls SEC(".maps");

/* Few cgroups use a GPU: memory is taken as they come. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, TC_CALL_SERIES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tc_call_key);
	__type(value, struct tc_call_time);
} call_times SEC(".maps");

/* How often each kind of trap was taken, nested calls too. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TC_TRAPS);
	__type(key, u32);
	__type(value, u64);
} traps SEC(".maps");

static __always_inline void tc_count_trap(u32 kind)
{
	u64 *count = bpf_map_lookup_elem(&traps, &kind);

	if (count)
		(*count)++;
}

static __noinline int tc_open_series(struct tc_call_key *key)
{
	struct tc_call_time empty = {};

	return key ? bpf_map_update_elem(&call_times, key, &empty, BPF_NOEXIST) : 0;
}

static __always_inline void tc_add_call(struct tc_call_key *key, u64 ns)
{
	struct tc_call_time *time = bpf_map_lookup_elem(&call_times, key);
	u32 slot = tc_slot(ns);

	if (!time) {
		tc_open_series(key);
		time = bpf_map_lookup_elem(&call_times, key);
	}
	if (!time || slot >= TC_SLOTS) {
		tc_count(&stats.events_lost);
		return;
	}
	time->slots[slot]++;
	time->sum_ns += ns;
}

static __always_inline struct tc_thread *tc_thread_of(struct task_struct *task)
{
	struct tc_thread *thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread)
		tc_count(&stats.storage_full);
	return thread;
}

/* From here on the thread's time, on the CPU and asleep, is (or is no longer) a wait for the GPU. */
static __always_inline void tc_wait_for_gpu(struct task_struct *task, struct tc_thread *thread, u32 depth, u64 now)
{
	u64 queued_ns;

	tc_begin_change(thread);
	if (thread->watching) {
		queued_ns = tc_queued(task, thread);
		tc_settle(thread, queued_ns, tc_throttled(thread, tc_throttle_clock(task), queued_ns), now);
	}
	thread->gpu_depth = depth;
	tc_end_change(thread);
}

static __always_inline bool tc_is_inside(u64 outer_stack, u64 stack, u64 age_ns)
{
	/* at the same place: two traps of one call (a file mounted twice, a tail call), or a call after a lost one */
	return outer_stack && (stack < outer_stack || (stack == outer_stack && age_ns < TC_SAME_TRAP_NS));
}

static __always_inline int tc_enter_call(struct pt_regs *context, bool by_process)
{
	u64 now = bpf_ktime_get_ns(), cookie = bpf_get_attach_cookie(context), stack = PT_REGS_SP(context);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct open_call *call = bpf_task_storage_get(&open_calls, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct tc_call_key key = {.api = TC_GAP};
	struct tc_thread *thread;

	tc_count_trap(cookie & TC_CALL_STEPPED ? TC_TRAP_STEPPED : TC_TRAP_ENTRY);
	if (!call) {
		tc_count(&stats.storage_full);
		return 0;
	}
	if (cookie & TC_CALL_WAITS && (!call->waiting_stack || stack > call->waiting_stack)) {
		call->waiting_stack = stack;
		thread = tc_thread_of(task);
		if (thread)
			tc_wait_for_gpu(task, thread, 1, now);
	}
	if (tc_is_inside(call->stack, stack, now - call->start_ns))
		return 0;
	call->stack = stack;
	call->start_ns = now;
	call->api = cookie;
	if (cookie & TC_CALL_LAUNCH && call->launched_ns) {
		key.cgroup_slot = tc_slot_of(task, bpf_task_storage_get(&threads, task, 0, 0));
		key.tgid = by_process ? task->tgid : 0;
		tc_add_call(&key, now - call->launched_ns);
	}
	return 0;
}

static __always_inline int tc_leave_call(struct pt_regs *context, bool by_process)
{
	u64 now = bpf_ktime_get_ns(), stack = PT_REGS_SP(context);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct open_call *call = bpf_task_storage_get(&open_calls, task, 0, 0);
	struct tc_thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
	struct tc_call_key key = {};

	tc_count_trap(TC_TRAP_RETURN);
	if (!call)
		return 0;
	if (call->waiting_stack && stack >= call->waiting_stack) {
		call->waiting_stack = 0;
		if (thread)
			tc_wait_for_gpu(task, thread, 0, now);
	}
	if (!call->stack || stack < call->stack)
		return 0;
	call->stack = 0;
	if (call->api & TC_CALL_LAUNCH)
		call->launched_ns = now;
	key.cgroup_slot = tc_slot_of(task, thread);
	key.tgid = by_process ? task->tgid : 0;
	key.api = call->api & TC_CALL_API;
	tc_add_call(&key, now - call->start_ns);
	return 0;
}
