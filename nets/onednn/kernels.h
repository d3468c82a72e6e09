/* kernels.h: the loops oneDNN is slow at or does not have. Private to nets/onednn.
 *
 * kernels.c is compiled once per instruction set by Meson; which set to use is decided when a net is made. */
#ifndef CNN_KERNELS_H
#define CNN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nets/plan.h"

/* A max-pool of one image. The input is [H][W][C]; value (c, place) of the output lies at
 * c * c_step + place * place_step, so that it can be written as [C][H][W] for a fully connected layer. */
struct cnn_pool {
    struct cnn_shape in, out;
    uint32_t kernel, stride, pad;
    size_t c_step, place_step;
};

struct cnn_kernels {
    const char *isa;
    bool (*is_usable)(void);
    /* argmax [place][C]: where in its window (ky * kernel + kx) the first largest value lies. */
    void (*maxpool)(const struct cnn_pool *p, const float *in, float *out, uint8_t *argmax);
    /* din [H][W][C] is overwritten. */
    void (*maxpool_back)(const struct cnn_pool *p, const float *dout, const uint8_t *argmax, float *din);
    void (*relu)(float *x, size_t n);                         /* in place */
    void (*relu_back)(float *dx, const float *out, size_t n); /* in place: 0 where out is not positive */
    /* to [cols][rows] from [rows][cols] */
    void (*transpose)(const float *from, float *to, size_t rows, size_t cols);
};

/* The widest set this machine has. */
const struct cnn_kernels *cnn_kernels_pick(void);

#endif
