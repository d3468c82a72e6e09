/* memory.h: where everything that a net computes lies. Private to nets/.
 *
 * One arena holds the outputs of layers ("values"), their gradients, and what layers keep and work with. It
 * is laid out once, for every backend alike, from what the backend says its layers need (struct cnn_needs):
 *
 * - A training step is a row of moments: 0 brings the images in; with n layers, layer i goes forward at
 *   moment i + 1 and back at moment 2 n - i. A loss reads its logits, and makes their gradient, at its moment
 *   of going back.
 * - A value lives from the moment it is written to the last at which it is read, going forward or back. Its
 *   gradient lives from the first reader that goes back to the layer that made the value.
 * - A layer may write its output over its input, and the gradient of its input over that of its output, where
 *   it can and nobody misses what was there: both are one space then.
 * - Spaces that live at the same time lie apart. The largest is placed first; each goes into the smallest gap
 *   that holds it (best fit).
 *
 * The gradient of a value that several layers read is a sum. The first of them to go back writes it; the
 * others write a part, which is added to it.
 *
 * The plan holds offsets, no pointers: the arena may lie on the host or on a device. A layer that only scores
 * needs (struct cnn_layer.is_scored) finds its places in the same arena. */
#ifndef CNN_MEMORY_H
#define CNN_MEMORY_H

#include "nets/plan.h"

/* Of every space; the arena has as much behind its end, for kernels that read a vector past it. */
#define CNN_ALIGN 64

/* What a layer that goes back reads of a value. */
enum cnn_reads {
    CNN_READS_NOTHING,
    CNN_READS_SIGN, /* whether it is above 0 */
    CNN_READS_VALUE
};

/* What one layer needs on one backend, for the whole batch. Bytes may be 0. */
struct cnn_needs {
    enum cnn_reads back_reads_in, back_reads_out;
    bool passes_value;  /* its output is its first input as it is: nothing is written */
    bool can_overwrite; /* going forward, its first input, which has the size of its output */
    /* The output is above 0 where the input is, or the layer before gets no gradient there: ReLU, dropout. */
    bool keeps_sign;
    bool can_overwrite_back; /* the gradient of its output with that of its first input, of the same size */
    /* The gradient of its input is never made: what is before it reads that of its output instead, and what
     * the layer kept. */
    bool passes_gradient;
    size_t kept_bytes;                  /* written going forward in training, read going back */
    size_t work_bytes, back_work_bytes; /* during either */
};

#define CNN_NOWHERE SIZE_MAX

struct cnn_layer_places {
    size_t kept_at, work_at, back_work_at;
    /* Where it writes the gradient of input k; CNN_NOWHERE: not wanted. */
    size_t din_at[CNN_MAX_INPUTS];
    /* din_at[k] is a part, to be added to the value's gradient here; CNN_NOWHERE: it is the gradient itself.
     */
    size_t sum_at[CNN_MAX_INPUTS];
};

struct cnn_memory {
    size_t arena_bytes;             /* with CNN_ALIGN behind the last space */
    size_t live_bytes;              /* the most that lives at one moment: no plan is smaller than this */
    size_t *value_at, *gradient_at; /* [n_values]; of a loss, and of gradients not wanted: CNN_NOWHERE */
    struct cnn_layer_places *layers;
};

/* value_bytes: of one number of a value or gradient. needs: [n_layers]; a loss's are not read. -ENOMEM. */
int cnn_memory_create(const struct cnn_plan *plan, const struct cnn_needs *needs, uint32_t batch,
                      size_t value_bytes, struct cnn_memory **out, struct ps_error *err);
void cnn_memory_destroy(struct cnn_memory *m);

/* Where a place of the arena is; NULL for CNN_NOWHERE. */
static inline void *cnn_place(void *arena, size_t at)
{
    return at == CNN_NOWHERE ? NULL : (char *)arena + at;
}

#endif
