/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Run-queue delay by owner and who held the CPU meanwhile, from what tracepoints say and nothing else: no kernel type
 * is read, so the headers of another kernel of the same architecture will do.
 *
 * bcc's dialect of C; the helper puts the text of include/slots.h in front. An owner is a v2 cgroup id or, with
 * TC_BY_PROCESS, a process, whose cgroup of the CPU hierarchy the helper looks up: no BPF call tells it.
 * sched_switch runs while the thread that leaves is still the current one, so a delay is counted when it leaves.
 */
#define TC_NOBODY 0ULL	/* the idle thread */
#define TC_REST (~0ULL) /* owners that found no room */

struct thread {
	u64 queued_since_ns; /* 0: not waiting for a CPU, as far as we saw */
	u64 waited_ns;
	u64 aggressor;
	u64 seen; /* how long it waited is known */
};

struct delay {
	u64 slots[TC_SLOTS];
	u64 sum_ns;
	u64 involuntary;
};

struct pair {
	u64 victim;
	u64 aggressor;
};

enum { THREADS_FULL, OWNERS_FULL, PAIRS_FULL, SWITCHES_MISSED, STATS };

BPF_HASH(threads, u32, struct thread, 32768);
BPF_HASH(delays, u64, struct delay, TC_OWNERS);
BPF_HASH(matrix, struct pair, u64, 16384);
BPF_TABLE("lru_hash", u32, u32, parents, 8192);
BPF_PERCPU_ARRAY(running, u32, 1);
BPF_ARRAY(stats, u64, STATS);

static __always_inline u64 current_owner(void)
{
#ifdef TC_BY_PROCESS
	return bpf_get_current_pid_tgid() >> 32;
#else
	return bpf_get_current_cgroup_id();
#endif
}

static __always_inline struct thread *find_thread(u32 tid)
{
	struct thread fresh = {}, *found = threads.lookup_or_try_init(&tid, &fresh);

	if (!found)
		stats.atomic_increment(THREADS_FULL);
	return found;
}

static __always_inline void record(u64 owner, u64 waited_ns, bool runnable)
{
	struct delay fresh = {}, *delay = delays.lookup_or_try_init(&owner, &fresh);
	u64 rest = TC_REST;
	u32 slot = tc_slot(waited_ns);

	if (!delay) {
		stats.atomic_increment(OWNERS_FULL);
		delay = delays.lookup(&rest);
	}
	if (!delay || slot >= TC_SLOTS)
		return;
	__sync_fetch_and_add(&delay->slots[slot], 1);
	__sync_fetch_and_add(&delay->sum_ns, waited_ns);
	__sync_fetch_and_add(&delay->involuntary, (u64)runnable);
}

static __always_inline void charge(u64 victim, u64 aggressor, u64 ns)
{
	struct pair pair = {.victim = victim, .aggressor = aggressor};
	u64 fresh = 0, *sum = matrix.lookup_or_try_init(&pair, &fresh);

	if (sum)
		__sync_fetch_and_add(sum, ns);
	else
		stats.atomic_increment(PAIRS_FULL);
}

/* The kernel leaves runs out where perf's recursion guard or another program is active, and counts only the latter:
 * whoever leaves the CPU must be who was last seen to get it.
 */
static __always_inline void check_order(u32 prev, u32 next)
{
	int zero = 0;
	u32 *last = running.lookup(&zero);

	if (!last)
		return;
	if (*last && *last != prev)
		stats.atomic_increment(SWITCHES_MISSED);
	*last = next;
}

static __always_inline void queued(u32 tid)
{
	struct thread *thread = find_thread(tid);

	if (thread && !thread->queued_since_ns)
		thread->queued_since_ns = bpf_ktime_get_ns();
}

TRACEPOINT_PROBE(sched, sched_wakeup)
{
	queued(args->pid);
	return 0;
}

TRACEPOINT_PROBE(sched, sched_wakeup_new)
{
	queued(args->pid);
	return 0;
}

TRACEPOINT_PROBE(sched, sched_switch)
{
	/* bit 8 stands for "preempted", whatever the thread was about to do */
	bool runnable = !(args->prev_state & 0xff) || args->prev_state & 0x100;
	u64 now = bpf_ktime_get_ns(), owner = args->prev_pid ? current_owner() : TC_NOBODY;
	u32 next = args->next_pid;
	struct thread *thread;

	check_order(args->prev_pid, next);
	if (args->prev_pid && (thread = find_thread(args->prev_pid))) {
		if (thread->seen) {
			record(owner, thread->waited_ns, runnable);
			charge(owner, thread->aggressor, thread->waited_ns);
		}
		thread->seen = 0;
		thread->queued_since_ns = runnable ? now : 0;
	}
	if (next && (thread = threads.lookup(&next))) {
		thread->seen = thread->queued_since_ns != 0;
		thread->waited_ns = thread->seen ? now - thread->queued_since_ns : 0;
		thread->aggressor = owner;
		thread->queued_since_ns = 0;
	}
	return 0;
}

TRACEPOINT_PROBE(sched, sched_process_fork)
{
	u32 child = args->child_pid, parent = bpf_get_current_pid_tgid() >> 32;

	parents.update(&child, &parent);
	return 0;
}

TRACEPOINT_PROBE(sched, sched_process_exit)
{
	u32 tid = args->pid;

	threads.delete(&tid);
	return 0;
}
