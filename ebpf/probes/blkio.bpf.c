// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Block I/O by cgroup and device: time in the queue (start to issue) and in the device (issue to completion).
 *
 * When a request started is the kernel's own stamp, from which its disk statistics count too. Where these are off it
 * waits from its insertion, and has not waited when there is none.
 * Whose request it is, is asked where it enters the queue, or is issued when there is none: there the task at hand is
 * the one that wants it. A kernel thread works for others (write-back, a requeue): on the v2 tree its request carries
 * the owner's cgroup, v1 does not know it and the thread's own cgroup, the root, is charged.
 */
#include "blkio.h"

#include <bpf/bpf_tracing.h>

#include "../include/cgroups.h"
#include "../include/stats.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define REQ_OP_MASK 0xff

extern int LINUX_KERNEL_VERSION __kconfig;

/* A table with four places for each request instead of a hash map: the kernel uses the same requests over and over, so
 * a request finds its old place again and nothing is inserted, removed or locked; and the place is one cache line.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TC_IN_FLIGHT);
	__type(key, u32);
	__type(value, struct tc_flight);
} in_flight SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, TC_IO_SERIES);
	__type(key, struct tc_io_key);
	__type(value, struct tc_io);
} latencies SEC(".maps");

/* What a new series starts from: too big for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tc_io);
} blank SEC(".maps");

/* A number that stands for the request: its distance from something that stays where it is. The verifier allows no
 * arithmetic on the pointer itself but this, and one subtraction is cheaper than a helper that copies it.
 */
static __always_inline u64 number_of(struct request *rq)
{
	u64 number = (u64)rq, fixed = (u64)&stats;

	__asm__ volatile("%0 -= %1" : "+r"(number) : "r"(fixed)); /* or clang would shift both pointers first */
	return number;
}

/* Requests lie side by side, in blocks of up to 64 KB and each longer than 256 bytes. Their places do too: the next
 * request's place is then on the same page.
 */
static __always_inline struct tc_flight *place(u64 number, u32 nth)
{
	u32 at = ((number >> 16) * 0x9e3779b97f4a7c15ULL >> 50) + ((number >> 8) & 0xff) + nth;

	at &= TC_IN_FLIGHT - 1;
	return bpf_map_lookup_elem(&in_flight, &at);
}

static __always_inline struct tc_flight *find(u64 number)
{
	for (u32 nth = 0; nth < TC_PLACES; nth++) {
		struct tc_flight *flight = place(number, nth);

		if (flight && flight->number == number)
			return flight;
	}
	return NULL;
}

/* A place for a request that has none, taken from a request that is not alive. */
static __noinline struct tc_flight *claim(u64 number)
{
	for (u32 nth = 0; nth < TC_PLACES; nth++) {
		struct tc_flight *flight = place(number, nth);
		u64 before;

		if (!flight || flight->state != TC_FLIGHT_NONE)
			continue;
		before = flight->number;
		if (__sync_val_compare_and_swap(&flight->number, before, number) == before)
			return flight;
	}
	tc_count(&stats.events_lost);
	return NULL;
}

static __always_inline u32 device_of(struct request *rq)
{
	struct request___with_disk *old = (struct request___with_disk *)rq;
	struct gendisk *disk;

	if (bpf_core_field_exists(old->rq_disk)) {
		disk = BPF_CORE_READ(old, rq_disk);
		return BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
	}
	disk = rq->q->disk;
	return disk ? disk->major << 20 | disk->first_minor : 0;
}

static __always_inline u64 owner_of(struct request *rq)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	u64 id = 0;

	if (task->flags & PF_KTHREAD && config.cgroup_hierarchy == TC_UNIFIED &&
	    bpf_core_field_exists(rq->bio->bi_blkg))
		id = BPF_CORE_READ(rq, bio, bi_blkg, blkcg, css.cgroup, kn, id);
	return id ? id : tc_cgroup_id(task);
}

/* The kernel's stamp of a request that its disk statistics count. Before 6.13 there is 0 in all others, since then what
 * the request's last use has left.
 */
static __always_inline u64 start_of(struct request *rq)
{
	bool stamped = LINUX_KERNEL_VERSION < KERNEL_VERSION(6, 13, 0);

	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_IO_STAT))
		stamped = rq->rq_flags >> bpf_core_enum_value(enum rqf_flags, __RQF_IO_STAT) & 1;
	return stamped ? rq->start_time_ns : 0;
}

static __always_inline void begin(struct request *rq, struct tc_flight *flight)
{
	u32 operation = rq->cmd_flags & REQ_OP_MASK;
	u64 id = owner_of(rq), start_ns = start_of(rq);

	if (flight->state == TC_FLIGHT_ISSUED) /* the kernel skipped the program at its completion */
		tc_count(&stats.events_lost);
	if (flight->cgroup_id != id) {
		flight->key.cgroup_slot = tc_find_slot(id);
		flight->cgroup_id = flight->key.cgroup_slot == TC_OTHER ? 0 : id;
	}
	flight->queued_ns = start_ns ? start_ns : bpf_ktime_get_ns();
	flight->inserted = 0;
	flight->key.device = device_of(rq);
	flight->key.kind = operation < TC_IO_OTHER ? operation : TC_IO_OTHER;
}

SEC("?tp_btf/block_rq_insert")
int BPF_PROG(io_insert, struct request *rq)
{
	u64 number = number_of(rq);
	struct tc_flight *flight;

	if (!rq->bio) /* a bare flush: its completion is not traced */
		return 0;
	flight = find(number) ?: claim(number);
	if (!flight)
		return 0;
	/* a request that comes back keeps its owner, and has been waiting since it first came */
	if (flight->state != TC_FLIGHT_RETURNED)
		begin(rq, flight);
	flight->state = TC_FLIGHT_QUEUED;
	flight->inserted++;
	return 0;
}

SEC("?tp_btf/block_rq_issue")
int BPF_PROG(io_issue, struct request *rq)
{
	u64 number = number_of(rq);
	struct tc_flight *flight;

	if (!rq->bio)
		return 0;
	flight = find(number) ?: claim(number);
	if (!flight)
		return 0;
	if (flight->state != TC_FLIGHT_QUEUED && flight->state != TC_FLIGHT_RETURNED)
		begin(rq, flight);
	flight->state = TC_FLIGHT_ISSUED;
	flight->issued_ns = bpf_ktime_get_ns();
	return 0;
}

/* Two rare ends of a stay: the device had no room for it, and another request absorbed it in the queue. */
SEC("?tp_btf/block_rq_requeue")
int BPF_PROG(io_requeue, struct request *rq)
{
	struct tc_flight *flight = find(number_of(rq));

	if (flight && flight->state == TC_FLIGHT_ISSUED)
		flight->state = TC_FLIGHT_RETURNED;
	return 0;
}

SEC("?tp_btf/block_rq_merge")
int BPF_PROG(io_merge, struct request *rq)
{
	struct tc_flight *flight = find(number_of(rq));

	if (flight)
		flight->state = TC_FLIGHT_NONE;
	return 0;
}

/* A new series; where there is no room, that of "some other cgroup". */
static __always_inline struct tc_io *add_series(struct tc_io_key *key)
{
	u32 zero = 0;
	struct tc_io *nothing = bpf_map_lookup_elem(&blank, &zero), *found;
	struct tc_io_key rest = *key;

	if (!nothing)
		return NULL;
	bpf_map_update_elem(&latencies, key, nothing, BPF_NOEXIST);
	found = bpf_map_lookup_elem(&latencies, key);
	if (found)
		return found;
	tc_count(&stats.pairs_full);
	rest.cgroup_slot = TC_OTHER;
	bpf_map_update_elem(&latencies, &rest, nothing, BPF_NOEXIST);
	return bpf_map_lookup_elem(&latencies, &rest);
}

/* A global function is verified once, by itself: two slots in one program multiply its paths. */
__noinline u32 io_slot(u64 ns)
{
	return tc_slot(ns);
}

SEC("?tp_btf/block_rq_complete")
int BPF_PROG(io_complete, struct request *rq, int error, unsigned int bytes)
{
	u64 number = number_of(rq), now;
	struct tc_flight *flight;
	struct tc_io *io;
	u32 queue, service;

	if (bytes < rq->__data_len) /* a part of it */
		return 0;
	flight = find(number);
	if (!flight || flight->state != TC_FLIGHT_ISSUED) {
		tc_count(&stats.events_lost); /* there was no place for it, or it was issued before we came */
		return 0;
	}
	now = bpf_ktime_get_ns();
	queue = io_slot(flight->issued_ns - flight->queued_ns);
	service = io_slot(now - flight->issued_ns);
	io = bpf_map_lookup_elem(&latencies, &flight->key);
	if (!io)
		io = add_series(&flight->key);
	if (io && queue < TC_SLOTS && service < TC_SLOTS) {
		io->queue_slots[queue]++;
		io->service_slots[service]++;
		io->queue_ns += flight->issued_ns - flight->queued_ns;
		io->service_ns += now - flight->issued_ns;
		io->inserted += flight->inserted;
	} else {
		tc_count(&stats.events_lost);
	}
	flight->state = TC_FLIGHT_NONE;
	return 0;
}
