/* onednn.h: a net as a list of oneDNN primitives and our own loops. Private to nets/onednn.
 *
 * The layout is chosen for each value: see layout.c. The flat vectors x and g are read and written in place.
 * They are float32. Values and their gradients are float32 or, at CNN_BF16, bf16, except for logits that a
 * fully connected layer writes: those are float32 too. A `void *` points to numbers of the net's precision.
 * create allocates everything: the planned arena (nets/memory.h), one scratchpad for all primitives and one
 * buffer for weights in the library's formats. Sharing is safe because primitives run one after the other. */
#ifndef CNN_ONEDNN_H
#define CNN_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "nets/backend.h"
#include "nets/onednn/kernels.h"
#include "proto/clock.h"

struct cnn_dnnl;
struct cnn_dnnl_layer;

enum cnn_dnnl_layout {
    CNN_DNNL_HWC,
    CNN_DNNL_FLAT,   /* [C][H][W]; also values for which both layouts are equal */
    CNN_DNNL_BLOCKED /* [C / CNN_DNNL_BLOCK][H][W][CNN_DNNL_BLOCK] */
};
#define CNN_DNNL_BLOCK 16

/* A primitive and its arguments. */
struct cnn_dnnl_op {
    dnnl_primitive_t primitive; /* NULL: nothing to do */
    dnnl_exec_arg_t args[6];
    int n_args;
};

struct cnn_dnnl_kind {
    size_t state_bytes;
    /* The layer's needs in the arena, from l->plan and the choices of cnn_dnnl_choose; *n is zeroed. */
    void (*needs)(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n);
    int (*create)(struct cnn_dnnl *d, struct cnn_dnnl_layer *l,
                  struct ps_error *err);       /* NULL: nothing to do */
    void (*destroy)(struct cnn_dnnl_layer *l); /* NULL: nothing to do; state is zeroed before create */
    int (*forward)(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x);
    /* Not called if neither the parameters nor l->din need a gradient. */
    int (*backward)(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g);
    /* Moves the layer's buffers in x towards the statistics of the last forward in training; NULL: none. */
    void (*update_buffers)(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, float *x);
};

extern const struct cnn_dnnl_kind cnn_dnnl_conv, cnn_dnnl_maxpool, cnn_dnnl_relu, cnn_dnnl_activation,
    cnn_dnnl_fc, cnn_dnnl_avgpool, cnn_dnnl_dropout, cnn_dnnl_lrn, cnn_dnnl_batchnorm, cnn_dnnl_concat,
    cnn_dnnl_add;

struct cnn_dnnl_layer {
    const struct cnn_layer *plan;
    const struct cnn_dnnl_kind *kind;
    const void *in[CNN_MAX_INPUTS]; /* may be the caller's images, if they can be read in place */
    void *out;                      /* in[0] if the layer works in place */
    bool is_wide;                   /* of a fully connected layer: its output is float32 in every precision;
                                       of a loss: its input */
    enum cnn_dnnl_layout in_layout, out_layout;
    /* Contiguous channels: values are [C / block][H][W][block]. */
    uint32_t in_block, out_block;
    void *dout;                  /* the layer may overwrite it */
    void *din[CNN_MAX_INPUTS];   /* NULL: not wanted; din[0] may be dout */
    void *sum[CNN_MAX_INPUTS];   /* if not NULL: the gradient to which din[k] is added */
    void *kept, *work;           /* NULL: not needed */
    struct cnn_dnnl_layer *pool; /* of a convolution: the max-pool whose backward pass is fused with its
                                    own */
    bool is_pooled;              /* of that max-pool: the convolution computes its backward pass */
    /* A ReLU that is fused into a neighbour: the max-pool after it, because max(0, max w) = max max(0, w), or
     * the batchnorm or add before it, which has the image in the cache. */
    bool is_deferred;
    bool has_relu;    /* of that neighbour */
    bool is_winograd; /* of a convolution: the library runs it with Winograd's algorithm */
    void *state;
};

struct cnn_dnnl {
    const struct cnn_plan *plan;
    const struct cnn_kernels *kernels; /* of the net's precision */
    const struct cnn_kernels *floats;  /* of float32 */
    dnnl_data_type_t type;             /* of values */
    size_t value_bytes;
    uint32_t batch, threads;
    void *arena;
    size_t own_bytes; /* allocated outside the arena */
    bool only_plans;  /* for the sizes that cnn_dnnl_share counts: no primitive is made, and no buffer */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    double library_s; /* seconds in primitives */
    bool is_training;
    const struct cnn_draw *draw;   /* of the current gradient */
    void *input;                   /* images in the first layer's format, if the caller's differ */
    float *images;                 /* [threads][image]: images before they are rounded; NULL: they are not */
    enum cnn_dnnl_layout *layout;  /* [values] */
    double *z;                     /* [threads][2 classes]: logits of an image and their gradient */
    double *row_loss;              /* [batch]: of the images, before they are added in their order */
    uint32_t *row_rank;            /* [batch] */
    struct cnn_dnnl_layer *layers; /* [n_layers]; for losses only in, din and sum are set */
    /* Shared by all layers: scratch of primitives, weights in the library's formats, and copies for
     * convolutions that run in another layout than their values: [0] the input, [1] the output, and their
     * gradients. */
    struct cnn_dnnl_shared {
        void *data;
        size_t bytes;            /* of the largest user */
        dnnl_memory_t *memories; /* bound when all sizes are known */
        size_t n;
    } scratch, weights, sides[2];
    /* All objects of cnn_dnnl_op_create and cnn_dnnl_memory, to be destroyed. */
    dnnl_primitive_t *primitives;
    dnnl_primitive_desc_t *descs;
    dnnl_memory_t *memories;
    size_t n_primitives, n_descs, n_memories;
};

/* 0, or the error code and sentence of a failed status. */
int cnn_dnnl_check(dnnl_status_t status, const char *doing, const struct cnn_dnnl_layer *l,
                   struct ps_error *err);

/* The descriptor is owned by d. hint: the forward descriptor, or NULL. */
int cnn_dnnl_desc(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, const void *op_desc,
                  const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out, struct ps_error *err);
/* A memory over `data`, owned by d. data NULL: bound later by cnn_dnnl_bind. */
int cnn_dnnl_memory(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, const dnnl_memory_desc_t *desc,
                    void *data, dnnl_memory_t *out, struct ps_error *err);
/* A memory in a shared buffer, whose contents are valid only until the next primitive. */
int cnn_dnnl_share(struct cnn_dnnl *d, struct cnn_dnnl_shared *with, const struct cnn_dnnl_layer *l,
                   const dnnl_memory_desc_t *desc, dnnl_memory_t *out, struct ps_error *err);
/* A primitive with its arguments; the list ends with an argument whose arg is 0. */
int cnn_dnnl_op_create(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, dnnl_primitive_desc_t desc,
                       const dnnl_exec_arg_t *args, struct cnn_dnnl_op *out, struct ps_error *err);
/* A reorder; no operation if `from` and `to` are the same memory. */
int cnn_dnnl_reorder(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, dnnl_memory_t from, dnnl_memory_t to,
                     struct cnn_dnnl_op *out, struct ps_error *err);
/* A memory of weights in the format and precision that `what` of `desc` has, or `flat` itself if it has
 * them. */
int cnn_dnnl_weights(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, dnnl_primitive_desc_t desc,
                     dnnl_query_t what, dnnl_memory_t flat, dnnl_memory_t *out, struct ps_error *err);

/* Zeroed and aligned to a cache line, with one extra vector for kernels that read past the end; NULL if out
 * of memory. To be freed with free. */
void *cnn_dnnl_buffer(struct cnn_dnnl *d, size_t bytes);

/* Chooses the layouts and the layers to fuse. The plan and kind of d->layers are set. -ENOMEM. */
int cnn_dnnl_choose(struct cnn_dnnl *d);
/* Sets every layer's pointers into d->arena. */
void cnn_dnnl_bind_places(struct cnn_dnnl *d, const struct cnn_memory *m);
/* Gives the images to the layers that read them, transposed or copied if those cannot read them in place. */
void cnn_dnnl_place_images(struct cnn_dnnl *d, const struct cnn_batch *batch);

/* Whether the library has Winograd's algorithm for the layer and it is faster. */
bool cnn_dnnl_can_winograd(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l);

/* Whether [C][H][W] and [H][W][C] are the same. */
bool cnn_dnnl_is_same_either_way(struct cnn_shape s);

/* The fused backward pass of a convolution and the max-pool after it. l: the convolution, with l->pool set;
 * l->dout: the gradient of the pool's output. */
struct cnn_dnnl_pooled;
bool cnn_dnnl_can_pool(const struct cnn_dnnl *d, const struct cnn_layer *conv, const struct cnn_layer *next);
int cnn_dnnl_pooled_create(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_dnnl_pooled **out,
                           struct ps_error *err);
void cnn_dnnl_pooled_destroy(struct cnn_dnnl_pooled *s);
void cnn_dnnl_pooled_backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct cnn_dnnl_pooled *s,
                              const float *x, float *g);

/* The piece of an elementwise loop that a thread takes at a time. It fits into the cache for every image
 * size. */
#define CNN_DNNL_PIECE ((size_t)1 << 14)

static inline size_t cnn_dnnl_n_pieces(size_t n)
{
    return (n + CNN_DNNL_PIECE - 1) / CNN_DNNL_PIECE;
}

/* The floats in piece k, which begins at k * CNN_DNNL_PIECE. */
static inline size_t cnn_dnnl_piece(size_t n, size_t k)
{
    size_t left = n - k * CNN_DNNL_PIECE;
    return left < CNN_DNNL_PIECE ? left : CNN_DNNL_PIECE;
}

/* The work of pools and norms is divided by images and blocks of channels and, where those are too few to
 * keep the threads busy, by parts of a block. */
struct cnn_dnnl_part {
    size_t block;  /* image * blocks of an image + block */
    uint32_t c, n; /* its first channel in the block, and how many */
};

#define CNN_DNNL_PART 32 /* the fewest channels of a part: two cache lines of float32 */

static inline size_t cnn_dnnl_n_blocks(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l)
{
    return (size_t)d->batch * (l->plan->in.c / l->in_block);
}

/* Parts of a block. One, if the blocks divide evenly or there are many for each thread. */
static inline uint32_t cnn_dnnl_n_parts(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l)
{
    size_t blocks = cnn_dnnl_n_blocks(d, l), wanted = (4 * (size_t)d->threads + blocks - 1) / blocks;
    uint32_t most = l->in_block / CNN_DNNL_PART;

    if (most <= 1 || blocks % d->threads == 0 || wanted <= 1)
        return 1;
    return wanted < most ? (uint32_t)wanted : most;
}

/* Part k of n_blocks * n_parts. Parts begin at multiples of 16 channels. */
static inline struct cnn_dnnl_part cnn_dnnl_part_of(const struct cnn_dnnl_layer *l, uint32_t n_parts,
                                                    size_t k)
{
    uint32_t part = (uint32_t)(k % n_parts), vectors = l->in_block / 16;
    uint32_t begin = n_parts == 1 ? 0 : vectors * part / n_parts * 16;
    uint32_t end = part + 1 == n_parts ? l->in_block : vectors * (part + 1) / n_parts * 16;

    return (struct cnn_dnnl_part){k / n_parts, begin, end - begin};
}

/* The address of number n from p on. */
static inline void *cnn_dnnl_at(const struct cnn_dnnl *d, void *p, size_t n)
{
    return (char *)p + n * d->value_bytes;
}

static inline const void *cnn_dnnl_in(const struct cnn_dnnl *d, const void *p, size_t n)
{
    return (const char *)p + n * d->value_bytes;
}

/* The library's memories are not const; inputs are never written. */
static inline void cnn_dnnl_bind(dnnl_memory_t memory, const void *data)
{
    dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data);
}

static inline dnnl_status_t cnn_dnnl_run(struct cnn_dnnl *d, const struct cnn_dnnl_op *op)
{
    if (op->primitive == NULL)
        return dnnl_success;
    double begin = ps_now_s();
    dnnl_status_t st = dnnl_primitive_execute(op->primitive, d->stream, op->n_args, op->args);
    d->library_s += ps_now_s() - begin;
    return st;
}

#endif
