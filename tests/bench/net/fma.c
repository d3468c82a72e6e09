/* fma.c: twelve independent chains hide the latency of the multiply-add on all known cores. */
#include "proto/clock.h"
#include "tests/bench/net/fma.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define CHAINS 12

struct isa {
    int lanes;
    void (*run)(uint64_t n, float *out); /* n rounds of CHAINS multiply-adds; out prevents their
                                            elimination */
};

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx512f"))) static void run_avx512(uint64_t n, float *out)
{
    __m512 a[CHAINS], m = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.001f);
    for (int k = 0; k < CHAINS; k++)
        a[k] = _mm512_set1_ps((float)k);
    for (uint64_t i = 0; i < n; i++)
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++)
            a[k] = _mm512_fmadd_ps(a[k], m, c);
    for (int k = 0; k < CHAINS; k++)
        *out += _mm512_reduce_add_ps(a[k]);
}

__attribute__((target("avx2,fma"))) static void run_avx2(uint64_t n, float *out)
{
    __m256 a[CHAINS], m = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.001f);
    for (int k = 0; k < CHAINS; k++)
        a[k] = _mm256_set1_ps((float)k);
    for (uint64_t i = 0; i < n; i++)
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++)
            a[k] = _mm256_fmadd_ps(a[k], m, c);
    for (int k = 0; k < CHAINS; k++)
        *out += _mm256_cvtss_f32(a[k]);
}
#endif

static void run_scalar(uint64_t n, float *out)
{
    float a[CHAINS];
    for (int k = 0; k < CHAINS; k++)
        a[k] = (float)k;
    for (uint64_t i = 0; i < n; i++)
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++)
            a[k] = a[k] * 0.999f + 0.001f;
    for (int k = 0; k < CHAINS; k++)
        *out += a[k];
}

static struct isa pick(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return (struct isa){16, run_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct isa){8, run_avx2};
#endif
    return (struct isa){1, run_scalar};
}

struct job {
    struct isa isa;
    uint64_t rounds;
    float sink;
};

static void *work(void *arg)
{
    struct job *job = arg;
    job->isa.run(job->rounds, &job->sink);
    return NULL;
}

double bench_fma_gflops(uint32_t threads)
{
    struct job *jobs = calloc(threads, sizeof *jobs);
    pthread_t *ids = calloc(threads, sizeof *ids);
    uint32_t n = 0;
    double start = ps_now_s(), flops = 0;

    for (; jobs != NULL && ids != NULL && n < threads; n++) {
        jobs[n] = (struct job){.isa = pick(), .rounds = 8000000};
        if (pthread_create(&ids[n], NULL, work, &jobs[n]) != 0)
            break;
        flops += 2.0 * CHAINS * jobs[n].isa.lanes * (double)jobs[n].rounds;
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(ids[i], NULL);
    double seconds = ps_now_s() - start;
    free(jobs);
    free(ids);
    return flops / seconds * 1e-9;
}
