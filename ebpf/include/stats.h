/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What a probe could not do, counted; the agent exports each of these. Never reset. */
#pragma once

#include "kernel.h"

struct tc_stats {
	u64 storage_full;   /* no memory for a thread's state: its time is not accounted */
	u64 cgroups_full;   /* no free number: counted as "some other cgroup" */
	u64 pairs_full;	    /* a series of two labels (victim and aggressor, cgroup and device) found no room */
	u64 spans_full;	    /* a span could not be opened: too many open at once */
	u64 spans_lost;	    /* a finished span found no room in the ring buffer */
	u64 spans_unknown;  /* an end without a start */
	u64 events_lost;    /* any other record that found no room */
	u64 delays_unknown; /* the kernel took sleep for a wait in a run queue: that wait is not known */
};
_Static_assert(sizeof(struct tc_stats) == 64, "ebpf/layout.py mirrors this");

struct tc_stats stats = {};

static __always_inline void tc_count(u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}
