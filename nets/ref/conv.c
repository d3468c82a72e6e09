#include "nets/ref/ref.h"

#include <string.h>

/* The input position of output (oy, ox) at kernel position (ky, kx); false if it is in the padding. */
static bool input_at(const struct cnn_layer *l, uint32_t oy, uint32_t ox, uint32_t ky, uint32_t kx,
                     size_t *at)
{
    const struct cnn_window *w = &l->window;
    int64_t iy = (int64_t)oy * w->stride[0] + (int64_t)ky * w->dilation[0] - w->pad[0];
    int64_t ix = (int64_t)ox * w->stride[1] + (int64_t)kx * w->dilation[1] - w->pad[1];

    if (iy < 0 || ix < 0 || iy >= l->in.h || ix >= l->in.w)
        return false;
    *at = (size_t)iy * l->in.w + (size_t)ix;
    return true;
}

/* Offset of the first input channel in the group of output channel o. */
static size_t group_at(const struct cnn_layer *l, uint32_t o)
{
    size_t group = o / (l->out.c / l->groups);
    return group * (l->in.c / l->groups) * l->in.h * l->in.w;
}

/* One output value: the sum over [C / groups][KH][KW]. */
static double dot(const struct cnn_layer *l, const float *weight, const double *in, uint32_t oy, uint32_t ox)
{
    uint32_t kh = l->window.kernel[0], kw = l->window.kernel[1];
    double sum = 0;
    size_t at;

    for (uint32_t ky = 0; ky < kh; ky++)
        for (uint32_t kx = 0; kx < kw; kx++)
            if (input_at(l, oy, ox, ky, kx, &at))
                for (uint32_t c = 0; c < l->in.c / l->groups; c++)
                    sum += (double)weight[(c * kh + ky) * kw + kx] * in[(size_t)c * l->in.h * l->in.w + at];
    return sum;
}

static void forward(const struct cnn_ref_pass *p)
{
    const struct cnn_layer *l = p->plan;
    const double *in = p->in[0];
    double *out = p->out;
    const float *weight = p->x + l->weight_at, *bias = l->n_biases > 0 ? p->x + l->bias_at : NULL;

    for (uint32_t i = 0; i < p->n; i++, in += cnn_shape_count(l->in))
        for (uint32_t o = 0; o < l->out.c; o++)
            for (uint32_t oy = 0; oy < l->out.h; oy++)
                for (uint32_t ox = 0; ox < l->out.w; ox++)
                    *out++ = (bias != NULL ? (double)bias[o] : 0) +
                             dot(l, weight + (size_t)o * l->fan_in, in + group_at(l, o), oy, ox);
}

/* Adds the gradient d of one output to the gradients of its bias, weights and inputs. */
static void spread(const struct cnn_layer *l, double d, const float *weight, const double *in, uint32_t oy,
                   uint32_t ox, double *din, double *dweight)
{
    uint32_t kh = l->window.kernel[0], kw = l->window.kernel[1];
    size_t at;

    for (uint32_t ky = 0; ky < kh; ky++)
        for (uint32_t kx = 0; kx < kw; kx++)
            if (input_at(l, oy, ox, ky, kx, &at))
                for (uint32_t c = 0; c < l->in.c / l->groups; c++) {
                    size_t w = (c * kh + ky) * kw + kx, p = (size_t)c * l->in.h * l->in.w + at;
                    dweight[w] += d * in[p];
                    if (din != NULL)
                        din[p] += d * (double)weight[w];
                }
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *dins, double *g)
{
    const struct cnn_layer *l = p->plan;
    const double *in = p->in[0];
    double *din = dins[0];
    const float *weight = p->x + l->weight_at;
    double *dweight = g + l->weight_at, *dbias = l->n_biases > 0 ? g + l->bias_at : NULL;
    size_t n_in = cnn_shape_count(l->in);

    memset(dweight, 0, l->n_weights * sizeof *g);
    memset(g + l->bias_at, 0, l->n_biases * sizeof *g);
    if (din != NULL)
        memset(din, 0, p->n * n_in * sizeof *din);
    for (uint32_t i = 0; i < p->n; i++, in += n_in, din = din != NULL ? din + n_in : NULL)
        for (uint32_t o = 0; o < l->out.c; o++)
            for (uint32_t oy = 0; oy < l->out.h; oy++)
                for (uint32_t ox = 0; ox < l->out.w; ox++, dout++) {
                    size_t w = (size_t)o * l->fan_in;
                    if (dbias != NULL)
                        dbias[o] += *dout;
                    spread(l, *dout, weight + w, in + group_at(l, o), oy, ox,
                           din != NULL ? din + group_at(l, o) : NULL, dweight + w);
                }
}

const struct cnn_ref_layer cnn_ref_conv = {forward, backward};
