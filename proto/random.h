/* random.h: random numbers that identify a process, session or run. */
#ifndef PS_RANDOM_H
#define PS_RANDOM_H

#include <stdint.h>

/* 64 random bits, never 0. Does not wait: if the kernel has no random bytes yet, the bits come from time and
 * process, and can be guessed. */
uint64_t ps_random_u64(void);

#endif
