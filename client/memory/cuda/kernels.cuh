/* kernels.cuh: the kernels of client/memory/memory.h on a GPU, with the operations of proto/vec/kernels.c in
 * the same order. nvcc compiles it with -fmad=false (launch.cu), and tests/cuda for the host. */
#include <stdint.h>

#include "client/memory/cuda/passes.h"

#define KERNEL extern "C" __global__ void
/* i over [0, n), distributed over the whole grid. */
#define EACH(i, n)                                                                                           \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (uint64_t)gridDim.x * blockDim.x)

/* ---- passes */

/* A value of each vector of a pass. */
struct kv_values {
    float of[5]; /* to, also, in[0..2] */
};

/* Which vectors a pass reads and writes: bits 1 << index of `of`. */
enum kv_vectors { KV_TO = 1, KV_ALSO = 2, KV_X = 4, KV_Y = 8, KV_Z = 16 };

struct alignas(16) kv_four {
    float v[4];
};

template <unsigned VECTORS>
__device__ inline void kv_read(const struct psc_pass &p, uint64_t i, kv_values v[4])
{
    const float *const from[] = {p.to, p.also, p.in[0], p.in[1], p.in[2]};
    for (uint32_t k = 0; k < 5; k++)
        if (VECTORS & 1u << k) {
            const kv_four four = *(const kv_four *)(from[k] + i);
            for (uint32_t j = 0; j < 4; j++)
                v[j].of[k] = four.v[j];
        }
}

template <unsigned VECTORS>
__device__ inline void kv_write(const struct psc_pass &p, uint64_t i, const kv_values v[4])
{
    float *const to[] = {p.to, p.also, (float *)p.in[0], (float *)p.in[1], (float *)p.in[2]};
    for (uint32_t k = 0; k < 5; k++)
        if (VECTORS & 1u << k) {
            kv_four four;
            for (uint32_t j = 0; j < 4; j++)
                four.v[j] = v[j].of[k];
            *(kv_four *)(to[k] + i) = four;
        }
}

/* The first index from `begin` on where four values of each vector can be read at once; `end`: there is none.
 */
template <unsigned VECTORS>
__device__ inline uint64_t kv_first_four(const struct psc_pass &p, uint64_t begin, uint64_t end)
{
    const float *const from[] = {p.to, p.also, p.in[0], p.in[1], p.in[2]};
    const uint64_t head = (4 - (uintptr_t)(p.to + begin) / sizeof(float) % 4) % 4;
    for (uint32_t k = 0; k < 5; k++)
        if ((VECTORS & 1u << k) && (uintptr_t)(from[k] + begin + head) % sizeof(kv_four) != 0)
            return end;
    return begin + head < end ? begin + head : end;
}

/* The difference of a value that is not finite with itself is not 0. */
__device__ inline void kv_watch(const struct psc_passes &t, const struct psc_pass &p, uint64_t i, float v)
{
    if (p.is_watched && !(v - v == 0))
        atomicMin(t.first, (unsigned long long)(p.at + i));
}

template <unsigned READS, unsigned WRITES, class F>
__device__ inline void kv_one(const struct psc_passes &t, const struct psc_pass &p, uint64_t i, F f)
{
    float *const at[] = {p.to, p.also, (float *)p.in[0], (float *)p.in[1], (float *)p.in[2]};
    kv_values v = {};
    for (uint32_t k = 0; k < 5; k++)
        if (READS & 1u << k)
            v.of[k] = at[k][i];
    f(v);
    for (uint32_t k = 0; k < 5; k++)
        if (WRITES & 1u << k)
            at[k][i] = v.of[k];
    kv_watch(t, p, i, v.of[0]);
}

/* Values [begin, end) of a pass by a block of threads: four at a time from the first that can be read so. */
template <unsigned READS, unsigned WRITES, class F>
__device__ inline void kv_pass(const struct psc_passes &t, const struct psc_pass &p, uint64_t begin,
                               uint64_t end, F f)
{
    const uint64_t first = kv_first_four<READS | WRITES>(p, begin, end), last = first + (end - first) / 4 * 4;

    for (uint64_t i = begin + threadIdx.x; i < first; i += blockDim.x)
        kv_one<READS, WRITES>(t, p, i, f);
    for (uint64_t i = first + 4 * threadIdx.x; i < last; i += 4 * blockDim.x) {
        kv_values v[4] = {};
        kv_read<READS>(p, i, v);
        for (uint32_t j = 0; j < 4; j++)
            f(v[j]);
        kv_write<WRITES>(p, i, v);
        for (uint32_t j = 0; j < 4; j++)
            kv_watch(t, p, i + j, v[j].of[0]);
    }
    for (uint64_t i = last + threadIdx.x; i < end; i += blockDim.x)
        kv_one<READS, WRITES>(t, p, i, f);
}

/* A kind of pass, whose statements compute with to, also, x, y and z. */
#define PASS(named, reads, writes, ...)                                                                      \
    case named:                                                                                              \
        kv_pass<reads, writes>(t, p, begin, end, [a, b, c](kv_values &v) {                                   \
            float &to = v.of[0], &also = v.of[1], &x = v.of[2], &y = v.of[3], &z = v.of[4];                  \
            (void)a, (void)b, (void)c, (void)also, (void)x, (void)y, (void)z;                                \
            __VA_ARGS__;                                                                                     \
        });                                                                                                  \
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
        const float a = p.a, b = p.b, c = p.c;
        switch (p.kind) {
            PASS(PSC_PASS_AXPY, KV_TO | KV_X, KV_TO, to += a * x)
            PASS(PSC_PASS_SCALE, KV_TO, KV_TO, to = a * to)
            PASS(PSC_PASS_COPY, KV_X, KV_TO, to = x)
            PASS(PSC_PASS_SUBTRACT, KV_X | KV_Y, KV_TO, to = x - y)
            PASS(PSC_PASS_DECAY, KV_X | KV_Y, KV_TO, to = x + a * y) /* g, x */
            PASS(PSC_PASS_ELASTIC, KV_TO | KV_X, KV_TO, to -= a * (to - x))
            PASS(PSC_PASS_APPROACH, KV_X | KV_Y, KV_TO, to = a * (x - y))
            /* also: start; x: the center */
            PASS(PSC_PASS_REBASE, KV_TO | KV_ALSO | KV_X, KV_TO | KV_ALSO, to = x + (to - also); also = x)
            PASS(PSC_PASS_REBASE_MIXED, KV_TO | KV_ALSO | KV_X, KV_TO | KV_ALSO, to = to + a * x + -a * also;
                 also = x)
            /* also: the velocity; x: g */
            PASS(PSC_PASS_HEAVY_BALL, KV_TO | KV_ALSO | KV_X, KV_TO | KV_ALSO, also = b * also - a * x;
                 to += also)
            /* y: where the next gradient is taken, the caller's array, which the library names as an input */
            PASS(PSC_PASS_NESTEROV, KV_TO | KV_ALSO | KV_X, KV_TO | KV_ALSO | KV_Y, also = b * also - a * x;
                 to += also; y = to + b * also)
            PASS(PSC_PASS_LOOK, KV_X | KV_Y, KV_TO, to = x + a * y)
            PASS(PSC_PASS_ADMM_MESSAGE, KV_X | KV_Y | KV_Z, KV_TO,
                 to = c * (x - a * z + b * (y - x))) /* x, lambda, g */
            /* also: lambda; x, y: the center and g */
            PASS(PSC_PASS_ADMM_LAND, KV_TO | KV_ALSO | KV_X | KV_Y, KV_TO | KV_ALSO, also = also - (to - x);
                 to = c * (to - a * y + b * (also + x)))
            PASS(PSC_PASS_ADMM_RESTART, KV_TO | KV_ALSO | KV_X, KV_TO | KV_ALSO, also = also + (x - to);
                 also = also - also == 0 ? also : 0; to = x)
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
