/* kernels.cuh: the kernels of client/memory/memory.h on a GPU, with the operations of proto/vec/kernels.c in
 * the same order. nvcc compiles it with -fmad=false (launch.cu), and tests/cuda for the host. */
#include <stdint.h>

#define KERNEL extern "C" __global__ void
/* i over [0, n), distributed over the whole grid. */
#define EACH(i, n)                                                                                           \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (uint64_t)gridDim.x * blockDim.x)

KERNEL kv_axpy(uint64_t n, float *y, const float *x, float a)
{
    EACH(i, n)
    {
        y[i] += a * x[i];
    }
}

KERNEL kv_scale(uint64_t n, float *x, float a)
{
    EACH(i, n)
    {
        x[i] = a * x[i];
    }
}

KERNEL kv_copy(uint64_t n, float *to, const float *from)
{
    EACH(i, n)
    {
        to[i] = from[i];
    }
}

KERNEL kv_subtract(uint64_t n, float *out, const float *x, const float *y)
{
    EACH(i, n)
    {
        out[i] = x[i] - y[i];
    }
}

KERNEL kv_decay(uint64_t n, float *out, const float *g, const float *x, float lambda)
{
    EACH(i, n)
    {
        out[i] = g[i] + lambda * x[i];
    }
}

KERNEL kv_elastic(uint64_t n, float *x, const float *center, float a)
{
    EACH(i, n)
    {
        x[i] -= a * (x[i] - center[i]);
    }
}

KERNEL kv_rebase(uint64_t n, float *x, float *start, const float *center)
{
    EACH(i, n)
    {
        x[i] = center[i] + (x[i] - start[i]);
        start[i] = center[i];
    }
}

KERNEL kv_heavy_ball(uint64_t n, float *x, float *v, const float *g, float eta, float mu)
{
    EACH(i, n)
    {
        float speed = mu * v[i] - eta * g[i];
        v[i] = speed;
        x[i] += speed;
    }
}

KERNEL kv_nesterov(uint64_t n, float *at, float *x, float *v, const float *g, float eta, float delta)
{
    EACH(i, n)
    {
        float speed = delta * v[i] - eta * g[i];
        float point = x[i] + speed;
        v[i] = speed;
        x[i] = point;
        at[i] = point + delta * speed;
    }
}

KERNEL kv_admm_message(uint64_t n, float *m, const float *x, const float *lambda, const float *g, float eta,
                       float pull, float scale)
{
    EACH(i, n)
    {
        m[i] = scale * (x[i] - eta * g[i] + pull * (lambda[i] - x[i]));
    }
}

KERNEL kv_admm_land(uint64_t n, float *x, float *lambda, const float *center, const float *g, float eta,
                    float pull, float scale)
{
    EACH(i, n)
    {
        float multiplier = lambda[i] - (x[i] - center[i]);
        lambda[i] = multiplier;
        x[i] = scale * (x[i] - eta * g[i] + pull * (multiplier + center[i]));
    }
}

/* The difference of a value that is not finite with itself is not 0. */
KERNEL kv_admm_restart(uint64_t n, float *x, float *lambda, const float *center)
{
    EACH(i, n)
    {
        float multiplier = lambda[i] + (center[i] - x[i]);
        lambda[i] = multiplier - multiplier == 0 ? multiplier : 0;
        x[i] = center[i];
    }
}

/* *first: the least index of a value that is not finite; x[0] has index `at`. */
KERNEL kv_search(uint64_t n, const float *x, uint64_t at, unsigned long long *first)
{
    EACH(i, n)
    {
        if (!(x[i] - x[i] == 0))
            atomicMin(first, (unsigned long long)(at + i));
    }
}
