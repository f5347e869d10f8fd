/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Histogram slots: integer log2 of a time in units of 2^-30 s.
 *
 * One fixed-point multiply turns nanoseconds into that unit, so the slots ARE the buckets of an OTLP exponential
 * histogram of scale 0 in seconds: slot i holds times from 2^(i-30) s up to 2^(i-29) s.
 */
#pragma once

#include "kernel.h"

#define TC_SLOTS 40
#define TC_UNITS_PER_NS_SHIFT 32
#define TC_UNITS_PER_NS 4611686019ULL /* 2^30 / 10^9 * 2^32, rounded up: whole nanoseconds on a bound belong above it */

static __always_inline u32 tc_log2(u64 value)
{
	u32 high = value >> 32, rest = high ? high : (u32)value, shift, result = high ? 32 : 0;

	shift = (rest > 0xffff) << 4;
	rest >>= shift;
	result |= shift;
	shift = (rest > 0xff) << 3;
	rest >>= shift;
	result |= shift;
	shift = (rest > 0xf) << 2;
	rest >>= shift;
	result |= shift;
	shift = (rest > 0x3) << 1;
	rest >>= shift;
	result |= shift;
	return result | (rest >> 1);
}

static __always_inline u32 tc_slot(u64 ns)
{
	u64 slot;

	if (ns >> 39) /* nine minutes: past the last slot */
		return TC_SLOTS - 1;
	if (ns >> 31) /* the product would not fit; drop eight bits first */
		slot = tc_log2(((ns >> 8) * TC_UNITS_PER_NS) >> (TC_UNITS_PER_NS_SHIFT - 8));
	else
		slot = tc_log2((ns * TC_UNITS_PER_NS) >> TC_UNITS_PER_NS_SHIFT);
	/* The verifier of Linux 6.1 loses track of a number put together bit by bit: tell it what the compiler knows. */
	__asm__ volatile("" : "+r"(slot));
	slot &= 63;
	return slot < TC_SLOTS ? slot : TC_SLOTS - 1;
}
