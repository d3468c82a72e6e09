/* fma.h: the peak rate of multiply-adds of the cores. */
#ifndef TEST_BENCH_NET_FMA_H
#define TEST_BENCH_NET_FMA_H

#include <stdint.h>

/* GFLOP/s in float32 of `threads` threads together, over about 20 ms; 0 if no thread could be started. */
double bench_fma_gflops(uint32_t threads);

#endif
