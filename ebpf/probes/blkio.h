/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#pragma once

#include "../include/slots.h"

#define TC_IN_FLIGHT 16384
#define TC_PLACES 4
#define TC_IO_SERIES 512

enum tc_io_kind { TC_IO_READ = 0, TC_IO_WRITE = 1, TC_IO_OTHER = 2 }; /* flush, discard, commands of the driver */

/* Whose I/O, on which device. */
struct tc_io_key {
	u32 device; /* major << 20 | minor, as the kernel has it */
	u16 cgroup_slot;
	u16 kind; /* enum tc_io_kind */
};
_Static_assert(sizeof(struct tc_io_key) == 8, "ebpf/layout.py mirrors this");

/* Latencies of finished requests. */
struct tc_io {
	u64 queue_slots[TC_SLOTS];
	u64 service_slots[TC_SLOTS];
	u64 queue_ns;
	u64 service_ns;
	u64 inserted; /* how many went through a queue: runs of the insert program */
};
_Static_assert(sizeof(struct tc_io) == 664, "ebpf/layout.py mirrors this");

enum tc_flight_state { TC_FLIGHT_NONE = 0, TC_FLIGHT_QUEUED = 1, TC_FLIGHT_ISSUED = 2, TC_FLIGHT_RETURNED = 3 };

/* What is known of a request. */
struct tc_flight {
	u64 number; /* which request it is */
	u64 queued_ns;
	u64 issued_ns;
	u64 cgroup_id; /* behind key.cgroup_slot: the next request here is often the same cgroup's */
	struct tc_io_key key;
	u32 inserted;
	u32 state; /* enum tc_flight_state */
	u64 reserved[2];
};
_Static_assert(sizeof(struct tc_flight) == 64, "ebpf/layout.py mirrors this");
