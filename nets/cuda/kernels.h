/* kernels.h: the kernels' parameters. Plain C, shared by host code, launch.cu and tests. Private to
 * nets/cuda.
 *
 * Values are [image][row][column][channel] (NHWC), in float32 or bf16. */
#ifndef CNN_CUDA_KERNELS_H
#define CNN_CUDA_KERNELS_H

#include <stdint.h>

/* The type of a net's values and their gradients, and of the weights of convolutions and products. */
enum cnn_cuda_type { CNN_CUDA_FLOAT, CNN_CUDA_BF16 };
struct cnn_cuda_bf16 {
    uint16_t bits;
};

/* Parameters that change from step to step. They are in device memory, so that a captured graph reads the
 * current ones. */
struct cnn_cuda_step {
    uint64_t draw_step, first_image;
    uint32_t dropout_key[2];
};

struct cnn_cuda_shape {
    uint32_t n, h, w, c;
};

/* Which part of a stored image is the net's input: struct cnn_cut of nets/net.h. */
struct cnn_cuda_cut {
    int32_t top, left;
    uint32_t mirrored;
};
/* Images as they are stored, and as the net takes them. */
struct cnn_cuda_stored {
    uint32_t h, w, is_hwc;
    uint32_t c, out_h, out_w;
};

/* The window of a convolution or pool from `in` to `out`; [0] vertical, [1] horizontal. */
struct cnn_cuda_window {
    struct cnn_cuda_shape in, out;
    int32_t kernel[2], stride[2], dilation[2], pad[2], pad_end[2];
    uint32_t groups;        /* convolutions */
    uint32_t skips_padding; /* average pools: only values inside the input count */
    uint32_t has_relu;      /* max pools: a ReLU is before it, and din is the gradient of the ReLU's input */
};
/* The position of a window none of whose values has a gradient. */
#define CNN_CUDA_NOWHERE UINT16_MAX

/* A divisor that is the same for all threads: see over() of groups.cuh. */
struct cnn_cuda_divisor {
    uint32_t by, factor, first_shift, then_shift;
};
/* How threads share a pool: per neighbouring channels of a place each. */
struct cnn_cuda_share {
    uint32_t per;
    struct cnn_cuda_divisor groups, h; /* groups: of per channels; h: of the shape that the threads write */
    struct cnn_cuda_divisor stride[2];
};

/* Weights of a layer in x, [n / a / b][a][b], and their copy, [n / a / b][b][a], in which a block of threads
 * has CNN_CUDA_TURNED values. */
struct cnn_cuda_turn {
    uint64_t at, to, n;   /* at: in x or g; to: in the copies */
    uint32_t a, b, first; /* first: of its blocks; set by the launcher */
};
/* Of many layers, in one launch. */
#define CNN_CUDA_MOST_TURNS 96
#define CNN_CUDA_TURNED     2048
struct cnn_cuda_turns {
    uint32_t n;
    struct cnn_cuda_turn of[CNN_CUDA_MOST_TURNS];
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
    uint32_t c;
    float epsilon;
    uint32_t has_relu;   /* one is behind it, and dout is its output's gradient */
    uint32_t is_grouped; /* a thread handles 16 bytes; set by the launcher */
};

/* Running statistics of a batch norm, and how they move. */
struct cnn_cuda_running {
    uint64_t mean_at, variance_at, stats_at; /* in x, and the batch's */
    uint64_t count;                          /* values of a channel */
    double part;
    uint32_t c;
};

enum cnn_cuda_activation {
    CNN_CUDA_RELU,
    CNN_CUDA_LEAKY_RELU,
    CNN_CUDA_RELU6,
    CNN_CUDA_SIGMOID,
    CNN_CUDA_TANH
};

struct cnn_cuda_loss {
    uint32_t classes, adds; /* adds: the gradient is added, not written */
    double smoothing;
    double scale; /* the loss's weight over the number of images */
};

/* The result of a loss for one image. */
struct cnn_cuda_row {
    double loss;
    uint64_t rank;
};

/* Memory for sums over channels: of slices of the rows, and how many blocks of each tile of channels have
 * ended. */
struct cnn_cuda_sums {
    double *part;    /* [slices][2][c] */
    uint32_t *ended; /* [tiles], 0 between kernels */
};

/* Threads per block, in all kernels. */
#define CNN_CUDA_BLOCK 256
/* Threads per row in sums over channels: each reads 16 bytes of it, so a block reads 128 bytes of 32 rows at
 * a time.
 */
#define CNN_CUDA_LANES 8
/* Doubles of shared memory that they need: two for each of a block's values. */
#define CNN_CUDA_SUMS(T) (2 * CNN_CUDA_BLOCK * (16 / sizeof(T)))

#endif
