/* kernels.cuh: the device code. nvcc compiles it for GPUs (launch.cu). tests/cuda compiles it for the host
 * with g++ and a header that defines the few CUDA names used here; no others may be used.
 *
 * Sums have the same order for every grid, so two runs give the same bits. Kernels have C names. */
#include <math.h>
#include <stdint.h>

#include "nets/cuda/kernels.h"

#define KERNEL extern "C" __global__ void
/* i over [0, n), distributed over the whole grid. */
#define EACH(i, n)                                                                                           \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                              \
         i += (uint64_t)gridDim.x * blockDim.x)

/* ---- images and layouts */

/* [images][a][b] -> [images][b][a]; n: the number of all values. */
KERNEL k_turn(uint64_t n, uint32_t a, uint32_t b, const float *in, float *out)
{
    EACH(i, n)
    {
        uint64_t one = i % ((uint64_t)a * b);
        out[i] = in[i - one + one % a * b + one / a];
    }
}

/* Bytes to the net's input. is_hwc: the bytes are [H][W][C], otherwise [C][H][W]. */
KERNEL k_bytes(uint64_t n, uint32_t c, uint32_t places, uint32_t is_hwc, const uint8_t *in,
               const float *value_of, float *out)
{
    EACH(i, n)
    {
        uint32_t channel = (uint32_t)(i % c);
        uint64_t place = i / c % places, image = i / c / places;
        uint64_t at = is_hwc ? i : (image * c + channel) * places + place;
        out[i] = value_of[channel * 256 + in[at]];
    }
}

/* Zero padding: window.in -> window.out, at offset `pad`. */
KERNEL k_pad(uint64_t n, struct cnn_cuda_window w, const float *in, float *out)
{
    EACH(i, n)
    {
        uint32_t c = (uint32_t)(i % w.out.c), x = (uint32_t)(i / w.out.c % w.out.w);
        uint32_t y = (uint32_t)(i / w.out.c / w.out.w % w.out.h);
        uint64_t image = i / w.out.c / w.out.w / w.out.h;
        int64_t iy = (int64_t)y - w.pad[0], ix = (int64_t)x - w.pad[1];
        bool inside = iy >= 0 && ix >= 0 && iy < (int64_t)w.in.h && ix < (int64_t)w.in.w;
        out[i] = inside ? in[((image * w.in.h + (uint64_t)iy) * w.in.w + (uint64_t)ix) * w.in.c + c] : 0;
    }
}

/* The inverse of k_pad: the middle of window.out -> window.in. */
KERNEL k_crop(uint64_t n, struct cnn_cuda_window w, const float *in, float *out)
{
    EACH(i, n)
    {
        uint32_t c = (uint32_t)(i % w.in.c), x = (uint32_t)(i / w.in.c % w.in.w);
        uint32_t y = (uint32_t)(i / w.in.c / w.in.w % w.in.h);
        uint64_t image = i / w.in.c / w.in.w / w.in.h;
        out[i] =
            in[((image * w.out.h + y + (uint32_t)w.pad[0]) * w.out.w + x + (uint32_t)w.pad[1]) * w.out.c + c];
    }
}

/* Copies channels [0, c) of rows in_stride apart to rows out_stride apart; n = rows * c. */
KERNEL k_copy_channels(uint64_t n, uint32_t c, const float *in, uint32_t in_stride, float *out,
                       uint32_t out_stride)
{
    EACH(i, n) out[i / c * out_stride + i % c] = in[i / c * in_stride + i % c];
}

/* ---- elementwise. in and out may be the same. */

KERNEL k_add(uint64_t n, const float *a, const float *b, float *out)
{
    EACH(i, n) out[i] = a[i] + b[i];
}

KERNEL k_bias(uint64_t n, uint32_t c, const float *bias, float *x)
{
    EACH(i, n) x[i] += bias[i % c];
}

/* A NaN is kept. */
KERNEL k_activate(uint64_t n, enum cnn_cuda_activation kind, float slope, const float *in, float *out)
{
    EACH(i, n)
    {
        float x = in[i];
        switch (kind) {
        case CNN_CUDA_RELU:
            x = x < 0 ? 0 : x;
            break;
        case CNN_CUDA_LEAKY_RELU:
            x = x > 0 ? x : slope * x;
            break;
        case CNN_CUDA_RELU6:
            x = x < 0 ? 0 : x > 6 ? 6 : x;
            break;
        case CNN_CUDA_SIGMOID:
            x = 1 / (1 + expf(-x));
            break;
        default:
            x = tanhf(x);
        }
        out[i] = x;
    }
}

KERNEL k_activate_back(uint64_t n, enum cnn_cuda_activation kind, float slope, const float *out,
                       const float *dout, float *din)
{
    EACH(i, n)
    {
        float y = out[i], d = 0;
        switch (kind) {
        case CNN_CUDA_RELU:
            d = y > 0 ? 1 : 0;
            break;
        case CNN_CUDA_LEAKY_RELU:
            d = y > 0 ? 1 : slope;
            break;
        case CNN_CUDA_RELU6:
            d = y > 0 && y < 6 ? 1 : 0;
            break;
        case CNN_CUDA_SIGMOID:
            d = y * (1 - y);
            break;
        default:
            d = 1 - y * y;
        }
        din[i] = d != 0 ? d * dout[i] : 0;
    }
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

/* Word e % 4 of block (e / 4, layer, step) decides element e, as in nets/layers/dropout.c. For values in
 * [C][H][W] order: a thread handles the four elements of a block. */
KERNEL k_dropout(struct cnn_cuda_dropout p, const struct cnn_cuda_step *s, const float *in, float *out)
{
    EACH(q, (p.n + 3) / 4)
    {
        uint32_t v[4] = {(uint32_t)q, p.layer, (uint32_t)s->draw_step, (uint32_t)(s->draw_step >> 32)};
        philox(v, s->dropout_key[0], s->dropout_key[1]);
        for (uint32_t k = 0; k < 4 && q * 4 + k < p.n; k++)
            out[q * 4 + k] = v[k] >= p.dropped_below ? in[q * 4 + k] * p.scale : 0;
    }
}

/* The same for values in another order: a thread draws a whole block for its element. */
KERNEL k_dropout_planes(struct cnn_cuda_dropout p, const struct cnn_cuda_step *s, const float *in, float *out)
{
    EACH(i, p.n)
    {
        uint64_t image = i / p.c / p.places, e = (image * p.c + i % p.c) * p.places + i / p.c % p.places;
        uint32_t v[4] = {(uint32_t)(e / 4), p.layer, (uint32_t)s->draw_step, (uint32_t)(s->draw_step >> 32)};
        philox(v, s->dropout_key[0], s->dropout_key[1]);
        uint32_t low = e & 1 ? v[1] : v[0], high = e & 1 ? v[3] : v[2]; /* v[e % 4], in registers */
        out[i] = (e & 2 ? high : low) >= p.dropped_below ? in[i] * p.scale : 0;
    }
}

/* ---- pools. Forward, a thread computes one output. Backward, it computes one input, from every window that
 * contains it. */

struct clip {
    int32_t from, to, n_counted;
};

__device__ inline struct clip clip_side(const struct cnn_cuda_window *w, int d, int32_t in, int32_t at)
{
    int32_t start = at * w->stride[d] - w->pad[d], end = start + w->kernel[d], padded = in + w->pad_end[d];
    return {start < 0 ? 0 : start, end > in ? in : end, (end < padded ? end : padded) - start};
}

/* The windows [from, to) that contain position `at` of the input. */
__device__ inline struct clip windows_over(const struct cnn_cuda_window *w, int d, int32_t out, int32_t at)
{
    int32_t first = at + w->pad[d] - w->kernel[d], last = (at + w->pad[d]) / w->stride[d];
    return {first < 0 ? 0 : first / w->stride[d] + 1, last + 1 < out ? last + 1 : out, 0};
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

/* best: position of the largest value in its window, the first in row order among equals. A NaN counts as
 * largest. */
KERNEL k_maxpool(uint64_t n, struct cnn_cuda_window w, const float *in, float *out, uint16_t *best)
{
    EACH(i, n)
    {
        struct place o = place_of(&w.out, i);
        struct clip rows = clip_side(&w, 0, (int32_t)w.in.h, o.y),
                    columns = clip_side(&w, 1, (int32_t)w.in.w, o.x);
        int32_t y0 = o.y * w.stride[0] - w.pad[0], x0 = o.x * w.stride[1] - w.pad[1];
        int32_t at = (rows.from - y0) * w.kernel[1] + columns.from - x0;
        float most = in[index_of(&w.in, o.image, rows.from, columns.from, o.c)];
        for (int32_t y = rows.from; y < rows.to; y++)
            for (int32_t x = columns.from; x < columns.to; x++) {
                float v = in[index_of(&w.in, o.image, y, x, o.c)];
                if (v > most || v != v) {
                    most = v;
                    at = (y - y0) * w.kernel[1] + x - x0;
                }
            }
        out[i] = most;
        best[i] = (uint16_t)at;
    }
}

KERNEL k_maxpool_back(uint64_t n, struct cnn_cuda_window w, const float *dout, const uint16_t *best,
                      float *din)
{
    EACH(i, n)
    {
        struct place p = place_of(&w.in, i);
        struct clip rows = windows_over(&w, 0, (int32_t)w.out.h, p.y);
        struct clip columns = windows_over(&w, 1, (int32_t)w.out.w, p.x);
        float sum = 0;
        for (int32_t y = rows.from; y < rows.to; y++)
            for (int32_t x = columns.from; x < columns.to; x++) {
                int32_t ky = p.y + w.pad[0] - y * w.stride[0], kx = p.x + w.pad[1] - x * w.stride[1];
                uint64_t o = index_of(&w.out, p.image, y, x, p.c);
                if (best[o] == ky * w.kernel[1] + kx)
                    sum += dout[o];
            }
        din[i] = sum;
    }
}

__device__ inline float counted(const struct cnn_cuda_window *w, struct clip rows, struct clip columns)
{
    return w->skips_padding ? (float)(rows.to - rows.from) * (float)(columns.to - columns.from)
                            : (float)rows.n_counted * (float)columns.n_counted;
}

KERNEL k_avgpool(uint64_t n, struct cnn_cuda_window w, const float *in, float *out)
{
    EACH(i, n)
    {
        struct place o = place_of(&w.out, i);
        struct clip rows = clip_side(&w, 0, (int32_t)w.in.h, o.y),
                    columns = clip_side(&w, 1, (int32_t)w.in.w, o.x);
        float sum = 0;
        for (int32_t y = rows.from; y < rows.to; y++)
            for (int32_t x = columns.from; x < columns.to; x++)
                sum += in[index_of(&w.in, o.image, y, x, o.c)];
        out[i] = sum / counted(&w, rows, columns);
    }
}

KERNEL k_avgpool_back(uint64_t n, struct cnn_cuda_window w, const float *dout, float *din)
{
    EACH(i, n)
    {
        struct place p = place_of(&w.in, i);
        struct clip rows = windows_over(&w, 0, (int32_t)w.out.h, p.y);
        struct clip columns = windows_over(&w, 1, (int32_t)w.out.w, p.x);
        float sum = 0;
        for (int32_t y = rows.from; y < rows.to; y++)
            for (int32_t x = columns.from; x < columns.to; x++)
                sum +=
                    dout[index_of(&w.out, p.image, y, x, p.c)] /
                    counted(&w, clip_side(&w, 0, (int32_t)w.in.h, y), clip_side(&w, 1, (int32_t)w.in.w, x));
        din[i] = sum;
    }
}

/* ---- LRN: y = x s^-beta; s, the norm over neighbouring channels, is kept. */

KERNEL k_lrn(struct cnn_cuda_lrn p, const float *in, float *norm, float *out)
{
    EACH(i, p.n)
    {
        uint32_t c = (uint32_t)(i % p.c), from = c < p.before ? 0 : c - p.before;
        uint32_t to = p.after < p.c - c ? c + p.after + 1 : p.c;
        const float *x = in + (i - c);
        float sum = 0;
        for (uint32_t j = from; j < to; j++)
            sum += x[j] * x[j];
        norm[i] = p.k + p.alpha * sum;
        out[i] = x[c] * powf(norm[i], -p.beta);
    }
}

/* The equation is in nets/ref/lrn.c. */
KERNEL k_lrn_back(struct cnn_cuda_lrn p, const float *in, const float *norm, const float *dout, float *din)
{
    EACH(i, p.n)
    {
        uint32_t c = (uint32_t)(i % p.c), from = c < p.after ? 0 : c - p.after;
        uint32_t to = p.before < p.c - c ? c + p.before + 1 : p.c;
        uint64_t row = i - c;
        float sum = 0;
        for (uint32_t j = from; j < to; j++)
            sum += dout[row + j] * in[row + j] * powf(norm[row + j], -p.beta - 1);
        din[i] = dout[i] * powf(norm[i], -p.beta) - 2 * p.alpha * p.beta * in[i] * sum;
    }
}

/* ---- sums over a channel: first within slices of the rows, then over the slices in order. In double: these
 * sums are memory-bound on the supported GPUs, and double allows summing x^2 without subtracting the mean. */

enum sums_of { SUMS_OF_VALUES, SUMS_OF_SQUARES, SUMS_OF_PRODUCTS };

/* Block (tile, slice) writes two sums over its channels and rows to part[slice][2][c]: of a, and of a second
 * term. The term is a^2 or, with b, a times (b minus its mean). */
__device__ inline void sum_channels(enum sums_of second, uint64_t rows, uint32_t c, const float *a,
                                    const float *b, const float *mean_of_b, double *part)
{
    const uint32_t per = CNN_CUDA_BLOCK / CNN_CUDA_TILE, lane = threadIdx.x % CNN_CUDA_TILE,
                   row = threadIdx.x / CNN_CUDA_TILE, channel = blockIdx.x * CNN_CUDA_TILE + lane;
    __shared__ double s1[CNN_CUDA_BLOCK], s2[CNN_CUDA_BLOCK];
    const uint64_t each = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * each;
    const uint64_t end = first + each < rows ? first + each : rows;
    double sum = 0, other = 0;

    for (uint64_t r = first + row; channel < c && r < end; r += per) {
        double v = (double)a[r * c + channel];
        sum += v;
        if (second == SUMS_OF_SQUARES)
            other += v * v;
        else if (second == SUMS_OF_PRODUCTS)
            other += v * (double)(b[r * c + channel] - mean_of_b[channel]);
    }
    s1[threadIdx.x] = sum;
    s2[threadIdx.x] = other;
    __syncthreads();
    if (row != 0 || channel >= c)
        return;
    for (uint32_t k = 1; k < per; k++) {
        sum += s1[k * CNN_CUDA_TILE + lane];
        other += s2[k * CNN_CUDA_TILE + lane];
    }
    part[(uint64_t)blockIdx.y * 2 * c + channel] = sum;
    part[((uint64_t)blockIdx.y * 2 + 1) * c + channel] = other;
}

KERNEL k_sums(uint64_t rows, uint32_t c, const float *a, double *part)
{
    sum_channels(SUMS_OF_VALUES, rows, c, a, NULL, NULL, part);
}

KERNEL k_moments(uint64_t rows, uint32_t c, const float *a, double *part)
{
    sum_channels(SUMS_OF_SQUARES, rows, c, a, NULL, NULL, part);
}

KERNEL k_products(uint64_t rows, uint32_t c, const float *a, const float *b, const float *mean_of_b,
                  double *part)
{
    sum_channels(SUMS_OF_PRODUCTS, rows, c, a, b, mean_of_b, part);
}

/* Adds up sum number `which` of a channel over the slices. */
__device__ inline double over_slices(const double *part, uint32_t slices, uint32_t c, uint32_t channel,
                                     uint32_t which)
{
    double sum = 0;
    for (uint32_t s = 0; s < slices; s++)
        sum += part[((uint64_t)s * 2 + which) * c + channel];
    return sum;
}

/* db */
KERNEL k_sums_end(uint32_t c, uint32_t slices, const double *part, float *out)
{
    EACH(i, c) out[i] = (float)over_slices(part, slices, c, (uint32_t)i, 0);
}

/* ---- batch norm. used [2][c]: the mean and 1 / sqrt(variance + epsilon) of the pass. */

/* stats [2][c]: the batch's mean and variance. */
KERNEL k_norm_measured(struct cnn_cuda_norm p, const double *part, double *stats, float *used)
{
    EACH(i, p.c)
    {
        double mean = over_slices(part, p.slices, p.c, (uint32_t)i, 0) / (double)p.rows;
        double variance = over_slices(part, p.slices, p.c, (uint32_t)i, 1) / (double)p.rows - mean * mean;
        variance = variance < 0 ? 0 : variance; /* rounding may give a negative value; a NaN is kept */
        stats[i] = mean;
        stats[p.c + i] = variance;
        used[i] = (float)mean;
        used[p.c + i] = (float)(1 / sqrt(variance + (double)p.epsilon));
    }
}

KERNEL k_norm_running(struct cnn_cuda_norm p, const float *mean, const float *variance, float *used)
{
    EACH(i, p.c)
    {
        used[i] = mean[i];
        used[p.c + i] = (float)(1 / sqrt((double)variance[i] + (double)p.epsilon));
    }
}

KERNEL k_norm(uint64_t n, uint32_t c, const float *used, const float *scale, const float *shift,
              const float *in, float *out)
{
    EACH(i, n)
    {
        uint32_t k = (uint32_t)(i % c);
        out[i] = (in[i] - used[k]) * (scale[k] * used[c + k]) + shift[k];
    }
}

/* The gradients of scale and shift, and in k [3][c] the coefficients of the input's gradient: of dout, of the
 * input minus its mean, and a constant. */
KERNEL k_norm_back_end(struct cnn_cuda_norm p, const double *part, const float *used, const float *scale,
                       float *dscale, float *dshift, float *k)
{
    EACH(i, p.c)
    {
        double sum = over_slices(part, p.slices, p.c, (uint32_t)i, 0), inverse = (double)used[p.c + i];
        double product = inverse * over_slices(part, p.slices, p.c, (uint32_t)i, 1);
        double a = (double)scale[i] * inverse;
        dscale[i] = (float)product;
        dshift[i] = (float)sum;
        k[i] = (float)a;
        k[p.c + i] = (float)(-a * inverse * product / (double)p.rows);
        k[2 * p.c + i] = (float)(-a * sum / (double)p.rows);
    }
}

KERNEL k_norm_back(uint64_t n, uint32_t c, const float *used, const float *k, const float *in,
                   const float *dout, float *din)
{
    EACH(i, n)
    {
        uint32_t j = (uint32_t)(i % c);
        din[i] = k[j] * dout[i] + k[c + j] * (in[i] - used[j]) + k[2 * c + j];
    }
}

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

/* dz NULL: the gradient is not wanted. */
KERNEL k_loss(struct cnn_cuda_loss p, const float *logits, const uint16_t *labels, float *dz,
              struct cnn_cuda_row *rows)
{
    __shared__ double values[CNN_CUDA_BLOCK];
    __shared__ uint32_t places[CNN_CUDA_BLOCK];
    const float *z = logits + (uint64_t)blockIdx.x * p.classes;
    const uint32_t label = labels[blockIdx.x];
    uint32_t mine = threadIdx.x < p.classes ? threadIdx.x : 0;

    for (uint32_t k = mine; k < p.classes; k += blockDim.x)
        if (z[k] > z[mine])
            mine = k;
    const double most = (double)z[block_best(values, places, (double)z[mine], mine)];
    double sum = 0, others = 0, rank = 0, each = p.smoothing / p.classes;
    for (uint32_t k = threadIdx.x; k < p.classes; k += blockDim.x) {
        sum += exp((double)z[k] - most);
        others += (double)z[k] - most;
        rank += k < label ? z[k] >= z[label] : z[k] > z[label];
    }
    sum = block_sum(values, sum);
    others = block_sum(values, others);
    rank = block_sum(values, rank);
    for (uint32_t k = threadIdx.x; dz != NULL && k < p.classes; k += blockDim.x) {
        double target = each + (k == label ? 1 - p.smoothing : 0);
        float d = (float)(p.scale * (exp((double)z[k] - most) / sum - target));
        float *to = &dz[(uint64_t)blockIdx.x * p.classes + k];
        *to = p.adds ? *to + d : d;
    }
    if (threadIdx.x != 0)
        return;
    double own = (double)z[label] - most;
    rows[blockIdx.x].loss = log(sum) - (p.smoothing > 0 ? (1 - p.smoothing) * own + each * others : own);
    rows[blockIdx.x].rank = (uint64_t)rank;
}

/* ---- convolutions that cuDNN does not support: plain loops, one thread per value. Weights
 * [out][row][column][in of the group]. */

KERNEL k_conv(uint64_t n, struct cnn_cuda_window w, const float *in, const float *weight, float *out)
{
    EACH(i, n)
    {
        struct place o = place_of(&w.out, i);
        uint32_t deep = w.in.c / w.groups, c0 = o.c / (w.out.c / w.groups) * deep;
        float sum = 0;
        for (int32_t ky = 0; ky < w.kernel[0]; ky++)
            for (int32_t kx = 0; kx < w.kernel[1]; kx++) {
                int32_t y = o.y * w.stride[0] + ky * w.dilation[0] - w.pad[0];
                int32_t x = o.x * w.stride[1] + kx * w.dilation[1] - w.pad[1];
                if (y < 0 || x < 0 || y >= (int32_t)w.in.h || x >= (int32_t)w.in.w)
                    continue;
                const float *v = in + index_of(&w.in, o.image, y, x, c0);
                const float *k = weight + (((uint64_t)o.c * w.kernel[0] + ky) * w.kernel[1] + kx) * deep;
                for (uint32_t c = 0; c < deep; c++)
                    sum += v[c] * k[c];
            }
        out[i] = sum;
    }
}

KERNEL k_conv_back_data(uint64_t n, struct cnn_cuda_window w, const float *weight, const float *dout,
                        float *din)
{
    EACH(i, n)
    {
        struct place p = place_of(&w.in, i);
        uint32_t deep = w.in.c / w.groups, wide = w.out.c / w.groups, group = p.c / deep;
        float sum = 0;
        for (int32_t ky = 0; ky < w.kernel[0]; ky++)
            for (int32_t kx = 0; kx < w.kernel[1]; kx++) {
                int32_t y = p.y + w.pad[0] - ky * w.dilation[0], x = p.x + w.pad[1] - kx * w.dilation[1];
                if (y < 0 || x < 0 || y % w.stride[0] != 0 || x % w.stride[1] != 0)
                    continue;
                y /= w.stride[0];
                x /= w.stride[1];
                if (y >= (int32_t)w.out.h || x >= (int32_t)w.out.w)
                    continue;
                for (uint32_t o = group * wide; o < (group + 1) * wide; o++)
                    sum += dout[index_of(&w.out, p.image, y, x, o)] *
                           weight[(((uint64_t)o * w.kernel[0] + ky) * w.kernel[1] + kx) * deep + p.c % deep];
            }
        din[i] = sum;
    }
}

KERNEL k_conv_back_weights(uint64_t n, struct cnn_cuda_window w, const float *in, const float *dout,
                           float *dweight)
{
    EACH(i, n)
    {
        uint32_t deep = w.in.c / w.groups, c = (uint32_t)(i % deep);
        int32_t kx = (int32_t)(i / deep % w.kernel[1]), ky = (int32_t)(i / deep / w.kernel[1] % w.kernel[0]);
        uint32_t o = (uint32_t)(i / deep / w.kernel[1] / w.kernel[0]), c0 = o / (w.out.c / w.groups) * deep;
        double sum = 0;
        for (uint32_t image = 0; image < w.in.n; image++)
            for (int32_t oy = 0; oy < (int32_t)w.out.h; oy++)
                for (int32_t ox = 0; ox < (int32_t)w.out.w; ox++) {
                    int32_t y = oy * w.stride[0] + ky * w.dilation[0] - w.pad[0];
                    int32_t x = ox * w.stride[1] + kx * w.dilation[1] - w.pad[1];
                    if (y >= 0 && x >= 0 && y < (int32_t)w.in.h && x < (int32_t)w.in.w)
                        sum += (double)in[index_of(&w.in, image, y, x, c0 + c)] *
                               (double)dout[index_of(&w.out, image, oy, ox, o)];
                }
        dweight[i] = (float)sum;
    }
}
