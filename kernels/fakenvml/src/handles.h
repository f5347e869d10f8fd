/* SPDX-License-Identifier: Apache-2.0 */
/* Handles are numbers, never dereferenced: a stale or invented one is told apart from a good one. */
#ifndef HANDLES_H
#define HANDLES_H

#include <stdint.h>

enum handle_kind { HANDLE_DEVICE = 0x6e76, HANDLE_GPU_INSTANCE = 0x6e77, HANDLE_COMPUTE_INSTANCE = 0x6e78 };

#define NO_MIG 0xFF

struct handle {
	enum handle_kind kind;
	unsigned int generation;	 /* 16 bits */
	unsigned int gpu, first, second; /* 8 bits each: MIG device, or GPU and compute instance */
};

static inline void *handle_pack(struct handle handle)
{
	return (void *)(uintptr_t)((uint64_t)handle.kind << 48 | (uint64_t)(handle.generation & 0xFFFF) << 32 |
				   handle.gpu << 16 | handle.first << 8 | handle.second);
}

static inline struct handle handle_unpack(const void *packed)
{
	uint64_t bits = (uintptr_t)packed;

	return (struct handle){
		.kind = bits >> 48,
		.generation = bits >> 32 & 0xFFFF,
		.gpu = bits >> 16 & 0xFF,
		.first = bits >> 8 & 0xFF,
		.second = bits & 0xFF,
	};
}

#endif
