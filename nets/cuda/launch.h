/* launch.h: C functions that launch the kernels of kernels.cuh. Each enqueues its work in the stream and
 * returns at once. Pointers are device pointers; t is the type of those that are void. Sums over channels
 * need memory, see cnn_cuda_slices and cnn_cuda_tiles. Private to nets/cuda. */
#ifndef CNN_CUDA_LAUNCH_H
#define CNN_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "nets/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Channels of a block in sums over channels. */
static inline uint32_t cnn_cuda_tile(enum cnn_cuda_type t)
{
    return CNN_CUDA_LANES * (16 / (t == CNN_CUDA_BF16 ? sizeof(struct cnn_cuda_bf16) : sizeof(float)));
}

static inline uint32_t cnn_cuda_tiles(enum cnn_cuda_type t, uint32_t c)
{
    return (c + cnn_cuda_tile(t) - 1) / cnn_cuda_tile(t);
}

/* The number of slices for `rows` rows of c channels; each needs 2 c doubles. */
static inline uint32_t cnn_cuda_slices(enum cnn_cuda_type t, uint64_t rows, uint32_t c)
{
    const uint64_t blocks = 264; /* two for each of an H100's 132 multiprocessors, which it runs at a time */
    uint64_t tiles = cnn_cuda_tiles(t, c), room = tiles < blocks ? blocks / tiles : 1,
             wanted = (rows + 63) / 64;
    return (uint32_t)(wanted < room ? wanted : room);
}

typedef cudaStream_t cu_stream;
cudaError_t cu_turn(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t a, uint32_t b, const void *in,
                    void *out);
/* The same from floats. */
cudaError_t cu_turn_in(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t a, uint32_t b, const float *in,
                       void *out);
/* Copies weights from x, and their gradients to g. */
cudaError_t cu_weights_in(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_turns *turns, const float *x,
                          void *copies);
cudaError_t cu_weights_out(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_turns *turns,
                           const void *copies, float *g);
cudaError_t cu_bytes(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t c, uint32_t places,
                     uint32_t is_hwc, const uint8_t *in, const float *value_of, void *out);
cudaError_t cu_cut_bytes(cu_stream s, enum cnn_cuda_type t, uint64_t n, struct cnn_cuda_stored p,
                         const uint8_t *in, const struct cnn_cuda_cut *cuts, const float *value_of,
                         void *out);
cudaError_t cu_copy_channels(cu_stream s, enum cnn_cuda_type t, uint64_t rows, uint32_t c, const void *in,
                             uint32_t in_stride, void *out, uint32_t out_stride);
/* has_relu: of the sum. */
cudaError_t cu_add(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t has_relu, const void *a,
                   const void *b, void *out);
cudaError_t cu_bias(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t c, const float *bias, void *x);
cudaError_t cu_bias_back(cu_stream s, enum cnn_cuda_type t, uint64_t rows, uint32_t c, const void *dout,
                         struct cnn_cuda_sums sums, float *dbias);
/* The gradient of a bias behind which there is a ReLU, whose gradient din may overwrite dout; or a ReLU and a
 * max pool, of whose output the rows are. */
cudaError_t cu_relu_bias_back(cu_stream s, enum cnn_cuda_type t, uint64_t rows, uint32_t c, const void *relu,
                              const void *dout, struct cnn_cuda_sums sums, void *din, float *dbias);
cudaError_t cu_pool_bias_back(cu_stream s, enum cnn_cuda_type t, uint64_t rows, uint32_t c,
                              const uint16_t *best, const void *dout, struct cnn_cuda_sums sums,
                              float *dbias);
cudaError_t cu_activate(cu_stream s, enum cnn_cuda_type t, uint64_t n, enum cnn_cuda_activation kind,
                        float slope, const void *in, void *out);
/* part: added to dout; NULL: none. */
cudaError_t cu_activate_back(cu_stream s, enum cnn_cuda_type t, uint64_t n, enum cnn_cuda_activation kind,
                             float slope, const void *out, const void *dout, const void *part, void *din);
cudaError_t cu_dropout(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_dropout p,
                       const struct cnn_cuda_step *step, const void *in, void *out);
cudaError_t cu_maxpool(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *in, void *out,
                       uint16_t *best);
cudaError_t cu_maxpool_back(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *dout,
                            const uint16_t *best, void *din);
cudaError_t cu_avgpool(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *in,
                       void *out);
cudaError_t cu_avgpool_back(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *dout,
                            void *din);
cudaError_t cu_lrn(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_lrn p, const void *in, float *norm,
                   void *out);
cudaError_t cu_lrn_back(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_lrn p, const void *in,
                        const float *norm, const void *dout, void *din);
/* Normalises with the batch's statistics and writes them to stats; the next function normalises with
 * `used`. */
cudaError_t cu_norm_measure(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_norm p, const float *scale,
                            const float *shift, const void *in, struct cnn_cuda_sums sums, double *stats,
                            float *used);
cudaError_t cu_norm_running(cu_stream s, struct cnn_cuda_norm p, const float *scale, const float *shift,
                            const float *mean, const float *variance, float *used);
/* added: to what is normalised, before the ReLU; NULL: nothing. */
cudaError_t cu_norm(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_norm p, const float *used,
                    const void *in, const void *added, void *out);
/* coefficients: scratch of 3 c floats. din NULL: not wanted. */
cudaError_t cu_norm_back(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_norm p, const float *used,
                         const float *scale, const void *in, const void *dout, struct cnn_cuda_sums sums,
                         float *coefficients, float *dscale, float *dshift, void *din);
/* Moves the running statistics of x. layers: of running [layers]. */
cudaError_t cu_norm_move(cu_stream s, uint32_t layers, const struct cnn_cuda_running *running,
                         const double *stats, float *x);
/* logit: the type of the logits, float32 or t. */
cudaError_t cu_loss(cu_stream s, enum cnn_cuda_type logit, enum cnn_cuda_type t, struct cnn_cuda_loss p,
                    uint32_t images, const void *logits, const uint16_t *labels, void *dz,
                    struct cnn_cuda_row *rows);
/* to [n]: pinned memory of the host, or the device's. */
cudaError_t cu_rows(cu_stream s, uint32_t n, const struct cnn_cuda_row *from, struct cnn_cuda_row *to);
cudaError_t cu_conv(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *in,
                    const void *weight, void *out);
cudaError_t cu_conv_back_data(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *weight,
                              const void *dout, void *din);
cudaError_t cu_conv_back_weights(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *in,
                                 const void *dout, void *dweight);

#ifdef __cplusplus
}
#endif
#endif
