/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for libcudart.so, libcuda.so or libnccl.so where there is no GPU: the functions of functions.h, which the test
 * writes, return how often they have been called. Waits last as long as the caller's first argument says.
 *
 * Each begins with `push` (built with frame pointers) but for the two in assembly below.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default"), noinline))

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

__attribute__((unused)) static void spin(uint64_t us)
{
	uint64_t end = now_ns() + us * 1000;

	while (now_ns() < end)
		;
}

/* Asleep on a futex, as the driver is under cudaDeviceScheduleBlockingSync. */
__attribute__((unused)) static void block(uint64_t us)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_condattr_t attributes;
	pthread_cond_t never;
	struct timespec end;
	uint64_t end_ns = now_ns() + us * 1000;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&never, &attributes);
	end.tv_sec = end_ns / 1000000000;
	end.tv_nsec = end_ns % 1000000000;
	pthread_mutex_lock(&lock);
	while (now_ns() < end_ns)
		pthread_cond_timedwait(&never, &lock, &end);
	pthread_mutex_unlock(&lock);
}

#define PLAIN(name)                                                                                                    \
	EXPORTED uint64_t name(uint64_t argument)                                                                      \
	{                                                                                                              \
		static __thread uint64_t calls;                                                                        \
		__asm__ volatile("" : : "r"(argument) : "memory");                                                     \
		return ++calls;                                                                                        \
	}

#define SPINNING(name)                                                                                                 \
	EXPORTED uint64_t name(uint64_t us)                                                                            \
	{                                                                                                              \
		static __thread uint64_t calls;                                                                        \
		spin(us);                                                                                              \
		return ++calls;                                                                                        \
	}

#define BLOCKING(name)                                                                                                 \
	EXPORTED uint64_t name(uint64_t us)                                                                            \
	{                                                                                                              \
		static __thread uint64_t calls;                                                                        \
		block(us);                                                                                             \
		return ++calls;                                                                                        \
	}

/* Calls the layer below, as the runtime calls the driver. */
#define CALLING(name, inner)                                                                                           \
	extern uint64_t inner(uint64_t argument);                                                                      \
	EXPORTED uint64_t name(uint64_t argument)                                                                      \
	{                                                                                                              \
		static __thread uint64_t calls;                                                                        \
		inner(argument);                                                                                       \
		return ++calls;                                                                                        \
	}

/* Calls the layer below and has work left when that is done. */
#define FINISHING(name, inner)                                                                                         \
	extern uint64_t inner(uint64_t argument);                                                                      \
	EXPORTED uint64_t name(uint64_t us)                                                                            \
	{                                                                                                              \
		static __thread uint64_t calls;                                                                        \
		inner(0);                                                                                              \
		spin(us);                                                                                              \
		return ++calls;                                                                                        \
	}

/* sub rsp: the kernel must single-step it. */
#define STEPPED(name)                                                                                                  \
	__asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n"                                           \
		"sub $8, %rsp\nadd $8, %rsp\nmov $1, %eax\nret\n.size " #name ", . - " #name "\n");

/* endbr64, as compilers put it first for indirect branch tracking; the cheap place is behind it. */
#define GUARDED(name)                                                                                                  \
	__asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n"                                           \
		"endbr64\npush %rbp\nmov %rsp, %rbp\nmov $1, %eax\npop %rbp\nret\n"                                    \
		".size " #name ", . - " #name "\n");

#include "functions.h"
