/* activation.c: elementwise functions. They run in place, forward and backward, if no other layer reads their
 * input. That is safe: no layer needs its own output in its backward pass, and the sign that ReLU needs is
 * preserved in its output, even if dropout scales it in place. */
#include "nets/onednn/onednn.h"

#include <string.h>

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    size_t n = d->batch * cnn_shape_count(l->plan->in), pieces = cnn_dnnl_n_pieces(n);

    (void)x;
    if (l->is_deferred)
        return 0;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < pieces; i++) {
        size_t at = i * CNN_DNNL_PIECE, size = cnn_dnnl_piece(n, i);
        if (l->out != l->in[0])
            memcpy(cnn_dnnl_at(d, l->out, at), cnn_dnnl_in(d, l->in[0], at), size * d->value_bytes);
        d->kernels->relu(cnn_dnnl_at(d, l->out, at), size);
    }
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    size_t n = d->batch * cnn_shape_count(l->plan->in), pieces = cnn_dnnl_n_pieces(n);

    (void)x, (void)g;
    if (l->is_deferred)
        return 0;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < pieces; i++) {
        size_t at = i * CNN_DNNL_PIECE, size = cnn_dnnl_piece(n, i);
        if (l->din[0] != l->dout)
            memcpy(cnn_dnnl_at(d, l->din[0], at), cnn_dnnl_at(d, l->dout, at), size * d->value_bytes);
        d->kernels->relu_back(cnn_dnnl_at(d, l->din[0], at), cnn_dnnl_at(d, l->out, at), size);
    }
    return 0;
}

/* A layer that is fused into a neighbour needs nothing, and writes nothing. */
static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d;
    n->passes_value = n->passes_gradient = l->is_deferred;
    n->back_reads_out = l->is_deferred ? CNN_READS_NOTHING : CNN_READS_SIGN;
    n->can_overwrite = n->keeps_sign = n->can_overwrite_back = true;
}

const struct cnn_dnnl_kind cnn_dnnl_relu = {0, needs, NULL, NULL, forward, backward, NULL};

/* All kinds except ReLU: a function of the input, and its derivative as a function of the output. */
struct activation_op {
    cnn_activation *forward;
    cnn_activation_back *backward;
};

static int create_other(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    const struct cnn_activation_kernels *k = d->kernels->activation;
    struct activation_op *a = l->state;

    (void)err;
    switch (l->plan->spec->kind) {
    case CNN_LEAKY_RELU:
        *a = (struct activation_op){k->leaky, k->leaky_back};
        break;
    case CNN_RELU6:
        *a = (struct activation_op){k->relu6, k->relu6_back};
        break;
    case CNN_SIGMOID:
        *a = (struct activation_op){k->sigmoid, k->sigmoid_back};
        break;
    default:
        *a = (struct activation_op){k->tanh, k->tanh_back};
    }
    return 0;
}

static int forward_other(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    const struct activation_op *a = l->state;
    size_t n = d->batch * cnn_shape_count(l->plan->in), pieces = cnn_dnnl_n_pieces(n);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < pieces; i++)
        a->forward(cnn_dnnl_in(d, l->in[0], i * CNN_DNNL_PIECE), cnn_dnnl_at(d, l->out, i * CNN_DNNL_PIECE),
                   cnn_dnnl_piece(n, i), l->plan->spec->slope);
    return 0;
}

static int backward_other(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    const struct activation_op *a = l->state;
    size_t n = d->batch * cnn_shape_count(l->plan->in), pieces = cnn_dnnl_n_pieces(n);

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < pieces; i++)
        a->backward(cnn_dnnl_at(d, l->out, i * CNN_DNNL_PIECE), cnn_dnnl_at(d, l->dout, i * CNN_DNNL_PIECE),
                    cnn_dnnl_at(d, l->din[0], i * CNN_DNNL_PIECE), cnn_dnnl_piece(n, i),
                    l->plan->spec->slope);
    return 0;
}

static void needs_other(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    enum cnn_layer_kind kind = l->plan->spec->kind;

    (void)d;
    n->back_reads_out = kind == CNN_LEAKY_RELU ? CNN_READS_SIGN : CNN_READS_VALUE;
    n->can_overwrite = n->can_overwrite_back = true;
    n->keeps_sign = kind != CNN_SIGMOID;
}

const struct cnn_dnnl_kind cnn_dnnl_activation = {
    sizeof(struct activation_op), needs_other, create_other, NULL, forward_other, backward_other, NULL};
