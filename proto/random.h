/* random.h: numbers that tell one process, session or run from all others. */
#ifndef PS_RANDOM_H
#define PS_RANDOM_H

#include <stdint.h>

/* 64 random bits, never 0. Does not wait: where the kernel has no random bytes yet, they
 * come from time and process, and can be guessed. */
uint64_t ps_random_u64(void);

#endif
