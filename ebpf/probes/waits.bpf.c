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
#define TC_EOVERFLOW 75 /* the reader's page is full: the kernel shows this thread again */

#define tc_fence() asm volatile("" : : : "memory")

/* Copy the state of a thread that another CPU may be changing; `since_ns` is what every change writes last. */
static __always_inline bool copy_thread(struct task_struct *task, struct tc_thread *thread, struct tc_thread *copy,
					bool *running)
{
	for (int i = 0; i < TC_TRIES; i++) {
		u64 since_ns = *(volatile u64 *)&thread->since_ns;
		bool on_cpu = task->on_cpu;

		tc_fence();
		__builtin_memcpy(copy, thread, sizeof(*copy));
		tc_fence();
		if (copy->since_ns != since_ns || *(volatile u64 *)&thread->since_ns != since_ns)
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
	struct sched_entity___delayed_dequeue *entity = (void *)&task->se;

	if (!task->on_rq)
		return true;
	return bpf_core_field_exists(entity->sched_delayed) && BPF_CORE_READ(entity, sched_delayed);
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
		queued_ns = task->sched_info.run_delay - copy.run_delay_ns;
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
