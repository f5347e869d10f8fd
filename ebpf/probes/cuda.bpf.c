// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Calls of the CUDA runtime and driver: how long, how often, and which of them wait for the GPU.
 *
 * A call's time is what the caller spends in it: for a launch that is putting it on the queue, not running it.
 */
#include "cuda.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe")
int enter_cuda(struct pt_regs *context)
{
	return tc_enter_call(context, TC_CUDA_BY_PROCESS);
}

SEC("uprobe")
int leave_cuda(struct pt_regs *context)
{
	return tc_leave_call(context, TC_CUDA_BY_PROCESS);
}

/* After the uprobes are gone nobody would lower what a call in progress has raised. */
SEC("iter/task")
int forget_waiting(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct tc_thread *thread;

	if (!task)
		return 0;
	thread = bpf_task_storage_get(&threads, task, 0, 0);
	if (thread)
		thread->gpu_depth = 0;
	return 0;
}
