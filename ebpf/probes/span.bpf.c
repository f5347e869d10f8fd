// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The ledger of a span: what its thread waited for between tailcause_span_start and tailcause_span_end.
 *
 * Both are no-ops exported by libtailcause_span.so and called by the span processor; a thread's counters are kept
 * by the sched probe, whose maps this one shares.
 */
#include "span.h"

#include <bpf/bpf_tracing.h>

#include "../include/account.h"
#include "../include/cgroups.h"
#include "../include/stats.h"
#include "../include/threads.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct open_span {
	u64 start_ns;
	u64 born_ns; /* when its thread was: ids are used again */
	u32 tgid;
	u32 tid;
	u64 wait_ns[TC_WAITS];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TC_OPEN_SPANS);
	__type(key, u64);
	__type(value, struct open_span);
} open_spans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} spans SEC(".maps");

/* The calling thread's state with its counters brought up to now; from its first span on a thread is watched. */
static __always_inline struct tc_thread *current_thread(u64 now)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct tc_thread *thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 queued_ns;

	if (!thread) {
		tc_count(&stats.storage_full);
		return NULL;
	}
	tc_begin_change(thread);
	if (thread->watching) {
		/* run_delay is looked at, not taken: the switch still has to count it for the cgroup */
		queued_ns = tc_queued(task, thread);
		tc_settle(thread, queued_ns, tc_throttled(thread, tc_throttle_clock(task), queued_ns), now);
	} else {
		thread->since_ns = now;
		thread->pending_ns = 0;
		tc_note_watching();
	}
	thread->watching |= TC_WATCH_SPANS;
	tc_end_change(thread);
	return thread;
}

static __always_inline u64 current_born_ns(void)
{
	return ((struct task_struct *)bpf_get_current_task_btf())->start_boottime;
}

SEC("uprobe")
int BPF_KPROBE(span_start, u64 trace_hi, u64 trace_lo, u64 span_id)
{
	u64 now = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid();
	struct tc_thread *thread = current_thread(now);
	struct open_span span = {};

	if (!thread)
		return 0;
	span.start_ns = now;
	span.born_ns = current_born_ns();
	span.tgid = id >> 32;
	span.tid = id;
	__builtin_memcpy(span.wait_ns, thread->wait_ns, sizeof(span.wait_ns));
	if (bpf_map_update_elem(&open_spans, &span_id, &span, BPF_ANY))
		tc_count(&stats.spans_full);
	return 0;
}

SEC("uprobe")
int BPF_KPROBE(span_end, u64 trace_hi, u64 trace_lo, u64 span_id)
{
	u64 now = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid();
	struct tc_thread *thread = current_thread(now);
	struct open_span *open = bpf_map_lookup_elem(&open_spans, &span_id);
	struct tc_span *span;

	if (!open) {
		tc_count(&stats.spans_unknown);
		return 0;
	}
	span = bpf_ringbuf_reserve(&spans, sizeof(*span), 0);
	if (!span) {
		tc_count(&stats.spans_lost);
		bpf_map_delete_elem(&open_spans, &span_id);
		return 0;
	}
	span->trace_hi = trace_hi;
	span->trace_lo = trace_lo;
	span->span_id = span_id;
	span->start_ns = open->start_ns;
	span->end_ns = now;
	span->tgid = id >> 32;
	span->tid = id;
	span->flags = TC_SPAN_MOVED;
	if (thread && open->tid == (u32)id && open->born_ns == current_born_ns())
		span->flags = 0;
	span->cgroup_slot = tc_slot_of((struct task_struct *)bpf_get_current_task_btf(), thread);
	for (int i = 0; i < TC_WAITS; i++)
		span->wait_ns[i] = span->flags || !thread ? 0 : thread->wait_ns[i] - open->wait_ns[i];
	bpf_ringbuf_submit(span, BPF_RB_NO_WAKEUP); /* the reader comes by itself */
	bpf_map_delete_elem(&open_spans, &span_id);
	return 0;
}
