/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Divides a watched thread's wall time into waits. Called at the switch and at the edges of spans.
 *
 * A thread off the CPU first waits for something, then for the CPU. The scheduler adds the second part to
 * sched_info.run_delay only once the thread runs, after its tracepoint; so the whole absence is kept as `pending_ns`
 * and divided when the thread is next looked at.
 */
#pragma once

#include "config.h"
#include "kernel.h"
#include "waits.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define tc_fence() asm volatile("" : : : "memory") /* for the compiler */

static __always_inline bool tc_is_throttled(struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct___throttle_each, throttled))
		return ((struct task_struct___throttle_each *)task)->throttled;
	return task->se.cfs_rq->throttle_count > 0;
}

/* Time for which the thread's run queue was throttled, ever: tells a wake-up into a throttled queue from a busy CPU. */
static __always_inline u64 tc_throttle_clock(struct task_struct *task)
{
	if (!bpf_core_field_exists(struct cfs_rq, throttled_clock_pelt_time))
		return 0;
	return task->se.cfs_rq->throttled_clock_pelt_time;
}

/* Since 6.12 a thread that goes to sleep may stay in the run queue for a while, marked. */
static __always_inline bool tc_is_delayed(struct task_struct *task)
{
	struct sched_entity___delayed_dequeue *entity = (void *)&task->se;

	return bpf_core_field_exists(entity->sched_delayed) && entity->sched_delayed;
}

/* For how long the thread has been in run queues since its last switch; 0 where the kernel cannot tell. */
static __always_inline u64 tc_queued(struct task_struct *task, struct tc_thread *thread)
{
	return thread->moved_asleep ? 0 : task->sched_info.run_delay - thread->run_delay_ns;
}

/* One CPU at a time changes a thread's state; any may look at it, and shall not take half a change for a whole one.
 * x86 keeps the order of stores; where they are seen in another order, the sum of the waits still tells.
 */
static __always_inline void tc_begin_change(struct tc_thread *thread)
{
	thread->changes++;
	tc_fence();
}

static __always_inline void tc_end_change(struct tc_thread *thread)
{
	tc_fence();
	thread->changes++;
}

static __always_inline long tc_syscall(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
#if defined(__TARGET_ARCH_x86)
	long number = BPF_CORE_READ(regs, orig_ax);
#elif defined(__TARGET_ARCH_arm64)
	long number = BPF_CORE_READ(regs, syscallno);
#endif

	return number;
}

static __always_inline u32 tc_reason(struct task_struct *task, bool runnable)
{
	long number;

	if (runnable)
		return tc_is_throttled(task) ? TC_THROTTLED : TC_RUNQUEUE;
	if (task->flags & PF_MEMALLOC)
		return TC_RECLAIM;
	number = tc_syscall(task);
	if (number < 0)
		return TC_FAULT;
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return TC_DISK;
	return number < TC_SYSCALLS ? config.syscall_wait[number] : TC_OTHER_WAIT;
}

static __always_inline void tc_add(struct tc_thread *thread, u32 wait, u64 ns)
{
	u64 place = wait;

	__asm__ volatile(""
			 : "+r"(place)); /* one register to be checked and used: what Linux 6.1's verifier can follow */
	if (place < TC_WAITS)
		thread->wait_ns[place] += ns;
}

/* How much of the last `queued_ns` in a run queue was throttled: that of the whole absence when the thread left because
 * of the quota, else as long as its queue stood still since it left (it woke up into a throttled queue).
 */
static __always_inline u64 tc_throttled(struct tc_thread *thread, u64 throttle_clock_ns, u64 queued_ns)
{
	u64 stood_still = throttle_clock_ns - thread->throttle_clock_ns;

	return thread->throttled || stood_still > queued_ns ? queued_ns : stood_still;
}

/* Divide the last absence; `queued_ns` is what run_delay grew by since it began, `throttled_ns` the throttled part. */
static __always_inline void tc_divide(struct tc_thread *thread, u64 queued_ns, u64 throttled_ns)
{
	u64 pending = thread->pending_ns;

	thread->pending_ns = 0;
	if (!pending)
		return;
	if (queued_ns > pending || thread->reason == TC_RUNQUEUE || thread->reason == TC_THROTTLED)
		queued_ns = pending;
	if (throttled_ns > queued_ns || thread->reason == TC_THROTTLED)
		throttled_ns = queued_ns;
	tc_add(thread, TC_THROTTLED, throttled_ns);
	tc_add(thread, TC_RUNQUEUE, queued_ns - throttled_ns);
	tc_add(thread, thread->gpu_depth ? TC_GPU_SYNC : thread->reason, pending - queued_ns);
}

/* Bring the counters of a thread that is on the CPU up to `now`. */
static __always_inline void tc_settle(struct tc_thread *thread, u64 queued_ns, u64 throttled_ns, u64 now)
{
	tc_divide(thread, queued_ns, throttled_ns);
	tc_add(thread, thread->gpu_depth ? TC_GPU_SYNC : TC_CPU, now - thread->since_ns);
	thread->since_ns = now;
}

#define TC_MISSED_NS 100000 /* by so much the clocks of the scheduler and ours may differ */

/* Some kernels now and then let a thread onto the CPU without the tracepoint: when it leaves, its last run (as the
 * scheduler has it) tells how much of the time since it left before was an absence.
 */
static __always_inline void tc_make_up(struct tc_thread *thread, u64 ran_ns, u64 now)
{
	u64 gone_ns = now - thread->since_ns;

	if (thread->pending_ns || gone_ns < ran_ns + TC_MISSED_NS)
		return;
	thread->pending_ns = gone_ns - ran_ns;
	thread->since_ns = now - ran_ns;
}

static __always_inline void tc_enter(struct tc_thread *thread, u64 now)
{
	tc_begin_change(thread);
	thread->pending_ns = now - thread->since_ns;
	thread->since_ns = now;
	tc_end_change(thread);
}
