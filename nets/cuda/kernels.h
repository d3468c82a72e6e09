/* kernels.h: what the host tells the kernels. Plain C: host code, launch.cu and tests share it. Private to
 * nets/cuda.
 *
 * Values lie as [image][row][column][channel] (NHWC). */
#ifndef CNN_CUDA_KERNELS_H
#define CNN_CUDA_KERNELS_H

#include <stdint.h>

/* What changes from step to step. It lies in device memory, so that a captured graph reads it anew. */
struct cnn_cuda_step {
    uint64_t draw_step;
    uint32_t dropout_key[2];
};

struct cnn_cuda_shape {
    uint32_t n, h, w, c;
};

/* A window that walks over `in` to make `out`; [0] down, [1] across. */
struct cnn_cuda_window {
    struct cnn_cuda_shape in, out;
    int32_t kernel[2], stride[2], dilation[2], pad[2], pad_end[2];
    uint32_t groups;        /* convolutions */
    uint32_t skips_padding; /* mean pools: only values in the input count */
};

struct cnn_cuda_lrn {
    uint64_t n; /* values */
    uint32_t c, before, after;
    float alpha, beta, k; /* alpha: divided by the size */
};

struct cnn_cuda_dropout {
    uint64_t n;         /* values of the batch */
    uint32_t c, places; /* an element is counted as [image][channel][place] */
    uint32_t layer;
    uint64_t dropped_below;
    float scale;
};

struct cnn_cuda_norm {
    uint64_t rows; /* batch times places */
    uint32_t c, slices;
    float epsilon;
};

enum cnn_cuda_activation {
    CNN_CUDA_RELU,
    CNN_CUDA_LEAKY_RELU,
    CNN_CUDA_RELU6,
    CNN_CUDA_SIGMOID,
    CNN_CUDA_TANH
};

struct cnn_cuda_loss {
    uint32_t classes, adds; /* adds: to the gradient that is there */
    double smoothing;
    double scale; /* the loss's weight over the number of images */
};

/* What a loss says of one image. */
struct cnn_cuda_row {
    double loss;
    uint64_t rank;
};

/* Threads of a block, everywhere. */
#define CNN_CUDA_BLOCK 256
/* A block that sums channels: so many channels, and CNN_CUDA_BLOCK / CNN_CUDA_TILE rows at a time. */
#define CNN_CUDA_TILE 32

#endif
