#include "nets/layers/layer.h"
#include "nets/ref/ref.h"

#include <math.h>

/* The statistics of channel c that this pass normalises with. */
struct moments {
    double mean, inverse; /* inverse: 1 / sqrt(variance + epsilon) */
};

static struct moments moments_of(const struct cnn_ref_pass *p, uint32_t c)
{
    const struct cnn_layer *l = p->plan;
    double mean = p->is_training ? p->stats[c] : (double)p->x[l->mean_at + c];
    double variance = p->is_training ? p->stats[l->in.c + c] : (double)p->x[l->variance_at + c];
    return (struct moments){mean, 1 / sqrt(variance + (double)cnn_batchnorm_epsilon(l))};
}

/* The sum over a channel of the batch of (a - a_less) (b - b_less). */
static double channel_sum(const struct cnn_ref_pass *p, uint32_t c, const double *a, double a_less,
                          const double *b, double b_less)
{
    size_t plane = (size_t)p->plan->in.h * p->plan->in.w, count = cnn_shape_count(p->plan->in);
    double sum = 0;

    for (uint32_t i = 0; i < p->n; i++)
        for (size_t at = i * count + c * plane; at < i * count + (c + 1) * plane; at++)
            sum += (a[at] - a_less) * (b != NULL ? b[at] - b_less : 1);
    return sum;
}

static void measure(const struct cnn_ref_pass *p)
{
    const struct cnn_layer *l = p->plan;
    double count = (double)p->n * l->in.h * l->in.w;

    for (uint32_t c = 0; c < l->in.c; c++) {
        double mean = channel_sum(p, c, p->in[0], 0, NULL, 0) / count;
        p->stats[c] = mean;
        p->stats[l->in.c + c] = channel_sum(p, c, p->in[0], mean, p->in[0], mean) / count;
    }
}

static void forward(const struct cnn_ref_pass *p)
{
    const struct cnn_layer *l = p->plan;
    size_t plane = (size_t)l->in.h * l->in.w, count = cnn_shape_count(l->in);

    if (p->is_training)
        measure(p);
    for (uint32_t c = 0; c < l->in.c; c++) {
        struct moments m = moments_of(p, c);
        double scale = (double)p->x[l->weight_at + c], shift = (double)p->x[l->bias_at + c];
        for (uint32_t i = 0; i < p->n; i++)
            for (size_t at = i * count + c * plane; at < i * count + (c + 1) * plane; at++)
                p->out[at] = scale * (p->in[0][at] - m.mean) * m.inverse + shift;
    }
}

/* dx = scale / sqrt(variance + epsilon) (dy - mean of dy - xn * mean of dy xn), xn: the normalised input. */
static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *din, double *g)
{
    const struct cnn_layer *l = p->plan;
    size_t plane = (size_t)l->in.h * l->in.w, count = cnn_shape_count(l->in);
    double n = (double)p->n * (double)plane;

    for (uint32_t c = 0; c < l->in.c; c++) {
        struct moments m = moments_of(p, c);
        double dshift = channel_sum(p, c, dout, 0, NULL, 0);
        double dscale = m.inverse * channel_sum(p, c, dout, 0, p->in[0], m.mean);
        double scale = (double)p->x[l->weight_at + c];
        g[l->weight_at + c] = dscale;
        g[l->bias_at + c] = dshift;
        g[l->mean_at + c] = g[l->variance_at + c] = 0;
        for (uint32_t i = 0; din[0] != NULL && i < p->n; i++)
            for (size_t at = i * count + c * plane; at < i * count + (c + 1) * plane; at++) {
                double normal = (p->in[0][at] - m.mean) * m.inverse;
                din[0][at] = scale * m.inverse * (dout[at] - dshift / n - normal * dscale / n);
            }
    }
}

const struct cnn_ref_layer cnn_ref_batchnorm = {forward, backward};
