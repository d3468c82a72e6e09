/* memory.h: the memory plan of a net. Private to nets/.
 *
 * One arena holds the outputs of layers ("values"), their gradients, and the kept data and workspace of
 * layers. It is laid out once, in the same way for every backend, from the needs of the backend's layers
 * (struct cnn_needs):
 *
 * - A training step is a sequence of moments. The images arrive at moment 0. With n layers, layer i runs
 *   forward at moment i + 1 and backward at moment 2 n - i. A loss reads its logits and writes their gradient
 *   at its backward moment.
 * - A value lives from the moment it is written to the last moment it is read, forward or backward. Its
 *   gradient lives from the backward pass of its first reader to that of the layer that wrote the value.
 * - A layer may write its output over its input, and the gradient of its input over that of its output, if
 *   the layer supports it and the overwritten data is not read again. Both then share one space.
 * - Spaces that live at the same time do not overlap. The largest is placed first; each goes into the
 *   smallest gap that holds it (best fit).
 *
 * The gradient of a value with several readers is a sum. The first reader to run backward writes it; each of
 * the others writes a part, which is added: the last one by the layer that wrote the value, if it can.
 * - An add's inputs have its output's gradient. They share its space until one of them is written again: the
 *   layer that runs backward before another that reads the space does not write over it.
 *
 * The plan holds offsets, not pointers: the arena may be in host or device memory. Layers that run only for
 * scores (struct cnn_layer.is_scored) use the same arena. */
#ifndef CNN_MEMORY_H
#define CNN_MEMORY_H

#include "nets/plan.h"

/* Alignment of every space. The arena has as many bytes after its end, for kernels that read a vector past
 * it. */
#define CNN_ALIGN 64

/* What a layer's backward pass reads of a value. */
enum cnn_reads {
    CNN_READS_NOTHING,
    CNN_READS_SIGN, /* whether it is above 0 */
    CNN_READS_VALUE
};

/* The needs of one layer on one backend, for the whole batch. Bytes may be 0. */
struct cnn_needs {
    enum cnn_reads back_reads_in, back_reads_out;
    bool passes_value;  /* its output is its first input, unchanged: nothing is written */
    bool can_overwrite; /* forward, it can write its output over its first input, which has the same size */
    /* The output is above 0 where the input is, or the previous layer gets no gradient there: ReLU,
     * dropout. */
    bool keeps_sign;
    bool can_overwrite_back; /* the same of the gradients of its first input and of its output */
    /* The gradient of its input is never computed: the layer before reads that of its output instead, and the
     * data that this layer kept. */
    bool passes_gradient;
    /* The gradient of each input is that of its output: where they may lie in one space, nothing is written.
     */
    bool shares_gradient;
    /* Backward, it adds the last part of its output's gradient itself. */
    bool adds_part;
    size_t out_bytes;                   /* of each number of its output; 0: as all values */
    size_t kept_bytes;                  /* written forward in training, read backward */
    size_t work_bytes, back_work_bytes; /* scratch during the forward and the backward pass */
};

#define CNN_NOWHERE SIZE_MAX

struct cnn_layer_places {
    size_t kept_at, work_at, back_work_at;
    /* Where it writes the gradient of input k; CNN_NOWHERE: not wanted. */
    size_t din_at[CNN_MAX_INPUTS];
    /* Where the value's gradient is, to which the part din_at[k] is added; CNN_NOWHERE: din_at[k] is the
     * gradient itself. */
    size_t sum_at[CNN_MAX_INPUTS];
    size_t part_at; /* a part of its output's gradient, which it adds itself; CNN_NOWHERE: there is none */
};

struct cnn_memory {
    size_t arena_bytes;             /* with CNN_ALIGN behind the last space */
    size_t live_bytes;              /* the most bytes alive at one moment: a lower bound of every plan */
    size_t *value_at, *gradient_at; /* [n_values]; CNN_NOWHERE for losses and for gradients not wanted */
    struct cnn_layer_places *layers;
};

/* value_bytes: bytes per number of a value or gradient. needs: [n_layers]; those of losses are not read.
 * -ENOMEM. */
int cnn_memory_create(const struct cnn_plan *plan, const struct cnn_needs *needs, uint32_t batch,
                      size_t value_bytes, struct cnn_memory **out, struct ps_error *err);
void cnn_memory_destroy(struct cnn_memory *m);

/* The address of an offset in the arena; NULL for CNN_NOWHERE. */
static inline void *cnn_place(void *arena, size_t at)
{
    return at == CNN_NOWHERE ? NULL : (char *)arena + at;
}

#endif
