/* launch.cu: the kernel launchers. <<<>>> does not return an error, so each launcher returns
 * cudaPeekAtLastError(). */
#include "nets/cuda/launch.h"

#include "nets/cuda/kernels.cuh"

/* Kernels use grid-stride loops; more blocks would not run at the same time. */
#define MOST_BLOCKS 4096

static unsigned blocks_for(uint64_t n)
{
    uint64_t blocks = (n + CNN_CUDA_BLOCK - 1) / CNN_CUDA_BLOCK;
    return blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : (unsigned)blocks;
}

static dim3 tiles_for(uint64_t rows, uint32_t c)
{
    return dim3((c + CNN_CUDA_TILE - 1) / CNN_CUDA_TILE, cnn_cuda_slices(rows, c));
}

static uint64_t count(struct cnn_cuda_shape s)
{
    return (uint64_t)s.n * s.h * s.w * s.c;
}

#define LAUNCH(kernel, grid, ...)                                                                            \
    do {                                                                                                     \
        kernel<<<grid, CNN_CUDA_BLOCK, 0, s>>>(__VA_ARGS__);                                                 \
        cudaError_t error = cudaPeekAtLastError();                                                           \
        if (error != cudaSuccess)                                                                            \
            return error;                                                                                    \
    } while (0)
#define RUN(kernel, grid, ...)                                                                               \
    do {                                                                                                     \
        LAUNCH(kernel, grid, __VA_ARGS__);                                                                   \
        return cudaSuccess;                                                                                  \
    } while (0)

cudaError_t cu_turn(cu_stream s, uint64_t n, uint32_t a, uint32_t b, const float *in, float *out)
{
    RUN(k_turn, blocks_for(n), n, a, b, in, out);
}

cudaError_t cu_bytes(cu_stream s, uint64_t n, uint32_t c, uint32_t places, uint32_t is_hwc, const uint8_t *in,
                     const float *value_of, float *out)
{
    RUN(k_bytes, blocks_for(n), n, c, places, is_hwc, in, value_of, out);
}

cudaError_t cu_pad(cu_stream s, struct cnn_cuda_window w, const float *in, float *out)
{
    RUN(k_pad, blocks_for(count(w.out)), count(w.out), w, in, out);
}

cudaError_t cu_crop(cu_stream s, struct cnn_cuda_window w, const float *in, float *out)
{
    RUN(k_crop, blocks_for(count(w.in)), count(w.in), w, in, out);
}

cudaError_t cu_copy_channels(cu_stream s, uint64_t rows, uint32_t c, const float *in, uint32_t in_stride,
                             float *out, uint32_t out_stride)
{
    RUN(k_copy_channels, blocks_for(rows * c), rows * c, c, in, in_stride, out, out_stride);
}

cudaError_t cu_add(cu_stream s, uint64_t n, const float *a, const float *b, float *out)
{
    RUN(k_add, blocks_for(n), n, a, b, out);
}

cudaError_t cu_bias(cu_stream s, uint64_t n, uint32_t c, const float *bias, float *x)
{
    RUN(k_bias, blocks_for(n), n, c, bias, x);
}

cudaError_t cu_bias_back(cu_stream s, uint64_t rows, uint32_t c, const float *dout, double *part,
                         float *dbias)
{
    LAUNCH(k_sums, tiles_for(rows, c), rows, c, dout, part);
    RUN(k_sums_end, blocks_for(c), c, cnn_cuda_slices(rows, c), part, dbias);
}

cudaError_t cu_activate(cu_stream s, uint64_t n, enum cnn_cuda_activation kind, float slope, const float *in,
                        float *out)
{
    RUN(k_activate, blocks_for(n), n, kind, slope, in, out);
}

cudaError_t cu_activate_back(cu_stream s, uint64_t n, enum cnn_cuda_activation kind, float slope,
                             const float *out, const float *dout, float *din)
{
    RUN(k_activate_back, blocks_for(n), n, kind, slope, out, dout, din);
}

cudaError_t cu_dropout(cu_stream s, struct cnn_cuda_dropout p, const struct cnn_cuda_step *step,
                       const float *in, float *out)
{
    if (p.c == 1 || p.places == 1)
        RUN(k_dropout, blocks_for((p.n + 3) / 4), p, step, in, out);
    RUN(k_dropout_planes, blocks_for(p.n), p, step, in, out);
}

cudaError_t cu_maxpool(cu_stream s, struct cnn_cuda_window w, const float *in, float *out, uint16_t *best)
{
    RUN(k_maxpool, blocks_for(count(w.out)), count(w.out), w, in, out, best);
}

cudaError_t cu_maxpool_back(cu_stream s, struct cnn_cuda_window w, const float *dout, const uint16_t *best,
                            float *din)
{
    RUN(k_maxpool_back, blocks_for(count(w.in)), count(w.in), w, dout, best, din);
}

cudaError_t cu_avgpool(cu_stream s, struct cnn_cuda_window w, const float *in, float *out)
{
    RUN(k_avgpool, blocks_for(count(w.out)), count(w.out), w, in, out);
}

cudaError_t cu_avgpool_back(cu_stream s, struct cnn_cuda_window w, const float *dout, float *din)
{
    RUN(k_avgpool_back, blocks_for(count(w.in)), count(w.in), w, dout, din);
}

cudaError_t cu_lrn(cu_stream s, struct cnn_cuda_lrn p, const float *in, float *norm, float *out)
{
    RUN(k_lrn, blocks_for(p.n), p, in, norm, out);
}

cudaError_t cu_lrn_back(cu_stream s, struct cnn_cuda_lrn p, const float *in, const float *norm,
                        const float *dout, float *din)
{
    RUN(k_lrn_back, blocks_for(p.n), p, in, norm, dout, din);
}

cudaError_t cu_norm_measure(cu_stream s, struct cnn_cuda_norm p, const float *in, double *part, double *stats,
                            float *used)
{
    p.slices = cnn_cuda_slices(p.rows, p.c);
    LAUNCH(k_moments, tiles_for(p.rows, p.c), p.rows, p.c, in, part);
    RUN(k_norm_measured, blocks_for(p.c), p, part, stats, used);
}

cudaError_t cu_norm_running(cu_stream s, struct cnn_cuda_norm p, const float *mean, const float *variance,
                            float *used)
{
    RUN(k_norm_running, blocks_for(p.c), p, mean, variance, used);
}

cudaError_t cu_norm(cu_stream s, struct cnn_cuda_norm p, const float *used, const float *scale,
                    const float *shift, const float *in, float *out)
{
    RUN(k_norm, blocks_for(p.rows * p.c), p.rows * p.c, p.c, used, scale, shift, in, out);
}

cudaError_t cu_norm_back(cu_stream s, struct cnn_cuda_norm p, const float *used, const float *scale,
                         const float *in, const float *dout, double *part, float *coefficients, float *dscale,
                         float *dshift, float *din)
{
    p.slices = cnn_cuda_slices(p.rows, p.c);
    LAUNCH(k_products, tiles_for(p.rows, p.c), p.rows, p.c, dout, in, used, part);
    LAUNCH(k_norm_back_end, blocks_for(p.c), p, part, used, scale, dscale, dshift, coefficients);
    if (din == NULL)
        return cudaSuccess;
    RUN(k_norm_back, blocks_for(p.rows * p.c), p.rows * p.c, p.c, used, coefficients, in, dout, din);
}

cudaError_t cu_loss(cu_stream s, struct cnn_cuda_loss p, uint32_t images, const float *logits,
                    const uint16_t *labels, float *dz, struct cnn_cuda_row *rows)
{
    RUN(k_loss, images, p, logits, labels, dz, rows);
}

cudaError_t cu_conv(cu_stream s, struct cnn_cuda_window w, const float *in, const float *weight, float *out)
{
    RUN(k_conv, blocks_for(count(w.out)), count(w.out), w, in, weight, out);
}

cudaError_t cu_conv_back_data(cu_stream s, struct cnn_cuda_window w, const float *weight, const float *dout,
                              float *din)
{
    RUN(k_conv_back_data, blocks_for(count(w.in)), count(w.in), w, weight, dout, din);
}

static uint64_t weights_of(const struct cnn_cuda_window *w)
{
    return (uint64_t)w->out.c * w->kernel[0] * w->kernel[1] * (w->in.c / w->groups);
}

cudaError_t cu_conv_back_weights(cu_stream s, struct cnn_cuda_window w, const float *in, const float *dout,
                                 float *dweight)
{
    RUN(k_conv_back_weights, blocks_for(weights_of(&w)), weights_of(&w), w, in, dout, dweight);
}
