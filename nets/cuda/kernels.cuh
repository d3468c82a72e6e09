/* kernels.cuh: the device code. nvcc compiles it for GPUs (launch.cu). tests/cuda compiles it for the host
 * with g++ and a header that defines the few CUDA names used here; no others may be used.
 *
 * Sums have the same order for every grid, so two runs give the same bits. Kernels have C names. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "nets/cuda/kernels.h"

#define KERNEL extern "C" __global__ void
/* i over [0, n), distributed over the whole grid. */
#define EACH(i, n)                                                                                           \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (uint64_t)gridDim.x * blockDim.x)

/* ---- values are float or bf16, the upper half of a float */

__device__ inline float number(float v)
{
    return v;
}

__device__ inline float number(struct cnn_cuda_bf16 v)
{
    uint32_t bits = (uint32_t)v.bits << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

__device__ inline void store(float &to, float x)
{
    to = x;
}

/* To nearest, ties to even. A NaN is kept. */
__device__ inline void store(struct cnn_cuda_bf16 &to, float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    to.bits = (uint16_t)(x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

/* Values that are read or written at once. */
template <class T> struct alignas(16) group {
    T v[16 / sizeof(T)];
};

template <class T> __device__ inline bool begins_group(const T *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* N values of T that are read or written at once. */
template <class T, uint32_t N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack {
    T v[N];
};

template <uint32_t N, class T> __device__ inline struct pack<T, N> load(const T *p) {
    return *reinterpret_cast<const struct pack<T, N> *>(p);
}

template <uint32_t N, class T>
__device__ inline void save(T *p, const struct pack<T, N> &values)
{
    *reinterpret_cast<struct pack<T, N> *>(p) = values;
}

/* out[i] = f(x) for i in [0, n), where x[k] is in[k][i]. */
template <uint32_t N, class T, class F>
__device__ inline void each_of(uint64_t n, const T *const (&in)[N], T *out, F f)
{
    constexpr uint32_t width = 16 / sizeof(T);
    bool is_grouped = begins_group(out);
    for (uint32_t k = 0; k < N; k++)
        is_grouped = is_grouped && begins_group(in[k]);
    const uint64_t groups = is_grouped ? n / width : 0, rest = groups * width;

    EACH(i, groups)
    {
        group<T> from[N], to;
        for (uint32_t k = 0; k < N; k++)
            from[k] = ((const group<T> *)in[k])[i];
        for (uint32_t j = 0; j < width; j++) {
            float x[N];
            for (uint32_t k = 0; k < N; k++)
                x[k] = number(from[k].v[j]);
            store(to.v[j], f(x));
        }
        ((group<T> *)out)[i] = to;
    }
    EACH(i, n - rest)
    {
        float x[N];
        for (uint32_t k = 0; k < N; k++)
            x[k] = number(in[k][rest + i]);
        store(out[rest + i], f(x));
    }
}

/* ---- activations */

/* A NaN is kept. */
__device__ inline float activated(enum cnn_cuda_activation kind, float slope, float x)
{
    switch (kind) {
    case CNN_CUDA_LEAKY_RELU:
        return x > 0 ? x : slope * x;
    case CNN_CUDA_RELU6:
        return x < 0 ? 0 : x > 6 ? 6 : x;
    case CNN_CUDA_SIGMOID:
        return 1 / (1 + expf(-x));
    default:
        return tanhf(x);
    }
}

/* Of the output y. */
__device__ inline float derivative(enum cnn_cuda_activation kind, float slope, float y)
{
    switch (kind) {
    case CNN_CUDA_LEAKY_RELU:
        return y > 0 ? 1 : slope;
    case CNN_CUDA_RELU6:
        return y > 0 && y < 6 ? 1 : 0;
    case CNN_CUDA_SIGMOID:
        return y * (1 - y);
    default:
        return 1 - y * y;
    }
}

/* 0 where the derivative is, whatever d is. */
__device__ inline float slope_times(enum cnn_cuda_activation kind, float slope, float y, float d)
{
    float at = derivative(kind, slope, y);
    return at != 0 ? at * d : 0;
}

/* Philox4x32-10, as in nets/philox.h. */
__device__ inline void philox(uint32_t v[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * v[0], p1 = (uint64_t)0xCD9E8D57 * v[2];
        uint32_t v1 = v[1], v3 = v[3];
        v[0] = (uint32_t)(p1 >> 32) ^ v1 ^ k0;
        v[1] = (uint32_t)p1;
        v[2] = (uint32_t)(p0 >> 32) ^ v3 ^ k1;
        v[3] = (uint32_t)p0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
}

/* ---- windows */

struct clip {
    int32_t from, to, n_counted;
};

__device__ inline struct clip clip_side(const struct cnn_cuda_window *w, int d, int32_t in, int32_t at)
{
    int32_t start = at * w->stride[d] - w->pad[d], end = start + w->kernel[d], padded = in + w->pad_end[d];
    return {start < 0 ? 0 : start, end > in ? in : end, (end < padded ? end : padded) - start};
}

struct place {
    uint64_t image;
    int32_t y, x;
    uint32_t c;
};

__device__ inline struct place place_of(const struct cnn_cuda_shape *s, uint64_t i)
{
    uint64_t p = i / s->c;
    return {p / s->w / s->h, (int32_t)(p / s->w % s->h), (int32_t)(p % s->w), (uint32_t)(i % s->c)};
}

__device__ inline uint64_t index_of(const struct cnn_cuda_shape *s, uint64_t image, int32_t y, int32_t x,
                                    uint32_t c)
{
    return ((image * s->h + (uint32_t)y) * s->w + (uint32_t)x) * s->c + c;
}

__device__ inline float counted(const struct cnn_cuda_window *w, struct clip rows, struct clip columns)
{
    return w->skips_padding ? (float)(rows.to - rows.from) * (float)(columns.to - columns.from)
                            : (float)rows.n_counted * (float)columns.n_counted;
}

#include "nets/cuda/norm.cuh"

/* ---- softmax and cross-entropy, as in nets/layers/softmax_loss.c: one block per image. */

/* The index of the largest value among the block's threads, the first of equals; returned to every thread. */
__device__ inline uint32_t block_best(double *values, uint32_t *at, double value, uint32_t index)
{
    values[threadIdx.x] = value;
    at[threadIdx.x] = index;
    __syncthreads();
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            double v = values[threadIdx.x + half];
            uint32_t i = at[threadIdx.x + half];
            if (v > values[threadIdx.x] || (v == values[threadIdx.x] && i < at[threadIdx.x])) {
                values[threadIdx.x] = v;
                at[threadIdx.x] = i;
            }
        }
        __syncthreads();
    }
    uint32_t best = at[0];
    __syncthreads(); /* the next reduction uses the same memory */
    return best;
}

__device__ inline double block_sum(double *values, double value)
{
    values[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            values[threadIdx.x] += values[threadIdx.x + half];
        __syncthreads();
    }
    double sum = values[0];
    __syncthreads();
    return sum;
}

/* values [CNN_CUDA_BLOCK], places [CNN_CUDA_BLOCK]: shared. dz NULL: the gradient is not wanted. */
template <class Logit, class Value>
__device__ inline void loss(struct cnn_cuda_loss p, const Logit *logits, const uint16_t *labels, Value *dz,
                            double *values, uint32_t *places, struct cnn_cuda_row *rows)
{
    const Logit *z = logits + (uint64_t)blockIdx.x * p.classes;
    const uint32_t label = labels[blockIdx.x];
    const float of_label = number(z[label]);
    uint32_t mine = threadIdx.x < p.classes ? threadIdx.x : 0;

    for (uint32_t k = mine; k < p.classes; k += blockDim.x)
        if (number(z[k]) > number(z[mine]))
            mine = k;
    const double most = (double)number(z[block_best(values, places, (double)number(z[mine]), mine)]);
    double sum = 0, others = 0, rank = 0, each = p.smoothing / p.classes;
    for (uint32_t k = threadIdx.x; k < p.classes; k += blockDim.x) {
        sum += exp((double)number(z[k]) - most);
        others += (double)number(z[k]) - most;
        /* NaN ranks before all, as on the host */
        rank += k < label ? !(number(z[k]) < of_label) : !(number(z[k]) <= of_label);
    }
    sum = block_sum(values, sum);
    others = block_sum(values, others);
    rank = block_sum(values, rank);
    for (uint32_t k = threadIdx.x; dz != NULL && k < p.classes; k += blockDim.x) {
        double target = each + (k == label ? 1 - p.smoothing : 0);
        float d = (float)(p.scale * (exp((double)number(z[k]) - most) / sum - target));
        Value *to = &dz[(uint64_t)blockIdx.x * p.classes + k];
        store(*to, p.adds ? number(*to) + d : d);
    }
    if (threadIdx.x != 0)
        return;
    double own = (double)of_label - most;
    rows[blockIdx.x].loss = log(sum) - (p.smoothing > 0 ? (1 - p.smoothing) * own + each * others : own);
    rows[blockIdx.x].rank = (uint64_t)rank;
}

#define LOSS_KERNEL(name, Logit, Value)                                                                      \
    KERNEL name(struct cnn_cuda_loss p, const Logit *logits, const uint16_t *labels, Value *dz,              \
                struct cnn_cuda_row *rows)                                                                   \
    {                                                                                                        \
        __shared__ double values[CNN_CUDA_BLOCK];                                                            \
        __shared__ uint32_t places[CNN_CUDA_BLOCK];                                                          \
        loss(p, logits, labels, dz, values, places, rows);                                                   \
    }
/* To pinned memory of the host: a copy would wait for large ones in the same direction. */
KERNEL k_rows(uint32_t n, const struct cnn_cuda_row *from, struct cnn_cuda_row *to)
{
    EACH(i, n)
    to[i] = from[i];
}

LOSS_KERNEL(k_loss, float, float)
LOSS_KERNEL(k_loss_bf16, struct cnn_cuda_bf16, struct cnn_cuda_bf16)
/* Of logits that stay float32. */
LOSS_KERNEL(k_loss_wide_bf16, float, struct cnn_cuda_bf16)

/* ---- the kernels of values */

#include "nets/cuda/groups.cuh"

#define VALUE               float
#define VALUE_KERNEL(named) KERNEL named
#include "nets/cuda/values.cuh"
#undef VALUE
#undef VALUE_KERNEL
#define VALUE               cnn_cuda_bf16
#define VALUE_KERNEL(named) KERNEL named##_bf16
#include "nets/cuda/values.cuh"
