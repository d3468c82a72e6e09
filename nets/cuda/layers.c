/* layers.c: the kinds of layers that take one or two kernels. */
#include "nets/cuda/cuda.h"

struct cnn_cuda_window cnn_cuda_window_of(const struct cnn_layer *l, uint32_t batch)
{
    const struct cnn_window *w = &l->window;

    return (struct cnn_cuda_window){
        .in = {batch, l->in.h, l->in.w, l->in.c},
        .out = {batch, l->out.h, l->out.w, l->out.c},
        .kernel = {(int32_t)w->kernel[0], (int32_t)w->kernel[1]},
        .stride = {(int32_t)w->stride[0], (int32_t)w->stride[1]},
        .dilation = {(int32_t)w->dilation[0], (int32_t)w->dilation[1]},
        .pad = {(int32_t)w->pad[0], (int32_t)w->pad[1]},
        .pad_end = {(int32_t)w->pad_end[0], (int32_t)w->pad_end[1]},
        .groups = l->groups,
        .skips_padding = l->spec->skips_padding,
    };
}

/* The layer of that kind that overwrites the layer's output, and is its only reader; NULL: there is none. */
static struct cnn_cuda_layer *next_of(struct cnn_cuda *d, const struct cnn_cuda_layer *l,
                                      enum cnn_layer_kind kind)
{
    const size_t value = l->plan->index + 1;

    for (size_t i = value; i < d->plan->n_layers && d->plan->n_readers[value] == 1; i++)
        if (d->plan->layers[i].inputs[0].value == value)
            return d->plan->layers[i].spec->kind == kind && d->layers[i].out == l->out ? &d->layers[i] : NULL;
    return NULL;
}

struct cnn_cuda_layer *cnn_cuda_relu_of(struct cnn_cuda *d, const struct cnn_cuda_layer *l)
{
    return next_of(d, l, CNN_RELU);
}

static int forward_done(cudaError_t e, const struct cnn_cuda_layer *l, struct ps_error *err)
{
    return cnn_cuda_check(e, ": forward", l, err);
}

static int back_done(cudaError_t e, const struct cnn_cuda_layer *l, struct ps_error *err)
{
    return cnn_cuda_check(e, ": backward", l, err);
}

static cudaError_t copy(const struct cnn_cuda *d, const void *from, void *to, size_t n)
{
    return from == to || to == NULL
               ? cudaSuccess
               : cudaMemcpyAsync(to, from, n * d->value_bytes, cudaMemcpyDeviceToDevice, d->compute);
}

/* ---- activations: each derivative is a function of the output */

static enum cnn_cuda_activation activation_of(const struct cnn_layer *l)
{
    switch (l->spec->kind) {
    case CNN_RELU:
        return CNN_CUDA_RELU;
    case CNN_LEAKY_RELU:
        return CNN_CUDA_LEAKY_RELU;
    case CNN_RELU6:
        return CNN_CUDA_RELU6;
    case CNN_SIGMOID:
        return CNN_CUDA_SIGMOID;
    default:
        return CNN_CUDA_TANH;
    }
}

static void activation_needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    (void)setup;
    bool by_sign = l->spec->kind == CNN_RELU || l->spec->kind == CNN_LEAKY_RELU;
    out->back_reads_out = by_sign ? CNN_READS_SIGN : CNN_READS_VALUE;
    out->keeps_sign = by_sign;
    out->can_overwrite = out->can_overwrite_back = out->adds_part = true;
}

static int activation_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    if (l->is_merged)
        return 0;
    return forward_done(cu_activate(d->compute, d->type, cnn_cuda_count(d, l->plan->in),
                                    activation_of(l->plan), l->plan->spec->slope, l->in[0], l->out),
                        l, err);
}

static int activation_backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;

    if (l->is_merged_back)
        return 0;
    if (l->biased != NULL)
        return back_done(cu_relu_bias_back(d->compute, d->type, (uint64_t)d->batch * p->out.h * p->out.w,
                                           p->out.c, l->out, l->dout, d->sums, l->din[0],
                                           d->g + l->biased->plan->bias_at),
                         l, err);
    return back_done(cu_activate_back(d->compute, d->type, cnn_cuda_count(d, l->plan->in),
                                      activation_of(l->plan), l->plan->spec->slope, l->out, l->dout, l->part,
                                      l->din[0]),
                     l, err);
}

const struct cnn_cuda_kind cnn_cuda_activation = {0,    activation_needs,   NULL,
                                                  NULL, activation_forward, activation_backward};

/* ---- pools */

static void maxpool_needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    out->kept_bytes = cnn_shape_count(l->out) * setup->batch * sizeof(uint16_t);
}

/* The pool tells by its own output where the ReLU before it has a gradient. */
static int maxpool_create(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const size_t value = l->plan->inputs[0].value;
    struct cnn_cuda_layer *relu = value > 0 ? &d->layers[value - 1] : NULL;
    const struct cnn_window *w = &l->plan->window;

    (void)err;
    if (relu == NULL || relu->plan->spec->kind != CNN_RELU || d->plan->n_readers[value] != 1 ||
        (uint64_t)w->kernel[0] * (uint64_t)w->kernel[1] > CNN_CUDA_NOWHERE)
        return 0;
    /* Its gradient would overwrite its output's. */
    if (!relu->is_merged_back && relu->sum[0] == NULL && relu->part == NULL && relu->din[0] != NULL &&
        relu->din[0] == relu->dout && relu->dout == l->din[0])
        l->has_relu_back = relu->is_merged_back = true;
    l->biased = l->has_relu_back ? relu->biased : NULL;
    return 0;
}

static int maxpool_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct cnn_cuda_window w = cnn_cuda_window_of(l->plan, d->batch);
    w.has_relu = l->has_relu_back;
    return forward_done(cu_maxpool(d->compute, d->type, w, l->in[0], l->out, l->kept), l, err);
}

static int maxpool_backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    cudaError_t e = cudaSuccess;

    if (l->biased != NULL)
        e = cu_pool_bias_back(d->compute, d->type, (uint64_t)d->batch * p->out.h * p->out.w, p->out.c,
                              l->kept, l->dout, d->sums, d->g + l->biased->plan->bias_at);
    if (e == cudaSuccess)
        e = cu_maxpool_back(d->compute, d->type, cnn_cuda_window_of(p, d->batch), l->dout, l->kept,
                            l->din[0]);
    return back_done(e, l, err);
}

const struct cnn_cuda_kind cnn_cuda_maxpool = {0,    maxpool_needs,   maxpool_create,
                                               NULL, maxpool_forward, maxpool_backward};

static void needs_nothing(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    (void)setup, (void)l, (void)out;
}

static int avgpool_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    return forward_done(
        cu_avgpool(d->compute, d->type, cnn_cuda_window_of(l->plan, d->batch), l->in[0], l->out), l, err);
}

static int avgpool_backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    return back_done(
        cu_avgpool_back(d->compute, d->type, cnn_cuda_window_of(l->plan, d->batch), l->dout, l->din[0]), l,
        err);
}

const struct cnn_cuda_kind cnn_cuda_avgpool = {0,    needs_nothing,   NULL,
                                               NULL, avgpool_forward, avgpool_backward};

/* ---- dropout: the backward pass draws the mask again, which is cheaper than keeping it */

static void dropout_needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    (void)setup, (void)l;
    out->can_overwrite = out->keeps_sign = out->can_overwrite_back = true;
}

static cudaError_t drop(const struct cnn_cuda *d, const struct cnn_cuda_layer *l, const void *in, void *out)
{
    const struct cnn_cuda_dropout p = {.n = cnn_cuda_count(d, l->plan->in),
                                       .c = l->plan->in.c,
                                       .places = l->plan->in.h * l->plan->in.w,
                                       .layer = (uint32_t)l->plan->index,
                                       .dropped_below = cnn_dropout_dropped_below(l->plan),
                                       .scale = cnn_dropout_scale(l->plan)};
    return cu_dropout(d->compute, d->type, p, d->step, in, out);
}

static int dropout_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    return forward_done(d->is_training ? drop(d, l, l->in[0], l->out)
                                       : copy(d, l->in[0], l->out, cnn_cuda_count(d, l->plan->in)),
                        l, err);
}

static int dropout_backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    return back_done(drop(d, l, l->dout, l->din[0]), l, err);
}

const struct cnn_cuda_kind cnn_cuda_dropout = {0,    dropout_needs,   NULL,
                                               NULL, dropout_forward, dropout_backward};

/* ---- LRN: the norms are kept */

static void lrn_needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    out->back_reads_in = CNN_READS_VALUE;
    out->kept_bytes = cnn_shape_count(l->in) * setup->batch * sizeof(float);
}

static struct cnn_cuda_lrn lrn_of(const struct cnn_cuda *d, const struct cnn_layer *l)
{
    const struct cnn_layer_spec *s = l->spec;
    return (struct cnn_cuda_lrn){cnn_cuda_count(d, l->in),  l->in.c, s->size / 2, (s->size - 1) / 2,
                                 s->alpha / (float)s->size, s->beta, s->k};
}

static int lrn_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    return forward_done(cu_lrn(d->compute, d->type, lrn_of(d, l->plan), l->in[0], l->kept, l->out), l, err);
}

static int lrn_backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    return back_done(
        cu_lrn_back(d->compute, d->type, lrn_of(d, l->plan), l->in[0], l->kept, l->dout, l->din[0]), l, err);
}

const struct cnn_cuda_kind cnn_cuda_lrn = {0, lrn_needs, NULL, NULL, lrn_forward, lrn_backward};

/* ---- batch norm */

struct batchnorm {
    struct cnn_cuda_layer *add; /* which it computes too; NULL: none */
    float *used;                /* [4][channels], of the current pass: norm.cuh */
    float *coefficients;        /* [3][channels], for the backward pass */
    double *stats;              /* the batch's statistics, within those of all layers */
};

static void batchnorm_needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    (void)setup, (void)l;
    out->back_reads_in = CNN_READS_VALUE;
    out->can_overwrite_back = true;
}

/* The add of the layer's output and a value that is there before; NULL: there is none. */
static struct cnn_cuda_layer *add_of(struct cnn_cuda *d, const struct cnn_cuda_layer *l)
{
    struct cnn_cuda_layer *add = next_of(d, l, CNN_ADD);
    return add != NULL && add->plan->n_inputs == 2 && add->plan->inputs[1].value <= l->plan->index ? add
                                                                                                   : NULL;
}

static int batchnorm_create(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct batchnorm *s = l->state;
    struct cnn_cuda_layer *relu = cnn_cuda_relu_of(d, l);
    int rc = cnn_cuda_alloc(d, 4 * l->plan->in.c * sizeof(float), &s->used, err);

    if (relu != NULL) {
        l->has_relu = relu->is_merged = true;
        /* Its gradient would overwrite its output's. */
        l->has_relu_back = relu->is_merged_back =
            relu->sum[0] == NULL && relu->part == NULL && relu->din[0] == relu->dout && relu->dout == l->dout;
    }
    s->add = add_of(d, l);
    if (s->add != NULL)
        s->add->is_merged = true;

    s->stats = d->stats;
    for (size_t i = 0; i < l->plan->index; i++)
        s->stats += 2 * d->plan->layers[i].n_buffers;
    return rc == 0 ? cnn_cuda_alloc(d, 3 * l->plan->in.c * sizeof(float), &s->coefficients, err) : rc;
}

static struct cnn_cuda_norm norm_of(const struct cnn_cuda *d, const struct cnn_layer *l, bool has_relu)
{
    return (struct cnn_cuda_norm){.rows = (uint64_t)d->batch * l->in.h * l->in.w,
                                  .c = l->in.c,
                                  .epsilon = cnn_batchnorm_epsilon(l),
                                  .has_relu = has_relu};
}

static int batchnorm_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct batchnorm *s = l->state;
    const struct cnn_layer *p = l->plan;
    const struct cnn_cuda_norm norm = norm_of(d, p, s->add != NULL ? s->add->has_relu : l->has_relu);
    const float *scale = d->x + p->weight_at, *shift = d->x + p->bias_at;
    cudaError_t e = d->is_training ? cu_norm_measure(d->compute, d->type, norm, scale, shift, l->in[0],
                                                     d->sums, s->stats, s->used)
                                   : cu_norm_running(d->compute, norm, scale, shift, d->x + p->mean_at,
                                                     d->x + p->variance_at, s->used);
    if (e == cudaSuccess)
        e = cu_norm(d->compute, d->type, norm, s->used, l->in[0], s->add != NULL ? s->add->in[1] : NULL,
                    l->out);
    return forward_done(e, l, err);
}

static int batchnorm_backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct batchnorm *s = l->state;
    const struct cnn_layer *p = l->plan;

    return back_done(cu_norm_back(d->compute, d->type, norm_of(d, p, l->has_relu_back), s->used,
                                  d->x + p->weight_at, l->in[0], l->dout, d->sums, s->coefficients,
                                  d->g + p->weight_at, d->g + p->bias_at, l->din[0]),
                     l, err);
}

const struct cnn_cuda_kind cnn_cuda_batchnorm = {
    sizeof(struct batchnorm), batchnorm_needs, batchnorm_create, NULL, batchnorm_forward, batchnorm_backward};

/* ---- concat: rows of channels side by side */

static int concat_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const uint64_t rows = (uint64_t)d->batch * p->out.h * p->out.w;
    cudaError_t e = cudaSuccess;
    uint32_t from = 0;

    for (uint32_t k = 0; k < p->n_inputs && e == cudaSuccess; k++) {
        uint32_t c = p->inputs[k].shape.c;
        e = cu_copy_channels(d->compute, d->type, rows, c, l->in[k], c,
                             (char *)l->out + from * d->value_bytes, p->out.c);
        from += c;
    }
    return forward_done(e, l, err);
}

static int concat_backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const uint64_t rows = (uint64_t)d->batch * p->out.h * p->out.w;
    cudaError_t e = cudaSuccess;
    uint32_t from = 0;

    for (uint32_t k = 0; k < p->n_inputs && e == cudaSuccess; k++) {
        uint32_t c = p->inputs[k].shape.c;
        if (l->din[k] != NULL)
            e = cu_copy_channels(d->compute, d->type, rows, c, (char *)l->dout + from * d->value_bytes,
                                 p->out.c, l->din[k], c);
        from += c;
    }
    return back_done(e, l, err);
}

const struct cnn_cuda_kind cnn_cuda_concat = {0, needs_nothing, NULL, NULL, concat_forward, concat_backward};

/* ---- add */

static void add_needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    (void)setup, (void)l;
    out->can_overwrite = out->shares_gradient = true;
}

static int add_create(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct cnn_cuda_layer *relu = cnn_cuda_relu_of(d, l);

    (void)err;
    if (relu != NULL)
        l->has_relu = relu->is_merged = true;
    return 0;
}

static int add_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const size_t n = cnn_cuda_count(d, l->plan->in);
    const uint32_t inputs = l->plan->n_inputs;
    if (l->is_merged)
        return 0;
    cudaError_t e = cu_add(d->compute, d->type, n, l->has_relu && inputs == 2, l->in[0], l->in[1], l->out);

    for (uint32_t k = 2; k < inputs && e == cudaSuccess; k++)
        e = cu_add(d->compute, d->type, n, l->has_relu && k == inputs - 1, l->out, l->in[k], l->out);
    return forward_done(e, l, err);
}

/* Each input's gradient is the output's; nothing to do if they share memory. */
static int add_backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    cudaError_t e = cudaSuccess;

    for (uint32_t k = 0; k < l->plan->n_inputs && e == cudaSuccess; k++)
        e = copy(d, l->dout, l->din[k], cnn_cuda_count(d, l->plan->in));
    return back_done(e, l, err);
}

const struct cnn_cuda_kind cnn_cuda_add = {0, add_needs, add_create, NULL, add_forward, add_backward};
