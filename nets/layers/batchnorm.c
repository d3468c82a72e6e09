/* batchnorm.c: batch normalisation (Ioffe & Szegedy 2015): y = scale (x - mean) / sqrt(variance + epsilon) +
 * shift, per channel. In training the statistics are over the batch and all positions; scores use the running
 * statistics. */
#include "nets/layers/layer.h"

#include <errno.h>
#include <math.h>

#define DEFAULT_EPSILON  1e-5f
#define DEFAULT_MOMENTUM 0.1f

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    const struct cnn_layer_spec *s = l->spec;

    if (!(s->epsilon >= 0 && isfinite(s->epsilon)) || !(s->momentum >= 0 && s->momentum <= 1))
        return ps_fail(err, -EINVAL,
                       "layer '%s': epsilon %g, momentum %g; epsilon is at least 0 and momentum 0 to 1",
                       s->name, (double)s->epsilon, (double)s->momentum);
    l->out = l->in;
    l->weight_dims = 1;
    l->weight_shape[0] = l->in.c;
    l->n_buffers = l->in.c;
    return 0;
}

float cnn_batchnorm_epsilon(const struct cnn_layer *l)
{
    return l->spec->epsilon > 0 ? l->spec->epsilon : DEFAULT_EPSILON;
}

double cnn_batchnorm_part(const struct cnn_layer *l)
{
    return (double)(l->spec->momentum > 0 ? l->spec->momentum : DEFAULT_MOMENTUM);
}

void cnn_batchnorm_move(const struct cnn_layer *l, uint32_t c, double mean, double variance, size_t count,
                        float *x)
{
    double part = cnn_batchnorm_part(l);
    double unbiased = count > 1 ? variance * (double)count / (double)(count - 1) : variance;
    float *running_mean = x + l->mean_at + c, *running_variance = x + l->variance_at + c;

    *running_mean = (float)((1 - part) * (double)*running_mean + part * mean);
    *running_variance = (float)((1 - part) * (double)*running_variance + part * unbiased);
}

const struct cnn_layer_type cnn_layer_batchnorm = {"batchnorm", 1, plan, NULL};
