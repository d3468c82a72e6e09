#include "nets/layers/layer.h"
#include "nets/ref/ref.h"

#include <math.h>

/* s[c] at one place; `in` is at channel 0 there. */
static double norm(const struct cnn_layer *l, const double *in, uint32_t c)
{
    size_t plane = (size_t)l->in.h * l->in.w;
    uint32_t from, to;
    double sum = 0;

    cnn_lrn_neighbours(l, c, false, &from, &to);
    for (uint32_t j = from; j < to; j++)
        sum += in[j * plane] * in[j * plane];
    return (double)l->spec->k + (double)l->spec->alpha / l->spec->size * sum;
}

static void forward(const struct cnn_ref_pass *p)
{
    const struct cnn_layer *l = p->plan;
    size_t plane = (size_t)l->in.h * l->in.w, count = cnn_shape_count(l->in);

    for (uint32_t i = 0; i < p->n; i++)
        for (size_t at = i * count; at < i * count + plane; at++)
            for (uint32_t c = 0; c < l->in.c; c++)
                p->out[at + c * plane] =
                    p->in[0][at + c * plane] * pow(norm(l, p->in[0] + at, c), -(double)l->spec->beta);
}

/* dx[c] = dy[c] s[c]^-beta - 2 alpha beta / size * x[c] * the sum of dy[j] x[j] s[j]^(-beta - 1) over the j
 * whose neighbour c is. */
static double derivative(const struct cnn_layer *l, const double *in, const double *dout, uint32_t c)
{
    size_t plane = (size_t)l->in.h * l->in.w;
    double beta = (double)l->spec->beta, sum = 0;
    uint32_t from, to;

    cnn_lrn_neighbours(l, c, true, &from, &to);
    for (uint32_t j = from; j < to; j++)
        sum += dout[j * plane] * in[j * plane] * pow(norm(l, in, j), -beta - 1);
    return dout[c * plane] * pow(norm(l, in, c), -beta) -
           2 * (double)l->spec->alpha * beta / l->spec->size * in[c * plane] * sum;
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *din, double *g)
{
    const struct cnn_layer *l = p->plan;
    size_t plane = (size_t)l->in.h * l->in.w, count = cnn_shape_count(l->in);

    (void)g;
    if (din[0] == NULL)
        return;
    for (uint32_t i = 0; i < p->n; i++)
        for (size_t at = i * count; at < i * count + plane; at++)
            for (uint32_t c = 0; c < l->in.c; c++)
                din[0][at + c * plane] = derivative(l, p->in[0] + at, dout + at, c);
}

const struct cnn_ref_layer cnn_ref_lrn = {forward, backward};
