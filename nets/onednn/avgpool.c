/* avgpool.c: average pooling, also global, in the layout of the input. The work is divided by images and
 * blocks of channels. Sums are float32: in place, or in a buffer of the thread if values are bf16. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "nets/layers/layer.h"

struct avgpool_op {
    float *sums; /* [threads][sum_floats]; NULL: values are float32 */
    size_t sum_floats;
};

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct avgpool_op *s = l->state;
    size_t n_in = (size_t)l->plan->in.h * l->plan->in.w, n_out = (size_t)l->plan->out.h * l->plan->out.w;

    if (d->type == dnnl_f32)
        return 0;
    s->sum_floats = ((n_in > n_out ? n_in : n_out) * l->in_block + 15) / 16 * 16;
    s->sums = cnn_dnnl_buffer(d, d->threads * s->sum_floats * sizeof *s->sums);
    return s->sums != NULL ? 0 : ps_fail(err, -ENOMEM, "no memory for layer '%s'", l->plan->spec->name);
}

static void destroy(struct cnn_dnnl_layer *l)
{
    free(((struct avgpool_op *)l->state)->sums);
}

/* Where the calling thread adds what belongs to `values`. */
static float *sums_of(const struct cnn_dnnl_layer *l, void *values)
{
    const struct avgpool_op *s = l->state;
    return s->sums != NULL ? s->sums + (size_t)omp_get_thread_num() * s->sum_floats : values;
}

/* Adds every position's window. is_back: `from` is the gradient of the output, and sums are of the input. */
static void add_windows(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, bool is_back,
                        const void *from, float *sums)
{
    const struct cnn_layer *p = l->plan;
    size_t channels = l->in_block, k = 0;

    for (uint32_t oy = 0; oy < p->out.h; oy++)
        for (uint32_t ox = 0; ox < p->out.w; ox++, k += channels) {
            struct cnn_clip c = cnn_window_clip(p, oy, ox);
            for (uint32_t y = c.y0; y < c.y1; y++)
                for (uint32_t x = c.x0; x < c.x1; x++) {
                    size_t at = ((size_t)y * p->in.w + x) * channels;
                    d->kernels->add_scaled(sums + (is_back ? at : k), cnn_dnnl_in(d, from, is_back ? k : at),
                                           1 / (float)c.n_counted, channels);
                }
        }
}

/* Of one image and block of channels. */
static void run_block(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, bool is_back,
                      const void *from, void *to)
{
    struct cnn_shape s = is_back ? l->plan->in : l->plan->out;
    size_t n = (size_t)s.h * s.w * l->in_block;
    float *sums = sums_of(l, to);

    memset(sums, 0, n * sizeof *sums);
    add_windows(d, l, is_back, from, sums);
    if (sums != to)
        d->kernels->from_floats(sums, to, n);
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    const struct cnn_layer *p = l->plan;
    uint32_t block = l->in_block;
    size_t n_in = (size_t)p->in.h * p->in.w * block, n_out = (size_t)p->out.h * p->out.w * block;
    size_t n_blocks = d->batch * (p->in.c / block);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n_blocks; i++)
        run_block(d, l, false, cnn_dnnl_in(d, l->in[0], i * n_in), cnn_dnnl_at(d, l->out, i * n_out));
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    const struct cnn_layer *p = l->plan;
    uint32_t block = l->in_block;
    size_t n_in = (size_t)p->in.h * p->in.w * block, n_out = (size_t)p->out.h * p->out.w * block;
    size_t n_blocks = d->batch * (p->in.c / block);

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n_blocks; i++)
        run_block(d, l, true, cnn_dnnl_in(d, l->dout, i * n_out), cnn_dnnl_at(d, l->din[0], i * n_in));
    return 0;
}

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d, (void)l, (void)n;
}

const struct cnn_dnnl_kind cnn_dnnl_avgpool = {
    sizeof(struct avgpool_op), needs, create, destroy, forward, backward, NULL};
