/* weights.c: copies of weights in the order and the type that products read, and of gradients as products
 * write them. Those of all layers are copied in one launch, before the forward pass, and those of a bucket's
 * gradients in one after its backward pass. */
#include "nets/cuda/cuda.h"

/* Values of a copy begin at multiples of this many, which are 32 bytes at least: products read 16 at a time.
 */
#define UNIT 16

size_t cnn_cuda_copy_room(uint64_t n)
{
    return (n + UNIT - 1) / UNIT * UNIT;
}

static void *place(const struct cnn_cuda *d, void *base, uint64_t *used, struct cnn_cuda_turn *t)
{
    t->to = *used;
    *used += cnn_cuda_copy_room(t->n);
    return (char *)base + t->to * d->value_bytes;
}

void *cnn_cuda_copy_of(struct cnn_cuda *d, struct cnn_cuda_layer *l, const struct cnn_cuda_turn *of)
{
    struct cnn_cuda_turn *t = &l->turns_in[l->turns_in[0].n > 0];

    *t = *of;
    return place(d, d->copies, &d->n_copied, t);
}

void *cnn_cuda_gradient_copy_of(struct cnn_cuda *d, struct cnn_cuda_layer *l, const struct cnn_cuda_turn *of)
{
    l->turn_out = *of;
    return place(d, d->gradient_copies, &d->n_gradients_copied, &l->turn_out);
}

/* Launches those that were gathered if `most` more might not fit. */
static cudaError_t flush(struct cnn_cuda *d, struct cnn_cuda_turns *turns, uint32_t most, bool is_in)
{
    cudaError_t e = cudaSuccess;

    if (turns->n == 0 || turns->n + most <= CNN_CUDA_MOST_TURNS)
        return e;
    e = is_in ? cu_weights_in(d->compute, d->type, turns, d->x, d->copies)
              : cu_weights_out(d->compute, d->type, turns, d->gradient_copies, d->g);
    turns->n = 0;
    return e;
}

static void gather(struct cnn_cuda_turns *turns, const struct cnn_cuda_turn *t)
{
    if (t->n > 0)
        turns->of[turns->n++] = *t;
}

int cnn_cuda_copy_weights(struct cnn_cuda *d, struct ps_error *err)
{
    struct cnn_cuda_turns turns = {.n = 0};
    cudaError_t e = cudaSuccess;

    for (size_t i = 0; i < d->plan->n_layers && e == cudaSuccess; i++) {
        e = flush(d, &turns, 2, true);
        gather(&turns, &d->layers[i].turns_in[0]);
        gather(&turns, &d->layers[i].turns_in[1]);
    }
    if (e == cudaSuccess)
        e = flush(d, &turns, CNN_CUDA_MOST_TURNS, true);
    return cnn_cuda_check(e, "copying weights", NULL, err);
}

int cnn_cuda_copy_gradients(struct cnn_cuda *d, size_t first, size_t end, struct ps_error *err)
{
    struct cnn_cuda_turns turns = {.n = 0};
    cudaError_t e = cudaSuccess;

    for (size_t i = first; i < end && e == cudaSuccess; i++) {
        e = flush(d, &turns, 1, false);
        gather(&turns, &d->layers[i].turn_out);
    }
    if (e == cudaSuccess)
        e = flush(d, &turns, CNN_CUDA_MOST_TURNS, false);
    return cnn_cuda_check(e, "copying gradients", NULL, err);
}
