// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* TCP retransmits and round-trip times by cgroup and peer.
 *
 * A retransmit happens in a softirq or a timer, on top of a task that has nothing to do with it. So each socket
 * remembers its owner: the cgroup of the task that last held its lock in a system call (connect, listen, receive). A
 * connection that is accepted begins with the owner of the listening socket. Sockets that were there before the probe
 * are found once, through the files of all tasks.
 */
#include "tcp.h"

#include <bpf/bpf_tracing.h>

#include "../include/cgroups.h"
#include "../include/stats.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define TCP_CLOSE 7
#define RTT_EVERY_US 100000
#define MAPPED_IPV4 0xffff0000 /* ::ffff:0:0/96, third word, in network byte order on a little-endian machine */

/* The cgroup by its id: a socket may outlive the slot of a cgroup that is gone. */
struct owner {
	u64 cgroup_id;
	u64 sampled_us; /* clock of the socket when its round trip was last counted */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TC_MAX_CGROUPS);
	__type(key, u32);
	__type(value, struct tc_tcp_cgroup);
} cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TC_PEERS);
	__type(key, struct tc_peer);
	__type(value, struct tc_tcp);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} runs SEC(".maps");

/* What a new peer starts from: too big for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tc_tcp);
} blank SEC(".maps");

static __always_inline void count_run(void)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&runs, &zero);

	if (count)
		(*count)++;
}

/* The current task owns the socket when it holds its lock: a softirq takes it only when no task does. */
static __always_inline struct owner *look_at_owner(struct sock *sk)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct owner *owner;

	if (!sk->sk_lock.owned || task->flags & PF_KTHREAD)
		return bpf_sk_storage_get(&owners, sk, NULL, 0);
	owner = bpf_sk_storage_get(&owners, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (owner)
		owner->cgroup_id = tc_cgroup_id(task);
	else
		tc_count(&stats.storage_full);
	return owner;
}

static __always_inline u32 slot_of(const struct sock *sk)
{
	struct owner *owner = bpf_sk_storage_get(&owners, (void *)sk, NULL, 0);

	if (owner)
		return tc_find_slot(owner->cgroup_id);
	if (config.cgroup_hierarchy == TC_UNIFIED && bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return tc_find_slot(BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id));
	return TC_OTHER;
}

static __always_inline void set_address(struct tc_peer *peer, const struct sock_common *common)
{
	if (BPF_CORE_READ(common, skc_family) == AF_INET) {
		peer->address[2] = MAPPED_IPV4;
		peer->address[3] = BPF_CORE_READ(common, skc_daddr);
	} else if (bpf_core_field_exists(common->skc_v6_daddr)) {
		BPF_CORE_READ_INTO(&peer->address, common, skc_v6_daddr.in6_u.u6_addr32);
	}
}

static __always_inline struct tc_tcp *find_peer(struct tc_peer *peer)
{
	struct tc_tcp *found = bpf_map_lookup_elem(&peers, peer), *nothing;
	u32 zero = 0;

	if (found)
		return found;
	nothing = bpf_map_lookup_elem(&blank, &zero);
	if (nothing)
		bpf_map_update_elem(&peers, peer, nothing, BPF_NOEXIST);
	return bpf_map_lookup_elem(&peers, peer);
}

static __always_inline void add(struct tc_tcp *to, u64 segments, u64 rtt_ns)
{
	u32 slot = tc_slot(rtt_ns);

	if (segments)
		__sync_fetch_and_add(&to->retransmits, segments);
	if (rtt_ns && slot < TC_SLOTS) {
		__sync_fetch_and_add(&to->rtt_slots[slot], 1);
		__sync_fetch_and_add(&to->rtt_ns, rtt_ns);
	}
}

static __always_inline void record(u32 cgroup_slot, const struct sock_common *common, u64 segments, u64 rtt_ns)
{
	struct tc_tcp_cgroup *cgroup = bpf_map_lookup_elem(&cgroups, &cgroup_slot);
	struct tc_peer peer = {.cgroup_slot = cgroup_slot};
	struct tc_tcp *found;

	if (!cgroup)
		return;
	add(&cgroup->all, segments, rtt_ns);
	set_address(&peer, common);
	found = find_peer(&peer);
	if (!found)
		tc_count(&stats.pairs_full);
	add(found ? found : &cgroup->other, segments, rtt_ns);
}

static __always_inline u64 rtt_ns(const struct tcp_sock *tp)
{
	return (u64)(tp->srtt_us >> 3) * 1000;
}

SEC("?tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(tcp_received, struct sock *sk)
{
	struct owner *owner = look_at_owner(sk);
	struct tcp_sock *tp;
	u64 now_us;

	count_run();
	if (!owner)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	now_us = tp->tcp_mstamp;
	if (now_us - owner->sampled_us < RTT_EVERY_US || !tp->srtt_us)
		return 0;
	owner->sampled_us = now_us;
	record(tc_find_slot(owner->cgroup_id), &sk->__sk_common, 0, rtt_ns(tp));
	return 0;
}

SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(tcp_state, struct sock *sk, int before, int after)
{
	struct tcp_sock *tp;

	count_run();
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	look_at_owner(sk);
	if (after != TCP_CLOSE)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp && tp->srtt_us)
		record(slot_of(sk), &sk->__sk_common, 0, rtt_ns(tp));
	return 0;
}

SEC("?tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_retransmitted, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_skb_cb *control = (struct tcp_skb_cb *)&skb->cb[0];
	u32 segments = BPF_CORE_READ(control, tcp_gso_segs);

	count_run();
	record(slot_of(sk), &sk->__sk_common, segments ? segments : 1, 0);
	return 0;
}

/* The answer to a connection request: there is no socket yet but the listening one. */
SEC("?tp_btf/tcp_retransmit_synack")
int BPF_PROG(tcp_answered_again, struct sock *sk, struct request_sock *request)
{
	count_run();
	record(slot_of(sk), &request->__req_common, 1, 0);
	return 0;
}

/* Once, at the start: the owners of the sockets that are there already. */
SEC("?iter/task_file")
int tcp_existing(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct owner *owner;
	struct sock *sk;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	owner = bpf_sk_storage_get(&owners, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (owner)
		owner->cgroup_id = tc_cgroup_id(task);
	return 0;
}
