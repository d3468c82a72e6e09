#include "tests/bench/net/conv_limit.h"

#include <errno.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

enum pass { FORWARD, BACK_DATA, BACK_WEIGHTS, N_PASSES };

struct item {
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[4];
    dnnl_exec_arg_t args[4];
    int n_args;
};

struct conv_limit {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint32_t threads;
    double flops;
    size_t n_items;
    struct item items[];
};

/* The convolution with layouts chosen by the library. */
struct shapes {
    dnnl_memory_desc_t in, out, weight, bias;
    dnnl_dims_t stride, dilation, pad, pad_end;
};

static void describe(const struct cnn_layer *l, uint32_t batch, struct shapes *s)
{
    const struct cnn_window *w = &l->window;
    dnnl_dims_t in = {batch, l->in.c, l->in.h, l->in.w}, out = {batch, l->out.c, l->out.h, l->out.w};
    dnnl_dims_t weight = {l->out.c, l->in.c, w->kernel[0], w->kernel[1]}, bias = {l->out.c};
    dnnl_dims_t grouped = {l->groups, l->out.c / l->groups, l->in.c / l->groups, w->kernel[0], w->kernel[1]};

    dnnl_memory_desc_init_by_tag(&s->in, 4, in, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&s->out, 4, out, dnnl_f32, dnnl_format_tag_any);
    if (l->groups > 1)
        dnnl_memory_desc_init_by_tag(&s->weight, 5, grouped, dnnl_f32, dnnl_format_tag_any);
    else
        dnnl_memory_desc_init_by_tag(&s->weight, 4, weight, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&s->bias, 1, bias, dnnl_f32, dnnl_x);
    for (int k = 0; k < 2; k++) {
        dnnl_dim_t span = (dnnl_dim_t)(w->kernel[k] - 1) * w->dilation[k] + 1;
        s->stride[k] = w->stride[k];
        s->dilation[k] = w->dilation[k] - 1;
        s->pad[k] = w->pad[k];
        s->pad_end[k] = (dnnl_dim_t)((k == 0 ? l->out.h : l->out.w) - 1) * w->stride[k] + span -
                        (k == 0 ? l->in.h : l->in.w) - w->pad[k];
    }
}

static dnnl_status_t describe_pass(enum pass pass, const struct shapes *s, dnnl_convolution_desc_t *op)
{
    switch (pass) {
    case FORWARD:
        return dnnl_dilated_convolution_forward_desc_init(op, dnnl_forward_training, dnnl_convolution_direct,
                                                          &s->in, &s->weight, &s->bias, &s->out, s->stride,
                                                          s->dilation, s->pad, s->pad_end);
    case BACK_DATA:
        return dnnl_dilated_convolution_backward_data_desc_init(op, dnnl_convolution_direct, &s->in,
                                                                &s->weight, &s->out, s->stride, s->dilation,
                                                                s->pad, s->pad_end);
    default:
        return dnnl_dilated_convolution_backward_weights_desc_init(op, dnnl_convolution_direct, &s->in,
                                                                   &s->weight, &s->bias, &s->out, s->stride,
                                                                   s->dilation, s->pad, s->pad_end);
    }
}

/* The arguments of each pass, terminated by 0. */
static const struct {
    int arg;
    dnnl_query_t what;
} args_of[N_PASSES][4] = {
    {{DNNL_ARG_SRC, dnnl_query_src_md},
     {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
     {DNNL_ARG_BIAS, dnnl_query_weights_md},
     {DNNL_ARG_DST, dnnl_query_dst_md}},
    {{DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md},
     {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
     {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md},
     {0, dnnl_query_undef}},
    {{DNNL_ARG_SRC, dnnl_query_src_md},
     {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md},
     {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md},
     {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md}},
};

/* Small normal values: denormals and NaNs change the speed. */
static void fill(dnnl_memory_t memory, size_t bytes)
{
    void *data;
    if (dnnl_memory_get_data_handle(memory, &data) == dnnl_success)
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            ((float *)data)[i] = 0.001f * (float)(i % 17);
}

static int create_item(struct conv_limit *c, enum pass pass, dnnl_primitive_desc_t desc)
{
    struct item *item = &c->items[c->n_items++];

    if (dnnl_primitive_create(&item->primitive, desc) != dnnl_success)
        return -ENOTSUP;
    for (int k = 0; k < 4 && args_of[pass][k].arg != 0; k++) {
        int arg = args_of[pass][k].arg, is_bias = arg == DNNL_ARG_BIAS || arg == DNNL_ARG_DIFF_BIAS;
        const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(desc, args_of[pass][k].what, is_bias);
        if (dnnl_memory_create(&item->memories[k], md, c->engine, DNNL_MEMORY_ALLOCATE) != dnnl_success)
            return -ENOTSUP;
        fill(item->memories[k], dnnl_memory_desc_get_size(md));
        item->args[item->n_args++] = (dnnl_exec_arg_t){arg, item->memories[k]};
    }
    return 0;
}

static int create_layer(struct conv_limit *c, const struct cnn_layer *l, uint32_t batch)
{
    struct shapes s;
    dnnl_primitive_desc_t hint = NULL, desc;
    int rc = 0;

    describe(l, batch, &s);
    for (enum pass pass = FORWARD; pass < N_PASSES && rc == 0; pass++) {
        dnnl_convolution_desc_t op;
        if (pass == BACK_DATA && !l->wants_din)
            continue;
        if (describe_pass(pass, &s, &op) != dnnl_success ||
            dnnl_primitive_desc_create(&desc, &op, NULL, c->engine, hint) != dnnl_success) {
            rc = -ENOTSUP;
            break;
        }
        rc = create_item(c, pass, desc);
        c->flops += 2.0 * batch * (double)cnn_shape_count(l->out) * l->fan_in;
        if (pass == FORWARD)
            hint = desc;
        else
            dnnl_primitive_desc_destroy(desc);
    }
    if (hint != NULL)
        dnnl_primitive_desc_destroy(hint);
    return rc;
}

int conv_limit_create(const struct cnn_plan *plan, uint32_t batch, uint32_t threads, struct conv_limit **out)
{
    struct conv_limit *c = calloc(1, sizeof *c + plan->n_layers * N_PASSES * sizeof c->items[0]);
    int rc = 0;

    if (c == NULL)
        return -ENOMEM;
    omp_set_num_threads((int)threads);
    c->threads = threads;
    if (dnnl_engine_create(&c->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags) != dnnl_success)
        rc = -ENOTSUP;
    for (size_t i = 0; i < plan->n_layers && rc == 0; i++)
        if (plan->layers[i].spec->kind == CNN_CONV)
            rc = create_layer(c, &plan->layers[i], batch);
    if (rc == 0 && c->n_items == 0)
        rc = -ENOTSUP;
    if (rc < 0)
        conv_limit_destroy(c);
    else
        *out = c;
    return rc;
}

void conv_limit_destroy(struct conv_limit *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_items; i++) {
        for (int k = 0; k < 4; k++)
            dnnl_memory_destroy(c->items[i].memories[k]);
        dnnl_primitive_destroy(c->items[i].primitive);
    }
    dnnl_stream_destroy(c->stream);
    dnnl_engine_destroy(c->engine);
    free(c);
}

void conv_limit_run(struct conv_limit *c)
{
    for (size_t i = 0; i < c->n_items; i++)
        dnnl_primitive_execute(c->items[i].primitive, c->stream, c->items[i].n_args, c->items[i].args);
}

double conv_limit_flops(const struct conv_limit *c)
{
    return c->flops;
}
