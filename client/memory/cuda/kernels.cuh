/* kernels.cuh: the kernels of client/memory/memory.h on a GPU, with the operations of proto/vec/kernels.c in
 * the same order. nvcc compiles it with -fmad=false (launch.cu), and tests/cuda for the host. */
#include <stdint.h>

#include "client/memory/cuda/passes.h"

#define KERNEL extern "C" __global__ void
/* i over [0, n), distributed over the whole grid. */
#define EACH(i, n)                                                                                           \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (uint64_t)gridDim.x * blockDim.x)

/* ---- passes: one value of each kind; returns to[i] */

__device__ inline float kv_rebase(const struct psc_pass &p, uint64_t i)
{
    float *x = p.to, *start = p.also;
    const float *center = p.in[0];
    x[i] = center[i] + (x[i] - start[i]);
    start[i] = center[i];
    return x[i];
}

__device__ inline float kv_rebase_mixed(const struct psc_pass &p, uint64_t i)
{
    float *x = p.to, *start = p.also;
    const float *center = p.in[0];
    const float moved = x[i] + p.a * center[i];
    x[i] = moved + -p.a * start[i];
    start[i] = center[i];
    return x[i];
}

__device__ inline float kv_heavy_ball(const struct psc_pass &p, uint64_t i)
{
    float *x = p.to, *v = p.also;
    const float speed = p.b * v[i] - p.a * p.in[0][i];
    v[i] = speed;
    return x[i] += speed;
}

/* `at` is not const: it is the caller's array, which the library names as an input. */
__device__ inline float kv_nesterov(const struct psc_pass &p, uint64_t i)
{
    float *x = p.to, *v = p.also, *at = (float *)p.in[1];
    const float speed = p.b * v[i] - p.a * p.in[0][i];
    const float point = x[i] + speed;
    v[i] = speed;
    x[i] = point;
    at[i] = point + p.b * speed;
    return point;
}

__device__ inline float kv_admm_land(const struct psc_pass &p, uint64_t i)
{
    float *x = p.to, *lambda = p.also;
    const float *center = p.in[0], *g = p.in[1];
    const float multiplier = lambda[i] - (x[i] - center[i]);
    lambda[i] = multiplier;
    return x[i] = p.c * (x[i] - p.a * g[i] + p.b * (multiplier + center[i]));
}

/* The difference of a value that is not finite with itself is not 0. */
__device__ inline float kv_admm_restart(const struct psc_pass &p, uint64_t i)
{
    float *x = p.to, *lambda = p.also;
    const float *center = p.in[0];
    const float multiplier = lambda[i] + (center[i] - x[i]);
    lambda[i] = multiplier - multiplier == 0 ? multiplier : 0;
    return x[i] = center[i];
}

/* The difference of a value that is not finite with itself is not 0. */
__device__ inline void kv_watch(const struct psc_passes &t, const struct psc_pass &p, uint64_t i, float v)
{
    if (p.is_watched && !(v - v == 0))
        atomicMin(t.first, (unsigned long long)(p.at + i));
}

#define PASS(named, value)                                                                                   \
    case named:                                                                                              \
        for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x)                                     \
            kv_watch(t, p, i, value);                                                                        \
        break;

/* A block of threads takes a tile of a pass, which is of one kind for all of them. */
KERNEL kv_passes(const __grid_constant__ struct psc_passes t)
{
    for (uint32_t tile = blockIdx.x; tile < t.n_tiles; tile += gridDim.x) {
        uint32_t k = 0;
        while (k + 1 < t.n && t.at[k + 1].first_tile <= tile)
            k++;
        const struct psc_pass &p = t.at[k];
        const uint64_t begin = (uint64_t)(tile - p.first_tile) * PSC_PASS_TILE;
        const uint64_t end = p.n - begin < PSC_PASS_TILE ? p.n : begin + PSC_PASS_TILE;
        const float *x = p.in[0], *y = p.in[1], *z = p.in[2];
        const float a = p.a, b = p.b, c = p.c;
        float *to = p.to;
        switch (p.kind) {
            PASS(PSC_PASS_AXPY, to[i] += a * x[i])
            PASS(PSC_PASS_SCALE, to[i] = a * to[i])
            PASS(PSC_PASS_COPY, to[i] = x[i])
            PASS(PSC_PASS_SUBTRACT, to[i] = x[i] - y[i])
            PASS(PSC_PASS_DECAY, to[i] = x[i] + a * y[i]) /* g, x */
            PASS(PSC_PASS_ELASTIC, to[i] -= a * (to[i] - x[i]))
            PASS(PSC_PASS_APPROACH, to[i] = a * (x[i] - y[i]))
            PASS(PSC_PASS_REBASE, kv_rebase(p, i))
            PASS(PSC_PASS_REBASE_MIXED, kv_rebase_mixed(p, i))
            PASS(PSC_PASS_HEAVY_BALL, kv_heavy_ball(p, i))
            PASS(PSC_PASS_NESTEROV, kv_nesterov(p, i))
            PASS(PSC_PASS_LOOK, to[i] = x[i] + a * y[i])
            PASS(PSC_PASS_ADMM_MESSAGE, to[i] = c * (x[i] - a * z[i] + b * (y[i] - x[i]))) /* x, lambda, g */
            PASS(PSC_PASS_ADMM_LAND, kv_admm_land(p, i))
            PASS(PSC_PASS_ADMM_RESTART, kv_admm_restart(p, i))
        }
    }
}
#undef PASS

/* *first: the least index of a value that is not finite; x[0] has index `at`. */
KERNEL kv_search(uint64_t n, const float *x, uint64_t at, unsigned long long *first)
{
    EACH(i, n)
    {
        if (!(x[i] - x[i] == 0))
            atomicMin(first, (unsigned long long)(at + i));
    }
}
