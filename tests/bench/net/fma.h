/* fma.h: how many multiply-adds the cores can do when nothing else holds them up. */
#ifndef TEST_BENCH_NET_FMA_H
#define TEST_BENCH_NET_FMA_H

#include <stdint.h>

/* GFLOP/s in float32 of `threads` threads together, over about 20 ms; 0 when no thread could be started. */
double bench_fma_gflops(uint32_t threads);

#endif
