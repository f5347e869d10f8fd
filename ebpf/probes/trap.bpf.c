// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Does nothing: to measure what a uprobe's trap costs by itself (ebpf/trapcost.py). */
#include "../include/kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe")
int trap(void *context)
{
	return 0;
}
