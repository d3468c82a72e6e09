/* pooled_conv.c: the fused backward pass of a max-pool and the convolution before it: see struct cnn_pooled.
 * Weights are divided among threads by channels, the input's gradient by images, so that the bits do not
 * depend on the number of threads. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16 /* floats in a vector of the kernels */

struct cnn_dnnl_pooled {
    struct cnn_pooled p;
    int32_t *tables; /* memory of the tables in p */
    float *weight;   /* [kernel][n_out][row_vectors * LANES]; the padding stays 0 */
    float *dweight;  /* [n_out][kernel][row_vectors * LANES] */
    uint32_t n_works;
    struct cnn_pooled_work *works; /* one per thread; only if the input's gradient is wanted */
};

bool cnn_dnnl_can_pool(const struct cnn_dnnl *d, const struct cnn_layer *conv, const struct cnn_layer *next)
{
    const struct cnn_window *w = &conv->window, *pool = &next->window;

    return d->kernels->pooled != NULL && conv->spec->kind == CNN_CONV && conv->trains && conv->n_biases > 0 &&
           w->pad[0] + w->pad[1] + w->pad_end[0] + w->pad_end[1] == 0 && w->dilation[0] == 1 &&
           w->kernel[0] == w->kernel[1] && w->stride[0] == w->stride[1] && conv->groups == 1 &&
           next->spec->kind == CNN_MAXPOOL && pool->stride[0] >= 2 && pool->stride[1] >= 2 &&
           pool->kernel[0] * pool->kernel[1] <= 256;
}

static void fill_tables(struct cnn_dnnl_pooled *s, const struct cnn_layer *conv, const struct cnn_layer *pool)
{
    struct cnn_pooled *p = &s->p;
    const struct cnn_window *w = &pool->window;
    int32_t width = (int32_t)w->kernel[1], window = (int32_t)(w->kernel[0] * w->kernel[1]);
    int32_t out_w = (int32_t)conv->out.w, conv_stride = (int32_t)conv->window.stride[0];
    int32_t down = conv_stride * (int32_t)p->row_step, right = conv_stride * (int32_t)conv->in.c;
    int32_t *place_at = s->tables, *place_in_at = place_at + p->n_places;
    int32_t *argmax_at = place_in_at + p->n_places, *argmax_in_at = argmax_at + window;
    int32_t *in_at = argmax_in_at + window;

    for (int32_t k = 0; k < (int32_t)p->n_places; k++) {
        int32_t y = k / (int32_t)pool->out.w * (int32_t)w->stride[0] - (int32_t)w->pad[0];
        int32_t x = k % (int32_t)pool->out.w * (int32_t)w->stride[1] - (int32_t)w->pad[1];
        place_at[k] = y * out_w + x;
        place_in_at[k] = y * down + x * right;
    }
    for (int32_t k = 0; k < window; k++) {
        argmax_at[k] = k / width * out_w + k % width;
        argmax_in_at[k] = k / width * down + k % width * right;
    }
    for (int32_t k = 0; k < (int32_t)p->n_positions; k++)
        in_at[k] = k / out_w * down + k % out_w * right;
    p->place_at = place_at;
    p->place_in_at = place_in_at;
    p->argmax_at = argmax_at;
    p->argmax_in_at = argmax_in_at;
    p->in_at = in_at;
}

static bool create_works(struct cnn_dnnl *d, struct cnn_dnnl_pooled *s)
{
    const struct cnn_pooled *p = &s->p;
    uint32_t threads = d->threads;

    s->works = calloc(threads, sizeof *s->works);
    if (s->works == NULL)
        return false;
    for (s->n_works = 0; s->n_works < threads; s->n_works++) {
        struct cnn_pooled_work *w = &s->works[s->n_works];
        w->entries = cnn_dnnl_buffer(d, (size_t)p->n_places * p->n_out * sizeof *w->entries);
        w->first = cnn_dnnl_buffer(d, (p->n_positions + 1) * sizeof *w->first);
        w->din = cnn_dnnl_buffer(d, (cnn_shape_count(p->in) + LANES) * sizeof *w->din);
        if (w->entries == NULL || w->first == NULL || w->din == NULL) {
            s->n_works++; /* counted first, so that destroy frees a partial one */
            return false;
        }
    }
    return true;
}

int cnn_dnnl_pooled_create(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_dnnl_pooled **out,
                           struct ps_error *err)
{
    const struct cnn_layer *conv = l->plan, *pool = l->pool->plan;
    struct cnn_dnnl_pooled *s = calloc(1, sizeof *s);

    if (s == NULL)
        goto no_memory;
    s->p = (struct cnn_pooled){
        .in = conv->in,
        .n_out = conv->out.c,
        .kernel = conv->window.kernel[0],
        .n_places = pool->out.h * pool->out.w,
        .n_positions = conv->out.h * conv->out.w,
        .row_vectors = (conv->window.kernel[1] * conv->in.c + LANES - 1) / LANES,
        .row_step = (size_t)conv->in.w * conv->in.c,
        .c_step = l->pool->out_layout == CNN_DNNL_FLAT ? (size_t)pool->out.h * pool->out.w : 1,
        .place_step = l->pool->out_layout == CNN_DNNL_FLAT ? 1 : pool->out.c,
    };
    size_t n_window = (size_t)pool->window.kernel[0] * pool->window.kernel[1];
    size_t n_weights = (size_t)s->p.kernel * s->p.n_out * s->p.row_vectors * LANES;
    s->tables = cnn_dnnl_buffer(d, (2 * (s->p.n_places + n_window) + s->p.n_positions) * sizeof *s->tables);
    s->dweight = cnn_dnnl_buffer(d, n_weights * sizeof *s->dweight);
    s->weight = cnn_dnnl_buffer(d, n_weights * sizeof *s->weight);
    if (s->tables == NULL || s->dweight == NULL || s->weight == NULL ||
        (l->din[0] != NULL && !create_works(d, s)))
        goto no_memory;
    fill_tables(s, conv, pool);
    *out = s;
    return 0;

no_memory:
    cnn_dnnl_pooled_destroy(s);
    return ps_fail(err, -ENOMEM, "no memory for layer '%s'", conv->spec->name);
}

void cnn_dnnl_pooled_destroy(struct cnn_dnnl_pooled *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->n_works; i++) {
        free(s->works[i].entries);
        free(s->works[i].first);
        free(s->works[i].din);
    }
    free(s->works);
    free(s->tables);
    free(s->weight);
    free(s->dweight);
    free(s);
}

/* weight[ky][o][kx * C + c] from flat [o][c][ky][kx] */
static void pack(const struct cnn_pooled *p, const float *flat, float *weight)
{
    size_t row = (size_t)p->row_vectors * LANES;

    for (uint32_t o = 0; o < p->n_out; o++)
        for (uint32_t c = 0; c < p->in.c; c++)
            for (uint32_t ky = 0; ky < p->kernel; ky++)
                for (uint32_t kx = 0; kx < p->kernel; kx++)
                    weight[(ky * p->n_out + o) * row + kx * p->in.c + c] = *flat++;
}

/* flat [o][c][ky][kx] of channels o0 to o1 from dweight[o][ky][kx * C + c] */
static void unpack(const struct cnn_pooled *p, const float *dweight, uint32_t o0, uint32_t o1, float *flat)
{
    size_t row = (size_t)p->row_vectors * LANES;

    flat += (size_t)o0 * p->in.c * p->kernel * p->kernel;
    for (uint32_t o = o0; o < o1; o++)
        for (uint32_t c = 0; c < p->in.c; c++)
            for (uint32_t ky = 0; ky < p->kernel; ky++)
                for (uint32_t kx = 0; kx < p->kernel; kx++)
                    *flat++ = dweight[(o * p->kernel + ky) * row + kx * p->in.c + c];
}

static void back_weights(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct cnn_dnnl_pooled *s, float *g)
{
    const struct cnn_pooled *p = &s->p;
    const uint8_t *argmax = l->pool->kept;
    float *dbias = g + l->plan->bias_at;
    size_t channel_floats = (size_t)p->kernel * p->row_vectors * LANES;

#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t t = 0; t < d->threads; t++) {
        uint32_t c0 = (uint32_t)((uint64_t)p->n_out * t / d->threads);
        uint32_t c1 = (uint32_t)((uint64_t)p->n_out * (t + 1) / d->threads);
        memset(s->dweight + c0 * channel_floats, 0, (c1 - c0) * channel_floats * sizeof *s->dweight);
        memset(dbias + c0, 0, (c1 - c0) * sizeof *dbias);
        d->kernels->pooled->back_weights(p, d->batch, l->in[0], l->dout, argmax, c0, c1, s->dweight, dbias);
        unpack(p, s->dweight, c0, c1, g + l->plan->weight_at);
    }
}

static void back_data(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct cnn_dnnl_pooled *s, const float *x)
{
    const uint8_t *argmax = l->pool->kept;
    const float *dout = l->dout;
    float *din = l->din[0];
    size_t n_in = cnn_shape_count(s->p.in), n_out = (size_t)s->p.n_places * s->p.n_out;

    pack(&s->p, x + l->plan->weight_at, s->weight);
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++)
        d->kernels->pooled->back_data(&s->p, dout + i * n_out, argmax + i * n_out, s->weight,
                                      &s->works[omp_get_thread_num()], din + i * n_in);
}

void cnn_dnnl_pooled_backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct cnn_dnnl_pooled *s,
                              const float *x, float *g)
{
    back_weights(d, l, s, g);
    if (l->din[0] != NULL)
        back_data(d, l, s, x);
}
