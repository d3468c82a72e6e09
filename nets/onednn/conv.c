/* conv.c: convolutions. Weights are reordered into the library's blocked format: with plain weights it uses
 * gemm kernels at half the speed. The reorders from x and to g take less than 1 % of a step and share one
 * buffer.
 *
 * Kernels of 3 x 3 at stride 1 use Winograd's algorithm, F(4 x 4, 3 x 3) of Lavin and Gray 2016, in all three
 * passes. It takes a quarter of the products; in float32 its error is about 1e-6 of the largest output. In
 * bf16 the library has no such kernels. Its bf16 kernels read and write activations in bf16, take a bf16 copy
 * of the weights, and add in float32; gradients of weights and biases stay float32. */
#include "nets/onednn/onednn.h"

#include <errno.h>

/* A tensor in the layout of its value and in that of the primitives; the same memory if the layouts are
 * equal. */
struct side {
    dnnl_memory_t value, run;
    struct cnn_dnnl_op to_run, from_run;
};

struct conv {
    struct side in, out, din, dout;
    dnnl_memory_t weight, bias, dweight, dbias;              /* weight, bias of x; dweight, dbias of g */
    dnnl_memory_t weight_forward, weight_back, dweight_back; /* in the library's formats */
    struct cnn_dnnl_op to_forward, forward, to_back, back_data, back_weights, from_back;
    struct cnn_dnnl_pooled *pooled; /* NULL: the library runs the backward pass */
};

struct shapes {
    dnnl_memory_desc_t in, out;                 /* in the layout of the primitives */
    dnnl_memory_desc_t value, value_out;        /* in the layout of the values */
    dnnl_memory_desc_t weight, bias;            /* of x and g: float32 */
    dnnl_memory_desc_t weight_any, dweight_any; /* of the primitives, in a format of the library */
    dnnl_dims_t stride, dilation, pad, pad_end;
    const dnnl_memory_desc_t *any_bias; /* NULL: the layer has none */
    dnnl_alg_kind_t method;
};

/* The end padding for which (in + pad + pad_end - span) / stride + 1 is exactly the output size. */
static dnnl_dim_t end_pad(const struct cnn_window *w, int side, uint32_t in, uint32_t out)
{
    dnnl_dim_t span = (dnnl_dim_t)(w->kernel[side] - 1) * w->dilation[side] + 1;
    return (dnnl_dim_t)(out - 1) * w->stride[side] + span - in - w->pad[side];
}

static void describe_window(const struct cnn_layer *p, struct shapes *s)
{
    const struct cnn_window *w = &p->window;

    for (int side = 0; side < 2; side++) {
        s->stride[side] = w->stride[side];
        s->dilation[side] = w->dilation[side] - 1; /* the library counts the gap */
        s->pad[side] = w->pad[side];
    }
    s->pad_end[0] = end_pad(w, 0, p->in.h, p->out.h);
    s->pad_end[1] = end_pad(w, 1, p->in.w, p->out.w);
    s->any_bias = p->n_biases > 0 ? &s->bias : NULL;
}

static dnnl_status_t describe_weights(const struct cnn_dnnl *d, const struct cnn_layer *p, struct shapes *s)
{
    const struct cnn_window *w = &p->window;
    dnnl_dims_t weight = {p->out.c, p->in.c, w->kernel[0], w->kernel[1]}, bias = {p->out.c};
    dnnl_dims_t grouped = {p->groups, p->out.c / p->groups, p->in.c / p->groups, w->kernel[0], w->kernel[1]};
    bool is_grouped = p->groups > 1;
    const dnnl_dim_t *dims = is_grouped ? grouped : weight;
    int n_dims = is_grouped ? 5 : 4;
    dnnl_status_t st =
        dnnl_memory_desc_init_by_tag(&s->weight, n_dims, dims, dnnl_f32, is_grouped ? dnnl_goihw : dnnl_oihw);

    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->weight_any, n_dims, dims, d->type, dnnl_format_tag_any);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->dweight_any, n_dims, dims, dnnl_f32, dnnl_format_tag_any);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->bias, 1, bias, dnnl_f32, dnnl_x);
    return st;
}

/* The tag of a value's layout; `runs` if that describes the value too. */
static dnnl_format_tag_t tag_of(enum cnn_dnnl_layout layout, struct cnn_shape s, dnnl_format_tag_t runs)
{
    if (layout == CNN_DNNL_BLOCKED)
        return dnnl_nChw16c;
    if (cnn_dnnl_is_same_either_way(s))
        return runs == dnnl_nchw ? dnnl_nchw : dnnl_nhwc;
    return layout == CNN_DNNL_FLAT ? dnnl_nchw : dnnl_nhwc;
}

/* Chooses the layouts in which the primitives run. */
static void choose_tags(const struct cnn_dnnl_layer *l, dnnl_format_tag_t *in, dnnl_format_tag_t *out)
{
    bool blocked_out = l->out_layout == CNN_DNNL_BLOCKED;
    bool planes_in = l->plan->inputs[0].value == 0 && l->in_layout == CNN_DNNL_FLAT;

    *in = *out = dnnl_nhwc;
    if (l->is_winograd || (blocked_out && (l->in_layout == CNN_DNNL_BLOCKED || planes_in)))
        *in = *out = dnnl_nChw16c;
    if (planes_in && !l->is_winograd && blocked_out)
        *in = dnnl_nchw;
}

static int describe(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct shapes *s,
                    struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    dnnl_dims_t in = {d->batch, p->in.c, p->in.h, p->in.w}, out = {d->batch, p->out.c, p->out.h, p->out.w};
    dnnl_format_tag_t tag_in, tag_out;
    dnnl_status_t st;

    choose_tags(l, &tag_in, &tag_out);
    s->method = l->is_winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    describe_window(p, s);
    st = dnnl_memory_desc_init_by_tag(&s->in, 4, in, d->type, tag_in);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->out, 4, out, d->type, tag_out);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->value, 4, in, d->type, tag_of(l->in_layout, p->in, tag_in));
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->value_out, 4, out, d->type,
                                          tag_of(l->out_layout, p->out, tag_out));
    if (st == dnnl_success)
        st = describe_weights(d, p, s);
    return cnn_dnnl_check(st, "describe the convolution", l, err);
}

enum pass { FORWARD, BACK_DATA, BACK_WEIGHTS, N_PASSES };

static dnnl_status_t describe_pass(enum pass pass, const struct shapes *s, dnnl_convolution_desc_t *op)
{
    switch (pass) {
    case FORWARD:
        return dnnl_dilated_convolution_forward_desc_init(op, dnnl_forward_training, s->method, &s->in,
                                                          &s->weight_any, s->any_bias, &s->out, s->stride,
                                                          s->dilation, s->pad, s->pad_end);
    case BACK_DATA:
        return dnnl_dilated_convolution_backward_data_desc_init(
            op, s->method, &s->in, &s->weight_any, &s->out, s->stride, s->dilation, s->pad, s->pad_end);
    default:
        return dnnl_dilated_convolution_backward_weights_desc_init(op, s->method, &s->in, &s->dweight_any,
                                                                   s->any_bias, &s->out, s->stride,
                                                                   s->dilation, s->pad, s->pad_end);
    }
}

/* Whether the library has all three passes. */
static bool library_can(const struct cnn_dnnl *d, const struct shapes *s)
{
    dnnl_primitive_desc_t hint = NULL, desc;
    dnnl_convolution_desc_t op;
    bool can = true;

    for (enum pass pass = FORWARD; pass < N_PASSES && can; pass++) {
        can = describe_pass(pass, s, &op) == dnnl_success &&
              dnnl_primitive_desc_create(&desc, &op, d->attr, d->engine, hint) == dnnl_success;
        if (!can)
            break;
        if (pass == FORWARD)
            hint = desc;
        else
            dnnl_primitive_desc_destroy(desc);
    }
    if (hint != NULL)
        dnnl_primitive_desc_destroy(hint);
    return can;
}

/* A tile of 4 x 4 outputs that crosses the edge costs as much as a full one. There is no gain if the tiles
 * cover 1.6 times the outputs or more, as for sides of 5 or less, nor with fewer than 32 channels. */
static bool is_worth_it(const struct cnn_layer *p)
{
    const struct cnn_window *w = &p->window;
    uint64_t tiles = (uint64_t)((p->out.h + 3) / 4) * ((p->out.w + 3) / 4) * 16;

    return w->kernel[0] == 3 && w->kernel[1] == 3 && w->stride[0] == 1 && w->stride[1] == 1 &&
           w->dilation[0] == 1 && w->dilation[1] == 1 && p->groups == 1 && p->in.c % CNN_DNNL_BLOCK == 0 &&
           p->out.c % CNN_DNNL_BLOCK == 0 && p->in.c >= 32 && p->out.c >= 32 &&
           10 * tiles < 16 * (uint64_t)p->out.h * p->out.w;
}

bool cnn_dnnl_can_winograd(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l)
{
    struct cnn_dnnl_layer as = *l;
    struct shapes s;

    if (d->type != dnnl_f32 || l->plan->spec->kind != CNN_CONV || !is_worth_it(l->plan))
        return false;
    as.is_winograd = true;
    return describe(d, &as, &s, NULL) == 0 && library_can(d, &s);
}

/* lies: the layout of the value at `data` (NULL: bound later); runs: the layout of the primitives. */
static int make_side(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, const dnnl_memory_desc_t *lies,
                     const dnnl_memory_desc_t *runs, void *data, struct cnn_dnnl_shared *shared,
                     struct side *out, struct ps_error *err)
{
    int rc = cnn_dnnl_memory(d, l, lies, data, &out->value, err);

    out->run = out->value;
    if (rc < 0 || dnnl_memory_desc_equal(lies, runs))
        return rc;
    return cnn_dnnl_share(d, shared, l, runs, &out->run, err);
}

static int create_desc(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, enum pass pass,
                       const struct shapes *s, dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out,
                       struct ps_error *err)
{
    dnnl_convolution_desc_t op;
    int rc = cnn_dnnl_check(describe_pass(pass, s, &op), "describe the convolution", l, err);

    return rc < 0 ? rc : cnn_dnnl_desc(d, l, &op, hint, out, err);
}

static int create_forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                          dnnl_primitive_desc_t *desc, struct ps_error *err)
{
    struct conv *c = l->state;
    int rc = create_desc(d, l, FORWARD, s, NULL, desc, err);

    if (rc < 0 ||
        (rc = cnn_dnnl_weights(d, l, *desc, dnnl_query_weights_md, c->weight, &c->weight_forward, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, c->weight, c->weight_forward, &c->to_forward, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, c->in.run},
                                    {DNNL_ARG_WEIGHTS, c->weight_forward},
                                    {DNNL_ARG_DST, c->out.run},
                                    {s->any_bias != NULL ? DNNL_ARG_BIAS : 0, c->bias},
                                    {0}};
    return cnn_dnnl_op_create(d, l, *desc, args, &c->forward, err);
}

static int create_back_weights(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                               dnnl_primitive_desc_t hint, struct ps_error *err)
{
    struct conv *c = l->state;
    dnnl_primitive_desc_t desc;
    int rc = create_desc(d, l, BACK_WEIGHTS, s, hint, &desc, err);

    if (rc < 0 ||
        (rc = cnn_dnnl_weights(d, l, desc, dnnl_query_diff_weights_md, c->dweight, &c->dweight_back, err)) <
            0 ||
        (rc = cnn_dnnl_reorder(d, l, c->dweight_back, c->dweight, &c->from_back, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, c->in.run},
                                    {DNNL_ARG_DIFF_DST, c->dout.run},
                                    {DNNL_ARG_DIFF_WEIGHTS, c->dweight_back},
                                    {s->any_bias != NULL ? DNNL_ARG_DIFF_BIAS : 0, c->dbias},
                                    {0}};
    return cnn_dnnl_op_create(d, l, desc, args, &c->back_weights, err);
}

static int create_back_data(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                            dnnl_primitive_desc_t hint, struct ps_error *err)
{
    struct conv *c = l->state;
    dnnl_primitive_desc_t desc;
    int rc = create_desc(d, l, BACK_DATA, s, hint, &desc, err);

    if (rc < 0 ||
        (rc = cnn_dnnl_weights(d, l, desc, dnnl_query_weights_md, c->weight, &c->weight_back, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, c->weight, c->weight_back, &c->to_back, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_DIFF_DST, c->dout.run},
                                    {DNNL_ARG_WEIGHTS, c->weight_back},
                                    {DNNL_ARG_DIFF_SRC, c->din.run},
                                    {0}};
    return cnn_dnnl_op_create(d, l, desc, args, &c->back_data, err);
}

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d;
    n->back_reads_in = l->plan->trains ? CNN_READS_VALUE : CNN_READS_NOTHING;
}

/* The library's backward pass; hint: the descriptor of the forward pass. */
static int create_back(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                       dnnl_primitive_desc_t hint, struct ps_error *err)
{
    struct conv *c = l->state;
    int rc;

    if ((rc = make_side(d, l, &s->value_out, &s->out, l->dout, &d->sides[1], &c->dout, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, c->dout.value, c->dout.run, &c->dout.to_run, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s->weight, NULL, &c->dweight, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s->bias, NULL, &c->dbias, err)) < 0 ||
        (l->plan->trains && (rc = create_back_weights(d, l, s, hint, err)) < 0) || !l->plan->wants_din)
        return rc;
    if ((rc = make_side(d, l, &s->value, &s->in, l->din[0], &d->sides[0], &c->din, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, c->din.run, c->din.value, &c->din.from_run, err)) < 0)
        return rc;
    return create_back_data(d, l, s, hint, err);
}

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct conv *c = l->state;
    struct shapes s;
    dnnl_primitive_desc_t desc;
    int rc;

    if ((rc = describe(d, l, &s, err)) < 0 ||
        (rc = make_side(d, l, &s.value, &s.in, NULL, &d->sides[0], &c->in, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, c->in.value, c->in.run, &c->in.to_run, err)) < 0 ||
        (rc = make_side(d, l, &s.value_out, &s.out, l->out, &d->sides[1], &c->out, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, c->out.run, c->out.value, &c->out.from_run, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.weight, NULL, &c->weight, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.bias, NULL, &c->bias, err)) < 0 ||
        (rc = create_forward(d, l, &s, &desc, err)) < 0 || !cnn_goes_back(l->plan))
        return rc;
    if (l->pool != NULL)
        return d->only_plans ? 0 : cnn_dnnl_pooled_create(d, l, &c->pooled, err);
    return create_back(d, l, &s, desc, err);
}

static void destroy(struct cnn_dnnl_layer *l)
{
    cnn_dnnl_pooled_destroy(((struct conv *)l->state)->pooled);
}

/* Runs the operations in order; skips those without a primitive. */
static int run_primitives(struct cnn_dnnl *d, const struct cnn_dnnl_op *const *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (cnn_dnnl_run(d, ops[i]) != dnnl_success)
            return -EIO;
    return 0;
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    struct conv *c = l->state;
    const struct cnn_dnnl_op *const ops[] = {&c->in.to_run, &c->to_forward, &c->forward, &c->out.from_run};

    cnn_dnnl_bind(c->in.value, l->in[0]);
    cnn_dnnl_bind(c->weight, x + l->plan->weight_at);
    cnn_dnnl_bind(c->bias, x + l->plan->bias_at);
    return run_primitives(d, ops, 4);
}

/* x and the input are still bound from the forward pass. */
static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    struct conv *c = l->state;
    const struct cnn_dnnl_op *const weights[] = {&c->in.to_run, &c->back_weights, &c->from_back};
    const struct cnn_dnnl_op *const data[] = {&c->to_back, &c->back_data, &c->din.from_run};

    if (c->pooled != NULL) {
        cnn_dnnl_pooled_backward(d, l, c->pooled, x, g);
        return 0;
    }
    if (cnn_dnnl_run(d, &c->dout.to_run) != dnnl_success)
        return -EIO;
    if (l->plan->trains) {
        cnn_dnnl_bind(c->dweight, g + l->plan->weight_at);
        cnn_dnnl_bind(c->dbias, g + l->plan->bias_at);
        if (run_primitives(d, weights, 3) < 0)
            return -EIO;
    }
    return l->din[0] != NULL ? run_primitives(d, data, 3) : 0;
}

const struct cnn_dnnl_kind cnn_dnnl_conv = {
    sizeof(struct conv), needs, create, destroy, forward, backward, NULL};
