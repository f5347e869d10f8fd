// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Run-queue delay by cgroup, who held the CPU meanwhile, and the waits of watched threads: one hook, sched_switch.
 *
 * The delay is the growth of sched_info.run_delay, which the scheduler keeps anyway: no wake-up hook, no time stamp.
 */
#include "sched.h"

#include <bpf/bpf_tracing.h>

#include "../include/account.h"
#include "../include/cgroups.h"
#include "../include/stats.h"
#include "../include/threads.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TC_MAX_CGROUPS);
	__type(key, u32);
	__type(value, struct tc_delay);
} delays SEC(".maps");

/* A direct-mapped cache in front of `matrix`: most switches add to a pair that was there before. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TC_PAIRS);
	__type(key, u32);
	__type(value, struct tc_pair);
} pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TC_MATRIX);
	__type(key, u64);
	__type(value, u64);
} matrix SEC(".maps");

static __noinline int write_back(u32 victim, u32 aggressor, u64 ns)
{
	u64 key = (u64)victim << 32 | aggressor;
	u64 *sum = bpf_map_lookup_elem(&matrix, &key);

	if (sum)
		__sync_fetch_and_add(sum, ns);
	else if (bpf_map_update_elem(&matrix, &key, &ns, BPF_NOEXIST))
		tc_count(&stats.pairs_full);
	return 0;
}

#define TC_HOLDERS 3

/* A cgroup that had a CPU, and for how long (at most 4 s); neighbours in time with the same cgroup are one. */
struct tc_holder {
	u32 slot;
	u32 ran_ns;
};

/* Who had this CPU last, before who has it now; `since_ns` is when a real-time thread got it. */
struct cpu {
	u64 since_ns;
	struct tc_holder holders[TC_HOLDERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* Note that `slot` has had the CPU until now. */
static __always_inline void note_holder(struct cpu *cpu, u32 slot, u64 ran_ns)
{
	if (cpu->holders[0].slot == slot) {
		ran_ns += cpu->holders[0].ran_ns;
	} else {
		for (int i = TC_HOLDERS - 1; i > 0; i--)
			cpu->holders[i] = cpu->holders[i - 1];
		cpu->holders[0].slot = slot;
	}
	cpu->holders[0].ran_ns = ran_ns < ~0U ? ran_ns : ~0U;
}

static __always_inline int charge(u32 victim, u32 aggressor, u64 ns)
{
	u32 place = (victim * 31 + aggressor) & (TC_PAIRS - 1);
	struct tc_pair *pair = bpf_map_lookup_elem(&pairs, &place);

	if (!pair)
		return 0;
	if (pair->victim == victim && pair->aggressor == aggressor) {
		pair->ns += ns;
		return 0;
	}
	if (pair->ns)
		write_back(pair->victim, pair->aggressor, pair->ns);
	pair->victim = victim;
	pair->aggressor = aggressor;
	pair->ns = ns;
	return 0;
}

/* Charge a wait to those who had the CPU meanwhile, the last one first; what is older goes to the oldest known.
 *
 * Nobody has been noted since the thread got the CPU, so that when it leaves, those before it are still the first.
 */
static __always_inline void charge_holders(struct tc_thread *thread, struct cpu *cpu, u64 queued_ns)
{
	for (int i = 0; i < TC_HOLDERS && queued_ns; i++) {
		u64 part = cpu->holders[i].ran_ns;

		if (part > queued_ns || i == TC_HOLDERS - 1)
			part = queued_ns;
		if (part)
			charge(thread->cgroup_slot, cpu->holders[i].slot, part);
		queued_ns -= part;
	}
}

static __always_inline void record(struct tc_thread *thread, u64 queued_ns, u64 throttled_ns, bool involuntary)
{
	u32 slot = thread->cgroup_slot, bucket = tc_slot(queued_ns);
	struct tc_delay *delay = bpf_map_lookup_elem(&delays, &slot);

	if (!delay || bucket >= TC_SLOTS)
		return;
	delay->involuntary += involuntary;
	if (thread->moved_asleep) {
		tc_count(&stats.delays_unknown);
		return;
	}
	delay->slots[bucket]++;
	delay->sum_ns += queued_ns;
	delay->throttled_ns += throttled_ns;
}

static __noinline u32 is_watched(u32 tgid)
{
	return bpf_map_lookup_elem(&watched, &tgid) != NULL;
}

/* Decide again, after the list has changed, whether the thread's process is watched. */
static __always_inline void decide_watching(struct task_struct *task, struct tc_thread *thread)
{
	u32 zero = 0, *generation = bpf_map_lookup_elem(&watch_generation, &zero);
	u32 wanted;

	if (!generation || thread->generation == *generation)
		return;
	wanted = is_watched(task->tgid) ? TC_WATCH_PROCESS : 0;
	if (wanted && !thread->watching) { /* from here on */
		thread->since_ns = bpf_ktime_get_ns();
		thread->pending_ns = 0;
	}
	tc_fence();
	thread->watching = (thread->watching & TC_WATCH_SPANS) | wanted;
	thread->generation = *generation;
}

/* How long the thread had the CPU. The fair scheduler keeps count; for a real-time thread we do. */
static __always_inline u64 ran_for(struct task_struct *task, struct cpu *cpu)
{
	u64 before = task->se.prev_sum_exec_runtime;

	if (task->prio < MAX_RT_PRIO)
		return bpf_ktime_get_ns() - cpu->since_ns;
	asm volatile("" : "+r"(before)); /* or clang merges this load with the one above, which no verifier takes */
	return task->se.sum_exec_runtime - before;
}

/* Returns the slot of the cgroup that leaves the CPU. */
static __always_inline u32 leave(struct task_struct *task, struct cpu *cpu, bool runnable, u64 ran_ns, u64 *now)
{
	struct tc_thread *thread;
	u64 queued_ns, throttled_ns, clock_ns, id;
	bool first, watched_closely;

	thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread) {
		tc_count(&stats.storage_full);
		return TC_OTHER;
	}
	first = !thread->cgroup_id;
	queued_ns = tc_queued(task, thread);
	clock_ns = tc_throttle_clock(task);
	throttled_ns = tc_throttled(thread, clock_ns, queued_ns);
	id = tc_cgroup_id(task);
	if (id != thread->cgroup_id) {
		thread->cgroup_id = id;
		thread->cgroup_slot = tc_find_slot(id);
	}
	if (!first) { /* else it is the delay of its whole life until now */
		record(thread, queued_ns - throttled_ns, throttled_ns, runnable);
		charge_holders(thread, cpu, queued_ns - throttled_ns);
	}
	decide_watching(task, thread);
	watched_closely = thread->watching;
	if (watched_closely) {
		tc_begin_change(thread);
		*now = bpf_ktime_get_ns();
		tc_make_up(thread, ran_ns, *now);
		tc_settle(thread, queued_ns, throttled_ns, *now);
		thread->reason = tc_reason(task, runnable);
	}
	thread->throttle_clock_ns = clock_ns;
	thread->run_delay_ns = task->sched_info.run_delay;
	thread->throttled = runnable && tc_is_throttled(task);
	thread->moved_asleep = false;
	if (watched_closely)
		tc_end_change(thread);
	return thread->cgroup_slot;
}

static __always_inline void enter(struct task_struct *task, u64 now)
{
	struct tc_thread *thread = bpf_task_storage_get(&threads, task, 0, 0);

	if (thread && thread->watching)
		tc_enter(thread, now ? now : bpf_ktime_get_ns());
}

static __always_inline int on_switch(struct task_struct *prev, struct task_struct *next, bool runnable)
{
	u32 zero = 0;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &zero);
	u64 now = 0, ran_ns;

	if (!cpu)
		return 0;
	if (prev->pid) {
		ran_ns = ran_for(prev, cpu);
		note_holder(cpu, leave(prev, cpu, runnable, ran_ns, &now), ran_ns);
	} else /* who waits now began to wait while it was idle */
		note_holder(cpu, TC_IDLE, ~0U);
	if (next->prio < MAX_RT_PRIO)
		cpu->since_ns = bpf_ktime_get_ns();
	if (next->pid && tc_is_anybody_watched())
		enter(next, now);
	return 0;
}

/* A thread that is moved to another CPU in its sleep, before it was taken out of the run queue: the kernel notes it as
 * queued there, and when it runs again has added all the rest of its sleep to run_delay.
 */
SEC("?tp_btf/sched_migrate_task")
int BPF_PROG(note_moved_asleep, struct task_struct *task, int cpu)
{
	struct tc_thread *thread;

	if (!tc_is_delayed(task))
		return 0;
	thread = bpf_task_storage_get(&threads, task, 0, 0);
	if (thread)
		thread->moved_asleep = true;
	return 0;
}

/* Since 5.18 the tracepoint hands over the state as it was when the switch was decided. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(switch_with_state, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int state)
{
	return on_switch(prev, next, preempt || !state);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(switch_without_state, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(prev, next, preempt || !prev->__state);
}
