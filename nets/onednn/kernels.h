/* kernels.h: loops that oneDNN lacks or runs slowly. Private to nets/onednn.
 *
 * Meson compiles kernels.c once per instruction set, and once more for activations in bf16; the copy is
 * chosen when a net is created. A `void *` points to activations or their gradients, in the copy's precision.
 * All sums, means and parameters are float32. */
#ifndef CNN_KERNELS_H
#define CNN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nets/plan.h"

/* A max-pool of one image, or of the first n_channels of its channels. The input is [H][W][C]; value (c,
 * place) of the output is at c * c_step + place * place_step, so that it can be written as [C][H][W] for a
 * fully connected layer. */
struct cnn_pool {
    struct cnn_shape in, out;
    uint32_t n_channels;
    uint32_t kernel[2], stride[2], pad[2]; /* vertical, horizontal */
    size_t c_step, place_step;
    const int32_t *argmax_at; /* [window places]: offset in floats from the window's start in the input to an
                                 argmax */
};

/* A convolution without padding followed by a max-pool. Only the maxima have a gradient, one per output of
 * the pool. So after a 2 x 2 pool the backward pass takes a quarter of the dense work, and the gradient of
 * the convolution's output is never stored. */
struct cnn_pooled {
    struct cnn_shape in;      /* of the convolution, [H][W][C] */
    uint32_t n_out;           /* channels of the convolution and of the pool */
    uint32_t kernel;          /* of the convolution, square */
    uint32_t n_places;        /* of the pool's output */
    uint32_t n_positions;     /* of the convolution's output */
    uint32_t row_vectors;     /* of one row of a patch: kernel * in.c contiguous floats, padded with zeros */
    size_t row_step;          /* floats from one row of the input to the next */
    const int32_t *place_at;  /* [n_places]: position of the window's start; may be in the pool's padding */
    const int32_t *argmax_at; /* [window places]: position of an argmax relative to the
                                 start */
    const int32_t *in_at;     /* [n_positions]: offset of the patch in the input */
    const int32_t *place_in_at, *argmax_in_at; /* like place_at and argmax_at, as offsets in the input */
    size_t c_step, place_step;                 /* of dout, as in struct cnn_pool */
};

/* A maximum's gradient and the channel it belongs to. */
struct cnn_pooled_entry {
    float d;
    uint32_t channel;
};

/* Scratch for the input gradient of one image. */
struct cnn_pooled_work {
    struct cnn_pooled_entry *entries; /* [n_places * n_out], sorted by position */
    uint32_t *first;                  /* [n_positions + 1]: first entry of each position */
    float *din;                       /* one image plus one vector */
};

struct cnn_pooled_kernels {
    /* Adds the images' gradients to channels c0 to c1 of dweight [n_out][kernel][row_vectors vectors] and
     * dbias. Reads a vector past the end of `in`. */
    void (*back_weights)(const struct cnn_pooled *p, uint32_t n_images, const float *in, const float *dout,
                         const uint8_t *argmax, uint32_t c0, uint32_t c1, float *dweight, float *dbias);
    /* din of one image, overwritten, from weight [kernel][n_out][row_vectors vectors]. */
    void (*back_data)(const struct cnn_pooled *p, const float *dout, const uint8_t *argmax,
                      const float *weight, struct cnn_pooled_work *work, float *din);
};

extern const struct cnn_pooled_kernels cnn_pooled_avx512;

/* Normalisation across the channels of one image, [places][channels]. */
struct cnn_lrn {
    uint32_t channels, size, half; /* half: how many of the size are before the channel */
    float k, part, beta;           /* part: alpha / size */
};

struct cnn_norm_kernels {
    /* norm: s of lrn.c, stored for the backward pass. work: 3 (channels + size) floats. */
    void (*lrn)(const struct cnn_lrn *p, size_t places, const void *in, void *out, float *norm, float *work);
    void (*lrn_back)(const struct cnn_lrn *p, size_t places, const void *in, const float *norm,
                     const void *dout, void *din, float *work);
    /* Of each channel of an image, or of some: values are [places][step], and `channels` of each place count.
     *
     * sum[c] = the sum over places of in; square[c] = that of (in - sum[c] / places)^2 */
    void (*moments)(size_t places, size_t step, size_t channels, const void *in, float *sum, float *square);
    /* out = (in - mean) a + b, clamped at 0 with has_relu */
    void (*affine)(size_t places, size_t step, size_t channels, const void *in, const float *mean,
                   const float *a, const float *b, bool has_relu, void *out);
    /* sum[c] = the sum of dout, product[c] = the sum of dout (in - mean). out: output of a fused ReLU, whose
     * backward pass is first applied to dout in place; or NULL */
    void (*back_sums)(size_t places, size_t step, size_t channels, const void *in, const float *mean,
                      void *dout, const void *out, float *sum, float *product);
    /* din = a dout + (in - mean) b + c */
    void (*back_affine)(size_t places, size_t step, size_t channels, const void *in, const float *mean,
                        const void *dout, const float *a, const float *b, const float *c, void *din);
};

/* The elementwise functions other than ReLU; p: leaky ReLU's slope. `out` may be `in`, and dx may be dout. */
typedef void cnn_activation(const void *in, void *out, size_t n, float p);
typedef void cnn_activation_back(const void *out, const void *dout, void *dx, size_t n, float p);
struct cnn_activation_kernels {
    cnn_activation *leaky, *relu6, *sigmoid, *tanh;
    cnn_activation_back *leaky_back, *relu6_back, *sigmoid_back, *tanh_back;
};

struct cnn_kernels {
    const char *isa;
    /* argmax [places][C]: position of the first largest value in its window (ky * width + kx). The window has
     * at most 256 positions. */
    void (*maxpool)(const struct cnn_pool *p, const void *in, void *out, uint8_t *argmax);
    /* din [H][W][C] is overwritten, in the pool's channels. */
    void (*maxpool_back)(const struct cnn_pool *p, const void *dout, const uint8_t *argmax, void *din);
    /* The same for windows with more positions. */
    void (*maxpool_wide)(const struct cnn_pool *p, const void *in, void *out, uint16_t *argmax);
    void (*maxpool_wide_back)(const struct cnn_pool *p, const void *dout, const uint16_t *argmax, void *din);
    void (*relu)(void *x, size_t n);                        /* in place */
    void (*relu_back)(void *dx, const void *out, size_t n); /* in place: 0 where out is not positive */
    const struct cnn_activation_kernels *activation;
    /* to [cols][rows] from [rows][cols] */
    void (*transpose)(const void *from, void *to, size_t rows, size_t cols);
    void (*add_scaled)(float *to, const void *from, float a, size_t n); /* to += a from */
    void (*from_floats)(const float *from, void *to, size_t n);
    void (*to_doubles)(const void *from, double *to, size_t n);
    void (*from_doubles)(const double *from, void *to, bool adds, size_t n); /* to = from, or to += from */
    /* to = a + b, clamped at 0 with has_relu; to may be a */
    void (*add)(void *to, const void *a, const void *b, bool has_relu, size_t n);
    /* to = keep ? scale from : 0; `to` may be `from` */
    void (*dropout)(const void *from, void *to, const uint8_t *keep, float scale, size_t n);
    const struct cnn_norm_kernels *norm;
    const struct cnn_pooled_kernels *pooled; /* NULL: too few registers for a gain */
};

/* The widest set that this machine has and ONEDNN_MAX_CPU_ISA allows, for float32. */
const struct cnn_kernels *cnn_kernels_pick(void);
/* The copy for bf16; NULL: the machine lacks its instructions, or ONEDNN_MAX_CPU_ISA forbids them. */
const struct cnn_kernels *cnn_kernels_bf16(void);

#endif
