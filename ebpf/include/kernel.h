/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The few kernel types that the probes read, with the fields they read and no more.
 *
 * CO-RE relocates every access against the running kernel's BTF (preserve_access_index), so order and
 * offsets here mean nothing, and no 3 MB vmlinux.h is needed.
 */
#pragma once

#define __VMLINUX_H__ /* libbpf's macros shall use the kernel's names of registers */

#include <stdbool.h>

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

enum { BPF_ANY, BPF_NOEXIST, BPF_EXIST };
enum { BPF_F_NO_PREALLOC = 1U << 0, BPF_F_CLONE = 1U << 9 };
enum { BPF_RB_NO_WAKEUP = 1U << 0 };
enum { BPF_SK_STORAGE_GET_F_CREATE = 1U << 0 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0 };
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

#define TASK_UNINTERRUPTIBLE 0x2
#define PF_MEMALLOC 0x800
#define MAX_RT_PRIO 100
#define PF_KTHREAD 0x200000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

enum cgroup_subsys_id { cpu_cgrp_id = 1 };

struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp;
};

struct sched_info {
	u64 run_delay;
};

struct cfs_rq {
	int throttle_count;
	u64 throttled_clock_pelt_time;
};

struct sched_entity {
	u64 sum_exec_runtime;
	u64 prev_sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int prio;
	int pid;
	int tgid;
	char comm[16];
	struct sched_info sched_info;
	struct sched_entity se;
	struct css_set *cgroups;
	unsigned in_iowait : 1;
	int on_cpu;
	int on_rq;
	u64 start_boottime;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* 6.18 throttles tasks one by one and marks each; the suffix is CO-RE's way to name another version of a type. */
struct task_struct___throttle_each {
	bool throttled;
};

/* Since 6.12 a thread that goes to sleep may stay in the run queue for a while. */
struct sched_entity___delayed_dequeue {
	unsigned char sched_delayed;
};

/* Block layer. */
struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bio {
	struct blkcg_gq *bi_blkg;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int rq_flags;
	unsigned int __data_len;
	struct bio *bio;
	u64 start_time_ns;
};

enum rqf_flags { __RQF_IO_STAT = 8 }; /* has a name since 6.15 */

struct request___with_disk { /* before 5.17 */
	struct gendisk *rq_disk;
};

/* Sockets. */
struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	struct {
		int owned; /* by a task, as opposed to a softirq */
	} sk_lock;
	u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
};

struct request_sock {
	struct sock_common __req_common;
};

struct tcp_sock {
	u64 tcp_mstamp; /* microseconds, as of the last packet */
	u32 srtt_us;	/* smoothed round trip, eighths of microseconds */
};

struct tcp_skb_cb {
	u16 tcp_gso_segs;
};

struct sk_buff {
	char cb[48];
};

struct file;

struct socket {
	struct sock *sk;
};

struct bpf_iter__task_file {
	struct task_struct *task;
	struct file *file;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di, si, dx, cx, r8, r9, ax, sp, ip, orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	u64 regs[31];
	u64 sp, pc, pstate;
};
struct pt_regs {
	s32 syscallno;
};
#endif

#pragma clang attribute pop

#include <bpf/bpf_helpers.h> /* wants the types above */
