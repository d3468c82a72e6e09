/* maxpool.c: our own loops, with one byte per output for the position of the maximum: oneDNN's kernel uses
 * four and is three times slower. Windows of more than 256 positions use two bytes. The work
 * is divided by images and blocks of channels. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <stdlib.h>

#define BYTE_PLACES 256

struct maxpool_op {
    struct cnn_pool pool; /* of one block of channels */
    bool is_wide;
    int32_t *argmax_at;
};

static uint32_t window_places(const struct cnn_layer *l)
{
    return l->window.kernel[0] * l->window.kernel[1];
}

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    n->kept_bytes = d->batch * cnn_shape_count(l->plan->out) * (window_places(l->plan) > BYTE_PLACES ? 2 : 1);
    n->back_reads_out = l->has_relu ? CNN_READS_SIGN : CNN_READS_NOTHING;
    n->passes_gradient = l->is_pooled;
}

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct maxpool_op *m = l->state;
    const struct cnn_layer *p = l->plan;
    bool flat = l->out_layout == CNN_DNNL_FLAT && !cnn_dnnl_is_same_either_way(p->out);
    uint32_t n = window_places(p), width = p->window.kernel[1];

    m->is_wide = n > BYTE_PLACES;
    m->argmax_at = cnn_dnnl_buffer(d, n * sizeof *m->argmax_at);
    if (m->argmax_at == NULL)
        return ps_fail(err, -ENOMEM, "no memory for layer '%s'", p->spec->name);
    for (uint32_t k = 0; k < n; k++)
        m->argmax_at[k] = (int32_t)((k / width * p->in.w + k % width) * l->in_block);
    m->pool = (struct cnn_pool){.in = {l->in_block, p->in.h, p->in.w},
                                .out = {l->in_block, p->out.h, p->out.w},
                                .kernel = {p->window.kernel[0], width},
                                .stride = {p->window.stride[0], p->window.stride[1]},
                                .pad = {p->window.pad[0], p->window.pad[1]},
                                .c_step = flat ? (size_t)p->out.h * p->out.w : 1,
                                .place_step = flat ? 1 : l->in_block,
                                .argmax_at = m->argmax_at};
    return 0;
}

static void destroy(struct cnn_dnnl_layer *l)
{
    free(((struct maxpool_op *)l->state)->argmax_at);
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    struct maxpool_op *m = l->state;
    size_t n_in = cnn_shape_count(m->pool.in), n_out = cnn_shape_count(m->pool.out);
    size_t n_blocks = d->batch * (l->plan->in.c / l->in_block);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n_blocks; i++) {
        const void *in = cnn_dnnl_in(d, l->in[0], i * n_in);
        void *out = cnn_dnnl_at(d, l->out, i * n_out);
        if (m->is_wide)
            d->kernels->maxpool_wide(&m->pool, in, out, (uint16_t *)l->kept + i * n_out);
        else
            d->kernels->maxpool(&m->pool, in, out, (uint8_t *)l->kept + i * n_out);
        if (l->has_relu)
            d->kernels->relu(out, n_out);
    }
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    struct maxpool_op *m = l->state;
    size_t n_in = cnn_shape_count(m->pool.in), n_out = cnn_shape_count(m->pool.out);
    size_t n_blocks = d->batch * (l->plan->in.c / l->in_block);

    (void)x, (void)g;
    if (l->is_pooled && !l->has_relu)
        return 0;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n_blocks; i++) {
        void *dout = cnn_dnnl_at(d, l->dout, i * n_out), *din = cnn_dnnl_at(d, l->din[0], i * n_in);
        if (l->has_relu)
            d->kernels->relu_back(dout, cnn_dnnl_at(d, l->out, i * n_out), n_out);
        if (m->is_wide)
            d->kernels->maxpool_wide_back(&m->pool, dout, (const uint16_t *)l->kept + i * n_out, din);
        else if (!l->is_pooled)
            d->kernels->maxpool_back(&m->pool, dout, (const uint8_t *)l->kept + i * n_out, din);
    }
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_maxpool = {
    sizeof(struct maxpool_op), needs, create, destroy, forward, backward, NULL};
