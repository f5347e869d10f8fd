// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The wait counters of the threads of watched processes, and what each thread is at now: an iterator that only looks.
 *
 * The counters are the sched probe's. They are handed over as of the thread's last switch, with the time of it and what
 * has gone on since: how an absence divides between its reason and the run queue is known only once the thread runs.
 * What can be told before is whether it still sleeps. That is worth telling: when the load balancer moves a thread whose
 * dequeue was delayed (6.12 and later), the scheduler takes all the rest of its sleep for run-queue delay.
 */
#include "waits.h"

#include <bpf/bpf_tracing.h>

#include "../include/account.h"
#include "../include/stats.h"
#include "../include/threads.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TC_TRIES 3
#define TC_SPINS 64
#define TC_EOVERFLOW 75 /* the reader's page is full: the kernel shows this thread again */

/* Wait until nobody changes the thread's state, but not for long: a virtual CPU may stand still in mid-change. */
static __always_inline u32 changes_when_still(struct tc_thread *thread)
{
	u32 changes = 1;

	for (int i = 0; i < TC_SPINS && changes & 1; i++)
		changes = *(volatile u32 *)&thread->changes;
	return changes;
}

/* Copy the state of a thread that another CPU may be changing. */
static __always_inline bool copy_thread(struct task_struct *task, struct tc_thread *thread, struct tc_thread *copy,
					bool *running)
{
	for (int i = 0; i < TC_TRIES; i++) {
		u32 changes = changes_when_still(thread);
		bool on_cpu = task->on_cpu;

		tc_fence();
		__builtin_memcpy(copy, thread, sizeof(*copy));
		tc_fence();
		if (changes & 1 || *(volatile u32 *)&thread->changes != changes)
			continue;
		*running = copy->pending_ns || on_cpu;
		return true;
	}
	return false;
}

static __always_inline u32 current_wait(struct task_struct *task, struct tc_thread *thread, bool running)
{
	bool runnable = !running && (thread->reason == TC_RUNQUEUE || thread->reason == TC_THROTTLED);

	if (runnable)
		return tc_is_throttled(task) ? TC_THROTTLED : thread->reason;
	if (thread->gpu_depth)
		return TC_GPU_SYNC;
	return running ? TC_CPU : thread->reason;
}

static __always_inline bool is_asleep(struct task_struct *task)
{
	return !task->on_rq || tc_is_delayed(task);
}

SEC("iter/task")
int walk_threads(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct tc_sample sample = {};
	struct tc_thread *thread, copy;
	u64 queued_ns;
	bool running;
	u32 tgid;
	long failed;

	if (!task)
		return 0;
	tgid = task->tgid;
	if (!bpf_map_lookup_elem(&watched, &tgid))
		return 0;
	thread = bpf_task_storage_get(&threads, task, 0, 0);
	if (!thread || !(thread->watching & TC_WATCH_PROCESS))
		return 0;
	if (!copy_thread(task, thread, &copy, &running)) {
		tc_count(&stats.events_lost);
		return 0;
	}
	if (running) {
		queued_ns = tc_queued(task, &copy);
		tc_divide(&copy, queued_ns, tc_throttled(&copy, tc_throttle_clock(task), queued_ns));
	}
	sample.since_ns = copy.since_ns;
	sample.current = current_wait(task, &copy, running);
	sample.asleep = !running && is_asleep(task);
	sample.tgid = tgid;
	sample.tid = task->pid;
	sample.started_ns = task->start_boottime;
	sample.at_ns = bpf_ktime_get_ns();
	BPF_CORE_READ_STR_INTO(&sample.comm, task, comm);
	for (int i = 0; i < TC_WAITS; i++) {
		sample.total_ns += copy.wait_ns[i];
		sample.wait_us[i] = copy.wait_ns[i] / 1000;
	}
	failed = bpf_seq_write(context->meta->seq, &sample, sizeof(sample));
	if (failed && failed != -TC_EOVERFLOW)
		tc_count(&stats.events_lost);
	return 0;
}
