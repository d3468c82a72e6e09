/* maxpool.c: own loops with one byte an output for the place of the maximum: oneDNN's keeps four and is three
 * times slower. Threads share the images. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <stdlib.h>

struct maxpool {
    struct cnn_pool pool;
    uint8_t *argmax;
};

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct maxpool *m = l->state;
    const struct cnn_layer *p = l->plan;
    size_t places = (size_t)p->out.h * p->out.w;

    m->pool = (struct cnn_pool){p->in,
                                p->out,
                                p->spec->kernel,
                                p->spec->stride,
                                p->spec->pad,
                                l->out_is_flat ? places : 1,
                                l->out_is_flat ? 1 : p->out.c};
    m->argmax = malloc(d->batch * cnn_shape_count(p->out));
    return m->argmax != NULL ? 0 : ps_fail(err, -ENOMEM, "no memory for layer '%s'", p->spec->name);
}

static void destroy(struct cnn_dnnl_layer *l)
{
    free(((struct maxpool *)l->state)->argmax);
}

const uint8_t *cnn_dnnl_maxpool_argmax(const struct cnn_dnnl_layer *l)
{
    return ((const struct maxpool *)l->state)->argmax;
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    struct maxpool *m = l->state;
    size_t n_in = cnn_shape_count(l->plan->in), n_out = cnn_shape_count(l->plan->out);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++) {
        d->kernels->maxpool(&m->pool, l->in[0] + i * n_in, l->out + i * n_out, m->argmax + i * n_out);
        if (l->has_relu)
            d->kernels->relu(l->out + i * n_out, n_out);
    }
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    struct maxpool *m = l->state;
    size_t n_in = cnn_shape_count(l->plan->in), n_out = cnn_shape_count(l->plan->out);

    (void)x, (void)g;
    if (l->is_pooled && !l->has_relu)
        return 0;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++) {
        float *dout = l->dout + i * n_out;
        if (l->has_relu)
            d->kernels->relu_back(dout, l->out + i * n_out, n_out);
        if (!l->is_pooled)
            d->kernels->maxpool_back(&m->pool, dout, m->argmax + i * n_out, l->din[0] + i * n_in);
    }
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_maxpool = {
    sizeof(struct maxpool), create, destroy, forward, backward, NULL};
