/* fc.c: inner products. In float32 they run on the flat vectors: reordering weights to a blocked format would
 * cost more than it gains. In bf16 they take a bf16 copy of the weights in the library's format; sums, the
 * gradients of parameters, and logits are float32. An input in another layout than [C][H][W] is transposed
 * first. */
#include "nets/onednn/onednn.h"

#include <errno.h>

struct fc {
    dnnl_memory_t in, out, weight, bias, din, dout, dweight, dbias;
    dnnl_memory_t weight_forward, weight_back, dweight_back; /* in the library's formats */
    struct cnn_dnnl_op to_forward, forward, to_back, back_data, back_weights, from_back;
    void *turned; /* the input as [C*H*W], later its gradient; NULL: it already has this layout */
};

struct shapes {
    dnnl_memory_desc_t in, out, dout, weight, bias;
    dnnl_memory_desc_t weight_run, dweight_run; /* of the primitives */
    const dnnl_memory_desc_t *any_bias;         /* NULL: the layer has none */
};

static int describe(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct shapes *s,
                    struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    dnnl_dims_t in = {d->batch, p->fan_in}, out = {d->batch, p->out.c}, weight = {p->out.c, p->fan_in};
    dnnl_dims_t bias = {p->out.c};
    dnnl_status_t st;

    s->any_bias = p->n_biases > 0 ? &s->bias : NULL;
    dnnl_format_tag_t runs = d->type == dnnl_f32 ? dnnl_ab : dnnl_format_tag_any;

    st = dnnl_memory_desc_init_by_tag(&s->in, 2, in, d->type, dnnl_ab);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->out, 2, out, l->is_wide ? dnnl_f32 : d->type, dnnl_ab);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->dout, 2, out, d->type, dnnl_ab);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->weight, 2, weight, dnnl_f32, dnnl_ab);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->weight_run, 2, weight, d->type, runs);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->dweight_run, 2, weight, dnnl_f32, runs);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&s->bias, 1, bias, dnnl_f32, dnnl_x);
    return cnn_dnnl_check(st, "describe the inner product", l, err);
}

static int create_forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                          dnnl_primitive_desc_t *desc, struct ps_error *err)
{
    struct fc *f = l->state;
    dnnl_inner_product_desc_t op;
    int rc = cnn_dnnl_check(dnnl_inner_product_forward_desc_init(&op, dnnl_forward_training, &s->in,
                                                                 &s->weight_run, s->any_bias, &s->out),
                            "describe the inner product", l, err);
    if (rc < 0 || (rc = cnn_dnnl_desc(d, l, &op, NULL, desc, err)) < 0 ||
        (rc = cnn_dnnl_weights(d, l, *desc, dnnl_query_weights_md, f->weight, &f->weight_forward, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, f->weight, f->weight_forward, &f->to_forward, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, f->in},
                                    {DNNL_ARG_WEIGHTS, f->weight_forward},
                                    {DNNL_ARG_DST, f->out},
                                    {s->any_bias != NULL ? DNNL_ARG_BIAS : 0, f->bias},
                                    {0}};
    return cnn_dnnl_op_create(d, l, *desc, args, &f->forward, err);
}

static int create_back_weights(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                               dnnl_primitive_desc_t hint, struct ps_error *err)
{
    struct fc *f = l->state;
    dnnl_inner_product_desc_t op;
    dnnl_primitive_desc_t desc;
    int rc = cnn_dnnl_check(
        dnnl_inner_product_backward_weights_desc_init(&op, &s->in, &s->dweight_run, s->any_bias, &s->dout),
        "describe the inner product's weight gradient", l, err);
    if (rc < 0 || (rc = cnn_dnnl_desc(d, l, &op, hint, &desc, err)) < 0 ||
        (rc = cnn_dnnl_weights(d, l, desc, dnnl_query_diff_weights_md, f->dweight, &f->dweight_back, err)) <
            0 ||
        (rc = cnn_dnnl_reorder(d, l, f->dweight_back, f->dweight, &f->from_back, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, f->in},
                                    {DNNL_ARG_DIFF_DST, f->dout},
                                    {DNNL_ARG_DIFF_WEIGHTS, f->dweight_back},
                                    {s->any_bias != NULL ? DNNL_ARG_DIFF_BIAS : 0, f->dbias},
                                    {0}};
    return cnn_dnnl_op_create(d, l, desc, args, &f->back_weights, err);
}

static int create_back_data(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const struct shapes *s,
                            dnnl_primitive_desc_t hint, struct ps_error *err)
{
    struct fc *f = l->state;
    dnnl_inner_product_desc_t op;
    dnnl_primitive_desc_t desc;
    int rc = cnn_dnnl_check(dnnl_inner_product_backward_data_desc_init(&op, &s->in, &s->weight_run, &s->dout),
                            "describe the inner product's data gradient", l, err);
    if (rc < 0 || (rc = cnn_dnnl_desc(d, l, &op, hint, &desc, err)) < 0 ||
        (rc = cnn_dnnl_weights(d, l, desc, dnnl_query_weights_md, f->weight, &f->weight_back, err)) < 0 ||
        (rc = cnn_dnnl_reorder(d, l, f->weight, f->weight_back, &f->to_back, err)) < 0)
        return rc;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_DIFF_DST, f->dout}, {DNNL_ARG_WEIGHTS, f->weight_back}, {DNNL_ARG_DIFF_SRC, f->din}, {0}};
    return cnn_dnnl_op_create(d, l, desc, args, &f->back_data, err);
}

/* The transposed input is kept for the weights' gradient. */
static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    if (l->in_layout == CNN_DNNL_FLAT)
        n->back_reads_in = l->plan->trains ? CNN_READS_VALUE : CNN_READS_NOTHING;
    else
        n->kept_bytes = (size_t)d->batch * l->plan->fan_in * d->value_bytes;
    n->out_bytes = l->is_wide ? sizeof(float) : 0;
}

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct fc *f = l->state;
    struct shapes s;
    dnnl_primitive_desc_t desc;
    int rc;

    f->turned = l->kept;
    if ((rc = describe(d, l, &s, err)) < 0 || (rc = cnn_dnnl_memory(d, l, &s.in, NULL, &f->in, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.out, l->out, &f->out, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.weight, NULL, &f->weight, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.bias, NULL, &f->bias, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.in, f->turned != NULL ? f->turned : l->din[0], &f->din, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.dout, l->dout, &f->dout, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.weight, NULL, &f->dweight, err)) < 0 ||
        (rc = cnn_dnnl_memory(d, l, &s.bias, NULL, &f->dbias, err)) < 0 ||
        (rc = create_forward(d, l, &s, &desc, err)) < 0 || !cnn_goes_back(l->plan) ||
        (l->plan->trains && (rc = create_back_weights(d, l, &s, desc, err)) < 0) || !l->plan->wants_din)
        return rc;
    return create_back_data(d, l, &s, desc, err);
}

/* Transposes between [places][block] and [block][places], one block of channels at a time. */
static void turn(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, const void *from, void *to,
                 bool back)
{
    size_t places = (size_t)l->plan->in.h * l->plan->in.w, block = l->in_block, n = places * block;
    size_t n_blocks = d->batch * (l->plan->in.c / block);

#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n_blocks; i++)
        d->kernels->transpose(cnn_dnnl_in(d, from, i * n), cnn_dnnl_at(d, to, i * n), back ? block : places,
                              back ? places : block);
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    struct fc *f = l->state;

    if (f->turned != NULL)
        turn(d, l, l->in[0], f->turned, false);
    cnn_dnnl_bind(f->in, f->turned != NULL ? f->turned : l->in[0]);
    cnn_dnnl_bind(f->weight, x + l->plan->weight_at);
    cnn_dnnl_bind(f->bias, x + l->plan->bias_at);
    return cnn_dnnl_run(d, &f->to_forward) == dnnl_success && cnn_dnnl_run(d, &f->forward) == dnnl_success
               ? 0
               : -EIO;
}

/* x and the input are still bound from the forward pass; the weights' gradient is computed before the input's
 * gradient overwrites the input. */
static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    struct fc *f = l->state;

    (void)x;
    if (l->plan->trains) {
        cnn_dnnl_bind(f->dweight, g + l->plan->weight_at);
        cnn_dnnl_bind(f->dbias, g + l->plan->bias_at);
    }
    const struct cnn_dnnl_op *const ops[] = {&f->back_weights, &f->from_back, &f->to_back, &f->back_data};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (cnn_dnnl_run(d, ops[i]) != dnnl_success)
            return -EIO;
    if (f->turned != NULL && l->din[0] != NULL)
        turn(d, l, f->turned, l->din[0], true);
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_fc = {sizeof(struct fc), needs, create, NULL, forward, backward, NULL};
