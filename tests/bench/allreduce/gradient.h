/* gradient.h: the vectors that psbench allreduce sums, over the ring and over MPI. */
#ifndef TEST_BENCH_ALLREDUCE_GRADIENT_H
#define TEST_BENCH_ALLREDUCE_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

/* In [-1, 1), over several binades, so that sums of two are rounded; the same in every run. */
static inline float bench_gradient(int rank, size_t i)
{
    uint64_t z = ((uint64_t)rank << 40) + i + 1;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    float v = (float)((double)(z >> 40) * 0x1p-23 - 1.0);
    return v / (float)(1u << (z & 7));
}

#endif
