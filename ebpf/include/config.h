/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the loader decides before a program is loaded: the only variable in .rodata, so that it lies at offset 0. */
#pragma once

#include "kernel.h"

#define TC_SYSCALLS 512

/* Whose cgroups count: the v2 tree's, or those of the v1 hierarchy with the CPU controller. */
enum tc_hierarchy { TC_UNIFIED = 0, TC_CPU_CONTROLLER = 1 };

struct tc_config {
	u32 cgroup_hierarchy; /* enum tc_hierarchy */
	u32 reserved;
	u8 syscall_wait[TC_SYSCALLS]; /* class of wait of each system call of this architecture */
};
_Static_assert(sizeof(struct tc_config) == 520, "ebpf/layout.py mirrors this");

const volatile struct tc_config config = {};
