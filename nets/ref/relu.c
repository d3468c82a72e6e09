#include "nets/ref/ref.h"

static void forward(const struct cnn_layer *l, uint32_t n, const float *x, const double *in, double *out)
{
    (void)x;
    for (size_t i = 0; i < n * cnn_shape_count(l->in); i++)
        out[i] = in[i] < 0 ? 0 : in[i]; /* a NaN stays one */
}

static void backward(const struct cnn_layer *l, uint32_t n, const float *x, const double *in,
                     const double *dout, double *din, double *g)
{
    (void)x, (void)g;
    if (din == NULL)
        return;
    for (size_t i = 0; i < n * cnn_shape_count(l->in); i++)
        din[i] = in[i] > 0 ? dout[i] : 0;
}

const struct cnn_ref_layer cnn_ref_relu = {forward, backward};
