#include "nets/ref/ref.h"

static void forward(const struct cnn_ref_pass *p)
{
    const double *in = p->in[0];

    for (size_t i = 0; i < p->n * cnn_shape_count(p->plan->in); i++)
        p->out[i] = in[i] < 0 ? 0 : in[i]; /* a NaN stays one */
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *dins, double *g)
{
    const double *in = p->in[0];
    double *din = dins[0];

    (void)g;
    if (din == NULL)
        return;
    for (size_t i = 0; i < p->n * cnn_shape_count(p->plan->in); i++)
        din[i] = in[i] > 0 ? dout[i] : 0;
}

const struct cnn_ref_layer cnn_ref_relu = {forward, backward};
