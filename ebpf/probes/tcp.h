/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#pragma once

#include "../include/slots.h"

#define TC_PEERS 1024

/* Whose connections, and the address at their other end; IPv4 is mapped into IPv6 (::ffff:a.b.c.d). */
struct tc_peer {
	u32 cgroup_slot;
	u32 address[4]; /* network byte order */
};
_Static_assert(sizeof(struct tc_peer) == 20, "ebpf/layout.py mirrors this");

/* Changed by atomic additions, by all CPUs: retransmits are rare, and a connection's RTT is looked at ten times a
 * second at most.
 */
struct tc_tcp {
	u64 rtt_slots[TC_SLOTS];
	u64 rtt_ns;
	u64 retransmits; /* segments, as the kernel's RetransSegs counts them */
};
_Static_assert(sizeof(struct tc_tcp) == 336, "ebpf/layout.py mirrors this");

/* All of a cgroup's connections, and the part of it whose peer found no room in the map of peers. */
struct tc_tcp_cgroup {
	struct tc_tcp all;
	struct tc_tcp other;
};
_Static_assert(sizeof(struct tc_tcp_cgroup) == 672, "ebpf/layout.py mirrors this");
