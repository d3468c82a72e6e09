/* cuda.h: the internal interface of the backend for one NVIDIA GPU. Private to nets/cuda.
 *
 * All work of a step is enqueued in one stream and runs in order. From the second gradient on it is captured
 * in CUDA graphs, one per bucket, or one where nobody waits for buckets, unless the driver refuses. Arguments
 * that change from step to step are outside the graphs or in device memory. A second stream copies g to the
 * caller's, one bucket of layers at a time, as soon as an event signals that the bucket is final. A third
 * stream uploads the batch that was announced beside the step before it (batch.c).
 *
 * With x and g in memory of the device the host waits for a step in cnn_cuda_end only, when the next may be
 * enqueued already: what the host writes or reads of a step is there CNN_MOST_BEGUN times (struct
 * cnn_cuda_begun). Otherwise cnn_cuda_begin waits for each bucket, and for all at its end. What is pending
 * when another call returns is the upload of an announced batch.
 *
 * Values are NHWC, weights of convolutions [out][row][column][in]. x and g are float32 in the order of net.h.
 * In bf16, values, their gradients and copies of the weights are bf16; products and all other sums are
 * float32 or double. The gradient of a convolution's weights is rounded to bf16 once: cuDNN has no other. */
#ifndef CNN_CUDA_H
#define CNN_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "nets/backend.h"
#include "nets/cuda/graph.h"
#include "nets/cuda/launch.h"
#include "nets/layers/layer.h"

/* The workspace in bytes, shared by all layers, that an algorithm of cuDNN or of cuBLASLt may need: others
 * are not chosen. For the latter it is what cuBLAS's manual recommends for Hopper. */
#define CNN_CUDA_WORKSPACE      (UINT64_C(256) << 20)
#define CNN_CUDA_BLAS_WORKSPACE (UINT64_C(32) << 20)

struct cnn_cuda_layer {
    const struct cnn_layer *plan;
    const struct cnn_cuda_kind *kind;
    void *in[CNN_MAX_INPUTS], *out, *dout; /* values, of the net's type */
    void *din[CNN_MAX_INPUTS];             /* NULL: not wanted */
    void *sum[CNN_MAX_INPUTS]; /* the gradient to which the part din[k] is added; NULL: din[k] is the
                                  gradient */
    void *part;                /* added to dout by the layer itself; NULL: there is none */
    bool is_wide; /* of a fully connected layer: its output is float32, since only losses read it; of a
                     loss: its input is */
    bool is_merged, is_merged_back; /* of a ReLU or an add: the layer before computes it; of a ReLU: its
                                       gradient */
    bool has_relu, has_relu_back;   /* of that layer */
    bool is_bias_merged_back;       /* of a convolution: the next computes its bias's gradient, too */
    struct cnn_cuda_layer *biased;  /* of a ReLU, and of a max pool that computes its gradient: that
                                       convolution; NULL: none */
    void *kept, *work, *back_work;
    struct cnn_cuda_turn turns_in[2],
        turn_out; /* copies of its weights and bias, and of their gradient; n 0: none */
    void *state;  /* of the kind of layer; zeroed */
};

/* The results of earlier searches. */
#define CNN_CUDA_PATH 4096
struct cnn_cuda_searched {
    bool is_off;
    char path[CNN_CUDA_PATH]; /* "": no file */
    char device[256];         /* its name and cuDNN's version */
    char *text;               /* of the file, while the net is created; NULL: none */
};

/* A step that is begun: the host's ends of its copies, in pinned memory, in use until `done`. */
struct cnn_cuda_begun {
    struct cnn_cuda_step *step;
    struct cnn_cuda_row *rows;
    cudaEvent_t done; /* g and the rows are there */
};

struct cnn_cuda {
    const struct cnn_plan *plan;
    uint32_t batch;
    enum cnn_precision precision; /* CNN_TF32: of products alone; values and sums are float32 */
    enum cnn_cuda_type type;      /* of values */
    bool any_order;               /* algorithms need not be deterministic */
    size_t value_bytes;
    double label_smoothing;
    bool is_training; /* the pass that is being enqueued */
    bool has_run;     /* a gradient was enqueued: the libraries have finished their lazy initialisation */
    bool refuses_capture;
    uint32_t n; /* images of the batch in use */
    struct cnn_cuda_begun begun[CNN_MOST_BEGUN];
    uint64_t n_begun, n_ended; /* gradients; gradient k is begun[k % CNN_MOST_BEGUN] */
    bool is_late;              /* the last that was begun was not waited for */
    bool is_whole;             /* the first bucket's part, and graph, is the whole step */
    bool keeps_statistics;     /* those of the last gradient are on the device alone */
    cudaStream_t compute, down, up;
    cudnnHandle_t dnn;
    cublasLtHandle_t blas;
    struct cnn_cuda_layer *layers;

    /* In device memory. */
    char *arena;
    void *seen;   /* in the arena: the net's input */
    float *x, *g; /* in use: the net's own, or the caller's, see cnn_cuda_use_vectors */
    float *own_x, *own_g;
    void *copies, *gradient_copies; /* weights.c */
    uint64_t n_copied, n_gradients_copied;
    struct cnn_cuda_sums sums;        /* of channels */
    double *stats;                    /* means and variances of each batch norm */
    struct cnn_cuda_running *running; /* [n_norms] */
    void *workspace;                  /* of one product at a time */
    float *value_of;                  /* [channels][256] */
    uint16_t *labels;                 /* [batch], of the batch in use */
    struct cnn_cuda_uploads {
        struct cnn_batch announced, sent; /* images NULL: none. sent: its upload was enqueued in d->up */
        cudaEvent_t landed[2], placed;    /* landed[turn]: of `sent`; placed: the last batch was read from the
                                             three, which may be written, and the table is there */
        uint32_t turn;
        cudaEvent_t left; /* the caller's memory of the last batch is not read any more */
        void *images;     /* in the caller's format: bytes, or floats to be transposed */
        uint16_t *labels;
        struct cnn_cuda_cut *cuts;
        size_t image_bytes; /* that fit */
        bool has_table;     /* value_of is that of host.value_of */
    } uploads;
    struct cnn_cuda_step *step;
    struct cnn_cuda_row *rows; /* [losses][batch] */
    size_t workspace_bytes;
    struct cnn_cuda_searched searched;

    /* Pinned host memory: the other end of copies. */
    struct {
        float *x, *g, *value_of;
        void *images, *logits;
        uint16_t *labels;
        struct cnn_cuda_cut *cuts;
        double *stats;
        struct cnn_cuda_running *running;
    } host;

    struct cnn_cuda_bucket {
        size_t first, end;          /* layers [first, end) */
        size_t n_losses;            /* among the layers before `end` */
        cudaEvent_t ready, arrived; /* g is final on the device; on the host */
        /* Its part of a step: the backward pass of its layers, with is_whole of all; for the first bucket
         * also the whole forward pass. NULL: not captured. */
        cudaGraphExec_t graph;
    } * buckets; /* from the last layer to the first */
    size_t n_buckets, n_losses, n_stats, n_norms;
    double *z; /* [2][classes], in host memory */
    struct cnn_cuda_block {
        void *at;
        bool is_pinned;
    } * blocks;
    size_t n_blocks, most_blocks, own_bytes;
};

/* One kind of layer. forward and backward only enqueue work in d->compute. */
struct cnn_cuda_kind {
    size_t state_bytes;
    void (*needs)(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out);
    /* NULL: nothing to create. */
    int (*create)(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err);
    void (*destroy)(struct cnn_cuda_layer *l); /* NULL: nothing besides state */
    int (*forward)(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err);
    int (*backward)(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err);
    /* Chooses how the layer's products are computed, after the workspace was allocated. NULL: no choice. */
    int (*choose)(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err);
    /* d->x and d->g are others from now on. NULL: nothing is bound to them. */
    int (*bind)(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err);
};

extern const struct cnn_cuda_kind cnn_cuda_conv, cnn_cuda_fc, cnn_cuda_activation, cnn_cuda_maxpool,
    cnn_cuda_avgpool, cnn_cuda_dropout, cnn_cuda_lrn, cnn_cuda_batchnorm, cnn_cuda_concat, cnn_cuda_add;

/* 0, or -EIO (-ENOMEM if memory is short) with a sentence. what: the operation that failed; l: its layer, or
 * NULL. */
int cnn_cuda_check(cudaError_t error, const char *what, const struct cnn_cuda_layer *l, struct ps_error *err);
int cnn_cuda_check_dnn(cudnnStatus_t status, const char *what, const struct cnn_cuda_layer *l,
                       struct ps_error *err);
int cnn_cuda_check_blas(cublasStatus_t status, const char *what, const struct cnn_cuda_layer *l,
                        struct ps_error *err);

/* Device memory that destroy frees. out points to a pointer, which is set on success. */
int cnn_cuda_alloc(struct cnn_cuda *d, size_t bytes, void *out, struct ps_error *err);
int cnn_cuda_alloc_pinned(struct cnn_cuda *d, size_t bytes, void *out, struct ps_error *err);

/* Whether x or g is in memory of the device: the caller's program may keep them there. */
bool cnn_cuda_owns(const void *p);

/* step.c. The next gradient captures its graphs anew. */
void cnn_cuda_drop_graphs(struct cnn_cuda *d);

/* cuda.c. Waits for all streams. */
void cnn_cuda_wait_for_all(struct cnn_cuda *d);

/* step.c: rows of struct cnn_backend. */
int cnn_cuda_score(void *state, const float *x, const struct cnn_batch *batch,
                   const struct cnn_predictions *out, struct cnn_score *score, struct ps_error *err);
int cnn_cuda_begin(void *state, const struct cnn_gradient_call *call, struct ps_error *err);
int cnn_cuda_end(void *state, struct cnn_score *out, struct ps_error *err);
void cnn_cuda_update_buffers(void *state, float *x);

/* batch.c: batches. The first enqueues in d->compute: the batch's upload, unless it was sent ahead, and its
 * conversion to the net's input. send_ahead enqueues the upload of the batch that was announced, in d->up.
 * leave waits until the device has read the caller's memory of the first. */
int cnn_cuda_send_batch(struct cnn_cuda *d, const struct cnn_batch *batch, struct ps_error *err);
int cnn_cuda_send_ahead(struct cnn_cuda *d, struct ps_error *err);
int cnn_cuda_leave_batch(struct cnn_cuda *d, struct ps_error *err);
/* After a failure, when no work is pending. */
void cnn_cuda_forget_batches(struct cnn_cuda *d);
/* These are rows of struct cnn_backend. */
int cnn_cuda_announce(void *state, const struct cnn_batch *batch, struct ps_error *err);
bool cnn_cuda_cuts(const void *state, uint32_t stored_height, uint32_t stored_width);
void *cnn_cuda_alloc_batch(size_t bytes);
void cnn_cuda_free_batch(void *p);

/* data.c: transfers of vectors. The net works with an x and a g that lie on the device, at multiples of 256
 * bytes, as it does with its own.
 * g NULL: as before. */
int cnn_cuda_use_vectors(struct cnn_cuda *d, const float *x, float *g, struct ps_error *err);
/* The next two enqueue copies in d->compute. send_vector copies nothing if x is in use; an x of the host by
 * way of pinned memory, which is in use until the copy is waited for. send_step takes its pinned memory of
 * the gradient that is being begun. */
int cnn_cuda_send_vector(struct cnn_cuda *d, const float *x, struct ps_error *err);
int cnn_cuda_send_step(struct cnn_cuda *d, const struct cnn_draw *draw, struct ps_error *err);
/* Enqueues the copy of a bucket's part of g to the host, or to a g in memory of the device, after the
 * backward pass of its layers. */
int cnn_cuda_fetch_bucket(struct cnn_cuda *d, const struct cnn_cuda_bucket *b, float *g,
                          struct ps_error *err);
/* What follows in d->compute comes after the copies of all buckets. */
int cnn_cuda_join_buckets(struct cnn_cuda *d, struct ps_error *err);
/* Waits for that copy, copies the part to call->g and reports it. */
int cnn_cuda_hand_out_bucket(struct cnn_cuda *d, const struct cnn_cuda_bucket *b,
                             const struct cnn_gradient_call *call, struct ps_error *err);
/* Sends what the running statistics of each batch norm are moved by. */
int cnn_cuda_send_running(struct cnn_cuda *d, struct ps_error *err);
/* Divides the layers into buckets. -ENOMEM. */
int cnn_cuda_cut_buckets(struct cnn_cuda *d, struct ps_error *err);

/* weights.c: the copy of a layer's weights or bias, or of its weights' gradient, in device memory: to be
 * called once for each, when the layer is created. room: values that one takes there. */
size_t cnn_cuda_copy_room(uint64_t n);
void *cnn_cuda_copy_of(struct cnn_cuda *d, struct cnn_cuda_layer *l, const struct cnn_cuda_turn *of);
void *cnn_cuda_gradient_copy_of(struct cnn_cuda *d, struct cnn_cuda_layer *l, const struct cnn_cuda_turn *of);
/* Enqueue the copies from x of all layers, and those to g of layers [first, end). */
int cnn_cuda_copy_weights(struct cnn_cuda *d, struct ps_error *err);
int cnn_cuda_copy_gradients(struct cnn_cuda *d, size_t first, size_t end, struct ps_error *err);

/* search.c: the ways to compute something. run enqueues one; a negative errno if it cannot. */
#define CNN_CUDA_WAY_NAME 128
struct cnn_cuda_candidates {
    void *arg;
    size_t n;
    void (*name)(void *arg, size_t way, char *to, size_t bytes);
    int (*run)(void *arg, size_t way);
};
void cnn_cuda_search_begin(struct cnn_cuda *d);
void cnn_cuda_search_end(struct cnn_cuda *d);
/* The fastest, from the file or by timing each; 0 if searches are off. */
size_t cnn_cuda_search(struct cnn_cuda *d, const char *problem, const struct cnn_cuda_candidates *of);
/* The ReLU that overwrites the layer's output, and is its only reader; NULL: there is none. */
struct cnn_cuda_layer *cnn_cuda_relu_of(struct cnn_cuda *d, const struct cnn_cuda_layer *l);

/* Whether a fully connected layer, or the layer that a loss reads, has an output that only losses read. */
bool cnn_cuda_is_wide(const struct cnn_plan *p, const struct cnn_layer *l);

/* The sizes of a layer's window, for kernels. */
struct cnn_cuda_window cnn_cuda_window_of(const struct cnn_layer *l, uint32_t batch);

static inline size_t cnn_cuda_count(const struct cnn_cuda *d, struct cnn_shape s)
{
    return cnn_shape_count(s) * d->batch;
}

#endif
