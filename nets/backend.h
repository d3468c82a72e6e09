/* backend.h: what computes a net. A backend is one folder and one row in the table of net.c. Private to
 * nets/.
 *
 * A net is made in this order, all of it in one thread: `probe` of the row, the plan of the model (plan.h),
 * `needs`, the plan of the memory (memory.h), `create`. From then on any thread may call, one call at a time.
 * Everything that can be prepared or can fail is done by create; a gradient allocates nothing.
 *
 * Devices fit the same table: x and g lie where `memory` says, the arena in the backend's own memory at the
 * planned offsets, images come as bytes or floats that are lent until the call returns (struct cnn_batch),
 * and parts of g are handed on as they become final (struct cnn_ready). */
#ifndef CNN_BACKEND_H
#define CNN_BACKEND_H

#include "nets/memory.h"
#include "nets/plan.h"

/* The options that a net is created with. */
struct cnn_setup {
    const struct cnn_plan *plan;
    uint32_t batch, threads; /* threads >= 1 */
    enum cnn_precision precision;
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
    enum cnn_memory_kind memory; /* of x and g */
    uint32_t precisions;         /* bits 1 << enum cnn_precision; net.c refuses all others */
    /* Whether this machine can run it at one of its precisions: 0, or -ENOTSUP with a sentence that says what
     * is missing. A row that cannot run is not the default. NULL: always. */
    int (*probe)(enum cnn_precision precision, struct ps_error *err);
    /* Bytes that a net may take when nobody sets a limit; NULL: what the machine has to give. */
    uint64_t (*memory_limit)(void);
    /* Bytes per number of values and gradients in the arena. */
    size_t (*value_bytes)(enum cnn_precision precision);
    /* Fills needs [n_layers], zeroed before, and about how many bytes create will allocate outside of the
     * arena: weights in other layouts, scratch, tables. The same for the same setup. -ENOMEM. */
    int (*needs)(const struct cnn_setup *setup, struct cnn_needs *needs, size_t *own_bytes,
                 struct ps_error *err);
    /* The plans outlive the state. -ENOMEM, -ENOTSUP when this machine or library lacks something, with a
     * sentence. */
    int (*create)(const struct cnn_setup *setup, const struct cnn_memory *memory, void **state,
                  struct ps_error *err);
    void (*destroy)(void *state);
    /* Bytes that create has allocated outside of the arena. */
    size_t (*own_bytes)(const void *state);
    /* As cnn_net_each_thread; NULL: it computes in the calling thread alone. */
    uint32_t (*each_thread)(void *state, void (*call)(void *arg, uint32_t index), void *arg);
    /* Seconds that the state has spent in kernels of a library; NULL: it uses none. */
    double (*library_s)(const void *state);
    /* net.c has checked the arguments: 1 <= n <= batch, labels < classes. These functions do not allocate.
     * -EIO with a sentence when the underlying library fails. */
    int (*score)(void *state, const float *x, const struct cnn_batch *batch,
                 const struct cnn_predictions *out, struct cnn_score *score, struct ps_error *err);
    int (*gradient)(void *state, const struct cnn_gradient_call *call, struct cnn_score *score,
                    struct ps_error *err);
    /* After a gradient: moves the buffers of x towards its batch's statistics, by cnn_batchnorm_move. */
    void (*update_buffers)(void *state, float *x);
};

/* The value that the net receives for channel c of an image, at `place` of its height times width. */
static inline float cnn_batch_value(const struct cnn_batch *b, struct cnn_shape s, size_t image, size_t c,
                                    size_t place)
{
    size_t places = (size_t)s.h * s.w;
    size_t at = image * s.c * places + (b->is_hwc ? place * s.c + c : c * places + place);

    return b->pixels == CNN_PIXELS_BYTE ? b->value_of[c][((const uint8_t *)b->images)[at]]
                                        : ((const float *)b->images)[at];
}

/* Reports to call->ready that the layer's part of g is final. Each layer with parameters is reported once,
 * from the last to the first; one without a backward pass, at its turn. */
static inline void cnn_tell_ready(const struct cnn_gradient_call *call, const struct cnn_layer *l)
{
    uint64_t n = l->n_weights + l->n_biases + 2 * l->n_buffers;

    if (call->ready != NULL && n > 0)
        call->ready->call(call->ready->arg, l->weight_at, n);
}

extern const struct cnn_backend cnn_backend_ref, cnn_backend_onednn, cnn_backend_cuda;

#endif
