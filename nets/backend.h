/* backend.h: the interface of a backend, which computes a net. A backend is one folder and one row in the
 * table of net.c. Private to nets/.
 *
 * A net is created in this order, in one thread: `probe`, the plan of the model (plan.h), `needs`, the memory
 * plan (memory.h), `create`. Afterwards any thread may call, one call at a time. create does everything that
 * can be prepared or can fail; a gradient does not allocate.
 *
 * Devices use the same interface: x and g are in memory of the host (the backend cuda also takes either in
 * memory of its device), the arena is in the backend's own memory at the planned offsets, images are bytes or
 * floats that are borrowed until the call returns (struct cnn_batch), and parts of g are reported as they
 * become final (struct cnn_ready). A gradient has two halves, `begin` and `end`, so that a device need not
 * wait for the host between two of them. */
#ifndef CNN_BACKEND_H
#define CNN_BACKEND_H

#include "nets/memory.h"
#include "nets/plan.h"

/* The options that a net is created with. */
struct cnn_setup {
    const struct cnn_plan *plan;
    uint32_t batch, threads; /* threads >= 1 */
    enum cnn_precision precision;
    bool any_order; /* as in struct cnn_net_options */
};

/* One gradient. */
struct cnn_gradient_call {
    const struct cnn_draw *draw; /* of dropout */
    const float *x;
    const struct cnn_batch *batch;
    float *g;
    const struct cnn_ready *ready; /* NULL: not wanted */
    double label_smoothing;
};

struct cnn_backend {
    const char *name;
    uint32_t precisions; /* bits 1 << enum cnn_precision; net.c refuses all others */
    bool has_any_order;  /* knows algorithms that are not deterministic; net.c refuses them to others */
    /* Whether this machine can run it at that precision: 0, or -ENOTSUP with a sentence that names the
     * missing part. A row that cannot run is not the default. NULL: it can always run. */
    int (*probe)(enum cnn_precision precision, struct ps_error *err);
    /* As cnn_use_device, after probe; NULL: the backend has no devices. */
    int (*use_device)(uint32_t device, struct ps_error *err);
    /* Bytes that a net may take if no limit is set; NULL: the available memory. -EIO with a sentence. */
    int (*memory_limit)(uint64_t *out, struct ps_error *err);
    /* Bytes per number of values and gradients in the arena. */
    size_t (*value_bytes)(enum cnn_precision precision);
    /* Fills needs [n_layers], zeroed by the caller, and an estimate of the bytes that create allocates
     * outside the arena: weights in other layouts, scratch, tables. Deterministic. -ENOMEM, or -ENOTSUP if
     * the library has no code for a layer, with a sentence. */
    int (*needs)(const struct cnn_setup *setup, struct cnn_needs *needs, size_t *own_bytes,
                 struct ps_error *err);
    /* The plans outlive the state. -ENOMEM, or -ENOTSUP if the machine or library lacks something, with a
     * sentence. */
    int (*create)(const struct cnn_setup *setup, const struct cnn_memory *memory, void **state,
                  struct ps_error *err);
    void (*destroy)(void *state);
    /* Bytes that create has allocated outside the arena. */
    size_t (*own_bytes)(const void *state);
    /* As cnn_net_each_thread; NULL: it computes in the calling thread alone. */
    uint32_t (*each_thread)(void *state, void (*call)(void *arg, uint32_t index), void *arg);
    /* Seconds that the state has spent in kernels of its library; NULL: it uses none. */
    double (*library_s)(const void *state);
    /* net.c has checked the arguments: 1 <= n <= batch, labels < classes. These functions do not allocate.
     * -EIO with a sentence when the underlying library fails. */
    int (*score)(void *state, const float *x, const struct cnn_batch *batch,
                 const struct cnn_predictions *out, struct cnn_score *score, struct ps_error *err);
    int (*gradient)(void *state, const struct cnn_gradient_call *call, struct cnn_score *score,
                    struct ps_error *err);
    /* As cnn_net_gradient_begin and cnn_net_gradient_end: instead of `gradient`. net.c has checked how many
     * are begun. NULL: net.c makes them of `gradient`. */
    int (*begin)(void *state, const struct cnn_gradient_call *call, struct ps_error *err);
    int (*end)(void *state, struct cnn_score *score, struct ps_error *err);
    /* Whether batches of bytes that are to be cut, from images stored in that size, are taken; NULL: none. */
    bool (*cuts)(const void *state, uint32_t stored_height, uint32_t stored_width);
    /* As cnn_net_stream; NULL: there is none. */
    void *(*stream)(const void *state);
    /* As cnn_net_alloc and cnn_net_free; NULL: ordinary memory is as good. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *p);
    /* As cnn_net_announce; NULL: does nothing. */
    int (*announce)(void *state, const struct cnn_batch *batch, struct ps_error *err);
    /* After a gradient: moves the buffers of x towards its batch's statistics with cnn_batchnorm_move. */
    void (*update_buffers)(void *state, float *x);
};

/* The same value as cnn_batch_value, of images that are to be cut. */
static inline float cnn_cut_value(const struct cnn_batch *b, struct cnn_shape s, size_t image, size_t c,
                                  size_t place)
{
    const struct cnn_cut *cut = &b->cuts[image];
    size_t x = place % s.w, places = (size_t)b->stored_height * b->stored_width;
    int64_t row = (int64_t)cut->top + (int64_t)(place / s.w);
    int64_t column = (int64_t)cut->left + (int64_t)(cut->mirrored ? s.w - 1 - x : x);
    uint8_t byte = 0;

    if (row >= 0 && row < b->stored_height && column >= 0 && column < b->stored_width) {
        size_t at = (size_t)row * b->stored_width + (size_t)column;
        at = image * s.c * places + (b->is_hwc ? at * s.c + c : c * places + at);
        byte = ((const uint8_t *)b->images)[at];
    }
    return b->value_of[c][byte];
}

/* The net's input for channel c of an image, at position `place` in [0, height * width). */
static inline float cnn_batch_value(const struct cnn_batch *b, struct cnn_shape s, size_t image, size_t c,
                                    size_t place)
{
    size_t places = (size_t)s.h * s.w;
    size_t at = image * s.c * places + (b->is_hwc ? place * s.c + c : c * places + place);

    return b->pixels == CNN_PIXELS_BYTE ? b->value_of[c][((const uint8_t *)b->images)[at]]
                                        : ((const float *)b->images)[at];
}

/* Reports to call->ready that the layer's part of g is final. Each layer with parameters is reported once,
 * from the last to the first, even without a backward pass. */
static inline void cnn_tell_ready(const struct cnn_gradient_call *call, const struct cnn_layer *l)
{
    uint64_t n = l->n_weights + l->n_biases + 2 * l->n_buffers;

    if (call->ready != NULL && n > 0)
        call->ready->call(call->ready->arg, l->weight_at, n);
}

extern const struct cnn_backend cnn_backend_ref, cnn_backend_onednn, cnn_backend_cuda;

#endif
