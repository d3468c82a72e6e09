// words.h: the words of CUDA in kernels.cuh, for g++.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector_types.h>

#undef __grid_constant__
#undef __global__
#undef __device__
#undef __shared__
#define __grid_constant__
#define __global__
#define __device__ static
// One block runs at a time: its shared memory is a section of its own, which blocks.cpp fills anew.
#define __shared__ static __attribute__((section("standin_shared")))

#define __log2f log2f

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
void standin_barrier();
// One thread runs at a time.
static inline unsigned long long atomicMin(unsigned long long *p, unsigned long long v)
{
    unsigned long long before = *p;
    *p = v < before ? v : before;
    return before;
}
static inline unsigned atomicAdd(unsigned *p, unsigned v)
{
    unsigned before = *p;
    *p = before + v;
    return before;
}
static inline void __threadfence()
{
}
static inline void __syncthreads()
{
#ifndef STANDIN_NO_BARRIERS // a planted fault
    standin_barrier();
#endif
}
