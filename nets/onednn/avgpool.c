/* avgpool.c: average pooling, also global, in the layout of the input. Sums are float32: in place, or in a
 * buffer of the thread if values are bf16. */
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

/* Sums over [places][step], in the first n of each place. */
struct sums {
    float *at;
    size_t step, n;
};

/* Adds every position's window. is_back: `from` is the gradient of the output, and sums are of the input. */
static void add_windows(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, bool is_back,
                        const void *from, const struct sums *s)
{
    const struct cnn_layer *p = l->plan;
    size_t k = 0;

    for (uint32_t oy = 0; oy < p->out.h; oy++)
        for (uint32_t ox = 0; ox < p->out.w; ox++, k++) {
            struct cnn_clip c = cnn_window_clip(p, oy, ox);
            for (uint32_t y = c.y0; y < c.y1; y++)
                for (uint32_t x = c.x0; x < c.x1; x++) {
                    size_t at = (size_t)y * p->in.w + x;
                    d->kernels->add_scaled(s->at + (is_back ? at : k) * s->step,
                                           cnn_dnnl_in(d, from, (is_back ? k : at) * l->in_block),
                                           1 / (float)c.n_counted, s->n);
                }
        }
}

static void clear(const struct sums *s, size_t places)
{
    if (s->step == s->n)
        memset(s->at, 0, places * s->n * sizeof *s->at);
    else
        for (size_t k = 0; k < places; k++)
            memset(s->at + k * s->step, 0, s->n * sizeof *s->at);
}

/* Of some channels of one image. */
static void run_part(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, bool is_back,
                     const struct cnn_dnnl_part *part)
{
    const struct avgpool_op *op = l->state;
    struct cnn_shape in = l->plan->in, out = l->plan->out;
    size_t n_in = (size_t)in.h * in.w, n_out = (size_t)out.h * out.w, places = is_back ? n_in : n_out;
    size_t in_at = part->block * n_in * l->in_block + part->c,
           out_at = part->block * n_out * l->in_block + part->c;
    const void *from = is_back ? cnn_dnnl_in(d, l->dout, out_at) : cnn_dnnl_in(d, l->in[0], in_at);
    void *to = is_back ? cnn_dnnl_at(d, l->din[0], in_at) : cnn_dnnl_at(d, l->out, out_at);
    struct sums s = {to, l->in_block, part->n};

    if (op->sums != NULL)
        s = (struct sums){op->sums + (size_t)omp_get_thread_num() * op->sum_floats, part->n, part->n};
    clear(&s, places);
    add_windows(d, l, is_back, from, &s);
    for (size_t k = 0; op->sums != NULL && k < places; k++)
        d->kernels->from_floats(s.at + k * s.step, cnn_dnnl_at(d, to, k * l->in_block), s.n);
}

static int run(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, bool is_back)
{
    uint32_t n_parts = cnn_dnnl_n_parts(d, l);
    size_t n = cnn_dnnl_n_blocks(d, l) * n_parts;

#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n; i++) {
        struct cnn_dnnl_part part = cnn_dnnl_part_of(l, n_parts, i);
        run_part(d, l, is_back, &part);
    }
    return 0;
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    (void)x;
    return run(d, l, false);
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    (void)x, (void)g;
    return run(d, l, true);
}

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d, (void)l, (void)n;
}

const struct cnn_dnnl_kind cnn_dnnl_avgpool = {
    sizeof(struct avgpool_op), needs, create, destroy, forward, backward, NULL};
