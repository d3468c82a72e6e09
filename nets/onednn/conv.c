/* conv.c: convolutions run on weights in the library's own blocked format: from plain ones it falls to gemm
 * kernels at half the speed. The reorders from x and to g are under 1 % of a step, and their target is one
 * buffer for all layers. */
#include "nets/onednn/onednn.h"

#include <errno.h>

struct conv {
    dnnl_memory_t in, out, weight, bias, din, dout, dweight,
        dbias;                                               /* weight, bias of x; dweight, dbias of g */
    dnnl_memory_t weight_forward, weight_back, dweight_back; /* in the library's formats */
    struct cnn_dnnl_op to_forward, forward, to_back, back_data, back_weights, from_back;
    struct cnn_dnnl_pooled *pooled; /* NULL: the library goes backward */
};

struct shapes {
    dnnl_memory_desc_t in, out, weight, bias, weight_any;
    dnnl_dims_t stride, dilation, pad, pad_end;
    const dnnl_memory_desc_t *any_bias; /* NULL: the layer has none */
};

/* The far padding is what makes (in + pad + pad_end - span) / stride + 1 come out exactly. */
static dnnl_dim_t end_pad(const struct cnn_window *w, int side, uint32_t in, uint32_t out)
{
    dnnl_dim_t span = (dnnl_dim_t)(w->kernel[side] - 1) * w->dilation[side] + 1;
    return (dnnl_dim_t)(out - 1) * w->stride[side] + span - in - w->pad[side];
}

static int describe(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct shapes *s,
                    struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const struct cnn_window *w = &p->window;
    dnnl_dims_t in = {d->batch, p->in.c, p->in.h, p->in.w}, out = {d->batch, p->out.c, p->out.h, p->out.w};
    dnnl_dims_t weight = {p->out.c, p->in.c, w->kernel[0], w->kernel[1]}, bias = {p->out.c};
    dnnl_dims_t grouped = {p->groups, p->out.c / p->groups, p->in.c / p->groups, w->kernel[0], w->kernel[1]};
    bool is_grouped = p->groups > 1;
    const dnnl_dim_t *dims = is_grouped ? grouped : weight;
    int n_dims = is_grouped ? 5 : 4;
    dnnl_status_t st;

    for (int side = 0; side < 2; side++) {
        s->stride[side] = w->stride[side];
        s->dilation[side] = w->dilation[side] - 1; /* the library counts the gap */
        s->pad[side] = w->pad[side];
    }
    s->pad_end[0] = end_pad(w, 0, p->in.h, p->out.h);
    s->pad_end[1] = end_pad(w, 1, p->in.w, p->out.w);
    s->any_bias = p->n_biases > 0 ? &s->bias : NULL;
    st = dnnl_memory_desc_init_by_tag(&s->in, 4, in, dnnl_f32, dnnl_nhwc);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->out, 4, out, dnnl_f32, dnnl_nhwc);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->weight, n_dims, dims, dnnl_f32,
                                          is_grouped ? dnnl_goihw : dnnl_oihw);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->weight_any, n_dims, dims, dnnl_f32, dnnl_format_tag_any);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->bias, 1, bias, dnnl_f32, dnnl_x);
    return cnn_dnnl_check(st, "describe the convolution", l, err);
}

/* A memory in the format `desc` wants for its weights, or `flat` itself where that is the format. */
static int library_memory(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, dnnl_primitive_desc_t desc,
                          dnnl_query_t what, dnnl_memory_t flat, dnnl_memory_t *out, struct ps_error *err)
{
    const dnnl_memory_desc_t *want = dnnl_primitive_desc_query_md(desc, what, 0), *have;

    dnnl_memory_get_memory_desc(flat, &have);
    if (dnnl_memory_desc_equal(want, have)) {
        *out = flat;
        return 0;
    }
    return cnn_dnnl_share(d, &d->weights, l, want, out, err);
}

static int create_forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                          dnnl_primitive_desc_t *desc, struct ps_error *err)
{
    struct conv *c = l->state;
    dnnl_convolution_desc_t op;
    int rc = cnn_dnnl_check(dnnl_dilated_convolution_forward_desc_init(
                                &op, dnnl_forward_training, dnnl_convolution_direct, &s->in, &s->weight_any,
                                s->any_bias, &s->out, s->stride, s->dilation, s->pad, s->pad_end),
                            "describe the convolution", l, err);
    if (rc < 0 || (rc = cnn_dnnl_desc(d, l, &op, NULL, desc, err)) < 0)
        return rc;
    if ((rc = library_memory(d, l, *desc, dnnl_query_weights_md, c->weight, &c->weight_forward, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, c->weight, c->weight_forward, &c->to_forward, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, c->in},
                                    {DNNL_ARG_WEIGHTS, c->weight_forward},
                                    {DNNL_ARG_DST, c->out},
                                    {s->any_bias != NULL ? DNNL_ARG_BIAS : 0, c->bias},
                                    {0}};
    return cnn_dnnl_op(d, l, *desc, args, &c->forward, err);
}

static int create_back_weights(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                               dnnl_primitive_desc_t hint, struct ps_error *err)
{
    struct conv *c = l->state;
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t desc;
    int rc = cnn_dnnl_check(dnnl_dilated_convolution_backward_weights_desc_init(
                                &op, dnnl_convolution_direct, &s->in, &s->weight_any, s->any_bias, &s->out,
                                s->stride, s->dilation, s->pad, s->pad_end),
                            "describe the convolution's weight gradient", l, err);
    if (rc < 0 || (rc = cnn_dnnl_desc(d, l, &op, hint, &desc, err)) < 0)
        return rc;
    if ((rc = library_memory(d, l, desc, dnnl_query_diff_weights_md, c->dweight, &c->dweight_back, err)) <
            0 ||
        (rc = cnn_dnnl_reorder(d, l, c->dweight_back, c->dweight, &c->from_back, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, c->in},
                                    {DNNL_ARG_DIFF_DST, c->dout},
                                    {DNNL_ARG_DIFF_WEIGHTS, c->dweight_back},
                                    {s->any_bias != NULL ? DNNL_ARG_DIFF_BIAS : 0, c->dbias},
                                    {0}};
    return cnn_dnnl_op(d, l, desc, args, &c->back_weights, err);
}

static int create_back_data(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                            dnnl_primitive_desc_t hint, struct ps_error *err)
{
    struct conv *c = l->state;
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t desc;
    int rc = cnn_dnnl_check(
        dnnl_dilated_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &s->in, &s->weight_any,
                                                         &s->out, s->stride, s->dilation, s->pad, s->pad_end),
        "describe the convolution's data gradient", l, err);
    if (rc < 0 || (rc = cnn_dnnl_desc(d, l, &op, hint, &desc, err)) < 0)
        return rc;
    if ((rc = library_memory(d, l, desc, dnnl_query_weights_md, c->weight, &c->weight_back, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, c->weight, c->weight_back, &c->to_back, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_DIFF_DST, c->dout}, {DNNL_ARG_WEIGHTS, c->weight_back}, {DNNL_ARG_DIFF_SRC, c->din}, {0}};
    return cnn_dnnl_op(d, l, desc, args, &c->back_data, err);
}

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d;
    n->back_reads_in = l->plan->trains ? CNN_READS_VALUE : CNN_READS_NOTHING;
}

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct conv *c = l->state;
    struct shapes s;
    dnnl_primitive_desc_t desc;
    int rc;

    if ((rc = describe(d, l, &s, err)) < 0 || (rc = cnn_dnnl_memory(d, l, &s.in, NULL, &c->in, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.out, l->out, &c->out, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.weight, NULL, &c->weight, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.bias, NULL, &c->bias, err)) < 0 ||
        (rc = create_forward(d, l, &s, &desc, err)) < 0 || !cnn_goes_back(l->plan))
        return rc;
    if (l->pool != NULL)
        return cnn_dnnl_pooled_create(d, l, &c->pooled, err);

    if ((rc = cnn_dnnl_memory(d, l, &s.out, l->dout, &c->dout, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.weight, NULL, &c->dweight, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.bias, NULL, &c->dbias, err)) < 0 ||
        (l->plan->trains && (rc = create_back_weights(d, l, &s, desc, err)) < 0) || l->din[0] == NULL)
        return rc;
    if ((rc = cnn_dnnl_memory(d, l, &s.in, l->din[0], &c->din, err)) < 0)
        return rc;
    return create_back_data(d, l, &s, desc, err);
}

static void destroy(struct cnn_dnnl_layer *l)
{
    cnn_dnnl_pooled_destroy(((struct conv *)l->state)->pooled);
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    struct conv *c = l->state;

    cnn_dnnl_bind(c->in, l->in[0]);
    cnn_dnnl_bind(c->weight, x + l->plan->weight_at);
    cnn_dnnl_bind(c->bias, x + l->plan->bias_at);
    return cnn_dnnl_run(d, &c->to_forward) != dnnl_success || cnn_dnnl_run(d, &c->forward) != dnnl_success
               ? -EIO
               : 0;
}

/* x and the input are still bound by forward. */
static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    struct conv *c = l->state;

    if (c->pooled != NULL) {
        cnn_dnnl_pooled_backward(d, l, c->pooled, x, g);
        return 0;
    }
    if (l->plan->trains) {
        cnn_dnnl_bind(c->dweight, g + l->plan->weight_at);
        cnn_dnnl_bind(c->dbias, g + l->plan->bias_at);
    }
    if (cnn_dnnl_run(d, &c->back_weights) != dnnl_success || cnn_dnnl_run(d, &c->from_back) != dnnl_success)
        return -EIO;
    if (l->din[0] == NULL)
        return 0;
    return cnn_dnnl_run(d, &c->to_back) != dnnl_success || cnn_dnnl_run(d, &c->back_data) != dnnl_success
               ? -EIO
               : 0;
}

const struct cnn_dnnl_kind cnn_dnnl_conv = {
    sizeof(struct conv), needs, create, destroy, forward, backward, NULL};
