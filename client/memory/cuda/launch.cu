/* launch.cu: the kernel launchers. They call cudaLaunchKernel, which returns the launch's own error: after
 * <<<>>> only the thread's last one is known, which may be of another user of CUDA in this process. */
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

/* A parameter's type, which the argument does not decide. */
template <class T> struct as {
    typedef T type;
};

template <class... P>
static cudaError_t run(void (*kernel)(uint64_t, P...), cudaStream_t s, uint64_t n, typename as<P>::type... p)
{
    void *arguments[] = {&n, (void *)&p...};
    if (n == 0)
        return cudaSuccess;
    return cudaLaunchKernel((const void *)kernel, dim3(blocks_for(n)), dim3(BLOCK), arguments, 0, s);
}

cudaError_t psc_cuda_axpy(cudaStream_t s, uint64_t n, float *y, const float *x, float a)
{
    return run(kv_axpy, s, n, y, x, a);
}

cudaError_t psc_cuda_scale(cudaStream_t s, uint64_t n, float *x, float a)
{
    return run(kv_scale, s, n, x, a);
}

cudaError_t psc_cuda_copy(cudaStream_t s, uint64_t n, float *to, const float *from)
{
    return run(kv_copy, s, n, to, from);
}

cudaError_t psc_cuda_subtract(cudaStream_t s, uint64_t n, float *out, const float *x, const float *y)
{
    return run(kv_subtract, s, n, out, x, y);
}

cudaError_t psc_cuda_decay(cudaStream_t s, uint64_t n, float *out, const float *g, const float *x,
                           float lambda)
{
    return run(kv_decay, s, n, out, g, x, lambda);
}

cudaError_t psc_cuda_elastic(cudaStream_t s, uint64_t n, float *x, const float *center, float a)
{
    return run(kv_elastic, s, n, x, center, a);
}

cudaError_t psc_cuda_rebase(cudaStream_t s, uint64_t n, float *x, float *start, const float *center)
{
    return run(kv_rebase, s, n, x, start, center);
}

cudaError_t psc_cuda_heavy_ball(cudaStream_t s, uint64_t n, float *x, float *v, const float *g, float eta,
                                float mu)
{
    return run(kv_heavy_ball, s, n, x, v, g, eta, mu);
}

cudaError_t psc_cuda_nesterov(cudaStream_t s, uint64_t n, float *at, float *x, float *v, const float *g,
                              float eta, float delta)
{
    return run(kv_nesterov, s, n, at, x, v, g, eta, delta);
}

cudaError_t psc_cuda_admm_message(cudaStream_t s, uint64_t n, float *m, const float *x, const float *lambda,
                                  const float *g, float eta, float pull, float scale)
{
    return run(kv_admm_message, s, n, m, x, lambda, g, eta, pull, scale);
}

cudaError_t psc_cuda_admm_land(cudaStream_t s, uint64_t n, float *x, float *lambda, const float *center,
                               const float *g, float eta, float pull, float scale)
{
    return run(kv_admm_land, s, n, x, lambda, center, g, eta, pull, scale);
}

cudaError_t psc_cuda_admm_restart(cudaStream_t s, uint64_t n, float *x, float *lambda, const float *center)
{
    return run(kv_admm_restart, s, n, x, lambda, center);
}

cudaError_t psc_cuda_search(cudaStream_t s, uint64_t n, const float *x, uint64_t at,
                            unsigned long long *first)
{
    return run(kv_search, s, n, x, at, first);
}
