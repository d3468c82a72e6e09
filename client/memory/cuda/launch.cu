/* launch.cu: the kernel launchers. <<<>>> does not return an error, so each launcher returns
 * cudaPeekAtLastError(). */
#include "client/memory/cuda/launch.h"

#include "client/memory/cuda/kernels.cuh"

/* Kernels use grid-stride loops; more blocks would not run at the same time. */
#define MOST_BLOCKS 4096
#define BLOCK       256

static unsigned blocks_for(uint64_t n)
{
    uint64_t blocks = (n + BLOCK - 1) / BLOCK;
    return blocks > MOST_BLOCKS ? MOST_BLOCKS : (unsigned)blocks;
}

#define RUN(kernel, ...)                                                                                     \
    do {                                                                                                     \
        if (n == 0)                                                                                          \
            return cudaSuccess;                                                                              \
        kernel<<<blocks_for(n), BLOCK, 0, s>>>(n, __VA_ARGS__);                                              \
        return cudaPeekAtLastError();                                                                        \
    } while (0)

cudaError_t psc_cuda_axpy(cudaStream_t s, uint64_t n, float *y, const float *x, float a)
{
    RUN(kv_axpy, y, x, a);
}

cudaError_t psc_cuda_scale(cudaStream_t s, uint64_t n, float *x, float a)
{
    RUN(kv_scale, x, a);
}

cudaError_t psc_cuda_copy(cudaStream_t s, uint64_t n, float *to, const float *from)
{
    RUN(kv_copy, to, from);
}

cudaError_t psc_cuda_subtract(cudaStream_t s, uint64_t n, float *out, const float *x, const float *y)
{
    RUN(kv_subtract, out, x, y);
}

cudaError_t psc_cuda_decay(cudaStream_t s, uint64_t n, float *out, const float *g, const float *x,
                           float lambda)
{
    RUN(kv_decay, out, g, x, lambda);
}

cudaError_t psc_cuda_elastic(cudaStream_t s, uint64_t n, float *x, const float *center, float a)
{
    RUN(kv_elastic, x, center, a);
}

cudaError_t psc_cuda_rebase(cudaStream_t s, uint64_t n, float *x, float *start, const float *center)
{
    RUN(kv_rebase, x, start, center);
}

cudaError_t psc_cuda_heavy_ball(cudaStream_t s, uint64_t n, float *x, float *v, const float *g, float eta,
                                float mu)
{
    RUN(kv_heavy_ball, x, v, g, eta, mu);
}

cudaError_t psc_cuda_nesterov(cudaStream_t s, uint64_t n, float *at, float *x, float *v, const float *g,
                              float eta, float delta)
{
    RUN(kv_nesterov, at, x, v, g, eta, delta);
}

cudaError_t psc_cuda_admm_message(cudaStream_t s, uint64_t n, float *m, const float *x, const float *lambda,
                                  const float *g, float eta, float pull, float scale)
{
    RUN(kv_admm_message, m, x, lambda, g, eta, pull, scale);
}

cudaError_t psc_cuda_admm_land(cudaStream_t s, uint64_t n, float *x, float *lambda, const float *center,
                               const float *g, float eta, float pull, float scale)
{
    RUN(kv_admm_land, x, lambda, center, g, eta, pull, scale);
}

cudaError_t psc_cuda_admm_restart(cudaStream_t s, uint64_t n, float *x, float *lambda, const float *center)
{
    RUN(kv_admm_restart, x, lambda, center);
}

cudaError_t psc_cuda_search(cudaStream_t s, uint64_t n, const float *x, uint64_t at,
                            unsigned long long *first)
{
    RUN(kv_search, x, at, first);
}
