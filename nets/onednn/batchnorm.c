/* batchnorm.c: our own loops: with few channels the library uses narrow vectors in [H][W][C]. The work is
 * divided by images and blocks of channels. Sums are taken per image and then in the order of the images, so
 * they do not depend on the number of threads. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "nets/layers/layer.h"

struct batchnorm {
    double *batch_mean, *batch_variance; /* [C]; of the last batch in training */
    float *mean, *inverse;               /* [C]; the statistics of this pass; inverse: 1 / sqrt(variance +
                                            epsilon) */
    float *a, *b, *c;                    /* [C]; coefficients of the loops */
    float *sums, *products;              /* [batch][C] */
};

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d;
    n->back_reads_in = CNN_READS_VALUE;
    n->back_reads_out = l->has_relu ? CNN_READS_SIGN : CNN_READS_NOTHING;
}

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct batchnorm *s = l->state;
    size_t channels = l->plan->in.c, n = channels * d->batch;

    s->batch_mean = cnn_dnnl_buffer(d, 2 * channels * sizeof *s->batch_mean);
    s->mean = cnn_dnnl_buffer(d, (5 * channels + 2 * n) * sizeof *s->mean);
    if (s->batch_mean == NULL || s->mean == NULL)
        return ps_fail(err, -ENOMEM, "no memory for layer '%s'", l->plan->spec->name);
    s->batch_variance = s->batch_mean + channels;
    s->inverse = s->mean + channels;
    s->a = s->inverse + channels;
    s->b = s->a + channels;
    s->c = s->b + channels;
    s->sums = s->c + channels;
    s->products = s->sums + n;
    return 0;
}

static void destroy(struct cnn_dnnl_layer *l)
{
    struct batchnorm *s = l->state;

    free(s->batch_mean);
    free(s->mean);
}

static double total(const struct cnn_dnnl *d, const float *sums, size_t channels, size_t c)
{
    double sum = 0;
    for (uint32_t i = 0; i < d->batch; i++)
        sum += (double)sums[i * channels + c];
    return sum;
}

/* Combines the variances of the images about their own means (Chan, Golub, LeVeque 1979), so that the batch
 * is read once. */
static double variance_of(const struct cnn_dnnl *d, const struct batchnorm *s, size_t channels, size_t c,
                          double places)
{
    double squares = total(d, s->products, channels, c);

    for (uint32_t i = 0; i < d->batch; i++) {
        double off = (double)s->sums[i * channels + c] / places - s->batch_mean[c];
        squares += places * off * off;
    }
    return squares / (places * d->batch);
}

/* Channels of one image. */
struct piece {
    size_t places, step, channels;
    size_t at;         /* of its first value */
    size_t c, sums_at; /* its first channel, and the index of its sums */
};

static size_t n_pieces(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l)
{
    return cnn_dnnl_n_blocks(d, l) * cnn_dnnl_n_parts(d, l);
}

static struct piece piece_of(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, size_t k)
{
    struct cnn_dnnl_part p = cnn_dnnl_part_of(l, cnn_dnnl_n_parts(d, l), k);
    size_t places = (size_t)l->plan->in.h * l->plan->in.w, block = l->in_block;
    size_t sums_at = p.block * block + p.c;

    return (struct piece){places, block, p.n, p.block * places * block + p.c, sums_at % l->plan->in.c,
                          sums_at};
}

static void measure(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l)
{
    struct batchnorm *s = l->state;
    size_t channels = l->plan->in.c, places = (size_t)l->plan->in.h * l->plan->in.w, n = n_pieces(d, l);

#pragma omp parallel num_threads(d->threads) if (d->threads > 1)
    {
#pragma omp for
        for (size_t k = 0; k < n; k++) {
            struct piece p = piece_of(d, l, k);
            d->kernels->norm->moments(p.places, p.step, p.channels, cnn_dnnl_in(d, l->in[0], p.at),
                                      s->sums + p.sums_at, s->products + p.sums_at);
        }
#pragma omp for
        for (size_t c = 0; c < channels; c++) {
            s->batch_mean[c] = total(d, s->sums, channels, c) / ((double)places * d->batch);
            s->batch_variance[c] = variance_of(d, s, channels, c, (double)places);
            s->mean[c] = (float)s->batch_mean[c];
        }
    }
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    struct batchnorm *s = l->state;
    const struct cnn_layer *p = l->plan;
    size_t channels = p->in.c, n = n_pieces(d, l);
    double epsilon = (double)cnn_batchnorm_epsilon(p);

    if (d->is_training)
        measure(d, l);
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t c = 0; c < channels; c++) {
        double variance = d->is_training ? s->batch_variance[c] : (double)x[p->variance_at + c];
        if (!d->is_training)
            s->mean[c] = x[p->mean_at + c];
        s->inverse[c] = (float)(1 / sqrt(variance + epsilon));
        s->a[c] = x[p->weight_at + c] * s->inverse[c];
    }
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t k = 0; k < n; k++) {
        struct piece q = piece_of(d, l, k);
        d->kernels->norm->affine(q.places, q.step, q.channels, cnn_dnnl_in(d, l->in[0], q.at), s->mean + q.c,
                                 s->a + q.c, x + p->bias_at + q.c, l->has_relu, cnn_dnnl_at(d, l->out, q.at));
    }
    return 0;
}

/* The equation is in nets/ref/batchnorm.c. */
static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    struct batchnorm *s = l->state;
    const struct cnn_layer *p = l->plan;
    size_t channels = p->in.c, n = n_pieces(d, l);
    double count = (double)p->in.h * p->in.w * d->batch;

#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t k = 0; k < n; k++) {
        struct piece q = piece_of(d, l, k);
        d->kernels->norm->back_sums(q.places, q.step, q.channels, cnn_dnnl_in(d, l->in[0], q.at),
                                    s->mean + q.c, cnn_dnnl_at(d, l->dout, q.at),
                                    l->has_relu ? cnn_dnnl_at(d, l->out, q.at) : NULL, s->sums + q.sums_at,
                                    s->products + q.sums_at);
    }
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t c = 0; c < channels; c++) {
        double inverse = (double)s->inverse[c], a = (double)x[p->weight_at + c] * inverse;
        double dshift = total(d, s->sums, channels, c), dscale = inverse * total(d, s->products, channels, c);
        g[p->weight_at + c] = (float)dscale;
        g[p->bias_at + c] = (float)dshift;
        g[p->mean_at + c] = g[p->variance_at + c] = 0;
        s->a[c] = (float)a;
        s->b[c] = (float)(-a * inverse * dscale / count);
        s->c[c] = (float)(-a * dshift / count);
    }
    if (l->din[0] == NULL)
        return 0;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t k = 0; k < n; k++) {
        struct piece q = piece_of(d, l, k);
        d->kernels->norm->back_affine(q.places, q.step, q.channels, cnn_dnnl_in(d, l->in[0], q.at),
                                      s->mean + q.c, cnn_dnnl_at(d, l->dout, q.at), s->a + q.c, s->b + q.c,
                                      s->c + q.c, cnn_dnnl_at(d, l->din[0], q.at));
    }
    return 0;
}

static void update_buffers(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, float *x)
{
    const struct batchnorm *s = l->state;
    const struct cnn_layer *p = l->plan;

    for (uint32_t c = 0; c < p->in.c; c++)
        cnn_batchnorm_move(p, c, s->batch_mean[c], s->batch_variance[c], (size_t)d->batch * p->in.h * p->in.w,
                           x);
}

const struct cnn_dnnl_kind cnn_dnnl_batchnorm = {
    sizeof(struct batchnorm), needs, create, destroy, forward, backward, update_buffers};
