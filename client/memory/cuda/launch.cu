/* launch.cu: the kernel launchers. They call cudaLaunchKernel, which returns the launch's own error: after
 * <<<>>> only the thread's last one is known, which may be of another user of CUDA in this process. */
#include "client/memory/cuda/launch.h"

#include "client/memory/cuda/kernels.cuh"

#include "client/memory/cuda/codecs.cuh"

/* Kernels use grid-stride loops; more blocks would not run at the same time. */
#define MOST_BLOCKS 4096
#define BLOCK       256

static_assert(BLOCK == PSC_CODE_THREADS, "the codecs' kernels have room for as many threads");

static unsigned at_most(uint64_t blocks)
{
    return blocks > MOST_BLOCKS ? MOST_BLOCKS : (unsigned)blocks;
}

/* A parameter's type, which the argument does not decide. */
template <class T> struct as {
    typedef T type;
};

template <class... P>
static cudaError_t launch(void (*kernel)(P...), cudaStream_t s, uint64_t blocks, typename as<P>::type... p)
{
    void *arguments[] = {(void *)&p...};
    if (blocks == 0)
        return cudaSuccess;
    return cudaLaunchKernel((const void *)kernel, dim3(at_most(blocks)), dim3(BLOCK), arguments, 0, s);
}

static uint64_t blocks_for(uint64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

cudaError_t psc_cuda_passes(cudaStream_t s, const struct psc_passes *passes)
{
    return launch(kv_passes, s, passes->n_tiles, *passes);
}

cudaError_t psc_cuda_search(cudaStream_t s, uint64_t n, const float *x, uint64_t at,
                            unsigned long long *first)
{
    return launch(kv_search, s, blocks_for(n), n, x, at, first);
}

cudaError_t psc_cuda_encode(cudaStream_t s, const struct psc_code *code)
{
    switch (code->form) {
    case KV_INT8:
        return launch(kv_encode_int8, s, code->n_tiles, *code);
    case KV_INT4:
        return launch(kv_encode_int4, s, code->n_tiles, *code);
    case KV_TOPK:
        return launch(kv_encode_topk, s, code->n, *code);
    default:
        return launch(kv_encode, s, code->n_tiles, *code);
    }
}

cudaError_t psc_cuda_feed_back(cudaStream_t s, const struct psc_code *code)
{
    cudaError_t e = launch(kv_feed_back, s, code->n_tiles, *code);
    return e == cudaSuccess && code->form == KV_TOPK ? launch(kv_feed_back_topk, s, code->n, *code) : e;
}

cudaError_t psc_cuda_take(cudaStream_t s, const struct psc_code *code)
{
    cudaError_t e = launch(kv_take_moves, s, code->n_tiles, *code);
    return e == cudaSuccess && code->form == KV_TOPK ? launch(kv_take_topk, s, code->n, *code) : e;
}

cudaError_t psc_cuda_decode(cudaStream_t s, uint64_t n, float *x, const unsigned char *payload, uint32_t form)
{
    return launch(kv_decode, s, blocks_for(n), n, x, payload, form);
}
