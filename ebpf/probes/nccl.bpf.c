// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* NCCL's collectives by process: how long the caller spends in them, which is not how long the GPUs do. */
#include "nccl.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe")
int enter_nccl(struct pt_regs *context)
{
	return tc_enter_call(context, TC_NCCL_BY_PROCESS);
}

SEC("uprobe")
int leave_nccl(struct pt_regs *context)
{
	return tc_leave_call(context, TC_NCCL_BY_PROCESS);
}
