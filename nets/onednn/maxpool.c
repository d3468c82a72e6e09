/* maxpool.c: our own loops, with one byte per output for the position of the maximum: oneDNN's kernel uses
 * four and is three times slower. Windows of more than 256 positions use two bytes. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <stdlib.h>

#define BYTE_PLACES 256

struct maxpool_op {
    struct cnn_pool pool; /* of a whole block of channels */
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
                                .n_channels = l->in_block,
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

/* A part of the work: the pool over some channels, and where they begin. */
struct piece {
    struct cnn_pool pool;
    size_t in_at, out_at, argmax_at;
};

static struct piece piece_of(const struct cnn_dnnl_layer *l, uint32_t n_parts, size_t k)
{
    const struct maxpool_op *m = l->state;
    struct cnn_dnnl_part p = cnn_dnnl_part_of(l, n_parts, k);
    size_t n_out = cnn_shape_count(m->pool.out);
    struct piece piece = {m->pool, p.block * cnn_shape_count(m->pool.in) + p.c,
                          p.block * n_out + p.c * m->pool.c_step, p.block * n_out + p.c};

    piece.pool.n_channels = p.n;
    return piece;
}

/* Contiguous values of a piece's output: runs of *n, *step apart. Returns how many. */
static size_t runs_of(const struct piece *p, size_t *n, size_t *step)
{
    size_t places = (size_t)p->pool.out.h * p->pool.out.w;
    bool is_whole = p->pool.n_channels == p->pool.out.c || p->pool.c_step != 1;

    *n = is_whole ? p->pool.n_channels * places : p->pool.n_channels;
    *step = p->pool.place_step;
    return is_whole ? 1 : places;
}

static void clamp(const struct cnn_dnnl *d, const struct piece *p, void *out)
{
    size_t n, step, runs = runs_of(p, &n, &step);
    for (size_t k = 0; k < runs; k++)
        d->kernels->relu(cnn_dnnl_at(d, out, k * step), n);
}

static void clamp_back(const struct cnn_dnnl *d, const struct piece *p, void *dout, const void *out)
{
    size_t n, step, runs = runs_of(p, &n, &step);
    for (size_t k = 0; k < runs; k++)
        d->kernels->relu_back(cnn_dnnl_at(d, dout, k * step), cnn_dnnl_in(d, out, k * step), n);
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    const struct maxpool_op *m = l->state;
    uint32_t n_parts = cnn_dnnl_n_parts(d, l);
    size_t n = cnn_dnnl_n_blocks(d, l) * n_parts;

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n; i++) {
        struct piece p = piece_of(l, n_parts, i);
        const void *in = cnn_dnnl_in(d, l->in[0], p.in_at);
        void *out = cnn_dnnl_at(d, l->out, p.out_at);
        if (m->is_wide)
            d->kernels->maxpool_wide(&p.pool, in, out, (uint16_t *)l->kept + p.argmax_at);
        else
            d->kernels->maxpool(&p.pool, in, out, (uint8_t *)l->kept + p.argmax_at);
        if (l->has_relu)
            clamp(d, &p, out);
    }
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    const struct maxpool_op *m = l->state;
    uint32_t n_parts = cnn_dnnl_n_parts(d, l);
    size_t n = cnn_dnnl_n_blocks(d, l) * n_parts;

    (void)x, (void)g;
    if (l->is_pooled && !l->has_relu)
        return 0;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n; i++) {
        struct piece p = piece_of(l, n_parts, i);
        void *dout = cnn_dnnl_at(d, l->dout, p.out_at), *din = cnn_dnnl_at(d, l->din[0], p.in_at);
        if (l->has_relu)
            clamp_back(d, &p, dout, cnn_dnnl_in(d, l->out, p.out_at));
        if (m->is_wide)
            d->kernels->maxpool_wide_back(&p.pool, dout, (const uint16_t *)l->kept + p.argmax_at, din);
        else if (!l->is_pooled)
            d->kernels->maxpool_back(&p.pool, dout, (const uint8_t *)l->kept + p.argmax_at, din);
    }
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_maxpool = {
    sizeof(struct maxpool_op), needs, create, destroy, forward, backward, NULL};
