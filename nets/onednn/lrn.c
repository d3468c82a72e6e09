/* lrn.c: our own loops: the library has only a reference kernel for the backward pass. The work is divided by
 * the rows of all images. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>

struct lrn_op {
    struct cnn_lrn p;
    float *norm; /* [batch][H][W][C] */
    float *work; /* work_floats per thread */
    size_t work_floats;
};

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    n->back_reads_in = CNN_READS_VALUE;
    n->kept_bytes = cnn_shape_count(l->plan->in) * d->batch * sizeof(float);
}

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct lrn_op *s = l->state;
    const struct cnn_layer_spec *spec = l->plan->spec;

    s->p = (struct cnn_lrn){.channels = l->plan->in.c,
                            .size = spec->size,
                            .half = spec->size / 2,
                            .k = spec->k,
                            .part = spec->alpha / (float)spec->size,
                            .beta = spec->beta};
    s->work_floats = (3 * ((size_t)s->p.channels + s->p.size) + 15) / 16 * 16;
    s->norm = l->kept;
    s->work = cnn_dnnl_buffer(d, s->work_floats * d->threads * sizeof *s->work);
    return s->work != NULL ? 0 : ps_fail(err, -ENOMEM, "no memory for layer '%s'", spec->name);
}

static void destroy(struct cnn_dnnl_layer *l)
{
    free(((struct lrn_op *)l->state)->work);
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    const struct lrn_op *s = l->state;
    size_t places = l->plan->in.w, n = places * l->plan->in.c, rows = (size_t)d->batch * l->plan->in.h;

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < rows; i++)
        d->kernels->norm->lrn(&s->p, places, cnn_dnnl_in(d, l->in[0], i * n), cnn_dnnl_at(d, l->out, i * n),
                              s->norm + i * n, s->work + (size_t)omp_get_thread_num() * s->work_floats);
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    const struct lrn_op *s = l->state;
    size_t places = l->plan->in.w, n = places * l->plan->in.c, rows = (size_t)d->batch * l->plan->in.h;

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < rows; i++)
        d->kernels->norm->lrn_back(&s->p, places, cnn_dnnl_in(d, l->in[0], i * n), s->norm + i * n,
                                   cnn_dnnl_at(d, l->dout, i * n), cnn_dnnl_at(d, l->din[0], i * n),
                                   s->work + (size_t)omp_get_thread_num() * s->work_floats);
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_lrn = {
    sizeof(struct lrn_op), needs, create, destroy, forward, backward, NULL};
