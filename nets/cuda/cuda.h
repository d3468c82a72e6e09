/* cuda.h: the backend for one NVIDIA GPU, as its files share it. Private to nets/cuda.
 *
 * All work of a step is put into one stream and runs in its order. From the second gradient on it is captured
 * in graphs, one a bucket, for as long as the driver takes part; what differs from step to step stands
 * outside of them or in device memory. A second stream brings g down, a bucket of layers at a time, as soon
 * as an event says that the bucket is final. The host waits twice: for each bucket, and at the end of a call,
 * so that no call leaves work behind.
 *
 * Values lie as NHWC, weights of convolutions as [out][row][column][in]; x and g have the order that net.h
 * says, and are turned on the way. */
#ifndef CNN_CUDA_H
#define CNN_CUDA_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "nets/backend.h"
#include "nets/cuda/launch.h"
#include "nets/layers/layer.h"

/* Of cuDNN, shared by all layers: what wants more is not chosen. */
#define CNN_CUDA_WORKSPACE (UINT64_C(256) << 20)
/* Of cuBLAS, as its manual advises for a Hopper; with one of ours it allocates none in a capture. */
#define CNN_CUDA_BLAS_WORKSPACE (UINT64_C(32) << 20)

struct cnn_cuda_layer {
    const struct cnn_layer *plan;
    const struct cnn_cuda_kind *kind;
    float *in[CNN_MAX_INPUTS], *out, *dout;
    float *din[CNN_MAX_INPUTS]; /* NULL: not wanted */
    float *sum[CNN_MAX_INPUTS]; /* din[k] is a part, to be added here; NULL: it is the gradient itself */
    void *kept, *work, *back_work;
    void *state; /* of the kind; zeroed */
};

struct cnn_cuda {
    const struct cnn_plan *plan;
    uint32_t batch;
    double label_smoothing;
    bool is_training; /* the pass that is being put into the stream */
    bool has_run;     /* a gradient, so that the libraries have made what they make at first */
    bool refuses_capture;
    uint32_t n; /* images of it that count */
    cudaStream_t compute, down;
    cudnnHandle_t dnn;
    cublasHandle_t blas;
    struct cnn_cuda_layer *layers;

    /* Of the device. */
    char *arena;
    float *seen; /* in the arena: the images as the net sees them */
    float *x, *g;
    float *turned;   /* the largest convolution's weight gradient in cuDNN's order */
    double *part;    /* partial sums of channels */
    double *stats;   /* of each batch norm in turn: means, variances */
    void *workspace; /* cuDNN's */
    void *blas_workspace;
    void *images;     /* as they come: bytes, or floats that are to be turned */
    float *value_of;  /* [channels][256] */
    uint16_t *labels; /* [batch] */
    struct cnn_cuda_step *step;
    struct cnn_cuda_row *rows; /* [losses][batch] */
    size_t workspace_bytes;

    /* Of the host, pinned: the other end of a copy. */
    struct {
        float *x, *g, *value_of, *logits;
        void *images;
        uint16_t *labels;
        struct cnn_cuda_step *step;
        struct cnn_cuda_row *rows;
        double *stats;
    } host;

    struct cnn_cuda_bucket {
        size_t first, end;          /* layers [first, end) */
        size_t n_losses;            /* among the layers before `end` */
        cudaEvent_t ready, arrived; /* g is final on the device; on the host */
        /* Its part of a step: its layers going back, and for the first all layers going forward before. NULL:
         * not captured. */
        cudaGraphExec_t graph;
    } * buckets; /* from the last layer to the first */
    size_t n_buckets, n_losses, n_stats;
    double *z; /* [2][classes] of the host */
    struct cnn_cuda_block {
        void *at;
        bool is_pinned;
    } * blocks;
    size_t n_blocks, most_blocks, own_bytes;
};

/* One kind of layer. Calls but needs and create only put work into d->compute. */
struct cnn_cuda_kind {
    size_t state_bytes;
    void (*needs)(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out);
    /* NULL: nothing to make. */
    int (*create)(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err);
    void (*destroy)(struct cnn_cuda_layer *l); /* NULL: nothing but state */
    int (*forward)(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err);
    int (*backward)(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err);
};

extern const struct cnn_cuda_kind cnn_cuda_conv, cnn_cuda_fc, cnn_cuda_activation, cnn_cuda_maxpool,
    cnn_cuda_avgpool, cnn_cuda_dropout, cnn_cuda_lrn, cnn_cuda_batchnorm, cnn_cuda_concat, cnn_cuda_add;

/* 0, or -EIO (-ENOMEM where memory is short) with a sentence: what was being done, in which layer (or NULL).
 */
int cnn_cuda_check(cudaError_t error, const char *what, const struct cnn_cuda_layer *l, struct ps_error *err);
int cnn_cuda_check_dnn(cudnnStatus_t status, const char *what, const struct cnn_cuda_layer *l,
                       struct ps_error *err);
int cnn_cuda_check_blas(cublasStatus_t status, const char *what, const struct cnn_cuda_layer *l,
                        struct ps_error *err);

/* Memory that destroy gives back. *out is written on success; its type is a pointer's. */
int cnn_cuda_alloc(struct cnn_cuda *d, size_t bytes, void *out, struct ps_error *err);
int cnn_cuda_alloc_pinned(struct cnn_cuda *d, size_t bytes, void *out, struct ps_error *err);

/* data.c: what goes up and comes down. The first two put copies into d->compute by way of pinned memory,
 * which is free again when the call's end was waited for. */
int cnn_cuda_send_vector(struct cnn_cuda *d, const float *x, struct ps_error *err);
int cnn_cuda_send_batch(struct cnn_cuda *d, const struct cnn_batch *batch, struct ps_error *err);
int cnn_cuda_send_step(struct cnn_cuda *d, const struct cnn_draw *draw, struct ps_error *err);
/* After a bucket's layers went back: has its part of g brought down behind them. */
int cnn_cuda_fetch_bucket(struct cnn_cuda *d, const struct cnn_cuda_bucket *b, struct ps_error *err);
/* Waits for it, copies it to call->g, and tells of it. */
int cnn_cuda_hand_out_bucket(struct cnn_cuda *d, const struct cnn_cuda_bucket *b,
                             const struct cnn_gradient_call *call, struct ps_error *err);
/* Cuts the layers into buckets. -ENOMEM. */
int cnn_cuda_cut_buckets(struct cnn_cuda *d, struct ps_error *err);

/* The sizes of a layer's window as kernels see them. */
struct cnn_cuda_window cnn_cuda_window_of(const struct cnn_layer *l, uint32_t batch);

static inline size_t cnn_cuda_count(const struct cnn_cuda *d, struct cnn_shape s)
{
    return cnn_shape_count(s) * d->batch;
}

#endif
