#include "nets/ref/ref.h"

#include <math.h>

static double value(const struct cnn_layer_spec *s, double x)
{
    switch (s->kind) {
    case CNN_RELU:
        return x < 0 ? 0 : x; /* a NaN is kept */
    case CNN_LEAKY_RELU:
        return x > 0 ? x : (double)s->slope * x;
    case CNN_RELU6:
        return x < 0 ? 0 : x > 6 ? 6 : x;
    case CNN_SIGMOID:
        return 1 / (1 + exp(-x));
    default:
        return tanh(x);
    }
}

/* The derivative at input x and output y. */
static double derivative(const struct cnn_layer_spec *s, double x, double y)
{
    switch (s->kind) {
    case CNN_RELU:
        return x > 0 ? 1 : 0;
    case CNN_LEAKY_RELU:
        return x > 0 ? 1 : (double)s->slope;
    case CNN_RELU6:
        return x > 0 && x < 6 ? 1 : 0;
    case CNN_SIGMOID:
        return y * (1 - y);
    default:
        return 1 - y * y;
    }
}

static void forward(const struct cnn_ref_pass *p)
{
    for (size_t i = 0; i < p->n * cnn_shape_count(p->plan->in); i++)
        p->out[i] = value(p->plan->spec, p->in[0][i]);
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *dins, double *g)
{
    double *din = dins[0];

    (void)g;
    if (din == NULL)
        return;
    for (size_t i = 0; i < p->n * cnn_shape_count(p->plan->in); i++) {
        double d = derivative(p->plan->spec, p->in[0][i], p->out[i]);
        din[i] = d != 0 ? d * dout[i] : 0;
    }
}

const struct cnn_ref_layer cnn_ref_activation = {forward, backward};
