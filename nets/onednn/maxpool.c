/* maxpool.c: our own loops, with one byte per output for the position of the maximum: oneDNN's kernel uses
 * four and is three times slower. Windows of more than 256 positions use plain loops with two bytes. The work
 * is divided by images and blocks of channels. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* One window of one channel; in and out point to that channel. */
static void wide_window(const struct maxpool_op *m, const float *in, uint32_t oy, uint32_t ox, float *out,
                        uint16_t *argmax)
{
    const struct cnn_pool *p = &m->pool;
    int64_t top = (int64_t)oy * p->stride[0] - p->pad[0], left = (int64_t)ox * p->stride[1] - p->pad[1];
    bool found = false;

    for (uint32_t k = 0; k < p->kernel[0] * p->kernel[1]; k++) {
        int64_t y = top + k / p->kernel[1], x = left + k % p->kernel[1];
        if (y < 0 || x < 0 || y >= p->in.h || x >= p->in.w)
            continue;
        float v = in[(y * p->in.w + x) * p->in.c];
        if (!found || v > *out || v != v) { /* a NaN wins */
            *out = v;
            *argmax = (uint16_t)k;
            found = true;
        }
    }
}

static void wide_forward(const struct maxpool_op *m, const float *in, float *out, uint16_t *argmax)
{
    const struct cnn_pool *p = &m->pool;

    for (uint32_t k = 0; k < p->out.h * p->out.w; k++)
        for (uint32_t c = 0; c < p->in.c; c++)
            wide_window(m, in + c, k / p->out.w, k % p->out.w, &out[c * p->c_step + k * p->place_step],
                        &argmax[(size_t)k * p->in.c + c]);
}

static void wide_backward(const struct maxpool_op *m, const float *dout, const uint16_t *argmax, float *din)
{
    const struct cnn_pool *p = &m->pool;

    memset(din, 0, cnn_shape_count(p->in) * sizeof *din);
    for (uint32_t k = 0; k < p->out.h * p->out.w; k++) {
        int64_t top = (int64_t)(k / p->out.w) * p->stride[0] - p->pad[0];
        int64_t left = (int64_t)(k % p->out.w) * p->stride[1] - p->pad[1];
        int64_t start = (top * p->in.w + left) * p->in.c;
        for (uint32_t c = 0; c < p->in.c; c++)
            din[start + m->argmax_at[argmax[(size_t)k * p->in.c + c]] + c] +=
                dout[c * p->c_step + k * p->place_step];
    }
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    struct maxpool_op *m = l->state;
    size_t n_in = cnn_shape_count(m->pool.in), n_out = cnn_shape_count(m->pool.out);
    size_t n_blocks = d->batch * (l->plan->in.c / l->in_block);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n_blocks; i++) {
        if (m->is_wide)
            wide_forward(m, l->in[0] + i * n_in, l->out + i * n_out, (uint16_t *)l->kept + i * n_out);
        else
            d->kernels->maxpool(&m->pool, l->in[0] + i * n_in, l->out + i * n_out,
                                (uint8_t *)l->kept + i * n_out);
        if (l->has_relu)
            d->kernels->relu(l->out + i * n_out, n_out);
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
        float *dout = l->dout + i * n_out;
        if (l->has_relu)
            d->kernels->relu_back(dout, l->out + i * n_out, n_out);
        if (m->is_wide)
            wide_backward(m, dout, (const uint16_t *)l->kept + i * n_out, l->din[0] + i * n_in);
        else if (!l->is_pooled)
            d->kernels->maxpool_back(&m->pool, dout, (const uint8_t *)l->kept + i * n_out,
                                     l->din[0] + i * n_in);
    }
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_maxpool = {
    sizeof(struct maxpool_op), needs, create, destroy, forward, backward, NULL};
